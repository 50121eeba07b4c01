//! The startup of applications, watched by another thread: one that blocks the event loop cannot be ended on it.
//!
//! Takes when the startup of an application begins and ends. One that takes longer than it may, and does not even let the
//! loop say so, ends the process, with the stack of the loop's thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cli::Failure;
use pyo3::prelude::*;
use telemetry::Nanos;

use crate::{import, visit};

/// So much later than the loop: one that is not blocked ends the startup itself.
const GRACE: Duration = Duration::from_secs(1);
/// How long the stack is waited for: a call may hold the interpreter.
const STACK_TIMEOUT: Duration = Duration::from_secs(1);

/// What the functions of `event_loop.py` tell.
#[pyclass(module = "milepost._milepost", name = "StartupWatch", frozen)]
pub(super) struct StartupWatch(Arc<Watched>);

struct Watched {
    timeout: Duration,
    state: Mutex<WatchState>,
    changed: Condvar,
}

enum WatchState {
    /// No startup is under way.
    Idle,
    /// That of the application with this name, since then.
    Starting(String, Instant),
    Over,
}

/// Calls `start`, which tells the watch of each startup.
pub(super) fn during<'py, T>(
    py: Python<'py>,
    timeout: Nanos,
    give_up: &(dyn Fn(&Failure) + Sync),
    start: impl FnOnce(&Bound<'py, StartupWatch>) -> PyResult<T>,
) -> PyResult<T> {
    let watched = Arc::new(Watched {
        timeout: Duration::from_nanos(timeout.0),
        state: Mutex::new(WatchState::Idle),
        changed: Condvar::new(),
    });
    let watch = Bound::new(py, StartupWatch(Arc::clone(&watched)))?;
    let loop_thread = py
        .import("threading")?
        .call_method0("get_ident")?
        .extract()?;
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("mp-startup".to_owned());
        // Without a thread no such startup is ended.
        let watcher = builder.spawn_scoped(scope, || watched.watch(loop_thread, give_up));
        let started = start(&watch);
        watched.set(WatchState::Over);
        // Detached: that thread may be waiting for the interpreter.
        py.detach(|| watcher.map(thread::ScopedJoinHandle::join).is_ok());
        started
    })
}

#[pymethods]
impl StartupWatch {
    /// The startup of an application begins.
    fn begin(&self, name: String) {
        self.0.set(WatchState::Starting(name, Instant::now()));
    }

    /// It has ended, well or not.
    fn end(&self) {
        self.0.set(WatchState::Idle);
    }
}

impl Watched {
    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: WatchState) {
        *self.state() = state;
        self.changed.notify_all();
    }

    fn watch(&self, loop_thread: u64, give_up: &(dyn Fn(&Failure) + Sync)) {
        while let Some((name, began)) = self.overdue() {
            let found = stack(loop_thread);
            // It may have ended meanwhile.
            if self.is_starting(began) {
                give_up(&self.failure(&name, found));
                return;
            }
        }
    }

    /// Waits for a startup that takes too long; `None`: all are over.
    fn overdue(&self) -> Option<(String, Instant)> {
        let mut state = self.state();
        loop {
            let left = match &*state {
                WatchState::Over => return None,
                WatchState::Idle => Duration::MAX,
                WatchState::Starting(name, began) => {
                    let due = self.timeout.saturating_add(GRACE);
                    match due.saturating_sub(began.elapsed()) {
                        Duration::ZERO => return Some((name.clone(), *began)),
                        left => left,
                    }
                }
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn is_starting(&self, since: Instant) -> bool {
        matches!(&*self.state(), WatchState::Starting(_, began) if *began == since)
    }

    fn failure(&self, name: &str, found: Option<(String, String)>) -> Failure {
        let secs = self.timeout.as_secs_f64();
        let (place, detail) = match found {
            Some((place, stack)) => {
                let stack = format!("Stack (most recent call last):\n{}", stack.trim_end());
                (place, Some(stack))
            }
            None => ("a call that holds the interpreter".to_owned(), None),
        };
        let cause = format!(
            "the startup of {name} took longer than {secs} s, and blocks the event loop, in {place}"
        );
        Failure {
            hint: Some(
                "`lifespan_timeout` sets the time; a call that waits belongs in `await asyncio.to_thread(...)`"
                    .to_owned(),
            ),
            detail,
            ..import::fault("lifespan", cause)
        }
    }
}

/// Where the thread is in the application, and its stack, if that can be had in time.
fn stack(loop_thread: u64) -> Option<(String, String)> {
    let (sender, receiver) = mpsc::channel();
    let ask = move || {
        let _visit = visit::begin();
        let found = Python::attach(|py| super::stack(py, loop_thread).ok());
        // Nobody waits for it any more where it came too late.
        let _ = sender.send(found);
    };
    let builder = thread::Builder::new().name("mp-stack".to_owned());
    builder.spawn(ask).ok()?;
    receiver.recv_timeout(STACK_TIMEOUT).ok()?
}
