//! The synchronisation primitives that `exchange::ownership`, `queue` and `run_guard` are built on, so that a model
//! checker can put its own in their place (`crates/loom-tests` compiles them against loom's).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

pub(crate) use atomic_waker::AtomicWaker as WakerCell;

pub(crate) use os::{invariant, lock};

/// The end of the process, or of a test, where no value could be right.
#[cold]
#[track_caller]
pub(crate) fn violated(text: std::fmt::Arguments<'_>) -> ! {
    os::violated(cfg!(test), text)
}
