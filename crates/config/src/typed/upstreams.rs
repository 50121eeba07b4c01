//! Upstreams: groups of servers elsewhere that requests are passed on to, and how one of them is chosen.
//!
//! Values alone.

use std::fmt;
use std::path::PathBuf;

use telemetry::Nanos;

/// Servers of one group, and addresses that they have together: each has a state of its own in every process.
pub const UPSTREAM_SERVERS_MAX: usize = 256;

defaults! {
    /// A group of servers that answer the same requests. Its queue is a pool of the same name.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Upstream {
        /// What logs, counters and routes call it.
        pub name: String,
        /// Index of its pool among `Config::pools`; none other has it.
        pub pool: usize,
        /// In the order given; never empty after checking, each address once, one of them no backup.
        pub servers: Vec<UpstreamServer>,
        /// The version of HTTP that they speak.
        pub protocol: UpstreamProtocol,
        /// TLS to those servers that have it.
        pub tls: UpstreamTls,
        /// How a server is chosen.
        pub balance: Balance,
        /// Most requests in flight at one server where its slots are learnt or reported.
        pub slots_max: u32 = 256,
        /// A connection must be made within this time, its TLS handshake included.
        pub connect_timeout: Nanos = Nanos::from_secs(5),
        /// Longest time until the first byte of a response, and between two reads of it.
        pub response_timeout: Nanos = Nanos::from_secs(60),
        /// An idle connection is closed after this time.
        pub idle_timeout: Nanos = Nanos::from_secs(50),
        /// Idle connections of one driver to one server.
        pub idle_max: usize = 64,
        /// Long bodies of requests are passed on while they arrive.
        pub streams_requests: bool,
        /// A tunnel, such as a WebSocket connection, in which nothing moves for this time is closed.
        pub tunnel_idle: Nanos = Nanos::from_secs(3600),
        /// Tunnels of one process to its servers at once.
        pub tunnels_max: usize = 10_000,
        /// Further tries of a request.
        pub retries: u32 = 2,
        /// Most retries as a share of the requests, from 0 to 1.
        pub retry_budget: f64 = 0.1,
        /// Statuses of responses that are tried again, where the request may be sent twice.
        pub retry_status: Vec<u16>,
        /// Time over which a server that comes back gets its full share.
        pub slow_start: Nanos = Nanos::from_secs(30),
        /// Consecutive failures after which a server gets no requests for a while; `None`: it always gets some.
        pub eject_after: Option<u32> = Some(5),
        /// For how long, the first time.
        pub eject_time: Nanos = Nanos::from_secs(30),
        /// Requests of the proxy itself that find out whether a server works.
        pub check: Option<HealthCheck>,
        /// How often names are resolved again.
        pub resolve_every: Nanos = Nanos::from_secs(10),
        /// Connections begin with a PROXY protocol header of version 2.
        pub sends_proxy_header: bool,
        /// The load reports of responses count.
        pub trusts_reports: bool = true,
        /// Responses of the proxy itself say in Proxy-Status what went wrong.
        pub says_proxy_status: bool,
    }
}

/// One server of an upstream; a name may stand for several addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamServer {
    /// Where it is.
    pub address: ServerAddress,
    /// It speaks TLS.
    pub has_tls: bool,
    /// Most requests in flight, at least 1; `None`: by its report, or learnt.
    pub slots: Option<u32>,
    /// Its share beside the others, at least 1.
    pub weight: u32,
    /// It gets requests only while no other server works.
    pub is_backup: bool,
}

/// Where a server is. Its text is what logs call the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// An address in digits, without brackets, or a name in lower case.
    Tcp {
        /// Without a port.
        host: String,
        /// From 1 on.
        port: u16,
    },
    /// A unix socket; absolute after checking.
    Unix(PathBuf),
}

/// The version of HTTP towards servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1
    #[default]
    Http1,
    /// HTTP/2: under TLS by ALPN, over plain connections with prior knowledge (RFC 9113 sections 3.2 and 3.3).
    Http2,
}

/// How a server is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One with a free slot, the least loaded; none while none has one.
    #[default]
    Queue,
    /// The one with the fewest requests in flight.
    LeastConnections,
    /// Of two random ones, the one with fewer requests in flight.
    TwoChoices,
    /// By latency times requests in flight.
    PeakEwma,
    /// By reported requests in flight, then by latency.
    Prequal,
    /// In turn.
    RoundRobin,
    /// Any.
    Random,
    /// The first with a free slot.
    First,
    /// By a key of the request, with bounded load.
    Hash(HashKey),
    /// The one that the client had before.
    Sticky {
        /// Name of the cookie that says which.
        cookie: String,
    },
}

/// What of a request its server is chosen by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Client,
    /// The path, without the query.
    Path,
    /// A header, its name in lower case.
    Header(String),
    /// A cookie.
    Cookie(String),
}

/// Requests of the proxy itself that find out whether a server works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for; a status below 400 is good.
    pub path: String,
    /// From one check of a server to the next.
    pub interval: Nanos,
    /// So many good ones in a row, and the server works.
    pub rise: u32,
    /// So many bad ones in a row, and it does not.
    pub fall: u32,
    /// A check that takes longer is bad.
    pub timeout: Nanos,
}

defaults! {
    /// TLS to servers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct UpstreamTls {
        /// File with the authorities that count; `None`: those of the system.
        pub ca: Option<PathBuf>,
        /// Name that is asked for, and that the certificate must have; `None`: the server's host.
        pub name: Option<String>,
        /// Certificates are checked.
        pub is_verified: bool = true,
        /// Certificate and key that the proxy shows.
        pub client: Option<ClientIdentity>,
    }
}

/// A certificate with its key that the proxy shows to servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate, and behind it those that lead to an authority.
    pub cert: PathBuf,
    /// Its private key; may be the same file.
    pub key: PathBuf,
}

impl UpstreamServer {
    /// Without anything beside its address.
    pub fn at(address: ServerAddress, has_tls: bool) -> Self {
        Self {
            address,
            has_tls,
            slots: None,
            weight: 1,
            is_backup: false,
        }
    }
}

impl UpstreamServer {
    /// The scheme of its URL.
    pub fn scheme(&self) -> &'static str {
        match self.has_tls {
            true => "https",
            false => "http",
        }
    }

    /// What Host says to it where nobody else says something.
    pub fn authority(&self) -> String {
        match &self.address {
            address @ ServerAddress::Tcp { .. } => address.to_string(),
            ServerAddress::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // RFC 3986 section 3.2.2: brackets tell the colons of an address from that of the port.
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for UpstreamServer {
    /// As it is written in a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, self.has_tls) {
            (ServerAddress::Unix(_), _) => write!(f, "{}", self.address),
            (address, true) => write!(f, "https://{address}"),
            (address, false) => write!(f, "http://{address}"),
        }
    }
}
