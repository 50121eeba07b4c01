//! WSGI (PEP 3333) on pool threads: the application is called, its reply is given to the response writer.
//!
//! Takes exchanges from a worker. A thread attaches to the interpreter once and detaches only where it would
//! wait, so that a request costs no release of the GIL while others are waiting. Knows no socket.

mod call;
mod environ;
mod knocker;
mod lines;
mod names;
mod onlooker;
mod reply;
mod roster;
mod turns;
mod workbench;
mod wrapper;

use std::sync::Arc;

use measure::Stamp;
use pyo3::prelude::*;
use server::handler::{Handler, Stack};
use server::pool::{Assignment, Worker};
use server::watch::Thread;

use crate::{downstream, kept, raw};
use knocker::{Door, Knocker};
use onlooker::Onlooker;
pub(crate) use roster::RequestTimeout;
use turns::{Burst, Turns};
use workbench::Workbench;
pub(crate) use wrapper::FileWrapper;

/// A WSGI application on pool threads.
pub(crate) struct Wsgi {
    application: Py<PyAny>,
    script_name: Vec<u8>,
    concurrency: Concurrency,
    door: Arc<Door>,
    knocker: Knocker,
    onlooker: Onlooker,
}

/// How an application is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Concurrency {
    pub(crate) multithread: bool,
    pub(crate) multiprocess: bool,
    /// Threads take turns at the interpreter.
    pub(crate) gil: bool,
}

impl Wsgi {
    /// `root_path` is the URL path that the application is mounted at.
    pub(crate) fn new(application: Py<PyAny>, root_path: &str, concurrency: Concurrency) -> Self {
        Self {
            application,
            script_name: root_path.trim_end_matches('/').into(),
            concurrency,
            door: Arc::default(),
            knocker: Knocker::default(),
            onlooker: Onlooker::default(),
        }
    }

    fn work_attached(&self, py: Python<'_>, worker: &mut Worker) -> PyResult<()> {
        introduce_thread(py);
        kept::start();
        downstream::enter(worker.pool_index());
        if worker.is_watched() {
            onlooker::prepare(py);
        }
        let listed = self.door.roster.enter(py)?;
        let line = Arc::clone(&listed.line);
        let mut workbench = Workbench::new(py, self, line, worker)?;
        let mut burst = Burst::begin();
        loop {
            let assignment = match worker.next_now() {
                Some(assignment) => assignment,
                None => match self.wait(py, worker) {
                    Some(assignment) => {
                        burst = Burst::begin();
                        assignment
                    }
                    None => return Ok(()),
                },
            };
            let Assignment {
                mut exchange,
                writer,
            } = assignment;
            let (writer, answered) = workbench.answer(py, &mut exchange, writer, worker.meter());
            for text in answered.news.iter().flatten() {
                worker.note(&exchange, text);
            }
            worker.finish(Assignment { exchange, writer }, answered.result);
            if self.concurrency.gil && self.turns().is_due(&mut burst) {
                raw::detached(py, || self.turns().let_others_in());
                self.turns().attached();
                burst = Burst::begin();
            }
        }
    }

    /// Waits for an exchange, detached; notes how long it took to attach again.
    fn wait(&self, py: Python<'_>, worker: &mut Worker) -> Option<Assignment> {
        let (assignment, since) = raw::detached(py, || {
            let assignment = worker.next_wait();
            self.turns().attaching();
            (assignment, measure::now())
        });
        self.turns().attached();
        let mut assignment = assignment?;
        if self.concurrency.gil {
            let waited = measure::now().since(since);
            assignment.exchange.record.phases.gil = waited;
            self.turns().has_waited(waited);
        }
        Some(assignment)
    }

    fn turns(&self) -> &Turns {
        &self.door.turns
    }
}

impl Handler for Wsgi {
    fn work(&self, worker: &mut Worker) {
        Python::attach(|py| {
            if let Err(error) = self.work_attached(py, worker) {
                error.print(py);
            }
        });
    }

    fn stack(&self, thread: Thread) -> Stack {
        match self.door.roster.find(thread) {
            Some(line) => self.onlooker.stack(line),
            None => Stack::Unknown,
        }
    }

    fn interrupt(&self, thread: Thread, began: Stamp) -> bool {
        let line = self.door.roster.find(thread);
        line.is_some_and(|line| self.onlooker.interrupt(line, began))
    }

    fn gil_share(&self) -> Option<f64> {
        self.concurrency
            .gil
            .then(|| self.knocker.share(&self.door))
            .flatten()
    }

    fn is_downstream_full(&self, pool: u16) -> bool {
        downstream::is_full(pool)
    }
}

/// Gives the thread the name that the operating system knows it by, for agents and stack dumps. Threads that
/// requests start are to be waited for at the end unless they say otherwise, as those of the main thread are:
/// they inherit it, and a thread that `threading` has not started is a daemon. What has replaced `threading` may
/// refuse.
fn introduce_thread(py: Python<'_>) {
    let thread = std::thread::current();
    let introduced = py.import("threading").and_then(|threading| {
        let known = threading.call_method0("current_thread")?;
        known.setattr("name", thread.name().unwrap_or("mp-pool"))?;
        known.setattr("_daemonic", false)
    });
    drop(introduced);
}

/// The name of an object's class, for messages.
fn type_name(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string())
}
