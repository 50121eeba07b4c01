//! One table of requests, asked in every way: status, fields, body and record are the same.

use std::collections::BTreeMap;

use config::typed::{Config, FixedReply, PathPattern, Rate, RedirectConfig, Rewrite};
use serde_json::Value;
use server::exchange::Exchange;
use server::fault::Fault;
use server::response::{Amount, Declared, ResponseWriter};
use telemetry::Nanos;

use super::client::Response;
use super::support::*;
use super::ways::*;

/// Keys of a record that belong to the moment, or to the head as a protocol writes it.
const OF_THE_MOMENT: [&str; 28] = [
    "protocol",
    "stream",
    "blocked_stream",
    "blocked_connection",
    "time",
    "sent",
    "driver",
    "process",
    "worker",
    "id",
    "receive",
    "queue",
    "run",
    "send",
    "total",
    "gil",
    "cpu",
    "waiting",
    "threads",
    "idle",
    "queued",
    "bytes",
    "tls",
    "cipher",
    "resumed",
    "server_name",
    "alpn",
    "handshake",
];

fn answer(exchange: &mut Exchange, writer: &mut ResponseWriter) -> Answer {
    let path = text(exchange.path());
    match path.as_str() {
        "/small" => return whole(writer, b"a small response"),
        "/large" => return whole(writer, &pattern(3 << 20)),
        "/nothing" => writer.begin_with(204, "X-Field: kept\r\n", Declared::default()),
        "/silent" => {}
        "/fields" => {
            writer.begin_with(
                418,
                "X-One: 1\r\nX-Two: a\r\nX-Two: b\r\n",
                Declared::default(),
            );
            writer.give_whole(b"fields");
        }
        "/stream" => {
            writer.begin_ok("Content-Type: text/plain\r\n");
            for index in 0..60 {
                writer.give(pattern(1 + index * 7 % 300));
            }
        }
        "/long-stream" => {
            writer.begin_ok("");
            for index in 0..40 {
                writer.give(pattern(1 + index * 2_003));
            }
        }
        "/with-length" => {
            writer.begin_with_length(300);
            for _ in 0..3 {
                writer.give(pattern(100));
            }
        }
        "/longer" => {
            writer.begin_with_length(5);
            writer.give(b"12345678");
        }
        "/shorter" => {
            writer.begin_with_length(10);
            writer.give(b"12345");
        }
        "/early-failure" => return Err(Fault::App("on purpose".to_owned())),
        "/early-panic" => panic!("on purpose"),
        "/late-failure" => {
            writer.begin_ok("");
            writer.give(b"some of it");
            return Err(Fault::App("on purpose".to_owned()));
        }
        "/file" => {
            writer.begin_ok("");
            let mut file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut file, &pattern(200_000)).unwrap();
            writer.file(file, 100, 150_000, Amount::Whole);
        }
        "/limited" => {
            let rate = Some(Rate::BytesPerSec(2_000_000));
            writer.begin_with(
                200,
                "",
                Declared {
                    rate,
                    ..Declared::default()
                },
            );
            writer.give_whole(pattern(300_000));
        }
        _ => return echo(exchange, writer),
    }
    Ok(())
}

/// Names, methods and paths, and fields.
const TABLE: &str = "
    cold-file     | GET /f/small.txt   |
    cached-file   | GET /f/small.txt   |
    head-file     | HEAD /f/small.txt  |
    large-file    | GET /f/large.bin   |
    range         | GET /f/large.bin   | Range: bytes=100-299
    ranges        | GET /f/small.txt   | Range: bytes=0-9,500-
    no-range      | GET /f/small.txt   | Range: bytes=5000-
    folder        | GET /f/folder      |
    no-file       | GET /f/none        |
    redirect      | GET /old           |
    fixed         | GET /fixed         |
    rewrite       | GET /before        |
    trace         | TRACE /            |
    small         | GET /small         |
    head          | HEAD /small        |
    large         | GET /large         |
    gzip          | GET /small-text    | Accept-Encoding: gzip
    gzip-stream   | GET /stream        | Accept-Encoding: gzip
    nothing       | GET /nothing       |
    silent        | GET /silent        |
    fields        | GET /fields        |
    stream        | GET /stream        |
    head-stream   | HEAD /stream       |
    long-stream   | GET /long-stream   |
    with-length   | GET /with-length   |
    longer        | GET /longer        |
    shorter       | GET /shorter       |
    early-failure | GET /early-failure |
    early-panic   | GET /early-panic   |
    late-failure  | GET /late-failure  |
    file          | GET /file          |
    limited       | GET /limited       |
    percent       | GET /a%20b         |
";

/// Names and requests. A name is in the target too, so that the record is found again.
fn table() -> Vec<(&'static str, Request)> {
    let written = TABLE.trim().lines().map(|row| {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [name, first, field] = columns[..] else {
            panic!("{row}");
        };
        let fields = match field {
            "" => String::new(),
            field => format!("{field}\r\n"),
        };
        (name, Request::new(&format!("{first}?{name}"), &fields))
    });
    let post = |(name, path, bytes)| {
        let target = format!("{path}?{name}");
        (name, Request::post(&target, pattern(bytes)))
    };
    let posts = [
        ("file-post", "/f/small.txt", 10),
        ("body", "/echo", 500),
        ("spooled-body", "/echo", 90_000),
        ("large-body", "/echo", 100_001),
    ];
    let raw = |(name, rest): (&'static str, &str)| {
        let head = format!("GET /?{name} HTTP/{rest}\r\n\r\n");
        let body = Vec::new();
        (name, Request { head, body })
    };
    let refused = [
        ("bad-field", "1.1\r\nHost: a\r\nBad Field: x"),
        ("no-host", "1.1"),
        ("version", "2.0\r\nHost: a"),
    ];
    let long = format!("X: {}\r\n", "x".repeat(70_000));
    let others = [
        ("options", Request::new("OPTIONS *", "X: options\r\n")),
        ("long-head", Request::new("GET /?long-head", &long)),
    ];
    written
        .chain(posts.map(post))
        .chain(refused.map(raw))
        .chain(others)
        .collect()
}

fn rules(config: &mut Config) {
    let exact = |path: &str| PathPattern::Exactly(path.to_owned());
    config.rules.redirects = vec![RedirectConfig {
        except: Vec::new(),
        from: exact("/old"),
        status: 308,
        to: "/new".to_owned(),
    }];
    config.rules.replies = vec![FixedReply {
        from: exact("/fixed"),
        status: 410,
        text: "gone for good".to_owned(),
    }];
    config.rules.rewrites = vec![Rewrite {
        from: exact("/before"),
        to: "/behind".to_owned(),
    }];
    config.headers.server = "milepost".to_owned();
    config.rates.routes = vec![("/f".to_owned(), Rate::BytesPerSec(50_000_000))];
}

/// Heads that only HTTP/1 can have, or that the `h2` crate refuses.
const OF_HTTP1: [&str; 5] = ["bad-field", "no-host", "version", "options", "long-head"];

/// Asks the whole table in one way; gives responses and records by name.
fn ask_all(way: Way) -> BTreeMap<&'static str, (Response, Value)> {
    let running = open(answer, rules);
    let mut table = table();
    table.retain(|(name, _)| !matches!(way, Way::Http2(_)) || !OF_HTTP1.contains(name));
    let ask = |(name, request): &(&'static str, Request)| {
        let mut response = running.ask_by(way, request);
        response.forget_boundary();
        (*name, response)
    };
    let responses: Vec<_> = table.iter().map(ask).collect();
    let records = running.records();
    assert_eq!(records.len(), table.len(), "one record each: {records:#?}");
    let mut found = BTreeMap::new();
    for (name, response) in responses {
        let of_name = |record: &&Value| {
            let target = record["target"].as_str().unwrap();
            let line = record["request_line"].as_str().unwrap_or_default();
            target.ends_with(&format!("?{name}"))
                || line.contains(&format!("?{name} "))
                || (name == "options" && target == "*")
        };
        let of_name: Vec<_> = records.iter().filter(of_name).collect();
        let [record] = of_name[..] else {
            panic!("{name} has {} records: {records:#?}", of_name.len());
        };
        found.insert(name, (response, record.clone()));
    }
    found
}

/// What of a record is the same in every way.
fn lasting(record: &Value) -> Value {
    let mut record = record.clone();
    let keys = record.as_object_mut().unwrap();
    let has_worker = keys["worker"] != "-";
    keys.retain(|key, _| !OF_THE_MOMENT.contains(&key.as_str()));
    keys.insert("has_worker".to_owned(), has_worker.into());
    // How much of a head came before it was refused.
    if keys["status"] == 431 {
        keys.remove("request_bytes");
    }
    record
}

fn check_same(ways: &[Way]) {
    let expected = ask_all(Way::Tcp);
    for (name, (response, record)) in &expected {
        check_phases(record);
        assert_ne!(record["end"], "lost", "{name}: {record}");
        assert_eq!(response.is_cut, record["end"] == "cut", "{name}: {record}");
    }
    for way in ways {
        for (name, (response, record)) in ask_all(*way) {
            let (expected_response, expected_record) = &expected[name];
            response.assert_is(expected_response, &format!("{name} by {way:?}"));
            let (found, wanted) = (lasting(&record), lasting(expected_record));
            assert_eq!(found, wanted, "{name} by {way:?}");
            check_phases(&record);
            // Chunks are a part of what HTTP/1 sends.
            let bytes = record["bytes"].as_u64().unwrap();
            match way {
                Way::Http2(_) => assert_eq!(bytes, response.body.len() as u64, "{name}"),
                _ => assert_eq!(bytes, expected_record["bytes"].as_u64().unwrap(), "{name}"),
            }
        }
    }
}

const WAYS: [Way; 4] = [
    Way::Tcp,
    Way::Tls,
    Way::Memory(BUFFER_BYTES),
    Way::Http2(BUFFER_BYTES),
];

/// Texts of a record.
fn texts<'r, const N: usize>(record: &'r Value, keys: [&str; N]) -> [&'r str; N] {
    keys.map(|key| record[key].as_str().unwrap())
}

#[test]
fn responses_and_records_are_the_same_in_memory_and_over_http2() {
    check_same(&[Way::Memory(BUFFER_BYTES), Way::Http2(BUFFER_BYTES)]);
}

#[test]
fn responses_and_records_are_the_same_over_tls() {
    check_same(&[Way::Tls]);
}

#[test]
fn they_are_the_same_through_the_smallest_buffers() {
    check_same(&[Way::Memory(61), Way::Http2(61)]);
}

#[test]
fn an_application_that_takes_too_long_is_answered_for() {
    for way in WAYS {
        let gate = Gate::default();
        let running = open(gate.handler(), |config| {
            config.pools[0].request_timeout = Some(Nanos::from_ms(100));
        });
        let response = running.ask_by(way, &Request::new("GET /wait", ""));
        assert_eq!((response.status, response.is_cut), (504, false), "{way:?}");
        gate.open();
        let records = running.records();
        let [record] = &records[..] else {
            panic!("{way:?}: {records:#?}");
        };
        check_phases(record);
        let found = texts(record, ["end", "cause", "pool", "route"]);
        let cause = "the application took longer than request_timeout";
        assert_eq!(found, ["timeout", cause, "default", "app"], "{way:?}");
        let has_run = record["worker"] != "-" && record["run"].as_f64().unwrap() >= 0.1;
        assert!(has_run, "{record}");
    }
}

#[test]
fn a_full_queue_refuses() {
    for way in WAYS {
        let gate = Gate::default();
        let running = open(gate.handler(), |config| {
            (config.pools[0].threads_min, config.pools[0].threads_max) = (1, 1);
            config.pools[0].queue_len_max = 1;
            config.pools[0].reserve_threads = 0;
            config.pools[0].reserve_len = 0;
        });
        let mut others = running.http2();
        let running_one = others.get("/wait");
        gate.wait_for(1);
        let waiting_one = others.get("/wait");
        wait_until("one in the queue", || {
            text(&running.get("/-/status")).contains("\"waiting\":1")
        });
        let response = running.ask_by(way, &Request::new("GET /refused", ""));
        assert_eq!(response.status, 503, "{way:?}");
        assert!(response.field("retry-after").is_some(), "{way:?}");
        gate.open();
        for stream in [running_one, waiting_one] {
            others.open_window(stream, 100);
            assert_eq!(others.response(stream).body, b"waited");
        }
        let records = running.records();
        let refused = records.iter().find(|record| record["target"] == "/refused");
        let refused = refused.unwrap();
        check_phases(refused);
        assert_eq!(refused["status"], 503, "{way:?}");
        let found = texts(refused, ["end", "cause", "worker"]);
        assert_eq!(found, ["refused", "queue is full", "-"], "{way:?}");
    }
}

#[test]
fn a_connection_ends_behind_a_response_beyond_its_age() {
    for (age_max, is_last) in [(Some(Nanos(1)), true), (None, false)] {
        let running = open(echo, |config| config.timeouts.connection_age_max = age_max);
        let mut http1 = running.handle.connect_in_memory(BUFFER_BYTES);
        let get = "GET /f/small.txt HTTP/1.1\r\nHost: a\r\n\r\n";
        std::io::Write::write_all(&mut http1, get.as_bytes()).unwrap();
        let mut head = [0; 1_000];
        let bytes = std::io::Read::read(&mut http1, &mut head).unwrap();
        let head = text(&head[..bytes]).to_ascii_lowercase();
        assert_eq!(
            head.contains("\r\nconnection: close\r\n"),
            is_last,
            "{head}"
        );
        let mut http2 = running.http2();
        let stream = http2.get("/echo");
        http2.open_window(stream, 1_000);
        let body = http2.response(stream).body;
        assert_eq!(text(&body), "[/echo empty 0 0]");
        if is_last {
            read_all(&mut http1);
            http2.wait_for_frame(|frame| frame.kind == super::http2::GOAWAY);
            http2.wait_for_end();
        }
        assert_eq!(running.records().len(), 2);
    }
}
