//! Any bytes as a chunked body: no panic, the same payload and end however they are cut, nothing read past
//! the end, and encoding the payload again decodes to the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use http::{BodyDecoder, BodyFraming, CHUNK_SUFFIX, Cause, LAST_CHUNK, Limits, chunk_prefix};

/// Bounds that short inputs reach.
const LIMITS: Limits = Limits {
    head_bytes_max: 200,
    target_bytes_max: 30,
    header_bytes_max: 40,
    headers_len_max: 4,
    chunk_line_bytes_max: 24,
    trailer_bytes_max: 32,
    body_bytes_max: 300,
};

/// What came out of a body.
#[derive(Debug, PartialEq)]
struct Outcome {
    payload: Vec<u8>,
    consumed: usize,
    done: bool,
    cause: Option<Cause>,
}

fuzz_target!(|input: &[u8]| {
    let whole = decode(input, input.len().max(1));
    for piece in [1, 3] {
        assert_eq!(decode(input, piece), whole, "in pieces of {piece}");
    }
    assert!(whole.payload.len() as u64 <= LIMITS.body_bytes_max);
    if whole.done {
        let body = &input[..whole.consumed];
        assert!(body.ends_with(b"\r\n"));
        assert_eq!(
            decode(body, body.len()),
            whole,
            "what follows the end matters"
        );
    }
    check_round_trip(&whole.payload);
});

fn decode(input: &[u8], piece: usize) -> Outcome {
    let mut decoder =
        BodyDecoder::new(BodyFraming::Chunked, &LIMITS).expect("no length is declared");
    let mut outcome = Outcome {
        payload: Vec::new(),
        consumed: 0,
        done: false,
        cause: None,
    };
    let mut given = 0;
    while given < input.len() && outcome.cause.is_none() {
        given = (given + piece).min(input.len());
        feed(&mut decoder, &input[..given], &mut outcome);
    }
    outcome.done = decoder.is_done();
    if outcome.cause.is_some() {
        // How many bytes before the bad one a call has taken depends on the cut, and nobody asks.
        outcome.consumed = 0;
    }
    assert_eq!(decoder.bytes_out(), outcome.payload.len() as u64);
    outcome
}

fn feed(decoder: &mut BodyDecoder, input: &[u8], outcome: &mut Outcome) {
    loop {
        let rest = &input[outcome.consumed..];
        match decoder.decode(rest) {
            Ok(decoded) => {
                assert!(decoded.data.end <= decoded.consumed && decoded.consumed <= rest.len());
                outcome.payload.extend_from_slice(&rest[decoded.data]);
                outcome.consumed += decoded.consumed;
                if decoded.consumed == 0 {
                    assert!(decoder.is_done() || rest.is_empty());
                    return;
                }
            }
            Err(refusal) => {
                outcome.cause = Some(refusal.cause);
                return;
            }
        }
    }
}

fn check_round_trip(payload: &[u8]) {
    let mut body = Vec::new();
    for piece in payload.chunks(17) {
        body.extend_from_slice(chunk_prefix(piece.len()).as_bytes());
        body.extend_from_slice(piece);
        body.extend_from_slice(CHUNK_SUFFIX);
    }
    body.extend_from_slice(LAST_CHUNK);
    let again = decode(&body, body.len());
    assert_eq!(again.payload, payload);
    assert!(again.done && again.consumed == body.len());
}
