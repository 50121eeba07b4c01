//! Requests and replies: order, framing, faults.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use server::fault::Fault;
use server::response::{Declared, Taken};

use super::support::*;

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
fn a_refusal_has_nothing_of_the_response_that_it_replaces() {
    let running = serve(|_, writer| {
        let declared = Declared {
            content_length: Some(10),
            date: true,
            server: true,
            close: true,
            ..Declared::default()
        };
        let lines = "Content-Length: 10\r\nDate: never\r\nServer: mine\r\n";
        writer.begin_with(200, lines, declared);
        Err(Fault::App("on purpose".to_owned()))
    });
    let reply = text(&running.get("/"));
    assert!(reply.starts_with("HTTP/1.1 500 "), "{reply}");
    for name in ["Date", "Server", "Content-Length"] {
        let lines = reply.matches(&format!("\r\n{name}: ")).count();
        assert_eq!(lines, 1, "{name}: {reply}");
    }
    assert!(
        !reply.contains("never") && !reply.contains("mine"),
        "{reply}"
    );
    assert!(!reply.contains("Connection: close"), "{reply}");
    running.stop();
}

#[test]
fn a_cut_reply_that_ends_with_its_connection_ends_in_a_reset() {
    let running = serve(|_, writer| {
        writer.begin_ok("");
        writer.give(b"half of it");
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
    let running = serve(|exchange, writer| {
        writer.begin_with_length(5);
        let long = exchange.head().path() == b"/long";
        let taken = writer.give(if long { "abcdefgh" } else { "abc" });
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
fn the_last_reply_arrives_whole_although_the_client_sent_more() {
    let large = vec![b'x'; 3 << 20];
    let running = serve(move |_, writer| whole(writer, &large));
    let mut stream = running.connect();
    // The empty line after the body and the request behind it are never read.
    let sent =
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab\r\nGET /";
    stream.write_all(sent).unwrap();
    let (_, body, _) = split_reply(&read_all(&mut stream));
    assert_eq!(body.len(), 3 << 20);
    running.stop();
}
