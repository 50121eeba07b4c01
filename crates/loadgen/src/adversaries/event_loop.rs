//! The loop of misbehaving clients.
//!
//! ```text
//!            due                connected             sent
//!  Waiting ───────► Connecting ───────────► Sending ───────► Established ─┐ due: reads, trickles, resets
//!     ▲                  │ refused, too late   │ ended          │  ◄──────┘
//!     └── 100 ms later ◄─┴─────────────────────┴────────────────┘ ended by the server, or reset
//! ```
//!
//! Deadlines are plain numbers in a table that a scan looks at when the earliest of them has come.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use telemetry::{Nanos, Stamp, now};

use super::behaviour::Behaviour;
use super::client::{BadClient, ClientGroup, ClientState};
use super::{CONNECTIONS_PER_S, REOPENED_AFTER};
use crate::engine::socket::{Remote, Sources, reset, set_nodelay, sources};
use crate::engine::{Fault, timespec};
use crate::outcome::BadClientCounts;
use crate::plan::{Misbehaviour, Plan};

/// Those that read slowly do so at these times.
const READ_TICK: Nanos = Nanos::from_ms(100);
/// Between two connections that are opened.
const SLOT: Nanos = Nanos(1_000_000_000 / CONNECTIONS_PER_S);
/// Reads of one client in a turn: the others wait no longer.
const READS_A_TURN: usize = 16;
/// Bytes of one read.
const SCRATCH_BYTES: usize = 64 * 1024;
/// Events of one turn.
const EVENTS_LEN: usize = 256;
/// The event that ends it all; others are the numbers of clients.
const STOP: u64 = u64::MAX;

/// The loop.
#[derive(Debug)]
pub(super) struct AdversaryLoop {
    epoll: OwnedFd,
    remote: Remote,
    sources: Sources,
    timeout: Nanos,
    groups: Vec<ClientGroup>,
    clients: Vec<BadClient>,
    /// By client; [`Stamp::NEVER`]: nothing is due.
    dues: Vec<Stamp>,
    /// Not later than the earliest of `dues`.
    next_due: Stamp,
    /// The next one that may be opened is opened then.
    next_slot: Stamp,
    start: Stamp,
    /// Deadlines are looked at in these steps.
    grid: Nanos,
    scratch: Box<[u8]>,
    /// How often the thread was woken: its cost.
    wakes: u64,
}

impl AdversaryLoop {
    /// For the misbehaving clients of a plan; ends when `stop` can be read.
    pub(super) fn new(plan: &Plan, stop: &OwnedFd) -> Result<AdversaryLoop, Fault> {
        let cannot = |error| super::thread::cannot(&error);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(cannot)?;
        let data = EventData::new_u64(STOP);
        epoll::add(&epoll, stop, data, EventFlags::IN).map_err(cannot)?;
        let request = plan.requests.first();
        let request = request.ok_or_else(|| Fault::new("there is no request to send"))?;
        let mut groups = Vec::new();
        let mut clients = Vec::new();
        for (group, bad) in (0..).zip(&plan.bad_clients) {
            groups.push(ClientGroup::of(Behaviour::of(bad, request)));
            clients.extend((0..bad.len).map(|_| BadClient {
                group,
                ..BadClient::default()
            }));
        }
        let start = now();
        let slacks = groups.iter().map(|group| group.behaviour.slack());
        let slots = (0..).map(|number| start.plus(Nanos(SLOT.0 * number)));
        Ok(AdversaryLoop {
            epoll,
            remote: Remote::of(&plan.target.address)?,
            sources: sources(plan, 0),
            timeout: plan.connections.timeout,
            grid: slacks.min().unwrap_or(READ_TICK),
            dues: slots.take(clients.len()).collect(),
            next_due: start,
            next_slot: start.plus(Nanos(SLOT.0 * clients.len() as u64)),
            groups,
            clients,
            start,
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            wakes: 0,
        })
    }

    /// Until it is stopped. Gives what the clients of each group did, in the plan's order, and the number of wake-ups.
    pub(super) fn run(mut self) -> (Vec<BadClientCounts>, u64) {
        let mut space = [MaybeUninit::<Event>::uninit(); EVENTS_LEN];
        loop {
            let at = now();
            if at >= self.next_due {
                self.scan(at);
            }
            let sleep = self.sleep(now());
            let events: &[Event] = match epoll::wait(&self.epoll, &mut space, sleep.as_ref()) {
                Ok((events, _)) => events,
                Err(Errno::INTR) => &[],
                Err(error) => panic!("epoll refuses a descriptor of ours: {error}"),
            };
            self.wakes += 1;
            let at = now();
            for event in events {
                if event.data.u64() == STOP {
                    return self.leave();
                }
                self.happened(event.data.u64() as usize, event.flags, at);
            }
        }
    }

    /// How long nothing is due, in whole steps of the grid; `None`: for ever.
    fn sleep(&self, at: Stamp) -> Option<Timespec> {
        if self.next_due == Stamp::NEVER {
            return None;
        }
        // Rounded up: deadlines that are close together are one wake-up, and none comes too early.
        let steps = self.next_due.since(self.start).0.div_ceil(self.grid.0);
        Some(timespec(
            self.start.plus(Nanos(steps * self.grid.0)).since(at),
        ))
    }

    /// Does what is due.
    fn scan(&mut self, at: Stamp) {
        // The earliest is found anew; what a step sets for later lowers it again by `set_due`.
        self.next_due = Stamp::NEVER;
        for index in 0..self.dues.len() {
            let due = self.dues[index];
            if due <= at {
                self.dues[index] = Stamp::NEVER;
                self.is_due(index, due, at);
            }
            self.next_due = self.next_due.min(self.dues[index]);
        }
    }

    fn set_due(&mut self, index: usize, due: Stamp) {
        self.dues[index] = due;
        self.next_due = self.next_due.min(due);
    }

    fn is_due(&mut self, index: usize, due: Stamp, at: Stamp) {
        let misbehaviour = self.behaviour(index).misbehaviour;
        match (self.clients[index].state, misbehaviour) {
            (ClientState::Waiting, _) => self.open(index, at),
            // It takes too long.
            (ClientState::Connecting, _) => self.close(index, at),
            (ClientState::Established, Misbehaviour::ReadsAt { bytes_per_s }) => {
                self.read_slowly(index, bytes_per_s, at);
            }
            (ClientState::Established, Misbehaviour::Trickles { pause }) => {
                self.trickle(index, due, pause, at);
            }
            (ClientState::Established, Misbehaviour::Resets { .. }) => {
                if let Some(socket) = self.clients[index].socket.take() {
                    reset(socket);
                }
                self.close(index, at);
            }
            // It had more to read than one turn allows.
            (_, Misbehaviour::HalfCloses | Misbehaviour::Idle) => self.read_all(index, at),
            (ClientState::Sending, _) | (ClientState::Established, Misbehaviour::NeverReads) => {}
        }
    }

    fn happened(&mut self, index: usize, flags: EventFlags, at: Stamp) {
        let broken = EventFlags::ERR | EventFlags::HUP;
        match self.clients[index].state {
            ClientState::Waiting => return,
            ClientState::Connecting if flags.intersects(EventFlags::OUT | broken) => {
                self.connected(index, at);
            }
            ClientState::Sending if flags.contains(EventFlags::OUT) => self.send(index, at),
            _ => {}
        }
        if !self.clients[index].state.is_open() {
            return;
        }
        match self.behaviour(index).misbehaviour {
            Misbehaviour::NeverReads | Misbehaviour::Resets { .. } => {
                if flags.intersects(EventFlags::RDHUP | broken) {
                    self.ended(index, at);
                }
            }
            // What came before the end is read first.
            Misbehaviour::ReadsAt { .. } => {
                if flags.contains(EventFlags::ERR) {
                    self.ended(index, at);
                }
            }
            Misbehaviour::Idle | Misbehaviour::Trickles { .. } | Misbehaviour::HalfCloses => {
                if flags.intersects(EventFlags::IN | EventFlags::RDHUP | broken) {
                    self.read_all(index, at);
                }
            }
        }
    }

    fn open(&mut self, index: usize, at: Stamp) {
        assert!(
            self.clients[index].socket.is_none(),
            "a client has one connection at a time"
        );
        let behaviour = self.behaviour(index);
        let (buffer, interest) = (behaviour.receive_buffer_bytes, behaviour.interest());
        let begun = self.remote.connect(self.sources.next(), buffer);
        let data = EventData::new_u64(index as u64);
        let watched = begun
            .and_then(|socket| epoll::add(&self.epoll, &socket, data, interest).map(|()| socket));
        match watched {
            Ok(socket) => {
                self.clients[index].socket = Some(socket);
                self.clients[index].state = ClientState::Connecting;
                self.set_due(index, at.plus(self.timeout));
            }
            // No port, no descriptor or no listener now: it tries again later.
            Err(_) => self.close(index, at),
        }
    }

    fn connected(&mut self, index: usize, at: Stamp) {
        let client = &mut self.clients[index];
        let socket = client.socket.as_ref().expect("it connects");
        if !matches!(sockopt::socket_error(socket), Ok(Ok(()))) {
            return self.close(index, at);
        }
        if self.remote.is_tcp() {
            set_nodelay(socket);
        }
        (client.state, client.since, client.sent, client.allowance) =
            (ClientState::Sending, at, 0, 0.0);
        self.groups[client.group as usize].counts.made += 1;
        self.set_due(index, Stamp::NEVER);
        self.send(index, at);
    }

    /// What it opens with, as far as the socket takes it.
    fn send(&mut self, index: usize, at: Stamp) {
        let client = &mut self.clients[index];
        let socket = client.socket.as_ref().expect("it sends");
        let opening = &self.groups[client.group as usize].behaviour.opening;
        while client.sent < opening.len() {
            match send(socket, &opening[client.sent..], SendFlags::NOSIGNAL) {
                Ok(more) => client.sent += more,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => return self.ended(index, at),
            }
        }
        client.state = ClientState::Established;
        match self.groups[client.group as usize].behaviour.misbehaviour {
            Misbehaviour::HalfCloses => {
                // A connection that is gone already is found so by reading.
                let _ = shutdown(socket, Shutdown::Write);
            }
            Misbehaviour::ReadsAt { .. } => self.set_due(index, self.next_tick(at)),
            Misbehaviour::Trickles { .. } => self.set_due(index, at),
            Misbehaviour::Resets { after } => self.set_due(index, at.plus(after)),
            Misbehaviour::NeverReads | Misbehaviour::Idle => {}
        }
    }

    /// When a slow reader reads again.
    fn next_tick(&self, at: Stamp) -> Stamp {
        // All slow readers have their ticks together: a tick is one wake-up for all of them.
        let ticks = at.since(self.start).0 / READ_TICK.0 + 1;
        self.start.plus(Nanos(ticks * READ_TICK.0))
    }

    fn read_slowly(&mut self, index: usize, bytes_per_s: u64, at: Stamp) {
        let tick_bytes = bytes_per_s as f64 * READ_TICK.as_secs_f64();
        let client = &mut self.clients[index];
        // What was not there to be read does not add up, but for fractions of bytes.
        client.allowance = client.allowance.min(tick_bytes.max(1.0)) + tick_bytes;
        while self.clients[index].allowance >= 1.0 {
            let most = (self.clients[index].allowance as usize).min(SCRATCH_BYTES);
            let Some(more) = self.receive(index, most, at) else {
                break;
            };
            self.clients[index].allowance -= more as f64;
        }
        // One that has ended waits for its next connection.
        if self.clients[index].state.is_open() {
            self.set_due(index, self.next_tick(at));
        }
    }

    fn read_all(&mut self, index: usize, at: Stamp) {
        for _ in 0..READS_A_TURN {
            if self.receive(index, SCRATCH_BYTES, at).is_none() {
                return;
            }
        }
        // There is no second edge for what is there already.
        self.set_due(index, at.min(self.dues[index]));
    }

    /// Reads so many bytes at most; `None`: nothing is there, or the connection has ended.
    fn receive(&mut self, index: usize, most: usize, at: Stamp) -> Option<usize> {
        let client = &self.clients[index];
        let socket = client.socket.as_ref().expect("it is established");
        match recv(socket, &mut self.scratch[..most], RecvFlags::empty()) {
            Err(Errno::AGAIN) => None,
            Err(Errno::INTR) => Some(0),
            Ok((_, 0)) | Err(_) => {
                self.ended(index, at);
                None
            }
            Ok((_, more)) => {
                self.groups[client.group as usize].counts.read_bytes += more as u64;
                Some(more)
            }
        }
    }

    fn trickle(&mut self, index: usize, due: Stamp, pause: Nanos, at: Stamp) {
        let byte = [self.behaviour(index).trickle(self.clients[index].sent)];
        let client = &mut self.clients[index];
        let socket = client.socket.as_ref().expect("it is established");
        match send(socket, &byte, SendFlags::NOSIGNAL) {
            Ok(more) => client.sent += more,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return self.ended(index, at),
        }
        // By the intended times, unless the thread stood still.
        let next = due.plus(pause);
        self.set_due(index, if next > at { next } else { at.plus(pause) });
    }

    /// By the server.
    fn ended(&mut self, index: usize, at: Stamp) {
        let client = &self.clients[index];
        let group = &mut self.groups[client.group as usize];
        group.counts.ended += 1;
        group.lived.record(at.since(client.since));
        self.close(index, at);
    }

    /// Closes the connection, if there is one, and waits for the next.
    fn close(&mut self, index: usize, at: Stamp) {
        let client = &mut self.clients[index];
        // Closing takes it out of the poll as well. An event that was noted before finds a client that waits.
        client.socket = None;
        client.state = ClientState::Waiting;
        // One slot for each opening, in turn: a server that ends everybody at once is not asked by everybody at once.
        let slot = self.next_slot.max(at.plus(REOPENED_AFTER));
        self.next_slot = slot.plus(SLOT);
        self.set_due(index, slot);
    }

    fn behaviour(&self, index: usize) -> &Behaviour {
        &self.groups[self.clients[index].group as usize].behaviour
    }

    /// Says what happened, and resets what is open.
    fn leave(self) -> (Vec<BadClientCounts>, u64) {
        let mut open = vec![0; self.groups.len()];
        for client in self.clients {
            open[client.group as usize] += usize::from(client.state.is_open());
            if let Some(socket) = client.socket {
                reset(socket);
            }
        }
        let groups = self.groups.into_iter().zip(open);
        let counts = groups.map(|(group, open)| group.count(open));
        (counts.collect(), self.wakes)
    }
}
