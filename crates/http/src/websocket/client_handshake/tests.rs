//! What a client asks for, and the answers that it takes.

use super::*;
use crate::websocket::{DeflateContext, DeflateSide, Handshake};
use crate::{HeadIndex, HeadStep, HeadView, Limits};

const NONCE: [u8; 16] = *b"the sample nonce";
const OFFERED: &[&str] = &["chat", "superchat"];
const GOOD: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

fn check(line: &str, fields: &str, expect: Result<Option<&str>, HandshakeReplyFault>) {
    let client = ClientHandshake::new(NONCE, OFFERED, None);
    let head = format!("{line}\r\n{fields}\r\n");
    let got = client.check(head.as_bytes());
    assert_eq!(got.map(|agreed| agreed.subprotocol), expect, "{head}");
}

#[test]
fn asks_as_the_example_of_rfc_6455_does() {
    let mut fields = FieldLines::new();
    ClientHandshake::new(NONCE, OFFERED, Some(DeflateOptions::default())).push_fields(&mut fields);
    let expect = "Upgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Protocol: chat, superchat\r\n\
                  Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    assert_eq!(fields.as_bytes(), expect.as_bytes());
}

#[test]
fn takes_the_answer_that_fits() {
    use HandshakeReplyFault::{Accept, Extensions, Head, Status, Subprotocol, Upgrade};
    let line = "HTTP/1.1 101 Switching Protocols";
    check(line, GOOD, Ok(None));
    let chosen = |name: &str| format!("{GOOD}Sec-WebSocket-Protocol: {name}\r\n");
    check(line, &chosen("superchat"), Ok(Some("superchat")));
    for other in [
        "Chat",
        "x",
        "",
        "chat, superchat",
        "chat\r\nSec-WebSocket-Protocol: chat",
    ] {
        check(line, &chosen(other), Err(Subprotocol));
    }
    check(
        line,
        &GOOD.to_lowercase().replace(
            "s3pplmbitxaq9kygzzhzrbk+xoo=",
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        ),
        Ok(None),
    );
    check("HTTP/1.1 200 OK", GOOD, Err(Status(200)));
    check("HTTP/1.1 403 No", "", Err(Status(403)));
    check("HTTP/2", GOOD, Err(Head));
    check(line, &GOOD.replace("websocket", "h2c"), Err(Upgrade));
    check(
        line,
        &GOOD.replace("Connection: Upgrade", "Connection: close"),
        Err(Upgrade),
    );
    check(line, &GOOD.replace("xOo=", "xOp="), Err(Accept));
    check(
        line,
        "Upgrade: websocket\r\nConnection: Upgrade\r\n",
        Err(Accept),
    );
    // Nothing was offered.
    let extensions = format!("{GOOD}Sec-WebSocket-Extensions: permessage-deflate\r\n");
    check(line, &extensions, Err(Extensions));
    assert_eq!(
        ClientHandshake::new(NONCE, &[], None).check(format!("{line}\r\n{GOOD}").as_bytes()),
        Err(Head),
        "without its empty line"
    );
}

#[test]
fn takes_one_extension_that_was_offered() {
    let client = ClientHandshake::new(NONCE, &[], Some(DeflateOptions::default()));
    let check = |value: &str, is_good: bool| {
        let field = format!("Sec-WebSocket-Extensions: {value}\r\n");
        let head = format!("HTTP/1.1 101 OK\r\n{GOOD}{field}\r\n");
        let agreed = client.check(head.as_bytes());
        match is_good {
            true => assert!(agreed.is_ok_and(|it| it.deflate.is_some()), "{value}"),
            false => assert_eq!(agreed, Err(HandshakeReplyFault::Extensions), "{value}"),
        }
    };
    check("permessage-deflate", true);
    check("permessage-deflate; server_max_window_bits=10", true);
    check("permessage-deflate, permessage-deflate", false);
    check("permessage-deflate, x", false);
    check("x", false);
    check("permessage-deflate;", false);
    check("permessage-deflate; unknown", false);
}

#[test]
fn client_and_server_agree() {
    let offer = DeflateOptions {
        window_bits: 11,
        client_context: DeflateContext::Dropped,
        ..DeflateOptions::default()
    };
    let client = ClientHandshake::new(*b"another 16 bytes", OFFERED, Some(offer));
    let mut fields = FieldLines::new();
    client.push_fields(&mut fields);
    let head = [b"GET / HTTP/1.1\r\nHost: a\r\n", fields.as_bytes(), b"\r\n"].concat();
    let mut index = HeadIndex::new();
    let step = index.parse(&head, &mut 0, &Limits::default());
    assert_eq!(step, Ok(HeadStep::Complete));
    let view = HeadView {
        bytes: &head,
        index: &index,
    };
    let handshake = Handshake::of_upgrade(view).ok().flatten().unwrap();
    let chosen = handshake.deflate(&DeflateOptions::default());
    let mut fields = FieldLines::new();
    handshake
        .push_fields(Some("superchat"), chosen.as_ref(), &mut fields)
        .unwrap();
    let reply = [b"HTTP/1.1 101 OK\r\n", fields.as_bytes(), b"\r\n"].concat();
    let agreed = client.check(&reply);
    let agreed = agreed.unwrap();
    assert_eq!(agreed.subprotocol, Some("superchat"));
    let deflate = agreed.deflate.unwrap();
    assert_eq!(deflate.server, chosen.unwrap().server);
    let client = DeflateSide {
        window_bits: 11,
        context: DeflateContext::Dropped,
    };
    assert_eq!(deflate.client, client);
}
