//! Segments of one file: shared, killed, freed, damaged, added up.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags};
use serde_json::json;
use telemetry::counters::{
    BegunRequest, Doing, KnownMethod, RequestLabels, RouteSnapshot, Timeout,
};
use telemetry::{Ending, Nanos, Spans};

use super::*;
use crate::CertificateStatus;

fn shape(drivers: usize, routes: &[&str]) -> Shape {
    Shape {
        drivers,
        routes: routes.iter().map(|&name| name.to_owned()).collect(),
        pools: vec!["default".to_owned()],
        servers: vec![CountedServer {
            upstream: "api".to_owned(),
            address: "127.0.0.1:9000".to_owned(),
        }],
    }
}

fn app() -> Shape {
    shape(2, &["none", "app"])
}

#[test]
fn routes_without_requests_take_no_memory_for_distributions() {
    let names: Vec<String> = (0..500).map(|number| format!("/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let shape = shape(2, &names);
    let mut file = CounterFile::new().unwrap();
    let taken = |file: &CounterFile| rustix::fs::fstat(file.file()).unwrap().st_blocks * 512;
    let before = taken(&file);
    let segment = file.allot(&shape).unwrap();
    assert!(segment.bytes > 50 << 20, "{}", segment.bytes);
    let own = Stats::shared(file.file(), &segment, &shape).unwrap();
    let counted = read(&file, &segment).unwrap();
    assert_eq!(counted, own.snapshot());
    let all = taken(&file) - before;
    assert!(all < 4 << 20, "{all}");
    // What has requests takes a few pages.
    end(&own, 7, 3);
    assert!(taken(&file) - before < all + (64 << 10));
}

/// Ends an exchange of a route after so many milliseconds.
fn end(stats: &Stats, route: u16, total_ms: u64) {
    let spans = Spans {
        run: Nanos::from_ms(total_ms),
        total: Nanos::from_ms(total_ms),
        ..Spans::default()
    };
    let labels = RequestLabels {
        method: KnownMethod::Get,
        is_https: false,
        status: 200,
    };
    let route = stats.route(route);
    route.record(&spans, labels, Ending::Complete, 100);
}

fn route<'a>(counted: &'a StatsSnapshot, name: &str) -> &'a RouteSnapshot {
    let mut routes = counted.routes.iter();
    routes.find(|route| route.route == name).unwrap()
}

/// What is wrong with a segment.
fn wrong<T>(found: io::Result<T>) -> String {
    let Err(error) = found else {
        panic!("it was taken for a segment")
    };
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    let text = error.to_string();
    let (_, cause) = text.split_once("cannot be used: ").unwrap();
    cause.to_owned()
}

fn read(file: &CounterFile, segment: &Segment) -> io::Result<StatsSnapshot> {
    Ok(file.view(segment)?.counters().snapshot())
}

/// Segments that are in use.
fn live_in(file: &CounterFile) -> Vec<Segment> {
    let live = file.live.iter();
    live.map(|(&offset, &bytes)| Segment {
        offset,
        bytes,
        row: file.row(offset),
    })
    .collect()
}

#[test]
fn processes_count_in_one_file_apart_from_each_other() {
    let mut file = CounterFile::new().unwrap();
    let one = file.allot(&app()).unwrap();
    let other = file.allot(&shape(1, &["app"])).unwrap();
    assert_ne!(one.offset, other.offset);
    let stats = Stats::shared(file.file(), &one, &app()).unwrap();
    end(&stats, 1, 5);
    stats.drivers[1].accepted.add();
    stats.drivers[1].open.store(3, Ordering::Relaxed);
    stats.drivers[0].heartbeat.set(7);
    stats.pool(0).completed.add();

    let counted = read(&file, &one).unwrap();
    assert_eq!(
        (
            counted.drivers[0].figures.accepted,
            counted.drivers[1].figures.accepted
        ),
        (0, 1)
    );
    assert_eq!(route(&counted, "app").figures.successful, 1);
    assert_eq!(route(&counted, "none").figures.successful, 0);
    assert_eq!(
        route(&counted, "app").seconds.run.0.max(),
        Nanos::from_ms(5)
    );
    assert_eq!(counted.pools[0].name, "default");
    assert_eq!(counted.pools[0].figures.completed, 1);
    let view = file.view(&one).unwrap();
    let seen =
        |one: &Placed<DriverStats>| (one.heartbeat.count(), one.open.load(Ordering::Relaxed));
    let seen: Vec<_> = view.counters().drivers.iter().map(seen).collect();
    assert_eq!(seen, [(7, 0), (0, 3)]);
    assert_eq!((view.counters().exchanges(), counted.exchanges()), (1, 1));

    let silent = Stats::new(&shape(1, &["app"])).unwrap().snapshot();
    assert_eq!(read(&file, &other).unwrap(), silent);
}

/// Both sides of the test below: started with a segment in its environment and the file as its standard
/// input, this program is the process that is killed.
#[test]
fn numbers_survive_a_process_that_is_killed() {
    const SEGMENT: &str = "MILEPOST_TEST_SEGMENT";
    if let Ok(segment) = std::env::var(SEGMENT) {
        return count_until_killed(&serde_json::from_str(&segment).unwrap());
    }
    let mut file = CounterFile::new().unwrap();
    let segment = file.allot(&app()).unwrap();
    let own = Stats::shared(file.file(), &segment, &app()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "stats::tests::numbers_survive_a_process_that_is_killed",
        ])
        .args(["--nocapture", "--test-threads", "1"])
        .env(SEGMENT, serde_json::to_string(&segment).unwrap())
        .stdin(file.file().try_clone_to_owned().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let has_counted = lines.any(|line| line.unwrap().contains("has counted"));
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(has_counted, "the process that is killed did not get so far");

    let counted = read(&file, &segment).unwrap();
    assert_eq!(counted.drivers[1].figures.received, 1_000);
    assert_eq!(route(&counted, "app").figures.successful, 1_000);
    assert_eq!(
        route(&counted, "app").seconds.total.0.max(),
        Nanos::from_ms(999)
    );
    assert_eq!(own.snapshot(), counted);
    let left = counted.without_gauges();
    assert_eq!(
        (left.drivers[1].open, left.drivers[1].figures.received),
        (0, 1_000)
    );
}

fn count_until_killed(segment: &Segment) {
    let stats = Stats::shared(io::stdin().as_fd(), segment, &app()).unwrap();
    for total_ms in 0..1_000 {
        stats.drivers[1].received.add();
        end(&stats, 1, total_ms);
    }
    stats.drivers[1].open.store(1, Ordering::Relaxed);
    println!("\nhas counted");
    io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn adds_up_generations_with_different_routes() {
    let before = Stats::new(&shape(2, &["none", "app", "/old"])).unwrap();
    end(&before, 1, 10);
    end(&before, 2, 20);
    before.drivers[1].accepted.add();
    before.drivers[1].open.store(4, Ordering::Relaxed);
    before.drivers[0].heartbeat.set(9);
    before.pool(0).threads.set(8);
    before.pool(0).completed.set(2);
    let after = Stats::new(&shape(1, &["none", "/new", "app"])).unwrap();
    end(&after, 2, 30);
    after.drivers[0].accepted.add();
    after.drivers[0].heartbeat.set(3);
    after.pool(0).threads.set(4);
    after.pool(0).completed.set(1);

    let mut total = StatsSnapshot::default();
    total.add(&before.snapshot().without_gauges());
    total.add(&after.snapshot());
    let names: Vec<_> = total.routes.iter().map(|route| &*route.route).collect();
    assert_eq!(names, ["none", "app", "/old", "/new"]);
    let app = route(&total, "app");
    assert_eq!((app.figures.successful, app.figures.sent_bytes), (2, 200));
    let seen = &app.seconds.total.0;
    assert_eq!(
        (seen.min(), seen.max()),
        (Nanos::from_ms(10), Nanos::from_ms(30))
    );
    assert_eq!(total.exchanges(), 3);
    let accepted: Vec<_> = total
        .drivers
        .iter()
        .map(|driver| driver.figures.accepted)
        .collect();
    assert_eq!(accepted, [1, 1]);
    assert_eq!(
        (total.drivers[0].figures.heartbeat, total.drivers[1].open),
        (3, 0)
    );
    let pool = &total.pools[0].figures;
    assert_eq!((pool.threads, pool.completed), (4, 3));
}

#[test]
fn a_freed_segment_is_used_again_from_zero() {
    let mut file = CounterFile::new().unwrap();
    let first = file.allot(&app()).unwrap();
    let second = file.allot(&app()).unwrap();
    let stats = Stats::shared(file.file(), &first, &app()).unwrap();
    end(&stats, 1, 5);
    file.free(first);
    assert_eq!(wrong(read(&file, &first)), "there is none");
    // Whoever counts behind the end of its time does not reach its successor.
    end(&stats, 1, 5);
    assert_eq!(file.allot(&app()).unwrap(), first);
    assert_eq!(read(&file, &first).unwrap().exchanges(), 0);
    assert_eq!(live_in(&file), [first, second]);
}

#[test]
fn freeing_what_is_not_allotted_changes_nothing() {
    let mut file = CounterFile::new().unwrap();
    let segment = file.allot(&app()).unwrap();
    file.free(Segment {
        bytes: segment.bytes / 2,
        ..segment
    });
    assert_eq!(live_in(&file), [segment]);
    assert!(read(&file, &segment).is_ok());
}

#[test]
fn refuses_a_segment_that_was_made_for_others() {
    let mut file = CounterFile::new().unwrap();
    let segment = file.allot(&app()).unwrap();
    let check = |shape: &Shape| {
        let found = Stats::shared(file.file(), &segment, shape);
        assert_eq!(
            wrong(found),
            "it was made for other drivers, routes or pools"
        );
    };
    check(&shape(1, &["none", "app"]));
    check(&shape(2, &["app", "none"]));
    check(&Shape {
        pools: vec![],
        ..app()
    });
}

#[test]
fn refuses_what_is_no_segment() {
    let mut file = CounterFile::new().unwrap();
    let segment = file.allot(&app()).unwrap();
    let check = |offset: u64, bytes: u64, expect: &str| {
        let found = read(
            &file,
            &Segment {
                offset,
                bytes,
                row: None,
            },
        );
        assert_eq!(wrong(found), expect, "{bytes} bytes at {offset}");
    };
    let (start, bytes) = (segment.offset, segment.bytes);
    check(start + 4_096, bytes, "it does not lie where one can");
    check(start, bytes - 1, "it does not lie where one can");
    check(start, 0, "it does not lie where one can");
    check(
        start + segment::ALIGN_BYTES,
        bytes - segment::ALIGN_BYTES,
        "there is none",
    );
    check(start, bytes * 2, "its length is not that of its parts");
    check(start + bytes, bytes, "the file ends before it does");
    check(
        0_u64.wrapping_sub(bytes),
        bytes,
        "it does not lie where one can",
    );
}

/// A file in memory with these bytes.
fn memory(bytes: &[u8], file_bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("milepost-test", flags).unwrap());
    file.write_all(bytes).unwrap();
    file.set_len(file_bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

/// The bytes of a good segment.
fn good() -> (Segment, Vec<u8>) {
    let mut file = CounterFile::new().unwrap();
    let segment = file.allot(&app()).unwrap();
    let mut bytes = vec![0; segment.bytes as usize];
    rustix::io::pread(file.file(), &mut bytes, segment.offset).unwrap();
    let segment = Segment {
        offset: 0,
        ..segment
    };
    (segment, bytes)
}

#[test]
fn refuses_a_damaged_segment() {
    let (segment, good) = good();
    let check = |damage: &dyn Fn(&mut Vec<u8>), expect: &str| {
        let mut bytes = good.clone();
        damage(&mut bytes);
        let file = memory(&bytes, bytes.len() as u64, SealFlags::SHRINK);
        assert_eq!(wrong(View::new(file.as_fd(), &segment)), expect);
    };
    check(&|bytes| bytes.truncate(20), "the file ends before it does");
    check(&|bytes| bytes.truncate(104), "the file ends before it does");
    check(
        &|bytes| bytes.truncate(70_000),
        "the file ends before it does",
    );
    check(&|bytes| bytes[0] ^= 1, "there is none");
    check(&|bytes| bytes[8] += 1, "another version has made it");
    check(&|bytes| bytes[16] ^= 1, "another version has made it");
    check(&|bytes| bytes[95] = 0xff, "its header is too long");
    check(&|bytes| bytes[96] = b'[', "its header is damaged");
    let four_routes = |bytes: &mut Vec<u8>| {
        let (two, four) = (br#"["none","app"]"#, br#"["","","","" ]"#);
        let mut places = bytes.windows(two.len());
        let place = places.position(|found| found == two).unwrap();
        bytes[place..place + four.len()].copy_from_slice(four);
    };
    check(&four_routes, "its length is not that of its parts");
    let whole = memory(&good, segment.bytes, SealFlags::SHRINK);
    assert!(View::new(whole.as_fd(), &segment).is_ok());
}

#[test]
fn refuses_a_file_that_could_become_shorter() {
    let (segment, good) = good();
    let file = memory(&good, segment.bytes, SealFlags::GROW);
    assert_eq!(
        wrong(View::new(file.as_fd(), &segment)),
        "this is not the file of all counters"
    );
    assert_eq!(
        wrong(CounterFile::adopt(file, &[])),
        "this is not the file of all counters"
    );
    let plain = tempfile::tempfile().unwrap();
    assert_eq!(
        wrong(CounterFile::adopt(plain.into(), &[])),
        "this is not the file of all counters"
    );
}

#[test]
fn the_next_supervisor_goes_on_with_the_file() {
    let mut file = CounterFile::new().unwrap();
    let segments = [0; 3].map(|_| file.allot(&app()).unwrap());
    let stats = Stats::shared(file.file(), &segments[2], &app()).unwrap();
    end(&stats, 1, 5);
    let fd = || file.file().try_clone_to_owned().unwrap();
    let mut adopted = CounterFile::adopt(fd(), &[segments[2], segments[0]]).unwrap();
    assert_eq!(live_in(&adopted), [segments[0], segments[2]]);
    assert_eq!(read(&adopted, &segments[2]).unwrap().exchanges(), 1);
    assert_eq!(adopted.allot(&app()).unwrap(), segments[1]);

    let bytes = segments[0].bytes;
    let check = |live: &[Segment]| {
        let found = CounterFile::adopt(fd(), live);
        assert_eq!(
            wrong(found),
            "it overlaps another, or the end of the file",
            "{live:?}"
        );
    };
    check(&[segments[0], segments[0]]);
    check(&[
        segments[1],
        Segment {
            offset: 0,
            bytes: bytes * 2,
            row: None,
        },
    ]);
    check(&[Segment {
        offset: segments[0].offset + bytes * 2,
        bytes: bytes * 2,
        row: None,
    }]);
    check(&[Segment {
        offset: 0,
        bytes: 1,
        row: None,
    }]);
}

#[test]
fn the_json_form_keeps_everything() {
    let stats = Stats::new(&app()).unwrap();
    end(&stats, 1, 5);
    end(&stats, 1, 70);
    stats.drivers[0].timed_out(Timeout::Send);
    stats.drivers[0].doing[Doing::Away as usize].set(2);
    let counted = stats.snapshot();
    let text = serde_json::to_string(&counted).unwrap();
    assert_eq!(
        serde_json::from_str::<StatsSnapshot>(&text).unwrap(),
        counted
    );
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let total = &value["routes"][1]["seconds"]["total"];
    assert_eq!((&total["count"], &total["max"]), (&2.into(), &0.07.into()));
    let wrong = text.replacen("\"buckets\":[[", "\"buckets\":[[65000,1],[", 1);
    assert!(serde_json::from_str::<StatsSnapshot>(&wrong).is_err());
}

#[test]
fn a_share_that_is_not_measured_is_null_and_not_0() {
    let stats = Stats::new(&shape(1, &["app"])).unwrap();
    let says = |expect: &str| {
        let page = stats.snapshot().page(json!({}), json!([]), json!([]));
        let expect = format!(r#""gil_share_permille":{expect},"#);
        // Of the sum of all pools, and of the one that there is.
        assert_eq!(page.matches(&expect).count(), 2, "{page}");
    };
    says("null");
    stats.pool(0).set_gil_share(Some(0.0));
    says("0");
    stats.pool(0).set_gil_share(Some(1.0));
    says("1000");
    stats.pool(0).set_gil_share(None);
    says("null");
}

#[test]
fn the_status_page_shows_quantiles() {
    let stats = Stats::new(&shape(1, &["app"])).unwrap();
    end(&stats, 0, 5);
    stats.drivers[0].accepted.add();
    stats.drivers[0].timed_out(Timeout::Crowded);
    stats.drivers[0].doing[Doing::Closing as usize].set(1);
    stats.pool(0).threads.set(4);
    stats.pool(0).shed.set(2);
    stats.pool(0).expired.set(3);
    stats.pool(0).threads_started.set(5);
    stats.pool(0).threads_ended.set(1);
    stats.pool(0).set_gil_share(Some(0.25));
    let none = r#"{"count":1,"mean":0.0,"p50":0.0,"p99":0.0,"max":0.0}"#;
    let five = r#"{"count":1,"mean":0.005,"p50":0.005,"p99":0.005,"max":0.005}"#;
    let pool = concat!(
        r#""pressure":0,"threads":4,"threads_min":0,"threads_max":0,"idle":0,"running":0,"waiting":0,"oldest_wait_ns":0,"queue_target_ns":0,"waiting_max":0,"#,
        r#""gil_share_permille":250,"#,
        r#""completed":0,"refused":0,"shed":2,"expired":3,"stream_waits":0,"routes_moved":0,"routes_returned":0,"threads_started":5,"threads_ended":1"#
    );
    let expect = format!(
        concat!(
            r#"{{"drivers":[{{"driver":0,"accepted":1,"received":0,"spooled":0,"partial":0,"errors":0,"#,
            r#""handshakes":0,"handshakes_resumed":0,"handshakes_failed":0,"handshakes_refused":0,"handshake_cpu_ns":0,"#,
            r#""crowded_clients":0,"rate_limited":0,"balanced_out":0,"balanced_in":0,"http2_connections":0,"http2_streams":0,"http2_resets":0,"http2_floods":0,"websockets":0,"tunnels":0,"stall_takeovers":0,"local_cpu":0,"traces_exported":0,"traces_dropped":0,"heartbeat":0,"open":0,"#,
            r#""timeouts":{{"handshake":0,"head":0,"body":0,"send":0,"idle":0,"evicted_idle":1,"memory":0}},"#,
            r#""connections":{{"idle":0,"handshaking":0,"reading":0,"spooling":0,"in_pool":0,"sending":0,"websocket":0,"closing":1}}}}],"#,
            r#""waiting":{{}},"log":[],"#,
            r#""pool":{{{pool}}},"pools":[{{"name":"default",{pool}}}],"event_loop":null,"#,
            r#""handshakes":{{"full":0,"resumed":0,"failed":0,"refused":0,"mean_cpu_seconds":0.0}},"certificates":[],"#,
            r#""routes":[{{"route":"app","none":0,"1xx":0,"2xx":1,"3xx":0,"4xx":0,"5xx":0,"#,
            r#""incomplete":0,"sent_bytes":100,"seconds":{{"receive":{none},"queue":{none},"run":{five},"#,
            r#""send":{none},"total":{five},"gil":{none},"cpu":{none}}}}}]}}"#,
            "\n"
        ),
        pool = pool,
        none = none,
        five = five
    );
    assert_eq!(
        stats.snapshot().page(json!({}), json!([]), json!([])),
        expect
    );
    let without = Stats::new(&Shape {
        pools: vec![],
        ..app()
    })
    .unwrap();
    assert!(
        without
            .snapshot()
            .page(json!({}), json!([]), json!([]))
            .contains(r#""pool":null,"pools":[]"#)
    );
}

#[test]
fn the_status_page_shows_certificates_and_handshakes() {
    let stats = Stats::new(&shape(2, &["app"])).unwrap();
    for driver in stats.drivers {
        driver.handshakes.add();
        driver.handshakes_resumed.add();
        driver.handshakes_failed.add();
        driver.handshake_cpu_ns.add_many(600_000);
        driver.handshake_cpu_ns.add_many(300_000);
    }
    let certificate = CertificateStatus {
        names: vec!["shop.example".to_owned()],
        is_automatic: true,
        last_fault: Some("refused".to_owned()),
        ..CertificateStatus::default()
    };
    let page = stats.snapshot().page(json!({}), json!([]), &[certificate]);
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let expect =
        json!({"full": 2, "resumed": 2, "failed": 2, "refused": 0, "mean_cpu_seconds": 0.0003});
    assert_eq!(page["handshakes"], expect);
    assert_eq!(page["certificates"][0]["names"][0], "shop.example");
    assert_eq!(page["certificates"][0]["is_automatic"], true);
    assert_eq!(page["certificates"][0]["last_fault"], "refused");
}

#[test]
fn the_page_shows_what_websockets_are_open_and_what_was_refused() {
    let process = |open, refused| {
        let stats = Stats::new(&app()).unwrap();
        let event_loop = stats.event_loop;
        event_loop.inside_max.set(1000);
        event_loop.websockets_max.set(50);
        event_loop.websockets.set(open);
        for _ in 0..refused {
            event_loop.websockets_refused.add_from_any();
        }
        stats.snapshot()
    };
    let mut total = process(31, 2).without_gauges();
    total.add(&process(40, 3));
    total.add(&process(9, 0));
    let page = total.page(json!({}), json!([]), json!([]));
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let figure = |name: &str| page["event_loop"][name].as_u64();
    // Those of a process that has ended are open no longer.
    assert_eq!(figure("websockets"), Some(49));
    assert_eq!(figure("websockets_max"), Some(100));
    assert_eq!(figure("websockets_refused"), Some(5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn segments_in_use_never_overlap(
        steps in prop::collection::vec((1_usize..4, any::<prop::sample::Index>(), any::<bool>()), 1..40),
    ) {
        let mut file = CounterFile::new().unwrap();
        let mut live: Vec<Segment> = Vec::new();
        for (routes, which, is_freed) in steps {
            if is_freed && !live.is_empty() {
                file.free(live.swap_remove(which.index(live.len())));
            } else {
                live.push(file.allot(&shape(1, &["a", "b", "c"][..routes])).unwrap());
            }
            live.sort_by_key(|segment| segment.offset);
            prop_assert_eq!(&live_in(&file), &live);
            for pair in live.windows(2) {
                prop_assert!(pair[0].offset + pair[0].bytes <= pair[1].offset);
            }
            if let Some(last) = live.last() {
                prop_assert_eq!(read(&file, last).unwrap().drivers.len(), 1);
            }
            let fd = file.file().try_clone_to_owned().unwrap();
            prop_assert!(CounterFile::adopt(fd, &live).is_ok());
        }
    }
}

#[test]
fn the_requests_that_run_are_seen_from_outside_the_process() {
    let mut file = CounterFile::new().unwrap();
    let shape = shape(1, &["none", "app"]);
    let segment = file.allot(&shape).unwrap();
    let inside = Stats::shared(file.file(), &segment, &shape).unwrap();
    let view = file.view(&segment).unwrap();
    let mut place = inside.running.place();
    let now = telemetry::now();
    place.begin(&BegunRequest {
        method: b"GET",
        path: b"/slow",
        id: b"8f00",
        queued: now,
        started: now,
        pool: 0,
        route: 1,
        worker: 3,
    });
    let (listed, more) = (view.counters().running(), view.counters().unlisted());
    assert_eq!((listed.len(), more), (1, 0));
    assert_eq!(listed[0].path, b"/slow");
    assert_eq!(view.counters().route_name(listed[0].route), "app");
    assert_eq!(view.counters().route_name(2), "");
    // Without the difference of the two clocks it would have run for as long as the machine is up.
    let ran_max = telemetry::now().since(now).0 + Nanos::from_secs(1).0;
    assert!(listed[0].ran.0 <= ran_max, "{:?}", listed[0].ran);
    drop(place);
    assert_eq!(view.counters().running(), []);
    assert_eq!(view.counters().unlisted(), 0);
}
