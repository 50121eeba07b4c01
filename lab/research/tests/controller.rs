//! Our controller on the six workloads, against fixed pools that shed as it does, and on a step of load.
//!
//! Shorter than the comparison that `research controllers` prints, with the same bounds.

use queueing::{Control, PoolSettings, PoolShape};
use research::workloads::{self, Workload};
use telemetry::Nanos;
use whatif::{
    ArrivalProcess, Ending, Laws, Outcome, PoolPlan, Rate, Route, Service, Setting, Sharing, Trace,
    simulate, simulate_traced,
};

const LASTS: Nanos = Nanos::from_secs(240);
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
const SIZES: [usize; 6] = [4, 8, 12, 16, 32, 64];
/// Of the best fixed pool's goodput.
const GOODPUT_MIN: f64 = 0.93;
/// Of the best fixed pool's threads.
const THREADS_MAX: f64 = 2.0;
/// Goodputs that are closer than this are the same, and the smaller pool is the better.
const SAME: f64 = 0.002;

#[derive(Clone, Copy, Debug)]
struct Found {
    goodput: f64,
    threads: f64,
}

fn settings(threads_min: usize, threads_max: usize) -> PoolSettings {
    PoolSettings {
        shape: PoolShape {
            threads_min,
            threads_max,
            queue_len_max: 100_000,
        },
        queue_target: Nanos::from_ms(50),
        queue_timeout: Nanos::from_secs(1),
        overload_timeout: Nanos::from_ms(100),
        reserve_threads: 0,
        reserve_len: 0,
    }
}

fn plan(settings: PoolSettings) -> PoolPlan {
    PoolPlan {
        settings,
        threads: settings.shape.threads_min,
        policy: Box::new(move || Box::new(Control::new(&settings))),
    }
}

fn threads_mean(outcome: &Outcome) -> f64 {
    outcome.pools[0].thread_seconds / outcome.lasted.as_secs_f64()
}

/// The mean of all seeds on pools of these sizes.
fn run(index: usize, threads_min: usize, threads_max: usize) -> Found {
    let mut found = Found {
        goodput: 0.0,
        threads: 0.0,
    };
    let seeds = SEEDS.count() as f64;
    for seed in SEEDS {
        let workload: &Workload = &workloads::six(LASTS, seed)[index];
        let setting = workload.setting(plan(settings(threads_min, threads_max)));
        let outcome = simulate(&setting, &mut workload.laws.arrivals(seed), seed);
        found.goodput += outcome.pools[0].goodput() / seeds;
        found.threads += threads_mean(&outcome) / seeds;
    }
    found
}

/// The fixed pool with the best goodput, the smallest of those that are as good.
fn best_fixed(index: usize) -> Found {
    let found = SIZES.map(|len| run(index, len, len));
    let most = found
        .iter()
        .fold(0.0_f64, |most, one| most.max(one.goodput));
    *found
        .iter()
        .find(|one| one.goodput >= most - SAME)
        .expect("one of them is the best")
}

fn check(index: usize) {
    let (best, steered) = (best_fixed(index), run(index, 2, 64));
    assert!(
        steered.goodput >= GOODPUT_MIN * best.goodput,
        "{steered:?} beside {best:?}"
    );
    assert!(
        steered.threads <= THREADS_MAX * best.threads,
        "{steered:?} beside {best:?}"
    );
}

#[test]
fn bursts_pass_with_few_threads() {
    check(0);
}

#[test]
fn requests_that_hold_threads_do_not_hold_the_others() {
    check(1);
}

#[test]
fn a_server_that_stands_still_at_times_is_as_good_as_fixed() {
    check(2);
}

#[test]
fn under_one_lock_there_are_few_threads() {
    check(3);
}

#[test]
fn a_database_is_not_asked_by_more_than_it_can_serve() {
    check(4);
}

#[test]
fn too_much_work_gets_all_the_threads_there_are() {
    check(5);
}

/// Handlers that sleep for 20 ms; 1 × is what five of them at once can do.
const STEP_RUN: Nanos = Nanos::from_ms(20);
const STEP_PER_SECOND: f64 = 250.0;
const STEP_LASTS: Nanos = Nanos::from_secs(60);
const STEP_TARGET: Nanos = Nanos::from_ms(5);
/// What a fixed pool for the greatest load has.
const STEP_THREADS_MAX: usize = 32;

/// Once, four times and once what five threads can do, in a pool of 2 to 32 with the settings that hold where
/// nothing else is said; and all waits by the second that requests came in.
fn step() -> (Outcome, Vec<Vec<Nanos>>) {
    let rates = [1.0, 4.0, 1.0].map(|times| Rate::steady(times * STEP_PER_SECOND, STEP_LASTS));
    let settings = PoolSettings {
        queue_target: STEP_TARGET,
        queue_timeout: Nanos::from_secs(30),
        overload_timeout: Nanos::from_ms(500),
        ..settings(2, STEP_THREADS_MAX)
    };
    let mut waits = vec![Vec::new(); 1 + 3 * STEP_LASTS.as_secs_f64() as usize];
    let mut trace = |trace: &Trace| {
        assert_eq!(trace.ending, Ending::Ran, "{trace:?}");
        let second = trace.arrived.as_secs_f64() as usize;
        waits[second].push(Nanos(trace.started.0 - trace.arrived.0));
    };
    let outcome = sleeping(&rates, settings, 1, &mut trace);
    (outcome, waits)
}

/// Requests come by chance at these rates, and each sleeps for `STEP_RUN`.
fn sleeping(
    rates: &[Rate],
    settings: PoolSettings,
    seed: u64,
    trace: &mut dyn FnMut(&Trace),
) -> Outcome {
    let laws = Laws {
        rates: rates.to_vec(),
        process: ArrivalProcess::Poisson,
        routes: vec![Route::only(Service::Constant(STEP_RUN))],
    };
    let setting = Setting {
        processes: 1,
        pools: vec![plan(settings)],
        pool_of_route: Vec::new(),
        wakes: vec![Nanos::from_us(20)],
        fetch: Nanos::from_us(5),
        thread_start: Nanos::from_ms(5),
        sharing: Sharing::default(),
        lock: None,
        pauses: Vec::new(),
        patience: Nanos::from_secs(1),
    };
    simulate_traced(&setting, &mut laws.arrivals(seed), seed, trace)
}

#[test]
fn a_step_of_load_is_followed_within_two_seconds_and_nobody_is_refused() {
    let (outcome, mut waits) = step();
    let pool = &outcome.pools[0];
    assert_eq!((pool.refused, pool.expired), (0, 0));
    let threads = threads_mean(&outcome);
    assert!(
        threads <= 0.6 * STEP_THREADS_MAX as f64,
        "{threads} threads"
    );
    let begin = STEP_LASTS.as_secs_f64() as usize;
    for second in [begin + 2, begin + 3, begin + 10, 2 * begin - 1] {
        let waits = &mut waits[second];
        waits.sort_unstable();
        let p95 = waits[waits.len() * 95 / 100];
        assert!(p95 <= STEP_TARGET, "{p95} in second {second}");
    }
}

/// Half, twice and half of what four threads can do, by a pool that leaves little time to those who wait.
#[test]
fn twice_the_capacity_is_refused_at_once_and_leaves_nothing_behind() {
    let (before, during, after) = (10.0, 60.0, 20.0);
    let capacity = 4.0 / STEP_RUN.as_secs_f64();
    let rates = [(0.5, before), (2.0, during), (0.5, after)]
        .map(|(times, secs)| Rate::steady(times * capacity, Nanos((secs * 1e9) as u64)));
    let settings = PoolSettings {
        queue_target: Nanos::from_ms(5),
        queue_timeout: Nanos::from_secs(30),
        overload_timeout: Nanos::from_ms(8),
        ..settings(4, 4)
    };
    for seed in 1..=10 {
        let (mut waits, mut longest_refusal, mut last_refusal) = (Vec::new(), Nanos::ZERO, 0.0);
        sleeping(&rates, settings, seed, &mut |trace| {
            let arrived = trace.arrived.as_secs_f64();
            // The first second is what it takes to see that it is no burst.
            let is_during = (before + 1.0..before + during).contains(&arrived);
            match trace.ending {
                Ending::Ran if is_during => waits.push(Nanos(trace.started.0 - trace.arrived.0)),
                Ending::Ran => {}
                _ => {
                    last_refusal = f64::max(last_refusal, arrived);
                    let wait = Nanos(trace.ended.0 - trace.arrived.0);
                    longest_refusal =
                        longest_refusal.max(if is_during { wait } else { Nanos::ZERO });
                }
            }
        });
        waits.sort_unstable();
        let goodput = waits.len() as f64 / (during - 1.0) / capacity;
        assert!(goodput >= 0.95, "{goodput} of the capacity, seed {seed}");
        assert!(waits[waits.len() * 99 / 100] <= Nanos::from_ms(15));
        assert!(longest_refusal <= Nanos::from_ms(10), "{longest_refusal}");
        let recovered = last_refusal - before - during;
        // It is judged by half a second.
        assert!(recovered <= 0.7, "after {recovered} s, seed {seed}");
    }
}
