//! A copy of the history, read back: its requests in the order of their ends.
//!
//! Takes bytes, which other processes may have written while they were copied; what is not whole is left out.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    BLOCK_RECORDS, BLOCK_WORDS, BLOCKS, HELD_SECS_MAX, HISTORY_BYTES, HeldRequest, MAGIC, NAMES_AT,
    NAMES_BYTES, PATH_BYTES_MAX, PATH_WORDS, PATHS, PATHS_AT, RECORD_WORDS, VERSION, WORD_BYTES,
    block, block_at, header,
};

/// Names of routes and pools, by their indexes in the requests of some processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteNames {
    /// What blocks call this list.
    pub number: u32,
    /// Of the routes.
    pub routes: Vec<String>,
    /// Of the pools.
    pub pools: Vec<String>,
}

/// Why a history cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryFault {
    /// It is none.
    Unknown,
    /// Another version of the program has made it.
    OtherVersion,
    /// It was copied while its names changed: another copy is fine.
    Changing,
}

/// A copy of the history.
pub struct HeldHistory {
    bytes: Vec<u8>,
    /// By number.
    names: HashMap<u32, RouteNames>,
    /// Where requests are, in the order of their ends.
    order: Vec<HeldPlace>,
    since_us: u64,
    span: HeldSpan,
}

/// Of how long the requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSpan {
    /// Seconds that were asked for.
    pub asked_secs: u64,
    /// Seconds of them of which all requests are held.
    pub held_secs: u64,
    /// When these begin, in microseconds since 1970.
    pub since_us: u64,
}

/// Where a request is.
#[derive(Clone, Copy)]
struct HeldPlace {
    /// When it ended, in microseconds since 1970.
    ended_us: u64,
    block: u16,
    record: u16,
}

/// A request with what its block and the tables say of it.
#[derive(Clone, Copy, Debug)]
pub struct NamedRequest<'h> {
    /// The request.
    pub request: HeldRequest,
    /// When it arrived, in microseconds since 1970.
    pub wall_us: u64,
    /// Its process.
    pub process: u32,
    /// The name of its route; empty: not known any more.
    pub route: &'h str,
    /// The name of its pool; empty: none, or not known any more.
    pub pool: &'h str,
    /// Its method and folded path: `GET /orders/*`; empty: they are counted with others.
    pub path: &'h [u8],
}

impl HeldHistory {
    /// Reads a copy of the whole memory that was made at `now_us`, in microseconds since 1970; requests that ended before
    /// `from_us` are left out.
    ///
    /// # Errors
    /// It is no history, or one of another version, or was copied in a bad moment.
    pub fn read(bytes: Vec<u8>, from_us: u64, now_us: u64) -> Result<HeldHistory, HistoryFault> {
        if bytes.len() < NAMES_AT * WORD_BYTES || word(&bytes, header::MAGIC_AT) != MAGIC {
            return Err(HistoryFault::Unknown);
        }
        if word(&bytes, header::VERSION_AT) != VERSION || bytes.len() != HISTORY_BYTES {
            return Err(HistoryFault::OtherVersion);
        }
        let oldest_us = now_us.saturating_sub(HELD_SECS_MAX * 1_000_000);
        let since_us = word(&bytes, header::MADE_AT)
            .max(word(&bytes, header::LOST_UNTIL_AT))
            .max(oldest_us);
        let is_changing = word(&bytes, header::NAMES_TURN_AT) % 2 == 1;
        let names = names(&bytes).filter(|_| !is_changing);
        let since_us = since_us.max(from_us);
        let secs_since = |us: u64| now_us.saturating_sub(us).div_ceil(1_000_000);
        let mut held = HeldHistory {
            span: HeldSpan {
                asked_secs: secs_since(from_us),
                held_secs: secs_since(since_us),
                since_us,
            },
            names: names.ok_or(HistoryFault::Changing)?,
            order: Vec::new(),
            since_us,
            bytes,
        };
        held.order = held.places(from_us.max(oldest_us));
        Ok(held)
    }

    /// All requests that ended since then, in microseconds since 1970, are there; some that ended before may be.
    pub fn since_us(&self) -> u64 {
        self.since_us
    }

    /// What was asked for, and how much of that is there.
    pub fn span(&self) -> HeldSpan {
        self.span
    }

    /// Requests.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// All of them, in the order of their ends.
    pub fn requests(&self) -> impl Iterator<Item = NamedRequest<'_>> {
        self.order.iter().filter_map(|place| self.request(*place))
    }

    fn places(&self, from_us: u64) -> Vec<HeldPlace> {
        let mut places = Vec::new();
        for index in 0..BLOCKS as u16 {
            let Some(number) = self.number(index) else {
                continue;
            };
            let origin_us = word(&self.bytes, block_at(number) + block::ORIGIN_AT);
            for record in 0..BLOCK_RECORDS as u16 {
                let Some(request) = self.record(number, record) else {
                    continue;
                };
                let ended_us = origin_us.saturating_add(request.ended_us());
                if ended_us >= from_us {
                    places.push(HeldPlace {
                        ended_us,
                        block: index,
                        record,
                    });
                }
            }
        }
        places.sort_by_key(|place| place.ended_us);
        places
    }

    /// The number of the block at an index, if it has one.
    fn number(&self, index: u16) -> Option<u64> {
        let number = word(&self.bytes, block_at(index.into()) + block::NUMBER_AT).checked_sub(1)?;
        (number % BLOCKS as u64 == u64::from(index)).then_some(number)
    }

    fn record(&self, number: u64, record: u16) -> Option<HeldRequest> {
        let at = block_at(number) + (usize::from(record) + 1) * RECORD_WORDS;
        let words = std::array::from_fn(|offset| word(&self.bytes, at + offset));
        HeldRequest::unpacked(words, number)
    }

    fn request(&self, place: HeldPlace) -> Option<NamedRequest<'_>> {
        let number = self.number(place.block)?;
        let request = self.record(number, place.record)?;
        let at = block_at(number);
        let owner = word(&self.bytes, at + block::OWNER_AT);
        let names = self.names.get(&((owner >> 32) as u32));
        let route = names.and_then(|names| names.routes.get(usize::from(request.route)));
        let pool = names
            .zip(request.pool)
            .and_then(|(names, pool)| names.pools.get(usize::from(pool)));
        Some(NamedRequest {
            request,
            wall_us: word(&self.bytes, at + block::ORIGIN_AT).saturating_add(request.arrived_us),
            process: owner as u32,
            route: route.map_or("", String::as_str),
            pool: pool.map_or("", String::as_str),
            path: path_at(&self.bytes, request.path),
        })
    }
}

/// The folded path of a number in a copy; empty: it is not known.
pub(super) fn path_at(bytes: &[u8], number: u16) -> &[u8] {
    let Some(index) = usize::from(number).checked_sub(1).filter(|at| *at < PATHS) else {
        return b"";
    };
    let at = PATHS_AT + index * PATH_WORDS;
    let len = (word(bytes, at + 1) & 0xff) as usize;
    let start = (at + 2) * WORD_BYTES;
    &bytes[start..start + len.min(PATH_BYTES_MAX)]
}

impl fmt::Debug for HeldHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests since {} µs", self.len(), self.since_us)
    }
}

impl PartialEq for HeldHistory {
    fn eq(&self, other: &HeldHistory) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for HeldHistory {}

pub(super) fn names(bytes: &[u8]) -> Option<HashMap<u32, RouteNames>> {
    let len = (word(bytes, header::NAMES_LEN_AT) as usize).min(NAMES_BYTES);
    let start = NAMES_AT * WORD_BYTES;
    if len == 0 {
        return Some(HashMap::new());
    }
    let lists: Vec<RouteNames> = serde_json::from_slice(&bytes[start..start + len]).ok()?;
    let lists = lists.into_iter().map(|names| (names.number, names));
    Some(lists.collect())
}

pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let start = at * WORD_BYTES;
    let word = bytes[start..].first_chunk().copied();
    u64::from_le_bytes(word.expect("positions lie within the bytes, whose length was looked at"))
}

const _: () = assert!(BLOCKS <= u16::MAX as usize && BLOCK_WORDS.is_multiple_of(RECORD_WORDS));
