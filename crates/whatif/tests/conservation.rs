//! What must hold in every simulation, whatever the load, the setting and the policy do.

mod common;

use std::collections::HashMap;

use common::{Wild, alone, fixed};
use proptest::prelude::*;
use queueing::Class;
use telemetry::Nanos;
use whatif::{
    Arrival, ArrivalProcess, Ending, Laws, Lock, Outcome, Pause, Rate, Route, Service, Setting,
    Sharing, Trace, simulate_traced,
};

fn ms(bounds: std::ops::Range<u64>) -> impl Strategy<Value = Nanos> {
    bounds.prop_map(Nanos::from_ms)
}

fn settings() -> impl Strategy<Value = Setting> {
    let wakes = prop::collection::vec(ms(0..3), 0..3);
    let server = (1..4usize, 1..4usize, wakes, ms(0..3), ms(0..300));
    let lock = (ms(0..10), 0.0..=1.0f64).prop_map(|(slice, before)| Lock { slice, before });
    let lock = prop::option::of(lock);
    let pool = (1..5usize, 0..5usize, 0..40usize, 0..3usize, 0..10usize);
    let patience = (ms(1..400), prop::option::of(ms(1..200)), any::<u64>());
    let sharing = prop_oneof![
        Just((0.0, 0.0)),
        Just((1.0, 0.0)),
        (0.0..1.0f64, 0.0..0.1f64)
    ];
    let pauses = prop::collection::vec((0..3_000u64, 0..500u64), 0..4);
    (server, pool, patience, (sharing, lock), pauses).prop_map(
        |(server, pool, (queue_timeout, overload_timeout, wild), (sharing, lock), pauses)| {
            let (sigma, kappa) = sharing;
            let (processes, pools, wakes, fetch, thread_start) = server;
            let (threads_min, more, queue_len_max, reserve_threads, reserve_len) = pool;
            let plans = (0..pools).map(|index| {
                let mut plan = fixed(threads_min, queue_len_max);
                plan.settings.shape.threads_max += more;
                plan.settings.queue_timeout = queue_timeout;
                plan.settings.overload_timeout = overload_timeout;
                plan.settings.reserve_threads = reserve_threads;
                plan.settings.reserve_len = reserve_len;
                plan.policy = Wild::plan(wild.wrapping_add(index as u64));
                plan
            });
            let pause = |&(at, lasts): &(u64, u64)| Pause {
                at: Nanos::from_ms(at),
                lasts: Nanos::from_ms(lasts),
            };
            Setting {
                processes,
                pools: plans.collect(),
                pool_of_route: vec![2, 0, 1],
                wakes,
                fetch,
                thread_start,
                event_loop: whatif::LoopPlan::default(),
                loop_wakes: Vec::new(),
                sharing: Sharing { sigma, kappa },
                lock,
                pauses: pauses.iter().map(pause).collect(),
                ..alone(fixed(1, 1))
            }
        },
    )
}

fn laws() -> impl Strategy<Value = Laws> {
    let process = prop_oneof![
        Just(ArrivalProcess::Even),
        Just(ArrivalProcess::Poisson),
        (1.0..20.0f64, ms(0..5))
            .prop_map(|(len_mean, gap)| ArrivalProcess::Bursts { len_mean, gap }),
    ];
    let rates = prop::collection::vec((0.0..300.0f64, ms(1..2_000)), 1..4);
    (rates, process, 0..40u64).prop_map(|(rates, process, run_ms)| {
        let rate = |(per_second, lasts)| Rate::steady(per_second, lasts);
        let mean = Nanos::from_ms(run_ms);
        let route = |service, class| Route {
            weight: 1.0,
            service,
            computing: 0.0,
            class,
        };
        Laws {
            rates: rates.into_iter().map(rate).collect(),
            process,
            routes: vec![
                route(Service::Constant(mean), Class::Health),
                route(Service::Exponential { mean }, Class::Normal),
                route(Service::LogNormal { mean, cs2: 5.0 }, Class::Low),
                route(Service::Exponential { mean }, Class::High),
            ],
        }
    })
}

fn run(setting: &Setting, arrivals: &[Arrival]) -> (Outcome, Vec<Trace>) {
    let mut traces = Vec::new();
    let mut trace = |trace: &Trace| traces.push(*trace);
    let outcome = simulate_traced(setting, &mut arrivals.iter().copied(), 7, &mut trace);
    (outcome, traces)
}

/// Nobody is lost, nobody ends twice, and sums agree with what was told of each.
fn check_counts(outcome: &Outcome, traces: &[Trace], arrivals: &[Arrival]) {
    let mut numbers: Vec<_> = traces.iter().map(|trace| trace.number).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..arrivals.len() as u64));
    for (index, pool) in outcome.pools.iter().enumerate() {
        assert_eq!(pool.arrived, pool.ran() + pool.refused + pool.expired);
        assert_eq!(pool.total.len(), pool.ran());
        let of = |ending| {
            let ours = traces.iter().filter(|trace| trace.pool == index);
            ours.filter(|trace| trace.ending == ending).count() as u64
        };
        assert_eq!(pool.ran(), of(Ending::Ran));
        assert_eq!(pool.refused, of(Ending::Refused));
        assert_eq!(pool.expired, of(Ending::Expired));
    }
}

/// Little's law, to the nanosecond.
fn check_waits(outcome: &Outcome, traces: &[Trace]) {
    for (index, pool) in outcome.pools.iter().enumerate() {
        let waits = traces.iter().filter(|trace| trace.pool == index);
        let waits = waits.map(|trace| u128::from(trace.started.0 - trace.arrived.0));
        assert_eq!(pool.waited_ns, waits.sum::<u128>());
        assert_eq!(pool.waiting_ns, pool.waited_ns);
    }
}

/// A thread runs one request at a time, and threads were at work for as long as requests ran.
fn check_threads(outcome: &Outcome, traces: &[Trace]) {
    let mut free: HashMap<_, Nanos> = HashMap::new();
    let mut ran: Vec<_> = traces.iter().filter(|t| t.ending == Ending::Ran).collect();
    ran.sort_by_key(|trace| (trace.started, trace.ended));
    for trace in ran {
        let free = free
            .entry((trace.process, trace.pool, trace.thread))
            .or_default();
        assert!(trace.started >= *free, "{trace:?} on a thread at work");
        *free = trace.ended;
    }
    for (index, pool) in outcome.pools.iter().enumerate() {
        let ran = traces.iter().filter(|trace| trace.pool == index);
        let busy: u64 = ran.map(|trace| trace.ended.0 - trace.started.0).sum();
        assert!((pool.busy_seconds - busy as f64 / 1e9).abs() < 1e-6);
        assert!(pool.busy_seconds <= pool.thread_seconds + 1e-6);
    }
}

/// Arrivals by these laws, of which every route computes for another share of its run.
fn arrivals(laws: &Laws, seed: u64) -> Vec<Arrival> {
    let computing = |arrival: Arrival| Arrival {
        computing: Nanos(arrival.run.0 / 3 * u64::from(arrival.route)),
        ..arrival
    };
    laws.arrivals(seed).map(computing).collect()
}

/// Nobody runs faster than alone; without others and pauses exactly as fast. With a lock no process computes for
/// longer than it has been at work.
fn check_runs(setting: &Setting, traces: &[Trace], arrivals: &[Arrival]) {
    let is_alone = setting.sharing == Sharing::default()
        && setting.pauses.is_empty()
        && setting.lock.is_none();
    let mut computed = vec![(u64::MAX, 0, 0); setting.processes];
    for trace in traces.iter().filter(|trace| trace.ending == Ending::Ran) {
        let run = arrivals[trace.number as usize].run;
        let took = Nanos(trace.ended.0 - trace.started.0);
        assert!(took.0 + 2 >= run.0, "{trace:?} for {run:?}");
        assert!(!is_alone || took == run, "{trace:?} for {run:?}");
        let (begun, ended, sum) = &mut computed[trace.process];
        *begun = trace.started.0.min(*begun);
        *ended = trace.ended.0.max(*ended);
        *sum += arrivals[trace.number as usize].computing.0;
    }
    for (begun, ended, sum) in computed {
        let lasted = ended.saturating_sub(begun);
        assert!(setting.lock.is_none() || sum <= lasted, "{sum} in {lasted}");
    }
}

fn check_timeline(outcome: &Outcome, traces: &[Trace]) {
    let times: Vec<_> = outcome.timeline.iter().map(|moment| moment.at).collect();
    assert!(times.is_sorted() && times.len() <= 4_096);
    let refused: u64 = outcome.timeline.iter().map(|moment| moment.refused).sum();
    let ran = |trace: &&Trace| trace.ending == Ending::Ran;
    assert_eq!(refused, traces.iter().filter(|t| !ran(t)).count() as u64);
    let waits = traces.iter().filter(ran).map(|t| t.started.0 - t.arrived.0);
    let longest = outcome.timeline.iter().map(|moment| moment.wait_max.0);
    assert_eq!(longest.max(), waits.max().or(Some(0)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_times_add_up(setting in settings(), laws in laws(), seed: u64) {
        let arrivals = arrivals(&laws, seed);
        let (outcome, traces) = run(&setting, &arrivals);
        check_counts(&outcome, &traces, &arrivals);
        check_waits(&outcome, &traces);
        check_threads(&outcome, &traces);
        check_runs(&setting, &traces, &arrivals);
        if !arrivals.is_empty() {
            check_timeline(&outcome, &traces);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_outcome(setting in settings(), laws in laws(), seed: u64) {
        let (arrivals, again) = (arrivals(&laws, seed), arrivals(&laws, seed));
        prop_assert!(arrivals == again && arrivals.is_sorted_by_key(|arrival| arrival.at));
        let ((one, traces), (other, others)) = (run(&setting, &arrivals), run(&setting, &again));
        prop_assert_eq!(traces, others);
        prop_assert_eq!(one.timeline, other.timeline);
    }
}
