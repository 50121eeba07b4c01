//! Whether a member of a group is to be used, by what its exchanges and its active checks say.
//!
//! Takes failures, successes and checks of one member; how many may be ejected is the group's matter. It must not
//! know other members.
//!
//! ```text
//!            eject_after failures          time over
//!   Good ─────────────────────────▶ Ejected ─────────▶ Good (slow start; one failure ejects again)
//!     │ ejection not allowed: too many are out              ▲
//!     └────────────────────────────▶ Suspect ───────────────┘ the same, or a success
//! ```

use telemetry::{Nanos, Stamp};

/// No ejection lasts longer (Envoy's bound).
const EJECTION_MAX: Nanos = Nanos::from_secs(300);
/// A member that has been good for so long begins with short ejections again.
const FORGIVEN_AFTER: Nanos = Nanos::from_secs(300);
/// A member that is out and may be tried all the same gets one request, and after a failure none for so long.
const TRIAL_EVERY: Nanos = Nanos::from_secs(1);

/// When a member is ejected and when its checks count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HealthRules {
    pub(super) eject_after: u32,
    pub(super) eject_time: Nanos,
    pub(super) check_rise: u32,
    pub(super) check_fall: u32,
}

/// What an active check found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckResult {
    /// The answer that was expected, in time.
    Passed,
    /// Anything else.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Good,
    /// Out until then.
    Ejected {
        until: Stamp,
    },
    /// It should be out, and too many are: until then it is used behind all that are good.
    Suspect {
        until: Stamp,
    },
}

/// What the active checks say: nothing, which counts as good, or the same so many times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Checks {
    Passing { failed: u32 },
    Failing { passed: u32 },
}

/// The health of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Health {
    standing: Standing,
    checks: Checks,
    /// Failures since the last success.
    failures: u32,
    failed_at: Stamp,
    /// Ejections that count for the length of the next one.
    ejections: u32,
}

impl Health {
    /// Of a member of which nothing is known: it is used.
    pub(super) const fn new() -> Health {
        Health {
            standing: Standing::Good,
            checks: Checks::Passing { failed: 0 },
            failures: 0,
            failed_at: Stamp::ZERO,
            ejections: 0,
        }
    }

    /// Whether it is to be used at `now`.
    pub(super) fn is_good(&self, now: Stamp) -> bool {
        matches!(self.checks, Checks::Passing { .. })
            && self.returns_at().is_none_or(|until| now >= until)
    }

    /// Whether it is ejected at `now`.
    pub(super) fn is_out(&self, now: Stamp) -> bool {
        matches!(self.standing, Standing::Ejected { until } if now < until)
    }

    /// Failures since the last success.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// When it is good again by time alone, unless its checks fail.
    pub(super) fn returns_at(&self) -> Option<Stamp> {
        match self.standing {
            Standing::Ejected { until } | Standing::Suspect { until } => Some(until),
            Standing::Good => None,
        }
    }

    /// From when on it may be tried while it is not good.
    pub(super) fn trial_at(&self) -> Stamp {
        self.failed_at.plus(TRIAL_EVERY)
    }

    /// An exchange that began at `began` was served. Whether that brings the member back.
    pub(super) fn succeeded(&mut self, now: Stamp, began: Stamp) -> bool {
        // What was sent before the last failure and is answered behind it says nothing about the present.
        if self.failures > 0 && began < self.failed_at {
            return false;
        }
        self.failures = 0;
        let is_back = self.returns_at().is_some_and(|until| now < until);
        self.standing = Standing::Good;
        is_back
    }

    /// An exchange failed. Whether the member ought to be ejected now.
    pub(super) fn failed(&mut self, now: Stamp, rules: HealthRules) -> bool {
        let since = self.returns_at().unwrap_or(self.failed_at);
        if now.since(since) >= FORGIVEN_AFTER {
            self.ejections = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.failed_at = now;
        !self.is_out(now) && self.failures >= rules.eject_after
    }

    /// Ejects it.
    pub(super) fn eject(&mut self, now: Stamp, rules: HealthRules) {
        self.ejections = self.ejections.saturating_add(1);
        let lasts = Nanos(rules.eject_time.0.saturating_mul(self.ejections.into()));
        let until = now.plus(lasts.min(EJECTION_MAX));
        self.standing = Standing::Ejected { until };
        // It comes back on probation.
        self.failures = rules.eject_after.saturating_sub(1);
    }

    /// It ought to be ejected and is not.
    pub(super) fn suspect(&mut self, now: Stamp, rules: HealthRules) {
        let until = now.plus(rules.eject_time);
        self.standing = Standing::Suspect { until };
        self.failures = rules.eject_after.saturating_sub(1);
    }

    /// An active check passed or failed. Whether it brings the member back.
    pub(super) fn checked(&mut self, now: Stamp, result: CheckResult, rules: HealthRules) -> bool {
        let was_good = self.is_good(now);
        self.checks = match (self.checks, result) {
            (Checks::Passing { .. }, CheckResult::Passed) if was_good => {
                Checks::Passing { failed: 0 }
            }
            // Ejected or suspect: passes count as if it had been down by checks.
            (Checks::Passing { .. }, CheckResult::Passed) => Checks::Failing { passed: 1 },
            (Checks::Passing { failed }, CheckResult::Failed) if failed + 1 < rules.check_fall => {
                Checks::Passing { failed: failed + 1 }
            }
            (Checks::Failing { passed }, CheckResult::Passed) => {
                Checks::Failing { passed: passed + 1 }
            }
            (_, CheckResult::Failed) => Checks::Failing { passed: 0 },
        };
        match self.checks {
            Checks::Failing { passed } if passed >= rules.check_rise => {
                self.checks = Checks::Passing { failed: 0 };
                self.standing = Standing::Good;
                self.failures = 0;
                !was_good
            }
            Checks::Failing { .. } | Checks::Passing { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: HealthRules = HealthRules {
        eject_after: 3,
        eject_time: Nanos::from_secs(30),
        check_rise: 2,
        check_fall: 3,
    };

    fn at(secs: u64) -> Stamp {
        Stamp::ZERO.plus(Nanos::from_secs(1_000 + secs))
    }

    #[test]
    fn each_ejection_is_longer_until_it_is_forgiven() {
        let (mut health, mut secs) = (Health::new(), 0);
        let mut eject = |later, failures, lasts| {
            secs += later;
            for _ in 1..failures {
                assert!(!health.failed(at(secs), RULES), "{health:?}");
                assert!(health.is_good(at(secs)));
            }
            assert!(health.failed(at(secs), RULES), "{health:?}");
            health.eject(at(secs), RULES);
            secs += lasts;
            assert!(!health.is_good(at(secs - 1)), "{health:?}");
            assert!(health.is_good(at(secs)), "{health:?}");
        };
        eject(0, 3, 30);
        // One failure ejects it while it is on probation.
        eject(0, 1, 60);
        eject(299, 1, 90);
        for round in 4..20 {
            eject(1, 1, (30 * round).min(300));
        }
        eject(300, 1, 30);
    }

    #[test]
    fn a_success_counts_when_it_began_after_the_failure() {
        let mut health = Health::new();
        health.failed(at(5), RULES);
        health.failed(at(5), RULES);
        assert!(!health.succeeded(at(6), at(4)));
        assert_eq!(health.failures(), 2);
        assert!(!health.succeeded(at(6), at(5)));
        assert_eq!(health.failures(), 0);
        (0..3).for_each(|_| _ = health.failed(at(7), RULES));
        health.suspect(at(7), RULES);
        assert!(!health.is_good(at(36)) && health.is_good(at(37)));
        assert!(!health.is_out(at(7)));
        assert_eq!(health.trial_at(), at(8));
        assert!(health.succeeded(at(9), at(8)));
        assert!(health.is_good(at(9)));
    }

    #[test]
    fn checks_take_it_out_and_bring_it_back() {
        use CheckResult::{Failed, Passed};
        let mut health = Health::new();
        let mut check = |results: &[CheckResult], is_good| {
            for result in results {
                health.checked(at(1), *result, RULES);
            }
            assert_eq!(health.is_good(at(1)), is_good, "{health:?}");
        };
        check(&[Passed, Failed, Failed], true);
        check(&[Passed, Failed, Failed], true);
        check(&[Failed], false);
        check(&[Passed, Failed, Passed], false);
        check(&[Passed], true);
        // An ejection ends by checks too.
        (0..3).for_each(|_| _ = health.failed(at(2), RULES));
        health.eject(at(2), RULES);
        assert!(!health.checked(at(3), Passed, RULES));
        assert!(health.checked(at(4), Passed, RULES));
        assert!(health.is_good(at(4)));
    }
}
