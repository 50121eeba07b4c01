//! How unevenly requests come: the variance of their numbers in windows of time over its mean.
//!
//! Takes moments of arrivals in their order, and the rates that are expected, gives the index of dispersion for
//! windows of one length. 1 is chance, 0 is a clock, more is bursts. Keeps nothing.

use telemetry::Nanos;
use whatif::Rate;

/// Counts arrivals in windows of one length, one after another.
#[derive(Clone, Debug)]
pub(super) struct Dispersion {
    window_ns: u64,
    lasts_ns: u64,
    current: u64,
    count: u64,
    sum: u64,
    squares: f64,
}

/// What was found in windows of one length.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spread {
    pub(super) window: Nanos,
    /// Windows that were complete.
    pub(super) windows_len: u64,
    /// Variance over mean; `None` where there were too few windows, or no requests.
    pub(super) index: Option<f64>,
}

/// With fewer, the variance is an accident.
const WINDOWS_LEN_MIN: u64 = 20;

impl Dispersion {
    pub(super) fn new(window: Nanos, lasts: Nanos) -> Dispersion {
        Dispersion {
            window_ns: window.0,
            lasts_ns: lasts.0,
            current: 0,
            count: 0,
            sum: 0,
            squares: 0.0,
        }
    }

    fn windows_len(&self) -> u64 {
        self.lasts_ns / self.window_ns
    }

    /// One more; moments never go back.
    pub(super) fn see(&mut self, at: u64) {
        let window = at / self.window_ns;
        if window >= self.windows_len() {
            return;
        }
        if window != self.current {
            self.close();
            self.current = window;
        }
        self.count += 1;
    }

    fn close(&mut self) {
        self.sum += self.count;
        self.squares += (self.count as f64).powi(2);
        self.count = 0;
    }

    /// When the mean is the same all the time: what drifts counts as unevenness, too.
    pub(super) fn around_mean(mut self) -> Spread {
        self.close();
        let len = self.windows_len() as f64;
        let mean = self.sum as f64 / len;
        let index = (self.squares / len - mean * mean) / mean;
        self.spread(index)
    }

    fn spread(&self, index: f64) -> Spread {
        let is_known = self.windows_len() >= WINDOWS_LEN_MIN && index.is_finite();
        Spread {
            window: Nanos(self.window_ns),
            windows_len: self.windows_len(),
            index: is_known.then_some(index.max(0.0)),
        }
    }
}

/// When `rates` are expected: only what is uneven beyond them counts. `at` is sorted.
pub(super) fn around_rates(at: &[u64], window: Nanos, rates: &[Rate]) -> Spread {
    let (mut begin, mut windows_len) = (0, 0);
    let (mut deviations, mut expected) = (0.0, 0.0);
    for rate in rates {
        // Windows that lie within one step: its own ends are left out.
        let end = begin + rate.lasts.0;
        let from = at.partition_point(|at| *at < begin);
        let to = at.partition_point(|at| *at < end);
        let mut counts = Dispersion::new(window, rate.lasts);
        for at in &at[from..to] {
            counts.see(at - begin);
        }
        counts.close();
        let (len, mean) = (counts.windows_len(), rate.per_second * window.as_secs_f64());
        let len_f64 = len as f64;
        deviations += counts.squares - 2.0 * mean * counts.sum as f64 + len_f64 * mean * mean;
        expected += len_f64 * mean;
        windows_len += len;
        begin = end;
    }
    let index = deviations / expected;
    let is_known = windows_len >= WINDOWS_LEN_MIN && index.is_finite();
    Spread {
        window,
        windows_len,
        index: is_known.then_some(index.max(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn around_mean(at: &[u64], window_ms: u64, lasts_ms: u64) -> Option<f64> {
        let mut dispersion = Dispersion::new(Nanos::from_ms(window_ms), Nanos::from_ms(lasts_ms));
        for at in at {
            dispersion.see(*at);
        }
        dispersion.around_mean().index
    }

    #[test]
    fn a_clock_has_none_and_pairs_have_one() {
        let clock: Vec<u64> = (0..100).map(|index| index * MS).collect();
        assert_eq!(around_mean(&clock, 1, 100), Some(0.0));
        // Two in every second window: mean 1, variance 1.
        let pairs: Vec<u64> = (0..100).map(|index| index / 2 * 2 * MS).collect();
        assert_eq!(around_mean(&pairs, 1, 100), Some(1.0));
        assert_eq!(around_mean(&pairs, 2, 100), Some(0.0));
        // Ten windows say nothing, and no requests neither.
        assert_eq!(around_mean(&pairs, 10, 100), None);
        assert_eq!(around_mean(&[], 1, 100), None);
    }

    #[test]
    fn what_is_expected_is_not_uneven() {
        let steady = |per_second| Rate::steady(per_second, Nanos::from_ms(100));
        let slow = (0..100).map(|index| index * MS);
        let fast = (0..200).map(|index| 100 * MS + index * MS / 2);
        let at: Vec<u64> = slow.chain(fast).collect();
        let window = Nanos::from_ms(4);
        let found = around_rates(&at, window, &[steady(1_000.0), steady(2_000.0)]);
        assert_eq!((found.index, found.windows_len), (Some(0.0), 50));
        assert!(around_mean(&at, 4, 200).unwrap() > 0.5);
    }
}
