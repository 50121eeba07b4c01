//! The event loop of a thread: one epoll descriptor, its own connections.
//!
//! Takes a worker's share, gives what it counted. On paper, for a kept connection: one `recv` and one `send` a request,
//! an `epoll_wait` shared by everything that was ready, two looks at the clock, no allocation, no lock. A
//! short one adds `socket`, `connect`, `epoll_ctl` and `close` (and `setsockopt` to close by a reset).
//!
//! Replies are read first, all that are there, and requests are sent in a second pass: the server's side of a
//! loopback connection would otherwise run in the middle of each read. Sockets are watched by edges, for
//! reading alone: a request goes out in the same turn in which the connection is begun, because on most ways
//! it is established by then; only one that is not is watched for becoming writable as well.

mod connection;
mod http2;
mod receive;
mod send;
mod timers;
mod websocket;

#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::{self, PollFd, PollFlags, epoll};
use rustix::io::Errno;
use telemetry::{Nanos, Stamp, now};

use super::receive_stamps::ReceiveStamps;
use super::schedule::{Chooser, Schedule, is_by_due};
use super::socket::{self, Remote, Sources};
use super::tally::{Flight, Tally};
use super::worker::{TICK, Ticker, Turn, Worker, WorkerResult};
use super::{Fault, timespec, tls};
use crate::outcome::Failure;
use crate::plan::{Closing, Load, Scheme, Timestamps};
use connection::{Connection, ConnectionState};

/// Events taken by one look, and connections sent to in one pass. With the most that each can cost a turn stays
/// well below the time by which the generator would be taken to have stood still.
const EVENTS_LEN: usize = 128;
/// Bytes taken by one read.
const READ_BYTES: usize = 64 * 1024;
/// Connections begun in one turn, so that time is looked at in between.
const BEGINS_A_TURN: usize = 128;
/// A place whose connection failed tries again after this: a server that refuses everybody is not hammered.
const PAUSE: Nanos = Nanos::from_ms(10);
/// A unix socket whose queue is full is tried again after this: no event says when it is shorter.
const FULL_QUEUE_RETRY: Nanos = Nanos::from_ms(1);
/// A server that was to close has so long for it.
const LINGER: Nanos = Nanos::from_secs(1);

/// Runs one thread's share to its end.
pub(crate) fn drive(worker: &Worker<'_>) -> Result<WorkerResult, Fault> {
    let mut engine = EventLoop::new(worker)?;
    engine.run()?;
    Ok(engine.finish())
}

/// A thread's loop.
struct EventLoop<'a> {
    worker: &'a Worker<'a>,
    poll: OwnedFd,
    remote: Remote,
    tls: Option<tls::TlsClient>,
    sources: Sources,
    schedule: Option<Schedule>,
    chooser: Chooser,
    tally: Tally,
    ticker: Ticker,
    /// As many as the thread has, and behind them the spare ones: connections of HTTP/2 that the server is ending, whose
    /// places have other ones by now.
    connections: Vec<Connection>,
    /// Spare places that are free.
    spares: Vec<usize>,
    /// Requests under way: a ring of as many as may be in flight for each connection.
    flights: Vec<Flight>,
    buffer: Box<[u8]>,
    /// What is to be sent or begun in the second pass.
    todo: VecDeque<usize>,
    /// Open loads: connections that may take a request, the longest idle first.
    idle: VecDeque<usize>,
    /// Places that failed or found a full queue, by the time when they try again.
    paused: BTreeSet<(Stamp, usize)>,
    /// Places that have been begun at least once.
    begun: usize,
    warm: usize,
    in_flight: u64,
    /// Requests in flight on a connection, at most.
    depth: u32,
    /// Requests of a connection, at most.
    requests_each: u64,
    /// For a connection to be established, and for a reply.
    timeout: Nanos,
    next_scan: Stamp,
    scan_pause: Nanos,
    needs_nodelay: bool,
    receive_stamps: Option<ReceiveStamps>,
    burst: Burst,
    turn: Turn,
    /// Whether a connection has been spoken to in HTTP/2 by the server.
    has_settled: bool,
    /// What ends the run.
    fault: Option<Fault>,
}

/// Where a load stands that is sent all at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Burst {
    /// It is another load.
    None,
    /// Connections are opened.
    Gathering,
    /// Everything was sent.
    Sent,
}

impl<'a> EventLoop<'a> {
    fn new(worker: &'a Worker<'a>) -> Result<EventLoop<'a>, Fault> {
        let plan = worker.plan;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| Fault::new(format!("cannot make an epoll descriptor: {error}")))?;
        let remote = Remote::of(&plan.target.address)?;
        let tls = match &plan.target.scheme {
            Scheme::Http => None,
            Scheme::Https(tls) => Some(tls::TlsClient::new(tls, plan.connections.protocol)?),
        };
        let len = worker.connections_len;
        let longest = plan.requests.iter().map(|kind| kind.bytes.len()).max();
        let needs_nodelay = remote.is_tcp()
            && (plan.connections.in_flight > 1 || longest.unwrap_or(0) > 1_000 || tls.is_some());
        Ok(EventLoop {
            worker,
            poll,
            tls,
            sources: socket::sources(plan, worker.thread),
            schedule: Schedule::of(plan, worker.thread),
            chooser: Chooser::of(plan, worker.thread),
            tally: worker.tally(),
            ticker: Ticker::new(worker),
            connections: (0..len).map(|_| Connection::new()).collect(),
            flights: vec![Flight::default(); len * plan.connections.in_flight],
            spares: Vec::new(),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            todo: VecDeque::with_capacity(len),
            idle: VecDeque::with_capacity(len),
            paused: BTreeSet::new(),
            begun: 0,
            warm: 0,
            in_flight: 0,
            depth: plan.connections.in_flight as u32,
            // A burst is one round.
            requests_each: match plan.load {
                Load::Burst => plan.connections.in_flight as u64,
                _ => plan.connections.requests_each.map_or(u64::MAX, Into::into),
            },
            timeout: plan.connections.timeout,
            next_scan: Stamp::ZERO,
            scan_pause: Nanos((plan.connections.timeout.0 / 20).clamp(TICK.0, 250_000_000)),
            needs_nodelay,
            receive_stamps: (plan.machine.timestamps == Timestamps::Kernel)
                .then(ReceiveStamps::new),
            remote,
            burst: match plan.load {
                Load::Burst => Burst::Gathering,
                _ => Burst::None,
            },
            turn: Turn::Goes,
            has_settled: false,
            fault: None,
        })
    }

    fn run(&mut self) -> Result<(), Fault> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_LEN);
        loop {
            let at = now();
            self.turn = self
                .ticker
                .turn(self.worker, &mut self.tally, self.warm, at);
            if self.is_over(at) {
                return Ok(());
            }
            // Deadlines before requests: what has failed gives its place to what is due in this very turn.
            self.keep_time(at);
            self.begin_connections(at);
            self.begin_due(at);
            // Sent before the loop sleeps: nothing that was begun waits for an event of another connection.
            self.send_all();
            events.clear();
            match self.wait(&mut events) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(error) => return Err(Fault::new(format!("epoll_wait failed: {error}"))),
            }
            // After the sleep and before the first read: the clock of the day may have been set meanwhile.
            if let Some(stamps) = &mut self.receive_stamps {
                stamps.set_clock();
            }
            for event in &events {
                self.happened(*event);
            }
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
        }
    }

    /// Sleeps until something is ready or due.
    fn wait(&self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        let mut pause = self.pause(now());
        if self.schedule.is_some() && pause > Nanos::ZERO {
            // epoll_wait sleeps in whole milliseconds; epoll_pwait2 does not, but wants Linux 5.11. A request that is
            // due is waited for by ppoll on the poll itself, to the nanosecond: one call more where there is nothing
            // to do.
            let mut poll = [PollFd::new(&self.poll, PollFlags::IN)];
            event::poll(&mut poll, Some(&timespec(pause)))?;
            pause = Nanos::ZERO;
        }
        epoll::wait(&self.poll, spare_capacity(events), Some(&timespec(pause))).map(drop)
    }

    /// What was ready: reading comes first, sending in the second pass.
    fn happened(&mut self, event: epoll::Event) {
        let data = event.data.u64();
        let (place, generation) = (data as u32 as usize, (data >> 32) as u32);
        let connection = &self.connections[place];
        // An event of an earlier socket of this place, which was closed after the kernel had noted the event.
        if connection.generation != generation || connection.socket.is_none() {
            return;
        }
        let flags = event.flags;
        match connection.state {
            ConnectionState::Closed => {}
            ConnectionState::Connecting => {
                self.settle_connecting(place);
                // What came with the establishing is reported once.
                let is_there = flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP);
                if is_there && self.connections[place].state == ConnectionState::Open {
                    self.read(place, true);
                }
            }
            ConnectionState::Handshaking => self.handshake(place),
            ConnectionState::Settling | ConnectionState::Open | ConnectionState::Lingering => {
                let ends =
                    epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                if flags.intersects(epoll::EventFlags::IN | ends) {
                    self.read(place, flags.intersects(ends));
                }
                if flags.contains(epoll::EventFlags::OUT) && self.connections[place].has_to_send() {
                    self.todo.push_back(place);
                }
            }
        }
    }

    /// Whether nothing is left to be done.
    fn is_over(&self, at: Stamp) -> bool {
        let is_done = self.in_flight == 0 && self.next_due().is_none();
        match (self.turn, &self.schedule) {
            (Turn::Goes, None) => self.burst == Burst::Sent && self.in_flight == 0,
            (Turn::Goes, Some(schedule)) => self.in_flight == 0 && schedule.due().is_none(),
            (Turn::Ends, None) => true,
            (Turn::Ends, Some(_)) => {
                // What was due is waited for, unless the run is to end at once.
                let latest = self.tally.window.end.plus(self.timeout);
                is_done || self.worker.shared.is_over() || at >= latest
            }
        }
    }

    /// The next request that is due within the run.
    fn next_due(&self) -> Option<Stamp> {
        let due = self.schedule.as_ref()?.due()?;
        let at = self.worker.shared.start.plus(due.offset);
        (at < self.tally.window.end && !self.is_full()).then_some(at)
    }

    /// Whether all requests that may be counted have ended.
    fn is_full(&self) -> bool {
        self.worker
            .requests_max
            .is_some_and(|most| self.tally.ended >= most)
    }

    /// Whether another request may be begun.
    fn may_begin(&self) -> bool {
        let most = self.worker.requests_max.unwrap_or(u64::MAX);
        // Nothing is counted yet, and all connections have to get warm.
        self.tally.window.begin == Stamp::NEVER
            || self.tally.ended.saturating_add(self.in_flight) < most
    }

    fn finish(mut self) -> WorkerResult {
        self.ticker.finish(self.worker, &mut self.tally);
        let at = now();
        for place in 0..self.connections.len() {
            for number in 0..self.connections[place].len {
                let flight = self.flights[self.flight_index(place, number)];
                self.tally.under_way(&flight, at);
            }
        }
        self.tally.counts.unsent += self.count_unsent(at);
        let is_reset = self.worker.plan.connections.closing == Closing::Rst;
        for place in 0..self.connections.len() {
            if !is_reset && self.connections[place].len == 0 {
                self.close_websocket(place);
            }
        }
        for connection in &mut self.connections {
            // A closing handshake for each of them would outlive the run; ports must not be kept either.
            if let Some(descriptor) = connection.socket.take()
                && (is_reset || connection.len > 0)
            {
                socket::reset(descriptor);
            }
        }
        WorkerResult {
            tally: self.tally,
            stalled: self.ticker.stalled,
        }
    }

    /// Requests that were due within the counted time and were never begun.
    fn count_unsent(&mut self, at: Stamp) -> u64 {
        let begin = self.tally.window.begin;
        let mut count = 0;
        while let Some(due) = self.next_due().filter(|due| *due < at) {
            count += u64::from(due >= begin);
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
        }
        count
    }

    fn flight_index(&self, place: usize, number: u32) -> usize {
        let head = self.connections[place].head;
        place * self.depth as usize + ((head + number) % self.depth) as usize
    }

    /// Begins a request: it is under way, and sent in the second pass.
    fn begin_request(&mut self, place: usize, kind: u32, due: Stamp) {
        let connection = &self.connections[place];
        let flight = Flight {
            kind,
            began: connection.turn,
            due,
            ..Flight::default()
        };
        let index = self.flight_index(place, connection.len);
        self.flights[index] = flight;
        let connection = &mut self.connections[place];
        // One more would write over the oldest request of the ring, which then were never counted.
        assert!(
            connection.len < self.depth && connection.left > 0,
            "a request is begun only on a connection that may take one"
        );
        connection.len += 1;
        connection.unsent += 1;
        connection.left -= 1;
        self.in_flight += 1;
    }

    /// Fills a connection of a closed load with what it may have in flight; whether it has any.
    fn fill(&mut self, place: usize) -> bool {
        while self.connections[place].len < self.connections[place].depth(self.depth)
            && self.connections[place].left > 0
            && self.may_begin()
        {
            let kind = self.chooser.choose();
            self.begin_request(place, kind, Stamp::ZERO);
        }
        self.connections[place].len > 0
    }

    fn is_closed_load(&self) -> bool {
        !is_by_due(&self.worker.plan.load)
    }

    fn warm_up(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if !connection.is_warm {
            connection.is_warm = true;
            self.warm += 1;
        }
    }

    /// Requests under way on a connection have failed.
    fn fail_flights(&mut self, place: usize, failure: Failure, at: Stamp) {
        let connection = &self.connections[place];
        let fails_all = matches!(
            failure,
            Failure::Connect | Failure::Local | Failure::Timeout
        );
        // A server that ends a connection has nothing to do with what was never sent on it.
        let failed = match fails_all || self.burst != Burst::None {
            true => connection.len,
            false => connection.sent_len().max(1).min(connection.len),
        };
        for number in 0..failed {
            let flight = self.flights[self.flight_index(place, number)];
            // The oldest for this reason; those behind it, of which nothing was read, because their connection is gone.
            let is_why = fails_all || number == 0;
            let why = if is_why { failure } else { Failure::Reset };
            self.tally.failed(&flight, why, at);
        }
        // Of the thread's sum, by which a run of so many requests knows how many it may begin: no end is counted twice.
        assert!(
            self.in_flight >= u64::from(failed),
            "what fails was under way"
        );
        self.in_flight -= u64::from(failed);
        let connection = &mut self.connections[place];
        if failed > 0 {
            connection.turn = at;
        }
        connection.head = (connection.head + failed) % self.depth;
        connection.len -= failed;
        self.set_back(place);
    }

    /// The server does not want the connection any more: what was sent on it is lost.
    fn lose_flights(&mut self, place: usize, at: Stamp) {
        // Of a burst all requests count as sent.
        if self.connections[place].sent_len() > 0 || self.burst != Burst::None {
            self.fail_flights(place, Failure::Reset, at);
        } else {
            self.set_back(place);
        }
    }

    /// Not a byte of what is under way on a connection has left, and it is about to be closed.
    fn set_back(&mut self, place: usize) {
        // What was due leaves on the next connection, where it takes a part of what that one may send. What was not due
        // is begun anew.
        let is_closed_load = self.is_closed_load();
        let connection = &mut self.connections[place];
        if is_closed_load {
            self.in_flight -= u64::from(connection.len);
            connection.len = 0;
        } else if connection.len > 0 {
            connection.left = self.requests_each.saturating_sub(u64::from(connection.len));
        }
        connection.unsent = connection.len;
        connection.offset = 0;
    }
}
