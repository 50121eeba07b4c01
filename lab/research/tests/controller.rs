//! Our controller on the six workloads, against fixed pools that shed as it does, and on a step of load.
//!
//! Shorter than the comparison that `research controllers` prints, with the same bounds.

use queueing::{Control, PoolSettings, PoolShape};
use research::workloads::{self, Workload};
use telemetry::Nanos;
use whatif::{
    ArrivalProcess, Ending, Laws, LoopPlan, Outcome, PoolPlan, Rate, Route, RunsOn, Service,
    Setting, Sharing, Trace, simulate, simulate_traced,
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
        overload_timeout: Some(Nanos::from_ms(100)),
        reserve_threads: 0,
        reserve_len: 0,
    }
}

fn plan(settings: PoolSettings) -> PoolPlan {
    PoolPlan {
        runs_on: RunsOn::Threads,
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
        overload_timeout: None,
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
        event_loop: LoopPlan::default(),
        loop_wakes: Vec::new(),
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

/// What becomes of requests that come before, during and after an overload.
struct Overload {
    before_secs: f64,
    during_secs: f64,
    /// Of those that came during it, its first second left out: so long it takes to see that it is no burst.
    waits: Vec<Nanos>,
    longest_refusal: Nanos,
    /// When the last one came that was refused, after the end of the overload, in s.
    recovered_secs: f64,
    /// The longest wait of those that came so much later.
    calm_wait: Nanos,
}

/// After its end everything is as before.
const CALM_AFTER_SECS: f64 = 2.0;

impl Overload {
    /// Half, twice and half of what four threads can do.
    fn of(settings: PoolSettings, seed: u64, before_secs: f64, during_secs: f64) -> Overload {
        let rates = [(0.5, before_secs), (2.0, during_secs), (0.5, 20.0)]
            .map(|(times, secs)| Rate::steady(times * STEP_CAPACITY, Nanos((secs * 1e9) as u64)));
        let mut found = Overload {
            before_secs,
            during_secs,
            waits: Vec::new(),
            longest_refusal: Nanos::ZERO,
            recovered_secs: -during_secs,
            calm_wait: Nanos::ZERO,
        };
        sleeping(&rates, settings, seed, &mut |trace| found.note(trace));
        found.waits.sort_unstable();
        found
    }

    fn note(&mut self, trace: &Trace) {
        let since_end = trace.arrived.as_secs_f64() - self.before_secs - self.during_secs;
        let is_during = (1.0 - self.during_secs..0.0).contains(&since_end);
        match trace.ending {
            Ending::Ran => {
                let wait = Nanos(trace.started.0 - trace.arrived.0);
                if is_during {
                    self.waits.push(wait);
                } else if since_end >= CALM_AFTER_SECS {
                    self.calm_wait = self.calm_wait.max(wait);
                }
            }
            _ => {
                self.recovered_secs = self.recovered_secs.max(since_end);
                let wait = Nanos(trace.ended.0 - trace.arrived.0);
                let longest = self.longest_refusal.max(wait);
                self.longest_refusal = if is_during {
                    longest
                } else {
                    self.longest_refusal
                };
            }
        }
    }

    /// Completed in the time, of what can be.
    fn goodput(&self) -> f64 {
        self.waits.len() as f64 / (self.during_secs - 1.0) / STEP_CAPACITY
    }

    fn p99(&self) -> Nanos {
        self.waits[self.waits.len() * 99 / 100]
    }
}

const STEP_CAPACITY: f64 = 200.0;

#[test]
fn twice_the_capacity_is_refused_at_once_and_leaves_nothing_behind() {
    let settings = PoolSettings {
        queue_target: STEP_TARGET,
        queue_timeout: Nanos::from_secs(30),
        overload_timeout: Some(Nanos::from_ms(8)),
        ..settings(4, 4)
    };
    for seed in 1..=10 {
        let found = Overload::of(settings, seed, 10.0, 60.0);
        let goodput = found.goodput();
        assert!(goodput >= 0.95, "{goodput} of the capacity, seed {seed}");
        assert!(found.p99() <= Nanos::from_ms(15), "{}", found.p99());
        let refusal = found.longest_refusal;
        assert!(refusal <= Nanos::from_ms(10), "{refusal}");
        // It is judged by half a second.
        let recovered = found.recovered_secs;
        assert!(recovered <= 0.7, "after {recovered} s, seed {seed}");
    }
}

#[test]
fn twice_the_capacity_is_refused_within_a_second_where_nothing_is_said() {
    let settings = PoolSettings {
        shape: PoolShape {
            queue_len_max: 1_024,
            ..settings(4, 4).shape
        },
        queue_target: STEP_TARGET,
        queue_timeout: Nanos::from_secs(30),
        overload_timeout: None,
        ..settings(4, 4)
    };
    for seed in 1..=10 {
        let found = Overload::of(settings, seed, 10.0, 15.0);
        let goodput = found.goodput();
        assert!(goodput >= 0.95, "{goodput} of the capacity, seed {seed}");
        assert!(found.p99() <= Nanos::from_secs(1), "{}", found.p99());
        let refusal = found.longest_refusal;
        assert!(refusal <= Nanos::from_ms(1_010), "{refusal}");
        let recovered = found.recovered_secs;
        assert!(recovered <= 1.0, "after {recovered} s, seed {seed}");
        assert!(
            found.calm_wait <= Nanos::from_ms(100),
            "{}",
            found.calm_wait
        );
    }
}
