//! Misbehaving clients against servers of the standard library.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use socket2::{Domain, Socket, Type};
use telemetry::{Nanos, now};

use super::event_loop::AdversaryLoop;
use super::{AdversaryThread, reopened_per_s};
use crate::machine::tests::plan;
use crate::outcome::BadClientCounts;
use crate::plan::{Address, BadClients, Misbehaviour, Plan, Scheme, Tables, Tls, TlsTrust};

/// The request that all of them begin with.
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: ";

fn clients(len: usize, misbehaviour: Misbehaviour) -> BadClients {
    BadClients {
        len,
        misbehaviour,
        receive_buffer_bytes: None,
    }
}

/// A server's socket, and the plan of a thread that comes to it.
fn scene(groups: &[BadClients]) -> (TcpListener, Plan) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut plan = plan(&address.to_string(), 1);
    plan.bad_clients = groups.to_vec();
    (listener, plan)
}

fn begun(groups: &[BadClients]) -> (TcpListener, AdversaryThread) {
    let (listener, plan) = scene(groups);
    let thread = AdversaryThread::start(&plan).expect("it starts");
    (listener, thread)
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.accept().expect("a client").0
}

/// A client that has sent its request: to itself its connection is established, too.
fn asked(listener: &TcpListener) -> TcpStream {
    let mut stream = accept(listener);
    assert!(read_request(&mut stream).starts_with(REQUEST));
    stream
}

/// Reads a request without a body.
fn read_request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a request");
        text.push(char::from(byte[0]));
    }
    text
}

fn only(mut counts: Vec<BadClientCounts>) -> BadClientCounts {
    assert_eq!(counts.len(), 1);
    counts.remove(0)
}

fn assert_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0; 16]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn never_reads_what_the_server_sends() {
    let (listener, thread) = begun(&[clients(1, Misbehaviour::NeverReads)]);
    let mut stream = asked(&listener);
    stream.set_nonblocking(true).expect("a socket");
    let page = vec![b'x'; 1 << 20];
    let mut written = 0;
    let full = loop {
        match stream.write(&page) {
            Ok(more) => written += more,
            Err(error) => break error,
        }
        assert!(written < 1 << 28, "somebody reads");
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    let count = only(thread.stop());
    assert_eq!((count.open, count.made, count.ended), (1, 1, 0));
    assert_eq!((count.read_bytes, count.lived), (0, None));
    stream.set_nonblocking(false).expect("a socket");
    assert_reset(&mut stream);
}

#[test]
fn reads_no_faster_than_it_may() {
    let bytes_per_s = 100_000;
    let (listener, thread) = begun(&[clients(1, Misbehaviour::ReadsAt { bytes_per_s })]);
    let mut stream = accept(&listener);
    assert!(read_request(&mut stream).contains("Connection: close\r\n"));
    stream.write_all(&[b'x'; 25_000]).expect("it is read");
    drop(stream);
    // It comes again when it has read everything.
    let _again = accept(&listener);
    let count = only(thread.stop());
    assert_eq!((count.ended, count.read_bytes), (1, 25_000));
    // 10,000 bytes at each of three ticks, 100 ms apart.
    let lived = count.lived.expect("it has ended");
    assert!(lived.min_us >= 200_000.0, "{} us", lived.min_us);
}

#[test]
fn trickles_bytes_of_a_head_that_does_not_end() {
    let pause = Nanos::from_ms(1);
    let start = now();
    let (listener, thread) = begun(&[clients(1, Misbehaviour::Trickles { pause })]);
    let mut stream = accept(&listener);
    let mut bytes = [0; 200];
    stream.read_exact(&mut bytes).expect("bytes");
    // The first byte has no pause before it; all others have.
    assert!(now().since(start) >= Nanos(199 * pause.0));
    let text = String::from_utf8_lossy(&bytes);
    assert!(
        text.starts_with(REQUEST) && text.contains("\r\nX-Trickle: "),
        "{text}"
    );
    stream
        .write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        .expect("a reply");
    drop(stream);
    let _again = accept(&listener);
    let count = only(thread.stop());
    assert_eq!(count.ended, 1);
    assert!(count.made >= 1 && count.lived.is_some());
}

#[test]
fn sends_nothing_when_idle_and_comes_again_when_ended() {
    let (listener, thread) = begun(&[clients(2, Misbehaviour::Idle)]);
    let (first, mut second) = (accept(&listener), accept(&listener));
    drop(first);
    let mut third = accept(&listener);
    let count = only(thread.stop());
    assert_eq!(count.ended, 1);
    assert!((2..=3).contains(&count.made), "{}", count.made);
    assert_reset(&mut second);
    // Its connecting may have been under way; nothing was sent in any case.
    let _ = third.read(&mut [0; 16]).map(|read| assert_eq!(read, 0));
}

#[test]
fn half_closes_after_its_request_and_reads_the_reply() {
    let (listener, thread) = begun(&[clients(1, Misbehaviour::HalfCloses)]);
    let mut stream = accept(&listener);
    let mut request = String::new();
    stream
        .read_to_string(&mut request)
        .expect("the end of its stream");
    assert!(
        request.starts_with(REQUEST) && request.ends_with("\r\n\r\n"),
        "{request}"
    );
    // More than one turn reads.
    stream
        .write_all(&vec![b'x'; 3_000_000])
        .expect("it is read");
    drop(stream);
    let _again = accept(&listener);
    let count = only(thread.stop());
    assert_eq!((count.ended, count.read_bytes), (1, 3_000_000));
}

#[test]
fn resets_after_its_request() {
    let after = Nanos::from_ms(5);
    let (listener, thread) = begun(&[clients(1, Misbehaviour::Resets { after })]);
    for _ in 0..3 {
        let mut stream = asked(&listener);
        assert_reset(&mut stream);
    }
    let count = only(thread.stop());
    assert!(count.made >= 3);
    assert_eq!(count.ended, 0);
}

#[test]
fn counts_groups_apart_in_their_order() {
    let after = Nanos::from_secs(600);
    let (listener, thread) = begun(&[
        clients(3, Misbehaviour::Resets { after }),
        clients(0, Misbehaviour::HalfCloses),
        clients(2, Misbehaviour::NeverReads),
    ]);
    let _streams: Vec<TcpStream> = (0..5).map(|_| asked(&listener)).collect();
    let counts = thread.stop();
    let found: Vec<_> = counts
        .iter()
        .map(|count| (count.name.as_str(), count.open))
        .collect();
    let expect = [
        ("resets after 600 s", 3),
        ("half-closes", 0),
        ("never reads", 2),
    ];
    assert_eq!(found, expect);
}

#[test]
fn opens_two_thousand_connections_a_second_at_most() {
    let start = now();
    let (listener, thread) = begun(&[clients(300, Misbehaviour::Idle)]);
    for _ in 0..600 {
        // Each is ended at once, and comes again.
        drop(accept(&listener));
    }
    assert!(now().since(start) >= Nanos::from_us(599 * 500));
    let count = only(thread.stop());
    // None comes again before its first time was counted.
    assert!(count.made >= 300, "{}", count.made);
}

#[test]
fn goes_on_where_nobody_listens() {
    // It keeps the port and does not listen yet.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).expect("a port");
    let address = socket
        .local_addr()
        .ok()
        .and_then(|address| address.as_socket());
    let mut plan = plan(&address.expect("an address").to_string(), 1);
    plan.bad_clients = vec![clients(5, Misbehaviour::NeverReads)];
    let thread = AdversaryThread::start(&plan).expect("it starts");
    socket.listen(16).expect("it listens");
    let listener = TcpListener::from(socket);
    let _streams: Vec<TcpStream> = (0..5).map(|_| accept(&listener)).collect();
    assert_eq!(only(thread.stop()).ended, 0);
    plan.target.address = Address::Unix("/nowhere/at/all".into());
    let count = only(AdversaryThread::start(&plan).expect("it starts").stop());
    assert_eq!((count.open, count.made), (0, 0));
}

#[test]
fn speaks_over_unix_sockets_and_from_given_addresses() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let unix = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let (listener, mut plan) = scene(&[clients(1, Misbehaviour::HalfCloses)]);
    plan.connections.sources = vec![[127, 0, 0, 9].into()];
    let thread = AdversaryThread::start(&plan).expect("it starts");
    let from = accept(&listener).peer_addr().expect("a client");
    assert_eq!(from.ip(), plan.connections.sources[0]);
    drop(thread);
    plan.target.address = Address::Unix(path);
    let thread = AdversaryThread::start(&plan).expect("it starts");
    let mut request = String::new();
    let (mut stream, _) = unix.accept().expect("a client");
    stream.read_to_string(&mut request).expect("its end");
    assert!(request.starts_with(REQUEST), "{request}");
    drop(thread);
}

#[test]
fn keeps_its_descriptors_to_itself_where_threads_do() {
    let (listener, mut plan) = scene(&[clients(4, Misbehaviour::NeverReads)]);
    plan.machine.tables = Tables::Own;
    let thread = AdversaryThread::start(&plan).expect("it starts");
    let mut streams: Vec<TcpStream> = (0..4).map(|_| asked(&listener)).collect();
    // No descriptor of this thread's table leads to one of these connections.
    let fds = std::fs::read_dir("/proc/self/fd").expect("a folder");
    let links = fds
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let sockets: Vec<String> = links
        .map(|link| link.to_string_lossy().into_owned())
        .collect();
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("a table");
    for stream in &streams {
        let ends = [stream.peer_addr(), stream.local_addr()]
            .map(|end| format!(":{:04X}", end.expect("an end").port()));
        let mut rows = table
            .lines()
            .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row[1].ends_with(&ends[0]) && row[2].ends_with(&ends[1]));
        let socket = format!("socket:[{}]", row.expect("its connection")[9]);
        assert!(!sockets.contains(&socket), "{socket} is in this table too");
    }
    assert_eq!(only(thread.stop()).made, 4);
    streams.iter_mut().for_each(assert_reset);
}

#[test]
fn refuses_to_speak_tls() {
    let (_listener, mut plan) = scene(&[clients(1, Misbehaviour::NeverReads)]);
    plan.target.scheme = Scheme::Https(Tls {
        server_name: "localhost".to_owned(),
        trust: TlsTrust::Anybody,
        resumes: true,
    });
    let fault = AdversaryThread::start(&plan).expect_err("no TLS");
    assert!(fault.hint.is_some());
    plan.bad_clients = vec![clients(1, Misbehaviour::Idle)];
    assert!(AdversaryThread::start(&plan).is_ok());
    plan.bad_clients.clear();
    let none = AdversaryThread::start(&plan).expect("nothing to start");
    assert_eq!(none.stop(), []);
}

#[test]
fn reopens_as_often_as_it_says() {
    for (len, expect) in [(0, 0.0), (1, 10.0), (200, 2_000.0), (9_000, 2_000.0)] {
        assert!((reopened_per_s(len) - expect).abs() < 1e-6, "{len}");
    }
}

/// Runs a round beside `serve`, which is given the listener, until that returns; and how long it took.
fn counted(
    groups: &[BadClients],
    serve: impl FnOnce(&TcpListener),
) -> ((Vec<BadClientCounts>, u64), Nanos) {
    let (listener, plan) = scene(groups);
    let stop = eventfd(0, EventfdFlags::empty()).expect("a descriptor");
    let round = AdversaryLoop::new(&plan, &stop).expect("it begins");
    thread::scope(|scope| {
        let begun = now();
        let running = scope.spawn(|| round.run());
        serve(&listener);
        rustix::io::write(&stop, &1_u64.to_ne_bytes()).expect("an empty counter");
        (running.join().expect("its counts"), now().since(begun))
    })
}

#[test]
fn wakes_nobody_for_what_it_does_not_look_at() {
    let after = Nanos::from_secs(600);
    let groups = [
        clients(100, Misbehaviour::Resets { after }),
        clients(100, Misbehaviour::NeverReads),
    ];
    let ((groups, wakes), elapsed) = counted(&groups, |listener| {
        let mut streams: Vec<TcpStream> = (0..200).map(|_| asked(listener)).collect();
        // Ten thousand segments.
        for _ in 0..50 {
            for stream in &mut streams {
                stream
                    .write_all(b"a part of a reply")
                    .expect("a socket that is not full");
            }
        }
    });
    let made: u64 = groups.iter().map(|group| group.made).sum();
    assert_eq!(made, 200);
    // Once for each that is established at worst; every 10 ms while they are opened, however long that takes
    // here; and the end.
    let steps = elapsed.0 / Nanos::from_ms(10).0 + 1;
    assert!(wakes <= 200 + steps + 1, "{wakes} of {steps}");
}

#[test]
fn wakes_for_slow_readers_together() {
    let groups = [clients(50, Misbehaviour::ReadsAt { bytes_per_s: 5_000 })];
    let ((groups, wakes), elapsed) = counted(&groups, |listener| {
        let streams: Vec<TcpStream> = (0..50).map(|_| accept(listener)).collect();
        for mut stream in streams {
            read_request(&mut stream);
            stream
                .write_all(&[b'x'; 5_000])
                .expect("a socket that is not full");
        }
        // All have read to the end, and come again.
        let _again: Vec<TcpStream> = (0..50).map(|_| accept(listener)).collect();
    });
    let group = &groups[0];
    assert!(group.ended >= 50, "{}", group.ended);
    assert_eq!(group.read_bytes, 250_000);
    // Ten reads each. At worst each connection is a wake-up when it is established and one when it ends, and
    // one is opened in every step of 10 ms.
    let most = 2 * (group.made + group.ended) + elapsed.0 / 10_000_000 + 1;
    assert!(wakes <= most, "{wakes} of {most}");
}
