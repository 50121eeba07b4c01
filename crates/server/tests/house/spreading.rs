//! Which driver has which connection, and that bounds hold wherever one is on its way.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use server::config::meant::{Bind, Config, Pool, Steering};

use super::support::*;

fn ask_status(stream: &mut (impl Read + Write)) -> serde_json::Value {
    stream
        .write_all(b"GET /-/status HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut reply = Vec::new();
    let mut piece = [0; 8192];
    loop {
        let bytes = stream.read(&mut piece).unwrap();
        assert!(bytes > 0);
        reply.extend_from_slice(&piece[..bytes]);
        // The page is one line of JSON.
        if reply.ends_with(b"}\n") {
            let reply = text(&reply);
            return serde_json::from_str(&reply[reply.find("\r\n\r\n").unwrap()..]).unwrap();
        }
    }
}

fn numbers(status: &serde_json::Value, name: &str) -> Vec<u64> {
    let drivers = status["drivers"].as_array().unwrap();
    drivers
        .iter()
        .map(|driver| driver[name].as_u64().unwrap())
        .collect()
}

fn with_drivers(drivers: usize) -> impl Fn(&mut Config) {
    move |config| {
        config.listen.drivers = drivers;
        config.status_path = Some("/-/status".to_owned());
    }
}

#[test]
fn sixteen_long_connections_on_four_drivers_are_four_each() {
    for _ in 0..12 {
        let running = serve_with(with_drivers(4), echo);
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let address = running.address;
                let connect = move || TcpStream::connect(address).unwrap();
                std::thread::spawn(move || (0..4).map(|_| connect()).collect::<Vec<_>>())
            })
            .collect();
        let mut all: Vec<TcpStream> = clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect();
        let mut status = serde_json::Value::Null;
        wait_until("all are in", || {
            status = ask_status(&mut all[0]);
            numbers(&status, "open").iter().sum::<u64>() == 16
        });
        assert_eq!(numbers(&status, "open"), [4; 4]);
        // Each of them is served where it is now.
        for stream in &mut all {
            status = ask_status(stream);
            assert_eq!(numbers(&status, "open"), [4; 4]);
        }
        let sum = |name| numbers(&status, name).iter().sum::<u64>();
        assert_eq!(sum("accepted"), 16);
        assert_eq!(sum("handed_over"), sum("taken_over"));
        drop(all);
        let mut last = running.connect();
        wait_until("all have left", || {
            numbers(&ask_status(&mut last), "open").iter().sum::<u64>() == 1
        });
        drop(last);
        running.stop();
    }
}

fn serve_unix<F>(change: impl Fn(&mut Config), handler: F) -> (Running, PathBuf)
where
    F: Fn(&mut server::exchange::Exchange, &mut server::response::ResponseWriter) -> Answer
        + Send
        + Sync
        + 'static,
{
    let (mut config, dir) = config();
    let path = dir.path().join("a.sock");
    config.binds.push(Bind::Unix(path.clone()));
    change(&mut config);
    (run(config, dir, Some(Arc::new(handler))), path)
}

fn connect_unix(path: &PathBuf) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_unix_socket_is_spread_over_all_drivers() {
    let (running, path) = serve_unix(with_drivers(4), echo);
    let mut held: Vec<UnixStream> = (0..16).map(|_| connect_unix(&path)).collect();
    wait_until("all are in", || {
        numbers(&ask_status(&mut held[0]), "open") == [4; 4]
    });
    for _ in 0..200 {
        let mut stream = connect_unix(&path);
        stream
            .write_all(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.ends_with("[/x empty 0 0]"), "{reply}");
    }
    let status = ask_status(&mut held[0]);
    let accepted = numbers(&status, "accepted");
    assert_eq!(accepted.iter().sum::<u64>(), 216);
    assert!(
        accepted.iter().all(|count| (30..90).contains(count)),
        "{accepted:?}"
    );
    // They went where they are at once.
    assert_eq!(numbers(&status, "handed_over"), [0; 4]);
    drop(held);
    let (ended, _) = running.stop();
    assert_eq!(ended.cut, 0);
    assert!(!path.exists());
}

/// Twelve clients of a house for eight: never more than eight are in, and all are served.
/// Gives sixteen in all, because the gate lets eight pass at a time.
fn check_bound<S: Read + Write>(
    serve: impl FnOnce(&dyn Fn(&mut Config), Box<Wait>) -> Running,
    connect: impl Fn(&Running) -> S,
) {
    let gate = Arc::new(Barrier::new(9));
    let inside = Arc::new(AtomicUsize::new(0));
    let (at_gate, seen) = (Arc::clone(&gate), Arc::clone(&inside));
    let wait = move |path: &[u8]| {
        if path == b"/busy" {
            seen.fetch_add(1, Ordering::Relaxed);
            at_gate.wait();
        }
    };
    let change = |config: &mut Config| {
        config.listen.drivers = 4;
        config.listen.connections_max = 8;
        config.pools[0] = Pool {
            threads_min: 16,
            threads_max: 16,
            queue_len_max: 100,
            ..Pool::default()
        };
    };
    let running = serve(&change, Box::new(wait));
    let ask = |path: &str| {
        let mut stream = connect(&running);
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        stream
    };
    let mut all: Vec<S> = (0..12).map(|_| ask("/busy")).collect();
    wait_until("it is full", || inside.load(Ordering::Relaxed) == 8);
    // As long as a driver that rests takes to look for room.
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(inside.load(Ordering::Relaxed), 8);
    gate.wait();
    wait_until("the others are in", || inside.load(Ordering::Relaxed) == 12);
    let mut more: Vec<S> = (0..4).map(|_| ask("/busy")).collect();
    gate.wait();
    for stream in all.iter_mut().chain(&mut more) {
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.ends_with("served"), "{reply}");
    }
    running.stop();
}

type Wait = dyn Fn(&[u8]) + Send + Sync;

#[test]
fn the_bound_of_connections_holds_while_they_are_handed_over() {
    check_bound(
        |change, wait| {
            serve_with(change, move |exchange, writer| {
                wait(exchange.head().path());
                whole(writer, b"served")
            })
        },
        Running::connect,
    );
}

#[test]
fn the_bound_of_connections_holds_for_a_socket_that_drivers_share() {
    check_bound(
        |change, wait| {
            let (running, _) = serve_unix(change, move |exchange, writer| {
                wait(exchange.head().path());
                whole(writer, b"served")
            });
            running
        },
        |running| connect_unix(&running.dir.path().join("a.sock")),
    );
}

#[test]
fn connections_of_the_driver_s_own_processor_are_counted() {
    // The client's processor is the one that its packets come in on.
    let mine = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..1024).find(|cpu| mine.is_set(*cpu)).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    for (steering, expect) in [(Steering::Cpu, 5), (Steering::Hash, 0)] {
        let running = serve_with(
            |config| {
                with_drivers(1)(config);
                config.listen.driver_cpus = vec![cpu];
                config.listen.steering = steering;
            },
            echo,
        );
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        let mut all: Vec<TcpStream> = (0..5).map(|_| running.connect()).collect();
        rustix::thread::sched_setaffinity(None, &mine).unwrap();
        let mut status = serde_json::Value::Null;
        wait_until("all are in", || {
            status = ask_status(&mut all[4]);
            numbers(&status, "accepted") == [5]
        });
        assert_eq!(numbers(&status, "local_cpu"), [expect]);
        drop(all);
        running.stop();
    }
}
