//! The memory of a log: bytes of records and lines that may wait, and what a thread does when they are used up.
//!
//! Counted are records that wait to be formatted and lines that wait to be written. The question whether some is
//! free costs a request two loads.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use config::typed::LogOverflow;
use os::{invariant, lock};

/// Longest time until a waiting thread looks for free memory again. A thread that frees some looks for waiting ones
/// without a lock, so a wake-up can be missed.
const RECHECK: Duration = Duration::from_millis(50);

/// What a thread does when the memory is used up and lines must not be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// It waits for free memory.
    Wait,
    /// It waits before its next exchange. Until then it holds what others need, such as an interpreter.
    WaitLater,
    /// It exceeds the bound: the log's own threads must not wait for each other.
    Exceed,
}

#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: usize,
    overflow: LogOverflow,
    records_bytes: AtomicUsize,
    lines_bytes: AtomicUsize,
    /// Records and lines for which no memory was free.
    dropped: AtomicU64,
    /// Threads that wait for free memory.
    waiting: Mutex<usize>,
    freed: Condvar,
    /// No thread waits any more.
    closed: AtomicBool,
}

impl Budget {
    pub(super) fn new(bytes_max: usize, overflow: LogOverflow) -> Self {
        Self {
            bytes_max,
            overflow,
            records_bytes: AtomicUsize::new(0),
            lines_bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            waiting: Mutex::new(0),
            freed: Condvar::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Whether one more may be added, perhaps after a wait for free memory; one that may not is counted as dropped.
    pub(super) fn admits(&self, on_full: OnFull) -> bool {
        // The common case first: two loads, and nothing else.
        let admits = !self.is_full()
            || match (self.overflow, on_full) {
                (_, OnFull::Exceed) => true,
                (LogOverflow::Drop, _) => false,
                (LogOverflow::Wait, OnFull::Wait) => self.wait(),
                (LogOverflow::Wait, OnFull::WaitLater) => !self.is_closed(),
            };
        if !admits {
            self.count_dropped();
        }
        admits
    }

    fn count_dropped(&self) {
        invariant!(
            self.overflow == LogOverflow::Drop || self.is_closed(),
            "a log drops a line although none may be lost"
        );
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a thread that waits later has to wait now.
    pub(super) fn is_awaited(&self) -> bool {
        self.overflow == LogOverflow::Wait && self.is_full() && !self.is_closed()
    }

    /// Waits as long as `is_awaited`.
    pub(super) fn wait_if_awaited(&self) {
        if self.is_awaited() {
            self.wait();
        }
    }

    /// Waits for free memory; false: the budget was closed before there was any.
    #[cold]
    fn wait(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        *waiting += 1;
        // One look decides, since other threads may use up the memory before a second one.
        let has_space = loop {
            if !self.is_full() {
                break true;
            }
            if self.is_closed() {
                break false;
            }
            let waited = self.freed.wait_timeout(waiting, RECHECK);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        *waiting -= 1;
        has_space
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting_bytes() >= self.bytes_max
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Bytes that wait now.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.records_bytes.load(Ordering::Relaxed) + self.lines_bytes.load(Ordering::Relaxed)
    }

    /// Counts a record that was added. Gives whether it made the memory half full.
    pub(super) fn add_record(&self, bytes: usize) -> bool {
        let records_bytes = self.records_bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = records_bytes + self.lines_bytes.load(Ordering::Relaxed);
        let half = self.bytes_max / 2;
        // Once, at the crossing: its thread is urgent then, whatever else is not, and a notification costs a lock.
        before < half && before + bytes >= half
    }

    /// Counts records off that became lines; `lines_bytes` are all lines now.
    pub(super) fn account(&self, records_bytes: usize, lines_bytes: usize) {
        // In this order another thread may see too much for a moment, never too little.
        self.lines_bytes.store(lines_bytes, Ordering::Relaxed);
        let before = (self.records_bytes).fetch_sub(records_bytes, Ordering::Relaxed);
        invariant!(
            before >= records_bytes,
            "a log counts off {records_bytes} bytes of records and holds {before}"
        );
        if self.overflow == LogOverflow::Wait && !self.is_full() {
            let waiting = lock(&self.waiting);
            if *waiting > 0 {
                self.freed.notify_all();
            }
        }
    }

    /// Records and lines dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Ends all waiting, now and later.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // A thread that misses this looks again after a moment, and finds it closed.
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn counts_what_finds_no_room() {
        let budget = Budget::new(100, LogOverflow::Drop);
        budget.add_record(100);
        assert!(!budget.admits(OnFull::Wait) && !budget.admits(OnFull::Wait));
        budget.account(100, 99);
        assert!(budget.admits(OnFull::Wait));
        budget.account(0, 100);
        assert!(!budget.admits(OnFull::Wait));
        assert_eq!((budget.take_dropped(), budget.take_dropped()), (3, 0));
    }

    #[test]
    fn says_once_that_it_is_half_full() {
        let budget = Budget::new(100, LogOverflow::Drop);
        assert!(!budget.add_record(49) && budget.add_record(1) && !budget.add_record(1));
        budget.account(51, 0);
        assert!(budget.add_record(200));
    }

    #[test]
    fn a_waiting_thread_continues_when_there_is_room() {
        let budget = Arc::new(Budget::new(100, LogOverflow::Wait));
        budget.add_record(100);
        let admitted = {
            let budget = Arc::clone(&budget);
            thread::spawn(move || budget.admits(OnFull::Wait))
        };
        while *budget.waiting.lock().unwrap() == 0 {
            thread::yield_now();
        }
        budget.account(100, 0);
        assert!(admitted.join().unwrap());
        assert_eq!(budget.take_dropped(), 0);
    }

    #[test]
    fn no_thread_waits_once_closed() {
        let budget = Budget::new(100, LogOverflow::Wait);
        budget.add_record(100);
        budget.close();
        assert!(!budget.admits(OnFull::Wait));
        assert_eq!(budget.take_dropped(), 1);
    }

    #[test]
    fn a_thread_that_waits_later_exceeds_the_bound_first() {
        let budget = Budget::new(100, LogOverflow::Wait);
        budget.add_record(100);
        assert!(budget.admits(OnFull::WaitLater) && budget.is_awaited());
        budget.account(100, 0);
        assert!(!budget.is_awaited());
        budget.wait_if_awaited();
        assert_eq!(budget.take_dropped(), 0);
    }

    #[test]
    #[should_panic(expected = "a log counts off 2 bytes of records and holds 1")]
    fn more_than_was_added_is_not_counted_off() {
        let budget = Budget::new(100, LogOverflow::Drop);
        budget.add_record(1);
        budget.account(2, 0);
    }

    #[test]
    #[should_panic(expected = "drops a line although none may be lost")]
    fn nothing_is_dropped_where_none_may_be_lost() {
        Budget::new(100, LogOverflow::Wait).count_dropped();
    }
}
