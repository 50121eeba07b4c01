//! Unix sockets to listen on: their files with mode and group, stale files, and their removal.
//!
//! Takes what is configured, gives a socket that does not listen yet, and the file that is to be removed later. Every
//! path may lie in a folder where other programs work, so each step says which races remain.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};

use config::failure::StartFault;
use config::typed::UnixSocket;

/// Tries for the lock of a folder, and the time between two of them: it is held for some system calls only.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The file of a unix socket, to be removed when the address closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketFile {
    /// As configured.
    pub path: PathBuf,
    /// Device and inode: another file of this name belongs to another server. As long as the socket is open, the
    /// kernel gives its inode to no other file.
    id: (u64, u64),
}

impl SocketFile {
    /// The file that a socket was just bound to.
    ///
    /// # Errors
    /// It is gone.
    pub fn at(path: &Path) -> io::Result<SocketFile> {
        let id = file_id(&fs::symlink_metadata(path)?);
        let path = path.to_owned();
        Ok(SocketFile { path, id })
    }

    /// Removes the file, unless another server has put its own in its place. Between the look and the removal another
    /// server could still do so: it would have to replace a socket that listens, which servers refuse to do.
    pub fn remove(&self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| file_id(&found) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket with its file, that does not listen yet: whoever connects is refused until mode and group are right.
///
/// # Errors
/// Another server has the file (`AddrInUse`), or is about to (`ResourceBusy`); it is no socket (`AlreadyExists`); the
/// folder or the group cannot be used.
pub fn bind_unix(wanted: &UnixSocket, gid: Option<u32>) -> io::Result<(Socket, SocketFile)> {
    // Two servers that start at the same moment would both find the stale file, and the second would remove the
    // first one's new file. The lock lasts until the file is bound.
    let _turn = lock_folder(&wanted.path)?;
    remove_stale(&wanted.path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    bind_with_mode(&socket, wanted)?;
    let file = SocketFile::at(&wanted.path)?;
    if let Some(gid) = gid {
        // Of the file itself: a link that somebody has put there meanwhile is not followed.
        let given = std::os::unix::fs::lchown(&wanted.path, None, Some(gid));
        given.inspect_err(|_| file.remove())?;
    }
    Ok((socket, file))
}

/// The file gets its mode by the call that creates it, so that no `chmod` can be led to another file.
fn bind_with_mode(socket: &Socket, wanted: &UnixSocket) -> io::Result<()> {
    assert!(wanted.mode <= 0o777, "a mode has nine bits");
    // The kernel takes the rights of the socket's own inode, less the mask (unix_bind).
    fchmod(socket, Mode::from_bits_truncate(wanted.mode))?;
    // The mask is one for all threads. The supervisor has no other that creates files; two that bind at the same time
    // would put back each other's mask between the other's calls.
    static MASK: Mutex<()> = Mutex::new(());
    let _alone = MASK.lock().unwrap_or_else(PoisonError::into_inner);
    let mask = rustix::process::umask(Mode::empty());
    let bound = socket.bind(&SockAddr::unix(&wanted.path)?);
    rustix::process::umask(mask);
    bound
}

/// The lock among servers of this kind; none where the folder cannot be read.
fn lock_folder(path: &Path) -> io::Result<Option<File>> {
    let folder = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    // The folder and not a file in it: there is nothing to create, to remove, or to leave behind.
    let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) else {
        return Ok(None);
    };
    for _ in 0..LOCK_TRIES {
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(Some(folder));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    let text = "another program holds the lock of the folder";
    Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
}

/// Removes a socket file that no process listens on, or is about to; anything else is left alone. A server of another
/// kind that replaces the file between the last look and the removal loses it: no call removes a file by its inode.
///
/// # Errors
/// `AlreadyExists` for another kind of file, `AddrInUse` or `ResourceBusy` for another server's, or the system's.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is not a socket is there",
        ));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) => return Err(error),
    }
    // A server that has bound its socket and is still loading its application refuses connections as well.
    let table = fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    if is_about_to_listen(&table, path) {
        let text = "another server is about to listen there";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    let again = fs::symlink_metadata(path)?;
    match file_id(&again) == file_id(&found) {
        true => fs::remove_file(path),
        false => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Whether a stream socket is bound to the path and has never listened. Relative paths are not compared: they may
/// start in another folder.
///
/// ```text
/// Num       RefCount Protocol Flags    Type St Inode Path
/// ffff8881: 00000002 00000000 00000000 0001 01 22814 /run/shop.sock
/// ```
fn is_about_to_listen(table: &str, path: &Path) -> bool {
    let is_it = |line: &str| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, _, "00000000", "0001", "01", _, at] = columns[..] else {
            return false;
        };
        Path::new(at) == path
    };
    path.is_absolute() && table.lines().any(is_it)
}

fn file_id(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Why a path cannot be listened on, with what to do about it.
pub fn unix_fault(path: &Path, error: &io::Error) -> StartFault {
    let fault = StartFault::of_io(format!("cannot listen on `unix:{}`", path.display()), error);
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            fault.with_hint("another program listens there; choose another path")
        }
        io::ErrorKind::ResourceBusy => {
            fault.with_hint("start it again when the other one has started, or choose another path")
        }
        io::ErrorKind::AlreadyExists => fault.with_hint("choose another path, or remove the file"),
        io::ErrorKind::NotFound => fault.with_hint("the folder must exist"),
        io::ErrorKind::PermissionDenied => fault.with_hint(
            "this user must be allowed to write to the folder, and be a member of the socket's group",
        ),
        _ => fault,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::listen::listen_on;
    use config::typed::Listen;

    fn socket(path: &Path, mode: u32) -> UnixSocket {
        UnixSocket {
            path: path.to_owned(),
            mode,
            group: None,
        }
    }

    #[test]
    fn takes_over_a_stale_unix_socket_but_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = socket(&dir.path().join("a.sock"), 0o777);
        let (first, _) = bind_unix(&wanted, None).unwrap();
        let kind = |wanted: &UnixSocket| bind_unix(wanted, None).unwrap_err().kind();
        assert_eq!(kind(&wanted), io::ErrorKind::ResourceBusy);
        drop(first);
        let (again, _) = bind_unix(&wanted, None).unwrap();
        listen_on(&again, &Listen::default()).unwrap();
        assert_eq!(kind(&wanted), io::ErrorKind::AddrInUse);
        let plain = dir.path().join("file");
        fs::write(&plain, "x").unwrap();
        assert_eq!(kind(&socket(&plain, 0o777)), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(plain).unwrap(), "x");
    }

    #[test]
    fn leaves_the_file_of_a_later_server_alone() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = socket(&dir.path().join("a.sock"), 0o777);
        let (_first, file) = bind_unix(&wanted, None).unwrap();
        fs::remove_file(&wanted.path).unwrap();
        let (_second, later) = bind_unix(&wanted, None).unwrap();
        file.remove();
        assert!(wanted.path.exists());
        later.remove();
        assert!(!wanted.path.exists());
    }

    #[test]
    fn gives_the_file_its_mode_whatever_the_mask() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o660, 0o600] {
            let wanted = socket(&dir.path().join(format!("{mode:o}")), mode);
            let (_socket, file) = bind_unix(&wanted, None).unwrap();
            let found = fs::metadata(&wanted.path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
            file.remove();
            assert!(!wanted.path.exists());
        }
    }
}
