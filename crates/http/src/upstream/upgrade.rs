//! Changes of the protocol through a proxy: what a client wants its connection to become, and whether the upstream has
//! agreed to it (RFC 9110 section 7.8).
//!
//! A WebSocket handshake over HTTP/2 (RFC 8441) has neither Upgrade nor a key: towards an upstream of HTTP/1.1 the proxy
//! adds both, and checks the answer in the client's place.

use crate::head::{BodyFraming, HeadView, Method, Version};
use crate::reply_head::elements;
use crate::response::FieldLines;
use crate::websocket::HandshakeKey;

/// The protocol that a request wants to change to.
#[derive(Clone, Debug)]
pub struct WantedUpgrade {
    protocol: Vec<u8>,
    /// Of a handshake that came without one.
    key: Option<HandshakeKey>,
}

/// An upstream's 101 is not the answer to what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAgreed;

impl WantedUpgrade {
    /// The change to one of these protocols, whose client has made all of its handshake.
    pub fn to(protocol: &[u8]) -> Self {
        WantedUpgrade {
            protocol: protocol.to_vec(),
            key: None,
        }
    }

    /// What the request with this head wants; `None`: nothing that may be passed on. `nonce` gives random bytes for a
    /// key.
    pub fn of(head: HeadView<'_>, nonce: impl FnOnce() -> [u8; 16]) -> Option<Self> {
        let index = head.index;
        if index.is_websocket {
            let key = Some(HandshakeKey::new(nonce()));
            return Some(WantedUpgrade {
                protocol: b"websocket".to_vec(),
                key,
            });
        }
        // What follows a body would be taken for the other protocol, or the other way round.
        let has_body = !matches!(index.body, BodyFraming::None | BodyFraming::Length(0));
        if has_body || index.version != Version::Http11 || index.method == Method::Head {
            return None;
        }
        let of_name = |name: &'static [u8]| {
            head.headers()
                .filter(move |(found, _)| found.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
        };
        let mut protocols = of_name(b"upgrade");
        let protocol = protocols.next().filter(|_| protocols.next().is_none())?;
        let is_named = of_name(b"connection")
            .flat_map(elements)
            .any(|option| option.eq_ignore_ascii_case(b"upgrade"));
        // HTTP/2 over the tunnel would pass by every rule for requests.
        let is_http = elements(protocol).any(|one| {
            one.get(..2)
                .is_some_and(|it| it.eq_ignore_ascii_case(b"h2"))
                || one
                    .get(..4)
                    .is_some_and(|it| it.eq_ignore_ascii_case(b"http"))
        });
        let is_wanted = is_named && !is_http && elements(protocol).next().is_some();
        is_wanted.then(|| Self::to(protocol))
    }

    /// Value of Upgrade.
    pub(super) fn protocol(&self) -> &[u8] {
        &self.protocol
    }

    /// The key that the request is to have, where the client has none.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key.as_ref().map(HandshakeKey::as_bytes)
    }

    /// Whether the client's field of this name falls.
    pub(super) fn replaces(&self, name: &[u8]) -> bool {
        self.key.is_some() && name.eq_ignore_ascii_case(b"sec-websocket-key")
    }

    /// Whether the client can have an answer of 2xx that changes no protocol: over HTTP/2 it would be taken for one that
    /// does (RFC 8441 section 4).
    pub fn takes_success(&self) -> bool {
        self.key.is_none()
    }

    /// Judges the fields of a 101. Those that are about the handshake of HTTP/1.1 alone are taken out for a client that
    /// has made another one.
    ///
    /// # Errors
    /// The upstream has changed to another protocol, or has not answered the key.
    pub fn agree(&self, fields: &mut FieldLines) -> Result<(), NotAgreed> {
        let agreed = fields.get(b"Upgrade").unwrap_or_default();
        let mut asked = elements(&self.protocol);
        if !asked.any(|one| one.eq_ignore_ascii_case(agreed)) {
            return Err(NotAgreed);
        }
        let Some(key) = &self.key else {
            return Ok(());
        };
        let accept = fields.get(b"Sec-WebSocket-Accept");
        if accept != Some(&key.answer()) {
            return Err(NotAgreed);
        }
        fields.retain(|name, _| {
            let own: [&[u8]; 3] = [b"upgrade", b"connection", b"sec-websocket-accept"];
            !own.iter().any(|one| name.eq_ignore_ascii_case(one))
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{HeadIndex, HeadStep};
    use crate::limits::Limits;

    fn with_head<T>(lines: &str, look: impl FnOnce(HeadView<'_>) -> T) -> T {
        let bytes = format!("{}\r\n\r\n", lines.replace('\n', "\r\n"));
        let mut index = HeadIndex::default();
        let step = index.parse(bytes.as_bytes(), &mut 0, &Limits::default());
        assert_eq!(step, Ok(HeadStep::Complete), "{lines}");
        look(HeadView {
            bytes: bytes.as_bytes(),
            index: &index,
        })
    }

    #[test]
    fn wants_what_upgrade_and_connection_name() {
        let check = |fields: &str, expect: Option<&str>| {
            with_head(
                &format!("GET / HTTP/1.1\nHost: a{}", fields.replace('|', "\n")),
                |head| {
                    let wanted = WantedUpgrade::of(head, || unreachable!("HTTP/1 has its key"));
                    let protocol = wanted.map(|it| it.protocol);
                    assert_eq!(protocol.as_deref(), expect.map(str::as_bytes), "{fields}");
                },
            );
        };
        check("", None);
        check(
            "|Connection: keep-alive, Upgrade|Upgrade: websocket",
            Some("websocket"),
        );
        check("|Connection: upgrade|Upgrade: a/1, b", Some("a/1, b"));
        check("|Connection: close|Upgrade: websocket", None);
        check("|Connection: upgrade", None);
        check("|Connection: upgrade|Upgrade: ,", None);
        check("|Connection: upgrade|Upgrade: a|Upgrade: b", None);
        check("|Connection: upgrade|Upgrade: h2c", None);
        check("|Connection: upgrade|Upgrade: websocket, H2C", None);
        check("|Connection: upgrade|Upgrade: HTTP/2.0", None);
        check("|Connection: upgrade|Upgrade: a|Content-Length: 1", None);
        check(
            "|Connection: upgrade|Upgrade: a|Content-Length: 0",
            Some("a"),
        );
    }

    #[test]
    fn agrees_to_what_was_asked_alone() {
        let head = "GET / HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: a, B";
        with_head(head, |head| {
            let wanted = WantedUpgrade::of(head, || [0; 16]).expect("it wants one");
            assert_eq!(wanted.key(), None);
            for (agreed, expect) in [("b", Ok(())), ("c", Err(NotAgreed)), ("", Err(NotAgreed))] {
                let mut fields = FieldLines::new();
                fields.push(b"Upgrade", agreed.as_bytes());
                assert_eq!(wanted.agree(&mut fields), expect, "{agreed}");
            }
        });
    }

    #[test]
    fn answers_for_a_client_without_a_key() {
        // The key and its answer in RFC 6455 section 1.3.
        let wanted = WantedUpgrade {
            protocol: b"websocket".to_vec(),
            key: Some(HandshakeKey::new(*b"the sample nonce")),
        };
        assert_eq!(wanted.key(), Some(&b"dGhlIHNhbXBsZSBub25jZQ=="[..]));
        for (answer, expect) in [
            ("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", Ok(())),
            ("s3pPLMBiTxaQ9kYGzzhZRbK+xOO=", Err(NotAgreed)),
        ] {
            let mut fields = FieldLines::new();
            fields.push(b"upgrade", b"WebSocket");
            fields.push(b"Connection", b"Upgrade");
            fields.push(b"Sec-WebSocket-Accept", answer.as_bytes());
            fields.push(b"Sec-WebSocket-Protocol", b"chat");
            assert_eq!(wanted.agree(&mut fields), expect, "{answer}");
            if expect.is_ok() {
                assert_eq!(fields.as_bytes(), b"Sec-WebSocket-Protocol: chat\r\n");
            }
        }
    }
}
