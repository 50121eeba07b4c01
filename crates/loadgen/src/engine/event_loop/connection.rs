//! One connection of the load: its socket, what is on its way, and the reply that is being read.
//!
//! Plain state; the loop moves it. A place for a connection lives as long as the run, its socket may be
//! another one each time: by `generation` events of a former one are known.
//!
//! ```text
//!            begin                established
//!   Closed ─────────► Connecting ─────────────► (TLS: Handshaking ─►) (Settling ─►) Open ──last reply──► Closed
//!     ▲                   │                                                                  │
//!     └──failed, paused───┘                                  the server is to close: Lingering ──end, or a second──► Closed
//! ```

use std::os::fd::OwnedFd;

use telemetry::Stamp;

use crate::engine::http2::Http2Client;
use crate::engine::response::ResponseParser;
use crate::engine::tls::TlsConnection;
use crate::engine::websocket::WebSocketClient;

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum ConnectionState {
    /// There is none.
    #[default]
    Closed,
    /// Not known to be established.
    Connecting,
    /// Established, and TLS is being agreed on.
    Handshaking,
    /// HTTP/2: its settings are waited for, which say how many streams there may be. WebSocket: its handshake is.
    Settling,
    /// Requests may be sent.
    Open,
    /// The last reply was read; the server is to close.
    Lingering,
}

impl ConnectionState {
    /// Whether requests cannot be sent yet.
    pub(super) fn is_opening(self) -> bool {
        matches!(
            self,
            ConnectionState::Connecting | ConnectionState::Handshaking | ConnectionState::Settling
        )
    }
}

/// A place for a connection.
#[derive(Default)]
pub(super) struct Connection {
    pub(super) socket: Option<OwnedFd>,
    pub(super) tls: Option<Box<TlsConnection>>,
    /// Of HTTP/2, once the connection is established: the streams of what is sent, in the same order.
    pub(super) http2: Option<Box<Http2Client>>,
    /// Of WebSocket, once the connection is established.
    pub(super) websocket: Option<Box<WebSocketClient>>,
    pub(super) state: ConnectionState,
    pub(super) generation: u32,
    /// Whether the poll knows the socket.
    pub(super) is_watched: bool,
    /// Whether the poll reports that the socket takes more bytes.
    pub(super) watches_writable: bool,
    /// Whether it has had a reply, or has failed to, at least once.
    pub(super) is_warm: bool,
    /// Whether the server's queue was full, so that it is tried again.
    pub(super) is_retrying: bool,
    /// Open loads: whether it is among those that may take a request.
    pub(super) is_queued: bool,
    pub(super) response: ResponseParser,
    /// When what is going on takes too long.
    pub(super) deadline: Stamp,
    /// When its opening began.
    pub(super) began: Stamp,
    /// When a free place for a request became free.
    pub(super) turn: Stamp,
    /// Requests that may still be begun on it.
    pub(super) left: u64,
    /// The oldest request under way, as a place of the ring.
    pub(super) head: u32,
    /// Requests under way, unsent ones included.
    pub(super) len: u32,
    /// Of these the last ones are not sent to their ends.
    pub(super) unsent: u32,
    /// Bytes of the first unsent one that are sent.
    pub(super) offset: usize,
}

impl Connection {
    pub(super) fn new() -> Connection {
        Connection {
            deadline: Stamp::NEVER,
            ..Connection::default()
        }
    }

    /// Requests under way of which at least a byte has left: the oldest ones.
    pub(super) fn sent_len(&self) -> u32 {
        let is_begun = self.unsent > 0 && self.offset > 0;
        self.len - self.unsent + u32::from(is_begun)
    }

    /// Whether something waits until the socket takes more bytes, ciphertext included.
    pub(super) fn has_to_send(&self) -> bool {
        self.unsent > 0 || self.tls.is_some() || self.http2.is_some()
    }

    /// Requests that may be under way at once, of `depth` at most.
    pub(super) fn depth(&self, depth: u32) -> u32 {
        match &self.http2 {
            Some(http2) if self.state == ConnectionState::Open => depth.min(http2.streams_max()),
            _ => depth,
        }
    }
}
