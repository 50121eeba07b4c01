//! One pool's counters.

use std::sync::atomic::{AtomicU64, Ordering};

use super::counted::{PoolCounted, PoolFigures};

/// One pool's counters. `running`, `completed` and `refused` are always current; `idle` and `waiting` are
/// published now and then from the pool's queue, which counts for itself.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct PoolStats {
    /// Exchanges that threads are running.
    pub(crate) running: AtomicU64,
    /// Exchanges that threads have finished.
    pub(crate) completed: AtomicU64,
    /// Exchanges refused because the queue was full.
    pub(crate) refused: AtomicU64,
    /// Threads that there may be.
    pub(crate) threads: AtomicU64,
    /// Threads asleep.
    pub(crate) idle: AtomicU64,
    /// Exchanges in the queue.
    pub(crate) waiting: AtomicU64,
    /// Exchanges that the queue takes.
    pub(crate) waiting_max: AtomicU64,
}

impl PoolStats {
    pub(super) fn counted(&self, name: &str) -> PoolCounted {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        PoolCounted {
            name: name.to_owned(),
            figures: PoolFigures {
                threads: of(&self.threads),
                idle: of(&self.idle),
                running: of(&self.running),
                waiting: of(&self.waiting),
                waiting_max: of(&self.waiting_max),
                completed: of(&self.completed),
                refused: of(&self.refused),
            },
        }
    }
}
