//! A process's way into the history: each of its threads takes a block at a time and fills it with requests.
//!
//! What a request costs: its path is compared with one that the thread has seen lately, and four words are stored. A path
//! that it has not seen is folded and hashed, and one entry of the table of paths is looked at. One request in 63 takes a new block: one atomic addition that threads share.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};

use os::Mapping;
use telemetry::history::{
    BLOCK_RECORDS, BLOCK_WORDS, BLOCKS, HISTORY_BYTES, HeldRequest, MAGIC, PATH_BYTES_MAX,
    PATH_WORDS, PATHS, PATHS_AT, RECORD_WORDS, VERSION, WORD_BYTES, block, block_at, header,
};
use telemetry::push_folded;

use super::{HistoryWord, wall_us, words};

/// Places of the table that a path may be in.
const WAYS: usize = 8;
/// Paths that a thread remembers.
const RECENT_LEN: usize = 16;
/// Longer ones are not remembered.
const RECENT_BYTES_MAX: usize = 256;
/// Microseconds of a minute.
const MINUTE_MICROS: u64 = 60_000_000;

/// The history, as a process that serves has it.
pub struct RequestHistory {
    mapping: Mapping,
    owner: u64,
    seed: u64,
}

/// One thread's way to write in it.
pub struct HistoryWriter {
    history: &'static RequestHistory,
    block: Cell<OwnBlock>,
    folded: RefCell<Vec<u8>>,
    recent: RefCell<[RecentPath; RECENT_LEN]>,
}

/// A path that the thread has seen lately, without its query.
#[derive(Default)]
struct RecentPath {
    /// The method and the path.
    text: Vec<u8>,
    method_bytes: usize,
    /// Its number; 0: there is no path here.
    number: u16,
    /// The number was used in this minute: in the next one the table is told again.
    minute: u64,
}

/// The block that a thread fills.
#[derive(Clone, Copy)]
struct OwnBlock {
    number: u64,
    /// Records in it.
    len: usize,
    origin_us: u64,
}

impl RequestHistory {
    /// The file that the supervisor has handed over, for a process whose routes and pools have the names of this number.
    ///
    /// # Errors
    /// It is no history of this version; else, the kernel's.
    pub fn open(file: BorrowedFd<'_>, names: u32) -> io::Result<RequestHistory> {
        let mapping = Mapping::shared(file, 0, HISTORY_BYTES, 0)?;
        let words = words(&mapping);
        if words[header::MAGIC_AT].get() != MAGIC || words[header::VERSION_AT].get() != VERSION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let seed = words[header::SEED_AT].get();
        Ok(RequestHistory {
            mapping,
            owner: u64::from(std::process::id()) | u64::from(names) << 32,
            seed,
        })
    }

    pub(super) fn words(&self) -> &[HistoryWord] {
        words(&self.mapping)
    }

    /// Takes the next block of the ring.
    fn take_block(&self) -> OwnBlock {
        let words = self.words();
        let number = words[header::TAKEN_AT].0.fetch_add(1, Ordering::Relaxed);
        let at = block_at(number);
        let taken = &words[at..at + BLOCK_WORDS];
        if taken[block::NUMBER_AT].get() != 0 {
            let ended = taken[block::ENDED_AT].get();
            let ended_us = taken[block::ORIGIN_AT].get().saturating_add(ended);
            let lost = &words[header::LOST_UNTIL_AT].0;
            lost.fetch_max(ended_us, Ordering::Relaxed);
        }
        taken[block::NUMBER_AT].set(0);
        // The checks of the old records would fail, but one in a million.
        for record in taken.chunks_exact(RECORD_WORDS) {
            record[RECORD_WORDS - 1].set(0);
        }
        let clock_us = telemetry::now().0 / 1_000;
        let origin_us = wall_us().saturating_sub(clock_us);
        taken[block::ORIGIN_AT].set(origin_us);
        taken[block::ENDED_AT].set(0);
        taken[block::OWNER_AT].set(self.owner);
        // A reader that sees the number sees the rest.
        fence(Ordering::Release);
        taken[block::NUMBER_AT].set(number + 1);
        OwnBlock {
            number,
            len: 0,
            origin_us,
        }
    }

    /// The number of a folded path. A new one gets a number if `is_new_kept` and if there is room; else 0.
    fn path(&self, text: &[u8], is_new_kept: bool, minute: u64) -> u16 {
        let text = &text[..text.len().min(PATH_BYTES_MAX)];
        let hash = hash(text, self.seed);
        let first = (hash >> 32) as usize % (PATHS / WAYS) * WAYS;
        let at = PATHS_AT + first * PATH_WORDS;
        let set = &self.words()[at..at + WAYS * PATH_WORDS];
        let used = minute << 32 | text.len() as u64;
        let ways = || set.chunks_exact(PATH_WORDS).enumerate();
        let known = ways().find(|(_, path)| path[0].get() == hash);
        let (way, path) = match known {
            Some(known) => known,
            None if !is_new_kept => return 0,
            None => {
                let taken = ways().find(|(_, path)| path[0].take(hash));
                let Some(taken) = taken else { return 0 };
                taken
            }
        };
        // Once a minute, and when the place is new: whoever took it may have been killed before it wrote this.
        if path[1].get() != used {
            write_path(path, text, used);
        }
        (first + way + 1) as u16
    }
}

impl fmt::Debug for RequestHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHistory").finish_non_exhaustive()
    }
}

impl HistoryWriter {
    /// Of one thread.
    pub fn new(history: &'static RequestHistory) -> HistoryWriter {
        HistoryWriter {
            history,
            // The first request takes a block: a thread without requests needs none.
            block: Cell::new(OwnBlock {
                number: 0,
                len: BLOCK_RECORDS,
                origin_us: 0,
            }),
            folded: RefCell::default(),
            recent: RefCell::default(),
        }
    }

    /// Keeps a request that has ended. Method and path are empty where they are not known.
    pub fn write(&self, mut request: HeldRequest, method: &[u8], path: &[u8]) {
        let words = self.history.words();
        let mut own = self.block.get();
        let is_overtaken = || {
            let taken = words[header::TAKEN_AT].get();
            taken.wrapping_sub(own.number) > BLOCKS as u64
        };
        if own.len >= BLOCK_RECORDS || is_overtaken() {
            own = self.history.take_block();
        }
        let ended_us = request.ended_us();
        request.path = self.path(&request, method, path, own.origin_us + ended_us);
        let at = block_at(own.number);
        let place = at + (own.len + 1) * RECORD_WORDS;
        // In any order: a record of which a part is missing fails its check.
        let packed = request.packed(own.number);
        for (word, value) in words[place..place + RECORD_WORDS].iter().zip(packed) {
            word.set(value);
        }
        let last = &words[at + block::ENDED_AT];
        last.set(last.get().max(ended_us));
        own.len += 1;
        self.block.set(own);
    }

    fn path(&self, request: &HeldRequest, method: &[u8], path: &[u8], wall_us: u64) -> u16 {
        if method.is_empty() {
            return 0;
        }
        let minute = wall_us / MINUTE_MICROS;
        let mut recent = self.recent.borrow_mut();
        let recent = &mut recent[RecentPath::index(path)];
        if recent.is(method, path, minute) {
            return recent.number;
        }
        let mut folded = self.folded.borrow_mut();
        folded.clear();
        push_folded(method, path, &mut folded);
        let is_new_kept = !matches!(request.status, 0 | 400..500);
        let number = self.history.path(&folded, is_new_kept, minute);
        recent.remember(method, path, number, minute);
        number
    }
}

impl RecentPath {
    /// Where a path is, if it is there: its end differs more than its begin.
    fn index(path: &[u8]) -> usize {
        let last = path
            .last_chunk()
            .map_or(0, |last| u64::from_le_bytes(*last));
        let mixed = (last ^ path.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 60) as usize % RECENT_LEN
    }

    fn is(&self, method: &[u8], path: &[u8], minute: u64) -> bool {
        let (own_method, own_path) = self.text.split_at(self.method_bytes);
        self.number > 0 && self.minute == minute && own_path == path && own_method == method
    }

    fn remember(&mut self, method: &[u8], path: &[u8], number: u16, minute: u64) {
        if method.len() + path.len() > RECENT_BYTES_MAX {
            return;
        }
        self.text.clear();
        self.text.extend_from_slice(method);
        self.text.extend_from_slice(path);
        self.method_bytes = method.len();
        (self.number, self.minute) = (number, minute);
    }
}

fn write_path(path: &[HistoryWord], text: &[u8], used: u64) {
    for (word, part) in path[2..].iter().zip(text.chunks(WORD_BYTES)) {
        let mut bytes = [0; WORD_BYTES];
        bytes[..part.len()].copy_from_slice(part);
        word.set(u64::from_le_bytes(bytes));
    }
    // Before its length a reader takes it for empty.
    fence(Ordering::Release);
    path[1].set(used);
}

/// Never 0.
fn hash(text: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut hash = mix(seed, text.len() as u64);
    let (whole, rest) = text.as_chunks::<WORD_BYTES>();
    for part in whole {
        hash = mix(hash, u64::from_le_bytes(*part));
    }
    let mut last = [0; WORD_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(hash, u64::from_le_bytes(last)), seed).max(1)
}
