//! All certificates with their keys, and the keys of session tickets: read by the supervisor, handed to its processes.
//!
//! Reads all files and gives all their faults at once. Processes need no right to read the files.

use std::sync::Arc;

use config::failure::Failure;
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

/// What the files of a configuration hold at a moment. A file at fault keeps no other one from being used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// By their places in the configuration; `None`: at fault.
    pub identities: Vec<Option<Identity>>,
    /// `None`: at fault. Where no file is named, there are no keys.
    pub ticket_keys: Option<TicketKeys>,
    /// All that is wrong.
    pub faults: Vec<IdentityFault>,
}

/// A fault of one of the certificates of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFault {
    /// Its place among the certificates of the configuration.
    pub identity: usize,
    /// What is wrong.
    pub fault: TlsFileFault,
}

impl CredentialFiles {
    /// Reads all files; `variable` gives environment variables. Certificates that contradict each other are all at
    /// fault.
    pub fn read(config: &Tls, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let (identities, mut faults) = identities(config, variable);
        let keys = config.ticket_keys.as_deref().map(TicketKeys::read);
        let keys = keys.unwrap_or_else(|| Ok(TicketKeys::default()));
        let ticket_keys = keys
            .map_err(|fault| faults.push(IdentityFault { identity: 0, fault }))
            .ok();
        Self {
            identities,
            ticket_keys,
            faults,
        }
    }

    /// Everything, if all of it is good.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn whole(self) -> Result<Credentials, Vec<IdentityFault>> {
        let identities = self.identities.into_iter().collect();
        match (identities, self.ticket_keys) {
            (Some(identities), Some(ticket_keys)) => Ok(Credentials {
                identities,
                ticket_keys,
            }),
            _ => Err(self.faults),
        }
    }

    /// What is good of it, and for the rest what there was before, of the same configuration.
    #[must_use]
    pub fn over(self, old: &Credentials) -> Credentials {
        let both = self.identities.into_iter().zip(&old.identities);
        Credentials {
            identities: both
                .map(|(read, old)| read.unwrap_or_else(|| old.clone()))
                .collect(),
            ticket_keys: self.ticket_keys.unwrap_or_else(|| old.ticket_keys.clone()),
        }
    }
}

impl From<IdentityFault> for Failure {
    fn from(one: IdentityFault) -> Self {
        let setting = match one.fault.setting {
            TlsFile::TicketKeys => "tls_ticket_keys",
            _ => "certificates",
        };
        let failure = Failure::new(format!("{setting}: {}", one.fault));
        match one.fault.hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

impl Credentials {
    /// Reads the files of all certificates; `variable` gives environment variables. The keys of tickets are not read:
    /// see [`CredentialFiles::read`].
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn read(
        config: &Tls,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<IdentityFault>> {
        let (identities, faults) = identities(config, variable);
        let identities = identities.into_iter().collect::<Option<_>>();
        let identities = identities.ok_or(faults)?;
        Ok(Self {
            identities,
            ticket_keys: TicketKeys::default(),
        })
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

fn identities(
    config: &Tls,
    variable: &dyn Fn(&str) -> Option<String>,
) -> (Vec<Option<Identity>>, Vec<IdentityFault>) {
    let provider = crypto::provider();
    let (mut read, mut faults) = (Vec::new(), Vec::new());
    for (index, one) in config.identities.iter().enumerate() {
        let identity = Identity::read(one, variable, &provider).map_err(|all| {
            faults.extend(all.into_iter().map(|fault| IdentityFault {
                identity: index,
                fault,
            }));
        });
        read.push(identity.ok());
    }
    let whole: Option<Vec<Identity>> = read.iter().cloned().collect();
    if let Some(whole) = whole.filter(|whole| !whole.is_empty()) {
        faults = conflicts(config, &whole, &provider);
        if !faults.is_empty() {
            read.fill(None);
        }
    }
    (read, faults)
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
