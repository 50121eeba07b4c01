//! A stream that has become a tunnel to an upstream (RFC 8441): its DATA frames are the bytes of one, in both directions.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream};
use telemetry::Ending;

use super::mux::EndedHead;
use super::send::{Last, StreamSender};
use super::stream::{Interrupts, StreamTask, data_of};
use crate::protocol::tunnel::{ClientEnd, TunnelEnd, TunnelPump, UNWATCHED};
use crate::protocol::websocket::SessionDrain;
use crate::protocol::{Stop, Woken};
use crate::tunnel::Tunnel;

/// The client's end: a stream.
struct StreamEnd<'a> {
    task: &'a StreamTask,
    /// What the client sends; `None` once that has ended.
    body: Option<RecvStream>,
    /// Received and not taken.
    unread: Bytes,
    sending: StreamSender,
}

impl StreamTask {
    /// Serves a tunnel to its end.
    pub(super) async fn serve_tunnel(&mut self, mut tunnel: Tunnel) {
        let head = tunnel.head.take();
        let route = tunnel.exchange.record.route;
        let sending = head.and_then(|head| self.send_head(&head, route, None, false).ok());
        let body = self.body.take();
        self.driver.stats().tunnels.add();
        let (sending, pump) = match (sending, TunnelPump::new(tunnel, Vec::new())) {
            (Some(sending), Ok(pump)) => (sending, pump),
            (None, Ok(pump)) => {
                let (exchange, _) = pump.conclude(TunnelEnd::ClientGone);
                self.stop(Woken::End.stop(), Reason::CANCEL);
                return self.mux.connection.end_exchange(exchange, 0);
            }
            (_, Err(mut exchange)) => {
                exchange.record.end_as(Ending::Cut, UNWATCHED);
                self.stop(Stop::cut(UNWATCHED), Reason::INTERNAL_ERROR);
                return self.mux.connection.end_exchange(exchange, 0);
            }
        };
        self.slot.takes_messages.set(true);
        let client = StreamEnd {
            task: self,
            body,
            unread: Bytes::new(),
            sending,
        };
        let (end, pump, sending) = pumped(client, pump).await;
        self.mux.forgo_turn(&self.slot);
        let (mut exchange, sent_bytes) = pump.conclude(end);
        exchange.record.stream.number = self.slot.number;
        if end == TunnelEnd::Whole {
            let record = exchange.record;
            return sending.end(self, record, EndedHead::Exchange(exchange));
        }
        let record = &mut exchange.record;
        let stop = Stop::new(record.ending, record.cause);
        self.stop(stop, Reason::CANCEL);
        sending.note_blocked(&mut record.stream);
        self.note_reset(&mut record.stream);
        self.mux.connection.end_exchange(exchange, sent_bytes);
    }
}

/// Moves bytes until the tunnel ends.
async fn pumped(client: StreamEnd<'_>, pump: TunnelPump) -> (TunnelEnd, TunnelPump, StreamSender) {
    let task = client.task;
    let both = RefCell::new((client, pump));
    let end = loop {
        let due = both.borrow().1.due();
        let moved = task.wait(due, Interrupts::Any, |context| {
            let (client, pump) = &mut *both.borrow_mut();
            let drain = SessionDrain::of(&task.driver, task.mux.connection.slot);
            match pump.poll(context, &task.driver, client, drain) {
                Some(end) => Some(Some(end)),
                // It is to be woken earlier now.
                None if pump.due() < due => Some(None),
                None => None,
            }
        });
        match moved.await {
            Ok(Some(end)) => break end,
            Ok(None) | Err(Woken::Deadline) => {}
            Err(Woken::Cut) => break TunnelEnd::Cut,
            // The client has reset the stream, or the connection is gone.
            Err(_) => break TunnelEnd::ClientGone,
        }
    };
    let (client, pump) = both.into_inner();
    (end, pump, client.sending)
}

impl ClientEnd for StreamEnd<'_> {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        while self.unread.is_empty() {
            let Some(body) = &mut self.body else {
                return Poll::Ready(Ok(0));
            };
            match data_of(body, context) {
                Some(Some(Ok(data))) => self.unread = data,
                Some(None) => self.body = None,
                Some(Some(Err(_))) => return Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
                None => return Poll::Pending,
            }
        }
        let bytes = self.unread.len().min(buffer.len());
        self.unread.copy_to_slice(&mut buffer[..bytes]);
        if let Some(body) = &mut self.body {
            // As much more may come as was taken.
            let _ = body.flow_control().release_capacity(bytes);
        }
        Poll::Ready(Ok(bytes))
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(granted) = self.task.turn_now(bytes.len()) else {
            return Poll::Pending;
        };
        let capacity = self.sending.capacity_now(granted, context);
        self.task.mux.forgo_turn(&self.task.slot);
        let Some(capacity) = capacity else {
            return Poll::Pending;
        };
        let data = Bytes::copy_from_slice(&bytes[..capacity]);
        match self.task.send_data(&mut self.sending, data, Last::No) {
            Ok(()) => Poll::Ready(Ok(capacity)),
            Err(_) => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
        }
    }

    fn poll_flush(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.task.mux.has_moved();
        let ended = self.sending.send_end();
        Poll::Ready(ended.map_err(|_| ErrorKind::ConnectionReset.into()))
    }
}
