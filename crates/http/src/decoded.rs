//! Decoded heads: the fields of a HEADERS frame, once HPACK has decoded them, become the head of a request.
//!
//! Takes the fields in the order sent, pseudo-header fields first; checks RFC 9113 sections 8.2 and 8.3 on them, then
//! writes the same request as an HTTP/1.1 head and has [`HeadIndex::parse`] judge that as if it had come from the
//! network. Nothing is repaired here, so that no field can become two, and no request can become two, on the way to an
//! application (request smuggling by a downgrade). It must not know frames, and it keeps nothing.

use crate::fields::{is_field_name, is_field_value};
use crate::head::{BodyFraming, HeadIndex, HeadStep, HeadView, Version};
use crate::limits::Limits;
use crate::refusal::{Cause, Refusal};

/// Bytes that each field counts beside its name and value (RFC 9113 section 6.5.2).
pub const FIELD_OVERHEAD_BYTES: usize = 32;

/// Whether bytes of a body follow a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyState {
    /// The request ended with its head.
    Ended,
    /// Its end is told by a frame.
    Open,
}

/// The pseudo-header fields of a request, RFC 9113 section 8.3.1.
#[derive(Default)]
struct Pseudo<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    /// RFC 8441 section 4.
    protocol: Option<&'a [u8]>,
}

/// What the first pass over the fields has found.
#[derive(Default)]
struct DecodedFacts<'a> {
    pseudo: Pseudo<'a>,
    host: Option<&'a [u8]>,
    regular_len: usize,
    /// Bytes as the client counts them.
    list_bytes: usize,
}

impl HeadIndex {
    /// Judges decoded fields, which are gone through twice; on success `block` is the head that this index points into, a whole HTTP/1.1 head with
    /// the version of HTTP/2. A body without a declared length is `Chunked`: its end is told.
    ///
    /// # Errors
    /// Whatever a head of HTTP/1 is refused for, and the rules of RFC 9113 sections 8.2 and 8.3. A status of 400 says
    /// that the request is malformed.
    pub fn parse_decoded<'a, I: Iterator<Item = (&'a [u8], &'a [u8])>>(
        &mut self,
        fields: impl Fn() -> I,
        body: BodyState,
        limits: &Limits,
        block: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let facts = DecodedFacts::of(fields(), limits)?;
        let lines_len = write_head(&facts, fields(), block)?;
        if block.len() > limits.head_bytes_max {
            return Err(Cause::HeadTooLarge.into());
        }
        let step = self.parse(block, &mut 0, limits)?;
        // One head, of as many fields as were written: no byte of a name, a value or a target ended a line.
        if step != HeadStep::Complete
            || self.bytes != block.len()
            || self.headers.len() != lines_len
        {
            return Err(Cause::DecodedForm.into());
        }
        self.version = Version::Http2;
        self.is_websocket = facts.pseudo.protocol.is_some();
        match (body, self.body) {
            (BodyState::Ended, BodyFraming::Length(1..)) => {
                return Err(Cause::LengthWithoutBody.into());
            }
            (BodyState::Open, BodyFraming::None) => {
                self.body = BodyFraming::Chunked;
                // Another expectation is refused above (RFC 9110 section 10.1.1).
                let (bytes, index) = (&block[..], &*self);
                self.expect_continue = HeadView { bytes, index }.header("expect").is_some();
            }
            (_, BodyFraming::None | BodyFraming::Length(_)) => {}
            // Transfer-Encoding is refused above.
            (_, BodyFraming::Chunked) => return Err(Cause::ConnectionField.into()),
        }
        Ok(())
    }
}

/// Whether trailer fields may be accepted: regular fields alone, within the bounds (RFC 9113 section 8.1).
///
/// # Errors
/// The first rule that is broken.
pub fn check_trailers<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    limits: &Limits,
) -> Result<(), Refusal> {
    let (mut bytes, mut len) = (0, 0);
    for (name, value) in fields {
        check_field(name, value)?;
        len += 1;
        bytes += name.len() + value.len() + FIELD_OVERHEAD_BYTES;
        if bytes > limits.trailer_bytes_max || len > limits.headers_len_max {
            return Err(Cause::TrailerTooLarge.into());
        }
    }
    Ok(())
}

impl<'a> DecodedFacts<'a> {
    fn of(
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        limits: &Limits,
    ) -> Result<Self, Cause> {
        let mut facts = Self::default();
        for (name, value) in fields {
            facts.list_bytes += name.len() + value.len() + FIELD_OVERHEAD_BYTES;
            if let Some(pseudo) = name.strip_prefix(b":") {
                facts.note_pseudo(pseudo, value)?;
                continue;
            }
            // Each crumb of a cookie counts: a field of one byte in the compressed block costs a whole one here.
            facts.regular_len += 1;
            if facts.regular_len > limits.headers_len_max {
                return Err(Cause::TooManyFields);
            }
            if name.len() + value.len() > limits.header_bytes_max {
                return Err(Cause::FieldTooLarge);
            }
            check_field(name, value)?;
            // A repeated one is refused by the judge of the head, which gets both unless `:authority` replaces them.
            if name == b"host" && facts.host.replace(value).is_some() {
                return Err(Cause::HostRepeated);
            }
        }
        let overhead_bytes = FIELD_OVERHEAD_BYTES * (limits.headers_len_max + 4);
        if facts.list_bytes > limits.head_bytes_max.saturating_add(overhead_bytes) {
            return Err(Cause::HeadTooLarge);
        }
        Ok(facts)
    }

    /// RFC 9113 section 8.3: known ones, once, before all others, and none that belongs to responses.
    fn note_pseudo(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Cause> {
        let place = match name {
            b"method" => &mut self.pseudo.method,
            b"scheme" => &mut self.pseudo.scheme,
            b"authority" => &mut self.pseudo.authority,
            b"path" => &mut self.pseudo.path,
            b"protocol" => &mut self.pseudo.protocol,
            _ => return Err(Cause::PseudoField),
        };
        match self.regular_len == 0 && place.replace(value).is_none() {
            true => Ok(()),
            false => Err(Cause::PseudoField),
        }
    }
}

/// Appends the head; gives the number of its field lines.
fn write_head<'a>(
    facts: &DecodedFacts<'a>,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    block: &mut Vec<u8>,
) -> Result<usize, Cause> {
    let Pseudo {
        method,
        scheme,
        authority,
        path,
        protocol,
    } = facts.pseudo;
    let mut method = method.ok_or(Cause::PseudoField)?;
    match (method == b"CONNECT", protocol) {
        (false, None) => {}
        // RFC 8441 section 4: with a scheme, a path and an authority, as other requests. It is none without a body.
        (true, Some(b"websocket")) if authority.is_some() => method = b"GET",
        (true, Some(b"websocket")) | (false, Some(_)) => return Err(Cause::PseudoField),
        (true, Some(_)) => return Err(Cause::MethodConnect),
        // RFC 9113 section 8.5: neither scheme nor path.
        (true, None) => {
            return Err(match (scheme, path) {
                (None, None) => Cause::MethodConnect,
                _ => Cause::PseudoField,
            });
        }
    }
    // RFC 9113 section 8.3.1: one of each, the scheme too, although only the listener knows what is true.
    if scheme.is_none_or(<[u8]>::is_empty) {
        return Err(Cause::PseudoField);
    }
    let path = path.ok_or(Cause::PseudoField)?;
    // Absolute targets belong to HTTP/1: the authority has a field of its own.
    if !(path.starts_with(b"/") || path == b"*") {
        return Err(Cause::TargetForm);
    }
    let is_other = |host: &[u8]| authority.is_some_and(|it| !it.eq_ignore_ascii_case(host));
    if facts.host.is_some_and(is_other) {
        return Err(Cause::HostDiffers);
    }
    block.clear();
    for part in [method, b" ", path, b" HTTP/1.1\r\n"] {
        block.extend_from_slice(part);
    }
    let mut lines_len = 0;
    let mut push = |block: &mut Vec<u8>, name: &[u8], value: &[u8]| {
        for part in [name, b": ", value, b"\r\n"] {
            block.extend_from_slice(part);
        }
        lines_len += 1;
    };
    if let Some(authority) = authority {
        push(block, b"host", authority);
    }
    let mut cookie = Vec::new();
    for (name, value) in fields {
        match name {
            [b':', ..] => {}
            b"host" if authority.is_some() => {}
            // RFC 9113 section 8.2.3: one field for those that do not know of crumbs.
            b"cookie" => {
                if !cookie.is_empty() {
                    cookie.extend_from_slice(b"; ");
                }
                cookie.extend_from_slice(value);
            }
            _ => push(block, name, value),
        }
    }
    if !cookie.is_empty() {
        push(block, b"cookie", &cookie);
    }
    block.extend_from_slice(b"\r\n");
    Ok(lines_len)
}

/// RFC 9113 sections 8.2.1 and 8.2.2: lower-case names, values without blanks at their ends, nothing about the
/// connection.
fn check_field(name: &[u8], value: &[u8]) -> Result<(), Cause> {
    if !is_field_name(name) || name.iter().any(u8::is_ascii_uppercase) {
        return Err(Cause::FieldNameByte);
    }
    let is_blank = |end: Option<&u8>| matches!(end, Some(b' ' | b'\t'));
    if !is_field_value(value) || is_blank(value.first()) || is_blank(value.last()) {
        return Err(Cause::FieldValueByte);
    }
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            Err(Cause::ConnectionField)
        }
        b"te" if !value.eq_ignore_ascii_case(b"trailers") => Err(Cause::ConnectionField),
        _ => Ok(()),
    }
}

/// Whether a field of a response stays out of HTTP/2 because it is about an HTTP/1 connection (RFC 9113 section 8.2.2).
/// `name` is in any case.
pub fn is_connection_field(name: &[u8]) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    match name.len() {
        7 => is("upgrade"),
        10 => is("connection") || is("keep-alive"),
        16 => is("proxy-connection"),
        17 => is("transfer-encoding"),
        _ => false,
    }
}

/// Whether a field may stand behind the body of a response. RFC 9110 section 6.5.1 keeps out what a client needs before
/// it reads the body: framing, routing, authentication, control of the response, and what the body is. `name` is in any
/// case.
pub fn is_trailer_name(name: &[u8]) -> bool {
    const HEADERS_ONLY: [&str; 28] = [
        "age",
        "authorization",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "cookie",
        "date",
        "expect",
        "expires",
        "host",
        "keep-alive",
        "location",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "retry-after",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "vary",
        "via",
        "warning",
        "www-authenticate",
    ];
    let is = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    !HEADERS_ONLY.iter().any(is)
}

#[cfg(test)]
mod tests;
