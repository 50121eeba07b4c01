//! Chores of the house. Takes the name of a chore; prints faults and exits 1 when there are any.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!("xtask: usage: cargo run -p xtask -- tidy");
    ExitCode::from(2)
}
