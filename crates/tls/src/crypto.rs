//! The arithmetic of others: rustls' provider, and of the same library what rustls does not hand out.

use std::sync::Arc;

#[cfg(feature = "aws-lc-rs")]
use aws_lc_rs as library;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use ring as library;

use library::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::crypto::CryptoProvider;
use zeroize::Zeroizing;

/// Bytes of the secret of an AEAD.
pub(crate) const SECRET_BYTES: usize = 32;

/// The provider of all sessions.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "aws-lc-rs")]
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    let provider = rustls::crypto::ring::default_provider();
    Arc::new(provider)
}

/// SHA-256
pub(crate) fn digest(bytes: &[u8]) -> [u8; 32] {
    let found = library::digest::digest(&library::digest::SHA256, bytes);
    let mut digest = [0; 32];
    digest.copy_from_slice(found.as_ref());
    digest
}

/// Fills with random bytes; `None`: the system has none.
pub(crate) fn random(bytes: &mut [u8]) -> Option<()> {
    use library::rand::SecureRandom;
    library::rand::SystemRandom::new().fill(bytes).ok()
}

/// Has the library gather its entropy, as it does at its first use in a process: that takes 30 ms of a processor, and
/// the first handshake, with all others of its driver, would wait for it. Without entropy it is the handshake that fails.
pub(crate) fn gather_entropy() {
    let _ = random(&mut [0]);
}

/// A key that seals and opens with AES-256-GCM.
pub(crate) struct Aead(LessSafeKey);

impl Aead {
    /// `None`: the secret has another length.
    pub(crate) fn new(secret: &[u8]) -> Option<Self> {
        let key = UnboundKey::new(&AES_256_GCM, secret).ok()?;
        Some(Self(LessSafeKey::new(key)))
    }

    /// Nonce, ciphertext and tag. A random nonce is good for 2^32 texts of one key (NIST SP 800-38D section 8.3): the
    /// tickets of 100,000 handshakes a second for 6 hours.
    pub(crate) fn seal(&self, plain: &[u8], about: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce)?;
        let mut text = Zeroizing::new(Vec::with_capacity(plain.len() + AES_256_GCM.tag_len()));
        text.extend_from_slice(plain);
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_append_tag(unique, Aad::from(about), &mut *text)
            .ok()?;
        Some([nonce.as_slice(), &text].concat())
    }

    /// What [`Aead::seal`] made; `None`: another key, another `about`, or not all of it.
    pub(crate) fn open(&self, sealed: &[u8], about: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = Zeroizing::new(text.to_vec());
        let plain = self
            .0
            .open_in_place(nonce, Aad::from(about), &mut text)
            .ok()?;
        Some(plain.to_vec())
    }
}
