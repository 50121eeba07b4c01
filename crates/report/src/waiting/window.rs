//! The runs of the last while: what a sweep looks at.
//!
//! Takes runs in the order of the log, which is that of their ends, more or less; gives the older half to the
//! sweep whenever it is full. Its size has a bound, whatever the length of the log.

use std::hash::{DefaultHasher, Hash, Hasher};

use telemetry::{Line, Nanos};

use super::sweep::{self, Slice};
use super::{Request, Waiting};
use crate::event_loops::id_of;

/// Runs that are kept: about 25 MB with their names. A run of a route that takes longer than the server needs
/// to write half as many lines comes too late, and the report says so.
const RUNS_LEN_MAX: usize = 1 << 17;
/// A line that is so much older than what is settled begins another log.
const REWIND_NS: u64 = 60_000_000_000;
/// Bytes kept of an id, a method and a target.
const NAME_BYTES_MAX: [usize; 3] = [64, 16, 120];

/// One run, and the wait before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The pool of one process: one queue.
    pub(super) queue: u64,
    pub(super) worker: u64,
    pub(super) queued_ns: u64,
    pub(super) started_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) label: Label,
    pub(super) held: Held,
    pub(super) route: u16,
    /// It waited, and its wait counts.
    pub(super) has_waited: bool,
}

/// What a run held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    /// A worker, from its begin to its end.
    Worker,
    /// An event loop, in its steps.
    EventLoop {
        /// The part of its run that it held the loop, in millionths; at least 1, because it also took a place among the
        /// requests inside.
        part: u32,
        /// A number in the place of its id.
        id: u64,
        /// The same of the request whose step blocked the loop while this one waited; `None` for none.
        blocked_by: Option<u64>,
    },
}

/// All of a run.
const WHOLE: u32 = 1_000_000;

impl Held {
    pub(super) fn of(line: &Line<'_>, run: Nanos) -> Held {
        let own = &line.event_loop;
        let Some(busy) = own.busy.filter(|_| line.is_of_loop()) else {
            return Held::Worker;
        };
        let part = busy.0 as f64 / (run.0 as f64).max(1.0);
        let blocked_by = own.blocked_by;
        Held::EventLoop {
            part: (part * f64::from(WHOLE)).clamp(1.0, f64::from(WHOLE)) as u32,
            id: id_of(&line.plain(line.id)),
            blocked_by: (!blocked_by.is_empty()).then(|| id_of(blocked_by)),
        }
    }

    /// How much of what it ran on it held, in the mean: what it counts among the runs of the same moment.
    pub(super) fn weight(self) -> u32 {
        match self {
            Held::Worker => WHOLE,
            Held::EventLoop { part, .. } => part,
        }
    }

    /// Whether a step of this one blocked the loop while `other` waited.
    pub(super) fn has_blocked(self, other: Held) -> bool {
        match (self, other) {
            (Held::EventLoop { id, .. }, Held::EventLoop { blocked_by, .. }) => {
                blocked_by == Some(id)
            }
            _ => false,
        }
    }

    pub(super) fn is_loop(self) -> bool {
        matches!(self, Held::EventLoop { .. })
    }
}

/// Where the names of a run are in the window's text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Label {
    at: u32,
    lens: [u8; 3],
}

/// The runs, and their names.
#[derive(Clone, Debug)]
pub(super) struct Window {
    runs: Vec<Run>,
    runs_len_max: usize,
    text: Vec<u8>,
    /// What is before this moment has been swept.
    settled_ns: u64,
}

/// Numbers in the place of names: there are as many processes and workers as restarts. That two of a window
/// have the same number happens once in 10^9 logs.
fn hashed(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

pub(super) fn queue_key(line: &Line<'_>) -> u64 {
    hashed(&[line.process, line.pool])
}

pub(super) fn worker_key(worker: &[u8]) -> u64 {
    hashed(&[worker])
}

impl Default for Window {
    fn default() -> Window {
        Window::with_room(RUNS_LEN_MAX)
    }
}

impl Window {
    pub(super) fn with_room(runs_len_max: usize) -> Window {
        Window {
            runs: Vec::new(),
            runs_len_max,
            text: Vec::new(),
            settled_ns: 0,
        }
    }

    /// Keeps the names of a line.
    fn label(&mut self, line: &Line<'_>) -> Label {
        // At most 200 bytes for each of the runs, so the place fits.
        let mut label = Label {
            at: self.text.len() as u32,
            lens: [0; 3],
        };
        for (index, field) in [line.id, line.method, line.target].into_iter().enumerate() {
            let text = line.plain(field);
            let len = text.len().min(NAME_BYTES_MAX[index]);
            self.text.extend_from_slice(&text[..len]);
            label.lens[index] = len as u8;
        }
        label
    }

    /// Takes the run of a line.
    pub(super) fn push(&mut self, mut run: Run, line: &Line<'_>, found: &mut Waiting) {
        if run.ended_ns.saturating_add(REWIND_NS) < self.settled_ns {
            self.settle_all(found, line.utc_offset_secs);
            self.settled_ns = 0;
        }
        // What waited before, waited for it too; the sweep of that time did not know of it.
        found.late_len += u64::from(run.started_ns < self.settled_ns);
        run.label = self.label(line);
        self.runs.push(run);
        assert!(
            self.runs.len() <= self.runs_len_max,
            "the window has its bound"
        );
        if self.runs.len() == self.runs_len_max {
            self.settle_older_half(found, line.utc_offset_secs);
        }
    }

    /// The log is at its end.
    pub(super) fn settle_all(&mut self, found: &mut Waiting, utc_offset_secs: i32) {
        self.sweep(u64::MAX, found, utc_offset_secs);
        self.runs.clear();
        self.text.clear();
    }

    fn settle_older_half(&mut self, found: &mut Waiting, utc_offset_secs: i32) {
        let mut ends: Vec<u64> = self.runs.iter().map(|run| run.ended_ns).collect();
        let middle = ends.len() / 2;
        let until_ns = (*ends.select_nth_unstable(middle).1).max(self.settled_ns);
        // Half of the runs end before `until_ns`, so that each sweep makes room for as many lines as it cost.
        self.sweep(until_ns, found, utc_offset_secs);
        self.settled_ns = until_ns;
        // A request that still waits has waited for runs that have ended.
        let still = self
            .runs
            .iter()
            .filter(|run| run.has_waited && run.started_ns > until_ns && run.queued_ns < until_ns);
        let oldest_ns = still
            .map(|run| run.queued_ns)
            .min()
            .unwrap_or(until_ns)
            .min(until_ns);
        self.runs.retain(|run| run.ended_ns > oldest_ns);
        if self.runs.len() > self.runs_len_max / 4 * 3 {
            // The bound is above the history of a few waits.
            self.runs.retain(|run| run.ended_ns > until_ns);
        }
        if self.runs.len() > self.runs_len_max / 4 * 3 {
            // All of the younger half ended in one moment: a clock that stands still is no reason to grow.
            self.runs.clear();
        }
        self.pack();
    }

    fn sweep(&mut self, until_ns: u64, found: &mut Waiting, utc_offset_secs: i32) {
        self.runs.sort_unstable_by_key(|run| run.queue);
        let slice = Slice {
            from_ns: self.settled_ns,
            until_ns,
        };
        for runs in self.runs.chunk_by(|one, two| one.queue == two.queue) {
            let waits = sweep::sweep(runs, slice, found);
            for wait in waits {
                let text = |run: u32| self.request(runs[run as usize].label);
                found.insert(wait.named(runs, utc_offset_secs, text));
            }
        }
    }

    fn request(&self, label: Label) -> Request {
        let [id, method, target] = label.lens.map(usize::from);
        let mut rest = &self.text[label.at as usize..];
        let mut next = |len: usize| {
            let (text, more) = rest.split_at(len);
            rest = more;
            text.to_vec()
        };
        Request {
            id: next(id),
            method: next(method),
            target: next(target),
        }
    }

    /// Lets go of the names of runs that are not there any more.
    fn pack(&mut self) {
        let mut text = Vec::with_capacity(self.text.len() / 2);
        for run in &mut self.runs {
            let len: usize = run.label.lens.into_iter().map(usize::from).sum();
            let at = run.label.at as usize;
            run.label.at = text.len() as u32;
            text.extend_from_slice(&self.text[at..at + len]);
        }
        self.text = text;
    }
}
