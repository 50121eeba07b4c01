//! Compresses one old file: into a `.part`, which gets its name once all of it is on the disk.
//!
//! The original is deleted last, so a process that is killed at any step loses no line. A lock on the original
//! keeps two processes from compressing it at once, and every process from compressing what another one still
//! writes to.

use std::fs::{File, FileTimes, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::name::ArchiveForm;
use super::{remove, rename_new};

/// Bytes between two questions whether to stop.
const PIECE_BYTES: usize = 64 << 10;
/// A gzip file ends with checksum and length of what it contains (RFC 1952 section 2.3.1).
const TRAILER_BYTES: i64 = 8;

/// Compresses the old file at `plain`. The compressed file has the mode, the owner as far as that is allowed, and the
/// time of the original. Everything stays as it was when `is_stopped` becomes true, and when the original is in use.
///
/// # Errors
/// When the disk fails, and when there is a compressed file with other content. The original stays.
pub(super) fn compress(plain: &Path, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
    let Some(mut file) = lock(plain)? else {
        return Ok(());
    };
    let part = with_suffix(plain, ArchiveForm::Part);
    remove(&part)?;
    let written = write_part(&mut file, &part, is_stopped);
    let done = match written.and_then(|is_whole| {
        if is_whole {
            publish(plain, &part)
        } else {
            Ok(())
        }
    }) {
        // Another process has deleted the file, by number or by age.
        Err(fault) if fault.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    };
    // It has its name by now, or is of no use.
    let _ = remove(&part);
    done
}

fn with_suffix(plain: &Path, form: ArchiveForm) -> PathBuf {
    let mut path = plain.as_os_str().to_owned();
    path.push(form.suffix());
    PathBuf::from(path)
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
    // Writes the trailer, by which two compressed files are compared.
    let out = encoder.finish()?;
    let meta = plain.metadata()?;
    // A process that has no locks to respect has written meanwhile: the next clean-up takes it.
    if meta.len() != read_bytes {
        return Ok(false);
    }
    copy_attributes(&out, &meta)?;
    // Before it gets its name: a file with the name of a whole one must be whole after a power failure too.
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
fn publish(plain: &Path, part: &Path) -> io::Result<()> {
    let gzip = &with_suffix(plain, ArchiveForm::Gzip);
    match rename_new(part, gzip) {
        Err(fault) if fault.kind() == ErrorKind::AlreadyExists => {
            // A process was killed right before it deleted the original.
            if trailer(part)? != trailer(gzip)? {
                let text = format!("`{}` exists and has other lines", gzip.display());
                return Err(io::Error::new(ErrorKind::AlreadyExists, text));
            }
        }
        renamed => renamed?,
    }
    // The new name must be on the disk before the old one is gone from it.
    if let Some(folder) = gzip.parent() {
        File::open(folder)?.sync_all()?;
    }
    remove(plain)
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
    use std::time::{Duration, UNIX_EPOCH};

    use flate2::read::MultiGzDecoder;
    use tempfile::TempDir;

    use super::*;

    struct Place {
        dir: TempDir,
        plain: PathBuf,
    }

    impl Place {
        fn new(content: &[u8]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let plain = dir.path().join("log");
            std::fs::write(&plain, content).unwrap();
            Self { dir, plain }
        }

        fn compress(&self) -> io::Result<()> {
            compress(&self.plain, &|| false)
        }

        fn gzip(&self) -> PathBuf {
            self.dir.path().join("log.gz")
        }

        fn names(&self) -> Vec<String> {
            crate::tests::names(self.dir.path())
        }

        fn content(&self) -> Vec<u8> {
            let mut content = Vec::new();
            let mut decoder = MultiGzDecoder::new(File::open(self.gzip()).unwrap());
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
            std::fs::write(place.dir.path().join("log.gz.part"), "left behind").unwrap();
            place.compress().unwrap();
            assert_eq!(place.names(), ["log.gz"]);
            assert!(place.content() == content);
            let meta = std::fs::metadata(place.gzip()).unwrap();
            assert_eq!(meta.mode() & 0o7777, 0o640);
            assert_eq!(meta.modified().unwrap(), then);
        }
    }

    #[test]
    fn leaves_alone_what_another_process_compresses() {
        let place = Place::new(&lines());
        std::fs::write(place.dir.path().join("log.gz.part"), "half").unwrap();
        let lock = lock(&place.plain).unwrap();
        place.compress().unwrap();
        assert_eq!(place.names(), ["log", "log.gz.part"]);
        drop(lock);
        place.compress().unwrap();
        assert_eq!(place.names(), ["log.gz"]);
    }

    #[test]
    fn deletes_the_original_that_a_killed_process_left_beside_its_copy() {
        let place = Place::new(&lines());
        place.compress().unwrap();
        std::fs::write(&place.plain, lines()).unwrap();
        place.compress().unwrap();
        assert_eq!(place.names(), ["log.gz"]);
        assert!(place.content() == lines());
    }

    #[test]
    fn touches_neither_when_there_is_another_compressed_file() {
        let place = Place::new(&lines());
        for other in [b"something else".to_vec(), Vec::new()] {
            std::fs::write(place.gzip(), &other).unwrap();
            let fault = place.compress().unwrap_err();
            assert_eq!(fault.kind(), ErrorKind::AlreadyExists);
            assert_eq!(place.names(), ["log", "log.gz"]);
            assert_eq!(std::fs::read(place.gzip()).unwrap(), other);
        }
    }

    #[test]
    fn leaves_a_file_that_is_longer_than_what_was_read() {
        let place = Place::new(&lines());
        let mut plain = File::open(&place.plain).unwrap();
        plain.seek(SeekFrom::Start(5)).unwrap();
        assert!(!write_part(&mut plain, &place.dir.path().join("log.gz.part"), &|| false).unwrap());
    }

    #[test]
    fn follows_no_link() {
        let place = Place::new(b"line\n");
        let target = place.dir.path().join("target");
        std::fs::rename(&place.plain, &target).unwrap();
        std::os::unix::fs::symlink(&target, &place.plain).unwrap();
        assert!(place.compress().is_err());
        assert_eq!(place.names(), ["log", "target"]);
    }

    #[test]
    fn a_file_that_is_gone_is_no_fault() {
        let place = Place::new(b"line\n");
        std::fs::remove_file(&place.plain).unwrap();
        place.compress().unwrap();
        assert_eq!(place.names(), [] as [&str; 0]);
    }
}
