//! Automatic certificates: names, directories, challenges. Pure.

use std::net::IpAddr;
use std::path::PathBuf;

use super::{Hint, file, folder, hinted, one_of};
use crate::typed::{AcmeChallenge, LETS_ENCRYPT, LETS_ENCRYPT_STAGING};

/// RFC 1035 section 2.3.4.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Where a second try goes first, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StagingName {
    /// Let's Encrypt's own, where that is the directory.
    #[default]
    Auto,
    Off,
    Url(String),
}

impl StagingName {
    /// For a directory.
    pub(crate) fn url(&self, directory: &str) -> Option<String> {
        match self {
            StagingName::Auto if directory == LETS_ENCRYPT => Some(LETS_ENCRYPT_STAGING.to_owned()),
            StagingName::Auto | StagingName::Off => None,
            StagingName::Url(url) => Some(url.clone()),
        }
    }
}

/// A name that a certificate can be had for, in lower case.
pub(crate) fn domain(text: &str) -> Result<String, Hint> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if let Some(rest) = name
        .strip_prefix("https://")
        .or(name.strip_prefix("http://"))
    {
        let host = rest.split(['/', ':']).next().unwrap_or(rest);
        return hinted(format!("the name alone: `{host}`"));
    }
    if let Some((host, port)) = name.split_once(':')
        && port.bytes().all(|byte| byte.is_ascii_digit())
    {
        return hinted(format!("the name alone, `{host}`; ports belong to `bind`"));
    }
    if name.contains('*') {
        return hinted(
            "a wildcard needs a challenge in the DNS, which the server cannot answer: name each host",
        );
    }
    if name.parse::<IpAddr>().is_ok() {
        return hinted("a name of the DNS that leads to this address");
    }
    if !name.is_ascii() {
        return hinted("write it as the DNS has it, in ASCII: `xn--...`");
    }
    let is_label = |label: &str| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && label.bytes().all(is_good)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
        return Err(None);
    }
    match name.contains('.') || name == "localhost" {
        true => Ok(name),
        false => hinted(
            "the whole name, as `shop.example`; for development, `localhost` or `shop.localhost`",
        ),
    }
}

/// An address for mail; `None` for `off`.
pub(crate) fn email(text: &str) -> Result<Option<String>, Hint> {
    let is_good = |part: &str| {
        let is_good = |byte: u8| byte.is_ascii_graphic() && !b",;<>\"?".contains(&byte);
        !part.is_empty() && part.bytes().all(is_good)
    };
    match text.split_once('@') {
        _ if text == "off" => Ok(None),
        _ if text.starts_with("mailto:") => hinted("the address alone, without `mailto:`"),
        Some((user, host)) if is_good(user) && is_good(host) && !host.contains('@') => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(None),
    }
}

/// The URL of an ACME directory.
pub(crate) fn directory(text: &str) -> Result<String, Hint> {
    let host = |rest: &str| rest.split('/').next().unwrap_or_default().to_owned();
    let is_good = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    match text.strip_prefix("https://") {
        Some(rest) if !host(rest).is_empty() && text.bytes().all(is_good) => Ok(text.to_owned()),
        _ if text.starts_with("http://") => {
            hinted("ACME needs https; `acme_ca` names the roots of a private authority")
        }
        _ => Err(None),
    }
}

/// The URL of a directory for tries, `auto` or `off`.
pub(crate) fn staging(text: &str) -> Result<StagingName, Hint> {
    match text {
        "auto" => Ok(StagingName::Auto),
        "off" => Ok(StagingName::Off),
        url => directory(url).map(StagingName::Url),
    }
}

/// A file of roots; `None` for `off`.
pub(crate) fn roots(text: &str) -> Result<Option<PathBuf>, Hint> {
    match text {
        "off" => Ok(None),
        text => file(text).map(Some),
    }
}

/// A folder; `None` for `auto`.
pub(crate) fn storage(text: &str) -> Result<Option<PathBuf>, Hint> {
    match text {
        "auto" => Ok(None),
        text => folder(text).map(Some),
    }
}

/// Challenges, the preferred first.
pub(crate) fn challenges(text: &str) -> Result<Vec<AcmeChallenge>, Hint> {
    let known = [
        ("http-01", AcmeChallenge::Http01),
        ("tls-alpn-01", AcmeChallenge::TlsAlpn01),
    ];
    let mut challenges = Vec::new();
    for name in text.split(',').map(str::trim) {
        let challenge = match name {
            "dns-01" => return hinted("the server does not write into the DNS"),
            name => one_of(name, known)?,
        };
        if challenges.contains(&challenge) {
            return hinted(format!("`{name}` is there twice"));
        }
        challenges.push(challenge);
    }
    Ok(challenges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_names_that_certificates_are_given_for() {
        for (text, expect) in [
            ("shop.example", "shop.example"),
            ("Shop.Example.", "shop.example"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("localhost", "localhost"),
            ("shop.localhost", "shop.localhost"),
        ] {
            assert_eq!(domain(text), Ok(expect.to_owned()));
        }
        let long = ["a"; 127].join(".");
        assert_eq!(domain(&long), Ok(long.clone()));
        for text in [
            "",
            ".",
            "a..b",
            "-a.example",
            "a-.example",
            "a_b.example",
            "a/b.example",
        ] {
            assert_eq!(domain(text), Err(None), "{text}");
        }
        assert_eq!(domain(&format!("{long}.a")), Err(None));
        assert_eq!(domain(&format!("{}.example", "x".repeat(64))), Err(None));
    }

    #[test]
    fn takes_directories_over_https_alone() {
        assert!(directory("https://ca.example:14000/dir").is_ok());
        for text in [
            "ca.example",
            "https://",
            "https:///dir",
            "https://a b",
            "ftp://ca.example",
        ] {
            assert_eq!(directory(text), Err(None), "{text}");
        }
        assert!(directory("http://ca.example").unwrap_err().is_some());
    }

    #[test]
    fn a_second_try_goes_to_staging_where_there_is_one() {
        let auto = StagingName::Auto;
        assert_eq!(
            auto.url(LETS_ENCRYPT).as_deref(),
            Some(LETS_ENCRYPT_STAGING)
        );
        assert_eq!(auto.url("https://ca.example"), None);
        assert_eq!(StagingName::Off.url(LETS_ENCRYPT), None);
        let own = staging("https://test.ca.example").unwrap();
        assert_eq!(
            own.url("https://ca.example").as_deref(),
            Some("https://test.ca.example")
        );
    }

    #[test]
    fn takes_addresses_for_mail() {
        assert_eq!(
            email("ops@shop.example"),
            Ok(Some("ops@shop.example".to_owned()))
        );
        assert_eq!(email("off"), Ok(None));
        for text in ["", "ops", "@shop.example", "a@", "a@b@c", "a b@c", "<a@b>"] {
            assert_eq!(email(text), Err(None), "{text}");
        }
    }
}
