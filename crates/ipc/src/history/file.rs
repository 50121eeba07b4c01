//! The file of the history, as the supervisor has it: made once, adopted after an upgrade, and told the names of routes
//! and pools, which nothing else writes.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering, fence};

use os::Mapping;
use rustix::fs::{Mode, OFlags, SealFlags};
use telemetry::history::{
    HELD_SECS_MAX, HISTORY_BYTES, HeldMark, HeldMinute, HeldSecond, MAGIC, MARKS, MARKS_AT,
    MINUTE_WORDS, MINUTES, MINUTES_AT, NAMES_AT, NAMES_BYTES, PATH_WORDS, PATHS, PATHS_AT,
    RouteNames, SECONDS, SECONDS_AT, VERSION, WORD_BYTES, header,
};

use super::{HistoryWord, wall_us, words};
use crate::stats::{self, Shape};

/// Its name among the descriptors of a process.
const NAME: &str = "milepost-history";
/// Lists of names that are kept: as many configurations with other routes as the last hours may have seen.
const LISTS_MAX: usize = 64;

/// The file.
pub struct HistoryFile {
    file: File,
    pub(super) mapping: Mapping,
    /// The last ones, the newest last.
    names: Vec<RouteNames>,
}

impl HistoryFile {
    /// An empty history.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<HistoryFile> {
        let file = stats::memory(NAME)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        let file = File::from(file);
        file.set_len(HISTORY_BYTES as u64)?;
        let mapping = Mapping::shared(file.as_fd(), 0, HISTORY_BYTES, 0)?;
        let words = words(&mapping);
        words[header::VERSION_AT].set(VERSION);
        words[header::MADE_AT].set(wall_us());
        words[header::SEED_AT].set(RandomState::new().build_hasher().finish());
        words[header::MAGIC_AT].set(MAGIC);
        Ok(HistoryFile {
            file,
            mapping,
            names: Vec::new(),
        })
    }

    /// The history of the program before this one.
    ///
    /// # Errors
    /// `InvalidData`: it is none, or another version has made it.
    pub fn adopt(file: OwnedFd) -> io::Result<HistoryFile> {
        let fault = |cause: &str| io::Error::new(io::ErrorKind::InvalidData, cause);
        let file = File::from(file);
        let mapping = Mapping::shared(file.as_fd(), 0, HISTORY_BYTES, 0)
            .map_err(|_| fault("another version has made it"))?;
        let words = words(&mapping);
        if words[header::MAGIC_AT].get() != MAGIC {
            return Err(fault("it is no history"));
        }
        let is_ours = words[header::VERSION_AT].get() == VERSION
            && file.metadata()?.len() == HISTORY_BYTES as u64;
        if !is_ours {
            return Err(fault("another version has made it"));
        }
        let len = (words[header::NAMES_LEN_AT].get() as usize).min(NAMES_BYTES);
        let mut text = vec![0; len];
        file.read_exact_at(&mut text, (NAMES_AT * WORD_BYTES) as u64)?;
        // A process that was upgraded while it wrote them has lost them, and nothing else.
        let names = serde_json::from_slice(&text).unwrap_or_default();
        // The minute that lasts is another one of the program that goes on.
        let minutes_len = &words[header::MINUTES_LEN_AT];
        let minute = MINUTES_AT + (minutes_len.get() % MINUTES as u64) as usize * MINUTE_WORDS;
        if words[minute + 1].get() != 0 {
            minutes_len.set(minutes_len.get() + 1);
        }
        Ok(HistoryFile {
            file,
            mapping,
            names,
        })
    }

    /// For the processes that are to write in it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The same file for reading only.
    ///
    /// # Errors
    /// `/proc` is not there, or the kernel's.
    pub fn read_only(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// The number of the list of these names, for the requests of a process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn number_of(&mut self, shape: &Shape) -> io::Result<u32> {
        let is_it = |list: &&RouteNames| list.routes == shape.routes && list.pools == shape.pools;
        if let Some(known) = self.names.iter().find(is_it) {
            return Ok(known.number);
        }
        let number = self.names.last().map_or(1, |last| last.number + 1);
        self.names.push(RouteNames {
            number,
            routes: shape.routes.clone(),
            pools: shape.pools.clone(),
        });
        let mut text = serde_json::to_vec(&self.names)?;
        // The oldest lists give way; requests that they belong to are then shown without names.
        while self.names.len() > LISTS_MAX || text.len() > NAMES_BYTES {
            self.names.remove(0);
            text = serde_json::to_vec(&self.names)?;
        }
        let words = words(&self.mapping);
        let turn = &words[header::NAMES_TURN_AT];
        turn.set(turn.get() | 1);
        fence(Ordering::Release);
        self.file
            .write_all_at(&text, (NAMES_AT * WORD_BYTES) as u64)?;
        words[header::NAMES_LEN_AT].set(text.len() as u64);
        fence(Ordering::Release);
        turn.set(turn.get() + 1);
        Ok(number)
    }

    /// The list of names that was made last.
    pub fn newest(&self) -> Option<&RouteNames> {
        self.names.last()
    }

    /// The names of the pools of a list; none: it is not known any more.
    pub fn pools(&self, number: u32) -> &[String] {
        let list = self.names.iter().find(|list| list.number == number);
        list.map_or(&[], |list| &list.pools)
    }

    /// Writes what has happened in a second: the second itself, the minute that lasts as far as it has come, and marks.
    /// The minute is written again each time, until `is_over` says that the next one begins.
    pub fn write_sums(
        &self,
        second: &HeldSecond,
        minute: &HeldMinute,
        is_over: bool,
        marks: &[HeldMark],
    ) {
        let words = words(&self.mapping);
        let turn = &words[header::SUMS_TURN_AT];
        turn.set(turn.get() | 1);
        fence(Ordering::Release);
        push(
            words,
            header::SECONDS_LEN_AT,
            SECONDS_AT,
            SECONDS,
            &second.words(),
        );
        let minutes_len = words[header::MINUTES_LEN_AT].get();
        put(words, minutes_len, MINUTES_AT, MINUTES, &minute.words());
        words[header::MINUTES_LEN_AT].set(minutes_len + u64::from(is_over));
        for mark in marks {
            push(words, header::MARKS_LEN_AT, MARKS_AT, MARKS, &mark.words());
        }
        words[header::ADDED_UNTIL_AT].set(wall_us());
        fence(Ordering::Release);
        turn.set(turn.get() + 1);
    }

    /// Seconds written so far: the number of the next one.
    pub fn seconds_len(&self) -> u64 {
        words(&self.mapping)[header::SECONDS_LEN_AT].get()
    }

    /// Forgets the folded paths that nobody has asked for in the time of the history.
    pub fn forget_paths(&self, now_us: u64) {
        let oldest_minute = (now_us / 1_000_000).saturating_sub(HELD_SECS_MAX) / 60;
        let paths = PATHS_AT..PATHS_AT + PATHS * PATH_WORDS;
        for path in words(&self.mapping)[paths].chunks_exact(PATH_WORDS) {
            let is_old = path[1].get() >> 32 < oldest_minute;
            if path[0].get() != 0 && is_old {
                path[1].set(0);
                path[0].set(0);
            }
        }
    }
}

/// Writes the next place of a ring.
fn push(words: &[HistoryWord], len_at: usize, at: usize, places: usize, values: &[u64]) {
    let len = words[len_at].get();
    put(words, len, at, places, values);
    words[len_at].set(len + 1);
}

fn put(words: &[HistoryWord], number: u64, at: usize, places: usize, values: &[u64]) {
    let place = at + (number % places as u64) as usize * values.len();
    for (word, value) in words[place..].iter().zip(values) {
        word.set(*value);
    }
}
