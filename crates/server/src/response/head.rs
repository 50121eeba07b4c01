//! The head writer: what a thread keeps to write the heads of its responses, and the head of the one at hand.
//!
//! Takes status and fields of the application, gives the framing of the body and the finished head. The server
//! adds its own fields: date, name, the id of the request, the phases that have passed and, for proxies, its load.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{FieldLines, HeadView, ReplyFacts, ReplyFraming, ReplyPlan, Version};
use telemetry::{Nanos, Phases, Stamp};

use super::content_encoding::{self, Treatment};
use super::sink::{Encoding, ResponseHead};
use crate::exchange::ExchangeRecord;
use crate::field_template::{RequestFacts, RouteChanges};
use crate::load_report::{LoadField, ServerLoad};
use config::typed::{Config, Rate};

const HSTS: &[u8] = b"Strict-Transport-Security";
const LOAD: &[u8] = b"endpoint-load-metrics";

/// What the application's fields said, so that the writer need not parse them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Declared {
    /// The value of `Content-Length`.
    pub content_length: Option<u64>,
    /// A `Date` field is there.
    pub date: bool,
    /// A `Server` field is there.
    pub server: bool,
    /// The connection is to end after this response.
    pub close: bool,
    /// The bandwidth that this response may have, whatever is configured.
    pub rate: Option<Rate>,
    /// Trailer fields follow the body, which is not compressed: `ResponseWriter::trailers`.
    pub has_trailers: bool,
}

/// Writes one head after the other: `begin_exchange`, then status, reason, lines and what is declared, `complete`.
#[derive(Default)]
pub(super) struct HeadWriter {
    has_timing: bool,
    /// Name of the field with the request's id; empty where none is sent.
    id_name: Vec<u8>,
    id: Vec<u8>,
    /// The line of the present second.
    date: FieldLines,
    date_until: Stamp,
    /// The line with the name of the server; none where it has none.
    server: FieldLines,
    /// `Strict-Transport-Security`; none where it is off.
    hsts: FieldLines,
    is_https: bool,
    changes: RouteChanges,
    /// The route of the exchange, where it changes anything.
    changing_route: Option<u16>,
    /// What that route sets.
    set: FieldLines,
    /// What a trusted proxy gets to know of the load; `None` where it gets nothing.
    load: Option<LoadField>,
    is_forwarded: bool,
    /// Used again from response to response.
    timing: Vec<u8>,
    /// Any lines: a head on its way to another.
    scratch: FieldLines,
    version: Version,
    pub(super) is_head: bool,
    /// Stamps that have passed, for `Server-Timing`.
    phases: Phases,
    pub(super) status: u16,
    pub(super) reason: Vec<u8>,
    pub(super) lines: FieldLines,
    pub(super) declared: Declared,
    /// The finished head as HTTP/1 sends it, until it is offered.
    pub(super) text: Vec<u8>,
}

impl HeadWriter {
    pub(super) fn new(config: &Config, load: &Arc<ServerLoad>) -> Self {
        let id_header = config.request_ids.header.as_deref();
        let mut server = FieldLines::new();
        if !config.headers.server.is_empty() {
            server.push(b"Server", config.headers.server.as_bytes());
        }
        let mut hsts = FieldLines::new();
        if let Some(value) = &config.headers.hsts {
            hsts.push(HSTS, value.value().as_bytes());
        }
        Self {
            changes: RouteChanges::of_responses(config),
            hsts,
            has_timing: config.headers.server_timing,
            server,
            load: LoadField::new(config, load),
            id_name: id_header.map_or_else(Vec::new, field_name),
            lines: FieldLines::with_capacity(1024),
            text: Vec::with_capacity(1024),
            ..Self::default()
        }
    }

    /// Whose response follows.
    pub(super) fn begin_exchange(&mut self, record: &ExchangeRecord, head: HeadView<'_>) {
        if !self.id_name.is_empty() {
            self.id.clear();
            self.id.extend_from_slice(&record.id.text(head));
        }
        self.version = head.index.version;
        self.is_head = head.is_head();
        self.is_https = record.is_https;
        self.is_forwarded = record.is_forwarded;
        self.phases = record.phases;
        self.status = 0;
        self.declared = Declared::default();
        self.text.clear();
        if !self.changes.is_empty() {
            self.prepare_changes(record, head);
        }
    }

    /// Makes the fields that the route of an exchange sets; its head is not there any more when they are written.
    #[cold]
    fn prepare_changes(&mut self, record: &ExchangeRecord, head: HeadView<'_>) {
        self.set.clear();
        let changes = self.changes.of(record.route);
        self.changing_route = changes.map(|_| record.route);
        let Some(changes) = changes else { return };
        let facts = RequestFacts {
            head,
            record,
            ends: None,
        };
        for (name, value) in facts.set(changes) {
            self.set.push(name, &value);
        }
    }

    /// Changes the fields as a coding of the body demands.
    pub(super) fn rewrite(&mut self, treatment: Treatment) {
        content_encoding::rewrite(&mut self.lines, &mut self.scratch, treatment);
        if let Treatment::Coded(_) = treatment {
            self.declared.content_length = None;
        }
    }

    /// Decides the framing and completes the head at `now`: for HTTP/1 as text, else as a value. `known`: the
    /// length of the body as it leaves, where its end is known.
    pub(super) fn complete(
        &mut self,
        known: Option<u64>,
        keep_alive: bool,
        encoding: Encoding,
        now: Stamp,
    ) -> (ReplyPlan, Option<ResponseHead>) {
        // RFC 9112 section 7.1.2: only a chunked body has room for trailer fields behind it.
        let is_chunked = self.declared.has_trailers && encoding == Encoding::Http1;
        let content_length = self.declared.content_length.or(known);
        let plan = http::plan_reply(&ReplyFacts {
            version: self.version,
            method_is_head: self.is_head,
            status: self.status,
            content_length: content_length.filter(|_| !is_chunked),
            keep_alive: keep_alive && !self.declared.close,
        });
        let length = match plan.framing {
            _ if self.declared.content_length.is_some() => None,
            ReplyFraming::Length(bytes) => Some(bytes),
            // A HEAD response whose application gave a body tells that body's length; one that gave none and
            // declared none tells nothing.
            ReplyFraming::NoBody if !matches!(self.status, 204 | 304) => {
                known.filter(|bytes| *bytes > 0)
            }
            _ => None,
        };
        if is_chunked && plan.framing == ReplyFraming::Chunked {
            // RFC 9112 section 6.2: not beside Transfer-Encoding.
            let is_length = |name: &[u8]| name.eq_ignore_ascii_case(b"content-length");
            self.lines.retain(|name, _| !is_length(name));
        }
        self.append_own(now);
        match encoding {
            Encoding::Http1 => {
                http::write_status_line_with(&mut self.text, self.status, &self.reason);
                self.text.extend_from_slice(self.lines.as_bytes());
                http::end_head(&mut self.text, &plan, self.version, length);
                (plan, None)
            }
            Encoding::Frames => {
                if let Some(bytes) = length {
                    self.lines.push_decimal(b"Content-Length", bytes);
                }
                let head = ResponseHead {
                    status: self.status,
                    fields: self.lines.clone().freeze(),
                    has_trailers: self.declared.has_trailers,
                };
                (plan, Some(head))
            }
        }
    }

    /// Appends the fields that the application has not given itself.
    fn append_own(&mut self, now: Stamp) {
        if self.has_timing {
            let phases = Phases {
                replied: now,
                ..self.phases
            };
            self.timing.clear();
            telemetry::timing::server_timing(&phases, &mut self.timing);
            self.lines.push(b"Server-Timing", &self.timing);
        }
        if self.is_forwarded
            && let Some(load) = &mut self.load
            && self.lines.get(LOAD).is_none()
        {
            self.lines.push(LOAD, load.value(&self.phases, now));
        }
        // Never over plain HTTP, where anybody on the way could write it (RFC 6797 section 7.2).
        if self.is_https && !self.hsts.is_empty() && self.lines.get(HSTS).is_none() {
            self.lines.append(&self.hsts);
        }
        if !self.id_name.is_empty() && self.lines.get(&self.id_name).is_none() {
            self.lines.push(&self.id_name, &self.id);
        }
        if !self.declared.date {
            self.refresh_date(now);
            self.lines.append(&self.date);
        }
        if !self.declared.server {
            self.lines.append(&self.server);
        }
        if let Some(changes) = self.changing_route.and_then(|route| self.changes.of(route)) {
            self.lines.retain(|name, _| !changes.replaces(name));
            self.lines.append(&self.set);
        }
    }

    /// The wall clock is read once a second, just after its second began. Writing and checking the lines of date and
    /// name for each response took 3 % of the processor time of a cached file.
    fn refresh_date(&mut self, now: Stamp) {
        if now < self.date_until {
            return;
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.unwrap_or(Duration::ZERO);
        let date = http::date::format(wall.as_secs());
        self.date.set(b"Date", &date);
        let rest_ns = 1_000_000_000 - u64::from(wall.subsec_nanos());
        self.date_until = now.plus(Nanos(rest_ns));
    }
}

/// `name` is in lower case; `x-request-id` is written as `X-Request-Id`.
fn field_name(name: &str) -> Vec<u8> {
    let mut name = name.as_bytes().to_vec();
    for word in name.split_mut(|byte| *byte == b'-') {
        word.iter_mut().take(1).for_each(u8::make_ascii_uppercase);
    }
    name
}
