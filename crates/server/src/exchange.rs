//! The exchange: one request and all that is known of it, moved from room to room and never shared.
//!
//! Takes its head and body from a driver, its stamps from the corridors, and ends in exactly one log
//! record. Touches no socket.

use std::fs::File;
use std::sync::Arc;

use measure::Phases;
use wire::{HeadView, RequestHead};

/// One complete request on its way to a pool thread.
pub struct Exchange {
    /// Method, target, headers. Shared with the connection, which logs the exchange when the drain
    /// deadline passes before its reply.
    pub head: Arc<RequestHead>,
    /// The whole body: an application never sees an incomplete one.
    pub body: Body,
    /// Stamps that have passed.
    pub phases: Phases,
    /// Who is at the other end.
    pub ends: Arc<Ends>,
    /// Bytes of head and body received.
    pub request_bytes: u64,
    pub rewritten: Option<Box<[u8]>>,
    /// Index of the route that took it.
    pub route: u16,
    /// Index of the driver that received it.
    pub driver: u16,
}

impl Exchange {
    /// Method and target, for people.
    pub fn name(&self) -> String {
        let head = self.head();
        let method = String::from_utf8_lossy(head.method());
        format!("{method} {}", String::from_utf8_lossy(head.target()))
    }

    /// A borrowed look at the head.
    pub fn head(&self) -> HeadView<'_> {
        self.head.view()
    }
}

/// A complete request body.
#[derive(Debug, Default)]
pub enum Body {
    /// No body was announced.
    #[default]
    Empty,
    /// At most `readahead` bytes.
    Memory(Vec<u8>),
    /// An unnamed file of `bytes` bytes; read it by offset, its own cursor means nothing.
    File {
        /// Open for reading and writing.
        file: File,
        /// Length of the body.
        bytes: u64,
    },
}

impl Body {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Memory(data) => data.len() as u64,
            Body::File { bytes, .. } => *bytes,
        }
    }
}

/// Both ends of a connection, as text because that is how applications and logs want them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// Client's address without port; `unix:` for a unix socket.
    pub peer_host: String,
    /// Client's port; empty for a unix socket.
    pub peer_port: String,
    /// The address that the client connected to; the path for a unix socket.
    pub local_host: String,
    /// The port that the client connected to; empty for a unix socket.
    pub local_port: String,
    /// `http` for now.
    pub scheme: &'static str,
    /// Index of the listening address, stable for the life of the process.
    pub listener: u16,
}
