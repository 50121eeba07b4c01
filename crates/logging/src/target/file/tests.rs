//! Real files in real folders; `disk` has a small file system that is really full.

mod disk;
mod events;

use std::io::Read;
use std::os::fd::AsFd;

use super::*;
use crate::tests::{Disk, names, stuck_pipe};

const NOON: u64 = 1_795_262_859_000_000_000;

fn log() -> (tempfile::TempDir, PathBuf, LogFile) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let file = LogFile::open(&path).unwrap();
    (dir, path, file)
}

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn write_all(file: &mut LogFile, text: &str) {
    let taken = file.write(&[IoSlice::new(text.as_bytes())]).unwrap();
    assert_eq!(taken, text.len());
}

fn partial(line: &str, written_bytes: usize) -> Option<PartialLine<'_>> {
    Some(PartialLine {
        line: line.as_bytes(),
        written_bytes,
    })
}

#[test]
fn appends_slices_and_knows_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    std::fs::write(&path, "before\n").unwrap();
    let mut file = LogFile::open(&path).unwrap();
    let lines = [IoSlice::new(b"one\n"), IoSlice::new(b"two\n")];
    assert_eq!(file.write(&lines).unwrap(), 8);
    assert_eq!(text_of(&path), "before\none\ntwo\n");
    assert_eq!(file.bytes(), 15);
    std::fs::write(&path, "").unwrap();
    assert_eq!(file.bytes(), 0);
    write_all(&mut file, "three\n");
    assert_eq!(text_of(&path), "three\n");
}

#[test]
fn a_new_file_is_readable_by_all_and_writable_by_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    LogFile::open(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o777 & !MODE, 0);
    assert_eq!(mode & 0o600, 0o600);
}

#[test]
fn its_folder_is_the_one_at_the_start() {
    let file = LogFile::open(Path::new("/dev/../dev/null")).unwrap();
    assert!(file.path.is_absolute());
    assert!(!file.is_regular());
}

#[test]
fn knows_when_its_last_line_was_written() {
    let (_dir, path, mut file) = log();
    assert_eq!(file.written_ns(), None);
    write_all(&mut file, "one\n");
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let since = modified.duration_since(UNIX_EPOCH).unwrap();
    assert_eq!(file.written_ns(), Some(since.as_nanos() as u64));
}

#[test]
fn refuses_what_no_log_goes_to() {
    let dir = tempfile::tempdir().unwrap();
    let fault = LogFile::open(dir.path()).unwrap_err();
    assert_eq!(fault.raw_os_error(), Some(libc::EISDIR));
    std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).unwrap();
    let fault = LogFile::open(&dir.path().join("link")).unwrap_err();
    assert_eq!(fault.raw_os_error(), Some(libc::EISDIR));

    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let fault = LogFile::open(&socket).unwrap_err();
    assert!(fault.to_string().contains("`stdout`"), "{fault}");

    let fault = LogFile::open(&dir.path().join("none/a.log")).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::NotFound);
}

#[test]
fn a_pipe_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    drop(stuck_pipe(&path));
    let fault = LogFile::open(&path).unwrap_err();
    assert!(fault.to_string().contains("without a reader"), "{fault}");

    let mut reader = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .unwrap();
    let mut file = LogFile::open(&path).unwrap();
    assert!(!file.is_regular());
    let lines = "line\n".repeat(100_000);
    let taken = file.write(&[IoSlice::new(lines.as_bytes())]).unwrap();
    assert!(taken < lines.len());
    let fault = file.write(&[IoSlice::new(b"more\n")]).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::WouldBlock);
    let mut read = vec![0; taken];
    reader.read_exact(&mut read).unwrap();
    assert_eq!(read, &lines.as_bytes()[..taken]);
}

#[test]
fn a_device_is_written_and_stays_what_it_is() {
    let mut file = LogFile::open(Path::new("/dev/null")).unwrap();
    write_all(&mut file, "line\n");
    assert_eq!((file.bytes(), file.written_ns()), (0, None));
    assert_eq!(file.reopen(None).unwrap(), Continuation::Continues);
    assert_eq!(file.rotate(None, NOON).unwrap().old, None);

    let mut full = LogFile::open(Path::new("/dev/full")).unwrap();
    let fault = full.write(&[IoSlice::new(b"line\n")]).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::StorageFull);
}

#[test]
fn reopening_the_same_file_changes_nothing() {
    let (_dir, path, mut file) = log();
    write_all(&mut file, "one\ntw");
    assert_eq!(
        file.reopen(partial("two\n", 2)).unwrap(),
        Continuation::Continues
    );
    assert!(file.ends_with_ours());
    write_all(&mut file, "o\n");
    assert_eq!(text_of(&path), "one\ntwo\n");
}

#[test]
fn a_failed_reopening_leaves_the_old_file_open() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("logs");
    std::fs::create_dir(&folder).unwrap();
    let mut file = LogFile::open(&folder.join("a.log")).unwrap();
    let moved = dir.path().join("moved");
    std::fs::rename(&folder, &moved).unwrap();
    assert!(file.reopen(None).is_err());
    assert_eq!(file.rotate(None, NOON).unwrap().old, None, "empty");
    write_all(&mut file, "one\n");
    assert!(file.rotate(None, NOON).is_err());
    assert_eq!(text_of(&moved.join("a.log")), "one\n");
}

#[test]
fn rotates_to_a_free_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let taken = dir.path().join("a.log.20261121T120739Z.1.gz");
    std::fs::write(taken, "").unwrap();
    let mut file = LogFile::open(&path).unwrap();
    for text in ["one\n", "two\n", "three\n"] {
        write_all(&mut file, text);
        let rotated = file.rotate(None, NOON + 5).unwrap();
        assert_eq!(rotated.continuation, Continuation::Continues);
        assert_eq!(text_of(&rotated.old.unwrap()), text);
    }
    assert_eq!(
        names(dir.path()),
        [
            "a.log",
            "a.log.20261121T120739Z.1.gz",
            "a.log.20261121T120739Z.2",
            "a.log.20261121T120739Z.3",
            "a.log.20261121T120739Z.4"
        ]
    );
    assert_eq!(text_of(&path), "");
}

#[test]
fn the_new_file_is_as_private_as_the_old_one() {
    let (_dir, path, mut file) = log();
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    write_all(&mut file, "one\n");
    let _ = file.rotate(None, NOON).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn a_link_to_a_log_stays_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let real = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    std::os::unix::fs::symlink(real.path().join("b.log"), &path).unwrap();
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "one\n");
    let _ = file.rotate(None, NOON).unwrap();
    write_all(&mut file, "two\n");
    assert_eq!(names(dir.path()), ["a.log"]);
    assert_eq!(names(real.path()), ["b.log", "b.log.20261121T120739Z"]);
    assert_eq!(text_of(&path), "two\n");
}

#[test]
fn a_file_that_others_renamed_is_not_rotated_but_reopened() {
    let (dir, path, mut file) = log();
    write_all(&mut file, "one\n");
    std::fs::rename(&path, dir.path().join("a.log.1")).unwrap();
    assert_eq!(file.rotate(None, NOON).unwrap().old, None);
    write_all(&mut file, "two\n");
    std::fs::rename(&path, dir.path().join("a.log.2")).unwrap();
    std::fs::write(&path, "theirs\n").unwrap();
    assert_eq!(file.rotate(None, NOON).unwrap().old, None);
    write_all(&mut file, "three\n");
    assert_eq!(names(dir.path()), ["a.log", "a.log.1", "a.log.2"]);
    assert_eq!(text_of(&path), "theirs\nthree\n");
}

#[test]
fn the_old_descriptor_is_closed() {
    let (_dir, _, mut file) = log();
    write_all(&mut file, "one\n");
    let rotated = file.rotate(None, NOON).unwrap();
    let old = rotated.old.unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    assert!(!links.into_iter().any(|link| link == old));
    let flags = rustix::io::fcntl_getfd(file.file.as_fd()).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}
