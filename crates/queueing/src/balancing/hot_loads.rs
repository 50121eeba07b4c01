//! From how many requests on a server is hot: a quantile of those that servers had of late.
//!
//! Takes counts, gives a bound. It must not know which server a count is of.

/// Counts that are kept.
const LEN: usize = 64;
/// The share of them that is not hot (Prequal's Q_RIF).
const COLD_SHARE: f64 = 0.84;

/// The latest counts of requests in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HotLoads {
    counts: [u32; LEN],
    len: usize,
    next: usize,
}

impl HotLoads {
    pub(super) const fn new() -> HotLoads {
        HotLoads {
            counts: [0; LEN],
            len: 0,
            next: 0,
        }
    }

    pub(super) fn observe(&mut self, in_flight: u32) {
        self.counts[self.next] = in_flight;
        self.next = (self.next + 1) % LEN;
        self.len = (self.len + 1).min(LEN);
    }

    /// A server with more requests than this is hot.
    pub(super) fn bound(&self) -> u32 {
        if self.len == 0 {
            return u32::MAX;
        }
        let mut counts = self.counts;
        let counts = &mut counts[..self.len];
        let rank = ((self.len as f64 * COLD_SHARE) as usize).min(self.len - 1);
        *counts.select_nth_unstable(rank).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_of_a_hundred_are_hot() {
        let mut loads = HotLoads::new();
        assert_eq!(loads.bound(), u32::MAX);
        loads.observe(7);
        assert_eq!(loads.bound(), 7);
        (0..1_000).for_each(|count| loads.observe(count));
        // The last 64 are 936 to 999.
        assert_eq!(loads.bound(), 936 + 53);
    }
}
