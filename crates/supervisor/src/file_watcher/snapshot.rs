//! Snapshot of all files that count, for file systems whose changes the kernel does not report.
//!
//! Takes a filter, gives the first file that differs from the snapshot before. Compares inodes, times and
//! lengths only.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::FOLDERS_LEN_MAX;
use super::filter::{CodeFilter, Coverage, Entered, walk};

/// Files that count, each with its state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    files: BTreeMap<PathBuf, FileState>,
}

/// An editor that renames makes another inode, one that writes another time.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Snapshot {
    /// The files as they are now.
    pub(super) fn take(filter: &CodeFilter) -> Snapshot {
        let mut files = BTreeMap::new();
        let mut note = |path: PathBuf| {
            if let Ok(found) = fs::metadata(&path) {
                files.insert(path, FileState::of(&found));
            }
        };
        filter.files().for_each(|path| note(path.to_owned()));
        let mut folders_len = 0;
        let mut enter = |_: &_| -> Result<Entered, Infallible> {
            folders_len += 1;
            Ok(match folders_len > FOLDERS_LEN_MAX {
                true => Entered::No,
                false => Entered::Yes,
            })
        };
        for root in filter.roots() {
            if filter.extent(root) == Some(Coverage::Tree) {
                let Ok(()) = walk(root, &mut enter, &mut note);
            }
        }
        Snapshot { files }
    }

    /// Takes a new snapshot in its place; gives the first file that came, went or changed.
    pub(super) fn renew(&mut self, filter: &CodeFilter) -> Option<PathBuf> {
        let now = Snapshot::take(filter);
        let changed = now
            .files
            .iter()
            .find(|(path, state)| self.files.get(*path) != Some(*state));
        let gone = || {
            self.files
                .keys()
                .find(|path| !now.files.contains_key(*path))
        };
        let found = changed.map(|(path, _)| path).or_else(gone).cloned();
        *self = now;
        found
    }
}

impl FileState {
    fn of(found: &Metadata) -> FileState {
        FileState {
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}
