//! A connection to an upstream: a stream of bytes that a driver's runtime watches.
//!
//! Takes an address, gives bytes in and out without waiting. Knows no HTTP.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use telemetry::Stamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// One connection to one upstream.
pub(crate) struct UpstreamConnection {
    stream: UpstreamStream,
    /// When its last exchange ended; before that, when it was made.
    pub(super) idle_since: Stamp,
}

enum UpstreamStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection on its way from one driver to another, which no runtime watches.
pub(crate) enum UnwatchedConnection {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// The stream, whatever its kind.
macro_rules! each {
    ($connection:expr, $stream:ident => $call:expr) => {
        match &mut $connection.stream {
            UpstreamStream::Tcp($stream) => $call,
            UpstreamStream::Unix($stream) => $call,
        }
    };
}

impl UpstreamConnection {
    /// Connects by TCP.
    pub(super) async fn tcp(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        // A request leaves in one piece; what follows a body's first piece must not wait for its acknowledgement.
        stream.set_nodelay(true)?;
        Ok(Self::of(UpstreamStream::Tcp(stream)))
    }

    /// Connects to a unix socket.
    pub(super) async fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
        Ok(Self::of(UpstreamStream::Unix(stream)))
    }

    fn of(stream: UpstreamStream) -> Self {
        Self {
            stream,
            idle_since: telemetry::now(),
        }
    }

    /// Takes it from the driver that has it.
    pub(crate) fn unwatch(self) -> io::Result<UnwatchedConnection> {
        Ok(match self.stream {
            UpstreamStream::Tcp(stream) => UnwatchedConnection::Tcp(stream.into_std()?),
            UpstreamStream::Unix(stream) => UnwatchedConnection::Unix(stream.into_std()?),
        })
    }

    /// Reads what has come; 0 bytes at the end of the upstream's side.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let read = each!(self, stream => Pin::new(stream).poll_read(context, &mut buffer));
        ready!(read)?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Offers buffers in one call; gives the bytes that were taken.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write_vectored(context, buffers))
    }

    /// Ends our side.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(context))
    }

    /// Whether a connection that is idle has ended, or has sent what nobody asked for, as far as the runtime has heard.
    pub(super) fn has_news(&self) -> bool {
        let context = &mut Context::from_waker(Waker::noop());
        match &self.stream {
            UpstreamStream::Tcp(stream) => stream.poll_read_ready(context).is_ready(),
            UpstreamStream::Unix(stream) => stream.poll_read_ready(context).is_ready(),
        }
    }

    /// Whether it cannot be used: what `has_news` says, as of now. What is still under way crosses the next request.
    pub(super) fn is_dead(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let looked = match &self.stream {
            UpstreamStream::Tcp(stream) => recv(stream, &mut [0; 1], flags),
            UpstreamStream::Unix(stream) => recv(stream, &mut [0; 1], flags),
        };
        !matches!(looked, Err(Errno::AGAIN))
    }
}

impl UnwatchedConnection {
    /// Gives it to the driver that calls this.
    pub(crate) fn watch(self) -> io::Result<UpstreamConnection> {
        Ok(UpstreamConnection::of(match self {
            Self::Tcp(stream) => UpstreamStream::Tcp(TcpStream::from_std(stream)?),
            Self::Unix(stream) => UpstreamStream::Unix(UnixStream::from_std(stream)?),
        }))
    }
}
