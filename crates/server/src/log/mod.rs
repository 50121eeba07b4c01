//! The log: finished records and error lines on their way to two threads, one for the access logs and one
//! for the error logs.
//!
//! Each producing thread has a `Pen` of its own; it appends to a page in memory (`buffers`) within the bound of
//! a `Budget`. The access thread takes the pages, formats and writes (`access`), the error thread takes lines
//! (`errors`); what a target does not take waits in its `out`. So no log slows a request, but by the choice
//! to wait rather than to drop.

mod access;
mod buffers;
mod errors;
mod flood;
mod lines;
mod out;
mod rotation;
mod shelf;
mod target;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use measure::Names;

use access::{AccessLog, Counts, Filter};
use buffers::{Budget, Pages, Urgency};
use errors::Inbox;
use out::Out;
use shelf::{Keeper, Shelf, Tools};

pub use crate::config::meant::Level;
use crate::config::meant::{LogOverflow, LogTarget, Logs};
use target::Voice;

pub(crate) use buffers::{Patience, Pen};

/// Pause between tries while a target takes nothing, and how often it is tried at the very end.
const RETRY: Duration = Duration::from_millis(200);
const LAST_TRIES: u32 = 10;
/// The same where no line may be lost.
const LAST_TRIES_OF_WAITING: u32 = 150;
/// What the threads get beyond their last tries.
const END_GRACE: Duration = Duration::from_secs(3);
/// What they get in all when the end is hurried.
const END_HURRIED: Duration = Duration::from_millis(500);

/// What all producers and the threads share.
pub struct Log {
    pages: Arc<Pages>,
    errors: Arc<Inbox>,
    has_access: bool,
    overflow: LogOverflow,
    /// Threads wait for room rather than drop lines: only then anybody has to ask `is_awaited`.
    pub(crate) keeps_all: bool,
    counts: Arc<Counts>,
    /// How often files were to be opened anew.
    reopens: Arc<AtomicU64>,
}

/// Why a log could not be opened.
#[derive(Debug)]
pub(crate) struct OpenFault {
    /// Which one.
    pub(crate) name: String,
    /// Where it was to go; `None`: it was no target's fault.
    pub(crate) target: Option<LogTarget>,
    pub(crate) cause: io::Error,
}

/// The threads that write.
pub(crate) struct Threads {
    access: JoinHandle<()>,
    errors: JoinHandle<()>,
    keeper: Option<Arc<Keeper>>,
}

impl Log {
    /// Opens the targets and starts the threads. `names` are behind the numbers of records.
    pub(crate) fn open(logs: &Logs, names: &Names) -> Result<(Arc<Log>, Threads), OpenFault> {
        let log = Arc::new(Log {
            pages: Arc::new(Pages::new(Budget::new(
                logs.buffer_bytes_max,
                logs.overflow,
            ))),
            errors: Arc::new(Inbox::new(logs.overflow)),
            has_access: !logs.access.is_empty(),
            overflow: logs.overflow,
            keeps_all: logs.overflow == LogOverflow::Wait,
            counts: Arc::default(),
            reopens: Arc::default(),
        });
        let mut access = log.access_writer(logs, names)?;
        let mut errors = log.error_writer(logs)?;
        let keeper = log.keeper(logs).map_err(OpenFault::of_thread)?;
        if let Some(keeper) = &keeper {
            access.outs().for_each(|out| out.set_keeper(keeper));
            errors.outs().for_each(|out| out.set_keeper(keeper));
        }
        let start = |name: &str| thread::Builder::new().name(name.to_owned());
        let threads = Threads {
            access: (start("mp-log").spawn(|| access.run())).map_err(OpenFault::of_thread)?,
            errors: (start("mp-errors").spawn(|| errors.run())).map_err(OpenFault::of_thread)?,
            keeper,
        };
        Ok((log, threads))
    }

    fn keeper(&self, logs: &Logs) -> io::Result<Option<Arc<Keeper>>> {
        let access = logs.access.iter().map(|log| &log.target);
        let errors = logs.errors.iter().map(|log| &log.target);
        let file = |target: &LogTarget| match target {
            LogTarget::File(path) => Some(path.clone()),
            _ => None,
        };
        let files: Vec<PathBuf> = access.chain(errors).filter_map(file).collect();
        let inbox = Arc::clone(&self.errors);
        let tools = Tools {
            wall_ns: Box::new(wall_ns),
            tell: Box::new(move |level, text| inbox.put(level, text, Patience::None)),
        };
        let keeper = Keeper::start(Shelf::all(&files, &logs.rotation), tools)?;
        Ok(keeper.map(Arc::new))
    }

    fn access_writer(&self, logs: &Logs, names: &Names) -> Result<access::Writer, OpenFault> {
        let bound = (
            logs.buffer_bytes_max / logs.access.len().max(1),
            logs.overflow,
        );
        let mut opened = Vec::new();
        for meant in &logs.access {
            opened.push(AccessLog {
                filter: Filter::new(&meant.filter, names),
                lines: lines::of_access(&meant.form, &logs.privacy, names)
                    .map_err(|cause| OpenFault::new("access log", &meant.target, cause))?,
                out: Out::open(Voice::Access, &meant.target, &logs.rotation, bound)
                    .map_err(|cause| OpenFault::new("access log", &meant.target, cause))?,
            });
        }
        Ok(access::Writer::new(
            (Arc::clone(&self.pages), Arc::clone(&self.errors)),
            opened,
            Duration::from_nanos(logs.flush.0),
            logs.overflow,
            Arc::clone(&self.counts),
            Arc::clone(&self.reopens),
        ))
    }

    fn error_writer(&self, logs: &Logs) -> Result<errors::Writer, OpenFault> {
        let mut outs = Vec::new();
        // A share of the room each: what one of them does not take must not keep lines from the others.
        let bound = (errors::BYTES_MAX / logs.errors.len().max(1), logs.overflow);
        for meant in &logs.errors {
            let out = Out::open(Voice::Errors, &meant.target, &logs.rotation, bound)
                .map_err(|cause| OpenFault::new("error log", &meant.target, cause))?;
            outs.push((meant.levels, out));
        }
        let (inbox, reopens) = (Arc::clone(&self.errors), Arc::clone(&self.reopens));
        Ok(errors::Writer::new(inbox, outs, reopens))
    }

    /// A pen for the calling thread; `None` when there is no access log.
    pub(crate) fn pen(&self, patience: Patience) -> Option<Pen> {
        self.has_access.then(|| self.pages.pen(patience))
    }

    /// Appends a line to the error logs. Further lines of `text` are indented, control characters made
    /// visible, so that nothing from outside can look like a line of its own.
    pub fn error(&self, level: Level, text: &str) {
        self.errors.put(level, text, Patience::Now);
    }

    /// As `error`, for a thread that waits later: see `is_awaited`.
    pub(crate) fn error_from_pool(&self, level: Level, text: &str) {
        self.errors.put(level, text, Patience::Later);
    }

    /// Whether a pool thread is to wait before its next exchange: lines are not to be dropped, and there is
    /// no room.
    pub(crate) fn is_awaited(&self) -> bool {
        self.pages.budget.is_awaited() || self.errors.budget.is_awaited()
    }

    /// Waits as long as that is so.
    pub(crate) fn wait_if_awaited(&self) {
        self.pages.budget.wait_if_awaited();
        self.errors.budget.wait_if_awaited();
    }

    /// Has all files opened anew: they may have been renamed.
    pub(crate) fn reopen(&self) {
        self.reopens.fetch_add(1, Ordering::Release);
        self.pages.notifier.notify(Urgency::Urgent);
        self.errors.notifier.notify(Urgency::Urgent);
    }

    /// Has everything written, the error log last, and the threads end. A thread that is stuck in a write is
    /// left behind, when its time is over; that is half a second at most once `is_hurried` has said so.
    pub(crate) fn end(&self, threads: &Threads, mut is_hurried: impl FnMut() -> bool) {
        let tries = match self.overflow {
            LogOverflow::Drop => LAST_TRIES,
            LogOverflow::Wait => LAST_TRIES_OF_WAITING,
        };
        let mut hurried = false;
        let mut is_hurried = || {
            hurried |= is_hurried();
            if hurried {
                self.pages.is_hurried.store(true, Ordering::Relaxed);
            }
            hurried
        };
        self.pages.notifier.notify(Urgency::Stop);
        let time = RETRY * tries + END_GRACE;
        if let Some(keeper) = &threads.keeper {
            keeper.stop();
        }
        if !join_within(&threads.access, time, &mut is_hurried) {
            let text = "access log: lines that its disk did not take in time are lost";
            self.errors.put(Level::Error, text, Patience::None);
        }
        self.errors.close();
        let time = RETRY * LAST_TRIES + END_GRACE;
        join_within(&threads.errors, time, &mut is_hurried);
        if let Some(keeper) = threads.keeper.as_ref().filter(|keeper| !keeper.is_over()) {
            // Its drop would wait for its thread, whose disk may be stuck.
            std::mem::forget(Arc::clone(keeper));
        }
    }

    /// What became of records, as a JSON object.
    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"formatted\":{},\"dropped\":{},\"waiting_bytes\":{}}}",
            self.counts.formatted.load(Ordering::Relaxed),
            self.counts.dropped.load(Ordering::Relaxed),
            self.pages.budget.waiting_bytes()
        )
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
