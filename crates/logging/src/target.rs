//! Open targets of the log: files, standard streams, the syslog daemon.
//!
//! Takes whole lines and gives the number of bytes that it took. Less than all means that it takes no more now; the
//! caller offers the rest again. Keeps no line, formats none, starts no thread.

mod file;
mod socket;
mod stream;
mod syslog;

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use self::file::LogFile;
use self::socket::SyslogSocket;
use self::stream::StandardStream;
pub(super) use self::syslog::severity;
use super::format::ErrorForm;
use config::typed::{Level, LogTarget};

/// The kind of log, which syslog has in each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogTag {
    /// The access log.
    Access,
    /// The error log.
    Errors,
}

impl LogTag {
    fn name(self) -> &'static str {
        match self {
            LogTag::Access => "access",
            LogTag::Errors => "error",
        }
    }
}

/// A file, a standard stream, or the syslog daemon's socket.
#[derive(Debug)]
pub(super) enum OpenTarget {
    File(LogFile),
    Stream(StandardStream),
    Syslog(Box<SyslogSocket>),
}

/// A line that the target took in part.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialLine<'a> {
    /// All of it, with its newline.
    pub(super) line: &'a [u8],
    /// Bytes of it that were taken: more than none, less than all.
    pub(super) written_bytes: usize,
}

/// Where to continue with a partial line after its file was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Continuation {
    /// It is still the same file, or no line was partial: continue behind what is written.
    Continues,
    /// The old file has all of it.
    Completed,
    /// Its start was removed from the old file: write it from its beginning.
    Retracted,
    /// A fragment stays in the old file: write it from its beginning.
    Torn,
}

/// What a rotation did.
#[derive(Debug)]
#[must_use]
pub(super) struct Rotated {
    /// Where to continue with a partial line.
    pub(super) continuation: Continuation,
    /// The name of the old file. `None`: it was empty and stays, or another program had renamed it.
    pub(super) old: Option<PathBuf>,
}

impl OpenTarget {
    /// Opens what is meant.
    ///
    /// # Errors
    /// When a file or a socket cannot be opened, or is of a kind that no log goes to.
    pub(super) fn open(meant: &LogTarget, tag: LogTag) -> io::Result<OpenTarget> {
        Ok(match meant {
            LogTarget::Stdout => OpenTarget::Stream(StandardStream::of(io::stdout())?),
            LogTarget::Stderr => OpenTarget::Stream(StandardStream::of(io::stderr())?),
            LogTarget::File(path) => OpenTarget::File(LogFile::open(path)?),
            LogTarget::Syslog(facility) => {
                let path = Path::new(syslog::SOCKET);
                OpenTarget::Syslog(Box::new(SyslogSocket::connect(path, *facility, tag)?))
            }
        })
    }

    /// Offers lines, all of `level`, at `wall_ns`, nanoseconds since 1970 UTC; gives how many bytes were
    /// taken. A line may begin in one slice and end in the next one.
    ///
    /// Less than all means: no more now; offer the rest after a pause. A file and a stream may take a line in part, a
    /// daemon takes whole lines. Daemons and pipes block the caller for some hundred milliseconds at most, files as
    /// long as their disk does.
    ///
    /// # Errors
    /// When nothing was taken, and why: a full disk, a daemon that is gone. It may be tried again.
    pub(super) fn write(
        &mut self,
        level: Level,
        lines: &[IoSlice<'_>],
        wall_ns: u64,
    ) -> io::Result<usize> {
        let written = match self {
            OpenTarget::File(file) => file.write(lines),
            OpenTarget::Stream(stream) => stream.write(lines),
            OpenTarget::Syslog(socket) => socket.write(level, lines, wall_ns),
        };
        match written {
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// Whether it is a regular file, which can be rotated.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, OpenTarget::File(file) if file.is_regular())
    }

    /// The form of error lines that it needs.
    pub(super) fn error_form(&self) -> ErrorForm {
        match self {
            OpenTarget::Stream(stream) if stream.is_journal() => ErrorForm::Journal,
            OpenTarget::File(_) | OpenTarget::Stream(_) => ErrorForm::Text,
            OpenTarget::Syslog(_) => ErrorForm::Syslog,
        }
    }

    /// Bytes in the file now; 0 for what has no size.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            OpenTarget::File(file) => file.bytes(),
            OpenTarget::Stream(_) | OpenTarget::Syslog(_) => 0,
        }
    }

    /// When the file was last written, in nanoseconds since 1970 UTC; `None` for an empty file and for what is no file.
    pub(super) fn written_ns(&self) -> Option<u64> {
        match self {
            OpenTarget::File(file) => file.written_ns(),
            OpenTarget::Stream(_) | OpenTarget::Syslog(_) => None,
        }
    }

    /// Whether the rest of a partial line can be written behind its start. Otherwise another program truncated the
    /// file since (logrotate's `copytruncate`) or appended to it, and the line must be written from its beginning.
    pub(super) fn resumes(&self) -> bool {
        match self {
            OpenTarget::File(file) => file.ends_with_ours(),
            OpenTarget::Stream(_) | OpenTarget::Syslog(_) => true,
        }
    }

    /// Opens the file again by its name, then closes the old one; streams and sockets stay as they are.
    ///
    /// # Errors
    /// When the new file cannot be opened. Nothing has changed then.
    pub(super) fn reopen(&mut self, partial: Option<PartialLine<'_>>) -> io::Result<Continuation> {
        match self {
            OpenTarget::File(file) => file.reopen(partial),
            OpenTarget::Stream(_) | OpenTarget::Syslog(_) => Ok(Continuation::Continues),
        }
    }

    /// Moves the file into the archive, under a name made of `wall_ns`, and continues in a new file; only a regular
    /// file that is not empty.
    ///
    /// # Errors
    /// When it cannot be renamed or the new one cannot be made. Nothing has changed then.
    pub(super) fn rotate(
        &mut self,
        partial: Option<PartialLine<'_>>,
        wall_ns: u64,
    ) -> io::Result<Rotated> {
        match self {
            OpenTarget::File(file) => file.rotate(partial, wall_ns),
            OpenTarget::Stream(_) | OpenTarget::Syslog(_) => Ok(Rotated {
                continuation: Continuation::Continues,
                old: None,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_is_meant_and_knows_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let file = LogTarget::File(dir.path().join("a.log"));
        for (meant, is_file) in [
            (LogTarget::Stdout, false),
            (LogTarget::Stderr, false),
            (file, true),
            (LogTarget::File("/dev/null".into()), false),
        ] {
            let mut target = OpenTarget::open(&meant, LogTag::Access).unwrap();
            assert_eq!(target.is_file(), is_file, "{meant:?}");
            assert_eq!(target.error_form(), ErrorForm::Text, "{meant:?}");
            assert!(target.resumes());
            assert_eq!((target.bytes(), target.written_ns()), (0, None));
            assert_eq!(target.reopen(None).unwrap(), Continuation::Continues);
            assert_eq!(target.rotate(None, 0).unwrap().old, None);
            if is_file {
                let lines = [IoSlice::new(b"line\n")];
                assert_eq!(target.write(Level::Warning, &lines, 0).unwrap(), 5);
            }
        }
    }

    #[test]
    fn syslog_keeps_time_and_level_of_a_line_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("syslog");
        let daemon = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let socket = SyslogSocket::connect(&path, 16, LogTag::Access).unwrap();
        let mut target = OpenTarget::Syslog(Box::new(socket));
        assert_eq!(target.error_form(), ErrorForm::Syslog);
        let lines = [IoSlice::new(b"line\n")];
        assert_eq!(target.write(Level::Warning, &lines, 0).unwrap(), 5);
        let mut message = [0; 300];
        let bytes = daemon.recv(&mut message).unwrap();
        assert!(message[..bytes].starts_with(b"<132>1 "));
    }

    #[test]
    fn a_full_pipe_takes_nothing_and_is_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let _reader = rustix::fs::open(&path, flags, mode).unwrap();
        let mut target = OpenTarget::open(&LogTarget::File(path), LogTag::Access).unwrap();
        let lines = vec![b'\n'; 4 << 20];
        let lines = [IoSlice::new(&lines)];
        assert!(target.write(Level::Info, &lines, 0).unwrap() > 0);
        assert_eq!(target.write(Level::Info, &lines, 0).unwrap(), 0);
    }
}
