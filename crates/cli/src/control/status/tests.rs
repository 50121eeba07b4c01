//! The table and the JSON of a made status.

use config::failure::Failure;
use ipc::ManagedCertificate;
use supervisor::control::status::{
    CertificateStatus, GenerationStatus, GroupMemory, GroupThrottling, PressureStatus, State,
};
use telemetry::counters::{EventLoopFigures, HandshakeTotals};

use super::*;

fn driver(driver: usize, times: u64) -> DriverStatus {
    DriverStatus {
        driver,
        accepted: 1_234 * times,
        received: 98_765 * times,
        balanced_out: 3,
        stall_takeovers: 0,
        open: 120,
        errors: times,
        accept_queue: Some(2),
        accept_queue_max: Some(4096),
    }
}

fn pool(name: &str, pressure: &str, threads: (u64, u64)) -> PoolStatus {
    PoolStatus {
        name: name.to_owned(),
        pressure: pressure.to_owned(),
        threads: 4,
        threads_min: threads.0,
        threads_max: threads.1,
        idle: 3,
        running: 1,
        waiting: 0,
        completed: 197_000,
        refused: 12,
        ..PoolStatus::default()
    }
}

fn process(slot: usize, generation: u64, state: State) -> ProcessStatus {
    ProcessStatus {
        slot,
        generation,
        pid: Some(4711 + slot as u32),
        state,
        age_s: 3 * 86_400 + 4 * 3_600,
        requests: 197_530,
        resident_bytes: Some(84 << 20),
        proportional_bytes: Some(41_500_000),
        restarts: slot as u64,
        drivers: vec![driver(0, 1), driver(1, 10)],
        pools: vec![
            pool("default", "calm", (4, 4)),
            PoolStatus {
                expired: 7,
                shed: 3,
                ..pool("slow", "overloaded", (1, 8))
            },
        ],
        event_loop: (slot == 0 && generation == 8).then(|| EventLoopFigures {
            lag_ns: 1_234_567_890,
            busy_permille: 873,
            inside: 120,
            inside_max: 1_000,
            websockets: 31,
            websockets_max: 10_000,
            slow_steps: 2,
            held_back: 12_000,
            anyio_running: 40,
            anyio_max: 40,
            anyio_waiting: 17,
            executor_threads: 1,
            executor_max: 6,
            ..EventLoopFigures::default()
        }),
    }
}

fn certificate() -> CertificateStatus {
    CertificateStatus {
        names: vec!["shop.example".to_owned(), "*.shop.example".to_owned()],
        issuer: "Test CA".to_owned(),
        ends_unix_s: 1_796_385_600,
        ends: "2026-12-04 12:00 UTC".to_owned(),
        days_left: 15,
        is_automatic: false,
        last_fault: Some("`shop.key`: there is no private key in PEM in the file".to_owned()),
    }
}

fn addresses() -> Vec<AddressStatus> {
    vec![
        AddressStatus {
            url: "http://127.0.0.1:8000".to_owned(),
            sockets: 4,
            backlog: 4096,
            accept_queue: Some(3),
        },
        AddressStatus {
            url: "unix:/run/shop/shop.sock".to_owned(),
            sockets: 1,
            backlog: 4096,
            accept_queue: None,
        },
    ]
}

fn counters() -> serde_json::Value {
    serde_json::json!({
        "drivers": [{"driver": 0, "accepted": 5}],
        "routes": [{"route": "app", "5xx": 3}, {"route": "none", "5xx": 1}],
    })
}

fn status() -> Status {
    let dead = ProcessStatus {
        slot: 1,
        generation: 8,
        state: State::Waiting,
        restarts: 4,
        ..ProcessStatus::default()
    };
    let generation = |generation, state, processes| GenerationStatus {
        generation,
        state,
        processes,
        drivers: 2,
        age_s: 59,
    };
    Status {
        host: HostStatus::default(),
        pid: 4242,
        version: "0.1.0".to_owned(),
        python: Some("CPython 3.11.7 (GIL)".to_owned()),
        started_unix_s: 1_795_000_000,
        uptime_s: 7_325,
        config_file: Some("/etc/shop/shop.toml".to_owned()),
        control: Some("/run/milepost/shop-1a2b3c4d.sock".to_owned()),
        doing: "reloading".to_owned(),
        generations: vec![
            generation(7, State::Draining, 1),
            generation(8, State::Ready, 2),
        ],
        processes: vec![
            process(0, 7, State::Draining),
            process(0, 8, State::Ready),
            dead,
        ],
        running: Vec::new(),
        running_more: 0,
        certificates: vec![certificate()],
        addresses: addresses(),
        automatic_certificates: Vec::new(),
        totals: Totals {
            accepted: 1_234_567,
            received: 98_765_432,
            errors: 1,
            balanced_out: 6,
            crashes: 1,
            ..Totals::default()
        },
        handshakes: HandshakeTotals {
            full: 12_345,
            resumed: 67_890,
            failed: 3,
            refused: 1,
            mean_cpu_seconds: 0.000_214,
        },
        counters: counters(),
        steering: Some(
            "by hash; steering by processor would not help here: the loopback has one queue and the \
             drivers are not pinned"
                .to_owned(),
        ),
        last_fault: Some(LastFault {
            failure: Failure {
                message: "`shop:app`: the module raised".to_owned(),
                hint: Some("see the traceback".to_owned()),
                detail: Some("Traceback ...".to_owned()),
            },
            age_s: 125,
        }),
    }
}

#[track_caller]
fn check_width(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{}: {line}", line.len());
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn shows_a_line_for_each_process_driver_and_pool() {
    let expect = "\
milepost 0.1.0, process 4242, up 2h 2m, reloading
  python    CPython 3.11.7 (GIL)
  config    /etc/shop/shop.toml
  control   /run/milepost/shop-1a2b3c4d.sock
  listens   http://127.0.0.1:8000 (4 sockets, backlog 4,096, 3 waiting)
            unix:/run/shop/shop.sock (1 socket, backlog 4,096)
  tls       shop.example, *.shop.example, by Test CA, until 2026-12-04 12:00 UTC
            fault: `shop.key`: there is no private key in PEM in the file
            12,345 full handshakes, 67,890 resumed, 3 failed, 1 refused, 0.21 ms
            of processor time each
  totals    98,765,432 requests, 1,234,567 connections, 1 refused or broken off,
            4 answered with 5xx, 6 balanced, 1 crash
  steering  by hash; steering by processor would not help here: the loopback has
            one queue and the drivers are not pinned
  fault     `shop:app`: the module raised (2m 5s ago)
            hint: see the traceback
            its traceback: `last_fault.detail` of `milepost status --json`

GENERATION  STATE     AGE  PROCESSES  DRIVERS EACH
7           draining  59s          1             2
8           ready     59s          2             2

PROCESS  STATE      PID    AGE  REQUESTS  RESIDENT       PSS  RESTARTS
7.0      draining  4711  3d 4h   197,530  84.0 MiB  39.6 MiB         0
8.0      ready     4711  3d 4h   197,530  84.0 MiB  39.6 MiB         0
8.1      waiting      -     0s         0         -         -         4

DRIVER  ACCEPTED  REQUESTS  OPEN  WAITING  BALANCED  STALLED  FAILED
7.0.0      1,234    98,765   120   2/4096         3        0       1
7.0.1     12,340   987,650   120   2/4096         3        0      10
8.0.0      1,234    98,765   120   2/4096         3        0       1
8.0.1     12,340   987,650   120   2/4096         3        0      10

POOL          THREADS  RUN  IDLE  WAITING  STATE          DONE  REFUSED  EXPIRED
7.0.default         4    1     3        0  calm        197,000       12        0
7.0.slow     4 of 1:8    1     3        0  overloaded  197,000       15        7
8.0.default         4    1     3        0  calm        197,000       12        0
8.0.slow     4 of 1:8    1     3        0  overloaded  197,000       15        7

LOOP     INSIDE  SOCKETS         LAG  BUSY  SLOW    HELD  ANYIO      EXECUTOR
8.0   120/1,000   31/10k  1,234.5 ms  87 %     2  12,000  40/40 +17  1/6
";
    let table = table(&status());
    assert!(table == expect, "{table}");
    check_width(&table);
}

#[test]
fn the_five_oldest_requests_are_shown_that_run_for_more_than_a_second() {
    let request = |number: u64, ran_ms| RunningRequest {
        id: format!("00000000000000{number:02x}"),
        method: "GET".to_owned(),
        path: format!("/report/{number}/a-path-that-is-long-enough-to-be-cut"),
        pool: "default".to_owned(),
        pid: 4_194_304,
        worker: (number != 2).then_some(number as u32),
        ran_ms,
        ..RunningRequest::default()
    };
    let requests = [
        request(1, 7_325_000),
        request(2, 61_000),
        request(3, 1_001),
        request(4, 1_000),
    ];
    let expect = "\
RUNS FOR  REQUEST                     POOL     ID                WORKER
   2h 2m  GET /report/1/a-path-that…  default  0000000000000001  4194304.1
   1m 1s  GET /report/2/a-path-that…  default  0000000000000002  4194304
      1s  GET /report/3/a-path-that…  default  0000000000000003  4194304.3
";
    let text = running(&requests).to_text();
    assert!(text == expect, "{text}");
    let many: Vec<_> = (0..9).map(|number| request(number, 9_000)).collect();
    assert_eq!(running(&many).to_text().lines().count(), 6);
    assert!(running(&requests[3..]).is_empty());
    check_width(&text);
}

#[test]
fn a_bound_of_sockets_is_short() {
    for (open, max, expect) in [
        (3, 0, "3"),
        (3, 2_500, "3/2,500"),
        (9_876, 10_000, "9,876/10k"),
        (1_234_567, 2_000_000, "1,234,567/2,000k"),
    ] {
        let figures = EventLoopFigures {
            websockets: open,
            websockets_max: max,
            ..EventLoopFigures::default()
        };
        assert_eq!(sockets(&figures), expect);
    }
}

#[test]
fn stays_within_eighty_columns_when_numbers_are_large() {
    let mut status = status();
    status.doing = "stopping".to_owned();
    for process in &mut status.processes {
        process.slot = 31;
        process.generation = 1_234;
        process.pid = Some(4_194_304);
        process.state = State::Starting;
        process.age_s = 364 * 86_400 + 23 * 3_600;
        process.requests = 9_999_999;
        process.resident_bytes = Some(999_900 << 20);
        process.proportional_bytes = Some(999_900 << 20);
        process.restarts = 99_999_999;
        // Names take what room they need.
        process.pools.truncate(1);
        for driver in &mut process.drivers {
            driver.accepted = 999_999_999;
            driver.received = 12_345_678_901;
            driver.open = 10_000;
            driver.accept_queue = Some(65_535);
            driver.accept_queue_max = Some(65_535);
            driver.balanced_out = 12_345_678;
            driver.stall_takeovers = 123_456;
            driver.errors = 1_234_567;
        }
    }
    check_width(&table(&status));
}

#[test]
fn shows_a_server_that_has_nothing_to_tell() {
    let expect = "\
milepost 0.1.0, process 7, up 0s
  totals    0 requests, 0 connections, 0 refused or broken off
";
    let status = Status {
        pid: 7,
        version: "0.1.0".to_owned(),
        ..Status::default()
    };
    assert_eq!(table(&status), expect);
}

#[test]
fn has_everything_in_json() {
    let status = status();
    let text = json(&status);
    assert!(text.ends_with("}\n"));
    let read: Status = serde_json::from_str(&text).unwrap();
    assert_eq!(read, status);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["processes"][1]["drivers"][1]["accepted"], 12_340);
    assert_eq!(value["processes"][2]["pid"], serde_json::Value::Null);
    assert_eq!(value["counters"]["drivers"][0]["accepted"], 5);
}

#[test]
fn writes_numbers_with_units() {
    for (value, expect) in [
        (0, "0"),
        (9_999_999, "9,999,999"),
        (10_000_000, "10.00 M"),
        (12_345_678, "12.34 M"),
        (999_999_999, "999.99 M"),
        (1_000_000_000, "1.00 G"),
        (u64::MAX, "18446.74 P"),
    ] {
        assert_eq!(count(value), expect);
    }
    for (bytes, expect) in [
        (0, "0.0 KiB"),
        (1536, "1.5 KiB"),
        (1_023 << 10, "1.0 MiB"),
        (84 << 20, "84.0 MiB"),
        (3 << 40, "3.0 TiB"),
    ] {
        assert_eq!(size(bytes), expect);
    }
    for (secs, expect) in [
        (59, "59s"),
        (60, "1m 0s"),
        (3_599, "59m 59s"),
        (3_600, "1h 0m"),
        (86_399, "23h 59m"),
        (90_000, "1d 1h"),
    ] {
        assert_eq!(age(secs), expect);
    }
}

#[test]
fn shows_how_automatic_certificates_stand() {
    let now = status().now_unix_s();
    let day = 86_400;
    let status = Status {
        automatic_certificates: vec![
            ManagedCertificate {
                name: "shop.example".to_owned(),
                authority: "acme-v02.api.letsencrypt.org".to_owned(),
                not_after_unix_s: Some(now + 60 * day),
                next_try_unix_s: Some(now + 30 * day),
                ..ManagedCertificate::default()
            },
            ManagedCertificate {
                name: "blog.example".to_owned(),
                authority: "acme-v02.api.letsencrypt.org".to_owned(),
                next_try_unix_s: Some(now + 120),
                failures: 2,
                last_error: Some("the challenge failed: no answer (connection)".to_owned()),
                ..ManagedCertificate::default()
            },
        ],
        processes: Vec::new(),
        generations: Vec::new(),
        ..status()
    };
    let text = table(&status);
    let is_shown = |line: &&str| {
        ["no cert", "NAME", ".example "]
            .iter()
            .any(|part| line.contains(part))
    };
    let shown: Vec<&str> = text.lines().filter(is_shown).collect();
    let expect = [
        "  no cert   blog.example: the challenge failed: no answer (connection)",
        "NAME          FROM                VALID FOR  NEXT TRY IN  FAILURES",
        "shop.example  acme-v02.api.lets…     60d 0h       30d 0h         0",
        "blog.example  acme-v02.api.lets…          -        2m 0s         2",
    ];
    assert_eq!(shown, expect);
}

#[test]
fn says_what_of_the_machine_slows_it_down() {
    assert_eq!(host(&HostStatus::default()), None);
    let pressure = |resource: &str, some_percent| PressureStatus {
        resource: resource.to_owned(),
        some_percent,
        ..PressureStatus::default()
    };
    let found = host(&HostStatus {
        pressure: vec![pressure("cpu", 12.4), pressure("io", 0.4)],
        throttling: Some(GroupThrottling {
            throttled_us: 3_240_000,
            ..GroupThrottling::default()
        }),
        memory: Some(GroupMemory {
            bytes: 3 << 20,
            bytes_max: Some(8 << 20),
            events: [("oom_kill".to_owned(), 1)].into(),
        }),
        ..HostStatus::default()
    });
    let expect = "cpu pressure 12 %, throttled by its processor quota for 3.2 s, 1 process killed for \
                  lack of memory, memory 3.0 MiB of 8.0 MiB";
    assert_eq!(found.expect("facts"), expect);
}
