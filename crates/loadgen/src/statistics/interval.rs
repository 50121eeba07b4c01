//! Intervals from the figures of whole runs.
//!
//! Takes one number for each run, gives 95 % intervals. Latencies within a run follow each other like the lengths of a
//! queue, and a run says nothing of how it differs from the next one: formulas for independent values (the binomial one
//! for quantiles among them) say intervals that hold half the time or less, so there are none here.

/// Resamples of a bootstrap.
const RESAMPLES_LEN: usize = 10_000;
/// The same data give the same interval.
const SEED: u64 = 0x6d69_6c65_706f_7374;
/// Of the interval, outside at each end.
const TAIL: f64 = 0.025;

/// A 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// A mean and how well it is known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spread {
    pub(super) mean: f64,
    /// Variance of the mean.
    pub(super) variance: f64,
    /// Degrees of freedom of that variance.
    pub(super) freedom: f64,
}

impl Spread {
    /// Nought, and exactly so.
    pub(super) const NONE: Spread = Spread {
        mean: 0.0,
        variance: 0.0,
        freedom: 1.0,
    };
}

/// The mean of independent values; at least two.
pub(super) fn spread(values: &[f64]) -> Spread {
    assert!(values.len() > 1, "one value says nothing of its spread");
    let len = values.len() as f64;
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Spread {
        mean,
        variance: squares / (len - 1.0) / len,
        freedom: len - 1.0,
    }
}

/// Half the interval of a difference whose parts have these variances, each a mean's (Welch).
pub(super) fn welch_half(one: Spread, other: Spread) -> f64 {
    let sum = one.variance + other.variance;
    let parts = one.variance.powi(2) / one.freedom + other.variance.powi(2) / other.freedom;
    // Values that are all the same have no spread, and no degrees of freedom (0 / 0).
    if parts <= 0.0 {
        return 0.0;
    }
    t(sum.powi(2) / parts) * sum.sqrt()
}

/// The interval of a statistic by resampling whole runs: `draw` gives the statistic of one resample.
/// The percentile method.
pub(super) fn bootstrap(mut draw: impl FnMut(&mut fastrand::Rng) -> f64) -> Interval {
    let mut rng = fastrand::Rng::with_seed(SEED);
    let mut drawn: Vec<f64> = (0..RESAMPLES_LEN).map(|_| draw(&mut rng)).collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| drawn[((RESAMPLES_LEN - 1) as f64 * share).round() as usize];
    Interval {
        low: at(TAIL),
        high: at(1.0 - TAIL),
    }
}

/// As many of `values` as there are, each drawn from all of them, written into `drawn`.
pub(super) fn resample(values: &[f64], drawn: &mut Vec<f64>, rng: &mut fastrand::Rng) {
    drawn.clear();
    drawn.extend((0..values.len()).map(|_| values[rng.usize(..values.len())]));
}

/// The median; sorts them. Zero for none.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[half],
        _ => values[half - 1].midpoint(values[half]),
    }
}

/// Zero for none.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The value that Student's t with so many degrees of freedom does not exceed in 97.5 %, within 0.2 %.
pub(super) fn t(freedom: f64) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    const NORMAL: f64 = 1.960;
    let freedom = freedom.max(1.0);
    let below = freedom.floor().min(30.0);
    let lower = TABLE[below as usize - 1];
    // Nearly straight over 1/n.
    let (next, upper) = match TABLE.get(below as usize) {
        Some(upper) => (1.0 / (below + 1.0), *upper),
        None => (0.0, NORMAL),
    };
    let share = (1.0 / below - 1.0 / freedom) / (1.0 / below - next);
    lower + (upper - lower) * share
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn knows_student_s_t() {
        for (freedom, expect) in [
            (1.0, 12.706),
            (2.0, 4.303),
            (4.5, 2.659),
            (9.0, 2.262),
            (30.0, 2.042),
            (60.0, 2.000),
            (120.0, 1.980),
            (1e9, 1.960),
            (0.1, 12.706),
        ] {
            assert!((t(freedom) / expect - 1.0).abs() < 0.002, "{freedom}");
        }
    }

    #[test]
    fn gives_the_same_interval_for_the_same_values() {
        let draw = || {
            let mut drawn = Vec::new();
            bootstrap(|rng| {
                resample(&[1.0, 2.0, 3.0, 4.0, 5.0], &mut drawn, rng);
                median(&mut drawn)
            })
        };
        assert_eq!(draw(), draw());
        assert_eq!(
            draw(),
            Interval {
                low: 1.0,
                high: 5.0
            }
        );
    }

    proptest! {
        #[test]
        fn finds_the_median_as_by_counting(mut values in prop::collection::vec(-1e6..1e6f64, 1..50)) {
            let found = median(&mut values);
            let below = values.iter().filter(|value| **value < found).count();
            let above = values.iter().filter(|value| **value > found).count();
            prop_assert!(2 * below <= values.len() && 2 * above <= values.len());
        }
    }
}
