//! The tenure: what a pool thread runs, until it ends that or is given up. One of the two happens, never both.
//!
//! The thread begins and ends, somebody else gives up. Takes what is run as it is, reads no clock. Built only on
//! `sync`, so that `crates/model` can check every interleaving of it with loom, together with the queue.

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// What one thread runs, and whether others do its work now.
pub(crate) struct Tenure<W> {
    /// What it runs.
    what: Mutex<Option<W>>,
    /// Set while `what` is locked and somebody in it: whoever has ended it has seen this, or prevented it.
    given_up: AtomicBool,
    /// Somebody has said that the thread works no more, whether it has ended or another is to do its work.
    counted_out: AtomicBool,
}

impl<W: Clone> Tenure<W> {
    /// Of a thread that runs nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            what: Mutex::new(None),
            given_up: AtomicBool::new(false),
            counted_out: AtomicBool::new(false),
        }
    }

    /// The thread: it runs this now.
    pub(crate) fn begin(&self, what: W) {
        *lock(&self.what) = Some(what);
    }

    /// The thread: it runs nothing any more. Unless `is_given_up` from here on, it is not given up before it
    /// begins again.
    pub(crate) fn end(&self) {
        let what = lock(&self.what).take();
        // What ends with it must not be waited for by who looks.
        drop(what);
    }

    /// What is run, if it is the one that `is_it` says.
    pub(crate) fn what(&self, is_it: impl FnOnce(&W) -> bool) -> Option<W> {
        lock(&self.what)
            .as_ref()
            .filter(|what| is_it(what))
            .cloned()
    }

    /// Gives the thread up if it still runs what `is_it` says, and gives that.
    pub(crate) fn give_up(&self, is_it: impl FnOnce(&W) -> bool) -> Option<W> {
        let what = lock(&self.what);
        let found = what.as_ref().filter(|what| is_it(what)).cloned()?;
        // Before the lock is free: a thread that ends this now and is told to go would be counted out twice.
        self.given_up.store(true, Ordering::Relaxed);
        Some(found)
    }

    /// Whether the thread is given up: it is to run nothing more. It may ask after `end` and rely on it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Of a thread that is given up: `true` for the first who asks, who is to count it out. That is either
    /// the one that has another take its place or, where none does, the thread at its end.
    pub(crate) fn count_out(&self) -> bool {
        !self.counted_out.swap(true, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_run_is_given_up() {
        let tenure = Tenure::new();
        assert_eq!(tenure.give_up(|_| true), None);
        tenure.begin(7);
        assert_eq!(tenure.give_up(|what| *what == 6), None);
        assert!(!tenure.is_given_up());
        assert_eq!(tenure.what(|what| *what == 7), Some(7));
        assert_eq!(tenure.give_up(|what| *what == 7), Some(7));
        assert!(tenure.is_given_up());
        assert_eq!([(); 3].map(|()| tenure.count_out()), [true, false, false]);
    }

    #[test]
    fn who_has_ended_is_not_given_up() {
        let tenure = Tenure::new();
        tenure.begin(7);
        tenure.end();
        assert_eq!(tenure.give_up(|_| true), None);
        assert!(!tenure.is_given_up());
    }
}
