//! Which certificate and which demands a client meets, by real handshakes with rustls' client in memory.

use std::sync::Arc;

use config::typed::{ClientAuth, ClientDemand, TlsIdentity};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConnection,
    SignatureScheme,
};

use super::*;
use crate::test_pki::{TestPki, rsa_key};
use crate::ticket_keys::TicketKeyRing;

fn credentials(config: &Tls) -> Credentials {
    let read = Credentials::read(config, &|_| None);
    let keys = TicketKeyRing::new(0).unwrap().keys();
    read.unwrap().with_ticket_keys(keys)
}

fn current(config: &Tls) -> CurrentTls {
    CurrentTls::new(config, &credentials(config), &[Alpn::Http1]).unwrap()
}

fn tls(identities: Vec<TlsIdentity>) -> Tls {
    Tls {
        identities,
        ..Tls::default()
    }
}

/// A client that trusts the authority, perhaps with a certificate of its own.
fn client(pki: &TestPki, own: Option<&TlsIdentity>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(pki.root_der().into()).unwrap();
    let builder = ClientConfig::builder_with_provider(crypto::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            use rustls::pki_types::pem::PemObject;
            let chain = CertificateDer::pem_file_iter(&own.cert).unwrap();
            let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
            builder
                .with_client_auth_cert(chain.map(Result::unwrap).collect(), key)
                .unwrap()
        }
    }
}

/// What a client has met.
#[derive(Debug, PartialEq, Eq)]
struct Met {
    /// The first name of the certificate.
    name: String,
    key: crate::KeyKind,
    suite: CipherSuite,
    is_resumed: bool,
}

/// A handshake, with tickets taken; an error is of whichever side refuses.
fn handshake(server: &ServerTls, client: &Arc<ClientConfig>, name: &str) -> Result<Met, String> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let mut acceptor = rustls::server::Acceptor::default();
    acceptor.read_tls(&mut hello.as_slice()).unwrap();
    let accepted = acceptor.accept().unwrap().unwrap();
    let chosen = server.config_for(&accepted.client_hello());
    let chosen = chosen.map_err(|UnrecognizedName| "unrecognized name".to_owned())?;
    let server = accepted.into_connection(chosen.config);
    let mut server = server.map_err(|(error, _)| format!("server: {error}"))?;
    for _ in 0..8 {
        carry(&mut client, &mut server)?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    let leaf = client.peer_certificates().unwrap()[0].to_vec();
    let facts = crate::CertificateFacts::read(&leaf).unwrap();
    let is_resumed = server.handshake_kind() == Some(HandshakeKind::Resumed);
    Ok(Met {
        name: facts.names[0].clone(),
        key: facts.key,
        suite: server.negotiated_cipher_suite().unwrap().suite(),
        is_resumed,
    })
}

fn carry(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), String> {
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).unwrap();
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        client.read_tls(&mut rest).unwrap();
        let read = client.process_new_packets();
        read.map_err(|error| format!("client: {error}"))?;
    }
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        server.read_tls(&mut rest).unwrap();
        let read = server.process_new_packets();
        read.map_err(|error| format!("server: {error}"))?;
    }
    Ok(())
}

/// The first name of the certificate that a client without resumption gets.
#[track_caller]
fn check(pki: &TestPki, server: &ServerTls, name: &str, expect: Result<&str, &str>) {
    let mut client = client(pki, None);
    client.resumption = Resumption::disabled();
    // Names that the certificate is not for are what some cases ask about.
    let verifier = Arc::new(crate::test_pki::TrustsAll(crypto::provider()));
    client.dangerous().set_certificate_verifier(verifier);
    let met = handshake(server, &Arc::new(client), name).map(|met| met.name);
    assert_eq!(met.as_deref().map_err(String::as_str), expect, "{name}");
}

#[test]
fn chooses_by_exact_name_then_pattern_then_default() {
    let pki = TestPki::new();
    let mut named = pki.identity("c", &["*.api.example", "x.example"]);
    named.names = vec!["*.api.example".into()];
    let config = tls(vec![
        pki.identity("a", &["default.example"]),
        pki.identity("b", &["shop.example", "*.shop.example"]),
        named,
        pki.identity("d", &["www.shop.example"]),
    ]);
    let current = current(&config);
    let server = current.load();
    for (name, expect) in [
        ("default.example", "default.example"),
        ("shop.example", "shop.example"),
        ("a.shop.example", "shop.example"),
        ("www.shop.example", "www.shop.example"),
        ("eu.api.example", "*.api.example"),
        // Of `names`, not of the certificate.
        ("x.example", "default.example"),
        ("unknown.example", "default.example"),
        ("127.0.0.1", "default.example"),
    ] {
        check(&pki, &server, name, Ok(expect));
    }
    let config = Tls {
        unknown_name: UnknownName::Reject,
        ..config
    };
    let current = super::tests::current(&config);
    let server = current.load();
    check(&pki, &server, "unknown.example", Err("unrecognized name"));
    check(&pki, &server, "shop.example", Ok("shop.example"));
    // A client that names no server.
    check(&pki, &server, "127.0.0.1", Ok("default.example"));
}

#[test]
fn offers_ecdsa_and_rsa_for_one_name() {
    let pki = TestPki::new();
    let config = tls(vec![
        pki.identity_of("rsa", &["shop.example"], &rsa_key()),
        pki.identity("ecdsa", &["shop.example"]),
    ]);
    let current = current(&config);
    let server = current.load();
    let modern = Arc::new(client(&pki, None));
    let met = handshake(&server, &modern, "shop.example").unwrap();
    assert_eq!(met.key, crate::KeyKind::Ecdsa);
    let mut provider = (*crypto::provider()).clone();
    provider.signature_verification_algorithms = crate::test_pki::only(
        provider.signature_verification_algorithms,
        SignatureScheme::RSA_PSS_SHA256,
    );
    let verifier = Arc::new(crate::test_pki::TrustsAll(Arc::new(provider)));
    let mut old = client(&pki, None);
    old.dangerous().set_certificate_verifier(verifier);
    let met = handshake(&server, &Arc::new(old), "shop.example").unwrap();
    assert_eq!(met.key, crate::KeyKind::Rsa);
}

#[test]
fn refuses_two_meanings_of_a_name() {
    let pki = TestPki::new();
    let mut first = pki.identity("a", &["shop.example"]);
    let mut second = pki.identity("b", &["shop.example"]);
    let found = |config: &Tls| {
        let faults = Credentials::read(config, &|_| None)
            .err()
            .unwrap_or_default();
        let said = |one: &crate::IdentityFault| format!("{} {}", one.identity, one.fault.cause);
        faults.iter().map(said).collect::<Vec<_>>()
    };
    // Names that certificates bring along yield to those before.
    let none: [&str; 0] = [];
    assert_eq!(found(&tls(vec![first.clone(), second.clone()])), none);
    second.names = vec!["shop.example".into()];
    assert_eq!(found(&tls(vec![first.clone(), second.clone()])), none);
    first.names = second.names.clone();
    assert_eq!(
        found(&tls(vec![first.clone(), second.clone()])),
        ["1 `shop.example`: another table has a key of the same kind for this name"]
    );
    second.client_auth = Some(demand(&pki, ClientDemand::Require));
    assert_eq!(
        found(&tls(vec![first, second])),
        ["1 `shop.example`: another table asks something else of the clients of this name"]
    );
}

fn demand(pki: &TestPki, demand: ClientDemand) -> ClientAuth {
    ClientAuth {
        demand,
        ca: pki.write("client-ca.pem", &pki.issuer_pem()),
        crl: None,
    }
}

#[test]
fn gives_aes_128_to_clients_that_prefer_aes_and_what_they_prefer_to_others() {
    use CipherSuite::*;
    let pki = TestPki::new();
    let current = current(&tls(vec![pki.identity("a", &["shop.example"])]));
    let check = |offered: &[CipherSuite], expect| {
        let mut provider = CryptoProvider::clone(&crypto::provider());
        let all = std::mem::take(&mut provider.cipher_suites);
        let by_name = |suite| *all.iter().find(|one| one.suite() == suite).unwrap();
        provider.cipher_suites = offered.iter().copied().map(by_name).collect();
        let mut roots = RootCertStore::empty();
        roots.add(pki.root_der().into()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Arc::new(client);
        for is_resumed in [false, true] {
            let met = handshake(&current.load(), &client, "shop.example").unwrap();
            assert_eq!((met.suite, met.is_resumed), (expect, is_resumed));
        }
    };
    let (aes_128, aes_256) = (TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384);
    let chacha = TLS13_CHACHA20_POLY1305_SHA256;
    check(&[aes_256, chacha, aes_128], aes_128);
    check(&[aes_128, aes_256], aes_128);
    check(&[chacha, aes_128, aes_256], chacha);
    check(&[aes_256, chacha], aes_256);
    let (aes_128, aes_256) = (
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    );
    let chacha = TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    check(&[aes_256, chacha, aes_128], aes_128);
    check(&[chacha, aes_128], chacha);
}

#[test]
fn asks_clients_for_certificates() {
    let pki = TestPki::new();
    let mut required = pki.identity("a", &["required.example"]);
    required.client_auth = Some(demand(&pki, ClientDemand::Require));
    let mut requested = pki.identity("b", &["requested.example"]);
    requested.client_auth = Some(demand(&pki, ClientDemand::Request));
    let open = pki.identity("c", &["open.example"]);
    let config = tls(vec![required, requested, open]);
    let current = current(&config);
    let server = current.load();
    assert!(!server.has_one_demand());
    let own = pki.client("client");
    let (without, with) = (client(&pki, None), client(&pki, Some(&own)));
    let strangers = TestPki::new();
    let stranger = strangers.client("client");
    let wrong = client(&pki, Some(&stranger));
    let check = |client: &ClientConfig, name: &str, expect: &str| {
        let met = handshake(&server, &Arc::new(client.clone()), name);
        let found = met.map_or_else(|error| error, |met| met.name);
        assert!(found.contains(expect), "{name}: {found}");
    };
    check(&without, "required.example", "peer sent no certificates");
    check(&without, "requested.example", "requested.example");
    check(&without, "open.example", "open.example");
    for name in ["required.example", "requested.example", "open.example"] {
        check(&with, name, name);
    }
    check(&wrong, "required.example", "invalid peer certificate");
    check(&wrong, "requested.example", "invalid peer certificate");
    let of = |host| server.client_auth_of(Some(host));
    assert_ne!(of("required.example"), of("open.example"));
    assert_ne!(of("required.example"), of("requested.example"));
    assert_eq!(server.client_auth_of(None), of("required.example"));
}

#[test]
fn refuses_clients_whose_certificate_is_revoked() {
    let pki = TestPki::new();
    let (good, bad) = (pki.client("good"), pki.client("bad"));
    let mut guarded = pki.identity("a", &["shop.example"]);
    let mut auth = demand(&pki, ClientDemand::Require);
    let open = {
        guarded.client_auth = Some(auth.clone());
        tls(vec![guarded.clone()])
    };
    auth.crl = Some(pki.revoke(&bad));
    guarded.client_auth = Some(auth);
    let config = tls(vec![guarded]);
    let before = credentials(&open);
    let current = CurrentTls::new(&open, &before, &[]).unwrap();
    let with_good = Arc::new(client(&pki, Some(&good)));
    let with_bad = Arc::new(client(&pki, Some(&bad)));
    handshake(&current.load(), &with_bad, "shop.example").unwrap();
    // The list comes while the client has a ticket: that helps it no further.
    let after = credentials(&config).with_ticket_keys(before.ticket_keys.clone());
    current.replace(&config, &after, &[]).unwrap();
    handshake(&current.load(), &with_good, "shop.example").unwrap();
    let refused = handshake(&current.load(), &with_bad, "shop.example").unwrap_err();
    assert!(refused.contains("Revoked"), "{refused}");
}

#[test]
fn resumes_in_another_process_and_after_a_replacement() {
    let pki = TestPki::new();
    let config = tls(vec![pki.identity("a", &["shop.example"])]);
    let first = credentials(&config);
    let (here, there) = (
        CurrentTls::new(&config, &first, &[]).unwrap(),
        CurrentTls::new(&config, &first, &[]).unwrap(),
    );
    let client = Arc::new(client(&pki, None));
    let is_resumed = |server: &CurrentTls| {
        let met = handshake(&server.load(), &client, "shop.example");
        met.unwrap().is_resumed
    };
    assert!(!is_resumed(&here));
    assert!(is_resumed(&here));
    assert!(is_resumed(&there));
    // The same keys after a change of the certificate.
    let renewed = tls(vec![pki.identity("a", &["shop.example"])]);
    let second = Credentials::read(&renewed, &|_| None).unwrap();
    let second = second.with_ticket_keys(first.ticket_keys.clone());
    there.replace(&renewed, &second, &[]).unwrap();
    assert!(is_resumed(&there));
    // Other keys: a full handshake, and then tickets of these.
    let third = credentials(&renewed);
    there.replace(&renewed, &third, &[]).unwrap();
    assert!(!is_resumed(&there));
    assert!(is_resumed(&there));
}

#[test]
fn a_session_without_a_certificate_is_not_resumed_where_one_is_asked_for() {
    let pki = TestPki::new();
    let open = tls(vec![pki.identity("a", &["shop.example"])]);
    let mut guarded = open.clone();
    guarded.identities[0].client_auth = Some(demand(&pki, ClientDemand::Require));
    let first = credentials(&open);
    let current = CurrentTls::new(&open, &first, &[]).unwrap();
    let client = Arc::new(client(&pki, None));
    handshake(&current.load(), &client, "shop.example").unwrap();
    let second = credentials(&guarded).with_ticket_keys(first.ticket_keys.clone());
    current.replace(&guarded, &second, &[]).unwrap();
    let refused = handshake(&current.load(), &client, "shop.example").unwrap_err();
    assert!(refused.contains("peer sent no certificates"), "{refused}");
}

#[test]
fn speaks_the_versions_that_are_configured() {
    let pki = TestPki::new();
    let config = |versions: &[TlsVersion]| Tls {
        versions: versions.to_vec(),
        ..tls(vec![pki.identity("a", &["shop.example"])])
    };
    let old = ClientConfig::builder_with_provider(crypto::provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut old = old;
    let verifier = Arc::new(crate::test_pki::TrustsAll(crypto::provider()));
    old.dangerous().set_certificate_verifier(verifier);
    let old = Arc::new(old);
    let both = current(&config(&[TlsVersion::V12, TlsVersion::V13]));
    handshake(&both.load(), &old, "shop.example").unwrap();
    let resumed = handshake(&both.load(), &old, "shop.example").unwrap();
    assert!(resumed.is_resumed, "by a ticket of TLS 1.2");
    let new = current(&config(&[TlsVersion::V13]));
    let refused = handshake(&new.load(), &old, "shop.example").unwrap_err();
    assert!(
        refused.contains("Tls13Required") || refused.contains("incompatible"),
        "{refused}"
    );
}
