//! The sink: where the bytes of a response leave a `ResponseWriter`.
//!
//! Where this thread may write to the client's socket, a frame is offered to it, once and without waiting; what
//! the socket does not take, and all that follows, is queued for the driver. A worker's queue is the pending
//! response of its stream; a driver that answers itself keeps the rest in its hand. Never waits, never touches a
//! disk.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use files::{Part, ReplyBody};
use http::{FieldLines, SharedFields};

use super::Parts;
use super::memory::ReplyMemory;
use crate::exchange::stream::StreamShared;
use crate::transport::{DirectSocket, Offered, SendBuffers};
use config::typed::Rate;

/// Buffers in one offer: head, chunk prefix, data, chunk suffix.
const BUFFERS_MAX: usize = 4;

/// What turns a response into bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Encoding {
    /// The writer: a head of text, chunks where there is no length.
    #[default]
    Http1,
    /// The driver, by the frames of its protocol: the writer gives the head as a value, and data as it is.
    Frames,
}

/// The head of a response, for a protocol that encodes it itself.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) fields: SharedFields,
    /// Trailer fields follow the body, whatever its length.
    pub(crate) has_trailers: bool,
}

/// Where a response goes.
#[derive(Default)]
pub(crate) struct Destination {
    /// The stream of a worker; `None` on a driver, which sends the rest itself.
    pub(crate) stream: Option<Arc<StreamShared>>,
    /// The socket, where this thread may write to it.
    pub(crate) direct: Option<DirectSocket>,
    /// The response has a limited bandwidth, unless the application lifts it: the driver sends.
    pub(crate) is_limited: bool,
    /// The connection may live on afterwards.
    pub(crate) keep_alive: bool,
    pub(crate) encoding: Encoding,
}

/// The part of a response that the socket has not taken.
pub(crate) enum Rest {
    /// None.
    Sent,
    /// In the stream: its driver sends it and ends the exchange.
    Queued,
    /// In this driver's hand; the head where its protocol encodes it.
    Here(Parts, Option<ResponseHead>),
}

/// A piece of a body.
pub trait Piece {
    /// Its bytes.
    fn bytes(&self) -> &[u8];
    /// A range of the same bytes, for as long as the result lives; charged to `memory` where they have no other owner.
    fn keep(&self, range: Range<usize>, memory: &Arc<ReplyMemory>) -> Bytes;
}

impl Piece for &[u8] {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn keep(&self, range: Range<usize>, memory: &Arc<ReplyMemory>) -> Bytes {
        memory.keep(self[range].to_vec())
    }
}

impl Piece for Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }

    /// A buffer of the server's own, such as a cached file: it waits at no cost.
    fn keep(&self, range: Range<usize>, _memory: &Arc<ReplyMemory>) -> Bytes {
        self.slice(range)
    }
}

/// What a frame has of a body.
pub(super) enum Data<'a> {
    /// The first bytes of a piece.
    Piece(&'a dyn Piece, usize),
    /// A buffer that its owner uses again, unless it has to wait for the client.
    Buffer(&'a mut Vec<u8>),
    /// Spans of files are among it: only the driver sends it.
    Files(ReplyBody),
}

/// One offer: bytes before the data, the data, bytes behind it.
pub(super) struct Frame<'a> {
    pub(super) before: [&'a [u8]; 2],
    pub(super) data: Data<'a>,
    pub(super) after: &'static [u8],
}

/// ```text
/// direct ──the socket is full, or may not be written to──► queued
///    └──────────────► closed: the client is gone ◄────────────┘
/// ```
#[derive(Default)]
pub(super) struct Sink {
    pub(super) to: Destination,
    /// The bandwidth that the application gives the response; set before any of it is offered.
    pub(super) rate: Option<Rate>,
    /// The head of a response that the driver encodes.
    pub(super) head: Option<ResponseHead>,
    /// What a driver has to send later.
    pub(super) rest: Parts,
    /// Of a thread that has answered under TLS.
    pub(super) scratch: Option<Box<SendBuffers>>,
    /// Bytes that the socket took from this thread.
    pub(super) sent_bytes: u64,
    /// Bytes of an interim response, while it is offered.
    interim_bytes: u64,
    /// Something of the response was offered to the socket: the driver cannot answer in place of this thread.
    is_started: bool,
    /// The driver sends the rest and ends the exchange.
    pub(super) is_queued: bool,
    /// Nothing more reaches the client, which was found gone or was given up. The driver ends a queued response
    /// all the same.
    pub(super) is_closed: bool,
}

impl Sink {
    /// The next response goes there. Field by field: to move all of it took 1 % of the time of a cached file.
    pub(super) fn begin(&mut self, to: Destination) {
        self.to = to;
        self.rate = None;
        self.head = None;
        self.sent_bytes = 0;
        self.is_started = false;
        self.is_queued = false;
        self.is_closed = false;
    }

    /// Where the rest of the response is, and its stream. What belongs to its connection is let go.
    pub(super) fn end(&mut self) -> (Rest, Option<Arc<StreamShared>>) {
        let stream = self.to.stream.take();
        // Neither outlives the response here: the socket closes when its driver lets go of it.
        self.to.direct = None;
        let rest = match stream {
            _ if !self.is_queued => Rest::Sent,
            Some(_) => Rest::Queued,
            None => Rest::Here(std::mem::take(&mut self.rest), self.head.take()),
        };
        (rest, stream)
    }

    /// The stream of a worker, once its driver has the rest of the response.
    pub(super) fn queue(&self) -> Option<&Arc<StreamShared>> {
        self.to.stream.as_ref().filter(|_| self.is_queued)
    }

    /// Whether nothing that is offered will reach the client, as far as the driver knows too.
    pub(super) fn is_abandoned(&self) -> bool {
        let abandoned = |stream: &Arc<StreamShared>| stream.pending().abandoned().is_some();
        self.is_closed || self.queue().is_some_and(abandoned)
    }

    /// Offers a frame to the socket, or queues it.
    pub(super) fn offer(&mut self, frame: Frame<'_>, memory: &Arc<ReplyMemory>) {
        let bytes = frame.bytes();
        if self.is_closed || (bytes == 0 && self.head.is_none()) {
            return;
        }
        // A file may have to wait for its disk, which no worker does: it is the driver's from its head on.
        let sent = match &frame.data {
            Data::Files(_) => Offered::default(),
            _ => self.send(&frame),
        };
        let is_out = sent.bytes == bytes && !sent.has_unsent && self.head.is_none();
        if !self.is_closed && !is_out {
            self.pass(frame.keep(sent.bytes, memory), memory);
        }
    }

    /// An interim response of a worker, for a protocol whose driver sends it; dropped elsewhere.
    pub(super) fn push_interim(&self, fields: FieldLines) {
        let is_before_head = !(self.is_queued || self.is_closed);
        if let Some(stream) = &self.to.stream
            && self.to.encoding == Encoding::Frames
            && is_before_head
        {
            stream.push_interim(fields);
        }
    }

    /// `100 Continue`, of HTTP/1. It is no part of the response: behind it the driver can still answer.
    pub(super) fn push_continue(&mut self, keep_alive: bool, memory: &Arc<ReplyMemory>) {
        if self.to.encoding != Encoding::Http1 {
            return;
        }
        self.to.keep_alive = keep_alive;
        let sent_bytes = self.sent_bytes;
        let frame = Frame {
            before: [http::CONTINUE_100, b""],
            data: Data::NOTHING,
            after: b"",
        };
        self.interim_bytes = frame.bytes() as u64;
        self.offer(frame, memory);
        self.interim_bytes = 0;
        self.sent_bytes = sent_bytes;
        if let Some(stream) = self.to.stream.as_ref().filter(|_| !self.is_queued) {
            stream.set_sent_bytes(sent_bytes);
            self.is_started = false;
            self.is_closed |= stream.ownership.unmark_started().is_err();
        }
    }

    /// Whether this thread may write to the socket now, if it has one.
    fn is_direct(&self) -> bool {
        let is_limited = match self.rate {
            None => self.to.is_limited,
            Some(rate) => rate != Rate::Unlimited,
        };
        !(is_limited || self.is_queued || self.is_closed)
    }

    /// Offers a frame to the socket, once.
    fn send(&mut self, frame: &Frame<'_>) -> Offered {
        let is_direct = self.is_direct();
        let Some(socket) = self.to.direct.as_ref().filter(|_| is_direct) else {
            return Offered::default();
        };
        // The client may have a part of the response from here on.
        if let Some(stream) = self.to.stream.as_ref().filter(|_| !self.is_started)
            && stream.ownership.mark_started().is_err()
        {
            self.is_closed = true;
            return Offered::default();
        }
        self.is_started = true;
        // The kernel copies and walks empty buffers too.
        let mut buffers = [IoSlice::new(&[]); BUFFERS_MAX];
        let mut buffers_len = 0;
        for buffer in frame.buffers() {
            buffers[buffers_len] = IoSlice::new(buffer);
            buffers_len += usize::from(!buffer.is_empty());
        }
        let buffers = &buffers[..buffers_len];
        let Ok(sent) = socket.send(buffers, &mut self.scratch) else {
            self.is_closed = true;
            return Offered::default();
        };
        self.sent_bytes += sent.bytes as u64;
        if let Some(stream) = &self.to.stream {
            stream.set_sent_bytes(self.sent_bytes);
        }
        sent
    }

    /// Gives parts to the driver.
    fn pass(&mut self, mut parts: Parts, memory: &Arc<ReplyMemory>) {
        let Some(stream) = &self.to.stream else {
            self.is_queued = true;
            self.rest.append(&mut parts);
            return;
        };
        // Parts that are refused are dropped behind the lock.
        // One lock for the start and the parts: a driver that sees the parts sees with which head they begin.
        let pushed = {
            let mut pending = stream.pending();
            if !self.is_queued {
                let start = pending.start();
                start.sent_before = self.sent_bytes;
                start.interim_bytes = self.interim_bytes;
                start.rate = self.rate;
                start.head = self.head.take();
            }
            pending.push(parts)
        };
        if pushed.is_err() {
            self.is_closed = true;
            return;
        }
        let now = telemetry::now();
        if self.is_queued {
            stream.ownership.wake();
        } else {
            // Before the response can be found in the memory's list, whose order goes by this stamp.
            stream.set_progress_at(now);
            // Before the driver may end the response, which leaves again.
            memory.enter(stream);
            self.is_queued = stream.ownership.pass_to_driver().is_ok();
            if !self.is_queued {
                // The driver has answered in our place, and may be done with the connection.
                self.is_closed = true;
                memory.leave(stream);
                // Not given up: the driver looks at that, and its own response may be waiting for the client.
                memory.discard(stream.pending().withdraw());
            }
        }
        memory.relieve(now);
    }
}

impl<'a> Data<'a> {
    pub(super) const NOTHING: Data<'a> = Data::Piece(&NO_BYTES, 0);

    pub(super) fn bytes(&self) -> usize {
        match self {
            Data::Files(body) => usize::try_from(body.bytes()).expect("a 64-bit machine"),
            data => data.in_memory().len(),
        }
    }

    fn in_memory(&self) -> &[u8] {
        match self {
            Data::Piece(piece, bytes) => &piece.bytes()[..*bytes],
            Data::Buffer(buffer) => buffer,
            Data::Files(_) => &[],
        }
    }

    /// Everything behind the first `sent` bytes, in buffers that live on.
    fn keep(self, sent: usize, memory: &Arc<ReplyMemory>) -> ReplyBody {
        let range = sent..self.bytes();
        let data = match self {
            Data::Files(body) => return body,
            _ if range.is_empty() => return ReplyBody::Empty,
            Data::Piece(piece, _) => piece.keep(range, memory),
            // The account would miss what a far larger buffer has behind its bytes.
            Data::Buffer(buffer) if range.end < buffer.capacity() / 2 => {
                buffer.as_slice().keep(range, memory)
            }
            Data::Buffer(buffer) => memory.keep(std::mem::take(buffer)).slice(range),
        };
        ReplyBody::One(Part::Memory(data))
    }
}

static NO_BYTES: Bytes = Bytes::new();

impl Frame<'_> {
    fn buffers(&self) -> [&[u8]; BUFFERS_MAX] {
        let [head, prefix] = self.before;
        [head, prefix, self.data.in_memory(), self.after]
    }

    fn bytes(&self) -> usize {
        let [head, prefix] = self.before;
        head.len() + prefix.len() + self.data.bytes() + self.after.len()
    }

    /// Everything behind the first `sent` bytes, in buffers that live on.
    fn keep(self, mut sent: usize, memory: &Arc<ReplyMemory>) -> Parts {
        let mut skip = |bytes: usize| {
            let skipped = sent.min(bytes);
            sent -= skipped;
            skipped
        };
        let before = self.before.map(|buffer| &buffer[skip(buffer.len())..]);
        let before = before.concat();
        let mut parts = Parts::default();
        parts.push(Part::Memory(match &self.data {
            _ if before.is_empty() => Bytes::new(),
            // Nothing else of a response of files is in memory: a charge would cost more than it tells.
            Data::Files(_) => before.into(),
            _ => memory.keep(before),
        }));
        let skipped = skip(self.data.bytes());
        parts.push_body(self.data.keep(skipped, memory));
        let after = &self.after[skip(self.after.len())..];
        parts.push(Part::Memory(Bytes::from_static(after)));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::memory;

    fn bytes_of(parts: &Parts) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts.iter() {
            match part {
                Part::Memory(data) => bytes.extend_from_slice(data),
                Part::File { .. } => panic!("no file was given"),
            }
        }
        bytes
    }

    #[test]
    fn keeps_everything_behind_what_was_sent() {
        let memory = memory();
        let all = b"head5\r\ndata\r\n";
        for sent in 0..=all.len() {
            let mut buffer = b"data".to_vec();
            let piece: &[u8] = b"data, and more";
            for data in [Data::Piece(&piece, 4), Data::Buffer(&mut buffer)] {
                let frame = Frame {
                    before: [b"head", b"5\r\n"],
                    data,
                    after: b"\r\n",
                };
                assert_eq!(frame.bytes(), all.len());
                let kept = frame.keep(sent, &memory);
                assert_eq!(bytes_of(&kept), all[sent..], "{sent}");
                let head_and_data = all.len().saturating_sub(2);
                assert_eq!(memory.bytes() > 0, sent < head_and_data, "{sent}");
            }
        }
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn takes_over_a_full_buffer_and_copies_out_of_an_empty_one() {
        let memory = memory();
        let check = |capacity: usize, is_taken: bool| {
            let mut buffer = Vec::with_capacity(capacity);
            buffer.extend_from_slice(b"0123456789");
            let address = buffer.as_ptr();
            let ReplyBody::One(Part::Memory(kept)) = Data::Buffer(&mut buffer).keep(3, &memory)
            else {
                panic!("nothing was kept");
            };
            assert_eq!(kept, b"3456789"[..]);
            assert_eq!(kept.as_ptr() == address.wrapping_add(3), is_taken);
            assert_eq!(buffer.is_empty(), is_taken);
        };
        check(10, true);
        check(20, true);
        check(1000, false);
    }
}
