//! Requests for WebSocket connections, RFC 6455 sections 1.3 and 4.2.

use super::*;
use crate::{HeadIndex, HeadStep, Limits};

const KEY_FIELD: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const VERSION_FIELD: &str = "Sec-WebSocket-Version: 13\r\n";
const UPGRADE_FIELDS: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\n";

/// What a head with this request line and these fields is judged to be.
fn judge<T>(
    line: &str,
    fields: &[&str],
    look: impl Fn(Result<Option<Handshake<'_>>, HandshakeFault>) -> T,
) -> T {
    let text = format!(
        "{line}\r\nHost: server.example.com\r\n{}\r\n",
        fields.concat()
    );
    let mut index = HeadIndex::new();
    let step = index.parse(text.as_bytes(), &mut 0, &Limits::default());
    assert_eq!(step, Ok(HeadStep::Complete), "{text}");
    look(Handshake::of_upgrade(HeadView {
        bytes: text.as_bytes(),
        index: &index,
    }))
}

/// The fields of the answer that accepts a request with these further fields.
fn accept(fields: &str, subprotocol: Option<&str>) -> Result<String, SubprotocolNotOffered> {
    let all = [UPGRADE_FIELDS, KEY_FIELD, VERSION_FIELD, fields];
    judge("GET /chat HTTP/1.1", &all, |judged| {
        let handshake = judged.unwrap().unwrap();
        assert_eq!(handshake.status(), 101);
        let deflate = handshake.deflate(&DeflateOptions::default());
        let mut answer = FieldLines::new();
        handshake.push_fields(subprotocol, deflate.as_ref(), &mut answer)?;
        Ok(String::from_utf8(answer.as_bytes().to_vec()).unwrap())
    })
}

#[test]
fn accepts_the_example_of_rfc_6455() {
    let fields = "Sec-WebSocket-Protocol: chat, superchat\r\nOrigin: http://example.com\r\n";
    let expect = "Upgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    assert_eq!(accept(fields, None).as_deref(), Ok(expect));
    let chosen = format!("{expect}Sec-WebSocket-Protocol: chat\r\n");
    assert_eq!(accept(fields, Some("chat")), Ok(chosen));
    for other in ["Chat", "other", "", "chat\r\nX: y"] {
        assert_eq!(accept(fields, Some(other)), Err(SubprotocolNotOffered));
    }
    let deflate = format!(
        "{expect}Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=12\r\n"
    );
    for fields in [
        "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n",
        "Sec-WebSocket-Extensions: a\r\nsec-websocket-extensions: permessage-deflate\r\n",
    ] {
        assert_eq!(accept(fields, None).as_ref(), Ok(&deflate));
    }
}

#[test]
fn other_requests_are_like_any_other() {
    let rest = [KEY_FIELD, VERSION_FIELD].concat();
    let check = |line: &str, fields: &str| {
        judge(line, &[fields, &rest], |judged| {
            assert!(matches!(judged, Ok(None)), "{fields}");
        });
    };
    check("GET / HTTP/1.1", "");
    check("GET / HTTP/1.1", "Upgrade: websocket\r\n");
    check("GET / HTTP/1.1", "Connection: Upgrade\r\n");
    check("GET / HTTP/1.1", "Upgrade: h2c\r\nConnection: Upgrade\r\n");
    check(
        "GET / HTTP/1.1",
        "Upgrade: websockets\r\nConnection: upgrade\r\n",
    );
    check(
        "GET / HTTP/1.1",
        "Upgrade: websocket\r\nConnection: keep-alive\r\n",
    );
    check("GET / HTTP/1.0", UPGRADE_FIELDS);
    check("POST / HTTP/1.1", "");
}

#[test]
fn reads_tokens_in_lists_and_in_any_case() {
    for fields in [
        "upgrade: WebSocket\r\nconnection: UPGRADE\r\n",
        "Upgrade: h2c, websocket\r\nConnection: keep-alive, Upgrade\r\n",
        "Upgrade: h2c\r\nUpgrade: websocket\r\nConnection: keep-alive\r\nConnection: ,upgrade\r\n",
    ] {
        let all = [fields, KEY_FIELD, VERSION_FIELD];
        judge("GET / HTTP/1.1", &all, |judged| {
            assert!(judged.unwrap().is_some());
        });
    }
    let offered = "Sec-WebSocket-Protocol: v2.chat,, v1.chat\r\nSec-WebSocket-Protocol: x\r\n";
    let all = [UPGRADE_FIELDS, KEY_FIELD, VERSION_FIELD, offered];
    judge("GET / HTTP/1.1", &all, |judged| {
        let handshake = judged.unwrap().unwrap();
        assert_eq!(handshake.subprotocols(), ["v2.chat", "v1.chat", "x"]);
    });
}

#[test]
fn names_what_is_wrong() {
    let check = |line: &str, fields: &[&str], expect: HandshakeFault, status: u16| {
        let all = [&[UPGRADE_FIELDS], fields].concat();
        let fault = judge(line, &all, |judged| judged.err());
        assert_eq!(fault, Some(expect), "{fields:?}");
        assert_eq!(expect.status(), status);
    };
    let get = "GET / HTTP/1.1";
    let good = [KEY_FIELD, VERSION_FIELD];
    check("POST / HTTP/1.1", &good, HandshakeFault::Method, 405);
    check("HEAD / HTTP/1.1", &good, HandshakeFault::Method, 405);
    for body in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        check(
            get,
            &[KEY_FIELD, VERSION_FIELD, body],
            HandshakeFault::Body,
            400,
        );
    }
    check(get, &[KEY_FIELD], HandshakeFault::Version, 426);
    for version in ["8", "013", "13, 8", "14", ""] {
        let field = format!("Sec-WebSocket-Version: {version}\r\n");
        check(get, &[KEY_FIELD, &field], HandshakeFault::Version, 426);
        check(
            get,
            &[KEY_FIELD, VERSION_FIELD, &field],
            HandshakeFault::Version,
            426,
        );
    }
    check(get, &[VERSION_FIELD], HandshakeFault::Key, 400);
    check(
        get,
        &[KEY_FIELD, KEY_FIELD, VERSION_FIELD],
        HandshakeFault::Key,
        400,
    );
    for key in [
        "",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZQ===",
        "dGhlIHNhbXBsZSBub25jZTE=",
        "dGhlIHNhbXBsZSBub25jZTEy",
        "dGhlIHNhbXBsZSBub25jZ-==",
        "dGhlIHNhbXBsZSBub25jZQ==, x",
    ] {
        let field = format!("Sec-WebSocket-Key: {key}\r\n");
        check(get, &[&field, VERSION_FIELD], HandshakeFault::Key, 400);
    }
    for list in ["a b", "a, \"b\"", "caf\u{e9}"] {
        let field = format!("Sec-WebSocket-Protocol: {list}\r\n");
        check(
            get,
            &[KEY_FIELD, VERSION_FIELD, &field],
            HandshakeFault::Subprotocols,
            400,
        );
    }
    let field = "Sec-WebSocket-Extensions: permessage-deflate;\r\n";
    check(
        get,
        &[KEY_FIELD, VERSION_FIELD, field],
        HandshakeFault::Extensions,
        400,
    );
}

#[test]
fn a_refusal_says_what_would_be_served() {
    let fields = |fault: HandshakeFault| {
        let mut fields = FieldLines::new();
        fault.push_fields(&mut fields);
        String::from_utf8(fields.as_bytes().to_vec()).unwrap()
    };
    assert_eq!(
        fields(HandshakeFault::Version),
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    );
    assert_eq!(fields(HandshakeFault::Method), "Allow: GET\r\n");
    assert_eq!(fields(HandshakeFault::Key), "");
}

#[test]
fn over_http2_there_is_no_key() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Version: 13\r\n\
                Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    let mut index = HeadIndex::new();
    let step = index.parse(text.as_bytes(), &mut 0, &Limits::default());
    assert_eq!(step, Ok(HeadStep::Complete));
    let head = HeadView {
        bytes: text.as_bytes(),
        index: &index,
    };
    let handshake = Handshake::of_connect(head).ok().unwrap();
    assert_eq!(handshake.status(), 200);
    let mut fields = FieldLines::new();
    let pushed = handshake.push_fields(Some("chat"), None, &mut fields);
    assert_eq!(pushed, Ok(()));
    assert_eq!(fields.as_bytes(), b"Sec-WebSocket-Protocol: chat\r\n");
}
