//! Several streams on one connection.

use std::io::{ErrorKind, Read, Write};

use serde_json::Value;
use server::exchange::Exchange;
use server::response::ResponseWriter;
use telemetry::Nanos;

use super::client::{DATA, END, Frame, HEAD, RESET, Response, WINDOW, frame};
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

#[test]
fn a_stream_without_a_window_holds_up_neither_the_others_nor_its_worker() {
    let running = open(large_or_wait(&Gate::default()), one_thread);
    let mut frames = running.frames();
    frames.get(1, "/large");
    assert_eq!(frames.frame().kind, HEAD);
    for stream in 2..10 {
        frames.get(stream, "/small");
        frames.open(stream, 5);
        assert_eq!(frames.response(stream).body, b"small");
    }
    // A large file passes it too.
    frames.get(10, "/f/large.bin");
    frames.open(10, 700_000);
    assert_eq!(frames.response(10).body, pattern(700_000));
    let mut body = Vec::new();
    for window in [1, 10, 100_000, 30_000] {
        frames.open(1, window);
        let before = body.len();
        while body.len() < before + window as usize {
            let frame = frames.frame();
            assert_eq!((frame.stream, frame.kind), (1, DATA));
            body.extend(frame.payload);
        }
        assert_eq!(body.len(), before + window as usize);
    }
    frames.open(1, 1 << 20);
    body.extend(frames.response(1).body);
    assert!(body == pattern(1 << 20));
    drop(frames);
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
    let mut frames = running.frames();
    frames.get(1, "/one");
    frames.get(2, "/two");
    let heads = [frames.frame(), frames.frame()];
    assert!(heads.iter().all(|frame| frame.kind == HEAD), "{heads:?}");
    // In one piece, so that none has a start.
    let windows = [1, 2].map(|stream| frame(stream, WINDOW, &(1_u32 << 20).to_be_bytes()));
    frames.0.write_all(&windows.concat()).unwrap();
    let mut responses = [Response::default(), Response::default()];
    let mut order = Vec::new();
    while order.iter().filter(|(_, kind)| *kind == END).count() < 2 {
        let frame = frames.frame();
        order.push((frame.stream, frame.kind));
        responses[usize::from(frame.stream) - 1].take(&frame);
    }
    assert!(
        responses
            .iter()
            .all(|response| response.body == pattern(1 << 20))
    );
    // As long as both have something to send.
    let both = order.split(|(_, kind)| *kind == END).next().unwrap();
    let runs = both.chunk_by(|one, next| one.0 == next.0);
    assert!(runs.map(<[_]>::len).max() <= Some(3), "{order:?}");
    assert_eq!(running.records().len(), 2);
}

#[test]
fn bodies_of_two_streams_come_interleaved() {
    let running = open(echo, |_| {});
    let mut frames = running.frames();
    for stream in [1, 2] {
        frames.send(stream, HEAD, b"POST /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for _ in 0..30 {
        frames.send(1, DATA, &[1; 1_000]);
        frames.send(2, DATA, &[2; 10]);
    }
    for stream in [2, 1] {
        frames.send(stream, END, &[]);
        frames.open(stream, 1_000);
        let body = text(&frames.response(stream).body);
        let expect = match stream {
            1 => "[/echo file 30000 30000]",
            _ => "[/echo memory 300 600]",
        };
        assert_eq!(body, expect);
    }
    frames.send(
        3,
        HEAD,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n",
    );
    frames.send(3, DATA, b"abc");
    frames.send(3, END, &[]);
    frames.open(3, 1_000);
    assert_eq!(frames.response(3).status, 400);
    assert_eq!(running.records().len(), 3);
}

#[test]
fn a_reset_ends_a_stream_alone_whoever_has_it() {
    let gate = Gate::default();
    let running = open(large_or_wait(&gate), one_thread);
    let mut frames = running.frames();
    frames.send(1, HEAD, b"POST /receiving HTTP/1.1\r\nHost: a\r\n\r\n");
    frames.get(2, "/large");
    assert_eq!(frames.frame().kind, HEAD);
    frames.get(3, "/running");
    gate.wait_for(1);
    frames.get(4, "/waiting");
    frames.get(5, "/f/large.bin");
    assert_eq!(frames.frame().stream, 5);
    for stream in 1..=5 {
        frames.send(stream, RESET, &[]);
    }
    // What comes for them later is not for anybody.
    frames.send(3, DATA, b"late");
    frames.open(2, 100);
    frames.get(6, "/f/small.txt");
    frames.open(6, 1_000);
    let mut response = Response::default();
    // Of streams that had begun to answer, the end is told.
    while let frame = frames.frame()
        && !(frame.stream == 6 && response.take(&frame))
    {
        assert!(frame.stream == 6 || frame.kind == RESET, "{frame:?}");
    }
    assert_eq!(response.body, pattern(1_000));
    gate.open();
    frames.get(7, "/small");
    frames.open(7, 100);
    assert_eq!(frames.response(7).body, b"small");
    drop(frames);
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
    let mut frames = running.frames();
    frames.get(1, "/running");
    gate.wait_for(1);
    frames.get(2, "/large");
    assert_eq!(frames.frame().kind, HEAD);
    drop(frames);
    gate.open();
    let records = running.records();
    assert_eq!(records.len(), 2);
    check_ends(&records, "/running /large", "peer-gone");
}

#[test]
fn a_broken_frame_resets_the_connection() {
    let too_large = [0, 1, 1, 0xff, 0, 0, 0];
    let unknown_kind = [0, 1, 9, 0, 0, 0, 0];
    let unknown_stream = [0, 9, DATA, 0, 0, 0, 0];
    for bytes in [too_large, unknown_kind, unknown_stream] {
        let running = open(large, |_| {});
        let mut frames = running.frames();
        frames.get(1, "/");
        assert_eq!(frames.frame().kind, HEAD);
        frames.0.write_all(&bytes).unwrap();
        let error = frames.0.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let records = running.records();
        assert_eq!(record_of(&records, "/")["end"], "peer-gone");
    }
}

#[test]
fn more_streams_than_there_may_be_reset_the_connection() {
    let gate = Gate::default();
    let running = open(large_or_wait(&gate), |_| {});
    let mut frames = running.frames();
    for stream in 1..=100 {
        frames.get(stream, "/wait");
    }
    gate.wait_for(2);
    frames.send(101, HEAD, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let error = frames.0.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    gate.open();
    assert_eq!(running.records().len(), 100);
}

#[test]
fn a_client_that_gives_no_window_loses_its_response_in_time() {
    let running = open(large, |config| {
        config.timeouts.send = Nanos::from_ms(100);
    });
    let mut frames = running.frames();
    frames.get(1, "/stalled");
    frames.open(1, 10);
    let response = frames.response(1);
    assert!(response.is_cut && response.body == pattern(10));
    frames.get(2, "/f/large.bin");
    assert!(frames.response(2).is_cut);
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
    let mut frames = running.frames();
    frames.get(1, "/");
    assert_eq!(frames.frame().kind, HEAD);
    wait_until("a response in a file", || {
        text(&running.get("/-/status")).contains("\"replies_memory_bytes\":0")
    });
    frames.open(1, 1 << 20);
    assert!(frames.response(1).body == pattern(1 << 20));
    assert_eq!(record_of(&running.records(), "/")["end"], "complete");
}

#[test]
fn a_drain_lets_streams_end_and_closes() {
    let gate = Gate::default();
    let running = open(large_or_wait(&gate), |_| {});
    let mut idle = running.frames();
    idle.get(1, "/small");
    idle.open(1, 100);
    assert_eq!(idle.response(1).body, b"small");
    let mut frames = running.frames();
    frames.get(1, "/wait");
    gate.wait_for(1);
    running.handle.drain_alone();
    assert_eq!(idle.next().unwrap(), None, "an idle connection stays open");
    gate.open();
    frames.open(1, 100);
    assert_eq!(frames.response(1).body, b"waited");
    assert_eq!(frames.next().unwrap(), None);
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
    let mut frames = running.frames();
    frames.send(1, HEAD, b"POST /receiving HTTP/1.1\r\nHost: a\r\n\r\n");
    frames.get(2, "/large");
    assert_eq!(frames.frame().kind, HEAD);
    frames.get(3, "/f/large.bin");
    assert_eq!(frames.frame().kind, HEAD);
    frames.get(4, "/running");
    gate.wait_for(1);
    frames.get(5, "/waiting");
    running.handle.drain_alone();
    let rest = std::iter::from_fn(|| frames.next().unwrap_or(None));
    let rest: Vec<Frame> = rest.collect();
    assert!(rest.iter().all(|frame| frame.kind == RESET), "{rest:?}");
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
    let mut frames = running.frames();
    let mut check = |stream, path, status, is_cut, body: &str| {
        frames.get(stream, path);
        frames.open(stream, 100);
        let response = frames.response(stream);
        let found = (response.status, response.is_cut, text(&response.body));
        assert_eq!(found, (status, is_cut, body.to_owned()), "{path}");
    };
    check(1, "/silent", 504, false, "504 Gateway Timeout\n");
    check(2, "/begun", 200, true, "begun");
    check(3, "/whole", 200, false, "whole");
    check(4, "/small", 200, false, "small");
    gate.open();
    let records = running.records();
    let end = |target| record_of(&records, target)["end"].as_str().unwrap();
    let ends = ["/silent", "/begun", "/whole", "/small"].map(end);
    assert_eq!(ends, ["timeout", "timeout", "complete", "complete"]);
}
