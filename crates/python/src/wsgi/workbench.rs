//! The workbench of one pool thread: everything that its exchanges use again and again, and the way of one
//! exchange through the application.
//!
//! Takes an exchange and a response writer. Whatever the application does, `close()` is called, the writer is
//! given back, and nothing of the exchange stays here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use server::exchange::{Body, Exchange};
use server::fault::Fault;
use server::meter::Meter;
use server::pool::{Worker, panic_text};
use server::response::ResponseWriter;

use super::call::{Call, Caller, End};
use super::environ::{Environs, Fixed, Tools};
use super::reply::{self, Given};
use super::roster::Line;
use super::{FileWrapper, RequestTimeout, Wsgi, names};
use crate::body::Input;
use crate::phases::Phases;
use crate::{fork, raw, trace};

/// Everything one pool thread needs.
pub(crate) struct Workbench<'py> {
    application: Bound<'py, PyAny>,
    environs: Environs<'py>,
    caller: Caller<'py>,
    input: Bound<'py, Input>,
    phases: Bound<'py, Phases>,
    scratch: Vec<u8>,
    /// Where this thread can be found and interrupted.
    line: Arc<Line>,
}

/// What became of an exchange.
pub(crate) struct Answered {
    pub(crate) result: Result<(), Fault>,
    /// What the error log is to hear although the response is good.
    pub(crate) news: [Option<String>; 2],
}

impl Answered {
    fn fault(fault: Fault) -> Self {
        Self {
            result: Err(fault),
            news: [None, None],
        }
    }
}

impl<'py> Workbench<'py> {
    /// For the thread of `worker`.
    pub(crate) fn new(
        py: Python<'py>,
        wsgi: &Wsgi,
        line: Arc<Line>,
        worker: &Worker,
    ) -> PyResult<Self> {
        let fixed = Fixed {
            errors: errors(py)?,
            file_wrapper: py.get_type::<FileWrapper>().into_any(),
            multithread: wsgi.concurrency.multithread,
            multiprocess: wsgi.concurrency.multiprocess,
            script_name: wsgi.script_name.clone(),
            worker: PyString::new(py, &worker.name()),
            request_id_key: worker
                .request_id_header()
                .map(|name| names::common_key(py, name.as_bytes())),
        };
        Ok(Self {
            application: wsgi.application.bind(py).clone(),
            environs: Environs::new(py, fixed),
            caller: Caller::new(py)?,
            input: Bound::new(py, Input::default())?,
            phases: Bound::new(py, Phases::default())?,
            scratch: Vec::new(),
            line,
        })
    }

    /// Runs one exchange through the application. Whatever that does, the writer comes back.
    pub(crate) fn answer(
        &mut self,
        py: Python<'py>,
        exchange: &mut Exchange,
        writer: ResponseWriter,
        meter: Option<Meter>,
    ) -> (ResponseWriter, Answered) {
        self.borrow_call(py).begin(writer);
        let run = AssertUnwindSafe(|| match self.begin(exchange, meter) {
            Ok(environ) => self.run(py, exchange, environ),
            Err(error) => Answered::fault(trace::fault(py, &error)),
        });
        let answered = catch_unwind(run)
            .unwrap_or_else(|panic| Answered::fault(Fault::Bug(panic_text(panic.as_ref()))));
        (self.clear(), answered)
    }

    /// On a free-threaded interpreter another thread may be inside start_response() right now.
    fn borrow_call(&self, py: Python<'py>) -> PyRefMut<'_, Call> {
        loop {
            match self.caller.call.try_borrow_mut() {
                Ok(call) => return call,
                Err(_) => raw::detached(py, thread::yield_now),
            }
        }
    }

    fn run(
        &mut self,
        py: Python<'py>,
        exchange: &Exchange,
        environ: Bound<'py, PyDict>,
    ) -> Answered {
        let given = Given {
            call: &self.caller.call,
            is_head: exchange.head().is_head(),
            scratch: &mut self.scratch,
        };
        let inside = self.line.begin(py, exchange.record.phases.started);
        let called = self
            .application
            .call1((environ, &self.caller.start_response));
        let answered =
            fork::unless_child(py, called).and_then(|result| reply::send(given, &result));
        let is_interrupted = inside.leave();
        let end = self.caller.call.borrow().end_state();
        // Text before all is cleared: a traceback holds what the application was given, which would then count
        // as kept.
        let (result, news) = match is_interrupted && is_timeout(py, &answered) {
            true => (Err(Fault::Overdue), None),
            false => match tell(py, answered, end) {
                Ok(text) => (Ok(()), text.map(|text| format!("application: {text}"))),
                Err(fault) => (Err(fault), None),
            },
        };
        let overrun = (end == End::Overrun)
            .then_some("the body was longer than its Content-Length; the rest was dropped");
        Answered {
            result,
            news: [overrun.map(str::to_owned), news],
        }
    }

    fn begin(
        &mut self,
        exchange: &mut Exchange,
        meter: Option<Meter>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let body = std::mem::take(&mut exchange.body);
        let body_bytes = body.bytes();
        self.input.try_borrow_mut()?.reset(body);
        let record = &exchange.record;
        self.phases
            .try_borrow_mut()?
            .reset(record.phases, record.queued, meter);
        let tools = Tools {
            input: self.input.as_any(),
            phases: self.phases.as_any(),
        };
        self.environs.build(exchange, body_bytes, &tools)
    }

    /// Takes the writer back; what the application has kept of the rest is left to it and replaced.
    fn clear(&mut self) -> ResponseWriter {
        let py = self.application.py();
        let writer = self.borrow_call(py).end();
        let writer = writer.expect("the exchange was begun with one, which nothing else takes");
        if !self.caller.is_ours_alone()
            && let Ok(caller) = Caller::new(py)
        {
            let kept = std::mem::replace(&mut self.caller, caller);
            let write = kept
                .call
                .try_borrow_mut()
                .ok()
                .and_then(|mut call| call.retire());
            drop(write);
        }
        self.clear_tools(py);
        writer
    }

    fn clear_tools(&mut self, py: Python<'py>) {
        let held = 1 + self.environs.templates_len().cast_signed();
        let is_ours = |tool: &Bound<'_, PyAny>| tool.get_refcnt() == held;
        if is_ours(self.input.as_any()) && is_ours(self.phases.as_any()) {
            if let Ok(mut input) = self.input.try_borrow_mut() {
                input.reset(Body::Empty);
            }
            return;
        }
        // Without memory for new ones the old ones go on; the application then sees them change.
        let input = Bound::new(py, Input::default());
        let phases = Bound::new(py, Phases::default());
        if let (Ok(input), Ok(phases)) = (input, phases) {
            (self.input, self.phases) = (input, phases);
            let tools = Tools {
                input: self.input.as_any(),
                phases: self.phases.as_any(),
            };
            self.environs.replace_tools(&tools);
        }
    }
}

/// `wsgi.errors`: Python has no `sys.stderr` when its descriptor was closed at the start.
fn errors(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let stderr = py.import("sys")?.getattr_opt("stderr")?;
    match stderr.filter(|stderr| !stderr.is_none()) {
        Some(stderr) => Ok(stderr),
        None => {
            let arguments = ("/dev/null", "w", -1, "utf-8", "backslashreplace");
            py.import("io")?.call_method1("open", arguments)
        }
    }
}

/// Whether an interrupted call ended by that: what else it may have raised is news.
fn is_timeout(py: Python<'_>, answered: &PyResult<Option<PyErr>>) -> bool {
    let error = match answered {
        Ok(close_error) => close_error.as_ref(),
        Err(error) => Some(error),
    };
    error.is_some_and(|error| error.is_instance_of::<RequestTimeout>(py))
}

/// What the error log is to be told of an answer; keeps nothing of the exceptions.
fn tell(
    py: Python<'_>,
    answered: PyResult<Option<PyErr>>,
    end: End,
) -> Result<Option<String>, Fault> {
    match answered {
        Ok(close_error) => Ok(close_error.map(|error| trace::text(py, &error))),
        // write() raises when the client is gone; that is no fault of the application.
        Err(_) if end == End::Gone => Ok(None),
        Err(error) => Err(trace::fault(py, &error)),
    }
}
