//! `milepost whatif --servers`: several servers behind a proxy, by each rule of balancing.
//!
//! Takes options and requests, gives the answers of the simulator to the terminal, as JSON or as a page. There is no
//! check against the log as for one server: a log does not say how its servers were chosen.

mod options;
mod show;

use std::fs;

use telemetry::Nanos;
use whatif::prediction::{Requests, Times, on_all_cores};
use whatif::recorded::Workload;
use whatif::{Balance, Fleet, FleetOutcome, FleetServer, Limits, Sharing, simulate_fleet};

use super::flags::{Source, WhatifOptions};
use super::reading::{self, RunOf, Untimed};
use super::routes::Routes;
use super::scaled;
use crate::inputs::title;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE};
pub(super) use options::FleetOptions;

/// Most simulations of one question.
const FLEETS_LEN_MAX: usize = 500;
/// A response after this time is worth nothing: for the goodput.
const PATIENCE: Nanos = Nanos::from_secs(1);
/// A request's way to a server and back, where nothing says it: two machines of one network.
const ROUND_TRIP: Nanos = Nanos::from_us(200);

/// What was simulated, but for the server's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FleetVariant {
    pub(super) servers: usize,
    pub(super) proxies: usize,
    pub(super) balance: Balance,
    pub(super) limits: Limits,
    pub(super) rate: f64,
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct FleetAnswer {
    pub(super) variant: FleetVariant,
    pub(super) queue: Times,
    pub(super) total: Times,
    /// The share of the threads' time in which they ran something.
    pub(super) busy: f64,
    /// Of requests that were answered within [`PATIENCE`].
    pub(super) good: f64,
    /// The share of the requests that each server had.
    pub(super) shares: Vec<f64>,
    /// Total times at quantiles, in seconds.
    pub(super) quantiles: Vec<(f64, f64)>,
}

/// Everything that is printed.
#[derive(Debug)]
pub(super) struct FleetFindings {
    pub(super) title: String,
    pub(super) slots: u32,
    pub(super) slow: Option<f64>,
    pub(super) round_trip: Nanos,
    pub(super) report_delay: Nanos,
    pub(super) answers: Vec<FleetAnswer>,
    pub(super) remarks: Vec<String>,
}

pub(super) fn run(options: &WhatifOptions, fleet: &FleetOptions) -> i32 {
    match find(options, fleet) {
        Ok(findings) => finish(options, &findings),
        Err(message) => {
            message.say();
            COULD_NOT
        }
    }
}

fn find(options: &WhatifOptions, fleet: &FleetOptions) -> Result<FleetFindings, Message> {
    let Known {
        title,
        requests,
        threads,
        round_trip,
        remarks,
    } = known(options)?;
    let hint = "requests that each server runs at once: `--slots 4`";
    let missing = || Message::new("`--slots`", "is missing: nothing tells it").with_hint(hint);
    let slots = fleet.slots.or(threads).ok_or_else(missing)?;
    let round_trip = fleet.round_trip.or(round_trip).unwrap_or(ROUND_TRIP);
    let variants = fleet.variants(&or_one(&options.rates));
    if variants.len() > FLEETS_LEN_MAX {
        let text = format!(
            "{} variants, expected up to {FLEETS_LEN_MAX}",
            variants.len()
        );
        return Err(Message::new(
            "`--servers`, `--balance`, `--limits`, `--proxies`, `--rate`",
            text,
        ));
    }
    let mut answers = Vec::new();
    // One rate after another: each has requests of its own, and they are what takes memory.
    for same in variants.chunk_by(|one, other| one.rate == other.rate) {
        let requests = scaled(&requests, same[0].rate);
        answers.extend(on_all_cores(same.len(), &|index| {
            let servers = (slots, round_trip);
            answer(&requests, fleet, servers, same[index], options.seed)
        }));
    }
    Ok(FleetFindings {
        title,
        slots,
        slow: fleet.slow,
        round_trip,
        report_delay: fleet.report_delay,
        answers,
        remarks,
    })
}

fn or_one(rates: &[f64]) -> Vec<f64> {
    match rates {
        [] => vec![1.0],
        rates => rates.to_vec(),
    }
}

/// What is simulated, and what is known of it.
struct Known {
    /// The name of the log.
    title: String,
    requests: Requests,
    /// Of each server, if the log tells.
    threads: Option<u32>,
    /// To a server and back, if the log tells.
    round_trip: Option<Nanos>,
    /// Doubts.
    remarks: Vec<String>,
}

fn known(options: &WhatifOptions) -> Result<Known, Message> {
    let (inputs, pattern) = match &options.source {
        Source::Synthetic(laws) => {
            return Ok(Known {
                title: "synthetic requests".to_owned(),
                requests: Requests::Made(laws.clone()),
                threads: None,
                round_trip: None,
                remarks: Vec::new(),
            });
        }
        Source::Logs(inputs, pattern) => (inputs, pattern.as_ref()),
    };
    let untimed = match options.run {
        Some(_) => Untimed::Taken,
        None => Untimed::Left,
    };
    let routes = Routes::new(&[], &[]);
    let read = reading::read(inputs, pattern, routes, untimed, RunOf::Upstream)?;
    let title = title(inputs);
    if let Some(fault) = read.fault(&title, untimed) {
        return Err(fault);
    }
    let recording = &read.recording;
    let mut workload = Workload::of(recording, None, Sharing::default(), &[], options.seed);
    if let Some(law) = &options.run {
        workload.set_runs(law, options.seed);
    }
    // A proxy's own threads are none of its servers'.
    let threads = match read.left_out.proxied_len {
        0 if !recording.has_loop() => {
            let found = recording.threads_found(0).map(|(_, most)| most);
            found.or(Some(recording.running_max(0)))
        }
        _ => None,
    };
    let threads = threads
        .and_then(|found| u32::try_from(found).ok())
        .filter(|found| *found > 0);
    Ok(Known {
        title,
        requests: Requests::Recorded(workload),
        threads,
        round_trip: read.left_out.round_trip(),
        remarks: read.doubts(),
    })
}

fn answer(
    requests: &Requests,
    options: &FleetOptions,
    (slots, round_trip): (u32, Nanos),
    variant: FleetVariant,
    seed: u64,
) -> FleetAnswer {
    let mut servers = vec![FleetServer::of_threads(slots); variant.servers];
    if let (Some(slower), Some(last)) = (options.slow, servers.last_mut()) {
        last.slower = slower;
    }
    let fleet = Fleet {
        servers,
        proxies: variant.proxies,
        balance: variant.balance,
        limits: variant.limits,
        round_trip,
        report_delay: options.report_delay,
        patience: PATIENCE,
    };
    let outcome = match requests {
        Requests::Recorded(workload) => simulate_fleet(&fleet, &mut workload.arrivals(), seed),
        Requests::Made(laws) => simulate_fleet(&fleet, &mut laws.arrivals(seed), seed),
    };
    FleetAnswer::of(variant, &outcome, slots)
}

impl FleetAnswer {
    fn of(variant: FleetVariant, outcome: &FleetOutcome, slots: u32) -> FleetAnswer {
        let busy: f64 = outcome
            .servers
            .iter()
            .map(|server| server.busy_seconds)
            .sum();
        let whole = outcome.lasted.as_secs_f64() * f64::from(slots) * variant.servers as f64;
        let quantiles = [0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999];
        let at = |quantile: f64| outcome.total.value_at_quantile(quantile) as f64 / 1e9;
        FleetAnswer {
            variant,
            queue: Times::of(&outcome.queue),
            total: Times::of(&outcome.total),
            busy: if whole > 0.0 { busy / whole } else { 0.0 },
            good: outcome.goodput(),
            shares: (0..variant.servers)
                .map(|server| outcome.share(server))
                .collect(),
            quantiles: quantiles.map(|quantile| (quantile, at(quantile))).to_vec(),
        }
    }

    /// The share of the last server: the slow one, if there is one.
    pub(super) fn last_share(&self) -> f64 {
        self.shares.last().copied().unwrap_or_default()
    }
}

fn finish(options: &WhatifOptions, findings: &FleetFindings) -> i32 {
    match options.is_json {
        true => message::data(&show::json(findings)),
        false => message::data(&show::text(findings)),
    }
    if let Some(path) = &options.page
        && let Err(error) = fs::write(path, show::page(findings))
    {
        Message::new(&format!("`{}`", path.display()), error).say();
        return COULD_NOT;
    }
    DONE
}
