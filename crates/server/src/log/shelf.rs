//! The shelf: old files of a log in its folder. What they are called, which of them are deleted, and who
//! compresses them.
//!
//! Touches nothing but regular files whose names are of exactly our form (`name`), and none that another
//! log is being written to.

mod keeper;
mod name;
mod pack;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use self::name::{Age, FORMS, Form};
use crate::config::meant::{LogCompression, Rotation};

pub(super) use self::keeper::{Keeper, Tools};

/// Old files that one log makes within one second at most.
const NUMBERS_MAX: u64 = 10_000;

/// Renames a log to the name of an old file, at `secs` since 1970 UTC; gives the new path. Overwrites
/// nothing, and takes no name that a compressed file of the same age has.
///
/// # Errors
/// When it cannot be renamed.
pub(super) fn put(log: &Path, secs: u64) -> io::Result<PathBuf> {
    // Never a number that is free again: the file would pass for an older one than it is.
    let first = last_number(log, secs)?.map_or(0, |last| last + 1);
    for number in first..first.saturating_add(NUMBERS_MAX) {
        let age = Age { secs, number };
        let old = path_of(log, age, Form::Plain)?;
        if is_taken(log, age)? {
            continue;
        }
        match rename_new(log, &old) {
            Ok(()) => return Ok(old),
            Err(fault) if fault.kind() == ErrorKind::AlreadyExists => {}
            Err(fault) => return Err(fault),
        }
    }
    let text = "too many old files of the same second";
    Err(io::Error::new(ErrorKind::AlreadyExists, text))
}

/// The greatest number among the old files of one second.
fn last_number(log: &Path, secs: u64) -> io::Result<Option<u64>> {
    let (Some(folder), Some(log)) = (log.parent(), log.file_name()) else {
        return Ok(None);
    };
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let mut last = None;
    for entry in std::fs::read_dir(folder)? {
        let named = name::read(log, &entry?.file_name());
        let of_second = named.filter(|(age, _)| age.secs == secs);
        last = last.max(of_second.map(|(age, _)| age.number));
    }
    Ok(last)
}

/// Gives an old file its name back, when that is free.
pub(super) fn take_back(old: &Path, log: &Path) -> io::Result<()> {
    rename_new(old, log)
}

/// The old files of one log, and what is to become of them.
#[derive(Debug)]
pub(super) struct Shelf {
    log: PathBuf,
    /// What logs are written to now: no old files, whatever their names are.
    lives: Arc<[PathBuf]>,
    keep_len: Option<usize>,
    keep_age_ns: Option<u64>,
    compress: Option<LogCompression>,
}

/// One old file, in all its forms.
type Olds = BTreeMap<Age, Vec<Form>>;

impl Shelf {
    /// The shelves of these logs, one for each file. The files are there already.
    pub(super) fn all(logs: &[PathBuf], rotation: &Rotation) -> Vec<Shelf> {
        let real = |log: &PathBuf| std::fs::canonicalize(log).unwrap_or_else(|_| log.clone());
        let lives: BTreeSet<PathBuf> = logs.iter().map(real).collect();
        let lives: Arc<[PathBuf]> = lives.into_iter().collect();
        let shelf = |log: &PathBuf| Shelf {
            log: log.clone(),
            lives: Arc::clone(&lives),
            keep_len: rotation.keep_len,
            keep_age_ns: rotation.keep_age.map(|age| age.0),
            compress: rotation.compress,
        };
        lives.iter().map(shelf).collect()
    }

    /// What lies there; not what somebody else put there, folders and links included.
    fn list(&self) -> io::Result<Olds> {
        let mut olds = Olds::new();
        let (Some(folder), Some(log)) = (self.log.parent(), self.log.file_name()) else {
            return Ok(olds);
        };
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let Some((age, form)) = name::read(log, &entry.file_name()) else {
                continue;
            };
            if entry.file_type()?.is_file() && !self.lives.contains(&entry.path()) {
                olds.entry(age).or_default().push(form);
            }
        }
        Ok(olds)
    }

    /// Deletes what is not to be kept at `wall_ns`; what stays is left in `olds`.
    fn delete_surplus(&self, olds: &mut Olds, wall_ns: u64) -> io::Result<()> {
        let ages: Vec<Age> = olds.keys().copied().collect();
        for age in surplus(&ages, self.keep_len, self.keep_age_ns, wall_ns) {
            for form in olds.remove(&age).unwrap_or_default() {
                remove(&path_of(&self.log, age, form)?)?;
            }
        }
        Ok(())
    }

    /// Deletes what compressing left behind in processes that were killed.
    fn delete_parts(&self, olds: &mut Olds) -> io::Result<()> {
        for (age, forms) in olds {
            let plain = path_of(&self.log, *age, Form::Plain)?;
            let is_part = |form: &Form| matches!(form, Form::Part(_));
            if !forms.iter().any(is_part) {
                continue;
            }
            // Whoever is compressing it has it locked. What has no original is of no use to anybody.
            let lock = forms.contains(&Form::Plain).then(|| pack::lock(&plain));
            if matches!(lock, Some(Ok(None))) {
                continue;
            }
            for part in forms.iter().filter(|form| is_part(form)) {
                remove(&path_of(&self.log, *age, *part)?)?;
            }
            forms.retain(|form| !is_part(form));
        }
        Ok(())
    }
}

/// Which of these ages, in rising order, are not kept: all but the last `keep_len`, and the older ones.
fn surplus(
    ages: &[Age],
    keep_len: Option<usize>,
    keep_age_ns: Option<u64>,
    wall_ns: u64,
) -> Vec<Age> {
    let too_many = ages.len().saturating_sub(keep_len.unwrap_or(ages.len()));
    let is_old = |age: &Age| {
        let age_ns = wall_ns.saturating_sub(age.secs.saturating_mul(1_000_000_000));
        keep_age_ns.is_some_and(|most| age_ns > most)
    };
    let surplus = |(index, age): (usize, &Age)| (index < too_many || is_old(age)).then_some(*age);
    ages.iter().enumerate().filter_map(surplus).collect()
}

/// Removes a file; somebody else may have done so.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(fault) if fault.kind() != ErrorKind::NotFound => Err(fault),
        _ => Ok(()),
    }
}

fn is_taken(log: &Path, age: Age) -> io::Result<bool> {
    for form in FORMS {
        match std::fs::symlink_metadata(path_of(log, age, form)?) {
            Ok(_) => return Ok(true),
            Err(fault) if fault.kind() == ErrorKind::NotFound => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(false)
}

fn path_of(log: &Path, age: Age, form: Form) -> io::Result<PathBuf> {
    let Some(file_name) = log.file_name() else {
        return Err(ErrorKind::InvalidInput.into());
    };
    Ok(log.with_file_name(name::write(file_name, age, form)))
}

/// Renames without overwriting.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // File systems that do not know the flag (NFS, old FUSE) have links.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
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
    use measure::Nanos;
    use proptest::prelude::*;

    use super::*;

    const SECS: u64 = 1_795_262_859;

    fn age(secs: u64, number: u64) -> Age {
        Age { secs, number }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let names = entries.map(|entry| name(entry).into_string().unwrap());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn write(folder: &Path, names: &[&str]) {
        for name in names {
            std::fs::write(folder.join(name), "line\n").unwrap();
        }
    }

    #[test]
    fn overwrites_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        write(dir.path(), &["a.log", "other"]);
        let fault = rename_new(&log, &dir.path().join("other")).unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::AlreadyExists);
        assert!(log.exists());
    }

    #[test]
    fn takes_no_name_that_a_compressed_file_or_a_folder_has() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        write(
            dir.path(),
            &[
                "a.log",
                "a.log.20261121T120739Z.gz",
                "a.log.20261121T120739Z.2.zst.part",
            ],
        );
        std::fs::create_dir(dir.path().join("a.log.20261121T120739Z.1")).unwrap();
        let old = put(&log, SECS).unwrap();
        assert_eq!(old, dir.path().join("a.log.20261121T120739Z.3"));
        take_back(&old, &log).unwrap();
        assert!(log.exists() && !old.exists());
    }

    #[test]
    fn a_number_that_is_free_again_is_not_given_to_a_younger_file() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        let next = || {
            write(dir.path(), &["a.log"]);
            put(&log, SECS).unwrap()
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
        let ours = [
            "a.log.20200101T000000Z",
            "a.log.20200101T000000Z.1.gz",
            "a.log.20200102T000000Z.zst",
            "a.log.20200103T000000Z.gz.part",
        ];
        let others = [
            "a.log",
            "a.log.1",
            "a.log.1.gz",
            "a.log.20200101",
            "a.log.b",
            "a.log.b.20200101T000000Z",
            "a.log.20200101T000000Z.txt",
            "a.log.20200101T000001Z",
            "b.log.20200101T000000Z",
        ];
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
        let shelves = Shelf::all(&logs, &rotation);
        assert_eq!(shelves.len(), 3);
        let mut olds = shelves[0].list().unwrap();
        shelves[0].delete_surplus(&mut olds, 0).unwrap();
        assert!(olds.is_empty());
        let mut left = others.to_vec();
        left.extend(["a.log.20200104T000000Z", "a.log.20200105T000000Z"]);
        left.sort_unstable();
        assert_eq!(names(dir.path()), left);
    }

    #[test]
    fn logs_that_are_one_file_have_one_shelf() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        write(dir.path(), &["a.log"]);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&log, &link).unwrap();
        let shelves = Shelf::all(&[log.clone(), link, log], &Rotation::default());
        assert_eq!(shelves.len(), 1);
    }

    #[test]
    fn deletes_parts_whose_maker_is_gone_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        write(
            dir.path(),
            &[
                "a.log",
                "a.log.20200101T000000Z",
                "a.log.20200101T000000Z.gz.part",
                "a.log.20200102T000000Z.zst.part",
                "a.log.20200103T000000Z",
                "a.log.20200103T000000Z.zst.part",
            ],
        );
        let busy = dir.path().join("a.log.20200103T000000Z");
        let lock = pack::lock(&busy).unwrap().unwrap();
        let shelf = &Shelf::all(&[log], &Rotation::default())[0];
        let mut olds = shelf.list().unwrap();
        shelf.delete_parts(&mut olds).unwrap();
        assert_eq!(
            names(dir.path()),
            [
                "a.log",
                "a.log.20200101T000000Z",
                "a.log.20200103T000000Z",
                "a.log.20200103T000000Z.zst.part"
            ]
        );
        drop(lock);
        shelf.delete_parts(&mut olds).unwrap();
        assert_eq!(names(dir.path()).len(), 3);
    }

    #[test]
    fn age_is_counted_from_the_time_in_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        write(
            dir.path(),
            &[
                "a.log",
                "a.log.20261121T120739Z",
                "a.log.20261121T120740Z.gz",
            ],
        );
        let rotation = Rotation {
            keep_age: Some(Nanos(10_000_000_000)),
            ..Rotation::default()
        };
        let shelf = &Shelf::all(&[log], &rotation)[0];
        let mut olds = shelf.list().unwrap();
        let wall_ns = (SECS + 10) * 1_000_000_000;
        shelf.delete_surplus(&mut olds, wall_ns).unwrap();
        assert_eq!(olds.len(), 2);
        shelf.delete_surplus(&mut olds, wall_ns + 1).unwrap();
        assert_eq!(names(dir.path()), ["a.log", "a.log.20261121T120740Z.gz"]);
    }

    #[test]
    fn what_is_surplus() {
        let ages = [age(10, 0), age(10, 1), age(20, 0), age(30, 0)];
        let second = 1_000_000_000;
        for (keep_len, keep_age_ns, wall_ns, expect) in [
            (None, None, u64::MAX, 0),
            (Some(4), None, u64::MAX, 0),
            (Some(9), None, u64::MAX, 0),
            (Some(3), None, 0, 1),
            (Some(0), None, 0, 4),
            (None, Some(second), 11 * second, 0),
            (None, Some(second), 11 * second + 1, 2),
            (None, Some(second), 0, 0),
            (Some(1), Some(second), 11 * second + 1, 3),
            (None, Some(0), u64::MAX, 4),
        ] {
            let surplus = surplus(&ages, keep_len, keep_age_ns, wall_ns);
            assert_eq!(surplus, ages[..expect], "{keep_len:?} {keep_age_ns:?}");
        }
    }

    proptest! {
        #[test]
        fn the_youngest_are_kept(
            secs in proptest::collection::btree_set(0..1_000u64, 0..30), keep_len in 0..40usize, keep_secs in 0..1_000u64, now in 0..1_200u64
        ) {
            let ages: Vec<Age> = secs.iter().map(|secs| age(*secs, 0)).collect();
            let second = 1_000_000_000;
            let surplus = surplus(&ages, Some(keep_len), Some(keep_secs * second), now * second);
            prop_assert_eq!(&surplus[..], &ages[..surplus.len()]);
            let kept = &ages[surplus.len()..];
            prop_assert!(kept.len() <= keep_len);
            prop_assert!(kept.iter().all(|age| age.secs + keep_secs >= now));
            if let Some(last) = surplus.last() {
                let is_old = last.secs + keep_secs < now;
                prop_assert!(is_old || kept.len() == keep_len);
            }
        }
    }
}
