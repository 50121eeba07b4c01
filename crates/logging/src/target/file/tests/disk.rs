//! A disk that is full: what a log file does with what it cannot write.

use std::time::{Duration, Instant};

use super::*;

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
