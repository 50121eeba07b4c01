//! HTTP/1: one request at a time on a connection, from its first byte to the last of its response.
//!
//! ```text
//!            ┌────────────────────────────── next request ──────────────────────────────┐
//!            ▼                                                                          │
//! accept ─► Receive ── complete, answered here, taken by the socket ────────────────────┤
//!            ├─ complete, answered here, socket full ─► Send ───────────────────────────┤
//!            ├─ complete, for a file that must be looked up ─► Lookup ─► Send ──────────┤
//!            ├─ head complete, body to come ─► Body ─┐                                  │
//!            ├─ complete, for a pool ────────────────┴► Pool ── response out ───────────┤
//!            │                                           └── socket full ─► queued ─────┘
//!            ├─ refused ─► Send ─► Linger ─► end
//!            └─ idle too long, client gone, drained ─► end
//! ```
//!
//! Takes heads from the transport, or from what a pipelining client sent ahead; what a complete head leads to, and
//! the time between two requests, are decided here. Bodies are received by `body`, responses sent by `send`, and
//! `offloaded` waits for workers.

use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use files::{Lookup, Part, Reply};
use http::{BodyFraming, HeadIndex, HeadStep, HeadView, RequestHead};
use queueing::FIRST_BYTE_GRACE;
use telemetry::{Ending, Nanos, Stamp};

use super::body::{IncomingBody, NoBody};
use super::h2;
use super::offloaded::{Interrupted, Offloaded, StillOpen};
use super::proxied::NoProxyHeader;
use super::send::{ResponseSender, SendMonitor};
use super::streamed::{StreamedBody, is_streamed};
use super::tunnel;
use super::websocket::UpgradedConnection;
use super::{Begun, CheckVerdict, Connection, Look, ReceivedRequest, Stop, Then, Woken};
use crate::driver::handoff::Opened;
use crate::driver::{Driver, Scratch, ServingState};
use crate::exchange::ownership::WakePolicy;
use crate::exchange::stream::{After, StreamShared};
use crate::exchange::{BodyStream, Exchange, ExchangeRecord};
use crate::guards::Check;
use crate::pool::Job;
use crate::refusal::Refusal;
use crate::response::{Destination, Encoding, Parts, Rest};
use crate::transport::Transport;
use config::typed::Rate;
use telemetry::counters::{Doing, Timeout};

/// Requests of one client that are answered in one turn before the other connections get theirs.
const REQUESTS_A_TURN: usize = 32;
/// After so long without a request the kernel is asked whether the client has taken the last response.
const IDLE_LOOK: Nanos = Nanos(1_000_000_000);
/// A connection that speaks HTTP/1.
pub(crate) struct H1 {
    connection: Connection,
    stream: Arc<StreamShared>,
    /// Received and not yet used; empty and without memory while the connection is idle.
    buffer: Vec<u8>,
    /// Bytes of `buffer` that hold no end of a head.
    searched: usize,
    /// When the exchange that is being received arrived; the accept for the first one.
    arrived: Stamp,
    /// Requests received so far.
    received: u64,
    /// The last response, as long as the client has not taken all that the kernel has of it.
    stalled: Option<Box<SendMonitor>>,
}

/// What comes next. Large ones are boxed: an idle connection is as small as this type.
enum Step {
    /// Let the other connections have their turn, then receive.
    Pause,
    Body(Box<IncomingBody>),
    /// Its application takes the body while it arrives.
    Streamed(Box<Exchange>),
    Pool(Box<Exchange>),
    LookUp(Box<Unfinished<Box<Lookup>>>),
    Authenticate(Box<Unfinished<Box<Check>>>),
    Send(Box<Unfinished<Parts>>),
    Then(Then),
    /// The client speaks HTTP/2.
    Http2,
}

/// A request that is not answered on the spot: its file has to be looked up, its password checked, or the socket has not taken all parts of
/// its response.
struct Unfinished<T> {
    rest: T,
    head: RequestHead,
    record: ExchangeRecord,
    then: Then,
}

impl<T> Unfinished<T> {
    fn new(request: &ReceivedRequest<'_>, rest: T, then: Then) -> Box<Self> {
        Box::new(Self {
            rest,
            head: RequestHead::take(request.head),
            record: request.record,
            then,
        })
    }
}

impl H1 {
    pub(crate) fn open(driver: Rc<Driver>, transport: Transport, opened: Opened) -> Self {
        let arrived = opened.accepted;
        let stream = Arc::new(StreamShared::default());
        let shared = Some(Arc::clone(&stream));
        Self {
            connection: Connection::open(driver, transport, opened, shared),
            stream,
            buffer: Vec::new(),
            searched: 0,
            arrived,
            received: 0,
            stalled: None,
        }
    }

    /// Serves the connection to its end.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps a second place for what it takes by value"
    )]
    pub(crate) fn serve(mut self) -> impl Future<Output = ()> {
        async move {
            self.connection.enter_task().await;
            let Some(arrived) = self.connection.establish().await else {
                return;
            };
            self.arrived = arrived;
            let mut step = Step::Then(Then::Receive);
            loop {
                step = match step {
                    Step::Then(Then::Receive) => self.receive_head().await,
                    Step::Pause => {
                        // To the end of the run queue: a client that pipelines must not keep the others waiting.
                        tokio::task::yield_now().await;
                        Step::Then(Then::Receive)
                    }
                    // A task is as large as its largest step, however long it idles: the rare ones live
                    // outside of it.
                    Step::Body(incoming) => Box::pin(self.receive_body(incoming)).await,
                    Step::Streamed(exchange) => Box::pin(self.offload_streamed(exchange)).await,
                    Step::Pool(exchange) => self.offload(exchange).await,
                    Step::LookUp(lookup) => Box::pin(self.look_up(lookup)).await,
                    Step::Authenticate(check) => Box::pin(self.authenticate(check)).await,
                    Step::Send(sending) => Box::pin(self.send_rest(sending)).await,
                    Step::Then(Then::Leave) if !self.has_unread() => return,
                    Step::Then(Then::Leave | Then::Linger) => {
                        self.buffer = Vec::new();
                        return Box::pin(self.connection.linger()).await;
                    }
                    Step::Then(Then::Close) => return,
                    Step::Http2 => return Box::pin(h2::serve(self.connection, self.buffer)).await,
                }
            }
        }
    }

    /// Receives until there is something to do that is not done on the spot.
    async fn receive_head(&mut self) -> Step {
        let mut step = Step::Then(Then::Receive);
        if !self.buffer.is_empty() {
            let scratch = self.connection.driver.take_scratch();
            // What came behind the last request may be the next one whole; the client would wait for its response,
            // and send nothing that wakes this task.
            step = self.use_input(scratch, 0);
        }
        if let Step::Then(Then::Receive) = step {
            self.wait_for_head();
            // The state may have changed while the last exchange was under way.
            if self.connection.driver.state.get() >= ServingState::Draining {
                step = self.no_bytes(Woken::Draining);
            }
        }
        while let Step::Then(Then::Receive) = step {
            step = match self.connection.read().await {
                Ok((scratch, bytes)) => self.receive_bytes(scratch, bytes),
                Err(woken) => self.no_bytes(woken),
            };
        }
        step
    }

    /// Uses `bytes` bytes in the scratch buffer; sets the deadline for what is missing, unless it has one: more
    /// of the same head does not renew it, nor does an empty line before a head.
    fn receive_bytes(&mut self, scratch: Box<Scratch>, bytes: usize) -> Step {
        let before = self.progress();
        let step = self.use_input(scratch, bytes);
        // A head that comes byte by byte keeps its first deadline (Slowloris).
        if matches!(step, Step::Then(Then::Receive)) && self.progress() != before {
            self.wait_for_head();
        }
        step
    }

    /// Sets the deadline for the next head: from its first byte if there is one, else the idle time. The
    /// first head's runs from the accept on.
    fn wait_for_head(&mut self) {
        self.stalled = None;
        let driver = &self.connection.driver;
        let timeouts = &driver.config().timeouts;
        if self.has_begun() {
            driver.stats().partial.add();
            // What came with the last request may have waited for its response.
            let since = match self.received {
                0 => self.arrived,
                _ => telemetry::now(),
            };
            let connection = &self.connection;
            connection.now_doing(Doing::Reading, since.plus(timeouts.head));
        } else if self.received > 0 {
            let since = match self.connection.last_sent.take() {
                Stamp::ZERO => telemetry::now(),
                since => since,
            };
            // After a while, a look whether the client has taken the last response.
            let look = timeouts.idle.min(IDLE_LOOK);
            self.connection.now_idle(since, since.plus(look));
        }
    }

    /// Heads received, and whether another one has begun.
    fn progress(&self) -> (u64, bool) {
        (self.received, self.has_begun())
    }

    /// Whether bytes of a head are there. An empty line before it is not its beginning (RFC 9112 section
    /// 2.2).
    fn has_begun(&self) -> bool {
        let mut bytes = self.buffer.iter();
        bytes.any(|byte| !matches!(byte, b'\r' | b'\n'))
    }

    /// What to do when no bytes came.
    fn no_bytes(&mut self, woken: Woken) -> Step {
        let driver = &self.connection.driver;
        match (self.has_begun(), woken) {
            // A request that has begun is answered; its own deadline bounds the wait.
            (true, Woken::Draining | Woken::Crowded) => Step::Then(Then::Receive),
            (true, Woken::Deadline) => {
                driver.stats().timed_out(Timeout::Head);
                self.refuse_beginning(&self.buffer, Refusal::HEAD_TIMEOUT, Then::Linger)
            }
            (true, Woken::Cut | Woken::End | Woken::Failed) => {
                let index = &HeadIndex::of_beginning(self.buffer.len());
                let bytes = &self.buffer;
                let head = HeadView { bytes, index };
                let request = self.connection.request(head, self.arrived);
                self.connection.end_unanswered(request, woken.stop().ending);
                Step::Then(Then::Close)
            }
            (false, Woken::Draining | Woken::Deadline | Woken::Crowded) => {
                self.no_first_byte(woken)
            }
            (false, Woken::Cut | Woken::End) => Step::Then(Then::Close),
            (false, Woken::Failed) => {
                driver.stats().errors.add();
                Step::Then(Then::Close)
            }
        }
    }

    fn no_first_byte(&mut self, woken: Woken) -> Step {
        // What came at the last moment is served.
        let before = self.progress();
        let mut scratch = self.connection.driver.take_scratch();
        if let Some(bytes) = self.connection.transport.read_now(&mut scratch.input) {
            let step = self.receive_bytes(scratch, bytes);
            if !matches!(step, Step::Then(Then::Receive)) || self.progress() != before {
                return step;
            }
        } else {
            self.connection.driver.put_scratch(scratch);
        }
        let connection = &self.connection;
        let driver = &connection.driver;
        let (is_idle, since) = driver.table.borrow_mut().idle_since(connection.slot);
        let now = telemetry::now();
        let idle = driver.config().timeouts.idle;
        // A deadline that has passed hides the wake-up of a driver that drains, which comes only once.
        let drains = driver.state.get() >= ServingState::Draining && self.received > 0;
        let timeout = match woken {
            Woken::Deadline if drains => return Step::Then(Then::Close),
            // A connection that never sent anything gets a moment.
            Woken::Draining if self.received == 0 => {
                connection.now_doing(Doing::Idle, now.plus(FIRST_BYTE_GRACE));
                return Step::Then(Then::Receive);
            }
            Woken::Draining => return Step::Then(Then::Close),
            Woken::Crowded => Timeout::Crowded,
            _ if self.received == 0 => Timeout::Head,
            _ if is_idle && since.plus(idle) <= now => Timeout::Idle,
            _ => return self.look_at_response(is_idle, since, now),
        };
        driver.stats().timed_out(timeout);
        match (timeout, self.received) {
            // It is not waited for: its request may be under way, but nothing here would read it.
            (Timeout::Crowded, 0) => self.refuse_beginning(b"", Refusal::CROWDED, Then::Leave),
            _ => Step::Then(Then::Close),
        }
    }

    /// A look at a connection on which nothing comes: whether its client still takes the last response.
    fn look_at_response(&mut self, is_idle: bool, since: Stamp, now: Stamp) -> Step {
        let connection = &self.connection;
        let timeouts = &connection.driver.config().timeouts;
        let mut stalled = self.stalled.take().unwrap_or_else(|| {
            // What the client took before this first look is not known: it has half of the time to show.
            let latest = Stamp(now.0.saturating_sub(timeouts.send.0 / 2));
            Box::new(SendMonitor::new(connection, since.max(latest)))
        });
        match stalled.check(&connection.transport, now) {
            Ok(_) if stalled.is_out() => {
                let since = if is_idle { since } else { now };
                connection.now_idle(since, since.plus(timeouts.idle));
            }
            Ok(next) => {
                connection.now_doing(Doing::Sending, next);
                self.stalled = Some(stalled);
            }
            Err(stop) => {
                connection.abort(stop);
                return Step::Then(Then::Close);
            }
        }
        Step::Then(Then::Receive)
    }

    /// Uses what is in the connection's own buffer and, behind it, `bytes` bytes in the scratch buffer; keeps what
    /// is left over.
    fn use_input(&mut self, mut scratch: Box<Scratch>, bytes: usize) -> Step {
        let now = telemetry::now();
        let driver = Rc::clone(&self.connection.driver);
        // Many connections with input keep this thread from its sleep, before which it hands exchanges over.
        driver.flush_due(now);
        let Scratch { input, head } = &mut *scratch;
        let input = &input[..bytes];
        // An empty line that came behind the last request is not the beginning of this one.
        if self.received > 0 && !self.has_begun() {
            self.arrived = now;
        }
        let step = if self.buffer.is_empty() {
            let (used, step) = self.advance(input, head, now);
            self.buffer.extend_from_slice(&input[used..]);
            step
        } else {
            // Out of `self` for the step, which borrows `self`; a buffer that is used up is dropped here, because
            // an idle connection owns none.
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.extend_from_slice(input);
            let (used, step) = self.advance(&buffer, head, now);
            if used < buffer.len() {
                buffer.drain(..used);
                self.buffer = buffer;
            }
            step
        };
        driver.put_scratch(scratch);
        step
    }

    /// Takes complete heads from `input` and does what is done on the spot; gives the bytes used.
    fn advance(&mut self, input: &[u8], head: &mut HeadIndex, now: Stamp) -> (usize, Step) {
        let mut used = match self.connection.take_proxy_header(input) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return (0, Step::Then(Then::Receive)),
            Err(NoProxyHeader { refusal: None }) => return (input.len(), Step::Then(Then::Close)),
            Err(NoProxyHeader {
                refusal: Some(refusal),
            }) => {
                return (
                    input.len(),
                    self.refuse_beginning(b"", refusal, Then::Linger),
                );
            }
        };
        for _ in 0..REQUESTS_A_TURN {
            let rest = &input[used..];
            if rest.is_empty() {
                return (used, Step::Then(Then::Receive));
            }
            let driver = &self.connection.driver;
            match head.parse(rest, &mut self.searched, &driver.config().limits) {
                Ok(HeadStep::Complete) => {}
                Ok(HeadStep::Partial) => return (used, Step::Then(Then::Receive)),
                // The first line of HTTP/2 is none of HTTP/1: only what would be refused is looked at.
                Err(_) if self.received == 0 && h2::begins(rest) && driver.config().http2.is_on => {
                    return (used, Step::Http2);
                }
                Err(refusal) => {
                    self.connection.tell_of_proxy_header(rest);
                    // All input counts as used: nothing behind a head that is refused may be read as a request (RFC
                    // 9112 section 11.2, request smuggling).
                    return (
                        input.len(),
                        match self.connection.is_tls(rest) {
                            true => Step::Then(Then::Close),
                            false => self.refuse_beginning(rest, refusal.into(), Then::Linger),
                        },
                    );
                }
            }
            // Counted before it is taken up: a request that costs the process shows as one without an end.
            // The next head begins here, whatever the search for the end of this one has seen.
            self.searched = 0;
            self.received += 1;
            driver.stats().received.add();
            used += head.bytes;
            let view = HeadView {
                bytes: &rest[..head.bytes],
                index: head,
            };
            let step = self.begin(view, now);
            self.arrived = now;
            if !matches!(step, Step::Then(Then::Receive)) {
                return (used, step);
            }
        }
        (used, Step::Pause)
    }

    /// Begins an exchange whose head is complete.
    #[inline(always)]
    fn begin(&mut self, head: HeadView<'_>, now: Stamp) -> Step {
        let request = self.connection.request(head, self.arrived);
        self.begin_request(request, Look::First, now)
    }

    #[inline(always)]
    fn begin_request(&self, mut request: ReceivedRequest<'_>, look: Look, now: Stamp) -> Step {
        let begun = self.connection.begin(&mut request, look, now);
        let head = request.head;
        let has_body = !matches!(head.index.body, BodyFraming::None | BodyFraming::Length(0));
        let then = match request.record.ending {
            Ending::Complete if !has_body => Then::Receive,
            // Its body will not be read: those bytes must not be taken for a request (RFC 9112 section 9.3).
            _ => Then::Linger,
        };
        match begun {
            Begun::Offload(exchange) if !has_body => Step::Pool(exchange),
            Begun::Offload(exchange) if is_streamed(&self.connection.driver, &exchange) => {
                Step::Streamed(exchange)
            }
            Begun::Offload(exchange) => {
                match IncomingBody::new(exchange, &self.connection.driver) {
                    Ok(incoming) => Step::Body(Box::new(incoming)),
                    Err(refusal) => self.refuse(&mut request, refusal.into(), Then::Linger),
                }
            }
            Begun::Respond(reply) => self.respond(&mut request, reply, then, now),
            Begun::LookUp(lookup) => Step::LookUp(Unfinished::new(&request, lookup, then)),
            Begun::Authenticate(check) => {
                Step::Authenticate(Unfinished::new(&request, check, then))
            }
        }
    }

    /// Begins a request that may pass once that is known, and refuses any other.
    async fn authenticate(&self, pending: Box<Unfinished<Box<Check>>>) -> Step {
        let head = pending.head.view();
        let mut record = pending.record;
        // The check has its own time: no deadline of the client's is running.
        self.connection.now_doing(Doing::Sending, Stamp::NEVER);
        let check = *pending.rest;
        let checked = self.connection.authenticate(check, head, &mut record).await;
        let mut request = ReceivedRequest { head, record };
        match checked {
            Ok(CheckVerdict::Pass(look, other)) => {
                request.head = other.as_ref().map_or(head, RequestHead::view);
                self.begin_request(request, look, telemetry::now())
            }
            Ok(CheckVerdict::Refuse(refusal)) => self.refuse(&mut request, refusal, pending.then),
            Ok(CheckVerdict::Deny(denial)) => {
                let reply = self.connection.deny(&mut request, denial);
                self.respond(&mut request, reply, pending.then, telemetry::now())
            }
            Err(stop) => {
                self.connection.end_unanswered(request, stop.ending);
                Step::Then(Then::Close)
            }
        }
    }

    /// Looks a file up and answers.
    async fn look_up(&self, pending: Box<Unfinished<Box<Lookup>>>) -> Step {
        let head = pending.head.view();
        let record = pending.record;
        let mut request = ReceivedRequest { head, record };
        // Storage has its own time: no deadline of the client's is running.
        self.connection.now_doing(Doing::Sending, Stamp::NEVER);
        match self.connection.look_up(pending.rest, head).await {
            Ok(reply) => self.respond(&mut request, reply, pending.then, telemetry::now()),
            Err(stop) => {
                self.connection.end_unanswered(request, stop.ending);
                Step::Then(Then::Close)
            }
        }
    }

    /// Refuses a head that is not complete, or never will be.
    fn refuse_beginning(&self, bytes: &[u8], refusal: Refusal, then: Then) -> Step {
        let index = &HeadIndex::of_beginning(bytes.len());
        let head = HeadView { bytes, index };
        let mut request = self.connection.request(head, self.arrived);
        self.refuse(&mut request, refusal, then)
    }

    /// Refuses a request; its connection ends.
    fn refuse(&self, request: &mut ReceivedRequest<'_>, refusal: Refusal, then: Then) -> Step {
        let reply = self.connection.refuse(request, refusal);
        self.respond(request, reply, then, telemetry::now())
    }

    /// Answers with a complete response, made at `now` and sent as far as the socket takes it; `then` follows it,
    /// unless the connection has to end.
    #[inline(always)]
    fn respond(
        &self,
        request: &mut ReceivedRequest<'_>,
        reply: Reply,
        mut then: Then,
        now: Stamp,
    ) -> Step {
        let is_last = then != Then::Receive;
        let keep_alive = !is_last && request.head.index.keep_alive;
        let to = self.destination(None, request.record.route, keep_alive);
        let connection = &self.connection;
        let ended = connection.write(request, to, reply, now);
        // A client that is gone gets no rest, and its connection no linger.
        let is_gone = request.record.ending == Ending::PeerGone;
        if is_gone {
            then = Then::Close;
        } else if ended.after != After::Keep && !is_last {
            then = Then::Leave;
        }
        if let Rest::Here(mut parts, _) = ended.rest
            && !is_gone
            && !connection.send_at_once(&mut request.record, &mut parts)
        {
            return Step::Send(Unfinished::new(request, parts, then));
        }
        connection.end(&request.record, request.head);
        Step::Then(then)
    }

    /// `keep_alive`: whether the request lets the connection live on. It ends by its first response beyond its age.
    fn destination(
        &self,
        stream: Option<Arc<StreamShared>>,
        route: u16,
        keep_alive: bool,
    ) -> Destination {
        let connection = &self.connection;
        let bandwidth = &connection.driver.shared.bandwidth;
        let direct = match stream {
            Some(_) => connection.transport.direct(),
            None => connection.transport.direct_of_driver(),
        };
        Destination {
            stream,
            direct,
            is_limited: !bandwidth.is_empty && bandwidth.is_limited(route),
            keep_alive: keep_alive
                && connection.driver.serving()
                && self.arrived < connection.retires,
            encoding: Encoding::Http1,
        }
    }

    /// Sends the rest of a response as the client takes it.
    async fn send_rest(&self, mut response: Box<Unfinished<Parts>>) -> Step {
        let record = &mut response.record;
        let mut sender = ResponseSender::new(&self.connection, &self.stream, record.route, None);
        let sent = sender.send_all(&mut response.rest).await;
        record.sent_bytes += sender.monitor.sent;
        if let Err(stop) = sent {
            // Before the record is closed: the reset is what tells the client, the record only tells us.
            self.connection.abort(stop);
            record.end_as(stop.ending, stop.cause);
            response.then = Then::Close;
            let unsent = std::mem::take(&mut response.rest);
            self.connection.driver.shared.replies_memory.discard(unsent);
        }
        record.phases.sent = telemetry::now();
        self.connection.end(record, response.head.view());
        Step::Then(response.then)
    }

    /// Receives a body, and has a worker answer the request.
    async fn receive_body(&mut self, mut incoming: Box<IncomingBody>) -> Step {
        let received = self.receive_whole(&mut incoming).await;
        let exchange = incoming.finish(&self.connection.driver);
        match received {
            Ok(()) => Step::Pool(exchange),
            Err(NoBody::Refused(refusal)) => {
                self.refuse(&mut (&*exchange).into(), refusal, Then::Linger)
            }
            Err(NoBody::Ended(ending)) => {
                self.connection.end_unanswered((&*exchange).into(), ending);
                Step::Then(Then::Close)
            }
        }
    }

    async fn receive_whole(&mut self, incoming: &mut IncomingBody) -> Result<(), NoBody> {
        if incoming.exchange.head().index.expect_continue && self.buffer.is_empty() {
            incoming.pace.hold(telemetry::now());
            self.invite().await?;
            incoming.pace.resume(telemetry::now());
        }
        let input = std::mem::take(&mut self.buffer);
        self.buffer = incoming.receive(&self.connection, input).await?;
        self.arrived = incoming.moved;
        Ok(())
    }

    /// Invites the client to send its body (RFC 9110 section 15.2.1). A socket too full for it is one whose
    /// client reads nothing: it gets no invitation; but one that has begun is sent to its end, or what is
    /// missing of it would be taken from the response.
    async fn invite(&self) -> Result<(), Stop> {
        let whole = [IoSlice::new(http::CONTINUE_100)];
        // Reading will tell of a client that is gone.
        let sent = self.connection.transport.send(&whole).unwrap_or(0);
        let mut parts = Parts::default();
        if sent > 0 {
            let rest = Bytes::from_static(&http::CONTINUE_100[sent..]);
            parts.push(Part::Memory(rest));
        }
        // No limit of the bandwidth holds it up.
        let rate = Some(Rate::Unlimited);
        let mut sender = ResponseSender::new(&self.connection, &self.stream, 0, rate);
        let sent = sender.send_all(&mut parts).await;
        sent.inspect_err(|stop| self.connection.abort(*stop))
    }

    /// Hands an exchange to its pool and waits for its response to be out.
    async fn offload(&mut self, mut exchange: Box<Exchange>) -> Step {
        let connection = &self.connection;
        let offloaded = match Offloaded::admit(connection, &self.stream, &mut exchange) {
            Ok(offloaded) => offloaded,
            Err(refusal) => return self.refuse(&mut (&*exchange).into(), refusal, Then::Linger),
        };
        let wake = if self.buffer.is_empty() {
            WakePolicy::NextInput
        } else {
            WakePolicy::Return
        };
        offloaded.hand_off(wake).await;
        let stream = Some(Arc::clone(&self.stream));
        let keep_alive = exchange.head().index.keep_alive;
        let to = self.destination(stream, exchange.record.route, keep_alive);
        offloaded.hand_over(Job { to, exchange });
        match offloaded.run(wake).await {
            Ok(then) => Step::Then(then),
            Err(StillOpen::WebSocket(channel)) => {
                let input = std::mem::take(&mut self.buffer);
                let upgraded = UpgradedConnection::new(connection, offloaded, channel, input);
                Step::Then(Box::pin(upgraded.serve()).await)
            }
            Err(StillOpen::Tunnel(tunnel)) => {
                let input = std::mem::take(&mut self.buffer);
                Step::Then(Box::pin(tunnel::serve(connection, *tunnel, input)).await)
            }
            Err(StillOpen::Overdue) => {
                let (mut request, reply) = offloaded.overdue();
                self.respond(&mut request, reply, Then::Linger, telemetry::now())
            }
        }
    }

    /// Hands an exchange to its pool whose body is still arriving, and waits for both of its ends.
    async fn offload_streamed(&mut self, mut exchange: Box<Exchange>) -> Step {
        let connection = &self.connection;
        let input = std::mem::take(&mut self.buffer);
        let body = BodyStream::new(&self.stream);
        let is_uninvited = exchange.head().index.expect_continue && input.is_empty();
        if is_uninvited {
            body.await_invitation();
        }
        let driver = &connection.driver;
        let mut streamed = match StreamedBody::new(&mut exchange, body, driver, &input) {
            Ok(streamed) => streamed,
            Err(refusal) => {
                return self.refuse(&mut (&*exchange).into(), refusal.into(), Then::Linger);
            }
        };
        if streamed.is_done() {
            self.buffer = streamed.rest;
            return Step::Pool(exchange);
        }
        let offloaded = match Offloaded::admit(connection, &self.stream, &mut exchange) {
            Ok(offloaded) => offloaded,
            Err(refusal) => return self.refuse(&mut (&*exchange).into(), refusal, Then::Linger),
        };
        offloaded.hand_off(WakePolicy::Return).await;
        let stream = Some(Arc::clone(&self.stream));
        // What a client that is not asked for its body sends next is not known, until it is.
        let keep_alive = exchange.head().index.keep_alive && !is_uninvited;
        let mut to = self.destination(stream, exchange.record.route, keep_alive);
        if connection.transport.plain_socket().is_none() {
            // The driver reads meanwhile, and a TLS session is one thread's at a time.
            to.direct = None;
        }
        offloaded.hand_over(Job { to, exchange });
        let ended = offloaded.run_with(&mut streamed).await;
        match ended {
            Ok(Then::Receive) => {}
            Ok(Then::Leave) if !streamed.is_done() => return Step::Then(Then::Linger),
            Ok(then) => return Step::Then(then),
            Err(Interrupted::Refused(refusal)) => {
                let mut request = offloaded.refused();
                return self.refuse(&mut request, refusal, Then::Linger);
            }
            Err(Interrupted::Cut(stop)) => return Step::Then(offloaded.cut(stop)),
            Err(Interrupted::Other(StillOpen::Overdue)) => {
                let (mut request, reply) = offloaded.overdue();
                return self.respond(&mut request, reply, Then::Linger, telemetry::now());
            }
            // A handshake has no body.
            Err(Interrupted::Other(StillOpen::WebSocket(_) | StillOpen::Tunnel(_))) => {
                return Step::Then(Then::Close);
            }
        }
        match connection.discard(&mut streamed).await {
            true => {
                self.arrived = streamed.moved();
                self.buffer = streamed.rest;
                Step::Then(Then::Receive)
            }
            false => Step::Then(Then::Linger),
        }
    }

    /// Whether the client has sent something that will not be read: closing now would reset the connection
    /// and take the end of the response with it.
    fn has_unread(&self) -> bool {
        let transport = &self.connection.transport;
        !self.buffer.is_empty() || transport.read_now(&mut [0]).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        fn size_of_returned<T, F: Future>(_: impl FnOnce(T) -> F) -> usize {
            size_of::<F>()
        }
        // With the 104 bytes that tokio adds it is 640 bytes; the next size of a task is 768. Where faults are planted, a
        // future has 8 bytes for them.
        let planted = if cfg!(feature = "faults") { 8 } else { 0 };
        assert!(size_of_returned(H1::serve) - planted <= 536);
    }
}
