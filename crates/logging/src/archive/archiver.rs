//! The archiver: one thread that cleans up all archives, after each rotation and once an hour.
//!
//! It runs at the lowest priority for processor and disk.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::Archive;
use crate::budget::OnFull;
use crate::errors::ErrorQueue;
use crate::notify::{Notifier, Urgency};
use crate::wall_ns;
use config::typed::Level;

/// Old files age without any rotation.
const INTERVAL: Duration = Duration::from_secs(3600);

/// The archiver's thread, seen from the log.
#[derive(Debug)]
pub(crate) struct Archiver {
    /// `Urgent` asks for a clean-up, `Stop` ends the thread; a file that is being compressed stays as it was.
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) thread: JoinHandle<()>,
}

impl Archiver {
    /// Starts the thread, which cleans up at once; `None` when the settings leave it nothing to do.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        archives: Vec<Archive>,
        errors: Arc<ErrorQueue>,
    ) -> io::Result<Option<Archiver>> {
        if !archives.iter().any(Archive::has_work) {
            return Ok(None);
        }
        let notifier = Arc::new(Notifier::default());
        notifier.notify(Urgency::Urgent);
        let thread = std::thread::Builder::new().name("mp-archiver".to_owned());
        let thread = {
            let notifier = Arc::clone(&notifier);
            thread.spawn(move || run(&archives, &errors, &notifier))?
        };
        Ok(Some(Archiver { notifier, thread }))
    }
}

fn run(archives: &[Archive], errors: &ErrorQueue, notifier: &Notifier) {
    os::yield_to_all();
    let mut reported = BTreeSet::new();
    while notifier.wait(Duration::ZERO, INTERVAL) != Urgency::Stop {
        let clean_up = |archive: &Archive| archive.clean_up(wall_ns, &|| notifier.is_stopped());
        let faults: BTreeSet<String> = archives.iter().flat_map(clean_up).collect();
        // A fault that lasts is reported once.
        for fault in faults.difference(&reported) {
            errors.put(Level::Warning, fault, OnFull::Exceed);
        }
        reported = faults;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use tempfile::TempDir;

    use super::*;
    use config::typed::{LogOverflow, Rotation};

    /// A log's folder with an archiver that compresses.
    struct Place {
        dir: TempDir,
        errors: Arc<ErrorQueue>,
    }

    impl Place {
        fn new(names: &[&str]) -> Self {
            let place = Self {
                dir: tempfile::tempdir().unwrap(),
                errors: Arc::new(ErrorQueue::new(LogOverflow::Drop)),
            };
            place.write("a.log");
            names.iter().for_each(|name| place.write(name));
            place
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
        fn await_names(&self, names: &[&str]) {
            await_that(&format!("{names:?}"), || self.names() == names);
        }

        fn start(&self, compress: bool) -> Option<Archiver> {
            let rotation = Rotation {
                bytes: Some(1),
                compress,
                ..Rotation::default()
            };
            let archives = Archive::all(&[self.dir.path().join("a.log")], &rotation);
            Archiver::start(archives, Arc::clone(&self.errors)).unwrap()
        }
    }

    impl Archiver {
        fn end(self) {
            self.notifier.notify(Urgency::Stop);
            self.thread.join().unwrap();
        }
    }

    fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn has_no_thread_without_work() {
        assert!(Place::new(&[]).start(false).is_none());
    }

    #[test]
    fn cleans_up_at_the_start_and_whenever_it_is_notified() {
        let place = Place::new(&["a.log.20261120T000000Z", "a.log.20261120T000000Z.gz.part"]);
        let archiver = place.start(true).unwrap();
        place.await_names(&["a.log", "a.log.20261120T000000Z.gz"]);
        place.write("a.log.20261121T000000Z");
        archiver.notifier.notify(Urgency::Urgent);
        place.await_names(&[
            "a.log",
            "a.log.20261120T000000Z.gz",
            "a.log.20261121T000000Z.gz",
        ]);
        archiver.end();
        assert_eq!(place.errors.texts(), [""; 0]);
    }

    #[test]
    fn reports_a_fault_once_and_compresses_the_others() {
        let place = Place::new(&[
            "a.log.20261120T000000Z",
            "a.log.20261120T000000Z.gz",
            "a.log.20261121T000000Z",
        ]);
        let archiver = place.start(true).unwrap();
        let left = [
            "a.log",
            "a.log.20261120T000000Z",
            "a.log.20261120T000000Z.gz",
            "a.log.20261121T000000Z.gz",
        ];
        place.await_names(&left);
        place.write("a.log.20261122T000000Z");
        archiver.notifier.notify(Urgency::Urgent);
        place.await_names(&[&left[..], &["a.log.20261122T000000Z.gz"]].concat());
        archiver.end();
        let texts = place.errors.texts();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(texts[0].contains("a.log.20261120T000000Z.gz` exists and has other lines"));
    }

    #[test]
    fn stops_in_the_middle_of_a_file() {
        let place = Place::new(&[]);
        let old = place.dir.path().join("a.log.20261120T000000Z");
        // A hole that takes a minute or more to compress.
        let bytes = 16 << 30;
        std::fs::File::create(&old).unwrap().set_len(bytes).unwrap();
        let archiver = place.start(true).unwrap();
        let part = place.dir.path().join("a.log.20261120T000000Z.gz.part");
        await_that("it begins", || part.exists());
        archiver.end();
        assert_eq!(place.names(), ["a.log", "a.log.20261120T000000Z"]);
        assert_eq!(std::fs::metadata(&old).unwrap().len(), bytes);
    }

    #[test]
    fn archivers_of_one_folder_do_not_disturb_each_other() {
        let old: Vec<String> = (0..30)
            .map(|second| format!("a.log.20261120T0000{second:02}Z"))
            .collect();
        let place = Place::new(&old.iter().map(String::as_str).collect::<Vec<_>>());
        let archivers: Vec<_> = (0..3).map(|_| place.start(true).unwrap()).collect();
        let gzip: Vec<String> = old.iter().map(|name| format!("{name}.gz")).collect();
        let gzip = gzip.iter().map(String::as_str);
        place.await_names(&["a.log"].into_iter().chain(gzip).collect::<Vec<_>>());
        archivers.into_iter().for_each(Archiver::end);
        assert_eq!(place.errors.texts(), [""; 0]);
        for name in &old {
            let gzip = std::fs::File::open(place.dir.path().join(format!("{name}.gz")));
            let mut text = String::new();
            let mut decoder = flate2::read::GzDecoder::new(gzip.unwrap());
            io::Read::read_to_string(&mut decoder, &mut text).unwrap();
            assert!(text == name.repeat(1000));
        }
    }

    #[test]
    fn its_thread_is_the_last_to_get_a_processor() {
        let nice = std::thread::spawn(|| {
            os::yield_to_all();
            let stat = std::fs::read_to_string(Path::new("/proc/thread-self/stat")).unwrap();
            let fields = stat.rsplit_once(") ").unwrap().1;
            fields.split(' ').nth(16).unwrap().to_owned()
        });
        assert_eq!(nice.join().unwrap(), "19");
    }
}
