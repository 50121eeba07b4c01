//! TLS-ALPN-01 (RFC 8737): handshakes by which a certificate authority checks that a name belongs to this server.
//!
//! Takes key and certificate for each name as PEM texts, gives a configuration for a ClientHello whose only protocol is
//! `acme-tls/1`. A text that cannot be used makes its challenge fail, and nothing else.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, ServerConfig};

use crate::Alpn;

/// The challenges of a moment, by name in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChallengeConfigs(HashMap<String, Arc<ServerConfig>>);

impl ChallengeConfigs {
    /// Of texts with a key and a certificate each.
    pub(crate) fn new(texts: &BTreeMap<String, String>, provider: &Arc<CryptoProvider>) -> Self {
        let config = |(name, text): (&String, &String)| {
            let config = server_config(text.as_bytes(), provider).ok()?;
            Some((name.clone(), Arc::new(config)))
        };
        Self(texts.iter().filter_map(config).collect())
    }

    /// The configuration for a client, if it is an authority that checks a name.
    pub(crate) fn find(&self, hello: &ClientHello<'_>) -> Option<&Arc<ServerConfig>> {
        if self.0.is_empty() {
            return None;
        }
        // RFC 8737 section 3: this protocol, and no other.
        let mut protocols = hello.alpn()?;
        let is_check =
            protocols.next() == Some(Alpn::AcmeTls1.name()) && protocols.next().is_none();
        let name = hello.server_name().filter(|_| is_check)?;
        self.0.get(&name.to_ascii_lowercase())
    }
}

fn server_config(text: &[u8], provider: &Arc<CryptoProvider>) -> Result<ServerConfig, Error> {
    let unusable = |_| Error::General("no PEM".to_owned());
    let certificate = CertificateDer::from_pem_slice(text).map_err(unusable)?;
    let key = PrivateKeyDer::from_pem_slice(text).map_err(unusable)?;
    let key = provider.key_provider.load_private_key(key)?;
    // Without rustls' own check that both fit: it refuses a critical extension that it does not know, as this certificate
    // has by RFC 8737 section 3.
    let certified = CertifiedKey::new(vec![certificate], key);
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![Alpn::AcmeTls1.name().to_vec()];
    // Nothing follows the handshake.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, KeyPair};

    use super::*;
    use crate::crypto;

    #[test]
    fn a_text_that_cannot_be_used_fails_alone() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["shop.example".to_owned()]).unwrap();
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(&[7; 32])];
        let certificate = params.self_signed(&key).unwrap();
        let good = format!("{}{}", key.serialize_pem(), certificate.pem());
        let texts = [
            ("shop.example", good.as_str()),
            ("torn.example", &good[..good.len() / 2]),
            ("other.example", "no PEM"),
        ];
        let texts = texts.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let configs = ChallengeConfigs::new(&BTreeMap::from(texts), &crypto::provider());
        assert_eq!(configs.0.keys().collect::<Vec<_>>(), ["shop.example"]);
        let config = &configs.0["shop.example"];
        assert_eq!(config.alpn_protocols, [b"acme-tls/1".to_vec()]);
    }
}
