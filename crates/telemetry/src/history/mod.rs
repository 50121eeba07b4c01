//! The last requests, without a database: a ring of short records in memory that the supervisor and the processes share.
//!
//! This module has the layout of that memory as numbers and bytes: what one request is in it (`HeldRequest`), and how a copy
//! of the whole is read back (`HeldHistory`). It maps nothing, opens nothing and reads no clock; `ipc` writes.
//!
//! ```text
//! ┌ header, 64 KB ┐┌ names of routes and pools, 1 MB ┐┌ folded paths, 256 KB ┐┌ blocks of records, 28 MB ┐
//! ```
//! A **block** belongs to one thread of one process. It begins with 32 bytes that say whose it is, and has room for 63
//! records of 32 bytes. A thread takes the next block by one atomic addition, and fills it without any other: threads
//! share nothing in between. The ring has 14,336 blocks, or 903,168 requests; the oldest block is taken again when all
//! are full. `LOST_UNTIL` then says until when requests have been lost: all that ended later are there.
//!
//! Each record has a check of 20 bits over its own bits and the number of its block: what a reader finds half written, or
//! left by an owner that has ended, is no record. Nothing is locked, so a process may be killed at any instruction: the
//! request that it was writing is lost, and nothing else.
//!
//! A **folded path** (`GET /orders/*`) has a number, found by its hash; all processes share the table. Once the table is
//! full, further paths have number 0, and are counted together. Paths of refused requests get no new number, so that a
//! client that invents paths cannot fill the table.

mod float;
mod held;
mod request;

pub use held::{HeldHistory, HeldSpan, HistoryFault, NamedRequest, RouteNames};
pub use request::{HeldRequest, HeldRun, RECORD_WORDS};

/// What the memory begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"milehist");
/// To be raised with every change of the layout or of what a number means.
pub const VERSION: u64 = 1;

/// Bytes of the whole memory.
pub const HISTORY_BYTES: usize = BLOCKS_AT * WORD_BYTES + BLOCKS * BLOCK_WORDS * WORD_BYTES;
const _: () = assert!(HISTORY_BYTES <= 32 << 20);

/// Bytes of a word: all positions below are in words from the start.
pub const WORD_BYTES: usize = size_of::<u64>();
/// Words of the header.
pub mod header {
    /// [`MAGIC`](super::MAGIC), written last.
    pub const MAGIC_AT: usize = 0;
    /// [`VERSION`](super::VERSION).
    pub const VERSION_AT: usize = 1;
    /// When the memory was made, in microseconds since 1970.
    pub const MADE_AT: usize = 2;
    /// A number that no client knows: paths are hashed with it.
    pub const SEED_AT: usize = 3;
    /// Changes of the names so far, times two; odd while they change.
    pub const NAMES_TURN_AT: usize = 4;
    /// Bytes of the names.
    pub const NAMES_LEN_AT: usize = 5;
    /// Blocks taken so far. On cache lines of its own: all threads write it.
    pub const TAKEN_AT: usize = 16;
    /// Requests that ended until then, in microseconds since 1970, may be missing.
    pub const LOST_UNTIL_AT: usize = 32;
}
/// Where the names of routes and pools are: a list of [`RouteNames`] as JSON.
pub const NAMES_AT: usize = (64 << 10) / WORD_BYTES;
/// Most bytes of them.
pub const NAMES_BYTES: usize = 1 << 20;
/// Where folded paths are.
pub const PATHS_AT: usize = NAMES_AT + NAMES_BYTES / WORD_BYTES;
/// Folded paths.
pub const PATHS: usize = 2_048;
/// Words of one: its hash (0: free), its length and the minute of its last use, and its text.
pub const PATH_WORDS: usize = 16;
/// Most bytes of its text.
pub const PATH_BYTES_MAX: usize = (PATH_WORDS - 2) * WORD_BYTES;
/// Where the blocks are.
pub const BLOCKS_AT: usize = PATHS_AT + PATHS * PATH_WORDS;
/// Blocks.
pub const BLOCKS: usize = 14_336;
/// Words of one.
pub const BLOCK_WORDS: usize = 256;
/// Records of one.
pub const BLOCK_RECORDS: usize = BLOCK_WORDS / RECORD_WORDS - 1;
/// Requests that there is room for.
pub const REQUESTS: usize = BLOCKS * BLOCK_RECORDS;
/// Words of a block's beginning.
pub mod block {
    /// One more than its number, counted over all turns of the ring; 0: it is being taken.
    pub const NUMBER_AT: usize = 0;
    /// When the clock of its process read zero, in microseconds since 1970.
    pub const ORIGIN_AT: usize = 1;
    /// When its last request ended, in microseconds of that clock.
    pub const ENDED_AT: usize = 2;
    /// Its process, and in the upper half the number of the names.
    pub const OWNER_AT: usize = 3;
}

/// Where block `number` begins.
pub const fn block_at(number: u64) -> usize {
    BLOCKS_AT + (number % BLOCKS as u64) as usize * BLOCK_WORDS
}

/// Older requests are not shown: a folded path that nobody asks for is forgotten after that time.
pub const HELD_SECS_MAX: u64 = 24 * 3_600;
