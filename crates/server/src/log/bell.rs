//! How a log thread is called: what rings says how soon it has to come.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One thread's bell.
#[derive(Debug)]
pub(super) struct Bell {
    rung: Mutex<Ring>,
    called: Condvar,
}

/// How urgent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ring {
    Quiet,
    /// Something waits: come when it is as old as it may get.
    Waiting,
    /// A lot waits: come now.
    Urgent,
    /// Write everything and end.
    Stop,
}

impl Bell {
    pub(super) fn new() -> Self {
        Self {
            rung: Mutex::new(Ring::Quiet),
            called: Condvar::new(),
        }
    }

    /// Calls; a lesser ring than the last changes nothing.
    pub(super) fn ring(&self, ring: Ring) {
        let mut rung = self.lock();
        if *rung < ring {
            *rung = ring;
            self.called.notify_one();
        }
    }

    /// Waits until something waits, and then until that is `age` old or urgent; of all this `longest` at
    /// most. What rang is taken, only `Stop` stays.
    pub(super) fn wait(&self, age: Duration, longest: Duration) -> Ring {
        let mut rung = self.until(self.lock(), longest, Ring::Waiting);
        if *rung == Ring::Waiting {
            rung = self.until(rung, age.min(longest), Ring::Urgent);
        }
        let seen = *rung;
        if seen != Ring::Stop {
            *rung = Ring::Quiet;
        }
        seen
    }

    fn until<'a>(
        &'a self,
        rung: MutexGuard<'a, Ring>,
        longest: Duration,
        least: Ring,
    ) -> MutexGuard<'a, Ring> {
        let waited = self
            .called
            .wait_timeout_while(rung, longest, |rung| *rung < least);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_urgent_is_not_left_to_age() {
        let bell = Bell::new();
        bell.ring(Ring::Urgent);
        bell.ring(Ring::Waiting);
        assert_eq!(bell.wait(LONG, LONG), Ring::Urgent);
        assert_eq!(bell.wait(LONG, Duration::ZERO), Ring::Quiet);
    }

    #[test]
    fn what_waits_is_left_to_age() {
        let bell = Bell::new();
        bell.ring(Ring::Waiting);
        assert_eq!(bell.wait(Duration::ZERO, LONG), Ring::Waiting);
    }

    #[test]
    fn the_end_stays_the_end() {
        let bell = Bell::new();
        bell.ring(Ring::Stop);
        bell.ring(Ring::Urgent);
        assert_eq!(bell.wait(LONG, LONG), Ring::Stop);
        assert_eq!(bell.wait(LONG, LONG), Ring::Stop);
    }
}
