//! Writes the generated pages under docs/reference.
//!
//! Takes what `milepost reference` prints; gives the committed pages. Decides nothing about their text.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Pages and their files.
const PAGES: [(&str, &str); 2] = [
    ("settings", "docs/reference/options.md"),
    ("bench", "docs/reference/bench.md"),
];

/// Builds the command and writes its pages.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    PAGES
        .into_iter()
        .try_for_each(|(page, file)| write(root, page, file))
}

fn write(root: &Path, page: &str, file: &str) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let printed = Command::new(cargo)
        .args([
            "run",
            "--quiet",
            "--package",
            "milepost",
            "--",
            "reference",
            page,
        ])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !printed.status.success() {
        return Err(format!("`milepost reference {page}`: {}", printed.status));
    }
    let path = root.join(file);
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, &printed.stdout));
    written.map_err(|error| format!("cannot write `{file}`: {error}"))?;
    println!("docs: wrote {file}, {} bytes", printed.stdout.len());
    Ok(())
}
