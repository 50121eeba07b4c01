//! Reads the files of a checkout that rules are about.
//!
//! Takes the checkout's folder, gives paths (relative, with slashes) and texts in a stable order. Build
//! results and hidden folders are no part of the sources.

use std::fs;
use std::path::Path;

/// Where code lives.
const TOPS: [&str; 8] = [
    "crates", "xtask", "fuzz", "lab", "python", "tests", "examples", "tools",
];
const ENDINGS: [&str; 6] = [".rs", "Cargo.toml", ".py", ".pyi", ".sh", ".lua"];
const OTHERS: [&str; 5] = [
    "target",
    "corpus",
    "artifacts",
    "__pycache__",
    "node_modules",
];

/// Everything to be checked.
pub(super) fn read(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut texts = Vec::new();
    for top in TOPS {
        if root.join(top).is_dir() {
            read_folder(root, top, &mut texts)?;
        }
    }
    // Beside code, one page: it says what each module is for.
    let page = super::architecture::PAGE;
    let text = fs::read_to_string(root.join(page))
        .map_err(|error| format!("cannot read `{page}`: {error}"))?;
    texts.push((page.to_owned(), text));
    texts.sort();
    Ok(texts)
}

fn read_folder(root: &Path, folder: &str, texts: &mut Vec<(String, String)>) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot read `{folder}`: {error}");
    for entry in fs::read_dir(root.join(folder)).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        // A name that is not UTF-8 is none of ours.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = format!("{folder}/{name}");
        let kind = entry.file_type().map_err(cannot)?;
        if kind.is_dir() && !name.starts_with('.') && !OTHERS.contains(&name.as_str()) {
            read_folder(root, &path, texts)?;
        } else if kind.is_file() && ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            let text = fs::read_to_string(entry.path())
                .map_err(|error| format!("cannot read `{path}`: {error}"))?;
            texts.push((path, text));
        }
    }
    Ok(())
}
