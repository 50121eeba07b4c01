//! The mounts of a driver: what is the same for all requests, from the configuration: folders and how files are kept.
//!
//! Shared by a driver with the threads that run its lookups; nothing in it changes but what `Devices` learns.

use std::io;

use config::failure::StartFault;
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
    /// Whether a folder without an index file is listed.
    pub(super) has_listing: bool,
    /// Larger files are not kept in memory.
    entry_bytes_max: u64,
    /// Files from this size on are sent from their descriptors.
    writer_bytes_min: u64,
}

/// One mount.
pub(super) struct Mount {
    pub(super) folder: RootDir,
    /// URL prefix, without a slash at its end.
    pub(super) url: String,
    /// Name of the file served for a folder; empty: none is.
    index: Vec<u8>,
    /// Path of the file that is sent where there is none.
    pub(super) fallback: Option<Vec<u8>>,
}

/// A decoded path beneath a mount's folder, as it was asked for.
#[derive(Debug)]
pub(super) struct RequestedPath {
    /// Path of the file to be served: with the name of the index file behind a folder's path.
    pub(super) file: Vec<u8>,
    /// Length of the folder's path, when it was a folder that was asked for.
    folder_bytes: Option<usize>,
}

impl Mounts {
    /// Opens every folder and keeps it open.
    pub(super) fn open(config: &Config) -> Result<Mounts, StartFault> {
        let serving = &config.file_serving;
        let cache_control =
            CacheControl::new(&serving.cache_control).map_err(|fault| glob_fault(&fault))?;
        let mut codings = serving.encodings.clone();
        // A coding that is named twice counts at its first place.
        codings.sort_by_key(|coding| serving.encodings.iter().position(|one| one == coding));
        codings.dedup();
        Ok(Mounts {
            list: config.mounts().map(Mount::open).collect::<Result<_, _>>()?,
            devices: Devices::default(),
            codings,
            cache_control,
            has_listing: serving.listing,
            entry_bytes_max: config.file_cache.entry_bytes_max as u64,
            writer_bytes_min: serving.writer_bytes_min as u64,
        })
    }

    /// What becomes of a file of `bytes` bytes.
    pub(super) fn retention(&self, bytes: u64) -> Retention {
        retention(bytes, self.entry_bytes_max, self.writer_bytes_min)
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
        // A folder's page has two paths, its own and that of its index file, and the first rule that matches either
        // counts.
        let cache_control = match asked.folder() {
            Some(b"") => self.cache_control.of(&[&url(b""), &file]),
            Some(folder) => self
                .cache_control
                .of(&[&url(&[folder, b"/"].concat()), &file]),
            None => self.cache_control.of(&[&file]),
        };
        Label {
            kind: media_type::of_path(&asked.file),
            cache_control,
            vary,
        }
    }
}

impl Mount {
    fn open(mount: &StaticMount) -> Result<Mount, StartFault> {
        let folder = RootDir::open(&mount.dir).map_err(|cause| fault(mount, &cause))?;
        Ok(Mount {
            folder,
            url: mount.url.clone(),
            index: mount.index.clone().into_bytes(),
            fallback: mount.fallback.clone().map(String::into_bytes),
        })
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

    /// Path of the folder that was asked for, without its slash.
    pub(super) fn folder(&self) -> Option<&[u8]> {
        self.folder_bytes.map(|bytes| &self.file[..bytes])
    }
}

fn fault(mount: &StaticMount, cause: &io::Error) -> StartFault {
    let url = if mount.url.is_empty() {
        "/"
    } else {
        &mount.url
    };
    let what = format!("cannot serve `{url}` from `{}`", mount.dir.display());
    let hint = "it must be a folder that this user may read and search";
    StartFault::of_io(what, cause).with_hint(hint)
}

fn glob_fault(fault: &globset::Error) -> StartFault {
    // The configuration checks each glob; all of them together can still be too large.
    let cause = format!("`Cache-Control` rules: {fault}");
    StartFault::new("cannot serve files", cause)
}

fn retention(bytes: u64, entry_bytes_max: u64, writer_bytes_min: u64) -> Retention {
    if bytes <= entry_bytes_max {
        Retention::Memory
    } else if bytes < writer_bytes_min {
        Retention::Passing
    } else {
        Retention::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_small_files_reads_others_and_leaves_large_ones_open() {
        for (bytes, entry_bytes_max, writer_bytes_min, expect) in [
            (0, 64, 64, Retention::Memory),
            (64, 64, 64, Retention::Memory),
            (65, 64, 64, Retention::Open),
            (64, 64, 100, Retention::Memory),
            (65, 64, 100, Retention::Passing),
            (99, 64, 100, Retention::Passing),
            (100, 64, 100, Retention::Open),
            (64, 64, 10, Retention::Memory),
            (65, 64, 10, Retention::Open),
            (0, 0, 0, Retention::Memory),
            (1, 0, 0, Retention::Open),
        ] {
            let retention = retention(bytes, entry_bytes_max, writer_bytes_min);
            assert_eq!(
                retention, expect,
                "{bytes} of {entry_bytes_max}, {writer_bytes_min}"
            );
        }
    }
}
