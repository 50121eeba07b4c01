//! A WSGI application answers the same whichever protocol and transport carry its responses: HTTP/1 over a
//! socket, HTTP/1 and HTTP/2 in memory.

#![allow(clippy::unwrap_used)] // All of this is a test.

#[path = "../../server/tests/shape/client.rs"]
#[allow(dead_code)] // Not everything is of use here.
mod client;
#[path = "../../server/tests/shape/http2.rs"]
#[allow(dead_code)]
mod http2;
#[path = "../../server/tests/support/mod.rs"]
#[allow(dead_code)]
mod support;
#[path = "../../server/tests/shape/ways.rs"]
#[allow(dead_code)]
mod ways;

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, OnceLock};

use _milepost::Host;
use cli::{AppFacts, AppHost};
use client::Response;
use config::typed::{App, AsgiConfig};
use pyo3::Python;
use serde_json::Value;
use server::handler::Handler;
use ways::{BUFFER_BYTES, Request, Way, check_phases, open_shared};

const APPLICATION: &str = r#"
import io, os, tempfile

closed = []

class Closing(list):
    def close(self):
        closed.append(len(self))

def stream(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    for number in range(50):
        yield b"%d" % number * (number * 40)

def with_length(environ, start_response):
    start_response("200 OK", [("Content-Length", "200000")])
    return [b"x" * 50_000 for _ in range(4)]

def file(environ, start_response):
    start_response("200 OK", [("X-Kind", "file")])
    found = tempfile.TemporaryFile()
    found.write(bytes(range(256)) * 1_000)
    found.seek(100)
    return environ["wsgi.file_wrapper"](found)

def file_in_memory(environ, start_response):
    start_response("200 OK", [])
    return environ["wsgi.file_wrapper"](io.BytesIO(b"abc" * 30_000), 1_000)

def write(environ, start_response):
    write = start_response("201 Created", [])
    for number in range(20):
        write(b"written %d\n" % number)
    return [b"and returned"]

def echo(environ, start_response):
    body = environ["wsgi.input"].read()
    facts = [environ[key] for key in ("REQUEST_METHOD", "PATH_INFO", "REMOTE_ADDR")]
    start_response("200 OK", [])
    return Closing([" ".join(facts).encode(), b" ", b"%d %d" % (len(body), sum(body))])

def closings(environ, start_response):
    start_response("200 OK", [])
    return [b"%d" % len(closed)]

def nothing(environ, start_response):
    start_response("204 No Content", [])
    return []

def early(environ, start_response):
    raise RuntimeError("on purpose")

def late(environ, start_response):
    start_response("200 OK", [])
    yield b"some of it"
    raise RuntimeError("on purpose")

def replaced(environ, start_response):
    start_response("200 OK", [("X-First", "1")])
    try:
        raise RuntimeError("on purpose")
    except RuntimeError:
        import sys
        start_response("503 Replaced", [("X-Second", "2")], sys.exc_info())
    return [b"replaced"]

def shorter(environ, start_response):
    start_response("200 OK", [("Content-Length", "10")])
    return [b"12345"]

def unstarted(environ, start_response):
    return [b"nothing was started"]

def large(environ, start_response):
    start_response("200 OK", [("Content-Length", str(5 << 20))])
    return [bytes(5 << 20)]

def app(environ, start_response):
    return globals()[environ["PATH_INFO"].strip("/")](environ, start_response)
"#;

/// The application. An interpreter lives as long as its process, and imports a module once.
fn application() -> Arc<dyn Handler> {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        Python::initialize();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("carried.py"), APPLICATION).unwrap();
        folder
    });
    let app = App {
        module: "carried".to_owned(),
        attribute: "app".to_owned(),
        app_dir: folder.path().to_owned(),
        ..App::default()
    };
    let facts = AppFacts {
        asgi: AsgiConfig::default(),
        multithread: true,
        multiprocess: false,
    };
    let loaded = Host::here().load(&[app], &[facts]);
    loaded.unwrap_or_else(|fault| panic!("{fault:?}")).remove(0)
}

const PATHS: &str = "/stream /with_length /file /file_in_memory /write /nothing /early /late /replaced \
    /shorter /unstarted /large /echo /missing";

/// Asks all in one way; gives responses, and status, ending, cause and route of records, by method and path.
fn ask_all(way: Way) -> BTreeMap<String, (Response, Value)> {
    let running = open_shared(application(), |config| {
        config.limits.body_bytes_max = 1 << 20;
    });
    let get = |path| Request::new(&format!("GET {path}"), "");
    let mut requests: Vec<Request> = PATHS.split(' ').map(get).collect();
    requests.push(Request::new("HEAD /stream", ""));
    requests.push(Request::new("HEAD /with_length", ""));
    requests.push(Request::post("/echo", ways::pattern(600)));
    requests.push(Request::post("/echo?spooled", ways::pattern(300_000)));
    let mut found = BTreeMap::new();
    for request in &requests {
        let name = request.head.split(" HTTP").next().unwrap().to_owned();
        found.insert(name, (running.ask_by(way, request), Value::Null));
    }
    for record in running.records() {
        check_phases(&record);
        let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
        let name = format!("{} {}", text("method"), text("target"));
        let facts = ["status", "end", "cause", "route", "pool", "request_bytes"];
        let facts = facts.map(|key| record[key].clone()).to_vec();
        let of_name = &mut found.get_mut(&name).unwrap().1;
        assert_eq!(*of_name, Value::Null, "two records of {name}");
        assert_ne!(record["worker"], "-", "{name}");
        *of_name = facts.into();
    }
    found
}

#[test]
fn an_application_answers_the_same_over_every_protocol_and_transport() {
    let expected = ask_all(Way::Tcp);
    let text = |name: &str| support::text(&expected[name].0.body);
    assert!(text("POST /echo").starts_with("POST /echo 127.0.0.1 600 "));
    assert_eq!(expected["GET /write"].0.body.len(), 10 * 10 + 10 * 11 + 12);
    assert_eq!(expected["GET /file"].0.body.len(), 256_000 - 100);
    assert!(expected["GET /late"].0.is_cut && expected["GET /shorter"].0.is_cut);
    let status = |name: &str| expected[name].0.status;
    assert_eq!(
        [
            status("GET /early"),
            status("GET /replaced"),
            status("GET /unstarted")
        ],
        [500, 503, 500]
    );
    let mut ways = 1;
    for way in [
        Way::Memory(BUFFER_BYTES),
        Way::Http2(BUFFER_BYTES),
        Way::Http2(61),
    ] {
        ways += 1;
        for (name, (response, record)) in ask_all(way) {
            let (expected_response, expected_record) = &expected[&name];
            assert_eq!(record, *expected_record, "{name} by {way:?}");
            response.assert_is(expected_response, &format!("{name} by {way:?}"));
        }
    }
    let running = open_shared(application(), |_| {});
    let closings = running.ask_by(Way::Tcp, &Request::new("GET /closings", ""));
    let echoes = ways * 3;
    assert_eq!(support::text(&closings.body), echoes.to_string());
    running.stop();
}
