//! Tasks that do not end by themselves, and when they are to: while the process drains, and when a client has gone.
//!
//! ```text
//! drain ──the share of a stream, or the time of a handshake──► end_task ──close_timeout──► cancel_task
//! a client has gone ──disconnect_cancel──► cancel_unanswered
//! ```
//! Each step is a callback of the loop and finds the task by its key: one that has ended meanwhile is not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use config::typed::WebSocketConfig;
use pyo3::intern;
use pyo3::prelude::*;
use telemetry::Nanos;

use super::protocol::Unended;
use super::request_tasks::RequestTasks;

/// When tasks of a loop are to end.
#[pyclass(module = "milepost._milepost", name = "TaskDeadlines", frozen)]
pub(super) struct TaskDeadlines {
    tasks: Arc<RequestTasks>,
    /// Of the loop.
    call_later: Py<PyAny>,
    config: WebSocketConfig,
    /// The process is about to end. It never is no longer.
    is_draining: AtomicBool,
}

impl TaskDeadlines {
    pub(super) fn new(
        tasks: Arc<RequestTasks>,
        call_later: Py<PyAny>,
        config: WebSocketConfig,
    ) -> Self {
        Self {
            tasks,
            call_later,
            config,
            is_draining: AtomicBool::new(false),
        }
    }

    /// The process is about to end: each response without an end of its own ends in its share of the time that there is
    /// for all of them, and each WebSocket handshake that is not answered soon. Each pool says so; once is enough.
    pub(super) fn drain(this: &Bound<'_, Self>) -> PyResult<()> {
        let own = this.get();
        if own.is_draining.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let unended = own.tasks.select(this.py(), |task| task.unended());
        let is_stream = |(_, what): &&(_, Unended)| *what == Unended::Stream;
        let streams_len = unended.iter().filter(is_stream).count();
        let mut delays_secs = shares_secs(own.config.drain, streams_len);
        for (task, what) in unended {
            let key = task.get().key();
            match what {
                Unended::Stream => {
                    let delay_secs = delays_secs.next().expect("a share for each stream");
                    Self::end_later(this, key, delay_secs)?;
                }
                Unended::Handshake => Self::end_handshake_later(this, key)?,
            }
        }
        Ok(())
    }

    /// A WebSocket handshake has come: while the process drains it is refused, unless the application answers it before.
    pub(super) fn handshake_begun(this: &Bound<'_, Self>, key: u64) -> PyResult<()> {
        match this.get().is_draining.load(Ordering::Relaxed) {
            true => Self::end_handshake_later(this, key),
            false => Ok(()),
        }
    }

    /// Its client has gone: the task is cancelled after such a time, unless its response is complete by then. Gives the
    /// loop's handle of that, for a task that ends before.
    pub(super) fn cancel_later<'py>(
        this: &Bound<'py, Self>,
        key: u64,
        delay: Nanos,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let cancel = this.getattr(intern!(py, "cancel_unanswered"))?;
        this.get().call(py, delay.as_secs_f64(), &cancel, key)
    }

    /// A handshake has the time that it would have to end.
    fn end_handshake_later(this: &Bound<'_, Self>, key: u64) -> PyResult<()> {
        let config = &this.get().config;
        let delay = config.close_timeout.min(config.drain);
        Self::end_later(this, key, delay.as_secs_f64())
    }

    fn end_later(this: &Bound<'_, Self>, key: u64, delay_secs: f64) -> PyResult<()> {
        let py = this.py();
        let end = this.getattr(intern!(py, "end_task"))?;
        this.get().call(py, delay_secs, &end, key).map(drop)
    }

    fn call<'py>(
        &self,
        py: Python<'py>,
        delay_secs: f64,
        what: &Bound<'py, PyAny>,
        key: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let call_later = self.call_later.bind(py);
        call_later.call1((delay_secs, what, key))
    }
}

#[pymethods]
impl TaskDeadlines {
    /// A response without an end of its own is to end, or a handshake without an answer: the application hears that the
    /// client is gone, and is cancelled if it does not end by itself.
    fn end_task(this: &Bound<'_, Self>, key: u64) -> PyResult<()> {
        let (own, py) = (this.get(), this.py());
        let Some(task) = own.tasks.get(py, key) else {
            return Ok(());
        };
        if task.get().drain(py)? {
            let cancel = this.getattr(intern!(py, "cancel_task"))?;
            own.call(py, own.config.close_timeout.as_secs_f64(), &cancel, key)?;
        }
        Ok(())
    }

    /// The application has had its time to end.
    fn cancel_task(&self, py: Python<'_>, key: u64) -> PyResult<()> {
        match self.tasks.get(py, key) {
            Some(task) => task.get().cancel(py),
            None => Ok(()),
        }
    }

    /// The client has been gone for as long as an application may go on for it.
    fn cancel_unanswered(&self, py: Python<'_>, key: u64) -> PyResult<()> {
        match self.tasks.get(py, key) {
            Some(task) if !task.get().is_answered() => task.get().cancel(py),
            _ => Ok(()),
        }
    }
}

/// When each of so many ends within `drain`: the first one at once, no two together.
fn shares_secs(drain: Nanos, len: usize) -> impl Iterator<Item = f64> {
    let step_secs = drain.as_secs_f64() / len.max(1) as f64;
    (0..len).map(move |index| step_secs * index as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_end_one_after_the_other_within_the_time() {
        let check = |drain_secs, len, expect: &[f64]| {
            let found: Vec<f64> = shares_secs(Nanos::from_secs(drain_secs), len).collect();
            assert_eq!(found, expect, "{len} in {drain_secs} s");
        };
        check(8, 0, &[]);
        check(8, 1, &[0.0]);
        check(8, 4, &[0.0, 2.0, 4.0, 6.0]);
        check(0, 2, &[0.0, 0.0]);
    }
}
