//! A log that goes to a file: opening, writing, and changing over to a new file.
//!
//! A line is never continued in another file than the one that has its start. The new file is open before
//! the old one is closed, so that a fault leaves everything as it was.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind, IoSlice, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, Mode, OFlags};

use super::{Cut, Rotated, Seam};
use crate::log::shelf;

/// For everybody to read, as logs of other servers are; the process's umask narrows it.
const MODE: u32 = 0o644;

#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Regular,
    /// Without O_NONBLOCK a reader that is stuck would hold up its writer.
    Pipe,
    Device,
}

impl LogFile {
    /// Opens for appending; makes the file when there is none.
    pub(super) fn open(path: &Path) -> io::Result<LogFile> {
        // Without O_NONBLOCK the open of a named pipe waits for its reader.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(MODE));
        let file = File::from(opened.map_err(|fault| explain(path, fault.into()))?);
        let kind = kind_of(&file.metadata()?)?;
        if kind != Kind::Pipe {
            rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
        }
        hold(&file);
        Ok(LogFile {
            file,
            // An application may change the folder that the process is in.
            path: std::path::absolute(path)?,
            kind,
        })
    }

    /// Appends; may take less than all.
    pub(super) fn write(&mut self, lines: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match self.file.write_vectored(lines) {
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    pub(super) fn is_regular(&self) -> bool {
        self.kind == Kind::Regular
    }

    pub(super) fn bytes(&self) -> u64 {
        match self.kind {
            Kind::Regular => self.file.metadata().map_or(0, |meta| meta.len()),
            Kind::Pipe | Kind::Device => 0,
        }
    }

    pub(super) fn written_ns(&self) -> Option<u64> {
        let meta = self.file.metadata().ok()?;
        (self.is_regular() && meta.len() > 0).then_some(())?;
        let since = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_nanos()).ok()
    }

    /// Whether what was last written here is the end of the file.
    ///
    /// The kernel leaves the position of a descriptor behind what it appended: a file that is longer was
    /// appended to by somebody else, one that is shorter was truncated.
    pub(super) fn ends_with_ours(&self) -> bool {
        self.is_regular()
            .then(|| self.end())
            .is_none_or(|end| end.is_some())
    }

    /// The end of the file, when what was last written here is there.
    fn end(&self) -> Option<u64> {
        let position = (&self.file).stream_position().ok()?;
        let meta = self.file.metadata().ok()?;
        (meta.len() == position).then_some(position)
    }

    pub(super) fn reopen(&mut self, cut: Option<Cut<'_>>) -> io::Result<Seam> {
        let new = Self::open(&self.path)?;
        if new.is_same_as(&self.file.metadata()?)? {
            return Ok(Seam::Continues);
        }
        Ok(self.change_to(new, cut))
    }

    pub(super) fn rotate(&mut self, cut: Option<Cut<'_>>, wall_ns: u64) -> io::Result<Rotated> {
        if self.bytes() == 0 {
            let seam = Seam::Continues;
            return Ok(Rotated { seam, old: None });
        }
        // A link to a log is kept: the file behind it is what is renamed.
        let path = std::fs::canonicalize(&self.path);
        let meta = self.file.metadata()?;
        let path = match path.and_then(|path| Ok((std::fs::metadata(&path)?, path))) {
            Ok((there, path)) if is_same(&there, &meta) => path,
            // Somebody else renamed or removed it: what is there now is not ours to rename.
            Ok(_) => return self.reopen_instead(cut),
            Err(fault) if fault.kind() == ErrorKind::NotFound => return self.reopen_instead(cut),
            Err(fault) => return Err(fault),
        };
        let old = shelf::put(&path, wall_ns / 1_000_000_000)?;
        // Another process of this server may have put its new file there since.
        if !std::fs::metadata(&old).is_ok_and(|there| is_same(&there, &meta)) {
            let _ = shelf::take_back(&old, &path);
            return self.reopen_instead(cut);
        }
        let new = create_like(&path, &meta).inspect_err(|_| {
            // When not even this can be done, the log goes on in the file that is open, whatever its name.
            let _ = shelf::take_back(&old, &path);
        })?;
        hold(&new);
        let new = LogFile {
            file: new,
            path: self.path.clone(),
            kind: Kind::Regular,
        };
        let seam = self.change_to(new, cut);
        let old = Some(old);
        Ok(Rotated { seam, old })
    }

    fn reopen_instead(&mut self, cut: Option<Cut<'_>>) -> io::Result<Rotated> {
        let seam = self.reopen(cut)?;
        Ok(Rotated { seam, old: None })
    }

    /// Settles what is unfinished in the old file, and goes on in the new one.
    fn change_to(&mut self, new: LogFile, cut: Option<Cut<'_>>) -> Seam {
        let seam = cut.map_or(Seam::Continues, |cut| self.settle(cut));
        // The old descriptor is closed last: its number cannot become another file's while it is in use.
        drop(std::mem::replace(self, new));
        seam
    }

    /// Completes the line that was cut, or else takes its start back, or else leaves it.
    fn settle(&mut self, cut: Cut<'_>) -> Seam {
        if !self.ends_with_ours() {
            return Seam::Torn;
        }
        let mut written = cut.written_bytes;
        while written < cut.line.len() {
            match self.write(&[IoSlice::new(&cut.line[written..])]) {
                Ok(0) | Err(_) => return self.take_back(written),
                Ok(bytes) => written += bytes,
            }
        }
        Seam::Completed
    }

    /// Cuts the last bytes off, unless somebody else has written behind them.
    fn take_back(&mut self, bytes: usize) -> Seam {
        let end = self.is_regular().then(|| self.end()).flatten();
        let start = end.and_then(|end| end.checked_sub(bytes as u64));
        match start.map(|start| self.file.set_len(start)) {
            Some(Ok(())) => Seam::TakenBack,
            Some(Err(_)) | None => Seam::Torn,
        }
    }

    fn is_same_as(&self, other: &Metadata) -> io::Result<bool> {
        Ok(is_same(&self.file.metadata()?, other))
    }
}

/// Keeps everybody from compressing and deleting a file that lines still come to: another process may have
/// renamed it, such as the next one of this server while this one drains. Where there are no locks, there
/// is nothing to hold.
fn hold(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The new file has the old one's mode and owner, so that nobody may read of tomorrow what he might not of
/// today. Somebody else's new file is taken as it is.
fn create_like(path: &Path, old: &Metadata) -> io::Result<File> {
    let mode = old.mode() & 0o777;
    let mut options = File::options();
    options.append(true).mode(mode);
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            // Only root may give files away; the mode is narrower than meant where the umask says so.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
            let _ = file.set_permissions(Permissions::from_mode(mode));
            Ok(file)
        }
        Err(fault) if fault.kind() == ErrorKind::AlreadyExists => options.open(path),
        Err(fault) => Err(fault),
    }
}

fn kind_of(meta: &Metadata) -> io::Result<Kind> {
    let kind = meta.file_type();
    if kind.is_file() {
        Ok(Kind::Regular)
    } else if kind.is_fifo() {
        Ok(Kind::Pipe)
    } else if kind.is_char_device() {
        Ok(Kind::Device)
    } else {
        let text = "is neither a file nor a pipe nor a character device";
        Err(io::Error::new(ErrorKind::InvalidInput, text))
    }
}

/// ENXIO means nothing to anybody.
fn explain(path: &Path, fault: io::Error) -> io::Error {
    if fault.raw_os_error() != Some(libc::ENXIO) {
        return fault;
    }
    let is_pipe = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
    let text = if is_pipe {
        "is a pipe that nobody reads"
    } else {
        "is a socket, which cannot be opened by its name (standard output is called `stdout`)"
    };
    io::Error::new(fault.kind(), text)
}

#[cfg(test)]
mod tests;
