//! Names with their certificates: for each name the keys of different kinds side by side, and what is asked of clients.
//!
//! Names of the configuration come before those that certificates bring along. Pure: whole, or what contradicts itself.

use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::KeyKind;
use crate::client_auth::ClientAuthId;
use crate::identity::Identity;
use crate::names::NameTable;

/// The certificates of one name.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// By kind, the cheapest first; each kind once.
    keys: Vec<(KeyKind, Arc<CertifiedKey>)>,
    /// What is asked of clients.
    pub(crate) client_auth: ClientAuthId,
    /// The configuration names it.
    is_named: bool,
}

/// All names.
#[derive(Debug)]
pub(crate) struct Sites {
    names: NameTable<Site>,
    /// For clients that name no server, or an unknown one.
    pub(crate) default: Site,
}

/// Two identities with the same name that cannot stand side by side, by their indices, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameConflict {
    /// The later one.
    pub identity: usize,
    /// The name.
    pub name: String,
    /// A sentence without a capital and without a full stop.
    pub cause: &'static str,
}

impl Sites {
    /// The names of identities; the first is the default.
    ///
    /// # Errors
    /// Names that two of them have in ways that exclude each other.
    pub(crate) fn new(all: &[(&Identity, Arc<CertifiedKey>)]) -> Result<Self, Vec<NameConflict>> {
        let mut names = NameTable::default();
        let mut conflicts = Vec::new();
        // First those of the configuration, then those that only certificates have.
        for is_named in [true, false] {
            for (index, (identity, key)) in all.iter().enumerate() {
                if identity.names.is_empty() == is_named {
                    continue;
                }
                let site = Site::of(identity, key, is_named);
                for name in identity.served_names() {
                    let known: &mut Site = names.entry(name, || site.without_keys());
                    if let Err(cause) = known.join(&site) {
                        conflicts.push(NameConflict {
                            identity: index,
                            name: name.clone(),
                            cause,
                        });
                    }
                }
            }
        }
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        let (first, key) = all.first().expect("a server with TLS has a certificate");
        let mut default = Site::of(first, key, true);
        // Its twin with another kind of key has the same name.
        let twin = first
            .served_names()
            .first()
            .and_then(|name| names.find(name));
        if let Some(twin) = twin.filter(|twin| twin.client_auth == default.client_auth) {
            default.extend(twin);
        }
        Ok(Self { names, default })
    }

    /// The site of a name; `None`: there is none.
    pub(crate) fn find(&self, name: &str) -> Option<&Site> {
        self.names.find(name)
    }
}

impl Site {
    fn of(identity: &Identity, key: &Arc<CertifiedKey>, is_named: bool) -> Self {
        Self {
            keys: vec![(identity.facts.key, Arc::clone(key))],
            client_auth: ClientAuthId::of(identity.client_auth.as_ref()),
            is_named,
        }
    }

    fn without_keys(&self) -> Self {
        Self {
            keys: Vec::new(),
            ..self.clone()
        }
    }

    /// Takes in the certificate of another identity with the same name.
    fn join(&mut self, other: &Site) -> Result<(), &'static str> {
        // What a certificate brings along yields to what the configuration says, and to what came before.
        let yields = !other.is_named && !self.keys.is_empty();
        let is_other_demand = self.client_auth != other.client_auth;
        if yields && (self.is_named || is_other_demand) {
            return Ok(());
        }
        if is_other_demand {
            return Err("another table asks something else of the clients of this name");
        }
        let (kind, _) = other.keys[0];
        if self.keys.iter().any(|(own, _)| *own == kind) {
            return match other.is_named {
                true => Err("another table has a key of the same kind for this name"),
                false => Ok(()),
            };
        }
        self.extend(other);
        Ok(())
    }

    fn extend(&mut self, other: &Site) {
        for (kind, key) in &other.keys {
            if self.keys.iter().all(|(own, _)| own != kind) {
                self.keys.push((*kind, Arc::clone(key)));
            }
        }
        self.keys.sort_by_key(|(kind, _)| *kind);
    }

    /// The first key with which the client can check a signature, else any: rustls then refuses the handshake with
    /// the alert that says why.
    fn key_for(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let mut keys = self.keys.iter().map(|(_, key)| key);
        let fit = keys.find(|key| key.key.choose_scheme(schemes).is_some());
        fit.or_else(|| self.keys.last().map(|(_, key)| key))
            .cloned()
    }
}

/// Chooses by the name in the ClientHello; whether an unknown one is served was decided before.
impl ResolvesServerCert for Sites {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let site = hello.server_name().and_then(|name| self.find(name));
        site.unwrap_or(&self.default).key_for(&hello)
    }
}
