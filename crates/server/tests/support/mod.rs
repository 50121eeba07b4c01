//! What tests that serve have in common: a server on a free port, and clients that speak raw bytes.

pub(super) mod tls;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use config::typed::{AccessLog, App, Config, LogTarget, Logs, Route, Spool, StaticMount};
use http::FieldLines;
use ipc::{ListenAddr, ListenerId, ListenerInfo};
use server::exchange::{Body, Exchange};
use server::fault::Fault;
use server::handler::Handler;
use server::response::{Amount, Declared, ResponseWriter, Taken};
use server::{Ended, Server, ServerHandle};
use telemetry::Nanos;

/// Longest time that anything here may take; only a failing test waits for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) type Answer = Result<(), Fault>;

pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) handle: ServerHandle,
    pub(super) thread: JoinHandle<Ended>,
    pub(super) dir: tempfile::TempDir,
}

pub(super) fn config() -> (Config, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let access_log = AccessLog::new(LogTarget::File(dir.path().join("access.log")));
    let config = Config {
        logs: Logs {
            access: vec![access_log],
            flush: Nanos(50_000_000),
            ..Logs::default()
        },
        spool: Spool {
            dir: dir.path().to_owned(),
            body_memory_bytes: 1000,
            ..Spool::default()
        },
        ..Config::default()
    };
    (config, dir)
}

/// With an application that has all other requests.
pub(super) fn with_app(config: Config) -> Config {
    Config {
        apps: vec![App::default()],
        routes: vec![Route::default()],
        ..config
    }
}

/// Serves this folder at `/f`.
pub(super) fn mount(config: &mut Config, dir: PathBuf) {
    config.statics = vec![StaticMount {
        url: "/f".to_owned(),
        dir,
        index: "index.html".to_owned(),
        fallback: None,
    }];
}

pub(super) fn serve<F>(handler: F) -> Running
where
    F: Fn(&mut Exchange, &mut ResponseWriter) -> Answer + Send + Sync + 'static,
{
    serve_with(|_| {}, handler)
}

pub(super) fn serve_with<F>(change: impl FnOnce(&mut Config), handler: F) -> Running
where
    F: Fn(&mut Exchange, &mut ResponseWriter) -> Answer + Send + Sync + 'static,
{
    let (mut config, dir) = config();
    change(&mut config);
    run(config, dir, Some(Arc::new(handler)))
}

pub(super) fn run(
    config: Config,
    dir: tempfile::TempDir,
    handler: Option<Arc<dyn Handler>>,
) -> Running {
    let is_shared = config.listen.drivers > 1;
    let served = match handler {
        Some(handler) => Server::open(with_app(config), vec![handler]),
        None => Server::open(config, Vec::new()),
    };
    let served = served.unwrap();
    let handle = served.handle();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    let listener = ListenerInfo {
        key: ListenerId {
            address: 0,
            index: 0,
            driver: 0,
        },
        at: ListenAddr::Tcp(address),
        is_shared,
        takes_turns: false,
        is_tls: false,
        is_inherited: false,
    };
    handle.start_accepting(listener, socket.into()).unwrap();
    let thread = thread::spawn(move || served.run().unwrap());
    Running {
        address,
        handle,
        thread,
        dir,
    }
}

impl Running {
    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends `request`, closes the sending side, gives everything that came back.
    pub(super) fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_all(&mut stream)
    }

    pub(super) fn get(&self, path: &str) -> Vec<u8> {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
    }

    pub(super) fn stop(self) -> (Ended, Vec<String>) {
        self.handle.drain_alone();
        let ended = self.thread.join().unwrap();
        let log = std::fs::read_to_string(self.dir.path().join("access.log")).unwrap();
        (ended, log.lines().map(str::to_owned).collect())
    }
}

pub(super) fn read_all(stream: &mut impl Read) -> Vec<u8> {
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    reply
}

pub(super) fn whole(writer: &mut ResponseWriter, body: &[u8]) -> Answer {
    writer.begin_ok("Content-Type: text/plain\r\n");
    writer.give_whole(body);
    Ok(())
}

/// How handlers of tests answer: fields as text, bodies of whatever has bytes.
pub(super) trait Answering {
    /// Begins a response with these complete lines.
    fn begin_with(&mut self, status: u16, lines: &str, declared: Declared);

    /// One piece of a streamed body.
    fn give(&mut self, data: impl AsRef<[u8]>) -> Taken;

    /// The whole body.
    fn give_whole(&mut self, data: impl AsRef<[u8]>) -> Taken;

    /// Begins a response of which nothing is declared.
    fn begin_ok(&mut self, lines: &str) {
        self.begin_with(200, lines, Declared::default());
    }

    /// Begins a response whose body is to have so many bytes.
    fn begin_with_length(&mut self, bytes: u64) {
        let lines = format!("Content-Length: {bytes}\r\n");
        let declared = Declared {
            content_length: Some(bytes),
            ..Declared::default()
        };
        self.begin_with(200, &lines, declared);
    }
}

impl Answering for ResponseWriter {
    fn begin_with(&mut self, status: u16, lines: &str, declared: Declared) {
        let mut fields = FieldLines::new();
        for line in lines.split_terminator("\r\n") {
            let (name, value) = line.split_once(": ").unwrap();
            fields.push(name.as_bytes(), value.as_bytes());
        }
        self.begin(
            status,
            http::reason(status).as_bytes(),
            &mut fields,
            declared,
        );
    }

    fn give(&mut self, data: impl AsRef<[u8]>) -> Taken {
        self.write(&data.as_ref(), Amount::Piece)
    }

    fn give_whole(&mut self, data: impl AsRef<[u8]>) -> Taken {
        self.write(&data.as_ref(), Amount::Whole)
    }
}

/// Answers with the path and what is known of the body.
pub(super) fn echo(exchange: &mut Exchange, writer: &mut ResponseWriter) -> Answer {
    let body = read_body(&exchange.body);
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    let kind = match exchange.body {
        Body::Empty => "empty",
        Body::Memory(_) => "memory",
        Body::File { .. } => "file",
    };
    let path = text(exchange.head().path());
    whole(
        writer,
        format!("[{path} {kind} {} {sum}]", body.len()).as_bytes(),
    )
}

pub(super) fn read_body(body: &Body) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    match body {
        Body::Empty => Vec::new(),
        Body::Memory(data) => data.clone(),
        Body::File { file, bytes } => {
            let mut data = vec![0; usize::try_from(*bytes).unwrap()];
            file.read_exact_at(&mut data, 0).unwrap();
            data
        }
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: did not come true");
        thread::yield_now();
    }
}
