//! The rules for request heads, as tables: what is read from the heads that are served, and which rule
//! refuses the others. Every head is given whole, byte by byte and behind an empty line.

use http::{
    BodyFraming, Cause, HeadIndex, HeadStep, HeadView, Limits, Marks, Method, RequestHead, Version,
};

/// Small bounds, so that the tables stay readable.
fn limits() -> Limits {
    Limits {
        head_bytes_max: 240,
        target_bytes_max: 60,
        header_bytes_max: 80,
        headers_len_max: 40,
        ..Limits::default()
    }
}

/// Outcome of giving `bytes` to a parser in pieces of `piece`, and how many bytes it had been given by
/// then.
fn parse(bytes: &[u8], piece: usize) -> (Result<Option<HeadIndex>, Cause>, usize) {
    let mut index = HeadIndex::new();
    let mut seen = 0;
    let mut given = 0;
    while given < bytes.len() {
        given = (given + piece).min(bytes.len());
        match index.parse(&bytes[..given], &mut seen, &limits()) {
            Ok(HeadStep::Complete) => {
                assert_eq!(seen, 0);
                return (Ok(Some(index)), given);
            }
            Ok(HeadStep::Partial) => assert_eq!(seen, given),
            Err(refusal) => {
                assert_eq!(refusal.status, refusal.cause.status());
                return (Err(refusal.cause), given);
            }
        }
        // What another connection does with the index in between must not matter.
        let other = b"POST /other HTTP/1.0\r\nContent-Length: 7\r\nConnection: keep-alive\r\n\r\n";
        index.parse(other, &mut 0, &limits()).expect("a good head");
    }
    (Ok(None), given)
}

/// The head's index, when it is complete; the same however it was cut.
fn check(head: &str, expect: Result<bool, Cause>) -> Option<HeadIndex> {
    let bytes = head.as_bytes();
    let (whole, _) = parse(bytes, bytes.len());
    assert_eq!(
        whole.as_ref().map(Option::is_some).map_err(|&cause| cause),
        expect,
        "{head:?}"
    );
    for piece in [1, 2, 3, 16] {
        assert_eq!(
            parse(bytes, piece).0,
            whole,
            "{head:?} in pieces of {piece}"
        );
    }
    whole.unwrap_or_default()
}

fn served(head: &str) -> HeadIndex {
    check(head, Ok(true)).expect("checked to be complete")
}

fn refuses(cause: Cause, heads: &[&str]) {
    for head in heads {
        check(head, Err(cause));
    }
}

/// A request for `/` with these field lines behind Host.
fn with(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n")
}

fn refuses_fields(cause: Cause, fields: &[&str]) {
    for fields in fields {
        check(&with(fields), Err(cause));
    }
}

#[test]
fn reads_a_head_and_leaves_what_follows_it() {
    let text = "POST /a/b?c=d HTTP/1.1\r\nHost: a.example:80\r\nX-One:  two \t\r\nx-one:\r\n\
                Content-Length: 5\r\n\r\nhelloGET /";
    let index = served(text);
    let view = HeadView {
        bytes: text.as_bytes(),
        index: &index,
    };
    assert_eq!(&text[index.bytes..], "helloGET /");
    assert_eq!(index.method, Method::Post);
    assert_eq!(view.method(), b"POST");
    assert_eq!(view.target(), b"/a/b?c=d");
    assert_eq!(view.path(), b"/a/b");
    assert_eq!(view.query(), Some(&b"c=d"[..]));
    assert_eq!(view.authority(), Some(&b"a.example:80"[..]));
    assert_eq!(index.version, Version::Http11);
    assert_eq!(index.body, BodyFraming::Length(5));
    assert!(index.keep_alive && !index.expect_continue && !view.is_head());
    assert_eq!(view.header("X-ONE"), Some(&b"two"[..]));
    assert_eq!(view.header("x-two"), None);
    let fields: Vec<_> = view
        .headers()
        .map(|(name, value)| [name, b"=", value].concat())
        .map(|field| String::from_utf8(field).expect("ASCII"))
        .collect();
    assert_eq!(
        fields,
        [
            "Host=a.example:80",
            "X-One=two",
            "x-one=",
            "Content-Length=5"
        ]
    );

    let owned = RequestHead::take(view);
    assert_eq!(owned.view().index, &index);
    assert_eq!(owned.view().bytes, &text.as_bytes()[..index.bytes]);
    assert_eq!(owned.view().header("host"), view.header("host"));
}

#[test]
fn tolerates_one_empty_line_before_the_request() {
    let text = "\r\nGET /a HTTP/1.1\r\nHost: b\r\n\r\n";
    let index = served(text);
    assert_eq!(index.bytes, text.len());
    assert_eq!(index.path.of(text.as_bytes()), b"/a");
    // RFC 9112 section 2.2.
    refuses(
        Cause::MethodByte,
        &[
            "\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n",
            " ",
            "\r\n ",
            "\t",
        ],
    );
    refuses(Cause::BareLf, &["\nGET / HTTP/1.1\r\n", "\r\n\n"]);
}

#[test]
fn waits_for_the_end_of_a_head_that_may_still_be_good() {
    for head in [
        "",
        "G",
        "\r",
        "\r\n",
        "GET /",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r",
    ] {
        check(head, Ok(false));
    }
}

#[test]
fn an_absolute_target_replaces_host() {
    // RFC 9112 section 3.2.2.
    let text = "GET http://b.example/c HTTP/1.1\r\nHost: a\r\n\r\n";
    let index = served(text);
    assert_eq!(
        index.authority.map(|span| span.of(text.as_bytes())),
        Some(&b"b.example"[..])
    );
    assert_eq!(index.path.of(text.as_bytes()), b"/c");
    refuses(Cause::HostMissing, &["GET http://a/ HTTP/1.1\r\n\r\n"]);
    refuses(
        Cause::HostInvalid,
        &["GET http://a/ HTTP/1.1\r\nHost: b c\r\n\r\n"],
    );
    refuses(
        Cause::HostRepeated,
        &["GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"],
    );
}

#[test]
fn wants_exactly_one_good_host() {
    // RFC 9112 section 3.2.
    refuses(
        Cause::HostMissing,
        &[
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nX-Host: a\r\n\r\n",
        ],
    );
    refuses_fields(
        Cause::HostRepeated,
        &["Host: a", "hOST: b", "X: y\r\nHost:"],
    );
    for host in [
        "a/b", "a b", "a@b", "u:p@a", "a:b", "a,b:c", "[::1", "a\\b", "\u{e9}", "a?", "<a>", "",
        " ", ".", "a..b", ".:80", "[v1.]",
    ] {
        refuses(
            Cause::HostInvalid,
            &[&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")],
        );
        refuses(
            Cause::HostInvalid,
            &[&format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n")],
        );
    }
    assert_eq!(served("GET / HTTP/1.0\r\n\r\n").authority, None);
    for host in ["a.", "[v1.a:b]", "[v1.a:b]:80"] {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let authority = served(&text).authority;
        assert_eq!(
            authority.map(|span| span.of(text.as_bytes())),
            Some(host.as_bytes())
        );
    }
}

#[test]
fn refuses_fields_of_one_value_that_are_repeated() {
    // RFC 9110 sections 5.3, 8.3 and 11.6.2.
    refuses_fields(
        Cause::ContentTypeRepeated,
        &[
            "Content-Type: a/b\r\nContent-Type: c/d",
            "Content-Type: a/b\r\nX: y\r\ncontent-type: a/b",
            "Content-Type:\r\nContent-Type:",
        ],
    );
    refuses_fields(
        Cause::AuthorizationRepeated,
        &[
            "Authorization: Basic YTpi\r\nAuthorization: Bearer c",
            "authorization: a\r\nX: y\r\nAUTHORIZATION: a",
        ],
    );
    served(&with(
        "Content-Type: a/b\r\nAuthorization: a\r\nProxy-Authorization: b\r\nX-Content-Type: c",
    ));
}

#[test]
fn refuses_line_ends_that_are_not_crlf() {
    // RFC 9112 section 2.2.
    refuses(
        Cause::BareLf,
        &[
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: y\n\n",
            "GET / HTTP/1.1\r\n\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\n\n",
            "GET /\n",
        ],
    );
    refuses_fields(
        Cause::BareCr,
        &["X: y\rz", "X: \r\r\n", "X: y\rContent-Length: 5"],
    );
    refuses(Cause::BareCr, &["GET /\rHost: HTTP/1.1\r\nHost: a\r\n\r\n"]);
}

#[test]
fn refuses_malformed_field_lines() {
    // RFC 9112 sections 5, 5.1 and 5.2; RFC 9110 section 5.5.
    refuses_fields(
        Cause::FieldFold,
        &[" X: y", "\tX: y", "X: y\r\n z", " ", "X: y\r\n\t"],
    );
    refuses_fields(
        Cause::FieldNameSpace,
        &["X : y", "X\t: y", "Content-Length : 5"],
    );
    refuses_fields(Cause::FieldNameEmpty, &[": y", ":"]);
    refuses_fields(Cause::FieldColon, &["X", "X y", "\u{e9}"]);
    refuses_fields(
        Cause::FieldNameByte,
        &[
            "X\0: y",
            "X y: z",
            "X\u{e9}: y",
            "X(: y",
            "X\x7f: y",
            "\"X\": y",
            "X/: y",
            "X\x0b: y",
        ],
    );
    refuses_fields(
        Cause::FieldValueByte,
        &[
            "X: \0",
            "X: y\x0bz",
            "X: \x7f",
            "X: y\x1b",
            "X:\x01",
            "X: y\x0c",
        ],
    );
    refuses(Cause::FieldFold, &["GET / HTTP/1.1\r\n Host: a\r\n\r\n"]);
    let text = with("X: \u{e9}\ty");
    let index = served(&text);
    assert_eq!(
        index.headers[1].value.of(text.as_bytes()),
        "\u{e9}\ty".as_bytes()
    );
}

#[test]
fn reads_content_length_as_a_plain_number_only() {
    // RFC 9110 section 8.6, RFC 9112 section 6.3.
    for (value, expect) in [
        ("0", 0),
        ("5", 5),
        ("005", 5),
        ("18446744073709551615", u64::MAX),
    ] {
        let index = served(&with(&format!("Content-Length: {value}")));
        assert_eq!(index.body, BodyFraming::Length(expect));
    }
    refuses_fields(
        Cause::LengthInvalid,
        &[
            "Content-Length:",
            "Content-Length: +5",
            "Content-Length: -5",
            "Content-Length: 5, 5",
            "Content-Length: 5,",
            "Content-Length: 0x5",
            "Content-Length: 5.0",
            "Content-Length: 5 5",
            "Content-Length: five",
            "Content-Length: \u{b2}",
            "Content-Length: 18446744073709551616",
            "Content-Length: 99999999999999999999999",
        ],
    );
    refuses_fields(
        Cause::LengthRepeated,
        &[
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5\r\nX: y\r\ncontent-length: 6",
        ],
    );
}

#[test]
fn reads_chunked_alone_and_once() {
    // RFC 9112 sections 6.1, 6.3 and 7.
    for fields in ["Transfer-Encoding: chunked", "transfer-encoding:\tCHUNKED "] {
        assert_eq!(served(&with(fields)).body, BodyFraming::Chunked);
    }
    // ` / ` stands between heads, `|` between the fields of one.
    for (cause, heads) in [
        (
            Cause::CodingUnknown,
            "gzip, chunked / gzip|chunked / identity, chunked",
        ),
        (
            Cause::CodingNotFinal,
            "chunked, gzip / gzip / identity / chunked|gzip",
        ),
        (Cause::CodingNotFinal, "xchunked / chunkedx / chunked-"),
        (Cause::CodingRepeated, "chunked, chunked / chunked|Chunked"),
        (
            Cause::CodingForm,
            " / chunked, / , chunked / chunked;q=1 / \"chunked\"",
        ),
        (
            Cause::CodingForm,
            "chunked chunked / gzip chunked / \u{a0}chunked",
        ),
    ] {
        for values in heads.split(" / ") {
            let fields = values.replace('|', "\r\nTransfer-Encoding: ");
            refuses_fields(cause, &[&format!("Transfer-Encoding: {fields}")]);
        }
    }
    refuses_fields(
        Cause::LengthWithCoding,
        &[
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Transfer-Encoding: gzip\r\nContent-Length: 0",
        ],
    );
    refuses(
        Cause::CodingInOldVersion,
        &["POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"],
    );
}

#[test]
fn keeps_the_connection_by_version_and_option() {
    // RFC 9112 section 9.3.
    for (version, fields, expect) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Keep-Alive, CLOSE\r\n", false),
        (
            "1.1",
            "Connection: close\r\nConnection: keep-alive\r\n",
            false,
        ),
        ("1.1", "Connection: upgrade\r\n", true),
        ("1.1", "Connection: closed\r\n", true),
        ("1.2", "", true),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
        ("1.0", "connection: x , ,Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let index = served(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(index.keep_alive, expect, "{version} {fields}");
    }
}

#[test]
fn heeds_the_one_expectation_where_there_is_a_body() {
    // RFC 9110 section 10.1.1.
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (version, fields, expect) in [
        ("1.1", "Content-Length: 5\r\nExpect: 100-continue\r\n", true),
        ("1.1", &format!("Expect: 100-Continue\r\n{chunked}"), true),
        (
            "1.1",
            "Content-Length: 0\r\nExpect: 100-continue\r\n",
            false,
        ),
        ("1.1", "Expect: 100-continue\r\n", false),
        ("1.1", "Content-Length: 5\r\n", false),
        (
            "1.0",
            "Content-Length: 5\r\nExpect: 100-continue\r\n",
            false,
        ),
        ("1.0", "Expect: a-miracle\r\n", false),
    ] {
        let index = served(&format!("PUT / HTTP/{version}\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(index.expect_continue, expect, "{version} {fields}");
    }
    refuses_fields(
        Cause::ExpectUnknown,
        &[
            "Expect: a-miracle",
            "Expect:",
            "Expect: 100-continue, x",
            "Expect: x\r\nExpect: 100-continue",
        ],
    );
}

#[test]
fn marks_the_fields_that_somebody_will_ask_for() {
    for (field, mark) in [
        ("If-Match: *", Marks::CONDITIONAL),
        ("If-None-Match: *", Marks::CONDITIONAL),
        ("If-Modified-Since: x", Marks::CONDITIONAL),
        ("If-Unmodified-Since: x", Marks::CONDITIONAL),
        ("If-Range: x", Marks::CONDITIONAL),
        ("RANGE: bytes=0-", Marks::RANGE),
        ("Accept-Encoding: br", Marks::ACCEPT_ENCODING),
        ("Authorization: x", Marks::AUTHORIZATION),
    ] {
        assert_eq!(served(&with(field)).marks, mark, "{field}");
    }
    let marks = served(&with(
        "If-Range: a\r\nRange: b\r\nX-Range: c\r\nAccept-Encodinx: d",
    ))
    .marks;
    assert_eq!(marks, Marks::CONDITIONAL.with(Marks::RANGE));
    assert!(
        marks.contains(Marks::RANGE) && !marks.contains(Marks::RANGE.with(Marks::AUTHORIZATION))
    );
    assert!(marks.intersects(Marks::RANGE.with(Marks::AUTHORIZATION)));
}

/// Refused with `cause` after exactly `at` bytes when they come one by one.
fn check_at(head: &str, cause: Cause, at: usize) {
    check(head, Err(cause));
    assert_eq!(parse(head.as_bytes(), 1), (Err(cause), at), "{head:?}");
}

#[test]
fn refuses_what_is_too_large_as_soon_as_it_is() {
    let limits = limits();
    let target = "/".repeat(limits.target_bytes_max);
    served(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    check_at(&format!("GET {target}/"), Cause::TargetTooLong, 4 + 61);
    check_at(
        &format!("GET {target}/ HTTP/1.1\r\n\r\n"),
        Cause::TargetTooLong,
        4 + 61,
    );
    check_at(
        &format!("\r\nOPTIONS {target}/"),
        Cause::TargetTooLong,
        2 + 8 + 61,
    );

    let method = "M".repeat(32);
    assert_eq!(
        served(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).method,
        Method::Other
    );
    check_at(
        &format!("{method}M / HTTP/1.1\r\n"),
        Cause::MethodTooLong,
        33,
    );

    let value = "v".repeat(limits.header_bytes_max - "X: \r\n".len());
    served(&with(&format!("X: {value}")));
    let before = with("").len() - "\r\n\r\n".len();
    check_at(
        &with(&format!("X: {value}v")),
        Cause::FieldTooLarge,
        before + 80,
    );
    check_at(
        &with(&format!("X: {value}vvvv")),
        Cause::FieldTooLarge,
        before + 80,
    );

    let lines = format!("X: {value}\r\nY: {value}\r\nZ: ");
    let left = limits.head_bytes_max - with(&lines).len();
    let fits = with(&format!("{lines}{}", "v".repeat(left)));
    assert_eq!(fits.len(), limits.head_bytes_max);
    served(&fits);
    served(&format!("{fits}GET / HTTP/1.1\r\n"));
    let over = with(&format!("{lines}{}", "v".repeat(left + 1)));
    check_at(&over, Cause::HeadTooLarge, limits.head_bytes_max);
}

#[test]
fn refuses_more_fields_than_the_bound() {
    // 32 find room on the stack, 40 are allowed here.
    for len in [31, 32, 33, 40] {
        let fields = "X:\r\n".repeat(len - 1);
        let index = served(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(index.headers.len(), len);
    }
    refuses(
        Cause::TooManyFields,
        &[&format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "X:\r\n".repeat(40)
        )],
    );
    let few = Limits {
        headers_len_max: 1,
        ..limits()
    };
    let refusal = HeadIndex::new()
        .parse(with("X: y").as_bytes(), &mut 0, &few)
        .expect_err("two fields where one is allowed");
    assert_eq!(refusal.cause, Cause::TooManyFields);
}

#[test]
fn refuses_other_protocols_at_the_first_byte_that_shows_them() {
    check_at("\x16\x03\x01\x02", Cause::MethodByte, 1);
    check_at("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Cause::VersionMajor, 16);
    check_at("GET /\r\n", Cause::VersionForm, 7);
    check_at("CONNECT a:443 HTTP/1.1\r\n", Cause::MethodConnect, 24);
}

#[test]
fn parses_again_without_allocating() {
    let text = with("Accept: */*\r\nUser-Agent: x\r\nCookie: a=b");
    let mut index = served(&text);
    let (place, capacity) = (index.headers.as_ptr(), index.headers.capacity());
    for _ in 0..3 {
        let step = index.parse(text.as_bytes(), &mut 0, &limits());
        assert_eq!(step, Ok(HeadStep::Complete));
        assert_eq!(
            (index.headers.as_ptr(), index.headers.capacity()),
            (place, capacity)
        );
    }
}
