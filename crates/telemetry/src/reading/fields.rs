//! The fields of a line: by which names lines have them, what their values look like, and where a line keeps them.
//!
//! Takes names and values as they were written. Knows no form: which names count where is the form's business.

use super::cursor::{count, number, request, seconds, status};
use super::date::DateReader;
use super::{Line, known};
use crate::{Field, Nanos};

/// The field of a `key=value` behind the common log format. Other names may be somebody else's.
#[inline]
pub(super) fn behind(key: &[u8]) -> Option<Field> {
    Some(match key {
        b"receive" => Field::Receive,
        b"queue" => Field::Queue,
        b"run" => Field::Run,
        b"send" => Field::Send,
        b"total" => Field::Total,
        b"gil" => Field::Gil,
        b"cpu" => Field::Cpu,
        b"before" => Field::Before,
        b"waiting" => Field::Waiting,
        b"threads" => Field::Threads,
        b"idle" => Field::Idle,
        b"queued" => Field::Queued,
        b"worker" => Field::Worker,
        b"id" => Field::Id,
        b"trace_id" => Field::TraceId,
        b"span_id" => Field::SpanId,
        b"route" => Field::Route,
        b"pool" => Field::Pool,
        b"messages_in" => Field::MessagesIn,
        b"messages_out" => Field::MessagesOut,
        b"close_code" => Field::CloseCode,
        b"loop" => Field::Loop,
        b"steps" => Field::Steps,
        b"busy" => Field::Busy,
        b"longest" => Field::Longest,
        b"blocked_by" => Field::BlockedBy,
        b"event_stream" => Field::EventStream,
        b"upstream" => Field::Upstream,
        b"attempts" => Field::Attempts,
        b"reused" => Field::Reused,
        b"connect" => Field::Connect,
        b"ttfb" => Field::Ttfb,
        b"upstream_queue" => Field::UpstreamQueue,
        b"upstream_run" => Field::UpstreamRun,
        b"end" => Field::End,
        b"cause" => Field::Cause,
        _ => return None,
    })
}

/// The field of a key of a JSON line.
#[inline]
pub(super) fn in_json(key: &[u8]) -> Option<Field> {
    Some(match key {
        b"time" => Field::TimeIso,
        b"client" => Field::Client,
        b"peer" => Field::Peer,
        b"user" => Field::User,
        b"method" => Field::Method,
        b"target" => Field::Target,
        b"protocol" => Field::Protocol,
        b"status" => Field::Status,
        b"bytes" => Field::Bytes,
        b"sent" => Field::Sent,
        b"request_bytes" => Field::RequestBytes,
        b"host" => Field::Host,
        b"referer" => Field::Referer,
        b"agent" => Field::Agent,
        b"driver" => Field::Driver,
        b"process" => Field::Process,
        _ => return behind(key),
    })
}

/// What the value of a field looks like, where that says where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `[10/Oct/2000:13:55:36 +0000]`
    Bracketed,
    /// `2000-10-10T13:55:36.000123+00:00`
    Iso,
    /// Digits, or `-`.
    Number,
    /// Digits and a point, or `-`.
    Seconds,
}

pub(super) fn shape(field: Field) -> Option<Shape> {
    Some(match field {
        Field::Time => Shape::Bracketed,
        Field::TimeIso => Shape::Iso,
        Field::Status
        | Field::Bytes
        | Field::Sent
        | Field::RequestBytes
        | Field::Driver
        | Field::Waiting
        | Field::Threads
        | Field::Idle
        | Field::Stream
        | Field::ResetCode
        | Field::MessagesIn
        | Field::MessagesOut
        | Field::CloseCode
        | Field::Steps
        | Field::Attempts => Shape::Number,
        Field::At
        | Field::Receive
        | Field::Queue
        | Field::Run
        | Field::Send
        | Field::Total
        | Field::Gil
        | Field::Cpu
        | Field::Before
        | Field::BlockedStream
        | Field::BlockedConnection
        | Field::Loop
        | Field::Busy
        | Field::Longest
        | Field::Connect
        | Field::Ttfb
        | Field::UpstreamQueue
        | Field::UpstreamRun => Shape::Seconds,
        _ => return None,
    })
}

/// Puts the value of a field into the line; `None`: it is no value of that field, so that the line is not what it
/// seemed. A `-` and nothing at all are no value.
///
/// `cpu`, `before`, `waiting`, `threads`, `idle`, `queued` and the names of what an event loop, a WebSocket connection and
/// an upstream tell are common words, which another program may use for something else: there a wrong value is none.
#[inline]
pub(super) fn put<'a>(
    line: &mut Line<'a>,
    field: Field,
    value: &'a [u8],
    date: &mut DateReader,
) -> Option<()> {
    let value = known(value);
    let (spans, queued) = (&mut line.spans, &mut line.queued);
    let number = || optional(value, number);
    let span = || optional(value, seconds);
    match field {
        Field::Client => line.client = value,
        Field::Peer => {
            line.peer = value;
            // Lines from before proxies were told from clients have the peer alone.
            if line.client.is_empty() {
                line.client = value;
            }
        }
        Field::User => line.user = value,
        Field::Time | Field::TimeIso | Field::At => return put_time(line, field, value, date),
        Field::Request => {
            [line.method, line.target, line.version, line.request_line] = request(value);
        }
        Field::Method => line.method = value,
        Field::Target => line.target = value,
        // The path alone, where nothing better is there.
        Field::Path if line.target.is_empty() => line.target = value,
        Field::Path | Field::Query => {}
        Field::Protocol => line.version = value,
        Field::Status => line.status = optional(value, status)?.flatten(),
        Field::Bytes => line.body_bytes = number()?,
        Field::Sent => line.sent_bytes = number()?,
        Field::RequestBytes => line.request_bytes = number()?,
        Field::Host => line.host = value,
        Field::Referer => line.referer = value,
        Field::Agent => line.user_agent = value,
        Field::Route => line.route = value,
        Field::Pool => line.pool = value,
        Field::Driver => line.driver = number()?,
        Field::Process => line.process = value,
        Field::Worker => line.worker = Some(value),
        Field::Id => line.id = value,
        Field::Receive => spans.receive = span()?,
        Field::Queue => spans.queue = span()?,
        Field::Run => spans.run = span()?,
        Field::Send => spans.send = span()?,
        Field::Total => spans.total = span()?,
        Field::Gil => spans.gil = span()?,
        // A line that says 0 says that it was not measured.
        Field::Cpu => spans.cpu = seconds(value).filter(|cpu| *cpu > Nanos::ZERO),
        Field::Before => queued.before = seconds(value),
        Field::Waiting => queued.waiting = count(value),
        Field::Threads => queued.threads = count(value),
        Field::Idle => queued.idle = count(value),
        Field::Queued => queued.from_queue = truth(value),
        Field::End => line.end = value,
        Field::Cause => line.cause = value,
        _ => put_loop(line, field, value),
    }
    Some(())
}

/// What an event loop or a WebSocket connection tells. Nothing is made of facts of a connection and its streams, of which
/// no question about requests asks.
fn put_loop<'a>(line: &mut Line<'a>, field: Field, value: &'a [u8]) {
    let (event_loop, websocket) = (&mut line.event_loop, &mut line.websocket);
    match field {
        Field::MessagesIn => websocket.received = number(value),
        Field::MessagesOut => websocket.sent = number(value),
        Field::CloseCode => {
            websocket.close_code = number(value).and_then(|code| u16::try_from(code).ok());
        }
        Field::Loop => event_loop.wait = seconds(value),
        Field::Steps => event_loop.steps = count(value),
        Field::Busy => event_loop.busy = seconds(value),
        Field::Longest => event_loop.longest = seconds(value),
        Field::BlockedBy => event_loop.blocked_by = value,
        Field::EventStream => event_loop.is_event_stream = value == b"yes",
        _ => put_upstream(line, field, value),
    }
}

fn put_upstream<'a>(line: &mut Line<'a>, field: Field, value: &'a [u8]) {
    let upstream = &mut line.upstream;
    match field {
        Field::Upstream => upstream.server = value,
        Field::Attempts => upstream.attempts = count(value),
        Field::Reused => upstream.reused = truth(value),
        Field::Connect => upstream.connect = seconds(value),
        Field::Ttfb => upstream.ttfb = seconds(value),
        Field::UpstreamQueue => upstream.queue = seconds(value),
        Field::UpstreamRun => upstream.run = seconds(value),
        _ => {}
    }
}

fn truth(value: &[u8]) -> Option<bool> {
    match value {
        b"yes" => Some(true),
        b"no" => Some(false),
        _ => None,
    }
}

/// What a value says; `Some(None)` where there is none.
#[inline]
fn optional<T>(value: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Option<Option<T>> {
    match value {
        // Nothing, or a dash: the field is known to have no value.
        b"" => Some(None),
        _ => read(value).map(Some),
    }
}

fn put_time(line: &mut Line<'_>, field: Field, value: &[u8], date: &mut DateReader) -> Option<()> {
    if value.is_empty() {
        return Some(());
    }
    match field {
        Field::Time => {
            let (moment, rest) = date.bracketed(value.strip_prefix(b"[")?)?;
            // A finer time may have come before.
            line.wall_ns = line.wall_ns.or(Some(moment.wall_ns));
            line.utc_offset_secs = moment.utc_offset_secs;
            rest.is_empty().then_some(())
        }
        Field::TimeIso => {
            let moment = date.rfc3339(value)?;
            line.wall_ns = Some(moment.wall_ns);
            line.utc_offset_secs = moment.utc_offset_secs;
            Some(())
        }
        _ => {
            line.wall_ns = Some(seconds(value)?.0);
            Some(())
        }
    }
}
