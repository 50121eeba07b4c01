//! Predictions as a table for a terminal.
//!
//! Takes findings, gives text: the answer, doubts about the numbers, the numbers, and how they were found.

use std::fmt::Write as _;

use ::whatif::RunsOn;
use present::{Table, counted, labelled, number, share, thousands};
use whatif::prediction::{Answer, Calibration, Objective, Times};
use whatif::recorded::LockFit;

use super::flags::Detail;
use super::log_facts::{CORRELATION_MAX, LogFacts, LoopLog};
use super::proposal::{Apart, Proposal};
use super::{Findings, SearchResult};

/// What a star beside a number of threads means.
pub(super) const BEYOND_NOTE: &str = "* more than twice as many threads as the log has seen running: how they slow each \
    other down is unknown";
/// A pool and its threads are not cut.
const POOL_CHARS_MAX: usize = 40;

/// The whole text.
pub(super) fn table(findings: &Findings, detail: Detail) -> String {
    let mut out = String::new();
    for sentence in findings.verdict() {
        for line in present::broken(&sentence, present::WIDTH_MAX) {
            let _ = writeln!(out, "{line}");
        }
    }
    let apart = findings.proposal.as_ref().and_then(Proposal::apart);
    for line in apart.map(Apart::toml).unwrap_or_default().lines() {
        let _ = writeln!(out, "    {line}");
    }
    if !findings.remarks.is_empty() {
        out.push('\n');
    }
    for remark in &findings.remarks {
        let _ = writeln!(out, "note: {remark}");
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out += &answers(findings, detail).to_text();
    // The star is explained only where there is one.
    if is_any_beyond(findings) {
        let _ = writeln!(out, "{BEYOND_NOTE}");
    }
    for result in &findings.searches {
        let _ = writeln!(out, "\n{}", search(result, &findings.objectives));
    }
    let facts = facts(findings);
    match (detail, facts.is_empty()) {
        (_, true) => {}
        (Detail::Answer, false) => out += "\n`--why` shows how this was found\n",
        (Detail::All, false) => {
            out.push('\n');
            for line in facts.iter().flat_map(|(name, text)| labelled(name, text)) {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

pub(super) fn is_any_beyond(findings: &Findings) -> bool {
    findings.answers.iter().any(|answer| answer.is_beyond)
}

/// What is known of the present, each with its name; nothing of synthetic requests.
pub(super) fn facts(findings: &Findings) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(log) = &findings.present.log {
        facts.push(("log", source(log, &findings.title)));
        // Invented run times say nothing about what ran together.
        if let Some(found) = log.correlation.filter(|_| log.has_runs) {
            facts.push(("correlation", together(found)));
        }
        facts.push(("threads", threads(log, findings)));
        facts.extend(
            log.event_loop
                .as_ref()
                .map(|own| ("event loop", event_loop(own))),
        );
        if log.has_runs && !findings.present.is_on_loop() {
            facts.push(("hand-over", hand_over(log)));
            facts.extend(log.lock.as_ref().map(|fit| ("computing", computing(fit))));
            facts.push(("run times", sharing(log)));
            facts.extend((!log.stalls.is_empty()).then(|| ("stalls", stalls(log))));
        }
    }
    let calibration = findings.present.calibration.as_ref();
    facts.extend(calibration.map(|found| ("check", repeated(found, findings))));
    facts
}

fn source(log: &LogFacts, title: &str) -> String {
    // Most logs have none: a zero would only lengthen the line.
    let refused = match log.refused {
        0 => String::new(),
        len => format!(", {} of them refused", thousands(len)),
    };
    format!(
        "{title}: {} in {} s, {}/s{refused}",
        counted(log.requests, "request"),
        number(log.seconds),
        number(log.per_second())
    )
}

fn together(correlation: f64) -> String {
    let verdict = match correlation > CORRELATION_MAX {
        true => "long waits and long runs came together, see the note",
        false => "long waits and long runs did not come together",
    };
    format!("{correlation:.3} between queue time and run time; {verdict}")
}

fn threads(log: &LogFacts, findings: &Findings) -> String {
    let present = &findings.present.variant;
    let pools = present.pools.iter();
    let pools: Vec<String> = pools
        .map(|pool| match pool.runs_on {
            RunsOn::Threads => format!("{} in `{}`", pool.threads, pool.name),
            RunsOn::EventLoop => format!("an event loop for `{}`", pool.name),
        })
        .collect();
    let from = match findings.present.is_on_loop() {
        true => String::new(),
        false => format!(" ({})", log.threads_from.text()),
    };
    format!(
        "{}{from}, {}",
        pools.join(", "),
        processes(present.processes)
    )
}

fn event_loop(own: &LoopLog) -> String {
    let blocker = own.blocker.as_ref().map_or(String::new(), |blocker| {
        format!(
            "; the longest steps are those of {}, {} ms in the mean",
            blocker.path,
            ms(blocker.mean_ms)
        )
    });
    format!(
        "{} requests inside ({}), {} at once; {} ms to a sleeping loop, {} ms of the loop to begin a request{blocker}",
        own.concurrency,
        own.concurrency_from.text(),
        own.inside_max,
        ms(own.costs.wake.as_secs_f64() * 1e3),
        ms(own.costs.begin.as_secs_f64() * 1e3)
    )
}

fn processes(len: usize) -> String {
    match len {
        1 => "1 process".to_owned(),
        len => format!("{len} processes"),
    }
}

fn hand_over(log: &LogFacts) -> String {
    format!(
        "{} ms to an idle thread, {} ms from the queue to a busy one",
        ms(log.costs.wake.as_secs_f64() * 1e3),
        ms(log.costs.fetch.as_secs_f64() * 1e3)
    )
}

fn computing(fit: &LockFit) -> String {
    format!(
        "{:.0} % of the run time, by one thread of a process at a time; {:.0} % waited for the interpreter",
        100.0 * fit.computing_share,
        100.0 * fit.waiting_share
    )
}

fn stalls(log: &LogFacts) -> String {
    let longest = log.stalls.iter().map(|pause| pause.lasts).max();
    format!(
        "the whole server stopped {} times, {} s in all, {} s at most; the simulation repeats the stops",
        log.stalls.len(),
        number(log.stalled().as_secs_f64()),
        number(longest.unwrap_or_default().as_secs_f64())
    )
}

/// An interval that reaches this far leaves open whether run times depend on the number of running requests.
const UNSURE: f64 = 1.3;

fn sharing(log: &LogFacts) -> String {
    let Some(fit) = &log.fit else {
        return "the log does not tell whether they depend on the number of running requests"
            .to_owned();
    };
    let (low, high) = fit.slowdown_interval;
    let interval = format!(
        "{:.2} times as long with {} at once (90 %: {low:.2} to {high:.2})",
        fit.slowdown, fit.running_seen
    );
    match fit.depends() {
        true => format!(
            "depend on the number of running requests: {interval}; σ {:.3} ({:.3} to {:.3}), κ {:.4} ({:.4} to {:.4})",
            fit.sharing.sigma,
            fit.sigma.0,
            fit.sigma.1,
            fit.sharing.kappa,
            fit.kappa.0,
            fit.kappa.1
        ),
        false if fit.is_by_chance => format!(
            "used as measured, because chance explains how they depend on the number of running requests: {interval}"
        ),
        false if high > UNSURE => {
            format!("used as measured, because the log is too short to tell more: {interval}")
        }
        false => format!("do not depend on the number of running requests: {interval}"),
    }
}

fn repeated(calibration: &Calibration, findings: &Findings) -> String {
    let texts: Vec<String> = calibration
        .errors
        .iter()
        .map(|error| {
            let share = error.off_share().map_or(String::new(), |share| {
                format!(", {} %", signed(100.0 * share, 0))
            });
            format!(
                "p{} {} ms, measured {} ({} ms{share})",
                error.percentile,
                ms(error.simulated_ms),
                ms(error.measured_ms),
                signed(error.off_ms(), 3)
            )
        })
        .collect();
    let verdict = match calibration.holds {
        true => "",
        false => "; TOO FAR OFF",
    };
    let with = match findings.present.is_on_loop() {
        true => format!("{} requests inside", findings.present.variant.concurrency),
        false => format!("{} threads", findings.present.variant.pools[0].threads),
    };
    format!(
        "queue time of the simulated log with {with}: {}{verdict}",
        texts.join("; ")
    )
}

/// With its sign, except for what rounds to nothing: `+1.5`, `-0.2`, `0`.
fn signed(value: f64, places: usize) -> String {
    let text = format!("{value:+.places$}");
    match text.contains(|digit: char| ('1'..='9').contains(&digit)) {
        true => text,
        false => "0".to_owned(),
    }
}

/// When a column is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Always,
    /// Where its values differ.
    Varying,
    /// Only with all detail.
    Detailed,
}

/// A column behind the first: its head, the group that it belongs to, and when it is shown.
const COLUMNS: [(&str, &str, Shown); 14] = [
    ("proc", "", Shown::Varying),
    ("rate", "", Shown::Varying),
    ("control", "", Shown::Varying),
    ("median", QUEUE, Shown::Always),
    ("p95", QUEUE, Shown::Always),
    ("p99", QUEUE, Shown::Always),
    ("p99.9", QUEUE, Shown::Detailed),
    ("median", TOTAL, Shown::Always),
    ("p95", TOTAL, Shown::Always),
    ("p99", TOTAL, Shown::Always),
    ("busy", "", Shown::Always),
    ("refused", "", Shown::Always),
    ("mean", "pool size", Shown::Detailed),
    ("max", "pool size", Shown::Detailed),
];
const QUEUE: &str = "queue, ms";
const TOTAL: &str = "queue + run, ms";

/// A row for the log, and one for each answer.
pub(super) fn answers(findings: &Findings, detail: Detail) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let log = findings.present.log.as_ref();
    if let Some(log) = log.filter(|log| log.has_runs && log.has_waits) {
        let refused = log.refused as f64 / log.requests.max(1) as f64;
        let mut row = vec!["measured".to_owned()];
        // The log has no variant: its columns stay empty.
        row.resize(4, String::new());
        row.extend(times(&log.queue, &log.total));
        row.extend([String::new(), share(refused)]);
        rows.push(row);
    }
    rows.extend(findings.answers.iter().flat_map(answer_rows));
    // Columns at the end that a row has nothing for.
    for row in &mut rows {
        row.resize(1 + COLUMNS.len(), String::new());
    }
    let cells = |column: usize| rows.iter().map(move |row| row[column].clone());
    let varies = |column: usize| {
        let mut values = cells(column).filter(|cell| !cell.is_empty());
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let is_shown = |column: usize, shown: Shown| match shown {
        Shown::Always => true,
        Shown::Varying => detail == Detail::All || varies(column),
        Shown::Detailed => detail == Detail::All,
    };
    let mut table = Table::default();
    let head = match findings.present.is_on_loop() {
        true => "requests inside",
        false => "threads",
    };
    table.text(head, POOL_CHARS_MAX, cells(0));
    let columns = (1..).zip(COLUMNS);
    let shown: Vec<_> = columns
        .filter(|(column, (_, _, shown))| is_shown(*column, *shown))
        .collect();
    for group in shown.chunk_by(|one, other| one.1.1 == other.1.1) {
        for (column, (head, _, _)) in group {
            table.numbers(head, cells(*column));
        }
        let (_, (_, name, _)) = group[0];
        if !name.is_empty() {
            table.group(name, group.len());
        }
    }
    table
}

/// A row, and one for each pool where there are several.
fn answer_rows(answer: &Answer) -> Vec<Vec<String>> {
    let mark = if answer.is_beyond { "*" } else { "" };
    let mut first = vec![
        format!("{}{mark}", answer.size()),
        answer.processes.to_string(),
        format!("x{}", answer.rate),
        answer.control.to_owned(),
    ];
    first.extend(times(&answer.queue, &answer.total));
    first.extend([
        share(answer.busy),
        share(answer.refused_share()),
        format!("{:.1}", answer.threads_mean),
        (answer.threads_max * answer.processes).to_string(),
    ]);
    let mut rows = vec![first];
    // A single pool would repeat the row above it.
    if answer.pools.len() > 1 {
        for pool in &answer.pools {
            let refused = pool.refused as f64 / pool.arrived.max(1) as f64;
            let size = pool.concurrency.as_ref().unwrap_or(&pool.threads);
            let mut row = vec![format!("  {} {size}", pool.name)];
            row.resize(4, String::new());
            row.extend(times(&pool.queue, &pool.total));
            row.extend([share(pool.busy), share(refused)]);
            rows.push(row);
        }
    }
    rows
}

fn times(queue: &Times, total: &Times) -> Vec<String> {
    [
        queue.p50_ms,
        queue.p95_ms,
        queue.p99_ms,
        queue.p99_9_ms,
        total.p50_ms,
        total.p95_ms,
        total.p99_ms,
    ]
    .map(ms)
    .to_vec()
}

/// What was searched for, and the answer.
pub(super) fn search(result: &SearchResult, objectives: &[Objective]) -> String {
    let texts: Vec<&str> = objectives
        .iter()
        .map(|objective| objective.text.as_str())
        .collect();
    let what = format!(
        "{} at x{}, {}, control {}",
        texts.join(" and "),
        result.rate,
        processes(result.processes),
        result.control
    );
    let values = |answer: &Answer| -> String {
        let value = |objective: &Objective| match objective.metric {
            whatif::prediction::Metric::Refused => share(objective.value(answer)),
            _ => format!("{} ms", ms(objective.value(answer))),
        };
        objectives.iter().map(value).collect::<Vec<_>>().join(", ")
    };
    match &result.search.found {
        Some(found) => {
            let count: usize = found.threads.parse().unwrap_or(0);
            // The largest number that did not suffice shows how sharp the answer is.
            let fewer = result.search.tried.iter().rfind(|tried| {
                tried
                    .threads
                    .parse::<usize>()
                    .is_ok_and(|threads| threads < count)
            });
            let fewer = fewer.map_or(String::new(), |fewer| {
                format!("; {} with {}", values(fewer), fewer.threads)
            });
            format!(
                "{what}: {} threads ({}{fewer})",
                found.threads,
                values(found)
            )
        }
        None => {
            let why = result.running_seen.map_or(String::new(), |seen| {
                format!(
                    "; the search ends there because run times depend on the number of running requests, and the \
                     log has seen no more than {seen} at once"
                )
            });
            let met = result.met_by.as_ref().map_or(String::new(), |threads| {
                format!("; {threads} in the table does")
            });
            format!(
                "{what}: up to {} threads do not meet it{why}{met}",
                result.threads_max
            )
        }
    }
}

/// Milliseconds, to three digits or to microseconds.
pub(super) fn ms(value: f64) -> String {
    present::digits(value, 3, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_sign() {
        let check = |value, places, expect: &str| assert_eq!(signed(value, places), expect);
        check(-0.3, 0, "0");
        check(0.0, 3, "0");
        check(-0.000_4, 3, "0");
        check(1.5, 0, "+2");
        check(-0.002, 3, "-0.002");
    }

    #[test]
    fn says_why_a_search_ends_early() {
        let said = |threads_max, running_seen| {
            let none = SearchResult {
                rate: 1.0,
                processes: 1,
                control: "on",
                threads_max,
                running_seen,
                met_by: None,
                search: whatif::prediction::Search {
                    found: None,
                    tried: Vec::new(),
                },
            };
            search(&none, &[])
        };
        let ends = said(8, Some(4));
        assert!(ends.contains("up to 8 threads do not meet it; the search ends there because"));
        assert!(ends.contains("seen no more than 4 at once"), "{ends}");
        assert!(said(1_024, None).ends_with("up to 1024 threads do not meet it"));
    }
}
