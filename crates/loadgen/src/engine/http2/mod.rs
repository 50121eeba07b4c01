//! HTTP/2 as a client speaks it (RFC 9113), by the `h2` crate over a transport in memory.
//!
//! Takes requests and the server's bytes, gives the server's part of it and the ends of streams. No socket is kept,
//! read or written here, and no call waits: the loop reads and sends, and calls the crate when there is something for
//! it.
//!
//! ```text
//! loop ─ one read ─► pipe ─► h2 crate ─ streams that moved ─► replies and their ends ─► loop
//!   ▲                 │                                                                 │
//!   └── one send ──── pipe ◄─ h2 crate ◄──────────────────────── requests ◄─────────────┘
//! ```

mod client;
mod pipe;
mod request;
mod stream;

pub(crate) use client::{ConnectionEnd, Http2Client};
pub(crate) use request::Http2Request;
pub(crate) use stream::StreamEnd;
