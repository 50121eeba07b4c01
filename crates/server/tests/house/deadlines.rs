//! Deadlines at their edges: what must not renew them, and what must.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use measure::Nanos;

use super::support::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn an_empty_line_does_not_renew_the_idle_time() {
    let running = serve_with(|config| config.timeouts.idle = Nanos::from_ms(4000), echo);
    let began = Instant::now();
    let mut stream = running.connect();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(stream.read(&mut [0; 512]).unwrap() > 0);
    // So late that a time which they renewed would end far behind the one they did not.
    for (byte, pause_ms) in [(b'\r', 3300), (b'\n', 200)] {
        thread::sleep(ms(pause_ms));
        // A machine that stood still meanwhile may have let the time pass.
        let _ = stream.write_all(&[byte]);
    }
    let ended = stream.read(&mut [0; 512]);
    let took = began.elapsed();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert!(took >= ms(4000) && took < ms(7000), "closed after {took:?}");
    running.stop();
}

#[test]
fn a_head_behind_one_that_was_answered_at_once_has_its_own_time() {
    let running = serve_with(
        |config| {
            config.timeouts.head = Nanos::from_ms(4000);
            config.status_path = Some("/-/status".to_owned());
        },
        echo,
    );
    let mut stream = running.connect();
    stream.write_all(b"GET /-/status HTTP/1.1\r\n").unwrap();
    thread::sleep(ms(2500));
    stream
        .write_all(b"Host: a\r\n\r\nGET /next HTTP/1.1\r\n")
        .unwrap();
    thread::sleep(ms(2500));
    stream
        .write_all(b"Host: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let reply = text(&read_all(&mut stream));
    assert!(reply.ends_with("[/next empty 0 0]"), "{reply}");
    running.stop();
}

#[test]
fn the_time_of_a_slow_head_is_in_the_record_of_its_refused_body() {
    let running = serve_with(|config| config.timeouts.body = Nanos::from_ms(300), echo);
    let mut stream = running.connect();
    stream.write_all(b"POST / HTTP/1.1\r\n").unwrap();
    thread::sleep(ms(3000));
    stream
        .write_all(b"Host: a\r\nContent-Length: 5\r\n\r\n")
        .unwrap();
    assert!(text(&read_all(&mut stream)).starts_with("HTTP/1.1 408 "));
    let (_, lines) = running.stop();
    let receive = lines[0].split(" receive=").nth(1).unwrap();
    let secs: f64 = receive.split(' ').next().unwrap().parse().unwrap();
    // It began when the server accepted it, which may be later than the client connected; the body's time
    // alone is a tenth of this.
    assert!(secs >= 1.6, "{lines:?}");
}
