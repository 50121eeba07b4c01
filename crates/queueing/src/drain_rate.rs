//! How fast a pool drains: a moving average of its throughput while requests wait.
//!
//! Takes a running total and the time at which it was read; it may be fed as often as anybody likes. What is
//! completed while nobody waits is what came, not what the pool can do, and its feeder passes over it. It must
//! not read a clock.

use telemetry::{Nanos, Stamp};

/// Completions per second, averaged exponentially over about the last second in which requests waited.
///
/// Between two observations the average stands still: feed it right before it is asked.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DrainRate {
    /// When the last folded observation was made, and the total then.
    base: Option<(Stamp, u64)>,
    per_second: Option<f64>,
}

/// The time after which an old value counts for 1/e: long against a page's burst of requests, short
/// against a client's patience.
const MEMORY: Nanos = Nanos::from_secs(1);
/// Closer observations are put together: one completion in 2 µs is no rate of 500,000 a second.
const FOLD_AFTER: Nanos = Nanos::from_ms(100);

impl DrainRate {
    /// A rate of which nothing is known.
    pub const fn new() -> DrainRate {
        DrainRate {
            base: None,
            per_second: None,
        }
    }

    /// Learns that `completed_total` exchanges had been completed at `now`.
    ///
    /// The first call, and the first one after [`DrainRate::pass_over`], only sets the base. A total below the one
    /// before is a new beginning.
    pub fn observe(&mut self, now: Stamp, completed_total: u64) {
        let Some((then, total_then)) = self.base else {
            self.base = Some((now, completed_total));
            return;
        };
        let Some(completed) = completed_total.checked_sub(total_then) else {
            self.base = Some((now, completed_total));
            return;
        };
        let passed = now.since(then);
        // A pool of slow handlers that has just begun does not stand still.
        let has_begun = completed == 0 && self.per_second.is_none();
        if passed < FOLD_AFTER || (has_begun && passed < MEMORY) {
            return;
        }
        let rate = completed as f64 / passed.as_secs_f64();
        self.per_second = Some(match self.per_second {
            None => rate,
            Some(old) => old + (rate - old) * weight(passed),
        });
        self.base = Some((now, completed_total));
    }

    /// Nobody waits: the time from the last observation to the next one says nothing.
    pub fn pass_over(&mut self) {
        self.base = None;
    }

    /// Completions per second; `None` until two observations lie 100 ms apart, or a second if nothing was
    /// completed.
    pub fn per_second(&self) -> Option<f64> {
        self.per_second
    }
}

/// The weight of a mean over `passed`, so that the average is the same however often it is fed.
fn weight(passed: Nanos) -> f64 {
    1.0 - (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fed(observations_ms: &[(u64, u64)]) -> DrainRate {
        let mut drain = DrainRate::new();
        for &(ms, total) in observations_ms {
            drain.observe(Stamp(1).plus(Nanos::from_ms(ms)), total);
        }
        drain
    }

    fn check(observations_ms: &[(u64, u64)], expect: Option<f64>) {
        let found = fed(observations_ms).per_second();
        let close = match (found, expect) {
            (Some(found), Some(expect)) => (found - expect).abs() <= 1e-3 * expect.max(1.0),
            (found, expect) => found == expect,
        };
        assert!(close, "{observations_ms:?} gave {found:?}, not {expect:?}");
    }

    #[test]
    fn averages_over_about_a_second() {
        check(&[], None);
        check(&[(0, 1_000)], None);
        check(&[(0, 1_000), (99, 2_000)], None);
        check(&[(0, 1_000), (100, 1_010)], Some(100.0));
        check(&[(0, 0), (50, 500), (200, 1_000)], Some(5_000.0));
        // One second at zero leaves 1/e of it.
        check(&[(0, 0), (1_000, 100), (2_000, 100)], Some(36.788));
        check(
            &[(0, 0), (1_000, 100), (1_500, 100), (2_000, 100)],
            Some(36.788),
        );
        check(&[(0, 0), (1_000, 100), (60_000, 100)], Some(0.0));
    }

    #[test]
    fn a_rate_without_completions_takes_a_second() {
        check(&[(0, 0), (900, 0)], None);
        check(&[(0, 0), (900, 0), (950, 19)], Some(20.0));
        check(&[(0, 0), (900, 0), (1_000, 0)], Some(0.0));
    }

    #[test]
    fn time_that_is_passed_over_does_not_count() {
        let mut drain = fed(&[(0, 0), (100, 10)]);
        let at = |ms| Stamp(1).plus(Nanos::from_ms(ms));
        drain.pass_over();
        drain.observe(at(60_000), 11);
        assert_eq!(drain.per_second(), Some(100.0));
        drain.observe(at(60_100), 21);
        let found = drain.per_second().unwrap();
        assert!((found - 100.0).abs() < 1e-6, "{found}");
    }

    #[test]
    fn starts_anew_when_the_total_goes_back() {
        check(
            &[(0, 0), (1_000, 100), (2_000, 5), (3_000, 105)],
            Some(100.0),
        );
    }

    #[test]
    fn ignores_a_clock_that_goes_back() {
        check(&[(1_000, 0), (500, 100), (2_000, 100)], Some(100.0));
    }

    proptest! {
        #[test]
        fn a_steady_pool_has_a_steady_rate(
            steps_ms in prop::collection::vec(1u64..3_000, 1..100),
            per_ms in 0u64..1_000,
        ) {
            let mut drain = DrainRate::new();
            let mut ms = 0;
            drain.observe(Stamp(1), 0);
            for step_ms in steps_ms {
                ms += step_ms;
                drain.observe(Stamp(1).plus(Nanos::from_ms(ms)), ms * per_ms);
            }
            if let Some(rate) = drain.per_second() {
                let expect = (per_ms * 1_000) as f64;
                prop_assert!((rate - expect).abs() <= 1e-6 * expect.max(1.0));
            }
        }
    }
}
