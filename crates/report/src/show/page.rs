//! A tally as a page: one file that opens without a network.
//!
//! Takes a tally that has a timeline, gives HTML with its style and its charts within; no script.

use std::fmt::Write as _;

use super::chart::{Curve, Durations, Hours, Layer, curves, distribution, stack};
use super::table::{CPU_NOTE, PRECISION_NOTE, QUEUE_HEADS, ROWS, class_counts, queue_cells};
use super::text::{
    bytes, harmless, mean, percent, rate, seconds, short_seconds, thousands, time, zone,
};
use super::waiting;
use crate::filter::local_ns;
use crate::groups::GROUPS_LEN_MAX;
use crate::slowest::{Slow, know_queues};
use crate::spread::{Spread, secs};
use crate::tally::{Group, Grouped, PHASES, Tally};
use crate::timeline::Timeline;

const STYLE: &str = include_str!("page.css");
const TEXT_CHARS_MAX: usize = 200;
/// The status classes in the order of their layers.
const CLASSES: [usize; 6] = [2, 3, 1, 4, 5, 0];

/// The page of everything; `title` names the logs.
pub fn page(tally: &Tally, title: &str) -> String {
    let title = escaped(title.as_bytes());
    let mut out = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n<main>\n<h1>{title}</h1>\n"
    );
    head(tally, &mut out);
    if tally.all().has_phases() {
        out.push_str("<h2>Phases, in seconds</h2>\n");
        phases(tally.all(), &mut out);
        let _ = writeln!(out, "<p>{PRECISION_NOTE}.</p>");
        if !tally.all().cpu.is_empty() {
            let _ = writeln!(out, "<p>{CPU_NOTE}.</p>");
        }
        distributions(tally.all(), &mut out);
    }
    if let Some(timeline) = tally.timeline() {
        over_time(tally, timeline, &mut out);
    }
    groups(tally, &mut out);
    waiting::page(&tally.waiting(), &mut out);
    slowest(tally.slowest(), &mut out);
    foot(tally, &mut out);
    out.push_str("</main>\n");
    out
}

fn head(tally: &Tally, out: &mut String) {
    let all = tally.all();
    if let Some((first, last, offset)) = tally.time() {
        let _ = writeln!(
            out,
            "<p>{} to {} {}</p>",
            time(first, offset),
            time(last, offset),
            zone(offset)
        );
    }
    out.push_str("<div class=cards>");
    let mut card = |value: String, name: &str| {
        let _ = write!(
            out,
            "<div class=card><b>{value}</b><span>{name}</span></div>"
        );
    };
    card(thousands(all.len), "requests");
    if let Some(per_second) = tally.per_second() {
        card(rate(per_second), "requests a second");
    }
    if !all.total().is_empty() {
        card(
            short_seconds(all.total().quantile_secs(0.5)),
            "median of the total",
        );
        card(
            short_seconds(all.total().quantile_secs(0.99)),
            "p99 of the total",
        );
    }
    let found = &all.at_queue;
    if found.known_len > 0 {
        card(
            percent(found.from_queue_len, found.known_len),
            "had to wait for a thread",
        );
    }
    if found.threads.len > 0 {
        card(mean(found.threads.mean()), "threads on average");
    }
    card(percent(all.classes[5], all.len), "5xx");
    if tally.endings().1 > 0 {
        card(percent(all.incomplete_len, all.len), "not complete");
    }
    card(bytes(all.body_bytes), "of bodies");
    out.push_str("</div>\n");
}

fn phases(group: &Group, out: &mut String) {
    out.push_str("<div class=sheet><table><thead><tr><th></th>");
    for (name, _) in group.columns() {
        let _ = write!(out, "<th class=n>{name}</th>");
    }
    out.push_str("</tr></thead>");
    for (name, of) in ROWS {
        let _ = write!(out, "<tr><th>{name}</th>");
        for (_, spread) in group.columns() {
            let _ = write!(out, "<td class=n>{}</td>", cell(spread, of));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>\n");
}

fn cell(spread: &Spread, of: fn(&Spread) -> f64) -> String {
    if spread.is_empty() {
        "-".to_owned()
    } else {
        seconds(of(spread))
    }
}

fn distributions(group: &Group, out: &mut String) {
    let known = || {
        PHASES
            .iter()
            .zip(&group.phases)
            .filter(|(_, spread)| !spread.is_empty())
    };
    let ends = known().flat_map(|(_, spread)| {
        let shape = spread.shape();
        let low = shape
            .buckets()
            .map(|(middle, _)| secs(middle))
            .find(|value| *value >= 0.98e-6);
        [low.unwrap_or(0.0).max(1e-6), spread.max_secs()]
    });
    let range = Durations::holding(ends);
    out.push_str("<h2>How long each phase took</h2>\n");
    keys(&[("median", "median"), ("p99", "p99")], out);
    out.push_str("<div class=charts>");
    for (name, spread) in known() {
        let shape = spread.shape();
        let short: u64 = shape
            .buckets()
            .take_while(|(middle, _)| middle.0 < 980)
            .map(|(_, len)| len)
            .sum();
        let _ = write!(
            out,
            "<figure><figcaption><h3>{name}</h3><span>median {} · p99 {} · max {}{}</span></figcaption>{}</figure>",
            short_seconds(spread.quantile_secs(0.5)),
            short_seconds(spread.quantile_secs(0.99)),
            short_seconds(spread.max_secs()),
            if short > 0 {
                format!(" · {} below 1 µs", percent(short, spread.len()))
            } else {
                String::new()
            },
            distribution(shape, range),
        );
    }
    out.push_str("</div>\n");
}

fn over_time(tally: &Tally, timeline: &Timeline, out: &mut String) {
    let steps: Vec<_> = timeline.steps().collect();
    let (Some((first, _)), Some((_, _, offset))) = (steps.first(), tally.time()) else {
        return;
    };
    let hours = Hours {
        first: local_ns(first.saturating_mul(1_000_000_000), offset) / 1_000_000_000,
        step_secs: timeline.width_secs(),
        steps_len: steps.len() as u64,
    };
    let _ = writeln!(
        out,
        "<h2>Over time, in steps of {}</h2>",
        short_step(hours.step_secs)
    );
    let layers: Vec<Layer> = CLASSES
        .into_iter()
        .filter(|class| steps.iter().any(|(_, step)| step.classes[*class] > 0))
        .map(|class| Layer {
            class: format!("c-s{class}"),
            name: if class == 0 {
                "none".to_owned()
            } else {
                format!("{class}xx")
            },
            counts: steps.iter().map(|(_, step)| step.classes[class]).collect(),
        })
        .collect();
    let named: Vec<_> = layers
        .iter()
        .map(|layer| (&layer.class[2..], layer.name.as_str()))
        .collect();
    keys(
        &[&[("median", "median"), ("p99", "p99")][..], &named].concat(),
        out,
    );
    let _ = write!(
        out,
        "<div class=charts><figure><figcaption><h3>requests a second</h3><span>by status</span></figcaption>{}</figure>",
        stack(&layers, hours)
    );
    phases_over_time(&steps, hours, out);
    out.push_str("</div>\n");
}

/// A chart of median and p99 for each phase.
fn phases_over_time(steps: &[(u64, &crate::timeline::Step)], hours: Hours, out: &mut String) {
    for (phase, name) in PHASES.iter().enumerate() {
        let of = |q: f64| -> Vec<Option<f64>> {
            let quantile = |shape: &telemetry::Snapshot| secs(shape.quantile(q));
            steps
                .iter()
                .map(|(_, step)| step.phases[phase].as_ref().map(quantile))
                .collect()
        };
        let both = [
            Curve {
                class: "median",
                values: of(0.5),
            },
            Curve {
                class: "p99",
                values: of(0.99),
            },
        ];
        let values = || {
            both.iter()
                .flat_map(|curve| curve.values.iter().copied().flatten())
        };
        if values().next().is_some() {
            let _ = write!(
                out,
                "<figure><figcaption><h3>{name}</h3></figcaption>{}</figure>",
                curves(&both, hours, Durations::holding(values()))
            );
        }
    }
}

fn short_step(step_secs: u64) -> String {
    match step_secs {
        1 => "1 second".to_owned(),
        secs if secs < 600 => format!("{secs} seconds"),
        secs if secs < 7_200 => format!("{:.1} minutes", secs as f64 / 60.0),
        secs => format!("{:.1} hours", secs as f64 / 3_600.0),
    }
}

fn keys(keys: &[(&str, &str)], out: &mut String) {
    out.push_str("<div class=keys>");
    for (class, name) in keys {
        let _ = write!(out, "<span><i class=\"key c-{class}\"></i>{name}</span>");
    }
    out.push_str("</div>\n");
}

fn groups(tally: &Tally, out: &mut String) {
    let Some(Grouped {
        by,
        named: mut groups,
        others,
    }) = tally.groups()
    else {
        return;
    };
    if let Some(others) = others {
        groups.push(("others".to_owned(), others));
    }
    let _ = write!(
        out,
        "<h2>By {}</h2>\n<div class=sheet><table><thead><tr><th>{}</th><th class=n>requests</th><th class=n>share</th>\
         <th class=n>4xx</th><th class=n>5xx</th><th class=n>not complete</th><th class=n>avg</th><th class=n>median</th>\
         <th class=n>p99</th><th class=n>p99 queue</th><th class=n>p99 run</th></tr></thead>",
        by.name(),
        by.name()
    );
    for (name, group) in &groups {
        let total = group.total();
        let cells = [
            thousands(group.len),
            percent(group.len, tally.all().len),
            thousands(group.classes[4]),
            thousands(group.classes[5]),
            thousands(group.incomplete_len),
            cell(total, Spread::mean_secs),
            cell(total, |spread| spread.quantile_secs(0.5)),
            cell(total, |spread| spread.quantile_secs(0.99)),
            cell(&group.phases[1], |spread| spread.quantile_secs(0.99)),
            cell(&group.phases[2], |spread| spread.quantile_secs(0.99)),
        ];
        let cells = cells
            .map(|cell| format!("<td class=n>{cell}</td>"))
            .concat();
        let _ = write!(out, "<tr><td>{}</td>{cells}</tr>", escaped(name.as_bytes()));
    }
    out.push_str("</table></div>\n");
    if others.is_some() {
        let _ = writeln!(
            out,
            "<p>others: whatever came when {} groups were there already.</p>",
            thousands(GROUPS_LEN_MAX as u64)
        );
    }
    for (name, group) in groups.iter().filter(|(_, group)| group.has_phases()) {
        let _ = write!(
            out,
            "<details><summary>{} {}</summary>",
            by.name(),
            escaped(name.as_bytes())
        );
        phases(group, out);
        out.push_str("</details>\n");
    }
}

fn slowest(slowest: &[Slow], out: &mut String) {
    if slowest.is_empty() {
        return;
    }
    out.push_str("<h2>The slowest requests</h2>\n");
    keys(&PHASES.map(|name| (name, name))[..4], out);
    out.push_str(
        "<div class=sheet><table><thead><tr><th class=n>seconds</th><th></th><th>of which it waited</th>",
    );
    let has_queues = know_queues(slowest);
    if has_queues {
        let heads = QUEUE_HEADS.map(|head| format!("<th class=n>{head}</th>"));
        out.push_str(&heads.concat());
    }
    out.push_str(
        "<th>when</th>\
         <th>status</th><th>request</th><th>route</th><th>client</th><th>id</th></tr></thead>",
    );
    for slow in slowest {
        let waited = slow.waited_for();
        let waited = waited.map_or_else(
            || "-".to_owned(),
            |(words, span)| format!("{} for {words}", seconds(secs(span))),
        );
        let when = slow.wall_ns.map_or_else(
            || "-".to_owned(),
            |wall_ns| time(wall_ns, slow.utc_offset_secs),
        );
        let status = slow
            .status
            .map_or_else(|| "-".to_owned(), |code| code.to_string());
        let request = [&slow.method[..], &slow.target[..]].join(&b' ');
        let found = match has_queues {
            true => queue_cells(slow)
                .map(|cell| format!("<td class=n>{cell}</td>"))
                .concat(),
            false => String::new(),
        };
        let _ = write!(
            out,
            "<tr><td class=n>{}</td><td>{}</td><td>{waited}</td>{found}<td>{when}</td><td>{status}</td><td class=t>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            seconds(secs(slow.total)),
            way(slow),
            escaped(request.trim_ascii()),
            escaped(&slow.route),
            escaped(&slow.peer),
            escaped(&slow.id),
        );
    }
    out.push_str("</table></div>\n");
}

/// The phases of one request side by side, each as wide as its share.
fn way(slow: &Slow) -> String {
    let spans = &slow.spans;
    let phases = [spans.receive, spans.queue, spans.run, spans.send];
    let mut way = String::from("<div class=way>");
    for (name, span) in PHASES.iter().zip(phases) {
        let share = span.map_or(0.0, |span| {
            100.0 * span.0 as f64 / slow.total.0.max(1) as f64
        });
        if share >= 0.1 {
            let _ = write!(
                way,
                "<i class=c-{name} style=\"width:{:.1}%\" title=\"{name} {share:.1} %\"></i>",
                share.min(100.0)
            );
        }
    }
    way.push_str("</div>");
    way
}

fn foot(tally: &Tally, out: &mut String) {
    let statuses: Vec<String> = class_counts(tally.all())
        .map(|(name, len)| {
            format!(
                "{name} {} ({})",
                thousands(len),
                percent(len, tally.all().len)
            )
        })
        .collect();
    let (endings, known_len) = tally.endings();
    let _ = write!(out, "<footer><p>Statuses: {}.</p>", statuses.join(" · "));
    if known_len > 0 {
        let endings = endings
            .iter()
            .map(|(end, len)| format!("{} {}", escaped(end.as_bytes()), thousands(*len)));
        let endings = endings.collect::<Vec<_>>().join(" · ");
        let _ = write!(
            out,
            "<p>Not complete: {}.</p>",
            if endings.is_empty() { "none" } else { &endings }
        );
    }
    if let (misread_len @ 1.., Some(first)) = tally.misread() {
        let _ = write!(
            out,
            "<p>{} of {} lines were not understood; the first: {}:{}.</p>",
            thousands(misread_len),
            thousands(tally.lines_len()),
            escaped(first.name.as_bytes()),
            first.line
        );
    }
    out.push_str("</footer>\n");
}

/// Text out of a log that neither ends an element nor drives a terminal.
pub(super) fn escaped(text: &[u8]) -> String {
    let mut out = String::new();
    for character in harmless(text, TEXT_CHARS_MAX).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
