//! Turns at the interpreter among the pool threads of an application.
//!
//! A thread that finds work waiting goes on without letting go of the GIL. So that its siblings, which may
//! hold an exchange already, do not wait for the interpreter's switch interval (5 ms), it lets them in
//! after a burst, and only when one of them is at the door. An interpreter without a GIL needs none of it.
//! Takes counts and the clock; knows no Python.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use measure::{Nanos, Stamp};

/// Exchanges in a row before siblings are let in.
const BURST_LEN_MAX: u32 = 16;
/// Time after which siblings are let in.
const BURST_MAX: Nanos = Nanos(1_000_000);
/// Longest wait for a sibling to come in; it has been woken but may have no processor.
const HOLD_MAX: Nanos = Nanos(100_000);

/// Who is at the door.
#[derive(Default)]
pub(crate) struct Turns {
    /// Threads that are waiting to attach.
    attaching: AtomicUsize,
    /// Times that a thread has attached.
    attached: AtomicU64,
    /// Nanoseconds that all threads have waited to attach before their exchanges.
    waited_ns: AtomicU64,
}

/// Exchanges that a thread has run since it last attached.
pub(crate) struct Burst {
    len: u32,
    began: Stamp,
}

impl Burst {
    pub(crate) fn begin() -> Self {
        Self {
            len: 0,
            began: Stamp::ZERO,
        }
    }
}

impl Turns {
    /// This thread is about to attach.
    pub(crate) fn attaching(&self) {
        self.attaching.fetch_add(1, Ordering::Relaxed);
    }

    /// This thread has attached.
    pub(crate) fn attached(&self) {
        self.attaching.fetch_sub(1, Ordering::Relaxed);
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    /// This thread has waited so long to attach for an exchange.
    pub(crate) fn has_waited(&self, waited: Nanos) {
        self.waited_ns.fetch_add(waited.0, Ordering::Relaxed);
    }

    /// What all threads have waited to attach for exchanges, since the beginning.
    pub(crate) fn waited(&self) -> Nanos {
        Nanos(self.waited_ns.load(Ordering::Relaxed))
    }

    /// Threads that are waiting to attach.
    pub(crate) fn attaching_len(&self) -> usize {
        self.attaching.load(Ordering::Relaxed)
    }

    /// One more exchange is done: whether it is time to let siblings in.
    pub(crate) fn is_due(&self, burst: &mut Burst) -> bool {
        burst.len += 1;
        if self.attaching.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // The clock is read only from when somebody waits.
        let now = measure::now();
        if burst.began == Stamp::ZERO {
            burst.began = now;
        }
        burst.len >= BURST_LEN_MAX || now.since(burst.began) >= BURST_MAX
    }

    /// Detached: waits until a sibling has come in. Letting go alone would not do: whoever lets go of the
    /// GIL is the first to find it free.
    pub(crate) fn let_others_in(&self) {
        let before = self.attached.load(Ordering::Relaxed);
        let began = measure::now();
        while self.attached.load(Ordering::Relaxed) == before
            && measure::now().since(began) < HOLD_MAX
        {
            thread::yield_now();
        }
        self.attaching();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_alone_never_lets_go() {
        let turns = Turns::default();
        let mut burst = Burst::begin();
        assert!((0..1000).all(|_| !turns.is_due(&mut burst)));
    }

    #[test]
    fn siblings_come_in_after_a_burst() {
        let turns = Turns::default();
        turns.attaching();
        let mut burst = Burst::begin();
        let due = (1..=BURST_LEN_MAX).find(|_| turns.is_due(&mut burst));
        assert!(due.is_some());
        turns.attached();
        assert!(!turns.is_due(&mut Burst::begin()));
    }
}
