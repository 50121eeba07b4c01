//! Allocations of a request on a kept connection, on all threads of the server: no more than ARCHITECTURE.md
//! section 7 says.
//!
//! A binary of its own, for its allocator; its tests take turns, since they share the counters. Clients are
//! threads that do not count. Copies cannot be counted as such: a body that is copied must be copied to
//! somewhere, so that the bytes that are allocated for a request stand for them.

#![allow(clippy::unwrap_used)] // All of this is tests.

mod counting;
#[path = "../support/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod support;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};

use http::FieldLines;
use server::response::{Amount, Declared};
use telemetry::Nanos;

use counting::{Counted, Counting};
use support::Running;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static TURN: Mutex<()> = Mutex::new(());

const REQUESTS: u64 = 1000;
const WARM_UP: u64 = 200;
/// Pages of the log are replaced by the clock, and each grows anew: not within a test.
const FLUSH: Nanos = Nanos(600_000_000_000);
/// What a page takes to grow, and what threads without a request may allocate meanwhile.
const FREE_ALLOCATIONS: u64 = REQUESTS / 5;
const FREE_BYTES: u64 = 4 << 20;

/// Idle connections at once.
const CONNECTIONS: u64 = 200;

/// What one request may take.
struct Bound {
    allocations: u64,
    bytes: u64,
}

/// Asks for `path` again and again on one connection; each body must be `body_bytes` long.
fn count_requests(running: &Running, path: &str, body_bytes: usize) -> Counted {
    let mut stream = running.connect();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let reply_bytes = first_reply_bytes(&mut stream, &request, body_bytes);
    let mut reply = vec![0; reply_bytes];
    let mut ask = |times: u64| {
        for _ in 0..times {
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_exact(&mut reply).unwrap();
            assert!(reply.starts_with(b"HTTP/1.1 200 OK\r\n"));
        }
    };
    ask(WARM_UP);
    counting::while_running(|| ask(REQUESTS))
}

/// All replies are as long as the first one: their dates are.
fn first_reply_bytes(stream: &mut TcpStream, request: &str, body_bytes: usize) -> usize {
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    stream.read_exact(&mut vec![0; body_bytes]).unwrap();
    head.len() + body_bytes
}

fn check(counted: Counted, bound: &Bound) {
    let per_request = |sum: u64| sum as f64 / REQUESTS as f64;
    println!(
        "{:.3} allocations, {:.1} bytes a request; the largest has {} bytes",
        per_request(counted.allocations),
        per_request(counted.bytes),
        counted.largest_bytes
    );
    assert!(
        counted.allocations <= bound.allocations * REQUESTS + FREE_ALLOCATIONS,
        "{counted:?}"
    );
    assert!(
        counted.bytes <= bound.bytes * REQUESTS + FREE_BYTES,
        "{counted:?}"
    );
}

thread_local! {
    static LINES: RefCell<FieldLines> = const { RefCell::new(FieldLines::new()) };
}

fn check_handler(body_bytes: usize, bound: &Bound) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    counting::exclude_this_thread();
    let body = vec![b'x'; body_bytes];
    let running = support::serve_with(
        |config| config.logs.flush = FLUSH,
        move |_, writer| {
            // As a backend does that uses its lines again: what is counted is the server's own.
            LINES.with_borrow_mut(|lines| {
                lines.clear();
                lines.push(b"Content-Type", b"text/plain");
                writer.begin(200, b"OK", lines, Declared::default());
            });
            writer.write(&body.as_slice(), Amount::Whole);
            Ok(())
        },
    );
    check(count_requests(&running, "/", body_bytes), bound);
    running.stop();
}

fn check_file(body_bytes: usize, bound: &Bound) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    counting::exclude_this_thread();
    let (mut config, dir) = support::config();
    std::fs::write(dir.path().join("file.txt"), vec![b'x'; body_bytes]).unwrap();
    config.logs.flush = FLUSH;
    support::mount(&mut config, dir.path().to_owned());
    let running = support::run(config, dir, None);
    check(count_requests(&running, "/f/file.txt", body_bytes), bound);
    running.stop();
}

const NONE: Bound = Bound {
    allocations: 0,
    bytes: 0,
};

/// The exchange, its head, the bytes of that, and their index.
const OF_A_HANDLER: Bound = Bound {
    allocations: 4,
    bytes: 2 << 10,
};

#[test]
fn a_cached_file_takes_no_allocation() {
    check_file(1 << 10, &NONE);
}

#[test]
fn a_larger_cached_file_is_not_copied() {
    check_file(64 << 10, &NONE);
}

#[test]
fn a_handler_takes_four_allocations() {
    check_handler(1 << 10, &OF_A_HANDLER);
}

/// One that has had a file.
#[test]
fn an_idle_connection_holds_1500_bytes() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    counting::exclude_this_thread();
    let (mut config, dir) = support::config();
    std::fs::write(dir.path().join("file.txt"), [b'x'; 1 << 10]).unwrap();
    config.logs.flush = FLUSH;
    support::mount(&mut config, dir.path().to_owned());
    let running = support::run(config, dir, None);
    let request = "GET /f/file.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    let hold = |len: u64| {
        let mut held: Vec<_> = (0..len).map(|_| running.connect()).collect();
        for stream in &mut held {
            first_reply_bytes(stream, request, 1 << 10);
        }
        held
    };
    // The table of connections has room for as many again when it grows.
    let _before = hold(300);
    let mut held = Vec::new();
    let counted = counting::while_running(|| held = hold(CONNECTIONS));
    let held_bytes = counted.bytes - counted.freed_bytes;
    println!("{} bytes a connection", held_bytes / CONNECTIONS);
    assert!(held_bytes <= 1_500 * CONNECTIONS, "{counted:?}");
    running.stop();
}

/// The socket takes this one as a whole.
#[test]
fn the_body_of_a_handler_is_not_copied() {
    check_handler(256 << 10, &OF_A_HANDLER);
}
