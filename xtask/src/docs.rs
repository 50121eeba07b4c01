//! Writes the generated pages under docs/reference, and the defaults in the tables of the other pages.
//!
//! Takes what `milepost reference` prints; gives the committed pages. Decides nothing about their text.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::defaults;

/// The reference page of the settings.
const SETTINGS: &str = "docs/reference/options.md";
/// Pages and their files.
const PAGES: [(&str, &str); 4] = [
    ("settings", SETTINGS),
    ("bench", "docs/reference/bench.md"),
    ("metrics", "docs/reference/metrics.md"),
    ("keywords", "python/milepost/_settings.py"),
];

/// Builds the command and writes its pages.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    for (page, file) in PAGES {
        write(root, file, &printed(root, page)?)?;
    }
    for (file, _, page) in guides(root)? {
        write(root, &file, page.as_bytes())?;
    }
    Ok(())
}

/// What `milepost reference` prints of a page.
fn printed(root: &Path, page: &str) -> Result<Vec<u8>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let printed = Command::new(cargo)
        .args(["run", "--quiet", "--package", "milepost", "--"])
        .args(["reference", page])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !printed.status.success() {
        return Err(format!("`milepost reference {page}`: {}", printed.status));
    }
    Ok(printed.stdout)
}

/// The pages with tables of settings: file, its text, and the text that it should have.
fn guides(root: &Path) -> Result<Vec<(String, String, String)>, String> {
    let read = |file: &str| {
        fs::read_to_string(root.join(file))
            .map_err(|error| format!("cannot read `{file}`: {error}"))
    };
    let defaults = defaults::read(&read(SETTINGS)?);
    let mut guides = Vec::new();
    for (folder, reference) in [
        ("docs", "reference/options.md"),
        ("docs/guide", "../reference/options.md"),
    ] {
        for file in pages_in(root, folder)? {
            let old = read(&file)?;
            let new = defaults::write(&old, reference, &defaults)
                .map_err(|what| format!("{file}: {what}"))?;
            let wrong = defaults::wrong_in_prose(&new, &defaults);
            if !wrong.is_empty() {
                return Err(format!("{file}: {}", wrong.join("; ")));
            }
            guides.push((file, old, new));
        }
    }
    Ok(guides)
}

fn pages_in(root: &Path, folder: &str) -> Result<Vec<String>, String> {
    let cannot = |error: std::io::Error| format!("cannot read `{folder}`: {error}");
    let mut pages = Vec::new();
    for entry in fs::read_dir(root.join(folder)).map_err(cannot)? {
        let name = PathBuf::from(entry.map_err(cannot)?.file_name());
        if name.extension().is_some_and(|extension| extension == "md") {
            pages.push(format!("{folder}/{}", name.display()));
        }
    }
    pages.sort();
    Ok(pages)
}

/// Writes a page that has changed.
fn write(root: &Path, file: &str, text: &[u8]) -> Result<(), String> {
    let path = root.join(file);
    if fs::read(&path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, text));
    written.map_err(|error| format!("cannot write `{file}`: {error}"))?;
    println!("docs: wrote {file}, {} bytes", text.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_in_the_guides_are_those_of_the_reference() {
        for (file, old, new) in guides(&crate::root()).unwrap() {
            assert!(old == new, "{file} is old: run `make docs`");
        }
    }
}
