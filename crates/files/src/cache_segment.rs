//! A segment of the cache: entries in a bounded number, which of them is evicted for another, and how
//! far an entry is to be trusted.
//!
//! Takes and gives entries; knows neither paths nor requests. It evicts by second chance: a hand goes round, spares
//! an entry that was asked for since it last passed, and takes the next. A sweep is bounded, so that no request
//! pays for the whole segment.

use std::sync::Arc;

use telemetry::{Nanos, Stamp};

use super::variants::Variants;

/// Steps of the hand for one eviction; then the entry under it goes even if it was asked for.
const SWEEP_LEN_MAX: usize = 16;
/// Size of an entry apart from its bytes, lines and key: its structs, its place in the table, allocations.
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 512;
/// Longer than the tick of any kernel's clock, by which files are stamped. A file that is read within the
/// tick of its last change may be changed again without another stamp; read again after this long it cannot.
pub(super) const SETTLE: Nanos = Nanos::from_ms(500);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SegmentKind {
    Memory,
    Open,
}

pub(super) struct CacheSegment {
    pub(super) entries: Vec<CacheEntry>,
    hand: usize,
    pub(super) bytes: usize,
    /// On the segment of small files each counts for one, on the other each descriptor does.
    pub(super) len: usize,
    pub(super) len_max: usize,
}

pub(super) struct CacheEntry {
    pub(super) mount: usize,
    pub(super) key: Arc<[u8]>,
    pub(super) variants: Arc<Variants>,
    pub(super) bytes: usize,
    pub(super) len: usize,
    /// When the last lookup that has been done was asked for.
    pub(super) checked: Stamp,
    /// Start of the last lookup without a waiting request, done or not; at first as `checked`.
    pub(super) refreshing_since: Stamp,
    pub(super) trust: ReadState,
    /// Asked for since the hand last passed.
    pub(super) is_asked: bool,
}

/// The span of a lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookupTimes {
    /// Before it began: what it saw is at most so old.
    pub(super) asked: Stamp,
    /// After it ended.
    pub(super) done: Stamp,
}

/// Whether equal metadata means equal content.
#[derive(Clone, Copy)]
pub(super) enum ReadState {
    /// The content was read by this time, maybe within the tick of its last change.
    ReadAt(Stamp),
    /// It was read again, later, and the metadata was still the same; or it is not held here.
    Settled,
}

impl SegmentKind {
    pub(super) fn of(variants: &Variants) -> SegmentKind {
        match variants.open_len() {
            0 => SegmentKind::Memory,
            _ => SegmentKind::Open,
        }
    }

    /// Bytes that an entry counts for. The lines and keys of open files are bounded with their number.
    pub(super) fn bytes_of(self, variants: &Variants, rest: &[u8]) -> usize {
        match self {
            SegmentKind::Memory => variants.memory_bytes() + rest.len() + ENTRY_OVERHEAD_BYTES,
            SegmentKind::Open => variants.content_bytes(),
        }
    }

    pub(super) fn len_of(self, variants: &Variants) -> usize {
        match self {
            SegmentKind::Memory => 1,
            SegmentKind::Open => variants.open_len(),
        }
    }
}

impl ReadState {
    /// Of a file that was just read, where `known` was known before.
    pub(super) fn of(
        variants: &Variants,
        known: Option<&CacheEntry>,
        when: LookupTimes,
    ) -> ReadState {
        if variants.content_bytes() == 0 {
            return ReadState::Settled;
        }
        match known {
            Some(CacheEntry {
                variants: known,
                trust: ReadState::ReadAt(read),
                ..
            }) if known.metadata() == variants.metadata() && when.asked.since(*read) >= SETTLE => {
                ReadState::Settled
            }
            _ => ReadState::ReadAt(when.done),
        }
    }
}

impl CacheSegment {
    pub(super) fn new(len_max: usize) -> CacheSegment {
        CacheSegment {
            entries: Vec::new(),
            hand: 0,
            bytes: 0,
            len: 0,
            len_max,
        }
    }

    pub(super) fn push(&mut self, entry: CacheEntry) -> u32 {
        self.bytes += entry.bytes;
        self.len += entry.len;
        self.entries.push(entry);
        (self.entries.len() - 1) as u32
    }

    /// The slot whose entry goes next; the segment is not empty. The hand then stands behind the slot,
    /// because the youngest entry is about to move there and must have its turn of the clock.
    pub(super) fn eviction_candidate(&mut self) -> usize {
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
