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

/// Takes what is to be told, with its level.
pub(in crate::log) type Tell = Box<dyn Fn(Level, &str) + Send>;

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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Instant;

    use measure::Nanos;
    use tempfile::TempDir;

    use super::*;
    use crate::config::meant::{LogCompression, Rotation};

    const NOON: u64 = 1_795_262_859_000_000_000;

    struct Place {
        dir: TempDir,
        log: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let log = dir.path().join("a.log");
            std::fs::write(&log, "now\n").unwrap();
            Self { dir, log }
        }

        fn write(&self, name: &str) {
            std::fs::write(self.dir.path().join(name), name.repeat(1000)).unwrap();
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.dir.path()).unwrap();
            let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
            let mut names: Vec<String> = entries
                .map(|entry| name(entry).into_string().unwrap())
                .collect();
            names.sort();
            names
        }

        /// Waits until the folder has just these names.
        fn comes_to(&self, names: &[&str]) {
            await_that(&format!("{names:?}"), || self.names() == names);
        }

        fn keeper(&self, rotation: &Rotation) -> (Option<Keeper>, mpsc::Receiver<String>) {
            let (sender, told) = mpsc::channel();
            let tools = Tools {
                wall_ns: Box::new(|| NOON),
                tell: Box::new(move |_, text| {
                    let _ = sender.send(text.to_owned());
                }),
            };
            let shelves = Shelf::all(std::slice::from_ref(&self.log), rotation);
            (Keeper::start(shelves, tools).unwrap(), told)
        }
    }

    fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::yield_now();
        }
    }

    fn compressing(coding: LogCompression) -> Rotation {
        Rotation {
            compress: Some(coding),
            ..Rotation::default()
        }
    }

    #[test]
    fn has_nothing_to_do_without_settings() {
        let place = Place::new();
        let rotation = Rotation {
            bytes: Some(1),
            every: Some(Nanos(1)),
            ..Rotation::default()
        };
        assert!(place.keeper(&rotation).0.is_none());
    }

    #[test]
    fn looks_at_the_start_and_whenever_it_is_asked() {
        let place = Place::new();
        place.write("a.log.20261120T000000Z");
        place.write("a.log.20261120T000000Z.1");
        place.write("a.log.20261120T000000Z.1.zst.part");
        let (keeper, told) = place.keeper(&compressing(LogCompression::Zstd));
        place.comes_to(&[
            "a.log",
            "a.log.20261120T000000Z.1.zst",
            "a.log.20261120T000000Z.zst",
        ]);
        place.write("a.log.20261121T000000Z");
        keeper.as_ref().unwrap().tend();
        place.comes_to(&[
            "a.log",
            "a.log.20261120T000000Z.1.zst",
            "a.log.20261120T000000Z.zst",
            "a.log.20261121T000000Z.zst",
        ]);
        drop(keeper);
        assert_eq!(told.iter().next(), None);
    }

    #[test]
    fn deletes_by_number_and_by_age() {
        let place = Place::new();
        for name in [
            "a.log.20261119T000000Z",
            "a.log.20261120T000000Z.gz",
            "a.log.20261121T000000Z",
            "a.log.20261121T000001Z.zst",
        ] {
            place.write(name);
        }
        let rotation = Rotation {
            keep_len: Some(2),
            keep_age: Some(Nanos(13 * 3_600_000_000_000)),
            compress: Some(LogCompression::Gzip),
            ..Rotation::default()
        };
        let _keeper = place.keeper(&rotation);
        place.comes_to(&[
            "a.log",
            "a.log.20261121T000000Z.gz",
            "a.log.20261121T000001Z.zst",
        ]);
    }

    #[test]
    fn tells_a_fault_once_and_goes_on_with_the_others() {
        let place = Place::new();
        place.write("a.log.20261120T000000Z");
        place.write("a.log.20261120T000000Z.gz");
        place.write("a.log.20261121T000000Z");
        let (keeper, told) = place.keeper(&compressing(LogCompression::Gzip));
        let text = told.recv().unwrap();
        assert!(text.contains("a.log.20261120T000000Z.gz"), "{text}");
        assert!(text.contains("has other lines"), "{text}");
        let left = [
            "a.log",
            "a.log.20261120T000000Z",
            "a.log.20261120T000000Z.gz",
            "a.log.20261121T000000Z.gz",
        ];
        place.comes_to(&left);
        place.write("a.log.20261122T000000Z");
        keeper.as_ref().unwrap().tend();
        let more = [&left[..], &["a.log.20261122T000000Z.gz"]].concat();
        place.comes_to(&more);
        drop(keeper);
        assert_eq!(told.iter().next(), None);
    }

    #[test]
    fn stops_in_the_middle_of_a_file() {
        let place = Place::new();
        let old = place.dir.path().join("a.log.20261120T000000Z");
        // A hole that takes a minute or more to compress.
        let bytes = 16 << 30;
        std::fs::File::create(&old).unwrap().set_len(bytes).unwrap();
        let (keeper, _told) = place.keeper(&compressing(LogCompression::Gzip));
        let part = place.dir.path().join("a.log.20261120T000000Z.gz.part");
        await_that("it begins", || part.exists());
        drop(keeper);
        assert_eq!(place.names(), ["a.log", "a.log.20261120T000000Z"]);
        assert_eq!(std::fs::metadata(&old).unwrap().len(), bytes);
    }

    #[test]
    fn two_keepers_of_one_folder_do_not_disturb_each_other() {
        let place = Place::new();
        for second in 0..30 {
            place.write(&format!("a.log.20261120T0000{second:02}Z"));
        }
        let before = place.names();
        let keepers: Vec<_> = (0..3)
            .map(|_| place.keeper(&compressing(LogCompression::Gzip)))
            .collect();
        let name = |name: &String| match name.as_str() {
            "a.log" => name.clone(),
            old => format!("{old}.gz"),
        };
        let after: Vec<String> = before.iter().map(name).collect();
        let after: Vec<&str> = after.iter().map(String::as_str).collect();
        place.comes_to(&after);
        for (keeper, told) in keepers {
            drop(keeper);
            assert_eq!(told.iter().next(), None);
        }
        for name in &before[1..] {
            let packed = std::fs::File::open(place.dir.path().join(format!("{name}.gz")));
            let mut text = String::new();
            let mut decoder = flate2::read::GzDecoder::new(packed.unwrap());
            io::Read::read_to_string(&mut decoder, &mut text).unwrap();
            assert!(text == name.repeat(1000));
        }
    }

    #[test]
    fn its_thread_is_the_last_to_get_a_processor() {
        let nice = std::thread::spawn(|| {
            crate::sys::yield_to_all();
            let stat = std::fs::read_to_string(Path::new("/proc/thread-self/stat")).unwrap();
            let fields = stat.rsplit_once(") ").unwrap().1;
            fields.split(' ').nth(16).unwrap().to_owned()
        });
        assert_eq!(nice.join().unwrap(), "19");
    }
}
