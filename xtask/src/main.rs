//! Chores of the project: `cargo run -p xtask -- CHORE`.
//!
//! Takes the name of a chore. `tidy` reads the sources and says which rules of the project they break;
//! `docs` writes the reference pages and the defaults in the guides; `lines` counts lines of production code. Exit 0 done, 1 rules are broken, 2 could not.
//! No part of the product may depend on it.
#![forbid(unsafe_code)]

mod defaults;
mod docs;
mod lines;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- tidy | docs | lines PATH...";

fn main() -> ExitCode {
    let chores: Vec<String> = std::env::args().skip(1).collect();
    let done = match chores
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["tidy"] => tidy::run(&root()),
        ["lines", first, rest @ ..] => lines::run(first, rest).map(|()| ExitCode::SUCCESS),
        ["docs"] => docs::run(&root()).map(|()| ExitCode::SUCCESS),
        _ => Err(USAGE.to_owned()),
    };
    done.unwrap_or_else(|fault| {
        eprintln!("xtask: {fault}");
        ExitCode::from(2)
    })
}

/// The checkout: the folder above this package.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}
