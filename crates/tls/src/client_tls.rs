//! TLS of connections that this server makes: the authorities that count, and the certificate that it shows.
//!
//! Takes the files that the configuration names; gives what handshakes are made with. Sessions are resumed.

use std::path::Path;
use std::sync::Arc;

use config::typed::{ClientIdentity, TlsFile, UpstreamTls};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::crypto::provider;
use crate::fault::TlsFileFault;
use crate::file::{self, Readers};
use crate::private_key::PrivateKey;

/// What handshakes with the servers of an upstream are made with; `protocol` is what they agree on by ALPN (RFC 7301).
///
/// # Errors
/// A file cannot be used, or there is no authority to check certificates by.
pub fn client_config(tls: &UpstreamTls, protocol: &str) -> Result<Arc<ClientConfig>, TlsFileFault> {
    let provider = provider();
    let verifier: Arc<dyn ServerCertVerifier> = match tls.is_verified {
        true => verifier(tls.ca.as_deref(), &provider)?,
        false => Arc::new(AnyCertificate(Arc::clone(&provider))),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites of both versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = read(identity)?;
            let fault = |error: Error| fault(TlsFile::Cert, &identity.cert, &error);
            builder
                .with_client_auth_cert(chain, key.der().clone_key())
                .map_err(fault)?
        }
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(Arc::new(config))
}

fn verifier(
    ca: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsFileFault> {
    let roots = match ca {
        Some(file) => roots_of_file(file)?,
        None => roots_of_system()?,
    };
    let built =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    built.map_err(|error| {
        let path = ca.unwrap_or(Path::new(""));
        TlsFileFault::new(TlsFile::ClientCa, path, error.to_string())
    })
}

fn roots_of_file(path: &Path) -> Result<RootCertStore, TlsFileFault> {
    let mut roots = RootCertStore::empty();
    for root in certificates(TlsFile::ClientCa, path)? {
        let added = roots.add(root);
        added.map_err(|error| fault(TlsFile::ClientCa, path, &error))?;
    }
    Ok(roots)
}

fn roots_of_system() -> Result<RootCertStore, TlsFileFault> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Old ones that rustls does not read are no loss as long as there are others.
    roots.add_parsable_certificates(found.certs);
    match roots.is_empty() {
        false => Ok(roots),
        true => {
            let cause = "this system has no certificate authorities";
            let fault = TlsFileFault::new(TlsFile::ClientCa, Path::new(""), cause);
            Err(fault.with_hint("install `ca-certificates`, or name a file: `tls_ca`"))
        }
    }
}

/// Chain and key that are shown to servers.
fn read(
    identity: &ClientIdentity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKey), TlsFileFault> {
    let chain = certificates(TlsFile::Cert, &identity.cert)?;
    let key = PrivateKey::read(&identity.key, None, &|_| None)?;
    Ok((chain, key))
}

/// At least one.
fn certificates(
    setting: TlsFile,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsFileFault> {
    let text = file::read(setting, path, Readers::Anybody)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(TlsFileFault::new(setting, path, "no certificate in it")),
        Err(_) => Err(TlsFileFault::new(setting, path, "the file is not PEM")),
    }
}

fn fault(setting: TlsFile, path: &Path, error: &Error) -> TlsFileFault {
    TlsFileFault::new(setting, path, error.to_string().to_lowercase())
}

/// Takes any certificate, of anybody who has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
