//! Protocols: each turns the bytes of a `Transport` into streams, and a stream into an exchange and its
//! response. Nothing above this module knows HTTP/1 or sockets.
//!
//! `Connection` is what all of them share: the transport, the deadline, the ways in which a wait may end, and the
//! end of an exchange in the log. `h1` is one request at a time.

pub(crate) mod offloaded;

pub(crate) mod h1;
#[cfg(feature = "faults")]
pub(crate) mod interleaved;

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use measure::{Ending, Nanos, Queued, Stamp};
use wire::{HeadView, RequestHead};

use crate::driver::handoff::{ConnectionPermit, Opened};
use crate::driver::table::Fired;
use crate::driver::{Driver, Mood, Scratch};
use crate::exchange::stream::StreamShared;
use crate::exchange::{self, Body, Ends, Exchange, ExchangeRecord, Id};
use crate::ids::Trust;
use crate::log::Level;
use crate::recorder::Received;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::request_start;
use crate::response::{Destination, Ended, RequestFacts};
use crate::stats::{Doing, Timeout};
use crate::transport::Transport;

/// What a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "faults"), expect(unreachable_pub))]
pub enum Protocol {
    /// HTTP/1: one stream at a time.
    Http1,
    /// The toy of the tests: many streams at once.
    #[cfg(feature = "faults")]
    Interleaved,
}

impl Protocol {
    /// Serves a connection, by tasks of their own on this thread.
    pub(crate) fn serve(self, driver: Rc<Driver>, opened: Opened) {
        let task = match self {
            Protocol::Http1 => tokio::task::spawn_local(h1::H1::open(driver, opened).serve()),
            #[cfg(feature = "faults")]
            Protocol::Interleaved => {
                tokio::task::spawn_local(interleaved::Interleaved::open(driver, opened).serve())
            }
        };
        drop(task);
    }
}

/// One client's connection on its driver.
pub(crate) struct Connection {
    pub(crate) driver: Rc<Driver>,
    pub(crate) transport: Transport,
    pub(crate) ends: Arc<Ends>,
    /// Whether the ids that its client gives count.
    trust: Trust,
    /// Index in the driver's table.
    pub(crate) slot: usize,
    /// When it was accepted.
    pub(crate) accepted: Stamp,
    /// Last: it counts until its socket is closed.
    _permit: ConnectionPermit,
}

/// Why waiting for a client ended without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// The deadline passed.
    Deadline,
    /// It is idle, and others need its place.
    Crowded,
    /// The driver drains.
    Draining,
    /// The driver ends at once.
    Cut,
    /// The client closed its side.
    End,
    /// The connection failed.
    Failed,
}

/// Why a response was not sent to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) ending: Ending,
    pub(crate) cause: &'static str,
}

impl Connection {
    /// Enters the driver's table. `stream`: what a connection of one stream at a time shares with its workers.
    pub(crate) fn open(
        driver: Rc<Driver>,
        opened: Opened,
        stream: Option<Arc<StreamShared>>,
    ) -> Self {
        let accepted = opened.accepted;
        let deadline = accepted.plus(driver.config().timeouts.head);
        let slot = driver.table.borrow_mut().enter(stream, accepted, deadline);
        driver.arrival.notify_one();
        Self {
            driver,
            transport: opened.transport,
            ends: opened.ends,
            trust: opened.trust,
            slot,
            accepted,
            _permit: opened.permit,
        }
    }

    /// Lets the table wake the task that calls this; once per task is enough.
    pub(crate) async fn enter_task(&self) {
        poll_fn(|context| {
            let mut table = self.driver.table.borrow_mut();
            table.set_waker(self.slot, context.waker());
            Poll::Ready(())
        })
        .await;
    }

    /// The id of the next exchange; `head` is `None` when it never became one. Once an exchange.
    pub(crate) fn new_id(&self, head: Option<HeadView<'_>>) -> Id {
        let number = self.driver.numbers.next();
        self.driver.shared.ids.id(number, self.trust, head)
    }

    /// The record of a request that has arrived then.
    pub(crate) fn record(&self, head: Option<HeadView<'_>>, arrived: Stamp) -> ExchangeRecord {
        ExchangeRecord::new(self.new_id(head), self.driver.index, arrived)
    }

    pub(crate) fn now_doing(&self, doing: Doing, deadline: Stamp) {
        let mut table = self.driver.table.borrow_mut();
        table.set(self.slot, doing, deadline);
    }

    pub(crate) fn deadline_in(&self, doing: Doing, time: Nanos) {
        self.now_doing(doing, measure::now().plus(time));
    }

    pub(crate) fn cutting(&self) -> bool {
        self.driver.mood.get() == Mood::Cutting
    }

    /// Whether the table woke this connection, and what for. A wake-up for a deadline that was moved
    /// since counts for nothing.
    pub(crate) fn take_fired(&self) -> Option<Woken> {
        if self.cutting() {
            return Some(Woken::Cut);
        }
        let mut table = self.driver.table.borrow_mut();
        let fired = table.take_fired(self.slot);
        if fired == Fired::No {
            return None;
        }
        match self.driver.mood.get() {
            _ if table.deadline(self.slot) <= measure::now() => Some(Woken::Deadline),
            Mood::Draining => Some(Woken::Draining),
            Mood::Serving | Mood::Leaving if fired == Fired::Crowded => Some(Woken::Crowded),
            Mood::Serving | Mood::Leaving | Mood::Cutting => None,
        }
    }

    /// Reads into the scratch buffer; gives it with the number of bytes there.
    pub(crate) async fn read(&self) -> Result<(Box<Scratch>, usize), Woken> {
        poll_fn(|context| self.poll_read(context)).await
    }

    fn poll_read(&self, context: &mut Context<'_>) -> Poll<Result<(Box<Scratch>, usize), Woken>> {
        if let Some(woken) = self.take_fired() {
            return Poll::Ready(Err(woken));
        }
        let mut scratch = self.driver.take_scratch();
        match self.transport.poll_read(context, &mut scratch.input) {
            Poll::Ready(Ok(bytes @ 1..)) => Poll::Ready(Ok((scratch, bytes))),
            other => {
                self.driver.put_scratch(scratch);
                match ready!(other) {
                    Ok(_) => Poll::Ready(Err(Woken::End)),
                    Err(_) => Poll::Ready(Err(Woken::Failed)),
                }
            }
        }
    }

    /// As `read`, but only what is there already.
    pub(crate) fn read_now(&self) -> Option<(Box<Scratch>, usize)> {
        let mut scratch = self.driver.take_scratch();
        match self.transport.read_now(&mut scratch.input) {
            Some(bytes) => Some((scratch, bytes)),
            None => {
                self.driver.put_scratch(scratch);
                None
            }
        }
    }

    /// Waits for work that may take as long as it wants, but not longer than this driver: `None` when the
    /// driver is to end at once.
    pub(crate) async fn unless_cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if self.cutting() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Waits for work as long as the connection holds: one that was reset is not to keep its place, nor its
    /// application at work, until we would have sent something.
    pub(crate) async fn unless_reset<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let mut work = pin!(work);
        let mut reset = pin!(self.transport.failed());
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            let reset = reset.as_mut().poll(context);
            reset.map(|()| Err(Stop::peer_gone()))
        })
        .await
    }

    /// A complete request, ready for the pool.
    pub(crate) fn exchange(
        &self,
        head: Arc<RequestHead>,
        body: Body,
        mut record: ExchangeRecord,
        rewritten: Option<Box<[u8]>>,
    ) -> Box<Exchange> {
        record.phases.queued = measure::now();
        record.queued = Queued {
            before: self.before(head.view(), &record),
            ..Queued::default()
        };
        Box::new(Exchange {
            head,
            rewritten,
            body,
            ends: Arc::clone(&self.ends),
            record,
        })
    }

    /// How long it had waited when it arrived, as a proxy in front says.
    fn before(&self, head: HeadView<'_>, record: &ExchangeRecord) -> Nanos {
        let shared = &self.driver.shared;
        let starts = shared.request_starts.as_ref();
        let told = starts.and_then(|starts| starts.told(head, &self.ends));
        told.map_or(Nanos::ZERO, |started_ns| {
            let receive = record.phases.queued.since(record.phases.arrived);
            request_start::before(started_ns, unix_now_ns().saturating_sub(receive.0))
        })
    }

    /// Names a request whose body could not be stored; gives what its client is told.
    pub(crate) fn spool_fault(
        &self,
        record: &ExchangeRecord,
        head: HeadView<'_>,
        error: &io::Error,
    ) -> Refusal {
        let name = exchange::name(record.id, head);
        let text = format!("{name}: request body could not be stored: {error}");
        self.driver.shared.log.error(Level::Error, &text);
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Refusal::SPOOL_FULL,
            _ => Refusal::SPOOL_FAILED,
        }
    }

    /// The response with an error page in the place of its body, where there is one for its status.
    pub(crate) fn with_error_page(&self, reply: Reply, head: Option<HeadView<'_>>) -> Reply {
        match reply.status {
            0..400 => reply,
            _ => self.driver.shared.pages.replace_body(reply, head),
        }
    }

    /// Writes a response of the server's own, as far as it gets; the rest is the protocol's to send. A refusal
    /// stays one in the record.
    pub(crate) fn write(
        &self,
        record: &mut ExchangeRecord,
        head: Option<HeadView<'_>>,
        request: RequestFacts,
        to: Destination,
        reply: Reply,
    ) -> Ended {
        let (ending, cause) = (record.ending, record.cause);
        let mut writer = self.driver.take_writer();
        writer.begin_exchange(record.id, head, request, to);
        writer.respond(reply);
        let ended = writer.finish(record);
        self.driver.put_writer(writer);
        if record.ending == Ending::Complete {
            record.end_as(ending, cause);
        }
        ended
    }

    /// Ends an exchange: the one place on a driver that does.
    pub(crate) fn end(&self, record: &ExchangeRecord, received: Received<'_>) {
        if record.ending == Ending::Drained {
            self.driver.cut.set(self.driver.cut.get() + 1);
        }
        self.driver.recorder.close(record, received, &self.ends);
    }

    /// Ends an exchange that gets no response.
    pub(crate) fn end_unanswered(
        &self,
        mut record: ExchangeRecord,
        received: Received<'_>,
        ending: Ending,
    ) {
        let now = measure::now();
        // It never came to its pool, of whose queue the record would tell.
        record.pool = None;
        record.begin_inline(now);
        record.end_at(now);
        record.end_as(ending, "");
        self.driver.stats().errors.add();
        self.end(&record, received);
    }

    /// Counts a response that was given up because of its client's pace.
    pub(crate) fn count_stop(&self, stop: Stop) {
        if stop.ending == Ending::SendTimeout {
            self.driver.stats().timed_out(Timeout::Send);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.table.borrow_mut().leave(self.slot);
        self.driver.has_ended(self.accepted);
        // A panic in a task would otherwise cost this connection silently; it is to cost the process.
        if std::thread::panicking() {
            self.driver.broken.set(true);
            self.driver.changed.notify_one();
        }
        if !self.driver.serving() {
            self.driver.changed.notify_one();
        }
    }
}

impl Stop {
    pub(crate) fn peer_gone() -> Self {
        Self {
            ending: Ending::PeerGone,
            cause: "",
        }
    }

    /// Why a response ends that could not be sent.
    pub(crate) fn of_send(error: &io::Error) -> Self {
        match error.kind() {
            // What was announced cannot be kept.
            ErrorKind::UnexpectedEof => Stop::cut("the file was changed while it was sent"),
            // A network that lost its client says why it could not be reached (tcp(7), "Error handling").
            ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::TimedOut => Stop::peer_gone(),
            _ => Stop::cut("the file could not be read"),
        }
    }

    /// The response is cut on our side.
    pub(crate) fn cut(cause: &'static str) -> Self {
        Self {
            ending: Ending::Cut,
            cause,
        }
    }
}

impl Woken {
    /// How an exchange ends whose response was being sent.
    pub(crate) fn stop(self) -> Stop {
        let ending = match self {
            Woken::Deadline => Ending::SendTimeout,
            Woken::Cut => Ending::Drained,
            Woken::Draining | Woken::Crowded | Woken::End | Woken::Failed => Ending::PeerGone,
        };
        Stop { ending, cause: "" }
    }
}

/// The wall clock; 0 before 1970.
fn unix_now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_client_that_cannot_be_reached_is_gone_and_no_file_is_blamed() {
        let check = |errno: Errno, expect| {
            assert_eq!(Stop::of_send(&errno.into()).ending, expect, "{errno:?}");
        };
        check(Errno::PIPE, Ending::PeerGone);
        check(Errno::CONNRESET, Ending::PeerGone);
        check(Errno::TIMEDOUT, Ending::PeerGone);
        check(Errno::HOSTUNREACH, Ending::PeerGone);
        check(Errno::NETUNREACH, Ending::PeerGone);
        check(Errno::IO, Ending::Cut);
        check(Errno::STALE, Ending::Cut);
    }
}
