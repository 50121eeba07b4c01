//! A request's body that its application takes while it arrives, on a connection of one stream at a time.
//!
//! Decodes what comes and gives it to the `BodyStream`, as long as that takes more. The pace that the client has to keep
//! holds only while the application does not make it wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{BodyDecoder, BodyFraming};
use queueing::Pace;
use telemetry::Stamp;
use telemetry::counters::Timeout;

use super::body::NoBody;
use super::{Connection, Woken};
use crate::driver::Driver;
use crate::exchange::{Body, BodyEnd, BodyStream, Exchange};
use crate::refusal::Refusal;
use crate::sync::invariant;

/// A body of a declared length up to this is received whole, before its application begins: that costs little, and a
/// slow client costs the application nothing.
const WHOLE_BYTES_MAX: u64 = 64 << 10;
/// Reads of one body in one turn, before the others get theirs.
const READS_A_TURN: usize = 4;

/// A body on its way from the connection to the application.
pub(super) struct StreamedBody {
    pub(super) body: Arc<BodyStream>,
    decoder: BodyDecoder,
    /// What has come behind the body: the next request.
    pub(super) rest: Vec<u8>,
    pace: Pace,
    moved: Stamp,
    alarm: Option<Pin<Box<tokio::time::Sleep>>>,
    /// It will not come to its end: what follows on the connection may be neither its rest nor a request.
    is_broken: bool,
}

/// Whether an application, or an upstream, takes the body of an exchange while it arrives.
pub(crate) fn is_streamed(driver: &Driver, exchange: &Exchange) -> bool {
    let index = exchange.head().index;
    let is_long = match index.body {
        // What follows a WebSocket handshake are frames.
        _ if index.is_websocket => false,
        // Its application decides whether the client is to send it.
        BodyFraming::Length(1..) if index.expect_continue => true,
        BodyFraming::Chunked => true,
        BodyFraming::Length(bytes) => bytes > WHOLE_BYTES_MAX,
        BodyFraming::None => false,
    };
    let pool = driver.pool_of(exchange);
    is_long
        && match pool.upstream() {
            Some(group) => {
                let guards = &driver.shared.guards;
                let route = exchange.record.route;
                guards.streams_requests(route, group.streams_requests())
                    || group.takes_call(exchange)
            }
            None => pool.has_event_loop() && !driver.config().asgi.buffers_requests,
        }
}

/// The pace that the client has to keep in a body that is taken while it arrives. A call of gRPC may be silent for as long
/// as a tunnel, in both directions.
pub(super) fn streamed_pace(driver: &Driver, exchange: &Exchange, now: Stamp) -> Pace {
    let timeouts = &driver.config().timeouts;
    match driver.pool_of(exchange).upstream() {
        Some(group) if group.takes_call(exchange) => Pace::new(now, group.tunnel_idle(), 0),
        _ => Pace::new(now, timeouts.body, timeouts.body_rate_min),
    }
}

impl StreamedBody {
    /// Of an exchange whose head is complete; `input` has come behind it. `exchange` gets its body, or what is to give
    /// it.
    pub(super) fn new(
        exchange: &mut Exchange,
        body: Arc<BodyStream>,
        driver: &Driver,
        input: &[u8],
    ) -> Result<Self, http::Refusal> {
        let now = telemetry::now();
        let limits = driver.body_limits(exchange.record.route);
        let mut streamed = Self {
            decoder: BodyDecoder::new(exchange.head().index.body, &limits)?,
            body,
            rest: Vec::new(),
            pace: streamed_pace(driver, exchange, now),
            moved: now,
            alarm: None,
            is_broken: false,
        };
        let mut whole = Vec::new();
        streamed.decode(input, now, |piece| whole.extend_from_slice(piece))?;
        if streamed.is_done() {
            exchange.record.request_bytes += streamed.body.received_bytes();
            if !whole.is_empty() {
                exchange.body = Body::Memory(whole);
            }
        } else {
            streamed.body.push(whole);
            exchange.streamed = Some(Arc::clone(&streamed.body));
        }
        Ok(streamed)
    }

    /// Whether all of the body has come.
    pub(super) fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// Whether receiving it has failed.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// When bytes of it came last.
    pub(super) fn moved(&self) -> Stamp {
        self.moved
    }

    fn decode(
        &mut self,
        input: &[u8],
        now: Stamp,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), http::Refusal> {
        let mut used = 0;
        while !self.decoder.is_done() && used < input.len() {
            let decoded = self.decoder.decode(&input[used..])?;
            take(&input[used..][decoded.data]);
            used += decoded.consumed;
        }
        self.rest.extend_from_slice(&input[used..]);
        self.moved = now;
        self.body.count(used as u64);
        self.pace.advance(used as u64, now);
        Ok(())
    }

    /// Receives as much as the application takes. Ready once nothing more comes; not to be called behind an error.
    pub(super) fn poll(
        &mut self,
        connection: &Connection,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), NoBody>> {
        invariant!(!self.is_broken, "a body that is broken is received");
        let received = self.poll_reads(connection, context);
        self.is_broken = matches!(received, Poll::Ready(Err(_)));
        received
    }

    fn poll_reads(
        &mut self,
        connection: &Connection,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), NoBody>> {
        for _ in 0..READS_A_TURN {
            if self.is_done() {
                self.body.end(BodyEnd::Complete);
                return Poll::Ready(Ok(()));
            }
            let now = telemetry::now();
            if !self.body.takes_more() {
                self.pace.hold(now);
                return Poll::Pending;
            }
            let is_uninvited = self.body.is_uninvited();
            match is_uninvited {
                true => self.pace.hold(now),
                false => self.pace.resume(now),
            }
            let mut scratch = connection.driver.take_scratch();
            let read = connection.transport.poll_read(context, &mut scratch.input);
            let decoded = match read {
                Poll::Ready(Ok(bytes @ 1..)) => {
                    let mut piece = Vec::new();
                    let input = &scratch.input[..bytes];
                    let decoded = self.decode(input, now, |data| piece.extend_from_slice(data));
                    self.body.push(piece);
                    Some(decoded)
                }
                _ => None,
            };
            connection.driver.put_scratch(scratch);
            match (decoded, read) {
                (Some(decoded), _) => decoded?,
                (None, Poll::Pending) if is_uninvited => return Poll::Pending,
                (None, Poll::Pending) => return self.poll_pace(connection, context),
                (None, Poll::Ready(Ok(_))) => return Poll::Ready(Err(Woken::End.stop().into())),
                (None, Poll::Ready(Err(_))) => {
                    return Poll::Ready(Err(Woken::Failed.stop().into()));
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether the client keeps its pace.
    fn poll_pace(
        &mut self,
        connection: &Connection,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), NoBody>> {
        let now = telemetry::now();
        let left = self.pace.deadline().since(now);
        if self.pace.deadline() > now {
            // A timer of its own: the deadline of the connection is that of the response.
            let due = tokio::time::Instant::now() + Duration::from_nanos(left.0);
            let alarm = self
                .alarm
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            alarm.as_mut().reset(due);
            if alarm.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(Err(NoBody::Refused(too_slow(
            &connection.driver,
            self.moved,
            now,
        ))))
    }
}

/// Refuses a body that has not kept its pace, of which bytes came last when it `moved`.
pub(super) fn too_slow(driver: &Driver, moved: Stamp, now: Stamp) -> Refusal {
    driver.stats().timed_out(Timeout::Body);
    match now.since(moved) >= driver.config().timeouts.body {
        true => Refusal::BODY_SILENT,
        false => Refusal::BODY_SLOW,
    }
}
