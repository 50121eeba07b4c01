//! Frames taken apart as their bytes arrive: which frame may follow which, and the payload without its mask.
//!
//! Takes slices of a connection's bytes, which it unmasks in place; gives ranges of them. It owns no buffer, and it must
//! not look into payloads: inflating, UTF-8 and the limit of a message are [`super::MessageDecoder`]'s.

use std::ops::Range;

use super::frame::{FrameHeader, Opcode, PayloadForm, apply_mask};
use super::{MessageKind, Role, WebSocketFault};

/// Whether permessage-deflate has been negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Every message is plain.
    Off,
    /// Any message may be compressed.
    Negotiated,
}

/// The decoder of one connection's frames.
#[derive(Clone, Debug)]
pub struct FrameDecoder {
    role: Role,
    compression: Compression,
    /// The message whose last frame has not ended.
    message: Option<OpenMessage>,
    state: FrameState,
}

#[derive(Clone, Copy, Debug)]
struct OpenMessage {
    kind: MessageKind,
    form: PayloadForm,
}

/// What the next byte belongs to.
///
/// ```text
/// Header ──header of a data frame──► Payload       a control frame is taken whole and leaves the state as it is
///  │  ▲                                 │
///  │  └────────────last byte────────────┘
///  └──Close, or a fault──► Ended
/// ```
#[derive(Clone, Copy, Debug)]
enum FrameState {
    Header,
    Payload(OpenFrame),
    Ended,
}

/// A data frame whose header has been read.
#[derive(Clone, Copy, Debug)]
struct OpenFrame {
    message: OpenMessage,
    is_final: bool,
    /// Bytes of the payload that have not been taken.
    left: u64,
    /// The masking key, turned so that the next byte takes its first byte.
    mask: Option<[u8; 4]>,
}

/// What one call took from its input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameStep {
    /// Bytes of the input that are dealt with; the rest is to be given again, with more behind it.
    pub consumed: usize,
    /// What was found; `None`: more bytes are needed.
    pub part: Option<FramePart>,
}

/// A part of a frame, or a whole one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FramePart {
    /// Payload of a message.
    Data(DataPart),
    /// A whole control frame, which may come within a fragmented message.
    Control {
        /// Close, Ping or Pong.
        opcode: Opcode,
        /// Where its payload stands in the input, unmasked; at most 125 bytes.
        payload: Range<usize>,
    },
}

/// As much of a data frame's payload as has arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataPart {
    /// What the message holds.
    pub kind: MessageKind,
    /// How the message's payload is written.
    pub form: PayloadForm,
    /// Where the payload stands in the input, unmasked; may be empty.
    pub payload: Range<usize>,
    /// Bytes of the frame's payload that have not arrived.
    pub left: u64,
    /// Whether the message ends with this part.
    pub is_end: bool,
}

impl FrameDecoder {
    /// A decoder of what follows the handshake. `role` is that of the recipient.
    pub fn new(role: Role, compression: Compression) -> Self {
        FrameDecoder {
            role,
            compression,
            message: None,
            state: FrameState::Header,
        }
    }

    /// Decodes up to one part of `input`. At most 130 bytes are left in the input for want of more: the beginning of a
    /// header, or of a control frame, which is taken only when it is whole.
    ///
    /// The same parts come out however the bytes were cut, but for the places where data is cut, and the same fault
    /// comes at the same byte. Behind a close frame and behind a fault, everything is consumed and ignored (RFC 6455
    /// sections 1.4 and 7.1.7).
    ///
    /// # Errors
    /// The first rule that the peer has broken.
    pub fn decode(&mut self, input: &mut [u8]) -> Result<FrameStep, WebSocketFault> {
        match self.state {
            FrameState::Header => {
                let begun = self.begin_frame(input);
                if begun.is_err() {
                    self.end();
                }
                begun
            }
            FrameState::Payload(_) if input.is_empty() => Ok(FrameStep::MORE),
            FrameState::Payload(frame) => Ok(self.take_payload(frame, input, 0)),
            FrameState::Ended => Ok(FrameStep {
                consumed: input.len(),
                part: None,
            }),
        }
    }

    /// Ignores everything from here on.
    pub(super) fn end(&mut self) {
        self.state = FrameState::Ended;
        self.message = None;
    }

    fn begin_frame(&mut self, input: &mut [u8]) -> Result<FrameStep, WebSocketFault> {
        let Some(&first) = input.first() else {
            return Ok(FrameStep::MORE);
        };
        let start = FrameHeader::begin(first)?;
        let message = self.message_of(&start)?;
        let Some((header, header_bytes)) = start.complete(input, self.role)? else {
            return Ok(FrameStep::MORE);
        };
        let Some(message) = message else {
            return Ok(self.take_control(&header, input, header_bytes));
        };
        let frame = OpenFrame {
            message,
            is_final: header.is_final,
            left: header.payload_bytes,
            mask: header.mask,
        };
        Ok(self.take_payload(frame, input, header_bytes))
    }

    /// The message that a frame belongs to; `None` for a control frame.
    fn message_of(&self, start: &FrameHeader) -> Result<Option<OpenMessage>, WebSocketFault> {
        let is_compressed = start.form == PayloadForm::Deflated;
        // RFC 7692 section 6: the bit belongs to the first frame of a message.
        let may_be_compressed =
            self.compression == Compression::Negotiated && start.opcode.kind().is_some();
        if is_compressed && !may_be_compressed {
            return Err(WebSocketFault::ReservedBit);
        }
        match (start.opcode.kind(), self.message) {
            (Some(_), Some(_)) => Err(WebSocketFault::ContinuationMissing),
            (Some(kind), None) => Ok(Some(OpenMessage {
                kind,
                form: start.form,
            })),
            (None, _) if start.opcode.is_control() => Ok(None),
            (None, None) => Err(WebSocketFault::ContinuationUnexpected),
            (None, message) => Ok(message),
        }
    }

    /// Takes a control frame, once it is whole.
    fn take_control(
        &mut self,
        header: &FrameHeader,
        input: &mut [u8],
        header_bytes: usize,
    ) -> FrameStep {
        // At most 125 bytes: the header was refused otherwise.
        let payload = header_bytes..header_bytes + header.payload_bytes as usize;
        let Some(bytes) = input.get_mut(payload.clone()) else {
            return FrameStep::MORE;
        };
        if let Some(key) = header.mask {
            apply_mask(bytes, key);
        }
        if header.opcode == Opcode::Close {
            self.end();
        }
        FrameStep {
            consumed: payload.end,
            part: Some(FramePart::Control {
                opcode: header.opcode,
                payload,
            }),
        }
    }

    /// Takes what has arrived of a data frame's payload, from `start` on.
    fn take_payload(&mut self, frame: OpenFrame, input: &mut [u8], start: usize) -> FrameStep {
        let arrived = &mut input[start..];
        let taken = usize::try_from(frame.left).map_or(arrived.len(), |it| it.min(arrived.len()));
        if let Some(key) = frame.mask {
            apply_mask(&mut arrived[..taken], key);
        }
        let left = frame.left - taken as u64;
        let is_end = left == 0 && frame.is_final;
        self.message = (!is_end).then_some(frame.message);
        self.state = match left {
            0 => FrameState::Header,
            left => FrameState::Payload(OpenFrame {
                left,
                mask: frame.mask.map(|key| turned(key, taken)),
                ..frame
            }),
        };
        let payload = start..start + taken;
        assert!(
            payload.end <= input.len(),
            "a frame takes more than there is"
        );
        FrameStep {
            consumed: payload.end,
            part: Some(FramePart::Data(DataPart {
                kind: frame.message.kind,
                form: frame.message.form,
                payload,
                left,
                is_end,
            })),
        }
    }
}

impl FrameStep {
    const MORE: FrameStep = FrameStep {
        consumed: 0,
        part: None,
    };
}

/// The key as the byte behind `taken` bytes needs it.
fn turned(mut key: [u8; 4], taken: usize) -> [u8; 4] {
    key.rotate_left(taken % 4);
    key
}

#[cfg(test)]
mod tests;
