//! What is formatted and not yet written of one log: whole lines on their way to its target.
//!
//! What a target does not take (a full disk, a short write, a daemon that is gone) is kept and tried again;
//! beyond a bound further lines are dropped and counted. A line is never torn between two files, and with
//! rotation by time each line is in the file of its time.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::RETRY;
use super::rotation::Schedule;
use super::shelf::Keeper;
use super::target::{Cut, Places, Seam, Target, Voice};
use super::wall_ns;
use crate::config::meant::{Level, LogOverflow, LogTarget, Rotation};
use crate::fault::plain;

/// Bytes of lines that are gathered before they are written.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that one call writes at most.
const BATCHES_A_CALL: usize = 16;
/// Pause after a write that took something, but not all. It doubles with each that takes nothing.
const PAUSE: Duration = Duration::from_millis(5);
/// How long lines wait for a new file that cannot be made just now, as long as there is room for them.
const NEW_FILE_TIME: Duration = Duration::from_secs(60);

/// The way to one target.
pub(super) struct Out {
    name: String,
    target: Target,
    schedule: Schedule,
    queue: VecDeque<Item>,
    /// Bytes of the first batch that were written.
    written: usize,
    /// Bytes of all batches that were not.
    bytes: usize,
    bytes_max: usize,
    overflow: LogOverflow,
    /// Lines that found no room.
    dropped: u64,
    /// The target did not take what it was given, and something of that still waits.
    failing: bool,
    /// How long to leave the target alone; `None`: it took all that it was given last.
    pause: Option<Duration>,
    /// When the new file of the first item was tried first.
    new_file_since: Option<Instant>,
    /// An empty batch's memory.
    spare: Vec<u8>,
    /// Looks after old files.
    keeper: Option<Arc<Keeper>>,
}

enum Item {
    Lines {
        level: Level,
        bytes: Vec<u8>,
    },
    /// What follows belongs into a new file.
    NewFile,
}

/// Something to tell in the error log.
pub(super) type Notice = (Level, String);

impl Out {
    /// # Errors
    /// When the target cannot be opened.
    pub(super) fn open(
        voice: Voice,
        meant: &LogTarget,
        rotation: &Rotation,
        (bytes_max, overflow): (usize, LogOverflow),
    ) -> io::Result<Out> {
        let target = Target::open(meant, voice, Places::usual())?;
        // A file of yesterday is renewed by the first line of today.
        let since_ns = target.written_ns().unwrap_or_else(wall_ns);
        Ok(Out {
            name: name_of(voice, meant),
            schedule: Schedule::new(rotation, since_ns),
            target,
            queue: VecDeque::new(),
            written: 0,
            bytes: 0,
            bytes_max,
            overflow,
            dropped: 0,
            failing: false,
            pause: None,
            new_file_since: None,
            spare: Vec::new(),
            keeper: None,
        })
    }

    /// Appends a line that belongs to `at_ns`, wall time, and that `write` writes with its newline, or counts
    /// it as dropped.
    pub(super) fn add(&mut self, level: Level, at_ns: u64, write: impl FnOnce(&mut Vec<u8>)) {
        if self.is_full() && self.overflow == LogOverflow::Drop {
            self.dropped += 1;
            return;
        }
        if self.schedule.crossed(at_ns).is_some() && self.target.is_file() {
            self.queue.push_back(Item::NewFile);
        }
        let batch = self.batch(level);
        let before = batch.len();
        write(batch);
        let added = batch.len() - before;
        self.bytes += added;
    }

    /// The batch that a line of `level` is appended to.
    fn batch(&mut self, level: Level) -> &mut Vec<u8> {
        let fits = matches!(
            self.queue.back(),
            Some(Item::Lines { level: last, bytes }) if *last == level && bytes.len() < BATCH_BYTES
        );
        if !fits {
            let bytes = std::mem::take(&mut self.spare);
            self.queue.push_back(Item::Lines { level, bytes });
        }
        match self.queue.back_mut() {
            Some(Item::Lines { bytes, .. }) => bytes,
            Some(Item::NewFile) | None => unreachable!("it has just been put there"),
        }
    }

    /// Has its old files looked after from now on.
    pub(super) fn set_keeper(&mut self, keeper: &Arc<Keeper>) {
        self.keeper = Some(Arc::clone(keeper));
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn has_lines(&self) -> bool {
        self.bytes > 0
    }

    /// Whether enough waits for a write to be worth it, and the target is not known to take nothing now: to
    /// ask it again for each line would cost all the other logs their time.
    pub(super) fn wants_write(&self) -> bool {
        self.pause.is_none() && (self.bytes >= BATCH_BYTES || self.is_full())
    }

    /// How long the target is to be left alone: it did not take all. Whoever has other things to write does
    /// not wait for it.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.pause
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    /// Whether a daemon reads the lines, which has its own times and levels.
    pub(super) fn is_daemon(&self) -> bool {
        self.target.is_daemon()
    }

    /// Lines that found no room, since the last time.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// What the end of the process found unwritten.
    pub(super) fn left(&self) -> Option<String> {
        let written = match self.queue.front() {
            Some(Item::Lines { bytes, .. }) => lines_len(&bytes[..self.written]),
            Some(Item::NewFile) | None => 0,
        };
        let all: usize = self.queue.iter().map(Item::lines_len).sum();
        let lines = all - written;
        (lines > 0).then(|| format!("{}: {lines} lines could not be written", self.name))
    }

    /// Writes until the target takes no more; gives what is to be told of it.
    pub(super) fn write(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut took_some = false;
        while let Some(first) = self.queue.front() {
            if matches!(first, Item::NewFile) {
                if self.begin_file(&mut notices) {
                    continue;
                }
                break;
            }
            let offered = match self.write_batches() {
                Ok((taken, offered)) => {
                    self.took(taken);
                    took_some |= taken > 0;
                    taken == offered
                }
                Err(fault) => {
                    self.failed(&fault, &mut notices);
                    false
                }
            };
            let is_between_lines = self.cut().is_none();
            if is_between_lines && self.schedule.is_large(self.target.bytes(), wall_ns()) {
                self.rotate(&mut notices);
            }
            if !offered {
                break;
            }
        }
        let longer = self.pause.map_or(PAUSE, |pause| (pause * 2).min(RETRY));
        self.pause = match self.queue.is_empty() {
            true => None,
            false => Some(if took_some { PAUSE } else { longer }),
        };
        if self.queue.is_empty() {
            self.recovered(&mut notices);
        }
        notices
    }

    /// Offers the first batches; gives how many bytes were taken of how many.
    fn write_batches(&mut self) -> io::Result<(usize, usize)> {
        if self.cut().is_some() && !self.target.resumes() {
            self.begin_line_again();
        }
        let mut slices = Vec::with_capacity(BATCHES_A_CALL);
        let mut of = None;
        for item in self.queue.iter().take(BATCHES_A_CALL) {
            match item {
                Item::Lines { level, bytes } if of.is_none_or(|of| of == *level) => {
                    let skipped = if of.is_none() { self.written } else { 0 };
                    slices.push(IoSlice::new(&bytes[skipped..]));
                    of = Some(*level);
                }
                Item::Lines { .. } | Item::NewFile => break,
            }
        }
        let offered = slices.iter().map(|slice| slice.len()).sum();
        let level = of.unwrap_or(Level::Info);
        let taken = self.target.write(level, &slices, wall_ns())?;
        Ok((taken, offered))
    }

    fn took(&mut self, mut taken: usize) {
        self.bytes -= taken;
        while let Some(Item::Lines { bytes, .. }) = self.queue.front_mut() {
            let left = bytes.len() - self.written;
            if taken < left {
                self.written += taken;
                return;
            }
            taken -= left;
            self.written = 0;
            let mut spare = std::mem::take(bytes);
            spare.clear();
            self.spare = spare;
            self.queue.pop_front();
        }
    }

    fn failed(&mut self, fault: &io::Error, notices: &mut Vec<Notice>) {
        if !std::mem::replace(&mut self.failing, true) {
            let what = plain(fault);
            let text = format!("{}: {what}; the lines are kept and tried again", self.name);
            notices.push((Level::Error, text));
        }
    }

    /// Everything is written.
    fn recovered(&mut self, notices: &mut Vec<Notice>) {
        if std::mem::replace(&mut self.failing, false) {
            let text = format!("{}: everything that waited is written", self.name);
            notices.push((Level::Warning, text));
        }
    }

    /// Opens the file anew: it may have been renamed.
    pub(super) fn renew(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let cut = cut_of(&self.queue, self.written);
        match self.target.reopen(cut) {
            Ok(seam) => self.sew(seam, &mut notices),
            Err(fault) => {
                let what = plain(&fault);
                let text = format!(
                    "{}: cannot be opened anew: {what}; it goes on as it was",
                    self.name
                );
                notices.push((Level::Error, text));
            }
        }
        notices
    }

    /// Renews the file for the lines behind the first item; false: they have to wait for it.
    fn begin_file(&mut self, notices: &mut Vec<Notice>) -> bool {
        let since = *self.new_file_since.get_or_insert_with(Instant::now);
        let has_time = since.elapsed() < NEW_FILE_TIME && !self.is_full();
        match self.change_file(notices) {
            Err(fault) if has_time && may_pass(&fault) => {
                self.failed(&fault, notices);
                return false;
            }
            Err(fault) => self.goes_on(&fault, notices),
            Ok(()) => {}
        }
        self.new_file_since = None;
        self.queue.pop_front();
        true
    }

    fn rotate(&mut self, notices: &mut Vec<Notice>) {
        if let Err(fault) = self.change_file(notices) {
            self.goes_on(&fault, notices);
        }
    }

    fn change_file(&mut self, notices: &mut Vec<Notice>) -> io::Result<()> {
        let cut = cut_of(&self.queue, self.written);
        let rotated = self.target.rotate(cut, wall_ns())?;
        self.sew(rotated.seam, notices);
        if let (Some(_), Some(keeper)) = (rotated.old, &self.keeper) {
            keeper.tend();
        }
        Ok(())
    }

    fn goes_on(&mut self, fault: &io::Error, notices: &mut Vec<Notice>) {
        self.schedule.postpone(wall_ns());
        let what = plain(fault);
        let text = format!(
            "{}: cannot be renewed: {what}; it goes on as it was",
            self.name
        );
        notices.push((Level::Error, text));
    }

    /// Goes on where the change to another file left a line that was cut.
    fn sew(&mut self, seam: Seam, notices: &mut Vec<Notice>) {
        match seam {
            Seam::Continues => {}
            Seam::Completed => {
                let rest = self
                    .cut()
                    .map_or(0, |cut| cut.line.len() - cut.written_bytes);
                self.took(rest);
            }
            Seam::TakenBack => self.begin_line_again(),
            Seam::Torn => {
                self.begin_line_again();
                let text = format!("{}: a part of a line stays in the old file", self.name);
                notices.push((Level::Warning, text));
            }
        }
    }

    /// The line that was written in part is written from its beginning.
    fn begin_line_again(&mut self) {
        let again = self.cut().map_or(0, |cut| cut.written_bytes);
        self.written -= again;
        self.bytes += again;
    }

    fn cut(&self) -> Option<Cut<'_>> {
        cut_of(&self.queue, self.written)
    }
}

impl Item {
    fn lines_len(&self) -> usize {
        match self {
            Item::Lines { bytes, .. } => lines_len(bytes),
            Item::NewFile => 0,
        }
    }
}

/// Whether what hinders a new file may be over in a moment: a full disk, no descriptors. Permissions do not
/// come back by themselves.
fn may_pass(fault: &io::Error) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    let out_of = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    full.contains(&fault.kind())
        || fault
            .raw_os_error()
            .is_some_and(|fault| out_of.contains(&fault))
}

fn lines_len(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// The line of the first batch whose beginning is among the `written` bytes and whose end is not.
fn cut_of(queue: &VecDeque<Item>, written: usize) -> Option<Cut<'_>> {
    let Some(Item::Lines { bytes, .. }) = queue.front() else {
        return None;
    };
    let start = memchr::memrchr(b'\n', &bytes[..written]).map_or(0, |newline| newline + 1);
    let end = memchr::memchr(b'\n', &bytes[written..])? + written + 1;
    (start < written).then(|| Cut {
        line: &bytes[start..end],
        written_bytes: written - start,
    })
}

fn name_of(voice: Voice, target: &LogTarget) -> String {
    let target = match target {
        LogTarget::Stdout => "on standard output".to_owned(),
        LogTarget::Stderr => "on standard error".to_owned(),
        LogTarget::File(path) => format!("`{}`", path.display()),
        LogTarget::Syslog(_) => "to syslog".to_owned(),
        LogTarget::Journald => "to journald".to_owned(),
    };
    match voice {
        Voice::Access => format!("access log {target}"),
        Voice::Errors => format!("error log {target}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use measure::Nanos;

    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    fn out(path: &Path) -> Out {
        let rotation = Rotation {
            every: Some(Nanos(HOUR)),
            ..Rotation::default()
        };
        let target = LogTarget::File(path.to_owned());
        let bound = (1 << 20, LogOverflow::Drop);
        Out::open(Voice::Access, &target, &rotation, bound).unwrap()
    }

    fn add(out: &mut Out, at_ns: u64, line: &str) {
        out.add(Level::Info, at_ns, |bytes| {
            bytes.extend_from_slice(line.as_bytes());
        });
    }

    /// A file system of its own that has room for `len` files; only root can make one.
    struct Disk(tempfile::TempDir);

    impl Disk {
        fn new(len: usize) -> Option<Disk> {
            let dir = tempfile::tempdir().unwrap();
            let mut mount = Command::new("mount");
            // The folder is one of them.
            let options = format!("size=1m,nr_inodes={}", len + 1);
            mount.args(["-t", "tmpfs", "-o", &options, "none"]);
            let mounted = mount.arg(dir.path()).output();
            if mounted.is_ok_and(|out| out.status.success()) {
                return Some(Disk(dir));
            }
            eprintln!("skipped: no file system can be mounted here");
            None
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            let mut unmount = Command::new("umount");
            let _ = unmount.arg("-l").arg(self.0.path()).output();
        }
    }

    #[test]
    fn lines_wait_for_the_file_of_their_time_while_the_disk_is_full() {
        let Some(disk) = Disk::new(2) else {
            return;
        };
        let (log, filler) = (disk.0.path().join("a.log"), disk.0.path().join("filler"));
        let mut out = out(&log);
        let tomorrow = wall_ns() + 24 * HOUR;
        add(&mut out, tomorrow - HOUR, "today\n");
        assert_eq!(out.write(), []);
        std::fs::write(&filler, "").unwrap();
        add(&mut out, tomorrow, "tomorrow\n");
        let notices = out.write();
        assert!(notices[0].1.ends_with("the lines are kept and tried again"));
        assert_eq!(out.write(), []);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "today\n");
        std::fs::remove_file(&filler).unwrap();
        // A process that another test is just starting may have it open still.
        let mut notices = Vec::new();
        while notices.is_empty() {
            notices = out.write();
        }
        assert!(notices[0].1.ends_with("everything that waited is written"));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "tomorrow\n");
    }

    #[test]
    fn no_line_waits_for_a_new_file_when_there_is_no_room_for_it() {
        let Some(disk) = Disk::new(2) else {
            return;
        };
        let (log, filler) = (disk.0.path().join("a.log"), disk.0.path().join("filler"));
        let mut out = out(&log);
        let tomorrow = wall_ns() + 24 * HOUR;
        add(&mut out, tomorrow - HOUR, "today\n");
        assert_eq!(out.write(), []);
        std::fs::write(&filler, "").unwrap();
        for _ in 0..3 {
            add(&mut out, tomorrow, &("x".repeat(400 << 10) + "\n"));
        }
        assert!(out.is_full());
        let notices = out.write();
        assert!(
            notices[0].1.ends_with("it goes on as it was"),
            "{notices:?}"
        );
    }

    #[test]
    fn what_was_written_of_a_batch_is_not_told_as_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut out = out(&dir.path().join("a.log"));
        add(&mut out, 0, "one\n");
        add(&mut out, 0, "two\n");
        out.took(6);
        assert!(
            out.left()
                .unwrap()
                .ends_with(": 1 lines could not be written")
        );
        out.took(2);
        assert_eq!(out.left(), None);
    }
}
