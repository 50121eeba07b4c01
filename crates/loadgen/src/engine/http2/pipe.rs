//! The transport in memory between the `h2` crate and a socket.
//!
//! What the server has sent waits here until the crate reads it; what the crate writes waits until the socket takes it.
//! Never waits: where there is nothing to read, or no room, the crate hears `Pending`, and is called again.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes beyond which nothing more is written, beside one frame.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// An idle connection keeps buffers of this size.
const KEPT_BYTES: usize = 16 * 1024;

/// The crate's end.
#[derive(Debug)]
pub(super) struct CratePipe(Rc<RefCell<Buffers>>);

/// The client's end.
#[derive(Clone, Debug)]
pub(super) struct ClientPipe(Rc<RefCell<Buffers>>);

#[derive(Default, Debug)]
struct Buffers {
    input: Vec<u8>,
    /// Bytes of `input` that the crate has read.
    read: usize,
    is_ended: bool,
    output: Vec<u8>,
    /// Bytes of `output` that the socket has taken.
    sent: usize,
    is_full: bool,
}

/// Both ends of a new pipe.
pub(super) fn pipe() -> (CratePipe, ClientPipe) {
    let buffers = Rc::<RefCell<Buffers>>::default();
    (CratePipe(Rc::clone(&buffers)), ClientPipe(buffers))
}

impl ClientPipe {
    /// The server has sent these bytes.
    pub(super) fn put(&self, bytes: &[u8]) {
        let buffers = &mut *self.0.borrow_mut();
        buffers.input.drain(..buffers.read);
        buffers.read = 0;
        buffers.input.extend_from_slice(bytes);
    }

    /// The server sends no more.
    pub(super) fn end_input(&self) {
        self.0.borrow_mut().is_ended = true;
    }

    /// Whether the crate has left bytes of the server unread, as it does while it has no room to write.
    pub(super) fn has_unread(&self) -> bool {
        let buffers = self.0.borrow();
        buffers.read < buffers.input.len()
    }

    /// Whether bytes wait for the socket.
    pub(super) fn has_output(&self) -> bool {
        let buffers = self.0.borrow();
        buffers.sent < buffers.output.len()
    }

    /// Whether the crate found no room since the last call.
    pub(super) fn take_full(&self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().is_full)
    }

    /// Has `send` take what waits; it gives how many bytes it took.
    pub(super) fn send(&self, send: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        let buffers = &mut *self.0.borrow_mut();
        let bytes = send(&buffers.output[buffers.sent..])?;
        buffers.sent += bytes;
        assert!(
            buffers.sent <= buffers.output.len(),
            "the socket takes no more than was given to it"
        );
        if buffers.sent == buffers.output.len() {
            buffers.output.clear();
            buffers.output.shrink_to(KEPT_BYTES);
            buffers.sent = 0;
        }
        Ok(bytes)
    }
}

impl AsyncRead for CratePipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let buffers = &mut *self.0.borrow_mut();
        let unread = &buffers.input[buffers.read..];
        let bytes = unread.len().min(buffer.remaining());
        if bytes == 0 {
            // To read nothing is the end, which comes behind all that has come.
            return match buffers.is_ended && unread.is_empty() {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            };
        }
        buffer.put_slice(&unread[..bytes]);
        buffers.read += bytes;
        if buffers.read == buffers.input.len() {
            buffers.input.clear();
            buffers.input.shrink_to(KEPT_BYTES);
            buffers.read = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CratePipe {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let buffers = &mut *self.0.borrow_mut();
        if buffers.output.len() - buffers.sent >= OUTPUT_BYTES_MAX {
            buffers.is_full = true;
            return Poll::Pending;
        }
        buffers.output.drain(..buffers.sent);
        buffers.sent = 0;
        let before = buffers.output.len();
        for slice in slices {
            buffers.output.extend_from_slice(slice);
        }
        Poll::Ready(Ok(buffers.output.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn read(pipe: &mut CratePipe, room: usize) -> Poll<Vec<u8>> {
        let context = &mut Context::from_waker(Waker::noop());
        let mut memory = vec![0; room];
        let mut buffer = ReadBuf::new(&mut memory);
        let read = Pin::new(pipe).poll_read(context, &mut buffer);
        read.map(|read| read.map(|()| buffer.filled().to_vec()).unwrap())
    }

    fn write(pipe: &mut CratePipe, bytes: &[u8]) -> Poll<usize> {
        let context = &mut Context::from_waker(Waker::noop());
        let written = Pin::new(pipe).poll_write(context, bytes);
        written.map(Result::unwrap)
    }

    #[test]
    fn the_end_comes_behind_all_bytes() {
        let (mut inner, outer) = pipe();
        assert_eq!(read(&mut inner, 9), Poll::Pending);
        outer.put(b"abc");
        assert_eq!(read(&mut inner, 2), Poll::Ready(b"ab".to_vec()));
        outer.put(b"d");
        outer.end_input();
        assert!(outer.has_unread());
        assert_eq!(read(&mut inner, 9), Poll::Ready(b"cd".to_vec()));
        assert!(!outer.has_unread());
        assert_eq!(read(&mut inner, 9), Poll::Ready(Vec::new()));
    }

    #[test]
    fn the_output_is_bounded_and_moves_as_it_is_sent() {
        let (mut inner, outer) = pipe();
        let frame = [7; 16 * 1024];
        let written = std::iter::repeat_with(|| write(&mut inner, &frame)).take(99);
        assert_eq!(written.filter(Poll::is_ready).count(), 4);
        assert!(outer.take_full() && !outer.take_full());
        assert_eq!(outer.send(|bytes| Ok(bytes.len() - 1)).unwrap(), 65_535);
        assert!(outer.has_output());
        assert_eq!(write(&mut inner, b"x"), Poll::Ready(1));
        let rest = outer.send(|bytes| {
            assert_eq!(bytes, [7, b'x']);
            Ok(bytes.len())
        });
        assert_eq!(rest.unwrap(), 2);
        assert!(!outer.has_output());
    }
}
