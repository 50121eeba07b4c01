//! The simulation: events in the order of time, `stage`'s queue and policy between them.
//!
//! Takes a setting and arrivals, gives an outcome. It must not decide which requests wait or are
//! refused, or how many threads there are: the policy does.

mod event_loop;
mod events;
mod lock_queue;
mod pool;
mod process;
mod shared;
mod simulation;
mod timeline;

use queueing::{
    Admission, Class, Control, Decision, PoolSeen, PoolSettings, PoolState, Waiting, admit,
};
use telemetry::{Nanos, Stamp};

use crate::{Arrival, Outcome, Setting};
pub(crate) use process::{Need, Process, Step};
pub(crate) use shared::Runner;
use simulation::Simulation;

/// What the virtual clock reads when the simulation's time is 0: as every clock, never [`Stamp::ZERO`].
const START: Stamp = Stamp(1_000_000_000);

/// Controls a pool.
pub trait Policy {
    /// What to do, once a tick. A pool in which nothing happens for long is not asked until something does.
    fn tick(&mut self, now: Stamp, seen: &PoolSeen) -> Decision;

    /// Whether one more may wait.
    fn admit(
        &self,
        waiting: Waiting,
        class: Class,
        settings: &PoolSettings,
        state: &PoolState,
    ) -> Admission {
        admit(waiting, class, settings, state)
    }
}

impl Policy for Control {
    fn tick(&mut self, now: Stamp, seen: &PoolSeen) -> Decision {
        Control::tick(self, now, seen)
    }
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// A thread ran it.
    Ran,
    /// It was refused on arrival.
    Refused,
    /// It was refused after it had waited.
    Expired,
}

/// One request at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Its place among the arrivals, from 0.
    pub number: u64,
    /// Its process.
    pub process: usize,
    /// Its pool.
    pub pool: usize,
    /// How it ended.
    pub ending: Ending,
    /// When it came, from the beginning of the simulation; all times likewise.
    pub arrived: Nanos,
    /// When a thread began with it; its end for one that never ran.
    pub started: Nanos,
    /// When it ended.
    pub ended: Nanos,
    /// The thread that ran it, by its number within the pool; 0 for one that never ran.
    pub thread: usize,
    /// No thread was idle when it came.
    pub from_queue: bool,
    /// Requests in the queue of the pool when it ended.
    pub waiting_at_end: usize,
    /// Other idle threads of the pool when it ended.
    pub idle_others_at_end: usize,
}

/// Runs all arrivals through the setting. The same seed gives the same outcome.
///
/// The simulation begins with the first arrival and ends with the last end. An arrival that is earlier
/// than the one before it counts as simultaneous with it. A setting without a pool is a bug, and panics.
pub fn simulate(
    setting: &Setting,
    arrivals: &mut dyn Iterator<Item = Arrival>,
    seed: u64,
) -> Outcome {
    simulate_traced(setting, arrivals, seed, &mut |_| {})
}

/// The same, with a call of `trace` for every request at its end, in the order of the ends.
pub fn simulate_traced(
    setting: &Setting,
    arrivals: &mut dyn Iterator<Item = Arrival>,
    seed: u64,
    trace: &mut dyn FnMut(&Trace),
) -> Outcome {
    let mut simulation = Simulation::new(setting, seed, trace);
    simulation.run(arrivals);
    simulation.finish()
}

/// A moment of the simulation on its clock.
fn stamp(at: Nanos) -> Stamp {
    START.plus(at)
}
