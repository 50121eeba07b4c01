//! What all drivers of a process share, and what they are asked to do.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};

use logging::{Level, Log};
use queueing::Drivers;
use tokio::sync::{Notify, watch};

use super::mailbox::{Command, Mailbox};
use super::shared_accept::SharedAcceptor;

use crate::bandwidth::Bandwidth;
use crate::blocking_pool::BlockingPool;
use crate::challenges::ChallengeAnswers;
use crate::client_limit::ClientLimit;
use crate::exchange::Ids;
use crate::field_template::RouteChanges;
use crate::guards::Guards;
use crate::load_report::ServerLoad;
use crate::pages::Pages;
use crate::pool::Pool;
use crate::proxies::Proxies;
use crate::response::ReplyMemory;
use crate::service::Service;
use crate::spool::Spoolers;
use crate::traces::SpanQueue;
use crate::watchdog::Watchdog;
use ::tls::CurrentTls;
use config::typed::Config;
use ipc::CertificateStatus;
use ipc::stats::Stats;

/// What all drivers of a process share.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    /// The process's place among those of its generation: its drivers' own sockets are numbered from
    /// `slot * drivers` on.
    pub(crate) slot: usize,
    /// How many drivers share how many processors.
    pub(crate) drivers: Drivers,
    pub(crate) service: Service,
    pub(crate) guards: Arc<Guards>,
    /// What routes change of headers on their way to upstreams.
    pub(crate) request_changes: RouteChanges,
    /// Challenges of certificate authorities.
    pub(crate) challenges: Arc<ChallengeAnswers>,
    /// By their index; none without a handler.
    pub(crate) pools: Vec<Arc<Pool>>,
    /// Whether what the handler is meant to serve is there.
    pub(crate) is_loaded: bool,
    /// `None` where no limit is set for runs.
    pub(crate) watchdog: Option<Arc<Watchdog>>,
    pub(crate) stats: Arc<Stats>,
    /// What connections are accepted with that begin with a TLS handshake; `None`: there is no certificate.
    pub(crate) tls: Option<Arc<CurrentTls>>,
    /// How the certificates stand, as the supervisor says.
    pub(crate) certificates: Mutex<Vec<CertificateStatus>>,
    pub(crate) log: Arc<Log>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) bandwidth: Bandwidth,
    pub(crate) ids: Ids,
    pub(crate) traces: Option<Arc<SpanQueue>>,
    pub(crate) proxies: Proxies,
    pub(crate) client_limit: ClientLimit,
    pub(crate) replies_memory: Arc<ReplyMemory>,
    /// What trusted proxies get to know of the load.
    pub(crate) load: Arc<ServerLoad>,
    pub(crate) spoolers: Spoolers,
    pub(crate) openers: BlockingPool,
    pub(crate) writers: BlockingPool,
    pub(crate) resolvers: BlockingPool,
    /// Open connections of all drivers.
    pub(crate) connections: AtomicUsize,
    /// Their bound was reached, and room has not come back yet.
    pub(crate) full: AtomicBool,
    /// Read by all threads that accept or serve.
    pub(crate) state: watch::Sender<ServingState>,
    /// Notified when there may be room for connections again, and when an acceptor has to stop.
    pub(crate) room: Notify,
    /// By driver.
    pub(crate) mailboxes: Vec<Mailbox>,
    /// Accepts from sockets that several drivers or processes wait for, once there is one.
    pub(crate) shared_acceptor: OnceLock<io::Result<Arc<SharedAcceptor>>>,
    /// Addresses whose sockets close for good when this process drains. Set before the state changes.
    pub(crate) closing: OnceLock<Closing>,
    /// Another process serves in the place of this one, which drains.
    pub(crate) is_replaced: AtomicBool,
}

/// Whose sockets close for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Those of the addresses with these numbers; all others are left to the processes that have them too.
    These(Vec<u16>),
    /// All: no other process has them any more.
    All,
}

/// What drivers and acceptors do at present; the main thread only ever moves it forward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ServingState {
    /// Accepts and serves.
    Running,
    /// Accepts no more; each response is the last of its connection, and idle connections wait for their next request,
    /// so that no request of a client crosses the end of its connection.
    Closing,
    /// Accepts no more, closes idle connections, finishes the exchanges that have begun, and ends.
    Draining,
    /// Ends now.
    Aborting,
}

impl Shared {
    /// Threads of all pools that exist, those that are about to end included.
    pub(crate) fn pool_threads(&self) -> usize {
        self.pools.iter().map(|pool| pool.threads_alive()).sum()
    }

    /// Gives a command to all threads that accept; one that has ended has done all that it will do.
    pub(crate) fn command_all(&self, command: impl Fn() -> Command) {
        for mailbox in &self.mailboxes {
            mailbox.send(command());
        }
        if let Some(acceptor) = self.shared_acceptor() {
            acceptor.send(command());
        }
    }

    pub(super) fn shared_acceptor(&self) -> Option<&SharedAcceptor> {
        Some(self.shared_acceptor.get()?.as_ref().ok()?)
    }

    /// Lets all threads that accept look around: there is room, or they are to stop.
    pub(super) fn wake_acceptors(&self) {
        self.room.notify_waiters();
        if let Some(acceptor) = self.shared_acceptor() {
            acceptor.wake();
        }
    }

    /// An acceptor that could not be started costs no other one.
    pub(super) fn log_unless_started(&self, started: io::Result<()>) {
        if let Err(error) = started {
            let text = format!("cannot accept from a socket: {error}");
            self.log.error(Level::Error, &text);
        }
    }
}
