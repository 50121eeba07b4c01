//! One pool's counters.

use std::sync::atomic::{AtomicU64, Ordering};

use super::counted::{PoolCounted, PoolFigures};

/// One pool's counters. They are always current but for `threads`, `idle` and `waiting`, which are published
/// now and then from the pool's queue, which counts for itself.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct PoolStats {
    /// Exchanges that threads are running.
    pub(crate) running: AtomicU64,
    /// Exchanges that threads have finished.
    pub(crate) completed: AtomicU64,
    /// Exchanges refused because the queue was full.
    pub(crate) refused: AtomicU64,
    /// Exchanges refused because the pool was overloaded.
    pub(crate) shed: AtomicU64,
    /// Exchanges refused because they had waited too long for a thread.
    pub(crate) expired: AtomicU64,
    /// Streamed responses whose worker had to wait for the client.
    pub(crate) stream_waits: AtomicU64,
    /// Routes that were sent here because they are slow.
    pub(crate) routes_moved: AtomicU64,
    /// Those of them that have left again.
    pub(crate) routes_returned: AtomicU64,
    /// Threads that have begun.
    pub(crate) threads_started: AtomicU64,
    /// Threads that have ended, those that were lost included.
    pub(crate) threads_ended: AtomicU64,
    /// `stage::Pressure` in its order.
    pub(crate) pressure: AtomicU64,
    /// Threads that there are.
    pub(crate) threads: AtomicU64,
    /// Fewest threads that there are to be.
    pub(crate) threads_min: AtomicU64,
    /// Most threads that there may be.
    pub(crate) threads_max: AtomicU64,
    /// Threads asleep.
    pub(crate) idle: AtomicU64,
    /// Exchanges in the queue.
    pub(crate) waiting: AtomicU64,
    /// Exchanges that the queue takes.
    pub(crate) waiting_max: AtomicU64,
    /// Of a thousand parts of the threads' time at work, those in which they wait for the interpreter, and one
    /// more; 0 where nobody measures them, as in memory that nobody has written.
    gil_share_permille_more: AtomicU64,
}

impl PoolStats {
    /// The share of the threads' time at work in which they wait for the interpreter, 0 to 1; `None`: nobody
    /// measures it.
    pub(crate) fn set_gil_share(&self, share: Option<f64>) {
        let more = share.map_or(0, |share| (share * 1000.0) as u64 + 1);
        self.gil_share_permille_more.store(more, Ordering::Relaxed);
    }

    pub(super) fn counted(&self, name: &str) -> PoolCounted {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        PoolCounted {
            name: name.to_owned(),
            figures: PoolFigures {
                pressure: of(&self.pressure),
                threads: of(&self.threads),
                threads_min: of(&self.threads_min),
                threads_max: of(&self.threads_max),
                idle: of(&self.idle),
                running: of(&self.running),
                waiting: of(&self.waiting),
                waiting_max: of(&self.waiting_max),
                gil_share_permille: of(&self.gil_share_permille_more).checked_sub(1),
                completed: of(&self.completed),
                refused: of(&self.refused),
                shed: of(&self.shed),
                expired: of(&self.expired),
                stream_waits: of(&self.stream_waits),
                routes_moved: of(&self.routes_moved),
                routes_returned: of(&self.routes_returned),
                threads_started: of(&self.threads_started),
                threads_ended: of(&self.threads_ended),
            },
        }
    }
}
