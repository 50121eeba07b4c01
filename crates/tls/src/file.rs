//! Files of certificates and keys, read whole within a bound; keys only where no other user may read them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use config::typed::TlsFile;
use zeroize::Zeroizing;

use crate::fault::TlsFileFault;

/// Bytes of one file: a chain has some KB, a bundle of authorities or a revocation list up to some MB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    Anybody,
    /// The owner; a group too where root owns the file and so has chosen the group on purpose.
    Few,
}

/// The content of a file; wiped when it is dropped.
pub(crate) fn read(
    setting: TlsFile,
    path: &Path,
    readers: Readers,
) -> Result<Zeroizing<Vec<u8>>, TlsFileFault> {
    let of_io = |error: io::Error| TlsFileFault::of_io(setting, path, &error);
    let file = open(path).map_err(of_io)?;
    // Of the opened file: another one may have its name a moment later.
    let found = file.metadata().map_err(of_io)?;
    if readers == Readers::Few {
        private(setting, path, found.mode(), found.uid())?;
    }
    if found.len() > FILE_BYTES_MAX {
        let text = format!("the file has more than {FILE_BYTES_MAX} bytes");
        return Err(TlsFileFault::new(setting, path, text));
    }
    // One allocation: a vector that grows leaves copies behind that nobody wipes.
    let bytes = usize::try_from(found.len()).unwrap_or(usize::MAX);
    let mut content = Zeroizing::new(vec![0; bytes]);
    (&file).read_exact(&mut content).map_err(of_io)?;
    Ok(content)
}

/// Anything but a plain file could keep the reader waiting.
fn open(path: &Path) -> io::Result<File> {
    let found = std::fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    File::open(path)
}

fn private(setting: TlsFile, path: &Path, mode: u32, owner: u32) -> Result<(), TlsFileFault> {
    let (path_said, mode) = (path.display(), mode & 0o777);
    let fault = |cause: String| {
        let hint = format!("`chmod 600 {path_said}`; a group may read a file that root owns (640)");
        Err(TlsFileFault::new(setting, path, cause).with_hint(hint))
    };
    if mode & 0o007 != 0 {
        return fault(format!(
            "every user of this machine may use the file (mode {mode:o})"
        ));
    }
    let group = mode & 0o070;
    let is_roots = owner == 0 && group == 0o040;
    match group == 0 || is_roots {
        true => Ok(()),
        false => fault(format!("a group may use the file (mode {mode:o})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mode: u32, owner: u32, expect: Option<&str>) {
        let found = private(TlsFile::Key, Path::new("k.pem"), mode, owner);
        let cause = found.err().map(|fault| fault.cause);
        assert_eq!(cause.as_deref(), expect, "{mode:o} of {owner}");
    }

    #[test]
    fn refuses_keys_that_others_may_read() {
        for mode in [0o100_600, 0o100_400, 0o100_700] {
            check(mode, 0, None);
            check(mode, 1000, None);
        }
        check(0o100_640, 0, None);
        check(0o100_640, 1000, Some("a group may use the file (mode 640)"));
        check(0o100_660, 0, Some("a group may use the file (mode 660)"));
        check(0o100_620, 0, Some("a group may use the file (mode 620)"));
        for (mode, said) in [(0o644, "644"), (0o604, "604"), (0o602, "602")] {
            let text = format!("every user of this machine may use the file (mode {said})");
            check(mode, 0, Some(&text));
        }
    }

    #[test]
    fn reads_plain_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let fault = read(TlsFile::Cert, dir.path(), Readers::Anybody).unwrap_err();
        assert_eq!(fault.cause, "is a directory");
        let missing = dir.path().join("missing");
        let fault = read(TlsFile::Cert, &missing, Readers::Anybody).unwrap_err();
        assert_eq!(fault.cause, "no such file or directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let content = read(TlsFile::Cert, &file, Readers::Anybody).unwrap();
        assert_eq!(content.as_slice(), b"text");
    }
}
