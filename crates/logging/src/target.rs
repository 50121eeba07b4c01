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

pub(super) use self::file::LogFile;
use self::socket::SyslogSocket;
use self::stream::StandardStream;
pub(super) use self::syslog::severity;
use super::format::ErrorForm;
use config::typed::{Level, LogTarget};

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
    /// Opens what is meant; `name` says in each message to syslog which log it is of.
    ///
    /// # Errors
    /// When a file or a socket cannot be opened, or is of a kind that no log goes to.
    pub(super) fn open(meant: &LogTarget, name: &'static str) -> io::Result<OpenTarget> {
        Ok(match meant {
            LogTarget::Stdout => OpenTarget::Stream(StandardStream::of(io::stdout())?),
            LogTarget::Stderr => OpenTarget::Stream(StandardStream::of(io::stderr())?),
            LogTarget::File(path) => OpenTarget::File(LogFile::open(path)?),
            LogTarget::Syslog(facility) => {
                let path = Path::new(syslog::SOCKET);
                OpenTarget::Syslog(Box::new(SyslogSocket::connect(path, *facility, name)?))
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

    /// The file, which alone has a size, and can be opened again and rotated.
    pub(super) fn file(&self) -> Option<&LogFile> {
        match self {
            OpenTarget::File(file) => Some(file),
            OpenTarget::Stream(_) | OpenTarget::Syslog(_) => None,
        }
    }

    /// As `file`, to change it.
    pub(super) fn file_mut(&mut self) -> Option<&mut LogFile> {
        match self {
            OpenTarget::File(file) => Some(file),
            OpenTarget::Stream(_) | OpenTarget::Syslog(_) => None,
        }
    }

    /// Whether people read it as it is written.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, OpenTarget::Stream(stream) if stream.is_terminal())
    }

    /// The form of error lines that it needs.
    pub(super) fn error_form(&self) -> ErrorForm {
        match self {
            OpenTarget::Stream(stream) if stream.is_journal() => ErrorForm::Journal,
            OpenTarget::File(_) | OpenTarget::Stream(_) => ErrorForm::Text,
            OpenTarget::Syslog(_) => ErrorForm::Syslog,
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
            let mut target = OpenTarget::open(&meant, "access").unwrap();
            assert_eq!(target.file().is_some_and(LogFile::is_regular), is_file);
            assert_eq!(target.error_form(), ErrorForm::Text, "{meant:?}");
            if is_file {
                let lines = [IoSlice::new(b"line\n")];
                assert_eq!(target.write(Level::Warning, &lines, 0).unwrap(), 5);
            }
        }
    }

    #[test]
    fn a_full_pipe_takes_nothing_and_is_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let _reader = crate::tests::stuck_pipe(&path);
        let mut target = OpenTarget::open(&LogTarget::File(path), "access").unwrap();
        let lines = vec![b'\n'; 4 << 20];
        let lines = [IoSlice::new(&lines)];
        assert!(target.write(Level::Info, &lines, 0).unwrap() > 0);
        assert_eq!(target.write(Level::Info, &lines, 0).unwrap(), 0);
    }
}
