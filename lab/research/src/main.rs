//! Prints the tables of the experiments: `cargo run --release -p milepost-research -- TABLE`.
//!
//! `controllers` is the table of docs/control.md, from which `python3 -m lab policies` draws workloads.svg; `fitting`
//! shows how well fitted laws match the laws that made the requests; `fleets FOLDER` prints the tables of
//! docs/balancing.md and draws its pictures into the folder, `recordings FOLDER` does so with the recorded requests that
//! are in the folder. Exit 0 done, 2 wrong use or a picture could not be written.

#![forbid(unsafe_code)]

mod comparison;
mod fleets;
mod recordings;
mod recovery;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: research controllers | fitting | fleets FOLDER | recordings FOLDER";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["controllers"] => comparison::print(),
        ["fitting"] => recovery::print(),
        ["fleets", folder] => return told(folder, fleets::print(Path::new(folder))),
        ["recordings", folder] => return told(folder, recordings::print(Path::new(folder))),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn told(folder: &str, printed: Result<(), std::io::Error>) -> ExitCode {
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("research: `{folder}`: {error}");
            ExitCode::from(2)
        }
    }
}
