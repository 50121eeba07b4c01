//! Filter of what is watched: the roots, and which files below them count as code.
//!
//! Takes folders and files as they were named, gives roots (folders that are watched whatever lies above them)
//! and says of a name whether a change of it counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::FOLDERS_LEN_MAX;

/// Endings of what Python imports.
const CODE_ENDINGS: [&str; 2] = ["py", "so"];
/// Folders that hold no code of the application's own.
const LEFT_OUT: [&str; 3] = ["__pycache__", "node_modules", "site-packages"];
/// Marks of a virtual environment: PEP 405, and conda's own.
const ENVIRONMENT_MARK: &str = "pyvenv.cfg";
const CONDA_MARK: &str = "conda-meta";

/// Folders and files that are watched.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeFilter {
    /// Folders that are watched whatever lies above them, with what of each is watched.
    pub(super) roots: BTreeMap<PathBuf, Coverage>,
    /// Files that count whatever their name.
    pub(super) files: BTreeSet<PathBuf>,
}

/// What of a folder is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Coverage {
    /// The files in it that were named.
    NamedFiles,
    /// All code in it and below.
    Tree,
}

impl CodeFilter {
    /// Adds folders and files; says whether there is anything new among them.
    pub(super) fn add(&mut self, dirs: &[PathBuf], files: &[PathBuf]) -> bool {
        let before = (self.roots.len(), self.files.len());
        let mut grew = false;
        for dir in dirs {
            grew |= self.add_root(real(dir), Coverage::Tree);
        }
        for file in files {
            // The name may be a link: both it and what it names can be replaced.
            for path in [beside_real_parent(file), real(file)] {
                if let Some(parent) = path.parent() {
                    // The folder is watched and not the file: an editor that renames leaves another inode under the
                    // name.
                    self.add_root(parent.to_owned(), Coverage::NamedFiles);
                    self.files.insert(path);
                }
            }
        }
        grew || before != (self.roots.len(), self.files.len())
    }

    fn add_root(&mut self, path: PathBuf, extent: Coverage) -> bool {
        let known = self.roots.entry(path).or_insert(extent);
        let grows = extent > *known;
        *known = extent.max(*known);
        grows
    }
}

/// Walks a tree, the nearest folders first. `enter` is called for each folder before its names are read, so
/// that what comes into it afterwards is seen by one of the two, and says whether it can be read; `file` for the code
/// in it.
///
/// # Errors
/// The first of `enter`. What cannot be read or vanishes meanwhile is passed over.
pub(super) fn walk<E>(
    root: &Path,
    mut enter: impl FnMut(&Path) -> Result<bool, E>,
    mut file: impl FnMut(PathBuf),
) -> Result<(), E> {
    let mut waiting = VecDeque::from([root.to_owned()]);
    while let Some(dir) = waiting.pop_front() {
        if !enter(&dir)? {
            continue;
        }
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let kind = entry.file_type();
            let is_folder = kind.is_ok_and(|kind| kind.is_dir());
            if !is_folder && is_code(&entry.file_name()) {
                file(path);
            } else if is_folder && waiting.len() <= FOLDERS_LEN_MAX && !is_left_out(&path) {
                // What waits is bounded as well, beside what is watched.
                waiting.push_back(path);
            }
        }
    }
    Ok(())
}

fn is_code(name: &OsStr) -> bool {
    // A hidden name is an editor's: `.app.py.swp`, `.#app.py`.
    let ending = Path::new(name).extension();
    !is_hidden(name) && ending.is_some_and(|ending| CODE_ENDINGS.iter().any(|code| ending == *code))
}

/// Whether a folder below a root is left out.
fn is_left_out(dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default();
    is_hidden(name)
        || LEFT_OUT.iter().any(|left_out| name == *left_out)
        || dir.join(ENVIRONMENT_MARK).exists()
        || dir.join(CONDA_MARK).exists()
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize()
        .unwrap_or_else(|_| beside_real_parent(path))
}

fn beside_real_parent(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The folder alone: a file that is a link is watched as the link, which is what a deployment sets anew.
    let parent = absolute
        .parent()
        .and_then(|parent| parent.canonicalize().ok());
    match (parent, absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute,
    }
}
