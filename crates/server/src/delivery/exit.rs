//! The exit: where the bytes of an outlet's reply go. To the socket from the pool thread, as long as it
//! takes everything; then to the driver, through memory or an unnamed file; and nowhere once the client
//! is gone.
//!
//! Takes framed buffers. Waits only when one reply has filled `reply_spool_bytes_max`.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::door::{Overflow, fits_memory};
use super::{Chain, Door};
use crate::config::meant::{Delivery, Rate, Spool};
use crate::handover::Seized;
use crate::log::Log;
use crate::reply::Part;

/// Pieces up to this size are offered to the socket without further thought.
const QUICK_BYTES: usize = 64 << 10;
/// Bytes that go to the unnamed file at once, however little it may hold.
const SPILL_BYTES_MIN: usize = 64 << 10;
/// How long a client that is gone may take to say so; network round trips are shorter, and one that is not
/// gone makes its stream wait so long once.
const RESET_TIME: Duration = Duration::from_millis(50);
/// Buffers in one offer: head, chunk prefix, data, chunk suffix.
const BUFFERS_MAX: usize = 4;

/// What an outlet has to keep to.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub(crate) draining: &'a AtomicBool,
    pub(crate) delivery: &'a Delivery,
    pub(crate) memory: &'a ReplyMemory,
    pub(crate) first: FirstWay,
    pub(crate) spool: &'a Spool,
    pub(crate) log: &'a Log,
}

/// Who begins to send a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstWay {
    /// The pool thread: what the socket takes at once needs no second thread.
    Socket,
    /// The driver: the reply has a limited bandwidth.
    Driver,
}

/// Memory of all replies that wait for their clients.
#[derive(Debug)]
pub(crate) struct ReplyMemory {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl ReplyMemory {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max,
        }
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Driver: so much was sent, or will never be.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes() + bytes <= self.bytes_max
    }
}

/// One reply's way out.
pub(super) struct Exit<'a> {
    pub(super) door: &'a Arc<Door>,
    pub(super) bounds: Bounds<'a>,
    way: Way,
    /// Bytes that the socket took from this thread.
    pub(super) sent_bytes: u64,
    /// The driver writes, or wrote until the client was gone: it ends the exchange.
    pub(super) flowing: bool,
    /// The unnamed file failed, such as on a full disk.
    pub(super) unstored: bool,
    overflow: Overflow,
    rate: Option<Rate>,
    /// The turnstile knows that the client may have a part of the reply.
    has_spoken: bool,
    /// The client has closed its side and was seen to read on.
    is_half_closed: bool,
    /// Whoever offers next was told by `is_quick` that it may take a moment.
    may_wait: Cell<bool>,
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

impl<'a> Exit<'a> {
    pub(super) fn new(door: &'a Arc<Door>, bounds: Bounds<'a>) -> Self {
        Self {
            door,
            bounds,
            way: Way::Direct,
            sent_bytes: 0,
            flowing: false,
            unstored: false,
            overflow: Overflow::default(),
            rate: None,
            has_spoken: false,
            is_half_closed: false,
            may_wait: Cell::new(false),
        }
    }

    /// The reply is begun with this status.
    pub(super) fn set_status(&self, status: u16) {
        self.door.set_status(status);
    }

    /// The reply's head is complete; nothing was offered yet.
    pub(super) fn set_head(&self, head_bytes: u64, body_bytes: Option<u64>) {
        self.door.set_head(head_bytes, body_bytes);
    }

    /// The bandwidth that the application gives this reply, before any of it was offered.
    pub(super) fn set_rate(&mut self, rate: Option<Rate>) {
        self.rate = rate;
        match rate {
            None => {}
            Some(Rate::Unlimited) => self.bounds.first = FirstWay::Socket,
            Some(Rate::BytesPerSec(_)) => self.bounds.first = FirstWay::Driver,
        }
    }

    /// Whether nothing that is offered will reach the client.
    pub(super) fn is_closed(&self) -> bool {
        match self.way {
            Way::Direct => false,
            Way::Flow => self.door.flow().gone,
            Way::Nowhere => true,
        }
    }

    /// Whether the client was found gone when something was offered.
    pub(super) fn was_refused(&self) -> bool {
        self.way == Way::Nowhere
    }

    /// True when offering so much neither waits nor touches a disk.
    pub(super) fn is_quick(&self, bytes: usize) -> bool {
        match self.way {
            // Behind bytes in the unnamed file memory is no longer an option.
            Way::Flow => {
                let flow = self.door.flow();
                flow.file_bytes == 0
                    && fits_memory(&flow, bytes, self.bounds.delivery)
                    && self.bounds.memory.has_room(bytes)
            }
            // What the socket leaves over must not go to a disk either.
            Way::Direct | Way::Nowhere => {
                bytes <= QUICK_BYTES.min(self.bounds.delivery.reply_buffer_bytes)
                    && self.bounds.memory.has_room(bytes)
                    && !self.is_to_wait()
            }
        }
    }

    /// Whether the client of a stream has closed its side, and it is not known yet whether it still reads.
    fn may_have_left(&self) -> bool {
        self.sent_bytes > 0 && !self.is_half_closed && self.poll(PollFlags::RDHUP, Duration::ZERO)
    }

    /// Only who asked beforehand waits: an interpreter must not be held meanwhile.
    fn is_to_wait(&self) -> bool {
        self.may_wait.set(self.may_have_left());
        self.may_wait.get()
    }

    /// A client that is gone answers what is sent to it with a reset; one that has only closed its side takes
    /// it. Waits a moment for the one or the other, once in a reply: without that, a stream would hear of
    /// its client's leaving one piece later.
    fn hear_of_leaving(&mut self) {
        self.is_half_closed = true;
        if self.poll(PollFlags::empty(), RESET_TIME) {
            self.way = Way::Nowhere;
        }
    }

    /// Whether the socket shows `flags`, an error or the end of both its sides within `time`.
    fn poll(&self, flags: PollFlags, time: Duration) -> bool {
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let mut fds = [PollFd::new(&**self.door, flags)];
        let seen = rustix::event::poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0);
        seen && fds[0]
            .revents()
            .intersects(flags | PollFlags::HUP | PollFlags::ERR)
    }

    /// Offers buffers (at most four) to the socket, or passes them to the driver.
    pub(super) fn offer(&mut self, buffers: &[&[u8]]) {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return;
        }
        match self.way {
            Way::Direct if self.bounds.first == FirstWay::Driver => self.begin_flow(buffers, 0),
            Way::Direct => self.offer_to_socket(buffers),
            Way::Flow => self.offer_to_flow(buffers),
            Way::Nowhere => {}
        }
    }

    /// Passes parts to the driver.
    pub(super) fn pass(&mut self, mut chain: Chain) {
        if self.way == Way::Nowhere {
            return;
        }
        let (memory, file) = chain.bytes();
        {
            let mut flow = self.door.flow();
            if flow.gone {
                self.way = Way::Nowhere;
                return;
            }
            self.bounds.memory.take(memory);
            flow.memory_bytes += memory;
            flow.file_bytes += file;
            flow.chain.append(&mut chain);
            flow.sent_before = self.sent_bytes;
            flow.rate = self.rate;
        }
        if self.way == Way::Flow {
            self.door.turnstile.wake();
            return;
        }
        match self.door.turnstile.start_flow() {
            Ok(()) => {
                self.flowing = true;
                self.way = Way::Flow;
            }
            Err(Seized) => {
                self.way = Way::Nowhere;
                // The driver has answered in our place, and may be done with the connection.
                let unsent = std::mem::take(&mut self.door.flow().memory_bytes);
                self.bounds.memory.give_back(unsent);
            }
        }
    }

    fn offer_to_socket(&mut self, buffers: &[&[u8]]) {
        let mut slices = [IoSlice::new(&[]); BUFFERS_MAX];
        let mut offered = 0;
        for (slice, buffer) in slices.iter_mut().zip(buffers) {
            *slice = IoSlice::new(buffer);
            offered += buffer.len();
        }
        let may_wait = self.may_wait.take();
        if !self.has_spoken && self.door.turnstile.speak().is_err() {
            self.way = Way::Nowhere;
            return;
        }
        self.has_spoken = true;
        match super::send(self.door, &slices[..buffers.len()]) {
            Ok(sent) => {
                self.sent_bytes += sent as u64;
                self.door.set_sent(self.sent_bytes);
                if sent < offered {
                    self.begin_flow(buffers, sent);
                } else if may_wait {
                    self.hear_of_leaving();
                }
            }
            Err(_) => self.way = Way::Nowhere,
        }
    }

    fn begin_flow(&mut self, buffers: &[&[u8]], mut sent: usize) {
        let mut rest = [&[][..]; BUFFERS_MAX];
        for (rest, buffer) in rest.iter_mut().zip(buffers) {
            let skipped = sent.min(buffer.len());
            sent -= skipped;
            *rest = &buffer[skipped..];
        }
        let bytes = bytes_of(&rest);
        let fits =
            bytes <= self.bounds.delivery.reply_buffer_bytes && self.bounds.memory.has_room(bytes);
        self.keep(&rest, fits);
    }

    fn offer_to_flow(&mut self, buffers: &[&[u8]]) {
        let bytes = bytes_of(buffers);
        let (is_drained, fits) = {
            let flow = self.door.flow();
            if flow.gone {
                self.way = Way::Nowhere;
                return;
            }
            let is_drained = flow.file_bytes == 0;
            let fits = is_drained
                && fits_memory(&flow, bytes, self.bounds.delivery)
                && self.bounds.memory.has_room(bytes);
            (is_drained, fits)
        };
        // Behind the lock: closing the old file may wait for its disk, and the driver must not.
        if is_drained {
            self.overflow.renew();
        }
        self.keep(buffers, fits);
    }

    /// Keeps bytes for the driver, in memory where they fit; what cannot be stored breaks the reply off.
    fn keep(&mut self, buffers: &[&[u8]], fits_memory: bool) {
        if fits_memory {
            return self.pass_part(Part::Memory(Bytes::from(buffers.concat())));
        }
        // A copy of a few bytes costs less than a call for each of them; of many it costs as much as storing
        // them.
        let joined;
        let buffers = if bytes_of(buffers) <= SPILL_BYTES_MIN {
            joined = buffers.concat();
            &[joined.as_slice()][..]
        } else {
            buffers
        };
        let spool_bytes_max = self.bounds.delivery.reply_spool_bytes_max;
        let most = usize::try_from(spool_bytes_max).unwrap_or(usize::MAX);
        let most = most.max(SPILL_BYTES_MIN);
        // The client may be gone, and what is left unstored, by the time that a piece has its place.
        for piece in buffers.iter().flat_map(|buffer| buffer.chunks(most)) {
            match self.spill(piece) {
                Ok(part) => self.pass_part(part),
                Err(_) => return self.break_off(),
            }
            if self.way == Way::Nowhere {
                return;
            }
        }
    }

    fn pass_part(&mut self, part: Part) {
        let mut chain = Chain::default();
        chain.push(part);
        self.pass(chain);
    }

    fn break_off(&mut self) {
        self.unstored = true;
        self.way = Way::Nowhere;
        if self.flowing {
            self.door.flow().gone = true;
            self.door.turnstile.wake();
        }
    }

    /// Writes to the unnamed file; past its bound waits until the client has taken what is there.
    fn spill(&mut self, data: &[u8]) -> io::Result<Part> {
        let bytes = self.overflow.offset() + data.len() as u64;
        if bytes > self.bounds.delivery.reply_spool_bytes_max {
            self.door.wait_for_room(|flow| flow.file_bytes == 0);
            self.overflow.renew();
        }
        self.overflow.write(data, self.bounds.spool)
    }
}

fn bytes_of(buffers: &[&[u8]]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}
