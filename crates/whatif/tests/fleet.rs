//! Fleets: theory where there is one, and what no rule may do.

use proptest::prelude::*;
use queueing::balancing::Rule;
use telemetry::Nanos;
use whatif::{
    ArrivalProcess, Balance, Fleet, FleetOutcome, FleetServer, Laws, Limits, Rate, Route, Service,
    Stall, simulate_fleet,
};

const RUN: Nanos = Nanos::from_ms(20);
const RULES: [Rule; 8] = [
    Rule::Queue,
    Rule::LeastConnections,
    Rule::TwoChoices,
    Rule::PeakEwma,
    Rule::Prequal,
    Rule::RoundRobin,
    Rule::Random,
    Rule::First,
];

fn fleet(servers: usize, threads: u32, balance: Balance, limits: Limits) -> Fleet {
    Fleet {
        servers: vec![FleetServer::of_threads(threads); servers],
        proxies: 1,
        balance,
        limits,
        round_trip: Nanos::ZERO,
        report_delay: Nanos::ZERO,
        patience: Nanos::from_secs(1),
    }
}

/// At this part of what all the threads of the fleet can do, where none is slower.
fn run(fleet: &Fleet, load: f64, requests: usize) -> FleetOutcome {
    let threads: u32 = fleet.servers.iter().map(|server| server.threads).sum();
    let per_second = load * f64::from(threads) / RUN.as_secs_f64();
    let laws = Laws {
        rates: vec![Rate::steady(per_second, Nanos::from_secs(1_000_000))],
        process: ArrivalProcess::Poisson,
        routes: vec![Route::only(Service::Exponential { mean: RUN })],
    };
    simulate_fleet(fleet, &mut laws.arrivals(5).take(requests), 5)
}

/// The mean wait in run times.
fn wait(fleet: &Fleet, load: f64) -> f64 {
    run(fleet, load, 200_000).queue.mean() / RUN.0 as f64
}

#[test]
fn one_queue_waits_as_erlang_says_and_blind_ones_longer() {
    let check = |balance, limits, expect: f64| {
        let found = wait(&fleet(4, 1, balance, limits), 0.9);
        assert!((found / expect - 1.0).abs() < 0.12, "{balance:?}: {found}");
    };
    // Of M/M/4 and of M/M/1 at 90 %.
    check(Balance::Central, Limits::None, 1.97);
    check(Balance::By(Rule::Queue), Limits::Reported, 1.97);
    check(Balance::By(Rule::Random), Limits::None, 9.0);
}

#[test]
fn two_choices_do_most_of_what_knowing_all_does() {
    // Of the supermarket model at 90 % with many servers: 2.6 run times in all.
    let many = fleet(200, 1, Balance::By(Rule::TwoChoices), Limits::None);
    let found = wait(&many, 0.9) + 1.0;
    assert!((found / 2.61 - 1.0).abs() < 0.05, "{found}");
}

#[test]
fn proxies_that_do_not_see_each_other_are_nearly_one_queue() {
    let p99 = |balance, limits| {
        let mut fleet = fleet(4, 4, balance, limits);
        fleet.proxies = 4;
        run(&fleet, 0.9, 100_000).total.value_at_quantile(0.99) as f64
    };
    let best = p99(Balance::Central, Limits::None);
    for limits in [Limits::Reported, Limits::Learnt, Limits::None] {
        let found = p99(Balance::By(Rule::Queue), limits);
        assert!(found < 1.15 * best, "{limits:?}: {found} and {best}");
    }
    let blind = p99(Balance::By(Rule::Random), Limits::None);
    assert!(blind > 1.5 * best, "{blind} and {best}");
}

#[test]
fn a_server_that_stands_still_holds_few() {
    let stall = Stall {
        every: Nanos::from_secs(10),
        lasts: Nanos::from_secs(1),
    };
    let p99 = |rule, limits| {
        let mut fleet = fleet(4, 4, Balance::By(rule), limits);
        fleet.servers[3].stall = Some(stall);
        run(&fleet, 0.5, 60_000).total.value_at_quantile(0.99)
    };
    let (queue, robin) = (
        p99(Rule::Queue, Limits::Reported),
        p99(Rule::RoundRobin, Limits::None),
    );
    assert!(2 * queue < robin, "{queue} and {robin}");
}

#[test]
fn a_proxy_learns_the_way_to_its_servers() {
    let mut far = fleet(1, 4, Balance::By(Rule::Queue), Limits::Reported);
    far.round_trip = RUN;
    // Four requests at a time of two run times each would be less than come.
    let found = run(&far, 0.6, 10_000);
    let median = found.total.value_at_quantile(0.5);
    assert!(median < 3 * RUN.0, "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_request_ends_once_and_runs_as_long_as_it_takes(
        servers in 1usize..6,
        threads in 1u32..5,
        proxies in 1usize..4,
        rule in prop::sample::select(RULES.to_vec()),
        limits in prop::sample::select(vec![Limits::Reported, Limits::Learnt, Limits::None]),
        (round_trip_us, delay_ms, slower) in (0u64..5_000, 0u64..50, 1u32..20),
        load in 0.1f64..1.3,
    ) {
        let mut fleet = fleet(servers, threads, Balance::By(rule), limits);
        fleet.proxies = proxies;
        fleet.round_trip = Nanos::from_us(round_trip_us);
        fleet.report_delay = Nanos::from_ms(delay_ms);
        fleet.servers[0].slower = f64::from(slower);
        let found = run(&fleet, load, 3_000);
        prop_assert_eq!(found.arrived, 3_000);
        prop_assert_eq!(found.servers.iter().map(|server| server.ran).sum::<u64>(), 3_000);
        prop_assert!(found.queue.min() >= fleet.round_trip.0 * 99 / 100);
        let shares: f64 = (0..servers).map(|server| found.share(server)).sum();
        prop_assert!((shares - 1.0).abs() < 1e-9);
        for server in &found.servers {
            let most = found.lasted.as_secs_f64() * f64::from(threads);
            prop_assert!(server.busy_seconds <= most * 1.001);
        }
        // With limits known, no queue forms at servers beyond what hides the round trip.
        if limits == Limits::Reported && proxies == 1 && round_trip_us == 0 {
            let waiting = found.servers.iter().map(|server| server.waiting_max).max();
            // Until the first report a server gets what an unknown one may have.
            prop_assert!(waiting <= Some(8));
        }
    }
}
