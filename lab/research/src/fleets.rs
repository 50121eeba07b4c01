//! Rules of balancing on made loads: the tables of docs/balancing.md and its pictures.
//!
//! A cell is p50/p99 in ms from arrival to end, the mean of three seeds. The load is the part of what all servers together
//! can do. Rules of other proxies send each request at once, as those do; `queue` holds requests back.

use std::fs;
use std::path::Path;

use present::{Axis, Chart, Line, Scale};
use queueing::balancing::Rule;
use telemetry::Nanos;
use whatif::prediction::on_all_cores;
use whatif::{
    Arrival, ArrivalProcess, Balance, Fleet, FleetServer, Laws, Limits, Rate, Route, Service,
    Stall, simulate_fleet,
};

const MEAN: Nanos = Nanos::from_ms(20);
pub(crate) const THREADS: u32 = 4;
const SEEDS: [u64; 3] = [1, 2, 3];
const REQUESTS: usize = 60_000;
pub(crate) const LOADS: [f64; 3] = [0.5, 0.7, 0.9];
/// What takes longer at p99 has a queue that grows.
const GROWS_FROM_SECS: f64 = 20.0;

pub(crate) type Contender = (&'static str, Balance, Limits);

pub(crate) const CONTENDERS: [Contender; 9] = [
    ("random", Balance::By(Rule::Random), Limits::None),
    ("round robin", Balance::By(Rule::RoundRobin), Limits::None),
    ("two choices", Balance::By(Rule::TwoChoices), Limits::None),
    (
        "least connections",
        Balance::By(Rule::LeastConnections),
        Limits::None,
    ),
    ("Prequal", Balance::By(Rule::Prequal), Limits::None),
    ("peak EWMA", Balance::By(Rule::PeakEwma), Limits::None),
    (
        "**queue**, slots learnt",
        Balance::By(Rule::Queue),
        Limits::Learnt,
    ),
    (
        "**queue**, slots reported",
        Balance::By(Rule::Queue),
        Limits::Reported,
    ),
    ("one ideal queue", Balance::Central, Limits::None),
];
/// Those in the pictures: as many as there are colours that can be told apart.
const DRAWN: [usize; 8] = [7, 0, 1, 2, 3, 4, 5, 8];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Equal,
    Slower,
    Stalling,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Law {
    Exponential,
    LogNormal,
    Bimodal,
}

const KINDS: [(Kind, &str); 3] = [
    (Kind::Equal, "equal"),
    (Kind::Slower, "one of them 5 times slower"),
    (Kind::Stalling, "one of them stands still 1 s in 10"),
];
const LAWS: [(Law, &str); 3] = [
    (Law::Exponential, "exponential"),
    (Law::LogNormal, "log-normal"),
    (Law::Bimodal, "bimodal"),
];

#[derive(Clone, Copy, PartialEq, Debug)]
struct Case {
    kind: Kind,
    law: Law,
    load: f64,
    servers: usize,
    proxies: usize,
    report_delay: Nanos,
}

/// Means over the seeds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Cell {
    p50_secs: f64,
    p99_secs: f64,
    last_share: f64,
}

/// Prints the tables and draws the pictures into a folder.
pub(crate) fn print(folder: &Path) -> Result<(), std::io::Error> {
    fs::create_dir_all(folder)?;
    for servers in [4, 16] {
        for (kind, name) in KINDS {
            println!("\n### {servers} servers, {name}\n");
            let case = |(law, load)| Case {
                kind,
                law,
                load,
                servers,
                proxies: 1,
                report_delay: Nanos::ZERO,
            };
            let columns: Vec<(Law, f64)> = LAWS
                .iter()
                .flat_map(|(law, _)| LOADS.map(|load| (*law, load)))
                .collect();
            let heads = columns
                .iter()
                .map(|(law, load)| format!("{} {load}", name_of(*law)));
            let rows = cells(&columns.iter().copied().map(case).collect::<Vec<_>>());
            table(&heads.collect::<Vec<_>>(), &rows);
            if servers == 4 {
                let lines = &rows.iter().map(|row| &row[3..6]).collect::<Vec<_>>();
                let file = format!("{kind:?}.svg").to_lowercase();
                fs::write(folder.join(file), chart(name, lines).file())?;
            }
        }
    }
    println!("\n### Several proxies that do not see each other, log-normal, load 0.9\n");
    let cases: Vec<Case> = [(1, 0), (4, 0), (4, 100), (16, 0)]
        .into_iter()
        .flat_map(|(proxies, delay_ms)| {
            [(Kind::Equal, 4), (Kind::Slower, 4), (Kind::Slower, 16)].map(|(kind, servers)| Case {
                kind,
                law: Law::LogNormal,
                load: 0.9,
                servers,
                proxies,
                report_delay: Nanos::from_ms(delay_ms),
            })
        })
        .collect();
    let heads = cases.iter().map(|case| {
        let late = match case.report_delay {
            Nanos::ZERO => "",
            _ => ", reports 100 ms late",
        };
        let kind = match case.kind {
            Kind::Equal => "equal",
            Kind::Slower | Kind::Stalling => "one slower",
        };
        format!("{} to {} {kind}{late}", case.proxies, case.servers)
    });
    table(&heads.collect::<Vec<_>>(), &cells(&cases));
    Ok(())
}

fn name_of(law: Law) -> &'static str {
    LAWS.iter()
        .find(|(one, _)| *one == law)
        .map_or("", |(_, name)| name)
}

pub(crate) fn table(heads: &[String], rows: &[Vec<Cell>]) {
    println!("| | {} |", heads.join(" | "));
    println!("|---|{}", "---|".repeat(heads.len()));
    for ((name, ..), row) in CONTENDERS.iter().zip(rows) {
        let cells: Vec<String> = row.iter().map(text).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}

fn text(cell: &Cell) -> String {
    match cell.p99_secs < GROWS_FROM_SECS {
        true => format!("{:.0}/{:.0}", cell.p50_secs * 1e3, cell.p99_secs * 1e3),
        false => "grows".to_owned(),
    }
}

/// By contender, then by case.
fn cells(cases: &[Case]) -> Vec<Vec<Cell>> {
    by_contender(cases.len(), &|contender, case| cell(contender, cases[case]))
}

/// A row for each contender of so many cells, which are made on all processors.
pub(crate) fn by_contender(
    len: usize,
    cell: &(dyn Fn(Contender, usize) -> Cell + Sync),
) -> Vec<Vec<Cell>> {
    let all = on_all_cores(CONTENDERS.len() * len, &|index| {
        cell(CONTENDERS[index / len], index % len)
    });
    all.chunks(len).map(<[Cell]>::to_vec).collect()
}

fn cell((_, balance, limits): Contender, case: Case) -> Cell {
    let mut servers = vec![FleetServer::of_threads(THREADS); case.servers];
    let last = &mut servers[case.servers - 1];
    match case.kind {
        Kind::Equal => {}
        Kind::Slower => last.slower = 5.0,
        Kind::Stalling => {
            last.stall = Some(Stall {
                every: Nanos::from_secs(10),
                lasts: Nanos::from_secs(1),
            });
        }
    }
    let able = |server: &FleetServer| {
        let awake = if server.stall.is_some() { 0.9 } else { 1.0 };
        awake * f64::from(server.threads) / server.slower / MEAN.as_secs_f64()
    };
    let per_second = case.load * servers.iter().map(able).sum::<f64>();
    let fleet = Fleet {
        servers,
        proxies: case.proxies,
        balance,
        limits,
        round_trip: Nanos::from_us(200),
        report_delay: case.report_delay,
        patience: Nanos::from_secs(1),
    };
    let laws = Laws {
        rates: vec![Rate::steady(per_second, Nanos::from_secs(1_000_000))],
        process: ArrivalProcess::Poisson,
        routes: routes(case.law),
    };
    mean_cell(&fleet, &|seed| Box::new(laws.arrivals(seed).take(REQUESTS)))
}

/// The mean over the seeds, of the requests that belong to each.
pub(crate) fn mean_cell(
    fleet: &Fleet,
    arrivals: &dyn Fn(u64) -> Box<dyn Iterator<Item = Arrival>>,
) -> Cell {
    let mut cell = Cell::default();
    let of = SEEDS.len() as f64;
    for seed in SEEDS {
        let outcome = simulate_fleet(fleet, &mut *arrivals(seed), seed);
        let at = |quantile| outcome.total.value_at_quantile(quantile) as f64 / 1e9 / of;
        cell.p50_secs += at(0.5);
        cell.p99_secs += at(0.99);
        cell.last_share += outcome.share(fleet.servers.len() - 1) / of;
    }
    cell
}

/// All have the same mean.
fn routes(law: Law) -> Vec<Route> {
    match law {
        Law::Exponential => vec![Route::only(Service::Exponential { mean: MEAN })],
        Law::LogNormal => vec![Route::only(Service::LogNormal {
            mean: MEAN,
            cs2: 13.0,
        })],
        Law::Bimodal => {
            let short = Nanos((MEAN.0 as f64 / 1.99) as u64);
            let route = |weight, run| Route {
                weight,
                ..Route::only(Service::Constant(run))
            };
            vec![route(0.99, short), route(0.01, Nanos(100 * short.0))]
        }
    }
}

/// p99 over the load: of each contender a cell for each of LOADS.
pub(crate) fn chart(name: &str, rows: &[&[Cell]]) -> Chart {
    let line = |contender: usize| Line {
        name: CONTENDERS[contender].0.replace("**", ""),
        points: LOADS
            .iter()
            .zip(rows[contender])
            .filter(|(_, cell)| cell.p99_secs < GROWS_FROM_SECS)
            .map(|(load, cell)| (*load, cell.p99_secs))
            .collect(),
        ..Line::default()
    };
    let title = format!("p99 of 4 servers, {name}");
    Chart::of(
        &title,
        ["load", "from arrival to end"],
        Scale::of(Axis::Linear, Axis::Durations),
        DRAWN.map(line).to_vec(),
    )
}
