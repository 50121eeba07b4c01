//! Heads as they are written, from heads as clients send them.

use super::*;
use crate::{HeadIndex, HeadStep, Limits};

const HERE: ForwardingFields<'static> = ForwardingFields {
    chain: ForwardingChain::Replaced,
    client: b"192.0.2.7",
    peer: b"192.0.2.7",
    scheme: b"http",
    host: b"h",
    prefix: b"",
};
/// What `HERE` writes.
const HERE_LINES: &str =
    "X-Forwarded-For: 192.0.2.7\nX-Forwarded-Proto: http\nX-Forwarded-Host: h\n";

/// What is written for a head whose lines end in `\n`, likewise.
fn written(
    head: &str,
    change: impl FnOnce(&mut UpstreamRequest<'_>),
) -> Result<String, RequestFault> {
    let bytes = head.replace('\n', "\r\n");
    let mut index = HeadIndex::new();
    let step = index.parse(bytes.as_bytes(), &mut 0, &Limits::default());
    assert_eq!(step, Ok(HeadStep::Complete), "{head}");
    let mut request = UpstreamRequest {
        method: None,
        head: HeadView {
            bytes: bytes.as_bytes(),
            index: &index,
        },
        rewritten: None,
        host: HostField::Client { otherwise: b"up:9" },
        framing: BodyFraming::None,
        forwarding: HERE,
        set: &[],
        removed: &[],
        upgrade: None,
    };
    change(&mut request);
    let mut out = b"kept".to_vec();
    let written = request.write(&mut out);
    let text = String::from_utf8(out).expect("the tests' heads are text");
    let text = text.strip_prefix("kept").expect("what was there stays");
    match written {
        Ok(()) => Ok(text.replace("\r\n", "\n")),
        Err(fault) => {
            assert_eq!(text, "", "{head}");
            Err(fault)
        }
    }
}

/// `fields` of a client become `expect`, between Host and what is said of the client.
#[track_caller]
fn check_fields(fields: &str, expect: &str) {
    let head = format!("GET /a HTTP/1.1\nHost: h\n{fields}\n");
    let expect = format!("GET /a HTTP/1.1\nHost: h\n{expect}{HERE_LINES}\n");
    assert_eq!(written(&head, |_| {}), Ok(expect));
}

/// What is said of the client, where its head has `fields`.
#[track_caller]
fn check_forwarding(fields: &str, forwarding: ForwardingFields<'_>, expect: &str) {
    let head = format!("GET / HTTP/1.1\nHost: h\n{fields}\n");
    let bytes = head.replace('\n', "\r\n");
    let mut index = HeadIndex::new();
    let step = index.parse(bytes.as_bytes(), &mut 0, &Limits::default());
    assert_eq!(step, Ok(HeadStep::Complete), "{head}");
    let request = UpstreamRequest {
        method: None,
        head: HeadView {
            bytes: bytes.as_bytes(),
            index: &index,
        },
        rewritten: None,
        host: HostField::Client { otherwise: b"" },
        framing: BodyFraming::None,
        forwarding,
        set: &[],
        removed: &[],
        upgrade: None,
    };
    let mut out = Vec::new();
    assert_eq!(request.write(&mut out), Ok(()));
    let text = String::from_utf8(out).unwrap().replace("\r\n", "\n");
    assert_eq!(
        text,
        format!("GET / HTTP/1.1\nHost: h\n{expect}\n"),
        "{fields}"
    );
}

#[test]
fn passes_on_what_is_meant_for_the_upstream() {
    check_fields(
        "Accept: a, b\ncookie:\t c=d \nX-Empty:\nAccept: e\nAuthorization: f\nRange: bytes=0-\n",
        "Accept: a, b\ncookie: c=d\nX-Empty: \nAccept: e\nAuthorization: f\nRange: bytes=0-\n",
    );
}

#[test]
fn keeps_what_concerns_the_clients_connection() {
    for field in [
        "Connection: close",
        "connection: keep-alive, Upgrade",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic YTpi",
        "Proxy-Authenticate: Basic",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
        "TE: deflate;q=0.5",
        "Trailer: X-Sum",
        "Expect: 100-continue",
        "Content-Length: 0",
        "Transfer-Encoding: chunked",
        // CVE-2016-5385.
        "Proxy: http://evil.test",
        // Sent as they are, WSGI would take them for Content-Length and for what this server sets.
        "Content_Length: 5",
        "X_Forwarded_For: 203.0.113.9",
        "Transfer_Encoding: chunked",
    ] {
        check_fields(&format!("A: 1\n{field}\nB: 2\n"), "A: 1\nB: 2\n");
    }
}

#[test]
fn keeps_what_connection_names_wherever_it_stands() {
    check_fields(
        "X-A: 1\nx-b: 2\nConnection: x-a\nX-C: 3\nConnection: close, X-B,,x-c\nX-D: 4\n",
        "X-D: 4\n",
    );
    // What is this server's own is none of the client's connection.
    check_fields(
        "Connection: Host, X-Forwarded-For, X-Forwarded-Proto, Content-Length\n",
        "",
    );
    let many: Vec<String> = (0..17).map(|n| format!("x-{n}")).collect();
    let head = format!(
        "GET / HTTP/1.1\nHost: h\nConnection: {}\n\n",
        many.join(",")
    );
    assert_eq!(written(&head, |_| {}), Err(RequestFault::ConnectionFields));
}

#[test]
fn passes_on_that_the_client_reads_trailers() {
    let lines = "Connection: TE\nTE: trailers\n";
    check_fields("TE: trailers\nConnection: TE\n", lines);
    check_fields("te: deflate;q=0.5 ,\tTrailers\n", lines);
    check_fields("TE: trailers;q=0.5\n", "");
}

#[test]
fn writes_targets_in_origin_form() {
    for (target, expect) in [
        ("/a?b?c", "/a?b?c"),
        ("/?", "/?"),
        ("//a", "//a"),
        ("http://h/b?c", "/b?c"),
        ("http://h", "/"),
        ("HTTP://h?q", "/?q"),
    ] {
        let head = format!("GET {target} HTTP/1.1\nHost: h\n\n");
        let expect = format!("GET {expect} HTTP/1.1\nHost: h\n{HERE_LINES}\n");
        assert_eq!(written(&head, |_| {}), Ok(expect), "{target}");
    }
    for (target, expect) in [
        ("*", "*"),
        ("http://h", "*"),
        ("http://h/", "/"),
        ("http://h?", "/?"),
    ] {
        let head = format!("OPTIONS {target} HTTP/1.1\nHost: h\n\n");
        let text = written(&head, |_| {}).unwrap();
        assert!(
            text.starts_with(&format!("OPTIONS {expect} HTTP/1.1\n")),
            "{target}: {text}"
        );
    }
}

#[test]
fn takes_a_rewritten_target_that_is_one() {
    let head = "GET /a HTTP/1.1\nHost: h\n\n";
    let rewrite = |target: &[u8]| {
        // The target lives as long as the request that `written` makes.
        let target: &'static [u8] = target.to_vec().leak();
        written(head, move |request| request.rewritten = Some(target))
    };
    let text = rewrite(b"/b?c").unwrap();
    assert!(text.starts_with("GET /b?c HTTP/1.1\nHost: h\n"), "{text}");
    for target in [
        &b""[..],
        b"b",
        b"*",
        b"http://h/",
        b"/a b",
        b"/a#b",
        b"/a\r\nX: y",
        b"/a\n",
        b"/\xe9",
        b"/\0",
    ] {
        assert_eq!(rewrite(target), Err(RequestFault::Target), "{target:?}");
    }
}

#[test]
fn writes_one_host() {
    let host = |head: &str, host: HostField<'static>| {
        let text = written(head, |request| request.host = host)?;
        Ok(text.lines().nth(1).unwrap_or_default().to_owned())
    };
    let client = HostField::Client { otherwise: b"up:9" };
    let upstream = HostField::Upstream(b"up:9");
    for (head, field, expect) in [
        ("GET / HTTP/1.1\nhost: H:8\n\n", client, "Host: H:8"),
        ("GET / HTTP/1.1\nHost: h\n\n", upstream, "Host: up:9"),
        // RFC 9112 section 3.2.2: the target's authority counts.
        ("GET http://t/ HTTP/1.1\nHost: h\n\n", client, "Host: t"),
        ("GET / HTTP/1.0\n\n", client, "Host: up:9"),
    ] {
        assert_eq!(host(head, field), Ok(expect.to_owned()), "{head}");
    }
    let head = "GET / HTTP/1.0\n\n";
    for bad in [&b""[..], b"a b", b"a\r\nX: y", b"a/b"] {
        let field = HostField::Client { otherwise: bad };
        assert_eq!(host(head, field), Err(RequestFault::Host), "{bad:?}");
        assert_eq!(
            host(head, HostField::Upstream(bad)),
            Err(RequestFault::Host)
        );
    }
}

#[test]
fn frames_the_body_once_and_its_own_way() {
    for fields in ["Content-Length: 3\n", "Transfer-Encoding: chunked\n", ""] {
        for (framing, expect) in [
            (BodyFraming::None, ""),
            (BodyFraming::Length(0), "Content-Length: 0\n"),
            (BodyFraming::Length(70_000), "Content-Length: 70000\n"),
            (BodyFraming::Chunked, "Transfer-Encoding: chunked\n"),
        ] {
            let head = format!("POST / HTTP/1.1\nHost: h\n{fields}\n");
            let expect = format!("POST / HTTP/1.1\nHost: h\n{expect}{HERE_LINES}\n");
            assert_eq!(
                written(&head, |request| request.framing = framing),
                Ok(expect)
            );
        }
    }
}

#[test]
fn says_who_the_client_is_whatever_it_says_itself() {
    let forged = "X-Forwarded-For: 203.0.113.9\nx-forwarded-proto: https\nX-Forwarded-Host: evil\n\
        X-Forwarded-Port: 1\nX-Forwarded-Prefix: /e\nX-Forwarded-Ssl: on\nForwarded: for=203.0.113.9\n\
        X-Real-IP: 203.0.113.9\n";
    check_fields(forged, "");
    // A trusted proxy has named another client, in a field that is not passed on.
    check_forwarding(
        forged,
        ForwardingFields {
            client: b"198.51.100.1",
            scheme: b"https",
            host: b"shop.test",
            prefix: b"/shop",
            ..HERE
        },
        "X-Forwarded-For: 198.51.100.1, 192.0.2.7\nX-Forwarded-Proto: https\nX-Forwarded-Host: shop.test\n\
         X-Forwarded-Prefix: /shop\n",
    );
}

#[test]
fn appends_to_the_chain_of_a_trusted_proxy() {
    let nothing_more = ForwardingFields {
        chain: ForwardingChain::Appended,
        client: b"2001:db8::1",
        scheme: b"",
        host: b"",
        ..HERE
    };
    for (fields, peer, expect) in [
        ("X-Forwarded-For: a, b\n", "192.0.2.7", "a, b, 192.0.2.7"),
        (
            "X-Forwarded-For: a\nX: y\nx-forwarded-for: b\n",
            "192.0.2.7",
            "a, b, 192.0.2.7",
        ),
        ("X-Forwarded-For:\n", "192.0.2.7", "2001:db8::1, 192.0.2.7"),
        ("", "192.0.2.7", "2001:db8::1, 192.0.2.7"),
        ("", "2001:db8::1", "2001:db8::1"),
        ("X-Forwarded-For: a\n", "unix:", "a"),
        // Connection cannot take it away.
        (
            "X-Forwarded-For: a\nConnection: X-Forwarded-For\n",
            "192.0.2.7",
            "a, 192.0.2.7",
        ),
    ] {
        let passed = if fields.contains("X: y") {
            "X: y\n"
        } else {
            ""
        };
        let forwarding = ForwardingFields {
            peer: peer.as_bytes(),
            ..nothing_more
        };
        check_forwarding(
            fields,
            forwarding,
            &format!("{passed}X-Forwarded-For: {expect}\n"),
        );
    }
    let nobody = ForwardingFields {
        client: b"unix:",
        peer: b"unix:",
        ..nothing_more
    };
    check_forwarding("", nobody, "");
}

#[test]
fn sets_and_removes_what_a_route_says() {
    let head = "GET / HTTP/1.1\nHost: h\nX-Id: forged\nX-Key: k\nAccept: a\n\n";
    let text = written(head, |request| {
        request.set = &[
            (b"x-id", b"7"),
            (b"X-Forwarded-Proto", b"https"),
            (b"Via", b""),
        ];
        request.removed = &[b"x-key"];
    });
    let expect = "GET / HTTP/1.1\nHost: h\nAccept: a\nX-Forwarded-For: 192.0.2.7\nX-Forwarded-Host: h\n\
        x-id: 7\nX-Forwarded-Proto: https\nVia: \n\n";
    assert_eq!(text, Ok(expect.to_owned()));
    for (name, value, part) in [
        ("Content-Length", "5", InvalidField::Name),
        ("transfer-encoding", "chunked", InvalidField::Name),
        ("Connection", "close", InvalidField::Name),
        ("Host", "other", InvalidField::Name),
        ("TE", "trailers", InvalidField::Name),
        ("", "x", InvalidField::Name),
        ("a b", "x", InvalidField::Name),
        ("X", "a\r\nb: c", InvalidField::Value),
        ("X", "a\0", InvalidField::Value),
    ] {
        let set: &'static [(&[u8], &[u8])] = vec![(name.as_bytes(), value.as_bytes())].leak();
        let text = written(head, |request| request.set = set);
        assert_eq!(text, Err(RequestFault::Field(part)), "{name}: {value:?}");
    }
}

#[test]
fn asks_for_another_protocol_where_it_should() {
    let head = "GET / HTTP/1.1\nHost: h\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: k\nTE: trailers\n\n";
    let to = |protocol: &[u8]| -> &'static WantedUpgrade {
        Box::leak(Box::new(WantedUpgrade::to(protocol)))
    };
    let text = written(head, |request| request.upgrade = Some(to(b"websocket")));
    let expect = format!(
        "GET / HTTP/1.1\nHost: h\nSec-WebSocket-Key: k\nConnection: Upgrade, TE\nUpgrade: websocket\nTE: trailers\n\
         {HERE_LINES}\n"
    );
    assert_eq!(text, Ok(expect));
    for protocol in [&b""[..], b"a\r\nb: c"] {
        let text = written(head, |request| request.upgrade = Some(to(protocol)));
        assert_eq!(text, Err(RequestFault::Field(InvalidField::Value)));
    }
}
