//! The loop against small servers on threads, which count for themselves what they have seen.

mod clock;
mod hostile;
mod http2;
mod timestamps;
mod tls;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use socket2::{Domain, Socket, Type};
use telemetry::{Nanos, now};

use super::drive;
use crate::engine::worker::{RunShared, Worker, WorkerResult};
use crate::outcome::Counts;
use crate::plan::{
    Address, Arrival, Arrivals, Begin, Closing, ExpectBody, Leg, Length, Load, Plan, Profile,
    Request, RequestParts,
};
use crate::tests::sample;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// What a server does with a request.
enum Does {
    Reply(Vec<u8>),
    /// In pieces that arrive one by one.
    Pieces(Vec<Vec<u8>>),
    /// Sends this and closes.
    End(Vec<u8>),
    /// Waits until the client has gone.
    Nothing,
}

#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    connections: AtomicU64,
    /// Connections that the client has reset.
    reset: AtomicU64,
}

impl Seen {
    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

/// One head, its body included; `None`: the connection has ended.
fn request(stream: &mut impl Read, kept: &mut Vec<u8>) -> std::io::Result<Option<String>> {
    let mut buffer = [0; 65536];
    loop {
        if let Some(end) = kept.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&kept[..end]).into_owned();
            let length = head
                .split("Content-Length: ")
                .nth(1)
                .and_then(|rest| rest.lines().next());
            let whole = end + 4 + length.map_or(0, |length| length.parse().expect("a length"));
            if kept.len() >= whole {
                kept.drain(..whole);
                return Ok(Some(head));
            }
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(None),
            bytes => kept.extend_from_slice(&buffer[..bytes]),
        }
    }
}

/// Serves one connection; `does` gets the number of the request, counted over all connections.
fn attend(mut stream: impl Read + Write, seen: &Seen, does: &dyn Fn(u64, &str) -> Does) {
    seen.connections.fetch_add(1, Ordering::SeqCst);
    let mut kept = Vec::new();
    loop {
        let head = match request(&mut stream, &mut kept) {
            Ok(Some(head)) => head,
            Ok(None) => return,
            Err(_) => {
                seen.reset.fetch_add(1, Ordering::SeqCst);
                return;
            }
        };
        let number = seen.requests.fetch_add(1, Ordering::SeqCst);
        let _ = match does(number, &head) {
            Does::Reply(bytes) => stream.write_all(&bytes),
            Does::Pieces(pieces) => pieces.iter().try_for_each(|piece| {
                thread::yield_now();
                stream.write_all(piece)
            }),
            Does::End(bytes) => return drop(stream.write_all(&bytes)),
            Does::Nothing => Ok(()),
        };
        if head.contains("Connection: close") {
            return;
        }
    }
}

fn server(does: impl Fn(u64, &str) -> Does + Send + Sync + 'static) -> (Address, Arc<Seen>) {
    server_with(|stream| stream, does)
}

/// A server that speaks `over` its connections.
fn server_with<S: Read + Write>(
    over: impl Fn(TcpStream) -> S + Send + Sync + 'static,
    does: impl Fn(u64, &str) -> Does + Send + Sync + 'static,
) -> (Address, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (seen, does) = (Arc::new(Seen::default()), Arc::new((over, does)));
    let seen_by_all = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (seen, does) = (seen_by_all.clone(), does.clone());
            thread::spawn(move || attend((does.0)(stream), &seen, &does.1));
        }
    });
    (Address::Ip(address), seen)
}

/// A server with the right reply to each request.
pub(in crate::engine) fn answering() -> Address {
    server(|_, _| Does::Reply(OK.to_vec())).0
}

/// An address at which nobody listens, as long as its socket is kept: a port that was given up would be given to
/// the server of another test.
fn nobody() -> (Socket, Address) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).expect("a port");
    let address = socket.local_addr().expect("an address").as_socket();
    (socket, Address::Ip(address.expect("an address")))
}

fn plan(address: Address) -> Plan {
    let mut plan = sample();
    plan.target.address = address;
    plan.connections.len = 8;
    plan.length.duration = Some(Nanos::from_secs(20));
    plan.length.requests = Some(200);
    plan
}

fn drive_all(plan: &Plan) -> WorkerResult {
    assert_eq!(plan.fault(), None);
    let shared = RunShared::new(plan, now());
    let (seconds, _receiver) = channel();
    drive(&Worker::of(plan, &shared, 0, seconds)).unwrap_or_else(|fault| panic!("{fault:?}"))
}

fn run(plan: &Plan) -> Counts {
    drive_all(plan).tally.counts()
}

/// All of so many requests have the right reply.
#[track_caller]
fn check_answered(plan: &Plan, expect: u64) -> Counts {
    let counts = run(plan);
    let parts = (counts.answered, counts.failures.sum(), counts.unsent);
    assert_eq!(parts, (expect, 0, 0), "{counts:?}");
    counts
}

fn ended(counts: &Counts) -> u64 {
    counts.answered + counts.failures.sum()
}

/// A run of so many milliseconds, however many requests that are.
fn for_ms(ms: u64) -> Length {
    Length {
        begin: Begin::AtOnce,
        duration: Some(Nanos::from_ms(ms)),
        requests: None,
    }
}

/// `POST /` with this body.
fn post(body: &[u8]) -> Request {
    let parts = RequestParts {
        method: "POST",
        target: "/",
        host: "localhost",
        fields: &[],
        body: Some(body),
    };
    parts.request(1)
}

fn open(rate: f64) -> Load {
    Load::Open {
        arrivals: Arrivals::Constant,
        rate: Profile::constant(rate),
    }
}

/// Whether each request that the server has seen is in one of the counts. Those that the end of the run left
/// unfinished may have been thrown away with their connection before the server read them.
fn check_nothing_is_lost(counts: &Counts, seen: &Seen) {
    let (ended, seen) = (ended(counts), seen.requests());
    let range = ended..=ended + counts.unfinished;
    assert!(range.contains(&seen), "{counts:?}, {seen}");
}

/// The server's threads take their time to see how a connection ended.
fn wait_until(count: &AtomicU64, expect: u64) {
    let begun = Instant::now();
    while count.load(Ordering::SeqCst) < expect && begun.elapsed() < Duration::from_secs(60) {
        thread::yield_now();
    }
    assert_eq!(count.load(Ordering::SeqCst), expect);
}

fn each(number: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(number)
}

#[test]
fn counts_refused_connections_and_does_not_hammer() {
    let (_kept, address) = nobody();
    for sources in [vec![], vec![IpAddr::from([127, 0, 0, 2])]] {
        let mut plan = plan(address.clone());
        plan.connections.sources = sources;
        plan.length = for_ms(1_000);
        let begun = Instant::now();
        let counts = run(&plan);
        let lasted_ms = begun.elapsed().as_millis() as u64;
        let failed = counts.failures.connect;
        assert_eq!((counts.answered, counts.failures.sum()), (0, failed));
        // Every 10 ms at most, on 8 places.
        assert!(
            (8..=8 * (lasted_ms / 10 + 1)).contains(&failed),
            "{lasted_ms} ms, {counts:?}"
        );
    }
}

#[test]
fn reads_replies_in_pieces_and_without_a_length() {
    let pieces = || {
        let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        Does::Pieces(bytes.chunks(7).map(<[u8]>::to_vec).collect())
    };
    let (address, seen) = server(move |_, _| pieces());
    let counts = check_answered(&plan(address), 200);
    check_nothing_is_lost(&counts, &seen);

    let (address, seen) =
        server(|_, _| Does::End(b"HTTP/1.1 200 OK\r\n\r\nup to the end".to_vec()));
    let mut plan = plan(address);
    plan.expect.body_bytes = Some(13);
    check_answered(&plan, 200);
    assert_eq!(seen.connections(), 200);
}

#[test]
fn sends_and_reads_more_than_a_socket_holds() {
    let body = vec![b'x'; 1_000_000];
    let reply = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        &body[..],
    ]
    .concat();
    let (address, seen) = server(move |_, _| Does::Reply(reply.clone()));
    let mut plan = plan(address);
    plan.requests = vec![post(&body)];
    plan.length.requests = Some(16);
    plan.expect.body = ExpectBody::SameAsFirst;
    for requests_each in [None, each(1)] {
        plan.connections.requests_each = requests_each;
        check_answered(&plan, 16);
    }
    assert_eq!(seen.requests(), 32);
}

#[test]
fn begins_connections_with_bodies_that_no_socket_holds() {
    let (address, seen) = server(|_, _| Does::Reply(OK.to_vec()));
    let mut plan = plan(address);
    plan.requests = vec![post(&vec![b'x'; 24_000_000])];
    plan.connections.len = 2;
    plan.connections.requests_each = each(1);
    plan.length.requests = Some(4);
    check_answered(&plan, 4);
    assert_eq!(seen.requests(), 4);
}

#[test]
fn counts_from_when_all_are_open() {
    let (address, seen) = server(|_, _| Does::Reply(OK.to_vec()));
    let mut plan = plan(address);
    plan.length.begin = Begin::AllOpen;
    plan.connections.opened_per_s = Some(100.0);
    let counts = check_answered(&plan, 200);
    assert_eq!((counts.connections, seen.connections()), (0, 8));
    assert!(seen.requests() > 200);
}

#[test]
fn opens_so_many_a_second() {
    let (address, seen) = server(|_, _| Does::Reply(OK.to_vec()));
    let mut slow = plan(address);
    slow.connections.len = 100;
    slow.connections.opened_per_s = Some(20.0);
    slow.length = for_ms(2_000);
    run(&slow);
    let opened = seen.connections();
    assert!((2..=42).contains(&opened), "{opened}");
}

#[test]
fn speaks_over_the_other_protocol() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return;
    };
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            attend(stream, &Seen::default(), &|_, _| Does::Reply(OK.to_vec()));
        }
    });
    let mut plan = plan(Address::Ip(address));
    plan.connections.len = 1;
    plan.connections.requests_each = each(1);
    check_answered(&plan, 200);
}

#[test]
fn times_out_every_connection_of_many() {
    let (address, seen) = server(|_, _| Does::Nothing);
    let mut plan = plan(address);
    plan.connections.len = 100;
    plan.connections.timeout = Nanos::from_ms(300);
    plan.length.requests = Some(200);
    let counts = run(&plan);
    assert_eq!(
        (counts.failures.timeout, counts.failures.sum()),
        (200, 200),
        "{counts:?}"
    );
    wait_until(&seen.reset, 200);
    check_nothing_is_lost(&counts, &seen);
}
