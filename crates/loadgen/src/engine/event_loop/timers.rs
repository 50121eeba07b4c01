//! What the loop does because of time: connections to be begun, requests that are due, deadlines.

use rustix::event::Timespec;
use telemetry::{Nanos, Stamp, now};

use super::connection::ConnectionState;
use super::{BEGINS_A_TURN, Burst, EventLoop};
use crate::engine::worker::TICK;
use crate::outcome::Failure;

impl EventLoop<'_> {
    /// How long the poll may sleep at `at`.
    pub(super) fn pause(&self, at: Stamp) -> Timespec {
        // What is to be sent must not wait for an event: events are looked at, and the loop comes back at once.
        let pause = if self.todo.is_empty() {
            self.longest_pause(at)
        } else {
            Nanos::ZERO
        };
        Timespec {
            tv_sec: (pause.0 / 1_000_000_000) as i64,
            tv_nsec: (pause.0 % 1_000_000_000) as i64,
        }
    }

    fn longest_pause(&self, at: Stamp) -> Nanos {
        let mut pause = TICK;
        for (until, _) in self.paused.front().into_iter().chain(self.retrying.front()) {
            pause = pause.min(until.since(at));
        }
        if self.begun < self.connections.len() {
            pause = pause.min(self.begin_at(self.begun).since(at));
        }
        // With no connection free, a reply is what is waited for.
        if let Some(due) = self.next_due()
            && !self.idle.is_empty()
            && self.may_begin()
        {
            let spin = self.worker.plan.machine.spin;
            pause = pause.min(Nanos(due.since(at).0.saturating_sub(spin.0)));
        }
        pause
    }

    /// Deadlines, and failed places whose pause is over.
    pub(super) fn keep_time(&mut self, at: Stamp) {
        // All pauses are equally long, so that the first one in is the first one out.
        while let Some(&(until, place)) = self.paused.front() {
            if until > at {
                break;
            }
            self.paused.pop_front();
            self.todo.push_back(place);
        }
        self.retry_due(at);
        if at < self.next_scan {
            return;
        }
        // All places are looked at, a few times within a time-out: cheaper than a sorted set of deadlines that each
        // request would change twice.
        self.next_scan = at.plus(self.scan_pause);
        for place in 0..self.begun as u32 {
            if self.connections[place as usize].deadline <= at {
                self.is_late(place, at);
            }
        }
    }

    /// Tries again where queues were full, a bounded number a turn.
    fn retry_due(&mut self, at: Stamp) {
        for _ in 0..BEGINS_A_TURN {
            let Some(&(until, place)) = self.retrying.front() else {
                return;
            };
            if until > at {
                return;
            }
            self.retrying.pop_front();
            if self.is_wanted(place) || self.burst == Burst::Gathering {
                self.begin(place);
            } else {
                self.connections[place as usize].is_retrying = false;
            }
        }
    }

    fn is_late(&mut self, place: u32, at: Stamp) {
        match self.connections[place as usize].state {
            ConnectionState::Lingering => {
                if self.tally.window.holds(at) {
                    self.tally.counts.left_open += 1;
                }
                self.give_up(place, at);
            }
            ConnectionState::Connecting | ConnectionState::Handshaking => {
                self.fail(place, Failure::Connect, at);
            }
            ConnectionState::Open => self.fail(place, Failure::Timeout, at),
            ConnectionState::Closed => {}
        }
    }

    /// When the `number`-th connection of this thread may be begun.
    fn begin_at(&self, number: usize) -> Stamp {
        let start = self.worker.shared.start;
        match self.worker.plan.connections.opened_per_s {
            None => start,
            Some(rate) => {
                let before =
                    (number * self.worker.plan.machine.threads + self.worker.thread) as f64;
                start.plus(Nanos((before / rate * 1e9) as u64))
            }
        }
    }

    /// Begins connections for the first time, a bounded number a turn.
    pub(super) fn begin_connections(&mut self, at: Stamp) {
        for _ in 0..BEGINS_A_TURN {
            if self.begun >= self.connections.len() || self.begin_at(self.begun) > at {
                break;
            }
            let place = self.begun as u32;
            self.begun += 1;
            if self.is_closed_load() {
                self.begin(place);
            } else {
                // Ready before it is needed; if that fails, the request that needs it says so.
                if self.requests_each == u64::MAX {
                    self.begin(place);
                }
                self.is_idle(place);
            }
        }
        self.let_burst_go(at);
    }

    /// When all connections of all threads are open (or have failed), everything is sent.
    fn let_burst_go(&mut self, at: Stamp) {
        if self.burst != Burst::Gathering || !self.worker.shared.are_all_warm(self.worker.plan) {
            return;
        }
        // Before the sends, which do nothing as long as connections are gathered.
        self.burst = Burst::Sent;
        for place in 0..self.connections.len() as u32 {
            if self.connections[place as usize].state == ConnectionState::Open {
                self.deadline_from(place, at);
                self.flush(place);
            }
        }
    }

    /// Gives requests that are due to connections that are idle.
    pub(super) fn begin_due(&mut self, at: Stamp) {
        while let Some(due_at) = self.next_due() {
            if due_at > at || !self.may_begin() {
                return;
            }
            // Before the schedule goes on: a request that finds no connection stays the next one, with its time.
            let Some(place) = self.next_idle() else {
                return;
            };
            let Some(schedule) = &mut self.schedule else {
                return;
            };
            let Some(due) = schedule.due() else { return };
            schedule.advance();
            // Drawn here and not when the schedule was made: the numbers of kinds and of gaps are independent.
            let kind = due.kind.unwrap_or_else(|| self.chooser.choose());
            let connection = &mut self.connections[place as usize];
            self.tally.begun(due_at, connection.turn, at);
            if connection.state == ConnectionState::Closed && connection.len == 0 {
                connection.left = self.requests_each;
            }
            self.begin_request(place, kind, due_at);
            self.settle_deadline(place);
            // Room for another one at the same time.
            let connection = &self.connections[place as usize];
            if connection.len < self.depth && connection.left > 0 {
                self.is_idle(place);
            }
            self.todo.push_back(place);
        }
    }

    /// The connection that has been free for the longest time.
    fn next_idle(&mut self) -> Option<u32> {
        while let Some(place) = self.idle.pop_front() {
            let connection = &mut self.connections[place as usize];
            connection.is_queued = false;
            // It may have got its last reply while it was queued; when that is settled it comes again.
            let may_take = match connection.state {
                ConnectionState::Closed => true,
                ConnectionState::Lingering => false,
                ConnectionState::Connecting
                | ConnectionState::Handshaking
                | ConnectionState::Open => connection.left > 0,
            };
            if may_take {
                return Some(place);
            }
        }
        None
    }

    /// The connection has something to wait for from `at` on.
    pub(super) fn deadline_from(&mut self, place: u32, at: Stamp) {
        self.connections[place as usize].deadline = at.plus(self.timeout);
    }

    /// A connection without a request has had nothing to wait for; what it is given now is to be answered in time.
    pub(super) fn settle_rested(&mut self, place: u32) {
        let has_none = self.connections[place as usize].deadline == Stamp::NEVER;
        if has_none && self.burst == Burst::None {
            self.settle_deadline(place);
        }
    }

    /// The oldest request under way decides when it is too late.
    pub(super) fn settle_deadline(&mut self, place: u32) {
        let connection = &self.connections[place as usize];
        let deadline = if connection.len == 0 {
            Stamp::NEVER
        } else if matches!(
            connection.state,
            ConnectionState::Connecting | ConnectionState::Handshaking
        ) {
            connection.deadline
        } else {
            let oldest = &self.flights[self.flight_index(place, 0)];
            // What is not sent yet will be in this turn.
            let from = if oldest.sent == Stamp::ZERO {
                now()
            } else {
                oldest.sent
            };
            from.plus(self.timeout)
        };
        self.connections[place as usize].deadline = deadline;
    }
}
