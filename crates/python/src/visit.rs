//! Visits: how threads that no exchange waits for come to the interpreter, and how they cease to before its end.
//!
//! Until Python 3.13 a thread that attaches while the interpreter ends is ended by it, with `pthread_exit`. That
//! cannot unwind through Rust: it aborts the process. So these threads attach during a visit only, and the
//! interpreter ends when there are no more. Knows no Python.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread;

/// Whether there are no more visits. Visitors hold it for reading.
static ARE_OVER: RwLock<bool> = RwLock::new(false);

/// The interpreter does not end as long as this is kept.
pub(crate) struct Visit {
    _held: RwLockReadGuard<'static, bool>,
}

/// Begins a visit; called detached. Once there are no more it does not return: the process is about to end.
pub(crate) fn begin() -> Visit {
    let held = ARE_OVER.read().unwrap_or_else(PoisonError::into_inner);
    if *held {
        drop(held);
        loop {
            thread::park();
        }
    }
    Visit { _held: held }
}

/// Waits until all visits are over, and there are none any more. Called detached, or it waits for somebody who
/// waits for the caller.
pub(crate) fn end_all() {
    *ARE_OVER.write().unwrap_or_else(PoisonError::into_inner) = true;
}
