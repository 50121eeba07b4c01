//! The replies: one of each way that bytes leave by.

use std::io::Write;
use std::sync::LazyLock;

use server::exchange::Exchange;
use server::fault::Fault;
use server::response::{Amount, ResponseWriter};

use super::support::{Answer, Answering, read_body, whole};

/// A request and what is known of its reply.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Method and path.
    line: &'static str,
    version: &'static str,
    /// A further header line.
    more: &'static str,
    body: &'static str,
    pub(super) after: After,
    pub(super) carries: Carries,
    /// How it ends in the log.
    pub(super) ending: &'static str,
}

/// What follows the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// The next request.
    Next,
    /// The end of the connection.
    End,
    /// The end of the connection, which is the only sign that the reply is complete.
    EndAsSign,
    /// The reply is broken off, and its framing shows it.
    Cut,
    /// The reply is broken off by a reset, which may be the only sign of it.
    Reset,
}

/// What the reply is to carry.
#[derive(Clone, Copy)]
pub(super) enum Carries {
    /// This body.
    Body(fn() -> Vec<u8>),
    /// This body, compressed with gzip.
    Gzip(fn() -> Vec<u8>),
    /// These parts of this body: first byte and the one after the last.
    Ranges(&'static [(usize, usize)], fn() -> Vec<u8>),
    /// Some text of the server's.
    Text(&'static str),
}

const SMALL_FILE_BYTES: usize = 1_000;
const LARGE_FILE_BYTES: usize = 500_000;
const BETWEEN_BYTES: usize = 150_000;
const PATTERN_BYTES: usize = 500_000;

/// The first bytes of a sequence that does not repeat itself at powers of two.
fn pattern(bytes: usize) -> Vec<u8> {
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: usize| (at * 31 + at / 251 + at / 65_521) as u8;
        (0..PATTERN_BYTES).map(byte).collect()
    });
    PATTERN[..bytes].to_vec()
}

pub(super) fn small_file() -> Vec<u8> {
    pattern(SMALL_FILE_BYTES)
}

pub(super) fn large_file() -> Vec<u8> {
    pattern(LARGE_FILE_BYTES)
}

fn nothing() -> Vec<u8> {
    Vec::new()
}

fn small() -> Vec<u8> {
    b"a small reply".to_vec()
}

/// Stays in memory.
fn in_memory() -> Vec<u8> {
    pattern(90_000)
}

/// Moves to an unnamed file while its client is slow.
fn in_file() -> Vec<u8> {
    pattern(500_000)
}

/// Pieces of a stream that stays in memory.
fn short_pieces() -> Vec<Vec<u8>> {
    (0..60).map(|index| pattern(1 + index * 7 % 300)).collect()
}

/// Pieces of a stream that moves to an unnamed file while its client is slow.
fn long_pieces() -> Vec<Vec<u8>> {
    (0..20).map(|index| pattern(1 + index * 2_003)).collect()
}

fn short_stream() -> Vec<u8> {
    short_pieces().concat()
}

fn long_stream() -> Vec<u8> {
    long_pieces().concat()
}

fn uploaded() -> Vec<u8> {
    b"HELLO".to_vec()
}

fn between() -> Vec<u8> {
    [&b"first"[..], &pattern(BETWEEN_BYTES)[1_000..], b"last"].concat()
}

const fn case(name: &'static str, line: &'static str, carries: Carries) -> Case {
    Case {
        name,
        line,
        version: "HTTP/1.1",
        more: "",
        body: "",
        after: After::Next,
        carries,
        ending: "complete",
    }
}

/// Those that leave their connection open.
fn lasting() -> Vec<Case> {
    use Carries::{Body, Gzip, Ranges, Text};
    vec![
        case("small", "GET /small", Body(small)),
        case("in memory", "GET /memory", Body(in_memory)),
        case("in a file", "GET /file", Body(in_file)),
        case("stream", "GET /short-pieces", Body(short_stream)),
        case("long stream", "GET /long-pieces", Body(long_stream)),
        case("file between pieces", "GET /between", Body(between)),
        case("compressed stream", "GET /short-pieces", Gzip(short_stream))
            .with("Accept-Encoding: gzip\r\n"),
        case("head of an answer", "HEAD /small", Body(nothing)),
        case("head of a stream", "HEAD /long-pieces", Body(nothing)),
        case("head of a file", "HEAD /f/large.txt", Body(nothing)),
        case("not modified", "GET /f/small.txt", Body(nothing))
            .with("If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT\r\n"),
        case("cached file", "GET /f/small.txt", Body(small_file)),
        case("large file", "GET /f/large.txt", Body(large_file)),
        case("range", "GET /f/small.txt", Ranges(&[(5, 905)], small_file))
            .with("Range: bytes=5-904\r\n"),
        case(
            "large range",
            "GET /f/large.txt",
            Ranges(&[(7, 400_007)], large_file),
        )
        .with("Range: bytes=7-400006\r\n"),
        case(
            "ranges",
            "GET /f/small.txt",
            Ranges(&[(0, 10), (100, 500), (980, 1000)], small_file),
        )
        .with("Range: bytes=0-9, 100-499, -20\r\n"),
        case(
            "large ranges",
            "GET /f/large.txt",
            Ranges(
                &[
                    (1, 4),
                    (70_000, 170_000),
                    (300_000, 300_001),
                    (400_000, 499_999),
                ],
                large_file,
            ),
        )
        .with("Range: bytes=1-3, 70000-169999, 300000-300000, 400000-499998\r\n"),
        case("no such range", "GET /f/small.txt", Text("HTTP/1.1 416 "))
            .with("Range: bytes=3000-\r\n"),
        case("no such file", "GET /f/nothing", Text("HTTP/1.1 404 ")),
        case("upload", "POST /echo", Body(uploaded)).carrying("HELLO"),
    ]
}

/// Those after which it ends.
fn ending() -> Vec<Case> {
    use After::{Cut, End, EndAsSign, Reset};
    use Carries::{Body, Text};
    vec![
        case("last", "GET /file", Body(in_file))
            .with("Connection: close\r\n")
            .then(End),
        case("bad head", "GET /small", Text("HTTP/1.1 400 "))
            .with("bad line\r\n")
            .then(End)
            .logged("refused"),
        case("unread body", "POST /f/small.txt", Text("HTTP/1.1 405 "))
            .carrying("HELLO")
            .then(End),
        case("old and small", "GET /small", Body(small))
            .old()
            .then(End),
        case("old stream", "GET /short-pieces", Body(short_stream))
            .old()
            .then(EndAsSign),
        case("old long stream", "GET /long-pieces", Body(long_stream))
            .old()
            .then(EndAsSign),
        case("short of its length", "GET /short", Text("HTTP/1.1 200 "))
            .then(Cut)
            .logged("cut"),
        case("broken stream", "GET /broken", Text("HTTP/1.1 200 "))
            .then(Cut)
            .logged("cut"),
        case("old broken stream", "GET /broken", Text("HTTP/1.1 200 "))
            .old()
            .then(Reset)
            .logged("cut"),
        case("torn file", "GET /torn", Body(between))
            .then(Reset)
            .logged("cut"),
        case("old torn file", "GET /torn", Body(between))
            .old()
            .then(Reset)
            .logged("cut"),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    [lasting(), ending()].concat()
}

impl Case {
    fn with(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    /// With a body.
    fn carrying(self, body: &'static str) -> Self {
        Self { body, ..self }
    }

    fn then(self, after: After) -> Self {
        Self { after, ..self }
    }

    fn logged(self, ending: &'static str) -> Self {
        Self { ending, ..self }
    }

    /// As an old client asks.
    fn old(self) -> Self {
        let version = "HTTP/1.0";
        Self { version, ..self }
    }

    /// A request for the same reply that is not broken off.
    pub(super) fn request_in_order(&self) -> Vec<u8> {
        let line = match self.line {
            "GET /broken" => "GET /long-pieces",
            "GET /torn" => "GET /between",
            line => line,
        };
        Self { line, ..*self }.request(0)
    }

    /// The request; `run` finds it in the log.
    pub(super) fn request(&self, run: usize) -> Vec<u8> {
        let Case {
            line,
            version,
            more,
            body,
            ..
        } = self;
        let length = body.len();
        format!(
            "{line}?run={run}. {version}\r\nHost: a\r\nContent-Length: {length}\r\n{more}\r\n{body}"
        )
        .into_bytes()
    }
}

/// The application.
pub(super) fn answer(exchange: &mut Exchange, writer: &mut ResponseWriter) -> Answer {
    match exchange.head().path() {
        b"/small" => whole(writer, &small()),
        b"/memory" => whole(writer, &in_memory()),
        b"/file" => whole(writer, &in_file()),
        b"/short-pieces" => pieces(writer, short_pieces()),
        b"/long-pieces" => pieces(writer, long_pieces()),
        b"/between" => file_between(writer),
        b"/torn" => torn_file(writer),
        b"/echo" => whole(writer, &read_body(&exchange.body)),
        b"/short" => {
            writer.begin_with_length(200_000);
            writer.give(pattern(199_999));
            Ok(())
        }
        b"/broken" => {
            pieces(writer, long_pieces())?;
            // The client's own fault is no line in the error log.
            Err(Fault::Peer("in mid-reply".to_owned()))
        }
        _ => Err(Fault::App("no such path".to_owned())),
    }
}

fn pieces(writer: &mut ResponseWriter, pieces: Vec<Vec<u8>>) -> Answer {
    writer.begin_ok("Content-Type: text/plain\r\n");
    for piece in pieces {
        writer.give(&piece);
    }
    Ok(())
}

fn file_between(writer: &mut ResponseWriter) -> Answer {
    around_file(writer, &pattern(BETWEEN_BYTES))
}

/// The file is shorter than its span.
fn torn_file(writer: &mut ResponseWriter) -> Answer {
    around_file(writer, &pattern(BETWEEN_BYTES / 2))
}

fn around_file(writer: &mut ResponseWriter, content: &[u8]) -> Answer {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    writer.begin_ok("");
    writer.give(b"first");
    writer.file(file, 1_000, BETWEEN_BYTES as u64 - 1_000, Amount::Whole);
    writer.give(b"last");
    Ok(())
}
