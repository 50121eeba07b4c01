//! The outlet: what a handler on a pool thread answers through.
//!
//! Takes a head and body pieces, frames them, and offers them to the socket once without waiting. What
//! the socket does not take goes to the connection's driver (`door`), so that the thread is free as
//! soon as the handler is done, however slow the client.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use measure::{Ending, Phases, Stamp};
use socket2::SockRef;
use wire::{ReplyFacts, ReplyFraming, ReplyPlan, Version};

use super::door::{Overflow, fits_memory};
use super::{Chain, Desk, Door, EndOfHead};
use crate::config::meant::{Delivery, Spool};
use crate::handover::Seized;
use crate::reply::Part;

/// Pieces up to this size are offered to the socket without further thought.
const QUICK_BYTES: usize = 64 << 10;

/// What the handler's header lines said, so that the outlet need not parse them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Declared {
    /// The value of `Content-Length`.
    pub content_length: Option<u64>,
    /// A `Date` line is there.
    pub date: bool,
    /// A `Server` line is there.
    pub server: bool,
    /// The connection is to end after this reply.
    pub close: bool,
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

/// What the outlet has to know of the request.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    /// The connection may go on afterwards, unless `draining` has become true by then.
    pub(crate) keep_alive: bool,
    /// Stamps that have passed, for `Server-Timing`.
    pub(crate) phases: Phases,
}

/// What an outlet has to keep to.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub(crate) draining: &'a AtomicBool,
    pub(crate) delivery: &'a Delivery,
    pub(crate) spool: &'a Spool,
}

/// A handler's way to answer one exchange.
pub struct Outlet<'a> {
    door: &'a Arc<Door>,
    desk: &'a mut Desk,
    asked: Asked,
    bounds: Bounds<'a>,
    stage: Stage,
    status: u16,
    declared: Declared,
    overflow: Overflow,
    /// The driver writes, or wrote until the client was gone: it ends the exchange.
    flowing: bool,
    /// The unnamed file failed, such as on a full disk.
    unstored: bool,
    /// Bytes that the socket took from this thread.
    sent_bytes: u64,
    head_bytes: u64,
    replied: Stamp,
    delivered: Stamp,
}

/// ```text
/// SILENT ──begin──► BEGUN ──first bytes──► OPEN ──► CLOSED
///                     │  ▲ begin             ▲
///                     └──┘                   └ pieces
/// ```
#[derive(Clone, Copy)]
enum Stage {
    Silent,
    /// The head's lines are in the desk's buffer.
    Begun,
    /// The head is out. `left`: bytes of the declared length still to come.
    Open {
        plan: ReplyPlan,
        left: Option<u64>,
        way: Way,
    },
}

/// Where bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the socket, from this thread.
    Direct,
    /// To the driver.
    Flow,
    /// Nowhere: the client is gone.
    Nowhere,
}

/// A reply's end, for the pool corridor.
pub(crate) struct Close {
    pub(crate) status: u16,
    pub(crate) head_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) keep_alive: bool,
    pub(crate) ending: Ending,
    pub(crate) cause: &'static str,
    pub(crate) replied: Stamp,
    pub(crate) delivered: Stamp,
    /// The driver sends the rest and ends the exchange.
    pub(crate) flowing: bool,
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(
        door: &'a Arc<Door>,
        desk: &'a mut Desk,
        asked: Asked,
        bounds: Bounds<'a>,
    ) -> Self {
        Self {
            door,
            desk,
            asked,
            bounds,
            stage: Stage::Silent,
            status: 0,
            declared: Declared::default(),
            overflow: Overflow::default(),
            flowing: false,
            unstored: false,
            sent_bytes: 0,
            head_bytes: 0,
            replied: Stamp::ZERO,
            delivered: Stamp::ZERO,
        }
    }

    /// Starts the head, or starts it anew until it has been sent. Append finished `Name: value\r\n` lines
    /// to the buffer given back, then call `declare`.
    ///
    /// # Panics
    /// When the head has been sent, or for a status outside 200 to 999: an interim status is no reply.
    pub fn begin(&mut self, status: u16, reason: &[u8]) -> &mut Vec<u8> {
        assert!(!self.head_is_sent(), "the head has been sent");
        assert!(
            (200..=999).contains(&status),
            "status {status} is no final status"
        );
        self.stage = Stage::Begun;
        self.status = status;
        self.declared = Declared::default();
        self.desk.out.clear();
        wire::write_status_line_with(&mut self.desk.out, status, reason);
        &mut self.desk.out
    }

    /// Says what the lines written after `begin` contained.
    pub fn declare(&mut self, declared: Declared) {
        self.declared = declared;
    }

    /// Whether the head has left, so that neither status nor headers can be changed.
    pub fn head_is_sent(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    /// Whether no head has been started.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Silent)
    }

    /// True when `piece` would only do a short step that neither waits nor touches a disk.
    pub fn is_quick(&self, bytes: usize) -> bool {
        match self.stage {
            Stage::Open { way: Way::Flow, .. } => {
                fits_memory(&self.door.flow(), bytes, self.bounds.delivery)
            }
            _ => bytes <= QUICK_BYTES,
        }
    }

    /// The head and the whole body at once. Adds `Content-Length` when none was declared. The body is
    /// copied only where the socket does not take it.
    pub fn whole(&mut self, body: &[u8]) -> Taken {
        self.replied = measure::now();
        let plan = self.open(Some(body.len() as u64));
        let (body, taken) = self.fit(body);
        let now = self.replied;
        self.end_head(&plan, now);
        let head = std::mem::take(&mut self.desk.out);
        let way = match plan.framing {
            ReplyFraming::Chunked if !body.is_empty() => {
                let prefix = wire::chunk_prefix(body.len());
                self.offer(&[&head, prefix.as_bytes(), body, wire::CHUNK_SUFFIX])
            }
            ReplyFraming::NoBody => self.offer(&[&head]),
            _ => self.offer(&[&head, body]),
        };
        self.desk.out = head;
        self.delivered = measure::now();
        if way == Way::Nowhere {
            Taken::Gone
        } else {
            taken
        }
    }

    /// One piece of a stream; the head goes out with the first that is not empty.
    ///
    /// May wait, and may write to a disk, when the client is slow: see `is_quick`.
    pub fn piece(&mut self, data: &[u8]) -> Taken {
        if data.is_empty() {
            return self.state_of_client();
        }
        if self.head_is_sent() {
            return self.further_piece(data);
        }
        let plan = self.open(None);
        let (data, taken) = self.fit(data);
        let now = measure::now();
        self.end_head(&plan, now);
        let head = std::mem::take(&mut self.desk.out);
        let way = match plan.framing {
            ReplyFraming::Chunked => {
                let prefix = wire::chunk_prefix(data.len());
                self.offer(&[&head, prefix.as_bytes(), data, wire::CHUNK_SUFFIX])
            }
            ReplyFraming::NoBody => self.offer(&[&head]),
            _ => self.offer(&[&head, data]),
        };
        self.desk.out = head;
        if way == Way::Nowhere {
            Taken::Gone
        } else {
            taken
        }
    }

    /// A span of a file as (the next part of) the body, sent by the driver without a copy.
    pub fn file(&mut self, file: File, offset: u64, bytes: u64) -> Taken {
        if bytes == 0 {
            return self.state_of_client();
        }
        let mut chain = Chain::default();
        if !self.head_is_sent() {
            let plan = self.open(Some(bytes));
            let now = measure::now();
            self.end_head(&plan, now);
            chain.push_copy(&self.desk.out);
        }
        let Stage::Open { plan, left, .. } = &mut self.stage else {
            return Taken::Gone;
        };
        let fitting = left.map_or(bytes, |left| left.min(bytes));
        if let Some(left) = left {
            *left -= fitting;
        }
        let part = Part::File {
            file: Arc::new(file),
            offset,
            bytes: fitting,
        };
        match plan.framing {
            ReplyFraming::NoBody => {}
            ReplyFraming::Chunked => {
                let count = usize::try_from(fitting).expect("a 64-bit machine");
                chain.push_copy(wire::chunk_prefix(count).as_bytes());
                chain.push(part);
                chain.push(Part::Memory(Bytes::from_static(wire::CHUNK_SUFFIX)));
            }
            _ => chain.push(part),
        }
        let cut = fitting < bytes;
        match self.hand_to_driver(chain) {
            Way::Nowhere => Taken::Gone,
            _ if cut => Taken::Overrun,
            _ => Taken::All,
        }
    }

    /// Ends the reply as far as the handler is concerned.
    pub(crate) fn close(mut self) -> Close {
        if matches!(self.stage, Stage::Begun) {
            self.whole(b"");
        }
        let Stage::Open { plan, left, .. } = self.stage else {
            return self.closed(Ending::Lost, "no reply", false);
        };
        if left.is_some_and(|left| left > 0) {
            return self.broken("body shorter than its Content-Length");
        }
        if plan.framing == ReplyFraming::Chunked {
            self.offer(&[wire::LAST_CHUNK]);
        }
        self.closed(Ending::Complete, "", plan.keep_alive)
    }

    /// Ends a reply that cannot be completed: it must not look complete to the client.
    pub(crate) fn broken(self, cause: &'static str) -> Close {
        if let Stage::Open { plan, .. } = self.stage
            && plan.framing == ReplyFraming::UntilClose
        {
            // An ordinary end would be the sign of completeness here: the close must be a reset.
            let _ = SockRef::from(&**self.door).set_linger(Some(Duration::ZERO));
        }
        self.closed(Ending::Cut, cause, false)
    }

    fn closed(mut self, ending: Ending, cause: &'static str, keep_alive: bool) -> Close {
        let (ending, cause) = match self.unstored {
            true => (
                Ending::Cut,
                "the reply could not be stored for its slow client",
            ),
            false => (ending, cause),
        };
        let way = self.way();
        // For a reply given whole the handler was done when it gave it; a stream is done now.
        if self.replied == Stamp::ZERO {
            self.replied = measure::now();
            self.delivered = self.replied;
        }
        let gone = way == Way::Nowhere && ending == Ending::Complete;
        Close {
            status: self.status,
            head_bytes: self.head_bytes,
            sent_bytes: self.sent_bytes,
            keep_alive: keep_alive && !gone && ending == Ending::Complete,
            ending: if gone { Ending::PeerGone } else { ending },
            cause,
            replied: self.replied,
            delivered: self.delivered,
            flowing: self.flowing,
        }
    }

    /// Decides the framing. `known`: the body's length, when the handler gives the whole.
    fn open(&mut self, known: Option<u64>) -> ReplyPlan {
        let content_length = self.declared.content_length.or(known);
        let plan = wire::plan_reply(&ReplyFacts {
            version: self.asked.version,
            method_is_head: self.asked.is_head,
            status: self.status,
            content_length,
            keep_alive: self.keep_alive(),
        });
        let left = match plan.framing {
            ReplyFraming::Length(bytes) => Some(bytes),
            _ => None,
        };
        // A HEAD reply to a handler that gave a body tells that body's length; one that gave none and
        // declared none tells nothing.
        let write_length = self.declared.content_length.is_none()
            && match plan.framing {
                ReplyFraming::Length(_) => true,
                ReplyFraming::NoBody => {
                    self.asked.is_head
                        && known.is_some_and(|known| known > 0)
                        && may_have_body(self.status)
                }
                _ => false,
            };
        if write_length && plan.framing == ReplyFraming::NoBody {
            wire::write_content_length(&mut self.desk.out, known.unwrap_or(0));
        }
        self.stage = Stage::Open {
            plan,
            left,
            way: Way::Direct,
        };
        plan
    }

    fn keep_alive(&self) -> bool {
        let draining = self.bounds.draining.load(Ordering::Relaxed);
        self.asked.keep_alive && !self.declared.close && !draining
    }

    fn end_head(&mut self, plan: &ReplyPlan, now: Stamp) {
        let write_length = self.declared.content_length.is_none()
            && matches!(plan.framing, ReplyFraming::Length(_));
        let end = EndOfHead {
            plan,
            version: self.asked.version,
            has_date: self.declared.date,
            has_server: self.declared.server,
            write_length,
        };
        self.desk.end_head(
            &end,
            &Phases {
                replied: now,
                ..self.asked.phases
            },
        );
        self.head_bytes = self.desk.out.len() as u64;
    }

    /// Cuts `data` to what the declared length leaves, and counts it.
    fn fit<'d>(&mut self, data: &'d [u8]) -> (&'d [u8], Taken) {
        let Stage::Open {
            left: Some(left), ..
        } = &mut self.stage
        else {
            return (data, Taken::All);
        };
        let fitting = usize::try_from(*left).unwrap_or(usize::MAX).min(data.len());
        *left -= fitting as u64;
        (
            &data[..fitting],
            if fitting < data.len() {
                Taken::Overrun
            } else {
                Taken::All
            },
        )
    }

    fn further_piece(&mut self, data: &[u8]) -> Taken {
        let Stage::Open { plan, .. } = self.stage else {
            return Taken::Gone;
        };
        let (data, taken) = self.fit(data);
        let way = match plan.framing {
            ReplyFraming::NoBody => return self.state_of_client(),
            _ if data.is_empty() => return taken,
            ReplyFraming::Chunked => {
                let prefix = wire::chunk_prefix(data.len());
                self.offer(&[prefix.as_bytes(), data, wire::CHUNK_SUFFIX])
            }
            _ => self.offer(&[data]),
        };
        if way == Way::Nowhere {
            Taken::Gone
        } else {
            taken
        }
    }

    fn state_of_client(&self) -> Taken {
        match self.stage {
            Stage::Open {
                way: Way::Nowhere, ..
            } => Taken::Gone,
            Stage::Open { way: Way::Flow, .. } if self.door.flow().gone => Taken::Gone,
            _ => Taken::All,
        }
    }

    fn way(&self) -> Way {
        match self.stage {
            Stage::Open { way, .. } => way,
            _ => Way::Nowhere,
        }
    }

    fn set_way(&mut self, new: Way) -> Way {
        if let Stage::Open { way, .. } = &mut self.stage {
            *way = new;
        }
        new
    }

    /// Offers buffers (at most four) to the socket, or passes them to the driver.
    fn offer(&mut self, buffers: &[&[u8]]) -> Way {
        match self.way() {
            Way::Direct => self.offer_to_socket(buffers),
            Way::Flow => self.offer_to_flow(buffers),
            Way::Nowhere => Way::Nowhere,
        }
    }

    fn offer_to_socket(&mut self, buffers: &[&[u8]]) -> Way {
        let mut slices = [IoSlice::new(&[]); 4];
        let mut offered = 0;
        for (slice, buffer) in slices.iter_mut().zip(buffers) {
            *slice = IoSlice::new(buffer);
            offered += buffer.len();
        }
        match super::send(self.door, &slices[..buffers.len()]) {
            Ok(sent) => {
                self.sent_bytes += sent as u64;
                if sent == offered {
                    return Way::Direct;
                }
                self.begin_flow(buffers, sent)
            }
            Err(_) => self.set_way(Way::Nowhere),
        }
    }

    fn begin_flow(&mut self, buffers: &[&[u8]], mut sent: usize) -> Way {
        let mut rest = Vec::new();
        for buffer in buffers {
            let skipped = sent.min(buffer.len());
            sent -= skipped;
            rest.extend_from_slice(&buffer[skipped..]);
        }
        let fits = rest.len() <= self.bounds.delivery.reply_buffer_bytes;
        let part = if fits {
            Ok(Part::Memory(Bytes::from(rest)))
        } else {
            self.spill(&rest)
        };
        self.pass_on(part)
    }

    /// Gives a part to the driver; one that could not be stored breaks the reply off.
    fn pass_on(&mut self, part: io::Result<Part>) -> Way {
        match part {
            Ok(part) => {
                let mut chain = Chain::default();
                chain.push(part);
                self.hand_to_driver(chain)
            }
            Err(_) => {
                self.unstored = true;
                if self.flowing {
                    self.door.flow().gone = true;
                    self.door.turnstile.wake();
                }
                self.set_way(Way::Nowhere)
            }
        }
    }

    /// Adds a chain to the flow, starting the flow if there is none yet.
    fn hand_to_driver(&mut self, mut chain: Chain) -> Way {
        let (memory, file) = chain.bytes();
        {
            let mut flow = self.door.flow();
            if flow.gone {
                drop(flow);
                return self.set_way(Way::Nowhere);
            }
            flow.memory_bytes += memory;
            flow.file_bytes += file;
            flow.chain.append(&mut chain);
            flow.sent_before = self.sent_bytes;
        }
        match self.way() {
            Way::Direct => match self.door.turnstile.start_flow() {
                Ok(()) => {
                    self.flowing = true;
                    self.set_way(Way::Flow)
                }
                Err(Seized) => self.set_way(Way::Nowhere),
            },
            way => {
                self.door.turnstile.wake();
                way
            }
        }
    }

    fn offer_to_flow(&mut self, buffers: &[&[u8]]) -> Way {
        let joined = buffers.concat();
        let fits = {
            let flow = self.door.flow();
            if flow.gone {
                drop(flow);
                return self.set_way(Way::Nowhere);
            }
            if flow.file_bytes == 0 {
                self.overflow.renew();
            }
            fits_memory(&flow, joined.len(), self.bounds.delivery) && flow.file_bytes == 0
        };
        let part = if fits {
            Ok(Part::Memory(Bytes::from(joined)))
        } else {
            self.spill(&joined)
        };
        self.pass_on(part)
    }

    /// Writes to the unnamed file; past its bound waits until the client has taken what is there.
    fn spill(&mut self, data: &[u8]) -> io::Result<Part> {
        if self.overflow.offset() + data.len() as u64 > self.bounds.delivery.reply_spool_bytes_max {
            self.door.wait_for_room(|flow| flow.file_bytes == 0);
            self.overflow.renew();
        }
        self.overflow.write(data, self.bounds.spool)
    }
}

fn may_have_body(status: u16) -> bool {
    status != 204 && status != 304
}
