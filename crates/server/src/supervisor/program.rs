//! The command that this program was started with, by which it starts its processes and its successor.

use std::ffi::OsString;
use std::path::PathBuf;

/// Environment variable that names the descriptor which was handed over.
pub const HANDOVER: &str = "MILEPOST_HANDOVER";

/// How to start this program once more.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Program and arguments; the program as an absolute path.
    pub command: Vec<OsString>,
    /// What it is called in lists of processes, where that differs.
    pub shown: Option<OsString>,
    /// The working folder that it was started in.
    pub folder: PathBuf,
}
