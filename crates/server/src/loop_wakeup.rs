//! Whether an event loop sleeps, and what has to wake it.
//!
//! Knows no descriptor and no queue. Built only on `sync`, so that `crates/loom-tests` can check every interleaving of it
//! with loom, together with the queue.
//!
//! ```text
//! LOOKING ──sleep──► ASLEEP ──call: the loop is to be woken──► CALLED
//!    ▲ └───────────────────── call ────────────────────────────┘  │
//!    └────────────────────── begin_look ──────────────────────────┘
//! ```

use crate::sync::{AtomicU8, Ordering};

/// The state of a loop that sleeps elsewhere.
pub(crate) struct LoopWakeup(AtomicU8);

/// The loop looks for what there is.
const LOOKING: u8 = 0;
/// The loop sleeps, or is about to.
const ASLEEP: u8 = 1;
/// Something has come since the loop began to look.
const CALLED: u8 = 2;

impl LoopWakeup {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(LOOKING))
    }

    /// Something has come, and is where the loop will look. Whether the loop is to be woken: true once for each sleep.
    pub(crate) fn call(&self) -> bool {
        self.0.swap(CALLED, Ordering::AcqRel) == ASLEEP
    }

    /// Loop: it begins to look. What comes from now on is seen, or keeps the loop from sleeping.
    pub(crate) fn begin_look(&self) {
        // A swap: what was put somewhere before a call that this takes back is seen by the look.
        self.0.swap(LOOKING, Ordering::AcqRel);
    }

    /// Loop: whether it may sleep after a look that has found nothing more.
    pub(crate) fn sleep(&self) -> bool {
        let slept = self
            .0
            .compare_exchange(LOOKING, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        slept.is_ok()
    }
}

impl std::fmt::Debug for LoopWakeup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoopWakeup")
    }
}
