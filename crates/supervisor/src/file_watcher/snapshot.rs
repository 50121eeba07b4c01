//! Snapshot of all files that count: two of them say what has changed in between.
//!
//! Takes paths, compares inodes, times and lengths. Reads no file contents.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use notify::Error;

use super::filter::{Coverage, WatchedPaths, walk};

/// Files that count, each with its state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    files: BTreeMap<PathBuf, FileState>,
    /// There are more folders than were looked at.
    pub(super) has_excess: bool,
    /// A root does not exist at the moment.
    pub(super) misses_a_root: bool,
}

/// An editor that renames makes another inode, one that writes another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Snapshot {
    /// The files as they are now, in at most so many folders. `enter` is called for each folder before its names are
    /// read, so that what comes into it afterwards is reported; it says whether the folder can be looked at.
    ///
    /// # Errors
    /// The first of `enter`.
    pub(super) fn take(
        watched: &WatchedPaths,
        folders_len_max: usize,
        mut enter: impl FnMut(&Path) -> Result<bool, Error>,
    ) -> Result<Snapshot, Error> {
        let mut taken = Snapshot::default();
        let mut folders_len = 0;
        let mut enter = |dir: &Path| {
            folders_len += 1;
            match folders_len <= folders_len_max {
                true => enter(dir),
                false => Ok(false),
            }
        };
        for (root, extent) in &watched.roots {
            // The kernel watches nothing that is not there: until it comes back, a scan looks for it.
            taken.misses_a_root |= !root.is_dir();
            match extent {
                Coverage::Tree => walk(root, &mut enter, |file| taken.note(file))?,
                Coverage::NamedFiles => drop(enter(root)?),
            }
        }
        for path in &watched.files {
            // Of a link itself: the folder that it leads to changes with each file in it, which does not count.
            taken.note_state(path.clone(), fs::symlink_metadata(path));
        }
        taken.has_excess = folders_len > folders_len_max;
        Ok(taken)
    }

    fn note(&mut self, path: PathBuf) {
        let found = fs::metadata(&path);
        self.note_state(path, found);
    }

    fn note_state(&mut self, path: PathBuf, found: io::Result<Metadata>) {
        if let Ok(found) = found {
            self.files.insert(path, FileState::of(&found));
        }
    }

    /// The first file that came, went or changed.
    pub(super) fn first_difference(&self, next: &Snapshot) -> Option<PathBuf> {
        let differs = |path: &&PathBuf| self.files.get(*path) != next.files.get(*path);
        let changed = next.files.keys().find(differs);
        let gone = self.files.keys().find(differs);
        changed.into_iter().chain(gone).min().cloned()
    }
}

impl FileState {
    fn of(found: &Metadata) -> FileState {
        FileState {
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}
