//! Native histograms of Prometheus: exponential buckets, made from the log-linear ones of a distribution.
//!
//! Schema 4 has sixteen buckets for each power of two, each 4.4 % wide. It is the finest one of which no bucket is narrower
//! than those of a distribution, which are at most 3.1 % wide: a finer one would have empty buckets between full ones. A
//! bucket of a distribution is counted where its middle is, so that a duration is at most 1.6 % outside of the bucket
//! that it is counted in, and a quantile is at most 6 % from the truth, half of that as a rule.

use std::sync::OnceLock;

use crate::Snapshot;

/// Buckets for each power of two, as a power of two.
pub(super) const SCHEMA: i64 = 4;
/// Seconds up to which all durations are one bucket: what client libraries have, less than a nanosecond by far.
pub(super) const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;
/// Empty buckets that are written as such: a span of its own takes more bytes.
const GAP_MAX: i64 = 2;

/// The buckets of one native histogram.
#[derive(Default, Debug, PartialEq)]
pub(super) struct NativeBuckets {
    /// Durations of nothing.
    pub(super) zero: u64,
    /// Buckets without a gap: how many are skipped before them, for the first ones their number, and how many there are.
    pub(super) spans: Vec<(i64, u64)>,
    /// How many more durations each bucket has than the one before.
    pub(super) deltas: Vec<i64>,
}

impl NativeBuckets {
    /// Makes it those of a distribution.
    pub(super) fn fill(&mut self, seen: &Snapshot) {
        self.zero = 0;
        self.spans.clear();
        self.deltas.clear();
        let numbers = numbers();
        // The bucket that is being filled.
        let mut open: Option<(i64, u64)> = None;
        let mut written = Written::default();
        for (bucket, count) in seen.counts() {
            let Some(number) = numbers[usize::from(bucket)] else {
                self.zero = count;
                continue;
            };
            match &mut open {
                Some((last, sum)) if *last == number => *sum = sum.saturating_add(count),
                open => {
                    if let Some(full) = open.replace((number, count)) {
                        self.push(&mut written, full);
                    }
                }
            }
        }
        if let Some(full) = open {
            self.push(&mut written, full);
        }
    }

    fn push(&mut self, written: &mut Written, (number, count): (i64, u64)) {
        let gap = number - written.end;
        match self.spans.last_mut() {
            Some((_, len)) if gap <= GAP_MAX => {
                *len += gap.unsigned_abs() + 1;
                for _ in 0..gap {
                    self.deltas.push(written.next(0));
                }
            }
            _ => self.spans.push((gap, 1)),
        }
        self.deltas.push(written.next(count));
        written.end = number + 1;
    }
}

/// What has been written of a histogram.
#[derive(Default)]
struct Written {
    /// The number behind the last bucket.
    end: i64,
    count: i64,
}

impl Written {
    /// The difference of the next count from the one before.
    fn next(&mut self, count: u64) -> i64 {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let delta = count - self.count;
        self.count = count;
        delta
    }
}

/// The number of the native bucket for each bucket of a distribution; `None` for that of nothing.
fn numbers() -> &'static [Option<i64>] {
    static NUMBERS: OnceLock<Vec<Option<i64>>> = OnceLock::new();
    NUMBERS.get_or_init(|| {
        let middles = crate::time::middles();
        middles
            .map(|middle| (middle.0 > 0).then(|| number(middle.as_secs_f64())))
            .collect()
    })
}

/// Bucket `n` has what is longer than `2^((n-1)/16)` seconds, up to `2^(n/16)`.
fn number(secs: f64) -> i64 {
    (secs.log2() * f64::from(1_u32 << SCHEMA)).ceil() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> (NativeBuckets, Snapshot) {
        let mut seen = Snapshot::default();
        values.iter().for_each(|ns| seen.record(Nanos(*ns)));
        let mut buckets = NativeBuckets::default();
        buckets.fill(&seen);
        (buckets, seen)
    }

    /// Number and count of each bucket, as a scraper reads them.
    fn read(buckets: &NativeBuckets) -> Vec<(i64, u64)> {
        let (mut next, mut count, mut found) = (0, 0_i64, Vec::new());
        let mut deltas = buckets.deltas.iter();
        for (skipped, len) in &buckets.spans {
            next += skipped;
            for _ in 0..*len {
                count += deltas.next().unwrap();
                if count > 0 {
                    found.push((next, count.unsigned_abs()));
                }
                next += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        found
    }

    #[test]
    fn a_second_ends_bucket_0() {
        assert_eq!(number(1.0), 0);
        assert_eq!(number(1.01), 1);
        assert_eq!(number(2.0), 16);
        assert_eq!(number(0.5), -16);
    }

    #[test]
    fn gaps_begin_spans() {
        let (buckets, _) = of(&[0, 0, 1_000_000, 1_000_000, 1_000_000_000, 1_070_000_000]);
        assert_eq!(buckets.zero, 2);
        // The millisecond, and far behind it two buckets with an empty one between them, and one more.
        assert_eq!(buckets.spans, [(-159, 1), (158, 3)]);
        assert_eq!(buckets.deltas, [2, -1, -1, 1]);
    }

    #[test]
    fn no_bucket_between_full_ones_is_empty() {
        let (buckets, _) = of(&(1..2_000).map(|at| at * 500_000).collect::<Vec<_>>());
        let found = read(&buckets);
        let from_10_ms = found.iter().filter(|(bucket, _)| *bucket > number(0.01));
        let numbers: Vec<_> = from_10_ms.map(|(bucket, _)| *bucket).collect();
        assert!(
            numbers.windows(2).all(|two| two[1] == two[0] + 1),
            "{numbers:?}"
        );
    }

    proptest! {
        #[test]
        fn each_duration_is_in_a_bucket_near_it(ns in 64..Nanos::from_secs(4_000).0) {
            let (buckets, _) = of(&[ns]);
            let found = read(&buckets);
            let upper = (found[0].0 as f64 / 16.0).exp2();
            let secs = Nanos(ns).as_secs_f64();
            prop_assert!(secs <= upper * 1.016, "{secs} above {upper}");
            prop_assert!(secs * 1.016 >= upper / (1.0_f64 / 16.0).exp2(), "{secs} below {upper}");
        }

        #[test]
        fn nothing_is_lost(values in prop::collection::vec(0..Nanos::from_secs(10_000).0, 0..200)) {
            let (buckets, seen) = of(&values);
            let counts = read(&buckets).into_iter().map(|(_, count)| count).sum::<u64>();
            prop_assert_eq!(counts + buckets.zero, seen.len());
        }
    }
}
