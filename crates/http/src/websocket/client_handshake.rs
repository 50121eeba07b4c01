//! The opening handshake, the client's role: RFC 6455 section 4.1, over HTTP/1.1.
//!
//! Takes 16 random bytes and what is wanted, gives the fields of the request; then the response's head, and gives what
//! has been agreed on. It must not write a request line or Host, and it draws nothing.

use super::extension::{DeflateAgreement, DeflateOptions, extensions};
use super::handshake::{
    ACCEPT, EXTENSIONS, HandshakeKey, KEY, PROTOCOL, VERSION, VERSION_13, has_element,
    push_upgrade, single, values,
};
use crate::reply_head::HEADERS_LEN_MAX;
use crate::response::FieldLines;

/// A client's handshake, from its request to the answer.
#[derive(Clone, Debug)]
pub struct ClientHandshake<'a> {
    key: HandshakeKey,
    subprotocols: &'a [&'a str],
    deflate: Option<DeflateOptions>,
}

/// What client and server have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgreedSession<'a> {
    /// The subprotocol; `None` where the server has chosen none.
    pub subprotocol: Option<&'a str>,
    /// `None` without permessage-deflate.
    pub deflate: Option<DeflateAgreement>,
}

/// Why a response opens no WebSocket connection, RFC 6455 section 4.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeReplyFault {
    /// The bytes are no complete head of a response.
    Head,
    /// The status is not 101.
    Status(u16),
    /// Upgrade is not `websocket`, or Connection does not name it.
    Upgrade,
    /// `Sec-WebSocket-Accept` does not answer the key.
    Accept,
    /// The server has chosen a subprotocol that was not offered.
    Subprotocol,
    /// The server has chosen an extension that was not offered, or parameters that do not fit the offer.
    Extensions,
}

impl<'a> ClientHandshake<'a> {
    /// `nonce` is random, and new for each connection.
    pub fn new(
        nonce: [u8; 16],
        subprotocols: &'a [&'a str],
        deflate: Option<DeflateOptions>,
    ) -> Self {
        ClientHandshake {
            key: HandshakeKey::new(nonce),
            subprotocols,
            deflate,
        }
    }

    /// Appends the fields of the request, beside Host and what else the client wants to say. The method is GET.
    ///
    /// # Panics
    /// When a subprotocol cannot stand in a field.
    pub fn push_fields(&self, fields: &mut FieldLines) {
        push_upgrade(fields);
        fields.push(KEY.as_bytes(), self.key.as_bytes());
        fields.push(VERSION.as_bytes(), VERSION_13);
        if !self.subprotocols.is_empty() {
            let list = self.subprotocols.join(", ");
            fields.push(PROTOCOL.as_bytes(), list.as_bytes());
        }
        if let Some(offer) = &self.deflate {
            fields.push(EXTENSIONS.as_bytes(), offer.offer().as_bytes());
        }
    }

    /// Checks the response, of which `head` is the whole head, up to and with its empty line.
    ///
    /// # Errors
    /// The first condition of RFC 6455 section 4.1 that it does not meet.
    pub fn check(&self, head: &[u8]) -> Result<AgreedSession<'a>, HandshakeReplyFault> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_LEN_MAX];
        let mut reply = httparse::Response::new(&mut headers);
        let status = match (reply.parse(head), reply.code) {
            (Ok(httparse::Status::Complete(_)), Some(status)) => status,
            _ => return Err(HandshakeReplyFault::Head),
        };
        if status != 101 {
            return Err(HandshakeReplyFault::Status(status));
        }
        let fields = reply.headers.iter();
        let fields = fields.map(|field| (field.name.as_bytes(), field.value));
        let is_upgrade = has_element(fields.clone(), "Upgrade", "websocket")
            && has_element(fields.clone(), "Connection", "upgrade");
        if !is_upgrade {
            return Err(HandshakeReplyFault::Upgrade);
        }
        if single(fields.clone(), ACCEPT) != Some(&self.key.answer()) {
            return Err(HandshakeReplyFault::Accept);
        }
        Ok(AgreedSession {
            subprotocol: self.subprotocol(values(fields.clone(), PROTOCOL))?,
            deflate: self.deflate(values(fields, EXTENSIONS))?,
        })
    }

    fn subprotocol<'b>(
        &self,
        mut values: impl Iterator<Item = &'b [u8]>,
    ) -> Result<Option<&'a str>, HandshakeReplyFault> {
        let Some(chosen) = values.next() else {
            return Ok(None);
        };
        let offered = self.subprotocols.iter().copied();
        match (
            offered.clone().find(|it| it.as_bytes() == chosen),
            values.next(),
        ) {
            (Some(subprotocol), None) => Ok(Some(subprotocol)),
            _ => Err(HandshakeReplyFault::Subprotocol),
        }
    }

    fn deflate<'b>(
        &self,
        values: impl Iterator<Item = &'b [u8]>,
    ) -> Result<Option<DeflateAgreement>, HandshakeReplyFault> {
        let agreed = match (extensions(values).as_deref(), &self.deflate) {
            (Ok([]), _) => return Ok(None),
            (Ok([answer]), Some(offer)) => offer.check(answer),
            _ => None,
        };
        match agreed {
            Some(agreement) => Ok(Some(agreement)),
            None => Err(HandshakeReplyFault::Extensions),
        }
    }
}

#[cfg(test)]
mod tests;
