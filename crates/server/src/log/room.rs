//! The bytes that a log may hold in memory, and what happens to whoever finds none left.
//!
//! Counted are records that wait to be formatted and lines that wait to be written. Full is a question of
//! two loads, so that asking costs a request nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::config::meant::LogOverflow;

/// Longest time between two looks of one who waits, should a call go unheard.
const LOOK: Duration = Duration::from_millis(50);

/// When whoever has something for a log waits for room, where lines are not to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// At once.
    Now,
    /// Before its next exchange: it holds what others need, such as an interpreter.
    Later,
    /// Never: the log's own threads do not wait for each other.
    None,
}

#[derive(Debug)]
pub(super) struct Room {
    bytes_max: usize,
    overflow: LogOverflow,
    records_bytes: AtomicUsize,
    lines_bytes: AtomicUsize,
    /// What found no room.
    dropped: AtomicU64,
    /// Those who wait for room.
    waiting: Mutex<usize>,
    freed: Condvar,
    /// Nothing is waited for any more.
    closed: AtomicBool,
}

impl Room {
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

    /// Whether there is room for one more; else it is counted as dropped, or its thread waits first.
    pub(super) fn enter(&self, patience: Patience) -> bool {
        let enters = !self.is_full()
            || match (self.overflow, patience) {
                (_, Patience::None) => true,
                (LogOverflow::Drop, _) => false,
                (LogOverflow::Wait, Patience::Now) => self.wait(),
                (LogOverflow::Wait, Patience::Later) => !self.closed.load(Ordering::Acquire),
            };
        if !enters {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        enters
    }

    /// Whether somebody who had patience for later is to wait now.
    pub(super) fn is_awaited(&self) -> bool {
        self.overflow == LogOverflow::Wait && self.is_full() && !self.closed.load(Ordering::Acquire)
    }

    /// Waits as long as that is so.
    pub(super) fn wait_if_awaited(&self) {
        if self.is_awaited() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        while self.is_full() && !self.closed.load(Ordering::Acquire) {
            let waited = self.freed.wait_timeout(waiting, LOOK);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *waiting -= 1;
        !self.is_full()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting_bytes() >= self.bytes_max
    }

    /// Bytes that wait now.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.records_bytes.load(Ordering::Relaxed) + self.lines_bytes.load(Ordering::Relaxed)
    }

    /// A record was added. Gives whether it made the room half full: whoever empties it is to come now,
    /// whatever else is not urgent yet.
    pub(super) fn add_record(&self, bytes: usize) -> bool {
        let records_bytes = self.records_bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = records_bytes + self.lines_bytes.load(Ordering::Relaxed);
        let half = self.bytes_max / 2;
        before < half && before + bytes >= half
    }

    /// Records became lines, and this is what lines there are now.
    pub(super) fn settle(&self, records_bytes: usize, lines_bytes: usize) {
        // In this order a thread may see too much, never too little.
        self.lines_bytes.store(lines_bytes, Ordering::Relaxed);
        self.records_bytes
            .fetch_sub(records_bytes, Ordering::Relaxed);
        if self.overflow == LogOverflow::Wait && !self.is_full() {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if *waiting > 0 {
                self.freed.notify_all();
            }
        }
    }

    /// How many found no room since the last time.
    pub(super) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// From now on nobody waits.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
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
        let room = Room::new(100, LogOverflow::Drop);
        room.add_record(100);
        assert!(!room.enter(Patience::Now) && !room.enter(Patience::Now));
        room.settle(100, 99);
        assert!(room.enter(Patience::Now));
        room.settle(0, 100);
        assert!(!room.enter(Patience::Now));
        assert_eq!((room.take_dropped(), room.take_dropped()), (3, 0));
    }

    #[test]
    fn says_once_that_it_is_half_full() {
        let room = Room::new(100, LogOverflow::Drop);
        assert!(!room.add_record(49) && room.add_record(1) && !room.add_record(1));
        room.settle(51, 0);
        assert!(room.add_record(200));
    }

    #[test]
    fn whoever_waits_goes_on_when_there_is_room() {
        let room = Arc::new(Room::new(100, LogOverflow::Wait));
        room.add_record(100);
        let entering = {
            let room = Arc::clone(&room);
            thread::spawn(move || room.enter(Patience::Now))
        };
        while *room.waiting.lock().unwrap() == 0 {
            thread::yield_now();
        }
        room.settle(100, 0);
        assert!(entering.join().unwrap());
        assert_eq!(room.take_dropped(), 0);
    }

    #[test]
    fn nobody_waits_for_a_closed_room() {
        let room = Room::new(100, LogOverflow::Wait);
        room.add_record(100);
        room.close();
        assert!(!room.enter(Patience::Now));
        assert_eq!(room.take_dropped(), 1);
    }

    #[test]
    fn whoever_waits_later_enters_a_full_room_and_is_told_to_wait() {
        let room = Room::new(100, LogOverflow::Wait);
        room.add_record(100);
        assert!(room.enter(Patience::Later) && room.is_awaited());
        room.settle(100, 0);
        assert!(!room.is_awaited());
        room.wait_if_awaited();
        assert_eq!(room.take_dropped(), 0);
    }
}
