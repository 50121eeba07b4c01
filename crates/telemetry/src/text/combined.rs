//! The common log format, the combined one, and what we append to it.
//!
//! What is new comes last, behind all else: an expression that somebody wrote for older lines still finds its
//! fields where they were.

use super::date::DateText;
use super::digits::{push_seconds, push_u64};
use super::escape::{or_dash, push_bare, push_quoted};
use super::names::Known;
use crate::phases::WholeMicros;
use crate::record::NO_POOL;
use crate::{Ending, LoopFacts, Queued, Record, ResetBy, StreamFacts, TlsRecord, WebSocketFacts};

/// Appends `PEER - USER [time] "METHOD TARGET VERSION" STATUS BYTES`.
pub(super) fn common(record: &Record<'_>, date: &mut DateText, out: &mut Vec<u8>) {
    push_bare(out, or_dash(record.client));
    out.extend_from_slice(b" - ");
    push_bare(out, or_dash(record.user));
    out.push(b' ');
    out.extend_from_slice(date.clf_at(record.wall_arrived_ns));
    out.extend_from_slice(b" \"");
    request_line(record, out);
    out.extend_from_slice(b"\" ");
    match record.status {
        0 => out.push(b'-'),
        status => push_u64(out, u64::from(status)),
    }
    out.push(b' ');
    push_u64(out, record.body_bytes);
}

/// Appends the common format and ` "REFERER" "AGENT"`.
pub(super) fn combined(record: &Record<'_>, date: &mut DateText, out: &mut Vec<u8>) {
    common(record, date, out);
    out.extend_from_slice(b" \"");
    push_quoted(out, or_dash(record.referer));
    out.extend_from_slice(b"\" \"");
    push_quoted(out, or_dash(record.user_agent));
    out.push(b'"');
}

/// Appends the phases, the id, the route, what was not as it always is, what there was at the queue, how much
/// of the run was processor time, the worker, and the arrival to the microsecond: the date has whole seconds.
pub(super) fn phases(record: &Record<'_>, names: &Known, out: &mut Vec<u8>) {
    let spans = record.phases.spans();
    let us = WholeMicros::of(&spans);
    out.extend_from_slice(b" receive=");
    push_seconds(out, us.receive);
    out.extend_from_slice(b" queue=");
    push_seconds(out, us.queue);
    out.extend_from_slice(b" run=");
    push_seconds(out, us.run);
    out.extend_from_slice(b" send=");
    push_seconds(out, us.send);
    out.extend_from_slice(b" total=");
    push_seconds(out, us.total);
    out.extend_from_slice(b" id=");
    match record.request_id {
        // Digits of our own.
        b"" => out.extend_from_slice(&names.made(record.id)),
        given => push_bare(out, given),
    }
    out.extend_from_slice(b" route=");
    out.extend_from_slice(or_dash(names.route(record)));
    if record.pool != NO_POOL {
        out.extend_from_slice(b" pool=");
        out.extend_from_slice(or_dash(names.pool(record)));
    }
    ending(record, out);
    queued(&record.queued, out);
    stream(&record.stream, out);
    websocket(&record.websocket, out);
    event_loop(&record.event_loop, names, out);
    upstream(record, names, out);
    if spans.cpu.0 > 0 {
        out.extend_from_slice(b" cpu=");
        push_seconds(out, spans.cpu.0 / 1_000);
    }
    handshake(record, out);
    out.extend_from_slice(b" worker=");
    names.push_worker(record, out);
    out.extend_from_slice(b" at=");
    push_seconds(out, record.wall_arrived_ns / 1_000);
    if record.trace.is_known() {
        out.extend_from_slice(&record.trace.log_fields());
    }
}

/// Appends ` "START ACCEPT QUEUE FILTER RUN"`, the partial times of NaviServer's `logpartialtimes`.
///
/// Its filters run between queue and run, where nothing is here. Its run ends when the content is
/// delivered, so it is our run and send: the four times add up to the total.
pub(super) fn partial_times(record: &Record<'_>, out: &mut Vec<u8>) {
    let us = WholeMicros::of(&record.phases.spans());
    out.extend_from_slice(b" \"");
    push_seconds(out, record.wall_arrived_ns / 1_000);
    out.push(b' ');
    push_seconds(out, us.receive);
    out.push(b' ');
    push_seconds(out, us.queue);
    out.extend_from_slice(b" 0.000000 ");
    push_seconds(out, us.run + us.send);
    out.push(b'"');
}

/// The first request of a connection under TLS tells of its handshake.
fn handshake(record: &Record<'_>, out: &mut Vec<u8>) {
    let Some(tls) = TlsRecord::parse(record.tls) else {
        return;
    };
    if let Some(took) = tls.handshake {
        out.extend_from_slice(b" tls=");
        push_bare(out, or_dash(tls.version));
        out.extend_from_slice(b" resumed=");
        push_bare(out, or_dash(tls.resumed));
        out.extend_from_slice(b" handshake=");
        push_seconds(out, took.0 / 1_000);
    }
}

fn request_line(record: &Record<'_>, out: &mut Vec<u8>) {
    if record.method.is_empty() {
        return push_quoted(out, or_dash(record.request_line));
    }
    push_quoted(out, record.method);
    out.push(b' ');
    push_quoted(out, or_dash(record.target));
    if !record.version.is_empty() {
        out.push(b' ');
        push_quoted(out, record.version);
    }
}

fn queued(queued: &Queued, out: &mut Vec<u8>) {
    if queued.is_known() {
        out.extend_from_slice(b" waiting=");
        push_u64(out, u64::from(queued.waiting));
        out.extend_from_slice(b" threads=");
        push_u64(out, u64::from(queued.threads));
        out.extend_from_slice(b" idle=");
        push_u64(out, u64::from(queued.idle));
        if queued.from_queue {
            out.extend_from_slice(b" queued=yes");
        }
    }
    let before_us = queued.before.0 / 1_000;
    if before_us > 0 {
        out.extend_from_slice(b" before=");
        push_seconds(out, before_us);
    }
}

fn stream(stream: &StreamFacts, out: &mut Vec<u8>) {
    if stream.number == 0 {
        return;
    }
    out.extend_from_slice(b" stream=");
    push_u64(out, u64::from(stream.number));
    if stream.reset_by != ResetBy::None {
        out.extend_from_slice(b" reset_by=");
        out.extend_from_slice(stream.reset_by.text().as_bytes());
        out.extend_from_slice(b" reset_code=");
        push_u64(out, u64::from(stream.reset_code));
    }
    for (key, blocked) in [
        (&b" blocked_stream="[..], stream.blocked_stream),
        (b" blocked_connection=", stream.blocked_connection),
    ] {
        let blocked_us = blocked.0 / 1_000;
        if blocked_us > 0 {
            out.extend_from_slice(key);
            push_seconds(out, blocked_us);
        }
    }
}

fn event_loop(event_loop: &LoopFacts, names: &super::names::Known, out: &mut Vec<u8>) {
    if event_loop.steps == 0 {
        return;
    }
    out.extend_from_slice(b" loop=");
    push_seconds(out, event_loop.wait.0 / 1_000);
    out.extend_from_slice(b" steps=");
    push_u64(out, u64::from(event_loop.steps));
    for (key, span) in [
        (&b" busy="[..], event_loop.busy),
        (b" longest=", event_loop.longest),
    ] {
        out.extend_from_slice(key);
        push_seconds(out, span.0 / 1_000);
    }
    if let Some(other) = event_loop.blocked_by {
        out.extend_from_slice(b" blocked_by=");
        out.extend_from_slice(&names.made(other));
    }
    if event_loop.is_event_stream {
        out.extend_from_slice(b" event_stream=yes");
    }
}

fn upstream(record: &Record<'_>, names: &Known, out: &mut Vec<u8>) {
    let upstream = &record.upstream;
    if !upstream.is_known() {
        return;
    }
    out.extend_from_slice(b" upstream=");
    out.extend_from_slice(or_dash(names.upstream(record)));
    out.extend_from_slice(b" attempts=");
    push_u64(out, u64::from(upstream.attempts));
    out.extend_from_slice(match upstream.reused {
        true => b" reused=yes connect=",
        false => b" reused=no connect=",
    });
    push_seconds(out, upstream.connect.0 / 1_000);
    if upstream.ttfb.0 > 0 {
        out.extend_from_slice(b" ttfb=");
        push_seconds(out, upstream.ttfb.0 / 1_000);
    }
    if let Some(own) = upstream.own {
        out.extend_from_slice(b" upstream_queue=");
        push_seconds(out, own.queue.0 / 1_000);
        out.extend_from_slice(b" upstream_run=");
        push_seconds(out, own.run.0 / 1_000);
    }
}

fn websocket(websocket: &WebSocketFacts, out: &mut Vec<u8>) {
    if websocket.close_code == 0 {
        return;
    }
    for (key, number) in [
        (&b" messages_in="[..], websocket.received),
        (b" messages_out=", websocket.sent),
        (b" close_code=", websocket.close_code.into()),
    ] {
        out.extend_from_slice(key);
        push_u64(out, number);
    }
}

fn ending(record: &Record<'_>, out: &mut Vec<u8>) {
    if record.ending != Ending::Complete {
        out.extend_from_slice(b" end=");
        out.extend_from_slice(record.ending.text().as_bytes());
    }
    if !record.cause.is_empty() {
        out.extend_from_slice(b" cause=\"");
        push_quoted(out, record.cause);
        out.push(b'"');
    }
}
