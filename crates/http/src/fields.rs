//! The field lines of a head, and what they say together about host, framing and the connection; which bytes
//! may stand in a name, a value and a host.
//!
//! Takes the bytes behind a request line; fills the rest of a [`HeadIndex`]. httparse finds names and
//! values; what it is lenient about is checked here. It must not look at the request line's bytes.

use crate::head::{BodyFraming, HeadIndex, HeaderSpan, Span, Version};
use crate::limits::Limits;
use crate::refusal::Cause;
use crate::scan;

/// Fields for which there is room on the stack: more than browsers send, even behind proxies.
const COMMON_HEADERS_LEN: usize = 32;

/// The shortest line that httparse takes for a field: `a:` and a line feed.
const FIELD_BYTES_MIN: usize = 3;

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const HOST: u8 = 4;
const DASHED: u8 = 8;
const NO_TARGET: u8 = 16;
const UNUSUAL: u8 = 32;
const QUERY_MARK: u8 = 64;

/// What the single pass over the fields noticed, so that nobody has to search for what is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks(u8);

impl Marks {
    /// If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since or If-Range.
    pub const CONDITIONAL: Marks = Marks(1);
    /// Range.
    pub const RANGE: Marks = Marks(1 << 1);
    /// Accept-Encoding.
    pub const ACCEPT_ENCODING: Marks = Marks(1 << 2);
    /// Authorization.
    pub const AUTHORIZATION: Marks = Marks(1 << 3);
    /// Connection names further fields: it has options beside `close`, `keep-alive`, `upgrade` and `te`.
    pub const CONNECTION_FIELDS: Marks = Marks(1 << 4);

    /// What a field of this name says, whatever its value.
    pub(crate) fn of(name: &[u8]) -> Marks {
        let mut facts = Facts::default();
        // Faults are about values.
        let _ = facts.note(name, b"", Span::default());
        facts.marks
    }

    /// Whether all of `marks` are set.
    #[inline]
    pub fn contains(self, marks: Marks) -> bool {
        self.0 & marks.0 == marks.0
    }

    /// Whether any of `marks` is set.
    #[inline]
    pub fn intersects(self, marks: Marks) -> bool {
        self.0 & marks.0 != 0
    }

    /// Both sets together.
    #[inline]
    #[must_use]
    pub const fn with(self, marks: Marks) -> Marks {
        Marks(self.0 | marks.0)
    }
}

/// Reads the field lines that start at `start` and gives the end of the head behind them; `None` when it
/// is not in `bytes`. A fault is the first in the order of bytes only when `bytes` ends with the head and
/// `scan` has found its line ends good.
pub(crate) fn parse(
    index: &mut HeadIndex,
    bytes: &[u8],
    start: usize,
    limits: &Limits,
) -> Result<Option<usize>, Cause> {
    parse_lines(bytes, start, limits, |head, found| {
        take(index, head, found, limits)
    })
}

/// Finds the field lines that start at `start`, has `take` judge them, and gives the end of the head behind them; `None`
/// when it is not in `bytes`. `take` gets the bytes of the whole head and its lines, of which there are no more than
/// may be.
pub(crate) fn parse_lines<E: From<Cause>>(
    bytes: &[u8],
    start: usize,
    limits: &Limits,
    take: impl FnOnce(&[u8], &[httparse::Header<'_>]) -> Result<(), E>,
) -> Result<Option<usize>, E> {
    let section = &bytes[start..];
    let mut common = [httparse::EMPTY_HEADER; COMMON_HEADERS_LEN];
    let mut many = Vec::new();
    let mut result = httparse::parse_headers(section, &mut common);
    if result == Err(httparse::Error::TooManyHeaders) {
        let len_max = limits.headers_len_max.min(section.len() / FIELD_BYTES_MIN);
        many.resize(len_max, httparse::EMPTY_HEADER);
        result = httparse::parse_headers(section, &mut many);
    }
    match result {
        Ok(httparse::Status::Complete((section_bytes, found))) => {
            if found.len() > limits.headers_len_max {
                return Err(Cause::TooManyFields.into());
            }
            let end = start + section_bytes;
            take(&bytes[..end], found).map(|()| Some(end))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(Cause::TooManyFields.into()),
        Err(_) => Err(scan::fault(section).into()),
    }
}

fn take(
    index: &mut HeadIndex,
    bytes: &[u8],
    found: &[httparse::Header<'_>],
    limits: &Limits,
) -> Result<(), Cause> {
    let mut facts = Facts::default();
    let mut line_start = None;
    index.headers.clear();
    index.headers.reserve(found.len());
    for header in found {
        let name = span_within(bytes, header.name.as_bytes());
        let value = span_within(bytes, header.value);
        check_line_end(bytes, line_start.replace(name.start), name.start, limits)?;
        index.headers.push(HeaderSpan { name, value });
        facts.note(header.name.as_bytes(), header.value, value)?;
    }
    let empty_line = bytes.len() - 2;
    check_line_end(bytes, line_start, empty_line as u32, limits)?;
    check_line_end(bytes, None, bytes.len() as u32, limits)?;
    facts.settle(index)
}

/// Checks the line that ends before `next`: httparse takes a lone LF for a line end and has no bound.
#[inline]
pub(crate) fn check_line_end(
    bytes: &[u8],
    line_start: Option<u32>,
    next: u32,
    limits: &Limits,
) -> Result<(), Cause> {
    if bytes[next as usize - 2] != b'\r' {
        return Err(Cause::BareLf);
    }
    let line_bytes = line_start.map_or(0, |start| next - start);
    if line_bytes as usize > limits.header_bytes_max {
        return Err(Cause::FieldTooLarge);
    }
    Ok(())
}

/// Where `part`, a slice of `bytes`, lies in it.
#[inline]
pub(crate) fn span_within(bytes: &[u8], part: &[u8]) -> Span {
    Span::at(part.as_ptr().addr() - bytes.as_ptr().addr(), part.len())
}

/// What the fields of one head say, gathered in one pass.
#[derive(Default)]
struct Facts {
    marks: Marks,
    has_content_type: bool,
    host: Option<Span>,
    length: Option<u64>,
    codings: Option<Codings>,
    close: bool,
    keep_alive: bool,
    expect: Option<Expect>,
}

enum Expect {
    Continue,
    Other,
}

impl Facts {
    /// Takes note of one field. The names that matter are told apart by their length first.
    #[inline]
    fn note(&mut self, name: &[u8], value: &[u8], span: Span) -> Result<(), Cause> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            4 if is("host") => self.note_host(value, span)?,
            5 if is("range") => self.mark(Marks::RANGE),
            6 if is("expect") => self.note_expect(value),
            8 if is("if-match") || is("if-range") => self.mark(Marks::CONDITIONAL),
            10 if is("connection") => self.note_connection(value),
            12 if is("content-type") => self.note_content_type()?,
            13 if is("if-none-match") => self.mark(Marks::CONDITIONAL),
            13 if is("authorization") => self.note_authorization()?,
            14 if is("content-length") => self.note_length(value)?,
            15 if is("accept-encoding") => self.mark(Marks::ACCEPT_ENCODING),
            17 if is("transfer-encoding") => {
                self.codings.get_or_insert_default().note(value)?;
            }
            17 if is("if-modified-since") => self.mark(Marks::CONDITIONAL),
            19 if is("if-unmodified-since") => self.mark(Marks::CONDITIONAL),
            _ => {}
        }
        Ok(())
    }

    fn mark(&mut self, marks: Marks) {
        self.marks = self.marks.with(marks);
    }

    /// RFC 9112 section 3.2: more than one Host or an invalid value is a 400, in an absolute request too.
    /// An empty value belongs to targets without an authority, and an http URI has one (RFC 9110 section 4.2.1).
    fn note_host(&mut self, value: &[u8], span: Span) -> Result<(), Cause> {
        if self.host.replace(span).is_some() {
            return Err(Cause::HostRepeated);
        }
        if !is_host(value) {
            return Err(Cause::HostInvalid);
        }
        Ok(())
    }

    /// RFC 9110 sections 5.3 and 8.3: a field of one value is sent once. Two recipients that take different
    /// ones, or a list of both, read different bodies.
    fn note_content_type(&mut self) -> Result<(), Cause> {
        if std::mem::replace(&mut self.has_content_type, true) {
            return Err(Cause::ContentTypeRepeated);
        }
        Ok(())
    }

    /// RFC 9110 sections 5.3 and 11.6.2, likewise: a proxy that checks one must not vouch for another.
    fn note_authorization(&mut self) -> Result<(), Cause> {
        if self.marks.contains(Marks::AUTHORIZATION) {
            return Err(Cause::AuthorizationRepeated);
        }
        self.mark(Marks::AUTHORIZATION);
        Ok(())
    }

    /// RFC 9112 section 6.3: an invalid length is unrecoverable. The list of equal numbers and the equal
    /// second field that it lets a recipient repair are refused too: only smugglers send them.
    fn note_length(&mut self, value: &[u8]) -> Result<(), Cause> {
        let length = decimal(value).ok_or(Cause::LengthInvalid)?;
        if self.length.replace(length).is_some() {
            return Err(Cause::LengthRepeated);
        }
        Ok(())
    }

    /// RFC 9110 section 7.6.1: a list of options in any case.
    fn note_connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(trim) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            if !is_common_option(option) {
                self.mark(Marks::CONNECTION_FIELDS);
            }
        }
    }

    fn note_expect(&mut self, value: &[u8]) {
        self.expect = match self.expect.take() {
            None | Some(Expect::Continue) if value.eq_ignore_ascii_case(b"100-continue") => {
                Some(Expect::Continue)
            }
            _ => Some(Expect::Other),
        };
    }

    fn settle(self, index: &mut HeadIndex) -> Result<(), Cause> {
        // RFC 9112 section 3.2.
        if self.host.is_none() && index.version == Version::Http11 {
            return Err(Cause::HostMissing);
        }
        index.body = self.body(index.version)?;
        // RFC 9110 section 10.1.1: no expectation counts in HTTP/1.0.
        index.expect_continue = match (index.version, &self.expect) {
            (Version::Http11, Some(Expect::Other)) => return Err(Cause::ExpectUnknown),
            (Version::Http11, Some(Expect::Continue)) => {
                !matches!(index.body, BodyFraming::None | BodyFraming::Length(0))
            }
            _ => false,
        };
        // RFC 9112 section 9.3: close wins, then the version decides.
        index.keep_alive = !self.close && (index.version == Version::Http11 || self.keep_alive);
        // RFC 9112 section 3.2.2: the authority of an absolute target replaces Host.
        index.authority = index.authority.or(self.host);
        index.marks = self.marks;
        Ok(())
    }

    /// RFC 9112 sections 6.1 and 6.3. Where two framings could be read, the request may mean two things to
    /// two recipients, and nothing but a refusal is safe.
    fn body(&self, version: Version) -> Result<BodyFraming, Cause> {
        match (&self.codings, self.length) {
            (None, None) => Ok(BodyFraming::None),
            (None, Some(length)) => Ok(BodyFraming::Length(length)),
            (Some(_), _) if version == Version::Http10 => Err(Cause::CodingInOldVersion),
            (Some(_), Some(_)) => Err(Cause::LengthWithCoding),
            (Some(codings), None) => codings.settle().map(|()| BodyFraming::Chunked),
        }
    }
}

/// Whether an option of Connection names no field that only it names; empty elements name none.
pub(crate) fn is_common_option(option: &[u8]) -> bool {
    let is = |known: &str| option.eq_ignore_ascii_case(known.as_bytes());
    match option.len() {
        0 => true,
        2 => is("te"),
        5 => is("close"),
        7 => is("upgrade"),
        10 => is("keep-alive"),
        _ => false,
    }
}

/// Whether a Content-Type is `application/grpc`, `application/grpc+proto`, `application/grpc-web` and their like.
pub fn is_grpc(content_type: &[u8]) -> bool {
    const START: &[u8] = b"application/grpc";
    let start = content_type.get(..START.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(START))
}

/// `1*DIGIT` of at most 64 bits: no sign, no list, no whitespace (RFC 9110 section 8.6).
pub(crate) fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// The transfer codings of all Transfer-Encoding fields, in order.
#[derive(Default)]
pub(crate) struct Codings {
    last: Coding,
    unknown: bool,
    chunked_len: usize,
}

#[derive(Default, PartialEq, Eq)]
enum Coding {
    #[default]
    None,
    Chunked,
    Other,
}

impl Codings {
    /// Empty list elements and parameters are malformed here: `chunked` has none (RFC 9112 section 7.1).
    pub(crate) fn note(&mut self, value: &[u8]) -> Result<(), Cause> {
        for coding in value.split(|&b| b == b',').map(trim) {
            if coding.is_empty() || !coding.iter().copied().all(is_token) {
                return Err(Cause::CodingForm);
            }
            self.last = if coding.eq_ignore_ascii_case(b"chunked") {
                self.chunked_len += 1;
                Coding::Chunked
            } else {
                self.unknown = true;
                Coding::Other
            };
        }
        Ok(())
    }

    /// RFC 9112 section 6.1: chunked once, and last; what else is understood is ours to say: nothing.
    pub(crate) fn settle(&self) -> Result<(), Cause> {
        if self.last != Coding::Chunked {
            return Err(Cause::CodingNotFinal);
        }
        if self.chunked_len > 1 {
            return Err(Cause::CodingRepeated);
        }
        if self.unknown {
            return Err(Cause::CodingUnknown);
        }
        Ok(())
    }
}

/// Whether `bytes` is `uri-host [ ":" port ]`, RFC 9110 section 7.2 and RFC 3986 section 3.2.2. Without
/// user information, because of RFC 9110 section 4.2.4; a port has at most 16 bits; an empty host is not
/// valid here.
pub(crate) fn is_host(bytes: &[u8]) -> bool {
    if let Some(rest) = bytes.strip_prefix(b"[") {
        let Some(close) = memchr::memchr(b']', rest) else {
            return false;
        };
        let (literal, after) = (&rest[..close], &rest[close + 1..]);
        return (is_ipv6(literal) || is_ip_future(literal))
            && (after.is_empty() || is_colon_and_port(after));
    }
    let colon = bytes.iter().position(|&b| b == b':');
    let name_end = colon.unwrap_or(bytes.len());
    let (name, after) = bytes.split_at(name_end);
    is_name(name) && (after.is_empty() || is_colon_and_port(after))
}

/// `reg-name`, which includes IPv4 addresses. RFC 1035 section 3.1: no label of it is empty but the root's,
/// behind the last dot, and a name consists of more than that one.
fn is_name(name: &[u8]) -> bool {
    let mut before = b'.';
    for (at, &b) in name.iter().enumerate() {
        let is_fit = match b {
            b'.' => before != b'.',
            // Its digits may stand in a name themselves.
            b'%' => is_escape(name, at),
            b => is_host_name(b),
        };
        if !is_fit {
            return false;
        }
        before = b;
    }
    !name.is_empty()
}

/// Whether two hexadecimal digits follow the `%` that is at `at` (RFC 3986 section 2.1).
pub(crate) fn is_escape(bytes: &[u8], at: usize) -> bool {
    let digits = bytes.get(at + 1..at + 3);
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// The standard library's reader is exactly the grammar of RFC 3986 section 3.2.2 without zones.
fn is_ipv6(literal: &[u8]) -> bool {
    std::str::from_utf8(literal).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// `IPvFuture`, RFC 3986 section 3.2.2.
fn is_ip_future(literal: &[u8]) -> bool {
    let [b'v' | b'V', rest @ ..] = literal else {
        return false;
    };
    let mut halves = rest.splitn(2, |&b| b == b'.');
    let version = halves.next().unwrap_or_default();
    let address = halves.next().unwrap_or_default();
    !version.is_empty()
        && version.iter().all(u8::is_ascii_hexdigit)
        && !address.is_empty()
        && address.iter().all(|&b| b == b':' || is_host_name(b))
}

/// The grammar allows an empty port and any number of digits; more than 16 bits is never a port.
fn is_colon_and_port(bytes: &[u8]) -> bool {
    let [b':', digits @ ..] = bytes else {
        return false;
    };
    let port = digits.iter().try_fold(0, |port, b| {
        let port = port * 10 + u32::from(b.wrapping_sub(b'0'));
        (b.is_ascii_digit() && port <= 65_535).then_some(port)
    });
    port.is_some()
}

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        if b.is_ascii_alphanumeric() {
            table[byte] |= TOKEN | HOST;
        }
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            table[byte] |= VALUE;
        }
        if !b.is_ascii_graphic() || b == b'#' {
            table[byte] |= NO_TARGET;
        }
        byte += 1;
    }
    // The punctuation of `tchar`, RFC 9110 section 5.6.2.
    add(&mut table, b"!#$%&'*+-.^_`|~", TOKEN);
    // The same without `_`.
    let mut byte = 0;
    while byte < 256 {
        if table[byte] & TOKEN != 0 && byte as u8 != b'_' {
            table[byte] |= DASHED;
        }
        byte += 1;
    }
    // The punctuation of `unreserved` and `sub-delims`, RFC 3986 sections 2.2 and 2.3.
    add(&mut table, b"-._~!$&'()*+,;=", HOST);
    add(&mut table, b"\"<>\\%", UNUSUAL);
    add(&mut table, b"?", QUERY_MARK);
    table
}

const fn add(table: &mut [u8; 256], bytes: &[u8], class: u8) {
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] |= class;
        at += 1;
    }
}

/// What the bytes of a target are, all together: a parse asks three questions about them and looks at them once.
#[derive(Clone, Copy)]
pub(crate) struct TargetBytes(u8);

impl TargetBytes {
    /// By the table: most targets are shorter than what vector instructions need to gain.
    pub(crate) fn of(target: &[u8]) -> Self {
        let seen = target.iter().fold(0, |seen, &b| seen | CLASSES[b as usize]);
        Self(seen)
    }

    /// One that no target has: not visible ASCII, or the beginning of a fragment.
    pub(crate) fn has_forbidden(self) -> bool {
        self.0 & NO_TARGET != 0
    }

    /// One of those that clients escape in paths, or the beginning of an escape.
    pub(crate) fn has_unusual(self) -> bool {
        self.0 & UNUSUAL != 0
    }

    /// A `?`.
    pub(crate) fn has_query_mark(self) -> bool {
        self.0 & QUERY_MARK != 0
    }
}

/// May stand in a method or a field name: `tchar`, RFC 9110 section 5.6.2.
#[inline]
pub(crate) fn is_token(b: u8) -> bool {
    CLASSES[b as usize] & TOKEN != 0
}

/// May stand in a field value: `field-vchar`, space, tab and `obs-text`, RFC 9110 section 5.5.
#[inline]
pub(crate) fn is_value(b: u8) -> bool {
    CLASSES[b as usize] & VALUE != 0
}

/// May stand unescaped in the name of a host: `unreserved` and `sub-delims`, RFC 3986 section 3.2.2.
#[inline]
fn is_host_name(b: u8) -> bool {
    CLASSES[b as usize] & HOST != 0
}

/// Whether `name` may be a field's: a token, RFC 9110 section 5.6.2.
pub(crate) fn is_field_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().fold(true, |good, &b| good & is_token(b))
}

/// Whether `name` may be a field's and has no `_`, which an application's environment cannot tell from `-`
/// (CVE-2015-0219).
#[inline]
pub(crate) fn is_dashed_name(name: &[u8]) -> bool {
    !name.is_empty()
        && (name.iter()).fold(true, |good, &b| good & (CLASSES[b as usize] & DASHED != 0))
}

/// Whether `value` may be a field's, or a reason phrase: no control character but the tab, RFC 9110 section 5.5
/// and RFC 9112 section 4.
///
/// Without a branch or a table per byte, so that the compiler makes vectors of it.
#[inline]
pub fn is_field_value(value: &[u8]) -> bool {
    !value.iter().fold(false, |bad, &b| {
        bad | ((b < 0x20) & (b != b'\t')) | (b == 0x7f)
    })
}

/// `value` without the optional whitespace around it, RFC 9110 section 5.6.3.
pub(crate) fn trim(value: &[u8]) -> &[u8] {
    let Some(start) = value.iter().position(|&b| b != b' ' && b != b'\t') else {
        return &[];
    };
    let end = value
        .iter()
        .rposition(|&b| b != b' ' && b != b'\t')
        .map_or(start, |last| last + 1);
    &value[start..end]
}

#[cfg(test)]
mod tests;
