//! The thread that reads and watches files of certificates, so that storage which does not answer stops this thread and
//! not the supervisor.
//!
//! ```text
//!  supervisor ── wanted: the latest of each kind ──► the thread: one thing at a time
//!      ▲                                                │
//!      └── findings, in order; a descriptor is readable ┘
//! ```
//!
//! Nothing piles up while a file does not answer. Nobody waits for the thread, not even the end of the process. Decides
//! nothing, and says nothing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};
use os::{invariant, lock};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use telemetry::{Nanos, Stamp};

use super::file_watcher::FileWatcher;
use config::failure::Failure;
use config::typed::{Config, Tls};
use tls::{CredentialFiles, Credentials};

/// How the files of certificates are read.
#[derive(Clone, Copy)]
pub struct CertificateFiles {
    /// As they are.
    pub read: fn(&Tls) -> CredentialFiles,
    /// For a generation that is to serve: what the server makes itself is made first, in its storage folder.
    pub prepare: fn(&Config) -> Result<PreparedCredentials, Vec<Failure>>,
}

/// The certificates of a generation that is to serve.
#[derive(Clone, Debug, Default)]
pub struct PreparedCredentials {
    /// What the files hold.
    pub credentials: Credentials,
    /// What is worth saying about it.
    pub notes: Vec<String>,
}

/// What the thread has found.
pub(super) enum FileFinding {
    /// Files that are watched have changed.
    Changed,
    /// Why changes are not noticed at once.
    Warning(String),
    /// What was asked for with this moment, by generation.
    Read(Instant, Vec<(u64, CredentialFiles)>),
    /// The files of this generation.
    Prepared(u64, Result<PreparedCredentials, Vec<Failure>>),
}

/// The supervisor's end.
pub(super) struct FileReader {
    shared: Arc<ReaderState>,
}

struct ReaderState {
    wanted: Mutex<WantedFiles>,
    /// Readable: something is wanted.
    is_wanted: OwnedFd,
    found: Mutex<VecDeque<FileFinding>>,
    /// Readable: something was found.
    is_found: OwnedFd,
    /// Since when one file or folder is waited for; zero: none is.
    busy_since: AtomicU64,
}

/// What the thread is to do next.
#[derive(Default)]
struct WantedFiles {
    watched: Option<Vec<PathBuf>>,
    prepared: Option<(u64, Config)>,
    read: Option<(Instant, Vec<(u64, Tls)>)>,
    is_over: bool,
}

impl FileReader {
    /// Starts the thread, which handles no signals.
    ///
    /// # Errors
    /// There is no memory, or there are no descriptors, for it.
    pub(super) fn start(files: CertificateFiles) -> io::Result<Self> {
        let descriptor = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(ReaderState {
            wanted: Mutex::default(),
            is_wanted: descriptor()?,
            found: Mutex::default(),
            is_found: descriptor()?,
            busy_since: AtomicU64::new(0),
        });
        let own = Arc::clone(&shared);
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let thread = thread::Builder::new().name("mp-file-reader".to_owned());
        let started = thread.spawn(move || own.live(files));
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
        started.map(|_| Self { shared })
    }

    /// Watches these files from now on, instead of those before.
    pub(super) fn watch(&self, files: Vec<PathBuf>) {
        self.ask(|wanted| wanted.watched = Some(files));
    }

    /// Reads the files of generations; `asked` comes back with them.
    pub(super) fn read(&self, asked: Instant, all: Vec<(u64, Tls)>) {
        self.ask(|wanted| wanted.read = Some((asked, all)));
    }

    /// Reads the files of the generation that is to serve; another one is forgotten by that.
    pub(super) fn prepare(&self, generation: u64, config: Config) {
        self.ask(|wanted| wanted.prepared = Some((generation, config)));
    }

    /// Readable when something was found.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.is_found.as_fd()
    }

    /// What was found since the last call.
    pub(super) fn take_found(&self) -> VecDeque<FileFinding> {
        let _ = rustix::io::read(&self.shared.is_found, &mut [0; 8]);
        std::mem::take(&mut *lock(&self.shared.found))
    }

    /// Since when the thread waits for one file or folder.
    pub(super) fn busy_since(&self) -> Option<Stamp> {
        let since = self.shared.busy_since.load(Ordering::Relaxed);
        (since != 0).then_some(Stamp(since))
    }

    fn ask(&self, change: impl FnOnce(&mut WantedFiles)) {
        change(&mut lock(&self.shared.wanted));
        wake(&self.shared.is_wanted);
    }
}

impl Drop for FileReader {
    /// The thread ends by itself, after the file that it waits for.
    fn drop(&mut self) {
        self.ask(|wanted| wanted.is_over = true);
    }
}

impl ReaderState {
    fn live(&self, files: CertificateFiles) {
        let mut watcher: Option<FileWatcher> = None;
        loop {
            self.wait(watcher.as_ref());
            let wanted = std::mem::take(&mut *lock(&self.wanted));
            if wanted.is_over {
                return;
            }
            if let Some(watched) = wanted.watched {
                let has_some = !watched.is_empty();
                let watch = || FileWatcher::new(&[], &watched, telemetry::now());
                watcher = self.busily(|| has_some.then(watch));
            }
            if let Some(watcher) = &mut watcher {
                if self.busily(|| watcher.changed(telemetry::now())).is_some() {
                    self.found(FileFinding::Changed);
                }
                if let Some(warning) = watcher.warning() {
                    self.found(FileFinding::Warning(warning));
                }
            }
            if let Some((generation, config)) = wanted.prepared {
                let prepared = self.busily(|| (files.prepare)(&config));
                self.found(FileFinding::Prepared(generation, prepared));
            }
            if let Some((asked, all)) = wanted.read {
                let one = |(id, tls): (u64, Tls)| (id, self.busily(|| (files.read)(&tls)));
                let read = all.into_iter().map(one).collect();
                self.found(FileFinding::Read(asked, read));
            }
        }
    }

    /// Until something is wanted, or the watcher has something to do.
    fn wait(&self, watcher: Option<&FileWatcher>) {
        let mut watched = vec![PollFd::new(&self.is_wanted, PollFlags::IN)];
        let fd = watcher.and_then(FileWatcher::fd);
        watched.extend(fd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let left = watcher.map(|watcher| watcher.deadline().since(telemetry::now()));
        // Rounded up: waking before something is due would be waking twice.
        let timeout = left.and_then(|Nanos(left)| {
            Timespec::try_from(Duration::from_nanos(left) + Duration::from_micros(100)).ok()
        });
        if poll(&mut watched, timeout.as_ref()).is_err() {
            // Out of memory: better late than spinning.
            thread::sleep(Duration::from_millis(100));
        }
        let _ = rustix::io::read(&self.is_wanted, &mut [0; 8]);
    }

    fn busily<T>(&self, work: impl FnOnce() -> T) -> T {
        let Stamp(now) = telemetry::now();
        let before = self.busy_since.swap(now, Ordering::Relaxed);
        invariant!(before == 0, "two files are read at once");
        let done = work();
        self.busy_since.store(0, Ordering::Relaxed);
        done
    }

    fn found(&self, finding: FileFinding) {
        lock(&self.found).push_back(finding);
        wake(&self.is_found);
    }
}

/// It fails only when the counter is full, and then the other end is awake.
fn wake(descriptor: &OwnedFd) {
    let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;

    use super::*;

    /// Where `blocked` waits, and how it is let go.
    static GATE: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);

    fn blocked(_: &Tls) -> CredentialFiles {
        let gate = lock(&GATE).take();
        if let Some(gate) = gate {
            let _ = gate.recv();
        }
        CredentialFiles::default()
    }

    fn start() -> FileReader {
        let prepare = |_: &Config| Ok(PreparedCredentials::default());
        FileReader::start(CertificateFiles {
            read: blocked,
            prepare,
        })
        .unwrap()
    }

    fn next(reader: &FileReader) -> VecDeque<FileFinding> {
        loop {
            let mut watched = [PollFd::from_borrowed_fd(reader.fd(), PollFlags::IN)];
            poll(&mut watched, None).unwrap();
            let found = reader.take_found();
            if !found.is_empty() {
                return found;
            }
        }
    }

    #[test]
    fn the_latest_request_counts_while_a_file_does_not_answer() {
        let (open, gate) = mpsc::channel();
        *lock(&GATE) = Some(gate);
        let reader = start();
        let first = Instant::now();
        reader.read(first, vec![(1, Tls::default())]);
        while lock(&GATE).is_some() {
            thread::yield_now();
        }
        assert!(reader.busy_since().is_some());
        let last = first + Duration::from_secs(9);
        for late in 1..10 {
            reader.read(first + Duration::from_secs(late), Vec::new());
        }
        assert!(reader.take_found().is_empty());
        open.send(()).unwrap();
        let mut asked = Vec::new();
        while asked.last() != Some(&last) {
            asked.extend(next(&reader).into_iter().map(|finding| match finding {
                FileFinding::Read(asked, _) => asked,
                _ => panic!("nothing else was asked for"),
            }));
        }
        assert_eq!(asked, [first, last]);
    }

    #[test]
    fn says_that_a_watched_file_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shop.pem");
        fs::write(&file, "one").unwrap();
        let reader = start();
        reader.watch(vec![file.clone()]);
        reader.prepare(7, Config::default());
        // What was wanted first is watched by then.
        let found = next(&reader);
        assert!(matches!(
            found.front(),
            Some(FileFinding::Prepared(7, Ok(_)))
        ));
        fs::write(&file, "another").unwrap();
        assert!(matches!(next(&reader).front(), Some(FileFinding::Changed)));
    }
}
