//! The way in: bytes of replies, their ends, and the ends of connections.

use std::io;

use rustix::net::{RecvFlags, recv};
use telemetry::{Stamp, now};

use super::connection::ConnectionState;
use super::{Burst, EventLoop};
use crate::engine::response::Ended;
use crate::outcome::Failure;
use crate::plan::Closing;

/// Reads of one connection in one turn; then the others come first.
const READS_A_TURN: usize = 32;

impl EventLoop<'_> {
    /// Reads what is there. `is_ending`: the other side has said that nothing more will come, so that a read
    /// that does not fill the buffer need not be the last one.
    pub(super) fn read(&mut self, place: usize, is_ending: bool) {
        // The buffer lies outside while it is read from, so that everything else can be changed.
        let mut buffer = std::mem::take(&mut self.buffer);
        let is_unfinished = self.read_into(place, is_ending, &mut buffer);
        self.buffer = buffer;
        // Edges tell once: without this the rest would lie until more came, which may be never.
        if is_unfinished {
            self.watch_again(place);
        }
    }

    /// Whether there may be more.
    fn read_into(&mut self, place: usize, is_ending: bool, buffer: &mut [u8]) -> bool {
        for _ in 0..READS_A_TURN {
            let got = self.receive(place, buffer);
            let at = now();
            // What has arrived before it could be read; a clock that was set meanwhile says nothing.
            let arrived = got
                .as_ref()
                .map_or(Stamp::ZERO, |(_, arrived)| (*arrived).min(at));
            if self.schedule.is_none() && at >= self.tally.window.end {
                // Beyond the counted time: the request was unfinished at its end, and the next turn is the last.
                return false;
            }
            match got {
                Ok((0, _)) => {
                    self.ended(place, at);
                    return false;
                }
                Ok((bytes, _)) => {
                    self.tally.read(bytes, at);
                    if !self.take(place, &buffer[..bytes], arrived, at) {
                        return false;
                    }
                    let is_plain = self.connections[place].tls.is_none();
                    // A read that did not fill the buffer emptied the socket: more bytes make another edge.
                    if is_plain && bytes < buffer.len() && !is_ending {
                        return false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => {
                    self.broke(place, at);
                    return false;
                }
            }
        }
        true
    }

    /// Bytes, and when they arrived by the kernel's stamps; [`Stamp::ZERO`]: there is none.
    #[inline]
    fn receive(&mut self, place: usize, buffer: &mut [u8]) -> io::Result<(usize, Stamp)> {
        let connection = &mut self.connections[place];
        let Some(descriptor) = &connection.socket else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        // The server is read again when it has taken what waits for it.
        if connection
            .http2
            .as_ref()
            .is_some_and(|http2| http2.has_unread())
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(stamps) = &mut self.receive_stamps {
            return stamps.receive(descriptor, buffer);
        }
        let bytes = match &mut connection.tls {
            None => recv(descriptor, buffer, RecvFlags::empty())?.0,
            Some(link) => link.recv(descriptor, buffer)?,
        };
        Ok((bytes, Stamp::ZERO))
    }

    /// Takes bytes of replies; whether the connection is still there.
    fn take(&mut self, place: usize, bytes: &[u8], arrived: Stamp, at: Stamp) -> bool {
        if self.connections[place].http2.is_some() {
            return self.take_http2(place, bytes, arrived, at);
        }
        if self.connections[place].websocket.is_some() {
            return self.take_websocket(place, bytes, arrived, at);
        }
        let mut used = 0;
        while used < bytes.len() {
            let connection = &self.connections[place];
            // What a server sends behind the last reply is read, so that its end is seen, and counts for nothing.
            if connection.state == ConnectionState::Lingering {
                return true;
            }
            let Some(kind) = self.note_arrival(place, arrived, at) else {
                return false;
            };
            let standard = &self.worker.shared.standards[kind];
            let response = &mut self.connections[place].response;
            let (more, ended) = response.feed(&bytes[used..], standard);
            used += more;
            if let Some(reply) = ended
                && !self.completed(place, reply, at)
            {
                return false;
            }
        }
        true
    }

    /// Bytes of the oldest reply have come: of what kind its request is. `None`: nothing was asked for, and the
    /// connection has ended.
    #[inline]
    pub(super) fn note_arrival(
        &mut self,
        place: usize,
        arrived: Stamp,
        at: Stamp,
    ) -> Option<usize> {
        let index = self.flight_index(place, 0);
        let flight = &mut self.flights[index];
        let len = self.connections[place].len;
        // Not asked for, by a request that was sent.
        if len == 0 || flight.sent == Stamp::ZERO {
            match len {
                0 => self.give_up(place, Closing::Rst, at),
                _ => self.fail(place, Failure::Short, at),
            }
            return None;
        }
        // A reply from before its request is one that was read late, by a clock that was set since.
        let arrived = if arrived < flight.sent {
            Stamp::ZERO
        } else {
            arrived
        };
        if flight.first_byte == Stamp::ZERO {
            flight.first_byte = if arrived == Stamp::ZERO { at } else { arrived };
        }
        flight.arrived = arrived;
        Some(flight.kind as usize)
    }

    /// A reply was read to its end; whether the connection is still there.
    #[inline]
    pub(super) fn completed(&mut self, place: usize, reply: Ended, at: Stamp) -> bool {
        let is_unsent = self.pop(place, reply, at);
        let connection = &mut self.connections[place];
        let mut is_last = connection.left == 0 && connection.len == 0;
        // A reply before the end of its request says that the server will not read the rest: what it reads next
        // would be the middle of a body.
        if !reply.keeps || is_unsent {
            connection.left = 0;
            // What was pipelined behind it is lost.
            self.lose_flights(place, at);
            is_last = true;
        }
        if is_last {
            // The connection may be closed by this, and the rest of the bytes belongs to no reply.
            self.finish_connection(place, at);
            return self.connections[place].socket.is_some();
        }
        if !self.is_closed_load() {
            self.is_idle(place);
        } else if self.fill(place) {
            self.todo.push_back(place);
        }
        self.settle_deadline(place);
        true
    }

    /// Takes the oldest request off; whether it was not even sent to its end.
    #[inline]
    fn pop(&mut self, place: usize, reply: Ended, at: Stamp) -> bool {
        let index = self.flight_index(place, 0);
        self.tally.ended(&self.flights[index], reply, at);
        self.in_flight -= 1;
        self.warm_up(place);
        let connection = &mut self.connections[place];
        connection.turn = at;
        assert!(
            connection.len > 0,
            "a reply ends a request that is under way"
        );
        let is_unsent = connection.len == connection.unsent;
        if is_unsent {
            connection.unsent -= 1;
            connection.offset = 0;
        }
        connection.len -= 1;
        connection.head = (connection.head + 1) % self.depth;
        is_unsent
    }

    /// The other side has ended the connection.
    pub(super) fn ended(&mut self, place: usize, at: Stamp) {
        let connection = &self.connections[place];
        if connection.websocket.is_some() && connection.state == ConnectionState::Settling {
            return self.has_no_websocket(place, "the server ends the connection");
        }
        if connection.state == ConnectionState::Lingering {
            return self.give_up(place, Closing::Fin, at);
        }
        if connection.http2.is_some() {
            return self.ended_http2(place, at);
        }
        // RFC 9112 section 9.5: a server may end an idle connection at any time, also while a request is on its way
        // of which no byte has left: that is no failure of either side, and the request is sent on another one.
        if !self.is_asked(place) {
            if self.tally.window.holds(at) {
                self.tally.counts.ended_idle += 1;
            }
            self.set_back(place);
            return self.give_up(place, Closing::Fin, at);
        }
        if connection.response.is_untouched() {
            return self.fail(place, Failure::Reset, at);
        }
        let index = self.flight_index(place, 0);
        let standard = &self.worker.shared.standards[self.flights[index].kind as usize];
        let connection = &mut self.connections[place];
        let mut reply = connection.response.close(standard);
        // RFC 9112 section 9.8: over TLS such a reply is whole only if close_notify has said so.
        if connection.tls.as_ref().is_some_and(|tls| tls.is_cut()) {
            reply.wrong = Some(Failure::Short);
        }
        self.pop(place, reply, at);
        self.lose_flights(place, at);
        // What the other side has closed needs no reset: no port is kept.
        self.give_up(place, Closing::Fin, at);
    }

    /// The connection was reset.
    fn broke(&mut self, place: usize, at: Stamp) {
        let connection = &self.connections[place];
        let is_http2 = connection.http2.is_some();
        if is_http2 || connection.state == ConnectionState::Lingering || !self.is_asked(place) {
            return self.ended(place, at);
        }
        let failure = match connection.response.is_untouched() {
            true => Failure::Reset,
            false => Failure::Short,
        };
        self.fail(place, failure, at);
    }

    /// Whether the server has had a part of a request that is under way, or will at once, as all have of a burst.
    fn is_asked(&self, place: usize) -> bool {
        let connection = &self.connections[place];
        connection.len > 0 && (connection.sent_len() > 0 || self.burst != Burst::None)
    }
}
