//! What only frames of a client's own can do: floods, refusals, and heads that are none.

use telemetry::Nanos;

use super::http2::{DATA, Frame, RST_STREAM, frame, raw_get, raw_post, settings_ack};
use super::support::*;
use super::ways::*;

const UNKNOWN_KIND: u8 = 0x42;
/// Frames that the server takes in one turn.
const FRAMES_A_TURN: usize = 256;

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
