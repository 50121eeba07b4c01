//! The sockets of one address: which are wanted, which are surplus, and how the surplus is closed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use os::invariant;
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use crate::control::status::AddressStatus;
use crate::handed;
use crate::reuseport_bpf::BpfProgram;
use crate::service_manager::listens_on;
use crate::sockets::Depth;
use config::typed::{Listen, Steering};
use ipc::ListenAddr;
use ipc::listen::{self, TcpAddress};
use ipc::unix_listen::SocketFile;

/// Between the order to accept from a socket no longer and its end.
const CLOSING: Duration = Duration::from_secs(1);
/// How often a surplus socket that is old enough, but not empty, is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What of the configuration an address comes from: by this it is found again after a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AddressOrigin {
    /// As configured: the port may be 0. Whether it is for IPv6 alone cannot be changed once a socket is bound.
    Tcp(TcpAddress),
    Unix(PathBuf),
    Inherited {
        name: String,
        at: ListenAddr,
    },
}

/// Whether the kernel spreads connections over several sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SocketSharing {
    /// By SO_REUSEPORT.
    Ports,
    /// One socket for all.
    Queue,
}

/// The sockets of one address.
#[derive(Serialize, Deserialize)]
pub(super) struct ListenerGroup {
    pub(super) origin: AddressOrigin,
    pub(super) at: ListenAddr,
    /// Connections begin with a TLS handshake.
    #[serde(default)]
    pub(super) is_tls: bool,
    /// Of a unix socket: it is removed when the address closes.
    #[serde(default)]
    pub(super) file: Option<SocketFile>,
    pub(super) sharing: SocketSharing,
    /// By index; the kernel has them in the same order.
    pub(super) held: Vec<Held>,
    /// So many, from the first on, get new connections; at least 1.
    pub(super) wanted_len: usize,
    /// For how many drivers they are in all processes together.
    pub(super) drivers_len: usize,
    pub(super) choice: Steering,
    pub(super) program: Option<BpfProgram>,
    /// The kernel takes no programs: the surplus stays for good.
    pub(super) refuses_programs: bool,
    pub(super) backlog_effective: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Held {
    #[serde(with = "handed::fd")]
    pub(super) socket: OwnedFd,
    pub(super) stage: Stage,
}

/// A socket's life, as drawn above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    Wanted,
    Surplus {
        #[serde(with = "handed::moment")]
        since: Instant,
    },
    Closing {
        #[serde(with = "handed::moment")]
        since: Instant,
    },
}

impl ListenerGroup {
    /// Several drivers wait on its one socket.
    pub(super) fn is_shared(&self) -> bool {
        self.sharing == SocketSharing::Queue && self.drivers_len > 1
    }

    pub(super) fn is_inherited(&self) -> bool {
        matches!(self.origin, AddressOrigin::Inherited { .. })
    }

    /// Indices of the sockets that processes accept from.
    pub(super) fn accepted_from(&self) -> impl Iterator<Item = usize> + '_ {
        let held = self.held.iter().enumerate();
        held.filter(|(_, held)| !matches!(held.stage, Stage::Closing { .. }))
            .map(|(index, _)| index)
    }

    pub(super) fn socket(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.held.get(index).map(|held| held.socket.as_fd())
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.held.iter().map(|held| held.socket.as_fd())
    }

    pub(super) fn depths(&self) -> impl Iterator<Item = (usize, Depth)> + '_ {
        let sockets = self.sockets().enumerate();
        sockets.filter_map(|(index, socket)| Some((index, self.depth(socket)?)))
    }

    pub(super) fn status(&self) -> AddressStatus {
        let depths = self.depths().map(|(_, depth)| u64::from(depth.waiting));
        AddressStatus {
            url: match &self.at {
                ListenAddr::Tcp(at) if self.is_tls => format!("https://{at}"),
                ListenAddr::Tcp(at) => format!("http://{at}"),
                ListenAddr::Unix(path) => format!("unix:{}", path.display()),
            },
            sockets: self.held.len(),
            backlog: match self.is_inherited() {
                true => 0,
                false => self.backlog_effective,
            },
            accept_queue: depths.reduce(u64::saturating_add),
        }
    }

    /// How many more sockets are needed for so many drivers.
    pub(super) fn lacks(&self, drivers_len: usize) -> usize {
        match self.sharing {
            SocketSharing::Ports => drivers_len.saturating_sub(self.held.len()),
            SocketSharing::Queue => 0,
        }
    }

    /// From here on so many sockets get new connections; as many must be there, and listen.
    pub(super) fn want(&mut self, drivers_len: usize, choice: Steering, now: Instant) {
        self.choice = choice;
        self.drivers_len = drivers_len;
        self.wanted_len = match self.sharing {
            SocketSharing::Ports => drivers_len,
            SocketSharing::Queue => 1,
        };
        invariant!(
            self.sharing == SocketSharing::Queue || self.held.len() >= self.wanted_len,
            "{} sockets are wanted of {} that there are",
            self.wanted_len,
            self.held.len()
        );
        for (index, held) in self.held.iter_mut().enumerate() {
            // A closing socket that is wanted again is open still: nothing is lost by taking it back.
            held.stage = match held.stage {
                _ if index < self.wanted_len => Stage::Wanted,
                Stage::Wanted => Stage::Surplus { since: now },
                before => before,
            };
        }
        self.steer();
    }

    /// # Errors
    /// What was written of it contradicts itself, or a descriptor is no listening socket.
    pub(super) fn check(&self) -> io::Result<()> {
        let is_wanted = |held: &Held| held.stage == Stage::Wanted;
        let mut held = self.held.iter().enumerate();
        // The wanted ones stand first, and at least one is wanted: all other code counts on that.
        let is_whole = (1..=self.held.len()).contains(&self.wanted_len)
            && held.all(|(index, held)| is_wanted(held) == (index < self.wanted_len));
        if !is_whole {
            return Err(io::Error::other("the list of sockets contradicts itself"));
        }
        self.held
            .iter()
            .try_for_each(|held| listens_on(&held.socket).map(drop))
    }

    /// Applies what can be changed of a socket that is open.
    pub(super) fn set_options(&mut self, listen: &Listen) -> io::Result<()> {
        for held in &self.held {
            let socket = SockRef::from(&held.socket);
            if matches!(self.at, ListenAddr::Tcp(_)) {
                listen::set_options(&socket, listen)?;
            }
            if !self.is_inherited() {
                // Again on a socket that listens: that is how a backlog is changed.
                listen::listen_on(&socket, listen)?;
            }
        }
        self.backlog_effective = listen::effective_backlog(listen);
        Ok(())
    }

    /// Closes the surplus from the last one on: the kernel moves its last socket to the place of one that is
    /// closed, and the order must stay that of the indices.
    /// Gives when there is something to do again.
    pub(super) fn retire(&mut self, now: Instant, age: Duration) -> Option<Instant> {
        if self.refuses_programs {
            return None;
        }
        let mut next = None;
        for index in (self.wanted_len..self.held.len()).rev() {
            let is_empty = self.is_empty(index);
            let due = match self.held[index].stage {
                Stage::Wanted => break,
                Stage::Surplus { since } if now < since + age => since + age,
                Stage::Surplus { .. } if !is_empty => now + LOOK,
                Stage::Surplus { .. } => {
                    // Processes are told to accept no longer and need a moment to obey. Closed at once, it would reset a
                    // connection that came between the look and the close.
                    self.held[index].stage = Stage::Closing { since: now };
                    now + CLOSING
                }
                Stage::Closing { since } if !is_empty => {
                    // Somebody came late after all: it is accepted from again.
                    // With its old age: when it is empty again, nothing has to be waited for but the moment of its
                    // close.
                    self.held[index].stage = Stage::Surplus { since };
                    now + LOOK
                }
                Stage::Closing { since } if now < since + CLOSING => since + CLOSING,
                Stage::Closing { .. } if index + 1 == self.held.len() => {
                    self.close_last();
                    continue;
                }
                // One behind it is still open.
                Stage::Closing { .. } => now + CLOSING,
            };
            next = next.into_iter().chain([due]).min();
            if !matches!(self.held[index].stage, Stage::Closing { .. }) {
                break;
            }
        }
        if self.held.len() == self.wanted_len {
            self.steer();
        }
        next
    }

    fn close_last(&mut self) {
        invariant!(
            self.held.len() > self.wanted_len,
            "a socket is closed that gets new connections"
        );
        let Some(held) = self.held.pop() else { return };
        // A process that has not obeyed yet has a copy: this ends the listening of all of them.
        listen::end(&held.socket);
    }

    /// Sees to it that the kernel chooses among the wanted ones.
    fn steer(&mut self) {
        let program = BpfProgram::wanted(self.choice, self.wanted_len, self.held.len());
        if self.sharing == SocketSharing::Queue || program == self.program {
            return;
        }
        let Some(first) = self.socket(0) else { return };
        let steered = match program {
            Some(program) => program.attach(first),
            None => os::remove_reuseport_program(first),
        };
        match steered {
            Ok(()) => self.program = program,
            // Kernels before 5.3 cannot detach; a choice among all is as good.
            Err(_) if program.is_none() => {
                let all = self.program.map(|program| BpfProgram {
                    among: u16::try_from(self.wanted_len).unwrap_or(program.among),
                    ..program
                });
                if all.is_some_and(|all| all.attach(first).is_ok()) {
                    self.program = all;
                }
            }
            Err(_) => {}
        }
        self.refuses_programs = steered_wrongly(self.program, self.wanted_len, self.held.len());
    }

    fn is_empty(&self, index: usize) -> bool {
        let depth = self.socket(index).and_then(|socket| self.depth(socket));
        depth.is_some_and(|depth| depth.waiting == 0)
    }

    fn depth(&self, socket: BorrowedFd<'_>) -> Option<Depth> {
        if matches!(self.at, ListenAddr::Unix(_)) {
            return None;
        }
        let (waiting, waiting_max) = os::accept_queue(socket).ok()?;
        Some(Depth {
            waiting,
            waiting_max,
        })
    }
}

/// New connections may reach sockets that are not wanted.
fn steered_wrongly(program: Option<BpfProgram>, wanted_len: usize, held_len: usize) -> bool {
    held_len > wanted_len && program.is_none_or(|program| usize::from(program.among) > wanted_len)
}
