//! What new connections are accepted with: certificates, keys and protocols, made whole and replaced whole.
//!
//! Takes credentials that others have read and checked, gives a rustls configuration for each ClientHello. Reads no
//! file.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use config::typed::{Tls, TlsVersion, UnknownName};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, NoServerSessionStorage};
use rustls::{ServerConfig, SupportedProtocolVersion};

use crate::Alpn;
use crate::challenges::ChallengeConfigs;
use crate::client_auth::{ClientAuthId, ClientAuthorities};
use crate::credentials::{self, Credentials};
use crate::crypto;
use crate::sites::{Site, Sites};
use crate::suite_order::OrderedConfigs;
use crate::ticketer::{SharedTicketKeys, Ticketer};

/// What new connections are accepted with. Never changed: a later one takes its place.
#[derive(Clone, Debug)]
pub struct ServerTls {
    challenges: ChallengeConfigs,
    sites: Arc<Sites>,
    /// One for each demand of client certificates: what a client has shown for one counts for no other.
    configs: HashMap<ClientAuthId, OrderedConfigs>,
    unknown_name: UnknownName,
}

/// The [`ServerTls`] of this moment. A replacement is one store; a connection that has begun keeps what it began with.
#[derive(Debug)]
pub struct CurrentTls {
    now: Mutex<Arc<ServerTls>>,
    /// Replaced for open connections too: a key that was wiped opens nothing anywhere.
    ticket_keys: SharedTicketKeys,
    /// Hosts ask different things of their clients, so that requests have to be looked at.
    has_demands: AtomicBool,
}

/// What a connection is accepted with.
#[derive(Clone, Debug)]
pub struct ChosenConfig {
    /// For rustls.
    pub config: Arc<ServerConfig>,
    /// What is asked of its client.
    pub client_auth: ClientAuthId,
}

/// A client asks for a name that is not served here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnrecognizedName;

/// Why certificates and keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFault(String);

impl UnrecognizedName {
    /// The alert as a record: fatal, `unrecognized_name` (RFC 6066 section 3). Nothing is encrypted yet.
    pub const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
}

impl ServerTls {
    /// With credentials, and what else is configured; `alpn`: the protocols that are spoken, the preferred first.
    ///
    /// # Errors
    /// There is no certificate, or the credentials were not checked.
    pub fn new(
        config: &Tls,
        credentials: &Credentials,
        ticket_keys: &SharedTicketKeys,
        alpn: &[Alpn],
    ) -> Result<Self, TlsFault> {
        let provider = crypto::provider();
        let all = credentials::certified(&credentials.identities, &provider);
        let all = all.filter(|all| !all.is_empty());
        let all = all.ok_or_else(|| TlsFault("there is no certificate with its key".to_owned()))?;
        let sites = Sites::new(&all).map_err(|conflicts| {
            let names: Vec<&str> = conflicts.iter().map(|one| one.name.as_str()).collect();
            TlsFault(format!("names with two meanings: {}", names.join(", ")))
        })?;
        let sites = Arc::new(sites);
        let mut configs = HashMap::new();
        for (identity, _) in &all {
            let auth = identity.client_auth.as_ref();
            let id = ClientAuthId::of(auth);
            if let Entry::Vacant(place) = configs.entry(id) {
                let ticketer: Arc<Ticketer> = Arc::new(Ticketer::new(ticket_keys.clone(), id));
                place.insert(OrderedConfigs::new(&provider, |provider| {
                    let mut made = server_config(&config.versions, auth, provider, &sites)?;
                    made.ticketer = Arc::clone(&ticketer) as Arc<_>;
                    made.alpn_protocols = alpn.iter().map(|alpn| alpn.name().to_vec()).collect();
                    Ok(made)
                })?);
            }
        }
        Ok(Self {
            challenges: ChallengeConfigs::default(),
            sites,
            configs,
            unknown_name: config.unknown_name,
        })
    }

    /// The configuration for a client that says so.
    ///
    /// # Errors
    /// The client asks for a name without a certificate, and such clients are refused.
    pub fn config_for(&self, hello: &ClientHello<'_>) -> Result<ChosenConfig, UnrecognizedName> {
        if let Some(config) = self.challenges.find(hello) {
            return Ok(ChosenConfig {
                config: Arc::clone(config),
                client_auth: ClientAuthId::of(None),
            });
        }
        let site = self.site(hello.server_name());
        let site = match (site, self.unknown_name) {
            (Some(site), _) => site,
            (None, UnknownName::Default) => &self.sites.default,
            (None, UnknownName::Reject) => return Err(UnrecognizedName),
        };
        let config = self.configs.get(&site.client_auth);
        let config = config.expect("each demand has its configuration, made with the sites");
        Ok(ChosenConfig {
            config: Arc::clone(config.for_client(hello.cipher_suites())),
            client_auth: site.client_auth,
        })
    }

    /// What is asked of clients of a host, as requests name it, without its port. A request over a connection with
    /// another demand is misdirected (RFC 9110 section 15.5.20).
    pub fn client_auth_of(&self, host: Option<&str>) -> ClientAuthId {
        self.site(host).unwrap_or(&self.sites.default).client_auth
    }

    /// Whether all hosts ask the same of their clients.
    pub fn has_one_demand(&self) -> bool {
        self.configs.len() == 1
    }

    fn site(&self, name: Option<&str>) -> Option<&Site> {
        match name {
            Some(name) => self.sites.find(name),
            None => Some(&self.sites.default),
        }
    }
}

fn server_config(
    versions: &[TlsVersion],
    auth: Option<&ClientAuthorities>,
    provider: &Arc<CryptoProvider>,
    sites: &Arc<Sites>,
) -> Result<ServerConfig, TlsFault> {
    let fault = |error: &dyn fmt::Display| TlsFault(error.to_string());
    let versions: Vec<&'static SupportedProtocolVersion> = versions
        .iter()
        .map(|version| match version {
            TlsVersion::V12 => &rustls::version::TLS12,
            TlsVersion::V13 => &rustls::version::TLS13,
        })
        .collect();
    // Not the process's default: other code of the process has its own choice.
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&versions)
        .map_err(|error| fault(&error))?;
    let builder = match auth {
        None => builder.with_no_client_auth(),
        Some(auth) => {
            let verifier = auth.verifier(provider).map_err(|error| fault(&error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut made = builder.with_cert_resolver(Arc::clone(sites) as Arc<_>);
    // A session is resumed by its ticket, in whichever process it comes to.
    made.session_storage = Arc::new(NoServerSessionStorage {});
    // A client with several connections gets one by each. A second one would cost as much again, and few use it.
    made.send_tls13_tickets = 1;
    // Early data can be replayed by anybody who has seen it (RFC 8446 section 8).
    assert_eq!(made.max_early_data_size, 0, "early data is off");
    Ok(made)
}

impl CurrentTls {
    /// Begins with these credentials.
    ///
    /// # Errors
    /// As [`ServerTls::new`].
    pub fn new(config: &Tls, credentials: &Credentials, alpn: &[Alpn]) -> Result<Self, TlsFault> {
        let ticket_keys = SharedTicketKeys::default();
        let first = ServerTls::new(config, credentials, &ticket_keys, alpn)?;
        crypto::gather_entropy();
        ticket_keys.replace(&credentials.ticket_keys);
        Ok(Self {
            has_demands: AtomicBool::new(!first.has_one_demand()),
            now: Mutex::new(Arc::new(first)),
            ticket_keys,
        })
    }

    /// What a connection that begins now is accepted with. The lock is held for the time of one clone.
    pub fn load(&self) -> Arc<ServerTls> {
        Arc::clone(&self.now.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a request for a host, as it names it without a port, came over a connection whose client was asked for
    /// something else. Such a client may have shown no certificate where this host demands one.
    pub fn is_misdirected(&self, host: Option<&str>, connection: ClientAuthId) -> bool {
        self.has_demands.load(Ordering::Relaxed) && self.load().client_auth_of(host) != connection
    }

    /// From now on these challenges of certificate authorities are answered, and no others: key and certificate in PEM,
    /// by name. To be called by the thread that calls [`CurrentTls::replace`].
    pub fn replace_challenges(&self, texts: &BTreeMap<String, String>) {
        let mut next = ServerTls::clone(&self.load());
        next.challenges = ChallengeConfigs::new(texts, &crypto::provider());
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }

    /// From now on new connections are accepted with these credentials.
    ///
    /// # Errors
    /// As [`ServerTls::new`]; then everything stays as it was.
    pub fn replace(
        &self,
        config: &Tls,
        credentials: &Credentials,
        alpn: &[Alpn],
    ) -> Result<(), TlsFault> {
        let mut next = ServerTls::new(config, credentials, &self.ticket_keys, alpn)?;
        next.challenges = self.load().challenges.clone();
        self.ticket_keys.replace(&credentials.ticket_keys);
        // Before the store: no connection of the new kind exists while requests are not looked at.
        self.has_demands
            .fetch_or(!next.has_one_demand(), Ordering::Relaxed);
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(())
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsFault {}

#[cfg(test)]
mod tests;
