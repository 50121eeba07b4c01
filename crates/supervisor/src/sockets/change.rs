//! A change of what is listened on, in two steps: everything new is bound before anything changes, and
//! begins to listen only once there are processes for it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use os::invariant;
use socket2::{SockRef, Socket};

use crate::privileges;
use crate::service_manager::InheritedSocket;
use crate::sockets::group::{AddressOrigin, Held, ListenerGroup, SocketSharing, Stage};
use crate::sockets::{CLOSED_LEN_MAX, Sockets, foreign, inode};
use config::failure::StartFault;
use config::typed::{Bind, Config, Listen, Steering};
use ipc::ListenAddr;
use ipc::listen::{self, TcpAddress};
use ipc::unix_listen::{self, SocketFile};

/// More sockets than drivers anywhere; their numbers have 16 bits.
const SOCKETS_LEN_MAX: usize = 16_384;

/// What is to be changed; nothing has changed yet. For [`Sockets::commit`] or [`Sockets::abandon`].
#[must_use]
pub(crate) struct Change {
    /// Addresses that stay.
    kept: Vec<KeptAddress>,
    /// Those of the service manager without their sockets, which stay where they are until the change is made.
    fresh: Vec<ListenerGroup>,
    leaving: Vec<u16>,
    drivers_len: usize,
    listen: Listen,
    /// Files of new unix sockets.
    files: SocketFiles,
}

/// An address that stays.
struct KeptAddress {
    number: u16,
    /// Sockets that it lacks.
    more: Vec<Held>,
    is_tls: bool,
}

/// Files that are removed unless they are kept.
#[derive(Default)]
struct SocketFiles(Vec<SocketFile>);

/// A change that was made.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// Addresses that close: processes take in what waits and close their sockets (`SupervisorCommand::Drain`).
    pub(crate) closing: Vec<u16>,
    /// What could not be applied to sockets that stay.
    pub(crate) warnings: Vec<String>,
}

impl Sockets {
    /// Opens what a configuration and a number of drivers (in all processes together) need in addition.
    /// Until the change is committed or abandoned, nothing is retired.
    ///
    /// # Errors
    /// An address cannot be had; nothing has changed then.
    pub(crate) fn adjust(
        &mut self,
        config: &Config,
        sockets_per_address: usize,
    ) -> Result<Change, StartFault> {
        let drivers_len = sockets_per_address.max(1);
        if drivers_len > SOCKETS_LEN_MAX {
            let what = format!("cannot open {drivers_len} sockets for each address");
            let fault = StartFault::new(what, format!("there can be {SOCKETS_LEN_MAX}"));
            return Err(fault.with_hint("processes times drivers is that number"));
        }
        let mut change = Change {
            kept: Vec::new(),
            fresh: Vec::new(),
            leaving: self.groups.keys().copied().collect(),
            drivers_len,
            listen: config.listen.clone(),
            files: SocketFiles::default(),
        };
        for (origin, is_tls) in self.origins(config)? {
            match self.known(&origin, &change.leaving) {
                Some(number) => {
                    change.leaving.retain(|leaving| *leaving != number);
                    let more = self.more(number, drivers_len, config)?;
                    change.kept.push(KeptAddress {
                        number,
                        more,
                        is_tls,
                    });
                }
                None => {
                    let fresh = self.fresh(origin, &mut change, config)?;
                    change.fresh.push(ListenerGroup { is_tls, ..fresh });
                }
            }
        }
        self.is_changing = true;
        Ok(change)
    }

    /// Makes a change: new sockets listen, surplus ones get no new connections, addresses that nobody wants
    /// any more are out of the table.
    ///
    /// # Errors
    /// A new socket cannot listen; nothing has changed then.
    pub(crate) fn commit(&mut self, change: Change, now: Instant) -> Result<Committed, StartFault> {
        invariant!(
            self.is_changing,
            "a change of the sockets is made that was never prepared"
        );
        self.is_changing = false;
        // All that can fail comes first: after this loop, nothing has to be taken back.
        let kept = change
            .kept
            .iter()
            .map(|kept| (&self.groups[&kept.number].at, &kept.more));
        let fresh = change.fresh.iter().map(|fresh| (&fresh.at, &fresh.held));
        for (at, held) in kept.chain(fresh) {
            for held in held {
                listen::listen_on(&SockRef::from(&held.socket), &change.listen)
                    .map_err(|error| fault(at, &error))?;
            }
        }
        let mut committed = Committed::default();
        self.defer_accept = Duration::from_secs(change.listen.defer_accept_secs.into());
        let choice = change.listen.steering;
        for number in change.leaving {
            self.forget(number, &mut committed);
        }
        for kept in change.kept {
            let group = self
                .groups
                .get_mut(&kept.number)
                .expect("a kept address is in the table");
            group.held.extend(kept.more);
            group.is_tls = kept.is_tls;
            committed.apply(group, &change.listen);
            group.want(change.drivers_len, choice, now);
        }
        for mut group in change.fresh {
            if group.held.is_empty() {
                group.held.extend(self.take_spare(&group.origin));
                committed.apply(&mut group, &change.listen);
            }
            group.want(change.drivers_len, choice, now);
            let number = self.number();
            self.groups.insert(number, group);
        }
        change.files.keep();
        Ok(committed)
    }

    /// Gives a change up: what it has opened is closed.
    pub(crate) fn abandon(&mut self, change: Change) {
        // Dropping it closes what it has opened and removes the files of its sockets.
        self.is_changing = false;
        drop(change);
    }

    /// What a configuration asks for, each once; any port (0) as often as it says. With each, whether it speaks TLS.
    fn origins(&self, config: &Config) -> Result<Vec<(AddressOrigin, bool)>, StartFault> {
        let mut all: Vec<(AddressOrigin, bool)> = Vec::new();
        for bind in &config.binds {
            let is_tls = config.tls.binds.contains(bind);
            let origins = match bind {
                Bind::Tcp(addresses) => {
                    let origin = |at: &SocketAddr| TcpAddress::new(*at, config);
                    let all = addresses.iter().map(origin);
                    all.map(AddressOrigin::Tcp).collect()
                }
                Bind::Unix(socket) => vec![AddressOrigin::Unix(socket.path.clone())],
                Bind::Inherited(name) => self.inherited(name.as_deref())?,
            };
            for origin in origins {
                let is_any = matches!(&origin, AddressOrigin::Tcp(wanted) if wanted.at.port() == 0);
                if is_any || all.iter().all(|(known, _)| *known != origin) {
                    all.push((origin, is_tls));
                }
            }
        }
        Ok(all)
    }

    fn inherited(&self, name: Option<&str>) -> Result<Vec<AddressOrigin>, StartFault> {
        let spare = self.spare.iter().map(origin_of);
        let used = self.groups.values().map(|group| group.origin.clone());
        let is_meant = |origin: &AddressOrigin| match origin {
            AddressOrigin::Inherited { name: own, .. } => name.is_none_or(|name| name == own),
            AddressOrigin::Tcp(_) | AddressOrigin::Unix(_) => false,
        };
        // Those in use come first, so that they stay where they are.
        let found: Vec<AddressOrigin> = used.chain(spare).filter(is_meant).collect();
        if found.is_empty() {
            let what = match name {
                Some(name) => format!("cannot listen on `systemd:{name}`"),
                None => "cannot listen on `systemd`".to_owned(),
            };
            let cause = "the service manager has handed over no such socket";
            let hint =
                "start the service by its `.socket` unit (`ListenStream=`, `FileDescriptorName=`)";
            return Err(StartFault::new(what, cause).with_hint(hint));
        }
        Ok(found)
    }

    /// The address in the table that serves an origin, if it is among those not spoken for.
    fn known(&self, origin: &AddressOrigin, free: &[u16]) -> Option<u16> {
        let find = |is: &dyn Fn(&ListenerGroup) -> bool| {
            free.iter().copied().find(|number| is(&self.groups[number]))
        };
        // By what was configured first: a port that was any must not be taken for another address that has it now.
        find(&|group| group.origin == *origin).or_else(|| find(&|group| is_bound_to(group, origin)))
    }

    fn more(&self, number: u16, len: usize, config: &Config) -> Result<Vec<Held>, StartFault> {
        let group = &self.groups[&number];
        let (ListenAddr::Tcp(at), AddressOrigin::Tcp(wanted)) = (&group.at, &group.origin) else {
            return Ok(Vec::new());
        };
        let address = TcpAddress { at: *at, ..*wanted };
        let more = (0..group.lacks(len)).map(|_| listen::bind_tcp(address, &config.listen));
        let opened: io::Result<Vec<Held>> = more.map(|one| one.map(Held::from)).collect();
        opened.map_err(|error| listen::tcp_fault(*at, &error))
    }

    fn fresh(
        &self,
        origin: AddressOrigin,
        change: &mut Change,
        config: &Config,
    ) -> Result<ListenerGroup, StartFault> {
        let mut file = None;
        let (at, sharing, sockets) = match &origin {
            AddressOrigin::Tcp(wanted) => {
                let mut own = self.own_inodes();
                let new = change.fresh.iter().flat_map(ListenerGroup::sockets);
                own.extend(new.filter_map(inode));
                // Looked for before it is bound: SO_REUSEPORT would share the address with a program of the same user,
                // silently.
                let opened = foreign::check_free(*wanted, &own)
                    .and_then(|()| share(*wanted, change.drivers_len, &config.listen));
                let (at, sharing, sockets) =
                    opened.map_err(|error| self.taken(wanted.at, &error))?;
                (ListenAddr::Tcp(at), sharing, sockets)
            }
            AddressOrigin::Unix(path) => {
                let (socket, made) = open_unix(path, config)?;
                change.files.0.push(made.clone());
                file = Some(made);
                let at = ListenAddr::Unix(path.clone());
                (at, SocketSharing::Queue, vec![socket])
            }
            AddressOrigin::Inherited { at, .. } => (at.clone(), SocketSharing::Queue, Vec::new()),
        };
        Ok(ListenerGroup {
            origin,
            at,
            is_tls: false,
            file,
            sharing,
            held: sockets.into_iter().map(Held::from).collect(),
            wanted_len: 1,
            drivers_len: 1,
            choice: Steering::Hash,
            program: None,
            refuses_programs: false,
            backlog_effective: listen::effective_backlog(&config.listen),
        })
    }

    fn taken(&self, wanted: SocketAddr, error: &io::Error) -> StartFault {
        let fault = listen::tcp_fault(wanted, error);
        let is_there = |spare: &&InheritedSocket| matches!(spare.at, ListenAddr::Tcp(at) if at.port() == wanted.port());
        match self.spare.iter().find(is_there) {
            Some(spare) => fault.with_hint(format!(
                "the service manager has a socket with this port: `--bind systemd:{}`",
                spare.name
            )),
            None => fault,
        }
    }

    fn take_spare(&mut self, origin: &AddressOrigin) -> Option<Held> {
        let place = self
            .spare
            .iter()
            .position(|spare| origin_of(spare) == *origin)?;
        Some(Held::from(self.spare.remove(place).socket))
    }

    /// Takes an address out of the table.
    fn forget(&mut self, number: u16, committed: &mut Committed) {
        let Some(group) = self.groups.remove(&number) else {
            return;
        };
        // Processes have its sockets as long as they need them.
        match group.origin {
            AddressOrigin::Inherited { name, at } => {
                let sockets = group.held.into_iter().map(|held| held.socket);
                self.spare.extend(sockets.map(|socket| {
                    let (name, at) = (name.clone(), at.clone());
                    InheritedSocket { name, socket, at }
                }));
            }
            AddressOrigin::Tcp(_) | AddressOrigin::Unix(_) => {
                let inodes = group
                    .held
                    .iter()
                    .filter_map(|held| inode(held.socket.as_fd()));
                self.closed_inodes.extend(inodes);
                let surplus = self.closed_inodes.len().saturating_sub(CLOSED_LEN_MAX);
                self.closed_inodes.drain(..surplus);
                committed.closing.push(number);
            }
        }
    }

    /// A number that no address has.
    fn number(&mut self) -> u16 {
        // Otherwise this would look for ever.
        invariant!(
            self.groups.len() <= usize::from(u16::MAX),
            "all numbers of addresses are in use"
        );
        // The next one, around the end and past those in use.
        while self.groups.contains_key(&self.next_number) {
            self.next_number = self.next_number.wrapping_add(1);
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        number
    }
}

impl Committed {
    /// Applies options to sockets that are open; what cannot be applied is no reason to fail.
    fn apply(&mut self, group: &mut ListenerGroup, listen: &Listen) {
        if let Err(error) = group.set_options(listen) {
            self.warnings.push(fault(&group.at, &error).to_string());
        }
    }
}

impl<S: Into<OwnedFd>> From<S> for Held {
    fn from(socket: S) -> Held {
        Held {
            socket: socket.into(),
            stage: Stage::Wanted,
        }
    }
}

impl SocketFiles {
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for SocketFiles {
    fn drop(&mut self) {
        self.0.iter().for_each(SocketFile::remove);
    }
}

fn origin_of(spare: &InheritedSocket) -> AddressOrigin {
    AddressOrigin::Inherited {
        name: spare.name.clone(),
        at: spare.at.clone(),
    }
}

/// An address was configured with any port, and now with the one that it got.
fn is_bound_to(group: &ListenerGroup, origin: &AddressOrigin) -> bool {
    match (&group.origin, origin, &group.at) {
        (AddressOrigin::Tcp(bound), AddressOrigin::Tcp(wanted), ListenAddr::Tcp(at)) => {
            *wanted == TcpAddress { at: *at, ..*bound }
        }
        _ => false,
    }
}

/// The socket of a path, with the mode and the group that the configuration has for it.
fn open_unix(path: &Path, config: &Config) -> Result<(Socket, SocketFile), StartFault> {
    let mut sockets = config.binds.iter().filter_map(|bind| match bind {
        Bind::Unix(socket) => Some(socket),
        Bind::Tcp(_) | Bind::Inherited(_) => None,
    });
    let wanted = sockets.find(|socket| socket.path == path);
    let wanted = wanted.expect("an origin comes from an address of the configuration");
    let what = || format!("cannot listen on `unix:{}`", path.display());
    let gid = wanted.group.as_deref().map(privileges::group_id);
    let gid = gid.transpose().map_err(|fault| StartFault {
        what: what(),
        ..fault
    })?;
    unix_listen::bind_unix(wanted, gid).map_err(|error| unix_listen::unix_fault(path, &error))
}

/// Sockets for one address: so many, or one where the kernel cannot share.
fn share(
    mut address: TcpAddress,
    len: usize,
    listen: &Listen,
) -> io::Result<(SocketAddr, SocketSharing, Vec<Socket>)> {
    let (sharing, first) = match listen::bind_tcp(address, listen) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            let socket = listen::tcp_socket(address)?;
            socket.bind(&address.at.into())?;
            listen::set_options(&socket, listen)?;
            (SocketSharing::Queue, socket)
        }
        bound => (SocketSharing::Ports, bound?),
    };
    // The port that the kernel chose for the first one, if any was asked for, is that of all others.
    if let Some(bound) = first.local_addr()?.as_socket() {
        address.at = bound;
    }
    let mut sockets = vec![first];
    while sharing == SocketSharing::Ports && sockets.len() < len {
        sockets.push(listen::bind_tcp(address, listen)?);
    }
    Ok((address.at, sharing, sockets))
}

fn fault(at: &ListenAddr, error: &io::Error) -> StartFault {
    match at {
        ListenAddr::Tcp(at) => listen::tcp_fault(*at, error),
        ListenAddr::Unix(path) => unix_listen::unix_fault(path, error),
    }
}
