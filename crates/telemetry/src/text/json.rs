//! A record as one JSON object (RFC 8259), keys in a fixed order.
//!
//! Strings that are not known are empty and numbers are always there, so that every line has the same
//! shape; only the ids of a trace, `user`, `request_line`, `cause`, the facts of a stream and those of TLS come when there is one.

use super::date::DateText;
use super::digits::{push_seconds, push_u64};
use super::escape::push_json;
use super::names::Known;
use crate::phases::WholeMicros;
use crate::{LoopFacts, Queued, Record, ResetBy, StreamFacts, TlsRecord, WebSocketFacts};

/// Appends the object of `record`; the names are escaped already.
pub(super) fn object(record: &Record<'_>, date: &mut DateText, names: &Known, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    date.push_rfc3339(record.wall_arrived_ns, out);
    out.push(b'"');
    text(out, b",\"client\":\"", record.client);
    text(out, b",\"peer\":\"", record.peer);
    if !record.user.is_empty() {
        text(out, b",\"user\":\"", record.user);
    }
    text(out, b",\"method\":\"", record.method);
    text(out, b",\"target\":\"", record.target);
    text(out, b",\"protocol\":\"", record.version);
    number(out, b",\"status\":", u64::from(record.status));
    number(out, b",\"bytes\":", record.body_bytes);
    number(out, b",\"sent\":", record.sent_bytes);
    number(out, b",\"request_bytes\":", record.request_bytes);
    text(out, b",\"host\":\"", record.host);
    text(out, b",\"referer\":\"", record.referer);
    text(out, b",\"agent\":\"", record.user_agent);
    name(out, b",\"route\":\"", names.route(record));
    name(out, b",\"pool\":\"", names.pool(record));
    number(out, b",\"driver\":", u64::from(record.driver));
    number(out, b",\"process\":", u64::from(names.process));
    out.extend_from_slice(b",\"worker\":\"");
    names.push_worker(record, out);
    out.push(b'"');
    text(out, b",\"id\":\"", names.id(record, &mut [0; 16]));
    if record.trace.is_known() {
        text(out, b",\"trace_id\":\"", &record.trace.trace_id());
        text(out, b",\"span_id\":\"", &record.trace.span_id());
    }
    phases(record, out);
    queued(&record.queued, out);
    stream(&record.stream, out);
    websocket(&record.websocket, out);
    event_loop(&record.event_loop, names, out);
    upstream(record, names, out);
    text(out, b",\"end\":\"", record.ending.text().as_bytes());
    if let Some(tls) = TlsRecord::parse(record.tls) {
        handshake(&tls, out);
    }
    if !record.request_line.is_empty() {
        text(out, b",\"request_line\":\"", record.request_line);
    }
    if !record.cause.is_empty() {
        text(out, b",\"cause\":\"", record.cause);
    }
    out.push(b'}');
}

fn phases(record: &Record<'_>, out: &mut Vec<u8>) {
    let spans = record.phases.spans();
    let us = WholeMicros::of(&spans);
    seconds(out, b",\"receive\":", us.receive);
    seconds(out, b",\"queue\":", us.queue);
    seconds(out, b",\"run\":", us.run);
    seconds(out, b",\"send\":", us.send);
    seconds(out, b",\"total\":", us.total);
    seconds(out, b",\"gil\":", spans.gil.0 / 1_000);
    seconds(out, b",\"cpu\":", spans.cpu.0 / 1_000);
}

fn handshake(tls: &TlsRecord<'_>, out: &mut Vec<u8>) {
    text(out, b",\"tls\":\"", tls.version);
    text(out, b",\"cipher\":\"", tls.cipher);
    out.extend_from_slice(match tls.resumed {
        b"yes" => b",\"resumed\":true",
        _ => b",\"resumed\":false",
    });
    text(out, b",\"server_name\":\"", tls.server_name);
    text(out, b",\"alpn\":\"", tls.alpn);
    if let Some(took) = tls.handshake {
        seconds(out, b",\"handshake\":", took.0 / 1_000);
    }
}

fn queued(queued: &Queued, out: &mut Vec<u8>) {
    seconds(out, b",\"before\":", queued.before.0 / 1_000);
    number(out, b",\"waiting\":", u64::from(queued.waiting));
    number(out, b",\"threads\":", u64::from(queued.threads));
    number(out, b",\"idle\":", u64::from(queued.idle));
    out.extend_from_slice(match queued.from_queue {
        true => b",\"queued\":true",
        false => b",\"queued\":false",
    });
}

/// Only of a connection that has many.
fn stream(stream: &StreamFacts, out: &mut Vec<u8>) {
    if stream.number == 0 {
        return;
    }
    number(out, b",\"stream\":", u64::from(stream.number));
    if stream.reset_by != ResetBy::None {
        text(out, b",\"reset_by\":\"", stream.reset_by.text().as_bytes());
        number(out, b",\"reset_code\":", u64::from(stream.reset_code));
    }
    seconds(
        out,
        b",\"blocked_stream\":",
        stream.blocked_stream.0 / 1_000,
    );
    seconds(
        out,
        b",\"blocked_connection\":",
        stream.blocked_connection.0 / 1_000,
    );
}

/// Only of an exchange that ran on one.
fn event_loop(event_loop: &LoopFacts, names: &super::names::Known, out: &mut Vec<u8>) {
    if event_loop.steps == 0 {
        return;
    }
    seconds(out, b",\"loop\":", event_loop.wait.0 / 1_000);
    number(out, b",\"steps\":", u64::from(event_loop.steps));
    seconds(out, b",\"busy\":", event_loop.busy.0 / 1_000);
    seconds(out, b",\"longest\":", event_loop.longest.0 / 1_000);
    if let Some(other) = event_loop.blocked_by {
        text(out, b",\"blocked_by\":\"", &names.made(other));
    }
    if event_loop.is_event_stream {
        out.extend_from_slice(b",\"event_stream\":true");
    }
}

/// Only of an exchange that was sent to one.
fn upstream(record: &Record<'_>, names: &Known, out: &mut Vec<u8>) {
    let upstream = &record.upstream;
    if !upstream.is_known() {
        return;
    }
    name(out, b",\"upstream\":\"", names.upstream(record));
    number(out, b",\"attempts\":", u64::from(upstream.attempts));
    out.extend_from_slice(match upstream.reused {
        true => b",\"reused\":true",
        false => b",\"reused\":false",
    });
    seconds(out, b",\"connect\":", upstream.connect.0 / 1_000);
    if upstream.ttfb.0 > 0 {
        seconds(out, b",\"ttfb\":", upstream.ttfb.0 / 1_000);
    }
    if let Some(own) = upstream.own {
        seconds(out, b",\"upstream_queue\":", own.queue.0 / 1_000);
        seconds(out, b",\"upstream_run\":", own.run.0 / 1_000);
    }
}

/// Only of an exchange that became a WebSocket connection.
fn websocket(websocket: &WebSocketFacts, out: &mut Vec<u8>) {
    if websocket.close_code == 0 {
        return;
    }
    number(out, b",\"messages_in\":", websocket.received);
    number(out, b",\"messages_out\":", websocket.sent);
    number(out, b",\"close_code\":", u64::from(websocket.close_code));
}

fn text(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(key);
    push_json(out, value);
    out.push(b'"');
}

fn name(out: &mut Vec<u8>, key: &[u8], escaped: &[u8]) {
    out.extend_from_slice(key);
    out.extend_from_slice(escaped);
    out.push(b'"');
}

fn number(out: &mut Vec<u8>, key: &[u8], value: u64) {
    out.extend_from_slice(key);
    push_u64(out, value);
}

fn seconds(out: &mut Vec<u8>, key: &[u8], us: u64) {
    out.extend_from_slice(key);
    push_seconds(out, us);
}
