//! Locks without poison, and invariants that are checked in release too.

use std::fmt::Arguments;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a panic while the lock was held elsewhere does not spread, because every critical section here leaves its
/// data consistent at each step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks an invariant, in release too. One that does not hold costs the process: what it would do next cannot
/// be trusted, and the supervisor replaces it. A unit test gets a panic instead, which it can expect.
#[macro_export]
macro_rules! invariant {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            $crate::violated(cfg!(test), format_args!($($text)+));
        }
    };
}

/// Says which invariant does not hold and where, and ends the process, or panics in a test.
#[cold]
#[track_caller]
pub fn violated(is_test: bool, text: Arguments<'_>) -> ! {
    assert!(!is_test, "invariant violated: {text}");
    let place = Location::caller();
    eprintln!("milepost: bug: invariant violated: {text} ({place})");
    std::process::abort();
}
