//! The response writer: what every backend answers through, on a worker and on a driver.
//!
//! Takes a head and pieces of a body, frames them for HTTP/1 or leaves that to the driver's protocol, and gives
//! the bytes to a `Sink`, which never waits: a worker is free as soon as the application has handed over its
//! last piece, however slow the client. Bodies that are compressed on the way pass `compressed` in front of the
//! framing. A thread uses one writer again and again; the backend that answers owns it until the end of the response.
//!
//! What every response passes is inlined: a response of the server's own is one straight piece of code then, which
//! takes 1.5 % of a cached file's processor time less than ten calls.

mod compressed;
mod trailers;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{FieldLines, ReplyFraming, ReplyPlan};
use rustix::io::ReadWriteFlags;
use telemetry::{Ending, Nanos, Stamp};

use super::compressor::{Compressor, EncodeStep};
use super::content_encoding::{self, Accepted, Treatment};
use super::head::{Declared, HeadWriter};
use super::memory::ReplyMemory;
use super::sink::{Data, Destination, Encoding, Frame, Piece, Rest, Sink};
use crate::exchange::ExchangeRecord;
use crate::exchange::stream::After;
use crate::exchange::stream::StreamShared;
use crate::exchange::stream::WAITED_TOO_LONG;
use crate::exchange::stream::Waited;
use crate::load_report::ServerLoad;
use crate::transport::DirectSocket;
use config::typed::{Config, Delivery};
use files::Part;
use files::Reply;
use files::ReplyBody;

/// Spans of files up to this size are sent by the thread that has them, where they are in the page cache.
const READ_BYTES_MAX: u64 = 64 << 10;
/// Pieces up to this size are offered to the socket without further thought.
const QUICK_BYTES: usize = 64 << 10;

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

/// How much of a body some data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The whole body: `Content-Length` is added when none was declared.
    Whole,
    /// One piece of a stream. While more than `reply_spool_bytes_max` of the response waits, the thread waits for the
    /// client before it, for `stream_wait_timeout` at most: see `is_quick`.
    Piece,
    /// One of several pieces that the application has handed over together: nothing waits.
    OneOfMany,
}

/// How a response has ended, beside what its record says.
pub(crate) struct ResponseEnd {
    pub(crate) after: After,
    /// Where the rest of the response is.
    pub(crate) rest: Rest,
    /// The stream that a worker has answered through.
    pub(crate) stream: Option<Arc<StreamShared>>,
    /// How long the worker has waited for the client.
    pub(crate) waited: Nanos,
}

/// A way to answer one exchange.
pub struct ResponseWriter(Box<WriterInner>);

/// The thread's, from response to response.
struct WriterInner {
    delivery: Delivery,
    memory: Arc<ReplyMemory>,
    /// Connections end with their next response.
    draining: Arc<AtomicBool>,
    compressor: Compressor,
    head: HeadWriter,
    sink: Sink,
    response: ResponseState,
}

/// What is known of the response at hand.
#[derive(Default)]
struct ResponseState {
    state: WriterState,
    /// Content codings of the client; `None` where nothing is compressed.
    accepted: Option<Accepted>,
    /// What is to be done with head and body; a body that is being compressed remains `Coded` until its end.
    treatment: Treatment,
    /// The body cannot be completed: it could not be compressed, or read.
    is_broken: bool,
    /// The fields behind the body, where the application has given them.
    trailers: Option<FieldLines>,
    head_bytes: u64,
    opened: Stamp,
    replied: Stamp,
    sent: Stamp,
    /// How long the worker has waited for the client.
    waited: Nanos,
}

/// ```text
/// SILENT ──begin──► BEGUN ──first bytes──► OPEN
///                     │  ▲ begin             ▲ pieces
///                     └──┘                   └──┘
/// ```
#[derive(Clone, Copy, Default)]
enum WriterState {
    #[default]
    Silent,
    /// Status and fields are there.
    Begun,
    /// The head is complete. `left`: bytes of the declared length still to come from the application.
    Open { plan: ReplyPlan, left: Option<u64> },
}

impl ResponseWriter {
    /// The writer of a thread. `draining`: whether connections end with their next response.
    pub(crate) fn new(
        config: &Config,
        memory: &Arc<ReplyMemory>,
        load: &Arc<ServerLoad>,
        draining: &Arc<AtomicBool>,
    ) -> Self {
        Self(Box::new(WriterInner {
            delivery: config.delivery.clone(),
            memory: Arc::clone(memory),
            draining: Arc::clone(draining),
            compressor: Compressor::new(&config.compression),
            head: HeadWriter::new(config, load),
            sink: Sink::default(),
            response: ResponseState::default(),
        }))
    }

    /// Begins to answer an exchange.
    #[inline(always)]
    pub(crate) fn begin_exchange(
        &mut self,
        record: &ExchangeRecord,
        head: http::HeadView<'_>,
        to: Destination,
    ) {
        let inner = &mut *self.0;
        inner.head.begin_exchange(record, head);
        // What a driver answers itself is short, or a file that is there compressed.
        let config = &inner.compressor.config;
        let is_coded = to.stream.is_some() && !config.codings.is_empty();
        let accepted = is_coded.then(|| Accepted::read(head, config));
        // The writer is used again for each exchange of its thread: nothing of the last one may be left.
        inner.response = ResponseState {
            accepted,
            ..ResponseState::default()
        };
        inner.sink.begin(to);
    }

    /// Begins the response, or begins it anew until its head has been sent. `lines` are taken; what is given
    /// back for them is without lines, and has memory for the next ones.
    ///
    /// # Panics
    /// When the head has been sent, or for a status outside 200 to 999: an interim status is no response.
    #[inline(always)]
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
        inner.response.state = WriterState::Begun;
        inner.head.status = status;
        inner.head.reason.clear();
        inner.head.reason.extend_from_slice(reason);
        inner.head.lines.clear();
        // A swap gives the caller the memory of the lines before: neither side allocates in the steady state.
        std::mem::swap(&mut inner.head.lines, lines);
        inner.head.declared = declared;
        inner.sink.rate = declared.rate;
        inner.response.treatment = match inner.response.accepted {
            Some(accepted) if !declared.has_trailers => {
                let types = &inner.compressor.config.types;
                content_encoding::treatment(status, &inner.head.lines, accepted, types)
            }
            _ => Treatment::Untouched,
        };
    }

    /// Tells the client early which fields the response is likely to have: a 103 (RFC 8297), of a worker and where the
    /// protocol has it. Without effect once the head has left.
    pub fn early_hints(&mut self, fields: FieldLines) {
        self.0.sink.push_interim(fields);
    }

    /// Tells the client of an HTTP/1 connection that it may send its body; afterwards the connection lives on, if
    /// `keep_alive` says so. Not once the head is sent.
    pub(crate) fn send_continue(&mut self, keep_alive: bool) {
        let inner = &mut *self.0;
        if !inner.is_open() {
            inner.sink.push_continue(keep_alive, &inner.memory);
        }
    }

    /// Sends the head although there is no byte of the body yet. The body is not compressed.
    pub fn open_stream(&mut self) -> Taken {
        let inner = &mut *self.0;
        if !inner.is_open() {
            inner.response.treatment = Treatment::Untouched;
            inner.open(None);
        }
        inner.offer(Data::NOTHING, EncodeStep::More)
    }

    /// Whether at most `bytes_max` bytes, or `reply_spool_bytes_max`, wait for the client. If not, the event loop that
    /// has the exchange hears when that is so. False for no client that is gone.
    pub fn has_room(&self, bytes_max: Option<u64>) -> bool {
        let bytes_max = bytes_max.unwrap_or(self.0.delivery.reply_spool_bytes_max);
        let queue = self.0.sink.queue();
        queue.is_none_or(|stream| stream.has_room(bytes_max))
    }

    /// Adds fields that follow the body, of a response whose head has declared them. Without a call, even one without
    /// fields, such a response does not end as a complete one.
    pub fn trailers(&mut self, fields: &FieldLines) {
        let trailers = &mut self.0.response.trailers;
        trailers.get_or_insert_default().append(fields);
    }

    /// Whether the head has left, so that neither status nor fields can be changed.
    pub fn head_is_sent(&self) -> bool {
        self.0.is_open()
    }

    /// The stream that a worker answers through.
    pub(crate) fn stream(&self) -> Option<&Arc<StreamShared>> {
        self.0.sink.to.stream.as_ref()
    }

    /// The way of a response that another type writes.
    pub(crate) fn way(&self) -> (Arc<StreamShared>, Option<DirectSocket>, Encoding) {
        let to = &self.0.sink.to;
        let stream = to
            .stream
            .as_ref()
            .expect("a worker answers through a stream");
        (Arc::clone(stream), to.direct.clone(), to.encoding)
    }

    /// Another type writes the response.
    pub(crate) fn leave(&mut self) {
        self.0.sink.to = Destination::default();
    }

    /// Whether no response has been begun.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.0.response.state, WriterState::Silent)
    }

    /// True when `write` would only do a short step that neither waits nor compresses or copies
    /// much.
    pub fn is_quick(&self, bytes: usize) -> bool {
        let is_coded_quickly = match self.0.response.treatment {
            Treatment::Coded(coding) => self.0.compressor.is_quick(coding, bytes),
            _ => true,
        };
        bytes <= QUICK_BYTES && is_coded_quickly && self.0.stream_beyond_bound().is_none()
    }

    /// True when a span of a file would only be passed on; false when some of it would be read and compressed,
    /// or when it would wait.
    pub fn file_is_quick(&self) -> bool {
        !self.0.is_coding() && self.0.stream_beyond_bound().is_none()
    }

    /// Whether the body has begun compressed: what follows is compressed as well, and so has to be read.
    pub fn is_compressing(&self) -> bool {
        self.0.is_coding()
    }

    /// The rest of the body is not to be had: the response is cut where it is.
    pub fn cut_body(&mut self) {
        self.0.response.is_broken = true;
    }

    /// Data of the body; the head leaves with the first that is not empty. The data is kept by reference where the
    /// socket does not take it, unless it is compressed.
    pub fn write<P: Piece>(&mut self, data: &P, amount: Amount) -> Taken {
        let inner = &mut *self.0;
        let bytes = data.bytes().len() as u64;
        let known = match amount {
            Amount::Whole => Some(bytes),
            // Not sent: an empty piece would open the response, and a chunk without bytes would end it (RFC 9112
            // section 7.1).
            _ if bytes == 0 => return inner.state_of_client(),
            Amount::OneOfMany => None,
            Amount::Piece => {
                inner.wait_while_beyond_bound();
                None
            }
        };
        let taken = inner.give(data, known);
        if known.is_some() {
            inner.was_given_whole();
        }
        taken
    }

    /// A span of a file as (the next part of) the body, sent by another thread without a copy. A short one is
    /// read here if that needs no disk, because three threads would have to take turns for it; one behind a
    /// piece that was compressed is read and compressed. When the file ends before it, the response stays short of
    /// what was announced, and is cut there. One that begins a response has its length, if it is the whole.
    pub fn file(&mut self, file: File, offset: u64, bytes: u64, amount: Amount) -> Taken {
        let inner = &mut *self.0;
        if bytes == 0 {
            return inner.state_of_client();
        }
        if inner.is_coding() {
            return inner.compress_file(&file, offset, bytes);
        }
        if !inner.is_open() {
            // The response is the file's.
            inner.response.treatment = Treatment::Untouched;
            inner.open((amount == Amount::Whole).then_some(bytes));
        } else if amount != Amount::OneOfMany {
            inner.wait_while_beyond_bound();
        }
        if bytes <= READ_BYTES_MAX
            // RWF_NOWAIT: nothing is read that is not in memory, because a worker never waits for a disk.
            && let Some(data) = read_cached(&file, offset, bytes)
        {
            return inner.go_on(&data.as_slice(), EncodeStep::Flush);
        }
        // Cut to the declared length before it is on its way: sendfile would send all of it.
        let (fitting, taken) = inner.fit(bytes);
        let span = Part::File {
            file: Arc::new(file),
            offset,
            bytes: fitting,
            edition: None,
        };
        let data = Data::Files(ReplyBody::One(span));
        inner.offer(data, EncodeStep::More).and(taken)
    }

    /// A response of the server's own, made at `now`.
    #[inline(always)]
    pub(crate) fn respond(&mut self, reply: Reply, now: Stamp) {
        let Reply {
            status,
            fields,
            body,
        } = reply;
        let mut lines = std::mem::take(&mut self.0.head.lines);
        lines.clear();
        lines.append(&fields);
        let declared = Declared {
            content_length: Some(body.bytes()),
            ..Declared::default()
        };
        let reason = http::reason(status).as_bytes();
        self.begin(status, reason, &mut lines, declared);
        self.0.response.opened = now;
        match body {
            ReplyBody::Empty => drop(self.write(&Bytes::new(), Amount::Whole)),
            ReplyBody::One(Part::Memory(data)) => drop(self.write(&data, Amount::Whole)),
            files => {
                let inner = &mut *self.0;
                inner.response.treatment = Treatment::Untouched;
                inner.open(None);
                inner.fit(files.bytes());
                inner.offer(Data::Files(files), EncodeStep::More);
                inner.was_given_whole();
            }
        }
    }

    /// Ends the response as far as the application is concerned. The record learns of it, and the writer is free
    /// for the next exchange.
    pub(crate) fn finish(&mut self, record: &mut ExchangeRecord) -> ResponseEnd {
        // A response without a body still has a head to send.
        if matches!(self.0.response.state, WriterState::Begun) {
            self.write(&Bytes::new(), Amount::Whole);
        }
        let inner = &mut *self.0;
        let WriterState::Open { left, .. } = inner.response.state else {
            return inner.end(record, Ending::Lost, "no response");
        };
        // An application may stop once its client is gone.
        let is_short = left.is_some_and(|left| left > 0) && !inner.sink.is_abandoned();
        // All of a length that was declared is out already, unless an encoder has the rest.
        let has_end = left != Some(0) || inner.is_coding();
        let is_good = !(is_short || inner.response.is_broken);
        let mut lacks_trailers = false;
        if is_good && inner.has_trailers() {
            lacks_trailers = !(inner.end_by_trailers() || inner.sink.is_abandoned());
        } else if is_good && has_end {
            inner.go_on(&Bytes::new(), EncodeStep::End);
        }
        match is_short {
            _ if lacks_trailers => self.cut(record, trailers::MISSING),
            _ if inner.response.is_broken => self.cut(record, compressed::UNCODED),
            true => self.cut(record, "body shorter than its Content-Length"),
            false => inner.end(record, Ending::Complete, ""),
        }
    }

    /// Ends a response that cannot be completed: it must not look complete to the client.
    pub(crate) fn cut(&mut self, record: &mut ExchangeRecord, cause: &'static str) -> ResponseEnd {
        self.0.end(record, Ending::Cut, cause)
    }
}

impl Taken {
    /// What became of a piece, of which a part was offered; `fit` is what became of the rest.
    fn and(self, fit: Taken) -> Taken {
        match self {
            Taken::All => fit,
            other => other,
        }
    }
}

impl WriterInner {
    #[inline(always)]
    fn end(
        &mut self,
        record: &mut ExchangeRecord,
        mut ending: Ending,
        cause: &'static str,
    ) -> ResponseEnd {
        if self.response.accepted.is_some() {
            self.compressor.rest();
        }
        // For a response given whole the application was done when it gave it; a stream is done now.
        if self.response.replied == Stamp::ZERO {
            self.response.replied = telemetry::now();
            self.response.sent = self.response.replied;
        }
        let sink = &mut self.sink;
        if sink.is_closed && ending == Ending::Complete {
            ending = Ending::PeerGone;
        }
        // Taken out: a writer that has ended its response can neither end it twice nor write behind it.
        let after = match std::mem::replace(&mut self.response.state, WriterState::Silent) {
            WriterState::Open { plan, .. } if ending == Ending::Complete && plan.keep_alive => {
                After::Keep
            }
            // An ordinary end would be the sign of completeness here.
            WriterState::Open { plan, .. }
                if ending == Ending::Cut && plan.framing == ReplyFraming::UntilClose =>
            {
                After::Reset
            }
            _ => After::Close,
        };
        record.status = self.head.status;
        record.head_bytes = self.response.head_bytes;
        record.sent_bytes = sink.sent_bytes;
        record.phases.replied = self.response.replied;
        record.phases.sent = self.response.sent;
        record.end_as(ending, cause);
        let (rest, stream) = sink.end();
        ResponseEnd {
            after,
            rest,
            stream,
            waited: self.response.waited,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.response.state, WriterState::Open { .. })
    }

    /// Whether pieces go through an encoder.
    fn is_coding(&self) -> bool {
        self.is_open() && matches!(self.response.treatment, Treatment::Coded(_))
    }

    /// The stream, if its client has to take some of it before the next piece.
    fn stream_beyond_bound(&self) -> Option<&Arc<StreamShared>> {
        self.sink.queue().filter(|stream| {
            let pending = stream.pending();
            let bytes_max = self.delivery.reply_spool_bytes_max;
            pending.abandoned().is_none() && pending.unsent_bytes() > bytes_max
        })
    }

    /// The one wait of a worker for a client: of a streamed response more waits than it may. A whole response
    /// never waits, whatever its size: the application has handed it over already.
    fn wait_while_beyond_bound(&mut self) {
        let Some(stream) = self.stream_beyond_bound() else {
            return;
        };
        let delivery = &self.delivery;
        let began = telemetry::now();
        let left = Nanos(
            delivery
                .stream_wait_timeout
                .0
                .saturating_sub(self.response.waited.0),
        );
        let longest = Duration::from_nanos(left.0);
        let waited = stream.wait_for_room(delivery.reply_spool_bytes_max, longest);
        if waited == Waited::TooLong {
            // Under the stream's lock inside: a driver that has just made room finds it given up, and ends the
            // response by a reset.
            stream.abandon(WAITED_TOO_LONG, &self.memory);
        }
        self.sink.is_closed |= waited != Waited::Room;
        self.response.waited = Nanos(self.response.waited.0 + telemetry::now().since(began).0);
    }

    /// A piece of the body, the first of which opens the response. `known`: its length, where it is the whole.
    #[inline(always)]
    fn give<P: Piece>(&mut self, piece: &P, known: Option<u64>) -> Taken {
        if !self.is_open() {
            if self.response.treatment != Treatment::Untouched
                && let Some(coding) = self.coding(known)
            {
                return self.open_coded(coding, piece, known);
            }
            self.open(known);
        }
        self.go_on(piece, EncodeStep::Flush)
    }

    /// A piece of a body whose head is complete. `EncodeStep::End`: the body ends with it.
    #[inline(always)]
    fn go_on<P: Piece>(&mut self, piece: &P, step: EncodeStep) -> Taken {
        let (fitting, taken) = self.fit(piece.bytes().len() as u64);
        let bytes = usize::try_from(fitting).expect("within a buffer");
        match self.is_coding() {
            true => self.compress(&piece.bytes()[..bytes], step),
            false => self.offer(Data::Piece(piece, bytes), step),
        }
        .and(taken)
    }

    /// Decides the framing and completes the head. `known`: the length of the body as it leaves, if that is there
    /// whole.
    #[inline(always)]
    fn open(&mut self, known: Option<u64>) {
        if self.response.opened == Stamp::ZERO {
            self.response.opened = telemetry::now();
        }
        if self.response.treatment != Treatment::Untouched {
            self.head.rewrite(self.response.treatment);
            self.response.treatment = Treatment::Untouched;
        }
        // Read when the head is made: once it says `keep-alive` the driver has to keep that, drain or not.
        let keep_alive = self.sink.to.keep_alive && !self.draining.load(Ordering::Relaxed);
        let encoding = self.sink.to.encoding;
        let (plan, head) = self
            .head
            .complete(known, keep_alive, encoding, self.response.opened);
        self.sink.head = head;
        self.response.head_bytes = self.head.text.len() as u64;
        let left = match plan.framing {
            ReplyFraming::Length(bytes) => Some(bytes),
            // A body before trailer fields is chunked, and still as long as it was declared.
            ReplyFraming::Chunked => self.head.declared.content_length,
            _ => None,
        };
        self.response.state = WriterState::Open { plan, left };
        if let Some(stream) = &self.sink.to.stream {
            let is_empty = plan.framing == ReplyFraming::NoBody;
            let known = left.filter(|_| !self.head.declared.has_trailers);
            let body_bytes = if is_empty { Some(0) } else { known };
            // Before the first byte is offered: a driver that ends the exchange later logs these numbers.
            stream.set_head(self.head.status, self.response.head_bytes, body_bytes);
        }
    }

    /// The application has handed over all of the response, when its head was complete.
    #[inline(always)]
    fn was_given_whole(&mut self) {
        self.response.sent = telemetry::now();
        self.response.replied = match self.is_coding() {
            // The thread was busy with what it compressed until now.
            true => self.response.sent,
            false => self.response.opened,
        };
    }

    /// How many of `bytes` bytes the declared length leaves; counts them.
    fn fit(&mut self, bytes: u64) -> (u64, Taken) {
        let WriterState::Open {
            left: Some(left), ..
        } = &mut self.response.state
        else {
            return (bytes, Taken::All);
        };
        // Never a byte beyond the declared length: the client would take it for the next response (response
        // splitting).
        let fitting = bytes.min(*left);
        *left -= fitting;
        match fitting < bytes {
            true => (fitting, Taken::Overrun),
            false => (fitting, Taken::All),
        }
    }

    /// Frames data of the body and offers it, behind the head where that has not left. `EncodeStep::End`: the body ends
    /// with it.
    fn offer(&mut self, data: Data<'_>, step: EncodeStep) -> Taken {
        let WriterState::Open { plan, .. } = self.response.state else {
            return Taken::Gone;
        };
        let data = match plan.framing {
            ReplyFraming::NoBody => Data::NOTHING,
            _ => data,
        };
        // Other protocols than HTTP/1 have frames of their own.
        let is_chunked =
            plan.framing == ReplyFraming::Chunked && self.sink.to.encoding == Encoding::Http1;
        let bytes = data.bytes();
        // A chunk without bytes would be the last one (RFC 9112 section 7.1).
        let prefix = (is_chunked && bytes > 0).then(|| http::chunk_prefix(bytes));
        let after = match (&prefix, step) {
            _ if !is_chunked => b"",
            (None, EncodeStep::End) => http::LAST_CHUNK,
            (Some(_), EncodeStep::End) => http::CHUNK_SUFFIX_AND_LAST,
            (Some(_), _) => http::CHUNK_SUFFIX,
            (None, _) => b"",
        };
        let prefix = prefix.as_ref().map_or(&[][..], |prefix| prefix.as_bytes());
        let frame = Frame {
            before: [&self.head.text, prefix],
            data,
            after,
        };
        self.sink.offer(frame, &self.memory);
        // It left with this frame, or is kept with the rest: sent twice it would be a second response.
        self.head.text.clear();
        match self.sink.is_closed {
            true => Taken::Gone,
            false => Taken::All,
        }
    }

    fn state_of_client(&self) -> Taken {
        match self.sink.is_abandoned() {
            true => Taken::Gone,
            false => Taken::All,
        }
    }
}

/// A span of a file, if all of it can be had without waiting for a disk.
fn read_cached(file: &File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut data = vec![0; usize::try_from(bytes).ok()?];
    let slices = &mut [io::IoSliceMut::new(&mut data)];
    let read = rustix::io::preadv2(file, slices, offset, ReadWriteFlags::NOWAIT).ok()?;
    (read == data.len()).then_some(data)
}
