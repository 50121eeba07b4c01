//! Visits: how threads that no exchange waits for come to the interpreter, and how they cease to before its end.
//!
//! Until Python 3.13 a thread that attaches while the interpreter ends is ended by it, with `pthread_exit`. That
//! cannot unwind through Rust: it aborts the process. So these threads attach during a visit only, and the
//! interpreter ends when there are no more. Knows no Python.

use std::mem;
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard};

static VISITS: RwLock<()> = RwLock::new(());
static END: Once = Once::new();

/// The interpreter does not end as long as this is kept.
pub(crate) type Visit = RwLockReadGuard<'static, ()>;

/// Begins a visit, one for each of these threads at most; called detached. Once there are no more it does not return:
/// the process is about to end.
pub(crate) fn begin() -> Visit {
    VISITS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until all visits are over, and there are none any more. Called detached, or it waits for somebody who
/// waits for the caller.
pub(crate) fn end_all() {
    END.call_once(|| {
        let last = VISITS.write().unwrap_or_else(PoisonError::into_inner);
        // Whoever comes waits for it.
        mem::forget(last);
    });
}
