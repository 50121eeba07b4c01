//! Wakes the watchdog's thread, which sleeps without a timeout while no worker runs anything.
//!
//! The watchdog arms it, workers wake through it; one wake-up for each time that it was armed, and one load of a
//! worker where it is not. Knows nothing of what workers run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use crate::sync::lock;

/// The wake-up of one sleeping thread.
#[derive(Default)]
pub(crate) struct Wakeup {
    is_armed: AtomicBool,
    sleeper: Mutex<Option<Thread>>,
}

impl Wakeup {
    /// The calling thread is the one to wake.
    pub(crate) fn set_sleeper(&self) {
        *lock(&self.sleeper) = Some(thread::current());
    }

    /// The next `wake` wakes the sleeper. The caller must scan once more afterwards: a run that began before this
    /// has caused no wake-up.
    pub(super) fn arm(&self) {
        // SeqCst, as the store before `wake` is: in the one order of both, either that scan finds the run, or the
        // worker finds this armed. With anything weaker both could miss each other, and the run would go unwatched.
        self.is_armed.store(true, Ordering::SeqCst);
    }

    pub(super) fn disarm(&self) {
        self.is_armed.store(false, Ordering::SeqCst);
    }

    /// Whether no worker has called `wake` since it was armed.
    pub(crate) fn is_armed(&self) -> bool {
        self.is_armed.load(Ordering::SeqCst)
    }

    /// Worker: a run has begun, which a SeqCst store has made visible.
    pub(super) fn wake(&self) {
        // The load first: it leaves the cache line shared among workers while nothing is armed, the swap would not.
        if self.is_armed.load(Ordering::SeqCst)
            && self.is_armed.swap(false, Ordering::SeqCst)
            && let Some(thread) = &*lock(&self.sleeper)
        {
            thread.unpark();
        }
    }
}
