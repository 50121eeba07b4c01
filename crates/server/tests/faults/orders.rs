//! What a supervisor says to a serving process, said by the test: sockets and heartbeats.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ipc::stats::{CounterFile, Segment, Shape};
use ipc::{
    Channel, Identity, ListenAddr, ListenerId, ListenerInfo, ProcessEvent, ReceivedMessage, Role,
    SupervisorCommand,
};
use server::{Closing, Drain, Idle, Server, SupervisorLink};

use super::support::*;
use super::tested::alone;

/// The order to accept from a socket of the first address, and the socket.
fn socket(index: u16) -> (ListenerInfo, TcpListener) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let order = ListenerInfo {
        key: ListenerId {
            address: 0,
            index,
            driver: 0,
        },
        at: ListenAddr::Tcp(socket.local_addr().unwrap()),
        is_shared: false,
        takes_turns: false,
        is_tls: false,
        is_inherited: false,
    };
    (order, socket)
}

fn link_with(channel: Channel, segment: Segment, counters: &CounterFile) -> SupervisorLink {
    SupervisorLink {
        channel: Arc::new(channel),
        identity: Identity {
            role: Role::Serving,
            generation: 1,
            slot: 0,
            segment: Some(segment),
            history: None,
            reloads: false,
        },
        history: None,
        credentials: None,
        counters: Some(counters.file().try_clone_to_owned().unwrap()),
        ready: ProcessEvent::Ready {
            python: None,
            event_loops: Vec::new(),
            modules: Vec::new(),
        },
    }
}

#[test]
fn a_supervisor_reads_what_a_process_counts() {
    let _alone = alone();
    let (mut config, dir) = config();
    config.listen.drivers = 2;
    let threads = u64::try_from(config.pools[0].threads_max).unwrap();
    let shape = Shape {
        drivers: 2,
        routes: config.route_names(),
        pools: vec!["default".to_owned()],
        servers: Vec::new(),
    };
    let mut counters = CounterFile::new().unwrap();
    let segment = counters.allot(&shape).unwrap();
    let (ours, theirs) = Channel::pair().unwrap();
    let lead = link_with(theirs, segment, &counters);
    let served = Server::open_under(with_app(config), vec![Arc::new(echo)], lead).unwrap();
    let handle = served.handle();
    let thread = std::thread::spawn(move || served.run().unwrap());
    let ready: ReceivedMessage<ProcessEvent> = ours.receive().unwrap().unwrap();
    assert!(matches!(ready.message, ProcessEvent::Ready { .. }));

    // Nobody has connected, so nothing but the beat makes a driver publish anything.
    let view = counters.view(&segment).unwrap();
    let mut number = 0;
    wait_until("all pool threads asleep, and no beat unanswered", || {
        number += 1;
        ours.send(&SupervisorCommand::Heartbeat(number), &[])
            .unwrap();
        wait_until("an answer to a beat", || {
            let mut drivers = view.counters().drivers.iter();
            drivers.all(|driver| driver.heartbeat.count() == number)
        });
        view.counters().snapshot().pools[0].figures.idle == threads
    });

    let (order, socket) = socket(0);
    let address = socket.local_addr().unwrap();
    ours.send(
        &SupervisorCommand::StartAccepting(vec![order]),
        &[socket.as_fd()],
    )
    .unwrap();
    let running = Running {
        address,
        handle,
        thread,
        dir,
    };
    assert!(text(&running.get("/a")).ends_with("[/a empty 0 0]"));
    let (ended, lines) = running.stop();
    assert_eq!((ended.exchanges, lines.len()), (1, 1));
    let counted = counters.view(&segment).unwrap().counters().snapshot();
    let received: u64 = counted
        .drivers
        .iter()
        .map(|driver| driver.figures.received)
        .sum();
    assert_eq!((counted.exchanges(), received), (1, 1));
    assert_eq!(counted.pools[0].figures.completed, 1);
}

fn connect(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    stream
}

/// The supervisor told of it in the moment before, and keeps it open to its own end: nobody else would answer.
#[test]
fn a_socket_that_comes_when_its_address_closes_has_its_last_round_and_refuses_from_then_on() {
    let _alone = alone();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let entered = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&entered);
    let (mut config, _dir) = config();
    config.listen.drivers = 1;
    let answer = move |exchange: &mut server::exchange::Exchange,
                       writer: &mut server::response::ResponseWriter| {
        if exchange.head().path() == b"/wait" {
            seen.fetch_add(1, Ordering::Relaxed);
            gate.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        whole(writer, b"served")
    };
    let served = Server::open(with_app(config), vec![Arc::new(answer)]).unwrap();
    let handle = served.handle();
    let thread = std::thread::spawn(move || served.run().unwrap());
    // The tests hold the sockets as a supervisor does: they outlive the process.
    let [(first_order, first), (last_order, last)] = [0, 1].map(socket);
    let (first_at, last_at) = (first.local_addr().unwrap(), last.local_addr().unwrap());
    let copy = |socket: &TcpListener| socket.as_fd().try_clone_to_owned().unwrap();
    handle.start_accepting(first_order, copy(&first)).unwrap();
    let mut held = connect(first_at, "/wait");
    wait_until("it waits", || entered.load(Ordering::Relaxed) == 1);
    handle.drain(Drain {
        closing: Closing::These(vec![0]),
        idle: Idle::Awaited,
        timeout: PATIENCE,
    });
    let is_refused = |at: SocketAddr| move || TcpStream::connect(at).is_err();
    wait_until("it is refused", is_refused(first_at));
    let mut late = connect(last_at, "/late");
    handle.start_accepting(last_order, copy(&last)).unwrap();
    assert!(text(&read_all(&mut late)).ends_with("served"));
    wait_until("it is refused too", is_refused(last_at));
    open.send(()).unwrap();
    assert!(text(&read_all(&mut held)).ends_with("served"));
    assert_eq!(thread.join().unwrap().exchanges, 2);
}
