//! One stream: a request from its head to the end of its response, in a task of its own.
//!
//! What a worker gives waits in the stream's pending response, and leaves it a frame at a time, as the client's
//! window allows. Every stream ends in one record.

use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use measure::{Ending, Nanos, Stamp};
use stage::Pace;
use wire::{BodyDecoder, BodyFraming, Cause, HeadStep, HeadView, RequestHead, Version};

use super::{HEADER_BYTES, Inbox, Kind, Mux};
use crate::config::meant::Rate;
use crate::driver::Driver;
use crate::exchange::ownership::{ResponseStarted, Returned, WakePolicy};
use crate::exchange::stream::{Abandoned, Finished, Next, StreamShared};
use crate::exchange::{Body, BodyFile, Exchange, ExchangeRecord};
use crate::handler::files::Given;
use crate::pool::Job;
use crate::protocol::offloaded::{GivenUp, OVERDUE, Offloaded, STOP_OVERDUE};
use crate::protocol::{Stop, Woken};
use crate::rates::Limit;
use crate::recorder::Received;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::response::{Destination, Encoding, Parts, RequestFacts, ResponseHead, Rest};
use crate::service::{self, Backend, Disposition};
use crate::spool::Spooled;
use crate::stats::Timeout;

/// Largest payload of a frame that is sent: other streams have their turn after it.
const FRAME_BYTES_MAX: u64 = 16 << 10;
/// A wait without a deadline.
const LONG: Nanos = Nanos::from_secs(86_400);

/// The task of a stream.
pub(super) struct Stream {
    mux: Rc<Mux>,
    driver: Rc<Driver>,
    number: u16,
    inbox: Rc<Inbox>,
}

/// A response on its way.
struct Sending {
    /// Bytes of the body that the transport took.
    sent: u64,
    pace: Pace,
    limit: Option<Limit>,
}

/// Why a body was not received.
enum NoBody {
    Refused(Refusal),
    Woken(Woken),
}

/// What a wait is to be ended by, beside what it waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hears {
    /// The end of the stream, or of the driver.
    Both,
    /// The end of the driver.
    Driver,
}

impl Stream {
    pub(super) fn new(mux: Rc<Mux>, number: u16, inbox: Rc<Inbox>) -> Self {
        let driver = Rc::clone(&mux.connection.driver);
        Self {
            mux,
            driver,
            number,
            inbox,
        }
    }

    /// Serves the request whose head has come as `text`.
    pub(super) async fn serve(self, text: Vec<u8>, arrived: Stamp) {
        let connection = &self.mux.connection;
        let head = match self.judge(&text) {
            Ok(head) => Arc::new(head),
            Err(refusal) => {
                let mut record = connection.record(None, arrived);
                record.request_bytes = text.len() as u64;
                return self
                    .refuse(record, Received::Beginning(&text), refusal)
                    .await;
            }
        };
        self.driver.stats().received.add();
        let mut record = connection.record(Some(head.view()), arrived);
        record.request_bytes = text.len() as u64;
        let service = &self.driver.shared.service;
        let disposition = service.dispatch(head.view(), &connection.ends);
        record.route = disposition.route;
        match disposition.backend {
            Backend::Pool { pool, class } => {
                (record.pool, record.class) = (Some(pool), class);
                self.receive(head, record, disposition.rewritten).await;
            }
            _ => self.answer(head.view(), record, disposition).await,
        }
    }

    /// The head that a text is.
    fn judge(&self, text: &[u8]) -> Result<RequestHead, Refusal> {
        let mut scratch = self.driver.take_scratch();
        let index = &mut scratch.head;
        let head = match index.parse(text, &mut 0, &self.driver.config().limits) {
            Ok(HeadStep::Complete) if index.bytes == text.len() => {
                Ok(RequestHead::take(HeadView { bytes: text, index }))
            }
            Ok(_) => Err(Refusal::because(400, "the frame is not one head")),
            Err(refusal) => Err(refusal.into()),
        };
        self.driver.put_scratch(scratch);
        head
    }

    /// Answers on the driver.
    async fn answer(
        &self,
        head: HeadView<'_>,
        mut record: ExchangeRecord,
        disposition: Disposition,
    ) {
        let (connection, driver) = (&self.mux.connection, &self.driver);
        let now = measure::now();
        record.begin_inline(now);
        let received = Received::Head(head);
        let reply = match disposition.backend {
            Backend::Refuse(refusal) => return self.refuse(record, received, refusal).await,
            Backend::RespondAsIs(reply) => return self.respond(record, received, reply).await,
            Backend::Respond(reply) => reply,
            Backend::Status => driver.status_page(),
            Backend::Pool { .. } => unreachable!("it has a worker"),
            Backend::Files { mount, rest_from } => {
                let path = service::path(head, disposition.rewritten.as_deref());
                let given = {
                    let mut files = driver.files.borrow_mut();
                    files.ask(mount, head, &path[rest_from..], now)
                };
                match self.file(given, head).await {
                    Some(reply) => reply,
                    None => {
                        return connection.end_unanswered(record, received, Ending::Drained);
                    }
                }
            }
        };
        let reply = connection.with_error_page(reply, Some(head));
        self.respond(record, received, reply).await;
    }

    /// `None` when the driver is to end at once.
    async fn file(&self, given: Given, head: HeadView<'_>) -> Option<Reply> {
        let look = match given {
            Given::Ready(reply) => return Some(reply),
            Given::Stale(reply, look) => {
                self.driver.look_behind(look);
                return Some(reply);
            }
            Given::Look(look) => look,
        };
        let looked = self.driver.wait_for_look(look);
        Some(match self.mux.connection.unless_cut(looked).await? {
            Ok(looked) => self.driver.files.borrow().reply(&looked, head),
            Err(_) => Refusal::because(500, "looking the file up failed").reply(),
        })
    }

    async fn refuse(&self, mut record: ExchangeRecord, received: Received<'_>, refusal: Refusal) {
        self.driver.stats().errors.add();
        record.pool = None;
        record.begin_inline(measure::now());
        record.end_as(Ending::Refused, refusal.cause);
        let connection = &self.mux.connection;
        let reply = connection.with_error_page(refusal.reply(), received.head());
        self.respond(record, received, reply).await;
    }

    /// Sends a response of the server's own, and ends the exchange.
    async fn respond(&self, mut record: ExchangeRecord, received: Received<'_>, reply: Reply) {
        let connection = &self.mux.connection;
        let head = received.head();
        let request = RequestFacts {
            version: Version::Http11,
            is_head: head.is_some_and(|head| head.is_head()),
            keep_alive: true,
            phases: record.phases,
            accepted: None,
        };
        let ended = connection.write(&mut record, head, request, destination(None), reply);
        let mut sending = self.sending(record.route, None);
        if let Rest::Here(mut parts, Some(head)) = ended.rest {
            let sent = self.send_all(&head, &mut parts, &mut sending).await;
            if let Err(stop) = sent {
                self.stop(stop).await;
                record.end_as(stop.ending, stop.cause);
            }
            self.driver.discard(parts);
        }
        record.sent_bytes = sending.sent;
        record.phases.sent = measure::now();
        connection.end(&record, received);
    }

    async fn send_all(
        &self,
        head: &ResponseHead,
        parts: &mut Parts,
        sending: &mut Sending,
    ) -> Result<(), Stop> {
        self.send_head(head).await?;
        while !parts.is_empty() {
            let most = self.allowance(sending, None).await?;
            let data = parts.read(most).map_err(|error| Stop::of_send(&error))?;
            self.send_data(&data, sending).await?;
        }
        self.send_frame(Kind::End, &[]).await
    }

    /// Receives the body of a request, and has a worker answer it.
    async fn receive(
        &self,
        head: Arc<RequestHead>,
        mut record: ExchangeRecord,
        rewritten: Option<Box<[u8]>>,
    ) {
        let connection = &self.mux.connection;
        let received = Received::Head(head.view());
        let ending = match self.body(head.view(), &mut record).await {
            Ok(body) => {
                let head = Arc::clone(&head);
                let exchange = connection.exchange(head, body, record, rewritten);
                return self.offload(exchange).await;
            }
            Err(NoBody::Refused(refusal)) => return self.refuse(record, received, refusal).await,
            Err(NoBody::Woken(Woken::Deadline)) => {
                self.driver.stats().timed_out(Timeout::Body);
                return self.refuse(record, received, Refusal::BODY_SILENT).await;
            }
            Err(NoBody::Woken(Woken::Cut)) => Ending::Drained,
            Err(NoBody::Woken(_)) => Ending::PeerGone,
        };
        connection.end_unanswered(record, received, ending);
    }

    /// Receives a body, into memory up to `readahead` and into a file beyond.
    async fn body(&self, head: HeadView<'_>, record: &mut ExchangeRecord) -> Result<Body, NoBody> {
        let config = self.driver.config();
        BodyDecoder::new(head.index.body, &config.limits)?;
        let mut memory = Vec::new();
        let mut spooled: Option<Spooled> = None;
        let mut bytes = 0;
        let timeouts = &config.timeouts;
        let mut pace = Pace::new(measure::now(), timeouts.body, timeouts.body_rate_min);
        loop {
            let come = self.wait(pace.deadline(), Hears::Both, |_| self.inbox.take_body());
            let (data, is_complete) = come.await.map_err(NoBody::Woken)?;
            pace.advance(data.len() as u64, measure::now());
            bytes += data.len() as u64;
            record.request_bytes += data.len() as u64;
            memory.extend(data);
            if bytes > config.limits.body_bytes_max {
                return Err(wire::Refusal::from(Cause::BodyTooLarge).into());
            }
            let is_due = match &spooled {
                None => memory.len() > config.spool.readahead_bytes,
                Some(_) => is_complete && !memory.is_empty(),
            };
            if is_due {
                let data = std::mem::take(&mut memory);
                let written = self.driver.shared.spoolers.append(spooled.take(), data);
                let written = self.mux.connection.unless_cut(written).await;
                let written = written.ok_or(NoBody::Woken(Woken::Cut))?;
                let connection = &self.mux.connection;
                let fault = |error| NoBody::Refused(connection.spool_fault(record, head, &error));
                let (more, buffer) = written.map_err(fault)?;
                (spooled, memory) = (Some(more), buffer);
            }
            if is_complete {
                break;
            }
        }
        let is_as_said = match head.index.body {
            BodyFraming::None => true,
            BodyFraming::Length(length) => length == bytes,
            BodyFraming::Chunked => false,
        };
        match spooled {
            _ if !is_as_said => {
                let refusal = Refusal::because(400, "the body is not as its head says");
                Err(NoBody::Refused(refusal))
            }
            Some(spooled) => Ok(Body::File {
                file: BodyFile::new(spooled.file, &self.mux.connection.driver.shared.spoolers),
                bytes: spooled.bytes,
            }),
            None if memory.is_empty() => Ok(Body::Empty),
            None => Ok(Body::Memory(memory)),
        }
    }

    /// Hands an exchange to its pool, and sends what comes of it.
    async fn offload(&self, exchange: Box<Exchange>) {
        let pool = self.driver.shared.pool_of(&exchange);
        if let Err(unadmitted) = pool.admit(exchange.record.class) {
            let refusal = Refusal::unadmitted(unadmitted);
            let head = Arc::clone(&exchange.head);
            self.refuse(exchange.record, Received::Head(head.view()), refusal)
                .await;
            return;
        }
        let offloaded = Offloaded::new(&exchange, pool.request_timeout());
        let stream = Arc::new(StreamShared::new());
        let mut job = Some(Job {
            exchange,
            to: destination(Some(Arc::clone(&stream))),
            keep_alive: true,
        });
        poll_fn(|context| {
            if let Some(job) = job.take() {
                stream.ownership.hand_off(WakePolicy::Return, context);
                self.driver.hand_over(job);
            }
            Poll::Ready(())
        })
        .await;
        match self.returned(&offloaded, &stream).await {
            Ok(Returned::Queued) => self.send_pending(&offloaded, &stream).await,
            // The worker has ended the exchange without a response.
            Ok(Returned::Kept | Returned::Closed) => self.stop(Stop::peer_gone()).await,
            Err(GivenUp::Overdue(_)) => self.respond_overdue(&offloaded, &stream).await,
            Err(given_up) => {
                self.mux
                    .connection
                    .end_given_up(&offloaded, &stream, given_up, 0);
            }
        }
    }

    /// Waits for a worker's response to begin.
    async fn returned(
        &self,
        offloaded: &Offloaded,
        stream: &StreamShared,
    ) -> Result<Returned, GivenUp> {
        loop {
            let due = offloaded.due(stream, measure::now());
            let returned = self.wait(due, Hears::Both, |context| {
                match stream.ownership.poll_return(context) {
                    Poll::Ready(returned) => Some(returned),
                    Poll::Pending => None,
                }
            });
            let given_up: fn(ResponseStarted) -> GivenUp = match returned.await {
                Ok(returned) => return Ok(returned),
                Err(Woken::Deadline) if offloaded.due(stream, measure::now()) != Stamp::ZERO => {
                    continue;
                }
                Err(Woken::Deadline) => GivenUp::Overdue,
                Err(Woken::Cut) => GivenUp::Cut,
                Err(_) => GivenUp::ClientGone,
            };
            return match stream.ownership.revoke() {
                Some(started) => Err(given_up(started)),
                // The worker was first.
                None => Ok(poll_fn(|context| stream.ownership.poll_return(context)).await),
            };
        }
    }

    /// Answers in the place of the application, which is still at it.
    async fn respond_overdue(&self, offloaded: &Offloaded, stream: &StreamShared) {
        stream.set_overdue();
        self.driver.stats().errors.add();
        let record = offloaded.overdue_record(stream);
        let reply = Refusal::because(504, OVERDUE).reply();
        let head = offloaded.head.view();
        let reply = self.mux.connection.with_error_page(reply, Some(head));
        self.respond(record, offloaded.received(), reply).await;
    }

    /// Sends what a worker gives, until it has given all.
    async fn send_pending(&self, offloaded: &Offloaded, stream: &Arc<StreamShared>) {
        let (head, rate) = {
            let mut pending = stream.pending();
            (pending.head.take(), pending.rate)
        };
        let mut sending = self.sending(offloaded.record.route, rate);
        match self.send_given(head, offloaded, stream, &mut sending).await {
            Ok(finished) => self.end_sent(finished, stream, &sending).await,
            Err(stop) => self.end_unsent(stop, offloaded, stream, &sending).await,
        }
        self.driver.shared.replies_memory.leave(stream);
    }

    async fn send_given(
        &self,
        head: Option<ResponseHead>,
        offloaded: &Offloaded,
        stream: &StreamShared,
        sending: &mut Sending,
    ) -> Result<Finished, Stop> {
        let head = head.ok_or(Stop::cut("a response without a head"))?;
        self.send_head(&head).await?;
        loop {
            match self.next(offloaded, stream, sending).await? {
                Next::Parts(..) => {}
                Next::Nothing => continue,
                Next::Finished(finished) => return Ok(finished),
                Next::Abandoned(why) => return Err(Stop::cut(why.cause())),
            }
            let most = self.allowance(sending, Some(stream)).await?;
            // While the client is waited for, they are where a thread may move them to a file.
            let Some(mut parts) = stream.pending().take() else {
                continue;
            };
            let data = parts.read(most);
            let unsent = stream.put_back(parts);
            self.driver.shared.replies_memory.discard(unsent);
            let data = data.map_err(|error| Stop::of_send(&error))?;
            self.send_data(&data, sending).await?;
            stream.set_progress_at(measure::now());
        }
    }

    /// Waits for parts, or for the end of the response.
    async fn next(
        &self,
        offloaded: &Offloaded,
        stream: &StreamShared,
        sending: &mut Sending,
    ) -> Result<Next, Stop> {
        let due = offloaded.due(stream, measure::now());
        sending.pace.hold(measure::now());
        let next = self.wait(due, Hears::Both, |context| {
            stream.ownership.watch(context);
            match stream.pending().next() {
                Next::Nothing => None,
                next => Some(next),
            }
        });
        let next = next.await;
        sending.pace.resume(measure::now());
        match next {
            Err(Woken::Deadline) => Err(STOP_OVERDUE),
            next => next.map_err(Woken::stop),
        }
    }

    /// Ends an exchange of which everything was sent but the end.
    async fn end_sent(&self, finished: Finished, stream: &StreamShared, sending: &Sending) {
        let mut exchange = finished.exchange;
        let kind = match exchange.record.ending {
            Ending::Complete | Ending::Refused => Kind::End,
            _ => Kind::Reset,
        };
        if let Err(stop) = self.send_frame(kind, &[]).await {
            exchange.record.end_as(stop.ending, stop.cause);
        }
        self.end_with(exchange, sending);
        let unsent = stream.pending().renew();
        self.driver.shared.replies_memory.discard(unsent);
    }

    /// Ends an exchange whose client does not get everything, once the worker is done with it.
    async fn end_unsent(
        &self,
        stop: Stop,
        offloaded: &Offloaded,
        stream: &StreamShared,
        sending: &Sending,
    ) {
        let connection = &self.mux.connection;
        if stop == STOP_OVERDUE && stream.is_whole(sending.sent) && stream.pending().revoke() {
            stream.set_overdue();
            let _ = self.send_frame(Kind::End, &[]).await;
            return connection.end_answered(offloaded, stream, sending.sent);
        }
        connection.log_abandoned(offloaded, stream);
        let unsent = stream.abandon(Abandoned::ClientGone);
        self.driver.shared.replies_memory.discard(unsent);
        self.stop(stop).await;
        match self.finished(offloaded, stream).await {
            Ok(Finished { mut exchange, .. }) => {
                exchange.record.end_as(stop.ending, stop.cause);
                self.end_with(exchange, sending);
            }
            Err(given_up) => connection.end_given_up(offloaded, stream, given_up, sending.sent),
        }
    }

    fn end_with(&self, mut exchange: Box<Exchange>, sending: &Sending) {
        let connection = &self.mux.connection;
        exchange.record.sent_bytes = sending.sent;
        exchange.record.phases.sent = measure::now();
        connection.end(&exchange.record, Received::Head(exchange.head()));
    }

    /// The exchange, once the worker is done with it.
    async fn finished(
        &self,
        offloaded: &Offloaded,
        stream: &StreamShared,
    ) -> Result<Finished, GivenUp> {
        let due = offloaded.due(stream, measure::now());
        let finished = self.wait(due, Hears::Driver, |context| {
            stream.ownership.watch(context);
            stream.pending().take_finished()
        });
        let given_up = match finished.await {
            Ok(finished) => return Ok(finished),
            Err(Woken::Deadline) => GivenUp::Overdue(ResponseStarted::Yes),
            Err(_) => GivenUp::Cut(ResponseStarted::Yes),
        };
        let mut pending = stream.pending();
        if let Some(finished) = pending.take_finished() {
            return Ok(finished);
        }
        pending.revoke();
        if let GivenUp::Overdue(_) = given_up {
            stream.set_overdue();
        }
        Err(given_up)
    }

    /// Tells the client that no more of the response comes.
    async fn stop(&self, stop: Stop) {
        self.mux.connection.count_stop(stop);
        // A connection that is gone needs no telling.
        let _ = self.send_frame(Kind::Reset, &[]).await;
    }

    fn sending(&self, route: u16, rate: Option<Rate>) -> Sending {
        let timeouts = &self.driver.config().timeouts;
        Sending {
            sent: 0,
            pace: Pace::new(measure::now(), timeouts.send, timeouts.send_rate_min),
            limit: self.driver.shared.rates.limit(None, route, rate),
        }
    }

    /// Bytes that may be sent now; waits for the client's window, and for the response's share of the bandwidth.
    async fn allowance(
        &self,
        sending: &mut Sending,
        stream: Option<&StreamShared>,
    ) -> Result<usize, Stop> {
        let window = self.wait(sending.pace.deadline(), Hears::Both, |context| {
            if let Some(stream) = stream {
                stream.ownership.watch(context);
                if let Some(why) = stream.pending().abandoned() {
                    return Some(Err(Stop::cut(why.cause())));
                }
            }
            Some(Ok(self.inbox.window.get())).filter(|window| *window != Ok(0))
        });
        let window = window.await.map_err(|woken| Stop {
            cause: match woken {
                Woken::Deadline => "the client gave no window",
                _ => "",
            },
            ..woken.stop()
        })??;
        let mut most = window.min(FRAME_BYTES_MAX);
        if let Some(limit) = &mut sending.limit {
            let now = measure::now();
            let (from, bytes) = limit.reserve(most, now);
            sending.pace.hold(now);
            let rest = self.wait(from, Hears::Both, |_| None::<()>);
            match rest.await {
                Ok(()) | Err(Woken::Deadline) => most = bytes.min(most),
                Err(woken) => {
                    limit.give_back(bytes);
                    return Err(woken.stop());
                }
            }
            sending.pace.resume(measure::now());
        }
        Ok(usize::try_from(most).unwrap_or(usize::MAX))
    }

    async fn send_head(&self, head: &ResponseHead) -> Result<(), Stop> {
        let mut payload = head.status.to_be_bytes().to_vec();
        payload.extend_from_slice(head.fields.as_bytes());
        self.send_frame(Kind::Head, &payload).await
    }

    async fn send_data(&self, data: &[u8], sending: &mut Sending) -> Result<(), Stop> {
        let bytes = data.len() as u64;
        self.inbox.window.set(self.inbox.window.get() - bytes);
        self.send_frame(Kind::Data, data).await?;
        sending.sent += bytes;
        sending.pace.advance(bytes, measure::now());
        Ok(())
    }

    /// Sends a frame, behind those of streams that have asked before. One that is begun is sent to its end, or
    /// the connection ends.
    async fn send_frame(&self, kind: Kind, payload: &[u8]) -> Result<(), Stop> {
        let turn = self.mux.turn.acquire().await;
        let _turn = turn.map_err(|_| self.mux.stop())?;
        let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
        frame.extend_from_slice(&self.number.to_be_bytes());
        frame.push(kind as u8);
        frame.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        frame.extend_from_slice(payload);
        let mut left = frame.as_slice();
        while !left.is_empty() {
            let sent = self.mux.connection.transport.send(&[IoSlice::new(left)]);
            let sent = sent.map_err(|error| Stop::of_send(&error));
            let sent = match sent {
                Ok(0) => self.writable().await.map(|()| 0),
                sent => sent,
            };
            let sent = sent.inspect_err(|_| {
                self.mux.connection.transport.reset_on_close();
                self.mux.end(self.mux.over.get().unwrap_or(Woken::Failed));
            })?;
            left = &left[sent..];
        }
        Ok(())
    }

    async fn writable(&self) -> Result<(), Stop> {
        let transport = &self.mux.connection.transport;
        transport.is_full();
        let timeout = self.driver.config().timeouts.send;
        let mut alarm = pin!(sleep_until(measure::now().plus(timeout)));
        poll_fn(|context| {
            self.inbox.watch(context);
            if self.mux.over.get().is_some() {
                return Poll::Ready(Err(self.mux.stop()));
            }
            if let Poll::Ready(ready) = transport.poll_writable(context) {
                return Poll::Ready(ready.map(drop).map_err(|_| Woken::Failed.stop()));
            }
            let late = alarm.as_mut().poll(context);
            late.map(|()| Err(Woken::Deadline.stop()))
        })
        .await
    }

    /// Waits until `look` gives something: it looks whenever a frame has come, a worker has moved or the deadline
    /// has passed.
    async fn wait<T>(
        &self,
        deadline: Stamp,
        hears: Hears,
        mut look: impl FnMut(&mut Context<'_>) -> Option<T>,
    ) -> Result<T, Woken> {
        let mut alarm = pin!(sleep_until(deadline));
        poll_fn(|context| {
            self.inbox.watch(context);
            if let Some(found) = look(context) {
                return Poll::Ready(Ok(found));
            }
            match self.mux.over.get() {
                Some(Woken::Cut) => return Poll::Ready(Err(Woken::Cut)),
                over if over.is_some() || self.inbox.is_reset.get() => {
                    if hears == Hears::Both {
                        return Poll::Ready(Err(Woken::End));
                    }
                }
                _ => {}
            }
            let late = alarm.as_mut().poll(context);
            late.map(|()| Err(Woken::Deadline))
        })
        .await
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.driver.broken.set(true);
            self.driver.changed.notify_one();
        }
        self.mux.leave(self.number);
    }
}

impl From<wire::Refusal> for NoBody {
    fn from(refusal: wire::Refusal) -> Self {
        NoBody::Refused(refusal.into())
    }
}

fn destination(stream: Option<Arc<StreamShared>>) -> Destination {
    Destination {
        stream,
        direct: None,
        is_limited: false,
        encoding: Encoding::Frames,
    }
}

fn sleep_until(deadline: Stamp) -> tokio::time::Sleep {
    let left = deadline.since(measure::now()).0.min(LONG.0);
    tokio::time::sleep(Duration::from_nanos(left))
}
