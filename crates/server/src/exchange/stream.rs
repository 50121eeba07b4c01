//! What the driver and the worker share of one stream: write ownership, the pending response, progress. The
//! socket is not in it.
//!
//! A worker that may not write to the socket, or whose socket was full, adds to the `PendingResponse`; the driver
//! takes its parts, offers them to the client, and puts back what was not taken. While no thread has the parts, a
//! thread that may wait for a disk may move them to a file. The lock is held for none of these.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::FieldLines;
use telemetry::Stamp;

use super::Exchange;
pub(crate) use super::observer::{StreamEvent, StreamObserver, TaskSignals};
pub(crate) use super::ownership::After;
use super::ownership::WriteOwnership;
use crate::response::{Parts, ReplyMemory, ResponseHead, SpillFile};
use crate::sync::{invariant, lock};
use crate::tunnel::Tunnel;
use crate::websocket::WebSocketChannel;
use config::typed::Rate;

/// One stream's shared state. HTTP/1 has one for each connection and uses it again; others have one for each
/// request.
///
/// The worker has the exchange's record, and may keep it for as long as its application wants. What it has to tell
/// a driver that ends the exchange meanwhile stands here as single numbers: a lock would be one more on the way of
/// each exchange.
#[derive(Default)]
pub(crate) struct StreamShared {
    pub(crate) ownership: WriteOwnership,
    pending: Mutex<PendingResponse>,
    /// Notified when some of the pending response was sent, or all of it was given up.
    room: Condvar,
    /// When a worker took the last exchange.
    started: AtomicU64,
    /// Number of the worker that runs it; 0 for none.
    worker: AtomicU32,
    /// When the client last took some of the response; of one that a worker has sent whole, when it was out.
    progress: AtomicU64,
    /// The status that the last response was begun with.
    status: AtomicU16,
    /// Bytes of its head, once that is complete.
    head_bytes: AtomicU32,
    /// Bytes of both head and body; 0 where these are not known.
    whole_bytes: AtomicU64,
    /// Bytes of it that the worker has sent itself.
    sent_bytes: AtomicU64,
    /// The driver has ended the last exchange because the application took too long; the stream ends with it.
    overdue: AtomicBool,
    /// What hears of the stream, while an event loop or a task has its exchange.
    observer: Mutex<Option<StreamObserver>>,
}

/// A response on its way from a worker to the driver.
#[derive(Default)]
pub(crate) struct PendingResponse {
    /// Parts that no thread has taken, in order.
    parts: Parts,
    /// Bytes of the parts before these, as long as the driver or a thread that spills has them.
    taken: Option<u64>,
    /// What came with the first part: apart from this, so that an idle connection does not hold it.
    start: Option<Box<PendingStart>>,
    /// A thread is to spill, or does.
    is_spilling: bool,
    /// The worker is done with the response.
    finished: Option<Finished>,
    /// Why nothing more will be sent.
    abandoned: Option<&'static str>,
    /// The driver has logged the exchange already.
    revoked: bool,
    /// A worker waits for room.
    has_waiter: bool,
}

/// What the driver has to know of a response that it sends from some part on.
#[derive(Default)]
pub(crate) struct PendingStart {
    /// The head, where the protocol writes it; HTTP/1 has it among the parts.
    pub(crate) head: Option<ResponseHead>,
    /// Bytes that the worker had sent itself before the first part.
    pub(crate) sent_before: u64,
    /// Bytes of these and of the first parts that are an interim response, and none of this one.
    pub(crate) interim_bytes: u64,
    /// The bandwidth that the application gave this response.
    pub(crate) rate: Option<Rate>,
    /// The file that parts have moved to, which only these keep open.
    pub(crate) spill: SpillFile,
    /// Fields of interim responses before the head, at most `INTERIM_MAX` at once.
    pub(crate) interim: Vec<FieldLines>,
    /// Fields behind the body, where the protocol writes them; HTTP/1 has them among the parts.
    pub(crate) trailers: Option<FieldLines>,
    /// The response accepts a WebSocket connection: what follows it are frames, in both directions.
    pub(crate) websocket: Option<Arc<WebSocketChannel>>,
    /// The response changes the protocol: the driver has the exchange from here on.
    pub(crate) tunnel: Option<Box<Tunnel>>,
    /// The observer is to hear when no more bytes than these are unsent.
    awaited_bytes: Option<u64>,
}

/// An exchange whose response is complete but not yet sent.
pub(crate) struct Finished {
    pub(crate) exchange: Box<Exchange>,
    pub(crate) after: After,
}

/// Why the rest of a response is not sent, as the log says it. The driver knows better when it has given its client up.
pub(crate) const CLIENT_GONE: &str = "";
pub(crate) const UNSTORED: &str = "the response could not be stored for its slow client";
pub(crate) const NO_SPACE: &str = "no space in spool_dir for the response to a slow client";
pub(crate) const MEMORY_FULL: &str =
    "reply_memory_max is used up, and the client had taken nothing for longest";
pub(crate) const WAITED_TOO_LONG: &str =
    "the client took the stream too slowly for its worker to wait";

/// Interim responses of one exchange that wait for the driver; more are dropped, because they are hints.
const INTERIM_MAX: usize = 8;

/// What the driver finds when it looks at a pending response.
pub(crate) enum Next {
    /// There are parts to send: bytes in memory, and bytes in files.
    Parts(usize, u64),
    /// Nothing yet, or another thread has the parts.
    Nothing,
    /// Everything was sent, and the worker is done.
    Finished(Finished),
    /// Nothing more is to be sent.
    Abandoned(&'static str),
}

/// How a worker's wait for room ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waited {
    Room,
    Abandoned,
    TooLong,
}

impl StreamShared {
    pub(crate) fn pending(&self) -> MutexGuard<'_, PendingResponse> {
        lock(&self.pending)
    }

    /// Driver: when a worker took the last exchange that was taken.
    pub(crate) fn started_at(&self) -> Stamp {
        Stamp(self.started.load(Ordering::Acquire))
    }

    /// Driver: which worker runs the exchange that was taken last, once `started_at` says that it was taken.
    pub(crate) fn worker(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.worker.load(Ordering::Relaxed))
    }

    /// Worker: the exchange is begun, by the worker with this number if its application runs.
    pub(crate) fn set_started_at(&self, started: Stamp, worker: Option<NonZeroU32>) {
        let worker = worker.map_or(0, NonZeroU32::get);
        self.worker.store(worker, Ordering::Relaxed);
        // Behind the worker: a driver that sees the stamp of this exchange sees its worker too.
        self.started.store(started.0, Ordering::Release);
    }

    /// When the client last took some of the pending response; before that, when it began to wait. When it is the
    /// driver's again without one: when the response was out.
    pub(crate) fn progress_at(&self) -> Stamp {
        Stamp(self.progress.load(Ordering::Relaxed))
    }

    /// Driver: the client takes some of it now. Worker: the response is out, and the stream is about to be released.
    pub(crate) fn set_progress_at(&self, now: Stamp) {
        self.progress.store(now.0, Ordering::Relaxed);
    }

    /// Driver: the status of a response of which some has been sent.
    pub(crate) fn status(&self) -> u16 {
        self.status.load(Ordering::Relaxed)
    }

    /// Driver: bytes of the head of a response of which some has been sent.
    pub(crate) fn head_bytes(&self) -> u64 {
        u64::from(self.head_bytes.load(Ordering::Relaxed))
    }

    /// Driver: bytes that the worker has sent itself of a response of which some has been sent; a call of it
    /// that has not come back is not in them.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Driver: whether so many bytes are all of a response of which some has been sent. Unknown for one
    /// that ends with its last chunk, or with the connection.
    pub(crate) fn is_whole(&self, sent_bytes: u64) -> bool {
        sent_bytes > 0 && self.whole_bytes.load(Ordering::Relaxed) == sent_bytes
    }

    /// Worker: the response has this status, a head of so many bytes, and a body of so many if that is known;
    /// nothing of it has been sent. Call it before any is.
    pub(crate) fn set_head(&self, status: u16, head_bytes: u64, body_bytes: Option<u64>) {
        let whole_bytes = body_bytes.map_or(0, |bytes| head_bytes.saturating_add(bytes));
        // Relaxed, all of them: `mark_started` follows in this thread, and a driver reads them only behind that
        // mark.
        self.whole_bytes.store(whole_bytes, Ordering::Relaxed);
        // A head of 4 GiB is none that a client takes.
        let head_bytes = u32::try_from(head_bytes).unwrap_or(u32::MAX);
        self.head_bytes.store(head_bytes, Ordering::Relaxed);
        self.sent_bytes.store(0, Ordering::Relaxed);
        self.status.store(status, Ordering::Relaxed);
    }

    /// Worker: so much of the response is sent by now.
    pub(crate) fn set_sent_bytes(&self, sent_bytes: u64) {
        self.sent_bytes.store(sent_bytes, Ordering::Relaxed);
    }

    /// Driver: the exchange was ended here because the application took too long.
    pub(crate) fn set_overdue(&self) {
        self.overdue.store(true, Ordering::Release);
        self.notify(StreamEvent::Overdue);
    }

    /// Event loop or task: `observer` hears of the stream from now on.
    pub(crate) fn observe(&self, observer: StreamObserver) {
        *lock(&self.observer) = Some(observer);
    }

    /// Event loop or task: nobody hears of the stream any more.
    pub(crate) fn unobserve(&self) {
        // Dropped behind the lock.
        let observer = lock(&self.observer).take();
        drop(observer);
    }

    /// Driver: the client has ended its side, or is gone.
    pub(crate) fn client_left(&self) {
        self.notify(StreamEvent::ClientGone);
    }

    fn notify(&self, event: StreamEvent) {
        if let Some(observer) = &*lock(&self.observer) {
            observer.notify(event);
        }
    }

    /// Event loop or task: whether at most `bytes_max` bytes are unsent. If not, the observer hears when that is so.
    pub(crate) fn has_room(&self, bytes_max: u64) -> bool {
        let mut pending = self.pending();
        let is_full = pending.abandoned.is_none() && pending.unsent_bytes() > bytes_max;
        if is_full {
            pending.start().awaited_bytes = Some(bytes_max);
        } else if let Some(start) = &mut pending.start {
            start.awaited_bytes = None;
        }
        !is_full
    }

    /// Whether the driver has ended the exchange because the application took too long.
    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.load(Ordering::Acquire)
    }

    /// Driver: puts back what the client has not taken.
    pub(crate) fn put_back(&self, rest: Parts, memory: &ReplyMemory) {
        let mut pending = self.pending();
        let unsent = pending.put_back(rest);
        let is_awaited = pending.takes_awaited();
        let has_waiter = pending.has_waiter;
        drop(pending);
        // A system call, whether somebody waits or not.
        if has_waiter {
            self.room.notify_one();
        }
        if is_awaited {
            self.notify(StreamEvent::Room);
        }
        memory.discard(unsent);
    }

    /// Worker: the response is complete. Gives it back when the driver has logged the exchange already.
    pub(crate) fn finish(&self, finished: Finished) -> Option<Finished> {
        let mut pending = self.pending();
        // Under the lock of `revoke`: either the driver finds what this leaves, or this finds the driver's mark.
        // Exactly one of them logs the exchange.
        if pending.revoked {
            return Some(finished);
        }
        invariant!(pending.finished.is_none(), "a response is finished twice");
        pending.finished = Some(finished);
        None
    }

    /// Worker: an interim response, before the first part. Only of a stream whose driver looks anew at each wake-up.
    pub(crate) fn push_interim(&self, fields: FieldLines) {
        let mut pending = self.pending();
        let start = pending.start();
        if start.interim.len() < INTERIM_MAX {
            start.interim.push(fields);
        }
        drop(pending);
        self.ownership.wake();
    }

    /// Driver: the interim responses that have come.
    pub(crate) fn take_interim(&self) -> Vec<FieldLines> {
        match &mut self.pending().start {
            Some(start) => std::mem::take(&mut start.interim),
            None => Vec::new(),
        }
    }

    /// Gives up the rest of the response. The first reason counts.
    pub(crate) fn abandon(&self, why: &'static str, memory: &ReplyMemory) {
        memory.discard(self.end_pending(self.pending(), why, PendingResponse::withdraw));
    }

    /// Gives up a response for its memory, unless its client has taken some since `moved`, it would free no memory
    /// now, or another response is there. In one step: the driver may end the response at any time, and the next
    /// one on the stream must not pay for it.
    pub(crate) fn abandon_stalled(&self, moved: Stamp, memory: &ReplyMemory) {
        let pending = self.pending();
        if pending.free_memory() > 0 && self.progress_at() == moved {
            memory.discard(self.end_pending(pending, MEMORY_FULL, PendingResponse::withdraw));
        }
    }

    /// The thread that spills: what it took is lost, and with it the response. In one step: what the worker has
    /// added meanwhile must not be sent behind a gap, nor the response be taken for finished.
    pub(crate) fn fail_spill(&self, why: &'static str) {
        // Dropped here, on a thread that may wait for a disk.
        drop(self.end_pending(self.pending(), why, |pending| {
            pending.is_spilling = false;
            pending.put_back(Parts::default())
        }));
    }

    fn end_pending(
        &self,
        mut pending: MutexGuard<'_, PendingResponse>,
        why: &'static str,
        end: impl FnOnce(&mut PendingResponse) -> Parts,
    ) -> Parts {
        // The first reason stays: later ones follow from it.
        pending.abandoned.get_or_insert(why);
        // What is dropped later is taken out under the lock and given to the caller: freeing memory or closing a
        // file under it would hold up the driver.
        let unsent = end(&mut pending);
        drop(pending);
        self.room.notify_one();
        self.client_left();
        self.ownership.wake();
        unsent
    }

    /// Worker: waits until at most `bytes_max` bytes are unsent.
    pub(crate) fn wait_for_room(&self, bytes_max: u64, longest: Duration) -> Waited {
        let is_full = |pending: &mut PendingResponse| {
            pending.abandoned.is_none() && pending.unsent_bytes() > bytes_max
        };
        let mut pending = self.pending();
        pending.has_waiter = true;
        // The wait gives the lock up; what makes room is done under the lock and notifies behind it, so that no
        // notification falls between the look and the sleep.
        let waited = self.room.wait_timeout_while(pending, longest, is_full);
        let (mut pending, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        pending.has_waiter = false;
        match pending.abandoned {
            Some(_) => Waited::Abandoned,
            None if timeout.timed_out() => Waited::TooLong,
            None => Waited::Room,
        }
    }
}

impl PendingResponse {
    /// Bytes that the client has not taken, wherever they are.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.taken.unwrap_or(0) + total_bytes(&self.parts)
    }

    /// Whether there is room for which the observer waits; it hears of it once.
    fn takes_awaited(&mut self) -> bool {
        let unsent_bytes = self.unsent_bytes();
        let awaited = self.start.as_mut().map(|start| &mut start.awaited_bytes);
        let reached = awaited.and_then(|awaited| awaited.take_if(|most| unsent_bytes <= *most));
        reached.is_some()
    }

    /// Why nothing more is sent, if that is so.
    pub(crate) fn abandoned(&self) -> Option<&'static str> {
        self.abandoned
    }

    /// Worker: adds parts; gives them back when nothing more will be sent.
    pub(crate) fn push(&mut self, mut parts: Parts) -> Result<(), Parts> {
        if self.abandoned.is_some() {
            return Err(parts);
        }
        // Behind what waits, also while another thread has the front of it: `put_back` puts that in front again.
        self.parts.append(&mut parts);
        Ok(())
    }

    /// What came with the first part, or will.
    pub(crate) fn start(&mut self) -> &mut PendingStart {
        self.start.get_or_insert_default()
    }

    /// Driver: the tunnel that begins.
    pub(crate) fn take_tunnel(&mut self) -> Option<Box<Tunnel>> {
        self.start.as_mut()?.tunnel.take()
    }

    /// Driver: the WebSocket connection that was accepted.
    pub(crate) fn accepted(&mut self) -> Option<Arc<WebSocketChannel>> {
        self.start.as_mut()?.websocket.take()
    }

    /// Driver: what is to be done next.
    pub(crate) fn next(&mut self) -> Next {
        if let Some(why) = self.abandoned {
            return Next::Abandoned(why);
        }
        if self.taken.is_some() {
            return Next::Nothing;
        }
        if !self.parts.is_empty() {
            let (memory, file) = self.parts.bytes();
            return Next::Parts(memory, file);
        }
        // Last: a worker may have finished while parts of its response are unsent.
        self.finished.take().map_or(Next::Nothing, Next::Finished)
    }

    /// Driver, once a response was abandoned: the exchange, if the worker is done with it.
    pub(crate) fn take_finished(&mut self) -> Option<Finished> {
        self.finished.take()
    }

    /// Bytes in memory that no thread has.
    pub(crate) fn bytes(&self) -> usize {
        self.free_memory()
    }

    /// Whether some of it waits, or is in the hands of a thread.
    pub(crate) fn has_unsent(&self) -> bool {
        self.taken.is_some() || !self.parts.is_empty()
    }

    /// Driver: whether the worker is done with the response.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.is_some()
    }

    /// Driver: the exchange is its own to log, whatever the worker does; `false` when the worker was first.
    pub(crate) fn revoke(&mut self) -> bool {
        self.revoked = self.finished.is_none();
        self.revoked
    }

    /// As `take`, of `bytes` bytes that the calling thread has in its own hands; false where others are to be sent
    /// before them, or nothing more is to be sent.
    pub(crate) fn take_turn(&mut self, bytes: u64) -> bool {
        let is_free = self.abandoned.is_none() && self.taken.is_none() && self.parts.is_empty();
        if is_free {
            self.taken = Some(bytes);
        }
        is_free
    }

    /// The parts, until they are put back; `None` when another thread has them.
    pub(crate) fn take(&mut self) -> Option<Parts> {
        if self.taken.is_some() {
            return None;
        }
        // What is out is still unsent: it counts against the bound that a worker waits at.
        self.taken = Some(total_bytes(&self.parts));
        Some(std::mem::take(&mut self.parts))
    }

    /// As `take`, but only where there are parts.
    pub(crate) fn take_some(&mut self) -> Option<Parts> {
        match self.abandoned.is_some() || self.parts.is_empty() {
            true => None,
            false => self.take(),
        }
    }

    fn put_back(&mut self, mut rest: Parts) -> Parts {
        let (bytes, taken) = (total_bytes(&rest), self.taken.take());
        invariant!(
            taken.is_some_and(|taken| bytes <= taken),
            "{bytes} bytes are put back of {taken:?} taken"
        );
        // In front of what the worker has added meanwhile.
        rest.append(&mut self.parts);
        self.parts = rest;
        match self.abandoned {
            Some(_) => self.withdraw(),
            None => Parts::default(),
        }
    }

    /// Takes what no thread has: what a worker has added of a response that never became the driver's, or
    /// what will not be sent.
    #[must_use]
    pub(crate) fn withdraw(&mut self) -> Parts {
        std::mem::take(&mut self.parts)
    }

    /// Driver: everything was sent, and the stream is for another exchange. A thread that was to spill and has
    /// not begun finds nothing, or parts of the next response.
    pub(crate) fn renew(&mut self) {
        invariant!(
            self.taken.is_none() && self.parts.is_empty() && self.finished.is_none(),
            "a stream is used again with a response on it"
        );
        *self = Self {
            is_spilling: self.is_spilling,
            ..Self::default()
        };
    }

    /// Whether a thread is to write some of it to a file; `true` for the first who asks. It must have `bytes_min`
    /// bytes in memory, and no other thread may have them.
    pub(crate) fn begin_spill(&mut self, bytes_min: usize) -> bool {
        let begins = !self.is_spilling && self.free_memory() >= bytes_min;
        self.is_spilling |= begins;
        begins
    }

    /// The thread that spills: what it is to write, and the last file. `None`: nothing is left to do.
    pub(crate) fn take_for_spill(&mut self) -> Option<(Parts, SpillFile)> {
        invariant!(self.is_spilling, "a response moves to a file unasked");
        // The response may be another one by now, or out: then there is nothing to write.
        self.is_spilling = self.free_memory() > 0;
        if !self.is_spilling {
            return None;
        }
        let parts = self.take()?;
        Some((parts, std::mem::take(&mut self.start().spill)))
    }

    /// The thread that spills: gives back what it took; whether it is done with it, and what the driver will not
    /// send. That thread may wait for a disk, but not with the lock of this, which the driver takes.
    #[must_use]
    pub(crate) fn put_back_spilled(&mut self, parts: Parts, file: SpillFile) -> (bool, Parts) {
        self.start().spill = file;
        let unsent = self.put_back(parts);
        self.is_spilling = self.parts.bytes().0 > 0;
        (!self.is_spilling, unsent)
    }

    /// Bytes in memory that no thread has, of a response that is still to be sent.
    fn free_memory(&self) -> usize {
        match (self.taken, self.abandoned) {
            (None, None) => self.parts.bytes().0,
            _ => 0,
        }
    }
}

fn total_bytes(parts: &Parts) -> u64 {
    let (memory, file) = parts.bytes();
    memory as u64 + file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::memory;

    fn parts(bytes: usize) -> Parts {
        let mut parts = Parts::default();
        parts.push_copy(&vec![7; bytes]);
        parts
    }

    fn pending(bytes: usize) -> PendingResponse {
        let mut pending = PendingResponse::default();
        assert!(pending.push(parts(bytes)).is_ok());
        pending
    }

    #[test]
    fn what_the_client_has_not_taken_stays_in_front() {
        let mut pending = pending(10);
        assert!(matches!(pending.next(), Next::Parts(10, 0)));
        let mut taken = pending.take().unwrap();
        assert!(pending.take().is_none());
        assert!(matches!(pending.next(), Next::Nothing));
        assert!(pending.push(parts(5)).is_ok());
        assert_eq!(pending.unsent_bytes(), 15);
        taken.advance(4);
        assert!(pending.put_back(taken).is_empty());
        assert_eq!(pending.unsent_bytes(), 11);
        assert!(matches!(pending.next(), Next::Parts(11, 0)));
    }

    #[test]
    #[should_panic(expected = "invariant violated")]
    fn more_than_was_taken_is_not_put_back() {
        let mut pending = pending(10);
        assert!(pending.take().is_some());
        drop(pending.put_back(parts(11)));
    }

    #[test]
    #[should_panic(expected = "invariant violated")]
    fn what_nobody_took_is_not_put_back() {
        drop(pending(10).put_back(parts(1)));
    }

    #[test]
    fn one_thread_at_a_time_has_the_parts() {
        let mut pending = pending(10);
        assert!(!pending.begin_spill(11));
        assert!(pending.begin_spill(10));
        assert!(!pending.begin_spill(10));
        let (taken, file) = pending.take_for_spill().unwrap();
        assert!(matches!(pending.next(), Next::Nothing));
        assert_eq!(pending.free_memory(), 0);
        assert!(!pending.put_back_spilled(taken, file).0);
        assert!(matches!(pending.next(), Next::Parts(10, 0)));
        let sending = pending.take().unwrap();
        assert!(pending.take_for_spill().is_none());
        assert!(pending.put_back(sending).is_empty());
        assert!(pending.begin_spill(10));
    }

    #[test]
    fn nothing_is_sent_behind_what_could_not_be_stored() {
        let stream = StreamShared::default();
        assert!(stream.pending().push(parts(10)).is_ok());
        assert!(stream.pending().begin_spill(1));
        assert!(stream.pending().take_for_spill().is_some());
        assert!(stream.pending().push(parts(5)).is_ok());
        stream.fail_spill(UNSTORED);
        let mut pending = stream.pending();
        assert!(matches!(pending.next(), Next::Abandoned(UNSTORED)));
        assert_eq!(pending.unsent_bytes(), 0);
    }

    #[test]
    fn the_first_reason_to_give_up_counts() {
        let stream = StreamShared::default();
        assert!(stream.pending().push(parts(3)).is_ok());
        let memory = memory();
        stream.abandon(MEMORY_FULL, &memory);
        stream.abandon(CLIENT_GONE, &memory);
        assert_eq!(stream.pending().unsent_bytes(), 0);
        assert_eq!(stream.pending().abandoned(), Some(MEMORY_FULL));
        assert!(stream.pending().push(parts(3)).is_err());
        assert_eq!(
            stream.wait_for_room(0, Duration::from_secs(600)),
            Waited::Abandoned
        );
    }

    #[test]
    fn a_response_is_given_up_for_its_memory_only_while_its_client_takes_nothing() {
        let stream = StreamShared::default();
        let memory = memory();
        stream.set_progress_at(Stamp(7));
        let check = |moved: u64, is_given_up: bool| {
            stream.abandon_stalled(Stamp(moved), &memory);
            let why = is_given_up.then_some(MEMORY_FULL);
            assert_eq!(stream.pending().abandoned(), why, "{moved}");
        };
        check(7, false);
        assert!(stream.pending().push(parts(3)).is_ok());
        check(6, false);
        let taken = stream.pending().take().unwrap();
        check(7, false);
        stream.put_back(taken, &memory);
        check(7, true);
        assert_eq!(stream.pending().unsent_bytes(), 0);
    }

    #[test]
    fn a_worker_waits_for_room_only_so_long() {
        let stream = StreamShared::default();
        assert!(stream.pending().push(parts(3)).is_ok());
        assert_eq!(stream.wait_for_room(3, Duration::ZERO), Waited::Room);
        assert_eq!(stream.wait_for_room(2, Duration::ZERO), Waited::TooLong);
    }
}
