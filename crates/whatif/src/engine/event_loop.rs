//! The event loop of one process: the steps of its requests run one after another, and what a request waits for between two
//! steps does not hold the loop.
//!
//! Takes requests that begin and the time, gives what happens to them. Decides how many may be inside, as the server does,
//! but takes none from a queue: it says when it looks, and the simulation gives it what may begin.
//!
//! ```text
//! call ─► look ─► begin ─┐          ┌── waits (for a database, a timer, a client) ◄─┐
//!                        └─► ready ─┴─► step ──────────────────────────────────────►┴─► ended
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use telemetry::{Nanos, Stamp};

use crate::{Lifetime, LoopPlan, LoopSteps};

use super::pool::Work;

/// As the server has it: a loop for which what is ready waits longer does not keep up.
const LAG_MAX: Nanos = Nanos::from_ms(20);
/// How long that holds.
const BEHIND_FOR: Nanos = Nanos::from_ms(100);
/// Windows in which the server measures how busy a loop is.
const WINDOW: Nanos = Nanos::from_secs(1);
/// A loop that is busy for as much of a window does not keep up from then on.
const SATURATED: Nanos = Nanos::from_ms(950);
/// Until it is busy for less of one.
const RELIEVED: Nanos = Nanos::from_ms(850);
/// When a loop that does not keep up looks again.
const LOOK_DELAY: Nanos = Nanos::from_ms(10);
/// Requests that begin in one look.
const BEGUN_LEN_MAX: usize = 32;
/// More steps of one request are simulated as so many: a connection that lives for days has millions.
const STEPS_LEN_MAX: u32 = 4_096;

/// One event loop.
#[derive(Debug)]
pub(super) struct EventLoop {
    plan: LoopPlan,
    /// The first one runs next.
    ready: VecDeque<Callback>,
    running: Option<Running>,
    /// Tasks that wait for something else, by the moment when that is there, then by their turn.
    waiting: BinaryHeap<Reverse<(Stamp, u64, u32)>>,
    turns: u64,
    tasks: Vec<Task>,
    /// Places among the tasks that are free.
    free: Vec<u32>,
    /// Requests that count among those that may be inside.
    inside: usize,
    /// Since when a look is awaited, if none has come since.
    called: Option<Stamp>,
    /// When a sleeping loop wakes, or a delayed look is due.
    look_at: Stamp,
    behind_until: Stamp,
    load: LoopBusy,
    /// Requests that this look has begun.
    begun: usize,
    stopped: Option<Stamp>,
}

#[derive(Clone, Copy, Debug)]
enum Callback {
    Look,
    Step(u32),
}

/// A step, with all that it takes of the loop.
#[derive(Clone, Copy, Debug)]
struct Running {
    task: u32,
    ends: Stamp,
    took: Nanos,
}

/// How busy the loop is, in windows one after another. A step counts where it ends, and for no more than one window: the
/// look behind a longer one finds a loop that does not keep up.
#[derive(Clone, Copy, Debug, Default)]
struct LoopBusy {
    /// Number of the window.
    window: u64,
    busy: Nanos,
    is_saturated: bool,
}

/// A request inside the loop.
#[derive(Clone, Copy, Debug, Default)]
struct Task {
    work: Work,
    pool: u32,
    lifetime: Lifetime,
    steps_len: u32,
    done_len: u32,
    longest: Nanos,
    /// Which step is the longest.
    longest_at: u32,
    /// Every other one.
    step: Nanos,
    /// The wait between two steps.
    gap: Nanos,
    /// What it costs to begin it, where that is known.
    begin: Option<Nanos>,
    /// It still counts among those inside.
    counts: bool,
}

/// What has happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum LoopEvent {
    /// Nothing that matters outside.
    Moved,
    /// The loop looks for requests: as long as [`EventLoop::may_begin`] says so it takes one after another.
    Looks,
    /// The first step of a request has begun.
    Began { work: Work, pool: u32 },
    /// A step took the loop for so long.
    Stepped { pool: u32, took: Nanos },
    /// A step took the loop for so long, and was the last one.
    Ended {
        work: Work,
        pool: u32,
        lifetime: Lifetime,
        took: Nanos,
    },
}

impl EventLoop {
    pub(super) fn new(plan: LoopPlan) -> EventLoop {
        EventLoop {
            plan,
            ready: VecDeque::new(),
            running: None,
            waiting: BinaryHeap::new(),
            turns: 0,
            tasks: Vec::new(),
            free: Vec::new(),
            inside: 0,
            called: None,
            look_at: Stamp::NEVER,
            behind_until: Stamp::ZERO,
            load: LoopBusy::default(),
            begun: 0,
            stopped: None,
        }
    }

    /// The time of its next event, if nothing is called before.
    pub(super) fn next(&self) -> Stamp {
        if self.stopped.is_some() {
            return Stamp::NEVER;
        }
        let runs = match self.running {
            Some(running) => running.ends,
            None if !self.ready.is_empty() => Stamp::ZERO,
            None => Stamp::NEVER,
        };
        let waits = self.waiting.peek();
        let waits = waits.map_or(Stamp::NEVER, |Reverse((at, ..))| *at);
        runs.min(waits).min(self.look_at)
    }

    /// A request has come to a queue of the loop, or there is room for one that waits. A loop that sleeps needs `wake`.
    pub(super) fn call(&mut self, now: Stamp, wake: Nanos) {
        // A delayed look is no reason to wait for it.
        if self.called.is_some_and(|called| called <= now) {
            return;
        }
        self.called = Some(now);
        if self.is_asleep() {
            self.look_at = self.look_at.min(now.plus(wake));
        } else {
            self.ready.push_back(Callback::Look);
        }
    }

    /// How many more may begin now.
    pub(super) fn free_len(&self, now: Stamp) -> usize {
        self.allowed(now).saturating_sub(self.inside)
    }

    /// Whether this look may begin one more of the `waiting_len` that wait.
    pub(super) fn may_begin(&mut self, now: Stamp, waiting_len: usize) -> bool {
        if waiting_len == 0 {
            return false;
        }
        if self.free_len(now) == 0 {
            // As many as may ever be inside: the next one that ends calls. Else the loop has to find out by itself that it
            // keeps up again.
            if self.inside < self.plan.concurrency.max {
                self.called = Some(now.plus(LOOK_DELAY));
                self.look_at = self.look_at.min(now.plus(LOOK_DELAY));
            }
            return false;
        }
        if self.begun == BEGUN_LEN_MAX {
            self.called = Some(now);
            self.ready.push_back(Callback::Look);
            return false;
        }
        true
    }

    /// A request that was taken from a queue is inside; its first step follows when the loop comes to it.
    pub(super) fn begin(&mut self, work: Work, pool: u32, place: f64) {
        let steps = work.job.steps;
        let run = work.job.need.run;
        let task = Task::new(work, pool, steps, run, place);
        let number = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(Task::default());
            self.tasks.len() as u32 - 1
        });
        self.tasks[number as usize] = task;
        self.inside += 1;
        self.begun += 1;
        self.ready.push_back(Callback::Step(number));
    }

    /// What is due at `now`.
    pub(super) fn step(&mut self, now: Stamp) -> LoopEvent {
        // What ends at a moment ends before anything else of that moment.
        if let Some(running) = self.running.take_if(|running| running.ends <= now) {
            self.load.add(now, running.took);
            return self.end_step(now, running.task);
        }
        if self.look_at <= now {
            self.look_at = Stamp::NEVER;
            self.ready.push_back(Callback::Look);
            return LoopEvent::Moved;
        }
        if let Some(Reverse((at, _, task))) = self.waiting.peek().copied()
            && at <= now
        {
            self.waiting.pop();
            self.ready.push_back(Callback::Step(task));
            return LoopEvent::Moved;
        }
        match self.ready.pop_front() {
            None => LoopEvent::Moved,
            Some(Callback::Look) => {
                self.look(now);
                LoopEvent::Looks
            }
            Some(Callback::Step(task)) => self.begin_step(now, task),
        }
    }

    /// Nothing advances from `now` on.
    pub(super) fn stop(&mut self, now: Stamp) {
        self.stopped = Some(now);
    }

    /// All advance from `now` on.
    pub(super) fn resume(&mut self, now: Stamp) {
        let Some(stopped) = self.stopped.take() else {
            return;
        };
        let lost = now.since(stopped);
        if let Some(running) = &mut self.running {
            running.ends = running.ends.plus(lost);
        }
        // What tasks wait for stands still as well, as the requests of a pool of threads do.
        let waiting = std::mem::take(&mut self.waiting);
        let later = |Reverse((at, turn, task)): Reverse<(Stamp, u64, u32)>| {
            Reverse((at.plus(lost), turn, task))
        };
        self.waiting = waiting.into_iter().map(later).collect();
        if self.look_at != Stamp::NEVER {
            self.look_at = self.look_at.plus(lost);
        }
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.ready.capacity() + self.waiting.capacity() + self.tasks.capacity()
    }

    fn is_asleep(&self) -> bool {
        self.running.is_none() && self.ready.is_empty()
    }

    fn allowed(&self, now: Stamp) -> usize {
        match now < self.behind_until || self.load.is_saturated {
            true => self.plan.concurrency.min,
            false => self.plan.concurrency.max,
        }
    }

    fn look(&mut self, now: Stamp) {
        // A delayed look is awaited from the moment for which it was planned.
        let waited = self
            .called
            .take()
            .map_or(Nanos::ZERO, |called| now.since(called));
        if waited > LAG_MAX {
            self.behind_until = now.plus(BEHIND_FOR);
        }
        self.load.end_windows(now);
        self.begun = 0;
    }

    fn begin_step(&mut self, now: Stamp, number: u32) -> LoopEvent {
        let task = &mut self.tasks[number as usize];
        let is_first = task.done_len == 0;
        let took = match task.done_len == task.longest_at {
            true => task.longest,
            false => task.step,
        };
        // To begin a request costs the loop something that no step of it shows.
        let took = match is_first {
            true => {
                let begin = task.begin.unwrap_or(self.plan.begin);
                Nanos(took.0.saturating_add(begin.0))
            }
            false => took,
        };
        let ends = now.plus(took);
        self.running = Some(Running {
            task: number,
            ends,
            took,
        });
        if !is_first {
            return LoopEvent::Moved;
        }
        task.work.started = now;
        LoopEvent::Began {
            work: task.work,
            pool: task.pool,
        }
    }

    fn end_step(&mut self, now: Stamp, number: u32) -> LoopEvent {
        let task = &mut self.tasks[number as usize];
        let took = match task.done_len == task.longest_at {
            true => task.longest,
            false => task.step,
        };
        task.done_len += 1;
        let (pool, is_over) = (task.pool, task.done_len >= task.steps_len);
        // A WebSocket connection that was accepted, which its first step stands for, counts no longer.
        if task.counts && (is_over || task.lifetime == Lifetime::WebSocket) {
            task.counts = false;
            assert!(self.inside > 0, "a request leaves an empty loop");
            self.inside -= 1;
        }
        if is_over {
            let (work, lifetime) = (task.work, task.lifetime);
            self.free.push(number);
            return LoopEvent::Ended {
                work,
                pool,
                lifetime,
                took,
            };
        }
        if task.gap == Nanos::ZERO {
            self.ready.push_back(Callback::Step(number));
        } else {
            self.turns += 1;
            let at = now.plus(task.gap);
            self.waiting.push(Reverse((at, self.turns, number)));
        }
        LoopEvent::Stepped { pool, took }
    }
}

impl LoopBusy {
    /// A step that took so long ends.
    fn add(&mut self, now: Stamp, took: Nanos) {
        self.end_windows(now);
        self.busy = Nanos(self.busy.0.saturating_add(took.0));
    }

    /// Judges the windows that are over.
    fn end_windows(&mut self, now: Stamp) {
        let window = now.0 / WINDOW.0;
        if window == self.window {
            return;
        }
        let least = match self.is_saturated {
            true => RELIEVED,
            false => SATURATED,
        };
        // Nothing has ended in the ones between.
        let is_last = window == self.window + 1;
        self.is_saturated = is_last && self.busy >= least;
        (self.window, self.busy) = (window, Nanos::ZERO);
    }
}

impl Task {
    /// `place`, from 0 to 1, says which of its steps is the longest: no log does.
    fn new(work: Work, pool: u32, steps: LoopSteps, run: Nanos, place: f64) -> Task {
        let steps_len = steps.len.clamp(1, STEPS_LEN_MAX);
        let (longest, rest) = match steps_len {
            1 => (steps.busy, Nanos::ZERO),
            _ => (
                steps.longest.min(steps.busy),
                Nanos(steps.busy.0.saturating_sub(steps.longest.0)),
            ),
        };
        let others_len = u64::from(steps_len.saturating_sub(1)).max(1);
        Task {
            work,
            pool,
            lifetime: steps.lifetime,
            steps_len,
            done_len: 0,
            longest,
            longest_at: ((place * f64::from(steps_len)) as u32).min(steps_len - 1),
            step: Nanos(rest.0 / others_len),
            gap: Nanos(run.0.saturating_sub(steps.busy.0) / others_len),
            begin: steps.begin,
            counts: true,
        }
    }
}
