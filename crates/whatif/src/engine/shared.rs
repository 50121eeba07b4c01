//! The requests at work in one process: how far they are, and which ends next.
//!
//! All advance at the same speed, so one clock of work done is enough: a request that begins when it
//! reads `v` ends when it reads `v + run`, however the speed changes meanwhile. It must not know queues.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use telemetry::{Nanos, Stamp};

use crate::Sharing;

/// A running request: the index of its pool among those of the process, and its thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Runner {
    pub pool: u32,
    pub thread: u32,
}

/// The requests at work in one process.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    sharing: Sharing,
    /// The clock of work done at `since`, and what it has beyond whole nanoseconds.
    done: u64,
    beyond: f64,
    since: Stamp,
    speed: f64,
    /// What the clock will read at the end of each; the soonest is on top.
    ends: BinaryHeap<Reverse<(u64, Runner)>>,
    next_end: Stamp,
}

impl Shared {
    pub(super) fn new(sharing: Sharing) -> Shared {
        Shared {
            sharing,
            done: 0,
            beyond: 0.0,
            since: Stamp::ZERO,
            speed: 1.0,
            ends: BinaryHeap::new(),
            next_end: Stamp::NEVER,
        }
    }

    /// When the next request ends if nothing else happens; [`Stamp::NEVER`] without one.
    pub(super) fn next_end(&self) -> Stamp {
        self.next_end
    }

    /// A request that needs `run` begins.
    pub(super) fn start(&mut self, now: Stamp, run: Nanos, runner: Runner) {
        self.pass(now);
        self.ends
            .push(Reverse((self.done.saturating_add(run.0), runner)));
        self.turn();
    }

    /// The request that is due to end at `now` ends.
    pub(super) fn end(&mut self, now: Stamp) -> Option<Runner> {
        self.pass(now);
        let Reverse((_, runner)) = self.ends.pop()?;
        self.turn();
        Some(runner)
    }

    /// Nothing advances from `now` on.
    pub(super) fn stop(&mut self, now: Stamp) {
        self.pass(now);
        self.next_end = Stamp::NEVER;
    }

    /// All advance from `now` on.
    pub(super) fn resume(&mut self, now: Stamp) {
        self.since = now;
        self.turn();
    }

    /// Requests at work.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.ends.capacity()
    }

    fn pass(&mut self, now: Stamp) {
        let passed = now.since(self.since).0;
        self.since = now;
        // Whole numbers as long as nobody is slowed down: most simulations never leave this branch.
        if self.speed == 1.0 {
            self.done += passed;
            return;
        }
        let done = passed as f64 * self.speed + self.beyond;
        self.done += done as u64;
        self.beyond = done.fract();
    }

    /// Others run now than before.
    fn turn(&mut self) {
        self.speed = self.sharing.speed(self.ends.len());
        assert!(self.speed > 0.0, "requests at work advance");
        let Some(Reverse((end, _))) = self.ends.peek() else {
            self.next_end = Stamp::NEVER;
            return;
        };
        let left = end.saturating_sub(self.done);
        let left = if self.speed == 1.0 {
            left
        } else {
            ((left as f64 - self.beyond).max(0.0) / self.speed).ceil() as u64
        };
        self.next_end = self.since.plus(Nanos(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_nanoseconds_add_up() {
        let mut shared = Shared::new(Sharing {
            sigma: 1.0,
            kappa: 0.0,
        });
        let runner = |thread| Runner { pool: 0, thread };
        let run = Nanos::from_ms(1);
        shared.start(Stamp(1), run, runner(0));
        shared.start(Stamp(1), Nanos(2 * run.0), runner(1));
        // Looked at every 3 ns: each time half a nanosecond of work is left over.
        for index in 1..600_000 {
            shared.stop(Stamp(1 + 3 * index));
            shared.resume(Stamp(1 + 3 * index));
        }
        assert_eq!(shared.next_end(), Stamp(1 + 2 * run.0));
        assert_eq!(shared.end(shared.next_end()), Some(runner(0)));
        assert_eq!(shared.next_end(), Stamp(1 + 3 * run.0));
        assert_eq!(shared.end(shared.next_end()), Some(runner(1)));
        assert_eq!(shared.next_end(), Stamp::NEVER);
    }

    #[test]
    fn nothing_advances_between_stop_and_resume() {
        let mut shared = Shared::new(Sharing::default());
        let runner = Runner { pool: 2, thread: 7 };
        shared.start(Stamp(10), Nanos(100), runner);
        shared.stop(Stamp(40));
        assert_eq!(shared.next_end(), Stamp::NEVER);
        shared.resume(Stamp(1_000));
        assert_eq!(shared.next_end(), Stamp(1_070));
    }
}
