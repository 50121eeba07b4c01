//! Frames as they are sent.

use super::*;

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

#[test]
fn encodes_the_examples_of_rfc_6455() {
    let mut encoder = MessageEncoder::new(None);
    let mut out = Vec::new();
    encoder.encode(MessageKind::Text, b"Hello", None, &mut out);
    encoder.encode(MessageKind::Text, b"Hello", Some(KEY), &mut out);
    write_control(Opcode::Ping, b"Hello", None, &mut out);
    write_control(Opcode::Pong, b"Hello", Some(KEY), &mut out);
    let expect = [
        &b"\x81\x05Hello"[..],
        b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58",
        b"\x89\x05Hello",
        b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58",
    ];
    assert_eq!(out, expect.concat());
}

#[test]
fn compresses_from_128_bytes_on() {
    let side = DeflateSide {
        window_bits: 12,
        context: super::super::DeflateContext::Kept,
    };
    let mut encoder = MessageEncoder::new(Some(side));
    for (len, first, sent) in [(127, 0x82, 4 + 127), (128, 0xc2, 2 + 8)] {
        let mut out = b"before".to_vec();
        encoder.encode(MessageKind::Binary, &vec![7; len], None, &mut out);
        assert_eq!(&out[..7], [b"before", &[first][..]].concat());
        assert!(out.len() <= 6 + sent, "{len}");
    }
}

#[test]
fn close_frames_carry_valid_codes_and_whole_characters() {
    let check = |code: Option<u16>, reason: &str, expect: Result<&[u8], u16>| {
        let mut out = Vec::new();
        let written = write_close(code, reason, None, &mut out);
        assert_eq!(written, expect.map(|_| ()).map_err(InvalidCloseCode));
        assert_eq!(out, expect.unwrap_or_default());
    };
    check(None, "not sent", Ok(b"\x88\x00"));
    check(Some(1000), "", Ok(b"\x88\x02\x03\xe8"));
    check(Some(4999), "bye", Ok(b"\x88\x05\x13\x87bye"));
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
        check(Some(code), "", Err(code));
    }
    let long = format!("{}µ", "x".repeat(122));
    let mut out = Vec::new();
    write_close(Some(1000), &long, None, &mut out).unwrap();
    assert_eq!(out[..4], *b"\x88\x7c\x03\xe8");
    assert_eq!(&out[4..], "x".repeat(122).as_bytes());
}

#[test]
#[should_panic(expected = "messages have an encoder")]
fn control_frames_are_no_messages() {
    write_control(Opcode::Text, b"", None, &mut Vec::new());
}
