//! Names of upstream servers as addresses: when the process opens, and again every `resolve_every`.
//!
//! The C library resolves, which may wait for the network: on threads that do nothing else, several names at once.

use std::io;
use std::net::ToSocketAddrs;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::typed::{Config, ServerAddress, Upstream};
use logging::Level;
use tokio::sync::oneshot;

use super::group::{EndpointAddress, UpstreamGroup};
use crate::blocking_pool::BlockingPool;
use crate::driver::Driver;
use crate::sync::lock;

/// How soon a name is tried again that has no address.
const AGAIN: Duration = Duration::from_secs(1);
/// Names that are resolved at once: a name server that does not answer takes a thread for some ten seconds.
const THREADS_MAX: usize = 8;

/// Starts the threads that resolve names; none where all servers have addresses.
pub(crate) fn start_resolvers(config: &Config) -> io::Result<BlockingPool> {
    let names = config.upstreams.iter().map(names_len);
    BlockingPool::start("mp-resolver", names.sum::<usize>().min(THREADS_MAX))
}

/// Servers whose addresses may change.
fn names_len(settings: &Upstream) -> usize {
    let servers = settings.servers.iter();
    let names = servers.filter(|server| EndpointAddress::known(&server.address).is_none());
    names.count()
}

/// The servers of a group as they are known now, and why some are not.
#[derive(Debug, Default)]
pub(super) struct ResolvedServers {
    /// By server; none where its name could not be resolved.
    addresses: Vec<Vec<EndpointAddress>>,
    faults: Vec<String>,
    /// What the group says of these addresses.
    notes: Vec<String>,
}

/// The servers of a group while their names are resolved, by server.
struct Lookups(Vec<Lookup>);

enum Lookup {
    Known(EndpointAddress),
    Asked(oneshot::Receiver<io::Result<Vec<EndpointAddress>>>),
}

impl Lookups {
    /// Has all names of a group resolved.
    fn begin(settings: &Upstream, resolvers: &BlockingPool) -> Self {
        let lookup = |address: &ServerAddress| match EndpointAddress::known(address) {
            Some(address) => Lookup::Known(address),
            None => {
                let (sender, receiver) = oneshot::channel();
                let address = address.clone();
                // Its driver may have ended.
                resolvers.submit(move || drop(sender.send(addresses_of(&address))));
                Lookup::Asked(receiver)
            }
        };
        let servers = settings.servers.iter();
        Self(servers.map(|server| lookup(&server.address)).collect())
    }

    /// What has come of it. Waits for the network, on a thread without a runtime.
    fn wait(self, settings: &Upstream) -> ResolvedServers {
        let mut resolved = ResolvedServers::default();
        for (lookup, server) in self.0.into_iter().zip(&settings.servers) {
            let found = match lookup {
                Lookup::Known(address) => Ok(vec![address]),
                Lookup::Asked(answer) => answer.blocking_recv().unwrap_or_else(no_answer),
            };
            resolved.add(&server.address, found);
        }
        resolved
    }

    /// What has come of it, once it has.
    async fn ended(self, settings: &Upstream) -> ResolvedServers {
        let mut resolved = ResolvedServers::default();
        for (lookup, server) in self.0.into_iter().zip(&settings.servers) {
            let found = match lookup {
                Lookup::Known(address) => Ok(vec![address]),
                Lookup::Asked(answer) => answer.await.unwrap_or_else(no_answer),
            };
            resolved.add(&server.address, found);
        }
        resolved
    }
}

impl ResolvedServers {
    fn add(&mut self, server: &ServerAddress, found: io::Result<Vec<EndpointAddress>>) {
        self.addresses.push(found.unwrap_or_else(|error| {
            let text = format!("the upstream server {server} has no address: {error}");
            self.faults.push(text);
            Vec::new()
        }));
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.faults.iter().chain(&self.notes)
    }
}

fn addresses_of(address: &ServerAddress) -> io::Result<Vec<EndpointAddress>> {
    let ServerAddress::Tcp { host, port } = address else {
        return Ok(Vec::new());
    };
    let mut found: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
    // In an order of their own: servers of names answer in another one each time.
    found.sort_unstable();
    found.dedup();
    Ok(found.into_iter().map(EndpointAddress::Tcp).collect())
}

fn no_answer(_: oneshot::error::RecvError) -> io::Result<Vec<EndpointAddress>> {
    Err(io::Error::other("the lookup panicked"))
}

impl UpstreamGroup {
    /// Finds out where the servers of all groups are. Waits for the network, where they have names. Gives what went wrong.
    pub(crate) fn resolve_all(groups: &[Arc<Self>], resolvers: &BlockingPool) -> Vec<String> {
        // All at once: of several names that nobody answers for, the start waits for the slowest.
        let begin = |group: &Arc<Self>| Lookups::begin(&group.settings, resolvers);
        let begun: Vec<_> = groups.iter().map(begin).collect();
        let ended = groups.iter().zip(begun);
        let news = ended.flat_map(|(group, lookups)| {
            let resolved = lookups.wait(&group.settings);
            group.take_resolved(resolved)
        });
        news.collect()
    }

    /// From now on the servers have these addresses. What could not be resolved keeps the addresses that it had. Gives what
    /// is to be said and was not said the last time.
    fn take_resolved(&self, mut resolved: ResolvedServers) -> Vec<String> {
        // One thread at a time resolves: the opening one, then driver 0.
        let known = std::mem::take(&mut *lock(&self.resolved));
        for (new, old) in resolved.addresses.iter_mut().zip(&known.addresses) {
            if new.is_empty() {
                new.clone_from(old);
            }
        }
        resolved.notes = self.set_addresses(&resolved.addresses, telemetry::now());
        let is_new = |text: &&String| known.texts().all(|said| said != *text);
        let news = resolved.texts().filter(is_new).cloned().collect();
        *lock(&self.resolved) = resolved;
        news
    }
}

impl Driver {
    /// Resolves the names of a group again and again, while the driver runs. What goes wrong is said once.
    pub(super) async fn keep_resolving(self: Rc<Self>, group: Arc<UpstreamGroup>) {
        if names_len(&group.settings) == 0 {
            return;
        }
        let every = Duration::from_nanos(group.settings.resolve_every.0);
        loop {
            let lookups = Lookups::begin(&group.settings, &self.shared.resolvers);
            let resolved = lookups.ended(&group.settings).await;
            let is_whole = resolved.faults.is_empty();
            for text in group.take_resolved(resolved) {
                self.shared.log.error(Level::Warning, &text);
            }
            tokio::time::sleep(if is_whole { every } else { every.min(AGAIN) }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::group;
    use super::*;

    fn resolved(found: io::Result<u16>) -> ResolvedServers {
        let mut resolved = ResolvedServers::default();
        let server = ServerAddress::Tcp {
            host: "one.test".to_owned(),
            port: 80,
        };
        let address = |port| vec![EndpointAddress::Tcp(([127, 0, 0, 1], port).into())];
        resolved.add(&server, found.map(address));
        resolved
    }

    #[test]
    fn a_name_that_is_not_resolved_again_keeps_its_addresses() {
        let slots = Arc::new(ipc::stats::SharedSlots::private().unwrap());
        let group = group("back", &slots);
        let names = || -> Vec<String> { group.endpoints().iter().map(|one| one.name()).collect() };
        let failed = || resolved(Err(io::Error::other("no answer")));
        let said = "the upstream server one.test:80 has no address: no answer";
        assert_eq!(group.take_resolved(failed()), [said]);
        assert!(names().is_empty());
        assert!(group.take_resolved(resolved(Ok(1))).is_empty());
        // Said once each time that it begins to fail.
        for expect in [&[said][..], &[]] {
            assert_eq!(group.take_resolved(failed()), expect);
            assert_eq!(names(), ["127.0.0.1:1"]);
        }
        assert!(group.take_resolved(resolved(Ok(2))).is_empty());
        assert_eq!(names(), ["127.0.0.1:2"]);
    }
}
