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
    for number in 0..NUMBERS_MAX {
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
