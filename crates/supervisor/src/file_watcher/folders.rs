//! Folders that are watched through `notify` (inotify), one watch for each.
//!
//! Takes a filter, gives the first file that counts among the reported changes. `notify` could watch a tree by
//! itself, but only all of it: environments, `node_modules` and version control would use up the watches that
//! the kernel allows a user. So this module chooses the folders, and follows those that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::{SigSet, SigmaskHow};
use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RemoveKind, RenameMode};
use notify::{Error, ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::filter::{CodeFilter, Coverage, ENVIRONMENT_MARK, Entered, is_left_out, walk};
use std::sync::{Arc, Mutex};

use os::lock;

/// Reports that wait for the supervisor. More of them are one report: anything may have changed.
const REPORTS_LEN_MAX: usize = 10_000;

/// The kernel's watches.
#[derive(Debug)]
pub(super) struct FolderWatcher {
    notify: RecommendedWatcher,
    reports: Arc<Reports>,
    folders: BTreeMap<PathBuf, Coverage>,
    /// Roots that do not exist at the moment.
    absent: BTreeSet<PathBuf>,
    folders_len_max: usize,
    /// There are more folders than are watched.
    has_excess: bool,
}

/// From the thread of `notify` to the supervisor.
#[derive(Debug)]
struct Reports {
    list: Mutex<ReportList>,
    /// Readable while the list is not empty.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct ReportList {
    events: Vec<Event>,
    /// Events were dropped, by the kernel or here.
    is_incomplete: bool,
}

impl FolderWatcher {
    /// Watches all that the filter names, at most so many folders.
    ///
    /// # Errors
    /// The kernel has no inotify, or no more of it for this user.
    pub(super) fn new(filter: &CodeFilter, folders_len_max: usize) -> Result<Self, Error> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let reports = Arc::new(Reports {
            list: Mutex::default(),
            wake: wake.map_err(|errno| Error::io(errno.into()))?,
        });
        let mut watcher = FolderWatcher {
            notify: start_notify(Arc::clone(&reports))?,
            reports,
            folders: BTreeMap::new(),
            absent: BTreeSet::new(),
            folders_len_max,
            has_excess: false,
        };
        watcher.watch_roots(filter)?;
        Ok(watcher)
    }

    /// Watches what is new in the filter as well.
    ///
    /// # Errors
    /// As `new`.
    pub(super) fn watch_roots(&mut self, filter: &CodeFilter) -> Result<(), Error> {
        for root in filter.roots() {
            self.watch_root(filter, root)?;
        }
        Ok(())
    }

    /// Readable when something has changed.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.reports.wake.as_fd()
    }

    /// Whether a root has to be looked for.
    pub(super) fn misses_a_root(&self) -> bool {
        !self.absent.is_empty()
    }

    /// What to tell the operator if some folders are not watched.
    pub(super) fn excess_warning(&self) -> Option<String> {
        self.has_excess.then(|| {
            format!(
                "there are more than {} folders to watch: changes in the deepest ones are not noticed",
                self.folders_len_max
            )
        })
    }

    /// Looks for roots that did not exist; gives the first that does.
    ///
    /// # Errors
    /// As `new`.
    pub(super) fn find_roots(&mut self, filter: &CodeFilter) -> Result<Option<PathBuf>, Error> {
        let mut found = None;
        for root in std::mem::take(&mut self.absent) {
            self.watch_root(filter, &root)?;
            if found.is_none() && !self.absent.contains(&root) {
                found = Some(root);
            }
        }
        Ok(found)
    }

    /// Takes what was reported; gives the first file that counts.
    ///
    /// # Errors
    /// As `new`.
    pub(super) fn changed(&mut self, filter: &CodeFilter) -> Result<Option<PathBuf>, Error> {
        let taken = self.reports.take();
        if taken.is_incomplete {
            return self.start_anew(filter).map(Some);
        }
        let mut found = None;
        for event in &taken.events {
            let path = self.apply(filter, event)?;
            found = found.or(path);
        }
        Ok(found)
    }

    #[cfg(test)]
    pub(super) fn lose_a_report(&self) {
        self.reports.put(Err(Error::generic("test")));
    }

    fn apply(&mut self, filter: &CodeFilter, event: &Event) -> Result<Option<PathBuf>, Error> {
        let Some(path) = event.paths.first() else {
            return Ok(None);
        };
        let is_moved = event.kind == EventKind::Modify(ModifyKind::Name(RenameMode::From));
        let is_gone = is_moved || matches!(event.kind, EventKind::Remove(_));
        if is_gone && self.folders.contains_key(path) {
            self.forget(filter, path)?;
            // Each file of a deleted folder was reported by itself; those of a moved one were not.
            let counts = is_moved || filter.extent(path).is_some();
            return Ok(counts.then(|| path.clone()));
        }
        let folder = path.parent();
        let Some((folder, extent)) = folder.and_then(|one| self.folders.get_key_value(one)) else {
            return Ok(None);
        };
        let (folder, extent) = (folder.clone(), *extent);
        if !is_gone && is_folder(path) {
            return match extent == Coverage::Tree && !is_left_out(path) {
                true => self.watch_tree(filter, path),
                false => Ok(None),
            };
        }
        let is_mark = path
            .file_name()
            .is_some_and(|name| name == ENVIRONMENT_MARK);
        if is_mark && !is_gone && filter.extent(&folder).is_none() {
            self.forget(filter, &folder)?;
            return Ok(None);
        }
        // A new file is reported again when it is closed. A link is never closed.
        let is_begun = event.kind == EventKind::Create(CreateKind::File) && !is_link(path);
        let is_of_folder = event.kind == EventKind::Remove(RemoveKind::Folder);
        let counts = !is_begun && !is_of_folder && filter.counts(path, extent);
        Ok(counts.then(|| path.clone()))
    }

    /// Reports were lost: which folders exist is not known any more.
    fn start_anew(&mut self, filter: &CodeFilter) -> Result<PathBuf, Error> {
        *self = FolderWatcher::new(filter, self.folders_len_max)?;
        let root = filter.roots().next();
        Ok(root.expect("reports come from below a root").to_owned())
    }

    fn watch_root(&mut self, filter: &CodeFilter, root: &Path) -> Result<(), Error> {
        match filter.extent(root) {
            Some(Coverage::Tree) => drop(self.watch_tree(filter, root)?),
            Some(Coverage::NamedFiles) => drop(self.watch(filter, root, Coverage::NamedFiles)?),
            None => {}
        }
        Ok(())
    }

    /// Watches a folder and all below; gives the first code in it.
    fn watch_tree(&mut self, filter: &CodeFilter, top: &Path) -> Result<Option<PathBuf>, Error> {
        let mut found = None;
        walk(
            top,
            |dir| self.watch(filter, dir, Coverage::Tree),
            |file| {
                found.get_or_insert(file);
            },
        )?;
        Ok(found)
    }

    fn watch(
        &mut self,
        filter: &CodeFilter,
        dir: &Path,
        extent: Coverage,
    ) -> Result<Entered, Error> {
        if !self.folders.contains_key(dir) && self.folders.len() >= self.folders_len_max {
            self.has_excess = true;
            return Ok(Entered::No);
        }
        match self.notify.watch(dir, RecursiveMode::NonRecursive) {
            Ok(()) => {}
            Err(error) if is_of_folder(&error) => {
                if filter.extent(dir).is_some() {
                    self.absent.insert(dir.to_owned());
                }
                return Ok(Entered::No);
            }
            Err(error) => return Err(error),
        }
        let known = self.folders.entry(dir.to_owned()).or_insert(extent);
        *known = extent.max(*known);
        Ok(Entered::Yes)
    }

    /// Forgets a folder that is gone, and all below. Another may have its name by now; it is watched instead.
    fn forget(&mut self, filter: &CodeFilter, path: &Path) -> Result<(), Error> {
        let folders = std::mem::take(&mut self.folders);
        let (gone, kept): (Vec<_>, Vec<_>) =
            (folders.into_iter()).partition(|(folder, _)| folder.starts_with(path));
        self.folders.extend(kept);
        for (folder, _) in &gone {
            // The kernel may have forgotten it before.
            let _ = self.notify.unwatch(folder);
            if filter.extent(folder).is_some() {
                self.absent.insert(folder.clone());
            }
        }
        let was_in_tree = gone
            .first()
            .is_some_and(|(_, extent)| *extent == Coverage::Tree);
        if was_in_tree && is_folder(path) && !is_left_out(path) {
            self.watch_tree(filter, path)?;
        }
        self.find_roots(filter).map(drop)
    }
}

impl Reports {
    fn put(&self, report: Result<Event, Error>) {
        let mut list = lock(&self.list);
        match report {
            Ok(event) if event.need_rescan() => list.is_incomplete = true,
            Ok(event) if !matters(&event.kind) => return,
            Ok(event) if list.events.len() < REPORTS_LEN_MAX => list.events.push(event),
            Ok(_) | Err(_) => list.is_incomplete = true,
        }
        // It fails only when the counter is full, and then the supervisor is woken anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> ReportList {
        let mut list = lock(&self.list);
        let mut count = [0; 8];
        // Under the lock, so that a report that comes now wakes the supervisor again.
        let _ = rustix::io::read(&self.wake, &mut count);
        std::mem::take(&mut list)
    }
}

/// The thread of `notify` handles no signals: they are the supervisor's.
fn start_notify(reports: Arc<Reports>) -> Result<RecommendedWatcher, Error> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = notify::recommended_watcher(move |report| reports.put(report));
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    started
}

/// A file that is being written does not matter before it is closed: half a file is no code.
fn matters(kind: &EventKind) -> bool {
    match kind {
        EventKind::Create(_) | EventKind::Remove(_) => true,
        EventKind::Access(kind) => *kind == AccessKind::Close(AccessMode::Write),
        // A move within what is watched comes as `From`, `To`, and then as both.
        EventKind::Modify(ModifyKind::Name(mode)) => *mode != RenameMode::Both,
        _ => false,
    }
}

fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

/// A symbolic link, or another name of a file.
fn is_link(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|found| found.is_symlink() || found.nlink() > 1)
}

/// The folder is gone, is none, or may not be read: that is no reason to watch the others less.
fn is_of_folder(error: &Error) -> bool {
    match &error.kind {
        ErrorKind::PathNotFound => true,
        ErrorKind::Io(error) => matches!(
            Errno::from_io_error(error),
            Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG)
        ),
        _ => false,
    }
}
