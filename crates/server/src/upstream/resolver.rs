//! Names of upstream servers as addresses: when the process opens, and again every `resolve_every`.
//!
//! The C library resolves, which may wait for the network: on the opening thread, then on threads that may wait.

use std::net::ToSocketAddrs;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::typed::{ServerAddress, Upstream};
use logging::Level;

use super::group::{EndpointAddress, UpstreamGroup};
use crate::driver::Driver;

/// How soon a name is tried again that has no address.
const AGAIN: Duration = Duration::from_secs(1);

/// The servers of a group as they are known now, and why some are not.
pub(super) struct ResolvedServers {
    /// By server; none where its name could not be resolved.
    addresses: Vec<Vec<EndpointAddress>>,
    faults: Vec<String>,
}

impl ResolvedServers {
    /// Resolves all names of a group. Waits for the network.
    fn of(settings: &Upstream) -> Self {
        let mut resolved = Self {
            addresses: Vec::new(),
            faults: Vec::new(),
        };
        for server in &settings.servers {
            let addresses = match EndpointAddress::known(&server.address) {
                Some(address) => Ok(vec![address]),
                None => addresses_of(&server.address),
            };
            resolved.addresses.push(addresses.unwrap_or_else(|error| {
                let text = format!(
                    "the upstream server {} has no address: {error}",
                    server.address
                );
                resolved.faults.push(text);
                Vec::new()
            }));
        }
        resolved
    }
}

fn addresses_of(address: &ServerAddress) -> std::io::Result<Vec<EndpointAddress>> {
    let ServerAddress::Tcp { host, port } = address else {
        return Ok(Vec::new());
    };
    let mut found: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
    // In an order of their own: servers of names answer in another one each time.
    found.sort_unstable();
    found.dedup();
    Ok(found.into_iter().map(EndpointAddress::Tcp).collect())
}

/// Whether the addresses of a group may change.
fn has_names(settings: &Upstream) -> bool {
    let mut servers = settings.servers.iter();
    servers.any(|server| EndpointAddress::known(&server.address).is_none())
}

impl UpstreamGroup {
    /// Finds out where the servers are. Waits for the network, where they have names. Gives what went wrong.
    pub(crate) fn resolve(&self) -> Vec<String> {
        let mut resolved = ResolvedServers::of(&self.settings);
        let notes = self.set_addresses(&resolved.addresses, telemetry::now());
        resolved.faults.extend(notes);
        resolved.faults
    }
}

impl Driver {
    /// Resolves the names of a group again and again, while the driver runs. What cannot be resolved keeps the addresses
    /// that it had; it is said once.
    pub(super) async fn keep_resolving(self: Rc<Self>, group: Arc<UpstreamGroup>) {
        if !has_names(&group.settings) {
            return;
        }
        let every = Duration::from_nanos(group.settings.resolve_every.0);
        let mut known: Vec<Vec<EndpointAddress>> = Vec::new();
        let mut faults = Vec::new();
        loop {
            let settings = group.settings.clone();
            let resolving = self
                .shared
                .openers
                .run(move || ResolvedServers::of(&settings));
            let Ok(mut resolved) = resolving.await else {
                return;
            };
            known.resize(resolved.addresses.len(), Vec::new());
            for (new, old) in resolved.addresses.iter_mut().zip(&mut known) {
                match new.is_empty() {
                    true => new.clone_from(old),
                    false => old.clone_from(new),
                }
            }
            let notes = group.set_addresses(&resolved.addresses, telemetry::now());
            let is_whole = resolved.faults.is_empty();
            resolved.faults.extend(notes);
            let is_new = |fault: &&String| !faults.contains(*fault);
            for fault in resolved.faults.iter().filter(is_new) {
                self.shared.log.error(Level::Warning, fault);
            }
            faults = resolved.faults;
            tokio::time::sleep(if is_whole { every } else { every.min(AGAIN) }).await;
        }
    }
}
