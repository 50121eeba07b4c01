//! The memory of responses that wait for their clients: what is in use, and what happens when it runs out.
//!
//! Every buffer that is kept for a slow client carries a `Charge`, which is given back when the last part of
//! the buffer is gone: two responses that share a buffer are charged once, and no account can be settled twice.
//! A worker never waits here. Above half of the bound the responses whose clients have taken nothing for
//! longest move to their unnamed files, written by the body-spool threads: spans of the file take the place of
//! buffers, in their order, and a disk that fails costs the response. Above the bound itself, where the disk does
//! not keep up, they are cut.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use telemetry::{Nanos, Stamp};

use files::Part;

use super::Parts;
use crate::blocking_pool::{BlockingPool, TaskState};
use crate::exchange::stream::{NO_SPACE, StreamShared, UNSTORED};
use crate::spool::SpoolDir;
use crate::sync::{invariant, lock};

/// Above the bound, a response is cut when its client has taken nothing for so long. A client that reads takes
/// something every round trip, and few of those are longer.
const CUT_AFTER: Nanos = Nanos::from_ms(1_000);
/// Responses that move to their files at once, for each thread that writes them: enough for no thread to run
/// out of work, and few enough for the choice to be a late one.
const SPILLS_PER_THREAD: usize = 2;

/// Bytes that a write has at least, where a response has as many.
const SPILL_BYTES_MIN: usize = 1 << 20;
/// Bytes that one step writes at most, before another response has its turn.
const STEP_BYTES_MAX: u64 = 8 << 20;
/// Buffers in one call (IOV_MAX is 1,024).
const SLICES_MAX: usize = 64;

/// The memory of all responses of a process that wait for their clients.
pub struct ReplyMemory {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// By address: responses of which something waits. Bounded by the streams that are open.
    waiting: Mutex<HashMap<usize, Arc<StreamShared>>>,
    spills: AtomicUsize,
    spills_max: usize,
    threads: BlockingPool,
    /// Where the files are made.
    dir: SpoolDir,
    /// Whether a look is under way, so that no second thread begins one.
    is_looking: AtomicBool,
}

/// A share of the memory, given back when it is dropped.
pub struct Charge {
    memory: Arc<ReplyMemory>,
    bytes: usize,
}

/// A buffer with its charge.
struct Charged<T> {
    data: T,
    _charge: Charge,
}

/// The unnamed file of one response. Its spans keep it open, and nothing else: behind the last of them nothing of it
/// is needed, and a new file gives the space back.
#[derive(Debug, Default)]
pub(crate) struct SpillFile {
    file: Weak<File>,
    bytes: u64,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Charged<T> {
    fn as_ref(&self) -> &[u8] {
        self.data.as_ref()
    }
}

impl ReplyMemory {
    /// `threads` write what moves to files.
    pub(crate) fn new(bytes_max: usize, dir: SpoolDir, threads: BlockingPool) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(0),
            bytes_max,
            waiting: Mutex::default(),
            spills: AtomicUsize::new(0),
            spills_max: threads.threads().max(1) * SPILLS_PER_THREAD,
            threads,
            dir,
            is_looking: AtomicBool::new(false),
        })
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Charges `bytes` bytes, beyond the bound too: what the application has handed over is there already.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        // Relaxed: a sum that threads compare with a bound. No memory is read on the strength of it.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Charge {
            memory: Arc::clone(self),
            bytes,
        }
    }

    /// Keeps a buffer; it is charged until the last part of it is gone.
    pub(crate) fn keep(self: &Arc<Self>, data: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        let charge = self.charge(data.as_ref().len());
        Bytes::from_owner(Charged {
            data,
            _charge: charge,
        })
    }

    /// A response begins to wait for its client.
    pub(crate) fn enter(&self, stream: &Arc<StreamShared>) {
        let address = Arc::as_ptr(stream) as usize;
        lock(&self.waiting).insert(address, Arc::clone(stream));
    }

    /// Nothing of the response waits any more.
    pub(crate) fn leave(&self, stream: &Arc<StreamShared>) {
        let address = Arc::as_ptr(stream) as usize;
        // The last reference to it is not dropped under the lock.
        let _left = lock(&self.waiting).remove(&address);
    }

    /// Sees to it that the bound holds. Cheap below half of it; called whenever something is kept, when a
    /// response has moved to its file, and by drivers four times a second.
    pub(crate) fn relieve(self: &Arc<Self>, now: Stamp) {
        // One thread at a time: two would choose the same responses to cut, and free twice what is needed.
        if self.bytes() <= self.bytes_max / 2 || self.is_looking.swap(true, Ordering::Acquire) {
            return;
        }
        let entry = |stream: &Arc<StreamShared>| (stream.progress_at(), Arc::clone(stream));
        // A copy of the references, so that no other lock is taken under this one: each response has its own.
        let mut waiting: Vec<_> = lock(&self.waiting).values().map(entry).collect();
        // The stamps as of this copy: a client that takes something meanwhile is noticed when its response is cut.
        waiting.sort_by_key(|(moved, _)| *moved);
        self.spill_some(&waiting);
        self.cut_some(&waiting, now);
        self.is_looking.store(false, Ordering::Release);
    }

    /// Large responses first: a write of less than a megabyte costs a disk as much as a larger one.
    fn spill_some(self: &Arc<Self>, waiting: &[(Stamp, Arc<StreamShared>)]) {
        for bytes_min in [SPILL_BYTES_MIN, 1] {
            for (_, stream) in waiting {
                if self.spills.load(Ordering::Relaxed) >= self.spills_max {
                    return;
                }
                // Marked under the stream's lock: a response is with one thread at most.
                if stream.pending().begin_spill(bytes_min) {
                    self.spills.fetch_add(1, Ordering::Relaxed);
                    self.spill(Arc::clone(stream));
                }
            }
        }
    }

    fn spill(self: &Arc<Self>, stream: Arc<StreamShared>) {
        let memory = Arc::clone(self);
        self.threads.send(Box::new(move || {
            let state = spill_step(&stream, &memory.dir);
            if state == TaskState::Done {
                let before = memory.spills.fetch_sub(1, Ordering::Relaxed);
                invariant!(
                    before > 0,
                    "more responses have moved to files than began to"
                );
                memory.relieve(telemetry::now());
            }
            state
        }));
    }

    /// Cuts responses until the bound holds: those whose clients have taken nothing for `CUT_AFTER`; past twice
    /// the bound any but the one whose client moved last, because memory is not there for waiting.
    fn cut_some(&self, waiting: &[(Stamp, Arc<StreamShared>)], now: Stamp) {
        let last = waiting.len().saturating_sub(1);
        for (index, (moved, stream)) in waiting.iter().enumerate() {
            // Read anew for each response: cuts free memory at once, and one too many costs a client its response.
            let bytes = self.bytes();
            let is_stalled = now.since(*moved) >= CUT_AFTER;
            let is_far_beyond = bytes > self.bytes_max.saturating_mul(2) && index < last;
            if bytes <= self.bytes_max || !(is_stalled || is_far_beyond) {
                return;
            }
            stream.abandon_stalled(*moved, self);
        }
    }

    /// Lets go of what will not be sent: of its memory at once, so that no other response is cut for it, and of
    /// its files on a thread, because closing one may wait for its disk.
    pub(crate) fn discard(&self, mut unsent: Parts) {
        unsent.drop_buffers();
        if !unsent.is_empty() {
            self.threads.discard(unsent);
        }
    }

    fn give_back(&self, bytes: usize) {
        // Below 0 it would wrap, and the bound would be passed for ever.
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        invariant!(
            before >= bytes,
            "{bytes} bytes of responses are given back, and only {before} are charged"
        );
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

/// Writes some of a response to its file in `dir`; says whether more of it is to be written.
fn spill_step(stream: &Arc<StreamShared>, dir: &SpoolDir) -> TaskState {
    let Some((parts, mut file)) = stream.pending().take_for_spill() else {
        return TaskState::Done;
    };
    match dir.counted(|| file.move_buffers(parts, dir)) {
        Ok(parts) => {
            let (is_done, unsent) = stream.pending().put_back_spilled(parts, file);
            // Here, on a thread that may wait for a disk: its spans may hold the last reference to a file.
            drop(unsent);
            // The driver may have waited for the parts, or for room at the client.
            stream.ownership.wake();
            match is_done {
                true => TaskState::Done,
                false => TaskState::More,
            }
        }
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NO_SPACE,
                _ => UNSTORED,
            };
            stream.fail_spill(why);
            TaskState::Done
        }
    }
}

impl SpillFile {
    /// The same parts, the first buffers of which are spans of this file now; of a new one in `dir` where no part is
    /// a span of it any more. Also gives the bytes that were written.
    fn move_buffers(&mut self, parts: Parts, dir: &SpoolDir) -> io::Result<(Parts, u64)> {
        // A weak reference: once the client has taken all spans, the file and its space are gone, and the next step
        // begins another one.
        let file = if let Some(file) = self.file.upgrade() {
            file
        } else {
            let file = Arc::new(dir.unnamed_file()?);
            self.file = Arc::downgrade(&file);
            self.bytes = 0;
            file
        };
        let mut moved = Parts::default();
        let mut run = Vec::new();
        let from = self.bytes;
        for part in parts.into_parts() {
            match part {
                Part::Memory(data) if self.bytes - from < STEP_BYTES_MAX => {
                    run.push(data);
                    if run.len() == SLICES_MAX {
                        moved.push(self.append(&file, &mut run)?);
                    }
                }
                other => {
                    moved.push(self.append(&file, &mut run)?);
                    moved.push(other);
                }
            }
        }
        moved.push(self.append(&file, &mut run)?);
        Ok((moved, self.bytes - from))
    }

    /// Appends buffers, and lets go of them; gives their span. What is in the file is never written again: sendfile
    /// queues its pages in the socket without a copy, and the client may not have them yet.
    fn append(&mut self, file: &Arc<File>, run: &mut Vec<Bytes>) -> io::Result<Part> {
        let offset = self.bytes;
        let mut slices: Vec<_> = run.iter().map(|data| IoSlice::new(data)).collect();
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            let written = match rustix::io::pwritev(&**file, slices, self.bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            self.bytes += written as u64;
            IoSlice::advance_slices(&mut slices, written);
        }
        run.clear();
        Ok(Part::File {
            file: Arc::clone(file),
            offset,
            bytes: self.bytes - offset,
            edition: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SECOND: Stamp = Stamp(1_000_000_000);

    /// A response that has waited since `moved`, with some bytes in memory and some in a file.
    fn waiting(memory: &Arc<ReplyMemory>, moved: Stamp, bytes: usize) -> Arc<StreamShared> {
        let stream = Arc::new(StreamShared::default());
        let mut parts = Parts::default();
        parts.push(Part::File {
            file: Arc::new(File::open("/dev/null").unwrap()),
            offset: 0,
            bytes: 1,
            edition: None,
        });
        parts.push(Part::Memory(memory.keep(vec![0; bytes])));
        assert!(stream.pending().push(parts).is_ok());
        stream.set_progress_at(moved);
        memory.enter(&stream);
        stream
    }

    fn is_cut(stream: &StreamShared) -> bool {
        stream.pending().abandoned() == Some(crate::exchange::stream::MEMORY_FULL)
    }

    /// The only thread that writes is held meanwhile, as by a disk that does not answer.
    fn memory_without_disk(bytes_max: usize) -> (Arc<ReplyMemory>, mpsc::Sender<()>) {
        let threads = BlockingPool::start("test-spool", 1).unwrap();
        let (release, held) = mpsc::channel::<()>();
        threads.send(Box::new(move || {
            let _ = held.recv();
            TaskState::Done
        }));
        (
            ReplyMemory::new(bytes_max, crate::tests::spool_dir(), threads),
            release,
        )
    }

    #[test]
    fn cuts_no_more_than_the_bound_asks_for_those_first_that_have_stalled_for_longest() {
        let (memory, _release) = memory_without_disk(100);
        let ages = [3, 1, 2].map(|since| waiting(&memory, Stamp(since), 50));
        memory.relieve(SECOND.plus(CUT_AFTER));
        assert_eq!(
            ages.each_ref().map(|stream| is_cut(stream)),
            [false, true, false]
        );
        assert_eq!(memory.bytes(), 100);
    }

    #[test]
    fn cuts_nobody_who_reads_and_nothing_within_the_bound() {
        let (memory, _release) = memory_without_disk(100);
        let reading = waiting(&memory, SECOND, 101);
        memory.relieve(SECOND);
        assert!(!is_cut(&reading));
        memory.leave(&reading);
        let stalled = waiting(&memory, Stamp(1), 0);
        let _shared = memory.keep([0; 1]);
        memory.relieve(SECOND.plus(CUT_AFTER));
        assert!(!is_cut(&stalled));
    }

    #[test]
    #[should_panic(expected = "invariant violated")]
    fn no_more_is_given_back_than_is_charged() {
        let (memory, _release) = memory_without_disk(100);
        memory.give_back(1);
    }

    #[test]
    fn what_is_kept_is_charged_until_its_last_part_is_gone() {
        let (memory, _release) = memory_without_disk(100);
        let kept = memory.keep(vec![0; 10]);
        let part = kept.slice(3..4);
        drop(kept);
        assert_eq!(memory.bytes(), 10);
        drop(part);
        assert_eq!(memory.bytes(), 0);
    }
}
