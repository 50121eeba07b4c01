//! The client's side of one WebSocket connection: its handshake, and the messages that come.
//!
//! Takes bytes as they arrive, gives messages as replies. Pure but for the random bytes of the handshake.

use http::FieldLines;
use http::websocket::{
    ClientHandshake, Event, HandshakeReplyFault, MessageDecoder, Opcode, Role, write_close,
    write_control,
};
use sha2::{Digest, Sha256};

use super::response::{Ended, Expected};

/// The status of a handshake, which stands for that of each message.
pub(crate) const SWITCHING_PROTOCOLS: u16 = 101;
/// A longer head answers no handshake.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Longest message that is a reply.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// The normal end of a connection (RFC 6455 section 7.4.1).
const NORMAL: u16 = 1000;

/// One connection.
pub(crate) struct WebSocketClient {
    handshake: ClientHandshake<'static>,
    decoder: MessageDecoder,
    /// What has come and is not dealt with.
    input: Vec<u8>,
    /// The beginning of a message.
    begun: Vec<u8>,
}

/// What has come.
pub(crate) enum Message {
    Reply(Ended),
    /// To be answered with these bytes.
    Ping(Vec<u8>),
    /// The server ends the connection.
    Close,
    /// Something that breaks a rule.
    Wrong,
}

impl WebSocketClient {
    /// A connection, and the request of its handshake. `upgrade`: a request up to the fields of WebSocket.
    pub(crate) fn new(upgrade: &[u8]) -> (Self, Vec<u8>) {
        let handshake = ClientHandshake::new(fastrand::u128(..).to_ne_bytes(), &[], None);
        let mut fields = FieldLines::new();
        handshake.push_fields(&mut fields);
        let request = [upgrade, fields.as_bytes(), b"\r\n"].concat();
        let client = Self {
            handshake,
            decoder: MessageDecoder::new(Role::Client, MESSAGE_BYTES_MAX, None),
            input: Vec::new(),
            begun: Vec::new(),
        };
        (client, request)
    }

    /// The frame that ends a connection.
    pub(crate) fn close() -> Vec<u8> {
        let mut frame = Vec::new();
        let written = write_close(Some(NORMAL), "", Some(mask()), &mut frame);
        assert!(written.is_ok(), "1000 may be sent");
        frame
    }

    /// Takes bytes.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Whether the handshake has been answered.
    ///
    /// # Errors
    /// Why the answer opens no WebSocket connection.
    pub(crate) fn handshake(&mut self) -> Result<bool, String> {
        let end = memchr::memmem::find(&self.input, b"\r\n\r\n").map(|at| at + 4);
        let Some(end) = end else {
            return match self.input.len() > HEAD_BYTES_MAX {
                true => Err("the server does not answer in HTTP".to_owned()),
                false => Ok(false),
            };
        };
        let agreed = self.handshake.check(&self.input[..end]);
        self.input.drain(..end);
        match agreed {
            Ok(_) => Ok(true),
            Err(HandshakeReplyFault::Head) => Err("the server does not answer in HTTP".to_owned()),
            Err(HandshakeReplyFault::Status(status)) => Err(format!(
                "the server answers the WebSocket handshake with status {status}"
            )),
            Err(_) => {
                Err("the server does not answer the WebSocket handshake as it must".to_owned())
            }
        }
    }

    /// The next message.
    pub(crate) fn next(&mut self, standard: &Expected) -> Option<Message> {
        while !self.input.is_empty() {
            let Ok(received) = self.decoder.decode(&mut self.input, &mut self.begun) else {
                self.input.clear();
                return Some(Message::Wrong);
            };
            let consumed = received.consumed;
            let message = match received.event {
                None => return self.keep_rest(consumed),
                Some(Event::Text(payload) | Event::Binary(payload)) => {
                    let sum = standard.has_sum().then(|| Sha256::new_with_prefix(payload));
                    let bytes = payload.len() as u64;
                    let ended = standard.verdict(SWITCHING_PROTOCOLS, bytes, sum);
                    Some(Message::Reply(ended))
                }
                Some(Event::Ping(payload)) => {
                    let mut frame = Vec::new();
                    write_control(Opcode::Pong, payload, Some(mask()), &mut frame);
                    Some(Message::Ping(frame))
                }
                Some(Event::Pong(_)) => None,
                Some(Event::Close(_)) => Some(Message::Close),
            };
            self.input.drain(..consumed);
            if message.is_some() {
                return message;
            }
        }
        None
    }

    /// More has to come.
    fn keep_rest(&mut self, consumed: usize) -> Option<Message> {
        self.input.drain(..consumed);
        None
    }
}

fn mask() -> [u8; 4] {
    fastrand::u32(..).to_ne_bytes()
}
