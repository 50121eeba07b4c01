//! A shelf of what is remembered: entries in a bounded number, who goes when there is no room for another, and how
//! far an entry is to be trusted.
//!
//! Takes and gives entries; knows neither paths nor requests. It evicts by second chance: a hand goes round, spares
//! an entry that was asked for since it last passed, and takes the next. A sweep is bounded, so that no request
//! pays for the whole shelf.

use std::sync::Arc;

use measure::{Nanos, Stamp};

use super::variants::Family;

/// Steps of the hand for one eviction; then the entry under it goes even if it was asked for.
const SWEEP_LEN_MAX: usize = 16;
/// Size of an entry apart from its bytes, lines and key: its structs, its place in the table, allocations.
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 512;
/// Longer than the tick of any kernel's clock, by which files are stamped. A file that is read within the
/// tick of its last change may be changed again without another stamp; read again after this long it cannot.
pub(super) const SETTLE: Nanos = Nanos::from_ms(500);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShelfName {
    Memory,
    Open,
}

pub(super) struct Shelf {
    pub(super) entries: Vec<Entry>,
    hand: usize,
    pub(super) bytes: usize,
    /// On the shelf of small files each counts for one, on the other each descriptor does.
    pub(super) len: usize,
    pub(super) len_max: usize,
}

pub(super) struct Entry {
    pub(super) mount: usize,
    pub(super) key: Arc<[u8]>,
    pub(super) family: Arc<Family>,
    pub(super) bytes: usize,
    pub(super) len: usize,
    /// When the last look that has been done was asked for.
    pub(super) checked: Stamp,
    /// When one was asked for that nobody waits for, done or not; at first as `checked`.
    pub(super) pursued: Stamp,
    pub(super) trust: Trust,
    /// Asked for since the hand last passed.
    pub(super) is_asked: bool,
}

/// The span of a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looking {
    /// Before it began: what it saw is at most so old.
    pub(super) asked: Stamp,
    /// After it ended.
    pub(super) done: Stamp,
}

/// Whether equal facts mean equal content.
#[derive(Clone, Copy)]
pub(super) enum Trust {
    /// The content was read by this time, maybe within the tick of its last change.
    ReadAt(Stamp),
    /// It was read again, later, and the facts were still the same; or it is not held here.
    Settled,
}

impl ShelfName {
    pub(super) fn of(family: &Family) -> ShelfName {
        match family.open_len() {
            0 => ShelfName::Memory,
            _ => ShelfName::Open,
        }
    }

    /// Bytes that an entry counts for. The lines and keys of open files are bounded with their number.
    pub(super) fn bytes_of(self, family: &Family, rest: &[u8]) -> usize {
        match self {
            ShelfName::Memory => family.memory_bytes() + rest.len() + ENTRY_OVERHEAD_BYTES,
            ShelfName::Open => family.content_bytes(),
        }
    }

    pub(super) fn len_of(self, family: &Family) -> usize {
        match self {
            ShelfName::Memory => 1,
            ShelfName::Open => family.open_len(),
        }
    }
}

impl Trust {
    /// Of a family that was just read, where `known` was known before.
    pub(super) fn of(family: &Family, known: Option<&Entry>, when: Looking) -> Trust {
        if family.content_bytes() == 0 {
            return Trust::Settled;
        }
        match known {
            Some(Entry {
                family: known,
                trust: Trust::ReadAt(read),
                ..
            }) if known.facts() == family.facts() && when.asked.since(*read) >= SETTLE => {
                Trust::Settled
            }
            _ => Trust::ReadAt(when.done),
        }
    }
}

impl Shelf {
    pub(super) fn new(len_max: usize) -> Shelf {
        Shelf {
            entries: Vec::new(),
            hand: 0,
            bytes: 0,
            len: 0,
            len_max,
        }
    }

    pub(super) fn push(&mut self, entry: Entry) -> u32 {
        self.bytes += entry.bytes;
        self.len += entry.len;
        self.entries.push(entry);
        (self.entries.len() - 1) as u32
    }

    /// The slot whose entry goes next; the shelf is not empty. The hand then stands behind the slot,
    /// because the youngest entry is about to move there and must have its turn of the clock.
    pub(super) fn next_to_go(&mut self) -> usize {
        for _ in 0..SWEEP_LEN_MAX {
            let slot = self.step();
            if !std::mem::take(&mut self.entries[slot].is_asked) {
                return slot;
            }
        }
        self.step()
    }

    fn step(&mut self) -> usize {
        let slot = if self.hand < self.entries.len() {
            self.hand
        } else {
            0
        };
        self.hand = slot + 1;
        slot
    }
}
