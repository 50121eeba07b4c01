//! Accepting: at most `accept_batch` connections a turn, then those that are already there are served.
//!
//! At the bound of connections, or when the process has no descriptors left, the listener is left alone
//! (nothing polls it, nothing spins) until there is room again.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use measure::{Nanos, Stamp};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketFlags};
use smol_str::{SmolStr, ToSmolStr};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::connection::Connection;
use super::{Driver, Ear, Mood};
use crate::clients::{Crowded, Place};
use crate::exchange::Ends;
use crate::listen::{self, At};
use crate::log::Level;
use crate::sys;

/// What a client is told when the process has no descriptor for it.
const NO_DESCRIPTORS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";

/// What a client is told that has too many connections.
const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";

/// A client with too many connections may try often; the error log is told this often.
const TELL_EVERY: Nanos = Nanos::from_secs(1);

/// How long a handshake that has begun may take to be taken in while the house closes.
const HANDSHAKE_GRACE: Duration = Duration::from_millis(100);
const NO_DESCRIPTORS_TEXT: &str = "out of file descriptors: accepting rests; raise the limit (`ulimit -n`) or lower `connections_max`";

pub(super) struct Acceptor {
    driver: Rc<Driver>,
    listener: AsyncFd<OwnedFd>,
    at: At,
    address: u16,
    /// When the error log was last told of a client with too many connections.
    told: Cell<Stamp>,
    /// A descriptor kept back, so that a connection can be taken in and refused when there are no others.
    reserve: RefCell<Option<File>>,
}

/// What a turn of accepting ended with.
enum Turn {
    /// The batch is full; there may be more.
    More,
    /// Nobody waits.
    Empty,
    /// No descriptors, or no memory: rest until the next tick.
    Rest,
}

impl Acceptor {
    pub(super) fn new(driver: Rc<Driver>, ear: Ear) -> io::Result<Self> {
        let listener = sys::watch_listener(ear.socket)?;
        let reserve = RefCell::new(Some(File::open("/dev/null")?));
        Ok(Self {
            driver,
            listener,
            at: ear.at,
            address: ear.address,
            told: Cell::new(Stamp::ZERO),
            reserve,
        })
    }

    pub(super) async fn run(self) {
        while self.driver.serving() {
            if !self.has_room() {
                self.rest().await;
                continue;
            }
            self.readable_or_told().await;
            let batch = self.driver.config().listen.accept_batch;
            let turn = self.turn(batch);
            self.driver.flush_due(measure::now());
            match turn {
                // Whoever is ready by now is served before the next batch.
                Turn::More => tokio::task::yield_now().await,
                Turn::Empty => {}
                Turn::Rest => self.rest().await,
            }
        }
        self.last_round().await;
        let driver = Rc::clone(&self.driver);
        drop(self);
        driver.acceptors.set(driver.acceptors.get() - 1);
        driver.changed.notify_one();
    }

    /// Until there may be room: another driver's connections may have made it, so time passing is a sign
    /// as well.
    async fn rest(&self) {
        let _ = tokio::time::timeout(super::TICK, self.driver.room.notified()).await;
    }

    /// Takes in what waits in the accept queue before the socket closes: closing it would reset them. From
    /// here on new clients are not answered (they ask again within a second), so that handshakes that are
    /// under way can end and be taken in as well.
    async fn last_round(&self) {
        if self.driver.mood.get() != Mood::Draining {
            return;
        }
        let backlog = self.driver.config().listen.backlog as usize;
        match &self.at {
            At::Tcp(_) => {
                // Without the filter a handshake that ends at the wrong moment is reset.
                let _ = listen::turn_away(&self.listener);
                self.turn(backlog);
                tokio::time::sleep(HANDSHAKE_GRACE).await;
            }
            // The other drivers' acceptors share the path.
            At::Unix(path) => listen::remove_files(std::slice::from_ref(path)),
        }
        self.turn(backlog);
    }

    /// At the bound, accepting rests until a sixteenth of the places is free again, which is what evictions
    /// leave: re-arming for each single place would make every close wake the acceptor.
    fn has_room(&self) -> bool {
        let bound = self.driver.config().listen.connections_max;
        let shared = &self.driver.shared;
        let open = shared.connections.load(Ordering::Relaxed);
        let was_full = shared.full.load(Ordering::Relaxed);
        let is_full = match was_full {
            true => open > stage::reopening_len(bound),
            false => open >= bound,
        };
        if is_full != was_full {
            shared.full.store(is_full, Ordering::Relaxed);
        }
        !is_full
    }

    async fn readable_or_told(&self) {
        let mut told = std::pin::pin!(self.driver.room.notified());
        poll_fn(|context| {
            let readable = self.listener.poll_read_ready(context).is_ready();
            let told = told.as_mut().poll(context).is_ready();
            if readable || told {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn turn(&self, batch: usize) -> Turn {
        for _ in 0..batch {
            if self.driver.serving() && !self.has_room() {
                return Turn::More;
            }
            match accept(&self.listener) {
                Ok((socket, peer)) => self.welcome(socket, peer),
                Err(Errno::AGAIN) => return self.none_left(),
                Err(Errno::MFILE | Errno::NFILE) => return self.refuse_one(),
                Err(Errno::NOBUFS | Errno::NOMEM) => return Turn::Rest,
                // The client gave up before it was accepted (accept(2), "Error handling").
                Err(_) => {}
            }
        }
        Turn::More
    }

    /// Only a nonblocking accept that found nothing may clear the readiness: the kernel reports an edge.
    fn clear_ready(&self) {
        let _ = self.listener.try_io(Interest::READABLE, |_| {
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
    }

    fn welcome(&self, socket: OwnedFd, peer: Option<SocketAddr>) {
        let now = measure::now();
        self.driver.stats().accepted.add();
        let Ok(place) = self.place(peer) else {
            return self.refuse_client(&socket);
        };
        let ends = Arc::new(self.ends(&socket, peer));
        let trust = self.driver.shared.ids.trust(peer.map(|peer| peer.ip()));
        match Connection::open(Rc::clone(&self.driver), socket, ends, trust, place, now) {
            Ok(connection) => drop(tokio::task::spawn_local(connection.serve())),
            Err(_) => self.driver.stats().errors.add(),
        }
    }

    /// The client's place among those of its address; none is needed on a unix socket.
    fn place(&self, peer: Option<SocketAddr>) -> Result<Option<Place>, Crowded> {
        let clients = &self.driver.shared.clients;
        peer.map(|peer| clients.enter(peer.ip().to_canonical()))
            .transpose()
            .inspect_err(|crowded| {
                let now = measure::now();
                if now.since(self.told.get()) < TELL_EVERY {
                    return;
                }
                self.told.set(now);
                let text = format!(
                    "client {} has {} connections: more are refused",
                    crowded.key, crowded.count
                );
                self.driver.shared.log.error(Level::Warning, &text);
            })
    }

    /// Tells a client that it has too many connections. What it has sent by now is read, because closing
    /// with it unread would reset the connection and take the reply with it.
    fn refuse_client(&self, socket: &OwnedFd) {
        self.driver.stats().crowded_clients.add();
        let _ = crate::delivery::send(socket, &[io::IoSlice::new(TOO_MANY_CONNECTIONS)]);
        let _ = rustix::net::shutdown(socket, Shutdown::Write);
        let mut scratch = self.driver.scratch.borrow_mut();
        let _ = rustix::net::recv(socket, &mut scratch.input[..], RecvFlags::DONTWAIT);
    }

    fn ends(&self, socket: &OwnedFd, peer: Option<SocketAddr>) -> Ends {
        let (peer_host, peer_port) = match peer {
            Some(peer) => (
                peer.ip().to_canonical().to_smolstr(),
                peer.port().to_smolstr(),
            ),
            None => (SmolStr::new_static("unix:"), SmolStr::default()),
        };
        let (local_host, local_port) = match &self.at {
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
        let listener = self.address;
        Ends {
            peer_host,
            peer_port,
            local_host,
            local_port,
            scheme: "http",
            listener,
        }
    }

    /// Takes one connection in with the reserve descriptor and refuses it, so that clients see that the
    /// server is out of descriptors instead of waiting for their time-outs. The kernel says so before it looks
    /// whether anybody waits.
    fn refuse_one(&self) -> Turn {
        self.reserve.take();
        let accepted = accept(&self.listener);
        if let Ok((socket, _)) = &accepted {
            // The client may be gone, and a full buffer of a fresh socket is not possible.
            let _ = crate::delivery::send(socket, &[io::IoSlice::new(NO_DESCRIPTORS)]);
            self.driver
                .shared
                .log
                .error(Level::Error, NO_DESCRIPTORS_TEXT);
        }
        let is_empty = matches!(accepted, Err(Errno::AGAIN));
        drop(accepted);
        self.reserve.replace(File::open("/dev/null").ok());
        // Another thread may have taken the descriptor: that nobody waits is known only when the kernel says so.
        if is_empty {
            self.none_left()
        } else {
            Turn::Rest
        }
    }

    fn none_left(&self) -> Turn {
        self.clear_ready();
        Turn::Empty
    }
}

fn accept(listener: &AsyncFd<OwnedFd>) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener.as_fd(), flags)?;
    Ok((
        socket,
        peer.and_then(|peer| SocketAddr::try_from(peer).ok()),
    ))
}
