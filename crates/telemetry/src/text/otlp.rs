//! A record as spans of OpenTelemetry, in the JSON of OTLP (protobuf's mapping; ids in hexadecimal digits).
//!
//! One span for the request, by the semantic conventions for HTTP servers, and one below it for each of its phases and
//! for its upstream and for the server of `forward_auth`. Queries are left out: they have passwords in them.

use super::digits::push_u64;
use super::escape::{json, push_json};
use super::names::Known;
use super::privacy::Privacy;
use super::{Names, Style};
use crate::trace::{AUTH_CHILD, UPSTREAM_CHILD};
use crate::{Ending, NO_POOL, Nanos, Record, TraceContext};

/// Methods that the semantic conventions know.
const METHODS: [&[u8]; 9] = [
    b"CONNECT", b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT", b"TRACE",
];
/// Kinds of spans.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
/// Flags of a span beside those of its trace: what follows is known; its parent is another server's.
const PARENT_KNOWN: u64 = 0x100;
const PARENT_REMOTE: u64 = 0x200;

/// Writes records as spans.
#[derive(Debug)]
pub struct SpanWriter {
    privacy: Option<Privacy>,
    names: Known,
    /// What precedes all spans of a message.
    head: Vec<u8>,
}

/// A span that is being written.
struct OpenSpan<'o> {
    out: &'o mut Vec<u8>,
    has_attributes: bool,
}

/// Where a span is in its trace, and in time.
struct SpanPlace {
    id: [u8; 16],
    parent: Option<[u8; 16]>,
    kind: u64,
    flags: u64,
    begin_ns: u64,
    end_ns: u64,
}

impl SpanWriter {
    /// A writer that hides what the style hides. `resource`: attributes of the service; `version` is that of the
    /// program.
    pub fn new(
        style: Style,
        names: Names,
        resource: &[(String, String)],
        version: &str,
    ) -> SpanWriter {
        let mut head = b"{\"resourceSpans\":[{\"resource\":{\"attributes\":[".to_vec();
        let pid = names.process;
        for (key, value) in resource {
            push_pair(&mut head, key, value);
            head.push(b',');
        }
        push_number(&mut head, "process.pid", u64::from(pid));
        head.extend_from_slice(
            b"]},\"scopeSpans\":[{\"scope\":{\"name\":\"milepost\",\"version\":\"",
        );
        push_json(&mut head, version.as_bytes());
        head.extend_from_slice(b"\"},\"spans\":[");
        SpanWriter {
            privacy: Privacy::new(style),
            names: Known::of(names, json),
            head,
        }
    }

    /// Begins a message: spans follow, then [`SpanWriter::finish`].
    pub fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
    }

    /// Ends a message.
    pub fn finish(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"]}]}]}");
    }

    /// Appends the spans of a record with a context, behind those of others, and gives how many.
    pub fn write(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> usize {
        let names = &self.names;
        match &mut self.privacy {
            None => spans(record, names, out),
            Some(privacy) => spans(&privacy.show(record), names, out),
        }
    }
}

fn spans(record: &Record<'_>, names: &Known, out: &mut Vec<u8>) -> usize {
    let trace = &record.trace;
    let begin_ns = record.wall_arrived_ns;
    let passed = record.phases.spans();
    let mut written = 1;
    if out.last() == Some(&b'}') {
        out.push(b',');
    }
    request(record, names, out, begin_ns + passed.total.0);
    if record.auth.is_known() {
        auth(record, names, out);
        written += 1;
    }
    let is_queued = record.pool != NO_POOL;
    let mut at_ns = begin_ns;
    for (number, name, span, is_there) in [
        (1, "receive", passed.receive, true),
        (2, "queue", passed.queue, is_queued),
        (3, "run", passed.run, true),
        (4, "send", passed.send, true),
    ] {
        if name == "run" && record.upstream.is_known() {
            upstream(record, names, out, (at_ns, span));
            written += 1;
        }
        if is_there {
            let place = child(trace, number, INTERNAL, (at_ns, span));
            let mut open = open(out, trace, &place, |out| {
                out.extend_from_slice(name.as_bytes());
            });
            if number == 3 {
                open.run(record, names);
            }
            open.close(b"");
            written += 1;
        }
        at_ns += span.0;
    }
    written
}

/// The span of the request.
fn request(record: &Record<'_>, names: &Known, out: &mut Vec<u8>, end_ns: u64) {
    let trace = &record.trace;
    let is_known = METHODS.contains(&record.method);
    let route = names.route(record);
    // A name that begins otherwise is one of the server's own, no part of a URL.
    let route = (route.contains(&b'/')).then_some(route);
    let remote = if trace.has_parent() { PARENT_REMOTE } else { 0 };
    let place = SpanPlace {
        id: trace.span_id(),
        parent: trace.parent_id(),
        kind: SERVER,
        flags: u64::from(trace.flags()) | PARENT_KNOWN | remote,
        begin_ns: record.wall_arrived_ns,
        end_ns,
    };
    let mut open = open(out, trace, &place, |out| {
        push_json(out, if is_known { record.method } else { b"HTTP" });
        if let Some(route) = route {
            out.push(b' ');
            out.extend_from_slice(route);
        }
    });
    match is_known {
        true => open.text("http.request.method", record.method),
        false => {
            open.text("http.request.method", b"_OTHER");
            open.text("http.request.method_original", record.method);
        }
    }
    let path = record.target.split(|&byte| byte == b'?').next();
    open.text("url.path", path.unwrap_or_default());
    let scheme: &[u8] = if record.is_https { b"https" } else { b"http" };
    open.text("url.scheme", scheme);
    if let Some(route) = route {
        open.escaped("http.route", route);
    }
    if record.status > 0 {
        open.number("http.response.status_code", u64::from(record.status));
    }
    let version = record.version.strip_prefix(b"HTTP/").unwrap_or_default();
    open.text("network.protocol.name", b"http");
    let version = if version == b"2.0" { b"2" } else { version };
    open.text("network.protocol.version", version);
    open.text("client.address", record.client);
    open.text("network.peer.address", record.peer);
    open.text("server.address", record.host);
    open.text("user_agent.original", record.user_agent);
    open.number("http.response.body.size", record.body_bytes);
    open.escaped("milepost.route", names.route(record));
    open.text("milepost.request_id", names.id(record, &mut [0; 16]));
    open.text("milepost.end", record.ending.text().as_bytes());
    open.text("milepost.cause", record.cause);
    let error = error(record);
    if let Some(error) = &error {
        open.text("error.type", error);
    }
    open.close(match error {
        None => b"",
        Some(_) => b",\"status\":{\"code\":2}",
    });
}

/// Why the request counts as failed: semantic conventions for HTTP spans, status.
fn error(record: &Record<'_>) -> Option<Vec<u8>> {
    let has_failed = matches!(record.ending, Ending::Cut | Ending::Timeout | Ending::Lost);
    if record.status >= 500 {
        let mut text = Vec::new();
        push_u64(&mut text, u64::from(record.status));
        return Some(text);
    }
    has_failed.then(|| record.ending.text().as_bytes().to_vec())
}

/// The span of the request at its upstream, which is the parent of the spans there.
fn upstream(record: &Record<'_>, names: &Known, out: &mut Vec<u8>, time: (u64, Nanos)) {
    let facts = &record.upstream;
    let trace = &record.trace;
    let place = child(trace, UPSTREAM_CHILD, CLIENT, time);
    let mut open = open(out, trace, &place, |out| push_json(out, record.method));
    open.text("http.request.method", record.method);
    open.escaped("server.address", names.upstream(record));
    if facts.attempts > 1 {
        let again = u64::from(facts.attempts) - 1;
        open.number("http.request.resend_count", again);
    }
    open.seconds("milepost.connect", facts.connect);
    open.seconds("milepost.ttfb", facts.ttfb);
    // Where it has answered, the cause is another's: the client has left, say.
    let failure = match facts.status {
        0 => record.cause,
        _ => b"",
    };
    open.answered(facts.status, failure);
}

/// The span of the question to the server of `forward_auth`, within the phase `receive`.
fn auth(record: &Record<'_>, names: &Known, out: &mut Vec<u8>) {
    let (facts, trace) = (&record.auth, &record.trace);
    let begin_ns = record.wall_arrived_ns + facts.began().0;
    let place = child(trace, AUTH_CHILD, CLIENT, (begin_ns, facts.took()));
    let mut open = open(out, trace, &place, |out| {
        out.extend_from_slice(b"forward_auth");
    });
    open.text("http.request.method", b"GET");
    if let Some(server) = facts.server() {
        open.escaped("server.address", names.server(server));
    }
    open.answered(facts.status, facts.failure.text().as_bytes());
}

fn child(trace: &TraceContext, number: u8, kind: u64, (begin_ns, span): (u64, Nanos)) -> SpanPlace {
    SpanPlace {
        id: trace.child_id(number),
        parent: Some(trace.span_id()),
        kind,
        flags: u64::from(trace.flags()) | PARENT_KNOWN,
        begin_ns,
        end_ns: begin_ns + span.0,
    }
}

/// Begins a span, as far as its attributes.
fn open<'o>(
    out: &'o mut Vec<u8>,
    trace: &TraceContext,
    place: &SpanPlace,
    name: impl FnOnce(&mut Vec<u8>),
) -> OpenSpan<'o> {
    if out.last() == Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"traceId\":\"");
    out.extend_from_slice(&trace.trace_id());
    out.extend_from_slice(b"\",\"spanId\":\"");
    out.extend_from_slice(&place.id);
    if let Some(parent) = place.parent {
        out.extend_from_slice(b"\",\"parentSpanId\":\"");
        out.extend_from_slice(&parent);
    }
    out.extend_from_slice(b"\",\"flags\":");
    push_u64(out, place.flags);
    out.extend_from_slice(b",\"name\":\"");
    name(out);
    out.extend_from_slice(b"\",\"kind\":");
    push_u64(out, place.kind);
    // 64-bit numbers are texts in protobuf's JSON.
    out.extend_from_slice(b",\"startTimeUnixNano\":\"");
    push_u64(out, place.begin_ns);
    out.extend_from_slice(b"\",\"endTimeUnixNano\":\"");
    push_u64(out, place.end_ns);
    out.extend_from_slice(b"\",\"attributes\":[");
    OpenSpan {
        out,
        has_attributes: false,
    }
}

impl OpenSpan<'_> {
    fn key(&mut self, key: &str) {
        if self.has_attributes {
            self.out.push(b',');
        }
        self.has_attributes = true;
        self.out.extend_from_slice(b"{\"key\":\"");
        self.out.extend_from_slice(key.as_bytes());
    }

    /// An empty text is not known, and left out.
    fn text(&mut self, key: &str, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        self.key(key);
        self.out
            .extend_from_slice(b"\",\"value\":{\"stringValue\":\"");
        push_json(self.out, value);
        self.out.extend_from_slice(b"\"}}");
    }

    fn escaped(&mut self, key: &str, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        self.key(key);
        self.out
            .extend_from_slice(b"\",\"value\":{\"stringValue\":\"");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\"}}");
    }

    fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        self.out.extend_from_slice(b"\",\"value\":{\"intValue\":\"");
        push_u64(self.out, value);
        self.out.extend_from_slice(b"\"}}");
    }

    /// Zero is not known, and left out.
    fn seconds(&mut self, key: &str, value: Nanos) {
        if value.0 == 0 {
            return;
        }
        self.key(key);
        self.out
            .extend_from_slice(b"\",\"value\":{\"doubleValue\":");
        super::digits::push_seconds(self.out, value.0 / 1_000);
        self.out.extend_from_slice(b"}}");
    }

    /// What is known of the run alone.
    fn run(&mut self, record: &Record<'_>, names: &Known) {
        if record.pool != NO_POOL {
            self.escaped("milepost.pool", names.pool(record));
            let mut worker = Vec::new();
            names.push_worker(record, &mut worker);
            self.text("milepost.worker", &worker);
        }
        let spans = record.phases.spans();
        self.seconds("milepost.gil", spans.gil);
        self.seconds("milepost.cpu", spans.cpu);
    }

    /// Ends the span of a client: with the status of its response, 0 when none came, and why there is no other.
    fn answered(mut self, status: u16, failure: &[u8]) {
        let mut text = Vec::new();
        if status > 0 {
            push_u64(&mut text, u64::from(status));
            self.number("http.response.status_code", u64::from(status));
        }
        // Semantic conventions for HTTP clients: each status from 400 on is an error.
        let error = match failure {
            [] if status >= 400 => &text[..],
            failure => failure,
        };
        self.text("error.type", error);
        self.close(match error {
            [] => b"",
            [..] => b",\"status\":{\"code\":2}",
        });
    }

    fn close(self, more: &[u8]) {
        self.out.push(b']');
        self.out.extend_from_slice(more);
        self.out.push(b'}');
    }
}

fn push_pair(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(b"{\"key\":\"");
    push_json(out, key.as_bytes());
    out.extend_from_slice(b"\",\"value\":{\"stringValue\":\"");
    push_json(out, value.as_bytes());
    out.extend_from_slice(b"\"}}");
}

fn push_number(out: &mut Vec<u8>, key: &str, value: u64) {
    out.extend_from_slice(b"{\"key\":\"");
    push_json(out, key.as_bytes());
    out.extend_from_slice(b"\",\"value\":{\"intValue\":\"");
    push_u64(out, value);
    out.extend_from_slice(b"\"}}");
}
