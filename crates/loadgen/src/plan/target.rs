//! Where the requests go.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the requests go.
#[derive(Clone, Debug)]
pub struct Target {
    /// As it was given, for people.
    pub url: String,
    /// With or without TLS.
    pub scheme: Scheme,
    /// Where to connect to.
    pub address: Address,
    /// The `Host` field.
    pub host: String,
    /// Path and query of the URL.
    pub path: String,
}

/// With or without TLS.
#[derive(Clone, Debug)]
pub enum Scheme {
    /// Without.
    Http,
    /// With.
    Https(Tls),
}

/// How TLS is spoken.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The name that is asked for and, with [`TlsTrust::Authority`], checked.
    pub server_name: String,
    /// Whose word counts.
    pub trust: TlsTrust,
    /// Connections after the first one resume its session.
    pub resumes: bool,
}

/// Whose word for a server counts.
#[derive(Clone, Debug)]
pub enum TlsTrust {
    /// That of the authorities in this file of PEM certificates.
    Authority(PathBuf),
    /// Anybody's: the certificate is not checked.
    Anybody,
}

/// Where to connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// TCP.
    Ip(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}
