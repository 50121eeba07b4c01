//! The house as its clients see it: raw bytes over real sockets, with handlers in Rust.
//!
//! No parser of ours is used to read replies.

#![allow(clippy::unwrap_used)] // All of this file is tests.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use measure::Nanos;
use server::config::meant::{AccessLog, Bind, Config, LogTarget, Pool, Spool, StaticMount};
use server::delivery::{Declared, Outlet, Taken};
use server::exchange::{Body, Exchange};
use server::fault::Fault;
use server::handler::Handler;
use server::{Ended, House, Stopper};

/// Longest time that anything here may take; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

type Answer = Result<(), Fault>;

struct Running {
    address: SocketAddr,
    stopper: Stopper,
    thread: JoinHandle<Ended>,
    dir: tempfile::TempDir,
}

fn config() -> (Config, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let access_log = AccessLog {
        target: LogTarget::File(dir.path().join("access.log")),
        ..AccessLog::default()
    };
    let config = Config {
        binds: vec![Bind::Tcp(vec!["127.0.0.1:0".parse().unwrap()])],
        access_log: Some(access_log),
        spool: Spool {
            dir: dir.path().to_owned(),
            readahead_bytes: 1000,
            ..Spool::default()
        },
        ..Config::default()
    };
    (config, dir)
}

fn serve<F>(handler: F) -> Running
where
    F: Fn(&mut Exchange, &mut Outlet<'_>) -> Answer + Send + Sync + 'static,
{
    serve_with(|_| {}, handler)
}

fn serve_with<F>(change: impl FnOnce(&mut Config), handler: F) -> Running
where
    F: Fn(&mut Exchange, &mut Outlet<'_>) -> Answer + Send + Sync + 'static,
{
    let (mut config, dir) = config();
    change(&mut config);
    run(config, dir, Some(Arc::new(handler)))
}

fn run(config: Config, dir: tempfile::TempDir, handler: Option<Arc<dyn Handler>>) -> Running {
    let house = House::open(config, handler).unwrap();
    let url = house.listening()[0].url.clone();
    let address = url.strip_prefix("http://").unwrap().parse().unwrap();
    let stopper = house.stopper();
    let thread = thread::spawn(move || house.run().unwrap());
    Running {
        address,
        stopper,
        thread,
        dir,
    }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends `request`, closes the sending side, gives everything that came back.
    fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_all(&mut stream)
    }

    fn get(&self, path: &str) -> Vec<u8> {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
    }

    fn stop(self) -> (Ended, Vec<String>) {
        self.stopper.stop();
        let ended = self.thread.join().unwrap();
        let log = std::fs::read_to_string(self.dir.path().join("access.log")).unwrap();
        (ended, log.lines().map(str::to_owned).collect())
    }
}

fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    reply
}

fn whole(outlet: &mut Outlet<'_>, body: &[u8]) -> Answer {
    outlet
        .begin(200, b"OK")
        .extend_from_slice(b"Content-Type: text/plain\r\n");
    outlet.whole(body);
    Ok(())
}

/// Answers with the path and what is known of the body.
fn echo(exchange: &mut Exchange, outlet: &mut Outlet<'_>) -> Answer {
    let body = read_body(&exchange.body);
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    let kind = match exchange.body {
        Body::Empty => "empty",
        Body::Memory(_) => "memory",
        Body::File { .. } => "file",
    };
    let path = text(exchange.head().path());
    whole(
        outlet,
        format!("[{path} {kind} {} {sum}]", body.len()).as_bytes(),
    )
}

fn read_body(body: &Body) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    match body {
        Body::Empty => Vec::new(),
        Body::Memory(data) => data.clone(),
        Body::File { file, bytes } => {
            let mut data = vec![0; usize::try_from(*bytes).unwrap()];
            file.read_exact_at(&mut data, 0).unwrap();
            data
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Head and body of a reply with `Content-Length`, and what follows it.
fn split_reply(reply: &[u8]) -> (String, Vec<u8>, Vec<u8>) {
    let end = reply
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap()
        + 4;
    let head = text(&reply[..end]);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.unwrap().parse().unwrap();
    (
        head,
        reply[end..end + length].to_vec(),
        reply[end + length..].to_vec(),
    )
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: did not come true");
        thread::yield_now();
    }
}

fn three_requests() -> Vec<u8> {
    let mut bytes = b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    bytes.extend_from_slice(b"POST /two HTTP/1.1\r\nHost: a\r\nContent-Length: 1500\r\n\r\n");
    bytes.extend_from_slice(&[7; 1500]);
    bytes.extend_from_slice(b"POST /three HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
    bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    bytes
}

#[test]
fn answers_three_pipelined_requests_in_order_at_every_split_point() {
    let running = Arc::new(serve(echo));
    let request = three_requests();
    let next = Arc::new(AtomicUsize::new(1));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (running, request, next) = (running.clone(), request.clone(), next.clone());
            thread::spawn(move || {
                loop {
                    let split = next.fetch_add(1, Ordering::Relaxed);
                    if split >= request.len() {
                        return;
                    }
                    check_split(&running, &request, split);
                }
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    let splits = request.len() - 1;
    let (ended, lines) = Arc::into_inner(running).unwrap().stop();
    assert_eq!(ended.exchanges, 3 * splits as u64);
    assert_eq!(lines.len(), 3 * splits);
}

fn check_split(running: &Running, request: &[u8], split: usize) {
    let mut stream = running.connect();
    stream.write_all(&request[..split]).unwrap();
    stream.write_all(&request[split..]).unwrap();
    let (_, one, rest) = split_reply(&read_all(&mut stream));
    let (_, two, rest) = split_reply(&rest);
    let (head, three, rest) = split_reply(&rest);
    assert_eq!(text(&one), "[/one empty 0 0]", "split at {split}");
    assert_eq!(
        text(&two),
        format!("[/two file 1500 {}]", 1500 * 7),
        "split at {split}"
    );
    assert_eq!(text(&three), "[/three memory 3 294]", "split at {split}");
    assert!(
        head.contains("Connection: close\r\n") && rest.is_empty(),
        "split at {split}"
    );
}

#[test]
fn a_panic_costs_one_exchange() {
    let running = serve(|exchange, outlet| match exchange.head().path() {
        b"/panic" => panic!("on purpose"),
        b"/late" => {
            outlet
                .begin(200, b"OK")
                .extend_from_slice(b"Content-Length: 10\r\n");
            outlet.declare(Declared {
                content_length: Some(10),
                ..Declared::default()
            });
            outlet.piece(b"12345");
            panic!("on purpose, later")
        }
        _ => whole(outlet, b"fine"),
    });
    let reply = text(&running.get("/panic"));
    assert!(
        reply.starts_with("HTTP/1.1 500 ") && !reply.contains("purpose"),
        "{reply}"
    );
    assert!(text(&running.get("/late")).ends_with("\r\n\r\n12345"));
    assert!(text(&running.get("/fine")).ends_with("fine"));
    let (_, lines) = running.stop();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(
        lines.iter().filter(|line| line.contains("end=cut")).count(),
        1,
        "{lines:?}"
    );
}

#[test]
fn a_cut_reply_that_ends_with_its_connection_ends_in_a_reset() {
    let running = serve(|_, outlet| {
        outlet.begin(200, b"OK");
        outlet.piece(b"half of it");
        Err(Fault::App("on purpose".to_owned()))
    });
    let mut stream = running.connect();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    let error = stream.read_to_end(&mut reply).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    running.stop();
}

#[test]
fn a_body_shorter_than_announced_ends_in_a_cut_and_a_longer_one_is_truncated() {
    let running = serve(|exchange, outlet| {
        outlet
            .begin(200, b"OK")
            .extend_from_slice(b"Content-Length: 5\r\n");
        outlet.declare(Declared {
            content_length: Some(5),
            ..Declared::default()
        });
        let long = exchange.head().path() == b"/long";
        let taken = outlet.piece(if long { b"abcdefgh" } else { b"abc" });
        assert_eq!(taken == Taken::Overrun, long);
        Ok(())
    });
    let requests =
        ["/long", "/short", "/never"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let reply = text(&running.ask(requests.concat().as_bytes()));
    assert_eq!(reply.matches("HTTP/1.1 200 OK").count(), 2, "{reply}");
    assert!(
        reply.contains("\r\n\r\nabcdeHTTP/1.1") && reply.ends_with("\r\n\r\nabc"),
        "{reply}"
    );
    running.stop();
}

#[test]
fn readers_that_never_read_hold_no_pool_thread() {
    const CLIENTS: usize = 100;
    let large = vec![b'x'; 8 << 20];
    let running = serve(move |exchange, outlet| match exchange.head().path() {
        b"/large" => whole(outlet, &large),
        _ => whole(outlet, b"small"),
    });
    let mut stalled = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = running.connect();
        stream
            .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        stalled.push(stream);
    }
    for _ in 0..CLIENTS {
        assert!(text(&running.get("/small")).ends_with("small"));
    }
    // One of them changes its mind: it gets every byte.
    let (_, body, rest) = split_reply(&read_all(&mut stalled.pop().unwrap()));
    assert!(body.len() == 8 << 20 && body.iter().all(|byte| *byte == b'x') && rest.is_empty());
    drop(stalled);
    let (ended, lines) = running.stop();
    assert_eq!(ended.exchanges, 2 * CLIENTS as u64);
    let gone = lines
        .iter()
        .filter(|line| line.contains("end=peer-gone"))
        .count();
    assert_eq!(gone, CLIENTS - 1);
}

#[test]
fn a_stream_beyond_memory_continues_in_a_file_and_arrives_whole() {
    const PIECE: usize = 50_000;
    const PIECES: usize = 400;
    let (done, handler_done) = mpsc::channel();
    let done = Mutex::new(done);
    let running = serve(move |_, outlet| {
        outlet.begin(200, b"OK");
        for piece in 0..PIECES {
            assert_eq!(outlet.piece(&vec![piece as u8; PIECE]), Taken::All);
        }
        done.lock().unwrap().send(()).unwrap();
        Ok(())
    });
    let mut stream = running.connect();
    stream
        .write_all(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
        .unwrap();
    // The handler is done before the client has read a byte.
    handler_done.recv_timeout(PATIENCE).unwrap();
    let reply = read_all(&mut stream);
    let start = reply
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap()
        + 4;
    let body = &reply[start..];
    assert_eq!(body.len(), PIECE * PIECES);
    assert!((0..body.len()).all(|at| body[at] == (at / PIECE) as u8));
    let named = std::fs::read_dir(running.dir.path()).unwrap().count();
    assert_eq!(named, 1, "only the log has a name");
    running.stop();
}

#[test]
fn a_stream_ends_when_its_client_goes_whether_it_was_slow_or_not() {
    let running = serve(|exchange, outlet| {
        let size = if exchange.head().path() == b"/slow" {
            1 << 20
        } else {
            10
        };
        outlet.begin(200, b"OK");
        let deadline = Instant::now() + PATIENCE;
        while outlet.piece(&vec![b'x'; size]) == Taken::All {
            assert!(
                Instant::now() < deadline,
                "the client's leaving went unnoticed"
            );
        }
        Ok(())
    });
    for path in ["/slow", "/quick"] {
        let mut stream = running.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    }
    let (ended, lines) = running.stop();
    assert_eq!((ended.exchanges, ended.cut), (2, 0), "{lines:?}");
    let gone = lines
        .iter()
        .filter(|line| line.contains("end=peer-gone"))
        .count();
    assert_eq!(gone, 2, "{lines:?}");
}

#[test]
fn a_reply_that_cannot_be_stored_for_a_slow_client_is_cut_and_logged() {
    let running = serve_with(
        |config| config.spool.dir = "/proc/nowhere".into(),
        |_, outlet| {
            outlet.begin(200, b"OK");
            while outlet.piece(&vec![b'x'; 1 << 20]) == Taken::All {}
            Ok(())
        },
    );
    let mut stream = running.connect();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(!reply.ends_with(b"0\r\n\r\n"), "it does not look complete");
    let (_, lines) = running.stop();
    assert!(
        lines.len() == 1 && lines[0].contains("end=cut"),
        "{lines:?}"
    );
}

#[test]
fn a_full_queue_is_refused_at_once_and_the_rest_is_served() {
    let gate = Arc::new(Barrier::new(2));
    let at_gate = Arc::clone(&gate);
    let running = serve_with(
        |config| {
            config.pool = Pool {
                threads_min: 1,
                threads_max: 1,
                queue_len_max: 2,
            }
        },
        move |exchange, outlet| {
            if exchange.head().path() == b"/wait" {
                at_gate.wait();
            }
            whole(outlet, b"served")
        },
    );
    let mut first = running.connect();
    first
        .write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut waiting = Vec::new();
    let refused = loop {
        let mut stream = running.connect();
        stream
            .write_all(b"GET /queued HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let mut reply = [0; 1024];
        match stream.read(&mut reply) {
            Ok(bytes) => break text(&reply[..bytes]),
            Err(_) => waiting.push(stream),
        }
        assert!(waiting.len() <= 3, "the bound is 2 waiting and 1 running");
    };
    assert!(
        refused.starts_with("HTTP/1.1 503 ") && refused.contains("Retry-After: "),
        "{refused}"
    );
    gate.wait();
    for mut stream in waiting {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(text(&read_all(&mut stream)).ends_with("served"));
    }
    assert!(text(&running.get("/later")).ends_with("served"));
    running.stop();
}

#[test]
fn stopping_serves_what_was_received_and_what_waits_in_the_accept_queue() {
    let entered = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&entered);
    let gate = Arc::new(Barrier::new(2));
    let at_gate = Arc::clone(&gate);
    let running = serve(move |exchange, outlet| {
        seen.fetch_add(1, Ordering::Relaxed);
        if exchange.head().path() == b"/wait" {
            at_gate.wait();
        }
        whole(outlet, b"served")
    });
    let mut idle = running.connect();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut reply = [0; 1024];
    assert!(idle.read(&mut reply).unwrap() > 0);
    let mut waiting = running.connect();
    waiting
        .write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait_until("the slow request runs", || {
        entered.load(Ordering::Relaxed) == 2
    });
    let mut late: Vec<TcpStream> = (0..50).map(|_| running.connect()).collect();
    for stream in &mut late {
        stream
            .write_all(b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
    }
    running.stopper.stop();
    for stream in &mut late {
        let reply = text(&read_all(stream));
        assert!(reply.ends_with("served"), "{reply}");
    }
    assert_eq!(
        idle.read(&mut reply).unwrap(),
        0,
        "an idle connection is closed"
    );
    gate.wait();
    assert!(text(&read_all(&mut waiting)).ends_with("served"));
    let Running { thread, dir, .. } = running;
    let ended = thread.join().unwrap();
    assert_eq!((ended.cut, ended.exit_code, ended.exchanges), (0, 0, 52));
    let log = std::fs::read_to_string(dir.path().join("access.log")).unwrap();
    assert_eq!(log.lines().count(), 52);
}

#[test]
fn the_drain_deadline_cuts_counts_and_logs_what_is_left() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let entered = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&entered);
    let running = serve_with(
        |config| config.timeouts.drain = Nanos::from_ms(300),
        move |_, outlet| {
            seen.fetch_add(1, Ordering::Relaxed);
            // Ends when the sender is dropped.
            let _ = held.lock().unwrap().recv();
            whole(outlet, b"too late")
        },
    );
    let mut stream = running.connect();
    stream
        .write_all(b"GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait_until("the request runs", || entered.load(Ordering::Relaxed) == 1);
    let mut half = running.connect();
    half.write_all(b"GET /half HTTP/1.1\r\nHos").unwrap();
    let (ended, lines) = running.stop();
    assert_eq!((ended.cut, ended.stuck_threads), (2, 1), "{lines:?}");
    let drained = lines
        .iter()
        .filter(|line| line.contains("end=drained"))
        .count();
    assert_eq!(drained, 2, "{lines:?}");
    drop(release);
}

#[test]
fn silent_and_trickling_clients_meet_their_deadlines() {
    let running = serve_with(
        |config| {
            config.timeouts.head = Nanos::from_ms(300);
            config.timeouts.idle = Nanos::from_ms(300);
        },
        echo,
    );
    let mut trickling = running.connect();
    trickling
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    trickling.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
    let mut reply = [0; 512];
    let deadline = Instant::now() + PATIENCE;
    let received = loop {
        assert!(Instant::now() < deadline);
        // A byte now and then does not buy more time.
        let _ = trickling.write_all(b"x");
        if let Ok(bytes) = trickling.read(&mut reply) {
            break text(&reply[..bytes]);
        }
    };
    assert!(received.starts_with("HTTP/1.1 408 "), "{received}");
    let mut silent = running.connect();
    assert_eq!(silent.read(&mut reply).unwrap(), 0, "closed without a word");
    let mut idle = running.connect();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(text(&read_all(&mut idle)).ends_with("[/ empty 0 0]"));
    let (_, lines) = running.stop();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn a_refused_upload_sees_its_413_while_it_is_still_sending() {
    let running = serve_with(|config| config.limits.body_bytes_max = 1000, echo);
    let mut stream = running.connect();
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n")
        .unwrap();
    let sent = stream.write_all(&vec![b'x'; 2_000_000]);
    let reply = text(&read_all(&mut stream));
    assert!(
        sent.is_ok() && reply.starts_with("HTTP/1.1 413 "),
        "{reply}"
    );
    let (_, lines) = running.stop();
    assert!(lines.len() == 1 && lines[0].contains(" 413 "), "{lines:?}");
}

#[test]
fn connections_beyond_the_bound_wait_their_turn() {
    let running = serve_with(|config| config.listen.connections_max = 4, echo);
    let held: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = running.connect();
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            assert!(stream.read(&mut [0; 512]).unwrap() > 0);
            stream
        })
        .collect();
    let mut fifth = running.connect();
    fifth
        .write_all(b"GET /fifth HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    fifth
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert!(fifth.read(&mut [0; 512]).is_err(), "it is not accepted yet");
    drop(held);
    fifth.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(text(&read_all(&mut fifth)).ends_with("[/fifth empty 0 0]"));
    running.stop();
}

#[test]
fn room_made_by_another_driver_is_noticed() {
    let running = serve_with(
        |config| {
            config.listen.drivers = 2;
            config.listen.connections_max = 8;
        },
        echo,
    );
    for _ in 0..5 {
        drop((0..40).map(|_| running.connect()).collect::<Vec<_>>());
    }
    for _ in 0..20 {
        assert!(text(&running.get("/after")).ends_with("[/after empty 0 0]"));
    }
    running.stop();
}

#[test]
fn the_last_reply_arrives_whole_although_the_client_sent_more() {
    let large = vec![b'x'; 3 << 20];
    let running = serve(move |_, outlet| whole(outlet, &large));
    let mut stream = running.connect();
    // The empty line after the body and the request behind it are never read.
    let sent =
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab\r\nGET /";
    stream.write_all(sent).unwrap();
    let (_, body, _) = split_reply(&read_all(&mut stream));
    assert_eq!(body.len(), 3 << 20);
    running.stop();
}

#[test]
fn what_was_logged_as_cut_does_not_run_afterwards() {
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&runs);
    let running = serve_with(
        |config| {
            config.pool = Pool {
                threads_min: 1,
                threads_max: 1,
                queue_len_max: 100,
            };
            config.timeouts.drain = Nanos::from_ms(100);
        },
        move |_, outlet| {
            seen.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(200));
            whole(outlet, b"done")
        },
    );
    let mut streams: Vec<TcpStream> = (0..10).map(|_| running.connect()).collect();
    for stream in &mut streams {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
    }
    wait_until("the first request runs", || {
        runs.load(Ordering::Relaxed) == 1
    });
    let (ended, lines) = running.stop();
    let not_run = lines
        .iter()
        .filter(|line| line.contains(" run=0.000000 "))
        .count();
    assert_eq!(ended.exchanges, 10, "{lines:?}");
    assert_eq!(runs.load(Ordering::Relaxed) + not_run, 10, "{lines:?}");
}

#[test]
fn a_head_that_began_behind_a_long_upload_has_its_own_deadline() {
    let running = serve_with(|config| config.timeouts.head = Nanos::from_ms(700), echo);
    let mut stream = running.connect();
    stream
        .write_all(b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
        .unwrap();
    let began = Instant::now();
    for byte in b"abc" {
        thread::sleep(Duration::from_millis(300));
        stream.write_all(&[*byte]).unwrap();
    }
    assert!(began.elapsed() > Duration::from_millis(700));
    stream.write_all(b"dGET /next HTTP/1.1\r\n").unwrap();
    thread::sleep(Duration::from_millis(300));
    stream
        .write_all(b"Host: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let reply = text(&read_all(&mut stream));
    assert!(
        reply.contains("[/up memory 4 394]") && reply.ends_with("[/next empty 0 0]"),
        "{reply}"
    );
    running.stop();
}

#[test]
fn opening_leaves_no_socket_behind_when_a_later_address_is_taken() {
    let (mut config, dir) = config();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let path = dir.path().join("a.sock");
    config.binds = vec![
        Bind::Unix(path.clone()),
        Bind::Tcp(vec![taken.local_addr().unwrap()]),
    ];
    assert!(House::open(config, None).is_err());
    assert!(!path.exists());
}

#[test]
fn serves_files_and_hides_what_is_outside() {
    let (mut config, dir) = config();
    std::fs::create_dir(dir.path().join("files")).unwrap();
    std::fs::write(dir.path().join("files/small.txt"), "small").unwrap();
    std::fs::write(dir.path().join("files/large.bin"), vec![9; 3 << 20]).unwrap();
    std::fs::write(dir.path().join("secret"), "secret").unwrap();
    config.statics = vec![StaticMount {
        url: "/f".to_owned(),
        dir: dir.path().join("files"),
        index: "index.html".to_owned(),
        fallback: None,
    }];
    config.status_path = Some("/-/status".to_owned());
    let running = run(config, dir, None);
    assert!(text(&running.get("/f/small.txt")).ends_with("\r\n\r\nsmall"));
    let (_, body, _) = split_reply(&running.get("/f/large.bin"));
    assert!(body.len() == 3 << 20 && body.iter().all(|byte| *byte == 9));
    for path in ["/f/../secret", "/f/%2e%2e/secret", "/nothing", "/f/nothing"] {
        let reply = text(&running.get(path));
        assert!(
            reply.starts_with("HTTP/1.1 404 ") && !reply.contains("secret"),
            "{path}: {reply}"
        );
    }
    let status = text(&running.get("/-/status"));
    assert!(
        status.contains("\"accepted\":7") && status.contains("\"route\":\"/f\""),
        "{status}"
    );
    let (ended, lines) = running.stop();
    assert_eq!((ended.exchanges, lines.len()), (7, 7));
}
