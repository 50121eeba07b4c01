//! Decoded fields of HTTP/2: whatever HPACK gives, either the judge refuses it or it is one head of HTTP/1.

#![no_main]

use http::{BodyState, HeadIndex, HeadStep, Limits, check_trailers};
use libfuzzer_sys::fuzz_target;

/// Between a name and its value, and between two fields.
const SEPARATOR: u8 = 0xff;

fuzz_target!(|data: &[u8]| {
    let (is_open, data) = match data {
        [first, rest @ ..] => (first & 1 == 1, rest),
        [] => (false, data),
    };
    let pieces: Vec<&[u8]> = data.split(|byte| *byte == SEPARATOR).collect();
    let fields: Vec<(&[u8], &[u8])> = pieces.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let body = if is_open { BodyState::Open } else { BodyState::Ended };
    let limits = Limits::default();
    let _ = check_trailers(fields.iter().copied(), &limits);
    let (mut index, mut block) = (HeadIndex::new(), Vec::new());
    let judged = index.parse_decoded(|| fields.iter().copied(), body, &limits, &mut block);
    if judged.is_err() {
        return;
    }
    // One head, with no more fields than were given, and the Host that the authority is.
    let mut again = HeadIndex::new();
    assert_eq!(again.parse(&block, &mut 0, &limits), Ok(HeadStep::Complete));
    assert_eq!(again.bytes, block.len());
    assert_eq!(again.headers, index.headers);
    assert!(index.headers.len() <= fields.len());
    assert!(block.len() <= limits.head_bytes_max);
});
