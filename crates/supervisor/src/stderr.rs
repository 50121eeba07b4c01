//! Messages of the supervisor on standard error, which never wait long for a reader.
//!
//! A pipe that is not emptied takes no more at some point. Messages without room are dropped, and their number is
//! written once the pipe is read again: processes, sockets and signals do not wait for a reader.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, ReadWriteFlags, pwritev2, write};

/// A pipe takes so many bytes at once or none (PIPE_BUF).
const CHUNK_BYTES: usize = 4096;
/// Time for a reader that has kept up so far.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
const NONE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Texts that found no room since the last that did.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Says a text of several lines as it is.
pub(super) fn talk(text: &str) {
    let stderr = std::io::stderr();
    let stderr = stderr.as_fd();
    let lost = LOST.load(Ordering::Relaxed);
    if lost > 0 {
        let text = format!("milepost: {lost} messages were lost: standard error was not read\n");
        if !put(stderr, text.as_bytes(), NONE) {
            // This message is lost as well: what was lost before must be said first.
            LOST.store(lost + 1, Ordering::Relaxed);
            return;
        }
    }
    let is_said = put(stderr, text.as_bytes(), PATIENCE);
    LOST.store(u64::from(!is_said), Ordering::Relaxed);
}

/// Says one line.
pub(super) fn say(text: &str) {
    talk(&format!("milepost: {text}\n"));
}

/// Whether it was taken.
fn put(to: BorrowedFd<'_>, text: &[u8], patience: Timespec) -> bool {
    let stat = fstat(to);
    let is_file = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
    let mut left = text;
    while !left.is_empty() {
        let chunk = &left[..left.len().min(CHUNK_BYTES)];
        let mut watched = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        if matches!(poll(&mut watched, Some(&patience)), Ok(0)) {
            return false;
        }
        let put = match is_file {
            true => write(to, chunk),
            false => write_now(to, chunk),
        };
        match put {
            Ok(bytes) => left = &left[bytes..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            // A missing reader is no reason to fail, or to try again.
            Err(_) => return true,
        }
    }
    true
}

/// Between the look and the write, another process may have taken the room.
fn write_now(to: BorrowedFd<'_>, chunk: &[u8]) -> rustix::io::Result<usize> {
    // At the place where it stands, as a pipe has no other (pwritev2(2)).
    let here = u64::MAX;
    match pwritev2(to, &[IoSlice::new(chunk)], here, ReadWriteFlags::NOWAIT) {
        // Terminals, and pipes before Linux 6.4.
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::SPIPE | Errno::NOSYS) => write(to, chunk),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn gives_up_on_a_pipe_that_nobody_reads_and_goes_on_when_somebody_does() {
        let (mut read, write) = std::io::pipe().unwrap();
        let text = [b'x'; 1000];
        let mut puts = 0;
        while put(write.as_fd(), &text, NONE) {
            puts += 1;
        }
        assert!(puts > 0);
        let mut all = vec![0; 1 << 20];
        assert_eq!(read.read(&mut all).unwrap(), puts * 1000);
        assert!(put(write.as_fd(), &[b'y'; 10_000], NONE));
    }

    #[test]
    fn does_not_mind_a_pipe_without_a_reader() {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        assert!(put(write.as_fd(), b"x", NONE));
    }
}
