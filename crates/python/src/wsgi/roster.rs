//! The roster: which pool threads are inside the application, and how one of them is interrupted.
//!
//! A thread writes its own line; whoever interrupts takes a line's exchange for itself first, so that the
//! exception reaches the exchange that it is meant for or none. Knows Python's names of threads.
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

use measure::Stamp;
use pyo3::exceptions::PyBaseException;
use pyo3::ffi;
use pyo3::prelude::*;
use server::watch::Thread;

use crate::raw;

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
pub(super) struct Roster(Mutex<Vec<Arc<Line>>>);

/// One pool thread.
pub(super) struct Line {
    thread: Thread,
    /// What `threading.get_ident` calls it.
    ident: u64,
    state: AtomicU64,
}

/// A pool thread's place on the roster.
pub(super) struct Listed<'a> {
    roster: &'a Roster,
    pub(super) line: Arc<Line>,
}

/// A call of the application, as long as it can be interrupted.
pub(super) struct Inside<'a, 'py> {
    line: &'a Line,
    py: Python<'py>,
    began: Stamp,
}

impl Roster {
    /// This thread is on the roster until what is given back is dropped.
    pub(super) fn enter(&self, py: Python<'_>) -> PyResult<Listed<'_>> {
        let ident = py.import("_thread")?.call_method0("get_ident")?.extract()?;
        let line = Arc::new(Line {
            thread: Thread::current(),
            ident,
            state: AtomicU64::new(AT_REST),
        });
        self.lines().push(Arc::clone(&line));
        Ok(Listed { roster: self, line })
    }

    pub(super) fn find(&self, thread: Thread) -> Option<Arc<Line>> {
        let lines = self.lines();
        lines.iter().find(|line| line.thread == thread).cloned()
    }

    /// Threads that are inside the application.
    pub(super) fn inside_len(&self) -> usize {
        self.lines().iter().filter(|line| line.is_inside()).count()
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut lines = self.roster.lines();
        lines.retain(|line| !Arc::ptr_eq(line, &self.line));
    }
}

impl Line {
    pub(super) fn ident(&self) -> u64 {
        self.ident
    }

    /// This thread is about to call the application for the exchange that was begun then.
    pub(super) fn begin<'a, 'py>(&'a self, py: Python<'py>, began: Stamp) -> Inside<'a, 'py> {
        self.state.store(tagged(began, INSIDE), Ordering::Release);
        Inside {
            line: self,
            py,
            began,
        }
    }

    /// Raises `RequestTimeout` in the thread, if it is still inside that exchange. It leaves whatever runs
    /// Python; a call into C goes on until it returns.
    pub(super) fn interrupt(&self, py: Python<'_>, began: Stamp) -> bool {
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

    fn is_inside(&self) -> bool {
        self.state.load(Ordering::Relaxed) != AT_REST
    }
}

impl Inside<'_, '_> {
    /// The call is over; whether it was interrupted.
    pub(super) fn leave(self) -> bool {
        let tag = self.line.state.load(Ordering::Acquire) & ((1 << TAG_BITS) - 1);
        tag >= INTERRUPTING
    }
}

impl Drop for Inside<'_, '_> {
    fn drop(&mut self) {
        let state = &self.line.state;
        let inside = tagged(self.began, INSIDE);
        if state
            .compare_exchange(inside, AT_REST, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return;
        }
        while state.load(Ordering::Acquire) == tagged(self.began, INTERRUPTING) {
            raw::detached(self.py, std::thread::yield_now);
        }
        // What comes too late for this exchange must not meet the next.
        self.line.set_exception(self.py, std::ptr::null_mut());
        state.store(AT_REST, Ordering::Release);
    }
}

fn tagged(began: Stamp, tag: u64) -> u64 {
    began.0 << TAG_BITS | tag
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Stamp = Stamp(1_000);

    fn run(py: Python<'_>, script: &std::ffi::CStr) -> PyResult<()> {
        py.run(script, None, None)
    }

    #[test]
    fn an_exception_reaches_the_exchange_that_it_is_meant_for() {
        Python::initialize();
        Python::attach(|py| {
            let roster = Roster::default();
            let listed = roster.enter(py).unwrap();
            let line = roster.find(listed.line.thread).unwrap();
            let inside = line.begin(py, BEGAN);
            assert!(!line.interrupt(py, Stamp(999)));
            assert!(line.interrupt(py, BEGAN) && !line.interrupt(py, BEGAN));
            let error = run(py, c"while True: pass").unwrap_err();
            assert!(error.is_instance_of::<RequestTimeout>(py), "{error}");
            assert!(!error.is_instance_of::<pyo3::exceptions::PyException>(py));
            assert!(inside.leave());
            run(py, c"for _ in range(100_000): pass").unwrap();
        });
    }

    #[test]
    fn an_exception_that_comes_too_late_meets_nobody() {
        Python::initialize();
        Python::attach(|py| {
            let roster = Roster::default();
            let listed = roster.enter(py).unwrap();
            let inside = listed.line.begin(py, BEGAN);
            assert_eq!(roster.inside_len(), 1);
            assert!(listed.line.interrupt(py, BEGAN));
            assert!(inside.leave());
            run(py, c"for _ in range(100_000): pass").unwrap();
            assert!(!listed.line.interrupt(py, BEGAN));
            assert_eq!(roster.inside_len(), 0);
            let undisturbed = listed.line.begin(py, Stamp(2_000));
            assert!(!undisturbed.leave());
        });
    }
}
