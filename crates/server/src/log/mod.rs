//! The log: finished records and error lines on their way to one writer thread.
//!
//! Each producing thread has a `Pen` of its own; it appends to a page in memory and never waits. The
//! writer swaps full pages for empty ones, formats and writes (`writer`). What does not fit is counted
//! and reported, so that no log can slow a request.

#[allow(dead_code, unused_imports)]
mod rotation;
#[allow(dead_code, unused_imports)]
mod shelf;
#[allow(dead_code, unused_imports)]
mod target;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use measure::Record;

pub use crate::config::meant::Level;
use crate::config::meant::Logs;

/// Bytes in a page that make the writer come before its time.
const PAGE_BYTES_URGENT: usize = 256 << 10;
/// Bytes of error lines that may wait.
const ERROR_BYTES_MAX: usize = 4 << 20;

/// What all producers and the writer share.
pub struct Log {
    pages: Mutex<Vec<Arc<Page>>>,
    errors: Mutex<Vec<u8>>,
    access: bool,
    /// Bytes that may wait in all pages together.
    bytes_max: usize,
    bytes_waiting: AtomicUsize,
    lost: AtomicU64,
    errors_lost: AtomicU64,
    /// The writer has been told that there is something.
    told: AtomicBool,
    bell: Mutex<Bell>,
    rung: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bell {
    Quiet,
    /// Something waits: come when it is as old as the flush interval.
    Waiting,
    /// A lot waits: come now.
    Urgent,
    /// Write everything and end.
    Stop,
}

#[derive(Default)]
struct Page {
    records: Mutex<Vec<u8>>,
}

/// One producing thread's end of the access log.
pub(crate) struct Pen {
    page: Arc<Page>,
    log: Arc<Log>,
}

impl Log {
    /// Opens the target and starts the writer thread. `route_names` are indexed by a record's route.
    pub(crate) fn open(
        logs: &Logs,
        route_names: Vec<String>,
    ) -> std::io::Result<(Arc<Log>, JoinHandle<()>)> {
        let log = Arc::new(Log {
            pages: Mutex::default(),
            errors: Mutex::default(),
            access: !logs.access.is_empty(),
            bytes_max: logs.buffer_bytes_max,
            bytes_waiting: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            errors_lost: AtomicU64::new(0),
            told: AtomicBool::new(false),
            bell: Mutex::new(Bell::Quiet),
            rung: Condvar::new(),
        });
        let writer = writer::Writer::open(Arc::clone(&log), logs, route_names)?;
        let thread = std::thread::Builder::new()
            .name("mp-log".to_owned())
            .spawn(|| writer.run())?;
        Ok((log, thread))
    }

    /// A pen for the calling thread; `None` when there is no access log.
    pub(crate) fn pen(self: &Arc<Self>) -> Option<Pen> {
        self.access.then(|| {
            let page = Arc::new(Page::default());
            lock(&self.pages).push(Arc::clone(&page));
            Pen {
                page,
                log: Arc::clone(self),
            }
        })
    }

    /// Appends a line to the error log. Further lines of `text` are indented, control characters made
    /// visible, so that nothing from outside can look like a line of its own.
    pub fn error(&self, level: Level, text: &str) {
        {
            let mut errors = lock(&self.errors);
            if errors.len() + text.len() > ERROR_BYTES_MAX {
                self.errors_lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            write_error_line(&mut errors, level, text);
        }
        self.ring(Bell::Urgent);
    }

    /// Makes the writer write everything and end.
    pub(crate) fn stop(&self) {
        self.ring(Bell::Stop);
    }

    fn ring(&self, bell: Bell) {
        let mut current = lock(&self.bell);
        if *current < bell {
            *current = bell;
            self.rung.notify_one();
        }
    }
}

impl Pen {
    /// Appends a record; counts it as lost when the log's bound is reached.
    pub(crate) fn write(&self, record: &Record<'_>) {
        let log = &self.log;
        if log.bytes_waiting.load(Ordering::Relaxed) >= log.bytes_max {
            log.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (added, waiting) = {
            let mut records = lock(&self.page.records);
            let before = records.len();
            record.encode(&mut records);
            let added = records.len() - before;
            // Within the lock, so that the writer cannot count it off first.
            log.bytes_waiting.fetch_add(added, Ordering::Relaxed);
            (added, records.len())
        };
        if waiting >= PAGE_BYTES_URGENT && waiting - added < PAGE_BYTES_URGENT {
            log.ring(Bell::Urgent);
        } else if !log.told.load(Ordering::Relaxed) && !log.told.swap(true, Ordering::AcqRel) {
            log.ring(Bell::Waiting);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_error_line(out: &mut Vec<u8>, level: Level, text: &str) {
    let name = match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info => "info",
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    out.extend_from_slice(&wire::date::format(now.as_secs()));
    out.push(b' ');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    for (index, line) in text.trim_end().split('\n').enumerate() {
        if index > 0 {
            out.extend_from_slice(b"    ");
        }
        for c in line.chars() {
            match c {
                '\t' => out.push(b'\t'),
                c if c.is_control() => {
                    out.extend_from_slice(c.escape_default().to_string().as_bytes());
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indents_further_lines_and_shows_control_characters() {
        let mut out = Vec::new();
        write_error_line(&mut out, Level::Error, "one\ntwo\x1b[31m\r\n");
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains(" error: one\n    two\\u{1b}[31m\\r\n")
                || text.ends_with("    two\\u{1b}[31m\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 2);
    }
}
