//! Spooling: request bodies beyond `body_memory_max` go into unnamed files, written by body-spool threads.
//!
//! A connection has at most one buffer with a spooler, and its driver reads nothing more from that client
//! until the buffer comes back: a slow disk holds up its own client only.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::counters::SpoolStats;
use telemetry::{Nanos, Stamp};

use crate::blocking_pool::BlockingPool;
use os::unnamed_file;

/// How full the folder is, is looked at this often.
const LOOK_EVERY: Nanos = Nanos::from_secs(10);

/// A body that is being written.
#[derive(Debug)]
pub(crate) struct Spooled {
    pub(crate) file: File,
    pub(crate) bytes: u64,
}

/// The folder of unnamed files, and what is counted of it.
#[derive(Clone)]
pub(crate) struct SpoolDir {
    path: Arc<Path>,
    counters: &'static SpoolStats,
}

/// The spoolers and their folder.
#[derive(Clone)]
pub(crate) struct Spoolers {
    /// The threads, for whatever else is to wait for the same disk.
    pub(crate) pool: BlockingPool,
    dir: SpoolDir,
    /// When the folder is to be looked at; [`Stamp::NEVER`] while a thread does.
    look_due: Arc<AtomicU64>,
}

impl SpoolDir {
    pub(crate) fn new(path: &Path, counters: &'static SpoolStats) -> Self {
        Self {
            path: path.into(),
            counters,
        }
    }

    /// A new file without a name.
    pub(crate) fn unnamed_file(&self) -> io::Result<File> {
        unnamed_file(&self.path)
    }

    /// Counts a write, which also gives how many bytes it has written.
    pub(crate) fn counted<T>(&self, write: impl FnOnce() -> io::Result<(T, u64)>) -> io::Result<T> {
        let began = telemetry::now();
        let written = write();
        let took = telemetry::now().since(began);
        let bytes = written.as_ref().ok().map(|(_, bytes)| *bytes);
        self.counters.wrote(bytes, took);
        written.map(|(value, _)| value)
    }

    /// Counts how full the folder is. May wait for its disk.
    fn look(&self) {
        // Where the kernel does not say, the numbers stay what they were; the first write tells why.
        if let Ok(found) = rustix::fs::statvfs(&*self.path) {
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            self.counters.free_bytes.set(bytes(found.f_bavail));
            self.counters.size_bytes.set(bytes(found.f_blocks));
        }
    }
}

impl Spoolers {
    /// Starts `threads` spoolers; they end when the last clone of the result is gone.
    pub(crate) fn start(threads: usize, dir: SpoolDir) -> io::Result<Self> {
        let pool = BlockingPool::start("mp-spool", threads)?;
        let spoolers = Self {
            pool,
            dir,
            look_due: Arc::default(),
        };
        spoolers.publish_gauges(telemetry::now());
        Ok(spoolers)
    }

    /// Tells the counters what waits, and has a thread look at the folder where that is due. Does not wait.
    pub(crate) fn publish_gauges(&self, now: Stamp) {
        let counters = self.dir.counters;
        counters.waiting.set(self.pool.waiting_len() as u64);
        let due = self.look_due.load(Ordering::Relaxed);
        // Of all drivers one sends the thread; and none does while the thread before still waits for the disk.
        let is_ours = now.0 >= due
            && (self.look_due)
                .compare_exchange(due, Stamp::NEVER.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_ours {
            let (dir, look_due) = (self.dir.clone(), Arc::clone(&self.look_due));
            self.pool.submit(move || {
                dir.look();
                let next = telemetry::now().plus(LOOK_EVERY);
                look_due.store(next.0, Ordering::Relaxed);
            });
        }
    }

    /// Appends `data` to a body, making its file first where there is none; gives the buffer back empty.
    pub(crate) async fn append(
        &self,
        spooled: Option<Spooled>,
        data: Vec<u8>,
    ) -> io::Result<(Spooled, Vec<u8>)> {
        let dir = self.dir.clone();
        self.pool.run(move || write(spooled, data, &dir)).await?
    }
}

fn write(
    spooled: Option<Spooled>,
    mut data: Vec<u8>,
    dir: &SpoolDir,
) -> io::Result<(Spooled, Vec<u8>)> {
    let len = data.len() as u64;
    let mut spooled = dir.counted(|| {
        let spooled = match spooled {
            Some(spooled) => spooled,
            None => Spooled {
                file: dir.unnamed_file()?,
                bytes: 0,
            },
        };
        spooled.file.write_all_at(&data, spooled.bytes)?;
        Ok((spooled, len))
    })?;
    spooled.bytes += len;
    data.clear();
    Ok((spooled, data))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::blocking_pool::TaskState;

    fn spoolers() -> (Spoolers, &'static SpoolStats) {
        let counters: &'static SpoolStats = Box::leak(Box::default());
        let dir = SpoolDir::new(&std::env::temp_dir(), counters);
        (Spoolers::start(1, dir).unwrap(), counters)
    }

    /// Until the thread has done what was sent before.
    fn drain(spoolers: &Spoolers) {
        let (done, waits) = mpsc::channel();
        spoolers.pool.submit(move || done.send(()).unwrap());
        waits.recv().unwrap();
    }

    #[test]
    fn looks_at_the_folder_at_the_start_and_every_ten_seconds() {
        let (spoolers, counters) = spoolers();
        drain(&spoolers);
        assert!(counters.size_bytes.count() >= counters.free_bytes.count());
        assert!(counters.size_bytes.count() > 0);
        let start = telemetry::now();
        for (after_ms, is_looked_at) in [(0, false), (9_000, false), (11_000, true)] {
            counters.size_bytes.set(0);
            spoolers.publish_gauges(start.plus(Nanos::from_ms(after_ms)));
            drain(&spoolers);
            assert_eq!(counters.size_bytes.count() > 0, is_looked_at, "{after_ms}");
        }
    }

    #[test]
    fn a_disk_that_does_not_answer_is_asked_once() {
        let (spoolers, counters) = spoolers();
        drain(&spoolers);
        let (release, held) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        spoolers.pool.send(Box::new(move || {
            begun.send(()).unwrap();
            let _ = held.recv();
            TaskState::Done
        }));
        begins.recv().unwrap();
        let start = telemetry::now();
        for minute in 1..=5 {
            spoolers.publish_gauges(start.plus(Nanos::from_secs(60 * minute)));
        }
        // The gauge was set before the look was sent, and by the calls after it.
        assert_eq!(spoolers.pool.waiting_len(), 1);
        assert_eq!(counters.waiting.count(), 1);
        drop(release);
        drain(&spoolers);
        assert_eq!(spoolers.pool.waiting_len(), 0);
    }

    #[test]
    fn what_was_written_is_counted_and_what_failed_too() {
        let (spoolers, counters) = spoolers();
        let (spooled, data) = write(None, vec![7; 100], &spoolers.dir).unwrap();
        assert_eq!((spooled.bytes, data.len()), (100, 0));
        let (spooled, _) = write(Some(spooled), vec![7; 50], &spoolers.dir).unwrap();
        assert_eq!((spooled.bytes, counters.written_bytes.count()), (150, 150));
        let missing = SpoolDir::new(Path::new("/nonexistent/folder"), counters);
        assert!(write(None, vec![7; 10], &missing).is_err());
        missing.look();
        assert_eq!(
            (counters.written_bytes.count(), counters.failed.count()),
            (150, 1)
        );
    }
}
