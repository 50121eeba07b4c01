//! Bounds: full queues, full tables.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use server::config::meant::Pool;

use super::pools::{begin, wait_for_figure};
use super::support::*;

#[test]
fn a_full_queue_is_refused_at_once_and_the_rest_is_served() {
    let gate = Arc::new(Barrier::new(2));
    let at_gate = Arc::clone(&gate);
    let running = serve_with(
        |config| {
            config.status_path = Some("/-/status".to_owned());
            config.pools[0] = Pool {
                threads_min: 1,
                threads_max: 1,
                queue_len_max: 2,
                ..Pool::default()
            }
        },
        move |exchange, writer| {
            if exchange.head().path() == b"/wait" {
                at_gate.wait();
            }
            whole(writer, b"served")
        },
    );
    let _first = begin(&running, "/wait");
    wait_for_figure(&running, "running", 1);
    let waiting = [(); 2].map(|()| begin(&running, "/queued"));
    wait_for_figure(&running, "waiting", 2);
    let refused = text(&running.get("/queued"));
    assert!(
        refused.starts_with("HTTP/1.1 503 ") && refused.contains("Retry-After: "),
        "{refused}"
    );
    gate.wait();
    for mut stream in waiting {
        assert!(text(&read_all(&mut stream)).ends_with("served"));
    }
    assert!(text(&running.get("/later")).ends_with("served"));
    running.stop();
}

#[test]
fn connections_beyond_the_bound_wait_their_turn() {
    let gate = Arc::new(Barrier::new(5));
    let entered = Arc::new(AtomicUsize::new(0));
    let (at_gate, seen) = (Arc::clone(&gate), Arc::clone(&entered));
    let running = serve_with(
        |config| config.listen.connections_max = 4,
        move |exchange, writer| {
            seen.fetch_add(1, Ordering::Relaxed);
            if exchange.head().path() == b"/wait" {
                at_gate.wait();
            }
            whole(writer, b"served")
        },
    );
    // None of them is idle: those would make room.
    let held = [(); 4].map(|()| begin(&running, "/wait"));
    wait_until("it is full", || entered.load(Ordering::Relaxed) == 4);
    let mut fifth = begin(&running, "/fifth");
    fifth
        .set_read_timeout(Some(Duration::from_millis(600)))
        .unwrap();
    assert!(fifth.read(&mut [0; 512]).is_err(), "it is not accepted yet");
    gate.wait();
    for mut stream in held {
        assert!(text(&read_all(&mut stream)).ends_with("served"));
    }
    fifth.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(text(&read_all(&mut fifth)).ends_with("served"));
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
fn a_client_has_no_more_connections_than_its_cap() {
    let running = serve_with(
        |config| {
            config.listen.client_connections_max = Some(2);
            config.status_path = Some("/-/status".to_owned());
        },
        echo,
    );
    let mut first = running.connect();
    first
        .write_all(b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(first.read(&mut [0; 512]).unwrap() > 0);
    let second = running.connect();
    let mut third = running.connect();
    let reply = text(&read_all(&mut third));
    assert!(reply.starts_with("HTTP/1.1 429 "), "{reply}");
    drop(second);
    let served = || text(&running.get("/again")).starts_with("HTTP/1.1 200 ");
    wait_until("room for another one", served);
    let status = text(&running.get("/-/status"));
    assert!(status.contains("\"crowded_clients\":"), "{status}");
    drop(first);
    running.stop();
}

#[test]
fn the_oldest_idle_connection_makes_room_at_the_bound() {
    let running = serve_with(|config| config.listen.connections_max = 4, echo);
    let ask = |stream: &mut TcpStream, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        assert!(stream.read(&mut [0; 512]).unwrap() > 0);
    };
    let mut held: Vec<TcpStream> = (0..4).map(|_| running.connect()).collect();
    for stream in &mut held {
        ask(stream, "/");
    }
    // A fifth client is served although none of the four has left.
    assert!(text(&running.get("/fifth")).ends_with("[/fifth empty 0 0]"));
    drop(held);
    running.stop();
}

/// What a client reads up to the end, or up to a reset behind the reply.
fn read_what_there_is(stream: &mut TcpStream) -> String {
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    text(&reply)
}

#[test]
fn whoever_has_sent_nothing_at_the_bound_is_answered_and_logged() {
    let running = serve_with(
        |config| {
            config.listen.drivers = 1;
            config.listen.connections_max = 16;
            config.status_path = Some("/-/status".to_owned());
        },
        echo,
    );
    let mut held: Vec<TcpStream> = (0..24).map(|_| running.connect()).collect();
    // Nobody sends anything until the first has been asked to make room.
    let mut replies = vec![read_what_there_is(&mut held[0])];
    assert!(replies[0].contains("Retry-After: 1\r\n"), "{replies:?}");
    for stream in &mut held[1..] {
        // It may have been answered meanwhile, and be closed.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        replies.push(read_what_there_is(stream));
    }
    let count = |start: &str| replies.iter().filter(|r| r.starts_with(start)).count();
    let (served, refused) = (count("HTTP/1.1 200 "), count("HTTP/1.1 503 "));
    assert_eq!(served + refused, 24, "{replies:?}");
    assert!(refused > 0 && served > 0, "{replies:?}");
    let status = text(&running.get("/-/status"));
    assert!(
        status.contains(&format!("\"crowded\":{refused}")),
        "{status}"
    );
    let (_, log) = running.stop();
    let line = "\" 503 24 \"-\" \"-\" ";
    let cause =
        "end=refused cause=\"nothing was sent, and others need the place (connections_max)\"";
    let lines = log.iter().filter(|l| l.contains(line) && l.contains(cause));
    assert_eq!((lines.count(), log.len()), (refused, 25), "{log:?}");
}

#[test]
fn one_idle_connection_makes_room_for_another_where_all_others_are_busy() {
    let gate = Arc::new(Barrier::new(16));
    let at_gate = Arc::clone(&gate);
    let running = serve_with(
        |config| {
            config.listen.connections_max = 16;
            config.pools[0] = Pool {
                threads_min: 15,
                threads_max: 15,
                queue_len_max: 100,
                ..Pool::default()
            };
        },
        move |exchange, writer| {
            if exchange.head().path() == b"/busy" {
                at_gate.wait();
            }
            whole(writer, b"served")
        },
    );
    let mut idle = running.connect();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(idle.read(&mut [0; 512]).unwrap() > 0);
    let mut busy: Vec<TcpStream> = (0..15).map(|_| running.connect()).collect();
    for stream in &mut busy {
        stream
            .write_all(b"GET /busy HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
    }
    assert_eq!(idle.read(&mut [0; 512]).unwrap(), 0, "it makes room");
    // All threads are busy: the server itself refuses this one, which is an answer.
    let reply = text(&running.get("*"));
    gate.wait();
    assert!(reply.starts_with("HTTP/1.1 4"), "{reply}");
    running.stop();
}

#[test]
fn connections_that_are_away_are_not_taken_for_some_that_leave() {
    let gate = Arc::new(Barrier::new(16));
    let at_gate = Arc::clone(&gate);
    let running = serve_with(
        |config| {
            config.listen.connections_max = 16;
            config.status_path = Some("/-/status".to_owned());
            config.pools[0] = Pool {
                threads_min: 15,
                threads_max: 15,
                queue_len_max: 100,
                ..Pool::default()
            };
        },
        move |_, writer| {
            at_gate.wait();
            whole(writer, b"served")
        },
    );
    let mut busy: Vec<TcpStream> = (0..15).map(|_| running.connect()).collect();
    for stream in &mut busy {
        stream
            .write_all(b"GET /busy HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
    }
    // By then the server has looked whether their replies are out.
    std::thread::sleep(Duration::from_millis(1500));
    // Not when its second is over; an attempt that the machine held up proves neither.
    wait_until("its place is free at once", || {
        let mut idle = running.connect();
        let began = Instant::now();
        idle.write_all(b"GET /-/status HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let status = text(&read_all(&mut idle));
        assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
        began.elapsed() < Duration::from_millis(900)
    });
    gate.wait();
    running.stop();
}

#[test]
fn clients_that_are_never_idle_for_long_make_room_whichever_driver_has_them() {
    for path in ["/-/status", "/app"] {
        let running = Arc::new(serve_with(
            |config| {
                config.listen.drivers = 2;
                config.listen.connections_max = 32;
                config.status_path = Some("/-/status".to_owned());
            },
            echo,
        ));
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let entered = Arc::new(Barrier::new(33));
        let is_over = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..32)
            .map(|_| {
                let (running, request) = (Arc::clone(&running), request.clone());
                let (entered, is_over) = (Arc::clone(&entered), Arc::clone(&is_over));
                std::thread::spawn(move || {
                    let mut stream = running.connect();
                    let mut ask = || {
                        stream.write_all(request.as_bytes()).is_ok()
                            && stream.read(&mut [0; 8192]).is_ok_and(|bytes| bytes > 0)
                    };
                    assert!(ask());
                    entered.wait();
                    // Who was idle for the longest time at one look of the server's has asked again by the
                    // next.
                    while ask() && !is_over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(300));
                    }
                })
            })
            .collect();
        entered.wait();
        assert!(text(&running.get("/new")).ends_with("[/new empty 0 0]"));
        is_over.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .for_each(|client| client.join().unwrap());
        Arc::into_inner(running).unwrap().stop();
    }
}
