//! Durations as a distribution: recorded from any thread without a lock, read as a snapshot.
//!
//! Log-linear buckets: 32 for each power of two of nanoseconds, so that the middle of a bucket is at
//! most 1/64 = 1.56 % from any value in it; below 64 ns every value has its own bucket. Values over
//! 73 minutes (2^42 ns) share the last bucket. 9,752 bytes.
//!
//! A distribution is plain atomics in a fixed order, and all of them zero is the empty one: it can lie in
//! memory that processes share, and be read there after the process that recorded has died.
//!
//! Why not the `histogram` crate, whose `AtomicHistogram` is the same idea: it keeps neither sum nor
//! minimum nor maximum, so the mean would carry the buckets' error, and it answers with a bucket's
//! end, which asks for twice the buckets (18.5 KiB) for the same error. hdrhistogram has no
//! concurrent form without a lock or a channel. This file must not know what is measured.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Nanos, Spans};

/// Buckets for each power of two, as a power of two.
const GROUPING: u32 = 5;
/// Values from 2^42 ns share the last bucket.
const VALUE_BITS: u32 = 42;
const BUCKETS_LEN: usize = ((VALUE_BITS - GROUPING + 1) as usize) << GROUPING;

/// A distribution of durations that many threads record into.
///
/// Relaxed counters: nothing is lost, but a snapshot that is taken while others record may have a
/// sum that is a few records ahead of its counts.
#[derive(Debug)]
#[repr(C)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS_LEN],
    sum: AtomicU64,
    /// How far the shortest lies below the greatest number: zero while nothing was recorded.
    min_from_top: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    /// An empty distribution. It is large: what keeps one puts it into a box, or into memory of its own.
    pub const fn new() -> Histogram {
        Histogram {
            counts: [const { AtomicU64::new(0) }; BUCKETS_LEN],
            sum: AtomicU64::new(0),
            min_from_top: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    /// Counts one duration: two atomic additions of 2.5 ns each when uncontended, the second of them
    /// for an exact sum, and a store when it is an extreme.
    #[inline]
    pub fn record(&self, span: Nanos) {
        self.counts[bucket_of(span.0)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(span.0, Ordering::Relaxed);
        // A plain load first: `fetch_max` is a compare-and-swap loop on x86, extremes are rare.
        if span.0 < u64::MAX - self.min_from_top.load(Ordering::Relaxed) {
            let from_top = u64::MAX - span.0;
            self.min_from_top.fetch_max(from_top, Ordering::Relaxed);
        }
        if span.0 > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(span.0, Ordering::Relaxed);
        }
    }

    /// What has been recorded until now. Whoever records may be within a record, or have died there.
    pub fn snapshot(&self) -> Snapshot {
        let counts = self.counts.iter().enumerate();
        Snapshot::of(
            counts.map(|(bucket, count)| (bucket, count.load(Ordering::Relaxed))),
            Nanos(self.sum.load(Ordering::Relaxed)),
            Nanos(u64::MAX - self.min_from_top.load(Ordering::Relaxed)),
            Nanos(self.max.load(Ordering::Relaxed)),
        )
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

/// A distribution at rest. Quantiles are within 1.6 % (up to 73 minutes), all else is exact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    counts: Box<[u64; BUCKETS_LEN]>,
    len: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Snapshot {
    /// A distribution from the number and the count of each bucket, as [`Snapshot::counts`] gives them, and
    /// its exact figures. `None`: there is no such bucket.
    pub fn from_counts(
        counts: &[(u16, u64)],
        sum: Nanos,
        min: Nanos,
        max: Nanos,
    ) -> Option<Snapshot> {
        let counts = counts.iter().map(|&(bucket, count)| (bucket.into(), count));
        let mut known = counts.clone();
        known
            .all(|(bucket, _): (usize, u64)| bucket < BUCKETS_LEN)
            .then(|| Snapshot::of(counts, sum, min, max))
    }

    /// Distributions come from memory that others write, so nothing here may fail on any number.
    fn of(
        found: impl Iterator<Item = (usize, u64)>,
        sum: Nanos,
        min: Nanos,
        max: Nanos,
    ) -> Snapshot {
        let mut counts = boxed();
        let mut len = 0_u64;
        for (bucket, count) in found {
            counts[bucket] = counts[bucket].saturating_add(count);
            len = len.saturating_add(count);
        }
        if len == 0 {
            return Snapshot::default();
        }
        Snapshot {
            counts,
            len,
            sum: sum.0,
            // A record is counted before its extremes are known.
            min: min.0.min(max.0),
            max: max.0,
        }
    }

    /// The numbers of the buckets that are not empty, and their counts.
    pub fn counts(&self) -> impl Iterator<Item = (u16, u64)> {
        let counts = (0_u16..).zip(self.counts.iter());
        counts
            .filter(|&(_, &count)| count > 0)
            .map(|(bucket, &count)| (bucket, count))
    }

    /// The number of durations.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All durations together.
    pub fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }

    /// The shortest; zero when empty.
    pub fn min(&self) -> Nanos {
        if self.is_empty() {
            Nanos::ZERO
        } else {
            Nanos(self.min)
        }
    }

    /// The longest; zero when empty.
    pub fn max(&self) -> Nanos {
        Nanos(self.max)
    }

    /// The arithmetic mean, truncated; zero when empty.
    pub fn mean(&self) -> Nanos {
        Nanos(self.sum.checked_div(self.len).unwrap_or(0))
    }

    /// The duration that a share `q` of all does not exceed: the one of rank `ceil(q * len)`.
    ///
    /// `q` is clamped to 0..=1; 0 gives the minimum, 1 the maximum; zero when empty.
    pub fn quantile(&self, q: f64) -> Nanos {
        let rank = (q.clamp(0.0, 1.0) * self.len as f64).ceil() as u64;
        if rank <= 1 {
            return self.min();
        }
        if rank >= self.len {
            return self.max();
        }
        let mut passed = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            passed = u64::saturating_add(passed, count);
            if passed >= rank {
                return Nanos(middle_of(bucket).min(self.max).max(self.min));
            }
        }
        self.max()
    }

    /// Counts one duration, for a distribution that one thread fills: no atomic operation.
    #[inline]
    pub fn record(&mut self, span: Nanos) {
        self.counts[bucket_of(span.0)] += 1;
        self.len += 1;
        self.sum = self.sum.wrapping_add(span.0);
        self.min = self.min.min(span.0);
        self.max = self.max.max(span.0);
    }

    /// The buckets that are not empty: the middle of each, and its count; the shortest first.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counts = self.counts.iter().enumerate();
        counts
            .filter(|&(_, &count)| count > 0)
            .map(|(bucket, &count)| (Nanos(middle_of(bucket)), count))
    }

    /// Adds another distribution to this one. Merge these, never their quantiles.
    pub fn merge(&mut self, other: &Snapshot) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count = count.saturating_add(*more);
        }
        self.len = self.len.saturating_add(other.len);
        self.sum = self.sum.wrapping_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot {
            counts: boxed(),
            len: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

/// One distribution for each phase: 68 KB.
#[derive(Debug, Default)]
#[repr(C)]
pub struct PhaseHistograms {
    /// From arrival to the queue.
    pub receive: Histogram,
    /// In the queue.
    pub queue: Histogram,
    /// In the handler.
    pub run: Histogram,
    /// Until the last byte was taken.
    pub send: Histogram,
    /// All of it.
    pub total: Histogram,
    /// The part of the run spent waiting for the interpreter.
    pub gil: Histogram,
    /// The part of the run that was processor time.
    pub cpu: Histogram,
}

impl PhaseHistograms {
    /// Counts one exchange.
    pub fn record(&self, spans: &Spans) {
        self.receive.record(spans.receive);
        self.queue.record(spans.queue);
        self.run.record(spans.run);
        self.send.record(spans.send);
        self.total.record(spans.total);
        self.gil.record(spans.gil);
        self.cpu.record(spans.cpu);
    }
}

/// On the heap from the start: an array of 9,728 bytes does not belong on a stack.
fn boxed() -> Box<[u64; BUCKETS_LEN]> {
    let counts = vec![0; BUCKETS_LEN];
    counts.try_into().expect("it was made with this length")
}

#[inline]
fn bucket_of(ns: u64) -> usize {
    // The lowest set bit makes every value under 32 fall into the exact range.
    let magnitude = u64::BITS - 1 - (ns | 1 << GROUPING).leading_zeros();
    let shift = magnitude - GROUPING;
    let bucket = (ns >> shift) as usize + ((shift as usize) << GROUPING);
    bucket.min(BUCKETS_LEN - 1)
}

fn middle_of(bucket: usize) -> u64 {
    let group = bucket >> GROUPING;
    // Buckets of groups 0 and 1 hold one value each; group g > 1 was shifted by g - 1.
    let shift = group.saturating_sub(1) as u32;
    let first = ((bucket - ((shift as usize) << GROUPING)) as u64) << shift;
    first + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Snapshot {
        let histogram = Histogram::new();
        for &value in values {
            histogram.record(Nanos(value));
        }
        histogram.snapshot()
    }

    #[test]
    fn stays_under_sixteen_kibibytes() {
        assert_eq!(size_of::<Histogram>(), 9_752);
        assert!(size_of::<Snapshot>() + size_of::<[u64; BUCKETS_LEN]>() <= 16 * 1_024);
    }

    #[test]
    fn an_empty_one_is_nothing_but_zeros() {
        let Histogram {
            counts,
            sum,
            min_from_top,
            max,
        } = Histogram::new();
        let all = counts.into_iter().chain([sum, min_from_top, max]);
        assert!(all.into_iter().all(|number| number.into_inner() == 0));
    }

    #[test]
    fn a_record_that_was_cut_short_is_no_absurd_extreme() {
        let histogram = Histogram::new();
        histogram.counts[bucket_of(1_000)].fetch_add(1, Ordering::Relaxed);
        let seen = histogram.snapshot();
        assert_eq!(
            (seen.len(), seen.min(), seen.max()),
            (1, Nanos::ZERO, Nanos::ZERO)
        );
        assert_eq!(seen.quantile(0.5), Nanos::ZERO);
    }

    #[test]
    fn survives_any_numbers_in_its_memory() {
        let histogram = Histogram::new();
        let Histogram {
            counts,
            sum,
            min_from_top,
            max,
        } = &histogram;
        for number in counts.iter().chain([sum, min_from_top, max]) {
            number.store(u64::MAX, Ordering::Relaxed);
        }
        let mut seen = histogram.snapshot();
        seen.merge(&histogram.snapshot());
        assert_eq!(seen.len(), u64::MAX);
        assert_eq!(seen.quantile(1.0), Nanos(u64::MAX));
        assert!(seen.quantile(0.5) <= seen.max());
    }

    #[test]
    fn refuses_a_bucket_that_is_none() {
        let end = BUCKETS_LEN as u16;
        let of = |bucket| Snapshot::from_counts(&[(bucket, 1)], Nanos(1), Nanos(1), Nanos(1));
        assert!(of(end).is_none());
        assert_eq!(of(end - 1).map(|seen| seen.len()), Some(1));
    }

    #[test]
    fn empty_answers_zero() {
        let empty = of(&[]);
        assert!(empty.is_empty());
        assert_eq!(empty, Snapshot::default());
        for answer in [
            empty.min(),
            empty.max(),
            empty.mean(),
            empty.sum(),
            empty.quantile(0.5),
        ] {
            assert_eq!(answer, Nanos::ZERO);
        }
    }

    #[test]
    fn quantiles_are_ranks() {
        let check = |values: &[u64], q: f64, expect: u64| {
            assert_eq!(of(values).quantile(q), Nanos(expect), "{q} of {values:?}");
        };
        check(&[7], 0.5, 7);
        check(&[1, 2, 3, 4], 0.5, 2);
        check(&[1, 2, 3, 4], 0.51, 3);
        check(&[1, 2, 3, 4], 0.0, 1);
        check(&[1, 2, 3, 4], 1.0, 4);
        check(&[1, 2, 3, 4], 7.0, 4);
        check(&[1, 2, 3, 4], -1.0, 1);
        check(&[60, 60, 63, 1_000_000], 0.75, 63);
    }

    #[test]
    fn middle_lies_in_its_own_bucket() {
        for bucket in 0..BUCKETS_LEN {
            assert_eq!(bucket_of(middle_of(bucket)), bucket);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS_LEN - 1);
        assert!(bucket_of(Nanos::from_secs(3_600).0) < BUCKETS_LEN - 1);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let histogram = Histogram::new();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let histogram = &histogram;
                scope.spawn(move || {
                    for value in 0..10_000 {
                        histogram.record(Nanos(thread * 10_000 + value));
                    }
                });
            }
        });
        let seen = histogram.snapshot();
        assert_eq!(seen.len(), 40_000);
        assert_eq!(seen.sum(), Nanos((0..40_000).sum()));
        assert_eq!((seen.min(), seen.max()), (Nanos(0), Nanos(39_999)));
    }

    #[test]
    fn counts_each_phase_apart() {
        let phases = PhaseHistograms::default();
        phases.record(&Spans {
            receive: Nanos(1),
            queue: Nanos(2),
            run: Nanos(3),
            send: Nanos(4),
            total: Nanos(10),
            gil: Nanos(5),
            cpu: Nanos(6),
        });
        let of = |histogram: &Histogram| histogram.snapshot().max().0;
        let found = [&phases.receive, &phases.queue, &phases.run, &phases.send].map(of);
        assert_eq!(found, [1, 2, 3, 4]);
        let others = [&phases.total, &phases.gil, &phases.cpu].map(of);
        assert_eq!(others, [10, 5, 6]);
    }

    proptest! {
        #[test]
        fn error_is_under_the_promise(
            mut values in prop::collection::vec(0..Nanos::from_secs(3_600).0, 1..200),
            q in 0.0..=1.0f64,
        ) {
            let found = of(&values).quantile(q).0;
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            prop_assert!(found.abs_diff(exact) as f64 <= 0.016 * exact as f64);
        }

        #[test]
        fn one_thread_counts_as_many_do(values in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut alone = Snapshot::default();
            for &value in &values {
                alone.record(Nanos(value));
            }
            prop_assert_eq!(alone.buckets().map(|(_, count)| count).sum::<u64>(), values.len() as u64);
            prop_assert_eq!(alone, of(&values));
        }

        #[test]
        fn counts_and_figures_are_all_of_it(values in prop::collection::vec(any::<u32>(), 0..50)) {
            let seen = of(&values.iter().map(|&value| value.into()).collect::<Vec<_>>());
            let counts: Vec<_> = seen.counts().collect();
            let again = Snapshot::from_counts(&counts, seen.sum(), seen.min(), seen.max());
            prop_assert_eq!(again, Some(seen));
        }

        #[test]
        fn merging_is_recording_together(
            one in prop::collection::vec(any::<u32>(), 0..50),
            two in prop::collection::vec(any::<u32>(), 0..50),
        ) {
            let wide = |values: &[u32]| values.iter().map(|&v| u64::from(v)).collect::<Vec<_>>();
            let (one, two) = (wide(&one), wide(&two));
            let mut merged = of(&one);
            merged.merge(&of(&two));
            prop_assert_eq!(merged, of(&[one, two].concat()));
        }
    }
}
