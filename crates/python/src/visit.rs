//! Visits: how threads that no exchange waits for come to the interpreter, and how they cease to before its end.
//!
//! Until Python 3.13 a thread that attaches while the interpreter ends is ended by it, with `pthread_exit`. That
//! cannot unwind through Rust: it aborts the process. So these threads attach during a visit only, and the
//! interpreter ends when there are no more. Knows no Python.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

static VISITS: Mutex<Visits> = Mutex::new(Visits {
    len: 0,
    are_over: false,
});
/// Told when the last one ends after there are to be no more.
static ENDED: Condvar = Condvar::new();

struct Visits {
    /// Visits at the moment: one for each of these threads at most.
    len: usize,
    /// There will be no more.
    are_over: bool,
}

/// The interpreter does not end as long as this is kept.
pub(crate) struct Visit(());

/// Begins a visit; called detached. Once there are no more it does not return: the process is about to end.
pub(crate) fn begin() -> Visit {
    {
        let mut visits = visits();
        if !visits.are_over {
            visits.len += 1;
            return Visit(());
        }
    }
    loop {
        thread::park();
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut visits = visits();
        visits.len -= 1;
        if visits.are_over {
            ENDED.notify_all();
        }
    }
}

/// Waits until all visits are over, and there are none any more. Called detached, or it waits for somebody who
/// waits for the caller.
pub(crate) fn end_all() {
    let mut visits = visits();
    visits.are_over = true;
    let waited = ENDED.wait_while(visits, |visits| visits.len > 0);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

fn visits() -> MutexGuard<'static, Visits> {
    VISITS.lock().unwrap_or_else(PoisonError::into_inner)
}
