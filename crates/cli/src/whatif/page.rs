//! Answers as a page: one file with its charts, which opens without a network, light or dark.
//!
//! Takes what was found, gives HTML.

use present::{Axis, Chart, Line, Page, Scale};
use whatif::prediction::{Answer, Times};

use super::flags::Detail;
use super::proposal::Proposal;
use super::{Findings, table};

/// The page.
pub(super) fn page(findings: &Findings) -> String {
    let mut page = Page::new(&format!("What if: {}", findings.title));
    page.verdict(&findings.verdict());
    if let Some(apart) = findings.proposal.as_ref().and_then(Proposal::apart) {
        page.details("The pool in a configuration", |page| {
            page.html(&format!(
                "<pre>{}</pre>",
                present::escaped(apart.toml(), 600)
            ));
        });
    }
    // Doubts come before the numbers that they are about.
    for remark in &findings.remarks {
        page.remark("doubtful", "", remark);
    }
    let answers = [over_threads(findings), repeated(findings)];
    page.heading("Predictions").charts(answers.iter().flatten());
    page.table(&table::answers(findings, Detail::Answer));
    if table::is_any_beyond(findings) {
        page.paragraph(table::BEYOND_NOTE);
    }
    for result in &findings.searches {
        page.paragraph(&table::search(result, &findings.objectives));
    }
    page.heading("How this was found");
    page.charts(
        &slowdown(findings)
            .into_iter()
            .chain(over_time(findings))
            .collect::<Vec<_>>(),
    );
    let facts = table::facts(findings);
    if !facts.is_empty() {
        page.html(&present::facts(facts));
    }
    page.finish()
}

/// Of the median, p95 and p99, as in the report.
const COLOURS: [usize; 3] = [0, 1, 3];

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
        // An elastic pool has no one place on an axis of threads, and a pool of its own is another server.
        if answer.pools.len() > findings.present.variant.pools.len() {
            continue;
        }
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
    // An event loop has one thread, whatever else varies.
    if findings.present.is_on_loop() {
        return None;
    }
    let groups = groups(findings);
    // Several groups with three lines each could not be told apart.
    let quantiles: &[Quantile] = match groups.len() {
        0 => return None,
        1 => &[
            ("median", |times| times.p50_ms),
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
            let mut line = line(&name, points);
            if groups.len() == 1 {
                line.colour = Some(COLOURS[lines.len()]);
            }
            lines.push(line);
        }
    }
    let mut scale = Scale::of(Axis::Linear, Axis::Durations);
    let log = findings.present.log.as_ref();
    if log.is_some_and(|log| log.has_waits) {
        let now = findings.present.variant.pools[0].threads.max;
        scale = scale.marked(now as f64, "now");
    }
    if let Some(found) = findings.proposal.as_ref().and_then(Proposal::threads)
        && let Ok(threads) = found.rsplit(':').next().unwrap_or(found).parse::<f64>()
    {
        scale = scale.marked(threads, "try");
    }
    let labels = ["threads", "queue time"];
    Some(Chart::of("Queue time", labels, scale, lines))
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
    let title = "Check";
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
        let title = match &answer.concurrency {
            Some(size) => format!("Over time, {size} requests inside"),
            None => format!("Over time, {} threads", answer.threads),
        };
        let scale = Scale::of(Axis::Linear, Axis::Linear);
        Chart::of(&title, ["seconds", "threads, requests"], scale, lines)
    };
    shown.into_iter().map(one).collect()
}
