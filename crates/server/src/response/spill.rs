//! Spilling: a response that waits for its client moves from memory to an unnamed file, on a thread that may
//! wait for a disk.
//!
//! Takes the parts of a response that nobody is sending, gives them back with spans of the file in the place
//! of buffers. The order of parts stays. A disk that fails costs the response.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::blocking_pool::TaskState;
use crate::config::meant::Spool;
use crate::exchange::stream::{Abandoned, StreamShared};
use crate::response::{Part, Parts};
use crate::unnamed::unnamed_file;

/// Bytes that a write has at least, where a response has as many.
pub(super) const SPILL_BYTES_MIN: usize = 1 << 20;
/// Bytes that one step writes at most, before another response has its turn.
const STEP_BYTES_MAX: usize = 8 << 20;
/// Buffers in one call (IOV_MAX is 1,024).
const SLICES_MAX: usize = 64;

/// The unnamed file of one response.
#[derive(Clone, Debug)]
pub(crate) struct SpillFile {
    file: Arc<File>,
    bytes: u64,
}

/// Writes some of a response to its file; says whether more of it is to be written.
pub(super) fn step(stream: &Arc<StreamShared>, spool: &Spool) -> TaskState {
    let Some((parts, file)) = stream.pending().take_for_spill() else {
        return TaskState::Done;
    };
    // Behind the last span of a file nothing of it is needed: a new one gives the space back.
    let file = file.filter(|_| parts.bytes().1 > 0);
    match write(parts, file, spool) {
        Ok((parts, file)) => {
            let (is_done, unused) = stream.pending().put_back_spilled(parts, file);
            drop(unused);
            // The driver may have waited for the parts, or for room at the client.
            stream.ownership.wake();
            match is_done {
                true => TaskState::Done,
                false => TaskState::More,
            }
        }
        Err(error) => {
            let why = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Abandoned::NoSpace,
                _ => Abandoned::Unstored,
            };
            drop(stream.fail_spill(why));
            TaskState::Done
        }
    }
}

/// Puts spans of the file in the place of the buffers at the front of `parts`.
fn write(
    mut parts: Parts,
    file: Option<SpillFile>,
    spool: &Spool,
) -> io::Result<(Parts, Option<SpillFile>)> {
    let mut spill = match file {
        Some(spill) => spill,
        None => SpillFile {
            file: Arc::new(unnamed_file(&spool.dir)?),
            bytes: 0,
        },
    };
    let mut moved = Parts::default();
    let mut written = 0;
    while let Some(part) = parts.pop() {
        if !matches!(part, Part::Memory(_)) {
            moved.push(part);
            continue;
        }
        if written >= STEP_BYTES_MAX {
            parts.prepend(part);
            break;
        }
        let mut run = vec![part];
        while run.len() < SLICES_MAX
            && let Some(next @ Part::Memory(_)) = parts.pop_memory()
        {
            run.push(next);
        }
        let bytes = spill.append(&run)?;
        written += usize::try_from(bytes).unwrap_or(usize::MAX);
        moved.push(Part::File {
            file: Arc::clone(&spill.file),
            offset: spill.bytes - bytes,
            bytes,
            edition: None,
        });
    }
    moved.append(&mut parts);
    Ok((moved, Some(spill)))
}

impl SpillFile {
    /// Appends buffers; gives their bytes. What is in the file is never written again: sendfile queues its pages
    /// in the socket without a copy, and the client may not have them yet.
    fn append(&mut self, run: &[Part]) -> io::Result<u64> {
        let buffers = run.iter().filter_map(|part| match part {
            Part::Memory(data) => Some(IoSlice::new(data)),
            Part::File { .. } => None,
        });
        let mut slices: Vec<_> = buffers.collect();
        let mut slices = slices.as_mut_slice();
        let mut appended = 0;
        while !slices.is_empty() {
            let written = match rustix::io::pwritev(&*self.file, slices, self.bytes + appended) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            appended += written as u64;
            IoSlice::advance_slices(&mut slices, written);
        }
        self.bytes += appended;
        Ok(appended)
    }
}
