//! What a certificate says: names, issuer, dates, the kind of its key. Pure.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Name};
use x509_parser::public_key::PublicKey;

/// Seconds before the end of a certificate from which on it is worth a warning.
pub const ENDS_SOON_SECS: u64 = 14 * 86_400;

/// What a certificate says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFacts {
    /// Names of servers, in lower case, those with `*.` in front too.
    pub names: Vec<String>,
    /// Addresses of servers.
    pub addresses: Vec<IpAddr>,
    /// The issuer's name for people.
    pub issuer: String,
    /// Its first moment, in seconds since 1970.
    pub not_before: u64,
    /// Its last moment, in seconds since 1970.
    pub not_after: u64,
    /// The kind of its key.
    pub key: KeyKind,
}

/// The kind of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KeyKind {
    /// Elliptic curves: preferred, because a handshake costs a third of the time.
    Ecdsa,
    /// Ed25519 and what else there is.
    #[default]
    Other,
    /// RSA
    Rsa,
}

/// Where a moment lies in the life of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It has not begun.
    Future,
    /// It is valid.
    Current,
    /// It is valid for less than [`ENDS_SOON_SECS`] or, where that is less, a third of its life.
    EndsSoon,
    /// It has ended.
    Expired,
}

impl CertificateFacts {
    /// Reads a certificate in DER; `None`: it is none.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let (_, found) = X509Certificate::from_der(der).ok()?;
        let validity = found.validity();
        let seconds = |at: i64| u64::try_from(at).unwrap_or(0);
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        // Two of the same extension are a fault of the certificate: clients find no name in it either.
        let alternative = found.subject_alternative_name().ok().flatten();
        for name in alternative.iter().flat_map(|one| &one.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                _ => {}
            }
        }
        Some(Self {
            names,
            addresses,
            issuer: said(found.issuer()),
            not_before: seconds(validity.not_before.timestamp()),
            not_after: seconds(validity.not_after.timestamp()),
            key: match found.public_key().parsed() {
                Ok(PublicKey::RSA(_)) => KeyKind::Rsa,
                Ok(PublicKey::EC(_)) => KeyKind::Ecdsa,
                _ => KeyKind::Other,
            },
        })
    }

    /// What is worth saying of its life at a moment, behind a name of it.
    pub(crate) fn warning(&self, now: u64) -> Option<String> {
        let ends = self.ends();
        match self.validity(now) {
            Validity::Current => None,
            Validity::Future => Some(format!("is not valid before {}", moment(self.not_before))),
            Validity::Expired => Some(format!("has expired: {ends}")),
            Validity::EndsSoon => {
                let days = (self.not_after - now) / 86_400;
                let days = match days {
                    0 => "today or tomorrow".to_owned(),
                    1 => "in 1 day".to_owned(),
                    days => format!("in {days} days"),
                };
                Some(format!("ends {days}: {ends}"))
            }
        }
    }

    /// Where a moment, in seconds since 1970, lies in its life.
    pub fn validity(&self, now: u64) -> Validity {
        match now {
            now if now < self.not_before => Validity::Future,
            now if now > self.not_after => Validity::Expired,
            now if self.not_after - now < self.last_part_secs() => Validity::EndsSoon,
            _ => Validity::Current,
        }
    }

    /// The time before its end in which it should have been renewed. A program renews a certificate that is valid for a
    /// few days alone, after two thirds of them.
    fn last_part_secs(&self) -> u64 {
        let life = self.not_after.saturating_sub(self.not_before);
        ENDS_SOON_SECS.min(life / 3)
    }

    /// Its last moment for people: `2026-12-04 12:00 UTC`.
    pub fn ends(&self) -> String {
        moment(self.not_after)
    }

    /// Whether clients that ask for this name take the certificate. A pattern is covered by the same pattern.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let pattern = name.split_once('.').map(|(_, rest)| rest);
        self.names.iter().any(|own| {
            // One label, as RFC 9525 section 6.3 has it.
            let rest = own.strip_prefix("*.");
            own == name || rest.is_some_and(|rest| pattern == Some(rest))
        })
    }
}

/// A certificate that a client has shown, as applications read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// In PEM.
    pub pem: String,
    /// Whose it is: `CN=ops, O=Shop`.
    pub subject: String,
    /// Who has signed it.
    pub issuer: String,
    /// Its number, in hexadecimal digits without a sign.
    pub serial: String,
}

impl ClientCertificate {
    /// Of a certificate in DER that was verified; the names are empty where they cannot be read.
    pub(crate) fn of(der: &[u8]) -> Self {
        let found = X509Certificate::from_der(der).ok().map(|(_, found)| found);
        let text = |read: fn(&X509Certificate<'_>) -> String| found.as_ref().map(read);
        Self {
            pem: pem(der),
            subject: text(|found| found.subject().to_string()).unwrap_or_default(),
            issuer: text(|found| found.issuer().to_string()).unwrap_or_default(),
            serial: text(|found| format!("{:X}", found.serial)).unwrap_or_default(),
        }
    }
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    // RFC 7468 section 2: lines of 64 characters.
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// The issuer and the subject of a certificate, byte by byte as they are compared.
pub(crate) fn issuer_and_subject(der: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (_, found) = X509Certificate::from_der(der).ok()?;
    let issuer = found.issuer().as_raw().to_vec();
    Some((issuer, found.subject().as_raw().to_vec()))
}

/// The common name, else the organisation, else all of it.
fn said(name: &X509Name<'_>) -> String {
    let mut parts = name.iter_common_name().chain(name.iter_organization());
    let part = parts.find_map(|part| part.as_str().ok());
    part.map_or_else(|| name.to_string(), str::to_owned)
}

fn moment(at: u64) -> String {
    let [year, month, day, hour, minute, _] = telemetry::civil_from_unix(at);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn facts(names: &[&str]) -> CertificateFacts {
        CertificateFacts {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            // 2026-01-01 and 90 days.
            not_before: 1_767_225_600,
            not_after: 1_767_225_600 + 90 * DAY,
            ..CertificateFacts::default()
        }
    }

    #[test]
    fn a_short_life_ends_soon_in_its_last_third() {
        let mut facts = facts(&["localhost"]);
        facts.not_after = facts.not_before + 6 * DAY;
        let check = |days, expect| {
            let now = facts.not_before + days * DAY;
            assert_eq!(facts.validity(now), expect, "{days}");
        };
        check(0, Validity::Current);
        check(4, Validity::Current);
        check(5, Validity::EndsSoon);
    }

    #[test]
    fn warns_two_weeks_before_the_end() {
        let facts = facts(&["shop.example"]);
        let (start, end) = (facts.not_before, facts.not_after);
        for (now, validity, warning) in [
            (
                start - 1,
                Validity::Future,
                Some("is not valid before 2026-01-01 00:00 UTC"),
            ),
            (start, Validity::Current, None),
            (end - ENDS_SOON_SECS, Validity::Current, None),
            (
                end - 13 * DAY,
                Validity::EndsSoon,
                Some("ends in 13 days: 2026-04-01 00:00 UTC"),
            ),
            (
                end - DAY,
                Validity::EndsSoon,
                Some("ends in 1 day: 2026-04-01 00:00 UTC"),
            ),
            (
                end,
                Validity::EndsSoon,
                Some("ends today or tomorrow: 2026-04-01 00:00 UTC"),
            ),
            (
                end + 1,
                Validity::Expired,
                Some("has expired: 2026-04-01 00:00 UTC"),
            ),
        ] {
            assert_eq!(facts.validity(now), validity, "{now}");
            assert_eq!(facts.warning(now).as_deref(), warning, "{now}");
        }
    }

    #[test]
    fn covers_its_names_and_one_label_of_a_pattern() {
        let facts = facts(&["shop.example", "*.shop.example"]);
        for name in ["shop.example", "www.shop.example", "*.shop.example"] {
            assert!(facts.covers(name), "{name}");
        }
        for name in [
            "example",
            "a.b.shop.example",
            "*.example",
            "shop.example.org",
            "",
        ] {
            assert!(!facts.covers(name), "{name}");
        }
    }

    #[test]
    fn reads_no_certificate_of_other_bytes() {
        for bytes in [&b""[..], b"text", b"\x30\x00", b"\x30\x82\xff\xff"] {
            assert_eq!(CertificateFacts::read(bytes), None);
        }
    }
}
