//! One queue and its workers, in the order of time.
//!
//! Takes the runs of one pool of one process, gives each route its share of the waiting, and the longest waits.
//! Pure: reads no clock and knows no texts.
//!
//! Two sums run along: the waiting that one busy worker has caused since the beginning, and the share that one
//! waiting request has in one busy worker. A run on an event loop counts for as much of a worker as it held the loop. The difference of a sum between two moments is what a run has
//! caused, or its share of a wait, so that neither needs to look at the other's list.

use std::collections::HashMap;

use telemetry::Nanos;

use super::window::Run;
use super::{HOLDERS_LEN_MAX, Holder, Request, Wait, Waiting};

/// What a worker counts.
const MILLION: f64 = 1e6;

/// The part of time that a sweep accounts for: behind `from_ns`, up to `until_ns`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
}

/// What happens at one moment, in this order: a worker that ends takes the next one at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    End,
    /// The slice begins.
    From,
    Start,
    Queue,
    /// The slice ends.
    Until,
}

type Event = (u64, Kind, u32);

/// The sums as they were at the moments of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    caused_at_start: f64,
    share_at_queue: f64,
    share_at_start: f64,
    share_at_end: f64,
}

/// One of the longest waits, by numbers.
#[derive(Clone, Debug)]
pub(super) struct NumberedWait {
    run: u32,
    /// Runs that it waited for, their share, and how long they were in progress meanwhile.
    holders: Vec<(u32, f64, u64)>,
    freed_worker: Option<u32>,
    /// The one whose step blocked the loop meanwhile.
    blocked_by: Option<u32>,
}

/// How far the sweep is.
struct State<'r> {
    runs: &'r [Run],
    slice: Slice,
    at_ns: u64,
    is_within: bool,
    waiting_len: u64,
    busy: Vec<u32>,
    /// What they count together, in millionths of a worker.
    weights: u64,
    /// Where each run is among `busy`.
    places: Vec<u32>,
    marks: Vec<Marks>,
    caused_sum: f64,
    share_sum: f64,
    /// By route: runs in progress, and when the last one ended.
    routes: Vec<(u32, u64)>,
    last_of_worker: HashMap<u64, u32>,
    longest: Vec<(u64, u32, Option<u32>)>,
}

/// Accounts for the slice.
pub(super) fn sweep(runs: &[Run], slice: Slice, found: &mut Waiting) -> Vec<NumberedWait> {
    let mut state = State {
        runs,
        slice,
        at_ns: 0,
        is_within: false,
        waiting_len: 0,
        busy: Vec::new(),
        weights: 0,
        places: vec![0; runs.len()],
        marks: vec![Marks::default(); runs.len()],
        caused_sum: 0.0,
        share_sum: 0.0,
        routes: vec![(0, 0); found.routes.len()],
        last_of_worker: HashMap::new(),
        longest: Vec::new(),
    };
    for (at_ns, kind, run) in events(runs, slice) {
        state.advance(at_ns, found);
        match kind {
            Kind::Queue => state.queue(run),
            Kind::Start => state.start(run, found),
            Kind::End => state.end(run, found),
            Kind::From => state.begin_slice(),
            Kind::Until => state.end_slice(found),
        }
    }
    let longest = std::mem::take(&mut state.longest);
    let waits = longest.into_iter();
    waits
        .map(|(_, run, freed_worker)| state.numbered(run, freed_worker))
        .collect()
}

fn events(runs: &[Run], slice: Slice) -> Vec<Event> {
    let mut events = Vec::with_capacity(3 * runs.len() + 2);
    for (run, index) in runs.iter().zip(0..) {
        if run.has_waited {
            events.push((run.queued_ns, Kind::Queue, index));
        }
        events.push((run.started_ns, Kind::Start, index));
        // A run of no time delays no request.
        if run.ended_ns > run.started_ns {
            events.push((run.ended_ns, Kind::End, index));
        }
    }
    events.retain(|(at_ns, ..)| *at_ns <= slice.until_ns);
    events.push((slice.from_ns, Kind::From, u32::MAX));
    events.push((slice.until_ns, Kind::Until, u32::MAX));
    events.sort_unstable();
    events
}

impl State<'_> {
    /// Time passes.
    fn advance(&mut self, at_ns: u64, found: &mut Waiting) {
        let passed_ns = at_ns.saturating_sub(self.at_ns) as f64;
        self.at_ns = at_ns;
        let waiting = self.waiting_len as f64;
        match self.weights {
            0 if self.is_within => found.unexplained_ns += passed_ns * waiting,
            0 => {}
            weights => {
                let busy = weights as f64 / MILLION;
                self.caused_sum += passed_ns * waiting / busy;
                self.share_sum += passed_ns / busy;
            }
        }
    }

    fn queue(&mut self, run: u32) {
        self.waiting_len += 1;
        self.marks[run as usize].share_at_queue = self.share_sum;
    }

    fn start(&mut self, index: u32, found: &mut Waiting) {
        let run = self.runs[index as usize];
        // All requests of a loop have the same one, and the last that began has freed nothing.
        let before = match run.held.is_loop() {
            true => None,
            false => self.last_of_worker.insert(run.worker, index),
        };
        self.marks[index as usize].share_at_start = self.share_sum;
        self.marks[index as usize].caused_at_start = self.caused_sum;
        if run.has_waited {
            // Times of a log may be anything: a start that is sorted before its own arrival was never counted.
            self.waiting_len = self.waiting_len.saturating_sub(1);
            // The start of an earlier slice was accounted for then.
            if run.started_ns > self.slice.from_ns || self.slice.from_ns == 0 {
                let held = |before: &u32| self.runs[*before as usize].ended_ns > run.queued_ns;
                self.waited(index, before.filter(held), found);
            }
        }
        if run.ended_ns > run.started_ns {
            self.places[index as usize] = self.busy.len() as u32;
            self.busy.push(index);
            self.weights += u64::from(run.held.weight());
            self.routes[usize::from(run.route)].0 += 1;
        }
    }

    fn waited(&mut self, index: u32, freed_worker: Option<u32>, found: &mut Waiting) {
        let run = self.runs[index as usize];
        let queue_ns = run.started_ns - run.queued_ns;
        found.waited_len += 1;
        found.loop_len += u64::from(run.held.is_loop());
        found.waited_ns = found.waited_ns.saturating_add(queue_ns);
        let own = &mut found.routes[usize::from(run.route)];
        own.waited_len += 1;
        own.waited_ns = own.waited_ns.saturating_add(queue_ns);
        own.waited_max = own.waited_max.max(Nanos(queue_ns));
        for (route, (busy_len, ended_ns)) in found.routes.iter_mut().zip(&self.routes) {
            // Either it runs now, or its last run ended while this one waited.
            let was_in_progress = *busy_len > 0 || *ended_ns > run.queued_ns;
            route.delayed_len += u64::from(was_in_progress);
        }
        if queue_ns <= found.bar_ns() {
            return;
        }
        let at = self
            .longest
            .partition_point(|(kept_ns, ..)| *kept_ns >= queue_ns);
        if at < found.longest_len_max {
            self.longest.insert(at, (queue_ns, index, freed_worker));
            self.longest.truncate(found.longest_len_max);
        }
    }

    fn end(&mut self, index: u32, found: &mut Waiting) {
        let run = self.runs[index as usize];
        self.marks[index as usize].share_at_end = self.share_sum;
        let place = self.places[index as usize];
        assert_eq!(
            self.busy.get(place as usize),
            Some(&index),
            "a run that ends was in progress"
        );
        self.busy.swap_remove(place as usize);
        self.weights -= u64::from(run.held.weight());
        // The last one has moved into the gap, unless it was the one that ended.
        if let Some(moved) = self.busy.get(place as usize) {
            self.places[*moved as usize] = place;
        }
        let route = &mut self.routes[usize::from(run.route)];
        *route = (route.0 - 1, run.ended_ns);
        if self.is_within {
            self.account(index, found);
        }
    }

    /// What the run has caused within the slice.
    fn account(&self, index: u32, found: &mut Waiting) {
        let route = usize::from(self.runs[index as usize].route);
        let since = self.marks[index as usize].caused_at_start;
        let weight = f64::from(self.runs[index as usize].held.weight()) / MILLION;
        found.routes[route].caused_ns += (self.caused_sum - since) * weight;
    }

    fn begin_slice(&mut self) {
        self.is_within = true;
        // What they caused before was accounted for then.
        for run in &self.busy {
            self.marks[*run as usize].caused_at_start = self.caused_sum;
        }
    }

    fn end_slice(&mut self, found: &mut Waiting) {
        for run in &self.busy {
            self.account(*run, found);
        }
    }

    /// Whom a request has waited for; called at the end, when all its marks are made.
    fn numbered(&self, index: u32, freed_worker: Option<u32>) -> NumberedWait {
        let (wait, marks) = (self.runs[index as usize], self.marks[index as usize]);
        let overlapping = self.runs.iter().zip(&self.marks).zip(0_u32..);
        let (mut holders, mut blocked_by) = (Vec::new(), None);
        for ((run, of_run), holder) in overlapping {
            let begin_ns = run.started_ns.max(wait.queued_ns);
            let end_ns = run.ended_ns.min(wait.started_ns);
            if begin_ns >= end_ns || holder == index {
                continue;
            }
            // The sum of shares is noted wherever a run or a wait begins or ends: the later begin and the earlier end
            // bound what both have in common.
            let share_at_begin = match run.started_ns >= wait.queued_ns {
                true => of_run.share_at_start,
                false => marks.share_at_queue,
            };
            let share_at_end = match run.ended_ns <= wait.started_ns {
                true => of_run.share_at_end,
                false => marks.share_at_start,
            };
            let weight = f64::from(run.held.weight()) / MILLION;
            let share = (share_at_end - share_at_begin) * weight;
            if run.held.has_blocked(wait.held) {
                blocked_by = Some(holder);
            }
            holders.push((holder, share, end_ns - begin_ns));
        }
        NumberedWait {
            run: index,
            holders,
            freed_worker,
            blocked_by,
        }
    }
}

impl NumberedWait {
    /// With the names of its runs.
    pub(super) fn named(
        mut self,
        runs: &[Run],
        utc_offset_secs: i32,
        text: impl Fn(u32) -> Request,
    ) -> Wait {
        let wait = &runs[self.run as usize];
        // The one that freed the worker, or blocked the loop, is named, however small its share.
        let has_freed = |holder: &(u32, f64, u64)| self.freed_worker == Some(holder.0);
        let has_blocked = |holder: &(u32, f64, u64)| self.blocked_by == Some(holder.0);
        let is_named_first = |holder: &(u32, f64, u64)| has_freed(holder) || has_blocked(holder);
        self.holders.sort_by(|one, two| {
            let by_worker = is_named_first(two).cmp(&is_named_first(one));
            by_worker.then(two.1.total_cmp(&one.1))
        });
        let named_len = self.holders.len().min(HOLDERS_LEN_MAX);
        let (named, others) = self.holders.split_at(named_len);
        Wait {
            queue: Nanos(wait.started_ns - wait.queued_ns),
            queued_ns: wait.queued_ns,
            utc_offset_secs,
            request: text(self.run),
            holders: named
                .iter()
                .map(|holder| Holder {
                    request: text(holder.0),
                    share_ns: holder.1,
                    overlap: Nanos(holder.2),
                    freed_worker: has_freed(holder),
                    blocked_loop: has_blocked(holder),
                })
                .collect(),
            others_len: others.len() as u64,
            others_ns: others.iter().map(|holder| holder.1).sum(),
        }
    }
}
