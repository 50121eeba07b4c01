//! Pictures of all files that count, for where nothing tells of changes: two of them are compared.
//!
//! Takes a scope, gives the first file that differs. Times and lengths are all it looks at.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::FOLDERS_LEN_MAX;
use super::scope::{Entered, Reach, Scope, walk};

/// Files that count, with what changes when they do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Picture {
    files: BTreeMap<PathBuf, Facts>,
}

/// An editor that renames makes another inode, one that writes another time.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Picture {
    /// How the files are now.
    pub(super) fn take(scope: &Scope) -> Picture {
        let mut files = BTreeMap::new();
        let mut note = |path: PathBuf| {
            if let Ok(found) = fs::metadata(&path) {
                files.insert(path, Facts::of(&found));
            }
        };
        scope.files().for_each(|path| note(path.to_owned()));
        let mut folders_len = 0;
        let mut enter = |_: &_| {
            folders_len += 1;
            Ok(if folders_len > FOLDERS_LEN_MAX {
                Entered::No
            } else {
                Entered::Yes
            })
        };
        for place in scope.places() {
            if scope.reach(place) == Some(Reach::Tree) {
                walk(place, &mut enter, &mut note).expect("nothing is refused here");
            }
        }
        Picture { files }
    }

    /// Takes another one in its place; gives the first file that came, went or changed.
    pub(super) fn renew(&mut self, scope: &Scope) -> Option<PathBuf> {
        let now = Picture::take(scope);
        let changed = now
            .files
            .iter()
            .find(|(path, facts)| self.files.get(*path) != Some(*facts));
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

impl Facts {
    fn of(found: &Metadata) -> Facts {
        Facts {
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}
