//! What `receive()` and `send()` give to be awaited: what is complete needs no future, what is not waits for one of the
//! loop.
//!
//! These are coroutines to Python (`collections.abc.Coroutine`), so that an application may make tasks of them.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};

use super::request_task::RequestTask;

/// The result of a `send()` that need not wait.
#[pyclass(module = "milepost._milepost", name = "Sent", frozen)]
pub(super) struct Sent;

#[pymethods]
impl Sent {
    fn __await__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn __next__(&self) -> Option<Py<PyAny>> {
        None
    }

    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn send(&self, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _ = value;
        Err(PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn throw(
        &self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        Err(thrown(kind, value, traceback))
    }

    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn close(&self) {}
}

/// What a wait is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The next event of the client.
    Event,
    /// That more may be sent.
    Room,
    /// That others had their turn of the loop: nobody takes what was sent.
    Turn,
}

/// A `receive()`, or a `send()` that has to wait. It takes an event only when it gives it: a wait that is cancelled
/// loses none.
#[pyclass(module = "milepost._milepost", name = "Wait", frozen)]
pub(super) struct Wait {
    request: Py<RequestTask>,
    state: Mutex<WaitState>,
}

enum WaitState {
    /// A `send()` of another thread than the loop's, which is to await it: the event.
    Unsent(Py<PyDict>),
    New(Awaited),
    /// For this future.
    Waiting(Awaited, Py<PyAny>),
    /// The loop goes on with it behind its other callbacks.
    Yielded,
    Over,
}

/// A step of a wait.
enum WaitStep<'py> {
    /// What the loop is to wait for.
    Waits(Bound<'py, PyAny>),
    /// It is over, with the event that was awaited.
    Ends(Option<Bound<'py, PyDict>>),
}

impl Wait {
    pub(super) fn new(request: Py<RequestTask>, awaited: Awaited) -> Self {
        let state = Mutex::new(WaitState::New(awaited));
        Self { request, state }
    }

    /// A `send()` that takes effect where it is awaited.
    pub(super) fn unsent(request: Py<RequestTask>, event: Py<PyDict>) -> Self {
        let state = Mutex::new(WaitState::Unsent(event));
        Self { request, state }
    }

    fn set(&self, state: WaitState) -> WaitState {
        let mut own = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut own, state)
    }

    fn step<'py>(&self, py: Python<'py>) -> PyResult<WaitStep<'py>> {
        let mut state = self.set(WaitState::Over);
        if let WaitState::Unsent(event) = &state {
            match RequestTask::send_event(self.request.bind(py), event.bind(py))? {
                Some(awaited) => state = WaitState::New(awaited),
                None => return Ok(WaitStep::Ends(None)),
            }
        }
        let (awaited, before) = match state {
            WaitState::New(Awaited::Turn) => {
                self.set(WaitState::Yielded);
                return Ok(WaitStep::Waits(py.None().into_bound(py)));
            }
            WaitState::New(awaited) => (awaited, None),
            WaitState::Yielded => return Ok(WaitStep::Ends(None)),
            WaitState::Over | WaitState::Unsent(_) => {
                return Err(PyRuntimeError::new_err(
                    "cannot reuse already awaited coroutine",
                ));
            }
            // It goes on because the future has ended, or without that (`loop_task`).
            WaitState::Waiting(awaited, future) => (awaited, Some(future)),
        };
        let request = self.request.bind(py);
        let found = match awaited {
            Awaited::Event => RequestTask::next_event(request)?.map(Some),
            Awaited::Room | Awaited::Turn => request.get().has_room().then_some(None),
        };
        if let Some(event) = found {
            if let Some(before) = &before {
                request.get().forget_wait(awaited, before);
            }
            return Ok(WaitStep::Ends(event));
        }
        let future = RequestTask::wait(request, awaited, before.as_ref())?;
        // As its own iterator does it for the task that waits.
        future.setattr(intern!(py, "_asyncio_future_blocking"), true)?;
        self.set(WaitState::Waiting(awaited, future.clone().unbind()));
        Ok(WaitStep::Waits(future))
    }

    fn end(&self, py: Python<'_>) {
        if let WaitState::Waiting(awaited, future) = self.set(WaitState::Over) {
            let request = self.request.bind(py);
            request.get().forget_wait(awaited, &future);
        }
    }
}

#[pymethods]
impl Wait {
    fn __await__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.step(py)? {
            WaitStep::Waits(future) => Ok(Some(future)),
            WaitStep::Ends(event) => {
                if let Some(event) = event {
                    end_with(&event);
                }
                Ok(None)
            }
        }
    }

    fn send<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let _ = value;
        match self.step(py)? {
            WaitStep::Waits(future) => Ok(future),
            WaitStep::Ends(Some(event)) => Err(PyStopIteration::new_err(event.unbind())),
            WaitStep::Ends(None) => Err(PyStopIteration::new_err(())),
        }
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.end(py);
        Err(thrown(kind, value, traceback))
    }

    fn close(&self, py: Python<'_>) {
        self.end(py);
    }
}

/// Sets `StopIteration` with the result of an iterator that ends; its `__next__` must then return `None`. An error of
/// PyO3 would make an exception object first. CPython before 3.12 needs none for a result that is a dictionary.
fn end_with(result: &Bound<'_, PyDict>) {
    // SAFETY: attached, and so initialized: the type is there.
    let kind = unsafe { ffi::PyExc_StopIteration };
    // SAFETY: attached; a type that lives as long as the interpreter, and a live object.
    unsafe { ffi::PyErr_SetObject(kind, result.as_ptr()) };
}

/// A step of a coroutine, or of what iterates like one.
pub(super) enum Step<'py> {
    /// It waits for this.
    Waits(Bound<'py, PyAny>),
    Returns,
}

/// How a step begins.
pub(super) enum StepInput {
    Next,
    Throw(PyErr),
}

impl StepInput {
    /// Has the application go on.
    pub(super) fn run<'py>(self, steps: &Bound<'py, PyAny>) -> PyResult<Step<'py>> {
        let py = steps.py();
        if let StepInput::Throw(error) = self {
            let given = steps.call_method1(intern!(py, "throw"), (error,));
            return match given {
                Ok(on) => Ok(Step::Waits(on)),
                Err(end) if end.is_instance_of::<PyStopIteration>(py) => Ok(Step::Returns),
                Err(error) => Err(error),
            };
        }
        advance(steps)
    }
}

/// Has a coroutine go on. Its end needs no exception.
fn advance<'py>(steps: &Bound<'py, PyAny>) -> PyResult<Step<'py>> {
    let py = steps.py();
    let (nothing, mut result) = (py.None(), std::ptr::null_mut());
    // SAFETY: attached; a live iterator, `None`, and a place for a reference that is then ours.
    let sent = unsafe { ffi::PyIter_Send(steps.as_ptr(), nothing.as_ptr(), &raw mut result) };
    // SAFETY: an owned reference, or null where the step has raised.
    let result = unsafe { Bound::from_owned_ptr_or_opt(py, result) };
    match (sent, result) {
        (ffi::PySendResult::PYGEN_NEXT, Some(on)) => Ok(Step::Waits(on)),
        (ffi::PySendResult::PYGEN_RETURN, _) => Ok(Step::Returns),
        _ => Err(PyErr::fetch(py)),
    }
}

/// The exception that `throw` was given, in any of its forms.
pub(super) fn thrown(
    kind: Bound<'_, PyAny>,
    value: Option<Bound<'_, PyAny>>,
    traceback: Option<Bound<'_, PyAny>>,
) -> PyErr {
    let error = match value {
        Some(value) if !value.is_none() => PyErr::from_value(value),
        _ => PyErr::from_value(kind),
    };
    if let Some(traceback) = traceback.filter(|traceback| !traceback.is_none()) {
        let _ = error
            .value(traceback.py())
            .setattr("__traceback__", &traceback);
    }
    error
}
