//! The site: what is the same for all requests, from the configuration: folders and how files are kept.
//!
//! Shared by a driver with the threads that look for it; nothing in it changes but what `Devices` learns.

use crate::config::meant::{Config, StaticMount};

use super::FolderFault;
use super::facts::Devices;
use super::folder::Folder;
use super::page::Stay;

/// All folders of one driver, by mount, and how their files are kept.
pub(super) struct Site {
    pub(super) mounts: Vec<Mount>,
    pub(super) devices: Devices,
    sizes: Sizes,
}

/// One mount.
pub(super) struct Mount {
    pub(super) folder: Folder,
    /// Name of the file served for a folder; empty: none is.
    pub(super) index: Vec<u8>,
}

/// Which files are read, and which of those are kept.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    entry_bytes_max: u64,
    writer_bytes_min: u64,
}

impl Site {
    /// Opens every folder and keeps it open.
    pub(super) fn open(config: &Config) -> Result<Site, FolderFault> {
        Ok(Site {
            mounts: config
                .statics
                .iter()
                .map(Mount::open)
                .collect::<Result<_, _>>()?,
            devices: Devices::default(),
            sizes: Sizes {
                entry_bytes_max: config.file_cache.entry_bytes_max as u64,
                writer_bytes_min: config.file_serving.writer_bytes_min as u64,
            },
        })
    }

    /// What becomes of a file of `bytes` bytes.
    pub(super) fn stay(&self, bytes: u64) -> Stay {
        self.sizes.stay(bytes)
    }
}

impl Mount {
    fn open(mount: &StaticMount) -> Result<Mount, FolderFault> {
        let folder = Folder::open(&mount.dir).map_err(|cause| FolderFault {
            url: mount.url.clone(),
            dir: mount.dir.clone(),
            cause,
        })?;
        Ok(Mount {
            folder,
            index: mount.index.clone().into_bytes(),
        })
    }
}

impl Sizes {
    fn stay(self, bytes: u64) -> Stay {
        if bytes <= self.entry_bytes_max {
            Stay::Memory
        } else if bytes < self.writer_bytes_min {
            Stay::Passing
        } else {
            Stay::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entry_bytes_max: u64, writer_bytes_min: u64, expect: &[(u64, Stay)]) {
        let sizes = Sizes {
            entry_bytes_max,
            writer_bytes_min,
        };
        for (bytes, stay) in expect {
            assert_eq!(sizes.stay(*bytes), *stay, "{bytes} of {sizes:?}");
        }
    }

    #[test]
    fn keeps_small_files_reads_others_and_leaves_large_ones_open() {
        check(
            64,
            64,
            &[(0, Stay::Memory), (64, Stay::Memory), (65, Stay::Open)],
        );
        check(
            64,
            100,
            &[
                (64, Stay::Memory),
                (65, Stay::Passing),
                (99, Stay::Passing),
                (100, Stay::Open),
            ],
        );
        check(64, 10, &[(64, Stay::Memory), (65, Stay::Open)]);
        check(0, 0, &[(0, Stay::Memory), (1, Stay::Open)]);
    }
}
