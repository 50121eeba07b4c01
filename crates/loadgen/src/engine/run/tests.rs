//! Whole runs, with several threads, against a server of this process.

use super::*;
use crate::engine::event_loop::tests::answering;
use crate::plan::{Arrival, Begin, Leg, Profile};
use crate::tests::sample;

struct Silent;

impl Watch for Silent {
    fn second(&mut self, _: &crate::outcome::Second) {}

    fn is_over(&mut self) -> bool {
        false
    }
}

/// Two threads with three connections, against a server that answers whatever comes, request by request.
fn served() -> Plan {
    let mut plan = sample();
    plan.target.address = answering();
    plan.machine.threads = 2;
    plan.connections.len = 3;
    plan
}

fn outcome(plan: &Plan) -> Outcome {
    run(plan, &mut Silent).unwrap_or_else(|fault| panic!("{fault:?}"))
}

#[test]
fn has_no_empty_second_behind_the_counted_time() {
    let mut plan = served();
    plan.length.duration = Some(Nanos::from_secs(1));
    plan.length.requests = None;
    let outcome = outcome(&plan);
    let seconds: Vec<i64> = outcome.series.iter().map(|second| second.at_s).collect();
    assert_eq!(seconds, [0]);
}

#[test]
fn keeps_the_empty_second_of_a_server_that_stands_still() {
    let second = |at_s, answered| Second {
        at_s,
        answered,
        ..Second::default()
    };
    let seconds = vec![second(0, 5), second(1, 0)];
    let len = |elapsed_ms| without_empty_end(seconds.clone(), Nanos::from_ms(elapsed_ms)).len();
    assert_eq!((len(1_000), len(1_500)), (1, 2));
    let answered = vec![second(0, 5), second(1, 1)];
    assert_eq!(without_empty_end(answered, Nanos::from_ms(1_000)).len(), 2);
}

#[test]
fn says_which_processor_is_none_of_this_host_and_where_others_are_listed() {
    let mut plan = served();
    plan.machine.cpus = vec![1023];
    let fault = run(&plan, &mut Silent).expect_err("no host of ours has so many");
    assert_eq!(fault.text, "cannot run on processor 1023: Invalid argument");
    assert!(fault.hint.is_some_and(|hint| hint.contains("lscpu")));
}

#[test]
fn loads_of_several_threads_that_end_by_themselves_lose_no_request() {
    let arrival = |number: u64| Arrival {
        offset: Nanos::from_ms(number * 3),
        kind: 0,
    };
    let arrivals = (0..7).map(arrival).collect();
    // Of a burst as the command line says it; three are no half of six.
    for (load, requests) in [(Load::Burst, 6), (Load::Recorded { arrivals }, 7)] {
        let mut plan = served();
        plan.load = load;
        plan.connections.in_flight = 2;
        plan.length.duration = None;
        plan.length.requests = Some(requests);
        let outcome = outcome(&plan);
        let counts = &outcome.counts;
        let lost = counts.failures.sum() + counts.unsent + counts.unfinished;
        assert_eq!((counts.answered, lost), (requests, 0), "{counts:?}");
        let slowest = outcome.times.latency.max_us / 1e6;
        let seconds = outcome.seconds;
        assert!(seconds >= slowest && seconds < 10.0, "{seconds}");
    }
}

#[test]
fn the_outcome_says_the_whole_ramp() {
    let leg = |from, to| Leg {
        from,
        to,
        lasts: Nanos::from_ms(20),
    };
    let mut plan = sample();
    plan.load = Load::Open {
        arrivals: Arrivals::Constant,
        rate: Profile::of(vec![leg(1.0, 3.0), leg(2.0, 2.0)]),
    };
    let said = asked(&plan);
    assert_eq!(said.rate, Some(2.0));
    assert_eq!(AskedLeg::written(&said.rate_legs), "1..3:0.02s,2:0.02s");
}

#[test]
fn begins_to_count_when_a_thread_has_no_request_to_count() {
    let mut plan = served();
    plan.length.begin = Begin::AllOpen;
    plan.length.duration = None;
    plan.length.requests = Some(1);
    let outcome = outcome(&plan);
    assert!(outcome.counts.answered >= 1, "{:?}", outcome.counts);
}
