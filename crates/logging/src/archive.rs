//! The archive of a log: old files in its folder. Gives them their names, deletes by number and age, compresses.
//!
//! Takes settings and the time. Touches only regular files whose names have exactly the form of `name`, and no file
//! that a log is written to.

mod archiver;
mod compress;
mod name;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use self::compress::compress;
use self::name::{ArchiveForm, ArchiveId};
use config::failure::plain;
use config::typed::{LogTarget, Rotation};

pub(super) use self::archiver::start;

/// Old files of one log within one second at most.
const NUMBERS_MAX: u64 = 10_000;

/// Renames a log to the name of an old file, at `secs` since 1970 UTC; gives the new path. Overwrites nothing.
///
/// # Errors
/// When it cannot be renamed.
pub(super) fn move_away(log: &Path, secs: u64) -> io::Result<PathBuf> {
    // Looked for once; in the loop only a process that was faster can have taken a number.
    let first = next_number(log, secs)?;
    for number in first..first.saturating_add(NUMBERS_MAX) {
        let old = path_of(log, ArchiveId { secs, number }, ArchiveForm::Plain)?;
        match rename_new(log, &old) {
            Ok(()) => return Ok(old),
            // Another process was faster.
            Err(fault) if fault.kind() == ErrorKind::AlreadyExists => {}
            Err(fault) => return Err(fault),
        }
    }
    let text = "too many old files of the same second";
    Err(io::Error::new(ErrorKind::AlreadyExists, text))
}

/// The number after the greatest among the old files of one second, whatever their form.
fn next_number(log: &Path, secs: u64) -> io::Result<u64> {
    let (Some(folder), Some(log)) = (log.parent(), log.file_name()) else {
        return Ok(0);
    };
    // A smaller number that is free again would make the file look older than it is.
    let mut next = 0;
    for entry in std::fs::read_dir(folder)? {
        if let Some((id, _)) = name::read(log, &entry?.file_name())
            && id.secs == secs
        {
            next = next.max(id.number + 1);
        }
    }
    Ok(next)
}

/// The old files of one log, and the settings for them.
#[derive(Debug)]
pub(super) struct Archive {
    log: PathBuf,
    /// Files that logs are written to now. They are never old files, whatever their names are.
    current: Arc<[PathBuf]>,
    keep_len: Option<usize>,
    keep_age_ns: Option<u64>,
    compresses: bool,
}

/// Old files in all their forms, the oldest first.
type ArchivedFiles = BTreeMap<ArchiveId, Vec<ArchiveForm>>;

impl Archive {
    /// The archives of these logs, one for each file. The files are there already.
    pub(super) fn all<'a>(
        logs: impl Iterator<Item = &'a LogTarget>,
        rotation: &Rotation,
    ) -> Vec<Archive> {
        let real = |log: &LogTarget| match log {
            LogTarget::File(log) => {
                Some(std::fs::canonicalize(log).unwrap_or_else(|_| log.clone()))
            }
            LogTarget::Stdout | LogTarget::Stderr | LogTarget::Syslog(_) => None,
        };
        let current: BTreeSet<PathBuf> = logs.filter_map(real).collect();
        let current: Arc<[PathBuf]> = current.into_iter().collect();
        let archive = |log: &PathBuf| Archive {
            log: log.clone(),
            current: Arc::clone(&current),
            keep_len: rotation.keep_len,
            keep_age_ns: rotation.keep_age.map(|age| age.0),
            compresses: rotation.compress,
        };
        current.iter().map(archive).collect()
    }

    /// Whether the settings ask for anything.
    fn has_work(&self) -> bool {
        self.keep_len.is_some() || self.keep_age_ns.is_some() || self.compresses
    }

    /// Deletes and compresses what the settings say, until nothing is left or `is_stopped`; gives the faults.
    fn clean_up(&self, now_ns: fn() -> u64, is_stopped: &dyn Fn() -> bool) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |what: &str, cause: io::Error| {
            let log = self.log.display();
            faults.push(format!("old files of `{log}`: {what}: {}", plain(&cause)));
        };
        let mut tried = BTreeSet::new();
        while !is_stopped() {
            // Again after each compression, which may take long, so that the disk does not fill meanwhile.
            let kept = match self.delete_surplus(now_ns()) {
                Ok(kept) => kept,
                Err(cause) => {
                    fault("deletion failed", cause);
                    break;
                }
            };
            let is_next = |(id, forms): &(ArchiveId, Vec<ArchiveForm>)| {
                forms.contains(&ArchiveForm::Plain) && !tried.contains(id)
            };
            match kept.into_iter().find(is_next) {
                Some((id, _)) if self.compresses => {
                    tried.insert(id);
                    let plain = path_of(&self.log, id, ArchiveForm::Plain);
                    if let Err(cause) = plain.and_then(|plain| compress(&plain, is_stopped)) {
                        fault("compression failed", cause);
                    }
                }
                _ => break,
            }
        }
        faults
    }

    /// Deletes what is not to be kept at `now_ns`; gives what stays.
    fn delete_surplus(&self, now_ns: u64) -> io::Result<ArchivedFiles> {
        let mut files = self.list()?;
        let ids: Vec<ArchiveId> = files.keys().copied().collect();
        for id in surplus(&ids, self.keep_len, self.keep_age_ns, now_ns) {
            // In all its forms: a compressed file and the original beside it are one old file.
            for form in files.remove(&id).unwrap_or_default() {
                remove(&path_of(&self.log, id, form)?)?;
            }
        }
        Ok(files)
    }

    /// The old files in the folder; folders and links are not ours.
    fn list(&self) -> io::Result<ArchivedFiles> {
        let mut files = ArchivedFiles::new();
        let (Some(folder), Some(log)) = (self.log.parent(), self.log.file_name()) else {
            return Ok(files);
        };
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let Some((id, form)) = name::read(log, &entry.file_name()) else {
                continue;
            };
            // A log may be called as an old file of another one is; links and folders are not ours.
            if entry.file_type()?.is_file() && !self.current.contains(&entry.path()) {
                files.entry(id).or_default().push(form);
            }
        }
        Ok(files)
    }
}

/// Which of these files, the oldest first, are not kept: all but the last `keep_len`, and those that are too old.
fn surplus(
    ids: &[ArchiveId],
    keep_len: Option<usize>,
    keep_age_ns: Option<u64>,
    now_ns: u64,
) -> Vec<ArchiveId> {
    let too_many = ids.len().saturating_sub(keep_len.unwrap_or(ids.len()));
    let is_old = |id: &ArchiveId| {
        let age_ns = now_ns.saturating_sub(id.secs.saturating_mul(1_000_000_000));
        keep_age_ns.is_some_and(|most| age_ns > most)
    };
    let surplus =
        |(index, id): (usize, &ArchiveId)| (index < too_many || is_old(id)).then_some(*id);
    ids.iter().enumerate().filter_map(surplus).collect()
}

/// Removes a file; another process may have done so.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(fault) if fault.kind() != ErrorKind::NotFound => Err(fault),
        _ => Ok(()),
    }
}

fn path_of(log: &Path, id: ArchiveId, form: ArchiveForm) -> io::Result<PathBuf> {
    let Some(file_name) = log.file_name() else {
        return Err(ErrorKind::InvalidInput.into());
    };
    Ok(log.with_file_name(name::write(file_name, id, form)))
}

/// Renames a file, when the new name is free.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // File systems that do not know the flag (NFS, old FUSE) have links.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            // Fails where the name is taken, as the flag would: nothing is overwritten.
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from).inspect_err(|_| {
                let _ = std::fs::remove_file(to);
            })
        }
        Err(fault) => Err(fault.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use telemetry::Nanos;

    use super::*;
    use crate::tests::names;

    const SECS: u64 = 1_795_262_859;

    fn id(secs: u64, number: u64) -> ArchiveId {
        ArchiveId { secs, number }
    }

    fn archives(logs: &[PathBuf], rotation: &Rotation) -> Vec<Archive> {
        let logs: Vec<_> = logs.iter().cloned().map(LogTarget::File).collect();
        Archive::all(logs.iter(), rotation)
    }

    /// A folder with a log and old files.
    fn place(old: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &["a.log"]);
        write(dir.path(), old);
        let log = dir.path().join("a.log");
        (dir, log)
    }

    fn write(folder: &Path, names: &[&str]) {
        for name in names {
            std::fs::write(folder.join(name), "line\n").unwrap();
        }
    }

    #[test]
    fn overwrites_nothing() {
        let (dir, log) = place(&["other"]);
        let fault = rename_new(&log, &dir.path().join("other")).unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::AlreadyExists);
        assert!(log.exists());
    }

    #[test]
    fn takes_no_name_that_a_compressed_file_or_a_folder_has() {
        let (dir, log) = place(&[
            "a.log.20261121T120739Z.gz",
            "a.log.20261121T120739Z.2.gz.part",
        ]);
        std::fs::create_dir(dir.path().join("a.log.20261121T120739Z.1")).unwrap();
        let old = move_away(&log, SECS).unwrap();
        assert_eq!(old, dir.path().join("a.log.20261121T120739Z.3"));
        rename_new(&old, &log).unwrap();
        assert!(log.exists() && !old.exists());
    }

    #[test]
    fn a_number_that_is_free_again_is_not_given_to_a_younger_file() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        let next = || {
            write(dir.path(), &["a.log"]);
            move_away(&log, SECS).unwrap()
        };
        let (first, second) = (next(), next());
        std::fs::remove_file(&first).unwrap();
        let third = next();
        assert_eq!(second, dir.path().join("a.log.20261121T120739Z.1"));
        assert_eq!(third, dir.path().join("a.log.20261121T120739Z.2"));
    }

    #[test]
    fn deletes_only_old_files_of_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let ours = "a.log.20200101T000000Z a.log.20200101T000000Z.1.gz a.log.20200102T000000Z.gz \
            a.log.20200103T000000Z.gz.part";
        let others = "a.log a.log.1 a.log.1.gz a.log.20200101 a.log.b a.log.b.20200101T000000Z \
            a.log.20200101T000000Z.txt a.log.20200101T000001Z b.log.20200101T000000Z";
        let [ours, others] = [ours, others].map(|names| Vec::from_iter(names.split_whitespace()));
        write(dir.path(), &ours);
        write(dir.path(), &others);
        std::fs::create_dir(dir.path().join("a.log.20200104T000000Z")).unwrap();
        let link = dir.path().join("a.log.20200105T000000Z");
        std::os::unix::fs::symlink(dir.path().join("b.log.20200101T000000Z"), link).unwrap();

        let logs = ["a.log", "a.log.20200101T000001Z", "a.log.b"];
        let logs = logs.map(|name| dir.path().join(name));
        let rotation = Rotation {
            keep_len: Some(0),
            ..Rotation::default()
        };
        let archives = archives(&logs, &rotation);
        assert_eq!(archives.len(), 3);
        assert!(archives[0].delete_surplus(0).unwrap().is_empty());
        let mut left = others;
        left.extend(["a.log.20200104T000000Z", "a.log.20200105T000000Z"]);
        left.sort_unstable();
        assert_eq!(names(dir.path()), left);
    }

    #[test]
    fn logs_that_are_one_file_have_one_archive() {
        let (dir, log) = place(&[]);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&log, &link).unwrap();
        let archives = archives(&[log.clone(), link, log], &Rotation::default());
        assert_eq!(archives.len(), 1);
    }

    #[test]
    fn deletes_by_number_and_by_age_and_compresses_what_stays() {
        const NOON: u64 = 1_795_262_400_000_000_000;
        let (dir, log) = place(&[
            "a.log.20261119T000000Z",
            "a.log.20261120T000000Z.gz",
            "a.log.20261120T000000Z.1.gz.part",
            "a.log.20261121T000000Z",
            "a.log.20261121T000001Z.gz",
        ]);
        let rotation = Rotation {
            keep_len: Some(2),
            keep_age: Some(Nanos(13 * 3_600_000_000_000)),
            compress: true,
            ..Rotation::default()
        };
        let archive = &archives(&[log], &rotation)[0];
        assert_eq!(archive.clean_up(|| NOON, &|| false), [""; 0]);
        assert_eq!(
            names(dir.path()),
            [
                "a.log",
                "a.log.20261121T000000Z.gz",
                "a.log.20261121T000001Z.gz"
            ]
        );
    }

    proptest! {
        #[test]
        fn the_youngest_are_kept(
            secs in proptest::collection::btree_set(0..1_000u64, 0..30),
            keep_len in proptest::option::of(0..40usize),
            keep_secs in proptest::option::of(0..1_000u64),
            now in 0..1_200u64,
        ) {
            let ids: Vec<ArchiveId> = secs.iter().map(|secs| id(*secs, 0)).collect();
            let second = 1_000_000_000;
            let surplus = surplus(&ids, keep_len, keep_secs.map(|secs| secs * second), now * second);
            prop_assert_eq!(&surplus[..], &ids[..surplus.len()]);
            let kept = &ids[surplus.len()..];
            prop_assert!(keep_len.is_none_or(|most| kept.len() <= most));
            let is_old = |id: &ArchiveId| keep_secs.is_some_and(|secs| id.secs + secs < now);
            prop_assert!(!kept.iter().any(is_old));
            if let Some(last) = surplus.last() {
                prop_assert!(is_old(last) || Some(kept.len()) == keep_len);
            }
        }
    }
}
