//! The access logs' thread: takes records out of the pages, makes lines of them for each log whose filter
//! they pass, and has them written.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use measure::{Names, Nanos, Record, Stamp, Writer as Lines};

use super::buffers::{MergedBatch, Pages, Patience, Urgency};
use super::errors::Inbox;
use super::out::Out;
use super::{LAST_TRIES, RETRY};
use crate::config::meant::{Level, LogFilter, LogOverflow};

/// The thread that writes access logs.
pub(super) struct Writer {
    pages: Arc<Pages>,
    errors: Arc<Inbox>,
    logs: Vec<AccessLog>,
    batch: MergedBatch,
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
        let total = phases.sent.since(phases.arrived);
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
            batch: MergedBatch::default(),
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
            let urgency = self.pages.notifier.wait(self.flush, self.longest_sleep());
            self.turn();
            if urgency == Urgency::Stop {
                return self.last_words();
            }
        }
    }

    fn longest_sleep(&self) -> Duration {
        let pauses = self.logs.iter().filter_map(|log| log.out.pause());
        let has_work = self.has_work().then_some(RETRY);
        pauses.chain(has_work).min().unwrap_or(Duration::MAX)
    }

    fn has_work(&self) -> bool {
        !self.batch.is_empty() || self.logs.iter().any(|log| log.out.has_lines())
    }

    fn turn(&mut self) {
        // What is added from now on calls again.
        self.pages.told.store(false, Ordering::Release);
        let reopens = self.reopens.load(Ordering::Acquire);
        if std::mem::replace(&mut self.reopened, reopens) != reopens {
            for log in &mut self.logs {
                for (level, text) in log.out.renew() {
                    self.errors.put(level, &text, Patience::None);
                }
            }
        }
        self.write(|_| true);
        // What was delivered before this moment is in the pages.
        self.batch.gather(&self.pages, measure::now());
        while self.format() > 0 {
            self.write(|out| out.pause().is_none());
        }
        self.count_dropped();
        // Only once writing works again.
        if !self.logs.iter().any(|log| log.out.has_lines()) {
            self.tell_dropped();
        }
    }

    /// Makes lines of what was taken, until one log has enough to write; gives the bytes of the records.
    fn format(&mut self) -> usize {
        let may_drop = self.overflow == LogOverflow::Drop;
        let must_wait = |out: &Out| !may_drop && out.is_full();
        if self.logs.iter().any(|log| must_wait(&log.out)) {
            return 0;
        }
        let offset = wall_offset();
        let logs = &mut self.logs;
        let mut formatted = 0;
        let used = self.batch.each(|mut record| {
            record.wall_arrived_ns = record.phases.arrived.0 + offset;
            let delivered_ns = record.phases.sent.0 + offset;
            let mut enough = false;
            for log in logs.iter_mut() {
                if log.filter.passes(&record) {
                    let lines = &mut log.lines;
                    log.out
                        .add(Level::Info, delivered_ns, |out| lines.write(&record, out));
                    enough |= log.out.wants_write() || must_wait(&log.out);
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

    fn write(&mut self, which: impl Fn(&Out) -> bool) {
        for log in self.logs.iter_mut().filter(|log| which(&log.out)) {
            for (level, text) in log.out.write() {
                self.errors.put(level, &text, Patience::None);
            }
        }
        self.settle(0);
    }

    fn settle(&self, records_bytes: usize) {
        let lines_bytes = self.logs.iter().map(|log| log.out.bytes()).sum();
        self.pages.budget.settle(records_bytes, lines_bytes);
    }

    fn count_dropped(&mut self) {
        let of_logs: u64 = self.outs().map(Out::take_dropped).sum();
        let dropped = self.pages.budget.take_dropped() + of_logs;
        self.dropped += dropped;
        self.counts.dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    fn tell_dropped(&mut self) {
        if self.dropped > 0 {
            let text = format!(
                "access log: {} lines were dropped: the log's memory (log_buffer) was full",
                std::mem::take(&mut self.dropped)
            );
            self.errors.put(Level::Warning, &text, Patience::None);
        }
    }

    /// What the targets did not take until now they may take in a moment.
    fn last_words(mut self) {
        self.pages.budget.close();
        let tries = match self.overflow {
            LogOverflow::Drop => LAST_TRIES,
            LogOverflow::Wait => super::LAST_TRIES_OF_WAITING,
        };
        let until = Instant::now() + RETRY * tries;
        while self.has_work()
            && Instant::now() < until
            && !self.pages.is_hurried.load(Ordering::Relaxed)
        {
            std::thread::sleep(self.longest_sleep().min(RETRY));
            self.turn();
        }
        self.tell_left();
    }

    /// The process ends: what is not written now is lost.
    fn tell_left(&mut self) {
        for log in &self.logs {
            if let Some(text) = log.out.left() {
                self.errors.put(Level::Error, &text, Patience::None);
            }
        }
        // With the promise to wait these had no room among the lines.
        self.batch.gather(&self.pages, Stamp(u64::MAX));
        let mut records = 0;
        self.batch.each(|_| {
            records += 1;
            true
        });
        if records > 0 {
            let text = format!("access log: {records} exchanges more could not be logged");
            self.errors.put(Level::Error, &text, Patience::None);
        }
        self.count_dropped();
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, OFlags};

    use super::super::buffers::Budget;
    use super::super::lines;
    use super::super::target::Voice;
    use super::*;
    use crate::config::meant::{LogForm, LogPrivacy, LogTarget, Rotation};

    const BYTES_MAX: usize = 600 << 10;

    /// The reading end of a pipe that nobody empties.
    fn stuck_pipe(path: &Path) -> File {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap())
    }

    fn writer(paths: &[&Path], overflow: LogOverflow) -> Writer {
        let names = Names::default();
        let log = |path: &&Path| {
            let target = LogTarget::File(path.to_path_buf());
            let bound = (BYTES_MAX, overflow);
            AccessLog {
                filter: Filter::new(&LogFilter::default(), &names),
                lines: lines::of_access(&LogForm::Common, &LogPrivacy::default(), &names).unwrap(),
                out: Out::open(Voice::Access, &target, &Rotation::default(), bound).unwrap(),
            }
        };
        let logs = paths.iter().map(log).collect();
        Writer::new(
            (
                Arc::new(Pages::new(Budget::new(64 << 20, overflow))),
                Arc::new(Inbox::new(overflow)),
            ),
            logs,
            Duration::ZERO,
            overflow,
            Arc::default(),
            Arc::default(),
        )
    }

    /// Writes records whose lines have about 1,000 bytes each.
    fn serve(writer: &Writer, len: usize) {
        let pen = writer.pages.pen(Patience::Now);
        let target = [b'x'; 1_000];
        for _ in 0..len {
            let mut record = Record {
                method: b"GET",
                target: &target,
                ..Record::default()
            };
            record.phases.sent = measure::now();
            pen.write(&record);
        }
    }

    fn lines_in(path: &Path) -> usize {
        std::fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn a_target_that_takes_nothing_costs_the_others_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, file) = (dir.path().join("pipe"), dir.path().join("file"));
        let mut reader = stuck_pipe(&pipe);
        let mut writer = writer(&[&pipe, &file], LogOverflow::Drop);
        serve(&writer, 2_000);
        writer.turn();
        assert_eq!(lines_in(&file), 2_000);
        let out = &writer.logs[0].out;
        assert!(out.is_full() && !out.wants_write());
        assert!(writer.longest_sleep() <= RETRY);
        assert_eq!(writer.errors.texts(), [""; 0]);

        let mut read_bytes = 0;
        let mut piece = [0; 64 << 10];
        while writer.has_work() {
            read_bytes += reader.read(&mut piece).unwrap_or(0);
            writer.turn();
        }
        read_bytes += reader.read(&mut piece).unwrap();
        let dropped = writer.counts.dropped.load(Ordering::Relaxed);
        let line_bytes = std::fs::metadata(&file).unwrap().len() / 2_000;
        assert_eq!(read_bytes as u64 / line_bytes + dropped, 2_000);
        let text = format!(
            "access log: {dropped} lines were dropped: the log's memory (log_buffer) was full"
        );
        assert_eq!(writer.errors.texts(), [text]);
    }

    #[test]
    fn a_target_that_takes_nothing_is_left_alone_for_longer_and_longer() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let mut reader = stuck_pipe(&pipe);
        let mut writer = writer(&[&pipe], LogOverflow::Drop);
        serve(&writer, 2_000);
        writer.turn();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.push(writer.longest_sleep().as_millis());
            writer.turn();
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 200]);
        reader.read_exact(&mut [0; 64 << 10]).unwrap();
        writer.turn();
        assert_eq!(writer.longest_sleep().as_millis(), 5);
    }

    #[test]
    fn the_end_says_all_that_is_lost() {
        for overflow in [LogOverflow::Drop, LogOverflow::Wait] {
            let dir = tempfile::tempdir().unwrap();
            let pipe = dir.path().join("pipe");
            let mut reader = stuck_pipe(&pipe);
            let mut writer = writer(&[&pipe], overflow);
            serve(&writer, 2_000);
            writer.turn();
            serve(&writer, 10);
            writer.tell_left();
            let texts = writer.errors.texts();
            let number = |text: &String| -> usize {
                let digits = text.split(' ').find_map(|word| word.parse().ok());
                digits.unwrap()
            };
            let lost: usize = texts.iter().map(number).sum();
            let mut taken = vec![0; 64 << 10];
            let bytes = reader.read(&mut taken).unwrap();
            let whole = taken[..bytes].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lost + whole, 2_010, "{texts:?}");
        }
    }
}
