//! Calls of the interpreter for threads that must not wait for it, as to see where a request is.
//!
//! The thread `mp-stack`, which the first call starts, attaches in the caller's place, and it is waited for a bounded time,
//! because somebody may hold the interpreter for as long as it wants.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::visit;

/// The thread, and what it is to do.
#[derive(Default)]
pub(crate) struct StackThread {
    tasks: Mutex<Option<Sender<Task>>>,
    /// Tasks that are not done.
    pending: Arc<AtomicUsize>,
}

/// What is done attached.
type Task = Box<dyn FnOnce(Python<'_>) + Send>;

impl StackThread {
    /// Whether a task waits for the interpreter, or runs.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// What `look` gives; `None`: not in this time. Without a thread the task is dropped, which ends the wait.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        wait_max: Duration,
        look: impl FnOnce(Python<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        let (told, answer) = mpsc::channel();
        let pending = Arc::clone(&self.pending);
        pending.fetch_add(1, Ordering::Relaxed);
        let task = Box::new(move |py: Python<'_>| {
            let found = look(py);
            // Who has its answer may ask again at once, and is not to find this one pending still.
            let before = pending.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "more tasks of mp-stack end than have begun");
            // Whoever asked may have gone meanwhile.
            let _ = told.send(found);
        });
        if !self.send(task) {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
        answer.recv_timeout(wait_max).ok()
    }

    fn send(&self, task: Task) -> bool {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.is_none() {
            *tasks = start().ok();
        }
        let sender = tasks.as_ref();
        sender.is_some_and(|sender| sender.send(task).is_ok())
    }
}

/// Ends with its sender.
fn start() -> std::io::Result<Sender<Task>> {
    let (sender, tasks) = mpsc::channel::<Task>();
    let work = move || {
        for task in tasks {
            let _visit = visit::begin();
            Python::attach(task);
        }
    };
    let builder = thread::Builder::new().name("mp-stack".to_owned());
    builder.spawn(work)?;
    Ok(sender)
}
