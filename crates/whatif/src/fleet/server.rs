//! A server of a fleet: threads, and what waits for one.
//!
//! Takes requests by number, gives those that begin and when they end. It must not know proxies.

use std::collections::VecDeque;

use queueing::balancing::LoadReport;
use telemetry::{Nanos, Stamp};

use super::{FleetServer, Stall};

/// A server at a moment.
#[derive(Debug)]
pub(super) struct ServerState {
    plan: FleetServer,
    running: u32,
    waiting: VecDeque<usize>,
}

impl ServerState {
    pub(super) fn new(plan: FleetServer) -> ServerState {
        ServerState {
            plan,
            running: 0,
            waiting: VecDeque::new(),
        }
    }

    /// A request has come.
    pub(super) fn push(&mut self, request: usize) {
        self.waiting.push_back(request);
    }

    /// The request that begins now, if a thread is free and one waits.
    pub(super) fn begin(&mut self) -> Option<usize> {
        if self.running >= self.plan.threads.max(1) {
            return None;
        }
        let request = self.waiting.pop_front()?;
        self.running += 1;
        Some(request)
    }

    /// How long a run takes here.
    pub(super) fn run(&self, run: Nanos) -> Nanos {
        Nanos((run.0 as f64 * self.plan.slower) as u64)
    }

    /// When a run that begins now ends.
    pub(super) fn end(&self, now: Stamp, run: Nanos) -> Stamp {
        match self.plan.stall {
            None => now.plus(run),
            Some(stall) => stall.end(now, run),
        }
    }

    /// What it says of itself before `finish`.
    pub(super) fn report(&self) -> LoadReport {
        LoadReport {
            running: self.running,
            waiting: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
            threads: self.plan.threads,
            queue: Nanos::ZERO,
            round_trip: None,
        }
    }

    /// A run has ended.
    pub(super) fn finish(&mut self) {
        assert!(self.running > 0, "what ends has begun");
        self.running -= 1;
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

impl Stall {
    /// When work that begins at `now` and takes `run` without stalls is done.
    fn end(self, now: Stamp, run: Nanos) -> Stamp {
        let every = self.every.0.max(1);
        // At least a moment of each stretch is left.
        let open = every - self.lasts.0.min(every - 1);
        let (stretch, within) = (now.0 / every, now.0 % every);
        // On the server's own clock, which stands still in stalls.
        let own = stretch * open + within.min(open) + run.0;
        let (stretches, rest) = (own / open, own % open);
        match rest {
            // It ends with the open part of a stretch and not behind the stall.
            0 if run.0 > 0 => Stamp((stretches - 1) * every + open),
            _ => Stamp(stretches * every + rest).max(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_stands_still_in_stalls() {
        let stall = Stall {
            every: Nanos(100),
            lasts: Nanos(30),
        };
        let check = |now, run, expect| assert_eq!(stall.end(Stamp(now), Nanos(run)), Stamp(expect));
        check(1_000, 70, 1_070);
        check(1_000, 71, 1_101);
        check(1_050, 20, 1_070);
        check(1_050, 21, 1_101);
        check(1_080, 10, 1_110);
        check(1_080, 71, 1_201);
        // Nothing ends in a stall, however short.
        check(1_080, 0, 1_100);
        check(1_000, 210, 1_270);
        check(1_010, 0, 1_010);
    }
}
