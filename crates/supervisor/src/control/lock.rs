//! A locked file: tells a supervisor that runs from what one that was killed has left behind.
//!
//! The kernel lets go of the lock with the process, however that ends. The file says who holds it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use serde::{Deserialize, Serialize};

use super::place::Entry;
use crate::handed;

/// Another server may be removing the same file, or looking whether it may; no server does so for long.
const ATTEMPTS_MAX: usize = 100;
/// Between two attempts at a lock that an unnamed process has.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(5);

/// A file that is locked for as long as this lives, and removed then.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Lock {
    #[serde(with = "handed::fd")]
    file: File,
    path: PathBuf,
}

/// Why there is no lock.
#[derive(Debug)]
pub(super) enum NoLock {
    /// Another process has it; its id, once it has written it.
    Taken(Option<u32>),
    /// The file cannot be made.
    Failed(io::Error),
}

impl Lock {
    /// Takes the lock and writes the entry.
    pub(super) fn take(path: &Path, entry: &Entry) -> Result<Lock, NoLock> {
        Lock::take_after(path, entry, || thread::sleep(ATTEMPT_INTERVAL))
    }

    fn take_after(path: &Path, entry: &Entry, mut rest: impl FnMut()) -> Result<Lock, NoLock> {
        let mut attempts = 1..ATTEMPTS_MAX;
        let mut lock = loop {
            match Lock::take_file(path) {
                // Between `open` and `flock` of this start, the `sweep` of another server's start may have taken the
                // lock, to look whether the file was left behind. It lets go at once; a server that has the lock
                // writes its id.
                Err(NoLock::Taken(None)) if attempts.next().is_some() => rest(),
                taken => break taken?,
            }
        };
        // Only with the lock: the text of a file says who has it, and must never be another one's.
        let written = lock.write(&entry.text());
        // Dropping it removes the file.
        written.map_err(NoLock::Failed).map(|()| lock)
    }

    fn take_file(path: &Path) -> Result<Lock, NoLock> {
        for _ in 0..ATTEMPTS_MAX {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).mode(0o644);
            // A link could lead to a file that is not ours to write.
            let options = options.custom_flags(libc::O_NOFOLLOW);
            let file = options.open(path).map_err(NoLock::Failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(NoLock::Taken(Entry::in_file(path).map(|entry| entry.pid)));
                }
                Err(error) => return Err(NoLock::Failed(error.into())),
            }
            // Its last holder may have removed it between the two calls: then it is nobody's lock.
            if is_same(&file, path) {
                let path = path.to_owned();
                return Ok(Lock { file, path });
            }
        }
        Err(NoLock::Taken(None))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if is_same(&self.file, &self.path) && fs::remove_file(&self.path).is_err() {
            // Rights were given up since it was made; then at least it names nobody.
            let _ = self.file.set_len(0);
        }
        // A process that is being started may still have a copy of the descriptor.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Removes what servers have left behind that were killed and had no configuration file.
pub(super) fn sweep(folder: &Path) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    for file in files {
        let name = file.file_name();
        let name = name.to_string_lossy();
        // Nobody would take the name of such a process again, so that no start would clear its files away.
        if name.starts_with("pid-") && name.ends_with(".lock") {
            let path = file.path();
            if let Ok(lock) = Lock::take_file(&path) {
                let _ = fs::remove_file(path.with_extension("sock"));
                drop(lock);
            }
        }
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    let facts = file
        .metadata()
        .and_then(|one| Ok((one, fs::symlink_metadata(path)?)));
    facts.is_ok_and(|(one, other)| one.ino() == other.ino() && one.dev() == other.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            pid: std::process::id(),
            control: PathBuf::from("/run/a.sock"),
            config_file: None,
        }
    }

    #[test]
    fn is_held_by_one_and_removed_at_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.lock");
        let lock = Lock::take(&path, &entry()).unwrap();
        assert_eq!(Entry::in_file(&path), Some(entry()));
        let taken = Lock::take(&path, &entry()).unwrap_err();
        assert!(matches!(taken, NoLock::Taken(Some(pid)) if pid == std::process::id()));
        drop(lock);
        assert!(!path.exists());
        // What was left without a holder is taken over.
        fs::write(&path, "999999\ncontrol /x\nconfig /a/long/path\n").unwrap();
        let lock = Lock::take(&path, &entry()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), entry().text());
        // Somebody has put another file there: it is not this one's to remove.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "new").unwrap();
        drop(lock);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn outlasts_the_sweep_of_another_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid-1.lock");
        let mut sweep = Some(Lock::take_file(&path).unwrap());
        let lock = Lock::take_after(&path, &entry(), || drop(sweep.take()));
        assert_eq!(Entry::in_file(&path), Some(entry()));
        drop(lock.unwrap());
        // One that stays is another server's.
        let _other = Lock::take_file(&path).unwrap();
        let taken = Lock::take_after(&path, &entry(), || ()).unwrap_err();
        assert!(matches!(taken, NoLock::Taken(None)));
    }

    #[test]
    fn does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::write(&data, "data").unwrap();
        let path = dir.path().join("a.lock");
        std::os::unix::fs::symlink(&data, &path).unwrap();
        let failed = Lock::take(&path, &entry()).unwrap_err();
        assert!(matches!(failed, NoLock::Failed(_)), "{failed:?}");
        assert_eq!(fs::read_to_string(&data).unwrap(), "data");
    }

    #[test]
    fn sweeps_what_nobody_would_take_again() {
        let dir = tempfile::tempdir().unwrap();
        let living = Lock::take(&dir.path().join("pid-1.lock"), &entry()).unwrap();
        for name in ["pid-1.sock", "pid-2.lock", "pid-2.sock", "shop-0.lock", "x"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        sweep(dir.path());
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|file| file.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["pid-1.lock", "pid-1.sock", "shop-0.lock", "x"]);
        drop(living);
    }
}
