//! Lines of access logs, read back: ours of every form, and those of nginx, httpd and NaviServer.
//!
//! Takes the bytes of one line without its end, gives a [`Line`] that borrows them, or nothing when it is
//! no line of an access log. The form is found line by line: `{` first is JSON, all else is the common
//! log format and what follows it; templates are tried first where one is given. Ten million lines come
//! through here, so nothing is allocated, a date is taken apart once a second, and text stays as it was
//! written until somebody asks for it ([`Line::plain`]). It must not know where lines come from.

mod common;
mod cursor;
mod date;
mod fields;
mod foreign;
mod json;
mod named;
mod pattern;
mod plain;

use std::borrow::Cow;

use crate::{Nanos, PerPhase};
use date::DateReader;
pub use pattern::{Pattern, PatternFault};

/// Which form a line has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LineForm {
    /// The common log format, with whatever else may follow it.
    #[default]
    Common,
    /// Common, referer and agent.
    Combined,
    /// Common or combined, and phases as `total=0.001`.
    Phases,
    /// Common or combined, and NaviServer's partial times.
    NaviServer,
    /// One JSON object.
    Json,
    /// The template that the reader was given, or another server's format that it was named.
    Template,
    /// One JSON object of Caddy or Traefik.
    ProxyJson,
    /// None: a request that a running server holds.
    History,
}

/// How long each phase took, as far as the line says so.
///
/// Of NaviServer's lines `run` is its filters and its run, and it does not know `send`. Where only the phases are
/// written, `total` is their sum. A line that says 0 for `cpu` says that it was not measured.
pub type KnownSpans = PerPhase<Option<Nanos>>;

/// What the request found at its pool's queue, as far as the line says so.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KnownQueued {
    /// How long it had waited before it came to the server.
    pub before: Option<Nanos>,
    /// Requests that waited in the queue already.
    pub waiting: Option<u32>,
    /// Threads that the pool had.
    pub threads: Option<u32>,
    /// Threads of them that had nothing to do.
    pub idle: Option<u32>,
    /// Whether it had to wait for a thread.
    pub from_queue: Option<bool>,
}

impl KnownQueued {
    /// Forms that always have all of it say 0 threads where there was no queue, and 0 seconds where nobody
    /// told of any.
    fn leave_out_nothing(&mut self) {
        self.before = self.before.filter(|before| before.0 > 0);
        if self.threads == Some(0) {
            *self = KnownQueued {
                before: self.before,
                ..KnownQueued::default()
            };
        }
    }
}

/// What the request's task took of an event loop, as far as the line says so.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KnownLoop<'a> {
    /// The part of the queue time in which the loop had it.
    pub wait: Option<Nanos>,
    /// Steps that its task took.
    pub steps: Option<u32>,
    /// How long they took together.
    pub busy: Option<Nanos>,
    /// The longest of them.
    pub longest: Option<Nanos>,
    /// The id of the request that has blocked the loop while it waited.
    pub blocked_by: &'a [u8],
    /// Its response has no end of its own: `text/event-stream`.
    pub is_event_stream: bool,
}

/// What is known of a WebSocket connection at its end, as far as the line says so.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KnownWebSocket {
    /// Messages of the client.
    pub received: Option<u64>,
    /// Messages of the application.
    pub sent: Option<u64>,
    /// The code that it has ended with.
    pub close_code: Option<u16>,
}

/// What is known of the upstream that has answered the request, as far as the line says so.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KnownUpstream<'a> {
    /// The server that was tried last.
    pub server: &'a [u8],
    /// How often the request was sent.
    pub attempts: Option<u32>,
    /// A connection to the server was there.
    pub reused: Option<bool>,
    /// How long the request waited for its connection.
    pub connect: Option<Nanos>,
    /// How long the first byte of the response took.
    pub ttfb: Option<Nanos>,
    /// How long the request waited in the upstream's own queue.
    pub queue: Option<Nanos>,
    /// How long it ran there.
    pub run: Option<Nanos>,
}

/// What one line says. Texts are as they were written, escapes included ([`Line::plain`] undoes them);
/// an empty one means "not known", and so does a `-` in the log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Line<'a> {
    /// Which form it has.
    pub form: LineForm,
    /// When the request arrived (other servers: was answered), nanoseconds since 1970 UTC.
    pub wall_ns: Option<u64>,
    /// The offset east of Greenwich that the time was written at.
    pub utc_offset_secs: i32,
    /// The client's address; in lines that do not tell it from the peer's, the peer's.
    pub client: &'a [u8],
    /// The address of the connection's other end; empty in lines that do not tell it from the client's.
    pub peer: &'a [u8],
    /// The authenticated user.
    pub user: &'a [u8],
    /// The method.
    pub method: &'a [u8],
    /// The request target.
    pub target: &'a [u8],
    /// The protocol version.
    pub version: &'a [u8],
    /// The first line of a request that was none.
    pub request_line: &'a [u8],
    /// The Host header.
    pub host: &'a [u8],
    /// The Referer header.
    pub referer: &'a [u8],
    /// The User-Agent header.
    pub user_agent: &'a [u8],
    /// Status code; `None` when no reply was begun.
    pub status: Option<u16>,
    /// Bytes of the body.
    pub body_bytes: Option<u64>,
    /// All bytes of the reply.
    pub sent_bytes: Option<u64>,
    /// Bytes of the request.
    pub request_bytes: Option<u64>,
    /// The phases.
    pub spans: KnownSpans,
    /// What it found at the queue.
    pub queued: KnownQueued,
    /// What it took of an event loop.
    pub event_loop: KnownLoop<'a>,
    /// What it was as a WebSocket connection.
    pub websocket: KnownWebSocket,
    /// Which upstream has answered it, and how.
    pub upstream: KnownUpstream<'a>,
    /// The route's name.
    pub route: &'a [u8],
    /// The pool's name; empty when it did not go through one.
    pub pool: &'a [u8],
    /// The process; of a line that has no more than a worker's name, the worker's.
    pub process: &'a [u8],
    /// The worker that ran it, as `PROCESS.NUMBER`: `Some` and empty when none did, `None` when the line does
    /// not say.
    pub worker: Option<&'a [u8]>,
    /// Index of the driver.
    pub driver: Option<u64>,
    /// The request's id.
    pub id: &'a [u8],
    /// How it ended; empty when the form does not say.
    pub end: &'a [u8],
    /// Why it was refused or cut.
    pub cause: &'a [u8],
}

impl<'a> Line<'a> {
    /// The text of a field without its escapes.
    pub fn plain(&self, field: &'a [u8]) -> Cow<'a, [u8]> {
        match self.form {
            LineForm::Json | LineForm::ProxyJson => plain::json(field),
            _ => plain::text(field),
        }
    }

    /// Whether an event loop ran it.
    pub fn is_of_loop(&self) -> bool {
        self.event_loop.steps.is_some()
    }

    /// Whether it became a WebSocket connection.
    pub fn is_websocket(&self) -> bool {
        self.websocket.close_code.is_some()
    }

    /// Whether it was sent to an upstream.
    pub fn is_proxied(&self) -> bool {
        self.upstream.attempts.is_some()
    }

    /// Whether it lasts as long as its ends like: a WebSocket connection or an event stream.
    pub fn is_long_lived(&self) -> bool {
        self.is_websocket() || self.event_loop.is_event_stream
    }

    /// Common words of another program are no facts: a task has a step that took some time, and a WebSocket connection
    /// has messages, and what was sent to an upstream was sent to one with a name.
    fn leave_out_strays(&mut self) {
        let own = &self.event_loop;
        let is_loop = own.steps > Some(0) && own.busy.is_some() && own.longest.is_some();
        if !is_loop {
            self.event_loop = KnownLoop::default();
        }
        let own = &self.websocket;
        if own.received.is_none() || own.sent.is_none() {
            self.websocket = KnownWebSocket::default();
        }
        let own = &self.upstream;
        let is_upstream = !own.server.is_empty() && own.attempts > Some(0) && own.connect.is_some();
        if !is_upstream {
            self.upstream = KnownUpstream::default();
        }
    }

    /// The total of phases that are all known.
    fn complete_total(&mut self) {
        let spans = &mut self.spans;
        if spans.total.is_none()
            && let (Some(receive), Some(queue), Some(run)) = (spans.receive, spans.queue, spans.run)
        {
            // Other servers do not measure what comes after the run.
            let send = spans.send.map_or(0, |span| span.0);
            let sum = receive.0.saturating_add(queue.0).saturating_add(run.0);
            spans.total = Some(Nanos(sum.saturating_add(send)));
        }
    }
}

/// Reads lines.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    pattern: Option<Pattern>,
    date: DateReader,
}

impl Reader {
    /// A reader of all forms that can be told apart, and before them of `pattern`'s.
    pub fn new(pattern: Option<Pattern>) -> Reader {
        Reader {
            pattern,
            date: DateReader::default(),
        }
    }

    /// What a line says, its end not included; `None` when it is no line of an access log.
    #[inline]
    pub fn line<'a>(&mut self, bytes: &'a [u8]) -> Option<Line<'a>> {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        // First, because a template may look like any of the other forms.
        if let Some(pattern) = &self.pattern
            && let Some(line) = pattern.line(bytes, &mut self.date)
        {
            return Some(line);
        }
        if bytes.first() == Some(&b'{') {
            let own = json::line(bytes, &mut self.date);
            let found = own.or_else(|| named::proxy_line(bytes, &mut self.date));
            // A brace may also begin the name of a client.
            if found.is_some() {
                return found;
            }
        }
        common::line(bytes, &mut self.date)
    }
}

/// A `-` stands for nothing.
#[inline]
fn known(field: &[u8]) -> &[u8] {
    if field == b"-" { b"" } else { field }
}

#[cfg(test)]
mod tests;
