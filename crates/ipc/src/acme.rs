//! What the ACME client says: how the names with automatic certificates stand, and which challenges of authorities
//! every process is to answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One name. Members may be added; missing ones are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ManagedCertificate {
    /// The name.
    pub name: String,
    /// Whose certificates it gets: the host of the authority's directory, or `local`.
    pub authority: String,
    /// Who issued the certificate that it has.
    pub issuer: Option<String>,
    /// Until when that holds, in seconds since 1970.
    pub not_after_unix_s: Option<u64>,
    /// When it is renewed or tried again, in seconds since 1970; none: not before the next start.
    pub next_try_unix_s: Option<u64>,
    /// Failed tries in a row.
    pub failures: u32,
    /// Why the last one failed.
    pub last_error: Option<String>,
}

/// Answers to challenges, on this machine and on all that share its storage folder. A file of its own kind, as they may
/// be longer than a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Challenges {
    /// HTTP-01 (RFC 8555 section 8.3): the body to answer with, by the token at the end of the path.
    pub http: BTreeMap<String, String>,
    /// TLS-ALPN-01 (RFC 8737): key and certificate in PEM, by the name that the client asks for.
    pub tls: BTreeMap<String, String>,
}
