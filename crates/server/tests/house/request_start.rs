//! What a proxy says about when it got a request: who is believed, and where it shows.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{SystemTime, UNIX_EPOCH};

use measure::Nanos;
use server::config::meant::{Bind, Config};
use server::exchange::Exchange;
use server::response::ResponseWriter;

use super::support::*;

/// Longer than a busy machine needs to get a request from one line of a test to the next.
const WAITED_SECS: u64 = 300;

fn believing(address: &str) -> impl FnOnce(&mut Config) + use<> {
    let network = (address.parse().unwrap(), 32);
    move |config| {
        config.request_start_from = vec![network];
        // That wait counts, and is to be none too many.
        config.pools[0].queue_timeout = Nanos::from_secs(10 * WAITED_SECS);
        config.pools[0].overload_timeout = Nanos::from_secs(10 * WAITED_SECS);
    }
}

/// Answers with the whole seconds that the exchange had waited before it came.
fn tell(exchange: &mut Exchange, writer: &mut ResponseWriter) -> Answer {
    let secs = exchange.record.queued.before.0 / 1_000_000_000;
    whole(writer, secs.to_string().as_bytes())
}

/// A request that a proxy got `WAITED_SECS` ago; whole seconds are not quite that long ago.
fn late_request() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let started_secs = now.as_secs() - WAITED_SECS;
    format!(
        "GET /late HTTP/1.1\r\nHost: h\r\nX-Request-Start: t={started_secs}.000\r\nConnection: close\r\n\r\n"
    )
}

/// The seconds that a reply tells of.
fn told_secs(reply: &[u8]) -> u64 {
    let reply = text(reply);
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    body.parse().unwrap()
}

#[test]
fn a_believed_client_tells_how_long_a_request_has_waited() {
    let running = serve_with(believing("127.0.0.1"), tell);
    let secs = told_secs(&running.ask(late_request().as_bytes()));
    assert!((WAITED_SECS..WAITED_SECS + 60).contains(&secs), "{secs}");
    let none = told_secs(&running.get("/late"));
    assert_eq!(none, 0);
    let (_, lines) = running.stop();
    assert!(lines[0].contains(" before=3"), "{lines:?}");
    assert!(!lines[1].contains(" before="), "{lines:?}");
}

#[test]
fn who_has_waited_too_long_elsewhere_is_refused() {
    let running = serve_with(
        |config| {
            believing("127.0.0.1")(config);
            config.pools[0].queue_timeout = Nanos::from_secs(WAITED_SECS - 60);
        },
        tell,
    );
    let reply = text(&running.ask(late_request().as_bytes()));
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    assert_eq!(told_secs(&running.get("/late")), 0);
    let (_, lines) = running.stop();
    assert!(lines[0].contains("waited too long"), "{lines:?}");
}

#[test]
fn others_are_not_believed() {
    for change in [None, Some(believing("127.0.0.2"))] {
        let running = serve_with(
            |config| change.into_iter().for_each(|change| change(config)),
            tell,
        );
        assert_eq!(told_secs(&running.ask(late_request().as_bytes())), 0);
        let (_, lines) = running.stop();
        assert!(!lines[0].contains(" before="), "{lines:?}");
    }
}

#[test]
fn a_unix_socket_is_believed_where_anybody_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let bind = Bind::Unix(path.clone());
    let running = serve_with(
        |config| {
            believing("192.0.2.1")(config);
            config.binds.push(bind);
        },
        tell,
    );
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(late_request().as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let secs = told_secs(&reply);
    assert!((WAITED_SECS..WAITED_SECS + 60).contains(&secs), "{secs}");
    running.stop();
}
