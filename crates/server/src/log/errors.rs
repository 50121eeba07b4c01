//! The error logs: lines from everywhere on their way to a thread of their own, so that they are still
//! written while the disk of an access log stalls.
//!
//! Takes texts with a level, gives lines with their time; equal ones that come in floods are counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::bell::{Bell, Ring};
use super::flood::{Floods, Verdict};
use super::out::Out;
use super::room::Room;
use super::{lines, lock};
use crate::config::meant::{Level, Levels, LogOverflow};

/// Bytes of error lines that may wait.
pub(super) const BYTES_MAX: usize = 4 << 20;
/// What a line takes beside its text.
const LINE_BYTES: usize = 64;
/// Longest sleep, and so the longest time that the count of a flood comes late.
const LOOK: Duration = Duration::from_secs(1);

/// Lines that wait, and the bell of the thread that writes them.
#[derive(Debug)]
pub(super) struct Inbox {
    lines: Mutex<VecDeque<Line>>,
    room: Room,
    pub(super) bell: Bell,
}

#[derive(Debug)]
struct Line {
    level: Level,
    at: SystemTime,
    text: String,
}

/// Whether whoever has a line may be made to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// As the setting says.
    AsSet,
    /// The log's own threads never wait for each other.
    None,
}

/// The thread that writes them.
pub(super) struct Writer {
    inbox: Arc<Inbox>,
    outs: Vec<(Levels, Out)>,
    floods: Floods,
    reopens: Arc<AtomicU64>,
    reopened: u64,
}

impl Inbox {
    pub(super) fn new(overflow: LogOverflow) -> Self {
        Self {
            lines: Mutex::default(),
            room: Room::new(BYTES_MAX, overflow),
            bell: Bell::new(),
        }
    }

    pub(super) fn put(&self, level: Level, text: &str, patience: Patience) {
        if patience == Patience::AsSet && !self.room.enter() {
            return;
        }
        let line = Line {
            level,
            at: SystemTime::now(),
            text: text.to_owned(),
        };
        {
            let mut lines = lock(&self.lines);
            self.room.add_record(line.text.len() + LINE_BYTES);
            lines.push_back(line);
        }
        self.bell.ring(Ring::Urgent);
    }

    /// From now on nobody waits for room.
    pub(super) fn close(&self) {
        self.room.close();
        self.bell.ring(Ring::Stop);
    }

    /// What waits.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<String> {
        let lines = lock(&self.lines);
        lines.iter().map(|line| line.text.clone()).collect()
    }

    /// Lines that found no room, since the last time.
    pub(super) fn take_dropped(&self) -> u64 {
        self.room.take_dropped()
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
        }
    }

    pub(super) fn outs(&mut self) -> impl Iterator<Item = &mut Out> {
        self.outs.iter_mut().map(|(_, out)| out)
    }

    pub(super) fn run(mut self) {
        crate::sys::block_sigpipe();
        loop {
            let longest = self.longest_sleep();
            let ring = self.inbox.bell.wait(Duration::ZERO, longest);
            self.turn(ring == Ring::Stop);
            if ring == Ring::Stop {
                return self.last_tries();
            }
        }
    }

    fn longest_sleep(&self) -> Duration {
        if self.outs.iter().any(|(_, out)| out.has_lines()) {
            super::RETRY
        } else if self.floods.is_empty() {
            Duration::from_secs(3600)
        } else {
            LOOK
        }
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
        }
        for (level, text) in self.floods.ended(Instant::now(), is_last) {
            self.add(level, SystemTime::now(), &text);
        }
        let of_logs: u64 = self.outs().map(Out::take_dropped).sum();
        let dropped = self.inbox.take_dropped() + of_logs;
        if dropped > 0 {
            let text = format!("error log: {dropped} lines were dropped: too many at once");
            self.add(Level::Warning, SystemTime::now(), &text);
        }
        self.write();
        let kept = self.outs.iter().map(|(_, out)| out.bytes()).sum();
        self.inbox.room.settle(bytes, kept);
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
        for _ in 0..super::LAST_TRIES {
            if !self.outs.iter().any(|(_, out)| out.has_lines()) {
                break;
            }
            std::thread::sleep(super::RETRY);
            self.write();
        }
    }
}
