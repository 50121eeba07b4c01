//! One WebSocket connection, as its driver and its event loop share it: messages that have come, frames on their way
//! out, and how it ends.
//!
//! Frames leave through the pending response of the stream, whole and in one order, whichever thread adds them. The
//! loop offers a message to a plain socket itself, once and without waiting, where nothing waits before it; all else is
//! its driver's to send. So are messages that other connections have for it in the same turn of the loop, but for the
//! first: the driver sends them together. No lock is held meanwhile. Knows no transport but for that, and no clock.
//!
//! ```text
//!  driver ── push_message ──► messages ── receive ──► event loop
//!         ◄── pending response ◄── send, close ──────┘
//! ```

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use files::Part;
use http::websocket::{
    Closing, ClosingEvent, DeflateAgreement, InvalidCloseCode, MessageEncoder, MessageKind, Opcode,
    write_close, write_control, write_message_header,
};
use telemetry::counters::EventLoopStats;

use crate::exchange::stream::{CLIENT_GONE, StreamShared};
use crate::fork;
use crate::loop_inbox::{LoopEvent, LoopInbox};
use crate::response::{Parts, Piece, ReplyMemory};
use crate::sync::lock;
use crate::transport::{DirectSocket, SendBuffers};

/// Bytes of messages that the application has not taken, beyond which the driver reads no more.
const UNREAD_BYTES_MAX: usize = 64 << 10;
/// Messages that it has not taken, beyond which the driver reads no more.
const UNREAD_LEN_MAX: usize = 128;
/// Unsent bytes beyond which `send` waits, and beyond which the driver reads no more: each ping is answered.
const UNSENT_BYTES_MAX: u64 = 64 << 10;
/// Reported where a connection has ended without a close frame of the client.
const ABNORMAL: u16 = 1006;
/// Reported where the client's close frame had no code.
const NO_CODE: u16 = 1005;

/// A WebSocket connection behind its handshake.
pub struct WebSocketChannel {
    stream: Arc<StreamShared>,
    memory: Arc<ReplyMemory>,
    inbox: Arc<LoopInbox>,
    /// Its name in events of the loop.
    key: u64,
    deflate: Option<DeflateAgreement>,
    /// Until the connection has ended.
    permit: Mutex<Option<WebSocketPermit>>,
    state: Mutex<ChannelState>,
    /// The event loop's alone.
    outgoing: Mutex<Outgoing>,
    /// Bytes that the event loop has sent itself.
    sent_bytes: AtomicU64,
}

/// What the event loop encodes and sends with.
struct Outgoing {
    encoder: MessageEncoder,
    /// The socket, where the loop may write to it.
    direct: Option<DirectSocket>,
    scratch: Option<Box<SendBuffers>>,
    /// The header of the message at hand, or all of its frame where that is compressed.
    frame: Vec<u8>,
    /// The turn of the loop in which a message was offered last.
    turn: u64,
    /// The driver is to be told of messages that were kept, with `flush`.
    is_kept: bool,
}

#[derive(Default)]
struct ChannelState {
    closing: Closing,
    messages: VecDeque<IncomingMessage>,
    unread_bytes: usize,
    /// The application waits for an event.
    is_event_awaited: bool,
    /// The driver reads no more until the application has taken some.
    is_room_awaited: bool,
    /// The driver reads no more until less is unsent.
    is_sending_awaited: bool,
    disconnect: Option<Disconnect>,
    counts: MessageCounts,
}

/// A message of the client, inflated.
#[derive(Debug, PartialEq, Eq)]
pub struct IncomingMessage {
    /// What it holds.
    pub kind: MessageKind,
    /// Its bytes; of a text they are UTF-8.
    pub payload: Vec<u8>,
}

/// How a connection has ended for its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// The status code of RFC 6455 section 7.4.
    pub code: u16,
    /// The reason, which may be empty.
    pub reason: String,
}

/// What the client does next, as far as the application sees it.
#[derive(Debug, PartialEq, Eq)]
pub enum WebSocketInput {
    /// A message.
    Message(IncomingMessage),
    /// The end. It comes again for each further call.
    Disconnect(Disconnect),
}

/// Messages of a connection, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageCounts {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// Where a message has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageSent {
    /// On its way.
    Out,
    /// Kept, and the first of those: `flush` is to follow at the end of the turn.
    Kept,
}

/// Why a frame is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFault {
    /// The connection has ended, or this end has sent its close frame.
    Closed,
    /// No close frame may carry this code.
    Code(InvalidCloseCode),
}

/// A place among the WebSocket connections that may be open, from the handshake to the end of the connection.
pub(crate) struct WebSocketPermit {
    stats: &'static EventLoopStats,
}

impl WebSocketPermit {
    /// A place, if one is free. The event loop alone takes places, and any thread gives one back: a count that is below
    /// the bound here is not above it a moment later.
    pub(crate) fn take(stats: &'static EventLoopStats, max: Option<usize>) -> Option<Self> {
        if max.is_some_and(|max| stats.websockets.count() >= max as u64) {
            stats.websockets_refused.add_from_any();
            return None;
        }
        stats.websockets.add_from_any();
        Some(Self { stats })
    }
}

impl Drop for WebSocketPermit {
    fn drop(&mut self) {
        // The counters are shared with a child that the application has forked, whose copy of this is no place.
        if !fork::is_child() {
            self.stats.websockets.take_from_any();
        }
    }
}

impl WebSocketChannel {
    pub(crate) fn new(
        stream: Arc<StreamShared>,
        memory: Arc<ReplyMemory>,
        direct: Option<DirectSocket>,
        deflate: Option<DeflateAgreement>,
        inbox: Arc<LoopInbox>,
        key: u64,
        permit: Option<WebSocketPermit>,
    ) -> Self {
        Self {
            permit: Mutex::new(permit),
            stream,
            memory,
            inbox,
            key,
            deflate,
            state: Mutex::default(),
            outgoing: Mutex::new(Outgoing {
                encoder: MessageEncoder::new(deflate.map(|deflate| deflate.server)),
                // Under TLS the driver reads while this thread would write, and the session is one thread's at a time.
                direct: direct.filter(|socket| matches!(socket, DirectSocket::Plain(_))),
                scratch: None,
                frame: Vec::new(),
                turn: 0,
                is_kept: false,
            }),
            sent_bytes: AtomicU64::new(0),
        }
    }

    /// Its name in events of the loop.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The stream of its exchange.
    pub(crate) fn stream(&self) -> &Arc<StreamShared> {
        &self.stream
    }

    fn state(&self) -> MutexGuard<'_, ChannelState> {
        lock(&self.state)
    }

    /// Event loop: what has come. `None`: nothing; `LoopEvent::Message` follows when something has.
    pub fn receive(&self) -> Option<WebSocketInput> {
        let mut state = self.state();
        let Some(message) = state.messages.pop_front() else {
            let end = state.disconnect.clone().map(WebSocketInput::Disconnect);
            state.is_event_awaited = end.is_none();
            return end;
        };
        state.unread_bytes -= message.payload.len();
        let wakes = state.is_room_awaited && !state.is_full();
        state.is_room_awaited &= !wakes;
        drop(state);
        if wakes {
            self.stream.ownership.wake();
        }
        Some(WebSocketInput::Message(message))
    }

    /// Event loop: sends a message, as far as the socket takes it; the rest is kept by reference. A text must be UTF-8.
    /// `turn` is the number of the loop's turn where another connection's step sends it: more of them may follow.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send<P: Piece>(
        &self,
        kind: MessageKind,
        payload: &P,
        turn: Option<u64>,
    ) -> Result<MessageSent, SendFault> {
        let mut outgoing = lock(&self.outgoing);
        let Outgoing {
            encoder,
            direct,
            scratch,
            frame,
            turn: last_turn,
            is_kept,
        } = &mut *outgoing;
        let keeps = turn.is_some_and(|turn| std::mem::replace(last_turn, turn) == turn);
        frame.clear();
        let data = payload.bytes();
        // A compressed frame is one buffer, another one a header and the payload where it stands.
        let payload = (!encoder.is_compressed(data.len())).then_some(payload);
        match payload {
            None => encoder.encode(kind, data, None, frame),
            Some(_) => write_message_header(kind, data.len(), None, frame),
        }
        let bytes = frame.len() + payload.map_or(0, |payload| payload.bytes().len());
        let mut state = self.state();
        if state.disconnect.is_some() || !state.closing.may_send(Opcode::Text) {
            return Err(SendFault::Closed);
        }
        state.counts.sent += 1;
        let socket = direct
            .as_ref()
            .filter(|_| !keeps && self.stream.pending().take_turn(bytes as u64));
        let Some(socket) = socket else {
            // Under the state's lock: a close frame of the driver comes before it or behind it, and is seen.
            let unsent = self.push(self.rest(frame, payload, 0));
            drop(state);
            // Until the flush, whatever wakes the driver meanwhile: a connection is flushed once a turn.
            let is_known = *is_kept;
            *is_kept |= keeps;
            if !keeps {
                self.stream.ownership.wake();
            }
            self.memory.discard(unsent);
            return Ok(match keeps && !is_known {
                true => MessageSent::Kept,
                false => MessageSent::Out,
            });
        };
        drop(state);
        let data = payload.map_or(&[][..], |payload| payload.bytes());
        let buffers = [IoSlice::new(frame), IoSlice::new(data)];
        // A client that is gone is found again by the driver, which is woken for what is left.
        let sent = socket.send(&buffers, scratch);
        let sent = sent.map_or(0, |offered| offered.bytes);
        self.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        self.stream
            .put_back(self.rest(frame, payload, sent), &self.memory);
        // The driver may have added frames meanwhile, which found the turn taken, or have stopped reading because of the
        // bytes that this thread had.
        let is_awaited = std::mem::take(&mut self.state().is_sending_awaited);
        if is_awaited || self.stream.pending().unsent_bytes() > 0 {
            self.stream.ownership.wake();
        }
        Ok(MessageSent::Out)
    }

    /// Event loop: the turn is over in which messages were kept.
    pub fn flush(&self) {
        if std::mem::take(&mut lock(&self.outgoing).is_kept) {
            self.stream.ownership.wake();
        }
    }

    /// What is behind the first `sent` bytes of a frame, in buffers that live on.
    fn rest<P: Piece>(&self, frame: &[u8], payload: Option<&P>, sent: usize) -> Parts {
        let mut parts = Parts::default();
        if let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            parts.push(Part::Memory(self.memory.keep(rest.to_vec())));
        }
        if let Some(payload) = payload {
            let begin = sent.saturating_sub(frame.len());
            let end = payload.bytes().len();
            if begin < end {
                parts.push(Part::Memory(payload.keep(begin..end, &self.memory)));
            }
        }
        parts
    }

    /// Adds frames behind those that wait; gives them back where nothing more is sent.
    fn push(&self, parts: Parts) -> Parts {
        let pushed = self.stream.pending().push(parts);
        pushed.err().unwrap_or_default()
    }

    /// Event loop: whether another message may be sent. If not, `LoopEvent::Room` follows when it may.
    pub fn has_room(&self) -> bool {
        self.state().disconnect.is_some() || self.stream.has_room(UNSENT_BYTES_MAX)
    }

    /// Event loop: begins the closing handshake, or completes that of the client.
    ///
    /// # Errors
    /// The connection has ended, or is closing by this end; or the code is none.
    pub fn close(&self, code: u16, reason: &str) -> Result<(), SendFault> {
        let closed = self.send_close(Some(code), reason, |state| {
            // The application hears of the end that it has asked for.
            state.end(code, reason);
        });
        closed.map(|()| self.event())
    }

    fn send_close(
        &self,
        code: Option<u16>,
        reason: &str,
        also: impl FnOnce(&mut ChannelState),
    ) -> Result<(), SendFault> {
        let mut frame = Vec::new();
        write_close(code, reason, None, &mut frame).map_err(SendFault::Code)?;
        let mut state = self.state();
        if state.disconnect.is_some() {
            return Err(SendFault::Closed);
        }
        let step = state.closing.step(ClosingEvent::Sent(Opcode::Close));
        state.closing = step.map_err(|_| SendFault::Closed)?;
        also(&mut state);
        let unsent = self.push(self.rest::<&[u8]>(&frame, None, 0));
        drop(state);
        self.stream.ownership.wake();
        self.memory.discard(unsent);
        Ok(())
    }

    /// The loop is to look, if its application waits for an event.
    fn event(&self) {
        let is_awaited = std::mem::take(&mut self.state().is_event_awaited);
        if is_awaited {
            self.inbox.send(LoopEvent::Message(self.key));
        }
        // A `send()` that waits for room ends with the connection.
        self.inbox.send(LoopEvent::Room(self.key));
    }

    /// Driver: what the handshake has agreed on.
    pub(crate) fn deflate(&self) -> Option<DeflateAgreement> {
        self.deflate
    }

    /// Driver: whether the application has as many messages before it as are kept for it.
    pub(crate) fn is_full(&self) -> bool {
        self.state().is_full()
    }

    /// Driver: whether more is to be read. If not, the driver is woken when it is.
    pub(crate) fn takes_more(&self) -> bool {
        let mut state = self.state();
        state.is_room_awaited = state.is_full();
        // Looked at under the lock: an event loop that has the bytes in its hands sees the mark when it is done.
        state.is_sending_awaited = self.stream.pending().unsent_bytes() > UNSENT_BYTES_MAX;
        !state.is_room_awaited && !state.is_sending_awaited
    }

    /// Driver: a message has come. Dropped where the application will not take it any more. Whether the application
    /// waits for it: then its loop is to be woken, if it sleeps.
    #[must_use]
    pub(crate) fn push_message(&self, kind: MessageKind, payload: Vec<u8>) -> bool {
        let mut state = self.state();
        state.counts.received += 1;
        if state.disconnect.is_some() {
            return false;
        }
        state.unread_bytes += payload.len();
        state.messages.push_back(IncomingMessage { kind, payload });
        let is_awaited = std::mem::take(&mut state.is_event_awaited);
        drop(state);
        if is_awaited {
            self.inbox.post(LoopEvent::Message(self.key));
        }
        is_awaited
    }

    /// Driver: sends a ping or a pong, unless the connection is closing.
    pub(crate) fn push_control(&self, opcode: Opcode, payload: &[u8]) {
        let mut frame = Vec::new();
        write_control(opcode, payload, None, &mut frame);
        let state = self.state();
        if state.closing.may_send(opcode) {
            let unsent = self.push(self.rest::<&[u8]>(&frame, None, 0));
            drop(state);
            self.memory.discard(unsent);
        }
    }

    /// Driver: the client has sent its close frame, which is answered.
    pub(crate) fn client_closed(&self, code: Option<u16>, reason: &str) {
        let mut state = self.state();
        let Ok(closing) = state.closing.step(ClosingEvent::Received(code)) else {
            return;
        };
        state.closing = closing;
        drop(state);
        // RFC 6455 section 5.5.1. Where this end was first, there is nothing to answer.
        let answered = self.send_close(closing.answer(), "", |_| {});
        debug_assert!(!matches!(answered, Err(SendFault::Code(_))), "it has come");
        self.end(code.unwrap_or(NO_CODE), reason);
    }

    /// Driver: this end closes the connection; the application hears of `reported`.
    pub(crate) fn close_by_server(&self, code: u16, reported: u16, reason: &str) {
        let closed = self.send_close(Some(code), reason, |_| {});
        debug_assert!(!matches!(closed, Err(SendFault::Code(_))), "a code of ours");
        self.end(reported, reason);
    }

    /// Driver: the connection is gone, and nothing more is sent.
    pub(crate) fn lost(&self) {
        self.leave();
        self.stream.abandon(CLIENT_GONE, &self.memory);
        self.end(ABNORMAL, "");
    }

    fn end(&self, code: u16, reason: &str) {
        self.state().end(code, reason);
        self.event();
    }

    /// The connection has ended: another one may be opened, whatever its application still does.
    pub(crate) fn leave(&self) {
        drop(lock(&self.permit).take());
    }

    /// Driver: the application has had its time to end.
    pub(crate) fn cancel(&self) {
        self.inbox.send(LoopEvent::Cancel(self.key));
    }

    /// How far the closing handshake is.
    pub(crate) fn closing(&self) -> Closing {
        self.state().closing
    }

    /// Driver: bytes that the event loop has sent itself.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Messages until now, and the code that the connection has ended with; 0 while it has not.
    pub(crate) fn facts(&self) -> (MessageCounts, u16) {
        let state = self.state();
        let code = state.disconnect.as_ref().map_or(0, |end| end.code);
        (state.counts, code)
    }
}

impl ChannelState {
    fn is_full(&self) -> bool {
        // Behind its end nothing more is kept, and the client's close frame is behind what has come.
        self.disconnect.is_none() && self.is_beyond_bounds()
    }

    fn is_beyond_bounds(&self) -> bool {
        self.unread_bytes > UNREAD_BYTES_MAX || self.messages.len() >= UNREAD_LEN_MAX
    }

    /// The first end counts: later ones follow from it.
    fn end(&mut self, code: u16, reason: &str) {
        self.disconnect.get_or_insert_with(|| Disconnect {
            code,
            reason: reason.to_owned(),
        });
    }
}

#[cfg(test)]
mod tests;
