//! Pools as they are meant: sizes and queues, which requests each takes, and where slow ones go.
//!
//! Values alone.

use telemetry::Nanos;

defaults! {
    /// A pool of threads that run an application, and its queue; or the queue in front of an upstream, whose threads are
    /// elsewhere.
    #[derive(Clone, Debug)]
    pub struct PoolConfig {
        /// What logs, counters and rules call it.
        pub name: String = "default".to_owned(),
        /// What answers its requests.
        pub runs: PoolRuns,
        /// Fewest threads; 1 for an upstream, which has none here.
        pub threads_min: usize = 4,
        /// Most threads; 1 for an upstream.
        pub threads_max: usize = 4,
        /// Requests that may wait for a thread; one more is refused with 503.
        pub queue_len_max: usize = 1024,
        /// How long 95 of 100 requests may wait before the pool grows.
        pub queue_target: Nanos = Nanos::from_ms(5),
        /// A request that has waited longer for a thread is refused with 503.
        pub queue_timeout: Nanos = Nanos::from_secs(30),
        /// The same while the pool is overloaded; `None`: a second, or three median runs where that is longer.
        pub overload_timeout: Option<Nanos>,
        /// Threads that only questions about health may have.
        pub reserve_threads: usize,
        /// Places in the queue that only questions about health may have.
        pub reserve_len: usize,
        /// A request that runs longer is answered with 504.
        pub request_timeout: Option<Nanos>,
        /// The task of a request on an event loop is cancelled so long after its client has gone.
        pub disconnect_cancel: Option<Nanos>,
    }
}

/// What answers the requests of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolRuns {
    /// An application, by its index among `Config::apps`; 0 where there is none, and then no request comes.
    App(usize),
    /// An upstream, by its index among `Config::upstreams`.
    Upstream(usize),
}

/// Which requests a pool takes. What is not set fits all; all that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolRule {
    /// Methods, as they are sent.
    pub methods: Vec<String>,
    /// A glob over the path as the router sees it: not decoded, `*` staying within a segment; `None`: any.
    pub path: Option<String>,
    /// A host without port, in lower case; `*.` before it: all beneath.
    pub host: Option<String>,
    /// A header in lower case, and its value if a certain one is meant.
    pub header: Option<(String, Option<String>)>,
    /// Client networks, as addresses and prefix lengths.
    pub from: Vec<(std::net::IpAddr, u8)>,
    /// Index of the pool among `Config::pools`.
    pub pool: usize,
    /// How much these requests matter.
    pub class: queueing::Class,
}

/// Where requests go whose like have been slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowPool {
    /// Index of the pool among `Config::pools`.
    pub pool: usize,
    /// Requests are slow whose usual run takes longer.
    pub after: Nanos,
}

impl Default for PoolRuns {
    fn default() -> Self {
        PoolRuns::App(0)
    }
}

impl PoolRuns {
    /// The index of the application.
    pub fn app(self) -> Option<usize> {
        match self {
            PoolRuns::App(app) => Some(app),
            PoolRuns::Upstream(_) => None,
        }
    }

    /// The index of the upstream.
    pub fn upstream(self) -> Option<usize> {
        match self {
            PoolRuns::App(_) => None,
            PoolRuns::Upstream(upstream) => Some(upstream),
        }
    }
}
