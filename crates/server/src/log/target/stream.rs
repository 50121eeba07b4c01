//! Standard output and standard error, whatever they are: a file, a terminal, a pipe to a container's
//! daemon, the journal's socket.
//!
//! They are shared with the rest of the process and with its parents, so their flags are left alone:
//! O_NONBLOCK would be everybody's. A reader that is stuck must not hold the log up for ever, nor the end
//! of the process.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendFlags};

/// A pipe that can be written takes this much without waiting, and in one piece: Linux's PIPE_BUF, see
/// pipe(7).
const PIPE_BYTES: usize = 4096;
/// Slices of one call: Linux's UIO_MAXIOV.
const SLICES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Takes what it is given, when the disk does.
    File,
    /// A pipe or a terminal.
    Narrow,
    Socket,
}

impl Stream {
    /// A stream of the process, by a descriptor of its own.
    pub(super) fn of(stream: impl AsFd) -> io::Result<Stream> {
        let file = File::from(stream.as_fd().try_clone_to_owned()?);
        let kind = file.metadata()?.file_type();
        let kind = if kind.is_socket() {
            Kind::Socket
        } else if kind.is_fifo() || file.is_terminal() {
            Kind::Narrow
        } else {
            Kind::File
        };
        Ok(Stream { file, kind })
    }

    pub(super) fn write(&mut self, lines: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let written = match self.kind {
                Kind::File => self.file.write_vectored(lines),
                Kind::Narrow => self.trickle(lines),
                Kind::Socket => {
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    let mut control = SendAncillaryBuffer::default();
                    let lines = &lines[..lines.len().min(SLICES_MAX)];
                    rustix::net::sendmsg(&self.file, lines, &mut control, flags)
                        .map_err(io::Error::from)
                }
            };
            match written {
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Writes pieces that the other end has room for.
    fn trickle(&mut self, lines: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for line in lines {
            let mut rest = &line[..];
            while !rest.is_empty() {
                let written = match self.write_piece(rest) {
                    Err(_) if taken > 0 => return Ok(taken),
                    Ok(0) => return Ok(taken),
                    written => written?,
                };
                taken += written;
                rest = &rest[written..];
            }
        }
        Ok(taken)
    }

    fn write_piece(&mut self, rest: &[u8]) -> io::Result<usize> {
        if !self.has_room()? {
            return Ok(0);
        }
        self.file.write(&rest[..piece_bytes(rest)])
    }

    /// A reader that is gone counts as room: the write says so.
    fn has_room(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.file, PollFlags::OUT)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        Ok(rustix::event::poll(&mut polled, Some(&at_once))? > 0)
    }
}

/// Whole lines as far as they fit: others write to the same pipe.
fn piece_bytes(lines: &[u8]) -> usize {
    if lines.len() <= PIPE_BYTES {
        return lines.len();
    }
    memchr::memrchr(b'\n', &lines[..PIPE_BYTES]).map_or(PIPE_BYTES, |newline| newline + 1)
}
