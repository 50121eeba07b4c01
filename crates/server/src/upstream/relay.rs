//! One try of a request at one upstream: the request goes out over a connection, or over a stream of one of HTTP/2, the
//! response comes in and leaves through the exchange's writer.
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
use telemetry::{Nanos, Stamp};

use super::connection::UpstreamConnection;
use super::exchange::{FailedTry, UpstreamExchange};
use super::fault::UpstreamFault;
use super::http2_stream::Http2Stream;
use super::request::{Awaited, OutgoingRequest, PieceFraming, RequestBody, Sending, Unsent};
use crate::exchange::stream::StreamEvent;
use crate::response::{Amount, Declared, Piece, ResponseWriter, Taken};

/// The status of early hints (RFC 8297).
const EARLY_HINTS: u16 = 103;
/// Reads of one response in one turn of the driver, before others get theirs.
const READS_A_TURN: usize = 8;
/// How soon after its request the end of a kept connection is one that has crossed it: two round trips, but at least as long
/// as this driver may be late, and not as long as a connection that was hard to make would say.
const STALE_MIN: Nanos = Nanos::from_ms(20);
const STALE_MAX: Nanos = Nanos::from_ms(500);
/// Unsent bytes of a stream that is passed on at once, beyond which no more of it is read.
const STREAM_BYTES_MAX: u64 = 64 << 10;

/// One try.
pub(super) struct Relay<'a, 'x> {
    pub(super) exchange: &'a mut UpstreamExchange<'x>,
    pub(super) link: UpstreamLink,
    request: OutgoingRequest<'a>,
    sending: SendState,
    pub(super) receiving: Receiving,
    /// The beginning of a head that has not come whole, and how much of it was looked at.
    partial: Vec<u8>,
    seen: usize,
    /// When the try began.
    began: Stamp,
    /// How long the upstream may be silent.
    silence_max: Nanos,
    has_response: bool,
}

/// What a try goes over.
pub(super) enum UpstreamLink {
    /// A connection of HTTP/1.1, for the time of the try.
    Http1(UpstreamConnection),
    /// A stream of HTTP/2, on which the head of the request has been sent.
    Http2(Http2Stream),
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
pub(super) enum Receiving {
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
    /// A try that began at `began`; `head` is what is still to be sent of the head of the request.
    pub(super) fn new(
        exchange: &'a mut UpstreamExchange<'x>,
        link: UpstreamLink,
        head: Vec<u8>,
        body: &'a RequestBody,
        began: Stamp,
    ) -> Self {
        let framing = match link {
            UpstreamLink::Http1(_) => PieceFraming::Http1,
            UpstreamLink::Http2(_) => PieceFraming::Http2,
        };
        let pool = exchange.driver.shared.openers.clone();
        let group = &exchange.own.group;
        // A call of gRPC may have no message for long; its client says how long it waits (`grpc-timeout`).
        let silence_max = match group.takes_call(&exchange.assignment.exchange) {
            true => group.settings.tunnel_idle,
            false => group.settings.response_timeout,
        };
        Self {
            request: OutgoingRequest::new(head, body, framing, pool),
            exchange,
            link,
            sending: SendState::Sending,
            receiving: Receiving::Head,
            partial: Vec::new(),
            seen: 0,
            began,
            silence_max,
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
        match (relayed, self.receiving, self.link) {
            (Ok(_), Receiving::Switched(fields, rest), UpstreamLink::Http1(connection)) => {
                Ok(Relayed::Switched(connection, fields, rest))
            }
            (Ok(true), _, UpstreamLink::Http1(connection)) if self.sending == SendState::Sent => {
                Ok(Relayed::Kept(connection))
            }
            (Ok(_), _, _) => Ok(Relayed::Ended),
            (Err(fault), _, link) => {
                let is_reused = self.exchange.assignment.exchange.record.upstream.reused;
                let lasted = telemetry::now().since(self.began);
                let failed = FailedTry {
                    fault,
                    progress,
                    is_stale: is_reused && is_end_of_kept(fault, lasted, link.made_in()),
                };
                if let UpstreamLink::Http2(stream) = link {
                    stream.retire_after(fault);
                }
                Err(failed)
            }
        }
    }

    fn progress(&self, fault: UpstreamFault) -> Progress {
        match fault {
            UpstreamFault::Status(status) => Progress::Answered { status },
            // What has begun to come cannot be told from what has an effect.
            _ if self.has_response => Progress::Delivering,
            UpstreamFault::Silent => Progress::TimedOut,
            UpstreamFault::GoneAway | UpstreamFault::Refused => {
                Progress::NoResponse { is_written: false }
            }
            _ => Progress::NoResponse {
                is_written: self.request.sent_bytes > 0
                    || matches!(self.link, UpstreamLink::Http2(_)),
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
                telemetry::now().plus(self.silence_max)
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
            let sent = match &mut self.link {
                UpstreamLink::Http1(connection) => self.request.poll_send(connection, context),
                UpstreamLink::Http2(stream) => self.request.poll_send_frames(stream, context),
            };
            match sent {
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
        let UpstreamLink::Http1(connection) = &mut self.link else {
            return self.poll_stream(context);
        };
        let mut scratch = self.exchange.driver.take_scratch();
        let read = connection.poll_read(context, &mut scratch.input);
        let received = match read {
            Poll::Ready(Ok(bytes @ 1..)) => Poll::Ready(self.receive(&scratch.input[..bytes])),
            Poll::Ready(Ok(_)) => Poll::Ready(self.receive_end()),
            Poll::Ready(Err(_)) => Poll::Ready(self.receive_failure()),
            Poll::Pending => Poll::Pending,
        };
        self.exchange.driver.put_scratch(scratch);
        received
    }

    /// Something has come of the response.
    pub(super) fn note_received(&mut self) {
        if !self.has_response {
            self.has_response = true;
            let facts = &mut self.exchange.assignment.exchange.record.upstream;
            facts.ttfb = telemetry::now().since(self.began);
        }
    }

    fn receive(&mut self, input: &[u8]) -> Result<(), UpstreamFault> {
        self.note_received();
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
    pub(super) fn receive_head(&mut self, input: &[u8]) -> Result<Option<usize>, UpstreamFault> {
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
        self.request.body().let_go();
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
            has_trailers: response.has_trailers
                && self.exchange.assignment.exchange.head().takes_trailers(),
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
        let Receiving::Body { body, keeps, .. } = &mut self.receiving else {
            return Ok(());
        };
        loop {
            let decoded = body.decode(input).map_err(UpstreamFault::Malformed)?;
            let data = &input[decoded.data.clone()];
            write_piece(&mut self.exchange.assignment.writer, &data)?;
            input = &input[decoded.consumed..];
            if body.is_done() {
                self.exchange.assignment.writer.trailers(&body.trailers());
                // What stands behind a response belongs to no exchange.
                let keeps = *keeps && input.is_empty();
                self.receiving = Receiving::Whole { keeps };
                return Ok(());
            }
            if decoded.consumed == 0 || input.is_empty() {
                break;
            }
        }
        self.open_live();
        Ok(())
    }

    /// Has the head of a response leave whose pieces are worth nothing later, before its first piece.
    pub(super) fn open_live(&mut self) {
        let is_live = matches!(self.receiving, Receiving::Body { is_live: true, .. });
        if is_live && !self.exchange.assignment.writer.head_is_sent() {
            self.exchange.assignment.writer.open_stream();
        }
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
                // It has none: their declaration was for a body in chunks.
                self.exchange.assignment.writer.trailers(&FieldLines::new());
                self.receiving = Receiving::Whole { keeps: false };
                Ok(())
            }
            Receiving::Whole { .. } | Receiving::Switched(..) => Ok(()),
        }
    }
}

impl UpstreamLink {
    /// How long its connection took to be made, where that is known.
    fn made_in(&self) -> Nanos {
        match self {
            UpstreamLink::Http1(connection) => connection.made_in,
            UpstreamLink::Http2(_) => Nanos::ZERO,
        }
    }
}

/// Whether a fault of a try that lasted so long, over a connection that was made in that time, is the end of a connection
/// that its server had closed before it got the request. Such an end is here within a round trip. A server that ends the
/// connection later has had the request, and what it has done of it is not known.
fn is_end_of_kept(fault: UpstreamFault, lasted: Nanos, made_in: Nanos) -> bool {
    let longest = Nanos(made_in.0.saturating_mul(2)).clamp(STALE_MIN, STALE_MAX);
    match fault {
        // The server says that it has not processed the request.
        UpstreamFault::GoneAway => true,
        UpstreamFault::Closed => lasted <= longest,
        _ => false,
    }
}

/// Writes a piece of the body.
///
/// # Errors
/// The client is gone: the rest is not worth an upstream's time.
pub(super) fn write_piece(
    writer: &mut ResponseWriter,
    data: &impl Piece,
) -> Result<(), UpstreamFault> {
    match !data.bytes().is_empty() && writer.write(data, Amount::OneOfMany) == Taken::Gone {
        true => Err(UpstreamFault::Unwanted),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_kept_connection_comes_at_once() {
        let check = |fault, lasted_ms, made_in_ms, expect| {
            let (lasted, made_in) = (Nanos::from_ms(lasted_ms), Nanos::from_ms(made_in_ms));
            let found = is_end_of_kept(fault, lasted, made_in);
            assert_eq!(found, expect, "{fault:?} {lasted_ms} {made_in_ms}");
        };
        check(UpstreamFault::Closed, 0, 0, true);
        check(UpstreamFault::Closed, 20, 1, true);
        check(UpstreamFault::Closed, 21, 1, false);
        // A distant server.
        check(UpstreamFault::Closed, 150, 80, true);
        check(UpstreamFault::Closed, 161, 80, false);
        check(UpstreamFault::Closed, 501, 5_000, false);
        check(UpstreamFault::GoneAway, 5_000, 1, true);
        check(UpstreamFault::Reset, 0, 1, false);
        check(UpstreamFault::Silent, 0, 1, false);
    }
}
