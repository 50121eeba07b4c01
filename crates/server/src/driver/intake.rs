//! Taking one connection off a listening socket, within all bounds: the same on a driver and on the usher's
//! thread.
//!
//! Takes a socket that may have somebody waiting, gives a connection that counts already, or says why there is
//! none. Refuses what is beyond its client's cap, and what the process has no descriptor for. It must not wait.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use measure::{Nanos, Stamp};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketFlags};
use wire::{FieldLines, ReplyFraming, ReplyPlan, Version};

use super::handoff::{AcceptedBy, AcceptedConnection, ConnectionPermit, Listened};
use super::inbox::Inbox;
use super::shared::Shared;
use crate::clients::{Crowded, Place};
use crate::log::Level;
use crate::transport::{self, Followed};

/// How long a handshake that has begun may take to be taken in before its socket closes.
pub(super) const HANDSHAKE_GRACE: Duration = Duration::from_millis(100);

/// The reply to a client for which the process has no descriptor.
static NO_DESCRIPTORS: LazyLock<Vec<u8>> = LazyLock::new(|| encoded_refusal(503));

/// The reply to a client with too many connections.
static TOO_MANY_CONNECTIONS: LazyLock<Vec<u8>> = LazyLock::new(|| encoded_refusal(429));

/// A client with too many connections may try often; the error log is told this often.
const TELL_EVERY: Nanos = Nanos::from_secs(1);
/// Bytes of a refused client's request that are read.
const REFUSED_BYTES: usize = 64 << 10;
const NO_DESCRIPTORS_TEXT: &str = "out of file descriptors: accepting rests; raise the limit (`ulimit -n`) or lower `connections_max`";

/// What one listening socket needs besides itself.
pub(super) struct Intake {
    shared: Arc<Shared>,
    listened: Arc<Listened>,
    from: AcceptedBy,
    /// Whose counter refused clients are added to.
    driver: usize,
    /// When the error log was last told of a client with too many connections.
    told: Cell<Stamp>,
    /// A descriptor kept back, so that a connection can be taken in and refused when there are no others.
    reserve: RefCell<Option<File>>,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Taken {
    /// A connection.
    New(AcceptedConnection),
    /// One that its client had no right to; it was told so.
    Refused,
    /// The client gave up before it was accepted (accept(2), "Error handling").
    Gone,
    /// Nobody waits.
    Nobody,
    /// There are as many connections as there may be.
    Full,
    /// No descriptors, or no memory: rest for a while.
    Rest,
}

/// Whether the bound of connections holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bound {
    Kept,
    /// Who is not taken in now is reset.
    Passed,
}

impl Intake {
    pub(super) fn new(
        shared: &Arc<Shared>,
        listened: Arc<Listened>,
        from: AcceptedBy,
        driver: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            shared: Arc::clone(shared),
            listened,
            from,
            driver,
            told: Cell::new(Stamp::ZERO),
            reserve: RefCell::new(Some(File::open("/dev/null")?)),
        })
    }

    /// Takes one connection from `socket`, which must not block.
    pub(super) fn take(&self, socket: &impl AsFd, bound: Bound) -> Taken {
        let permit = match bound {
            Bound::Kept if !self.shared.has_room() => None,
            Bound::Kept => ConnectionPermit::new(&self.shared),
            Bound::Passed => Some(ConnectionPermit::beyond(&self.shared)),
        };
        let Some(permit) = permit else {
            return Taken::Full;
        };
        match accept(socket) {
            Ok((accepted, peer)) => self.count_in(accepted, peer, permit),
            Err(Errno::AGAIN) => Taken::Nobody,
            Err(Errno::MFILE | Errno::NFILE) => self.refuse_one(socket),
            // Invalid: somebody has shut the listener down, which no retry mends.
            Err(Errno::NOBUFS | Errno::NOMEM | Errno::INVAL) => Taken::Rest,
            Err(_) => Taken::Gone,
        }
    }

    fn count_in(
        &self,
        socket: OwnedFd,
        peer: Option<SocketAddr>,
        permit: ConnectionPermit,
    ) -> Taken {
        let arrived = measure::now();
        match self.place(peer, arrived) {
            Ok(place) => Taken::New(AcceptedConnection {
                socket,
                peer,
                listened: Arc::clone(&self.listened),
                place,
                permit,
                arrived,
                from: self.from,
            }),
            Err(_) => {
                self.refuse_client(&socket);
                Taken::Refused
            }
        }
    }

    /// The client's place among those of its address; none is needed on a unix socket.
    fn place(&self, peer: Option<SocketAddr>, now: Stamp) -> Result<Option<Place>, Crowded> {
        let clients = &self.shared.clients;
        peer.map(|peer| clients.enter(peer.ip().to_canonical()))
            .transpose()
            .inspect_err(|crowded| {
                if now.since(self.told.get()) < TELL_EVERY {
                    return;
                }
                self.told.set(now);
                let text = format!(
                    "client {} has {} connections: more are refused",
                    crowded.key, crowded.count
                );
                self.shared.log.error(Level::Warning, &text);
            })
    }

    /// Tells a client that it has too many connections. What it has sent by now is read, because closing
    /// with it unread would reset the connection and take the reply with it.
    fn refuse_client(&self, socket: &OwnedFd) {
        let stats = &self.shared.stats.drivers[self.driver];
        stats.crowded_clients.add_from_any();
        let _ = transport::send(
            socket,
            &[io::IoSlice::new(&TOO_MANY_CONNECTIONS)],
            Followed::No,
        );
        let _ = rustix::net::shutdown(socket, Shutdown::Write);
        let mut input = vec![0; REFUSED_BYTES];
        let _ = rustix::net::recv(socket, &mut input[..], RecvFlags::DONTWAIT);
    }

    /// Takes one connection in with the reserve descriptor and refuses it, so that clients see that the
    /// server is out of descriptors instead of waiting for their time-outs. The kernel says so before it looks
    /// whether anybody waits.
    fn refuse_one(&self, socket: &impl AsFd) -> Taken {
        self.reserve.take();
        let accepted = accept(socket);
        if let Ok((accepted, _)) = &accepted {
            // The client may be gone, and a full buffer of a fresh socket is not possible.
            let _ = transport::send(accepted, &[io::IoSlice::new(&NO_DESCRIPTORS)], Followed::No);
            self.shared.log.error(Level::Error, NO_DESCRIPTORS_TEXT);
        }
        let is_empty = matches!(accepted, Err(Errno::AGAIN));
        drop(accepted);
        self.reserve.replace(File::open("/dev/null").ok());
        // Another thread may have taken the descriptor: that nobody waits is known only when the kernel says so.
        if is_empty { Taken::Nobody } else { Taken::Rest }
    }
}

impl Shared {
    /// At the bound, accepting rests until a sixteenth of the places is free again, which is what evictions
    /// leave: re-arming for each single place would make every close wake the acceptor.
    pub(super) fn has_room(&self) -> bool {
        let bound = self.config.listen.connections_max;
        let open = self.connections.load(Ordering::Relaxed);
        let was_full = self.full.load(Ordering::Relaxed);
        let is_full = match was_full {
            true => open > stage::reopening_len(bound),
            false => open >= bound,
        };
        if is_full != was_full {
            self.full.store(is_full, Ordering::Relaxed);
        }
        !is_full
    }

    /// A connection has left, so that `open` are left. Whoever rests goes on as soon as there is room again.
    pub(super) fn left(&self, open: usize) {
        if !self.full.load(Ordering::Relaxed)
            || open > stage::reopening_len(self.config.listen.connections_max)
        {
            return;
        }
        // The first who sees it tells all.
        if self.full.swap(false, Ordering::Relaxed) {
            self.inboxes.iter().for_each(Inbox::remind);
            self.usher.remind();
        }
    }
}

fn accept(listener: &impl AsFd) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener.as_fd(), flags)?;
    Ok((
        socket,
        peer.and_then(|peer| SocketAddr::try_from(peer).ok()),
    ))
}

/// A refusal without a body, as it goes over the wire: nothing of it depends on the client, which is not read.
fn encoded_refusal(status: u16) -> Vec<u8> {
    let mut fields = FieldLines::new();
    fields.push_decimal(b"Content-Length", 0);
    fields.push_decimal(b"Retry-After", 1);
    let plan = ReplyPlan {
        framing: ReplyFraming::NoBody,
        keep_alive: false,
    };
    let mut out = Vec::new();
    wire::write_status_line(&mut out, status);
    out.extend_from_slice(fields.as_bytes());
    wire::end_head(&mut out, &plan, Version::Http11, None);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_in_as_few_bytes_as_http_needs() {
        let check = |status: u16, line: &str| {
            let fields = "Content-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
            let expect = format!("HTTP/1.1 {line}\r\n{fields}");
            assert_eq!(String::from_utf8(encoded_refusal(status)).unwrap(), expect);
        };
        check(503, "503 Service Unavailable");
        check(429, "429 Too Many Requests");
    }
}
