//! Restart policy: when a process that ended is started again, and when no longer. Pure: `now` is an argument.

use std::time::{Duration, Instant};

use os::invariant;

/// Starts that fail in a row, after which no other is tried.
pub(super) const FAILED_STARTS_MAX: u32 = 5;
/// The wait after the first failed start; it doubles with each further one.
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(10);
/// A process that has served for so long has started well, whatever ends it later.
const PROVEN: Duration = Duration::from_secs(10);

/// What has become of the processes in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RestartHistory {
    failed_starts: u32,
    /// Ends soon after a good start, in a row.
    early_ends: u32,
    /// No start before this.
    resting_until: Option<Instant>,
    /// Processes started after the first.
    restarts: u64,
}

/// What is to be done in a place without a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartDecision {
    Start,
    Wait(Instant),
    /// It failed too often.
    GiveUp,
}

impl RestartHistory {
    /// A process has ended after it served for `served`; `None`: it never did.
    pub(super) fn ended(&mut self, served: Option<Duration>, now: Instant) {
        self.restarts += 1;
        match served {
            None => self.failed_starts += 1,
            Some(served) => {
                // A start that has served is none that failed, even if it crashed at once: then `early_ends` slows the
                // next ones.
                self.failed_starts = 0;
                self.early_ends = match served < PROVEN {
                    true => self.early_ends + 1,
                    false => 0,
                };
            }
        }
        invariant!(
            u64::from(self.failed_starts.max(self.early_ends)) <= self.restarts,
            "more starts have failed in a place than there were"
        );
        // A process that served is started again at once; only an exit soon after the next start waits.
        let in_a_row = self.failed_starts.max(self.early_ends.saturating_sub(1));
        self.resting_until = in_a_row.checked_sub(1).map(|doublings| {
            let delay = DELAY_MIN.saturating_mul(1 << doublings.min(16));
            now + delay.min(DELAY_MAX)
        });
    }

    /// What is due.
    pub(super) fn next(&self, now: Instant) -> RestartDecision {
        match self.resting_until(now) {
            _ if self.failed_starts >= FAILED_STARTS_MAX => RestartDecision::GiveUp,
            Some(until) => RestartDecision::Wait(until),
            None => RestartDecision::Start,
        }
    }

    /// When the next start may be, if not now. A successor of a process that serves is never given up.
    pub(super) fn resting_until(&self, now: Instant) -> Option<Instant> {
        self.resting_until.filter(|until| *until > now)
    }

    /// Processes that were started because another had ended.
    pub(super) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Starts that failed in a row.
    pub(super) fn failed_starts(&self) -> u32 {
        self.failed_starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_again_at_once_after_a_crash() {
        let now = Instant::now();
        let mut life = RestartHistory::default();
        assert_eq!(life.next(now), RestartDecision::Start);
        life.ended(Some(Duration::from_secs(60)), now);
        assert_eq!(life.next(now), RestartDecision::Start);
        assert_eq!(life.restarts(), 1);
    }

    #[test]
    fn waits_longer_after_each_crash_that_follows_a_start() {
        let now = Instant::now();
        let mut life = RestartHistory::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            life.ended(Some(Duration::from_secs(1)), now);
            waits.push(match life.next(now) {
                RestartDecision::Wait(until) => until - now,
                _ => Duration::ZERO,
            });
        }
        assert_eq!(waits[0], Duration::ZERO);
        assert_eq!(waits[1], DELAY_MIN);
        assert_eq!(waits[2], DELAY_MIN * 2);
        assert_eq!(waits[11], DELAY_MAX);
        assert_eq!(life.next(now + DELAY_MAX), RestartDecision::Start);
        life.ended(Some(PROVEN), now);
        assert_eq!(life.next(now), RestartDecision::Start);
    }

    #[test]
    fn gives_up_after_five_failed_starts_in_a_row() {
        let now = Instant::now();
        let mut life = RestartHistory::default();
        for _ in 0..4 {
            life.ended(None, now);
            assert!(matches!(life.next(now), RestartDecision::Wait(_)));
        }
        life.ended(Some(PROVEN), now);
        assert_eq!(life.next(now), RestartDecision::Start);
        for _ in 0..5 {
            life.ended(None, now);
        }
        assert_eq!(life.next(now + DELAY_MAX), RestartDecision::GiveUp);
        // Beside a process that serves another start is tried, later each time.
        for _ in 0..10 {
            life.ended(None, now);
        }
        assert_eq!(life.resting_until(now), Some(now + DELAY_MAX));
        assert_eq!(life.resting_until(now + DELAY_MAX), None);
    }
}
