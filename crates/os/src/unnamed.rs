//! Unnamed temporary files: storage that nobody else can open and that is gone with its descriptor.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens an unnamed file for reading and writing in `dir`.
///
/// File systems without O_TMPFILE (overlays of old kernels, NFS) get a named file that is unlinked at
/// once.
pub fn unnamed_file(dir: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(fd.into()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::NOENT)
            if dir.is_dir() =>
        {
            unlinked_file(dir)
        }
        Err(error) => Err(error.into()),
    }
}

fn unlinked_file(dir: &Path) -> io::Result<File> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".milepost-{}-{number}", std::process::id()));
        let opened = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            // Its name is there for a moment, in a folder that may be everybody's.
            .mode(0o600)
            .open(&path);
        match opened {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn belongs_to_its_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        for open in [unnamed_file, unlinked_file] {
            let mode = open(dir.path()).unwrap().metadata().unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn leaves_no_name_behind() {
        let dir = tempfile::tempdir().unwrap();
        for open in [unnamed_file, unlinked_file] {
            let mut file = open(dir.path()).unwrap();
            file.write_all(b"abc").unwrap();
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "abc");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
