//! The cache by itself: bounds, eviction, trust.

use std::fs::{self, File};
use std::path::Path;

use config::typed::FileCache;

use super::*;
use crate::cache_segment::ENTRY_OVERHEAD_BYTES;
use crate::cached_file::{Label, Retention};
use crate::lookup::UnreadFiles;
use crate::media_type;
use crate::metadata::{Devices, FileMetadata};
use crate::root_dir::RootDir;
use config::typed::Coding;

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
                &FileCache {
                    bytes_max: len * (ENTRY_BYTES + ENTRY_OVERHEAD_BYTES + 400),
                    ..FileCache::default()
                },
            ),
        }
    }

    fn page(&self, name: &str, retention: Retention) -> Arc<Variants> {
        load(&self.dir.path().join(name), retention)
    }

    /// A file with a compressed sibling, which must not be the older one.
    fn dress(&self, name: &str, bytes: usize) {
        let path = self.dir.path().join(name);
        fs::write(&path, [b'x'; ENTRY_BYTES]).unwrap();
        fs::write(path.with_extension("gz"), vec![b'z'; bytes]).unwrap();
    }

    fn keep(&mut self, name: &str, now: u64) {
        let page = self.page(name, Retention::Memory);
        self.cache.keep(0, name.as_bytes(), page, at(now));
    }

    fn keep_open(&mut self, name: &str, now: u64) {
        let page = self.page(name, Retention::Open);
        self.cache.keep(0, name.as_bytes(), page, at(now));
    }

    /// Whether equal metadata would do at `now`.
    fn trusts(&mut self, name: &str, now: u64) -> bool {
        self.cache
            .unconfirmed(0, name.as_bytes(), Stamp(now))
            .is_some()
    }

    fn has(&mut self, name: &str) -> bool {
        self.cache.fresh(0, name.as_bytes(), Stamp(1)).is_some()
    }

    fn check(&self) {
        assert!(self.cache.memory.bytes + self.cache.open.bytes <= self.cache.bytes_max);
        for segment in [&self.cache.memory, &self.cache.open] {
            assert!(segment.len <= segment.len_max);
            assert_eq!(
                segment.len,
                segment.entries.iter().map(|entry| entry.len).sum::<usize>()
            );
            assert_eq!(
                segment.bytes,
                segment
                    .entries
                    .iter()
                    .map(|entry| entry.bytes)
                    .sum::<usize>()
            );
        }
        let positions: usize = self.cache.positions.iter().map(HashMap::len).sum();
        assert_eq!(
            positions,
            self.cache.memory.entries.len() + self.cache.open.entries.len()
        );
        for (name, segment) in [
            (SegmentKind::Memory, &self.cache.memory),
            (SegmentKind::Open, &self.cache.open),
        ] {
            for (slot, entry) in segment.entries.iter().enumerate() {
                let place = self.cache.positions[entry.mount][&entry.key];
                assert_eq!((place.segment, place.slot as usize), (name, slot));
            }
        }
    }
}

/// A lookup that took no time.
fn at(now: u64) -> LookupTimes {
    let now = Stamp(now);
    LookupTimes {
        asked: now,
        done: now,
    }
}

fn load(path: &Path, retention: Retention) -> Arc<Variants> {
    load_by(path, |_| retention)
}

fn load_by(path: &Path, retention: impl Fn(u64) -> Retention) -> Arc<Variants> {
    if !path.exists() {
        fs::write(path, [b'x'; ENTRY_BYTES]).unwrap();
    }
    let file = File::open(path).unwrap();
    let metadata = FileMetadata::of(&file.metadata().unwrap());
    let label = Label {
        kind: media_type::of_path(b"a"),
        coding: None,
        cache_control: None,
        vary: None,
    };
    let folder = RootDir::open(path.parent().unwrap()).unwrap();
    let name = path.file_name().unwrap().as_encoded_bytes();
    let unread = UnreadFiles::find(&folder, name, (file, metadata), &[Coding::Gzip]);
    Arc::new(unread.load(&label, &Devices::default(), retention).unwrap())
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
    let page = shop.page("a", Retention::Memory);
    let slow = LookupTimes {
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

#[test]
fn siblings_count_and_share_the_bound_of_memory() {
    let mut shop = Shop::new(4);
    for name in ["a", "b", "c"] {
        shop.dress(name, 800);
        shop.keep(name, 1);
        shop.check();
    }
    // Two of them with their siblings are as much as four without.
    assert_eq!(shop.cache.memory.entries.len(), 2);
    assert!(shop.cache.memory.bytes > 2 * 1800);
}

#[test]
fn open_files_with_content_beside_push_small_ones_out() {
    let mut shop = Shop::new(10);
    for n in 0..10 {
        shop.keep(&format!("{n}"), 1);
    }
    let before = shop.cache.memory.entries.len();
    shop.dress("large", 5000);
    let stay = |bytes| {
        if bytes == 5000 {
            Retention::Memory
        } else {
            Retention::Open
        }
    };
    let variants = load_by(&shop.dir.path().join("large"), stay);
    assert_eq!((variants.content_bytes(), variants.open_len()), (5000, 1));
    shop.cache.keep(0, b"large", variants, at(1));
    shop.check();
    assert_eq!(shop.cache.open.entries.len(), 1);
    assert!(shop.cache.memory.entries.len() < before);
}

#[test]
fn each_descriptor_of_a_family_counts() {
    let mut shop = Shop::new(10);
    for n in 0..OPEN_LEN_MAX {
        let name = format!("{n}");
        shop.dress(&name, 10);
        shop.keep_open(&name, 1);
        shop.check();
    }
    assert_eq!(shop.cache.open.entries.len(), OPEN_LEN_MAX / 2);
}
