//! Routes to applications, upstreams and folders: which requests are for them, and what becomes of those on their way.
//!
//! Values alone.

use std::net::IpAddr;
use std::path::PathBuf;

use telemetry::Nanos;

/// `[[route]]`: requests that one target answers. What is not set fits all; all that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// A host without port, in lower case; `*.` before it: all beneath; `None`: any.
    pub host: Option<String>,
    /// Prefix of the path, with a leading slash and without a trailing one; empty for all paths.
    pub path: String,
    /// Methods, as they are sent; empty: any.
    pub methods: Vec<String>,
    /// A header in lower case, and its value if a certain one is meant.
    pub header: Option<(String, Option<String>)>,
    /// Client networks, as addresses and prefix lengths; empty: any client.
    pub from: Vec<(IpAddr, u8)>,
    /// What answers them.
    pub target: RouteTarget,
    /// What becomes of the requests and their responses.
    pub settings: RouteSettings,
}

/// Longest time in which the whole burst of a rate limit comes again.
pub const RATE_FILL_MAX: Nanos = Nanos::from_secs(30 * 86_400);

/// What answers the requests of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// An application or an upstream: index of the pool among `Config::pools`, unless a rule names another one of the
    /// same application.
    Pool(usize),
    /// A folder of files: index among `Config::mounts`.
    Files(usize),
}

/// What becomes of the requests of a route, and of their responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSettings {
    /// The path of the route is removed towards the upstream: of `/api/x` under `/api`, `/x` is left.
    pub strips_path: bool,
    /// Most bytes of a body, instead of `Limits::body_bytes_max`.
    pub body_bytes_max: Option<u64>,
    /// Instead of the pool's; `Some(None)`: none.
    pub request_timeout: Option<Option<Nanos>>,
    /// When the task of a request whose client has gone is cancelled, instead of the pool's; `Some(None)`: never.
    pub disconnect_cancel: Option<Option<Nanos>>,
    /// Whether bodies pass while they arrive, instead of `Upstream::streams_requests`.
    pub streams_requests: Option<bool>,
    /// Headers on their way to the upstream.
    pub request_headers: FieldChanges,
    /// Headers of responses.
    pub response_headers: FieldChanges,
    /// File of the users and their passwords; `None`: nobody has to have one.
    pub basic_auth: Option<PathBuf>,
    /// Another server decides who may.
    pub forward_auth: Option<ForwardAuth>,
    /// How often clients may ask.
    pub rate_limit: Option<RateLimit>,
}

/// Headers that are removed, then headers that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldChanges {
    /// Names in lower case, each once.
    pub removed: Vec<String>,
    /// Each takes the place of all of its name. Names as they are written, each once in any case.
    pub set: Vec<(String, FieldTemplate)>,
}

/// The value of a header: text, and facts of the request in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldTemplate(pub Vec<TemplatePart>);

/// A part of the value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// Visible ASCII and spaces.
    Text(String),
    /// `{client}`
    Fact(RequestFact),
}

/// What a header may say of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFact {
    /// The client's address.
    Client,
    /// The client's port.
    ClientPort,
    /// Address of the connection's other end: that of a proxy in front, where there is one.
    Peer,
    /// Id of the request.
    RequestId,
    /// The host that was asked for, with its port where it was named.
    Host,
    /// `http` or `https`.
    Scheme,
    /// The method.
    Method,
    /// The path as it was sent.
    Path,
    /// The address that the client connected to.
    Server,
    /// The port that the client connected to.
    ServerPort,
    /// Time in the queue so far, in milliseconds.
    QueueMs,
    /// Version of TLS, as `TLSv1.3`; empty without TLS.
    TlsVersion,
    /// Cipher of TLS; empty without TLS.
    TlsCipher,
    /// Name that the client asked for in its TLS handshake.
    TlsName,
    /// Subject of the client's certificate; empty without one.
    TlsClient,
    /// The user whose password was right (`basic_auth`); empty without.
    User,
}

/// Another server says whether a request may pass, by the status of its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardAuth {
    /// Index among `Config::upstreams`.
    pub upstream: usize,
    /// What is asked for.
    pub path: String,
    /// Headers of its response that the request gets, in lower case; those of the client are removed.
    pub copied: Vec<String>,
}

/// How often the requests of one client, or of one key, may come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Time from one request to the next, in the long run.
    pub interval: Nanos,
    /// So many at once, at least 1.
    pub burst: u32,
    /// Which requests count together.
    pub by: RateKey,
}

/// Which requests count together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKey {
    /// Those of one network of clients, by so many leading bits.
    Client {
        /// Of an IPv4 address.
        prefix_v4: u8,
        /// Of an IPv6 address.
        prefix_v6: u8,
    },
    /// Those with one value of a header, its name in lower case; those without it count together.
    Header(String),
}

impl RequestFact {
    /// All, with their names in templates.
    pub const NAMED: [(&str, RequestFact); 16] = [
        ("client", RequestFact::Client),
        ("client_port", RequestFact::ClientPort),
        ("peer", RequestFact::Peer),
        ("request_id", RequestFact::RequestId),
        ("host", RequestFact::Host),
        ("scheme", RequestFact::Scheme),
        ("method", RequestFact::Method),
        ("path", RequestFact::Path),
        ("server", RequestFact::Server),
        ("server_port", RequestFact::ServerPort),
        ("queue_ms", RequestFact::QueueMs),
        ("tls_version", RequestFact::TlsVersion),
        ("tls_cipher", RequestFact::TlsCipher),
        ("tls_name", RequestFact::TlsName),
        ("tls_client", RequestFact::TlsClient),
        ("user", RequestFact::User),
    ];
}

impl FieldChanges {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.set.is_empty()
    }

    /// Whether the client's or the application's own header of this name, in any case, goes.
    pub fn replaces(&self, name: &[u8]) -> bool {
        let mut removed = self.removed.iter();
        let mut set = self.set.iter();
        removed.any(|own| own.as_bytes().eq_ignore_ascii_case(name))
            || set.any(|(own, _)| own.as_bytes().eq_ignore_ascii_case(name))
    }
}

impl Default for RouteTarget {
    /// The first pool, which is there always.
    fn default() -> Self {
        RouteTarget::Pool(0)
    }
}

impl Route {
    /// Index of its pool; `None` where a folder answers.
    pub fn pool(&self) -> Option<usize> {
        match self.target {
            RouteTarget::Pool(pool) => Some(pool),
            RouteTarget::Files(_) => None,
        }
    }

    /// Whether it takes every request.
    pub fn takes_all(&self) -> bool {
        self.fits_alike(&Route::default())
    }

    /// Whether both take the same requests.
    pub fn fits_alike(&self, other: &Route) -> bool {
        let same_place = self.host == other.host && self.path == other.path;
        same_place
            && self.methods == other.methods
            && self.header == other.header
            && self.from == other.from
    }

    /// What logs and counters call it: `/ws`, `api.example.org/`.
    pub fn name(&self) -> String {
        let path = match self.path.as_str() {
            "" => "/",
            path => path,
        };
        format!("{}{path}", self.host.as_deref().unwrap_or_default())
    }
}
