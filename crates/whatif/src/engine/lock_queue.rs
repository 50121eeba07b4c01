//! The lock of one process: its holder, the waiting threads, and the next change.
//!
//! Threads compute one at a time. A waiting thread looks once in every slice of its wait: if the lock did not
//! change hands in that slice, the holder gives it up and goes to the end of the line. CPython does the same, so
//! a thread holds the lock for one to two slices while others wait. It must not know queues, or what requests
//! do without the lock.

use std::collections::VecDeque;

use telemetry::{Nanos, Stamp};

use crate::Lock;

use super::shared::Runner;

/// Which part of a request needs the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The part before the request does something without the lock.
    First,
    /// The part after that.
    Last,
}

/// A thread that waits for the lock, or holds it.
#[derive(Clone, Copy, Debug)]
struct LockRequest {
    runner: Runner,
    part: Part,
    /// What it still has to do with the lock.
    left: Nanos,
    /// When it came to where it is.
    since: Stamp,
}

/// The lock of one process.
#[derive(Clone, Debug)]
pub(super) struct LockQueue {
    slice: Nanos,
    holder: Option<LockRequest>,
    line: VecDeque<LockRequest>,
    /// Until when everything is accounted for.
    since: Stamp,
    stands_still: bool,
    next: Stamp,
    /// What all have waited for the lock.
    waited: Nanos,
}

impl LockQueue {
    pub(super) fn new(lock: Lock) -> LockQueue {
        LockQueue {
            // A slice of nothing would never end.
            slice: lock.slice.max(Nanos::from_us(1)),
            holder: None,
            line: VecDeque::new(),
            since: Stamp::ZERO,
            stands_still: false,
            next: Stamp::NEVER,
            waited: Nanos::ZERO,
        }
    }

    /// The next change, if no thread comes before; [`Stamp::NEVER`] while no thread holds the lock.
    pub(super) fn next(&self) -> Stamp {
        self.next
    }

    /// The holder and the waiting threads.
    pub(super) fn len(&self) -> usize {
        usize::from(self.holder.is_some()) + self.line.len()
    }

    /// What all have waited for the lock until the last time that something happened.
    pub(super) fn waited(&self) -> Nanos {
        self.waited
    }

    /// Wants the lock for `work`.
    pub(super) fn want(&mut self, now: Stamp, work: Nanos, runner: Runner, part: Part) {
        self.pass(now);
        self.line.push_back(LockRequest {
            runner,
            part,
            left: work,
            since: now,
        });
        if self.holder.is_none() {
            self.give(now);
        }
        self.turn();
    }

    /// Advances to `now`; gives the thread that is done with the lock, if there is one.
    pub(super) fn step(&mut self, now: Stamp) -> Option<(Runner, Part)> {
        self.pass(now);
        let mut holder = self.holder.take()?;
        let is_done = holder.left == Nanos::ZERO;
        // A holder that gave way begins its wait now, behind all whose last look is older.
        if !is_done {
            holder.since = now;
            self.line.push_back(holder);
        }
        self.give(now);
        self.turn();
        is_done.then_some((holder.runner, holder.part))
    }

    /// Nothing advances from `now` on.
    pub(super) fn stop(&mut self, now: Stamp) {
        self.pass(now);
        self.stands_still = true;
        self.turn();
    }

    /// All advance from `now` on.
    pub(super) fn resume(&mut self, now: Stamp) {
        self.since = now;
        self.stands_still = false;
        self.turn();
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.line.capacity()
    }

    fn pass(&mut self, now: Stamp) {
        let passed = now.since(self.since);
        self.since = now;
        if self.stands_still {
            return;
        }
        // All who wait do so for the whole span: nobody joins or leaves but at its ends.
        self.waited.0 += passed.0 * self.line.len() as u64;
        if let Some(holder) = &mut self.holder {
            holder.left = Nanos(holder.left.0.saturating_sub(passed.0));
        }
    }

    /// The thread whose last look is the oldest gets the lock: a look ends in another wait, behind the others.
    fn give(&mut self, now: Stamp) {
        assert!(self.holder.is_none(), "a lock has one holder");
        let looked = |request: &LockRequest| {
            let waits = now.since(request.since).0;
            request.since.plus(Nanos(waits - waits % self.slice.0))
        };
        let line = self.line.iter().enumerate();
        let next = line.min_by_key(|(_, request)| looked(request));
        let next = next.map(|(index, _)| index);
        self.holder = next.and_then(|index| self.line.remove(index));
        if let Some(holder) = &mut self.holder {
            holder.since = now;
        }
    }

    fn turn(&mut self) {
        let Some(holder) = self.holder.as_ref().filter(|_| !self.stands_still) else {
            self.next = Stamp::NEVER;
            return;
        };
        let done = self.since.plus(holder.left);
        let asks = |request: &LockRequest| {
            asks_at(request.since, holder.since, self.slice).max(self.since)
        };
        self.next = self.line.iter().map(asks).fold(done, Stamp::min);
    }
}

/// When a thread that waits since then sees that the lock has been held for a whole slice of its wait.
fn asks_at(waits_since: Stamp, held_since: Stamp, slice: Nanos) -> Stamp {
    let before = held_since.since(waits_since).0.div_ceil(slice.0);
    waits_since.plus(Nanos((before + 1) * slice.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn runner(thread: u32) -> Runner {
        Runner { pool: 0, thread }
    }

    fn queue() -> LockQueue {
        let mut queue = LockQueue::new(Lock {
            slice: Nanos::from_ms(5),
            ..Lock::default()
        });
        queue.resume(Stamp(MS));
        queue
    }

    /// What happens until nobody wants the lock any more: milliseconds, and who is done.
    fn course(queue: &mut LockQueue) -> Vec<(u64, Option<u32>)> {
        let mut found = Vec::new();
        while queue.next() < Stamp::NEVER {
            let now = queue.next();
            let done = queue.step(now).map(|(runner, _)| runner.thread);
            found.push((now.0 / MS, done));
        }
        found
    }

    #[test]
    fn alone_it_is_held_to_the_end() {
        let mut queue = queue();
        queue.want(Stamp(MS), Nanos::from_ms(100), runner(0), Part::First);
        assert_eq!(course(&mut queue), [(101, Some(0))]);
        assert_eq!(queue.waited(), Nanos::ZERO);
    }

    #[test]
    fn long_holders_take_turns_of_a_slice() {
        let mut queue = queue();
        queue.want(Stamp(MS), Nanos::from_ms(12), runner(0), Part::First);
        queue.want(Stamp(4 * MS), Nanos::from_ms(7), runner(1), Part::Last);
        // The second asks 5 ms after it came: 8 are done. Then it has 5, the first 4, and the second 2.
        let expect = [(9, None), (14, None), (18, Some(0)), (20, Some(1))];
        assert_eq!(course(&mut queue), expect);
        assert_eq!(queue.waited(), Nanos::from_ms(5 + 5 + 4));
    }

    #[test]
    fn who_waits_looks_at_the_slices_of_its_own_wait() {
        let check = |held_since_ms: u64, asks_ms: u64| {
            let held = Stamp(held_since_ms * MS);
            let found = asks_at(Stamp(10 * MS), held, Nanos::from_ms(5));
            assert_eq!(found, Stamp(asks_ms * MS), "{held_since_ms}");
        };
        check(3, 15);
        check(10, 15);
        // It changed hands in the first slice of the wait: nothing is asked before the end of the second.
        check(11, 20);
        check(15, 20);
        check(16, 25);
    }

    #[test]
    fn who_is_done_early_gives_way_early() {
        let mut queue = queue();
        for thread in 0..3 {
            queue.want(Stamp(MS), Nanos::from_ms(2), runner(thread), Part::First);
        }
        assert_eq!(queue.len(), 3);
        let expect = [(3, Some(0)), (5, Some(1)), (7, Some(2))];
        assert_eq!(course(&mut queue), expect);
    }

    #[test]
    fn nobody_advances_in_a_pause() {
        let mut queue = queue();
        queue.want(Stamp(MS), Nanos::from_ms(4), runner(0), Part::First);
        queue.want(Stamp(MS), Nanos::from_ms(4), runner(1), Part::First);
        queue.stop(Stamp(2 * MS));
        assert_eq!(queue.next(), Stamp::NEVER);
        queue.resume(Stamp(102 * MS));
        // Who waits has waited for a slice by then.
        let expect = [(102, None), (106, Some(1)), (109, Some(0))];
        assert_eq!(course(&mut queue), expect);
        assert_eq!(queue.waited(), Nanos::from_ms(1 + 4));
    }
}
