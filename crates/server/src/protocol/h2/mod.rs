//! HTTP/2: many requests at once on a connection (RFC 9113), by the `h2` crate over a transport in memory.
//!
//! ```text
//! Transport ─ one read a turn ─► pipe ─ frame by frame ─► h2 crate ─► stream: judge, begin ─► answered on the spot
//!     ▲                           │ scanner: odd work,                   │                     worker, file, body:
//!     │                           │ resets, windows, priorities          └──────────────────►  a future of its own
//!     └──── one send a turn ───── pipe ◄───────── h2 crate ◄── heads, data of granted turns ◄──────────┘
//! ```
//!
//! One task has a connection with all its streams. A turn of it reads once, has the crate take the frames, begins
//! requests, polls the streams that were woken, grants turns to send, and sends all output at once; handles of the
//! crate are touched on this thread alone. `stream` is one request, `offloaded` one that a worker has, `send` how its
//! data leaves, `mux` what they share, `odd_work` the defence against floods, `departure` the end of a connection.

mod fields;
mod odd_work;
mod pipe;
mod priority;
mod scan;

mod stream_table;

mod mux;

mod stream;

mod offloaded;
mod resets;
mod send;
mod tunnel;
mod upload;
mod websocket;

mod connection;
mod departure;

pub(super) use connection::serve;

/// What a client sends first (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first line of it, which no request of HTTP/1 begins with.
const PREFACE_LINE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// Whether the first bytes of a connection are those of HTTP/2: what follows the line is judged by it.
pub(super) fn begins(bytes: &[u8]) -> bool {
    bytes.starts_with(PREFACE_LINE)
}
