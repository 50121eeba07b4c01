//! The access logs' thread: takes records out of the pages, makes lines of them for each log whose filter
//! they pass, and has them written.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use measure::{Names, Nanos, Record, Stamp, Writer as Lines};

use super::bell::Ring;
use super::errors::{Inbox, Patience};
use super::out::Out;
use super::pages::{Pages, Sheaf};
use super::{LAST_TRIES, RETRY};
use crate::config::meant::{Level, LogFilter, LogOverflow};

/// The thread that writes access logs.
pub(super) struct Writer {
    pages: Arc<Pages>,
    errors: Arc<Inbox>,
    logs: Vec<AccessLog>,
    sheaf: Sheaf,
    flush: Duration,
    overflow: LogOverflow,
    counts: Arc<Counts>,
    reopens: Arc<AtomicU64>,
    reopened: u64,
    /// Records that found no room while nothing could be written.
    dropped: u64,
}

/// One log of them.
pub(super) struct AccessLog {
    pub(super) filter: Filter,
    pub(super) lines: Lines,
    pub(super) out: Out,
}

/// Which records are in a log, by numbers.
pub(super) struct Filter {
    /// `None`: all.
    routes: Option<Vec<u16>>,
    statuses: Vec<RangeInclusive<u16>>,
    slower_than: Nanos,
}

/// What became of records and lines, for the status page.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Records that were made lines of, or passed no filter.
    pub(super) formatted: AtomicU64,
    /// Records that found no room, and lines that found none.
    pub(super) dropped: AtomicU64,
}

impl Filter {
    pub(super) fn new(meant: &LogFilter, names: &Names) -> Self {
        let index = |name: &String| {
            let at = names.routes.iter().position(|route| route == name);
            at.and_then(|at| u16::try_from(at).ok())
        };
        let has_routes = !meant.routes.is_empty();
        Self {
            routes: has_routes.then(|| meant.routes.iter().filter_map(index).collect()),
            statuses: meant.statuses.clone(),
            slower_than: meant.slower_than,
        }
    }

    fn passes(&self, record: &Record<'_>) -> bool {
        let route = match &self.routes {
            Some(routes) => routes.contains(&record.route),
            None => true,
        };
        let status = self.statuses.is_empty()
            || (self.statuses.iter()).any(|range| range.contains(&record.status));
        let phases = &record.phases;
        let total = phases.delivered.since(phases.arrived);
        route && status && (self.slower_than == Nanos(0) || total > self.slower_than)
    }
}

impl Writer {
    pub(super) fn new(
        (pages, errors): (Arc<Pages>, Arc<Inbox>),
        logs: Vec<AccessLog>,
        flush: Duration,
        overflow: LogOverflow,
        counts: Arc<Counts>,
        reopens: Arc<AtomicU64>,
    ) -> Self {
        Self {
            pages,
            errors,
            logs,
            sheaf: Sheaf::default(),
            flush,
            overflow,
            counts,
            reopens,
            reopened: 0,
            dropped: 0,
        }
    }

    pub(super) fn outs(&mut self) -> impl Iterator<Item = &mut Out> {
        self.logs.iter_mut().map(|log| &mut log.out)
    }

    pub(super) fn run(mut self) {
        crate::sys::block_sigpipe();
        loop {
            let longest = if self.has_work() {
                RETRY
            } else {
                Duration::MAX
            };
            let ring = self.pages.bell.wait(self.flush, longest);
            self.turn();
            if ring == Ring::Stop {
                return self.last_words();
            }
        }
    }

    fn has_work(&self) -> bool {
        !self.sheaf.is_empty() || self.logs.iter().any(|log| log.out.has_lines())
    }

    fn turn(&mut self) {
        self.pages.came();
        let reopens = self.reopens.load(Ordering::Acquire);
        if std::mem::replace(&mut self.reopened, reopens) != reopens {
            for log in &mut self.logs {
                for (level, text) in log.out.renew() {
                    self.errors.put(level, &text, Patience::None);
                }
            }
        }
        self.write();
        // What was delivered before this moment is in the pages.
        self.sheaf.gather(&self.pages, measure::now());
        while self.format() > 0 {
            self.write();
        }
        self.tell_dropped();
    }

    /// Makes lines of what was taken, until one log has enough to write; gives the bytes of the records.
    fn format(&mut self) -> usize {
        let may_drop = self.overflow == LogOverflow::Drop;
        if !may_drop && self.logs.iter().any(|log| log.out.is_full()) {
            return 0;
        }
        let offset = wall_offset();
        let logs = &mut self.logs;
        let mut formatted = 0;
        let used = self.sheaf.each(|mut record| {
            record.wall_arrived_ns = record.phases.arrived.0 + offset;
            let delivered_ns = record.phases.delivered.0 + offset;
            let mut enough = false;
            for log in logs.iter_mut() {
                if log.filter.passes(&record) {
                    let lines = &mut log.lines;
                    log.out
                        .add(Level::Info, delivered_ns, |out| lines.write(&record, out));
                    enough |= log.out.has_batch() || log.out.is_full();
                }
            }
            formatted += 1;
            !enough
        });
        self.counts
            .formatted
            .fetch_add(formatted, Ordering::Relaxed);
        self.settle(used);
        used
    }

    fn write(&mut self) {
        for log in &mut self.logs {
            for (level, text) in log.out.write() {
                self.errors.put(level, &text, Patience::None);
            }
        }
        self.settle(0);
    }

    fn settle(&self, records_bytes: usize) {
        let lines_bytes = self.logs.iter().map(|log| log.out.bytes()).sum();
        self.pages.room.settle(records_bytes, lines_bytes);
    }

    /// Says how many found no room, once writing works again.
    fn tell_dropped(&mut self) {
        let of_logs: u64 = self.outs().map(Out::take_dropped).sum();
        let dropped = self.pages.room.take_dropped() + of_logs;
        self.dropped += dropped;
        self.counts.dropped.fetch_add(dropped, Ordering::Relaxed);
        if self.dropped > 0 && !self.logs.iter().any(|log| log.out.has_lines()) {
            let text = format!(
                "access log: {} lines were dropped: the log's memory (log_buffer) was full",
                std::mem::take(&mut self.dropped)
            );
            self.errors.put(Level::Warning, &text, Patience::None);
        }
    }

    /// What the targets did not take until now they may take in a moment.
    fn last_words(mut self) {
        self.pages.room.close();
        let tries = match self.overflow {
            LogOverflow::Drop => LAST_TRIES,
            LogOverflow::Wait => super::LAST_TRIES_OF_WAITING,
        };
        let until = Instant::now() + RETRY * tries;
        while self.has_work() && Instant::now() < until {
            std::thread::sleep(RETRY);
            self.turn();
        }
        for log in &self.logs {
            if let Some(text) = log.out.left() {
                self.errors.put(Level::Error, &text, Patience::None);
            }
        }
        self.tell_dropped();
    }
}

/// Wall clock minus our monotonic clock, in nanoseconds.
fn wall_offset() -> u64 {
    let Stamp(now) = measure::now();
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u64::try_from(wall.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_sub(now)
}
