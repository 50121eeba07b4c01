//! Compressed replies as clients see them: raw bytes over real sockets, decoded by the readers of the
//! coding crates, with handlers in Rust.
//!
//! No parser of ours is used to read replies.

#![allow(clippy::unwrap_used)] // All of this file is tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use server::config::meant::{Bind, Coding, Compression, Config};
use server::delivery::{Declared, Outlet, Taken};
use server::exchange::Exchange;
use server::fault::Fault;
use server::{Ended, House, Stopper};

/// Longest time that anything here may take; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

type Answer = Result<(), Fault>;

struct Running {
    address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<Ended>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

fn compression() -> Compression {
    Compression {
        codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
        bytes_min: 100,
        ..Compression::default()
    }
}

fn serve<F>(handler: F) -> Running
where
    F: Fn(&mut Exchange, &mut Outlet<'_>) -> Answer + Send + Sync + 'static,
{
    serve_with(compression(), handler)
}

fn serve_with<F>(compression: Compression, handler: F) -> Running
where
    F: Fn(&mut Exchange, &mut Outlet<'_>) -> Answer + Send + Sync + 'static,
{
    let config = Config {
        binds: vec![Bind::Tcp(vec!["127.0.0.1:0".parse().unwrap()])],
        compression,
        ..Config::default()
    };
    let house = House::open(config, Some(Arc::new(handler))).unwrap();
    let url = house.listening()[0].url.clone();
    Running {
        address: url.strip_prefix("http://").unwrap().parse().unwrap(),
        stopper: house.stopper(),
        thread: Some(thread::spawn(move || house.run().unwrap())),
    }
}

/// A connection, and the bytes of it that were read but not used.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A reply as it was framed.
#[derive(Debug)]
struct Reply {
    head: String,
    body: Vec<u8>,
    /// Its end came, and was no reset.
    is_complete: bool,
}

impl Running {
    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream,
            buffer: Vec::new(),
        }
    }

    fn get(&self, lines: &str) -> Reply {
        self.connect().ask("GET", lines)
    }
}

impl Client {
    fn send(&mut self, method: &str, lines: &str) {
        let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn ask(&mut self, method: &str, lines: &str) -> Reply {
        self.send(method, lines);
        self.reply(method)
    }

    /// False at the end of the connection, a reset or not.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        let count = self.stream.read(&mut buffer).unwrap_or(0);
        self.buffer.extend_from_slice(&buffer[..count]);
        count > 0
    }

    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < bytes {
            if !self.more() {
                return None;
            }
        }
        let rest = self.buffer.split_off(bytes);
        Some(std::mem::replace(&mut self.buffer, rest))
    }

    fn until(&mut self, end: &[u8]) -> Option<String> {
        let find = |buffer: &[u8]| buffer.windows(end.len()).position(|found| found == end);
        loop {
            if let Some(at) = find(&self.buffer) {
                let taken = self.take(at + end.len()).unwrap();
                return Some(String::from_utf8(taken).unwrap());
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn head(&mut self) -> String {
        self.until(b"\r\n\r\n").unwrap()
    }

    /// One chunk of a chunked body; the last one is empty.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.until(b"\r\n")?;
        let bytes = usize::from_str_radix(line.trim(), 16).unwrap();
        let data = self.take(bytes)?;
        assert_eq!(self.take(2)?, b"\r\n");
        Some(data)
    }

    fn reply(&mut self, method: &str) -> Reply {
        let head = self.head();
        let mut reply = Reply {
            head,
            body: Vec::new(),
            is_complete: true,
        };
        if method == "HEAD" || reply.head.contains(" 304 ") {
            return reply;
        }
        if let Some(bytes) = reply.line("Content-Length") {
            match self.take(bytes.parse().unwrap()) {
                Some(body) => reply.body = body,
                None => reply.is_complete = false,
            }
            return reply;
        }
        assert_eq!(reply.line("Transfer-Encoding").as_deref(), Some("chunked"));
        loop {
            match self.chunk() {
                Some(data) if data.is_empty() => return reply,
                Some(data) => reply.body.extend(data),
                None => {
                    reply.is_complete = false;
                    return reply;
                }
            }
        }
    }
}

impl Reply {
    fn line(&self, name: &str) -> Option<String> {
        let start = format!("{name}: ");
        let mut found = self
            .head
            .lines()
            .filter_map(|line| line.strip_prefix(&start));
        let value = found.next().map(str::to_owned);
        assert_eq!(found.next(), None, "{name} is there twice");
        value
    }

    /// The body behind its coding, and whether that was whole.
    fn decoded(&self) -> (Vec<u8>, bool) {
        decode(
            &self.line("Content-Encoding").unwrap_or_default(),
            &self.body,
        )
    }
}

fn decode(coding: &str, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut reader: Box<dyn Read + '_> = match coding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
        "br" => Box::new(brotli::Decompressor::new(bytes, 4096)),
        other => panic!("no coding `{other}`"),
    };
    let mut decoded = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return (decoded, true),
            Ok(count) => decoded.extend_from_slice(&buffer[..count]),
            Err(_) => return (decoded, false),
        }
    }
}

fn accept(coding: &str) -> String {
    format!("Accept-Encoding: {coding}\r\n")
}

/// Text that can be compressed.
fn prose(bytes: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|number| format!("line {number} of a long text\n").into_bytes());
    lines.take(bytes).collect()
}

/// Bytes that cannot.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..bytes).map(|_| next()).collect()
}

fn begin(outlet: &mut Outlet<'_>, lines: &str, content_length: Option<u64>) {
    let out = outlet.begin(200, b"OK");
    out.extend_from_slice(b"Content-Type: text/plain\r\n");
    out.extend_from_slice(lines.as_bytes());
    if let Some(bytes) = content_length {
        out.extend_from_slice(format!("Content-Length: {bytes}\r\n").as_bytes());
    }
    outlet.declare(Declared {
        content_length,
        ..Declared::default()
    });
}

#[test]
fn compresses_whole_replies_and_tells_their_length() {
    let house = serve(|_, outlet| {
        let body = prose(5000);
        let lines = "ETag: \"a\"\r\nAccept-Ranges: bytes\r\nVary: Cookie\r\n";
        begin(outlet, lines, Some(body.len() as u64));
        assert_eq!(outlet.whole(&body), Taken::All);
        Ok(())
    });
    // One thread's encoders serve one reply after the other.
    let mut client = house.connect();
    for coding in CODINGS.repeat(3) {
        let reply = client.ask("GET", &accept(coding));
        assert_eq!(reply.line("Content-Encoding").as_deref(), Some(coding));
        assert_eq!(reply.line("ETag").as_deref(), Some("W/\"a\""));
        assert_eq!(
            reply.line("Vary").as_deref(),
            Some("Cookie, Accept-Encoding")
        );
        assert_eq!(reply.line("Accept-Ranges"), None);
        assert_eq!(reply.line("Transfer-Encoding"), None);
        assert!(reply.body.len() < 2000, "{}", reply.head);
        assert_eq!(reply.decoded(), (prose(5000), true));
    }
    let plain = client.ask("GET", "");
    assert_eq!(plain.line("Content-Encoding"), None);
    assert_eq!(plain.line("Content-Length").as_deref(), Some("5000"));
    assert_eq!(plain.line("ETag").as_deref(), Some("\"a\""));
    assert_eq!(plain.line("Accept-Ranges").as_deref(), Some("bytes"));
    assert_eq!(
        plain.line("Vary").as_deref(),
        Some("Cookie, Accept-Encoding")
    );
    assert_eq!(plain.body, prose(5000));
}

#[test]
fn answers_head_with_the_lines_of_get_and_no_length() {
    let house = serve(|exchange, outlet| {
        begin(outlet, "ETag: \"a\"\r\n", None);
        match exchange.head().is_head() {
            true => outlet.whole(b""),
            false => outlet.whole(&prose(5000)),
        };
        Ok(())
    });
    let mut client = house.connect();
    let head = client.ask("HEAD", &accept("br"));
    let get = client.ask("GET", &accept("br"));
    let lines = |reply: &Reply| -> Vec<String> {
        let lines = reply.head.lines();
        let lines = lines.filter(|line| !line.starts_with("Date:"));
        lines.map(str::to_owned).collect()
    };
    let mut expect = lines(&get);
    expect.retain(|line| !line.starts_with("Content-Length:"));
    assert_eq!(lines(&head), expect);
    assert_eq!(head.line("Content-Encoding").as_deref(), Some("br"));
    assert!(get.line("Content-Length").is_some());
}

#[test]
fn lets_a_client_decode_each_piece_before_the_next_is_made() {
    for coding in CODINGS {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let house = serve(move |_, outlet| {
            begin(outlet, "", None);
            for number in 0..5 {
                let piece = format!("data: event {number}\n\n");
                assert_eq!(outlet.piece(piece.as_bytes()), Taken::All);
                may_go_on.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            Ok(())
        });
        let mut client = house.connect();
        client.send("GET", &accept(coding));
        let head = client.head();
        assert!(
            head.contains(&format!("Content-Encoding: {coding}\r\n")),
            "{head}"
        );
        let mut body = Vec::new();
        let mut expect = String::new();
        for number in 0..5 {
            body.extend(client.chunk().unwrap());
            expect += &format!("data: event {number}\n\n");
            assert_eq!(decode(coding, &body), (expect.clone().into_bytes(), false));
            go_on.send(()).unwrap();
        }
        loop {
            match client.chunk().unwrap() {
                data if data.is_empty() => break,
                data => body.extend(data),
            }
        }
        assert_eq!(decode(coding, &body), (expect.into_bytes(), true));
    }
}

#[test]
fn counts_the_declared_length_before_compression() {
    let house = serve(|exchange, outlet| {
        let query = exchange
            .head()
            .header("X-Give")
            .unwrap_or_default()
            .to_vec();
        let given: usize = std::str::from_utf8(&query).unwrap().parse().unwrap();
        begin(outlet, "", Some(5000));
        let body = prose(given);
        match exchange.head().header("X-How") {
            Some(b"whole") => assert_eq!(outlet.whole(&body) == Taken::Overrun, given > 5000),
            _ => body.chunks(700).for_each(|piece| {
                outlet.piece(piece);
            }),
        }
        Ok(())
    });
    for coding in CODINGS {
        for how in ["whole", "pieces"] {
            for (given, is_complete) in [(5000, true), (4999, false), (6000, true)] {
                let lines = format!("{}X-How: {how}\r\nX-Give: {given}\r\n", accept(coding));
                let reply = house.get(&lines);
                assert_eq!(reply.is_complete, is_complete, "{lines}{}", reply.head);
                let expect = (prose(given.min(5000)), is_complete);
                assert_eq!(reply.decoded(), expect, "{lines}");
            }
        }
    }
}

#[test]
fn sends_plain_what_would_not_become_smaller() {
    for bytes in [3000, 3 << 20] {
        let body = noise(bytes);
        let given = body.clone();
        let house = serve(move |_, outlet| {
            begin(outlet, "ETag: \"a\"\r\n", None);
            outlet.whole(&given);
            Ok(())
        });
        for coding in CODINGS {
            let reply = house.get(&accept(coding));
            assert_eq!(reply.line("Content-Encoding"), None, "{coding}");
            assert_eq!(reply.line("Vary").as_deref(), Some("Accept-Encoding"));
            assert_eq!(reply.line("ETag").as_deref(), Some("\"a\""));
            assert!(reply.body == body, "{coding}");
        }
    }
}

#[test]
fn compresses_large_whole_replies_as_they_leave() {
    let house = serve(|_, outlet| {
        begin(outlet, "", None);
        outlet.whole(&prose(3_000_001));
        Ok(())
    });
    for coding in ["gzip", "zstd"] {
        let reply = house.get(&accept(coding));
        assert_eq!(reply.line("Content-Length"), None);
        assert!(reply.is_complete && reply.body.len() < 1_000_000);
        assert!(reply.decoded() == (prose(3_000_001), true), "{coding}");
    }
}

#[test]
fn cuts_a_stream_that_fails_without_an_end_of_its_frame() {
    let house = serve(|_, outlet| {
        begin(outlet, "", None);
        outlet.piece(&prose(500));
        Err(Fault::App("broken".to_owned()))
    });
    for coding in CODINGS {
        let reply = house.get(&accept(coding));
        assert!(!reply.is_complete);
        assert_eq!(reply.decoded(), (prose(500), false), "{coding}");
    }
}

#[test]
fn sends_files_plain_unless_their_reply_is_compressed_already() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, prose(200_000)).unwrap();
    let house = serve(move |exchange, outlet| {
        begin(outlet, "", None);
        if exchange.head().header("X-First").is_some() {
            assert!(outlet.file_is_quick(200_000));
            outlet.piece(b"first ");
            assert!(!outlet.file_is_quick(200_000));
        }
        let file = std::fs::File::open(&path).unwrap();
        assert_eq!(outlet.file(file, 0, 200_000), Taken::All);
        Ok(())
    });
    for coding in CODINGS {
        let plain = house.get(&accept(coding));
        assert_eq!(plain.line("Content-Encoding"), None);
        assert_eq!(plain.line("Vary"), None);
        assert!(plain.body == prose(200_000));
        let reply = house.get(&format!("{}X-First: y\r\n", accept(coding)));
        let expect = [b"first ".to_vec(), prose(200_000)].concat();
        assert!(reply.decoded() == (expect, true), "{coding}");
    }
}

#[test]
fn cuts_a_compressed_reply_whose_file_is_too_short() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, b"short").unwrap();
    let house = serve(move |_, outlet| {
        begin(outlet, "", None);
        outlet.piece(b"first ");
        let file = std::fs::File::open(&path).unwrap();
        assert_eq!(outlet.file(file, 0, 200_000), Taken::Gone);
        Ok(())
    });
    let reply = house.get(&accept("gzip"));
    assert!(!reply.is_complete);
    assert_eq!(reply.decoded(), (b"first ".to_vec(), false));
}

#[test]
fn ends_compressed_streams_for_old_clients_with_the_connection() {
    let house = serve(|exchange, outlet| {
        begin(outlet, "", None);
        match exchange.head().header("X-How") {
            Some(b"whole") => outlet.whole(&prose(5000)),
            _ => outlet.piece(&prose(5000)),
        };
        Ok(())
    });
    for (how, framing) in [
        ("whole", "Content-Length: "),
        ("piece", "Connection: close"),
    ] {
        for coding in CODINGS {
            let mut client = house.connect();
            let text = format!("GET / HTTP/1.0\r\n{}X-How: {how}\r\n\r\n", accept(coding));
            client.stream.write_all(text.as_bytes()).unwrap();
            let head = client.head();
            assert!(
                head.contains(framing) && !head.contains("chunked"),
                "{head}"
            );
            while client.more() {}
            assert_eq!(decode(coding, &client.buffer), (prose(5000), true));
        }
    }
}

#[test]
fn keeps_small_and_foreign_replies_as_they_are() {
    let house = serve(|exchange, outlet| {
        let lines = exchange.head().header("X-Lines").unwrap_or_default();
        let lines = String::from_utf8_lossy(lines).replace('|', "\r\n");
        let small = exchange.head().header("X-Small").is_some();
        begin(outlet, &lines, None);
        outlet.whole(&prose(if small { 99 } else { 100 }));
        Ok(())
    });
    let check = |lines: &str, is_coded: bool| {
        let reply = house.get(&format!("{}{lines}", accept("gzip")));
        let coding = reply
            .line("Content-Encoding")
            .filter(|coding| coding == "gzip");
        assert_eq!(coding.is_some(), is_coded, "{lines}{}", reply.head);
        let vary = is_coded.then_some("Accept-Encoding");
        assert_eq!(reply.line("Vary").as_deref(), vary, "{lines}");
    };
    check("", true);
    check("X-Small: y\r\n", false);
    check("X-Lines: Content-Encoding: x|\r\n", false);
    check("X-Lines: Cache-Control: no-transform|\r\n", false);
    // The client's own wish leaves the reply one that varies for others.
    let reply = house.get(&format!(
        "{}Cache-Control: no-transform\r\n",
        accept("gzip")
    ));
    assert_eq!(reply.line("Content-Encoding"), None);
    assert_eq!(reply.line("Vary").as_deref(), Some("Accept-Encoding"));
}

#[test]
fn calls_large_pieces_slow_only_where_they_are_compressed() {
    let house = serve(|_, outlet| {
        begin(outlet, "", None);
        let quick = [1000, 10_000].map(|bytes| outlet.is_quick(bytes));
        outlet.piece(format!("{quick:?}").as_bytes());
        let quick = [1000, 10_000].map(|bytes| outlet.is_quick(bytes));
        outlet.piece(format!("{quick:?}").as_bytes());
        Ok(())
    });
    let coded = house.get(&accept("gzip"));
    assert_eq!(coded.decoded().0, b"[true, false][true, false]");
    let plain = house.get("");
    assert_eq!(plain.body, b"[true, true][true, true]");
}

#[test]
fn weakens_the_etag_of_a_304_for_a_reply_that_was_compressed() {
    let house = serve(|_, outlet| {
        let lines = outlet.begin(304, b"Not Modified");
        lines.extend_from_slice(b"ETag: \"a\"\r\n");
        outlet.declare(Declared::default());
        outlet.whole(b"");
        Ok(())
    });
    let reply = house.get("If-None-Match: W/\"a\"\r\n");
    assert_eq!(reply.line("ETag").as_deref(), Some("W/\"a\""));
    assert_eq!(reply.line("Vary").as_deref(), Some("Accept-Encoding"));
    let reply = house.get("If-None-Match: \"a\"\r\n");
    assert_eq!(reply.line("ETag").as_deref(), Some("\"a\""));
    assert_eq!(reply.line("Vary"), None);
}

#[test]
fn reaches_slow_clients_through_the_driver() {
    let (done, is_done) = mpsc::channel();
    let done = Mutex::new(done);
    let body = prose(60 << 20);
    let house = serve_with(
        Compression {
            gzip_level: 1,
            ..compression()
        },
        move |_, outlet| {
            begin(outlet, "", None);
            // Much more than a socket takes, compressed.
            body.chunks(1 << 20).for_each(|piece| {
                outlet.piece(piece);
                outlet.piece(&noise(100_000));
            });
            done.lock().unwrap().send(()).unwrap();
            Ok(())
        },
    );
    let mut client = house.connect();
    client.send("GET", &accept("zstd"));
    // Not a byte is read before the handler is through.
    is_done.recv_timeout(PATIENCE).unwrap();
    let reply = client.reply("GET");
    assert!(reply.is_complete);
    let (decoded, is_whole) = reply.decoded();
    assert!(is_whole);
    assert_eq!(decoded.len(), 60 * ((1 << 20) + 100_000));
}

#[test]
fn touches_nothing_when_no_coding_is_configured() {
    let house = serve_with(Compression::default(), |_, outlet| {
        begin(outlet, "ETag: \"a\"\r\n", None);
        outlet.whole(&prose(5000));
        Ok(())
    });
    let reply = house.get(&accept("gzip"));
    assert_eq!(reply.line("Content-Encoding"), None);
    assert_eq!(reply.line("Vary"), None);
    assert_eq!(reply.line("ETag").as_deref(), Some("\"a\""));
}
