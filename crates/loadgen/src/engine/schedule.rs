//! When requests are due, and of which kind: one thread's share of the whole plan.
//!
//! Takes the plan and the thread's number, gives intended times one after another. Pure: the times are
//! offsets from the beginning of the run, no clock is read. The shares of all threads together are the plan.

use std::sync::Arc;

use fastrand::Rng;
use telemetry::Nanos;

use crate::plan::{Arrival, Arrivals, Load, Plan, Profile};

/// Whether requests leave by the clock, whether replies come or not.
pub(crate) fn is_by_due(load: &Load) -> bool {
    matches!(load, Load::Open { .. } | Load::Recorded { .. })
}

/// The intended times of one thread's requests.
#[derive(Debug)]
pub(crate) struct Schedule {
    source: Source,
    /// The number of its next request in the whole load.
    number: usize,
    /// Threads take turns: from one of its requests to the next.
    step: usize,
    next: Option<Due>,
}

/// A request that is to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    /// From the beginning of the run.
    pub(crate) offset: Nanos,
    /// Its kind; `None`: to be chosen by weight.
    pub(crate) kind: Option<u32>,
}

#[derive(Debug)]
enum Source {
    Constant {
        rate: Profile,
    },
    /// `passed` in units of the mean gap of this thread.
    Poisson {
        rate: Profile,
        rng: Rng,
        passed: f64,
    },
    Recorded {
        arrivals: Arc<[Arrival]>,
    },
}

impl Schedule {
    /// The share of thread `thread`; `None`: the load is not by the clock.
    pub(crate) fn of(plan: &Plan, thread: usize) -> Option<Schedule> {
        let step = plan.machine.threads;
        assert!(thread < step, "each thread has a share of its own");
        let source = match &plan.load {
            Load::Closed | Load::Burst => return None,
            Load::Recorded { arrivals } => Source::Recorded {
                arrivals: arrivals.clone(),
            },
            Load::Open { arrivals, rate } => match arrivals {
                Arrivals::Constant => Source::Constant { rate: rate.clone() },
                Arrivals::Poisson { seed } => Source::Poisson {
                    rate: rate.clone(),
                    rng: rng(Purpose::Gaps, *seed, thread),
                    passed: 0.0,
                },
            },
        };
        let mut schedule = Schedule {
            source,
            number: thread,
            step,
            next: None,
        };
        schedule.advance();
        Some(schedule)
    }

    /// The next one; `None`: nothing more is to leave.
    #[inline]
    pub(crate) fn due(&self) -> Option<Due> {
        self.next
    }

    /// It has left.
    #[inline]
    pub(crate) fn advance(&mut self) {
        let due = |offset: Nanos| Due { offset, kind: None };
        self.next = match &mut self.source {
            // By its number in the whole load and not by the gap to the one before: errors of rounding do not add
            // up, and threads that share a rate keep out of each other's times.
            Source::Constant { rate } => rate.reached(self.number as f64).map(due),
            Source::Poisson { rate, rng, passed } => {
                // A thread draws its own process of a part of the rate: such parts together are a Poisson process of
                // the whole. 1 − [0, 1) is never 0, of which there is no logarithm.
                *passed -= (1.0 - rng.f64()).ln();
                rate.reached(*passed * self.step as f64).map(due)
            }
            Source::Recorded { arrivals } => arrivals.get(self.number).map(|arrival| Due {
                offset: arrival.offset,
                kind: Some(arrival.kind),
            }),
        };
        self.number += self.step;
    }
}

/// Chooses kinds by their weights.
#[derive(Debug)]
pub(crate) struct Chooser {
    /// Sums of the weights up to each kind.
    sums: Vec<u64>,
    rng: Rng,
}

impl Chooser {
    /// For one thread.
    pub(crate) fn of(plan: &Plan, thread: usize) -> Chooser {
        let weights = plan.requests.iter().map(|kind| u64::from(kind.weight));
        assert!(!plan.requests.is_empty(), "there is a kind to choose");
        let sums = weights.scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Chooser {
            sums: sums.collect(),
            rng: rng(Purpose::Kinds, 0, thread),
        }
    }

    /// The kind of the next request.
    #[inline]
    pub(crate) fn choose(&mut self) -> u32 {
        let all = match self.sums.as_slice() {
            [] | [_] => return 0,
            [.., all] => (*all).max(1),
        };
        // The first sum above the number: a kind of weight 0 has the sum of the one before and is never the first.
        let drawn = self.rng.u64(0..all);
        let kind = self.sums.partition_point(|&sum| sum <= drawn);
        assert!(kind < self.sums.len(), "what is drawn has a weight");
        kind as u32
    }
}

/// What random numbers are for: a kind must not come with gaps of its own.
#[derive(Clone, Copy)]
enum Purpose {
    Gaps,
    Kinds,
}

/// Numbers for one thread.
fn rng(purpose: Purpose, seed: u64, thread: usize) -> Rng {
    let words = [purpose as u64, seed, thread as u64].into_iter();
    // fastrand's numbers of neighbouring seeds resemble each other: with seeds one apart, one kind of two came after gaps
    // that were twice as long. So the seeds are scrambled.
    Rng::with_seed(words.fold(0, |seed, word| scrambled(seed ^ word)))
}

/// A step of SplitMix64.
fn scrambled(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
