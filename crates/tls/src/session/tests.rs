//! Sessions against a client of rustls in memory.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
    SupportedProtocolVersion, version,
};

use super::*;
use crate::Alpn;
use crate::crypto::provider;

/// Trusts everybody: who the server is, is not what these tests are about.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = provider().signature_verification_algorithms;
        known.supported_schemes()
    }
}

fn server() -> ServerTls {
    let made = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
    let key = made.signing_key.serialize_pem();
    crate::test_pki::server_of(made.cert.pem().as_bytes(), key.as_bytes(), &[Alpn::Http1])
}

fn client_config(version: &'static SupportedProtocolVersion, alpn: &[Alpn]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|alpn| alpn.name().to_vec()).collect();
    Arc::new(config)
}

/// Both ends, and what a server does with its session.
struct Link {
    client: ClientConnection,
    session: Session,
    server: ServerTls,
    facts: Option<HandshakeFacts>,
    /// The server's buffers.
    input: Vec<u8>,
    out: Ciphertext,
    /// Plaintext that has reached the server, and whether it has seen its end.
    received: Vec<u8>,
    is_ended: bool,
    /// Plaintext goes to a buffer of this size.
    room: usize,
}

impl Link {
    fn new(config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("Shop.Example").unwrap();
        Self {
            client: ClientConnection::new(Arc::clone(config), name).unwrap(),
            session: Session::default(),
            server: server(),
            facts: None,
            input: vec![0; 200_000],
            out: Ciphertext::default(),
            received: Vec::new(),
            is_ended: false,
            room: 64 << 10,
        }
    }

    /// What the client has to send.
    fn take_from_client(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Gives the server ciphertext as one read, as its transport does.
    fn give(&mut self, bytes: &[u8]) -> Result<(), SessionFault> {
        if self.session.is_handshaking() {
            if self.session.hold(bytes)? == HandshakeInput::Ready
                && let Some(facts) = self.session.step(&self.server, &mut self.out)?
            {
                self.facts = Some(facts);
            }
        } else {
            let held = self.session.held().len();
            self.input[held..held + bytes.len()].copy_from_slice(bytes);
            self.receive(held + bytes.len())?;
        }
        while !self.session.is_handshaking() && self.session.has_unread() && !self.is_ended {
            self.receive(self.session.held().len())?;
        }
        Ok(())
    }

    fn receive(&mut self, bytes: usize) -> Result<(), SessionFault> {
        let mut plaintext = vec![0; self.room];
        let input = &mut self.input[..bytes];
        match self.session.receive(input, &mut plaintext, &mut self.out)? {
            Received::Plaintext(bytes) => self.received.extend_from_slice(&plaintext[..bytes]),
            Received::Nothing => {}
            Received::End => self.is_ended = true,
        }
        Ok(())
    }

    /// Gives the client what the server has to send, `step` bytes at a time.
    fn give_to_client(&mut self, step: usize) -> Result<Vec<u8>, Error> {
        let bytes = self.out.filled().to_vec();
        self.out.clear();
        let mut received = Vec::new();
        for part in bytes.chunks(step) {
            let mut part = part;
            while !part.is_empty() {
                self.client.read_tls(&mut part).unwrap();
                self.client.process_new_packets()?;
                let mut buffer = [0; 4096];
                while let Ok(bytes @ 1..) = self.client.reader().read(&mut buffer) {
                    received.extend_from_slice(&buffer[..bytes]);
                }
            }
        }
        Ok(received)
    }

    /// Until both have nothing to say; what the client sends reaches the server `step` bytes at a time.
    fn run(&mut self, step: usize) {
        loop {
            let bytes = self.take_from_client();
            if bytes.is_empty() && self.out.is_empty() {
                return;
            }
            for part in bytes.chunks(step) {
                self.give(part).unwrap();
            }
            assert_eq!(self.give_to_client(step).unwrap(), b"");
        }
    }
}

fn established(version: &'static SupportedProtocolVersion) -> Link {
    let mut link = Link::new(&client_config(version, &[Alpn::Http1]));
    link.run(usize::MAX);
    assert!(!link.session.is_handshaking());
    link
}

#[test]
fn agrees_however_the_bytes_are_split() {
    for (version, number) in [(&version::TLS13, "TLSv1.3"), (&version::TLS12, "TLSv1.2")] {
        for step in [1, 2, 3, 5, 64, 517, usize::MAX] {
            let mut link = Link::new(&client_config(version, &[Alpn::H2, Alpn::Http1]));
            link.run(step);
            let facts = link.facts.as_ref().expect("the handshake is over");
            assert_eq!(facts.version, number);
            assert_eq!(facts.server_name.as_deref(), Some("shop.example"));
            assert_eq!(facts.alpn, Some(Alpn::Http1));
            assert!(!facts.is_resumed);
            assert!(facts.cipher.contains("AES_128_GCM"), "{}", facts.cipher);
            assert_eq!(link.client.alpn_protocol(), Some(&b"http/1.1"[..]));
            // An idle session owns no buffer.
            assert_eq!(link.session.held.capacity(), 0);
            assert_eq!(link.session.unread.capacity(), 0);
        }
    }
}

#[test]
fn plaintext_arrives_whole_from_records_split_at_every_byte() {
    for version in [&version::TLS13, &version::TLS12] {
        let mut link = established(version);
        let text: Vec<u8> = (0..300_u32).map(|at| at as u8).collect();
        link.client.writer().write_all(&text).unwrap();
        let record = link.take_from_client();
        link.give(&record).unwrap();
        for at in 0..record.len() {
            link.received.clear();
            link.client.writer().write_all(&text).unwrap();
            let bytes = link.take_from_client();
            link.give(&bytes[..at]).unwrap();
            assert_eq!(link.received, b"", "{at}");
            link.give(&bytes[at..]).unwrap();
            assert!(link.received == text, "{at}");
            assert_eq!(link.session.held.capacity(), 0, "{at}");
        }
    }
}

#[test]
fn plaintext_that_has_no_room_is_given_later() {
    let mut link = established(&version::TLS13);
    link.room = 7;
    let text: Vec<u8> = (0..40_000_u32).map(|at| (at / 7) as u8).collect();
    link.client.writer().write_all(&text).unwrap();
    let bytes = link.take_from_client();
    link.give(&bytes).unwrap();
    assert!(link.received == text);
    assert!(!link.session.has_unread());
    assert_eq!(link.session.unread.capacity(), 0);
}

#[test]
fn sends_full_records_that_a_client_reads_however_they_are_split() {
    for version in [&version::TLS13, &version::TLS12] {
        for step in [1, 1000, usize::MAX] {
            let mut link = established(version);
            let text: Vec<u8> = (0..50_000_u32).map(|at| (at / 3) as u8).collect();
            link.session.send(&text, &mut link.out).unwrap();
            let records = text.len().div_ceil(RECORD_BYTES);
            let overhead = link.out.filled().len() - text.len();
            assert!(overhead <= records * 29, "{overhead}");
            assert!(link.give_to_client(step).unwrap() == text);
        }
    }
}

#[test]
fn the_first_bytes_may_come_with_the_end_of_the_handshake() {
    let mut link = Link::new(&client_config(&version::TLS13, &[]));
    let hello = link.take_from_client();
    link.give(&hello).unwrap();
    link.client.writer().write_all(b"GET /").unwrap();
    link.give_to_client(usize::MAX).unwrap();
    link.client.writer().write_all(b" HTTP").unwrap();
    let bytes = link.take_from_client();
    link.give(&bytes).unwrap();
    assert_eq!(link.received, b"GET / HTTP");
    assert_eq!(link.facts.unwrap().alpn, None);
}

#[test]
fn both_sides_end_by_close_notify() {
    for version in [&version::TLS13, &version::TLS12] {
        let mut link = established(version);
        link.client.writer().write_all(b"last").unwrap();
        link.client.send_close_notify();
        let bytes = link.take_from_client();
        link.give(&bytes).unwrap();
        assert_eq!(link.received, b"last");
        assert!(link.is_ended);
        // Our side goes on.
        link.session.send(b"answer", &mut link.out).unwrap();
        assert_eq!(link.give_to_client(usize::MAX).unwrap(), b"answer");
        link.session.close(&mut link.out);
        link.give_to_client(usize::MAX).unwrap();
        assert_eq!(link.client.reader().read(&mut [0]).unwrap(), 0);
        // Once.
        link.session.close(&mut link.out);
        assert!(link.out.is_empty());
    }
}

#[test]
fn a_client_without_a_protocol_of_ours_hears_why() {
    let mut link = Link::new(&client_config(&version::TLS13, &[Alpn::H2]));
    let hello = link.take_from_client();
    let fault = link.give(&hello).unwrap_err();
    assert_eq!(fault.error, Error::NoApplicationProtocol);
    let error = link.give_to_client(usize::MAX).unwrap_err();
    let expect = Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    assert_eq!(error, expect);
    // Nothing more is said, nor understood.
    link.session.close(&mut link.out);
    assert!(link.out.is_empty());
    assert!(link.session.send(b"a", &mut link.out).is_err());
}

#[test]
fn a_client_may_change_its_keys() {
    let mut link = established(&version::TLS13);
    link.client.refresh_traffic_keys().unwrap();
    link.client.writer().write_all(b"with new keys").unwrap();
    let bytes = link.take_from_client();
    for part in bytes.chunks(3) {
        link.give(part).unwrap();
    }
    assert_eq!(link.received, b"with new keys");
    link.session.send(b"with ours", &mut link.out).unwrap();
    assert_eq!(link.give_to_client(usize::MAX).unwrap(), b"with ours");
}

#[test]
fn forged_bytes_end_the_session_with_an_alert() {
    let mut link = established(&version::TLS13);
    link.client.writer().write_all(b"text").unwrap();
    let mut bytes = link.take_from_client();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(link.give(&bytes).unwrap_err().error, Error::DecryptError);
    let error = link.give_to_client(usize::MAX).unwrap_err();
    let expect = Error::AlertReceived(AlertDescription::BadRecordMac);
    assert_eq!(error, expect);
}

#[test]
fn a_message_without_an_end_is_refused() {
    let mut session = Session::default();
    let mut held = 0;
    // A ClientHello of 16 MB, in records of one byte.
    let mut bytes = b"\x16\x03\x01\x00\x04\x01\xff\xff\xff".to_vec();
    loop {
        held += bytes.len();
        match session.hold(&bytes) {
            Ok(HandshakeInput::Partial) => assert!(held <= HELD_BYTES_MAX),
            Ok(other) => panic!("{other:?}"),
            Err(_) => break,
        }
        bytes = b"\x16\x03\x01\x00\x01a".repeat(100);
    }
    assert!(held > HELD_BYTES_MAX);
}

#[test]
fn an_old_version_is_refused_with_an_alert() {
    // TLS 1.1: version, random, no session, one cipher, no compression.
    let mut hello = [&[3, 2][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2f, 1, 0]].concat();
    hello.splice(0..0, [22, 3, 1, 0, 45, 1, 0, 0, 41]);
    let mut link = Link::new(&client_config(&version::TLS13, &[]));
    let fault = link.give(&hello).unwrap_err();
    assert_eq!(link.out.filled()[..3], [21, 3, 3], "{fault}");
}

#[test]
fn sessions_are_resumed() {
    for version in [&version::TLS13, &version::TLS12] {
        let config = client_config(version, &[]);
        let mut link = Link::new(&config);
        link.run(usize::MAX);
        let server = link.server;
        let mut link = Link::new(&config);
        link.server = server;
        link.run(usize::MAX);
        assert!(link.facts.unwrap().is_resumed, "{version:?}");
    }
}
