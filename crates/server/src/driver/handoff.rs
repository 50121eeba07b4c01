//! A connection that was accepted and belongs to no driver yet, or to another one than the one that accepted
//! it; and the numbers that say who has how many.
//!
//! A connection counts from before its accept until its socket is closed, so that the bound holds wherever it
//! is in between. Its driver's number is raised by whoever gives it to that driver.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use measure::{Nanos, Stamp};
use smol_str::{SmolStr, ToSmolStr};
use socket2::SockRef;
use stage::{Load, Placement};

use super::Driver;
#[cfg(feature = "faults")]
use super::inbox::Call;
use super::shared::Shared;
use crate::clients::Place;
use crate::exchange::Ends;
use crate::ids::Trust;
use crate::listen::At;
use crate::protocol::Protocol;
use crate::stats::DriverStats;
use crate::transport::Transport;
#[cfg(feature = "faults")]
use crate::transport::memory;

/// How often the numbers are looked at anew when others changed them meanwhile. With as many drivers at once
/// a connection may come to lie one off.
const TRIES: usize = 16;

/// A connection that was just accepted.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(super) socket: OwnedFd,
    pub(super) peer: Option<SocketAddr>,
    pub(super) listened: Arc<Listened>,
    /// Its client's place among those of one address, where these are counted.
    pub(super) place: Option<Place>,
    pub(super) permit: ConnectionPermit,
    pub(super) arrived: Stamp,
    pub(super) from: AcceptedBy,
}

/// A connection that a driver serves.
pub(crate) struct Opened {
    pub(crate) transport: Transport,
    pub(crate) ends: Arc<Ends>,
    /// Whether the ids that its client gives count.
    pub(crate) trust: Trust,
    /// Its client's place among those of one address, where these are counted.
    pub(crate) place: Option<Place>,
    pub(crate) permit: ConnectionPermit,
    /// When it was accepted.
    pub(crate) accepted: Stamp,
}

/// Who accepted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AcceptedBy {
    /// A driver.
    Driver,
    /// The usher.
    Usher,
}

/// Where it was accepted.
#[derive(Debug)]
pub(super) struct Listened {
    pub(super) at: At,
    /// Number of the address.
    pub(super) address: u16,
}

/// That a connection counts; given back when it is dropped.
pub(crate) struct ConnectionPermit {
    shared: Arc<Shared>,
    /// Whose it is; nobody's before it is placed.
    driver: Option<usize>,
}

impl ConnectionPermit {
    /// Counts one more connection. `None`: there are as many as there may be.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Self> {
        let (permit, before) = Self::count(shared);
        (before < shared.config.listen.connections_max).then_some(permit)
    }

    /// Counts one more connection, whatever the bound.
    pub(super) fn beyond(shared: &Arc<Shared>) -> Self {
        Self::count(shared).0
    }

    /// Also gives how many there were before.
    fn count(shared: &Arc<Shared>) -> (Self, usize) {
        let before = shared.connections.fetch_add(1, Ordering::Relaxed);
        let permit = Self {
            shared: Arc::clone(shared),
            driver: None,
        };
        (permit, before)
    }

    /// Gives the connection to a driver whose number was raised for it already.
    fn settle(&mut self, driver: usize) {
        self.leave();
        self.driver = Some(driver);
    }

    fn leave(&mut self) {
        if let Some(driver) = self.driver.take() {
            let stats = &self.shared.stats.drivers[driver];
            stats.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.leave();
        let before = self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.left(before.saturating_sub(1));
    }
}

impl std::fmt::Debug for ConnectionPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ConnectionPermit")
            .field(&self.driver)
            .finish()
    }
}

impl AcceptedConnection {
    /// Gives it to the least loaded driver, those from `first` on before others with as many; to one that is
    /// late with others only if all are. Gives it back when that one has ended.
    pub(super) fn give_to_least(mut self, first: usize) -> Result<(), AcceptedConnection> {
        let shared = Arc::clone(&self.permit.shared);
        let drivers = &shared.stats.drivers;
        let target = raise(drivers, || least_from(&shared, first, drivers.len()));
        self.permit.settle(target);
        let Err(mut new) = shared.inboxes[target].offer(self) else {
            return Ok(());
        };
        for step in 1..drivers.len() {
            let other = (target + step) % drivers.len();
            drivers[other].open.fetch_add(1, Ordering::Relaxed);
            new.permit.settle(other);
            match shared.inboxes[other].offer(new) {
                Ok(()) => return Ok(()),
                Err(refused) => new = refused,
            }
        }
        drivers[target].open.fetch_add(1, Ordering::Relaxed);
        new.permit.settle(target);
        shared.inboxes[target].give(new)
    }
}

impl Driver {
    /// Keeps a connection that this driver has accepted, or hands it to a sibling that has clearly fewer.
    pub(super) fn place(self: &Rc<Self>, mut new: AcceptedConnection) {
        let mine = usize::from(self.index);
        let target = self.target(new.arrived);
        new.permit.settle(target);
        if target == mine {
            return self.welcome(new);
        }
        match self.shared.inboxes[target].offer(new) {
            Ok(()) => self.stats().handed_over.add(),
            Err(mut new) => {
                self.stats().open.fetch_add(1, Ordering::Relaxed);
                new.permit.settle(mine);
                self.welcome(new);
            }
        }
    }

    /// Which driver a connection goes to that this one has accepted at `now`; its number is raised.
    fn target(&self, now: Stamp) -> usize {
        let mine = usize::from(self.index);
        let drivers = &self.shared.stats.drivers;
        let lifetime = match drivers.len() > 1 && self.serving() {
            true => self.lifetimes.get().at(now),
            false => Nanos::ZERO,
        };
        // With what lasts so shortly the others' numbers need not be looked at.
        if stage::placement(Load::MAX, Load::NONE, lifetime) == Placement::Keep {
            drivers[mine].open.fetch_add(1, Ordering::Relaxed);
            return mine;
        }
        raise(drivers, || {
            let open = drivers[mine].open.load(Ordering::Relaxed);
            let (sibling, least) = least_from(&self.shared, mine + 1, drivers.len() - 1);
            let load = |driver, open| Load::new(open, driver, self.shared.drivers);
            match stage::placement(load(mine, open), load(sibling, least), lifetime) {
                Placement::HandOver => (sibling, least),
                Placement::Keep => (mine, open),
            }
        })
    }

    /// A connection that a sibling or the usher gives to this driver.
    pub(super) fn take(self: &Rc<Self>, new: AcceptedConnection) {
        match new.from {
            AcceptedBy::Driver => self.stats().taken_over.add(),
            AcceptedBy::Usher => self.stats().accepted.add(),
        }
        self.welcome(new);
    }

    fn welcome(self: &Rc<Self>, new: AcceptedConnection) {
        let ends = Arc::new(ends(&new.socket, &new.listened, new.peer));
        let trust = self.shared.ids.trust(new.peer.map(|peer| peer.ip()));
        let AcceptedConnection {
            socket,
            place,
            permit,
            arrived,
            ..
        } = new;
        let Ok(transport) = Transport::plain(socket) else {
            return self.stats().errors.add();
        };
        let opened = Opened {
            transport,
            ends,
            trust,
            place,
            permit,
            accepted: arrived,
        };
        Protocol::Http1.serve(Rc::clone(self), opened);
    }
}

/// A connection of a test, which nobody accepts.
#[cfg(feature = "faults")]
#[derive(Debug)]
pub(crate) struct MemoryConnection {
    end: memory::End,
    protocol: Protocol,
    permit: ConnectionPermit,
}

#[cfg(feature = "faults")]
impl Shared {
    /// Gives the least loaded driver a connection that lies in memory and whose buffers hold `bytes_max` bytes each;
    /// `None` when the driver has ended.
    pub(crate) fn connect_in_memory(
        self: &Arc<Self>,
        protocol: Protocol,
        bytes_max: usize,
    ) -> Option<memory::Client> {
        let (end, client) = memory::pair(bytes_max);
        let mut permit = ConnectionPermit::beyond(self);
        let drivers = &self.stats.drivers;
        let driver = raise(drivers, || least_from(self, 0, drivers.len()));
        permit.settle(driver);
        let new = MemoryConnection {
            end,
            protocol,
            permit,
        };
        let sent = self.inboxes[driver].send(Call::TakeMemory(new));
        sent.ok().map(|()| client)
    }
}

#[cfg(feature = "faults")]
impl Driver {
    pub(super) fn take_memory(self: &Rc<Self>, new: MemoryConnection) {
        let local = std::net::Ipv4Addr::LOCALHOST;
        let ends = Ends {
            peer_host: local.to_smolstr(),
            peer_port: 0.to_smolstr(),
            local_host: local.to_smolstr(),
            local_port: 0.to_smolstr(),
            scheme: "http",
            listener: 0,
        };
        self.stats().accepted.add();
        let opened = Opened {
            transport: Transport::Memory(new.end),
            ends: Arc::new(ends),
            trust: self.shared.ids.trust(Some(local.into())),
            place: None,
            permit: new.permit,
            accepted: measure::now(),
        };
        new.protocol.serve(Rc::clone(self), opened);
    }
}

/// Raises the number of the driver that `choose` gives with its present number. As long as none leaves, a
/// choice of the least is the least at that moment too: numbers only grow, and this one has not.
fn raise(drivers: &[DriverStats], choose: impl Fn() -> (usize, u32)) -> usize {
    let mut tries = TRIES;
    loop {
        let (target, seen) = choose();
        let open = &drivers[target].open;
        let raised = open.compare_exchange(
            seen,
            seen.wrapping_add(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if raised.is_ok() {
            return target;
        }
        if tries == 0 {
            open.fetch_add(1, Ordering::Relaxed);
            return target;
        }
        tries -= 1;
    }
}

/// The first of the least loaded drivers, of `len` from `first` on, and how many connections it has.
fn least_from(shared: &Shared, first: usize, len: usize) -> (usize, u32) {
    let drivers = &shared.stats.drivers;
    let open = (first..first + len).map(|index| {
        let index = index % drivers.len();
        (index, drivers[index].open.load(Ordering::Relaxed))
    });
    let least = open.min_by_key(|(index, open)| Load::new(*open, *index, shared.drivers));
    least.expect("there is a driver: whoever asks is one, or has been given some")
}

fn ends(socket: &OwnedFd, listened: &Listened, peer: Option<SocketAddr>) -> Ends {
    let (peer_host, peer_port) = match peer {
        Some(peer) => (
            peer.ip().to_canonical().to_smolstr(),
            peer.port().to_smolstr(),
        ),
        None => (SmolStr::new_static("unix:"), SmolStr::default()),
    };
    let (local_host, local_port) = match &listened.at {
        // Only a wildcard leaves open which address the client took.
        At::Tcp(at) if at.ip().is_unspecified() => {
            let local = SockRef::from(socket)
                .local_addr()
                .ok()
                .and_then(|local| local.as_socket());
            let ip = local.map_or(at.ip(), |local| local.ip());
            (ip.to_canonical().to_smolstr(), at.port().to_smolstr())
        }
        At::Tcp(at) => (at.ip().to_smolstr(), at.port().to_smolstr()),
        At::Unix(path) => (path.display().to_smolstr(), SmolStr::default()),
    };
    Ends {
        peer_host,
        peer_port,
        local_host,
        local_port,
        scheme: "http",
        listener: listened.address,
    }
}
