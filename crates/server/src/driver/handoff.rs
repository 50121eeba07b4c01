//! A connection that was accepted, on its way to the driver that serves it; and the numbers that say which
//! driver has how many.
//!
//! A connection counts from before its accept until its socket is closed, so that the bound holds wherever it
//! is in between. The number of its driver is raised before the driver has it.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use queueing::{Load, Placement};
use telemetry::{Nanos, Stamp};

use super::Driver;
use super::mailbox::Command;
use super::shared::Shared;
use crate::client_limit::{LimitExceeded, Permit};
use crate::exchange::Ends;
use crate::protocol;
use crate::proxies::Peer;
use crate::sync::invariant;
use crate::transport::AcceptedStream;

/// How often the numbers are looked at anew when others changed them meanwhile. With as many drivers at once
/// a connection may come to lie one off.
const TRIES: usize = 16;

/// A connection that no driver serves yet.
pub(crate) struct AcceptedConnection {
    /// Its bytes, which no runtime watches yet.
    pub(super) stream: AcceptedStream,
    pub(super) opened: Opened,
}

/// What is known of an open connection.
pub(crate) struct Opened {
    pub(crate) ends: Arc<Ends>,
    /// The other end, as trust is decided by it.
    pub(crate) peer: Peer,
    /// Whether a PROXY protocol header comes before the first request.
    pub(crate) awaits_proxy_header: bool,
    /// When it was accepted.
    pub(crate) accepted: Stamp,
    pub(crate) permit: ConnectionPermit,
}

impl Opened {
    /// Since when the client may send requests: since the accept, or the end of the TLS handshake.
    pub(crate) fn ready_since(&self) -> Stamp {
        (self.ends.tls.as_ref()).map_or(self.accepted, |tls| tls.ended())
    }
}

/// Permission for one connection, counted among all, among its driver's and among its client's. Released when it is
/// dropped.
pub(crate) struct ConnectionPermit {
    shared: Arc<Shared>,
    /// A driver has accepted it and counted that, and not the shared acceptor.
    pub(super) is_counted: bool,
    /// Index of the driver that serves it; `None` before one is chosen.
    driver: Option<u16>,
    /// Its permit of the client's limit, where there is one.
    client: Option<Permit>,
}

/// Whether the bound of connections holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Kept,
    /// For connections that would be reset if they were not accepted now.
    Passed,
}

impl ConnectionPermit {
    /// Counts one more connection. `None` at the bound.
    pub(super) fn new(shared: &Arc<Shared>, bound: Bound) -> Option<Self> {
        if bound == Bound::Kept && !shared.has_room() {
            return None;
        }
        let before = shared.connections.fetch_add(1, Ordering::Relaxed);
        let permit = Self {
            shared: Arc::clone(shared),
            is_counted: false,
            driver: None,
            client: None,
        };
        // Counted before this check: other acceptors may have taken the last place since `has_room`, and only one of
        // them all sees a number below the bound. A permit that is not returned is dropped here, which counts it out.
        let has_place = before < shared.config.listen.connections_max;
        (bound == Bound::Passed || has_place).then_some(permit)
    }

    /// Counts it for its client.
    pub(crate) fn count_client(&mut self, ip: IpAddr) -> Result<(), LimitExceeded> {
        self.client = Some(self.shared.client_limit.acquire(ip)?);
        Ok(())
    }

    /// Gives the connection to the driver that `choose` gives with its present number, which is raised. As long
    /// as no connection leaves, a choice of the least is the least at that moment too: numbers only grow, and
    /// this one has not.
    fn choose_driver(&mut self, choose: impl Fn() -> (usize, u32)) -> usize {
        // Two acceptors that read the same least number would both choose that driver: compare and exchange lets one of
        // them through, and the other chooses again.
        for _ in 0..TRIES {
            let (driver, seen) = choose();
            let open = &self.shared.stats.drivers[driver].open;
            let more = seen.wrapping_add(1);
            let raised = open.compare_exchange(seen, more, Ordering::Relaxed, Ordering::Relaxed);
            if raised.is_ok() {
                self.leave_driver();
                self.set_driver(driver);
                return driver;
            }
        }
        let (driver, _) = choose();
        self.move_to(driver);
        driver
    }

    /// Gives the connection to that driver.
    fn move_to(&mut self, driver: usize) {
        let stats = &self.shared.stats.drivers[driver];
        // The new driver first: in between the connection counts twice rather than not at all, and no acceptor takes this
        // driver for an empty one.
        stats.open.fetch_add(1, Ordering::Relaxed);
        self.leave_driver();
        self.set_driver(driver);
    }

    fn set_driver(&mut self, driver: usize) {
        // As narrow as the index of a driver: each open connection holds it.
        self.driver = Some(driver as u16);
    }

    fn leave_driver(&mut self) {
        // Taken, so that a permit that moves on and is dropped is counted out once.
        if let Some(driver) = self.driver.take() {
            let stats = &self.shared.stats.drivers[usize::from(driver)];
            one_less(stats.open.fetch_sub(1, Ordering::Relaxed) as usize);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.leave_driver();
        let before = self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.note_released(one_less(before));
    }
}

/// What is left of a count of connections after one has left it.
fn one_less(before: usize) -> usize {
    invariant!(before > 0, "a connection leaves a count that has none");
    before - 1
}

impl AcceptedConnection {
    /// Gives it to the least loaded driver, those from `first` on before others with as many; to one that is
    /// late with others only if all are. `false` when that one has ended.
    pub(super) fn give_to_least(mut self, first: usize) -> bool {
        let shared = Arc::clone(&self.opened.permit.shared);
        let len = shared.mailboxes.len();
        let target = self
            .opened
            .permit
            .choose_driver(|| shared.least_from(first, len));
        let mut offered = shared.mailboxes[target].offer(self);
        for step in 1..len {
            let Err(mut new) = offered else { break };
            let other = (target + step) % len;
            new.opened.permit.move_to(other);
            offered = shared.mailboxes[other].offer(new);
        }
        let Err(mut new) = offered else { return true };
        new.opened.permit.move_to(target);
        shared.mailboxes[target].send(Command::Serve(new))
    }
}

impl Driver {
    /// Serves a connection that this driver has accepted, or hands it to a sibling that has clearly fewer.
    pub(super) fn assign(self: &Rc<Self>, mut new: AcceptedConnection) {
        let mine = usize::from(self.index);
        let shared = &self.shared;
        let len = shared.mailboxes.len();
        let lifetime = if len > 1 && self.serving() {
            self.lifetimes.borrow().at(new.opened.accepted)
        } else {
            Nanos::ZERO
        };
        // Connections as short as these are never handed over, so the numbers of the others need no look.
        let is_kept = queueing::placement(Load::MAX, Load::NONE, lifetime) == Placement::Keep;
        let target = new.opened.permit.choose_driver(|| {
            let open = self.stats().open.load(Ordering::Relaxed);
            if is_kept {
                return (mine, open);
            }
            let (sibling, least) = shared.least_from(mine + 1, len - 1);
            let load = |driver, open| Load::new(open, driver, shared.drivers);
            match queueing::placement(load(mine, open), load(sibling, least), lifetime) {
                Placement::HandOver => (sibling, least),
                Placement::Keep => (mine, open),
            }
        });
        if target == mine {
            return self.open(new);
        }
        match shared.mailboxes[target].offer(new) {
            Ok(()) => self.stats().balanced_out.add(),
            Err(mut new) => {
                new.opened.permit.move_to(mine);
                self.open(new);
            }
        }
    }

    /// Serves a connection that another thread has given to this driver.
    pub(super) fn take_over(self: &Rc<Self>, new: AcceptedConnection) {
        match new.opened.permit.is_counted {
            true => self.stats().balanced_in.add(),
            false => self.stats().accepted.add(),
        }
        self.open(new);
    }

    fn open(self: &Rc<Self>, new: AcceptedConnection) {
        match new.stream.watch(&self.tls_buffers) {
            Ok(transport) => protocol::serve(Rc::clone(self), transport, new.opened),
            Err(_) => self.stats().errors.add(),
        }
    }
}

impl Shared {
    /// The first of the least loaded drivers, of `len` from `first` on, and how many connections it has.
    pub(super) fn least_from(&self, first: usize, len: usize) -> (usize, u32) {
        let drivers = &self.stats.drivers;
        let open = (first..first + len).map(|index| {
            let index = index % drivers.len();
            (index, drivers[index].open.load(Ordering::Relaxed))
        });
        let least = open.min_by_key(|(index, open)| Load::new(*open, *index, self.drivers));
        least.expect("a connection is placed among one driver or more")
    }

    /// At the bound, the server pauses accepting until a sixteenth of the places is free again, which is what evictions
    /// leave: re-arming for each single place would make every close wake the acceptors.
    pub(super) fn has_room(&self) -> bool {
        let bound = self.config.listen.connections_max;
        let open = self.connections.load(Ordering::Relaxed);
        let was_full = self.full.load(Ordering::Relaxed);
        let reopening = queueing::reopening_len(bound);
        let is_full = open >= bound || was_full && open > reopening;
        if is_full != was_full {
            self.full.store(is_full, Ordering::Relaxed);
        }
        !is_full
    }

    /// A connection has ended, and `open` are left. The first thread that sees room again wakes all resting acceptors.
    fn note_released(&self, open: usize) {
        if self.full.load(Ordering::Relaxed)
            && open <= queueing::reopening_len(self.config.listen.connections_max)
            // A swap: of all threads that see the room, one wakes the acceptors.
            && self.full.swap(false, Ordering::Relaxed)
        {
            self.wake_acceptors();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a connection leaves a count that has none")]
    fn a_connection_is_counted_out_once() {
        assert_eq!(one_less(1), 0);
        one_less(0);
    }
}
