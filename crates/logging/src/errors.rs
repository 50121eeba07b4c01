//! The error logs: lines of all threads on their way to a thread of their own, which still writes them while the disk
//! of an access log stalls.
//!
//! Takes texts with a level, gives lines with their time. Lines that repeat often are counted instead (`dedup`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::budget::{Budget, OnFull};
use super::dedup::{DedupAction, Deduplicator};
use super::format;
use super::notify::{Notifier, Urgency};
use super::sink::LogSink;
use config::typed::{Level, Levels, LogOverflow};
use os::lock;

/// Bytes of error lines that may wait.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// Bytes of a line beside its text.
const LINE_BYTES: usize = 64;
/// Longest sleep, and so the longest delay of a count of repeated lines.
const LOOK: Duration = Duration::from_secs(1);

/// Lines that wait for the thread that writes them.
#[derive(Debug)]
pub(super) struct ErrorQueue {
    lines: Mutex<VecDeque<ErrorLine>>,
    pub(super) budget: Budget,
    pub(super) notifier: Notifier,
}

#[derive(Debug)]
struct ErrorLine {
    level: Level,
    at: SystemTime,
    text: String,
}

/// The thread that writes them.
pub(super) struct ErrorLogWriter {
    queue: Arc<ErrorQueue>,
    sinks: Vec<(Levels, LogSink)>,
    dedup: Deduplicator,
    reopens: Arc<AtomicU64>,
    reopened: u64,
    /// Lines that were dropped and not yet reported.
    dropped: u64,
}

impl ErrorQueue {
    pub(super) fn new(overflow: LogOverflow) -> Self {
        Self {
            lines: Mutex::default(),
            budget: Budget::new(BYTES_MAX, overflow),
            notifier: Notifier::default(),
        }
    }

    pub(super) fn put(&self, level: Level, text: &str, on_full: OnFull) {
        if !self.budget.admits(on_full) {
            return;
        }
        let line = ErrorLine {
            level,
            at: SystemTime::now(),
            text: text.to_owned(),
        };
        {
            let mut lines = lock(&self.lines);
            self.budget.add_record(line.text.len() + LINE_BYTES);
            lines.push_back(line);
        }
        self.notifier.notify(Urgency::Urgent);
    }

    /// Ends all waiting for room, and the thread once it has written everything.
    pub(super) fn close(&self) {
        self.budget.close();
        self.notifier.notify(Urgency::Stop);
    }

    /// Texts that wait.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<String> {
        let lines = lock(&self.lines);
        lines.iter().map(|line| line.text.clone()).collect()
    }
}

impl ErrorLogWriter {
    pub(super) fn new(
        queue: Arc<ErrorQueue>,
        sinks: Vec<(Levels, LogSink)>,
        reopens: Arc<AtomicU64>,
    ) -> Self {
        Self {
            queue,
            sinks,
            dedup: Deduplicator::default(),
            reopens,
            reopened: 0,
            dropped: 0,
        }
    }

    pub(super) fn sinks(&mut self) -> impl Iterator<Item = &mut LogSink> {
        self.sinks.iter_mut().map(|(_, sink)| sink)
    }

    pub(super) fn run(mut self) {
        os::block_sigpipe();
        loop {
            let longest = self.longest_sleep();
            let urgency = self.queue.notifier.wait(Duration::ZERO, longest);
            self.run_once(urgency == Urgency::Stop);
            if urgency == Urgency::Stop {
                return self.write_rest();
            }
        }
    }

    fn longest_sleep(&self) -> Duration {
        let lines = self.sinks.iter().any(|(_, sink)| sink.has_lines());
        let pauses = self.sinks.iter().filter_map(|(_, sink)| sink.pause());
        let tries = pauses.chain(lines.then_some(super::RETRY));
        let look = match self.dedup.is_empty() {
            true => Duration::from_secs(3600),
            false => LOOK,
        };
        tries.min().unwrap_or(look)
    }

    fn run_once(&mut self, is_last: bool) {
        let lines = std::mem::take(&mut *lock(&self.queue.lines));
        let mut bytes = 0;
        for line in &lines {
            bytes += line.text.len() + LINE_BYTES;
            match self.dedup.check(line.level, &line.text, Instant::now()) {
                DedupAction::Write => self.add(line.level, line.at, &line.text),
                DedupAction::Count => {}
            }
            if self.sinks.iter().any(|(_, sink)| sink.wants_write()) {
                self.write();
            }
        }
        for (level, text) in self.dedup.expired(Instant::now(), is_last) {
            self.add(level, SystemTime::now(), &text);
        }
        self.report_dropped(is_last);
        self.write();
        let kept = self.sinks.iter().map(|(_, sink)| sink.bytes()).sum();
        self.queue.budget.account(bytes, kept);
    }

    /// Reports how many lines were dropped, once there is room for the report.
    fn report_dropped(&mut self, is_last: bool) {
        let of_logs: u64 = self.sinks().map(LogSink::take_dropped).sum();
        self.dropped += self.queue.budget.take_dropped() + of_logs;
        let is_full = self.sinks.iter().any(|(_, sink)| sink.is_full());
        if self.dropped > 0 && (is_last || !is_full) {
            let dropped = std::mem::take(&mut self.dropped);
            let text = format!("error log: {dropped} lines were dropped: too many at once");
            self.add(Level::Warning, SystemTime::now(), &text);
        }
    }

    fn add(&mut self, level: Level, at: SystemTime, text: &str) {
        for (levels, sink) in &mut self.sinks {
            if levels.has(level) {
                let form = sink.error_form();
                let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
                let at_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
                sink.add(level, at_ns, |lines| {
                    format::error(lines, level, at, text, form);
                });
            }
        }
    }

    fn write(&mut self) {
        let reopens = self.reopens.load(Ordering::Acquire);
        let is_reopened = std::mem::replace(&mut self.reopened, reopens) != reopens;
        for index in 0..self.sinks.len() {
            let (_, sink) = &mut self.sinks[index];
            let mut notices = if is_reopened {
                sink.reopen()
            } else {
                Vec::new()
            };
            notices.append(&mut sink.write());
            // The other error logs get the fault of one, and it gets its own for later.
            for (level, text) in notices {
                self.add(level, SystemTime::now(), &text);
            }
        }
    }

    /// Writes what is left at the end of the process; targets that take nothing now may do so in a moment.
    fn write_rest(mut self) {
        let until = Instant::now() + super::RETRY * super::LAST_TRIES;
        while self.sinks.iter().any(|(_, sink)| sink.has_lines()) && Instant::now() < until {
            std::thread::sleep(self.longest_sleep().min(super::RETRY));
            self.write();
        }
        let left: Vec<_> = (self.sinks.iter())
            .filter_map(|(_, sink)| sink.left())
            .collect();
        if !left.is_empty() {
            // The other logs may still take it.
            let now = SystemTime::now();
            (left.iter()).for_each(|text| self.add(Level::Error, now, text));
            self.write();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, OFlags};

    use super::super::target::LogTag;
    use super::*;
    use config::typed::{LogTarget, Rotation};

    /// The reading end of a pipe that is never emptied.
    fn stuck_pipe(path: &Path) -> File {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap())
    }

    fn writer(paths: &[&Path], overflow: LogOverflow) -> ErrorLogWriter {
        let bound = (BYTES_MAX / paths.len(), overflow);
        let sink = |path: &&Path| {
            let target = LogTarget::File(path.to_path_buf());
            let sink = LogSink::open(LogTag::Errors, &target, &Rotation::default(), bound);
            (Levels::From(Level::Info), sink.unwrap())
        };
        let sinks = paths.iter().map(sink).collect();
        ErrorLogWriter::new(Arc::new(ErrorQueue::new(overflow)), sinks, Arc::default())
    }

    /// Puts different lines of about 10,000 bytes.
    fn put(writer: &ErrorLogWriter, numbers: std::ops::Range<usize>, on_full: OnFull) {
        for number in numbers {
            let text = format!("{number} {}", "x".repeat(10_000));
            writer.queue.put(Level::Error, &text, on_full);
        }
    }

    #[test]
    fn a_target_that_takes_nothing_keeps_no_line_from_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, file) = (dir.path().join("pipe"), dir.path().join("file"));
        let _reader = stuck_pipe(&pipe);
        let mut writer = writer(&[&pipe, &file], LogOverflow::Drop);
        for round in 0..10 {
            put(&writer, round * 100..(round + 1) * 100, OnFull::Wait);
            writer.run_once(false);
            writer.run_once(false);
        }
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 1_000);
        assert!(!text.contains("dropped"));
        writer.run_once(true);
        let text = std::fs::read_to_string(&file).unwrap();
        let reports: Vec<&str> = (text.lines())
            .filter(|line| line.contains("lines were dropped"))
            .collect();
        assert_eq!(reports.len(), 1);
    }

    #[test]
    fn a_burst_to_several_good_targets_drops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| dir.path().join(name));
        let mut writer = writer(&[&paths[0], &paths[1], &paths[2]], LogOverflow::Drop);
        put(&writer, 0..400, OnFull::Wait);
        writer.run_once(false);
        for path in &paths {
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(text.lines().count(), 400);
        }
    }

    #[test]
    fn keeps_lines_that_grow_by_escapes_where_none_may_be_lost() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let _reader = stuck_pipe(&pipe);
        let mut writer = writer(&[&pipe], LogOverflow::Wait);
        for number in 0..200 {
            let text = format!("{number}{}", "\x1b".repeat(10_000));
            writer.queue.put(Level::Error, &text, OnFull::Wait);
        }
        writer.run_once(false);
        assert!(writer.sinks[0].1.is_full());
        assert_eq!(writer.sinks().map(LogSink::take_dropped).sum::<u64>(), 0);
        assert_eq!(writer.queue.budget.take_dropped(), 0);
    }
}
