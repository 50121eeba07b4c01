//! The access logs' thread: takes records out of the buffers, formats a line for each log whose filter they pass, and
//! writes the lines.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use telemetry::counters::LogStats;
use telemetry::{Names, Nanos, Record, Stamp, Writer as LineWriter};

use super::budget::OnFull;
use super::buffers::{MergedBatch, RecordBuffers};
use super::errors::ErrorQueue;
use super::notify::Urgency;
use super::sink::{LogNotice, LogSink};
use super::sinks::{LogSinks, write_rest};
use super::{last_tries, wall_ns};
use config::typed::{Level, LogFilter, LogOverflow};

/// The thread that writes access logs.
pub(super) struct AccessLogWriter {
    pub(super) buffers: Arc<RecordBuffers>,
    pub(super) errors: Arc<ErrorQueue>,
    pub(super) logs: LogSinks<RecordFormat>,
    pub(super) batch: MergedBatch,
    /// Time that a line may wait for others.
    pub(super) flush: Duration,
    pub(super) overflow: LogOverflow,
    pub(super) counters: &'static LogStats,
    /// Records for which no memory was free while nothing could be written.
    pub(super) dropped: u64,
}

/// Which records are in a log, and the form of their lines.
pub(super) struct RecordFormat {
    pub(super) filter: RecordFilter,
    pub(super) lines: LineWriter,
}

/// Which records are in a log, by numbers.
pub(super) struct RecordFilter {
    /// `None`: all.
    routes: Option<Vec<u16>>,
    statuses: Vec<RangeInclusive<u16>>,
    slower_than: Nanos,
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
    pub(super) fn run(mut self) {
        os::block_sigpipe();
        loop {
            let longest = self.pause().unwrap_or(Duration::MAX);
            let urgency = self.buffers.notifier.wait(self.flush, longest);
            self.run_once();
            if urgency == Urgency::Stop {
                return self.write_rest();
            }
        }
    }

    /// Time until the next try; `None`: all that has been delivered is written.
    fn pause(&self) -> Option<Duration> {
        let has_work = !self.batch.is_empty() || self.logs.has_lines();
        self.logs.pause(has_work)
    }

    fn run_once(&mut self) {
        // A record that is added from now on notifies again. The store comes before the buffers are read: the other
        // order could leave a record behind that was added in between without a notification.
        self.buffers.is_notified.store(false, Ordering::Release);
        let notices = self.logs.reopen_if_asked();
        self.report(notices);
        // What waits goes first: its memory is needed for what is gathered next.
        self.write(|_| true);
        // Every record that was delivered before this moment is in the buffers.
        self.batch.gather(&self.buffers, telemetry::now());
        while self.format() > 0 {
            self.write(|sink| sink.pause().is_none());
        }
        self.count_dropped();
        // The report waits until writing works again.
        if !self.logs.has_lines() {
            self.report_dropped();
        }
    }

    /// Formats records of the batch until one log has enough to write; gives the bytes of the records.
    fn format(&mut self) -> usize {
        let may_drop = self.overflow == LogOverflow::Drop;
        let must_wait = |sink: &LogSink| !may_drop && sink.is_full();
        if self.logs.iter().any(must_wait) {
            return 0;
        }
        // What the wall clock is ahead of the monotonic one by.
        let Stamp(now_ns) = telemetry::now();
        let offset = wall_ns().saturating_sub(now_ns);
        let logs = &mut self.logs.list;
        let mut formatted = 0;
        let used = self.batch.each(|mut record| {
            record.wall_arrived_ns = record.phases.arrived.0 + offset;
            let delivered_ns = record.phases.sent.0 + offset;
            let mut enough = false;
            for (format, sink) in logs.iter_mut() {
                if format.filter.passes(&record) {
                    let lines = &mut format.lines;
                    sink.add(Level::Info, delivered_ns, |out| lines.write(&record, out));
                    enough |= sink.wants_write() || must_wait(sink);
                }
            }
            formatted += 1;
            !enough
        });
        self.counters.formatted.add_many(formatted);
        // The records are lines by now, which count in their sinks.
        self.account(used);
        used
    }

    fn write(&mut self, which: impl Fn(&LogSink) -> bool) {
        let notices = self.logs.write(which);
        self.report(notices);
        self.account(0);
    }

    fn report(&self, notices: Vec<LogNotice>) {
        for (level, text) in notices {
            self.errors.put(level, &text, OnFull::Exceed);
        }
    }

    fn account(&self, records_bytes: usize) {
        let budget = &self.buffers.budget;
        budget.account(records_bytes, self.logs.bytes());
    }

    fn count_dropped(&mut self) {
        let dropped = self.buffers.budget.take_dropped() + self.logs.take_dropped();
        self.dropped += dropped;
        self.logs.count(self.counters, dropped);
        let waiting_bytes = self.buffers.budget.waiting_bytes();
        self.counters.waiting_bytes.set(waiting_bytes as u64);
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
        // Threads that wait for free memory would otherwise hold up the end of the process.
        self.buffers.budget.close();
        let tries = last_tries(self.overflow);
        let pause = |writer: &Self| {
            let is_hurried = writer.buffers.is_hurried.load(Ordering::Relaxed);
            writer.pause().filter(|_| !is_hurried)
        };
        write_rest(&mut self, tries, pause, Self::run_once);
        self.report_left();
    }

    /// Reports what is lost because the process ends.
    fn report_left(&mut self) {
        let left = self.logs.left().into_iter();
        self.report(left.map(|text| (Level::Error, text)).collect());
        // With `log_overflow = "wait"` these records are still unformatted.
        // No thread waits for free memory any more, so what is in the buffers now is all that there will be.
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use super::super::RETRY;
    use super::super::budget::Budget;
    use super::super::format;
    use super::super::sinks::WriteClock;
    use super::*;
    use crate::tests::stuck_pipe;
    use config::typed::{LogForm, LogPrivacy, LogTarget, Rotation};

    const BYTES_MAX: usize = 600 << 10;

    fn writer(paths: &[&Path], overflow: LogOverflow) -> AccessLogWriter {
        let names = Names::default();
        let log = |path: &&Path| {
            let target = LogTarget::File(path.to_path_buf());
            let bound = (BYTES_MAX, overflow);
            let form = RecordFormat {
                filter: RecordFilter::new(&LogFilter::default(), &names),
                lines: format::of_access(&LogForm::Common, &LogPrivacy::default(), &names).unwrap(),
            };
            let rotation = Rotation::default();
            let sink = LogSink::open("access", &target, &rotation, bound, &Arc::default());
            (form, sink.unwrap())
        };
        let counters = Box::leak(Box::default());
        let logs = paths.iter().map(log).collect();
        AccessLogWriter {
            buffers: Arc::new(RecordBuffers::new(Budget::new(64 << 20, overflow))),
            errors: Arc::new(ErrorQueue::new(overflow)),
            logs: LogSinks::new(logs, WriteClock::new(counters), &Arc::default()),
            batch: MergedBatch::default(),
            flush: Duration::ZERO,
            overflow,
            counters,
            dropped: 0,
        }
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
        let (_, sink) = &writer.logs.list[0];
        assert!(sink.is_full() && !sink.wants_write());
        assert!(writer.pause() <= Some(RETRY));
        assert_eq!(writer.errors.texts(), [""; 0]);

        let mut read_bytes = 0;
        let mut piece = [0; 64 << 10];
        while writer.pause().is_some() {
            read_bytes += reader.read(&mut piece).unwrap_or(0);
            writer.run_once();
        }
        read_bytes += reader.read(&mut piece).unwrap();
        let dropped = writer.counters.dropped.count();
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
            pauses.push(writer.pause().unwrap().as_millis());
            writer.run_once();
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 200]);
        reader.read_exact(&mut [0; 64 << 10]).unwrap();
        writer.run_once();
        assert_eq!(writer.pause().unwrap().as_millis(), 5);
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
