//! What event loops did: how much of the waiting was theirs, which pages held them in long steps and which requests that
//! blocked, and the connections that stay open.
//!
//! Takes lines, gives counts by path. Its size has a bound. Opens nothing and prints nothing.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use telemetry::{Line, Nanos, push_folded};

use crate::recorded::path;

/// A shorter step holds no request up for long.
pub(crate) const LONG_STEP: Nanos = Nanos::from_ms(10);
/// Most paths. Later ones count together: a log may have a path for each request.
const PATHS_LEN_MAX: usize = 500;
/// Requests with long steps whose ids are remembered, and ids whose request has not come: twice as many at most.
const IDS_LEN_MAX: usize = 1 << 16;
/// Codes of close frames that are counted apart.
const CODES_LEN_MAX: usize = 50;

/// What event loops did.
#[derive(Clone, Debug, Default)]
pub struct EventLoops {
    /// Requests that ran on one.
    pub len: u64,
    /// Their queue times together.
    pub queue_ns: u128,
    /// What of that the loop had them, behind the queue of their pool.
    pub loop_ns: u128,
    /// Pages with long steps, those that blocked the most waiting first.
    pub pages: Vec<LoopPage>,
    /// WebSocket connections and event streams by path, the most first.
    pub connections: Vec<OpenPath>,
    /// WebSocket connections by the code that they ended with.
    pub close_codes: BTreeMap<u16, u64>,
}

/// The requests of a page that an event loop ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopPage {
    /// The method and the folded path.
    pub name: String,
    /// Its requests.
    pub len: u64,
    /// The steps of their tasks.
    pub steps_len: u64,
    /// Requests with a long step.
    pub long_len: u64,
    /// The longest steps of these, together.
    pub long_ns: u128,
    /// The longest step of all.
    pub longest: Nanos,
    /// Requests that waited while one of these steps blocked the loop.
    pub blocked_len: u64,
    /// How long they waited, together.
    pub blocked_ns: u128,
    /// How long at most.
    pub blocked_max: Nanos,
}

/// Connections of a path that stay open as long as their clients like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenPath {
    /// The folded path.
    pub name: String,
    /// What they are.
    pub kind: OpenKind,
    /// Those that have ended.
    pub len: u64,
    /// How long they were open, together.
    pub open_ns: u128,
    /// How long at most.
    pub open_max: Nanos,
    /// Messages of clients and of the application.
    pub messages: [u64; 2],
}

/// What a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OpenKind {
    /// A WebSocket.
    #[default]
    WebSocket,
    /// A `text/event-stream`.
    EventStream,
}

impl OpenKind {
    /// Its name.
    pub fn text(self) -> &'static str {
        match self {
            OpenKind::WebSocket => "WebSocket",
            OpenKind::EventStream => "event stream",
        }
    }
}

impl LoopPage {
    /// The mean of its long steps; zero without one.
    pub fn long_mean(&self) -> Nanos {
        Nanos((self.long_ns / u128::from(self.long_len.max(1))) as u64)
    }
}

impl OpenPath {
    /// How long its connections were open, in the mean.
    pub fn open_mean(&self) -> Nanos {
        Nanos((self.open_ns / u128::from(self.len.max(1))) as u64)
    }
}

/// What the requests that name one as their blocker have waited.
#[derive(Clone, Copy, Debug, Default)]
struct Blocked {
    len: u64,
    ns: u128,
    max: Nanos,
}

/// What is known of an id.
#[derive(Clone, Copy, Debug)]
enum Blocker {
    /// Its page.
    Known(usize),
    /// Others name it, and its own line has not come: it is written when the response is complete.
    Awaited(Blocked),
}

/// Takes lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopCollector {
    found: EventLoops,
    pages: HashMap<Vec<u8>, usize>,
    paths: HashMap<(Vec<u8>, OpenKind), usize>,
    blockers: [HashMap<u64, Blocker>; 2],
    key: Vec<u8>,
}

impl LoopCollector {
    /// Takes a line. Steps of all lines block loops, whatever the report is about; requests count where the line does
    /// (`counts`).
    #[inline]
    pub(crate) fn take(&mut self, line: &Line<'_>, counts: bool) {
        if line.is_long_lived() && counts {
            self.take_open(line);
        }
        if line.is_of_loop() {
            self.take_request(line, counts);
        }
    }

    /// What is known by now.
    pub(crate) fn event_loops(&self) -> EventLoops {
        let mut found = self.found.clone();
        found.pages.retain(|page| page.long_len > 0);
        let weight = |page: &LoopPage| (page.blocked_ns, page.long_ns);
        found
            .pages
            .sort_by_key(|page| std::cmp::Reverse(weight(page)));
        found
            .connections
            .sort_by_key(|path| std::cmp::Reverse(path.len));
        found
    }

    fn take_request(&mut self, line: &Line<'_>, counts: bool) {
        let own = &line.event_loop;
        let longest = own.longest.unwrap_or_default();
        let page = self.page(line);
        if longest >= LONG_STEP {
            self.blocks(id_of(&line.plain(line.id)), page);
        }
        if !counts {
            return;
        }
        let queue = line.spans.queue.unwrap_or_default();
        if !own.blocked_by.is_empty() {
            self.was_blocked(id_of(own.blocked_by), queue);
        }
        let of_page = &mut self.found.pages[page];
        if longest >= LONG_STEP {
            of_page.long_len += 1;
            of_page.long_ns += u128::from(longest.0);
        }
        of_page.longest = of_page.longest.max(longest);
        if line.is_long_lived() {
            return;
        }
        of_page.len += 1;
        of_page.steps_len += u64::from(own.steps.unwrap_or(0));
        self.found.len += 1;
        self.found.queue_ns += u128::from(queue.0);
        self.found.loop_ns += u128::from(own.wait.unwrap_or_default().min(queue).0);
    }

    fn take_open(&mut self, line: &Line<'_>) {
        let kind = match line.is_websocket() {
            true => OpenKind::WebSocket,
            false => OpenKind::EventStream,
        };
        let open = line.spans.run.unwrap_or_default();
        let at = self.open_path(line, kind);
        let of_path = &mut self.found.connections[at];
        of_path.len += 1;
        of_path.open_ns += u128::from(open.0);
        of_path.open_max = of_path.open_max.max(open);
        let known = [line.websocket.received, line.websocket.sent];
        for (sum, one) in of_path.messages.iter_mut().zip(known) {
            *sum = sum.saturating_add(one.unwrap_or(0));
        }
        let codes = &mut self.found.close_codes;
        if let Some(code) = line.websocket.close_code
            && (codes.len() < CODES_LEN_MAX || codes.contains_key(&code))
        {
            *codes.entry(code).or_default() += 1;
        }
    }

    /// A request of this page has a long step.
    fn blocks(&mut self, id: u64, page: usize) {
        if let Some(Blocker::Awaited(blocked)) = self.known(id) {
            self.found.pages[page].add(blocked);
        }
        self.remember(id, Blocker::Known(page));
    }

    /// A request waited for one with this id.
    fn was_blocked(&mut self, id: u64, waited: Nanos) {
        let mut blocked = Blocked {
            len: 1,
            ns: u128::from(waited.0),
            max: waited,
        };
        match self.known(id) {
            Some(Blocker::Known(page)) => return self.found.pages[page].add(blocked),
            Some(Blocker::Awaited(before)) => {
                blocked.len += before.len;
                blocked.ns += before.ns;
                blocked.max = blocked.max.max(before.max);
            }
            None => {}
        }
        self.remember(id, Blocker::Awaited(blocked));
    }

    fn known(&self, id: u64) -> Option<Blocker> {
        let mut found = self.blockers.iter().filter_map(|known| known.get(&id));
        found.next().copied()
    }

    /// The older half is forgotten when there is no room.
    fn remember(&mut self, id: u64, blocker: Blocker) {
        let [newer, older] = &mut self.blockers;
        if newer.len() >= IDS_LEN_MAX {
            *older = std::mem::take(newer);
        }
        newer.insert(id, blocker);
    }

    fn page(&mut self, line: &Line<'_>) -> usize {
        self.key.clear();
        push_folded(line.method, &path(line), &mut self.key);
        if let Some(page) = self.pages.get(&self.key) {
            return *page;
        }
        others_beyond(self.found.pages.len(), &mut self.key);
        let last = self.found.pages.len();
        let page = *self.pages.entry(self.key.clone()).or_insert(last);
        if page == last {
            self.found.pages.push(LoopPage {
                name: name_of(&self.key),
                ..LoopPage::default()
            });
        }
        page
    }

    fn open_path(&mut self, line: &Line<'_>, kind: OpenKind) -> usize {
        self.key.clear();
        push_folded(b"", &path(line), &mut self.key);
        others_beyond(self.found.connections.len(), &mut self.key);
        let last = self.found.connections.len();
        let key = (self.key.clone(), kind);
        let at = *self.paths.entry(key).or_insert(last);
        if at == last {
            self.found.connections.push(OpenPath {
                name: name_of(&self.key),
                kind,
                ..OpenPath::default()
            });
        }
        at
    }
}

impl LoopPage {
    fn add(&mut self, blocked: Blocked) {
        self.blocked_len += blocked.len;
        self.blocked_ns += blocked.ns;
        self.blocked_max = self.blocked_max.max(blocked.max);
    }
}

/// A client that invents paths must not make the report grow.
fn others_beyond(len: usize, key: &mut Vec<u8>) {
    if len >= PATHS_LEN_MAX {
        key.clear();
        key.extend_from_slice(b"others");
    }
}

fn name_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key.trim_ascii()).into_owned()
}

/// A number in the place of an id.
pub(crate) fn id_of(id: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::{KnownLoop, KnownSpans, KnownWebSocket, LineForm};

    /// A request: its path and id, its longest step and its wait in milliseconds, and the id of its blocker.
    fn request(
        target: &'static str,
        id: &'static str,
        times: (u64, u64),
        blocked_by: &'static str,
    ) -> Line<'static> {
        let (longest_ms, queue_ms) = times;
        Line {
            form: LineForm::Phases,
            method: b"GET",
            target: target.as_bytes(),
            id: id.as_bytes(),
            spans: KnownSpans {
                queue: Some(Nanos::from_ms(queue_ms)),
                run: Some(Nanos::from_ms(longest_ms)),
                ..KnownSpans::default()
            },
            event_loop: KnownLoop {
                wait: Some(Nanos::from_ms(queue_ms / 2)),
                steps: Some(2),
                busy: Some(Nanos::from_ms(longest_ms)),
                longest: Some(Nanos::from_ms(longest_ms)),
                blocked_by: blocked_by.as_bytes(),
                is_event_stream: false,
            },
            ..Line::default()
        }
    }

    fn collected(lines: &[Line<'_>]) -> EventLoops {
        let mut collector = LoopCollector::default();
        for line in lines {
            collector.take(line, true);
        }
        collector.event_loops()
    }

    #[test]
    fn blocked_requests_count_for_the_page_of_their_blocker_whichever_line_comes_first() {
        let report = request("/report", "r", (1_200, 0), "");
        let books = request("/books", "1", (1, 800), "r");
        let tea = request("/tea", "2", (1, 300), "r");
        let stranger = request("/books", "3", (1, 5), "unknown");
        for lines in [
            [report, books, tea, stranger],
            [books, stranger, tea, report],
            [books, report, stranger, tea],
        ] {
            let found = collected(&lines);
            let [page] = &found.pages[..] else {
                panic!("{found:?}");
            };
            assert_eq!(
                (page.name.as_str(), page.len, page.steps_len),
                ("GET /report", 1, 2)
            );
            assert_eq!(page.long_mean(), Nanos::from_ms(1_200));
            assert_eq!(
                (page.blocked_len, page.blocked_max),
                (2, Nanos::from_ms(800))
            );
            assert_eq!(page.blocked_ns, 1_100_000_000);
            assert_eq!((found.len, found.queue_ns), (4, 1_105_000_000));
            assert_eq!(found.loop_ns, 552_000_000);
        }
    }

    #[test]
    fn a_blocker_that_the_report_is_not_about_has_blocked_others_all_the_same() {
        let mut collector = LoopCollector::default();
        collector.take(&request("/report", "r", (1_200, 0), ""), false);
        collector.take(&request("/books", "1", (1, 800), "r"), true);
        let found = collector.event_loops();
        assert_eq!(found.len, 1);
        // It has no long step that counts, so there is no row for it.
        assert_eq!(found.pages, []);
    }

    #[test]
    fn connections_that_stay_open_are_no_requests() {
        let open = |target, open_ms, close_code: Option<u16>| {
            let mut line = request(target, "x", (1, 7), "");
            line.spans.run = Some(Nanos::from_ms(open_ms));
            line.event_loop.is_event_stream = close_code.is_none();
            line.websocket = KnownWebSocket {
                received: close_code.map(|_| 3),
                sent: close_code.map(|_| 4),
                close_code,
            };
            line
        };
        let found = collected(&[
            open("/chat", 1_000, Some(1000)),
            open("/chat", 5_000, Some(1001)),
            open("/events", 9_000, None),
            request("/", "1", (1, 0), ""),
        ]);
        assert_eq!(found.len, 1);
        let rows: Vec<_> = found
            .connections
            .iter()
            .map(|one| {
                (
                    one.name.as_str(),
                    one.kind.text(),
                    one.len,
                    one.open_max,
                    one.messages,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("/chat", "WebSocket", 2, Nanos::from_ms(5_000), [6, 8]),
                ("/events", "event stream", 1, Nanos::from_ms(9_000), [0, 0]),
            ]
        );
        assert_eq!(found.connections[0].open_mean(), Nanos::from_ms(3_000));
        assert_eq!(found.close_codes, BTreeMap::from([(1000, 1), (1001, 1)]));
    }

    #[test]
    fn its_size_has_a_bound() {
        let mut collector = LoopCollector::default();
        for number in 0..(PATHS_LEN_MAX + 9) {
            let (id, target) = (number.to_string(), format!("/{}", letters(number)));
            let mut line = request("/", "", (20, 0), "");
            (line.id, line.target) = (id.as_bytes(), target.as_bytes());
            collector.take(&line, true);
        }
        let found = collector.event_loops();
        assert_eq!(found.pages.len(), PATHS_LEN_MAX + 1);
        let others = found.pages.iter().find(|page| page.name == "others");
        assert_eq!(others.map(|page| page.len), Some(9));
    }

    /// A number without digits, which would be folded.
    fn letters(number: usize) -> String {
        let letter = |digit: usize| char::from(b'g' + (digit % 10) as u8);
        [number / 100, number / 10, number]
            .map(letter)
            .iter()
            .collect()
    }
}
