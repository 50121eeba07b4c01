//! What a handshake has agreed on: facts of a connection, for logs, counters and applications.

use rustls::server::UnbufferedServerConnection;
use rustls::{HandshakeKind, ProtocolVersion};

use crate::{ClientAuthId, ClientCertificate};

/// A protocol that is agreed on within the handshake (RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// `h2`
    H2,
    /// `http/1.1`
    Http1,
    /// `acme-tls/1` (RFC 8737): the handshake is all that there is.
    AcmeTls1,
}

/// What is known of a handshake from its beginning on.
#[derive(Clone, Debug)]
pub(crate) struct HelloFacts {
    /// The name that the client asks for, in lower case.
    pub(crate) server_name: Option<String>,
    /// What is asked of the client.
    pub(crate) client_auth: ClientAuthId,
}

/// What both sides have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeFacts {
    /// As OpenSSL names it: `TLSv1.3`.
    pub version: &'static str,
    /// As the RFCs name it: `TLS13_AES_128_GCM_SHA256`.
    pub cipher: &'static str,
    /// The version's number (RFC 8446 section 4.2.1), as `0x0304`; 0 where it is not known.
    pub version_number: u16,
    /// The cipher's number in the registry of IANA; 0 where it is not known.
    pub cipher_number: u16,
    /// An earlier session was resumed.
    pub is_resumed: bool,
    /// The name that the client asked for, in lower case.
    pub server_name: Option<String>,
    /// The protocol, where the client has offered any.
    pub alpn: Option<Alpn>,
    /// The client's certificate, where one was asked for and given.
    pub client_certificate: Option<Box<ClientCertificate>>,
    /// What was asked of the client.
    pub client_auth: ClientAuthId,
}

impl Alpn {
    /// As it stands in the handshake.
    pub const fn name(self) -> &'static [u8] {
        match self {
            Alpn::H2 => b"h2",
            Alpn::Http1 => b"http/1.1",
            Alpn::AcmeTls1 => b"acme-tls/1",
        }
    }
}

impl HandshakeFacts {
    /// Of a handshake that is over.
    pub(crate) fn of(tls: &UnbufferedServerConnection, hello: HelloFacts) -> Self {
        let alpn = tls.alpn_protocol();
        let suite = tls.negotiated_cipher_suite();
        let suite = suite.map(|suite| suite.suite());
        let certificate = tls.peer_certificates().and_then(<[_]>::first);
        Self {
            version: match tls.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "unknown",
            },
            cipher: suite.and_then(|suite| suite.as_str()).unwrap_or("unknown"),
            version_number: tls.protocol_version().map_or(0, u16::from),
            cipher_number: suite.map_or(0, u16::from),
            is_resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
            server_name: hello.server_name,
            alpn: [Alpn::H2, Alpn::Http1, Alpn::AcmeTls1]
                .into_iter()
                .find(|known| alpn == Some(known.name())),
            client_certificate: certificate.map(|der| Box::new(ClientCertificate::of(der))),
            client_auth: hello.client_auth,
        }
    }
}
