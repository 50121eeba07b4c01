//! A stream that has become a WebSocket connection (RFC 8441): its DATA frames are the bytes of one, in both directions.
//!
//! `WebSocketSession` decodes and decides; here is how bytes come from the `h2` crate and go to it, as windows and turns
//! allow.

use std::sync::Arc;
use std::task::{Context, Poll};

use h2::{Reason, RecvStream};
use telemetry::Ending;

use super::mux::EndedHead;
use super::send::{Last, StreamSender};
use super::stream::{Interrupts, StreamTask, data_of};
use super::stream_table::Turn;
use crate::exchange::stream::{CLIENT_GONE, Finished};
use crate::protocol::Woken;
use crate::protocol::offloaded::Offloaded;
use crate::protocol::websocket::{SessionDrain, WebSocketSession};
use crate::websocket::WebSocketChannel;

/// A stream behind the handshake.
struct UpgradedStream {
    session: WebSocketSession,
    /// What the client sends; `None` once that has ended.
    body: Option<RecvStream>,
    /// `None` where the client has reset the stream before its acceptance was sent: the connection is lost from the
    /// beginning on.
    sending: Option<StreamSender>,
}

impl StreamTask {
    /// Serves a WebSocket connection that the application has accepted, to its end.
    pub(super) async fn serve_websocket(
        &mut self,
        offloaded: &mut Offloaded<'_>,
        channel: Arc<WebSocketChannel>,
    ) {
        let head = offloaded.stream.pending().start().head.take();
        let route = offloaded.admitted.route;
        let sending = head.and_then(|head| self.send_head(&head, route, None, false).ok());
        let config = self.driver.config().websocket();
        let now = telemetry::now();
        let mut session = WebSocketSession::new(channel, config, Vec::new(), now);
        match sending {
            Some(_) => self.driver.stats().websockets.add(),
            // The application hears of it, and the exchange ends with it.
            None => session.lose(now),
        }
        let mut upgraded = UpgradedStream {
            session,
            body: self.body.take(),
            sending,
        };
        self.slot.takes_messages.set(true);
        let ended = self.serve_upgraded(offloaded, &mut upgraded).await;
        self.conclude_websocket(offloaded, upgraded, ended);
    }

    /// The exchange, once its application has ended; `None` where the driver ends.
    async fn serve_upgraded(
        &self,
        offloaded: &Offloaded<'_>,
        upgraded: &mut UpgradedStream,
    ) -> Option<Finished> {
        let stream = offloaded.stream;
        let send = self.driver.config().timeouts.send;
        loop {
            let now = telemetry::now();
            let drain = SessionDrain::of(&self.driver, self.mux.connection.slot);
            if upgraded.session.step(now, drain, send) {
                upgraded.session.lose(now);
            }
            let interrupts = match upgraded.session.is_lost() {
                true => Interrupts::DriverEnd,
                false => Interrupts::Any,
            };
            let due = upgraded.session.due(send);
            let moved = self.wait(due, interrupts, |context| {
                stream.ownership.watch(context);
                let has_moved = [
                    self.receive_frames(upgraded, context),
                    self.send_frames(offloaded, upgraded, context),
                ];
                if upgraded.session.take_loop_awaited() {
                    self.driver.wake_loops_later(telemetry::now());
                }
                let mut pending = stream.pending();
                let is_out = upgraded.session.is_lost() || !pending.has_unsent();
                if upgraded.session.is_over()
                    && is_out
                    && let Some(finished) = pending.take_finished()
                {
                    return Some(Some(finished));
                }
                has_moved.contains(&true).then_some(None)
            });
            match moved.await {
                Ok(Some(finished)) => return Some(finished),
                Ok(None) | Err(Woken::Deadline) => {}
                Err(Woken::Cut) => return None,
                // The client has reset the stream, or the connection is gone.
                Err(_) => upgraded.session.lose(telemetry::now()),
            }
        }
    }

    /// Decodes what has come; whether there was something.
    fn receive_frames(&self, upgraded: &mut UpgradedStream, context: &mut Context<'_>) -> bool {
        let UpgradedStream { session, body, .. } = upgraded;
        let now = telemetry::now();
        session.decode_input(now);
        if !session.takes_more(now) {
            return false;
        }
        let Some(come) = body.as_mut().and_then(|body| data_of(body, context)) else {
            return false;
        };
        let (Some(body), Some(Ok(data))) = (body.as_mut(), come) else {
            // The client has ended its side without a close frame, or the stream.
            *body = None;
            session.lose(now);
            return true;
        };
        // Unmasked in place.
        session.receive(&mut data.to_vec(), now);
        let _ = body.flow_control().release_capacity(data.len());
        true
    }

    /// Gives the crate as much as windows and turns allow now; whether that was something.
    fn send_frames(
        &self,
        offloaded: &Offloaded<'_>,
        upgraded: &mut UpgradedStream,
        context: &mut Context<'_>,
    ) -> bool {
        let UpgradedStream {
            session, sending, ..
        } = upgraded;
        let Some(sending) = sending else {
            return false;
        };
        let stream = offloaded.stream;
        let want = stream.pending().bytes();
        if want == 0 {
            session.is_flushed();
            return false;
        }
        let now = telemetry::now();
        let Some(granted) = self.turn_now(want) else {
            session.has_sent(0, now);
            return false;
        };
        let Some(capacity) = sending.capacity_now(granted, context) else {
            self.mux.forgo_turn(&self.slot);
            session.has_sent(0, now);
            return false;
        };
        self.mux.forgo_turn(&self.slot);
        let Some(mut parts) = stream.pending().take_some() else {
            return false;
        };
        let data = parts.take_cached(capacity);
        stream.put_back(parts, &self.driver.shared.replies_memory);
        let sent = match data {
            Ok(Some(data)) => {
                let bytes = data.len() as u64;
                self.send_data(sending, data, Last::No).map(|()| bytes)
            }
            // Frames are never in files.
            _ => Err(Woken::Failed.stop()),
        };
        match sent {
            Ok(bytes) => session.has_sent(bytes, now),
            Err(_) => session.lose(now),
        }
        true
    }

    /// The turn of this stream, if it is there; asks for it otherwise.
    pub(super) fn turn_now(&self, want: usize) -> Option<usize> {
        match self.slot.turn.get() {
            Turn::Granted(bytes) => Some(bytes.min(want)),
            Turn::Waiting => None,
            Turn::Idle => {
                let granted = self.mux.turn_at_once(want);
                if granted.is_none() {
                    self.mux.ask_for_turn(&self.slot);
                }
                granted
            }
        }
    }

    fn conclude_websocket(
        &mut self,
        offloaded: &mut Offloaded<'_>,
        mut upgraded: UpgradedStream,
        ended: Option<Finished>,
    ) {
        let UpgradedStream {
            session, sending, ..
        } = &mut upgraded;
        self.mux.forgo_turn(&self.slot);
        if let Some(Finished { mut exchange, .. }) = ended {
            session.complete(&mut exchange.record);
            exchange.record.stream = offloaded.admitted.stream;
            if session.is_lost() {
                self.stop(Woken::End.stop(), Reason::CANCEL);
            }
            let Some(sending) = sending else {
                self.note_reset(&mut exchange.record.stream);
                return self.mux.connection.end_exchange(exchange, 0);
            };
            if !session.is_lost() && sending.send_end().is_ok() {
                self.mux.has_moved();
            }
            let record = exchange.record;
            return sending.end(self, record, EndedHead::Exchange(exchange));
        }
        let stop = Woken::Cut.stop();
        self.stop(stop, Reason::CANCEL);
        let sent_bytes = session.total_sent_bytes();
        match offloaded.take_over(stop) {
            Ok(mut finished) => {
                session.complete(&mut finished.exchange.record);
                finished.exchange.record.end_as(Ending::Shutdown, "");
                let exchange = finished.exchange;
                self.mux.connection.end_exchange(exchange, sent_bytes);
            }
            Err(stop) => {
                offloaded.end_with(Some(stop), sent_bytes, |record| session.complete(record));
            }
        }
        let memory = &self.driver.shared.replies_memory;
        offloaded.stream.abandon(CLIENT_GONE, memory);
    }
}

impl StreamSender {
    /// Bytes of `granted` that the stream's window has room for; `None`: the context is woken when it has.
    pub(super) fn capacity_now(
        &mut self,
        granted: usize,
        context: &mut Context<'_>,
    ) -> Option<usize> {
        let send = self.stream_mut();
        send.reserve_capacity(granted);
        let mut capacity = send.capacity().min(granted);
        while capacity == 0 {
            match send.poll_capacity(context) {
                Poll::Ready(Some(Ok(more))) => capacity = more.min(granted),
                Poll::Ready(_) | Poll::Pending => return None,
            }
        }
        send.reserve_capacity(capacity);
        Some(capacity)
    }
}
