//! WSGI (PEP 3333) on pool threads: the application is called, its response is given to the response writer.
//!
//! Takes exchanges from a worker. Knows no socket.

mod worker;

mod environ;
mod error_stream;
mod response;
mod start_response;

mod file_wrapper;

mod gil;
mod thread_registry;

use std::sync::Arc;
use std::time::Duration;

use cli::AppFacts;
use pyo3::prelude::*;
use server::handler::{Handler, Stack};
use server::pool::Worker;
use server::watchdog::Thread;
use telemetry::Stamp;

use crate::downstream;
use gil::Gil;
use thread_registry::StackSampler;

pub(crate) use environ::{hash, is_forwarding};
pub(crate) use file_wrapper::FileSpan;
pub(crate) use response::ObjectPiece;
pub(crate) use start_response::{decimal, is_hop_by_hop, rate};
pub(crate) use thread_registry::RequestTimeout;

/// A WSGI application on pool threads.
pub(crate) struct Wsgi {
    application: Py<PyAny>,
    script_name: Vec<u8>,
    facts: AppFacts,
    gil: Arc<Gil>,
    stack_sampler: StackSampler,
}

impl Wsgi {
    /// `root_path` is the URL path that the application is mounted at.
    pub(crate) fn new(
        application: Py<PyAny>,
        root_path: &str,
        facts: AppFacts,
        gil_is_on: bool,
    ) -> Self {
        Self {
            application,
            script_name: decoded_path(root_path.trim_end_matches('/')),
            facts,
            gil: Arc::new(Gil::new(gil_is_on)),
            stack_sampler: StackSampler::default(),
        }
    }
}

/// The bytes that a path of the configuration stands for.
pub(crate) fn decoded_path(path: &str) -> Vec<u8> {
    let mut decoded = Vec::new();
    match http::target::decode(path.as_bytes(), &mut decoded) {
        true => decoded,
        // One with another `%` stands for itself.
        false => path.into(),
    }
}

impl Handler for Wsgi {
    fn work(&self, worker: &mut Worker) {
        Python::attach(|py| {
            if let Err(error) = worker::run(self, py, worker) {
                error.print(py);
            }
        });
    }

    fn stack(&self, thread: Thread, wait_max: Duration) -> Stack {
        match self.gil.threads.find(thread) {
            Some(thread) => self.stack_sampler.stack(thread, wait_max),
            None => Stack::Unknown,
        }
    }

    fn interrupt(&self, thread: Thread, began: Stamp) -> bool {
        let thread = self.gil.threads.find(thread);
        thread.is_some_and(|thread| self.stack_sampler.interrupt(thread, began))
    }

    fn gil_share(&self) -> Option<f64> {
        self.gil.share()
    }

    fn is_downstream_full(&self, pool: u16) -> bool {
        downstream::is_full(pool)
    }
}

impl Drop for Wsgi {
    fn drop(&mut self) {
        self.gil.end();
    }
}

/// The name of an object's class, for messages.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string())
}
