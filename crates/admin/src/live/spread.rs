//! Counts of durations, as differences of what the server has counted: they are added as they come, and taken away again
//! when their minute is over.

use std::collections::BTreeMap;

use telemetry::{Nanos, Snapshot, nearest_rank};

/// Durations of a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread {
    /// How many there are.
    pub(crate) len: u64,
    /// All together.
    pub(crate) sum_ns: u64,
    /// Number and count of each bucket that is not empty, as in `telemetry::Snapshot::counts`.
    buckets: BTreeMap<u16, u64>,
}

impl Spread {
    /// From the number and the count of each bucket.
    pub(crate) fn of(counts: impl IntoIterator<Item = (u16, u64)>, sum_ns: u64) -> Spread {
        let buckets: BTreeMap<u16, u64> = counts.into_iter().collect();
        Spread {
            len: buckets.values().copied().fold(0, u64::saturating_add),
            sum_ns,
            buckets,
        }
    }

    /// What this has more than another one; nothing where it has less.
    pub(crate) fn minus(&self, earlier: &Spread) -> Spread {
        let more = self.buckets.iter().filter_map(|(bucket, count)| {
            let before = earlier.buckets.get(bucket).copied().unwrap_or(0);
            let more = count.saturating_sub(before);
            (more > 0).then_some((*bucket, more))
        });
        Spread::of(more, self.sum_ns.saturating_sub(earlier.sum_ns))
    }

    pub(crate) fn add(&mut self, other: &Spread) {
        self.len = self.len.saturating_add(other.len);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        for (&bucket, &count) in &other.buckets {
            let known = self.buckets.entry(bucket).or_default();
            *known = known.saturating_add(count);
        }
    }

    /// The opposite of `add`.
    pub(crate) fn take_away(&mut self, other: &Spread) {
        self.len = self.len.saturating_sub(other.len);
        self.sum_ns = self.sum_ns.saturating_sub(other.sum_ns);
        for (bucket, count) in &other.buckets {
            if let Some(known) = self.buckets.get_mut(bucket) {
                *known = known.saturating_sub(*count);
                if *known == 0 {
                    self.buckets.remove(bucket);
                }
            }
        }
    }

    pub(crate) fn mean_secs(&self) -> f64 {
        match self.len {
            0 => 0.0,
            len => Nanos(self.sum_ns).as_secs_f64() / len as f64,
        }
    }

    /// The durations that these shares of all do not exceed, in seconds; 0 when empty. Within 1.6 %.
    pub(crate) fn quantiles_secs<const LEN: usize>(&self, shares: [f64; LEN]) -> [f64; LEN] {
        let buckets = self.snapshot();
        shares.map(|share| {
            let rank = nearest_rank(share, self.len).max(1);
            let mut passed = 0;
            let found = buckets.buckets().find(|(_, count)| {
                passed += count;
                passed >= rank
            });
            found.map_or(0.0, |(middle, _)| middle.as_secs_f64())
        })
    }

    /// How many durations lie up to each bound, which grow, and above the one before; the last: above all.
    pub(crate) fn counts_between<const LEN: usize>(&self, bounds: [Nanos; LEN]) -> Vec<u64> {
        let buckets = self.snapshot();
        let mut passed = 0;
        let ends = buckets.counts_up_to(bounds).chain([self.len]);
        ends.map(|end| {
            let between = end.saturating_sub(passed);
            passed = end.max(passed);
            between
        })
        .collect()
    }

    fn snapshot(&self) -> Snapshot {
        let buckets: Vec<(u16, u64)> = self.buckets.iter().map(|(&at, &len)| (at, len)).collect();
        // Extremes are not known of a difference; nothing here reads them. Another version may have other buckets.
        let found =
            Snapshot::from_counts(&buckets, Nanos(self.sum_ns), Nanos::ZERO, Nanos(u64::MAX));
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(spans_ms: &[u64]) -> Spread {
        let mut all = Snapshot::default();
        spans_ms
            .iter()
            .for_each(|span| all.record(Nanos::from_ms(*span)));
        Spread::of(all.counts(), all.sum().0)
    }

    #[test]
    fn is_what_has_come_since() {
        let found = spread(&[1, 1, 5, 200, 200]).minus(&spread(&[1, 200]));
        assert_eq!(found, spread(&[1, 5, 200]));
        // A server that has begun anew has counted less.
        let found = spread(&[1]).minus(&spread(&[1, 1]));
        assert_eq!(found, Spread::default());
    }

    #[test]
    fn what_was_added_can_be_taken_away() {
        let mut all = spread(&[1, 2, 3]);
        all.add(&spread(&[3, 400]));
        assert_eq!(all, spread(&[1, 2, 3, 3, 400]));
        all.take_away(&spread(&[3, 400]));
        assert_eq!(all, spread(&[1, 2, 3]));
        all.take_away(&spread(&[1, 2, 3]));
        assert_eq!(all, Spread::default());
    }

    #[test]
    fn tells_quantiles_and_ranges() {
        let spans: Vec<u64> = (1..=100).collect();
        let all = spread(&spans);
        let [median, high, top] = all.quantiles_secs([0.5, 0.99, 1.0]);
        for (found, expect) in [(median, 0.050), (high, 0.099), (top, 0.100)] {
            assert!(
                (found - expect).abs() < 0.016 * expect,
                "{found} for {expect}"
            );
        }
        assert_eq!(Spread::default().quantiles_secs([0.5]), [0.0]);
        assert!((all.mean_secs() - 0.0505).abs() < 1e-9);
        let bounds = [5, 20, 50].map(Nanos::from_ms);
        assert_eq!(
            spread(&[1, 2, 7, 300, 301, 302]).counts_between(bounds),
            [2, 1, 0, 3]
        );
    }
}
