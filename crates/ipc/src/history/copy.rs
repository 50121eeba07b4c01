//! Copies of the history, or of its sums alone, for those who have its file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use telemetry::history::{HISTORY_BYTES, HeldHistory, HeldSums, HistoryFault, WORD_BYTES, header};

use super::wall_us;

/// Copies that are made at most: names and sums change for a moment, once a second at most.
const COPIES_MAX: usize = 100;

/// Why there is no copy.
#[derive(Debug)]
pub enum CopyFault {
    /// The kernel's.
    Read(io::Error),
    /// What was read cannot be understood.
    History(HistoryFault),
}

/// The requests that ended in the last so many seconds.
///
/// # Errors
/// It cannot be read, or is no history of this version.
pub fn requests(file: &File, secs: u64) -> Result<HeldHistory, CopyFault> {
    // One byte more says that there is more than this version knows.
    whole(file, HISTORY_BYTES + 1, &|bytes| {
        let now_us = wall_us();
        let from_us = now_us.saturating_sub(secs.saturating_mul(1_000_000));
        HeldHistory::read(bytes, from_us, now_us)
    })
}

/// The sums.
///
/// # Errors
/// As [`requests`].
pub fn sums(file: &File) -> Result<HeldSums, CopyFault> {
    whole(file, HeldSums::BYTES, &|bytes| {
        HeldSums::read(bytes, wall_us() / 1_000_000)
    })
}

fn whole<T>(
    file: &File,
    bytes_max: usize,
    read: &dyn Fn(Vec<u8>) -> Result<T, HistoryFault>,
) -> Result<T, CopyFault> {
    for _ in 0..COPIES_MAX {
        let before = turns(file).map_err(CopyFault::Read)?;
        let bytes = copied(file, bytes_max).map_err(CopyFault::Read)?;
        match read(bytes) {
            Ok(copy) if turns(file).map_err(CopyFault::Read)? == before => return Ok(copy),
            Ok(_) | Err(HistoryFault::Changing) => {}
            Err(fault) => return Err(CopyFault::History(fault)),
        }
    }
    Err(CopyFault::History(HistoryFault::Changing))
}

/// How often names and sums have changed; 0 where there is no such word.
fn turns(file: &File) -> io::Result<[u64; 2]> {
    let mut turns = [0; 2];
    for (turn, at) in turns
        .iter_mut()
        .zip([header::NAMES_TURN_AT, header::SUMS_TURN_AT])
    {
        let mut bytes = [0; WORD_BYTES];
        if file.read_at(&mut bytes, (at * WORD_BYTES) as u64)? == WORD_BYTES {
            *turn = u64::from_le_bytes(bytes);
        }
    }
    Ok(turns)
}

fn copied(file: &File, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; bytes_max];
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}
