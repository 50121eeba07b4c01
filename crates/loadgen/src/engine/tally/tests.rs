//! What is counted when, and that the tallies of several threads are one.

use proptest::prelude::*;

use super::*;

const WINDOW: Window = Window {
    begin: Stamp(1_000),
    end: Stamp(2_000),
};

/// Something that happens to a tally.
#[derive(Clone, Debug)]
enum Event {
    Ended(Flight, Ended, Stamp),
    Failed(Flight, Failure, Stamp),
    Connected(Stamp, Stamp),
    Bytes(usize, Stamp),
    Stood(Stamp),
}

fn tell(tally: &mut Tally, event: &Event) {
    match *event {
        Event::Ended(ref flight, reply, now) => tally.ended(flight, reply, now),
        Event::Failed(ref flight, failure, now) => tally.failed(flight, failure, now),
        Event::Connected(began, now) => tally.connected(began, now),
        Event::Bytes(bytes, now) => {
            tally.read(bytes, now);
            tally.sent(bytes / 2, now);
        }
        Event::Stood(now) => tally.stood_still(Nanos(400), now),
    }
}

fn flight(began: u64, due: u64, sent: u64, first_byte: u64) -> Flight {
    Flight {
        kind: 0,
        began: Stamp(began),
        due: Stamp(due),
        sent: Stamp(sent),
        first_byte: Stamp(first_byte),
        arrived: Stamp::ZERO,
    }
}

fn reply(status: u16, wrong: Option<Failure>) -> Ended {
    Ended {
        status,
        keeps: true,
        wrong,
    }
}

/// Counts and means of all distributions: latency, late, last byte, first byte, cycle.
fn times(tally: &Tally) -> [(u64, f64); 5] {
    [
        &tally.latency,
        &tally.late,
        &tally.last_byte,
        &tally.first_byte,
        &tally.cycle,
    ]
    .map(|all| (all.len(), all.moments().mean()))
}

#[test]
fn counts_by_the_end_in_closed_loads() {
    for (now, counted) in [(999, 0), (1_000, 1), (1_999, 1), (2_000, 0)] {
        let mut tally = Tally::new(WINDOW, false);
        tally.ended(&flight(500, 0, 600, 900), reply(200, None), Stamp(now));
        tally.failed(&flight(500, 0, 600, 0), Failure::Timeout, Stamp(now));
        assert_eq!(
            (tally.ended, tally.counts.answered),
            (2 * counted, counted),
            "{now}"
        );
        assert_eq!(tally.counts.failures.timeout, counted);
        assert_eq!(tally.counts().statuses.values().sum::<u64>(), counted);
        let second = tally.end_second(0);
        // The series shows the warm-up as well.
        assert_eq!((second.answered, second.failed), (1, 1));
    }
}

#[test]
fn counts_by_the_due_time_in_open_loads() {
    for (due, counted) in [(999, 0), (1_000, 1), (1_999, 1), (2_000, 0)] {
        for now in [due + 1, 1_500.max(due), 9_000] {
            let mut tally = Tally::new(WINDOW, true);
            let sent = flight(due, due, due + 1, due + 1);
            tally.ended(&sent, reply(404, Some(Failure::Status)), Stamp(now));
            tally.ended(&sent, reply(200, None), Stamp(now));
            assert_eq!(tally.ended, 2 * counted, "due {due}, ended {now}");
            assert_eq!(tally.latency.len(), counted);
        }
    }
}

#[test]
fn measures_from_the_due_time_and_from_the_send() {
    let mut tally = Tally::new(WINDOW, true);
    let sent = flight(1_000, 1_100, 1_130, 1_200);
    tally.ended(&sent, reply(200, None), Stamp(1_300));
    let expect = [(1, 200.0), (0, 0.0), (1, 170.0), (1, 70.0), (1, 300.0)];
    assert_eq!(times(&tally), expect);
    let mut tally = Tally::new(WINDOW, false);
    tally.ended(&sent, reply(200, None), Stamp(1_300));
    let expect = [(0, 0.0), (0, 0.0), (1, 170.0), (1, 70.0), (1, 300.0)];
    assert_eq!(times(&tally), expect);
}

#[test]
fn blames_the_generator_for_what_is_later_than_the_due_time_and_the_place() {
    for (due, free, now, late) in [
        (1_100, 900, 1_130, Some(30.0)),
        (1_100, 1_120, 1_130, Some(10.0)),
        (999, 900, 1_130, None),
        (2_000, 900, 2_130, None),
    ] {
        let mut tally = Tally::new(WINDOW, true);
        tally.begun(Stamp(due), Stamp(free), Stamp(now));
        let said = (!tally.late.is_empty()).then(|| tally.late.moments().mean());
        assert_eq!(said, late, "due {due}, free {free}, begun {now}");
    }
    let mut tally = Tally::new(WINDOW, true);
    tally.stood_still(Nanos(400), Stamp(1_200));
    tally.begun(Stamp(1_199), Stamp(1_000), Stamp(1_300));
    assert!(tally.late.is_empty(), "standing still is said on its own");
}

#[test]
fn keeps_failures_out_of_all_times_but_turns() {
    let mut tally = Tally::new(WINDOW, true);
    let sent = flight(1_000, 1_100, 1_130, 1_200);
    for wrong in [Failure::Short, Failure::Status, Failure::Body] {
        tally.ended(&sent, reply(200, Some(wrong)), Stamp(1_300));
    }
    tally.failed(&sent, Failure::Reset, Stamp(1_300));
    let none = (0, 0.0);
    assert_eq!(times(&tally), [none, none, none, none, (4, 300.0)]);
    let failures = &tally.counts.failures;
    let said = [
        failures.short,
        failures.status,
        failures.body,
        failures.reset,
    ];
    assert_eq!((said, tally.ended), ([1; 4], 4));
}

#[test]
fn counts_no_status_of_what_is_no_reply() {
    let mut tally = Tally::new(WINDOW, false);
    let sent = flight(1_000, 0, 1_000, 0);
    for status in [0, 200, 200, 503, 999] {
        tally.ended(&sent, reply(status, Some(Failure::Short)), Stamp(1_500));
    }
    assert_eq!(
        tally.counts().statuses,
        [(200, 2), (503, 1), (999, 1)].into()
    );
}

#[test]
fn keeps_what_was_under_way_while_it_stood_still_out_of_all_times() {
    for (by_due, began, due, sent) in [(false, 1_000, 0, 1_399), (true, 1_000, 1_399, 1_450)] {
        let mut tally = Tally::new(WINDOW, by_due);
        tally.stood_still(Nanos(400), Stamp(1_400));
        let disturbed = flight(began, due, sent, 1_500);
        tally.ended(&disturbed, reply(200, None), Stamp(1_500));
        tally.failed(&disturbed, Failure::Reset, Stamp(1_500));
        tally.connected(Stamp(1_399), Stamp(1_500));
        assert_eq!(times(&tally), [(0, 0.0); 5]);
        assert!(tally.connect.is_empty() && tally.counts.connections == 1);
        let counts = &tally.counts;
        let ended = [counts.answered, counts.failures.reset, counts.disturbed];
        assert_eq!((ended, tally.ended), ([1, 1, 2], 2));
        assert!(tally.end_second(0).latency.is_empty());
        // What begins afterwards says something again.
        let later = flight(1_400, 1_400, 1_400, 1_500);
        tally.ended(&later, reply(200, None), Stamp(1_500));
        tally.connected(Stamp(1_400), Stamp(1_500));
        assert_eq!((tally.last_byte.len(), tally.connect.len()), (1, 1));
        assert_eq!(tally.counts.disturbed, 2);
    }
}

#[test]
fn sums_the_seconds_of_all_threads() {
    let mut tallies = [(); 2].map(|()| Tally::new(WINDOW, false));
    let mut sum = Sum::default();
    for at in 0..3 {
        for (thread, tally) in tallies.iter_mut().enumerate() {
            let now = Stamp(1_000 + 1_000 * (thread as u64 + 1));
            tally.ended(&flight(0, 0, 1_000, 1_000), reply(200, None), now);
            tally.failed(&flight(0, 0, 1_000, 0), Failure::Reset, now);
            tally.read(10, now);
            sum.add(&tally.end_second(at));
        }
    }
    let reported = sum.ended(2, 1);
    assert!(sum.ended(2, 1).is_empty(), "a second is reported once");
    let all = sum.finish(1);
    assert_eq!(all[..2], reported);
    let numbers: Vec<i64> = all.iter().map(|second| second.at_s).collect();
    assert_eq!(numbers, [-1, 0, 1]);
    for second in &all {
        let counts = (second.answered, second.failed, second.read_bytes);
        assert_eq!(counts, (2, 2, 20));
        assert!((second.p50_us - 1.0).abs() < 0.01 && second.max_us == 2.0);
    }
}

fn event() -> impl Strategy<Value = Event> {
    let at = 500u64..2_500;
    let times = (at.clone(), 0u64..300, 0u64..300, 0u64..300, 0u64..300);
    let flown = times.prop_map(|(began, due, sent, first, last)| {
        let due = began + due;
        let sent = due + sent;
        let flight = flight(began, due, sent, sent + first);
        (flight, Stamp(sent + first + last))
    });
    let wrong = prop::sample::select(vec![
        None,
        Some(Failure::Short),
        Some(Failure::Status),
        Some(Failure::Body),
    ]);
    let failure = prop::sample::select(vec![
        Failure::Connect,
        Failure::Reset,
        Failure::Timeout,
        Failure::Local,
    ]);
    let status = prop::sample::select(vec![0u16, 200, 404, 999]);
    prop_oneof![
        6 => (flown.clone(), status, wrong)
            .prop_map(|((flight, now), status, wrong)| {
                Event::Ended(flight, reply(status, wrong), now)
            }),
        2 => (flown, failure)
            .prop_map(|((flight, now), failure)| Event::Failed(flight, failure, now)),
        2 => (at.clone(), 0u64..300)
            .prop_map(|(began, lasts)| Event::Connected(Stamp(began), Stamp(began + lasts))),
        1 => (0usize..9_999, at).prop_map(|(bytes, now)| Event::Bytes(bytes, Stamp(now))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn tallies_of_all_threads_make_one(
        events in prop::collection::vec((event(), 0usize..3), 0..200),
        stood in prop::option::of(500u64..2_500),
        by_due in proptest::bool::ANY,
    ) {
        let mut whole = Tally::new(WINDOW, by_due);
        let mut parts = [(); 3].map(|()| Tally::new(WINDOW, by_due));
        for tally in parts.iter_mut().chain([&mut whole]) {
            stood.into_iter().for_each(|at| tell(tally, &Event::Stood(Stamp(at))));
        }
        for (event, part) in &events {
            tell(&mut whole, event);
            tell(&mut parts[*part], event);
        }
        let [mut merged, second, third] = parts;
        merged.merge(&second);
        merged.merge(&third);
        prop_assert_eq!(merged.counts(), whole.counts());
        prop_assert_eq!(merged.ended, whole.ended);
        for (one, other) in [
            (&merged.latency, &whole.latency),
            (&merged.late, &whole.late),
            (&merged.connect, &whole.connect),
            (&merged.first_byte, &whole.first_byte),
            (&merged.last_byte, &whole.last_byte),
            (&merged.cycle, &whole.cycle),
        ] {
            prop_assert_eq!(one.histogram(), other.histogram());
            let [one, other] = [one, other].map(|all| *all.moments());
            prop_assert!((one.mean() - other.mean()).abs() < 1e-6);
            prop_assert!((one.stdev() - other.stdev()).abs() < 1e-6);
        }
        prop_assert_eq!(whole.ended, whole.counts.answered + whole.counts.failures.sum());
        prop_assert_eq!(whole.cycle.len() + whole.counts.disturbed, whole.ended);
    }
}
