//! What a connection's TLS handshake has agreed on, and how long it took: for applications, and for the log as text that
//! is made once for each connection.

use ::tls::HandshakeFacts;
use telemetry::{Nanos, Stamp, TlsRecord};

/// Facts of a connection under TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFacts {
    /// What both sides have agreed on.
    pub handshake: HandshakeFacts,
    /// When the handshake was over.
    ended: Stamp,
    /// For the record of the first request, and of all others.
    first: Vec<u8>,
    later: Vec<u8>,
}

impl TlsFacts {
    /// Of a handshake that is over since `ended`, and has taken so long.
    pub(crate) fn new(handshake: HandshakeFacts, ended: Stamp, took: Nanos) -> Self {
        let later = TlsRecord {
            version: handshake.version.trim_start_matches("TLSv").as_bytes(),
            cipher: handshake.cipher.as_bytes(),
            resumed: match handshake.is_resumed {
                true => b"yes",
                false => b"no",
            },
            server_name: handshake.server_name.as_deref().unwrap_or("").as_bytes(),
            alpn: handshake.alpn.map_or(b"", |alpn| alpn.name()),
            handshake: None,
        };
        let text = |tls: TlsRecord<'_>| {
            let mut text = Vec::new();
            tls.write(&mut text);
            text
        };
        let first = text(TlsRecord {
            handshake: Some(took),
            ..later
        });
        let later = text(later);
        Self {
            handshake,
            ended,
            first,
            later,
        }
    }

    /// Since when the client may send requests.
    pub(crate) fn ended(&self) -> Stamp {
        self.ended
    }

    /// For the record of a request that has arrived then, on the stream with this number (0 in HTTP/1).
    pub(super) fn text(&self, arrived: Stamp, stream: u32) -> &[u8] {
        // In HTTP/1 the first request of a connection begins with the end of its handshake.
        match arrived == self.ended || stream == 1 {
            true => &self.first,
            false => &self.later,
        }
    }
}
