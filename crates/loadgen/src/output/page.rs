//! Runs as a page: one file that opens without a network.
//!
//! Takes outcomes, gives HTML. Several runs are laid over each other.

use present::{
    Axis, BAD, Chart, Line, Look, NONE, Page, Scale, Table, date_time, duration, escaped, number,
    percent, thousands,
};

use super::curves::{latencies, percentiles, rates, run_look};
use super::distributions;
use super::facts::{Fact, asked, found, model, sides, weight_word};
use super::table::{NONE_NOTE, durations};
use crate::distribution::Summary;
use crate::outcome::{Outcome, Second};

/// The page of these runs; `title` names them.
pub fn page(outcomes: &[Outcome], title: &str) -> String {
    let mut page = Page::new(title);
    let runs = outcomes.iter().enumerate();
    let runs: Vec<Run<'_>> = runs.map(|(index, of)| Run::of(index, of)).collect();
    remarks(&runs, &mut page);
    match &runs[..] {
        [] => {
            page.paragraph("There is no run.");
            return page.finish();
        }
        [run] => cards(run.outcome, &mut page),
        _ => overview(&runs, &mut page),
    }
    // Two beside each other on a desk, one below the other on a phone.
    page.html("<div class=charts>\n");
    page.figure(&refs(&percentile_charts(&runs)), "q");
    if runs.iter().any(|run| !run.outcome.series.is_empty()) {
        page.figure(&[("", &rate_chart(&runs))], "");
        page.figure(&refs(&latency_charts(&runs)), "l");
    }
    page.html("</div>\n");
    match &runs[..] {
        [run] => details(run.outcome, &mut page),
        _ => {
            for run in &runs {
                page.details(&run.key(), |page| details(run.outcome, page));
            }
        }
    }
    page.finish()
}

/// A run and what it is called.
struct Run<'a> {
    index: usize,
    name: String,
    outcome: &'a Outcome,
}

impl Run<'_> {
    fn of(index: usize, outcome: &Outcome) -> Run<'_> {
        let name = match outcome.asked.label.trim() {
            "" => format!("run {}", index + 1),
            label => label.to_owned(),
        };
        Run {
            index,
            name,
            outcome,
        }
    }

    /// Its name in its colour.
    fn key(&self) -> String {
        Page::key(self.index, &self.name)
    }
}

fn remarks(runs: &[Run<'_>], page: &mut Page) {
    let all = runs.iter();
    let all = all.flat_map(|run| run.outcome.remarks.iter().map(move |remark| (run, remark)));
    let mut all: Vec<_> = all.collect();
    // By weight, and within it as the runs are: what makes numbers worthless is read first.
    all.sort_by_key(|(_, remark)| remark.weight);
    for (run, remark) in all {
        let word = weight_word(remark.weight);
        // One run alone needs no name.
        let whose = if runs.len() > 1 { &run.key() } else { "" };
        let kind = escaped(&remark.word, 40);
        let label = format!("<b>{word}</b> {whose} <b>{kind}</b>:");
        page.remark(&word.to_lowercase(), &label, &remark.text);
    }
}

fn cards(outcome: &Outcome, page: &mut Page) {
    let latency = &outcome.times.latency;
    let failed = outcome.counts.failures.sum();
    let ended = failed.saturating_add(outcome.counts.answered);
    page.paragraph(&model(outcome)).cards([
        (number(outcome.per_second()), "requests a second"),
        (time(latency, Some(latency.p50_us)), "median latency"),
        (time(latency, latency.p99_us), "p99"),
        (time(latency, Some(latency.max_us)), "longest"),
        (percent(failed, ended), "failed"),
    ]);
}

/// Of a summary that may have no values.
fn time(summary: &Summary, us: Option<f64>) -> String {
    // A summary without values has zeros, which would be the best result there is.
    let known = us.filter(|_| summary.count > 0);
    known.map_or_else(|| NONE.to_owned(), |us| duration(us / 1e6))
}

/// A line for each run.
fn overview(runs: &[Run<'_>], page: &mut Page) {
    type TimeOf = fn(&Summary) -> Option<f64>;
    const TIMES: [(&str, TimeOf); 5] = [
        ("median", |latency| Some(latency.p50_us)),
        ("p90", |latency| Some(latency.p90_us)),
        ("p99", |latency| latency.p99_us),
        ("p99.9", |latency| latency.p99_9_us),
        ("max", |latency| Some(latency.max_us)),
    ];
    let outcomes = || runs.iter().map(|run| run.outcome);
    let server = |run: &Outcome| {
        let us = run.server.as_ref().map(|server| server.cpu_us_per_request);
        us.map_or_else(|| NONE.to_owned(), number)
    };
    let failed = |run: &Outcome| thousands(run.counts.failures.sum());
    let own = |run: &Outcome| number(run.generator.cpu_us_per_request);
    // Names in their colours: the table is the legend of the charts as well.
    let mut table = Table::default();
    table
        .markup("run", runs.iter().map(Run::key))
        .numbers("requests/s", outcomes().map(|run| number(run.per_second())));
    for (head, of) in TIMES {
        let cells = outcomes().map(|run| time(&run.times.latency, of(&run.times.latency)));
        table.numbers(head, cells);
    }
    table
        .numbers("failed", outcomes().map(failed))
        .numbers("generator µs", outcomes().map(own))
        .numbers("server µs", outcomes().map(server));
    page.table(&table)
        .paragraph("µs: processor time for a request.");
}

/// Charts by the names that they are chosen by.
type Panes = Vec<(&'static str, Chart)>;

fn refs(panes: &Panes) -> Vec<(&str, &Chart)> {
    panes.iter().map(|(name, chart)| (*name, chart)).collect()
}

fn percentile_charts(runs: &[Run<'_>]) -> Panes {
    let mut charts = Vec::new();
    // By place, because runs of one page may differ in what they have: an open load beside a closed one.
    let names = distributions(&runs[0].outcome.times).map(|(name, _)| name);
    for (place, name) in names.into_iter().enumerate() {
        let of_run = |run: &Run<'_>| {
            let (_, summary) = distributions(&run.outcome.times)[place];
            Some(percentiles(&run.name, run.index, summary?))
        };
        let lines: Vec<Line> = runs.iter().filter_map(of_run).flatten().collect();
        let labels = ["of all requests took at most", name];
        let scale = Scale::of(Axis::Nines, Axis::Durations);
        let mut chart = Chart::of("Percentiles", labels, scale, lines);
        chart.hint = "dotted: fewer than ten values beyond".to_owned();
        // The others show a request's whole life.
        if name != "cycle" && (!chart.is_empty() || name == "latency") {
            charts.push((name, chart));
        }
    }
    charts
}

/// A chart over the seconds of runs.
fn over_time(runs: &[Run<'_>], title: &str, label: &str, y: Axis, lines: Vec<Line>) -> Chart {
    let mut seconds = runs.iter().flat_map(|run| &run.outcome.series);
    let scale = Scale::of(Axis::Linear, y);
    // Where a run warmed up, its first seconds are in the chart and in no number: the first one that counts is
    // marked.
    let scale = match seconds.any(|second| second.at_s < 0) {
        true => scale.marked(0.0, "counted from"),
        false => scale,
    };
    Chart::of(title, ["seconds", label], scale, lines)
}

fn rate_chart(runs: &[Run<'_>]) -> Chart {
    let lines = runs
        .iter()
        .flat_map(|run| rates(&run.name, run.index, runs.len(), run.outcome));
    let lines: Vec<Line> = lines.collect();
    // A line more than there are runs is one of failures.
    let has_failures = lines.len() > runs.len();
    let mut chart = over_time(runs, "Requests a second", "requests/s", Axis::Linear, lines);
    if has_failures {
        chart.hint = "dashed: failed".to_owned();
    }
    chart
}

/// p99, p50 and max: of one run in one chart.
fn latency_charts(runs: &[Run<'_>]) -> Panes {
    type SecondTime = fn(&Second) -> f64;
    const TIMES: [(&str, SecondTime, usize, Look); 3] = [
        ("p99", |second| second.p99_us, BAD, Look::Solid),
        ("p50", |second| second.p50_us, 0, Look::Solid),
        ("max", |second| second.max_us, 7, Look::Dotted),
    ];
    let title = "Latency, second by second";
    let chart = |lines: Vec<Line>| over_time(runs, title, "latency", Axis::Durations, lines);
    // Of several runs each quantile has a chart of its own, and its lines are the runs.
    if let [run] = runs {
        let lines =
            TIMES.map(|(name, of, colour, look)| latencies(name, colour, look, run.outcome, of));
        return vec![("", chart(lines.into()))];
    }
    let of_all = |of: SecondTime| {
        let lines = runs
            .iter()
            .map(|run| latencies(&run.name, run.index, run_look(run.index), run.outcome, of));
        chart(lines.collect())
    };
    TIMES.map(|(name, of, ..)| (name, of_all(of))).into()
}

/// Everything of one run.
fn details(outcome: &Outcome, page: &mut Page) {
    let note = format!("{NONE}: no values, or {NONE_NOTE}.");
    page.heading("How long everything took")
        .table(&durations(outcome))
        .paragraph(&note);
    let more: [Fact; 4] = [
        ("load", model(outcome)),
        ("timeout", duration(outcome.asked.timeout_s)),
        ("began", date_time(outcome.began_unix_ms / 1_000) + " UTC"),
        ("made by", format!("milepost {}", outcome.milepost)),
    ];
    page.heading("What was asked")
        .html(&present::facts(asked(outcome).into_iter().chain(more)))
        .heading("What was found")
        .html(&present::facts([found(outcome), sides(outcome)].concat()));
}
