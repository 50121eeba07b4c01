//! What came out of a simulation.

use telemetry::Nanos;

use crate::Spans;

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By pool, all processes together.
    pub pools: Vec<PoolOutcome>,
    /// From the first arrival to the last end.
    pub lasted: Nanos,
    /// Once a second: what it looked like; thinned out evenly beyond 4,096.
    pub timeline: Vec<Moment>,
}

/// What came out of one pool.
#[derive(Clone, Debug)]
pub struct PoolOutcome {
    /// Waits of those that ran, nanoseconds.
    pub queue: Spans,
    /// From arrival to end of those that ran, likewise.
    pub total: Spans,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were refused on arrival.
    pub refused: u64,
    /// Requests that were refused after they had waited.
    pub expired: u64,
    /// Requests that ended within the patience of clients.
    pub good: u64,
    /// Thread-seconds that there were.
    pub thread_seconds: f64,
    /// Thread-seconds at work.
    pub busy_seconds: f64,
    /// Most threads at once, in one process.
    pub threads_max: usize,
    /// Threads started after the beginning.
    pub threads_started: u64,
    /// The sum of the waits of all that ran or expired, nanoseconds.
    pub waited_ns: u128,
    /// The number that waited, integrated over time, nanoseconds: by Little's law the same as `waited_ns`.
    pub waiting_ns: u128,
}

impl PoolOutcome {
    /// Nothing has come out yet.
    pub(crate) fn new() -> PoolOutcome {
        PoolOutcome {
            queue: Spans::new(),
            total: Spans::new(),
            arrived: 0,
            refused: 0,
            expired: 0,
            good: 0,
            thread_seconds: 0.0,
            busy_seconds: 0.0,
            threads_max: 0,
            threads_started: 0,
            waited_ns: 0,
            waiting_ns: 0,
        }
    }

    /// Requests that ran.
    pub fn ran(&self) -> u64 {
        self.queue.len()
    }

    /// The share of those that arrived which ended within the patience of clients: 0 to 1.
    pub fn goodput(&self) -> f64 {
        share(self.good as f64, self.arrived as f64)
    }
}

/// 0 of 0 is 0: what never was is no good either.
pub(crate) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// One second of the time line, all processes and pools together.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Moment {
    /// Its end.
    pub at: Nanos,
    /// Threads.
    pub threads: usize,
    /// Requests at work.
    pub running: usize,
    /// Requests in queues.
    pub waiting: usize,
    /// The longest wait that ended in it.
    pub wait_max: Nanos,
    /// Requests refused in it.
    pub refused: u64,
}
