//! A certificate with its key and all that belongs to it, read from files and checked together.
//!
//! Either everything fits (the key to the first certificate, each certificate to the one before it, the names to the
//! certificate), or every fault is given at once. The contents travel to processes, which may not be able to read the
//! files.

use std::path::Path;
use std::sync::Arc;

use config::typed::{TlsFile, TlsIdentity};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use serde::{Deserialize, Serialize};

use crate::certificate::{CertificateFacts, issuer_and_subject};
use crate::client_auth::ClientAuthorities;
use crate::fault::TlsFileFault;
use crate::file::{self, Readers};
use crate::private_key::PrivateKey;
use crate::text64;

/// Certificates of one chain.
const CHAIN_LEN_MAX: usize = 16;

/// A certificate with its key, whole and checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Names that the configuration gives to it; empty: those of the certificate.
    pub(crate) names: Vec<String>,
    /// What the certificate says.
    pub facts: CertificateFacts,
    #[serde(with = "text64::list")]
    chain: Vec<Vec<u8>>,
    key: PrivateKey,
    #[serde(with = "text64::public")]
    ocsp: Vec<u8>,
    pub(crate) client_auth: Option<ClientAuthorities>,
}

impl Identity {
    /// Reads the files.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn read(
        config: &TlsIdentity,
        variable: &dyn Fn(&str) -> Option<String>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, Vec<TlsFileFault>> {
        let mut faults = Vec::new();
        let chain = noted(chain(&config.cert), &mut faults);
        let facts = chain
            .as_ref()
            .map(|chain| checked(&config.cert, &chain[0], &config.names));
        let facts = facts.and_then(|facts| noted(facts, &mut faults));
        let key = PrivateKey::read(&config.key, config.key_password.as_ref(), variable);
        let key = noted(key, &mut faults);
        let ocsp = config.ocsp.as_deref().map_or(Ok(Vec::new()), staple);
        let ocsp = noted(ocsp, &mut faults);
        let client_auth = config.client_auth.as_ref();
        let client_auth = client_auth.map(|auth| ClientAuthorities::read(auth, provider));
        let client_auth = client_auth.transpose().unwrap_or_else(|all| {
            faults.extend(all);
            None
        });
        let (Some(chain), Some(facts), Some(key), Some(ocsp)) = (chain, facts, key, ocsp) else {
            return Err(faults);
        };
        let read = Self {
            names: config.names.clone(),
            facts,
            chain,
            key,
            ocsp,
            client_auth,
        };
        if let Err(error) = read.certified_key(provider) {
            faults.push(read.mismatch(config, &error, provider));
        }
        match faults.is_empty() {
            true => Ok(read),
            false => Err(faults),
        }
    }

    /// As rustls takes it. An error where key and certificate do not belong together.
    pub(crate) fn certified_key(&self, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
        let chain = self.chain.iter().map(|der| der.clone().into()).collect();
        self.certified_with(chain, provider)
    }

    fn certified_with(
        &self,
        chain: Vec<CertificateDer<'static>>,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, Error> {
        let mut made = CertifiedKey::from_der(chain, self.key.der().clone_key(), provider)?;
        made.ocsp = (!self.ocsp.is_empty()).then(|| self.ocsp.clone());
        Ok(made)
    }

    /// Names that clients find it under: those of the configuration, else those of the certificate.
    pub fn served_names(&self) -> &[String] {
        match self.names.is_empty() {
            true => &self.facts.names,
            false => &self.names,
        }
    }

    /// Its first name and how many there are beside it, for people.
    fn title(&self) -> String {
        match self.served_names() {
            [] => format!("a certificate of {}", self.facts.issuer),
            [name] => name.clone(),
            [name, others @ ..] => format!("{name} and {} more", others.len()),
        }
    }

    /// `shop.example and 1 more, by Let's Encrypt, until 2026-12-04 12:00 UTC`
    pub fn summary(&self) -> String {
        let facts = &self.facts;
        format!(
            "{}, by {}, until {}",
            self.title(),
            facts.issuer,
            facts.ends()
        )
    }

    /// What is worth saying of its life at a moment, in seconds since 1970.
    pub fn warning(&self, now: u64) -> Option<String> {
        let text = self.facts.warning(now)?;
        Some(format!("the certificate of {} {text}", self.title()))
    }

    /// Why a key and a chain do not belong together.
    fn mismatch(
        &self,
        config: &TlsIdentity,
        error: &Error,
        provider: &CryptoProvider,
    ) -> TlsFileFault {
        let (cert, key) = (config.cert.display(), config.key.display());
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                // The usual slip: the chain begins with the authority.
                let fits = |der: &&Vec<u8>| {
                    let chain = vec![CertificateDer::from((*der).clone())];
                    self.certified_with(chain, provider).is_ok()
                };
                match self.chain.iter().position(|der| fits(&der)) {
                    Some(index) => TlsFileFault::new(
                        TlsFile::Cert,
                        &config.cert,
                        format!("the certificate of the key `{key}` is number {}", index + 1),
                    )
                    .with_hint("the server's own certificate comes first"),
                    None => TlsFileFault::new(
                        TlsFile::Key,
                        &config.key,
                        format!("the key is not that of the certificate `{cert}`"),
                    )
                    .with_hint("both come from the same request to the authority"),
                }
            }
            _ => TlsFileFault::new(
                TlsFile::Key,
                &config.key,
                "the key is of a kind that TLS does not use here",
            )
            .with_hint("RSA from 2048 bits, ECDSA on P-256, P-384 or P-521, or Ed25519"),
        }
    }
}

fn noted<T>(read: Result<T, TlsFileFault>, faults: &mut Vec<TlsFileFault>) -> Option<T> {
    read.map_err(|fault| faults.push(fault)).ok()
}

/// The certificates of a file, the server's own first and each signed by the next.
fn chain(path: &Path) -> Result<Vec<Vec<u8>>, TlsFileFault> {
    let text = file::read(TlsFile::Cert, path, Readers::Anybody)?;
    let fault = |cause: String| TlsFileFault::new(TlsFile::Cert, path, cause);
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|_| fault("the file is not PEM".to_owned()))?;
    let chain: Vec<Vec<u8>> = found.iter().map(|der| der.to_vec()).collect();
    match chain.len() {
        0 => {
            return Err(fault(
                "there is no certificate in PEM in the file".to_owned(),
            ));
        }
        1..=CHAIN_LEN_MAX => {}
        _ => {
            return Err(fault(format!(
                "there are more than {CHAIN_LEN_MAX} certificates"
            )));
        }
    }
    let mut expected: Option<Vec<u8>> = None;
    for (index, der) in chain.iter().enumerate() {
        let number = index + 1;
        let (issuer, subject) = issuer_and_subject(der)
            .ok_or_else(|| fault(format!("certificate {number} cannot be read")))?;
        if expected.is_some_and(|expected| expected != subject) {
            let cause =
                format!("certificate {number} is not that of the issuer of certificate {index}");
            let hint =
                "the order is: the server's own certificate, then that of its issuer, and so on";
            return Err(fault(cause).with_hint(hint));
        }
        expected = Some(issuer);
    }
    Ok(chain)
}

/// What the server's own certificate says, if it is for all of the names.
fn checked(path: &Path, der: &[u8], names: &[String]) -> Result<CertificateFacts, TlsFileFault> {
    let facts = CertificateFacts::read(der)
        .ok_or_else(|| TlsFileFault::new(TlsFile::Cert, path, "certificate 1 cannot be read"))?;
    let foreign = names.iter().find(|name| !facts.covers(name));
    match foreign {
        None => Ok(facts),
        Some(name) => {
            let cause = format!("the certificate is not for `{name}`");
            let fault = TlsFileFault::new(TlsFile::Names, path, cause);
            Err(match facts.names.is_empty() {
                true => fault.with_hint("it has no name of a server (subjectAltName)"),
                false => fault.with_hint(format!("it is for {}", facts.names.join(", "))),
            })
        }
    }
}

/// A reply of an OCSP responder, in DER, that says something (RFC 6960 section 4.2.1).
fn staple(path: &Path) -> Result<Vec<u8>, TlsFileFault> {
    let reply = file::read(TlsFile::Ocsp, path, Readers::Anybody)?;
    let fault = |cause: &str| {
        let hint = "`openssl ocsp -respout FILE` writes one";
        TlsFileFault::new(TlsFile::Ocsp, path, cause).with_hint(hint)
    };
    let body = sequence(&reply).ok_or_else(|| fault("it is no OCSP response in DER"))?;
    match body {
        // ENUMERATED successful, and the response behind it.
        [0x0a, 0x01, 0x00, _, ..] => Ok(reply.to_vec()),
        [0x0a, 0x01, ..] => Err(fault("the responder has refused the request")),
        _ => Err(fault("it is no OCSP response in DER")),
    }
}

/// The content of a text that is one sequence.
fn sequence(der: &[u8]) -> Option<&[u8]> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (bytes, body) = match usize::from(first) {
        short @ 0..0x80 => (short, rest),
        long => {
            let digits = long & 0x7f;
            let (length, body) = rest.split_at_checked(digits)?;
            let length = length.iter().try_fold(0_usize, |sum, digit| {
                sum.checked_mul(256)?.checked_add(usize::from(*digit))
            })?;
            (length, body)
        }
    };
    (tag == 0x30 && bytes == body.len()).then_some(body)
}

#[cfg(test)]
mod tests;
