//! Pages: finished records on their way from the threads that end exchanges to the log thread.
//!
//! Each producing thread has a `Pen` and a page of its own: it appends under a lock that only the log
//! thread ever contends for, which swaps a full page for an empty one. What is in the pages and what was
//! made of it is bounded by `Room`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use measure::{Record, Stamp};

use super::bell::{Bell, Ring};
use super::lock;
use super::room::{Patience, Room};

/// Bytes in a page that make the log thread come before its time.
const PAGE_BYTES_URGENT: usize = 256 << 10;
/// Memory that an empty page keeps.
const PAGE_BYTES_KEPT_MAX: usize = 4 * PAGE_BYTES_URGENT;

/// All pages, the room that they share, and the bell of the thread that reads them.
#[derive(Debug)]
pub(super) struct Pages {
    list: Mutex<Vec<Arc<Page>>>,
    pub(super) room: Room,
    pub(super) bell: Bell,
    /// The bell has been rung since the log thread came last.
    told: AtomicBool,
    /// At the end: nothing is tried again.
    hurried: AtomicBool,
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
    pub(super) fn new(room: Room) -> Self {
        Self {
            list: Mutex::default(),
            room,
            bell: Bell::new(),
            told: AtomicBool::new(false),
            hurried: AtomicBool::new(false),
        }
    }

    /// What is not written at the end is lost now.
    pub(super) fn hurry(&self) {
        self.hurried.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed)
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

    /// The log thread is about to look: whoever adds something from now on rings again.
    pub(super) fn came(&self) {
        self.told.store(false, Ordering::Release);
    }
}

impl Pen {
    /// Appends a record, unless there is no room for it.
    pub(crate) fn write(&self, record: &Record<'_>) {
        let pages = &self.pages;
        if !pages.room.enter(self.patience) {
            return;
        }
        let (added, waiting, is_half_full) = {
            let mut records = lock(&self.page.records);
            let before = records.len();
            record.encode(&mut records);
            let added = records.len() - before;
            // Within the lock, so that the log thread cannot count it off first.
            let is_half_full = pages.room.add_record(added);
            (added, records.len(), is_half_full)
        };
        let is_long = waiting >= PAGE_BYTES_URGENT && waiting - added < PAGE_BYTES_URGENT;
        if is_long || is_half_full {
            pages.bell.ring(Ring::Urgent);
        } else if !pages.told.load(Ordering::Relaxed) && !pages.told.swap(true, Ordering::AcqRel) {
            pages.bell.ring(Ring::Waiting);
        }
    }
}

/// What the log thread has taken out of the pages, in the order in which it is to be written.
///
/// The next exchange of a connection is delivered after the last one was written to its page. So of all
/// that was delivered before the pages were looked at nothing is missing in them, and by the time of
/// delivery it is in order for each connection; what is younger waits for the next round.
#[derive(Debug, Default)]
pub(super) struct Sheaf {
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

impl Sheaf {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::meant::LogOverflow;

    fn pages() -> Arc<Pages> {
        Arc::new(Pages::new(Room::new(1 << 20, LogOverflow::Drop)))
    }

    fn write(pen: &Pen, delivered: u64) {
        let mut record = Record::default();
        record.phases.sent = Stamp(delivered);
        pen.write(&record);
    }

    fn gathered(sheaf: &mut Sheaf, pages: &Pages, now: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        sheaf.gather(pages, Stamp(now));
        let used = sheaf.each(|record| {
            seen.push(record.phases.sent.0);
            true
        });
        pages.room.settle(used, 0);
        seen
    }

    #[test]
    fn merges_pages_by_delivery_and_leaves_what_is_younger() {
        let pages = pages();
        let (one, other) = (pages.pen(Patience::Now), pages.pen(Patience::Now));
        for delivered in [1, 4, 9] {
            write(&one, delivered);
        }
        for delivered in [2, 3, 8] {
            write(&other, delivered);
        }
        let mut sheaf = Sheaf::default();
        assert_eq!(gathered(&mut sheaf, &pages, 8), [1, 2, 3, 4, 8]);
        assert!(!sheaf.is_empty());
        write(&one, 12);
        write(&other, 10);
        write(&pages.pen(Patience::Now), 11);
        assert_eq!(gathered(&mut sheaf, &pages, 20), [9, 10, 11, 12]);
        assert!(sheaf.is_empty());
        assert_eq!(pages.room.waiting_bytes(), 0);
    }

    #[test]
    fn calls_before_a_small_room_is_full() {
        let pages = Arc::new(Pages::new(Room::new(64 << 10, LogOverflow::Drop)));
        let pens = [pages.pen(Patience::Now), pages.pen(Patience::Now)];
        let hour = std::time::Duration::from_secs(3600);
        write(&pens[0], 1);
        for delivered in 2.. {
            write(&pens[delivered as usize % 2], delivered);
            if pages.room.waiting_bytes() >= 32 << 10 {
                break;
            }
        }
        assert_eq!(pages.bell.wait(hour, hour), Ring::Urgent);
        assert_eq!(pages.room.take_dropped(), 0);
    }

    #[test]
    fn stops_when_it_is_told_and_goes_on_later() {
        let pages = pages();
        let pen = pages.pen(Patience::Now);
        for delivered in 1..=3 {
            write(&pen, delivered);
        }
        let mut sheaf = Sheaf::default();
        sheaf.gather(&pages, Stamp(9));
        let mut seen = Vec::new();
        sheaf.each(|record| {
            seen.push(record.phases.sent.0);
            false
        });
        assert_eq!(seen, [1]);
        assert_eq!(gathered(&mut sheaf, &pages, 9), [2, 3]);
    }
}
