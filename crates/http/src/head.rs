//! One request head: as offsets into the bytes it was parsed from, as a borrowed look, and as an owned
//! value that moves with its exchange.
//!
//! Takes the bytes of a connection, gives a [`HeadIndex`] or a [`Refusal`]: reads the request line (method,
//! the four forms of a target, version) and has `fields` read the lines behind it. Every fault is decided by
//! the bytes before it, so that a head is refused alike however it was cut; what arrives in pieces or has a
//! fault goes through `scan`. It must not read past the head's end, and it must not keep anything of a
//! connection: what a later call needs is the caller's `seen`.

use memchr::{memchr, memchr_iter};

use crate::fields::{self, Marks, TargetBytes, is_host, is_token};
use crate::limits::Limits;
use crate::refusal::{Cause, Refusal};
use crate::response::FieldLines;
use crate::scan;

/// Longest method that is read as one; the longest registered one has 17 bytes.
const METHOD_BYTES_MAX: usize = 32;

/// Version of a request, RFC 9112 section 2.3; a minor version above 1 is read as 1.1. In the order of versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2: its head is written as one of HTTP/1.1.
    Http2,
}

/// The methods that some part of the server asks about; methods are case-sensitive, RFC 9110 section 9.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "named by the methods themselves")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Patch,
    Trace,
    /// Any other token of at most 32 bytes, but never CONNECT, which is refused.
    #[default]
    Other,
}

impl Method {
    fn of(bytes: &[u8]) -> Method {
        match bytes {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            _ => Method::Other,
        }
    }
}

/// The scheme of an absolute target, RFC 9112 section 3.2.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "named by the schemes themselves")]
pub enum Scheme {
    Http,
    Https,
}

/// How the end of a request's body is found, RFC 9112 section 6.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BodyFraming {
    /// Neither Content-Length nor Transfer-Encoding: no body.
    #[default]
    None,
    /// That many bytes; 0 when the client said so.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// A range of bytes of the buffer that a head was parsed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes of this span. `buf` starts where the parsed buffer started. Panics when `buf` is shorter.
    #[inline]
    pub fn of<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        &buf[self.start as usize..self.end as usize]
    }

    /// Offsets fit, because no more than 4 GiB of a buffer are ever looked at for a head.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span {
            start: start as u32,
            end: end as u32,
        }
    }

    #[inline]
    pub(crate) fn at(start: usize, bytes: usize) -> Span {
        Span::new(start, start + bytes)
    }
}

/// One field line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeaderSpan {
    /// The name as sent: a token, in any case.
    pub name: Span,
    /// The value without the whitespace around it; may be empty, may hold bytes above 0x7f.
    pub value: Span,
}

/// Everything known of one request head, as offsets into the bytes it was parsed from.
///
/// Made to be reused: a parse clears it and allocates only when a head has more fields than every head
/// before it (or more than 32). Its content is meaningful after [`HeadStep::Complete`] only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeadIndex {
    /// The method, for comparisons.
    pub method: Method,
    /// The method as sent.
    pub method_span: Span,
    /// The target as sent.
    pub target: Span,
    /// The target's path, not decoded, every `%` with its two digits: starts with `/`, or is `*` in `OPTIONS *`. An absolute target is
    /// stripped to its path, an empty one of which is given as `/`.
    pub path: Span,
    /// The query without its `?`, not decoded; `Some` and empty for a bare `?`.
    pub query: Option<Span>,
    /// The scheme of an absolute target; `None` for a target of another form.
    pub scheme: Option<Scheme>,
    /// Host and port: of an absolute target, else of Host (RFC 9112 section 3.2.2). Never empty; `None` only
    /// in HTTP/1.0.
    pub authority: Option<Span>,
    /// Version of the request.
    pub version: Version,
    /// All field lines in the order sent, repeated ones too.
    pub headers: Vec<HeaderSpan>,
    /// How the body ends.
    pub body: BodyFraming,
    /// Whether the client lets the connection live on, RFC 9112 section 9.3.
    pub keep_alive: bool,
    /// Whether the client waits for a 100 before it sends its body; false when there is no body to wait
    /// for and in HTTP/1.0 (RFC 9110 section 10.1.1).
    pub expect_continue: bool,
    /// Presences noticed in the pass over the fields.
    pub marks: Marks,
    /// It is an extended CONNECT for a WebSocket connection (RFC 8441 section 4), given as a GET.
    pub is_websocket: bool,
    /// Length of the head, its empty line included, and of an empty line tolerated before it: where the
    /// body starts in the parsed buffer.
    pub bytes: usize,
}

/// How far a head has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadStep {
    /// The end has not arrived: call again with the same bytes and more behind them.
    Partial,
    /// The index holds the head.
    Complete,
}

impl HeadIndex {
    /// An index of nothing yet; allocates nothing.
    pub fn new() -> Self {
        HeadIndex::default()
    }

    /// Of the beginning of a head, `bytes` bytes long, that was refused or will never be complete.
    pub fn of_beginning(bytes: usize) -> Self {
        HeadIndex {
            bytes,
            ..HeadIndex::default()
        }
    }

    /// Parses the head that begins `buf`; what follows it in `buf` is not looked at.
    ///
    /// `seen` belongs to the connection: 0 for a new head, then left alone between calls while more bytes
    /// are appended to the same ones. It says how many have been searched, so that byte-by-byte delivery
    /// stays linear, and is 0 again once the head is complete. The index itself may serve other
    /// connections in between.
    ///
    /// The same refusal comes at the same byte however the head was cut; bounds are enforced as soon as
    /// they are passed.
    pub fn parse(
        &mut self,
        buf: &[u8],
        seen: &mut usize,
        limits: &Limits,
    ) -> Result<HeadStep, Refusal> {
        // Spans have 32 bits; what lies behind the bound is not looked at, whatever has come.
        let head_bytes_max = limits.head_bytes_max.min(u32::MAX as usize);
        let window = &buf[..buf.len().min(head_bytes_max)];
        if self.parse_window(window, *seen, limits)? {
            *seen = 0;
            return Ok(HeadStep::Complete);
        }
        // Refused at the byte that passes the bound, not when the rest has come: a client must not fill memory.
        if window.len() == head_bytes_max {
            return Err(Cause::HeadTooLarge.into());
        }
        *seen = window.len();
        Ok(HeadStep::Partial)
    }

    /// Whether the head is complete within `bytes`.
    fn parse_window(&mut self, bytes: &[u8], seen: usize, limits: &Limits) -> Result<bool, Cause> {
        let Some(start) = request_line_start(bytes) else {
            return Ok(false);
        };
        let Some(line_feed) = memchr(b'\n', &bytes[start..]) else {
            let seen = seen.saturating_sub(start);
            scan::check_unfinished(&bytes[start..], seen, limits)?;
            return Ok(false);
        };
        let line_end = start + line_feed + 1;
        // Judged as soon as it is there, before the lines behind it.
        if seen < line_end {
            parse_request_line(self, bytes, start, line_end, limits)?;
            // Most heads come whole and without a fault. Everything else takes the slow way, which finds
            // the first fault in the order of bytes; like this a whole head costs a quarter less.
            if let Ok(Some(head_end)) = fields::parse(self, bytes, line_end, limits) {
                self.bytes = head_end;
                return Ok(true);
            }
        }
        let Some(head_end) = scan::head_end(bytes, line_end, seen, limits)? else {
            return Ok(false);
        };
        // Once more, because another head may have used this index since the line was judged.
        parse_request_line(self, bytes, start, line_end, limits)?;
        let fields_end = fields::parse(self, &bytes[..head_end], line_end, limits)?;
        assert_eq!(
            fields_end,
            Some(head_end),
            "both end at the first empty line"
        );
        self.bytes = head_end;
        Ok(true)
    }
}

/// Where the request line starts: behind at most one empty line, which a server should tolerate because
/// some clients send a line end after a body that does not count it (RFC 9112 section 2.2).
///
/// `None` while this cannot be known yet.
fn request_line_start(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\r', b'\n', _, ..] => Some(2),
        [] | [b'\r'] | [b'\r', b'\n'] => None,
        _ => Some(0),
    }
}

/// Reads the complete line `bytes[start..end]`, line end included, into `index`.
fn parse_request_line(
    index: &mut HeadIndex,
    bytes: &[u8],
    start: usize,
    end: usize,
    limits: &Limits,
) -> Result<(), Cause> {
    let line = &bytes[start..end];
    let method_bytes = method_bytes(line)?.ok_or(Cause::MethodByte)?;
    let rest = &line[method_bytes + 1..];
    let target_bytes = target_bytes(rest, limits)?.ok_or(match rest {
        [.., b'\r', b'\n'] => Cause::VersionForm,
        _ => Cause::BareLf,
    })?;
    let target = check_target_bytes(&rest[..target_bytes])?;
    index.version = version(&rest[target_bytes + 1..])?;
    index.is_websocket = false;

    index.method_span = Span::at(start, method_bytes);
    index.target = Span::at(start + method_bytes + 1, target_bytes);
    let method = index.method_span.of(bytes);
    if method == b"CONNECT" {
        return Err(Cause::MethodConnect);
    }
    index.method = Method::of(method);
    split_target(index, bytes, target)?;
    // Anywhere in the target: most have none of them, and only those of a path have rules.
    if target.has_unusual() {
        check_path(index.path.of(bytes))?;
    }
    Ok(())
}

/// Length of the method that begins `line` and is followed by a space; `None` while it may go on.
pub(crate) fn method_bytes(line: &[u8]) -> Result<Option<usize>, Cause> {
    let head = &line[..line.len().min(METHOD_BYTES_MAX + 1)];
    match head.iter().position(|&b| !is_token(b)) {
        Some(len) if len > 0 && head[len] == b' ' => Ok(Some(len)),
        // RFC 9112 section 3: no whitespace before the method, one space after it.
        Some(len) if head[len] == b'\n' && (len == 0 || head[len - 1] != b'\r') => {
            Err(Cause::BareLf)
        }
        Some(_) => Err(Cause::MethodByte),
        None if head.len() > METHOD_BYTES_MAX => Err(Cause::MethodTooLong),
        None => Ok(None),
    }
}

/// Length of the target that begins `rest`, up to its first space; `None` when there is no space yet.
pub(crate) fn target_bytes(rest: &[u8], limits: &Limits) -> Result<Option<usize>, Cause> {
    let within = rest.len().min(limits.target_bytes_max.saturating_add(1));
    match memchr(b' ', &rest[..within]) {
        Some(len) => Ok(Some(len)),
        None if rest.len() > limits.target_bytes_max => Err(Cause::TargetTooLong),
        None => Ok(None),
    }
}

/// RFC 3986 section 2: a URI is visible ASCII, and RFC 9112 section 3.2 sends it without a fragment. Wider than
/// that RFC, because browsers send `|` and `"` raw in queries and nothing behind us is confused by them; narrower
/// than most parsers, which let bytes above 0x7f through.
pub(crate) fn check_target_bytes(target: &[u8]) -> Result<TargetBytes, Cause> {
    let seen = TargetBytes::of(target);
    if !seen.has_forbidden() && !target.is_empty() {
        return Ok(seen);
    }
    match (target.iter()).find(|&&b| b == b'#' || !b.is_ascii_graphic()) {
        Some(b'#') => Err(Cause::TargetFragment),
        Some(b'\r') => Err(Cause::BareCr),
        _ => Err(Cause::TargetByte),
    }
}

/// `HTTP-version CRLF`, RFC 9112 section 2.3. A minor version above 1 is served as 1.1, RFC 9110 section
/// 2.5; another major version is not served at all, RFC 9110 section 15.6.6.
fn version(rest: &[u8]) -> Result<Version, Cause> {
    match rest {
        b"HTTP/1.1\r\n" => Ok(Version::Http11),
        b"HTTP/1.0\r\n" => Ok(Version::Http10),
        [
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            major,
            b'.',
            minor,
            b'\r',
            b'\n',
        ] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            if *major == b'1' {
                Ok(Version::Http11)
            } else {
                Err(Cause::VersionMajor)
            }
        }
        [.., b'\r', b'\n'] => Err(Cause::VersionForm),
        _ => Err(Cause::BareLf),
    }
}

/// The forms of RFC 9112 section 3.2. Authority-form belongs to CONNECT, which is not served.
fn split_target(index: &mut HeadIndex, bytes: &[u8], seen: TargetBytes) -> Result<(), Cause> {
    let (start, end) = (index.target.start as usize, index.target.end as usize);
    let target = index.target.of(bytes);
    let mut path_start = start;
    (index.scheme, index.authority) = (None, None);
    if target == b"*" {
        // RFC 9112 section 3.2.4: asterisk-form is for OPTIONS alone.
        if index.method != Method::Options {
            return Err(Cause::TargetAsterisk);
        }
    } else if target[0] != b'/' {
        let (scheme, scheme_bytes) = scheme(target).ok_or(Cause::TargetForm)?;
        let after = &target[scheme_bytes..];
        let authority_end = after.iter().position(|&b| b == b'/' || b == b'?');
        let authority = Span::at(start + scheme_bytes, authority_end.unwrap_or(after.len()));
        // RFC 9110 section 4.2.1: an http URI with an empty host is invalid.
        if !is_host(authority.of(bytes)) {
            return Err(Cause::AuthorityInvalid);
        }
        path_start = authority.end as usize;
        (index.scheme, index.authority) = (Some(scheme), Some(authority));
    }
    let query_mark = match seen.has_query_mark() {
        true => memchr(b'?', &bytes[path_start..end]).map(|at| path_start + at),
        false => None,
    };
    let path_end = query_mark.unwrap_or(end);
    index.query = query_mark.map(|at| Span::new(at + 1, end));
    index.path = match index.authority {
        // An empty path is `/` (RFC 9110 section 4.2.3); the last slash of the scheme lends its byte.
        Some(authority) if path_end == path_start => Span::at(authority.start as usize - 1, 1),
        _ => Span::new(path_start, path_end),
    };
    Ok(())
}

/// The scheme at the start of `target`, in any case, and its length with `://`.
fn scheme(target: &[u8]) -> Option<(Scheme, usize)> {
    [
        (Scheme::Http, &b"http://"[..]),
        (Scheme::Https, b"https://"),
    ]
    .into_iter()
    .find(|(_, text)| {
        target
            .get(..text.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(text))
    })
    .map(|(scheme, text)| (scheme, text.len()))
}

/// RFC 3986 sections 2.1 and 3.3, as far as every client keeps to them: browsers escape these four bytes in
/// paths, and what two recipients decode differently is never sent. In a query both are common (`?q=100%`).
fn check_path(path: &[u8]) -> Result<(), Cause> {
    if path.iter().any(|b| b"\"<>\\".contains(b)) {
        return Err(Cause::PathByte);
    }
    if memchr_iter(b'%', path).all(|at| fields::is_escape(path, at)) {
        Ok(())
    } else {
        Err(Cause::PathEscape)
    }
}

/// A borrowed look at a head: the index and the bytes it points into.
#[derive(Clone, Copy, Debug)]
pub struct HeadView<'a> {
    /// The buffer that `index` was parsed from; at least `index.bytes` long.
    pub bytes: &'a [u8],
    /// A complete index, or that of a beginning.
    pub index: &'a HeadIndex,
}

impl<'a> HeadView<'a> {
    /// Whether it is a head; else it is the beginning of one, which has neither method nor fields.
    pub fn is_complete(&self) -> bool {
        self.index.method_span != Span::default()
    }

    /// The method as sent.
    pub fn method(&self) -> &'a [u8] {
        self.index.method_span.of(self.bytes)
    }

    /// The target as sent.
    pub fn target(&self) -> &'a [u8] {
        self.index.target.of(self.bytes)
    }

    /// The path, not decoded; `*` in `OPTIONS *`.
    pub fn path(&self) -> &'a [u8] {
        self.index.path.of(self.bytes)
    }

    /// The query without its `?`, not decoded.
    pub fn query(&self) -> Option<&'a [u8]> {
        self.index.query.map(|span| span.of(self.bytes))
    }

    /// Host and port that the client asked for.
    pub fn authority(&self) -> Option<&'a [u8]> {
        self.index.authority.map(|span| span.of(self.bytes))
    }

    /// Value of the first field called `name`, in any case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers()
            .find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// Names and values of all fields in the order sent.
    pub fn headers(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a> {
        let bytes = self.bytes;
        let spans = self.index.headers.iter();
        spans.map(move |header| (header.name.of(bytes), header.value.of(bytes)))
    }

    /// Whether its client reads trailer fields behind a response (RFC 9110 section 6.5.1): over HTTP/1.1 it says so in
    /// `TE`; over HTTP/2 each response has room for them.
    pub fn takes_trailers(&self) -> bool {
        let is_trailers = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"trailers");
        let says_so = |value: &[u8]| value.split(|byte| *byte == b',').any(is_trailers);
        match self.index.version {
            Version::Http10 => false,
            Version::Http11 => self
                .headers()
                .any(|(name, value)| name.eq_ignore_ascii_case(b"te") && says_so(value)),
            Version::Http2 => true,
        }
    }

    /// Whether the method is HEAD, so that no body may follow the reply's head.
    pub fn is_head(&self) -> bool {
        self.index.method == Method::Head
    }
}

/// An owned head: moves with its exchange while the connection's buffer takes the next bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestHead {
    bytes: Box<[u8]>,
    index: HeadIndex,
}

impl RequestHead {
    /// Copies the head's own bytes and its index; two allocations.
    pub fn take(view: HeadView<'_>) -> Self {
        let head_bytes = view.index.bytes;
        assert!(head_bytes <= view.bytes.len(), "an index of other bytes");
        RequestHead {
            bytes: view.bytes[..head_bytes].into(),
            index: view.index.clone(),
        }
    }

    /// As `take`, with these fields behind its own, of which none is called as one of `replaced`, which are lower case.
    pub fn replacing(view: HeadView<'_>, replaced: &[String], fields: &FieldLines) -> Self {
        let mut index = view.index.clone();
        let is_replaced = |name: Span| {
            let name = name.of(view.bytes);
            let mut replaced = replaced.iter();
            replaced.any(|one| one.as_bytes().eq_ignore_ascii_case(name))
        };
        index.headers.retain(|header| !is_replaced(header.name));
        let mut bytes = view.bytes[..index.bytes].to_vec();
        for (name, value) in fields.iter() {
            let at = bytes.len();
            for part in [name, b": ", value, b"\r\n"] {
                bytes.extend_from_slice(part);
            }
            index.headers.push(HeaderSpan {
                name: Span::at(at, name.len()),
                value: Span::at(at + name.len() + 2, value.len()),
            });
            index.marks = index.marks.with(Marks::of(name));
        }
        index.bytes = bytes.len();
        RequestHead {
            bytes: bytes.into(),
            index,
        }
    }

    /// The borrowed look at it.
    pub fn view(&self) -> HeadView<'_> {
        HeadView {
            bytes: &self.bytes,
            index: &self.index,
        }
    }
}

#[cfg(test)]
mod tests;
