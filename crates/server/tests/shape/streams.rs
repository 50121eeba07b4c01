//! Several streams on one connection.

use serde_json::Value;
use server::exchange::Exchange;
use server::response::ResponseWriter;
use telemetry::Nanos;

use super::http2::{DATA, GOAWAY, Http2, RST_STREAM, window_update};
use super::support::*;
use super::ways::*;

fn large(_: &mut Exchange, writer: &mut ResponseWriter) -> Answer {
    whole(writer, &pattern(1 << 20))
}

/// `/large` is large, all else waits at the gate.
fn large_or_wait(gate: &Gate) -> impl server::handler::Handler {
    let gate = gate.clone();
    move |exchange: &mut Exchange, writer: &mut ResponseWriter| match exchange.path() {
        b"/large" => large(exchange, writer),
        b"/small" => whole(writer, b"small"),
        _ => gate.answer(writer),
    }
}

fn record_of<'r>(records: &'r [Value], target: &str) -> &'r Value {
    let mut found = records.iter().filter(|record| record["target"] == target);
    let record = found.next().expect("a record");
    assert!(found.next().is_none(), "two records of {target}");
    check_phases(record);
    record
}

fn check_ends(records: &[Value], targets: &str, end: &str) {
    for target in targets.split(' ') {
        assert_eq!(record_of(records, target)["end"], end, "{target}");
    }
}

fn one_thread(config: &mut config::typed::Config) {
    (config.pools[0].threads_min, config.pools[0].threads_max) = (1, 1);
}

const POST: &str = " HTTP/1.1\r\nHost: a\r\n\r\n";

fn begin_post(client: &mut Http2, path: &str) -> u32 {
    client.begin(&format!("POST {path}{POST}"), false)
}

#[test]
fn a_stream_without_a_window_holds_up_neither_the_others_nor_its_worker() {
    let running = open(large_or_wait(&Gate::default()), one_thread);
    let mut client = running.http2();
    let slow = client.get("/large");
    client.wait_for_head(slow);
    for _ in 0..8 {
        let stream = client.get("/small");
        client.open_window(stream, 5);
        assert_eq!(client.response(stream).body, b"small");
    }
    // A large file passes it too.
    let file = client.get("/f/large.bin");
    client.open_window(file, 700_000);
    assert!(client.response(file).body == pattern(700_000));
    let mut opened = 0;
    for window in [1, 10, 100_000, 30_000] {
        client.open_window(slow, window);
        opened += window as usize;
        assert_eq!(client.body(slow, opened).len(), opened);
    }
    client.open_window(slow, 1 << 20);
    assert!(client.response(slow).body == pattern(1 << 20));
    drop(client);
    let records = running.records();
    assert_eq!(records.len(), 10);
    let slow = record_of(&records, "/large");
    assert_eq!(
        (&slow["end"], &slow["bytes"]),
        (&"complete".into(), &(1 << 20).into())
    );
}

#[test]
fn two_streams_take_turns() {
    let running = open(large, |_| {});
    let mut client = running.http2();
    // Incremental responses share the connection (RFC 9218 section 4.2).
    let get = |path| format!("GET {path} HTTP/1.1\r\nHost: a\r\nPriority: i\r\n\r\n");
    let streams = ["/one", "/two"].map(|path| client.begin(&get(path), true));
    for stream in streams {
        client.wait_for_head(stream);
    }
    // In one piece, so that none has a start.
    let windows = streams.map(|stream| window_update(stream, 1 << 20));
    client.raw(&windows.concat());
    for stream in streams {
        assert!(client.response(stream).body == pattern(1 << 20));
    }
    let frames = client.frames();
    let data: Vec<u32> = frames
        .iter()
        .filter(|frame| frame.kind == DATA)
        .map(|frame| frame.stream)
        .collect();
    // As long as both have something to send; the first one may have been alone for four turns.
    let last = streams.map(|stream| data.iter().rposition(|it| *it == stream).unwrap());
    let both = &data[..*last.iter().min().unwrap()];
    let runs = both.chunk_by(|one, next| one == next);
    assert!(runs.map(<[_]>::len).max() <= Some(5), "{data:?}");
    assert_eq!(running.records().len(), 2);
}

#[test]
fn bodies_of_two_streams_come_interleaved() {
    let running = open(echo, |_| {});
    let mut client = running.http2();
    let streams = [(); 2].map(|()| begin_post(&mut client, "/echo"));
    for _ in 0..30 {
        client.send(streams[0], &[1; 1_000]);
        client.send(streams[1], &[2; 10]);
    }
    let expected = ["[/echo file 30000 30000]", "[/echo memory 300 600]"];
    for (stream, expected) in streams.into_iter().zip(expected).rev() {
        client.end(stream);
        client.open_window(stream, 1_000);
        assert_eq!(text(&client.response(stream).body), expected);
    }
    assert_eq!(running.records().len(), 2);
}

#[test]
fn a_reset_ends_a_stream_alone_whoever_has_it() {
    let gate = Gate::default();
    let running = open(large_or_wait(&gate), one_thread);
    let mut client = running.http2();
    let receiving = begin_post(&mut client, "/receiving");
    let sending = client.get("/large");
    client.wait_for_head(sending);
    let working = client.get("/running");
    gate.wait_for(1);
    let waiting = client.get("/waiting");
    let file = client.get("/f/large.bin");
    client.wait_for_head(file);
    for stream in [receiving, sending, working, waiting, file] {
        client.reset(stream);
    }
    // What comes for them later is not for anybody.
    client.open_window(sending, 100);
    let other = client.get("/f/small.txt");
    client.open_window(other, 1_000);
    assert_eq!(client.response(other).body, pattern(1_000));
    gate.open();
    let small = client.get("/small");
    client.open_window(small, 100);
    assert_eq!(client.response(small).body, b"small");
    drop(client);
    let records = running.records();
    assert_eq!(records.len(), 7, "{records:#?}");
    check_ends(
        &records,
        "/receiving /large /running /waiting /f/large.bin",
        "peer-gone",
    );
    assert_eq!(record_of(&records, "/waiting")["worker"], "-");
    assert_ne!(record_of(&records, "/running")["worker"], "-");
    assert_eq!(record_of(&records, "/small")["end"], "complete");
    assert_eq!(gate.answered(), 1, "what was reset in the queue has run");
}

#[test]
fn a_client_that_leaves_ends_all_its_streams() {
    let gate = Gate::default();
    let running = open(large_or_wait(&gate), |_| {});
    let mut client = running.http2();
    client.get("/running");
    gate.wait_for(1);
    let large = client.get("/large");
    client.wait_for_head(large);
    drop(client);
    gate.open();
    let records = running.records();
    assert_eq!(records.len(), 2);
    check_ends(&records, "/running /large", "peer-gone");
}

#[test]
fn a_client_that_gives_no_window_loses_its_response_in_time() {
    let running = open(large, |config| {
        config.timeouts.send = Nanos::from_ms(100);
    });
    let mut client = running.http2();
    let stalled = client.get("/stalled");
    client.open_window(stalled, 10);
    let response = client.response(stalled);
    assert!(response.is_cut && response.body == pattern(10));
    let file = client.get("/f/large.bin");
    assert!(client.response(file).is_cut);
    let records = running.records();
    for target in ["/stalled", "/f/large.bin"] {
        let record = record_of(&records, target);
        assert_eq!(record["end"], "send-timeout", "{record}");
    }
}

#[test]
fn what_waits_for_a_window_moves_to_a_file() {
    let running = open(large, |config| {
        config.delivery.replies_memory_bytes_max = 1 << 20;
    });
    let mut client = running.http2();
    let stream = client.get("/");
    client.wait_for_head(stream);
    wait_until("a response in a file", || {
        text(&running.get("/-/status")).contains("\"replies_memory_bytes\":0")
    });
    client.open_window(stream, 1 << 20);
    assert!(client.response(stream).body == pattern(1 << 20));
    assert_eq!(record_of(&running.records(), "/")["end"], "complete");
}

#[test]
fn a_drain_lets_streams_end_and_closes() {
    let gate = Gate::default();
    let running = open(large_or_wait(&gate), |_| {});
    let mut idle = running.http2();
    let small = idle.get("/small");
    idle.open_window(small, 100);
    assert_eq!(idle.response(small).body, b"small");
    let mut client = running.http2();
    let waiting = client.get("/wait");
    gate.wait_for(1);
    running.handle.drain_alone();
    idle.wait_for_end();
    client.wait_for_frame(|frame| frame.kind == GOAWAY);
    gate.open();
    client.open_window(waiting, 100);
    assert_eq!(client.response(waiting).body, b"waited");
    client.wait_for_end();
    let ended = running.thread.join().unwrap();
    assert_eq!((ended.cut, ended.exchanges), (0, 2));
}

#[test]
fn the_drain_deadline_cuts_streams_wherever_they_are() {
    let gate = Gate::default();
    let running = open(large_or_wait(&gate), |config| {
        one_thread(config);
        config.timeouts.drain = Nanos::from_ms(300);
    });
    let mut client = running.http2();
    begin_post(&mut client, "/receiving");
    let sending = client.get("/large");
    client.wait_for_head(sending);
    let file = client.get("/f/large.bin");
    client.wait_for_head(file);
    client.get("/running");
    gate.wait_for(1);
    client.get("/waiting");
    running.handle.drain_alone();
    client.wait_for_end();
    let ends = |frame: &super::http2::Frame| frame.kind == DATA || frame.kind == RST_STREAM;
    assert!(!client.frames().iter().any(ends), "{:?}", client.frames());
    let dir = running.dir;
    let ended = running.thread.join().unwrap();
    gate.open();
    assert_eq!(ended.cut, 5);
    let log = std::fs::read_to_string(dir.path().join("access.log")).unwrap();
    let records = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let records: Vec<Value> = records.collect();
    assert_eq!(records.len(), 5);
    check_ends(
        &records,
        "/receiving /large /f/large.bin /running /waiting",
        "shutdown",
    );
}

#[test]
fn an_application_that_takes_too_long_costs_its_stream_alone() {
    let gate = Gate::default();
    let waits = gate.clone();
    let handler = move |exchange: &mut Exchange, writer: &mut ResponseWriter| {
        match exchange.path() {
            b"/small" => return whole(writer, b"small"),
            b"/begun" => {
                writer.begin_ok("");
                writer.give(b"begun");
            }
            b"/whole" => {
                writer.begin_with_length(5);
                writer.give(b"whole");
            }
            _ => {}
        }
        waits.answer(writer)
    };
    let running = open(handler, |config| {
        (config.pools[0].threads_min, config.pools[0].threads_max) = (4, 4);
        config.pools[0].request_timeout = Some(Nanos::from_ms(200));
    });
    let mut client = running.http2();
    let mut check = |path, status, is_cut, body: &str| {
        let stream = client.get(path);
        client.open_window(stream, 100);
        let response = client.response(stream);
        let found = (response.status, response.is_cut, text(&response.body));
        assert_eq!(found, (status, is_cut, body.to_owned()), "{path}");
    };
    check("/silent", 504, false, "504 Gateway Timeout\n");
    check("/begun", 200, true, "begun");
    check("/whole", 200, false, "whole");
    check("/small", 200, false, "small");
    gate.open();
    let records = running.records();
    let end = |target| record_of(&records, target)["end"].as_str().unwrap();
    let ends = ["/silent", "/begun", "/whole", "/small"].map(end);
    assert_eq!(ends, ["timeout", "timeout", "complete", "complete"]);
}
