//! What new connections are accepted with: certificates, keys and protocols, made whole and replaced whole.
//!
//! Takes PEM texts that others have read, gives a rustls configuration for each ClientHello. Reads no file.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ClientHello;

use crate::Alpn;

/// What new connections are accepted with. Never changed: a later one takes its place.
#[derive(Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
}

/// The [`ServerTls`] of this moment. A replacement is one store; a connection that has begun keeps what it began with.
#[derive(Debug)]
pub struct CurrentTls(Mutex<Arc<ServerTls>>);

/// Why certificates and keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFault(String);

impl ServerTls {
    /// With one chain and its key, in PEM; `alpn`: the protocols that are spoken, the preferred first.
    ///
    /// # Errors
    /// A text is not what it should be, or the key does not belong to the first certificate of the chain.
    pub fn from_pem(chain: &[u8], key: &[u8], alpn: &[Alpn]) -> Result<Self, TlsFault> {
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| TlsFault(format!("the certificate: {error}")))?;
        if chain.is_empty() {
            return Err(TlsFault("there is no certificate in it".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(key);
        let key = key.map_err(|error| TlsFault(format!("the key: {error}")))?;
        // Not the process's default: other code of the process has its own choice.
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsFault(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key);
        let mut config = config.map_err(|error| TlsFault(error.to_string()))?;
        config.alpn_protocols = alpn.iter().map(|alpn| alpn.name().to_vec()).collect();
        // Early data can be replayed by anybody who has seen it (RFC 8446 section 8).
        assert_eq!(config.max_early_data_size, 0, "early data is off");
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// The configuration for a client that says so.
    pub fn config_for(&self, _hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl CurrentTls {
    /// Begins with that.
    pub fn new(tls: Arc<ServerTls>) -> Self {
        Self(Mutex::new(tls))
    }

    /// What a connection that begins now is accepted with. The lock is held for the time of one clone.
    pub fn load(&self) -> Arc<ServerTls> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on new connections are accepted with that.
    pub fn store(&self, tls: Arc<ServerTls>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsFault {}

/// The arithmetic.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "aws-lc-rs")]
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc-rs"))]
    let provider = rustls::crypto::ring::default_provider();
    Arc::new(provider)
}
