//! What a driver remembers of its files: pages by the raw path that they were asked for with.
//!
//! Takes and gives pages; opens nothing. The key is the mount and the path as sent, so that a hit decodes
//! and allocates nothing; two spellings of one path are two entries, each inside the same bounds. Keys are
//! hashed with the standard library's seeded SipHash, because clients choose them.
//!
//! There are two shelves: small files with their bytes, and large ones with their open descriptor. Each is
//! bounded and evicts by second chance: a hand goes round, spares an entry that was asked for since it last
//! passed, and takes the next. A sweep is bounded, so that no request pays for the whole shelf.

use std::collections::HashMap;
use std::sync::Arc;

use measure::{Nanos, Stamp};

use super::page::{Content, Page};

/// Small files per driver. Bounds the table, which grows in one step, to a few MiB.
const MEMORY_LEN_MAX: usize = 16_384;
/// Open large files per driver: well below the descriptors that a process has for its connections.
const OPEN_LEN_MAX: usize = 256;
/// Steps of the hand for one eviction; then the entry under it goes even if it was asked for.
const SWEEP_LEN_MAX: usize = 16;
/// A large file that nobody asks for is closed after this long, so that a deleted one gives its space back.
const OPEN_IDLE: Nanos = Nanos::from_secs(60);
/// Open files looked at for that with each request that misses.
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
    revalidate: Nanos,
    idle_hand: usize,
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
    bytes_max: usize,
    len_max: usize,
}

struct Entry {
    mount: usize,
    key: Arc<[u8]>,
    page: Page,
    bytes: usize,
    /// When the last look at the file was asked for.
    checked: Stamp,
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
    pub(super) fn new(mounts_len: usize, bytes_max: usize, revalidate: Nanos) -> Cache {
        Cache {
            places: (0..mounts_len).map(|_| HashMap::new()).collect(),
            memory: Shelf::new(bytes_max, MEMORY_LEN_MAX),
            // The descriptors' count is their bound; lines and keys of 256 of them are bounded with it.
            open: Shelf::new(usize::MAX, OPEN_LEN_MAX),
            revalidate,
            idle_hand: 0,
        }
    }

    /// The page for `rest`, if it was looked at within `revalidate`.
    #[inline]
    pub(super) fn fresh(&mut self, mount: usize, rest: &[u8], now: Stamp) -> Option<&Page> {
        let revalidate = self.revalidate;
        let entry = self.entry(mount, rest)?;
        if now.since(entry.checked) >= revalidate {
            return None;
        }
        entry.is_asked = true;
        Some(&entry.page)
    }

    /// The page for `rest`, if equal facts would confirm it: one that was read within the tick of its
    /// file's last change has to be read again.
    pub(super) fn doubted(&mut self, mount: usize, rest: &[u8], now: Stamp) -> Option<&Page> {
        let entry = self.entry(mount, rest)?;
        match entry.trust {
            Trust::ReadAt(read) if now.since(read) >= SETTLE => None,
            _ => Some(&entry.page),
        }
    }

    /// The page for `rest`, whose file still has the page's facts at `now`.
    pub(super) fn confirm(&mut self, mount: usize, rest: &[u8], now: Stamp) -> Option<&Page> {
        let entry = self.entry(mount, rest)?;
        entry.checked = now;
        entry.is_asked = true;
        Some(&entry.page)
    }

    /// Remembers a page whose look was asked for at `asked` and is done at `now`, in place of what was
    /// known for `rest`; a look that was overtaken by another is not remembered.
    pub(super) fn keep(&mut self, mount: usize, rest: &[u8], page: Page, when: Looking) {
        if self.is_overtaken(mount, rest, when) {
            return;
        }
        let trust = self.trust(mount, rest, &page, when);
        self.drop_entry(mount, rest);
        let name = ShelfName::of(&page);
        let bytes = page.memory_bytes() + rest.len() + ENTRY_OVERHEAD_BYTES;
        if bytes > self.shelf(name).bytes_max {
            return;
        }
        while self.shelf(name).is_full_for(bytes) {
            let slot = self.shelf(name).next_to_go();
            self.remove(name, slot);
        }
        let key: Arc<[u8]> = rest.into();
        let entry = Entry {
            mount,
            key: Arc::clone(&key),
            page,
            bytes,
            checked: when.asked,
            trust,
            is_asked: false,
        };
        let slot = self.shelf(name).push(entry);
        self.places[mount].insert(key, Place { shelf: name, slot });
    }

    /// Drops what is known for `rest`, unless a later look knew better.
    pub(super) fn forget(&mut self, mount: usize, rest: &[u8], when: Looking) {
        if !self.is_overtaken(mount, rest, when) {
            self.drop_entry(mount, rest);
        }
    }

    fn is_overtaken(&mut self, mount: usize, rest: &[u8], when: Looking) -> bool {
        self.entry(mount, rest)
            .is_some_and(|entry| entry.checked > when.asked)
    }

    fn drop_entry(&mut self, mount: usize, rest: &[u8]) {
        if let Some(place) = self.places[mount].get(rest).copied() {
            self.remove(place.shelf, place.slot as usize);
        }
    }

    /// Closes large files that nobody asked for in a while, a few at a time.
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

    #[inline]
    fn entry(&mut self, mount: usize, rest: &[u8]) -> Option<&mut Entry> {
        let place = *self.places[mount].get(rest)?;
        self.shelf(place.shelf).entries.get_mut(place.slot as usize)
    }

    fn trust(&mut self, mount: usize, rest: &[u8], page: &Page, when: Looking) -> Trust {
        if let Content::Open { .. } = page.content {
            return Trust::Settled;
        }
        match self.entry(mount, rest) {
            Some(Entry {
                page: known,
                trust: Trust::ReadAt(read),
                ..
            }) if known.facts == page.facts && when.asked.since(*read) >= SETTLE => Trust::Settled,
            _ => Trust::ReadAt(when.done),
        }
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
        let moved = shelf
            .entries
            .get(slot)
            .map(|entry| (entry.mount, Arc::clone(&entry.key)));
        self.places[gone.mount].remove(&gone.key);
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
    fn of(page: &Page) -> ShelfName {
        match page.content {
            Content::Memory(_) => ShelfName::Memory,
            Content::Open { .. } => ShelfName::Open,
        }
    }
}

impl Shelf {
    fn new(bytes_max: usize, len_max: usize) -> Shelf {
        Shelf {
            entries: Vec::new(),
            hand: 0,
            bytes: 0,
            bytes_max,
            len_max,
        }
    }

    fn is_full_for(&self, bytes: usize) -> bool {
        self.entries.len() >= self.len_max || self.bytes > self.bytes_max - bytes
    }

    fn push(&mut self, entry: Entry) -> u32 {
        self.bytes += entry.bytes;
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
mod tests {
    use std::fs::{self, File};
    use std::path::Path;

    use super::super::facts::{Facts, Storage};
    use super::super::kind;
    use super::super::page::Stay;
    use super::*;

    const ENTRY_BYTES: usize = 1000;

    struct Shop {
        dir: tempfile::TempDir,
        cache: Cache,
    }

    impl Shop {
        /// A cache with room for `len` small pages.
        fn new(len: usize) -> Shop {
            let dir = tempfile::tempdir().unwrap();
            Shop {
                dir,
                cache: Cache::new(
                    2,
                    len * (ENTRY_BYTES + ENTRY_OVERHEAD_BYTES + 400),
                    Nanos::from_secs(1),
                ),
            }
        }

        fn page(&self, name: &str, stay: Stay) -> Page {
            load(&self.dir.path().join(name), stay)
        }

        fn keep(&mut self, name: &str, now: u64) {
            let page = self.page(name, Stay::Memory);
            self.cache.keep(0, name.as_bytes(), page, at(now));
        }

        fn keep_open(&mut self, name: &str, now: u64) {
            let page = self.page(name, Stay::Open);
            self.cache.keep(0, name.as_bytes(), page, at(now));
        }

        /// Whether equal facts would do at `now`.
        fn trusts(&mut self, name: &str, now: u64) -> bool {
            self.cache.doubted(0, name.as_bytes(), Stamp(now)).is_some()
        }

        fn has(&mut self, name: &str) -> bool {
            self.cache.fresh(0, name.as_bytes(), Stamp(1)).is_some()
        }

        fn check(&self) {
            for shelf in [&self.cache.memory, &self.cache.open] {
                assert!(shelf.bytes <= shelf.bytes_max && shelf.entries.len() <= shelf.len_max);
                assert_eq!(
                    shelf.bytes,
                    shelf.entries.iter().map(|entry| entry.bytes).sum::<usize>()
                );
            }
            let places: usize = self.cache.places.iter().map(HashMap::len).sum();
            assert_eq!(
                places,
                self.cache.memory.entries.len() + self.cache.open.entries.len()
            );
            for (name, shelf) in [
                (ShelfName::Memory, &self.cache.memory),
                (ShelfName::Open, &self.cache.open),
            ] {
                for (slot, entry) in shelf.entries.iter().enumerate() {
                    let place = self.cache.places[entry.mount][&entry.key];
                    assert_eq!((place.shelf, place.slot as usize), (name, slot));
                }
            }
        }
    }

    /// A look that took no time.
    fn at(now: u64) -> Looking {
        let now = Stamp(now);
        Looking {
            asked: now,
            done: now,
        }
    }

    fn load(path: &Path, stay: Stay) -> Page {
        if !path.exists() {
            fs::write(path, [b'x'; ENTRY_BYTES]).unwrap();
        }
        let file = File::open(path).unwrap();
        let facts = Facts::of(&file.metadata().unwrap());
        Page::load(file, facts, Storage::Local, kind::of_path(b"a"), stay).unwrap()
    }

    #[test]
    fn stays_within_its_bytes() {
        let mut shop = Shop::new(10);
        for n in 0..100 {
            shop.keep(&format!("{n}"), 1);
            shop.check();
        }
        assert!(shop.cache.memory.entries.len() >= 10);
        assert!(shop.has("99"));
    }

    #[test]
    fn spares_what_is_asked_for() {
        let mut shop = Shop::new(10);
        shop.keep("hot", 1);
        for n in 0..200 {
            assert!(shop.has("hot"), "{n}");
            shop.keep(&format!("{n}"), 1);
        }
        shop.check();
    }

    #[test]
    fn lets_the_young_have_their_turn() {
        let mut shop = Shop::new(10);
        for n in 0..50 {
            shop.keep(&format!("{n}"), 1);
        }
        // Every one of the last few is there: the hand does not take the youngest first.
        for n in 45..50 {
            assert!(shop.has(&format!("{n}")), "{n}");
        }
    }

    #[test]
    fn evicts_even_when_all_are_asked_for() {
        let mut shop = Shop::new(40);
        for n in 0..200 {
            for earlier in 0..n {
                shop.has(&format!("{earlier}"));
            }
            shop.keep(&format!("{n}"), 1);
        }
        shop.check();
    }

    #[test]
    fn keeps_nothing_larger_than_itself() {
        let mut shop = Shop::new(0);
        shop.keep("a", 1);
        assert!(!shop.has("a"));
        shop.check();
    }

    #[test]
    fn bounds_its_open_files_and_closes_idle_ones() {
        let mut shop = Shop::new(10);
        for n in 0..OPEN_LEN_MAX + 20 {
            shop.keep_open(&format!("{n}"), 1);
        }
        shop.check();
        assert_eq!(shop.cache.open.entries.len(), OPEN_LEN_MAX);
        let later = Stamp(1).plus(OPEN_IDLE);
        shop.keep_open("young", later.0);
        for _ in 0..OPEN_LEN_MAX {
            shop.cache.close_idle(later);
            shop.check();
        }
        assert_eq!(shop.cache.open.entries.len(), 1);
        assert_eq!(*shop.cache.open.entries[0].key, *b"young");
    }

    #[test]
    fn replaces_and_forgets() {
        let mut shop = Shop::new(10);
        shop.keep("a", 1);
        shop.keep("b", 1);
        shop.keep_open("a", 1);
        shop.check();
        assert_eq!(
            (
                shop.cache.memory.entries.len(),
                shop.cache.open.entries.len()
            ),
            (1, 1)
        );
        shop.cache.forget(0, b"a", at(1));
        shop.cache.forget(0, b"nothing", at(1));
        shop.cache.forget(1, b"b", at(1));
        shop.check();
        assert!(!shop.has("a") && shop.has("b"));
    }

    #[test]
    fn reads_a_young_file_twice_and_then_trusts_it() {
        let mut shop = Shop::new(10);
        shop.keep("a", 1);
        assert!(shop.trusts("a", SETTLE.0));
        assert!(!shop.trusts("a", 1 + SETTLE.0), "due to be read again");
        shop.keep("a", 1 + SETTLE.0);
        assert!(shop.trusts("a", 9 * SETTLE.0));
    }

    #[test]
    fn a_changed_file_is_on_trial_anew() {
        let mut shop = Shop::new(10);
        shop.keep("a", 1);
        shop.keep("a", 1 + SETTLE.0);
        fs::write(shop.dir.path().join("a"), "changed").unwrap();
        shop.keep("a", 1 + SETTLE.0);
        assert!(!shop.trusts("a", 1 + 3 * SETTLE.0));
    }

    #[test]
    fn a_slow_look_does_not_settle_what_it_may_have_read_too_early() {
        let mut shop = Shop::new(10);
        let page = shop.page("a", Stay::Memory);
        let slow = Looking {
            asked: Stamp(1),
            done: Stamp(1 + 5 * SETTLE.0),
        };
        shop.cache.keep(0, b"a", page, slow);
        // Asked for after the first was asked for, and before it was surely done.
        shop.keep("a", 1 + 3 * SETTLE.0);
        assert!(!shop.trusts("a", 1 + 9 * SETTLE.0));
    }

    #[test]
    fn an_overtaken_look_changes_nothing() {
        let mut shop = Shop::new(10);
        shop.keep_open("a", 5);
        shop.keep("a", 4);
        shop.cache.forget(0, b"a", at(4));
        shop.check();
        assert_eq!(shop.cache.open.entries.len(), 1);
        shop.keep("a", 6);
        assert_eq!(shop.cache.memory.entries.len(), 1);
    }
}
