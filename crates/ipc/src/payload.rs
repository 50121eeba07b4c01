//! What a process is given to read at its start, and what it leaves behind when it cannot start: as files in
//! memory, because a configuration or a traceback may be longer than a message.
//!
//! A generation's processes all read the same texts, also when one of them is started anew after the file
//! on disk has changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::MemfdFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use config::failure::Failure;
use config::options_table::known_flag;
use config::{FlagText, Sources, TomlText};

/// What to serve: the texts that the configuration is made of, and where they were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    /// The working folder.
    pub folder: PathBuf,
    /// Name and text of the configuration file.
    pub toml: Option<(String, String)>,
    /// Environment variables that the configuration is made of.
    pub environment: BTreeMap<String, String>,
    /// Keys and texts of flags in `GUNICORN_CMD_ARGS`.
    #[serde(default)]
    pub gunicorn_flags: Vec<(String, String)>,
    /// Keys and texts of flags.
    pub flags: Vec<(String, String)>,
    /// Instead of the application, a page with this is served.
    pub failure: Option<Failure>,
}

impl Payload {
    /// The texts that were read in `folder`.
    pub fn new(sources: &Sources, folder: PathBuf) -> Self {
        let flag = |flag: &FlagText| (flag.key.to_owned(), flag.text.clone());
        Self {
            folder,
            toml: sources
                .toml
                .as_ref()
                .map(|toml| (toml.file.clone(), toml.text.clone())),
            environment: sources.environment.clone(),
            gunicorn_flags: sources.gunicorn_flags.iter().map(flag).collect(),
            flags: sources.flags.iter().map(flag).collect(),
            failure: None,
        }
    }

    /// The same texts for understanding them again. Flags that this version does not know are left out.
    pub fn sources(&self) -> Sources {
        let flag = |(key, text): &(String, String)| {
            let (key, text) = (known_flag(key)?, text.clone());
            Some(FlagText { key, text })
        };
        Sources {
            toml: self.toml.as_ref().map(|(file, text)| TomlText {
                file: file.clone(),
                text: text.clone(),
            }),
            environment: self.environment.clone(),
            gunicorn_flags: self.gunicorn_flags.iter().filter_map(flag).collect(),
            flags: self.flags.iter().filter_map(flag).collect(),
        }
    }
}

/// A value in a file without a name.
pub fn to_file<T: Serialize>(value: &T) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("milepost", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(&serde_json::to_vec(value)?)?;
    Ok(file.into())
}

/// The value in such a file; others may be reading it too.
pub fn from_file<T: DeserializeOwned>(file: BorrowedFd<'_>) -> io::Result<T> {
    let file = File::from(file.try_clone_to_owned()?);
    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut text = vec![0; bytes];
    file.read_exact_at(&mut text, 0)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

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
        let payload = Payload::new(&sources, "/srv".into());
        let file = to_file(&payload).unwrap();
        for _ in 0..2 {
            let read: Payload = from_file(file.as_fd()).unwrap();
            assert_eq!(read, payload);
        }
        let again = Payload::new(&payload.sources(), "/srv".into());
        assert_eq!(again, payload);
    }

    #[test]
    fn leaves_out_flags_that_nobody_knows() {
        let flags = vec![("no_such_setting".to_owned(), "1".to_owned())];
        let payload = Payload {
            flags,
            ..Payload::default()
        };
        assert!(payload.sources().flags.is_empty());
    }
}
