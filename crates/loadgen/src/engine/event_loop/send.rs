//! The way out: connections are begun, requests are sent, connections are ended.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg, sockopt};
use telemetry::{Stamp, now};

use super::connection::{Connection, ConnectionState};
use super::{Burst, EVENTS_LEN, EventLoop, FULL_QUEUE_RETRY, PAUSE};
use crate::engine::{receive_stamps, socket, tls};
use crate::outcome::Failure;
use crate::plan::{Closing, Protocol};

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
            match self.connections[place].state {
                // One at a full queue has its time in `paused`.
                ConnectionState::Closed if self.connections[place].is_retrying => {}
                ConnectionState::Closed if self.is_wanted(place) => self.begin(place),
                ConnectionState::Open if self.is_retiring(place) => self.retire(place, now()),
                ConnectionState::Open => {
                    // An open load's requests were begun when they were due; a closed one's begin here.
                    if self.is_closed_load() {
                        self.fill(place);
                        self.settle_rested(place);
                    }
                    self.flush(place);
                }
                ConnectionState::Settling => self.flush(place),
                ConnectionState::Closed
                | ConnectionState::Connecting
                | ConnectionState::Handshaking
                | ConnectionState::Lingering => {}
            }
        }
    }

    /// Whether a place without a connection is to have one.
    pub(super) fn is_wanted(&self, place: usize) -> bool {
        // It may have lost its last request since the place was noted.
        let is_asked = self.is_closed_load() || self.connections[place].len > 0;
        is_asked && !self.is_spare(place) && self.burst == Burst::None
    }

    /// Begins a connection, and sends on it what is to be sent.
    pub(super) fn begin(&mut self, place: usize) {
        let is_closed_load = self.is_closed_load();
        if is_closed_load && self.connections[place].len == 0 && !self.may_begin() {
            if self.burst == Burst::Gathering {
                self.warm_up(place);
            }
            return;
        }
        assert!(
            self.connections[place].socket.is_none(),
            "a place has one connection at a time"
        );
        let at = now();
        let connection = &mut self.connections[place];
        // By this number the events of the former connection are known that are still to be looked at.
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
                let connection = &mut self.connections[place];
                connection.is_retrying = false;
                connection.socket = Some(descriptor);
                connection.state = ConnectionState::Connecting;
                self.deadline_from(place, at);
                let has_request = self.connections[place].unsent > 0;
                // On loopback the connection is established by now, and one call less is made than by waiting for
                // the poll to say so. Elsewhere the send says `WouldBlock`, and the poll is asked for the rest.
                let is_plain = self.tls.is_none() && self.protocol() == Protocol::Http1;
                if is_plain && has_request && self.burst == Burst::None {
                    self.flush(place);
                } else {
                    self.connections[place].watches_writable = true;
                }
                // After the flush, which knows what is to be watched: watching once is one call less than changing it.
                self.watch(place);
            }
            Err(Errno::AGAIN) if !self.remote.is_tcp() => self.retry_later(place, at),
            Err(error) => self.fail(place, socket::failure(error), now()),
        }
    }

    /// A unix socket's queue is full.
    fn retry_later(&mut self, place: usize, at: Stamp) {
        // A client that waits in `connect` gets in when the queue is shorter, as the kernel does it for TCP by itself. A
        // client that does not wait is turned away, which is not the server's doing: so it tries until its time is over.
        let connection = &mut self.connections[place];
        if at.since(connection.began) >= self.timeout {
            connection.is_retrying = false;
            return self.fail(place, Failure::Connect, at);
        }
        connection.is_retrying = true;
        self.paused.insert((at.plus(FULL_QUEUE_RETRY), place));
    }

    /// Watches a connection's socket for the first time.
    fn watch(&mut self, place: usize) {
        let connection = &self.connections[place];
        let Some(descriptor) = &connection.socket else {
            return;
        };
        let (data, flags) = interest(place, connection);
        if epoll::add(&self.poll, descriptor, data, flags).is_err() {
            return self.fail(place, Failure::Local, now());
        }
        self.connections[place].is_watched = true;
    }

    /// Asks the poll anew for what is watched, so that it reports it again.
    pub(super) fn watch_again(&mut self, place: usize) {
        let connection = &self.connections[place];
        // One that is just begun is watched by `begin`, for what is wanted by then.
        let Some(descriptor) = connection.socket.as_ref().filter(|_| connection.is_watched) else {
            return;
        };
        let (data, flags) = interest(place, connection);
        if epoll::modify(&self.poll, descriptor, data, flags).is_err() {
            self.fail(place, Failure::Local, now());
        }
    }

    /// The poll says something of a connection that was not known to be established.
    pub(super) fn settle_connecting(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let Some(descriptor) = &connection.socket else {
            return;
        };
        match sockopt::socket_error(descriptor) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => return self.fail(place, socket::failure(error), now()),
        }
        match &self.tls {
            None => self.begin_protocol(place),
            Some(client) => {
                // Its own block: a connection without TLS stays small, and there may be a million.
                connection.tls = Some(Box::new(client.begin()));
                connection.state = ConnectionState::Handshaking;
                self.handshake(place);
            }
        }
    }

    /// Continues the handshake of TLS.
    pub(super) fn handshake(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let (Some(link), Some(descriptor)) = (&mut connection.tls, &connection.socket) else {
            return;
        };
        match link.handshake(descriptor) {
            Ok(resumed) => {
                let at = now();
                if resumed && self.tally.window.holds(at) {
                    self.tally.counts.resumed += 1;
                }
                let is_http2 = link.is_http2();
                if self.protocol() == Protocol::Http2 && !is_http2 {
                    return self.has_no_http2(place);
                }
                self.begin_protocol(place);
                // What came with the end of the handshake is in the buffers of TLS: no event reports it.
                self.read(place, false);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if tls::is_without_protocol(&error) => self.has_no_http2(place),
            Err(_) => self.fail(place, Failure::Connect, now()),
        }
    }

    /// A connection without a protocol yet: HTTP/1.1 begins with a request, HTTP/2 with the settings of both sides,
    /// WebSocket with a handshake.
    fn begin_protocol(&mut self, place: usize) {
        let at = now();
        match self.protocol() {
            Protocol::Http1 => self.established(place, at),
            Protocol::Http2 => self.begin_http2(place, at),
            Protocol::WebSocket => return self.begin_websocket(place),
        }
        self.flush(place);
    }

    fn protocol(&self) -> Protocol {
        self.worker.plan.connections.protocol
    }

    pub(super) fn established(&mut self, place: usize, at: Stamp) {
        let connection = &mut self.connections[place];
        connection.state = ConnectionState::Open;
        // From its very beginning, also where a full queue turned it away in between.
        self.tally.connected(connection.began, at);
        // One of a burst waits for the others, however long they take.
        let is_gathering = self.burst == Burst::Gathering;
        connection.deadline = if is_gathering || connection.len == 0 {
            Stamp::NEVER
        } else {
            at.plus(self.timeout)
        };
        if is_gathering {
            self.warm_up(place);
        }
    }

    /// Sends what is unsent, as far as the socket takes it.
    pub(super) fn flush(&mut self, place: usize) {
        if self.connections[place].http2.is_some() {
            return self.flush_http2(place);
        }
        let is_settling = self.connections[place].state == ConnectionState::Settling;
        if self.burst == Burst::Gathering || is_settling {
            return;
        }
        while self.connections[place].unsent > 0 {
            let at = now();
            match self.send_some(place, at) {
                Ok(bytes) => self.sent(place, bytes, at),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.wait_for_writable(place);
                }
                Err(error) => return self.send_failed(place, &error),
            }
        }
        self.flush_tls(place);
    }

    /// Sends ciphertext that waits.
    pub(super) fn flush_tls(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if let (Some(tls), Some(socket)) = (&mut connection.tls, &connection.socket)
            && tls.flush(socket).is_err()
        {
            // Connections with TLS are watched for becoming writable from their beginning.
            connection.watches_writable = true;
        }
    }

    /// Gives the socket as much of what is unsent as it takes.
    fn send_some(&mut self, place: usize, at: Stamp) -> io::Result<usize> {
        let len = (self.connections[place].unsent as usize).min(SLICES_LEN);
        let slices: [IoSlice<'_>; SLICES_LEN] = std::array::from_fn(|number| {
            let is_there = number < len;
            IoSlice::new(if is_there {
                self.unsent_bytes(place, number as u32)
            } else {
                &[]
            })
        });
        let connection = &mut self.connections[place];
        let Some(socket) = &connection.socket else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let flags = SendFlags::NOSIGNAL;
        let sent = match &mut connection.tls {
            Some(tls) => tls.send(socket, &slices[0])?,
            None if len == 1 => send(socket, &slices[0], flags)?,
            // Pipelined requests leave together.
            None => sendmsg(
                socket,
                &slices[..len],
                &mut SendAncillaryBuffer::default(),
                flags,
            )?,
        };
        self.settle_sent(place, sent, at);
        Ok(sent)
    }

    /// What is left of the `number`-th unsent request.
    fn unsent_bytes(&self, place: usize, number: u32) -> &'a [u8] {
        let plan = self.worker.plan;
        let connection = &self.connections[place];
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
    fn settle_sent(&mut self, place: usize, sent: usize, at: Stamp) {
        let mut left = sent;
        while left > 0 {
            let rest = self.unsent_bytes(place, 0).len();
            let connection = &self.connections[place];
            assert!(
                connection.unsent > 0,
                "the socket takes no more than was given to it"
            );
            let index = self.flight_index(place, connection.len - connection.unsent);
            // With its first byte: what a full socket lets wait is time of the server, and in the latency.
            if connection.offset == 0 {
                self.flights[index].sent = at;
            }
            let connection = &mut self.connections[place];
            if left < rest {
                connection.offset += left;
                return;
            }
            connection.offset = 0;
            connection.unsent -= 1;
            left -= rest;
        }
    }

    fn sent(&mut self, place: usize, bytes: usize, at: Stamp) {
        self.tally.sent(bytes, at);
        // What the socket takes, it takes of an established connection.
        if self.connections[place].state == ConnectionState::Connecting {
            self.established(place, at);
        }
    }

    pub(super) fn send_failed(&mut self, place: usize, error: &io::Error) {
        let is_connecting = self.connections[place].state == ConnectionState::Connecting;
        let failure = match error.raw_os_error() {
            Some(code) if is_connecting => {
                socket::failure(rustix::io::Errno::from_raw_os_error(code))
            }
            // The reply may be there although the rest of the request was not wanted.
            _ => return self.read(place, true),
        };
        self.fail(place, failure, now());
    }

    pub(super) fn wait_for_writable(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if !connection.watches_writable {
            connection.watches_writable = true;
            self.watch_again(place);
        }
    }

    /// The last reply of a connection was read.
    pub(super) fn finish_connection(&mut self, place: usize, at: Stamp) {
        let closing = self.worker.plan.connections.closing;
        if closing == Closing::Server {
            // The place is not used until the server has closed: the measured load would grow by what it leaves open.
            let connection = &mut self.connections[place];
            connection.state = ConnectionState::Lingering;
            connection.deadline = at.plus(super::LINGER);
            return;
        }
        self.give_up(place, closing, at);
    }

    /// Closes a connection on which nothing is under way, and continues with its place.
    pub(super) fn give_up(&mut self, place: usize, closing: Closing, at: Stamp) {
        self.close(place, closing);
        self.go_on(place, at);
    }

    /// A connection and everything under way on it have failed.
    pub(super) fn fail(&mut self, place: usize, failure: Failure, at: Stamp) {
        self.fail_flights(place, failure, at);
        // One that failed counts as warm: otherwise a server that refuses some would keep the run from its beginning.
        self.warm_up(place);
        // By a reset whatever was asked for: a port in TIME_WAIT for each failure would soon leave none.
        self.close(place, Closing::Rst);
        let is_paused = self.is_closed_load() && !self.is_spare(place);
        if is_paused && matches!(failure, Failure::Connect | Failure::Local) {
            if self.burst == Burst::None {
                self.paused.insert((at.plus(PAUSE), place));
            }
        } else {
            self.go_on(place, at);
        }
    }

    pub(super) fn close(&mut self, place: usize, closing: Closing) {
        if closing != Closing::Rst {
            self.close_websocket(place);
        }
        let connection = &mut self.connections[place];
        connection.state = ConnectionState::Closed;
        connection.is_watched = false;
        connection.watches_writable = false;
        connection.deadline = Stamp::NEVER;
        connection.offset = 0;
        connection.http2 = None;
        connection.websocket = None;
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
    pub(super) fn go_on(&mut self, place: usize, at: Stamp) {
        if self.is_spare(place) {
            self.spares.push(place);
        } else if !self.is_closed_load() {
            // In a closed load the turn began with the last reply: what closing takes is part of it.
            let connection = &mut self.connections[place];
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
    pub(super) fn is_idle(&mut self, place: usize) {
        let is_spare = self.is_spare(place);
        let connection = &mut self.connections[place];
        if !is_spare && !connection.is_queued {
            connection.is_queued = true;
            self.idle.push_back(place);
        }
    }
}

/// Gives the socket bytes, under TLS where there is any: how many it takes.
pub(super) fn send_bytes(
    tls: &mut Option<Box<tls::TlsConnection>>,
    socket: &OwnedFd,
    bytes: &[u8],
) -> io::Result<usize> {
    match tls {
        Some(tls) => tls.send(socket, bytes),
        None => Ok(send(socket, bytes, SendFlags::NOSIGNAL)?),
    }
}

fn interest(place: usize, connection: &Connection) -> (epoll::EventData, epoll::EventFlags) {
    let number = place as u64 | u64::from(connection.generation) << 32;
    let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    flags.set(epoll::EventFlags::OUT, connection.watches_writable);
    (epoll::EventData::new_u64(number), flags)
}
