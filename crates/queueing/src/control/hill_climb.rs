//! The size of a saturated pool: a climb on throughput that prefers fewer threads.
//!
//! Takes completions, gives the size to try next. Only rates that were measured while the pool was saturated
//! are compared with each other: against one that was limited by the load any growth looks like a gain.
//! It must not know waits.
//!
//! More threads are kept only where they give more, fewer wherever they give as much. With work that more
//! threads slow down (one lock, a database) a pool of too many threads stays saturated by itself; only a step
//! down escapes.

use telemetry::{Nanos, Stamp};

/// A changed size is given this long before its rate is measured.
const SETTLE: Nanos = Nanos::from_ms(300);
/// A measurement lasts this long at least, and until this many have completed, but no longer than that.
const MEASURE_MIN: Nanos = Nanos::from_secs(1);
const MEASURE_COMPLETED_MIN: u64 = 50;
const MEASURE_MAX: Nanos = Nanos::from_secs(4);
/// A step up is kept when the rate rises by at least this part of what the size does.
const GAIN_MIN: f64 = 0.25;
/// A step down is kept when the rate falls by no more than this.
const LOSS_MAX: f64 = 0.05;
/// A step down that has clearly lost is not measured to its end: after so long, and by so many standard deviations of
/// a count of what comes at random. With two threads it is half of what the pool can do.
const LOST_AFTER: Nanos = Nanos::from_ms(500);
const LOST_DEVIATIONS: f64 = 3.0;
/// How long a size that was found is kept, at first and at most.
const HOLD_MIN: Nanos = Nanos::from_secs(10);
const HOLD_MAX: Nanos = Nanos::from_secs(80);

/// Sizes that a climb may try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    pub(super) min: usize,
    /// What may be had now: the pool's maximum, or less where more is known to do harm.
    pub(super) max: usize,
}

/// A size and what it gave.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Found {
    threads: usize,
    per_second: f64,
}

/// ```text
///   Measure ──▶ step up ──▶ Measure ─ gained ─▶ further up
///                               └─ not ─▶ step down ──▶ Measure ─ nothing lost ─▶ further down
///                                                           └─ lost ─▶ back, Rest ──▶ Measure
/// ```
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The rate of the present size is measured from a moment and a count on; `None` while it settles.
    Measure {
        settled: Stamp,
        begun: Option<(Stamp, u64)>,
    },
    /// A size was found; it is kept until then, or until more than so many threads may be had.
    Rest { until: Stamp, max: usize },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Up,
    Down,
}

/// A climb, from the beginning of a saturation to its end.
#[derive(Clone, Debug)]
pub(super) struct HillClimb {
    phase: Phase,
    direction: Direction,
    /// The size before the last step.
    before: Option<Found>,
    /// The size that a rest is at.
    best: Option<usize>,
    hold: Nanos,
}

impl HillClimb {
    /// A climb that begins at `now`.
    pub(super) fn new(now: Stamp) -> HillClimb {
        HillClimb {
            phase: settling(now),
            direction: Direction::Up,
            before: None,
            best: None,
            hold: HOLD_MIN,
        }
    }

    /// The size changed at `now` for another reason: the measurement begins again.
    pub(super) fn disturbed(&mut self, now: Stamp) {
        self.phase = settling(now);
        self.before = None;
    }

    /// The size that was found to be the best; `None` while nothing was.
    pub(super) fn best(&self) -> Option<usize> {
        self.best
    }

    /// The size that the pool is to have, while it has `threads` and has completed so many.
    pub(super) fn tick(
        &mut self,
        now: Stamp,
        threads: usize,
        completed: u64,
        bounds: Bounds,
    ) -> usize {
        match self.phase {
            Phase::Rest { until, max } if now < until && bounds.max <= max => threads,
            Phase::Rest { .. } => {
                self.direction = Direction::Up;
                self.before = None;
                self.phase = settling(now);
                threads
            }
            Phase::Measure { settled, .. } if now < settled => threads,
            Phase::Measure {
                settled,
                begun: None,
            } => {
                let begun = Some((now, completed));
                self.phase = Phase::Measure { settled, begun };
                threads
            }
            Phase::Measure {
                begun: Some((since, count)),
                ..
            } => {
                let (lasted, done) = (now.since(since), completed.saturating_sub(count));
                if !is_enough(lasted, done) && !self.has_lost(threads, lasted, done) {
                    return threads;
                }
                assert!(lasted > Nanos::ZERO, "a measurement lasts");
                let per_second = done as f64 / lasted.as_secs_f64();
                let found = Found {
                    threads,
                    per_second,
                };
                let next = self.next(now, found, bounds);
                // What is measured right after a step would be the old size's queue.
                if !matches!(self.phase, Phase::Rest { .. }) {
                    self.phase = settling(now);
                }
                next
            }
        }
    }

    /// Whether fewer threads than before have completed too few to be kept, whatever is still to come.
    fn has_lost(&self, threads: usize, lasted: Nanos, done: u64) -> bool {
        let is_down =
            |before: &Found| self.direction == Direction::Down && threads < before.threads;
        let Some(before) = self.before.filter(is_down) else {
            return false;
        };
        // Given up early, because clients pay for each second with too few threads.
        let least = (1.0 - LOSS_MAX) * before.per_second * lasted.as_secs_f64();
        lasted >= LOST_AFTER && (done as f64) < least - LOST_DEVIATIONS * least.sqrt()
    }

    /// What to try after a measurement.
    fn next(&mut self, now: Stamp, found: Found, bounds: Bounds) -> usize {
        match (self.before, self.direction) {
            (Some(before), Direction::Up) if before.threads < found.threads => {
                if gain(before, found) >= GAIN_MIN {
                    return self.step(now, found, bounds);
                }
                self.direction = Direction::Down;
                // Where going back would lose too much, the way down begins here.
                let is_better = before.per_second < (1.0 - LOSS_MAX) * found.per_second;
                let from = if is_better { found } else { before };
                self.step(now, from, bounds)
            }
            (Some(before), Direction::Down) if found.threads < before.threads => {
                match found.per_second >= (1.0 - LOSS_MAX) * before.per_second {
                    true => {
                        // The best rate of the way down is what none further down may fall behind: losses
                        // of 5 % each would add up.
                        let per_second = found.per_second.max(before.per_second);
                        let reference = Found {
                            per_second,
                            ..found
                        };
                        self.step(now, reference, bounds)
                    }
                    false => self.rest(now, before.threads, bounds),
                }
            }
            _ => self.step(now, found, bounds),
        }
    }

    /// One step on from what was found there, in the present direction or, at the upper end, down.
    fn step(&mut self, now: Stamp, from: Found, bounds: Bounds) -> usize {
        // Up by halves and down by quarters, because a step down too far makes clients wait.
        let up = (from.threads + (from.threads / 2).max(1)).min(bounds.max);
        if self.direction == Direction::Up && up > from.threads {
            self.before = Some(from);
            return up;
        }
        self.direction = Direction::Down;
        let down = (from.threads - (from.threads / 4).max(1).min(from.threads)).max(bounds.min);
        if down < from.threads {
            self.before = Some(from);
            return down;
        }
        self.rest(now, from.threads, bounds)
    }

    fn rest(&mut self, now: Stamp, threads: usize, bounds: Bounds) -> usize {
        self.best = Some(threads);
        self.phase = Phase::Rest {
            until: now.plus(self.hold),
            max: bounds.max,
        };
        // Each rest is longer than the one before: a climb disturbs what has been found good.
        self.hold = Nanos(self.hold.0 * 2).min(HOLD_MAX);
        threads
    }
}

fn settling(now: Stamp) -> Phase {
    Phase::Measure {
        settled: now.plus(SETTLE),
        begun: None,
    }
}

/// Where nothing at all is completed there is nothing to measure more exactly: all threads hang.
fn is_enough(lasted: Nanos, done: u64) -> bool {
    lasted >= MEASURE_MAX || (lasted >= MEASURE_MIN && (done >= MEASURE_COMPLETED_MIN || done == 0))
}

/// The part of a growth that became throughput: 1 when both grew by the same factor, 0 when nothing came of it.
fn gain(before: Found, after: Found) -> f64 {
    // From nothing any throughput is all that the growth could bring.
    if before.per_second <= 0.0 {
        return match after.per_second > 0.0 {
            true => 1.0,
            false => 0.0,
        };
    }
    let size = after.threads as f64 / before.threads as f64 - 1.0;
    (after.per_second / before.per_second - 1.0) / size
}

#[cfg(test)]
mod tests {
    use super::super::TICK;
    use super::*;

    /// Sizes that a climb of two minutes tries, one after the other, where a size completes so many a second.
    fn tried(threads: usize, max: usize, per_second: fn(usize) -> f64) -> Vec<usize> {
        let bounds = Bounds { min: 1, max };
        let mut climb = HillClimb::new(Stamp::ZERO);
        let (mut now, mut completed) = (Stamp::ZERO, 0.0);
        let mut tried = vec![threads];
        for _ in 0..1_200 {
            let threads = tried[tried.len() - 1];
            now = now.plus(TICK);
            completed += per_second(threads) * TICK.as_secs_f64();
            let next = climb.tick(now, threads, completed as u64, bounds);
            if next != threads {
                tried.push(next);
            }
        }
        tried
    }

    fn usl(threads: usize, sigma: f64, kappa: f64) -> f64 {
        let n = threads as f64;
        100.0 * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))
    }

    #[test]
    fn where_every_thread_gives_more_it_goes_to_the_top() {
        let found = tried(8, 64, |threads| 10.0 * threads as f64);
        assert_eq!(found[..6], [8, 12, 18, 27, 40, 60]);
        assert_eq!(found[found.len() - 1], 64);
    }

    #[test]
    fn a_step_down_that_has_clearly_lost_is_taken_back_at_once() {
        let bounds = Bounds { min: 1, max: 2 };
        let mut climb = HillClimb::new(Stamp::ZERO);
        let (mut now, mut completed, mut threads, mut at_one) = (Stamp::ZERO, 0.0, 2, 0);
        for _ in 0..120 {
            now = now.plus(TICK);
            completed += 10.0 * threads as f64 * TICK.as_secs_f64();
            at_one += usize::from(threads == 1);
            threads = climb.tick(now, threads, completed as u64, bounds);
        }
        // Two seconds and not four of ten a second where there were twenty.
        assert!((1..=26).contains(&at_one), "{at_one} looks");
        assert_eq!(threads, 2);
    }

    #[test]
    fn where_more_threads_do_harm_it_finds_the_few_that_do_not() {
        let best = |threads| usl(threads, 0.02, 0.01);
        for start in [2, 10, 40, 64] {
            let found = tried(start, 64, best);
            let last = found[found.len() - 1];
            assert!((7..=15).contains(&last), "{found:?}");
        }
    }

    #[test]
    fn under_one_lock_it_settles_at_few() {
        let found = tried(16, 64, |threads| usl(threads, 0.98, 0.001));
        assert!(found[found.len() - 1] <= 3, "{found:?}");
    }

    #[test]
    fn nobody_is_tried_beyond_the_bounds() {
        let found = tried(6, 6, |threads| 10.0 * threads as f64);
        assert!(found.iter().all(|threads| (1..=6).contains(threads)));
        assert_eq!(found[found.len() - 1], 6);
    }
}
