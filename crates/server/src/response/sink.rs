//! The sink: where the bytes of a response leave a `ResponseWriter`.
//!
//! `Direct` offers them to a plain socket, once and without waiting; what the socket does not take, and all that
//! follows, is queued for the driver. `Queued` begins with that. A worker's queue is the pending response of
//! its stream; a driver that answers itself keeps the rest in its hand. Never waits, never touches a disk.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use measure::Stamp;
use wire::FieldLines;

use super::memory::ReplyMemory;
use super::writer::Destination;
use super::{Part, Parts};
use crate::config::meant::Rate;
use crate::exchange::ownership::Revoked;
use crate::exchange::stream::StreamShared;
use crate::transport::{self, Followed, PlainSocket};

/// Buffers in one offer: head, chunk prefix, data, chunk suffix.
const BUFFERS_MAX: usize = 4;

/// What turns a response into bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encoding {
    /// The writer: a head of text, chunks where there is no length.
    Http1,
    /// The driver, by the frames of its protocol: the writer gives the head as a value, and data as it is.
    #[cfg_attr(not(feature = "faults"), expect(dead_code))]
    Frames,
}

/// The head of a response, for a protocol that encodes it itself.
#[derive(Debug)]
#[cfg_attr(not(feature = "faults"), expect(dead_code))]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) fields: FieldLines,
}

/// A piece of a body.
pub trait Piece {
    /// Its bytes.
    fn bytes(&self) -> &[u8];
    /// A range of the same bytes, for as long as the result lives; charged to `memory` where they are nobody else's.
    fn keep(&self, range: Range<usize>, memory: &Arc<ReplyMemory>) -> Bytes;
}

impl Piece for [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn keep(&self, range: Range<usize>, memory: &Arc<ReplyMemory>) -> Bytes {
        memory.keep(self[range].to_vec())
    }
}

impl<P: Piece + ?Sized> Piece for &P {
    fn bytes(&self) -> &[u8] {
        (**self).bytes()
    }

    fn keep(&self, range: Range<usize>, memory: &Arc<ReplyMemory>) -> Bytes {
        (**self).keep(range, memory)
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

/// One offer: bytes before a piece of the body, a range of the piece, bytes behind it.
pub(super) struct Frame<'a> {
    pub(super) before: [&'a [u8]; 2],
    pub(super) piece: &'a dyn Piece,
    pub(super) range: Range<usize>,
    pub(super) after: &'static [u8],
}

pub(super) struct Sink {
    way: Way,
    /// The socket, where only a limit of the bandwidth keeps this thread from writing to it.
    limited: Option<Arc<PlainSocket>>,
    pub(super) encoding: Encoding,
    /// The stream of a worker; `None` on a driver.
    pub(super) stream: Option<Arc<StreamShared>>,
    /// What a driver has to send later.
    pub(super) rest: Parts,
    /// The head of a response that the driver encodes.
    pub(super) head: Option<ResponseHead>,
    /// Bytes that the socket took from this thread.
    pub(super) sent_bytes: u64,
    /// The driver sends the rest and ends the exchange.
    pub(super) is_queued: bool,
    /// The bandwidth that the application gave the response.
    rate: Option<Rate>,
    /// The stream knows that the client may have a part of the response.
    is_started: bool,
}

/// Where bytes go.
enum Way {
    /// To the socket, from this thread.
    Direct(Arc<PlainSocket>),
    /// To the driver.
    Queued,
    /// Nowhere: the client is gone.
    Closed,
}

impl Sink {
    /// Of a thread that has nothing to answer.
    pub(super) fn none() -> Self {
        Self::new(Destination {
            stream: None,
            direct: None,
            is_limited: false,
            encoding: Encoding::Http1,
        })
    }

    pub(super) fn new(to: Destination) -> Self {
        let (way, limited) = match (to.direct, to.is_limited) {
            (Some(socket), false) => (Way::Direct(socket), None),
            (socket, _) => (Way::Queued, socket),
        };
        Self {
            way,
            limited,
            encoding: to.encoding,
            stream: to.stream,
            rest: Parts::default(),
            head: None,
            sent_bytes: 0,
            is_queued: false,
            rate: None,
            is_started: false,
        }
    }

    /// The bandwidth that the application gives this response, before any of it was offered.
    pub(super) fn set_rate(&mut self, rate: Option<Rate>) {
        self.rate = rate;
        match (rate, self.limited.take()) {
            (Some(Rate::Unlimited), Some(socket)) => self.way = Way::Direct(socket),
            (None, limited) => self.limited = limited,
            (Some(Rate::BytesPerSec(_)), _) => self.way = Way::Queued,
            (Some(Rate::Unlimited), None) => {}
        }
    }

    /// Whether nothing that is offered will reach the client.
    pub(super) fn is_closed(&self) -> bool {
        match (&self.way, &self.stream) {
            (Way::Direct(_), _) | (Way::Queued, None) => false,
            (Way::Queued, Some(stream)) => self.is_queued && stream.pending().abandoned().is_some(),
            (Way::Closed, _) => true,
        }
    }

    /// Whether the client was found gone when something was offered.
    pub(super) fn was_refused(&self) -> bool {
        matches!(self.way, Way::Closed)
    }

    /// Nothing more reaches the client, by the will of this side.
    pub(super) fn close(&mut self) {
        self.way = Way::Closed;
    }

    /// Offers a frame to the socket, or queues it.
    pub(super) fn offer(&mut self, frame: &Frame<'_>, memory: &Arc<ReplyMemory>) {
        if frame.bytes() == 0 && self.head.is_none() {
            return;
        }
        match &self.way {
            Way::Closed => {}
            Way::Queued => self.queue(frame, 0, memory),
            Way::Direct(_) => self.offer_to_socket(frame, memory),
        }
    }

    fn offer_to_socket(&mut self, frame: &Frame<'_>, memory: &Arc<ReplyMemory>) {
        if let Some(stream) = self.stream.as_ref().filter(|_| !self.is_started)
            && stream.ownership.mark_started().is_err()
        {
            self.way = Way::Closed;
            return;
        }
        self.is_started = true;
        let Way::Direct(socket) = &self.way else {
            return;
        };
        let buffers = frame.buffers().map(IoSlice::new);
        let Ok(sent) = transport::send(&**socket, &buffers, Followed::No) else {
            self.way = Way::Closed;
            return;
        };
        self.sent_bytes += sent as u64;
        if let Some(stream) = &self.stream {
            stream.set_sent_bytes(self.sent_bytes);
        }
        if sent < frame.bytes() {
            self.queue(frame, sent, memory);
        }
    }

    /// Keeps a frame for the driver, but for its first `sent` bytes.
    fn queue(&mut self, frame: &Frame<'_>, sent: usize, memory: &Arc<ReplyMemory>) {
        self.pass(frame.keep(sent, memory), memory);
    }

    /// Passes parts to the driver.
    pub(super) fn pass(&mut self, mut parts: Parts, memory: &Arc<ReplyMemory>) {
        if self.was_refused() {
            return;
        }
        let Some(stream) = self.stream.clone() else {
            self.way = Way::Queued;
            self.rest.append(&mut parts);
            return;
        };
        let pushed = {
            let mut pending = stream.pending();
            if !self.is_queued {
                pending.sent_before = self.sent_bytes;
                pending.rate = self.rate;
                pending.head = self.head.take();
            }
            pending.push(parts)
        };
        if pushed.is_err() {
            self.way = Way::Closed;
            return;
        }
        let now = measure::now();
        match self.is_queued {
            true => stream.ownership.wake(),
            false => self.begin_queue(&stream, now, memory),
        }
        memory.relieve(now);
    }

    fn begin_queue(&mut self, stream: &Arc<StreamShared>, now: Stamp, memory: &Arc<ReplyMemory>) {
        stream.set_progress_at(now);
        // Before the driver may end the response, which leaves again.
        memory.enter(stream);
        match stream.ownership.pass_to_driver() {
            Ok(()) => {
                self.is_queued = true;
                self.way = Way::Queued;
            }
            Err(Revoked) => {
                // The driver has answered in our place, and may be done with the connection.
                self.way = Way::Closed;
                memory.leave(stream);
                // Not given up: the driver looks at that, and its own response may be waiting for the client.
                memory.discard(stream.pending().withdraw());
            }
        }
    }
}

impl<'a> Frame<'a> {
    /// Bytes that belong to no piece of a body.
    pub(super) fn plain(head: &'a [u8], after: &'static [u8]) -> Self {
        Self {
            before: [head, b""],
            piece: &NO_PIECE,
            range: 0..0,
            after,
        }
    }

    fn buffers(&self) -> [&[u8]; BUFFERS_MAX] {
        let data = &self.piece.bytes()[self.range.clone()];
        [self.before[0], self.before[1], data, self.after]
    }

    fn bytes(&self) -> usize {
        self.buffers().iter().map(|buffer| buffer.len()).sum()
    }

    /// Everything behind the first `sent` bytes, in buffers that live on.
    fn keep(&self, mut sent: usize, memory: &Arc<ReplyMemory>) -> Parts {
        let mut skip = |bytes: usize| {
            let skipped = sent.min(bytes);
            sent -= skipped;
            skipped
        };
        let mut parts = Parts::default();
        let mut before = Vec::new();
        for buffer in self.before {
            before.extend_from_slice(&buffer[skip(buffer.len())..]);
        }
        if !before.is_empty() {
            parts.push(Part::Memory(memory.keep(before)));
        }
        let from = self.range.start + skip(self.range.len());
        if from < self.range.end {
            let kept = self.piece.keep(from..self.range.end, memory);
            parts.push(Part::Memory(kept));
        }
        let after = &self.after[skip(self.after.len())..];
        parts.push(Part::Memory(Bytes::from_static(after)));
        parts
    }
}

static NO_PIECE: Bytes = Bytes::new();
