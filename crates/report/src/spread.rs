//! The distribution of one phase: everything that the table shows of it.
//!
//! Takes durations one by one. Mean and deviation come from exact sums in whole nanoseconds, which do not
//! depend on the order and can be added to others'; quantiles come from telemetry's histogram.

use telemetry::{Nanos, Snapshot};

/// A distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    shape: Snapshot,
    sum_ns: u128,
    squares_ns: u128,
}

impl Spread {
    /// Counts one duration.
    #[inline]
    pub(crate) fn add(&mut self, span: Nanos) {
        self.shape.record(span);
        self.sum_ns += u128::from(span.0);
        // A hundred thousand million durations of a year are needed to pass the end.
        self.squares_ns = self
            .squares_ns
            .saturating_add(u128::from(span.0) * u128::from(span.0));
    }

    /// Counts all of another one.
    #[cfg(test)]
    pub(crate) fn merge(&mut self, other: &Spread) {
        self.shape.merge(&other.shape);
        self.sum_ns += other.sum_ns;
        self.squares_ns = self.squares_ns.saturating_add(other.squares_ns);
    }

    /// Durations counted.
    pub fn len(&self) -> u64 {
        self.shape.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.shape.is_empty()
    }

    /// The distribution itself.
    pub fn shape(&self) -> &Snapshot {
        &self.shape
    }

    /// All durations together, in seconds.
    pub fn sum_secs(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The arithmetic mean in seconds; 0 when empty.
    pub fn mean_secs(&self) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        self.sum_secs() / self.len() as f64
    }

    /// The standard deviation of a sample (`n - 1`) in seconds; 0 for fewer than two.
    pub fn stdev_secs(&self) -> f64 {
        let len = u128::from(self.len());
        if len < 2 {
            return 0.0;
        }
        let exact = len
            .checked_mul(self.squares_ns)
            .and_then(|squares| Some(squares - self.sum_ns.checked_mul(self.sum_ns)?));
        // n Σx² − (Σx)² in whole numbers: as floats, the two would be nearly equal, and their difference noise.
        let scaled = match exact {
            Some(scaled) => scaled as f64,
            // Beyond 2^128 the digits that f64 loses are not seen.
            None => {
                let sum = self.sum_ns as f64;
                (len as f64)
                    .mul_add(self.squares_ns as f64, -(sum * sum))
                    .max(0.0)
            }
        };
        (scaled / (len as f64 * (len - 1) as f64)).sqrt() / 1e9
    }

    /// The shortest, in seconds.
    pub fn min_secs(&self) -> f64 {
        secs(self.shape.min())
    }

    /// The longest, in seconds.
    pub fn max_secs(&self) -> f64 {
        secs(self.shape.max())
    }

    /// The percentile `q` (0 to 1) in seconds, within 1.6 %: the nearest rank, so value number `ceil(q * len)` in
    /// ascending order.
    pub fn quantile_secs(&self, q: f64) -> f64 {
        secs(self.shape.quantile(q))
    }
}

pub(crate) fn secs(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Spread {
        let mut spread = Spread::default();
        for &value in values {
            spread.add(Nanos(value));
        }
        spread
    }

    #[test]
    fn empty_and_single_have_no_deviation() {
        assert_eq!(of(&[]).stdev_secs(), 0.0);
        assert_eq!(of(&[]).mean_secs(), 0.0);
        assert_eq!(of(&[5]).stdev_secs(), 0.0);
        assert_eq!(of(&[1_000_000_000, 3_000_000_000]).mean_secs(), 2.0);
        assert_eq!(
            of(&[1_000_000_000, 3_000_000_000]).stdev_secs(),
            2f64.sqrt()
        );
    }

    #[test]
    fn stays_finite_at_the_end_of_the_numbers() {
        let spread = of(&[u64::MAX; 20]);
        assert!(spread.stdev_secs() < 1.0 && spread.mean_secs() > 1.8e10);
    }

    proptest! {
        #[test]
        fn agrees_with_two_passes(values in prop::collection::vec(0..100_000_000_000u64, 2..200)) {
            let spread = of(&values);
            let len = values.len() as f64;
            let mean = values.iter().map(|&value| value as f64).sum::<f64>() / len / 1e9;
            let squares: f64 = values.iter().map(|&value| (value as f64 / 1e9 - mean).powi(2)).sum();
            let stdev = (squares / (len - 1.0)).sqrt();
            prop_assert!((spread.mean_secs() - mean).abs() < 1e-9 * mean.max(1.0));
            prop_assert!((spread.stdev_secs() - stdev).abs() < 1e-7 * stdev.max(1.0));
        }
    }
}
