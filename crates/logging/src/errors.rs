//! The error logs: lines of all threads on their way to a thread of their own, which still writes them while the disk
//! of an access log stalls.
//!
//! Takes texts with a level, gives lines with their time. Lines that repeat often are counted instead (`dedup`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::budget::{Budget, OnFull};
use super::dedup::{DedupAction, Deduplicator};
use super::format;
use super::notify::{Notifier, Urgency};
use super::sink::LogSink;
use super::sinks::{LogSinks, write_rest};
use config::typed::{ErrorLog, ErrorLogForm, Level, Levels, LogOverflow};
use os::lock;
use telemetry::counters::LogStats;

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
    pub(super) queue: Arc<ErrorQueue>,
    pub(super) logs: LogSinks<ErrorFilter>,
    pub(super) dedup: Deduplicator,
    pub(super) counters: &'static LogStats,
    /// Lines that were dropped and not yet reported.
    pub(super) dropped: u64,
}

/// Which lines are in a log, and what they look like.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorFilter {
    levels: Levels,
    form: ErrorLogForm,
}

impl ErrorFilter {
    pub(super) fn new(meant: &ErrorLog) -> Self {
        let (levels, form) = (meant.levels, meant.form);
        Self { levels, form }
    }
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
            // Within the lock: the log's thread could otherwise count the line off before it is counted.
            self.budget.add_record(line.text.len() + LINE_BYTES);
            lines.push_back(line);
        }
        self.notifier.notify(Urgency::Urgent);
    }

    /// Ends all waiting for free memory, and the thread once it has written everything.
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
        let look = match self.dedup.is_empty() {
            true => Duration::from_secs(3600),
            false => LOOK,
        };
        self.pause().unwrap_or(look)
    }

    /// Time until the next try; `None`: all lines are written.
    fn pause(&self) -> Option<Duration> {
        self.logs.pause(self.logs.has_lines())
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
            if self.logs.iter().any(LogSink::wants_write) {
                self.write();
            }
        }
        for (level, text) in self.dedup.expired(Instant::now(), is_last) {
            self.add(level, SystemTime::now(), &text);
        }
        self.report_dropped(is_last);
        self.write();
        self.logs.count(self.counters, 0);
        self.queue.budget.account(bytes, self.logs.bytes());
        let waiting_bytes = self.queue.budget.waiting_bytes();
        self.counters.waiting_bytes.set(waiting_bytes as u64);
    }

    /// Reports how many lines were dropped, once the sinks take the report.
    fn report_dropped(&mut self, is_last: bool) {
        let dropped = self.queue.budget.take_dropped() + self.logs.take_dropped();
        self.counters.dropped.add_many(dropped);
        self.dropped += dropped;
        let is_full = self.logs.iter().any(LogSink::is_full);
        if self.dropped > 0 && (is_last || !is_full) {
            let dropped = std::mem::take(&mut self.dropped);
            let text = format!("error log: {dropped} lines were dropped: too many at once");
            self.add(Level::Warning, SystemTime::now(), &text);
        }
    }

    fn add(&mut self, level: Level, at: SystemTime, text: &str) {
        for (filter, sink) in &mut self.logs.list {
            if filter.levels.has(level) {
                let form = sink.error_form();
                let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
                let at_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
                sink.add(level, at_ns, |lines| match filter.form {
                    ErrorLogForm::Text => format::error(lines, level, at, text, form),
                    ErrorLogForm::Json => format::error_json(lines, level, at_ns, text, form),
                });
            }
        }
    }

    /// Reports a fault of one log to all: it gets its own for later, the others at once.
    fn write(&mut self) {
        let mut notices = self.logs.reopen_if_asked();
        notices.append(&mut self.logs.write(|_| true));
        if notices.is_empty() {
            return;
        }
        for (level, text) in notices {
            self.add(level, SystemTime::now(), &text);
        }
        // Only targets that take lines now: one that has just failed would be tried twice, and would wait longer.
        for (level, text) in self.logs.write(|sink| sink.pause().is_none()) {
            self.add(level, SystemTime::now(), &text);
        }
    }

    fn write_rest(mut self) {
        write_rest(&mut self, super::LAST_TRIES, Self::pause, Self::write);
        // The other logs may still take it.
        for text in self.logs.left() {
            self.add(Level::Error, SystemTime::now(), &text);
        }
        self.write();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::sinks::WriteClock;
    use super::*;
    use crate::tests::stuck_pipe;
    use config::typed::{LogTarget, Rotation};

    fn writer(paths: &[&Path], overflow: LogOverflow) -> ErrorLogWriter {
        let bound = (BYTES_MAX / paths.len(), overflow);
        let sink = |path: &&Path| {
            let target = LogTarget::File(path.to_path_buf());
            let sink = LogSink::open(
                "error",
                &target,
                &Rotation::default(),
                bound,
                &Arc::default(),
            );
            let filter = ErrorFilter {
                levels: Levels::From(Level::Info),
                form: ErrorLogForm::Text,
            };
            (filter, sink.unwrap())
        };
        let counters = Box::leak(Box::default());
        let logs = paths.iter().map(sink).collect();
        ErrorLogWriter {
            queue: Arc::new(ErrorQueue::new(overflow)),
            logs: LogSinks::new(logs, WriteClock::new(counters), &Arc::default()),
            dedup: Deduplicator::default(),
            counters,
            dropped: 0,
        }
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
        assert!(writer.logs.list[0].1.is_full());
        assert_eq!(writer.logs.take_dropped(), 0);
        assert_eq!(writer.queue.budget.take_dropped(), 0);
    }
}
