//! Loads by the clock, recorded ones, and those that are sent all at once.

use super::*;

#[test]
fn counts_no_reply_that_comes_after_the_time_for_what_a_server_does_in_it() {
    let (address, _) = server(|_, _| {
        thread::sleep(Duration::from_millis(20));
        Does::Reply(OK.to_vec())
    });
    let mut plan = plan(address);
    plan.connections.len = 2;
    plan.load = open(400.0);
    plan.length = for_ms(500);
    let counts = check_answered(&plan, 200);
    // 25 on each connection, however quick this host is.
    let within = counts.answered_within.expect("it goes by the clock");
    assert!((1..=52).contains(&within), "{counts:?}");
}

#[test]
fn counts_what_was_due_and_never_sent() {
    let (address, seen) = server(|_, _| Does::Nothing);
    let mut plan = plan(address);
    plan.load = open(1_000.0);
    plan.connections.timeout = Nanos::from_ms(100);
    plan.length = for_ms(2_000);
    let counts = run(&plan);
    let late = counts.failures.timeout;
    assert_eq!((counts.answered, counts.failures.sum()), (0, late));
    assert_eq!(late + counts.unfinished + counts.unsent, 2_000);
    assert!(late >= 16 && counts.unsent > 0, "{counts:?}");
    check_nothing_is_lost(&counts, &seen);
}

#[test]
fn opens_a_connection_for_each_due_request() {
    for closing in [Closing::Rst, Closing::Fin, Closing::Server] {
        let (address, seen) = server(|_, _| Does::Reply(OK.to_vec()));
        let mut plan = plan(address);
        plan.load = Load::Open {
            arrivals: Arrivals::Poisson { seed: 7 },
            rate: Profile::constant(500.0),
        };
        plan.connections.requests_each = each(1);
        plan.connections.closing = closing;
        plan.length.duration = None;
        plan.length.requests = Some(100);
        let counts = check_answered(&plan, 100);
        assert_eq!((seen.connections(), counts.connections), (100, 100));
        check_nothing_is_lost(&counts, &seen);
    }
}
