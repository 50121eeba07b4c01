//! Do connections and sockets fit into the files that a process may have open?
//!
//! A serving process has connections and what belongs to them; as long as it is the only one that lives, it
//! hears the sockets of all others too. The supervisor has every listening socket, and two generations of
//! processes during a reload.

use super::Check;
use crate::fault::Origin;
use crate::typed::{Bind, Config};

/// Descriptors that a process needs beside its connections: log, standard streams, libraries' own.
const DESCRIPTORS_BASE: u64 = 128;
/// Descriptors that a driver needs: sockets, epoll, wake-ups, and its table of open large files, which
/// writers send from; writers and openers have none of their own.
const DESCRIPTORS_PER_DRIVER: u64 = 300;
/// Descriptors that the supervisor has for a process: channel and pidfd, for the old one and the new.
const DESCRIPTORS_PER_PROCESS: u64 = 4;

impl Check<'_> {
    /// An accept that fails for want of a descriptor is worse than a bound: the bound is known beforehand.
    pub(super) fn connections(&mut self, config: &mut Config) {
        let files_max = self.machine.open_files_max;
        let room = room(files_max, beside_connections(config)).max(1);
        // A note and no fault: the default is meant for servers, and a laptop with 1,024 files has to serve too.
        let wished = config.listen.connections_max;
        if wished as u64 > room {
            config.listen.connections_max = room as usize;
            self.note(format!(
                "connections_max is {room} instead of {wished}: at most {files_max} files may be open (ulimit -Hn)"
            ));
        }
    }

    /// Nothing works when the supervisor cannot open the sockets.
    pub(super) fn supervisor_files(&mut self, config: &Config, origin: &Origin) {
        let files_max = self.machine.open_files_max;
        let needed = of_supervisor(config);
        if needed > room(files_max, DESCRIPTORS_BASE) {
            let text = format!(
                "{} processes with {} drivers each need {needed} sockets and channels in the supervisor: at most \
                 {files_max} files may be open (ulimit -Hn)",
                config.processes.count, config.listen.drivers
            );
            self.statement(origin, text, "fewer of them, or a higher limit");
        }
    }
}

/// Descriptors that a process of this configuration needs, serving or supervisor.
pub fn open_files_needed(config: &Config) -> u64 {
    assert!(
        config.listen.drivers > 0 && config.processes.count > 0,
        "nobody serves"
    );
    // Every connection may have a spooled body, a spooled reply or a large file beside its socket.
    let of_serving = beside_connections(config) + 2 * config.listen.connections_max as u64;
    of_serving.max(DESCRIPTORS_BASE + of_supervisor(config))
}

/// What is left beside others; half of all files at least, because what others need is an estimate.
fn room(files_max: u64, others: u64) -> u64 {
    // Where others want more than half, a server that accepts little is of more use than one that does not start.
    files_max.saturating_sub(others).max(files_max / 2)
}

fn beside_connections(config: &Config) -> u64 {
    let drivers = config.listen.drivers as u64;
    let of_others = addresses(config) * drivers * (config.processes.count as u64).saturating_sub(1);
    DESCRIPTORS_BASE + DESCRIPTORS_PER_DRIVER * drivers + of_others
}

/// Beside the base.
fn of_supervisor(config: &Config) -> u64 {
    let processes = config.processes.count as u64;
    let sockets = addresses(config) * config.listen.drivers as u64 * processes;
    sockets + DESCRIPTORS_PER_PROCESS * processes
}

/// Addresses that have a socket for each driver.
fn addresses(config: &Config) -> u64 {
    let shareable = config.binds.iter().map(|bind| match bind {
        Bind::Tcp(addresses) => addresses.len(),
        Bind::Unix(_) | Bind::Inherited(_) => 0,
    });
    shareable.sum::<usize>() as u64
}
