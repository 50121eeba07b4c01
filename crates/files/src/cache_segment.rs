//! A segment of the cache: entries in a bounded number, which of them is evicted for another, and how
//! far an entry is to be trusted.
//!
//! Takes and gives entries; knows no request. It evicts by second chance: a hand goes round, spares an entry that was
//! asked for since it last passed, and takes the next. A sweep is bounded, so that no request pays for the whole
//! segment.

use std::sync::Arc;

use indexmap::{Equivalent, IndexMap};
use os::invariant;
use telemetry::{Nanos, Stamp};

use super::variants::Variants;

/// Steps of the hand for one eviction; then the entry under it goes even if it was asked for.
const SWEEP_LEN_MAX: usize = 16;
/// Size of an entry apart from its bytes, lines and key: its structs, its place in the table, allocations.
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 512;
/// Longer than the tick of any kernel's clock, by which files are stamped. A file that is read within the
/// tick of its last change may be changed again without another stamp; read again after this long it cannot.
pub(super) const SETTLE: Nanos = Nanos::from_ms(500);

/// What a client asks for: the mount, and the path behind its URL prefix as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AskedFile<'a> {
    pub(super) mount: usize,
    pub(super) rest: &'a [u8],
}

/// The same, kept. Hashes as an `AskedFile` does, so that a hit copies nothing.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct EntryKey {
    mount: usize,
    rest: Box<[u8]>,
}

#[derive(Debug)]
pub(super) struct CacheSegment {
    pub(super) entries: IndexMap<EntryKey, CacheEntry>,
    hand: usize,
    pub(super) bytes: usize,
    pub(super) len: usize,
    pub(super) len_max: usize,
}

#[derive(Debug)]
pub(super) struct CacheEntry {
    pub(super) variants: Arc<Variants>,
    pub(super) size: EntrySize,
    /// When the last lookup that has been done was asked for.
    pub(super) checked: Stamp,
    /// Start of the last lookup without a waiting request, done or not; at first as `checked`.
    pub(super) refreshing_since: Stamp,
    /// When the content was read, maybe within the tick of its last change. `None`: it was read again, later, and
    /// the metadata was still the same; or it is not held here.
    pub(super) read_at: Option<Stamp>,
    /// Asked for since the hand last passed.
    pub(super) is_asked: bool,
}

/// What an entry counts for.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntrySize {
    /// On the segment of small files 1, on the other the number of its descriptors.
    pub(super) len: usize,
    pub(super) bytes: usize,
    /// It is in the segment of open files.
    pub(super) is_open: bool,
}

/// The span of a lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookupTimes {
    /// Before it began: what it saw is at most so old.
    pub(super) asked: Stamp,
    /// After it ended.
    pub(super) done: Stamp,
}

impl Equivalent<EntryKey> for AskedFile<'_> {
    fn equivalent(&self, key: &EntryKey) -> bool {
        (self.mount, self.rest) == (key.mount, &*key.rest)
    }
}

impl AskedFile<'_> {
    pub(super) fn to_key(self) -> EntryKey {
        EntryKey {
            mount: self.mount,
            rest: self.rest.into(),
        }
    }
}

impl EntrySize {
    /// The lines and keys of open files are bounded with their number.
    pub(super) fn of(variants: &Variants, rest: &[u8]) -> EntrySize {
        match variants.open_len() {
            0 => EntrySize {
                len: 1,
                bytes: variants.memory_bytes() + rest.len() + ENTRY_OVERHEAD_BYTES,
                is_open: false,
            },
            len => EntrySize {
                len,
                bytes: variants.content_bytes(),
                is_open: true,
            },
        }
    }
}

impl CacheEntry {
    /// Whether equal metadata means equal content at `now`.
    pub(super) fn is_confirmable(&self, now: Stamp) -> bool {
        // What was read within the tick of its file's last change has to be read again.
        self.read_at.is_none_or(|read| now.since(read) < SETTLE)
    }

    /// Its files still had the same metadata at `now`.
    pub(super) fn confirm(&mut self, now: Stamp) -> &Arc<Variants> {
        self.checked = now;
        self.is_asked = true;
        &self.variants
    }

    /// Whether `variants`, looked up again, confirm for good what is known: their metadata is equal, and the two reads
    /// lie far enough apart.
    pub(super) fn settles(&self, variants: &Variants, when: LookupTimes) -> bool {
        // Counted from the end of the first read to the beginning of this one: between them a tick has surely passed,
        // so neither can have read within the tick of the last change.
        self.read_at
            .is_some_and(|read| when.asked.since(read) >= SETTLE)
            && self.variants.metadata().eq(variants.metadata())
    }
}

impl CacheSegment {
    pub(super) fn new(len_max: usize) -> CacheSegment {
        CacheSegment {
            entries: IndexMap::new(),
            hand: 0,
            bytes: 0,
            len: 0,
            len_max,
        }
    }

    pub(super) fn insert(&mut self, key: EntryKey, entry: CacheEntry) {
        self.bytes += entry.size.bytes;
        self.len += entry.size.len;
        let known = self.entries.insert(key, entry);
        invariant!(known.is_none(), "an entry of the cache is overwritten");
    }

    /// Removes an entry; the last one takes its place.
    pub(super) fn remove(&mut self, slot: usize) -> Option<CacheEntry> {
        let (_, entry) = self.entries.swap_remove_index(slot)?;
        let EntrySize { len, bytes, .. } = entry.size;
        invariant!(
            bytes <= self.bytes && len <= self.len,
            "an entry of {bytes} bytes leaves a cache of {}",
            self.bytes
        );
        self.bytes -= bytes;
        self.len -= len;
        Some(entry)
    }

    /// The slot whose entry goes next; the segment is not empty.
    pub(super) fn eviction_candidate(&mut self) -> usize {
        invariant!(
            !self.entries.is_empty(),
            "an empty cache is to evict, and counts {} bytes",
            self.bytes
        );
        // The hand then stands behind the slot, because the youngest entry is about to move there and must have its
        // turn of the clock.
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
