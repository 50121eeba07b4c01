//! A disk that is full: what a log file does with what it cannot write.

use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;

/// A file system of its own that can be full; only root can make one.
pub(super) struct Disk(pub(super) TempDir);

impl Disk {
    pub(super) fn new(options: &str) -> Option<Disk> {
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

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Leaves this many pages.
    pub(super) fn fill(&self, pages_left: u64) {
        let stat = rustix::fs::statvfs(self.0.path()).unwrap();
        let bytes = stat.f_bavail.saturating_sub(pages_left) * stat.f_bsize;
        std::fs::write(self.filler(), vec![b'x'; bytes as usize]).unwrap();
    }

    pub(super) fn free(&self) {
        let _ = std::fs::remove_file(self.filler());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        let _ = unmount.arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn is_held_against_compression_as_long_as_lines_come_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let is_held = |path: &Path| {
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(File::open(path).unwrap(), lock).is_err()
    };
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "one\n");
    let mut other = LogFile::open(&path).unwrap();
    let old = file.rotate(None, NOON).unwrap().old.unwrap();
    assert!(is_held(&old) && is_held(&path));
    assert_eq!(other.reopen(None).unwrap(), Continuation::Continues);
    // A process that another test starts has copies of this one's descriptors, and with them
    // of the lock, until it runs its own program.
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_held(&old) {
        assert!(Instant::now() < deadline, "still held");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_held(&path));
}

#[test]
fn takes_the_start_of_a_line_back_when_the_disk_is_full() {
    let Some(disk) = Disk::new("size=64k") else {
        return;
    };
    let path = disk.0.path().join("a.log");
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "one\n");
    disk.fill(0);
    let line = "two ".repeat(2000) + "\n";
    let written = file.write(&[IoSlice::new(line.as_bytes())]).unwrap();
    assert!(written > 0 && written < line.len(), "{written}");
    let rotated = file.rotate(partial(&line, written), NOON).unwrap();
    assert_eq!(rotated.continuation, Continuation::Retracted);
    assert_eq!(text_of(&rotated.old.unwrap()), "one\n");
    disk.free();
    write_all(&mut file, &line);
    assert_eq!(text_of(&path), line);
}

#[test]
fn gives_the_old_file_its_name_back_when_no_new_one_can_be_made() {
    let Some(disk) = Disk::new("size=64k,nr_inodes=3") else {
        return;
    };
    let path = disk.0.path().join("a.log");
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "one\ntw");
    std::fs::write(disk.filler(), "").unwrap();
    let fault = file.rotate(partial("two\n", 2), NOON).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::StorageFull);
    assert_eq!(names(disk.0.path()), ["a.log", "filler"]);
    write_all(&mut file, "o\n");
    assert_eq!(text_of(&path), "one\ntwo\n");
}
