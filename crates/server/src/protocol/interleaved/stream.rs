//! One stream: a request from its head to the end of its response, in a task of its own. Every stream ends in one
//! record.

use std::rc::Rc;
use std::sync::Arc;

use measure::{Ending, Stamp};
use stage::Pace;
use wire::{BodyDecoder, BodyFraming, Cause, HeadStep, HeadView, RequestHead, Version};

use super::send::{Hears, Sending};
use super::{Inbox, Kind, Mux};
use crate::driver::Driver;
use crate::exchange::stream::StreamShared;
use crate::exchange::{Body, BodyFile, ExchangeRecord};
use crate::handler::files::Given;
use crate::protocol::{Stop, Woken};
use crate::recorder::Received;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::response::{Destination, Encoding, Parts, RequestFacts, ResponseHead, Rest};
use crate::service::{self, Backend, Disposition};
use crate::spool::Spooled;
use crate::stats::Timeout;

/// The task of a stream.
pub(super) struct Stream {
    pub(super) mux: Rc<Mux>,
    pub(super) driver: Rc<Driver>,
    pub(super) number: u16,
    pub(super) inbox: Rc<Inbox>,
}

/// Why a body was not received.
enum NoBody {
    Refused(Refusal),
    Woken(Woken),
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

    pub(super) async fn refuse(
        &self,
        mut record: ExchangeRecord,
        received: Received<'_>,
        refusal: Refusal,
    ) {
        self.driver.stats().errors.add();
        record.pool = None;
        record.begin_inline(measure::now());
        record.end_as(Ending::Refused, refusal.cause);
        let connection = &self.mux.connection;
        let reply = connection.with_error_page(refusal.reply(), received.head());
        self.respond(record, received, reply).await;
    }

    /// Sends a response of the server's own, and ends the exchange.
    pub(super) async fn respond(
        &self,
        mut record: ExchangeRecord,
        received: Received<'_>,
        reply: Reply,
    ) {
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

/// The way of a response, which no worker has a socket for.
pub(super) fn destination(stream: Option<Arc<StreamShared>>) -> Destination {
    Destination {
        stream,
        direct: None,
        is_limited: false,
        encoding: Encoding::Frames,
    }
}
