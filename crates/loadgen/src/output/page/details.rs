//! The tables of one run on a page: how long everything took, what was asked, what was found.

use std::fmt::Write as _;

use telemetry::civil_from_unix;

use super::super::columns::{HEADS, durations};
use super::super::table::{
    answered, bad_clients, classes, little, model, per_request, server_text, threads_text, timed,
};
use super::super::text::{bytes, escaped, number, short_seconds, thousands};
use super::{Run, TEXT_CHARS_MAX};
use crate::outcome::Outcome;

/// Everything of one run: open where it is the only one.
pub(super) fn details(run: &Run<'_>, runs_len: usize, out: &mut String) {
    let outcome = run.outcome;
    match runs_len {
        1 => out.push_str("<section>"),
        _ => {
            let _ = write!(out, "<details><summary>{}</summary>", run.key());
        }
    }
    out.push_str(
        "<h2>How long everything took</h2>\n<div class=sheet><table><thead><tr><th></th><th></th>",
    );
    for head in HEADS {
        let _ = write!(out, "<th class=n>{head}</th>");
    }
    out.push_str("</tr></thead>");
    for (name, summary) in timed(outcome) {
        let (unit, cells) = durations(summary);
        let cells = cells
            .map(|cell| format!("<td class=n>{cell}</td>"))
            .concat();
        let _ = write!(out, "<tr><th>{name}</th><td>{unit}</td>{cells}</tr>");
    }
    out.push_str("</table></div>\n<p>–: no values, or fewer than ten beyond it.</p>\n");
    facts("What was asked", &asked(outcome), out);
    facts("What was found", &found(outcome), out);
    out.push_str(if runs_len == 1 {
        "</section>\n"
    } else {
        "</details>\n"
    });
}

/// Names and texts from this room and from outside.
fn facts(title: &str, facts: &[(&str, String)], out: &mut String) {
    let _ = write!(
        out,
        "<h2>{title}</h2>\n<div class=sheet><table class=facts>"
    );
    for (name, text) in facts.iter().filter(|(_, text)| !text.is_empty()) {
        let _ = write!(
            out,
            "<tr><th>{name}</th><td class=t>{}</td></tr>",
            escaped(text, TEXT_CHARS_MAX)
        );
    }
    out.push_str("</table></div>\n");
}

fn asked(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let asked = &outcome.asked;
    let [year, month, day, hour, minute, second] = civil_from_unix(outcome.began_unix_ms / 1_000);
    let mut facts = vec![
        ("target", asked.url.clone()),
        ("load", model(outcome)),
        ("requests", asked.requests.join(" · ")),
        ("timeout", short_seconds(asked.timeout_s)),
        (
            "began",
            format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"),
        ),
        ("made by", format!("milepost {}", outcome.milepost)),
    ];
    if !asked.label.is_empty() {
        facts.insert(0, ("label", asked.label.clone()));
    }
    facts
}

fn found(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let counts = &outcome.counts;
    let statuses = counts
        .statuses
        .iter()
        .map(|(status, len)| format!("{status} {}", thousands(*len)));
    let mut facts = vec![
        ("requests", answered(counts, outcome.seconds)),
        ("statuses", statuses.collect::<Vec<_>>().join(" · ")),
        (
            "bytes",
            format!(
                "{} read · {} sent",
                bytes(counts.read_bytes as f64),
                bytes(counts.sent_bytes as f64)
            ),
        ),
        ("connections", thousands(counts.connections)),
    ];
    if counts.failures.sum() > 0 {
        let parts =
            classes(&counts.failures).map(|(name, len)| format!("{name} {}", thousands(len)));
        facts.push(("failed", parts.collect::<Vec<_>>().join(" · ")));
    }
    for (name, count) in [
        ("disturbed", counts.disturbed),
        ("unsent", counts.unsent),
        ("unfinished", counts.unfinished),
        ("ended while idle", counts.ended_idle),
        ("left open", counts.left_open),
        ("TLS resumed", counts.resumed),
    ] {
        if count > 0 {
            facts.push((name, thousands(count)));
        }
    }
    if let Some((found, slots)) = little(outcome) {
        let text = format!("{} of {} by Little's law", number(found), thousands(slots));
        facts.push(("in flight", text));
    }
    sides(outcome, &mut facts);
    facts
}

fn sides(outcome: &Outcome, facts: &mut Vec<(&'static str, String)>) {
    let generator = &outcome.generator;
    let parts = [
        per_request(outcome, generator.cpu_us_per_request),
        threads_text(&generator.threads),
        format!("memory {}", bytes(generator.resident_bytes as f64)),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    facts.push(("generator", parts.join(" · ")));
    if let Some(server) = &outcome.server {
        facts.push(("server", server_text(outcome, server)));
    }
    if !outcome.kernel.is_empty() {
        let grown = outcome
            .kernel
            .iter()
            .map(|(name, by)| format!("{name} +{}", thousands(*by)));
        facts.push(("kernel", grown.collect::<Vec<_>>().join(" · ")));
    }
    facts.extend(bad_clients(outcome).map(|text| ("bad clients", text)));
}
