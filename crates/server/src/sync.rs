//! The synchronisation primitives that `exchange::ownership`, `queue` and `run_guard` are built on, so that a model
//! checker can put its own in their place (`crates/loom-tests` compiles them against loom's); and what happens when
//! an invariant does not hold.

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

/// Checks an invariant, in release too. One that does not hold costs the process: what it would do next cannot
/// be trusted, and the supervisor replaces it.
macro_rules! invariant {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            $crate::sync::violated(format_args!($($text)+));
        }
    };
}

pub(crate) use invariant;

/// Says which invariant does not hold, and ends the process; a test gets a panic instead, which it can expect.
#[cold]
#[track_caller]
pub(crate) fn violated(text: std::fmt::Arguments<'_>) -> ! {
    if cfg!(test) {
        panic!("invariant violated: {text}");
    }
    let place = std::panic::Location::caller();
    eprintln!("milepost: bug: invariant violated: {text} ({place})");
    std::process::abort();
}
