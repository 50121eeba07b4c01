//! WSGI (PEP 3333) on pool threads: the application is called, its reply is given to the outlet.
//!
//! Takes exchanges from a seat. A thread attaches to the interpreter once and detaches only where it would
//! wait, so that a request costs no release of the GIL while others are waiting. Knows no socket.

mod call;
mod environ;
mod lines;
mod names;
mod reply;
mod turns;
mod workbench;
mod wrapper;

use pyo3::prelude::*;
use server::exchange::Exchange;
use server::handler::Handler;
use server::pool::Seat;

use crate::raw;
use turns::{Burst, Turns};
use workbench::Workbench;
pub(crate) use wrapper::FileWrapper;

/// A WSGI application on pool threads.
pub(crate) struct Wsgi {
    application: Py<PyAny>,
    script_name: Vec<u8>,
    concurrency: Concurrency,
    turns: Turns,
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
            turns: Turns::default(),
        }
    }

    fn work_attached(&self, py: Python<'_>, seat: &mut Seat) -> PyResult<()> {
        name_thread(py);
        let mut workbench = Workbench::new(py, self, seat.request_id_header())?;
        let mut burst = Burst::begin();
        loop {
            let exchange = match seat.next_now() {
                Some(exchange) => exchange,
                None => match self.wait(py, seat) {
                    Some(exchange) => {
                        burst = Burst::begin();
                        exchange
                    }
                    None => return Ok(()),
                },
            };
            seat.attend(exchange, |exchange, outlet| {
                workbench.answer(py, exchange, outlet)
            });
            if self.concurrency.gil && self.turns.is_due(&mut burst) {
                raw::detached(py, || self.turns.let_others_in());
                self.turns.attached();
                burst = Burst::begin();
            }
        }
    }

    /// Waits for an exchange, detached; notes how long it took to attach again.
    fn wait(&self, py: Python<'_>, seat: &mut Seat) -> Option<Box<Exchange>> {
        let (exchange, since) = raw::detached(py, || {
            let exchange = seat.next_wait();
            self.turns.attaching();
            (exchange, measure::now())
        });
        self.turns.attached();
        let mut exchange = exchange?;
        if self.concurrency.gil {
            exchange.phases.gil = measure::now().since(since);
        }
        Some(exchange)
    }
}

impl Handler for Wsgi {
    fn work(&self, seat: &mut Seat) {
        Python::attach(|py| {
            if let Err(error) = self.work_attached(py, seat) {
                error.print(py);
            }
        });
    }
}

/// Gives the thread the name that the operating system knows it by, for agents and stack dumps. What has
/// replaced `threading` may refuse.
fn name_thread(py: Python<'_>) {
    let thread = std::thread::current();
    let named = py.import("threading").and_then(|threading| {
        threading
            .call_method0("current_thread")?
            .setattr("name", thread.name().unwrap_or("mp-pool"))
    });
    drop(named);
}

/// The name of an object's class, for messages.
fn type_name(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string())
}
