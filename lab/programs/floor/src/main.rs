//! The floor: what the kernel alone costs. One thread, one level-triggered epoll; every `recv`
//! that brings bytes is answered by one `send` of a canned reply. Nothing is parsed, so it is
//! right only for a client that sends each request in one piece and never pipelines (wrk).
//!
//! Takes `floor PORT REPLY_FILE`; listens on 127.0.0.1 until it is killed.
//! Must not grow: whatever is added here raises the floor that Milepost is held against.

use std::fs;
use std::io::{Error, Result};
use std::mem::size_of;
use std::os::raw::{c_int, c_void};
use std::process::exit;

const BACKLOG: c_int = 4096;
const EVENTS_MAX: usize = 512;
const REQUEST_BYTES_MAX: usize = 16 * 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, port, reply_file] = arguments.as_slice() else {
        fail("usage: floor PORT REPLY_FILE");
    };
    let Ok(port) = port.parse::<u16>() else {
        fail("PORT is not a number from 0 to 65535");
    };
    let reply =
        fs::read(reply_file).unwrap_or_else(|cause| fail(&format!("`{reply_file}`: {cause}")));
    if let Err(cause) = serve(port, &reply) {
        fail(&cause.to_string());
    }
}

fn fail(what: &str) -> ! {
    eprintln!("floor: {what}");
    exit(2)
}

fn serve(port: u16, reply: &[u8]) -> Result<()> {
    let listener = listen(port)?;
    // SAFETY: epoll_create1 takes no pointer.
    let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    watch(epoll, listener)?;
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
    let mut request = [0_u8; REQUEST_BYTES_MAX];
    loop {
        // SAFETY: `events` holds EVENTS_MAX entries and outlives the call.
        let ready =
            unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), EVENTS_MAX as c_int, -1) };
        for event in &events[..usize::try_from(ready).unwrap_or(0)] {
            let fd = event.u64 as c_int;
            if fd == listener {
                accept(epoll, listener)?;
            } else {
                answer(fd, &mut request, reply);
            }
        }
    }
}

fn answer(fd: c_int, request: &mut [u8], reply: &[u8]) {
    // SAFETY: `request` is writable for its whole length.
    let received =
        unsafe { libc::recv(fd, request.as_mut_ptr().cast::<c_void>(), request.len(), 0) };
    let sent = if received > 0 {
        // SAFETY: `reply` is readable for its whole length.
        unsafe {
            libc::send(
                fd,
                reply.as_ptr().cast::<c_void>(),
                reply.len(),
                libc::MSG_NOSIGNAL,
            )
        }
    } else {
        0
    };
    // A short send is not completed: the client sees the cut, and the run shows errors.
    if sent != reply.len() as isize {
        // SAFETY: `fd` is a connection of ours, and epoll forgets it with the close.
        unsafe { libc::close(fd) };
    }
}

fn accept(epoll: c_int, listener: c_int) -> Result<()> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null address pointers say that the peer's address is not wanted.
    let fd = unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
    if fd < 0 {
        return Ok(()); // the client has gone again; a lasting fault shows as no replies
    }
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)?;
    watch(epoll, fd)
}

fn watch(epoll: c_int, fd: c_int) -> Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: fd as u64,
    };
    // SAFETY: `event` outlives the call.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) }).map(|_| ())
}

fn listen(port: u16) -> Result<c_int> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointer.
    let fd = check(unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_be_bytes([127, 0, 0, 1]).to_be(),
        },
        sin_zero: [0; 8],
    };
    let bytes = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_in of `bytes` bytes and outlives the call.
    check(unsafe { libc::bind(fd, (&raw const address).cast::<libc::sockaddr>(), bytes) })?;
    // SAFETY: listen takes no pointer.
    check(unsafe { libc::listen(fd, BACKLOG) })?;
    Ok(fd)
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
