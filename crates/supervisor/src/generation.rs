//! One configuration and the places of its processes.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use config::typed::{Config, PoolConfig};

use ipc::payload::{self, Payload};
use ipc::stats::Shape;
use os::invariant;

use super::certificates::HandedCredentials;
use super::commands::duration;
use super::fleet::Slots;
use super::restart_policy::RestartHistory;
use super::sockets::Change;

/// One configuration, with what has become of the processes in each of its places.
pub(super) struct Generation {
    pub(super) id: u64,
    pub(super) config: Config,
    pub(super) notes: Vec<String>,
    pub(super) payload: Payload,
    /// The payload, for processes to read.
    pub(super) file: OwnedFd,
    /// Its certificates with their keys, where it speaks TLS.
    pub(super) credentials: Option<HandedCredentials>,
    /// Its certificates are being read, and are waited for until this moment: no process of it is started before.
    pub(super) awaited_until: Option<Instant>,
    /// How its counters are laid out.
    pub(super) shape: Shape,
    /// By place.
    pub(super) lives: Vec<RestartHistory>,
    pub(super) template: RestartHistory,
    /// What becomes of the sockets when it begins to serve.
    pub(super) change: Option<Change>,
    pub(super) made: Instant,
    /// Pools whose sizes are no longer those of the payload, by their index.
    reshaped: BTreeSet<usize>,
}

impl Generation {
    pub(super) fn new(
        id: u64,
        config: Config,
        notes: Vec<String>,
        payload: Payload,
    ) -> io::Result<Self> {
        let shape = Shape::of(&config);
        Ok(Self {
            id,
            file: payload::to_file(&payload)?,
            credentials: None,
            awaited_until: None,
            lives: vec![RestartHistory::default(); config.processes.count],
            config,
            notes,
            payload,
            shape,
            template: RestartHistory::default(),
            change: None,
            made: Instant::now(),
            reshaped: BTreeSet::new(),
        })
    }

    /// Listening sockets of each address that can be shared out.
    pub(super) fn sockets_len(&self) -> usize {
        self.count() * self.config.listen.drivers
    }

    /// Processes that are to serve.
    pub(super) fn count(&self) -> usize {
        self.lives.len()
    }

    /// Has more or fewer places from now on.
    pub(super) fn resize(&mut self, count: usize) {
        invariant!(count > 0, "generation {} is to have no process", self.id);
        // What has become of the processes in the slots that stay is kept.
        self.lives.resize(count, RestartHistory::default());
        self.config.processes.count = count;
    }

    /// A pool has another size from now on, in processes that are still to come too.
    pub(super) fn reshape(&mut self, pool: usize, threads_min: usize, threads_max: usize) {
        invariant!(
            1 <= threads_min && threads_min <= threads_max,
            "a pool is to have {threads_min} to {threads_max} threads"
        );
        self.config.pools[pool].threads_min = threads_min;
        self.config.pools[pool].threads_max = threads_max;
        self.reshaped.insert(pool);
    }

    /// Pools whose sizes are not those that are written.
    pub(super) fn reshaped(&self) -> impl Iterator<Item = &PoolConfig> {
        self.reshaped.iter().map(|pool| &self.config.pools[*pool])
    }

    /// The file of its certificates and keys, for a process.
    pub(super) fn credentials_file(&self) -> io::Result<Option<OwnedFd>> {
        let credentials = self.credentials.as_ref();
        credentials.map(HandedCredentials::file).transpose()
    }

    /// A template forks its processes.
    pub(super) fn has_template(&self) -> bool {
        // A page of faults needs no application.
        self.config.processes.preload && self.payload.failure.is_none()
    }

    /// What a decision needs to know of it.
    pub(super) fn slots(&self) -> Slots<'_> {
        let start_limit = duration(self.config.processes.start_timeout);
        Slots {
            generation: self.id,
            lives: &self.lives,
            template: self.has_template().then_some(&self.template),
            is_awaited: self.awaited_until.is_some(),
            start_limit: (!start_limit.is_zero()).then_some(start_limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation() -> Generation {
        let payload = Payload::default();
        Generation::new(1, Config::default(), Vec::new(), payload).unwrap()
    }

    #[test]
    fn has_as_many_places_as_processes() {
        let mut generation = generation();
        generation.resize(3);
        assert_eq!(generation.count(), 3);
        let drivers = generation.config.listen.drivers;
        assert_eq!(generation.sockets_len(), 3 * drivers);
    }

    #[test]
    #[should_panic(expected = "generation 1 is to have no process")]
    fn a_generation_without_processes_is_a_bug() {
        generation().resize(0);
    }
}
