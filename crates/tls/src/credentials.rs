//! All certificates with their keys, and the keys of session tickets: read by the supervisor, handed to its processes.
//!
//! Reads all files and gives all their faults at once. Processes need no right to read the files.

use std::sync::Arc;

use config::typed::{Tls, TlsFile};
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use crate::crypto;
use crate::fault::TlsFileFault;
use crate::identity::Identity;
use crate::sites::Sites;
use crate::ticket_keys::TicketKeys;

/// Everything secret that TLS needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Certificates, the default first.
    pub identities: Vec<Identity>,
    /// Keys of session tickets.
    pub ticket_keys: TicketKeys,
}

/// A fault of one of the certificates of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFault {
    /// Its place among the certificates of the configuration.
    pub identity: usize,
    /// What is wrong.
    pub fault: TlsFileFault,
}

impl Credentials {
    /// Reads the files of all certificates; `variable` gives environment variables. The keys of tickets are not read:
    /// see [`TicketKeys::read`].
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn read(
        config: &Tls,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<IdentityFault>> {
        let provider = crypto::provider();
        let (mut identities, mut faults) = (Vec::new(), Vec::new());
        for (index, one) in config.identities.iter().enumerate() {
            match Identity::read(one, variable, &provider) {
                Ok(identity) => identities.push(identity),
                Err(all) => faults.extend(all.into_iter().map(|fault| IdentityFault {
                    identity: index,
                    fault,
                })),
            }
        }
        if faults.is_empty() && !identities.is_empty() {
            faults.extend(conflicts(config, &identities, &provider));
        }
        match faults.is_empty() {
            true => Ok(Self {
                identities,
                ticket_keys: TicketKeys::default(),
            }),
            false => Err(faults),
        }
    }

    /// The same certificates with these keys of tickets.
    #[must_use]
    pub fn with_ticket_keys(self, ticket_keys: TicketKeys) -> Self {
        Self {
            ticket_keys,
            ..self
        }
    }
}

/// Certificates with their keys as rustls takes them; `None`: they were not checked.
pub(crate) fn certified<'i>(
    identities: &'i [Identity],
    provider: &CryptoProvider,
) -> Option<Vec<(&'i Identity, Arc<CertifiedKey>)>> {
    let one = |identity: &'i Identity| {
        let key = identity.certified_key(provider).ok()?;
        Some((identity, Arc::new(key)))
    };
    identities.iter().map(one).collect()
}

fn conflicts(
    config: &Tls,
    identities: &[Identity],
    provider: &CryptoProvider,
) -> Vec<IdentityFault> {
    let all = certified(identities, provider).unwrap_or_default();
    let conflicts = Sites::new(&all).err().unwrap_or_default();
    let faults = conflicts.into_iter().map(|conflict| IdentityFault {
        identity: conflict.identity,
        fault: TlsFileFault::new(
            TlsFile::Names,
            &config.identities[conflict.identity].cert,
            format!("`{}`: {}", conflict.name, conflict.cause),
        ),
    });
    faults.collect()
}
