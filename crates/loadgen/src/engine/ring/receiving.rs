//! The way in: bytes of replies, their ends, and the ends of connections.

use measure::{Stamp, now};
use rustix::io::Errno;

use super::connection::{Connection, State};
use super::queue::{Filled, Step};
use super::{Burst, Loop};
use crate::engine::answer::Ended;
use crate::engine::tally::Failure;
use crate::plan::Closing;

impl Loop<'_> {
    /// A receive has brought something, or has ended.
    pub(super) fn received(
        &mut self,
        place: u32,
        result: Result<u32, Errno>,
        filled: Option<&Filled>,
        goes_on: bool,
    ) {
        let at = now();
        self.connections[place as usize].is_receiving = goes_on;
        if self.schedule.is_none() && at >= self.tally.window.end {
            // Beyond the counted time: the request was unfinished at its end, and the next turn is the last.
            return;
        }
        match (result, filled) {
            (Ok(1..), Some(filled)) => {
                if self.take(place, filled, at) {
                    self.receive(place);
                    // Sent in the next turn: the end of the connection may be the next thing that is heard.
                    self.todo.push(place);
                }
            }
            (Ok(_), _) => self.ended(place, at),
            // All buffers were full; by now they are given back.
            (Err(Errno::NOBUFS | Errno::INTR | Errno::AGAIN), _) => self.receive(place),
            (Err(_), _) => self.broke(place, at),
        }
    }

    /// Has a receive under way.
    pub(super) fn receive(&mut self, place: u32) {
        let is_kept = self.seat.plan.connections.requests_each.is_none();
        let connection = &mut self.connections[place as usize];
        if !connection.is_receiving {
            connection.is_receiving = true;
            let tag = connection.tag(place);
            // One that goes on could read what is meant for the next connection of the same socket.
            self.queue.push(
                tag,
                &[if is_kept {
                    Step::ReceiveAll
                } else {
                    Step::Receive
                }],
            );
        }
    }

    /// Takes bytes of replies; whether the connection is still there, and the same.
    fn take(&mut self, place: u32, filled: &Filled, at: Stamp) -> bool {
        self.tally.read(self.queue.bytes(filled).len(), at);
        let mut used = 0;
        loop {
            let bytes = &self.queue.bytes(filled)[used..];
            let connection = &mut self.connections[place as usize];
            if bytes.is_empty() || connection.state == State::Lingering {
                return true;
            }
            if connection.len == connection.unsent {
                // Nobody has asked for this.
                self.unasked(place, at);
                return false;
            }
            let depth = self.seat.plan.connections.in_flight;
            let index = place as usize * depth + connection.head as usize;
            let flight = &mut self.flights[index];
            if flight.first_byte == Stamp::ZERO {
                flight.first_byte = at;
            }
            let standard = &self.seat.common.standards[flight.kind as usize];
            let fed = connection.answer.feed(bytes, standard);
            used += fed.used;
            if let Some(reply) = fed.ended
                && !self.completed(place, reply, at)
            {
                return false;
            }
        }
    }

    fn unasked(&mut self, place: u32, at: Stamp) {
        if self.connections[place as usize].len > 0 {
            self.fail(place, Failure::Short, at);
        } else {
            self.close(place, Closing::Rst);
            self.go_on(place, at);
        }
    }

    /// A reply was read to its end; whether the connection is still there.
    #[inline]
    fn completed(&mut self, place: u32, reply: Ended, at: Stamp) -> bool {
        self.pop(place, reply, at);
        if !reply.keeps {
            return self.not_kept(place, at);
        }
        let Connection { left, len, .. } = self.connections[place as usize];
        if left == 0 && len == 0 {
            return self.finish_connection(place, at);
        }
        if !self.is_closed_load() {
            self.is_idle(place);
        } else if (place as usize) < self.active {
            self.fill(place);
        } else if len == 0 {
            self.resting.push(place);
        }
        self.settle_deadline(place);
        true
    }

    /// Takes the oldest request off.
    #[inline]
    fn pop(&mut self, place: u32, reply: Ended, at: Stamp) {
        let index = self.flight_index(place, 0);
        self.tally.ended(&self.flights[index], reply, at);
        self.in_flight -= 1;
        self.warm_up(place);
        let depth = self.seat.plan.connections.in_flight as u32;
        let connection = &mut self.connections[place as usize];
        connection.turn = at;
        connection.len -= 1;
        connection.head = (connection.head + 1) % depth;
    }

    /// The server does not want the connection any more; what was pipelined behind is lost.
    fn not_kept(&mut self, place: u32, at: Stamp) -> bool {
        self.connections[place as usize].left = 0;
        self.lose_flights(place, at);
        self.finish_connection(place, at)
    }

    /// The other side has ended the connection.
    fn ended(&mut self, place: u32, at: Stamp) {
        let connection = &mut self.connections[place as usize];
        if connection.state == State::Lingering {
            return self.give_up_ended(place, at);
        }
        let is_asked = connection.sent_len() > 0 || self.burst != Burst::None;
        if connection.len == 0 || !is_asked {
            if self.tally.window.holds(at) {
                self.tally.counts.ended_idle += 1;
            }
            self.set_back(place);
            return self.give_up_ended(place, at);
        }
        if connection.answer.is_untouched() {
            return self.fail(place, Failure::Reset, at);
        }
        let index = self.flight_index(place, 0);
        let standard = &self.seat.common.standards[self.flights[index].kind as usize];
        let reply = self.connections[place as usize].answer.close(standard);
        self.pop(place, reply, at);
        self.lose_flights(place, at);
        self.give_up_ended(place, at);
    }

    /// Closes what the other side has closed: no reset is needed, and no port is kept.
    fn give_up_ended(&mut self, place: u32, at: Stamp) {
        self.close(place, Closing::Fin);
        self.go_on(place, at);
    }

    /// The connection was reset.
    fn broke(&mut self, place: u32, at: Stamp) {
        let connection = &self.connections[place as usize];
        let is_asked = connection.sent_len() > 0 || self.burst != Burst::None;
        if connection.state == State::Lingering || connection.len == 0 || !is_asked {
            return self.ended(place, at);
        }
        let is_untouched = connection.answer.is_untouched();
        self.fail(
            place,
            if is_untouched {
                Failure::Reset
            } else {
                Failure::Short
            },
            at,
        );
    }
}
