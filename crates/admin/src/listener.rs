//! The listening socket and its connections: HTTP/1.1, few of them at once, none of which waits for ever.

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use config::typed::AdminBind;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipc::unix_listen::{self, SocketFile};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_io_timeout::TimeoutStream;

use crate::access::Peer;
use crate::answers::Answers;

/// Connections at once; others are closed.
const CONNECTIONS_MAX: usize = 64;
/// A client that sends no request, or takes nothing of an answer, for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Bytes of answers that the kernel keeps for a TCP client that does not read: it would take some megabytes for each.
/// The kernel doubles the number, for its own needs.
const SEND_BUFFER_BYTES: u32 = 64 << 10;
/// Rest when the process has no descriptor left.
const REST: Duration = Duration::from_millis(200);
/// Who may connect to a unix socket at all; who may ask is checked by the user.
const SOCKET_MODE: u32 = 0o666;

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Departure {
    /// By the client, by a fault of it, or after its last answer.
    Left,
    /// It took nothing of an answer for [`SILENCE_MAX`].
    Dropped,
}

/// What is listened on.
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// With its file, which is removed at the end.
    Unix(UnixListener, SocketFile),
}

impl Listener {
    pub(crate) fn open(bind: &AdminBind) -> io::Result<Self> {
        match bind {
            AdminBind::Tcp(address) => {
                let socket = match address.is_ipv4() {
                    true => tokio::net::TcpSocket::new_v4(),
                    false => tokio::net::TcpSocket::new_v6(),
                }?;
                // The process before may have connections that end.
                socket.set_reuseaddr(true)?;
                // Connections that are accepted have it too.
                socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
                socket.bind(*address)?;
                Ok(Listener::Tcp(socket.listen(128)?))
            }
            AdminBind::Unix(path) => open_unix(path),
        }
    }

    /// Serves clients until the runtime ends.
    pub(crate) async fn serve(self, answers: Rc<Answers>) {
        let open = Rc::new(Cell::new(0));
        loop {
            let accepted = match &self {
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                    begin(stream, Peer::Tcp, &answers, &open);
                }),
                Listener::Unix(listener, _) => listener.accept().await.map(|(stream, _)| {
                    let credentials = os::peer_credentials(stream.as_fd()).ok();
                    let peer = Peer::Unix(credentials.map(|(uid, _)| uid));
                    begin(stream, peer, &answers, &open);
                }),
            };
            if accepted.is_err() {
                tokio::time::sleep(REST).await;
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, file) = self {
            file.remove();
        }
    }
}

fn open_unix(path: &Path) -> io::Result<Listener> {
    unix_listen::remove_stale(path)?;
    let listener = Listener::Unix(UnixListener::bind(path)?, SocketFile::at(path)?);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

fn begin<S>(stream: S, peer: Peer, answers: &Rc<Answers>, open: &Rc<Cell<usize>>)
where
    S: AsyncRead + AsyncWrite + 'static,
{
    if open.get() >= CONNECTIONS_MAX {
        return;
    }
    open.set(open.get() + 1);
    let (answers, open) = (Rc::clone(answers), Rc::clone(open));
    tokio::task::spawn_local(async move {
        if serve_one(stream, peer, &answers).await == Departure::Dropped {
            answers.client_dropped();
        }
        open.set(open.get() - 1);
    });
}

async fn serve_one<S>(stream: S, peer: Peer, answers: &Rc<Answers>) -> Departure
where
    S: AsyncRead + AsyncWrite + 'static,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(SILENCE_MAX));
    let service = service_fn(|request| {
        let answers = Rc::clone(answers);
        async move { Ok::<_, Infallible>(answers.of(peer, &request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENCE_MAX)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    // What else a client does wrong concerns it alone.
    match pin!(connection).await {
        Err(fault) if is_write_timeout(&fault) => Departure::Dropped,
        Ok(()) | Err(_) => Departure::Left,
    }
}

/// Whether it is the fault that [`TimeoutStream`] makes: no other one of a socket is called so.
fn is_write_timeout(fault: &hyper::Error) -> bool {
    let mut cause = fault.source();
    while let Some(one) = cause {
        let of_socket = one.downcast_ref::<io::Error>();
        if of_socket.is_some_and(|fault| fault.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        cause = one.source();
    }
    false
}
