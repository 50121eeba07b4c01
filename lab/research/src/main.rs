//! Prints the tables of the experiments: `cargo run --release -p milepost-research -- TABLE`.
//!
//! `controllers` is the table of docs/control.md, from which `python3 -m lab policies` draws workloads.svg; `fitting`
//! shows how well fitted laws match the laws that made the requests; `fleets FOLDER` prints the tables of
//! docs/balancing.md and draws its pictures into the folder. Exit 0 done, 2 wrong use or a picture could not be written.

#![forbid(unsafe_code)]

mod comparison;
mod fleets;
mod recovery;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: research controllers | fitting | fleets FOLDER";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["controllers"] => comparison::print(),
        ["fitting"] => recovery::print(),
        ["fleets", folder] => {
            if let Err(error) = fleets::print(Path::new(folder)) {
                eprintln!("research: `{folder}`: {error}");
                return ExitCode::from(2);
            }
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
