//! The storage folder: its layout, and saves that are there as a whole or not at all.
//!
//! ```text
//! STORAGE/
//!   accounts/AUTHORITY/account.json          the account's key and URL
//!   certificates/AUTHORITY/NAME/chain.pem    key and chain of a name in one file, so that they always fit
//!   certificates/local/NAME/chain.pem        the same of the local authority
//!   challenges/http-01/TOKEN                 the key authorization to answer with (RFC 8555 section 8.3)
//!   challenges/tls-alpn-01/NAME              key and certificate for the handshake (RFC 8737 section 3)
//!   local/root.pem, local/root-key.pem       the local authority
//!   locks/AUTHORITY/NAME                     who works for a name just now
//!   retries/AUTHORITY/NAME.json              failed tries in a row; whether an order is under way
//!   new/                                     files that are being written
//! ```
//!
//! AUTHORITY is made of the directory's URL, NAME of the name of the DNS (`*.` becomes `wildcard_.`). Folders have
//! mode 0700, files 0600. Each file is written beside its place, synced and renamed: readers see the old or the new
//! one, on network file systems too. Knows paths and bytes, and nothing of their meaning.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::name::{folder_of_name, folder_of_url};
use crate::plan::Directory;

/// The folder of the local authority's certificates.
const LOCAL: &str = "local";
/// Bytes of a file that is read here: chains have some 5 KB.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Two saves at once have different names for what they write.
const NEW_NAME_CHARS: usize = 16;

/// A storage folder.
#[derive(Clone, Debug)]
pub struct Storage {
    root: PathBuf,
}

impl Storage {
    /// A folder by its path; nothing is read or made.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Makes the folder and what is missing of the way to it, for this user alone.
    ///
    /// # Errors
    /// The folder cannot be made, or no file in it.
    pub fn prepare(&self) -> io::Result<()> {
        make_dir(&self.root)?;
        make_dir(&self.root.join("new"))
    }

    /// The file with key and chain of a name, PEM: the key first, then the chain from the leaf on. `directory` is
    /// `None` for the local authority. The file may be missing.
    pub fn certificate(&self, directory: Option<&Directory>, name: &str) -> PathBuf {
        let authority = directory.map_or(LOCAL.to_owned(), |one| folder_of_url(&one.url));
        self.path([
            "certificates",
            &authority,
            &folder_of_name(name),
            "chain.pem",
        ])
    }

    /// The folder of answers to HTTP-01 challenges: file names are tokens.
    pub fn http_challenges(&self) -> PathBuf {
        self.path(["challenges", "http-01"])
    }

    /// The folder of answers to TLS-ALPN-01 challenges: file names are names.
    pub fn tls_challenges(&self) -> PathBuf {
        self.path(["challenges", "tls-alpn-01"])
    }

    /// The local authority's certificate.
    pub fn local_root(&self) -> PathBuf {
        self.path([LOCAL, "root.pem"])
    }

    pub(crate) fn local_root_key(&self) -> PathBuf {
        self.path([LOCAL, "root-key.pem"])
    }

    pub(crate) fn account(&self, directory: &Directory) -> PathBuf {
        self.path(["accounts", &folder_of_url(&directory.url), "account.json"])
    }

    pub(crate) fn lock(&self, directory: Option<&Directory>, name: &str) -> PathBuf {
        let authority = directory.map_or(LOCAL.to_owned(), |one| folder_of_url(&one.url));
        self.path(["locks", &authority, &folder_of_name(name)])
    }

    pub(crate) fn retry(&self, directory: &Directory, name: &str) -> PathBuf {
        let file = format!("{}.json", folder_of_name(name));
        self.path(["retries", &folder_of_url(&directory.url), &file])
    }

    fn path<const N: usize>(&self, parts: [&str; N]) -> PathBuf {
        let mut path = self.root.clone();
        path.extend(parts);
        path
    }

    /// Writes a file as a whole; one that is there is replaced.
    pub(crate) fn save(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        make_dir(folder)?;
        let new = self.new_path();
        let saved = write_new(&new, content).and_then(|()| fs::rename(&new, path));
        if saved.is_err() {
            // What was begun is of no use to anybody; a failure to remove it is no worse than the save's own.
            let _ = fs::remove_file(&new);
        }
        saved?;
        // Without it, the new name may be gone after a power failure.
        File::open(folder)?.sync_all()
    }

    /// The same for a file that is not there. Of two processes that save one at once, one is first, and its file stays: a
    /// link never replaces anything.
    pub(crate) fn save_first(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        make_dir(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        let new = self.new_path();
        write_new(&new, content)?;
        let linked = fs::hard_link(&new, path);
        fs::remove_file(&new)?;
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            // File systems without links are those of one machine.
            Err(_) => self.save(path, content),
            Ok(()) => Ok(()),
        }
    }

    pub(crate) fn new_path(&self) -> PathBuf {
        let name: String = std::iter::repeat_with(fastrand::alphanumeric)
            .take(NEW_NAME_CHARS)
            .collect();
        self.path(["new", &name])
    }
}

/// A file as text; `None` where there is none.
///
/// # Errors
/// It cannot be read, or is larger than any file of ours.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    let bytes = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if bytes as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is too large",
        ));
    }
    Ok(Some(text))
}

/// Removes a file; one that is not there is no fault.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Makes a folder for this user alone, with those above it.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a file that is not there yet, for this user alone, and syncs it.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn saves_whole_files_for_this_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path().join("a/milepost"));
        storage.prepare().unwrap();
        let path = storage.certificate(
            Some(&Directory::new("https://ca.example/dir")),
            "shop.example",
        );
        assert_eq!(read(&path).unwrap(), None);
        for content in ["first", "second"] {
            storage.save(&path, content.as_bytes()).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(content));
        }
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(mode(&dir.path().join("a/milepost")), 0o700);
        assert_eq!(
            fs::read_dir(dir.path().join("a/milepost/new"))
                .unwrap()
                .count(),
            0
        );
    }

    #[test]
    fn the_first_of_two_files_stays() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path());
        storage.prepare().unwrap();
        let path = storage.local_root_key();
        for content in ["first", "second"] {
            storage.save_first(&path, content.as_bytes()).unwrap();
        }
        assert_eq!(read(&path).unwrap().as_deref(), Some("first"));
        assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 0);
    }

    #[test]
    fn a_save_that_fails_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path());
        storage.prepare().unwrap();
        let path = storage.local_root();
        storage.save(&path, b"old").unwrap();
        fs::remove_dir(dir.path().join("new")).unwrap();
        assert!(storage.save(&path, b"new").is_err());
        assert_eq!(read(&path).unwrap().as_deref(), Some("old"));
    }

    #[test]
    fn the_layout_is_what_the_documentation_says() {
        let storage = Storage::new("/s");
        let directory = Directory::new("https://acme-v02.api.letsencrypt.org/directory");
        let ca = "acme-v02.api.letsencrypt.org_directory";
        let check = |path: PathBuf, expect: &str| assert_eq!(path, Path::new(expect));
        let chain = format!("/s/certificates/{ca}/shop.example/chain.pem");
        check(
            storage.certificate(Some(&directory), "shop.example"),
            &chain,
        );
        check(
            storage.certificate(None, "*.localhost"),
            "/s/certificates/local/wildcard_.localhost/chain.pem",
        );
        check(
            storage.account(&directory),
            &format!("/s/accounts/{ca}/account.json"),
        );
        check(
            storage.lock(Some(&directory), "a.example"),
            &format!("/s/locks/{ca}/a.example"),
        );
        check(storage.http_challenges(), "/s/challenges/http-01");
        check(storage.tls_challenges(), "/s/challenges/tls-alpn-01");
    }

    #[test]
    fn refuses_a_file_that_is_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        fs::write(&path, vec![b'x'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(read(&path).is_err());
    }
}
