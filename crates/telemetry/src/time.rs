//! Time as numbers: a stamp on the monotonic clock, a duration, the clock that gives stamps, and distributions
//! of durations at rest. `histogram` has those that threads record into.
//!
//! Only thread main loops read a clock; everything else takes `now` as an argument. This file must not know the
//! wall clock (a record gets its wall time on the log thread), nor what is measured.
//!
//! A distribution has log-linear buckets: 32 for each power of two of nanoseconds, so that the middle of a
//! bucket is at most 1/64 = 1.56 % from any value in it; below 64 ns every value has its own bucket. Values over
//! 73 minutes (2^42 ns) share the last bucket.
//!
//! Why not the `histogram` crate, whose `AtomicHistogram` is the same idea: it keeps neither sum nor
//! minimum nor maximum, so the mean would carry the buckets' error, and it answers with a bucket's
//! end, which asks for twice the buckets (18.5 KiB) for the same error. hdrhistogram has no
//! concurrent form without a lock or a channel.

use std::fmt;
use std::sync::OnceLock;

use crate::nearest_rank;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Buckets for each power of two, as a power of two.
const GROUPING: u32 = 5;
/// Values from 2^42 ns share the last bucket.
const VALUE_BITS: u32 = 42;
pub(crate) const BUCKETS_LEN: usize = ((VALUE_BITS - GROUPING + 1) as usize) << GROUPING;

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

/// What the machine's clock read when the process first asked.
static ORIGIN: OnceLock<Nanos> = OnceLock::new();

/// The present on the machine's monotonic clock, which reads one second when the process first asks. Never earlier
/// than an answer before.
#[inline]
pub fn now() -> Stamp {
    let now = machine_now();
    let origin = ORIGIN.get_or_init(|| now);
    START.plus(Nanos(now.0.saturating_sub(origin.0)))
}

/// The machine's monotonic clock, which all processes read alike. As nanoseconds at once: a request asks for it some eight
/// times, and the standard library makes seconds and a rest of it first.
#[inline]
pub fn machine_now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(now.tv_sec.cast_unsigned() * NANOS_PER_SEC + now.tv_nsec.cast_unsigned())
}

/// A distribution at rest. Quantiles are within 1.6 % (up to 73 minutes), all else is exact.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Number of the bucket that `counts` begins with.
    first: usize,
    /// Of the buckets from there on; the others are empty.
    counts: Vec<u64>,
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
        let mut all = vec![0_u64; BUCKETS_LEN];
        for &(bucket, count) in counts {
            let known = all.get_mut(usize::from(bucket))?;
            *known = known.saturating_add(count);
        }
        Some(Snapshot::of(0, all, sum, min, max))
    }

    /// Distributions come from memory that others write, so nothing here may fail on any number.
    fn of(first: usize, counts: Vec<u64>, sum: Nanos, min: Nanos, max: Nanos) -> Snapshot {
        let len = counts.iter().copied().fold(0, u64::saturating_add);
        if len == 0 {
            return Snapshot::default();
        }
        Snapshot {
            first,
            counts,
            len,
            sum: sum.0,
            // Each extreme is written by itself.
            min: min.0.min(max.0),
            max: max.0,
        }
    }

    /// Each bucket with its count, those that are not empty among them.
    fn numbered(&self) -> impl Iterator<Item = (usize, u64)> {
        (self.first..).zip(self.counts.iter().copied())
    }

    /// Makes room for all buckets from `first` up to `end`.
    fn cover(&mut self, first: usize, end: usize) {
        if self.counts.is_empty() {
            self.first = first;
        }
        if let Some(missing) = self.first.checked_sub(first).filter(|missing| *missing > 0) {
            self.counts.splice(..0, std::iter::repeat_n(0, missing));
            self.first = first;
        }
        if end > self.first + self.counts.len() {
            self.counts.resize(end - self.first, 0);
        }
    }

    /// The numbers of the buckets that are not empty, and their counts.
    pub fn counts(&self) -> impl Iterator<Item = (u16, u64)> {
        let counts = self.numbered().filter(|&(_, count)| count > 0);
        // There are fewer buckets than this holds.
        counts.map(|(bucket, count)| (bucket as u16, count))
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
        for (bucket, count) in self.numbered() {
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
        if self.counts.len() < BUCKETS_LEN {
            // At the first one: all later ones find their bucket at once.
            self.cover(0, BUCKETS_LEN);
        }
        self.counts[bucket_of(span.0)] += 1;
        self.len += 1;
        self.sum = self.sum.wrapping_add(span.0);
        self.min = self.min.min(span.0);
        self.max = self.max.max(span.0);
    }

    /// The buckets that are not empty: the middle of each, and its count; the shortest first.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counts = self.numbered().filter(|&(_, count)| count > 0);
        counts.map(|(bucket, count)| (Nanos(middle_of(bucket)), count))
    }

    /// For each of these bounds, which grow, the number of durations up to it: within the width of a bucket.
    pub fn counts_up_to(
        &self,
        bounds: impl IntoIterator<Item = Nanos>,
    ) -> impl Iterator<Item = u64> {
        let mut buckets = self.buckets().peekable();
        let mut passed = 0;
        bounds.into_iter().map(move |bound| {
            while let Some((_, count)) = buckets.next_if(|(middle, _)| *middle <= bound) {
                passed = u64::saturating_add(passed, count);
            }
            passed
        })
    }

    /// The counts of all buckets from `first` up to `end`, to be added to.
    pub(crate) fn room(&mut self, first: usize, end: usize) -> &mut [u64] {
        self.cover(first, end);
        &mut self.counts[first - self.first..end - self.first]
    }

    /// The figures of `len` durations whose counts have been added to `room`.
    pub(crate) fn add_figures(&mut self, len: u64, sum: u64, (min, max): (u64, u64)) {
        if len == 0 {
            return;
        }
        self.len = self.len.saturating_add(len);
        self.sum = self.sum.wrapping_add(sum);
        // An empty one has the greatest number for its minimum.
        self.min = self.min.min(min);
        self.max = self.max.max(max);
    }

    /// Adds `len` durations of nothing.
    pub(crate) fn add_zeros(&mut self, len: u64) {
        if len > 0 {
            let count = &mut self.room(0, 1)[0];
            *count = count.saturating_add(len);
            self.add_figures(len, 0, (0, 0));
        }
    }

    /// Adds another distribution to this one. Merge these, never their quantiles.
    pub fn merge(&mut self, other: &Snapshot) {
        if other.is_empty() {
            return;
        }
        self.cover(other.first, other.first + other.counts.len());
        let ours = &mut self.counts[other.first - self.first..];
        for (count, more) in ours.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.add_figures(other.len, other.sum, (other.min, other.max));
    }
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot {
            first: 0,
            counts: Vec::new(),
            len: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl PartialEq for Snapshot {
    /// Whatever range of buckets each of them has.
    fn eq(&self, other: &Snapshot) -> bool {
        let figures = |one: &Snapshot| (one.len, one.sum, one.min, one.max);
        figures(self) == figures(other) && self.counts().eq(other.counts())
    }
}

impl Eq for Snapshot {}

#[inline]
pub(crate) fn bucket_of(ns: u64) -> usize {
    // The lowest set bit makes every value under 32 fall into the exact range.
    let magnitude = u64::BITS - 1 - (ns | 1 << GROUPING).leading_zeros();
    let shift = magnitude - GROUPING;
    let bucket = (ns >> shift) as usize + ((shift as usize) << GROUPING);
    bucket.min(BUCKETS_LEN - 1)
}

/// The middle of each bucket.
pub(crate) fn middles() -> impl Iterator<Item = Nanos> {
    (0..BUCKETS_LEN).map(|bucket| Nanos(middle_of(bucket)))
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
