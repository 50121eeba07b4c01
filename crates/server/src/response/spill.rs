//! Spilling: a response that waits for its client moves from memory to an unnamed file, on a thread that may
//! wait for a disk.
//!
//! Takes the parts of a response that nobody is sending, gives them back with spans of the file in the place
//! of buffers. The order of parts stays. A disk that fails costs the response.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::blocking_pool::TaskState;
use crate::exchange::stream::{Abandoned, StreamShared};
use crate::response::{Part, Parts};
use crate::unnamed::unnamed_file;

/// Bytes that a write has at least, where a response has as many.
pub(super) const SPILL_BYTES_MIN: usize = 1 << 20;
/// Bytes that one step writes at most, before another response has its turn.
const STEP_BYTES_MAX: u64 = 8 << 20;
/// Buffers in one call (IOV_MAX is 1,024).
const SLICES_MAX: usize = 64;

/// The unnamed file of one response.
#[derive(Clone, Debug)]
pub(crate) struct SpillFile {
    file: Arc<File>,
    bytes: u64,
}

/// Writes some of a response to its file in `dir`; says whether more of it is to be written.
pub(super) fn step(stream: &Arc<StreamShared>, dir: &Path) -> TaskState {
    let Some((parts, file)) = stream.pending().take_for_spill() else {
        return TaskState::Done;
    };
    // Behind the last span of a file nothing of it is needed: a new one gives the space back.
    let file = file.filter(|_| parts.bytes().1 > 0);
    let spilled = file
        .map_or_else(|| SpillFile::new(dir), Ok)
        .and_then(|mut file| {
            let parts = file.move_buffers(parts)?;
            Ok((parts, file))
        });
    match spilled {
        Ok((parts, file)) => {
            let (is_done, unused) = stream.pending().put_back_spilled(parts, Some(file));
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

impl SpillFile {
    fn new(dir: &Path) -> io::Result<Self> {
        let file = Arc::new(unnamed_file(dir)?);
        Ok(Self { file, bytes: 0 })
    }

    /// The same parts, the first buffers of which are spans of this file now.
    fn move_buffers(&mut self, parts: Parts) -> io::Result<Parts> {
        let mut moved = Parts::default();
        let mut run = Vec::new();
        let from = self.bytes;
        for part in parts.into_parts() {
            match part {
                Part::Memory(data) if self.bytes - from < STEP_BYTES_MAX => {
                    run.push(data);
                    if run.len() == SLICES_MAX {
                        moved.push(self.append(&mut run)?);
                    }
                }
                other => {
                    moved.push(self.append(&mut run)?);
                    moved.push(other);
                }
            }
        }
        moved.push(self.append(&mut run)?);
        Ok(moved)
    }

    /// Appends buffers, and lets go of them; gives their span. What is in the file is never written again: sendfile
    /// queues its pages in the socket without a copy, and the client may not have them yet.
    fn append(&mut self, run: &mut Vec<Bytes>) -> io::Result<Part> {
        let offset = self.bytes;
        let mut slices: Vec<_> = run.iter().map(|data| IoSlice::new(data)).collect();
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            let written = match rustix::io::pwritev(&*self.file, slices, self.bytes) {
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
            file: Arc::clone(&self.file),
            offset,
            bytes: self.bytes - offset,
            edition: None,
        })
    }
}
