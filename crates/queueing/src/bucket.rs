//! A bandwidth limit: a token bucket that gives out reservations.
//!
//! Takes bytes that somebody wants to send, gives the time from which it may. It must not read a clock
//! or wait: whoever reserves waits by itself.
//!
//! This is virtual scheduling (the generic cell rate algorithm, ITU-T I.371 annex A): the bucket knows
//! only when all that was reserved will have gone at the rate, and that time may be ahead of the
//! present by as much as the burst is worth. What somebody has reserved nobody takes from him, so several
//! senders that share a bucket are served in the order of their reservations, and none starves.

use telemetry::{Nanos, Stamp};

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Bytes of a burst at least: a page's worth of small replies goes unhindered.
const BURST_BYTES_MIN: u64 = 16 << 10;
/// Bytes of a burst at most, while that is not less than timers need.
const BURST_BYTES_MAX: u64 = 1 << 20;
/// A burst is this part of a second of the rate.
const BURSTS_PER_SEC: u64 = 4;
/// A fast bucket holds at least this part of a second: a sender that its timer woke late catches up
/// out of the burst, and less than that would make a limit of 1 GB/s one of 500 MB/s.
const BURSTS_PER_SEC_MAX: u64 = 50;
/// Reservations a second of a sender that is alone.
const CHUNKS_PER_SEC: u64 = 20;
/// Reservations that a full bucket holds at least: what is beyond one of them is the slack for late
/// wake-ups.
const CHUNKS_PER_BURST: u64 = 4;
/// What is there at once goes in turns of at least this: a limit of 100 bytes a second is no reason to
/// send its burst in 3,000 packets.
const TURN_BYTES_MIN: u64 = 4 << 10;

/// A bandwidth limit, full at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    bytes_per_sec: u64,
    burst_bytes: u64,
    /// When all that was reserved will have gone at the rate.
    empty_at: Stamp,
    /// What `empty_at` has beyond its whole nanoseconds, in parts of `1 / bytes_per_sec` ns.
    parts: u64,
}

impl Bucket {
    /// A full bucket. A rate of 0 is taken as 1.
    pub const fn new(bytes_per_sec: u64, burst_bytes: u64) -> Bucket {
        Bucket {
            bytes_per_sec: if bytes_per_sec == 0 { 1 } else { bytes_per_sec },
            burst_bytes,
            empty_at: Stamp::ZERO,
            parts: 0,
        }
    }

    /// A burst that suits a rate: a quarter of a second, at least 16 KB and at most 1 MB, or 20 ms
    /// where that is more.
    pub fn burst_for(bytes_per_sec: u64) -> u64 {
        (bytes_per_sec / BURSTS_PER_SEC)
            .clamp(BURST_BYTES_MIN, BURST_BYTES_MAX)
            .max(bytes_per_sec / BURSTS_PER_SEC_MAX)
    }

    /// Bytes to reserve at a time, at least 1, so that a turn lasts no longer than 50 ms at the rate
    /// and a quarter of [`Bucket::burst_for`] at most.
    pub fn chunk_for(bytes_per_sec: u64) -> u64 {
        (bytes_per_sec / CHUNKS_PER_SEC)
            .min(Bucket::burst_for(bytes_per_sec) / CHUNKS_PER_BURST)
            .max(1)
    }

    /// Reserves `bytes`; they may be sent, all of them, from the stamp on that it gives, which is `now`
    /// when they may be sent at once, and [`Stamp::NEVER`] beyond the clock.
    ///
    /// Over any span at most `rate * span + burst` bytes are granted, where the span is known to the
    /// nanosecond that stamps are rounded to. A single reservation of more than
    /// the burst waits for what is beyond it and then goes as a whole, so keep to [`Bucket::chunk_for`].
    pub fn reserve(&mut self, bytes: u64, now: Stamp) -> Stamp {
        // A bucket that has been full for a while does not save up: no burst is larger than the bucket.
        if self.empty_at < now {
            (self.empty_at, self.parts) = (now, 0);
        }
        let rate = u128::from(self.bytes_per_sec);
        let worth = u128::from(bytes) * NANOS_PER_SEC + u128::from(self.parts);
        let nanos = u64::try_from(worth / rate).unwrap_or(u64::MAX);
        self.empty_at = self.empty_at.plus(Nanos(nanos));
        self.parts =
            u64::try_from(worth % rate).expect("a remainder of what fits 64 bits fits them");
        assert!(
            self.parts < self.bytes_per_sec,
            "parts are less than a nanosecond's worth"
        );
        self.burst_ahead_of_empty().max(now)
    }

    /// Reserves one turn of somebody who has `wanted` bytes to send: gives from when on, as `reserve`
    /// does, and how many of them, at least 1.
    ///
    /// A turn is no more than [`Bucket::chunk_for`] bytes, so that whoever shares the bucket waits no
    /// longer than that for each that is ahead; only out of what may go at once it is up to 4 KB.
    pub fn turn(&mut self, wanted: u64, now: Stamp) -> (Stamp, u64) {
        let chunk = Bucket::chunk_for(self.bytes_per_sec).min(self.burst_bytes);
        let most = self.at_once(now).min(TURN_BYTES_MIN).max(chunk);
        let bytes = wanted.min(most).max(1);
        (self.reserve(bytes, now), bytes)
    }

    /// Gives back a reservation of `bytes` that will not be used: whoever reserves from now on waits so much
    /// less. It is for those who leave while they wait, or whoever comes and leaves would make the others wait
    /// ever longer. Over a span in which that happens the others may get so much more than the rate.
    pub fn give_back(&mut self, bytes: u64) {
        let worth = u128::from(bytes) * NANOS_PER_SEC / u128::from(self.bytes_per_sec);
        let nanos = u64::try_from(worth).unwrap_or(u64::MAX);
        self.empty_at = Stamp(self.empty_at.0.saturating_sub(nanos));
    }

    /// Bytes that may be sent at `now` and are nobody's yet.
    pub fn at_once(&self, now: Stamp) -> u64 {
        let burst = u128::from(self.burst_bytes) * NANOS_PER_SEC;
        if self.empty_at < now {
            return self.burst_bytes;
        }
        let ahead = u128::from(self.empty_at.since(now).0) * u128::from(self.bytes_per_sec);
        let left = burst
            .saturating_sub(ahead)
            .saturating_sub(self.parts.into());
        u64::try_from(left / NANOS_PER_SEC).expect("no more than the burst is left of it")
    }

    /// The first whole nanosecond at which what was reserved is within the burst.
    fn burst_ahead_of_empty(&self) -> Stamp {
        if self.empty_at == Stamp::NEVER {
            return Stamp::NEVER;
        }
        let rate = u128::from(self.bytes_per_sec);
        let burst = u128::from(self.burst_bytes) * NANOS_PER_SEC;
        match burst.checked_sub(u128::from(self.parts)) {
            Some(ahead) => {
                let ahead = u64::try_from(ahead / rate).unwrap_or(u64::MAX);
                Stamp(self.empty_at.0.saturating_sub(ahead))
            }
            // Less than a nanosecond is missing.
            None => self.empty_at.plus(Nanos(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Stamp = Stamp(1_000_000_000);

    fn at_ms(ms: u64) -> Stamp {
        START.plus(Nanos::from_ms(ms))
    }

    /// Reservations as (at ms, bytes, granted at ms) of a bucket of 1,000 B/s with a burst of 500.
    fn check(reservations: &[(u64, u64, u64)]) {
        let mut bucket = Bucket::new(1_000, 500);
        for &(now_ms, bytes, expect_ms) in reservations {
            let found = bucket.reserve(bytes, at_ms(now_ms));
            assert_eq!(found, at_ms(expect_ms), "{bytes} at {now_ms}: {bucket:?}");
        }
    }

    #[test]
    fn grants_the_burst_at_once_and_the_rest_at_the_rate() {
        check(&[(0, 500, 0), (0, 100, 100), (0, 100, 200)]);
        check(&[(0, 200, 0), (0, 200, 0), (0, 200, 100)]);
        check(&[(0, 0, 0), (0, 500, 0), (0, 0, 0), (0, 1, 1)]);
        // More than the burst waits for what is beyond it.
        check(&[(0, 700, 200), (200, 100, 300)]);
    }

    #[test]
    fn fills_up_to_the_burst_and_no_further() {
        check(&[(0, 500, 0), (100, 100, 100), (100, 1, 101)]);
        check(&[(0, 500, 0), (500, 500, 500), (500, 1, 501)]);
        check(&[(0, 500, 0), (9_000, 500, 9_000), (9_000, 1, 9_001)]);
    }

    #[test]
    fn a_fraction_does_not_outlast_a_rest() {
        let mut bucket = Bucket::new(3, 0);
        assert_eq!(bucket.reserve(1, START), START.plus(Nanos(333_333_334)));
        assert_eq!(bucket.reserve(3, at_ms(1_000)), at_ms(2_000));
    }

    #[test]
    fn serves_in_the_order_of_reservations() {
        check(&[(0, 500, 0), (0, 300, 300), (10, 300, 600), (20, 1, 601)]);
        check(&[(0, 500, 0), (0, 300, 300), (299, 1, 301)]);
    }

    #[test]
    fn what_is_given_back_is_not_waited_for() {
        let mut bucket = Bucket::new(1_000, 500);
        assert_eq!(bucket.reserve(500, START), START);
        assert_eq!(bucket.reserve(300, START), at_ms(300));
        assert_eq!(bucket.reserve(100, START), at_ms(400));
        bucket.give_back(300);
        assert_eq!(bucket.reserve(100, START), at_ms(200));
        // No more comes of it than a full bucket.
        bucket.give_back(u64::MAX);
        assert_eq!(bucket.reserve(500, START), START);
        assert_eq!(bucket.reserve(1, START), at_ms(1));
    }

    #[test]
    fn a_turn_is_a_chunk_or_what_is_there_at_once() {
        // 50 bytes a chunk.
        let mut bucket = Bucket::new(1_000, 10_000);
        let mut check = |now_ms, wanted, expect_ms, expect_bytes| {
            let found = bucket.turn(wanted, at_ms(now_ms));
            assert_eq!(found, (at_ms(expect_ms), expect_bytes), "{bucket:?}");
        };
        check(0, u64::MAX, 0, 4 << 10);
        check(0, 7, 0, 7);
        check(0, u64::MAX, 0, 4 << 10);
        check(0, u64::MAX, 0, 1_801);
        check(0, u64::MAX, 50, 50);
        check(0, 0, 51, 1);
        check(0, 30, 81, 30);
    }

    #[test]
    fn burst_and_chunk_suit_the_rate() {
        let check = |rate, burst, chunk| {
            assert_eq!(Bucket::burst_for(rate), burst, "{rate} B/s");
            assert_eq!(Bucket::chunk_for(rate), chunk, "{rate} B/s");
        };
        check(0, 16 << 10, 1);
        check(1, 16 << 10, 1);
        check(1_000, 16 << 10, 50);
        check(400_000, 100_000, 20_000);
        check(10_000_000, 1 << 20, 256 << 10);
        check(1_000_000_000, 20_000_000, 5_000_000);
        check(u64::MAX, u64::MAX / 50, u64::MAX / 200);
    }

    #[test]
    fn does_not_drift_over_hours() {
        // A third of a nanosecond and a bit each, for five hours.
        let mut bucket = Bucket::new(2_999_999_999, 0);
        for _ in 0..10_000_000u64 {
            bucket.reserve(5_400, START);
        }
        let worth = 10_000_000 * 5_400 * NANOS_PER_SEC;
        let expect = START.plus(Nanos(worth.div_ceil(2_999_999_999) as u64));
        assert_eq!(bucket.reserve(0, START), expect);
    }

    #[test]
    fn a_rate_of_nothing_is_one() {
        let mut bucket = Bucket::new(0, 0);
        assert_eq!(bucket.reserve(2, START), at_ms(2_000));
    }

    fn rates() -> impl Strategy<Value = u64> {
        (0u32..37, 1u64..16).prop_map(|(shift, rate)| rate << shift)
    }

    /// The rule in parts of `1 / rate` ns, which hide nothing.
    struct ExactBucket {
        rate: u128,
        burst: u128,
        empty_at: u128,
    }

    impl ExactBucket {
        fn reserve(&mut self, bytes: u64, now: Stamp) -> Stamp {
            let now = u128::from(now.0);
            self.empty_at = self.empty_at.max(now * self.rate) + u128::from(bytes) * NANOS_PER_SEC;
            let within = self.empty_at.saturating_sub(self.burst * NANOS_PER_SEC);
            Stamp(within.div_ceil(self.rate).max(now) as u64)
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_rule(
            rate in rates(),
            burst in 0u64..1 << 30,
            steps in prop::collection::vec((0u64..1 << 20, 0u64..10_000_000_000), 1..100),
        ) {
            let mut bucket = Bucket::new(rate, burst);
            let mut naive = ExactBucket { rate: rate.into(), burst: burst.into(), empty_at: 0 };
            let mut now = START;
            for (bytes, passed) in steps {
                now = now.plus(Nanos(passed));
                prop_assert_eq!(bucket.reserve(bytes, now), naive.reserve(bytes, now));
            }
        }

        #[test]
        fn no_span_gets_more_than_rate_and_burst(
            rate in rates(),
            burst in 1u64..1 << 24,
            // Pauses about as long as the burst lasts, so that it is both used up and filled.
            steps in prop::collection::vec((any::<u64>(), 0u64..200), 1..80),
        ) {
            let mut bucket = Bucket::new(rate, burst);
            let mut now = START;
            let mut grants: Vec<(u128, u128)> = Vec::new();
            for (bytes, percent) in steps {
                let fill = u128::from(burst) * NANOS_PER_SEC / u128::from(rate);
                now = now.plus(Nanos((fill * u128::from(percent) / 1_000) as u64));
                let bytes = bytes % burst + 1;
                grants.push((bucket.reserve(bytes, now).0.into(), bytes.into()));
            }
            for first in 0..grants.len() {
                let mut sum = 0;
                for &(at, bytes) in &grants[first..] {
                    sum += bytes;
                    // The first stamp may be rounded up, and the last one not.
                    let most = u128::from(rate) * (at + 1 - grants[first].0)
                        + u128::from(burst) * NANOS_PER_SEC;
                    prop_assert!(sum * NANOS_PER_SEC <= most, "{:?}", &grants[first..]);
                }
            }
        }

        #[test]
        fn whoever_is_always_ready_gets_the_rate(
            rate in rates(),
            late_us in prop::collection::vec(0u64..15_000, 1..50),
        ) {
            let mut bucket = Bucket::new(rate, Bucket::burst_for(rate));
            let mut now = START;
            let mut sent = 0u128;
            for late_us in late_us.iter().cycle().take(5_000) {
                let (from, bytes) = bucket.turn(u64::MAX, now);
                sent += u128::from(bytes);
                // Only who has to wait is woken late.
                if from > now {
                    now = from.plus(Nanos::from_us(*late_us));
                }
            }
            let due = u128::from(rate) * u128::from(now.since(START).0) / NANOS_PER_SEC;
            prop_assert!(sent * 100 >= due * 99, "{sent} of {due}");
        }

        #[test]
        fn senders_that_share_get_the_same(rate in 1_000u64..1 << 32, senders in 2usize..20) {
            let mut bucket = Bucket::new(rate, Bucket::burst_for(rate));
            let mut next = vec![START; senders];
            let mut sent = vec![0u64; senders];
            for _ in 0..senders * 100 {
                let who = (0..senders).min_by_key(|&who| next[who]).expect("there are two");
                let (from, bytes) = bucket.turn(u64::MAX, next[who]);
                next[who] = from.plus(Nanos(1));
                sent[who] += bytes;
            }
            let most = *sent.iter().max().expect("there are two");
            let least = *sent.iter().min().expect("there are two");
            let turn = Bucket::chunk_for(rate).max(TURN_BYTES_MIN);
            prop_assert!(most - least <= turn, "{sent:?}");
        }

        #[test]
        fn what_is_there_at_once_goes_at_once_and_a_byte_more_does_not(
            rate in rates(),
            burst in 1u64..1 << 24,
            steps in prop::collection::vec((0u64..1 << 20, 0u64..10_000_000_000), 1..20),
        ) {
            let mut bucket = Bucket::new(rate, burst);
            let mut now = START;
            for (bytes, passed) in steps {
                now = now.plus(Nanos(passed));
                bucket.reserve(bytes, now);
                let at_once = bucket.at_once(now);
                let (mut fitting, mut beyond) = (bucket, bucket);
                prop_assert!(at_once == 0 || fitting.reserve(at_once, now) == now);
                prop_assert!(beyond.reserve(at_once + 1, now) > now);
            }
        }

        #[test]
        fn no_values_break_it(
            rate: u64,
            burst: u64,
            steps in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50),
        ) {
            let mut bucket = Bucket::new(rate, burst);
            for (bytes, now) in steps {
                let now = Stamp(now);
                prop_assert!(bucket.reserve(bytes, now) >= now);
                let (from, turn) = bucket.turn(bytes, now);
                prop_assert!(from >= now && (1..=bytes.max(1)).contains(&turn));
            }
        }
    }
}
