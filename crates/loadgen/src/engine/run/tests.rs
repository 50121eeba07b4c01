//! Whole runs, with several threads, against a server of this process.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use super::*;
use crate::plan::{Address, Arrival, Begin, Leg, Profile};
use crate::tests::sample;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

struct Silent;

impl Watch for Silent {
    fn second(&mut self, _: &crate::outcome::Second) {}

    fn is_over(&mut self) -> bool {
        false
    }
}

/// Two threads with three connections, against a server that answers whatever comes, request by request.
fn served() -> Plan {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut plan = sample();
    plan.target.address = Address::Ip(listener.local_addr().expect("an address"));
    plan.machine.threads = 2;
    plan.connections.len = 3;
    let request_bytes = plan.requests[0].bytes.len();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut request = vec![0; request_bytes];
                while stream.read_exact(&mut request).is_ok() && stream.write_all(OK).is_ok() {}
            });
        }
    });
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
fn a_burst_of_several_threads_ends_when_all_are_answered() {
    let mut plan = served();
    plan.load = Load::Burst;
    plan.connections.in_flight = 2;
    plan.length.duration = None;
    // As the command line says it; three are no half of it.
    plan.length.requests = Some(6);
    let outcome = outcome(&plan);
    assert_eq!(outcome.counts.answered, 6, "{:?}", outcome.counts);
    assert_eq!(outcome.counts.failures.sum(), 0);
    let slowest = outcome.times.latency.max_us / 1e6;
    assert!(
        outcome.seconds >= slowest && outcome.seconds < 10.0,
        "{}",
        outcome.seconds
    );
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
fn a_recording_over_several_threads_loses_none_and_ends() {
    let mut plan = served();
    let arrivals: Vec<Arrival> = (0..7)
        .map(|number| Arrival {
            offset: Nanos::from_ms(number * 3),
            kind: 0,
        })
        .collect();
    plan.load = Load::Recorded {
        arrivals: Arc::from(arrivals),
    };
    plan.length.duration = None;
    plan.length.requests = Some(7);
    let outcome = outcome(&plan);
    assert_eq!(outcome.counts.answered, 7, "{:?}", outcome.counts);
    assert_eq!((outcome.counts.unsent, outcome.counts.unfinished), (0, 0));
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
