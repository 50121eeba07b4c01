//! Durations as a distribution for results: exact moments, and quantiles within 0.1 %.
//!
//! Takes durations, gives quantiles and moments, merges and serialises. One thread records into one; the
//! distributions of several threads are merged after the run. Quantiles come from an HDR histogram with
//! three significant digits from 1 ns to an hour, whatever is longer counts as an hour there; sum, stdev,
//! minimum and maximum are exact.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use telemetry::Nanos;

use crate::statistics::Moments;

/// Longer ones count as this in quantiles.
pub const LONGEST: Nanos = Nanos::from_secs(3_600);

/// Fewer values than these beyond a quantile make it an accident.
pub(crate) const BEYOND_LEN: f64 = 10.0;

/// Whether of `len` values enough lie beyond a quantile, in percent, for it to be no accident.
pub(crate) fn has_enough_beyond(percent: f64, len: f64) -> bool {
    // Not one less because of the number's binary form.
    (100.0 - percent) / 100.0 * len + 1e-6 >= BEYOND_LEN
}

/// A distribution of durations.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    moments: Moments,
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution::new()
    }
}

impl Distribution {
    /// An empty one; it never allocates again, about 280 KB.
    pub fn new() -> Distribution {
        // Three significant digits: quantiles are within 0.1 %.
        let histogram = Histogram::new_with_bounds(1, LONGEST.0, 3);
        Distribution {
            histogram: histogram.expect("the bounds are constants that the crate accepts"),
            moments: Moments::default(),
        }
    }

    /// Counts one.
    #[inline]
    pub fn record(&mut self, span: Nanos) {
        // The histogram knows no nought; the moments below have the value itself.
        self.histogram.saturating_record(span.0.max(1));
        self.moments.record(span.0 as f64);
    }

    /// Counts those of `other` as well.
    pub fn merge(&mut self, other: &Distribution) {
        // Threads record into their own ones, without a lock, and meet here when the run is over.
        let merged = self.histogram.add(&other.histogram);
        merged.expect("both have the same bounds");
        self.moments.merge(&other.moments);
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.moments = Moments::default();
    }

    /// How many.
    pub fn len(&self) -> u64 {
        self.moments.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.moments.len() == 0
    }

    /// Exact count, mean, stdev, minimum and maximum, in nanoseconds.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// The least value that a share `quantile` (0 to 1) of all does not exceed; zero for none.
    pub fn quantile(&self, quantile: f64) -> Nanos {
        assert!((0.0..=1.0).contains(&quantile), "a quantile is a share");
        if self.is_empty() {
            return Nanos::ZERO;
        }
        let share = telemetry::share_of_rank(quantile, self.histogram.len());
        let value = self.histogram.value_at_quantile(share) as f64;
        // The histogram gives the end of a bucket, which may lie beyond all values.
        Nanos(value.clamp(self.moments.min(), self.moments.max()) as u64)
    }

    /// The histogram itself, in nanoseconds; [`Distribution::quantile`] asks it better.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

/// As it is stored: summaries for people, and the histogram for programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Exact.
    pub mean_us: f64,
    /// Exact, with n − 1.
    pub stdev_us: f64,
    /// Exact.
    pub min_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 75 %.
    pub p75_us: f64,
    /// 90 %.
    pub p90_us: f64,
    /// 95 %.
    pub p95_us: f64,
    /// 99 %; `None`: fewer than ten values lie beyond it, so that it would be an accident.
    pub p99_us: Option<f64>,
    /// 99.9 %, likewise.
    pub p99_9_us: Option<f64>,
    /// 99.99 %, likewise.
    pub p99_99_us: Option<f64>,
    /// Exact.
    pub max_us: f64,
    /// The histogram in nanoseconds: HdrHistogram's V2 format, deflated, in base64.
    pub hdr: String,
}

impl From<&Distribution> for Summary {
    fn from(all: &Distribution) -> Summary {
        let us = |ns: f64| ns / 1e3;
        let at = |quantile: f64| us(all.quantile(quantile).0 as f64);
        let len = all.len() as f64;
        let far = |quantile: f64| has_enough_beyond(quantile * 100.0, len).then(|| at(quantile));
        Summary {
            count: all.len(),
            mean_us: us(all.moments.mean()),
            stdev_us: us(all.moments.stdev()),
            min_us: us(all.moments.min()),
            p50_us: at(0.5),
            p75_us: at(0.75),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: far(0.99),
            p99_9_us: far(0.999),
            p99_99_us: far(0.9999),
            max_us: us(all.moments.max()),
            hdr: encoded(&all.histogram),
        }
    }
}

impl Summary {
    /// A percentile, 0 to 100, however few values lie beyond it; 0 without any value.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        let histogram = self.histogram().filter(|all| !all.is_empty());
        histogram.map_or(0.0, |all| all.value_at_percentile(percent) as f64 / 1e3)
    }

    /// The stored histogram, in nanoseconds; `None`: the file holds none that can be read.
    pub(crate) fn histogram(&self) -> Option<Histogram<u64>> {
        use hdrhistogram::serialization::Deserializer;
        let bytes = BASE64_STANDARD.decode(&self.hdr).ok()?;
        Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
    }
}

fn encoded(histogram: &Histogram<u64>) -> String {
    use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
    let mut bytes = Vec::new();
    let written = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
    written.expect("memory takes every byte");
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all_of(values: &[u64]) -> Distribution {
        let mut all = Distribution::new();
        values.iter().for_each(|&value| all.record(Nanos(value)));
        all
    }

    /// The least value that this many thousandths of all do not exceed.
    fn exact(sorted: &[u64], thousandths: usize) -> u64 {
        let rank = (sorted.len() * thousandths).div_ceil(1000).max(1);
        sorted[rank - 1]
    }

    fn check(all: &Distribution, values: &[u64]) {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        for thousandths in [0, 1, 35, 70, 290, 500, 570, 750, 900, 950, 990, 999, 1000] {
            let said = all.quantile(thousandths as f64 / 1000.0).0;
            let value = exact(&sorted, thousandths);
            // The end of a bucket is said, which is no wider than 1/1024 of its values; nothing is below 1 ns.
            let most = value.min(LONGEST.0) + value / 1024 + 1;
            assert!(
                (value.min(LONGEST.0)..=most).contains(&said),
                "{thousandths} thousandths of {}: {said} and not {value}",
                sorted.len()
            );
        }
        assert_eq!(all.len(), values.len() as u64);
        assert_eq!(all.quantile(1.0).0.max(1), sorted[sorted.len() - 1].max(1));
    }

    #[test]
    fn says_zero_of_nothing() {
        let mut all = all_of(&[1, 2, 3]);
        all.clear();
        assert!(all.is_empty() && all.quantile(0.5) == Nanos::ZERO);
        let summary = Summary::from(&all);
        assert_eq!(
            (summary.count, summary.p50_us, summary.p99_us),
            (0, 0.0, None)
        );
    }

    #[test]
    fn takes_no_greater_value_because_of_a_quantiles_binary_form() {
        for len in [100, 200, 1_000] {
            let values: Vec<u64> = (1..=len).collect();
            check(&all_of(&values), &values);
        }
    }

    #[test]
    fn counts_longer_ones_than_the_longest_in_the_moments_exactly() {
        let longer = LONGEST.0 * 3;
        let all = all_of(&[1_000, 2_000, longer]);
        assert_eq!(all.moments().max() as u64, longer);
        assert!(all.quantile(1.0) >= LONGEST && all.quantile(0.5).0 == 2_000);
    }

    #[test]
    fn says_no_quantile_that_fewer_than_ten_values_exceed() {
        for (len, expect) in [
            (999, [false, false, false]),
            (1_000, [true, false, false]),
            (9_999, [true, false, false]),
            (10_000, [true, true, false]),
            (100_000, [true, true, true]),
        ] {
            let values: Vec<u64> = (1..=len).map(|nth| nth * 1_000).collect();
            let summary = Summary::from(&all_of(&values));
            let far = [summary.p99_us, summary.p99_9_us, summary.p99_99_us];
            assert_eq!(far.map(|said| said.is_some()), expect, "{len} values");
            assert!((summary.p50_us / (len as f64 / 2.0) - 1.0).abs() < 0.002);
        }
    }

    #[test]
    fn stores_a_histogram_that_programs_read() {
        let all = all_of(&[5, 1_000, 1_000_000, 3_000_000_000]);
        let mut summary = Summary::from(&all);
        assert_eq!(summary.histogram().as_ref(), Some(all.histogram()));
        summary.hdr = "AAAA".to_owned();
        assert_eq!(summary.histogram(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn says_quantiles_of_the_raw_values_in_any_split(
            values in prop::collection::vec(
                prop_oneof![0u64..3_000, 0u64..5_000_000_000, 0u64..LONGEST.0],
                1..400,
            ),
            parts in 2usize..5,
        ) {
            let whole = all_of(&values);
            check(&whole, &values);
            let mut merged = Distribution::new();
            for part in values.chunks(values.len().div_ceil(parts)) {
                merged.merge(&all_of(part));
            }
            check(&merged, &values);
            prop_assert_eq!(merged.histogram(), whole.histogram());
            // Not to the last digit: sums depend on their order.
            let (one, other) = (Summary::from(&whole), Summary::from(&merged));
            prop_assert!((one.mean_us - other.mean_us).abs() <= 1e-9 * one.mean_us);
            prop_assert!((one.stdev_us - other.stdev_us).abs() <= 1e-9 * one.max_us);
            prop_assert_eq!((one.min_us, one.max_us), (other.min_us, other.max_us));
        }
    }
}
