//! Eyes: what the kernel tells of folders (inotify), one watch for each folder of a tree.
//!
//! Takes a scope, gives the first file that counts among what the kernel tells. Folders that come are
//! watched, those that go are forgotten; a place that goes is looked for again.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use inotify::{EventMask, EventOwned, Inotify, WatchDescriptor, WatchMask};
use rustix::io::Errno;

use super::Bounds;
use super::scope::{ENVIRONMENT_MARK, Entered, Reach, Scope, is_left_out, walk};

/// What is asked of every folder. A file that is being written is not told of until it is closed: half a
/// file is no code.
const MASK: WatchMask = WatchMask::CREATE
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::DELETE)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::ONLYDIR)
    .union(WatchMask::EXCL_UNLINK);
/// Bytes and number of reads at a time: whoever writes without end must not hold up the caller.
const READ_BYTES: usize = 64 << 10;
const READS_LEN_MAX: usize = 64;

/// The kernel's end of a watch.
#[derive(Debug)]
pub(super) struct Eyes {
    inotify: Inotify,
    folders: HashMap<WatchDescriptor, Folder>,
    /// Places that are not there at the moment.
    absent: BTreeSet<PathBuf>,
    bounds: Bounds,
    excess: Excess,
}

/// A folder that is watched.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    reach: Reach,
}

/// Whether there were more folders than are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    None,
    Some,
}

impl Eyes {
    /// Opens eyes on all of `scope`, within `bounds`; more watches are refused as the kernel would.
    ///
    /// # Errors
    /// The kernel has no inotify, or no more of it for this user.
    pub(super) fn new(scope: &Scope, bounds: Bounds) -> io::Result<Eyes> {
        let mut eyes = Eyes {
            inotify: Inotify::init()?,
            folders: HashMap::new(),
            absent: BTreeSet::new(),
            bounds,
            excess: Excess::None,
        };
        eyes.open(scope)?;
        Ok(eyes)
    }

    /// Watches what is new in `scope` as well.
    ///
    /// # Errors
    /// As `new`.
    pub(super) fn open(&mut self, scope: &Scope) -> io::Result<()> {
        for place in scope.places() {
            self.open_place(scope, place)?;
        }
        Ok(())
    }

    /// Readable when there is something to `read`.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Whether a place is to be looked for.
    pub(super) fn misses_a_place(&self) -> bool {
        !self.absent.is_empty()
    }

    /// The bound, if some folders are not watched because there are more.
    pub(super) fn excess(&self) -> Option<usize> {
        (self.excess == Excess::Some).then_some(self.bounds.folders_len)
    }

    /// Looks for places that were not there; gives the first that is.
    ///
    /// # Errors
    /// As `new`.
    pub(super) fn seek(&mut self, scope: &Scope) -> io::Result<Option<PathBuf>> {
        let mut found = None;
        for place in std::mem::take(&mut self.absent) {
            self.open_place(scope, &place)?;
            if found.is_none() && !self.absent.contains(&place) {
                found = Some(place);
            }
        }
        Ok(found)
    }

    /// Reads what the kernel tells; gives the first file that counts.
    ///
    /// # Errors
    /// As `new`.
    pub(super) fn read(&mut self, scope: &Scope) -> io::Result<Option<PathBuf>> {
        let mut buffer = vec![0; READ_BYTES];
        let mut found = None;
        for _ in 0..READS_LEN_MAX {
            let events: Vec<EventOwned> = match self.inotify.read_events(&mut buffer) {
                Ok(events) => events.map(|event| event.to_owned()).collect(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            for event in events {
                let path = self.take(scope, event)?;
                found = found.or(path);
            }
        }
        Ok(found)
    }

    fn take(&mut self, scope: &Scope, event: EventOwned) -> io::Result<Option<PathBuf>> {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            return self.open_anew(scope).map(Some);
        }
        let Some(folder) = self.folders.get(&event.wd) else {
            // It was forgotten after this had happened.
            return Ok(None);
        };
        let (path, reach) = (folder.path.clone(), folder.reach);
        match event.name {
            None => Ok(self.take_own(scope, &event.wd, event.mask, path)),
            Some(name) => self.take_named(scope, event.mask, reach, &path, &name),
        }
    }

    /// What happened to the folder itself.
    fn take_own(
        &mut self,
        scope: &Scope,
        wd: &WatchDescriptor,
        mask: EventMask,
        path: PathBuf,
    ) -> Option<PathBuf> {
        let is_place = scope.reach(&path).is_some();
        if mask.contains(EventMask::IGNORED) {
            self.folders.remove(wd);
            if is_place {
                self.absent.insert(path);
            }
            return None;
        }
        // Of others the folder above tells.
        let is_gone = mask.intersects(EventMask::DELETE_SELF | EventMask::MOVE_SELF);
        if !is_gone || !is_place {
            return None;
        }
        self.forget(scope, &path);
        Some(path)
    }

    /// What happened to a name in the folder.
    fn take_named(
        &mut self,
        scope: &Scope,
        mask: EventMask,
        reach: Reach,
        dir: &Path,
        name: &OsStr,
    ) -> io::Result<Option<PathBuf>> {
        let path = dir.join(name);
        if mask.contains(EventMask::ISDIR) {
            return match reach {
                Reach::Tree => self.take_folder(scope, mask, path),
                Reach::Named => Ok(None),
            };
        }
        let came = mask.intersects(EventMask::CREATE | EventMask::MOVED_TO);
        if came && name == ENVIRONMENT_MARK && scope.reach(dir).is_none() {
            self.forget(scope, dir);
            self.seek(scope)?;
            return Ok(None);
        }
        // A new file is told of again when it is closed. A link is never closed.
        let is_begun = mask.contains(EventMask::CREATE) && !is_link(&path);
        Ok((!is_begun && scope.counts(&path, reach)).then_some(path))
    }

    /// A folder in a tree came or went.
    fn take_folder(
        &mut self,
        scope: &Scope,
        mask: EventMask,
        path: PathBuf,
    ) -> io::Result<Option<PathBuf>> {
        if mask.intersects(EventMask::CREATE | EventMask::MOVED_TO) {
            return match is_left_out(&path) {
                true => Ok(None),
                false => self.open_tree(scope, &path),
            };
        }
        let was_watched = self.forget(scope, &path);
        // Of a deleted one each file has told.
        let is_moved = mask.contains(EventMask::MOVED_FROM);
        Ok((is_moved && was_watched > 0).then_some(path))
    }

    /// The kernel had to drop events: all that is known may be wrong.
    fn open_anew(&mut self, scope: &Scope) -> io::Result<PathBuf> {
        *self = Eyes::new(scope, self.bounds)?;
        let first = scope
            .places()
            .next()
            .expect("nothing is told without a place");
        Ok(first.to_owned())
    }

    fn open_place(&mut self, scope: &Scope, place: &Path) -> io::Result<()> {
        match scope.reach(place) {
            Some(Reach::Tree) => drop(self.open_tree(scope, place)?),
            Some(Reach::Named) => drop(self.watch(scope, place, Reach::Named)?),
            None => {}
        }
        Ok(())
    }

    /// Watches a folder and all below; gives the first code in it.
    fn open_tree(&mut self, scope: &Scope, root: &Path) -> io::Result<Option<PathBuf>> {
        let mut found = None;
        walk(
            root,
            |dir| self.watch(scope, dir, Reach::Tree),
            |file| {
                found.get_or_insert(file);
            },
        )?;
        Ok(found)
    }

    fn watch(&mut self, scope: &Scope, dir: &Path, reach: Reach) -> io::Result<Entered> {
        if self.folders.len() >= self.bounds.folders_len {
            self.excess = Excess::Some;
            return Ok(Entered::No);
        }
        if self.folders.len() >= self.bounds.watches_len {
            return Err(Errno::NOSPC.into());
        }
        let wd = match self.inotify.watches().add(dir, MASK) {
            Ok(wd) => wd,
            Err(error) if is_of_folder(&error) => {
                if scope.reach(dir).is_some() {
                    self.absent.insert(dir.to_owned());
                }
                return Ok(Entered::No);
            }
            Err(error) => return Err(error),
        };
        let folder = self.folders.entry(wd).or_insert_with(|| Folder {
            path: dir.to_owned(),
            reach,
        });
        // The same folder by two ways has one watch. One that is only here has moved, and what the kernel
        // tells of that is still to be read.
        if folder.path != dir && !is_same(&folder.path, dir) {
            let left = std::mem::replace(&mut folder.path, dir.to_owned());
            if scope.reach(&left).is_some() {
                self.absent.insert(left);
            }
        }
        folder.reach = folder.reach.max(reach);
        Ok(Entered::Yes)
    }

    /// Forgets a folder and all below, and says how many were watched.
    fn forget(&mut self, scope: &Scope, path: &Path) -> usize {
        let below = |folder: &Folder| folder.path.starts_with(path);
        let gone: Vec<_> = self.folders.extract_if(|_, folder| below(folder)).collect();
        let gone_len = gone.len();
        for (wd, folder) in gone {
            // The kernel may have forgotten it before.
            let _ = self.inotify.watches().remove(wd);
            if scope.reach(&folder.path).is_some() {
                self.absent.insert(folder.path);
            }
        }
        gone_len
    }
}

/// A symbolic link, or another name of a file.
fn is_link(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|found| found.is_symlink() || found.nlink() > 1)
}

/// Whether both names are of one folder.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|found| Some(found) == identity(other))
}

/// The folder is gone, is none, or may not be read: that is no reason to watch the others less.
fn is_of_folder(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG)
    )
}
