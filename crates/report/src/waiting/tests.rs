//! Which requests made others wait, by tables.

use proptest::prelude::*;
use telemetry::{KnownLoop, KnownSpans, LineForm};

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
const US: u64 = 1_000;

/// When it came to the queue, how long it waited and ran, all in microseconds; worker; target.
type LogRow = (u64, u64, u64, &'static str, &'static str);

fn line(row: &LogRow) -> Line<'static> {
    let (queued_us, queue_us, run_us, worker, target) = *row;
    Line {
        form: LineForm::Phases,
        wall_ns: Some(1_795_245_160 * SECOND_NS + queued_us * US),
        spans: KnownSpans {
            receive: Some(Nanos(0)),
            queue: Some(Nanos(queue_us * US)),
            run: Some(Nanos(run_us * US)),
            ..KnownSpans::default()
        },
        worker: Some(worker.as_bytes()),
        process: b"1",
        method: b"GET",
        target: target.as_bytes(),
        route: b"app",
        pool: b"default",
        id: target.as_bytes(),
        ..Line::default()
    }
}

fn collected(rows: &[LogRow], window: Window) -> Waiting {
    let mut collector = Collector::new(10);
    collector.window = window;
    for row in rows {
        collector.take(&line(row), true);
    }
    collector.waiting()
}

fn waiting(rows: &[LogRow]) -> Waiting {
    collected(rows, Window::default())
}

/// The six requests of a server with two threads, in the order of their ends.
const SIX: [LogRow; 6] = [
    (1, 110, 637_781, "1.1", "/1"),
    (700_000, 90, 245_030, "1.2", "/2"),
    (700_437, 88, 432_421, "1.1", "/3"),
    (700_874, 244_246, 249_208, "1.2", "/4"),
    (701_401, 431_545, 3_713_331, "1.1", "/5"),
    (713_946, 480_382, 3_799_818, "1.2", "/6"),
];

fn ms(ns: f64) -> f64 {
    (ns / 1e5).round() / 10.0
}

#[test]
fn the_queue_time_is_the_run_time_of_those_before() {
    let waiting = waiting(&SIX);
    assert_eq!(
        waiting.sentence().unwrap(),
        "the queue time of /4, /5, /6 is the run time of /2, /3, /4"
    );
    assert_eq!((waiting.waited_len, waiting.missing), (3, None));
    assert_eq!(ms(waiting.waited_ns as f64), 1_156.2);
    assert_eq!(ms(waiting.unexplained_ns), 0.0);
    let holders = |wait: &Wait| {
        let name = |holder: &Holder| {
            let target = String::from_utf8(holder.request.target.clone()).unwrap();
            (target, ms(holder.share_ns), holder.freed_worker)
        };
        wait.holders.iter().map(name).collect::<Vec<_>>()
    };
    let shown: Vec<_> = waiting.longest.iter().map(holders).collect();
    let held = |target: &str, share_ms, left| (target.to_owned(), share_ms, left);
    // 6 waited beside 2 and 3, then 3 and 4, then 4 and 5: half of each time for either.
    assert_eq!(
        shown,
        [
            vec![
                held("/4", 124.6, true),
                held("/3", 209.5, false),
                held("/2", 115.6, false),
                held("/5", 30.7, false),
            ],
            vec![
                held("/3", 215.8, true),
                held("/2", 121.9, false),
                held("/4", 93.9, false),
            ],
            vec![held("/2", 122.1, true), held("/3", 122.1, false)],
        ]
    );
}

#[test]
fn routes_have_the_waiting_that_they_caused() {
    let rows = [
        (0, 10, 100_000, "1.1", "/report/1"),
        (5_000, 10, 10_000, "1.2", "/books/7"),
        // Both workers are busy for 10 ms, then one runs the report still.
        (6_000, 9_010, 1_000, "1.2", "/books/8"),
        (16_020, 10, 50_000, "1.2", "/login"),
        (20_000, 46_040, 1_000, "1.2", "/books/9"),
        // Woken late: it waited for nobody.
        (500_000, 900, 1_000, "1.1", "/books/1"),
    ];
    let waiting = waiting(&rows);
    let found: Vec<_> = waiting
        .routes
        .iter()
        .map(|route| {
            let caused = ms(route.caused_ns);
            (
                route.name.as_str(),
                route.runs_len,
                caused,
                route.delayed_len,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("GET /report/*", 1, 27.5, 2),
            ("GET /login", 1, 23.0, 1),
            ("GET /books/*", 4, 4.5, 1),
        ]
    );
    assert_eq!(waiting.waited_len, 2);
}

#[test]
fn a_wait_without_a_run_in_the_log_is_said_to_be_unexplained() {
    let waiting = waiting(&[
        (5, 20_000, 1_000, "1.1", "/a"),
        (5, 30_000, 1_000, "1.1", "/b"),
    ]);
    // /b waits for /a for a millisecond; before that nothing is known to run.
    assert_eq!(ms(waiting.unexplained_ns), 49.0);
    assert_eq!(ms(waiting.routes[0].caused_ns), 1.0);
    assert_eq!(waiting.sentence(), None);
}

#[test]
fn other_pools_and_processes_hold_nobody_up() {
    let mut collector = Collector::new(3);
    for (process, pool) in [(&b"1"[..], &b"slow"[..]), (b"2", b"default")] {
        collector.take(
            &Line {
                process,
                pool,
                ..line(&(0, 10, 500_000, "9.1", "/other"))
            },
            true,
        );
    }
    collector.take(&line(&(1_000, 50_000, 1_000, "1.1", "/a")), true);
    let waiting = collector.waiting();
    assert_eq!(ms(waiting.unexplained_ns), 50.0);
    assert!(waiting.longest[0].holders.is_empty());
}

#[test]
fn runs_that_do_not_count_hold_up_those_that_do() {
    let mut collector = Collector::new(3);
    collector.take(&line(&(0, 10, 60_000, "1.1", "/report")), false);
    collector.take(&line(&(1_000, 59_010, 1_000, "1.1", "/a")), true);
    collector.take(&line(&(2_000, 59_010, 1_000, "1.1", "/b")), false);
    let waiting = collector.waiting();
    assert_eq!((waiting.waited_len, waiting.longest.len()), (1, 1));
    assert_eq!(ms(waiting.routes[0].caused_ns), 59.0);
}

#[test]
fn says_what_a_log_does_not_say() {
    let check = |change: fn(Line<'static>) -> Line<'static>, missing, unnamed_len| {
        let mut collector = Collector::new(3);
        for row in &SIX {
            collector.take(&change(line(row)), true);
        }
        let waiting = collector.waiting();
        assert_eq!(waiting.missing, missing);
        assert_eq!(waiting.unnamed_len, unnamed_len);
        assert_eq!(waiting.waited_len, if missing.is_some() { 0 } else { 3 });
    };
    check(|line| line, None, 0);
    let nameless = |line| Line {
        worker: None,
        ..line
    };
    check(nameless, Some(Missing::Workers), 3);
    let by_second = |line: Line<'static>| Line {
        wall_ns: line.wall_ns.map(|wall_ns| wall_ns / SECOND_NS * SECOND_NS),
        ..line
    };
    check(by_second, Some(Missing::Microseconds), 0);
}

#[test]
fn the_sentence_is_left_out_where_it_says_nothing() {
    let check = |rows: &[LogRow], expect: Option<&str>| {
        assert_eq!(waiting(rows).sentence().as_deref(), expect);
    };
    let held = (0, 10, 60_000, "1.1", "/a");
    let waits = (1_000, 59_010, 1_000, "1.1", "/b");
    check(
        &[held, waits],
        Some("the queue time of /b is the run time of /a"),
    );
    // Two with the same target, and one that waited for a request with its own.
    let again = (2_000, 59_010, 1_000, "1.1", "/b");
    check(&[held, waits, again], None);
    let mut collector = Collector::new(3);
    for (row, id) in [
        ((0, 10, 60_000, "1.1", "/"), b"a"),
        ((1_000, 59_010, 1_000, "1.1", "/"), b"b"),
    ] {
        collector.take(&Line { id, ..line(&row) }, true);
    }
    assert_eq!(collector.waiting().sentence(), None);
    // The run that freed the worker was the last of several on it, and they did not wait for it.
    let short = [
        (0, 10, 40_000, "1.1", "/a"),
        (0, 10, 100_000, "1.2", "/c"),
        (40_011, 100, 60_000, "1.1", "/d"),
        (1_000, 99_200, 1_000, "1.1", "/b"),
    ];
    check(&short, None);
}

#[test]
fn too_many_routes_count_together() {
    let mut collector = Collector::new(0);
    for number in 0..ROUTES_LEN_MAX + 7 {
        let target = format!("/r{number}x");
        let line = Line {
            target: target.as_bytes(),
            ..line(&(1, 10, 5, "1.1", "/"))
        };
        collector.take(&line, true);
    }
    let waiting = collector.waiting();
    assert_eq!(waiting.routes.len(), ROUTES_LEN_MAX + 1);
    let others = waiting.routes.iter().find(|route| route.name == "others");
    assert_eq!(others.map(|route| route.runs_len), Some(7));
}

#[test]
fn an_older_log_behind_a_newer_one_is_read_by_itself() {
    let later = 3_600_000_000;
    let newer =
        SIX.map(|(at_us, queue, run, worker, target)| (at_us + later, queue, run, worker, target));
    let rows = [newer, SIX].concat();
    let waiting = collected(&rows, Window::with_room(6));
    assert_eq!(waiting.waited_len, 6);
    assert_eq!((waiting.late_len, ms(waiting.unexplained_ns)), (0, 0.0));
}

/// Requests at so many workers with one queue, as a log has them: in the order of their ends.
fn simulated(workers: usize, requests: &[(u64, u64)]) -> Vec<LogRow> {
    const NAMES: [&str; 3] = ["1.1", "1.2", "1.3"];
    const TARGETS: [&str; 4] = ["/a", "/b", "/c", "/d"];
    let mut free_us = vec![0; workers];
    let (mut at_us, mut rows) = (1, Vec::new());
    for (pause_us, run_us) in requests {
        at_us += pause_us;
        let worker = (0..workers).min_by_key(|worker| free_us[*worker]).unwrap();
        let started_us = at_us.max(free_us[worker]);
        free_us[worker] = started_us + run_us;
        let target = TARGETS[(run_us % 4) as usize];
        rows.push((at_us, started_us - at_us, *run_us, NAMES[worker], target));
    }
    rows.sort_by_key(|row| row.0 + row.1 + row.2);
    rows
}

proptest! {
    #[test]
    fn all_waiting_is_put_down_to_runs_once(
        workers in 1..4_usize,
        requests in prop::collection::vec((0..9_000_u64, 1..20_000_u64), 1..200),
    ) {
        let waiting = waiting(&simulated(workers, &requests));
        let caused_ns: f64 = waiting.routes.iter().map(|route| route.caused_ns).sum();
        prop_assert!((caused_ns - waiting.waited_ns as f64).abs() < 1_000.0, "{waiting:?}");
        prop_assert!(waiting.unexplained_ns < 1.0);
        for wait in &waiting.longest {
            let shares: f64 = wait.holders.iter().map(|holder| holder.share_ns).sum();
            prop_assert!((shares + wait.others_ns - wait.queue.0 as f64).abs() < 100.0);
        }
    }

    #[test]
    fn a_small_window_finds_what_a_large_one_finds(
        workers in 1..4_usize,
        requests in prop::collection::vec((4_000..9_000_u64, 1..12_000_u64), 1..300),
    ) {
        let rows = simulated(workers, &requests);
        let whole = waiting(&rows);
        let sliced = collected(&rows, Window::with_room(128));
        prop_assert_eq!(sliced.late_len, 0);
        prop_assert_eq!((sliced.waited_len, sliced.waited_ns), (whole.waited_len, whole.waited_ns));
        for route in &whole.routes {
            let found = sliced.routes.iter().find(|found| found.name == route.name).unwrap();
            prop_assert!((found.caused_ns - route.caused_ns).abs() < 1_000.0);
            prop_assert_eq!(found.delayed_len, route.delayed_len);
        }
        let names = |waiting: &Waiting| waiting.longest.iter().map(|wait| wait.queue).collect::<Vec<_>>();
        prop_assert_eq!(names(&sliced), names(&whole));
    }
}

/// As `line`, of an event loop: the microseconds that its steps took, and the id of the one that blocked it.
fn on_loop(row: &LogRow, busy_us: u64, blocked_by: &'static str) -> Line<'static> {
    let mut line = line(row);
    line.event_loop = KnownLoop {
        wait: Some(Nanos(0)),
        steps: Some(2),
        busy: Some(Nanos(busy_us * US)),
        longest: Some(Nanos(busy_us * US)),
        blocked_by: blocked_by.as_bytes(),
        is_event_stream: false,
    };
    line
}

fn waiting_of(lines: &[Line<'_>]) -> Waiting {
    let mut collector = Collector::new(10);
    for line in lines {
        collector.take(line, true);
    }
    collector.waiting()
}

/// One sleeps from the beginning on, `/report` blocks the loop for 100 ms, and two come meanwhile.
fn blocked() -> Vec<Line<'static>> {
    let mut first_in_queue = on_loop(&(20_000, 82_000, 1_000, "1.1", "/a"), 1_000, "/report");
    // It was the first in the queue, which the loop had found empty.
    first_in_queue.queued.from_queue = Some(false);
    vec![
        on_loop(&(2_000, 50, 100_000, "1.1", "/report"), 100_000, ""),
        first_in_queue,
        on_loop(&(52_000, 51_000, 1_000, "1.1", "/b"), 1_000, "/report"),
        on_loop(&(0, 50, 1_000_000, "1.1", "/sleep"), 100, ""),
    ]
}

#[test]
fn a_run_on_a_loop_counts_for_as_much_as_it_had_the_loop() {
    let found = waiting_of(&blocked());
    assert_eq!((found.waited_len, found.loop_len), (2, 2));
    assert_eq!(found.runner(), WaitRunner::EventLoop);
    let caused = |name: &str| {
        let route = found.routes.iter().find(|route| route.name == name);
        route.unwrap().caused_ns / found.waited_ns as f64
    };
    assert!(caused("GET /report") > 0.95, "{:?}", found.routes);
    assert!(caused("GET /sleep") < 0.03, "{:?}", found.routes);
    let sum: f64 = found.routes.iter().map(|route| route.caused_ns).sum();
    assert!((sum / found.waited_ns as f64 - 1.0).abs() < 1e-6);
    let [first, _] = &found.longest[..] else {
        panic!("{found:?}");
    };
    let holder = &first.holders[0];
    assert_eq!(holder.request.target, b"/report");
    assert!(holder.blocked_loop && !holder.freed_worker);
    assert_eq!(
        found.sentence().unwrap(),
        "the queue time of /a, /b is the run time of /report"
    );
}

#[test]
fn waits_for_threads_and_for_a_loop_are_told_apart() {
    let mut lines = blocked();
    assert_eq!(waiting(&SIX).runner(), WaitRunner::Worker);
    lines.extend(SIX.iter().map(line));
    let mixed = waiting_of(&lines);
    assert_eq!((mixed.waited_len, mixed.loop_len), (5, 2));
    assert_eq!(mixed.runner(), WaitRunner::Both);
}

#[test]
fn a_connection_that_stays_open_holds_up_nobody() {
    let mut lines = blocked();
    let mut websocket = on_loop(&(1, 50, 900_000_000, "1.1", "/chat"), 5_000, "");
    websocket.websocket.close_code = Some(1000);
    lines.push(websocket);
    let found = waiting_of(&lines);
    assert_eq!((found.late_len, found.routes.len()), (0, 4));
}
