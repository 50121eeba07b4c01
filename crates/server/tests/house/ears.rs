//! Sockets that come and go while a house serves, and houses that leave: the tests hold the sockets, as a
//! supervisor does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use server::channel::{EarAt, EarKey, EarOrder};
use server::config::meant::Config;
use server::{Closing, Drain, Ended, House, Idle, Orders};
use socket2::{Domain, Socket, Type};

use super::support::*;

const NONE: Closing = Closing::These(Vec::new());

/// A house that was given no sockets.
struct Guest {
    orders: Orders,
    thread: JoinHandle<Ended>,
    _dir: tempfile::TempDir,
}

fn guest<F>(change: impl FnOnce(&mut Config), handler: F) -> Guest
where
    F: Fn(&mut server::exchange::Exchange, &mut server::response::ResponseWriter) -> Answer
        + Send
        + Sync
        + 'static,
{
    let (mut config, dir) = config();
    config.status_path = Some("/-/status".to_owned());
    change(&mut config);
    let house = House::open_without_sockets(config, Some(Arc::new(handler))).unwrap();
    assert!(house.listening().is_empty());
    let orders = house.orders();
    let thread = thread::spawn(move || house.run().unwrap());
    Guest {
        orders,
        thread,
        _dir: dir,
    }
}

impl Guest {
    fn drain(&self, closing: Closing, idle: Idle, timeout: Duration) {
        self.orders.drain(Drain {
            closing,
            idle,
            timeout,
        });
    }

    fn stop(self) -> Ended {
        self.drain(NONE, Idle::Closed, PATIENCE);
        self.thread.join().unwrap()
    }
}

/// Listening sockets that outlive every house.
struct Group {
    address: SocketAddr,
    sockets: Vec<OwnedFd>,
}

impl Group {
    fn new(count: usize) -> Self {
        let mut address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut sockets = Vec::new();
        for _ in 0..count {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&address.into()).unwrap();
            socket.listen(1024).unwrap();
            address = socket.local_addr().unwrap().as_socket().unwrap();
            sockets.push(socket.into());
        }
        Self { address, sockets }
    }

    fn hear(&self, orders: &Orders, index: u16, driver: u16) {
        let order = EarOrder {
            key: key(index, driver),
            at: EarAt::Tcp(self.address),
            is_shared: false,
            takes_turns: false,
            is_inherited: false,
        };
        let socket = self.sockets[usize::from(index)].try_clone().unwrap();
        orders.hear(order, socket).unwrap();
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

fn key(index: u16, driver: u16) -> EarKey {
    EarKey {
        address: 0,
        index,
        driver,
    }
}

fn shared_order(path: &Path) -> EarOrder {
    EarOrder {
        key: key(0, 0),
        at: EarAt::Unix(path.to_owned()),
        is_shared: true,
        takes_turns: true,
        is_inherited: false,
    }
}

/// Asks on a connection that is kept; gives the reply.
fn ask(stream: &mut (impl Read + Write), path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let bytes = stream.read(&mut piece).unwrap();
        assert!(bytes > 0, "{}", text(&reply));
        reply.extend_from_slice(&piece[..bytes]);
        if is_whole(&text(&reply)) {
            return text(&reply);
        }
    }
}

/// Whether a reply is there with its body.
fn is_whole(reply: &str) -> bool {
    let Some(end) = reply.find("\r\n\r\n") else {
        return false;
    };
    let mut lines = reply.lines();
    let length = lines.find_map(|line| line.strip_prefix("Content-Length: "));
    reply.len() >= end + 4 + length.unwrap().parse::<usize>().unwrap()
}

/// One driver's number each.
fn numbers(status: &str, name: &str) -> Vec<u64> {
    let body = &status[status.find("\r\n\r\n").unwrap() + 4..];
    let status: serde_json::Value = serde_json::from_str(body).unwrap();
    let drivers = status["drivers"].as_array().unwrap();
    drivers
        .iter()
        .map(|driver| driver[name].as_u64().unwrap())
        .collect()
}

#[test]
fn ears_come_and_go_under_load_and_no_request_is_lost() {
    const DRIVERS: u16 = 3;
    const SOCKETS: u16 = 4;
    let group = Arc::new(Group::new(usize::from(SOCKETS)));
    let guest = guest(|config| config.listen.drivers = usize::from(DRIVERS), echo);
    let over = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let load = |is_kept: bool| {
        let (group, over, served) = (Arc::clone(&group), Arc::clone(&over), Arc::clone(&served));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let mut stream = group.connect();
                for _ in 0..if is_kept { 50 } else { 1 } {
                    let reply = ask(&mut stream, "/x");
                    assert!(reply.ends_with("[/x empty 0 0]"), "{reply}");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    let clients: Vec<_> = [true, false, false, false].map(load).into_iter().collect();
    let mut holders: Vec<u16> = (0..SOCKETS).map(|index| index % DRIVERS).collect();
    for (index, driver) in (0..).zip(&holders) {
        group.hear(&guest.orders, index, *driver);
    }
    for step in 0..200_usize {
        let index = step % holders.len();
        let number = u16::try_from(index).unwrap();
        let before = std::mem::replace(
            &mut holders[index],
            u16::try_from(step * 7 / 4).unwrap() % DRIVERS,
        );
        // Sometimes two hear the same socket for a moment, sometimes nobody does.
        if step % 3 == 0 {
            guest.orders.deafen(key(number, before));
            group.hear(&guest.orders, number, holders[index]);
        } else if before != holders[index] {
            group.hear(&guest.orders, number, holders[index]);
            guest.orders.deafen(key(number, before));
        }
        let until = served.load(Ordering::Relaxed) + 5;
        wait_until("the load goes on", || {
            served.load(Ordering::Relaxed) >= until
        });
    }
    over.store(true, Ordering::Relaxed);
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    let rescued: u64 = numbers(&ask(&mut group.connect(), "/-/status"), "rescued")
        .iter()
        .sum();
    assert!(rescued > 0);
    let ended = guest.stop();
    let requests = served.load(Ordering::Relaxed) as u64 + 1;
    assert_eq!((ended.cut, ended.exchanges), (0, requests));
}

#[test]
fn a_deaf_house_leaves_those_who_wait_to_the_next_one() {
    let group = Group::new(1);
    let first = guest(|_| {}, |_, writer| whole(writer, b"first"));
    group.hear(&first.orders, 0, 0);
    let mut kept = group.connect();
    assert!(ask(&mut kept, "/").ends_with("first"));
    first.orders.deafen(key(0, 0));
    // Orders are followed in their order.
    first.orders.beat(1);
    wait_until("it is deaf", || {
        numbers(&ask(&mut kept, "/-/status"), "beat") == [1]
    });
    let mut waiting: Vec<TcpStream> = (0..20).map(|_| group.connect()).collect();
    for stream in &mut waiting {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
    }
    assert!(ask(&mut kept, "/").ends_with("first"));
    let second = guest(|_| {}, |_, writer| whole(writer, b"second"));
    group.hear(&second.orders, 0, 0);
    for stream in &mut waiting {
        assert!(text(&read_all(stream)).ends_with("second"));
    }
    assert_eq!(first.stop().cut, 0);
    assert_eq!(second.stop().cut, 0);
}

#[test]
fn who_leaves_answers_the_next_request_of_an_idle_connection_and_closes_it() {
    let group = Group::new(1);
    let guest = guest(|_| {}, echo);
    group.hear(&guest.orders, 0, 0);
    let mut paths: Vec<(TcpStream, &str)> = ["/app", "/-/status"]
        .map(|path| (group.connect(), path))
        .into_iter()
        .collect();
    for (stream, path) in &mut paths {
        assert!(!ask(stream, path).contains("Connection: close"));
    }
    guest.drain(NONE, Idle::Awaited, PATIENCE);
    for (mut stream, path) in paths {
        // Until it has heard that it is to leave, the connection is kept.
        while !ask(&mut stream, path).contains("Connection: close") {}
        assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0);
    }
    let ended = guest.thread.join().unwrap();
    assert_eq!((ended.cut, ended.exit_code), (0, 0));
}

#[test]
fn who_leaves_waits_for_idle_connections_until_the_time_is_up() {
    let group = Group::new(1);
    let guest = guest(|_| {}, echo);
    group.hear(&guest.orders, 0, 0);
    let mut idle = group.connect();
    ask(&mut idle, "/");
    let mut silent = group.connect();
    wait_until("both are in", || {
        numbers(&ask(&mut idle, "/-/status"), "open") == [2]
    });
    let began = Instant::now();
    guest.drain(NONE, Idle::Awaited, Duration::from_secs(2));
    assert_eq!(idle.read(&mut [0; 64]).unwrap(), 0);
    let took = began.elapsed();
    assert!(took > Duration::from_secs(1), "closed after {took:?}");
    assert_eq!(silent.read(&mut [0; 64]).unwrap(), 0);
    let ended = guest.thread.join().unwrap();
    assert_eq!((ended.cut, ended.exit_code), (0, 0));
}

#[test]
fn a_second_order_makes_a_patient_leave_short() {
    let group = Group::new(1);
    let guest = guest(|_| {}, echo);
    group.hear(&guest.orders, 0, 0);
    let mut idle = group.connect();
    ask(&mut idle, "/");
    guest.drain(NONE, Idle::Awaited, Duration::from_secs(3_600));
    guest.drain(NONE, Idle::Closed, PATIENCE);
    assert_eq!(idle.read(&mut [0; 64]).unwrap(), 0);
    assert_eq!(guest.thread.join().unwrap().cut, 0);
}

/// A guest that is full with four connections, which wait at the gate; and how many of them do.
fn full_guest(drivers: usize, gate: &Arc<Barrier>) -> (Guest, Arc<AtomicUsize>) {
    let entered = Arc::new(AtomicUsize::new(0));
    let (seen, at_gate) = (Arc::clone(&entered), Arc::clone(gate));
    let guest = guest(
        |config| {
            config.listen.drivers = drivers;
            config.listen.connections_max = 4;
        },
        move |exchange, writer| {
            if exchange.head().path() == b"/wait" {
                seen.fetch_add(1, Ordering::Relaxed);
                at_gate.wait();
            }
            whole(writer, b"served")
        },
    );
    (guest, entered)
}

const WAIT: &[u8] = b"GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const LATE: &[u8] = b"GET /late HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn what_waits_in_a_socket_that_closes_is_taken_in_beyond_the_bound() {
    for closing in [Closing::These(vec![0]), Closing::All] {
        let gate = Arc::new(Barrier::new(5));
        let (guest, entered) = full_guest(1, &gate);
        let group = Group::new(1);
        group.hear(&guest.orders, 0, 0);
        let send = |request: &[u8]| {
            let mut stream = group.connect();
            stream.write_all(request).unwrap();
            stream
        };
        let mut all: Vec<TcpStream> = (0..4).map(|_| send(WAIT)).collect();
        wait_until("it is full", || entered.load(Ordering::Relaxed) == 4);
        all.extend((0..20).map(|_| send(LATE)));
        guest.drain(closing, Idle::Awaited, PATIENCE);
        gate.wait();
        for stream in &mut all {
            assert!(text(&read_all(stream)).ends_with("served"));
        }
        assert_eq!(guest.thread.join().unwrap().exchanges, 24);
    }
}

/// The supervisor told of it in the moment before, and keeps it open to its own end: nobody else would answer.
#[test]
fn a_socket_that_comes_when_its_address_closes_has_its_last_round_and_refuses_from_then_on() {
    let gate = Arc::new(Barrier::new(2));
    let (guest, entered) = full_guest(1, &gate);
    let (first, last) = (Group::new(1), Group::new(1));
    first.hear(&guest.orders, 0, 0);
    let mut held = first.connect();
    held.write_all(WAIT).unwrap();
    wait_until("it is at the gate", || entered.load(Ordering::Relaxed) == 1);
    guest.drain(Closing::These(vec![0]), Idle::Awaited, PATIENCE);
    wait_until("it is refused", || {
        TcpStream::connect(first.address).is_err()
    });
    let mut late = last.connect();
    late.write_all(LATE).unwrap();
    let order = EarOrder {
        key: key(1, 0),
        at: EarAt::Tcp(last.address),
        is_shared: false,
        takes_turns: false,
        is_inherited: false,
    };
    let socket = last.sockets[0].try_clone().unwrap();
    guest.orders.hear(order, socket).unwrap();
    assert!(text(&read_all(&mut late)).ends_with("served"));
    wait_until("it is refused too", || {
        TcpStream::connect(last.address).is_err()
    });
    gate.wait();
    assert!(text(&read_all(&mut held)).ends_with("served"));
    assert_eq!(guest.thread.join().unwrap().exchanges, 2);
}

#[test]
fn what_waits_in_a_shared_socket_that_closes_is_taken_in_beyond_the_bound() {
    let gate = Arc::new(Barrier::new(5));
    let (guest, entered) = full_guest(2, &gate);
    let (_held, path, listener) = unix_socket();
    let order = shared_order(&path);
    guest
        .orders
        .hear(order, listener.as_fd().try_clone_to_owned().unwrap())
        .unwrap();
    let send = |request: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request).unwrap();
        stream
    };
    let mut all: Vec<UnixStream> = (0..4).map(|_| send(WAIT)).collect();
    wait_until("it is full", || entered.load(Ordering::Relaxed) == 4);
    all.extend((0..20).map(|_| send(LATE)));
    guest.drain(Closing::These(vec![0]), Idle::Awaited, PATIENCE);
    gate.wait();
    for stream in &mut all {
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.ends_with("served"), "{reply}");
    }
    assert_eq!(guest.thread.join().unwrap().exchanges, 24);
    assert!(path.exists(), "the file is its maker's");
}

#[test]
fn a_shared_socket_that_does_not_close_leaves_those_who_wait_to_the_next_house() {
    let (_held, path, listener) = unix_socket();
    let hear = |guest: &Guest| {
        let socket = listener.as_fd().try_clone_to_owned().unwrap();
        guest.orders.hear(shared_order(&path), socket).unwrap();
    };
    let ask_new = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        ask(&mut stream, "/")
    };
    let two = |config: &mut Config| config.listen.drivers = 2;
    let first = guest(two, |_, writer| whole(writer, b"first"));
    hear(&first);
    assert!(ask_new().ends_with("first"));
    assert_eq!(first.stop().cut, 0);
    let asking = thread::spawn({
        let path = path.clone();
        move || {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            ask(&mut stream, "/")
        }
    });
    let second = guest(two, |_, writer| whole(writer, b"second"));
    hear(&second);
    assert!(asking.join().unwrap().ends_with("second"));
    for _ in 0..100 {
        second.orders.deafen(key(0, 0));
        hear(&second);
    }
    assert!(ask_new().ends_with("second"));
    second.stop();
}

/// A full process has the socket in its epoll and does not wait there: the kernel tells the other one.
#[test]
fn a_full_house_leaves_a_shared_socket_to_the_next_one_and_comes_back_to_it() {
    let gate = Arc::new(Barrier::new(5));
    let (full, entered) = full_guest(2, &gate);
    let (_held, path, listener) = unix_socket();
    let hear = |guest: &Guest| {
        let socket = listener.as_fd().try_clone_to_owned().unwrap();
        guest.orders.hear(shared_order(&path), socket).unwrap();
    };
    let send = |request: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request).unwrap();
        stream
    };
    hear(&full);
    let held: Vec<UnixStream> = (0..4).map(|_| send(WAIT)).collect();
    wait_until("it is full", || entered.load(Ordering::Relaxed) == 4);
    let other = guest(
        |config| config.listen.drivers = 2,
        |_, writer| whole(writer, b"other"),
    );
    hear(&other);
    for _ in 0..20 {
        assert!(text(&read_all(&mut send(LATE))).ends_with("other"));
    }
    other.stop();
    let mut late = send(LATE);
    gate.wait();
    for mut stream in held {
        assert!(text(&read_all(&mut stream)).ends_with("served"));
    }
    assert!(text(&read_all(&mut late)).ends_with("served"));
    assert_eq!(full.stop().exchanges, 5);
}

fn unix_socket() -> (tempfile::TempDir, PathBuf, UnixListener) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let listener = UnixListener::bind(&path).unwrap();
    (dir, path, listener)
}

#[test]
fn every_driver_notes_the_latest_beat() {
    let group = Group::new(1);
    let guest = guest(|config| config.listen.drivers = 4, echo);
    group.hear(&guest.orders, 0, 0);
    for beat in [1, 7, 8] {
        guest.orders.beat(beat);
        let mut stream = group.connect();
        wait_until("every driver has noted it", || {
            numbers(&ask(&mut stream, "/-/status"), "beat") == [beat; 4]
        });
    }
    guest.stop();
}
