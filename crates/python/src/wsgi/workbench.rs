//! The workbench of one pool thread: everything that its exchanges use again and again, and the way of one
//! exchange through the application.
//!
//! Takes an exchange and an outlet. Whatever the application does, `close()` is called, the outlet is taken
//! back, and nothing of the exchange stays here.

use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use server::delivery::Outlet;
use server::exchange::{Body, Exchange};
use server::fault::Fault;
use server::meter::Meter;

use super::call::{Caller, End};
use super::environ::{Environs, Fixed, Tools};
use super::reply::{self, Given};
use super::roster::Line;
use super::{FileWrapper, RequestTimeout, Wsgi, names};
use crate::body::Input;
use crate::phases::Phases;
use crate::{raw, trace};

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

impl<'py> Workbench<'py> {
    /// `request_id_header` is the header that names a request's id, if there is one.
    pub(crate) fn new(
        py: Python<'py>,
        wsgi: &Wsgi,
        line: Arc<Line>,
        request_id_header: Option<&str>,
    ) -> PyResult<Self> {
        let fixed = Fixed {
            errors: errors(py)?,
            file_wrapper: py.get_type::<FileWrapper>().into_any(),
            multithread: wsgi.concurrency.multithread,
            multiprocess: wsgi.concurrency.multiprocess,
            script_name: wsgi.script_name.clone(),
            request_id_key: request_id_header.map(|name| names::common_key(py, name.as_bytes())),
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

    /// Runs one exchange through the application.
    pub(crate) fn answer(
        &mut self,
        py: Python<'py>,
        exchange: &mut Exchange,
        outlet: &mut Outlet<'_>,
        meter: Option<Meter>,
    ) -> Result<(), Fault> {
        let environ = self
            .begin(exchange, outlet, meter)
            .map_err(|error| trace::fault(py, &error))?;
        // Takes the outlet back on every way out, a panic included.
        let on_bench = OnBench(self);
        let bench = &mut *on_bench.0;
        let is_head = exchange.head().is_head();
        let given = Given {
            call: &bench.caller.call,
            is_head,
            scratch: &mut bench.scratch,
        };
        let inside = bench.line.begin(py, exchange.phases.started);
        let answered = bench
            .application
            .call1((environ, &bench.caller.start_response))
            .and_then(|result| reply::send(given, &result));
        let is_interrupted = inside.leave();
        let end = bench.caller.call.borrow().end_state();
        // Text before the bench is cleared: a traceback holds what the application was given, which would
        // then count as kept.
        let told = match is_interrupted && is_timeout(py, &answered) {
            true => Err(Fault::Overdue),
            false => tell(py, answered, end),
        };
        drop(on_bench);
        if end == End::Overrun {
            let text = "the body was longer than its Content-Length; the rest was dropped";
            outlet.report(exchange, text);
        }
        if let Some(text) = told? {
            outlet.report(exchange, &format!("application: {text}"));
        }
        Ok(())
    }

    fn begin(
        &mut self,
        exchange: &mut Exchange,
        outlet: &mut Outlet<'_>,
        meter: Option<Meter>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let body = std::mem::take(&mut exchange.body);
        let body_bytes = body.bytes();
        self.input.try_borrow_mut()?.reset(body);
        self.phases
            .try_borrow_mut()?
            .reset(exchange.phases, exchange.queue.queued, meter);
        let tools = Tools {
            input: self.input.as_any(),
            phases: self.phases.as_any(),
        };
        let environ = self.environs.build(exchange, body_bytes, &tools)?;
        let outlet = NonNull::from(outlet).cast::<Outlet<'static>>();
        let mut call = self.caller.call.try_borrow_mut()?;
        // SAFETY: `answer` does not touch the outlet itself, and `OnBench` takes it back before `answer`
        // returns or unwinds.
        unsafe { call.lend(outlet) };
        Ok(environ)
    }

    /// Takes back what was lent; what the application has kept is left to it and replaced.
    fn clear(&mut self) {
        let py = self.application.py();
        loop {
            // On a free-threaded interpreter another thread may be inside start_response() right now.
            match self.caller.call.try_borrow_mut() {
                Ok(mut call) => break call.end(),
                Err(_) => raw::detached(py, thread::yield_now),
            }
        }
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

/// An exchange that is being answered.
struct OnBench<'a, 'py>(&'a mut Workbench<'py>);

impl Drop for OnBench<'_, '_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}
