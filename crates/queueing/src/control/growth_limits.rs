//! What keeps a pool from growing although waits are long.
//!
//! Takes what a pool looks like and the steps that were done, gives the size that it may have. It must not
//! decide to grow or to shrink by itself.
//!
//! Three limits:
//! 1. An explicit signal says that more threads are useless: the threads wait for the interpreter, or a pool
//!    of connections is used up.
//! 2. The last growth made run times longer instead of queues shorter.
//! 3. No request is completed, so the effect of more threads is unknown.

use std::collections::VecDeque;

use telemetry::{Nanos, Stamp};

use super::PoolSeen;
use crate::discipline::RUNS_LEN;

/// Threads that spend more of their time than this waiting for the interpreter are too many.
const GIL_SHARE_MAX: f64 = 0.9;
/// How long a size is the limit after more were found to be useless.
const CAP_LASTS: Nanos = Nanos::from_secs(60);
/// When a growth is judged.
const JUDGED_AFTER: Nanos = Nanos::from_secs(10);
/// A growth was useless when run times rose by more than this part of what the size did,
const INFLATION_MAX: f64 = 0.5;
/// and by more than chance makes of it: the medians of `n` exponential run times each differ by `2 / sqrt(n)`
/// of them in the mean square, and half as much again is allowed.
const CHANCE: f64 = 3.0;
/// With run times that rose by no more than this a pool may grow faster and faster.
const INFLATION_FREE: f64 = 0.25;
/// Ticks whose medians are compared: 5 s.
const MEDIANS_LEN: usize = 50;
/// After so long without any completion the first second is no time to judge anything.
const SILENCE: Nanos = Nanos::from_secs(1);
/// Run times within which something would have been completed.
const RUNS_OF_SILENCE: u64 = 4;

/// What is known against more threads.
#[derive(Clone, Debug)]
pub(super) struct GrowthLimits {
    /// An explicit signal said so.
    signalled: Cap,
    /// The last growth was useless. Where the pool is saturated all the same, throughput tells better.
    judged: Cap,
    /// The first growth that is not judged yet.
    growth: Option<Growth>,
    /// The median of a tick and what had been completed by then, `MEDIANS_LEN` at most.
    medians: VecDeque<(Nanos, u64)>,
    silence: Silence,
}

#[derive(Clone, Copy, Debug)]
struct Cap {
    threads: usize,
    until: Stamp,
}

#[derive(Clone, Copy, Debug)]
struct Growth {
    at: Stamp,
    threads: usize,
    run_median: Nanos,
    /// Run times that the median is of.
    runs: u64,
}

/// When something was completed last.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    completed: u64,
    /// `None` before the first look.
    last: Option<Stamp>,
    /// The end of the second after a long silence.
    over: Stamp,
    /// When the pool grew last.
    grown: Option<Stamp>,
}

impl GrowthLimits {
    pub(super) fn new() -> GrowthLimits {
        GrowthLimits {
            signalled: Cap::NONE,
            judged: Cap::NONE,
            growth: None,
            medians: VecDeque::with_capacity(MEDIANS_LEN),
            silence: Silence::default(),
        }
    }

    /// What a tick saw, of a pool of `threads`. Gives the size to go back to when the last growth turns out
    /// to have been useless.
    pub(super) fn observe(&mut self, now: Stamp, seen: &PoolSeen, threads: usize) -> Option<usize> {
        self.silence.observe(now, seen);
        if let Some(median) = seen.waits.run_median {
            if self.medians.len() == MEDIANS_LEN {
                self.medians.pop_front();
            }
            assert!(
                self.medians.len() < MEDIANS_LEN,
                "only so many medians are kept"
            );
            self.medians.push_back((median, seen.completed));
        }
        // Limits end before they are set or judged again: one that ended at this tick must not speak once more.
        self.signalled.end(now);
        self.judged.end(now);
        if is_useless_to_grow(seen) {
            self.signalled.set(now, threads);
        }
        self.judge(now, threads)
    }

    /// The pool grew from `threads` at `now`.
    pub(super) fn grown(&mut self, now: Stamp, threads: usize) {
        self.silence.grown = Some(now);
        let runs = self.runs();
        // Several steps in a row are judged as one, from before the first: each alone may be lost in the noise.
        if self.growth.is_none()
            && runs >= RUNS_LEN as u64
            && let Some(run_median) = self.median()
        {
            self.growth = Some(Growth {
                at: now,
                threads,
                run_median,
                runs,
            });
        }
    }

    /// The pool shrank: the growth before is not what run times show.
    pub(super) fn shrunk(&mut self) {
        self.growth = None;
    }

    /// How many threads a pool may have that is sized by latency.
    pub(super) fn threads_max(&self) -> usize {
        self.signalled.threads.min(self.judged.threads)
    }

    /// How many a saturated pool may have.
    pub(super) fn threads_max_saturated(&self) -> usize {
        self.signalled.threads
    }

    /// Whether a pool of `threads` may grow by latency now: something is completed, and growing did not make
    /// it slower so far.
    pub(super) fn is_released(&self, now: Stamp, seen: &PoolSeen, threads: usize) -> bool {
        let is_in_vain = self.growth.is_some_and(|growth| {
            let allowed = INFLATION_MAX * growth.share(threads) + CHANCE / (RUNS_LEN as f64).sqrt();
            growth.inflation(seen.waits.run_median) > allowed
        });
        !is_in_vain && self.silence.is_over(now, seen.waits.run_median)
    }

    /// Whether run times are what they were before the pool began to grow, as far as is known.
    pub(super) fn is_free(&self, seen: &PoolSeen) -> bool {
        let inflation = |growth: Growth| growth.inflation(seen.waits.run_median);
        self.growth
            .is_none_or(|growth| inflation(growth) <= INFLATION_FREE)
    }

    fn judge(&mut self, now: Stamp, threads: usize) -> Option<usize> {
        let growth = self
            .growth
            .filter(|growth| now.since(growth.at) >= JUDGED_AFTER)?;
        self.growth = None;
        let inflation = growth.inflation(self.median());
        // A median of few runs wavers: the fewer there are on either side, the more must the runs have slowed down.
        let runs = self.runs().min(growth.runs);
        let chance = CHANCE / (runs.max(1) as f64).sqrt();
        if inflation <= INFLATION_MAX * growth.share(threads) + chance {
            return None;
        }
        self.judged.set(now, growth.threads);
        Some(growth.threads)
    }

    /// Runs that the last medians are of.
    fn runs(&self) -> u64 {
        match (self.medians.front(), self.medians.back()) {
            (Some((_, first)), Some((_, last))) => last.saturating_sub(*first),
            _ => 0,
        }
    }

    /// The median of the last medians.
    fn median(&self) -> Option<Nanos> {
        let mut sorted = [Nanos::ZERO; MEDIANS_LEN];
        // On the stack: a tick of each pool passes here, and allocates nothing.
        let sorted = &mut sorted[..self.medians.len()];
        for (place, (median, _)) in sorted.iter_mut().zip(&self.medians) {
            *place = *median;
        }
        if sorted.is_empty() {
            return None;
        }
        let middle = sorted.len() / 2;
        let (_, median, _) = sorted.select_nth_unstable(middle);
        Some(*median)
    }
}

impl Cap {
    const NONE: Cap = Cap {
        threads: usize::MAX,
        until: Stamp::ZERO,
    };

    fn set(&mut self, now: Stamp, threads: usize) {
        self.threads = threads.min(self.threads).max(1);
        self.until = now.plus(CAP_LASTS);
    }

    fn end(&mut self, now: Stamp) {
        if now >= self.until {
            *self = Cap::NONE;
        }
    }
}

impl Growth {
    /// The part by which a pool of `threads` is larger than before.
    fn share(&self, threads: usize) -> f64 {
        threads as f64 / self.threads.max(1) as f64 - 1.0
    }

    /// The part by which run times are longer than before; 0 when they are not known.
    fn inflation(&self, median: Option<Nanos>) -> f64 {
        let before = self.run_median.0.max(1) as f64;
        median.map_or(0.0, |median| median.0 as f64 / before - 1.0)
    }
}

impl Silence {
    fn observe(&mut self, now: Stamp, seen: &PoolSeen) {
        // Without anything at work nothing can be completed, so that an idle pool is not silent.
        let is_silent = self.last.is_some() && seen.completed == self.completed && seen.running > 0;
        if is_silent {
            return;
        }
        let was_silent = self.last.is_some_and(|last| now.since(last) > SILENCE);
        // What waited through the silence is completed at once now, and is no reason to grow.
        if was_silent && seen.waiting > 0 {
            self.over = now.plus(SILENCE);
        }
        self.completed = seen.completed;
        self.last = Some(now);
    }

    /// A growth is followed by the next one only when something was completed since, or should not have been
    /// yet. When all hang, more threads are right; when the whole server stands still, they are not; the
    /// first that is completed tells.
    fn is_over(&self, now: Stamp, run_median: Option<Nanos>) -> bool {
        let expected = run_median.map_or(Nanos::ZERO, |run| {
            Nanos(run.0.saturating_mul(RUNS_OF_SILENCE))
        });
        let is_answered = |grown: Stamp| {
            let since = now.since(grown);
            self.last > Some(grown) || since < expected || since >= SILENCE
        };
        now >= self.over && self.grown.is_none_or(is_answered)
    }
}

/// Whether an explicit signal says that more threads would only wait.
pub(super) fn is_useless_to_grow(seen: &PoolSeen) -> bool {
    seen.downstream_full || seen.gil_share.is_some_and(|share| share > GIL_SHARE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WaitsSeen;

    fn at(ms: u64) -> Stamp {
        Stamp::ZERO.plus(Nanos::from_ms(ms))
    }

    fn seen(completed: u64, run_ms: u64) -> PoolSeen {
        PoolSeen {
            waiting: 5,
            running: 4,
            completed,
            waits: WaitsSeen {
                run_median: Some(Nanos::from_ms(run_ms)),
                ..WaitsSeen::default()
            },
            ..PoolSeen::default()
        }
    }

    #[test]
    fn after_a_growth_something_must_be_completed_before_the_next() {
        let mut limits = GrowthLimits::new();
        let mut check = |ms, completed, run_ms, expect| {
            let seen = seen(completed, run_ms);
            limits.observe(at(ms), &seen, 4);
            assert_eq!(limits.is_released(at(ms), &seen, 4), expect, "at {ms}");
            if ms == 100 {
                limits.grown(at(ms), 4);
            }
        };
        check(100, 1, 20, true);
        check(200, 1, 20, false);
        check(300, 1, 200, true);
        check(1_000, 1, 20, false);
        check(1_100, 1, 20, true);
        check(1_200, 2, 20, false);
        check(2_100, 30, 20, false);
        check(2_200, 60, 20, true);
    }

    /// The size to go back to when run times go from 20 ms to another median while the pool goes from 8
    /// threads to 12 and completes so many a second.
    fn check_judgement(run_ms: u64, per_second: u64, expect: Option<usize>) {
        let mut limits = GrowthLimits::new();
        let mut found = None;
        for tick in 0..=201_u64 {
            let (run_ms, threads) = match tick {
                0..=100 => (20, 8),
                _ => (run_ms, 12),
            };
            let back = limits.observe(
                at(100 * tick),
                &seen(per_second * tick / 10, run_ms),
                threads,
            );
            found = found.or(back);
            if tick == 100 {
                limits.grown(at(100 * tick), 8);
            }
        }
        assert_eq!(found, expect, "{run_ms} ms at {per_second} a second");
        assert_eq!(limits.threads_max(), expect.unwrap_or(usize::MAX));
    }

    #[test]
    fn a_growth_that_made_everything_slower_is_taken_back() {
        check_judgement(20, 500, None);
        check_judgement(25, 500, None);
        check_judgement(30, 500, Some(8));
        check_judgement(30, 20, None);
        check_judgement(60, 20, Some(8));
    }

    #[test]
    fn what_is_known_to_be_useless_limits_the_size_for_a_minute() {
        let mut limits = GrowthLimits::new();
        let full = PoolSeen {
            downstream_full: true,
            ..seen(1, 20)
        };
        limits.observe(at(100), &full, 6);
        assert_eq!(limits.threads_max(), 6);
        limits.observe(at(200), &full, 9);
        assert_eq!(limits.threads_max(), 6);
        limits.observe(at(60_100), &seen(2, 20), 6);
        assert_eq!(limits.threads_max(), 6);
        limits.observe(at(60_200), &seen(2, 20), 6);
        assert_eq!(limits.threads_max(), usize::MAX);
        let check = |share, expect| {
            let seen = PoolSeen {
                gil_share: Some(share),
                ..seen(1, 20)
            };
            assert_eq!(is_useless_to_grow(&seen), expect);
        };
        check(0.9, false);
        check(0.91, true);
    }
}
