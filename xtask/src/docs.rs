//! Writes the generated pages under docs/reference.
//!
//! Takes what `milepost reference` prints; gives the committed page. Decides nothing about its text.

use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE: &str = "docs/reference/options.md";

/// Builds the command and writes its page.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let printed = Command::new(cargo)
        .args(["run", "--quiet", "--package", "milepost", "--", "reference"])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !printed.status.success() {
        return Err(format!("`milepost reference`: {}", printed.status));
    }
    let path = root.join(PAGE);
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, &printed.stdout));
    written.map_err(|error| format!("cannot write `{PAGE}`: {error}"))?;
    println!("docs: wrote {PAGE}, {} bytes", printed.stdout.len());
    Ok(())
}
