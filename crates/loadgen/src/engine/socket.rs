//! A client's socket: how it is made and from which address, whose fault it is when it cannot be, and how it is
//! given up.
//!
//! Takes the target, gives non-blocking descriptors; it watches none. As few system calls as the kernel allows.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with, sockopt,
};

use super::Fault;
use crate::outcome::Failure;
use crate::plan::{Address, Plan};

/// Where to connect to, as the kernel wants it.
#[derive(Debug)]
pub(crate) enum Remote {
    Ip(SocketAddr),
    Unix(SocketAddrUnix),
}

impl Remote {
    /// Of a target's address.
    pub(crate) fn of(address: &Address) -> Result<Remote, Fault> {
        match address {
            Address::Ip(address) => Ok(Remote::Ip(*address)),
            Address::Unix(path) => SocketAddrUnix::new(path.as_path())
                .map(Remote::Unix)
                .map_err(|error| Fault::new(format!("the socket `{}`: {error}", path.display()))),
        }
    }

    /// A socket whose connecting has begun; it may be established already. The kernel doubles the receive buffer.
    pub(crate) fn connect(
        &self,
        source: Option<IpAddr>,
        receive_buffer_bytes: Option<usize>,
    ) -> Result<OwnedFd, Errno> {
        let family = match self {
            Remote::Ip(SocketAddr::V4(_)) => AddressFamily::INET,
            Remote::Ip(SocketAddr::V6(_)) => AddressFamily::INET6,
            Remote::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if let Some(bytes) = receive_buffer_bytes {
            // Before connecting: the window that is offered follows from it.
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        let begun = match self {
            Remote::Ip(remote) => {
                if let Some(source) = source {
                    // Otherwise bind would look for a port that is free for all targets.
                    setsockopt(&socket, IpBindAddressNoPort, &true).map_err(errno)?;
                    bind(&socket, &SocketAddr::new(source, 0))?;
                }
                connect(&socket, remote)
            }
            Remote::Unix(remote) => connect(&socket, remote),
        };
        match begun {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error),
        }
    }

    /// Whether it is spoken over TCP.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self, Remote::Ip(_))
    }
}

/// The local addresses of one thread's connections.
#[derive(Debug)]
pub(crate) struct Sources {
    addresses: Vec<IpAddr>,
    next: usize,
}

impl Sources {
    /// Threads begin at different ones.
    pub(crate) fn of(plan: &Plan, thread: usize) -> Sources {
        Sources {
            addresses: plan.connections.sources.clone(),
            next: thread,
        }
    }

    /// The next one; `None`: the kernel chooses.
    pub(crate) fn next(&mut self) -> Option<IpAddr> {
        let len = self.addresses.len();
        let address = self.addresses.get(self.next % len.max(1)).copied();
        self.next = self.next.wrapping_add(1);
        address
    }
}

fn errno(error: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(error as i32)
}

/// Requests in pieces and pipelined ones must not wait for acknowledgements. Not needed where one send is
/// one request: the kernel sends at once when nothing is in flight.
pub(crate) fn set_nodelay(socket: impl AsFd) {
    // A socket that refuses is slower, not wrong.
    let _ = sockopt::set_tcp_nodelay(socket, true);
}

/// Ends a connection by a reset: no TIME_WAIT, nothing more is sent.
#[allow(clippy::needless_pass_by_value, reason = "it is closed here")]
pub(crate) fn reset(socket: OwnedFd) {
    let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
}

/// Whose fault it is that there is no connection.
pub(crate) fn failure(error: Errno) -> Failure {
    match error {
        Errno::ADDRNOTAVAIL
        | Errno::ADDRINUSE
        | Errno::MFILE
        | Errno::NFILE
        | Errno::NOBUFS
        | Errno::NOMEM
        | Errno::PERM
        | Errno::ACCESS => Failure::Local,
        _ => Failure::Connect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_our_own_want_of_ports_from_a_server_that_refuses() {
        assert_eq!(failure(Errno::ADDRNOTAVAIL), Failure::Local);
        assert_eq!(failure(Errno::CONNREFUSED), Failure::Connect);
    }

    #[test]
    fn takes_turns() {
        let addresses = vec![IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 3])];
        let mut sources = Sources {
            addresses: addresses.clone(),
            next: 1,
        };
        let got: Vec<_> = (0..3).filter_map(|_| sources.next()).collect();
        assert_eq!(got, [addresses[1], addresses[0], addresses[1]]);
        assert_eq!(
            Sources {
                addresses: Vec::new(),
                next: 7
            }
            .next(),
            None
        );
    }

    #[test]
    fn leaves_no_port_in_time_wait_after_a_reset() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let remote = Remote::of(&Address::Ip(address)).expect("an address");
        let socket = remote
            .connect(Some([127, 0, 0, 5].into()), None)
            .expect("a connection");
        let (mut peer, from) = listener.accept().expect("a client");
        assert_eq!(from.ip(), IpAddr::from([127, 0, 0, 5]));
        reset(socket);
        let read = std::io::Read::read(&mut peer, &mut [0; 8]);
        assert_eq!(
            read.expect_err("a reset").kind(),
            std::io::ErrorKind::ConnectionReset
        );
    }
}
