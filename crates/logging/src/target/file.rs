//! A log file: opening, writing, and the change to a new file.
//!
//! A line is never continued in another file than the one that has its start. The new file is open before the old one
//! is closed, so that a fault leaves everything as it was.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind, IoSlice, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use os::invariant;
use rustix::fs::{FlockOperation, Mode, OFlags};

use super::{Continuation, PartialLine, Rotated};
use crate::archive;

/// Readable by all, as logs of other servers are; the process's umask narrows it.
const MODE: u32 = 0o644;

#[derive(Debug)]
pub(crate) struct LogFile {
    file: File,
    path: PathBuf,
    kind: FileKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Regular,
    /// Opened with O_NONBLOCK: a stuck reader must not block the log.
    Pipe,
    Device,
}

impl LogFile {
    /// Opens for appending; makes the file when there is none.
    pub(crate) fn open(path: &Path) -> io::Result<LogFile> {
        // Without O_NONBLOCK the open of a named pipe waits for its reader.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(MODE));
        let file = File::from(opened.map_err(|fault| explain(path, fault.into()))?);
        let kind = kind_of(&file.metadata()?)?;
        // Only a pipe needs it from here on: a disk never says that it would block.
        if kind != FileKind::Pipe {
            rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
        }
        lock_shared(&file);
        Ok(LogFile {
            file,
            // An application may change the current folder of the process.
            path: std::path::absolute(path)?,
            kind,
        })
    }

    /// Appends; may take less than all.
    pub(crate) fn write(&mut self, lines: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match self.file.write_vectored(lines) {
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Whether it can be rotated.
    pub(crate) fn is_regular(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Bytes in the file now; 0 for what has no size.
    pub(crate) fn bytes(&self) -> u64 {
        match self.kind {
            FileKind::Regular => self.file.metadata().map_or(0, |meta| meta.len()),
            FileKind::Pipe | FileKind::Device => 0,
        }
    }

    /// When it was last written, in nanoseconds since 1970 UTC; `None` for an empty file.
    pub(crate) fn written_ns(&self) -> Option<u64> {
        let meta = self.file.metadata().ok()?;
        (self.is_regular() && meta.len() > 0).then_some(())?;
        let since = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_nanos()).ok()
    }

    /// Whether what was last written here is the end of the file.
    pub(crate) fn ends_with_ours(&self) -> bool {
        self.is_regular()
            .then(|| self.end())
            .is_none_or(|end| end.is_some())
    }

    /// The end of the file, when what was last written here is there.
    fn end(&self) -> Option<u64> {
        // The kernel leaves the position of a descriptor behind what it appended: a longer file was appended to by
        // another program, a shorter one was truncated.
        let position = (&self.file).stream_position().ok()?;
        let meta = self.file.metadata().ok()?;
        (meta.len() == position).then_some(position)
    }

    /// Opens the file again by its name, then closes the old one.
    ///
    /// # Errors
    /// When the new file cannot be opened. Nothing has changed then.
    pub(crate) fn reopen(&mut self, partial: Option<PartialLine<'_>>) -> io::Result<Continuation> {
        let new = Self::open(&self.path)?;
        if new.is_same_as(&self.file.metadata()?)? {
            return Ok(Continuation::Continues);
        }
        Ok(self.change_to(new, partial))
    }

    /// Moves the file into the archive, under a name made of `wall_ns`, and continues in a new file; only a regular
    /// file that is not empty.
    ///
    /// # Errors
    /// When it cannot be renamed or the new one cannot be made. Nothing has changed then.
    pub(crate) fn rotate(
        &mut self,
        partial: Option<PartialLine<'_>>,
        wall_ns: u64,
    ) -> io::Result<Rotated> {
        if self.bytes() == 0 {
            let continuation = Continuation::Continues;
            return Ok(Rotated {
                continuation,
                old: None,
            });
        }
        // A link to a log is kept: the file behind it is what is renamed.
        let path = std::fs::canonicalize(&self.path);
        let meta = self.file.metadata()?;
        let path = match path.and_then(|path| Ok((std::fs::metadata(&path)?, path))) {
            Ok((there, path)) if is_same(&there, &meta) => path,
            // Another program renamed or removed it: the file there now is not ours to rename.
            Ok(_) => return self.reopen_instead(partial),
            Err(fault) if fault.kind() == ErrorKind::NotFound => {
                return self.reopen_instead(partial);
            }
            Err(fault) => return Err(fault),
        };
        // The log has no name for a moment; another process that opens it makes the new file, which is taken below.
        let old = archive::move_away(&path, wall_ns / 1_000_000_000)?;
        // Another process of this server may have put its new file there since.
        if !std::fs::metadata(&old).is_ok_and(|there| is_same(&there, &meta)) {
            let _ = archive::rename_new(&old, &path);
            return self.reopen_instead(partial);
        }
        let new = create_like(&path, &meta).inspect_err(|_| {
            // Should this fail too, the log stays in the open file, whatever its name.
            let _ = archive::rename_new(&old, &path);
        })?;
        lock_shared(&new);
        let new = LogFile {
            file: new,
            path: self.path.clone(),
            kind: FileKind::Regular,
        };
        let continuation = self.change_to(new, partial);
        let old = Some(old);
        Ok(Rotated { continuation, old })
    }

    fn reopen_instead(&mut self, partial: Option<PartialLine<'_>>) -> io::Result<Rotated> {
        let continuation = self.reopen(partial)?;
        Ok(Rotated {
            continuation,
            old: None,
        })
    }

    /// Completes or retracts a partial line in the old file, and continues in the new one.
    fn change_to(&mut self, new: LogFile, partial: Option<PartialLine<'_>>) -> Continuation {
        let continuation = partial.map_or(Continuation::Continues, |partial| {
            self.complete_or_retract(partial)
        });
        // The old descriptor is closed last: its number cannot become another file's while it is in use.
        drop(std::mem::replace(self, new));
        continuation
    }

    /// Completes the line; or else removes its start; or else leaves it.
    fn complete_or_retract(&mut self, partial: PartialLine<'_>) -> Continuation {
        if !self.ends_with_ours() {
            return Continuation::Torn;
        }
        let mut written = partial.written_bytes;
        invariant!(
            (1..partial.line.len()).contains(&written),
            "{written} bytes of a line of {} are called a part of it",
            partial.line.len()
        );
        while written < partial.line.len() {
            match self.write(&[IoSlice::new(&partial.line[written..])]) {
                // A full disk: what is there of the line is taken off again, so that it is whole in the new file.
                Ok(0) | Err(_) => return self.retract(written),
                Ok(bytes) => written += bytes,
            }
        }
        Continuation::Completed
    }

    /// Removes the last bytes, unless another program has written behind them.
    fn retract(&mut self, bytes: usize) -> Continuation {
        let end = self.is_regular().then(|| self.end()).flatten();
        let start = end.and_then(|end| end.checked_sub(bytes as u64));
        match start.map(|start| self.file.set_len(start)) {
            Some(Ok(())) => Continuation::Retracted,
            Some(Err(_)) | None => Continuation::Torn,
        }
    }

    fn is_same_as(&self, other: &Metadata) -> io::Result<bool> {
        Ok(is_same(&self.file.metadata()?, other))
    }
}

/// Keeps archivers from compressing a file that is still written to.
fn lock_shared(file: &File) {
    // Another process may have renamed it, such as the next one of this server while this one drains. Where the file
    // system has no locks, nothing is locked.
    let _ = rustix::fs::flock(file, FlockOperation::NonBlockingLockShared);
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Makes the new file, with the mode and the owner of the old one; one that another process has made is taken as it
/// is.
fn create_like(path: &Path, old: &Metadata) -> io::Result<File> {
    // Rotation must give no user a right to read.
    let mode = old.mode() & 0o777;
    let mut options = File::options();
    options.append(true).mode(mode);
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            // Only root may give files away. The umask may have narrowed the mode.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
            let _ = file.set_permissions(Permissions::from_mode(mode));
            Ok(file)
        }
        // Another process of the server rotated at the same time: all of them go on in its file.
        Err(fault) if fault.kind() == ErrorKind::AlreadyExists => options.open(path),
        Err(fault) => Err(fault),
    }
}

fn kind_of(meta: &Metadata) -> io::Result<FileKind> {
    let kind = meta.file_type();
    if kind.is_file() {
        Ok(FileKind::Regular)
    } else if kind.is_fifo() {
        Ok(FileKind::Pipe)
    } else if kind.is_char_device() {
        Ok(FileKind::Device)
    } else {
        let text = "is neither a file nor a pipe nor a character device";
        Err(io::Error::new(ErrorKind::InvalidInput, text))
    }
}

/// Puts ENXIO into words.
fn explain(path: &Path, fault: io::Error) -> io::Error {
    if fault.raw_os_error() != Some(libc::ENXIO) {
        return fault;
    }
    let is_pipe = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
    let text = if is_pipe {
        "is a pipe without a reader"
    } else {
        "is a socket, which cannot be opened by its name (standard output is called `stdout`)"
    };
    io::Error::new(fault.kind(), text)
}

#[cfg(test)]
mod tests;
