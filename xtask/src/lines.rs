//! `xtask lines PATH...`: how many lines of production code files and folders hold.
//!
//! Takes paths relative to the current folder, so that two checkouts can be counted by one program. Gives the
//! lines of each path on stdout, and their sum. A line counts when something of it is neither comment nor
//! blank and when more than tests compile it: items under `#[cfg(test)]`, files called `tests.rs` and folders
//! called `tests` do not count, nor does `faults.rs`, which only the feature `faults` of the tests compiles.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy;

/// What only a feature compiles that no release has.
const TEST_FEATURE_FILE: &str = "faults.rs";

/// Counts and prints.
///
/// # Errors
/// A path does not exist or cannot be read.
pub(crate) fn run(first: &str, rest: &[&str]) -> Result<(), String> {
    let mut sum = Counted::default();
    println!("{:>8} {:>6}  path", "lines", "files");
    for path in std::iter::once(&first).chain(rest) {
        let counted = count(Path::new(path))?;
        println!("{:>8} {:>6}  {path}", counted.lines_len, counted.files_len);
        sum.lines_len += counted.lines_len;
        sum.files_len += counted.files_len;
    }
    println!("{:>8} {:>6}  all of them", sum.lines_len, sum.files_len);
    Ok(())
}

/// What a path holds. Files without a line of production code are none.
#[derive(Default)]
struct Counted {
    lines_len: usize,
    files_len: usize,
}

fn count(path: &Path) -> Result<Counted, String> {
    let mut files = Vec::new();
    collect(path, &mut files)?;
    let mut counted = Counted::default();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| cannot(&file, &error))?;
        let lines_len = tidy::code_lines_len(&file.to_string_lossy(), &text);
        counted.lines_len += lines_len;
        counted.files_len += usize::from(lines_len > 0);
    }
    Ok(counted)
}

/// The Rust files at `path`, which may be one.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(|error| cannot(path, &error))? {
            let entry = entry.map_err(|error| cannot(path, &error))?.path();
            if entry.is_dir() || entry.extension().is_some_and(|ending| ending == "rs") {
                collect(&entry, files)?;
            }
        }
    } else if path
        .file_name()
        .is_none_or(|name| name != TEST_FEATURE_FILE)
    {
        files.push(path.to_owned());
    }
    Ok(())
}

fn cannot(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read `{}`: {error}", path.display())
}
