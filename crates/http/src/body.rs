//! A request's body on its way in: counts a declared length, takes chunked coding apart.
//!
//! Takes slices as they arrive, gives the ranges of them that are payload. It must not copy payload, hold
//! any, or read past the body's last byte: what follows belongs to the next request. Chunk extensions are read to be
//! skipped, and refused where they are malformed; the bound on them is that of the size line.

use std::ops::Range;

use crate::fields::{is_token, is_value};
use crate::head::BodyFraming;
use crate::limits::Limits;
use crate::refusal::{Cause, Refusal};

/// 16 hexadecimal digits fill 64 bits; more are an attempt at an overflow, leading zeros or not.
const SIZE_DIGITS_MAX: u8 = 16;

/// The decoder of one body.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    bytes_out: u64,
    body_bytes_max: u64,
    chunk_line_bytes_max: usize,
    trailer_bytes_max: usize,
}

/// What one call took from its input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// Bytes of the input that are dealt with; the rest is to be given again. 0 only when the input is
    /// empty or the body done.
    pub consumed: usize,
    /// Payload within `input[..consumed]`; may be empty.
    pub data: Range<usize>,
    /// Bytes of the trailer section within `input[..consumed]`, those of its empty line included.
    pub trailers: Range<usize>,
}

/// Where in the body the next byte stands; RFC 9112 sections 6.2 and 7.1.
///
/// ```text
/// Length ──last byte──► Done
///
///         ┌────────────────────────── LF ──────────────────────────┐
///         ▼                                                        │
/// ─► Size ──► Extension ──CR──► SizeLf ──LF, size > 0──► Data ──► DataCr ──CR──► DataLf
///         └───────────CR───────────►   │
///                                      └─LF, size 0──► TrailerStart ──CR──► LastLf ──LF──► Done
///                                                       │        ▲
///                                                     token      └───────────LF──────────┐
///                                                       ▼                                │
///                                                    TrailerName ──':'──► TrailerValue ──CR──► TrailerLf
/// ```
///
/// Any other byte is a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Length {
        left: u64,
    },
    Size {
        size: u64,
        digits: u8,
        line_bytes: usize,
    },
    Extension {
        size: u64,
        extension: ChunkExtension,
        line_bytes: usize,
    },
    SizeLf {
        size: u64,
        line_bytes: usize,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    TrailerStart {
        bytes: usize,
    },
    TrailerName {
        bytes: usize,
    },
    TrailerValue {
        bytes: usize,
    },
    TrailerLf {
        bytes: usize,
    },
    LastLf {
        bytes: usize,
    },
    Done,
}

impl State {
    const NEXT_CHUNK: State = State::Size {
        size: 0,
        digits: 0,
        line_bytes: 0,
    };

    /// Whether the next byte belongs to the trailer section.
    fn is_in_trailers(self) -> bool {
        matches!(
            self,
            State::TrailerStart { .. }
                | State::TrailerName { .. }
                | State::TrailerValue { .. }
                | State::TrailerLf { .. }
                | State::LastLf { .. }
        )
    }
}

impl BodyDecoder {
    /// A decoder at the first byte of a body. Refuses a declared length over `body_bytes_max` before any
    /// of it is read (413).
    pub fn new(framing: BodyFraming, limits: &Limits) -> Result<Self, Refusal> {
        match framing {
            BodyFraming::Length(length) if length > limits.body_bytes_max => {
                Err(Cause::BodyTooLarge.into())
            }
            _ => Ok(Self {
                body_bytes_max: limits.body_bytes_max,
                ..Self::unbounded(framing, limits)
            }),
        }
    }

    /// As `new`, for a body of any length.
    pub(crate) fn unbounded(framing: BodyFraming, limits: &Limits) -> Self {
        let state = match framing {
            BodyFraming::None | BodyFraming::Length(0) => State::Done,
            BodyFraming::Length(length) => State::Length { left: length },
            BodyFraming::Chunked => State::NEXT_CHUNK,
        };
        BodyDecoder {
            state,
            bytes_out: 0,
            body_bytes_max: u64::MAX,
            chunk_line_bytes_max: limits.chunk_line_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
        }
    }

    /// Decodes what it can of `input`: up to the end of the first stretch of payload. Call again with the
    /// rest while `consumed > 0` and not done.
    ///
    /// A chunk that would take the body over `body_bytes_max` is refused at its size line (413). Trailers
    /// are checked like fields and dropped.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, Refusal> {
        let mut consumed = 0;
        let mut trailers_start = 0;
        while let Some(&byte) = input.get(consumed) {
            match self.state {
                State::Done => break,
                State::Length { left } | State::Data { left } => {
                    // One stretch of payload a call: what follows a chunk is framing, which is no part of the range.
                    let data = consumed..consumed + self.take(left, input.len() - consumed);
                    assert!(data.end <= input.len(), "a body takes more than there is");
                    return Ok(Decoded {
                        consumed: data.end,
                        trailers: data.end..data.end,
                        data,
                    });
                }
                state => {
                    self.state = self.step(state, byte)?;
                    consumed += 1;
                    // What begins the trailer section ends what is none of it: all before this byte, and it.
                    if !state.is_in_trailers() {
                        trailers_start = consumed;
                    }
                }
            }
        }
        Ok(Decoded {
            consumed,
            data: consumed..consumed,
            trailers: trailers_start..consumed,
        })
    }

    /// Whether the body's last byte has been consumed.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Payload given so far, in bytes.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out
    }

    /// Counts off as much of the `left` bytes of payload as is `there`, and gives that number.
    fn take(&mut self, left: u64, there: usize) -> usize {
        // Never beyond the length that was announced: the next byte is the next request's (request smuggling).
        let taken = usize::try_from(left).map_or(there, |left| left.min(there));
        let left = left - taken as u64;
        self.bytes_out += taken as u64;
        self.state = match self.state {
            State::Length { .. } if left == 0 => State::Done,
            State::Length { .. } => State::Length { left },
            _ if left == 0 => State::DataCr,
            _ => State::Data { left },
        };
        taken
    }

    /// One byte of framing.
    fn step(&self, state: State, byte: u8) -> Result<State, Cause> {
        match state {
            State::Size {
                size,
                digits,
                line_bytes,
            } => {
                let line_bytes = self.size_line(line_bytes)?;
                self.step_size(size, digits, line_bytes, byte)
            }
            State::Extension {
                size,
                extension,
                line_bytes,
            } => {
                let line_bytes = self.size_line(line_bytes)?;
                // Skipped, RFC 9112 section 7.1.1, but held to its grammar: what one recipient takes for
                // an extension is another's next request.
                if byte == b'\r' && extension.may_end() {
                    return Ok(State::SizeLf { size, line_bytes });
                }
                extension_state(size, line_bytes, extension.step(byte))
            }
            State::SizeLf { size, line_bytes } => {
                self.size_line(line_bytes)?;
                self.step_size_end(size, byte)
            }
            State::DataCr if byte == b'\r' => Ok(State::DataLf),
            State::DataLf if byte == b'\n' => Ok(State::NEXT_CHUNK),
            State::DataCr | State::DataLf => Err(Cause::ChunkEnd),
            state => self.step_trailer(state, byte),
        }
    }

    /// RFC 9112 section 7.1: `1*HEXDIG` with nothing before it, and behind it nothing but extensions.
    fn step_size(
        &self,
        size: u64,
        digits: u8,
        line_bytes: usize,
        byte: u8,
    ) -> Result<State, Cause> {
        match (byte, (byte as char).to_digit(16)) {
            // The bound on digits keeps the shift from losing the upper ones (chunk size overflow).
            (_, Some(digit)) if digits < SIZE_DIGITS_MAX => Ok(State::Size {
                size: size << 4 | u64::from(digit),
                digits: digits + 1,
                line_bytes,
            }),
            (b'\r', _) if digits > 0 => Ok(State::SizeLf { size, line_bytes }),
            (_, None) if digits > 0 => {
                extension_state(size, line_bytes, ChunkExtension::begin(byte))
            }
            _ => Err(Cause::ChunkSize),
        }
    }

    fn step_size_end(&self, size: u64, byte: u8) -> Result<State, Cause> {
        if byte != b'\n' {
            return Err(Cause::ChunkExtensionForm);
        }
        if size == 0 {
            return Ok(State::TrailerStart { bytes: 0 });
        }
        // With what has come before, and before a byte of this chunk is read: `size` alone may fill 64 bits.
        match self.bytes_out.checked_add(size) {
            Some(total) if total <= self.body_bytes_max => Ok(State::Data { left: size }),
            _ => Err(Cause::BodyTooLarge),
        }
    }

    /// RFC 9112 section 7.1.2: `*( field-line CRLF ) CRLF`, held to the rules of the head's fields.
    fn step_trailer(&self, state: State, byte: u8) -> Result<State, Cause> {
        let bytes = match state {
            State::TrailerStart { bytes }
            | State::TrailerName { bytes }
            | State::TrailerValue { bytes }
            | State::TrailerLf { bytes }
            | State::LastLf { bytes } => bytes + 1,
            _ => unreachable!("payload and the end take no steps, the rest has been dealt with"),
        };
        if bytes > self.trailer_bytes_max {
            return Err(Cause::TrailerTooLarge);
        }
        match (state, byte) {
            (State::TrailerStart { .. }, b'\r') => Ok(State::LastLf { bytes }),
            (State::TrailerStart { .. } | State::TrailerName { .. }, byte) if is_token(byte) => {
                Ok(State::TrailerName { bytes })
            }
            (State::TrailerName { .. }, b':') => Ok(State::TrailerValue { bytes }),
            (State::TrailerValue { .. }, b'\r') => Ok(State::TrailerLf { bytes }),
            (State::TrailerValue { .. }, byte) if is_value(byte) => {
                Ok(State::TrailerValue { bytes })
            }
            (State::TrailerLf { .. }, b'\n') => Ok(State::TrailerStart { bytes }),
            (State::LastLf { .. }, b'\n') => Ok(State::Done),
            _ => Err(Cause::TrailerByte),
        }
    }

    /// Length of the size line with one byte more.
    fn size_line(&self, line_bytes: usize) -> Result<usize, Cause> {
        if line_bytes >= self.chunk_line_bytes_max {
            return Err(Cause::ChunkLineTooLong);
        }
        Ok(line_bytes + 1)
    }
}

fn extension_state(
    size: u64,
    line_bytes: usize,
    extension: Option<ChunkExtension>,
) -> Result<State, Cause> {
    let extension = extension.ok_or(Cause::ChunkExtensionForm)?;
    Ok(State::Extension {
        size,
        extension,
        line_bytes,
    })
}

/// Where in the extensions the next byte stands; RFC 9112 section 7.1.1.
///
/// ```text
/// chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )
///
///  ┌────────────────────────────────';'──────────────────────────────────┐
///  ▼                                                                     │
/// Name start ─token─► Name ─'='─► Value start ─token─► Value ─BWS─► Behind value
///                      │ BWS           │ '"'                             ▲
///                      ▼               ▼                                 │ BWS
///             Behind name ─'='─►    Quoted ◄─'\' and a byte─┘     ─'"'─► Closed
/// ```
///
/// The line may end behind a size, a name or a value. Whitespace may stand before and behind `;` and `=`
/// and nowhere else, so that a line that ends in whitespace is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChunkExtension {
    /// Whitespace behind a size or a value: only `;` may follow.
    BehindValue,
    /// Behind `;`.
    NameStart,
    Name,
    /// Whitespace behind a name.
    BehindName,
    /// Behind `=`.
    ValueStart,
    Value,
    /// Within a quoted value.
    Quoted,
    /// Behind a backslash in a quoted value.
    Escaped,
    /// Behind the closing quote.
    Closed,
}

impl ChunkExtension {
    /// The state that the first byte behind a size leads to.
    fn begin(byte: u8) -> Option<Self> {
        Self::Closed.step(byte)
    }

    /// The state behind one more byte; `None` where the grammar has no place for it.
    fn step(self, byte: u8) -> Option<Self> {
        let is_space = matches!(byte, b' ' | b'\t');
        Some(match (self, byte) {
            // A carriage return or a line feed is no `is_value`: a quoted string cannot span lines.
            (Self::Quoted, b'"') => Self::Closed,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, byte) if is_value(byte) => Self::Quoted,

            (Self::NameStart | Self::ValueStart, _) if is_space => self,
            (Self::NameStart | Self::Name, byte) if is_token(byte) => Self::Name,
            (Self::ValueStart | Self::Value, byte) if is_token(byte) => Self::Value,
            (Self::ValueStart, b'"') => Self::Quoted,

            (Self::Name | Self::BehindName, b'=') => Self::ValueStart,
            (Self::Name | Self::BehindName, b';') => Self::NameStart,
            (Self::Name | Self::BehindName, _) if is_space => Self::BehindName,
            (Self::Value | Self::Closed | Self::BehindValue, b';') => Self::NameStart,
            (Self::Value | Self::Closed | Self::BehindValue, _) if is_space => Self::BehindValue,
            _ => return None,
        })
    }

    /// Whether the line may end here.
    fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::Closed)
    }
}

#[cfg(test)]
mod tests;
