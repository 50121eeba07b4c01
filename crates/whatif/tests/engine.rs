//! The simulation as a whole: delays of threads, order, pauses, sharing, several processes and pools.

mod common;

use common::{Pressures, Steps, alone, fixed};
use queueing::{Class, Control, Pressure, SizeStep};
use telemetry::Nanos;
use whatif::{Arrival, Ending, Lock, Outcome, Pause, Setting, Trace, simulate_traced};

fn arrivals(at_and_run_ms: &[(u64, u64)]) -> impl Iterator<Item = Arrival> {
    at_and_run_ms.iter().map(|&(at, run)| Arrival {
        at: Nanos::from_ms(at),
        run: Nanos::from_ms(run),
        ..Arrival::default()
    })
}

fn run_all(setting: &Setting, arrivals: impl Iterator<Item = Arrival>) -> (Outcome, Vec<Trace>) {
    let (mut arrivals, mut traces) = (arrivals, Vec::new());
    let mut trace = |trace: &Trace| traces.push(*trace);
    let outcome = simulate_traced(setting, &mut arrivals, 1, &mut trace);
    traces.sort_by_key(|trace| trace.number);
    (outcome, traces)
}

fn run(setting: &Setting, at_and_run_ms: &[(u64, u64)]) -> (Outcome, Vec<Trace>) {
    run_all(setting, arrivals(at_and_run_ms))
}

/// Milliseconds from the begin of the simulation at which each started and ended.
fn times_ms(traces: &[Trace]) -> Vec<(f64, f64)> {
    let ms = |at: Nanos| (at.0 as f64 / 1e3).round() / 1e3;
    let times = traces
        .iter()
        .map(|trace| (ms(trace.started), ms(trace.ended)));
    times.collect()
}

#[test]
fn runs_what_waits_when_a_thread_is_free() {
    let (outcome, traces) = run(&alone(fixed(2, 9)), &[(0, 10), (1, 10), (2, 5), (3, 5)]);
    let expect = [(0.0, 10.0), (1.0, 11.0), (10.0, 15.0), (11.0, 16.0)];
    assert_eq!(times_ms(&traces), expect);
    assert_eq!(outcome.lasted, Nanos::from_ms(16));
    let pool = &outcome.pools[0];
    assert_eq!((pool.arrived, pool.ran(), pool.good), (4, 4, 4));
    assert_eq!((pool.waited_ns, pool.waiting_ns), (16_000_000, 16_000_000));
    assert_eq!(pool.busy_seconds / pool.thread_seconds, 30.0 / 32.0);
    assert_eq!(pool.goodput(), 1.0);
}

#[test]
fn begins_with_the_first_arrival_whenever_that_is() {
    let (outcome, traces) = run(&alone(fixed(1, 9)), &[(86_400_000, 10), (86_400_001, 10)]);
    assert_eq!(outcome.lasted, Nanos::from_ms(20));
    assert_eq!(outcome.pools[0].thread_seconds, 0.02);
    assert_eq!(traces[1].ended, Nanos::from_ms(86_400_020));
}

#[test]
fn threads_need_their_time_to_wake_and_to_fetch() {
    let mut setting = alone(fixed(1, 9));
    setting.wakes = vec![Nanos::from_ms(3)];
    setting.fetch = Nanos::from_ms(1);
    let (_, traces) = run(&setting, &[(0, 10), (5, 10), (100, 10)]);
    let expect = [(3.0, 13.0), (14.0, 24.0), (103.0, 113.0)];
    assert_eq!(times_ms(&traces), expect);
    let from_queue: Vec<_> = traces.iter().map(|trace| trace.from_queue).collect();
    assert_eq!(from_queue, [false, true, false]);
}

#[test]
fn a_busy_thread_may_be_faster_than_one_that_wakes() {
    let mut setting = alone(fixed(2, 9));
    setting.wakes = vec![Nanos::from_ms(3)];
    // The second thread is called at 12 and finds nothing at 15: the first ends at 13 and takes it.
    let (_, traces) = run(&setting, &[(0, 10), (12, 10), (30, 1)]);
    let expect = [(3.0, 13.0), (13.0, 23.0), (33.0, 34.0)];
    assert_eq!(times_ms(&traces), expect);
    assert_eq!((traces[1].thread, traces[2].thread), (0, 0));
}

#[test]
fn the_thread_that_went_idle_last_is_called_first() {
    let (_, traces) = run(
        &alone(fixed(3, 9)),
        &[(0, 10), (0, 20), (0, 5), (30, 1), (30, 1), (30, 1)],
    );
    let threads: Vec<_> = traces.iter().map(|trace| trace.thread).collect();
    assert_eq!(threads, [0, 1, 2, 1, 0, 2]);
}

#[test]
fn those_that_run_together_slow_each_other_down() {
    let mut setting = alone(fixed(4, 9));
    setting.sharing.sigma = 1.0;
    // One lock: from 4 to 12 two share it, then the one that is left has 2 of its 10 ms to go.
    let (_, traces) = run(&setting, &[(0, 10), (4, 4)]);
    assert_eq!(times_ms(&traces), [(0.0, 14.0), (4.0, 12.0)]);
    setting.sharing.kappa = 0.25;
    // Two at a time: 1 / (1 + 1 + 0.25 · 2) of the speed.
    let (_, traces) = run(&setting, &[(0, 10), (0, 10), (60, 10)]);
    assert_eq!(times_ms(&traces), [(0.0, 25.0), (0.0, 25.0), (60.0, 70.0)]);
}

#[test]
fn work_is_neither_lost_nor_made_by_sharing() {
    let mut setting = alone(fixed(8, 1_000));
    setting.sharing.sigma = 1.0;
    // Under one lock there is always one second of work done a second, however many share it.
    let many: Vec<_> = (0..1_000).map(|at| (at, 2 + at % 7)).collect();
    let (outcome, _) = run(&setting, &many);
    let work_ms: u64 = many.iter().map(|(_, run)| run).sum();
    let off = outcome.lasted.0.abs_diff(work_ms * 1_000_000);
    assert!(
        off < 3_000,
        "each end may be rounded by a nanosecond: {off}"
    );
}

/// All of it needs the lock, or 2 of 10 ms do.
fn computing(
    arrivals: impl Iterator<Item = Arrival>,
    of_ten: u64,
) -> impl Iterator<Item = Arrival> {
    arrivals.map(move |arrival| Arrival {
        computing: Nanos(arrival.run.0 / 10 * of_ten),
        ..arrival
    })
}

#[test]
fn one_at_a_time_computes_and_the_rest_goes_on_beside_it() {
    let mut setting = alone(fixed(4, 9));
    let slice = Nanos::from_ms(5);
    setting.lock = Some(Lock { slice, before: 0.5 });
    let three = [(0, 10), (0, 10), (0, 10)];
    let (_, traces) = run_all(&setting, computing(arrivals(&three), 10));
    // Turns of 5 ms.
    assert_eq!(times_ms(&traces), [(0.0, 20.0), (0.0, 25.0), (0.0, 30.0)]);
    let (_, traces) = run_all(&setting, computing(arrivals(&three), 2));
    // A millisecond each, 8 ms side by side, another millisecond each.
    assert_eq!(times_ms(&traces), [(0.0, 10.0), (0.0, 11.0), (0.0, 12.0)]);
    for (before, expect) in [
        // Two milliseconds at once.
        (1.0, [(0.0, 10.0), (0.0, 12.0), (0.0, 14.0)]),
        (0.0, [(0.0, 10.0), (0.0, 12.0), (0.0, 14.0)]),
        // Half a millisecond after, which another one's 1.5 before do not delay.
        (0.75, [(0.0, 10.0), (0.0, 11.5), (0.0, 13.0)]),
    ] {
        setting.lock = Some(Lock { slice, before });
        let (_, traces) = run_all(&setting, computing(arrivals(&three), 2));
        assert_eq!(times_ms(&traces), expect, "{before}");
    }
    setting.processes = 2;
    let (_, traces) = run_all(&setting, computing(arrivals(&[(0, 10); 9]), 10));
    let last = traces.iter().map(|trace| trace.ended).max();
    assert!(
        last < Some(Nanos::from_ms(90)),
        "each process has its own: {last:?}"
    );
}

#[test]
fn an_elastic_pool_does_not_grow_where_all_wait_for_the_lock() {
    let threads = |of_ten| {
        let mut pool = fixed(1, 1_000);
        pool.settings.shape.threads_max = 32;
        let settings = pool.settings;
        pool.policy = Box::new(move || Box::new(Control::new(&settings)));
        let mut setting = alone(pool);
        setting.lock = Some(Lock::default());
        // Twice what one can compute.
        let many: Vec<_> = (0..4_000).map(|index| (5 * index, 10)).collect();
        let (outcome, _) = run_all(&setting, computing(arrivals(&many), of_ten));
        outcome.pools[0].thread_seconds / outcome.lasted.as_secs_f64()
    };
    assert!(threads(10) < 8.0, "{}", threads(10));
    assert!(threads(1) > 1.5, "{}", threads(1));
}

#[test]
fn processes_do_not_slow_each_other_down() {
    let mut setting = alone(fixed(1, 1_000));
    setting.processes = 2;
    setting.sharing.sigma = 1.0;
    let (outcome, traces) = run(&setting, &[(0, 10); 64]);
    let in_first = traces.iter().filter(|trace| trace.process == 0).count();
    assert!((16..48).contains(&in_first), "by chance: {in_first}");
    let most = in_first.max(64 - in_first) as u64;
    assert_eq!(outcome.lasted, Nanos::from_ms(10 * most));
    assert_eq!(outcome.pools[0].threads_max, 1);
}

#[test]
fn a_route_goes_to_its_pool() {
    let mut setting = alone(fixed(1, 9));
    setting.pools.push(fixed(1, 9));
    setting.pool_of_route = vec![0, 1];
    let routed = arrivals(&[(0, 50), (1, 50), (2, 1), (3, 1)])
        .zip([1, 1, 0, 7])
        .map(|(arrival, route)| Arrival { route, ..arrival });
    let (outcome, traces) = run_all(&setting, routed);
    let expect = [(0.0, 50.0), (50.0, 100.0), (2.0, 3.0), (3.0, 4.0)];
    assert_eq!(times_ms(&traces), expect);
    assert_eq!((outcome.pools[0].ran(), outcome.pools[1].ran()), (2, 2));
}

#[test]
fn nothing_advances_in_a_pause_but_clients_come() {
    let pause = |at, lasts| Pause {
        at: Nanos::from_ms(at),
        lasts: Nanos::from_ms(lasts),
    };
    let mut setting = alone(fixed(2, 9));
    setting.wakes = vec![Nanos::from_ms(2)];
    // The second two overlap, and the one before the first arrival is none.
    setting.pauses = vec![pause(200, 20), pause(105, 50), pause(210, 30), pause(3, 9)];
    let (_, traces) = run(&setting, &[(100, 10), (120, 10), (199, 1)]);
    let expect = [(102.0, 162.0), (157.0, 167.0), (241.0, 242.0)];
    assert_eq!(times_ms(&traces), expect);
}

#[test]
fn who_waits_too_long_is_refused_at_that_moment() {
    let mut pool = fixed(1, 9);
    pool.settings.queue_timeout = Nanos::from_ms(25);
    let setting = alone(pool);
    let (outcome, traces) = run(&setting, &[(0, 100), (10, 1), (20, 1), (90, 1)]);
    let endings: Vec<_> = traces.iter().map(|trace| trace.ending).collect();
    assert_eq!(
        endings,
        [Ending::Ran, Ending::Expired, Ending::Expired, Ending::Ran]
    );
    let expect = [(0.0, 100.0), (35.0, 35.0), (45.0, 45.0), (100.0, 101.0)];
    assert_eq!(times_ms(&traces), expect);
    let pool = &outcome.pools[0];
    assert_eq!(
        (pool.ran(), pool.expired, pool.waited_ns),
        (2, 2, 60_000_000)
    );
}

#[test]
fn a_full_queue_refuses_at_once() {
    let (outcome, traces) = run(&alone(fixed(1, 2)), &[(0, 100), (1, 1), (2, 1), (3, 1)]);
    assert_eq!(traces[3].ending, Ending::Refused);
    assert_eq!(traces[3].ended, Nanos::from_ms(3));
    assert_eq!((outcome.pools[0].refused, outcome.pools[0].ran()), (1, 3));
    assert_eq!(
        outcome.timeline.last().map(|moment| moment.refused),
        Some(1)
    );
}

fn two_and_a_question() -> impl Iterator<Item = Arrival> {
    let classes = [Class::Normal, Class::Normal, Class::Health];
    arrivals(&[(0, 10), (1, 10), (2, 1)])
        .zip(classes)
        .map(|(arrival, class)| Arrival { class, ..arrival })
}

#[test]
fn threads_kept_for_health_wait_for_it() {
    let mut pool = fixed(2, 9);
    pool.settings.reserve_threads = 1;
    let (_, traces) = run_all(&alone(pool), two_and_a_question());
    assert_eq!(times_ms(&traces), [(0.0, 10.0), (10.0, 20.0), (2.0, 3.0)]);
    assert!(traces[1].from_queue && !traces[2].from_queue);
}

#[test]
fn a_thread_that_wakes_counts_as_one_at_work_for_the_reserve() {
    let mut pool = fixed(2, 9);
    pool.settings.reserve_threads = 1;
    let mut setting = alone(pool);
    setting.wakes = vec![Nanos::from_ms(3)];
    let (_, traces) = run_all(&setting, two_and_a_question());
    // The first thread to wake takes the question, which goes ahead, and then the first request; the other
    // was called for the question and stays idle.
    assert_eq!(times_ms(&traces), [(4.0, 14.0), (14.0, 24.0), (3.0, 4.0)]);
    assert!(traces[1].from_queue && !traces[2].from_queue);
}

#[test]
fn patience_ends_sooner_when_the_pool_is_overloaded() {
    let mut pool = fixed(1, 9);
    pool.settings.queue_timeout = Nanos::from_ms(700);
    let pressures = [Pressure::Calm, Pressure::Overloaded, Pressure::Calm];
    pool.policy = Pressures::plan(&pressures);
    let requests = [(0, 900), (10, 1), (120, 1), (250, 1)];
    let (_, traces) = run(&alone(pool), &requests);
    // Overloaded from 200 to 300 ms only.
    let ended: Vec<_> = times_ms(&traces).iter().map(|times| times.1).collect();
    assert_eq!(ended, [900.0, 200.0, 220.0, 901.0]);
}

#[test]
fn new_threads_begin_when_they_are_started() {
    let mut pool = fixed(1, 9);
    pool.settings.shape.threads_max = 3;
    pool.policy = Steps::plan(&[SizeStep::Keep, SizeStep::Grow(9)]);
    let mut setting = alone(pool);
    setting.thread_start = Nanos::from_ms(40);
    let (outcome, traces) = run(&setting, &[(0, 900), (1, 10), (2, 20), (3, 10)]);
    // The second look is after 200 ms; three threads are the most that there may be.
    let expect = [(0.0, 900.0), (240.0, 250.0), (240.0, 260.0), (250.0, 260.0)];
    assert_eq!(times_ms(&traces), expect);
    let pool = &outcome.pools[0];
    assert_eq!((pool.threads_max, pool.threads_started), (3, 2));
    assert_eq!(pool.thread_seconds, 0.9 + 2.0 * 0.7);
    assert_eq!(outcome.timeline[0].threads, 3);
}

#[test]
fn the_thread_idle_longest_goes_and_one_at_work_only_when_it_is_done() {
    let mut pool = fixed(4, 9);
    pool.settings.shape.threads_min = 1;
    pool.policy = Steps::plan(&[SizeStep::Shrink(2), SizeStep::Shrink(1)]);
    let requests = [(0, 250), (0, 10), (0, 240), (220, 1), (230, 30), (251, 5)];
    let (outcome, traces) = run(&alone(pool), &requests);
    // Thread 3 never ran and goes first, thread 1 with it; then 0 or 2, whichever is done first.
    let threads: Vec<_> = traces.iter().map(|trace| trace.thread).collect();
    assert_eq!(threads, [0, 1, 2, 0, 0, 0]);
    let started: Vec<_> = times_ms(&traces).iter().map(|times| times.0).collect();
    assert_eq!(started, [0.0, 0.0, 0.0, 250.0, 251.0, 281.0]);
    let busy = 4.0 * 0.1 + 2.0 * 0.14 + 0.046;
    assert!((outcome.pools[0].thread_seconds - busy).abs() < 1e-9);
}

#[test]
fn a_pool_that_grows_keeps_those_who_were_to_leave() {
    let mut pool = fixed(2, 9);
    pool.settings.shape.threads_min = 1;
    pool.policy = Steps::plan(&[SizeStep::Shrink(1), SizeStep::Grow(1)]);
    let (outcome, _) = run(&alone(pool), &[(0, 500), (0, 500), (1, 5), (2, 5)]);
    assert_eq!(outcome.pools[0].threads_started, 0);
    assert_eq!(outcome.pools[0].thread_seconds, 2.0 * 0.505);
}

#[test]
fn bounds_hold_whatever_the_policy_wants() {
    let check = |threads, step, seconds: f64| {
        let mut pool = fixed(2, 9);
        pool.settings.shape.threads_max = 4;
        pool.threads = threads;
        pool.policy = Steps::plan(&[step]);
        let (outcome, _) = run(&alone(pool), &[(0, 200)]);
        let found = outcome.pools[0].thread_seconds;
        assert!((found - seconds).abs() < 1e-9, "{step:?}: {found}");
    };
    check(3, SizeStep::Keep, 0.6);
    check(3, SizeStep::Shrink(9), 0.3 + 0.2);
    check(3, SizeStep::Grow(9), 0.3 + 0.4);
    check(9, SizeStep::Grow(9), 0.9 + 0.4);
}
