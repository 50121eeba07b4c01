//! Sockets and epoll without anything around them, for the floor and for the relay. Every function is one system call,
//! or the few that each new connection needs.

use std::io::{Error, Result};
use std::mem::size_of;
use std::os::raw::{c_int, c_void};

const BACKLOG: c_int = 4096;
pub const EVENTS_MAX: usize = 512;

/// A new epoll.
pub fn epoll() -> Result<c_int> {
    // SAFETY: epoll_create1 takes no pointer.
    check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Waits for events; gives those that came, none after a signal.
pub fn wait(epoll: c_int, events: &mut [libc::epoll_event; EVENTS_MAX]) -> &[libc::epoll_event] {
    // SAFETY: `events` holds EVENTS_MAX entries and outlives the call.
    let ready = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), EVENTS_MAX as c_int, -1) };
    &events[..usize::try_from(ready).unwrap_or(0)]
}

/// What `recv` gives.
pub fn receive(fd: c_int, piece: &mut [u8]) -> isize {
    // SAFETY: `piece` is writable for its whole length.
    unsafe { libc::recv(fd, piece.as_mut_ptr().cast::<c_void>(), piece.len(), 0) }
}

/// Whether one `send` took all bytes.
pub fn send_all(fd: c_int, bytes: &[u8]) -> bool {
    let start = bytes.as_ptr().cast::<c_void>();
    // SAFETY: `bytes` is readable for its whole length.
    let sent = unsafe { libc::send(fd, start, bytes.len(), libc::MSG_NOSIGNAL) };
    sent == bytes.len() as isize
}

/// Closes a connection, which epoll forgets with it.
pub fn close(fd: c_int) {
    // SAFETY: `fd` is a connection of this program.
    unsafe { libc::close(fd) };
}

/// Accepts one connection and watches it; `None`: the client has gone again.
pub fn accept(epoll: c_int, listener: c_int) -> Result<Option<c_int>> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null address pointers say that the peer's address is not wanted.
    let fd = unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
    if fd < 0 {
        return Ok(None); // a lasting fault shows as no replies
    }
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
    watch(epoll, fd)?;
    Ok(Some(fd))
}

/// Tells of everything that can be read there.
pub fn watch(epoll: c_int, fd: c_int) -> Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: fd as u64,
    };
    // SAFETY: `event` outlives the call.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) }).map(|_| ())
}

/// A listener on 127.0.0.1.
pub fn listen(port: u16) -> Result<c_int> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointer.
    let fd = check(unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    let address = loopback(port);
    let bytes = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_in of `bytes` bytes and outlives the call.
    check(unsafe { libc::bind(fd, (&raw const address).cast::<libc::sockaddr>(), bytes) })?;
    // SAFETY: listen takes no pointer.
    check(unsafe { libc::listen(fd, BACKLOG) })?;
    Ok(fd)
}

/// A watched connection to 127.0.0.1.
pub fn connect(epoll: c_int, port: u16) -> Result<c_int> {
    // SAFETY: socket takes no pointer.
    let fd =
        check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    let address = loopback(port);
    let bytes = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_in of `bytes` bytes and outlives the call.
    check(unsafe { libc::connect(fd, (&raw const address).cast::<libc::sockaddr>(), bytes) })?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
    watch(epoll, fd)?;
    Ok(fd)
}

fn loopback(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_be_bytes([127, 0, 0, 1]).to_be(),
        },
        sin_zero: [0; 8],
    }
}

fn set(fd: c_int, level: c_int, option: c_int) -> Result<()> {
    let on: c_int = 1;
    let bytes = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: `on` is a c_int of `bytes` bytes and outlives the call.
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const on).cast::<c_void>(), bytes) })
        .map(|_| ())
}

fn check(result: c_int) -> Result<c_int> {
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(result)
    }
}
