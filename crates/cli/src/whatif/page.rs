//! Answers as a page: one file with its pictures, which opens without a network, light or dark.
//!
//! Takes what is findings, gives HTML.

use std::fmt::Write as _;

use loadgen::output::picture::{Axis, Line, Scale, curve};
use whatif::prediction::{Answer, Times};

use super::{Findings, table};

const STYLE: &str = ":root { color-scheme: light dark; --ink: #1b2129; --ground: #f6f7f9; --card: #fff; --soft: #5d6875; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ed; --ground: #14191f; --card: #1c2229; --soft: #9aa6b2; } }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, -apple-system, \"Segoe UI\", Roboto, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
pre { background: var(--card); padding: 1rem; overflow-x: auto; border-radius: 6px; font-size: 13px; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); gap: 1rem; }
.pictures > div { background: var(--card); border-radius: 6px; overflow: hidden; }
.pictures svg { display: block; width: 100%; height: auto; }
p.note { border-left: 4px solid #d9822b; padding: .3rem .8rem; background: var(--card); }
";

/// The page.
pub(super) fn page(findings: &Findings) -> String {
    let title = escaped(&format!("What if: {}", findings.title));
    let mut out = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n<main>\n<h1>{title}</h1>\n"
    );
    for remark in &findings.remarks {
        let _ = writeln!(out, "<p class=note>{}</p>", escaped(remark));
    }
    out.push_str("<div class=pictures>\n");
    for picture in pictures(findings) {
        let _ = writeln!(out, "<div>{picture}</div>");
    }
    let _ = write!(
        out,
        "</div>\n<pre>{}</pre>\n</main>\n</html>\n",
        escaped(&table::table(findings))
    );
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            // A log's name may hold anything.
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

fn pictures(findings: &Findings) -> Vec<String> {
    let by_threads = [over_threads(findings)];
    let all = by_threads
        .into_iter()
        .chain([repeated(findings), slowdown(findings)]);
    all.flatten().chain(over_time(findings)).collect()
}

/// Durations have no place for nothing at all: a microsecond is drawn.
fn drawn_seconds(ms: f64) -> f64 {
    (ms / 1e3).max(1e-6)
}

/// Answers that differ in their fixed number of threads only.
fn groups(findings: &Findings) -> Vec<Vec<(f64, &Answer)>> {
    let mut groups: Vec<Vec<(f64, &Answer)>> = Vec::new();
    let tried = findings
        .searches
        .iter()
        .flat_map(|result| &result.search.tried);
    for answer in findings.answers.iter().chain(tried) {
        let Ok(threads) = answer.threads.parse::<f64>() else {
            continue;
        };
        let is_same = |group: &&mut Vec<(f64, &Answer)>| {
            let (_, first) = group[0];
            (first.rate, first.processes, first.control)
                == (answer.rate, answer.processes, answer.control)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push((threads, answer)),
            None => groups.push(vec![(threads, answer)]),
        }
    }
    for group in &mut groups {
        group.sort_by(|one, other| one.0.total_cmp(&other.0));
        group.dedup_by(|one, other| one.0 == other.0);
    }
    groups.retain(|group| group.len() > 1);
    groups
}

type Quantile = (&'static str, fn(&Times) -> f64);

fn over_threads(findings: &Findings) -> Option<String> {
    let groups = groups(findings);
    let quantiles: &[Quantile] = match groups.len() {
        0 => return None,
        1 => &[
            ("p50", |times| times.p50_ms),
            ("p95", |times| times.p95_ms),
            ("p99", |times| times.p99_ms),
        ],
        _ => &[("p95", |times| times.p95_ms)],
    };
    let mut lines = Vec::new();
    for group in &groups {
        let (_, first) = group[0];
        for (name, of) in quantiles {
            let name = match groups.len() {
                1 => (*name).to_owned(),
                _ => format!(
                    "{name}, x{}, {} proc, control {}",
                    first.rate, first.processes, first.control
                ),
            };
            let points = group.iter();
            lines.push(Line {
                name,
                points: points
                    .map(|(x, answer)| (*x, drawn_seconds(of(&answer.queue))))
                    .collect(),
                low_high: None,
            });
        }
    }
    let scale = Scale::of(Axis::Linear, Axis::Durations);
    Some(curve(
        "Queue time by threads",
        "threads",
        "queue time",
        &lines,
        &scale,
    ))
}

fn repeated(findings: &Findings) -> Option<String> {
    let calibration = findings.present.calibration.as_ref()?;
    let line = |name: &str, times: &Times| Line {
        name: name.to_owned(),
        points: [
            (0.5, times.p50_ms),
            (0.9, times.p90_ms),
            (0.95, times.p95_ms),
            (0.99, times.p99_ms),
            (0.999, times.p99_9_ms),
            (0.999_9, times.p99_99_ms),
        ]
        .map(|(at, ms)| (at, drawn_seconds(ms)))
        .to_vec(),
        low_high: None,
    };
    let lines = [
        line("measured", &calibration.measured),
        line("simulated", &calibration.simulated.queue),
    ];
    let scale = Scale::of(Axis::Nines, Axis::Durations);
    Some(curve(
        "Queue time, measured and simulated",
        "percentile",
        "queue time",
        &lines,
        &scale,
    ))
}

fn slowdown(findings: &Findings) -> Option<String> {
    let fit = findings.present.log.as_ref()?.fit.as_ref()?;
    let most = (2 * fit.running_seen).min(64);
    let law = |running: usize| (running as f64, 1.0 / fit.sharing.speed(running));
    let lines = [
        Line {
            name: "measured".to_owned(),
            points: fit
                .curve
                .iter()
                .map(|point| (point.running, point.slowdown))
                .collect(),
            low_high: None,
        },
        Line {
            name: "used".to_owned(),
            points: (1..=most).map(law).collect(),
            low_high: None,
        },
    ];
    let scale = Scale::of(Axis::Linear, Axis::Linear).marked(fit.running_seen as f64, "seen");
    Some(curve(
        "Run time by number of running requests",
        "running requests",
        "times as long",
        &lines,
        &scale,
    ))
}

/// Of each answer whose pool the controller sizes, else of the present.
fn over_time(findings: &Findings) -> Vec<String> {
    let elastic = findings
        .answers
        .iter()
        .filter(|answer| answer.threads.contains(':'));
    let mut shown: Vec<&Answer> = elastic.take(4).collect();
    if shown.is_empty() {
        let present = findings
            .present
            .calibration
            .as_ref()
            .map(|calibration| &calibration.simulated);
        shown.extend(present.or(findings.answers.first()));
    }
    let one = |answer: &Answer| {
        let begin = answer
            .timeline
            .first()
            .map_or(0.0, |moment| moment.at.as_secs_f64());
        let line = |name: &str, of: fn(&whatif::Moment) -> usize| Line {
            name: name.to_owned(),
            points: answer
                .timeline
                .iter()
                .map(|moment| (moment.at.as_secs_f64() - begin, of(moment) as f64))
                .collect(),
            low_high: None,
        };
        let lines = [
            line("threads", |moment| moment.threads),
            line("running", |moment| moment.running),
            line("waiting", |moment| moment.waiting),
        ];
        let title = format!(
            "Over time: {} threads, x{}, control {}",
            answer.threads, answer.rate, answer.control
        );
        curve(
            &title,
            "seconds",
            "threads, requests",
            &lines,
            &Scale::of(Axis::Linear, Axis::Linear),
        )
    };
    shown.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_logs_cannot_break_out() {
        assert_eq!(
            escaped("<a href=\"x\">&\u{1b}"),
            "&lt;a href=&quot;x&quot;&gt;&amp;\u{fffd}"
        );
    }
}
