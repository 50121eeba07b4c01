//! Listening sockets: one for each address and driver, on one port by SO_REUSEPORT. Unix sockets are made by
//! `unix_listen`.
//!
//! Takes the configured addresses, gives listening sockets known by (address, index). Refuses an
//! address that another program already listens on, because SO_REUSEPORT would silently share it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};

use config::failure::StartFault;
use config::typed::{Bind, Config, Listen};

/// Makes a listening TCP socket ignore those who want to begin a connection; everything else it gets
/// goes on. A classic BPF program over the TCP header: drop what has SYN set and ACK not.
pub fn turn_away(listener: &impl AsFd) -> io::Result<()> {
    const FLAGS_OFFSET: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let step = |code: u32, jt: u8, jf: u8, k: u32| {
        let code = u16::try_from(code).expect("BPF codes are 16 bits");
        SockFilter::new(code, jt, jf, k)
    };
    // A filter of a TCP socket sees the packet from the TCP header on.
    let program = [
        step(
            libc::BPF_LD | libc::BPF_B | libc::BPF_ABS,
            0,
            0,
            FLAGS_OFFSET,
        ),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, SYN | ACK),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, SYN),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    SockRef::from(listener).attach_filter(&program)
}

/// Ends the listening of a socket, in whichever processes it is open: clients are refused from now on, and
/// those that wait in it are reset.
pub fn end(listener: &impl AsFd) {
    // It is closed all the same.
    let _ = SockRef::from(listener).shutdown(std::net::Shutdown::Read);
}

/// What a TCP socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpAddress {
    /// Address and port; port 0 is any.
    pub at: SocketAddr,
    /// v4 clients are left to another socket.
    pub is_only_v6: bool,
}

impl TcpAddress {
    /// As configured: an IPv6 address leaves IPv4 to a socket that has it.
    pub fn new(at: SocketAddr, config: &Config) -> Self {
        let is_only_v6 = at.is_ipv6() && wants_v4_too(at, config);
        Self { at, is_only_v6 }
    }
}

/// Refuses an address that another socket listens on; any port (0) is free.
pub fn check_free(wanted: TcpAddress) -> io::Result<()> {
    if wanted.at.port() == 0 {
        return Ok(());
    }
    // Without SO_REUSEPORT the kernel refuses an address that another socket listens on.
    tcp_socket(wanted)?.bind(&wanted.at.into())
}

/// A socket that shares its address with others of this user and does not listen yet: nothing reaches it.
pub fn bind_tcp(address: TcpAddress, listen: &Listen) -> io::Result<Socket> {
    let socket = tcp_socket(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.at.into())?;
    // Before it listens: accepted sockets inherit the options that are set by then.
    set_options(&socket, listen)?;
    Ok(socket)
}

/// What sockets that are accepted inherit from the one that listens: one call for all of them.
pub fn set_options(socket: &Socket, listen: &Listen) -> io::Result<()> {
    os::set_defer_accept(socket.as_fd(), listen.defer_accept_secs)?;
    socket.set_tcp_nodelay(listen.nodelay)
}

/// A socket for an address that is neither bound nor shared.
pub fn tcp_socket(address: TcpAddress) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address.at), kind, Some(Protocol::TCP))?;
    // Connections of the server before may still be in TIME_WAIT on this port.
    socket.set_reuse_address(true)?;
    if address.is_only_v6 {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Whether the v4 wildcard of the same port is configured as well, which a dual-stack socket would take.
fn wants_v4_too(address: SocketAddr, config: &Config) -> bool {
    config.binds.iter().any(|bind| match bind {
        Bind::Tcp(addresses) => addresses
            .iter()
            .any(|other| other.is_ipv4() && other.port() == address.port()),
        Bind::Unix(_) | Bind::Inherited(_) => false,
    })
}

/// Begins to listen, or changes the backlog of a socket that listens already.
pub fn listen_on(socket: &Socket, listen: &Listen) -> io::Result<()> {
    socket.listen(i32::try_from(listen.backlog).unwrap_or(i32::MAX))
}

/// The kernel cuts a backlog down to its own bound without a word.
pub fn effective_backlog(listen: &Listen) -> u32 {
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
    let bound = somaxconn
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(u32::MAX);
    // What cannot be read bounds nothing here; the kernel still does.
    listen.backlog.min(bound)
}

/// Why an address cannot be listened on, with what to do about it.
pub fn tcp_fault(address: SocketAddr, error: &io::Error) -> StartFault {
    let fault = StartFault::of_io(format!("cannot listen on `{address}`"), error);
    match error.kind() {
        io::ErrorKind::AddrInUse => fault.with_hint(format!(
            "another program listens there; choose another port with `--bind`, or see `ss -ltnp 'sport = :{}'`",
            address.port()
        )),
        io::ErrorKind::PermissionDenied => {
            fault.with_hint("ports below 1024 need the capability CAP_NET_BIND_SERVICE")
        }
        io::ErrorKind::AddrNotAvailable => {
            fault.with_hint("this machine has no such address; `0.0.0.0` stands for all of them")
        }
        _ => fault,
    }
}
