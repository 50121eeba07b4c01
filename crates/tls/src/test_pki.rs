//! Certificates for tests: an authority, an issuer below it, and what they sign, as files of a folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::typed::{Tls, TlsIdentity};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    RevokedCertParams, SerialNumber,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use tempfile::TempDir;

use crate::credentials::Credentials;
use crate::{Alpn, ServerTls, SharedTicketKeys, TicketKeyRing};

/// An authority with a folder.
pub(crate) struct TestPki {
    pub(crate) dir: TempDir,
    root: CertifiedIssuer<'static, KeyPair>,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A key of RSA: making one takes long without optimisation.
pub(crate) const RSA_KEY: &str = include_str!("test_pki/rsa.key");

impl TestPki {
    pub(crate) fn new() -> Self {
        let root = CertifiedIssuer::self_signed(authority("Test Root"), key()).unwrap();
        let issuer = CertifiedIssuer::signed_by(authority("Test Issuer"), key(), &root).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Self { dir, root, issuer }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file that only its owner may read.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        set_mode(&path, 0o600);
        path
    }

    pub(crate) fn root_pem(&self) -> String {
        self.root.pem()
    }

    pub(crate) fn issuer_pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn root_der(&self) -> Vec<u8> {
        self.root.der().to_vec()
    }

    /// The certificate of a server for a key, in PEM without its issuer.
    pub(crate) fn server(&self, names: &[&str], key: &KeyPair) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.signed_by(key, &self.issuer).unwrap().pem()
    }

    /// The certificate of a client with its key.
    pub(crate) fn client(&self, name: &str) -> TlsIdentity {
        let own = key();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let chain = params.signed_by(&own, &self.issuer).unwrap().pem();
        TlsIdentity {
            cert: self.write(&format!("{name}.pem"), &chain),
            key: self.write(&format!("{name}.key"), &own.serialize_pem()),
            ..TlsIdentity::default()
        }
    }

    /// A list of the issuer that revokes a certificate.
    pub(crate) fn revoke(&self, client: &TlsIdentity) -> PathBuf {
        let der = CertificateDer::from_pem_file(&client.cert).unwrap();
        let (_, found) = x509_parser::parse_x509_certificate(&der).unwrap();
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from_slice(found.raw_serial()),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(2124, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap().pem().unwrap();
        self.write("crl.pem", &list)
    }

    /// A whole identity of ECDSA, as files `NAME.pem` and `NAME.key`.
    pub(crate) fn identity(&self, name: &str, names: &[&str]) -> TlsIdentity {
        self.identity_of(name, names, &key())
    }

    /// The same with that key.
    pub(crate) fn identity_of(&self, name: &str, names: &[&str], key: &KeyPair) -> TlsIdentity {
        let chain = self.server(names, key) + &self.issuer_pem();
        TlsIdentity {
            cert: self.write(&format!("{name}.pem"), &chain),
            key: self.write(&format!("{name}.key"), &key.serialize_pem()),
            ..TlsIdentity::default()
        }
    }
}

pub(crate) fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

pub(crate) fn rsa_key() -> KeyPair {
    KeyPair::from_pem(RSA_KEY).unwrap()
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// The algorithms of a provider for one scheme alone.
pub(crate) fn only(
    all: WebPkiSupportedAlgorithms,
    scheme: SignatureScheme,
) -> WebPkiSupportedAlgorithms {
    let place = all.mapping.iter().position(|(own, _)| *own == scheme);
    let place = place.unwrap();
    WebPkiSupportedAlgorithms {
        all: all.all,
        mapping: &all.mapping[place..=place],
    }
}

/// A client that takes every certificate, signed by the schemes of its provider.
#[derive(Debug)]
pub(crate) struct TrustsAll(pub(crate) Arc<CryptoProvider>);

impl ServerCertVerifier for TrustsAll {
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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// With one chain and its key, in PEM.
pub(crate) fn server_of(chain: &[u8], key: &[u8], alpn: &[Alpn]) -> ServerTls {
    let dir = tempfile::tempdir().unwrap();
    let [cert, key] = [("cert", chain), ("key", key)].map(|(name, text)| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        set_mode(&path, 0o600);
        path
    });
    let identity = TlsIdentity {
        cert,
        key,
        ..TlsIdentity::default()
    };
    let config = Tls {
        identities: vec![identity],
        ..Tls::default()
    };
    let credentials = Credentials::read(&config, &|_| None).unwrap();
    let ticket_keys = SharedTicketKeys::default();
    ticket_keys.replace(&TicketKeyRing::new(0).unwrap().keys());
    ServerTls::new(&config, &credentials, &ticket_keys, alpn).unwrap()
}
