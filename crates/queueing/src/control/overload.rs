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
const REFUSALS_SPAN: Nanos = Nanos(REFUSALS_LEN as u64 * super::TICK.0);
/// How much chance makes of a number of arrivals, in square roots of it.
const CHANCE: f64 = 2.0;
/// The same for the later half of the time, which has fewer: a client or two that come late are no overload.
const LATE_CHANCE: f64 = 1.5;
/// Arrivals and completions are compared over this time at least: in it a page with all that belongs to it has come.
const FLOW_SPAN_MIN: Nanos = Nanos::from_secs(1);
/// And over this many runs, where those are longer: four threads complete four of them in one.
const FLOW_RUNS: u64 = 3;
/// But never over more than this, which bounds what is remembered.
const FLOW_SPAN_MAX: Nanos = Nanos::from_secs(30);
/// More arrive than are completed when two ticks in a row show it: one alone may come between a run that the
/// application has ended by itself, by the last bytes of its response, and the count of it.
const RISING_LEN: u32 = 2;

/// ```text
///                                            least wait of 0.5 s late, and
///         oldest late in 8 of 10             more arrive than are completed
///   Calm ───────────────────────▶ Saturated ───────────────────▶ Overloaded
///        ◀───────────────────────           ◀───────────────────
///         oldest late in 2 of 10             a request in time, or no more arrive; and for
///                                            0.5 s none refused, or fewer came than drain
/// ```
#[derive(Clone, Debug, Default)]
pub(super) struct OverloadDetector {
    /// A bit for each tick, the latest the lowest: the oldest had waited longer than the target.
    late: u32,
    /// Likewise: everybody had.
    standing: u32,
    /// Likewise: more arrived than was completed, and more wait than run.
    rising: u32,
    /// Likewise: somebody was refused.
    refusals: u32,
    /// Exchanges refused by the last tick.
    refused: u64,
    /// What had arrived and was completed by the last ticks.
    totals: VecDeque<Totals>,
    pressure: Pressure,
}

/// What had arrived and was completed by a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Totals {
    at: Stamp,
    arrived: u64,
    completed: u64,
}

/// What arrived and was completed in a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Flow {
    lasted: Nanos,
    arrived: u64,
    completed: u64,
}

/// The longest wait under overload where nobody says otherwise, by the median of the last runs: a second, which is
/// what people wait for before they reload the page, or three runs.
pub(super) fn timeout_of_runs(median: Nanos) -> Nanos {
    FLOW_SPAN_MIN.max(Nanos(median.0.saturating_mul(FLOW_RUNS)))
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
        let is_old = |totals: &Totals| now.since(totals.at) > FLOW_SPAN_MAX;
        while self.totals.front().is_some_and(is_old) {
            self.totals.pop_front();
        }
        self.totals.push_back(Totals {
            at: now,
            arrived: seen.arrived,
            completed: seen.completed,
        });
        let span = timeout_of_runs(seen.waits.run_median.unwrap_or(Nanos::ZERO));
        // Where no more wait than run, each waits for one run, however long the runs have become: that is no overload,
        // even if arrivals a moment apart look as if they went on.
        let is_long = seen.waiting > seen.running;
        self.rising = shifted(self.rising, is_long && self.is_rising(span), RISING_LEN);
        self.pressure = self.next(per_second);
        self.pressure
    }

    fn next(&self, per_second: Option<f64>) -> Pressure {
        let late = self.late.count_ones();
        let is_rising = self.rising.count_ones() == RISING_LEN;
        // More is asked to become saturated than to stay so: a pressure on the edge does not change at each tick.
        let is_saturated = match self.pressure {
            Pressure::Calm => late >= SATURATED_FROM,
            Pressure::Saturated => late > SATURATED_ABOVE,
            Pressure::Overloaded => true,
        };
        let is_shedding = self.pressure == Pressure::Overloaded
            && self.refusals != 0
            && !self.is_less_than(per_second);
        match is_saturated {
            // While refusals go on the overload does, even with a short queue: the queue is short because of them.
            true if is_shedding => Pressure::Overloaded,
            true if is_rising && self.standing.count_ones() == OVERLOAD_LEN => Pressure::Overloaded,
            true => Pressure::Saturated,
            false => Pressure::Calm,
        }
    }

    /// Whether more arrived than was completed within `span`, by more than chance makes of it, and still does in
    /// the later half of it: what came at once and is worked off is long, and no overload. Clients each of
    /// which waits for its reply before it asks again never make it rise, however many they are.
    fn is_rising(&self, span: Nanos) -> bool {
        let (all, late) = (self.flow(span), self.flow(Nanos(span.0 / 2)));
        let is_more = |flow: Flow, chance: f64| {
            let arrived = flow.arrived as f64;
            arrived > flow.completed as f64 + chance * arrived.sqrt()
        };
        is_more(all, CHANCE) && is_more(late, LATE_CHANCE)
    }

    /// Whether what came of late would have been served, all of it, at such a rate.
    fn is_less_than(&self, per_second: Option<f64>) -> bool {
        let late = self.flow(REFUSALS_SPAN);
        let came = late.arrived as f64;
        let drained = per_second.map(|per_second| per_second * late.lasted.as_secs_f64());
        drained.is_some_and(|drained| came + CHANCE * came.sqrt() < drained)
    }

    /// What arrived and was completed in the last `span`, as far as it is remembered.
    fn flow(&self, span: Nanos) -> Flow {
        let Some(now) = self.totals.back() else {
            return Flow::default();
        };
        // By a little more than the span: ticks are not exactly so long.
        let span = Nanos(span.0.saturating_add(super::TICK.0 / 2));
        let first = (self.totals).partition_point(|totals| now.at.since(totals.at) > span);
        let then = &self.totals[first];
        Flow {
            lasted: now.at.since(then.at),
            arrived: now.arrived.saturating_sub(then.arrived),
            completed: now.completed.saturating_sub(then.completed),
        }
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
                arrived: 20 * index as u64,
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

    #[test]
    fn as_many_waiting_as_there_are_runs_are_no_overload() {
        let pressure = |running: usize| {
            let mut detector = OverloadDetector::default();
            // Twelve that come one after the other, while no run ends.
            let ticks = (1..=12).map(|tick| PoolSeen {
                running: tick.min(running),
                waiting: tick.saturating_sub(running),
                oldest_wait: Nanos::from_ms(100 * tick.saturating_sub(running) as u64),
                arrived: tick as u64,
                ..PoolSeen::default()
            });
            ticks.enumerate().fold(Pressure::Calm, |_, (index, seen)| {
                detector.observe(at(index), &seen, TARGET, None)
            })
        };
        assert_eq!(pressure(2), Pressure::Overloaded);
        assert_ne!(pressure(6), Pressure::Overloaded);
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
            // As many more join the queue at first.
            seen.arrived += completed + refused + if ticks < 10 { 20 } else { 0 };
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

    /// The pressures of ticks of (arrived, completed) while everybody waits longer than the target.
    fn pressures(run_ms: u64, ticks: &[(u64, u64)]) -> Vec<Pressure> {
        let mut detector = OverloadDetector::default();
        let mut seen = PoolSeen {
            waiting: 9,
            oldest_wait: Nanos::from_ms(80),
            waits: WaitsSeen {
                run_median: Some(Nanos::from_ms(run_ms)),
                ..WaitsSeen::default()
            },
            ..PoolSeen::default()
        };
        let mut observe = |(tick, &(arrived, completed)): (usize, &(u64, u64))| {
            seen.arrived += arrived;
            seen.completed += completed;
            detector.observe(at(tick), &seen, TARGET, None)
        };
        ticks.iter().enumerate().map(&mut observe).collect()
    }

    #[test]
    fn a_long_queue_is_no_overload_unless_more_arrives_than_is_completed() {
        use Pressure::{Overloaded, Saturated};
        let check = |run_ms, ticks: &[(usize, (u64, u64))], expect| {
            let found = pressures(run_ms, &repeated(ticks));
            assert_eq!(found.last(), Some(&expect), "{ticks:?}");
        };
        check(20, &[(20, (40, 20))], Overloaded);
        check(20, &[(20, (20, 20))], Saturated);
        // So much may be chance: 2 of 10, and 15 of 210.
        check(20, &[(20, (1, 1)), (2, (2, 1)), (8, (1, 1))], Saturated);
        check(20, &[(15, (20, 20)), (5, (23, 20))], Saturated);
        // Clients of slow requests, two of which come late.
        let late = [(1, (8, 0)), (5, (0, 0)), (1, (2, 0)), (13, (0, 0))];
        let late = pressures(20, &repeated(&late));
        assert!(late.iter().all(|found| *found != Overloaded), "{late:?}");
        // What came within half a second is worked off.
        let burst = pressures(20, &repeated(&[(5, (200, 20)), (20, (0, 20))]));
        let is_overloaded = |tick: usize| burst[tick] == Overloaded;
        assert!((8..9).all(is_overloaded), "{burst:?}");
        assert!(!(10..25).any(is_overloaded), "{burst:?}");
        // Slow runs are judged over more time: one arrives every 0.2 s, and half of them are completed.
        let slow = [(1, 0), (0, 0), (1, 1), (0, 0)];
        let slow: Vec<_> = repeated(&[(30, slow)]).concat();
        assert_eq!(pressures(2_000, &slow).last(), Some(&Overloaded));
        assert_eq!(pressures(20, &slow).last(), Some(&Saturated));
    }

    #[test]
    fn runs_that_are_counted_late_are_no_overload() {
        let mut detector = OverloadDetector::default();
        let mut seen = PoolSeen {
            waiting: 2,
            running: 4,
            oldest_wait: Nanos::from_ms(80),
            ..PoolSeen::default()
        };
        let early = (0..20).map(|tick| detector.observe(at(tick), &seen, TARGET, None));
        assert!(early.into_iter().all(|found| found != Pressure::Overloaded));
        // Four replies have left, seven clients have asked again, and no run is counted yet.
        (seen.waiting, seen.arrived) = (9, 7);
        let found = detector.observe(at(20), &seen, TARGET, None);
        assert_ne!(found, Pressure::Overloaded);
        (seen.waiting, seen.completed) = (5, 4);
        let after = (21..40).map(|tick| detector.observe(at(tick), &seen, TARGET, None));
        assert!(after.into_iter().all(|found| found != Pressure::Overloaded));
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
