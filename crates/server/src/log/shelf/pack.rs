//! Compresses one old file: into a `.part`, which gets its name only when all of it is on the disk.
//!
//! The original is deleted last; whatever happens in between, the lines are there. A lock on the original
//! keeps two processes from compressing it at once.

use std::fs::{File, FileTimes, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::{remove, rename_new};
use crate::config::meant::LogCompression;

/// Bytes between two looks at whether to stop.
const PIECE_BYTES: usize = 64 << 10;
const ZSTD_LEVEL: i32 = 3;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Asked to stop: as it was before.
    Stopped,
    /// Somebody else compresses it or still writes to it: as it was before.
    InUse,
}

/// Where an old file is in its three forms.
#[derive(Debug)]
pub(super) struct Paths<'a> {
    pub(super) plain: &'a Path,
    pub(super) packed: &'a Path,
    pub(super) part: &'a Path,
}

/// Compresses the plain file, unless `stop` becomes true. The compressed one has the mode, the owner as far
/// as that is allowed, and the time of the original.
///
/// # Errors
/// What the disk says, and when there is a compressed file of other content. The original is there then.
pub(super) fn pack(
    paths: &Paths<'_>,
    coding: LogCompression,
    stop: &AtomicBool,
) -> io::Result<Outcome> {
    let Some(mut plain) = lock(paths.plain)? else {
        return Ok(Outcome::InUse);
    };
    if paths.packed.try_exists()? {
        return finish_other(&mut plain, paths, coding, stop);
    }
    remove(paths.part)?;
    let outcome = write_part(&mut plain, paths.part, coding, stop);
    let outcome = outcome.and_then(|outcome| match outcome {
        Outcome::Done => publish(paths).map(|()| outcome),
        other => Ok(other),
    });
    if !matches!(outcome, Ok(Outcome::Done)) {
        let _ = remove(paths.part);
    }
    outcome
}

/// Opens an old file that nobody else is compressing; `None` when somebody is.
pub(super) fn lock(path: &Path) -> io::Result<Option<File>> {
    let mut options = File::options();
    let options = options.read(true).custom_flags(libc::O_NOFOLLOW);
    let file = match options.open(path) {
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        // Where there are no locks there is nobody to fear but a second process of ours.
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => {}
        Err(fault) => return Err(fault.into()),
    }
    // Whoever had the lock before may have finished.
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.ino() == file.metadata()?.ino() => Ok(Some(file)),
        _ => Ok(None),
    }
}

fn write_part(
    plain: &mut File,
    part: &Path,
    coding: LogCompression,
    stop: &AtomicBool,
) -> io::Result<Outcome> {
    let before = plain.metadata()?;
    let mut options = File::options();
    let out = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(part)?;
    let mut encoder = Encoder::new(out, coding)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut read_bytes = 0;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(Outcome::Stopped);
        }
        match plain.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => {
                encoder.write_all(&piece[..bytes])?;
                read_bytes += bytes as u64;
            }
            Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
            Err(fault) => return Err(fault),
        }
    }
    let out = encoder.finish()?;
    let after = plain.metadata()?;
    let is_still = after.len() == read_bytes && after.modified()? == before.modified()?;
    if !is_still {
        return Ok(Outcome::InUse);
    }
    dress(&out, &after)?;
    out.sync_all()?;
    Ok(Outcome::Done)
}

/// Gives a file the owner, mode and time of another one.
fn dress(file: &File, like: &Metadata) -> io::Result<()> {
    // Only root may give files away.
    let _ = std::os::unix::fs::fchown(file, Some(like.uid()), Some(like.gid()));
    file.set_permissions(like.permissions())?;
    file.set_times(FileTimes::new().set_modified(like.modified()?))
}

fn publish(paths: &Paths<'_>) -> io::Result<()> {
    rename_new(paths.part, paths.packed)?;
    if let Some(folder) = paths.packed.parent() {
        File::open(folder)?.sync_all()?;
    }
    remove(paths.plain)
}

/// A process was killed after it gave the compressed file its name: the original goes when it has the same
/// content, and neither is touched when not.
fn finish_other(
    plain: &mut File,
    paths: &Paths<'_>,
    coding: LogCompression,
    stop: &AtomicBool,
) -> io::Result<Outcome> {
    let packed = File::open(paths.packed)?;
    let outcome = match coding {
        LogCompression::Gzip => compare(plain, &mut MultiGzDecoder::new(packed), stop),
        LogCompression::Zstd => compare(plain, &mut zstd::Decoder::new(packed)?, stop),
    };
    match outcome {
        Ok(Some(Outcome::Done)) => remove(paths.plain).map(|()| Outcome::Done),
        Ok(Some(other)) => Ok(other),
        Ok(None) | Err(_) => {
            let text = format!(
                "`{}` is there already and has other lines",
                paths.packed.display()
            );
            Err(io::Error::new(ErrorKind::AlreadyExists, text))
        }
    }
}

/// `Done`: they are equal; `None`: they are not.
fn compare(
    one: &mut impl Read,
    other: &mut impl Read,
    stop: &AtomicBool,
) -> io::Result<Option<Outcome>> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(Some(Outcome::Stopped));
        }
        a.clear();
        b.clear();
        one.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut a)?;
        other
            .by_ref()
            .take(PIECE_BYTES as u64)
            .read_to_end(&mut b)?;
        if a != b {
            return Ok(None);
        }
        if a.is_empty() {
            return Ok(Some(Outcome::Done));
        }
    }
}

enum Encoder {
    Gzip(GzEncoder<File>),
    Zstd(zstd::Encoder<'static, File>),
}

impl Encoder {
    fn new(out: File, coding: LogCompression) -> io::Result<Self> {
        Ok(match coding {
            LogCompression::Gzip => Encoder::Gzip(GzEncoder::new(out, Compression::default())),
            LogCompression::Zstd => {
                let mut encoder = zstd::Encoder::new(out, ZSTD_LEVEL)?;
                // As gzip has: a file that rots is found out.
                encoder.include_checksum(true)?;
                Encoder::Zstd(encoder)
            }
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<File> {
        match self {
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Zstd(encoder) => encoder.finish(),
        }
    }
}
