//! One try of a request at one upstream: the request goes out over a connection, the response comes in and leaves
//! through the exchange's writer.
//!
//! Both directions move in one turn: an upstream may answer before it has taken the whole request. A response is read
//! as fast as the upstream gives it, up to `reply_spool_bytes_max` unsent bytes, so that a slow client holds no
//! upstream.

use std::future::poll_fn;
use std::task::{Context, Poll};

use http::upstream::UpstreamFault as Broken;
use http::upstream::{UpstreamBody, UpstreamHeadStep, UpstreamResponse};
use http::{Asked, FieldLines};
use queueing::balancing::Progress;
use telemetry::Stamp;

use super::connection::UpstreamConnection;
use super::exchange::{FailedTry, UpstreamExchange};
use super::fault::UpstreamFault;
use super::request::{Awaited, OutgoingRequest, RequestBody, Sending, Unsent};
use crate::exchange::stream::StreamEvent;
use crate::response::{Amount, Declared, Taken};

/// The status of early hints (RFC 8297).
const EARLY_HINTS: u16 = 103;
/// Reads of one response in one turn of the driver, before others get theirs.
const READS_A_TURN: usize = 8;
/// Unsent bytes of a stream that is passed on at once, beyond which no more of it is read.
const STREAM_BYTES_MAX: u64 = 64 << 10;

/// One try.
pub(super) struct Relay<'a, 'x> {
    exchange: &'a mut UpstreamExchange<'x>,
    connection: UpstreamConnection,
    request: OutgoingRequest<'a>,
    sending: SendState,
    receiving: Receiving,
    /// The beginning of a head that has not come whole, and how much of it was looked at.
    partial: Vec<u8>,
    seen: usize,
    /// When the try began.
    began: Stamp,
    has_response: bool,
}

/// How far the request is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendState {
    Sending,
    Sent,
    /// The connection takes no more of it: the response alone says how it went.
    Broken,
}

/// How far the response is.
enum Receiving {
    Head,
    Body {
        body: UpstreamBody,
        /// The connection may serve another exchange behind it.
        keeps: bool,
        /// Its pieces are worth nothing later: it is never stored for its client.
        is_live: bool,
    },
    Whole {
        keeps: bool,
    },
    /// The connection is another protocol's. Fields of the 101, and bytes that came behind it.
    Switched(FieldLines, Vec<u8>),
}

/// How a try ended that gave a whole response.
pub(super) enum Relayed {
    /// The connection may serve another exchange.
    Kept(UpstreamConnection),
    Ended,
    /// The protocol was changed.
    Switched(UpstreamConnection, FieldLines, Vec<u8>),
}

impl<'a, 'x> Relay<'a, 'x> {
    /// A try that began at `began`; `head` is that of the request.
    pub(super) fn new(
        exchange: &'a mut UpstreamExchange<'x>,
        connection: UpstreamConnection,
        head: Vec<u8>,
        body: &'a RequestBody,
        began: Stamp,
    ) -> Self {
        Self {
            request: OutgoingRequest::new(head, body, exchange.driver.shared.openers.clone()),
            exchange,
            connection,
            sending: SendState::Sending,
            receiving: Receiving::Head,
            partial: Vec::new(),
            seen: 0,
            began,
            has_response: false,
        }
    }

    /// Until the response is whole and written, but for its end.
    pub(super) async fn run(mut self) -> Result<Relayed, FailedTry> {
        let relayed = poll_fn(|context| self.poll(context)).await;
        self.exchange.run.set_due(Stamp::NEVER);
        let progress = match relayed {
            Err(fault) => self.progress(fault),
            Ok(_) => Progress::Delivering,
        };
        match (relayed, self.receiving) {
            (Ok(_), Receiving::Switched(fields, rest)) => {
                Ok(Relayed::Switched(self.connection, fields, rest))
            }
            (Ok(keeps), _) if keeps && self.sending == SendState::Sent => {
                Ok(Relayed::Kept(self.connection))
            }
            (Ok(_), _) => Ok(Relayed::Ended),
            (Err(fault), _) => Err(FailedTry { fault, progress }),
        }
    }

    fn progress(&self, fault: UpstreamFault) -> Progress {
        match fault {
            UpstreamFault::Status(status) => Progress::Answered { status },
            // What has begun to come cannot be told from what has an effect.
            _ if self.has_response => Progress::Delivering,
            UpstreamFault::Silent => Progress::TimedOut,
            _ => Progress::NoResponse {
                is_written: self.request.sent_bytes > 0,
            },
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, UpstreamFault>> {
        if self.exchange.run.signals.take(StreamEvent::Due) {
            return Poll::Ready(Err(UpstreamFault::Silent));
        }
        let awaited = match self.poll_request(context) {
            Ok(awaited) => awaited,
            Err(fault) => return Poll::Ready(Err(fault)),
        };
        for _ in 0..READS_A_TURN {
            if !self.has_room() {
                // The client's own deadline is running.
                self.exchange.run.set_due(Stamp::NEVER);
                return Poll::Pending;
            }
            match self.poll_response(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                Poll::Pending => {
                    self.await_upstream(awaited);
                    return Poll::Pending;
                }
            }
            match self.receiving {
                Receiving::Whole { keeps } => return Poll::Ready(Ok(keeps)),
                Receiving::Switched(..) => return Poll::Ready(Ok(false)),
                Receiving::Head | Receiving::Body { .. } => {}
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// How long the upstream may be silent, while it is the one that is waited for.
    fn await_upstream(&self, awaited: Option<Awaited>) {
        let due = match awaited {
            Some(Awaited::Body) => Stamp::NEVER,
            Some(Awaited::Upstream | Awaited::Invitation) | None => {
                telemetry::now().plus(self.exchange.own.group.settings.response_timeout)
            }
        };
        self.exchange.run.set_due(due);
    }

    /// Sends what can be sent of the request; gives what the rest of it waits for.
    fn poll_request(
        &mut self,
        context: &mut Context<'_>,
    ) -> Result<Option<Awaited>, UpstreamFault> {
        while self.sending == SendState::Sending {
            match self.request.poll_send(&mut self.connection, context) {
                Ok(Sending::Sent) => self.sending = SendState::Sent,
                Ok(Sending::Waits(Awaited::Invitation)) => self.exchange.assignment.invite(),
                Ok(Sending::Waits(awaited)) => return Ok(Some(awaited)),
                Err(Unsent::Body) => return Err(UpstreamFault::Body),
                Err(Unsent::Connection) => self.sending = SendState::Broken,
            }
        }
        Ok(None)
    }

    /// Whether more of the response is to be read: the client takes it, or it can be stored for the client.
    fn has_room(&self) -> bool {
        match self.receiving {
            Receiving::Body { is_live: true, .. } => self
                .exchange
                .assignment
                .writer
                .has_room(Some(STREAM_BYTES_MAX)),
            Receiving::Body { .. } => self.exchange.assignment.writer.has_room(None),
            Receiving::Head | Receiving::Whole { .. } | Receiving::Switched(..) => true,
        }
    }

    /// Reads once.
    fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Result<(), UpstreamFault>> {
        let mut scratch = self.exchange.driver.take_scratch();
        let read = self.connection.poll_read(context, &mut scratch.input);
        let received = match read {
            Poll::Ready(Ok(bytes @ 1..)) => Poll::Ready(self.receive(&scratch.input[..bytes])),
            Poll::Ready(Ok(_)) => Poll::Ready(self.receive_end()),
            Poll::Ready(Err(_)) => Poll::Ready(self.receive_failure()),
            Poll::Pending => Poll::Pending,
        };
        self.exchange.driver.put_scratch(scratch);
        received
    }

    fn receive(&mut self, input: &[u8]) -> Result<(), UpstreamFault> {
        if !self.has_response {
            self.has_response = true;
            let facts = &mut self.exchange.assignment.exchange.record.upstream;
            facts.ttfb = telemetry::now().since(self.began);
        }
        if !self.partial.is_empty() {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(input);
            return self.receive_joined(&whole);
        }
        self.receive_joined(input)
    }

    /// Takes bytes from the beginning of a head, or of a piece of the body, on.
    fn receive_joined(&mut self, mut input: &[u8]) -> Result<(), UpstreamFault> {
        while matches!(self.receiving, Receiving::Head) {
            if input.is_empty() {
                return Ok(());
            }
            match self.receive_head(input)? {
                Some(bytes) => input = &input[bytes..],
                None => {
                    self.partial.extend_from_slice(input);
                    return Ok(());
                }
            }
        }
        self.receive_body(input)
    }
}

impl Relay<'_, '_> {
    /// Takes a head from the front of `input`: its length, once it is whole. A final one begins the response.
    fn receive_head(&mut self, input: &[u8]) -> Result<Option<usize>, UpstreamFault> {
        let limits = &self.exchange.driver.config().limits;
        let asked = match self.exchange.assignment.exchange.head().is_head() {
            _ if self.exchange.upgrade.is_some() => Asked::Upgrade,
            true => Asked::Head,
            false => Asked::Other,
        };
        let mut fields = self.exchange.own.fields.take();
        let parsed = UpstreamResponse::parse(input, &mut self.seen, asked, limits, &mut fields);
        let response = match parsed {
            Ok(UpstreamHeadStep::Complete(response)) => response,
            Ok(UpstreamHeadStep::Partial) => {
                self.exchange.own.fields.set(fields);
                return Ok(None);
            }
            Err(fault) => return Err(UpstreamFault::Malformed(fault)),
        };
        if response.is_interim() {
            if response.status == EARLY_HINTS {
                self.exchange.assignment.writer.early_hints(fields);
            }
            return Ok(Some(response.head_bytes));
        }
        self.exchange.note_response(&response, input);
        if let Some(upgrade) = &self.exchange.upgrade {
            match response.status {
                101 if upgrade.wanted.agree(&mut fields).is_err() => {
                    return Err(UpstreamFault::Malformed(Broken::SwitchForm));
                }
                101 => {
                    self.receiving = Receiving::Switched(fields, Vec::new());
                    return Ok(Some(response.head_bytes));
                }
                200..300 if !upgrade.wanted.takes_success() => {
                    return Err(UpstreamFault::NotSwitched);
                }
                _ => {}
            }
        }
        if self
            .exchange
            .may_retry_status(response.status, self.request.body())
        {
            return Err(UpstreamFault::Status(response.status));
        }
        let body = UpstreamBody::new(response.body, limits);
        self.begin_response(&response, response.reason.of(input), &mut fields);
        self.exchange.own.fields.set(fields);
        self.exchange.run.set_endless(response.is_event_stream);
        self.receiving = Receiving::Body {
            body,
            keeps: response.keeps,
            is_live: response.is_live,
        };
        Ok(Some(response.head_bytes))
    }

    fn begin_response(
        &mut self,
        response: &UpstreamResponse,
        reason: &[u8],
        fields: &mut FieldLines,
    ) {
        let declared = Declared {
            content_length: response.content_length,
            date: response.has_date,
            server: response.has_server,
            ..Declared::default()
        };
        if let Some(length) = response.content_length {
            fields.push_decimal(b"Content-Length", length);
        }
        self.exchange.change_fields(response, fields);
        let writer = &mut self.exchange.assignment.writer;
        writer.begin(response.status, reason, fields, declared);
        fields.clear();
    }

    /// Takes a piece of the body.
    fn receive_body(&mut self, mut input: &[u8]) -> Result<(), UpstreamFault> {
        if let Receiving::Switched(_, rest) = &mut self.receiving {
            rest.extend_from_slice(input);
            return Ok(());
        }
        let Receiving::Body {
            body,
            keeps,
            is_live,
        } = &mut self.receiving
        else {
            return Ok(());
        };
        loop {
            let decoded = body.decode(input).map_err(UpstreamFault::Malformed)?;
            let data = &input[decoded.data.clone()];
            let writer = &mut self.exchange.assignment.writer;
            if !data.is_empty() && writer.write(&data, Amount::OneOfMany) == Taken::Gone {
                // The rest is not worth an upstream's time.
                return Err(UpstreamFault::Unwanted);
            }
            input = &input[decoded.consumed..];
            if body.is_done() {
                let trailers = body.trailers();
                if !trailers.is_empty() {
                    self.exchange.assignment.writer.trailers(&trailers);
                }
                // What stands behind a response belongs to no exchange.
                let keeps = *keeps && input.is_empty();
                self.receiving = Receiving::Whole { keeps };
                return Ok(());
            }
            if decoded.consumed == 0 || input.is_empty() {
                break;
            }
        }
        if *is_live && !self.exchange.assignment.writer.head_is_sent() {
            self.exchange.assignment.writer.open_stream();
        }
        Ok(())
    }

    /// The connection has failed: what would end with it has not, under TLS without the notice of an end too.
    fn receive_failure(&mut self) -> Result<(), UpstreamFault> {
        match &self.receiving {
            Receiving::Body { .. } => Err(UpstreamFault::Malformed(Broken::BodyCut)),
            _ => self.receive_end(),
        }
    }

    /// The upstream has ended its side.
    fn receive_end(&mut self) -> Result<(), UpstreamFault> {
        match &mut self.receiving {
            Receiving::Head if !self.has_response => Err(UpstreamFault::Closed),
            Receiving::Head => Err(UpstreamFault::Malformed(Broken::HeadCut)),
            Receiving::Body { body, .. } => {
                body.close().map_err(UpstreamFault::Malformed)?;
                self.receiving = Receiving::Whole { keeps: false };
                Ok(())
            }
            Receiving::Whole { .. } | Receiving::Switched(..) => Ok(()),
        }
    }
}
