//! The file of all counters: in memory only, and kept by the supervisor, who allots a segment of it to each
//! process and reads them all, those of dead processes too.
//!
//! It only ever grows, because a process that reads behind the end of what it has mapped is killed (SIGBUS).
//! Memory of freed segments goes back to the kernel, and their place to later ones.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use os::invariant;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::rates::RATES_BYTES;
use super::segment::{self, Layout};
use super::slots::{ROWS, SLOTS_BYTES, SharedSlots};
use super::{Segment, Shape, View};

/// Its name among the descriptors of a process (`/proc/PID/fd`).
const NAME: &str = "milepost-counters";

/// What all processes share, in front of the segments.
const SHARED_BYTES: u64 = SLOTS_BYTES + RATES_BYTES;

/// The file of all counters.
#[derive(Debug)]
pub struct CounterFile {
    file: File,
    /// Lengths of segments that are in use, by where they begin.
    pub(super) live: BTreeMap<u64, u64>,
    /// Rows of the slots that processes have, by where their segments begin.
    rows: BTreeMap<u64, usize>,
}

impl CounterFile {
    /// An empty file.
    pub fn new() -> io::Result<CounterFile> {
        let file = memory(NAME)?;
        // Nobody can change this any more either.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::SEAL)?;
        let file = File::from(file);
        file.set_len(SHARED_BYTES)?;
        Ok(CounterFile {
            file,
            live: BTreeMap::new(),
            rows: BTreeMap::new(),
        })
    }

    /// The file of a supervisor before this one, with the segments that are in use.
    ///
    /// # Errors
    /// `InvalidData`: it is no such file, or there are no such segments in it.
    pub fn adopt(file: OwnedFd, live: &[Segment]) -> io::Result<CounterFile> {
        let seals = rustix::fs::fcntl_get_seals(&file);
        // A file that could shrink would turn each look at a counter into SIGBUS.
        if !seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(segment::fault("this is not the file of all counters"));
        }
        let mut adopted = CounterFile {
            file: File::from(file),
            live: BTreeMap::new(),
            rows: BTreeMap::new(),
        };
        let file_bytes = adopted.file.metadata()?.len();
        for segment in live {
            let is_within = segment.end().is_some_and(|end| end <= file_bytes);
            if !segment.is_possible() || !is_within || !adopted.is_free(segment) {
                return Err(segment::fault(
                    "it overlaps another, or the end of the file",
                ));
            }
            adopted.live.insert(segment.offset, segment.bytes);
            let row = segment.row.filter(|row| *row < ROWS);
            adopted.rows.extend(row.map(|row| (segment.offset, row)));
        }
        Ok(adopted)
    }

    /// For the processes that are to count in it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A segment for one process, all zeros.
    ///
    /// # Errors
    /// There is not so much memory; nothing has changed then.
    pub fn allot(&mut self, shape: &Shape) -> io::Result<Segment> {
        let bytes = Layout::of(shape)?.bytes;
        let offset = self.gap(bytes);
        let row = (0..ROWS).find(|row| self.rows.values().all(|used| used != row));
        let segment = Segment { offset, bytes, row };
        // Two processes that counted in the same place would both be wrong, and for good.
        invariant!(
            self.is_free(&segment),
            "a segment of the counters is allotted twice"
        );
        let end = segment.end().ok_or(io::ErrorKind::OutOfMemory)?;
        // Only longer, never shorter: the file is sealed against that.
        if self.file.metadata()?.len() < end {
            self.file.set_len(end)?;
        }
        self.clear(&segment)?;
        // The header last: a segment that could not be cleared is never taken for one.
        segment::write_header(&self.file, &segment, shape)?;
        self.live.insert(offset, bytes);
        self.rows.extend(row.map(|row| (offset, row)));
        Ok(segment)
    }

    /// Takes a segment back. Whoever counted in it has ended: a later process gets its place.
    pub fn free(&mut self, segment: Segment) {
        if self.live.get(&segment.offset) != Some(&segment.bytes) {
            return;
        }
        self.live.remove(&segment.offset);
        // What it had at upstream servers is free, however it ended.
        if let Some(row) = self.rows.remove(&segment.offset)
            && let Ok(slots) = SharedSlots::shared(self.file(), row)
        {
            slots.clear();
        }
        // For the memory alone: it is cleared again before its next use.
        let _ = self.clear(&segment);
    }

    /// The counters in a segment, of a process that runs or has ended.
    ///
    /// # Errors
    /// `InvalidData`: the segment was freed, or made by another version of the program.
    pub fn view(&self, segment: &Segment) -> io::Result<View> {
        View::new(self.file(), segment)
    }

    /// Where the first gap is that has room for so much.
    fn gap(&self, bytes: u64) -> u64 {
        let mut end = SHARED_BYTES;
        for (&offset, &length) in &self.live {
            invariant!(end <= offset, "two segments of the counters overlap");
            // The first that is large enough: segments of one configuration have one size, and fill the gap of each
            // other.
            if offset - end >= bytes {
                break;
            }
            end = offset + length;
        }
        end
    }

    #[cfg(test)]
    pub(super) fn row(&self, offset: u64) -> Option<usize> {
        self.rows.get(&offset).copied()
    }

    fn is_free(&self, segment: &Segment) -> bool {
        let before = self.live.range(..=segment.offset).next_back();
        let after = self.live.range(segment.offset..).next();
        segment.offset >= SHARED_BYTES
            && before.is_none_or(|(&offset, &bytes)| offset + bytes <= segment.offset)
            && after.is_none_or(|(&offset, _)| segment.end().is_some_and(|end| end <= offset))
    }

    /// Gives the memory back to the kernel, which gives zeros for it.
    fn clear(&self, segment: &Segment) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A hole reads as zeros; zeros that are written would take memory.
        rustix::fs::fallocate(&self.file, flags, segment.offset, segment.bytes)?;
        Ok(())
    }
}

/// A file that lies in memory; the name is only shown among the descriptors of a process.
pub(crate) fn memory(name: &str) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // That it holds no program is said where the kernel asks for it (`vm.memfd_noexec`, Linux 6.3).
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => Ok(rustix::fs::memfd_create(name, flags)?),
        made => Ok(made?),
    }
}
