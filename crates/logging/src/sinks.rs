//! The sinks of one thread, each with what is particular to its log.
//!
//! Gives notices, which go to the error logs. Knows neither records nor error lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use telemetry::counters::LogStats;
use telemetry::{Nanos, Stamp};

use super::RETRY;
use super::sink::{LogNotice, LogSink};

/// All logs that one thread writes.
pub(super) struct LogSinks<T> {
    pub(super) list: Vec<(T, LogSink)>,
    clock: WriteClock,
    /// Requests to reopen all files so far, and how many of them were followed.
    reopens: Arc<AtomicU64>,
    reopened: u64,
}

/// How long writes take: the thread that writes says when one begins and ends, and others see one that does not end.
#[derive(Clone)]
pub(super) struct WriteClock {
    counters: &'static LogStats,
    /// When the write under way began; [`Stamp::ZERO`]: there is none.
    began: Arc<AtomicU64>,
}

impl WriteClock {
    pub(super) fn new(counters: &'static LogStats) -> Self {
        Self {
            counters,
            began: Arc::default(),
        }
    }

    fn time<R>(&self, write: impl FnOnce() -> R) -> R {
        let began = telemetry::now();
        self.began.store(began.0, Ordering::Relaxed);
        let written = write();
        self.began.store(Stamp::ZERO.0, Ordering::Relaxed);
        let Nanos(took) = telemetry::now().since(began);
        self.counters.write_ns.add_many(took);
        self.counters.slowest_write_ns.raise_to(took);
        written
    }

    /// Counts a write that is under way: its end may never come.
    pub(super) fn publish(&self, now: Stamp) {
        let began = Stamp(self.began.load(Ordering::Relaxed));
        if began != Stamp::ZERO {
            self.counters.slowest_write_ns.raise_to(now.since(began).0);
        }
    }
}

impl<T> LogSinks<T> {
    pub(super) fn new(
        list: Vec<(T, LogSink)>,
        clock: WriteClock,
        reopens: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            list,
            clock,
            reopens: Arc::clone(reopens),
            reopened: 0,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LogSink> {
        self.list.iter().map(|(_, sink)| sink)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut LogSink> {
        self.list.iter_mut().map(|(_, sink)| sink)
    }

    pub(super) fn has_lines(&self) -> bool {
        self.iter().any(LogSink::has_lines)
    }

    /// Bytes of lines that wait.
    pub(super) fn bytes(&self) -> usize {
        self.iter().map(LogSink::bytes).sum()
    }

    /// Lines that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        self.iter_mut().map(LogSink::take_dropped).sum()
    }

    /// Counts these dropped lines, and what was written since the last call.
    pub(super) fn count(&mut self, counters: &LogStats, dropped: u64) {
        counters.dropped.add_many(dropped);
        for sink in self.iter_mut() {
            let written = sink.take_written();
            counters.lines.add_many(written.lines);
            counters.incomplete.add_many(written.incomplete);
        }
    }

    /// Time until the next try: of the target with the shortest pause, or `RETRY` where there is other work.
    pub(super) fn pause(&self, has_work: bool) -> Option<Duration> {
        let pauses = self.iter().filter_map(LogSink::pause);
        pauses.chain(has_work.then_some(RETRY)).min()
    }

    /// Opens all files again where that was asked for since the last call.
    pub(super) fn reopen_if_asked(&mut self) -> Vec<LogNotice> {
        let reopens = self.reopens.load(Ordering::Acquire);
        // Several requests before this look are one: the files are opened as they are called now.
        if std::mem::replace(&mut self.reopened, reopens) == reopens {
            return Vec::new();
        }
        self.iter_mut().flat_map(LogSink::reopen).collect()
    }

    /// Writes the lines of these sinks as far as their targets take them.
    pub(super) fn write(&mut self, which: impl Fn(&LogSink) -> bool) -> Vec<LogNotice> {
        let clock = &self.clock;
        let sinks = self.list.iter_mut().map(|(_, sink)| sink);
        let sinks = sinks.filter(|sink| which(sink));
        sinks
            .flat_map(|sink| match sink.has_lines() {
                true => clock.time(|| sink.write()),
                // A write of nothing says nothing of the disk.
                false => sink.write(),
            })
            .collect()
    }

    /// Messages about lines that are unwritten at the end of the process.
    pub(super) fn left(&self) -> Vec<String> {
        self.iter().filter_map(LogSink::left).collect()
    }
}

/// Tries to write what is left at the end of the process, `tries` times at most. `pause` gives the time until the
/// next try, or `None` once there is no need for one.
pub(super) fn write_rest<W>(
    writer: &mut W,
    tries: u32,
    pause: impl Fn(&W) -> Option<Duration>,
    mut write: impl FnMut(&mut W),
) {
    let until = Instant::now() + RETRY * tries;
    while let Some(pause) = pause(writer)
        && Instant::now() < until
    {
        // A target that takes nothing now may do so in a moment.
        std::thread::sleep(pause.min(RETRY));
        write(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_does_not_end_is_seen() {
        let clock = WriteClock::new(Box::leak(Box::default()));
        let counters = clock.counters;
        let slowest_s = || counters.slowest_write_ns.count() / 1_000_000_000;
        let later = |secs| telemetry::now().plus(Nanos::from_secs(secs));
        clock.publish(later(60));
        assert_eq!(slowest_s(), 0, "none is under way");
        clock.time(|| clock.publish(later(60)));
        assert_eq!(slowest_s(), 60);
        // One that was shorter, and the end of that one, change nothing.
        clock.time(|| clock.publish(later(20)));
        clock.publish(later(90));
        assert_eq!(slowest_s(), 60);
        assert!(counters.write_ns.count() > 0);
    }
}
