//! Headers there and back, and masks against the definition.

use super::*;

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

fn header(opcode: Opcode, mask: Option<[u8; 4]>, payload_bytes: u64) -> FrameHeader {
    FrameHeader {
        opcode,
        is_final: true,
        form: PayloadForm::Plain,
        mask,
        payload_bytes,
    }
}

fn written(header: FrameHeader) -> Vec<u8> {
    let mut out = Vec::new();
    header.write(&mut out);
    out
}

#[test]
fn encodes_lengths_in_their_shortest_form() {
    for (payload_bytes, expect) in [
        (0, &[0x82, 0][..]),
        (125, &[0x82, 125]),
        (126, &[0x82, 126, 0, 126]),
        (0xffff, &[0x82, 126, 0xff, 0xff]),
        (0x1_0000, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        (
            i64::MAX as u64,
            &[0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ),
    ] {
        assert_eq!(written(header(Opcode::Binary, None, payload_bytes)), expect);
    }
    let masked = written(header(Opcode::Text, Some(KEY), 5));
    assert_eq!(masked, [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d]);
}

#[test]
fn reads_what_it_has_encoded_and_nothing_less() {
    use Opcode::{Binary, Close, Continuation, Ping, Pong, Text};
    for opcode in [Continuation, Text, Binary, Close, Ping, Pong] {
        for (role, mask) in [(Role::Client, None), (Role::Server, Some(KEY))] {
            for payload_bytes in [0, 1, 125, 126, 127, 65_535, 65_536, i64::MAX as u64] {
                if opcode.is_control() && payload_bytes > 125 {
                    continue;
                }
                let expect = header(opcode, mask, payload_bytes);
                let bytes = written(expect);
                let start = FrameHeader::begin(bytes[0]).unwrap();
                for cut in 1..bytes.len() {
                    assert_eq!(start.complete(&bytes[..cut], role), Ok(None));
                }
                let got = start.complete(&bytes, role);
                assert_eq!(got, Ok(Some((expect, bytes.len()))));
            }
        }
    }
}

#[test]
#[should_panic(expected = "a control frame is final, plain and short")]
fn encodes_no_long_control_frame() {
    written(header(Opcode::Ping, None, 126));
}

#[test]
fn masks_words_as_single_bytes() {
    for len in 0..40 {
        let payload: Vec<u8> = (0..len).map(|at: u8| at.wrapping_mul(7)).collect();
        let mut masked = payload.clone();
        apply_mask(&mut masked, KEY);
        // RFC 6455 section 5.3.
        let expect = payload.iter().zip(0..).map(|(byte, at)| byte ^ KEY[at % 4]);
        assert!(masked.iter().copied().eq(expect));
        apply_mask(&mut masked, KEY);
        assert_eq!(masked, payload);
    }
}
