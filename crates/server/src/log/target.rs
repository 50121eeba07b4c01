//! Targets: the ends of the log, where lines leave the process.
//!
//! Takes whole lines and says how many bytes it took: less than all means that it takes no more now, and
//! the rest is given again. Keeps no line, formats none, starts no thread; `file` knows how a file is
//! renewed, `socket` how a daemon is spoken to.

mod file;
mod journal;
mod socket;
mod stream;
mod syslog;

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use self::file::LogFile;
use self::socket::Socket;
use self::stream::Stream;
use crate::config::meant::{Level, LogTarget};

/// Which log it is: daemons are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// The access log.
    Access,
    /// The error log.
    Errors,
}

impl Voice {
    fn name(self) -> &'static str {
        match self {
            Voice::Access => "access",
            Voice::Errors => "error",
        }
    }
}

/// Where the daemons listen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    syslog: &'a Path,
    journal: &'a Path,
}

/// One open end: a file, a standard stream, or a daemon's socket.
#[derive(Debug)]
pub(super) struct Target(End);

#[derive(Debug)]
enum End {
    File(LogFile),
    Stream(Stream),
    Socket(Box<Socket>),
}

/// A line that the target took in part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut<'a> {
    /// All of it, with its newline.
    pub(super) line: &'a [u8],
    /// Bytes of it that were taken: more than none, less than all.
    pub(super) written_bytes: usize,
}

/// What became of a line that was cut, when its file was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Seam {
    /// It is still the same file, or no line was cut: write on where you were.
    Continues,
    /// The old file has all of it: it is done with.
    Completed,
    /// Its start is gone from the old file: write it from its beginning.
    TakenBack,
    /// A fragment stays in the old file: write it from its beginning.
    Torn,
}

/// What a rotation did.
#[derive(Debug)]
#[must_use]
pub(super) struct Rotated {
    /// What became of a line that was cut.
    pub(super) seam: Seam,
    /// What the old file is called now. `None`: it was empty and goes on, or somebody else had renamed it.
    pub(super) old: Option<PathBuf>,
}

impl Places<'static> {
    /// Where they listen on every system.
    pub(super) fn usual() -> Self {
        Self {
            syslog: Path::new(syslog::SOCKET),
            journal: Path::new(journal::SOCKET),
        }
    }
}

impl Target {
    /// Opens what is meant.
    ///
    /// # Errors
    /// When a file or a socket cannot be opened, or is of a kind that no log goes to.
    pub(super) fn open(meant: &LogTarget, voice: Voice, places: Places<'_>) -> io::Result<Target> {
        let end = match meant {
            LogTarget::Stdout => End::Stream(Stream::of(io::stdout())?),
            LogTarget::Stderr => End::Stream(Stream::of(io::stderr())?),
            LogTarget::File(path) => End::File(LogFile::open(path)?),
            LogTarget::Syslog(facility) => {
                End::Socket(Box::new(Socket::syslog(places.syslog, *facility, voice)?))
            }
            LogTarget::Journald => End::Socket(Box::new(Socket::journal(places.journal, voice)?)),
        };
        Ok(Target(end))
    }

    /// Offers lines, all of `level`, at `wall_ns`, nanoseconds since 1970 UTC; gives how many bytes were
    /// taken. A line may begin in one slice and end in the next one.
    ///
    /// Less than all means: no more now, come again after a pause with what was not taken first. A file and
    /// a stream may take a line in part, a daemon takes whole ones. Daemons and pipes never hold the caller
    /// up for longer than some hundred milliseconds, files as long as their disk does.
    ///
    /// # Errors
    /// When nothing was taken, and why: a full disk, a daemon that is gone. It may be tried again.
    pub(super) fn write(
        &mut self,
        level: Level,
        lines: &[IoSlice<'_>],
        wall_ns: u64,
    ) -> io::Result<usize> {
        let written = match &mut self.0 {
            End::File(file) => file.write(lines),
            End::Stream(stream) => stream.write(lines),
            End::Socket(socket) => socket.write(level, lines, wall_ns),
        };
        match written {
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// Whether it is a regular file: such a one can be rotated.
    pub(super) fn is_file(&self) -> bool {
        matches!(&self.0, End::File(file) if file.is_regular())
    }

    /// Whether it is a daemon: that keeps time and level of a line itself, so they need not be in its text.
    pub(super) fn is_daemon(&self) -> bool {
        matches!(self.0, End::Socket(_))
    }

    /// Bytes in the file, as somebody else's truncation left them; 0 for what has no size.
    pub(super) fn bytes(&self) -> u64 {
        match &self.0 {
            End::File(file) => file.bytes(),
            End::Stream(_) | End::Socket(_) => 0,
        }
    }

    /// When the file was last written, in nanoseconds since 1970 UTC; `None` for an empty one and for what
    /// is no file.
    pub(super) fn written_ns(&self) -> Option<u64> {
        match &self.0 {
            End::File(file) => file.written_ns(),
            End::Stream(_) | End::Socket(_) => None,
        }
    }

    /// Whether the rest of a line that was taken in part can be written behind its start. Not so when
    /// somebody truncated the file since (logrotate's `copytruncate`) or appended to it: the line is then to
    /// be written from its beginning.
    pub(super) fn resumes(&self) -> bool {
        match &self.0 {
            End::File(file) => file.ends_with_ours(),
            End::Stream(_) | End::Socket(_) => true,
        }
    }

    /// Opens the file anew by its name, then closes the old one; streams and sockets stay as they are.
    ///
    /// # Errors
    /// When the new file cannot be opened. Nothing has changed then.
    pub(super) fn reopen(&mut self, cut: Option<Cut<'_>>) -> io::Result<Seam> {
        match &mut self.0 {
            End::File(file) => file.reopen(cut),
            End::Stream(_) | End::Socket(_) => Ok(Seam::Continues),
        }
    }

    /// Renames the file to the name of an old one, made of `wall_ns`, and goes on in a new file; does so only
    /// for a regular file that is not empty.
    ///
    /// # Errors
    /// When it cannot be renamed or the new one cannot be made. Nothing has changed then.
    pub(super) fn rotate(&mut self, cut: Option<Cut<'_>>, wall_ns: u64) -> io::Result<Rotated> {
        match &mut self.0 {
            End::File(file) => file.rotate(cut, wall_ns),
            End::Stream(_) | End::Socket(_) => Ok(Rotated {
                seam: Seam::Continues,
                old: None,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn opens_what_is_meant_and_says_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (syslog, journal) = (dir.path().join("syslog"), dir.path().join("journal"));
        let places = Places {
            syslog: &syslog,
            journal: &journal,
        };
        let daemons = [&syslog, &journal].map(|path| UnixDatagram::bind(path).unwrap());
        let file = LogTarget::File(dir.path().join("a.log"));
        for (meant, is_file, is_daemon) in [
            (LogTarget::Stdout, false, false),
            (LogTarget::Stderr, false, false),
            (file, true, false),
            (LogTarget::File("/dev/null".into()), false, false),
            (LogTarget::Syslog(16), false, true),
            (LogTarget::Journald, false, true),
        ] {
            let mut target = Target::open(&meant, Voice::Access, places).unwrap();
            assert_eq!(target.is_file(), is_file, "{meant:?}");
            assert_eq!(target.is_daemon(), is_daemon, "{meant:?}");
            assert!(target.resumes());
            assert_eq!((target.bytes(), target.written_ns()), (0, None));
            assert_eq!(target.reopen(None).unwrap(), Seam::Continues);
            assert_eq!(target.rotate(None, 0).unwrap().old, None);
            if is_file || is_daemon {
                let lines = [IoSlice::new(b"line\n")];
                assert_eq!(target.write(Level::Warning, &lines, 0).unwrap(), 5);
            }
        }
        for (daemon, expect) in daemons
            .iter()
            .zip(["<132>1 ", "MESSAGE=line\nPRIORITY=4\n"])
        {
            let mut message = [0; 300];
            let bytes = daemon.recv(&mut message).unwrap();
            assert!(message[..bytes].starts_with(expect.as_bytes()));
        }
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
        let meant = LogTarget::File(path);
        let mut target = Target::open(&meant, Voice::Access, Places::usual()).unwrap();
        let lines = vec![b'\n'; 4 << 20];
        let lines = [IoSlice::new(&lines)];
        assert!(target.write(Level::Info, &lines, 0).unwrap() > 0);
        assert_eq!(target.write(Level::Info, &lines, 0).unwrap(), 0);
    }
}
