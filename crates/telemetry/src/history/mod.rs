//! The last requests, without a database: a ring of short records in memory that the supervisor and the processes share.
//!
//! This module has the layout of that memory as numbers and bytes: what one request is in it (`HeldRequest`), and how a copy
//! of the whole is read back (`HeldHistory`). It maps nothing, opens nothing and reads no clock; `ipc` writes.
//!
//! ```text
//! ┌ header, 64 KB ┐┌ names of routes and pools, 1 MB ┐┌ folded paths, 256 KB ┐┌ sums, 4 MB ┐┌ blocks of records, 26 MB ┐
//! ```
//! A **block** belongs to one thread of one process. It begins with 32 bytes that say whose it is, and has room for 63
//! records of 32 bytes. A thread takes the next block by one atomic addition, and fills it without any other: threads
//! share nothing in between. The ring has 13,312 blocks, or 838,656 requests; the oldest block is taken again when all
//! are full. `LOST_UNTIL` then says until when requests have been lost: all that ended later are there.
//!
//! Each record has a check of 20 bits over its own bits and the number of its block: what a reader finds half written, or
//! left by an owner that has ended, is no record. Nothing is locked, so a process may be killed at any instruction: the
//! request that it was writing is lost, and nothing else.
//!
//! The **sums** are made by the supervisor, once a second, of the requests that have ended: of each second and pool for a
//! quarter of an hour, of each minute and folded path for a day; and there are marks of what happened to the server. A count
//! of changes, odd while they change, tells a reader whether its copy is whole.
//!
//! A **folded path** (`GET /orders/*`) has a number, found by its hash; all processes share the table. Once the table is
//! full, further paths have number 0, and are counted together. Paths of refused requests get no new number, so that a
//! client that invents paths cannot fill the table.

mod adding;
mod float;
mod held;
mod request;
mod sums;

pub use adding::{PoolGauges, SumAdder};
pub use held::{HeldHistory, HeldSpan, HistoryFault, NamedRequest, RouteNames};
pub use request::{HeldRequest, HeldRun, RECORD_WORDS};
pub use sums::{
    HEAT_BOUNDS, HEAT_CELLS, HeldMark, HeldMinute, HeldSecond, HeldSums, MARK_WORDS, MINUTE_ROWS,
    MINUTE_WORDS, MarkKind, PathSum, PoolSum, SECOND_POOLS, SECOND_WORDS,
};

/// What the memory begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"milehist");
/// To be raised with every change of the layout or of what a number means.
pub const VERSION: u64 = 2;

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
    /// Changes of the sums so far, times two; odd while they change. The supervisor alone writes this and what follows.
    pub const SUMS_TURN_AT: usize = 40;
    /// Seconds written so far.
    pub const SECONDS_LEN_AT: usize = 41;
    /// Minutes written so far, but for the one that lasts.
    pub const MINUTES_LEN_AT: usize = 42;
    /// Marks written so far.
    pub const MARKS_LEN_AT: usize = 43;
    /// Requests that ended until then, in microseconds since 1970, are in the sums.
    pub const ADDED_UNTIL_AT: usize = 44;
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
/// Where the sums of seconds are.
pub const SECONDS_AT: usize = PATHS_AT + PATHS * PATH_WORDS;
/// Seconds that are kept: a quarter of an hour.
pub const SECONDS: usize = 900;
/// Where the sums of minutes are.
pub const MINUTES_AT: usize = SECONDS_AT + SECONDS * SECOND_WORDS;
/// Minutes that are kept: a day.
pub const MINUTES: usize = 1_440;
/// Where the marks are.
pub const MARKS_AT: usize = MINUTES_AT + MINUTES * MINUTE_WORDS;
/// Marks that are kept.
pub const MARKS: usize = 256;
/// Words of everything but the requests.
pub const SUMS_WORDS: usize = MARKS_AT + MARKS * MARK_WORDS;
/// Where the blocks are: at the beginning of a page.
pub const BLOCKS_AT: usize = SUMS_WORDS.next_multiple_of(4096 / WORD_BYTES);
/// Blocks.
pub const BLOCKS: usize = 13_312;
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
