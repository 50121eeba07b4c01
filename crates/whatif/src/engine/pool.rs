//! One pool of one process: its queue, its threads and its controller.
//!
//! Takes events, gives the requests that may begin; the engine moves the time. It must not know other
//! pools or how fast requests run.

use std::collections::VecDeque;

use queueing::{
    Admission, Class, Entry, Line, PoolSeen, PoolSettings, PoolState, Pressure, SizeStep, Waiting,
};
use telemetry::{Nanos, Stamp};

use crate::{LoopSteps, PoolOutcome, PoolPlan, RunsOn};

use super::Policy;
use super::process::Need;

/// Without requests for so long, with its fewest threads and calm, a pool is not looked at any more.
const REST_AFTER: Nanos = Nanos::from_secs(10);
/// Without requests for so long a pool will never shrink: longer than controllers remember.
const REST_ALWAYS_AFTER: Nanos = Nanos::from_secs(400);

/// A request in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Job {
    pub number: u64,
    pub need: Need,
    pub steps: LoopSteps,
    pub from_queue: bool,
}

/// A request at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Work {
    pub job: Job,
    pub queued: Stamp,
    pub started: Stamp,
}

pub(super) struct Pool {
    runs_on: RunsOn,
    settings: PoolSettings,
    policy: Box<dyn Policy>,
    state: PoolState,
    line: Line<Job>,
    /// What each thread runs, by its number.
    works: Vec<Work>,
    /// Numbers that no thread has any more.
    free: Vec<u32>,
    /// The thread that went idle last is last.
    idle: VecDeque<u32>,
    /// Threads that there are, those that are being started and those that are leaving included.
    threads: usize,
    /// Threads at work that go when they are done with it.
    leaving: usize,
    running: usize,
    /// Idle threads that were woken for a request in the queue.
    waking: usize,
    /// Those included that were refused at once.
    arrived: u64,
    completed: u64,
    /// At once or after they had waited.
    refused: u64,
    expiry: Stamp,
    /// When something happened last.
    busy: Stamp,
    resting: bool,
    tally: Tally,
}

/// Sums over time.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    since: Stamp,
    waiting_ns: u128,
    waited_ns: u128,
    running_ns: u128,
    /// What requests took of an event loop.
    steps_ns: u128,
    threads_ns: u128,
    threads_max: usize,
    threads_started: u64,
}

impl Pool {
    pub(super) fn new(plan: &PoolPlan) -> Pool {
        let threads = plan.threads.max(1);
        Pool {
            runs_on: plan.runs_on,
            settings: plan.settings,
            policy: (plan.policy)(),
            state: PoolState::default(),
            line: Line::new(&plan.settings),
            works: vec![Work::default(); threads],
            free: Vec::new(),
            idle: (0..threads as u32).rev().collect(),
            threads,
            leaving: 0,
            running: 0,
            waking: 0,
            arrived: 0,
            completed: 0,
            refused: 0,
            expiry: Stamp::NEVER,
            busy: Stamp::ZERO,
            resting: false,
            tally: Tally {
                threads_max: threads,
                ..Tally::default()
            },
        }
    }

    pub(super) fn begin(&mut self, now: Stamp) {
        (self.tally.since, self.busy) = (now, now);
    }

    /// Threads that there are.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    pub(super) fn waiting(&self) -> usize {
        self.line.len()
    }

    pub(super) fn idle_len(&self) -> usize {
        self.idle.len()
    }

    /// When a request may have waited too long; not later than the truth.
    pub(super) fn expiry(&self) -> Stamp {
        self.expiry
    }

    /// A request arrives; whether the pool was resting.
    pub(super) fn rouse(&mut self, now: Stamp) -> bool {
        self.busy = now;
        self.arrived += 1;
        std::mem::take(&mut self.resting)
    }

    pub(super) fn is_resting(&self) -> bool {
        self.resting
    }

    /// Whether one of `class` may join the queue. `free_len` more would be taken at once: that many do not wait.
    pub(super) fn admits(&self, class: Class, free_len: usize) -> bool {
        let found = self.line.waiting(class);
        let waiting = Waiting {
            len: found.len.saturating_sub(free_len),
            ahead: found.ahead.saturating_sub(free_len),
        };
        let found = self
            .policy
            .admit(waiting, class, &self.settings, &self.state);
        found == Admission::Enqueue
    }

    pub(super) fn runs_on(&self) -> RunsOn {
        self.runs_on
    }

    /// Whether an idle thread may take one of `class` that comes now.
    pub(super) fn may_begin(&self, class: Class) -> bool {
        // With no more threads than the reserve, one serves everybody: a pool that serves nobody would be useless.
        let reserve = self.settings.reserve_threads.min(self.size() - 1);
        let is_free = class == Class::Health || self.running + self.waking + reserve < self.size();
        is_free && !self.idle.is_empty()
    }

    pub(super) fn push(&mut self, now: Stamp, class: Class, job: Job) {
        self.pass(now);
        self.line.push(Entry {
            item: job,
            class,
            queued: now,
            before: Nanos::ZERO,
        });
        // A later request waits longer, unless the pool's patience changes.
        if self.expiry == Stamp::NEVER {
            self.expiry = self.line.next_expiry();
        }
    }

    /// The warmest idle thread is called for one in the queue.
    pub(super) fn wake(&mut self) -> Option<u32> {
        let thread = self.idle.pop_back()?;
        self.waking += 1;
        Some(thread)
    }

    /// A thread that was called is awake.
    pub(super) fn woken(&mut self) {
        assert!(self.waking > 0, "a thread wakes that was not called");
        self.waking -= 1;
    }

    /// Gives the thread its next request; without one it is idle from now on.
    pub(super) fn take(&mut self, now: Stamp, thread: u32) -> Option<Work> {
        self.pass(now);
        let Some(entry) = self.line.take(now, self.running, self.size()) else {
            self.idle.push_back(thread);
            return None;
        };
        self.running += 1;
        self.tally.waited_ns += u128::from(now.since(entry.queued).0);
        let work = Work {
            job: entry.item,
            queued: entry.queued,
            started: now,
        };
        self.works[thread as usize] = work;
        Some(work)
    }

    /// Gives the event loop the pool's next request.
    pub(super) fn take_for_loop(&mut self, now: Stamp) -> Option<Work> {
        self.pass(now);
        let entry = self.line.take(now, 0, 1)?;
        self.running += 1;
        self.tally.waited_ns += u128::from(now.since(entry.queued).0);
        Some(Work {
            job: entry.item,
            queued: entry.queued,
            started: now,
        })
    }

    /// A step of one of the pool's requests took the event loop for so long.
    pub(super) fn stepped(&mut self, took: Nanos) {
        self.tally.steps_ns += u128::from(took.0);
    }

    /// What the event loop ran has ended; `ran` is how long, where that says how long requests run.
    pub(super) fn end_on_loop(&mut self, now: Stamp, ran: Option<Nanos>) {
        self.pass(now);
        assert!(self.running > 0, "a request ends and none is at work");
        self.running -= 1;
        self.completed += 1;
        self.busy = now;
        if let Some(ran) = ran {
            self.line.ran(ran);
        }
    }

    /// What the request that the thread runs needs.
    pub(super) fn need(&self, thread: u32) -> Need {
        self.works[thread as usize].job.need
    }

    /// What the thread ran has ended.
    pub(super) fn end(&mut self, now: Stamp, thread: u32) -> Work {
        self.pass(now);
        assert!(self.running > 0, "a request ends and none is at work");
        self.running -= 1;
        self.completed += 1;
        self.busy = now;
        let work = self.works[thread as usize];
        self.line.ran(now.since(work.started));
        work
    }

    /// Whether this thread, which has nothing to do at present, goes.
    pub(super) fn leaves(&mut self, now: Stamp, thread: u32) -> bool {
        // Which thread goes does not matter: the first that has nothing to do takes the place of those that are to go.
        if self.leaving == 0 {
            return false;
        }
        self.leaving -= 1;
        self.let_go(now, thread);
        true
    }

    /// One was refused, at once or after it had waited.
    pub(super) fn count_refusal(&mut self) {
        self.refused += 1;
    }

    /// A request that has waited too long, with the moment of its arrival.
    pub(super) fn expire(&mut self, now: Stamp) -> Option<(Job, Stamp)> {
        if self.expiry > now {
            return None;
        }
        self.pass(now);
        if let Some(entry) = self.line.take_expired(now) {
            self.tally.waited_ns += u128::from(now.since(entry.queued).0);
            self.busy = now;
            return Some((entry.item, entry.queued));
        }
        // The pool's patience may have grown meanwhile. A moment later at least, or the clock would stand still here.
        let soon = Stamp(now.0 + 1);
        self.expiry = self.line.next_expiry().max(soon);
        None
    }

    /// Is looked at; `lock_share` is what its process says of its lock. Adds the numbers of the threads that are
    /// to be started to `fresh`.
    pub(super) fn tick(&mut self, now: Stamp, lock_share: Option<f64>, fresh: &mut Vec<u32>) {
        self.pass(now);
        let running = match self.runs_on {
            // Threads that leave after what they run are no part of the size that the policy steers.
            RunsOn::Threads => self.running.min(self.size()),
            // A loop that has found its queue empty is idle, whatever is inside.
            RunsOn::EventLoop => usize::from(!self.line.is_empty()),
        };
        let seen = PoolSeen {
            waiting: self.line.len(),
            oldest_wait: self.line.oldest_wait(now),
            waits: self.line.look(now),
            running,
            idle: self.size() - running,
            arrived: self.arrived,
            completed: self.completed,
            refused: self.refused,
            gil_share: lock_share,
            downstream_full: false,
        };
        let decision = self.policy.tick(now, &seen);
        self.set_state(decision.state);
        self.step(now, decision.step, fresh);
    }

    /// Adds what was summed up until `now` to what came out of the pools of its name.
    pub(super) fn report(&mut self, now: Stamp, outcome: &mut PoolOutcome) {
        self.pass(now);
        let tally = &self.tally;
        outcome.waiting_ns += tally.waiting_ns;
        outcome.waited_ns += tally.waited_ns;
        let busy_ns = match self.runs_on {
            RunsOn::Threads => tally.running_ns,
            RunsOn::EventLoop => tally.steps_ns,
        };
        outcome.busy_seconds += busy_ns as f64 / 1e9;
        outcome.thread_seconds += tally.threads_ns as f64 / 1e9;
        outcome.threads_max = outcome.threads_max.max(tally.threads_max);
        outcome.threads_started += tally.threads_started;
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.works.capacity() + self.free.capacity() + self.idle.capacity()
    }

    /// The bounds hold whatever was decided.
    fn step(&mut self, now: Stamp, step: SizeStep, fresh: &mut Vec<u32>) {
        let (size, shape) = (self.size(), self.settings.shape);
        let (most, least) = (shape.threads_max.max(1), shape.threads_min.max(1));
        let by = match step {
            _ if size > most => return self.shrink(now, size - most),
            SizeStep::Keep => 0,
            SizeStep::Grow(by) => by.min(most - size),
            SizeStep::Shrink(by) => by.min(size.saturating_sub(least)),
        };
        match step {
            _ if by == 0 => self.rest_if_idle(now),
            SizeStep::Grow(_) => self.grow(now, by, fresh),
            SizeStep::Keep | SizeStep::Shrink(_) => self.shrink(now, by),
        }
    }

    /// Leaving threads stay first; only then new ones are started.
    fn grow(&mut self, now: Stamp, by: usize, fresh: &mut Vec<u32>) {
        let staying = by.min(self.leaving);
        self.leaving -= staying;
        for _ in staying..by {
            let number = self.free.pop().unwrap_or_else(|| {
                self.works.push(Work::default());
                self.works.len() as u32 - 1
            });
            fresh.push(number);
        }
        self.threads += by - staying;
        self.tally.threads_started += (by - staying) as u64;
        self.tally.threads_max = self.tally.threads_max.max(self.threads);
        self.resize(now);
    }

    /// The thread that has been idle longest goes first, one at work when it is done.
    fn shrink(&mut self, now: Stamp, by: usize) {
        for _ in 0..by {
            match self.idle.pop_front() {
                Some(thread) => self.let_go(now, thread),
                None => self.leaving += 1,
            }
        }
        self.resize(now);
    }

    fn let_go(&mut self, now: Stamp, thread: u32) {
        // The time until now had the thread: without this its last moments would be missing from the sum.
        self.pass(now);
        assert!(self.threads > 0, "a thread goes and there is none");
        self.threads -= 1;
        self.free.push(thread);
    }

    fn resize(&mut self, now: Stamp) {
        self.line.resized(now);
        self.busy = now;
    }

    fn set_state(&mut self, state: PoolState) {
        let was = std::mem::replace(&mut self.state, state);
        self.line.set_state(state);
        if was.pressure != state.pressure || was.overload_timeout != state.overload_timeout {
            self.expiry = self.line.next_expiry();
        }
    }

    fn rest_if_idle(&mut self, now: Stamp) {
        let idle_for = now.since(self.busy);
        let is_least =
            self.size() <= self.settings.shape.threads_min && self.state.pressure == Pressure::Calm;
        let is_enough = (is_least && idle_for >= REST_AFTER) || idle_for >= REST_ALWAYS_AFTER;
        self.resting = is_enough && self.running == 0 && self.line.is_empty();
    }

    /// Threads that there are without those that are leaving.
    fn size(&self) -> usize {
        assert!(
            self.leaving < self.threads,
            "the last thread of a pool never leaves"
        );
        self.threads - self.leaving
    }

    fn pass(&mut self, now: Stamp) {
        let passed = u128::from(now.since(self.tally.since).0);
        self.tally.since = now;
        self.tally.waiting_ns += passed * self.line.len() as u128;
        self.tally.running_ns += passed * self.running as u128;
        self.tally.threads_ns += passed * self.threads as u128;
    }
}
