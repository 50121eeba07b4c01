//! The configuration as it is meant: typed values with their defaults, ready for use.
//!
//! Taken from `options_table` (what people wrote, from flags, environment and TOML) and read by every module;
//! holds no text form, no file positions and no I/O.

/// Structures with the values of their fields before anything is set: those of their types where none is named.
/// A test holds them against the table of settings.
macro_rules! defaults {
    ($(#[$of:meta])* pub struct $name:ident {
        $($(#[$about:meta])* pub $field:ident: $type:ty $(= $value:expr)?,)*
    }) => {
        $(#[$of])*
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: defaults!(@ $($value)?),)* }
            }
        }
    };
    (@) => { Default::default() };
    (@ $value:expr) => { $value };
}

mod acme;
mod admin;
mod applications;
mod asgi;
mod hooks;
mod logs;
mod pools;
mod processes;
mod proxies;
mod routes;
mod tls;
mod traces;
mod upstreams;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use telemetry::Nanos;

use crate::options_table::COMPRESS_TYPES;
use crate::parse::{files, rules};

pub use acme::{AcmeChallenge, AcmeConfig, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, is_local_name};
pub use admin::{AdminBind, AdminConfig, StatsdConfig};
pub use applications::App;
pub use asgi::{
    AsgiConfig, Concurrency, EventLoopKind, HttpSpec, Interface, LifespanMode, WebSocketConfig,
};
pub use hooks::{Hook, HookMoment};
pub use logs::{
    AccessLog, ErrorLog, ErrorLogForm, Level, Levels, LogFilter, LogForm, LogOverflow, LogPrivacy,
    LogTarget, Logs, RequestIds, Rotation,
};
pub use pools::{PoolConfig, PoolRule, PoolRuns, SlowPool};
pub use processes::{
    ControlConfig, Development, PROCESSES_MAX, Processes, Recycling, too_many_drivers,
};
pub use proxies::{PeerSet, Proxies, UnixPeers};
pub use routes::{
    FieldChanges, FieldTemplate, ForwardAuth, RATE_FILL_MAX, RateKey, RateLimit, RequestFact,
    Route, RouteSettings, RouteTarget, TemplatePart,
};
pub use tls::{
    ClientAuth, ClientDemand, Hsts, HttpsRedirect, KeyPassword, Tls, TlsFile, TlsIdentity,
    TlsVersion, UnknownName,
};
pub use traces::{TraceExport, TraceParents, TraceShare, Traces};
pub use upstreams::{
    Balance, ClientIdentity, HashKey, HealthCheck, ServerAddress, UPSTREAM_SERVERS_MAX, Upstream,
    UpstreamProtocol, UpstreamServer, UpstreamTls,
};

defaults! {
    /// The whole configuration of one serving process.
    #[derive(Clone, Debug)]
    pub struct Config {
        /// Addresses to listen on, in the order given. Never empty after checking.
        pub binds: Vec<Bind>,
        /// Names that get certificates by themselves, if there are any.
        pub acme: Option<AcmeConfig>,
        /// TLS of those addresses.
        pub tls: Tls,
        /// Serving processes and their supervisor.
        pub processes: Processes,
        /// Driver threads and how they accept.
        pub listen: Listen,
        /// Python applications, each once: the one that answers what no route takes first, then those of routes.
        pub apps: Vec<App>,
        /// Servers elsewhere that requests are passed on to, in the order given.
        pub upstreams: Vec<Upstream>,
        /// Which requests go to which application or upstream. The first that fits counts: after checking, the narrowest
        /// host comes first, then the longest path, then what names more of a request.
        pub routes: Vec<Route>,
        /// How ASGI applications run.
        pub asgi: AsgiConfig,
        /// Functions that are called when something happens to a process, in the order given.
        pub hooks: Vec<Hook>,
        /// Folders of files, the longest URL prefix first after checking.
        pub statics: Vec<StaticMount>,
        /// Folders of routes, with the paths of their routes as URLs, in the order of the configuration.
        pub route_folders: Vec<StaticMount>,
        /// Pools of threads that run an application, and the queues of upstreams. The first is there always, takes what no
        /// rule gives to another, and is called `default`.
        pub pools: Vec<PoolConfig> = vec![PoolConfig::default()],
        /// Which requests go to which pool, and how much they matter; the narrowest rule counts.
        pub pool_rules: Vec<PoolRule>,
        /// Proxies in front, and what is believed of them.
        pub proxies: Proxies,
        /// Requests that run longer than this have their thread's stack in the error log, once each.
        pub slow_request: Option<Nanos>,
        /// Where requests go whose like have been slow.
        pub slow_pool: Option<SlowPool>,
        /// Bounds of what a client may send.
        pub limits: http::Limits,
        /// HTTP/2.
        pub http2: Http2,
        /// Deadlines.
        pub timeouts: Timeouts,
        /// Request bodies beyond memory.
        pub spool: Spool,
        /// Replies that their client does not take at once.
        pub delivery: Delivery,
        /// Small files kept in memory, for each driver.
        pub file_cache: FileCache,
        /// Access and error logs.
        pub logs: Logs,
        /// Where request ids come from.
        pub request_ids: RequestIds,
        /// Traces that requests belong to.
        pub traces: Traces,
        /// File that holds the process id while the server runs.
        pub pid_file: Option<PathBuf>,
        /// Where the state of the server can be asked for.
        pub admin: AdminConfig,
        /// Where numbers are sent to once a second.
        pub statsd: StatsdConfig,
        /// Reply headers that the server adds.
        pub headers: Headers,
        /// TRACE requests are passed to the application; otherwise 405 answers them, as everywhere else.
        pub trace_requests: bool,
        /// Path that answers with the server's counters as JSON; nothing by default.
        pub status_path: Option<String>,
        /// The path that is always answered with 200.
        pub health_path: Option<String>,
        /// The path that is answered with 200 while requests can be served, else with 503.
        pub ready_path: Option<String>,
        /// Path that answers with the load as JSON; nothing by default.
        pub load_path: Option<String>,
        /// How files are found, sent and described.
        pub file_serving: FileServing,
        /// Compression of the application's replies.
        pub compression: Compression,
        /// Bandwidth limits of replies.
        pub rates: Rates,
        /// Requests over plain HTTP are redirected to HTTPS.
        pub https_redirect: HttpsRedirect,
        /// Redirects, fixed replies and rewrites, looked at before the routes.
        pub rules: RulesConfig,
        /// Pages that replace the plain ones of replies that the server gives by itself. The first that has
        /// the status counts; after checking the narrowest range comes first.
        pub error_pages: Vec<ErrorPage>,
    }
}

impl Config {
    /// Bounds and times of WebSocket connections. Close frames are to be out before what is left is cut.
    pub fn websocket(&self) -> WebSocketConfig {
        let drain_max = Nanos(self.timeouts.drain.0 / 10 * 9);
        let websocket = self.asgi.websocket;
        WebSocketConfig {
            drain: websocket.drain.min(drain_max),
            ..websocket
        }
    }

    /// The routes, with their indices among `route_names`.
    pub fn numbered_routes(&self) -> impl Iterator<Item = (u16, &Route)> {
        // Four are always there, of which the third is the one that takes all; the mounts follow.
        const APP: usize = 2;
        let mut next = 4 + self.statics.len();
        self.routes.iter().map(move |route| {
            let index = match route.takes_all() {
                true => APP,
                false => {
                    next += 1;
                    next - 1
                }
            };
            let index = u16::try_from(index).expect("fewer than 65,000 routes");
            (index, route)
        })
    }

    /// All folders of files: those that are there for every host, then those of routes.
    pub fn mounts(&self) -> impl Iterator<Item = &StaticMount> {
        self.statics.iter().chain(&self.route_folders)
    }

    /// Whether there are pools: files and replies of rules need none.
    pub fn has_pools(&self) -> bool {
        !self.apps.is_empty() || !self.upstreams.is_empty()
    }
}

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// `host:port` or `[v6]:port`; a name may stand for several addresses.
    Tcp(Vec<SocketAddr>),
    /// `unix:path`
    Unix(UnixSocket),
    /// `systemd` or `systemd:NAME`: sockets that the service manager listens on already (LISTEN_FDS), all of
    /// them or those of that name.
    Inherited(Option<String>),
}

/// A unix socket that is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its file.
    pub path: PathBuf,
    /// The file's rights, nine bits: to connect is to write.
    pub mode: u32,
    /// The file's group, by name or number; `None`: that of the server.
    pub group: Option<String>,
}

/// Which driver gets a connection, where the kernel can be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Steering {
    /// By a hash of the addresses: the kernel's own way.
    #[default]
    Hash,
    /// The driver whose number is that of the processor that the connection came in on, modulo drivers.
    Cpu,
}

defaults! {
    /// Driver threads and how they accept.
    #[derive(Clone, Debug)]
    pub struct Listen {
        /// Driver threads per process.
        pub drivers: usize = 1,
        /// Processors that drivers are pinned to, by turns; empty: not pinned.
        pub driver_cpus: Vec<usize>,
        /// Connections accepted in one turn before those already there are served.
        pub accept_batch: usize = 32,
        /// Length of the kernel's accept queue asked for.
        pub backlog: u32 = 4096,
        /// Seconds that the kernel keeps a connection that has sent nothing; 0 is off.
        pub defer_accept_secs: u32,
        /// TCP_NODELAY on accepted connections.
        pub nodelay: bool = true,
        /// Open connections per process; at the bound the server pauses accepting.
        pub connections_max: usize = 10_000,
        /// Open connections of one client; one more is refused with 429. `None`: no bound.
        pub client_connections_max: Option<usize>,
        /// Leading bits of an IPv4 address that tell clients apart.
        pub client_prefix_v4: u8 = 32,
        /// Leading bits of an IPv6 address that tell clients apart.
        pub client_prefix_v6: u8 = 64,
        /// Which driver gets a connection.
        pub steering: Steering = Steering::Hash,
        /// When a connection has waited in a driver's accept queue for this long, and that driver has accepted
        /// nothing meanwhile, another driver accepts from its socket as well.
        pub driver_stall: Nanos = Nanos::from_ms(500),
    }
}

/// A folder of files: `--static /url=dir`, or that of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticMount {
    /// URL prefix with a leading slash and without a trailing one; empty for the root.
    pub url: String,
    /// Folder.
    pub dir: PathBuf,
    /// File served for a folder's URL.
    pub index: String,
    /// File beneath `dir` that answers with 200 where there is none: the shell of a single-page
    /// application. Relative, with plain names only, none of them dotted.
    pub fallback: Option<String>,
}

defaults! {
    /// How files are found, sent and described.
    #[derive(Clone, Debug)]
    pub struct FileServing {
        /// Threads that send spans of files; 0: drivers do.
        pub writers: usize = 1,
        /// Files from this size on are sent from their descriptor; smaller ones are read whole.
        pub writer_bytes_min: usize = 64 << 10,
        /// Threads that look files up, open and read them; 0: drivers do.
        pub openers: usize = 4,
        /// Compressed siblings (`a.css.br`) that are looked for, the preferred first; empty: none.
        pub encodings: Vec<Coding> = vec![Coding::Brotli, Coding::Zstd, Coding::Gzip],
        /// A folder without an index file answers with a list of its files.
        pub listing: bool,
        /// `Cache-Control` of files; the first rule whose glob matches counts.
        pub cache_control: Vec<CacheRule>,
    }
}

/// A content coding (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `br`, RFC 7932
    Brotli,
    /// `zstd`, RFC 8878
    Zstd,
    /// `gzip`, RFC 1952
    Gzip,
}

/// `[[cache_control]]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheRule {
    /// Glob over the decoded URL path, such as `/static/**/*.css`: it begins with a slash, `*` stays
    /// within a folder (globset's `literal_separator`). Checked.
    #[serde(rename = "path", deserialize_with = "files::cache_path")]
    pub glob: String,
    /// Value of `Cache-Control`: visible ASCII and spaces.
    #[serde(deserialize_with = "files::cache_value")]
    pub value: String,
}

defaults! {
    /// Compression of the application's replies, on the thread that makes them.
    #[derive(Clone, Debug)]
    pub struct Compression {
        /// Codings offered, the preferred first; empty: off.
        pub codings: Vec<Coding>,
        /// Smallest body of known length that is compressed.
        pub bytes_min: usize = 1 << 10,
        /// 1 to 9.
        pub gzip_level: u32 = 6,
        /// 0 to 11.
        pub brotli_level: u32 = 4,
        /// 1 to 19.
        pub zstd_level: i32 = 3,
        /// Media types without parameters, in lower case; `text/*` stands for all of a kind.
        pub types: Vec<String> = COMPRESS_TYPES.split(", ").map(str::to_owned).collect(),
    }
}

/// Bandwidth limits of replies. The first of connection, route and pool that is set counts alone.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// Of each connection by itself.
    pub connection: Option<Rate>,
    /// Of all replies of one route together, by the route's URL prefix, each once: that of a mount, or `""`
    /// for the application where no folder is mounted at the root.
    pub routes: Vec<(String, Rate)>,
    /// Of all replies of the pool together.
    pub pool: Option<Rate>,
}

/// A bandwidth limit that was set; `None` around it means that it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// `off`: no limit here, whatever the wider scopes say.
    Unlimited,
    /// Bytes a second, at least 1.
    BytesPerSec(u64),
}

/// Redirects, fixed replies and rewrites. Each list is tried in its order; redirects first, then fixed
/// replies, then rewrites, and a request is rewritten at most once.
#[derive(Clone, Debug, Default)]
pub struct RulesConfig {
    /// In their order.
    pub redirects: Vec<RedirectConfig>,
    /// In their order.
    pub replies: Vec<FixedReply>,
    /// In their order.
    pub rewrites: Vec<Rewrite>,
}

/// Which paths a rule is about: one path, or all that begin alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// `/old`
    Exactly(String),
    /// `/old/*`, without its star: everything behind this text is the rest. It ends with a slash.
    Beginning(String),
}

/// `[[redirect]]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedirectConfig {
    /// Paths that are redirected.
    #[serde(deserialize_with = "rules::from")]
    pub from: PathPattern,
    /// Path (with one slash in front) or absolute `http` URL, in visible ASCII, perhaps with query and
    /// fragment. Behind a `Beginning` one `*` in it stands for the rest.
    #[serde(deserialize_with = "rules::redirect_to")]
    pub to: String,
    /// 301, 302, 303, 307 or 308.
    #[serde(
        default = "rules::redirect_status_default",
        deserialize_with = "rules::redirect_status"
    )]
    pub status: u16,
    /// Of the paths of `from`, those that are not redirected.
    #[serde(default, deserialize_with = "rules::except")]
    pub except: Vec<PathPattern>,
}

/// `[[respond]]`: a fixed reply.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedReply {
    /// Paths that it answers.
    #[serde(rename = "path", deserialize_with = "rules::from")]
    pub from: PathPattern,
    /// 200 to 599 without the redirects.
    #[serde(deserialize_with = "rules::reply_status")]
    pub status: u16,
    /// The body, as plain text; may be empty, and is for 204, 205 and 304.
    #[serde(default, deserialize_with = "rules::reply_text")]
    pub text: String,
}

/// `[[rewrite]]`: the request goes on as one for another path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// Paths that are rewritten.
    #[serde(deserialize_with = "rules::from")]
    pub from: PathPattern,
    /// The other path, in visible ASCII, which may have a query. Behind a `Beginning` one `*` in it stands
    /// for the rest.
    #[serde(deserialize_with = "rules::rewrite_to")]
    pub to: String,
}

/// A page for replies that the server gives by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// First status that it is for, from 400 on.
    pub status_min: u16,
    /// Last status that it is for, up to 599.
    pub status_max: u16,
    /// The file, of at most 1 MiB; read at start-up.
    pub file: PathBuf,
}

defaults! {
    /// HTTP/2.
    #[derive(Clone, Debug)]
    pub struct Http2 {
        /// Clients may speak it.
        pub is_on: bool = true,
        /// Requests that one connection may have under way.
        pub streams_max: u32 = 128,
    }
}

defaults! {
    /// Deadlines; none is renewed by a trickle of bytes unless it says so.
    #[derive(Clone, Debug)]
    pub struct Timeouts {
        /// A TLS handshake must be over this long after the accept.
        pub tls_handshake: Nanos = Nanos::from_secs(10),
        /// A head must be complete this long after its first byte (after the accept for the first one).
        pub head: Nanos = Nanos::from_secs(30),
        /// How far a body may fall behind `body_rate_min`: its longest silence.
        pub body: Nanos = Nanos::from_secs(30),
        /// Bytes a second that a body has to keep; 0: only silence counts.
        pub body_rate_min: u64 = 256,
        /// An idle keep-alive connection lasts this long.
        pub idle: Nanos = Nanos::from_secs(60),
        /// A connection takes requests for about this long.
        pub connection_age_max: Option<Nanos> = Some(Nanos::from_secs(3_600)),
        /// How far a reply may fall behind `send_rate_min`: its longest time without progress.
        pub send: Nanos = Nanos::from_secs(30),
        /// Bytes a second of a reply that a client has to take; 0: only progress counts.
        pub send_rate_min: u64 = 256,
        /// How long the rest of a refused body is read and thrown away so that the client sees the refusal.
        pub linger: Nanos = Nanos::from_secs(2),
        /// From the first signal to the end.
        pub drain: Nanos = Nanos::from_secs(30),
    }
}

defaults! {
    /// Request bodies beyond memory.
    #[derive(Clone, Debug)]
    pub struct Spool {
        /// Largest body kept in memory; larger ones go to an unnamed file.
        pub body_memory_bytes: usize = 64 << 10,
        /// Threads that write those files.
        pub spoolers: usize = 1,
        /// Folder of the unnamed files.
        pub dir: PathBuf = std::env::temp_dir(),
    }
}

defaults! {
    /// Replies that their client does not take at once.
    #[derive(Clone, Debug)]
    pub struct Delivery {
        /// Bytes of one streamed response that wait for its client; past it the worker waits.
        pub reply_spool_bytes_max: u64 = 1 << 30,
        /// How long a worker waits so in all.
        pub stream_wait_timeout: Nanos = Nanos::from_secs(60),
        /// Bytes of all replies that wait in memory; past it they wait in their files.
        pub replies_memory_bytes_max: usize = 256 << 20,
    }
}

defaults! {
    /// Small files kept in memory, for each driver.
    #[derive(Clone, Debug)]
    pub struct FileCache {
        /// Bytes in all.
        pub bytes_max: usize = 64 << 20,
        /// Largest file kept.
        pub entry_bytes_max: usize = 64 << 10,
        /// A cached file is looked at again (stat) when its last look is older than this.
        pub revalidate: Nanos = Nanos::from_secs(1),
        /// While its storage is asked, a cached file is still given when its last look is not older than this.
        pub stale_max: Nanos = Nanos::from_secs(10),
    }
}

/// Which responses tell the server's load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadReports {
    /// Those to trusted proxies that describe their clients.
    Trusted,
    /// None.
    Off,
}

defaults! {
    /// Reply headers that the server adds.
    #[derive(Clone, Debug)]
    pub struct Headers {
        /// `Server`; empty: none.
        pub server: String = "milepost".to_owned(),
        /// `Server-Timing` with the phases that have passed.
        pub server_timing: bool,
        /// `endpoint-load-metrics`.
        pub load_report: LoadReports = LoadReports::Trusted,
        /// `Strict-Transport-Security` of responses over HTTPS.
        pub hsts: Option<Hsts>,
    }
}

impl Coding {
    /// Its name in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }
}
