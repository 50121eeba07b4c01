//! A client's connection: its streams in the order of their age, and the crate that speaks for them.
//!
//! Takes requests and the server's bytes, gives ends of streams and bytes for the server.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::Reason;
use h2::client::{Builder, Connection, SendRequest};
use telemetry::Stamp;

use super::pipe::{ClientPipe, CratePipe, pipe};
use super::request::Http2Request;
use super::stream::{MovedStreams, Stream, StreamEnd};
use crate::engine::response::Expected;

/// What a server may send before it has to wait for the generator, for a stream and for the connection: as `h2load`
/// does it, no window is a limit of the measurement.
const WINDOW_BYTES: u32 = (1 << 30) - 1;

/// A connection after its TCP and TLS handshakes.
#[derive(Debug)]
pub(crate) struct Http2Client {
    pipe: ClientPipe,
    send: SendRequest<Bytes>,
    codec: Connection<CratePipe, Bytes>,
    /// By their identifiers, which grow: the oldest first.
    streams: VecDeque<Stream>,
    moved: Arc<MovedStreams>,
    end: Option<ConnectionEnd>,
    /// When bytes of the server were read last.
    pub(crate) received: Stamp,
}

/// Why no further request may be sent on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionEnd {
    /// The server has sent GOAWAY with this code; streams may still end.
    GoAway(Reason),
    /// What the server has sent is not HTTP/2.
    Violation,
    /// Bytes end.
    Gone,
}

impl Http2Client {
    /// For a connection whose bytes are the client's: the preface and the settings wait to be sent.
    pub(crate) fn new(now: Stamp) -> Http2Client {
        let (crate_pipe, client_pipe) = pipe();
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            // The server's settings say how many: until they are there no request is sent that it would refuse.
            .initial_max_send_streams(0);
        let mut handshake = pin!(builder.handshake(crate_pipe));
        let Poll::Ready(Ok((send, codec))) = handshake.as_mut().poll(&mut idle()) else {
            panic!("the preface is written into memory, which takes it at once");
        };
        let mut client = Http2Client {
            pipe: client_pipe,
            send,
            codec,
            streams: VecDeque::new(),
            moved: Arc::default(),
            end: None,
            received: now,
        };
        client.turn();
        client
    }

    /// The server has sent these bytes.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Stamp) {
        self.pipe.put(bytes);
        self.received = now;
        self.turn();
    }

    /// The server sends no more.
    pub(crate) fn end_input(&mut self) {
        self.pipe.end_input();
        self.turn();
    }

    /// Has the crate take what has come, and write what is to be sent.
    pub(crate) fn turn(&mut self) {
        if self.is_alive()
            && let Poll::Ready(ended) = Pin::new(&mut self.codec).poll(&mut idle())
        {
            let is_wrong = ended.as_ref().is_err_and(h2::Error::is_library);
            let is_away = self.go_away().is_some();
            self.end = match (is_wrong, is_away) {
                (true, _) => Some(ConnectionEnd::Violation),
                // Said once, and then the connection is gone.
                (false, true) if self.end.is_none() => self.go_away(),
                (false, _) => Some(ConnectionEnd::Gone),
            };
        }
        if self.end.is_none() {
            self.end = self.go_away();
        }
    }

    /// Whether the crate may do more than it has done.
    fn is_alive(&self) -> bool {
        matches!(self.end, None | Some(ConnectionEnd::GoAway(_)))
    }

    fn go_away(&mut self) -> Option<ConnectionEnd> {
        match self.send.poll_ready(&mut idle()) {
            Poll::Ready(Err(error)) if error.is_go_away() && error.is_remote() => {
                let reason = error.reason().unwrap_or(Reason::NO_ERROR);
                Some(ConnectionEnd::GoAway(reason))
            }
            _ => None,
        }
    }

    /// Why no further request may be sent; `None`: one may.
    pub(crate) fn end(&self) -> Option<ConnectionEnd> {
        self.end
    }

    /// Streams that the server allows at once; zero until its settings have come, and the greatest number where they
    /// set no limit.
    pub(crate) fn streams_max(&self) -> u32 {
        self.send
            .current_max_send_streams()
            .try_into()
            .unwrap_or(u32::MAX)
    }

    /// Requests that have not ended.
    pub(crate) fn streams_len(&self) -> usize {
        self.streams.len()
    }

    /// Sends a request, if the server allows one more; whether it does.
    pub(crate) fn send(&mut self, request: &Http2Request) -> bool {
        let is_free = self.end.is_none() && self.streams.len() < self.streams_max() as usize;
        if !is_free || !matches!(self.send.poll_ready(&mut idle()), Poll::Ready(Ok(()))) {
            return false;
        }
        let has_body = !request.body.is_empty();
        let sent = self.send.send_request(request.head.clone(), !has_body);
        let Ok((response, mut upload)) = sent else {
            return false;
        };
        // The whole body by reference: the crate sends it as the server's windows open. A stream that has ended by now
        // says so itself.
        if has_body {
            let _ = upload.send_data(request.body.clone(), true);
        }
        let stream = Stream::new(response, &self.moved);
        assert!(
            self.streams.back().is_none_or(|last| last.id < stream.id),
            "the identifiers of streams grow"
        );
        self.streams.push_back(stream);
        true
    }

    /// The number of a stream that has moved, counted from the oldest one.
    pub(crate) fn next_moved(&self) -> Option<usize> {
        loop {
            let id = self.moved.take()?;
            // One that is not there has ended, or was reset.
            if let Ok(number) = self.streams.binary_search_by_key(&id, |stream| stream.id) {
                return Some(number);
            }
        }
    }

    /// Takes what has come on a stream: whether there is a head, and the end where it has come. A stream that has ended
    /// is one no more.
    pub(crate) fn poll(&mut self, number: usize, standard: &Expected) -> (bool, Option<StreamEnd>) {
        let stream = &mut self.streams[number];
        let end = stream.poll(standard);
        let has_head = stream.has_head();
        if end.is_some() {
            self.streams.remove(number);
        }
        (has_head, end)
    }

    /// Forgets the streams from this number on; those that have not ended are reset.
    pub(crate) fn truncate(&mut self, number: usize) {
        self.streams.truncate(number);
    }

    /// Resets the oldest stream.
    pub(crate) fn reset_oldest(&mut self) {
        self.streams.pop_front();
    }

    /// Whether the crate has to be called again once bytes have been sent.
    pub(crate) fn take_held_up(&self) -> bool {
        (self.pipe.take_full() || self.pipe.has_unread()) && self.is_alive()
    }

    /// Whether the server is not to be read, because its last bytes are not taken yet.
    pub(crate) fn has_unread(&self) -> bool {
        self.pipe.has_unread()
    }

    /// Whether bytes wait for the socket.
    pub(crate) fn has_output(&self) -> bool {
        self.pipe.has_output()
    }

    /// Has `write` take what waits; it gives how many bytes it took.
    pub(crate) fn write(
        &self,
        write: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.pipe.send(write)
    }
}

/// Nothing of the crate wakes a connection: it is called whenever there is something for it.
fn idle() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
