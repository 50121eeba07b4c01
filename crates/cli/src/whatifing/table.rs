//! Answers as a table for people.
//!
//! Takes what is told, gives text. What makes the numbers doubtful comes before them.

use std::fmt::Write as _;

use report::thousands;
use whatif::asking::{Answer, Calibration, Objective, Times};

use super::fitting::{DRAWS_LEN, FittedFacts};
use super::present::{CORRELATION_MAX, LogFacts};
use super::{Searched, Told};

/// The whole text.
pub(super) fn table(told: &Told) -> String {
    let mut out = String::new();
    if let Some(log) = &told.present.log {
        facts(log, told, &mut out);
    }
    if let Some(calibration) = &told.present.calibration {
        repeated(calibration, told, &mut out);
    }
    if let Some(found) = &told.present.fitted {
        fitted(found, &mut out);
    }
    if !told.remarks.is_empty() {
        out.push('\n');
    }
    for remark in &told.remarks {
        let _ = writeln!(out, "note: {remark}");
    }
    out.push('\n');
    out.push_str(&answers(told));
    for searched in &told.searches {
        out.push('\n');
        out.push_str(&search(searched, &told.objectives));
    }
    out
}

fn facts(log: &LogFacts, told: &Told, out: &mut String) {
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "{name:<12}{text}");
    };
    let refused = match log.refused {
        0 => String::new(),
        len => format!(", {} of them refused", thousands(len)),
    };
    line(
        "log",
        format!(
            "{}: {} requests in {} s, {:.1}/s{refused}",
            told.title,
            thousands(log.requests),
            seconds(log.seconds),
            log.per_second()
        ),
    );
    if let Some(correlation) = log.correlation.filter(|_| log.has_runs) {
        let verdict = match correlation > CORRELATION_MAX {
            true => "they rose together: look for what stops the whole server",
            false => "waits are not those of a server that stands still",
        };
        line(
            "corr",
            format!("{correlation:.3} between waits and runs; {verdict}"),
        );
    }
    let pools = &told.present.variant.pools;
    let pools: Vec<String> = pools
        .iter()
        .map(|pool| format!("{} in `{}`", pool.threads, pool.name))
        .collect();
    line(
        "threads",
        format!(
            "{} ({}), {}",
            pools.join(", "),
            log.threads_from.text(),
            match told.present.variant.processes {
                1 => "1 process".to_owned(),
                processes => format!("{processes} processes"),
            }
        ),
    );
    if !log.has_runs {
        return;
    }
    line(
        "start",
        format!(
            "{} ms on an idle thread, {} ms out of the queue",
            ms(log.costs.wake.as_secs_f64() * 1e3),
            ms(log.costs.fetch.as_secs_f64() * 1e3)
        ),
    );
    if let Some(fit) = &log.lock {
        line(
            "computing",
            format!(
                "{:.0} % of the time at work, one thread of a process at a time; {:.0} % were waits for that",
                100.0 * fit.computing_share,
                100.0 * fit.waiting_share
            ),
        );
    }
    line("run times", sharing(log));
    if !log.stalls.is_empty() {
        let longest = log
            .stalls
            .iter()
            .map(|pause| pause.lasts)
            .max()
            .unwrap_or_default();
        line(
            "stalls",
            format!(
                "the whole server stood still {} times, {} s in all, {} s at most; replayed",
                log.stalls.len(),
                seconds(log.stalled().as_secs_f64()),
                seconds(longest.as_secs_f64())
            ),
        );
    }
}

/// Where run times may well be so many times as long, they are not said to be independent.
const UNSURE: f64 = 1.3;

fn sharing(log: &LogFacts) -> String {
    let Some(fit) = &log.fit else {
        return "nothing is known of how they depend on what runs beside".to_owned();
    };
    let (low, high) = fit.slowdown_interval;
    let interval = format!(
        "{:.2} times as long with {} at once (90 %: {low:.2} to {high:.2})",
        fit.slowdown, fit.running_seen
    );
    match fit.depends() {
        true => format!(
            "{interval}; σ {:.3} ({:.3} to {:.3}), κ {:.4} ({:.4} to {:.4}); this curve is used in place of constants",
            fit.sharing.sigma,
            fit.sigma.0,
            fit.sigma.1,
            fit.sharing.kappa,
            fit.kappa.0,
            fit.kappa.1
        ),
        false if fit.is_by_chance => format!(
            "taken as they are, because they would seem to depend on what runs beside even if they did not: {interval}"
        ),
        false if high > UNSURE => {
            format!("taken as they are, because the log does not tell: {interval}")
        }
        false if log.lock.is_some() => {
            format!("do not depend on what else runs beside: {interval}")
        }
        false => format!("do not depend on what runs beside: {interval}"),
    }
}

/// The law, and beside the log what it makes: run times, evenness, waits.
fn fitted(fitted: &FittedFacts, out: &mut String) {
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "{name:<12}{text}");
    };
    line("law", fitted.text.clone());
    for route in &fitted.routes {
        let distance = match route.distance {
            Some(distance) => format!("at a distance of {distance:.3}"),
            None => "as said".to_owned(),
        };
        let len = thousands(route.requests);
        line(
            "law runs",
            format!(
                "{} {distance}, {len} requests of `{}`",
                route.run, route.name
            ),
        );
    }
    let runs = fitted.beside.runs.iter().map(|pair| {
        let (law, log) = (ms(pair.law_ms), ms(pair.log_ms));
        format!("p{} {law} ms for {log}{}", pair.percentile, far(pair.holds))
    });
    let runs: Vec<String> = runs.collect();
    line("", format!("run times {}", runs.join("; ")));
    let dispersion = fitted.beside.dispersion.iter().map(|pair| {
        format!(
            "{:.2} for {:.2} in {} s{}",
            pair.law,
            pair.log,
            pair.window_seconds,
            far(pair.holds)
        )
    });
    let dispersion: Vec<String> = dispersion.collect();
    if !dispersion.is_empty() {
        let text = dispersion.join("; ");
        line("law comes", format!("index of dispersion {text}"));
    }
    let waits = fitted.waits.iter().map(|wait| {
        let (least, most) = wait.law_interval_ms;
        format!(
            "p{} {} ms ({} to {}) for {}{}",
            wait.percentile,
            ms(wait.law_ms),
            ms(least),
            ms(most),
            ms(wait.measured_ms),
            far(wait.holds)
        )
    });
    let waits: Vec<String> = waits.collect();
    if !waits.is_empty() {
        let text = waits.join("; ");
        line("law waits", format!("drawn {DRAWS_LEN} times: {text}"));
    }
}

fn far(holds: bool) -> &'static str {
    match holds {
        true => "",
        false => " (TOO FAR OFF)",
    }
}

fn repeated(calibration: &Calibration, told: &Told, out: &mut String) {
    let texts: Vec<String> = calibration
        .errors
        .iter()
        .map(|error| {
            let share = error
                .off_share()
                .map_or(String::new(), |share| format!(", {:+.0} %", share * 100.0));
            format!(
                "p{} {} ms for {} ({:+.3} ms{share})",
                error.percentile,
                ms(error.simulated_ms),
                ms(error.measured_ms),
                error.off_ms()
            )
        })
        .collect();
    let verdict = match calibration.holds {
        true => "",
        false => "; THIS IS TOO FAR OFF",
    };
    let _ = writeln!(
        out,
        "{:<12}with {} threads, waits: {}{verdict}",
        "repeated",
        told.present.variant.pools[0].threads,
        texts.join("; ")
    );
}

const HEAD: [&str; 15] = [
    "threads", "proc", "rate", "control", "p50", "p95", "p99", "p99.9", "p50", "p95", "p99",
    "busy", "refused", "mean", "most",
];

fn answers(told: &Told) -> String {
    let mut rows: Vec<Vec<String>> = vec![HEAD.map(str::to_owned).to_vec()];
    if let Some(log) = told.present.log.as_ref().filter(|log| log.has_runs) {
        let share = log.refused as f64 / log.requests.max(1) as f64;
        let mut row = vec![
            "the log".to_owned(),
            String::new(),
            String::new(),
            String::new(),
        ];
        row.extend(times(&log.queue, &log.total));
        row.extend([String::new(), percent(share), String::new(), String::new()]);
        rows.push(row);
    }
    rows.extend(told.answers.iter().flat_map(row));
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
    if told.answers.iter().any(|answer| answer.is_beyond) {
        out.push_str(
            "* more than twice as many threads as were seen at work: how they slow each other down is not known\n",
        );
    }
    out
}

/// What columns are of.
fn over(widths: &[usize]) -> String {
    let width = |columns: std::ops::Range<usize>| -> usize {
        let len = columns.len();
        widths[columns].iter().sum::<usize>() + 2 * (len - 1)
    };
    let line = format!(
        "{:<lead$}  {:<queue$}  {:<total$}  {:<middle$}  threads there",
        "",
        "queue, ms",
        "queue and run, ms",
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

fn search(searched: &Searched, objectives: &[Objective]) -> String {
    let texts: Vec<&str> = objectives
        .iter()
        .map(|objective| objective.text.as_str())
        .collect();
    let what = format!(
        "{} at x{}, {}, control {}",
        texts.join(" and "),
        searched.rate,
        match searched.processes {
            1 => "1 process".to_owned(),
            processes => format!("{processes} processes"),
        },
        searched.control
    );
    let values = |answer: &Answer| -> String {
        let value = |objective: &Objective| match objective.metric {
            whatif::asking::Metric::Refused => percent(objective.value(answer)),
            _ => format!("{} ms", ms(objective.value(answer))),
        };
        objectives.iter().map(value).collect::<Vec<_>>().join(", ")
    };
    match &searched.search.found {
        Some(found) => {
            let count: usize = found.threads.parse().unwrap_or(0);
            let fewer = searched.search.tried.iter().rfind(|tried| {
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
            let why = searched.running_seen.map_or(String::new(), |seen| {
                format!(
                    "; it ends there because run times depend on how many are at work, and more than twice the \
                     {seen} that were seen at once are not known"
                )
            });
            format!(
                "{what}: up to {} threads do not hold it{why}\n",
                searched.threads_max
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
            let none = Searched {
                rate: 1.0,
                processes: 1,
                control: "on",
                threads_max,
                running_seen,
                search: whatif::asking::Search {
                    found: None,
                    tried: Vec::new(),
                },
            };
            search(&none, &[])
        };
        let ends = said(8, Some(4));
        assert!(ends.contains("up to 8 threads do not hold it; it ends there because"));
        assert!(
            ends.contains("more than twice the 4 that were seen"),
            "{ends}"
        );
        assert!(said(1_024, None).ends_with("up to 1024 threads do not hold it\n"));
    }

    #[test]
    fn a_small_share_is_not_nothing() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.000_4), "0.04%");
        assert_eq!(percent(0.25), "25%");
    }
}
