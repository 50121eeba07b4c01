//! Rules of balancing on recorded loads: a table of docs/balancing.md and its picture.
//!
//! A recording has a line for each request: the microseconds since the one before, and those of its run. `python3 -m lab
//! proxy --only simulation` makes them. The load is the part of what all servers together can do; for another load than
//! that of the recording, the gaps are shorter or longer.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

use telemetry::Nanos;
use whatif::{Arrival, Fleet, FleetServer};

use crate::fleets::{Cell, LOADS, THREADS, by_contender, chart, mean_cell, table};

const SERVERS: usize = 4;
const NAMES: [&str; 2] = ["mixed", "heavy"];

/// Prints the table of the recordings `recorded-NAME.txt` of a folder, and draws its picture into the folder.
pub(crate) fn print(folder: &Path) -> Result<(), Error> {
    let mut columns = Vec::new();
    let mut heads = Vec::new();
    for name in NAMES {
        let requests = read(&folder.join(format!("recorded-{name}.txt")))?;
        for load in LOADS {
            columns.push(at_load(&requests, load));
            heads.push(format!("{name} {load}"));
        }
    }
    let rows = by_contender(columns.len(), &|(_, balance, limits), column| {
        let fleet = Fleet {
            servers: vec![FleetServer::of_threads(THREADS); SERVERS],
            proxies: 1,
            balance,
            limits,
            round_trip: Nanos::from_us(200),
            report_delay: Nanos::ZERO,
            patience: Nanos::from_secs(1),
        };
        let requests = columns[column].clone();
        mean_cell(&fleet, &|_| Box::new(requests.clone().into_iter()))
    });
    println!("\n### {SERVERS} servers, recorded requests\n");
    table(&heads, &rows);
    let heavy: Vec<&[Cell]> = rows.iter().map(|row| &row[LOADS.len()..]).collect();
    fs::write(
        folder.join("recorded.svg"),
        chart("recorded requests", &heavy).file(),
    )
}

/// Requests in the order of their arrival.
fn read(file: &Path) -> Result<Vec<Arrival>, Error> {
    let mut at_us = 0;
    let mut requests = Vec::new();
    for line in fs::read_to_string(file)?.lines() {
        let numbers: Vec<u64> = line.split(' ').flat_map(str::parse).collect();
        let [gap_us, run_us] = numbers[..] else {
            let text = format!("{}: expected two numbers, found `{line}`", file.display());
            return Err(Error::new(ErrorKind::InvalidData, text));
        };
        at_us += gap_us;
        requests.push(Arrival {
            at: Nanos::from_us(at_us),
            run: Nanos::from_us(run_us),
            ..Arrival::default()
        });
    }
    Ok(requests)
}

/// The same requests with other gaps.
fn at_load(requests: &[Arrival], load: f64) -> Vec<Arrival> {
    let busy_secs: f64 = requests.iter().map(|one| one.run.as_secs_f64()).sum();
    let lasted_secs = requests.last().map_or(0.0, |last| last.at.as_secs_f64());
    let threads = f64::from(THREADS) * SERVERS as f64;
    let stretch = busy_secs / (lasted_secs * threads) / load;
    let stretched = |one: &Arrival| Arrival {
        at: Nanos((one.at.0 as f64 * stretch) as u64),
        ..*one
    };
    requests.iter().map(stretched).collect()
}
