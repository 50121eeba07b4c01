//! The command line that this program was started with. Its processes and its successor are started by it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use config::failure::{Failure, plain};

/// How to start this program once more.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Program and arguments; the program as an absolute path.
    pub command: Vec<OsString>,
    /// The working folder that it was started in.
    pub folder: PathBuf,
}

impl Program {
    /// Why no process was started.
    pub(super) fn not_started(&self, error: &io::Error) -> Failure {
        let program = self.command.first().map(Path::new).unwrap_or(Path::new(""));
        let failure = Failure::new(format!(
            "cannot start a process by `{}`: {}",
            program.display(),
            plain(error)
        ));
        if error.kind() != io::ErrorKind::PermissionDenied {
            return failure;
        }
        // The user that root has become often cannot reach what root could.
        let uid = rustix::process::geteuid().as_raw();
        failure.with_hint(format!(
            "user {uid} must be allowed to run it, and to enter each folder on the way to it and to what it links to"
        ))
    }
}
