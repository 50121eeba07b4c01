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
        // Where there are no locks there is nobody to fear but a second process of ours. NFS has none for a
        // file that is open for reading only (flock(2), since Linux 2.6.12): EBADF.
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF) | Ok(()) => {}
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

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::{Duration, UNIX_EPOCH};

    use tempfile::TempDir;

    use super::*;

    const CODINGS: [LogCompression; 2] = [LogCompression::Gzip, LogCompression::Zstd];

    struct Place {
        dir: TempDir,
        plain: PathBuf,
        packed: PathBuf,
        part: PathBuf,
    }

    impl Place {
        fn new(content: &[u8]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = |name| dir.path().join(name);
            let (plain, packed, part) = (path("plain"), path("packed"), path("part"));
            std::fs::write(&plain, content).unwrap();
            Self {
                dir,
                plain,
                packed,
                part,
            }
        }

        fn pack(&self, coding: LogCompression, stop: bool) -> io::Result<Outcome> {
            let paths = Paths {
                plain: &self.plain,
                packed: &self.packed,
                part: &self.part,
            };
            pack(&paths, coding, &AtomicBool::new(stop))
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.dir.path()).unwrap();
            let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
            let mut names: Vec<String> = entries
                .map(|entry| name(entry).into_string().unwrap())
                .collect();
            names.sort();
            names
        }

        fn unpacked(&self, coding: LogCompression) -> Vec<u8> {
            let packed = File::open(&self.packed).unwrap();
            let mut content = Vec::new();
            match coding {
                LogCompression::Gzip => MultiGzDecoder::new(packed).read_to_end(&mut content),
                LogCompression::Zstd => zstd::Decoder::new(packed)
                    .unwrap()
                    .read_to_end(&mut content),
            }
            .unwrap();
            content
        }
    }

    fn lines() -> Vec<u8> {
        (0..50_000)
            .flat_map(|number| format!("line {number}\n").into_bytes())
            .collect()
    }

    #[test]
    fn keeps_content_mode_and_time() {
        for coding in CODINGS {
            for content in [lines(), Vec::new(), b"x".to_vec()] {
                let place = Place::new(&content);
                let then = UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
                let file = File::options().append(true).open(&place.plain).unwrap();
                file.set_modified(then).unwrap();
                file.set_permissions(Permissions::from_mode(0o640)).unwrap();
                assert_eq!(place.pack(coding, false).unwrap(), Outcome::Done);
                assert_eq!(place.names(), ["packed"]);
                assert!(place.unpacked(coding) == content);
                let meta = std::fs::metadata(&place.packed).unwrap();
                assert_eq!(meta.mode() & 0o7777, 0o640);
                assert_eq!(meta.modified().unwrap(), then);
            }
        }
    }

    #[test]
    fn leaves_everything_as_it_was_when_stopped() {
        for coding in CODINGS {
            let place = Place::new(&lines());
            std::fs::write(&place.part, "left behind").unwrap();
            assert_eq!(place.pack(coding, true).unwrap(), Outcome::Stopped);
            assert_eq!(place.names(), ["plain"]);
            assert!(std::fs::read(&place.plain).unwrap() == lines());
        }
    }

    #[test]
    fn leaves_alone_what_another_process_compresses() {
        for coding in CODINGS {
            let place = Place::new(&lines());
            std::fs::write(&place.part, "half").unwrap();
            let lock = lock(&place.plain).unwrap();
            assert_eq!(place.pack(coding, false).unwrap(), Outcome::InUse);
            assert_eq!(place.names(), ["part", "plain"]);
            drop(lock);
            assert_eq!(place.pack(coding, false).unwrap(), Outcome::Done);
            assert_eq!(place.names(), ["packed"]);
        }
    }

    #[test]
    fn deletes_the_original_that_a_killed_process_left_beside_its_copy() {
        for coding in CODINGS {
            let place = Place::new(&lines());
            assert_eq!(place.pack(coding, false).unwrap(), Outcome::Done);
            std::fs::write(&place.plain, lines()).unwrap();
            assert_eq!(place.pack(coding, true).unwrap(), Outcome::Stopped);
            assert_eq!(place.names(), ["packed", "plain"]);
            assert_eq!(place.pack(coding, false).unwrap(), Outcome::Done);
            assert_eq!(place.names(), ["packed"]);
        }
    }

    #[test]
    fn touches_neither_when_there_is_another_compressed_file() {
        for coding in CODINGS {
            let place = Place::new(&lines());
            for other in [b"no such coding".to_vec(), Vec::new()] {
                std::fs::write(&place.packed, &other).unwrap();
                let fault = place.pack(coding, false).unwrap_err();
                assert_eq!(fault.kind(), ErrorKind::AlreadyExists);
                assert_eq!(place.names(), ["packed", "plain"]);
                assert_eq!(std::fs::read(&place.packed).unwrap(), other);
            }
            std::fs::remove_file(&place.packed).unwrap();
            assert_eq!(place.pack(coding, false).unwrap(), Outcome::Done);
            let longer = [lines(), b"one more\n".to_vec()].concat();
            std::fs::write(&place.plain, &longer).unwrap();
            assert!(place.pack(coding, false).is_err());
            assert!(std::fs::read(&place.plain).unwrap() == longer);
        }
    }

    #[test]
    fn a_file_that_is_longer_than_what_was_read_is_still_written_to() {
        for coding in CODINGS {
            let place = Place::new(&lines());
            let mut plain = File::open(&place.plain).unwrap();
            io::Seek::seek(&mut plain, io::SeekFrom::Start(5)).unwrap();
            let stop = AtomicBool::new(false);
            let outcome = write_part(&mut plain, &place.part, coding, &stop);
            assert_eq!(outcome.unwrap(), Outcome::InUse);
        }
    }

    #[test]
    fn follows_no_link() {
        let place = Place::new(b"line\n");
        let target = place.dir.path().join("target");
        std::fs::rename(&place.plain, &target).unwrap();
        std::os::unix::fs::symlink(&target, &place.plain).unwrap();
        assert!(place.pack(LogCompression::Gzip, false).is_err());
        assert_eq!(place.names(), ["plain", "target"]);
    }

    #[test]
    fn what_is_gone_is_nobodys_fault() {
        let place = Place::new(b"line\n");
        std::fs::remove_file(&place.plain).unwrap();
        let outcome = place.pack(LogCompression::Zstd, false).unwrap();
        assert_eq!(outcome, Outcome::InUse);
        assert_eq!(place.names(), [] as [&str; 0]);
    }
}
