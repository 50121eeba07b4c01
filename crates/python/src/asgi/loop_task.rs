//! The task of the loop behind a request, and how the application goes on without a turn of the loop.
//!
//! What a request waits for itself, as the next message of its client, is known here when it comes. Its step then runs at
//! once, as one of the task: with the task as the current one, and in its context. The task itself waits on, for the
//! same future, and is needed again only where the application waits for something else, or ends: it is given that when
//! the loop runs it next.
//!
//! ```text
//!                 ┌──── the application waits for its request ────┐
//!  Own ──► runs ──┤                                               ▼
//!   ▲             └── for something else ──► Own              Parked ──► a step at once ──► Parked
//!   │                                                                         │ another wait, the end
//!   └──────────────────── the task runs, and is given it ◄── Due ◄────────────┘
//! ```

use pyo3::exceptions::asyncio::CancelledError;
use pyo3::prelude::*;
use pyo3::{ffi, intern};

use super::loop_calls::LoopCalls;

/// The task of a request.
pub(super) struct LoopTask {
    pub(super) task: Py<PyAny>,
    /// That of its steps; `None` where only the loop can run one: the task keeps it for itself, or is not ours.
    pub(super) context: Option<Py<PyAny>>,
}

/// What the task does.
#[derive(Default)]
pub(super) enum TaskPlace {
    /// It runs, will run, or waits for something of the application's. What it runs next is a step of the application.
    #[default]
    Own,
    /// It waits for this future, which is that of a wait of the request.
    Parked(Py<PyAny>),
    /// The application has gone on without it. The loop will run it, and this is what it is given.
    Due(Owed),
}

/// How a step of the application has ended of which its task does not know yet.
pub(super) enum Owed {
    /// It waits for this.
    Waits(Py<PyAny>),
    End,
}

impl LoopTask {
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            task: self.task.clone_ref(py),
            context: self.context.as_ref().map(|context| context.clone_ref(py)),
        }
    }

    /// Has `step` run as a step of the task; `None` where that cannot be now, as where a loop runs within a task.
    pub(super) fn run_step<T>(
        &self,
        py: Python<'_>,
        calls: &LoopCalls,
        step: impl FnOnce() -> T,
    ) -> Option<T> {
        let context = self.context.as_ref()?.as_ptr();
        // SAFETY: attached; a live context.
        if unsafe { ffi::PyContext_Enter(context) } != 0 {
            drop(PyErr::take(py));
            return None;
        }
        let arguments = (&calls.event_loop, &self.task);
        let entered = calls.enter_task.bind(py).call1(arguments);
        let ran = entered.is_ok().then(step);
        if ran.is_some()
            && let Err(error) = calls.leave_task.bind(py).call1(arguments)
        {
            error.write_unraisable(py, None);
        }
        // SAFETY: attached; the context that was entered above.
        if unsafe { ffi::PyContext_Exit(context) } != 0 {
            PyErr::fetch(py).write_unraisable(py, None);
        }
        ran
    }
}

impl TaskPlace {
    /// Whether the application waits for this future of its request, and for nothing else.
    pub(super) fn waits_for(&self, future: &Py<PyAny>) -> bool {
        match self {
            Self::Parked(on) | Self::Due(Owed::Waits(on)) => on.is(future),
            Self::Own | Self::Due(Owed::End) => false,
        }
    }

    /// A step has ended without the task. The future that the task is to be woken by, unless it waits on. The future that is
    /// dropped here is the one whose end has begun the step: the caller holds another reference.
    pub(super) fn step_ended(&mut self, owed: Owed) -> Option<Py<PyAny>> {
        match (std::mem::take(self), owed) {
            (Self::Parked(future), Owed::Waits(on)) if on.is(&future) => {
                *self = Self::Parked(future);
                None
            }
            (place, owed) => {
                *self = Self::Due(owed);
                match place {
                    Self::Parked(future) => Some(future),
                    // The loop is to run it anyway.
                    Self::Own | Self::Due(_) => None,
                }
            }
        }
    }
}

/// Whether an exception for a task that was to wait for this ends the wait: as a task does it that is cancelled while it
/// waits, and hears of that from what it waits for.
pub(super) fn cancels(error: &PyErr, waited_for: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = waited_for.py();
    if waited_for.is_none() || !error.is_instance_of::<CancelledError>(py) {
        return Ok(false);
    }
    match waited_for.getattr_opt(intern!(py, "cancel"))? {
        Some(cancel) => cancel.call0()?.is_truthy(),
        None => Ok(false),
    }
}
