//! A client's socket: how it is made and from which address, whose fault it is when it cannot be, and how it is
//! given up.
//!
//! Takes the target, gives non-blocking descriptors; it watches none. As few system calls as the kernel allows.

use std::iter::{Cycle, Skip};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use std::vec;

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
                    setsockopt(&socket, IpBindAddressNoPort, &true)
                        .map_err(|error| Errno::from_raw_os_error(error as i32))?;
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

/// The local addresses of one thread's connections; without any the kernel chooses.
pub(crate) type Sources = Skip<Cycle<vec::IntoIter<IpAddr>>>;

/// The addresses one after another, again and again; threads begin at different ones.
pub(crate) fn sources(plan: &Plan, thread: usize) -> Sources {
    let addresses = plan.connections.sources.clone().into_iter();
    addresses.cycle().skip(thread)
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
        let mut plan = crate::tests::sample();
        assert_eq!(sources(&plan, 7).next(), None);
        let [one, other] = [2, 3].map(|last| IpAddr::from([127, 0, 0, last]));
        plan.connections.sources = vec![one, other];
        let got: Vec<_> = sources(&plan, 1).take(3).collect();
        assert_eq!(got, [other, one, other]);
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
        let error = read.expect_err("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
