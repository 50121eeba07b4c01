//! Count, mean, stdev, minimum and maximum, exact, in one pass.
//!
//! Welford's recurrence for one thread, Chan's for merging: neither loses digits as sums of squares do.

/// Count, mean, stdev, minimum and maximum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moments {
    len: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
    min: f64,
    max: f64,
}

impl Default for Moments {
    fn default() -> Moments {
        Moments {
            len: 0,
            mean: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

impl Moments {
    /// Counts one.
    #[inline]
    pub fn record(&mut self, value: f64) {
        self.len += 1;
        let distance = value - self.mean;
        self.mean += distance / self.len as f64;
        self.squares += distance * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Counts those of `other` as well.
    pub fn merge(&mut self, other: &Moments) {
        if other.len == 0 {
            return;
        }
        let (mine, theirs) = (self.len as f64, other.len as f64);
        let distance = other.mean - self.mean;
        self.len += other.len;
        self.mean += distance * theirs / (mine + theirs);
        self.squares += other.squares + distance * distance * mine * theirs / (mine + theirs);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Zero for none.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// With n − 1; zero for fewer than two.
    pub fn stdev(&self) -> f64 {
        if self.len < 2 {
            0.0
        } else {
            (self.squares / (self.len - 1) as f64).sqrt()
        }
    }

    /// Zero for none.
    pub fn min(&self) -> f64 {
        if self.len == 0 { 0.0 } else { self.min }
    }

    /// Zero for none.
    pub fn max(&self) -> f64 {
        if self.len == 0 { 0.0 } else { self.max }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Mean and variance of integers without a rounding but the last one.
    fn exact(values: &[u64]) -> (f64, f64) {
        let len = values.len() as u128;
        let sum: u128 = values.iter().map(|&value| u128::from(value)).sum();
        let squares: u128 = values.iter().map(|&value| u128::from(value).pow(2)).sum();
        let spread = (len * squares - sum * sum) as f64;
        let variance = spread / (len * (len - 1).max(1)) as f64;
        (sum as f64 / len as f64, variance)
    }

    fn all_of(values: &[u64]) -> Moments {
        let mut moments = Moments::default();
        let each = values.iter();
        each.for_each(|&value| moments.record(value as f64));
        moments
    }

    fn check(moments: &Moments, values: &[u64]) {
        let (mean, variance) = exact(values);
        let (stdev, most) = (variance.sqrt(), moments.max());
        assert_eq!(moments.len(), values.len() as u64);
        assert!(
            (moments.mean() - mean).abs() <= 1e-12 * most,
            "{moments:?} and not {mean}"
        );
        let off = (moments.stdev() - stdev).abs();
        assert!(
            off <= 1e-9 * stdev + 1e-12 * most,
            "{moments:?} and not {stdev}"
        );
        // Integers below 2^53: no rounding at all.
        assert_eq!(Some(moments.min() as u64), values.iter().min().copied());
        assert_eq!(Some(moments.max() as u64), values.iter().max().copied());
    }

    #[test]
    fn says_zero_of_nothing() {
        let mut none = Moments::default();
        none.merge(&Moments::default());
        let said = [none.mean(), none.stdev(), none.min(), none.max()];
        assert!(none.is_empty() && said.iter().all(|&zero| zero == 0.0));
        let mut one = all_of(&[7]);
        one.merge(&none);
        none.merge(&one);
        assert_eq!(none, one);
        assert_eq!((one.mean(), one.stdev(), one.len()), (7.0, 0.0, 1));
    }

    #[test]
    fn loses_no_digits_far_from_zero() {
        // A sum of squares would be rounded by 2^47 here, the spread is 1.
        let base = 1 << 50;
        let values = [base, base + 1, base + 2].repeat(1000);
        check(&all_of(&values), &values);
    }

    proptest! {
        #[test]
        fn equals_a_direct_computation_in_any_split(
            values in prop::collection::vec(prop_oneof![0u64..10, 0u64..1 << 20, 0u64..1 << 50], 1..300),
            parts in 1usize..9,
        ) {
            check(&all_of(&values), &values);
            let mut by_turns = Moments::default();
            for part in 0..parts {
                let theirs: Vec<u64> = values.iter().copied().skip(part).step_by(parts).collect();
                by_turns.merge(&all_of(&theirs));
            }
            check(&by_turns, &values);
            let mut in_pieces = Moments::default();
            let pieces = values.chunks(values.len().div_ceil(parts));
            pieces.for_each(|piece| in_pieces.merge(&all_of(piece)));
            check(&in_pieces, &values);
        }
    }
}
