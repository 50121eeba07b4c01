//! The response writer: what every backend answers through, on a worker and on a driver.
//!
//! Takes a head and pieces of a body, encodes them for HTTP/1 or leaves that to the driver's protocol, and gives
//! the bytes to a `Sink`, which never waits: a worker is free as soon as the application has handed over its
//! last piece, however slow the client. Bodies that are compressed on the way pass `compressed`. A thread uses one
//! writer again and again; it is owned by whoever answers, and returned with the end of the response.

mod compressed;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use measure::{Ending, Nanos, Phases, Stamp};
use rustix::io::ReadWriteFlags;
use wire::{FieldLines, ReplyFacts, ReplyFraming, ReplyPlan, Version};

use super::compressor::Compressor;
use super::content_encoding::{self, Accepted, Treatment};
use super::head::ServerFields;
use super::memory::ReplyMemory;
use super::sink::{Encoding, Frame, Piece, ResponseHead, Sink};
use super::{Part, Parts, Response, ResponseBody};
use crate::config::meant::{Coding, Compression, Config, Delivery, Rate};
use crate::exchange::stream::{Abandoned, After, StreamShared, Waited};
use crate::exchange::{ExchangeRecord, Id};
use crate::transport::PlainSocket;

/// Spans of files up to this size are sent by the thread that has them, where they are in the page cache.
const READ_BYTES_MAX: u64 = 64 << 10;
/// Pieces up to this size are offered to the socket without further thought.
const QUICK_BYTES: usize = 64 << 10;

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
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Sent, or kept for the driver to send.
    All,
    /// The declared `Content-Length` was reached: the excess was dropped.
    Overrun,
    /// The client is gone, or was given up: nothing more will be sent.
    Gone,
}

/// What the writer has to know of the request.
#[derive(Clone, Copy)]
pub(crate) struct RequestFacts {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    /// The connection may live on afterwards.
    pub(crate) keep_alive: bool,
    /// Stamps that have passed, for `Server-Timing`.
    pub(crate) phases: Phases,
    /// Content codings of the client; `None` when nothing is compressed.
    pub(crate) accepted: Option<Accepted>,
}

/// Where a response goes.
pub(crate) struct Destination {
    /// The stream of a worker; `None` on a driver, which sends the rest itself.
    pub(crate) stream: Option<Arc<StreamShared>>,
    /// The socket, where this thread may write to it.
    pub(crate) direct: Option<Arc<PlainSocket>>,
    /// The response has a limited bandwidth, unless the application lifts it: the driver sends.
    pub(crate) is_limited: bool,
    pub(crate) encoding: Encoding,
}

/// A way to answer one exchange.
pub struct ResponseWriter(Box<Inner>);

struct Inner {
    // The thread's, from response to response.
    settings: Settings,
    server_fields: ServerFields,
    compression: Option<CompressionTools>,
    // The response's.
    request: RequestFacts,
    state: State,
    status: u16,
    reason: Vec<u8>,
    lines: FieldLines,
    /// The head as HTTP/1 sends it.
    head: Vec<u8>,
    declared: Declared,
    treatment: Treatment,
    /// Why the body cannot be completed.
    failed: Option<&'static str>,
    sink: Sink,
    head_bytes: u64,
    replied: Stamp,
    sent: Stamp,
    /// How long the worker has waited for the client.
    waited: Nanos,
}

/// What a thread's writer keeps to.
struct Settings {
    delivery: Delivery,
    memory: Arc<ReplyMemory>,
    /// Connections end with their next response.
    draining: Arc<AtomicBool>,
}

/// What compressing takes.
struct CompressionTools {
    config: Compression,
    compressor: Compressor,
    /// Any lines: a head on its way to another.
    scratch: FieldLines,
}

/// ```text
/// SILENT ──begin──► BEGUN ──first bytes──► OPEN
///                     │  ▲ begin             ▲ pieces
///                     └──┘                   └──┘
/// ```
#[derive(Clone, Copy)]
enum State {
    Silent,
    /// Status and fields are there.
    Begun,
    /// The head is out. `left`: bytes of the declared length still to come from the application; `coding`: what
    /// they are compressed with.
    Open {
        plan: ReplyPlan,
        left: Option<u64>,
        coding: Option<Coding>,
    },
}

/// How a response has ended, beside what its record says.
pub(crate) struct Ended {
    pub(crate) after: After,
    /// Where the rest of the response is.
    pub(crate) rest: Rest,
    /// How long the worker has waited for the client.
    pub(crate) waited: Nanos,
}

/// The part of a response that the socket has not taken.
pub(crate) enum Rest {
    /// None.
    Sent,
    /// In the stream: its driver sends it and ends the exchange.
    Queued,
    /// In this driver's hand; the head where its protocol encodes it.
    #[cfg_attr(not(feature = "faults"), expect(dead_code))]
    Here(Parts, Option<ResponseHead>),
}

/// Whether the head goes out with a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    Unsent,
    Sent,
}

/// Whether the application's fields tell the length of the body as it leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Told,
    Untold,
}

impl ResponseWriter {
    /// The writer of a thread. `draining`: whether connections end with their next response.
    pub(crate) fn new(
        config: &Config,
        memory: &Arc<ReplyMemory>,
        draining: &Arc<AtomicBool>,
    ) -> Self {
        Self(Box::new(Inner {
            settings: Settings {
                delivery: config.delivery.clone(),
                memory: Arc::clone(memory),
                draining: Arc::clone(draining),
            },
            server_fields: ServerFields::new(&config.headers, &config.request_ids),
            compression: None,
            request: RequestFacts {
                version: Version::Http11,
                is_head: false,
                keep_alive: false,
                phases: Phases::default(),
                accepted: None,
            },
            state: State::Silent,
            status: 0,
            reason: Vec::new(),
            lines: FieldLines::with_capacity(1024),
            head: Vec::with_capacity(1024),
            declared: Declared::default(),
            treatment: Treatment::Untouched,
            failed: None,
            sink: Sink::none(),
            head_bytes: 0,
            replied: Stamp::ZERO,
            sent: Stamp::ZERO,
            waited: Nanos::ZERO,
        }))
    }

    /// The same for a thread that compresses responses, if codings are configured.
    pub(crate) fn compressing(mut self, config: &Compression) -> Self {
        self.0.compression = (!config.codings.is_empty()).then(|| CompressionTools {
            config: config.clone(),
            compressor: Compressor::new(config),
            scratch: FieldLines::new(),
        });
        self
    }

    /// What a request accepts; `None` when nothing is compressed anyway.
    pub(crate) fn accepted(&self, head: wire::HeadView<'_>) -> Option<Accepted> {
        let tools = self.0.compression.as_ref()?;
        Some(Accepted::read(head, &tools.config))
    }

    /// Begins to answer an exchange; `head` is `None` when the request never had a complete one.
    pub(crate) fn begin_exchange(
        &mut self,
        id: Id,
        head: Option<wire::HeadView<'_>>,
        request: RequestFacts,
        to: Destination,
    ) {
        let inner = &mut *self.0;
        inner.server_fields.begin(id, head);
        inner.request = request;
        inner.state = State::Silent;
        inner.status = 0;
        inner.declared = Declared::default();
        inner.treatment = Treatment::Untouched;
        inner.failed = None;
        inner.sink = Sink::new(to);
        inner.head_bytes = 0;
        inner.replied = Stamp::ZERO;
        inner.sent = Stamp::ZERO;
        inner.waited = Nanos::ZERO;
    }

    /// Begins the response, or begins it anew until its head has been sent. `lines` are taken; what is given
    /// back for them is without lines, and has memory for the next ones.
    ///
    /// # Panics
    /// When the head has been sent, or for a status outside 200 to 999: an interim status is no response.
    pub fn begin(
        &mut self,
        status: u16,
        reason: &[u8],
        lines: &mut FieldLines,
        declared: Declared,
    ) {
        assert!(!self.head_is_sent(), "the head has been sent");
        assert!(
            (200..=999).contains(&status),
            "status {status} is no final status"
        );
        let inner = &mut *self.0;
        inner.state = State::Begun;
        inner.status = status;
        inner.reason.clear();
        inner.reason.extend_from_slice(reason);
        inner.lines.clear();
        std::mem::swap(&mut inner.lines, lines);
        inner.declared = declared;
        inner.sink.set_rate(declared.rate);
        inner.treatment = match (inner.request.accepted, &inner.compression) {
            (Some(accepted), Some(tools)) => {
                let types = &tools.config.types;
                content_encoding::treatment(status, &inner.lines, accepted, types)
            }
            _ => Treatment::Untouched,
        };
    }

    /// Whether the head has left, so that neither status nor fields can be changed.
    pub fn head_is_sent(&self) -> bool {
        matches!(self.0.state, State::Open { .. })
    }

    /// Whether no response has been begun.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.0.state, State::Silent)
    }

    /// The account of what waits for clients.
    pub fn memory(&self) -> &Arc<ReplyMemory> {
        &self.0.settings.memory
    }

    /// True when `piece` or `whole` would only do a short step that neither waits nor compresses or copies
    /// much.
    pub fn is_quick(&self, bytes: usize) -> bool {
        bytes <= QUICK_BYTES && self.0.is_coded_quickly(bytes) && !self.0.is_beyond_bound()
    }

    /// True when a span of a file would only be passed on; false when some of it would be read and compressed,
    /// or when it would wait.
    pub fn file_is_quick(&self) -> bool {
        let coded = matches!(
            self.0.state,
            State::Open {
                coding: Some(_),
                ..
            }
        );
        !coded && !self.0.is_beyond_bound()
    }

    /// The head and the whole body at once. Adds `Content-Length` when none was declared. The body is kept by
    /// reference where the socket does not take it, unless it is compressed.
    pub fn whole<P: Piece + ?Sized>(&mut self, body: &P) -> Taken {
        let body: &dyn Piece = &body;
        let inner = &mut *self.0;
        inner.replied = measure::now();
        let taken = match inner.coding_for(Some(body.bytes().len() as u64)) {
            Some(coding) => inner.whole_coded(coding, body),
            None => inner.whole_plain(body),
        };
        inner.sent = measure::now();
        taken
    }

    /// One piece of a stream; the head leaves with the first that is not empty. Before another piece of a
    /// response of which more than `reply_spool_bytes_max` waits, the thread waits for the client, for
    /// `stream_wait_timeout` at most: see `is_quick`.
    pub fn piece<P: Piece + ?Sized>(&mut self, data: &P) -> Taken {
        let inner = &mut *self.0;
        if data.bytes().is_empty() {
            return inner.state_of_client();
        }
        inner.wait_while_beyond_bound();
        inner.give(&data)
    }

    /// As `piece`, for one of several that the application has handed over together: nothing waits.
    pub fn piece_of_many<P: Piece + ?Sized>(&mut self, data: &P) -> Taken {
        match data.bytes().is_empty() {
            true => self.0.state_of_client(),
            false => self.0.give(&data),
        }
    }

    /// A span of a file as (the next part of) the body, sent by another thread without a copy. A short one is
    /// read here if that needs no disk, because three threads would have to take turns for it; one behind a
    /// piece that was compressed is read and compressed.
    pub fn file(&mut self, file: File, offset: u64, bytes: u64) -> Taken {
        let inner = &mut *self.0;
        match inner.state {
            _ if bytes == 0 => return inner.state_of_client(),
            State::Open {
                coding: Some(_), ..
            } => return inner.compress_file(&file, offset, bytes),
            State::Open { .. } => inner.wait_while_beyond_bound(),
            // The response is the file's.
            State::Silent | State::Begun => inner.treatment = Treatment::Untouched,
        }
        if bytes <= READ_BYTES_MAX
            && let Some(data) = read_cached(&file, offset, bytes)
        {
            return inner.give_known(&data.as_slice(), bytes);
        }
        inner.pass_file(file, offset, bytes)
    }

    /// A response of the server's own.
    pub(crate) fn respond(&mut self, response: Response) {
        let Response {
            status,
            fields,
            body,
        } = response;
        let mut lines = std::mem::take(&mut self.0.lines);
        lines.clear();
        lines.append(&fields);
        let declared = Declared {
            content_length: Some(body.bytes()),
            ..Declared::default()
        };
        self.begin(
            status,
            wire::reason(status).as_bytes(),
            &mut lines,
            declared,
        );
        match body {
            ResponseBody::Empty => drop(self.whole(&Bytes::new())),
            ResponseBody::One(Part::Memory(data)) => drop(self.whole(&data)),
            other => self.0.pass_parts(other),
        }
    }

    /// Ends the response as far as the application is concerned. The record learns of it, and the writer is free
    /// for the next exchange.
    pub(crate) fn finish(&mut self, record: &mut ExchangeRecord) -> Ended {
        let inner = &mut *self.0;
        if matches!(inner.state, State::Begun) {
            self.whole(&Bytes::new());
        }
        let inner = &mut *self.0;
        let State::Open { plan, left, coding } = inner.state else {
            return inner.end(record, Ending::Lost, "no response", After::Close);
        };
        if let Some(cause) = inner.failed {
            return self.cut(record, cause);
        }
        // An application may stop once its client is gone.
        if left.is_some_and(|left| left > 0) && !inner.sink.is_closed() {
            return self.cut(record, "body shorter than its Content-Length");
        }
        if coding.is_some() {
            inner.end_coded(plan.framing);
        } else if inner.is_chunked(plan.framing) {
            inner.offer(&Frame::plain(b"", wire::LAST_CHUNK));
        }
        if let Some(cause) = inner.failed {
            return self.cut(record, cause);
        }
        let after = match plan.keep_alive {
            true => After::Keep,
            false => After::Close,
        };
        inner.end(record, Ending::Complete, "", after)
    }

    /// Ends a response that cannot be completed: it must not look complete to the client.
    pub(crate) fn cut(&mut self, record: &mut ExchangeRecord, cause: &'static str) -> Ended {
        let inner = &mut *self.0;
        let after = match inner.state {
            // An ordinary end would be the sign of completeness here.
            State::Open { plan, .. } if plan.framing == ReplyFraming::UntilClose => After::Reset,
            _ => After::Close,
        };
        inner.end(record, Ending::Cut, cause, after)
    }
}

impl Inner {
    fn end(
        &mut self,
        record: &mut ExchangeRecord,
        ending: Ending,
        cause: &'static str,
        after: After,
    ) -> Ended {
        if let Some(tools) = &mut self.compression {
            tools.compressor.rest();
        }
        // For a response given whole the application was done when it gave it; a stream is done now.
        if self.replied == Stamp::ZERO {
            self.replied = measure::now();
            self.sent = self.replied;
        }
        let is_gone = self.sink.was_refused() && ending == Ending::Complete;
        record.status = self.status;
        record.head_bytes = self.head_bytes;
        record.sent_bytes = self.sink.sent_bytes;
        record.phases.replied = self.replied;
        record.phases.sent = self.sent;
        record.end_as(if is_gone { Ending::PeerGone } else { ending }, cause);
        let sink = std::mem::replace(&mut self.sink, Sink::none());
        let rest = match &sink.stream {
            Some(_) if sink.is_queued => Rest::Queued,
            None if !sink.rest.is_empty() || sink.head.is_some() => {
                Rest::Here(sink.rest, sink.head)
            }
            _ => Rest::Sent,
        };
        self.state = State::Silent;
        Ended {
            after: if is_gone { After::Close } else { after },
            rest,
            waited: self.waited,
        }
    }

    /// Whether the next piece of a stream has to wait for the client.
    fn is_beyond_bound(&self) -> bool {
        let Some(stream) = self.sink.stream.as_ref().filter(|_| self.sink.is_queued) else {
            return false;
        };
        let pending = stream.pending();
        pending.abandoned().is_none()
            && pending.unsent_bytes() > self.settings.delivery.reply_spool_bytes_max
    }

    /// The one wait of a worker for a client: of a streamed response more waits than it may. A whole response
    /// never waits, whatever its size: the application has handed it over already.
    fn wait_while_beyond_bound(&mut self) {
        if !self.is_beyond_bound() {
            return;
        }
        let Some(stream) = &self.sink.stream else {
            return;
        };
        let delivery = &self.settings.delivery;
        let began = measure::now();
        let left = Nanos(delivery.stream_wait_timeout.0.saturating_sub(self.waited.0));
        let waited =
            stream.wait_for_room(delivery.reply_spool_bytes_max, Duration::from_nanos(left.0));
        self.waited = Nanos(self.waited.0 + measure::now().since(began).0);
        if waited == Waited::TooLong {
            let unsent = stream.abandon(Abandoned::WaitedTooLong);
            self.settings.memory.discard(unsent);
        }
        if waited != Waited::Room {
            self.sink.close();
        }
    }

    /// A piece that is not empty.
    fn give(&mut self, data: &dyn Piece) -> Taken {
        match self.state {
            State::Open {
                coding: Some(_), ..
            } => self.compress(Head::Sent, data.bytes()),
            State::Open { plan, .. } => self.offer_body(plan.framing, Head::Sent, data),
            State::Silent | State::Begun => match self.coding_for(None) {
                Some(coding) => self.first_coded(coding, data),
                None => {
                    let plan = self.open(None, measure::now());
                    self.offer_body(plan.framing, Head::Unsent, data)
                }
            },
        }
    }

    /// Data that was read of a span of `bytes` bytes. When the file ends before it, the response stays short of
    /// what was announced, and is cut there.
    fn give_known(&mut self, data: &dyn Piece, bytes: u64) -> Taken {
        match self.state {
            State::Open { plan, .. } => self.offer_body(plan.framing, Head::Sent, data),
            State::Silent | State::Begun => {
                let plan = self.open(Some(bytes), measure::now());
                self.offer_body(plan.framing, Head::Unsent, data)
            }
        }
    }

    fn pass_file(&mut self, file: File, offset: u64, bytes: u64) -> Taken {
        let mut parts = Parts::default();
        if !matches!(self.state, State::Open { .. }) {
            self.open(Some(bytes), measure::now());
            parts.push_copy(&self.head);
        }
        let State::Open { plan, left, .. } = &mut self.state else {
            return Taken::Gone;
        };
        let fitting = left.map_or(bytes, |left| left.min(bytes));
        if let Some(left) = left {
            *left -= fitting;
        }
        let framing = plan.framing;
        let part = Part::File {
            file: Arc::new(file),
            offset,
            bytes: fitting,
            edition: None,
        };
        match framing {
            ReplyFraming::NoBody => {}
            _ if self.is_chunked(framing) => {
                let count = usize::try_from(fitting).expect("a 64-bit machine");
                parts.push_copy(wire::chunk_prefix(count).as_bytes());
                parts.push(part);
                parts.push(Part::Memory(Bytes::from_static(wire::CHUNK_SUFFIX)));
            }
            _ => parts.push(part),
        }
        self.sink.pass(parts, &self.settings.memory);
        match self.sink.was_refused() {
            true => Taken::Gone,
            false if fitting < bytes => Taken::Overrun,
            false => Taken::All,
        }
    }

    /// A body of the server's own that is not one buffer.
    fn pass_parts(&mut self, body: ResponseBody) {
        self.replied = measure::now();
        let plan = self.open(None, self.replied);
        let mut parts = Parts::default();
        parts.push_copy(&self.head);
        if plan.framing != ReplyFraming::NoBody {
            parts.push_body(body);
        }
        self.state = State::Open {
            plan,
            left: None,
            coding: None,
        };
        self.sink.pass(parts, &self.settings.memory);
        self.sent = measure::now();
    }

    fn whole_plain(&mut self, body: &dyn Piece) -> Taken {
        let plan = self.open(Some(body.bytes().len() as u64), self.replied);
        self.offer_body(plan.framing, Head::Unsent, body)
    }

    /// Decides the framing and ends the head of a body as the application gives it. `known`: its length, when
    /// the application gives the whole.
    fn open(&mut self, known: Option<u64>, now: Stamp) -> ReplyPlan {
        if self.treatment != Treatment::Untouched {
            self.rewrite_head();
        }
        let length = match self.declared.content_length {
            Some(_) => Length::Told,
            None => Length::Untold,
        };
        // A HEAD response whose application gave a body tells that body's length; one that gave none and
        // declared none tells nothing.
        let may_tell = self.request.is_head && !matches!(self.status, 204 | 304);
        if let Some(known) =
            known.filter(|bytes| may_tell && length == Length::Untold && *bytes > 0)
        {
            self.lines.push_decimal(b"Content-Length", known);
        }
        let plan = self.plan(self.declared.content_length.or(known));
        let left = match plan.framing {
            ReplyFraming::Length(bytes) => Some(bytes),
            _ => None,
        };
        let coding = None;
        self.state = State::Open { plan, left, coding };
        self.end_head(&plan, length, now);
        plan
    }

    fn plan(&self, content_length: Option<u64>) -> ReplyPlan {
        let draining = self.settings.draining.load(Ordering::Relaxed);
        wire::plan_reply(&ReplyFacts {
            version: self.request.version,
            method_is_head: self.request.is_head,
            status: self.status,
            content_length,
            keep_alive: self.request.keep_alive && !self.declared.close && !draining,
        })
    }

    /// Completes the head: for HTTP/1 as text, else as a value.
    fn end_head(&mut self, plan: &ReplyPlan, length: Length, now: Stamp) {
        let phases = Phases {
            replied: now,
            ..self.request.phases
        };
        self.server_fields
            .append(&mut self.lines, &self.declared, &phases);
        let body_bytes = match plan.framing {
            ReplyFraming::NoBody => Some(0),
            ReplyFraming::Length(bytes) => Some(bytes),
            ReplyFraming::Chunked | ReplyFraming::UntilClose => None,
        };
        let write_length = body_bytes.filter(|_| {
            length == Length::Untold && matches!(plan.framing, ReplyFraming::Length(_))
        });
        self.head.clear();
        match self.sink.encoding {
            Encoding::Http1 => {
                wire::write_status_line_with(&mut self.head, self.status, &self.reason);
                self.head.extend_from_slice(self.lines.as_bytes());
                wire::end_head(&mut self.head, plan, self.request.version, write_length);
            }
            Encoding::Frames => {
                if let Some(bytes) = write_length {
                    self.lines.push_decimal(b"Content-Length", bytes);
                }
                self.sink.head = Some(ResponseHead {
                    status: self.status,
                    fields: self.lines.clone(),
                });
            }
        }
        self.head_bytes = self.head.len() as u64;
        if let Some(stream) = &self.sink.stream {
            stream.set_head(self.status, self.head_bytes, body_bytes);
        }
    }

    /// Whether data goes into chunks: other protocols than HTTP/1 have frames of their own.
    fn is_chunked(&self, framing: ReplyFraming) -> bool {
        framing == ReplyFraming::Chunked && self.sink.encoding == Encoding::Http1
    }

    /// Offers a piece of the body as far as the declared length goes, after the head where that has not
    /// been sent.
    fn offer_body(&mut self, framing: ReplyFraming, head: Head, data: &dyn Piece) -> Taken {
        let (bytes, taken) = self.fit(data.bytes().len());
        match self.offer_framed(framing, head, data, bytes) {
            Taken::All => taken,
            gone => gone,
        }
    }

    /// Offers the first `bytes` bytes of a piece.
    fn offer_framed(
        &mut self,
        framing: ReplyFraming,
        head: Head,
        piece: &dyn Piece,
        bytes: usize,
    ) -> Taken {
        let is_chunked = self.is_chunked(framing) && bytes > 0;
        let head = match head {
            Head::Unsent => self.head.as_slice(),
            Head::Sent => &[],
        };
        let prefix = is_chunked.then(|| wire::chunk_prefix(bytes));
        let prefix = prefix.as_ref().map_or(&[][..], |prefix| prefix.as_bytes());
        let frame = Frame {
            before: [head, prefix],
            piece,
            range: match framing {
                ReplyFraming::NoBody => 0..0,
                _ => 0..bytes,
            },
            after: if is_chunked { wire::CHUNK_SUFFIX } else { b"" },
        };
        self.sink.offer(&frame, &self.settings.memory);
        match self.sink.was_refused() {
            true => Taken::Gone,
            false => Taken::All,
        }
    }

    fn offer(&mut self, frame: &Frame<'_>) {
        self.sink.offer(frame, &self.settings.memory);
    }

    /// How many of `bytes` bytes the declared length leaves; counts them.
    fn fit(&mut self, bytes: usize) -> (usize, Taken) {
        let State::Open {
            left: Some(left), ..
        } = &mut self.state
        else {
            return (bytes, Taken::All);
        };
        let fitting = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes);
        *left -= fitting as u64;
        match fitting < bytes {
            true => (fitting, Taken::Overrun),
            false => (fitting, Taken::All),
        }
    }

    fn state_of_client(&self) -> Taken {
        match matches!(self.state, State::Open { .. }) && self.sink.is_closed() {
            true => Taken::Gone,
            false => Taken::All,
        }
    }
}

/// A span of a file, if all of it can be had without waiting for a disk.
fn read_cached(file: &File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut data = vec![0; usize::try_from(bytes).ok()?];
    let mut read = 0;
    while read < data.len() {
        let rest = io::IoSliceMut::new(&mut data[read..]);
        let at = offset + read as u64;
        match rustix::io::preadv2(file, &mut [rest], at, ReadWriteFlags::NOWAIT) {
            Ok(0) => return None,
            Ok(more) => read += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(data)
}
