//! Key and chain of a name in one file: what it says, and whether its parts fit.
//!
//! Takes PEM, gives [`CertificateFacts`]. A file from outside is never trusted to be right: each fault is a text. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use instant_acme::CertificateIdentifier;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::first_certificate::PLACEHOLDER_NAME;
use crate::schedule::Validity;

/// What the leaf of a chain says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Names of the DNS that it is for.
    pub names: Vec<String>,
    /// Its issuer's common name, or the whole issuer.
    pub issuer: String,
    /// From when it holds.
    pub not_before: SystemTime,
    /// Until when it holds.
    pub not_after: SystemTime,
}

/// A certificate that was read.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) facts: CertificateFacts,
    leaf: CertificateDer<'static>,
}

impl Held {
    /// Reads key and chain, and checks that they belong together.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn read(pem: &str) -> Result<Held, String> {
        // All of them: a file that was cut off may end within the second.
        let chain: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| format!("no certificate in PEM: {error}"))?;
        let unreadable = |der: &CertificateDer<'_>| {
            let parsed = x509_parser::parse_x509_certificate(der);
            parsed
                .err()
                .map(|error| format!("the certificate: {error}"))
        };
        if let Some(fault) = chain.iter().find_map(unreadable) {
            return Err(fault);
        }
        let leaf = chain.into_iter().next().ok_or("there is no certificate")?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| format!("no key in PEM: {error}"))?;
        let key = KeyPair::try_from(&key).map_err(|error| format!("the key: {error}"))?;
        let facts = {
            let (_, parsed) = x509_parser::parse_x509_certificate(&leaf)
                .map_err(|error| format!("the certificate: {error}"))?;
            if parsed.public_key().subject_public_key.data != key.der_bytes() {
                return Err("the key does not belong to the certificate".to_owned());
            }
            CertificateFacts::of(&parsed)
        };
        Ok(Held {
            facts,
            leaf: leaf.into_owned(),
        })
    }

    /// The same for a name, which the certificate must be for.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn read_for(pem: &str, name: &str) -> Result<Held, String> {
        let held = Held::read_served(pem, name)?;
        match held.is_placeholder() {
            true => Err("the certificate is a placeholder".to_owned()),
            false => Ok(held),
        }
    }

    /// The same for what a name can be served with: a placeholder too.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn read_served(pem: &str, name: &str) -> Result<Held, String> {
        let held = Held::read(pem)?;
        match (held.facts.names.iter()).any(|one| one.eq_ignore_ascii_case(name)) {
            true => Ok(held),
            false => Err(format!(
                "the certificate is for {}",
                held.facts.names.join(", ")
            )),
        }
    }

    /// Nobody has issued it.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.facts.issuer == PLACEHOLDER_NAME
    }

    pub(crate) fn validity(&self) -> Validity {
        Validity {
            not_before: self.facts.not_before,
            not_after: self.facts.not_after,
        }
    }

    /// What its authority calls it (RFC 9773 section 4.1); `None` where it has no key identifier of its issuer.
    pub(crate) fn identifier(&self) -> Option<CertificateIdentifier<'static>> {
        CertificateIdentifier::try_from(&self.leaf)
            .ok()
            .map(CertificateIdentifier::into_owned)
    }

    /// From 0 to 1, another one for each certificate, and always the same for this one: a process that is started anew
    /// and all machines that share a storage folder choose the same moment.
    pub(crate) fn chance(&self) -> f64 {
        let mut hasher = DefaultHasher::new();
        self.leaf.as_ref().hash(&mut hasher);
        fastrand::Rng::with_seed(hasher.finish()).f64()
    }
}

impl CertificateFacts {
    fn of(parsed: &X509Certificate<'_>) -> Self {
        let alternative = parsed.subject_alternative_name().ok().flatten();
        let general = alternative
            .iter()
            .flat_map(|names| &names.value.general_names);
        let names = general.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        });
        let issuer = parsed.issuer();
        let common_name = issuer
            .iter_common_name()
            .next()
            .and_then(|name| name.as_str().ok());
        let time = |at: x509_parser::time::ASN1Time| {
            let secs = u64::try_from(at.timestamp()).unwrap_or(0);
            SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
        };
        Self {
            names: names.collect(),
            issuer: common_name.map_or_else(|| issuer.to_string(), str::to_owned),
            not_before: time(parsed.validity().not_before),
            not_after: time(parsed.validity().not_after),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType};

    use super::*;

    fn made(name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "Tests");
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1);
        let certificate = params.self_signed(&key).unwrap();
        (key.serialize_pem(), certificate.pem())
    }

    #[test]
    fn says_what_the_leaf_says() {
        let (key, chain) = made("shop.example");
        let held = Held::read_for(&format!("{key}{chain}"), "shop.example").unwrap();
        assert_eq!(held.facts.names, ["shop.example"]);
        assert_eq!(held.facts.issuer, "Tests");
        let life = held.facts.not_after.duration_since(held.facts.not_before);
        assert_eq!(life.unwrap(), Duration::from_secs(90 * 86_400));
        let again = Held::read(&format!("{key}{chain}")).unwrap();
        assert_eq!(held.chance(), again.chance());
        assert!((0.0..=1.0).contains(&held.chance()));
        // Nothing names its issuer's key.
        assert!(held.identifier().is_none());
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let (key, chain) = made("shop.example");
        let (other_key, other) = made("other.example");
        let check = |pem: String, expect: &str| {
            let fault = Held::read_for(&pem, "shop.example").unwrap_err();
            assert!(fault.contains(expect), "{fault}");
        };
        check(format!("{other_key}{chain}"), "the key does not belong");
        check(
            format!("{other_key}{other}"),
            "the certificate is for other.example",
        );
        check(chain.clone(), "no key");
        check(key.clone(), "no certificate");
        // Cut off within the second certificate.
        let cut = &other[..other.len() / 2];
        check(format!("{key}{chain}{cut}"), "no certificate in PEM");
        check(
            "-----BEGIN CERTIFICATE-----\nAAAA\n".to_owned(),
            "certificate",
        );
        check(String::new(), "no certificate");
    }
}
