//! The plan: which names get certificates, from which authority, and where they are kept. Values only.

use std::path::PathBuf;

/// Names of one plan. An order takes seconds and the loop handles one at a time; Let's Encrypt itself grants
/// 50 certificates of one registered domain a week.
pub const NAMES_LEN_MAX: usize = 100;

/// What one process is to keep supplied with certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Names in lower case, each once. Local ones ([`crate::is_local`]) get certificates of the local authority.
    pub names: Vec<String>,
    /// Where public names get theirs.
    pub authority: Authority,
    /// The storage folder.
    pub storage: PathBuf,
}

/// An ACME certificate authority, and what it wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Where certificates come from.
    pub directory: Directory,
    /// Where a second try goes first, so that no further failure counts against the limits of `directory`.
    pub staging: Option<Directory>,
    /// Address for the authority's messages.
    pub email: Option<String>,
    /// File with the roots that the directories' own HTTPS certificates are checked against; `None`: the system's.
    pub roots: Option<PathBuf>,
    /// Challenges that may be used, the preferred first. Each failed try goes on to the next.
    pub challenges: Vec<ChallengeKind>,
}

/// An ACME directory (RFC 8555 section 7.1.1), by its URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Directory {
    /// The URL; `https`.
    pub url: String,
}

/// How an authority checks that a name belongs to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// A file over plain HTTP on port 80 (RFC 8555 section 8.3).
    Http01,
    /// A certificate in a handshake on port 443 (RFC 8737).
    TlsAlpn01,
}

impl Directory {
    /// The directory at a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into() }
    }

    /// Host and port, as messages name the authority.
    pub fn host(&self) -> &str {
        let rest = self
            .url
            .split_once("://")
            .map_or(&*self.url, |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }
}

impl ChallengeKind {
    /// As RFC 8555 and the settings write it.
    pub fn name(self) -> &'static str {
        match self {
            ChallengeKind::Http01 => "http-01",
            ChallengeKind::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_called_by_its_host() {
        let check = |url: &str, expect: &str| assert_eq!(Directory::new(url).host(), expect);
        check(
            "https://acme-v02.api.letsencrypt.org/directory",
            "acme-v02.api.letsencrypt.org",
        );
        check("https://127.0.0.1:14000/dir", "127.0.0.1:14000");
        check("https://ca.example", "ca.example");
    }
}
