//! The exchange: one request and all that is known of it. It travels by move and is never shared.
//!
//! Takes its head and body from a protocol, its id from its driver or a trusted client, its stamps from the threads
//! that it passes, and ends in a `Recorder`, exactly once: in the counters, the histograms and the log. `ownership`
//! says whether the driver or a worker may write its response, `stream` is what both share of it. Touches no socket.

pub use crate::client_limit::Permit;
pub use ::tls::HandshakeFacts;
pub use body_stream::{BodyEnd, BodyStream, StreamPiece};
pub use tls_facts::TlsFacts;

pub(crate) mod admitted;
mod body_stream;
mod observer;
pub(crate) mod ownership;
pub(crate) mod stream;
mod tls_facts;

use std::cell::Cell;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{BasicCredentials, HeadView, RequestHead};
use logging::{Log, OnFull, RecordWriter};
use smol_str::{SmolStr, ToSmolStr};
use telemetry::{
    AuthFacts, Ending, LoopFacts, NO_POOL, Phases, Queued, Record, Sampler, Spans, Stamp,
    StreamFacts, TraceContext, TraceParent, UpstreamFacts, WebSocketFacts, made_number,
};

use crate::blocking_pool::BlockingPool;
use crate::sync::invariant;
use crate::traces::SpanQueue;
use config::typed::{RequestIds, TraceParents, TraceShare, Traces};
use ipc::history::HistoryWriter;
use ipc::stats::Stats;
use telemetry::counters::{Exemplar, KnownMethod, RequestLabels};
use telemetry::history::{HeldRequest, HeldRun};

/// Bits of a number that count; those above them are the driver's index. At a million exchanges a second
/// they last 285 years.
const COUNT_BITS: u32 = 53;
/// The header that says which trace a request belongs to (W3C Trace Context).
pub const TRACEPARENT: &[u8] = b"traceparent";
/// What vendors add to it.
pub const TRACESTATE: &[u8] = b"tracestate";
/// Longest id that a client may give.
const GIVEN_BYTES_MAX: usize = 128;
/// Bytes of a refused head that the log shows at most.
const LINE_BYTES_MAX: usize = 256;

/// One complete request on its way to a worker.
pub struct Exchange {
    /// Method, target, headers. Shared with the driver, which logs the exchange when a deadline passes before
    /// its response.
    pub head: Arc<RequestHead>,
    /// What a rule put in the place of the head's target: in origin form, visible ASCII. The head stays as
    /// it was sent, for the log.
    pub rewritten: Option<Box<[u8]>>,
    /// The whole body; empty where it is still arriving.
    pub body: Body,
    /// The body while it arrives: only for an event loop.
    pub streamed: Option<Arc<BodyStream>>,
    /// Both ends of the request.
    pub ends: Arc<Ends>,
    /// Its place among the requests of a client that a proxy names, where those are limited. Given back when the
    /// exchange ends.
    pub permit: Option<Permit>,
    /// All else that is known of it.
    pub record: ExchangeRecord,
}

/// What is known of an exchange beside its head, its body and its ends; the recorder makes the log line of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExchangeRecord {
    /// What it is called.
    pub id: Id,
    /// Stamps that have passed.
    pub phases: Phases,
    /// Index of the pool that it goes through; `None` for what a driver answers.
    pub pool: Option<u16>,
    /// How much it matters in that pool.
    pub class: queueing::Class,
    /// What it found when it came to its pool's queue.
    pub queued: Queued,
    /// Its stream, where its connection has many.
    pub stream: StreamFacts,
    /// The WebSocket connection that it became.
    pub websocket: WebSocketFacts,
    /// Its steps on an event loop.
    pub event_loop: LoopFacts,
    /// The upstream that has answered it.
    pub upstream: UpstreamFacts,
    /// The server of `forward_auth` that was asked whether it may pass.
    pub auth: AuthFacts,
    /// Index of the route that took it.
    pub route: u16,
    /// Index of the driver that received it.
    pub driver: u16,
    /// The client sees HTTPS: that of the connection, or of a trusted proxy.
    pub is_https: bool,
    /// The user whom the client names has shown its password (`basic_auth`).
    pub has_user: bool,
    /// A trusted proxy has passed it on, and has described its client.
    pub is_forwarded: bool,
    /// Bytes of head and body received.
    pub request_bytes: u64,
    /// Status of the response; 0 when there was none.
    pub status: u16,
    /// Bytes of the response's head.
    pub head_bytes: u64,
    /// Bytes that the kernel took, head included.
    pub sent_bytes: u64,
    /// How it ended.
    pub ending: Ending,
    /// Why, when it was refused or cut.
    pub cause: &'static str,
}

impl ExchangeRecord {
    /// Of a request that has arrived, and that nothing else is known of.
    pub fn new(id: Id, driver: u16, arrived: Stamp) -> Self {
        Self {
            id,
            phases: Phases {
                arrived,
                ..Phases::default()
            },
            driver,
            ending: Ending::Complete,
            ..Self::default()
        }
    }

    /// A driver answers it at `now`: it waits for no worker.
    pub(crate) fn begin_inline(&mut self, now: Stamp) {
        self.phases.queued = now;
        self.phases.started = now;
    }

    /// It ends so, whatever was known of its end before.
    pub(crate) fn end_as(&mut self, ending: Ending, cause: &'static str) {
        self.ending = ending;
        self.cause = cause;
    }

    /// Its response was handed over and is out at `now`, if it was not before.
    pub(crate) fn end_at(&mut self, now: Stamp) {
        self.phases.replied = now;
        self.phases.sent = now;
    }
}

impl Exchange {
    /// Method and target as sent but for its query, and its id, for people: queries have passwords in them,
    /// and no setting of the access log hides them in an error log.
    pub fn name(&self) -> String {
        name(self.record.id, self.head())
    }

    /// Its place in a trace, where it has one: its application and its upstream get that in `traceparent`. What vendors
    /// said in `tracestate` goes with it if the trace is continued.
    pub fn trace(&self) -> Option<&TraceContext> {
        let trace = self.record.id.trace();
        trace.is_known().then_some(trace)
    }

    /// The text of its id.
    pub fn request_id(&self) -> IdText<'_> {
        self.record.id.text(self.head())
    }

    /// Whether it may be a call of gRPC, which clients of HTTP/2 alone can make: its body may be answered before it has
    /// ended, and its end wait for that.
    pub(crate) fn is_grpc(&self) -> bool {
        let is_stream = self.record.stream.number > 0;
        let content_type = || self.head().header("content-type");
        is_stream && content_type().is_some_and(http::is_grpc)
    }

    /// A borrowed look at the head, with the target as sent: which resource is meant, `path` and `query`
    /// tell.
    pub fn head(&self) -> HeadView<'_> {
        self.head.view()
    }

    /// The target that a handler is to answer for, not decoded: as sent, unless it was rewritten.
    pub fn target(&self) -> &[u8] {
        let rewritten = self.rewritten.as_deref();
        rewritten.unwrap_or_else(|| self.head().target())
    }

    /// The path of that target, not decoded; `*` in `OPTIONS *`.
    pub fn path(&self) -> &[u8] {
        match &self.rewritten {
            Some(target) => &target[..path_bytes(target)],
            None => self.head().path(),
        }
    }

    /// The query of that target without its `?`, not decoded.
    pub fn query(&self) -> Option<&[u8]> {
        match &self.rewritten {
            Some(target) => target.get(path_bytes(target) + 1..),
            None => self.head().query(),
        }
    }
}

/// What an exchange is called in the error log, kept beside it.
#[derive(Clone, Debug)]
pub struct ExchangeName {
    id: Id,
    head: Arc<RequestHead>,
}

impl ExchangeName {
    /// That of an exchange.
    pub fn of(exchange: &Exchange) -> Self {
        Self {
            id: exchange.record.id,
            head: Arc::clone(&exchange.head),
        }
    }

    /// The text of the id.
    pub fn id(&self) -> IdText<'_> {
        self.id.text(self.head.view())
    }
}

impl std::fmt::Display for ExchangeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name(self.id, self.head.view()))
    }
}

/// As `Exchange::name`, for one that has not become an exchange.
pub(crate) fn name(id: Id, head: HeadView<'_>) -> String {
    let (trace, id) = (id.trace, id.text(head));
    let target = &head.target()[..path_bytes(head.target())];
    let [method, target, id] = [head.method(), target, &*id].map(String::from_utf8_lossy);
    match trace.is_known() {
        false => format!("{method} {target} [id {id}]"),
        true => {
            let trace = trace.trace_id();
            let trace = String::from_utf8_lossy(&trace);
            format!("{method} {target} [id {id} trace {trace}]")
        }
    }
}

fn path_bytes(target: &[u8]) -> usize {
    memchr::memchr(b'?', target).unwrap_or(target.len())
}

/// A complete request body.
#[derive(Debug, Default)]
pub enum Body {
    /// No body was announced.
    #[default]
    Empty,
    /// At most `body_memory_max` bytes.
    Memory(Vec<u8>),
    /// An unnamed file of `bytes` bytes; read it by offset, its own cursor means nothing.
    File {
        /// Open for reading and writing.
        file: BodyFile,
        /// Length of the body.
        bytes: u64,
    },
}

/// The unnamed file of a body. Whichever thread drops it, closing it waits for the disk on a thread that may.
#[derive(Debug)]
pub struct BodyFile {
    file: Option<File>,
    closing: Option<BlockingPool>,
}

impl BodyFile {
    pub(crate) fn new(file: File, closing: &BlockingPool) -> Self {
        Self {
            file: Some(file),
            closing: Some(closing.clone()),
        }
    }
}

/// A file that the dropping thread closes itself.
impl From<File> for BodyFile {
    fn from(file: File) -> Self {
        Self {
            file: Some(file),
            closing: None,
        }
    }
}

impl Deref for BodyFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file.as_ref().expect("only its drop takes it out")
    }
}

impl Drop for BodyFile {
    fn drop(&mut self) {
        if let (Some(file), Some(closing)) = (self.file.take(), &self.closing) {
            // The last descriptor of a file without a name frees its space, which may wait for the disk.
            closing.discard(file);
        }
    }
}

impl Body {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Memory(data) => data.len() as u64,
            Body::File { bytes, .. } => *bytes,
        }
    }
}

/// Both ends of a request, as text because that is how applications and logs want them: those of its connection, or
/// those that a trusted proxy describes. Addresses are short: they lie in the value itself, and ten thousand idle
/// connections do not scatter those of the active ones over the heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// Client's address without port; `unix:` where it is the peer on a unix socket.
    pub client_host: SmolStr,
    /// Client's port; empty where it is not known.
    pub client_port: SmolStr,
    /// Address of the connection's other end without port; `unix:` for a unix socket.
    pub peer_host: SmolStr,
    /// Whether that end is a trusted proxy.
    pub is_trusted: bool,
    /// The address that the client connected to; the path for a unix socket.
    pub local_host: SmolStr,
    /// The port that the client connected to; empty for a unix socket.
    pub local_port: SmolStr,
    /// The host that the client asked for, with a port where it named one. `None`: the one of the head.
    pub host: Option<SmolStr>,
    /// The path below which the proxy serves this server, without a slash at its end.
    pub prefix: SmolStr,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// What the connection's TLS handshake has agreed on; `None` without TLS. A proxy in front may have had another one
    /// with the client.
    pub tls: Option<Arc<TlsFacts>>,
    /// Index of the listening address, stable for the life of the process.
    pub listener: u16,
}

impl Ends {
    /// The host that the client asked for, without its port; an IPv6 address keeps its brackets.
    pub(crate) fn host_name<'a>(&'a self, head: HeadView<'a>) -> Option<&'a str> {
        let asked = || std::str::from_utf8(head.authority()?).ok();
        let host = self.host.as_deref().or_else(asked)?;
        let end = host.rfind(']').map_or(0, |end| end + 1);
        let port = host[end..].rfind(':');
        Some(port.map_or(host, |colon| &host[..end + colon]))
    }
}

/// A client of an IPv6 socket that has an IPv4 address is named by that one.
pub(crate) fn host_and_port(at: SocketAddr) -> (SmolStr, SmolStr) {
    (host_text(at.ip()), at.port().to_smolstr())
}

/// An address as text, an IPv4-mapped one as the IPv4 one.
pub(crate) fn host_text(ip: IpAddr) -> SmolStr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => ip.to_smolstr(),
        // By hand: formatting costs 80 ns, and behind a proxy each request may have another client.
        IpAddr::V4(ip) => {
            let (mut text, mut len) = ([b'.'; 16], 0);
            for octet in ip.octets() {
                for (unit, is_shown) in [(100, octet > 99), (10, octet > 9), (1, true)] {
                    text[len] = b'0' + octet / unit % 10;
                    len += usize::from(is_shown);
                }
                text[len] = b'.';
                len += 1;
            }
            SmolStr::new(std::str::from_utf8(&text[..len - 1]).unwrap_or_default())
        }
    }
}

/// Names one exchange, for the whole of its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Id {
    number: u64,
    /// Tells the numbers of this process from those of others.
    seed: u64,
    /// Which field of the head holds the id that a trusted client gave.
    field: Option<u16>,
    /// Its place in a trace.
    trace: TraceContext,
}

/// The text of an id: visible ASCII, at most 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdText<'a> {
    /// Made of the number: 16 hexadecimal digits.
    Made([u8; 16]),
    /// As a trusted client gave it.
    Given(&'a [u8]),
}

/// What all drivers know of ids.
pub(crate) struct Ids {
    header: Option<String>,
    seed: u64,
    traces: Option<Tracing>,
}

/// How exchanges get their places in traces.
struct Tracing {
    seeds: [u64; 2],
    sampler: Sampler,
    parents: TraceParents,
}

/// The numbers of one driver.
pub(crate) struct Numbers(Cell<u64>);

impl Ids {
    pub(crate) fn new(config: &RequestIds, traces: &Traces) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| now.as_nanos());
        // Differs from process to process and from start to start: of the kernel's random bytes, which the
        // keys of the hash are, and of the time.
        let random = RandomState::new();
        let seed = |number: u8| random.hash_one((std::process::id(), now_ns, number));
        Self {
            header: config.header.clone(),
            seed: seed(0),
            traces: traces.has_ids.then(|| Tracing {
                seeds: [seed(1), seed(2)],
                sampler: match traces.share {
                    TraceShare::ParentBased(share) => Sampler::new(share, true),
                    TraceShare::Ratio(share) => Sampler::new(share, false),
                },
                parents: traces.parents,
            }),
        }
    }

    /// What the made ids of this process are mixed with.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The id of the exchange with this number; the ids of a trusted client count.
    pub(crate) fn id(&self, number: u64, head: HeadView<'_>, is_trusted: bool) -> Id {
        // Only an index: the id stays a plain value that is copied with its record, and each reader has the head.
        let header = self.header.as_deref().filter(|_| is_trusted);
        let field = header.and_then(|header| field_of_id(head, header));
        let traces = self.traces.as_ref();
        Id {
            field,
            trace: traces.map_or_else(TraceContext::default, |traces| {
                traces.context(self.seed, number, head, is_trusted)
            }),
            ..Id::made(self.seed, number)
        }
    }
}

impl Tracing {
    /// The span is called as the exchange is, unless a client gave that an id.
    fn context(
        &self,
        seed: u64,
        number: u64,
        head: HeadView<'_>,
        is_trusted: bool,
    ) -> TraceContext {
        let counts = head.is_complete() && (is_trusted || self.parents == TraceParents::All);
        let parent = counts.then(|| trace_parent(head)).flatten();
        let made = || self.seeds.map(|seed| made_number(seed, number));
        TraceContext::new(parent, made, made_number(seed, number), &self.sampler)
    }
}

/// What the head says of its trace. A field that is repeated says nothing (W3C Trace Context section 3.2).
fn trace_parent(head: HeadView<'_>) -> Option<TraceParent> {
    let named = |(name, _): &(&[u8], &[u8])| {
        name.len() == TRACEPARENT.len() && name.eq_ignore_ascii_case(TRACEPARENT)
    };
    let mut found = head.headers().filter(named);
    match (found.next(), found.next()) {
        (Some((_, value)), None) => TraceParent::parse(value),
        _ => None,
    }
}

impl Numbers {
    /// The numbers of the driver with this index, at most 2,047.
    pub(crate) fn of_driver(index: u16) -> Self {
        Self(Cell::new(u64::from(index) << COUNT_BITS))
    }

    pub(crate) fn next(&self) -> u64 {
        // No atomic: each driver has numbers of its own, told apart by the bits above the count.
        self.0.replace(self.0.get() + 1)
    }
}

impl Id {
    /// The id of the exchange with this number, which is unique in its process.
    pub fn made(seed: u64, number: u64) -> Self {
        Self {
            number,
            seed,
            field: None,
            trace: TraceContext::default(),
        }
    }

    /// Number of the exchange, unique in its process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its place in a trace.
    pub fn trace(&self) -> &TraceContext {
        &self.trace
    }

    /// What the client called it, if that counts. `head` is its own.
    pub fn given<'a>(&self, head: HeadView<'a>) -> Option<&'a [u8]> {
        let (_, value) = head.headers().nth(usize::from(self.field?))?;
        Some(value)
    }

    /// The text by which people find it; `head` is its own.
    pub fn text<'a>(&self, head: HeadView<'a>) -> IdText<'a> {
        match self.given(head) {
            Some(given) => IdText::Given(given),
            None => IdText::Made(telemetry::made_id(self.seed, self.number)),
        }
    }
}

impl Deref for IdText<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            IdText::Made(digits) => digits,
            IdText::Given(given) => given,
        }
    }
}

/// Index of the field `name`, if that is there once and its value can be an id.
fn field_of_id(head: HeadView<'_>, name: &str) -> Option<u16> {
    let headers = head.headers().zip(0_u16..);
    let mut found = headers.filter(|((field, _), _)| field.eq_ignore_ascii_case(name.as_bytes()));
    // A field that is repeated is no id: two parts of a system might each take another of them.
    match (found.next(), found.next()) {
        (Some(((_, value), index)), None) if can_be_an_id(value) => Some(index),
        _ => None,
    }
}

/// Ids go into logs, replies and other systems: nothing that ends a word, a quotation or a mark there, so that
/// an id is found again under the very text that was given.
fn can_be_an_id(value: &[u8]) -> bool {
    let is_fit = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\,[]".contains(byte);
    (1..=GIVEN_BYTES_MAX).contains(&value.len()) && value.iter().all(is_fit)
}

/// One thread's way to end exchanges.
pub(crate) struct Recorder {
    pen: Option<RecordWriter>,
    stats: Arc<Stats>,
    history: Option<HistoryWriter>,
    traces: Option<Arc<SpanQueue>>,
}

impl Recorder {
    pub(crate) fn new(
        log: &Arc<Log>,
        stats: Arc<Stats>,
        traces: Option<Arc<SpanQueue>>,
        on_full: OnFull,
    ) -> Self {
        Self {
            pen: log.record_writer(on_full),
            history: stats.history.map(HistoryWriter::new),
            stats,
            traces,
        }
    }

    /// Ends an exchange. Its head may be the beginning of one, which was refused.
    pub(crate) fn close(&self, ended: &ExchangeRecord, head: HeadView<'_>, ends: &Ends) {
        // Before anything is counted: a span below zero would wrap, and spoil the histograms for good.
        check_order(&ended.phases);
        let spans = ended.phases.spans();
        let labels = self.count(ended, &spans, head);
        let traced = self.traces.as_deref().filter(|traces| {
            let is_sampled = ended.id.trace.is_sampled();
            traces.wants(is_sampled, ended.status, spans.total)
        });
        if traced.is_some() || ended.id.trace.is_sampled() {
            let exemplar = Exemplar::new(&ended.id.trace, spans.total, unix_ms());
            let route = self.stats.route(ended.route);
            route.record_exemplar(labels, exemplar);
        }
        // Counted in any case; a process without an access log makes no record.
        if self.pen.is_none() && traced.is_none() {
            return;
        }
        let mut record = Record {
            id: ended.id.number(),
            trace: ended.id.trace,
            is_https: ended.is_https,
            phases: ended.phases,
            queued: ended.queued,
            stream: ended.stream,
            websocket: ended.websocket,
            event_loop: ended.event_loop,
            upstream: ended.upstream,
            auth: ended.auth,
            client: ends.client_host.as_bytes(),
            peer: ends.peer_host.as_bytes(),
            status: ended.status,
            body_bytes: ended.sent_bytes.saturating_sub(ended.head_bytes),
            sent_bytes: ended.sent_bytes,
            request_bytes: ended.request_bytes,
            ending: ended.ending,
            route: ended.route,
            pool: ended.pool.unwrap_or(NO_POOL),
            driver: ended.driver,
            cause: ended.cause.as_bytes(),
            tls: match &ends.tls {
                Some(tls) => tls.text(ended.phases.arrived, ended.stream.number),
                None => b"",
            },
            ..Record::default()
        };
        if head.is_complete() {
            record.request_id = ended.id.given(head).unwrap_or_default();
            fill_from_head(&mut record, head);
            if let Some(host) = &ends.host {
                record.host = host.as_bytes();
            }
        } else {
            record.request_line = first_line(head.bytes);
        }
        let credentials = ended.has_user.then(|| BasicCredentials::of(head)).flatten();
        if let Some(credentials) = &credentials {
            record.user = credentials.user();
        }
        if let Some(traced) = traced {
            traced.put(&record);
        }
        if let Some(pen) = &self.pen {
            pen.write(&record);
        }
    }

    /// Counts it, and keeps it in the history.
    fn count(&self, ended: &ExchangeRecord, spans: &Spans, head: HeadView<'_>) -> RequestLabels {
        let labels = RequestLabels {
            method: match head.is_complete() {
                true => KnownMethod::of(head.method()),
                false => KnownMethod::Other,
            },
            is_https: ended.is_https,
            status: ended.status,
        };
        let route = self.stats.route(ended.route);
        route.record(spans, labels, ended.ending, ended.sent_bytes);
        if let Some(history) = &self.history {
            let (method, path) = match head.is_complete() {
                true => (head.method(), head.path()),
                false => (&b""[..], &b""[..]),
            };
            history.write(held(ended, spans), method, path);
        }
        labels
    }
}

/// The wall clock, which is read for requests whose spans are recorded alone.
fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// What the history keeps of an exchange.
fn held(ended: &ExchangeRecord, spans: &Spans) -> HeldRequest {
    let (queued, own) = (&ended.queued, &ended.event_loop);
    let by = match own.steps {
        0 => HeldRun::Thread {
            cpu: spans.cpu,
            waiting: queued.waiting,
            threads: queued.threads,
            idle: queued.idle,
        },
        steps => HeldRun::EventLoop {
            steps,
            busy: own.busy,
            longest: own.longest,
        },
    };
    // 0 is no worker: the numbers begin again at 1.
    let worker = (ended.phases.worker).map_or(0, |worker| (worker.get() - 1) % 65_535 + 1);
    HeldRequest {
        arrived_us: ended.phases.arrived.0 / 1_000,
        route: ended.route,
        path: 0,
        pool: ended.pool,
        worker: worker as u16,
        status: ended.status,
        ending: ended.ending,
        receive: spans.receive,
        queue: spans.queue,
        run: spans.run,
        send: spans.send,
        sent_bytes: ended.sent_bytes,
        from_queue: queued.from_queue,
        is_long_lived: ended.websocket.close_code > 0 || own.is_event_stream,
        by,
    }
}

fn check_order(phases: &Phases) {
    invariant!(
        phases.are_in_order(),
        "the phases of an exchange are out of order: {phases:?}"
    );
}

fn fill_from_head<'a>(record: &mut Record<'a>, head: HeadView<'a>) {
    record.method = head.method();
    record.target = head.target();
    record.version = match head.index.version {
        http::Version::Http10 => b"HTTP/1.0",
        http::Version::Http11 => b"HTTP/1.1",
        // As the logs of other servers have it; RFC 9110 section 2.5 has no minor version.
        http::Version::Http2 => b"HTTP/2.0",
    };
    for (name, value) in head.headers() {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => record.host = value,
            7 if name.eq_ignore_ascii_case(b"referer") => record.referer = value,
            10 if name.eq_ignore_ascii_case(b"user-agent") => record.user_agent = value,
            _ => {}
        }
    }
}

fn first_line(received: &[u8]) -> &[u8] {
    // Cut first: what was refused may be as long as a head may be, without any line end.
    let head = &received[..received.len().min(LINE_BYTES_MAX)];
    let end = memchr::memchr2(b'\r', b'\n', head).unwrap_or(head.len());
    &head[..end]
}

#[cfg(test)]
mod tests;
