//! The control socket: where a supervisor takes commands from the one who runs it.
//!
//! Polled by the supervisor's loop and never waits: takes connections of permitted users, gives their
//! requests, and tells them how these ended. Decides nothing about the requests themselves.

mod clients;
mod lock;
pub mod messages;
pub mod place;
pub mod status;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use os::invariant;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, socket_with,
};
use serde::{Deserialize, Serialize};

use crate::handed;
pub use clients::ClientId;
use clients::{CLIENTS_LEN_MAX, ControlClients};
use config::failure::{Failure, StartFault, plain};
use config::typed;
use ipc::unix_listen;
use lock::{Lock, NoLock};
pub use messages::{Outcome, Request};
use place::{Entry, Who};
pub use status::Status;

/// Connections that may wait while the supervisor is busy.
const BACKLOG: i32 = 64;
/// Connections that are looked at in one turn.
const ACCEPTS_A_TURN: usize = 64;
/// How long nobody is let in when the process has no descriptor left.
const REST: Duration = Duration::from_millis(200);

/// A control socket that listens. Dropping it removes its files.
#[derive(Debug, Serialize, Deserialize)]
pub struct Control {
    #[serde(with = "handed::fd")]
    listener: OwnedFd,
    node: Node,
    /// In this order they are let go: who finds the entry finds the socket.
    entry: Option<Lock>,
    lock: Lock,
    uids: Vec<u32>,
    clients: ControlClients,
    #[serde(skip)]
    resting_until: Option<Instant>,
}

/// The socket as a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Node {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Why there is no socket in one place.
enum Trouble {
    /// Somebody else is there: nothing may be started.
    Taken(StartFault),
    /// The place cannot be used.
    Unusable(io::Error),
}

impl Control {
    /// Opens the socket that is wished. `config_file` is absolute. Users in `uids` may command, beside root.
    ///
    /// Where no place can be found for a socket that was not named, there is none, and a text says why.
    ///
    /// # Errors
    /// Another supervisor has the same configuration or socket; or the socket that was named cannot be opened.
    pub fn open(
        wish: &typed::ControlConfig,
        config_file: Option<&Path>,
        who: &Who,
        uids: &[u32],
    ) -> Result<(Option<Control>, Vec<String>), StartFault> {
        match wish {
            typed::ControlConfig::Off => Ok((None, Vec::new())),
            typed::ControlConfig::At(path) => {
                let (control, warning) = open_named(&place::settled(path), config_file, who, uids)?;
                Ok((Some(control), warning.into_iter().collect()))
            }
            typed::ControlConfig::Auto => open_somewhere(config_file, who, uids),
        }
    }

    /// Where it listens, absolute.
    pub fn path(&self) -> &Path {
        &self.node.path
    }

    /// Descriptors to wait for, and what for.
    pub fn fds(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let door = self.resting_until.is_none();
        let door = door.then(|| (self.listener.as_fd(), PollFlags::IN));
        door.into_iter().chain(self.clients.interests()).collect()
    }

    /// When to call [`Control::accept_and_read`] even if no descriptor is ready.
    pub fn deadline(&self) -> Option<Instant> {
        let ends = [self.resting_until, self.clients.deadline()];
        ends.into_iter().flatten().min()
    }

    /// Does everything that can be done now; to be called when a descriptor is ready or the deadline has
    /// come. Each request that is given must end in [`Control::done`].
    pub fn accept_and_read(&mut self, now: Instant) -> Vec<(ClientId, Request)> {
        if self.resting_until.is_some_and(|until| now >= until) {
            self.resting_until = None;
        }
        // Before new ones are let in: who is done makes room.
        let mut requests = self.clients.turn(now);
        if self.resting_until.is_none() {
            self.accept(now);
            requests.extend(self.clients.turn(now));
        }
        // By the refusal in `take_in`: what waits in memory for slow clients is bounded by their number.
        invariant!(
            self.clients.len() <= CLIENTS_LEN_MAX,
            "{} clients command at once",
            self.clients.len()
        );
        requests
    }

    /// Tells a client how its request ended.
    pub fn done(&mut self, client: ClientId, outcome: &Outcome, now: Instant) {
        self.clients.done(client, outcome, None, now);
    }

    /// As [`Control::done`], with a file that the client gets.
    pub fn done_with(&mut self, client: ClientId, outcome: &Outcome, file: OwnedFd, now: Instant) {
        self.clients.done(client, outcome, Some(file), now);
    }

    /// All of them, for the program that takes this one's place and reads what this one writes of itself.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let locks = [&self.lock].into_iter().chain(&self.entry);
        let clients = self.clients.interests().map(|(socket, _)| socket);
        let own = [self.listener.as_fd()].into_iter();
        own.chain(locks.map(AsFd::as_fd)).chain(clients)
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_A_TURN {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.listener, flags) {
                Ok(socket) => self.take_in(socket, now),
                Err(Errno::WOULDBLOCK) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // No descriptor or no memory is left: the listener stays readable, and the loop would spin.
                Err(_) => {
                    self.resting_until = Some(now + REST);
                    return;
                }
            }
        }
    }

    fn take_in(&mut self, socket: OwnedFd, now: Instant) {
        // Without an answer of the kernel it is a stranger.
        let Ok((uid, _)) = os::peer_credentials(socket.as_fd()) else {
            return;
        };
        // By the credentials of the kernel, not by the mode of the file: a stranger gets an answer that says why.
        if uid != 0 && !self.uids.contains(&uid) {
            clients::turn_away(&socket, stranger(uid, &self.uids));
        } else if self.clients.len() >= CLIENTS_LEN_MAX {
            let text = format!("{CLIENTS_LEN_MAX} others are connected to the control socket");
            clients::turn_away(&socket, Failure::new(text).with_hint("try it again"));
        } else {
            self.clients.add(socket, now);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let facts = fs::symlink_metadata(&self.node.path);
        let is_ours = facts
            .is_ok_and(|facts| facts.dev() == self.node.device && facts.ino() == self.node.inode);
        if is_ours {
            // Without the right to remove it, the next start does.
            let _ = fs::remove_file(&self.node.path);
        }
    }
}

fn stranger(uid: u32, permitted: &[u32]) -> Failure {
    let users: BTreeSet<u32> = permitted.iter().copied().chain([0]).collect();
    let name = |uid| match uid {
        0 => "root".to_owned(),
        uid => format!("user {uid}"),
    };
    let users: Vec<String> = users.into_iter().map(name).collect();
    let text = format!("user {uid} may not command this server");
    Failure::new(text).with_hint(format!("run this as {}", users.join(" or ")))
}

/// In the first folder that can be used.
fn open_somewhere(
    config_file: Option<&Path>,
    who: &Who,
    uids: &[u32],
) -> Result<(Option<Control>, Vec<String>), StartFault> {
    let name = match config_file {
        Some(file) => place::name_of(file),
        None => format!("pid-{}", std::process::id()),
    };
    let mut unusable = Vec::new();
    for folder in who.folders() {
        let opened = place::make(&folder, who.uid)
            .map_err(Trouble::Unusable)
            .and_then(|()| {
                lock::sweep(&folder);
                let entry = entry(folder.join(format!("{name}.sock")), config_file);
                open_at(&entry, &folder.join(format!("{name}.lock")), uids)
            });
        match opened {
            Ok(control) => return Ok((Some(control), Vec::new())),
            // A server of this configuration runs: another folder would hide one of them from commands.
            Err(Trouble::Taken(fault)) => return Err(fault),
            Err(Trouble::Unusable(error)) => unusable.push(place::unusable(&folder, &error)),
        }
    }
    let text = format!(
        "no control socket: {}; signals reach this server, `milepost reload` and such do not",
        unusable.join(", ")
    );
    Ok((None, vec![text]))
}

/// At a path that was named.
fn open_named(
    path: &Path,
    config_file: Option<&Path>,
    who: &Who,
    uids: &[u32],
) -> Result<(Control, Option<String>), StartFault> {
    let entry = entry(path.to_owned(), config_file);
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let mut control = open_at(&entry, Path::new(&lock), uids).map_err(|trouble| match trouble {
        Trouble::Taken(fault) => fault,
        Trouble::Unusable(error) => unusable_fault(path, &error),
    })?;
    // Its entry in the runtime folder is what lets others find it; without one it is found by whoever knows the path.
    let mut unusable = Vec::new();
    for folder in who.folders() {
        let file = folder.join(format!("{}.lock", place::name_of(path)));
        let made = place::make(&folder, who.uid).and_then(|()| {
            Lock::take(&file, &entry).map_err(|no_lock| match no_lock {
                NoLock::Failed(error) => error,
                NoLock::Taken(_) => io::Error::other("another process has the entry"),
            })
        });
        match made {
            Ok(made) => {
                control.entry = Some(made);
                return Ok((control, None));
            }
            Err(error) => unusable.push(place::unusable(&folder, &error)),
        }
    }
    let text = format!(
        "commands find this server only by `--control {}`: {}",
        path.display(),
        unusable.join(", ")
    );
    Ok((control, Some(text)))
}

fn entry(control: PathBuf, config_file: Option<&Path>) -> Entry {
    Entry {
        pid: std::process::id(),
        control,
        config_file: config_file.map(place::settled),
    }
}

fn open_at(entry: &Entry, lock: &Path, uids: &[u32]) -> Result<Control, Trouble> {
    let path = &entry.control;
    // Before the socket: whoever has the lock is the only one that may remove a socket without a listener.
    let lock = Lock::take(lock, entry).map_err(|no_lock| match no_lock {
        NoLock::Taken(pid) => Trouble::Taken(taken(path, pid)),
        NoLock::Failed(error) => Trouble::Unusable(error),
    })?;
    make_way(path)?;
    let (listener, node) = listen_at(path).map_err(Trouble::Unusable)?;
    Ok(Control {
        listener,
        node,
        entry: None,
        lock,
        uids: uids.to_vec(),
        clients: ControlClients::default(),
        resting_until: None,
    })
}

/// Removes a socket that nobody listens on.
fn make_way(path: &Path) -> Result<(), Trouble> {
    // The lock says that no supervisor listens there, but a path that was named may be anybody's.
    let cause = match unix_listen::remove_stale(path).map_err(|error| (error.kind(), error)) {
        Ok(()) => return Ok(()),
        Err((io::ErrorKind::AlreadyExists, _)) => "it is there already, and is no socket",
        Err((io::ErrorKind::AddrInUse | io::ErrorKind::ResourceBusy, _)) => {
            "another program listens there"
        }
        Err((_, error)) => return Err(Trouble::Unusable(error)),
    };
    Err(Trouble::Taken(fault(path, cause, "name another path")))
}

fn listen_at(path: &Path) -> io::Result<(OwnedFd, Node)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let ready = || {
        // Everybody may connect, so that everybody gets an answer: who may command is seen by their
        // credentials.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        rustix::net::listen(&socket, BACKLOG)?;
        let facts = fs::symlink_metadata(path)?;
        Ok(Node {
            path: path.to_owned(),
            device: facts.dev(),
            inode: facts.ino(),
        })
    };
    let node = ready().inspect_err(|_: &io::Error| drop(fs::remove_file(path)))?;
    Ok((socket, node))
}

fn taken(path: &Path, pid: Option<u32>) -> StartFault {
    let (who, hint) = match pid {
        Some(pid) => (
            format!("process {pid}"),
            format!(
                "`milepost reload --pid {pid}` has it read its configuration anew, `milepost stop --pid {pid}` ends it"
            ),
        ),
        None => (
            "another process".to_owned(),
            "`milepost status` shows it".to_owned(),
        ),
    };
    let cause = format!("{who} is a milepost that serves the same configuration");
    fault(path, &cause, &hint)
}

fn unusable_fault(path: &Path, error: &io::Error) -> StartFault {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "its folder must be there",
        _ => "this user must be able to create files in its folder",
    };
    fault(path, &plain(error), hint)
}

fn fault(path: &Path, cause: &str, hint: &str) -> StartFault {
    StartFault::new(format!("control socket `{}`", path.display()), cause).with_hint(hint)
}

#[cfg(test)]
mod tests;
