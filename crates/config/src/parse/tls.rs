//! TLS: what the keys of `[[tls]]`, which are those of the settings `tls_...` as well, and the settings of HTTPS mean.

use std::path::PathBuf;

use serde::Deserialize;
use telemetry::Nanos;

use super::{Hint, hinted, value};
use crate::options_table::{DAY, SECOND};
use crate::tables::{Contradiction, Structure, keys};
use crate::typed::{ClientDemand, Hsts, HttpsRedirect, KeyPassword, TlsVersion};

pub(crate) const NAME: &str = "names of servers (as `shop.example`, `*.shop.example`)";
pub(crate) const FILE: &str = "a file in PEM";
pub(crate) const PASSWORD: &str = "a file, or `env:` and the name of a variable";
pub(crate) const VERSIONS: &str = "some of `1.2`, `1.3`";
pub(crate) const HSTS: &str =
    "a duration (as `1y`), perhaps with `subdomains` and `preload` behind it, or `off`";
pub(crate) const REDIRECT: &str = "`on`, `off`, or the port of HTTPS as clients see it";
/// What lists of sites with HSTS that are built into browsers ask for.
const PRELOAD_LEAST: u64 = 365 * DAY;

keys! {
    names: many(server_name) -> Vec<String>, NAME;
    pem_file: one(file) -> PathBuf, FILE;
    password_file: one(key_password) -> KeyPassword, PASSWORD;
    staple_file: one(file) -> PathBuf, "a file in DER";
    client_auth: one(client_demand) -> ClientDemand, "one of `require`, `request`";
}

/// `[[tls]]`, and the settings of the default certificate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsTable {
    #[serde(default, deserialize_with = "names")]
    pub names: Vec<String>,
    /// Not an option in a table: a missing one has its fault.
    #[serde(deserialize_with = "pem_file")]
    pub cert: Option<PathBuf>,
    #[serde(default, deserialize_with = "pem_file")]
    pub key: Option<PathBuf>,
    #[serde(default, deserialize_with = "password_file")]
    pub key_password_file: Option<KeyPassword>,
    #[serde(default, deserialize_with = "pem_file")]
    pub client_ca: Option<PathBuf>,
    #[serde(default, deserialize_with = "client_auth")]
    pub client_auth: Option<ClientDemand>,
    #[serde(default, deserialize_with = "pem_file")]
    pub crl: Option<PathBuf>,
    #[serde(default, deserialize_with = "staple_file")]
    pub ocsp: Option<PathBuf>,
}

impl Structure for TlsTable {
    fn contradiction(&self) -> Option<Contradiction> {
        let found = |key, cause: &str, hint: &str| {
            let (cause, hint) = (cause.to_owned(), hint.to_owned());
            Some(Contradiction { key, cause, hint })
        };
        if self.client_ca.is_some() {
            return None;
        }
        let hint = "name the authority of the clients' certificates: `client_ca`";
        match (self.client_auth, &self.crl) {
            (Some(_), _) => found("client_auth", "there is no `client_ca`", hint),
            (None, Some(_)) => found("crl", "there is no `client_ca`", hint),
            (None, None) => None,
        }
    }
}

/// A name of a server in lower case, perhaps with `*.` in front.
pub(crate) fn server_name(text: &str) -> Result<String, Hint> {
    let name = text.to_ascii_lowercase();
    if name.contains("://") || name.contains('/') {
        return hinted("a name alone, without scheme and path");
    }
    let host = name.strip_prefix("*.").unwrap_or(&name);
    if host.contains('*') {
        return hinted("`*` stands for the first label: `*.shop.example`");
    }
    if host.parse::<std::net::IpAddr>().is_ok() {
        return hinted(
            "clients send no address in the handshake: the default certificate answers them",
        );
    }
    if let Some((host, port)) = host.split_once(':')
        && port.parse::<u16>().is_ok()
    {
        return hinted(format!("without the port: `{host}`"));
    }
    if !host.is_ascii() {
        return hinted("other characters are written in Punycode, as `xn--mnchen-3ya.example`");
    }
    // RFC 1035 section 2.3.4.
    let is_label = |label: &str| {
        let is_good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(is_good)
    };
    match host.len() <= 253 && host.split('.').all(is_label) {
        true => Ok(name),
        false => Err(None),
    }
}

/// A file; whether there is one is asked later.
pub(crate) fn file(text: &str) -> Result<PathBuf, Hint> {
    match text {
        "" => hinted("name a file"),
        text if text.contains("-----BEGIN ") => hinted("name the file, not its content"),
        text => Ok(PathBuf::from(text)),
    }
}

/// A file with a password, or `env:NAME`.
pub(crate) fn key_password(text: &str) -> Result<KeyPassword, Hint> {
    let Some(name) = text.strip_prefix("env:") else {
        return file(text).map(KeyPassword::File);
    };
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins_well = name.starts_with(|c: char| !c.is_ascii_digit());
    match begins_well && name.bytes().all(is_name) {
        true => Ok(KeyPassword::Variable(name.to_owned())),
        false => hinted("`env:` and the name of a variable, as `env:SHOP_KEY_PASSWORD`"),
    }
}

fn client_demand(text: &str) -> Result<ClientDemand, Hint> {
    match text {
        "require" | "required" => Ok(ClientDemand::Require),
        "request" | "optional" => Ok(ClientDemand::Request),
        "off" => hinted("leave out `client_ca` as well"),
        _ => Err(None),
    }
}

/// File of ticket keys; `None` for `auto`.
pub(crate) fn ticket_keys(text: &str) -> Result<Option<PathBuf>, Hint> {
    match text {
        "auto" => Ok(None),
        text => file(text).map(Some),
    }
}

/// Versions of TLS, each once.
pub(crate) fn versions(text: &str) -> Result<Vec<TlsVersion>, Hint> {
    let mut versions = Vec::new();
    for part in text.split(',') {
        let version = match part.trim() {
            "1.2" => TlsVersion::V12,
            "1.3" => TlsVersion::V13,
            "1.0" | "1.1" | "1" | "3" => {
                return hinted("TLS 1.0 and 1.1 are no longer safe (RFC 8996)");
            }
            "TLSv1.2" | "TLSv1.3" => return hinted("the numbers alone, as `1.2,1.3`"),
            _ => return Err(None),
        };
        if versions.contains(&version) {
            return Err(None);
        }
        versions.push(version);
    }
    Ok(versions)
}

/// `1y, subdomains, preload`; `None` for `off`.
pub(crate) fn hsts(text: &str) -> Result<Option<Hsts>, Hint> {
    if text == "off" {
        return Ok(None);
    }
    let mut parts = text.split([',', ';']).map(str::trim);
    let age = parts.next().unwrap_or_default();
    let max_age = age_of(age.strip_prefix("max-age=").unwrap_or(age)).ok_or(None)?;
    if !max_age.0.is_multiple_of(SECOND) {
        return hinted("in whole seconds");
    }
    let mut hsts = Hsts {
        max_age,
        subdomains: false,
        preload: false,
    };
    for part in parts {
        match part.to_ascii_lowercase().as_str() {
            "subdomains" | "includesubdomains" => hsts.subdomains = true,
            "preload" => hsts.preload = true,
            _ => return Err(super::did_you_mean(part, ["subdomains", "preload"])),
        }
    }
    let is_preloadable = hsts.subdomains && hsts.max_age.0 >= PRELOAD_LEAST;
    match hsts.preload && !is_preloadable {
        true => {
            hinted("`preload` wants a year at least, and `subdomains`: `1y, subdomains, preload`")
        }
        false => Ok(Some(hsts)),
    }
}

/// A duration, which may be in years of 365 days; at most ten.
fn age_of(text: &str) -> Option<Nanos> {
    let span = match text.strip_suffix('y') {
        Some(years) => value::count(years)?.checked_mul(365 * DAY).map(Nanos)?,
        None => value::duration(text)?,
    };
    (span.0 <= 3_660 * DAY).then_some(span)
}

/// Whether and where requests over plain HTTP are redirected.
pub(crate) fn https_redirect(text: &str) -> Result<HttpsRedirect, Hint> {
    match text {
        "off" | "false" => Ok(HttpsRedirect::Off),
        "on" | "true" => Ok(HttpsRedirect::On),
        port => match port.parse() {
            Ok(0) | Err(_) => Err(None),
            Ok(port) => Ok(HttpsRedirect::Port(port)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: std::fmt::Debug>(found: Result<T, Hint>, expect: &str) {
        let said = match found {
            Ok(value) => format!("{value:?}"),
            Err(hint) => format!("bad {}", hint.unwrap_or_default()),
        };
        assert_eq!(said, expect);
    }

    #[test]
    fn reads_names_of_servers() {
        for good in [
            "shop.example",
            "*.shop.example",
            "localhost",
            "xn--mnchen-3ya.example",
            "a_b.c",
        ] {
            assert_eq!(server_name(good), Ok(good.to_owned()));
        }
        assert_eq!(server_name("Shop.Example"), Ok("shop.example".to_owned()));
        for bad in ["", "*", "a..b", "a b", ".a", "a."] {
            assert!(server_name(bad).is_err(), "{bad}");
        }
        check(
            server_name("https://a.b"),
            "bad a name alone, without scheme and path",
        );
        check(server_name("a.b:443"), "bad without the port: `a.b`");
        check(
            server_name("www.*.example"),
            "bad `*` stands for the first label: `*.shop.example`",
        );
        check(
            server_name("127.0.0.1"),
            "bad clients send no address in the handshake: the default certificate answers them",
        );
    }

    #[test]
    fn reads_hsts() {
        let value = |text: &str| hsts(text).map(|hsts| hsts.map(|hsts| hsts.value()));
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(value(text), Ok(expect.map(str::to_owned)), "{text}");
        };
        check("off", None);
        check("1y", Some("max-age=31536000"));
        check("0s", Some("max-age=0"));
        check("5m", Some("max-age=300"));
        check(
            "2y, subdomains",
            Some("max-age=63072000; includeSubDomains"),
        );
        check(
            "max-age=63072000; includeSubDomains; preload",
            Some("max-age=63072000; includeSubDomains; preload"),
        );
        for bad in ["", "on", "1y subdomains", "11y", "-1s", "1y, x", "20ms"] {
            assert!(value(bad).is_err(), "{bad}");
        }
        let hint = hsts("1d, subdomains, preload").unwrap_err().unwrap();
        assert!(hint.starts_with("`preload` wants a year"), "{hint}");
    }

    #[test]
    fn reads_versions_passwords_and_redirects() {
        assert_eq!(
            versions("1.2, 1.3"),
            Ok(vec![TlsVersion::V12, TlsVersion::V13])
        );
        assert_eq!(versions("1.3"), Ok(vec![TlsVersion::V13]));
        for bad in ["", "1.1", "1.2,1.2", "TLSv1.3", "1.2 1.3"] {
            assert!(versions(bad).is_err(), "{bad}");
        }
        let variable = KeyPassword::Variable("SHOP_KEY".to_owned());
        assert_eq!(key_password("env:SHOP_KEY"), Ok(variable));
        assert_eq!(key_password("a/b"), Ok(KeyPassword::File("a/b".into())));
        for bad in ["", "env:", "env:1", "env:A-B"] {
            assert!(key_password(bad).is_err(), "{bad}");
        }
        assert_eq!(https_redirect("on"), Ok(HttpsRedirect::On));
        assert_eq!(https_redirect("8443"), Ok(HttpsRedirect::Port(8443)));
        for bad in ["", "0", "65536", "https"] {
            assert!(https_redirect(bad).is_err(), "{bad}");
        }
    }
}
