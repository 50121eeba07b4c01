//! The pool threads of an application: which of them are inside it, where each one is, and how one is interrupted.
//!
//! A thread writes its own state; whoever interrupts takes the thread's exchange for itself first, so that the
//! exception reaches the exchange that it is meant for or none. Who looks or interrupts must not wait for the
//! interpreter: `stack_thread` attaches in its place.
//!
//! ```text
//!              begin                     interrupt              the exception is set
//!   AT_REST ──────────► INSIDE(began) ─────────────► INTERRUPTING ──────────────► INTERRUPTED
//!      ▲                   │ leave                        (leave waits)                │ leave: takes back
//!      └───────────────────┴───────────────────────────────────────────────────────────┘ an exception that
//!                                                                                        came too late
//! ```

use std::ffi::c_long;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyBaseException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use server::handler::Stack;
use server::watchdog::Thread;
use telemetry::Stamp;

use crate::stack_thread::StackThread;

/// How long the interpreter is waited for before an interruption.
const ATTACH_MAX: Duration = Duration::from_secs(1);

pyo3::create_exception!(
    milepost,
    RequestTimeout,
    PyBaseException,
    "Raised in an application that has taken longer than request_timeout; its client has been answered.\n\n\
     It derives from BaseException because frameworks and loops that retry catch Exception: only code that\n\
     catches everything holds it up."
);

/// The tag is in the two lowest bits, the stamp of the exchange above.
const TAG_BITS: u32 = 2;
const INSIDE: u64 = 1;
const INTERRUPTING: u64 = 2;
const INTERRUPTED: u64 = 3;
const AT_REST: u64 = 0;

/// All pool threads of an application.
#[derive(Default)]
pub(super) struct ThreadRegistry(Mutex<Vec<Arc<PoolThread>>>);

/// One pool thread.
pub(super) struct PoolThread {
    thread: Thread,
    /// What `threading.get_ident` calls it.
    ident: u64,
    state: AtomicU64,
}

/// A pool thread is in the registry until this is dropped.
pub(super) struct Registration<'a> {
    registry: &'a ThreadRegistry,
    pub(super) thread: Arc<PoolThread>,
}

/// A call of the application, as long as it can be interrupted.
pub(super) struct Inside<'a, 'py> {
    thread: &'a PoolThread,
    py: Python<'py>,
    began: Stamp,
}

impl ThreadRegistry {
    /// Adds this thread.
    pub(super) fn enter(&self, py: Python<'_>) -> PyResult<Registration<'_>> {
        let thread = Arc::new(PoolThread {
            thread: Thread::current(),
            ident: py.import("_thread")?.call_method0("get_ident")?.extract()?,
            state: AtomicU64::new(AT_REST),
        });
        self.threads().push(Arc::clone(&thread));
        Ok(Registration {
            registry: self,
            thread,
        })
    }

    pub(super) fn find(&self, thread: Thread) -> Option<Arc<PoolThread>> {
        let threads = self.threads();
        threads.iter().find(|one| one.thread == thread).cloned()
    }

    /// Threads that are inside the application.
    pub(super) fn inside_len(&self) -> usize {
        let is_inside = |thread: &&Arc<PoolThread>| thread.state.load(Ordering::Relaxed) != AT_REST;
        self.threads().iter().filter(is_inside).count()
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Arc<PoolThread>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut threads = self.registry.threads();
        threads.retain(|one| !Arc::ptr_eq(one, &self.thread));
    }
}

impl PoolThread {
    /// This thread is about to call the application for the exchange that was begun then.
    pub(super) fn begin<'a, 'py>(&'a self, py: Python<'py>, began: Stamp) -> Inside<'a, 'py> {
        let before = self.state.load(Ordering::Relaxed);
        assert_eq!(before, AT_REST, "a pool thread is in two exchanges at once");
        self.state.store(tagged(began, INSIDE), Ordering::Release);
        Inside {
            thread: self,
            py,
            began,
        }
    }

    /// Raises `RequestTimeout` in the thread, if it is still inside that exchange. It leaves whatever runs
    /// Python; a call into C goes on until it returns.
    fn interrupt(&self, py: Python<'_>, began: Stamp) -> bool {
        // Against the same step of `Inside`'s drop: one of the two succeeds. A thread that has left the exchange, or is
        // in another one by now, has another stamp, and no exception is set for it.
        let (inside, taken) = (tagged(began, INSIDE), tagged(began, INTERRUPTING));
        let change =
            self.state
                .compare_exchange(inside, taken, Ordering::AcqRel, Ordering::Relaxed);
        if change.is_err() {
            return false;
        }
        let exception = py.get_type::<RequestTimeout>();
        self.set_exception(py, exception.as_ptr());
        self.state
            .store(tagged(began, INTERRUPTED), Ordering::Release);
        true
    }

    /// `exception`: a class, or null to take back what has not been raised yet.
    fn set_exception(&self, _py: Python<'_>, exception: *mut ffi::PyObject) {
        let ident = self.ident.cast_signed() as c_long;
        // SAFETY: attached; the interpreter looks the thread up by itself and takes its own reference.
        unsafe { ffi::PyThreadState_SetAsyncExc(ident, exception) };
    }
}

impl Inside<'_, '_> {
    /// The call is over; whether it was interrupted.
    pub(super) fn leave(self) -> bool {
        let tag = self.thread.state.load(Ordering::Acquire) & ((1 << TAG_BITS) - 1);
        tag >= INTERRUPTING
    }
}

impl Drop for Inside<'_, '_> {
    fn drop(&mut self) {
        let state = &self.thread.state;
        let inside = tagged(self.began, INSIDE);
        if state
            .compare_exchange(inside, AT_REST, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return;
        }
        // Detached, because the thread that interrupts needs the interpreter for the step that ends this wait.
        while state.load(Ordering::Acquire) == tagged(self.began, INTERRUPTING) {
            self.py.detach(std::thread::yield_now);
        }
        let interrupted = tagged(self.began, INTERRUPTED);
        let found = state.load(Ordering::Relaxed);
        assert_eq!(found, interrupted, "another exchange was interrupted");
        // What comes too late for this exchange must not meet the next.
        self.thread.set_exception(self.py, std::ptr::null_mut());
        state.store(AT_REST, Ordering::Release);
    }
}

fn tagged(began: Stamp, tag: u64) -> u64 {
    began.0 << TAG_BITS | tag
}

/// Looks at pool threads and interrupts them.
#[derive(Default)]
pub(super) struct StackSampler(StackThread);

impl StackSampler {
    /// Where a thread is.
    pub(super) fn stack(&self, thread: Arc<PoolThread>, wait_max: Duration) -> Stack {
        // Who waits already waits for all.
        if self.0.is_busy() {
            return Stack::Held;
        }
        let stack = self.0.ask(wait_max, move |py| stack_of(py, thread.ident));
        stack.map_or(Stack::Held, Stack::Frames)
    }

    /// Interrupts a thread, if it is still at it by the time that this is possible. False when it could not be
    /// done yet.
    pub(super) fn interrupt(&self, thread: Arc<PoolThread>, began: Stamp) -> bool {
        let wait_max = match self.0.is_busy() {
            false => ATTACH_MAX,
            true => Duration::ZERO,
        };
        let done = self.0.ask(wait_max, move |py| thread.interrupt(py, began));
        done.is_some()
    }
}

/// The frames of a thread, the outermost first, as Python prints them.
fn stack_of(py: Python<'_>, ident: u64) -> String {
    match formatter(py).and_then(|format| format.bind(py).call1((ident,))) {
        // Names of files may hold lone surrogates, which are no UTF-8.
        Ok(text) => text.cast::<PyString>().map_or_else(
            |_| "  no frame: it is not in Python".to_owned(),
            |text| text.to_string_lossy().into_owned(),
        ),
        Err(error) => format!("  the frames could not be read: {error}"),
    }
}

/// What formats the frames of a thread. A worker asks for it before somebody does who has to look at a thread: the
/// processors may be busy then, and a first look that has to import would be too late.
pub(super) fn formatter(py: Python<'_>) -> PyResult<&'static Py<PyAny>> {
    static FORMAT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FORMAT.get_or_try_init(py, || {
        let names = PyDict::new(py);
        // All frames are taken before the lines of their files are read: the thread goes on meanwhile.
        let script = c"
import sys, traceback
def stack(ident):
    frame = sys._current_frames().get(ident)
    if frame is None:
        return None
    frames = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    del frame
    frames.reverse()
    return ''.join(frames.format())
";
        py.run(script, Some(&names), None)?;
        Ok(names.as_any().get_item("stack")?.unbind())
    })
}

#[cfg(test)]
mod tests;
