//! The door: what a connection's driver and the pool thread that runs its exchange share.
//!
//! The turnstile says which of the two may write to the socket. Once the socket was full, the driver
//! writes and the pool thread adds to the `Flow`; that lasts until the reply ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use measure::{Ending, Stamp};

use super::Chain;
use crate::config::meant::{Delivery, Rate, Spool};
use crate::exchange::Exchange;
use crate::handover::Turnstile;
use crate::reply::Part;
use crate::unnamed::unnamed_file;

/// More bytes than any reply has.
const UNTOLD: u64 = u64::MAX;

/// One connection's socket and hand-over state.
pub(crate) struct Door {
    socket: OwnedFd,
    pub(crate) turnstile: Turnstile,
    flow: Mutex<Flow>,
    /// Rung when the driver has made room in the flow.
    room: Condvar,
    /// When the last reply that a pool thread sent whole was out.
    delivered: AtomicU64,
    /// When a pool thread took the last exchange.
    started: AtomicU64,
    /// The status that the last reply was begun with.
    status: AtomicU16,
    /// Bytes of its head, once that is complete.
    head_bytes: AtomicU64,
    /// Bytes of both head and body, where these are known; else `UNTOLD`.
    whole_bytes: AtomicU64,
    /// Bytes of it that the pool thread has sent itself.
    sent_bytes: AtomicU64,
    /// The driver has ended the last exchange because its handler took too long; the connection ends with it.
    overdue: AtomicBool,
}

/// A reply on its way from a pool thread to the driver.
#[derive(Default)]
pub(crate) struct Flow {
    /// Parts that the driver has not picked up yet.
    pub(crate) chain: Chain,
    /// Bytes picked up or not, but not sent.
    pub(crate) memory_bytes: usize,
    pub(crate) file_bytes: u64,
    /// Bytes that the pool thread had sent itself before the flow began.
    pub(crate) sent_before: u64,
    /// The bandwidth that the application gave this reply.
    pub(crate) rate: Option<Rate>,
    /// The pool thread is done with the reply.
    pub(crate) finished: Option<Finished>,
    /// The client is gone, or was given up: nothing more will be sent.
    pub(crate) gone: bool,
    /// The driver has logged the exchange already (the drain deadline passed).
    pub(crate) seized: bool,
}

/// An exchange whose reply is complete but not yet delivered.
pub(crate) struct Finished {
    pub(crate) exchange: Box<Exchange>,
    pub(crate) status: u16,
    pub(crate) head_bytes: u64,
    pub(crate) keep_alive: bool,
    /// `Complete` unless the reply had to be broken off.
    pub(crate) ending: Ending,
    pub(crate) cause: &'static str,
}

impl Door {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            turnstile: Turnstile::new(),
            flow: Mutex::default(),
            room: Condvar::new(),
            delivered: AtomicU64::new(0),
            started: AtomicU64::new(0),
            status: AtomicU16::new(0),
            head_bytes: AtomicU64::new(0),
            whole_bytes: AtomicU64::new(UNTOLD),
            sent_bytes: AtomicU64::new(0),
            overdue: AtomicBool::new(false),
        }
    }

    pub(crate) fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Driver: when the last reply that a pool thread sent whole was out.
    pub(crate) fn delivered(&self) -> Stamp {
        Stamp(self.delivered.load(Ordering::Relaxed))
    }

    /// Driver: when a pool thread took the last exchange that was taken.
    pub(crate) fn started(&self) -> Stamp {
        Stamp(self.started.load(Ordering::Relaxed))
    }

    /// Pool thread: the exchange is begun.
    pub(crate) fn set_started(&self, started: Stamp) {
        self.started.store(started.0, Ordering::Relaxed);
    }

    /// Driver: the status of a reply of which some has been sent.
    pub(crate) fn status(&self) -> u16 {
        self.status.load(Ordering::Relaxed)
    }

    /// Driver: bytes of the head of a reply of which some has been sent.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.head_bytes.load(Ordering::Relaxed)
    }

    /// Driver: bytes that the pool thread has sent itself of a reply of which some has been sent; a call of it
    /// that has not come back is not in them.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Pool thread: the reply is begun with it. Call it before any of the reply is sent.
    pub(crate) fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Driver: whether so many bytes are all of a reply of which some has been sent. Nobody knows it of one that
    /// ends with its last chunk, or with the connection.
    pub(crate) fn is_whole(&self, sent_bytes: u64) -> bool {
        self.whole_bytes.load(Ordering::Relaxed) == sent_bytes
    }

    /// Pool thread: the reply has a head of so many bytes, a body of so many if that is known, and nothing of it
    /// has been sent. Call it before any is.
    pub(crate) fn set_head(&self, head_bytes: u64, body_bytes: Option<u64>) {
        let whole_bytes = body_bytes.map_or(UNTOLD, |bytes| head_bytes.saturating_add(bytes));
        self.whole_bytes.store(whole_bytes, Ordering::Relaxed);
        self.head_bytes.store(head_bytes, Ordering::Relaxed);
        self.sent_bytes.store(0, Ordering::Relaxed);
    }

    /// Pool thread: so much of the reply is sent by now.
    pub(crate) fn set_sent(&self, sent_bytes: u64) {
        self.sent_bytes.store(sent_bytes, Ordering::Relaxed);
    }

    /// Pool thread: the reply is out. Call it before giving the connection back.
    pub(crate) fn set_delivered(&self, delivered: Stamp) {
        self.delivered.store(delivered.0, Ordering::Relaxed);
    }

    /// Driver: the exchange was ended here because its handler took too long.
    pub(crate) fn set_overdue(&self) {
        self.overdue.store(true, Ordering::Release);
    }

    /// Whether the driver has ended the exchange because its handler took too long.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.load(Ordering::Acquire)
    }

    /// Driver: some of the flow was sent.
    pub(crate) fn made_room(&self) {
        self.room.notify_one();
    }

    /// Pool thread: the reply is complete. Gives it back when the driver has logged the exchange already.
    pub(crate) fn finish(&self, finished: Finished) -> Option<Finished> {
        let mut flow = self.flow();
        if flow.seized {
            return Some(finished);
        }
        flow.finished = Some(finished);
        None
    }

    /// Pool thread: waits until `enough` or until the client is gone.
    pub(crate) fn wait_for_room(&self, enough: impl Fn(&Flow) -> bool) {
        let waiting = |flow: &mut Flow| !flow.gone && !enough(flow);
        let guard = self.room.wait_while(self.flow(), waiting);
        drop(guard.unwrap_or_else(PoisonError::into_inner));
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Door {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The unnamed file that a reply continues in when its client does not take it: a pool thread's end.
#[derive(Default)]
pub(super) struct Overflow {
    file: Option<Arc<File>>,
    offset: u64,
}

impl Overflow {
    /// Bytes that the file holds or has held since it was last empty.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The driver has sent everything: begin anew, with a file of its own. The old one must not be written
    /// to again: sendfile queues its pages in the socket without a copy, and the client may not have
    /// them yet.
    pub(super) fn renew(&mut self) {
        *self = Self::default();
    }

    /// Appends `data`; gives the span to send.
    pub(super) fn write(&mut self, data: &[u8], spool: &Spool) -> io::Result<Part> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(self.file.insert(Arc::new(unnamed_file(&spool.dir)?))),
        };
        file.write_all_at(data, self.offset)?;
        let part = Part::File {
            file,
            offset: self.offset,
            bytes: data.len() as u64,
            edition: None,
        };
        self.offset += data.len() as u64;
        Ok(part)
    }
}

/// Whether `bytes` more may wait in memory.
pub(super) fn fits_memory(flow: &Flow, bytes: usize, bounds: &Delivery) -> bool {
    flow.memory_bytes + bytes <= bounds.reply_buffer_bytes
}
