//! One connection's TLS as a machine without I/O: ciphertext in, plaintext out, and the reverse.
//!
//! ```text
//!        hold         step                 hold, step
//! Hello ─────► Hello ────────► Handshaking ──────────────────► Open
//!   └────────────┴─── a fault ──────┴──────────────┬────────────┘
//!                                                  ▼
//!                                                Failed: its alert is in the ciphertext, nothing else follows
//! ```
//! The caller owns all buffers. A session keeps what cannot be used yet: a record that is not whole, and plaintext that
//! had no room. An idle one keeps neither, and owns no buffer then. RFC 8446 section 2, RFC 5246 section 7.3.

use std::fmt;

use rustls::server::{Acceptor, ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, WriteTraffic};
use rustls::{AlertDescription, Error};

use crate::client_hello::{HandshakeInput, HelloScan};
use crate::handshake::HelloFacts;
use crate::{Ciphertext, HandshakeFacts, ServerTls, UnrecognizedName};

/// Ciphertext that a session keeps at most: a message of a handshake has 64 KB, and its records their headers. A client
/// that cuts it into records of one byte each meets this bound earlier.
pub const HELD_BYTES_MAX: usize = 80 << 10;
/// What a record adds to its plaintext at most (RFC 8446 section 5.2), and how much plaintext one has.
const RECORD_OVERHEAD_BYTES: usize = 256;
const RECORD_BYTES: usize = 16 << 10;

/// TLS on one connection, the server's side.
#[derive(Default)]
pub struct Session {
    state: SessionState,
    /// Ciphertext that is not used yet, from its first byte on: part of a record, or of a message over several.
    held: Vec<u8>,
    /// Plaintext that had no room.
    unread: Vec<u8>,
    /// The client has ended its side by close_notify.
    is_ended: bool,
}

enum SessionState {
    /// No handshake has begun: the ClientHello is not whole, or waits.
    Hello(HelloScan),
    Handshaking(Box<UnbufferedServerConnection>, HelloFacts),
    Open(Box<UnbufferedServerConnection>),
    Failed,
}

/// What came of received ciphertext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes of plaintext, 1 at least.
    Plaintext(usize),
    /// More ciphertext is needed.
    Nothing,
    /// The client has ended its side.
    End,
}

/// Why a session is over.
#[derive(Debug)]
pub struct SessionFault {
    error: Error,
    /// The name that the client asked for, as far as it is known.
    pub server_name: Option<String>,
}

/// How far some ciphertext was used.
struct Used {
    /// From its front; the rest is no whole record.
    bytes: usize,
    /// close_notify has come.
    is_ended: bool,
}

/// Where plaintext goes: to the caller as far as there is room, then to what the session keeps.
struct PlaintextSink<'a> {
    room: &'a mut [u8],
    filled: usize,
    unread: &'a mut Vec<u8>,
}

impl Session {
    /// Keeps what has come before the handshake is over, and says whether a step can be made with it.
    ///
    /// # Errors
    /// A message of the handshake is larger than any that is served.
    pub fn hold(&mut self, bytes: &[u8]) -> Result<HandshakeInput, SessionFault> {
        self.keep(bytes)?;
        Ok(match &mut self.state {
            SessionState::Hello(scan) => scan.examine(&self.held),
            _ => HandshakeInput::Ready,
        })
    }

    /// Lets go of the first `bytes` bytes that are held: they are no part of the handshake.
    ///
    /// # Panics
    /// The handshake has begun, or so much is not held.
    pub fn skip(&mut self, bytes: usize) {
        let SessionState::Hello(scan) = &mut self.state else {
            unreachable!("a handshake that has begun has no other bytes in front of it");
        };
        *scan = HelloScan::default();
        self.held.drain(..bytes);
        self.shrink();
    }

    /// Ciphertext that is kept, in front of which the next one belongs: before the handshake has begun, bytes that may
    /// be no TLS.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Whether the next `receive` has something to give without further ciphertext.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty() || self.is_ended
    }

    /// Whether the handshake is not over.
    pub fn is_handshaking(&self) -> bool {
        matches!(
            self.state,
            SessionState::Hello(_) | SessionState::Handshaking(..)
        )
    }

    /// Makes a step of the handshake with what is held, its costly part; the answer is in `out`. What both sides have
    /// agreed on, once it is over. `server` is what the first step accepts with.
    ///
    /// # Errors
    /// The handshake failed; the alert is in `out`.
    ///
    /// # Panics
    /// The handshake is over.
    pub fn step(
        &mut self,
        server: &ServerTls,
        out: &mut Ciphertext,
    ) -> Result<Option<HandshakeFacts>, SessionFault> {
        let (mut tls, hello) = match std::mem::replace(&mut self.state, SessionState::Failed) {
            SessionState::Hello(_) => begin(&self.held, server, out)?,
            SessionState::Handshaking(tls, hello) => (tls, hello),
            SessionState::Failed => {
                return Err(SessionFault::of(Error::HandshakeNotComplete, None));
            }
            SessionState::Open(_) => unreachable!("a handshake that is over has no steps"),
        };
        // The first bytes of a client that does not wait may come along: bounded by what is held.
        let mut plaintext = PlaintextSink {
            room: &mut [],
            filled: 0,
            unread: &mut self.unread,
        };
        let used = advance(&mut tls, &mut self.held, &mut plaintext, out);
        let used = used.map_err(|error| SessionFault::of(error, hello.server_name.clone()))?;
        self.held.drain(..used.bytes);
        self.is_ended = used.is_ended;
        self.shrink();
        if tls.is_handshaking() {
            self.state = SessionState::Handshaking(tls, hello);
            return Ok(None);
        }
        let facts = HandshakeFacts::of(&tls, hello);
        self.state = SessionState::Open(tls);
        Ok(Some(facts))
    }

    /// Deciphers what is in `buffer`: room for the bytes that are [`held`](Self::held), and new ciphertext behind
    /// it. Plaintext goes to `plaintext`, which is not empty, answers of TLS itself to `out`.
    ///
    /// # Errors
    /// The peer does not speak TLS as it should, or the connection was forged; the alert is in `out`.
    ///
    /// # Panics
    /// The handshake is not over, or new ciphertext is given while there is something unread.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        plaintext: &mut [u8],
        out: &mut Ciphertext,
    ) -> Result<Received, SessionFault> {
        assert!(!plaintext.is_empty(), "no bytes would look like the end");
        let mut filled = 0;
        if self.has_unread() {
            let has_new = buffer.len() > self.held.len();
            assert!(!has_new, "what has come is given before more is read");
            filled = self.unread.len().min(plaintext.len());
            plaintext[..filled].copy_from_slice(&self.unread[..filled]);
            self.unread.drain(..filled);
            self.shrink();
        } else {
            let tls = open(&mut self.state)?;
            buffer[..self.held.len()].copy_from_slice(&self.held);
            let mut sink = PlaintextSink {
                room: plaintext,
                filled: 0,
                unread: &mut self.unread,
            };
            let used = advance(tls, buffer, &mut sink, out);
            filled += sink.filled;
            let used = used.inspect_err(|_| self.state = SessionState::Failed);
            let used = used.map_err(|error| SessionFault::of(error, None))?;
            self.is_ended = used.is_ended;
            self.held.clear();
            self.keep(&buffer[used.bytes..])?;
            self.shrink();
        }
        Ok(match filled {
            0 if self.is_ended => Received::End,
            0 => Received::Nothing,
            bytes => Received::Plaintext(bytes),
        })
    }

    /// Enciphers all of `plaintext` into `out`, in full records.
    ///
    /// # Errors
    /// The session has failed, or its keys are used up.
    ///
    /// # Panics
    /// The handshake is not over.
    pub fn send(&mut self, plaintext: &[u8], out: &mut Ciphertext) -> Result<(), SessionFault> {
        let records = plaintext.len().div_ceil(RECORD_BYTES);
        let bytes = plaintext.len() + records * RECORD_OVERHEAD_BYTES;
        self.write(out, bytes, |traffic, room| traffic.encrypt(plaintext, room))
    }

    /// Says close_notify: nothing more is sent. Nothing is said before the handshake is over, or after a fault.
    pub fn close(&mut self, out: &mut Ciphertext) {
        if let SessionState::Open(_) = self.state {
            let close = |traffic: &mut WriteTraffic<'_, _>, room: &mut [u8]| {
                traffic.queue_close_notify(room)
            };
            // A session that cannot even say so has said it.
            let _ = self.write(out, RECORD_OVERHEAD_BYTES, close);
        }
    }

    /// Writes by `step`, which gives the bytes it has put into its room.
    fn write(
        &mut self,
        out: &mut Ciphertext,
        bytes: usize,
        mut step: impl FnMut(
            &mut WriteTraffic<'_, ServerConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> Result<(), SessionFault> {
        let tls = open(&mut self.state)?;
        let mut wanted = bytes;
        loop {
            // With what is held: rustls may have found a part of a message in it, whose place it has noted.
            match tls.process_tls_records(&mut self.held).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    match step(&mut traffic, out.spare(wanted)) {
                        Ok(written) => {
                            out.fill(written);
                            return Ok(());
                        }
                        // An answer of TLS itself comes first.
                        Err(EncryptError::InsufficientSize(room)) => wanted = room.required_size,
                        Err(EncryptError::EncryptExhausted) => {
                            self.state = SessionState::Failed;
                            return Err(SessionFault::of(Error::EncryptError, None));
                        }
                    }
                }
                // Both sides have ended.
                Ok(ConnectionState::PeerClosed) => {}
                Ok(ConnectionState::Closed) => {
                    return Err(SessionFault::of(Error::HandshakeNotComplete, None));
                }
                Ok(_) => unreachable!("all whole records that are held were used"),
                Err(error) => {
                    self.state = SessionState::Failed;
                    return Err(SessionFault::of(error, None));
                }
            }
        }
    }

    /// Keeps ciphertext.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), SessionFault> {
        if self.held.len() + bytes.len() > HELD_BYTES_MAX {
            self.state = SessionState::Failed;
            let text = "a message of the handshake is too large".to_owned();
            return Err(SessionFault::of(Error::General(text), None));
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    /// Lets go of buffers that are empty: an idle session owns none.
    fn shrink(&mut self) {
        for buffer in [&mut self.held, &mut self.unread] {
            if buffer.is_empty() {
                *buffer = Vec::new();
            }
        }
    }
}

impl Default for SessionState {
    fn default() -> Self {
        Self::Hello(HelloScan::default())
    }
}

impl SessionFault {
    fn of(error: Error, server_name: Option<String>) -> Self {
        Self { error, server_name }
    }

    /// The alert by which the client has ended the handshake.
    pub fn alert_received(&self) -> Option<AlertDescription> {
        match self.error {
            Error::AlertReceived(alert) => Some(alert),
            _ => None,
        }
    }
}

impl fmt::Display for SessionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for SessionFault {}

impl PlaintextSink<'_> {
    fn put(&mut self, bytes: &[u8]) {
        // In order: what finds no room is behind what found some.
        let room = &mut self.room[self.filled..];
        let taken = match self.unread.is_empty() {
            true => bytes.len().min(room.len()),
            false => 0,
        };
        room[..taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        self.unread.extend_from_slice(&bytes[taken..]);
    }
}

/// Reads the ClientHello and chooses by it what the connection is accepted with.
fn begin(
    held: &[u8],
    server: &ServerTls,
    out: &mut Ciphertext,
) -> Result<(Box<UnbufferedServerConnection>, HelloFacts), SessionFault> {
    let mut acceptor = Acceptor::default();
    let mut rest = held;
    let hello = loop {
        // A slice is read without an error. rustls reads a part of it at once, and refuses one that has no end.
        let read = acceptor.read_tls(&mut rest);
        match acceptor.accept() {
            Ok(Some(hello)) => break hello,
            Ok(None) if matches!(read, Ok(1..)) => {}
            Ok(None) => return Err(SessionFault::of(Error::HandshakeNotComplete, None)),
            Err((error, mut alert)) => {
                let mut bytes = Vec::new();
                // Memory takes everything.
                let _ = alert.write_all(&mut bytes);
                out.put(&bytes);
                return Err(SessionFault::of(error, None));
            }
        }
    };
    let hello = hello.client_hello();
    let name = hello.server_name().map(str::to_ascii_lowercase);
    let chosen = server.config_for(&hello).map_err(|UnrecognizedName| {
        out.put(&UnrecognizedName::ALERT);
        let text = "no certificate is for the name".to_owned();
        SessionFault::of(Error::General(text), name.clone())
    })?;
    let tls = UnbufferedServerConnection::new(chosen.config);
    let tls = tls.map_err(|error| SessionFault::of(error, name.clone()))?;
    let hello = HelloFacts {
        server_name: name,
        client_auth: chosen.client_auth,
    };
    Ok((Box::new(tls), hello))
}

/// Uses all whole records of `ciphertext`.
fn advance(
    tls: &mut UnbufferedServerConnection,
    ciphertext: &mut [u8],
    plaintext: &mut PlaintextSink<'_>,
    out: &mut Ciphertext,
) -> Result<Used, Error> {
    let mut bytes = 0;
    loop {
        let status = tls.process_tls_records(&mut ciphertext[bytes..]);
        let mut used = status.discard;
        let mut end = None;
        match status.state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    used += record.discard;
                    plaintext.put(record.payload);
                }
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, out),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => end = Some(true),
            Ok(ConnectionState::WriteTraffic(_) | ConnectionState::BlockedHandshake) => {
                end = Some(false);
            }
            Ok(_) => unreachable!("early data is off"),
            Err(error) => {
                bytes += used;
                take_alert(tls, &mut ciphertext[bytes..], out);
                return Err(error);
            }
        }
        bytes += used;
        match end {
            // Whatever stands behind close_notify is to be ignored (RFC 8446 section 6.1).
            Some(true) => bytes = ciphertext.len(),
            Some(false) => {}
            None => continue,
        }
        let is_ended = end == Some(true);
        return Ok(Used { bytes, is_ended });
    }
}

/// The alert of a session that has failed, which rustls has ready.
fn take_alert(tls: &mut UnbufferedServerConnection, rest: &mut [u8], out: &mut Ciphertext) {
    // Not once more: what has failed would fail again.
    while tls.wants_write()
        && let Ok(ConnectionState::EncodeTlsData(mut data)) = tls.process_tls_records(rest).state
    {
        encode(&mut data, out);
    }
}

fn encode(
    data: &mut rustls::unbuffered::EncodeTlsData<'_, ServerConnectionData>,
    out: &mut Ciphertext,
) {
    let mut wanted = RECORD_OVERHEAD_BYTES;
    loop {
        match data.encode(out.spare(wanted)) {
            Ok(written) => return out.fill(written),
            Err(EncodeError::InsufficientSize(room)) => wanted = room.required_size,
            Err(EncodeError::AlreadyEncoded) => unreachable!("it is encoded once"),
        }
    }
}

fn open(state: &mut SessionState) -> Result<&mut UnbufferedServerConnection, SessionFault> {
    match state {
        SessionState::Open(tls) => Ok(tls),
        SessionState::Failed => Err(SessionFault::of(Error::HandshakeNotComplete, None)),
        SessionState::Hello(_) | SessionState::Handshaking(..) => {
            unreachable!("nothing is read or written before the handshake is over")
        }
    }
}

#[cfg(test)]
mod tests;
