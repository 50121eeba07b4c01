//! What is wrong with a file of certificates or keys: which setting names it, which file it is, why, and what to do.
//!
//! Taken by the checks of the configuration, which know the place of the setting, and by the supervisor when files
//! change. Text only.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use config::failure::plain;
use config::typed::TlsFile;

/// A fault of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFileFault {
    /// Which of the settings of a certificate is at fault.
    pub setting: TlsFile,
    /// The file; empty where there is none, as for a variable.
    pub path: PathBuf,
    /// A sentence without a capital and without a full stop.
    pub cause: String,
    /// What to do about it, where that can be said.
    pub hint: Option<String>,
}

impl TlsFileFault {
    pub(crate) fn new(setting: TlsFile, path: &Path, cause: impl Into<String>) -> Self {
        Self {
            setting,
            path: path.to_owned(),
            cause: cause.into(),
            hint: None,
        }
    }

    pub(crate) fn of_io(setting: TlsFile, path: &Path, error: &io::Error) -> Self {
        let fault = Self::new(setting, path, plain(error).to_lowercase());
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                fault.with_hint("the user that runs milepost needs the right to read it")
            }
            _ => fault,
        }
    }

    #[must_use]
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

impl fmt::Display for TlsFileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_os_str().is_empty() {
            true => write!(f, "{}", self.cause),
            false => write!(f, "`{}`: {}", self.path.display(), self.cause),
        }
    }
}
