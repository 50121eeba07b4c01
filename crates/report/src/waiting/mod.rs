//! Which requests made others wait: the runs for which requests waited, and their routes.
//!
//! Takes lines that name workers, gives the waiting that each route caused, and the longest waits with the
//! runs that held the workers meanwhile. Every nanosecond of a wait is shared equally among the runs that were
//! in progress in the same pool of the same process. Opens nothing and prints nothing.
//!
//! ```text
//! line ─► Run ─► window (bounded) ─► sweep (by pool, in the order of time) ─► Waiting
//! ```

mod sweep;
mod window;

use std::collections::HashMap;

use telemetry::{Line, Nanos, push_folded};

use crate::recorded::path;
use window::{Held, Label, Run, Window};

/// A shorter wait is the time that a thread takes to wake up: no run caused it.
pub const WAIT_MIN: Nanos = Nanos::from_ms(1);
/// Most routes. Later ones count together: a log may have a path for each request.
const ROUTES_LEN_MAX: usize = 500;
/// Runs that are named for each wait, the longest first: a wait may have thousands.
const HOLDERS_LEN_MAX: usize = 4;
/// Waits of one sentence.
const SENTENCE_LEN_MAX: usize = 8;
/// Characters of a name in it.
const NAME_CHARS_MAX: usize = 60;
/// The part of a wait that one worker's runs must be.
const EXPLAINED_MIN: f64 = 0.9;

/// What requests waited for.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    /// Requests that waited longer than [`WAIT_MIN`].
    pub waited_len: u64,
    /// How long, together.
    pub waited_ns: u64,
    /// Those of them that waited for an event loop.
    pub loop_len: u64,
    /// What of that no run in the log explains.
    pub unexplained_ns: f64,
    /// Routes that ran, those that caused the most waiting first.
    pub routes: Vec<RouteWaiting>,
    /// The longest waits, the longest first.
    pub longest: Vec<Wait>,
    /// Lines that came too late for the window: waiting at their beginning is put down to other runs.
    pub late_len: u64,
    /// Requests that waited whose line names no worker; they are not in `waited_len`.
    pub unnamed_len: u64,
    /// Why nothing can be said, although requests waited.
    pub missing: Option<Missing>,
    /// How many of the longest waits are kept.
    pub(crate) longest_len_max: usize,
}

/// What a log does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Which worker ran what.
    Workers,
    /// When requests arrived, to the microsecond.
    Microseconds,
}

/// The waiting that the runs of one route caused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteWaiting {
    /// The method and the folded path.
    pub name: String,
    /// Its runs.
    pub runs_len: u64,
    /// How long they took, together.
    pub run_ns: u64,
    /// Its share of the waiting of others.
    pub caused_ns: f64,
    /// Requests that waited while one of its runs was in progress.
    pub delayed_len: u64,
    /// Its own requests that waited.
    pub waited_len: u64,
    /// How long, together.
    pub waited_ns: u64,
    /// How long at most.
    pub waited_max: Nanos,
}

/// A request that waited.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// How long.
    pub queue: Nanos,
    /// When it came to the queue, nanoseconds since 1970.
    pub queued_ns: u64,
    /// The offset that its time was written at.
    pub utc_offset_secs: i32,
    /// Which one.
    pub request: Request,
    /// The runs that it waited for, those with the largest shares; [`Holder::freed_worker`] is among them.
    pub holders: Vec<Holder>,
    /// How many more there were.
    pub others_len: u64,
    /// Their shares, together.
    pub others_ns: f64,
}

/// A run that others waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// Whose run.
    pub request: Request,
    /// Its share of the wait.
    pub share_ns: f64,
    /// How much of the wait it was in progress.
    pub overlap: Nanos,
    /// Its end freed the worker that took the one that waited.
    pub freed_worker: bool,
    /// One of its steps blocked the event loop while the other one waited.
    pub blocked_loop: bool,
}

/// What requests waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitRunner {
    /// Threads.
    Worker,
    /// Event loops.
    EventLoop,
    /// Some for threads, some for event loops.
    Both,
}

/// What a request is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its id.
    pub id: Vec<u8>,
    /// Its method.
    pub method: Vec<u8>,
    /// Its target.
    pub target: Vec<u8>,
}

impl Waiting {
    /// What a further wait must exceed.
    pub(super) fn bar_ns(&self) -> u64 {
        match self.longest.len() < self.longest_len_max {
            true => 0,
            false => self.longest.last().map_or(u64::MAX, |last| last.queue.0),
        }
    }

    pub(super) fn insert(&mut self, wait: Wait) {
        let at = self
            .longest
            .partition_point(|kept| kept.queue >= wait.queue);
        self.longest.insert(at, wait);
        self.longest.truncate(self.longest_len_max);
    }

    /// What they waited for: threads, event loops, or some for this and some for that.
    pub fn runner(&self) -> WaitRunner {
        match self.loop_len {
            0 => WaitRunner::Worker,
            len if len == self.waited_len => WaitRunner::EventLoop,
            _ => WaitRunner::Both,
        }
    }

    /// Which runs the longest waits were, where each of them was the runs of one worker and its target names each request:
    /// `the queue time of /4, /5 is the run time of /2, /3`. In all other logs the table says more.
    pub fn sentence(&self) -> Option<String> {
        let longest = &self.longest[..self.longest.len().min(SENTENCE_LEN_MAX)];
        let pair = |wait| Some((wait, &self.explaining(wait)?.request));
        let mut pairs: Vec<(&Wait, &Request)> = longest.iter().map(pair).collect::<Option<_>>()?;
        if !are_named(&pairs) {
            return None;
        }
        // First the longest are chosen, then they are told in the order in which they came.
        pairs.sort_by_key(|(wait, _)| wait.queued_ns);
        let name = |request: &Request| present::harmless(&request.target, NAME_CHARS_MAX);
        let waits: Vec<String> = pairs.iter().map(|(wait, _)| name(&wait.request)).collect();
        let mut runs: Vec<String> = pairs.iter().map(|(_, run)| name(run)).collect();
        runs.dedup();
        Some(format!(
            "the queue time of {} is the run time of {}",
            waits.join(", "),
            runs.join(", ")
        ))
    }

    /// The run that a wait was: it freed the worker, or blocked the event loop. A run that waited itself counts together
    /// with the one that freed the same worker for it.
    fn explaining<'w>(&self, wait: &'w Wait) -> Option<&'w Holder> {
        let first = cause(wait)?;
        let holder_of = |request: &Request| {
            let mut holders = wait.holders.iter();
            holders.find(|holder| holder.request == *request)
        };
        let (mut explained_ns, mut last) = (first.overlap.0, first);
        for _ in 0..HOLDERS_LEN_MAX {
            let mut waits = self.longest.iter();
            let before = waits
                .find(|one| one.request == last.request)
                .and_then(cause)
                .and_then(|before| holder_of(&before.request));
            let Some(before) = before else {
                break;
            };
            explained_ns = explained_ns.saturating_add(before.overlap.0);
            last = before;
        }
        let is_most = first.overlap.0 >= wait.queue.0 / 2;
        (is_most && explained_ns as f64 >= EXPLAINED_MIN * wait.queue.0 as f64).then_some(first)
    }
}

/// The run whose end ended a wait.
fn cause(wait: &Wait) -> Option<&Holder> {
    let is_cause = |holder: &&Holder| holder.freed_worker || holder.blocked_loop;
    wait.holders.iter().find(is_cause)
}

/// Whether targets tell all these requests apart. One run may have held up all of the others.
fn are_named(pairs: &[(&Wait, &Request)]) -> bool {
    let Some((_, first)) = pairs.first() else {
        return false;
    };
    let is_one_run = !first.id.is_empty() && pairs.iter().all(|(_, run)| run == first);
    let runs_len = if is_one_run { 1 } else { pairs.len() };
    let waits: HashMap<&[u8], &Request> = pairs
        .iter()
        .map(|(wait, _)| (&wait.request.target[..], &wait.request))
        .collect();
    let runs: HashMap<&[u8], &Request> = pairs
        .iter()
        .map(|(_, run)| (&run.target[..], *run))
        .collect();
    // A run may be one of the requests that waited.
    let is_same = |(target, run): (&&[u8], &&Request)| {
        waits
            .get(target)
            .is_none_or(|wait| wait == run && !run.id.is_empty())
    };
    waits.len() == pairs.len() && runs.len() == runs_len && runs.iter().all(is_same)
}

/// Takes lines.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    window: Window,
    found: Waiting,
    routes: HashMap<Vec<u8>, u16>,
    key: Vec<u8>,
    named_len: u64,
    /// Those of them whose arrival is no whole second.
    fine_len: u64,
    unnamed_len: u64,
    utc_offset_secs: i32,
}

impl Collector {
    /// Nothing yet; of the longest waits so many are kept.
    pub(crate) fn new(longest_len_max: usize) -> Collector {
        Collector {
            window: Window::default(),
            found: Waiting {
                longest_len_max,
                ..Waiting::default()
            },
            routes: HashMap::new(),
            key: Vec::new(),
            named_len: 0,
            fine_len: 0,
            unnamed_len: 0,
            utc_offset_secs: 0,
        }
    }

    /// Takes a line. Runs of all lines hold workers, whatever the report is about; waits count where the line
    /// does (`counts`).
    #[inline]
    pub(crate) fn take(&mut self, line: &Line<'_>, counts: bool) {
        let (Some(wall_ns), Some(queue), Some(run)) =
            (line.wall_ns, line.spans.queue, line.spans.run)
        else {
            return;
        };
        // It is logged when its client leaves, long after those that waited for it, and hardly holds anything.
        if line.is_long_lived() {
            return;
        }
        // A request that found an idle thread waited for its wake-up, and for no other request. An event loop may be
        // idle as far as its queue goes, and run a step.
        let has_found_idle = line.queued.from_queue == Some(false) && !line.is_of_loop();
        let has_waited = queue > WAIT_MIN && !has_found_idle;
        let worker = match line.worker {
            // A dash: a driver answered, and held no worker.
            Some(b"") => return,
            Some(worker) => worker,
            None => {
                self.unnamed_len += u64::from(has_waited && counts);
                return;
            }
        };
        self.named_len += 1;
        // Where all times are whole seconds, which held which cannot be told: this number decides.
        self.fine_len += u64::from(!wall_ns.is_multiple_of(1_000_000_000));
        self.utc_offset_secs = line.utc_offset_secs;
        let receive = line.spans.receive.unwrap_or_default();
        let queued_ns = wall_ns.saturating_add(receive.0);
        let started_ns = queued_ns.saturating_add(queue.0);
        let route = self.route(line);
        let of_route = &mut self.found.routes[usize::from(route)];
        of_route.runs_len += 1;
        of_route.run_ns = of_route.run_ns.saturating_add(run.0);
        let run = Run {
            queue: window::queue_key(line),
            worker: window::worker_key(worker),
            queued_ns,
            started_ns,
            ended_ns: started_ns.saturating_add(run.0),
            label: Label::default(),
            held: Held::of(line, run),
            route,
            has_waited: has_waited && counts,
        };
        self.window.push(run, line, &mut self.found);
    }

    /// What is known by now.
    pub(crate) fn waiting(&self) -> Waiting {
        let (mut window, mut found) = (self.window.clone(), self.found.clone());
        window.settle_all(&mut found, self.utc_offset_secs);
        found
            .routes
            .sort_by(|one, two| two.caused_ns.total_cmp(&one.caused_ns));
        let missing = match (self.named_len, self.fine_len) {
            (0, _) if self.unnamed_len > 0 => Some(Missing::Workers),
            (1.., 0) if found.waited_len > 0 => Some(Missing::Microseconds),
            _ => None,
        };
        if missing.is_some() {
            // What was worked out of whole seconds is worth nothing.
            return Waiting {
                unnamed_len: self.unnamed_len,
                missing,
                ..Waiting::default()
            };
        }
        found.unnamed_len = self.unnamed_len;
        found
    }

    fn route(&mut self, line: &Line<'_>) -> u16 {
        self.key.clear();
        push_folded(line.method, &path(line), &mut self.key);
        if let Some(route) = self.routes.get(&self.key) {
            return *route;
        }
        let routes = &mut self.found.routes;
        // A client that invents paths must not make the report grow: what comes late is counted together.
        if routes.len() == ROUTES_LEN_MAX {
            self.key.clear();
            self.key.extend_from_slice(b"others");
        }
        let last = routes.len().min(ROUTES_LEN_MAX) as u16;
        let route = *self.routes.entry(self.key.clone()).or_insert(last);
        if usize::from(route) == routes.len() {
            routes.push(RouteWaiting {
                name: String::from_utf8_lossy(self.key.trim_ascii()).into_owned(),
                ..RouteWaiting::default()
            });
        }
        route
    }
}

#[cfg(test)]
mod tests;
