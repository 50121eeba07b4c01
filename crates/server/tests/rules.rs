//! Rules and error pages as clients see them: raw bytes over real sockets.
//!
//! No parser of ours is used to read replies.

#![allow(clippy::unwrap_used)] // All of this file is tests.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use server::House;
use server::config::meant::{
    AccessLog, Bind, Config, ErrorPage, FixedReply, LogTarget, Logs, PathPattern, Redirect,
    Rewrite, Rules, StaticMount,
};
use server::exchange::Exchange;
use server::fault::Fault;
use server::response::{Amount, Declared, ResponseWriter};
use wire::FieldLines;

/// Longest time that anything here may take; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

fn pattern(from: &str) -> PathPattern {
    match from.strip_suffix('*') {
        Some(beginning) => PathPattern::Beginning(beginning.to_owned()),
        None => PathPattern::Exactly(from.to_owned()),
    }
}

fn rules() -> Rules {
    let fixed = |from: &str, status: u16, text: &str| FixedReply {
        from: pattern(from),
        status,
        text: text.to_owned(),
    };
    Rules {
        redirects: vec![Redirect {
            from: pattern("/old/*"),
            status: 301,
            to: "/*".to_owned(),
        }],
        replies: vec![
            fixed("/closed/*", 403, ""),
            fixed("/gone", 410, "since May"),
            fixed("/quiet", 204, ""),
        ],
        rewrites: vec![
            Rewrite {
                from: pattern("/app/*"),
                to: "/*".to_owned(),
            },
            Rewrite {
                from: pattern("/page/*"),
                to: "/static/*.txt".to_owned(),
            },
            Rewrite {
                from: pattern("/folder/*"),
                to: "/static/*".to_owned(),
            },
            Rewrite {
                from: pattern("/"),
                to: "/static".to_owned(),
            },
            Rewrite {
                from: pattern("/sub/*"),
                to: "/static/sub".to_owned(),
            },
        ],
    }
}

/// Answers with what it is asked for, as rewritten and as sent.
fn echo(exchange: &mut Exchange, writer: &mut ResponseWriter) -> Result<(), Fault> {
    if exchange.path() == b"/fail" {
        return Err(Fault::App("told to".to_owned()));
    }
    let own = exchange.path() == b"/own-404";
    let text = [exchange.target(), b" for ", exchange.head().target()].concat();
    let (status, reason) = if own { (404, "Mine") } else { (200, "OK") };
    let mut fields = FieldLines::new();
    fields.push(b"Content-Type", b"text/plain");
    writer.begin(status, reason.as_bytes(), &mut fields, Declared::default());
    writer.write(&text.as_slice(), Amount::Whole);
    Ok(())
}

/// Sends all requests on one connection, the last of which ends it; gives the replies without the lines
/// that every reply has, and the access log.
fn ask(requests: &[&str]) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "file").unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("4xx.html"), "<b>{status} {reason}").unwrap();
    std::fs::write(dir.path().join("500.html"), "oh").unwrap();
    let page = |status_min, status_max, file: &str| ErrorPage {
        status_min,
        status_max,
        file: dir.path().join(file),
    };
    let config = Config {
        binds: vec![Bind::Tcp(vec!["127.0.0.1:0".parse().unwrap()])],
        logs: Logs {
            access: vec![AccessLog::new(LogTarget::File(
                dir.path().join("access.log"),
            ))],
            ..Logs::default()
        },
        statics: vec![StaticMount {
            url: "/static".to_owned(),
            dir: dir.path().to_owned(),
            index: "index.html".to_owned(),
            fallback: None,
        }],
        rules: rules(),
        error_pages: vec![page(400, 499, "4xx.html"), page(500, 500, "500.html")],
        ..Config::default()
    };
    let house = House::open(config, Some(Arc::new(echo))).unwrap();
    let url = house.listening()[0].url.clone();
    let stopper = house.stopper();
    let running = thread::spawn(move || house.run().unwrap());
    let replies = exchange(
        url.strip_prefix("http://").unwrap().parse().unwrap(),
        requests,
    );
    stopper.stop();
    running.join().unwrap();
    let log = std::fs::read_to_string(dir.path().join("access.log")).unwrap();
    (replies, log)
}

fn exchange(address: SocketAddr, requests: &[&str]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for request in requests {
        let head = format!("{request} HTTP/1.1\r\nHost: h\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    let usual = [
        "Date: ",
        "Server: ",
        "ETag: ",
        "Last-Modified: ",
        "Accept-Ranges: ",
    ];
    replies
        .split_inclusive("\r\n")
        .filter(|line| !usual.iter().any(|name| line.starts_with(name)))
        .collect()
}

fn check(requests: &[&str], expect: &[&str]) {
    let (replies, _) = ask(requests);
    let expect: Vec<String> = expect
        .iter()
        .map(|reply| format!("HTTP/1.1 {reply}"))
        .collect();
    assert_eq!(replies, expect.concat(), "{requests:?}");
}

#[test]
fn redirects_and_fixed_replies_keep_the_connection_in_step() {
    check(
        &[
            "GET /old//evil.example?q=1",
            "HEAD /old/a",
            "GET /gone",
            "HEAD /gone",
            "GET /quiet",
            "POST /quiet",
            "GET /last",
        ],
        &[
            "301 Moved Permanently\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 22\r\nLocation: /evil.example?q=1\r\n\r\n301 Moved Permanently\n",
            "301 Moved Permanently\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 22\r\nLocation: /a\r\n\r\n",
            "410 Gone\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 9\r\n\r\nsince May",
            "410 Gone\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 9\r\n\r\n",
            "204 No Content\r\n\r\n",
            "204 No Content\r\n\r\n",
            "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 15\r\n\r\n/last for /last",
        ],
    );
}

#[test]
fn pages_keep_the_status_and_what_belongs_to_it() {
    check(
        &[
            "GET /closed/x",
            "HEAD //closed/x",
            "GET /static/none",
            "DELETE /static/a.txt",
            "GET /own-404",
            "HEAD /fail",
        ],
        &[
            "403 Forbidden\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 16\r\n\r\n<b>403 Forbidden",
            "403 Forbidden\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 16\r\n\r\n",
            "404 Not Found\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 16\r\n\r\n<b>404 Not Found",
            "405 Method Not Allowed\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 25\r\nAllow: GET, HEAD\r\n\r\n<b>405 Method Not Allowed",
            "404 Mine\r\nContent-Type: text/plain\r\nContent-Length: 21\r\n\r\n/own-404 for /own-404",
            "500 Internal Server Error\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 2\r\n\r\n",
        ],
    );
    check(
        &["GET /fail", "GET bad"],
        &[
            "500 Internal Server Error\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 2\r\n\r\noh",
            "400 Bad Request\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 18\r\nConnection: close\r\n\r\n<b>400 Bad Request",
        ],
    );
}

#[test]
fn a_rewritten_request_goes_its_new_way_and_is_logged_as_sent() {
    let requests = [
        "GET /app/x%2Fy?q=%20",
        "GET http://other/app//x",
        "GET /page/a",
        "GET /app/static/a.txt?q",
        "GET /app/closed/x",
    ];
    let (replies, log) = ask(&requests);
    for expect in [
        "\r\n\r\n/x%2Fy?q=%20 for /app/x%2Fy?q=%20HTTP",
        "\r\n\r\n/x for http://other/app//xHTTP",
        "\r\n\r\nfileHTTP",
        "\r\n\r\n<b>403 Forbidden",
    ] {
        assert!(replies.contains(expect), "{expect:?}: {replies}");
    }
    assert_eq!(replies.matches("\r\n\r\nfile").count(), 2, "{replies}");
    for (request, line) in requests.iter().zip(log.lines()) {
        assert!(line.contains(&format!("\"{request} HTTP/1.1\"")), "{line}");
    }
}

#[test]
fn a_folder_behind_a_rewrite_is_not_redirected_to_another_site() {
    for (target, location) in [
        ("/folder/sub?q", "/folder/sub/?q"),
        ("//folder/sub", "/folder/sub/"),
        (
            "//evil.example/../folder/sub",
            "/evil.example/../folder/sub/",
        ),
        (
            "/%5Cevil.example/../folder/sub",
            "/%5Cevil.example/../folder/sub/",
        ),
        (
            "http://h//evil.example/../folder/sub",
            "/evil.example/../folder/sub/",
        ),
    ] {
        let (replies, _) = ask(&[&format!("GET {target}")]);
        let line = format!("Location: {location}\r\n");
        assert!(replies.contains(&line), "{target}: {replies}");
    }
}

#[test]
fn a_folder_whose_slash_is_there_already_is_not_redirected_in_a_circle() {
    for target in ["/", "//", "/sub/", "/sub/x/", "/sub//?q"] {
        let (replies, _) = ask(&[&format!("GET {target}")]);
        assert!(replies.starts_with("HTTP/1.1 404 "), "{target}: {replies}");
    }
    let (replies, _) = ask(&["GET /sub/x"]);
    assert!(replies.contains("Location: /sub/x/\r\n"), "{replies}");
}
