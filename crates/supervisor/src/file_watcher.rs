//! File watcher of `--reload`: says when code has changed and the application must be restarted.
//!
//! Takes folders and files, gives the file that changed, once for all changes that belong together. Two `Snapshot`s of
//! the code say what has changed. When to take the next one, the kernel says through `notify` (`folders`); where it
//! cannot, one is taken every second. `filter` says what counts as code. Reads no file contents and no clock.
//!
//! ```text
//!         a report, or a                  50 ms without another, or 2 s in all
//!         scan that differs
//! IDLE ─────────────────────► PENDING ─────────────────────────────────────────► IDLE, what differs is given
//!                              │   ▲
//!                              └───┘ another
//! ```

mod filter;
mod folders;
mod snapshot;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use notify::ErrorKind;
use os::invariant;
use rustix::io::Errno;
use telemetry::{Nanos, Stamp};

use filter::CodeFilter;
use folders::FolderWatcher;
use snapshot::Snapshot;

/// Editors write a file in several steps, and version control many files.
const QUIET_TIME: Nanos = Nanos::from_ms(50);
/// A program that never stops writing must not hide a change for ever.
const PENDING_TIME_MAX: Nanos = Nanos::from_secs(2);
/// Time between two scans, where the kernel does not report everything.
const SCAN_INTERVAL: Nanos = Nanos::from_secs(1);
/// Folders that are watched; those nearest to the named ones come first.
const FOLDERS_LEN_MAX: usize = 10_000;
/// Snapshots in a row, each because a link was set anew during the one before.
const ROUNDS_MAX: usize = 8;

/// Folders and files that are watched.
#[derive(Debug)]
pub(super) struct FileWatcher {
    filter: CodeFilter,
    /// None where the kernel does not report changes.
    folders: Option<FolderWatcher>,
    snapshot: Snapshot,
    pending: Option<PendingChange>,
    /// When to look next for what the kernel does not report.
    next_scan: Stamp,
    /// A line for the operator that has not been given yet.
    warning: Option<String>,
}

/// A change that has not been given yet.
#[derive(Debug)]
struct PendingChange {
    /// Known where a scan has found it; what was reported is looked for when no other report follows.
    path: Option<PathBuf>,
    first: Stamp,
    last: Stamp,
}

impl FileWatcher {
    /// Watches code in `dirs` and in all folders below them, and each of `files` whatever its name. A file that does
    /// not exist yet may be created later, with its folders; that is a change as well.
    ///
    /// Hidden folders, `__pycache__`, `node_modules`, `site-packages` and virtual environments below `dirs` are
    /// left out, and no symbolic link below them is followed.
    pub(super) fn new(dirs: &[PathBuf], files: &[PathBuf], now: Stamp) -> FileWatcher {
        let mut watcher = FileWatcher::scanning(dirs, files, now);
        let roots = watcher.filter.resolved().roots;
        if let Some(root) = roots.keys().find(|root| is_remote(root)) {
            let cause = format!("`{}` is on a network file system", root.display());
            watcher.warn_of_scans(&cause);
        } else {
            match FolderWatcher::new() {
                Ok(folders) => watcher.folders = Some(folders),
                Err(error) => watcher.warn_of_scans(&cause(&error)),
            }
        }
        // Without a look at what is there, everything would be new at the first change.
        watcher.renew();
        watcher
    }

    fn scanning(dirs: &[PathBuf], files: &[PathBuf], now: Stamp) -> FileWatcher {
        let mut filter = CodeFilter::default();
        filter.add(dirs, files);
        FileWatcher {
            filter,
            folders: None,
            snapshot: Snapshot::default(),
            pending: None,
            next_scan: now.plus(SCAN_INTERVAL),
            warning: None,
        }
    }

    /// Watches more files and folders. Their present contents are no change.
    pub(super) fn extend(&mut self, dirs: &[PathBuf], files: &[PathBuf], now: Stamp) {
        let mut filter = self.filter.clone();
        if !filter.add(dirs, files) {
            return;
        }
        // By the old filter first: afterwards, a file that is new cannot be told from one that is watched only now.
        if let Some(path) = self.renew() {
            self.note_change(Some(path), now);
        }
        self.filter = filter;
        self.renew();
    }

    /// Descriptor that becomes readable with a change, beside `deadline`. None where the kernel reports nothing.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.folders.as_ref().map(FolderWatcher::fd)
    }

    /// When to call `changed` although nothing is readable.
    pub(super) fn deadline(&self) -> Stamp {
        let pending = self.pending.as_ref().map(PendingChange::due);
        let scan = self.must_scan().then_some(self.next_scan);
        [pending, scan]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Stamp::NEVER)
    }

    /// The first file of those that have changed, once no other follows. To be called when `fd` is readable and
    /// at `deadline`.
    pub(super) fn changed(&mut self, now: Stamp) -> Option<PathBuf> {
        if self
            .folders
            .as_ref()
            .is_some_and(FolderWatcher::take_report)
        {
            self.note_change(None, now);
        }
        if self.must_scan() && now >= self.next_scan {
            if let Some(path) = self.renew() {
                self.note_change(Some(path), now);
            }
            // While files change, the next scan says whether that is over.
            self.next_scan = now.plus(match self.pending {
                Some(_) => QUIET_TIME,
                None => SCAN_INTERVAL,
            });
        }
        let due = self.pending.take_if(|pending| pending.due() <= now)?;
        // Also where a path is known already: the folders that came with it are watched from here on.
        let found = self.renew();
        due.path.or(found)
    }

    /// One line for the operator, given once: why changes are not noticed at once, or not everywhere.
    pub(super) fn warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    fn must_scan(&self) -> bool {
        self.folders.is_none() || self.snapshot.misses_a_root
    }

    fn note_change(&mut self, path: Option<PathBuf>, now: Stamp) {
        let pending = self.pending.get_or_insert(PendingChange {
            path: None,
            first: now,
            last: now,
        });
        pending.last = now;
        // The first one: what follows at once are the other files that the same save has touched.
        pending.path = pending.path.take().or(path);
    }

    /// Takes a new snapshot, and watches the folders that it finds; gives the first file that came, went or changed
    /// since the one before.
    fn renew(&mut self) -> Option<PathBuf> {
        let mut watched = self.filter.resolved();
        let mut rounds = 0;
        let taken = loop {
            let folders = &mut self.folders;
            let taken = Snapshot::take(&watched, FOLDERS_LEN_MAX, |dir| match folders {
                Some(folders) => folders.watch(dir),
                None => Ok(true),
            });
            // A link that was set anew before its folder was watched is not reported. One that is set again and again is
            // left to the next look.
            rounds += 1;
            let again = self.filter.resolved();
            if again == watched || rounds == ROUNDS_MAX {
                break taken;
            }
            watched = again;
        };
        let next = match taken {
            Ok(next) => next,
            // The kernel watches no more of them. The next scan looks without it.
            Err(error) => {
                self.warn_of_scans(&cause(&error));
                return None;
            }
        };
        if next.has_excess && !self.snapshot.has_excess {
            self.warning = Some(format!(
                "there are more than {FOLDERS_LEN_MAX} folders to watch: changes in the deepest ones are not noticed"
            ));
        }
        // Against the one before, whatever was reported: a report says only that something may have changed.
        let found = self.snapshot.first_difference(&next);
        self.snapshot = next;
        found
    }

    fn warn_of_scans(&mut self, cause: &str) {
        self.folders = None;
        self.warning = Some(format!(
            "{cause}: looking for changes once a second instead"
        ));
    }
}

impl PendingChange {
    fn due(&self) -> Stamp {
        invariant!(self.first <= self.last, "a change ends before it begins");
        let quiet = self.last.plus(QUIET_TIME);
        quiet.min(self.first.plus(PENDING_TIME_MAX))
    }
}

/// Why the kernel cannot report changes: inotify(7) and inotify_add_watch(2).
fn cause(error: &notify::Error) -> String {
    match &error.kind {
        ErrorKind::MaxFilesWatch => {
            "the limit of watched folders is reached (`sysctl fs.inotify.max_user_watches`)"
                .to_owned()
        }
        ErrorKind::Io(error) if Errno::from_io_error(error) == Some(Errno::MFILE) => {
            "the limit of file watchers is reached (`sysctl fs.inotify.max_user_instances`)"
                .to_owned()
        }
        _ => format!("the system reports no changes: {error}"),
    }
}

/// Whether another machine, or the host of this one, may write there: inotify reports only what this kernel
/// writes.
fn is_remote(place: &Path) -> bool {
    rustix::fs::statfs(place).is_ok_and(|found| is_remote_kind(found.f_type))
}

/// By statfs(2): NFS, SMB, CIFS, 9P, FUSE (and virtiofs), VirtualBox's and VMware's shared folders.
fn is_remote_kind(kind: impl TryInto<u64>) -> bool {
    const KINDS: [u64; 7] = [
        0x6969,
        0xfe53_4d42,
        0xff53_4d42,
        0x0102_1997,
        0x6573_5546,
        0x786f_4256,
        0xbacb_acbc,
    ];
    // A word of the kernel that Rust takes for signed, of 32 bits where the machine's are.
    kind.try_into()
        .is_ok_and(|kind: u64| KINDS.contains(&(kind & 0xffff_ffff)))
}
