//! `wsgi.errors`: what an application prints there goes to the error log, under the id of its request.
//!
//! One for each pool thread. Takes texts; keeps them until `flush()` or the end of the request, so that a traceback
//! that is printed in pieces is one entry of the log. What other threads write is logged at once and without an id:
//! nobody knows which request it is of. Touches neither Python's streams nor a disk.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use pyo3::prelude::*;
use pyo3::types::PyString;
use server::exchange::ExchangeName;
use server::pool::ErrorOutput;

/// Bytes of text that wait for the end of the request at most.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The object in `environ["wsgi.errors"]`.
#[pyclass(module = "milepost._milepost", name = "ErrorStream", frozen)]
pub(super) struct ErrorStream {
    output: ErrorOutput,
    /// The pool thread that it belongs to.
    owner: ThreadId,
    state: Mutex<StreamState>,
}

#[derive(Default)]
struct StreamState {
    /// The request that the pool thread runs.
    request: Option<ExchangeName>,
    /// What was written for it and not logged yet.
    text: String,
}

impl ErrorStream {
    /// That of the calling thread.
    pub(super) fn new(output: ErrorOutput) -> Self {
        Self {
            output,
            owner: thread::current().id(),
            state: Mutex::default(),
        }
    }

    /// The pool thread begins a request.
    pub(super) fn begin(&self, request: ExchangeName) {
        self.state().request = Some(request);
    }

    /// Its request is over.
    pub(super) fn end(&self) {
        let mut state = self.state();
        self.log(&mut state);
        state.request = None;
    }

    fn put(&self, text: &str) {
        // A child that the application has forked has no log, and nobody may hold or free this lock in it.
        if server::fork::is_child() {
            return eprint!("{text}");
        }
        if thread::current().id() != self.owner {
            return self.output.write(None, text);
        }
        let mut state = self.state();
        state.text.push_str(text);
        if state.request.is_none() || state.text.len() > TEXT_BYTES_MAX {
            self.log(&mut state);
        }
    }

    /// A text is whole at every moment: a panic elsewhere does not matter.
    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, state: &mut StreamState) {
        if !state.text.is_empty() {
            self.output.write(state.request.as_ref(), &state.text);
            state.text.clear();
            // One large text must not keep its memory for the life of the thread.
            state.text.shrink_to(TEXT_BYTES_MAX);
        }
    }
}

#[pymethods]
impl ErrorStream {
    #[getter]
    fn encoding(&self) -> &'static str {
        "utf-8"
    }

    #[getter]
    fn errors(&self) -> &'static str {
        "replace"
    }

    fn write(&self, text: &Bound<'_, PyString>) -> PyResult<usize> {
        self.put(&text.to_string_lossy());
        text.len()
    }

    fn writelines(&self, lines: &Bound<'_, PyAny>) -> PyResult<()> {
        for line in lines.try_iter()? {
            self.write(line?.cast::<PyString>()?)?;
        }
        Ok(())
    }

    fn flush(&self) {
        if !server::fork::is_child() && thread::current().id() == self.owner {
            self.log(&mut self.state());
        }
    }

    fn isatty(&self) -> bool {
        false
    }

    fn writable(&self) -> bool {
        true
    }

    fn __repr__(&self) -> &'static str {
        "<milepost.ErrorStream>"
    }
}
