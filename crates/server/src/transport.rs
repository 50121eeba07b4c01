//! Transport: one client's stream of bytes, and nothing of what they mean.
//!
//! A `Transport` is a socket that is watched by the driver's runtime, with TLS or without. A worker may write to it
//! too, by its `DirectSocket`, while it owns the response. Takes and gives bytes without waiting; waiting is the
//! protocol's. Only this module touches a client's socket once it is accepted, and never with a lock held.

mod plain;
mod tls;
mod tls_socket;

#[cfg(feature = "faults")]
#[doc(hidden)]
pub mod faults;
#[cfg(feature = "faults")]
#[doc(hidden)]
pub mod memory;

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tls::CurrentTls;
use rustix::net::SendFlags;

use crate::response::{Parts, Progress};

pub(crate) use self::tls::{HandshakeFault, TlsBuffers, TlsStream};
use self::tls_socket::TlsSocket;
pub(crate) use self::tls_socket::{Offered, SendBuffers};
pub(crate) use plain::{PlainSocket, WatchedSocket, WriteReadiness, send, send_span};

/// A stream of bytes before its driver watches it. Tests have streams in memory as well.
pub(crate) enum AcceptedStream {
    Plain(PlainSocket),
    /// Accepted with what is current when its driver begins with it.
    Tls(PlainSocket, Arc<CurrentTls>),
    #[cfg(feature = "faults")]
    Memory(memory::End),
}

/// One client's stream of bytes.
pub(crate) enum Transport {
    Plain(WatchedSocket),
    Tls(Box<TlsStream>),
    #[cfg(feature = "faults")]
    Memory(memory::End),
}

/// The part of a transport that a worker may write to.
#[derive(Clone)]
pub(crate) enum DirectSocket {
    Plain(Arc<PlainSocket>),
    Tls(Arc<TlsSocket>),
}

/// Calls the same method of each.
macro_rules! each {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self {
            Transport::Plain($stream) => $call,
            Transport::Tls($stream) => $call,
            #[cfg(feature = "faults")]
            Transport::Memory($stream) => $call,
        }
    };
}

impl AcceptedStream {
    /// A connection that begins with a TLS handshake if `tls` is there.
    pub(crate) fn new(socket: OwnedFd, tls: Option<&Arc<CurrentTls>>) -> Self {
        let socket = PlainSocket::plain(socket);
        match tls {
            None => Self::Plain(socket),
            Some(tls) => Self::Tls(socket, Arc::clone(tls)),
        }
    }

    /// Watches the stream with the current runtime; `buffers` are those of its driver.
    pub(crate) fn watch(self, buffers: &Rc<TlsBuffers>) -> io::Result<Transport> {
        match self {
            Self::Plain(socket) => socket.watch().map(Transport::Plain),
            Self::Tls(socket, tls) => {
                let stream = TlsStream::new(socket.watch()?, tls, Rc::clone(buffers));
                Ok(Transport::Tls(Box::new(stream)))
            }
            #[cfg(feature = "faults")]
            Self::Memory(end) => Ok(Transport::Memory(end)),
        }
    }
}

impl DirectSocket {
    /// Offers buffers without waiting. `scratch`: what enciphering needs, made when it first does.
    #[inline(always)]
    pub(crate) fn send(
        &self,
        buffers: &[IoSlice<'_>],
        scratch: &mut Option<Box<SendBuffers>>,
    ) -> io::Result<Offered> {
        match self {
            DirectSocket::Plain(socket) => {
                let bytes = send(&**socket, buffers, SendFlags::empty())?;
                let has_unsent = false;
                Ok(Offered { bytes, has_unsent })
            }
            DirectSocket::Tls(socket) => socket.send(buffers, scratch),
        }
    }
}

impl Transport {
    /// The socket, where bytes leave as they are.
    pub(crate) fn plain_socket(&self) -> Option<&Arc<PlainSocket>> {
        match self {
            Transport::Plain(socket) => Some(socket.socket()),
            _ => None,
        }
    }

    /// The way of a worker to this stream, where it may write to it itself.
    pub(crate) fn direct(&self) -> Option<DirectSocket> {
        match self {
            Transport::Plain(socket) => Some(DirectSocket::Plain(Arc::clone(socket.socket()))),
            Transport::Tls(stream) => Some(DirectSocket::Tls(Arc::clone(stream.shared()))),
            #[cfg(feature = "faults")]
            Transport::Memory(_) => None,
        }
    }

    /// As `direct`, for the writer of the driver itself: under TLS the driver enciphers behind it, by its own buffers.
    pub(crate) fn direct_of_driver(&self) -> Option<DirectSocket> {
        let socket = self.plain_socket()?;
        Some(DirectSocket::Plain(Arc::clone(socket)))
    }

    /// Whether a handshake comes before the first byte.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Transport::Tls(stream) if stream.is_handshaking())
    }

    /// Reads what has come; 0 bytes at the end of the client's side.
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_read(context, buffer))
    }

    /// As `poll_read`, but only what is there already; `None` when there is nothing.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> Option<usize> {
        each!(self, stream => stream.read_now(buffer))
    }

    /// Whether the client has sent something, or has ended its side.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        each!(self, stream => stream.poll_readable(context))
    }

    /// Whether the client has ended its side, or the connection has failed, as far as that is known without reading. If
    /// not, the context is woken when the client sends or ends something.
    pub(crate) fn has_ended(&self, context: &mut Context<'_>) -> bool {
        match self {
            Transport::Plain(socket) => socket.has_ended(context),
            Transport::Tls(stream) => stream.has_ended(context),
            #[cfg(feature = "faults")]
            Transport::Memory(_) => false,
        }
    }

    /// Whether the transport may take more.
    pub(crate) fn poll_writable(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<WriteReadiness<'_>>> {
        each!(self, stream => stream.poll_writable(context))
    }

    /// The transport was found full: wait for the edge that says it no longer is.
    pub(crate) fn is_full(&self) {
        match self {
            Transport::Plain(socket) => socket.is_full(),
            Transport::Tls(stream) => stream.is_full(),
            #[cfg(feature = "faults")]
            Transport::Memory(_) => {}
        }
    }

    /// Until the connection has failed.
    pub(crate) async fn failed(&self) {
        match self {
            Transport::Plain(socket) => socket.failed().await,
            Transport::Tls(stream) => stream.failed().await,
            #[cfg(feature = "faults")]
            Transport::Memory(_) => std::future::pending().await,
        }
    }

    /// Offers buffers in one call; gives the bytes that were taken, 0 when the transport is full.
    pub(crate) fn send(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        each!(self, stream => stream.send(buffers))
    }

    /// Offers the front of `parts`, at most `most` bytes of it.
    pub(crate) fn send_parts(&self, parts: &mut Parts, most: u64) -> io::Result<(Progress, u64)> {
        each!(self, stream => stream.send_parts(parts, most))
    }

    /// Whether bytes that were taken still wait here for the socket: `send` without buffers offers them.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, Transport::Tls(stream) if stream.has_unsent())
    }

    /// Bytes that were taken and that the client's side has not acknowledged; 0 where that is unknown.
    pub(crate) fn unacknowledged(&self) -> u64 {
        each!(self, stream => stream.unacknowledged())
    }

    /// Ends our side: the client sees the end of the stream and can still send.
    pub(crate) fn close_write(&self) {
        each!(self, stream => stream.close_write());
    }

    /// The stream ends: a client under TLS hears that it is whole, unless it was cut.
    pub(crate) fn close(&self) {
        if let Transport::Tls(stream) = self {
            stream.close();
        }
    }

    /// Makes the close a reset: the client must not take a response that was given up for a complete one.
    pub(crate) fn reset_on_close(&self) {
        each!(self, stream => stream.reset_on_close());
    }

    /// Resets the connection now, although a worker may still have its socket: the application may be silent
    /// for as long as it wants, and the client's time is up.
    pub(crate) fn reset(&self) {
        match self {
            Transport::Plain(socket) => socket.reset(),
            Transport::Tls(stream) => stream.reset(),
            #[cfg(feature = "faults")]
            Transport::Memory(end) => end.reset_on_close(),
        }
    }
}
