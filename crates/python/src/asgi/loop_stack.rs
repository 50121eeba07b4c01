//! Where a request inside the loop is, for people who ask for it.
//!
//! The loop itself says what the request awaits, in a callback: another thread would see coroutines in the middle of their
//! steps. A loop that does not come to it is blocked, and then the stack of its thread is what there is to be seen.

use std::sync::mpsc;
use std::time::Duration;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use server::handler::LoopStack;

use super::asgi_loop::AsgiLoop;
use super::request_task::RequestTask;

/// How long the loop has for its answer.
const LOOP_WAIT: Duration = Duration::from_millis(350);

/// Where the request with this listed id is.
pub(super) fn find(py: Python<'_>, event_loop: &AsgiLoop, id: &[u8]) -> LoopStack {
    let Some(task) = event_loop.task_of(py, id) else {
        return LoopStack::Unknown;
    };
    let key = task.get().key();
    match asked(py, event_loop, task) {
        Ok(Some(frames)) if frames.is_empty() => LoopStack::Unknown,
        Ok(Some(frames)) => LoopStack::Awaits(frames),
        Ok(None) => {
            let runs = event_loop.is_stepping(key);
            match super::stack(py, event_loop.thread()) {
                Ok((_, frames)) if runs => LoopStack::Runs(frames),
                Ok((_, frames)) => LoopStack::Blocked(frames),
                Err(_) => LoopStack::Unknown,
            }
        }
        Err(_) => LoopStack::Unknown,
    }
}

/// What the loop says; `None`: nothing in this time.
fn asked(py: Python<'_>, event_loop: &AsgiLoop, task: Py<RequestTask>) -> PyResult<Option<String>> {
    let (told, answer) = mpsc::channel();
    let tell = PyCFunction::new_closure(py, None, None, move |arguments, _| {
        // The asker may have gone meanwhile.
        let _ = told.send(super::awaits(task.bind(arguments.py())));
    })?;
    let call = intern!(py, "call_soon_threadsafe");
    event_loop.loop_object(py).call_method1(call, (tell,))?;
    py.detach(move || answer.recv_timeout(LOOP_WAIT))
        .ok()
        .transpose()
}
