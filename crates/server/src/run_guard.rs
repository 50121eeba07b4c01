//! The guard of a worker's run: a worker ends what it runs, or the watchdog gives the worker up. Never both.
//!
//! The worker begins and ends runs, the watchdog gives up. Holds the run as an opaque value, reads no clock. Built
//! only on `sync`, so that `crates/loom-tests` can check every interleaving of it with loom, together with the queue.

use crate::sync::{AtomicBool, Mutex, Ordering, invariant, lock};

/// What one worker runs, and whether the worker is given up.
pub(crate) struct RunGuard<R> {
    /// The run; `None` between two runs.
    running: Mutex<Option<R>>,
    /// Set only while `running` is locked and holds a run: a worker that has ended its run sees this, or has
    /// prevented it.
    given_up: AtomicBool,
    /// The pool has been told that it has lost the worker.
    is_lost: AtomicBool,
}

impl<R: Clone> RunGuard<R> {
    /// The guard of a worker that runs nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            running: Mutex::new(None),
            given_up: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Worker: begins a run.
    pub(crate) fn begin(&self, run: R) {
        let before = lock(&self.running).replace(run);
        invariant!(
            before.is_none(),
            "a worker begins a run before it has ended another"
        );
    }

    /// Worker: ends its run. Unless `is_given_up` says so from here on, the worker is not given up before its
    /// next run.
    pub(crate) fn end(&self) {
        let run = lock(&self.running).take();
        invariant!(run.is_some(), "a worker ends a run that it has not begun");
        // The lock is free by now: dropping a run may close its stream, which must not hold up the watchdog.
        drop(run);
    }

    /// The run, if it is the one that `is_it` accepts.
    pub(crate) fn running(&self, is_it: impl FnOnce(&R) -> bool) -> Option<R> {
        let running = lock(&self.running);
        running.as_ref().filter(|run| is_it(run)).cloned()
    }

    /// Gives the worker up if it still runs what `is_it` accepts, and returns that run.
    pub(crate) fn give_up(&self, is_it: impl FnOnce(&R) -> bool) -> Option<R> {
        let running = lock(&self.running);
        let found = running.as_ref().filter(|run| is_it(run)).cloned()?;
        // Under the lock: a worker that ended this run in between and left its pool would be counted as lost twice.
        self.given_up.store(true, Ordering::Relaxed);
        Some(found)
    }

    /// Whether the worker is given up and must run nothing more. Reliable for the worker after `end`.
    pub(crate) fn is_given_up(&self) -> bool {
        // Relaxed is enough after `end`: the lock that it took orders it behind every `give_up` of that run.
        self.given_up.load(Ordering::Relaxed)
    }

    /// Of a worker that is given up: `true` for the first caller, which reports the loss to the pool. That is the
    /// watchdog where it starts a replacement, else the worker itself at its end.
    pub(crate) fn claim_loss(&self) -> bool {
        // A swap, not a load and a store: both callers may come at once, and one loss must be counted once.
        !self.is_lost.swap(true, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_current_run_is_given_up() {
        let guard = RunGuard::new();
        assert_eq!(guard.give_up(|_| true), None);
        guard.begin(7);
        assert_eq!(guard.give_up(|run| *run == 6), None);
        assert!(!guard.is_given_up());
        assert_eq!(guard.running(|run| *run == 7), Some(7));
        assert_eq!(guard.give_up(|run| *run == 7), Some(7));
        assert!(guard.is_given_up());
        assert_eq!([(); 3].map(|()| guard.claim_loss()), [true, false, false]);
    }

    #[test]
    fn a_worker_that_has_ended_its_run_is_not_given_up() {
        let guard = RunGuard::new();
        guard.begin(7);
        guard.end();
        assert_eq!(guard.give_up(|_| true), None);
        assert!(!guard.is_given_up());
    }

    #[test]
    #[should_panic(expected = "a worker begins a run before it has ended another")]
    fn a_worker_has_one_run_at_a_time() {
        let guard = RunGuard::new();
        guard.begin(7);
        guard.begin(8);
    }

    #[test]
    #[should_panic(expected = "a worker ends a run that it has not begun")]
    fn a_run_ends_once() {
        let guard = RunGuard::new();
        guard.begin(7);
        guard.end();
        guard.end();
    }
}
