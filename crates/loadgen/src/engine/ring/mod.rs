//! The engine by completion: one thread, one io_uring, its own connections.
//!
//! Takes a seat, gives what it counted. On paper, a kept connection costs one step a request (the send; one
//! receive is armed for all replies) and one completion (the bytes, in a buffer of a shared ring: one copy,
//! the kernel's own); entering the kernel is shared by everything that was ready, and waits at the same time.
//! A short connection costs four steps: connect, send, receive, reset, the last three without a system call
//! of their own; its socket is connected again and again, since a reset one is as good as new. Closing with
//! FIN costs a new socket each time. No descriptor is ever used: sockets live in the ring's own table.
//!
//! Connecting and sending are not one chain, although the kernel would take it: a request would leave at a
//! time that nobody knows, and its latency would be wrong. The completion of connecting has to be awaited
//! anyway, because it is counted.

mod connection;
#[allow(unsafe_code, reason = "the kernel reads and writes memory by itself")]
mod queue;
mod receiving;
mod sending;
mod timing;

#[cfg(test)]
#[path = "../loop_tests/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "both loops pass the same tests")]
mod tests;

use std::collections::VecDeque;
use std::io;

use measure::{Nanos, Stamp, now};
use rustix::io::Errno;
use socket2::SockAddr;

use super::Fault;
use super::schedule::{Chooser, Schedule};
use super::seat::{Driven, Seat, TICK, Ticker, Turn};
use super::sources::Sources;
use super::tally::{Flight, Tally};
use crate::plan::{Address, Closing, Load};
use connection::{Connection, State};
use queue::{Completion, Kind, Queue};

/// Connections begun in one turn, so that time is looked at in between.
const BEGINS_A_TURN: usize = 64;
/// A place whose connection failed tries again after this: a server that refuses everybody is not hammered.
const PAUSE: Nanos = Nanos::from_ms(10);
/// A server that was to close has so long for it.
const LINGER: Nanos = Nanos::from_secs(1);
/// A request up to this size goes into an empty socket at once, so that its end need not be told.
const SMALL_BYTES: usize = 1_000;

/// Runs one thread's share to its end.
///
/// # Errors
/// The kernel has no io_uring for us.
pub(crate) fn drive(seat: &Seat<'_>) -> Result<Driven, Fault> {
    let mut engine = Loop::new(seat)?;
    engine.run()?;
    Ok(engine.finish())
}

/// A thread's loop.
struct Loop<'a> {
    seat: &'a Seat<'a>,
    queue: Queue,
    sources: Sources,
    schedule: Option<Schedule>,
    chooser: Chooser,
    tally: Tally,
    ticker: Ticker,
    connections: Vec<Connection>,
    /// Requests under way: a ring of as many as may be in flight for each connection.
    flights: Vec<Flight>,
    /// What is to be sent or begun before the next wait.
    todo: Vec<u32>,
    /// Open loads: connections that may take a request, the longest idle first.
    idle: VecDeque<u32>,
    /// Places that failed, and when they try again.
    paused: VecDeque<(Stamp, u32)>,
    /// Closed loads: connections beyond those that are active.
    resting: Vec<u32>,
    /// Places that have been begun at least once.
    begun: usize,
    /// Closed loads: places that are used at this time.
    active: usize,
    warm: usize,
    in_flight: u64,
    next_scan: Stamp,
    scan_pause: Nanos,
    /// Whether sockets are made by calls of our own, to be settled before they connect.
    is_settled_by_hand: bool,
    /// Whether the end of each send is told.
    is_told: bool,
    burst: Burst,
    turn: Turn,
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

impl<'a> Loop<'a> {
    fn new(seat: &'a Seat<'a>) -> Result<Loop<'a>, Fault> {
        let plan = seat.plan;
        let len = seat.connections_len;
        let depth = plan.connections.in_flight;
        let longest = plan
            .requests
            .kinds
            .iter()
            .map(|kind| kind.bytes.len())
            .max();
        let is_small = longest.unwrap_or(0) <= SMALL_BYTES;
        let is_tcp = matches!(plan.target.address, Address::Ip(_));
        // Requests in pieces and pipelined ones must not wait for acknowledgements.
        let needs_nodelay = depth > 1 || !is_small;
        let kinds = plan.requests.kinds.iter();
        let requests = kinds.flat_map(|kind| [kind.bytes.clone(), kind.last_bytes.clone()]);
        let queue = Queue::new(len, remote(&plan.target.address)?, requests.collect());
        Ok(Loop {
            seat,
            queue: queue.map_err(|error| not_to_be_had(&error))?,
            sources: Sources::of(plan, seat.thread),
            schedule: Schedule::of(plan, seat.thread),
            chooser: Chooser::of(plan, seat.thread),
            tally: seat.tally(),
            ticker: Ticker::new(seat),
            connections: (0..len).map(|_| Connection::new()).collect(),
            flights: vec![Flight::default(); len * depth],
            todo: Vec::with_capacity(len),
            idle: VecDeque::with_capacity(len),
            paused: VecDeque::new(),
            resting: Vec::new(),
            begun: 0,
            active: len,
            warm: 0,
            in_flight: 0,
            next_scan: Stamp::ZERO,
            scan_pause: Nanos((plan.connections.timeout.0 / 20).clamp(TICK.0, 250_000_000)),
            is_settled_by_hand: is_tcp && (needs_nodelay || !plan.connections.sources.is_empty()),
            is_told: needs_nodelay,
            burst: if matches!(plan.load, Load::Burst) {
                Burst::Gathering
            } else {
                Burst::None
            },
            turn: Turn::Goes,
        })
    }

    fn run(&mut self) -> Result<(), Fault> {
        let mut come = Vec::new();
        loop {
            let at = now();
            self.turn = self.ticker.turn(self.seat, &mut self.tally, self.warm, at);
            if self.is_over(at) {
                return Ok(());
            }
            self.keep_time(at);
            self.begin_connections(at);
            self.begin_due(at);
            self.send_all();
            let pause = self.pause(now());
            let waited = self.queue.wait(pause, &mut come);
            waited.map_err(|error| Fault::new(format!("io_uring_enter failed: {error}")))?;
            for completion in come.drain(..) {
                self.happened(completion);
            }
        }
    }

    fn happened(&mut self, completion: Completion) {
        let Completion {
            kind,
            tag,
            result,
            filled,
            goes_on,
        } = completion;
        let connection = &self.connections[tag.place as usize];
        let is_current = connection.generation & queue::GENERATIONS == tag.generation
            && connection.state != State::Closed;
        match kind {
            Kind::Connect if is_current => self.settle_connecting(tag.place, result),
            Kind::Send if is_current => self.settle_sending(tag.place, result),
            Kind::Receive if is_current => {
                self.received(tag.place, result, filled.as_ref(), goes_on);
            }
            _ => {}
        }
        if let Some(filled) = filled {
            self.queue.give_back(filled);
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
                // What was due is waited for, unless somebody wants the end now.
                let latest = self
                    .tally
                    .window
                    .end
                    .plus(self.seat.plan.connections.timeout);
                is_done || self.seat.common.is_over() || at >= latest
            }
        }
    }

    /// The next request that is due within the run.
    fn next_due(&self) -> Option<Stamp> {
        let due = self.schedule.as_ref()?.due()?;
        let at = self.seat.common.start.plus(due.offset);
        (at < self.tally.window.end && !self.is_full()).then_some(at)
    }

    /// Whether all requests that may be counted have ended.
    fn is_full(&self) -> bool {
        self.seat
            .requests_max
            .is_some_and(|most| self.tally.ended >= most)
    }

    /// Whether another request may be begun.
    fn may_begin(&self) -> bool {
        let most = self.seat.requests_max.unwrap_or(u64::MAX);
        // Nothing is counted yet, and all connections have to get warm.
        self.tally.window.begin == Stamp::NEVER
            || self.tally.ended.saturating_add(self.in_flight) < most
    }

    fn finish(mut self) -> Driven {
        self.ticker.finish(self.seat, &mut self.tally);
        self.settle_under_way();
        self.tally.counts.unsent += self.count_unsent();
        let closing = self.seat.plan.connections.closing;
        for place in 0..self.connections.len() as u32 {
            let is_idle = self.connections[place as usize].len == 0;
            // A closing handshake for each of them would outlive the run; ports must not be kept either.
            self.close(place, if is_idle { closing } else { Closing::Rst });
        }
        // Handed over here, so that sockets are closed when the run is over and not some time later.
        let _ = self.queue.wait(Nanos::ZERO, &mut Vec::new());
        Driven {
            tally: self.tally,
            stalled: self.ticker.stalled,
        }
    }

    /// What is under way at the end.
    fn settle_under_way(&mut self) {
        let at = now();
        for place in 0..self.begun as u32 {
            for number in 0..self.connections[place as usize].len {
                let index = self.flight_index(place, number);
                self.tally.under_way(&self.flights[index], at);
            }
        }
    }

    /// Requests that were due within the counted time and were never begun.
    fn count_unsent(&mut self) -> u64 {
        let at = now();
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

    fn flight_index(&self, place: u32, number: u32) -> usize {
        let depth = self.seat.plan.connections.in_flight;
        let connection = &self.connections[place as usize];
        place as usize * depth + (connection.head + number) as usize % depth
    }

    fn is_closed_load(&self) -> bool {
        matches!(self.seat.plan.load, Load::Closed | Load::Burst)
    }

    fn warm_up(&mut self, place: u32) {
        let connection = &mut self.connections[place as usize];
        if !connection.is_warm {
            connection.is_warm = true;
            self.warm += 1;
        }
    }
}

fn remote(address: &Address) -> Result<SockAddr, Fault> {
    match address {
        Address::Ip(address) => Ok(SockAddr::from(*address)),
        Address::Unix(path) => SockAddr::unix(path)
            .map_err(|error| Fault::new(format!("the socket `{}`: {error}", path.display()))),
    }
}

fn not_to_be_had(error: &io::Error) -> Fault {
    if Errno::from_io_error(error) == Some(Errno::MFILE) {
        let text = "the limit of descriptors is below the number of connections of a thread";
        return Fault::with_hint(text, "raise it with `ulimit -n`, or use more `--threads`");
    }
    let why = match Errno::from_io_error(error) {
        Some(Errno::INVAL) => "the kernel is older than Linux 6.1".to_owned(),
        _ => error.to_string(),
    };
    Fault::with_hint(
        format!("io_uring is not to be had: {why}"),
        "use `--engine epoll`",
    )
}
