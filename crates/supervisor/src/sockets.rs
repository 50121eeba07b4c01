//! The supervisor's table of listening sockets, known by (address, index): opened before rights are given
//! up, grown and shrunk while connections come in, handed over to the supervisor's own successor.
//!
//! Takes the configuration and `now`, gives descriptors to be sent to processes. Accepts nothing, knows no
//! process, and closes no socket in which a connection could wait:
//!
//! ```text
//!              shrink                 old enough, nothing waits           a moment later
//!  WANTED ───────────────► SURPLUS ──────────────────────────► CLOSING ─────────────────► closed
//!    ▲  ▲                  │    ▲                               │    │
//!    │  └────── grow ──────┘    └────── something waits ────────┘    │
//!    └───────────────────────── grow ────────────────────────────────┘
//! ```
//!
//! New connections reach the wanted ones only, by a program in the kernel; handshakes that had begun end up
//! in the surplus, from which processes go on to accept. A closing socket is nobody's.

mod change;
mod foreign;
mod group;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::control::status::AddressStatus;
use crate::listener_assignment::ListeningSocket;
use crate::privileges::{self, UserIdentity};
use crate::service_manager::{InheritedSocket, listens_on};
use config::failure::StartFault;
use config::typed::Config;
use ipc::listen;
use ipc::unix_listen::SocketFile;
use ipc::{ListenerId, ListenerInfo};

pub(crate) use change::Change;
use group::ListenerGroup;

/// A handshake that has begun is given up by the kernel after 63 seconds (`tcp_synack_retries` = 5).
const SURPLUS_AGE: Duration = Duration::from_secs(70);
/// Inodes of closed sockets that are remembered, because processes may have them open for a while.
const CLOSED_LEN_MAX: usize = 4096;

/// A socket's name, the same for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct SocketKey {
    pub(crate) address: u16,
    pub(crate) index: u16,
}

impl SocketKey {
    /// The same for a driver.
    pub(crate) fn listener(self, driver: u16) -> ListenerId {
        ListenerId {
            address: self.address,
            index: self.index,
            driver,
        }
    }
}

/// The table.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sockets {
    /// By number.
    groups: BTreeMap<u16, ListenerGroup>,
    next_number: u16,
    /// From the service manager, and not wanted just now.
    spare: Vec<InheritedSocket>,
    /// A change is being tried: nothing is closed meanwhile.
    #[serde(skip)]
    is_changing: bool,
    closed_inodes: VecDeque<u64>,
    /// So much longer may they need that have sent nothing.
    defer_accept: Duration,
}

/// Connections in a socket's accept queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depth {
    pub(crate) waiting: u32,
    pub(crate) waiting_max: u32,
}

impl Sockets {
    /// Opens every address with so many sockets each, as far as an address can be shared.
    ///
    /// # Errors
    /// An address cannot be had; nothing stays open then.
    pub(crate) fn open(
        config: &Config,
        inherited: Vec<InheritedSocket>,
        sockets_per_address: usize,
        now: Instant,
    ) -> Result<Sockets, StartFault> {
        let mut sockets = Sockets {
            groups: BTreeMap::new(),
            next_number: 0,
            spare: inherited,
            is_changing: false,
            closed_inodes: VecDeque::new(),
            defer_accept: Duration::ZERO,
        };
        let change = sockets.adjust(config, sockets_per_address)?;
        sockets.commit(change, now)?;
        Ok(sockets)
    }

    /// Sockets that processes are to accept from.
    pub(crate) fn listeners(&self) -> Vec<ListeningSocket> {
        let groups = self.groups.iter();
        groups
            .flat_map(|(number, group)| {
                group.accepted_from().map(|index| ListeningSocket {
                    key: key(*number, index),
                    home: index % group.wanted_len,
                    is_shared: group.is_shared(),
                })
            })
            .collect()
    }

    /// What a process needs to accept from a socket, as if it were the only one; none for one that is closed.
    pub(crate) fn listener(&self, key: ListenerId) -> Option<(ListenerInfo, BorrowedFd<'_>)> {
        let group = self.groups.get(&key.address)?;
        let socket = group.socket(key.index.into())?;
        let order = ListenerInfo {
            key,
            at: group.at.clone(),
            is_shared: group.is_shared(),
            takes_turns: false,
            is_tls: group.is_tls,
            is_inherited: group.is_inherited(),
        };
        Some((order, socket))
    }

    /// Connections that wait, by socket; only TCP says.
    pub(crate) fn waiting(&self) -> BTreeMap<SocketKey, Depth> {
        let groups = self.groups.iter();
        groups
            .flat_map(|(number, group)| {
                let depths = group.depths();
                depths.map(move |(index, depth)| (key(*number, index), depth))
            })
            .collect()
    }

    /// Closes what is surplus, step by step; gives when there is something to do again.
    pub(crate) fn retire(&mut self, now: Instant) -> Option<Instant> {
        if self.is_changing {
            return None;
        }
        // With TCP_DEFER_ACCEPT a client that sends nothing is accepted only after that time.
        let age = SURPLUS_AGE + self.defer_accept;
        let groups = self.groups.values_mut();
        groups.filter_map(|group| group.retire(now, age)).min()
    }

    /// All addresses, in the order of their numbers.
    pub(crate) fn addresses(&self) -> Vec<AddressStatus> {
        self.groups.values().map(ListenerGroup::status).collect()
    }

    /// Numbers of the addresses that close when the supervisor ends. Those of the service manager stay open:
    /// what waits there is for the service's next start.
    pub(crate) fn closing_at_end(&self) -> Vec<u16> {
        let groups = self.groups.iter();
        let ours = groups.filter(|(_, group)| !group.is_inherited());
        ours.map(|(number, _)| *number).collect()
    }

    /// Names of sockets of the service manager that no address of the configuration asks for.
    pub(crate) fn spare_names(&self) -> Vec<&str> {
        self.spare.iter().map(|spare| spare.name.as_str()).collect()
    }

    /// Gives all sockets and their files to the identity that the supervisor is about to become: a socket
    /// can be added to an address only by the user whose the others are.
    pub(crate) fn give(&self, identity: &UserIdentity) -> io::Result<()> {
        for group in self.groups.values().filter(|group| !group.is_inherited()) {
            for socket in group.sockets() {
                privileges::give_descriptor(socket, identity)?;
            }
        }
        for file in self.files() {
            privileges::give_socket_file(&file.path, identity)?;
        }
        Ok(())
    }

    /// Removes the files of unix sockets: nobody new finds them. The sockets stay open.
    pub(crate) fn remove_files(&self) {
        self.files().for_each(SocketFile::remove);
    }

    /// Ends the listening of all sockets of ours, in whichever process they are open: one that the application
    /// has forked may live on with copies, and would keep the address from the server's next start.
    pub(crate) fn end(&self) {
        for group in self.groups.values().filter(|group| !group.is_inherited()) {
            group.sockets().for_each(|socket| listen::end(&socket));
        }
    }

    /// Takes over what the program before has written of its table.
    ///
    /// # Errors
    /// It contradicts itself, or one of its descriptors is not what it is said to be.
    pub(crate) fn adopt(written: Value) -> Result<Sockets, StartFault> {
        let adopted = serde_json::from_value(written).map_err(io::Error::from);
        let adopted = adopted.and_then(|sockets: Sockets| {
            for group in sockets.groups.values() {
                group.check()?;
            }
            for spare in &sockets.spare {
                listens_on(&spare.socket)?;
            }
            Ok(sockets)
        });
        adopted.map_err(|error| StartFault::of_io("cannot take over the listening sockets", &error))
    }

    /// All of them, for the program that takes this one's place.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let sockets = self.groups.values().flat_map(ListenerGroup::sockets);
        sockets.chain(self.spare.iter().map(|spare| spare.socket.as_fd()))
    }

    fn files(&self) -> impl Iterator<Item = &SocketFile> {
        let groups = self.groups.values();
        groups.filter_map(|group| group.file.as_ref())
    }

    /// Every TCP socket of ours, those included that only processes may still have open.
    fn own_inodes(&self) -> Vec<u64> {
        let sockets = self.groups.values().flat_map(ListenerGroup::sockets);
        let open = sockets.filter_map(inode);
        open.chain(self.closed_inodes.iter().copied()).collect()
    }
}

fn key(address: u16, index: usize) -> SocketKey {
    let index =
        u16::try_from(index).expect("an address has at most as many sockets as 16 bits count");
    SocketKey { address, index }
}

fn inode(socket: BorrowedFd<'_>) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|stat| stat.st_ino)
}
