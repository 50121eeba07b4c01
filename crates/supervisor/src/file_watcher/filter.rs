//! Filter of what is watched: the folders and files that were named, and which files below them count as code.
//!
//! Takes folders and files as they were named, gives the roots that these names lead to at the moment (folders that are
//! watched whatever lies above them), and says of a name whether a change of it counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::FOLDERS_LEN_MAX;

/// Links of one path; path_resolution(7) follows no more.
const LINKS_LEN_MAX: usize = 40;
/// Endings of what Python imports.
const CODE_ENDINGS: [&str; 2] = ["py", "so"];
/// Folders that hold no code of the application's own.
const LEFT_OUT: [&str; 3] = ["__pycache__", "node_modules", "site-packages"];
/// Marks of a virtual environment: PEP 405, and conda's own.
const ENVIRONMENT_MARK: &str = "pyvenv.cfg";
const CONDA_MARK: &str = "conda-meta";

/// Folders and files that are watched, absolute, by the names that they were given.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeFilter {
    dirs: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
}

/// Where these names lead at the moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WatchedPaths {
    /// Folders that are watched whatever lies above them, with what of each is watched.
    pub(super) roots: BTreeMap<PathBuf, Coverage>,
    /// Files that count whatever their name, and links on the way to what was named.
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
        let before = (self.dirs.len(), self.files.len());
        self.dirs.extend(dirs.iter().map(|dir| absolute(dir)));
        self.files.extend(files.iter().map(|file| absolute(file)));
        before != (self.dirs.len(), self.files.len())
    }

    /// A deployment and a renewal of certificates set links anew, also those to folders: what is watched is found anew
    /// with each look.
    pub(super) fn resolved(&self) -> WatchedPaths {
        let mut watched = WatchedPaths::default();
        for dir in &self.dirs {
            let dir = watched.follow(dir);
            watched.add_root(dir, Coverage::Tree);
        }
        for file in &self.files {
            let file = watched.follow(file);
            watched.add_file(file);
        }
        watched
    }
}

impl WatchedPaths {
    /// Adds each link on the way to what a path names, and gives the path without links, as far as it exists.
    fn follow(&mut self, path: &Path) -> PathBuf {
        let mut waiting: VecDeque<OsString> = parts(path).collect();
        let mut links_len = 0;
        let mut real = PathBuf::new();
        while let Some(part) = waiting.pop_front() {
            // `/` takes the place of the whole, and `..` is above what is without links by now.
            if part == ".." {
                real.pop();
                continue;
            }
            let next = real.join(part);
            match fs::read_link(&next) {
                Ok(target) if links_len < LINKS_LEN_MAX => {
                    links_len += 1;
                    let rest = std::mem::take(&mut waiting);
                    waiting = parts(&target).chain(rest).collect();
                    self.add_file(next);
                }
                _ => real = next,
            }
        }
        real
    }

    fn add_file(&mut self, path: PathBuf) {
        // The folder is watched and not the file: an editor that renames leaves another inode under the name.
        if let Some(parent) = path.parent() {
            self.add_root(parent.to_owned(), Coverage::NamedFiles);
            self.files.insert(path);
        }
    }

    fn add_root(&mut self, path: PathBuf, extent: Coverage) {
        let known = self.roots.entry(path).or_insert(extent);
        *known = extent.max(*known);
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

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.map(|part| part.as_os_str().to_owned())
}
