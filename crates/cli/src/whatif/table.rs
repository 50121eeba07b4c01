//! Predictions as a table for a terminal.
//!
//! Takes findings, gives text. Doubts about the numbers come before the numbers.

use std::fmt::Write as _;

use report::thousands;
use whatif::prediction::{Answer, Calibration, Objective, Times};
use whatif::recorded::LockFit;

use super::present::{CORRELATION_MAX, LogFacts};
use super::{Findings, SearchResult};

/// The whole text.
pub(super) fn table(findings: &Findings) -> String {
    let mut out = String::new();
    if let Some(log) = &findings.present.log {
        facts(log, findings, &mut out);
    }
    if let Some(calibration) = &findings.present.calibration {
        repeated(calibration, findings, &mut out);
    }
    if !findings.remarks.is_empty() {
        out.push('\n');
    }
    for remark in &findings.remarks {
        let _ = writeln!(out, "note: {remark}");
    }
    out.push('\n');
    out.push_str(&answers(findings));
    for result in &findings.searches {
        out.push('\n');
        out.push_str(&search(result, &findings.objectives));
    }
    out
}

fn facts(log: &LogFacts, findings: &Findings, out: &mut String) {
    let mut lines = vec![("log", source(log, &findings.title))];
    if log.has_runs {
        lines.extend(
            log.correlation
                .map(|found| ("correlation", together(found))),
        );
    }
    lines.push(("threads", threads(log, findings)));
    if log.has_runs {
        lines.push(("hand-over", hand_over(log)));
        lines.extend(log.lock.as_ref().map(|fit| ("computing", computing(fit))));
        lines.push(("run times", sharing(log)));
        lines.extend((!log.stalls.is_empty()).then(|| ("stalls", stalls(log))));
    }
    for (name, text) in lines {
        let _ = writeln!(out, "{name:<12}{text}");
    }
}

fn source(log: &LogFacts, title: &str) -> String {
    let refused = match log.refused {
        0 => String::new(),
        len => format!(", {} of them refused", thousands(len)),
    };
    format!(
        "{title}: {} requests in {} s, {:.1}/s{refused}",
        thousands(log.requests),
        seconds(log.seconds),
        log.per_second()
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
        .map(|pool| format!("{} in `{}`", pool.threads, pool.name))
        .collect();
    format!(
        "{} ({}), {}",
        pools.join(", "),
        log.threads_from.text(),
        processes(present.processes)
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
        seconds(log.stalled().as_secs_f64()),
        seconds(longest.unwrap_or_default().as_secs_f64())
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

fn repeated(calibration: &Calibration, findings: &Findings, out: &mut String) {
    let texts: Vec<String> = calibration
        .errors
        .iter()
        .map(|error| {
            let share = error
                .off_share()
                .map_or(String::new(), |share| format!(", {:+.0} %", share * 100.0));
            format!(
                "p{} {} ms, measured {} ({:+.3} ms{share})",
                error.percentile,
                ms(error.simulated_ms),
                ms(error.measured_ms),
                error.off_ms()
            )
        })
        .collect();
    let verdict = match calibration.holds {
        true => "",
        false => "; TOO FAR OFF",
    };
    let _ = writeln!(
        out,
        "{:<12}queue time of the simulated log with {} threads: {}{verdict}",
        "check",
        findings.present.variant.pools[0].threads,
        texts.join("; ")
    );
}

const HEAD: [&str; 15] = [
    "threads", "proc", "rate", "control", "p50", "p95", "p99", "p99.9", "p50", "p95", "p99",
    "busy", "refused", "mean", "max",
];

fn answers(findings: &Findings) -> String {
    let mut rows: Vec<Vec<String>> = vec![HEAD.map(str::to_owned).to_vec()];
    if let Some(log) = findings.present.log.as_ref().filter(|log| log.has_runs) {
        let share = log.refused as f64 / log.requests.max(1) as f64;
        let mut row = vec![
            "measured".to_owned(),
            String::new(),
            String::new(),
            String::new(),
        ];
        row.extend(times(&log.queue, &log.total));
        row.extend([String::new(), percent(share), String::new(), String::new()]);
        rows.push(row);
    }
    rows.extend(findings.answers.iter().flat_map(row));
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut out = over(&widths);
    for row in rows {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (text, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {text:>width$}");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    if findings.answers.iter().any(|answer| answer.is_beyond) {
        out.push_str(
            "* more than twice as many threads as the log has seen running: how they slow each other down is unknown\n",
        );
    }
    out
}

/// The line above the heads of the columns.
fn over(widths: &[usize]) -> String {
    let width = |columns: std::ops::Range<usize>| -> usize {
        let len = columns.len();
        widths[columns].iter().sum::<usize>() + 2 * (len - 1)
    };
    let line = format!(
        "{:<lead$}  {:<queue$}  {:<total$}  {:<middle$}  pool size",
        "",
        "queue, ms",
        "queue + run, ms",
        "",
        lead = width(0..4),
        queue = width(4..8),
        total = width(8..11),
        middle = width(11..13),
    );
    format!("{line}\n")
}

/// A row, and one for each pool where there are several.
fn row(answer: &Answer) -> Vec<Vec<String>> {
    let mark = if answer.is_beyond { "*" } else { "" };
    let mut first = vec![
        format!("{}{mark}", answer.threads),
        answer.processes.to_string(),
        format!("x{}", answer.rate),
        answer.control.to_owned(),
    ];
    first.extend(times(&answer.queue, &answer.total));
    first.extend([
        percent(answer.busy),
        percent(answer.refused_share()),
        format!("{:.1}", answer.threads_mean),
        (answer.threads_max * answer.processes).to_string(),
    ]);
    let mut rows = vec![first];
    if answer.pools.len() > 1 {
        for pool in &answer.pools {
            let share = pool.refused as f64 / pool.arrived.max(1) as f64;
            let mut row = vec![format!("  {} {}", pool.name, pool.threads)];
            row.extend([String::new(), String::new(), String::new()]);
            row.extend(times(&pool.queue, &pool.total));
            row.extend([
                percent(pool.busy),
                percent(share),
                String::new(),
                String::new(),
            ]);
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

fn search(result: &SearchResult, objectives: &[Objective]) -> String {
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
            whatif::prediction::Metric::Refused => percent(objective.value(answer)),
            _ => format!("{} ms", ms(objective.value(answer))),
        };
        objectives.iter().map(value).collect::<Vec<_>>().join(", ")
    };
    match &result.search.found {
        Some(found) => {
            let count: usize = found.threads.parse().unwrap_or(0);
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
                "{what}: {} threads ({}{fewer})\n",
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
                "{what}: up to {} threads do not meet it{why}{met}\n",
                result.threads_max
            )
        }
    }
}

/// Milliseconds, to three digits or to microseconds.
pub(super) fn ms(value: f64) -> String {
    match value {
        value if value >= 100.0 => thousands(value.round() as u64),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

fn seconds(value: f64) -> String {
    match value >= 100.0 {
        true => thousands(value.round() as u64),
        false => format!("{value:.1}"),
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 1.0 {
        format!("{percent:.2}%")
    } else {
        format!("{percent:.0}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_times_as_short_as_they_say_something() {
        let check = |value, expect| assert_eq!(ms(value), expect);
        check(0.0, "0.000");
        check(0.0456, "0.046");
        check(1.234, "1.23");
        check(45.67, "45.7");
        check(12_345.6, "12,346");
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
        assert!(said(1_024, None).ends_with("up to 1024 threads do not meet it\n"));
    }

    #[test]
    fn a_small_share_is_not_nothing() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.000_4), "0.04%");
        assert_eq!(percent(0.25), "25%");
    }
}
