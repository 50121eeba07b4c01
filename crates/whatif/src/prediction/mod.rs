//! Predictions for variants of a server: its queue times with other threads, pools, processes and rates, and the
//! fewest threads that meet an objective.
//!
//! Takes what is known of the present ([`Basis`]) and variants of it, simulates each, gives [`Answer`]s. It first
//! simulates the present itself ([`calibrate`]), because a simulation that does not repeat the measurement
//! cannot predict anything else. It must not know where requests come from, or how answers are printed.

mod answer;
mod calibration;
mod cores;
mod loop_waits;
mod objective;
mod plan;

use telemetry::Nanos;

use crate::recorded::{Costs, LoopCosts, Workload};
use crate::{Laws, Lock, Sharing, simulate};

pub use answer::{Answer, PoolAnswer, Times};
pub use calibration::{Calibration, ErrorMax, QuantileError, calibrate};
pub use cores::{answers, on_all_cores};
pub use loop_waits::take_out_loop_waits;
pub use objective::{Metric, Objective, Search, smallest};
pub use plan::{ControlMode, PoolVariant, Threads, Variant};

/// What requests come.
#[derive(Clone, Debug)]
pub enum Requests {
    /// Those of a log.
    Recorded(Workload),
    /// By laws.
    Made(Laws),
}

/// What is known of the present, and holds in all variants.
#[derive(Clone, Debug)]
pub struct Basis {
    /// What requests come, at one time the rate.
    pub requests: Requests,
    /// Index of the pool of each route, in `Variant::pools`.
    pub pool_of_route: Vec<usize>,
    /// What it costs to give a thread its work.
    pub costs: Costs,
    /// What it costs to give an event loop its work.
    pub loop_costs: LoopCosts,
    /// How those that run at once slow each other down.
    pub sharing: Sharing,
    /// What only one of a process can do at a time.
    pub lock: Option<Lock>,
    /// How many have been seen at work at once, in one process; `None`: unknown.
    pub running_seen: Option<usize>,
    /// How long 95 of 100 may wait before a pool grows.
    pub queue_target: Nanos,
    /// The longest wait for a thread.
    pub queue_timeout: Nanos,
    /// The same while a pool is overloaded; no longer than `queue_timeout` counts. `None`: by the runs.
    pub overload_timeout: Option<Nanos>,
    /// Places in a queue.
    pub queue_len_max: usize,
    /// What the first pool keeps for questions about health, none of which are simulated.
    pub reserve: Reserve,
    /// Of all that is left to chance.
    pub seed: u64,
}

/// What a pool keeps for questions about health; never all its threads, nor all its places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Threads.
    pub threads: usize,
    /// Places in the queue.
    pub len: usize,
}

/// Simulates a variant whose rate is what `requests` are.
pub fn answer(basis: &Basis, requests: &Requests, variant: &Variant) -> Answer {
    let pauses = match requests {
        Requests::Recorded(workload) => workload.pauses(),
        Requests::Made(_) => &[],
    };
    let setting = plan::setting(basis, variant, pauses);
    let outcome = match requests {
        Requests::Recorded(workload) => simulate(&setting, &mut workload.arrivals(), basis.seed),
        Requests::Made(laws) => simulate(&setting, &mut laws.arrivals(basis.seed), basis.seed),
    };
    let mut answer = Answer::of(variant, &outcome);
    let beyond = |seen: usize| answer.threads_max > 2 * seen;
    answer.is_beyond = basis.running_seen.is_some_and(beyond);
    answer
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Concurrency;
    use crate::recorded::{Recorder, Recording, Seen};

    /// What two threads would log of requests of 10 ms that come every 4 ms for a second, and then not for a
    /// second.
    pub(crate) fn recording() -> Recording {
        let mut recorder = Recorder::default();
        recorder.begin();
        let mut free = [0u64; 2];
        for second in 0..20u64 {
            for index in 0..250u64 {
                let at = second * 2_000_000 + index * 4_000 + 1;
                let thread = usize::from(free[1] < free[0]);
                let begin = at.max(free[thread]);
                free[thread] = begin + 10_000;
                let seen = Seen {
                    began_unix_ns: 1_795_262_400_000_000_000 + at * 1_000,
                    queue: Some(Nanos::from_us(begin - at)),
                    run: Some(Nanos::from_us(10_000)),
                    ..Seen::default()
                };
                recorder.push(&seen).unwrap();
            }
        }
        recorder.finish()
    }

    pub(crate) fn basis() -> Basis {
        let workload = Workload::of(&recording(), None, Sharing::default(), &[], 1);
        Basis {
            requests: Requests::Recorded(workload),
            pool_of_route: vec![0],
            costs: Costs::default(),
            loop_costs: LoopCosts::default(),
            sharing: Sharing::default(),
            lock: None,
            running_seen: Some(2),
            queue_target: Nanos::from_ms(5),
            queue_timeout: Nanos::from_secs(30),
            overload_timeout: None,
            queue_len_max: 1_024,
            reserve: Reserve::default(),
            seed: 1,
        }
    }

    pub(crate) fn fixed(threads: usize) -> Variant {
        Variant {
            pools: vec![PoolVariant::of_threads("default", Threads::fixed(threads))],
            processes: 1,
            concurrency: Concurrency::default(),
            rate: 1.0,
            control: ControlMode::Off,
        }
    }

    fn steered(threads: usize) -> Variant {
        Variant {
            control: ControlMode::On,
            ..fixed(threads)
        }
    }

    #[test]
    fn a_reserve_takes_no_requests_and_is_never_all() {
        let found = |threads, kept| {
            let mut basis = basis();
            basis.reserve.threads = kept;
            answer(&basis, &basis.requests, &steered(threads))
        };
        let waits = |threads, kept| found(threads, kept).queue.p95_ms;
        assert_eq!(waits(3, 0), 0.0);
        assert!(waits(3, 1) > 100.0);
        assert_eq!(waits(3, 1), waits(2, 0));
        assert_eq!(waits(2, 64), waits(2, 1));
    }

    #[test]
    fn requests_beyond_the_queue_are_refused() {
        let refused = |places, kept| {
            let mut basis = basis();
            (basis.queue_len_max, basis.reserve.len) = (places, kept);
            answer(&basis, &basis.requests, &steered(2)).refused
        };
        assert_eq!(refused(1_024, 0), 0);
        assert!(refused(5, 0) > 0);
        assert_eq!(refused(8, 3), refused(5, 0));
    }

    #[test]
    fn says_when_it_goes_beyond_what_was_seen() {
        let basis = basis();
        let is_beyond = |threads| answer(&basis, &basis.requests, &fixed(threads)).is_beyond;
        assert_eq!([2, 4, 5].map(is_beyond), [false, false, true]);
    }
}
