//! What all drivers of a process share, and what they are asked to do.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::inbox::{Call, Confirmation, Inbox};
use super::usher::Usher;
use stage::Drivers;

use crate::blocking_pool::BlockingPool;
use crate::channel::EarKey;
use crate::clients::Clients;
use crate::config::meant::Config;
use crate::exchange::Exchange;
use crate::ids::Ids;
use crate::listen::At;
use crate::log::Log;
use crate::pages::Pages;
use crate::pool::Pool;
use crate::rates::Rates;
use crate::request_start::RequestStarts;
use crate::response::ReplyMemory;
use crate::service::Service;
use crate::spool::Spoolers;
use crate::stats::Stats;
use crate::watch::Watch;

/// What all drivers of a process share.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    /// The process's place among those of its generation: its drivers' own sockets are numbered from
    /// `slot * drivers` on.
    pub(crate) slot: usize,
    /// How many drivers share how many processors.
    pub(crate) drivers: Drivers,
    pub(crate) service: Service,
    /// By their index; none without a handler.
    pub(crate) pools: Vec<Arc<Pool>>,
    /// Where there is something to watch for.
    pub(crate) watch: Option<Arc<Watch>>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) log: Arc<Log>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) rates: Rates,
    pub(crate) ids: Ids,
    pub(crate) request_starts: Option<RequestStarts>,
    pub(crate) clients: Clients,
    pub(crate) replies_memory: Arc<ReplyMemory>,
    pub(crate) spoolers: Spoolers,
    pub(crate) openers: BlockingPool,
    pub(crate) writers: BlockingPool,
    /// Open connections of all drivers.
    pub(crate) connections: AtomicUsize,
    /// Their bound was reached, and room has not come back yet.
    pub(crate) full: AtomicBool,
    /// By driver.
    pub(crate) inboxes: Vec<Inbox>,
    /// Accepts from sockets that several drivers or processes wait for.
    pub(crate) usher: Usher,
    /// Addresses whose sockets close for good when this process drains. Set before the mood changes.
    pub(crate) closing: OnceLock<Closing>,
}

/// Whose sockets close for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Those of the addresses with these numbers; all others are left to whoever has them too.
    These(Vec<u16>),
    /// All: nobody else has them any more.
    All,
}

/// What a driver is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mood {
    /// Serve.
    Serving,
    /// Accept no more; each reply is its connection's last, and idle connections wait for their next request,
    /// so that no request of a client crosses the end of its connection.
    Leaving,
    /// Accept no more, close idle connections, finish what has begun, and end.
    Draining,
    /// End now.
    Cutting,
}

/// One listening socket.
#[derive(Debug)]
pub(crate) struct Ear {
    pub(crate) socket: OwnedFd,
    pub(crate) at: At,
    pub(crate) key: EarKey,
    /// Others wait for the same accept queue; it is the usher's.
    pub(crate) is_shared: bool,
    /// Other processes do, who are to have as much of what comes.
    pub(crate) takes_turns: bool,
    pub(crate) owner: Owner,
}

/// Who has a listening socket beside the process that accepts from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// Nobody: with its ear it closes for good, after a last round.
    Nobody,
    /// The supervisor, which says when it closes.
    Supervisor,
    /// The service manager, which goes on with it whatever becomes of the server.
    Manager,
}

impl Shared {
    /// The inboxes of `drivers` drivers.
    pub(crate) fn inboxes(drivers: usize) -> Vec<Inbox> {
        (0..drivers).map(|_| Inbox::default()).collect()
    }

    /// Tells every driver to note `number`.
    pub(crate) fn beat(&self, number: u64) {
        for inbox in &self.inboxes {
            // One that has ended beats no more.
            let _ = inbox.send(Call::Beat(number));
        }
    }

    /// Threads of all pools that exist, those that are about to end included.
    pub(crate) fn pool_threads(&self) -> usize {
        self.pools.iter().map(|pool| pool.threads_alive()).sum()
    }

    /// The pool of an exchange that a worker is to run.
    ///
    /// # Panics
    /// The exchange has none.
    pub(crate) fn pool_of(&self, exchange: &Exchange) -> &Arc<Pool> {
        let pool = exchange.record.pool;
        &self.pools[usize::from(pool.expect("the service has given it a pool"))]
    }

    /// Threads that were given up and have not ended; they are not among those of the pools.
    pub(crate) fn given_up_threads(&self) -> usize {
        self.watch.as_ref().map_or(0, |watch| watch.given_up_len())
    }

    /// Accepts no longer from the socket of that name, whoever does.
    pub(crate) fn deafen(&self, key: EarKey) {
        if !self.usher.deafen(key)
            && let Some(inbox) = self.inboxes.get(usize::from(key.driver))
        {
            // A driver that has ended hears nothing.
            let _ = inbox.send(Call::Deafen(key));
        }
    }

    /// Tells all who accept of it.
    pub(crate) fn confirm(&self, confirmation: &Confirmation) {
        for inbox in &self.inboxes {
            // One that has ended has done all that it will do.
            let _ = inbox.send(Call::Confirm(confirmation.clone()));
        }
        self.usher.confirm(confirmation.clone());
    }

    /// Whether the socket of an ear closes for good with it.
    pub(super) fn closes(&self, address: u16, owner: Owner) -> bool {
        match owner {
            Owner::Nobody => true,
            Owner::Supervisor => match self.closing.get() {
                Some(Closing::These(addresses)) => addresses.contains(&address),
                Some(Closing::All) => true,
                None => false,
            },
            Owner::Manager => false,
        }
    }

    /// What waits for storage or for clients.
    pub(super) fn waiting_json(&self) -> String {
        format!(
            "{{\"connections\":{},\"spoolers\":{},\"openers\":{},\"writers\":{},\"replies_memory_bytes\":{}}}",
            self.connections.load(Ordering::Relaxed),
            self.spoolers.waiting_len(),
            self.openers.waiting_len(),
            self.writers.waiting_len(),
            self.replies_memory.bytes()
        )
    }
}
