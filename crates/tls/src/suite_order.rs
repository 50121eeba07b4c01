//! Which cipher suite a connection gets, of those that both sides have.
//!
//! AES-128 comes first: processors hash with SHA-256 in hardware and many of them not with SHA-384, which belongs to
//! AES-256 and is most of the hashing of a handshake. A client that prefers ChaCha20 has no AES in hardware: it gets
//! what it prefers, as does a client without AES-128.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, ServerConfig};

/// One configuration for each order.
#[derive(Clone, Debug)]
pub(crate) struct OrderedConfigs {
    aes_128_first: Arc<ServerConfig>,
    of_client: Arc<ServerConfig>,
}

impl OrderedConfigs {
    /// `make` gives a configuration with the suites of a provider.
    pub(crate) fn new<E>(
        provider: &Arc<CryptoProvider>,
        make: impl Fn(&Arc<CryptoProvider>) -> Result<ServerConfig, E>,
    ) -> Result<Self, E> {
        let mut first = CryptoProvider::clone(provider);
        first
            .cipher_suites
            .sort_by_key(|suite| !has(suite.suite(), "AES_128"));
        let mut aes_128_first = make(&Arc::new(first))?;
        aes_128_first.ignore_client_order = true;
        Ok(Self {
            aes_128_first: Arc::new(aes_128_first),
            of_client: Arc::new(make(provider)?),
        })
    }

    /// The configuration for a client with these suites, the preferred first.
    pub(crate) fn for_client(&self, offered: &[CipherSuite]) -> &Arc<ServerConfig> {
        match prefers_aes(offered) {
            true => &self.aes_128_first,
            false => &self.of_client,
        }
    }
}

/// By the first suite that says so: there are values in front that name none (RFC 8701).
fn prefers_aes(offered: &[CipherSuite]) -> bool {
    let known = |suite: &&CipherSuite| has(**suite, "AES") || has(**suite, "CHACHA20");
    offered
        .iter()
        .find(known)
        .is_some_and(|suite| has(*suite, "AES"))
}

fn has(suite: CipherSuite, part: &str) -> bool {
    suite.as_str().is_some_and(|name| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_suite_that_names_a_cipher_decides() {
        use CipherSuite::*;
        let check = |offered: &[CipherSuite], expect| {
            assert_eq!(prefers_aes(offered), expect, "{offered:?}");
        };
        check(&[], false);
        check(&[Unknown(0x1a1a)], false);
        check(
            &[TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256],
            true,
        );
        check(
            &[TLS13_CHACHA20_POLY1305_SHA256, TLS13_AES_128_GCM_SHA256],
            false,
        );
        check(&[Unknown(0x1a1a), TLS13_CHACHA20_POLY1305_SHA256], false);
        check(&[Unknown(0x1a1a), TLS13_AES_128_GCM_SHA256], true);
        check(&[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384], true);
    }
}
