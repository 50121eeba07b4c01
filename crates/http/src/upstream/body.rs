//! The body of an upstream's response: a length counted, chunks taken apart, or everything up to the connection's end.
//!
//! Takes slices as they arrive, gives the ranges of them that are payload; keeps trailer fields, within their bound, and
//! nothing else. It must not read past the body's last byte: what stands there belongs to no exchange, and a connection
//! that has it is thrown away.

use crate::body::{BodyDecoder, Decoded};
use crate::decoded::{is_connection_field, is_trailer_name};
use crate::fields::{is_token, trim};
use crate::head::BodyFraming;
use crate::limits::Limits;
use crate::reply_head::ReplyBody;
use crate::response::FieldLines;

use super::fault::UpstreamFault;

/// The decoder of one response's body.
#[derive(Clone, Debug)]
pub struct UpstreamBody {
    end: BodyEnd,
    /// The lines of the trailer section, without its empty one.
    trailers: Vec<u8>,
}

/// How the end is found.
#[derive(Clone, Debug)]
enum BodyEnd {
    Told(BodyDecoder),
    /// By the end of the connection, which has not come.
    UntilClose,
    Closed,
}

impl UpstreamBody {
    /// A decoder at the first byte behind a head. `limits` bounds size lines and the trailer section; the length of the
    /// body is not bounded.
    pub fn new(body: ReplyBody, limits: &Limits) -> Self {
        let framing = match body {
            ReplyBody::None => Some(BodyFraming::None),
            ReplyBody::Length(length) => Some(BodyFraming::Length(length)),
            ReplyBody::Chunked => Some(BodyFraming::Chunked),
            ReplyBody::UntilClose => None,
        };
        let told = framing.map(|framing| BodyEnd::Told(BodyDecoder::unbounded(framing, limits)));
        UpstreamBody {
            end: told.unwrap_or(BodyEnd::UntilClose),
            trailers: Vec::new(),
        }
    }

    /// Decodes what it can of `input`: up to the end of the first stretch of payload. Call again with the rest while
    /// `consumed > 0` and not done. Bytes that are left over once it is done are excess: the connection cannot be used
    /// further, whatever the head said.
    ///
    /// # Errors
    /// The rule that was broken; the body is cut there.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, UpstreamFault> {
        let decoder = match &mut self.end {
            BodyEnd::Told(decoder) => decoder,
            BodyEnd::UntilClose => {
                return Ok(Decoded {
                    consumed: input.len(),
                    data: 0..input.len(),
                    trailers: input.len()..input.len(),
                });
            }
            BodyEnd::Closed => {
                return Ok(Decoded {
                    consumed: 0,
                    data: 0..0,
                    trailers: 0..0,
                });
            }
        };
        let decoded = decoder.decode(input).map_err(|refusal| refusal.cause)?;
        let trailers = &input[decoded.trailers.clone()];
        // Most sections are an empty line, which is worth no memory.
        if !self.trailers.is_empty() || trailers.first().copied().is_some_and(is_token) {
            self.trailers.extend_from_slice(trailers);
        }
        Ok(decoded)
    }

    /// The upstream has closed its connection, or it has failed.
    ///
    /// # Errors
    /// The body has not ended, so that the client must not see a complete one.
    pub fn close(&mut self) -> Result<(), UpstreamFault> {
        if let BodyEnd::UntilClose = self.end {
            self.end = BodyEnd::Closed;
        }
        match self.is_done() {
            true => Ok(()),
            false => Err(UpstreamFault::BodyCut),
        }
    }

    /// Whether the body has ended.
    pub fn is_done(&self) -> bool {
        match &self.end {
            BodyEnd::Told(decoder) => decoder.is_done(),
            BodyEnd::UntilClose => false,
            BodyEnd::Closed => true,
        }
    }

    /// The trailer fields that are meant for the client, once the body has ended; those that may stand in a head alone
    /// are left out (RFC 9110 section 6.5.1).
    pub fn trailers(&self) -> FieldLines {
        let mut fields = FieldLines::new();
        if !self.is_done() {
            return fields;
        }
        for line in self.trailers.split(|&byte| byte == b'\n') {
            // The decoder has held each line to `token ":" value CR`.
            let Some(colon) = memchr::memchr(b':', line) else {
                continue;
            };
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            let value = trim(value.strip_suffix(b"\r").unwrap_or(value));
            if is_trailer_name(name) && !is_connection_field(name) {
                // What cannot be a field is no loss.
                let _ = fields.try_push(name, value);
            }
        }
        fields
    }
}

#[cfg(test)]
mod tests;
