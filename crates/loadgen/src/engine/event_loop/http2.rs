//! The loop's side of HTTP/2: requests become streams, streams end in any order, connections end by GOAWAY.
//!
//! The requests under way of a connection are its ring, the oldest first; those that are sent have streams, in the same
//! order. A stream that ends moves the older requests up by one place.

use std::io;

use telemetry::Stamp;

use super::connection::{Connection, ConnectionState};
use super::send::send_bytes;
use super::{Burst, EventLoop};
use crate::engine::Fault;
use crate::engine::http2::{ConnectionEnd, Http2Client, StreamEnd};
use crate::engine::tally::Flight;
use crate::outcome::Failure;
use crate::plan::{Closing, Scheme};

/// Streams of a connection, beside those that it begins with.
const STREAMS_LEN_MAX: u64 = 1 << 29;

impl EventLoop<'_> {
    /// A connection is established on which HTTP/2 is to be spoken.
    pub(super) fn begin_http2(&mut self, place: usize, at: Stamp) {
        let connection = &mut self.connections[place];
        connection.http2 = Some(Box::new(Http2Client::new(at)));
        connection.state = ConnectionState::Settling;
        // Identifiers end, RFC 9113 section 5.1.1.
        connection.left = connection.left.min(STREAMS_LEN_MAX);
    }

    /// The server does not speak HTTP/2: no request of the run can be sent.
    pub(super) fn has_no_http2(&mut self, place: usize) {
        let plan = self.worker.plan;
        let (cause, hint) = match plan.target.scheme {
            Scheme::Https(_) => (
                "the server does not choose HTTP/2 (ALPN `h2`)",
                "leave `--http2` out, or have the server speak HTTP/2 on this address",
            ),
            Scheme::Http => (
                "the server does not answer in HTTP/2",
                "leave `--http2` out; many servers speak HTTP/2 on their https addresses only",
            ),
        };
        let text = format!("`{}`: {cause}", plan.target.url);
        self.fault = Some(Fault::with_hint(text, hint));
        self.close(place, Closing::Rst);
    }

    /// Sends what is to be sent, as far as the socket takes it.
    pub(super) fn flush_http2(&mut self, place: usize) {
        loop {
            let at = telemetry::now();
            self.open_streams(place, at);
            match self.send_output(place, at) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.wait_for_writable(place);
                }
                Err(error) => return self.send_failed(place, &error),
            }
            let Some(http2) = &mut self.connections[place].http2 else {
                return;
            };
            if !http2.take_held_up() {
                break;
            }
            // What the crate has left unread is taken now, and the socket is read again.
            http2.turn();
            self.settle_http2(place, Stamp::ZERO, at);
            self.watch_again(place);
        }
        self.flush_tls(place);
    }

    /// Makes streams of requests that are not sent yet, as many as the server allows, and has the crate write them.
    fn open_streams(&mut self, place: usize, at: Stamp) {
        let is_open = self.connections[place].state == ConnectionState::Open;
        while is_open && self.burst != Burst::Gathering && self.connections[place].unsent > 0 {
            let connection = &self.connections[place];
            let index = self.flight_index(place, connection.len - connection.unsent);
            let kind = self.flights[index].kind as usize;
            let request = &self.worker.shared.http2_requests[kind];
            let connection = &mut self.connections[place];
            if !connection
                .http2
                .as_mut()
                .is_some_and(|http2| http2.send(request))
            {
                break;
            }
            connection.unsent -= 1;
            // The call that sends it comes next: what a full socket lets wait is time of the server.
            self.flights[index].sent = at;
        }
        if let Some(http2) = &mut self.connections[place].http2 {
            http2.turn();
        }
    }

    /// Gives the socket what the crate has written.
    fn send_output(&mut self, place: usize, at: Stamp) -> io::Result<()> {
        let connection = &mut self.connections[place];
        let (Some(http2), Some(socket)) = (&connection.http2, &connection.socket) else {
            return Ok(());
        };
        while http2.has_output() {
            let tls = &mut connection.tls;
            let sent = http2.write(|bytes| send_bytes(tls, socket, bytes));
            match sent {
                Ok(bytes) => self.tally.sent(bytes, at),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes bytes of the server; whether the connection is still there.
    pub(super) fn take_http2(
        &mut self,
        place: usize,
        bytes: &[u8],
        arrived: Stamp,
        at: Stamp,
    ) -> bool {
        if let Some(http2) = &mut self.connections[place].http2 {
            http2.receive(bytes, at);
        }
        self.settle_http2(place, arrived, at)
    }

    /// The other side has ended the connection, or it was reset.
    pub(super) fn ended_http2(&mut self, place: usize, at: Stamp) {
        let connection = &mut self.connections[place];
        let is_open = connection.state == ConnectionState::Open;
        let Some(http2) = &mut connection.http2 else {
            return;
        };
        // RFC 9113 section 9.1: a server may end an idle connection, with a GOAWAY or without.
        let is_idle = http2.streams_len() == 0 && http2.end().is_none();
        if is_open && is_idle && self.tally.window.holds(at) {
            self.tally.counts.ended_idle += 1;
        }
        http2.end_input();
        self.settle_http2(place, Stamp::ZERO, at);
    }

    /// What the crate has made of the server's bytes; whether the connection is still there.
    fn settle_http2(&mut self, place: usize, arrived: Stamp, at: Stamp) -> bool {
        let connection = &mut self.connections[place];
        let Some(http2) = &connection.http2 else {
            return false;
        };
        if connection.state == ConnectionState::Settling && http2.streams_max() > 0 {
            self.has_settled = true;
            self.established(place, at);
            self.note_streams_max(place);
        }
        self.take_streams(place, arrived, at);
        if !self.settle_end(place, at) {
            return false;
        }
        let connection = &self.connections[place];
        if connection.left == 0 && connection.len == 0 {
            self.finish_connection(place, at);
            return false;
        }
        // Also without a request: the crate may have something to say.
        self.todo.push_back(place);
        if self.burst != Burst::Gathering {
            self.settle_deadline(place);
        }
        true
    }

    /// Notes the fewest streams that the server allows.
    fn note_streams_max(&mut self, place: usize) {
        if let Some(http2) = &self.connections[place].http2 {
            let allowed = Some(http2.streams_max()).filter(|allowed| *allowed < u32::MAX);
            let noted = self.tally.counts.streams_max;
            let both = allowed.map(u64::from).into_iter().chain(noted);
            self.tally.counts.streams_max = both.min();
        }
    }

    /// Takes what has come on the streams of a connection.
    fn take_streams(&mut self, place: usize, arrived: Stamp, at: Stamp) {
        while let Some(http2) = &mut self.connections[place].http2
            && let Some(number) = http2.next_moved()
        {
            let index = self.flight_index(place, number as u32);
            let flight = &mut self.flights[index];
            let standard = &self.worker.shared.standards[flight.kind as usize];
            let Some(http2) = &mut self.connections[place].http2 else {
                return;
            };
            let (has_head, end) = http2.poll(number, standard);
            // A reply from before its request is one that was read late, by a clock that was set since.
            let is_noted = arrived >= flight.sent;
            if has_head {
                flight.arrived = if is_noted { arrived } else { Stamp::ZERO };
            }
            if has_head && flight.first_byte == Stamp::ZERO {
                flight.first_byte = if is_noted { arrived } else { at };
            }
            match end {
                None => {}
                Some(StreamEnd::Unprocessed) => self.take_back(place, number as u32, at),
                Some(end) => self.end_stream(place, number as u32, &end, at),
            }
        }
    }

    /// A stream has ended.
    fn end_stream(&mut self, place: usize, number: u32, end: &StreamEnd, at: Stamp) {
        let flight = self.remove_flight(place, number, at);
        match end {
            StreamEnd::Reply(reply) => self.tally.ended(&flight, *reply, at),
            StreamEnd::Failed { why, code } => {
                self.tally.failed(&flight, *why, at);
                if let Some(code) = code {
                    self.tally.reset(*code, at);
                }
            }
            StreamEnd::Unprocessed => {}
        }
        if !self.is_closed_load() {
            self.is_idle(place);
        } else if self.connections[place]
            .http2
            .as_ref()
            .is_some_and(|http2| http2.end().is_none())
        {
            self.fill(place);
        }
    }

    /// Takes a request that was sent off the ring.
    fn remove_flight(&mut self, place: usize, number: u32, at: Stamp) -> Flight {
        let flight = self.flights[self.flight_index(place, number)];
        // Most replies come in the order of their requests: little is moved.
        for number in (0..number).rev() {
            let [from, to] = [number, number + 1].map(|number| self.flight_index(place, number));
            self.flights[to] = self.flights[from];
        }
        self.in_flight -= 1;
        self.warm_up(place);
        let connection = &mut self.connections[place];
        assert!(
            number < connection.len - connection.unsent,
            "a stream that ends has a request that was sent"
        );
        connection.turn = at;
        connection.len -= 1;
        connection.head = (connection.head + 1) % self.depth;
        flight
    }

    /// The server has not looked at the requests from this number on, and will not: they are sent again, on another
    /// connection, as if for the first time (RFC 9113 section 6.8).
    fn take_back(&mut self, place: usize, number: u32, at: Stamp) {
        let connection = &mut self.connections[place];
        if let Some(http2) = &mut connection.http2 {
            http2.truncate(number as usize);
        }
        // The stream that said it is one no more, and those behind it are the youngest.
        let sent = connection.len - connection.unsent;
        connection.unsent = connection.len - number;
        for number in number..sent {
            let index = self.flight_index(place, number);
            let Flight {
                kind, began, due, ..
            } = self.flights[index];
            self.flights[index] = Flight {
                kind,
                began,
                due,
                ..Flight::default()
            };
        }
        if self.tally.window.holds(at) {
            self.tally.counts.resent += u64::from(sent - number);
        }
    }

    /// Looks whether the connection ends; whether it is still there.
    fn settle_end(&mut self, place: usize, at: Stamp) -> bool {
        let connection = &mut self.connections[place];
        let Some(http2) = &connection.http2 else {
            return false;
        };
        let Some(end) = http2.end() else {
            return true;
        };
        let is_last = http2.streams_len() == 0;
        if connection.state == ConnectionState::Settling {
            // A server that has spoken HTTP/2 before may refuse a connection in plain words.
            match end {
                ConnectionEnd::Violation if !self.has_settled => self.has_no_http2(place),
                _ => self.fail(place, Failure::Connect, at),
            }
            return false;
        }
        if let ConnectionEnd::GoAway(code) = end
            && connection.left > 0
        {
            self.tally.went_away(code, at);
        }
        connection.left = 0;
        if !is_last {
            return true;
        }
        // What was not sent on it is sent on the next one.
        self.lose_flights(place, at);
        let closing = match end {
            ConnectionEnd::Violation => Closing::Rst,
            ConnectionEnd::GoAway(_) | ConnectionEnd::Gone => self.worker.plan.connections.closing,
        };
        self.give_up(place, closing, at);
        false
    }

    /// Whether a place is beyond those that the load has.
    pub(super) fn is_spare(&self, place: usize) -> bool {
        place >= self.worker.connections_len
    }

    /// Whether a connection has streams and takes no more of them, so that its place may have another one.
    pub(super) fn is_retiring(&self, place: usize) -> bool {
        let http2 = self.connections[place].http2.as_ref();
        let is_leaving =
            http2.is_some_and(|http2| http2.end().is_some() && http2.streams_len() > 0);
        // A server that ends every connection and answers nothing is not given any number of them.
        let spares_max = self.worker.connections_len;
        let is_room = !self.spares.is_empty() || self.connections.len() < 2 * spares_max;
        is_leaving && is_room && !self.is_spare(place)
    }

    /// Moves a connection that takes no more streams to a spare place, where its streams end.
    pub(super) fn retire(&mut self, place: usize, at: Stamp) {
        let depth = self.depth as usize;
        let spare = self.spares.pop().unwrap_or_else(|| {
            self.connections.push(Connection::new());
            let flights = self.connections.len() * depth;
            self.flights.resize(flights, Flight::default());
            self.connections.len() - 1
        });
        let connection = &self.connections[place];
        let (sent, unsent) = (connection.sent_len(), connection.unsent);
        for number in 0..sent {
            self.flights[spare * depth + number as usize] =
                self.flights[self.flight_index(place, number)];
        }
        let generation = self.connections[spare].generation.wrapping_add(1);
        let connection = &mut self.connections[place];
        let next = Connection {
            generation: connection.generation,
            is_warm: connection.is_warm,
            is_queued: connection.is_queued,
            turn: connection.turn,
            head: (connection.head + sent) % self.depth,
            len: unsent,
            unsent,
            ..Connection::new()
        };
        let old = std::mem::replace(connection, next);
        self.connections[spare] = Connection {
            generation,
            is_warm: true,
            is_queued: false,
            left: 0,
            head: 0,
            len: sent,
            unsent: 0,
            ..old
        };
        // What comes next is reported for the other place.
        self.watch_again(spare);
        self.flush(spare);
        self.lose_flights(place, at);
        self.go_on(place, at);
    }

    /// The oldest requests of a connection have had no reply in time.
    pub(super) fn time_out_streams(&mut self, place: usize, at: Stamp) {
        let oldest = &self.flights[self.flight_index(place, 0)];
        let http2 = self.connections[place].http2.as_ref();
        // Nothing came on any stream meanwhile, or the server allows none: it is the connection that is of no use.
        let is_unsent = oldest.sent == Stamp::ZERO;
        if is_unsent || http2.is_none_or(|http2| http2.received <= oldest.sent) {
            return self.fail(place, Failure::Timeout, at);
        }
        while let connection = &self.connections[place]
            && connection.len > connection.unsent
            && self.flights[self.flight_index(place, 0)]
                .sent
                .plus(self.timeout)
                <= at
        {
            // The stream is reset, the connection and its other streams are not.
            if let Some(http2) = &mut self.connections[place].http2 {
                http2.reset_oldest();
            }
            let end = StreamEnd::Failed {
                why: Failure::Timeout,
                code: None,
            };
            self.end_stream(place, 0, &end, at);
        }
        if let Some(http2) = &mut self.connections[place].http2 {
            http2.turn();
        }
        self.settle_http2(place, Stamp::ZERO, at);
    }
}
