//! Delivery: how bytes leave.
//!
//! `send` offers buffers to a socket without waiting; `chain` is a reply that the socket has not taken
//! yet, an owned list of parts with a cursor; `desk` writes heads; `outlet` is what a handler answers
//! through, `exit` where its bytes go, `door` what passes from a pool thread to the driver, and `writer`
//! what sends spans of files; `coding` decides whether a body is compressed, and `press` does it. Only
//! these touch a client's socket for writing, and never with a lock held.

mod chain;
mod coding;
mod desk;
mod door;
mod exit;
#[cfg(feature = "faults")]
#[doc(hidden)]
pub mod faults;
mod outlet;
mod press;
mod writer;

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

pub(crate) use chain::{Chain, Progress};
pub(crate) use desk::{Desk, EndOfHead};
pub(crate) use door::{Door, Finished, Flow};
pub(crate) use exit::{Bounds, FirstWay, ReplyMemory};
pub(crate) use outlet::{Asked, Close, UNSTORED};
pub use outlet::{Declared, Outlet, Taken};
pub(crate) use writer::write;

/// Whether more bytes follow at once, so that a short packet is better kept back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Followed {
    Yes,
    No,
}

/// Offers buffers to a socket in one vectored call; gives the bytes that it took, 0 when it is full.
pub(crate) fn send(socket: impl AsFd, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
    send_followed(socket, buffers, Followed::No)
}

fn send_followed(
    socket: impl AsFd,
    buffers: &[IoSlice<'_>],
    followed: Followed,
) -> io::Result<usize> {
    #[cfg(feature = "faults")]
    return faults::meet(
        socket.as_fd(),
        buffers.iter().map(|buffer| buffer.len()).sum(),
        0,
        |most| send_now(&socket, &faults::first(buffers, most), followed),
    );
    #[cfg(not(feature = "faults"))]
    send_now(&socket, buffers, followed)
}

fn send_now(socket: &impl AsFd, buffers: &[IoSlice<'_>], followed: Followed) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if followed == Followed::Yes {
        flags |= SendFlags::MORE;
    }
    loop {
        match rustix::net::sendmsg(socket, buffers, &mut SendAncillaryBuffer::default(), flags) {
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Offers a span of a file to a socket, without a copy. `None`: the socket is full. `Some(0)`: the file ends
/// before the span.
fn send_span(
    socket: impl AsFd,
    file: &File,
    offset: u64,
    bytes: usize,
) -> io::Result<Option<usize>> {
    #[cfg(feature = "faults")]
    return faults::meet(socket.as_fd(), bytes, None, |most| {
        send_span_now(&socket, file, offset, most)
    });
    #[cfg(not(feature = "faults"))]
    send_span_now(&socket, file, offset, bytes)
}

fn send_span_now(
    socket: &impl AsFd,
    file: &File,
    offset: u64,
    bytes: usize,
) -> io::Result<Option<usize>> {
    let mut position = offset;
    match rustix::fs::sendfile(socket, file, Some(&mut position), bytes) {
        Ok(sent) => Ok(Some(sent)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
