//! What a process is given to read at its start, and what it leaves behind when it cannot start: as files in
//! memory, because a configuration or a traceback may be longer than a message.
//!
//! A generation's processes all read the same texts, also when one of them is started anew after the file
//! on disk has changed.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::MemfdFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use config::Sources;
use config::failure::Failure;

/// What to serve: the texts that the configuration is made of, and where they were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    /// The working folder.
    pub folder: PathBuf,
    /// What was written there: file, environment, flags.
    pub sources: Sources,
    /// Instead of the application, a page with this is served.
    pub failure: Option<Failure>,
}

/// A value in a file without a name.
pub fn to_file<T: Serialize>(value: &T) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("milepost", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    // It may be a secret: the copy in this process is wiped.
    let text = Zeroizing::new(serde_json::to_vec(value)?);
    file.write_all(&text)?;
    Ok(file.into())
}

/// A text in a file without a name.
pub fn text_to_file(text: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("milepost", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(text)?;
    Ok(file.into())
}

/// The value in such a file; others may be reading it too.
pub fn from_file<T: DeserializeOwned>(file: BorrowedFd<'_>) -> io::Result<T> {
    let file = File::from(file.try_clone_to_owned()?);
    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut text = Zeroizing::new(vec![0; bytes]);
    // From a place of its own: processes that were forked share the position of the descriptor.
    file.read_exact_at(&mut text, 0)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::fd::AsFd;

    use config::{FlagText, TomlText};

    use super::*;

    #[test]
    fn is_read_as_it_was_written_and_more_than_once() {
        let sources = Sources {
            toml: Some(TomlText {
                file: "m.toml".into(),
                text: "threads = 3\n".into(),
            }),
            environment: BTreeMap::from([("MILEPOST_DRIVERS".into(), "2".into())]),
            gunicorn_flags: vec![FlagText {
                key: "timeout",
                text: "30".into(),
            }],
            flags: vec![FlagText {
                key: "app",
                text: "shop:app".into(),
            }],
        };
        let payload = Payload {
            folder: "/srv".into(),
            sources,
            failure: None,
        };
        let file = to_file(&payload).unwrap();
        for _ in 0..2 {
            let read: Payload = from_file(file.as_fd()).unwrap();
            assert_eq!(read, payload);
        }
    }

    #[test]
    fn leaves_out_flags_that_nobody_knows() {
        let mut written = serde_json::to_value(Payload::default()).unwrap();
        written["sources"]["flags"] = serde_json::json!([{"key": "no_such_setting", "text": "1"}]);
        let payload: Payload = serde_json::from_value(written).unwrap();
        assert_eq!(payload, Payload::default());
    }
}
