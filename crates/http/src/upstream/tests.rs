//! Malformed and odd messages of clients on their way to upstreams: what is not refused is written so that readers of
//! three kinds, none of which is this crate's, find the same single message in it.

use super::*;
use crate::{
    BodyDecoder, BodyFraming, CHUNK_SUFFIX, Cause, HeadIndex, HeadStep, HeadView, LAST_CHUNK,
    Limits, chunk_prefix,
};

/// What stands behind each message on its connection, and must reach no upstream.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: next\r\n\r\n";

const FORWARDING: ForwardingFields<'static> = ForwardingFields {
    chain: ForwardingChain::Appended,
    client: b"192.0.2.7",
    peer: b"192.0.2.8",
    scheme: b"http",
    host: b"h",
    prefix: b"",
};

/// The message that begins `bytes`: its index and its body. The first rule that it breaks, else.
fn received(bytes: &[u8]) -> Result<(HeadIndex, Vec<u8>), Cause> {
    let limits = Limits::default();
    let mut index = HeadIndex::new();
    let step = index.parse(bytes, &mut 0, &limits);
    assert_eq!(step.map_err(|refusal| refusal.cause)?, HeadStep::Complete);
    let mut decoder = BodyDecoder::new(index.body, &limits).map_err(|refusal| refusal.cause)?;
    let (mut body, mut at) = (Vec::new(), index.bytes);
    while !decoder.is_done() {
        let step = decoder
            .decode(&bytes[at..])
            .map_err(|refusal| refusal.cause)?;
        assert!(step.consumed > 0, "{bytes:?} is whole");
        body.extend_from_slice(&bytes[at..][step.data]);
        at += step.consumed;
    }
    assert_eq!(&bytes[at..], NEXT, "the next message stays where it is");
    Ok((index, body))
}

/// The same message for an upstream.
fn sent(bytes: &[u8], index: &HeadIndex, body: &[u8], framing: BodyFraming) -> Vec<u8> {
    let mut out = Vec::new();
    let request = UpstreamRequest {
        head: HeadView { bytes, index },
        method: None,
        rewritten: None,
        host: HostField::Client { otherwise: b"up" },
        framing,
        forwarding: FORWARDING,
        set: &[],
        removed: &[],
        upgrade: None,
    };
    request
        .write(&mut out)
        .expect("what was parsed can be written");
    match framing {
        BodyFraming::Chunked => {
            for piece in body.chunks(3) {
                out.extend_from_slice(chunk_prefix(piece.len()).as_bytes());
                out.extend_from_slice(piece);
                out.extend_from_slice(CHUNK_SUFFIX);
            }
            out.extend_from_slice(LAST_CHUNK);
        }
        BodyFraming::None | BodyFraming::Length(_) => out.extend_from_slice(body),
    }
    out
}

/// One message as a reader has found it.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    request_line: String,
    /// Names in lower case with `-` for `_`, as an environment has them.
    names: Vec<String>,
    body: Vec<u8>,
    bytes: usize,
}

/// How a reader goes about what the RFC leaves to it, or forbids.
#[derive(Clone, Copy, Debug)]
struct Reader {
    /// CR and LF end lines alone, folds join them, blanks around names do not matter, a chunk's size ends at the first
    /// byte that is no digit.
    is_lax: bool,
    /// A length counts where there is a coding too.
    prefers_length: bool,
    /// Of two values of a name the last counts.
    takes_last: bool,
}

impl Reader {
    fn read(self, bytes: &[u8]) -> Found {
        let (lines, head_bytes) = self.lines(bytes);
        let mut names = Vec::new();
        let (mut lengths, mut codings) = (Vec::new(), Vec::new());
        for line in &lines[1..] {
            let (name, value) = line.split_once(':').expect("a field has a colon");
            let known = if self.is_lax { name.trim() } else { name };
            let known = known.to_ascii_lowercase().replace('_', "-");
            match &*known {
                "content-length" => lengths.push(value.trim().to_owned()),
                "transfer-encoding" => codings.push(value.trim().to_ascii_lowercase()),
                _ => {}
            }
            names.push(known);
        }
        let pick = |values: &[String]| match self.takes_last {
            true => values.last().cloned(),
            false => values.first().cloned(),
        };
        let length = pick(&lengths).map(|text| text.parse().expect("a length is a number"));
        let is_chunked = pick(&codings).is_some_and(|coding| coding.contains("chunked"));
        let rest = &bytes[head_bytes..];
        let (body, body_bytes) = match (length, is_chunked) {
            (Some(length), false) => (rest[..length].to_vec(), length),
            (Some(length), true) if self.prefers_length => (rest[..length].to_vec(), length),
            (_, true) => self.chunks(rest),
            (None, false) => (Vec::new(), 0),
        };
        Found {
            request_line: lines[0].clone(),
            names,
            body,
            bytes: head_bytes + body_bytes,
        }
    }

    /// The lines before the first empty one, and the length of all of them with it.
    fn lines(self, bytes: &[u8]) -> (Vec<String>, usize) {
        let mut lines: Vec<String> = Vec::new();
        let mut at = 0;
        loop {
            let (line, end) = self.line(bytes, at);
            at = end;
            match lines.last_mut() {
                _ if line.is_empty() => return (lines, at),
                Some(last) if self.is_lax && line.starts_with([' ', '\t']) => last.push_str(&line),
                _ => lines.push(line),
            }
        }
    }

    fn line(self, bytes: &[u8], start: usize) -> (String, usize) {
        let is_end = |at: &usize| match bytes[*at] {
            b'\n' => self.is_lax || bytes[at - 1] == b'\r',
            b'\r' => self.is_lax && bytes.get(at + 1) != Some(&b'\n'),
            _ => false,
        };
        let end = (start..bytes.len()).find(is_end).expect("a line ends");
        let line = bytes[start..end]
            .strip_suffix(b"\r")
            .unwrap_or(&bytes[start..end]);
        // Of each byte a character, so that no byte gets lost.
        (line.iter().map(|byte| char::from(*byte)).collect(), end + 1)
    }

    fn chunks(self, bytes: &[u8]) -> (Vec<u8>, usize) {
        let (mut body, mut at) = (Vec::new(), 0);
        loop {
            let (line, end) = self.line(bytes, at);
            let digits: &str = match self.is_lax {
                true => line
                    .trim()
                    .split(|c: char| !c.is_ascii_hexdigit())
                    .next()
                    .unwrap_or(""),
                false => &line,
            };
            let size = usize::from_str_radix(digits, 16).expect("a chunk has a size");
            at = end + size;
            body.extend_from_slice(&bytes[end..at]);
            if size == 0 {
                // Trailers, up to an empty line.
                let (_, trailers_bytes) = self.lines(&bytes[end..]);
                return (body, at + trailers_bytes);
            }
            let (line, end) = self.line(bytes, at);
            assert_eq!(line, "", "nothing but a line end follows a chunk");
            at = end;
        }
    }
}

/// A third opinion on lines and fields.
fn check_against_httparse(message: &[u8], found: &Found) {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let step = request.parse(message).expect("a head by httparse too");
    assert!(step.is_complete());
    let line = [
        request.method.unwrap_or_default(),
        request.path.unwrap_or_default(),
        "HTTP/1.1",
    ];
    assert_eq!(request.version, Some(1));
    assert_eq!(line.join(" "), found.request_line);
    let names: Vec<String> = (request.headers.iter())
        .map(|header| header.name.to_ascii_lowercase())
        .collect();
    assert_eq!(names, found.names);
}

/// `message`, which is followed by another one, is refused for `expect`, or every reader finds one message in what an
/// upstream gets.
#[track_caller]
fn check(message: &[u8], expect: Result<&[u8], Cause>) {
    let bytes = [message, NEXT].concat();
    let text = String::from_utf8_lossy(message);
    let (index, body) = match received(&bytes) {
        Ok(received) => received,
        Err(cause) => return assert_eq!(Err(cause), expect.map(|_| ()), "{text:?}"),
    };
    assert_eq!(Ok(&*body), expect, "{text:?}");
    let framings = match body.is_empty() {
        true => vec![
            BodyFraming::None,
            BodyFraming::Length(0),
            BodyFraming::Chunked,
        ],
        false => vec![BodyFraming::Length(body.len() as u64), BodyFraming::Chunked],
    };
    for framing in framings {
        let message = sent(&bytes, &index, &body, framing);
        let pipelined = [&*message, NEXT].concat();
        let strict = Reader {
            is_lax: false,
            prefers_length: false,
            takes_last: false,
        };
        let found = strict.read(&pipelined);
        assert_eq!(
            (&found.body, found.bytes),
            (&body, message.len()),
            "{text:?}"
        );
        for (prefers_length, takes_last) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let lax = Reader {
                is_lax: true,
                prefers_length,
                takes_last,
            };
            assert_eq!(lax.read(&pipelined), found, "{text:?} by {lax:?}");
        }
        check_against_httparse(&message, &found);
        let count = |name: &str| found.names.iter().filter(|found| *found == name).count();
        assert_eq!(count("host"), 1);
        assert_eq!(count("x-forwarded-for"), 1);
        assert!(count("content-length") + count("transfer-encoding") <= 1);
        assert!(count("content-length") <= 1);
    }
}

/// Fields behind Host, and a body.
#[track_caller]
fn check_post(fields: &str, body: &str, expect: Result<&[u8], Cause>) {
    let message = format!("POST /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}");
    check(message.as_bytes(), expect);
}

#[test]
fn two_framings_never_reach_an_upstream() {
    let chunked = "0\r\n\r\n";
    for (fields, cause) in [
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            Cause::LengthWithCoding,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            Cause::LengthWithCoding,
        ),
        (
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            Cause::LengthRepeated,
        ),
        (
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            Cause::LengthRepeated,
        ),
        ("Content-Length: 5, 5\r\n", Cause::LengthInvalid),
        ("Content-Length: +5\r\n", Cause::LengthInvalid),
        ("Content-Length: 0x5\r\n", Cause::LengthInvalid),
        ("Content-Length:\r\n", Cause::LengthInvalid),
        ("Transfer-Encoding: xchunked\r\n", Cause::CodingNotFinal),
        ("Transfer-Encoding: gzip, chunked\r\n", Cause::CodingUnknown),
        (
            "Transfer-Encoding: chunked, identity\r\n",
            Cause::CodingNotFinal,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            Cause::CodingRepeated,
        ),
        ("Transfer-Encoding: \"chunked\"\r\n", Cause::CodingForm),
        ("Transfer-Encoding:\x0bchunked\r\n", Cause::FieldValueByte),
        ("Transfer-Encoding : chunked\r\n", Cause::FieldNameSpace),
        (" Transfer-Encoding: chunked\r\n", Cause::FieldFold),
        ("X: y\r\n\tTransfer-Encoding: chunked\r\n", Cause::FieldFold),
        ("X: y\nTransfer-Encoding: chunked\r\n", Cause::BareLf),
        ("X: y\rTransfer-Encoding: chunked\r\n", Cause::BareCr),
        ("X: y\0\r\n", Cause::FieldValueByte),
        ("X\u{0}: y\r\n", Cause::FieldNameByte),
        (": y\r\n", Cause::FieldNameEmpty),
        ("X\r\n", Cause::FieldColon),
        ("Host: other\r\n", Cause::HostRepeated),
        (
            "Transfer\u{212a}Encoding: chunked\r\n",
            Cause::FieldNameByte,
        ),
    ] {
        check_post(fields, chunked, Err(cause));
    }
    let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    check(old, Err(Cause::CodingInOldVersion));
}

#[test]
fn odd_chunks_never_reach_an_upstream() {
    for (body, expect) in [
        ("5\r\nhello\r\n0\r\n\r\n", Ok(&b"hello"[..])),
        ("0\r\n\r\n", Ok(b"")),
        ("5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n", Ok(b"hello")),
        ("005\r\nhello\r\n000\r\n\r\n", Ok(b"hello")),
        // Trailers end here, whatever they are.
        (
            "5\r\nhello\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n\r\n",
            Ok(b"hello"),
        ),
        ("5\nhello\r\n0\r\n\r\n", Err(Cause::ChunkExtensionForm)),
        ("5\r\nhello\n0\r\n\r\n", Err(Cause::ChunkEnd)),
        ("5\r\nhellox\r\n0\r\n\r\n", Err(Cause::ChunkEnd)),
        ("5 \r\nhello\r\n0\r\n\r\n", Err(Cause::ChunkExtensionForm)),
        (" 5\r\nhello\r\n0\r\n\r\n", Err(Cause::ChunkSize)),
        ("0x5\r\nhello\r\n0\r\n\r\n", Err(Cause::ChunkExtensionForm)),
        ("+5\r\nhello\r\n0\r\n\r\n", Err(Cause::ChunkSize)),
        ("-5\r\nhello\r\n0\r\n\r\n", Err(Cause::ChunkSize)),
        ("5;\nhello\r\n0\r\n\r\n", Err(Cause::ChunkExtensionForm)),
        (
            "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n",
            Err(Cause::ChunkExtensionForm),
        ),
        (
            "10000000000000005\r\nhello\r\n0\r\n\r\n",
            Err(Cause::ChunkSize),
        ),
        (
            "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
            Err(Cause::BodyTooLarge),
        ),
        ("\r\n5\r\nhello\r\n0\r\n\r\n", Err(Cause::ChunkSize)),
        ("5\r\nhello\r\n0\r\nX : y\r\n\r\n", Err(Cause::TrailerByte)),
        ("5\r\nhello\r\n0\r\n fold\r\n\r\n", Err(Cause::TrailerByte)),
        ("5\r\nhello\r\n0\r\nX: y\n\r\n", Err(Cause::TrailerByte)),
    ] {
        check_post("Transfer-Encoding: chunked\r\n", body, expect);
    }
}

#[test]
fn odd_names_frame_nothing() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    let length = format!("Content-Length: {}\r\n", smuggled.len());
    for fields in [
        "Transfer_Encoding: chunked\r\n",
        "Content_Length: 0\r\n",
        "TRANSFER_ENCODING: chunked\r\ncontent_length: 7\r\n",
        "X-Transfer-Encoding: chunked\r\n",
        "Content-Length-: 3\r\n",
        "Connection: Content-Length\r\n",
        "Connection: Transfer-Encoding, Host\r\n",
        "Connection: close, X-Forwarded-For\r\nX-Forwarded-For: 203.0.113.9\r\n",
        "X_Forwarded_For: 203.0.113.9\r\nX_FORWARDED-FOR: 203.0.113.9\r\n",
        "Proxy-Connection: keep-alive\r\nKeep-Alive: 300\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n",
        "TE: trailers, chunked\r\nTrailer: Content-Length\r\n",
        "Expect: 100-continue\r\n",
        "X: Transfer-Encoding: chunked\r\n",
        "X: \u{e9}\u{ff}\r\n",
    ] {
        check_post(
            &format!("{length}{fields}"),
            smuggled,
            Ok(smuggled.as_bytes()),
        );
        check_post(
            &format!("{fields}{length}"),
            smuggled,
            Ok(smuggled.as_bytes()),
        );
    }
}

#[test]
fn odd_targets_and_beginnings_split_nothing() {
    for message in [
        "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://t/a?b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://t HTTP/1.1\r\nHost: h\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET //evil.test/a HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /?a=%0d%0aX:y HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.9\r\nHost: h\r\n\r\n",
        "X!#$ /a|b HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        check(message.as_bytes(), Ok(b""));
    }
    for (message, cause) in [
        ("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", Cause::VersionForm),
        ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", Cause::TargetByte),
        ("GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", Cause::MethodByte),
        ("GET /\u{e9} HTTP/1.1\r\nHost: h\r\n\r\n", Cause::TargetByte),
        ("GET / HTTP/1.1\nHost: h\n\n", Cause::BareLf),
        ("GET / HTTP/1.1 \r\nHost: h\r\n\r\n", Cause::VersionForm),
        ("GET / HTTP/1.1\r\n\r\n", Cause::HostMissing),
        (
            "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
            Cause::MethodByte,
        ),
        (
            "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n",
            Cause::MethodConnect,
        ),
    ] {
        check(message.as_bytes(), Err(cause));
    }
}
