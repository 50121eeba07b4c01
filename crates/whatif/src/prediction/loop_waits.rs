//! What the tasks of an event loop waited for each other.
//!
//! A log says how long a request ran and how long its own steps took. In the rest it waited: for a database, a timer or
//! a client, and for the loop, which ran steps of others. Only the former is its own, and the simulation adds the latter
//! again. It is found by the simulation itself: what the log as it was makes tasks wait for the loop is taken out of their
//! runs, until the simulated runs are those of the log. A log often leaves open how long a task waited that a long step of
//! another one has held up: then it is as long as others of its route waited.

use telemetry::Nanos;

use super::{Basis, Requests, Variant, plan};
use crate::{Ending, simulate_traced};

/// Each round simulates the whole log. Behind the first ones hardly anything changes.
const ROUNDS: usize = 4;

/// Takes what tasks waited for the loop out of the runs of a log; `present` is the server that wrote it.
pub fn take_out_loop_waits(basis: &mut Basis, present: &Variant) {
    let Requests::Recorded(workload) = &basis.requests else {
        return;
    };
    if !workload.has_loop() {
        return;
    }
    let measured = workload.loop_runs();
    if let Requests::Recorded(workload) = &mut basis.requests {
        workload.shorten_loop_runs();
    }
    for _ in 0..ROUNDS {
        let Requests::Recorded(workload) = &basis.requests else {
            return;
        };
        let setting = plan::setting(basis, present, workload.pauses());
        let mut simulated = vec![None; workload.len()];
        simulate_traced(
            &setting,
            &mut workload.arrivals_as_recorded(),
            basis.seed,
            &mut |trace| {
                if trace.ending == Ending::Ran {
                    let run = Nanos(trace.ended.0 - trace.started.0);
                    simulated[trace.number as usize] = Some(run);
                }
            },
        );
        if let Requests::Recorded(workload) = &mut basis.requests {
            workload.set_loop_runs(&measured, &simulated);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{basis, fixed};
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::super::{ErrorMax, PoolVariant, Threads, Times, calibrate};
    use super::*;
    use crate::recorded::{LoopCosts, Recorder, Seen, Workload};
    use crate::{LoopSteps, RunsOn};

    fn seen(at_ms: u64, queue_ms: u64, run_ms: u64, busy_ms: u64, len: u32) -> Seen {
        Seen {
            began_unix_ns: 1_795_262_400_000_000_000 + at_ms * 1_000_000 + 1,
            queue: Some(Nanos::from_ms(queue_ms)),
            run: Some(Nanos::from_ms(run_ms)),
            steps: Some(LoopSteps {
                len,
                busy: Nanos::from_ms(busy_ms),
                longest: Nanos(Nanos::from_ms(busy_ms).0 / u64::from(len)),
                ..LoopSteps::default()
            }),
            ..Seen::default()
        }
    }

    /// One event loop.
    fn on_a_loop() -> Variant {
        let pool = PoolVariant {
            runs_on: RunsOn::EventLoop,
            ..PoolVariant::of_threads("default", Threads::fixed(1))
        };
        Variant {
            pools: vec![pool],
            ..fixed(1)
        }
    }

    #[test]
    fn what_a_task_waited_for_a_long_step_of_another_is_not_its_own() {
        // A task of 2 steps of 1 ms with 10 ms between them; a step of 100 ms begins meanwhile, so that the log says 103 ms.
        // It is the same without one a second later.
        let pair = |second: u64| {
            let at = 2_000 * second;
            let long = Seen {
                route: 1,
                ..seen(at + 2, 0, 100, 100, 1)
            };
            [seen(at, 0, 103, 2, 2), long, seen(at + 1_000, 0, 12, 2, 2)]
        };
        let mut recorder = Recorder::default();
        recorder.begin();
        for one in (0..20).flat_map(pair) {
            recorder.push(&one).unwrap();
        }
        let mut basis = basis();
        basis.requests = Requests::Recorded(Workload::of_loop(&recorder.finish(), 1));
        let present = on_a_loop();
        take_out_loop_waits(&mut basis, &present);
        let Requests::Recorded(workload) = &basis.requests else {
            panic!("they were recorded");
        };
        let runs: Vec<u64> = workload
            .arrivals()
            .map(|one| (one.run.0 + 500_000) / 1_000_000)
            .collect();
        for found in runs.chunks(3) {
            // What is left of the wait is anything up to the end of the long step: the log does not say.
            assert!(
                found[0] < 103 && found[1] == 100 && found[2] == 12,
                "{found:?}"
            );
        }
        // The simulation of the present gives what was measured.
        let mut simulated = Vec::new();
        let setting = plan::setting(&basis, &present, &[]);
        simulate_traced(&setting, &mut workload.arrivals(), 1, &mut |trace| {
            simulated.push((trace.number, (trace.ended.0 - trace.started.0) / 100_000));
        });
        simulated.sort_unstable();
        for (number, found) in simulated {
            let expect = [1_030, 1_000, 120][number as usize % 3];
            assert!(found.abs_diff(expect) <= 20, "{number}: {found}");
        }
    }

    /// What a loop at its limit logs, with spans cut to microseconds: each of `clients` asks again as soon as it has its
    /// answer. What a request costs changes all the time, and now and then something else holds the loop.
    fn saturated(seed: u64, clients: u64) -> Vec<Seen> {
        const LEN: usize = 12_000;
        let mut random = fastrand::Rng::with_seed(seed);
        // Moments at which clients ask, in nanoseconds, the next one first.
        let mut asks: BinaryHeap<Reverse<(u64, u64)>> = (0..clients)
            .map(|one| Reverse((1_000 * one, one)))
            .collect();
        let (mut free_at, mut cost_ns) = (0, random.f64() * 20_000.0 + 2_000.0);
        let us = |ns: u64| Nanos(ns / 1_000 * 1_000);
        let mut log = Vec::with_capacity(LEN);
        for _ in 0..LEN {
            let Reverse((came, client)) = asks.pop().unwrap();
            // A loop that sleeps needs 30 us to wake, and now and then milliseconds, because it gets no processor.
            let began = match came < free_at {
                true => free_at,
                false if random.u32(0..100) == 0 => came + random.u64(0..20_000_000),
                false => came + 30_000,
            };
            let busy = random.u64(200..8_000);
            cost_ns = (cost_ns * (0.9 + 0.2 * random.f64())).clamp(1_500.0, 40_000.0);
            let pause = if random.u32(0..5_000) == 0 {
                random.u64(0..40_000_000)
            } else {
                0
            };
            free_at = began + busy + cost_ns as u64 + pause;
            asks.push(Reverse((free_at + random.u64(5_000..100_000), client)));
            log.push(Seen {
                began_unix_ns: 1_795_262_400_000_000_000 + us(came).0,
                queue: Some(us(began - came)),
                run: Some(us(busy)),
                steps: Some(LoopSteps {
                    len: 1,
                    busy: us(busy),
                    longest: us(busy),
                    ..LoopSteps::default()
                }),
                ..Seen::default()
            });
        }
        log
    }

    #[test]
    fn the_log_of_a_loop_at_its_limit_is_repeated() {
        for seed in 0..12 {
            let clients = [16, 64, 256][seed as usize % 3];
            let mut recorder = Recorder::default();
            recorder.begin();
            for one in saturated(seed, clients) {
                recorder.push(&one).unwrap();
            }
            let recording = recorder.finish();
            let mut basis = basis();
            basis.loop_costs = LoopCosts::of(&recording);
            basis.requests = Requests::Recorded(Workload::of_loop(&recording, seed));
            let present = on_a_loop();
            take_out_loop_waits(&mut basis, &present);
            let error_max = ErrorMax {
                share: 0.1,
                span: Nanos::from_us(200),
            };
            let measured = Times::of(recording.queue());
            let found = calibrate(&basis, &present, measured, error_max);
            assert!(
                found.holds,
                "seed {seed}, {clients} clients: {:?}",
                found.errors
            );
        }
    }
}
