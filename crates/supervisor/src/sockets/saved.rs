//! The table as text and numbers of descriptors: for the supervisor's successor in the same process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};

use crate::reuseport_bpf::{BpfProgram, SocketChoice};
use crate::service_manager::{self, InheritedSocket};
use crate::sockets::group::{AddressOrigin, Held, ListenerGroup, SocketSharing, Stage};
use crate::sockets::{SURPLUS_AGE, Sockets};
use config::failure::{StartFault, plain};
use ipc::ListenAddr;

/// The table, its sockets by their numbers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Saved {
    groups: Vec<SavedGroup>,
    next_number: u16,
    spare: Vec<(String, RawFd)>,
    closed_inodes: Vec<u64>,
    defer_accept_secs: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedGroup {
    number: u16,
    origin: AddressOrigin,
    at: ListenAddr,
    sharing: SocketSharing,
    /// By index.
    sockets: Vec<RawFd>,
    wanted_len: usize,
    drivers_len: usize,
    /// How long the surplus has been one.
    surplus_ms: Vec<u64>,
    choice: SocketChoice,
    program: Option<BpfProgram>,
    refuses_programs: bool,
    backlog_effective: u32,
}

impl Sockets {
    /// Says what there is, and leaves all sockets open for the program that is started next in this process.
    /// If that fails, [`Sockets::keep`] is to be called.
    pub(crate) fn save(&self, now: Instant) -> io::Result<Saved> {
        self.mark(FdFlags::empty())?;
        let groups = self.groups.iter();
        let spare = self.spare.iter();
        Ok(Saved {
            groups: groups
                .map(|(number, group)| save_group(*number, group, now))
                .collect(),
            next_number: self.next_number,
            spare: spare
                .map(|spare| (spare.name.clone(), spare.socket.as_raw_fd()))
                .collect(),
            closed_inodes: self.closed_inodes.iter().copied().collect(),
            defer_accept_secs: self.defer_accept.as_secs(),
        })
    }

    /// No program that is started gets the sockets: the rule, and what holds again after a start that failed.
    pub(crate) fn keep(&self) -> io::Result<()> {
        self.mark(FdFlags::CLOEXEC)
    }

    /// Takes over what a predecessor has left; to be called once.
    ///
    /// # Errors
    /// One of the descriptors is not what it is said to be.
    pub(crate) fn adopt(saved: Saved, now: Instant) -> Result<Sockets, StartFault> {
        adopt(saved, now).map_err(|error| StartFault {
            what: "cannot take over the listening sockets".to_owned(),
            cause: plain(&error),
            hint: None,
        })
    }

    fn mark(&self, flags: FdFlags) -> io::Result<()> {
        let sockets = self.groups.values().flat_map(ListenerGroup::sockets);
        let spare = self.spare.iter().map(|spare| spare.socket.as_fd());
        let mut all = sockets.chain(spare);
        all.try_for_each(|socket: BorrowedFd<'_>| Ok(rustix::io::fcntl_setfd(socket, flags)?))
    }
}

fn save_group(number: u16, group: &ListenerGroup, now: Instant) -> SavedGroup {
    let age = |held: &Held| match held.stage {
        Stage::Wanted => None,
        // One that was closing begins again, with nothing to wait for but the order to processes.
        Stage::Surplus { since } | Stage::Closing { since } => {
            let age = now.saturating_duration_since(since).as_millis();
            Some(u64::try_from(age).unwrap_or(u64::MAX))
        }
    };
    SavedGroup {
        number,
        origin: group.origin.clone(),
        at: group.at.clone(),
        sharing: group.sharing,
        sockets: group.sockets().map(|socket| socket.as_raw_fd()).collect(),
        wanted_len: group.wanted_len,
        drivers_len: group.drivers_len,
        surplus_ms: group.held.iter().filter_map(age).collect(),
        choice: group.choice,
        program: group.program,
        refuses_programs: group.refuses_programs,
        backlog_effective: group.backlog_effective,
    }
}

fn adopt(saved: Saved, now: Instant) -> io::Result<Sockets> {
    let mut spare = Vec::new();
    for (name, number) in saved.spare {
        let socket = os::adopt_fd(number)?;
        let at = service_manager::listens_on(&socket)?;
        spare.push(InheritedSocket { name, socket, at });
    }
    let groups = saved.groups.into_iter();
    let groups = groups.map(|group| Ok((group.number, adopt_group(group, now)?)));
    Ok(Sockets {
        groups: groups.collect::<io::Result<_>>()?,
        next_number: saved.next_number,
        spare,
        is_changing: false,
        closed_inodes: saved.closed_inodes.into(),
        surplus_age: SURPLUS_AGE,
        defer_accept: Duration::from_secs(saved.defer_accept_secs),
    })
}

fn adopt_group(saved: SavedGroup, now: Instant) -> io::Result<ListenerGroup> {
    let is_whole = (1..=saved.sockets.len()).contains(&saved.wanted_len)
        && saved.surplus_ms.len() == saved.sockets.len() - saved.wanted_len;
    if !is_whole {
        return Err(io::Error::other("the list of sockets contradicts itself"));
    }
    let wanted = std::iter::repeat_n(Stage::Wanted, saved.wanted_len);
    let surplus = saved.surplus_ms.iter().map(|age| Stage::Surplus {
        since: now.checked_sub(Duration::from_millis(*age)).unwrap_or(now),
    });
    let mut held = Vec::new();
    for (number, stage) in saved.sockets.iter().zip(wanted.chain(surplus)) {
        let socket = os::adopt_fd(*number)?;
        service_manager::listens_on(&socket)?;
        held.push(Held { socket, stage });
    }
    Ok(ListenerGroup {
        origin: saved.origin,
        at: saved.at,
        sharing: saved.sharing,
        held,
        wanted_len: saved.wanted_len,
        drivers_len: saved.drivers_len,
        choice: saved.choice,
        program: saved.program,
        refuses_programs: saved.refuses_programs,
        backlog_effective: saved.backlog_effective,
    })
}
