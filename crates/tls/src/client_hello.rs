//! Whether a ClientHello is whole, by the lengths in front of its parts: no byte of it is understood here. Each record is
//! walked once, so that a client which sends it byte by byte, in records of one byte each, costs a few comparisons a byte.

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

/// How far a ClientHello was walked.
#[derive(Debug, Default)]
pub(crate) struct HelloScan {
    /// Where the first record begins that was not whole.
    at: usize,
    /// Bytes of the message in the records before it.
    bytes: usize,
    /// The first bytes of the message, as far as they are there.
    header: [u8; MESSAGE_HEADER_BYTES],
}

/// Whether a connection that begins so is one of TLS, as far as two bytes tell.
pub fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [HANDSHAKE, 3, ..])
}

impl HelloScan {
    /// Looks at the first bytes of a connection: those of the last call, and more behind them.
    pub(crate) fn examine(&mut self, bytes: &[u8]) -> HandshakeInput {
        match bytes {
            [] | [HANDSHAKE] => return HandshakeInput::Partial,
            // The version of a record is 3.x since SSL 3.0.
            [HANDSHAKE, 3, ..] => {}
            _ => return HandshakeInput::NotTls,
        }
        while let [kind, _, _, high, low, ..] = bytes[self.at..] {
            if kind != HANDSHAKE {
                return HandshakeInput::Ready;
            }
            let record_bytes = usize::from(u16::from_be_bytes([high, low]));
            let payload = &bytes[self.at + RECORD_HEADER_BYTES..];
            let payload = &payload[..record_bytes.min(payload.len())];
            for (at, byte) in self.header.iter_mut().skip(self.bytes).zip(payload) {
                *at = *byte;
            }
            if self.is_whole(self.bytes + payload.len()) {
                return HandshakeInput::Ready;
            }
            if payload.len() < record_bytes {
                break;
            }
            self.bytes += payload.len();
            self.at += RECORD_HEADER_BYTES + record_bytes;
        }
        HandshakeInput::Partial
    }

    /// Whether so many bytes of the message are all of it.
    fn is_whole(&self, bytes: usize) -> bool {
        let [_, high, middle, low] = self.header;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        // Until it is whole, the header says nothing.
        bytes >= MESSAGE_HEADER_BYTES && bytes >= MESSAGE_HEADER_BYTES + length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_hello_by_its_lengths() {
        use HandshakeInput::{NotTls, Partial, Ready};
        let check = |bytes: &[u8], expect| {
            assert_eq!(HelloScan::default().examine(bytes), expect, "{bytes:?}");
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

    #[test]
    fn walks_each_record_once_wherever_the_bytes_are_cut() {
        let message = [&[1, 0, 0, 60][..], &[7; 60]].concat();
        for record_bytes in [1, 2, 3, 5, 64] {
            let mut bytes = Vec::new();
            for part in message.chunks(record_bytes) {
                bytes.extend([HANDSHAKE, 3, 1, 0, part.len() as u8]);
                bytes.extend(part);
            }
            for step in 1..bytes.len() {
                let mut scan = HelloScan::default();
                for end in (1..bytes.len()).step_by(step) {
                    let known = scan.at;
                    assert_eq!(
                        scan.examine(&bytes[..end]),
                        HandshakeInput::Partial,
                        "{end}"
                    );
                    assert!(
                        scan.at >= known,
                        "a record that was whole is not walked again"
                    );
                    assert!(end < scan.at + RECORD_HEADER_BYTES + record_bytes, "{end}");
                }
                assert_eq!(scan.examine(&bytes), HandshakeInput::Ready);
            }
        }
    }
}
