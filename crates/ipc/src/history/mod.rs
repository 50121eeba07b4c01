//! The history in shared memory: written by the processes as their requests end, kept by the supervisor over reloads and
//! upgrades, and read by whoever gets the file from it.
//!
//! `telemetry::history` has the layout and reads copies. The file is one of its own, beside that of all counters, so that it
//! can be handed out for reading, and so that another version may begin a new one without losing a counter. Pages take
//! memory once they are written: a server without traffic has some kilobytes, a busy one 32 MB.

mod copy;
mod ended;
mod file;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use os::Mapping;
use telemetry::history::{HISTORY_BYTES, WORD_BYTES};

pub use copy::{CopyFault, requests, sums};
pub use ended::{EndedRequest, EndedRequests};
pub use file::HistoryFile;
pub use writer::{HistoryWriter, RequestHistory};

/// One word of the memory.
#[repr(transparent)]
pub struct HistoryWord(AtomicU64);

impl HistoryWord {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Makes a word that is 0 a hash; whether it is this hash now, by this thread or another one.
    fn take(&self, hash: u64) -> bool {
        let order = Ordering::Relaxed;
        match self.0.compare_exchange(0, hash, order, order) {
            Ok(_) => true,
            Err(known) => known == hash,
        }
    }
}

fn words(mapping: &Mapping) -> &[HistoryWord] {
    let words = mapping.place(0, HISTORY_BYTES / WORD_BYTES);
    words.expect("the mapping has the length of the history")
}

/// Microseconds since 1970.
pub fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests;
