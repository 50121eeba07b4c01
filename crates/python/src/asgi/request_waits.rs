//! The calls of a request that wait, `receive()` and `send()`, and what its task does meanwhile.
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
    pub(super) task_place: TaskPlace,
}

impl RequestWaits {
    /// A call waits for this future from now on; `before` is the one that the same call has waited for. Gives the one
    /// that is replaced.
    ///
    /// # Errors
    /// Another call waits for the same: its name.
    pub(super) fn begin(
        &mut self,
        awaited: Awaited,
        future: &Bound<'_, PyAny>,
        before: Option<&Py<PyAny>>,
    ) -> Result<Option<Py<PyAny>>, &'static str> {
        let (slot, call) = self.slot(awaited);
        let is_taken = slot
            .as_ref()
            .is_some_and(|other| !before.is_some_and(|before| before.is(other)));
        match is_taken {
            true => Err(call),
            false => Ok(slot.replace(future.clone().unbind())),
        }
    }

    /// The call does not wait for this any more.
    pub(super) fn forget(&mut self, awaited: Awaited, future: &Py<PyAny>) -> Option<Py<PyAny>> {
        let (slot, _) = self.slot(awaited);
        slot.take_if(|waiting| waiting.is(future))
    }

    pub(super) fn take_receiver(&mut self) -> Option<Py<PyAny>> {
        self.receiver.take()
    }

    pub(super) fn take_sender(&mut self) -> Option<Py<PyAny>> {
        self.sender.take()
    }

    /// The task has ended a step, and waits for this. Where that is the future of a call, an event of the request may have
    /// the application go on without the task.
    pub(super) fn task_waits_for(&mut self, py: Python<'_>, on: &Py<PyAny>) {
        if self.has(on) {
            self.task_place = TaskPlace::Parked(on.clone_ref(py));
        }
    }

    /// The future that the task waits for while a step runs without it, unless another call has it: the same one again
    /// leaves the task where it is.
    pub(super) fn parked(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &self.task_place {
            TaskPlace::Parked(future) if !self.has(future) => Some(future.clone_ref(py)),
            _ => None,
        }
    }

    /// Whether a call waits for this.
    fn has(&self, future: &Py<PyAny>) -> bool {
        let mut waiting = [&self.receiver, &self.sender].into_iter().flatten();
        waiting.any(|other| other.is(future))
    }

    /// Where the future of a call is kept, and the name of the call.
    fn slot(&mut self, awaited: Awaited) -> (&mut Option<Py<PyAny>>, &'static str) {
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

/// Whether a future has ended, or was cancelled.
pub(super) fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = future.py();
    future.call_method0(intern!(py, "done"))?.is_truthy()
}
