//! Standard output and standard error, whatever they are: a file, a terminal, a pipe to a container's
//! daemon, the journal's socket.
//!
//! The rest of the process and its parents share the streams, so their flags are left alone: O_NONBLOCK would
//! hold for all of them. A stuck reader must block neither the log nor the end of the process.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, IoSlice, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendFlags};

/// A pipe that can be written takes this much without waiting, and in one piece: Linux's PIPE_BUF, see
/// pipe(7).
const PIPE_BYTES: usize = 4096;
/// Slices of one call: Linux's UIO_MAXIOV.
const SLICES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct StandardStream {
    file: File,
    kind: StreamKind,
    is_journal: bool,
    is_terminal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamKind {
    /// Takes what it is given, when the disk does.
    File,
    /// A pipe or a terminal.
    Narrow,
    Socket,
}

impl StandardStream {
    /// A stream of the process, by a descriptor of its own.
    pub(super) fn of(stream: impl AsFd) -> io::Result<StandardStream> {
        let file = File::from(stream.as_fd().try_clone_to_owned()?);
        let is_terminal = file.is_terminal();
        let kind = file.metadata()?.file_type();
        let kind = if kind.is_socket() {
            StreamKind::Socket
        } else if kind.is_fifo() || is_terminal {
            StreamKind::Narrow
        } else {
            StreamKind::File
        };
        let journal = std::env::var("JOURNAL_STREAM").ok();
        let is_journal = is_journal(&file.metadata()?, journal.as_deref());
        Ok(StandardStream {
            file,
            kind,
            is_journal,
            is_terminal,
        })
    }

    /// Whether systemd's journal reads the stream.
    pub(super) fn is_journal(&self) -> bool {
        self.is_journal
    }

    /// Whether people read the stream as it is written.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    pub(super) fn write(&mut self, lines: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let written = match self.kind {
                StreamKind::File => self.file.write_vectored(lines),
                StreamKind::Narrow => self.write_pieces(lines),
                StreamKind::Socket => {
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

    /// Writes pieces as long as the other end takes them.
    fn write_pieces(&mut self, lines: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for line in lines {
            let mut rest = &line[..];
            while !rest.is_empty() {
                let written = match self.write_piece(rest) {
                    // The next call says why: what was taken must be counted off first.
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
        if !self.has_space()? {
            return Ok(0);
        }
        self.file.write(&rest[..piece_bytes(rest)])
    }

    /// Whether a write would take something; a reader that is gone counts, because the write says so.
    fn has_space(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.file, PollFlags::OUT)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        Ok(rustix::event::poll(&mut polled, Some(&at_once))? > 0)
    }
}

/// Whether the file is the one that `JOURNAL_STREAM` names.
fn is_journal(file: &Metadata, journal: Option<&str>) -> bool {
    // The variable alone proves nothing: it is inherited by programs whose streams were redirected since
    // (systemd.exec(5)).
    journal.is_some_and(|journal| journal == format!("{}:{}", file.dev(), file.ino()))
}

/// Whole lines as far as they fit.
fn piece_bytes(lines: &[u8]) -> usize {
    if lines.len() <= PIPE_BYTES {
        return lines.len();
    }
    // Others write to the same pipe: a piece that ends within a line would be continued behind theirs.
    memchr::memrchr(b'\n', &lines[..PIPE_BYTES]).map_or(PIPE_BYTES, |newline| newline + 1)
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn write(stream: &mut StandardStream, text: &str) -> io::Result<usize> {
        stream.write(&[IoSlice::new(text.as_bytes())])
    }

    fn read(reader: &mut PipeReader, bytes: usize) -> String {
        let mut text = vec![0; bytes];
        reader.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_stuck_reader_blocks_nothing() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut stream = StandardStream::of(&writer).unwrap();
        let text: String = (0..100_000).map(|number| format!("{number}\n")).collect();
        let mut taken = write(&mut stream, &text).unwrap();
        assert!(taken > 0 && taken < text.len());
        assert_eq!(write(&mut stream, &text[taken..]).unwrap(), 0);
        let mut all = read(&mut reader, taken);
        while taken < text.len() {
            let more = write(&mut stream, &text[taken..]).unwrap();
            all.push_str(&read(&mut reader, more));
            taken += more;
        }
        assert!(all == text);
    }

    #[test]
    fn leaves_the_flags_of_a_shared_pipe_alone() {
        let (_reader, writer) = io::pipe().unwrap();
        let stream = StandardStream::of(&writer).unwrap();
        assert_eq!(stream.kind, StreamKind::Narrow);
        let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        let (dir, file) = (tempfile::tempdir().unwrap(), tempfile::tempfile().unwrap());
        let named = |meta: &Metadata| format!("{}:{}", meta.dev(), meta.ino());
        let (ours, other) = (file.metadata().unwrap(), dir.path().metadata().unwrap());
        for (journal, expect) in [
            (None, false),
            (Some(named(&ours)), true),
            (Some(named(&other)), false),
            (Some(String::new()), false),
        ] {
            assert_eq!(is_journal(&ours, journal.as_deref()), expect, "{journal:?}");
        }
    }

    #[test]
    fn says_that_the_reader_is_gone() {
        let (reader, writer) = io::pipe().unwrap();
        let mut stream = StandardStream::of(&writer).unwrap();
        drop(reader);
        let fault = write(&mut stream, "line\n").unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_piece_ends_with_a_line_where_it_can() {
        let line = "x".repeat(99) + "\n";
        let long = "y".repeat(5_000);
        for (text, expect) in [
            (line.clone(), 100),
            (line.repeat(41), 4_100 - 100),
            (long.clone(), PIPE_BYTES),
            (line + &long, 100),
        ] {
            let expect = if text.len() <= PIPE_BYTES {
                text.len()
            } else {
                expect
            };
            assert_eq!(piece_bytes(text.as_bytes()), expect);
        }
    }

    #[test]
    fn a_full_socket_blocks_nothing() {
        let (writer, mut reader) = UnixStream::pair().unwrap();
        let mut stream = StandardStream::of(&writer).unwrap();
        let text = "line\n".repeat(1 << 20);
        let taken = write(&mut stream, &text).unwrap();
        assert!(taken > 0 && taken < text.len());
        let fault = write(&mut stream, &text[taken..]).unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::WouldBlock);
        let mut all = vec![0; taken];
        reader.read_exact(&mut all).unwrap();
        assert!(all == text.as_bytes()[..taken]);
    }

    #[test]
    fn a_file_takes_all() {
        let mut file = tempfile::tempfile().unwrap();
        let mut stream = StandardStream::of(&file).unwrap();
        let slices = [b"one\n", b"two\n"].map(|line| IoSlice::new(line));
        assert_eq!(stream.write(&slices).unwrap(), 8);
        io::Seek::rewind(&mut file).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }
}
