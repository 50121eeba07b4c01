//! Client certificates: the authorities that are taken, those of their certificates that are revoked, and what becomes
//! of clients that show none.

use std::path::Path;
use std::sync::Arc;

use config::typed::{ClientAuth, ClientDemand, TlsFile};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde::{Deserialize, Serialize};

use crate::crypto::digest;
use crate::fault::TlsFileFault;
use crate::file::{self, Readers};
use crate::text64;

/// What is asked of clients, with the contents of the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientAuthorities {
    demand: ClientDemand,
    #[serde(with = "text64::list")]
    roots: Vec<Vec<u8>>,
    #[serde(with = "text64::list")]
    crls: Vec<Vec<u8>>,
}

/// Stands for everything that is asked of clients. Connections and session tickets with another one are strangers:
/// whoever has shown no certificate here must not pass for someone who has, there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientAuthId([u8; 32]);

impl ClientAuthorities {
    /// Reads the files; all their faults at once.
    pub(crate) fn read(
        auth: &ClientAuth,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, Vec<TlsFileFault>> {
        let mut faults = Vec::new();
        let mut note = |read: Result<Vec<Vec<u8>>, TlsFileFault>| match read {
            Ok(all) => all,
            Err(fault) => {
                faults.push(fault);
                Vec::new()
            }
        };
        let read = Self {
            demand: auth.demand,
            roots: note(authorities(&auth.ca)),
            crls: auth
                .crl
                .as_deref()
                .map(|path| note(revoked(path)))
                .unwrap_or_default(),
        };
        if !faults.is_empty() {
            return Err(faults);
        }
        // rustls has the last word, on what no look at one file shows.
        let built = read.verifier(provider).err();
        match built {
            None => Ok(read),
            Some(cause) => {
                let (setting, path) = match &auth.crl {
                    None => (TlsFile::ClientCa, &auth.ca),
                    Some(crl) => (TlsFile::Crl, crl),
                };
                let fault = TlsFileFault::new(setting, path, cause.to_lowercase());
                Err(vec![match setting {
                    TlsFile::Crl => fault.with_hint(
                        "a list has version 2, a number and the identifier of its issuer's key: \
                         `crlNumber`, `authorityKeyIdentifier` (RFC 5280 section 5.2)",
                    ),
                    _ => fault,
                }])
            }
        }
    }

    /// What checks the certificates of clients.
    pub(crate) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let mut roots = RootCertStore::empty();
        for der in &self.roots {
            roots
                .add(CertificateDer::from(der.as_slice()))
                .map_err(|error| error.to_string())?;
        }
        let crls = self.crls.iter().map(|der| der.clone().into());
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .with_crls(crls)
                // Lists are of the authority that signs for clients; those above publish theirs rarely.
                .only_check_end_entity_revocation();
        let builder = match self.demand {
            ClientDemand::Require => builder,
            ClientDemand::Request => builder.allow_unauthenticated(),
        };
        builder.build().map_err(|error| error.to_string())
    }
}

impl ClientAuthId {
    /// Of what is asked; of nothing for `None`.
    pub(crate) fn of(auth: Option<&ClientAuthorities>) -> Self {
        let mut all = b"milepost client authentication".to_vec();
        if let Some(auth) = auth {
            all.push(match auth.demand {
                ClientDemand::Require => 1,
                ClientDemand::Request => 2,
            });
            for list in [&auth.roots, &auth.crls] {
                // With lengths: no two sets of files are the same row of bytes.
                all.extend(list.len().to_be_bytes());
                for der in list {
                    all.extend(der.len().to_be_bytes());
                    all.extend(der);
                }
            }
        }
        Self(digest(&all))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

fn authorities(path: &Path) -> Result<Vec<Vec<u8>>, TlsFileFault> {
    let text = file::read(TlsFile::ClientCa, path, Readers::Anybody)?;
    let fault = |cause: String| TlsFileFault::new(TlsFile::ClientCa, path, cause);
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|_| fault("the file is not PEM".to_owned()))?;
    if found.is_empty() {
        return Err(fault(
            "there is no certificate in PEM in the file".to_owned(),
        ));
    }
    let mut roots = RootCertStore::empty();
    for (index, der) in found.iter().enumerate() {
        roots
            .add(der.clone())
            .map_err(|_| fault(format!("certificate {} cannot be read", index + 1)))?;
    }
    Ok(found.iter().map(|der| der.to_vec()).collect())
}

/// Lists in PEM, or one in DER, as authorities publish them.
fn revoked(path: &Path) -> Result<Vec<Vec<u8>>, TlsFileFault> {
    /// How a sequence begins.
    const SEQUENCE: u8 = 0x30;
    let text = file::read(TlsFile::Crl, path, Readers::Anybody)?;
    let fault = || {
        let cause = "there is no list of revoked certificates in the file";
        TlsFileFault::new(TlsFile::Crl, path, cause)
    };
    if text.first() == Some(&SEQUENCE) {
        return Ok(vec![text.to_vec()]);
    }
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|_| fault())?;
    match found.is_empty() {
        true => Err(fault()),
        false => Ok(found.iter().map(|der| der.to_vec()).collect()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A demand, with authorities that no verifier would take.
    pub(crate) fn some() -> ClientAuthorities {
        ClientAuthorities {
            demand: ClientDemand::Require,
            roots: vec![b"ab".to_vec(), b"c".to_vec()],
            crls: Vec::new(),
        }
    }

    #[test]
    fn other_demands_have_other_ids() {
        let changed = |change: fn(&mut ClientAuthorities)| {
            let mut other = some();
            change(&mut other);
            ClientAuthId::of(Some(&other))
        };
        let all = [
            ClientAuthId::of(None),
            changed(|_| {}),
            changed(|auth| auth.demand = ClientDemand::Request),
            changed(|auth| auth.roots = vec![b"a".to_vec(), b"bc".to_vec()]),
            changed(|auth| auth.crls = vec![b"c".to_vec()]),
            changed(|auth| auth.crls = vec![b"d".to_vec()]),
        ];
        for (index, id) in all.iter().enumerate() {
            assert!(!all[..index].contains(id), "{index}");
        }
        assert_eq!(ClientAuthId::of(Some(&some())), all[1]);
    }
}
