//! The fields of a line: where it keeps them, and what their values must be.
//!
//! Takes names and values as they were written. Knows no form: which names count where is the form's business.

use super::cursor::{count, number, request, seconds, status};
use super::date::DateReader;
use super::{Line, known};
use crate::{Field, Nanos};

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
