//! TLS: certificates with their names and keys, client certificates, versions, and what HTTPS asks of replies.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use telemetry::Nanos;

use super::Bind;

defaults! {
    /// Certificates, and which addresses speak TLS.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Tls {
        /// Certificates, the default first: it answers clients that name no server. Empty: no TLS.
        pub identities: Vec<TlsIdentity>,
        /// Versions of the protocol that are spoken, at least one.
        pub versions: Vec<TlsVersion> = vec![TlsVersion::V12, TlsVersion::V13],
        /// What a client gets that asks for a name without a certificate.
        pub unknown_name: UnknownName = UnknownName::Default,
        /// File with the keys of session tickets; `None`: the supervisor makes them.
        pub ticket_keys: Option<PathBuf>,
        /// Those of `binds` that speak TLS. Decided by the check: without a certificate there are none.
        pub binds: Vec<Bind>,
    }
}

/// A certificate with its key, and which names it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsIdentity {
    /// Names of servers in lower case, perhaps with one `*.` in front; empty: those of the certificate.
    pub names: Vec<String>,
    /// The certificate, and behind it those that lead to an authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// What opens the key.
    pub key_password: Option<KeyPassword>,
    /// Certificates that clients show.
    pub client_auth: Option<ClientAuth>,
    /// A reply of the authority's OCSP responder, in DER, which is sent along.
    pub ocsp: Option<PathBuf>,
    /// The server itself gets the certificate; the file is there when the server starts.
    pub is_automatic: bool,
}

/// Where the password of a key is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPassword {
    /// The first line of a file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
}

/// Certificates that clients show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// What becomes of clients without one.
    pub demand: ClientDemand,
    /// The authorities whose certificates are taken.
    pub ca: PathBuf,
    /// A file with lists of certificates that are revoked; `None`: none is.
    pub crl: Option<PathBuf>,
}

/// What becomes of clients without a certificate. A certificate that is not good is refused either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientDemand {
    /// They are refused.
    Require,
    /// They are served.
    Request,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246
    V12,
    /// RFC 8446
    V13,
}

/// What a client gets that asks for a name without a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownName {
    /// The default certificate.
    #[default]
    Default,
    /// The alert `unrecognized_name` (RFC 6066 section 3).
    Reject,
}

/// Which of the settings of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// `cert`
    Cert,
    /// `key`
    Key,
    /// `key_password_file` or `key_password_env`
    KeyPassword,
    /// `client_ca`
    ClientCa,
    /// `crl`
    Crl,
    /// `ocsp`
    Ocsp,
    /// `names`
    Names,
    /// `tls_ticket_keys`
    TicketKeys,
}

/// `Strict-Transport-Security` (RFC 6797) of replies over HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hsts {
    /// How long browsers remember it.
    pub max_age: Nanos,
    /// It is for all names below as well.
    pub subdomains: bool,
    /// Browsers may have it built in.
    pub preload: bool,
}

/// Requests over plain HTTP are redirected to HTTPS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpsRedirect {
    /// They are served.
    #[default]
    Off,
    /// To the port of the first address with TLS.
    On,
    /// To this port, as clients see it.
    Port(u16),
}

impl Tls {
    /// The port of the first TCP address that speaks TLS, as far as it is known before it is listened on.
    pub fn port(&self) -> Option<u16> {
        self.binds
            .iter()
            .find_map(|bind| match bind {
                Bind::Tcp(addresses) => addresses.first().map(std::net::SocketAddr::port),
                Bind::Unix(_) | Bind::Inherited(_) => None,
            })
            .filter(|port| *port != 0)
    }
}

impl Hsts {
    /// The header's value.
    pub fn value(&self) -> String {
        let mut value = format!("max-age={}", self.max_age.0 / 1_000_000_000);
        if self.subdomains {
            value.push_str("; includeSubDomains");
        }
        if self.preload {
            value.push_str("; preload");
        }
        value
    }
}
