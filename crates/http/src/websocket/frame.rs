//! Frame headers and masks, RFC 6455 section 5.
//!
//! Takes the first bytes of a frame, gives a [`FrameHeader`], and the way back; XORs payloads. It must not know which
//! frame may follow which: the decoder does.

use super::{CONTROL_BYTES_MAX, MessageKind, Role, WebSocketFault};

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RSV2_AND_RSV3: u8 = 0x30;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
/// In the place of a length: 2 or 8 bytes of length follow.
const LENGTH_IN_2: u8 = 126;
const LENGTH_IN_8: u8 = 127;
/// Of the longest header: two bytes, a length of eight, a mask.
pub(super) const HEADER_BYTES_MAX: usize = 2 + 8 + 4;

/// What a frame is, RFC 6455 section 5.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "named by the opcodes themselves")]
pub enum Opcode {
    Continuation = 0x0,
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xa,
}

impl Opcode {
    fn of(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0x0 => Opcode::Continuation,
            0x1 => Opcode::Text,
            0x2 => Opcode::Binary,
            0x8 => Opcode::Close,
            0x9 => Opcode::Ping,
            0xa => Opcode::Pong,
            _ => return None,
        })
    }

    /// What a message that begins with this frame holds; `None` where none begins.
    pub fn kind(self) -> Option<MessageKind> {
        match self {
            Opcode::Text => Some(MessageKind::Text),
            Opcode::Binary => Some(MessageKind::Binary),
            _ => None,
        }
    }

    /// Whether it is Close, Ping or Pong.
    pub fn is_control(self) -> bool {
        matches!(self, Opcode::Close | Opcode::Ping | Opcode::Pong)
    }
}

/// How the payload of a message is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadForm {
    /// As it is.
    Plain,
    /// By permessage-deflate: RSV1 is set in the message's first frame (RFC 7692 section 6).
    Deflated,
}

/// The header of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// What the frame is.
    pub opcode: Opcode,
    /// Whether the message ends with this frame.
    pub is_final: bool,
    /// [`PayloadForm::Deflated`] where RSV1 is set.
    pub form: PayloadForm,
    /// The masking key; `None` where the payload is not masked.
    pub mask: Option<[u8; 4]>,
    /// Length of the payload, below 2^63.
    pub payload_bytes: u64,
}

impl FrameHeader {
    /// Reads the first byte of a frame, as far as it says what is wrong without the frames before it. Mask and length
    /// are those of [`FrameHeader::complete`].
    pub(super) fn begin(byte: u8) -> Result<FrameHeader, WebSocketFault> {
        // RFC 6455 section 5.2: no extension that this crate knows gives these two a meaning.
        if byte & RSV2_AND_RSV3 != 0 {
            return Err(WebSocketFault::ReservedBit);
        }
        let header = FrameHeader {
            opcode: Opcode::of(byte & OPCODE).ok_or(WebSocketFault::OpcodeUnknown)?,
            is_final: byte & FIN != 0,
            form: match byte & RSV1 {
                0 => PayloadForm::Plain,
                _ => PayloadForm::Deflated,
            },
            mask: None,
            payload_bytes: 0,
        };
        // RFC 6455 section 5.5.
        if header.opcode.is_control() && !header.is_final {
            return Err(WebSocketFault::ControlFragmented);
        }
        Ok(header)
    }

    /// The header that begins `bytes`, of which the first byte has been read, and its length; `None` while it is not
    /// whole. `role` is that of the recipient.
    pub(super) fn complete(
        self,
        bytes: &[u8],
        role: Role,
    ) -> Result<Option<(FrameHeader, usize)>, WebSocketFault> {
        let Some(&second) = bytes.get(1) else {
            return Ok(None);
        };
        // RFC 6455 section 5.1: unmasked frames of browsers would let pages choose bytes that proxies see.
        match (role, second & MASKED != 0) {
            (Role::Server, false) => return Err(WebSocketFault::MaskMissing),
            (Role::Client, true) => return Err(WebSocketFault::MaskForbidden),
            _ => {}
        }
        let length = second & LENGTH;
        if self.opcode.is_control() && usize::from(length) > CONTROL_BYTES_MAX {
            return Err(WebSocketFault::ControlTooLong);
        }
        let Some((payload_bytes, mask_start)) = payload_bytes(length, bytes)? else {
            return Ok(None);
        };
        let (mask, header_bytes) = match (role, bytes[mask_start..].first_chunk()) {
            (Role::Client, _) => (None, mask_start),
            (Role::Server, Some(key)) => (Some(*key), mask_start + key.len()),
            (Role::Server, None) => return Ok(None),
        };
        let header = FrameHeader {
            mask,
            payload_bytes,
            ..self
        };
        Ok(Some((header, header_bytes)))
    }

    /// Appends the header's 2 to 14 bytes, with the length in its shortest form.
    ///
    /// # Panics
    /// When a control frame is fragmented, compressed or longer than 125 bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let is_plain = self.is_final && self.form == PayloadForm::Plain;
        let is_short = self.payload_bytes <= CONTROL_BYTES_MAX as u64;
        assert!(
            !self.opcode.is_control() || is_plain && is_short,
            "a control frame is final, plain and short"
        );
        let fin = if self.is_final { FIN } else { 0 };
        let rsv1 = match self.form {
            PayloadForm::Plain => 0,
            PayloadForm::Deflated => RSV1,
        };
        let masked = if self.mask.is_some() { MASKED } else { 0 };
        let (length, extended) = match self.payload_bytes {
            short @ 0..126 => (short as u8, 8..8),
            126..0x1_0000 => (LENGTH_IN_2, 6..8),
            _ => (LENGTH_IN_8, 0..8),
        };
        out.extend_from_slice(&[fin | rsv1 | self.opcode as u8, masked | length]);
        out.extend_from_slice(&self.payload_bytes.to_be_bytes()[extended]);
        out.extend_from_slice(self.mask.as_ref().map_or(&[], |key| key));
    }
}

/// The length of the payload and where it ends in `bytes`, RFC 6455 section 5.2; `None` while it is not whole.
fn payload_bytes(length: u8, bytes: &[u8]) -> Result<Option<(u64, usize)>, WebSocketFault> {
    let (payload_bytes, end, least) = match (length, &bytes[2..]) {
        (LENGTH_IN_2, [a, b, ..]) => (u64::from(u16::from_be_bytes([*a, *b])), 4, 126),
        (LENGTH_IN_8, [a, b, c, d, e, f, g, h, ..]) => {
            let length = u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
            (length, 10, 1 << 16)
        }
        (LENGTH_IN_2 | LENGTH_IN_8, _) => return Ok(None),
        (length, _) => (u64::from(length), 2, 0),
    };
    if payload_bytes < least {
        return Err(WebSocketFault::LengthNotMinimal);
    }
    if payload_bytes > i64::MAX as u64 {
        return Err(WebSocketFault::LengthTooLarge);
    }
    Ok(Some((payload_bytes, end)))
}

/// XORs `payload` with `key`, RFC 6455 section 5.3: masks it, or takes the mask off. The first byte takes the first
/// byte of the key.
pub fn apply_mask(payload: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let key_twice = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    // By words, of which the compiler makes vectors: 64 KB take 1.1 µs, byte by byte 65 µs.
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ key_twice).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.into_iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests;
