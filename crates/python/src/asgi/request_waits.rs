//! What a request waits for: its `receive()`, its `send()`, and its task.
//!
//! The futures leave with the lock of the request released: to drop one may run Python code.

use pyo3::intern;
use pyo3::prelude::*;

use super::awaitable::Awaited;
use super::loop_task::TaskPlace;

/// The futures of the calls that wait, one for each kind of call, and what the task does.
#[derive(Default)]
pub(super) struct RequestWaits {
    receiver: Option<Py<PyAny>>,
    sender: Option<Py<PyAny>>,
    pub(super) task: TaskPlace,
}

impl RequestWaits {
    /// A call waits for this; `before` is what the same call has waited for, and what it replaces is given back.
    ///
    /// # Errors
    /// Another call waits for the same: its name.
    pub(super) fn begin(
        &mut self,
        awaited: Awaited,
        future: &Bound<'_, PyAny>,
        before: Option<&Py<PyAny>>,
    ) -> Result<Option<Py<PyAny>>, &'static str> {
        let (place, call) = self.place(awaited);
        let is_taken = place
            .as_ref()
            .is_some_and(|place| !before.is_some_and(|before| before.is(place)));
        match is_taken {
            true => Err(call),
            false => Ok(place.replace(future.clone().unbind())),
        }
    }

    /// The call does not wait for this any more.
    pub(super) fn forget(&mut self, awaited: Awaited, future: &Py<PyAny>) -> Option<Py<PyAny>> {
        let (place, _) = self.place(awaited);
        place.take_if(|place| place.is(future))
    }

    pub(super) fn take_receiver(&mut self) -> Option<Py<PyAny>> {
        self.receiver.take()
    }

    pub(super) fn take_sender(&mut self) -> Option<Py<PyAny>> {
        self.sender.take()
    }

    /// The task waits for this: whether it is a future of these calls says who may have it go on.
    pub(super) fn task_waits_for(&mut self, py: Python<'_>, on: &Py<PyAny>) {
        if self.has(on) {
            self.task = TaskPlace::Parked(on.clone_ref(py));
        }
    }

    /// The future that the task waits for while a step runs without it, unless another call has it: the same one again
    /// leaves the task where it is.
    pub(super) fn parked(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.task {
            TaskPlace::Parked(future) if !self.has(future) => Some(future.clone_ref(py)),
            _ => None,
        }
    }

    /// Whether a call waits for this.
    fn has(&self, future: &Py<PyAny>) -> bool {
        let mut waiting = [&self.receiver, &self.sender].into_iter().flatten();
        waiting.any(|other| other.is(future))
    }

    /// The place of a call that waits, and its name.
    fn place(&mut self, awaited: Awaited) -> (&mut Option<Py<PyAny>>, &'static str) {
        match awaited {
            Awaited::Event => (&mut self.receiver, "receive()"),
            Awaited::Room | Awaited::Turn => (&mut self.sender, "send()"),
        }
    }
}

/// Ends a wait, unless it was cancelled meanwhile.
pub(super) fn wake(py: Python<'_>, future: Option<Py<PyAny>>) -> PyResult<()> {
    let Some(future) = future else {
        return Ok(());
    };
    let future = future.bind(py);
    if !is_done(future)? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// Whether it has ended, or was cancelled.
pub(super) fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = future.py();
    future.call_method0(intern!(py, "done"))?.is_truthy()
}
