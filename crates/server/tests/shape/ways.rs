//! A server under test, and the ways to ask it: HTTP/1 over a socket, with TLS and without, HTTP/1 and HTTP/2 over
//! memory.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use config::typed::{Coding, Config, LogForm};
use serde_json::Value;
use server::exchange::Exchange;
use server::handler::Handler;
use server::response::ResponseWriter;
use server::transport::memory;

use super::client::Response;
use super::http2::{Http2, Wire};
use super::support::{Answer, PATIENCE, Running, config, mount, run, tls, whole};

/// Bytes of a buffer of a connection in memory.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Tcp,
    Tls,
    /// With buffers of so many bytes.
    Memory(usize),
    Http2(usize),
}

/// A request, as its sender wrote it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// `first`: method and target; `fields`: complete lines beside `Host`.
    pub(super) fn new(first: &str, fields: &str) -> Self {
        Self {
            head: format!("{first} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"),
            body: Vec::new(),
        }
    }

    pub(super) fn post(target: &str, body: Vec<u8>) -> Self {
        let length = format!("Content-Length: {}\r\n", body.len());
        Self {
            body,
            ..Self::new(&format!("POST {target}"), &length)
        }
    }
}

/// A server with files, an access log of JSON, and whatever `change` wants.
pub(super) fn open(handler: impl Handler, change: impl FnOnce(&mut Config)) -> Running {
    open_shared(Arc::new(handler), change)
}

/// As `open`.
pub(super) fn open_shared(handler: Arc<dyn Handler>, change: impl FnOnce(&mut Config)) -> Running {
    let (mut config, dir) = config();
    let files = dir.path().join("files");
    fs::create_dir_all(files.join("folder")).unwrap();
    for (name, bytes) in [("small.txt", 1_000), ("large.bin", 700_000)] {
        fs::write(files.join(name), pattern(bytes)).unwrap();
        // Every server is to give it the same etag.
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let file = fs::File::options().write(true).open(files.join(name));
        file.unwrap().set_modified(written).unwrap();
    }
    mount(&mut config, files);
    config.logs.access[0].form = LogForm::Json;
    config.compression.codings = vec![Coding::Gzip];
    config.status_path = Some("/-/status".to_owned());
    config.limits.body_bytes_max = 100_000;
    config.pools[0].threads_min = 2;
    config.pools[0].threads_max = 2;
    tls::certify(&mut config, dir.path());
    change(&mut config);
    run(config, dir, Some(handler))
}

/// Bytes that do not repeat themselves at powers of two.
pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 251 + at / 65_521) as u8;
    (0..bytes).map(byte).collect()
}

impl Running {
    pub(super) fn http2(&self) -> Http2 {
        Http2::open(self.handle.connect_in_memory(BUFFER_BYTES))
    }

    /// A client of HTTP/2 that sends frames by itself.
    pub(super) fn raw_http2(&self) -> Wire {
        Wire::raw(self.handle.connect_in_memory(BUFFER_BYTES))
    }

    /// Asks on a connection of its own.
    pub(super) fn ask_by(&self, way: Way, request: &Request) -> Response {
        let is_head = request.head.starts_with("HEAD ");
        match way {
            Way::Tcp => {
                let bytes = [request.head.as_bytes(), &request.body].concat();
                Response::of_http1(&self.ask(&bytes), is_head)
            }
            Way::Tls => {
                let (bytes, is_whole) = self.ask_with_tls(request);
                let response = Response::of_http1(&bytes, is_head);
                assert!(is_whole || response.is_cut, "{}", request.head);
                response
            }
            Way::Memory(bytes_max) => {
                let client = self.handle.connect_in_memory(bytes_max);
                let bytes = exchange(&client, request);
                Response::of_http1(&bytes, is_head)
            }
            Way::Http2(bytes_max) => {
                let mut client = Http2::open(self.handle.connect_in_memory(bytes_max));
                let stream = client.begin(&request.head, request.body.is_empty());
                client.open_window(stream, 1 << 30);
                client.send_whole(stream, &request.body);
                client.response(stream)
            }
        }
    }

    /// Asks over TLS; what came, and whether its end was said.
    fn ask_with_tls(&self, request: &Request) -> (Vec<u8>, bool) {
        let mut socket = TcpStream::connect(self.listen_with_tls()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut tls = self.tls_client();
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        stream.write_all(request.head.as_bytes()).unwrap();
        stream.write_all(&request.body).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        let mut bytes = Vec::new();
        let is_whole = stream.read_to_end(&mut bytes).is_ok();
        (bytes, is_whole)
    }

    /// Stops the server and gives its records.
    pub(super) fn records(self) -> Vec<Value> {
        let (_, lines) = self.stop();
        let record = |line: &String| serde_json::from_str(line).unwrap();
        lines.iter().map(record).collect()
    }
}

fn exchange(client: &memory::Client, request: &Request) -> Vec<u8> {
    let send = || {
        (&*client).write_all(request.head.as_bytes()).unwrap();
        (&*client).write_all(&request.body).unwrap();
        client.close_write();
    };
    // A refusal may come, and fill its buffer, before all is sent.
    thread::scope(|scope| {
        scope.spawn(send);
        let mut response = Vec::new();
        (&*client).read_to_end(&mut response).unwrap();
        response
    })
}

/// Checks the phases of a record: each has taken its time, and together they are all.
pub(super) fn check_phases(record: &Value) {
    let seconds = |key: &str| record[key].as_f64().unwrap();
    let phases = ["receive", "queue", "run", "send"].map(seconds);
    assert!(phases.iter().all(|phase| *phase >= 0.0), "{record}");
    let total: f64 = phases.iter().sum();
    assert!((total - seconds("total")).abs() < 2e-6, "{record}");
}

/// Where handlers wait until a test lets them.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Default)]
struct GateState {
    is_open: bool,
    come: usize,
    answered: usize,
}

impl Gate {
    /// A handler that waits before it answers.
    pub(super) fn handler(&self) -> impl Handler + use<> {
        let gate = self.clone();
        move |_: &mut Exchange, writer: &mut ResponseWriter| gate.answer(writer)
    }

    pub(super) fn answer(&self, writer: &mut ResponseWriter) -> Answer {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.come += 1;
        changed.notify_all();
        let closed = |state: &mut GateState| !state.is_open;
        let (mut state, waited) = changed.wait_timeout_while(state, PATIENCE, closed).unwrap();
        assert!(!waited.timed_out(), "the gate stays closed");
        state.answered += 1;
        drop(state);
        if !writer.head_is_sent() {
            return whole(writer, b"waited");
        }
        Ok(())
    }

    /// Waits until so many have come.
    pub(super) fn wait_for(&self, count: usize) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap();
        let few = |state: &mut GateState| state.come < count;
        let waited = changed.wait_timeout_while(state, PATIENCE, few).unwrap().1;
        assert!(!waited.timed_out(), "nobody came to the gate");
    }

    pub(super) fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().unwrap().is_open = true;
        changed.notify_all();
    }

    pub(super) fn answered(&self) -> usize {
        self.0.0.lock().unwrap().answered
    }
}
