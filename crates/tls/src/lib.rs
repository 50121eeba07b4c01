//! TLS of accepted connections: what they are accepted with, and one machine without I/O for each of them.
//!
//! Takes certificates and keys as bytes, ciphertext and plaintext in buffers of the caller; gives the same. Opens no
//! socket and reads no clock. The protocol is rustls', the arithmetic that of aws-lc-rs or ring.
#![forbid(unsafe_code)]

mod server_tls;

mod ciphertext;
mod client_hello;
mod handshake;
mod session;

pub use ciphertext::Ciphertext;
pub use client_hello::{HandshakeInput, is_client_hello};
pub use handshake::{Alpn, HandshakeFacts};
pub use server_tls::{CurrentTls, ServerTls, TlsFault};
pub use session::{HELD_BYTES_MAX, Received, Session, SessionFault};
