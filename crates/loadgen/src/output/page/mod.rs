//! Runs as a page: one file that opens without a network.
//!
//! Takes outcomes, gives HTML with its style and its pictures within. A few lines of script show at once
//! what browsers show of a title after a while; without them everything is there as well.

mod details;

use std::fmt::Write as _;

use super::curves::{bytes_read, latencies, percentiles, rates, run_look};
use super::picture::{Axis, COLOURS_LEN, Frame, Look, Scale, Trace, drawn};
use super::table::{model, weight_word};
use super::text::{NONE, escaped, number, percent, short_seconds, thousands};
use crate::distribution::Summary;
use crate::outcome::{Outcome, Second, Weight};

const STYLE: &str = include_str!("page.css");
const PICTURE_STYLE: &str = include_str!("../picture/svg.css");
const SCRIPT: &str = include_str!("page.js");
const TEXT_CHARS_MAX: usize = 600;

/// The page of these runs; `title` names them. Several are laid over each other.
pub fn page(outcomes: &[Outcome], title: &str) -> String {
    let title = escaped(title, TEXT_CHARS_MAX);
    let mut out = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{PICTURE_STYLE}</style>\n<main>\n<h1>{title}</h1>\n"
    );
    let runs: Vec<Run<'_>> = outcomes
        .iter()
        .enumerate()
        .map(|(index, of)| Run::of(index, of))
        .collect();
    if runs.is_empty() {
        out.push_str("<p>There is no run.</p>\n");
    }
    remarks(&runs, &mut out);
    match &runs[..] {
        [run] => cards(run.outcome, &mut out),
        _ => overview(&runs, &mut out),
    }
    if !runs.is_empty() {
        out.push_str("<div class=charts>\n");
        percentile_curves(&runs, &mut out);
        if runs.iter().any(|run| !run.outcome.series.is_empty()) {
            over_time(&runs, &mut out);
        }
        out.push_str("</div>\n");
    }
    for run in &runs {
        details::details(run, runs.len(), &mut out);
    }
    let _ = write!(out, "</main>\n<script>\n{SCRIPT}</script>\n");
    out
}

/// A run and what it is called.
struct Run<'a> {
    index: usize,
    name: String,
    outcome: &'a Outcome,
}

impl Run<'_> {
    fn of(index: usize, outcome: &Outcome) -> Run<'_> {
        let label = outcome.asked.label.trim();
        let name = match label {
            "" => format!("run {}", index + 1),
            _ => label.to_owned(),
        };
        Run {
            index,
            name,
            outcome,
        }
    }

    /// Its name in its colour.
    fn key(&self) -> String {
        format!(
            "<span class=run><i class=\"key k{}\"></i>{}</span>",
            self.index % COLOURS_LEN,
            escaped(&self.name, 80)
        )
    }
}

fn remarks(runs: &[Run<'_>], out: &mut String) {
    let mut all: Vec<_> = runs
        .iter()
        .flat_map(|run| run.outcome.remarks.iter().map(move |remark| (run, remark)))
        .collect();
    all.sort_by_key(|(_, remark)| remark.weight);
    for (run, remark) in all {
        let class = match remark.weight {
            Weight::Invalid => "invalid",
            Weight::Doubtful => "doubtful",
            Weight::Note => "note",
        };
        let whose = if runs.len() > 1 {
            run.key()
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "<p class=\"remark {class}\"><b>{}</b> {whose} <b>{}</b>: {}</p>",
            weight_word(remark.weight),
            escaped(&remark.word, 40),
            coded(&escaped(&remark.text, TEXT_CHARS_MAX))
        );
    }
}

/// What stands in backticks, as code.
fn coded(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return text.to_owned();
    }
    let parts = parts
        .iter()
        .enumerate()
        .map(|(index, part)| match index % 2 {
            0 => (*part).to_owned(),
            _ => format!("<code>{part}</code>"),
        });
    parts.collect()
}

fn cards(outcome: &Outcome, out: &mut String) {
    let _ = write!(
        out,
        "<p>{}</p>\n<div class=cards>",
        escaped(&model(outcome), TEXT_CHARS_MAX)
    );
    let mut card = |value: String, name: &str| {
        let _ = write!(
            out,
            "<div class=card><b>{value}</b><span>{name}</span></div>"
        );
    };
    let latency = &outcome.times.latency;
    card(number(outcome.per_second()), "requests a second");
    card(duration(latency, Some(latency.p50_us)), "median latency");
    card(duration(latency, latency.p99_us), "p99");
    card(duration(latency, Some(latency.max_us)), "longest");
    let failed = outcome.counts.failures.sum();
    let ended = failed.saturating_add(outcome.counts.answered);
    card(percent(failed, ended), "failed");
    out.push_str("</div>\n");
}

/// Of a summary that may have no values.
fn duration(summary: &Summary, us: Option<f64>) -> String {
    let known = us.filter(|_| summary.count > 0);
    known.map_or_else(|| NONE.to_owned(), |us| short_seconds(us / 1e6))
}

/// A line for each run, which is the legend as well.
fn overview(runs: &[Run<'_>], out: &mut String) {
    if runs.is_empty() {
        return;
    }
    out.push_str("<div class=sheet><table><thead><tr><th>run</th>");
    for head in [
        "requests/s",
        "median",
        "p90",
        "p99",
        "p99.9",
        "max",
        "failed",
        "generator µs",
        "server µs",
    ] {
        let _ = write!(out, "<th class=n>{head}</th>");
    }
    out.push_str("</tr></thead>");
    for run in runs {
        let (outcome, latency) = (run.outcome, &run.outcome.times.latency);
        let failed = outcome.counts.failures.sum();
        let server = outcome
            .server
            .as_ref()
            .map(|server| number(server.cpu_us_per_request));
        let cells = [
            number(outcome.per_second()),
            duration(latency, Some(latency.p50_us)),
            duration(latency, Some(latency.p90_us)),
            duration(latency, latency.p99_us),
            duration(latency, latency.p99_9_us),
            duration(latency, Some(latency.max_us)),
            thousands(failed),
            number(outcome.generator.cpu_us_per_request),
            server.unwrap_or_else(|| NONE.to_owned()),
        ];
        let cells = cells
            .map(|cell| format!("<td class=n>{cell}</td>"))
            .concat();
        let _ = write!(out, "<tr><td class=r>{}</td>{cells}</tr>", run.key());
    }
    out.push_str("</table></div>\n<p>µs: processor time for a request.</p>\n");
}

fn percentile_curves(runs: &[Run<'_>], out: &mut String) {
    type SummaryOf = fn(&Outcome) -> Option<&Summary>;
    let choices: [(&str, SummaryOf); 6] = [
        ("latency", |run| Some(&run.times.latency)),
        ("first byte", |run| Some(&run.times.first_byte)),
        ("last byte", |run| Some(&run.times.last_byte)),
        ("connect", |run| Some(&run.times.connect)),
        ("late", |run| run.times.late.as_ref()),
        ("unread", |run| run.times.unread.as_ref()),
    ];
    let scale = Scale::of(Axis::Nines, Axis::Durations);
    let panes = choices.into_iter().filter_map(|(name, of)| {
        let of_run = |run: &Run<'_>| Some(percentiles(&run.name, run.index, of(run.outcome)?));
        let traces: Vec<Trace> = runs.iter().filter_map(of_run).flatten().collect();
        let has_points = traces.iter().any(|trace| !trace.line.points.is_empty());
        let labels = ["of all requests took at most", name];
        (has_points || name == "latency").then(|| {
            (
                name,
                drawn(
                    Frame::Page,
                    &format!("percentiles of {name}"),
                    labels,
                    &traces,
                    &scale,
                ),
            )
        })
    });
    figure(
        "Percentiles",
        "dotted: fewer than ten values beyond",
        "q",
        panes.collect(),
        out,
    );
}

fn over_time(runs: &[Run<'_>], out: &mut String) {
    let warms_up = runs
        .iter()
        .any(|run| run.outcome.series.iter().any(|second| second.at_s < 0));
    let scale = |y: Axis| {
        let scale = Scale::of(Axis::Linear, y);
        if warms_up {
            scale.marked(0.0, "counted from")
        } else {
            scale
        }
    };
    let of_run = |run: &Run<'_>| rates(&run.name, run.index, runs.len(), run.outcome);
    let traces: Vec<Trace> = runs.iter().flat_map(of_run).collect();
    let labels = ["s", "requests/s"];
    let picture = drawn(
        Frame::Page,
        "requests a second over time",
        labels,
        &traces,
        &scale(Axis::Linear),
    );
    let hint = if traces.len() > runs.len() {
        "dashed: failed"
    } else {
        ""
    };
    figure("Requests a second", hint, "r", vec![("", picture)], out);

    let of_run = |run: &Run<'_>| bytes_read(&run.name, run.index, run.outcome);
    let traces: Vec<Trace> = runs.iter().map(of_run).collect();
    let labels = ["s", "MB/s"];
    let picture = drawn(
        Frame::Page,
        "bytes read over time",
        labels,
        &traces,
        &scale(Axis::Linear),
    );
    figure("Megabytes read a second", "", "b", vec![("", picture)], out);
    latency_over_time(runs, &scale(Axis::Durations), out);
}

fn latency_over_time(runs: &[Run<'_>], durations: &Scale, out: &mut String) {
    type SecondTime = fn(&Second) -> f64;
    let choices: [(&'static str, SecondTime); 3] = [
        ("p99", |second| second.p99_us),
        ("p50", |second| second.p50_us),
        ("max", |second| second.max_us),
    ];
    let labels = ["s", "latency"];
    let panes = if let [run] = runs {
        // One run has room for all three.
        let looks = [(1, Look::Solid), (0, Look::Solid), (7, Look::Dotted)];
        let traces = choices.into_iter().zip(looks);
        let traces = traces
            .map(|((name, of), (colour, look))| latencies(name, colour, look, run.outcome, of));
        let traces: Vec<Trace> = traces.collect();
        vec![(
            "",
            drawn(Frame::Page, "latency over time", labels, &traces, durations),
        )]
    } else {
        let panes = choices.map(|(name, of)| {
            let of_run = |run: &Run<'_>| {
                latencies(&run.name, run.index, run_look(run.index), run.outcome, of)
            };
            let traces: Vec<Trace> = runs.iter().map(of_run).collect();
            (
                name,
                drawn(
                    Frame::Page,
                    &format!("{name} over time"),
                    labels,
                    &traces,
                    durations,
                ),
            )
        });
        panes.into()
    };
    let hint = match runs.len() {
        1 => "<i class=\"key k0\"></i>p50 <i class=\"key k1\"></i>p99 <i class=\"key k7\"></i>max",
        _ => "",
    };
    figure("Latency, second by second", hint, "l", panes, out);
}

/// A picture, or several to choose from by their names. `id` is its own on the page.
fn figure(title: &str, hint: &str, id: &str, panes: Vec<(&str, String)>, out: &mut String) {
    let _ = write!(
        out,
        "<figure><figcaption><h3>{title}</h3><span>{hint}</span></figcaption>"
    );
    let names = || panes.iter().map(|(name, _)| name).enumerate();
    if panes.len() > 1 {
        out.push_str("<div class=tabs>");
        for (index, name) in names() {
            let checked = if index == 0 { " checked" } else { "" };
            let _ = write!(
                out,
                "<input type=radio name={id} id={id}{index}{checked}><label for={id}{index}>{name}</label>"
            );
        }
        for (_, picture) in &panes {
            let _ = write!(out, "<div class=pane>{picture}</div>");
        }
        out.push_str("</div>");
    } else {
        out.extend(panes.into_iter().map(|(_, picture)| picture));
    }
    out.push_str("</figure>\n");
}
