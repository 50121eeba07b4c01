//! A record in the fields of a template.

use super::date::DateText;
use super::digits::{push_seconds, push_u64};
use super::escape::{push_listed, push_quoted};
use super::field::Field;
use super::names::Known;
use super::template::{Part, Place, Template};
use crate::phases::WholeMicros;
use crate::{LoopFacts, Nanos, Queued, Record, ResetBy, TlsRecord, WebSocketFacts};

/// The texts of a second, in both forms.
#[derive(Debug)]
pub(super) struct Dates {
    pub(super) clf: DateText,
    pub(super) iso: DateText,
}

/// All that fields are made of.
struct Facts<'f> {
    record: &'f Record<'f>,
    names: &'f Known,
    us: WholeMicros,
    gil: Nanos,
    cpu: Nanos,
}

/// A place in the line, and the bytes that are escaped where it is bare.
struct Slot<'s> {
    out: &'s mut Vec<u8>,
    place: Place,
    bare: &'s [bool; 256],
}

/// Appends the line of `record`, without its newline.
pub(super) fn line(
    record: &Record<'_>,
    template: &Template,
    names: &Known,
    dates: &mut Dates,
    out: &mut Vec<u8>,
) {
    let spans = record.phases.spans();
    let facts = Facts {
        record,
        names,
        us: WholeMicros::of(&spans),
        gil: spans.gil,
        cpu: spans.cpu,
    };
    for part in template.parts() {
        match part {
            Part::Text(text) => out.extend_from_slice(text.as_bytes()),
            Part::Field(field, place) => {
                let (place, bare) = (*place, template.bare());
                fill(*field, &facts, dates, &mut Slot { out, place, bare });
            }
        }
    }
}

fn fill(field: Field, facts: &Facts<'_>, dates: &mut Dates, slot: &mut Slot<'_>) {
    let Facts {
        record, names, us, ..
    } = facts;
    let wall_ns = record.wall_arrived_ns;
    match field {
        Field::Client => slot.text(record.client),
        Field::Peer => slot.text(record.peer),
        Field::User => slot.text(record.user),
        Field::Time => slot.out.extend_from_slice(dates.clf.clf_at(wall_ns)),
        Field::TimeIso => dates.iso.push_rfc3339(wall_ns, slot.out),
        Field::At => push_seconds(slot.out, wall_ns / 1_000),
        Field::Request => slot.request(record),
        Field::Method => slot.text(record.method),
        Field::Target => slot.text(record.target),
        Field::Path => slot.text(path_and_query(record.target).0),
        Field::Query => slot.text(path_and_query(record.target).1),
        Field::Protocol => slot.text(record.version),
        Field::Status if record.status == 0 => slot.text(b""),
        Field::Status => push_u64(slot.out, u64::from(record.status)),
        Field::Bytes => push_u64(slot.out, record.body_bytes),
        Field::Sent => push_u64(slot.out, record.sent_bytes),
        Field::RequestBytes => push_u64(slot.out, record.request_bytes),
        Field::Host => slot.text(record.host),
        Field::Referer => slot.text(record.referer),
        Field::Agent => slot.text(record.user_agent),
        Field::Route => slot.text(names.route(record)),
        Field::Pool => slot.text(names.pool(record)),
        Field::Driver => push_u64(slot.out, u64::from(record.driver)),
        Field::Process => push_u64(slot.out, u64::from(names.process)),
        Field::Worker => slot.worker(record, names),
        Field::Id => slot.text(names.id(record, &mut [0; 16])),
        Field::TraceId | Field::SpanId if !record.trace.is_known() => slot.text(b""),
        Field::TraceId => slot.text(&record.trace.trace_id()),
        Field::SpanId => slot.text(&record.trace.span_id()),
        Field::Receive => push_seconds(slot.out, us.receive),
        Field::Queue => push_seconds(slot.out, us.queue),
        Field::Run => push_seconds(slot.out, us.run),
        Field::Send => push_seconds(slot.out, us.send),
        Field::Total => push_seconds(slot.out, us.total),
        Field::Gil => push_seconds(slot.out, facts.gil.0 / 1_000),
        Field::Cpu => slot.cpu(facts.cpu),
        Field::Before => slot.before(record.queued.before),
        Field::Waiting => slot.count(&record.queued, record.queued.waiting),
        Field::Threads => slot.count(&record.queued, record.queued.threads),
        Field::Idle => slot.count(&record.queued, record.queued.idle),
        Field::Queued => slot.text(from_queue(&record.queued)),
        Field::Stream => slot.unless_zero(record.stream.number),
        Field::ResetBy => slot.text(record.stream.reset_by.text().as_bytes()),
        Field::ResetCode if record.stream.reset_by == ResetBy::None => slot.text(b""),
        Field::ResetCode => push_u64(slot.out, u64::from(record.stream.reset_code)),
        Field::BlockedStream => slot.before(record.stream.blocked_stream),
        Field::BlockedConnection => slot.before(record.stream.blocked_connection),
        Field::End => slot.text(record.ending.text().as_bytes()),
        Field::Cause => slot.text(record.cause),
        _ => fill_rare(field, facts, slot),
    }
}

/// What only some exchanges have.
fn fill_rare(field: Field, facts: &Facts<'_>, slot: &mut Slot<'_>) {
    let Facts { record, names, .. } = facts;
    match field {
        Field::MessagesIn | Field::MessagesOut | Field::CloseCode => {
            fill_websocket(field, &record.websocket, slot);
        }
        Field::Loop
        | Field::Steps
        | Field::Busy
        | Field::Longest
        | Field::BlockedBy
        | Field::EventStream => fill_loop(field, &record.event_loop, names, slot),
        Field::Upstream
        | Field::Attempts
        | Field::Reused
        | Field::Connect
        | Field::Ttfb
        | Field::UpstreamQueue
        | Field::UpstreamRun => fill_upstream(field, record, names, slot),
        _ => fill_tls(field, record, slot),
    }
}

fn fill_tls(field: Field, record: &Record<'_>, slot: &mut Slot<'_>) {
    let tls = TlsRecord::parse(record.tls).unwrap_or_default();
    match field {
        Field::Tls => slot.text(tls.version),
        Field::Cipher => slot.text(tls.cipher),
        Field::Resumed => slot.text(tls.resumed),
        Field::ServerName => slot.text(tls.server_name),
        Field::Alpn => slot.text(tls.alpn),
        _ => match tls.handshake {
            Some(took) => push_seconds(slot.out, took.0 / 1_000),
            None => slot.text(b""),
        },
    }
}

/// Only of an exchange that became a WebSocket connection.
fn fill_websocket(field: Field, websocket: &WebSocketFacts, slot: &mut Slot<'_>) {
    match field {
        _ if websocket.close_code == 0 => slot.text(b""),
        Field::MessagesIn => push_u64(slot.out, websocket.received),
        Field::MessagesOut => push_u64(slot.out, websocket.sent),
        _ => push_u64(slot.out, u64::from(websocket.close_code)),
    }
}

/// Only of an exchange that ran on an event loop.
fn fill_loop(field: Field, event_loop: &LoopFacts, names: &Known, slot: &mut Slot<'_>) {
    match field {
        _ if event_loop.steps == 0 => slot.text(b""),
        Field::Loop => push_seconds(slot.out, event_loop.wait.0 / 1_000),
        Field::Steps => push_u64(slot.out, u64::from(event_loop.steps)),
        Field::Busy => push_seconds(slot.out, event_loop.busy.0 / 1_000),
        Field::Longest => push_seconds(slot.out, event_loop.longest.0 / 1_000),
        Field::BlockedBy => match event_loop.blocked_by {
            Some(other) => slot.text(&names.made(other)),
            None => slot.text(b""),
        },
        _ if event_loop.is_event_stream => slot.text(b"yes"),
        _ => slot.text(b""),
    }
}

/// Only of an exchange that was sent to an upstream.
fn fill_upstream(field: Field, record: &Record<'_>, names: &Known, slot: &mut Slot<'_>) {
    let upstream = &record.upstream;
    let time = match field {
        _ if !upstream.is_known() => None,
        Field::Upstream => return slot.text(names.upstream(record)),
        Field::Attempts => return push_u64(slot.out, u64::from(upstream.attempts)),
        Field::Reused if upstream.reused => return slot.text(b"yes"),
        Field::Reused => return slot.text(b"no"),
        Field::Connect => Some(upstream.connect),
        Field::Ttfb => Some(upstream.ttfb).filter(|ttfb| ttfb.0 > 0),
        Field::UpstreamQueue => upstream.own.map(|own| own.queue),
        _ => upstream.own.map(|own| own.run),
    };
    match time {
        Some(time) => push_seconds(slot.out, time.0 / 1_000),
        None => slot.text(b""),
    }
}

impl Slot<'_> {
    fn text(&mut self, text: &[u8]) {
        match self.place {
            _ if text.is_empty() => self.out.push(b'-'),
            Place::Quoted => push_quoted(self.out, text),
            Place::Bare => push_listed(self.out, text, self.bare),
        }
    }

    fn worker(&mut self, record: &Record<'_>, names: &Known) {
        match record.phases.worker {
            None => self.text(b""),
            Some(_) => names.push_worker(record, self.out),
        }
    }

    /// Nothing where no thread ran it to its end.
    fn cpu(&mut self, cpu: Nanos) {
        match cpu {
            Nanos::ZERO => self.text(b""),
            cpu => push_seconds(self.out, cpu.0 / 1_000),
        }
    }

    fn unless_zero(&mut self, number: u32) {
        match number {
            0 => self.text(b""),
            number => push_u64(self.out, u64::from(number)),
        }
    }

    fn before(&mut self, before: Nanos) {
        match before.0 / 1_000 {
            0 => self.text(b""),
            before_us => push_seconds(self.out, before_us),
        }
    }

    /// One of the counts of `queued`.
    fn count(&mut self, queued: &Queued, len: u32) {
        match queued.is_known() {
            true => push_u64(self.out, u64::from(len)),
            false => self.text(b""),
        }
    }

    fn request(&mut self, record: &Record<'_>) {
        if record.method.is_empty() {
            return self.text(record.request_line);
        }
        self.text(record.method);
        self.space();
        self.text(record.target);
        if !record.version.is_empty() {
            self.space();
            self.text(record.version);
        }
    }

    fn space(&mut self) {
        self.out.extend_from_slice(match self.place {
            Place::Quoted => b" ",
            Place::Bare => b"\\x20",
        });
    }
}

fn from_queue(queued: &Queued) -> &'static [u8] {
    match (queued.is_known(), queued.from_queue) {
        (false, _) => b"",
        (true, true) => b"yes",
        (true, false) => b"no",
    }
}

/// What is before the first `?`, and what is behind it.
fn path_and_query(target: &[u8]) -> (&[u8], &[u8]) {
    match target.iter().position(|&byte| byte == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, b""),
    }
}
