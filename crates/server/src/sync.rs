//! The synchronisation primitives that `handover`, `queue` and `tenure` are built on, so that a model checker can put its own
//! in their place (`crates/model` compiles them against loom's).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

pub(crate) use atomic_waker::AtomicWaker as WakerCell;

/// Locks; a panic while the lock was held elsewhere does not spread, because every critical section in
/// these rooms leaves its data consistent at each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits on a condition variable under the same rule as `lock`.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar
        .wait(guard)
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// As `wait`, but for `longest` at most.
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    longest: std::time::Duration,
) -> MutexGuard<'a, T> {
    let waited = condvar.wait_timeout(guard, longest);
    waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
}
