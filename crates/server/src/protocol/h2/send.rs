//! The stream sender: data leaves a turn at a time, as the client's windows and the response's share of the bandwidth
//! allow.
//!
//! Takes parts from the task of a stream, gives them to the `h2` crate when the connection grants a turn. A file is
//! read here only where that needs no disk.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::{FieldLines, RequestHead};
use queueing::Pace;
use telemetry::{Ending, Nanos, Stamp, StreamFacts};

use super::fields;
use super::mux::{BlockedTimes, EndedHead, StreamEnding, TURN_BYTES};
use super::stream::{Interrupts, StreamTask};
use super::stream_table::Turn;
use crate::bandwidth::BandwidthLimit;
use crate::exchange::ExchangeRecord;
use crate::exchange::stream::StreamShared;
use crate::protocol::{Stop, Woken};
use crate::response::{Parts, ResponseHead};
use config::typed::Rate;

/// How a response ends whose client keeps its own window shut.
const NO_WINDOW: &str = "the client gave no window";

/// A response on its way.
pub(super) struct StreamSender {
    send: SendStream<Bytes>,
    /// Bytes of the body that the crate took.
    pub(super) sent: u64,
    /// The time that the client may leave it waiting for the stream's window.
    pace: Pace,
    limit: Option<BandwidthLimit>,
    blocked: BlockedTimes,
}

/// Whether a response ends with a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Yes,
    No,
}

impl StreamSender {
    pub(super) fn stream_mut(&mut self) -> &mut SendStream<Bytes> {
        &mut self.send
    }

    /// Sends a short response that is in memory, if nothing holds it up.
    pub(super) fn send_at_once(&mut self, task: &StreamTask, parts: &mut Parts) -> bool {
        let (memory_bytes, file_bytes) = parts.bytes();
        if self.limit.is_some() || file_bytes > 0 || memory_bytes > TURN_BYTES || parts.len() > 1 {
            return false;
        }
        if task.mux.turn_at_once(memory_bytes).is_none() {
            return false;
        }
        self.send.reserve_capacity(memory_bytes);
        if self.send.capacity() < memory_bytes {
            self.send.reserve_capacity(0);
            return false;
        }
        match parts.take_cached(memory_bytes) {
            Ok(Some(data)) => task.send_data(self, data, Last::Yes).is_ok(),
            _ => false,
        }
    }

    /// The crate has all of the response, or will not get more: its exchange ends as soon as the kernel has it.
    pub(super) fn end(&self, task: &mut StreamTask, mut record: ExchangeRecord, head: EndedHead) {
        record.sent_bytes = self.sent;
        self.note_blocked(&mut record.stream);
        task.note_reset(&mut record.stream);
        task.mux.end_when_sent(StreamEnding {
            record,
            head,
            until: None,
            _permit: task.permit.take(),
        });
    }

    /// Notes in a record what has blocked the response.
    pub(super) fn note_blocked(&self, facts: &mut StreamFacts) {
        facts.blocked_stream = self.blocked.stream;
        facts.blocked_connection = self.blocked.connection;
    }

    /// Gives the crate the end of the stream.
    pub(super) fn send_end(&mut self) -> Result<(), Stop> {
        self.send
            .send_data(Bytes::new(), true)
            .map_err(|_| Woken::End.stop())
    }

    /// Gives the crate the fields behind a body, with which the stream ends.
    pub(super) fn send_trailers(&mut self, fields: FieldLines) -> Result<(), Stop> {
        let map = fields::trailers(&fields.freeze());
        self.send.send_trailers(map).map_err(|_| Woken::End.stop())
    }
}

impl StreamTask {
    /// Sends the head. `ends`: nothing follows it.
    pub(super) fn send_head(
        &mut self,
        head: &ResponseHead,
        route: u16,
        rate: Option<Rate>,
        ends: bool,
    ) -> Result<StreamSender, Stop> {
        let response = fields::response(head);
        if let Some(field) = response.headers().get("priority") {
            let priority = self.slot.priority.get();
            self.slot.priority.set(priority.merged(field.as_bytes()));
        }
        let send = self.respond.send_response(response, ends);
        let send = send.map_err(|_| Woken::End.stop())?;
        self.mux.has_moved();
        let timeouts = &self.driver.config().timeouts;
        let now = telemetry::now();
        let mut pace = Pace::new(now, timeouts.send, timeouts.send_rate_min);
        pace.hold(now);
        let bandwidth = &self.driver.shared.bandwidth;
        let is_limited = rate.is_some() || !bandwidth.is_empty;
        Ok(StreamSender {
            send,
            sent: 0,
            pace,
            limit: is_limited
                .then(|| bandwidth.limit(None, route, rate))
                .flatten(),
            blocked: BlockedTimes::default(),
        })
    }

    /// Sends all parts of a response of the server's own, and ends its exchange.
    pub(super) async fn send_rest(
        &mut self,
        mut sending: StreamSender,
        mut parts: Parts,
        mut record: ExchangeRecord,
        head: Box<RequestHead>,
        reset: Option<Reason>,
    ) {
        match (
            self.send_parts(&mut sending, &mut parts, reset).await,
            reset,
        ) {
            (Ok(()), None) => {}
            (Ok(()), Some(reason)) => {
                // In another turn: the crate drops what it has not written of a stream that is reset.
                tokio::task::yield_now().await;
                self.respond.send_reset(reason);
                self.mux.has_moved();
            }
            (Err(stop), _) => {
                self.stop(stop, reason_of(stop));
                record.end_as(stop.ending, stop.cause);
            }
        }
        self.driver.shared.replies_memory.discard(parts);
        sending.end(self, record, EndedHead::Head(head));
    }

    async fn send_parts(
        &mut self,
        sending: &mut StreamSender,
        parts: &mut Parts,
        reset: Option<Reason>,
    ) -> Result<(), Stop> {
        while !parts.is_empty() {
            let (memory_bytes, file_bytes) = parts.bytes();
            let want = memory_bytes as u64 + file_bytes;
            let most = self.allowance(sending, None, want).await?;
            let data = self.read(parts, most).await?;
            let last = match parts.is_empty() && reset.is_none() {
                true => Last::Yes,
                false => Last::No,
            };
            self.send_data(sending, data, last)?;
        }
        Ok(())
    }

    /// Takes bytes of the front out: on this thread where they are in memory, else on one that may wait for a disk.
    pub(super) async fn read(&self, parts: &mut Parts, most: usize) -> Result<Bytes, Stop> {
        let here = parts.take_cached(most);
        if let Some(data) = here.map_err(|error| Stop::of_send(&error))? {
            return Ok(data);
        }
        let mut taken = std::mem::take(parts);
        let read = self.driver.shared.writers.run(move || {
            let data = taken.take_waiting(most);
            (taken, data)
        });
        let read = self.mux.connection.unless_cut(read).await?;
        let (rest, data) = read.map_err(|error| Stop::of_send(&error))?;
        *parts = rest;
        data.map_err(|error| Stop::of_send(&error))
    }

    /// Bytes that may be sent now, of `want`: waits for a turn of the connection, for the stream's window and for the
    /// response's share of the bandwidth.
    pub(super) async fn allowance(
        &self,
        sending: &mut StreamSender,
        stream: Option<&StreamShared>,
        want: u64,
    ) -> Result<usize, Stop> {
        let most = want.min(TURN_BYTES as u64 * 4);
        let most = usize::try_from(most).expect("a turn fits memory");
        let capacity = self.capacity(sending, stream, most).await?;
        let Some(limit) = &mut sending.limit else {
            return Ok(capacity);
        };
        // Of what the client takes: those that share the bandwidth wait for all that is reserved, and a client may keep
        // the windows of many streams shut.
        let now = telemetry::now();
        let (from, share) = limit.reserve(capacity as u64, now);
        let share = usize::try_from(share).expect("no more than was wanted");
        if from <= now {
            sending.send.reserve_capacity(share);
            return Ok(share);
        }
        // The connection's window is for its other streams meanwhile.
        sending.send.reserve_capacity(0);
        let capacity = match self.rest(from.since(now)).await {
            Ok(()) => self.capacity(sending, stream, share).await,
            Err(stop) => Err(stop),
        };
        if let Some(limit) = &mut sending.limit {
            let unsent = share - capacity.as_ref().map_or(0, |bytes| *bytes);
            limit.give_back(unsent as u64);
        }
        capacity
    }

    /// Bytes that the client takes now, of `want`: waits for a turn of the connection and for the stream's window.
    async fn capacity(
        &self,
        sending: &mut StreamSender,
        stream: Option<&StreamShared>,
        want: usize,
    ) -> Result<usize, Stop> {
        loop {
            let granted = self.turn(sending, stream, want).await?;
            let wanted = granted.min(want);
            sending.send.reserve_capacity(wanted);
            let capacity = sending.send.capacity().min(wanted);
            if capacity > 0 {
                // What it does not get now it asks for again: others may be more urgent by then.
                sending.send.reserve_capacity(capacity);
                return Ok(capacity);
            }
            if self.mux.window() > 0 {
                self.own_window(sending, stream).await?;
            }
            sending.send.reserve_capacity(0);
        }
    }

    /// Waits for the stream's turn; gives how many bytes it is for.
    async fn turn(
        &self,
        sending: &mut StreamSender,
        stream: Option<&StreamShared>,
        want: usize,
    ) -> Result<usize, Stop> {
        if let Some(most) = self.mux.turn_at_once(want) {
            return Ok(most);
        }
        let began = telemetry::now();
        self.mux.ask_for_turn(&self.slot);
        let granted = self.wait(Stamp::NEVER, Interrupts::Any, |context| {
            if let Some(stop) = self.abandoned(stream, context) {
                return Some(Err(stop));
            }
            match self.slot.turn.get() {
                Turn::Granted(bytes) => Some(Ok(bytes)),
                Turn::Idle | Turn::Waiting => None,
            }
        });
        let granted = granted.await;
        self.mux.forgo_turn(&self.slot);
        let waited = telemetry::now().since(began);
        sending.blocked.connection = Nanos(sending.blocked.connection.0 + waited.0);
        granted.map_err(Woken::stop)?
    }

    /// Waits until the client opens the stream's own window.
    async fn own_window(
        &self,
        sending: &mut StreamSender,
        stream: Option<&StreamShared>,
    ) -> Result<(), Stop> {
        let began = telemetry::now();
        let StreamSender { send, pace, .. } = sending;
        pace.resume(began);
        let opened = self.wait(pace.deadline(), Interrupts::Any, |context| {
            if let Some(stop) = self.abandoned(stream, context) {
                return Some(Err(stop));
            }
            match send.poll_capacity(context) {
                Poll::Ready(Some(Ok(_))) => Some(Ok(())),
                Poll::Ready(_) => Some(Err(Woken::End.stop())),
                Poll::Pending => None,
            }
        });
        let opened = opened.await;
        let now = telemetry::now();
        sending.pace.hold(now);
        sending.blocked.stream = Nanos(sending.blocked.stream.0 + now.since(began).0);
        opened.map_err(|woken| match woken {
            Woken::Deadline => Stop::new(Ending::SendTimeout, NO_WINDOW),
            woken => woken.stop(),
        })?
    }

    /// Waits until the limits of the bandwidth allow more.
    async fn rest(&self, pause: Nanos) -> Result<(), Stop> {
        let mut alarm = pin!(tokio::time::sleep(Duration::from_nanos(pause.0)));
        let rested = self.wait(Stamp::NEVER, Interrupts::Any, |context| {
            alarm.as_mut().poll(context).is_ready().then_some(())
        });
        rested.await.map_err(Woken::stop)
    }

    /// Why the rest of a worker's response is not sent, if that is so.
    fn abandoned(
        &self,
        stream: Option<&StreamShared>,
        context: &std::task::Context<'_>,
    ) -> Option<Stop> {
        let stream = stream?;
        stream.ownership.watch(context);
        stream.pending().abandoned().map(Stop::cut)
    }

    /// Notes in a record who has reset the stream.
    pub(super) fn note_reset(&self, facts: &mut StreamFacts) {
        (facts.reset_by, facts.reset_code) = self.slot.reset();
    }

    /// Gives the crate a piece, for which there is capacity.
    pub(super) fn send_data(
        &self,
        sending: &mut StreamSender,
        data: Bytes,
        last: Last,
    ) -> Result<(), Stop> {
        let bytes = data.len();
        let given = sending.send.send_data(data, last == Last::Yes);
        given.map_err(|_| Woken::End.stop())?;
        let now = telemetry::now();
        self.mux.sent_data(bytes, now);
        sending.sent += bytes as u64;
        sending.pace.advance(bytes as u64, now);
        Ok(())
    }
}

/// How a client hears of a response that does not come to its end.
pub(super) fn reason_of(stop: Stop) -> Reason {
    match stop.ending {
        Ending::Shutdown | Ending::PeerGone | Ending::SendTimeout => Reason::CANCEL,
        _ => Reason::INTERNAL_ERROR,
    }
}
