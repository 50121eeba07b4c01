//! Messages and control frames out of a connection's bytes.
//!
//! Takes slices of bytes as they arrive and a buffer of the caller for messages that do not arrive in one piece; gives
//! one [`Event`] after the other. Inflates, counts the message against its limit while it does, and checks text as it
//! arrives. It must not answer anything: pongs and close frames are the caller's.

use std::ops::Range;

use super::decoder::{Compression, DataPart, FrameDecoder, FramePart};
use super::deflate::{InflateProgress, Inflater};
use super::extension::DeflateContext;
use super::frame::{Opcode, PayloadForm};
use super::{MessageKind, Role, WebSocketFault, is_close_code};

/// Bytes that a message grows by at least while it is inflated.
const INFLATE_STEP_BYTES_MIN: usize = 1024;
/// Bytes that a message grows by at most before its limit and its text are checked.
const INFLATE_STEP_BYTES_MAX: usize = 64 * 1024;

/// The decoder of one connection's messages.
///
/// It holds no payload. With permessage-deflate, an inflater of 48 KB exists from the first byte of a
/// compressed message to its last, or to the end of the connection where the peer keeps its context.
#[derive(Debug)]
pub struct MessageDecoder {
    frames: FrameDecoder,
    inflater: Inflater,
    message_bytes_max: usize,
    progress: Progress,
}

/// How far the current message is.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// No part of it has come.
    Start,
    /// Its beginning is in the caller's buffer, of which so many bytes are known to be whole characters.
    Within { text_bytes: usize },
}

/// What one call took from its input.
#[derive(Debug)]
pub struct Received<'b> {
    /// Bytes of the input that are dealt with; the rest is to be given again, with more behind it.
    pub consumed: usize,
    /// What was found; `None`: more bytes are needed.
    pub event: Option<Event<'b>>,
}

/// What a peer has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'b> {
    /// A whole text message: valid UTF-8, inflated.
    Text(&'b [u8]),
    /// A whole binary message, inflated.
    Binary(&'b [u8]),
    /// A ping, to be answered by a pong with the same payload.
    Ping(&'b [u8]),
    /// A pong, asked for or not.
    Pong(&'b [u8]),
    /// The peer's last frame.
    Close(CloseFrame<'b>),
}

/// The content of a close frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloseFrame<'b> {
    /// The status code; `None` where the frame was empty, which is reported as 1005.
    pub code: Option<u16>,
    /// The reason; may be empty.
    pub reason: &'b str,
}

impl<'b> CloseFrame<'b> {
    /// Reads the payload of a close frame, RFC 6455 section 5.5.1.
    ///
    /// # Errors
    /// A code without its second byte, a code that must not be sent, a reason that is not UTF-8.
    pub fn parse(payload: &'b [u8]) -> Result<Self, WebSocketFault> {
        let (code, reason) = match payload {
            [] => (None, &[][..]),
            [_] => return Err(WebSocketFault::CloseLength),
            [a, b, reason @ ..] => (Some(u16::from_be_bytes([*a, *b])), reason),
        };
        if !code.is_none_or(is_close_code) {
            return Err(WebSocketFault::CloseCode);
        }
        let reason = str::from_utf8(reason).map_err(|_| WebSocketFault::CloseReasonEncoding)?;
        Ok(CloseFrame { code, reason })
    }
}

/// What is complete, and where it stands.
enum Found {
    Message(MessageKind, MessagePlace),
    /// A control frame, its payload in the input.
    Control(Opcode, Range<usize>),
}

/// Where a whole message stands.
enum MessagePlace {
    Input(Range<usize>),
    Buffer,
}

impl MessageDecoder {
    /// A decoder of what follows the handshake.
    ///
    /// 1. `role` is that of the recipient.
    /// 2. `message_bytes_max` bounds a message, after inflating.
    /// 3. `deflate` is what becomes of the peer's context between messages; `None` without permessage-deflate.
    pub fn new(role: Role, message_bytes_max: usize, deflate: Option<DeflateContext>) -> Self {
        let compression = match deflate {
            None => Compression::Off,
            Some(_) => Compression::Negotiated,
        };
        MessageDecoder {
            frames: FrameDecoder::new(role, compression),
            inflater: Inflater::new(deflate.unwrap_or(DeflateContext::Dropped)),
            message_bytes_max,
            progress: Progress::Start,
        }
    }

    /// Decodes up to one event. Call again with the rest of `input` while there is an event.
    ///
    /// 1. `input` is unmasked in place; a plain message that stands in it as a whole, in one frame, is not copied.
    /// 2. Of a message in several pieces, `buffer` holds what has come: give the same buffer until its event. It is
    ///    cleared when a message begins, and never holds more than `message_bytes_max` and one byte. Behind an event its
    ///    memory is the caller's to keep or to give up.
    /// 3. At most 130 bytes are left in the input for want of more.
    ///
    /// The same events come out however the bytes were cut, and the same fault behind the same events. A limit is
    /// enforced when a frame announces too much, text at the first byte that cannot be UTF-8. Behind a close frame and
    /// behind a fault, everything is consumed and ignored.
    ///
    /// # Errors
    /// The first rule that the peer has broken, or that the message is too large.
    ///
    /// # Panics
    /// When the buffer is not the one in which the message has begun, and shorter.
    pub fn decode<'b>(
        &mut self,
        input: &'b mut [u8],
        buffer: &'b mut Vec<u8>,
    ) -> Result<Received<'b>, WebSocketFault> {
        let decoded = self.decode_event(input, buffer);
        if decoded.is_err() {
            self.end();
        }
        decoded
    }

    /// Whether a message has begun, so that the buffer must be kept.
    pub fn is_within_message(&self) -> bool {
        matches!(self.progress, Progress::Within { .. })
    }

    fn decode_event<'b>(
        &mut self,
        input: &'b mut [u8],
        buffer: &'b mut Vec<u8>,
    ) -> Result<Received<'b>, WebSocketFault> {
        let mut consumed = 0;
        let found = loop {
            let start = consumed;
            let step = self.frames.decode(&mut input[start..])?;
            consumed += step.consumed;
            let found = match step.part {
                Some(FramePart::Control { opcode, payload }) => {
                    Some(Found::Control(opcode, shifted(&payload, start)))
                }
                Some(FramePart::Data(part)) => {
                    let payload = shifted(&part.payload, start);
                    self.take_data(&part, input, payload, buffer)?
                }
                None => {
                    return Ok(Received {
                        consumed,
                        event: None,
                    });
                }
            };
            if let Some(found) = found {
                break found;
            }
        };
        let event = match found {
            Found::Message(kind, MessagePlace::Input(place)) => message(kind, &input[place]),
            Found::Message(kind, MessagePlace::Buffer) => message(kind, buffer),
            Found::Control(opcode, payload) => self.control(opcode, &input[payload])?,
        };
        Ok(Received {
            consumed,
            event: Some(event),
        })
    }

    fn control<'b>(
        &mut self,
        opcode: Opcode,
        payload: &'b [u8],
    ) -> Result<Event<'b>, WebSocketFault> {
        match opcode {
            Opcode::Ping => Ok(Event::Ping(payload)),
            Opcode::Pong => Ok(Event::Pong(payload)),
            _ => {
                self.end();
                CloseFrame::parse(payload).map(Event::Close)
            }
        }
    }

    /// Takes a part of a message, which stands at `place` in `input`.
    fn take_data(
        &mut self,
        part: &DataPart,
        input: &[u8],
        place: Range<usize>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Found>, WebSocketFault> {
        let text_bytes = match self.progress {
            Progress::Within { text_bytes } => text_bytes,
            Progress::Start => {
                buffer.clear();
                0
            }
        };
        assert!(
            text_bytes <= buffer.len(),
            "a message needs the buffer in which it has begun"
        );
        let mut message = PartialMessage {
            buffer,
            kind: part.kind,
            text_bytes,
            bytes_max: self.message_bytes_max,
        };
        let payload = &input[place.clone()];
        match part.form {
            PayloadForm::Plain => {
                message.check_announced(payload, part.left)?;
                if part.is_end && message.buffer.is_empty() {
                    check_text(part.kind, payload)?;
                    return Ok(Some(Found::Message(part.kind, MessagePlace::Input(place))));
                }
                message.append(payload)?;
            }
            PayloadForm::Deflated => {
                message.inflate(&mut self.inflater, payload)?;
                if part.is_end {
                    message.inflate(&mut self.inflater, Inflater::FLUSH_END)?;
                    self.inflater.end_message();
                }
            }
        }
        if part.is_end {
            message.check_end()?;
            self.progress = Progress::Start;
            return Ok(Some(Found::Message(part.kind, MessagePlace::Buffer)));
        }
        // A message of which only a header has come may still be given without a copy.
        if !message.buffer.is_empty() {
            self.progress = Progress::Within {
                text_bytes: message.text_bytes,
            };
        }
        Ok(None)
    }

    fn end(&mut self) {
        self.frames.end();
        self.inflater.clear();
        self.progress = Progress::Start;
    }
}

/// What has come of a message that does not stand in the input as a whole.
struct PartialMessage<'b> {
    buffer: &'b mut Vec<u8>,
    kind: MessageKind,
    /// Of a text: bytes at the beginning that are known to be whole characters.
    text_bytes: usize,
    bytes_max: usize,
}

impl PartialMessage<'_> {
    /// Checks the length that the message has with the frame that `payload` is a part of, before the rest of it comes.
    fn check_announced(&self, payload: &[u8], left: u64) -> Result<(), WebSocketFault> {
        let bytes = (self.buffer.len() + payload.len()) as u64;
        match bytes.saturating_add(left) <= self.bytes_max as u64 {
            true => Ok(()),
            false => Err(WebSocketFault::MessageTooLarge),
        }
    }

    fn append(&mut self, payload: &[u8]) -> Result<(), WebSocketFault> {
        self.reserve(payload.len());
        self.buffer.extend_from_slice(payload);
        self.check()
    }

    /// Appends what `compressed` inflates to.
    fn inflate(
        &mut self,
        inflater: &mut Inflater,
        mut compressed: &[u8],
    ) -> Result<(), WebSocketFault> {
        if compressed.is_empty() {
            return Ok(());
        }
        loop {
            // One byte more than allowed shows that there are too many, and no bomb inflates any further.
            let allowed = self.bytes_max.saturating_add(1) - self.buffer.len();
            let expected = compressed.len().saturating_mul(4);
            let step = expected.clamp(INFLATE_STEP_BYTES_MIN, INFLATE_STEP_BYTES_MAX);
            // What is allocated is used up first: the end of a message, which inflates to nothing, needs no more.
            let room = match self.buffer.capacity() - self.buffer.len() {
                0 => step.min(allowed),
                spare => step.min(allowed).min(spare),
            };
            self.reserve(room);
            let (consumed, progress) = inflater.inflate(compressed, self.buffer, room);
            compressed = &compressed[consumed..];
            // Bytes before a fault count first, so that the fault does not depend on how the input was cut.
            self.check()?;
            match progress {
                InflateProgress::Drained => return Ok(()),
                InflateProgress::MoreToCome => {}
                InflateProgress::Faulty => return Err(WebSocketFault::DeflateData),
            }
        }
    }

    /// Checks what is new in the buffer: its text, then its length.
    fn check(&mut self) -> Result<(), WebSocketFault> {
        if self.kind == MessageKind::Text {
            match str::from_utf8(&self.buffer[self.text_bytes..]) {
                Ok(text) => self.text_bytes += text.len(),
                // The rest may be the beginning of a character.
                Err(error) if error.error_len().is_none() => {
                    self.text_bytes += error.valid_up_to();
                }
                Err(_) => return Err(WebSocketFault::TextEncoding),
            }
        }
        match self.buffer.len() <= self.bytes_max {
            true => Ok(()),
            false => Err(WebSocketFault::MessageTooLarge),
        }
    }

    fn check_end(&self) -> Result<(), WebSocketFault> {
        match self.kind == MessageKind::Binary || self.text_bytes == self.buffer.len() {
            true => Ok(()),
            false => Err(WebSocketFault::TextEncoding),
        }
    }

    /// Makes room for `more` bytes: by doubling, but for no more than the largest message.
    fn reserve(&mut self, more: usize) {
        let (len, capacity) = (self.buffer.len(), self.buffer.capacity());
        if len + more > capacity {
            let doubled = (2 * capacity).min(self.bytes_max);
            self.buffer.reserve_exact((len + more).max(doubled) - len);
        }
    }
}

fn message(kind: MessageKind, payload: &[u8]) -> Event<'_> {
    match kind {
        MessageKind::Text => Event::Text(payload),
        MessageKind::Binary => Event::Binary(payload),
    }
}

fn check_text(kind: MessageKind, payload: &[u8]) -> Result<(), WebSocketFault> {
    match kind == MessageKind::Binary || str::from_utf8(payload).is_ok() {
        true => Ok(()),
        false => Err(WebSocketFault::TextEncoding),
    }
}

fn shifted(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

#[cfg(test)]
mod tests;
