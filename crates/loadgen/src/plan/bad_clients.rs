//! Clients that misbehave beside the measured ones.

use telemetry::Nanos;

/// A group of misbehaving clients, on a thread of their own. Each that is ended is opened again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BadClients {
    /// Connections kept open.
    pub len: usize,
    /// What they do.
    pub misbehaviour: Misbehaviour,
    /// Bytes of their receive buffers; `None`: the kernel's choice. It is set before they connect.
    pub receive_buffer_bytes: Option<usize>,
}

/// What a misbehaving client does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Misbehaviour {
    /// Sends a request and never reads.
    NeverReads,
    /// Sends a request and reads so many bytes a second.
    ReadsAt {
        /// Of one connection.
        bytes_per_s: u64,
    },
    /// Sends a request one byte at a time, with this pause between.
    Trickles {
        /// Between two bytes.
        pause: Nanos,
    },
    /// Sends nothing at all.
    Idle,
    /// Sends a request, then the end of its stream, and reads the reply.
    HalfCloses,
    /// Sends a request and resets after this time.
    Resets {
        /// After the request.
        after: Nanos,
    },
}
