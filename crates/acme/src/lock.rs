//! Locks among processes and machines that share a storage folder: one file for each name, made with `O_EXCL`.
//!
//! ```text
//!  free ──take──► held ──drop──► free
//!                  │ ▲ touch, each 5 s
//!                  └─┘
//!  held, unchanged for 15 s by the watcher's own clock ──► moved away ──► free
//! ```
//!
//! A holder that died leaves its file; others tell by watching that its content no longer changes, so that clocks of
//! machines need not agree. A holder that only stood still (a stopped process, a slow disk) finds at its next touch
//! that the file is no longer its own, and gives its work up. The need for the work must be checked again once the
//! lock is taken: whoever had it before may have done it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fault::IssueFault;
use crate::storage::{Storage, make_dir, read};

/// How often a holder touches its lock.
pub(crate) const TOUCH_EVERY: Duration = Duration::from_secs(5);
/// How often a lock of others is looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A lock that was not touched for so long has no holder: three touches, as one may be late.
const STALE_AFTER: Duration = Duration::from_secs(15);
/// Two holders never have the same.
const HOLDER_CHARS: usize = 20;

/// A lock that is held; dropping it frees it.
#[derive(Debug)]
pub(crate) struct NameLock {
    path: PathBuf,
    file: File,
    holder: String,
    touches: u64,
}

/// A lock of others as it was seen.
#[derive(Debug, Default)]
pub(crate) struct SeenLock {
    last: Option<(String, Instant)>,
}

impl NameLock {
    /// Takes a lock; `None` while another holder has it.
    pub(crate) fn take(
        storage: &Storage,
        path: &Path,
        seen: &mut SeenLock,
        now: Instant,
    ) -> io::Result<Option<NameLock>> {
        make_dir(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
        {
            Ok(file) => {
                *seen = SeenLock::default();
                let holder = std::iter::repeat_with(fastrand::alphanumeric);
                let mut lock = NameLock {
                    path: path.to_owned(),
                    file,
                    holder: holder.take(HOLDER_CHARS).collect(),
                    touches: 0,
                };
                lock.write()?;
                Ok(Some(lock))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // It may be gone by now, or empty because its holder is about to write.
                let content = read(path)?.unwrap_or_default();
                if seen.is_stale(&content, now) {
                    move_away(storage, path, &content)?;
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Shows others that the holder lives.
    ///
    /// # Errors
    /// The lock is another's by now, or the folder cannot be used.
    pub(crate) fn touch(&mut self) -> Result<(), IssueFault> {
        self.touches += 1;
        self.write()?;
        match self.is_own() {
            true => Ok(()),
            false => Err(IssueFault::LockLost),
        }
    }

    /// Into the file that this holder made, whatever stands in its place now: the lock of another is never
    /// overwritten.
    fn write(&mut self) -> io::Result<()> {
        let content = format!("{} {:020}\n", self.holder, self.touches);
        self.file.write_all_at(content.as_bytes(), 0)?;
        self.file.sync_all()
    }

    fn is_own(&self) -> bool {
        read(&self.path)
            .ok()
            .flatten()
            .is_some_and(|content| content.starts_with(&self.holder))
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        if self.is_own() {
            // What stays is found stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl SeenLock {
    fn is_stale(&mut self, content: &str, now: Instant) -> bool {
        match &self.last {
            Some((seen, since)) if seen == content => {
                now.saturating_duration_since(*since) >= STALE_AFTER
            }
            _ => {
                self.last = Some((content.to_owned(), now));
                false
            }
        }
    }
}

/// Takes a stale lock out of its place. Two watchers may do so at once: the second one may move the lock that a third
/// process has taken meanwhile, which is why what was moved is looked at, and put back.
fn move_away(storage: &Storage, path: &Path, stale: &str) -> io::Result<()> {
    let moved = storage.new_path();
    match fs::rename(path, &moved) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    if read(&moved)?.as_deref() != Some(stale) {
        // A link fails where the next lock has been taken already; the holder of this one then finds it lost.
        let _ = fs::hard_link(&moved, path);
    }
    fs::remove_file(&moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shared {
        _dir: tempfile::TempDir,
        storage: Storage,
        path: PathBuf,
    }

    fn shared() -> Shared {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path());
        storage.prepare().unwrap();
        let path = storage.lock(None, "shop.localhost");
        Shared {
            _dir: dir,
            storage,
            path,
        }
    }

    impl Shared {
        fn take(&self, seen: &mut SeenLock, now: Instant) -> Option<NameLock> {
            NameLock::take(&self.storage, &self.path, seen, now).unwrap()
        }
    }

    #[test]
    fn one_of_two_holds_it() {
        let shared = shared();
        let now = Instant::now();
        let first = shared.take(&mut SeenLock::default(), now);
        assert!(first.is_some());
        let mut seen = SeenLock::default();
        assert!(shared.take(&mut seen, now).is_none());
        drop(first);
        assert!(shared.take(&mut seen, now).is_some());
    }

    #[test]
    fn a_lock_that_is_touched_is_never_stale() {
        let shared = shared();
        let mut now = Instant::now();
        let mut lock = shared.take(&mut SeenLock::default(), now).unwrap();
        let mut seen = SeenLock::default();
        for _ in 0..20 {
            assert!(shared.take(&mut seen, now).is_none());
            lock.touch().unwrap();
            now += TOUCH_EVERY;
        }
        lock.touch().unwrap();
    }

    #[test]
    fn a_stale_lock_is_taken_and_its_holder_gives_up() {
        let shared = shared();
        let now = Instant::now();
        let mut late = shared.take(&mut SeenLock::default(), now).unwrap();
        let mut seen = SeenLock::default();
        assert!(shared.take(&mut seen, now).is_none());
        assert!(shared.take(&mut seen, now + STALE_AFTER).is_none());
        let mut lock = shared.take(&mut seen, now + STALE_AFTER).unwrap();
        assert!(matches!(late.touch(), Err(IssueFault::LockLost)));
        // The end of the late holder frees nothing that is not its own.
        drop(late);
        lock.touch().unwrap();
    }

    #[test]
    fn an_empty_lock_is_borne_for_a_while() {
        let shared = shared();
        make_dir(shared.path.parent().unwrap()).unwrap();
        fs::write(&shared.path, "").unwrap();
        let now = Instant::now();
        let mut seen = SeenLock::default();
        assert!(shared.take(&mut seen, now).is_none());
        assert!(shared.take(&mut seen, now + STALE_AFTER / 2).is_none());
        assert!(shared.path.exists());
        assert!(shared.take(&mut seen, now + STALE_AFTER).is_none());
        assert!(shared.take(&mut seen, now + STALE_AFTER).is_some());
    }

    #[test]
    fn a_lock_that_was_taken_anew_is_put_back() {
        let shared = shared();
        let now = Instant::now();
        let mut lock = shared.take(&mut SeenLock::default(), now).unwrap();
        move_away(&shared.storage, &shared.path, "another's").unwrap();
        lock.touch().unwrap();
    }
}
