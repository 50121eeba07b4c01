//! Listening sockets: one for each address and driver, on one port by SO_REUSEPORT; one for each unix path.
//!
//! Takes the configured addresses, gives listening sockets known by (address, index). Refuses an
//! address that another program already listens on, because SO_REUSEPORT would silently share it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, SockAddr, SockFilter, SockRef, Socket, Type};

use crate::channel::ListenAddr;
use config::failure::{StartFault, plain};
use config::typed::{Bind, Config, Listen};

/// One address with its listening sockets.
#[derive(Debug)]
pub struct Address {
    /// `http://127.0.0.1:8000` or `unix:/run/app.sock`.
    pub url: String,
    /// What its sockets are bound to.
    pub at: ListenAddr,
    /// In the order in which they were bound, which is the kernel's order of a port that is shared. Of a unix
    /// path there is one: its accept queue is everybody's.
    pub sockets: Vec<OwnedFd>,
    /// After the kernel's own bound.
    pub backlog_effective: u32,
}

/// One address that is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// `http://127.0.0.1:8000` or `unix:/run/app.sock`.
    pub url: String,
    /// Length of the accept queue after the kernel's own bound; `u32::MAX` where another program has set it.
    pub backlog_effective: u32,
}

/// Opens every configured address for `listen.drivers` drivers.
pub fn open(config: &Config) -> Result<Vec<Address>, StartFault> {
    let mut opened = Vec::new();
    open_all(config, &mut opened).inspect_err(|_| remove_files(&unix_paths(&opened)))?;
    Ok(opened)
}

/// The files of unix sockets.
pub fn unix_paths(addresses: &[Address]) -> Vec<PathBuf> {
    let path = |address: &Address| match &address.at {
        ListenAddr::Unix(path) => Some(path.clone()),
        ListenAddr::Tcp(_) => None,
    };
    addresses.iter().filter_map(path).collect()
}

/// Removes them; one that is gone already is no fault.
pub fn remove_files(paths: &[PathBuf]) {
    for path in paths {
        let _ = std::fs::remove_file(path);
    }
}

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

fn open_all(config: &Config, opened: &mut Vec<Address>) -> Result<(), StartFault> {
    for bind in &config.binds {
        match bind {
            Bind::Tcp(addresses) => {
                for address in addresses {
                    let found = open_tcp(*address, config);
                    opened.push(found.map_err(|error| tcp_fault(*address, &error))?);
                }
            }
            Bind::Unix(path) => {
                opened.push(
                    open_unix(path, &config.listen).map_err(|error| unix_fault(path, &error))?,
                );
            }
            // Handed over open; nothing is to be opened.
            Bind::Inherited(_) => {}
        }
    }
    Ok(())
}

fn open_tcp(wanted: SocketAddr, config: &Config) -> io::Result<Address> {
    let listen = &config.listen;
    let mut address = TcpAddress::new(wanted, config);
    check_free(address)?;
    let mut sockets = Vec::new();
    for _ in 0..listen.drivers {
        let socket = bind_tcp(address, listen)?;
        if let Some(bound) = socket.local_addr()?.as_socket() {
            address.at = bound;
        }
        listen_on(&socket, listen)?;
        sockets.push(socket.into());
    }
    let url = format!("http://{}", address.at);
    Ok(Address {
        url,
        at: ListenAddr::Tcp(address.at),
        sockets,
        backlog_effective: effective_backlog(listen),
    })
}

/// What a TCP socket is bound to.
#[derive(Clone, Copy, Debug)]
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

fn open_unix(path: &Path, listen: &Listen) -> io::Result<Address> {
    let socket = bind_unix(path)?;
    listen_on(&socket, listen)?;
    Ok(Address {
        url: format!("unix:{}", path.display()),
        at: ListenAddr::Unix(path.to_owned()),
        sockets: vec![socket.into()],
        backlog_effective: effective_backlog(listen),
    })
}

/// A socket with its file, that does not listen yet.
pub fn bind_unix(path: &Path) -> io::Result<Socket> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    Ok(socket)
}

/// Removes a socket file without a listener; anything else is left alone.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is not a socket is there",
        ));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
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
    listen.backlog.min(bound)
}

/// Why an address cannot be listened on, with what to do about it.
pub fn tcp_fault(address: SocketAddr, error: &io::Error) -> StartFault {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => Some(format!(
            "another program listens there; choose another port with `--bind`, or see `ss -ltnp 'sport = :{}'`",
            address.port()
        )),
        io::ErrorKind::PermissionDenied => {
            Some("ports below 1024 need the capability CAP_NET_BIND_SERVICE".to_owned())
        }
        io::ErrorKind::AddrNotAvailable => {
            Some("this machine has no such address; `0.0.0.0` stands for all of them".to_owned())
        }
        _ => None,
    };
    StartFault {
        what: format!("cannot listen on `{address}`"),
        cause: plain(error),
        hint,
    }
}

/// The same for a path.
pub fn unix_fault(path: &Path, error: &io::Error) -> StartFault {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => Some("another program listens there; choose another path"),
        io::ErrorKind::AlreadyExists => Some("choose another path, or remove the file"),
        io::ErrorKind::NotFound => Some("the folder must exist"),
        io::ErrorKind::PermissionDenied => Some("this user must be allowed to write to the folder"),
        _ => None,
    };
    StartFault {
        what: format!("cannot listen on `unix:{}`", path.display()),
        cause: plain(error),
        hint: hint.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(bind: Bind, drivers: usize) -> Config {
        let listen = Listen {
            drivers,
            ..Listen::default()
        };
        Config {
            binds: vec![bind],
            listen,
            ..Config::default()
        }
    }

    #[test]
    fn gives_every_driver_a_socket_of_its_own_on_one_port() {
        let any = Bind::Tcp(vec!["127.0.0.1:0".parse().unwrap()]);
        let opened = open(&config(any, 3)).unwrap();
        assert_eq!(opened[0].sockets.len(), 3);
        let port = |fd: &OwnedFd| {
            Socket::from(fd.try_clone().unwrap())
                .local_addr()
                .unwrap()
                .as_socket()
        };
        assert!(
            opened[0]
                .sockets
                .iter()
                .all(|socket| port(socket) == port(&opened[0].sockets[0]))
        );
    }

    #[test]
    fn refuses_an_address_that_somebody_listens_on() {
        let any = Bind::Tcp(vec!["127.0.0.1:0".parse().unwrap()]);
        let opened = open(&config(any, 1)).unwrap();
        let ListenAddr::Tcp(taken) = opened[0].at.clone() else {
            panic!("tcp was asked for")
        };
        let fault = open(&config(Bind::Tcp(vec![taken]), 1)).err().unwrap();
        assert!(fault.to_string().contains("cannot listen on"), "{fault}");
        assert!(fault.hint.is_some());
    }

    #[test]
    fn takes_over_a_stale_unix_socket_but_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let bind = || Bind::Unix(path.clone());
        drop(open(&config(bind(), 2)).unwrap());
        let again = open(&config(bind(), 2)).unwrap();
        assert!(
            open(&config(bind(), 1)).is_err(),
            "the second listener is alive"
        );
        drop(again);
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(open(&config(Bind::Unix(file.clone()), 1)).is_err());
        assert_eq!(std::fs::read_to_string(file).unwrap(), "x");
    }
}
