//! How long a server takes when it has about so many requests: what Prequal goes by.
//!
//! Takes latencies with the number of requests that the server had, gives an estimate for a number. It must not know
//! limits.

/// Numbers up to so many have a place each, greater ones share two for each power of two.
const EXACT: u32 = 8;
const PLACES: usize = 8 + 2 * 21;
/// Each sample counts for one of so many.
const MEMORY: f64 = 16.0;

/// Mean latencies by requests in flight.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct LatencyByLoad {
    /// 0: nothing is known.
    means: [f64; PLACES],
}

impl LatencyByLoad {
    pub(super) const fn new() -> LatencyByLoad {
        LatencyByLoad {
            means: [0.0; PLACES],
        }
    }

    /// A request took so long while the server had `load`.
    pub(super) fn observe(&mut self, load: u32, latency_ns: f64) {
        let mean = &mut self.means[place(load)];
        *mean = match *mean > 0.0 {
            true => *mean + (latency_ns - *mean) / MEMORY,
            false => latency_ns,
        };
    }

    /// What a request takes with `load`, or with the nearest number of which anything is known; 0 where nothing is.
    pub(super) fn at(&self, load: u32) -> f64 {
        let place = place(load);
        let known = |place: &usize| self.means[*place] > 0.0;
        let above = (place..PLACES).find(known);
        let below = (0..place).rev().find(known);
        let nearest = match (below, above) {
            (Some(below), Some(above)) if place - below < above - place => Some(below),
            (below, above) => above.or(below),
        };
        nearest.map_or(0.0, |place| self.means[place])
    }
}

fn place(load: u32) -> usize {
    if load < EXACT {
        return load as usize;
    }
    let power = load.ilog2();
    let is_upper = load >> (power - 1) & 1;
    let place = 2 * (power - EXACT.ilog2()) + is_upper;
    (EXACT + place).min(PLACES as u32 - 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_grow_with_the_load() {
        let check = |load, expect| assert_eq!(place(load), expect, "{load}");
        check(0, 0);
        check(7, 7);
        check(8, 8);
        check(11, 8);
        check(12, 9);
        check(15, 9);
        check(16, 10);
        check(u32::MAX, PLACES - 1);
    }

    #[test]
    fn the_nearest_number_that_is_known_counts() {
        let mut latency = LatencyByLoad::new();
        assert_eq!(latency.at(3), 0.0);
        latency.observe(2, 10.0);
        latency.observe(6, 50.0);
        latency.observe(6, 66.0);
        assert_eq!(
            [0, 2, 3, 4, 5, 100].map(|load| latency.at(load)),
            [10.0, 10.0, 10.0, 51.0, 51.0, 51.0]
        );
    }
}
