//! The way out: connections are begun, requests are sent, connections are ended.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use measure::{Stamp, now};
use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::connection::{Slot, State};
use super::queue::{Kind, Step};
use super::{Burst, Loop, PAUSE};
use crate::engine::socket;
use crate::engine::tally::{Failure, Flight};
use crate::plan::{Address, Closing, Load};

/// Requests in one chain of sends.
const CHAIN_LEN: usize = 16;

impl Loop<'_> {
    /// Everything that is to be sent, and every connection that is to be begun.
    pub(super) fn send_all(&mut self) {
        let mut todo = std::mem::take(&mut self.todo);
        for &place in &todo {
            match self.connections[place as usize].state {
                State::Closed if self.is_wanted(place) => self.begin(place),
                State::Open => {
                    if self.is_closed_load() {
                        self.fill(place);
                        self.settle_rested(place);
                    }
                    self.flush(place);
                }
                State::Closed | State::Connecting | State::Lingering => {}
            }
        }
        todo.clear();
        // What was added meanwhile waits for the next turn.
        todo.append(&mut self.todo);
        self.todo = todo;
    }

    /// Whether a place without a connection is to have one: it may have lost its last one since it was noted.
    fn is_wanted(&self, place: u32) -> bool {
        let is_asked = self.is_closed_load() || self.connections[place as usize].len > 0;
        is_asked && self.burst == Burst::None
    }

    /// Begins a connection; what is to be sent on it follows when it is established.
    pub(super) fn begin(&mut self, place: u32) {
        let is_closed_load = self.is_closed_load();
        if is_closed_load && !self.may_begin() {
            if self.burst == Burst::Gathering {
                self.warm_up(place);
            }
            return;
        }
        let at = now();
        let requests = match self.seat.plan.load {
            Load::Burst => self.seat.plan.connections.in_flight as u64,
            _ => self
                .seat
                .plan
                .connections
                .requests_each
                .map_or(u64::MAX, Into::into),
        };
        let connection = &mut self.connections[place as usize];
        connection.generation = connection.generation.wrapping_add(1);
        connection.answer.reset();
        connection.began = at;
        if connection.len == 0 {
            connection.left = requests;
            if connection.turn == Stamp::ZERO {
                connection.turn = at;
            }
        }
        if is_closed_load {
            self.fill(place);
        }
        let connection = &mut self.connections[place as usize];
        connection.state = State::Connecting;
        connection.deadline = at.plus(self.seat.plan.connections.timeout);
        let tag = connection.tag(place);
        let steps: &[Step] = match std::mem::replace(&mut connection.slot, Slot::Empty) {
            Slot::Reset => &[Step::Connect],
            Slot::Empty if self.is_settled_by_hand => match self.put_socket(place) {
                Ok(()) => &[Step::Connect],
                Err(error) => return self.fail(place, socket::failure(error), now()),
            },
            Slot::Empty => &[Step::Socket, Step::Connect],
        };
        self.queue.push(tag, steps);
    }

    /// Makes a socket by calls of our own. It may block: the ring waits for it, not we.
    fn put_socket(&mut self, place: u32) -> Result<(), Errno> {
        let family = match self.seat.plan.target.address {
            Address::Ip(address) if address.is_ipv6() => AddressFamily::INET6,
            _ => AddressFamily::INET,
        };
        let made = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if let Some(source) = self.sources.next() {
            bind_source(&made, source)?;
        }
        if self.is_told {
            socket::set_nodelay(&made);
        }
        let installed = self.queue.install(place, &made);
        installed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// The connection is established, or cannot be.
    pub(super) fn settle_connecting(&mut self, place: u32, result: Result<u32, Errno>) {
        let at = now();
        if let Err(error) = result {
            return self.fail(place, socket::failure(error), at);
        }
        let connection = &mut self.connections[place as usize];
        connection.state = State::Open;
        connection.deadline = if connection.len > 0 {
            at.plus(self.seat.plan.connections.timeout)
        } else {
            Stamp::NEVER
        };
        self.tally.connected(connection.began, at);
        if self.burst == Burst::Gathering {
            // It waits for the others, however long they take.
            self.connections[place as usize].deadline = Stamp::NEVER;
            self.warm_up(place);
        }
        self.flush(place);
        self.receive(place);
    }

    /// Begins a request: it is under way, and given to the kernel in this turn.
    pub(super) fn begin_request(&mut self, place: u32, kind: u32, due: Stamp) {
        let connection = &self.connections[place as usize];
        let flight = Flight {
            kind,
            began: connection.turn,
            due,
            ..Flight::default()
        };
        let index = self.flight_index(place, connection.len);
        self.flights[index] = flight;
        let connection = &mut self.connections[place as usize];
        connection.len += 1;
        connection.unsent += 1;
        connection.left -= 1;
        self.in_flight += 1;
    }

    /// Fills a connection of a closed load with what it may have in flight.
    pub(super) fn fill(&mut self, place: u32) {
        let depth = self.seat.plan.connections.in_flight as u32;
        while self.connections[place as usize].len < depth
            && self.connections[place as usize].left > 0
            && self.may_begin()
        {
            let kind = self.chooser.choose();
            self.begin_request(place, kind, Stamp::ZERO);
        }
    }

    /// Gives the kernel what is unsent, unless it has not finished with what was before.
    #[inline]
    pub(super) fn flush(&mut self, place: u32) {
        let connection = &self.connections[place as usize];
        if connection.unsent == 0
            || connection.is_sending
            || connection.state != State::Open
            || self.burst == Burst::Gathering
        {
            return;
        }
        let at = now();
        let mut steps = [Step::Close; CHAIN_LEN];
        let mut len = 0;
        while len < CHAIN_LEN && self.connections[place as usize].unsent > 0 {
            steps[len] = Step::Send(self.next_send(place, at));
            len += 1;
        }
        let connection = &mut self.connections[place as usize];
        if self.is_told
            && let Step::Send(number) = steps[len - 1]
        {
            connection.is_sending = true;
            steps[len - 1] = Step::SendTold(number);
        }
        self.queue.push(connection.tag(place), &steps[..len]);
    }

    /// The number of the bytes of the first unsent request, which is sent at `at`.
    fn next_send(&mut self, place: u32, at: Stamp) -> u32 {
        let connection = &self.connections[place as usize];
        let is_last = connection.left == 0
            && connection.unsent == 1
            && self.seat.plan.connections.closing == Closing::Server;
        let index = self.flight_index(place, connection.len - connection.unsent);
        let flight = &mut self.flights[index];
        flight.sent = at;
        let kind = &self.seat.plan.requests.kinds[flight.kind as usize];
        let bytes = if is_last {
            &kind.last_bytes
        } else {
            &kind.bytes
        };
        self.tally.sent(bytes.len(), at);
        self.connections[place as usize].unsent -= 1;
        flight.kind * 2 + u32::from(is_last)
    }

    /// A chain of sends has ended. A reply may be there although the rest of the request was not wanted, so
    /// the receive that is under way says what became of the connection.
    pub(super) fn settle_sending(&mut self, place: u32, result: Result<u32, Errno>) {
        self.connections[place as usize].is_sending = false;
        if result.is_ok() {
            self.flush(place);
        }
    }

    /// The last reply of a connection was read; whether it is still there.
    pub(super) fn finish_connection(&mut self, place: u32, at: Stamp) -> bool {
        if self.seat.plan.connections.closing == Closing::Server {
            let connection = &mut self.connections[place as usize];
            connection.state = State::Lingering;
            connection.deadline = at.plus(super::LINGER);
            return true;
        }
        self.give_up(place, at);
        false
    }

    /// Closes a connection on which nothing is under way, and goes on with its place.
    pub(super) fn give_up(&mut self, place: u32, at: Stamp) {
        self.close(place, self.seat.plan.connections.closing);
        self.go_on(place, at);
    }

    /// A connection and everything under way on it have failed.
    pub(super) fn fail(&mut self, place: u32, failure: Failure, at: Stamp) {
        self.fail_flights(place, failure, at);
        self.warm_up(place);
        self.close(place, Closing::Rst);
        let cannot_connect = matches!(failure, Failure::Connect | Failure::Local);
        if self.is_closed_load() && cannot_connect {
            if self.burst == Burst::None {
                self.paused.push_back((at.plus(PAUSE), place));
            }
        } else {
            self.go_on(place, at);
        }
    }

    /// Requests under way on a connection have failed: the oldest for this reason, those behind it, of which
    /// nothing was read, because their connection is gone. A server that ends a connection has nothing to do with
    /// what was never sent on it.
    pub(super) fn fail_flights(&mut self, place: u32, failure: Failure, at: Stamp) {
        let len = self.connections[place as usize].len;
        let failed = match failure {
            Failure::Connect | Failure::Local | Failure::Timeout => len,
            _ if self.burst != Burst::None => len,
            _ => self.connections[place as usize].sent_len().max(1).min(len),
        };
        for number in 0..failed {
            let flight = self.flights[self.flight_index(place, number)];
            let why = match failure {
                Failure::Connect | Failure::Local | Failure::Timeout => failure,
                _ if number == 0 => failure,
                _ => Failure::Reset,
            };
            self.tally.failed(&flight, why, at);
        }
        self.in_flight -= u64::from(failed);
        let depth = self.seat.plan.connections.in_flight as u32;
        let connection = &mut self.connections[place as usize];
        if failed > 0 {
            connection.turn = at;
        }
        connection.head = (connection.head + failed) % depth;
        connection.len -= failed;
        self.set_back(place);
    }

    /// The server does not want the connection any more: what was sent on it is lost.
    pub(super) fn lose_flights(&mut self, place: u32, at: Stamp) {
        if self.connections[place as usize].sent_len() > 0 || self.burst != Burst::None {
            self.fail_flights(place, Failure::Reset, at);
        } else {
            self.set_back(place);
        }
    }

    /// Not a byte of what is under way on a connection has left, and it is about to be closed: what was due
    /// leaves on the next one; what was not is begun anew.
    pub(super) fn set_back(&mut self, place: u32) {
        let is_closed_load = self.is_closed_load();
        let each = self.seat.plan.connections.requests_each;
        let connection = &mut self.connections[place as usize];
        if is_closed_load {
            self.in_flight -= u64::from(connection.len);
            connection.len = 0;
        } else if connection.len > 0 {
            let each = each.map_or(u64::MAX, Into::into);
            connection.left = each.saturating_sub(u64::from(connection.len));
        }
        connection.unsent = connection.len;
    }

    /// Ends what the place has of a connection.
    pub(super) fn close(&mut self, place: u32, closing: Closing) {
        let is_tcp = matches!(self.seat.plan.target.address, Address::Ip(_));
        let connection = &mut self.connections[place as usize];
        let was = std::mem::replace(&mut connection.state, State::Closed);
        connection.deadline = Stamp::NEVER;
        if was == State::Closed {
            return;
        }
        let tag = connection.tag(place);
        let under_way = [
            (Kind::Connect, was == State::Connecting),
            (Kind::Receive, connection.is_receiving),
            (Kind::Send, connection.is_sending),
        ];
        let is_quiet = under_way.iter().all(|(_, is_under_way)| !is_under_way);
        connection.is_receiving = false;
        connection.is_sending = false;
        // Each of these is done at once and in this order, so that no chain is needed.
        for (kind, _) in under_way
            .into_iter()
            .filter(|(_, is_under_way)| *is_under_way)
        {
            self.queue.push(tag, &[Step::Cancel(kind)]);
        }
        if closing == Closing::Rst && is_tcp {
            self.queue.push(tag, &[Step::Disconnect]);
            if is_quiet {
                connection.slot = Slot::Reset;
                return;
            }
        }
        self.queue.push(tag, &[Step::Close]);
    }

    /// A place without a connection: what becomes of it.
    pub(super) fn go_on(&mut self, place: u32, at: Stamp) {
        if !self.is_closed_load() {
            // In a closed load the turn goes on: what its ending takes is part of the next one.
            let depth = self.seat.plan.connections.in_flight as u32;
            let connection = &mut self.connections[place as usize];
            connection.turn = at;
            let (len, left) = (connection.len, connection.left);
            if len > 0 {
                self.todo.push(place);
            }
            if len == 0 || len < depth && left > 0 {
                self.is_idle(place);
            }
        } else if self.burst == Burst::None {
            if (place as usize) < self.active {
                self.todo.push(place);
            } else {
                self.resting.push(place);
            }
        }
    }

    /// A connection of an open load may take a request.
    pub(super) fn is_idle(&mut self, place: u32) {
        let connection = &mut self.connections[place as usize];
        let is_free = connection.state == State::Closed || connection.left > 0;
        if !connection.is_queued && is_free {
            connection.is_queued = true;
            self.idle.push_back(place);
        }
    }
}

fn bind_source(socket: &OwnedFd, source: IpAddr) -> Result<(), Errno> {
    // Otherwise bind would look for a port that is free for all targets.
    setsockopt(socket, IpBindAddressNoPort, &true)
        .map_err(|error| Errno::from_raw_os_error(error as i32))?;
    bind(socket, &std::net::SocketAddr::new(source, 0))
}
