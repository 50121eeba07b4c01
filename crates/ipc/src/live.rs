//! What the page of the admin listener is made from: the supervisor writes one sample a second while a page is open, and
//! the admin process reads it.
//!
//! A sample has no distributions of single routes but those of their whole time, because there may be thousands of them.

use serde::{Deserialize, Serialize};
use telemetry::PerPhase;
use telemetry::counters::{
    ConnectionCounts, Distribution, EventLoopFigures, LogSnapshot, PoolSnapshot, SpoolFigures,
    UpstreamSnapshot,
};
use telemetry::history::HEAT_CELLS;

use crate::HostStatus;

/// A server at one time; sums are over all processes that there ever were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveSample {
    /// The server's version.
    pub version: String,
    /// "CPython 3.11.7 (GIL)", where there is one.
    pub python: Option<String>,
    /// Seconds since 1970 at the start.
    pub started_unix_s: u64,
    /// "serving", "reloading", "stopping", ...
    pub doing: String,
    /// Number of the newest configuration.
    pub generation: u64,
    /// Processes that ended without being told.
    pub crashes: u64,
    /// Processes that were replaced in good health.
    pub recycled: u64,
    /// What went wrong last.
    pub last_fault: Option<LiveFault>,
    /// Processes that serve, are about to, or end.
    pub processes: Vec<LiveProcess>,
    /// By the pool's name.
    pub pools: Vec<PoolSnapshot>,
    /// The event loops, together.
    pub event_loop: EventLoopFigures,
    /// Open connections.
    pub open: u64,
    /// What they are doing.
    pub connections: ConnectionCounts,
    /// Connections that wait to be accepted; none where the kernel does not say.
    pub accept_queue: Option<u64>,
    /// How long the exchanges of all routes took.
    pub phases: PerPhase<Distribution>,
    /// Routes that have had a request.
    pub routes: Vec<LiveRoute>,
    /// Requests that run, those that have run for longest first, at most 50.
    #[serde(default)]
    pub running: Vec<LiveRunning>,
    /// Requests that run and are not in `running`.
    #[serde(default)]
    pub running_more: u64,
    /// By group and server.
    #[serde(default)]
    pub upstreams: Vec<UpstreamSnapshot>,
    /// By name.
    #[serde(default)]
    pub logs: Vec<LogSnapshot>,
    /// The spool folder.
    #[serde(default)]
    pub spool: SpoolFigures,
    /// The machine and the control group.
    #[serde(default)]
    pub host: HostStatus,
    /// The latest seconds of the history, at most [`LiveHeat::LEN_MAX`], the oldest first; `None`: there is no history.
    #[serde(default)]
    pub heat: Option<Vec<LiveHeat>>,
}

/// Requests that ended in one second of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveHeat {
    /// Its number: the next second has the next one. Each second is in the history under the same.
    pub number: u64,
    /// Its end, in seconds since 1970.
    pub at_s: u64,
    /// Requests by how long they took, between `telemetry::history::HEAT_BOUNDS`.
    pub counts: [u64; HEAT_CELLS],
}

impl LiveHeat {
    /// Seconds in a sample: who asks once a second misses none, and may come some seconds late.
    pub const LEN_MAX: usize = 8;
}

/// What went wrong last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveFault {
    /// One line.
    pub message: String,
    /// Seconds since then.
    pub age_s: u64,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveProcess {
    /// Its place within the generation, from 0.
    pub slot: usize,
    /// Its generation.
    pub generation: u64,
    /// "starting", "ready", "draining", "stuck" or "waiting".
    pub state: String,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
}

/// A request that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRunning {
    /// Its id, as much of it as is kept.
    pub id: String,
    /// The method.
    pub method: String,
    /// The beginning of the path, without the query.
    pub path: String,
    /// The pool that runs it.
    pub pool: String,
    /// Its process.
    pub pid: u32,
    /// Number of the worker in the process; none of a request that an upstream has.
    pub worker: Option<u32>,
    /// How long it had waited before it ran, in milliseconds.
    pub waited_ms: u64,
    /// How long it has run, in milliseconds.
    pub ran_ms: u64,
}

/// One route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRoute {
    /// Its name.
    pub route: String,
    /// Exchanges that ended with a status of 5xx.
    pub failed: u64,
    /// Time that all of its exchanges took together.
    pub sum_ns: u64,
    /// Number and count of each bucket of their whole time that is not empty, as `telemetry::Snapshot::counts` gives them.
    pub buckets: Vec<(u16, u64)>,
}
