//! Forks of a process that serves: the application may fork in any thread, and nothing of the server may live
//! on in the child.
//!
//! Takes the addresses of listeners and the signals that the server handles. In a child it closes the server's
//! sockets and gives signals back their handlers before any other code runs there, and it says that it is one.
//! Must not allocate, lock or log in a child: whatever another thread held at the fork stays held for ever.
//!
//! The hooks are those of the C library (pthread_atfork), not Python's: extension modules fork too, and a
//! signal that arrives before Python's hooks run would meet the server's handler and be lost.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::net::Shutdown;
use socket2::{SockAddr, SockRef};

use os::SignalAction;

/// In the process that serves; the kernel wipes it in every child.
const SERVES: u32 = 1;

static MARK: OnceLock<&'static AtomicU32> = OnceLock::new();
static HAS_FORKED: AtomicBool = AtomicBool::new(false);
static SIGNALS: OnceLock<Vec<SignalAction>> = OnceLock::new();
static LISTENERS: Listeners = Listeners(OnceLock::new());

/// This process serves from now on, and what is forked from it does not.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn guard() -> io::Result<()> {
    let mark = match MARK.get() {
        Some(mark) => mark,
        None => {
            let mark = os::wiped_on_fork()?;
            // Two threads that open a server at once: one mark is as good as the other.
            let mark = MARK.get_or_init(|| mark);
            os::at_fork(prepare, resume, begin)?;
            mark
        }
    };
    mark.store(SERVES, Ordering::Relaxed);
    Ok(())
}

/// Whether this process is a copy of one that serves: it must neither answer nor log. Costs two loads.
pub fn is_child() -> bool {
    MARK.get()
        .is_some_and(|mark| mark.load(Ordering::Relaxed) != SERVES)
}

/// Ends a child at once: nothing of what the server has registered for its end runs there.
pub fn leave(code: i32) -> ! {
    os::leave_now(code)
}

/// What is accepted from this socket belongs to the server, and so does the socket.
pub(crate) fn keep_from_children(listener: &impl AsFd) {
    // A socket without an address has no clients.
    if let Ok(address) = SockRef::from(listener).local_addr() {
        LISTENERS.add(&address);
    }
}

/// Has children begin with the handlers that these signals have now; to be called before the server sets its own.
/// Gives what is to be called when it has.
pub(crate) fn keep_handlers(signals: &[i32]) -> impl FnOnce() + use<> {
    let mut actions: Vec<_> = signals
        .iter()
        .map(|signal| SignalAction::of(*signal))
        .collect();
    move || {
        actions.iter_mut().for_each(SignalAction::is_replaced);
        // A second server of this process would take the first one's handlers for the application's.
        SIGNALS.get_or_init(|| actions);
    }
}

/// To be called before a connection's socket is closed. Where this process has forked, the close alone may do
/// nothing: a child that has not come to its hook yet, or that was made by a bare `clone`, has a copy. Where it has
/// never forked (by the C library), it costs one load.
pub(crate) fn end_connection(socket: BorrowedFd<'_>) {
    if HAS_FORKED.load(Ordering::Relaxed) {
        end_everywhere(socket);
    }
}

/// Ends a connection whoever else has its socket: by a reset if its close is to be one.
pub(crate) fn end_everywhere(socket: BorrowedFd<'_>) {
    let is_to_be_reset = matches!(SockRef::from(&socket).linger(), Ok(Some(Duration::ZERO)));
    // connect(2): TCP answers a dissolved association with a reset. Unix sockets know neither.
    if !is_to_be_reset || rustix::net::connect_unspec(socket).is_err() {
        // Where the client is gone already, nothing is left to end.
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
    }
}

/// In the thread that forks. The order is the C library's: `prepare`, the fork, then `resume` in the parent and
/// `begin` in the child.
extern "C" fn prepare() {
    HAS_FORKED.store(true, Ordering::Relaxed);
    // A signal for the child must not arrive before `begin` has run.
    os::hold_signals();
}

extern "C" fn resume() {
    os::release_signals();
}

extern "C" fn begin() {
    if let Some(mark) = MARK.get() {
        // Kernels before 4.14 wipe nothing.
        mark.store(0, Ordering::Relaxed);
    }
    SIGNALS
        .get()
        .into_iter()
        .flatten()
        .for_each(SignalAction::restore);
    os::close_all_of(|fd| LISTENERS.own(fd));
    os::release_signals();
}

/// Addresses of the server's listeners, those included that are closed by now: at most as many as the
/// configurations of one process have. Grows only, so that a child can read it in any state.
struct Listeners(OnceLock<Box<Listener>>);

struct Listener {
    address: SockAddr,
    next: Listeners,
}

impl Listeners {
    fn add(&self, address: &SockAddr) {
        let mut place = self;
        loop {
            let mut is_new = false;
            let listener = place.0.get_or_init(|| {
                is_new = true;
                Box::new(Listener {
                    address: address.clone(),
                    next: Listeners(OnceLock::new()),
                })
            });
            if is_new || listener.address == *address {
                return;
            }
            place = &listener.next;
        }
    }

    /// Whether it is a listener, or a connection that was accepted from one: its own address says so, which no
    /// other socket of the process can have.
    fn own(&self, fd: BorrowedFd<'_>) -> bool {
        let Ok(address) = SockRef::from(&fd).local_addr() else {
            return false;
        };
        let mut place = self;
        while let Some(listener) = place.0.get() {
            if is_at(&listener.address, &address) {
                return true;
            }
            place = &listener.next;
        }
        false
    }
}

fn is_at(listener: &SockAddr, socket: &SockAddr) -> bool {
    match (listener.as_socket(), socket.as_socket()) {
        (Some(listener), Some(socket)) => {
            listener.port() == socket.port() && covers(listener, socket)
        }
        // Unix sockets take the address of their listener over; one without a name equals no other.
        (None, None) => !listener.is_unnamed() && listener == socket,
        _ => false,
    }
}

/// A listener for all addresses of IPv6 has clients of IPv4 as well, with mapped addresses.
fn covers(listener: SocketAddr, socket: SocketAddr) -> bool {
    listener.is_ipv6() == socket.is_ipv6()
        && (listener.ip().is_unspecified() || listener.ip() == socket.ip())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn tells_connections_of_a_listener_from_others() {
        let check = |listener: &str, socket: &str, expect: bool| {
            let [one, other] =
                [listener, socket].map(|text| SockAddr::from(text.parse::<SocketAddr>().unwrap()));
            assert_eq!(is_at(&one, &other), expect, "{listener} {socket}");
        };
        check("127.0.0.1:80", "127.0.0.1:80", true);
        check("127.0.0.1:80", "127.0.0.1:81", false);
        check("127.0.0.1:80", "127.0.0.2:80", false);
        check("0.0.0.0:80", "127.0.0.2:80", true);
        check("[::]:80", "[::1]:80", true);
        check("[::]:80", "[::ffff:127.0.0.1]:80", true);
        check("[::]:80", "127.0.0.1:80", false);
        check("[::1]:80", "[::1]:80", true);
        let unix = |path: &str| SockAddr::unix(path).unwrap();
        assert!(is_at(&unix("/run/a"), &unix("/run/a")));
        assert!(!is_at(&unix("/run/a"), &unix("/run/b")));
        assert!(!is_at(
            &unix("/run/a"),
            &SockAddr::from("0.0.0.0:1".parse::<SocketAddr>().unwrap())
        ));
    }

    #[test]
    fn an_unnamed_unix_socket_is_nobodys() {
        let (one, _other) = UnixStream::pair().unwrap();
        let address = SockRef::from(&one).local_addr().unwrap();
        assert!(!is_at(&address, &address.clone()));
    }

    #[test]
    fn a_list_of_listeners_names_each_once() {
        let listeners = Listeners(OnceLock::new());
        let (client, server) = pair();
        assert!(!listeners.own(server.as_fd()));
        for text in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"] {
            listeners.add(&text.parse::<SocketAddr>().unwrap().into());
        }
        listeners.add(&SockRef::from(&server).local_addr().unwrap());
        assert!(listeners.own(server.as_fd()));
        assert!(!listeners.own(client.as_fd()));
        let third = listeners
            .0
            .get()
            .unwrap()
            .next
            .0
            .get()
            .unwrap()
            .next
            .0
            .get();
        assert!(third.is_some_and(|third| third.next.0.get().is_none()));
    }

    #[test]
    fn an_end_is_seen_although_a_copy_stays_open() {
        let (mut client, server) = pair();
        let _copy = server.try_clone().unwrap();
        end_everywhere(server.as_fd());
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_reset_is_seen_although_a_copy_stays_open() {
        let (mut client, server) = pair();
        let _copy = server.try_clone().unwrap();
        SockRef::from(&server)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        end_everywhere(server.as_fd());
        drop(server);
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
