//! Prints the tables of the experiments: `cargo run --release -p milepost-research -- TABLE`.
//!
//! `controllers` is the table of docs/control.md, from which `python3 -m lab policies` draws workloads.svg; `fitting`
//! shows how well fitted laws match the laws that made the requests. Exit 0 done, 2 wrong use.

#![forbid(unsafe_code)]

mod comparison;
mod recovery;

use std::process::ExitCode;

const USAGE: &str = "usage: research controllers | fitting";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["controllers"] => comparison::print(),
        ["fitting"] => recovery::print(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
