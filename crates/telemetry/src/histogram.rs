//! Distributions of durations that many threads record into, without a lock.
//!
//! They are plain atomics in a fixed order, and all of them zero is the empty one: they can lie in memory that processes
//! share, and be read there after the process that recorded has died.
//!
//! A scrape reads thousands of them, whose memory no processor has in its cache, each in other pages: it takes most of
//! its time to wait for memory. Heads of the same requests therefore lie side by side, a count has 32 bits, with further
//! ones elsewhere, and a reader of many has the memory of the next ones fetched while it adds up those before. With one
//! group of buckets of all phases beside each other, power of two by power of two, it took longer: the processor reads
//! ahead along one distribution.

use std::hint::black_box;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::Nanos;
use crate::time::{BUCKETS_LEN, Snapshot, bucket_of};

/// A count crosses its half when it gets to a multiple of this.
const HALF: u32 = 1 << 31;

/// `LEN` distributions of durations, side by side.
///
/// Relaxed counters: nothing is lost, but a snapshot that is taken while others record may have a
/// sum that is a few records ahead of its counts.
#[derive(Debug)]
#[repr(C)]
pub struct HistogramBank<const LEN: usize> {
    heads: [Head; LEN],
    counts: [Counts; LEN],
    /// How often the counts of buckets have crossed a half, by the distribution. Memory that is hardly ever touched.
    halves: [[AtomicU16; BUCKETS_LEN]; LEN],
}

/// A single distribution: 7,360 bytes.
pub type Histogram = HistogramBank<1>;

/// What is known of a distribution, on one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Head {
    sum: AtomicU64,
    /// How far the shortest lies below the greatest number: zero while nothing was recorded.
    min_from_top: AtomicU64,
    max: AtomicU64,
    /// How often counts have crossed a half, all together.
    halves: AtomicU64,
}

/// Counts of all buckets, as far as they have 32 bits.
#[derive(Debug)]
#[repr(C, align(64))]
struct Counts([AtomicU32; BUCKETS_LEN]);

impl<const LEN: usize> HistogramBank<LEN> {
    /// Empty distributions. They are large: what keeps them puts them into a box, or into memory of its own.
    pub const fn new() -> Self {
        Self {
            heads: [const {
                Head {
                    sum: AtomicU64::new(0),
                    min_from_top: AtomicU64::new(0),
                    max: AtomicU64::new(0),
                    halves: AtomicU64::new(0),
                }
            }; LEN],
            counts: [const { Counts([const { AtomicU32::new(0) }; BUCKETS_LEN]) }; LEN],
            halves: [const { [const { AtomicU16::new(0) }; BUCKETS_LEN] }; LEN],
        }
    }

    /// Counts one duration in the distribution with this index: two atomic additions of 2.5 ns each when uncontended,
    /// the second of them for an exact sum, and a store when it is an extreme. Of nothing,
    /// one.
    #[inline]
    pub(crate) fn record_at(&self, index: usize, span: Nanos) {
        let head = &self.heads[index];
        // Plain loads before: `fetch_max` is a compare-and-swap loop on x86, and extremes are rare.
        if span.0 < u64::MAX - head.min_from_top.load(Ordering::Relaxed) {
            let from_top = u64::MAX - span.0;
            head.min_from_top.fetch_max(from_top, Ordering::Relaxed);
        }
        if span.0 > 0 {
            if span.0 > head.max.load(Ordering::Relaxed) {
                head.max.fetch_max(span.0, Ordering::Relaxed);
            }
            head.sum.fetch_add(span.0, Ordering::Relaxed);
        }
        let bucket = bucket_of(span.0);
        let before = self.counts[index].0[bucket].fetch_add(1, Ordering::Relaxed);
        if before % HALF == HALF - 1 {
            self.cross(index, bucket);
        }
    }

    /// The count of a bucket has come to a multiple of [`HALF`]. Its highest bit says whether the number of such
    /// crossings is odd, so that a reader who looks before this has been noted still knows of it: see [`whole`].
    #[cold]
    fn cross(&self, index: usize, bucket: usize) {
        self.halves[index][bucket].fetch_add(1, Ordering::Release);
        self.heads[index].halves.fetch_add(1, Ordering::Release);
    }

    /// Has the processor fetch the heads, for which it does not wait.
    pub(crate) fn prefetch_heads(&self) {
        for head in &self.heads {
            black_box(head.max.load(Ordering::Relaxed));
        }
    }

    /// Has the processor fetch the counts, once it has the heads.
    pub(crate) fn prefetch_counts(&self) {
        for (head, counts) in self.heads.iter().zip(&self.counts) {
            let (min, max) = head.extremes();
            if let Some(counts) = counts.0.get(bucket_of(min)..=bucket_of(max)) {
                // One of each cache line.
                for count in counts.iter().step_by(16) {
                    black_box(count.load(Ordering::Relaxed));
                }
            }
        }
    }

    /// Adds what has been recorded until now to one snapshot for each distribution. Whoever records may be within a
    /// record, or have died there.
    pub(crate) fn add_to(&self, mut sums: [&mut Snapshot; LEN]) {
        for (index, (head, sum)) in self.heads.iter().zip(&mut sums).enumerate() {
            // Before the counts, as `whole` asks for.
            let crossed = head.halves.load(Ordering::Acquire) > 0;
            let (min, max) = head.extremes();
            // Between the extremes alone: no count lies outside.
            let (first, last) = (bucket_of(min), bucket_of(max));
            let Some(counts) = self.counts[index].0.get(first..=last) else {
                continue;
            };
            let halves = crossed.then(|| &self.halves[index][first..=last]);
            let len = add_counts(counts, halves, sum.room(first, last + 1));
            // Each extreme is written by itself.
            let extremes = (min.min(max), max);
            sum.add_figures(len, head.sum.load(Ordering::Relaxed), extremes);
        }
    }
}

impl Head {
    /// The shortest and the longest; in an empty one the shortest is longer.
    fn extremes(&self) -> (u64, u64) {
        let min = u64::MAX - self.min_from_top.load(Ordering::Relaxed);
        (min, self.max.load(Ordering::Relaxed))
    }
}

/// Adds all counts to ours; gives their sum. Without `halves` none has crossed twice.
fn add_counts(counts: &[AtomicU32], halves: Option<&[AtomicU16]>, ours: &mut [u64]) -> u64 {
    let mut len: u64 = 0;
    match halves {
        None => {
            for (ours, count) in ours.iter_mut().zip(counts) {
                let count = count.load(Ordering::Relaxed).into();
                *ours = ours.saturating_add(count);
                // Far fewer than 2^32 counts of 32 bits.
                len += count;
            }
        }
        Some(halves) => {
            for ((ours, count), halves) in ours.iter_mut().zip(counts).zip(halves) {
                let halves = halves.load(Ordering::Acquire);
                let count = whole(halves, count.load(Ordering::Relaxed));
                *ours = ours.saturating_add(count);
                len += count;
            }
        }
    }
    len
}

/// A count from its lowest 32 bits, and the crossings of halves that had been noted before those bits were read: all, or
/// all but the last one, because a bucket is not counted in 2^31 times in between.
fn whole(noted: u16, low: u32) -> u64 {
    let is_odd = u64::from(low / HALF);
    let halves = u64::from(noted);
    let halves = halves + ((halves ^ is_odd) & 1);
    halves * u64::from(HALF) + u64::from(low % HALF)
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn record(&self, span: Nanos) {
        self.record_at(0, span);
    }

    /// What has been recorded until now.
    pub fn snapshot(&self) -> Snapshot {
        let mut seen = Snapshot::default();
        self.add_to([&mut seen]);
        seen
    }
}

impl<const LEN: usize> Default for HistogramBank<LEN> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts all numbers of a bank at their greatest.
    fn fill<const LEN: usize>(bank: &HistogramBank<LEN>) {
        for head in &bank.heads {
            for number in [&head.sum, &head.min_from_top, &head.max, &head.halves] {
                number.store(u64::MAX, Ordering::Relaxed);
            }
        }
        let counts = bank.counts.iter().flat_map(|counts| &counts.0);
        counts.for_each(|count| count.store(u32::MAX, Ordering::Relaxed));
        let halves = bank.halves.iter().flatten();
        halves.for_each(|halves| halves.store(u16::MAX, Ordering::Relaxed));
    }

    #[test]
    fn stays_under_eight_kibibytes() {
        assert_eq!(size_of::<Histogram>(), 7_360);
        assert_eq!(size_of::<Head>(), 64);
    }

    #[test]
    fn a_record_that_was_cut_short_is_none() {
        let histogram = Histogram::new();
        let head = &histogram.heads[0];
        assert_eq!(histogram.snapshot(), Snapshot::default());
        let from_top = u64::MAX - 1_000;
        for (number, value) in [
            (&head.min_from_top, from_top),
            (&head.max, 1_000),
            (&head.sum, 1_000),
        ] {
            number.store(value, Ordering::Relaxed);
            assert_eq!(histogram.snapshot(), Snapshot::default());
        }
    }

    #[test]
    fn survives_any_numbers_in_its_memory() {
        let histogram = Histogram::new();
        fill(&histogram);
        let mut seen = histogram.snapshot();
        let most = (u64::from(u16::MAX) + 1) << 31;
        assert_eq!(seen.len(), most * BUCKETS_LEN as u64 - BUCKETS_LEN as u64);
        seen.merge(&histogram.snapshot());
        assert_eq!(seen.quantile(1.0), Nanos(u64::MAX));
        assert!(seen.quantile(0.5) <= seen.max());
    }

    #[test]
    fn distributions_of_a_bank_are_apart_in_every_group() {
        let bank = HistogramBank::<2>::new();
        let mut apart = [Snapshot::default(), Snapshot::default()];
        for power in 0..64 {
            for (index, value) in [(0, 1 << power), (1, u64::MAX >> power), (1, 0)] {
                bank.record_at(index, Nanos(value));
                apart[index].record(Nanos(value));
            }
        }
        let mut seen = [Snapshot::default(), Snapshot::default()];
        bank.add_to(seen.each_mut());
        assert_eq!(seen, apart);
    }

    #[test]
    fn counts_go_on_over_32_bits() {
        let histogram = Histogram::new();
        histogram.record(Nanos(7));
        let count = &histogram.counts[0].0[7];
        let mut expect = 1;
        for crossings in 1..6 {
            // As if so many had been counted.
            let next = crossings * u64::from(HALF);
            count.store((next - 2) as u32, Ordering::Relaxed);
            expect = next - 2;
            for _ in 0..4 {
                assert_eq!(histogram.snapshot().len(), expect);
                histogram.record(Nanos(7));
                expect += 1;
            }
        }
        assert_eq!(histogram.snapshot().len(), expect);
    }

    #[test]
    fn a_crossing_that_is_not_noted_yet_is_seen() {
        for crossings in 1..=10_u16 {
            let number = u64::from(crossings) * u64::from(HALF);
            for (noted, number) in [
                (crossings - 1, number - 1),
                (crossings - 1, number),
                (crossings, number),
                (crossings, number + 5),
            ] {
                assert_eq!(whole(noted, number as u32), number);
            }
        }
    }
}
