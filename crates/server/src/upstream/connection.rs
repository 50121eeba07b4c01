//! A connection to an upstream: a stream of bytes that a driver's runtime watches, under TLS or not.
//!
//! Takes an address, gives bytes in and out without waiting. Knows no HTTP.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use telemetry::{Nanos, Stamp};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// One connection to one upstream.
pub(crate) struct UpstreamConnection {
    stream: UpstreamStream,
    /// When its last exchange ended; before that, when it was made.
    pub(super) idle_since: Stamp,
    /// How long it took to be made, its TLS handshake included: a round trip at least. ZERO where that is not known.
    pub(super) made_in: Nanos,
}

enum UpstreamStream {
    Plain(UpstreamSocket),
    Tls(Box<TlsStream<UpstreamSocket>>),
}

enum UpstreamSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// No runtime watches it.
    UnwatchedTcp(std::net::TcpStream),
    UnwatchedUnix(std::os::unix::net::UnixStream),
    /// It has failed on its way.
    Lost,
}

/// A connection on its way from one driver to another, which no runtime watches.
pub(crate) struct UnwatchedConnection(UpstreamStream);

/// The stream, whatever its kind.
macro_rules! each {
    ($connection:expr, $stream:ident => $call:expr) => {
        match &mut $connection.stream {
            UpstreamStream::Plain($stream) => $call,
            UpstreamStream::Tls($stream) => $call,
        }
    };
}

impl UpstreamConnection {
    /// Connects by TCP.
    pub(super) async fn tcp(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        // A request leaves in one piece; what follows a body's first piece must not wait for its acknowledgement.
        stream.set_nodelay(true)?;
        Ok(Self::of(UpstreamStream::Plain(UpstreamSocket::Tcp(stream))))
    }

    /// Connects to a unix socket.
    pub(super) async fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
        Ok(Self::of(UpstreamStream::Plain(UpstreamSocket::Unix(
            stream,
        ))))
    }

    fn of(stream: UpstreamStream) -> Self {
        Self {
            stream,
            idle_since: telemetry::now(),
            made_in: Nanos::ZERO,
        }
    }

    /// Makes the TLS handshake.
    pub(super) async fn secure(
        self,
        tls: &TlsConnector,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        match self.stream {
            UpstreamStream::Plain(socket) => {
                let stream = tls.connect(name, socket).await?;
                Ok(Self::of(UpstreamStream::Tls(Box::new(stream))))
            }
            stream @ UpstreamStream::Tls(_) => Ok(Self::of(stream)),
        }
    }

    /// Whether the TLS handshake has agreed on HTTP/2.
    pub(super) fn agrees_on_http2(&self) -> bool {
        match &self.stream {
            UpstreamStream::Plain(_) => false,
            UpstreamStream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// Takes it from the driver that has it.
    pub(crate) fn unwatch(mut self) -> io::Result<UnwatchedConnection> {
        self.stream.exchange_socket(|socket| {
            Ok(match socket {
                UpstreamSocket::Tcp(stream) => UpstreamSocket::UnwatchedTcp(stream.into_std()?),
                UpstreamSocket::Unix(stream) => UpstreamSocket::UnwatchedUnix(stream.into_std()?),
                socket => socket,
            })
        })?;
        Ok(UnwatchedConnection(self.stream))
    }

    /// Reads what has come; 0 bytes at the end of the upstream's side.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if let UpstreamStream::Tls(stream) = &mut self.stream
            && stream.get_ref().1.wants_write()
        {
            // What was taken may wait for the socket; nobody else would send it behind the last write.
            let _ = Pin::new(stream).poll_flush(context)?;
        }
        let mut buffer = ReadBuf::new(buffer);
        ready!(each!(self, stream => Pin::new(stream).poll_read(context, &mut buffer)))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Offers buffers in one call; gives the bytes that were taken.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match buffers {
            // The kernel takes one buffer with less work than a list.
            [one] => each!(self, stream => Pin::new(stream).poll_write(context, one)),
            several => {
                each!(self, stream => Pin::new(stream).poll_write_vectored(context, several))
            }
        }
    }

    /// Sends all of it.
    pub(super) async fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = poll_fn(|context| self.poll_write(context, &[IoSlice::new(bytes)])).await?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Ends our side.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(context))
    }

    /// Whether a connection that is idle has ended, or has sent what nobody asked for, as far as the runtime has heard.
    pub(super) fn has_news(&mut self) -> bool {
        let context = &mut Context::from_waker(Waker::noop());
        match &mut self.stream {
            UpstreamStream::Plain(UpstreamSocket::Tcp(stream)) => {
                stream.poll_read_ready(context).is_ready()
            }
            UpstreamStream::Plain(UpstreamSocket::Unix(stream)) => {
                stream.poll_read_ready(context).is_ready()
            }
            UpstreamStream::Plain(_) => true,
            // Tickets of the server are no news, and plaintext in the session is.
            UpstreamStream::Tls(_) => self.poll_read(context, &mut [0; 1]).is_ready(),
        }
    }

    /// Whether it cannot be used: what `has_news` says, as of now. What is still under way crosses the next request.
    pub(super) fn is_dead(&mut self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let looked = match self.stream.socket() {
            UpstreamSocket::Tcp(stream) => recv(stream, &mut [0; 1], flags),
            UpstreamSocket::Unix(stream) => recv(stream, &mut [0; 1], flags),
            _ => return true,
        };
        let is_silent = matches!(looked, Err(Errno::AGAIN));
        match &self.stream {
            UpstreamStream::Plain(_) => !is_silent,
            UpstreamStream::Tls(_) => !is_silent || self.has_news(),
        }
    }
}

impl UnwatchedConnection {
    /// Gives it to the driver that calls this.
    pub(crate) fn watch(self) -> io::Result<UpstreamConnection> {
        let mut stream = self.0;
        stream.exchange_socket(|socket| {
            Ok(match socket {
                UpstreamSocket::UnwatchedTcp(socket) => {
                    UpstreamSocket::Tcp(TcpStream::from_std(socket)?)
                }
                UpstreamSocket::UnwatchedUnix(socket) => {
                    UpstreamSocket::Unix(UnixStream::from_std(socket)?)
                }
                socket => socket,
            })
        })?;
        Ok(UpstreamConnection::of(stream))
    }
}

impl UpstreamStream {
    fn socket(&self) -> &UpstreamSocket {
        match self {
            UpstreamStream::Plain(socket) => socket,
            UpstreamStream::Tls(stream) => stream.get_ref().0,
        }
    }

    fn exchange_socket(
        &mut self,
        exchange: impl FnOnce(UpstreamSocket) -> io::Result<UpstreamSocket>,
    ) -> io::Result<()> {
        let socket = match self {
            UpstreamStream::Plain(socket) => socket,
            UpstreamStream::Tls(stream) => stream.get_mut().0,
        };
        *socket = exchange(std::mem::replace(socket, UpstreamSocket::Lost))?;
        Ok(())
    }
}

/// The socket, whatever its kind; an error where no runtime watches it.
macro_rules! watched {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket.get_mut() {
            UpstreamSocket::Tcp($stream) => $call,
            UpstreamSocket::Unix($stream) => $call,
            _ => Poll::Ready(Err(ErrorKind::NotConnected.into())),
        }
    };
}

impl AsyncRead for UpstreamConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for UpstreamConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(context, buffers))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(context))
    }
}

impl AsyncRead for UpstreamSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        watched!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for UpstreamSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        watched!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        watched!(self, stream => Pin::new(stream).poll_write_vectored(context, buffers))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        watched!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        watched!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
