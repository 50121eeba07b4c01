//! The head of an upstream's response, read by the letter of RFC 9112.
//!
//! Takes the bytes of a connection from the first one of a response on; gives the fields that are meant for the client
//! and what a proxy has to know ([`UpstreamResponse`]), or the first rule that is broken. `ReplyHead` reads what a load
//! generator can live with; here a head that two readers could understand differently is a fault, because the connection
//! is shared by clients. It must not read past the head's end: an interim response (1xx) is a head of its own, and the
//! caller goes on behind it.

use memchr::memchr;

use super::connection_options::ConnectionOptions;
use super::fault::UpstreamFault;
use crate::fields::{
    Codings, check_line_end, decimal, is_field_name, is_field_value, is_grpc, is_value,
    parse_lines, span_within,
};
use crate::head::Span;
use crate::limits::Limits;
use crate::reply_head::{Asked, ReplyBody, elements, has_no_body};
use crate::response::{FieldLines, LINE_END, push_line, write_status_line};
use crate::scan;

/// What a status line begins with, up to the minor version.
const VERSION: &[u8] = b"HTTP/1.";
/// Where the status is: behind the version and a space.
const STATUS_AT: usize = VERSION.len() + 2;

/// How far a head has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpstreamHeadStep {
    /// The end has not arrived: call again with the same bytes and more behind them.
    Partial,
    /// It is whole.
    Complete(UpstreamResponse),
}

/// What a proxy has to know of a response's head, beside its fields. Spans lie in the bytes that were parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpstreamResponse {
    /// Three digits, from 100. Below 200, and not 101, another head follows.
    pub status: u16,
    /// The reason phrase; may be empty.
    pub reason: Span,
    /// Length of the head, its empty line included.
    pub head_bytes: usize,
    /// How the body ends.
    pub body: ReplyBody,
    /// Whether another request may follow on this connection once the body has ended.
    pub keeps: bool,
    /// What Content-Length says, in a response to HEAD and a 304 too; never of a response that can have none.
    pub content_length: Option<u64>,
    /// There is a Date.
    pub has_date: bool,
    /// There is a Server.
    pub has_server: bool,
    /// It is an event stream, which has no end of its own.
    pub is_event_stream: bool,
    /// No part of it may be held back: see `ResponseFacts::is_live`.
    pub is_live: bool,
    /// Trailer fields are to be expected: it says so, or it is of gRPC, and its body has no length.
    pub has_trailers: bool,
    /// Value of `endpoint-load-metrics`.
    pub load_report: Option<Span>,
    /// Value of the last Server-Timing.
    pub server_timing: Option<Span>,
    /// Retry-After, where it is a number of seconds.
    pub retry_after_secs: Option<u32>,
}

impl UpstreamResponse {
    /// Parses the head that begins `bytes`; what follows it is not looked at. `fields` holds those meant for the client
    /// afterwards, without Content-Length; of a 101 it holds Connection and Upgrade too.
    ///
    /// `seen` belongs to the connection: 0 for a new head, then left alone between calls while more bytes are appended
    /// to the same ones, so that a head in small pieces costs linear time; 0 again once the head is complete. `limits`
    /// bounds the head, its lines and their number.
    ///
    /// # Errors
    /// The rule that was broken, the same however the bytes were cut.
    pub fn parse(
        bytes: &[u8],
        seen: &mut usize,
        asked: Asked,
        limits: &Limits,
        fields: &mut FieldLines,
    ) -> Result<UpstreamHeadStep, UpstreamFault> {
        fields.clear();
        let head_bytes_max = limits.head_bytes_max.min(u32::MAX as usize);
        let window = &bytes[..bytes.len().min(head_bytes_max)];
        if let Some(response) = parse_window(window, *seen, asked, limits, fields)? {
            *seen = 0;
            return Ok(UpstreamHeadStep::Complete(response));
        }
        if window.len() == head_bytes_max {
            return Err(UpstreamFault::HeadTooLarge);
        }
        *seen = window.len();
        Ok(UpstreamHeadStep::Partial)
    }

    /// The head of a response that came as single fields, as HTTP/2 has them, in the form that `parse` takes.
    ///
    /// # Errors
    /// A name or a value that no field may have.
    pub fn text<'f>(
        status: u16,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Result<Vec<u8>, UpstreamFault> {
        let mut text = Vec::new();
        write_status_line(&mut text, status);
        for (name, value) in fields {
            if !is_field_name(name) {
                return Err(UpstreamFault::FieldName);
            }
            if !is_field_value(value) {
                return Err(UpstreamFault::FieldValueByte);
            }
            push_line(&mut text, name, &[value]);
        }
        text.extend_from_slice(LINE_END);
        Ok(text)
    }

    /// Whether a head of the same exchange follows: this response is interim, RFC 9110 section 15.2.
    pub fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..200)
    }
}

/// The two ways of `HeadIndex`: most heads come whole and without a fault; the slow way finds the first fault.
fn parse_window(
    bytes: &[u8],
    seen: usize,
    asked: Asked,
    limits: &Limits,
    fields: &mut FieldLines,
) -> Result<Option<UpstreamResponse>, UpstreamFault> {
    check_beginning(bytes)?;
    let Some(line_feed) = memchr(b'\n', bytes) else {
        return match bytes.len() >= limits.header_bytes_max {
            true => Err(UpstreamFault::FieldTooLarge),
            false => Ok(None),
        };
    };
    let line_end = line_feed + 1;
    let line = StatusLine::parse(&bytes[..line_end], limits)?;
    let mut head = |bytes: &[u8]| {
        let mut response = None;
        let end = parse_lines(bytes, line_end, limits, |head, found| {
            fields.clear();
            response = Some(line.response(head, found, asked, limits, fields)?);
            Ok::<(), UpstreamFault>(())
        })?;
        Ok::<_, UpstreamFault>(end.and(response))
    };
    if seen < line_end
        && let Ok(Some(response)) = head(bytes)
    {
        return Ok(Some(response));
    }
    match scan::head_end(bytes, line_end, seen, limits)? {
        Some(head_end) => head(&bytes[..head_end]),
        None => Ok(None),
    }
}

/// Judges the first bytes of what should be a status line, whether they are all there or not: HTTP/0.9 has no line that
/// would have to end.
fn check_beginning(bytes: &[u8]) -> Result<(), UpstreamFault> {
    let is_version = |(at, (byte, expect)): (usize, (&u8, &u8))| match byte == expect {
        true => Ok(()),
        false if at == 5 && byte.is_ascii_digit() => Err(UpstreamFault::VersionMajor),
        false => Err(UpstreamFault::NotHttp),
    };
    bytes
        .iter()
        .zip(VERSION)
        .enumerate()
        .try_for_each(is_version)
}

/// The first line of a response, RFC 9112 section 4.
#[derive(Clone, Copy)]
struct StatusLine {
    is_old: bool,
    status: u16,
    reason: Span,
}

impl StatusLine {
    /// `HTTP/1.x SP 3DIGIT [ SP reason ] CRLF`. The space before an empty reason may be missing: many servers leave it
    /// out.
    fn parse(line: &[u8], limits: &Limits) -> Result<StatusLine, UpstreamFault> {
        if line.len() > limits.header_bytes_max {
            return Err(UpstreamFault::FieldTooLarge);
        }
        let Some([text @ .., b'\r']) = line.strip_suffix(b"\n") else {
            return Err(UpstreamFault::BareLf);
        };
        let Some([minor, b' ']) = text.get(VERSION.len()..STATUS_AT) else {
            return Err(UpstreamFault::NotHttp);
        };
        if !minor.is_ascii_digit() {
            return Err(UpstreamFault::NotHttp);
        }
        let (status, reason) = match &text[STATUS_AT..] {
            [a, b, c] => ([*a, *b, *c], &b""[..]),
            [a, b, c, b' ', reason @ ..] => ([*a, *b, *c], reason),
            _ => return Err(UpstreamFault::StatusForm),
        };
        // RFC 9110 section 15: no class begins below 100.
        let status = decimal(&status)
            .filter(|status| *status >= 100)
            .ok_or(UpstreamFault::StatusForm)?;
        match reason.iter().find(|&&byte| !is_value(byte)) {
            None => {}
            Some(b'\r') => return Err(UpstreamFault::BareCr),
            Some(_) => return Err(UpstreamFault::ReasonByte),
        }
        Ok(StatusLine {
            is_old: *minor == b'0',
            status: status as u16,
            reason: Span::at(text.len() - reason.len(), reason.len()),
        })
    }

    /// The response of this line and the field lines behind it; `head` ends with its empty line.
    fn response(
        self,
        head: &[u8],
        found: &[httparse::Header<'_>],
        asked: Asked,
        limits: &Limits,
        fields: &mut FieldLines,
    ) -> Result<UpstreamResponse, UpstreamFault> {
        let mut facts = ResponseFacts::default();
        let mut line_start = None;
        for header in found {
            let (name, value) = (header.name.as_bytes(), header.value);
            let start = span_within(head, name).start;
            check_line_end(head, line_start.replace(start), start, limits)?;
            if facts.note(name, value, span_within(head, value))? == Destination::Client {
                // Both have been judged; once more where line ends are written.
                fields
                    .try_push(name, value)
                    .map_err(|_| UpstreamFault::FieldValueByte)?;
            }
        }
        check_line_end(head, line_start, (head.len() - 2) as u32, limits)?;
        check_line_end(head, None, head.len() as u32, limits)?;
        if facts.options.names_any() {
            fields.retain(|name, _| !facts.options.names(name));
        }
        facts.settle(self, head.len(), asked, fields)
    }
}

/// Where a field ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Destination {
    Client,
    /// It concerns this connection, or this server alone.
    Here,
}

/// What the fields of one head say, gathered in one pass.
#[derive(Default)]
struct ResponseFacts<'h> {
    options: ConnectionOptions<'h>,
    length: Option<u64>,
    codings: Option<Codings>,
    upgrade: Option<&'h [u8]>,
    has_date: bool,
    has_server: bool,
    is_event_stream: bool,
    is_grpc: bool,
    names_trailers: bool,
    no_buffering: bool,
    no_store: bool,
    load_report: Option<Span>,
    server_timing: Option<Span>,
    retry_after_secs: Option<u32>,
}

impl<'h> ResponseFacts<'h> {
    /// Takes note of one field. The names that matter are told apart by their length first.
    fn note(
        &mut self,
        name: &[u8],
        value: &'h [u8],
        span: Span,
    ) -> Result<Destination, UpstreamFault> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            4 if is("date") => self.has_date = true,
            6 if is("server") => self.has_server = true,
            11 if is("retry-after") => {
                self.retry_after_secs = decimal(value).and_then(|secs| u32::try_from(secs).ok());
            }
            12 if is("content-type") => {
                self.is_event_stream = is_event_stream(value);
                self.is_grpc = is_grpc(value);
            }
            13 if is("cache-control") => {
                self.no_store |= elements(value).any(|it| it.eq_ignore_ascii_case(b"no-store"));
            }
            13 if is("server-timing") => self.server_timing = Some(span),
            // RFC 9110 section 7.6.1, and Alt-Svc, which names ports of the upstream.
            2 if is("te") => return Ok(Destination::Here),
            7 if is("upgrade") => {
                // One protocol is changed to: two fields name none.
                self.upgrade = Some(self.upgrade.map_or(value, |_| b""));
                return Ok(Destination::Here);
            }
            7 if is("trailer") => {
                self.names_trailers = true;
                return Ok(Destination::Here);
            }
            7 if is("alt-svc") => return Ok(Destination::Here),
            10 if is("connection") => {
                self.options.note(value)?;
                return Ok(Destination::Here);
            }
            10 if is("keep-alive") => return Ok(Destination::Here),
            14 if is("content-length") => {
                self.note_length(value)?;
                return Ok(Destination::Here);
            }
            16 if is("proxy-connection") => return Ok(Destination::Here),
            17 if is("transfer-encoding") => {
                self.codings.get_or_insert_default().note(value)?;
                return Ok(Destination::Here);
            }
            17 if is("x-accel-buffering") => {
                self.no_buffering = value.eq_ignore_ascii_case(b"no");
                return Ok(Destination::Here);
            }
            18 if is("proxy-authenticate") => return Ok(Destination::Here),
            21 if is("endpoint-load-metrics") => {
                self.load_report = Some(span);
                return Ok(Destination::Here);
            }
            25 if is("endpoint-load-metrics-bin") => return Ok(Destination::Here),
            _ if is_x_accel(name) => return Ok(Destination::Here),
            _ => {}
        }
        Ok(Destination::Client)
    }

    /// RFC 9112 section 6.3: the same length may be said twice.
    fn note_length(&mut self, value: &[u8]) -> Result<(), UpstreamFault> {
        for one in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            let length = decimal(one).ok_or(UpstreamFault::LengthInvalid)?;
            if self
                .length
                .replace(length)
                .is_some_and(|before| before != length)
            {
                return Err(UpstreamFault::LengthDiffers);
            }
        }
        Ok(())
    }

    fn settle(
        self,
        line: StatusLine,
        head_bytes: usize,
        asked: Asked,
        fields: &mut FieldLines,
    ) -> Result<UpstreamResponse, UpstreamFault> {
        let StatusLine {
            is_old,
            status,
            reason,
        } = line;
        let body = self.body(line, asked)?;
        if status == 101 {
            self.keep_switch(asked, fields)?;
        }
        // RFC 9110 section 8.6: neither 1xx nor 204 may have a length; RFC 9112 section 6.1: nor a coding. A server that
        // sends one may send the body too.
        let has_none = matches!(status, 100..200 | 204);
        let is_unsound =
            has_none && (self.codings.is_some() || !matches!(self.length, None | Some(0)));
        let is_ended = self.options.close || body == ReplyBody::UntilClose || status == 101;
        Ok(UpstreamResponse {
            status,
            reason,
            head_bytes,
            body,
            // RFC 9112 section 9.3: close wins, then the version decides.
            keeps: !is_ended && !is_unsound && (!is_old || self.options.keep_alive),
            content_length: self.length.filter(|_| !has_none),
            has_date: self.has_date,
            has_server: self.has_server,
            is_event_stream: self.is_event_stream,
            is_live: self.is_live(body),
            has_trailers: (self.is_grpc || self.names_trailers) && is_open(body),
            load_report: self.load_report,
            server_timing: self.server_timing,
            retry_after_secs: self.retry_after_secs,
        })
    }

    /// Whether each piece is to reach the client at once: by its type, because the upstream says so, or because it has
    /// no length and nobody may keep it.
    fn is_live(&self, body: ReplyBody) -> bool {
        let is_kept_nowhere = self.no_store && is_open(body);
        self.is_event_stream || self.is_grpc || self.no_buffering || is_kept_nowhere
    }

    /// RFC 9112 section 6.3. Where two framings could be read, a fault, in a response without a body too.
    fn body(&self, line: StatusLine, asked: Asked) -> Result<ReplyBody, UpstreamFault> {
        let body = match (&self.codings, self.length) {
            (None, None) => ReplyBody::UntilClose,
            (None, Some(length)) => ReplyBody::Length(length),
            // RFC 9112 section 6.1: whoever writes HTTP/1.0 does not know of codings.
            (Some(_), _) if line.is_old => return Err(UpstreamFault::CodingInOldVersion),
            (Some(_), Some(_)) => return Err(UpstreamFault::LengthWithCoding),
            (Some(codings), None) => {
                codings.settle()?;
                ReplyBody::Chunked
            }
        };
        match has_no_body(line.status, asked) {
            true => Ok(ReplyBody::None),
            false => Ok(body),
        }
    }

    /// RFC 9110 section 15.2.2: 101 names the protocol that was asked for, in fields that are about this connection.
    fn keep_switch(&self, asked: Asked, fields: &mut FieldLines) -> Result<(), UpstreamFault> {
        if asked != Asked::Upgrade {
            return Err(UpstreamFault::SwitchUnasked);
        }
        let protocol = self.upgrade.filter(|it| !it.is_empty());
        let protocol = protocol.ok_or(UpstreamFault::SwitchForm)?;
        fields.push(b"Connection", b"Upgrade");
        fields
            .try_push(b"Upgrade", protocol)
            .map_err(|_| UpstreamFault::SwitchForm)
    }
}

/// Whether the length of a body is not known before its end.
fn is_open(body: ReplyBody) -> bool {
    matches!(body, ReplyBody::Chunked | ReplyBody::UntilClose)
}

/// The media type without its parameters, RFC 9110 section 8.3.1.
fn is_event_stream(content_type: &[u8]) -> bool {
    let essence = content_type.split(|&byte| byte == b';').next();
    essence.is_some_and(|it| it.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}

fn is_x_accel(name: &[u8]) -> bool {
    const START: &[u8] = b"x-accel-";
    name.get(..START.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(START))
}

#[cfg(test)]
mod tests;
