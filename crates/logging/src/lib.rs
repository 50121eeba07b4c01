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
mod target;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::typed::{LogOverflow, LogTarget, Logs};
use telemetry::Names;

use access::{AccessLogWriter, OpenAccessLog, RecordCounts, RecordFilter};
use archive::{Archive, Archiver};
use budget::Budget;
use buffers::RecordBuffers;
use errors::{ErrorLogWriter, ErrorQueue};
use notify::Urgency;
use sink::LogSink;

use target::LogTag;

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
    /// Threads wait for room rather than drop lines. Only then `is_awaited` need be asked.
    pub keeps_all: bool,
    counts: Arc<RecordCounts>,
    /// Requests to reopen all files so far.
    reopens: Arc<AtomicU64>,
}

/// Why a log could not be opened.
#[derive(Debug)]
pub struct OpenFault {
    /// Its name in messages.
    pub name: String,
    /// Its target; `None` when the fault is not the target's.
    pub target: Option<LogTarget>,
    /// What the system said.
    pub cause: io::Error,
}

/// The threads that write.
pub struct LogThreads {
    access: JoinHandle<()>,
    errors: JoinHandle<()>,
    archiver: Option<Archiver>,
}

impl Log {
    /// Opens the targets and starts the threads. `names` belong to the numbers in records.
    pub fn open(logs: &Logs, names: &Names) -> Result<(Arc<Log>, LogThreads), OpenFault> {
        let log = Arc::new(Log {
            buffers: Arc::new(RecordBuffers::new(Budget::new(
                logs.buffer_bytes_max,
                logs.overflow,
            ))),
            errors: Arc::new(ErrorQueue::new(logs.overflow)),
            has_access: !logs.access.is_empty(),
            overflow: logs.overflow,
            keeps_all: logs.overflow == LogOverflow::Wait,
            counts: Arc::default(),
            reopens: Arc::default(),
        });
        let mut access = log.access_writer(logs, names)?;
        let mut errors = log.error_writer(logs)?;
        let archiver = log.archiver(logs).map_err(OpenFault::of_thread)?;
        if let Some(Archiver { notifier, .. }) = &archiver {
            access.sinks().for_each(|sink| sink.set_archiver(notifier));
            errors.sinks().for_each(|sink| sink.set_archiver(notifier));
        }
        let start = |name: &str| thread::Builder::new().name(name.to_owned());
        let threads = LogThreads {
            access: (start("mp-access").spawn(|| access.run())).map_err(OpenFault::of_thread)?,
            errors: (start("mp-errors").spawn(|| errors.run())).map_err(OpenFault::of_thread)?,
            archiver,
        };
        Ok((log, threads))
    }

    fn archiver(&self, logs: &Logs) -> io::Result<Option<Archiver>> {
        let access = logs.access.iter().map(|log| &log.target);
        let errors = logs.errors.iter().map(|log| &log.target);
        let file = |target: &LogTarget| match target {
            LogTarget::File(path) => Some(path.clone()),
            _ => None,
        };
        let files: Vec<PathBuf> = access.chain(errors).filter_map(file).collect();
        let archives = Archive::all(&files, &logs.rotation);
        Archiver::start(archives, Arc::clone(&self.errors))
    }

    fn access_writer(&self, logs: &Logs, names: &Names) -> Result<AccessLogWriter, OpenFault> {
        let bound = (
            logs.buffer_bytes_max / logs.access.len().max(1),
            logs.overflow,
        );
        let mut opened = Vec::new();
        for meant in &logs.access {
            opened.push(OpenAccessLog {
                filter: RecordFilter::new(&meant.filter, names),
                lines: format::of_access(&meant.form, &logs.privacy, names)
                    .map_err(|cause| OpenFault::new("access log", &meant.target, cause))?,
                sink: LogSink::open(LogTag::Access, &meant.target, &logs.rotation, bound)
                    .map_err(|cause| OpenFault::new("access log", &meant.target, cause))?,
            });
        }
        Ok(AccessLogWriter::new(
            (Arc::clone(&self.buffers), Arc::clone(&self.errors)),
            opened,
            Duration::from_nanos(logs.flush.0),
            logs.overflow,
            Arc::clone(&self.counts),
            Arc::clone(&self.reopens),
        ))
    }

    fn error_writer(&self, logs: &Logs) -> Result<ErrorLogWriter, OpenFault> {
        let mut sinks = Vec::new();
        // A share of the room each: what one of them does not take must not keep lines from the others.
        let bound = (errors::BYTES_MAX / logs.errors.len().max(1), logs.overflow);
        for meant in &logs.errors {
            let sink = LogSink::open(LogTag::Errors, &meant.target, &logs.rotation, bound)
                .map_err(|cause| OpenFault::new("error log", &meant.target, cause))?;
            sinks.push((meant.levels, sink));
        }
        let (queue, reopens) = (Arc::clone(&self.errors), Arc::clone(&self.reopens));
        Ok(ErrorLogWriter::new(queue, sinks, reopens))
    }

    /// A records for the calling thread; `None` when there is no access log.
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

    /// Whether a worker has to wait before its next exchange: lines must not be dropped, and there is no room.
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
        let tries = match self.overflow {
            LogOverflow::Drop => LAST_TRIES,
            LogOverflow::Wait => LAST_TRIES_OF_WAITING,
        };
        let mut hurried = false;
        let mut is_hurried = || {
            hurried |= is_hurried();
            if hurried {
                self.buffers.is_hurried.store(true, Ordering::Relaxed);
            }
            hurried
        };
        self.buffers.notifier.notify(Urgency::Stop);
        let time = RETRY * tries + END_GRACE;
        if let Some(archiver) = &threads.archiver {
            archiver.notifier.notify(Urgency::Stop);
        }
        if !join_within(&threads.access, time, &mut is_hurried) {
            let text = "access log: its disk did not take all lines in time; they are lost";
            self.errors.put(Level::Error, text, OnFull::Exceed);
        }
        self.errors.close();
        let time = RETRY * LAST_TRIES + END_GRACE;
        join_within(&threads.errors, time, &mut is_hurried);
        if let Some(archiver) = &threads.archiver {
            join_within(&archiver.thread, END_HURRIED, &mut is_hurried);
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
            formatted: self.counts.formatted.load(Ordering::Relaxed),
            dropped: self.counts.dropped.load(Ordering::Relaxed),
            waiting_bytes: self.buffers.budget.waiting_bytes(),
        }
    }
}

impl OpenFault {
    fn new(name: &str, target: &LogTarget, cause: io::Error) -> Self {
        let name = match target {
            LogTarget::File(path) => format!("{name} `{}`", path.display()),
            _ => name.to_owned(),
        };
        Self {
            name,
            target: Some(target.clone()),
            cause,
        }
    }

    fn of_thread(cause: io::Error) -> Self {
        Self {
            name: "log's thread".to_owned(),
            target: None,
            cause,
        }
    }
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
