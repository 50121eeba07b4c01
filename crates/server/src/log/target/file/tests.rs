//! Real files in real folders, and a small file system that is really full.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::fs::CWD;
use tempfile::TempDir;

use super::*;

const NOON: u64 = 1_795_262_859_000_000_000;

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn write_all(file: &mut LogFile, text: &str) {
    let taken = file.write(&[IoSlice::new(text.as_bytes())]).unwrap();
    assert_eq!(taken, text.len());
}

fn cut(line: &str, written_bytes: usize) -> Option<Cut<'_>> {
    Some(Cut {
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
fn everybody_may_read_a_new_file_and_nobody_else_write_it() {
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
fn tells_when_its_last_line_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let mut file = LogFile::open(&path).unwrap();
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
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let fault = LogFile::open(&path).unwrap_err();
    assert!(fault.to_string().contains("nobody reads"), "{fault}");

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
    assert_eq!(file.reopen(None).unwrap(), Seam::Continues);
    assert_eq!(file.rotate(None, NOON).unwrap().old, None);

    let mut full = LogFile::open(Path::new("/dev/full")).unwrap();
    let fault = full.write(&[IoSlice::new(b"line\n")]).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::StorageFull);
}

#[test]
fn reopens_by_name_and_completes_the_line_in_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("a.log"), dir.path().join("a.log.1"));
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "one\ntw");
    std::fs::rename(&path, &old).unwrap();
    assert_eq!(file.reopen(cut("two\n", 2)).unwrap(), Seam::Completed);
    write_all(&mut file, "three\n");
    assert_eq!(text_of(&old), "one\ntwo\n");
    assert_eq!(text_of(&path), "three\n");
}

#[test]
fn reopening_the_same_file_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "one\ntw");
    assert_eq!(file.reopen(cut("two\n", 2)).unwrap(), Seam::Continues);
    assert!(file.ends_with_ours());
    write_all(&mut file, "o\n");
    assert_eq!(text_of(&path), "one\ntwo\n");
}

#[test]
fn a_line_that_others_wrote_behind_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("a.log"), dir.path().join("a.log.1"));
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "tw");
    assert!(file.ends_with_ours());
    let mut other = File::options().append(true).open(&path).unwrap();
    other.write_all(b"other\n").unwrap();
    assert!(!file.ends_with_ours());
    std::fs::rename(&path, &old).unwrap();
    assert_eq!(file.reopen(cut("two\n", 2)).unwrap(), Seam::Torn);
    assert_eq!(text_of(&old), "twother\n");
}

#[test]
fn notices_that_copytruncate_took_the_start_of_a_line_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "one\ntw");
    std::fs::copy(&path, dir.path().join("a.log.1")).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    assert!(!file.ends_with_ours());
    write_all(&mut file, "two\n");
    assert!(file.ends_with_ours());
    assert_eq!(text_of(&path), "two\n");
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
fn rotates_to_a_name_that_nobody_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let taken = dir.path().join("a.log.20261121T120739Z.1.zst");
    std::fs::write(taken, "").unwrap();
    let mut file = LogFile::open(&path).unwrap();
    for text in ["one\n", "two\n", "three\n"] {
        write_all(&mut file, text);
        let rotated = file.rotate(None, NOON + 5).unwrap();
        assert_eq!(rotated.seam, Seam::Continues);
        assert_eq!(text_of(&rotated.old.unwrap()), text);
    }
    assert_eq!(
        names(dir.path()),
        [
            "a.log",
            "a.log.20261121T120739Z.1.zst",
            "a.log.20261121T120739Z.2",
            "a.log.20261121T120739Z.3",
            "a.log.20261121T120739Z.4"
        ]
    );
    assert_eq!(text_of(&path), "");
}

#[test]
fn an_empty_file_is_not_rotated() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = LogFile::open(&dir.path().join("a.log")).unwrap();
    assert_eq!(file.rotate(None, NOON).unwrap().old, None);
    assert_eq!(names(dir.path()), ["a.log"]);
}

#[test]
fn completes_a_cut_line_before_it_goes_on_in_a_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "one\nt");
    let rotated = file.rotate(cut("two\n", 1), NOON).unwrap();
    assert_eq!(rotated.seam, Seam::Completed);
    assert_eq!(text_of(&rotated.old.unwrap()), "one\ntwo\n");
    assert_eq!(text_of(&path), "");
}

#[test]
fn the_new_file_is_as_private_as_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let mut file = LogFile::open(&path).unwrap();
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
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let mut file = LogFile::open(&path).unwrap();
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
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let mut file = LogFile::open(&path).unwrap();
    write_all(&mut file, "one\n");
    let rotated = file.rotate(None, NOON).unwrap();
    let old = rotated.old.unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    assert!(!links.into_iter().any(|link| link == old));
    let flags = rustix::io::fcntl_getfd(file.file.as_fd()).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

/// A file system of its own that can be full; only root can make one.
struct Disk(TempDir);

impl Disk {
    fn new(options: &str) -> Option<Disk> {
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
    fn fill(&self, pages_left: u64) {
        let stat = rustix::fs::statvfs(self.0.path()).unwrap();
        let bytes = stat.f_bavail.saturating_sub(pages_left) * stat.f_bsize;
        std::fs::write(self.filler(), vec![b'x'; bytes as usize]).unwrap();
    }

    fn free(&self) {
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
    assert_eq!(other.reopen(None).unwrap(), Seam::Continues);
    // A process that another test starts has copies of this one's descriptors, and with them
    // of the lock, until it runs its own program.
    let deadline = Instant::now() + Duration::from_secs(10);
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
    let rotated = file.rotate(cut(&line, written), NOON).unwrap();
    assert_eq!(rotated.seam, Seam::TakenBack);
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
    let fault = file.rotate(cut("two\n", 2), NOON).unwrap_err();
    assert_eq!(fault.kind(), ErrorKind::StorageFull);
    assert_eq!(names(disk.0.path()), ["a.log", "filler"]);
    write_all(&mut file, "o\n");
    assert_eq!(text_of(&path), "one\ntwo\n");
}

/// What may happen to a log.
#[derive(Clone, Debug)]
enum Event {
    /// Lines of these lengths; only some bytes are offered at first.
    Lines(Vec<usize>, usize),
    /// The disk has this many pages left.
    Fill(u64),
    Free,
    Rotate,
    /// logrotate, `create`.
    Rename,
    /// logrotate, `copytruncate`.
    CopyTruncate,
    /// Another process appends a line.
    Other,
}

fn event() -> impl Strategy<Value = Event> {
    let lines = (proptest::collection::vec(1..3000usize, 1..5), 0..9000usize);
    prop_oneof![
        6 => lines.prop_map(|(lengths, offered)| Event::Lines(lengths, offered)),
        2 => (0..3u64).prop_map(Event::Fill),
        1 => Just(Event::Free),
        2 => Just(Event::Rotate),
        1 => Just(Event::Rename),
        1 => Just(Event::CopyTruncate),
        1 => Just(Event::Other),
    ]
}

/// A writer that does what the contract of a target asks for.
struct Writer {
    file: LogFile,
    lines: VecDeque<String>,
    /// Bytes of the first line that were taken.
    written: usize,
    made: usize,
    torn: usize,
}

impl Writer {
    fn add(&mut self, length: usize) {
        self.made += 1;
        self.lines
            .push_back(format!("{} {}\n", self.made, "x".repeat(length)));
    }

    /// Offers at most `bytes`.
    fn offer(&mut self, mut bytes: usize) {
        while let Some(line) = self.lines.front() {
            if self.written > 0 && !self.file.ends_with_ours() {
                self.written = 0;
                self.torn += 1;
            }
            let rest = &line.as_bytes()[self.written..];
            let rest = &rest[..rest.len().min(bytes)];
            let Ok(taken @ 1..) = self.file.write(&[IoSlice::new(rest)]) else {
                return;
            };
            bytes -= taken;
            self.written += taken;
            if self.written == line.len() {
                self.lines.pop_front();
                self.written = 0;
            }
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut LogFile, Option<Cut<'_>>) -> io::Result<Seam>) {
        let cut = self.lines.front().filter(|_| self.written > 0);
        let cut = cut.map(|line| Cut {
            line: line.as_bytes(),
            written_bytes: self.written,
        });
        match change(&mut self.file, cut) {
            Err(_) | Ok(Seam::Continues) => return,
            Ok(Seam::Completed) => drop(self.lines.pop_front()),
            Ok(Seam::TakenBack) => {}
            Ok(Seam::Torn) => self.torn += 1,
        }
        self.written = 0;
    }
}

/// Plays the events in a folder, and checks that each line is whole in one file, once, and in order.
fn play(folder: &Path, disk: Option<&Disk>, events: &[Event]) {
    let path = folder.join("a.log");
    let mut writer = Writer {
        file: LogFile::open(&path).unwrap(),
        lines: VecDeque::new(),
        written: 0,
        made: 0,
        torn: 0,
    };
    let mut files = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let old = folder.join(format!("a.log.{index}"));
        match event {
            Event::Lines(lengths, offered) => {
                lengths.iter().for_each(|length| writer.add(*length));
                writer.offer(*offered);
            }
            Event::Fill(pages) => disk.into_iter().for_each(|disk| disk.fill(*pages)),
            Event::Free => disk.into_iter().for_each(Disk::free),
            Event::Rotate => writer.change(|file, cut| {
                let rotated = file.rotate(cut, NOON)?;
                files.extend(rotated.old);
                Ok(rotated.seam)
            }),
            Event::Rename => {
                std::fs::rename(&path, &old).unwrap();
                files.push(old);
                writer.change(LogFile::reopen);
            }
            Event::CopyTruncate => {
                // A copy on a full disk fails, and nothing is truncated then.
                if std::fs::copy(&path, &old).is_ok() {
                    File::options()
                        .write(true)
                        .open(&path)
                        .unwrap()
                        .set_len(0)
                        .unwrap();
                    files.push(old);
                } else {
                    std::fs::remove_file(&old).unwrap();
                }
            }
            Event::Other => {
                let mut other = File::options().append(true).open(&path).unwrap();
                if let Ok(1) = other.write(b"#\n") {
                    let bytes = other.metadata().unwrap().len() - 1;
                    other.set_len(bytes).unwrap();
                }
            }
        }
    }
    disk.into_iter().for_each(Disk::free);
    // A process that another test is just starting may have the filler open still.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !writer.lines.is_empty() && std::time::Instant::now() < end {
        writer.offer(usize::MAX);
        std::thread::yield_now();
    }
    assert!(writer.lines.is_empty());
    files.push(path);
    check(&files, &writer);
}

fn check(files: &[PathBuf], writer: &Writer) {
    let (mut expect, mut fragments) = (1, 0);
    for file in files {
        for line in text_of(file).split_inclusive('\n') {
            let number = line.split(' ').next().unwrap();
            if line.ends_with("x\n") && number.parse() == Ok(expect) {
                expect += 1;
            } else if line != "#\n" {
                // Whatever else is there is the start of a line that was given up.
                fragments += 1;
            }
        }
    }
    assert_eq!(expect, writer.made + 1, "a line is missing or out of order");
    assert!(fragments <= writer.torn, "{fragments} > {}", writer.torn);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn each_line_is_whole_in_one_file_on_a_good_disk(events in proptest::collection::vec(event(), 1..25)) {
        let dir = tempfile::tempdir().unwrap();
        play(dir.path(), None, &events);
    }
}

#[test]
fn each_line_is_whole_in_one_file_on_a_disk_that_is_full_at_times() {
    let Some(disk) = Disk::new("size=2m") else {
        return;
    };
    let config = ProptestConfig::with_cases(150);
    proptest!(config, |(events in proptest::collection::vec(event(), 1..25))| {
        let folder = tempfile::tempdir_in(disk.0.path()).unwrap();
        disk.free();
        play(folder.path(), Some(&disk), &events);
    });
}
