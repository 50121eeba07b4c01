//! Whether a pool is saturated or overloaded: CoDel's test.
//!
//! Takes what a pool looks like once a tick, gives its pressure. It must not know sizes.
//!
//! The minimum wait of an interval, not a mean or a percentile, tells a standing queue from a passing burst
//! (Nichols and Jacobson, Controlling Queue Delay, 2012; RFC 8289 section 3.2): after a burst some request
//! hardly waited, in a standing queue every request did.

use std::collections::VecDeque;

use telemetry::{Nanos, Stamp};

use super::{PoolSeen, Pressure};

/// Ticks that saturation is judged by: a second.
const SATURATION_LEN: u32 = 10;
/// So many late ones of them begin it, and so few end it: between them things stay as they are.
const SATURATED_FROM: u32 = 8;
const SATURATED_ABOVE: u32 = 2;
/// Ticks that overload is judged by: half a second.
const OVERLOAD_LEN: u32 = 5;
/// Overload lasts until nobody was refused for so many ticks, or what came in them is less than the pool drains
/// by more than chance makes of it: where shedding works waits are short, and that says nothing about what would
/// come of the queue without it. Refusals alone would not do: where little time is left to those who wait, a pool
/// with half its load refuses somebody now and then.
const REFUSALS_LEN: u32 = 5;
/// How much chance makes of a number of arrivals, in square roots of it.
const CHANCE: f64 = 2.0;

/// ```text
///         oldest late in 8 of 10          least wait of 0.5 s late
///   Calm ───────────────────────▶ Saturated ───────────────────▶ Overloaded
///        ◀───────────────────────           ◀───────────────────
///         oldest late in 2 of 10             a request in time, and for 0.5 s
///                                            none refused, or fewer came than drain
/// ```
#[derive(Clone, Debug, Default)]
pub(super) struct OverloadDetector {
    /// A bit for each tick, the latest the lowest: the oldest had waited longer than the target.
    late: u32,
    /// Likewise: everybody had.
    standing: u32,
    /// Likewise: somebody was refused.
    refusals: u32,
    /// Exchanges refused by the last tick.
    refused: u64,
    /// What had come and was completed or refused by the last ticks, `REFUSALS_LEN` and one at most.
    dealt_with: VecDeque<(Stamp, u64)>,
    pressure: Pressure,
}

impl OverloadDetector {
    /// What a tick saw, of a pool that drains at `per_second` as far as is known.
    pub(super) fn observe(
        &mut self,
        now: Stamp,
        seen: &PoolSeen,
        target: Nanos,
        per_second: Option<f64>,
    ) -> Pressure {
        let least = match seen.waiting {
            0 => Nanos::ZERO,
            // When all threads hang nobody leaves the queue: the age of the oldest speaks for it.
            _ => seen.waits.wait_min.unwrap_or(seen.oldest_wait),
        };
        self.late = shifted(self.late, seen.oldest_wait > target, SATURATION_LEN);
        self.standing = shifted(self.standing, least > target, OVERLOAD_LEN);
        self.refusals = shifted(self.refusals, seen.refused > self.refused, REFUSALS_LEN);
        self.refused = seen.refused;
        if self.dealt_with.len() > REFUSALS_LEN as usize {
            self.dealt_with.pop_front();
        }
        let dealt_with = seen.completed + seen.refused;
        self.dealt_with.push_back((now, dealt_with));
        self.pressure = self.next(per_second);
        self.pressure
    }

    fn next(&self, per_second: Option<f64>) -> Pressure {
        let late = self.late.count_ones();
        let is_saturated = match self.pressure {
            Pressure::Calm => late >= SATURATED_FROM,
            Pressure::Saturated => late > SATURATED_ABOVE,
            Pressure::Overloaded => true,
        };
        let is_shedding = self.pressure == Pressure::Overloaded
            && self.refusals != 0
            && !self.is_less_than(per_second);
        match is_saturated {
            true if is_shedding || self.standing.count_ones() == OVERLOAD_LEN => {
                Pressure::Overloaded
            }
            true => Pressure::Saturated,
            false => Pressure::Calm,
        }
    }

    /// Whether what came of late would have been served, all of it, at such a rate.
    fn is_less_than(&self, per_second: Option<f64>) -> bool {
        let ends = self.dealt_with.front().zip(self.dealt_with.back());
        let (Some(per_second), Some(((then, before), (now, after)))) = (per_second, ends) else {
            return false;
        };
        let came = after.saturating_sub(*before) as f64;
        came + CHANCE * came.sqrt() < per_second * now.since(*then).as_secs_f64()
    }
}

fn shifted(bits: u32, bit: bool, len: u32) -> u32 {
    (bits << 1 | u32::from(bit)) & ((1 << len) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WaitsSeen;

    const TARGET: Nanos = Nanos::from_ms(50);

    fn at(tick: usize) -> Stamp {
        Stamp(1 + tick as u64 * crate::TICK.0)
    }

    /// The pressure after ticks of (waiting, age of the oldest, least wait of those taken), in ms.
    fn check(ticks: &[(usize, u64, Option<u64>)], expect: Pressure) {
        let mut detector = OverloadDetector::default();
        let mut found = Pressure::Calm;
        for (index, &(waiting, oldest_ms, least_ms)) in ticks.iter().enumerate() {
            let seen = PoolSeen {
                waiting,
                oldest_wait: Nanos::from_ms(oldest_ms),
                waits: WaitsSeen {
                    wait_min: least_ms.map(Nanos::from_ms),
                    ..WaitsSeen::default()
                },
                ..PoolSeen::default()
            };
            found = detector.observe(at(index), &seen, TARGET, None);
        }
        assert_eq!(found, expect, "{ticks:?}");
    }

    fn repeated<T: Clone>(runs: &[(usize, T)]) -> Vec<T> {
        let runs = runs.iter();
        runs.flat_map(|(len, tick)| std::iter::repeat_n(tick.clone(), *len))
            .collect()
    }

    /// A detector of an overloaded pool that drains 200 a second, by what a tick sees: how many wait and for how
    /// long, what was completed and refused since the one before.
    fn overloaded() -> impl FnMut(usize, u64, u64, u64) -> Pressure {
        let mut detector = OverloadDetector::default();
        let mut seen = PoolSeen::default();
        let mut ticks = 0;
        let mut tick = move |waiting: usize, oldest_ms: u64, completed: u64, refused: u64| {
            seen.waiting = waiting;
            seen.oldest_wait = Nanos::from_ms(oldest_ms);
            seen.completed += completed;
            seen.refused += refused;
            ticks += 1;
            detector.observe(at(ticks), &seen, TARGET, Some(200.0))
        };
        let found = (0..10).map(|_| tick(9, 80, 20, 0)).last();
        assert_eq!(found, Some(Pressure::Overloaded));
        tick
    }

    #[test]
    fn overload_lasts_while_somebody_is_refused() {
        let mut tick = overloaded();
        // Shedding keeps waits short; what comes is too much all the same.
        assert!((0..50).all(|_| tick(1, 10, 20, 3) == Pressure::Overloaded));
        assert!((0..4).all(|_| tick(0, 0, 20, 0) == Pressure::Overloaded));
        assert_ne!(tick(0, 0, 20, 0), Pressure::Overloaded);
        // Refusals alone, such as those of a short queue, are no overload.
        assert_ne!(tick(1, 10, 20, 3), Pressure::Overloaded);
    }

    #[test]
    fn overload_ends_when_less_comes_than_drains() {
        // Whether it has ended a second after so many are completed and refused a tick.
        let ends = |completed, refused| {
            let mut tick = overloaded();
            let found = (0..10).map(|_| tick(0, 0, completed, refused)).last();
            found != Some(Pressure::Overloaded)
        };
        assert!(ends(10, 1));
        assert!(ends(14, 1));
        // So much may be chance.
        assert!(!ends(17, 1));
        assert!(!ends(20, 20));
        // Threads that hang drain nothing.
        assert!(!ends(0, 40));
    }

    #[test]
    fn a_short_wait_in_half_a_second_is_no_overload() {
        let (late, quick) = ((9, 80, Some(60)), (9, 80, Some(3)));
        check(&repeated(&[(7, late)]), Pressure::Calm);
        check(&repeated(&[(8, late)]), Pressure::Overloaded);
        check(&repeated(&[(12, quick)]), Pressure::Saturated);
        check(&repeated(&[(8, late), (1, quick)]), Pressure::Saturated);
        let again = [(8, late), (1, quick), (4, late)];
        check(&repeated(&again), Pressure::Saturated);
        let again = [(8, late), (1, quick), (5, late)];
        check(&repeated(&again), Pressure::Overloaded);
    }

    #[test]
    fn a_burst_that_passes_is_no_pressure() {
        let (late, empty) = ((20, 300, Some(60)), (0, 0, Some(60)));
        check(
            &repeated(&[(7, late), (3, empty), (7, late)]),
            Pressure::Calm,
        );
        let every_other: Vec<_> = repeated(&[(20, [late, empty])]).concat();
        check(&every_other, Pressure::Calm);
    }

    #[test]
    fn ages_speak_when_nobody_leaves_the_queue() {
        check(&repeated(&[(8, (3, 51, None))]), Pressure::Overloaded);
        check(&repeated(&[(8, (3, 50, None))]), Pressure::Calm);
    }

    #[test]
    fn calm_returns_only_when_waits_are_short_for_most_of_a_second() {
        let (late, empty) = ((9, 80, Some(60)), (0, 0, None));
        check(&repeated(&[(10, late), (7, empty)]), Pressure::Saturated);
        check(&repeated(&[(10, late), (8, empty)]), Pressure::Calm);
    }
}
