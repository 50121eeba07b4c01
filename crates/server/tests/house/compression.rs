//! Replies that are compressed on their way.

use std::io::Write;
use std::sync::{Mutex, mpsc};

use server::config::meant::{Coding, Compression};
use server::exchange::Exchange;
use server::fault::Fault;
use server::response::{Declared, ResponseWriter, Taken};

use super::framed::{Client, Reply, decode};
use super::support::{Answer, Answering, PATIENCE, Running};

const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

fn compression() -> Compression {
    Compression {
        codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
        bytes_min: 100,
        ..Compression::default()
    }
}

fn serve<F>(handler: F) -> Running
where
    F: Fn(&mut Exchange, &mut ResponseWriter) -> Answer + Send + Sync + 'static,
{
    serve_with(compression(), handler)
}

fn serve_with<F>(compression: Compression, handler: F) -> Running
where
    F: Fn(&mut Exchange, &mut ResponseWriter) -> Answer + Send + Sync + 'static,
{
    super::support::serve_with(|config| config.compression = compression, handler)
}

fn connect(house: &Running) -> Client {
    Client::new(house.connect())
}

fn get(house: &Running, lines: &str) -> Reply {
    connect(house).ask("GET", lines)
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

fn begin(writer: &mut ResponseWriter, lines: &str, content_length: Option<u64>) {
    let mut lines = format!("Content-Type: text/plain\r\n{lines}");
    if let Some(bytes) = content_length {
        lines += &format!("Content-Length: {bytes}\r\n");
    }
    let declared = Declared {
        content_length,
        ..Declared::default()
    };
    writer.begin_with(200, &lines, declared);
}

#[test]
fn compresses_whole_replies_and_tells_their_length() {
    let house = serve(|_, writer| {
        let body = prose(5000);
        let lines = "ETag: \"a\"\r\nAccept-Ranges: bytes\r\nVary: Cookie\r\n";
        begin(writer, lines, Some(body.len() as u64));
        assert_eq!(writer.give_whole(&body), Taken::All);
        Ok(())
    });
    // One thread's encoders serve one reply after the other.
    let mut client = connect(&house);
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
    house.stop();
}

#[test]
fn answers_head_with_the_lines_of_get_and_no_length() {
    let house = serve(|exchange, writer| {
        begin(writer, "ETag: \"a\"\r\n", None);
        match exchange.head().is_head() {
            true => writer.give_whole(b""),
            false => writer.give_whole(prose(5000)),
        };
        Ok(())
    });
    let mut client = connect(&house);
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
    house.stop();
}

#[test]
fn lets_a_client_decode_each_piece_before_the_next_is_made() {
    for coding in CODINGS {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let house = serve(move |_, writer| {
            begin(writer, "", None);
            for number in 0..5 {
                let piece = format!("data: event {number}\n\n");
                assert_eq!(writer.give(piece.as_bytes()), Taken::All);
                may_go_on.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            Ok(())
        });
        let mut client = connect(&house);
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
        house.stop();
    }
}

#[test]
fn counts_the_declared_length_before_compression() {
    let house = serve(|exchange, writer| {
        let query = exchange
            .head()
            .header("X-Give")
            .unwrap_or_default()
            .to_vec();
        let given: usize = std::str::from_utf8(&query).unwrap().parse().unwrap();
        begin(writer, "", Some(5000));
        let body = prose(given);
        match exchange.head().header("X-How") {
            Some(b"whole") => assert_eq!(writer.give_whole(&body) == Taken::Overrun, given > 5000),
            _ => body.chunks(700).for_each(|piece| {
                writer.give(piece);
            }),
        }
        Ok(())
    });
    for coding in CODINGS {
        for how in ["whole", "pieces"] {
            for (given, is_complete) in [(5000, true), (4999, false), (6000, true)] {
                let lines = format!("{}X-How: {how}\r\nX-Give: {given}\r\n", accept(coding));
                let reply = get(&house, &lines);
                assert_eq!(reply.is_complete, is_complete, "{lines}{}", reply.head);
                let expect = (prose(given.min(5000)), is_complete);
                assert_eq!(reply.decoded(), expect, "{lines}");
            }
        }
    }
    house.stop();
}

#[test]
fn sends_plain_what_would_not_become_smaller() {
    for bytes in [3000, 3 << 20] {
        let body = noise(bytes);
        let given = body.clone();
        let house = serve(move |_, writer| {
            begin(writer, "ETag: \"a\"\r\n", None);
            writer.give_whole(&given);
            Ok(())
        });
        for coding in CODINGS {
            let reply = get(&house, &accept(coding));
            assert_eq!(reply.line("Content-Encoding"), None, "{coding}");
            assert_eq!(reply.line("Vary").as_deref(), Some("Accept-Encoding"));
            assert_eq!(reply.line("ETag").as_deref(), Some("\"a\""));
            assert!(reply.body == body, "{coding}");
        }
        house.stop();
    }
}

/// As most frameworks give them: an iterable of one part, with its length.
#[test]
fn takes_a_first_piece_of_the_declared_length_for_the_whole() {
    let house = serve(|exchange, writer| {
        let body = match exchange.head().header("X-Noise") {
            Some(_) => noise(5000),
            None => prose(5000),
        };
        begin(writer, "", Some(5000));
        assert_eq!(writer.give(&body), Taken::All);
        if !exchange.head().is_head() {
            assert_eq!(writer.give(b"more"), Taken::Overrun);
        }
        Ok(())
    });
    let mut client = connect(&house);
    for coding in CODINGS {
        let reply = client.ask("GET", &accept(coding));
        assert_eq!(reply.line("Content-Encoding").as_deref(), Some(coding));
        let bytes = reply.body.len().to_string();
        assert_eq!(reply.line("Content-Length"), Some(bytes));
        assert_eq!(reply.decoded(), (prose(5000), true));
        let plain = client.ask("GET", &format!("X-Noise: y\r\n{}", accept(coding)));
        assert_eq!(plain.line("Content-Encoding"), None);
        assert_eq!(plain.body, noise(5000));
        let head = client.ask("HEAD", &accept(coding));
        assert_eq!(head.line("Content-Encoding").as_deref(), Some(coding));
    }
    house.stop();
}

#[test]
fn compresses_large_whole_replies_as_they_leave() {
    let house = serve(|_, writer| {
        begin(writer, "", None);
        writer.give_whole(prose(3_000_001));
        Ok(())
    });
    for coding in ["gzip", "zstd"] {
        let reply = get(&house, &accept(coding));
        assert_eq!(reply.line("Content-Length"), None);
        assert!(reply.is_complete && reply.body.len() < 1_000_000);
        assert!(reply.decoded() == (prose(3_000_001), true), "{coding}");
    }
    house.stop();
}

#[test]
fn cuts_a_stream_that_fails_without_an_end_of_its_frame() {
    let house = serve(|_, writer| {
        begin(writer, "", None);
        writer.give(prose(500));
        Err(Fault::App("broken".to_owned()))
    });
    for coding in CODINGS {
        let reply = get(&house, &accept(coding));
        assert!(!reply.is_complete);
        assert_eq!(reply.decoded(), (prose(500), false), "{coding}");
    }
    house.stop();
}

#[test]
fn sends_files_plain_unless_their_reply_is_compressed_already() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, prose(200_000)).unwrap();
    let house = serve(move |exchange, writer| {
        begin(writer, "", None);
        if exchange.head().header("X-First").is_some() {
            assert!(writer.file_is_quick());
            writer.give(b"first ");
            assert!(!writer.file_is_quick());
        }
        let file = std::fs::File::open(&path).unwrap();
        assert_eq!(writer.file(file, 0, 200_000), Taken::All);
        Ok(())
    });
    for coding in CODINGS {
        let plain = get(&house, &accept(coding));
        assert_eq!(plain.line("Content-Encoding"), None);
        assert_eq!(plain.line("Vary"), None);
        assert!(plain.body == prose(200_000));
        let reply = get(&house, &format!("{}X-First: y\r\n", accept(coding)));
        let expect = [b"first ".to_vec(), prose(200_000)].concat();
        assert!(reply.decoded() == (expect, true), "{coding}");
    }
    house.stop();
}

#[test]
fn cuts_a_compressed_reply_whose_file_is_too_short() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, b"short").unwrap();
    let house = serve(move |_, writer| {
        begin(writer, "", None);
        writer.give(b"first ");
        let file = std::fs::File::open(&path).unwrap();
        assert_eq!(writer.file(file, 0, 200_000), Taken::Gone);
        Ok(())
    });
    let reply = get(&house, &accept("gzip"));
    assert!(!reply.is_complete);
    assert_eq!(reply.decoded(), (b"first ".to_vec(), false));
    house.stop();
}

#[test]
fn ends_compressed_streams_for_old_clients_with_the_connection() {
    let house = serve(|exchange, writer| {
        begin(writer, "", None);
        match exchange.head().header("X-How") {
            Some(b"whole") => writer.give_whole(prose(5000)),
            _ => writer.give(prose(5000)),
        };
        Ok(())
    });
    for (how, framing) in [
        ("whole", "Content-Length: "),
        ("piece", "Connection: close"),
    ] {
        for coding in CODINGS {
            let mut client = connect(&house);
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
    house.stop();
}

#[test]
fn keeps_small_and_foreign_replies_as_they_are() {
    let house = serve(|exchange, writer| {
        let lines = exchange.head().header("X-Lines").unwrap_or_default();
        let lines = String::from_utf8_lossy(lines).replace('|', "\r\n");
        let small = exchange.head().header("X-Small").is_some();
        begin(writer, &lines, None);
        writer.give_whole(prose(if small { 99 } else { 100 }));
        Ok(())
    });
    let check = |lines: &str, is_coded: bool| {
        let reply = get(&house, &format!("{}{lines}", accept("gzip")));
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
    let reply = get(
        &house,
        &format!("{}Cache-Control: no-transform\r\n", accept("gzip")),
    );
    assert_eq!(reply.line("Content-Encoding"), None);
    assert_eq!(reply.line("Vary").as_deref(), Some("Accept-Encoding"));
    house.stop();
}

#[test]
fn calls_large_pieces_slow_only_where_they_are_compressed() {
    let house = serve(|_, writer| {
        begin(writer, "", None);
        let quick = [1000, 10_000].map(|bytes| writer.is_quick(bytes));
        writer.give(format!("{quick:?}").as_bytes());
        let quick = [1000, 10_000].map(|bytes| writer.is_quick(bytes));
        writer.give(format!("{quick:?}").as_bytes());
        Ok(())
    });
    let coded = get(&house, &accept("gzip"));
    assert_eq!(coded.decoded().0, b"[true, false][true, false]");
    let plain = get(&house, "");
    assert_eq!(plain.body, b"[true, true][true, true]");
    house.stop();
}

#[test]
fn weakens_the_etag_of_a_304_for_a_reply_that_was_compressed() {
    let house = serve(|_, writer| {
        writer.begin_with(304, "ETag: \"a\"\r\n", Declared::default());
        writer.give_whole(b"");
        Ok(())
    });
    let reply = get(&house, "If-None-Match: W/\"a\"\r\n");
    assert_eq!(reply.line("ETag").as_deref(), Some("W/\"a\""));
    assert_eq!(reply.line("Vary").as_deref(), Some("Accept-Encoding"));
    let reply = get(&house, "If-None-Match: \"a\"\r\n");
    assert_eq!(reply.line("ETag").as_deref(), Some("\"a\""));
    assert_eq!(reply.line("Vary"), None);
    house.stop();
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
        move |_, writer| {
            begin(writer, "", None);
            // Much more than a socket takes, compressed.
            body.chunks(1 << 20).for_each(|piece| {
                writer.give(piece);
                writer.give(noise(100_000));
            });
            done.lock().unwrap().send(()).unwrap();
            Ok(())
        },
    );
    let mut client = connect(&house);
    client.send("GET", &accept("zstd"));
    // Not a byte is read before the handler is through.
    is_done.recv_timeout(PATIENCE).unwrap();
    let reply = client.reply("GET");
    assert!(reply.is_complete);
    let (decoded, is_whole) = reply.decoded();
    assert!(is_whole);
    assert_eq!(decoded.len(), 60 * ((1 << 20) + 100_000));
    house.stop();
}

#[test]
fn touches_nothing_when_no_coding_is_configured() {
    let house = serve_with(Compression::default(), |_, writer| {
        begin(writer, "ETag: \"a\"\r\n", None);
        writer.give_whole(prose(5000));
        Ok(())
    });
    let reply = get(&house, &accept("gzip"));
    assert_eq!(reply.line("Content-Encoding"), None);
    assert_eq!(reply.line("Vary"), None);
    assert_eq!(reply.line("ETag").as_deref(), Some("\"a\""));
    house.stop();
}
