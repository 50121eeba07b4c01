//! What is to be done: a load, typed and checked.
//!
//! Takes nothing, gives [`Plan`] and its parts, all public and plain. Whoever makes one (the command line, a
//! test) has checked it with [`Plan::fault`]; engines trust it. No file is read here.

mod profile;
mod requests;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use telemetry::Nanos;

pub use profile::{Leg, Profile};
pub use requests::{Request, RequestParts};

/// A load and everything that it needs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the requests go.
    pub target: Target,
    /// The kinds of requests that are asked for, at least one.
    pub requests: Vec<Request>,
    /// What makes a request leave.
    pub load: Load,
    /// Connections and how they are used.
    pub connections: Connections,
    /// When it begins to count, and when it ends.
    pub length: Length,
    /// What a reply has to be.
    pub expect: Expect,
    /// Of WebSocket, where the requests are messages: the request of each handshake, up to the fields of WebSocket.
    pub upgrade: Option<Arc<[u8]>>,
    /// Clients that misbehave beside the measured ones.
    pub bad_clients: Vec<BadClients>,
    /// The generator's own side.
    pub machine: Machine,
}

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

/// What makes a request leave.
#[derive(Clone, Debug)]
pub enum Load {
    /// The reply to the one before: each connection keeps so many in flight as it may.
    Closed,
    /// The clock: requests leave at a rate, whether replies come or not.
    Open {
        /// How they are spaced.
        arrivals: Arrivals,
        /// Requests a second over the time of the run, its warm-up included.
        rate: Profile,
    },
    /// The clock, as it was recorded.
    Recorded {
        /// In the order of time.
        arrivals: Arc<[Arrival]>,
    },
    /// All at once: each connection sends what it may have in flight as soon as all of them are open, and
    /// then nothing more.
    Burst,
}

/// How the requests of an open load are spaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrivals {
    /// Equally.
    Constant,
    /// As independent clients come: exponential gaps, from this seed.
    Poisson {
        /// The same seed gives the same gaps.
        seed: u64,
    },
}

/// One recorded request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// After the beginning of the run.
    pub offset: Nanos,
    /// Which of [`Plan::requests`].
    pub kind: u32,
}

/// Connections and how they are used.
#[derive(Clone, Debug)]
pub struct Connections {
    /// At most so many at once, over all threads; at least 1.
    pub len: usize,
    /// Requests in flight on each; more than 1 is pipelining in HTTP/1.1, and streams in HTTP/2.
    pub in_flight: usize,
    /// What is spoken over them.
    pub protocol: Protocol,
    /// After so many requests a connection is closed and another one opened; `None`: it is kept.
    pub requests_each: Option<NonZeroU64>,
    /// Who ends a connection after its last request.
    pub closing: Closing,
    /// Connections opened a second while the run begins; `None`: as quickly as may be.
    pub opened_per_s: Option<f64>,
    /// Local addresses, used in turn; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// A request that is not answered so long after it was sent has failed; so has a connection that is not
    /// established so long after it was begun.
    pub timeout: Nanos,
}

/// The protocol of all connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub enum Protocol {
    /// RFC 9112
    #[default]
    #[serde(rename = "HTTP/1.1")]
    Http1,
    /// RFC 9113: with TLS by ALPN, without it by prior knowledge.
    #[serde(rename = "HTTP/2")]
    Http2,
    /// RFC 6455: requests and replies are messages.
    WebSocket,
}

impl Protocol {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
            Protocol::WebSocket => "WebSocket",
        }
    }
}

/// Who ends a connection after its last request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Closing {
    /// We do, by a reset: no port is kept from use, and the closing is not part of the measurement.
    Rst,
    /// We do, properly: each connection keeps a port of ours for a minute (TIME_WAIT).
    #[default]
    Fin,
    /// The server does, because the last request says `Connection: close`; a server that does not within
    /// a second after its reply is closed upon, and that is counted.
    Server,
}

/// When a run begins to count, and when it ends. At least one of `duration` and `requests` is given.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// What happens before is not counted.
    pub begin: Begin,
    /// Counted time.
    pub duration: Option<Nanos>,
    /// Counted requests, failed ones included.
    pub requests: Option<u64>,
}

/// When a run begins to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// With the first request.
    AtOnce,
    /// After so long.
    After(Nanos),
    /// When all connections are open and each has had one reply (or failed).
    AllOpen,
}

/// What a reply has to be.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Statuses that are right; empty: 200 to 399.
    pub statuses: Vec<u16>,
    /// Bytes of each body; `None`: any. A reply that ends before its own declared end is always short, and one
    /// to HEAD has no body that could be right.
    pub body_bytes: Option<u64>,
    /// What the body has to be.
    pub body: ExpectBody,
}

/// What a body has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExpectBody {
    /// Anything.
    #[default]
    Any,
    /// The same as the first one of its kind of request.
    SameAsFirst,
    /// The one with this SHA-256.
    Sha256([u8; 32]),
}

/// A group of misbehaving clients, on a thread of their own. Each that is ended is opened again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BadClients {
    /// Connections kept open.
    pub len: usize,
    /// What they do.
    pub misbehaviour: Misbehaviour,
    /// Bytes of their receive buffers; `None`: the kernel's choice. It is set before they connect.
    pub receive_buffer_bytes: Option<usize>,
}

/// What a misbehaving client does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Misbehaviour {
    /// Sends a request and never reads.
    NeverReads,
    /// Sends a request and reads so many bytes a second.
    ReadsAt {
        /// Of one connection.
        bytes_per_s: u64,
    },
    /// Sends a request one byte at a time, with this pause between.
    Trickles {
        /// Between two bytes.
        pause: Nanos,
    },
    /// Sends nothing at all.
    Idle,
    /// Sends a request, then the end of its stream, and reads the reply.
    HalfCloses,
    /// Sends a request and resets after this time.
    Resets {
        /// After the request.
        after: Nanos,
    },
}

/// The generator's own side.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Threads, each with its own loop and connections; at least 1.
    pub threads: usize,
    /// Each thread has a table of descriptors of its own.
    pub tables: Tables,
    /// Processors that the threads may use; empty: any.
    pub cpus: Vec<usize>,
    /// When a reply counts as arrived.
    pub timestamps: Timestamps,
    /// Before a due request the loop spins so long instead of sleeping.
    pub spin: Nanos,
    /// Processes of the server to be watched; their children are watched with them.
    pub server_pids: Vec<u32>,
}

/// Whose descriptors a thread uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tables {
    /// The process's.
    Shared,
    /// Its own: each thread may have as many as the limit says.
    Own,
}

/// When a reply counts as arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timestamps {
    /// When the generator has read it: what waits for a busy generator is in its latency.
    #[default]
    Read,
    /// When this machine's kernel had it, by its own stamps (socket(7), SO_TIMESTAMPNS).
    Kernel,
}

impl Plan {
    /// Why the parts do not fit together, with the remedy; `None`: they do. What no text of a load can say
    /// (no end, nothing to send, nobody to send it) ends the program.
    pub fn fault(&self) -> Option<&'static str> {
        self.assert_sound();
        let connections = &self.connections;
        let is_too_deep = |each: NonZeroU64| each.get() < connections.in_flight as u64;
        let is_stamped = self.machine.timestamps == Timestamps::Kernel;
        let faults = [
            (
                self.machine.threads > connections.len,
                "more threads than connections: give fewer threads or more connections",
            ),
            (
                connections.in_flight > 1 && connections.requests_each.is_some_and(is_too_deep),
                "more requests in flight than a connection may send: lower `--pipeline` or `--streams`",
            ),
            (
                connections.protocol == Protocol::Http2 && connections.closing == Closing::Server,
                "a request of HTTP/2 cannot ask the server to end the connection",
            ),
            (
                connections.protocol == Protocol::Http2 && !self.bad_clients.is_empty(),
                "the misbehaving clients speak HTTP/1.1 only",
            ),
            (
                self.length.begin == Begin::AllOpen && !matches!(self.load, Load::Closed),
                "only a closed load can begin to count when all connections are open",
            ),
            (
                is_stamped && matches!(self.target.scheme, Scheme::Https(_)),
                "the kernel's timestamps are of packets, not of what TLS makes of them: use \
                 `--timestamps read`",
            ),
            (
                is_stamped && matches!(self.target.address, Address::Unix(_)),
                "a unix socket has no timestamps of the kernel: use `--timestamps read`",
            ),
        ];
        let mut found = faults.into_iter().filter(|(is_so, _)| *is_so);
        found.next().map(|(_, text)| text)
    }

    fn assert_sound(&self) {
        let (connections, kinds) = (&self.connections, &self.requests);
        let is_rate = |number: f64| number.is_finite() && number > 0.0;
        assert!(
            self.length.duration.is_some() || self.length.requests.is_some(),
            "a run has an end"
        );
        assert!(
            connections.len > 0 && connections.in_flight > 0 && self.machine.threads > 0,
            "a thread sends requests over a connection"
        );
        assert!(
            connections.opened_per_s.is_none_or(is_rate),
            "connections are opened at a rate"
        );
        let is_sent = match &self.load {
            // A recorded request needs no weight.
            Load::Recorded { arrivals } => {
                let is_known = |arrival: &Arrival| (arrival.kind as usize) < kinds.len();
                !arrivals.is_empty() && arrivals.iter().all(is_known)
            }
            Load::Open { rate, .. } if !is_rate(rate.most()) => false,
            Load::Open { .. } | Load::Closed | Load::Burst => {
                kinds.iter().any(|kind| kind.weight > 0)
            }
        };
        assert!(is_sent, "a load sends requests that there are");
    }
}
