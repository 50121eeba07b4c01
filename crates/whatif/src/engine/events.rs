//! What will happen to threads, and when the server stands still.
//!
//! Threads wake, fetch and start on the server's own time, which stands still in a pause; the rest of
//! the simulation is on real time. It must not know pools or requests.

use std::collections::VecDeque;

use telemetry::{Nanos, Stamp};

use crate::Pause;

use super::stamp;

/// The next event, arrivals apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// A request of this process ends, or a part of it.
    Step(usize),
    /// The event loop of this process has something to do.
    Loop(usize),
    /// A thread can begin.
    Ready,
    /// A request may have waited too long.
    Expiry,
    /// The pools are looked at.
    Tick,
    /// A pause begins or ends.
    Pause,
}

/// Why a thread cannot begin yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Delay {
    /// It slept.
    Wake,
    /// It has just ended something else.
    Fetch,
    /// It is new.
    Start,
}

/// A thread that can begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ready {
    /// Index of its pool among all pools of all processes.
    pub pool: usize,
    /// Its number within the pool.
    pub thread: u32,
    /// What it waited for.
    pub delay: Delay,
}

/// Threads that will be able to begin, by the server's time.
///
/// Nearly all delays of one kind are alike, so the latest one is at or near the end of its queue: no heap
/// is needed.
#[derive(Default)]
pub(super) struct Timers {
    queues: [VecDeque<(Stamp, Ready)>; 3],
}

impl Timers {
    pub(super) fn push(&mut self, at: Stamp, ready: Ready) {
        let queue = &mut self.queues[ready.delay as usize];
        // Behind those of the same moment, so that equal delays keep their order and the seed decides nothing here.
        let later = queue.iter().rev().take_while(|other| other.0 > at).count();
        queue.insert(queue.len() - later, (at, ready));
    }

    /// When the next thread can begin; [`Stamp::NEVER`] without one.
    pub(super) fn next(&self) -> Stamp {
        let fronts = self.queues.iter().filter_map(VecDeque::front);
        fronts.map(|front| front.0).min().unwrap_or(Stamp::NEVER)
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.queues.iter().map(VecDeque::capacity).sum()
    }

    /// Takes the next.
    pub(super) fn pop(&mut self) -> Option<Ready> {
        let next = self.next();
        let queue = self
            .queues
            .iter_mut()
            .find(|queue| queue.front().is_some_and(|front| front.0 == next))?;
        queue.pop_front().map(|(_, ready)| ready)
    }
}

/// The times in which the server stands still, and its own time, which leaves them out.
#[derive(Clone, Debug)]
pub(super) struct Pauses {
    /// Ahead, apart from each other, the soonest last.
    ahead: Vec<Pause>,
    on: Option<On>,
    /// What all pauses until now have taken.
    lost: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct On {
    since: Stamp,
    until: Stamp,
}

impl Pauses {
    pub(super) fn new(pauses: &[Pause]) -> Pauses {
        let mut ahead = pauses.to_vec();
        ahead.sort_by_key(|pause| std::cmp::Reverse(pause.at));
        Pauses {
            ahead,
            on: None,
            lost: Nanos::ZERO,
        }
    }

    /// The simulation begins: what is over before it never was.
    pub(super) fn begin(&mut self, now: Stamp) {
        self.ahead.retain(|pause| end_of(pause) > now);
    }

    /// When the next pause begins, or the present one ends; [`Stamp::NEVER`] after all.
    pub(super) fn next(&self) -> Stamp {
        let next = self
            .ahead
            .last()
            .map_or(Stamp::NEVER, |pause| stamp(pause.at));
        self.on.map_or(next, |on| on.until)
    }

    pub(super) fn are_on(&self) -> bool {
        self.on.is_some()
    }

    /// Begins or ends the one that is due at `now`; tells whether the server stands still from now on.
    pub(super) fn turn(&mut self, now: Stamp) -> bool {
        match self.on.take() {
            None => {
                let mut until = self.ahead.pop().map_or(now, |pause| end_of(&pause));
                // Pauses that touch or overlap are one: the server must not move between them for a moment.
                while let Some(next) = self.ahead.pop_if(|next| stamp(next.at) <= until) {
                    until = until.max(end_of(&next));
                }
                self.on = Some(On { since: now, until });
                true
            }
            Some(on) => {
                self.lost.0 += now.since(on.since).0;
                false
            }
        }
    }

    /// The server's own time.
    pub(super) fn own(&self, now: Stamp) -> Stamp {
        // Within a pause the own time is that of its begin.
        let now = self.on.map_or(now, |on| on.since);
        assert!(
            now.0 >= self.lost.0,
            "pauses took more time than has passed"
        );
        Stamp(now.0 - self.lost.0)
    }

    /// The real time at which the server's own will be `own`, without pauses to come.
    pub(super) fn real(&self, own: Stamp) -> Stamp {
        own.plus(self.lost)
    }
}

fn end_of(pause: &Pause) -> Stamp {
    stamp(pause.at).plus(pause.lasts)
}
