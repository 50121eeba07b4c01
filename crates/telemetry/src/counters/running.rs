//! The requests that run in a process at present: a table in memory that processes share, so that others can read it
//! while the process itself answers nothing.
//!
//! A request that runs has a `RunningPlace`, which writes one row of the table. A row has one writer at a time and any
//! number of readers, and nobody waits for anybody: the writer makes the row's version odd, writes, and makes it even
//! again; a reader that finds an odd version, or another one behind its reading, skips the row. A request for which there
//! is no row is counted. All zeros is the empty table.
//!
//! ```text
//!  version   4 ──► 5 ─ writes ─► 6 ──────── runs ────────► 7 ─ clears ─► 8
//!  readers   (nothing)  (skip)      (request of version 6)     (skip)      (nothing)
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::Counter;
use crate::{Nanos, Stamp};

/// Rows of a process.
const ROWS: usize = 256;
/// Bytes that are kept of a method.
const METHOD_BYTES: usize = 16;
/// Bytes that are kept of a path.
const PATH_BYTES: usize = 96;
/// Bytes that are kept of a request id; a UUID has 36.
const ID_BYTES: usize = 40;
const WORD_BYTES: usize = size_of::<u64>();
const METHOD_WORDS: usize = METHOD_BYTES / WORD_BYTES;
const PATH_WORDS: usize = PATH_BYTES / WORD_BYTES;
const ID_WORDS: usize = ID_BYTES / WORD_BYTES;
/// How often a reader looks at a row that is being written.
const LOOKS: usize = 4;

/// All requests that run in one process.
#[repr(C, align(128))]
pub struct RunningTable {
    /// What the machine's monotonic clock reads when that of the process reads zero.
    clock_zero_ns: AtomicU64,
    /// Requests that run and have no row.
    unlisted: Counter,
    /// Rows that have an owner.
    owned: AtomicU32,
    /// Where a free row is likely.
    hint: AtomicU32,
    /// One more than the highest row that had an owner: those behind it are not read.
    rows_len: AtomicU32,
    rows: [RunningRow; ROWS],
}

/// One request.
#[repr(C, align(64))]
struct RunningRow {
    /// 1: a place has it.
    owner: AtomicU32,
    /// Bytes of method, path and id, each in 8 bits.
    text_bytes: AtomicU32,
    /// Odd while it is written.
    version: AtomicU64,
    queued: AtomicU64,
    /// 0: nothing runs.
    started: AtomicU64,
    /// From the top: number of the worker (32 bits), index of the pool, index of the route.
    facts: AtomicU64,
    method: [AtomicU64; METHOD_WORDS],
    path: [AtomicU64; PATH_WORDS],
    id: [AtomicU64; ID_WORDS],
}

/// What the table takes of a request that begins to run.
#[derive(Clone, Copy, Debug)]
pub struct BegunRequest<'a> {
    /// The method, of which the first 16 bytes are kept.
    pub method: &'a [u8],
    /// The path without its query, of which the first 96 bytes are kept.
    pub path: &'a [u8],
    /// The id, of which the first 40 bytes are kept.
    pub id: &'a [u8],
    /// When all of it was there.
    pub queued: Stamp,
    /// When it began to run.
    pub started: Stamp,
    /// Index of its pool.
    pub pool: u16,
    /// Index of its route.
    pub route: u16,
    /// Number of its worker; 0: it has none.
    pub worker: u32,
}

/// A request that runs, as a reader of the table finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRequest {
    /// The method.
    pub method: Vec<u8>,
    /// The beginning of the path.
    pub path: Vec<u8>,
    /// The id.
    pub id: Vec<u8>,
    /// How long it waited before it ran.
    pub waited: Nanos,
    /// How long it has run.
    pub ran: Nanos,
    /// Index of its pool.
    pub pool: u16,
    /// Index of its route.
    pub route: u16,
    /// Number of its worker; 0: it has none.
    pub worker: u32,
}

/// The place of one request at a time in the table. Gives its row back when it is dropped.
pub struct RunningPlace {
    table: &'static RunningTable,
    row: Option<usize>,
    state: PlaceState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PlaceState {
    /// No request runs.
    Empty,
    /// One does, and has the row.
    Listed,
    /// One does, and is counted.
    Unlisted,
}

/// What the table keeps of an id.
pub fn listed_id(id: &[u8]) -> &[u8] {
    &id[..id.len().min(ID_BYTES)]
}

impl RunningTable {
    /// Says what the machine's monotonic clock reads now.
    pub fn set_clock(&self, machine_now: Nanos, now: Stamp) {
        let zero = machine_now.0.saturating_sub(now.0);
        self.clock_zero_ns.store(zero, Ordering::Relaxed);
    }

    /// A place for the requests of one thread, one at a time.
    pub fn place(&'static self) -> RunningPlace {
        RunningPlace {
            table: self,
            row: None,
            state: PlaceState::Empty,
        }
    }

    /// Requests that run and have no row.
    pub fn unlisted(&self) -> u64 {
        self.unlisted.count()
    }

    /// The requests that run, at this reading of the machine's monotonic clock. One that is written at this moment may be
    /// missing: it begins or ends.
    pub fn list(&self, machine_now: Nanos) -> impl Iterator<Item = ListedRequest> {
        let zero = self.clock_zero_ns.load(Ordering::Relaxed);
        let now = Stamp(machine_now.0.saturating_sub(zero));
        let rows_len = self.rows_len.load(Ordering::Acquire) as usize;
        let rows = self.rows.iter().take(rows_len);
        rows.filter_map(move |row| (0..LOOKS).find_map(|_| row.read(now))?)
    }

    /// A row that has no owner.
    fn claim(&self) -> Option<usize> {
        // Without this each request beyond the rows would search all of them.
        if self.owned.load(Ordering::Relaxed) as usize >= ROWS {
            return None;
        }
        let first = self.hint.load(Ordering::Relaxed) as usize;
        let mut places = (0..ROWS).map(|step| (first + step) % ROWS);
        let row = places.find(|place| self.rows[*place].claim())?;
        self.owned.fetch_add(1, Ordering::Relaxed);
        self.hint
            .store((row as u32 + 1) % ROWS as u32, Ordering::Relaxed);
        self.rows_len.fetch_max(row as u32 + 1, Ordering::AcqRel);
        Some(row)
    }

    fn give_back(&self, row: usize) {
        let before = self.rows[row].owner.swap(0, Ordering::Release);
        assert!(
            before == 1,
            "a row of a running request is given back twice"
        );
        self.owned.fetch_sub(1, Ordering::Relaxed);
        self.hint.store(row as u32, Ordering::Relaxed);
    }
}

impl RunningPlace {
    /// A request begins to run.
    pub fn begin(&mut self, request: &BegunRequest<'_>) {
        assert!(
            self.state == PlaceState::Empty,
            "two requests run in one place"
        );
        self.row = self.row.or_else(|| self.table.claim());
        self.state = match self.row {
            Some(row) => {
                self.table.rows[row].begin(request);
                PlaceState::Listed
            }
            None => {
                self.table.unlisted.add_from_any();
                PlaceState::Unlisted
            }
        };
    }

    /// No request runs any more; if none did, nothing changes.
    pub fn end(&mut self) {
        match (
            std::mem::replace(&mut self.state, PlaceState::Empty),
            self.row,
        ) {
            (PlaceState::Listed, Some(row)) => self.table.rows[row].end(),
            (PlaceState::Unlisted, _) => self.table.unlisted.take_from_any(),
            _ => {}
        }
    }
}

impl Drop for RunningPlace {
    fn drop(&mut self) {
        self.end();
        if let Some(row) = self.row {
            self.table.give_back(row);
        }
    }
}

impl RunningRow {
    fn claim(&self) -> bool {
        // A look first: most rows that a search passes are taken, and a failed exchange would take their cache line.
        self.owner.load(Ordering::Relaxed) == 0
            && self
                .owner
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    fn begin(&self, request: &BegunRequest<'_>) {
        let version = self.begin_write();
        let relaxed = Ordering::Relaxed;
        self.queued.store(request.queued.0, relaxed);
        // 0 would say that nothing runs.
        self.started.store(request.started.0.max(1), relaxed);
        let (pool, route) = (u64::from(request.pool), u64::from(request.route));
        let facts = u64::from(request.worker) << 32 | pool << 16 | route;
        self.facts.store(facts, relaxed);
        let method = write(&self.method, request.method);
        let path = write(&self.path, request.path);
        let id = write(&self.id, request.id);
        self.text_bytes
            .store(method << 16 | path << 8 | id, relaxed);
        self.end_write(version);
    }

    fn end(&self) {
        let version = self.begin_write();
        self.started.store(0, Ordering::Relaxed);
        self.end_write(version);
    }

    /// Makes the version odd. Only the owner writes it.
    fn begin_write(&self) -> u64 {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // A reader that sees any of the writes behind it sees the odd version, or a later one, when it looks again.
        fence(Ordering::Release);
        version
    }

    fn end_write(&self, version: u64) {
        self.version.store(version + 2, Ordering::Release);
    }

    /// `None`: it is being written. `Some(None)`: nothing runs.
    fn read(&self, now: Stamp) -> Option<Option<ListedRequest>> {
        let version = self.version.load(Ordering::Acquire);
        let relaxed = Ordering::Relaxed;
        let (queued, started) = (self.queued.load(relaxed), self.started.load(relaxed));
        let (facts, bytes) = (self.facts.load(relaxed), self.text_bytes.load(relaxed));
        let method = read(&self.method, bytes >> 16);
        let path = read(&self.path, bytes >> 8);
        let id = read(&self.id, bytes);
        // Orders the reads above before the second look at the version.
        fence(Ordering::Acquire);
        if version % 2 == 1 || self.version.load(relaxed) != version {
            return None;
        }
        Some((started != 0).then(|| ListedRequest {
            method,
            path,
            id,
            waited: Stamp(started).since(Stamp(queued)),
            ran: now.since(Stamp(started)),
            pool: (facts >> 16) as u16,
            route: facts as u16,
            worker: (facts >> 32) as u32,
        }))
    }
}

/// Writes as much of a text as there is room for; gives how many bytes.
fn write(into: &[AtomicU64], text: &[u8]) -> u32 {
    let text = &text[..text.len().min(into.len() * WORD_BYTES)];
    let (whole, rest) = text.as_chunks::<WORD_BYTES>();
    for (word, bytes) in into.iter().zip(whole) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if let (Some(word), [_, ..]) = (into.get(whole.len()), rest) {
        let bytes = rest.iter().rev();
        let last = bytes.fold(0, |number, byte| number << 8 | u64::from(*byte));
        word.store(last, Ordering::Relaxed);
    }
    text.len() as u32
}

/// The first `bytes & 255` bytes, or as many as there are: another process may have written what it likes.
fn read(from: &[AtomicU64], bytes: u32) -> Vec<u8> {
    let words = from.iter().map(|word| word.load(Ordering::Relaxed));
    let text = words.flat_map(u64::to_le_bytes);
    text.take(bytes as u8 as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(1_000);

    fn table() -> &'static RunningTable {
        let row = || RunningRow {
            owner: AtomicU32::default(),
            text_bytes: AtomicU32::default(),
            version: AtomicU64::default(),
            queued: AtomicU64::default(),
            started: AtomicU64::default(),
            facts: AtomicU64::default(),
            method: Default::default(),
            path: Default::default(),
            id: Default::default(),
        };
        Box::leak(Box::new(RunningTable {
            clock_zero_ns: AtomicU64::default(),
            unlisted: Counter::default(),
            owned: AtomicU32::default(),
            hint: AtomicU32::default(),
            rows_len: AtomicU32::default(),
            rows: std::array::from_fn(|_| row()),
        }))
    }

    fn request<'a>(path: &'a [u8], id: &'a [u8]) -> BegunRequest<'a> {
        BegunRequest {
            method: b"GET",
            path,
            id,
            queued: Stamp(Nanos::from_secs(7).0),
            started: Stamp(Nanos::from_secs(9).0),
            pool: 3,
            route: 65_535,
            worker: u32::MAX,
        }
    }

    fn paths(table: &RunningTable) -> Vec<String> {
        let listed = table.list(NOW).map(|one| one.path);
        listed
            .map(|path| String::from_utf8(path).unwrap())
            .collect()
    }

    #[test]
    fn a_request_is_listed_while_it_runs() {
        let table = table();
        table.set_clock(Nanos::from_secs(990), Stamp(Nanos::from_secs(10).0));
        let mut place = table.place();
        assert_eq!(paths(table), [""; 0]);
        place.begin(&request(b"/slow", b"8f00"));
        let listed: Vec<_> = table.list(NOW).collect();
        let expect = ListedRequest {
            method: b"GET".to_vec(),
            path: b"/slow".to_vec(),
            id: b"8f00".to_vec(),
            waited: Nanos::from_secs(2),
            ran: Nanos::from_secs(11),
            pool: 3,
            route: 65_535,
            worker: u32::MAX,
        };
        assert_eq!(listed, [expect]);
        place.end();
        place.end();
        assert_eq!(paths(table), [""; 0]);
        // The shorter one shows nothing of the longer.
        place.begin(&request(b"/a", b""));
        assert_eq!(paths(table), ["/a"]);
        drop(place);
        assert_eq!(paths(table), [""; 0]);
    }

    #[test]
    fn texts_are_cut() {
        let table = table();
        let long = vec![b'x'; 2_000];
        let mut place = table.place();
        place.begin(&BegunRequest {
            method: &long,
            ..request(&long, &long)
        });
        let listed: Vec<_> = table.list(NOW).collect();
        assert_eq!(listed.len(), 1);
        let lengths = [&listed[0].method, &listed[0].path, &listed[0].id].map(Vec::len);
        assert_eq!(lengths, [METHOD_BYTES, PATH_BYTES, ID_BYTES]);
    }

    #[test]
    fn a_row_that_is_being_written_is_skipped() {
        let table = table();
        let (mut one, mut other) = (table.place(), table.place());
        one.begin(&request(b"/one", b"1"));
        other.begin(&request(b"/other", b"2"));
        let row = &table.rows[one.row.unwrap()];
        let version = row.begin_write();
        row.path[0].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(paths(table), ["/other"]);
        row.end_write(version);
        assert_eq!(table.list(NOW).count(), 2);
    }

    #[test]
    fn requests_beyond_the_rows_are_counted() {
        let table = table();
        let mut places: Vec<_> = (0..ROWS + 3).map(|_| table.place()).collect();
        for place in &mut places {
            place.begin(&request(b"/", b""));
        }
        assert_eq!((table.list(NOW).count(), table.unlisted()), (ROWS, 3));
        places[ROWS].end();
        assert_eq!((table.list(NOW).count(), table.unlisted()), (ROWS, 2));
        // A row that is free again is found, wherever it is.
        drop(places.remove(100));
        assert_eq!(table.list(NOW).count(), ROWS - 1);
        places[ROWS - 1].begin(&request(b"/again", b""));
        assert_eq!((table.list(NOW).count(), table.unlisted()), (ROWS, 2));
        places.clear();
        assert_eq!((table.list(NOW).count(), table.unlisted()), (0, 0));
        assert_eq!(table.owned.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn readers_never_see_parts_of_two_requests() {
        let table = table();
        let texts = [[b'a'; PATH_BYTES], [b'b'; PATH_BYTES]];
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut place = table.place();
                for turn in 0..20_000 {
                    let text = &texts[turn % 2];
                    place.begin(&request(text, &text[..ID_BYTES]));
                    place.end();
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                for listed in table.list(NOW) {
                    let first = listed.path[0];
                    assert!(
                        listed
                            .path
                            .iter()
                            .chain(&listed.id)
                            .all(|byte| *byte == first)
                    );
                }
            }
            writer.join().unwrap();
        });
    }
}
