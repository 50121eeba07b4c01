//! Sums of requests that have ended: of each second and pool, of each minute and folded path, and what happened to the
//! server meanwhile. This file has their words, and reads them back from a copy.
//!
//! ```text
//! second: end, 64 │ names, 32 │ span in ms, 32 │ heat, 20 × 16 │ pools, 16 × 5 words
//! minute: begin, 64 │ rows, 64 × 4 words; the first is of all requests
//! mark:   when, 56 │ kind, 8
//! ```
//! Durations are within 0.05 % of what the adder said, in microseconds.

use std::collections::HashMap;

use serde::Serialize;

use super::float::{packed, unpacked};
use super::held::{RouteNames, names, path_at, word};
use super::{
    BLOCKS_AT, HELD_SECS_MAX, HistoryFault, MAGIC, MARKS, MARKS_AT, MINUTES, MINUTES_AT, SECONDS,
    SECONDS_AT, SUMS_WORDS, VERSION, WORD_BYTES, header,
};
use crate::{Nanos, PerPhase};

/// Pools that a second has room for; those beyond are left out.
pub const SECOND_POOLS: usize = 16;
const POOL_WORDS: usize = 5;
const HEAT_AT: usize = 2;
const POOLS_AT: usize = HEAT_AT + HEAT_CELLS.div_ceil(4);
/// Words of a second.
pub const SECOND_WORDS: usize = POOLS_AT + SECOND_POOLS * POOL_WORDS;
/// Rows of a minute: of all requests, of the paths that had most, and of all other paths.
pub const MINUTE_ROWS: usize = 64;
const ROW_WORDS: usize = 4;
/// Words of a minute.
pub const MINUTE_WORDS: usize = 1 + MINUTE_ROWS * ROW_WORDS;
/// Words of a mark.
pub const MARK_WORDS: usize = 1;

/// Rows of a heat map but one, which is above the last.
pub const HEAT_BOUNDS: [Nanos; HEAT_CELLS - 1] = [
    Nanos::from_us(100),
    Nanos::from_us(200),
    Nanos::from_us(500),
    Nanos::from_ms(1),
    Nanos::from_ms(2),
    Nanos::from_ms(5),
    Nanos::from_ms(10),
    Nanos::from_ms(20),
    Nanos::from_ms(50),
    Nanos::from_ms(100),
    Nanos::from_ms(200),
    Nanos::from_ms(500),
    Nanos::from_secs(1),
    Nanos::from_secs(2),
    Nanos::from_secs(5),
    Nanos::from_secs(10),
    Nanos::from_secs(30),
];
/// Rows of a heat map.
pub const HEAT_CELLS: usize = 18;

/// One second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldSecond {
    /// Its end, in seconds since 1970.
    pub at_s: u64,
    /// How long it was: longer than a second where the supervisor was late.
    pub span_ms: u32,
    /// Requests by how long they took in all, between the bounds of [`HEAT_BOUNDS`]; long-lived ones are left out.
    pub heat: [u64; HEAT_CELLS],
    /// Number of the list of names that says how its pools are called.
    pub names: u32,
    /// By index in that list.
    pub pools: Vec<PoolSum>,
}

/// A pool in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSum {
    /// Requests that have ended.
    pub ended: u32,
    /// Of them those with 5xx.
    pub failed: u32,
    /// Requests that the pool has refused.
    pub refused: u32,
    /// Requests that ran at its end.
    pub running: u32,
    /// Requests that waited at its end.
    pub waiting: u32,
    /// Threads that there were at its end.
    pub threads: u32,
    /// Time of the whole requests that half of them, and 99 of 100, did not exceed.
    pub total: [Nanos; 2],
    /// The same in the queue.
    pub queue: [Nanos; 2],
    /// The same of runs.
    pub run: [Nanos; 2],
    /// Of receiving, 99 of 100.
    pub receive: Nanos,
    /// Of sending, 99 of 100.
    pub send: Nanos,
}

/// One minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldMinute {
    /// Its begin, in seconds since 1970.
    pub at_s: u64,
    /// All requests, then the paths with most requests, and all others together. Without a request there are none.
    pub rows: Vec<PathSum>,
}

/// A path in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSum {
    /// Number of the folded path; 0: all others. In the first row it says nothing.
    pub path: u16,
    /// Requests that have ended.
    pub ended: u32,
    /// Of them those with 5xx.
    pub failed: u32,
    /// Time that half of the requests, 95, and 99 of 100 did not exceed. Long-lived ones are left out.
    pub total: [Nanos; 3],
    /// The longest.
    pub longest: Nanos,
    /// Means of the phases; `total` is their sum.
    pub means: PerPhase<Nanos>,
}

/// Something that happened to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldMark {
    /// In seconds since 1970.
    pub at_s: u64,
    /// What it was.
    pub kind: MarkKind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum MarkKind {
    /// The server was started.
    Start = 1,
    /// It has another configuration, or the same again.
    Reload,
    /// It goes on as another program.
    Upgrade,
    /// A process ended without being told.
    Crash,
    /// A process was replaced because of its age or size.
    Recycling,
}

impl MarkKind {
    const ALL: [MarkKind; 5] = [
        MarkKind::Start,
        MarkKind::Reload,
        MarkKind::Upgrade,
        MarkKind::Crash,
        MarkKind::Recycling,
    ];
}

/// Microseconds, in 16 bits.
fn short(span: Nanos) -> u64 {
    packed::<10>(span.0.div_ceil(1_000))
}

fn long(word: u64, at: u32) -> Nanos {
    Nanos(unpacked::<10>(word >> at & 0xffff).saturating_mul(1_000))
}

fn two(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Four short ones.
fn four(spans: [Nanos; 4]) -> u64 {
    let words = spans.iter().rev();
    words.fold(0, |word, span| word << 16 | short(*span))
}

fn of_four(word: u64) -> [Nanos; 4] {
    [0, 16, 32, 48].map(|at| long(word, at))
}

impl HeldSecond {
    /// Its words.
    pub fn words(&self) -> [u64; SECOND_WORDS] {
        assert!(
            self.pools.len() <= SECOND_POOLS,
            "a second has room for its pools"
        );
        let mut words = [0; SECOND_WORDS];
        words[0] = self.at_s;
        words[1] = two(self.names, self.span_ms);
        for (index, count) in self.heat.iter().enumerate() {
            // 0.05 % of a number above 2,047.
            words[HEAT_AT + index / 4] |= packed::<10>(*count) << (index % 4 * 16);
        }
        let places = words[POOLS_AT..].chunks_exact_mut(POOL_WORDS);
        for (place, pool) in places.zip(&self.pools) {
            place.copy_from_slice(&pool.words());
        }
        words
    }

    fn of(words: &[u64; SECOND_WORDS], pools_len: usize) -> HeldSecond {
        let places = words[POOLS_AT..].chunks_exact(POOL_WORDS);
        let heat = |index: usize| words[HEAT_AT + index / 4] >> (index % 4 * 16) & 0xffff;
        HeldSecond {
            at_s: words[0],
            span_ms: (words[1] >> 32) as u32,
            names: words[1] as u32,
            heat: std::array::from_fn(|index| unpacked::<10>(heat(index))),
            pools: places.take(pools_len).map(PoolSum::of).collect(),
        }
    }
}

impl PoolSum {
    fn words(&self) -> [u64; POOL_WORDS] {
        let small = |number: u32| u64::from(number.min(u32::from(u16::MAX)));
        [
            two(self.ended, self.failed),
            two(self.refused, self.waiting),
            small(self.running)
                | small(self.threads) << 16
                | short(self.receive) << 32
                | short(self.send) << 48,
            four([self.total[0], self.total[1], self.queue[0], self.queue[1]]),
            four([self.run[0], self.run[1], Nanos::ZERO, Nanos::ZERO]),
        ]
    }

    fn of(words: &[u64]) -> PoolSum {
        let [total, total_99, queue, queue_99] = of_four(words[3]);
        let [run, run_99, ..] = of_four(words[4]);
        PoolSum {
            ended: words[0] as u32,
            failed: (words[0] >> 32) as u32,
            refused: words[1] as u32,
            waiting: (words[1] >> 32) as u32,
            running: (words[2] & 0xffff) as u32,
            threads: (words[2] >> 16 & 0xffff) as u32,
            receive: long(words[2], 32),
            send: long(words[2], 48),
            total: [total, total_99],
            queue: [queue, queue_99],
            run: [run, run_99],
        }
    }
}

impl HeldMinute {
    /// Its words.
    pub fn words(&self) -> [u64; MINUTE_WORDS] {
        assert!(
            self.rows.len() <= MINUTE_ROWS,
            "a minute has room for its rows"
        );
        let mut words = [0; MINUTE_WORDS];
        words[0] = self.at_s;
        let places = words[1..].chunks_exact_mut(ROW_WORDS);
        for (place, row) in places.zip(&self.rows) {
            place.copy_from_slice(&row.words());
        }
        words
    }

    fn of(words: &[u64; MINUTE_WORDS]) -> HeldMinute {
        let places = words[1..].chunks_exact(ROW_WORDS);
        let rows = places.map(PathSum::of).take_while(|row| row.ended > 0);
        HeldMinute {
            at_s: words[0],
            rows: rows.collect(),
        }
    }
}

impl PathSum {
    fn words(&self) -> [u64; ROW_WORDS] {
        let [half, most, nearly_all] = self.total;
        let means = &self.means;
        [
            u64::from(self.path) | u64::from(self.ended) << 32,
            u64::from(self.failed),
            four([half, most, nearly_all, self.longest]),
            four([means.receive, means.queue, means.run, means.send]),
        ]
    }

    fn of(words: &[u64]) -> PathSum {
        let [half, most, nearly_all, longest] = of_four(words[2]);
        let [receive, queue, run, send] = of_four(words[3]);
        PathSum {
            path: words[0] as u16,
            ended: (words[0] >> 32) as u32,
            failed: words[1] as u32,
            total: [half, most, nearly_all],
            longest,
            means: PerPhase {
                receive,
                queue,
                run,
                send,
                total: Nanos(receive.0 + queue.0 + run.0 + send.0),
                ..PerPhase::default()
            },
        }
    }
}

impl HeldMark {
    /// Its word.
    pub fn words(self) -> [u64; MARK_WORDS] {
        [self.at_s << 8 | self.kind as u64]
    }

    fn of(word: u64) -> Option<HeldMark> {
        let kinds = MarkKind::ALL.into_iter();
        Some(HeldMark {
            at_s: word >> 8,
            kind: { kinds }.find(|kind| *kind as u64 == word & 0xff)?,
        })
    }
}

/// A copy of the sums.
#[derive(Debug)]
pub struct HeldSums {
    bytes: Vec<u8>,
    /// By number.
    names: HashMap<u32, RouteNames>,
    now_s: u64,
}

impl HeldSums {
    /// Bytes of a copy.
    pub const BYTES: usize = SUMS_WORDS * WORD_BYTES;

    /// Reads a copy of everything before the requests, made at `now_s`, in seconds since 1970.
    ///
    /// # Errors
    /// It is no history, or one of another version, or was copied while it changed.
    pub fn read(bytes: Vec<u8>, now_s: u64) -> Result<HeldSums, HistoryFault> {
        if bytes.len() < HeldSums::BYTES || word(&bytes, header::MAGIC_AT) != MAGIC {
            return Err(HistoryFault::Unknown);
        }
        if word(&bytes, header::VERSION_AT) != VERSION {
            return Err(HistoryFault::OtherVersion);
        }
        let turns = [header::SUMS_TURN_AT, header::NAMES_TURN_AT];
        if turns.iter().any(|turn| word(&bytes, *turn) % 2 == 1) {
            return Err(HistoryFault::Changing);
        }
        Ok(HeldSums {
            names: names(&bytes).ok_or(HistoryFault::Changing)?,
            bytes,
            now_s,
        })
    }

    /// When the server was started first, in seconds since 1970.
    pub fn since_s(&self) -> u64 {
        word(&self.bytes, header::MADE_AT) / 1_000_000
    }

    /// Seconds written so far, those that are held no more included: the number of the next one.
    pub fn seconds_len(&self) -> u64 {
        word(&self.bytes, header::SECONDS_LEN_AT)
    }

    /// The seconds since `from_s`, oldest first.
    pub fn seconds(&self, from_s: u64) -> Vec<HeldSecond> {
        let words = self.newest(self.seconds_len(), SECONDS_AT, SECONDS);
        let seconds = words.map(|words| HeldSecond::of(&words, SECOND_POOLS));
        self.recent(seconds, from_s, |second| second.at_s)
    }

    /// The minutes that end after `from_s`, oldest first. The last may last still, and one in which the server was
    /// upgraded is there twice.
    pub fn minutes(&self, from_s: u64) -> Vec<HeldMinute> {
        // The one that lasts is behind those that are whole.
        let whole_len = word(&self.bytes, header::MINUTES_LEN_AT);
        let words = self.newest(whole_len + 1, MINUTES_AT, MINUTES);
        let minutes = words.map(|words| HeldMinute::of(&words));
        self.recent(minutes, from_s, |minute| minute.at_s + 59)
    }

    /// The marks since `from_s`, oldest first.
    pub fn marks(&self, from_s: u64) -> Vec<HeldMark> {
        let words = self.newest(word(&self.bytes, header::MARKS_LEN_AT), MARKS_AT, MARKS);
        let marks = words.filter_map(|[word]: [u64; MARK_WORDS]| HeldMark::of(word));
        self.recent(marks, from_s, |mark| mark.at_s)
    }

    /// The names of the pools of a list; none: it is not known any more.
    pub fn pools(&self, number: u32) -> &[String] {
        self.names.get(&number).map_or(&[], |list| &list.pools)
    }

    /// The folded path of a number: `GET /orders/*`; empty: it is not known any more.
    pub fn path(&self, number: u16) -> &[u8] {
        path_at(&self.bytes, number)
    }

    /// The words of the places of a ring in which `len` were written, oldest first.
    fn newest<const WORDS: usize>(
        &self,
        len: u64,
        at: usize,
        places: usize,
    ) -> impl Iterator<Item = [u64; WORDS]> + use<'_, WORDS> {
        let places = places as u64;
        (len.saturating_sub(places)..len).map(move |number| {
            let place = at + (number % places) as usize * WORDS;
            std::array::from_fn(|offset| word(&self.bytes, place + offset))
        })
    }

    /// Those of the time that is held: not those that a clock left that was set back, nor memory that is empty.
    fn recent<T>(
        &self,
        all: impl Iterator<Item = T>,
        from_s: u64,
        at_s: impl Fn(&T) -> u64,
    ) -> Vec<T> {
        let oldest_s = self.now_s.saturating_sub(HELD_SECS_MAX).max(from_s).max(60);
        let is_recent = |one: &T| (oldest_s..self.now_s + 60).contains(&at_s(one));
        all.filter(is_recent).collect()
    }
}

const _: () = assert!(SUMS_WORDS <= BLOCKS_AT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_comes_back_as_it_was() {
        let pool = PoolSum {
            ended: 70_000,
            failed: 3,
            refused: 1,
            running: 9,
            waiting: 1_024,
            threads: 20,
            total: [Nanos::from_us(100), Nanos::from_us(2_000)],
            queue: [Nanos::from_us(1), Nanos::from_us(30)],
            run: [Nanos::from_us(7), Nanos::from_us(8)],
            receive: Nanos::from_us(4),
            send: Nanos::from_us(5),
        };
        let mut second = HeldSecond {
            at_s: 1_800_000_000,
            span_ms: 1_003,
            names: 7,
            pools: vec![PoolSum::default(); SECOND_POOLS],
            ..HeldSecond::default()
        };
        second.pools[15] = pool;
        (second.heat[0], second.heat[17]) = (2_047, 5);
        assert_eq!(HeldSecond::of(&second.words(), SECOND_POOLS), second);
    }

    #[test]
    fn a_minute_comes_back_as_it_was_without_rows_that_are_empty() {
        let row = PathSum {
            path: 2_048,
            ended: 12,
            failed: 12,
            total: [1, 2, 3].map(Nanos::from_us),
            longest: Nanos::from_us(900),
            means: PerPhase {
                receive: Nanos::from_us(10),
                queue: Nanos::from_us(20),
                run: Nanos::from_us(30),
                send: Nanos::from_us(40),
                total: Nanos::from_us(100),
                ..PerPhase::default()
            },
        };
        let minute = HeldMinute {
            at_s: 1_800_000_060,
            rows: vec![row; MINUTE_ROWS],
        };
        assert_eq!(HeldMinute::of(&minute.words()), minute);
        let few = HeldMinute {
            rows: vec![row; 2],
            ..minute
        };
        assert_eq!(HeldMinute::of(&few.words()), few);
    }

    #[test]
    fn marks_come_back_and_empty_memory_is_none() {
        for kind in MarkKind::ALL {
            let mark = HeldMark {
                at_s: 1_800_000_000,
                kind,
            };
            assert_eq!(HeldMark::of(mark.words()[0]), Some(mark));
        }
        assert_eq!(HeldMark::of(0), None);
    }
}
