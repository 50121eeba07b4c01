//! The driver's side of a WebSocket connection: it decodes what the client sends, answers pings and close frames, and
//! sees to the times that the client and the application have.
//!
//! `WebSocketSession` takes bytes that have arrived and the time, and adds frames and messages to the
//! `WebSocketChannel`; it knows neither socket nor stream. Here is also the connection of HTTP/1 that it has for
//! itself; over HTTP/2 it is a stream (`h2::websocket`).
//!
//! ```text
//! Open ──a close frame, of either end──► Closing ──both, or too late──► Over ──the application ends──► the record
//!   └──────────────── the connection is lost ─────────────────────────► Over
//! ```

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use config::typed::WebSocketConfig;
use http::websocket::{Closing, Event, MessageDecoder, MessageKind, Opcode, Role, WebSocketFault};
use telemetry::counters::{Doing, Timeout};
use telemetry::{Ending, Nanos, Stamp, WebSocketFacts};

use super::offloaded::Offloaded;
use super::{Connection, Stop, Then, Woken};
use crate::driver::{Driver, ServingState};
use crate::exchange::ExchangeRecord;
use crate::exchange::stream::Finished;
use crate::response::Progress;
use crate::websocket::WebSocketChannel;

/// How long the client has to answer a close frame.
const CLOSE_TIMEOUT: Nanos = Nanos::from_secs(10);
/// Reads and sends of one connection in one turn, before the others get theirs.
const ROUNDS_A_TURN: usize = 8;
/// Bytes of one offer.
const OFFER_BYTES: u64 = 256 << 10;
/// The server ends.
const GOING_AWAY: u16 = 1001;
/// Another process serves in the place of this one: the client may come again at once.
const SERVICE_RESTART: u16 = 1012;
/// The server cannot go on with the connection.
const INTERNAL_ERROR: u16 = 1011;
/// What the application hears of a connection without a close frame of the client.
const ABNORMAL: u16 = 1006;

/// One WebSocket connection on its driver.
pub(super) struct WebSocketSession {
    pub(super) channel: Arc<WebSocketChannel>,
    decoder: MessageDecoder,
    /// Received and not decoded: a part of a frame, or what the application has no room for.
    input: Vec<u8>,
    /// A message that comes in several pieces.
    message: Vec<u8>,
    config: WebSocketConfig,
    stage: SessionStage,
    /// When something has come last.
    received: Stamp,
    /// When the client was asked for a sign of life.
    pinged: Option<Stamp>,
    /// When the connection is closed because its process ends.
    drains: Stamp,
    /// Nothing is read, because the application takes nothing: no sign of life of the client can be seen, and none is
    /// asked for.
    is_paused: bool,
    /// Since when the client takes nothing of what waits for it.
    blocked: Option<Stamp>,
    /// The event loop is to be woken for a message.
    is_loop_awaited: bool,
    received_bytes: u64,
    pub(super) sent_bytes: u64,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SessionStage {
    Open,
    /// A close frame was sent. `due`: when the client's is waited for no longer.
    Closing {
        due: Stamp,
    },
    /// Nothing more is read. `due`: when the application is cancelled.
    Over {
        due: Stamp,
        is_lost: bool,
    },
}

/// What ends the sessions of a driver.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct SessionDrain {
    /// Code of the close frame.
    code: u16,
    /// The share of `ws_drain` before this connection's turn.
    share: f64,
    /// The process has no time left.
    is_at_once: bool,
}

impl WebSocketSession {
    /// Behind the handshake, at `now`.
    pub(super) fn new(
        channel: Arc<WebSocketChannel>,
        config: WebSocketConfig,
        input: Vec<u8>,
        now: Stamp,
    ) -> Self {
        let context = channel.deflate().map(|deflate| deflate.client.context);
        Self {
            channel,
            decoder: MessageDecoder::new(Role::Server, config.message_bytes_max, context),
            input,
            message: Vec::new(),
            config,
            stage: SessionStage::Open,
            received: now,
            pinged: None,
            drains: Stamp::NEVER,
            is_paused: false,
            blocked: None,
            is_loop_awaited: false,
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// Whether more is to be read at `now`.
    pub(super) fn takes_more(&mut self, now: Stamp) -> bool {
        if std::mem::replace(&mut self.is_paused, self.channel.is_full()) {
            // What the client has sent meanwhile is about to be seen.
            (self.received, self.pinged) = (now, None);
        }
        !self.is_over() && self.input.len() < OFFER_BYTES as usize && self.channel.takes_more()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, SessionStage::Over { .. })
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self.stage, SessionStage::Over { is_lost: true, .. })
    }

    /// Bytes have come.
    pub(super) fn receive(&mut self, data: &mut [u8], now: Stamp) {
        self.received = now;
        self.pinged = None;
        self.received_bytes += data.len() as u64;
        if !self.input.is_empty() {
            self.input.extend_from_slice(data);
            return self.decode_input(now);
        }
        let consumed = self.decode(data, now);
        self.input.extend_from_slice(&data[consumed..]);
    }

    /// Decodes what could not be decoded before.
    pub(super) fn decode_input(&mut self, now: Stamp) {
        if self.input.is_empty() {
            return;
        }
        let mut input = std::mem::take(&mut self.input);
        let consumed = self.decode(&mut input, now);
        if consumed < input.len() {
            input.drain(..consumed);
            self.input = input;
        }
    }

    /// Decodes as long as there is room for messages; gives the bytes that are dealt with.
    fn decode(&mut self, data: &mut [u8], now: Stamp) -> usize {
        let mut consumed = 0;
        while self.channel.takes_more() && !self.is_over() {
            let decoded = self
                .decoder
                .decode(&mut data[consumed..], &mut self.message);
            let received = match decoded {
                Ok(received) => received,
                Err(fault) => {
                    self.refuse(fault, now);
                    return data.len();
                }
            };
            consumed += received.consumed;
            let Some(event) = received.event else { break };
            match event {
                Event::Text(payload) => {
                    let payload = payload.to_vec();
                    self.is_loop_awaited |= self.channel.push_message(MessageKind::Text, payload);
                }
                Event::Binary(payload) => {
                    let payload = payload.to_vec();
                    self.is_loop_awaited |= self.channel.push_message(MessageKind::Binary, payload);
                }
                Event::Ping(payload) => self.channel.push_control(Opcode::Pong, payload),
                Event::Pong(_) => {}
                Event::Close(frame) => {
                    self.channel.client_closed(frame.code, frame.reason);
                    self.end(now, false);
                }
            }
        }
        if !self.decoder.is_within_message() {
            // A silent connection holds no buffer.
            self.message = Vec::new();
        }
        consumed
    }

    /// Whether the event loop is to be woken for messages that have come since this was asked last.
    pub(super) fn take_loop_awaited(&mut self) -> bool {
        std::mem::take(&mut self.is_loop_awaited)
    }

    fn refuse(&mut self, fault: WebSocketFault, now: Stamp) {
        // The reason is for the log of the application; the client gets the code.
        let code = fault.close_code();
        self.channel.close_by_server(code, code, fault.text());
        // RFC 6455 section 7.1.7: nothing that follows is read.
        self.end(now, false);
    }

    /// The connection is gone.
    pub(super) fn lose(&mut self, now: Stamp) {
        match self.stage {
            SessionStage::Over { is_lost: true, .. } => {}
            SessionStage::Over { due, .. } => {
                self.channel.lost();
                self.stage = SessionStage::Over { due, is_lost: true };
            }
            _ => {
                self.channel.lost();
                self.end(now, true);
            }
        }
    }

    fn end(&mut self, now: Stamp, is_lost: bool) {
        // Before the client can see the end, and come again.
        self.channel.leave();
        let due = now.plus(self.config.close_timeout);
        self.stage = SessionStage::Over { due, is_lost };
        (self.input, self.message) = (Vec::new(), Vec::new());
    }

    /// Some of what waits was sent, or nothing because the client takes nothing.
    pub(super) fn has_sent(&mut self, bytes: u64, now: Stamp) {
        self.sent_bytes += bytes;
        self.blocked = match (bytes, self.blocked) {
            (0, None) => Some(now),
            (0, since) => since,
            _ => None,
        };
    }

    /// Nothing waits to be sent.
    pub(super) fn is_flushed(&mut self) {
        self.blocked = None;
    }

    /// Does what is due at `now`. Whether the client has kept the connection waiting for too long.
    pub(super) fn step(&mut self, now: Stamp, drain: Option<SessionDrain>, send: Nanos) -> bool {
        match self.stage {
            SessionStage::Open if self.channel.closing() != Closing::Open => {
                // The application has closed it.
                self.stage = SessionStage::Closing {
                    due: now.plus(CLOSE_TIMEOUT),
                };
            }
            SessionStage::Open => self.step_open(now, drain),
            SessionStage::Closing { due } if due <= now => self.end(now, false),
            SessionStage::Over { due, is_lost } if due <= now => {
                self.channel.cancel();
                let due = Stamp::NEVER;
                self.stage = SessionStage::Over { due, is_lost };
            }
            SessionStage::Closing { .. } | SessionStage::Over { .. } => {}
        }
        let is_blocked = self.blocked.is_some_and(|since| since.plus(send) <= now);
        is_blocked && !self.is_lost()
    }

    fn step_open(&mut self, now: Stamp, drain: Option<SessionDrain>) {
        if let Some(drain) = drain {
            if self.drains == Stamp::NEVER {
                self.drains = now.plus(drain.wait(self.config.drain));
            }
            if self.drains <= now || drain.is_at_once {
                self.close(drain.code, now);
                return;
            }
        }
        let Some(interval) = self.ping_interval() else {
            return;
        };
        match self.pinged {
            Some(pinged) if pinged.plus(self.config.ping_timeout) <= now => {
                let reason = "the client has not answered a ping";
                self.channel
                    .close_by_server(INTERNAL_ERROR, ABNORMAL, reason);
                // RFC 6455 section 7.1.7: a client that is silent is not waited for again.
                self.end(now, false);
            }
            None if self.received.plus(interval) <= now => {
                self.pinged = Some(now);
                self.channel.push_control(Opcode::Ping, b"");
            }
            _ => {}
        }
    }

    /// After how long without a sign of life the client is asked for one.
    fn ping_interval(&self) -> Option<Nanos> {
        self.config.ping_interval.filter(|_| !self.is_paused)
    }

    /// The server begins the closing handshake.
    fn close(&mut self, code: u16, now: Stamp) {
        self.channel.close_by_server(code, code, "");
        self.stage = SessionStage::Closing {
            due: now.plus(CLOSE_TIMEOUT),
        };
    }

    /// When something is due next, if nothing comes.
    pub(super) fn due(&self, send: Nanos) -> Stamp {
        let own = match self.stage {
            SessionStage::Open => {
                let sign_of_life = match (self.ping_interval(), self.pinged) {
                    (None, _) => Stamp::NEVER,
                    (Some(_), Some(pinged)) => pinged.plus(self.config.ping_timeout),
                    (Some(interval), None) => self.received.plus(interval),
                };
                sign_of_life.min(self.drains)
            }
            SessionStage::Closing { due } | SessionStage::Over { due, .. } => due,
        };
        self.blocked.map_or(own, |since| own.min(since.plus(send)))
    }

    /// What the record has to know of the connection.
    pub(super) fn complete(&self, record: &mut ExchangeRecord) {
        let (counts, close_code) = self.channel.facts();
        record.websocket = WebSocketFacts {
            received: counts.received,
            sent: counts.sent,
            close_code: if close_code == 0 {
                ABNORMAL
            } else {
                close_code
            },
        };
        record.request_bytes += self.received_bytes;
        if self.is_lost() {
            record.end_as(Ending::PeerGone, "");
        }
    }

    /// All bytes that have left.
    pub(super) fn total_sent_bytes(&self) -> u64 {
        self.sent_bytes + self.channel.sent_bytes()
    }
}

impl SessionDrain {
    /// Whether the sessions of a driver are to end, and when the one in this slot of its table.
    pub(super) fn of(driver: &Driver, slot: usize) -> Option<Self> {
        let state = driver.state.get();
        if state == ServingState::Running {
            return None;
        }
        let code = match driver.shared.is_replaced.load(Ordering::Relaxed) {
            true => SERVICE_RESTART,
            false => GOING_AWAY,
        };
        let open = driver.table.borrow().len().max(1);
        Some(Self {
            code,
            share: (slot % open) as f64 / open as f64,
            is_at_once: state == ServingState::Aborting,
        })
    }

    /// How long this connection may stay, of the time that all of them have.
    pub(super) fn wait(self, drain: Nanos) -> Nanos {
        match self.is_at_once {
            true => Nanos::ZERO,
            false => Nanos((drain.0 as f64 * self.share) as u64),
        }
    }
}

/// A connection of HTTP/1 that has become one of WebSocket.
pub(super) struct UpgradedConnection<'a> {
    offloaded: Offloaded<'a>,
    connection: &'a Connection,
    session: WebSocketSession,
    /// The socket was full at the last offer.
    is_full: bool,
    /// Our side of the connection has ended.
    is_shut: bool,
}

impl<'a> UpgradedConnection<'a> {
    /// `input`: what has come behind the handshake.
    pub(super) fn new(
        connection: &'a Connection,
        offloaded: Offloaded<'a>,
        channel: Arc<WebSocketChannel>,
        input: Vec<u8>,
    ) -> Self {
        let config = connection.driver.config().websocket();
        Self {
            offloaded,
            connection,
            session: WebSocketSession::new(channel, config, input, telemetry::now()),
            is_full: false,
            is_shut: false,
        }
    }

    /// Serves it to its end.
    pub(super) async fn serve(mut self) -> Then {
        self.connection.driver.stats().websockets.add();
        let ended = poll_fn(|context| self.poll(context)).await;
        self.conclude(ended)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Finished, Stop>> {
        let connection = self.connection;
        let is_cut = connection.take_fired() == Some(Woken::Cut);
        let stream = self.offloaded.stream;
        // Before the looks: what comes behind them wakes this task.
        stream.ownership.watch(context);
        let now = telemetry::now();
        let send = connection.driver.config().timeouts.send;
        let drain = SessionDrain::of(&connection.driver, connection.slot);
        if self.session.step(now, drain, send) {
            connection.driver.stats().timed_out(Timeout::Send);
            self.session.lose(now);
        }
        for round in 1.. {
            // Both, whatever the first has done.
            let has_moved = [self.send(context, now), self.receive(context, now)];
            if !has_moved.contains(&true) {
                break;
            }
            if round == ROUNDS_A_TURN {
                context.waker().wake_by_ref();
                break;
            }
        }
        if self.session.take_loop_awaited() {
            connection.driver.wake_loops_later(now);
        }
        if is_cut {
            return Poll::Ready(Err(Woken::Cut.stop()));
        }
        if self.session.is_over()
            && let Some(finished) = self.finished()
        {
            return Poll::Ready(Ok(finished));
        }
        connection.now_doing(Doing::WebSocket, self.session.due(send));
        Poll::Pending
    }

    /// Sends what waits; whether some of it left.
    fn send(&mut self, context: &mut Context<'_>, now: Stamp) -> bool {
        let transport = &self.connection.transport;
        if self.is_full {
            match transport.poll_writable(context) {
                Poll::Ready(Ok(_)) => self.is_full = false,
                Poll::Ready(Err(_)) => {
                    self.session.lose(now);
                    return false;
                }
                Poll::Pending => return false,
            }
        }
        let sent = if transport.has_unsent() {
            let flushed = transport.send(&[]);
            flushed.map(|_| match transport.has_unsent() {
                true => (Progress::Blocked, 0),
                false => (Progress::More, 0),
            })
        } else {
            let Some(mut parts) = self.offloaded.stream.pending().take_some() else {
                self.session.is_flushed();
                return false;
            };
            let sent = transport.send_parts(&mut parts, OFFER_BYTES);
            let memory = &self.connection.driver.shared.replies_memory;
            self.offloaded.stream.put_back(parts, memory);
            sent
        };
        match sent {
            Ok((progress, bytes)) => {
                self.session.has_sent(bytes, now);
                self.is_full = progress == Progress::Blocked;
                if self.is_full {
                    transport.is_full();
                }
                true
            }
            Err(_) => {
                self.session.lose(now);
                false
            }
        }
    }

    /// Reads what has come; whether there was something.
    fn receive(&mut self, context: &mut Context<'_>, now: Stamp) -> bool {
        self.session.decode_input(now);
        if !self.session.takes_more(now) {
            return false;
        }
        let mut scratch = self.connection.driver.take_scratch();
        let read = (self.connection.transport).poll_read(context, &mut scratch.input);
        let has_come = match read {
            Poll::Ready(Ok(bytes @ 1..)) => {
                self.session.receive(&mut scratch.input[..bytes], now);
                true
            }
            Poll::Ready(_) => {
                self.session.lose(now);
                false
            }
            Poll::Pending => false,
        };
        self.connection.driver.put_scratch(scratch);
        has_come
    }

    /// Ends our side once all has left, and gives the exchange once the application has ended.
    fn finished(&mut self) -> Option<Finished> {
        let transport = &self.connection.transport;
        let mut pending = self.offloaded.stream.pending();
        let is_out = self.session.is_lost() || (!pending.has_unsent() && !transport.has_unsent());
        if !is_out {
            return None;
        }
        let finished = pending.take_finished();
        drop(pending);
        if !std::mem::replace(&mut self.is_shut, true) {
            match self.session.is_lost() {
                true => transport.reset(),
                // RFC 6455 section 7.1.1: the server closes first.
                false => transport.close_write(),
            }
        }
        finished
    }

    fn conclude(&mut self, ended: Result<Finished, Stop>) -> Then {
        let sent_bytes = self.session.total_sent_bytes();
        let stop = match ended {
            Ok(mut finished) => {
                self.session.complete(&mut finished.exchange.record);
                self.connection.end_exchange(finished.exchange, sent_bytes);
                return match self.session.is_lost() {
                    true => Then::Close,
                    false => Then::Linger,
                };
            }
            Err(stop) => stop,
        };
        let memory = &self.connection.driver.shared.replies_memory;
        match self.offloaded.take_over(stop) {
            Ok(mut finished) => {
                self.session.complete(&mut finished.exchange.record);
                finished.exchange.record.end_as(stop.ending, stop.cause);
                self.connection.end_exchange(finished.exchange, sent_bytes);
            }
            Err(stop) => {
                let complete = |record: &mut _| self.session.complete(record);
                self.offloaded.end_with(Some(stop), sent_bytes, complete);
            }
        }
        let stream = self.offloaded.stream;
        stream.abandon(crate::exchange::stream::CLIENT_GONE, memory);
        Then::Close
    }
}
