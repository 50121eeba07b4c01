//! Durations, counted: percentiles to three digits, and the exact longest.
//!
//! Takes nanoseconds, gives nanoseconds.

use hdrhistogram::Histogram;

/// Significant digits.
const DIGITS: u8 = 3;
/// Ten days: for percentiles, what takes longer counts as this.
const SPAN_MAX_NS: u64 = 864_000_000_000_000;

/// Counted durations.
#[derive(Clone, PartialEq, Debug)]
pub struct Spans {
    histogram: Histogram<u64>,
    max_ns: u64,
}

impl Spans {
    /// None yet.
    pub fn new() -> Spans {
        let histogram = Histogram::new_with_bounds(1, SPAN_MAX_NS, DIGITS);
        Spans {
            histogram: histogram.expect("the bounds are in its bounds"),
            max_ns: 0,
        }
    }

    /// Counts one.
    pub fn record(&mut self, span_ns: u64) {
        self.histogram.saturating_record(span_ns);
        self.max_ns = self.max_ns.max(span_ns);
    }

    /// Counts all of the others as well.
    pub fn add(&mut self, others: &Spans) {
        self.histogram
            .add(&others.histogram)
            .expect("all histograms have the same bounds");
        self.max_ns = self.max_ns.max(others.max_ns);
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The mean; 0 of none.
    pub fn mean(&self) -> f64 {
        self.histogram.mean()
    }

    /// The shortest; 0 of none.
    pub fn min(&self) -> u64 {
        self.histogram.min()
    }

    /// The longest, exactly; 0 of none.
    pub fn max(&self) -> u64 {
        self.max_ns
    }

    /// The least that so large a share of all is within.
    pub fn value_at_quantile(&self, share: f64) -> u64 {
        // The end of a range of durations that count as one: it may lie beyond the longest.
        self.histogram.value_at_quantile(share).min(self.max_ns)
    }
}

impl Default for Spans {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<u64> for Spans {
    fn from_iter<T: IntoIterator<Item = u64>>(spans_ns: T) -> Self {
        let mut spans = Spans::new();
        for span_ns in spans_ns {
            spans.record(span_ns);
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_exact_and_nothing_is_longer() {
        let mut spans: Spans = [1_000, 504_369_123].into_iter().collect();
        assert_eq!(spans.max(), 504_369_123);
        assert_eq!(spans.value_at_quantile(1.0), 504_369_123);
        spans.add(&[504_369_124].into_iter().collect());
        assert_eq!((spans.len(), spans.max()), (3, 504_369_124));
        assert_eq!(Spans::new().max(), 0);
    }
}
