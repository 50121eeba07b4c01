//! Buffers: finished records on their way from the threads that end exchanges to the log thread, the bytes that
//! a log may hold in memory, and how a log thread is called.
//!
//! Each producing thread has a `Pen` and a page of its own: it appends under a lock that only the log
//! thread ever contends for, which swaps a full page for an empty one. Counted are records that wait to be
//! formatted and lines that wait to be written. Full is a question of two loads, so that asking costs a request
//! nothing; what happens to a thread that finds no room is its `Patience`'s choice.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use measure::{Record, Stamp};

use crate::config::meant::LogOverflow;

/// Bytes in a page that make the log thread come before its time.
const PAGE_BYTES_URGENT: usize = 256 << 10;
/// Memory that an empty page keeps.
const PAGE_BYTES_KEPT_MAX: usize = 4 * PAGE_BYTES_URGENT;
/// Longest time between two looks of one who waits, should a call go unheard.
const LOOK: Duration = Duration::from_millis(50);

/// All pages, the budget that they share, and what calls the thread that reads them.
#[derive(Debug)]
pub(super) struct Pages {
    list: Mutex<Vec<Arc<Page>>>,
    pub(super) budget: Budget,
    pub(super) notifier: Notifier,
    /// The log thread has been called since it came last.
    pub(super) told: AtomicBool,
    /// At the end: nothing is tried again, and what is not written is lost.
    pub(super) is_hurried: AtomicBool,
}

#[derive(Debug, Default)]
struct Page {
    records: Mutex<Vec<u8>>,
}

/// One producing thread's end of the access logs.
pub(crate) struct Pen {
    page: Arc<Page>,
    pages: Arc<Pages>,
    patience: Patience,
}

impl Pages {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            list: Mutex::default(),
            budget,
            notifier: Notifier::default(),
            told: AtomicBool::new(false),
            is_hurried: AtomicBool::new(false),
        }
    }

    /// A pen for the calling thread.
    pub(super) fn pen(self: &Arc<Self>, patience: Patience) -> Pen {
        let page = Arc::new(Page::default());
        lock(&self.list).push(Arc::clone(&page));
        Pen {
            page,
            pages: Arc::clone(self),
            patience,
        }
    }
}

impl Pen {
    /// Appends a record, unless there is no room for it.
    pub(crate) fn write(&self, record: &Record<'_>) {
        let pages = &self.pages;
        if !pages.budget.enter(self.patience) {
            return;
        }
        let (added, waiting, is_half_full) = {
            let mut records = lock(&self.page.records);
            let before = records.len();
            record.encode(&mut records);
            let added = records.len() - before;
            // Within the lock, so that the log thread cannot count it off first.
            let is_half_full = pages.budget.add_record(added);
            (added, records.len(), is_half_full)
        };
        let is_long = waiting >= PAGE_BYTES_URGENT && waiting - added < PAGE_BYTES_URGENT;
        if is_long || is_half_full {
            pages.notifier.notify(Urgency::Urgent);
        } else if !pages.told.load(Ordering::Relaxed) && !pages.told.swap(true, Ordering::AcqRel) {
            pages.notifier.notify(Urgency::Waiting);
        }
    }
}

/// What the log thread has taken out of the pages, in the order in which it is to be written.
///
/// The next exchange of a connection is delivered after the last one was written to its page. So of all
/// that was delivered before the pages were looked at nothing is missing in them, and by the time of
/// delivery it is in order for each connection; what is younger waits for the next round.
#[derive(Debug, Default)]
pub(super) struct MergedBatch {
    taken: Vec<Taken>,
    /// When the next record of each page that has one was delivered, and which page that is.
    next: BinaryHeap<Reverse<(Stamp, usize)>>,
    until: Stamp,
}

#[derive(Debug)]
struct Taken {
    page: Arc<Page>,
    records: Vec<u8>,
    /// Bytes of `records` that have been given out.
    used: usize,
}

impl MergedBatch {
    /// Takes what is in the pages at `now`, beside what is left of earlier rounds.
    pub(super) fn gather(&mut self, pages: &Pages, now: Stamp) {
        for page in lock(&pages.list).iter().skip(self.taken.len()) {
            self.taken.push(Taken {
                page: Arc::clone(page),
                records: Vec::new(),
                used: 0,
            });
        }
        self.next.clear();
        self.until = now;
        for (index, taken) in self.taken.iter_mut().enumerate() {
            taken.refill();
            self.next
                .extend(taken.delivered().map(|at| Reverse((at, index))));
        }
    }

    /// Gives the record that was delivered first to `look`, then the next one, as long as `look` says to go
    /// on. Gives the bytes of the records that were looked at.
    pub(super) fn each(&mut self, mut look: impl FnMut(Record<'_>) -> bool) -> usize {
        let mut used = 0;
        while let Some(&Reverse((at, index))) = self.next.peek() {
            if at > self.until {
                break;
            }
            self.next.pop();
            let taken = &mut self.taken[index];
            let decoded = Record::decode(&taken.records[taken.used..]);
            let (record, bytes) = decoded.expect("pens write whole records");
            let go_on = look(record);
            taken.used += bytes;
            used += bytes;
            self.next
                .extend(taken.delivered().map(|at| Reverse((at, index))));
            if !go_on {
                break;
            }
        }
        used
    }

    /// Whether anything is left, be it too young.
    pub(super) fn is_empty(&self) -> bool {
        self.taken
            .iter()
            .all(|taken| taken.used == taken.records.len())
    }
}

impl Taken {
    /// Puts what is in the page behind what is left.
    fn refill(&mut self) {
        self.records.drain(..self.used);
        self.used = 0;
        if self.records.is_empty() && self.records.capacity() > PAGE_BYTES_KEPT_MAX {
            // What one stall of the disk needed is not kept for ever.
            self.records = Vec::new();
        }
        let mut records = lock(&self.page.records);
        if self.records.is_empty() {
            std::mem::swap(&mut *records, &mut self.records);
        } else {
            self.records.append(&mut records);
        }
    }

    /// When its next record was delivered.
    fn delivered(&self) -> Option<Stamp> {
        let (delivered, _) = Record::peek(&self.records[self.used..])?;
        Some(delivered)
    }
}

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
pub(super) struct Budget {
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
        let mut waiting = lock(&self.waiting);
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
            let waiting = lock(&self.waiting);
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

/// What calls one log thread.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    pending: Mutex<Urgency>,
    called: Condvar,
}

/// How urgent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Urgency {
    #[default]
    Quiet,
    /// Something waits: come when it is as old as it may get.
    Waiting,
    /// A lot waits: come now.
    Urgent,
    /// Write everything and end.
    Stop,
}

impl Notifier {
    /// Calls; a lesser urgency than the last changes nothing.
    pub(super) fn notify(&self, urgency: Urgency) {
        let mut pending = lock(&self.pending);
        if *pending < urgency {
            *pending = urgency;
            self.called.notify_one();
        }
    }

    /// Waits until something waits, and then until that is `age` old or urgent; of all this `longest` at
    /// most. What was called is taken, only `Stop` stays.
    pub(super) fn wait(&self, age: Duration, longest: Duration) -> Urgency {
        let mut pending = self.until(lock(&self.pending), longest, Urgency::Waiting);
        if *pending == Urgency::Waiting {
            pending = self.until(pending, age.min(longest), Urgency::Urgent);
        }
        let seen = *pending;
        if seen != Urgency::Stop {
            *pending = Urgency::Quiet;
        }
        seen
    }

    fn until<'a>(
        &'a self,
        pending: MutexGuard<'a, Urgency>,
        longest: Duration,
        least: Urgency,
    ) -> MutexGuard<'a, Urgency> {
        let waited = self
            .called
            .wait_timeout_while(pending, longest, |pending| *pending < least);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
