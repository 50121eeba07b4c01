//! What a driver remembers of its files: families of pages by the raw path that they were asked for with.
//!
//! Takes and gives families; opens nothing. The key is the mount and the path as sent, so that a hit decodes
//! and allocates nothing; two spellings of one path are two entries, each inside the same bounds. Keys are
//! hashed with the standard library's seeded SipHash, because clients choose them.
//!
//! There are two shelves: small families with their bytes, and those with an open descriptor. Each is bounded
//! in number, and both together in memory. They evict by second chance: a hand goes round, spares an entry
//! that was asked for since it last passed, and takes the next. A sweep is bounded, so that no request pays
//! for the whole shelf.

use std::collections::HashMap;
use std::sync::Arc;

use measure::{Nanos, Stamp};

use crate::config::meant::FileCache;

use super::family::Family;

/// Small files per driver. Bounds the table, which grows in one step, to a few MiB.
const MEMORY_LEN_MAX: usize = 16_384;
/// Open descriptors per driver: well below the descriptors that a process has for its connections.
const OPEN_LEN_MAX: usize = 256;
/// Steps of the hand for one eviction; then the entry under it goes even if it was asked for.
const SWEEP_LEN_MAX: usize = 16;
/// A large file that nobody asks for is closed after this long, so that a deleted one gives its space back.
const OPEN_IDLE: Nanos = Nanos::from_secs(60);
/// Open files looked at for that in one go.
const IDLE_SWEEP_LEN: usize = 2;
/// Size of an entry apart from its bytes, lines and key: its structs, its place in the table, allocations.
const ENTRY_OVERHEAD_BYTES: usize = 512;
/// Longer than the tick of any kernel's clock, by which files are stamped. A file that is read within the
/// tick of its last change may be changed again without another stamp; read again after this long it cannot.
const SETTLE: Nanos = Nanos::from_ms(500);

/// The cache of one driver.
pub(super) struct Cache {
    /// For each mount.
    places: Vec<HashMap<Arc<[u8]>, Place>>,
    memory: Shelf,
    open: Shelf,
    /// Of both shelves.
    bytes_max: usize,
    revalidate: Nanos,
    stale_max: Nanos,
    idle_hand: usize,
    /// Families with descriptors that left the shelf of open files.
    gone: Vec<Arc<Family>>,
}

#[derive(Clone, Copy)]
struct Place {
    shelf: ShelfName,
    slot: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShelfName {
    Memory,
    Open,
}

struct Shelf {
    entries: Vec<Entry>,
    hand: usize,
    bytes: usize,
    /// On the shelf of small files each counts for one, on the other each descriptor does.
    len: usize,
    len_max: usize,
}

struct Entry {
    mount: usize,
    key: Arc<[u8]>,
    family: Arc<Family>,
    bytes: usize,
    len: usize,
    /// When the last look that has been done was asked for.
    checked: Stamp,
    /// When one was asked for that nobody waits for, done or not; at first as `checked`.
    pursued: Stamp,
    trust: Trust,
    /// Asked for since the hand last passed.
    is_asked: bool,
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
enum Trust {
    /// The content was read by this time, maybe within the tick of its last change.
    ReadAt(Stamp),
    /// It was read again, later, and the facts were still the same; or it is not held here.
    Settled,
}

impl Cache {
    /// An empty cache for `mounts_len` mounts. Zero `bytes_max` keeps no content.
    pub(super) fn new(mounts_len: usize, config: &FileCache) -> Cache {
        Cache {
            places: (0..mounts_len).map(|_| HashMap::new()).collect(),
            memory: Shelf::new(MEMORY_LEN_MAX),
            open: Shelf::new(OPEN_LEN_MAX),
            bytes_max: config.bytes_max,
            revalidate: config.revalidate,
            // Who wants every request to be checked wants no old ones in between.
            stale_max: match config.revalidate {
                Nanos::ZERO => Nanos::ZERO,
                _ => config.stale_max,
            },
            idle_hand: 0,
            gone: Vec::new(),
        }
    }

    /// What is known for `rest`, if it was looked at within `revalidate`, or is `stale` and a look was asked
    /// for in that time: one for each request would be a queue without a bound before storage that hangs.
    #[inline]
    pub(super) fn fresh(&mut self, mount: usize, rest: &[u8], now: Stamp) -> Option<&Arc<Family>> {
        let (revalidate, stale_max) = (self.revalidate, self.stale_max);
        let entry = self.entry(mount, rest)?;
        let age = now.since(entry.checked);
        let is_pursued = || age < stale_max && now.since(entry.pursued) < revalidate;
        if age >= revalidate && !is_pursued() {
            return None;
        }
        entry.is_asked = true;
        Some(&entry.family)
    }

    /// What is known for `rest`, if equal facts would confirm it: what was read within the tick of its
    /// file's last change has to be read again.
    pub(super) fn doubted(
        &mut self,
        mount: usize,
        rest: &[u8],
        now: Stamp,
    ) -> Option<&Arc<Family>> {
        let entry = self.entry(mount, rest)?;
        match entry.trust {
            Trust::ReadAt(read) if now.since(read) >= SETTLE => None,
            _ => Some(&entry.family),
        }
    }

    /// What is known for `rest`, however old.
    pub(super) fn held(&mut self, mount: usize, rest: &[u8]) -> Option<&Arc<Family>> {
        Some(&self.entry(mount, rest)?.family)
    }

    /// What is known for `rest` and may be given while its storage is asked again, which the caller sees to.
    pub(super) fn stale(&mut self, mount: usize, rest: &[u8], now: Stamp) -> Option<&Arc<Family>> {
        let stale_max = self.stale_max;
        let entry = self.entry(mount, rest)?;
        if now.since(entry.checked) >= stale_max {
            return None;
        }
        entry.pursued = now;
        Some(&entry.family)
    }

    /// What is known for `rest`, whose files still had the same facts at `now`.
    pub(super) fn confirm(
        &mut self,
        mount: usize,
        rest: &[u8],
        now: Stamp,
    ) -> Option<&Arc<Family>> {
        let entry = self.entry(mount, rest)?;
        entry.checked = now;
        entry.is_asked = true;
        Some(&entry.family)
    }

    /// Remembers what a look found, in place of what was known for `rest`; a look that was overtaken by
    /// another is not remembered.
    pub(super) fn keep(&mut self, mount: usize, rest: &[u8], family: Arc<Family>, when: Looking) {
        let trust = match self.entry(mount, rest) {
            Some(known) if known.checked > when.asked => return,
            // The look found what it had been told.
            Some(known) if Arc::ptr_eq(&known.family, &family) => {
                self.confirm(mount, rest, when.asked);
                return;
            }
            known => Trust::of(&family, known.as_deref(), when),
        };
        self.drop_entry(mount, rest);
        let Some(name) = self.make_room(&family, rest) else {
            return;
        };
        let key: Arc<[u8]> = rest.into();
        let entry = Entry {
            mount,
            key: Arc::clone(&key),
            bytes: name.bytes_of(&family, rest),
            len: name.len_of(&family),
            family,
            checked: when.asked,
            pursued: when.asked,
            trust,
            is_asked: false,
        };
        let slot = self.shelf(name).push(entry);
        self.places[mount].insert(key, Place { shelf: name, slot });
    }

    /// Lets others go until `family` fits; `None` when it never will.
    fn make_room(&mut self, family: &Family, rest: &[u8]) -> Option<ShelfName> {
        let name = ShelfName::of(family);
        let (bytes, len) = (name.bytes_of(family, rest), name.len_of(family));
        let rest_bytes_max = self.bytes_max.checked_sub(bytes)?;
        while self.shelf(name).len + len > self.shelf(name).len_max {
            self.evict(name);
        }
        while self.memory.bytes + self.open.bytes > rest_bytes_max {
            let name = if self.memory.entries.is_empty() {
                ShelfName::Open
            } else {
                ShelfName::Memory
            };
            self.evict(name);
        }
        Some(name)
    }

    fn evict(&mut self, name: ShelfName) {
        let slot = self.shelf(name).next_to_go();
        self.remove(name, slot);
    }

    /// Drops what is known for `rest`, unless a later look knew better.
    pub(super) fn forget(&mut self, mount: usize, rest: &[u8], when: Looking) {
        let known = self.entry(mount, rest);
        if known.is_some_and(|known| known.checked <= when.asked) {
            self.drop_entry(mount, rest);
        }
    }

    fn drop_entry(&mut self, mount: usize, rest: &[u8]) {
        if let Some(place) = self.places[mount].get(rest).copied() {
            self.remove(place.shelf, place.slot as usize);
        }
    }

    /// Lets large files go that nobody asked for in a while, a few at a time.
    pub(super) fn close_idle(&mut self, now: Stamp) {
        for _ in 0..IDLE_SWEEP_LEN.min(self.open.entries.len()) {
            if self.idle_hand >= self.open.entries.len() {
                self.idle_hand = 0;
            }
            match self.open.entries.get(self.idle_hand) {
                Some(entry) if now.since(entry.checked) >= OPEN_IDLE => {
                    self.remove(ShelfName::Open, self.idle_hand);
                }
                _ => self.idle_hand += 1,
            }
        }
    }

    /// What left the shelf of open files since the last call: closing them is not for a driver.
    pub(super) fn take_gone(&mut self) -> Vec<Arc<Family>> {
        std::mem::take(&mut self.gone)
    }

    #[inline]
    fn entry(&mut self, mount: usize, rest: &[u8]) -> Option<&mut Entry> {
        let place = *self.places[mount].get(rest)?;
        self.shelf(place.shelf).entries.get_mut(place.slot as usize)
    }

    #[inline]
    fn shelf(&mut self, name: ShelfName) -> &mut Shelf {
        match name {
            ShelfName::Memory => &mut self.memory,
            ShelfName::Open => &mut self.open,
        }
    }

    /// Removes the entry in `slot`; the last one of the shelf takes its place.
    fn remove(&mut self, name: ShelfName, slot: usize) {
        let shelf = self.shelf(name);
        let gone = shelf.entries.swap_remove(slot);
        shelf.bytes -= gone.bytes;
        shelf.len -= gone.len;
        let moved = shelf
            .entries
            .get(slot)
            .map(|entry| (entry.mount, Arc::clone(&entry.key)));
        self.places[gone.mount].remove(&gone.key);
        if name == ShelfName::Open {
            self.gone.push(gone.family);
        }
        if let Some((mount, key)) = moved {
            self.places[mount].insert(
                key,
                Place {
                    shelf: name,
                    slot: slot as u32,
                },
            );
        }
    }
}

impl ShelfName {
    fn of(family: &Family) -> ShelfName {
        match family.open_len() {
            0 => ShelfName::Memory,
            _ => ShelfName::Open,
        }
    }

    /// Bytes that an entry counts for. The lines and keys of open files are bounded with their number.
    fn bytes_of(self, family: &Family, rest: &[u8]) -> usize {
        match self {
            ShelfName::Memory => family.memory_bytes() + rest.len() + ENTRY_OVERHEAD_BYTES,
            ShelfName::Open => family.content_bytes(),
        }
    }

    fn len_of(self, family: &Family) -> usize {
        match self {
            ShelfName::Memory => 1,
            ShelfName::Open => family.open_len(),
        }
    }
}

impl Trust {
    /// Of a family that was just read, where `known` was known before.
    fn of(family: &Family, known: Option<&Entry>, when: Looking) -> Trust {
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
    fn new(len_max: usize) -> Shelf {
        Shelf {
            entries: Vec::new(),
            hand: 0,
            bytes: 0,
            len: 0,
            len_max,
        }
    }

    fn push(&mut self, entry: Entry) -> u32 {
        self.bytes += entry.bytes;
        self.len += entry.len;
        self.entries.push(entry);
        (self.entries.len() - 1) as u32
    }

    /// The slot whose entry goes next; the shelf is not empty. The hand then stands behind the slot,
    /// because the youngest entry is about to move there and must have its turn of the clock.
    fn next_to_go(&mut self) -> usize {
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

#[cfg(test)]
mod tests;
