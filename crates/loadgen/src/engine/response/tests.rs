//! Replies of every form, in pieces of every size, against a plain reading of the whole.

use proptest::prelude::*;

use super::*;

/// What is expected of replies to this method.
fn standard(asked: Asked, expect: &Expect) -> Expected {
    let mut expected = Expected::of(&crate::tests::sample_request(1), expect);
    expected.asked = asked;
    expected
}

fn any() -> Expected {
    standard(Asked::Other, &Expect::default())
}

fn of_body(body: ExpectBody) -> Expected {
    let expect = Expect {
        body,
        ..Expect::default()
    };
    standard(Asked::Other, &expect)
}

fn sum_of(body: &[u8]) -> ExpectBody {
    ExpectBody::Sha256(Sha256::digest(body).into())
}

/// What a connection gives that is read in these pieces, and then ends.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, standard: &Expected) -> Vec<Ended> {
    let mut response = ResponseParser::default();
    let mut replies = Vec::new();
    for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() {
            let (used, ended) = response.feed(rest, standard);
            assert!(used > 0 || ended.is_some(), "neither bytes nor an end");
            rest = &rest[used..];
            match ended {
                Some(ended) => {
                    assert!(response.is_untouched());
                    replies.push(ended);
                    if !ended.keeps {
                        return replies;
                    }
                }
                None => assert!(rest.is_empty(), "bytes are left before the end"),
            }
        }
    }
    if !response.is_untouched() {
        replies.push(response.close(standard));
        assert!(response.is_untouched());
    }
    replies
}

/// These replies, however the text is cut in two, and byte by byte.
fn check(text: &str, standard: &Expected, expect: &[Ended]) {
    let bytes = text.as_bytes();
    for at in 0..=bytes.len() {
        let (one, two) = bytes.split_at(at);
        assert_eq!(read([one, two], standard), expect, "{text:?} cut at {at}");
    }
    assert_eq!(read(bytes.chunks(1), standard), expect, "{text:?} in bytes");
}

fn ended(status: u16, keeps: bool, wrong: Option<Failure>) -> Ended {
    Ended {
        status,
        keeps,
        wrong,
    }
}

fn right(status: u16) -> Ended {
    ended(status, true, None)
}

fn last(status: u16) -> Ended {
    ended(status, false, None)
}

fn wrong(status: u16, wrong: Failure) -> Ended {
    ended(status, true, Some(wrong))
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const NOTHING: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const IN_CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nT: x\r\n\r\n";
const OLD: &str = "HTTP/1.0 200 OK\r\n\r\nhello";
const CLOSING: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";

#[test]
fn ends_every_form_of_reply_at_its_end() {
    for (text, expect) in [
        (HELLO, right(200)),
        (NOTHING, right(200)),
        (IN_CHUNKS, right(200)),
        (OLD, last(200)),
        ("HTTP/1.0 200 OK\r\n\r\n", last(200)),
        (CLOSING, last(200)),
        ("HTTP/1.1 204 No Content\r\n\r\n", right(204)),
        ("HTTP/1.1 304 -\r\nContent-Length: 5\r\n\r\n", right(304)),
        ("\r\nHTTP/1.1 200\nContent-Length: 1\n\nx", right(200)),
        // Another protocol follows.
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n\u{0}\u{1}",
            ended(101, false, Some(Failure::Status)),
        ),
    ] {
        check(text, &any(), &[expect]);
        let interim = format!("{INTERIM}HTTP/1.1 103 Early\r\nLink: <a>\r\n\r\n{text}");
        check(&interim, &any(), &[expect]);
    }
}

#[test]
fn reads_pipelined_replies_one_after_another() {
    let text = [HELLO, IN_CHUNKS, NOTHING, INTERIM, HELLO, IN_CHUNKS, OLD].concat();
    let mut expect = vec![right(200); 5];
    expect.push(last(200));
    check(&text, &any(), &expect);
    check(
        &text.replace("hello", "HELLO").replace(OLD, ""),
        &any(),
        &expect,
    );
}

#[test]
fn sums_bodies_of_every_form() {
    for text in [HELLO, IN_CHUNKS, OLD, CLOSING] {
        let keeps = text != OLD && text != CLOSING;
        let expect = ended(200, keeps, None);
        check(text, &of_body(sum_of(b"hello")), &[expect]);
        let other = ended(200, keeps, Some(Failure::Body));
        check(text, &of_body(sum_of(b"hellO")), &[other]);
        check(text, &of_body(sum_of(b"")), &[other]);
    }
    check(NOTHING, &of_body(sum_of(b"")), &[right(200)]);
    check(
        NOTHING,
        &of_body(sum_of(b"x")),
        &[wrong(200, Failure::Body)],
    );
    let none = "HTTP/1.1 204 -\r\n\r\n";
    check(none, &of_body(sum_of(b"")), &[right(204)]);
    check(none, &of_body(sum_of(b"x")), &[wrong(204, Failure::Body)]);
}

#[test]
fn compares_bodies_with_the_first_of_their_own_kind() {
    let [one, other] = [(), ()].map(|()| of_body(ExpectBody::SameAsFirst));
    let failed = HELLO.replace("200 OK", "500 No").replace("hello", "sorry");
    let status = wrong(500, Failure::Status);
    // A body that came with a wrong status is nobody's example.
    assert_eq!(read([failed.as_bytes()], &one), [status]);
    assert_eq!(read([HELLO.as_bytes()], &one), [right(200)]);
    assert_eq!(read([IN_CHUNKS.as_bytes()], &one), [right(200)]);
    let changed = HELLO.replace("hello", "hallo");
    let body = wrong(200, Failure::Body);
    assert_eq!(read([changed.as_bytes()], &one), [body]);
    assert_eq!(read([changed.as_bytes()], &other), [right(200)]);
    assert_eq!(read([HELLO.as_bytes()], &other), [body]);
}

#[test]
fn checks_statuses_and_lengths() {
    let strict = Expect {
        statuses: vec![204, 404],
        body_bytes: Some(5),
        body: ExpectBody::Any,
    };
    let get = standard(Asked::Other, &strict);
    check(HELLO, &get, &[wrong(200, Failure::Status)]);
    let missing = |text: &str| text.replace("200 OK", "404 -");
    check(&missing(HELLO), &get, &[right(404)]);
    check(&missing(IN_CHUNKS), &get, &[right(404)]);
    check(&missing(OLD), &get, &[last(404)]);
    check(&missing(NOTHING), &get, &[wrong(404, Failure::Body)]);
    check("HTTP/1.1 204 -\r\n\r\n", &get, &[wrong(204, Failure::Body)]);
    for (status, expect) in [
        (199, None),
        (200, None),
        (399, None),
        (400, Some(Failure::Status)),
    ] {
        let text = format!("HTTP/1.1 {status} -\r\nContent-Length: 0\r\n\r\n{NOTHING}");
        let both = [ended(status, true, expect), right(200)];
        // 199 is an interim reply and none to be judged.
        check(&text, &any(), &both[usize::from(status < 200)..]);
    }
}

#[test]
fn expects_no_body_of_replies_to_head() {
    let strict = Expect {
        body_bytes: Some(5),
        body: ExpectBody::SameAsFirst,
        ..Expect::default()
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let text = [head, chunked, head].concat();
    check(&text, &standard(Asked::Head, &strict), &[right(200); 3]);
}

#[test]
fn lets_a_requests_own_expectation_win() {
    let mut request = crate::tests::sample_request(1);
    request.expect = Some(Expect {
        statuses: vec![503],
        ..Expect::default()
    });
    let own = Expected::of(&request, &Expect::default());
    check(HELLO, &own, &[wrong(200, Failure::Status)]);
    check(&HELLO.replace("200", "503"), &own, &[right(503)]);
}

#[test]
fn calls_short_what_ends_before_its_end() {
    for text in [HELLO, IN_CHUNKS, CLOSING] {
        let head_bytes = text.find("\r\n\r\n").expect("the head ends") + 4;
        for bytes in 1..text.len() {
            let status = if bytes < head_bytes { 0 } else { 200 };
            for standard in [any(), of_body(sum_of(b"hello"))] {
                let read = read([&text.as_bytes()[..bytes]], &standard);
                assert_eq!(read, [short(status)], "{bytes} of {text:?}");
            }
        }
    }
    assert_eq!(read([], &any()), []);
    assert_eq!(read([INTERIM.as_bytes()], &any()), []);
}

#[test]
fn calls_short_what_is_no_reply() {
    for text in [
        "garbage",
        "garbage\r\n\r\n",
        "HTTP/1.1 099 -\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 100 Continue\r\n\r\n\u{0}",
    ] {
        check(text, &any(), &[short(0)]);
        let expect = [right(200), short(0)];
        check(&[HELLO, text].concat(), &any(), &expect);
        check(&[HELLO, "?", text].concat(), &any(), &expect);
    }
    for chunks in [
        "x\r\n",
        "3\r\nhello",
        "ffffffffffffffffff\r\n",
        "0\r\n\u{1}",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        check(&text, &any(), &[short(200)]);
    }
}

#[test]
fn reads_any_number_of_interim_replies() {
    let text = INTERIM.repeat(100_000) + HELLO;
    assert_eq!(read([text.as_bytes()], &any()), [right(200)]);
    assert_eq!(read(text.as_bytes().chunks(7), &any()), [right(200)]);
}

#[test]
fn bounds_heads_however_they_come() {
    let head = |bytes: usize| {
        let frame = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: \r\n\r\n".len();
        let value = "v".repeat(bytes - frame);
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: {value}\r\n\r\n")
    };
    for (bytes, expect) in [(HEAD_BYTES_MAX, right(200)), (HEAD_BYTES_MAX + 1, short(0))] {
        let text = head(bytes);
        for piece in [1, 1000, HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1] {
            let read = read(text.as_bytes().chunks(piece), &any());
            assert_eq!(read, [expect], "{bytes} bytes in pieces of {piece}");
        }
    }
    let mut response = ResponseParser::default();
    let endless = [b'v'; 10_000];
    let ended = (0..100).find_map(|_| response.feed(&endless, &any()).1);
    assert_eq!(ended, Some(short(0)));
}

#[test]
fn keeps_little_of_an_idle_connection() {
    let standard = of_body(ExpectBody::SameAsFirst);
    let mut response = ResponseParser::default();
    let long = HELLO.replace("OK", &"long ".repeat(10_000));
    for text in [long.as_str(), IN_CHUNKS, HELLO] {
        for byte in text.as_bytes().chunks(1) {
            response.feed(byte, &standard);
        }
        assert!(response.is_untouched());
    }
    let blocks = response.begun.capacity() + size_of::<Body>();
    assert!(
        size_of::<ResponseParser>() <= 96 && blocks <= 900,
        "{blocks}"
    );
}

#[test]
fn forgets_a_connection() {
    for begun in [
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
    ] {
        let mut response = ResponseParser::default();
        assert_eq!(response.feed(begun.as_bytes(), &any()).1, None);
        assert!(!response.is_untouched());
        response.reset();
        assert!(response.is_untouched());
        let (_, ended) = response.feed(HELLO.as_bytes(), &any());
        assert_eq!(ended, Some(right(200)));
    }
}

/// How a reply's body is sent.
#[derive(Clone, Debug)]
enum Form {
    Length,
    Chunks(Vec<usize>),
    UntilClose,
}

/// A reply and the text it is.
#[derive(Clone, Debug)]
struct Made {
    status: u16,
    closes: bool,
    interim: usize,
    body: Vec<u8>,
    form: Form,
}

impl Made {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(INTERIM.repeat(self.interim).bytes());
        out.extend(format!("HTTP/1.1 {} -\r\n", self.status).bytes());
        if self.closes {
            out.extend(b"Connection: close\r\n");
        }
        match &self.form {
            Form::Length => {
                out.extend(format!("Content-Length: {}\r\n\r\n", self.body.len()).bytes());
                out.extend(&self.body);
            }
            Form::UntilClose => {
                out.extend(b"\r\n");
                out.extend(&self.body);
            }
            Form::Chunks(sizes) => {
                out.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                let mut rest = &self.body[..];
                for size in sizes.iter().copied().chain([rest.len()]) {
                    let (chunk, more) = rest.split_at(size.min(rest.len()));
                    rest = more;
                    if !chunk.is_empty() {
                        out.extend(format!("{:x}\r\n", chunk.len()).bytes());
                        out.extend(chunk);
                        out.extend(b"\r\n");
                    }
                }
                out.extend(b"0\r\n\r\n");
            }
        }
    }

    /// As the plan's words say it, without a reader.
    fn expect(&self, standard: &Expected) -> Ended {
        let bytes = self.body.len() as u64;
        let is_right_length = standard
            .expect
            .body_bytes
            .is_none_or(|right| right == bytes);
        let is_right_body = match standard.expect.body {
            ExpectBody::Sha256(sum) => sum == <[u8; 32]>::from(Sha256::digest(&self.body)),
            _ => true,
        };
        Ended {
            status: self.status,
            keeps: !self.closes && !matches!(self.form, Form::UntilClose),
            wrong: if !(200..400).contains(&self.status) {
                Some(Failure::Status)
            } else if !is_right_length || !is_right_body {
                Some(Failure::Body)
            } else {
                None
            },
        }
    }
}

fn made() -> impl Strategy<Value = Made> {
    let form = prop_oneof![
        4 => Just(Form::Length),
        3 => prop::collection::vec(1usize..40, 0..6).prop_map(Form::Chunks),
        1 => Just(Form::UntilClose),
    ];
    // Bodies that look like replies: whoever is out of step is to be misled.
    let body = prop_oneof![
        prop::collection::vec(any_byte(), 0..60),
        Just(HELLO.as_bytes().to_vec()),
        Just(b"hello".to_vec()),
    ];
    let status = prop_oneof![Just(200u16), Just(302), Just(404), Just(500)];
    (status, prop::bool::weighted(0.1), 0usize..3, body, form).prop_map(
        |(status, closes, interim, body, form)| Made {
            status,
            closes,
            interim,
            body,
            form,
        },
    )
}

fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![proptest::num::u8::ANY, Just(b'\r'), Just(b'\n')]
}

/// Pieces that end at these places, in any order and beyond the end.
fn cut<'a>(bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = places.iter().map(|at| at % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut from = 0;
    ends.into_iter()
        .map(|end| {
            let piece = &bytes[from..end];
            from = end;
            piece
        })
        .collect()
}

fn standards() -> [Expected; 3] {
    let of_five = Expect {
        body_bytes: Some(5),
        ..Expect::default()
    };
    [
        any(),
        standard(Asked::Other, &of_five),
        of_body(sum_of(b"hello")),
    ]
}

proptest! {
    #[test]
    fn reads_what_was_written(
        replies in prop::collection::vec(made(), 1..6),
        places in prop::collection::vec(0usize..2000, 0..12),
    ) {
        let mut bytes = Vec::new();
        for reply in &replies {
            reply.write(&mut bytes);
        }
        for standard in standards() {
            let mut expect = Vec::new();
            for reply in &replies {
                let ended = reply.expect(&standard);
                let bytes_behind = matches!(reply.form, Form::UntilClose);
                expect.push(ended);
                if bytes_behind || !ended.keeps {
                    break;
                }
            }
            // What follows a body without a length is the body.
            let until_close = replies.iter().take(expect.len()).next_back().filter(|reply| {
                matches!(reply.form, Form::UntilClose)
            });
            if let Some(reply) = until_close {
                let mut whole = Made { body: Vec::new(), ..reply.clone() };
                let mut before = Vec::new();
                replies.iter().take(expect.len() - 1).for_each(|reply| reply.write(&mut before));
                whole.write(&mut before);
                whole.body = bytes[before.len()..].to_vec();
                *expect.last_mut().unwrap() = whole.expect(&standard);
            }
            prop_assert_eq!(&read([&bytes[..]], &standard), &expect);
            prop_assert_eq!(&read(cut(&bytes, &places), &standard), &expect);
        }
    }

    #[test]
    fn reads_damaged_replies_the_same_in_any_pieces(
        replies in prop::collection::vec(made(), 1..4),
        damage in prop::collection::vec((0usize..2000, any_byte()), 1..4),
        places in prop::collection::vec(0usize..2000, 0..12),
    ) {
        let mut bytes = Vec::new();
        for reply in &replies {
            reply.write(&mut bytes);
        }
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        for standard in standards() {
            let whole = read([&bytes[..]], &standard);
            prop_assert_eq!(&read(cut(&bytes, &places), &standard), &whole);
            prop_assert_eq!(&read(bytes.chunks(1), &standard), &whole);
        }
    }
}
