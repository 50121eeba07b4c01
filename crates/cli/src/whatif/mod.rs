//! `milepost whatif`: predictions from an access log, as a table, as JSON or as a page.
//!
//! Takes flags, gives a recording and variants to the simulator, and its answers to the terminal. 0: done.
//! 1: no number of threads meets the objectives. 2: wrong use, an input or output failed, or the simulation
//! does not repeat the log.

mod flags;
mod fleet;
mod json;
mod log_facts;
mod loop_proposal;
mod objective;
mod page;
mod proposal;
mod reading;
mod remarks;
mod routes;
mod synthetic;
mod table;
pub(crate) mod tuning;

use std::fs;
use std::sync::Arc;

use ::whatif::RunsOn;
use clap::ArgMatches;
use present::thousands;
use report::Input;
use telemetry::history::HeldHistory;
use whatif::prediction::{
    Answer, Calibration, ControlMode, Objective, PoolVariant, Requests, Search, Threads, Variant,
    answers, on_all_cores, smallest,
};

use crate::inputs::title;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO};
pub(crate) use flags::command;
use flags::{Source, WhatifOptions};
use log_facts::Present;
use loop_proposal::LoopProposal;
use proposal::Proposal;
use reading::{RunOf, Untimed};
use routes::Routes;

/// Most variants of one question.
const VARIANTS_LEN_MAX: usize = 500;
/// Most threads of a process that a search tries.
const SEARCH_THREADS_MAX: usize = 1_024;

/// Settings of the server that a log does not contain, or not in all formats.
const REFUSAL_HINT: &str = "set `--threads-now N` if the server had another number of threads, and \
    `--queue-target`, `--queue-timeout`, `--overload-timeout` as the server had them; `--error-max 50%` \
    accepts larger errors, `--force` any";

/// The same for an event loop.
const LOOP_REFUSAL_HINT: &str = "set `--concurrency-now MIN:MAX` if `asgi_concurrency` was not the default, and \
    `--queue-target`, `--queue-timeout`, `--overload-timeout` as the server had them; tasks and callbacks that are no \
    steps of requests hold the loop as well, and no log shows them; `--error-max 50%` accepts larger errors, `--force` any";

/// The cause that is most likely, where arrivals are a guess.
const BY_SECOND_HINT: &str = "the log has times in whole seconds; lines with `at=`, as the server writes them by default, \
    or of `--access-log-format json` have microseconds";

/// Everything that is printed.
#[derive(Debug)]
struct Findings {
    title: String,
    present: Present,
    proposal: Option<Proposal>,
    /// The same where the busiest pool is on an event loop.
    loop_proposal: Option<LoopProposal>,
    answers: Vec<Answer>,
    objectives: Vec<Objective>,
    searches: Vec<SearchResult>,
    remarks: Vec<String>,
}

impl Findings {
    /// The answer, line by line; nothing of synthetic requests.
    fn verdict(&self) -> Vec<String> {
        let Some(log) = self.present.log.as_ref().filter(|log| log.has_runs) else {
            return Vec::new();
        };
        let mut lines = vec![proposal::now(log, &self.present.variant)];
        lines.extend(self.proposal.iter().flat_map(|found| found.sentences(log)));
        let of_loop = self.loop_proposal.as_ref();
        lines.extend(of_loop.into_iter().flat_map(LoopProposal::sentences));
        lines.extend(proposal::checked(&self.present));
        lines.extend(self.proposal.as_ref().and_then(Proposal::apart_sentence));
        lines
    }
}

/// A search, and what it was for.
#[derive(Debug)]
struct SearchResult {
    rate: f64,
    processes: usize,
    control: &'static str,
    /// Most threads that it would have tried.
    threads_max: usize,
    /// The largest number of running requests in the log, if the search ends at twice that number.
    running_seen: Option<usize>,
    /// The threads of a row of the table that meets the objectives: a pool that the controller sizes, which the search
    /// does not try.
    met_by: Option<String>,
    search: Search,
}

pub(crate) fn run(matches: &ArgMatches) -> i32 {
    let options = flags::options(matches);
    if let Ok(options) = &options
        && let Some(fleet) = &options.fleet
    {
        return fleet::run(options, fleet);
    }
    let findings = options.and_then(|options| {
        let findings = predict(&options).map_err(|message| vec![message])?;
        Ok((options, findings))
    });
    match findings {
        Ok((options, findings)) => finish(&options, &findings),
        Err(messages) => {
            message::say_all(&messages);
            COULD_NOT
        }
    }
}

/// What is predicted, as JSON, from requests that a running server holds.
///
/// # Errors
/// The simulation does not repeat them, or none has run.
pub(crate) fn of_held(held: HeldHistory) -> Result<String, Vec<Message>> {
    // Without flags there is no fault of flags, and no server is asked.
    let matches = command().get_matches_from(["whatif", "-"]);
    let mut options = flags::options(&matches)?;
    options.source = Source::Logs(vec![Input::Held(Arc::new(held))], None);
    let findings = predict(&options).map_err(|message| vec![message])?;
    Ok(json::json(&findings))
}

fn predict(options: &WhatifOptions) -> Result<Findings, Message> {
    let (title, mut present, mut remarks) = known(options)?;
    if let Some(calibration) = &present.calibration
        && !calibration.holds
        && !options.is_forced
    {
        // No table follows, so the doubts that it would bring are said here.
        remarks.extend(remarks::of(&present, &[]));
        for remark in remarks.into_iter().chain(remarks::dependence(&present)) {
            Message::from_text(remark).say();
        }
        return Err(refusal(&title, &present, calibration));
    }
    let answered = answered(options, &mut present)?;
    let (answers, searches) = (answered.answers, answered.searches);
    let tried = searches.iter().flat_map(|result| &result.search.tried);
    let all: Vec<&Answer> = answers.iter().chain(tried).collect();
    remarks.extend(remarks::of(&present, &all));
    Ok(Findings {
        title,
        present,
        proposal: answered.proposal,
        loop_proposal: answered.loop_proposal,
        answers,
        objectives: options.objectives.clone(),
        searches,
        remarks,
    })
}

/// What was asked for, or what is proposed where nothing in particular was.
#[derive(Default)]
struct Answered {
    proposal: Option<Proposal>,
    loop_proposal: Option<LoopProposal>,
    answers: Vec<Answer>,
    searches: Vec<SearchResult>,
}

fn answered(options: &WhatifOptions, present: &mut Present) -> Result<Answered, Message> {
    if let Some(fault) = meaningless(options, present) {
        return Err(fault);
    }
    let threads_max = dependent_on(present).map(|seen| 2 * seen);
    if options.is_open() && present.is_on_loop() {
        if let Some((proposal, answers)) = loop_proposal::proposal(present) {
            return Ok(Answered {
                loop_proposal: Some(proposal),
                answers,
                ..Answered::default()
            });
        }
    } else if options.is_open()
        && let Some((proposal, answers)) = proposal::proposal(present, threads_max)
    {
        return Ok(Answered {
            proposal: Some(proposal),
            answers,
            ..Answered::default()
        });
    }
    let variants = variants(options, present)?;
    let (answers, searches) = simulated(options, present, &variants);
    Ok(Answered {
        answers,
        searches,
        ..Answered::default()
    })
}

/// A question that makes no sense for the pools of the log.
fn meaningless(options: &WhatifOptions, present: &Present) -> Option<Message> {
    let name = &present.variant.pools[0].name;
    let hint = "`--processes 1,2,4` has more event loops, `--concurrency 50,100:1000` other numbers of requests inside, \
                and `--to-thread PATH` takes blocking steps from the loop";
    let is_on_loop = present.is_on_loop();
    let pools = &present.variant.pools;
    let has_loop = pools.iter().any(|pool| pool.runs_on == RunsOn::EventLoop);
    let on_loop = |flag: &str, what: &str| {
        let text =
            format!("{what}: the pool `{name}`, the busiest of the log, is on an event loop");
        Message::new(&format!("`{flag}`"), text).with_hint(hint)
    };
    if is_on_loop && !options.threads.is_empty() {
        return Some(on_loop("--threads", "an event loop is one thread"));
    }
    if is_on_loop && options.threads_now.is_some() {
        return Some(on_loop("--threads-now", "an event loop is one thread"));
    }
    if is_on_loop && !options.objectives.is_empty() {
        return Some(on_loop("--objective", "looks for a number of threads"));
    }
    let flags = [
        ("--concurrency", !options.concurrencies.is_empty()),
        ("--concurrency-now", options.concurrency_now.is_some()),
        ("--to-thread", !options.to_threads.is_empty()),
    ];
    let (flag, _) = flags
        .into_iter()
        .find(|(_, is_used)| *is_used && !has_loop)?;
    let text = "no request of the log has run on an event loop";
    Some(Message::new(&format!("`{flag}`"), text))
}

/// The name of the source, what is known of the present, and doubts about it.
fn known(options: &WhatifOptions) -> Result<(String, Present, Vec<String>), Message> {
    let (inputs, pattern) = match &options.source {
        Source::Synthetic(laws) => {
            let present = log_facts::of_laws(options, laws);
            return Ok(("synthetic requests".to_owned(), present, Vec::new()));
        }
        Source::Logs(inputs, pattern) => (inputs, pattern.as_ref()),
    };
    let untimed = match options.run {
        Some(_) => Untimed::Taken,
        None => Untimed::Left,
    };
    let routes = Routes::new(&options.pools, &options.to_threads);
    let read = reading::read(inputs, pattern, routes, untimed, RunOf::Here)?;
    let title = title(inputs);
    let fault = read.fault(&title, untimed);
    match fault.or_else(|| read.clash(&options.pools)) {
        Some(fault) => Err(fault),
        None => Ok((title, log_facts::of_log(options, &read), read.doubts())),
    }
}

fn refusal(title: &str, present: &Present, calibration: &Calibration) -> Message {
    let wrong = calibration.errors.iter().filter(|error| !error.holds);
    let wrong: Vec<String> = wrong
        .map(|error| {
            format!(
                "p{} of the queue times is {} ms, measured {}",
                error.percentile,
                table::ms(error.simulated_ms),
                table::ms(error.measured_ms)
            )
        })
        .collect();
    let with = match present.is_on_loop() {
        true => format!(
            "{} requests inside the event loop",
            present.variant.concurrency
        ),
        false => format!("{} threads", present.variant.pools[0].threads),
    };
    let text = format!(
        "the simulation with {with} does not repeat this log: {}",
        wrong.join(", ")
    );
    let what = match present.is_on_loop() {
        true => LOOP_REFUSAL_HINT,
        false => REFUSAL_HINT,
    };
    let hint = match present.log.as_ref().is_some_and(|log| log.is_by_second) {
        true => format!("{BY_SECOND_HINT}; {what}"),
        false => what.to_owned(),
    };
    Message::new(&format!("`{title}`"), text).with_hint(hint)
}

/// All combinations of the options: by rate, then processes, then control, then threads.
fn variants(options: &WhatifOptions, present: &Present) -> Result<Vec<Variant>, Message> {
    let now = &present.variant;
    let today = now.pools[0].threads;
    let is_open = options.threads.is_empty() && options.objectives.is_empty();
    let threads = match is_open && !present.is_on_loop() {
        true => around(today),
        false => or(&options.threads, today),
    };
    let concurrencies = or(&options.concurrencies, now.concurrency);
    let processes = or(&options.processes, now.processes);
    let controls = or(&options.controls, ControlMode::On);
    let rates = or(&options.rates, 1.0);
    // Before they are made: each is a simulation of seconds.
    let len = rates.len() * processes.len() * controls.len() * threads.len() * concurrencies.len();
    if len > VARIANTS_LEN_MAX {
        let text = format!(
            "{} variants, expected up to {VARIANTS_LEN_MAX}",
            thousands(len as u64)
        );
        return Err(Message::new(
            "`--threads`, `--processes`, `--concurrency`, `--rate`, `--controller`",
            text,
        ));
    }
    let mut variants = Vec::with_capacity(len);
    for rate in &rates {
        for processes in &processes {
            for control in &controls {
                let sizes = concurrencies
                    .iter()
                    .flat_map(|one| threads.iter().map(move |threads| (one, threads)));
                variants.extend(sizes.map(|(concurrency, threads)| Variant {
                    pools: pools(options, now, *threads),
                    processes: *processes,
                    concurrency: *concurrency,
                    rate: *rate,
                    control: *control,
                }));
            }
        }
    }
    assert_eq!(
        variants.len(),
        len,
        "there is a variant for each combination"
    );
    Ok(variants)
}

/// `--threads` is about the pool where requests go by default; the others have theirs in `--pools`.
fn pools(options: &WhatifOptions, now: &Variant, threads: Threads) -> Vec<PoolVariant> {
    let mut pools = now.pools.clone();
    pools[0].threads = threads;
    let more = options.pools.iter();
    pools.extend(more.map(|rule| PoolVariant::of_threads(&rule.name, rule.threads)));
    pools
}

/// The values of a flag, or its default.
fn or<T: Clone>(values: &[T], default: T) -> Vec<T> {
    match values {
        [] => vec![default],
        values => values.to_vec(),
    }
}

/// Half as many threads as there are, as many, and more.
fn around(now: Threads) -> Vec<Threads> {
    let count = now.max;
    let mut counts = vec![count / 2, count, count + count.div_ceil(2), 2 * count];
    counts.retain(|count| *count > 0);
    counts.dedup();
    counts.into_iter().map(Threads::fixed).collect()
}

/// Simulates all variants, and searches once for each rate, number of processes and control.
fn simulated(
    options: &WhatifOptions,
    present: &Present,
    variants: &[Variant],
) -> (Vec<Answer>, Vec<SearchResult>) {
    let basis = &present.basis;
    let (mut all, mut searches): (Vec<Answer>, Vec<SearchResult>) = (Vec::new(), Vec::new());
    // One rate after another: each has requests of its own, and they are what takes memory.
    for same in variants.chunk_by(|one, other| one.rate == other.rate) {
        let requests = scaled(&basis.requests, same[0].rate);
        all.extend(answers(basis, &requests, same));
        if options.objectives.is_empty() {
            continue;
        }
        let wanted = searched_for(same, &searches);
        let running_seen = dependent_on(present);
        let threads_max = running_seen.map_or(SEARCH_THREADS_MAX, |seen| 2 * seen);
        let found = on_all_cores(wanted.len(), &|index| {
            let variant = wanted[index];
            let rows: Vec<&Answer> = all.iter().filter(|row| is_of(row, variant)).collect();
            let is_met = |row: &&&Answer| options.objectives.iter().all(|one| one.holds(row));
            SearchResult {
                rate: variant.rate,
                processes: variant.processes,
                control: variant.control.text(),
                threads_max,
                running_seen,
                met_by: rows.iter().find(is_met).map(|row| row.size().to_owned()),
                search: smallest(
                    basis,
                    &requests,
                    variant,
                    &options.objectives,
                    threads_max,
                    &rows,
                ),
            }
        });
        searches.extend(found);
    }
    (all, searches)
}

/// Whether a row of the table differs from a variant in its threads at most.
fn is_of(row: &Answer, variant: &Variant) -> bool {
    (row.rate, row.processes, row.control)
        == (variant.rate, variant.processes, variant.control.text())
}

/// One variant of each number of processes and control without a search so far.
fn searched_for<'v>(variants: &'v [Variant], done: &[SearchResult]) -> Vec<&'v Variant> {
    let mut wanted: Vec<&Variant> = Vec::new();
    for variant in variants {
        let what = (variant.processes, variant.control.text());
        let is_done = done.iter().any(|result| {
            (result.processes, result.control) == what && result.rate == variant.rate
        });
        let is_wanted = |other: &&Variant| (other.processes, other.control.text()) == what;
        if !is_done && !wanted.iter().any(is_wanted) {
            wanted.push(variant);
        }
    }
    wanted
}

/// The largest number of running requests in the log, if run times depend on it: beyond twice that number
/// nothing is known.
fn dependent_on(present: &Present) -> Option<usize> {
    let fit = present.log.as_ref()?.fit.as_ref()?;
    fit.depends().then_some(fit.running_seen)
}

fn scaled(requests: &Requests, factor: f64) -> Requests {
    match requests {
        Requests::Recorded(workload) => Requests::Recorded(workload.scaled(factor)),
        Requests::Made(laws) => {
            let mut laws = laws.clone();
            for rate in &mut laws.rates {
                rate.per_second *= factor;
            }
            Requests::Made(laws)
        }
    }
}

fn finish(options: &WhatifOptions, findings: &Findings) -> i32 {
    match options.is_json {
        true => message::data(&json::json(findings)),
        false => message::data(&table::table(findings, options.output)),
    }
    if let Some(path) = &options.page
        && let Err(error) = fs::write(path, page::page(findings))
    {
        Message::new(&format!("`{}`", path.display()), error).say();
        return COULD_NOT;
    }
    let has_failed = |result: &SearchResult| result.search.found.is_none();
    // An objective that no number of threads holds is the answer no, after everything was shown.
    if findings.searches.iter().any(has_failed) {
        NO
    } else {
        DONE
    }
}
