//! The way out: connections are begun, requests are sent, connections are ended.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg, sockopt};
use telemetry::{Stamp, now};

use super::connection::ConnectionState;
use super::{Burst, EVENTS_LEN, EventLoop, FULL_QUEUE_RETRY, PAUSE};
use crate::engine::tls::HandshakeState;
use crate::engine::{receive_stamps, socket};
use crate::outcome::Failure;
use crate::plan::Closing;

/// Requests of one connection that leave by one call.
const SLICES_LEN: usize = 16;

impl<'a> EventLoop<'a> {
    /// The second pass: what is to be sent, and connections that are to be begun.
    pub(super) fn send_all(&mut self) {
        // Only what was there at the beginning: what a send adds comes after the next look at the time.
        for _ in 0..self.todo.len().min(EVENTS_LEN) {
            let Some(place) = self.todo.pop_front() else {
                return;
            };
            match self.connections[place as usize].state {
                ConnectionState::Closed if self.is_retrying(place) => {}
                ConnectionState::Closed if self.is_wanted(place) => self.begin(place),
                ConnectionState::Open => {
                    // An open load's requests were begun when they were due; a closed one's begin here.
                    if self.is_closed_load() {
                        self.fill(place);
                        self.settle_rested(place);
                    }
                    self.flush(place);
                }
                ConnectionState::Closed
                | ConnectionState::Connecting
                | ConnectionState::Handshaking
                | ConnectionState::Lingering => {}
            }
        }
    }

    /// Whether a place without a connection is to have one: it may have lost its last one since it was noted.
    pub(super) fn is_wanted(&self, place: u32) -> bool {
        let is_asked = self.is_closed_load() || self.connections[place as usize].len > 0;
        is_asked && self.burst == Burst::None
    }

    /// Whether it is tried again later.
    fn is_retrying(&self, place: u32) -> bool {
        self.connections[place as usize].is_retrying
    }

    /// Begins a connection, and sends on it what is to be sent.
    pub(super) fn begin(&mut self, place: u32) {
        let is_closed_load = self.is_closed_load();
        if is_closed_load && self.connections[place as usize].len == 0 && !self.may_begin() {
            if self.burst == Burst::Gathering {
                self.warm_up(place);
            }
            return;
        }
        assert!(
            self.connections[place as usize].socket.is_none(),
            "a place has one connection at a time"
        );
        let at = now();
        let connection = &mut self.connections[place as usize];
        // Events of the former connection that are still to be looked at are told by this number.
        connection.generation = connection.generation.wrapping_add(1);
        connection.response.reset();
        if !connection.is_retrying {
            connection.began = at;
        }
        // A place that had a connection before is in its turn already: the turn begins with the end of the last one.
        if connection.turn == Stamp::ZERO {
            connection.turn = at;
        }
        if connection.len == 0 {
            connection.left = self.requests_each;
        }
        if is_closed_load {
            self.fill(place);
        }
        match self.remote.connect(self.sources.next(), None) {
            Ok(descriptor) => {
                if self.needs_nodelay {
                    socket::set_nodelay(&descriptor);
                }
                if self.receive_stamps.is_some() {
                    receive_stamps::ask_for(&descriptor);
                }
                let connection = &mut self.connections[place as usize];
                connection.is_retrying = false;
                connection.socket = Some(descriptor);
                connection.state = ConnectionState::Connecting;
                self.deadline_from(place, at);
                let has_request = self.connections[place as usize].unsent > 0;
                // On loopback the connection is established by now, and one call less is made than by waiting for
                // the poll to say so. Elsewhere the send says `WouldBlock`, and room is watched for.
                if self.tls.is_none() && has_request && self.burst == Burst::None {
                    self.flush(place);
                } else {
                    self.connections[place as usize].watches_room = true;
                }
                // After the flush, which knows what is to be watched: watching once is one call less than changing it.
                self.watch(place);
            }
            Err(Errno::AGAIN) if !self.remote.is_tcp() => self.retry_later(place, at),
            Err(error) => self.fail(place, socket::failure(error), now()),
        }
    }

    /// A unix socket's queue is full. Whoever waits in `connect` gets in when there is room, as the kernel does it
    /// for TCP by itself; who does not wait is turned away, which is not the server's doing.
    fn retry_later(&mut self, place: u32, at: Stamp) {
        let connection = &mut self.connections[place as usize];
        if at.since(connection.began) >= self.timeout {
            connection.is_retrying = false;
            return self.fail(place, Failure::Connect, at);
        }
        connection.is_retrying = true;
        self.retrying.push_back((at.plus(FULL_QUEUE_RETRY), place));
    }

    /// Watches a connection's socket for the first time.
    fn watch(&mut self, place: u32) {
        let connection = &self.connections[place as usize];
        let Some(descriptor) = &connection.socket else {
            return;
        };
        let (data, flags) = interest(place, connection.generation, connection.watches_room);
        if epoll::add(&self.poll, descriptor, data, flags).is_err() {
            return self.fail(place, Failure::Local, now());
        }
        self.connections[place as usize].is_watched = true;
    }

    /// Says again what is watched, which reports it again as well.
    pub(super) fn watch_again(&mut self, place: u32) {
        let connection = &self.connections[place as usize];
        // One that is just begun is watched by whoever has begun it, for what is wanted by then.
        let Some(descriptor) = connection.socket.as_ref().filter(|_| connection.is_watched) else {
            return;
        };
        let (data, flags) = interest(place, connection.generation, connection.watches_room);
        if epoll::modify(&self.poll, descriptor, data, flags).is_err() {
            self.fail(place, Failure::Local, now());
        }
    }

    /// The poll says something of a connection that was not known to be established.
    pub(super) fn settle_connecting(&mut self, place: u32) {
        let connection = &mut self.connections[place as usize];
        let Some(descriptor) = &connection.socket else {
            return;
        };
        match sockopt::socket_error(descriptor) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => return self.fail(place, socket::failure(error), now()),
        }
        match &self.tls {
            None => {
                self.established(place, now());
                self.flush(place);
            }
            Some(client) => {
                // Its own block: a connection without TLS stays small, and there may be a million.
                connection.tls = Some(Box::new(client.begin()));
                connection.state = ConnectionState::Handshaking;
                self.handshake(place);
            }
        }
    }

    /// Goes on with agreeing on TLS.
    pub(super) fn handshake(&mut self, place: u32) {
        let connection = &mut self.connections[place as usize];
        let (Some(link), Some(descriptor)) = (&mut connection.tls, &connection.socket) else {
            return;
        };
        match link.handshake(descriptor) {
            Ok(HandshakeState::Going) => {}
            Ok(HandshakeState::Done { resumed }) => {
                let at = now();
                if resumed && self.tally.window.holds(at) {
                    self.tally.counts.resumed += 1;
                }
                self.established(place, at);
                self.flush(place);
                // What came with the end of the handshake is not told of again.
                self.read(place, false);
            }
            Err(_) => self.fail(place, Failure::Connect, now()),
        }
    }

    fn established(&mut self, place: u32, at: Stamp) {
        let connection = &mut self.connections[place as usize];
        connection.state = ConnectionState::Open;
        // From its very beginning, also where a full queue turned it away in between.
        self.tally.connected(connection.began, at);
        if self.burst == Burst::Gathering {
            // It waits for the others, however long they take.
            self.connections[place as usize].deadline = Stamp::NEVER;
            self.warm_up(place);
        } else if self.connections[place as usize].len > 0 {
            self.deadline_from(place, at);
        } else {
            self.connections[place as usize].deadline = Stamp::NEVER;
        }
    }

    /// Sends what is unsent, as far as the socket takes it.
    pub(super) fn flush(&mut self, place: u32) {
        if self.burst == Burst::Gathering {
            return;
        }
        while self.connections[place as usize].unsent > 0 {
            let at = now();
            match self.send_some(place, at) {
                Ok(bytes) => self.sent(place, bytes, at),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.wait_for_room(place);
                }
                Err(error) => return self.send_failed(place, &error),
            }
        }
        self.flush_tls(place);
    }

    /// Gives the socket as much of what is unsent as it takes.
    fn send_some(&mut self, place: u32, at: Stamp) -> io::Result<usize> {
        let first = self.unsent_bytes(place, 0);
        let connection = &mut self.connections[place as usize];
        let Some(descriptor) = &connection.socket else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let sent = match &mut connection.tls {
            Some(link) => link.send(descriptor, first)?,
            None if connection.unsent == 1 => send(descriptor, first, SendFlags::NOSIGNAL)?,
            None => self.send_several(place)?,
        };
        self.settle_sent(place, sent, at);
        Ok(sent)
    }

    /// Pipelined requests leave together.
    fn send_several(&self, place: u32) -> io::Result<usize> {
        let connection = &self.connections[place as usize];
        let Some(descriptor) = &connection.socket else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let len = (connection.unsent as usize).min(SLICES_LEN);
        let slices: [IoSlice<'_>; SLICES_LEN] = std::array::from_fn(|number| {
            let is_there = number < len;
            IoSlice::new(if is_there {
                self.unsent_bytes(place, number as u32)
            } else {
                &[]
            })
        });
        let mut control = SendAncillaryBuffer::default();
        Ok(sendmsg(
            descriptor,
            &slices[..len],
            &mut control,
            SendFlags::NOSIGNAL,
        )?)
    }

    /// What is left of the `number`-th unsent request.
    fn unsent_bytes(&self, place: u32, number: u32) -> &'a [u8] {
        let plan = self.worker.plan;
        let connection = &self.connections[place as usize];
        let index = self.flight_index(place, connection.len - connection.unsent + number);
        let kind = &plan.requests[self.flights[index].kind as usize];
        let is_last = connection.left == 0
            && number + 1 == connection.unsent
            && plan.connections.closing == Closing::Server;
        let bytes = if is_last {
            &kind.last_bytes
        } else {
            &kind.bytes
        };
        if number == 0 {
            &bytes[connection.offset..]
        } else {
            bytes
        }
    }

    /// So many bytes of what was unsent have left.
    fn settle_sent(&mut self, place: u32, sent: usize, at: Stamp) {
        let mut left = sent;
        while left > 0 {
            let rest = self.unsent_bytes(place, 0).len();
            let connection = &self.connections[place as usize];
            assert!(
                connection.unsent > 0,
                "the socket takes no more than was given to it"
            );
            let index = self.flight_index(place, connection.len - connection.unsent);
            // With its first byte: what a full socket lets wait is time of the server, and in the latency.
            if connection.offset == 0 {
                self.flights[index].sent = at;
            }
            let connection = &mut self.connections[place as usize];
            if left < rest {
                connection.offset += left;
                return;
            }
            connection.offset = 0;
            connection.unsent -= 1;
            left -= rest;
        }
    }

    fn sent(&mut self, place: u32, bytes: usize, at: Stamp) {
        self.tally.sent(bytes, at);
        // What the socket takes, it takes of an established connection.
        if self.connections[place as usize].state == ConnectionState::Connecting {
            self.established(place, at);
        }
    }

    fn send_failed(&mut self, place: u32, error: &io::Error) {
        let is_connecting = self.connections[place as usize].state == ConnectionState::Connecting;
        let failure = match error.raw_os_error() {
            Some(code) if is_connecting => {
                socket::failure(rustix::io::Errno::from_raw_os_error(code))
            }
            // The reply may be there although the rest of the request was not wanted.
            _ => return self.read(place, true),
        };
        self.fail(place, failure, now());
    }

    fn wait_for_room(&mut self, place: u32) {
        let connection = &mut self.connections[place as usize];
        if !connection.watches_room {
            connection.watches_room = true;
            self.watch_again(place);
        }
    }

    fn flush_tls(&mut self, place: u32) {
        let connection = &mut self.connections[place as usize];
        let (Some(link), Some(descriptor)) = (&mut connection.tls, &connection.socket) else {
            return;
        };
        if !matches!(link.flush(descriptor), Ok(true)) {
            // Connections with TLS always watch for room.
            connection.watches_room = true;
        }
    }

    /// The last reply of a connection was read.
    pub(super) fn finish_connection(&mut self, place: u32, at: Stamp) {
        let closing = self.worker.plan.connections.closing;
        if closing == Closing::Server {
            // The place is not used until the server has closed: the measured load would grow by what it leaves open.
            let connection = &mut self.connections[place as usize];
            connection.state = ConnectionState::Lingering;
            connection.deadline = at.plus(super::LINGER);
            return;
        }
        self.give_up(place, at);
    }

    /// Closes a connection on which nothing is under way, and goes on with its place.
    pub(super) fn give_up(&mut self, place: u32, at: Stamp) {
        self.close(place, self.worker.plan.connections.closing);
        self.go_on(place, at);
    }

    /// A connection and everything under way on it have failed.
    pub(super) fn fail(&mut self, place: u32, failure: Failure, at: Stamp) {
        self.fail_flights(place, failure, at);
        // One that failed counts as warm: otherwise a server that refuses some would keep the run from its beginning.
        self.warm_up(place);
        // By a reset whatever was asked for: a port in TIME_WAIT for each failure would soon leave none.
        self.close(place, Closing::Rst);
        if self.is_closed_load() && matches!(failure, Failure::Connect | Failure::Local) {
            if self.burst == Burst::None {
                self.paused.push_back((at.plus(PAUSE), place));
            }
        } else {
            self.go_on(place, at);
        }
    }

    pub(super) fn close(&mut self, place: u32, closing: Closing) {
        let connection = &mut self.connections[place as usize];
        connection.state = ConnectionState::Closed;
        connection.is_watched = false;
        connection.watches_room = false;
        connection.deadline = Stamp::NEVER;
        connection.offset = 0;
        let Some(descriptor) = connection.socket.take() else {
            return;
        };
        if let Some(mut link) = connection.tls.take()
            && closing != Closing::Rst
        {
            link.close(descriptor.as_fd());
        }
        if closing == Closing::Rst {
            socket::reset(descriptor);
        }
    }

    /// A place without a connection: what becomes of it.
    pub(super) fn go_on(&mut self, place: u32, at: Stamp) {
        if !self.is_closed_load() {
            // In a closed load the turn goes on: what its ending takes is part of the next one.
            let connection = &mut self.connections[place as usize];
            connection.turn = at;
            let (len, left) = (connection.len, connection.left);
            // Requests that were due are still to be answered, on a connection that has yet to be made.
            if len > 0 {
                self.todo.push_back(place);
            }
            if len == 0 || len < self.depth && left > 0 {
                self.is_idle(place);
            }
        } else if self.burst == Burst::None {
            self.todo.push_back(place);
        }
    }

    /// A connection of an open load may take a request.
    pub(super) fn is_idle(&mut self, place: u32) {
        let connection = &mut self.connections[place as usize];
        if !connection.is_queued {
            connection.is_queued = true;
            self.idle.push_back(place);
        }
    }
}

fn interest(
    place: u32,
    generation: u32,
    watches_room: bool,
) -> (epoll::EventData, epoll::EventFlags) {
    let data = epoll::EventData::new_u64(u64::from(place) | u64::from(generation) << 32);
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    let room = if watches_room {
        epoll::EventFlags::OUT
    } else {
        epoll::EventFlags::empty()
    };
    (data, flags | room)
}
