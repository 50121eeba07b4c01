//! The access logs' thread: takes records out of the buffers, formats a line for each log whose filter they pass, and
//! writes the lines.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use telemetry::{Names, Nanos, Record, Stamp, Writer as LineWriter};

use super::budget::OnFull;
use super::buffers::{MergedBatch, RecordBuffers};
use super::errors::ErrorQueue;
use super::notify::Urgency;
use super::sink::LogSink;
use super::{LAST_TRIES, RETRY};
use config::typed::{Level, LogFilter, LogOverflow};

/// The thread that writes access logs.
pub(super) struct AccessLogWriter {
    buffers: Arc<RecordBuffers>,
    errors: Arc<ErrorQueue>,
    logs: Vec<OpenAccessLog>,
    batch: MergedBatch,
    flush: Duration,
    overflow: LogOverflow,
    counts: Arc<RecordCounts>,
    reopens: Arc<AtomicU64>,
    reopened: u64,
    /// Records that found no room while nothing could be written.
    dropped: u64,
}

/// One access log.
pub(super) struct OpenAccessLog {
    pub(super) filter: RecordFilter,
    pub(super) lines: LineWriter,
    pub(super) sink: LogSink,
}

/// Which records are in a log, by numbers.
pub(super) struct RecordFilter {
    /// `None`: all.
    routes: Option<Vec<u16>>,
    statuses: Vec<RangeInclusive<u16>>,
    slower_than: Nanos,
}

/// What became of records and lines, for the status page.
#[derive(Debug, Default)]
pub(super) struct RecordCounts {
    /// Records that were formatted, or passed no filter.
    pub(super) formatted: AtomicU64,
    /// Records that found no room, and lines that found none.
    pub(super) dropped: AtomicU64,
}

impl RecordFilter {
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

impl AccessLogWriter {
    pub(super) fn new(
        (buffers, errors): (Arc<RecordBuffers>, Arc<ErrorQueue>),
        logs: Vec<OpenAccessLog>,
        flush: Duration,
        overflow: LogOverflow,
        counts: Arc<RecordCounts>,
        reopens: Arc<AtomicU64>,
    ) -> Self {
        Self {
            buffers,
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

    pub(super) fn sinks(&mut self) -> impl Iterator<Item = &mut LogSink> {
        self.logs.iter_mut().map(|log| &mut log.sink)
    }

    pub(super) fn run(mut self) {
        os::block_sigpipe();
        loop {
            let urgency = self.buffers.notifier.wait(self.flush, self.longest_sleep());
            self.run_once();
            if urgency == Urgency::Stop {
                return self.write_rest();
            }
        }
    }

    fn longest_sleep(&self) -> Duration {
        let pauses = self.logs.iter().filter_map(|log| log.sink.pause());
        let has_work = self.has_work().then_some(RETRY);
        pauses.chain(has_work).min().unwrap_or(Duration::MAX)
    }

    fn has_work(&self) -> bool {
        !self.batch.is_empty() || self.logs.iter().any(|log| log.sink.has_lines())
    }

    fn run_once(&mut self) {
        // A record that is added from now on notifies again. The store comes before the buffers are read: the other
        // order could leave a record behind that was added in between without a notification.
        self.buffers.is_notified.store(false, Ordering::Release);
        let reopens = self.reopens.load(Ordering::Acquire);
        if std::mem::replace(&mut self.reopened, reopens) != reopens {
            for log in &mut self.logs {
                for (level, text) in log.sink.reopen() {
                    self.errors.put(level, &text, OnFull::Exceed);
                }
            }
        }
        self.write(|_| true);
        // Every record that was delivered before this moment is in the buffers.
        self.batch.gather(&self.buffers, telemetry::now());
        while self.format() > 0 {
            self.write(|sink| sink.pause().is_none());
        }
        self.count_dropped();
        // The report waits until writing works again.
        if !self.logs.iter().any(|log| log.sink.has_lines()) {
            self.report_dropped();
        }
    }

    /// Formats records of the batch until one log has enough to write; gives the bytes of the records.
    fn format(&mut self) -> usize {
        let may_drop = self.overflow == LogOverflow::Drop;
        let must_wait = |sink: &LogSink| !may_drop && sink.is_full();
        if self.logs.iter().any(|log| must_wait(&log.sink)) {
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
                    log.sink
                        .add(Level::Info, delivered_ns, |out| lines.write(&record, out));
                    enough |= log.sink.wants_write() || must_wait(&log.sink);
                }
            }
            formatted += 1;
            !enough
        });
        self.counts
            .formatted
            .fetch_add(formatted, Ordering::Relaxed);
        self.account(used);
        used
    }

    fn write(&mut self, which: impl Fn(&LogSink) -> bool) {
        for log in self.logs.iter_mut().filter(|log| which(&log.sink)) {
            for (level, text) in log.sink.write() {
                self.errors.put(level, &text, OnFull::Exceed);
            }
        }
        self.account(0);
    }

    fn account(&self, records_bytes: usize) {
        let lines_bytes = self.logs.iter().map(|log| log.sink.bytes()).sum();
        self.buffers.budget.account(records_bytes, lines_bytes);
    }

    fn count_dropped(&mut self) {
        let of_logs: u64 = self.sinks().map(LogSink::take_dropped).sum();
        let dropped = self.buffers.budget.take_dropped() + of_logs;
        self.dropped += dropped;
        self.counts.dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    fn report_dropped(&mut self) {
        if self.dropped > 0 {
            let text = format!(
                "access log: {} lines were dropped: the log's memory (log_buffer) was full",
                std::mem::take(&mut self.dropped)
            );
            self.errors.put(Level::Warning, &text, OnFull::Exceed);
        }
    }

    /// Writes what is left at the end of the process; targets that take nothing now may do so in a moment.
    fn write_rest(mut self) {
        self.buffers.budget.close();
        let tries = match self.overflow {
            LogOverflow::Drop => LAST_TRIES,
            LogOverflow::Wait => super::LAST_TRIES_OF_WAITING,
        };
        let until = Instant::now() + RETRY * tries;
        while self.has_work()
            && Instant::now() < until
            && !self.buffers.is_hurried.load(Ordering::Relaxed)
        {
            std::thread::sleep(self.longest_sleep().min(RETRY));
            self.run_once();
        }
        self.report_left();
    }

    /// Reports what is lost because the process ends.
    fn report_left(&mut self) {
        for log in &self.logs {
            if let Some(text) = log.sink.left() {
                self.errors.put(Level::Error, &text, OnFull::Exceed);
            }
        }
        // With `log_overflow = "wait"` these records are still unformatted.
        self.batch.gather(&self.buffers, Stamp(u64::MAX));
        let mut records = 0;
        self.batch.each(|_| {
            records += 1;
            true
        });
        if records > 0 {
            let text = format!("access log: dropped {records} more records");
            self.errors.put(Level::Error, &text, OnFull::Exceed);
        }
        self.count_dropped();
        self.report_dropped();
    }
}

/// Wall clock minus our monotonic clock, in nanoseconds.
fn wall_offset() -> u64 {
    let Stamp(now) = telemetry::now();
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

    use super::super::budget::Budget;
    use super::super::format;
    use super::super::target::LogTag;
    use super::*;
    use config::typed::{LogForm, LogPrivacy, LogTarget, Rotation};

    const BYTES_MAX: usize = 600 << 10;

    /// The reading end of a pipe that is never emptied.
    fn stuck_pipe(path: &Path) -> File {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        File::from(rustix::fs::open(path, flags, Mode::empty()).unwrap())
    }

    fn writer(paths: &[&Path], overflow: LogOverflow) -> AccessLogWriter {
        let names = Names::default();
        let log = |path: &&Path| {
            let target = LogTarget::File(path.to_path_buf());
            let bound = (BYTES_MAX, overflow);
            OpenAccessLog {
                filter: RecordFilter::new(&LogFilter::default(), &names),
                lines: format::of_access(&LogForm::Common, &LogPrivacy::default(), &names).unwrap(),
                sink: LogSink::open(LogTag::Access, &target, &Rotation::default(), bound).unwrap(),
            }
        };
        let logs = paths.iter().map(log).collect();
        AccessLogWriter::new(
            (
                Arc::new(RecordBuffers::new(Budget::new(64 << 20, overflow))),
                Arc::new(ErrorQueue::new(overflow)),
            ),
            logs,
            Duration::ZERO,
            overflow,
            Arc::default(),
            Arc::default(),
        )
    }

    /// Writes records whose lines have about 1,000 bytes each.
    fn serve(writer: &AccessLogWriter, len: usize) {
        let records = writer.buffers.record_writer(OnFull::Wait);
        let target = [b'x'; 1_000];
        for _ in 0..len {
            let mut record = Record {
                method: b"GET",
                target: &target,
                ..Record::default()
            };
            record.phases.sent = telemetry::now();
            records.write(&record);
        }
    }

    fn lines_in(path: &Path) -> usize {
        std::fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn a_target_that_takes_nothing_does_not_disturb_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, file) = (dir.path().join("pipe"), dir.path().join("file"));
        let mut reader = stuck_pipe(&pipe);
        let mut writer = writer(&[&pipe, &file], LogOverflow::Drop);
        serve(&writer, 2_000);
        writer.run_once();
        assert_eq!(lines_in(&file), 2_000);
        let sink = &writer.logs[0].sink;
        assert!(sink.is_full() && !sink.wants_write());
        assert!(writer.longest_sleep() <= RETRY);
        assert_eq!(writer.errors.texts(), [""; 0]);

        let mut read_bytes = 0;
        let mut piece = [0; 64 << 10];
        while writer.has_work() {
            read_bytes += reader.read(&mut piece).unwrap_or(0);
            writer.run_once();
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
    fn pauses_grow_while_a_target_takes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let mut reader = stuck_pipe(&pipe);
        let mut writer = writer(&[&pipe], LogOverflow::Drop);
        serve(&writer, 2_000);
        writer.run_once();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            pauses.push(writer.longest_sleep().as_millis());
            writer.run_once();
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 200]);
        reader.read_exact(&mut [0; 64 << 10]).unwrap();
        writer.run_once();
        assert_eq!(writer.longest_sleep().as_millis(), 5);
    }

    #[test]
    fn reports_at_the_end_all_that_is_lost() {
        for overflow in [LogOverflow::Drop, LogOverflow::Wait] {
            let dir = tempfile::tempdir().unwrap();
            let pipe = dir.path().join("pipe");
            let mut reader = stuck_pipe(&pipe);
            let mut writer = writer(&[&pipe], overflow);
            serve(&writer, 2_000);
            writer.run_once();
            serve(&writer, 10);
            writer.report_left();
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
