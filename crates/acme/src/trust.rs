//! Trust stores of Linux systems: a folder for certificates of the administrator's own, and a command that makes the
//! system read it.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The file that is put into a store.
const FILE: &str = "milepost-local-authority";

/// Folder, ending of its files, and the command, of each family of distributions. The first whose folder is there
/// counts; Debian's comes last, because others have its folder as well.
const STORES: [(&str, &str, &[&str]); 4] = [
    (
        "etc/pki/ca-trust/source/anchors",
        "pem",
        &["update-ca-trust", "extract"],
    ),
    (
        "etc/ca-certificates/trust-source/anchors",
        "crt",
        &["trust", "extract-compat"],
    ),
    ("etc/pki/trust/anchors", "pem", &["update-ca-certificates"]),
    (
        "usr/local/share/ca-certificates",
        "crt",
        &["update-ca-certificates"],
    ),
];

/// A system's trust store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustStore {
    file: PathBuf,
    command: Vec<OsString>,
}

/// What became of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustChange {
    /// The certificate is in the store now.
    Installed,
    /// It was there before.
    Unchanged,
    /// It is no longer there.
    Removed,
    /// It was not there.
    Absent,
}

/// Why the store could not be changed.
#[derive(Debug)]
pub enum TrustFault {
    /// The file cannot be written or removed.
    File(PathBuf, io::Error),
    /// The command cannot be run, or says no.
    Command(String, String),
}

impl TrustStore {
    /// The store of the system below `root`, which is `/`; `None` for a system that is not known.
    pub fn find(root: &Path) -> Option<TrustStore> {
        let (folder, ending, command) = STORES
            .iter()
            .find(|(folder, ..)| root.join(folder).is_dir())?;
        Some(TrustStore {
            file: root.join(folder).join(format!("{FILE}.{ending}")),
            command: command.iter().map(OsString::from).collect(),
        })
    }

    /// The certificate's file in the store.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The command that makes the system read the store.
    pub fn command(&self) -> String {
        let words: Vec<_> = self
            .command
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    }

    /// Puts a certificate into the store.
    ///
    /// # Errors
    /// What could not be done; this needs the rights of root.
    pub fn install(&self, pem: &str) -> Result<TrustChange, TrustFault> {
        if fs::read_to_string(&self.file).is_ok_and(|there| there == pem) {
            return Ok(TrustChange::Unchanged);
        }
        // Certificates are public, and every program reads them.
        fs::write(&self.file, pem).map_err(|error| self.fault(error))?;
        // A file that the system has not read would pass for one that it trusts at the next try.
        self.update().inspect_err(|_| {
            let _ = fs::remove_file(&self.file);
        })?;
        Ok(TrustChange::Installed)
    }

    /// Takes the certificate out of the store.
    ///
    /// # Errors
    /// What could not be done; this needs the rights of root.
    pub fn remove(&self) -> Result<TrustChange, TrustFault> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TrustChange::Absent),
            Err(error) => Err(self.fault(error)),
            Ok(()) => self.update().map(|()| TrustChange::Removed),
        }
    }

    fn fault(&self, error: io::Error) -> TrustFault {
        TrustFault::File(self.file.clone(), error)
    }

    fn update(&self) -> Result<(), TrustFault> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(());
        };
        let ran = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output();
        let cause = match ran {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => crate::fault::short(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => error.to_string(),
        };
        Err(TrustFault::Command(self.command(), cause))
    }
}

impl fmt::Display for TrustFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrustFault::File(file, error) => write!(f, "`{}`: {error}", file.display()),
            TrustFault::Command(command, cause) => write!(f, "`{command}`: {cause}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(folder: &str, command: &str) -> (tempfile::TempDir, TrustStore) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(folder)).unwrap();
        let mut store = TrustStore::find(dir.path()).unwrap();
        store.command = vec![command.into()];
        (dir, store)
    }

    #[test]
    fn finds_the_store_of_each_family() {
        for (folder, ending, command) in STORES {
            let dir = tempfile::tempdir().unwrap();
            assert_eq!(TrustStore::find(dir.path()), None);
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            let store = TrustStore::find(dir.path()).unwrap();
            let file = dir.path().join(folder).join(format!("{FILE}.{ending}"));
            assert_eq!(store.file(), file);
            assert_eq!(store.command(), command.join(" "));
        }
    }

    #[test]
    fn installs_once_and_removes_once() {
        let (_dir, store) = store("usr/local/share/ca-certificates", "true");
        assert_eq!(store.install("root").unwrap(), TrustChange::Installed);
        assert_eq!(store.install("root").unwrap(), TrustChange::Unchanged);
        assert_eq!(store.install("another").unwrap(), TrustChange::Installed);
        assert_eq!(fs::read_to_string(store.file()).unwrap(), "another");
        assert_eq!(store.remove().unwrap(), TrustChange::Removed);
        assert_eq!(store.remove().unwrap(), TrustChange::Absent);
    }

    #[test]
    fn says_what_could_not_be_done() {
        let (_dir, failing) = store("etc/pki/trust/anchors", "false");
        assert!(matches!(
            failing.install("root"),
            Err(TrustFault::Command(..))
        ));
        let (dir, gone) = store("etc/pki/trust/anchors", "true");
        fs::remove_dir_all(dir.path().join("etc")).unwrap();
        assert!(matches!(gone.install("root"), Err(TrustFault::File(..))));
    }
}
