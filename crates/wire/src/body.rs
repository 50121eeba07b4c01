//! A request's body on its way in: counts a declared length, takes chunked coding apart.
//!
//! Takes slices as they arrive, gives the ranges of them that are payload. It must not copy payload, hold
//! any, or read past the body's last byte: what follows belongs to the next request.

use std::ops::Range;

use crate::chunk_extension::ChunkExtension;
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
}

impl BodyDecoder {
    /// A decoder at the first byte of a body. Refuses a declared length over `body_bytes_max` before any
    /// of it is read (413).
    pub fn new(framing: BodyFraming, limits: &Limits) -> Result<Self, Refusal> {
        let state = match framing {
            BodyFraming::None | BodyFraming::Length(0) => State::Done,
            BodyFraming::Length(length) if length > limits.body_bytes_max => {
                return Err(Cause::BodyTooLarge.into());
            }
            BodyFraming::Length(length) => State::Length { left: length },
            BodyFraming::Chunked => State::NEXT_CHUNK,
        };
        Ok(BodyDecoder {
            state,
            bytes_out: 0,
            body_bytes_max: limits.body_bytes_max,
            chunk_line_bytes_max: limits.chunk_line_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
        })
    }

    /// Decodes what it can of `input`: up to the end of the first stretch of payload. Call again with the
    /// rest while `consumed > 0` and not done.
    ///
    /// A chunk that would take the body over `body_bytes_max` is refused at its size line (413). Trailers
    /// are checked like fields and dropped.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, Refusal> {
        let mut consumed = 0;
        while let Some(&byte) = input.get(consumed) {
            match self.state {
                State::Done => break,
                State::Length { left } | State::Data { left } => {
                    let data = consumed..consumed + self.take(left, input.len() - consumed);
                    return Ok(Decoded {
                        consumed: data.end,
                        data,
                    });
                }
                state => {
                    self.state = self.step(state, byte)?;
                    consumed += 1;
                }
            }
        }
        Ok(Decoded {
            consumed,
            data: consumed..consumed,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            body_bytes_max: 1 << 20,
            chunk_line_bytes_max: 24,
            trailer_bytes_max: 16,
            ..Limits::default()
        }
    }

    /// Payload, bytes consumed, whether the body is done; the input in pieces of `piece` bytes.
    fn decode(
        framing: BodyFraming,
        input: &[u8],
        piece: usize,
    ) -> Result<(String, usize, bool), Cause> {
        let mut decoder = BodyDecoder::new(framing, &limits()).map_err(|refusal| refusal.cause)?;
        let mut payload = Vec::new();
        let mut consumed = 0;
        for end in (0..=input.len()).step_by(piece).chain([input.len()]) {
            loop {
                let rest = &input[consumed..end.max(consumed)];
                let step = decoder.decode(rest).map_err(|refusal| refusal.cause)?;
                payload.extend_from_slice(&rest[step.data.clone()]);
                assert!(step.data.end <= step.consumed && step.consumed <= rest.len());
                consumed += step.consumed;
                if step.consumed == 0 {
                    break;
                }
            }
        }
        assert_eq!(decoder.bytes_out(), payload.len() as u64);
        let payload = String::from_utf8(payload).expect("the tests' payload is text");
        Ok((payload, consumed, decoder.is_done()))
    }

    fn check(framing: BodyFraming, input: &str, expect: Result<(&str, usize, bool), Cause>) {
        let expect = expect.map(|(payload, consumed, done)| (payload.to_owned(), consumed, done));
        for piece in [input.len().max(1), 1, 2, 3, 7] {
            let got = decode(framing, input.as_bytes(), piece);
            assert_eq!(got, expect, "{input:?} in pieces of {piece}");
        }
    }

    fn check_chunked(input: &str, expect: Result<(&str, usize, bool), Cause>) {
        check(BodyFraming::Chunked, input, expect);
    }

    #[test]
    fn counts_a_declared_length_and_leaves_the_rest() {
        check(BodyFraming::None, "GET", Ok(("", 0, true)));
        check(BodyFraming::Length(0), "GET", Ok(("", 0, true)));
        check(BodyFraming::Length(3), "", Ok(("", 0, false)));
        check(BodyFraming::Length(3), "ab", Ok(("ab", 2, false)));
        check(BodyFraming::Length(3), "abcGET", Ok(("abc", 3, true)));
    }

    #[test]
    fn refuses_a_declared_length_over_the_bound_at_once() {
        check(
            BodyFraming::Length((1 << 20) + 1),
            "",
            Err(Cause::BodyTooLarge),
        );
        check(BodyFraming::Length(u64::MAX), "", Err(Cause::BodyTooLarge));
        check(BodyFraming::Length(1 << 20), "", Ok(("", 0, false)));
    }

    #[test]
    fn takes_chunks_apart_and_leaves_the_rest() {
        check_chunked("0\r\n\r\nGET", Ok(("", 5, true)));
        check_chunked("5\r\nhello\r\n0\r\n\r\nGET", Ok(("hello", 15, true)));
        check_chunked(
            "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
            Ok(("hello world", 26, true)),
        );
        check_chunked(
            "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
            Ok(("01234567890123456789", 35, true)),
        );
        check_chunked(
            "0000000000000005\r\nhello\r\n00\r\n\r\n",
            Ok(("hello", 31, true)),
        );
        check_chunked("5\r\nhel", Ok(("hel", 6, false)));
        check_chunked("2\r\n\r\n\r\n0\r\n\r\n", Ok(("\r\n", 12, true)));
    }

    #[test]
    fn skips_extensions_within_their_bound() {
        check_chunked("1;a=b\r\nx\r\n0;c\r\n\r\n", Ok(("x", 17, true)));
        check_chunked("1; a = \"b c\"\r\nx\r\n0\r\n\r\n", Ok(("x", 22, true)));
        check_chunked("1 ;a;b=\"\\\"\"\r\nx\r\n0\t;c\r\n\r\n", Ok(("x", 24, true)));
        let fits = format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(20));
        check_chunked(&fits, Ok(("x", fits.len(), true)));
        check_chunked(
            &format!("1;{}\r\nx", "a".repeat(21)),
            Err(Cause::ChunkLineTooLong),
        );
        check_chunked(
            &format!("1;{}", "a".repeat(99)),
            Err(Cause::ChunkLineTooLong),
        );
    }

    #[test]
    fn refuses_malformed_size_lines() {
        for (input, cause) in [
            ("\r\n", Cause::ChunkSize),
            (";a\r\n", Cause::ChunkSize),
            ("g\r\n", Cause::ChunkSize),
            ("+5\r\n", Cause::ChunkSize),
            ("-5\r\n", Cause::ChunkSize),
            (" 5\r\n", Cause::ChunkSize),
            ("\n5\r\n", Cause::ChunkSize),
            ("00000000000000005\r\n", Cause::ChunkSize),
            ("fffffffffffffffff\r\n", Cause::ChunkSize),
            ("0x5\r\n", Cause::ChunkExtensionForm),
            ("5 \r\n", Cause::ChunkExtensionForm),
            ("5\t\r\n", Cause::ChunkExtensionForm),
            ("5_0\r\n", Cause::ChunkExtensionForm),
            ("5\nhello", Cause::ChunkExtensionForm),
            ("5\rhello", Cause::ChunkExtensionForm),
            ("5;\r\n", Cause::ChunkExtensionForm),
            ("5;;\r\n", Cause::ChunkExtensionForm),
            ("5;=b\r\n", Cause::ChunkExtensionForm),
            ("5;a=\r\n", Cause::ChunkExtensionForm),
            ("5;a=b;\r\n", Cause::ChunkExtensionForm),
            ("5;a=b,c\r\n", Cause::ChunkExtensionForm),
            ("5;a=\"b\r\n", Cause::ChunkExtensionForm),
            ("5;a=\"b\r\n\"\r\n", Cause::ChunkExtensionForm),
            ("5;a=\"b\\\r\n", Cause::ChunkExtensionForm),
            ("5;a \r\n", Cause::ChunkExtensionForm),
            ("0;\r\n\r\n", Cause::ChunkExtensionForm),
            ("5;a\nhello", Cause::ChunkExtensionForm),
            ("5;a\rb\r\n", Cause::ChunkExtensionForm),
            ("5;\0\r\n", Cause::ChunkExtensionForm),
            ("5;\x7f\r\n", Cause::ChunkExtensionForm),
        ] {
            check_chunked(input, Err(cause));
        }
    }

    #[test]
    fn refuses_data_without_its_line_end() {
        for input in [
            "1\r\nxx",
            "1\r\nx\n",
            "1\r\nx\rx",
            "1\r\nx0\r\n\r\n",
            "1\r\nx\r\r\n",
        ] {
            check_chunked(input, Err(Cause::ChunkEnd));
        }
    }

    #[test]
    fn refuses_chunks_over_the_bound_before_their_data() {
        check_chunked("100001\r\n", Err(Cause::BodyTooLarge));
        check_chunked("ffffffffffffffff\r\n", Err(Cause::BodyTooLarge));
        check_chunked("1\r\nx\r\nffffffffffffffff\r\n", Err(Cause::BodyTooLarge));
        check_chunked("1\r\nx\r\n100000\r\n", Err(Cause::BodyTooLarge));
        check_chunked("100000\r\nx", Ok(("x", 9, false)));
    }

    #[test]
    fn drops_trailers_and_holds_them_to_the_rules_of_fields() {
        check_chunked("0\r\na: b\r\n\r\nGET", Ok(("", 11, true)));
        check_chunked("0\r\na:\r\nb:c\r\n\r\n", Ok(("", 14, true)));
        check_chunked("0\r\na: 4567890123\r\n\r\n", Err(Cause::TrailerTooLarge));
        check_chunked("0\r\na: 456789012\r\n\r\n", Ok(("", 19, true)));
        for trailers in [
            "\n",
            "\rx",
            ":\r\n",
            "a\r\n",
            "a : b\r\n",
            " a: b\r\n",
            "a: b\n",
            "a: b\r\r",
            "a: \0",
            "a: b\r\n\n",
            "a: b\r\n c\r\n",
            "a\x7f",
            "\u{e9}: a",
        ] {
            check_chunked(&format!("0\r\n{trailers}"), Err(Cause::TrailerByte));
        }
    }
}
