//! The writer thread: takes pages, formats records, writes in large batches.
//!
//! What a target does not take (a full disk, a short write) is kept and tried again; while more than a
//! bound is kept, pages are left to fill, and what does not fit there is counted by the pens.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use measure::{Form, Names, Record, Stamp, Style, Template, Writer as Lines};

use super::{Bell, Level, Log, Page, lock};
use crate::config::meant::{AccessLog, LogForm, LogPrivacy, LogTarget, Logs};
use crate::fault::plain;

/// Formatted bytes that are written in one call.
const BATCH_BYTES: usize = 256 << 10;
/// Formatted bytes that are kept while the target takes none.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Pause between tries while the target takes none, and how often it is tried at the very end.
const RETRY: Duration = Duration::from_millis(200);
const LAST_TRIES: u32 = 5;

pub(super) struct Writer {
    log: Arc<Log>,
    access: Option<Access>,
    flush: Duration,
    errors: Vec<u8>,
}

struct Access {
    target: File,
    lines: Lines,
    pages: Vec<Read>,
    out: Vec<u8>,
    failing: bool,
}

/// A page and what has been taken from it.
struct Read {
    page: Arc<Page>,
    pending: Vec<u8>,
}

impl Read {
    /// Takes what is in the page; gives the number of bytes.
    fn take(&mut self) -> usize {
        let mut records = lock(&self.page.records);
        let bytes = records.len();
        if self.pending.is_empty() {
            std::mem::swap(&mut *records, &mut self.pending);
        } else {
            self.pending.append(&mut records);
        }
        bytes
    }
}

/// Of the first unused record of each page the one that was delivered first, with the index of its page
/// and its length.
fn oldest<'a>(pages: &'a [Read], used: &[usize]) -> Option<(usize, Record<'a>, usize)> {
    let first = |(index, read): (usize, &'a Read)| {
        let (record, bytes) = Record::decode(&read.pending[used[index]..])?;
        Some((index, record, bytes))
    };
    let firsts = pages.iter().enumerate().filter_map(first);
    firsts.min_by_key(|(_, record, _)| record.phases.delivered)
}

impl Writer {
    pub(super) fn open(log: Arc<Log>, logs: &Logs, route_names: Vec<String>) -> io::Result<Writer> {
        let flush = Duration::from_nanos(logs.flush.0);
        let access = logs
            .access
            .first()
            .map(|access| Access::open(access, &logs.privacy, route_names))
            .transpose()?;
        Ok(Writer {
            log,
            access,
            flush,
            errors: Vec::new(),
        })
    }

    pub(super) fn run(mut self) {
        crate::sys::block_sigpipe();
        loop {
            let bell = self.wait();
            self.log.told.store(false, Ordering::Release);
            self.write_errors();
            self.write_access();
            if bell == Bell::Stop {
                return self.last_words();
            }
        }
    }

    /// Waits for something to write, then for it to be old or plentiful enough.
    fn wait(&self) -> Bell {
        let log = &self.log;
        let kept = self
            .access
            .as_ref()
            .is_some_and(|access| !access.out.is_empty());
        let mut bell = lock(&log.bell);
        if kept {
            // The target did not take everything: try again after a pause.
            let quiet = |bell: &mut Bell| *bell < Bell::Stop;
            let waited = log.rung.wait_timeout_while(bell, RETRY, quiet);
            bell = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        } else {
            while *bell == Bell::Quiet {
                bell = log
                    .rung
                    .wait(bell)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            let patient = |bell: &mut Bell| *bell < Bell::Urgent;
            let waited = log.rung.wait_timeout_while(bell, self.flush, patient);
            bell = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        let seen = *bell;
        if seen != Bell::Stop {
            *bell = Bell::Quiet;
        }
        seen
    }

    fn write_errors(&mut self) {
        std::mem::swap(&mut *lock(&self.log.errors), &mut self.errors);
        let lost = self.log.errors_lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = format!("{lost} error lines were dropped");
            super::write_error_line(&mut self.errors, Level::Warning, &text);
        }
        // Nobody is left to be told when standard error itself fails.
        let _ = io::stderr().write_all(&self.errors);
        self.errors.clear();
    }

    fn write_access(&mut self) {
        let Some(access) = &mut self.access else {
            return;
        };
        if access.out.len() < KEPT_BYTES_MAX {
            access.collect(&self.log);
        }
        access.write_all(&self.log);
        if access.pages.iter().any(|page| !page.pending.is_empty()) {
            self.log.ring(Bell::Waiting);
        }
        let lost = self.log.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = format!("access log: {lost} lines were dropped: the log is full");
            self.log.error(Level::Warning, &text);
        }
    }

    fn last_words(mut self) {
        for _ in 0..LAST_TRIES {
            let Some(access) = &self.access else { break };
            if access.out.is_empty() {
                break;
            }
            std::thread::sleep(RETRY);
            self.write_access();
        }
        if let Some(access) = &self.access
            && !access.out.is_empty()
        {
            let text = format!(
                "access log: {} bytes could not be written",
                access.out.len()
            );
            self.log.error(Level::Error, &text);
        }
        self.write_errors();
    }
}

impl Access {
    fn open(
        access: &AccessLog,
        privacy: &LogPrivacy,
        route_names: Vec<String>,
    ) -> io::Result<Access> {
        let target = match &access.target {
            LogTarget::Stdout | LogTarget::Stderr | LogTarget::Syslog(_) | LogTarget::Journald => {
                File::from(io::stdout().as_fd().try_clone_to_owned()?)
            }
            LogTarget::File(path) => OpenOptions::new().append(true).create(true).open(path)?,
        };
        let style = Style {
            utc_offset_secs: 0,
            prefix_v4: privacy.prefix_v4,
            prefix_v6: privacy.prefix_v6,
            query: privacy.query,
        };
        let names = Names {
            routes: route_names,
            ..Names::default()
        };
        let lines = Lines::new(form_of(&access.form)?, style, names);
        Ok(Access {
            target,
            lines,
            pages: Vec::new(),
            out: Vec::with_capacity(BATCH_BYTES),
            failing: false,
        })
    }

    /// Takes what the producers have written and formats it by the time of delivery.
    ///
    /// The next exchange of a connection is delivered after the last one was written to its page. So of
    /// all that is delivered before the pages are looked at nothing is missing in them, and in order of
    /// delivery it is in order for each connection; what is younger waits for the next round.
    fn collect(&mut self, log: &Log) {
        let before = measure::now();
        for page in lock(&log.pages).iter().skip(self.pages.len()) {
            self.pages.push(Read {
                page: Arc::clone(page),
                pending: Vec::new(),
            });
        }
        for read in &mut self.pages {
            log.bytes_waiting.fetch_sub(read.take(), Ordering::Relaxed);
        }
        let offset = wall_offset();
        let mut used = vec![0; self.pages.len()];
        let mut pages = std::mem::take(&mut self.pages);
        while let Some((index, mut record, bytes)) = oldest(&pages, &used) {
            if record.phases.delivered > before {
                break;
            }
            used[index] += bytes;
            record.wall_arrived_ns = record.phases.arrived.0 + offset;
            self.lines.write(&record, &mut self.out);
            if self.out.len() >= BATCH_BYTES {
                self.write_all(log);
            }
        }
        for (read, used) in pages.iter_mut().zip(used) {
            read.pending.drain(..used);
        }
        self.pages = pages;
    }

    /// Writes what is formatted; keeps what the target does not take.
    fn write_all(&mut self, log: &Log) {
        let mut written = 0;
        while written < self.out.len() {
            match self.target.write(&self.out[written..]) {
                Ok(0) => break,
                Ok(n) => {
                    written += n;
                    self.failing = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if !self.failing {
                        self.failing = true;
                        log.error(
                            Level::Error,
                            &format!(
                                "access log: {}; the lines are kept and tried again",
                                plain(&error)
                            ),
                        );
                    }
                    break;
                }
            }
        }
        self.out.drain(..written);
    }
}

fn form_of(form: &LogForm) -> io::Result<Form> {
    Ok(match form {
        LogForm::Phases => Form::CombinedPhases,
        LogForm::Combined => Form::Combined,
        LogForm::Common => Form::Common,
        LogForm::Json => Form::Json,
        LogForm::NaviServer => Form::NaviServer,
        LogForm::Template(text) => {
            let invalid = |fault| io::Error::new(io::ErrorKind::InvalidInput, fault);
            Form::Template(Template::parse(text).map_err(invalid)?)
        }
    })
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
