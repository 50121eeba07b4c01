//! The sink of one log: formatted lines on their way to its target.
//!
//! Lines that a target does not take (a full disk, a short write, a daemon that is gone) are kept and tried again;
//! beyond a bound further lines are dropped and counted. A line is never torn between two files, and with rotation
//! by time each line is in the file of its time.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::RETRY;
use super::format::ErrorForm;
use super::notify::{Notifier, Urgency};
use super::rotation::Schedule;
use super::target::{Continuation, LogFile, OpenTarget, PartialLine};
use super::wall_ns;
use config::failure::plain;
use config::typed::{Level, LogOverflow, LogTarget, Rotation};
use os::invariant;

/// Bytes of lines that are gathered before they are written.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that one call writes at most.
const BATCHES_A_CALL: usize = 16;
/// Pause after a write that took something, but not all. It doubles with each that takes nothing.
const PAUSE: Duration = Duration::from_millis(5);
/// How long lines wait for a new file that cannot be created now, as long as the log has memory for them.
const NEW_FILE_TIME: Duration = Duration::from_secs(60);

/// Lines for one target.
pub(super) struct LogSink {
    name: String,
    target: OpenTarget,
    schedule: Schedule,
    queue: VecDeque<SinkItem>,
    /// Bytes of the first batch that were written.
    written: usize,
    /// Bytes of all batches that were not.
    bytes: usize,
    bytes_max: usize,
    overflow: LogOverflow,
    /// Lines that were dropped because the memory was used up.
    dropped: u64,
    counted: WrittenLines,
    /// The target has failed, and lines that it did not take still wait.
    failing: bool,
    /// Time until the target is tried again; `None`: it took all lines last time.
    pause: Option<Duration>,
    /// When the new file before the first item was tried first.
    new_file_since: Option<Instant>,
    /// An empty batch's memory.
    spare: Vec<u8>,
    /// Wakes the archiver after each rotation.
    archiver: Arc<Notifier>,
    /// What has not been reported yet.
    notices: Vec<LogNotice>,
}

/// What was written.
#[derive(Default)]
pub(super) struct WrittenLines {
    pub(super) lines: u64,
    /// Writes that left lines.
    pub(super) incomplete: u64,
}

enum SinkItem {
    Lines {
        level: Level,
        bytes: Vec<u8>,
    },
    /// The lines behind this belong into a new file.
    NewFile,
}

/// A message for the error log.
pub(super) type LogNotice = (Level, String);

impl LogSink {
    /// `kind` is `access` or `error`.
    ///
    /// # Errors
    /// When the target cannot be opened.
    pub(super) fn open(
        kind: &'static str,
        meant: &LogTarget,
        rotation: &Rotation,
        (bytes_max, overflow): (usize, LogOverflow),
        archiver: &Arc<Notifier>,
    ) -> io::Result<LogSink> {
        let target = OpenTarget::open(meant, kind)?;
        // The first line of today rotates a file of yesterday.
        let written_ns = target.file().and_then(LogFile::written_ns);
        let since_ns = written_ns.unwrap_or_else(wall_ns);
        Ok(LogSink {
            name: name_of(kind, meant),
            schedule: Schedule::new(rotation, since_ns),
            target,
            queue: VecDeque::new(),
            written: 0,
            bytes: 0,
            bytes_max,
            overflow,
            dropped: 0,
            counted: WrittenLines::default(),
            failing: false,
            pause: None,
            new_file_since: None,
            spare: Vec::new(),
            archiver: Arc::clone(archiver),
            notices: Vec::new(),
        })
    }

    /// Appends a line that belongs to `at_ns`, wall time, and that `write` writes with its newline, or counts
    /// it as dropped.
    pub(super) fn add(&mut self, level: Level, at_ns: u64, write: impl FnOnce(&mut Vec<u8>)) {
        if self.is_full() && self.overflow == LogOverflow::Drop {
            self.dropped += 1;
            return;
        }
        if self.schedule.crossed(at_ns).is_some()
            && self.target.file().is_some_and(LogFile::is_regular)
        {
            // Behind the lines of the old period: they may still wait for a full disk.
            self.queue.push_back(SinkItem::NewFile);
        }
        // By level, because syslog takes one level in a call.
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
            Some(SinkItem::Lines { level: last, bytes }) if *last == level && bytes.len() < BATCH_BYTES
        );
        if !fits {
            let bytes = std::mem::take(&mut self.spare);
            self.queue.push_back(SinkItem::Lines { level, bytes });
        }
        match self.queue.back_mut() {
            Some(SinkItem::Lines { bytes, .. }) => bytes,
            Some(SinkItem::NewFile) | None => unreachable!("it has just been put there"),
        }
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn has_lines(&self) -> bool {
        self.bytes > 0
    }

    /// Whether enough lines wait for a write, and the target is not in its pause.
    pub(super) fn wants_write(&self) -> bool {
        // A try for each line would delay all other logs.
        self.pause.is_none() && (self.bytes >= BATCH_BYTES || self.is_full())
    }

    /// Time until the next try, after the target did not take all. Other logs do not wait for it.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.pause
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    /// Whether people read the target as it is written.
    pub(super) fn is_terminal(&self) -> bool {
        self.target.is_terminal()
    }

    /// The form of error lines that the target needs.
    pub(super) fn error_form(&self) -> ErrorForm {
        self.target.error_form()
    }

    /// Lines that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// What was written since the last call.
    pub(super) fn take_written(&mut self) -> WrittenLines {
        std::mem::take(&mut self.counted)
    }

    /// A message about lines that are unwritten at the end of the process.
    pub(super) fn left(&self) -> Option<String> {
        let written = match self.queue.front() {
            Some(SinkItem::Lines { bytes, .. }) => lines_len(&bytes[..self.written]),
            Some(SinkItem::NewFile) | None => 0,
        };
        let all: usize = self.queue.iter().map(SinkItem::lines_len).sum();
        let lines = all - written;
        (lines > 0).then(|| format!("{}: {lines} lines could not be written", self.name))
    }

    fn note(&mut self, level: Level, text: &str) {
        self.notices.push((level, format!("{}: {text}", self.name)));
    }

    /// Writes until the target takes no more; gives messages about it.
    pub(super) fn write(&mut self) -> Vec<LogNotice> {
        let mut took_some = false;
        while let Some(first) = self.queue.front() {
            if matches!(first, SinkItem::NewFile) {
                if self.start_file() {
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
                    self.failed(&fault);
                    false
                }
            };
            let is_between_lines = self.partial_line().is_none();
            let bytes = self.target.file().map_or(0, LogFile::bytes);
            // A file of its maximum size is complete only between lines.
            if is_between_lines
                && self.schedule.is_large(bytes, wall_ns())
                && let Err(fault) = self.change_file()
            {
                self.keep_old_file(&fault);
            }
            if !offered {
                break;
            }
        }
        // A target that takes something now and then is tried more often than one that takes nothing.
        let longer = self.pause.map_or(PAUSE, |pause| (pause * 2).min(RETRY));
        self.pause = match self.queue.is_empty() {
            true => None,
            false => Some(if took_some { PAUSE } else { longer }),
        };
        self.counted.incomplete += u64::from(self.pause.is_some());
        if self.queue.is_empty() && std::mem::replace(&mut self.failing, false) {
            self.note(Level::Warning, "all waiting lines are written");
        }
        std::mem::take(&mut self.notices)
    }

    /// Offers the first batches; gives how many bytes were taken of how many.
    fn write_batches(&mut self) -> io::Result<(usize, usize)> {
        let file = self.target.file();
        // Another program has truncated the file since (logrotate's `copytruncate`) or has appended to it: the rest of
        // the line would stand behind something else.
        if self.partial_line().is_some() && file.is_some_and(|file| !file.ends_with_ours()) {
            self.restart_line();
        }
        let mut slices = Vec::with_capacity(BATCHES_A_CALL);
        let mut of = None;
        for item in self.queue.iter().take(BATCHES_A_CALL) {
            match item {
                // Syslog has the level in each message, so one call writes lines of one level.
                SinkItem::Lines { level, bytes } if of.is_none_or(|of| of == *level) => {
                    let skipped = if of.is_none() { self.written } else { 0 };
                    slices.push(IoSlice::new(&bytes[skipped..]));
                    of = Some(*level);
                }
                SinkItem::Lines { .. } | SinkItem::NewFile => break,
            }
        }
        let offered = slices.iter().map(|slice| slice.len()).sum();
        let level = of.unwrap_or(Level::Info);
        let taken = self.target.write(level, &slices, wall_ns())?;
        Ok((taken, offered))
    }

    fn took(&mut self, mut taken: usize) {
        invariant!(
            taken <= self.bytes,
            "{}: its target took {taken} bytes and {} wait",
            self.name,
            self.bytes
        );
        self.bytes -= taken;
        while let Some(SinkItem::Lines { bytes, .. }) = self.queue.front_mut() {
            let left = bytes.len() - self.written;
            if taken < left {
                self.written += taken;
                return;
            }
            taken -= left;
            self.written = 0;
            let mut spare = std::mem::take(bytes);
            self.counted.lines += lines_len(&spare) as u64;
            // The memory of the last batch is used again: a busy log would otherwise allocate for each.
            spare.clear();
            self.spare = spare;
            self.queue.pop_front();
        }
    }

    fn failed(&mut self, fault: &io::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            let what = plain(fault);
            let text = format!("{what}; the lines are kept and tried again");
            self.note(Level::Error, &text);
        }
    }

    /// Opens the file again, which may have been renamed.
    pub(super) fn reopen(&mut self) -> Vec<LogNotice> {
        let partial_line = partial_line_of(&self.queue, self.written);
        match self.target.file_mut().map(|file| file.reopen(partial_line)) {
            Some(Ok(continuation)) => self.continue_line(continuation),
            Some(Err(fault)) => self.report_old_file("reopen", &fault),
            None => {}
        }
        std::mem::take(&mut self.notices)
    }

    /// Rotates the file for the lines behind the first item; false: they have to wait for it.
    fn start_file(&mut self) -> bool {
        let since = *self.new_file_since.get_or_insert_with(Instant::now);
        let has_time = since.elapsed() < NEW_FILE_TIME && !self.is_full();
        match self.change_file() {
            // The lines wait, and no longer than there is memory for them: a log that is in the wrong file is better
            // than none.
            Err(fault) if has_time && may_pass(&fault) => {
                self.failed(&fault);
                return false;
            }
            Err(fault) => self.keep_old_file(&fault),
            Ok(()) => {}
        }
        // The next new file has its own time.
        self.new_file_since = None;
        self.queue.pop_front();
        true
    }

    fn change_file(&mut self) -> io::Result<()> {
        let partial_line = partial_line_of(&self.queue, self.written);
        let Some(file) = self.target.file_mut() else {
            return Ok(());
        };
        let rotated = file.rotate(partial_line, wall_ns())?;
        self.continue_line(rotated.continuation);
        if rotated.old.is_some() {
            self.archiver.notify(Urgency::Urgent);
        }
        Ok(())
    }

    fn keep_old_file(&mut self, fault: &io::Error) {
        // Without the pause every batch would try again, and report it.
        self.schedule.postpone(wall_ns());
        self.report_old_file("rotation", fault);
    }

    fn report_old_file(&mut self, what: &str, fault: &io::Error) {
        let cause = plain(fault);
        let text = format!("{what} failed: {cause}; still writing to the old file");
        self.note(Level::Error, &text);
    }

    /// Continues a partial line after the change to another file.
    fn continue_line(&mut self, continuation: Continuation) {
        match continuation {
            Continuation::Continues => {}
            Continuation::Completed => {
                let rest = self.partial_line().map_or(0, |partial_line| {
                    partial_line.line.len() - partial_line.written_bytes
                });
                self.took(rest);
            }
            Continuation::Retracted => self.restart_line(),
            Continuation::Torn => {
                self.restart_line();
                self.note(Level::Warning, "part of a line remains in the old file");
            }
        }
    }

    /// Goes back to the beginning of the partial line.
    fn restart_line(&mut self) {
        let again = self
            .partial_line()
            .map_or(0, |partial_line| partial_line.written_bytes);
        // Counted again: what stands in the old file, or was cut off it, is not in this one.
        invariant!(
            again <= self.written,
            "{}: {again} bytes of a line were written of {} in all",
            self.name,
            self.written
        );
        self.written -= again;
        self.bytes += again;
    }

    fn partial_line(&self) -> Option<PartialLine<'_>> {
        partial_line_of(&self.queue, self.written)
    }
}

impl SinkItem {
    fn lines_len(&self) -> usize {
        match self {
            SinkItem::Lines { bytes, .. } => lines_len(bytes),
            SinkItem::NewFile => 0,
        }
    }
}

/// Whether the fault may pass by itself: a full disk, no descriptors.
fn may_pass(fault: &io::Error) -> bool {
    // Permissions do not come back by themselves.
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
fn partial_line_of(queue: &VecDeque<SinkItem>, written: usize) -> Option<PartialLine<'_>> {
    let Some(SinkItem::Lines { bytes, .. }) = queue.front() else {
        return None;
    };
    let start = memchr::memrchr(b'\n', &bytes[..written]).map_or(0, |newline| newline + 1);
    let end = memchr::memchr(b'\n', &bytes[written..])? + written + 1;
    (start < written).then(|| PartialLine {
        line: &bytes[start..end],
        written_bytes: written - start,
    })
}

fn name_of(kind: &str, target: &LogTarget) -> String {
    let target = match target {
        LogTarget::Stdout => "on standard output".to_owned(),
        LogTarget::Stderr => "on standard error".to_owned(),
        LogTarget::File(path) => format!("`{}`", path.display()),
        LogTarget::Syslog(_) => "to syslog".to_owned(),
    };
    format!("{kind} log {target}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use telemetry::Nanos;

    use super::*;
    use crate::tests::Disk;

    const HOUR: u64 = 3_600_000_000_000;

    fn sink(path: &Path) -> LogSink {
        let rotation = Rotation {
            every: Some(Nanos(HOUR)),
            ..Rotation::default()
        };
        let target = LogTarget::File(path.to_owned());
        let bound = (1 << 20, LogOverflow::Drop);
        LogSink::open("access", &target, &rotation, bound, &Arc::default()).unwrap()
    }

    fn add(sink: &mut LogSink, at_ns: u64, line: &str) {
        sink.add(Level::Info, at_ns, |bytes| {
            bytes.extend_from_slice(line.as_bytes());
        });
    }

    /// A disk with a line of today on which no other file can be made, its log, and the time of the next file.
    fn full_disk() -> Option<(Disk, LogSink, u64)> {
        let disk = Disk::new("size=1m,nr_inodes=3")?;
        let mut sink = sink(&disk.0.path().join("a.log"));
        let tomorrow = wall_ns() + 24 * HOUR;
        add(&mut sink, tomorrow - HOUR, "today\n");
        assert_eq!(sink.write(), []);
        std::fs::write(disk.filler(), "").unwrap();
        Some((disk, sink, tomorrow))
    }

    #[test]
    fn lines_wait_for_the_file_of_their_time_while_the_disk_is_full() {
        let Some((disk, mut sink, tomorrow)) = full_disk() else {
            return;
        };
        let log = disk.0.path().join("a.log");
        add(&mut sink, tomorrow, "tomorrow\n");
        let notices = sink.write();
        assert!(notices[0].1.ends_with("the lines are kept and tried again"));
        assert_eq!(sink.write(), []);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "today\n");
        std::fs::remove_file(disk.filler()).unwrap();
        // A process that another test is just starting may have it open still.
        let mut notices = Vec::new();
        while notices.is_empty() {
            notices = sink.write();
        }
        assert!(notices[0].1.ends_with("all waiting lines are written"));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "tomorrow\n");
    }

    #[test]
    fn no_line_waits_for_a_new_file_when_there_is_no_room_for_it() {
        let Some((_disk, mut sink, tomorrow)) = full_disk() else {
            return;
        };
        for _ in 0..3 {
            add(&mut sink, tomorrow, &("x".repeat(400 << 10) + "\n"));
        }
        assert!(sink.is_full());
        let notices = sink.write();
        assert!(
            notices[0].1.ends_with("still writing to the old file"),
            "{notices:?}"
        );
    }

    #[test]
    fn what_was_written_of_a_batch_is_not_reported_as_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = sink(&dir.path().join("a.log"));
        add(&mut sink, 0, "one\n");
        add(&mut sink, 0, "two\n");
        sink.took(6);
        assert!(
            sink.left()
                .unwrap()
                .ends_with(": 1 lines could not be written")
        );
        sink.took(2);
        assert_eq!(sink.left(), None);
    }

    #[test]
    #[should_panic(expected = "its target took 5 bytes and 4 wait")]
    fn a_target_takes_no_more_than_it_was_offered() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = sink(&dir.path().join("a.log"));
        add(&mut sink, 0, "one\n");
        sink.took(5);
    }
}
