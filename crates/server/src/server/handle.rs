//! The handle of an open server: changes of its sockets and pools, and its end, from any thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::{Event, certificates};
use crate::driver::{self, Ack, Command, Shared};
use crate::fork;
use crate::sync::lock;
use ipc::{CertificateStatus, Challenges, ListenerId, ListenerInfo};

pub use crate::driver::Closing;

/// Changes the sockets and pools of an open server, and ends it, from any thread.
#[derive(Clone)]
pub struct ServerHandle {
    shared: Arc<Shared>,
    events: mpsc::Sender<Event>,
}

/// How a server ends.
#[derive(Clone, Debug)]
pub struct Drain {
    /// Whose sockets close for good: what waits in them is taken in first.
    pub closing: Closing,
    /// What becomes of idle connections.
    pub idle: Idle,
    /// Time until what is left is cut.
    pub timeout: Duration,
}

/// What becomes of idle connections when a server ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// They are closed now.
    Closed,
    /// They wait for their next request, which is answered with `Connection: close`.
    Awaited,
}

impl ServerHandle {
    pub(super) fn new(shared: &Arc<Shared>, events: mpsc::Sender<Event>) -> Self {
        Self {
            shared: Arc::clone(shared),
            events,
        }
    }

    /// Accepts from `socket` as well. The driver of its key does, or one thread for all if it is shared.
    ///
    /// # Errors
    /// The thread that accepts from shared sockets cannot be started.
    pub fn start_accepting(&self, order: ListenerInfo, socket: OwnedFd) -> io::Result<()> {
        fork::keep_from_children(&socket);
        driver::start_accepting(&self.shared, order, socket)
    }

    /// Accepts from that socket no longer; what waits in it is left to others.
    pub fn stop_accepting(&self, key: ListenerId) {
        self.shared.command_all(|| Command::StopAccepting(key));
    }

    /// New connections are accepted with the certificates and keys of this file of the supervisor.
    ///
    /// # Errors
    /// They cannot be used; everything stays as it was.
    pub fn take_credentials(&self, file: &OwnedFd) -> io::Result<()> {
        match &self.shared.tls {
            Some(current) => certificates::replace(current, &self.shared.config, file),
            None => Ok(()),
        }
    }

    /// Other bounds for the size of the pool of that name from now on; at least one thread stays. False where
    /// there is no such pool.
    pub fn reshape(&self, pool: &str, threads_min: usize, threads_max: usize) -> bool {
        let found = self.shared.pools.iter().find(|found| found.name() == pool);
        if let Some(pool) = found {
            pool.reshape(threads_min, threads_max);
        }
        found.is_some()
    }

    /// Answers these challenges of certificate authorities, and no others, from now on.
    pub fn take_challenges(&self, challenges: Challenges) {
        if let Some(tls) = &self.shared.tls {
            tls.replace_challenges(&challenges.tls);
        }
        self.shared.challenges.replace(challenges);
    }

    /// Shows this of the certificates from now on.
    pub fn take_certificates(&self, certificates: Vec<CertificateStatus>) {
        *lock(&self.shared.certificates) = certificates;
    }

    /// Calls `say` once, when all that accept have come to what they were told before, or have ended; from any
    /// thread, which it must not hold up.
    pub fn confirm(&self, say: impl Fn() + Send + Sync + 'static) {
        let ack = Arc::new(Ack(Box::new(say)));
        self.shared
            .command_all(|| Command::Acknowledge(Arc::clone(&ack)));
    }

    /// A connection without a socket, for tests: each of its buffers holds `bytes_max` bytes.
    ///
    /// # Panics
    /// When the drivers have ended.
    #[cfg(feature = "faults")]
    #[doc(hidden)]
    pub fn connect_in_memory(&self, bytes_max: usize) -> crate::transport::memory::Client {
        let client = self.shared.connect_in_memory(bytes_max);
        client.expect("a driver serves")
    }

    /// Has every driver note `number` in its counters, as soon as it comes to it; one that has ended does not.
    pub fn heartbeat(&self, number: u64) {
        let mailboxes = &self.shared.mailboxes;
        mailboxes
            .iter()
            .for_each(|mailbox| mailbox.send_beat(number));
    }

    /// Ends the server in its configured time, where no other process has its sockets.
    pub fn drain_alone(&self) {
        self.drain(Drain {
            closing: Closing::All,
            idle: Idle::Closed,
            timeout: Duration::from_nanos(self.shared.config.timeouts.drain.0),
        });
    }

    /// Ends the server. The first call says which sockets close; a later one can only shorten the time.
    pub fn drain(&self, drain: Drain) {
        // The receiver is gone when the server has ended.
        let _ = self.events.send(Event::Drain(drain));
    }
}
