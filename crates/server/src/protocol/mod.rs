//! Protocols: each turns the bytes of a `Transport` into streams, and a stream into an exchange and its
//! response. Nothing above this module knows HTTP/1 or sockets.
//!
//! `Connection` is what all of them share: the transport, the deadline, the ways in which a wait may end, what
//! becomes of a head, and the end of an exchange in the log. `body` stores what has come of a request's body,
//! `offloaded` is an exchange that a worker has, `send` sends what a socket did not take. `h1` is one request at a
//! time, `h2` many at once.

mod age;
mod handshake;

mod body;
mod offloaded;
mod proxied;
mod send;
mod streamed;

mod h1;
mod h2;

mod tunnel;
mod websocket;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use files::{FileAnswer, Lookup, Reply};
use http::{HeadView, RequestHead};
use telemetry::{Ending, Nanos, Stamp};

use crate::bandwidth::BandwidthLimit;
use crate::driver::handoff::Opened;
use crate::driver::table::Fired;
use crate::driver::{Driver, Scratch, ServingState};
use crate::exchange::Body;
use crate::exchange::Ends;
use crate::exchange::Exchange;
use crate::exchange::ExchangeRecord;
use crate::exchange::Permit;
use crate::exchange::stream::StreamShared;
use crate::guards::{Check, RouteGuard, UserVerdict};
use crate::proxies::LastClient;
use crate::refusal::Refusal;
use crate::request_start;
use crate::response::{Destination, Parts, Progress, ResponseEnd};
use crate::service::{self, Backend, Disposition};
use crate::transport::Transport;
use crate::upstream::Denial;
use streamed::StreamedBody;
use telemetry::counters::{Doing, Timeout};

/// Bytes of a refused body that are read and thrown away at most, so that the client gets to read the
/// refusal instead of a reset.
const LINGER_BYTES_MAX: usize = 4 << 20;

/// Serves a connection, by tasks of their own on this thread.
pub(crate) fn serve(driver: Rc<Driver>, transport: Transport, opened: Opened) {
    tokio::task::spawn_local(h1::H1::open(driver, transport, opened).serve());
}

/// One client's connection on its driver.
pub(crate) struct Connection {
    pub(crate) driver: Rc<Driver>,
    pub(crate) transport: Transport,
    /// Index in the driver's table.
    pub(crate) slot: usize,
    /// From when on no further request is waited for.
    retires: Stamp,
    /// When the last response was out; ZERO when that is not known.
    last_sent: Cell<Stamp>,
    /// What the proxy in front said of the client of the last request.
    last_client: RefCell<Option<Box<LastClient>>>,
    /// The place of a forwarded client's request that this driver answers.
    permit: Cell<Option<Permit>>,
    /// What is left of its own share of the bandwidth, between two responses.
    limit: Cell<Option<Box<BandwidthLimit>>>,
    /// Last: its permit counts it until its socket is closed. Apart from the task, whose size is a multiple of 128 bytes:
    /// with it there, an idle connection would take 128 bytes more.
    opened: Box<Opened>,
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

/// What follows a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// The next request.
    Receive,
    /// The end; the client gets time to read if it has sent more than was read.
    Leave,
    /// The end, once the client has had time to read: it is still sending, or a worker still has the socket.
    Linger,
    /// The end at once.
    Close,
}

/// A request, as far as it was received, that the driver may have to answer.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedRequest<'a> {
    /// Complete, or the beginning of one that is refused.
    pub(crate) head: HeadView<'a>,
    pub(crate) record: ExchangeRecord,
}

/// What becomes of a request whose head is complete.
pub(crate) enum Begun {
    /// It is for a worker, as soon as its body is there.
    Offload(Box<Exchange>),
    /// This is the response; the record says whether it is a refusal.
    Respond(Reply),
    /// It is for a file that has to be looked up.
    LookUp(Box<Lookup>),
    /// Its user has to be checked; then it begins again.
    Authenticate(Box<Check>),
}

/// What a check has found out.
pub(crate) enum CheckVerdict {
    /// The request may pass, with this head in the place of its own where there is one.
    Pass(Look, Option<RequestHead>),
    Refuse(Refusal),
    /// Another server has given this response, or none.
    Deny(Denial),
}

/// Which look at a request is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    First,
    /// Its password was right.
    Authenticated,
    /// The server of `forward_auth` lets it pass on the route that it had; its password was right before that.
    Authorized,
}

impl Connection {
    /// Enters the driver's table. `stream`: what a connection of one stream at a time shares with its workers.
    pub(crate) fn open(
        driver: Rc<Driver>,
        transport: Transport,
        opened: Opened,
        stream: Option<Arc<StreamShared>>,
    ) -> Self {
        let accepted = opened.accepted;
        let deadline = accepted.plus(driver.config().timeouts.head);
        let slot = driver.table.borrow_mut().enter(stream, accepted, deadline);
        let retires = age::retirement(accepted, driver.config().timeouts.connection_age_max);
        // The scan of deadlines sleeps while the table is empty.
        driver.arrival.notify_one();
        Self {
            driver,
            transport,
            slot,
            retires,
            last_sent: Cell::new(Stamp::ZERO),
            last_client: RefCell::default(),
            permit: Cell::default(),
            limit: Cell::new(None),
            opened: Box::new(opened),
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

    /// A request that has arrived then, complete or not. Once an exchange: it has a new id. Inline: a record is large, and
    /// is made where it stays.
    #[inline]
    pub(crate) fn request<'a>(&self, head: HeadView<'a>, arrived: Stamp) -> ReceivedRequest<'a> {
        let driver = &self.driver;
        let is_trusted = self.opened.ends.is_trusted;
        let id = driver
            .shared
            .ids
            .id(driver.numbers.next(), head, is_trusted);
        let mut record = ExchangeRecord::new(id, driver.index, arrived);
        record.request_bytes = head.bytes.len() as u64;
        ReceivedRequest { head, record }
    }

    pub(crate) fn now_doing(&self, doing: Doing, deadline: Stamp) {
        let mut table = self.driver.table.borrow_mut();
        table.set(self.slot, doing, deadline);
    }

    /// As `now_doing` for a connection that has been idle since `since`.
    pub(crate) fn now_idle(&self, since: Stamp, deadline: Stamp) {
        let mut table = self.driver.table.borrow_mut();
        table.set_idle(self.slot, since, deadline);
    }

    fn cutting(&self) -> bool {
        self.driver.state.get() == ServingState::Aborting
    }

    /// Whether the table woke this connection, and what for. A wake-up for a deadline that was moved
    /// since counts for nothing.
    #[inline(always)]
    pub(crate) fn take_fired(&self) -> Option<Woken> {
        if self.cutting() {
            return Some(Woken::Cut);
        }
        let (fired, deadline) = self.driver.table.borrow_mut().take_fired(self.slot);
        match (fired, self.driver.state.get()) {
            (Fired::No, _) => None,
            // The mark alone does not count: the deadline may have moved between the scan and this look.
            _ if deadline <= telemetry::now() => Some(Woken::Deadline),
            (_, ServingState::Draining) => Some(Woken::Draining),
            (Fired::Crowded, _) => Some(Woken::Crowded),
            (Fired::Yes, _) => None,
        }
    }

    /// Reads into the scratch buffer; gives it with the number of bytes there.
    pub(crate) async fn read(&self) -> Result<(Box<Scratch>, usize), Woken> {
        poll_fn(|context| {
            // Before the read: a client that sends without end would else outlive its deadline.
            if let Some(woken) = self.take_fired() {
                return Poll::Ready(Err(woken));
            }
            let mut scratch = self.driver.take_scratch();
            let read = self.transport.poll_read(context, &mut scratch.input);
            if let Poll::Ready(Ok(bytes @ 1..)) = read {
                return Poll::Ready(Ok((scratch, bytes)));
            }
            self.driver.put_scratch(scratch);
            // The buffer is back by now, because another connection reads while this one waits.
            read.map(|read| Err(read.map_or(Woken::Failed, |_| Woken::End)))
        })
        .await
    }

    /// Reads and throws away what still comes, for a bounded time, after the last response.
    pub(crate) async fn linger(&self) {
        // The client sees the end of our side and can read the response in peace (RFC 9112 section 9.6).
        self.transport.close_write();
        let linger = self.driver.config().timeouts.linger;
        self.now_doing(Doing::Closing, telemetry::now().plus(linger));
        let mut bytes = 0;
        // Bounded in bytes as well as in time: reading what is thrown away costs the other connections this thread.
        while bytes < LINGER_BYTES_MAX {
            match self.read().await {
                Ok((scratch, more)) => {
                    self.driver.put_scratch(scratch);
                    bytes += more;
                }
                Err(Woken::Draining | Woken::Crowded) => {}
                Err(_) => return,
            }
        }
    }

    /// Receives the rest of a body whose response is out, and throws it away; whether that was all of it, within the
    /// bounds of `linger`. Its connection lives on.
    async fn discard(&self, body: &mut StreamedBody) -> bool {
        body.body.leave();
        // Its decoder stands before the fault, and would take what follows for a body and requests that the client never
        // sent (RFC 9112 section 11.2, request smuggling).
        if body.is_broken() {
            return false;
        }
        let linger = Duration::from_nanos(self.driver.config().timeouts.linger.0);
        let until = body.body.received_bytes() + LINGER_BYTES_MAX as u64;
        let received = poll_fn(|context| match body.poll(self, context) {
            Poll::Pending if body.body.received_bytes() > until => Poll::Ready(false),
            received => received.map(|received| received.is_ok()),
        });
        let received = tokio::time::timeout(linger, self.unless_cut(received)).await;
        matches!(received, Ok(Ok(true)))
    }

    /// Waits for work that may take as long as it wants, but not longer than this driver.
    pub(crate) async fn unless_cut<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if self.cutting() {
                return Poll::Ready(Err(Woken::Cut.stop()));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Waits for work as long as the connection holds: one that was reset is not to keep its place, nor its
    /// application at work, until we would have sent something.
    pub(crate) async fn unless_reset<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let mut work = pin!(work);
        let mut reset = pin!(self.transport.failed());
        poll_fn(|context| {
            // The work first: what is done at the moment of the reset is not lost.
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            let reset = reset.as_mut().poll(context);
            reset.map(|()| Err(Woken::Failed.stop()))
        })
        .await
    }

    /// Whether the client was asked for other certificates than those that the host of a request asks for.
    fn is_misdirected(&self, head: HeadView<'_>, ends: &Ends) -> bool {
        let (Some(tls), Some(facts)) = (&self.driver.shared.tls, &ends.tls) else {
            return false;
        };
        tls.is_misdirected(ends.host_name(head), facts.handshake.client_auth)
    }

    /// Begins an exchange whose head is complete: what becomes of it, and what the record has to know of that.
    #[inline(always)]
    pub(crate) fn begin(&self, request: &mut ReceivedRequest<'_>, look: Look, now: Stamp) -> Begun {
        let driver = &self.driver;
        let head = request.head;
        let ends = self.ends_of(head);
        request.record.is_https = ends.scheme == "https";
        // Ends of its own have what a trusted proxy says of its client.
        request.record.is_forwarded = !Arc::ptr_eq(&ends, &self.opened.ends);
        let counted = match look {
            Look::First => self.count_request(head, &ends, now),
            // It has kept its place while it was checked.
            Look::Authenticated | Look::Authorized => Ok(self.permit.take()),
        };
        let mut permit = match counted {
            Ok(permit) => permit,
            Err(refusal) => return Begun::Respond(self.refuse(request, refusal)),
        };
        if self.is_misdirected(head, &ends) {
            let refusal = Refusal::because(421, "other client certificates are asked for there");
            return Begun::Respond(self.refuse(request, refusal));
        }
        let ReceivedRequest { record, .. } = request;
        let disposition = driver.shared.service.dispatch(head, &ends);
        if look == Look::Authorized && record.route != disposition.route {
            // Nobody has asked the guard of the other route.
            return Begun::Respond(self.refuse(request, Refusal::ROUTE_CHANGED));
        }
        record.route = disposition.route;
        if let Some(guard) = driver.shared.guards.of(disposition.route)
            && let Some(begun) = self.guarded(guard, &disposition, request, &ends, look)
        {
            if matches!(begun, Begun::Authenticate(_)) {
                self.permit.set(permit);
            }
            return begun;
        }
        let ReceivedRequest { record, .. } = request;
        let rewritten = disposition.stripped.or(disposition.rewritten);
        // What a worker is to answer is stamped anew when its pool admits it.
        record.begin_inline(now);
        if !matches!(disposition.backend, Backend::Pool { .. }) {
            self.permit.set(permit.take());
        }
        let reply = match disposition.backend {
            Backend::Pool { pool, class } => {
                (record.pool, record.class) = (Some(pool), class);
                return Begun::Offload(Box::new(Exchange {
                    head: Arc::new(RequestHead::take(head)),
                    rewritten,
                    body: Body::Empty,
                    streamed: None,
                    ends,
                    permit,
                    record: *record,
                }));
            }
            Backend::Refuse(refusal) => self.refuse(request, refusal),
            Backend::RespondAsIs(reply) => reply,
            Backend::Respond(reply) => self.with_error_page(reply),
            Backend::Status => driver.status_page(),
            Backend::Probe(probe) => driver.probe_reply(probe),
            Backend::Files { mount, rest_from } => {
                let rest = &service::path(head, rewritten.as_deref())[rest_from..];
                let given = driver.files.borrow_mut().ask(mount, head, rest, now);
                let reply = match given {
                    FileAnswer::Ready(reply) => reply,
                    FileAnswer::Stale(reply, lookup) => {
                        driver.look_up_later(lookup);
                        reply
                    }
                    FileAnswer::Lookup(lookup) => return Begun::LookUp(lookup),
                };
                self.with_error_page(reply)
            }
        };
        Begun::Respond(reply)
    }

    /// What the guard of its route makes of a request; nothing where it passes.
    fn guarded(
        &self,
        guard: &RouteGuard,
        disposition: &Disposition,
        request: &mut ReceivedRequest<'_>,
        ends: &Ends,
        look: Look,
    ) -> Option<Begun> {
        let driver = &self.driver;
        if look == Look::Authorized {
            // Its head may have other credentials by now, which are not for this server.
            return None;
        }
        // A request counts once, and before its password does: guesses come as seldom as requests.
        if look == Look::First
            && let Some(refusal) = guard.too_early(request.head, ends)
        {
            driver.stats().rate_limited.add();
            return Some(Begun::Respond(self.refuse(request, refusal)));
        }
        let refusal = match guard.verdict(request.head) {
            UserVerdict::Open => None,
            UserVerdict::Known => {
                request.record.has_user = true;
                None
            }
            UserVerdict::Refused(refusal) => Some(refusal),
            UserVerdict::Unchecked(check) => match driver.shared.guards.crowded() {
                None => return Some(Begun::Authenticate(Box::new(Check::Password(check)))),
                Some(refusal) => Some(refusal),
            },
        };
        if let Some(refusal) = refusal {
            return Some(Begun::Respond(self.refuse(request, refusal)));
        }
        let check = Check::ForwardAuth {
            auth: Arc::clone(guard.forward_auth()?),
            target: disposition.routed_target(request.head),
        };
        Some(Begun::Authenticate(Box::new(check)))
    }

    /// What becomes of a request, once its password has been checked by a thread that has the time, or another server
    /// has been asked.
    pub(crate) async fn authenticate(
        &self,
        check: Check,
        head: HeadView<'_>,
        record: &mut ExchangeRecord,
    ) -> Result<CheckVerdict, Stop> {
        match check {
            Check::Password(check) => {
                let checked = self.driver.shared.guards.check(check);
                Ok(match self.unless_cut(checked).await? {
                    Ok(true) => CheckVerdict::Pass(Look::Authenticated, None),
                    Ok(false) => CheckVerdict::Refuse(Refusal::WRONG_PASSWORD),
                    Err(_) => {
                        CheckVerdict::Refuse(Refusal::because(500, "checking the password failed"))
                    }
                })
            }
            Check::ForwardAuth { auth, target } => {
                let ends = self.ends_of(head);
                let asked = self.driver.authorize(&auth, &target, head, &ends, record);
                self.unless_cut(asked).await
            }
        }
    }

    /// The response that another server has given in the place of the route's.
    pub(crate) fn deny(&self, request: &mut ReceivedRequest<'_>, denial: Denial) -> Reply {
        self.driver.stats().errors.add();
        request.record.pool = None;
        request.record.begin_inline(telemetry::now());
        request.record.end_as(denial.ending, denial.cause);
        denial.reply
    }

    /// The response with a file, once a thread that may wait for its storage has looked it up.
    pub(crate) async fn look_up(
        &self,
        lookup: Box<Lookup>,
        head: HeadView<'_>,
    ) -> Result<Reply, Stop> {
        let result = self.unless_cut(self.driver.look_up(lookup)).await?;
        let reply = match result {
            Ok(found) => self.driver.files.borrow().reply(&found, head),
            Err(_) => Refusal::because(500, "looking the file up failed").reply(),
        };
        Ok(self.with_error_page(reply))
    }

    /// The response that refuses a request, of which its record knows.
    pub(crate) fn refuse(&self, request: &mut ReceivedRequest<'_>, refusal: Refusal) -> Reply {
        self.driver.stats().errors.add();
        request.record.pool = None;
        request.record.begin_inline(telemetry::now());
        request.record.end_as(Ending::Refused, refusal.cause);
        self.with_error_page(refusal.reply())
    }

    /// The response with an error page in the place of its body, where there is one for its status. Inline: a reply
    /// is large, and most pass unchanged.
    #[inline]
    pub(crate) fn with_error_page(&self, reply: Reply) -> Reply {
        match reply.status {
            0..400 => reply,
            _ => self.driver.shared.pages.replace_body(reply),
        }
    }

    /// How long a request had waited when it arrived, as a proxy in front says.
    fn waited_before(&self, exchange: &Exchange) -> Nanos {
        let start_ns = request_start::start_ns(exchange.head(), &exchange.ends);
        start_ns.map_or(Nanos::ZERO, |started_ns| {
            let phases = &exchange.record.phases;
            let receive = phases.queued.since(phases.arrived);
            // Before 1970 it is 0.
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now_ns = now.map_or(0, |now| now.as_nanos() as u64);
            request_start::before(started_ns, now_ns.saturating_sub(receive.0))
        })
    }

    /// Writes a response of the server's own that was made at `now`, as far as it gets; the rest is the protocol's to
    /// send. A refusal stays one in the record.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        request: &mut ReceivedRequest<'_>,
        to: Destination,
        reply: Reply,
        now: Stamp,
    ) -> ResponseEnd {
        let ReceivedRequest { head, record } = request;
        // The writer ends a response that is out as complete; a refusal must stay one in the log.
        let (ending, cause) = (record.ending, record.cause);
        let mut writer = self.driver.take_writer();
        writer.begin_exchange(record, *head, to);
        // A refusal begins later than its request was taken up.
        writer.respond(reply, now.max(record.phases.started));
        let ended = writer.finish(record);
        self.driver.writer.set(Some(writer));
        if record.ending == Ending::Complete {
            record.end_as(ending, cause);
        }
        ended
    }

    /// Whether the driver is the first that offers a response of this route to its transport, and without a limit.
    fn sends_at_once(&self, route: u16) -> bool {
        let bandwidth = &self.driver.shared.bandwidth;
        let is_limited = !bandwidth.is_empty && bandwidth.is_limited(route);
        matches!(self.transport, Transport::Tls(_)) && !is_limited
    }

    /// Sends what a writer on this thread could not, because it does not encipher: as much as one call takes. Whether
    /// that was all; most responses are small, and need no wait of their own.
    pub(crate) fn send_at_once(&self, record: &mut ExchangeRecord, parts: &mut Parts) -> bool {
        if !self.sends_at_once(record.route) {
            return false;
        }
        // A client that is gone is found again by the next call.
        let Ok((progress, sent)) = self.transport.send_parts(parts, u64::MAX) else {
            return false;
        };
        record.sent_bytes += sent;
        if progress == Progress::Done {
            record.phases.sent = telemetry::now();
        }
        progress == Progress::Done
    }

    /// Ends an exchange: the one place on a driver that does.
    pub(crate) fn end(&self, record: &ExchangeRecord, head: HeadView<'_>) {
        if record.ending == Ending::Shutdown {
            self.driver.cut.set(self.driver.cut.get() + 1);
        }
        self.last_sent.set(record.phases.sent);
        // The fields of most heads are searched once, where the request begins: a record of one that never began has no
        // head that could describe a client.
        let described = record.is_forwarded.then(|| self.ends_of(head));
        let ends = described.as_ref().unwrap_or(&self.opened.ends);
        self.driver.recorder.close(record, head, ends);
        self.permit.take();
    }

    /// Ends an exchange of which the driver has sent so much.
    pub(crate) fn end_exchange(&self, mut exchange: Box<Exchange>, sent_bytes: u64) {
        exchange.record.sent_bytes = sent_bytes;
        exchange.record.phases.sent = telemetry::now();
        self.end(&exchange.record, exchange.head());
    }

    /// Ends an exchange that gets no response.
    pub(crate) fn end_unanswered(&self, mut request: ReceivedRequest<'_>, ending: Ending) {
        let record = &mut request.record;
        let now = telemetry::now();
        // It never came to its pool, of whose queue the record would tell.
        record.pool = None;
        record.begin_inline(now);
        record.end_at(now);
        record.end_as(ending, "");
        self.driver.stats().errors.add();
        self.end(&request.record, request.head);
    }

    /// Counts a response that was given up because of its client's pace.
    pub(crate) fn count_stop(&self, stop: Stop) {
        if stop.ending == Ending::SendTimeout {
            self.driver.stats().timed_out(Timeout::Send);
        }
    }

    /// Gives a response up: the client must not take it for a complete one.
    pub(crate) fn abort(&self, stop: Stop) {
        self.count_stop(stop);
        self.transport.reset_on_close();
    }
}

impl<'a> From<&'a Exchange> for ReceivedRequest<'a> {
    fn from(exchange: &'a Exchange) -> Self {
        Self {
            head: exchange.head(),
            record: exchange.record,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.transport.close();
        // Before the driver is woken below: it has drained when its table is empty.
        self.driver.table.borrow_mut().leave(self.slot);
        self.driver.has_ended(self.opened.accepted);
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
    pub(crate) const fn new(ending: Ending, cause: &'static str) -> Self {
        Self { ending, cause }
    }

    /// The response is cut on our side.
    pub(crate) const fn cut(cause: &'static str) -> Self {
        Self::new(Ending::Cut, cause)
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
            | ErrorKind::TimedOut => Woken::Failed.stop(),
            _ => Stop::cut("the file could not be read"),
        }
    }
}

impl Woken {
    /// How an exchange ends whose response was being sent.
    pub(crate) fn stop(self) -> Stop {
        let ending = match self {
            Woken::Deadline => Ending::SendTimeout,
            Woken::Cut => Ending::Shutdown,
            Woken::Draining | Woken::Crowded | Woken::End | Woken::Failed => Ending::PeerGone,
        };
        Stop::new(ending, "")
    }
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
