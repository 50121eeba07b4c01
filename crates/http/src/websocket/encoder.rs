//! Messages and control frames on their way out, each in one frame.
//!
//! Takes payloads and, for the client, masks; appends bytes to a buffer of the caller, or a header alone where the payload
//! is sent from where it stands. It must not decide whether a frame may be sent: `Closing` does.

use super::deflate::Deflater;
use super::extension::DeflateSide;
use super::frame::{FrameHeader, HEADER_BYTES_MAX, Opcode, PayloadForm, apply_mask};
use super::{CONTROL_BYTES_MAX, MessageKind, is_close_code};

/// Messages below this length are never compressed: there is nothing to gain.
pub const COMPRESSED_BYTES_MIN: usize = 128;

/// Longest reason of a close frame: the code takes two bytes of its payload.
const REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// The encoder of one connection's messages.
#[derive(Debug)]
pub struct MessageEncoder {
    deflater: Option<Deflater>,
}

/// A status code that no close frame may carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidCloseCode(pub u16);

impl std::fmt::Display for InvalidCloseCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "a close frame cannot carry the code {}: use 1000 to 1003, 1007 to 1014 or 3000 to 4999",
            self.0
        )
    }
}

impl std::error::Error for InvalidCloseCode {}

impl MessageEncoder {
    /// An encoder behind the handshake. `deflate` is how this end compresses; `None` without permessage-deflate.
    ///
    /// # Panics
    /// When the window is not one of 9 to 15 bits.
    pub fn new(deflate: Option<DeflateSide>) -> Self {
        MessageEncoder {
            deflater: deflate.map(Deflater::new),
        }
    }

    /// Whether a message of this length would be compressed. Where it would not, [`write_message_header`] and the payload
    /// from where it stands are the same frame without a copy.
    pub fn is_compressed(&self, payload_bytes: usize) -> bool {
        self.deflater.is_some() && payload_bytes >= COMPRESSED_BYTES_MIN
    }

    /// Appends the frame of a message. A text must be UTF-8, which is not checked. The client gives a mask, which must
    /// be a new random one for each frame (RFC 6455 section 5.3), the server none.
    pub fn encode(
        &mut self,
        kind: MessageKind,
        payload: &[u8],
        mask: Option<[u8; 4]>,
        out: &mut Vec<u8>,
    ) {
        let deflater = self.deflater.as_mut();
        let Some(deflater) = deflater.filter(|_| payload.len() >= COMPRESSED_BYTES_MIN) else {
            return write_frame(opcode(kind), payload, mask, out);
        };
        let start = out.len();
        deflater.deflate(payload, out);
        if let Some(key) = mask {
            apply_mask(&mut out[start..], key);
        }
        let payload_bytes = out.len() - start;
        // The header's length is known only now.
        write_header(
            opcode(kind),
            PayloadForm::Deflated,
            payload_bytes,
            mask,
            out,
        );
        out[start..].rotate_left(payload_bytes);
    }
}

/// Appends the header of a message that is sent as it is, in one frame; the payload follows it.
pub fn write_message_header(
    kind: MessageKind,
    payload_bytes: usize,
    mask: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) {
    write_header(opcode(kind), PayloadForm::Plain, payload_bytes, mask, out);
}

/// Appends a control frame. Close frames are [`write_close`]'s.
///
/// # Panics
/// When `payload` has more than 125 bytes.
pub fn write_control(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    assert!(opcode.is_control(), "messages have an encoder");
    write_frame(opcode, payload, mask, out);
}

/// Appends a close frame. `code` `None` says nothing, and leaves the reason out; a reason of more than 123 bytes is
/// cut at the end of a character.
///
/// # Errors
/// When the code must not be sent; nothing has been appended then.
pub fn write_close(
    code: Option<u16>,
    reason: &str,
    mask: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) -> Result<(), InvalidCloseCode> {
    let mut payload = [0; CONTROL_BYTES_MAX];
    let mut bytes = 0;
    if let Some(code) = code {
        if !is_close_code(code) {
            return Err(InvalidCloseCode(code));
        }
        let mut reason_bytes = reason.len().min(REASON_BYTES_MAX);
        while !reason.is_char_boundary(reason_bytes) {
            reason_bytes -= 1;
        }
        bytes = 2 + reason_bytes;
        payload[..2].copy_from_slice(&code.to_be_bytes());
        payload[2..bytes].copy_from_slice(&reason.as_bytes()[..reason_bytes]);
    }
    write_control(Opcode::Close, &payload[..bytes], mask, out);
    Ok(())
}

fn opcode(kind: MessageKind) -> Opcode {
    match kind {
        MessageKind::Text => Opcode::Text,
        MessageKind::Binary => Opcode::Binary,
    }
}

fn write_frame(opcode: Opcode, payload: &[u8], mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    out.reserve(HEADER_BYTES_MAX + payload.len());
    write_header(opcode, PayloadForm::Plain, payload.len(), mask, out);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = mask {
        apply_mask(&mut out[start..], key);
    }
}

fn write_header(
    opcode: Opcode,
    form: PayloadForm,
    payload_bytes: usize,
    mask: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) {
    let header = FrameHeader {
        opcode,
        is_final: true,
        form,
        mask,
        payload_bytes: payload_bytes as u64,
    };
    header.write(out);
}

#[cfg(test)]
mod tests;
