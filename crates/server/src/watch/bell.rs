//! The bell: whoever looks after pool threads sleeps until one of them begins something, and is woken then.
//!
//! The thread that sleeps arms it, pool threads ring it; it rings once for each time that it was armed, and costs
//! a load where it is not. It must not know what is begun.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};

/// One sleeper's bell.
#[derive(Default)]
pub(crate) struct Bell {
    is_armed: AtomicBool,
    sleeper: Mutex<Option<Thread>>,
}

impl Bell {
    /// The calling thread is the one that sleeps.
    pub(crate) fn sleeps_here(&self) {
        *self.sleeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
    }

    /// The next `ring` wakes the sleeper. Whoever arms has to look once more afterwards: what was begun before
    /// has not rung.
    pub(super) fn arm(&self) {
        // In one order with what `ring` is called after: either the look finds it, or it finds the bell armed.
        self.is_armed.store(true, Ordering::SeqCst);
    }

    pub(super) fn disarm(&self) {
        self.is_armed.store(false, Ordering::SeqCst);
    }

    /// Whether nobody has rung since it was armed.
    pub(crate) fn is_armed(&self) -> bool {
        self.is_armed.load(Ordering::SeqCst)
    }

    /// Pool thread: something has been begun, by a store that is SeqCst.
    pub(super) fn ring(&self) {
        if self.is_armed.load(Ordering::SeqCst)
            && self.is_armed.swap(false, Ordering::SeqCst)
            && let Some(thread) = &*self.sleeper.lock().unwrap_or_else(PoisonError::into_inner)
        {
            thread.unpark();
        }
    }
}
