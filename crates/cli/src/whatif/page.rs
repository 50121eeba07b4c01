//! Answers as a page: one file with its charts, which opens without a network, light or dark.
//!
//! Takes what was found, gives HTML.

use present::{Axis, Chart, Line, Page, Scale};
use whatif::prediction::{Answer, Times};

use super::{Findings, table};

/// The page.
pub(super) fn page(findings: &Findings) -> String {
    let mut page = Page::new(&format!("What if: {}", findings.title));
    // Doubts come before the numbers that they are about.
    for remark in &findings.remarks {
        page.remark("doubtful", "", remark);
    }
    page.heading("Predictions").table(&table::answers(findings));
    if table::is_any_beyond(findings) {
        page.paragraph(table::BEYOND_NOTE);
    }
    for result in &findings.searches {
        page.paragraph(&table::search(result, &findings.objectives));
    }
    page.charts(&charts(findings));
    let facts = table::facts(findings);
    if !facts.is_empty() {
        page.heading("What the log says")
            .html(&present::facts(facts));
    }
    page.finish()
}

fn charts(findings: &Findings) -> Vec<Chart> {
    let all = [
        over_threads(findings),
        repeated(findings),
        slowdown(findings),
    ];
    all.into_iter()
        .flatten()
        .chain(over_time(findings))
        .collect()
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
        // An elastic pool has no one place on an axis of threads.
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
    // A curve of one point says no more than its row in the table.
    groups.retain(|group| group.len() > 1);
    groups
}

type Quantile = (&'static str, fn(&Times) -> f64);

fn over_threads(findings: &Findings) -> Option<Chart> {
    let groups = groups(findings);
    // Several groups with three lines each could not be told apart.
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
            let points = points.map(|(x, answer)| (*x, drawn_seconds(of(&answer.queue))));
            lines.push(line(&name, points));
        }
    }
    let scale = Scale::of(Axis::Linear, Axis::Durations);
    let labels = ["threads", "queue time"];
    Some(Chart::of("Queue time by threads", labels, scale, lines))
}

fn line(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Line {
    Line {
        name: name.to_owned(),
        points: points.into_iter().collect(),
        ..Line::default()
    }
}

fn repeated(findings: &Findings) -> Option<Chart> {
    let calibration = findings.present.calibration.as_ref()?;
    let of = |name: &str, times: &Times| {
        let points = [
            (0.5, times.p50_ms),
            (0.9, times.p90_ms),
            (0.95, times.p95_ms),
            (0.99, times.p99_ms),
            (0.999, times.p99_9_ms),
            (0.999_9, times.p99_99_ms),
        ];
        line(name, points.map(|(at, ms)| (at, drawn_seconds(ms))))
    };
    let lines = vec![
        of("measured", &calibration.measured),
        of("simulated", &calibration.simulated.queue),
    ];
    let scale = Scale::of(Axis::Nines, Axis::Durations);
    let labels = ["of all requests waited at most", "queue time"];
    let title = "Queue time, measured and simulated";
    Some(Chart::of(title, labels, scale, lines))
}

fn slowdown(findings: &Findings) -> Option<Chart> {
    let fit = findings.present.log.as_ref()?.fit.as_ref()?;
    // As far as a prediction goes: beyond twice of what was seen nothing is known.
    let most = (2 * fit.running_seen).min(64);
    let measured = fit
        .curve
        .iter()
        .map(|point| (point.running, point.slowdown));
    let law = |running: usize| (running as f64, 1.0 / fit.sharing.speed(running));
    let lines = vec![
        line("measured", measured),
        line("used", (1..=most).map(law)),
    ];
    let scale = Scale::of(Axis::Linear, Axis::Linear).marked(fit.running_seen as f64, "seen");
    let labels = ["running requests", "times as long"];
    let title = "Run time by number of running requests";
    Some(Chart::of(title, labels, scale, lines))
}

/// Of each answer whose pool the controller sizes, else of the present.
fn over_time(findings: &Findings) -> Vec<Chart> {
    let elastic = findings
        .answers
        .iter()
        .filter(|answer| answer.threads.contains(':'));
    let mut shown: Vec<&Answer> = elastic.take(4).collect();
    // Fixed pools do not change their size; what is left to see is the queue.
    if shown.is_empty() {
        let present = findings.present.calibration.as_ref();
        let present = present.map(|calibration| &calibration.simulated);
        shown.extend(present.or(findings.answers.first()));
    }
    let one = |answer: &Answer| {
        // From the first moment that was kept: what warms up the simulation is not shown.
        let begin = answer.timeline.first();
        let begin = begin.map_or(0.0, |moment| moment.at.as_secs_f64());
        let of = |name: &str, of: fn(&whatif::Moment) -> usize| {
            let moments = answer.timeline.iter();
            line(
                name,
                moments.map(|moment| (moment.at.as_secs_f64() - begin, of(moment) as f64)),
            )
        };
        let lines = vec![
            of("threads", |moment| moment.threads),
            of("running", |moment| moment.running),
            of("waiting", |moment| moment.waiting),
        ];
        let title = format!(
            "Over time: {} threads, x{}, control {}",
            answer.threads, answer.rate, answer.control
        );
        let scale = Scale::of(Axis::Linear, Axis::Linear);
        Chart::of(&title, ["seconds", "threads, requests"], scale, lines)
    };
    shown.into_iter().map(one).collect()
}
