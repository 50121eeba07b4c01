//! A connection that has become another protocol's: bytes move between a client and an upstream, and nobody here reads
//! them.
//!
//! `TunnelPump` moves them between a `ClientEnd`, of HTTP/1 or of a stream of HTTP/2, and the connection to the upstream.
//! Each direction has one buffer, which is read into only when it is empty, and ends by itself: an end that was read is
//! passed on, and the other direction lives on. Here is also the client's end of HTTP/1.
//!
//! ```text
//! Open ──the source has ended──► Ending ──all of it is out──► Shut
//! ```

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use telemetry::counters::{Doing, Timeout};
use telemetry::{Ending, Nanos, Stamp};

use super::websocket::SessionDrain;
use super::{Connection, Then, Woken};
use crate::driver::Driver;
use crate::exchange::Exchange;
use crate::tunnel::{Tunnel, TunnelPermit};
use crate::upstream::UpstreamConnection;

/// Reads of each direction in one turn, before other connections get theirs.
const ROUNDS_A_TURN: usize = 8;
/// Why a tunnel ends in which nothing moves.
const SILENT: &str = "nothing has moved in the tunnel for tunnel_idle";
/// Why a tunnel ends whose upstream cannot be watched here.
pub(super) const UNWATCHED: &str = "the connection to the upstream could not be taken over";

/// The client's end of a tunnel.
pub(super) trait ClientEnd {
    /// Reads what has come; 0 bytes at the end of the client's side.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>>;
    /// Offers bytes; gives how many were taken, at least one.
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Sends what was taken and waits here for the socket.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ends our side, once all bytes that were taken are out.
    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// One direction of a tunnel.
#[derive(Default)]
struct Direction {
    /// Read and not taken by the other end, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    stage: DirectionStage,
    /// Bytes that have been taken.
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum DirectionStage {
    #[default]
    Open,
    Ending,
    Shut,
}

/// How a tunnel has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TunnelEnd {
    /// Both sides have ended theirs.
    Whole,
    ClientGone,
    UpstreamGone,
    Silent,
    Drained,
    Cut,
}

/// A tunnel at work.
pub(super) struct TunnelPump {
    exchange: Box<Exchange>,
    upstream: UpstreamConnection,
    up: Direction,
    down: Direction,
    idle: Nanos,
    /// When something has moved last.
    moved: Stamp,
    /// When it ends because its process does.
    drains: Stamp,
    _permit: TunnelPermit,
}

impl Direction {
    /// Moves bytes until one of the ends has to be waited for; whether something has moved.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        driver: &Driver,
        mut read: impl FnMut(&mut Context<'_>, &mut [u8]) -> Poll<io::Result<usize>>,
        mut write: impl FnMut(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
        mut shutdown: impl FnMut(&mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Result<bool, Failed> {
        let mut has_moved = false;
        for _ in 0..ROUNDS_A_TURN {
            if self.start < self.buffer.len() {
                match write(context, &self.buffer[self.start..]) {
                    Poll::Ready(Ok(bytes)) => {
                        self.advance(bytes);
                        has_moved = true;
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Err(Failed::Target),
                    Poll::Pending => return Ok(has_moved),
                }
            }
            match self.stage {
                DirectionStage::Shut => return Ok(has_moved),
                DirectionStage::Ending => match shutdown(context) {
                    Poll::Ready(Ok(())) => {
                        self.stage = DirectionStage::Shut;
                        return Ok(true);
                    }
                    Poll::Ready(Err(_)) => return Err(Failed::Target),
                    Poll::Pending => return Ok(has_moved),
                },
                DirectionStage::Open => {}
            }
            let mut scratch = driver.take_scratch();
            let come = read(context, &mut scratch.input);
            if let Poll::Ready(Ok(bytes @ 1..)) = come {
                self.buffer.extend_from_slice(&scratch.input[..bytes]);
            }
            driver.put_scratch(scratch);
            match come {
                Poll::Ready(Ok(0)) => self.stage = DirectionStage::Ending,
                Poll::Ready(Ok(_)) => has_moved = true,
                Poll::Ready(Err(_)) => return Err(Failed::Source),
                Poll::Pending => return Ok(has_moved),
            }
        }
        // There may be more, behind the other connections.
        context.waker().wake_by_ref();
        Ok(has_moved)
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.start += bytes;
        if self.start == self.buffer.len() {
            // A silent tunnel holds no memory.
            (self.buffer, self.start) = (Vec::new(), 0);
        }
    }
}

/// Which end of a direction has failed.
enum Failed {
    Source,
    Target,
}

impl TunnelPump {
    /// `input`: what has come of the client behind its request. On failure gives what is to be ended.
    pub(super) fn new(tunnel: Tunnel, input: Vec<u8>) -> Result<Self, Box<Exchange>> {
        let Tunnel {
            exchange,
            upstream,
            head: _,
            first,
            idle,
            permit,
        } = tunnel;
        let direction = |buffer| Direction {
            buffer,
            ..Direction::default()
        };
        match upstream.watch() {
            Ok(upstream) => Ok(Self {
                exchange,
                upstream,
                up: direction(input),
                down: direction(first),
                idle,
                moved: telemetry::now(),
                drains: Stamp::NEVER,
                _permit: permit,
            }),
            Err(_) => Err(exchange),
        }
    }

    /// Moves what can be moved; gives the end once it has come.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        driver: &Driver,
        client: &mut impl ClientEnd,
        drain: Option<SessionDrain>,
    ) -> Option<TunnelEnd> {
        if let Poll::Ready(Err(_)) = client.poll_flush(context) {
            return Some(TunnelEnd::ClientGone);
        }
        // Each end is the source of one direction and the target of the other, never both at once.
        let upstream = RefCell::new(&mut self.upstream);
        let client = RefCell::new(client);
        let up = self.up.poll(
            context,
            driver,
            |context, buffer| client.borrow_mut().poll_read(context, buffer),
            |context, bytes| {
                let slices = [IoSlice::new(bytes)];
                upstream.borrow_mut().poll_write(context, &slices)
            },
            |context| upstream.borrow_mut().poll_shutdown(context),
        );
        let down = self.down.poll(
            context,
            driver,
            |context, buffer| upstream.borrow_mut().poll_read(context, buffer),
            |context, bytes| client.borrow_mut().poll_write(context, bytes),
            |context| client.borrow_mut().poll_shutdown(context),
        );
        let now = telemetry::now();
        match (up, down) {
            (Err(Failed::Source), _) | (_, Err(Failed::Target)) => {
                return Some(TunnelEnd::ClientGone);
            }
            (Err(Failed::Target), _) | (_, Err(Failed::Source)) => {
                return Some(TunnelEnd::UpstreamGone);
            }
            (Ok(false), Ok(false)) => {}
            (Ok(_), Ok(_)) => self.moved = now,
        }
        let shut = DirectionStage::Shut;
        if self.up.stage == shut && self.down.stage == shut {
            return Some(TunnelEnd::Whole);
        }
        if let Some(drain) = drain {
            if self.drains == Stamp::NEVER {
                self.drains = now.plus(drain.wait(driver.config().websocket().drain));
            }
            if self.drains <= now {
                return Some(TunnelEnd::Drained);
            }
        }
        (self.moved.plus(self.idle) <= now).then_some(TunnelEnd::Silent)
    }

    /// When something is due next, if nothing moves.
    pub(super) fn due(&self) -> Stamp {
        self.moved.plus(self.idle).min(self.drains)
    }

    /// Its exchange with what the record is to say, and the bytes that the client has taken.
    pub(super) fn conclude(self, end: TunnelEnd) -> (Box<Exchange>, u64) {
        let mut exchange = self.exchange;
        let record = &mut exchange.record;
        record.request_bytes += self.up.bytes;
        record.phases.replied = telemetry::now();
        let (ending, cause) = match end {
            TunnelEnd::Whole => (Ending::Complete, ""),
            TunnelEnd::ClientGone => (Ending::PeerGone, ""),
            TunnelEnd::UpstreamGone => (Ending::Cut, "the upstream broke the tunnel off"),
            TunnelEnd::Silent => (Ending::Timeout, SILENT),
            TunnelEnd::Drained | TunnelEnd::Cut => (Ending::Shutdown, ""),
        };
        record.end_as(ending, cause);
        (exchange, self.down.bytes)
    }
}

/// A connection of HTTP/1 that has become a tunnel.
struct TunnelConnection<'a> {
    connection: &'a Connection,
    client: H1ClientEnd<'a>,
    pump: TunnelPump,
}

struct H1ClientEnd<'a> {
    connection: &'a Connection,
    /// The socket was full at the last offer.
    is_full: bool,
}

/// Serves a connection of HTTP/1 that has become a tunnel to its end. `input`: what the client has sent behind its
/// request.
pub(super) async fn serve(connection: &Connection, tunnel: Tunnel, input: Vec<u8>) -> Then {
    connection.driver.stats().tunnels.add();
    let pump = match TunnelPump::new(tunnel, input) {
        Ok(pump) => pump,
        Err(mut exchange) => {
            exchange.record.end_as(Ending::Cut, UNWATCHED);
            connection.end_exchange(exchange, 0);
            return Then::Close;
        }
    };
    let client = H1ClientEnd {
        connection,
        is_full: false,
    };
    let tunnel = TunnelConnection {
        connection,
        client,
        pump,
    };
    tunnel.serve().await
}

impl TunnelConnection<'_> {
    async fn serve(mut self) -> Then {
        let end = poll_fn(|context| self.poll(context)).await;
        let (exchange, sent_bytes) = self.pump.conclude(end);
        if end == TunnelEnd::Silent {
            self.connection.driver.stats().timed_out(Timeout::Idle);
        }
        if matches!(end, TunnelEnd::UpstreamGone | TunnelEnd::ClientGone) {
            // What was lost on the way must not look like an end.
            self.connection.transport.reset_on_close();
        }
        self.connection.end_exchange(exchange, sent_bytes);
        Then::Close
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<TunnelEnd> {
        let connection = self.connection;
        if connection.take_fired() == Some(Woken::Cut) {
            return Poll::Ready(TunnelEnd::Cut);
        }
        let drain = SessionDrain::of(&connection.driver, connection.slot);
        let driver = &connection.driver;
        if let Some(end) = self.pump.poll(context, driver, &mut self.client, drain) {
            return Poll::Ready(end);
        }
        connection.now_doing(Doing::WebSocket, self.pump.due());
        Poll::Pending
    }
}

impl H1ClientEnd<'_> {
    /// Whether the socket may take more.
    fn poll_writable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_full {
            ready!(self.connection.transport.poll_writable(context))?;
            self.is_full = false;
        }
        Poll::Ready(Ok(()))
    }

    fn note_full(&mut self, is_full: bool) {
        self.is_full = is_full;
        if is_full {
            self.connection.transport.is_full();
        }
    }
}

impl ClientEnd for H1ClientEnd<'_> {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.connection.transport.poll_read(context, buffer)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_flush(context))?;
            ready!(self.poll_writable(context))?;
            match self.connection.transport.send(&[IoSlice::new(bytes)])? {
                0 => self.note_full(true),
                taken => return Poll::Ready(Ok(taken)),
            }
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = &self.connection.transport;
        while transport.has_unsent() {
            ready!(self.poll_writable(context))?;
            transport.send(&[])?;
            self.note_full(transport.has_unsent());
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(context))?;
        self.connection.transport.close_write();
        Poll::Ready(Ok(()))
    }
}
