//! What the loop does because of time: connections to be begun, requests that are due, deadlines.

use telemetry::{Nanos, Stamp, now};

use super::connection::ConnectionState;
use super::{BEGINS_A_TURN, Burst, EventLoop};
use crate::engine::worker::TICK;
use crate::outcome::Failure;

impl EventLoop<'_> {
    /// How long the poll may sleep at `at`.
    pub(super) fn pause(&self, at: Stamp) -> Nanos {
        // What is to be sent must not wait for an event: events are looked at, and the loop comes back at once.
        if self.todo.is_empty() {
            self.longest_pause(at)
        } else {
            Nanos::ZERO
        }
    }

    fn longest_pause(&self, at: Stamp) -> Nanos {
        let mut pause = TICK;
        if let Some((until, _)) = self.paused.first() {
            pause = pause.min(until.since(at));
        }
        if self.begun < self.worker.connections_len {
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

    /// Deadlines, and places whose pause is over, a bounded number of these a turn.
    pub(super) fn keep_time(&mut self, at: Stamp) {
        for _ in 0..BEGINS_A_TURN {
            let Some(&(_, place)) = self.paused.first().filter(|(until, _)| *until <= at) else {
                break;
            };
            self.paused.pop_first();
            if !self.connections[place].is_retrying {
                self.todo.push_back(place);
            } else if self.is_wanted(place) || self.burst == Burst::Gathering {
                self.begin(place);
            } else {
                self.connections[place].is_retrying = false;
            }
        }
        if at < self.next_scan {
            return;
        }
        // All places are looked at, a few times within a time-out: cheaper than a sorted set of deadlines that each
        // request would change twice.
        self.next_scan = at.plus(self.scan_pause);
        for place in 0..self.connections.len() {
            if self.connections[place].deadline <= at {
                self.is_late(place, at);
            }
        }
    }

    fn is_late(&mut self, place: usize, at: Stamp) {
        match self.connections[place].state {
            ConnectionState::Lingering => {
                if self.tally.window.holds(at) {
                    self.tally.counts.left_open += 1;
                }
                self.give_up(place, self.worker.plan.connections.closing, at);
            }
            ConnectionState::Connecting
            | ConnectionState::Handshaking
            | ConnectionState::Settling => self.fail(place, Failure::Connect, at),
            ConnectionState::Open if self.connections[place].http2.is_some() => {
                self.time_out_streams(place, at);
            }
            ConnectionState::Open => self.fail(place, Failure::Timeout, at),
            ConnectionState::Closed => {}
        }
    }

    /// When the `number`-th connection of this thread may be begun.
    fn begin_at(&self, number: usize) -> Stamp {
        let plan = self.worker.plan;
        // Threads that share a rate take turns.
        let before = (number * plan.machine.threads + self.worker.thread) as f64;
        let rate = plan.connections.opened_per_s.unwrap_or(f64::INFINITY);
        let start = self.worker.shared.start;
        start.plus(Nanos((before / rate * 1e9) as u64))
    }

    /// Begins connections for the first time, a bounded number a turn.
    pub(super) fn begin_connections(&mut self, at: Stamp) {
        for _ in 0..BEGINS_A_TURN {
            if self.begun >= self.worker.connections_len || self.begin_at(self.begun) > at {
                break;
            }
            let place = self.begun;
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
        for place in 0..self.connections.len() {
            if self.connections[place].state == ConnectionState::Open {
                self.deadline_from(place, at);
                self.flush(place);
            }
        }
    }

    /// Gives requests that are due to connections that are idle.
    pub(super) fn begin_due(&mut self, at: Stamp) {
        while let Some(due_at) = self.next_due()
            && due_at <= at
            && self.may_begin()
            // Before the schedule advances: a request that finds no connection stays the next one, with its time.
            && let Some(place) = self.next_idle()
            && let Some(schedule) = &mut self.schedule
            && let Some(due) = schedule.due()
        {
            schedule.advance();
            // Drawn here and not when the schedule was made: the numbers of kinds and of gaps are independent.
            let kind = due.kind.unwrap_or_else(|| self.chooser.choose());
            let connection = &mut self.connections[place];
            self.tally.begun(due_at, connection.turn, at);
            if connection.state == ConnectionState::Closed && connection.len == 0 {
                connection.left = self.requests_each;
            }
            self.begin_request(place, kind, due_at);
            self.settle_deadline(place);
            // It may take another one at the same time.
            let connection = &self.connections[place];
            if connection.len < connection.depth(self.depth) && connection.left > 0 {
                self.is_idle(place);
            }
            self.todo.push_back(place);
        }
    }

    /// The connection that has been free for the longest time.
    fn next_idle(&mut self) -> Option<usize> {
        while let Some(place) = self.idle.pop_front() {
            let connection = &mut self.connections[place];
            connection.is_queued = false;
            // It may have got its last reply while it was queued; when that is settled it comes again.
            let may_take = match connection.state {
                ConnectionState::Closed => true,
                ConnectionState::Lingering => false,
                ConnectionState::Connecting
                | ConnectionState::Handshaking
                | ConnectionState::Settling
                | ConnectionState::Open => {
                    connection.left > 0 && connection.len < connection.depth(self.depth)
                }
            };
            if may_take {
                return Some(place);
            }
        }
        None
    }

    /// The connection has something to wait for from `at` on.
    pub(super) fn deadline_from(&mut self, place: usize, at: Stamp) {
        self.connections[place].deadline = at.plus(self.timeout);
    }

    /// Sets the deadline of a connection that had none.
    pub(super) fn settle_rested(&mut self, place: usize) {
        // A connection without a request has had nothing to wait for; what it is given now is to be answered in time.
        let has_none = self.connections[place].deadline == Stamp::NEVER;
        if has_none && self.burst == Burst::None {
            self.settle_deadline(place);
        }
    }

    /// The oldest request under way decides when it is too late.
    pub(super) fn settle_deadline(&mut self, place: usize) {
        let connection = &self.connections[place];
        let deadline = if connection.len == 0 {
            Stamp::NEVER
        } else if connection.state.is_opening() {
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
        self.connections[place].deadline = deadline;
    }
}
