//! The mounts of a driver: what is the same for all requests, from the configuration: folders and how files are kept.
//!
//! Shared by a driver with the threads that run its lookups; nothing in it changes but what `Devices` learns.

use std::fmt;
use std::io;
use std::path::PathBuf;

use config::typed::{Coding, Config, StaticMount};

use super::cache_control::CacheControl;
use super::cached_file::{Label, Retention};
use super::media_type;
use super::metadata::Devices;
use super::root_dir::RootDir;

/// All folders of one driver, by mount, and how their files are kept and described.
pub(super) struct Mounts {
    pub(super) list: Vec<Mount>,
    pub(super) devices: Devices,
    /// Siblings that are looked for: different ones, the preferred first.
    pub(super) codings: Vec<Coding>,
    cache_control: CacheControl,
    has_listing: bool,
    sizes: RetentionSizes,
}

/// One mount.
pub(super) struct Mount {
    pub(super) folder: RootDir,
    url: String,
    /// Name of the file served for a folder; empty: none is.
    index: Vec<u8>,
    /// Path beneath the folder.
    fallback: Option<Vec<u8>>,
}

/// A folder that cannot be served.
#[derive(Debug)]
pub struct FolderFault {
    /// URL prefix of its mount.
    pub url: String,
    /// The folder as configured.
    pub dir: PathBuf,
    /// What the system said.
    pub cause: io::Error,
}

/// A decoded path beneath a mount's folder, as it was asked for.
#[derive(Debug)]
pub(super) struct RequestedPath {
    /// With the name of the index file behind a folder's path.
    file: Vec<u8>,
    /// Length of the folder's path, when it was a folder that was asked for.
    folder_bytes: Option<usize>,
}

/// Which files are read, and which of those are kept.
#[derive(Clone, Copy, Debug)]
struct RetentionSizes {
    entry_bytes_max: u64,
    writer_bytes_min: u64,
}

impl Mounts {
    /// Opens every folder and keeps it open.
    pub(super) fn open(config: &Config) -> Result<Mounts, FolderFault> {
        let serving = &config.file_serving;
        let cache_control = CacheControl::new(&serving.cache_control)
            .map_err(|fault| glob_fault(config, &fault))?;
        let mut codings = serving.encodings.clone();
        codings.sort_by_key(|coding| serving.encodings.iter().position(|one| one == coding));
        codings.dedup();
        Ok(Mounts {
            list: config
                .statics
                .iter()
                .map(Mount::open)
                .collect::<Result<_, _>>()?,
            devices: Devices::default(),
            codings,
            cache_control,
            has_listing: serving.listing,
            sizes: RetentionSizes {
                entry_bytes_max: config.file_cache.entry_bytes_max as u64,
                writer_bytes_min: serving.writer_bytes_min as u64,
            },
        })
    }

    /// What becomes of a file of `bytes` bytes.
    pub(super) fn retention(&self, bytes: u64) -> Retention {
        self.sizes.retention(bytes)
    }

    /// Whether a folder without an index file is listed.
    pub(super) fn has_listing(&self) -> bool {
        self.has_listing
    }

    /// What is said of the file that `asked` of `mount` names.
    pub(super) fn label(
        &self,
        asked: &RequestedPath,
        mount: usize,
        vary: Option<&'static str>,
    ) -> Label<'_> {
        let url = |path: &[u8]| [self.list[mount].url.as_bytes(), b"/", path].concat();
        let file = url(&asked.file);
        let cache_control = match asked.folder() {
            Some(b"") => self.cache_control.of(&[&url(b""), &file]),
            Some(folder) => self
                .cache_control
                .of(&[&url(&[folder, b"/"].concat()), &file]),
            None => self.cache_control.of(&[&file]),
        };
        Label {
            kind: media_type::of_path(&asked.file),
            coding: None,
            cache_control,
            vary,
        }
    }
}

impl Mount {
    fn open(mount: &StaticMount) -> Result<Mount, FolderFault> {
        let folder = RootDir::open(&mount.dir).map_err(|cause| FolderFault {
            url: mount.url.clone(),
            dir: mount.dir.clone(),
            cause,
        })?;
        Ok(Mount {
            folder,
            url: mount.url.clone(),
            index: mount.index.clone().into_bytes(),
            fallback: mount.fallback.clone().map(String::into_bytes),
        })
    }

    /// URL prefix, without a slash at its end.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Path of the file that is sent where there is none.
    pub(super) fn fallback(&self) -> Option<&[u8]> {
        self.fallback.as_deref()
    }

    /// Makes the path of a folder that of its index file.
    pub(super) fn push_index(&self, path: &mut Vec<u8>) {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&self.index);
    }
}

impl RequestedPath {
    /// `file` is the path with the index file's name, `folder_bytes` the length of the path without it.
    pub(super) fn new(file: &[u8], folder_bytes: Option<usize>) -> RequestedPath {
        RequestedPath {
            file: file.to_vec(),
            folder_bytes,
        }
    }

    /// Path of the file to be served.
    pub(super) fn file(&self) -> &[u8] {
        &self.file
    }

    /// Path of the folder that was asked for, without its slash.
    pub(super) fn folder(&self) -> Option<&[u8]> {
        self.folder_bytes.map(|bytes| &self.file[..bytes])
    }
}

/// The configuration checks each glob; all of them together can still be too large.
fn glob_fault(config: &Config, fault: &globset::Error) -> FolderFault {
    let mount = config.statics.first();
    FolderFault {
        url: mount.map_or(String::new(), |mount| mount.url.clone()),
        dir: mount.map_or(Default::default(), |mount| mount.dir.clone()),
        cause: io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`Cache-Control` rules: {fault}"),
        ),
    }
}

impl RetentionSizes {
    fn retention(self, bytes: u64) -> Retention {
        if bytes <= self.entry_bytes_max {
            Retention::Memory
        } else if bytes < self.writer_bytes_min {
            Retention::Passing
        } else {
            Retention::Open
        }
    }
}

impl fmt::Display for FolderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "static folder `{}` of `{}/`: {}",
            self.dir.display(),
            self.url,
            self.cause
        )
    }
}

impl std::error::Error for FolderFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entry_bytes_max: u64, writer_bytes_min: u64, expect: &[(u64, Retention)]) {
        let sizes = RetentionSizes {
            entry_bytes_max,
            writer_bytes_min,
        };
        for (bytes, retention) in expect {
            assert_eq!(sizes.retention(*bytes), *retention, "{bytes} of {sizes:?}");
        }
    }

    #[test]
    fn keeps_small_files_reads_others_and_leaves_large_ones_open() {
        check(
            64,
            64,
            &[
                (0, Retention::Memory),
                (64, Retention::Memory),
                (65, Retention::Open),
            ],
        );
        check(
            64,
            100,
            &[
                (64, Retention::Memory),
                (65, Retention::Passing),
                (99, Retention::Passing),
                (100, Retention::Open),
            ],
        );
        check(64, 10, &[(64, Retention::Memory), (65, Retention::Open)]);
        check(0, 0, &[(0, Retention::Memory), (1, Retention::Open)]);
    }
}
