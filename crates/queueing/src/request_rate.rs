//! A limit of how often requests with one key may come: a token bucket for each of the latest keys.
//!
//! Takes a key and the present time, gives a token or the time until there is one. It must not read a clock or know
//! what a key stands for.
//!
//! Each bucket is one stamp, as in `bucket` (virtual scheduling, ITU-T I.371 annex A): when it will be full again. Keys
//! are chosen by clients, so their number has a bound: each has a few places that it may be in, and a new one takes
//! that of the bucket that is full first. Whoever floods the table with keys so gives the oldest of them their burst
//! again, and nothing else.

use telemetry::{Nanos, Stamp};

/// Places that a key may be in.
const WAYS: usize = 8;

/// Token buckets of the keys that came last, all alike, and full at first.
#[derive(Clone, Debug)]
pub struct RequestRate {
    /// Time in which one token comes, at least 1 ns.
    interval: Nanos,
    /// What a whole bucket takes to fill, but for one token.
    slack: Nanos,
    sets: Vec<[KeyBucket; WAYS]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct KeyBucket {
    key: u64,
    /// Full again then; in the past: it is.
    full_at: Stamp,
}

impl RequestRate {
    /// One token in each `interval`, `burst` at once, for about `keys_max` keys. An interval and a burst of 0 are taken
    /// as 1.
    pub fn new(interval: Nanos, burst: u32, keys_max: usize) -> Self {
        let interval = Nanos(interval.0.max(1));
        let slack = interval
            .0
            .saturating_mul(u64::from(burst.saturating_sub(1)));
        Self {
            interval,
            slack: Nanos(slack),
            sets: vec![Default::default(); keys_max.div_ceil(WAYS).max(1)],
        }
    }

    /// Takes a token of the key, which is a hash that clients cannot foresee.
    ///
    /// # Errors
    /// The time until there will be one; nothing is taken then, so that who asks again and again is served as often as
    /// who waits.
    pub fn take(&mut self, key: u64, now: Stamp) -> Result<(), Nanos> {
        let sets_len = self.sets.len() as u64;
        let set = &mut self.sets[(key % sets_len) as usize];
        let found = set.iter().position(|bucket| bucket.key == key);
        let index = found.unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|way| set[*way].full_at);
            oldest.expect("there are some places")
        });
        let full_at = match found {
            Some(index) => set[index].full_at.max(now),
            None => now,
        };
        let wait = full_at.since(now).0.saturating_sub(self.slack.0);
        if wait > 0 {
            return Err(Nanos(wait));
        }
        set[index] = KeyBucket {
            key,
            full_at: full_at.plus(self.interval),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(ms: u64) -> Stamp {
        // A clock has passed zero long before a request comes.
        Stamp(1_000 * SECOND + ms * 1_000_000)
    }

    /// Which of some requests of one key, by their time, get a token; and what the others have to wait.
    fn check(interval_ms: u64, burst: u32, times_ms: &[u64], expect: &[u64]) {
        let mut rate = RequestRate::new(Nanos::from_ms(interval_ms), burst, 64);
        let found: Vec<u64> = times_ms
            .iter()
            .map(|ms| rate.take(7, at(*ms)).err().unwrap_or_default().0 / 1_000_000)
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
    fn keys_do_not_share_tokens() {
        let mut rate = RequestRate::new(Nanos::from_secs(1), 1, 64);
        for key in 0..64 {
            assert_eq!(rate.take(key, at(0)), Ok(()), "{key}");
        }
        for key in 0..64 {
            assert!(rate.take(key, at(500)).is_err(), "{key}");
        }
    }

    #[test]
    fn more_keys_than_places_take_those_that_are_full_first() {
        let mut rate = RequestRate::new(Nanos::from_secs(1), 1, 8);
        // The only set holds eight; the first of them is the oldest.
        for key in 0..9 {
            assert_eq!(rate.take(key, at(key * 10)), Ok(()));
        }
        assert_eq!(rate.take(0, at(100)), Ok(()), "it was forgotten");
        assert!(rate.take(8, at(100)).is_err(), "it was not");
        assert_eq!(rate.sets.len(), 1);
    }

    proptest! {
        /// Over any span a key gets at most its burst and what comes in that span.
        #[test]
        fn no_key_gets_more_than_its_share(
            interval_ms in 1_u64..200,
            burst in 1_u32..10,
            steps in proptest::collection::vec((0_u64..100, 0_u64..3), 1..300),
        ) {
            let mut rate = RequestRate::new(Nanos::from_ms(interval_ms), burst, 64);
            let mut now_ms = 0;
            let mut given: [Vec<u64>; 3] = Default::default();
            for (step, key) in steps {
                now_ms += step;
                let times = &mut given[key as usize];
                match rate.take(key, at(now_ms)) {
                    Ok(()) => times.push(now_ms),
                    Err(wait) => {
                        // None is refused without need: some were served while the bucket could have filled.
                        let since = now_ms.saturating_sub(interval_ms * u64::from(burst));
                        let recent = times.iter().filter(|time| **time >= since).count();
                        prop_assert!(recent > 0 && wait.0 <= interval_ms * 1_000_000);
                    }
                }
            }
            for times in given {
                for (first, from) in times.iter().enumerate() {
                    for (last, to) in times.iter().enumerate().skip(first) {
                        let most = u64::from(burst) + (to - from) / interval_ms;
                        prop_assert!((last - first + 1) as u64 <= most);
                    }
                }
            }
        }
    }
}
