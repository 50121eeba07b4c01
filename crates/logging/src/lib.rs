//! The log: records and error lines on their way from all threads to two, one for the access logs and one for the
//! error logs.
//!
//! Each producing thread has a `RecordWriter`, which appends to a buffer in memory (`buffers`) within the bound of a
//! `Budget`. The access thread empties the buffers, formats and writes (`access`); the error thread writes the lines
//! of a queue (`errors`). Lines that a target does not take wait in its `sink`. No log slows a request, unless
//! `log_overflow = "wait"` asks for it.

#![forbid(unsafe_code)]

mod access;
mod archive;
mod budget;
mod buffers;
mod dedup;
mod errors;
mod format;
mod notify;
mod rotation;
mod sink;
mod sinks;
mod target;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::failure::StartFault;
use config::typed::{LogOverflow, LogTarget, Logs};
use telemetry::counters::LogStats;
use telemetry::{Names, Stamp};

use access::{AccessLogWriter, RecordFilter, RecordFormat};
use archive::Archive;
use budget::Budget;
use buffers::{MergedBatch, RecordBuffers};
use dedup::Deduplicator;
use errors::{ErrorFilter, ErrorLogWriter, ErrorQueue};
use notify::{Notifier, Urgency};
use sink::LogSink;
use sinks::{LogSinks, WriteClock};

pub use budget::OnFull;
pub use buffers::RecordWriter;
pub use config::typed::Level;

/// Pause between tries while a target takes nothing, and the number of tries at the end of the process.
const RETRY: Duration = Duration::from_millis(200);
const LAST_TRIES: u32 = 10;
/// The number of tries where no line may be lost.
const LAST_TRIES_OF_WAITING: u32 = 150;
/// Time that the threads get beyond their last tries.
const END_GRACE: Duration = Duration::from_secs(3);
/// Time that they get in all when the end is hurried.
const END_HURRIED: Duration = Duration::from_millis(500);

/// What all producers and the threads share.
pub struct Log {
    buffers: Arc<RecordBuffers>,
    errors: Arc<ErrorQueue>,
    has_access: bool,
    overflow: LogOverflow,
    /// Threads wait for free memory rather than drop lines. Only then `is_awaited` need be asked.
    pub keeps_all: bool,
    counters: LogCounters,
    /// Of the access logs, and of the error logs.
    clocks: [WriteClock; 2],
    /// Requests to reopen all files so far.
    reopens: Arc<AtomicU64>,
}

/// Where the threads count.
#[derive(Clone, Copy)]
pub struct LogCounters {
    /// Of the access logs.
    pub access: &'static LogStats,
    /// Of the error logs.
    pub errors: &'static LogStats,
}

/// The threads that write.
pub struct LogThreads {
    access: JoinHandle<()>,
    errors: JoinHandle<()>,
    archiver: Option<JoinHandle<()>>,
    /// What wakes the archiver.
    notifier: Arc<Notifier>,
}

impl Log {
    /// Opens the targets and starts the threads, which count in `counters`. `names` belong to the numbers in records.
    ///
    /// # Errors
    /// The first target that cannot be opened, and a thread that cannot be started.
    pub fn open(
        logs: &Logs,
        names: &Names,
        counters: LogCounters,
    ) -> Result<(Arc<Log>, LogThreads), StartFault> {
        let log = Arc::new(Log {
            buffers: Arc::new(RecordBuffers::new(Budget::new(
                logs.buffer_bytes_max,
                logs.overflow,
            ))),
            errors: Arc::new(ErrorQueue::new(logs.overflow)),
            has_access: !logs.access.is_empty(),
            overflow: logs.overflow,
            keeps_all: logs.overflow == LogOverflow::Wait,
            counters,
            clocks: [counters.access, counters.errors].map(WriteClock::new),
            reopens: Arc::default(),
        });
        let notifier = Arc::default();
        let access = log.access_writer(logs, names, &notifier)?;
        let errors = log.error_writer(logs, &notifier)?;
        // The targets are open by now: an archive leaves the files alone that they are.
        let targets = (logs.access.iter().map(|log| &log.target))
            .chain(logs.errors.iter().map(|log| &log.target));
        let archives = Archive::all(targets, &logs.rotation);
        let start = |name: &str| thread::Builder::new().name(name.to_owned());
        let threads = LogThreads {
            access: (start("mp-access").spawn(|| access.run())).map_err(thread_fault)?,
            errors: (start("mp-errors").spawn(|| errors.run())).map_err(thread_fault)?,
            archiver: archive::start(archives, &log.errors, &notifier).map_err(thread_fault)?,
            notifier,
        };
        Ok((log, threads))
    }

    fn access_writer(
        &self,
        logs: &Logs,
        names: &Names,
        archiver: &Arc<Notifier>,
    ) -> Result<AccessLogWriter, StartFault> {
        let bytes_max = logs.buffer_bytes_max / logs.access.len().max(1);
        let mut opened = Vec::new();
        for meant in &logs.access {
            let fault = |cause| target_fault("access log", &meant.target, &cause);
            let format = RecordFormat {
                filter: RecordFilter::new(&meant.filter, names),
                lines: format::of_access(&meant.form, &logs.privacy, names).map_err(fault)?,
            };
            let bound = (bytes_max, logs.overflow);
            let sink = LogSink::open("access", &meant.target, &logs.rotation, bound, archiver);
            opened.push((format, sink.map_err(fault)?));
        }
        // Lines that are read as they are written do not wait for others.
        let flush = match opened.iter().any(|(_, sink)| sink.is_terminal()) {
            true => Duration::ZERO,
            false => Duration::from_nanos(logs.flush.0),
        };
        Ok(AccessLogWriter {
            buffers: Arc::clone(&self.buffers),
            errors: Arc::clone(&self.errors),
            logs: LogSinks::new(opened, self.clocks[0].clone(), &self.reopens),
            batch: MergedBatch::default(),
            flush,
            overflow: logs.overflow,
            counters: self.counters.access,
            dropped: 0,
        })
    }

    fn error_writer(
        &self,
        logs: &Logs,
        archiver: &Arc<Notifier>,
    ) -> Result<ErrorLogWriter, StartFault> {
        // A share of the memory each: what one of them does not take must not keep lines from the others.
        let bound = (errors::BYTES_MAX / logs.errors.len().max(1), logs.overflow);
        let mut opened = Vec::new();
        for meant in &logs.errors {
            let sink = LogSink::open("error", &meant.target, &logs.rotation, bound, archiver)
                .map_err(|cause| target_fault("error log", &meant.target, &cause))?;
            opened.push((ErrorFilter::new(meant), sink));
        }
        Ok(ErrorLogWriter {
            queue: Arc::clone(&self.errors),
            logs: LogSinks::new(opened, self.clocks[1].clone(), &self.reopens),
            dedup: Deduplicator::default(),
            counters: self.counters.errors,
            dropped: 0,
        })
    }

    /// A record writer for the calling thread; `None` when there is no access log.
    pub fn record_writer(&self, on_full: OnFull) -> Option<RecordWriter> {
        self.has_access.then(|| self.buffers.record_writer(on_full))
    }

    /// Appends a line to the error logs. Further lines of `text` are indented, control characters made
    /// visible, so that nothing from outside can look like a line of its own.
    pub fn error(&self, level: Level, text: &str) {
        self.errors.put(level, text, OnFull::Wait);
    }

    /// As `error`, for a thread that waits later: see `is_awaited`.
    pub fn error_from_pool(&self, level: Level, text: &str) {
        self.errors.put(level, text, OnFull::WaitLater);
    }

    /// Whether a worker has to wait before its next exchange: lines must not be dropped, and the memory is used up.
    pub fn is_awaited(&self) -> bool {
        self.buffers.budget.is_awaited() || self.errors.budget.is_awaited()
    }

    /// Waits as long as `is_awaited`.
    pub fn wait_if_awaited(&self) {
        self.buffers.budget.wait_if_awaited();
        self.errors.budget.wait_if_awaited();
    }

    /// Asks both threads to reopen all files, which may have been renamed.
    pub fn reopen(&self) {
        self.reopens.fetch_add(1, Ordering::Release);
        self.buffers.notifier.notify(Urgency::Urgent);
        self.errors.notifier.notify(Urgency::Urgent);
    }

    /// Ends the threads once they have written everything, the error log last. A thread that is stuck in a write is
    /// left behind after its time, which is half a second once `is_hurried` says so.
    pub fn end(&self, threads: &LogThreads, mut is_hurried: impl FnMut() -> bool) {
        let mut hurried = false;
        let mut is_hurried = || {
            hurried |= is_hurried();
            if hurried {
                self.buffers.is_hurried.store(true, Ordering::Relaxed);
            }
            hurried
        };
        // The access logs first: what becomes of them at the end is written to the error log.
        self.buffers.notifier.notify(Urgency::Stop);
        threads.notifier.notify(Urgency::Stop);
        let time = RETRY * last_tries(self.overflow) + END_GRACE;
        if !join_within(&threads.access, time, &mut is_hurried) {
            let text = "access log: its disk did not take all lines in time; they are lost";
            self.errors.put(Level::Error, text, OnFull::Exceed);
        }
        // Only now: what the access logs lost was put there just before.
        self.errors.close();
        let time = RETRY * LAST_TRIES + END_GRACE;
        join_within(&threads.errors, time, &mut is_hurried);
        if let Some(archiver) = &threads.archiver {
            join_within(archiver, END_HURRIED, &mut is_hurried);
        }
    }

    /// Tells the counters how much waits and how long, also while a thread is stuck in a write.
    pub fn publish_gauges(&self, now: Stamp) {
        self.clocks.iter().for_each(|clock| clock.publish(now));
        let budgets = [
            (self.counters.access, &self.buffers.budget),
            (self.counters.errors, &self.errors.budget),
        ];
        for (counters, budget) in budgets {
            counters.waiting_bytes.set(budget.waiting_bytes() as u64);
        }
    }

    /// What became of records, for the status page.
    pub fn figures(&self) -> impl serde::Serialize {
        #[derive(serde::Serialize)]
        struct LogFigures {
            formatted: u64,
            dropped: u64,
            waiting_bytes: usize,
        }
        LogFigures {
            formatted: self.counters.access.formatted.count(),
            dropped: self.counters.access.dropped.count(),
            waiting_bytes: self.buffers.budget.waiting_bytes(),
        }
    }
}

/// The number of tries at the end of the process.
fn last_tries(overflow: LogOverflow) -> u32 {
    match overflow {
        LogOverflow::Drop => LAST_TRIES,
        LogOverflow::Wait => LAST_TRIES_OF_WAITING,
    }
}

fn target_fault(log: &str, target: &LogTarget, cause: &io::Error) -> StartFault {
    let (name, hint) = match target {
        LogTarget::File(path) => (
            format!("{log} `{}`", path.display()),
            Some("it must be a file that this user may append to, in a folder that exists"),
        ),
        LogTarget::Syslog(_) => (log.to_owned(), Some("is a syslog daemon running here?")),
        LogTarget::Stdout | LogTarget::Stderr => (log.to_owned(), None),
    };
    let fault = StartFault::of_io(format!("cannot open the {name}"), cause);
    match hint {
        Some(hint) => fault.with_hint(hint),
        None => fault,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn thread_fault(cause: io::Error) -> StartFault {
    StartFault::of_io("cannot open the log's thread", &cause)
}

/// Wall time in nanoseconds since 1970 UTC.
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

fn join_within(
    thread: &JoinHandle<()>,
    time: Duration,
    is_hurried: &mut impl FnMut() -> bool,
) -> bool {
    let mut deadline = Instant::now() + time;
    while !thread.is_finished() && Instant::now() < deadline {
        if is_hurried() {
            deadline = deadline.min(Instant::now() + END_HURRIED);
        }
        thread::sleep(Duration::from_millis(5));
    }
    thread.is_finished()
}
