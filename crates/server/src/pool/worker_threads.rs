//! The workers of a process by their numbers: which thread each of them is.
//!
//! Written when a worker begins and ends, read when somebody wants to see a request's stack. No request takes the lock.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sync::lock;
use crate::watchdog::Thread;

/// All workers of the process.
#[derive(Default)]
pub(super) struct WorkerThreads {
    /// Numbers that were given.
    given: AtomicU32,
    running: Mutex<Vec<(NonZeroU32, Thread)>>,
}

impl WorkerThreads {
    /// A number that no other worker of the process ever has.
    pub(super) fn next_number(&self) -> NonZeroU32 {
        let before = self.given.fetch_add(1, Ordering::Relaxed);
        NonZeroU32::MIN.saturating_add(before)
    }

    /// The calling thread is a worker until `leave`; gives its number.
    pub(super) fn enter(&self) -> NonZeroU32 {
        let number = self.next_number();
        lock(&self.running).push((number, Thread::current()));
        number
    }

    pub(super) fn leave(&self, number: NonZeroU32) {
        lock(&self.running).retain(|(known, _)| *known != number);
    }

    /// The thread of a worker that has not ended.
    pub(super) fn find(&self, number: NonZeroU32) -> Option<Thread> {
        let running = lock(&self.running);
        let mut all = running.iter();
        all.find(|(known, _)| *known == number)
            .map(|(_, thread)| *thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_found_until_it_leaves() {
        let workers = WorkerThreads::default();
        let first = workers.enter();
        let of_loop = workers.next_number();
        let second = std::thread::scope(|scope| scope.spawn(|| workers.enter()).join().unwrap());
        assert_eq!([first, of_loop, second].map(NonZeroU32::get), [1, 2, 3]);
        assert_eq!(workers.find(first), Some(Thread::current()));
        assert_eq!(workers.find(of_loop), None);
        assert!(
            workers
                .find(second)
                .is_some_and(|other| other != Thread::current())
        );
        workers.leave(first);
        assert_eq!(workers.find(first), None);
        assert!(workers.find(second).is_some());
    }
}
