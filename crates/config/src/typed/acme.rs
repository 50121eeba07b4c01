//! Automatic certificates, as typed values.

use std::path::PathBuf;

/// The directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The directory of Let's Encrypt for tries: no browser trusts its certificates.
pub const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// Names that get certificates by themselves, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// In lower case, each once, in the order given; never empty.
    pub names: Vec<String>,
    /// URL of the certificate authority's ACME directory.
    pub directory: String,
    /// URL of the directory that a second try goes to first.
    pub staging: Option<String>,
    /// Address for the authority's messages.
    pub email: Option<String>,
    /// File with the roots that the directory's own certificate is checked against; `None`: the system's.
    pub roots: Option<PathBuf>,
    /// Challenges that may be used, the preferred first; never empty.
    pub challenges: Vec<AcmeChallenge>,
    /// Folder for certificates, keys and accounts; absolute.
    pub storage: PathBuf,
}

/// How an authority checks that a name belongs to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// A response over plain HTTP, port 80.
    Http01,
    /// A handshake, port 443.
    TlsAlpn01,
}

impl AcmeConfig {
    /// Names that a certificate authority on the network certifies.
    pub fn public_names(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| !is_local_name(name))
    }
}

/// `localhost` and what is below it: this machine's own authority certifies these (RFC 6761 section 6.3).
pub fn is_local_name(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}
