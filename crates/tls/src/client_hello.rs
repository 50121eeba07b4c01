//! Whether a ClientHello is whole, by the lengths in front of its parts: no byte of it is understood here, and nothing is
//! kept, so that a client which sends it byte by byte costs a few comparisons a byte.

/// A record of a handshake (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;
const RECORD_HEADER_BYTES: usize = 5;
const MESSAGE_HEADER_BYTES: usize = 4;

/// What can be done with the bytes of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeInput {
    /// Nothing: more bytes are needed.
    Partial,
    /// A step: the ClientHello is whole, or something is there that rustls will refuse.
    Ready,
    /// These bytes begin no TLS connection.
    NotTls,
}

/// Whether a connection that begins so is one of TLS, as far as two bytes tell.
pub fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [HANDSHAKE, 3, ..])
}

/// Looks at the first bytes of a connection.
pub(crate) fn examine(bytes: &[u8]) -> HandshakeInput {
    match bytes {
        [] | [HANDSHAKE] => return HandshakeInput::Partial,
        // The version of a record is 3.x since SSL 3.0.
        [HANDSHAKE, 3, ..] => {}
        _ => return HandshakeInput::NotTls,
    }
    let mut rest = bytes;
    let mut header = [0; MESSAGE_HEADER_BYTES];
    let mut message_bytes = 0;
    while let [kind, _, _, high, low, ..] = *rest {
        if kind != HANDSHAKE {
            return HandshakeInput::Ready;
        }
        let bytes = usize::from(u16::from_be_bytes([high, low]));
        let payload = &rest[RECORD_HEADER_BYTES..];
        let payload = &payload[..bytes.min(payload.len())];
        for (at, byte) in header.iter_mut().skip(message_bytes).zip(payload) {
            *at = *byte;
        }
        message_bytes += payload.len();
        if message_bytes >= MESSAGE_HEADER_BYTES {
            let [_, high, middle, low] = header;
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            if message_bytes >= MESSAGE_HEADER_BYTES + length {
                return HandshakeInput::Ready;
            }
        }
        if payload.len() < bytes {
            break;
        }
        rest = &rest[RECORD_HEADER_BYTES + bytes..];
    }
    HandshakeInput::Partial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_hello_by_its_lengths() {
        use HandshakeInput::{NotTls, Partial, Ready};
        let check = |bytes: &[u8], expect| {
            assert_eq!(examine(bytes), expect, "{bytes:?}");
        };
        check(b"", Partial);
        check(b"\x16", Partial);
        check(b"GET / HTTP/1.1\r\n", NotTls);
        check(b"\x16\x02", NotTls);
        check(b"\x80\x2e\x01\x03", NotTls);
        let whole = b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03";
        for len in 1..whole.len() {
            check(&whole[..len], Partial);
        }
        check(whole, Ready);
        // Over two records, whose border lies within the header of the message.
        let split = b"\x16\x03\x01\x00\x02\x01\x00\x16\x03\x01\x00\x04\x00\x02\x03\x03";
        for len in 1..split.len() {
            check(&split[..len], Partial);
        }
        check(split, Ready);
        // Records without content, and another kind of record.
        check(b"\x16\x03\x01\x00\x00\x16\x03\x01\x00\x00", Partial);
        check(b"\x16\x03\x01\x00\x01\x01\x15\x03\x01\x00\x02", Ready);
    }
}
