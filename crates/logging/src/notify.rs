//! How producers wake a log's thread.
//!
//! A record that waits wakes its thread, which then gathers further ones for as long as a line may wait; what is
//! urgent wakes it at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use os::lock;

/// Wakes one of the log's threads.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    pending: Mutex<Urgency>,
    woken: Condvar,
}

/// How soon the thread has to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Urgency {
    #[default]
    Quiet,
    /// Lines wait; they may get as old as `log_flush`.
    Waiting,
    /// Now.
    Urgent,
    /// Write everything and end.
    Stop,
}

impl Notifier {
    /// Wakes the thread; a lesser urgency than the pending one changes nothing.
    pub(super) fn notify(&self, urgency: Urgency) {
        let mut pending = lock(&self.pending);
        if *pending < urgency {
            *pending = urgency;
            self.woken.notify_one();
        }
    }

    /// Sleeps until lines wait, then until they are `age` old or urgent, and for `longest` at most. Takes the pending
    /// urgency, but for `Stop`, which stays.
    pub(super) fn wait(&self, age: Duration, longest: Duration) -> Urgency {
        let mut pending = self.until(lock(&self.pending), longest, Urgency::Waiting);
        if *pending == Urgency::Waiting {
            // The thread gathers what comes meanwhile, unless something is urgent.
            pending = self.until(pending, age.min(longest), Urgency::Urgent);
        }
        let seen = *pending;
        // The end stays: the thread asks for it again between the pieces of a long task.
        if seen != Urgency::Stop {
            *pending = Urgency::Quiet;
        }
        seen
    }

    /// Whether the thread is to end.
    pub(super) fn is_stopped(&self) -> bool {
        *lock(&self.pending) == Urgency::Stop
    }

    fn until<'a>(
        &'a self,
        pending: MutexGuard<'a, Urgency>,
        longest: Duration,
        least: Urgency,
    ) -> MutexGuard<'a, Urgency> {
        let waited = self
            .woken
            .wait_timeout_while(pending, longest, |pending| *pending < least);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_urgent_is_not_left_to_age() {
        let notifier = Notifier::default();
        notifier.notify(Urgency::Urgent);
        notifier.notify(Urgency::Waiting);
        assert_eq!(notifier.wait(LONG, LONG), Urgency::Urgent);
        assert_eq!(notifier.wait(LONG, Duration::ZERO), Urgency::Quiet);
    }

    #[test]
    fn what_waits_is_left_to_age() {
        let notifier = Notifier::default();
        notifier.notify(Urgency::Waiting);
        assert_eq!(notifier.wait(Duration::ZERO, LONG), Urgency::Waiting);
    }

    #[test]
    fn the_end_stays_the_end() {
        let notifier = Notifier::default();
        notifier.notify(Urgency::Stop);
        notifier.notify(Urgency::Urgent);
        assert_eq!(notifier.wait(LONG, LONG), Urgency::Stop);
        assert_eq!(notifier.wait(LONG, LONG), Urgency::Stop);
    }
}
