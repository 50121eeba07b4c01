//! WebSocket messages through the public interface: the examples of RFC 6455 and RFC 7692, a table of what peers do
//! wrong, in the order of Autobahn's sections, every one of them cut at every byte, and messages of both roles sent and
//! received again.

use http::websocket::{
    Closing, ClosingEvent, DeflateContext, DeflateSide, Event, FrameHeader, MessageDecoder,
    MessageEncoder, MessageKind, Opcode, PayloadForm, Role, WebSocketFault, apply_mask,
    write_close, write_control, write_message_header,
};
use proptest::prelude::*;

use DeflateContext::{Dropped, Kept};
use WebSocketFault as Fault;

const LIMIT: usize = 100_000;
/// What may be left in the input for want of more: a control frame without its last byte.
const LEFT_BYTES_MAX: usize = 2 + 4 + 125 - 1;

/// An event that owns its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Got {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Fault(Fault),
}

fn text(text: &str) -> Got {
    Got::Text(text.into())
}

/// How a connection is set up.
#[derive(Clone, Copy, Debug)]
struct Setup {
    role: Role,
    limit: usize,
    deflate: Option<DeflateContext>,
}

const SERVER: Setup = Setup {
    role: Role::Server,
    limit: LIMIT,
    deflate: None,
};
const CLIENT: Setup = Setup {
    role: Role::Client,
    ..SERVER
};
const INFLATING: Setup = Setup {
    deflate: Some(Kept),
    ..CLIENT
};

/// What comes out of `input`, given in pieces that end at `cuts` and at its end.
fn decode(setup: Setup, input: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<Got> {
    let mut decoder = MessageDecoder::new(setup.role, setup.limit, setup.deflate);
    let (mut pending, mut buffer, mut got) = (Vec::new(), Vec::new(), Vec::new());
    let mut given = 0;
    for cut in cuts.into_iter().chain([input.len()]) {
        let cut = cut.clamp(given, input.len());
        pending.extend_from_slice(&input[given..cut]);
        given = cut;
        let mut consumed = 0;
        loop {
            match decoder.decode(&mut pending[consumed..], &mut buffer) {
                Ok(received) => {
                    consumed += received.consumed;
                    match received.event {
                        Some(event) => got.push(owned(event)),
                        None => break,
                    }
                }
                Err(fault) => {
                    got.push(Got::Fault(fault));
                    // What follows is ignored, and no second fault is found.
                    let rest = decoder.decode(&mut pending[consumed..], &mut buffer);
                    assert!(rest.is_ok_and(|rest| rest.event.is_none()));
                    return got;
                }
            }
            assert!(buffer.capacity() <= setup.limit.max(LIMIT) + 1);
        }
        pending.drain(..consumed);
        assert!(pending.len() <= LEFT_BYTES_MAX);
    }
    got
}

fn owned(event: Event<'_>) -> Got {
    match event {
        Event::Text(text) => Got::Text(text.to_vec()),
        Event::Binary(bytes) => Got::Binary(bytes.to_vec()),
        Event::Ping(payload) => Got::Ping(payload.to_vec()),
        Event::Pong(payload) => Got::Pong(payload.to_vec()),
        Event::Close(close) => Got::Close(close.code, close.reason.into()),
    }
}

/// Checks an input as a whole, byte by byte, and cut once at every place; a long one in pieces of a few sizes.
fn check(setup: Setup, input: &[u8], expect: &[Got]) {
    let shown = &input[..input.len().min(64)];
    assert_eq!(decode(setup, input, []), expect, "{shown:02x?}");
    let steps: &[usize] = if input.len() < 2000 {
        &[1]
    } else {
        &[99, 4096]
    };
    for step in steps {
        let cuts = (0..input.len()).step_by(*step);
        assert_eq!(decode(setup, input, cuts), expect, "{shown:02x?}");
    }
    let len = if input.len() < 2000 { input.len() } else { 20 };
    for cut in 0..len {
        assert_eq!(decode(setup, input, [cut]), expect, "{shown:02x?} at {cut}");
    }
}

/// A frame as a server sends it, from its first byte on.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..126 => bytes.push(len as u8),
        len @ 126..0x1_0000 => {
            bytes.push(126);
            bytes.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            bytes.push(127);
            bytes.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// The same frames as a client sends them.
fn masked(frames: &[u8]) -> Vec<u8> {
    let (mut rest, mut out) = (frames, Vec::new());
    let mut key = [0x37, 0xfa, 0x21, 0x3d];
    while let [first, length, ..] = *rest {
        let (bytes, start) = match length & 0x7f {
            126 => (usize::from(u16::from_be_bytes([rest[2], rest[3]])), 4),
            // The upper four bytes are zero but in headers without a payload.
            127 => {
                let lower = [rest[6], rest[7], rest[8], rest[9]];
                (u32::from_be_bytes(lower) as usize, 10)
            }
            length => (usize::from(length), 2),
        };
        out.extend_from_slice(&[first, length | 0x80]);
        out.extend_from_slice(&rest[2..start]);
        out.extend_from_slice(&key);
        let end = rest.len().min(start + bytes);
        let mut payload = rest[start..end].to_vec();
        apply_mask(&mut payload, key);
        out.extend_from_slice(&payload);
        rest = &rest[end..];
        key.rotate_left(1);
    }
    out
}

/// Checks frames in both directions.
fn check_both(frames: &[Vec<u8>], expect: &[Got]) {
    let frames = frames.concat();
    check(CLIENT, &frames, expect);
    check(SERVER, &masked(&frames), expect);
    // Without a compressed message, a negotiated extension changes nothing.
    check(INFLATING, &frames, expect);
}

#[test]
fn decodes_the_examples_of_rfc_6455() {
    check(CLIENT, b"\x81\x05Hello", &[text("Hello")]);
    let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    check(SERVER, masked, &[text("Hello")]);
    check(CLIENT, b"\x01\x03Hel\x80\x02lo", &[text("Hello")]);
    check(CLIENT, b"\x89\x05Hello", &[Got::Ping(b"Hello".into())]);
    let pong = b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    check(SERVER, pong, &[Got::Pong(b"Hello".into())]);
    for (header, len) in [
        (&b"\x82\x7e\x01\x00"[..], 256),
        (b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00", 65_536),
    ] {
        let payload: Vec<u8> = (0..len).map(|at: u32| at as u8).collect();
        let expect = [Got::Binary(payload.clone())];
        check(CLIENT, &[header, &payload].concat(), &expect);
    }
}

#[test]
fn decodes_the_examples_of_rfc_7692() {
    let hello = [text("Hello")];
    // Section 7.2.3.1, in one frame and in two.
    let one = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00";
    check(INFLATING, one, &hello);
    check(
        INFLATING,
        b"\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00",
        &hello,
    );
    // Section 7.2.3.2: by reference to the message before.
    let both = [text("Hello"), text("Hello")];
    let second = b"\xc1\x05\xf2\x00\x11\x00\x00";
    check(INFLATING, &[&one[..], second].concat(), &both);
    let dropped = Setup {
        deflate: Some(Dropped),
        ..INFLATING
    };
    check(dropped, &[&one[..], one].concat(), &both);
    let faulty = [text("Hello"), Got::Fault(Fault::DeflateData)];
    check(dropped, &[&one[..], second].concat(), &faulty);
    // Section 7.2.3.3: a block without compression. Section 7.2.3.4: a final block. Section 7.2.3.5: two blocks.
    check(INFLATING, b"\xc1\x0b\x00\x05\x00\xfa\xffHello\x00", &hello);
    check(
        INFLATING,
        b"\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
        &hello,
    );
    check(
        INFLATING,
        b"\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
        &hello,
    );
    // Section 7.2.3.6: an empty message. Section 6.1: compression is per message.
    check(
        INFLATING,
        b"\xc1\x01\x00\x81\x05Hello",
        &[text(""), text("Hello")],
    );
}

#[test]
fn sections_1_and_9_take_messages_of_every_length() {
    for len in [0, 1, 125, 126, 127, 128, 65_535, 65_536, LIMIT] {
        let payload = vec![b'*'; len];
        check_both(&[frame(0x81, &payload)], &[Got::Text(payload.clone())]);
        check_both(&[frame(0x82, &payload)], &[Got::Binary(payload)]);
    }
    let large = Got::Fault(Fault::MessageTooLarge);
    let too_long = frame(0x82, &vec![0; LIMIT + 1]);
    check_both(
        std::slice::from_ref(&too_long),
        std::slice::from_ref(&large),
    );
    // Refused by its header, and by the sum of its frames.
    check(CLIENT, &too_long[..10], std::slice::from_ref(&large));
    let half = vec![0; LIMIT / 2];
    let halves = [frame(0x02, &half), frame(0x00, &half)];
    let mut frames = halves.to_vec();
    frames.push(frame(0x80, b""));
    check_both(&frames, &[Got::Binary(vec![0; LIMIT])]);
    frames[2] = frame(0x80, b"x");
    check_both(&frames, &[large]);
}

#[test]
fn section_2_gives_pings_and_pongs() {
    let bytes: Vec<u8> = (0..125).collect();
    for payload in [&b""[..], b"Hello", b"\x00\xff\xfe", &bytes] {
        check_both(&[frame(0x89, payload)], &[Got::Ping(payload.into())]);
        check_both(&[frame(0x8a, payload)], &[Got::Pong(payload.into())]);
    }
    let long = [Got::Fault(Fault::ControlTooLong)];
    for opcode in [0x88, 0x89, 0x8a] {
        check_both(&[frame(opcode, &[0; 126])], &long);
        check_both(&[frame(opcode, &[0; 70_000])], &long);
    }
    let ten = vec![frame(0x89, b"p"); 10];
    check_both(&ten, &vec![Got::Ping(b"p".into()); 10]);
}

#[test]
fn sections_3_and_4_refuse_reserved_bits_and_opcodes() {
    let before = frame(0x81, b"ok");
    for opcode in [0x1, 0x2, 0x8, 0x9, 0xa] {
        for bits in 1..8 {
            let bad = frame(0x80 | bits << 4 | opcode, b"");
            let expect = [text("ok"), Got::Fault(Fault::ReservedBit)];
            let frames = [before.clone(), bad].concat();
            check(CLIENT, &frames, &expect);
            check(SERVER, &masked(&frames), &expect);
            if bits != 4 || opcode > 2 {
                check(INFLATING, &frames, &expect);
            }
        }
    }
    for opcode in (0x3..0x8).chain(0xb..0x10) {
        for first in [opcode, opcode | 0x80] {
            let frames = [before.clone(), frame(first, b"")];
            check_both(&frames, &[text("ok"), Got::Fault(Fault::OpcodeUnknown)]);
        }
    }
    // RFC 7692 section 6: the bit belongs to the first frame of a message.
    let continued = b"\x41\x03\xf2\x48\xcd\xc0\x04\xc9\xc9\x07\x00";
    check(INFLATING, continued, &[Got::Fault(Fault::ReservedBit)]);
}

#[test]
fn section_5_joins_fragments_and_refuses_wrong_order() {
    let ping = Got::Ping(b"ping".into());
    let joined = [frame(0x01, b"frag1"), frame(0x80, b"frag2")];
    check_both(&joined, &[text("frag1frag2")]);
    let [first, last] = joined;
    let within = [first.clone(), frame(0x89, b"ping"), last.clone()];
    check_both(&within, &[ping.clone(), text("frag1frag2")]);
    let empty = [frame(0x01, b""), frame(0x00, b""), frame(0x80, b"")];
    check_both(&empty, &[text("")]);

    for opcode in [0x08, 0x09, 0x0a] {
        let fragmented = [frame(opcode, b"a"), frame(0x80, b"b")];
        check_both(&fragmented, &[Got::Fault(Fault::ControlFragmented)]);
    }
    let unexpected = [Got::Fault(Fault::ContinuationUnexpected)];
    for opcode in [0x00, 0x80] {
        check_both(&[frame(opcode, b"a"), frame(0x81, b"b")], &unexpected);
    }
    let after = [first.clone(), last.clone(), last.clone()];
    let expect = [text("frag1frag2"), unexpected[0].clone()];
    check_both(&after, &expect);
    for opcode in [0x01, 0x81, 0x02, 0x82] {
        let twice = [first.clone(), frame(0x89, b"ping"), frame(opcode, b"b")];
        check_both(
            &twice,
            &[ping.clone(), Got::Fault(Fault::ContinuationMissing)],
        );
    }
}

#[test]
fn lengths_are_minimal_and_masks_are_the_clients() {
    let minimal = [Got::Fault(Fault::LengthNotMinimal)];
    for header in [
        &b"\x82\x7e\x00\x00"[..],
        b"\x82\x7e\x00\x7d",
        b"\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff",
    ] {
        check(CLIENT, header, &minimal);
    }
    let top = b"\x82\x7f\x80\x00\x00\x00\x00\x01\x00\x00";
    check(CLIENT, top, &[Got::Fault(Fault::LengthTooLarge)]);
    let huge = b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff";
    check(CLIENT, huge, &[Got::Fault(Fault::MessageTooLarge)]);
    let hello = frame(0x81, b"Hello");
    check(SERVER, &hello, &[Got::Fault(Fault::MaskMissing)]);
    check(CLIENT, &masked(&hello), &[Got::Fault(Fault::MaskForbidden)]);
}

#[test]
fn section_6_checks_utf_8_at_every_fragment() {
    let faulty = Got::Fault(Fault::TextEncoding);
    for valid in [
        "κόσμε",
        "\u{0}",
        "\u{7f}",
        "\u{80}",
        "\u{7ff}",
        "\u{800}",
        "\u{d7ff}",
        "\u{e000}",
        "\u{fffd}",
        "\u{ffff}",
        "\u{10000}",
        "\u{10ffff}",
        "Hello-µ@ßöäüàá-UTF-8!!",
    ] {
        check_both(&[frame(0x81, valid.as_bytes())], &[text(valid)]);
        let fragments: Vec<Vec<u8>> = valid.bytes().map(|byte| frame(0x00, &[byte])).collect();
        let frames = [vec![frame(0x01, b"")], fragments, vec![frame(0x80, b"")]].concat();
        check_both(&frames, &[text(valid)]);
    }
    // Behind each of these the message could still become valid: it is its end that is wrong.
    for cut in [&b"\xce"[..], b"\xe2\x82", b"\xf0\x90\x80", b"a\xf4\x8f\xbf"] {
        check_both(&[frame(0x81, cut)], std::slice::from_ref(&faulty));
        let first = frame(0x01, cut);
        check(CLIENT, &first, &[]);
        check_both(&[first, frame(0x80, b"")], std::slice::from_ref(&faulty));
    }
    // Behind each of these it could not, and nothing more is waited for: the frame announces 20 bytes, of which no more
    // come. Continuation bytes alone, overlong forms, surrogates, beyond U+10FFFF.
    for bad in [
        &b"\x80"[..],
        b"\xbf",
        b"\xc0",
        b"\xc1",
        b"\xf5",
        b"\xfe",
        b"\xff",
        b"\xe0\x80",
        b"\xe0\x9f",
        b"\xf0\x80",
        b"\xf0\x8f",
        b"\xf4\x90",
        b"\xed\xa0",
        b"\xed\xbf",
        b"\xc2\x00",
        b"\xe2\x82\x28",
        b"\xce\xba\xed\xa0\x80",
        b"\xf0\x90\x80\x00",
        b"abc\xfcdef",
    ] {
        let input = [b"\x81\x14", bad].concat();
        check(CLIENT, &input, std::slice::from_ref(&faulty));
        let fragmented = [
            frame(0x01, &bad[..1]),
            b"\x00\x14".to_vec(),
            bad[1..].to_vec(),
        ]
        .concat();
        check(CLIENT, &fragmented, std::slice::from_ref(&faulty));
        check_both(&[frame(0x82, bad)], &[Got::Binary(bad.into())]);
    }
}

#[test]
fn section_7_checks_close_frames_and_ignores_the_rest() {
    let close = |code: u16, reason: &[u8]| frame(0x88, &[&code.to_be_bytes(), reason].concat());
    check_both(&[frame(0x88, b"")], &[Got::Close(None, String::new())]);
    let expect = |code: u16, reason: &str| [Got::Close(Some(code), reason.into())];
    let longest = "*".repeat(123);
    for reason in ["", "bye", "κόσμε", &longest] {
        check_both(&[close(1000, reason.as_bytes())], &expect(1000, reason));
    }
    for code in 0..=u16::MAX {
        let is_valid = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
        let got = decode(CLIENT, &close(code, b""), []);
        match is_valid {
            true => assert_eq!(got, expect(code, "")),
            false => assert_eq!(got, [Got::Fault(Fault::CloseCode)]),
        }
    }
    check_both(&[frame(0x88, b"\x03")], &[Got::Fault(Fault::CloseLength)]);
    let long = close(1000, &[b'*'; 124]);
    check_both(&[long], &[Got::Fault(Fault::ControlTooLong)]);
    let faulty = [Got::Fault(Fault::CloseReasonEncoding)];
    check_both(
        &[close(
            1000,
            b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80",
        )],
        &faulty,
    );
    check_both(&[close(1000, b"\xe2\x82")], &faulty);
    for after in [
        frame(0x81, b"x"),
        frame(0x89, b"x"),
        close(1001, b""),
        frame(0xff, b""),
    ] {
        check_both(&[close(1000, b""), after.clone()], &expect(1000, ""));
        let within = [frame(0x01, b"x"), close(1000, b""), after];
        check_both(&within, &expect(1000, ""));
    }
}

#[test]
fn inflated_bytes_count_against_the_limit() {
    let setup = |limit| Setup { limit, ..INFLATING };
    for kind in [MessageKind::Text, MessageKind::Binary] {
        let mut bomb = Vec::new();
        let side = DeflateSide {
            window_bits: 15,
            context: Dropped,
        };
        let zeros = vec![0; 10_000_000];
        MessageEncoder::new(Some(side)).encode(kind, &zeros, None, &mut bomb);
        assert!(bomb.len() < 20_000);
        for limit in [0, 1, 1000, 65_536, 9_999_999] {
            let got = decode(setup(limit), &bomb, (0..bomb.len()).step_by(97));
            assert_eq!(got, [Got::Fault(Fault::MessageTooLarge)]);
            assert_eq!(decode(setup(limit), &bomb, []), got);
        }
        let expect = match kind {
            MessageKind::Text => Got::Text(zeros),
            MessageKind::Binary => Got::Binary(zeros),
        };
        assert_eq!(decode(setup(10_000_000), &bomb, []), [expect]);
    }
    // Empty blocks inflate to nothing, however many they are.
    let blocks = [0x00, 0x00, 0x00, 0xff, 0xff].repeat(10_000);
    check(setup(0), &frame(0xc1, &blocks), &[text("")]);
    let finals = [0x03, 0x00].repeat(30_000);
    check(setup(0), &frame(0xc1, &finals), &[text("")]);
}

#[test]
fn inflated_text_and_data_are_checked_as_they_come() {
    let deflated = |payload: &[u8]| {
        let mut out = Vec::new();
        let side = DeflateSide {
            window_bits: 15,
            context: Dropped,
        };
        let mut encoder = MessageEncoder::new(Some(side));
        encoder.encode(MessageKind::Text, payload, None, &mut out);
        assert_eq!(out[0], 0xc1);
        out
    };
    let faulty = [Got::Fault(Fault::TextEncoding)];
    let mut payload = "κόσμε ".repeat(100).into_bytes();
    check(
        INFLATING,
        &deflated(&payload),
        &[Got::Text(payload.clone())],
    );
    payload.push(0xce);
    check(INFLATING, &deflated(&payload), &faulty);
    payload[300] = 0xff;
    check(INFLATING, &deflated(&payload), &faulty);
    // Two bad things, of which the first counts however the bytes are cut: bad text, then bad data, then too much.
    let stored = |text: &[u8]| {
        [
            &[0x00, text.len() as u8, 0, !(text.len() as u8), 0xff],
            text,
        ]
        .concat()
    };
    let bad_data = frame(0xc1, &[stored(b"abc"), vec![0x07]].concat());
    check(INFLATING, &bad_data, &[Got::Fault(Fault::DeflateData)]);
    let both = frame(0xc1, &[stored(b"ab\xff"), vec![0x07]].concat());
    check(INFLATING, &both, &faulty);
    let tight = Setup {
        limit: 3,
        ..INFLATING
    };
    check(tight, &both, &faulty);
    check(tight, &bad_data, &[Got::Fault(Fault::DeflateData)]);
    let large = [Got::Fault(Fault::MessageTooLarge)];
    check(
        tight,
        &frame(0xc1, &[stored(b"abcd"), vec![0x07]].concat()),
        &large,
    );
    check(tight, &frame(0xc1, &stored(b"abcd\xff")), &large);
    check(tight, &frame(0xc1, &stored(b"abc\xff")), &faulty);
}

#[test]
fn sections_12_and_13_compress_messages_of_every_length() {
    let pattern = b"{\"id\": 17, \"name\": \"value\", \"list\": [1, 2, 3]}, ";
    for window_bits in [9, 12, 15] {
        for context in [Kept, Dropped] {
            let side = DeflateSide {
                window_bits,
                context,
            };
            let mut encoder = MessageEncoder::new(Some(side));
            let (mut bytes, mut expect) = (Vec::new(), Vec::new());
            for len in [
                0, 16, 127, 128, 256, 1024, 4096, 8192, 32_768, 65_536, LIMIT,
            ] {
                let payload: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
                let start = bytes.len();
                encoder.encode(MessageKind::Text, &payload, None, &mut bytes);
                assert_eq!(encoder.is_compressed(len), bytes[start] & 0x40 != 0);
                assert_eq!(encoder.is_compressed(len), len >= 128);
                let sent = bytes.len() - start;
                assert!(len < 128 || sent < len, "{sent} bytes for {len}");
                expect.push(Got::Text(payload));
            }
            let setup = Setup {
                deflate: Some(context),
                ..CLIENT
            };
            for pieces in [7, 1000, 1_000_000] {
                let cuts = (0..bytes.len()).step_by(pieces);
                assert!(
                    decode(setup, &bytes, cuts) == expect,
                    "{side:?} by {pieces}"
                );
            }
        }
    }
}

#[test]
fn a_kept_context_shortens_later_messages() {
    let message: Vec<u8> = (0..300u32).flat_map(|at| (at * at).to_le_bytes()).collect();
    let lengths = |context| {
        let side = DeflateSide {
            window_bits: 12,
            context,
        };
        let mut encoder = MessageEncoder::new(Some(side));
        [(); 2].map(|()| {
            let mut out = Vec::new();
            encoder.encode(MessageKind::Binary, &message, None, &mut out);
            out.len()
        })
    };
    let [first, second] = lengths(Kept);
    assert!(second * 10 < first, "{first} and {second}");
    assert_eq!(lengths(Dropped), [first, first]);
}

#[test]
fn a_closing_handshake_ends_both_ends() {
    let mut ends = [(Role::Server, Closing::Open), (Role::Client, Closing::Open)];
    let mut bytes = Vec::new();
    write_close(Some(1012), "again", None, &mut bytes).unwrap();
    ends[0].1 = ends[0].1.step(ClosingEvent::Sent(Opcode::Close)).unwrap();
    for (setup, own, peer) in [(CLIENT, 1, 0), (SERVER, 0, 1)] {
        let got = decode(setup, &bytes, []);
        let [Got::Close(code, _)] = got[..] else {
            panic!("{got:?}")
        };
        ends[own].1 = ends[own].1.step(ClosingEvent::Received(code)).unwrap();
        if own == 1 {
            bytes.clear();
            write_close(ends[own].1.answer(), "", Some([1, 2, 3, 4]), &mut bytes).unwrap();
            ends[own].1 = ends[own].1.step(ClosingEvent::Sent(Opcode::Close)).unwrap();
        }
        assert_eq!(ends[own].1, Closing::Closed { code: Some(1012) });
        assert_ne!(ends[own].0, ends[peer].0);
    }
}

/// What one end sends.
#[derive(Clone, Debug)]
enum Sent {
    Message(MessageKind, Vec<u8>),
    /// In frames of so many bytes.
    Fragments(Vec<u8>, usize),
    Control(Opcode, Vec<u8>),
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        // Compressible, and longer than the smallest window.
        (proptest::collection::vec(0u8..4, 1..200), 1usize..20)
            .prop_map(|(part, times)| part.repeat(times)),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        payload().prop_map(|bytes| Sent::Message(MessageKind::Binary, bytes)),
        ".{0,200}".prop_map(|text| Sent::Message(MessageKind::Text, text.into_bytes())),
        (payload(), 1usize..100).prop_map(|(bytes, size)| Sent::Fragments(bytes, size)),
        (0usize..2, proptest::collection::vec(any::<u8>(), 0..126))
            .prop_map(|(which, bytes)| Sent::Control([Opcode::Ping, Opcode::Pong][which], bytes)),
    ]
}

/// Appends the frames of `sent`, and gives what the other end gets.
fn encode(
    sent: &Sent,
    encoder: &mut MessageEncoder,
    mask: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) -> Vec<Got> {
    match sent {
        Sent::Message(kind, payload) => {
            let start = out.len();
            encoder.encode(*kind, payload, mask, out);
            if !encoder.is_compressed(payload.len()) {
                let mut header = Vec::new();
                write_message_header(*kind, payload.len(), mask, &mut header);
                assert!(out[start..].starts_with(&header));
            }
            vec![match kind {
                MessageKind::Text => Got::Text(payload.clone()),
                MessageKind::Binary => Got::Binary(payload.clone()),
            }]
        }
        Sent::Fragments(payload, size) => {
            let len = payload.chunks(*size).len();
            for (at, part) in payload.chunks(*size).enumerate() {
                let header = FrameHeader {
                    opcode: if at == 0 {
                        Opcode::Binary
                    } else {
                        Opcode::Continuation
                    },
                    is_final: at + 1 == len,
                    form: PayloadForm::Plain,
                    mask,
                    payload_bytes: part.len() as u64,
                };
                header.write(out);
                let start = out.len();
                out.extend_from_slice(part);
                apply_mask(&mut out[start..], mask.unwrap_or_default());
                if at + 1 < len {
                    write_control(Opcode::Ping, b"between", mask, out);
                }
            }
            let pings = len.saturating_sub(1);
            let mut got = vec![Got::Ping(b"between".into()); pings];
            if len > 0 {
                got.push(Got::Binary(payload.clone()));
            }
            got
        }
        Sent::Control(opcode, payload) => {
            write_control(*opcode, payload, mask, out);
            vec![match opcode {
                Opcode::Ping => Got::Ping(payload.clone()),
                _ => Got::Pong(payload.clone()),
            }]
        }
    }
}

proptest! {
    #[test]
    fn what_is_sent_is_received(
        all in proptest::collection::vec(sent(), 0..12),
        is_client in any::<bool>(),
        key in any::<[u8; 4]>(),
        deflate in proptest::option::of((9u8..16, any::<bool>())),
        mut cuts in proptest::collection::vec(0usize..4000, 0..40),
        code in proptest::sample::select(vec![1000u16, 1001, 1012, 3000, 4999]),
        reason in ".{0,60}",
    ) {
        let side = deflate.map(|(window_bits, is_kept)| DeflateSide {
            window_bits,
            context: if is_kept { Kept } else { Dropped },
        });
        let mut encoder = MessageEncoder::new(side);
        let (mut bytes, mut expect) = (Vec::new(), Vec::new());
        let mask = is_client.then_some(key);
        for one in &all {
            expect.extend(encode(one, &mut encoder, mask, &mut bytes));
        }
        write_close(Some(code), &reason, mask, &mut bytes).unwrap();
        let setup = Setup {
            role: if is_client { Role::Server } else { Role::Client },
            limit: LIMIT,
            deflate: side.map(|side| side.context),
        };
        cuts.sort_unstable();
        let mut got = decode(setup, &bytes, cuts);
        let Some(Got::Close(Some(closed), said)) = got.pop() else {
            return Err(TestCaseError::fail("no close frame"));
        };
        prop_assert!(closed == code && reason.starts_with(&said));
        prop_assert!(said == reason || said.len() > 123 - 4);
        prop_assert_eq!(&got, &expect);
        let mut whole = decode(setup, &bytes, []);
        whole.pop();
        prop_assert_eq!(&whole, &expect);
    }

    #[test]
    fn any_bytes_are_the_same_in_pieces(
        input in proptest::collection::vec(prop_oneof![any::<u8>(), 0x80u8..0x84, 0xc1u8..0xc3, 0u8..10], 0..300),
        mut cuts in proptest::collection::vec(0usize..300, 0..20),
        limit in 0usize..200,
        is_client in any::<bool>(),
    ) {
        cuts.sort_unstable();
        let setup = Setup {
            role: if is_client { Role::Client } else { Role::Server },
            limit,
            deflate: Some(Kept),
        };
        prop_assert_eq!(decode(setup, &input, cuts), decode(setup, &input, []));
    }
}
