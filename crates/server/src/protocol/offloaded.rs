//! Offloaded: a worker has the exchange. The driver hands it over and serves other connections; it hears of this
//! one again when the response is out and the client sends more, or when the driver is to send the rest.
//!
//! Takes complete exchanges, gives back who has the response. What the driver keeps is enough to end the exchange
//! where the worker does not do so in time: either of them ends it, never both. The waits are those of a
//! connection of one stream at a time; a protocol of many streams has its own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use files::Reply;
use http::RequestHead;
use logging::Level;
use telemetry::{Ending, Nanos, Stamp};

use super::body::NoBody;
use super::send::{LOOK, ResponseSender};
use super::streamed::StreamedBody;
use super::{Connection, ReceivedRequest, Stop, Then, Woken};
use crate::exchange;
use crate::exchange::BodyEnd;
use crate::exchange::Exchange;
use crate::exchange::ExchangeRecord;
use crate::exchange::admitted::AdmittedRecord;
use crate::exchange::ownership::{ResponseStarted, Returned, WakePolicy};
use crate::exchange::stream;
use crate::exchange::stream::After;
use crate::exchange::stream::Finished;
use crate::exchange::stream::Next;
use crate::exchange::stream::StreamShared;
use crate::pool::Job;
use crate::refusal::Refusal;
use crate::response::Progress;
use crate::tunnel::Tunnel;
use crate::websocket::WebSocketChannel;
use telemetry::counters::{Doing, Timeout};

/// Why an exchange ends without its application.
const OVERDUE: &str = "the application took longer than request_timeout";
/// How a response ends in its middle whose application took longer than it may.
pub(crate) const STOP_OVERDUE: Stop = Stop::new(Ending::Timeout, OVERDUE);

/// What the driver keeps of an exchange that a worker has.
pub(crate) struct Offloaded<'a> {
    connection: &'a Connection,
    pub(crate) stream: &'a Arc<StreamShared>,
    pub(crate) head: Arc<RequestHead>,
    pub(crate) admitted: AdmittedRecord,
    /// How long the application may take.
    timeout: Option<Nanos>,
}

/// How the run of an exchange ends whose body is still arriving, without a response of its worker.
pub(crate) enum Interrupted {
    /// The body breaks a rule, and nothing of a response has started.
    Refused(Refusal),
    /// The body breaks a rule, and a part of a response has left.
    Cut(Stop),
    Other(StillOpen),
}

/// How an exchange goes on that its worker has not ended by a response.
pub(crate) enum StillOpen {
    /// Nothing of a response has started when the time of the application is up: the exchange is to be answered in its
    /// place, and the connection to end, because the worker still has its stream.
    Overdue,
    /// The application has accepted a WebSocket connection.
    WebSocket(Arc<WebSocketChannel>),
    /// The upstream has changed the protocol.
    Tunnel(Box<Tunnel>),
}

impl<'a> Offloaded<'a> {
    /// Has its pool admit an exchange, which waits for a worker from now on.
    pub(crate) fn admit(
        connection: &'a Connection,
        stream: &'a Arc<StreamShared>,
        exchange: &mut Exchange,
    ) -> Result<Self, Refusal> {
        // The stamp first: how long the request had waited in front of the server is counted up to it.
        exchange.record.phases.queued = telemetry::now();
        exchange.record.queued.before = connection.waited_before(exchange);
        let pool = connection.driver.pool_of(exchange);
        pool.admit(exchange.record.class)?;
        Ok(Self {
            connection,
            stream,
            head: Arc::clone(&exchange.head),
            admitted: AdmittedRecord::new(&exchange.record),
            timeout: connection
                .driver
                .shared
                .guards
                .request_timeout(exchange.record.route, pool.request_timeout()),
        })
    }

    /// Lets a worker write to the stream: before the exchange is anywhere where one may take it, because the worker's
    /// first step must find the stream its own. Without the exchange, which the task would have room for as long as it
    /// lives.
    pub(crate) fn hand_off(&self, wake: WakePolicy) -> impl Future<Output = ()> {
        poll_fn(move |context| {
            self.stream.ownership.hand_off(wake, context);
            Poll::Ready(())
        })
    }

    /// Hands the exchange to its worker, behind `hand_off`.
    pub(crate) fn hand_over(&self, job: Job) {
        self.connection.driver.hand_over(job);
    }

    /// Sees to the end of an exchange that was handed over so.
    pub(crate) async fn run(&self, wake: WakePolicy) -> Result<Then, StillOpen> {
        Ok(match self.returned(wake).await {
            Ok(Returned::Out(after)) => {
                self.connection.last_sent.set(self.stream.progress_at());
                self.conclude(after)
            }
            Ok(Returned::Queued) => {
                if let Some(channel) = self.accepted() {
                    return Err(StillOpen::WebSocket(channel));
                }
                if let Some(tunnel) = self.stream.pending().take_tunnel() {
                    return Err(StillOpen::Tunnel(tunnel));
                }
                match self.send_finished() {
                    Some(then) => then,
                    None => Box::pin(self.send_pending()).await,
                }
            }
            Err((STOP_OVERDUE, ResponseStarted::No)) => return Err(StillOpen::Overdue),
            // The numbers of the stream are those of an earlier exchange.
            Err((stop, ResponseStarted::No)) => self.end_early(stop, 0),
            Err((stop, ResponseStarted::Yes)) => {
                let sent_bytes = self.stream.sent_bytes();
                if !self.stream.is_whole(sent_bytes) {
                    // The worker may still be sending: no orderly end may follow what it has sent.
                    self.connection.transport.reset_on_close();
                }
                self.end_early(stop, sent_bytes)
            }
        })
    }

    /// As `run`, while the body is still arriving.
    pub(crate) async fn run_with(&self, body: &mut StreamedBody) -> Result<Then, Interrupted> {
        let mut run = pin!(self.run(WakePolicy::Return));
        let mut is_receiving = true;
        poll_fn(|context| {
            if is_receiving && let Poll::Ready(received) = body.poll(self.connection, context) {
                is_receiving = false;
                if let Err(no_body) = received {
                    // First: an application that hears of it may end the exchange at once.
                    let interrupted = self.break_off(no_body);
                    body.body.end(BodyEnd::Broken);
                    if let Some(interrupted) = interrupted {
                        return Poll::Ready(Err(interrupted));
                    }
                }
            }
            run.as_mut().poll(context).map_err(Interrupted::Other)
        })
        .await
    }

    /// The body does not come to its end: the application hears that the client is gone. Gives what ends the exchange,
    /// if the application does not.
    fn break_off(&self, no_body: NoBody) -> Option<Interrupted> {
        let refusal = match no_body {
            NoBody::Refused(refusal) => refusal,
            NoBody::Ended(_) => {
                self.stream.client_left();
                return None;
            }
        };
        let Some(started) = self.stream.ownership.revoke() else {
            // The response is the driver's to send by now, or is out: the connection ends behind it (`discard`).
            self.stream.client_left();
            return None;
        };
        self.stream.set_overdue();
        Some(match started {
            ResponseStarted::No => Interrupted::Refused(refusal),
            ResponseStarted::Yes => Interrupted::Cut(Stop::cut(refusal.cause)),
        })
    }

    /// Ends an exchange of which a part of the response has left.
    pub(crate) fn cut(&self, stop: Stop) -> Then {
        // The worker may still be sending: no orderly end may follow what it has sent.
        self.connection.transport.reset_on_close();
        self.end_early(stop, self.stream.sent_bytes())
    }

    /// The request of an exchange that is refused although a worker has it.
    pub(crate) fn refused(&self) -> ReceivedRequest<'_> {
        let head = self.head.view();
        let record = self.record_at(telemetry::now());
        ReceivedRequest { head, record }
    }

    /// The WebSocket connection that the application has accepted in the place of a response.
    pub(crate) fn accepted(&self) -> Option<Arc<WebSocketChannel>> {
        self.stream.pending().accepted()
    }

    /// What follows a response that its worker has ended so.
    fn conclude(&self, after: After) -> Then {
        match after {
            After::Keep => {
                self.stream.ownership.take_back();
                Then::Receive
            }
            After::Close => Then::Leave,
            After::Reset => {
                self.connection.transport.reset_on_close();
                Then::Close
            }
        }
    }

    /// Waits for the exchange to come back: by the client's next bytes when nothing needs to know earlier, else by a
    /// wake-up. The driver has to end one that does not come back in time: by another response, if none has started.
    fn returned(
        &self,
        mut wake: WakePolicy,
    ) -> impl Future<Output = Result<Returned, (Stop, ResponseStarted)>> {
        // A look after a while: when the response is out by then, the connection is idle and is to be watched
        // as such.
        let queued = self.admitted.queued;
        let look = queued.plus(LOOK).plus(LOOK);
        self.connection
            .now_doing(Doing::Away, look.min(self.due(queued)));
        let ownership = &self.stream.ownership;
        let has_more = wake == WakePolicy::Return;
        poll_fn(move |context| {
            let fired = self.connection.take_fired();
            if fired.is_some() {
                // The response may be long out. If it is not, it is to wake us from now on, and no look is needed.
                wake = WakePolicy::Return;
                if let Some(stop) = self.overtime(fired)
                    && let Some(started) = ownership.revoke()
                {
                    return Poll::Ready(Err((stop, started)));
                }
                // An exchange whose worker was first is ending.
                let due = self.due(telemetry::now());
                self.connection.now_doing(Doing::Away, due);
            }
            // Readable (or failed): what the client sent waits in the socket until the response is out.
            let transport = &self.connection.transport;
            if wake == WakePolicy::NextInput && transport.poll_readable(context).is_ready() {
                wake = WakePolicy::Return;
            }
            let returned = ownership.poll_return(wake, context);
            // Nobody looks at it but an event loop, whose application may wait for it.
            if returned.is_pending() && self.connection.transport.has_ended(context) {
                self.stream.client_left();
            }
            // Its place is needed although it is back: the wait for the next request is to hear of it, or it
            // would keep its place until the next look, and by then those that were idle for the longest time
            // have asked again.
            if fired == Some(Woken::Crowded) && returned.is_ready() && !has_more {
                let mut table = self.connection.driver.table.borrow_mut();
                table.mark_crowded(self.connection.slot);
            }
            returned.map(Ok)
        })
    }

    /// The worker still has an exchange that is not to be waited for: ends what it has begun to answer.
    fn end_early(&self, stop: Stop, sent_bytes: u64) -> Then {
        if stop == STOP_OVERDUE {
            // The watchdog interrupts the worker only once its client has its answer.
            self.stream.set_overdue();
            if self.stream.is_whole(sent_bytes) {
                self.end(None, sent_bytes);
                return Then::Linger;
            }
            self.connection.transport.reset();
        }
        self.end(Some(stop), sent_bytes);
        Then::Close
    }

    /// Sends a response under TLS that its worker has finished and not sent, such as a file: in one call, without a
    /// wait of its own. `None`: there is more to do.
    fn send_finished(&self) -> Option<Then> {
        let transport = &self.connection.transport;
        if !self.connection.sends_at_once(self.admitted.route) {
            return None;
        }
        let mut pending = self.stream.pending();
        if pending.start().rate.is_some() || !pending.is_finished() {
            return None;
        }
        let mut parts = pending.take()?;
        drop(pending);
        // A client that is gone is found again by the next call.
        let (progress, sent) =
            (transport.send_parts(&mut parts, u64::MAX)).unwrap_or((Progress::Blocked, 0));
        let memory = &self.connection.driver.shared.replies_memory;
        self.stream.put_back(parts, memory);
        let mut pending = self.stream.pending();
        let start = pending.start();
        start.sent_before += sent;
        let sent_bytes = start.sent_before.saturating_sub(start.interim_bytes);
        if progress != Progress::Done {
            return None;
        }
        let Next::Finished(finished) = pending.next() else {
            return None;
        };
        drop(pending);
        let concluded = self.end_sent(finished, sent_bytes);
        // Last, as in `send_pending`.
        memory.leave(self.stream);
        Some(concluded)
    }

    /// Sends what the worker could not, until it has finished the response and all is out.
    async fn send_pending(&self) -> Then {
        let (sent_before, interim_bytes, rate) = {
            let mut pending = self.stream.pending();
            let start = pending.start();
            (start.sent_before, start.interim_bytes, start.rate)
        };
        let mut sender =
            ResponseSender::new(self.connection, self.stream, self.admitted.route, rate);
        let sent = self.send_parts(&mut sender).await;
        let sent_bytes = (sent_before + sender.monitor.sent).saturating_sub(interim_bytes);
        // Before the exchange ends: what is left of the connection's bandwidth is for its next response.
        drop(sender);
        let concluded = match sent {
            Ok(finished) => self.end_sent(finished, sent_bytes),
            Err(stop) => self.end_unsent(stop, sent_bytes).await,
        };
        // Last: as long as the response is in that list a thread may spill it, which finds a finished one empty.
        let memory = &self.connection.driver.shared.replies_memory;
        memory.leave(self.stream);
        concluded
    }

    async fn send_parts(&self, sender: &mut ResponseSender<'_>) -> Result<Finished, Stop> {
        let memory = &self.connection.driver.shared.replies_memory;
        loop {
            // Of what was taken nothing waits for the application, which may be silent for as long as it wants.
            sender.flush().await?;
            let bytes = match self.next_pending(sender).await? {
                Next::Parts(memory_bytes, file_bytes) => (memory_bytes, file_bytes),
                Next::Finished(finished) => return Ok(finished),
                Next::Nothing => continue,
                Next::Abandoned(why) => return Err(Stop::cut(why)),
            };
            let turn = sender.turn(bytes).await?;
            // While this driver waits, the parts are where a thread may move them to a file: it has them now where
            // there are none.
            let Some(mut parts) = self.stream.pending().take() else {
                continue;
            };
            let before = sender.monitor.sent;
            let progress = sender.send(&mut parts, turn).await;
            if sender.monitor.sent > before {
                self.stream.set_progress_at(telemetry::now());
            }
            self.stream.put_back(parts, memory);
            sender.end_turn(progress?).await?;
        }
    }

    /// Waits for parts, or for the end of the response.
    async fn next_pending(&self, sender: &mut ResponseSender<'_>) -> Result<Next, Stop> {
        let next = poll_fn(|context| {
            if self.connection.take_fired() == Some(Woken::Cut) {
                return Poll::Ready(Err(Woken::Cut.stop()));
            }
            self.stream.ownership.watch(context);
            let due = self.due(telemetry::now());
            let mut pending = self.stream.pending();
            if due == Stamp::ZERO && !pending.is_finished() {
                return Poll::Ready(Err(STOP_OVERDUE));
            }
            match pending.next() {
                Next::Nothing => {}
                next => return Poll::Ready(Ok(next)),
            }
            drop(pending);
            if self.connection.transport.has_ended(context) {
                self.stream.client_left();
            }
            // Nothing waits to be sent: it is the application, or a disk, that makes the client wait.
            sender.monitor.hold(self.connection, due);
            Poll::Pending
        });
        let next = self.connection.unless_reset(next).await?;
        // Without effect where it was not held.
        sender.monitor.resume();
        next
    }

    /// Ends an exchange of which everything was sent.
    fn end_sent(&self, finished: Finished, sent_bytes: u64) -> Then {
        self.connection.end_exchange(finished.exchange, sent_bytes);
        if finished.after == After::Keep {
            // Before the stream is taken back: from then on the next exchange may use it.
            self.stream.pending().renew();
        }
        self.conclude(finished.after)
    }

    /// Ends an exchange whose client does not get everything, once the worker is done with it.
    async fn end_unsent(&self, stop: Stop, sent_bytes: u64) -> Then {
        if stop == STOP_OVERDUE && self.stream.is_whole(sent_bytes) {
            return match self.take_over(stop) {
                Ok(finished) => self.end_sent(finished, sent_bytes),
                Err(stop) => self.end_early(stop, sent_bytes),
            };
        }
        // Given up before the reset: a worker that waits for room hears of it at once, and adds nothing more.
        self.connection.count_stop(stop);
        self.abandon();
        self.connection.transport.reset();
        match self.finished().await {
            Ok(mut finished) => {
                finished.exchange.record.end_as(stop.ending, stop.cause);
                self.connection.end_exchange(finished.exchange, sent_bytes);
                Then::Close
            }
            Err(stop) => self.end_early(stop, sent_bytes),
        }
    }

    /// Gives up a response whose client is gone, or whose time is up.
    pub(crate) fn abandon(&self) {
        let driver = &self.connection.driver;
        // Given up before, on our side: it is named.
        let why = self.stream.pending().abandoned();
        if let Some(why) = why {
            if why == stream::MEMORY_FULL {
                driver.stats().timed_out(Timeout::Memory);
            }
            let name = exchange::name(self.admitted.id, self.head.view());
            let text = format!("{name}: the response was cut: {why}");
            driver.shared.log.error(Level::Warning, &text);
        }
        let memory = &driver.shared.replies_memory;
        self.stream.abandon(stream::CLIENT_GONE, memory);
    }

    /// The exchange of an abandoned response, once the worker is done with it. It is given up at the drain deadline,
    /// and when the application's time is up.
    async fn finished(&self) -> Result<Finished, Stop> {
        poll_fn(|context| {
            let fired = self.connection.take_fired();
            self.stream.ownership.watch(context);
            self.connection
                .now_doing(Doing::Sending, self.due(telemetry::now()));
            match self.overtime(fired) {
                Some(stop) => Poll::Ready(self.take_over(stop)),
                None => {
                    let finished = self.stream.pending().take_finished();
                    finished.map_or(Poll::Pending, |finished| Poll::Ready(Ok(finished)))
                }
            }
        })
        .await
    }

    /// The exchange of a response that the driver sends, if its worker is done with it; else it is the driver's to
    /// end from here on, whatever the worker does.
    pub(crate) fn take_over(&self, stop: Stop) -> Result<Finished, Stop> {
        let mut pending = self.stream.pending();
        // Under one lock with `revoke`: a worker that finishes in between would find neither, and two would log the
        // exchange, or none.
        if let Some(finished) = pending.take_finished() {
            return Ok(finished);
        }
        pending.revoke();
        drop(pending);
        if stop == STOP_OVERDUE {
            self.stream.set_overdue();
        }
        Err(stop)
    }

    /// Ends an exchange that its worker still has: with `None` its response is out, and only the stream ends.
    pub(crate) fn end(&self, stop: Option<Stop>, sent_bytes: u64) {
        self.end_with(stop, sent_bytes, |_| {});
    }

    /// As `end`; `complete` adds to the record what its protocol knows.
    pub(crate) fn end_with(
        &self,
        stop: Option<Stop>,
        sent_bytes: u64,
        complete: impl FnOnce(&mut ExchangeRecord),
    ) {
        self.stream.client_left();
        let now = telemetry::now();
        let mut record = self.record_at(now);
        complete(&mut record);
        record.end_at(now);
        record.sent_bytes = sent_bytes;
        // Of a response that has not started, the stream has the numbers of an earlier one.
        if sent_bytes > 0 || stop == Some(STOP_OVERDUE) {
            (record.status, record.head_bytes) = (self.stream.status(), self.stream.head_bytes());
        }
        if let Some(stop) = stop {
            record.end_as(stop.ending, stop.cause);
        }
        if stop == Some(STOP_OVERDUE) {
            self.connection.driver.stats().errors.add();
        }
        self.connection.end(&record, self.head.view());
    }

    /// The response in the place of the application, which is still at it: 504 (RFC 9110 section 15.6.5).
    pub(crate) fn overdue(&self) -> (ReceivedRequest<'_>, Reply) {
        self.stream.set_overdue();
        self.connection.driver.stats().errors.add();
        let mut record = self.record_at(telemetry::now());
        record.end_as(Ending::Timeout, OVERDUE);
        let head = self.head.view();
        let reply = Refusal::because(504, OVERDUE).reply();
        let reply = self.connection.with_error_page(reply);
        (ReceivedRequest { head, record }, reply)
    }

    /// Why an exchange that was woken so is not to be waited for any longer, if that is so.
    fn overtime(&self, fired: Option<Woken>) -> Option<Stop> {
        match fired {
            Some(Woken::Cut) => Some(Woken::Cut.stop()),
            _ if self.due(telemetry::now()) == Stamp::ZERO => Some(STOP_OVERDUE),
            _ => None,
        }
    }

    /// When the time of the application is up: ZERO when it is, NEVER when there is no bound. An exchange that
    /// still waits for a worker has all of its time before it.
    pub(crate) fn due(&self, now: Stamp) -> Stamp {
        let Some(timeout) = self.timeout else {
            return Stamp::NEVER;
        };
        let due = self.started().unwrap_or(now).plus(timeout);
        if due <= now { Stamp::ZERO } else { due }
    }

    /// When a worker took it, if one has.
    fn started(&self) -> Option<Stamp> {
        let started = self.stream.started_at();
        // Until one has, a stream that is used again has the stamp of its last exchange.
        (started >= self.admitted.queued).then_some(started)
    }

    /// The record with the worker that took the exchange, and when. One that no worker has taken waited until now.
    fn record_at(&self, now: Stamp) -> ExchangeRecord {
        let mut record = self.admitted.record();
        let started = self.started();
        record.phases.started = started.unwrap_or(now);
        record.phases.worker = started.and_then(|_| self.stream.worker());
        record
    }
}
