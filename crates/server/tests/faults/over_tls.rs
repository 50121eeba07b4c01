//! Over TLS a client gets every byte as well, whatever each call takes of the ciphertext: by the worker itself, by the
//! driver, and where one follows the other in the middle of a record.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustls::{ClientConnection, StreamOwned};
use server::transport::faults::{self, Plan, Planned, Temper};

use super::cases::After;
use super::dice::with_seeds;
use super::support::{PATIENCE, Running};
use super::tested::{Fortune, Tested};

/// Calls that take one byte each; a handshake is among them.
const BYTEWISE: u64 = 3_000;

/// One connection of a client under TLS.
struct TlsVisit {
    stream: StreamOwned<ClientConnection, TcpStream>,
    _planned: Planned,
}

/// From when on a plan is in force.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    Handshake,
    FirstRequest,
}

/// A plan, and the seed of the client.
#[derive(Clone, Copy)]
struct Disturbance(Since, Plan, u64);

impl TlsVisit {
    /// As `Visit::begin`; every second client has so small a buffer that the server meets a full socket.
    fn begin(running: &Running, address: SocketAddr, disturbance: Disturbance) -> Self {
        let Disturbance(since, plan, seed) = disturbance;
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        if seed.is_multiple_of(2) {
            socket.set_recv_buffer_size(4096).unwrap();
        }
        socket.connect(&address.into()).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut stream = StreamOwned::new(running.tls_client(), socket);
        if since == Since::FirstRequest {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        let planned = faults::plan(stream.sock.local_addr().unwrap(), plan);
        Self {
            stream,
            _planned: planned,
        }
    }

    fn ask(&mut self, requests: &[u8]) {
        self.stream.write_all(requests).unwrap();
    }

    fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut received = vec![0; bytes];
        self.stream.read_exact(&mut received).unwrap();
        received
    }

    /// All that comes, and whether its end was said.
    fn read_to_end(&mut self) -> (Vec<u8>, bool) {
        let mut received = Vec::new();
        let is_whole = self.stream.read_to_end(&mut received).is_ok();
        (received, is_whole)
    }
}

#[test]
fn every_reply_arrives_whole_over_tls() {
    let tested = Tested::open(1);
    let address = tested.running.listen_with_tls();
    let before = tested.holding();
    with_seeds(4, |seed| {
        for index in 0..tested.cases.len() {
            for temper in [Temper::Mixed(u64::MAX), Temper::Bytewise(BYTEWISE)] {
                let plan = Plan::new(temper, seed);
                let disturbance = Disturbance(Since::Handshake, plan, seed);
                check_whole(&tested, address, index, disturbance);
            }
        }
    });
    tested.assert_holds(&before);
    tested.stop();
}

#[test]
fn small_replies_arrive_whole_over_tls_wherever_the_first_call_of_the_worker_ends() {
    let tested = Tested::open(1);
    let address = tested.running.listen_with_tls();
    let before = tested.holding();
    for bytes in (1..2_500).step_by(7) {
        let plan = Plan::new(Temper::First(bytes), 0);
        let disturbance = Disturbance(Since::FirstRequest, plan, 1);
        check_whole(&tested, address, 0, disturbance);
    }
    tested.assert_holds(&before);
    tested.stop();
}

fn check_whole(tested: &Tested, address: SocketAddr, index: usize, disturbance: Disturbance) {
    let case = &tested.cases[index];
    let Disturbance(_, plan, seed) = disturbance;
    let what = format!("{} over TLS, {plan:?}, {seed}", case.name);
    let requests = tested.requests(&[index]);
    let mut visit = TlsVisit::begin(&tested.running, address, disturbance);
    visit.ask(&requests.bytes);
    if case.after == After::Next {
        let received = visit.read(requests.expected.len());
        requests.expected.assert_is(&received, &what);
        let one_more = tested.requests(&[0]);
        visit.ask(&one_more.bytes);
        let received = visit.read(one_more.expected.len());
        one_more.expected.assert_is(&received, &what);
        tested.note(one_more, Fortune::Undisturbed);
    } else {
        let (received, is_whole) = visit.read_to_end();
        if case.after == After::Reset {
            requests.expected.assert_begins_with(&received, &what);
            assert!(!is_whole, "{what}: looks complete");
        } else {
            requests.expected.assert_is(&received, &what);
        }
    }
    tested.note(requests, Fortune::Undisturbed);
}
