//! Requests that have ended since somebody looked last: the supervisor reads them from the blocks that threads fill.
//!
//! A block is looked at until it is full, or taken by another thread. What is half written fails its check, and is there
//! the next time.

use telemetry::history::{
    BLOCK_RECORDS, BLOCKS, HeldRequest, RECORD_WORDS, block, block_at, header,
};

use super::{HistoryFile, HistoryWord, words};

/// Looks for requests that have ended.
#[derive(Debug)]
pub struct EndedRequests {
    /// Number of the block that nobody had taken the last time.
    next: u64,
    /// Blocks that are not full.
    open: Vec<OpenBlock>,
    /// Those that ended before, in microseconds since 1970, have been looked at by the program before this one.
    after_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    number: u64,
    /// Records that were read.
    len: usize,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct EndedRequest {
    /// Number of the list of names that its route and its pool have.
    pub names: u32,
    /// The request.
    pub request: HeldRequest,
}

impl EndedRequests {
    /// Those that end from now on, and those that the program before this one has left.
    pub fn new(file: &HistoryFile) -> EndedRequests {
        let words = words(&file.mapping);
        let taken = words[header::TAKEN_AT].get();
        EndedRequests {
            next: taken.saturating_sub(BLOCKS as u64),
            open: Vec::new(),
            after_us: words[header::ADDED_UNTIL_AT].get(),
        }
    }

    /// Blocks that are not full.
    #[cfg(test)]
    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }

    /// Hands out those that have ended since it was called last.
    pub fn take(&mut self, file: &HistoryFile, each: &mut dyn FnMut(&EndedRequest)) {
        let words = words(&file.mapping);
        let taken = words[header::TAKEN_AT].get();
        let oldest = taken.saturating_sub(BLOCKS as u64);
        let new = self.next.max(oldest)..taken;
        self.open
            .extend(new.map(|number| OpenBlock { number, len: 0 }));
        self.next = taken;
        let after_us = std::mem::take(&mut self.after_us);
        self.open.retain_mut(|open| {
            open.number >= oldest && open.read(words, after_us, each) && open.len < BLOCK_RECORDS
        });
    }
}

impl OpenBlock {
    /// Hands out what is new in it. Whether it is its owner's still.
    fn read(
        &mut self,
        words: &[HistoryWord],
        after_us: u64,
        each: &mut dyn FnMut(&EndedRequest),
    ) -> bool {
        let at = block_at(self.number);
        let found = words[at + block::NUMBER_AT].get();
        if found != self.number + 1 {
            // Less: whoever has taken it has not begun it yet.
            return found <= self.number;
        }
        let names = (words[at + block::OWNER_AT].get() >> 32) as u32;
        let origin_us = words[at + block::ORIGIN_AT].get();
        while self.len < BLOCK_RECORDS {
            let record = at + (self.len + 1) * RECORD_WORDS;
            let record = std::array::from_fn(|offset| words[record + offset].get());
            let Some(request) = HeldRequest::unpacked(record, self.number) else {
                break;
            };
            self.len += 1;
            if origin_us.saturating_add(request.ended_us()) >= after_us {
                each(&EndedRequest { names, request });
            }
        }
        true
    }
}
