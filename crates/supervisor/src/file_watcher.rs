//! File watcher of `--reload`: says when code has changed and the application must be restarted.
//!
//! Takes folders and files, gives the file that changed, once for all changes that belong together.
//! `folders` hears of changes from the kernel, through `notify`; where the kernel cannot say, `snapshot` is
//! taken once a second and compared with the one before. `filter` says what counts as code. Reads no file
//! contents and no clock.
//!
//! ```text
//!         a change                    50 ms without a change, or 2 s in all
//! IDLE ──────────────► PENDING(path) ───────────────────────────────────────► IDLE, `path` is given
//!                         │      ▲
//!                         └──────┘ another change
//! ```

mod filter;
mod folders;
mod snapshot;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use notify::ErrorKind;
use rustix::io::Errno;
use telemetry::{Nanos, Stamp};

use filter::CodeFilter;
use folders::FolderWatcher;
use snapshot::Snapshot;

/// Editors write a file in several steps, and version control many files.
const QUIET_TIME: Nanos = Nanos::from_ms(50);
/// A program that never stops writing must not hide a change for ever.
const PENDING_TIME_MAX: Nanos = Nanos::from_secs(2);
/// Time between two snapshots, and between two looks for folders that do not exist yet.
const SCAN_INTERVAL: Nanos = Nanos::from_secs(1);
/// Folders that are watched; those nearest to the named ones come first.
const FOLDERS_LEN_MAX: usize = 10_000;

/// Folders and files that are watched.
#[derive(Debug)]
pub(super) struct FileWatcher {
    filter: CodeFilter,
    source: ChangeSource,
    pending: Option<PendingChange>,
    /// When to look next for what the kernel does not report.
    next_scan: Stamp,
    /// A line for the operator that has not been given yet.
    warning: Option<String>,
}

/// How changes become known.
#[derive(Debug)]
enum ChangeSource {
    Kernel(FolderWatcher),
    Scans(Snapshot),
}

/// A change that has not been given yet.
#[derive(Debug)]
struct PendingChange {
    path: PathBuf,
    first: Stamp,
    last: Stamp,
}

impl FileWatcher {
    /// Watches code in `dirs` and in all folders below them, and each of `files` whatever its name. A file or
    /// folder that does not exist yet may be created later; that is a change as well.
    ///
    /// Hidden folders, `__pycache__`, `node_modules`, `site-packages` and virtual environments below `dirs` are
    /// left out, and no symbolic link below them is followed.
    pub(super) fn new(dirs: &[PathBuf], files: &[PathBuf], now: Stamp) -> FileWatcher {
        let mut watcher = FileWatcher::idle(dirs, files, now);
        let remote = watcher.filter.roots().find(|root| is_remote(root));
        let remote = remote.map(|root| format!("`{}` is on a network file system", root.display()));
        if let Some(cause) = remote {
            watcher.scan_from_now_on(&cause);
            return watcher;
        }
        match FolderWatcher::new(&watcher.filter, FOLDERS_LEN_MAX) {
            Ok(folders) => {
                watcher.warning = folders.excess_warning();
                watcher.source = ChangeSource::Kernel(folders);
            }
            Err(error) => watcher.scan_from_now_on(&cause(&error)),
        }
        watcher
    }

    fn idle(dirs: &[PathBuf], files: &[PathBuf], now: Stamp) -> FileWatcher {
        let mut filter = CodeFilter::default();
        filter.add(dirs, files);
        FileWatcher {
            source: ChangeSource::Scans(Snapshot::default()),
            filter,
            pending: None,
            next_scan: now.plus(SCAN_INTERVAL),
            warning: None,
        }
    }

    /// Watches more files and folders. Their present contents are no change.
    pub(super) fn extend(&mut self, dirs: &[PathBuf], files: &[PathBuf], now: Stamp) {
        // The next scan compares with the files as they are now.
        self.next_scan = now;
        self.note_changes(now);
        if !self.filter.add(dirs, files) {
            return;
        }
        match &mut self.source {
            ChangeSource::Kernel(folders) => match folders.watch_roots(&self.filter) {
                Ok(()) => self.warning = folders.excess_warning(),
                Err(error) => self.scan_from_now_on(&cause(&error)),
            },
            ChangeSource::Scans(snapshot) => *snapshot = Snapshot::take(&self.filter),
        }
    }

    /// Descriptor that becomes readable with a change, beside `deadline`. None where the kernel reports nothing.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            ChangeSource::Kernel(folders) => Some(folders.fd()),
            ChangeSource::Scans(_) => None,
        }
    }

    /// When to call `changed` although nothing is readable.
    pub(super) fn deadline(&self) -> Stamp {
        let must_scan = match &self.source {
            ChangeSource::Kernel(folders) => folders.misses_a_root(),
            ChangeSource::Scans(_) => true,
        };
        let scan = if must_scan {
            self.next_scan
        } else {
            Stamp::NEVER
        };
        let pending = self.pending.as_ref();
        scan.min(pending.map_or(Stamp::NEVER, PendingChange::due))
    }

    /// The first file of those that have changed, once no other follows. To be called when `fd` is readable and
    /// at `deadline`.
    pub(super) fn changed(&mut self, now: Stamp) -> Option<PathBuf> {
        self.note_changes(now);
        let due = self.pending.take_if(|pending| pending.due() <= now)?;
        Some(due.path)
    }

    /// One line for the operator, given once: why changes are not noticed at once, or not everywhere.
    pub(super) fn warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    fn note_changes(&mut self, now: Stamp) {
        let scans = now >= self.next_scan;
        let found = match &mut self.source {
            ChangeSource::Kernel(folders) => folders.changed(&self.filter).and_then(|reported| {
                let created = match scans {
                    true => folders.find_roots(&self.filter)?,
                    false => None,
                };
                Ok(reported.or(created))
            }),
            ChangeSource::Scans(snapshot) if scans => Ok(snapshot.renew(&self.filter)),
            ChangeSource::Scans(_) => return,
        };
        let found = found.unwrap_or_else(|error| {
            self.scan_from_now_on(&cause(&error));
            // Changes that the kernel would have reported until now are unknown.
            self.filter.roots().next().map(Path::to_owned)
        });
        if let Some(path) = found {
            let pending = self.pending.get_or_insert(PendingChange {
                path,
                first: now,
                last: now,
            });
            pending.last = now;
        }
        if scans {
            // While files change, the next scan says whether that is over.
            self.next_scan = now.plus(match (&self.source, &self.pending) {
                (ChangeSource::Scans(_), Some(_)) => QUIET_TIME,
                _ => SCAN_INTERVAL,
            });
        }
    }

    fn scan_from_now_on(&mut self, cause: &str) {
        self.source = ChangeSource::Scans(Snapshot::take(&self.filter));
        self.warning = Some(format!(
            "{cause}: looking for changed code once a second instead"
        ));
    }
}

impl PendingChange {
    fn due(&self) -> Stamp {
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
