//! `milepost whatif`: from an access log to answers, as a table, as JSON or as a page.
//!
//! Takes flags, gives a recording and questions to the simulator, and its answers to the terminal. 0: done.
//! 1: no number of threads holds the objectives. 2: wrong use, something could not be read or written, or
//! the simulation does not repeat the log.

mod fitting;
mod flags;
mod json;
mod law;
mod objective;
mod page;
mod present;
mod reading;
mod routes;
mod table;

use std::fs;

use clap::ArgMatches;
use report::{Input, thousands};
use whatif::asking::{
    Answer, Calibration, Objective, PoolAsked, Requests, Search, Steering, Threads, Variant,
    answers, on_all_cores, smallest,
};

use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO};
pub(crate) use flags::command;
use flags::{Source, Wish};
use present::{CORRELATION_MAX, Present};
use reading::Untimed;

/// Most variants of one question.
const VARIANTS_LEN_MAX: usize = 500;
/// Most threads of a process that a search tries.
const SEARCH_THREADS_MAX: usize = 1_024;

/// What a log does not say, or not in all forms.
const REFUSAL_HINT: &str = "`--threads-now N` if there were other than that; `--queue-target`, \
    `--queue-timeout` and `--overload-timeout` if the server had others; \
    `--error-max 50%` takes more, `--force` anything";

/// Everything that is told.
#[derive(Debug)]
struct Told {
    title: String,
    present: Present,
    answers: Vec<Answer>,
    objectives: Vec<Objective>,
    searches: Vec<Searched>,
    remarks: Vec<String>,
}

/// A search, and what it was for.
#[derive(Debug)]
struct Searched {
    rate: f64,
    processes: usize,
    control: &'static str,
    /// Most threads that it would have tried.
    threads_max: usize,
    /// How many were seen at work at once, where it stops at twice as many because nobody knows what more do to
    /// each other.
    running_seen: Option<usize>,
    search: Search,
}

pub(crate) fn run(matches: &ArgMatches) -> i32 {
    let told = flags::wish(matches).and_then(|wish| {
        let told = tell(&wish).map_err(|message| vec![message])?;
        Ok((wish, told))
    });
    match told {
        Ok((wish, told)) => finish(&wish, &told),
        Err(messages) => {
            message::say_all(&messages);
            COULD_NOT
        }
    }
}

fn tell(wish: &Wish) -> Result<Told, Message> {
    let (title, present, mut remarks) = match &wish.source {
        Source::Law(laws) => ("a law".to_owned(), present::of_law(wish, laws), Vec::new()),
        Source::Logs(inputs, pattern) => {
            let untimed = match wish.run {
                Some(_) => Untimed::Taken,
                None => Untimed::Left,
            };
            let read = reading::read(inputs, pattern.as_ref(), &wish.pools, untimed)?;
            let title = title(inputs);
            if let Some(fault) = read
                .fault(&title, untimed)
                .or_else(|| read.clash(&wish.pools))
            {
                return Err(fault);
            }
            (title, present::of_log(wish, &read)?, read.doubts())
        }
    };
    remarks.extend(remarks_on(&present));
    if let Some(calibration) = &present.calibration
        && !calibration.holds
        && !wish.is_forced
    {
        for remark in remarks.into_iter().chain(dependence(&present)) {
            Message::from_text(remark).say();
        }
        return Err(refusal(&title, &present, calibration));
    }
    let variants = variants(wish, &present.variant)?;
    let (answers, searches) = asked(wish, &present, &variants)?;
    Ok(Told {
        title,
        present,
        answers,
        objectives: wish.objectives.clone(),
        searches,
        remarks,
    })
}

fn title(inputs: &[Input]) -> String {
    let names: Vec<String> = inputs.iter().map(Input::name).collect();
    match names.as_slice() {
        [one] => one.clone(),
        [first, .., last] => format!("{first} to {last}, {} logs", names.len()),
        [] => String::new(),
    }
}

/// What whoever reads the answers has to know.
fn remarks_on(present: &Present) -> Vec<String> {
    let mut remarks = Vec::new();
    let Some(log) = &present.log else {
        return remarks;
    };
    if let Some(correlation) = log.correlation.filter(|found| *found > CORRELATION_MAX) {
        remarks.push(format!(
            "waits and runs rose together (correlation {correlation:.2}): look for what stops the whole \
             server first, because more threads are no cure for it"
        ));
    }
    if !log.has_runs {
        remarks.push(
            "run times are made up by `--run`, so nothing could be compared with the log"
                .to_owned(),
        );
    }
    if let Some(fitted) = &present.fitted {
        remarks.extend(fitted.remarks());
    }
    remarks
}

/// For those who do not get the line of the table that says it.
fn dependence(present: &Present) -> Option<String> {
    let fit = present.log.as_ref()?.fit.as_ref()?;
    fit.depends().then(|| {
        format!(
            "run times depend on how many run at once: {:.2} times as long with {} (σ {:.3}, κ {:.4}); the \
             fitted curve is used in place of constants",
            fit.slowdown, fit.running_seen, fit.sharing.sigma, fit.sharing.kappa
        )
    })
}

fn refusal(title: &str, present: &Present, calibration: &Calibration) -> Message {
    let wrong = calibration.errors.iter().filter(|error| !error.holds);
    let wrong: Vec<String> = wrong
        .map(|error| {
            format!(
                "p{} of the waits is {} ms and not {}",
                error.percentile,
                table::ms(error.simulated_ms),
                table::ms(error.measured_ms)
            )
        })
        .collect();
    let threads = present.variant.pools[0].threads;
    let text = format!(
        "the simulation with {threads} threads does not repeat it: {}",
        wrong.join(", ")
    );
    Message::new(&format!("`{title}`"), text).with_hint(REFUSAL_HINT)
}

/// All combinations that were asked for: by rate, then processes, then control, then threads.
fn variants(wish: &Wish, now: &Variant) -> Result<Vec<Variant>, Message> {
    let or = |given: &[f64], else_: f64| {
        if given.is_empty() {
            vec![else_]
        } else {
            given.to_vec()
        }
    };
    let threads = match wish.threads.is_empty() {
        true if wish.objectives.is_empty() => around(now.pools[0].threads),
        true => vec![now.pools[0].threads],
        false => wish.threads.clone(),
    };
    let processes = match wish.processes.is_empty() {
        true => vec![now.processes],
        false => wish.processes.clone(),
    };
    let controls = match wish.controls.is_empty() {
        true => vec![Steering::On],
        false => wish.controls.clone(),
    };
    let rates = or(&wish.rates, 1.0);
    let len = rates.len() * processes.len() * controls.len() * threads.len();
    if len > VARIANTS_LEN_MAX {
        let text = format!(
            "{} variants, expected up to {VARIANTS_LEN_MAX}",
            thousands(len as u64)
        );
        return Err(Message::new(
            "`--threads`, `--processes`, `--rate`, `--control`",
            text,
        ));
    }
    let mut variants = Vec::with_capacity(len);
    for rate in &rates {
        for processes in &processes {
            for steering in &controls {
                for threads in &threads {
                    let mut pools = now.pools.clone();
                    pools[0].threads = *threads;
                    pools.extend(wish.pools.iter().map(|rule| PoolAsked {
                        name: rule.name.clone(),
                        threads: rule.threads,
                    }));
                    variants.push(Variant {
                        pools,
                        processes: *processes,
                        rate: *rate,
                        steering: *steering,
                    });
                }
            }
        }
    }
    Ok(variants)
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
fn asked(
    wish: &Wish,
    present: &Present,
    variants: &[Variant],
) -> Result<(Vec<Answer>, Vec<Searched>), Message> {
    let basis = &present.basis;
    let (mut all, mut searches): (Vec<Answer>, Vec<Searched>) = (Vec::new(), Vec::new());
    // One rate after another: each has requests of its own, and they are what takes memory.
    for same in variants.chunk_by(|one, other| one.rate == other.rate) {
        let requests = scaled(wish, &basis.requests, same[0].rate)?;
        all.extend(answers(basis, &requests, same));
        if wish.objectives.is_empty() {
            continue;
        }
        let wanted = searched_for(same, &searches);
        let running_seen = dependent_on(present);
        let threads_max = running_seen.map_or(SEARCH_THREADS_MAX, |seen| 2 * seen);
        searches.extend(on_all_cores(wanted.len(), &|index| {
            let variant = wanted[index];
            Searched {
                rate: variant.rate,
                processes: variant.processes,
                control: variant.steering.text(),
                threads_max,
                running_seen,
                search: smallest(basis, &requests, variant, &wish.objectives, threads_max),
            }
        }));
    }
    Ok((all, searches))
}

/// One variant of each number of processes and control that nobody has searched for yet.
fn searched_for<'v>(variants: &'v [Variant], done: &[Searched]) -> Vec<&'v Variant> {
    let mut wanted: Vec<&Variant> = Vec::new();
    for variant in variants {
        let what = (variant.processes, variant.steering.text());
        let is_done = done.iter().any(|searched| {
            (searched.processes, searched.control) == what && searched.rate == variant.rate
        });
        let is_wanted = |other: &&Variant| (other.processes, other.steering.text()) == what;
        if !is_done && !wanted.iter().any(is_wanted) {
            wanted.push(variant);
        }
    }
    wanted
}

/// How many were seen at work at once, where run times depend on it: nobody knows what happens with more than
/// twice as many.
fn dependent_on(present: &Present) -> Option<usize> {
    let fit = present.log.as_ref()?.fit.as_ref()?;
    fit.depends().then_some(fit.running_seen)
}

fn scaled(wish: &Wish, requests: &Requests, factor: f64) -> Result<Requests, Message> {
    match requests {
        Requests::Recorded(workload) => match workload.scaled(factor, wish.scale, wish.seed) {
            Ok(workload) => Ok(Requests::Recorded(workload)),
            Err(whatif::recorded::ScaleFault) => Err(Message::new(
                "`--scale sessions`",
                "more than half of the requests came from one client, so there are no sessions to draw",
            )
            .with_hint("behind a proxy all clients have its address; `--scale gaps` needs none")),
        },
        Requests::Made(laws) => {
            let mut laws = laws.clone();
            for rate in &mut laws.rates {
                rate.from_per_second *= factor;
                rate.to_per_second *= factor;
            }
            Ok(Requests::Made(laws))
        }
    }
}

fn finish(wish: &Wish, told: &Told) -> i32 {
    match wish.is_json {
        true => message::data(&json::json(told)),
        false => message::data(&table::table(told)),
    }
    if let Some(path) = &wish.page
        && let Err(error) = fs::write(path, page::page(told))
    {
        Message::new(&format!("`{}`", path.display()), error).say();
        return COULD_NOT;
    }
    let has_failed = |searched: &Searched| searched.search.found.is_none();
    if told.searches.iter().any(has_failed) {
        NO
    } else {
        DONE
    }
}
