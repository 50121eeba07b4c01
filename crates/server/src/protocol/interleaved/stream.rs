//! One stream: a request from its head to the end of its response, in a task of its own. Every stream ends in one
//! record.

use std::rc::Rc;
use std::sync::Arc;

use files::Reply;
use http::BodyFraming;
use http::Cause;
use http::HeadIndex;
use http::HeadStep;
use http::HeadView;
use http::RequestHead;
use telemetry::Stamp;

use super::send::{FrameSender, Hears};
use super::{FrameKind, Inbox, Mux};
use crate::driver::Driver;
use crate::exchange::Exchange;
use crate::exchange::stream::StreamShared;
use crate::protocol::body::{IncomingBody, NoBody};
use crate::protocol::{Begun, ReceivedRequest, Stop};
use crate::refusal::Refusal;
use crate::response::{Destination, Encoding, Parts, ResponseHead, Rest};

/// The task of a stream.
pub(super) struct Stream {
    pub(super) mux: Rc<Mux>,
    pub(super) driver: Rc<Driver>,
    pub(super) number: u16,
    pub(super) inbox: Rc<Inbox>,
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
            Ok(head) => head,
            Err(refusal) => {
                let index = &HeadIndex::of_beginning(text.len());
                let bytes = &text;
                let request = connection.request(HeadView { bytes, index }, arrived);
                return self.refuse(request, refusal).await;
            }
        };
        self.driver.stats().received.add();
        let mut request = connection.request(head.view(), arrived);
        let reply = match connection.begin(&mut request, telemetry::now()) {
            Begun::Offload(exchange) => return self.receive(exchange, request).await,
            Begun::Respond(reply) => Ok(reply),
            Begun::LookUp(lookup) => connection.look_up(lookup, head.view()).await,
        };
        match reply {
            Ok(reply) => self.respond(request, reply).await,
            Err(stop) => connection.end_unanswered(request, stop.ending),
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

    pub(super) async fn refuse(&self, mut request: ReceivedRequest<'_>, refusal: Refusal) {
        let reply = self.mux.connection.refuse(&mut request, refusal);
        self.respond(request, reply).await;
    }

    /// Sends a response of the server's own, and ends the exchange.
    pub(super) async fn respond(&self, mut request: ReceivedRequest<'_>, reply: Reply) {
        let connection = &self.mux.connection;
        let ended = connection.write(&mut request, destination(None), reply, telemetry::now());
        let ReceivedRequest { head, mut record } = request;
        let mut sending = self.sending(record.route, None);
        if let Rest::Here(mut parts, Some(first)) = ended.rest {
            let sent = self.send_all(&first, &mut parts, &mut sending).await;
            if let Err(stop) = sent {
                self.stop(stop).await;
                record.end_as(stop.ending, stop.cause);
            }
            self.driver.shared.replies_memory.discard(parts);
        }
        record.sent_bytes = sending.sent;
        record.phases.sent = telemetry::now();
        connection.end(&record, head);
    }

    async fn send_all(
        &self,
        head: &ResponseHead,
        parts: &mut Parts,
        sending: &mut FrameSender,
    ) -> Result<(), Stop> {
        self.send_head(head).await?;
        while !parts.is_empty() {
            let most = self.allowance(sending, None).await?;
            let data = parts
                .take_waiting(most)
                .map_err(|error| Stop::of_send(&error))?;
            self.send_data(&data, sending).await?;
        }
        self.send_frame(FrameKind::End, &[]).await
    }

    /// Receives the body of a request, and has a worker answer it.
    async fn receive(&self, exchange: Box<Exchange>, request: ReceivedRequest<'_>) {
        let connection = &self.mux.connection;
        let mut incoming = match IncomingBody::new(exchange, self.driver.config()) {
            Ok(incoming) => incoming,
            Err(refusal) => return self.refuse(request, refusal.into()).await,
        };
        let received = self.receive_body(&mut incoming).await;
        let exchange = incoming.finish(&self.driver);
        match received {
            Ok(()) => self.offload(exchange).await,
            Err(NoBody::Refused(refusal)) => self.refuse((&*exchange).into(), refusal).await,
            Err(NoBody::Ended(ending)) => connection.end_unanswered((&*exchange).into(), ending),
        }
    }

    /// Receives a body, into memory up to `body_memory_max` and into a file beyond.
    async fn receive_body(&self, incoming: &mut IncomingBody) -> Result<(), NoBody> {
        let connection = &self.mux.connection;
        let mut bytes = 0;
        loop {
            let deadline = incoming.pace.deadline();
            let come = self.wait(deadline, Hears::Both, |_| self.inbox.take_body());
            let (data, is_complete) = match come.await {
                Ok(come) => come,
                Err(woken) => return Err(incoming.no_body(connection, woken)),
            };
            incoming.push(&data);
            bytes += data.len() as u64;
            if bytes > self.driver.config().limits.body_bytes_max {
                return Err(http::Refusal::from(Cause::BodyTooLarge).into());
            }
            incoming.spool(connection, is_complete).await?;
            if is_complete {
                break;
            }
        }
        match incoming.exchange.head().index.body {
            BodyFraming::None => Ok(()),
            BodyFraming::Length(length) if length == bytes => Ok(()),
            BodyFraming::Length(_) | BodyFraming::Chunked => {
                let refusal = Refusal::because(400, "the body is not as its head says");
                Err(NoBody::Refused(refusal))
            }
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
