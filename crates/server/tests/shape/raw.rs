//! What only frames of a client's own can do: floods, refusals, and heads that are none.

use serde_json::{Value, json};
use telemetry::Nanos;

use super::http2::{
    DATA, END_STREAM, Frame, GOAWAY, PING, RST_STREAM, frame, raw_get, raw_post, settings_ack,
    window_update,
};
use super::support::*;
use super::ways::*;

const REFUSED_STREAM: u8 = 7;
const UNKNOWN_KIND: u8 = 0x42;
/// Frames that the server takes in one turn.
const FRAMES_A_TURN: usize = 256;

fn status(running: &Running, key: &str) -> u64 {
    let page = text(&running.get("/-/status"));
    let (_, rest) = page.split_once(&format!("\"{key}\":")).unwrap();
    let digits = rest.split(|digit: char| !digit.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

fn resets(frames: &[Frame]) -> usize {
    let reset = |frame: &&Frame| frame.kind == RST_STREAM;
    frames.iter().filter(reset).count()
}

#[test]
fn data_of_reset_streams_takes_nothing_of_the_connections_window() {
    let running = open(echo, |config| {
        // A head that fills the output, and that no table of the header compression has room for.
        config.headers.server = "Z".repeat(5_000);
        config.limits.body_bytes_max = 10;
        config.timeouts.send = Nanos::from_ms(5_000);
    });
    running.get("/f/large.bin");
    let mut client = running.raw_http2();
    client.send(&settings_ack());
    // One turn refuses all of these requests, and writes less than their responses have: heads go first. The next
    // turn finds them reset.
    let streams = (0..64).map(|at| 1 + 2 * at);
    let posts = streams
        .clone()
        .flat_map(|stream| raw_post(stream, &[7; 11]));
    let others = (0..FRAMES_A_TURN).flat_map(|_| frame(UNKNOWN_KIND, 0, 0, &[]));
    let cancel = |stream| frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    let frames: Vec<u8> = posts
        .chain(others)
        .chain(streams.flat_map(cancel))
        .collect();
    client.send(&frames);
    client.send(&raw_get(999, "/f/large.bin", &[]));
    let data_bytes = |frames: &[Frame]| -> usize {
        let data = frames.iter().filter(|frame| frame.kind == DATA);
        data.map(|frame| frame.payload.len()).sum()
    };
    let frames = client.frames(|frames| data_bytes(frames) == 65_535);
    assert_eq!(data_bytes(frames), 65_535);
}

#[test]
fn a_client_is_not_charged_for_a_limit_that_it_does_not_know() {
    let gate = Gate::default();
    let running = open(gate.handler(), |config| config.http2.streams_max = 1);
    let gets = |streams: std::ops::Range<u32>| -> Vec<u8> {
        let get = |stream| raw_get(1 + 2 * stream, "/wait", &[]);
        streams.flat_map(get).collect()
    };
    let mut client = running.raw_http2();
    client.send(&gets(0..251));
    let frames = client.frames(|frames| resets(frames) == 250);
    for reset in frames.iter().filter(|frame| frame.kind == RST_STREAM) {
        assert_eq!(reset.payload, [0, 0, 0, REFUSED_STREAM]);
    }
    assert!(!frames.iter().any(|frame| frame.kind == GOAWAY));
    assert_eq!(status(&running, "http2_resets"), 0);
    client.send(&settings_ack());
    client.send(&gets(251..500));
    let frames = client.frames(|_| false);
    assert!(
        frames.iter().any(|frame| frame.kind == GOAWAY),
        "{frames:?}"
    );
    assert_eq!(status(&running, "http2_floods"), 1);
    gate.open();
    let records = running.records();
    let refused = |record: &&Value| record["reset_code"] == REFUSED_STREAM;
    assert!(records.iter().filter(refused).count() >= 250);
}

#[test]
fn a_head_that_is_refused_before_it_is_a_request_is_one_record() {
    let running = open(echo, |config| {
        config.limits.head_bytes_max = 2_000;
        config.limits.headers_len_max = 4;
    });
    let mut client = running.raw_http2();
    client.send(&settings_ack());
    let long = [&[0, 1, b'x', 0x7f, 0xa1, 0x25][..], &[b'y'; 4_896]].concat();
    let check = |client: &mut super::http2::Wire, stream, rest: &[u8]| {
        client.send(&raw_get(stream, "/", rest));
        let ends = |frame: &Frame| frame.kind == RST_STREAM || frame.flags & END_STREAM != 0;
        client.frames(|frames| {
            let mut of_stream = frames.iter().filter(|frame| frame.stream == stream);
            of_stream.any(ends)
        });
    };
    // Two methods, two lengths, a list that is too large.
    check(&mut client, 1, &[0x82]);
    check(&mut client, 3, &[0x0f, 0x0d, 1, b'1', 0x0f, 0x0d, 1, b'2']);
    check(&mut client, 5, &long);
    check(&mut client, 7, &[]);
    // A name in upper case ends the connection.
    client.send(&raw_get(9, "/", &[0, 1, b'X', 1, b'y']));
    client.frames(|_| false);
    let records = running.records();
    let facts = ["stream", "status", "end", "reset_by", "reset_code"];
    let found: Vec<_> = records
        .iter()
        .map(|record| json!(facts.map(|fact| record[fact].clone())))
        .collect();
    let expected = [
        json!([1, 0, "refused", "server", 1]),
        json!([3, 0, "refused", "server", 1]),
        json!([5, 431, "refused", null, null]),
        json!([7, 200, "complete", null, null]),
        json!([9, 0, "refused", "server", 1]),
    ];
    assert_eq!(found, expected, "{records:#?}");
    records.iter().for_each(check_phases);
}

#[test]
fn heads_that_wait_for_a_place_when_their_client_leaves_are_records() {
    let gate = Gate::default();
    let running = open(gate.handler(), |config| config.http2.streams_max = 100);
    let mut client = running.raw_http2();
    client.send(&settings_ack());
    let gets = (0..100).flat_map(|at| raw_get(1 + 2 * at, "/wait", &[]));
    // Answered when all heads have been read.
    let ping = frame(PING, 0, 0, &[0; 8]);
    client.send(&gets.chain(ping).collect::<Vec<u8>>());
    client.frames(|frames| frames.iter().any(|frame| frame.kind == PING));
    drop(client);
    gate.open();
    let records = running.records();
    assert_eq!(records.len(), 100);
}

/// Frames that clients send, in any order, and some that none sends.
fn any_frames(random: &mut Random) -> Vec<u8> {
    let mut next_stream = 1;
    let mut bytes = Vec::new();
    for _ in 0..random.below(60) {
        let stream = random.below(16);
        let number = u32::to_be_bytes(random.below(1 << 20));
        let data = vec![7; random.below(3_000) as usize];
        let some = &data[..data.len() / 50];
        let flags = random.below(256) as u8;
        let mut head = || {
            next_stream += 2;
            next_stream - 2
        };
        bytes.extend(match random.below(14) {
            0 | 1 => raw_get(head(), "/f/large.bin", &[]),
            2 => raw_get(head(), "/wherever", some),
            3 => raw_post(head(), &data),
            4 => raw_post(head(), &data)[..15].to_vec(),
            5 => frame(DATA, flags & 1, stream, &data),
            6 => frame(RST_STREAM, 0, stream, &number),
            7 => window_update(stream, random.below(1 << 20)),
            8 => settings_ack(),
            9 => frame(
                4,
                0,
                0,
                &[&[0, random.below(10) as u8], &number[..]].concat(),
            ),
            10 => frame(6, flags & 1, 0, &[1; 8]),
            11 => frame(16, 0, 0, &[&stream.to_be_bytes()[..], b"u=1, i"].concat()),
            12 => frame(random.below(20) as u8, flags, stream, some),
            _ => frame(9, flags & 4, stream, some),
        });
    }
    bytes
}

#[test]
fn frames_in_any_order_cost_their_connection_alone() {
    let seed = telemetry::now().0;
    eprintln!("seed {seed}");
    let mut random = Random(seed);
    let running = open(echo, |config| config.http2.streams_max = 8);
    for _ in 0..200 {
        let client = running
            .handle
            .connect_in_memory(1 + random.below(9_000) as usize);
        let mut client = super::http2::Wire::raw(client);
        let bytes = any_frames(&mut random);
        client.send(&bytes);
        client.close();
        client.frames(|_| false);
    }
    let small = running.ask_by(
        Way::Http2(BUFFER_BYTES),
        &Request::new("GET /f/small.txt", ""),
    );
    assert_eq!(small.body, pattern(1_000));
    let streams = status(&running, "http2_streams");
    let records = running.records();
    let numbered = records.iter().filter(|record| !record["stream"].is_null());
    assert!(numbered.count() as u64 >= streams);
    records.iter().for_each(check_phases);
}

/// Numbers drawn by a seed (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }
}
