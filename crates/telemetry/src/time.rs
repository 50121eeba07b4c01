//! Time as numbers: a stamp on the monotonic clock, a duration, the clock that gives stamps, and distributions
//! of durations, recorded from any thread without a lock and read as a snapshot.
//!
//! Only thread main loops read a clock; everything else takes `now` as an argument. This file must not know the
//! wall clock (a record gets its wall time on the log thread), nor what is measured.
//!
//! A distribution has log-linear buckets: 32 for each power of two of nanoseconds, so that the middle of a
//! bucket is at most 1/64 = 1.56 % from any value in it; below 64 ns every value has its own bucket. Values over
//! 73 minutes (2^42 ns) share the last bucket. 9,752 bytes. It is plain atomics in a fixed order, and all of them
//! zero is the empty one: it can lie in memory that processes share, and be read there after the process that
//! recorded has died.
//!
//! Why not the `histogram` crate, whose `AtomicHistogram` is the same idea: it keeps neither sum nor
//! minimum nor maximum, so the mean would carry the buckets' error, and it answers with a bucket's
//! end, which asks for twice the buckets (18.5 KiB) for the same error. hdrhistogram has no
//! concurrent form without a lock or a channel.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::nearest_rank;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Buckets for each power of two, as a power of two.
const GROUPING: u32 = 5;
/// Values from 2^42 ns share the last bucket.
const VALUE_BITS: u32 = 42;
const BUCKETS_LEN: usize = ((VALUE_BITS - GROUPING + 1) as usize) << GROUPING;

/// A point on a monotonic clock, in nanoseconds.
///
/// Stamps of one process can be compared with each other and with nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp(pub u64);

impl Stamp {
    /// "Not yet": the clock never gives it.
    pub const ZERO: Stamp = Stamp(0);
    /// Later than every stamp that the clock gives: a deadline that does not come.
    pub const NEVER: Stamp = Stamp(u64::MAX);

    /// The time from `earlier` to here; zero when `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Stamp) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The stamp `span` later; [`Stamp::NEVER`] when that is beyond the clock.
    #[inline]
    pub const fn plus(self, span: Nanos) -> Stamp {
        Stamp(self.0.saturating_add(span.0))
    }
}

/// A duration in nanoseconds. Its text is seconds with microseconds, truncated: `0.000123`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// A duration of whole microseconds; saturates.
    pub const fn from_us(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// A duration of whole milliseconds; saturates.
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// A duration of whole seconds; saturates.
    pub const fn from_secs(secs: u64) -> Nanos {
        Nanos(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// The duration in seconds, exact up to 104 days (2^53 ns).
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:06}",
            self.0 / NANOS_PER_SEC,
            self.0 % NANOS_PER_SEC / 1_000
        )
    }
}

/// Where the clock starts, so that a stamp taken in the first nanosecond is not "not yet".
const START: Stamp = Stamp(NANOS_PER_SEC);

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// The present on the machine's monotonic clock, which reads one second when the process first asks. Never earlier
/// than an answer before.
#[inline]
pub fn now() -> Stamp {
    let passed = ORIGIN.get_or_init(Instant::now).elapsed();
    START.plus(Nanos(
        passed.as_secs() * NANOS_PER_SEC + u64::from(passed.subsec_nanos()),
    ))
}

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
    /// for an exact sum, and a store when it is an extreme. Of nothing, as most phases of a cached file are, one.
    #[inline]
    pub fn record(&self, span: Nanos) {
        self.counts[bucket_of(span.0)].fetch_add(1, Ordering::Relaxed);
        // A plain load first: `fetch_max` is a compare-and-swap loop on x86, extremes are rare.
        if span.0 < u64::MAX - self.min_from_top.load(Ordering::Relaxed) {
            let from_top = u64::MAX - span.0;
            self.min_from_top.fetch_max(from_top, Ordering::Relaxed);
        }
        if span.0 == 0 {
            return;
        }
        self.sum.fetch_add(span.0, Ordering::Relaxed);
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
            // Nothing is not the greatest number, which an empty one keeps to be merged with others.
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

    /// The duration that a share `q` of all does not exceed, by [`crate::nearest_rank`].
    ///
    /// `q` is clamped to 0..=1; 0 gives the minimum, 1 the maximum; zero when empty.
    pub fn quantile(&self, q: f64) -> Nanos {
        let rank = nearest_rank(q, self.len);
        if rank <= 1 {
            return self.min();
        }
        if rank >= self.len {
            return self.max();
        }
        let mut passed = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            passed = u64::saturating_add(passed, count);
            // The middle of a bucket may lie outside of what was recorded: the exact extremes bound it.
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

    /// For each of these bounds, which grow, the number of durations up to it: within the width of a bucket.
    pub fn counts_up_to(&self, bounds: impl IntoIterator<Item = Nanos>) -> Vec<u64> {
        let mut buckets = self.buckets().peekable();
        let mut passed = 0;
        let mut up_to = |bound: Nanos| {
            while let Some((_, count)) = buckets.next_if(|(middle, _)| *middle <= bound) {
                passed += count;
            }
            passed
        };
        bounds.into_iter().map(&mut up_to).collect()
    }

    /// Adds another distribution to this one. Merge these, never their quantiles.
    pub fn merge(&mut self, other: &Snapshot) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count = count.saturating_add(*more);
        }
        self.len = self.len.saturating_add(other.len);
        // An empty one has the greatest number for its minimum, so that it changes nothing here.
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
mod tests;
