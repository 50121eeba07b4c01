//! Who may ask: whoever has the token; without one, users of this machine.

use std::cell::Cell;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use config::typed::AdminConfig;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::HeaderMap;
use subtle::ConstantTimeEq;

/// Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// What decides.
pub(crate) struct Access {
    token_file: Option<PathBuf>,
    warn: fn(&str),
    has_warned: Cell<bool>,
}

/// The other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Tcp,
    /// A user of this machine; `None`: the kernel does not say.
    Unix(Option<u32>),
}

/// Why a request is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denial {
    /// The token is missing or wrong.
    Token,
    /// The file of the token cannot be used.
    TokenFile,
    /// The user is neither root nor the server's.
    User,
    /// A name in Host that a page of somebody else may have chosen.
    Host,
}

impl Access {
    pub(crate) fn new(config: &AdminConfig, warn: fn(&str)) -> Self {
        Self {
            token_file: config.token_file.clone(),
            warn,
            has_warned: Cell::new(false),
        }
    }

    /// Whether a request with these fields may be answered.
    pub(crate) fn check(&self, peer: Peer, fields: &HeaderMap) -> Result<(), Denial> {
        if let Some(file) = &self.token_file {
            // Read for each request: a new token counts at once.
            let token = fs::read_to_string(file).unwrap_or_default();
            let token = token.trim();
            if token.len() < TOKEN_BYTES_MIN {
                self.warn_once(&format!(
                    "admin_token_file: `{}` has no token of {TOKEN_BYTES_MIN} characters or more",
                    file.display()
                ));
                return Err(Denial::TokenFile);
            }
            return match sent_token(fields) {
                Some(sent) if bool::from(sent.ct_eq(token.as_bytes())) => Ok(()),
                _ => Err(Denial::Token),
            };
        }
        match peer {
            Peer::Unix(Some(uid)) if uid == 0 || uid == rustix::process::getuid().as_raw() => {
                Ok(())
            }
            Peer::Unix(_) => Err(Denial::User),
            // A browser on this machine sends such a name when a page has made it stand for this address.
            Peer::Tcp if !is_own_host(fields) => Err(Denial::Host),
            Peer::Tcp => Ok(()),
        }
    }

    fn warn_once(&self, text: &str) {
        if !self.has_warned.replace(true) {
            (self.warn)(text);
        }
    }
}

impl Denial {
    /// Status, and a line for the client.
    pub(crate) fn answer(self) -> (u16, &'static str) {
        match self {
            Denial::Token => (
                401,
                "a token is needed: Authorization: Bearer TOKEN, as in admin_token_file\n",
            ),
            Denial::TokenFile => (
                500,
                "admin_token_file has no usable token: the server's log says more\n",
            ),
            Denial::User => (403, "only root and the server's user may ask\n"),
            Denial::Host => (
                403,
                "ask for an IP address or localhost: other names need admin_token_file\n",
            ),
        }
    }
}

fn sent_token(fields: &HeaderMap) -> Option<&[u8]> {
    let sent = fields.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = sent.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

/// Whether a browser says that a page of another site has made it ask.
pub(crate) fn is_of_another_site(fields: &HeaderMap) -> bool {
    let site = fields.get("sec-fetch-site");
    site.is_some_and(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

fn is_own_host(fields: &HeaderMap) -> bool {
    let Some(host) = fields.get(HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    name.is_some_and(|name| name == "localhost" || name.parse::<IpAddr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            let name = hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            fields.insert(name, value.parse().unwrap());
        }
        fields
    }

    #[test]
    fn hosts_of_this_machine_alone_need_no_token() {
        let access = Access::new(&AdminConfig::default(), |_| {});
        let check = |host: &str| access.check(Peer::Tcp, &fields(&[("host", host)]));
        for host in ["127.0.0.1:9901", "localhost", "[::1]:9901", "10.0.0.1"] {
            assert_eq!(check(host), Ok(()), "{host}");
        }
        for host in ["attacker.example:9901", "localhost.example", "", "[::1"] {
            let expect = match host {
                "[::1" => Ok(()),
                _ => Err(Denial::Host),
            };
            assert_eq!(check(host), expect, "{host}");
        }
        assert_eq!(access.check(Peer::Tcp, &fields(&[])), Err(Denial::Host));
    }

    #[test]
    fn users_of_the_machine_are_told_apart() {
        let access = Access::new(&AdminConfig::default(), |_| {});
        let own = rustix::process::getuid().as_raw();
        let check = |uid| access.check(Peer::Unix(uid), &fields(&[]));
        assert_eq!(check(Some(0)), Ok(()));
        assert_eq!(check(Some(own)), Ok(()));
        assert_eq!(check(Some(own + 77)), Err(Denial::User));
        assert_eq!(check(None), Err(Denial::User));
    }

    #[test]
    fn a_token_lets_in_whoever_has_it() {
        let file = std::env::temp_dir().join(format!("milepost-token-{}", std::process::id()));
        let config = AdminConfig {
            bind: None,
            token_file: Some(file.clone()),
        };
        let access = Access::new(&config, |_| {});
        let check = |sent: &str| {
            let fields = fields(&[("authorization", sent), ("host", "anywhere.example")]);
            access.check(Peer::Tcp, &fields)
        };
        assert_eq!(check("Bearer "), Err(Denial::TokenFile));
        fs::write(&file, "0123456789abcdef\n").unwrap();
        assert_eq!(check("Bearer 0123456789abcdef"), Ok(()));
        assert_eq!(check("bearer 0123456789abcdef"), Ok(()));
        for wrong in [
            "Bearer 0123456789abcdeg",
            "Bearer 0",
            "Basic 0123456789abcdef",
            "",
        ] {
            assert_eq!(check(wrong), Err(Denial::Token), "{wrong}");
        }
        // Another one counts at once.
        fs::write(&file, "fedcba9876543210").unwrap();
        assert_eq!(check("Bearer 0123456789abcdef"), Err(Denial::Token));
        fs::write(&file, "short").unwrap();
        assert_eq!(check("Bearer short"), Err(Denial::TokenFile));
        fs::remove_file(&file).unwrap();
    }
}
