//! Heads of responses, whole and in pieces, and each fault of one.

use super::*;

/// Reads a head given in pieces of `piece` bytes.
fn read(
    bytes: &[u8],
    piece: usize,
    asked: Asked,
) -> Result<Option<(UpstreamResponse, String)>, UpstreamFault> {
    let limits = Limits {
        head_bytes_max: 400,
        header_bytes_max: 100,
        headers_len_max: 8,
        ..Limits::default()
    };
    let mut fields = FieldLines::new();
    let (mut seen, mut given) = (0, 0);
    while given < bytes.len() {
        given = (given + piece).min(bytes.len());
        let step =
            UpstreamResponse::parse(&bytes[..given], &mut seen, asked, &limits, &mut fields)?;
        if let UpstreamHeadStep::Complete(response) = step {
            let text = String::from_utf8_lossy(fields.as_bytes()).replace("\r\n", "\n");
            return Ok(Some((response, text)));
        }
    }
    Ok(None)
}

/// The same in pieces of every kind, and with other bytes behind.
#[track_caller]
fn read_all_ways(
    text: &str,
    asked: Asked,
) -> Result<Option<(UpstreamResponse, String)>, UpstreamFault> {
    let bytes = text
        .replace('\n', "\r\n")
        .replace("<LF>", "\n")
        .replace("<CR>", "\r");
    let whole = read(bytes.as_bytes(), bytes.len(), asked);
    for piece in [1, 2, 7, 64] {
        assert_eq!(
            read(bytes.as_bytes(), piece, asked),
            whole,
            "{text:?} in pieces of {piece}"
        );
    }
    if let Ok(Some((response, _))) = &whole {
        assert_eq!(response.head_bytes, bytes.len(), "{text:?}");
        for behind in ["HTTP/1.1 500 No\r\n\r\n", "\0", " folded", "\r\n"] {
            let more = [bytes.as_bytes(), behind.as_bytes()].concat();
            assert_eq!(
                read(&more, more.len(), asked),
                whole,
                "{text:?} and {behind:?}"
            );
        }
    }
    whole
}

#[track_caller]
fn complete(text: &str, asked: Asked) -> (UpstreamResponse, String) {
    let read = read_all_ways(text, asked);
    read.expect("no fault").expect("it is whole")
}

#[track_caller]
fn check_fault(text: &str, fault: UpstreamFault) {
    assert_eq!(read_all_ways(text, Asked::Other), Err(fault), "{text:?}");
}

#[test]
fn reads_status_lines() {
    for (line, status, reason) in [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.0 200 OK", 200, "OK"),
        ("HTTP/1.7 200 OK", 200, "OK"),
        ("HTTP/1.1 404 Not Found at all", 404, "Not Found at all"),
        ("HTTP/1.1 200 ", 200, ""),
        ("HTTP/1.1 200", 200, ""),
        ("HTTP/1.1 599 \u{e9}t\u{e9}", 599, "\u{e9}t\u{e9}"),
        ("HTTP/1.1 999 Unassigned", 999, "Unassigned"),
    ] {
        let (response, fields) = complete(&format!("{line}\n\n"), Asked::Other);
        assert_eq!((response.status, &*fields), (status, ""), "{line}");
        assert_eq!(response.reason.of(line.as_bytes()), reason.as_bytes());
    }
}

#[test]
fn refuses_what_is_no_status_line() {
    use UpstreamFault::{BareCr, BareLf, NotHttp, ReasonByte, StatusForm, VersionMajor};
    for (line, fault) in [
        ("<html>hello", NotHttp),
        ("http/1.1 200 OK", NotHttp),
        ("ICY 200 OK", NotHttp),
        ("220 mail.test ESMTP", NotHttp),
        (" HTTP/1.1 200 OK", NotHttp),
        ("HTTP/1.", NotHttp),
        ("HTTP/1.x 200 OK", NotHttp),
        ("HTTP/1.1  200 OK", StatusForm),
        ("HTTP/1.1200 OK", NotHttp),
        ("HTTP/1.10 200 OK", NotHttp),
        ("HTTP/2.0 200 OK", VersionMajor),
        ("HTTP/0.9 200 OK", VersionMajor),
        ("HTTP/1.1 20 OK", StatusForm),
        ("HTTP/1.1 2000 OK", StatusForm),
        ("HTTP/1.1 2x0 OK", StatusForm),
        ("HTTP/1.1 +20 OK", StatusForm),
        ("HTTP/1.1 099 Below", StatusForm),
        ("HTTP/1.1 200\tOK", StatusForm),
        ("HTTP/1.1 ", StatusForm),
        ("HTTP/1.1 200 O\u{0}K", ReasonByte),
        ("HTTP/1.1 200 O\u{1b}K", ReasonByte),
        ("HTTP/1.1 200 O<CR>K", BareCr),
        ("HTTP/1.1 200 OK<LF>A: b", BareLf),
    ] {
        check_fault(&format!("{line}\n\n"), fault);
    }
    // An empty line before a status line is what a request may have (RFC 9112 section 2.2).
    check_fault("\nHTTP/1.1 200 OK\n\n", NotHttp);
}

#[test]
fn refuses_an_old_server_before_its_line_ends() {
    for (text, expect) in [
        ("<", Err(UpstreamFault::NotHttp)),
        ("HTTP/2", Err(UpstreamFault::VersionMajor)),
        // Its line may still end, and is judged then.
        ("HTTP/1.1x", Ok(None)),
    ] {
        assert_eq!(read(text.as_bytes(), 1, Asked::Other), expect, "{text}");
    }
}

#[test]
fn passes_on_what_is_meant_for_the_client() {
    let text = "HTTP/1.1 200 OK\nDate: d\nSet-Cookie: a=b\nset-cookie:c=d \nX-Empty:\nContent-Type: t\nServer-Timing: app;dur=1\nServer: s\n\n";
    let (response, fields) = complete(text, Asked::Other);
    assert_eq!(
        fields,
        "Date: d\nSet-Cookie: a=b\nset-cookie: c=d\nX-Empty: \nContent-Type: t\nServer-Timing: app;dur=1\nServer: s\n"
    );
    assert!(response.has_date && response.has_server && !response.is_event_stream);
    let bytes = text.replace('\n', "\r\n");
    let timing = response.server_timing.map(|span| span.of(bytes.as_bytes()));
    assert_eq!(timing, Some(&b"app;dur=1"[..]));
}

#[test]
fn keeps_what_concerns_its_connection_and_this_server() {
    for field in [
        "Connection: close",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authenticate: Basic",
        "TE: trailers",
        "Trailer: X-Sum",
        "Upgrade: h2c",
        "Alt-Svc: h3=\":443\"",
        "Content-Length: 3",
        "Transfer-Encoding: chunked",
        "X-Accel-Buffering: yes",
        "x-accel-redirect: /private",
        "Endpoint-Load-Metrics: TEXT named_metrics.threads=4",
        "endpoint-load-metrics-bin: AAAA",
    ] {
        let text = format!("HTTP/1.1 200 OK\nA: 1\n{field}\nB: 2\n\n");
        assert_eq!(complete(&text, Asked::Other).1, "A: 1\nB: 2\n", "{field}");
    }
    let text = "HTTP/1.1 200 OK\nX-A: 1\nConnection: x-a, X-B\nX-B: 2\nX-C: 3\n\n";
    assert_eq!(complete(text, Asked::Other).1, "X-C: 3\n");
    let many: Vec<String> = (0..17).map(|n| format!("x{n}")).collect();
    let text = format!("HTTP/1.1 200 OK\nConnection: {}\n\n", many.join(","));
    check_fault(&text, UpstreamFault::ConnectionFields);
}

/// How the body of a response with these fields ends, the length that is passed on, and whether the connection is kept.
#[track_caller]
fn check_body((status, fields): (u16, &str), asked: Asked, expect: (ReplyBody, Option<u64>, bool)) {
    let text = format!("HTTP/1.1 {status} -\n{fields}\n");
    let (response, _) = complete(&text, asked);
    let got = (response.body, response.content_length, response.keeps);
    assert_eq!(got, expect, "{text:?}");
}

#[test]
fn finds_the_end_of_the_body() {
    use ReplyBody::{Chunked, Length, UntilClose};
    for (fields, body, length, keeps) in [
        ("", UntilClose, None, false),
        ("Content-Length: 0\n", Length(0), Some(0), true),
        ("Content-Length: 7\n", Length(7), Some(7), true),
        (
            "Content-Length: 7\nContent-Length: 7\n",
            Length(7),
            Some(7),
            true,
        ),
        ("Content-Length: 7, 7\n", Length(7), Some(7), true),
        ("Transfer-Encoding: Chunked\n", Chunked, None, true),
    ] {
        for asked in [Asked::Other, Asked::Upgrade] {
            check_body((200, fields), asked, (body, length, keeps));
        }
        check_body((200, fields), Asked::Head, (ReplyBody::None, length, true));
        check_body((304, fields), Asked::Other, (ReplyBody::None, length, true));
    }
}

#[test]
fn finds_no_body_where_none_may_be() {
    for (fields, keeps) in [
        ("", true),
        ("Content-Length: 0\n", true),
        // Some send the body that they announce.
        ("Content-Length: 7\n", false),
        ("Transfer-Encoding: chunked\n", false),
    ] {
        for status in [100, 103, 204] {
            check_body(
                (status, fields),
                Asked::Other,
                (ReplyBody::None, None, keeps),
            );
        }
    }
}

#[test]
fn refuses_framing_that_two_readers_could_split_differently() {
    use UpstreamFault::{
        CodingForm, CodingInOldVersion, CodingUnknown, LengthDiffers, LengthInvalid,
        LengthWithCoding,
    };
    for (fields, fault) in [
        (
            "Content-Length: 7\nTransfer-Encoding: chunked\n",
            LengthWithCoding,
        ),
        (
            "Transfer-Encoding: chunked\nContent-Length: 7\n",
            LengthWithCoding,
        ),
        ("Content-Length: 7\nContent-Length: 8\n", LengthDiffers),
        ("Content-Length: 7, 8\n", LengthDiffers),
        ("Content-Length: 7,\n", LengthInvalid),
        ("Content-Length:\n", LengthInvalid),
        ("Content-Length: +7\n", LengthInvalid),
        ("Content-Length: -7\n", LengthInvalid),
        ("Content-Length: 0x7\n", LengthInvalid),
        ("Content-Length: 7 7\n", LengthInvalid),
        ("Content-Length: 18446744073709551616\n", LengthInvalid),
        ("Transfer-Encoding: gzip\n", CodingUnknown),
        ("Transfer-Encoding: identity\n", CodingUnknown),
        ("Transfer-Encoding: gzip, chunked\n", CodingUnknown),
        ("Transfer-Encoding: chunked, gzip\n", CodingUnknown),
        (
            "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n",
            CodingUnknown,
        ),
        ("Transfer-Encoding: xchunked\n", CodingUnknown),
        ("Transfer-Encoding: chunked;q=1\n", CodingForm),
        ("Transfer-Encoding: ,chunked\n", CodingForm),
        ("Transfer-Encoding:\n", CodingForm),
    ] {
        for status in [200, 304, 404] {
            check_fault(&format!("HTTP/1.1 {status} -\n{fields}\n"), fault);
        }
    }
    check_fault(
        "HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n",
        CodingInOldVersion,
    );
}

#[test]
fn refuses_lines_that_are_no_fields() {
    use UpstreamFault::{BareCr, BareLf, FieldColon, FieldFold, FieldName, FieldValueByte};
    for (fields, fault) in [
        ("A: b\n folded\n", FieldFold),
        (" folded at once\n", FieldFold),
        ("no colon\n", FieldColon),
        (": no name\n", FieldName),
        ("spa ce: x\n", FieldName),
        ("before : x\n", FieldName),
        ("\u{e9}: x\n", FieldName),
        ("a: \u{0}\n", FieldValueByte),
        ("a: \u{1b}[2J\n", FieldValueByte),
        ("a: b<CR>c: d\n", BareCr),
        ("a: b<LF>c: d\n", BareLf),
        ("a: b\n<LF>", BareLf),
    ] {
        check_fault(&format!("HTTP/1.1 200 OK\n{fields}\n"), fault);
    }
}

#[test]
fn bounds_the_head() {
    use UpstreamFault::{FieldTooLarge, HeadTooLarge, TooManyFields};
    let line = |bytes: usize| format!("A: {}\n", "x".repeat(bytes - 5));
    let head = |fields: &str| format!("HTTP/1.1 200 OK\n{fields}\n");
    complete(&head(&line(100)), Asked::Other);
    check_fault(&head(&line(101)), FieldTooLarge);
    complete(&head(&"A: b\n".repeat(8)), Asked::Other);
    check_fault(&head(&"A: b\n".repeat(9)), TooManyFields);
    check_fault(&head(&"A: b\n".repeat(90)), HeadTooLarge);
    check_fault(
        &format!("HTTP/1.1 200 {}\n\n", "x".repeat(100)),
        FieldTooLarge,
    );
    check_fault(&format!("HTTP/1.1 200 {}", "x".repeat(100)), FieldTooLarge);
}

#[test]
fn tells_whether_another_request_may_follow() {
    for (version, fields, keeps) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\n", false),
        ("1.1", "Connection: keep-alive, Close\n", false),
        ("1.1", "Connection: x\nConnection: CLOSE\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\n", true),
        ("1.0", "Connection: keep-alive, close\n", false),
    ] {
        let text = format!("HTTP/{version} 200 OK\n{fields}Content-Length: 3\n\n");
        assert_eq!(complete(&text, Asked::Other).0.keeps, keeps, "{text:?}");
    }
}

#[test]
fn tells_interim_responses_from_final_ones() {
    for (status, asked, expect) in [
        (100, Asked::Other, true),
        (102, Asked::Head, true),
        (103, Asked::Other, true),
        (200, Asked::Other, false),
    ] {
        let text = format!("HTTP/1.1 {status} -\nLink: </a>\n\n");
        let (response, fields) = complete(&text, asked);
        assert_eq!(response.is_interim(), expect, "{status}");
        assert_eq!(fields, "Link: </a>\n");
    }
}

#[test]
fn a_101_is_an_answer_to_nothing_but_an_upgrade() {
    let head = |fields: &str| format!("HTTP/1.1 101 Switching Protocols\n{fields}\n");
    let text =
        head("upgrade: websocket\nConnection: upgrade, X-A\nX-A: 1\nSec-WebSocket-Accept: a\n");
    let (response, fields) = complete(&text, Asked::Upgrade);
    assert_eq!(
        fields,
        "Sec-WebSocket-Accept: a\nConnection: Upgrade\nUpgrade: websocket\n"
    );
    assert!(!response.keeps && !response.is_interim());
    assert_eq!(response.body, ReplyBody::None);
    check_fault(&text, UpstreamFault::SwitchUnasked);
    for fields in [
        "",
        "Upgrade:\n",
        "Upgrade: a\nUpgrade: b\n",
        "Upgrade: a\nUpgrade: b\nUpgrade: c\n",
    ] {
        let read = read_all_ways(&head(fields), Asked::Upgrade);
        assert_eq!(read, Err(UpstreamFault::SwitchForm), "{fields}");
    }
}

#[test]
fn notices_what_a_proxy_has_to_know() {
    let of = |fields: &str| complete(&format!("HTTP/1.1 503 -\n{fields}\n"), Asked::Other).0;
    assert!(of("Content-Type: Text/Event-Stream ; charset=utf-8\n").is_event_stream);
    assert!(!of("Content-Type: text/event-streams\n").is_event_stream);
    for (fields, is_live) in [
        ("Content-Length: 1\n", false),
        ("Content-Type: text/event-stream\n", true),
        ("x-accel-buffering: No\nContent-Length: 1\n", true),
        ("X-Accel-Buffering: yes\n", false),
        ("Content-Type: Application/gRPC+proto\n", true),
        ("Content-Type: application/g\n", false),
        ("Cache-Control: max-age=0, No-Store\n", true),
        (
            "Cache-Control: no-store\nTransfer-Encoding: chunked\n",
            true,
        ),
        ("Cache-Control: no-store\nContent-Length: 1\n", false),
        (
            "Cache-Control: no-cache\nTransfer-Encoding: chunked\n",
            false,
        ),
    ] {
        assert_eq!(of(fields).is_live, is_live, "{fields}");
    }
    assert_eq!(of("Retry-After: 3\n").retry_after_secs, Some(3));
    assert_eq!(
        of("Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\n").retry_after_secs,
        None
    );
    assert_eq!(of("Retry-After: 4294967296\n").retry_after_secs, None);
    let text = "HTTP/1.1 200 -\r\nEndpoint-Load-Metrics:  TEXT a=1 \r\n\r\n";
    let response = complete(&text.replace("\r\n", "\n"), Asked::Other).0;
    let report = response.load_report.map(|span| span.of(text.as_bytes()));
    assert_eq!(report, Some(&b"TEXT a=1"[..]));
}

#[test]
fn single_fields_are_judged_as_lines_are() {
    let fields: [(&[u8], &[u8]); 3] = [(b"trailer", b"x"), (b"x-a", b"1"), (b"x-a", b"\xfc")];
    let text = UpstreamResponse::text(200, fields.into_iter()).unwrap();
    let mut lines = FieldLines::new();
    let limits = Limits::default();
    let parsed = UpstreamResponse::parse(&text, &mut 0, Asked::Other, &limits, &mut lines).unwrap();
    let UpstreamHeadStep::Complete(response) = parsed else {
        panic!("the text is whole");
    };
    assert_eq!((response.status, response.has_trailers), (200, true));
    assert_eq!(lines.as_bytes(), b"x-a: 1\r\nx-a: \xfc\r\n");
    for (name, value, fault) in [
        (&b"x a"[..], &b"1"[..], UpstreamFault::FieldName),
        (b"", b"1", UpstreamFault::FieldName),
        (b"x-a", b"1\r\nx-b: 2", UpstreamFault::FieldValueByte),
    ] {
        let text = UpstreamResponse::text(200, [(name, value)].into_iter());
        assert_eq!(text, Err(fault));
    }
}
