//! The opening handshake, the server's role: RFC 6455 section 4.2, and RFC 8441 for HTTP/2.
//!
//! Takes a complete request head, gives a [`Handshake`], or the reason why it is none; appends the fields of the answer.
//! It must not decide whether a path has an application: that is the caller's, as is every other answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::extension::{DeflateAgreement, DeflateOptions, Extension, extensions};
use crate::fields::{is_token, trim};
use crate::head::{BodyFraming, HeadView, Method, Version};
use crate::response::FieldLines;

pub(super) const EXTENSIONS: &str = "Sec-WebSocket-Extensions";
pub(super) const KEY: &str = "Sec-WebSocket-Key";
pub(super) const PROTOCOL: &str = "Sec-WebSocket-Protocol";
pub(super) const VERSION: &str = "Sec-WebSocket-Version";
pub(super) const ACCEPT: &str = "Sec-WebSocket-Accept";
/// The only version there is, RFC 6455 section 4.1.
pub(super) const VERSION_13: &[u8] = b"13";

/// What the server appends to a key, RFC 6455 section 1.3.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Of a key: 16 bytes in base64.
pub(super) const KEY_BYTES: usize = 24;
/// Of an accept value: 20 bytes in base64.
const ACCEPT_BYTES: usize = 28;

/// The key of one handshake, by the client's role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandshakeKey([u8; KEY_BYTES]);

impl HandshakeKey {
    /// Of random bytes, which are new for each connection.
    pub fn new(nonce: [u8; 16]) -> Self {
        let mut key = [0; KEY_BYTES];
        let written = STANDARD.encode_slice(nonce, &mut key);
        assert_eq!(written, Ok(KEY_BYTES), "16 bytes are 24 in base64");
        HandshakeKey(key)
    }

    /// Value of `Sec-WebSocket-Key`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The `Sec-WebSocket-Accept` that answers it.
    pub fn answer(&self) -> [u8; ACCEPT_BYTES] {
        accept_value(&self.0)
    }
}

/// A request for a WebSocket connection that may be accepted.
pub struct Handshake<'a> {
    /// `None` over HTTP/2.
    key: Option<&'a [u8]>,
    subprotocols: Vec<&'a str>,
    extensions: Vec<Extension<'a>>,
}

/// Why a request for a WebSocket connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeFault {
    /// The method is not GET (405).
    Method,
    /// The request has a body, the bytes of which could pass for frames (400).
    Body,
    /// The version is not 13 (426).
    Version,
    /// The key is missing, repeated, or not 16 bytes in base64 (400).
    Key,
    /// The list of subprotocols is malformed (400).
    Subprotocols,
    /// The list of extensions is malformed (400).
    Extensions,
}

/// The application has chosen a subprotocol that the client has not offered; browsers would end the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubprotocolNotOffered;

impl<'a> Handshake<'a> {
    /// Judges a head of HTTP/1, RFC 6455 section 4.2.1. `None`: it asks for no WebSocket connection, and is a request
    /// like any other. That needs `websocket` among the protocols of Upgrade, `upgrade` among the options of Connection
    /// and HTTP/1.1 (RFC 9110 section 7.8).
    ///
    /// # Errors
    /// The first rule that it breaks otherwise.
    pub fn of_upgrade(head: HeadView<'a>) -> Result<Option<Self>, HandshakeFault> {
        let is_upgrade = head.index.version == Version::Http11
            && has_element(head.headers(), "Upgrade", "websocket")
            && has_element(head.headers(), "Connection", "upgrade");
        if !is_upgrade {
            return Ok(None);
        }
        if head.index.method != Method::Get {
            return Err(HandshakeFault::Method);
        }
        if !matches!(head.index.body, BodyFraming::None | BodyFraming::Length(0)) {
            return Err(HandshakeFault::Body);
        }
        check_version(head)?;
        let key = single(head.headers(), KEY).ok_or(HandshakeFault::Key)?;
        if !is_key(key) {
            return Err(HandshakeFault::Key);
        }
        Self::of_fields(Some(key), head).map(Some)
    }

    /// Judges the fields of an extended CONNECT with the `:protocol` `websocket`, RFC 8441 section 5: there is no key,
    /// and neither Upgrade nor Connection.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn of_connect(head: HeadView<'a>) -> Result<Self, HandshakeFault> {
        check_version(head)?;
        Self::of_fields(None, head)
    }

    fn of_fields(key: Option<&'a [u8]>, head: HeadView<'a>) -> Result<Self, HandshakeFault> {
        let values = values(head.headers(), EXTENSIONS);
        Ok(Handshake {
            key,
            subprotocols: subprotocols(head)?,
            extensions: extensions(values).map_err(|_| HandshakeFault::Extensions)?,
        })
    }

    /// The subprotocols that the client offers, in its order.
    pub fn subprotocols(&self) -> &[&'a str] {
        &self.subprotocols
    }

    /// Accepts the first valid offer of permessage-deflate; `None` where there is none.
    pub fn deflate(&self, options: &DeflateOptions) -> Option<DeflateAgreement> {
        options.choose(&self.extensions)
    }

    /// Status of the answer that accepts: 101, over HTTP/2 200.
    pub fn status(&self) -> u16 {
        match self.key {
            Some(_) => 101,
            None => 200,
        }
    }

    /// Appends the fields of the answer that accepts, RFC 6455 section 4.2.2.
    ///
    /// # Errors
    /// When `subprotocol` is none of those offered; nothing has been appended then.
    pub fn push_fields(
        &self,
        subprotocol: Option<&str>,
        deflate: Option<&DeflateAgreement>,
        fields: &mut FieldLines,
    ) -> Result<(), SubprotocolNotOffered> {
        if subprotocol.is_some_and(|chosen| !self.subprotocols.contains(&chosen)) {
            return Err(SubprotocolNotOffered);
        }
        if let Some(key) = self.key {
            push_upgrade(fields);
            fields.push(ACCEPT.as_bytes(), &accept_value(key));
        }
        if let Some(chosen) = subprotocol {
            fields.push(PROTOCOL.as_bytes(), chosen.as_bytes());
        }
        if let Some(deflate) = deflate {
            fields.push(EXTENSIONS.as_bytes(), deflate.value().as_bytes());
        }
        Ok(())
    }
}

impl HandshakeFault {
    /// Status of the reply.
    pub fn status(self) -> u16 {
        match self {
            HandshakeFault::Method => 405,
            HandshakeFault::Version => 426,
            _ => 400,
        }
    }

    /// Appends the fields that a reply with this status must have: Allow, or the version that would be served (RFC 6455
    /// section 4.2.2, RFC 9110 sections 15.5.6 and 15.5.22).
    pub fn push_fields(self, fields: &mut FieldLines) {
        match self {
            HandshakeFault::Method => fields.push(b"Allow", b"GET"),
            HandshakeFault::Version => {
                push_upgrade(fields);
                fields.push(VERSION.as_bytes(), VERSION_13);
            }
            _ => {}
        }
    }
}

impl std::fmt::Display for HandshakeFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            HandshakeFault::Method => "the method of a WebSocket handshake is GET",
            HandshakeFault::Body => "a WebSocket handshake has no body",
            HandshakeFault::Version => "the version of WebSocket is 13",
            HandshakeFault::Key => "Sec-WebSocket-Key is 16 bytes in base64, once",
            HandshakeFault::Subprotocols => "Sec-WebSocket-Protocol is a list of tokens",
            HandshakeFault::Extensions => "Sec-WebSocket-Extensions is a list of extensions",
        })
    }
}

impl std::error::Error for HandshakeFault {}

/// The value of `Sec-WebSocket-Accept` that answers a key, RFC 6455 section 4.2.2.
pub(super) fn accept_value(key: &[u8]) -> [u8; ACCEPT_BYTES] {
    let mut sha1 = sha1_smol::Sha1::new();
    sha1.update(key);
    sha1.update(KEY_SUFFIX);
    let mut value = [0; ACCEPT_BYTES];
    let written = STANDARD.encode_slice(sha1.digest().bytes(), &mut value);
    assert_eq!(written, Ok(ACCEPT_BYTES), "20 bytes are 28 in base64");
    value
}

/// The fields that change the protocol of a connection of HTTP/1.1.
pub(super) fn push_upgrade(fields: &mut FieldLines) {
    fields.push(b"Upgrade", b"websocket");
    fields.push(b"Connection", b"Upgrade");
}

/// The values of all fields of this name.
pub(super) fn values<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    name: &'static str,
) -> impl Iterator<Item = &'a [u8]> {
    fields
        .filter(move |(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| trim(value))
}

/// The value of the only field of this name; `None` where there are several, too.
pub(super) fn single<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    name: &'static str,
) -> Option<&'a [u8]> {
    let mut values = values(fields, name);
    values.next().filter(|_| values.next().is_none())
}

/// Whether the list that all fields of this name make has this element, in any case.
pub(super) fn has_element<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    name: &'static str,
    element: &str,
) -> bool {
    values(fields, name)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .any(|found| trim(found).eq_ignore_ascii_case(element.as_bytes()))
}

fn check_version(head: HeadView<'_>) -> Result<(), HandshakeFault> {
    match single(head.headers(), VERSION) {
        Some(VERSION_13) => Ok(()),
        _ => Err(HandshakeFault::Version),
    }
}

/// Whether it is the base64 of 16 bytes. The four bits beyond them may be set: some clients draw the letters, and
/// nobody decodes them.
fn is_key(key: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == KEY_BYTES && key.ends_with(b"==") && key[..KEY_BYTES - 2].iter().all(is_letter)
}

/// RFC 6455 section 11.3.4: tokens, in one list or several.
fn subprotocols(head: HeadView<'_>) -> Result<Vec<&str>, HandshakeFault> {
    values(head.headers(), PROTOCOL)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(trim)
        .filter(|element| !element.is_empty())
        .map(|element| match str::from_utf8(element) {
            Ok(text) if text.bytes().all(is_token) => Ok(text),
            _ => Err(HandshakeFault::Subprotocols),
        })
        .collect()
}

#[cfg(test)]
mod tests;
