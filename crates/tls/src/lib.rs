//! TLS of accepted connections: what they are accepted with, and one machine without I/O for each of them; and what
//! connections to upstreams are made with.
//!
//! Takes the files that the configuration names, ciphertext and plaintext in buffers of the caller. Opens no socket and
//! reads no clock. The protocol is rustls', the arithmetic that of aws-lc-rs or ring.
#![forbid(unsafe_code)]

mod client_tls;
mod server_tls;

mod certificate;
mod challenges;
mod client_auth;
mod credentials;
mod crypto;
mod fault;
mod file;
mod identity;
mod names;
mod private_key;
mod sites;
mod suite_order;
mod text64;
mod ticket_keys;
mod ticketer;

mod ciphertext;
mod client_hello;
mod handshake;
mod session;

pub use certificate::{CertificateFacts, ClientCertificate, ENDS_SOON_SECS, KeyKind, Validity};
pub use ciphertext::Ciphertext;
pub use client_auth::ClientAuthId;
pub use client_hello::{HandshakeInput, is_client_hello};
pub use client_tls::client_config;
pub use credentials::{CredentialFiles, Credentials, IdentityFault};
pub use fault::TlsFileFault;
pub use handshake::{Alpn, HandshakeFacts};
pub use identity::Identity;
pub use server_tls::{ChosenConfig, CurrentTls, ServerTls, TlsFault, UnrecognizedName};
pub use session::{HELD_BYTES_MAX, Received, Session, SessionFault};
pub use ticket_keys::{TURN_SECS, TicketKey, TicketKeyRing, TicketKeys};
pub use ticketer::SharedTicketKeys;

#[cfg(test)]
mod test_pki;
