//! Accepting: one socket's connections, within all bounds; and the task of a driver that does so, for at most
//! `accept_batch` connections a turn, so that the connections that are already there are served between turns.
//!
//! An `Acceptor` takes a socket in which connections may wait, and gives connections that count already. It
//! refuses connections beyond their client's cap, and those that the process has no descriptor for. It does not
//! wait, so that it is the same on a driver and on the thread that accepts from shared sockets.
//!
//! At the bound of connections, or when the process has no descriptors left, the socket is left alone (nothing
//! polls it, nothing spins) until there is room again. Sockets come and go while the driver runs: one that goes
//! is left open for others, and what waits in it is theirs, unless it closes for good.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{FieldLines, ReplyFraming, ReplyPlan, Version};
use logging::Level;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags};
use smol_str::{SmolStr, ToSmolStr};
use socket2::SockRef;
use telemetry::{Nanos, Stamp};
use tls::CurrentTls;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::handoff::{AcceptedConnection, Bound, ConnectionPermit, Opened};
use super::shared::{Closing, Shared};
use super::{Driver, ServingState, first_of};
use crate::client_limit::LimitExceeded;
use crate::exchange::{Ends, host_and_port};
use crate::proxies::Peer;
use crate::sync::invariant;
use crate::sys;
use crate::transport;
use crate::transport::AcceptedStream;
use config::typed::Steering;
use ipc::ListenAddr;
use ipc::ListenerId;
use ipc::ListenerInfo;
use ipc::listen;

/// How long a handshake that has begun may take to be taken in before its socket closes.
pub(super) const HANDSHAKE_GRACE: Duration = Duration::from_millis(100);
/// A client with too many connections may try often; the error log is told this often.
const TELL_EVERY: Nanos = Nanos::from_secs(1);
/// Bytes of a refused client's request that are read.
const REFUSED_BYTES: usize = 64 << 10;
const NO_DESCRIPTORS_TEXT: &str = "out of file descriptors: pausing accept; raise the limit (`ulimit -n`) or lower `connections_max`";

/// One listening socket; `S` is how its thread watches it.
pub(super) struct Acceptor<S> {
    shared: Arc<Shared>,
    pub(super) socket: S,
    pub(super) order: ListenerInfo,
    /// What its connections are accepted with, where they begin with a TLS handshake.
    tls: Option<Arc<CurrentTls>>,
    /// The driver that accepts; none where a thread does for all.
    driver: Option<usize>,
    /// When the error log was last told of a client with too many connections.
    told: Stamp,
    /// Turns in a row after which more waited, where processes take turns at the socket.
    pub(super) turns: u32,
    /// A descriptor kept back, so that a connection can be taken in and refused when there are no others.
    reserve: Option<File>,
}

/// What a turn of accepting ended with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AcceptOutcome {
    /// The batch is full, or as many connections are open as may be; more connections may wait.
    More,
    /// No connection waits.
    Empty,
    /// No descriptors, or no memory: rest for a while.
    Rest,
}

impl<S: AsFd> Acceptor<S> {
    pub(super) fn new(
        shared: &Arc<Shared>,
        order: ListenerInfo,
        socket: S,
        driver: Option<usize>,
    ) -> io::Result<Self> {
        // One that was handed over may be as its maker left it.
        rustix::io::ioctl_fionbio(&socket, true)?;
        let tls = match order.is_tls {
            true => Some(shared.tls.clone().ok_or_else(|| {
                io::Error::other("its connections begin with TLS, and there is no certificate")
            })?),
            false => None,
        };
        Ok(Self {
            shared: Arc::clone(shared),
            socket,
            order,
            tls,
            driver,
            told: Stamp::ZERO,
            turns: 0,
            reserve: Some(File::open("/dev/null")?),
        })
    }

    /// Accepts at most `len_max` connections, and gives those that are not refused.
    pub(super) fn accept_batch(
        &mut self,
        len_max: usize,
        bound: Bound,
        mut give: impl FnMut(AcceptedConnection),
    ) -> AcceptOutcome {
        for _ in 0..len_max {
            let Some(permit) = ConnectionPermit::new(&self.shared, bound) else {
                return AcceptOutcome::More;
            };
            // The permit first: a connection that was accepted above the bound would have to be refused, one that
            // was not waits in the queue.
            match accept(&self.socket) {
                Ok((socket, peer)) => {
                    if let Some(new) = self.admit(socket, peer, permit) {
                        give(new);
                    }
                }
                Err(Errno::AGAIN) => return AcceptOutcome::Empty,
                Err(Errno::MFILE | Errno::NFILE) => return self.refuse_one(),
                // Invalid: the listener was shut down elsewhere, which no retry mends.
                Err(Errno::NOBUFS | Errno::NOMEM | Errno::INVAL) => return AcceptOutcome::Rest,
                // The client gave up before it was accepted (accept(2), "Error handling").
                Err(_) => {}
            }
        }
        AcceptOutcome::More
    }

    /// Accepts all connections that wait, whatever the bound: the socket closes, which resets what is left.
    pub(super) fn accept_rest(&mut self, give: impl FnMut(AcceptedConnection)) {
        let backlog = self.shared.config.listen.backlog as usize;
        self.accept_batch(backlog, Bound::Passed, give);
    }

    /// Whether the socket closes for good when its process accepts from it no longer.
    pub(super) fn closes(&self) -> bool {
        match self.shared.closing.get() {
            _ if self.order.is_inherited => false,
            Some(Closing::All) => true,
            Some(Closing::These(addresses)) => addresses.contains(&self.order.key.address),
            None => false,
        }
    }

    /// Lets no new client begin a handshake. From here on new clients get no answer (they ask again within a
    /// second), so that handshakes that are under way can end. Whether there may be such handshakes.
    pub(super) fn turn_away(&self) -> bool {
        let has_handshakes = matches!(self.order.at, ListenAddr::Tcp(_));
        if has_handshakes {
            // Without the filter a handshake that ends at the wrong moment is reset.
            let _ = listen::turn_away(&self.socket);
        }
        has_handshakes
    }

    /// Ends the listening. The supervisor has the socket to its own end: from here on, new clients are refused
    /// all the same. Those of a unix socket are refused as soon as its file is gone, which goes with its maker.
    pub(super) fn end(&self) {
        if let ListenAddr::Tcp(_) = self.order.at {
            listen::end(&self.socket);
        }
    }

    /// Counts a connection in, or refuses it because its client has too many.
    fn admit(
        &mut self,
        socket: OwnedFd,
        peer: Option<SocketAddr>,
        mut permit: ConnectionPermit,
    ) -> Option<AcceptedConnection> {
        permit.is_counted = self.driver.is_some();
        // Before the client's limit: what is refused was accepted all the same.
        if let Some(driver) = self.driver {
            self.shared.stats.drivers[driver].accepted.add();
        }
        let accepted = telemetry::now();
        let proxies = &self.shared.proxies;
        let ends = self.ends(&socket, peer);
        let peer = self.peer(&socket, peer);
        let (is_trusted, awaits_proxy_header) =
            (proxies.trust(peer), proxies.send_proxy_header(peer));
        // Of a proxy, the requests of its clients count.
        if let Peer::Ip(ip) = peer
            && !is_trusted
            && !awaits_proxy_header
            && let Err(exceeded) = permit.count_client(ip)
        {
            self.refuse_client(&socket, &exceeded, accepted);
            return None;
        }
        self.count_origin(&socket);
        let opened = Opened {
            ends: Arc::new(Ends { is_trusted, ..ends }),
            peer,
            awaits_proxy_header,
            accepted,
            permit,
        };
        let stream = AcceptedStream::new(socket, self.tls.as_ref());
        Some(AcceptedConnection { stream, opened })
    }

    /// Counts connections from sockets of other drivers, which have accepted nothing for a while, and those that
    /// arrived on the driver's own processor, where connections are steered by processor.
    fn count_origin(&self, socket: &OwnedFd) {
        let Some(driver) = self.driver else { return };
        let shared = &self.shared;
        let stats = &shared.stats.drivers[driver];
        let home = shared.slot * shared.mailboxes.len() + driver;
        let key = self.order.key;
        if (key.driver.into(), key.index.into()) != (driver, home) {
            stats.stall_takeovers.add();
        }
        let listen = &shared.config.listen;
        let cpus = &listen.driver_cpus;
        if listen.steering == Steering::Cpu
            && let Some(cpu) = cpus.get(driver % cpus.len().max(1))
            && SockRef::from(socket).cpu_affinity().ok() == Some(*cpu)
        {
            stats.local_cpu.add();
        }
    }

    /// Tells a client that it has too many connections. What it has sent by now is read, because closing
    /// with it unread would reset the connection and take the reply with it.
    fn refuse_client(&mut self, socket: &OwnedFd, exceeded: &LimitExceeded, now: Stamp) {
        if now.since(self.told) >= TELL_EVERY {
            self.told = now;
            let LimitExceeded { key, count } = exceeded;
            let text = format!("client {key} has {count} connections: more are refused");
            self.shared.log.error(Level::Warning, &text);
        }
        let stats = &self.shared.stats.drivers[self.driver.unwrap_or_default()];
        stats.crowded_clients.add_from_any();
        // Whatever the socket takes at once: nothing waits for a client that is refused.
        if self.tls.is_none() {
            refuse(socket, 429);
        }
        let _ = rustix::net::shutdown(socket, Shutdown::Write);
        let mut input = vec![0; REFUSED_BYTES];
        let _ = rustix::net::recv(socket, &mut input[..], RecvFlags::DONTWAIT);
    }

    /// Takes one connection in with the reserve descriptor and refuses it, so that clients see that the
    /// server is out of descriptors instead of waiting for their time-outs. The kernel says so before it looks
    /// whether a connection waits.
    fn refuse_one(&mut self) -> AcceptOutcome {
        // Closed for a moment, so that one accept succeeds; the connection is refused and its descriptor kept anew.
        self.reserve = None;
        let accepted = accept(&self.socket);
        if let Ok((socket, _)) = &accepted {
            if self.tls.is_none() {
                refuse(socket, 503);
            }
            self.shared.log.error(Level::Error, NO_DESCRIPTORS_TEXT);
        }
        let is_empty = matches!(accepted, Err(Errno::AGAIN));
        // Before the reserve is taken back: it needs the descriptor that this connection has.
        drop(accepted);
        self.reserve = File::open("/dev/null").ok();
        // Another thread may have taken the descriptor: the queue is empty only when the kernel says so.
        if is_empty {
            AcceptOutcome::Empty
        } else {
            AcceptOutcome::Rest
        }
    }

    /// The other end, by which trust is decided.
    fn peer(&self, socket: &OwnedFd, peer: Option<SocketAddr>) -> Peer {
        match peer {
            Some(peer) => Peer::Ip(peer.ip()),
            None if self.shared.proxies.need_process() => match socket_peercred(socket) {
                Ok(process) => Peer::Process {
                    user: process.uid.as_raw(),
                    group: process.gid.as_raw(),
                },
                Err(_) => Peer::Unknown,
            },
            None => Peer::Unknown,
        }
    }

    fn ends(&self, socket: &OwnedFd, peer: Option<SocketAddr>) -> Ends {
        let (client_host, client_port) = match peer {
            Some(peer) => host_and_port(peer),
            None => (SmolStr::new_static("unix:"), SmolStr::default()),
        };
        let (local_host, local_port) = match &self.order.at {
            // Only a wildcard leaves open which address the client took.
            ListenAddr::Tcp(at) if at.ip().is_unspecified() => {
                let local = SockRef::from(socket).local_addr().ok();
                host_and_port(local.and_then(|local| local.as_socket()).unwrap_or(*at))
            }
            ListenAddr::Tcp(at) => (at.ip().to_smolstr(), at.port().to_smolstr()),
            ListenAddr::Unix(path) => (path.display().to_smolstr(), SmolStr::default()),
        };
        Ends {
            peer_host: client_host.clone(),
            client_host,
            client_port,
            is_trusted: false,
            local_host,
            local_port,
            host: None,
            prefix: SmolStr::default(),
            scheme: match self.tls {
                Some(_) => "https",
                None => "http",
            },
            tls: None,
            listener: self.order.key.address,
        }
    }
}

impl Driver {
    /// Accepts from a socket as well. A socket that the driver accepts from already is left as it is; one that
    /// comes when the driver accepts no more has its last round, if it closes.
    pub(super) fn start_accepting(
        self: &Rc<Self>,
        order: ListenerInfo,
        socket: OwnedFd,
    ) -> io::Result<()> {
        let key = order.key;
        if self.listeners.borrow().contains_key(&key) {
            return Ok(());
        }
        let socket = sys::watch_listener(socket)?;
        let acceptor = Acceptor::new(&self.shared, order, socket, Some(self.index.into()))?;
        let is_wanted = Rc::new(Cell::new(true));
        // Before the task runs: a command to stop that follows in the same batch finds it.
        self.listeners
            .borrow_mut()
            .insert(key, Rc::clone(&is_wanted));
        self.acceptors.set(self.acceptors.get() + 1);
        tokio::task::spawn_local(Rc::clone(self).accept(acceptor, is_wanted));
        Ok(())
    }

    pub(super) fn stop_accepting(&self, key: ListenerId) {
        if let Some(is_wanted) = self.listeners.borrow_mut().remove(&key) {
            is_wanted.set(false);
            // The task sleeps until a connection comes or this is notified; its cell alone wakes nothing.
            self.shared.room.notify_waiters();
        }
    }

    async fn accept(
        self: Rc<Self>,
        mut acceptor: Acceptor<AsyncFd<OwnedFd>>,
        is_wanted: Rc<Cell<bool>>,
    ) {
        let batch = self.config().listen.accept_batch;
        while self.serving() && is_wanted.get() {
            if !self.shared.has_room() {
                self.rest().await;
                continue;
            }
            let turn = acceptor.accept_batch(batch, Bound::Kept, |new| self.assign(new));
            // A flood of connections must not keep exchanges in the outbox.
            self.flush_due(telemetry::now());
            match turn {
                // Connections that are ready by now are served before the next batch.
                AcceptOutcome::More => tokio::task::yield_now().await,
                AcceptOutcome::Empty => {
                    // Only a nonblocking accept that found nothing may clear the readiness: the kernel
                    // reports an edge.
                    let nothing = |_: &OwnedFd| Err::<(), _>(io::ErrorKind::WouldBlock.into());
                    let _ = acceptor.socket.try_io(Interest::READABLE, nothing);
                    first_of(acceptor.socket.readable(), self.shared.room.notified()).await;
                }
                AcceptOutcome::Rest => self.rest().await,
            }
        }
        // What waits in the accept queue is taken in before the socket closes: closing it would reset them.
        if self.state.get() < ServingState::Aborting && acceptor.closes() {
            let has_handshakes = acceptor.turn_away();
            acceptor.accept_rest(|new| self.assign(new));
            if has_handshakes {
                tokio::time::sleep(HANDSHAKE_GRACE).await;
                acceptor.accept_rest(|new| self.assign(new));
            }
            acceptor.end();
        }
        drop(acceptor);
        // Behind the last connection that it has given: a driver without acceptors may end.
        let before = self.acceptors.get();
        invariant!(before > 0, "an acceptor ends that was not counted");
        self.acceptors.set(before - 1);
        self.changed.notify_one();
    }

    /// Until there may be room. An acceptor that looked in the moment in which room came back is not notified,
    /// so time passing is a sign as well.
    async fn rest(&self) {
        let _ = tokio::time::timeout(super::TICK, self.shared.room.notified()).await;
    }
}

fn accept(listener: &impl AsFd) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener, flags)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    Ok((socket, peer))
}

/// Sends a refusal without a body: nothing of it depends on the client, which is not read.
fn refuse(socket: &OwnedFd, status: u16) {
    let mut fields = FieldLines::new();
    fields.push_decimal(b"Content-Length", 0);
    fields.push_decimal(b"Retry-After", 1);
    let plan = ReplyPlan {
        framing: ReplyFraming::NoBody,
        keep_alive: false,
    };
    let mut out = Vec::new();
    http::write_status_line(&mut out, status);
    out.extend_from_slice(fields.as_bytes());
    http::end_head(&mut out, &plan, Version::Http11, None);
    // The client may be gone, and a full buffer of a fresh socket is not possible.
    let _ = transport::send(socket, &[io::IoSlice::new(&out)], SendFlags::empty());
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn refuses_in_as_few_bytes_as_http_needs() {
        let check = |status: u16, line: &str| {
            let fields = "Content-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
            let expect = format!("HTTP/1.1 {line}\r\n{fields}");
            let (server, mut client) = UnixStream::pair().unwrap();
            refuse(&server.into(), status);
            let mut found = String::new();
            client.read_to_string(&mut found).unwrap();
            assert_eq!(found, expect);
        };
        check(503, "503 Service Unavailable");
        check(429, "429 Too Many Requests");
    }
}
