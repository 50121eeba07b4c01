//! Metadata that tells one version of a file from another, and whether a file is on local storage.
//!
//! Takes what the kernel says of an open file, gives values. It opens and reads nothing.

use std::fs::{File, Metadata};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use os::lock;
use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp};

use crate::reply::Edition;

const YEAR_1990_UNIX_SECS: i64 = 631_152_000;
/// Devices remembered; those beyond it are taken for remote, which only costs a lookup.
const DEVICES_LEN_MAX: usize = 64;
/// File systems whose attributes only this kernel changes: the numbers of `statfs(2)` for ext, xfs,
/// btrfs, tmpfs, ramfs, overlay, f2fs, zfs, bcachefs, squashfs, erofs, iso9660 and vfat.
const LOCAL_MAGICS: [u32; 13] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x7371_7368,
    0xe0f5_e1e2,
    0x9660,
    0x4d44,
];

/// Identity and version of a file: two lookups with equal metadata saw the same content, but for two
/// changes within one tick of the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileMetadata {
    device: u64,
    inode: u64,
    /// Length.
    pub(super) bytes: u64,
    modified: Moment,
    changed: Moment,
}

/// A time stamp of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    /// Seconds since 1970.
    pub(super) unix_secs: i64,
    /// Nanoseconds behind the second.
    pub(super) nanos: i64,
}

/// Who may change a file behind the kernel's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Storage {
    /// Local: what the kernel remembers of it is true.
    Local,
    /// Another machine may change it: only asking the storage tells.
    Remote,
}

/// Which devices are local, learned one by one: asking a remote one takes a round trip.
#[derive(Debug, Default)]
pub(super) struct Devices(Mutex<Vec<(u64, Storage)>>);

impl FileMetadata {
    /// The metadata in `metadata`.
    pub(super) fn of(metadata: &Metadata) -> FileMetadata {
        FileMetadata {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: Moment {
                unix_secs: metadata.mtime(),
                nanos: metadata.mtime_nsec(),
            },
            changed: Moment {
                unix_secs: metadata.ctime(),
                nanos: metadata.ctime_nsec(),
            },
        }
    }

    /// The metadata of an open file as far as the kernel knows it without asking any storage.
    pub(super) fn known(file: BorrowedFd<'_>) -> Option<FileMetadata> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME | StatxFlags::INO;
        let known = rustix::fs::statx(file, "", flags, wanted).ok()?;
        // A file system that would have to ask leaves fields out instead of waiting.
        if known.stx_mask & wanted.bits() != wanted.bits() {
            return None;
        }
        Some(FileMetadata {
            device: rustix::fs::makedev(known.stx_dev_major, known.stx_dev_minor),
            inode: known.stx_ino,
            bytes: known.stx_size,
            modified: Moment::from(known.stx_mtime),
            changed: Moment::from(known.stx_ctime),
        })
    }

    /// The time that tells versions apart, see `page`.
    pub(super) fn version(&self) -> Moment {
        // Packers put such dates on all files, so that two builds would have the same tag.
        if self.modified.unix_secs < YEAR_1990_UNIX_SECS {
            self.changed
        } else {
            self.modified
        }
    }

    /// Whether it was modified before `other`.
    pub(super) fn is_older_than(&self, other: &FileMetadata) -> bool {
        let (ours, theirs) = (self.modified, other.modified);
        // A time without a fraction is taken for one that was cut to its second, as some archives and packers do.
        if ours.nanos == 0 {
            return ours.unix_secs < theirs.unix_secs;
        }
        ours < theirs
    }

    /// What the sender compares the file with.
    pub(super) fn edition(&self) -> Edition {
        Edition {
            bytes: self.bytes,
            modified_unix_secs: self.modified.unix_secs,
            modified_nanos: self.modified.nanos,
        }
    }
}

impl From<StatxTimestamp> for Moment {
    fn from(stamp: StatxTimestamp) -> Moment {
        Moment {
            unix_secs: stamp.tv_sec,
            nanos: i64::from(stamp.tv_nsec),
        }
    }
}

impl Devices {
    /// Where `file` is, whose metadata is given. May wait for the storage, once for each device.
    pub(super) fn storage_of(&self, file: &File, metadata: &FileMetadata) -> Storage {
        let of_device = |(device, _): &&(u64, Storage)| *device == metadata.device;
        let known = lock(&self.0).iter().find(of_device).copied();
        if let Some((_, storage)) = known {
            return storage;
        }
        // Not under the lock: a network that hangs would hold up lookups in all other folders. Two threads may learn
        // of one device at the same time and note it twice, which the bound allows for.
        let storage = ask(file);
        let mut known = lock(&self.0);
        if known.len() >= DEVICES_LEN_MAX {
            return Storage::Remote;
        }
        known.push((metadata.device, storage));
        storage
    }
}

#[cfg(test)]
impl Devices {
    /// As if the device that has this were on a network.
    pub(super) fn take_for_remote(&self, metadata: &Metadata) {
        lock(&self.0).push((FileMetadata::of(metadata).device, Storage::Remote));
    }
}

fn ask(file: &File) -> Storage {
    match rustix::fs::fstatfs(file) {
        // The field's type differs between architectures; the numbers have 32 bits on all.
        Ok(system) if LOCAL_MAGICS.contains(&(system.f_type as u32)) => Storage::Local,
        _ => Storage::Remote,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn the_kernels_memory_agrees_with_the_storage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "hello").unwrap();
        let file = File::open(&path).unwrap();
        let asked = FileMetadata::of(&file.metadata().unwrap());
        assert_eq!(FileMetadata::known(file.as_fd()), Some(asked));
        std::fs::write(&path, "hello!").unwrap();
        assert_ne!(FileMetadata::known(file.as_fd()), Some(asked));
    }

    #[test]
    fn a_time_that_was_cut_to_its_second_is_not_older() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("a")).unwrap();
        let modified_at = |secs, nanos| {
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(secs, nanos))
                .unwrap();
            FileMetadata::of(&file.metadata().unwrap())
        };
        let original = modified_at(1000, 500);
        for (secs, nanos, expect) in [
            (1000, 499, true),
            (1000, 500, false),
            (1000, 501, false),
            (1000, 0, false),
            (999, 0, true),
            (999, 999, true),
            (1001, 0, false),
        ] {
            let sibling = modified_at(secs, nanos);
            assert_eq!(sibling.is_older_than(&original), expect, "{secs}.{nanos}");
        }
    }

    #[test]
    fn takes_what_it_does_not_know_for_remote() {
        let devices = Devices::default();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "hello").unwrap();
        let local = File::open(&path).unwrap();
        let kernels = File::open("/proc/version").unwrap();
        for _ in 0..2 {
            for (file, expect) in [(&local, Storage::Local), (&kernels, Storage::Remote)] {
                let metadata = FileMetadata::of(&file.metadata().unwrap());
                assert_eq!(devices.storage_of(file, &metadata), expect);
            }
        }
        assert_eq!(devices.0.lock().unwrap().len(), 2);
    }
}
