//! Handlers that no application can be: broken ones, and ones that look at their writer.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use config::typed::{Coding, Config, PoolConfig, Rate};
use server::handler::Handler;
use server::pool::Worker;
use server::response::{Amount, Declared, Taken};
use telemetry::Nanos;

use super::support::*;
use super::tested::alone;

const GZIP: &str = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";

fn with_gzip(config: &mut Config) {
    config.compression.codings = vec![Coding::Gzip];
    config.compression.bytes_min = 100;
}

fn with_threads(config: &mut Config, threads: usize) {
    config.status_path = Some("/-/status".to_owned());
    config.pools[0] = PoolConfig {
        threads_min: threads,
        threads_max: threads,
        ..PoolConfig::default()
    };
}

fn wait_for_status(running: &Running, what: &str) {
    wait_until(what, || text(&running.get("/-/status")).contains(what));
}

#[test]
fn a_panic_costs_one_exchange() {
    let _alone = alone();
    let running = serve(|exchange, writer| match exchange.head().path() {
        b"/panic" => panic!("on purpose"),
        b"/late" => {
            writer.begin_with_length(10);
            writer.give(b"12345");
            panic!("on purpose, later")
        }
        _ => whole(writer, b"fine"),
    });
    let reply = text(&running.get("/panic"));
    assert!(reply.starts_with("HTTP/1.1 500 "), "{reply}");
    assert!(!reply.contains("purpose"), "{reply}");
    assert!(text(&running.get("/late")).ends_with("\r\n\r\n12345"));
    assert!(text(&running.get("/fine")).ends_with("fine"));
    let (_, lines) = running.stop();
    let cut = lines.iter().filter(|line| line.contains("end=cut"));
    assert_eq!((lines.len(), cut.count()), (3, 1), "{lines:?}");
}

/// Ends its first threads in ways in which no thread may end.
struct Unreliable {
    lives: AtomicUsize,
}

impl Handler for Unreliable {
    fn work(&self, worker: &mut Worker) {
        match self.lives.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("a handler that is broken"),
            1 => {}
            _ => {
                while let Some(assignment) = worker.next_now().or_else(|| worker.next_wait()) {
                    worker.run(assignment, |_, writer| whole(writer, b"there"));
                }
            }
        }
    }
}

#[test]
fn threads_that_are_lost_are_replaced() {
    let _alone = alone();
    let (mut config, dir) = config();
    with_threads(&mut config, 2);
    let lives = AtomicUsize::new(0);
    let running = run(config, dir, Some(Arc::new(Unreliable { lives })));
    assert!(text(&running.get("/")).ends_with("there"));
    wait_for_status(&running, "\"idle\":2,");
    let status = text(&running.get("/-/status"));
    for what in ["\"threads_started\":4,", "\"threads_ended\":2}"] {
        assert!(status.contains(what), "{what} {status}");
    }
    let (ended, _) = running.stop();
    assert_eq!((ended.stuck_threads, ended.exit_code), (0, 0));
}

/// Its client has been answered and is gone by the time that the handler gives a reply of limited bandwidth, which
/// a driver would send.
#[test]
fn a_reply_that_comes_too_late_takes_no_memory() {
    let _alone = alone();
    let (open, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let change = |config: &mut Config| {
        with_threads(config, 1);
        config.pools[0].request_timeout = Some(Nanos::from_ms(50));
    };
    let running = serve_with(change, move |_, writer| {
        gate.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        let declared = Declared {
            rate: Some(Rate::BytesPerSec(1)),
            ..Declared::default()
        };
        writer.begin_with(200, "", declared);
        writer.give_whole([b'x'; 1_000]);
        Ok(())
    });
    let mut late = running.connect();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    late.write_all(request).unwrap();
    let reply = text(&read_all(&mut late));
    assert!(reply.starts_with("HTTP/1.1 504 "), "{reply}");
    drop(late);
    wait_for_status(&running, "\"connections\":1,");
    open.send(()).unwrap();
    wait_for_status(&running, "\"completed\":1,");
    wait_for_status(&running, "\"replies_memory_bytes\":0}");
    let (_, lines) = running.stop();
    // The driver answered, but a worker was held.
    let answered = lines.iter().find(|line| line.contains(" 504 ")).unwrap();
    let worker = format!(" worker={}.1 ", std::process::id());
    assert!(answered.contains(&worker), "{answered}");
}

#[test]
fn a_compressed_reply_whose_file_is_too_short_is_cut() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, b"short").unwrap();
    let running = serve_with(with_gzip, move |_, writer| {
        writer.begin_ok("Content-Type: text/plain\r\n");
        writer.give(b"first ");
        let file = File::open(&path).unwrap();
        assert_eq!(writer.file(file, 0, 200_000, Amount::Whole), Taken::Gone);
        Ok(())
    });
    let mut stream = running.connect();
    stream.write_all(GZIP.as_bytes()).unwrap();
    let mut reply = Vec::new();
    // It ends in order or with a reset.
    let _ = stream.read_to_end(&mut reply);
    assert!(text(&reply).contains("Content-Encoding: gzip\r\n"));
    assert!(!reply.ends_with(b"\r\n0\r\n\r\n"), "it looks complete");
    running.stop();
}

/// A backend lets go of the interpreter for what is slow.
#[test]
fn large_pieces_are_called_slow_only_where_they_are_compressed() {
    let _alone = alone();
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let running = serve_with(with_gzip, move |_, writer| {
        writer.begin_ok("Content-Type: text/plain\r\n");
        for _ in 0..2 {
            let quick = [1000, 10_000].map(|bytes| writer.is_quick(bytes));
            tell.lock().unwrap().send(quick).unwrap();
            writer.give(b"piece");
        }
        Ok(())
    });
    running.ask(GZIP.as_bytes());
    running.get("/");
    let told: Vec<_> = told.iter().take(4).collect();
    assert_eq!(told, [[true, false], [true, false], [true; 2], [true; 2]]);
    running.stop();
}
