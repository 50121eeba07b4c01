//! Slow clients: none holds anybody else up, and each meets its deadline.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use measure::Nanos;
use server::config::meant::{Config, Rate};
use server::response::{Declared, Taken};

use super::pools::{figure, wait_for_figure, with};
use super::support::*;

/// The body of a stream ends with its connection, and that of one that is cut with a reset.
const OLD_REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

#[test]
fn readers_that_never_read_hold_no_pool_thread() {
    const CLIENTS: usize = 60;
    /// More than the kernel takes for a client that reads nothing.
    const BYTES: usize = 6 << 20;
    let large = vec![b'x'; BYTES];
    let running = serve_with(
        // A busy machine may need long for all of them: nobody is to be refused for that.
        |config| {
            config.pools[0].queue_target = Nanos::from_secs(3600);
            // More than half of it, so that many move to files; less than all, so that none is cut, however
            // slow the disk is.
            config.delivery.replies_memory_bytes_max = CLIENTS * BYTES + (1 << 20);
        },
        move |exchange, writer| match exchange.head().path() {
            b"/large" => whole(writer, &large),
            _ => whole(writer, b"small"),
        },
    );
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
    assert!(body.len() == BYTES && body.iter().all(|byte| *byte == b'x') && rest.is_empty());
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
fn a_stream_beyond_half_of_the_memory_continues_in_a_file_and_arrives_whole() {
    const PIECE: usize = 50_000;
    const PIECES: usize = 400;
    let change = |config: &mut Config| config.delivery.replies_memory_bytes_max = PIECE * PIECES;
    let (done, handler_done) = mpsc::channel();
    let done = Mutex::new(done);
    let running = serve_with(change, move |_, writer| {
        writer.begin_ok("");
        for piece in 0..PIECES {
            assert_eq!(writer.give(vec![piece as u8; PIECE]), Taken::All);
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
    wait_until("some of it is in a file", || has_spooled(&running));
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

/// Whether this house has an unnamed file open.
fn has_spooled(running: &Running) -> bool {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut files = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    files.any(|file| {
        file.starts_with(running.dir.path()) && file.to_string_lossy().ends_with(" (deleted)")
    })
}

#[test]
fn a_stream_ends_when_its_client_goes_whether_it_was_slow_or_not() {
    let running = serve(|exchange, writer| {
        let size = if exchange.head().path() == b"/slow" {
            1 << 20
        } else {
            10
        };
        writer.begin_ok("");
        let deadline = Instant::now() + PATIENCE;
        while writer.give(vec![b'x'; size]) == Taken::All {
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
        |_, writer| {
            writer.begin_ok("");
            while writer.give(vec![b'x'; 1 << 20]) == Taken::All {}
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
fn silent_and_trickling_clients_meet_their_deadlines() {
    let running = serve_with(
        |config| {
            config.timeouts.head = Nanos::from_ms(1500);
            config.timeouts.idle = Nanos::from_ms(1500);
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
fn a_head_that_began_behind_a_long_upload_has_its_own_deadline() {
    let running = serve_with(|config| config.timeouts.head = Nanos::from_ms(2800), echo);
    let mut stream = running.connect();
    stream
        .write_all(b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
        .unwrap();
    let began = Instant::now();
    for byte in b"abc" {
        thread::sleep(Duration::from_millis(1000));
        stream.write_all(&[*byte]).unwrap();
    }
    assert!(began.elapsed() > Duration::from_millis(2800));
    stream.write_all(b"dGET /next HTTP/1.1\r\n").unwrap();
    thread::sleep(Duration::from_millis(1000));
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

/// Reads the head, and then nothing: the client's buffer is small and stays full.
fn never_reading(running: &Running, request: &[u8]) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&running.address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(request).unwrap();
    stream
}

/// Whether the server has closed the connection, or reset it.
fn is_ended(stream: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    let none = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&none)).unwrap() > 0
        && fds[0]
            .revents()
            .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// How long it took until the server ended the connection.
fn time_until_end(stream: &TcpStream, since: Instant) -> Duration {
    wait_until("the end of a connection", || is_ended(stream));
    since.elapsed()
}

#[test]
fn clients_that_never_read_are_closed_at_the_send_timeout_whoever_holds_their_reply() {
    const TIMEOUT: Duration = Duration::from_millis(2500);
    let running = serve_with(
        |config| {
            config.timeouts.send = Nanos::from_ms(2500);
            config.status_path = Some("/-/status".to_owned());
        },
        |exchange, writer| match exchange.head().path() {
            // Fits into the kernel's buffers, not into the client's.
            b"/kernel" => whole(writer, &vec![b'x'; 64 << 10]),
            b"/memory" => whole(writer, &vec![b'x'; 8 << 20]),
            _ => whole(writer, b"small"),
        },
    );
    let began = Instant::now();
    let mut stalled = Vec::new();
    for path in ["/kernel", "/memory"] {
        for _ in 0..5 {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            stalled.push(never_reading(&running, request.as_bytes()));
        }
    }
    assert!(text(&running.get("/small")).ends_with("small"));
    for stream in &stalled {
        let took = time_until_end(stream, began);
        // As idle they would have a minute.
        assert!(
            took >= TIMEOUT && took < PATIENCE / 2,
            "closed after {took:?}"
        );
    }
    let status = text(&running.get("/-/status"));
    assert!(status.contains("\"send\":10"), "{status}");
    let (_, lines) = running.stop();
    let timed_out = lines
        .iter()
        .filter(|line| line.contains("end=send-timeout"));
    assert_eq!(timed_out.count(), 5, "{lines:?}");
}

#[test]
fn a_slow_reader_that_keeps_the_rate_gets_everything() {
    const BYTES: usize = 16_000_000;
    let running = serve_with(
        |config| {
            config.timeouts.send = Nanos::from_ms(2500);
            config.timeouts.send_rate_min = 500_000;
            config.timeouts.idle = Nanos::from_ms(2700);
        },
        |_, writer| whole(writer, &vec![b'x'; BYTES]),
    );
    let mut stream = running.connect();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut received = 0;
    let mut buffer = [0; 50_000];
    // 4 MB a second: far longer than the time-out in all.
    let began = Instant::now();
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            bytes => received += bytes,
        }
        let due = Duration::from_nanos(received as u64 * 250);
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
    assert!(received > BYTES && began.elapsed() > Duration::from_secs(3));
    let (_, lines) = running.stop();
    assert!(!lines[0].contains(" end="), "{lines:?}");
}

#[test]
fn a_body_that_trickles_is_refused_when_its_grace_is_used_up() {
    let running = serve_with(
        |config| {
            config.timeouts.body = Nanos::from_ms(2500);
            config.timeouts.body_rate_min = 1000;
            config.status_path = Some("/-/status".to_owned());
        },
        echo,
    );
    let began = Instant::now();
    let mut trickling = running.connect();
    trickling
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n")
        .unwrap();
    trickling
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut reply = [0; 512];
    let received = loop {
        assert!(began.elapsed() < PATIENCE);
        let _ = trickling.write_all(b"x");
        if let Ok(bytes) = trickling.read(&mut reply) {
            break text(&reply[..bytes]);
        }
    };
    assert!(received.starts_with("HTTP/1.1 408 "), "{received}");
    // One that keeps the rate takes longer than the grace and is served.
    let mut steady = running.connect();
    steady
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5000\r\n\r\n",
        )
        .unwrap();
    let began = Instant::now();
    for _ in 0..20 {
        steady.write_all(&[b'x'; 250]).unwrap();
        thread::sleep(Duration::from_millis(150));
    }
    assert!(began.elapsed() > Duration::from_millis(2900));
    assert!(text(&read_all(&mut steady)).contains("[/ file 5000 "));
    let status = text(&running.get("/-/status"));
    assert!(status.contains("\"body\":1"), "{status}");
    let (_, lines) = running.stop();
    assert!(lines[0].contains("body came too slowly"), "{lines:?}");
}

#[test]
fn an_idle_connection_is_looked_at_and_closed_when_its_time_is_up() {
    let running = serve_with(
        |config| {
            config.timeouts.idle = Nanos::from_ms(2500);
            config.status_path = Some("/-/status".to_owned());
        },
        echo,
    );
    let began = Instant::now();
    let mut idle = running.connect();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(text(&read_all(&mut idle)).ends_with("[/ empty 0 0]"));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(2500) && took < PATIENCE / 2);
    let status = text(&running.get("/-/status"));
    assert!(status.contains("\"idle\":1,\"crowded\":0"), "{status}");
    running.stop();
}

#[test]
fn an_application_limits_its_reply_or_lifts_the_limit() {
    let running = serve_with(
        |config| config.rates.pool = Some(Rate::BytesPerSec(100_000)),
        |exchange, writer| {
            let rate = match exchange.head().path() {
                b"/slow" => Rate::BytesPerSec(50_000),
                _ => Rate::Unlimited,
            };
            let declared = Declared {
                rate: Some(rate),
                ..Declared::default()
            };
            writer.begin_with(200, "", declared);
            writer.give_whole(vec![b'x'; 100_000]);
            Ok(())
        },
    );
    let took = |path: &str| {
        let began = Instant::now();
        let (_, body, _) = split_reply(&running.get(path));
        assert_eq!(body.len(), 100_000);
        began.elapsed()
    };
    // Behind the burst of 16 KB there are 84 KB at 50 KB a second.
    let slow = took("/slow");
    assert!(slow > Duration::from_millis(1400), "{slow:?}");
    // The pool's limit would let it take no less than 840 ms: one attempt proves that it does not count.
    wait_until("a reply without a limit", || {
        took("/quick") < Duration::from_millis(700)
    });
    running.stop();
}

#[test]
fn a_limited_connection_gets_its_rate_and_no_more_and_is_not_blamed_for_it() {
    let running = serve_with(
        |config| {
            config.rates.connection = Some(Rate::BytesPerSec(100_000));
            config.timeouts.send = Nanos::from_ms(300);
            config.timeouts.send_rate_min = 1 << 30;
        },
        |_, writer| whole(writer, &vec![b'x'; 100_000]),
    );
    let mut stream = running.connect();
    let began = Instant::now();
    for _ in 0..2 {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut received = 0;
        let mut buffer = vec![0; 1 << 16];
        while received < 100_000 {
            let bytes = stream.read(&mut buffer).unwrap();
            assert!(bytes > 0, "cut after {received} bytes");
            received += bytes;
        }
    }
    // The bucket's burst comes once for the connection, not once for each reply.
    let took = began.elapsed();
    assert!(took > Duration::from_millis(1500), "{took:?}");
    assert!(took < PATIENCE / 2, "{took:?}");
    running.stop();
}

/// How a large response is given.
#[derive(Clone, Copy)]
enum Giving {
    Whole,
    Stream,
}

/// A house whose one worker answers with 32 MB, of which 1 MB of a stream may be unsent; says what became of the
/// last piece.
fn large_response(
    giving: Giving,
    change: impl FnOnce(&mut Config),
) -> (Running, mpsc::Receiver<Taken>) {
    let (done, handler_done) = mpsc::channel();
    let done = Mutex::new(done);
    let sent = numbered(32 << 20);
    let config = |config: &mut Config| {
        config.status_path = Some("/-/status".to_owned());
        config.pools[0].threads_min = 1;
        config.pools[0].threads_max = 1;
        config.delivery.reply_spool_bytes_max = 1 << 20;
        change(config);
    };
    let running = serve_with(config, move |_, writer| {
        writer.begin_ok("");
        let taken = match giving {
            Giving::Whole => writer.give_whole(&sent),
            Giving::Stream => {
                let mut pieces = sent.chunks(1 << 20).map(|piece| writer.give(piece));
                let other = pieces.find(|taken| *taken != Taken::All);
                other.unwrap_or(Taken::All)
            }
        };
        done.lock().unwrap().send(taken).unwrap();
        Ok(())
    });
    (running, handler_done)
}

/// Bytes that tell their place.
fn numbered(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 1000) as u8).collect()
}

#[test]
fn a_stream_larger_than_may_be_unsent_makes_the_application_wait() {
    let (running, handler_done) = large_response(Giving::Stream, |_| ());
    let mut stream = running.connect();
    stream.write_all(OLD_REQUEST).unwrap();
    let early = handler_done.recv_timeout(Duration::from_millis(1000));
    assert!(early.is_err(), "more is kept than may be");
    let reply = read_all(&mut stream);
    assert!(reply.ends_with(&numbered(32 << 20)));
    assert_eq!(handler_done.recv_timeout(PATIENCE), Ok(Taken::All));
    wait_for_figure(&running, "stream_waits", 1);
    let (_, lines) = running.stop();
    assert!(with(&lines, " end=").is_empty(), "{lines:?}");
}

#[test]
fn a_whole_response_makes_no_application_wait_whatever_its_size() {
    let (running, handler_done) = large_response(Giving::Whole, |_| ());
    let mut stream = running.connect();
    stream.write_all(OLD_REQUEST).unwrap();
    // The client has not read a byte.
    assert_eq!(handler_done.recv_timeout(PATIENCE), Ok(Taken::All));
    wait_for_figure(&running, "completed", 1);
    let (_, body, rest) = split_reply(&read_all(&mut stream));
    assert!(rest.is_empty() && body == numbered(32 << 20));
    assert_eq!(figure(&running, "stream_waits"), 0);
    running.stop();
}

#[test]
fn a_stream_whose_client_takes_nothing_is_cut_when_its_worker_has_waited_long_enough() {
    let (running, handler_done) = large_response(Giving::Stream, |config| {
        config.delivery.stream_wait_timeout = Nanos::from_ms(300);
    });
    let mut stream = running.connect();
    stream.write_all(OLD_REQUEST).unwrap();
    assert_eq!(handler_done.recv_timeout(PATIENCE), Ok(Taken::Gone));
    let mut reply = Vec::new();
    let error = stream.read_to_end(&mut reply).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    wait_for_figure(&running, "stream_waits", 1);
    let (_, lines) = running.stop();
    let lines = with(&lines, "GET / ");
    assert!(
        lines.len() == 1 && lines[0].contains("end=cut"),
        "{lines:?}"
    );
}

#[test]
fn clients_that_leave_while_they_wait_for_their_bandwidth_are_noticed() {
    let running = serve_with(
        |config| {
            config.rates.pool = Some(Rate::BytesPerSec(1000));
            config.status_path = Some("/-/status".to_owned());
        },
        |exchange, writer| match exchange.head().path() {
            b"/small" => whole(writer, b"small"),
            _ => whole(writer, &[b'x'; 64 << 10]),
        },
    );
    // The bucket's burst is for the first, and each of the others waits 50 ms longer.
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut stream = running.connect();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        socket2::SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        clients.push(stream);
    }
    let sending = |count| move |status: &str| status.contains(&format!("\"sending\":{count},"));
    let status = || text(&running.get("/-/status"));
    wait_until("all of them wait", || sending(200)(&status()));
    drop(clients);
    let began = Instant::now();
    wait_until("all of them are gone", || sending(0)(&status()));
    // Nor is their share of the bandwidth waited for.
    assert!(text(&running.get("/small")).ends_with("small"));
    let took = began.elapsed();
    // The least of them would wait for a minute.
    assert!(took < PATIENCE / 3, "{took:?}");
    running.stop();
}

#[test]
fn a_client_that_takes_the_last_reply_slowly_is_not_cut_by_a_short_send_timeout() {
    const BYTES: usize = 1 << 20;
    let running = serve_with(
        |config| {
            config.timeouts.send = Nanos::from_ms(2500);
            config.timeouts.send_rate_min = 100_000;
        },
        |_, writer| whole(writer, &vec![b'x'; BYTES]),
    );
    let mut stream = never_reading(&running, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut received = 0;
    let mut buffer = [0; 20_000];
    // 200 KB a second: twice as long as the time-out in all.
    let began = Instant::now();
    while received < BYTES {
        match stream.read(&mut buffer) {
            Ok(bytes @ 1..) => received += bytes,
            ended => panic!("cut after {received} bytes: {ended:?}"),
        }
        let due = Duration::from_nanos(received as u64 * 5000);
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
    running.stop();
}

#[test]
fn a_client_that_leaves_is_not_taken_for_an_application_that_gives_too_little() {
    let running = serve(|_, writer| {
        writer.begin_with_length(1_000_000_000);
        let deadline = Instant::now() + PATIENCE;
        while writer.give(b"x") == Taken::All && Instant::now() < deadline {}
        Ok(())
    });
    let mut stream = running.connect();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    drop(stream);
    let (_, lines) = running.stop();
    assert!(
        lines.len() == 1 && lines[0].contains("end=peer-gone"),
        "{lines:?}"
    );
}

#[test]
fn a_stream_hears_of_its_clients_leaving_at_the_second_piece_whoever_sends_it() {
    for limit in [None, Some(Rate::BytesPerSec(100_000))] {
        let left = Arc::new(AtomicBool::new(false));
        let has_left = Arc::clone(&left);
        let (done, handler_done) = mpsc::channel();
        let done = Mutex::new(done);
        let running = serve_with(
            |config| config.rates.pool = limit,
            move |_, writer| {
                writer.begin_ok("");
                let mut pieces_taken = 0;
                loop {
                    let is_alone = has_left.load(Ordering::Relaxed);
                    if writer.give(b"data: 1\n\n") == Taken::Gone {
                        break;
                    }
                    pieces_taken += usize::from(is_alone);
                    // Whoever sends it is to have heard of it by the next.
                    let pause_ms = if is_alone { 1500 } else { 100 };
                    thread::sleep(Duration::from_millis(pause_ms));
                }
                done.lock().unwrap().send(pieces_taken).unwrap();
                Ok(())
            },
        );
        let mut stream = running.connect();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        for _ in 0..2 {
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        }
        drop(stream);
        left.store(true, Ordering::Relaxed);
        // The first makes the client's side say that nobody is there.
        let pieces_taken = handler_done.recv_timeout(PATIENCE).unwrap();
        assert!(pieces_taken <= 1, "{limit:?}: {pieces_taken}");
        running.stop();
    }
}

#[test]
fn a_client_that_has_only_closed_its_side_gets_the_rest_of_its_stream() {
    let (left, has_left) = mpsc::channel::<()>();
    let has_left = Mutex::new(has_left);
    let (heard, hears) = mpsc::channel();
    let heard = Mutex::new(heard);
    let running = serve(move |_, writer| {
        writer.begin_ok("");
        assert_eq!(writer.give(b"first"), Taken::All);
        has_left.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        assert!(writer.is_quick(4), "nothing waits for a client");
        heard.lock().unwrap().send(writer.give(b"next")).unwrap();
        Ok(())
    });
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut reading = running.connect();
    reading.write_all(request).unwrap();
    reading.shutdown(std::net::Shutdown::Write).unwrap();
    left.send(()).unwrap();
    assert!(text(&read_all(&mut reading)).ends_with("4\r\nnext\r\n0\r\n\r\n"));
    assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), Taken::All);
    running.stop();
}
