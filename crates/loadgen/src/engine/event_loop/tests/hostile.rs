//! Servers and plans at which a loop could miscount, wait for ever, or blame somebody else.

use super::*;

/// Whether all times of turns together are the time of the only place: each moment belongs to one turn. One that
/// began before the window counts in whole or not at all, which is much on a busy host: so runs are made until one
/// shows it, of those that nothing held up. Gives how many failed in the last one.
fn drive_full_turns(plan: &Plan, name: &str) -> u64 {
    let mut shares = Vec::new();
    let mut failed = 0;
    for _ in 0..40 {
        let driven = drive_all(plan);
        let counts = driven.tally.counts();
        failed = counts.failures.sum();
        if counts.disturbed > 0 {
            continue;
        }
        let window = driven.tally.window;
        let seconds = driven.tally.last_end.since(window.begin).as_secs_f64();
        let turns = driven.tally.cycle.moments();
        let share = turns.mean() * turns.len() as f64 / 1e9 / seconds;
        if (0.96..=1.04).contains(&share) {
            return failed;
        }
        shares.push(share);
    }
    assert!(shares.is_empty(), "{name}: {shares:?}");
    failed
}

#[test]
fn takes_no_second_reply_for_one_to_the_next_request() {
    let twice = [OK, OK].concat();
    let (address, seen) = server(move |_, _| Does::Reply(twice.clone()));
    let mut plan = plan(address);
    plan.connections.len = 1;
    plan.length.requests = Some(20);
    let driven = drive_all(&plan);
    let counts = driven.tally.counts();
    assert!(counts.failures.short >= 1, "{counts:?}");
    assert_eq!(ended(&counts), 20);
    let longest = driven.tally.last_byte.moments().max() / 1e9;
    assert!(
        longest < 10.0,
        "{longest} s of a request that was never sent"
    );
    assert!(seen.requests() <= 20);
}

#[test]
fn times_pipelined_requests_out_while_more_are_due() {
    let (address, seen) = server(|number, _| match number {
        0 => Does::Reply(OK.to_vec()),
        _ => Does::Nothing,
    });
    let mut plan = plan(address);
    plan.load = open(200.0);
    plan.connections.len = 1;
    plan.connections.in_flight = 1_000;
    plan.connections.timeout = Nanos::from_ms(500);
    plan.length = for_ms(3_000);
    let counts = run(&plan);
    assert_eq!(counts.answered, 1, "{counts:?}");
    assert_eq!(counts.failures.sum(), counts.failures.timeout);
    assert!(seen.connections() >= 3, "each is given up after its time");
    assert_eq!(ended(&counts) + counts.unfinished + counts.unsent, 600);
}

#[test]
fn gives_an_idle_connection_its_whole_time() {
    let (address, _) = server(|_, _| {
        thread::sleep(Duration::from_millis(200));
        Does::Reply(OK.to_vec())
    });
    let mut plan = plan(address);
    // Idle for longer than it may wait, and answered long before that.
    plan.load = open(0.4);
    plan.connections.len = 1;
    plan.connections.timeout = Nanos::from_ms(2_000);
    plan.length.requests = Some(3);
    plan.length.duration = None;
    check_answered(&plan, 3);
}

#[test]
fn ends_when_so_many_were_counted_whatever_is_due_yet() {
    let mut plan = plan(answering());
    plan.length.duration = None;
    plan.length.requests = Some(7);
    for requests_each in [None, each(1)] {
        plan.connections.requests_each = requests_each;
        for load in [
            open(1_000.0),
            Load::Recorded {
                arrivals: (0..20)
                    .map(|number| Arrival {
                        offset: Nanos::from_ms(number),
                        kind: 0,
                    })
                    .collect(),
            },
        ] {
            plan.load = load;
            check_answered(&plan, 7);
        }
    }
}

#[test]
fn begins_to_count_with_fewer_requests_than_connections_and_when_all_fail() {
    let mut few = plan(answering());
    few.length.begin = Begin::AllOpen;
    few.length.requests = Some(3);
    assert!(run(&few).answered >= 3);

    let (_kept, address) = nobody();
    let mut refused = plan(address);
    refused.length.begin = Begin::AllOpen;
    refused.length.requests = Some(30);
    let counts = run(&refused);
    assert!(counts.failures.connect >= 30, "{counts:?}");
}

#[test]
fn leaves_no_moment_out_of_the_turns() {
    type Change = fn(&mut Plan);
    let cases: [(&str, Change, &'static [u8]); 4] = [
        ("kept", |_| {}, OK),
        (
            "n each",
            |plan| plan.connections.requests_each = each(3),
            OK,
        ),
        (
            "ended by the server",
            |plan| {
                plan.connections.requests_each = each(1);
                plan.connections.closing = Closing::Server;
            },
            OK,
        ),
        (
            "said to be closed",
            |_| {},
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        ),
    ];
    let (_kept, refuses) = nobody();
    let refused: (&str, Change, _) = ("refused", |_| {}, refuses);
    let answered = cases.map(|(name, change, reply)| {
        let (address, _) = server(move |_, _| Does::Reply(reply.to_vec()));
        (name, change, address)
    });
    for (name, change, address) in answered.into_iter().chain([refused]) {
        let mut plan = plan(address);
        change(&mut plan);
        // Of one place no turn is cut off before the last end, however slow this host is.
        plan.connections.len = 1;
        plan.length = for_ms(400);
        // What a loop needs before its first turn is left out.
        plan.length.begin = Begin::After(Nanos::from_ms(100));
        assert_eq!(
            drive_full_turns(&plan, name) > 0,
            name == "refused",
            "{name}"
        );
    }
}

#[test]
fn counts_every_reply_or_none_at_the_end_of_the_time() {
    for requests_each in [None, each(1), each(4)] {
        let (address, seen) = server(|_, _| Does::Reply(OK.to_vec()));
        let mut plan = plan(address);
        plan.connections.requests_each = requests_each;
        plan.connections.len = 64;
        plan.length = for_ms(150);
        let counts = run(&plan);
        assert!(counts.unfinished <= 64);
        // The server's threads may have requests that they have not read when the loop resets all.
        let counted = ended(&counts) + counts.unfinished;
        let seen = seen.requests();
        assert!(
            (seen..=seen + 64).contains(&counted),
            "{counted} and {seen}"
        );
    }
}

#[test]
fn lets_rates_be_as_odd_as_they_like() {
    let mut plan = plan(answering());
    plan.length = for_ms(100);
    plan.connections.timeout = Nanos::from_ms(500);
    for (rate, due) in [(0.01, 1), (1e6, 100_000)] {
        plan.load = open(rate);
        let counts = run(&plan);
        let counted = ended(&counts) + counts.unfinished + counts.unsent;
        assert_eq!(counted, due, "{counts:?}");
    }
    plan.connections.timeout = Nanos::from_secs(10);
    plan.load = Load::Open {
        arrivals: Arrivals::Constant,
        rate: Profile::of(vec![Leg {
            from: 0.0,
            to: 1_000.0,
            lasts: Nanos::from_ms(100),
        }]),
    };
    check_answered(&plan, 50);
}

/// Serves one connection after another: reads so many requests, gives the replies and the end of the connection
/// in one segment, so that whoever reads the one sees the other.
fn ending_server(requests_each: usize, last: &'static [u8]) -> (Address, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::new(Seen::default());
    let seen_by_all = seen.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            rustix::net::sockopt::set_tcp_cork(&stream, true).expect("an option");
            seen_by_all.connections.fetch_add(1, Ordering::SeqCst);
            let mut kept = Vec::new();
            let mut replies = Vec::new();
            for number in 1..=requests_each {
                if !matches!(request(&mut stream, &mut kept), Ok(Some(_))) {
                    break;
                }
                seen_by_all.requests.fetch_add(1, Ordering::SeqCst);
                let is_last = number == requests_each;
                replies.extend_from_slice(if is_last { last } else { OK });
            }
            let _ = stream.write_all(&replies);
        }
    });
    (Address::Ip(address), seen)
}

#[test]
fn blames_no_server_for_a_request_that_was_never_sent() {
    let closes: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    // Those that end without a word, and those that say it while more requests are begun.
    for (depth, last) in [(1, OK), (8, OK), (8, closes)] {
        let (address, seen) = ending_server(depth, last);
        let mut plan = plan(address);
        plan.connections.len = 1;
        plan.connections.in_flight = depth;
        plan.length.requests = Some(80);
        let counts = check_answered(&plan, 80);
        assert_eq!(seen.connections(), 80 / depth as u64);
        check_nothing_is_lost(&counts, &seen);
    }
}

#[test]
fn waits_for_room_in_the_queue_of_a_unix_socket() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    bind(&listener, &SocketAddrUnix::new(&path).expect("a path")).expect("a fresh folder");
    listen(&listener, 1).expect("a bound socket");
    let listener = UnixListener::from(listener);
    thread::spawn(move || {
        // One after another: the others find the queue full.
        for mut stream in listener.incoming().flatten() {
            let _ = request(&mut stream, &mut Vec::new());
            let _ = stream.write_all(OK);
        }
    });
    let mut plan = plan(Address::Unix(path));
    plan.connections.len = 20;
    plan.connections.requests_each = each(1);
    for load in [Load::Closed, open(2_000.0)] {
        plan.load = load;
        check_answered(&plan, 200);
    }
    plan.load = Load::Burst;
    plan.connections.requests_each = None;
    plan.length.duration = None;
    plan.length.requests = Some(20);
    // The server attends to one client at a time, so that not all are in at once: those give up.
    plan.connections.timeout = Nanos::from_ms(300);
    let counts = run(&plan);
    assert_eq!(ended(&counts), 20, "{counts:?}");
}
