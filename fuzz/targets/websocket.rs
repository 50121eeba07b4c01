//! Any bytes as a connection's frames, in both roles, with permessage-deflate and without: no panic, the same events and
//! the same fault however they are cut, no more memory than the limit allows, and messages that come back when they are
//! sent again. The same bytes as values of the extensions' field.

#![no_main]

use http::websocket::{
    DeflateContext, DeflateOptions, DeflateSide, Event, Handshake, HandshakeFault, MessageDecoder,
    MessageEncoder, MessageKind, Role, WebSocketFault,
};
use http::{HeadIndex, HeadStep, HeadView, Limits};
use libfuzzer_sys::fuzz_target;

/// A bound that short inputs reach when they are inflated.
const MESSAGE_BYTES_MAX: usize = 4096;
/// A control frame without its last byte.
const LEFT_BYTES_MAX: usize = 2 + 4 + 125 - 1;

/// What came out of a connection.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    events: Vec<(&'static str, Option<u16>, Vec<u8>)>,
    fault: Option<WebSocketFault>,
    left_bytes: usize,
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, input)) = input.split_first() else {
        return;
    };
    let role = [Role::Server, Role::Client][usize::from(choice & 1)];
    let deflate = match choice >> 1 & 3 {
        0 => None,
        1 => Some(DeflateContext::Dropped),
        _ => Some(DeflateContext::Kept),
    };
    let whole = decode(role, deflate, input, input.len().max(1));
    // The size of the last kind of piece is the input's own.
    for piece in [1, 7, usize::from(choice >> 3) + 2] {
        let pieces = decode(role, deflate, input, piece);
        assert_eq!(pieces, whole, "in pieces of {piece}");
    }
    check_round_trip(&whole, choice);
    check_extensions(input);
});

fn decode(role: Role, deflate: Option<DeflateContext>, input: &[u8], piece: usize) -> Outcome {
    let mut decoder = MessageDecoder::new(role, MESSAGE_BYTES_MAX, deflate);
    let (mut pending, mut buffer, mut outcome) = (Vec::new(), Vec::new(), Outcome::default());
    for bytes in input.chunks(piece) {
        pending.extend_from_slice(bytes);
        let mut consumed = 0;
        loop {
            match decoder.decode(&mut pending[consumed..], &mut buffer) {
                Ok(received) => {
                    consumed += received.consumed;
                    match received.event {
                        Some(event) => outcome.events.push(owned(event)),
                        None => break,
                    }
                }
                Err(fault) => {
                    outcome.fault = Some(fault);
                    return outcome;
                }
            }
        }
        assert!(buffer.capacity() <= MESSAGE_BYTES_MAX + 1);
        pending.drain(..consumed);
        assert!(pending.len() <= LEFT_BYTES_MAX);
    }
    outcome.left_bytes = pending.len();
    outcome
}

fn owned(event: Event<'_>) -> (&'static str, Option<u16>, Vec<u8>) {
    match event {
        Event::Text(text) => {
            assert!(str::from_utf8(text).is_ok() && text.len() <= MESSAGE_BYTES_MAX);
            ("text", None, text.to_vec())
        }
        Event::Binary(bytes) => {
            assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            ("binary", None, bytes.to_vec())
        }
        Event::Ping(payload) => ("ping", None, payload.to_vec()),
        Event::Pong(payload) => ("pong", None, payload.to_vec()),
        Event::Close(close) => ("close", close.code, close.reason.as_bytes().to_vec()),
    }
}

/// Sends the messages again, compressed, to the other end.
fn check_round_trip(outcome: &Outcome, choice: u8) {
    let context = [DeflateContext::Kept, DeflateContext::Dropped][usize::from(choice & 1)];
    let side = DeflateSide {
        window_bits: 9 + choice % 7,
        context,
    };
    let mut encoder = MessageEncoder::new(Some(side));
    let mut bytes = Vec::new();
    let is_message = |name: &str| name == "text" || name == "binary";
    let messages = outcome.events.iter().filter(|event| is_message(event.0));
    for (name, _, payload) in messages.clone() {
        let kind = match *name {
            "text" => MessageKind::Text,
            _ => MessageKind::Binary,
        };
        encoder.encode(kind, payload, Some([choice, 1, 2, 3]), &mut bytes);
    }
    let again = decode(Role::Server, Some(context), &bytes, bytes.len().max(1));
    assert!(again.fault.is_none() && again.left_bytes == 0);
    assert!(again.events.iter().eq(messages));
}

/// A handshake whose list of extensions is the input.
fn check_extensions(input: &[u8]) {
    let head = [
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
          Sec-WebSocket-Extensions: ",
        input,
        b"\r\n\r\n",
    ]
    .concat();
    let mut index = HeadIndex::new();
    if index.parse(&head, &mut 0, &Limits::default()) != Ok(HeadStep::Complete) {
        return;
    }
    let view = HeadView {
        bytes: &head,
        index: &index,
    };
    match Handshake::of_upgrade(view) {
        Ok(Some(handshake)) => {
            let agreed = handshake.deflate(&DeflateOptions::default());
            assert!(agreed.is_none_or(|it| (9..=12).contains(&it.server.window_bits)));
        }
        // Line ends of the input's own make further fields.
        Ok(None) => panic!("it asks for an upgrade"),
        Err(fault) => assert!(fault != HandshakeFault::Method),
    }
}
