//! How long a member of a group takes: a mean that forgets, and a cost that jumps up and decays.
//!
//! Takes latencies of exchanges that were served, gives numbers to compare members by. It must not know slots.

use telemetry::{Nanos, Stamp};

/// The mean is that of all until there were so many, then each one counts for one of so many. Fewer would make two
/// equal members look different by chance: services of a website vary by more than their mean.
const MEMORY: u32 = 256;
/// A mean of fewer is not compared with those of others.
const KNOWN_FROM: u32 = 8;
/// A member that nothing is sent to cannot show that it has recovered: after so long without a sample its
/// difference from the others counts half, and half again each time as much later.
const STALE: Nanos = Nanos::from_secs(10);
/// A peak decays to 1/e of its difference within this time (Finagle's default).
const PEAK_DECAY: Nanos = Nanos::from_secs(10);
/// A member is slow that takes at least so many times what is typical; less than that is chance.
const SLOW_FROM: f64 = 2.0;
/// One that has not ended anything for so many times that stands still.
const SILENT_FROM: f64 = 10.0;

/// The latency of one member.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Latency {
    mean_ns: f64,
    peak_ns: f64,
    len: u32,
    /// When the last sample came.
    at: Stamp,
}

impl Latency {
    /// An exchange took `latency` and ended at `now`.
    pub(super) fn observe(&mut self, now: Stamp, latency: Nanos) {
        let sample = latency.0 as f64;
        self.len = (self.len + 1).min(MEMORY);
        self.mean_ns += (sample - self.mean_ns) / f64::from(self.len);
        // A peak at once, because it may be the first sign of trouble, and good news slowly.
        self.peak_ns = if self.len == 1 || sample > self.peak_ns {
            sample
        } else {
            let passed = now.since(self.at).as_secs_f64();
            let kept = (-passed / PEAK_DECAY.as_secs_f64()).exp();
            self.peak_ns * kept + sample * (1.0 - kept)
        };
        self.at = now;
    }

    /// The mean; `None` while too few have ended.
    pub(super) fn mean_ns(&self) -> Option<f64> {
        (self.len >= KNOWN_FROM).then_some(self.mean_ns)
    }

    /// The mean of those there were, to break ties; 0 when there was none, so that an unknown member is tried.
    pub(super) fn rank_ns(&self) -> f64 {
        self.mean_ns
    }

    /// The decaying peak; `None` before the first sample.
    pub(super) fn peak_ns(&self) -> Option<f64> {
        (self.len > 0).then_some(self.peak_ns)
    }

    /// How many times slower than `typical_ns` the member is at `now`: 1 unless it is clearly slow. `silence` is how
    /// long it has had something in flight without an end: it takes at least so long at present.
    pub(super) fn slowness(&self, now: Stamp, typical_ns: f64, silence: Nanos) -> f64 {
        if typical_ns <= 0.0 {
            return 1.0;
        }
        let known = self.mean_ns().unwrap_or(0.0) / typical_ns;
        let halvings = (now.since(self.at).0 / STALE.0).min(32) as i32;
        let believed = 1.0 + (known - 1.0).max(0.0) / 2f64.powi(halvings);
        let silent = silence.0 as f64 / typical_ns;
        match (believed >= SLOW_FROM, silent >= SILENT_FROM) {
            (_, true) => believed.max(silent),
            (true, false) => believed,
            (false, false) => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(latencies_ms: &[u64]) -> Latency {
        let mut latency = Latency::default();
        for ms in latencies_ms {
            latency.observe(Stamp(1), Nanos::from_ms(*ms));
        }
        latency
    }

    #[test]
    fn the_mean_is_of_all_and_then_of_the_latest() {
        assert_eq!(of(&[10; 7]).mean_ns(), None);
        assert_eq!(of(&[10, 20].repeat(4)).mean_ns(), Some(15e6));
        let mut latency = of(&[10; 256]);
        for _ in 0..2_000 {
            latency.observe(Stamp(2), Nanos::from_ms(30));
        }
        assert!((latency.rank_ns() - 30e6).abs() < 0.1e6, "{latency:?}");
    }

    #[test]
    fn a_peak_counts_at_once_and_decays() {
        let mut latency = of(&[10, 500]);
        assert_eq!(latency.peak_ns(), Some(500e6));
        latency.observe(Stamp(1).plus(PEAK_DECAY), Nanos::from_ms(10));
        let peak = latency.peak_ns().unwrap_or(0.0);
        assert!((190e6..191e6).contains(&peak), "{peak}");
    }

    #[test]
    fn only_what_is_clearly_slow_is_slow_and_not_for_ever() {
        let slow = of(&[100; 8]);
        let check = |latency: Latency, secs, silence_ms, expect: f64| {
            let now = Stamp(1).plus(Nanos::from_secs(secs));
            let found = latency.slowness(now, 10e6, Nanos::from_ms(silence_ms));
            assert!((found - expect).abs() < 1e-9, "{latency:?}: {found}");
        };
        check(slow, 0, 0, 10.0);
        check(slow, 9, 0, 10.0);
        check(slow, 10, 0, 5.5);
        check(slow, 20, 0, 3.25);
        check(slow, 40, 0, 1.0);
        check(of(&[19; 8]), 0, 0, 1.0);
        check(of(&[100; 7]), 0, 0, 1.0);
        check(of(&[10; 8]), 0, 19, 1.0);
        check(of(&[10; 8]), 0, 99, 1.0);
        check(of(&[10; 8]), 0, 150, 15.0);
        assert!((slow.slowness(Stamp(1), 0.0, Nanos::from_secs(9)) - 1.0).abs() < 1e-9);
    }
}
