//! What an event loop makes of requests, worked out by hand.

mod common;

use common::{alone, fixed};
use telemetry::Nanos;
use whatif::{
    Arrival, Concurrency, Ending, Lifetime, LoopPlan, LoopSteps, Outcome, PoolPlan, RunsOn,
    Setting, Trace, simulate_traced,
};

const fn ms(ms: u64) -> Nanos {
    Nanos::from_ms(ms)
}

fn on_loop(max: usize) -> Setting {
    let pool = PoolPlan {
        runs_on: RunsOn::EventLoop,
        ..fixed(1, 1_000)
    };
    Setting {
        event_loop: LoopPlan {
            concurrency: Concurrency { min: max, max },
            ..LoopPlan::default()
        },
        ..alone(pool)
    }
}

/// A request that comes at a time and runs for so long, of which it has the loop for `busy_ms`, in as many equal steps.
fn request(at_ms: u64, run_ms: u64, busy_ms: u64, len: u32) -> Arrival {
    Arrival {
        at: ms(at_ms),
        run: ms(run_ms),
        steps: LoopSteps {
            len,
            busy: ms(busy_ms),
            longest: Nanos(ms(busy_ms).0 / u64::from(len)),
            lifetime: Lifetime::Response,
            begin: None,
            wake: None,
        },
        ..Arrival::default()
    }
}

fn lasting(lifetime: Lifetime, arrival: Arrival) -> Arrival {
    let steps = LoopSteps {
        lifetime,
        ..arrival.steps
    };
    Arrival { steps, ..arrival }
}

fn simulated(setting: &Setting, arrivals: &[Arrival]) -> (Vec<Trace>, Outcome) {
    let mut traces = Vec::new();
    let mut arrivals = arrivals.iter().copied();
    let outcome = simulate_traced(setting, &mut arrivals, 1, &mut |trace| traces.push(*trace));
    traces.sort_by_key(|trace| trace.number);
    (traces, outcome)
}

/// When each has begun and ended, in milliseconds from the first arrival.
#[track_caller]
fn check(setting: &Setting, arrivals: &[Arrival], expect: &[(u64, u64)]) {
    let (traces, outcome) = simulated(setting, arrivals);
    let first = arrivals[0].at.0;
    let in_ms = |at: Nanos| (at.0 - first + 500_000) / 1_000_000;
    let found: Vec<(u64, u64)> = traces
        .iter()
        .map(|trace| (in_ms(trace.started), in_ms(trace.ended)))
        .collect();
    assert_eq!(found, expect);
    let pool = &outcome.pools[0];
    // By Little's law.
    assert_eq!(pool.waited_ns, pool.waiting_ns);
    assert_eq!(pool.ran(), arrivals.len() as u64);
}

#[test]
fn requests_wait_for_something_else_at_the_same_time() {
    // Two steps of 1 ms with 100 ms between them.
    let all = [request(1, 102, 2, 2); 4];
    check(
        &on_loop(100),
        &all,
        &[(0, 102), (1, 103), (2, 104), (3, 105)],
    );
}

#[test]
fn a_long_step_holds_up_all_others() {
    let all = [
        request(1, 54, 4, 2),
        request(11, 1_000, 1_000, 1),
        request(21, 2, 2, 1),
    ];
    // The second step of the first one is ready at 52 ms, before the third request has begun.
    check(
        &on_loop(100),
        &all,
        &[(0, 1_012), (10, 1_010), (1_012, 1_014)],
    );
}

#[test]
fn no_more_than_the_bound_are_inside() {
    let all = [request(1, 100, 2, 2); 4];
    // The second step of the second one is ready before a place is.
    check(
        &on_loop(2),
        &all,
        &[(0, 100), (1, 101), (101, 201), (102, 202)],
    );
}

#[test]
fn a_connection_that_was_accepted_is_not_inside_and_an_event_stream_is() {
    let after = request(3, 100, 2, 2);
    let long = request(1, 5_000, 10, 10);
    let websocket = lasting(Lifetime::WebSocket, long);
    let stream = lasting(Lifetime::EventStream, long);
    check(&on_loop(1), &[websocket, after], &[(0, 5_000), (2, 102)]);
    check(&on_loop(1), &[stream, after], &[(0, 5_000), (5_000, 5_100)]);
    // Neither says how long a request takes.
    for long in [websocket, stream] {
        let (_, outcome) = simulated(&on_loop(9), &[long, after]);
        assert_eq!(outcome.pools[0].total.len(), 1);
        assert!(outcome.pools[0].total.max() < ms(110).0);
    }
}

#[test]
fn a_loop_that_does_not_keep_up_takes_fewer() {
    let mut setting = on_loop(100);
    setting.event_loop.concurrency.min = 2;
    let mut all = vec![request(1, 500, 500, 1)];
    all.extend([request(11, 1_000, 2, 2); 4]);
    let (traces, _) = simulated(&setting, &all);
    let began = |number: usize| (traces[number].started.0 - ms(1).0) / 1_000_000;
    let found: Vec<u64> = (1..5).map(began).collect();
    // Behind the long step two may begin; the others when the loop has kept up for 100 ms.
    assert_eq!(found[..2], [500, 501]);
    assert!(
        (600..=620).contains(&found[2]) && found[3] <= 621,
        "{found:?}"
    );
}

#[test]
fn a_loop_that_is_busy_all_the_time_takes_fewer() {
    let mut setting = on_loop(100);
    setting.event_loop.concurrency.min = 2;
    // Two requests keep the loop busy in steps of 1 ms, until 3 s, and no look waits for long.
    let mut all = vec![request(1, 1_500, 1_500, 1_500); 2];
    let short = |at_ms| request(at_ms, 20, 2, 2);
    all.extend([short(501), short(2_001), short(2_501)]);
    let (traces, _) = simulated(&setting, &all);
    let began = |number: usize| (traces[number].started.0 - ms(1).0) / 1_000_000;
    // Before a window was seen to be full, one more may begin. The others wait until one of the two has ended.
    assert!((500..=510).contains(&began(2)), "{}", began(2));
    assert!((2_990..=3_010).contains(&began(3)), "{}", began(3));
    assert!((2_990..=3_010).contains(&began(4)), "{}", began(4));
}

#[test]
fn each_process_has_a_loop_of_its_own() {
    let setting = Setting {
        processes: 2,
        ..on_loop(100)
    };
    let to = |process, arrival| Arrival {
        process: Some(process),
        ..arrival
    };
    let all = [
        to(0, request(1, 1_000, 1_000, 1)),
        to(1, request(2, 10, 10, 1)),
        to(0, request(3, 10, 10, 1)),
    ];
    check(&setting, &all, &[(0, 1_000), (1, 11), (1_000, 1_010)]);
}

#[test]
fn threads_beside_a_loop_do_not_wait_for_it() {
    let mut setting = on_loop(100);
    setting.pools.push(fixed(1, 1_000));
    setting.pool_of_route = vec![0, 1];
    let on_thread = Arrival {
        route: 1,
        ..request(11, 30, 0, 1)
    };
    let all = [
        request(1, 1_000, 1_000, 1),
        on_thread,
        request(21, 10, 10, 1),
    ];
    let (traces, outcome) = simulated(&setting, &all);
    assert_eq!(traces[1].ended, ms(41));
    assert_eq!(traces[2].started, ms(1_001));
    let busy: Vec<f64> = outcome.pools.iter().map(|pool| pool.busy_seconds).collect();
    assert!(
        (busy[0] - 1.01).abs() < 1e-6 && (busy[1] - 0.03).abs() < 1e-6,
        "{busy:?}"
    );
}

#[test]
fn a_full_queue_refuses_what_does_not_fit_inside_either() {
    let pool = PoolPlan {
        runs_on: RunsOn::EventLoop,
        ..fixed(1, 2)
    };
    let setting = Setting {
        event_loop: on_loop(3).event_loop,
        ..alone(pool)
    };
    // A step holds the loop while 9 come: 2 places inside are free, and 2 in the queue.
    let mut all = vec![request(1, 500, 500, 1)];
    all.extend([request(11, 10, 10, 1); 9]);
    let (traces, _) = simulated(&setting, &all);
    let refused = traces
        .iter()
        .filter(|trace| trace.ending == Ending::Refused);
    assert_eq!(refused.count(), 5);
}
