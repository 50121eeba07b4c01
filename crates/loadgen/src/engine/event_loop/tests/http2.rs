//! The loop over HTTP/2, against a server of raw frames that shares no code with the client.

use rustls::{ServerConnection, StreamOwned, version};

use super::*;
use crate::engine::tls::tests::{Identity, anybody};
use crate::plan::{Protocol, Scheme};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

const REFUSED_STREAM: u32 = 7;
/// `:status: 200` and `:status: 500`, by the static table.
const STATUS_200: &[u8] = &[0x88];
const STATUS_500: &[u8] = &[0x8e];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A reply with the body `hello`.
fn hello(stream: u32) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, STATUS_200);
    [head, frame(DATA, END_STREAM, stream, b"hello")].concat()
}

fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

fn go_away(last: u32, code: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    frame(GOAWAY, 0, 0, &payload)
}

/// The setting of so many streams at once.
fn streams_max(len: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 3][..], &len.to_be_bytes()].concat())
}

/// A connection as the server sees it.
struct Peer<S> {
    stream: S,
    seen: Arc<Seen>,
    /// Streams of requests that are whole, in their order.
    asked: Vec<u32>,
}

impl<S: Read + Write> Peer<S> {
    /// The next frame but those that only need an answer; `None`: the connection has ended.
    fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).ok()?;
            let bytes = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; bytes];
            self.stream.read_exact(&mut payload).ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let (kind, flags) = (head[3], head[4]);
            match kind {
                SETTINGS if flags & ACK == 0 => self.send(&frame(SETTINGS, ACK, 0, &[])),
                PING if flags & ACK == 0 => self.send(&frame(PING, ACK, 0, &payload)),
                HEADERS | DATA if flags & END_STREAM != 0 => {
                    self.seen.requests.fetch_add(1, Ordering::SeqCst);
                    self.asked.push(stream);
                    return Some((kind, flags, stream, payload));
                }
                HEADERS | DATA | RST_STREAM | GOAWAY => {
                    return Some((kind, flags, stream, payload));
                }
                _ => {}
            }
        }
    }

    /// The stream of the next whole request.
    fn request(&mut self) -> Option<u32> {
        let asked = self.asked.len();
        while self.asked.len() == asked {
            self.next()?;
        }
        self.asked.last().copied()
    }

    fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }
}

/// A server whose connections begin with these settings, and continue as `talk` says; it gets their number.
fn server_of(
    settings: Vec<u8>,
    talk: impl Fn(u64, &mut Peer<TcpStream>) + Send + Sync + 'static,
) -> (Address, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::new(Seen::default());
    let (seen_by_all, talk) = (seen.clone(), Arc::new(talk));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (seen, talk, settings) = (seen_by_all.clone(), talk.clone(), settings.clone());
            thread::spawn(move || attend_http2(stream, seen, &settings, &*talk));
        }
    });
    (Address::Ip(address), seen)
}

fn attend_http2<S: Read + Write>(
    mut stream: S,
    seen: Arc<Seen>,
    settings: &[u8],
    talk: &dyn Fn(u64, &mut Peer<S>),
) {
    let number = seen.connections.fetch_add(1, Ordering::SeqCst);
    let mut preface = [0; 24];
    if stream.read_exact(&mut preface).is_err() {
        return;
    }
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let asked = Vec::new();
    let mut peer = Peer {
        stream,
        seen,
        asked,
    };
    peer.send(settings);
    talk(number, &mut peer);
}

/// Answers each request as it comes.
fn answer_all<S: Read + Write>(peer: &mut Peer<S>) {
    while let Some(stream) = peer.request() {
        peer.send(&hello(stream));
    }
}

fn http2_plan(address: Address, streams: usize) -> Plan {
    let mut plan = plan(address);
    plan.connections.protocol = Protocol::Http2;
    plan.connections.in_flight = streams;
    plan.expect.body_bytes = Some(5);
    plan
}

/// Eight replies at once, the latest request first: at fewer streams this would never end.
#[test]
fn has_as_many_streams_as_asked_and_takes_replies_in_any_order() {
    let (address, seen) = server_of(streams_max(100), |_, peer| {
        while (0..8).all(|_| peer.request().is_some()) {
            let together: Vec<u8> = peer.asked.drain(..).rev().flat_map(hello).collect();
            peer.send(&together);
        }
    });
    let mut plan = http2_plan(address, 8);
    plan.connections.len = 2;
    let counts = check_answered(&plan, 200);
    assert_eq!((seen.requests(), seen.connections()), (200, 2));
    assert_eq!(counts.streams_max, Some(100));
}

#[test]
fn opens_no_more_streams_than_the_server_allows() {
    let (address, seen) = server_of(streams_max(3), |_, peer| {
        while (0..3).all(|_| peer.request().is_some()) {
            // A fourth stream would have come before the server's answer to a ping.
            let together: Vec<u8> = peer.asked.drain(..).flat_map(hello).collect();
            peer.send(&together);
        }
    });
    for load in [Load::Closed, open(100_000.0)] {
        let mut plan = http2_plan(address.clone(), 50);
        plan.connections.len = 1;
        plan.length.requests = Some(30);
        plan.load = load;
        let counts = check_answered(&plan, 30);
        assert_eq!(counts.streams_max, Some(3));
    }
    assert_eq!(seen.requests(), 60);
}

#[track_caller]
fn check_resent(load: Load) {
    // Of each four requests two are answered, and the others refused by number.
    let (address, seen) = server_of(streams_max(100), |number, peer| {
        if number > 0 {
            return answer_all(peer);
        }
        while peer.asked.len() < 4 {
            peer.request();
        }
        let asked = peer.asked.clone();
        let bytes = [go_away(asked[1], 0), hello(asked[0]), hello(asked[1])].concat();
        peer.send(&bytes);
        while peer.next().is_some() {}
    });
    let mut plan = http2_plan(address, 4);
    plan.connections.len = 1;
    plan.length.requests = Some(40);
    plan.load = load;
    let counts = check_answered(&plan, 40);
    assert_eq!(counts.resent, 2, "{counts:?}");
    assert_eq!(counts.goaways.get("NO_ERROR"), Some(&1));
    assert_eq!((counts.connections, seen.requests()), (2, 42));
}

#[test]
fn sends_what_a_goaway_left_unprocessed_again() {
    check_resent(Load::Closed);
    check_resent(open(1_000.0));
}

/// The reply to what a GOAWAY left to the old connection waits for a request on the new one: if that waited for the old
/// connection to end, neither would come.
#[test]
fn a_connection_that_a_goaway_ends_keeps_its_streams_beside_the_next_one() {
    for load in [Load::Closed, open(1_000.0)] {
        let next = Arc::new(std::sync::Barrier::new(2));
        let (address, seen) = server_of(streams_max(100), move |number, peer| {
            if number == 0
                && let Some(stream) = peer.request()
            {
                peer.send(&go_away(stream, 0));
                next.wait();
                peer.send(&hello(stream));
                return while peer.next().is_some() {};
            }
            if number == 1 {
                next.wait();
            }
            answer_all(peer);
        });
        let mut plan = http2_plan(address, 4);
        plan.connections.len = 1;
        plan.length.requests = Some(40);
        plan.load = load;
        let counts = check_answered(&plan, 40);
        assert_eq!((counts.connections, seen.connections()), (2, 2));
    }
}

#[test]
fn counts_resets_by_their_codes_and_keeps_the_connection() {
    let (address, seen) = server_of(streams_max(100), |_, peer| {
        while let Some(stream) = peer.request() {
            match stream % 6 {
                1 => peer.send(&reset(stream, REFUSED_STREAM)),
                3 => {
                    let head = frame(HEADERS, END_HEADERS, stream, STATUS_200);
                    peer.send(&[head, reset(stream, 2)].concat());
                }
                _ => peer.send(&frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    stream,
                    STATUS_500,
                )),
            }
        }
    });
    let mut plan = http2_plan(address, 5);
    plan.connections.len = 1;
    plan.length.requests = Some(30);
    let counts = run(&plan);
    let failures = counts.failures;
    assert_eq!(
        (failures.reset, failures.short, failures.status),
        (10, 10, 10)
    );
    assert_eq!(counts.resets.get("REFUSED_STREAM"), Some(&10), "{counts:?}");
    assert_eq!(counts.resets.get("INTERNAL_ERROR"), Some(&10));
    assert_eq!(counts.statuses.get(&500), Some(&10));
    assert_eq!(seen.connections(), 1);
}

#[test]
fn fails_what_was_asked_when_a_connection_breaks_and_begins_another_one() {
    let (address, seen) = server_of(streams_max(100), |_, peer| {
        // One is answered, one in part, and one not at all.
        while peer.asked.len() < 3 {
            if peer.request().is_none() {
                return;
            }
        }
        let asked = peer.asked.clone();
        let part = frame(HEADERS, END_HEADERS, asked[1], STATUS_200);
        peer.send(&[hello(asked[0]), part].concat());
        // All of it is read before the end, and so the fourth request.
        peer.request();
    });
    let mut plan = http2_plan(address, 3);
    plan.connections.len = 1;
    plan.length.requests = Some(40);
    let counts = run(&plan);
    let failures = counts.failures;
    assert_eq!(counts.answered + failures.sum(), 40, "{counts:?}");
    assert_eq!(
        (counts.answered, failures.short, failures.reset),
        (10, 10, 20)
    );
    assert_eq!(seen.connections(), 10);
}

#[test]
fn times_out_a_stream_alone_and_a_silent_connection_as_a_whole() {
    let (address, _) = server_of(streams_max(100), |_, peer| {
        while let Some(stream) = peer.request() {
            if stream > 1 {
                peer.send(&hello(stream));
            }
        }
    });
    let mut plan = http2_plan(address, 4);
    plan.connections.len = 1;
    plan.connections.timeout = Nanos::from_ms(300);
    plan.length = for_ms(1_500);
    let counts = run(&plan);
    assert_eq!(
        (counts.failures.timeout, counts.failures.sum()),
        (1, 1),
        "{counts:?}"
    );
    assert_eq!(counts.connections, 1);

    let (address, seen) = server_of(
        streams_max(100),
        |_, peer| while peer.request().is_some() {},
    );
    plan.target.address = address;
    plan.length.requests = Some(12);
    plan.length.duration = Some(Nanos::from_secs(20));
    // The server's acknowledgement of the settings may be a sign of life, the first time.
    let counts = run(&plan);
    assert_eq!(
        (counts.failures.timeout, counts.answered),
        (12, 0),
        "{counts:?}"
    );
    assert!((2..=3).contains(&seen.connections()));
}

#[test]
fn a_burst_is_sent_when_all_connections_are_settled() {
    let (address, seen) = server_of(streams_max(100), |_, peer| answer_all(peer));
    let mut plan = http2_plan(address, 4);
    plan.load = Load::Burst;
    plan.connections.len = 5;
    plan.length.requests = Some(20);
    check_answered(&plan, 20);
    assert_eq!((seen.requests(), seen.connections()), (20, 5));
}

#[test]
fn opens_connections_for_so_many_requests_each() {
    let (address, seen) = server_of(streams_max(100), |_, peer| answer_all(peer));
    // When the last requests are due one by one, both connections may be open for them: one more than needed.
    for (load, expect) in [(Load::Closed, 10..=10), (open(5_000.0), 20..=21)] {
        let mut plan = http2_plan(address.clone(), 4);
        plan.connections.len = 2;
        plan.connections.requests_each = each(4);
        plan.length.requests = Some(40);
        plan.load = load;
        check_answered(&plan, 40);
        let opened = seen.connections();
        assert!(expect.contains(&opened), "{opened}");
    }
}

#[test]
fn sends_bodies_and_reads_replies_that_no_window_and_no_socket_holds() {
    let body: Vec<u8> = (0..3_000_000).map(|at| (at * 31 / 7) as u8).collect();
    let reply = body.clone();
    // The server reads whole bodies by giving back what it has read, as windows want it.
    let (address, seen) = server_of(streams_max(100), move |_, peer| {
        while let Some((kind, flags, stream, payload)) = peer.next() {
            if kind == DATA && !payload.is_empty() {
                let more = (payload.len() as u32).to_be_bytes();
                peer.send(&[frame(8, 0, 0, &more), frame(8, 0, stream, &more)].concat());
            }
            if flags & END_STREAM != 0 && kind != RST_STREAM {
                peer.send(&frame(HEADERS, END_HEADERS, stream, STATUS_200));
                for piece in reply.chunks(16_384) {
                    peer.send(&frame(DATA, 0, stream, piece));
                }
                peer.send(&frame(DATA, END_STREAM, stream, b""));
            }
        }
    });
    let mut plan = http2_plan(address, 3);
    plan.requests = vec![post(&body)];
    plan.expect.body_bytes = None;
    plan.expect.body = ExpectBody::Sha256(Sha256::digest(&body).into());
    plan.connections.len = 2;
    plan.length.requests = Some(12);
    let counts = check_answered(&plan, 12);
    assert_eq!(seen.requests(), 12);
    assert!(counts.sent_bytes > 36_000_000 && counts.read_bytes > 36_000_000);
}

#[test]
fn takes_a_whole_reply_before_the_end_of_its_request() {
    let (address, seen) = server_of(streams_max(100), |_, peer| {
        while let Some((kind, _, stream, _)) = peer.next() {
            if kind == HEADERS {
                peer.send(&[hello(stream), reset(stream, 0)].concat());
            }
        }
    });
    let mut plan = http2_plan(address, 3);
    plan.requests = vec![post(&vec![b'x'; 1_000_000])];
    plan.connections.len = 1;
    plan.length.requests = Some(30);
    check_answered(&plan, 30);
    assert_eq!(seen.connections(), 1);
}

/// A request that is due while no stream is free keeps its time.
#[test]
fn latency_counts_from_the_time_at_which_a_request_was_due() {
    let (address, _) = server_of(streams_max(100), |_, peer| {
        while let Some(stream) = peer.request() {
            if stream == 1 {
                thread::sleep(Duration::from_millis(500));
            }
            peer.send(&hello(stream));
        }
    });
    let mut plan = http2_plan(address, 2);
    plan.load = open(100.0);
    plan.connections.len = 1;
    plan.length = for_ms(1_000);
    let driven = drive_all(&plan);
    let counts = driven.tally.counts();
    assert_eq!(counts.answered, 100, "{counts:?}");
    // The stall is in the latency of all that were due in it, though two alone were on their way.
    let half = driven.tally.latency.quantile(0.75).0;
    assert!(half > 200_000_000, "{half}");
    let sent = driven.tally.last_byte.quantile(0.75).0;
    assert!(sent < 200_000_000, "{sent}");
}

fn fault(plan: &Plan) -> String {
    let shared = RunShared::new(plan, now());
    let (seconds, _receiver) = channel();
    let driven = drive(&Worker::of(plan, &shared, 0, seconds));
    driven.err().map(crate::tests::fault_text).expect("a fault")
}

#[test]
fn says_that_a_server_speaks_something_else() {
    let (address, _) = server(|_, _| Does::End(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()));
    let text = fault(&http2_plan(address, 2));
    assert!(text.contains("does not answer in HTTP/2"), "{text}");
}

#[test]
fn a_connection_that_is_refused_in_plain_words_is_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            thread::spawn(move || match number % 2 {
                0 => attend_http2(stream, Arc::default(), &streams_max(9), &|_, peer| {
                    answer_all(peer);
                }),
                _ => attend(stream, &Seen::default(), &|_, _| {
                    Does::End(b"HTTP/1.1 503 Service Unavailable\r\n\r\n".to_vec())
                }),
            });
        }
    });
    let mut plan = http2_plan(Address::Ip(address), 1);
    plan.connections.len = 1;
    plan.connections.requests_each = each(1);
    plan.load = open(500.0);
    plan.length.requests = Some(20);
    let counts = run(&plan);
    assert_eq!(
        (counts.answered, counts.failures.connect),
        (10, 10),
        "{counts:?}"
    );
}

fn tls_plan(protocols: &[&[u8]]) -> Plan {
    let mut config = (*Identity::plain().server(&[&version::TLS13])).clone();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tls = ServerConnection::new(config.clone()).expect("a configuration");
            let stream = StreamOwned::new(tls, stream);
            thread::spawn(move || {
                attend_http2(stream, Arc::default(), &streams_max(9), &|_, peer| {
                    answer_all(peer);
                });
            });
        }
    });
    let mut plan = http2_plan(Address::Ip(address), 4);
    plan.target.scheme = Scheme::Https(anybody());
    plan
}

#[test]
fn speaks_over_tls_with_a_server_that_chooses_it_and_with_no_other() {
    let counts = check_answered(&tls_plan(&[b"http/1.1", b"h2"]), 200);
    assert_eq!(counts.streams_max, Some(9));
    for other in [&[][..], &[&b"http/1.1"[..]][..]] {
        let text = fault(&tls_plan(other));
        assert!(
            text.contains("does not choose HTTP/2 (ALPN `h2`)"),
            "{text}"
        );
    }
}
