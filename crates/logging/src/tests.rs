//! What tests of several modules need: folders, a disk that is full, a pipe that nothing reads.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use tempfile::TempDir;

/// The names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The reading end of a pipe that is never emptied.
pub(crate) fn stuck_pipe(path: &Path) -> File {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap())
}

/// A file system of its own that can be full; only root can make one.
pub(crate) struct Disk(pub(crate) TempDir);

impl Disk {
    pub(crate) fn new(options: &str) -> Option<Disk> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]);
        let mounted = mount.arg(dir.path()).output();
        if mounted.is_ok_and(|out| out.status.success()) {
            return Some(Disk(dir));
        }
        eprintln!("skipped: no file system can be mounted here");
        None
    }

    pub(crate) fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Leaves this many pages.
    pub(crate) fn fill(&self, pages_left: u64) {
        let stat = rustix::fs::statvfs(self.0.path()).unwrap();
        let bytes = stat.f_bavail.saturating_sub(pages_left) * stat.f_bsize;
        std::fs::write(self.filler(), vec![b'x'; bytes as usize]).unwrap();
    }

    pub(crate) fn free(&self) {
        let _ = std::fs::remove_file(self.filler());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        let _ = unmount.arg("-l").arg(self.0.path()).output();
    }
}
