//! A limit of how often requests of one client may come: a token bucket, as arithmetic.
//!
//! Takes when the bucket will be full and the present time, in microseconds of any clock; gives when it will be full with
//! one token less, or the time until there is one. It must not read a clock, keep a bucket or know whose it is.
//!
//! A bucket is one number (virtual scheduling, ITU-T I.371 annex A): the time at which it will be full again.

use telemetry::Nanos;

/// A rate with its burst.
#[derive(Clone, Copy, Debug)]
pub struct RequestRate {
    /// Time in which one token comes, at least 1 us.
    interval_us: u64,
    /// What a whole bucket takes to fill, but for one token.
    slack_us: u64,
}

impl RequestRate {
    /// One token in each `interval`, `burst` at once. An interval below 1 us and a burst of 0 are taken as 1.
    pub fn new(interval: Nanos, burst: u32) -> Self {
        let interval_us = (interval.0.saturating_add(500) / 1_000).max(1);
        Self {
            interval_us,
            slack_us: interval_us.saturating_mul(u64::from(burst.saturating_sub(1))),
        }
    }

    /// Takes a token of a bucket that is full at `full_at_us`; in the past: it is. Gives when it will be full then.
    ///
    /// # Errors
    /// The time until there will be a token; nothing is taken then, so that who asks again and again is served as often as
    /// who waits.
    pub fn take(&self, full_at_us: u64, now_us: u64) -> Result<u64, Nanos> {
        let ahead = full_at_us.saturating_sub(now_us);
        // No bucket of this rate takes so long: it was another one's.
        let ahead = match ahead > self.slack_us.saturating_add(self.interval_us) {
            true => 0,
            false => ahead,
        };
        match ahead.saturating_sub(self.slack_us) {
            0 => Ok(now_us
                .saturating_add(ahead)
                .saturating_add(self.interval_us)),
            wait_us => Err(Nanos::from_us(wait_us)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START_US: u64 = 1_000_000_000;

    /// Which of some requests of one client, by their time, get a token; and what the others have to wait.
    fn check(interval_ms: u64, burst: u32, times_ms: &[u64], expect: &[u64]) {
        let rate = RequestRate::new(Nanos::from_ms(interval_ms), burst);
        let mut full_at_us = 0;
        let found: Vec<u64> = times_ms
            .iter()
            .map(|ms| match rate.take(full_at_us, START_US + ms * 1_000) {
                Ok(full) => {
                    full_at_us = full;
                    0
                }
                Err(wait) => wait.0 / 1_000_000,
            })
            .collect();
        assert_eq!(found, expect, "{interval_ms} {burst} {times_ms:?}");
    }

    #[test]
    fn gives_a_burst_and_then_a_token_in_each_interval() {
        check(100, 1, &[0, 0, 50, 99, 100, 150], &[0, 100, 50, 1, 0, 50]);
        check(
            100,
            3,
            &[0, 0, 0, 0, 100, 100, 200],
            &[0, 0, 0, 100, 0, 100, 0],
        );
        // A rest fills the bucket, and no more than that.
        check(100, 2, &[0, 0, 10_000, 10_000, 10_000], &[0, 0, 0, 0, 100]);
        // An attempt in vain costs nothing.
        check(100, 1, &[0, 10, 20, 30, 100], &[0, 90, 80, 70, 0]);
        // Nothing at all is taken as one.
        check(0, 0, &[0, 1], &[0, 0]);
    }

    #[test]
    fn a_bucket_of_another_rate_is_taken_for_full() {
        let rate = RequestRate::new(Nanos::from_ms(100), 2);
        assert_eq!(
            rate.take(START_US + 3_600_000_000, START_US),
            Ok(START_US + 100_000)
        );
    }

    proptest! {
        /// Over any span a client gets at most the burst and what comes in that span.
        #[test]
        fn nobody_gets_more_than_the_share(
            interval_ms in 1_u64..200,
            burst in 1_u32..10,
            steps in proptest::collection::vec(0_u64..100, 1..300),
        ) {
            let rate = RequestRate::new(Nanos::from_ms(interval_ms), burst);
            let (mut now_ms, mut full_at_us) = (0, 0);
            let mut times: Vec<u64> = Vec::new();
            for step in steps {
                now_ms += step;
                match rate.take(full_at_us, START_US + now_ms * 1_000) {
                    Ok(full) => {
                        full_at_us = full;
                        times.push(now_ms);
                    }
                    Err(wait) => {
                        // None is refused without need: some were served while the bucket could have filled.
                        let since = now_ms.saturating_sub(interval_ms * u64::from(burst));
                        let recent = times.iter().filter(|time| **time >= since).count();
                        prop_assert!(recent > 0 && wait.0 <= interval_ms * 1_000_000);
                    }
                }
            }
            for (first, from) in times.iter().enumerate() {
                for (last, to) in times.iter().enumerate().skip(first) {
                    let most = u64::from(burst) + (to - from) / interval_ms;
                    prop_assert!((last - first + 1) as u64 <= most);
                }
            }
        }
    }
}
