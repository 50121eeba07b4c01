//! The calls of a request that wait, `receive()` and `send()`, and what its task does meanwhile.
//!
//! The futures leave with the lock of the request released: to drop one may run Python code.

use pyo3::intern;
use pyo3::prelude::*;

use super::awaitable::Awaited;
use super::loop_task::TaskPlace;

/// The futures of the calls that wait, by the kind of call, and what the task does.
#[derive(Default)]
pub(super) struct RequestWaits {
    receivers: Waiters,
    senders: Waiters,
    pub(super) task_place: TaskPlace,
}

/// The futures of the calls of one kind that wait, the first to wait at the front. Mostly it is one; tasks of the
/// application may send to the same client, or wait for it, at a time.
#[derive(Default)]
pub(super) struct Waiters {
    /// Without it there are no others.
    first: Option<Py<PyAny>>,
    others: Vec<Py<PyAny>>,
}

impl Waiters {
    fn iter(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.first.iter().chain(&self.others)
    }

    /// Puts a future in the place of `before`, or behind all others. Gives the one that is replaced.
    fn put(&mut self, future: Py<PyAny>, before: Option<&Py<PyAny>>) -> Option<Py<PyAny>> {
        let mut places = self.first.iter_mut().chain(&mut self.others);
        if let Some(before) = before
            && let Some(place) = places.find(|place| place.is(before))
        {
            return Some(std::mem::replace(place, future));
        }
        match &self.first {
            None => self.first = Some(future),
            Some(_) => self.others.push(future),
        }
        None
    }

    fn remove(&mut self, future: &Py<PyAny>) -> Option<Py<PyAny>> {
        if self.first.as_ref().is_some_and(|first| first.is(future)) {
            let next = (!self.others.is_empty()).then(|| self.others.remove(0));
            return std::mem::replace(&mut self.first, next);
        }
        let found = self.others.iter().position(|other| other.is(future))?;
        Some(self.others.remove(found))
    }

    /// The only one; all of them where there are none or several.
    pub(super) fn only(self) -> Result<Py<PyAny>, Self> {
        match self {
            Self {
                first: Some(only),
                others,
            } if others.is_empty() => Ok(only),
            all => Err(all),
        }
    }

    /// Ends these waits, in their order.
    pub(super) fn wake(self, py: Python<'_>) -> PyResult<()> {
        let mut all = self.first.into_iter().chain(self.others);
        all.try_for_each(|future| wake(py, Some(future)))
    }

    /// These, and behind them those.
    pub(super) fn and(mut self, those: Self) -> Self {
        let those = those.first.into_iter().chain(those.others);
        those.for_each(|future| drop(self.put(future, None)));
        self
    }
}

impl RequestWaits {
    /// A call waits for this future from now on; `before` is the one that the same call has waited for. Gives the one
    /// that is replaced.
    pub(super) fn begin(
        &mut self,
        awaited: Awaited,
        future: &Bound<'_, PyAny>,
        before: Option<&Py<PyAny>>,
    ) -> Option<Py<PyAny>> {
        self.waiters(awaited).put(future.clone().unbind(), before)
    }

    /// The call does not wait for this any more.
    pub(super) fn forget(&mut self, awaited: Awaited, future: &Py<PyAny>) -> Option<Py<PyAny>> {
        self.waiters(awaited).remove(future)
    }

    pub(super) fn take_receivers(&mut self) -> Waiters {
        std::mem::take(&mut self.receivers)
    }

    pub(super) fn take_senders(&mut self) -> Waiters {
        std::mem::take(&mut self.senders)
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
        let mut waiting = self.receivers.iter().chain(self.senders.iter());
        waiting.any(|other| other.is(future))
    }

    fn waiters(&mut self, awaited: Awaited) -> &mut Waiters {
        match awaited {
            Awaited::Event => &mut self.receivers,
            Awaited::Room | Awaited::Turn => &mut self.senders,
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
