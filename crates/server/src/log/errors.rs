//! The error logs: lines from everywhere on their way to a thread of their own, so that they are still
//! written while the disk of an access log stalls.
//!
//! Takes texts with a level, gives lines with their time; equal ones that come in floods are counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::buffers::{Budget, Notifier, Patience, Urgency, lock};
use super::flood::{Floods, Verdict};
use super::lines;
use super::out::Out;
use crate::config::meant::{Level, Levels, LogOverflow};

/// Bytes of error lines that may wait.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// What a line takes beside its text.
const LINE_BYTES: usize = 64;
/// Longest sleep, and so the longest time that the count of a flood comes late.
const LOOK: Duration = Duration::from_secs(1);

/// Lines that wait, and what calls the thread that writes them.
#[derive(Debug)]
pub(super) struct Inbox {
    lines: Mutex<VecDeque<Line>>,
    pub(super) budget: Budget,
    pub(super) notifier: Notifier,
}

#[derive(Debug)]
struct Line {
    level: Level,
    at: SystemTime,
    text: String,
}

/// The thread that writes them.
pub(super) struct Writer {
    inbox: Arc<Inbox>,
    outs: Vec<(Levels, Out)>,
    floods: Floods,
    reopens: Arc<AtomicU64>,
    reopened: u64,
    /// Lines that found no room and are not told yet.
    dropped: u64,
}

impl Inbox {
    pub(super) fn new(overflow: LogOverflow) -> Self {
        Self {
            lines: Mutex::default(),
            budget: Budget::new(BYTES_MAX, overflow),
            notifier: Notifier::default(),
        }
    }

    pub(super) fn put(&self, level: Level, text: &str, patience: Patience) {
        if !self.budget.enter(patience) {
            return;
        }
        let line = Line {
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

    /// From now on nobody waits for room.
    pub(super) fn close(&self) {
        self.budget.close();
        self.notifier.notify(Urgency::Stop);
    }

    /// What waits.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<String> {
        let lines = lock(&self.lines);
        lines.iter().map(|line| line.text.clone()).collect()
    }
}

impl Writer {
    pub(super) fn new(
        inbox: Arc<Inbox>,
        outs: Vec<(Levels, Out)>,
        reopens: Arc<AtomicU64>,
    ) -> Self {
        Self {
            inbox,
            outs,
            floods: Floods::default(),
            reopens,
            reopened: 0,
            dropped: 0,
        }
    }

    pub(super) fn outs(&mut self) -> impl Iterator<Item = &mut Out> {
        self.outs.iter_mut().map(|(_, out)| out)
    }

    pub(super) fn run(mut self) {
        crate::sys::block_sigpipe();
        loop {
            let longest = self.longest_sleep();
            let urgency = self.inbox.notifier.wait(Duration::ZERO, longest);
            self.turn(urgency == Urgency::Stop);
            if urgency == Urgency::Stop {
                return self.last_tries();
            }
        }
    }

    fn longest_sleep(&self) -> Duration {
        let lines = self.outs.iter().any(|(_, out)| out.has_lines());
        let pauses = self.outs.iter().filter_map(|(_, out)| out.pause());
        let tries = pauses.chain(lines.then_some(super::RETRY));
        let look = match self.floods.is_empty() {
            true => Duration::from_secs(3600),
            false => LOOK,
        };
        tries.min().unwrap_or(look)
    }

    fn turn(&mut self, is_last: bool) {
        let lines = std::mem::take(&mut *lock(&self.inbox.lines));
        let mut bytes = 0;
        for line in &lines {
            bytes += line.text.len() + LINE_BYTES;
            match self.floods.judge(line.level, &line.text, Instant::now()) {
                Verdict::Write => self.add(line.level, line.at, &line.text),
                Verdict::Count => {}
            }
            if self.outs.iter().any(|(_, out)| out.wants_write()) {
                self.write();
            }
        }
        for (level, text) in self.floods.ended(Instant::now(), is_last) {
            self.add(level, SystemTime::now(), &text);
        }
        self.tell_dropped(is_last);
        self.write();
        let kept = self.outs.iter().map(|(_, out)| out.bytes()).sum();
        self.inbox.budget.settle(bytes, kept);
    }

    /// Says how many found no room, once there is room: before that the line itself would find none.
    fn tell_dropped(&mut self, is_last: bool) {
        let of_logs: u64 = self.outs().map(Out::take_dropped).sum();
        self.dropped += self.inbox.budget.take_dropped() + of_logs;
        let is_full = self.outs.iter().any(|(_, out)| out.is_full());
        if self.dropped > 0 && (is_last || !is_full) {
            let dropped = std::mem::take(&mut self.dropped);
            let text = format!("error log: {dropped} lines were dropped: too many at once");
            self.add(Level::Warning, SystemTime::now(), &text);
        }
    }

    fn add(&mut self, level: Level, at: SystemTime, text: &str) {
        for (levels, out) in &mut self.outs {
            if levels.has(level) {
                let daemon = out.is_daemon();
                let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
                let at_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
                out.add(level, at_ns, |lines| {
                    lines::error(lines, level, at, text, daemon);
                });
            }
        }
    }

    fn write(&mut self) {
        let reopens = self.reopens.load(Ordering::Acquire);
        let renew = std::mem::replace(&mut self.reopened, reopens) != reopens;
        for index in 0..self.outs.len() {
            let (_, out) = &mut self.outs[index];
            let mut notices = if renew { out.renew() } else { Vec::new() };
            notices.append(&mut out.write());
            // What is wrong with one error log is told to the others, and to itself for later.
            for (level, text) in notices {
                self.add(level, SystemTime::now(), &text);
            }
        }
    }

    /// What a target did not take until now it may take in a moment.
    fn last_tries(mut self) {
        let until = Instant::now() + super::RETRY * super::LAST_TRIES;
        while self.outs.iter().any(|(_, out)| out.has_lines()) && Instant::now() < until {
            std::thread::sleep(self.longest_sleep().min(super::RETRY));
            self.write();
        }
        let left: Vec<_> = (self.outs.iter())
            .filter_map(|(_, out)| out.left())
            .collect();
        if !left.is_empty() {
            // The others may still take it.
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

    use super::super::target::Voice;
    use super::*;
    use crate::config::meant::{LogTarget, Rotation};

    /// The reading end of a pipe that nobody empties.
    fn stuck_pipe(path: &Path) -> File {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap())
    }

    fn writer(paths: &[&Path], overflow: LogOverflow) -> Writer {
        let bound = (BYTES_MAX / paths.len(), overflow);
        let out = |path: &&Path| {
            let target = LogTarget::File(path.to_path_buf());
            let out = Out::open(Voice::Errors, &target, &Rotation::default(), bound);
            (Levels::From(Level::Info), out.unwrap())
        };
        let outs = paths.iter().map(out).collect();
        Writer::new(Arc::new(Inbox::new(overflow)), outs, Arc::default())
    }

    /// Puts different lines of about 10,000 bytes.
    fn put(writer: &Writer, numbers: std::ops::Range<usize>, patience: Patience) {
        for number in numbers {
            let text = format!("{number} {}", "x".repeat(10_000));
            writer.inbox.put(Level::Error, &text, patience);
        }
    }

    #[test]
    fn a_target_that_takes_nothing_keeps_no_line_from_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, file) = (dir.path().join("pipe"), dir.path().join("file"));
        let _reader = stuck_pipe(&pipe);
        let mut writer = writer(&[&pipe, &file], LogOverflow::Drop);
        for round in 0..10 {
            put(&writer, round * 100..(round + 1) * 100, Patience::Now);
            writer.turn(false);
            writer.turn(false);
        }
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 1_000);
        assert!(!text.contains("dropped"));
        writer.turn(true);
        let text = std::fs::read_to_string(&file).unwrap();
        let told: Vec<&str> = (text.lines())
            .filter(|line| line.contains("lines were dropped"))
            .collect();
        assert_eq!(told.len(), 1);
    }

    #[test]
    fn a_burst_is_no_reason_to_drop_lines_of_several_good_targets() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| dir.path().join(name));
        let mut writer = writer(&[&paths[0], &paths[1], &paths[2]], LogOverflow::Drop);
        put(&writer, 0..400, Patience::Now);
        writer.turn(false);
        for path in &paths {
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(text.lines().count(), 400);
        }
    }

    #[test]
    fn with_the_promise_to_wait_longer_texts_than_lines_are_kept_too() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let _reader = stuck_pipe(&pipe);
        let mut writer = writer(&[&pipe], LogOverflow::Wait);
        for number in 0..200 {
            let text = format!("{number}{}", "\x1b".repeat(10_000));
            writer.inbox.put(Level::Error, &text, Patience::Now);
        }
        writer.turn(false);
        assert!(writer.outs[0].1.is_full());
        assert_eq!(writer.outs().map(Out::take_dropped).sum::<u64>(), 0);
        assert_eq!(writer.inbox.budget.take_dropped(), 0);
    }
}
