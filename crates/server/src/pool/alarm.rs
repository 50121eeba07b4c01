//! What wakes the steward before its time: somebody waits for whom it would come too late, or it is told
//! something.
//!
//! Drivers ask it with every batch that finds no thread: that is one relaxed load as long as the steward
//! comes in time anyway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use measure::Stamp;

use crate::sync::{lock, wait_timeout};

/// The steward's alarm clock, which others may ring.
pub(super) struct Alarm {
    /// When the steward wakes by itself; ZERO when it has been rung, NEVER while it looks.
    wakes_at: AtomicU64,
    is_rung: Mutex<bool>,
    bell: Condvar,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self {
            wakes_at: AtomicU64::new(Stamp::NEVER.0),
            is_rung: Mutex::new(false),
            bell: Condvar::new(),
        }
    }

    /// Something is to be looked at by `at` at the latest.
    pub(super) fn set(&self, at: Stamp) {
        if at.0 < self.wakes_at.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Something is to be looked at now.
    pub(super) fn ring(&self) {
        self.wakes_at.store(Stamp::ZERO.0, Ordering::Relaxed);
        *lock(&self.is_rung) = true;
        self.bell.notify_one();
    }

    /// Steward: looks from now on; whatever changes behind its back rings.
    pub(super) fn look(&self) {
        let mut is_rung = lock(&self.is_rung);
        *is_rung = false;
        self.wakes_at.store(Stamp::NEVER.0, Ordering::Relaxed);
    }

    /// Steward: sleeps from `now` until `until`, or until it is rung.
    pub(super) fn sleep(&self, now: Stamp, until: Stamp) {
        let is_rung = lock(&self.is_rung);
        if *is_rung {
            return;
        }
        self.wakes_at.store(until.0, Ordering::Relaxed);
        let longest = Duration::from_nanos(until.since(now).0);
        // Woken for nothing it looks once more, which does no harm.
        drop(wait_timeout(&self.bell, is_rung, longest));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn a_ring_during_a_look_ends_the_next_sleep_at_once() {
        let alarm = Alarm::new();
        alarm.look();
        alarm.set(Stamp(5));
        // Would last for ever.
        alarm.sleep(Stamp(1), Stamp::NEVER);
    }

    #[test]
    fn a_sleeper_is_rung_for_what_comes_before_its_time() {
        let alarm = Arc::new(Alarm::new());
        alarm.look();
        let sleeper = {
            let alarm = Arc::clone(&alarm);
            thread::spawn(move || alarm.sleep(Stamp(1), Stamp(u64::MAX / 2)))
        };
        while alarm.wakes_at.load(Ordering::Relaxed) != u64::MAX / 2 {
            thread::yield_now();
        }
        alarm.set(Stamp(u64::MAX / 2));
        assert!(!*lock(&alarm.is_rung), "it comes in time anyway");
        alarm.set(Stamp(7));
        sleeper.join().unwrap();
    }
}
