//! Sockets in the current runtime: the only `unsafe` of this crate.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::transport::PlainSocket;

/// Watches a listening socket with the current runtime.
pub(crate) fn watch_listener(listener: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open for as long as it lives, and it is always the same descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
    watched.map_err(io::Error::from)
}

/// Watches a connection's socket with the current runtime.
pub(crate) fn watch_socket(socket: Arc<PlainSocket>) -> io::Result<AsyncFd<Arc<PlainSocket>>> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    // SAFETY: a `PlainSocket` owns its descriptor, never changes it, and closes it only when the last clone is gone.
    let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
    watched.map_err(io::Error::from)
}
