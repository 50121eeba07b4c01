//! Loads by the clock, recorded ones, and those that are sent all at once.

use super::*;

/// A host whose processors others use decides in the quiet moments that it has.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn counts_from_due_times_when_the_server_stops() {
    // The host may stand still as well, the loop or the server or both: then another run decides. A loop that
    // counts from when it sends is quick in each of them.
    let mut found = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let first = OnceLock::new();
        let (address, seen) = server(move |_, _| {
            let stop = Duration::from_millis(400)..Duration::from_millis(700);
            let passed = first.get_or_init(Instant::now).elapsed();
            if stop.contains(&passed) {
                thread::sleep(stop.end - passed);
            }
            Does::Reply(OK.to_vec())
        });
        let mut plan = plan(address);
        plan.load = Load::Open {
            arrivals: Arrivals::Constant,
            rate: Profile::constant(1_000.0),
        };
        plan.length = Length {
            begin: Begin::AtOnce,
            duration: Some(Nanos::from_secs(1)),
            requests: None,
        };
        let driven = drive_all(&plan);
        let counts = driven.tally.counts();
        assert_eq!(
            (counts.answered, counts.failures.sum(), counts.unsent),
            (1_000, 0, 0)
        );
        check_nothing_is_lost(&counts, &seen);
        // 300 of 1,000 were delayed, by 0 to 300 ms: 1 % by more than 290. What is left out moves a quantile by
        // a millisecond each at most, as one was due in each.
        let ms = |quantile| driven.tally.latency.quantile(quantile).0 as f64 / 1e6;
        let off = counts.disturbed as f64;
        let within =
            |expect: f64, ms: f64| (expect - 20.0 - off..expect + 50.0 + off).contains(&ms);
        let (p99, p90, p50) = (ms(0.99), ms(0.9), ms(0.5));
        if off <= 100.0 && within(290.0, p99) && within(190.0, p90) && p50 < 100.0 {
            return;
        }
        found.push((p99, p90, p50, off));
    }
    panic!("{found:?}");
}

#[test]
fn counts_no_reply_that_comes_after_the_time_for_what_a_server_does_in_it() {
    let (address, _) = server(|_, _| {
        thread::sleep(Duration::from_millis(20));
        Does::Reply(OK.to_vec())
    });
    let mut plan = plan(address);
    plan.connections.len = 2;
    plan.load = Load::Open {
        arrivals: Arrivals::Constant,
        rate: Profile::constant(400.0),
    };
    plan.length = Length {
        begin: Begin::AtOnce,
        duration: Some(Nanos::from_ms(500)),
        requests: None,
    };
    let counts = run(&plan);
    assert_eq!((counts.answered, counts.failures.sum()), (200, 0));
    // 25 on each connection, however quick this host is.
    let within = counts.answered_within.expect("it goes by the clock");
    assert!((1..=52).contains(&within), "{counts:?}");
}

#[test]
fn counts_what_was_due_and_never_sent() {
    let (address, seen) = server(|_, _| Does::Nothing);
    let mut plan = plan(address);
    plan.load = Load::Open {
        arrivals: Arrivals::Constant,
        rate: Profile::constant(1_000.0),
    };
    plan.connections.timeout = Nanos::from_ms(100);
    plan.length = Length {
        begin: Begin::AtOnce,
        duration: Some(Nanos::from_ms(2_000)),
        requests: None,
    };
    let counts = run(&plan);
    assert_eq!(
        (counts.answered, counts.failures.sum()),
        (0, counts.failures.timeout)
    );
    assert_eq!(
        counts.failures.timeout + counts.unfinished + counts.unsent,
        2_000
    );
    assert!(
        counts.failures.timeout >= 16 && counts.unsent > 0,
        "{counts:?}"
    );
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
        plan.length = Length {
            begin: Begin::AtOnce,
            duration: None,
            requests: Some(100),
        };
        let counts = run(&plan);
        assert_eq!(
            (counts.answered, counts.failures.sum()),
            (100, 0),
            "{counts:?}"
        );
        assert_eq!((seen.connections(), counts.connections), (100, 100));
        check_nothing_is_lost(&counts, &seen);
    }
}

#[test]
fn replays_kinds_as_they_were_recorded() {
    let (address, seen) = server(|_, _| Does::Reply(OK.to_vec()));
    let mut plan = plan(address);
    let parts = RequestParts {
        method: "GET",
        target: "/b",
        host: "host",
        fields: &[],
        body: None,
    };
    plan.requests.kinds.push(parts.request(0));
    let arrival = |number: u64| Arrival {
        offset: Nanos::from_ms(number),
        kind: u32::from(number.is_multiple_of(3)),
    };
    plan.load = Load::Recorded {
        arrivals: (0..60).map(arrival).collect(),
    };
    plan.connections.in_flight = 3;
    let counts = run(&plan);
    assert_eq!(
        (counts.answered, counts.failures.sum(), counts.unsent),
        (60, 0, 0)
    );
    let heads = seen.heads.lock().expect("no thread panics");
    assert_eq!(
        heads
            .iter()
            .filter(|head| head.starts_with("GET /b "))
            .count(),
        20
    );
}

#[test]
fn opens_again_what_the_server_ends_between_two_requests() {
    let (address, seen) = server(|_, _| Does::End(OK.to_vec()));
    let mut plan = plan(address);
    plan.connections.len = 2;
    // Between two requests of a connection a busy server has a second to end it.
    plan.load = Load::Open {
        arrivals: Arrivals::Constant,
        rate: Profile::constant(2.0),
    };
    plan.length = Length {
        begin: Begin::AtOnce,
        duration: None,
        requests: Some(8),
    };
    let counts = run(&plan);
    assert_eq!(
        (counts.answered, counts.failures.sum()),
        (8, 0),
        "{counts:?}"
    );
    assert!(counts.ended_idle >= 6, "{counts:?}");
    check_nothing_is_lost(&counts, &seen);
}

#[test]
fn waits_no_longer_for_a_connection_that_has_rested() {
    let first = OnceLock::new();
    let (address, seen) = server(move |_, _| {
        let passed = first.get_or_init(Instant::now).elapsed();
        match passed < Duration::from_millis(300) {
            true => Does::Reply(OK.to_vec()),
            false => Does::Nothing,
        }
    });
    let mut plan = plan(address);
    plan.connections.len = 1;
    let leg = |number: f64| Leg {
        from: number,
        to: number,
        lasts: Nanos::from_ms(200),
    };
    plan.connections.active = Some(Profile::of(vec![leg(1.0), leg(0.0), leg(1.0)]));
    plan.connections.timeout = Nanos::from_ms(100);
    plan.length = Length {
        begin: Begin::AtOnce,
        duration: Some(Nanos::from_ms(2_000)),
        requests: None,
    };
    let counts = run(&plan);
    assert!(counts.failures.timeout > 0, "{counts:?}");
    check_nothing_is_lost(&counts, &seen);
}

#[test]
fn bursts_when_all_connections_are_open() {
    let seen_first = Arc::new(AtomicU64::new(0));
    let at_first = seen_first.clone();
    let open = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let accepted = open.clone();
    thread::spawn(move || {
        // All are accepted before anything is read, so that the first request tells how many were open.
        let streams: Vec<TcpStream> = (0..30)
            .flat_map(|_| listener.accept())
            .map(|(stream, _)| stream)
            .collect();
        accepted.store(streams.len() as u64, Ordering::SeqCst);
        for mut stream in streams {
            at_first.fetch_max(accepted.load(Ordering::SeqCst), Ordering::SeqCst);
            let mut kept = Vec::new();
            for _ in 0..2 {
                request(&mut stream, &mut kept)
                    .expect("a request")
                    .expect("a request");
                stream.write_all(OK).expect("a client");
            }
        }
    });
    let mut plan = plan(Address::Ip(address));
    plan.load = Load::Burst;
    plan.connections.len = 30;
    plan.connections.in_flight = 2;
    plan.length.requests = None;
    let begun = Instant::now();
    let counts = run(&plan);
    assert_eq!(
        (counts.answered, counts.failures.sum()),
        (60, 0),
        "{counts:?}"
    );
    assert!(
        // Not after a plan without an end.
        begun.elapsed() < Duration::from_secs(19),
        "it ends when all are answered"
    );
    assert_eq!(seen_first.load(Ordering::SeqCst), 30);
}
