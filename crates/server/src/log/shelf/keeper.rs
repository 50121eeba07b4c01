//! The keeper: one thread that looks after all shelves, whenever it is told to and once an hour.
//!
//! It deletes before it compresses, and again after each file, so that a slow compression does not fill
//! the disk. It has the least claim on processor and disk that a thread can have.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::name::{Age, Form};
use super::pack::{self, Outcome, Paths};
use super::{Shelf, path_of};
use crate::config::meant::Level;
use crate::fault::plain;

/// Old files age although nothing is renewed.
const LOOK: Duration = Duration::from_secs(3600);

/// Tells somebody something.
type Tell = Box<dyn Fn(Level, &str) + Send>;

/// What the keeper needs of others.
pub(in crate::log) struct Tools {
    /// Nanoseconds since 1970 UTC.
    pub(in crate::log) wall_ns: Box<dyn Fn() -> u64 + Send>,
    /// Writes to the error log.
    pub(in crate::log) tell: Tell,
}

/// The keeper's thread, seen from the log; it ends with this.
#[derive(Debug)]
pub(in crate::log) struct Keeper {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Desk {
    /// There is something to look at.
    asked: Mutex<bool>,
    bell: Condvar,
    stop: AtomicBool,
}

struct Round {
    desk: Arc<Desk>,
    shelves: Vec<Shelf>,
    tools: Tools,
    /// What went wrong in the last round: it is told once.
    told: BTreeSet<String>,
}

impl Keeper {
    /// Starts the thread, which looks after all shelves at once; `None` when there is nothing that it would
    /// ever do.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(in crate::log) fn start(shelves: Vec<Shelf>, tools: Tools) -> io::Result<Option<Keeper>> {
        let has_work = |shelf: &Shelf| {
            shelf.keep_len.is_some() || shelf.keep_age_ns.is_some() || shelf.compress.is_some()
        };
        if !shelves.iter().any(has_work) {
            return Ok(None);
        }
        let desk = Arc::new(Desk {
            asked: Mutex::new(true),
            ..Desk::default()
        });
        let round = Round {
            desk: Arc::clone(&desk),
            shelves,
            tools,
            told: BTreeSet::new(),
        };
        let thread = std::thread::Builder::new().name("mp-log-shelf".to_owned());
        let thread = thread.spawn(move || round.run())?;
        Ok(Some(Keeper {
            desk,
            thread: Some(thread),
        }))
    }

    /// Asks for a look: a log has been rotated. Never waits.
    pub(in crate::log) fn tend(&self) {
        *self.desk.asked() = true;
        self.desk.bell.notify_one();
    }

    /// Asks it to end. Never waits: its disk may be stuck.
    pub(in crate::log) fn stop(&self) {
        self.desk.stop.store(true, Ordering::Relaxed);
        self.tend();
    }

    /// Whether its thread has ended.
    pub(in crate::log) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Keeper {
    /// Ends the thread; a file that is being compressed stays as it was.
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn asked(&self) -> std::sync::MutexGuard<'_, bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for a question, or for an hour.
    fn wait(&self) {
        let waited = self
            .bell
            .wait_timeout_while(self.asked(), LOOK, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

impl Round {
    fn run(mut self) {
        crate::sys::yield_to_all();
        loop {
            self.desk.wait();
            if self.desk.is_stopped() {
                return;
            }
            let faults: BTreeSet<String> = self.shelves.iter().flat_map(|s| self.tend(s)).collect();
            for fault in faults.difference(&self.told) {
                (self.tools.tell)(Level::Warning, fault);
            }
            self.told = faults;
        }
    }

    /// Looks after one shelf; gives what went wrong.
    fn tend(&self, shelf: &Shelf) -> Vec<String> {
        let mut faults = Vec::new();
        let mut tried = BTreeSet::new();
        let mut fault = |what: &str, fault: io::Error| {
            faults.push(format!(
                "old files of `{}`: {what}: {}",
                shelf.log.display(),
                plain(&fault)
            ));
        };
        while !self.desk.is_stopped() {
            let next = match self.next(shelf, &tried) {
                Err(cause) => {
                    fault("not all could be deleted", cause);
                    break;
                }
                Ok(next) => next,
            };
            let Some(age) = next else { break };
            tried.insert(age);
            if let Err(cause) = self.pack(shelf, age) {
                fault("one could not be compressed", cause);
            }
        }
        faults
    }

    /// Deletes what has to go; gives the oldest file that is to be compressed.
    fn next(&self, shelf: &Shelf, tried: &BTreeSet<Age>) -> io::Result<Option<Age>> {
        let mut olds = shelf.list()?;
        shelf.delete_surplus(&mut olds, (self.tools.wall_ns)())?;
        shelf.delete_parts(&mut olds)?;
        let is_next =
            |(age, forms): &(Age, Vec<Form>)| forms.contains(&Form::Plain) && !tried.contains(age);
        let next = olds.into_iter().find(is_next).map(|(age, _)| age);
        Ok(next.filter(|_| shelf.compress.is_some()))
    }

    fn pack(&self, shelf: &Shelf, age: Age) -> io::Result<()> {
        let Some(coding) = shelf.compress else {
            return Ok(());
        };
        let path = |form| -> io::Result<PathBuf> { path_of(&shelf.log, age, form) };
        let (plain, packed) = (path(Form::Plain)?, path(Form::Packed(coding))?);
        let part = path(Form::Part(coding))?;
        let paths = Paths {
            plain: &plain,
            packed: &packed,
            part: &part,
        };
        match pack::pack(&paths, coding, &self.desk.stop)? {
            // What is in use now is looked at again in the next round.
            Outcome::Done | Outcome::Stopped | Outcome::InUse => Ok(()),
        }
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tools").finish_non_exhaustive()
    }
}
