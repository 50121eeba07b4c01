//! Compresses one old file: into a `.part`, which gets its name once all of it is on the disk.
//!
//! The original is deleted last, so a process that is killed at any step loses no line. A lock on the original
//! keeps two processes from compressing it at once, and every process from compressing what another one still
//! writes to.

use std::fs::{File, FileTimes, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::{remove, rename_new};

/// Bytes between two questions whether to stop.
const PIECE_BYTES: usize = 64 << 10;
/// A gzip file ends with checksum and length of what it contains (RFC 1952 section 2.3.1).
const TRAILER_BYTES: i64 = 8;

/// The three names of an old file.
#[derive(Debug)]
pub(super) struct CompressPaths<'a> {
    pub(super) plain: &'a Path,
    pub(super) gzip: &'a Path,
    pub(super) part: &'a Path,
}

/// Compresses the plain file. The compressed file has the mode, the owner as far as that is allowed, and the time of
/// the original. Everything stays as it was when `is_stopped` becomes true, and when the original is in use.
///
/// # Errors
/// When the disk fails, and when there is a compressed file with other content. The original stays.
pub(super) fn compress(paths: &CompressPaths<'_>, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
    let Some(mut plain) = lock(paths.plain)? else {
        return Ok(());
    };
    remove(paths.part)?;
    let written = write_part(&mut plain, paths.part, is_stopped);
    let done = match written.and_then(|is_whole| if is_whole { publish(paths) } else { Ok(()) }) {
        // Another process has deleted the file, by number or by age.
        Err(fault) if fault.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    };
    // It has its name by now, or is of no use.
    let _ = remove(paths.part);
    done
}

/// Opens a file that no other process compresses or writes to; `None` when it is in use or gone.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let mut options = File::options();
    let options = options.read(true).custom_flags(libc::O_NOFOLLOW);
    let file = match options.open(path) {
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        // Some file systems have no locks, and NFS has none for a file that is open for reading only (flock(2),
        // since Linux 2.6.12: EBADF). The length is checked at the end instead.
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF) | Ok(()) => {}
        Err(fault) => return Err(fault.into()),
    }
    // The owner of the lock before may have finished.
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.ino() == file.metadata()?.ino() => Ok(Some(file)),
        _ => Ok(None),
    }
}

/// Whether all of the file is in the part now, and on the disk.
fn write_part(plain: &mut File, part: &Path, is_stopped: &dyn Fn() -> bool) -> io::Result<bool> {
    let mut options = File::options();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut encoder = GzEncoder::new(options.open(part)?, Compression::default());
    let mut piece = vec![0; PIECE_BYTES];
    let mut read_bytes = 0;
    loop {
        if is_stopped() {
            return Ok(false);
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
    let meta = plain.metadata()?;
    if meta.len() != read_bytes {
        return Ok(false);
    }
    copy_attributes(&out, &meta)?;
    out.sync_all()?;
    Ok(true)
}

fn copy_attributes(file: &File, like: &Metadata) -> io::Result<()> {
    // Only root may give files away.
    let _ = std::os::unix::fs::fchown(file, Some(like.uid()), Some(like.gid()));
    file.set_permissions(like.permissions())?;
    file.set_times(FileTimes::new().set_modified(like.modified()?))
}

/// Gives the part its name, then deletes the original.
fn publish(paths: &CompressPaths<'_>) -> io::Result<()> {
    match rename_new(paths.part, paths.gzip) {
        // A process was killed right before it deleted the original.
        Err(fault)
            if fault.kind() == ErrorKind::AlreadyExists
                && trailer(paths.part)? == trailer(paths.gzip)? => {}
        Err(fault) if fault.kind() == ErrorKind::AlreadyExists => {
            let text = format!("`{}` exists and has other lines", paths.gzip.display());
            return Err(io::Error::new(ErrorKind::AlreadyExists, text));
        }
        renamed => renamed?,
    }
    if let Some(folder) = paths.gzip.parent() {
        File::open(folder)?.sync_all()?;
    }
    remove(paths.plain)
}

/// Checksum and length of what is in a compressed file; empty where it is too short to have them.
fn trailer(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut trailer = Vec::new();
    if file.seek(SeekFrom::End(-TRAILER_BYTES)).is_ok() {
        file.read_to_end(&mut trailer)?;
    }
    Ok(trailer)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::{Duration, UNIX_EPOCH};

    use flate2::read::MultiGzDecoder;
    use tempfile::TempDir;

    use super::*;

    struct Place {
        dir: TempDir,
        plain: PathBuf,
        gzip: PathBuf,
        part: PathBuf,
    }

    impl Place {
        fn new(content: &[u8]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = |name| dir.path().join(name);
            let (plain, gzip, part) = (path("plain"), path("gzip"), path("part"));
            std::fs::write(&plain, content).unwrap();
            Self {
                dir,
                plain,
                gzip,
                part,
            }
        }

        fn compress(&self, is_stopped: bool) -> io::Result<()> {
            let paths = CompressPaths {
                plain: &self.plain,
                gzip: &self.gzip,
                part: &self.part,
            };
            compress(&paths, &|| is_stopped)
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

        fn content(&self) -> Vec<u8> {
            let mut content = Vec::new();
            let mut decoder = MultiGzDecoder::new(File::open(&self.gzip).unwrap());
            decoder.read_to_end(&mut content).unwrap();
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
        for content in [lines(), Vec::new(), b"x".to_vec()] {
            let place = Place::new(&content);
            let then = UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
            let file = File::options().append(true).open(&place.plain).unwrap();
            file.set_modified(then).unwrap();
            file.set_permissions(Permissions::from_mode(0o640)).unwrap();
            std::fs::write(&place.part, "left behind").unwrap();
            place.compress(false).unwrap();
            assert_eq!(place.names(), ["gzip"]);
            assert!(place.content() == content);
            let meta = std::fs::metadata(&place.gzip).unwrap();
            assert_eq!(meta.mode() & 0o7777, 0o640);
            assert_eq!(meta.modified().unwrap(), then);
        }
    }

    #[test]
    fn leaves_the_original_when_stopped() {
        let place = Place::new(&lines());
        place.compress(true).unwrap();
        assert_eq!(place.names(), ["plain"]);
        assert!(std::fs::read(&place.plain).unwrap() == lines());
    }

    #[test]
    fn leaves_alone_what_another_process_compresses() {
        let place = Place::new(&lines());
        std::fs::write(&place.part, "half").unwrap();
        let lock = lock(&place.plain).unwrap();
        place.compress(false).unwrap();
        assert_eq!(place.names(), ["part", "plain"]);
        drop(lock);
        place.compress(false).unwrap();
        assert_eq!(place.names(), ["gzip"]);
    }

    #[test]
    fn deletes_the_original_that_a_killed_process_left_beside_its_copy() {
        let place = Place::new(&lines());
        place.compress(false).unwrap();
        std::fs::write(&place.plain, lines()).unwrap();
        place.compress(false).unwrap();
        assert_eq!(place.names(), ["gzip"]);
        assert!(place.content() == lines());
    }

    #[test]
    fn touches_neither_when_there_is_another_compressed_file() {
        let place = Place::new(&lines());
        for other in [b"something else".to_vec(), Vec::new()] {
            std::fs::write(&place.gzip, &other).unwrap();
            let fault = place.compress(false).unwrap_err();
            assert_eq!(fault.kind(), ErrorKind::AlreadyExists);
            assert_eq!(place.names(), ["gzip", "plain"]);
            assert_eq!(std::fs::read(&place.gzip).unwrap(), other);
        }
    }

    #[test]
    fn leaves_a_file_that_is_longer_than_what_was_read() {
        let place = Place::new(&lines());
        let mut plain = File::open(&place.plain).unwrap();
        plain.seek(SeekFrom::Start(5)).unwrap();
        assert!(!write_part(&mut plain, &place.part, &|| false).unwrap());
    }

    #[test]
    fn follows_no_link() {
        let place = Place::new(b"line\n");
        let target = place.dir.path().join("target");
        std::fs::rename(&place.plain, &target).unwrap();
        std::os::unix::fs::symlink(&target, &place.plain).unwrap();
        assert!(place.compress(false).is_err());
        assert_eq!(place.names(), ["plain", "target"]);
    }

    #[test]
    fn a_file_that_is_gone_is_no_fault() {
        let place = Place::new(b"line\n");
        std::fs::remove_file(&place.plain).unwrap();
        place.compress(false).unwrap();
        assert_eq!(place.names(), [] as [&str; 0]);
    }
}
