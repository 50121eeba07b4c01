//! Ciphertext on its way to the peer: a buffer that is filled from its front and used again.

/// Bytes that are ready to be sent.
#[derive(Debug, Default)]
pub struct Ciphertext {
    /// Initialised bytes, of which the first `filled` are ciphertext.
    bytes: Vec<u8>,
    filled: usize,
}

impl Ciphertext {
    /// With room for so many bytes; it grows where that is not enough.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: vec![0; bytes],
            filled: 0,
        }
    }

    /// What is to be sent.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Whether nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Everything was sent, or is kept elsewhere.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Bytes that others have made.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.spare(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.fill(bytes.len());
    }

    /// Room behind the ciphertext, `bytes` at least.
    pub(crate) fn spare(&mut self, bytes: usize) -> &mut [u8] {
        let wanted = self.filled + bytes;
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        &mut self.bytes[self.filled..]
    }

    /// So many bytes of the room are ciphertext now.
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.filled += bytes;
        assert!(
            self.filled <= self.bytes.len(),
            "ciphertext lies within its buffer"
        );
    }
}
