//! Ids of requests: whose word counts, where they show, and that no two are the same.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use server::config::meant::{Bind, Config, RequestIds, StaticMount};
use server::exchange::Exchange;
use server::fault::Fault;
use server::response::ResponseWriter;

use super::support::*;

/// Ids are shown; those of clients with this address count.
fn trusting(address: &str) -> impl FnOnce(&mut Config) + use<> {
    let network = (address.parse().unwrap(), 32);
    move |config| {
        config.request_ids = RequestIds {
            header: Some("x-request-id".to_owned()),
            trust: vec![network],
        };
    }
}

/// Answers with the id as a handler sees it.
fn tell(exchange: &mut Exchange, writer: &mut ResponseWriter) -> Answer {
    let id = exchange.request_id().to_vec();
    whole(writer, &id)
}

/// Every id in the heads of `replies`, which have no such line in their bodies.
fn ids(replies: &[u8]) -> Vec<String> {
    let replies = text(replies);
    let lines = replies.lines();
    lines
        .filter_map(|line| line.strip_prefix("X-Request-Id: "))
        .map(str::to_owned)
        .collect()
}

/// The ids of lines of the access log.
fn logged(lines: &[String]) -> Vec<&str> {
    let fields = lines.iter().flat_map(|line| line.split(' '));
    fields
        .filter_map(|field| field.strip_prefix("id="))
        .collect()
}

fn is_made(id: &str) -> bool {
    id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn ask_with(running: &Running, lines: &str) -> Vec<u8> {
    running.ask(format!("GET /a HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes())
}

/// Asks for an id and checks that handler and reply have the same one; gives it.
fn id_of(running: &Running, lines: &str) -> String {
    let reply = ask_with(running, lines);
    let (_, body, _) = split_reply(&reply);
    assert_eq!(ids(&reply), [text(&body)], "{lines:?}");
    text(&body)
}

#[test]
fn the_id_of_a_trusted_client_counts_if_it_is_there_once_and_in_form() {
    let running = serve_with(trusting("127.0.0.1"), tell);
    let long = "a".repeat(128);
    for given in ["a", "0f-3_!~:;/+={}<>", &long] {
        let lines = format!("x-REQUEST-id: {given}\r\n");
        assert_eq!(id_of(&running, &lines), given);
    }
    let refused = [
        String::new(),
        "X-Request-Id:\r\n".to_owned(),
        "X-Request-Id: a\r\nX-Request-Id: a\r\n".to_owned(),
        "X-Request-Id: a\r\nX-Other: b\r\nx-request-id: b\r\n".to_owned(),
        format!("X-Request-Id: a{long}\r\n"),
        "X-Request-Id: a b\r\n".to_owned(),
        "X-Request-Id: a,b\r\n".to_owned(),
        "X-Request-Id: [a]\r\n".to_owned(),
        "X-Request-Id: a\"b\r\n".to_owned(),
        "X-Request-Id: a\\b\r\n".to_owned(),
        "X-Request-Id: \u{e9}\r\n".to_owned(),
        "X_Request_Id: a\r\n".to_owned(),
    ];
    for lines in refused {
        let id = id_of(&running, &lines);
        assert!(is_made(&id), "{lines:?} {id}");
    }
    running.stop();
}

#[test]
fn nobody_else_chooses_an_id() {
    let running = serve_with(trusting("127.0.0.2"), tell);
    assert!(is_made(&id_of(&running, "X-Request-Id: mine\r\n")));
    running.stop();
}

#[test]
fn a_client_on_a_unix_socket_is_trusted() {
    let (mut config, dir) = config();
    let path = dir.path().join("socket");
    config.binds.push(Bind::Unix(path.clone()));
    trusting("127.0.0.2")(&mut config);
    let running = run(config, dir, Some(Arc::new(tell)));
    let mut stream = UnixStream::connect(path).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n")
        .unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert_eq!(ids(&reply), ["mine"]);
    running.stop();
}

#[test]
fn without_the_setting_only_the_handler_has_an_id() {
    let running = serve(tell);
    let reply = ask_with(&running, "X-Request-Id: mine\r\n");
    let (head, body, _) = split_reply(&reply);
    assert!(is_made(&text(&body)), "{reply:?}");
    assert!(!head.to_ascii_lowercase().contains("request-id"), "{head}");
    let (_, lines) = running.stop();
    assert_eq!(logged(&lines), [text(&body)]);
}

#[test]
fn requests_of_one_connection_keep_their_ids_apart() {
    let running = serve_with(trusting("127.0.0.1"), tell);
    let one = |lines: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let posted =
        "POST / HTTP/1.1\r\nHost: a\r\nX-Request-Id: with-a-body\r\nContent-Length: 2000\r\n\r\n";
    let body = "b".repeat(2_000);
    let requests = [
        one("X-Request-Id: first\r\n"),
        one(""),
        format!("{posted}{body}"),
        one(""),
        one("X-Other: other\r\nX-Request-Id: last\r\n"),
    ];
    let pipelined = ids(&running.ask(requests.concat().as_bytes()));
    let mut stream = running.connect();
    let mut alternating = Vec::new();
    for request in &requests {
        stream.write_all(request.as_bytes()).unwrap();
        alternating.extend(ids(&one_reply(&mut stream)));
    }
    drop(stream);
    let (_, lines) = running.stop();
    assert_eq!(logged(&lines), [&*pipelined, &alternating].concat());
    for found in [pipelined, alternating] {
        assert_eq!(found.len(), 5, "{found:?}");
        assert_eq!(
            [&*found[0], &found[2], &found[4]],
            ["first", "with-a-body", "last"]
        );
        assert!(is_made(&found[1]) && is_made(&found[3]) && found[1] != found[3]);
    }
}

/// The next reply with `Content-Length` on a connection that stays open.
fn one_reply(stream: &mut TcpStream) -> Vec<u8> {
    let mut reply = Vec::new();
    let mut byte = [0];
    while !reply.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        reply.push(byte[0]);
    }
    let head = text(&reply);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    reply.extend_from_slice(&body);
    reply
}

#[test]
fn files_refusals_and_errors_have_the_header_once() {
    let (mut config, dir) = config();
    std::fs::create_dir(dir.path().join("files")).unwrap();
    std::fs::write(dir.path().join("files/small.txt"), "small").unwrap();
    std::fs::write(dir.path().join("files/large.bin"), vec![9; 3 << 20]).unwrap();
    config.statics = vec![StaticMount {
        url: "/f".to_owned(),
        dir: dir.path().join("files"),
        index: "index.html".to_owned(),
        fallback: None,
    }];
    config.status_path = Some("/-/status".to_owned());
    config.limits.body_bytes_max = 3_000;
    trusting("127.0.0.1")(&mut config);
    let answer = |exchange: &mut Exchange, writer: &mut ResponseWriter| match exchange.path() {
        b"/fault" => Err(Fault::App("on purpose".to_owned())),
        b"/panic" => panic!("on purpose"),
        b"/own" => {
            writer.begin_ok("x-REQUEST-ID: own\r\n");
            writer.give_whole(b"");
            Ok(())
        }
        b"/stream" => {
            writer.begin_ok("");
            writer.give(b"one");
            writer.give(b"two");
            Ok(())
        }
        _ => tell(exchange, writer),
    };
    let running = run(config, dir, Some(Arc::new(answer)));
    let check = |status: u16, request: &str| {
        let request = request.replace("{id}", "Host: a\r\nX-Request-Id: mine\r\n\r\n");
        let reply = running.ask(request.as_bytes());
        let begin = format!("HTTP/1.1 {status} ");
        assert!(
            reply.starts_with(begin.as_bytes()),
            "{}",
            text(&reply[..99])
        );
        ids(&reply[..reply.len().min(600)])
    };
    for (status, line) in [
        (200, "GET /f/small.txt"),
        (200, "GET /f/small.txt"),
        (200, "GET /f/large.bin"),
        (200, "HEAD /f/small.txt"),
        (404, "GET /f/nothing"),
        (405, "DELETE /f/small.txt"),
        (200, "GET /-/status"),
        (200, "OPTIONS *"),
        (500, "GET /fault"),
        (500, "GET /panic"),
        (200, "GET /stream"),
        (200, "HEAD /anything"),
    ] {
        let found = check(status, &format!("{line} HTTP/1.1\r\n{{id}}"));
        assert_eq!(found, ["mine"], "{line}");
    }
    assert_eq!(
        check(413, "POST /x HTTP/1.1\r\nContent-Length: 5000\r\n{id}"),
        ["mine"]
    );
    assert_eq!(
        check(
            400,
            "POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{id}xyz\r\n"
        ),
        ["mine"]
    );
    // What its own line says is not overruled.
    assert!(check(200, "GET /own HTTP/1.1\r\n{id}").is_empty());
    // A head that is refused has no fields to be believed.
    let refused = check(
        400,
        "GET /x HTTP/1.1\r\nX-Request-Id: mine\r\nBad Name: x\r\n\r\n",
    );
    assert!(refused.len() == 1 && is_made(&refused[0]), "{refused:?}");
    let (_, lines) = running.stop();
    let (last, named) = lines.split_last().unwrap();
    assert!(last.contains(&format!(" id={} ", refused[0])), "{last}");
    for line in named {
        assert!(line.contains(" id=mine "), "{line}");
        // What the driver answered by itself has been in no pool.
        let of_pool = ["/fault", "/panic", "/own", "/stream", "/anything"];
        let expected = of_pool.iter().any(|path| line.contains(path));
        assert_eq!(line.contains(" pool=default"), expected, "{line}");
    }
}

#[test]
fn ten_thousand_requests_on_two_drivers_have_as_many_ids() {
    let change = |config: &mut Config| {
        trusting("127.0.0.2")(config);
        config.listen.drivers = 2;
    };
    let running = Arc::new(serve_with(change, tell));
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let running = Arc::clone(&running);
            thread::spawn(move || {
                let stream = running.connect();
                let mut requests = stream.try_clone().unwrap();
                let writer = thread::spawn(move || {
                    for _ in 0..500 {
                        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
                        requests.write_all(request).unwrap();
                    }
                    requests.shutdown(Shutdown::Write).unwrap();
                });
                let lines = BufReader::new(stream).lines().map(Result::unwrap);
                let found: Vec<String> = lines
                    .filter_map(|line| line.strip_prefix("X-Request-Id: ").map(str::to_owned))
                    .collect();
                writer.join().unwrap();
                found
            })
        })
        .collect();
    let found: Vec<String> = clients
        .into_iter()
        .flat_map(|client| client.join().unwrap())
        .collect();
    let distinct: HashSet<&str> = found.iter().map(|id| &**id).collect();
    assert_eq!((found.len(), distinct.len()), (10_000, 10_000));
    assert!(found.iter().all(|id| is_made(id)));
    let (_, lines) = Arc::into_inner(running).unwrap().stop();
    assert_eq!(HashSet::from_iter(logged(&lines)), distinct);
}
