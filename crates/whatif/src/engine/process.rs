//! One process: what its requests do at the same time, and what only one of them can do at a time.
//!
//! Without a lock a request is one run. With one, a part of its computing comes first, then what it does
//! without the lock, then the rest of its computing. It must not know queues.

use telemetry::{Nanos, Stamp};

use crate::{Lock, Sharing};

use super::lock_queue::{LockQueue, Part};
use super::shared::{Runner, Shared};

/// After so long a wait counts for a third of what it did.
const FADE_SECS: f64 = 0.5;

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Need {
    /// In all, when nothing runs beside it.
    pub run: Nanos,
    /// What of it needs the lock.
    pub computing: Nanos,
}

impl Need {
    fn computing(self) -> Nanos {
        self.computing.min(self.run)
    }

    fn free(self) -> Nanos {
        Nanos(self.run.0 - self.computing().0)
    }

    /// Computing that comes first.
    fn first(self, lock: Lock) -> Nanos {
        match self.free() {
            Nanos::ZERO => self.run,
            _ => Nanos((self.computing().0 as f64 * lock.before.clamp(0.0, 1.0)) as u64),
        }
    }

    /// Computing that comes last.
    fn last(self, lock: Lock) -> Nanos {
        Nanos(self.run.0 - self.free().0 - self.first(lock).0)
    }
}

/// One process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    shared: Shared,
    lock: Option<Locked>,
}

/// A lock, and how much of their time requests have waited for it lately.
#[derive(Clone, Debug)]
struct Locked {
    lock: Lock,
    queue: LockQueue,
    looked: Stamp,
    waited: Nanos,
    /// Seconds of waits and of work, fading.
    waits: f64,
    at_work: f64,
}

/// What has happened to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Its turn, or the part of it that needs no lock, is over: [`Process::go_on`] gives the next part.
    Part(Runner, Option<Part>),
    /// Another one has the lock now.
    Turn,
}

impl Process {
    pub(crate) fn new(sharing: Sharing, lock: Option<Lock>) -> Process {
        Process {
            shared: Shared::new(sharing),
            lock: lock.map(|lock| Locked {
                lock,
                queue: LockQueue::new(lock),
                looked: Stamp::ZERO,
                waited: Nanos::ZERO,
                waits: 0.0,
                at_work: 0.0,
            }),
        }
    }

    /// The time of its next event, if no request begins before.
    pub(crate) fn next(&self) -> Stamp {
        let turn = self.lock.as_ref().map(|lock| lock.queue.next());
        turn.map_or(self.shared.next_end(), |turn| {
            turn.min(self.shared.next_end())
        })
    }

    /// A request begins.
    pub(crate) fn start(&mut self, now: Stamp, need: Need, runner: Runner) {
        match &mut self.lock {
            None => self.shared.start(now, need.run, runner),
            Some(locked) => match need.first(locked.lock) {
                Nanos::ZERO => self.shared.start(now, need.free(), runner),
                first => locked.queue.want(now, first, runner, Part::First),
            },
        }
    }

    /// What is due at `now`.
    pub(crate) fn step(&mut self, now: Stamp) -> Step {
        // The lock first: who is handed it at this moment may be done before others end.
        if let Some(lock) = &mut self.lock
            && lock.queue.next() <= now
        {
            return match lock.queue.step(now) {
                Some((runner, part)) => Step::Part(runner, Some(part)),
                None => Step::Turn,
            };
        }
        let runner = self.shared.end(now).expect("a request is due to end");
        Step::Part(runner, None)
    }

    /// What comes after that part of a request; tells whether there is anything.
    pub(crate) fn go_on(
        &mut self,
        now: Stamp,
        need: Need,
        runner: Runner,
        done: Option<Part>,
    ) -> bool {
        match (&mut self.lock, done) {
            // A request that only computes has its whole run in the first part, so that nothing comes after it.
            (Some(_), Some(Part::First)) if need.free() > Nanos::ZERO => {
                self.shared.start(now, need.free(), runner);
                true
            }
            (Some(locked), None) if need.last(locked.lock) > Nanos::ZERO => {
                locked
                    .queue
                    .want(now, need.last(locked.lock), runner, Part::Last);
                true
            }
            _ => false,
        }
    }

    /// The share of their time that requests waited for the lock lately; `None` without a lock, and while
    /// nothing is known.
    pub(crate) fn lock_share(&mut self, now: Stamp) -> Option<f64> {
        let lock = self.lock.as_mut()?;
        let passed = now.since(lock.looked);
        if passed > Nanos::ZERO {
            let at_work = lock.queue.len() + self.shared.len();
            let waited = lock.queue.waited();
            // Both sums fade alike, so the share of a steady load is the same however often it is asked for.
            let fade = (-passed.as_secs_f64() / FADE_SECS).exp();
            lock.waits = lock.waits * fade + Nanos(waited.0 - lock.waited.0).as_secs_f64();
            lock.at_work = lock.at_work * fade + passed.as_secs_f64() * at_work as f64;
            (lock.looked, lock.waited) = (now, waited);
        }
        (lock.at_work > 0.0).then(|| (lock.waits / lock.at_work).min(1.0))
    }

    /// Nothing advances from `now` on.
    pub(crate) fn stop(&mut self, now: Stamp) {
        self.shared.stop(now);
        if let Some(lock) = &mut self.lock {
            lock.queue.stop(now);
        }
    }

    /// All advance from `now` on.
    pub(crate) fn resume(&mut self, now: Stamp) {
        self.shared.resume(now);
        if let Some(lock) = &mut self.lock {
            lock.queue.resume(now);
        }
    }

    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        let line = self.lock.as_ref().map_or(0, |lock| lock.queue.places());
        self.shared.places() + line
    }
}
