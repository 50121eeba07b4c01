//! The few system calls that no crate wraps safely. The only room of this crate with `unsafe`.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::delivery::Door;

/// Asks the kernel to report a connection only once it has sent something, or after `secs` seconds.
pub(crate) fn set_defer_accept(listener: BorrowedFd<'_>, secs: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(secs).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open for the borrow, and the option value is a live int of the size given.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Blocks SIGPIPE in the calling thread: sendfile has no flag against it, and an application may have
/// set it back to its deadly default.
pub(crate) fn block_sigpipe() {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is to a set of our own; sigemptyset initialises it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set is initialised, SIGPIPE is a signal.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE) };
    // SAFETY: the set is initialised; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
}

/// Gives SIGTERM and SIGINT their default action back: they end the process.
pub(crate) fn restore_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: a default action needs no handler that could be unsafe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Bytes that a socket's client has not acknowledged (TCP), or not read (unix), with the kernel's overhead
/// for the latter; 0 when the kernel does not say.
pub(crate) fn unacknowledged(door: &Door) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the door's descriptor is open for the borrow, and TIOCOUTQ writes one int to a live int.
    let result = unsafe { libc::ioctl(door.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 {
        u64::try_from(bytes).unwrap_or(0)
    } else {
        0
    }
}

/// Watches a listening socket with the current runtime.
pub(crate) fn watch_listener(listener: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open for as long as it lives, and it is always the same descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
    watched.map_err(io::Error::from)
}

/// Watches a connection's socket with the current runtime.
pub(crate) fn watch_door(door: Arc<Door>) -> io::Result<AsyncFd<Arc<Door>>> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    // SAFETY: a door owns its socket, never changes it, and closes it only when the last clone is gone.
    let watched = unsafe { AsyncFd::register_with_interest(door, interest) };
    watched.map_err(io::Error::from)
}

/// Gives the calling thread the least claim there is on processors and disks.
pub(crate) fn yield_to_all() {
    /// IOPRIO_WHO_PROCESS and the class IOPRIO_CLASS_IDLE at its place, linux/ioprio.h.
    const PROCESS: libc::c_int = 1;
    const IDLE: libc::c_int = 3 << 13;
    // On Linux a priority is a thread's, and 0 the calling one. Where it is refused, it stays.
    let _ = rustix::process::setpriority_process(None, 19);
    // SAFETY: the call takes three numbers and touches no memory; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_ioprio_set, PROCESS, 0, IDLE) };
}
