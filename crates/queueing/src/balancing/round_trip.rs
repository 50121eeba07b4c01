//! What a request and its response spend on their way to and from one server: the least of the latest responses.
//!
//! The least, and not the mean: what is longer is a wait somewhere, which more requests at once would only make longer.

use telemetry::Nanos;

/// Responses after which a least one begins to be forgotten.
const TURN: u32 = 128;

/// The least of the last 128 to 256 responses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    /// Of this turn, and of the one before.
    least: [Option<Nanos>; 2],
    count: u32,
}

impl RoundTrip {
    /// A response was so long on its way.
    pub(super) fn observe(&mut self, way: Nanos) {
        if self.count == TURN {
            self.least = [None, self.least[0]];
            self.count = 0;
        }
        self.count += 1;
        let least = self.least[0].map_or(way, |least| least.min(way));
        self.least[0] = Some(least);
    }

    /// `None`: no response has told.
    pub(super) fn least(&self) -> Option<Nanos> {
        self.least.iter().flatten().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_the_latest_counts() {
        let mut way = RoundTrip::default();
        assert_eq!(way.least(), None);
        way.observe(Nanos(50));
        way.observe(Nanos(20));
        way.observe(Nanos(90));
        assert_eq!(way.least(), Some(Nanos(20)));
        // The server has moved further away.
        (0..TURN).for_each(|_| way.observe(Nanos(70)));
        assert_eq!(way.least(), Some(Nanos(20)));
        (0..TURN).for_each(|_| way.observe(Nanos(70)));
        assert_eq!(way.least(), Some(Nanos(70)));
    }
}
