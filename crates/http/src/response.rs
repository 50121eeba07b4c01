//! What a response is framed with: its status line, its field lines, the choice between a length, chunks and the
//! connection's end (RFC 9112 section 6), and what stands around chunks.
//!
//! Takes statuses, names, values and lengths, gives bytes; no byte of a body passes through here. Field lines are
//! `Name: value\r\n`, one behind the other, finished and checked: HTTP/1 copies them whole, any other protocol
//! iterates. This is the only place that writes a line end behind a field, so that no producer can let one field
//! become two. It must not know which fields there are, what they mean, or when a status is sent.
//!
//! Every [`Fields`] holds whole lines and nothing else: a name that is a
//! token, a colon, a space, a value without CR, LF and NUL, and CRLF.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use memchr::memchr;

use crate::fields::{is_field_name, is_field_value, is_value, trim};
use crate::head::Version;

/// The interim reply that lets a client send its body, RFC 9110 section 15.2.1.
pub const CONTINUE_100: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What follows a chunk's data.
pub const CHUNK_SUFFIX: &[u8] = b"\r\n";

/// What ends a chunked body, without trailers. It is sent only when the whole body has been: a cut body
/// must not look complete.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The end of a chunk's data and of the chunked body in one.
pub const CHUNK_SUFFIX_AND_LAST: &[u8] = b"\r\n0\r\n\r\n";

const DIGITS_MAX: usize = 16;

/// The most digits that a `u64` has.
const DECIMAL_BYTES_MAX: usize = 20;

/// What separates name and value.
const SEPARATOR: &[u8] = b": ";
/// What ends a line, and a head.
pub(crate) const LINE_END: &[u8] = b"\r\n";
/// Bytes of a line beside its name and its value.
const FRAME_BYTES: usize = SEPARATOR.len() + LINE_END.len();
/// Bytes of the first allocation of field lines.
const FIRST_BYTES: usize = 256;

/// What decides a reply's framing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyFacts {
    /// Version of the request.
    pub version: Version,
    /// Whether the request's method is HEAD.
    pub method_is_head: bool,
    /// Status of the reply.
    pub status: u16,
    /// Length of the body in bytes, declared or known.
    pub content_length: Option<u64>,
    /// Whether the connection may live on: the request's wish and ours.
    pub keep_alive: bool,
}

/// How the client finds the end of the reply's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyFraming {
    /// Reply to HEAD, 1xx, 204 or 304: ends with its head, nothing may follow.
    NoBody,
    /// That many bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// Everything up to the end of the connection.
    UntilClose,
}

/// A reply's framing and what becomes of the connection after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyPlan {
    /// How the body ends.
    pub framing: ReplyFraming,
    /// Whether the connection lives on; never with [`ReplyFraming::UntilClose`].
    pub keep_alive: bool,
}

/// Decides the framing, RFC 9112 section 6.3: no body where none may be, a length where one is known, else
/// chunked for 1.1 and the end of the connection for 1.0.
pub fn plan_reply(facts: &ReplyFacts) -> ReplyPlan {
    let framing = match (facts.content_length, facts.version) {
        _ if facts.method_is_head || matches!(facts.status, 100..=199 | 204 | 304) => {
            ReplyFraming::NoBody
        }
        (Some(length), _) => ReplyFraming::Length(length),
        // HTTP/2 has frames in the place of chunks, and its end is told as theirs is.
        (None, Version::Http11 | Version::Http2) => ReplyFraming::Chunked,
        (None, Version::Http10) => ReplyFraming::UntilClose,
    };
    ReplyPlan {
        framing,
        keep_alive: facts.keep_alive && framing != ReplyFraming::UntilClose,
    }
}

/// Ends the head of a reply with this plan: appends Connection, Content-Length (`length`, where the reply's own
/// fields do not tell it) or Transfer-Encoding, and the empty line. HTTP/1.0 clients must be told that the
/// connection lives on, 1.1 clients that it does not.
///
/// A reply without a body gets neither of the last two fields. In a reply to HEAD (and in a 304) Content-Length
/// may tell what GET would have sent, among the reply's own fields.
pub fn end_head(out: &mut Vec<u8>, plan: &ReplyPlan, version: Version, length: Option<u64>) {
    // RFC 9112 section 9.3.
    match (plan.keep_alive, version) {
        (true, Version::Http11 | Version::Http2) => {}
        (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
    }
    if plan.framing == ReplyFraming::Chunked {
        write_chunked(out);
    }
    if let Some(length) = length {
        write_content_length(out, length);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a Content-Length field.
pub(crate) fn write_content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    write_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Appends the Transfer-Encoding field of a chunked body.
pub(crate) fn write_chunked(out: &mut Vec<u8>) {
    out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
}

macro_rules! statuses {
    ($($status:literal $reason:literal,)*) => {
        /// The registered reason phrase of `status`, RFC 9110 section 15; empty for an unregistered one.
        pub fn reason(status: u16) -> &'static str {
            match status { $($status => $reason,)* _ => "" }
        }

        /// The whole line, for a registered status.
        fn line(status: u16) -> Option<&'static [u8]> {
            match status {
                $($status => {
                    Some(concat!("HTTP/1.1 ", stringify!($status), " ", $reason, "\r\n").as_bytes())
                })*
                _ => None,
            }
        }
    };
}

statuses! {
    200 "OK",
    100 "Continue",
    101 "Switching Protocols",
    102 "Processing",
    103 "Early Hints",
    201 "Created",
    202 "Accepted",
    203 "Non-Authoritative Information",
    204 "No Content",
    205 "Reset Content",
    206 "Partial Content",
    207 "Multi-Status",
    208 "Already Reported",
    226 "IM Used",
    300 "Multiple Choices",
    301 "Moved Permanently",
    302 "Found",
    303 "See Other",
    304 "Not Modified",
    305 "Use Proxy",
    307 "Temporary Redirect",
    308 "Permanent Redirect",
    400 "Bad Request",
    401 "Unauthorized",
    402 "Payment Required",
    403 "Forbidden",
    404 "Not Found",
    405 "Method Not Allowed",
    406 "Not Acceptable",
    407 "Proxy Authentication Required",
    408 "Request Timeout",
    409 "Conflict",
    410 "Gone",
    411 "Length Required",
    412 "Precondition Failed",
    413 "Content Too Large",
    414 "URI Too Long",
    415 "Unsupported Media Type",
    416 "Range Not Satisfiable",
    417 "Expectation Failed",
    418 "I'm a teapot",
    421 "Misdirected Request",
    422 "Unprocessable Content",
    423 "Locked",
    424 "Failed Dependency",
    425 "Too Early",
    426 "Upgrade Required",
    428 "Precondition Required",
    429 "Too Many Requests",
    431 "Request Header Fields Too Large",
    451 "Unavailable For Legal Reasons",
    500 "Internal Server Error",
    501 "Not Implemented",
    502 "Bad Gateway",
    503 "Service Unavailable",
    504 "Gateway Timeout",
    505 "HTTP Version Not Supported",
    506 "Variant Also Negotiates",
    507 "Insufficient Storage",
    508 "Loop Detected",
    511 "Network Authentication Required",
}

/// Appends the status line of `status` with its registered reason: `HTTP/1.1 200 OK\r\n`. An unregistered
/// status gets an empty reason; one that has not three digits is written as 500, because no client could
/// read it.
pub fn write_status_line(out: &mut Vec<u8>, status: u16) {
    match line(status) {
        Some(line) => out.extend_from_slice(line),
        None => write_status_line_with(out, status, b""),
    }
}

/// Appends a status line with the handler's own reason. A reason with a control character in it is
/// replaced by the registered one, so that no handler can be talked into a second line by it.
pub fn write_status_line_with(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    if !(100..=999).contains(&status) {
        return write_status_line(out, 500);
    }
    let reason = if reason.iter().copied().all(is_value) {
        reason
    } else {
        self::reason(status).as_bytes()
    };
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// The head of a response that changes the protocol of its connection, RFC 9110 section 15.2.2; `fields` name the
/// protocol.
pub fn switching_protocols(fields: &FieldLines) -> Vec<u8> {
    let mut head = Vec::with_capacity(64 + fields.as_bytes().len());
    write_status_line(&mut head, 101);
    head.extend_from_slice(fields.as_bytes());
    head.extend_from_slice(b"\r\n");
    head
}

/// Whole field lines in a buffer of either kind.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields<B>(B);

/// Field lines that are being written; reusable by [`clear`](Fields::clear).
pub type FieldLines = Fields<Vec<u8>>;

/// Finished field lines, cheap to clone.
pub type SharedFields = Fields<Bytes>;

/// The part of a field that cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidField {
    /// The name is no token, RFC 9110 section 5.6.2.
    Name,
    /// The value holds a control character, RFC 9110 section 5.5.
    Value,
}

impl FieldLines {
    /// No lines.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// No lines, and room for `bytes` bytes of them.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Appends a line of the server's own. Bytes from outside go through [`FieldLines::try_push`].
    ///
    /// # Panics
    /// When `name` is no token, or `value` holds CR, LF or NUL.
    #[inline]
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_parts(name, &[value]);
    }

    /// Appends a line of the server's own whose value is `parts`, one behind the other.
    ///
    /// # Panics
    /// As [`FieldLines::push`].
    pub fn push_parts(&mut self, name: &[u8], parts: &[&[u8]]) {
        let value_bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.begin(name, value_bytes);
        for part in parts {
            assert!(is_one_line(part), "a field's value must be one line");
            self.0.extend_from_slice(part);
        }
        self.0.extend_from_slice(LINE_END);
    }

    /// Appends a line of the server's own whose value is a number.
    ///
    /// # Panics
    /// When `name` is no token.
    pub fn push_decimal(&mut self, name: &[u8], value: u64) {
        self.begin(name, DECIMAL_BYTES_MAX);
        write_decimal(&mut self.0, value);
        self.0.extend_from_slice(LINE_END);
    }

    /// Appends a line whose name and value may be anything.
    ///
    /// # Errors
    /// What of them cannot stand in a field; nothing has been appended then.
    #[inline]
    pub fn try_push(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
        if !is_field_name(name) {
            return Err(InvalidField::Name);
        }
        if !is_field_value(value) {
            return Err(InvalidField::Value);
        }
        if self.0.capacity() == 0 {
            // A head has several lines: line by line, the first ones would be moved again and again.
            self.0.reserve(FIRST_BYTES);
        }
        self.0.reserve(name.len() + value.len() + FRAME_BYTES);
        push_line(&mut self.0, name, &[value]);
        Ok(())
    }

    /// Appends all lines of `other`.
    pub fn append(&mut self, other: &Fields<impl Deref<Target = [u8]>>) {
        self.0.extend_from_slice(&other.0);
    }

    /// Takes every line of `name` out, and appends one with this value; a line of the server's own.
    ///
    /// # Panics
    /// As [`FieldLines::push`].
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.retain(|known, _| !known.eq_ignore_ascii_case(name));
        self.push(name, value);
    }

    /// Keeps the lines for whose name and value `keep` gives true, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut kept = 0;
        let mut start = 0;
        while let Some(line) = first_line(&self.0[start..]) {
            let bytes = line.bytes;
            if keep(line.name, line.value) {
                // Until a line is left out, each one stands where it belongs.
                if kept != start {
                    self.0.copy_within(start..start + bytes, kept);
                }
                kept += bytes;
            }
            start += bytes;
        }
        self.0.truncate(kept);
    }

    /// Takes all lines out; their memory stays.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Ends the writing. The memory is cut to size: some of these are kept as long as the process.
    pub fn freeze(self) -> SharedFields {
        Fields(Bytes::from(self.0.into_boxed_slice()))
    }

    fn begin(&mut self, name: &[u8], value_bytes: usize) {
        assert!(is_field_name(name), "a field's name must be a token");
        self.0.reserve(name.len() + value_bytes + FRAME_BYTES);
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(SEPARATOR);
    }
}

impl SharedFields {
    /// Names and values in their order; the values in the same memory.
    pub fn iter_shared(&self) -> impl Iterator<Item = (&[u8], Bytes)> {
        self.iter()
            .map(|(name, value)| (name, self.0.slice_ref(value)))
    }

    /// The lines behind the first `len`, in the same memory.
    pub fn skip(&self, len: usize) -> SharedFields {
        let mut start = 0;
        for _ in 0..len {
            start += first_line(&self.0[start..]).map_or(0, |line| line.bytes);
        }
        Fields(self.0.slice(start..))
    }
}

impl<B: Deref<Target = [u8]>> Fields<B> {
    /// Names and values in their order, without the whitespace around values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let line = first_line(rest)?;
            rest = &rest[line.bytes..];
            Some((line.name, line.value))
        })
    }

    /// The value of the first field of this name, in any case.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The lines as HTTP/1 sends them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<B: Deref<Target = [u8]>> fmt::Debug for Fields<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        let fields = self.iter().map(|(name, value)| (text(name), text(value)));
        f.debug_list().entries(fields).finish()
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidField::Name => "a field's name must be a token of RFC 9110 section 5.6.2",
            InvalidField::Value => "a field's value must not contain control characters",
        })
    }
}

impl std::error::Error for InvalidField {}

struct Line<'a> {
    name: &'a [u8],
    value: &'a [u8],
    /// Length of the whole.
    bytes: usize,
}

/// The first of `lines`, which are finished.
fn first_line(lines: &[u8]) -> Option<Line<'_>> {
    // No name holds a colon, no value a line feed: the first of each is ours.
    let colon = memchr(b':', lines)?;
    let value_start = colon + SEPARATOR.len();
    let line_feed = value_start + memchr(b'\n', &lines[value_start..])?;
    let bytes = line_feed + 1;
    Some(Line {
        name: &lines[..colon],
        value: trim(&lines[value_start..bytes - LINE_END.len()]),
        bytes,
    })
}

/// Appends a line whose name and value, which is `parts` one behind the other, have been checked.
#[inline]
pub(crate) fn push_line(out: &mut Vec<u8>, name: &[u8], parts: &[&[u8]]) {
    out.extend_from_slice(name);
    out.extend_from_slice(SEPARATOR);
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(LINE_END);
}

/// Whether `value` can neither end its line nor, as NUL does in some recipients, itself.
fn is_one_line(value: &[u8]) -> bool {
    // Without a branch per byte, so that the compiler makes vectors of it.
    !value.iter().fold(false, |bad, &byte| {
        bad | (byte == b'\r') | (byte == b'\n') | (byte == 0)
    })
}

/// Appends a number in decimal.
fn write_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; DECIMAL_BYTES_MAX];
    let mut start = DECIMAL_BYTES_MAX;
    let mut left = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// The size line before a chunk's data.
#[derive(Clone, Copy, Debug)]
pub struct ChunkPrefix {
    bytes: [u8; DIGITS_MAX + 2],
    start: usize,
}

impl ChunkPrefix {
    /// The line, its CRLF included: `1f4\r\n`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// The size line before `len` bytes of data. `len` 0 would end the body: skip empty pieces instead;
/// panics for it.
pub fn chunk_prefix(len: usize) -> ChunkPrefix {
    assert!(len > 0, "an empty chunk ends the body");
    let mut bytes = [b'\n'; DIGITS_MAX + 2];
    bytes[DIGITS_MAX] = b'\r';
    let mut start = DIGITS_MAX;
    let mut left = len;
    while left > 0 {
        start -= 1;
        bytes[start] = b"0123456789abcdef"[left & 0xf];
        left >>= 4;
    }
    ChunkPrefix { bytes, start }
}

#[cfg(test)]
mod tests;
