//! One stream: a request from its decoded head to the end of its response. What is answered on the spot needs no task;
//! all else is a future of its own in the connection's task. Every stream ends in one record.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use files::{Lookup, Reply};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{BodyFraming, BodyState, Cause, HeadIndex, HeadView, RequestHead};
use http_types::{Request, StatusCode};
use telemetry::{Ending, ResetBy, Stamp};

use super::fields;
use super::mux::{EndedHead, StreamMux};
use super::stream_table::StreamSlot;
use super::upload::Upload;
use crate::driver::Driver;
use crate::exchange::stream::StreamShared;
use crate::exchange::{Exchange, ExchangeRecord, Permit};
use crate::guards::Check;
use crate::protocol::body::{IncomingBody, NoBody};
use crate::protocol::streamed::is_streamed;
use crate::protocol::{Begun, CheckVerdict, Look, ReceivedRequest, Stop, Woken};
use crate::refusal::Refusal;
use crate::response::{Destination, Encoding, Parts, ResponseHead, Rest};

/// A stream that is not answered on the spot.
pub(super) type StreamFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The task of a stream.
pub(super) struct StreamTask {
    pub(super) mux: Rc<StreamMux>,
    pub(super) driver: Rc<Driver>,
    pub(super) slot: Rc<StreamSlot>,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) body: Option<RecvStream>,
    /// The body of a request whose application takes it while it arrives.
    pub(super) upload: RefCell<Option<Upload>>,
    /// The place of a forwarded client's request that this driver answers.
    pub(super) permit: Option<Permit>,
}

/// What a stream's wait is to be ended by, beside what it waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupts {
    /// The end of the stream, or of the driver.
    Any,
    /// The end of the driver.
    DriverEnd,
}

impl StreamTask {
    /// Takes a request up; gives what is left to do.
    pub(super) fn begin(
        mux: &Rc<StreamMux>,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        now: Stamp,
    ) -> Option<StreamFuture> {
        let driver = Rc::clone(&mux.connection.driver);
        let number = respond.stream_id().as_u32();
        let slot = mux.open(number, fields::priority(&request));
        // A reset that came in one read with the request has passed before the slot was there.
        let polled = respond.poll_reset(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Ok(reason)) = polled {
            slot.note_reset(ResetBy::Client, reason.into());
        }
        let body = match request.body().is_end_stream() {
            true => BodyState::Ended,
            false => BodyState::Open,
        };
        let mut scratch = driver.take_scratch();
        let mut block = mux.take_block();
        let limits = &driver.config().limits;
        let judged = fields::judge(&request, body, limits, &mut scratch.head, &mut block);
        let line = judged
            .err()
            .map(|refusal| (refusal, fields::request_line(&request)));
        let task = Self {
            mux: Rc::clone(mux),
            driver: Rc::clone(&driver),
            slot: Rc::clone(&slot),
            respond,
            body: (body == BodyState::Open).then(|| request.into_body()),
            upload: RefCell::new(None),
            permit: None,
        };
        let rest = match line {
            None => task.begin_judged(&block, &scratch.head, now),
            Some((refusal, line)) => task.refuse_beginning(&line, refusal, now),
        };
        mux.put_block(block);
        driver.put_scratch(scratch);
        if rest.is_some() {
            mux.enter(slot);
        }
        rest
    }

    fn begin_judged(self, bytes: &[u8], index: &HeadIndex, now: Stamp) -> Option<StreamFuture> {
        let mux = Rc::clone(&self.mux);
        let connection = &mux.connection;
        self.driver.stats().received.add();
        let mut request = connection.request(HeadView { bytes, index }, now);
        request.record.stream.number = self.slot.number;
        self.begin_request(request, Look::First, now)
    }

    fn begin_request(
        mut self,
        mut request: ReceivedRequest<'_>,
        look: Look,
        now: Stamp,
    ) -> Option<StreamFuture> {
        let mux = Rc::clone(&self.mux);
        let connection = &mux.connection;
        let index = request.head.index;
        connection.permit.set(self.permit.take());
        let mut begun = connection.begin(&mut request, look, now);
        // The connection's own place is for one request at a time.
        self.permit = connection.permit.take();
        if index.is_websocket && !self.takes_websocket(&begun) {
            // RFC 8441 section 4: a response of 2xx would accept it.
            begun = Begun::Respond(connection.refuse(&mut request, Refusal::NO_WEBSOCKET));
        }
        match begun {
            Begun::Offload(exchange) if index.is_websocket => Some(Box::pin(async move {
                self.enter().await;
                self.offload(exchange).await;
            })),
            Begun::Offload(exchange) => Some(Box::pin(self.receive(exchange))),
            Begun::Respond(reply) => self.respond_now(request, reply, None),
            Begun::LookUp(lookup) => {
                let head = RequestHead::take(request.head);
                Some(Box::pin(self.look_up(head, request.record, lookup)))
            }
            Begun::Authenticate(check) => {
                let head = RequestHead::take(request.head);
                Some(Box::pin(self.authenticate(head, request.record, check)))
            }
        }
    }

    /// Whether what becomes of a request may be the answer to a WebSocket handshake.
    fn takes_websocket(&self, begun: &Begun) -> bool {
        match begun {
            Begun::Offload(exchange) => self.driver.pool_of(exchange).takes_websockets(),
            Begun::Respond(reply) => reply.status >= 300,
            Begun::LookUp(_) => false,
            // What it may be is known when it begins again.
            Begun::Authenticate(_) => true,
        }
    }

    /// Refuses a request whose head is not acceptable.
    fn refuse_beginning(
        self,
        line: &[u8],
        refusal: http::Refusal,
        now: Stamp,
    ) -> Option<StreamFuture> {
        let mux = Rc::clone(&self.mux);
        let index = &HeadIndex::of_beginning(line.len());
        let head = HeadView { bytes: line, index };
        let mut request = mux.connection.request(head, now);
        request.record.stream.number = self.slot.number;
        let reply = mux.connection.refuse(&mut request, refusal.into());
        self.respond_now(request, reply, reset_after(refusal.status))
    }

    /// Answers with a response of the server's own; gives what cannot be sent on the spot. `reset`: the stream ends by
    /// it, because the request is malformed (RFC 9113 section 8.1.1).
    fn respond_now(
        mut self,
        mut request: ReceivedRequest<'_>,
        reply: Reply,
        reset: Option<Reason>,
    ) -> Option<StreamFuture> {
        let (head, mut parts) = self.write(&mut request, reply);
        let ReceivedRequest { head: view, record } = request;
        let is_whole = parts.is_empty() && reset.is_none();
        let Ok(mut sending) = self.send_head(&head, record.route, None, is_whole) else {
            self.driver.shared.replies_memory.discard(parts);
            let mut request = ReceivedRequest { head: view, record };
            request.record.end_as(Ending::PeerGone, "");
            self.mux.connection.end(&request.record, request.head);
            return None;
        };
        let owned = Box::new(RequestHead::take(view));
        let end = reset.is_none();
        if is_whole || (end && sending.send_at_once(&self, &mut parts)) {
            sending.end(&mut self, record, EndedHead::Head(owned));
            let body = self.body.take()?;
            return Some(Box::pin(async move { self.discard(body).await }));
        }
        Some(Box::pin(async move {
            self.enter().await;
            self.send_rest(sending, parts, record, owned, reset).await;
            if let Some(body) = self.body.take() {
                self.discard(body).await;
            }
        }))
    }

    /// Throws away what still comes of a body that nobody reads, for a while and within the window that it has: a body
    /// that ends by then needs no reset, and one that is not as its head says is still found. Behind it, the crate
    /// resets the stream by NO_ERROR (RFC 9113 section 8.1).
    async fn discard(&self, mut body: RecvStream) {
        self.enter().await;
        let until = telemetry::now().plus(self.driver.config().timeouts.linger);
        loop {
            let look = |context: &mut Context<'_>| data_of(&mut body, context);
            match self.wait(until, Interrupts::Any, look).await {
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(_)) | None) | Err(_) => return,
            }
        }
    }

    /// The response with a file, once a thread that may wait for its storage has looked it up.
    async fn look_up(mut self, head: RequestHead, record: ExchangeRecord, lookup: Box<Lookup>) {
        self.enter().await;
        let mux = Rc::clone(&self.mux);
        let reply = mux.connection.look_up(lookup, head.view()).await;
        let request = ReceivedRequest {
            head: head.view(),
            record,
        };
        match reply {
            Ok(reply) => self.respond(request, reply, None).await,
            Err(stop) => mux.connection.end_unanswered(request, stop.ending),
        }
    }

    /// Begins a request that may pass once that is known, and refuses any other.
    async fn authenticate(
        mut self,
        head: RequestHead,
        mut record: ExchangeRecord,
        check: Box<Check>,
    ) {
        self.enter().await;
        let mux = Rc::clone(&self.mux);
        let checked = mux
            .connection
            .authenticate(*check, head.view(), &mut record);
        let checked = checked.await;
        let mut request = ReceivedRequest {
            head: head.view(),
            record,
        };
        match checked {
            Ok(CheckVerdict::Pass(look, other)) => {
                request.head = other.as_ref().map_or(request.head, RequestHead::view);
                let rest = self.begin_request(request, look, telemetry::now());
                if let Some(rest) = rest {
                    rest.await;
                }
            }
            Ok(CheckVerdict::Refuse(refusal)) => self.refuse(request, refusal).await,
            Ok(CheckVerdict::Deny(denial)) => {
                let reply = mux.connection.deny(&mut request, denial);
                self.respond(request, reply, None).await;
            }
            Err(stop) => mux.connection.end_unanswered(request, stop.ending),
        }
    }

    pub(super) async fn refuse(&mut self, mut request: ReceivedRequest<'_>, refusal: Refusal) {
        let reply = self.mux.connection.refuse(&mut request, refusal);
        let reset = reset_after(refusal.status);
        self.respond(request, reply, reset).await;
    }

    /// Sends a response of the server's own, and ends the exchange.
    pub(super) async fn respond(
        &mut self,
        mut request: ReceivedRequest<'_>,
        reply: Reply,
        reset: Option<Reason>,
    ) {
        let (head, parts) = self.write(&mut request, reply);
        let ReceivedRequest { head: view, record } = request;
        let is_whole = parts.is_empty() && reset.is_none();
        let owned = Box::new(RequestHead::take(view));
        match self.send_head(&head, record.route, None, is_whole) {
            Ok(sending) if is_whole => {
                sending.end(self, record, EndedHead::Head(owned));
            }
            Ok(sending) => self.send_rest(sending, parts, record, owned, reset).await,
            Err(stop) => {
                self.driver.shared.replies_memory.discard(parts);
                let mut record = record;
                record.end_as(stop.ending, stop.cause);
                self.mux.connection.end(&record, owned.view());
            }
        }
    }

    fn write(&self, request: &mut ReceivedRequest<'_>, reply: Reply) -> (ResponseHead, Parts) {
        let connection = &self.mux.connection;
        let ended = connection.write(request, destination(None), reply, telemetry::now());
        match ended.rest {
            Rest::Here(parts, Some(head)) => (head, parts),
            // A response that is not HTTP/1's stays in this driver's hand, head and all.
            _ => unreachable!("a driver's response has left without its protocol"),
        }
    }

    /// Receives the body of a request, and has a worker answer it.
    async fn receive(mut self, exchange: Box<Exchange>) {
        self.enter().await;
        let mux = Rc::clone(&self.mux);
        if is_streamed(&self.driver, &exchange) {
            return self.offload(exchange).await;
        }
        let Some(mut body) = self.body.take() else {
            return self.offload(exchange).await;
        };
        // The exchange is gone where its length alone is refused.
        let (head, record) = (Arc::clone(&exchange.head), exchange.record);
        let mut incoming = match IncomingBody::new(exchange, &self.driver) {
            Ok(incoming) => incoming,
            Err(refusal) => {
                let head = head.view();
                return self
                    .refuse(ReceivedRequest { head, record }, refusal.into())
                    .await;
            }
        };
        let received = self.receive_body(&mut incoming, &mut body).await;
        // From here on the crate throws away what still comes.
        drop(body);
        let exchange = incoming.finish(&self.driver);
        match received {
            Ok(()) => self.offload(exchange).await,
            Err(NoBody::Refused(refusal)) => self.refuse((&*exchange).into(), refusal).await,
            Err(NoBody::Ended(ending)) => {
                mux.connection.end_unanswered((&*exchange).into(), ending);
            }
        }
    }

    /// Receives a body, into memory up to `body_memory_max` and into a file beyond. The client may send as much more as
    /// was stored.
    async fn receive_body(
        &mut self,
        incoming: &mut IncomingBody,
        body: &mut RecvStream,
    ) -> Result<(), NoBody> {
        let mux = Rc::clone(&self.mux);
        let route = incoming.exchange.record.route;
        let bytes_max = self.driver.body_limits(route).body_bytes_max;
        let mut bytes = 0;
        let mut ready = self.invite(incoming, body).await;
        loop {
            let deadline = incoming.pace.deadline();
            let come = match ready.take() {
                Some(come) => Ok(come),
                None => {
                    let look = |context: &mut Context<'_>| data_of(body, context);
                    self.wait(deadline, Interrupts::Any, look).await
                }
            };
            let data = match come {
                Ok(None) => break,
                Ok(Some(Ok(data))) => data,
                Ok(Some(Err(_))) => return Err(Woken::End.stop().into()),
                Err(woken) => return Err(incoming.no_body(&mux.connection, woken)),
            };
            incoming.push(&data);
            bytes += data.len() as u64;
            if bytes > bytes_max {
                return Err(http::Refusal::from(Cause::BodyTooLarge).into());
            }
            incoming
                .spool(&mux.connection, body.is_end_stream())
                .await?;
            // Credit for what is stored: a spool that is slow holds its own streams back, not the connection.
            let _ = body.flow_control().release_capacity(data.len());
            mux.note_upload(bytes);
        }
        self.receive_trailers(body).await?;
        incoming.spool(&mux.connection, true).await?;
        match incoming.exchange.head().index.body {
            BodyFraming::Length(length) if length != bytes => {
                Err(http::Refusal::from(Cause::LengthDiffers).into())
            }
            _ => Ok(()),
        }
    }

    /// Invites the client to send its body, if it waits for that and none of it has come (RFC 9110 section 15.2.1).
    /// Gives what has come.
    async fn invite(&mut self, incoming: &IncomingBody, body: &mut RecvStream) -> Option<Received> {
        let ready = poll_fn(|context| Poll::Ready(data_of(body, context))).await;
        if ready.is_none() && incoming.exchange.head().index.expect_continue {
            self.send_invitation();
        }
        ready
    }

    /// Tells the client that it may send its body.
    pub(super) fn send_invitation(&mut self) {
        // A stream that cannot have it is gone, which the next wait finds.
        let _ = self
            .respond
            .send_informational(fields::interim(StatusCode::CONTINUE));
        self.mux.has_moved();
    }

    /// Trailer fields are accepted within bounds, and not kept: no application asks for them.
    async fn receive_trailers(&self, body: &mut RecvStream) -> Result<(), NoBody> {
        let trailers = self.wait(Stamp::NEVER, Interrupts::Any, |context| {
            match body.poll_trailers(context) {
                Poll::Ready(trailers) => Some(trailers),
                Poll::Pending => None,
            }
        });
        match trailers.await {
            Ok(Ok(Some(map))) => {
                let limits = &self.driver.config().limits;
                http::check_trailers(fields::pairs(&map), limits)?;
                Ok(())
            }
            Ok(Ok(None)) => Ok(()),
            Ok(Err(_)) => Err(Woken::End.stop().into()),
            Err(woken) => Err(woken.stop().into()),
        }
    }

    /// Ends a response whose client does not get all of it.
    pub(super) fn stop(&mut self, stop: Stop, reason: Reason) {
        self.mux.connection.count_stop(stop);
        self.respond.send_reset(reason);
        self.mux.has_moved();
    }

    /// Lets others wake this task.
    pub(super) async fn enter(&self) {
        poll_fn(|context| {
            self.slot.watch(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until `look` gives something: it looks whenever the task is woken, and at the deadline at the latest.
    pub(super) async fn wait<T>(
        &self,
        deadline: Stamp,
        interrupts: Interrupts,
        mut look: impl FnMut(&mut Context<'_>) -> Option<T>,
    ) -> Result<T, Woken> {
        let waited = poll_fn(|context| {
            self.receive_streamed(context);
            if let Some(found) = look(context) {
                return Poll::Ready(Ok(found));
            }
            let over = self.mux.over();
            let is_gone = over.is_some() || self.slot.is_reset();
            match over {
                Some(Woken::Cut) => return Poll::Ready(Err(Woken::Cut)),
                _ if is_gone && interrupts == Interrupts::Any => {
                    return Poll::Ready(Err(Woken::End));
                }
                _ => {}
            }
            // It may have been the deadline of a body.
            let is_due = self.slot.is_due.take() && deadline <= telemetry::now();
            if deadline == Stamp::ZERO || is_due {
                return Poll::Ready(Err(Woken::Deadline));
            }
            self.slot.deadline.set(deadline.min(self.upload_deadline()));
            Poll::Pending
        });
        let waited = waited.await;
        self.slot.deadline.set(Stamp::NEVER);
        self.slot.is_due.set(false);
        waited
    }
}

impl Drop for StreamTask {
    fn drop(&mut self) {
        self.break_upload();
        self.mux.leave(self.slot.number);
    }
}

/// A piece of a body, or its end.
pub(super) type Received = Option<Result<Bytes, h2::Error>>;

pub(super) fn data_of(body: &mut RecvStream, context: &mut Context<'_>) -> Option<Received> {
    match body.poll_data(context) {
        Poll::Ready(come) => Some(come),
        Poll::Pending => None,
    }
}

/// The way of a response, which no worker has a socket for.
pub(super) fn destination(stream: Option<Arc<StreamShared>>) -> Destination {
    Destination {
        stream,
        direct: None,
        is_limited: false,
        keep_alive: true,
        encoding: Encoding::Frames,
    }
}

/// A malformed request is an error of its stream, whatever it was answered with.
fn reset_after(status: u16) -> Option<Reason> {
    (status == 400).then_some(Reason::PROTOCOL_ERROR)
}
