//! A tally for a terminal.
//!
//! Takes a tally, gives lines of at most about a hundred columns: a summary, the table of the phases, the groups,
//! the slowest requests, and doubts about the numbers.

use std::fmt::Write as _;

use telemetry::LineForm;

use super::text::{bytes, harmless, mean, percent, rate, seconds, thousands, time, zone};
use super::waiting;
use crate::at_queue::AtQueue;
use crate::groups::GROUPS_LEN_MAX;
use crate::slowest::{Slow, know_queues};
use crate::spread::{Spread, secs};
use crate::tally::{Group, Grouped, Tally};

/// A row of the table of phases: its name, and its value in seconds.
pub(super) type SpreadRow = (&'static str, Value);

/// In seconds.
pub(super) type Value = fn(&Spread) -> f64;

pub(super) const ROWS: [SpreadRow; 9] = [
    ("avg", Spread::mean_secs),
    ("stdev", Spread::stdev_secs),
    ("min", Spread::min_secs),
    ("max", Spread::max_secs),
    ("median", |spread| spread.quantile_secs(0.5)),
    ("p90", |spread| spread.quantile_secs(0.9)),
    ("p95", |spread| spread.quantile_secs(0.95)),
    ("p99", |spread| spread.quantile_secs(0.99)),
    ("p99.9", |spread| spread.quantile_secs(0.999)),
];
/// Those of the live view: avg, max, median, p99.
const LIVE_ROWS: [SpreadRow; 4] = [ROWS[0], ROWS[3], ROWS[4], ROWS[7]];
/// Groups that have a table of their own, the others are lines of one.
const DETAILED_LEN_MAX: usize = 10;
/// The definition of percentiles, and how exact the numbers are.
pub(super) const PRECISION_NOTE: &str =
    "median and percentiles: nearest rank, within 1.6 %; all other numbers are exact";
/// What the column means.
pub(super) const CPU_NOTE: &str =
    "cpu is processor time, a part of run, of the requests whose lines contain it";
const TARGET_CHARS_MAX: usize = 50;
const NAME_CHARS_MAX: usize = 28;

/// The whole report.
pub fn table(tally: &Tally) -> String {
    let mut out = summary(tally);
    if tally.all().len == 0 {
        return out;
    }
    at_queue(&tally.all().at_queue, &mut out);
    if tally.all().has_phases() {
        let _ = write!(out, "\n{}", phases(tally.all(), &ROWS));
        let _ = writeln!(out, "{PRECISION_NOTE}");
        if !tally.all().cpu.is_empty() {
            out.push_str(CPU_NOTE);
            out.push('\n');
        }
    } else {
        out.push_str("\nno phases: the lines do not contain run times\n");
    }
    groups(tally, &mut out);
    waiting::table(&tally.waiting(), &mut out);
    slowest(tally.slowest(), &mut out);
    out
}

/// What came in one interval, in a line.
pub fn interval_line(interval: &Tally, interval_secs: f64, wall_ns: u64) -> String {
    let all = interval.all();
    let (_, _, offset) = interval.time().unwrap_or_default();
    let mut line = format!(
        "{}  {:>8} /s",
        &time(wall_ns, offset)[11..],
        rate(all.len as f64 / interval_secs)
    );
    if !all.total().is_empty() {
        for (index, name) in [(1, "queue"), (2, "run"), (4, "total")] {
            let spread = &all.phases[index];
            let _ = write!(
                line,
                "  {name} {} / {}",
                seconds(spread.quantile_secs(0.5)),
                seconds(spread.quantile_secs(0.99))
            );
        }
        line.push_str(" (median / p99)");
    }
    let classes = classes(all);
    if !classes.is_empty() {
        let _ = write!(line, "  {classes}");
    }
    if all.incomplete_len > 0 {
        let _ = write!(line, "  not complete {}", thousands(all.incomplete_len));
    }
    line.push('\n');
    line
}

/// The view of a log that grows, for a terminal of 24 lines: what came last, and everything.
pub fn live(total: &Tally, interval: Option<(&Tally, f64)>) -> String {
    let mut out = summary(total);
    match interval {
        None => out.push_str("\nreading the existing lines\n"),
        Some((interval, secs)) => {
            let all = interval.all();
            let per_second = rate(all.len as f64 / secs.max(0.001));
            let _ = write!(out, "\nlast {secs:.0} s: {per_second} requests a second");
            if all.len > 0 {
                let _ = write!(out, " · {}", shares(all));
            }
            out.push('\n');
            out.push_str(&phases(all, &LIVE_ROWS));
        }
    }
    let _ = write!(
        out,
        "\nsince the start\n{}",
        phases(total.all(), &LIVE_ROWS)
    );
    slowest(&total.slowest()[..total.slowest().len().min(3)], &mut out);
    out
}

fn summary(tally: &Tally) -> String {
    let all = tally.all();
    let mut out = format!(
        "{} {}",
        thousands(all.len),
        if all.len == 1 { "request" } else { "requests" }
    );
    if let Some((first, last, offset)) = tally.time() {
        let _ = write!(
            out,
            " from {} to {} {}",
            time(first, offset),
            time(last, offset),
            zone(offset)
        );
    }
    if let Some(per_second) = tally.per_second() {
        let _ = write!(out, ", {} a second", rate(per_second));
    }
    out.push('\n');
    if all.len > 0 {
        let _ = writeln!(out, "statuses      {}", shares(all));
        let _ = writeln!(out, "bodies        {}", bytes(all.body_bytes));
        let _ = writeln!(out, "not complete  {}", endings(tally));
        let _ = writeln!(out, "forms         {}", forms(tally));
    }
    out
}

/// What they found at the queue, and what is known of the time before that.
fn at_queue(found: &AtQueue, out: &mut String) {
    let mut parts = Vec::new();
    if found.known_len > 0 {
        parts.push(format!(
            "{} of {} had to wait for a thread ({})",
            thousands(found.from_queue_len),
            thousands(found.known_len),
            percent(found.from_queue_len, found.known_len)
        ));
    }
    let counts = [
        ("threads", found.threads),
        ("idle", found.idle),
        ("waiting", found.waiting),
    ];
    let means: Vec<_> = counts
        .iter()
        .filter(|(_, count)| count.len > 0)
        .map(|(name, count)| format!("{} {name}", mean(count.mean())))
        .collect();
    if !means.is_empty() {
        parts.push(format!("avg {}", means.join(", ")));
    }
    if !parts.is_empty() {
        let _ = writeln!(out, "at the queue  {}", parts.join(" · "));
    }
    let before = found.before_ns;
    if before.len > 0 {
        let _ = writeln!(
            out,
            "before        {} had waited in front: avg {}, max {}",
            thousands(before.len),
            seconds(before.mean() / 1e9),
            seconds(before.max as f64 / 1e9)
        );
    }
}

fn shares(group: &Group) -> String {
    let parts = class_counts(group)
        .map(|(name, len)| format!("{name} {} ({})", thousands(len), percent(len, group.len)));
    parts.collect::<Vec<_>>().join(" · ")
}

fn classes(group: &Group) -> String {
    let parts = class_counts(group).map(|(name, len)| format!("{name} {}", thousands(len)));
    parts.collect::<Vec<_>>().join(" ")
}

/// Classes that there are, those without a reply last.
pub(super) fn class_counts(group: &Group) -> impl Iterator<Item = (String, u64)> {
    let named = (1..10).map(|class| (format!("{class}xx"), group.classes[class]));
    named
        .chain([("none".to_owned(), group.classes[0])])
        .filter(|(_, len)| *len > 0)
}

fn endings(tally: &Tally) -> String {
    let (endings, known_len) = tally.endings();
    if known_len == 0 {
        return "unknown: the lines do not say how a request ended".to_owned();
    }
    let mut text = thousands(tally.all().incomplete_len);
    if !endings.is_empty() {
        let parts = endings
            .iter()
            .map(|(end, len)| format!("{} {}", harmless(end.as_bytes(), 30), thousands(*len)));
        let _ = write!(text, ": {}", parts.collect::<Vec<_>>().join(" · "));
    }
    if known_len < tally.all().len {
        let _ = write!(text, " (known of {})", thousands(known_len));
    }
    text
}

fn forms(tally: &Tally) -> String {
    let forms: Vec<_> = tally.forms().collect();
    let parts = forms.iter().map(|(form, len)| match forms.len() {
        1 => form_name(*form).to_owned(),
        _ => format!("{} {}", form_name(*form), thousands(*len)),
    });
    parts.collect::<Vec<_>>().join(" · ")
}

pub(super) fn form_name(form: LineForm) -> &'static str {
    match form {
        LineForm::Common => "common",
        LineForm::Combined => "combined",
        LineForm::Phases => "phases",
        LineForm::NaviServer => "naviserver",
        LineForm::Json => "json",
        LineForm::Template => "template",
    }
}

/// Rows by columns, in seconds.
fn phases(group: &Group, rows: &[SpreadRow]) -> String {
    let mut columns = vec![Column::left(
        "seconds",
        rows.iter().map(|(name, _)| (*name).to_owned()),
    )];
    for (name, spread) in group.columns() {
        let cells = rows.iter().map(|(_, of)| match spread.is_empty() {
            true => "-".to_owned(),
            false => seconds(of(spread)),
        });
        columns.push(Column::point(name, cells));
    }
    laid_out(&columns)
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
    let opened_len = groups.len();
    if let Some(others) = others {
        groups.push(("others".to_owned(), others));
    }
    let names = groups
        .iter()
        .map(|(name, _)| harmless(name.as_bytes(), NAME_CHARS_MAX));
    let columns = group_columns(tally, Column::left(by.name(), names), &groups);
    let _ = write!(
        out,
        "\nby {}; avg, median and p99 of the total, in seconds\n{}",
        by.name(),
        laid_out(&columns)
    );
    if others.is_some() {
        let _ = writeln!(
            out,
            "others: requests after the first {} groups",
            thousands(GROUPS_LEN_MAX as u64)
        );
    }
    if tally.all().has_phases() && opened_len <= DETAILED_LEN_MAX {
        for (name, group) in groups.iter().filter(|(_, group)| group.has_phases()) {
            let name = harmless(name.as_bytes(), NAME_CHARS_MAX);
            let _ = write!(out, "\n{} {name}\n{}", by.name(), phases(group, &ROWS));
        }
    } else if tally.all().has_phases() {
        let _ = writeln!(
            out,
            "more than {DETAILED_LEN_MAX} groups: `--json` and `--html` contain the phases of each"
        );
    }
}

/// The columns of the table of groups, of which the first has their names.
fn group_columns(tally: &Tally, names: Column, groups: &[(String, &Group)]) -> Vec<Column> {
    let mut columns = vec![
        names,
        Column::right(
            "requests",
            groups.iter().map(|(_, group)| thousands(group.len)),
        ),
        Column::right(
            "share",
            groups
                .iter()
                .map(|(_, group)| percent(group.len, tally.all().len)),
        ),
        Column::right(
            "4xx",
            groups.iter().map(|(_, group)| thousands(group.classes[4])),
        ),
        Column::right(
            "5xx",
            groups.iter().map(|(_, group)| thousands(group.classes[5])),
        ),
    ];
    if tally.all().has_phases() {
        let measures: [(&str, usize, Value); 5] = [
            ("avg", 4, Spread::mean_secs),
            ("median", 4, |spread| spread.quantile_secs(0.5)),
            ("p99", 4, |spread| spread.quantile_secs(0.99)),
            ("p99 queue", 1, |spread| spread.quantile_secs(0.99)),
            ("p99 run", 2, |spread| spread.quantile_secs(0.99)),
        ];
        for (name, phase, of) in measures {
            let cells = groups
                .iter()
                .map(|(_, group)| match group.phases[phase].is_empty() {
                    true => "-".to_owned(),
                    false => seconds(of(&group.phases[phase])),
                });
            columns.push(Column::point(name, cells));
        }
    }
    columns
}

fn slowest(slowest: &[Slow], out: &mut String) {
    if slowest.is_empty() {
        return;
    }
    let text = |field: fn(&Slow) -> &Vec<u8>| {
        slowest.iter().map(move |slow| {
            let text = harmless(field(slow), TARGET_CHARS_MAX);
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        })
    };
    let waited = slowest.iter().map(|slow| match slow.waited_for() {
        Some((words, span)) => format!("{} for {words}", seconds(secs(span))),
        None => "-".to_owned(),
    });
    let when = slowest.iter().map(|slow| match slow.wall_ns {
        Some(wall_ns) => time(wall_ns, slow.utc_offset_secs),
        None => "-".to_owned(),
    });
    let status = slowest.iter().map(|slow| {
        slow.status
            .map_or_else(|| "-".to_owned(), |code| code.to_string())
    });
    let request = slowest.iter().map(|slow| {
        let request = [&slow.method[..], &slow.target[..]].join(&b' ');
        harmless(request.trim_ascii(), TARGET_CHARS_MAX)
    });
    let mut columns = vec![
        Column::point(
            "slowest",
            slowest.iter().map(|slow| seconds(secs(slow.total))),
        ),
        Column::left("of which it waited", waited),
    ];
    if know_queues(slowest) {
        let rows = slowest.iter().map(queue_cells);
        let rows: Vec<_> = rows.collect();
        for (index, head) in QUEUE_HEADS.into_iter().enumerate() {
            let cells = rows.iter().map(|row| row[index].clone());
            columns.push(Column::right(head, cells));
        }
    }
    columns.extend([
        Column::left("when", when),
        Column::left("status", status),
        Column::left("id", text(|slow| &slow.id)),
        Column::left("request", request),
    ]);
    let _ = write!(out, "\n{}", laid_out(&columns));
}

/// Heads of [`queue_cells`].
pub(super) const QUEUE_HEADS: [&str; 4] = ["waiting", "threads", "idle", "queued"];

/// What one request found at its queue; `-` for what is not known.
pub(super) fn queue_cells(slow: &Slow) -> [String; 4] {
    let none = || "-".to_owned();
    let count = |count: Option<u32>| count.map_or_else(none, |count| thousands(u64::from(count)));
    let queued = &slow.queued;
    let from_queue = queued.from_queue.map_or_else(none, |from_queue| {
        if from_queue { "yes" } else { "no" }.to_owned()
    });
    [
        count(queued.waiting),
        count(queued.threads),
        count(queued.idle),
        from_queue,
    ]
}

/// A column, its head first.
pub(super) struct Column {
    cells: Vec<String>,
    side: Side,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Column {
    pub(super) fn left(head: &str, cells: impl Iterator<Item = String>) -> Column {
        Column::new(head, cells, Side::Left)
    }

    pub(super) fn right(head: &str, cells: impl Iterator<Item = String>) -> Column {
        Column::new(head, cells, Side::Right)
    }

    /// Numbers whose points stand below each other.
    pub(super) fn point(head: &str, cells: impl Iterator<Item = String>) -> Column {
        let cells: Vec<String> = cells.collect();
        let places = |cell: &str| cell.find('.').map_or(0, |at| cell.len() - at);
        let places_max = cells.iter().map(|cell| places(cell)).max().unwrap_or(0);
        let aligned = cells.iter().map(|cell| {
            let missing = places_max - places(cell);
            format!("{cell}{}", " ".repeat(missing))
        });
        Column::new(head, aligned.collect::<Vec<_>>().into_iter(), Side::Right)
    }

    fn new(head: &str, cells: impl Iterator<Item = String>, side: Side) -> Column {
        Column {
            cells: std::iter::once(head.to_owned()).chain(cells).collect(),
            side,
        }
    }

    fn width(&self) -> usize {
        self.cells
            .iter()
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    }
}

pub(super) fn laid_out(columns: &[Column]) -> String {
    let rows_len = columns
        .iter()
        .map(|column| column.cells.len())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for row in 0..rows_len {
        let mut line = String::new();
        for (index, column) in columns.iter().enumerate() {
            let (cell, width) = (&column.cells[row], column.width());
            if index > 0 {
                line.push_str("  ");
            }
            let _ = match column.side {
                Side::Left => write!(line, "{cell:<width$}"),
                Side::Right => write!(line, "{cell:>width$}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
