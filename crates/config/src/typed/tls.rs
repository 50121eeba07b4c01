//! TLS of the addresses that are listened on.

use std::path::PathBuf;

use super::Bind;

defaults! {
    /// Certificates, and which addresses speak TLS.
    #[derive(Clone, Debug)]
    pub struct Tls {
        /// Certificate chain in PEM, the server's own certificate first.
        pub certificate: Option<PathBuf>,
        /// Its private key in PEM; `None`: in the file of the certificate.
        pub key: Option<PathBuf>,
        /// Those of `binds` that speak TLS. Decided by the check: without a certificate there are none.
        pub binds: Vec<Bind>,
    }
}

impl Tls {
    /// The file of the key, where there is a certificate.
    pub fn key_file(&self) -> Option<&PathBuf> {
        self.key.as_ref().or(self.certificate.as_ref())
    }
}
