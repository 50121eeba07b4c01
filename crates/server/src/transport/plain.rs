//! A plain socket: bytes as they are on the wire, and the part of it that a worker may write to.
//!
//! Takes and gives bytes without waiting. Everything that reaches a client passes here, ciphertext too.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrayvec::{ArrayVec, CapacityError};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

#[cfg(feature = "faults")]
use super::faults;
use crate::fork;
use crate::response::{Parts, Progress};
use crate::sync::invariant;
use crate::sys;

/// A connected socket without a protocol. Shared by the driver that watches it, a worker that answers through
/// it, and the threads that send files to it.
pub(crate) struct PlainSocket(OwnedFd);

/// One client's stream of bytes: a socket that the driver's runtime watches.
pub(crate) struct WatchedSocket(AsyncFd<Arc<PlainSocket>>);

/// That a transport may take more. It is cleared by the caller that finds it full; one in memory says anew at each call how
/// it is.
pub(crate) struct WriteReadiness<'a>(pub(super) Option<AsyncFdReadyGuard<'a, Arc<PlainSocket>>>);

impl WatchedSocket {
    /// The socket itself.
    pub(super) fn socket(&self) -> &Arc<PlainSocket> {
        self.0.get_ref()
    }

    /// Reads what has come; 0 bytes at the end of the client's side.
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            // An empty socket clears the readiness; the next turn waits for another edge.
            let Ok(received) = guard.try_io(|io| io.get_ref().receive(buffer)) else {
                continue;
            };
            // A read that did not fill the buffer emptied the socket; asking again would cost a system call per request.
            // More bytes make a new edge, and a closed peer stays marked.
            if matches!(received, Ok(bytes @ 1..) if bytes < buffer.len()) {
                guard.clear_ready();
            }
            return Poll::Ready(received);
        }
    }

    /// As `poll_read`, but only what is there already; `None` when there is nothing.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> Option<usize> {
        let bytes = self.0.get_ref().receive(buffer).ok();
        bytes.filter(|bytes| *bytes > 0)
    }

    /// Whether the client has sent something, or has ended its side.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_read_ready(context).map(drop)
    }

    /// Whether the client has ended its side, or the connection has failed. If not, the context is woken when the client
    /// sends or ends something.
    pub(crate) fn has_ended(&self, context: &mut Context<'_>) -> bool {
        match self.0.poll_read_ready(context) {
            Poll::Ready(Ok(guard)) => guard.ready().is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    /// Whether the transport may take more.
    pub(crate) fn poll_writable(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<WriteReadiness<'_>>> {
        let ready = self.0.poll_write_ready(context);
        ready.map_ok(|guard| WriteReadiness(Some(guard)))
    }

    /// The transport was found full: wait for the edge that says it no longer is.
    pub(crate) fn is_full(&self) {
        // tokio forgets a readiness only when a call under it finds nothing; the call that did was the worker's
        // or ours, outside of it.
        let full = |_: &Arc<PlainSocket>| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = self.0.try_io(Interest::WRITABLE, full);
    }

    /// Until the connection has failed.
    pub(crate) async fn failed(&self) {
        drop(self.0.ready(Interest::ERROR).await);
    }

    /// Offers buffers in one call; gives the bytes that were taken, 0 when the transport is full.
    pub(crate) fn send(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        send(self.0.get_ref(), buffers, SendFlags::empty())
    }

    /// Offers the front of `parts`, at most `most` bytes of it.
    pub(crate) fn send_parts(&self, parts: &mut Parts, most: u64) -> io::Result<(Progress, u64)> {
        parts.send(self.0.get_ref(), most)
    }

    /// Bytes that were taken and that the client's side has not acknowledged; 0 where that is unknown.
    pub(crate) fn unacknowledged(&self) -> u64 {
        os::unacknowledged(self.0.get_ref().as_fd())
    }

    /// Ends our side: the client sees the end of the stream and can still send.
    pub(crate) fn close_write(&self) {
        let _ = rustix::net::shutdown(self.0.get_ref(), Shutdown::Write);
    }

    /// Makes the close a reset: the client must not take a response that was given up for a complete one.
    pub(crate) fn reset_on_close(&self) {
        // SO_LINGER of zero seconds: close(2) sends RST and drops what is unsent (socket(7)).
        let _ = SockRef::from(&**self.0.get_ref()).set_linger(Some(Duration::ZERO));
    }

    /// Resets the connection now, although a worker may still have its socket: the application may be silent
    /// for as long as it wants, and the client's time is up.
    pub(crate) fn reset(&self) {
        self.reset_on_close();
        fork::end_everywhere(self.0.get_ref().as_fd());
    }
}

impl WriteReadiness<'_> {
    /// The transport was found full since.
    pub(crate) fn clear(self) {
        if let Some(mut guard) = self.0 {
            guard.clear_ready();
        }
    }
}

impl PlainSocket {
    /// A connected socket that no driver watches yet.
    pub(crate) fn plain(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Watches the socket with the current runtime.
    pub(crate) fn watch(self) -> io::Result<WatchedSocket> {
        sys::watch_socket(Arc::new(self)).map(WatchedSocket)
    }

    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = retry_on_intr(|| rustix::net::recv(self, &mut *buffer, RecvFlags::DONTWAIT));
        let (bytes, _) = received?;
        Ok(bytes)
    }
}

impl Drop for PlainSocket {
    fn drop(&mut self) {
        // A forked child may have a copy of the descriptor: closing this one alone would leave the client waiting.
        fork::end_connection(self.as_fd());
    }
}

impl AsFd for PlainSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for PlainSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Several buffers with at most so many bytes in all are copied into one. The kernel takes one buffer 0.1 µs faster than
/// a list, and the copy takes less than that.
const COPIED_MAX: usize = 2048;

/// Offers buffers to a socket in one call; gives the bytes that it took, 0 when it is full. `MORE` says that
/// more bytes follow at once, so that a short packet is better kept back.
pub(crate) fn send(
    socket: &impl AsFd,
    buffers: &[IoSlice<'_>],
    more: SendFlags,
) -> io::Result<usize> {
    // By flags, not by the state of the descriptor, which another process may share and change.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | more;
    let send = |buffers: &[IoSlice<'_>]| -> io::Result<usize> {
        match retry_on_intr(|| offer(socket.as_fd(), buffers, flags)) {
            Err(Errno::AGAIN) => Ok(0),
            sent => Ok(sent?),
        }
    };
    let offered = buffers.iter().map(|buffer| buffer.len()).sum();
    #[cfg(feature = "faults")]
    let sent = faults::meet(socket.as_fd(), offered, 0, |most| match most {
        // Without a list of its own: a test counts allocations.
        most if most >= offered => Ok(send(buffers)? + (most - offered)),
        most => send(&faults::first(buffers, most)),
    })?;
    #[cfg(not(feature = "faults"))]
    let sent = send(buffers)?;
    // All accounts of unsent bytes rest on it; beyond it they would wrap.
    invariant!(
        sent <= offered,
        "a socket took {sent} bytes of {offered} offered"
    );
    Ok(sent)
}

/// Gives the bytes that the socket took.
fn offer(
    socket: BorrowedFd<'_>,
    buffers: &[IoSlice<'_>],
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    if let [one] = buffers {
        return rustix::net::send(socket, one, flags);
    }
    let mut copied = ArrayVec::new();
    match join(buffers, &mut copied) {
        Ok(()) => rustix::net::send(socket, &copied, flags),
        Err(_) => rustix::net::sendmsg(socket, buffers, &mut SendAncillaryBuffer::default(), flags),
    }
}

/// Copies the bytes of all buffers one after the other to `place`, whose memory is not cleared before.
fn join(
    buffers: &[IoSlice<'_>],
    place: &mut ArrayVec<u8, COPIED_MAX>,
) -> Result<(), CapacityError> {
    (buffers.iter()).try_for_each(|buffer| place.try_extend_from_slice(buffer))
}

/// Offers a span of a file to a socket, without a copy. `None`: the socket is full. `Some(0)`: the file ends
/// before the span.
pub(crate) fn send_span(
    socket: impl AsFd,
    file: &File,
    offset: u64,
    bytes: usize,
) -> io::Result<Option<usize>> {
    let send = |bytes| {
        // A copy: sendfile moves it, and the descriptor's own position is shared by all that send this file.
        let mut position = offset;
        match rustix::fs::sendfile(&socket, file, Some(&mut position), bytes) {
            Err(Errno::AGAIN) => Ok(None),
            sent => Ok(Some(sent?)),
        }
    };
    #[cfg(feature = "faults")]
    return faults::meet(socket.as_fd(), bytes, None, send);
    #[cfg(not(feature = "faults"))]
    send(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn all_buffers_arrive_in_their_order_however_they_are_offered() {
        let text: Vec<u8> = (0..=u8::MAX).cycle().take(2 * COPIED_MAX).collect();
        // One buffer, several that are copied into one, the most that are, and a list.
        let cases: [&[usize]; 6] = [
            &[1],
            &[3, 0, 4],
            &[0, 5],
            &[1000, COPIED_MAX - 1000],
            &[1000, COPIED_MAX - 999],
            &[10, 20, 2 * COPIED_MAX - 30],
        ];
        for lens in cases {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut rest = text.as_slice();
            let buffers: Vec<_> = lens
                .iter()
                .map(|len| IoSlice::new(rest.split_off(..*len).unwrap()))
                .collect();
            let offered = lens.iter().sum();
            assert_eq!(
                send(&ours, &buffers, SendFlags::empty()).unwrap(),
                offered,
                "{lens:?}"
            );
            drop(ours);
            let mut received = Vec::new();
            theirs.read_to_end(&mut received).unwrap();
            assert_eq!(received, text[..offered], "{lens:?}");
        }
    }

    #[test]
    fn as_much_as_has_a_place_is_copied_and_no_more() {
        let text = [7; COPIED_MAX];
        for (len, expect) in [(0, true), (COPIED_MAX - 1, true), (COPIED_MAX, false)] {
            let buffers = [IoSlice::new(&text[..1]), IoSlice::new(&text[..len])];
            let mut place = ArrayVec::new();
            assert_eq!(join(&buffers, &mut place).is_ok(), expect);
            assert!(!expect || place.len() == 1 + len);
        }
    }
}
