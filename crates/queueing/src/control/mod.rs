//! How a pool is steered: its size, and whether it is overloaded.
//!
//! Takes what a pool looks like ten times a second, gives one step of its size and the state by which
//! its queue and its admission go. The owner of the threads performs the step. It must not
//! read a clock or count threads itself.

mod growth_limits;
mod hill_climb;
mod latency_target;
mod overload;

use telemetry::{Nanos, Stamp};

use crate::{DrainRate, PoolShape, WaitsSeen};
use growth_limits::GrowthLimits;
use hill_climb::{Bounds, HillClimb};
use latency_target::LatencyTarget;
use overload::{OverloadDetector, timeout_of_runs};

/// How often a pool is looked at.
pub const TICK: Nanos = Nanos::from_ms(100);

/// A pool that grows gets an eighth of its threads more: threads are dear.
const GROWTH_PART: usize = 8;
/// Where even those that came after a growth wait too long, the next one is twice as large, at most so many
/// times.
const HASTE_MAX: usize = 4;
/// An eighth of a small pool is nothing. One in which more wait too long than it has threads grows by this many at
/// least, and as many times that as it is in haste, but by half of it and one at most.
const CROWDED_LEAST: usize = 2;
/// Where threads already spend more of their time waiting for the interpreter there is no haste: more of them may
/// be of no use, and it takes a while to find out.
const HASTY_GIL_SHARE_MAX: f64 = 0.25;
/// A growth follows another when it comes no later than this.
const FOLLOWS_WITHIN: Nanos = Nanos::from_ms(300);
/// A pool that shrinks loses a sixteenth of its threads, or a quarter of those that were idle all the time,
const SHRINK_PART: usize = 16;
const SHRINK_PART_OF_IDLE: usize = 4;
/// so long after any change,
const SHRINK_AFTER_CHANGE: Nanos = Nanos::from_secs(2);
/// and so long after a growth.
const SHRINK_AFTER_GROWTH: Nanos = Nanos::from_secs(10);
/// The best size of a saturation is where the next one within this time begins.
const BEST_LASTS: Nanos = Nanos::from_secs(300);

/// What was said about a pool.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PoolSettings {
    /// Its bounds.
    pub shape: PoolShape,
    /// How long 95 of 100 exchanges may wait for a thread before the pool grows.
    pub queue_target: Nanos,
    /// Longest wait for a thread; who has waited longer is refused.
    pub queue_timeout: Nanos,
    /// The same while the pool is overloaded; `None`: a second, or three median runs where that is longer.
    pub overload_timeout: Option<Nanos>,
    /// Threads that only questions about health may have, of those that there are at most.
    pub reserve_threads: usize,
    /// Places in the queue that only questions about health may have.
    pub reserve_len: usize,
}

/// How hard it is for a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pressure {
    /// Waits are short, or short for a while.
    #[default]
    Calm,
    /// The oldest has waited longer than the target for most of the last second.
    Saturated,
    /// And even the shortest wait of half a second was longer, while more exchanges arrive than are completed.
    Overloaded,
}

/// What the controller has found out about the present.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PoolState {
    /// How hard it is.
    pub pressure: Pressure,
    /// Exchanges completed a second while somebody waits, of late; `None` when nothing is known.
    pub completed_per_second: Option<f64>,
    /// Longest wait while overloaded; no longer than `queue_timeout` counts.
    pub overload_timeout: Nanos,
}

impl Default for PoolState {
    fn default() -> PoolState {
        PoolState {
            pressure: Pressure::Calm,
            completed_per_second: None,
            overload_timeout: Nanos(u64::MAX),
        }
    }
}

/// What a pool looks like at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PoolSeen {
    /// Exchanges in the queue.
    pub waiting: usize,
    /// How long the first of them has been there; zero when none is.
    pub oldest_wait: Nanos,
    /// Waits since the last observation.
    pub waits: WaitsSeen,
    /// Threads that run a handler.
    pub running: usize,
    /// Threads that wait for work, and those that are being started. `running + idle` is the size: threads
    /// that were let go and still finish something no longer count.
    pub idle: usize,
    /// Exchanges that arrived since the pool began, those included that were refused at once.
    pub arrived: u64,
    /// Exchanges completed since the pool began.
    pub completed: u64,
    /// Exchanges refused since the pool began, at once or after they had waited.
    pub refused: u64,
    /// The share of the threads' time at work in which they waited for the interpreter, where that is known.
    pub gil_share: Option<f64>,
    /// What all handlers need, such as connections to a database, is used up.
    pub downstream_full: bool,
}

/// What to do about the size of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeStep {
    /// It is right.
    Keep,
    /// Start so many threads more; at least 1.
    Grow(usize),
    /// Let so many threads go, those idle longest first; at least 1, never the last thread.
    Shrink(usize),
}

/// What follows from one look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// The step to do now.
    pub step: SizeStep,
    /// What the queue and the admission go by until the next look.
    pub state: PoolState,
}

/// One pool's controller, with what it remembers.
///
/// It has two regimes. A pool that is not saturated is sized by queue latency, a saturated one by throughput:
/// there every size has long waits, and growing by them ends at the maximum where more threads do harm. A
/// pool whose `threads_min` is its `threads_max` gets back what it loses and nothing else; its pressure is
/// found out all the same.
#[derive(Clone, Debug)]
pub struct Control {
    settings: PoolSettings,
    overload: OverloadDetector,
    drain: DrainRate,
    latency: LatencyTarget,
    growth_limits: GrowthLimits,
    /// While it is saturated.
    climb: Option<HillClimb>,
    /// The best size of a saturation, and when it was found.
    best: Option<(usize, Stamp)>,
    /// The size at the last look and after the step that followed.
    threads: usize,
    changed: Stamp,
    last_growth: Stamp,
    /// As many were idle at every look since the last change.
    idle_min: usize,
    /// How many times an eighth the last growth was.
    haste: usize,
}

impl Control {
    /// A controller that has seen nothing yet.
    pub fn new(settings: &PoolSettings) -> Control {
        Control {
            settings: *settings,
            overload: OverloadDetector::default(),
            drain: DrainRate::new(),
            latency: LatencyTarget::new(),
            growth_limits: GrowthLimits::new(),
            climb: None,
            best: None,
            threads: 0,
            changed: Stamp::ZERO,
            last_growth: Stamp::ZERO,
            idle_min: usize::MAX,
            haste: 1,
        }
    }

    /// From now on other bounds hold; what was found out under the old ones is remembered.
    pub fn reshape(&mut self, settings: &PoolSettings) {
        self.settings = *settings;
    }

    /// Looks at the pool at `now`, every [`TICK`].
    pub fn tick(&mut self, now: Stamp, seen: &PoolSeen) -> Decision {
        match seen.waiting {
            0 => self.drain.pass_over(),
            _ => self.drain.observe(now, seen.completed),
        }
        let target = self.settings.queue_target;
        let per_second = self.drain.per_second();
        let pressure = self.overload.observe(now, seen, target, per_second);
        let overload_timeout = match (self.settings.overload_timeout, seen.waits.run_median) {
            (Some(timeout), _) => timeout,
            (None, Some(run)) => timeout_of_runs(run),
            // Runs may take longer than any wait so far.
            (None, None) => self.settings.queue_timeout,
        };
        let threads = seen.running + seen.idle;
        if threads != self.threads {
            // The size changed without a step: the pool has just begun, or a thread was lost or did not start.
            self.note_size(now, threads);
            if let Some(climb) = &mut self.climb {
                climb.disturbed(now);
            }
        }
        self.idle_min = self.idle_min.min(seen.idle);
        let wanted = self.wanted(now, seen, pressure);
        assert!(wanted > 0, "a pool keeps a thread");
        let step = match wanted.checked_sub(threads) {
            Some(0) => SizeStep::Keep,
            Some(more) => SizeStep::Grow(more),
            None => SizeStep::Shrink(threads - wanted),
        };
        self.note_size(now, wanted);
        Decision {
            step,
            state: PoolState {
                pressure,
                completed_per_second: per_second,
                overload_timeout,
            },
        }
    }

    /// The size that the pool is to have now.
    fn wanted(&mut self, now: Stamp, seen: &PoolSeen, pressure: Pressure) -> usize {
        self.latency.observe(&seen.waits);
        let useless = self.growth_limits.observe(now, seen, self.threads);
        let PoolShape {
            threads_min,
            threads_max,
            ..
        } = self.settings.shape;
        let min = threads_min.max(1);
        let max = threads_max.max(min);
        // Outside of its bounds, because they changed or a thread was lost, it goes back without looking at anything.
        if min == max || !(min..=max).contains(&self.threads) {
            return self.threads.clamp(min, max);
        }
        let known_max = match pressure {
            Pressure::Calm => self.growth_limits.threads_max(),
            Pressure::Saturated | Pressure::Overloaded => {
                self.growth_limits.threads_max_saturated()
            }
        };
        // What is known against growing never takes threads that the configuration promises.
        let max = max.min(known_max).max(min);
        let bounds = Bounds { min, max };
        match pressure {
            Pressure::Calm => {
                self.climb = None;
                match useless {
                    Some(threads) => threads.clamp(min, max),
                    None => self.by_latency(now, seen, bounds),
                }
            }
            Pressure::Saturated | Pressure::Overloaded => self.by_throughput(now, seen, bounds),
        }
    }

    fn by_latency(&mut self, now: Stamp, seen: &PoolSeen, bounds: Bounds) -> usize {
        if self.latency.is_late(seen) {
            return match self.growth_limits.is_released(now, seen, self.threads) {
                true => self.grown(now, seen).min(bounds.max).max(self.threads),
                false => self.threads,
            };
        }
        let is_settled = now.since(self.changed) >= SHRINK_AFTER_CHANGE
            && now.since(self.last_growth) >= SHRINK_AFTER_GROWTH;
        let kept = self.kept_of(self.threads);
        let less = (self.threads / SHRINK_PART)
            .max(self.idle_min.saturating_sub(kept) / SHRINK_PART_OF_IDLE)
            .max(1);
        // The last idle thread that anybody may have stays: when all others hang, it is the one that serves
        // everybody.
        let is_spared = seen.idle > less + self.kept_of(self.threads.saturating_sub(less));
        match is_settled && is_spared && self.latency.is_roomy(seen, self.settings.queue_target) {
            true => (self.threads - less).max(bounds.min),
            false => self.threads,
        }
    }

    /// Of so many threads, those that idle for questions about health alone.
    fn kept_of(&self, threads: usize) -> usize {
        self.settings.reserve_threads.min(threads.saturating_sub(1))
    }

    /// The size after a growth. One that follows another at once needs somebody who came after that and
    /// waits too long even now, not only behind the rest of the old queue; then it is the larger.
    fn grown(&mut self, now: Stamp, seen: &PoolSeen) -> usize {
        if self.changed > self.last_growth || now.since(self.last_growth) > FOLLOWS_WITHIN {
            self.haste = 1;
        } else if seen.waits.waiting_over_target == 0 {
            return self.threads;
        } else if self.growth_limits.is_free(seen) {
            self.haste = (self.haste * 2).min(HASTE_MAX);
        }
        // Threads that wait for the interpreter's lock gain nothing from more of them, so growth stays careful there.
        let is_hasty = (seen.gil_share).is_none_or(|share| share <= HASTY_GIL_SHARE_MAX);
        if !is_hasty {
            self.haste = 1;
        }
        // A small pool grows by a share of almost nothing: where more wait than there are threads, it grows by some
        // at least, but never by more than its half.
        let least = match is_hasty && seen.waits.waiting_over_target > self.threads {
            true => (self.haste * CROWDED_LEAST).min(self.threads / 2 + 1),
            false => 1,
        };
        self.threads + (self.threads * self.haste / GROWTH_PART).max(least)
    }

    fn by_throughput(&mut self, now: Stamp, seen: &PoolSeen, bounds: Bounds) -> usize {
        // A saturation that comes back soon begins at the size that was best, rather than climbing all the way again.
        let Some(climb) = &mut self.climb else {
            self.climb = Some(HillClimb::new(now));
            let best = self.best.filter(|(_, at)| now.since(*at) <= BEST_LASTS);
            return match best {
                Some((best, _)) => best.clamp(bounds.min, bounds.max).min(self.threads),
                None => self.threads,
            };
        };
        let wanted = climb.tick(now, self.threads, seen.completed, bounds);
        if let Some(best) = climb.best() {
            self.best = Some((best, now));
        }
        wanted
    }

    fn note_size(&mut self, now: Stamp, threads: usize) {
        match threads.cmp(&self.threads) {
            std::cmp::Ordering::Equal => return,
            // The beginning is no growth.
            std::cmp::Ordering::Greater if self.threads == 0 => {}
            std::cmp::Ordering::Greater => {
                self.latency.grown();
                self.growth_limits.grown(now, self.threads);
                self.last_growth = now;
            }
            std::cmp::Ordering::Less => {
                self.latency.shrunk();
                self.growth_limits.shrunk();
            }
        }
        self.threads = threads;
        self.changed = now;
        self.idle_min = usize::MAX;
    }
}

#[cfg(test)]
mod tests;
