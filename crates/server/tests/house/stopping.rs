//! Stopping: what was received is served, what is cut is counted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use measure::Nanos;
use server::House;
use server::config::meant::{AccessLog, Bind, LogOverflow, LogTarget, Pool};
use server::response::Declared;

use super::pools::figure;
use super::support::*;

#[test]
fn stopping_serves_what_was_received_and_what_waits_in_the_accept_queue() {
    let entered = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&entered);
    let gate = Arc::new(Barrier::new(2));
    let at_gate = Arc::clone(&gate);
    let running = serve(move |exchange, writer| {
        seen.fetch_add(1, Ordering::Relaxed);
        if exchange.head().path() == b"/wait" {
            at_gate.wait();
        }
        whole(writer, b"served")
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
        |config| {
            config.timeouts.drain = Nanos::from_ms(300);
            config.status_path = Some("/-/status".to_owned());
        },
        move |_, writer| {
            seen.fetch_add(1, Ordering::Relaxed);
            // Ends when the sender is dropped.
            let _ = held.lock().unwrap().recv();
            whole(writer, b"too late")
        },
    );
    let mut stream = running.connect();
    stream
        .write_all(b"GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait_until("the request runs", || entered.load(Ordering::Relaxed) == 1);
    let mut half = running.connect();
    half.write_all(b"GET /half HTTP/1.1\r\nHos").unwrap();
    wait_until("the half is read", || {
        text(&running.get("/-/status")).contains("\"reading\":1,")
    });
    let (ended, lines) = running.stop();
    assert_eq!((ended.cut, ended.stuck_threads), (2, 1), "{lines:?}");
    let drained = lines
        .iter()
        .filter(|line| line.contains("end=drained"))
        .count();
    assert_eq!(drained, 2, "{lines:?}");
    drop(release);
}

/// What is logged of a reply whose handler hangs after `bytes` of its body, cut by the drain deadline: its status,
/// its body's bytes.
fn logged_of_a_cut_reply(bytes: usize) -> (String, usize) {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let running = serve_with(
        |config| config.timeouts.drain = Nanos::from_ms(300),
        move |exchange, writer| {
            if exchange.head().path() == b"/whole" {
                return whole(writer, b"an earlier one, longer");
            }
            let declared = Declared {
                content_length: Some(1 << 30),
                ..Declared::default()
            };
            writer.begin_with(200, "", declared);
            writer.give(vec![b'~'; bytes]);
            // Ends when the sender is dropped.
            let _ = held.lock().unwrap().recv();
            Ok(())
        },
    );
    let mut stream = running.connect();
    stream
        .write_all(b"GET /whole HTTP/1.1\r\nHost: a\r\n\r\nGET /half HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut received = 0;
    let mut piece = vec![0; 1 << 20];
    // All of it: what the pool thread could not send the driver has by then.
    while received < bytes {
        let more = stream.read(&mut piece).unwrap();
        received += piece[..more].iter().filter(|byte| **byte == b'~').count();
    }
    let (ended, lines) = running.stop();
    drop(release);
    assert_eq!((ended.cut, ended.exchanges), (1, 2), "{lines:?}");
    let line = lines.iter().find(|line| line.contains("/half")).unwrap();
    assert!(line.contains("end=drained"), "{line}");
    let rest = line.split("/half HTTP/1.1\" ").nth(1).unwrap();
    let mut words = rest.split(' ');
    let status = words.next().unwrap().to_owned();
    (status, words.next().unwrap().parse().unwrap())
}

#[test]
fn what_a_client_has_of_a_cut_reply_is_logged_whoever_sent_it() {
    // By the pool thread.
    assert_eq!(logged_of_a_cut_reply(10), ("200".to_owned(), 10));
    // Most of it by the driver: no socket takes so much at once.
    let bytes = 32 << 20;
    assert_eq!(logged_of_a_cut_reply(bytes), ("200".to_owned(), bytes));
}

#[test]
fn what_was_logged_as_cut_does_not_run_afterwards() {
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&runs);
    let running = serve_with(
        |config| {
            config.pools[0] = Pool {
                threads_min: 1,
                threads_max: 1,
                queue_len_max: 100,
                ..Pool::default()
            };
            config.timeouts.drain = Nanos::from_ms(100);
            config.status_path = Some("/-/status".to_owned());
        },
        move |_, writer| {
            seen.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(200));
            whole(writer, b"done")
        },
    );
    let mut streams: Vec<TcpStream> = (0..10).map(|_| running.connect()).collect();
    for stream in &mut streams {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
    }
    wait_until("all have come", || {
        figure(&running, "waiting") as usize + runs.load(Ordering::Relaxed) >= 10
    });
    let (_, mut lines) = running.stop();
    lines.retain(|line| line.contains("\"GET / HTTP"));
    let not_run = lines
        .iter()
        .filter(|line| line.contains(" run=0.000000 "))
        .count();
    assert_eq!(lines.len(), 10, "{lines:?}");
    assert_eq!(runs.load(Ordering::Relaxed) + not_run, 10, "{lines:?}");
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
fn signals_beyond_the_second_do_not_put_the_end_off() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let entered = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&entered);
    let running = serve(move |_, writer| {
        seen.fetch_add(1, Ordering::Relaxed);
        // Ends when the sender is dropped.
        let _ = held.lock().unwrap().recv();
        whole(writer, b"too late")
    });
    let mut stream = running.connect();
    stream
        .write_all(b"GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    wait_until("the request runs", || entered.load(Ordering::Relaxed) == 1);
    let began = Instant::now();
    running.stopper.stop();
    while !running.thread.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not end");
        running.stopper.stop();
        thread::sleep(Duration::from_millis(100));
    }
    let ended = running.thread.join().unwrap();
    assert_eq!((ended.cut, ended.exit_code, ended.stuck_threads), (1, 1, 1));
    drop(release);
}

#[test]
fn a_second_signal_ends_the_wait_for_a_log_that_is_stuck() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let _reader = rustix::fs::open(&pipe, flags, mode).unwrap();
    let running = serve_with(
        |config| {
            config.logs.access = vec![AccessLog::new(LogTarget::File(pipe))];
            config.logs.overflow = LogOverflow::Wait;
        },
        |_, writer| whole(writer, b"there"),
    );
    let path = format!("/{}", "x".repeat(4_000));
    // More than a pipe has room for.
    for _ in 0..20 {
        running.get(&path);
    }
    let began = Instant::now();
    running.stopper.stop();
    while !running.thread.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not end");
        thread::sleep(Duration::from_millis(100));
        running.stopper.stop();
    }
    let ended = running.thread.join().unwrap();
    assert_eq!((ended.cut, ended.exchanges, ended.exit_code), (0, 20, 1));
}
