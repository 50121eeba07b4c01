//! Counters: what drivers received and what their connections are doing, what pools do, and how long the exchanges of
//! each route took.
//!
//! Each number is listed in one table, from which come the atomics that count, the numbers of a snapshot, their JSON and
//! what is known of each as a metric. A counter has one writing thread (or is a relaxed atomic) and any number of readers.
//! All of them zero is nothing counted: they may lie in memory that processes share. Must not know what the numbers are
//! used for, nor where they lie.

mod exemplars;
mod exposition;
mod families;
mod logs;
mod native;
mod protobuf;
mod requests;
mod running;
mod snapshot;
mod spool;
mod sum;
mod table;
mod upstreams;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::{Ending, Nanos, PhaseHistograms, Spans};

pub use exemplars::Exemplar;
pub use exposition::{Exposition, MetricKind, MetricValue, MetricWriter};
pub use logs::{LOG_NAMES, LogFigures, LogSnapshot, LogStats};
use requests::RequestCounters;
pub use requests::{KnownMethod, RequestLabels, RequestSeries};
pub use running::{BegunRequest, ListedRequest, RunningPlace, RunningTable, listed_id};
pub use snapshot::{
    Distribution, DriverSnapshot, HandshakeTotals, PoolSnapshot, RouteSnapshot, StatsSnapshot,
};
pub use spool::{SpoolFigures, SpoolStats};
pub use sum::{OTHER_ROUTES, StatsSum};

pub use upstreams::{
    UpstreamFigures, UpstreamResult, UpstreamResultCounts, UpstreamSnapshot, UpstreamStats,
};

use exposition::TableMetric;
use table::{kinds, numbers};

numbers! {
    /// One driver's counters. On cache lines of their own: another driver's are next to them.
    DriverStats =>
    /// What a driver has counted.
    DriverFigures {
        /// Connections accepted.
        sum accepted as "connections_accepted",
        /// Complete requests received.
        sum received as "requests_received",
        /// Requests whose body went to a file.
        sum spooled as "requests_spooled",
        /// Requests whose head arrived in more than one piece.
        sum partial as "requests_in_pieces",
        /// Requests refused for breaking the protocol or a limit, and connections that failed.
        sum errors as "protocol_errors",
        /// TLS handshakes in full.
        sum handshakes as "tls_handshakes_full",
        /// TLS handshakes that resumed an earlier session.
        sum handshakes_resumed as "tls_handshakes_resumed",
        /// TLS handshakes that failed: the client left, or did not speak TLS as it should.
        sum handshakes_failed as "tls_handshakes_failed",
        /// TLS handshakes refused because too many others waited.
        sum handshakes_refused as "tls_handshakes_refused",
        /// Processor time that TLS handshakes took, in nanoseconds; those that failed included.
        sum handshake_cpu_ns as "tls_handshake_cpu_ns",
        /// Connections refused because their client had too many.
        sum crowded_clients as "connections_refused_for_client",
        /// Requests refused because their client asks more often than their route allows.
        sum rate_limited as "requests_rate_limited",
        /// Connections accepted and given to another driver of the process.
        sum balanced_out as "connections_given_away",
        /// Connections that another driver of the process has accepted.
        sum balanced_in as "connections_taken_over",
        /// Connections that speak HTTP/2.
        sum http2_connections,
        /// Requests over HTTP/2 that were begun.
        sum http2_streams,
        /// Streams of HTTP/2 that were reset early, by the client or because of it.
        sum http2_resets,
        /// Connections closed because their client made the server work for no request.
        sum http2_floods,
        /// WebSocket connections that applications have accepted.
        sum websockets as "websocket_connections",
        /// Connections that have become tunnels to upstreams.
        sum tunnels as "upstream_tunnels",
        /// Connections accepted from the socket of a driver that did not come to it.
        sum stall_takeovers as "connections_accepted_for_sibling",
        /// Connections that arrived on the processor that the driver is pinned to; only where they are steered so.
        sum local_cpu as "connections_accepted_on_own_cpu",
        /// Requests whose spans a collector has taken.
        sum traces_exported,
        /// Requests whose spans were dropped: too many waited, or the collector did not take them.
        sum traces_dropped,
        /// The last heartbeat that was answered.
        most heartbeat as "",
    }
    + {
        /// Open connections; at any time exact.
        pub open: AtomicU32,
        timeouts: [Counter; Timeout::COUNT],
        /// A few hundred milliseconds old.
        pub doing: [Counter; Doing::COUNT],
    }
}

kinds! {
    /// Which deadline ended a connection.
    Timeout =>
    /// Connections that a deadline ended, by what they were at.
    TimeoutCounts {
        /// Its TLS handshake was not over in time.
        Handshake handshake,
        /// Its head was not complete in time.
        Head head,
        /// Its body came too slowly.
        Body body,
        /// It took its reply too slowly.
        Send send,
        /// It was idle for too long.
        Idle idle,
        /// It was idle, and others needed its place before its time was up.
        Crowded evicted_idle,
        /// Its response was cut: `reply_memory_max` was used up, and its client had taken nothing for longest.
        Memory memory,
    }
}

kinds! {
    /// What a connection is doing.
    Doing =>
    /// Connections by what they are doing.
    ConnectionCounts {
        /// Idle between requests, or new and silent.
        Idle idle,
        /// In its TLS handshake.
        Handshaking handshaking,
        /// Receiving a head or a body into memory.
        Reading reading,
        /// Receiving a body into a file.
        Spooling spooling,
        /// Its exchange waits for a pool thread or runs on one.
        Away in_pool,
        /// Its reply is being sent by the driver.
        Sending sending,
        /// It is a WebSocket connection.
        WebSocket websocket,
        /// Its last bytes are read and thrown away before it closes.
        Closing closing,
    }
}

/// A counter, or a gauge. Where it has a single writing thread, no locked instruction is needed to add.
#[derive(Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the owning thread may call it.
    pub fn add(&self) {
        // Two steps lose nothing, because no other thread writes between them.
        self.0
            .store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds so many. Only the owning thread may call it.
    pub fn add_many(&self, count: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// Adds one from any thread. For a counter that is never added to with `add`.
    pub fn add_from_any(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds so many from any thread. For a counter that is never added to with `add`.
    pub fn add_many_from_any(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes one away, from any thread.
    pub fn take_from_any(&self) {
        // Below 0 it would wrap, and a page would show more than there can be.
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a gauge of the counters falls below zero");
    }

    /// Puts it at a number where it is below that, from any thread.
    pub fn raise_to(&self, count: u64) {
        self.0.fetch_max(count, Ordering::Relaxed);
    }

    /// Puts it at a number.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// What it is at.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl DriverStats {
    /// A deadline has ended a connection.
    pub fn timed_out(&self, timeout: Timeout) {
        self.timeouts[timeout as usize].add();
    }

    /// All of it as it is now.
    pub fn snapshot(&self, index: usize) -> DriverSnapshot {
        DriverSnapshot {
            driver: index,
            figures: self.numbers(),
            open: self.open.load(Ordering::Relaxed).into(),
            timeouts: TimeoutCounts::of(&self.timeouts),
            connections: ConnectionCounts::of(&self.doing),
        }
    }
}

numbers! {
    /// One pool's counters. They are always current but for `threads`, `idle` and `waiting`, which are published
    /// now and then from the pool's queue, which counts for itself.
    PoolStats =>
    /// A pool's figures.
    PoolFigures {
        /// Gauge: load of the pool: 0 calm, 1 saturated, 2 overloaded.
        most pressure,
        /// Gauge: threads.
        gauge threads,
        /// Gauge: fewest threads that the pool may have.
        gauge threads_min,
        /// Gauge: most threads that the pool may have.
        gauge threads_max,
        /// Gauge: threads without work.
        gauge idle as "threads_idle",
        /// Gauge: requests that run.
        gauge running,
        /// Gauge: requests in the queue.
        gauge waiting,
        /// Gauge: how long the request that came first to the queue has waited in it, in nanoseconds.
        most oldest_wait_ns,
        /// Gauge: the wait in the queue that the pool aims at (`queue_target`), in nanoseconds.
        most queue_target_ns,
        /// Gauge: most requests that the queue takes.
        gauge waiting_max as "queue_max",
        /// Gauge: of a thousand parts of the threads' time at work, those in which they wait for the interpreter, and
        /// one more; 0 where they are not measured, as in unwritten memory.
        most gil_share_permille_more as "" [serde(rename = "gil_share_permille", with = "one_more")],
        /// Requests that threads have finished.
        sum completed as "requests_completed",
        /// Requests refused because the queue was full.
        sum refused as "",
        /// Requests refused because the pool was overloaded.
        sum shed as "",
        /// Requests refused because they had waited too long for a thread.
        sum expired as "",
        /// Streamed responses whose thread had to wait for the client.
        sum stream_waits as "stream_waits",
        /// Routes that were moved to this pool because they are slow.
        sum routes_moved,
        /// Routes that were moved to this pool, and have left it again.
        sum routes_returned,
        /// Threads that were started.
        sum threads_started,
        /// Threads that have ended, those that were lost included.
        sum threads_ended,
    }
}

/// As JSON, a number that may be missing, and is one more in memory.
mod one_more {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(more: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        more.checked_sub(1).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let number = Option::<u64>::deserialize(deserializer)?;
        Ok(number.map_or(0, |number| number.saturating_add(1)))
    }
}

impl PoolFigures {
    /// Of a thousand parts of the threads' time at work, those in which they wait for the interpreter. `None` where
    /// that is not measured: the pool's size is fixed, or nothing runs.
    pub fn gil_share_permille(&self) -> Option<u64> {
        self.gil_share_permille_more.checked_sub(1)
    }
}

impl PoolStats {
    /// The share of the threads' time at work in which they wait for the interpreter, 0 to 1; `None`: nobody
    /// measures it.
    pub fn set_gil_share(&self, share: Option<f64>) {
        let more = share.map_or(0, |share| (share * 1000.0) as u64 + 1);
        self.gil_share_permille_more.set(more);
    }
}

numbers! {
    /// The counters of the event loop of a process. All are 0 where there is none.
    EventLoopStats =>
    /// An event loop's figures.
    EventLoopFigures {
        /// Gauge: the longest time of the last second that something ready has waited for the loop, or has waited until
        /// now, in nanoseconds.
        most lag_ns,
        /// Gauge: share of the last second in which the thread of the event loop had a processor, in thousandths.
        most busy_permille,
        /// Gauge: requests inside the event loop.
        gauge inside,
        /// Gauge: most requests that may be inside the event loop.
        gauge inside_max,
        /// Gauge: open WebSocket connections, and handshakes under way.
        gauge websockets,
        /// Gauge: most WebSocket connections that may be open; 0: no bound.
        gauge websockets_max,
        /// WebSocket handshakes refused because so many were open.
        sum websockets_refused,
        /// Steps of requests that have blocked the event loop for longer than `slow_step`.
        sum slow_steps,
        /// Times that requests had to wait outside because the event loop did not keep up.
        sum held_back,
        /// Gauge: threads of anyio's default limiter that run something.
        gauge anyio_running,
        /// Gauge: most threads that anyio's default limiter allows.
        gauge anyio_max,
        /// Gauge: calls that wait for a thread of anyio's default limiter.
        gauge anyio_waiting,
        /// Gauge: threads of the loop's default executor that there are.
        gauge executor_threads,
        /// Gauge: most threads that the loop's default executor starts.
        gauge executor_max,
        /// Gauge: calls that wait for a thread of the loop's default executor.
        gauge executor_waiting,
    }
}

impl EventLoopFigures {
    /// Whether there is an event loop.
    pub fn is_there(&self) -> bool {
        self.inside_max > 0
    }
}

numbers! {
    /// How one route's exchanges ended.
    RouteStats =>
    /// How exchanges ended.
    RouteFigures {
        /// Exchanges without a reply.
        sum none as "",
        /// Replies by the class of their status (RFC 9110 section 15).
        sum informational as "" [serde(rename = "1xx")],
        /// 2xx.
        sum successful as "" [serde(rename = "2xx")],
        /// 3xx.
        sum redirection as "" [serde(rename = "3xx")],
        /// 4xx.
        sum client_error as "" [serde(rename = "4xx")],
        /// 5xx.
        sum server_error as "" [serde(rename = "5xx")],
        /// Requests that ended neither complete nor refused.
        sum incomplete as "requests_incomplete",
        /// Bytes of responses that the kernel took.
        sum sent_bytes as "response_bytes",
    }
}

/// How long one route's exchanges took: 179 KB, of which a scrape reads only what has been written. They are apart from
/// the numbers of [`RouteStats`], so that those of many routes lie side by side.
#[derive(Default)]
#[repr(C, align(128))]
pub struct RouteDurations {
    phases: PhaseHistograms,
    /// By method, scheme and status.
    requests: RequestCounters,
}

/// All counters of one route.
#[derive(Clone, Copy)]
pub struct RouteCounters<'m> {
    /// How its exchanges ended.
    pub stats: &'m RouteStats,
    /// How long they took.
    pub durations: &'m RouteDurations,
}

impl RouteCounters<'_> {
    /// Has the processor fetch the heads of the distributions: two routes before they are read.
    pub fn prefetch_heads(&self) {
        if self.stats.numbers().exchanges() > 0 {
            self.durations.phases.bank().prefetch_heads();
            self.durations.requests.prefetch_heads();
        }
    }

    /// Has the processor fetch the counts, once it has the heads: one route before they are read.
    pub fn prefetch_counts(&self) {
        if self.stats.numbers().exchanges() > 0 {
            self.durations.phases.bank().prefetch_counts();
            self.durations.requests.prefetch_counts();
        }
    }

    /// The spans of an exchange that was recorded with these labels can be looked at.
    pub fn record_exemplar(&self, labels: RequestLabels, exemplar: Exemplar) {
        self.durations.requests.record_exemplar(labels, exemplar);
    }

    /// An exchange of the route has ended, with these labels.
    pub fn record(&self, spans: &Spans, labels: RequestLabels, ending: Ending, sent_bytes: u64) {
        let stats = self.stats;
        let class = match labels.status {
            0..100 => &stats.none,
            100..200 => &stats.informational,
            200..300 => &stats.successful,
            300..400 => &stats.redirection,
            400..500 => &stats.client_error,
            500.. => &stats.server_error,
        };
        // Before the durations, which are not even read where no exchange has ended.
        class.add_from_any();
        self.durations.phases.record(spans);
        self.durations.requests.record(labels, spans.total);
        // From any thread: drivers and workers end exchanges of the same route.
        stats.sent_bytes.add_many_from_any(sent_bytes);
        let is_answered = match ending {
            Ending::Complete | Ending::Refused => true,
            // The server's answer in the place of the application's, which it gave in full.
            Ending::Timeout => labels.status == 504,
            _ => false,
        };
        if !is_answered {
            stats.incomplete.add_from_any();
        }
    }
}
