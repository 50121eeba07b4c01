//! The tables of a tally, for a terminal and for a page: phases, groups, the slowest requests.
//!
//! Takes what a tally keeps, gives columns.

use present::{NONE, Page, Table, column_share, thousands};

use super::{ms, time};
use crate::slowest::{Slow, know_queues};
use crate::spread::{Spread, secs};
use crate::tally::{Group, Grouped, PHASES, Tally};

/// A row of the table of phases: its name, and its value in seconds.
pub(super) type SpreadRow = (&'static str, fn(&Spread) -> f64);

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
/// Columns of the table of groups: the value, and the number of the phase.
type GroupColumn = (&'static str, SpreadRow, usize);
const TOTALS: [GroupColumn; 3] = [
    ("median", ROWS[4], 4),
    ("p95", ROWS[6], 4),
    ("p99", ROWS[7], 4),
];
const P99_QUEUE: GroupColumn = ("p99", ROWS[7], 1);
const P99_RUN: GroupColumn = ("p99 run, ms", ROWS[7], 2);
/// Colours of receive, queue, run and send.
pub(super) const PHASE_COLOURS: [usize; 4] = [7, 1, 0, 2];
const _: () = assert!(
    PHASE_COLOURS.len() + 1 == PHASES.len(),
    "each phase but the total has a colour"
);
const TARGET_CHARS_MAX: usize = 50;
const NAME_CHARS_MAX: usize = 40;
/// A time, a status, an id: they are not cut.
const WHOLE: usize = 40;

fn cell(spread: &Spread, of: fn(&Spread) -> f64) -> String {
    match spread.is_empty() {
        true => NONE.to_owned(),
        false => ms(of(spread)),
    }
}

/// Rows by phases, in milliseconds.
pub(super) fn phases(group: &Group, rows: &[SpreadRow]) -> Table {
    let mut table = Table::default();
    table.text("ms", WHOLE, rows.iter().map(|(name, _)| *name));
    for (name, spread) in group.columns() {
        table.numbers(name, rows.iter().map(|(_, of)| cell(spread, *of)));
    }
    table
}

/// A group and its name, the others last.
pub(super) fn named<'t>(grouped: &Grouped<'t>) -> Vec<(String, &'t Group)> {
    let others = grouped.others.map(|others| ("others".to_owned(), others));
    grouped.named.iter().cloned().chain(others).collect()
}

/// A line for each of the first groups.
pub(super) fn groups(tally: &Tally, grouped: &Grouped<'_>, len_max: usize) -> Table {
    let groups = named(grouped);
    let groups = &groups[..groups.len().min(len_max)];
    let all = || groups.iter().map(|(_, group)| *group);
    let counts = |of: fn(&Group) -> u64| all().map(move |group| thousands(of(group)));
    let column =
        |(_, (_, of), phase): GroupColumn| all().map(move |group| cell(&group.phases[phase], of));
    let names = groups.iter().map(|(name, _)| name.clone());
    let (whole, whole_len) = (tally.all().total().sum_secs(), tally.all().len);
    let has_totals = !tally.all().total().is_empty();
    let mut table = Table::default();
    table
        .text(grouped.by.name(), NAME_CHARS_MAX, names)
        .numbers("requests", counts(|group| group.len));
    // Logs without phases have no columns for them, rather than columns of dashes.
    if has_totals {
        table.numbers(
            "of all time",
            all().map(|group| column_share(group.total().sum_secs() / whole)),
        );
        for (index, total) in TOTALS.into_iter().enumerate() {
            table.numbers(total.0, column(total));
            if index + 1 == TOTALS.len() {
                table.group("total, ms", TOTALS.len());
            }
        }
    } else {
        table.numbers(
            "share",
            all().map(|group| column_share(group.len as f64 / whole_len as f64)),
        );
    }
    if !tally.all().phases[P99_QUEUE.2].is_empty() {
        table
            .numbers(P99_QUEUE.0, column(P99_QUEUE))
            .group("queue, ms", 1);
    }
    table.numbers("5xx", counts(|group| group.classes[5]));
    if !tally.all().phases[P99_RUN.2].is_empty() {
        table.numbers(P99_RUN.0, column(P99_RUN)).on_page();
    }
    table
        .numbers("4xx", counts(|group| group.classes[4]))
        .on_page()
        .numbers("incomplete", counts(|group| group.incomplete_len))
        .on_page();
    table
}

/// The slowest requests, and what each waited for.
pub(super) fn slowest(slowest: &[Slow]) -> Table {
    let known = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let text = |field: fn(&Slow) -> &[u8]| {
        slowest.iter().map(move |slow| match field(slow) {
            [] => NONE.to_owned(),
            // Bytes that are no text keep their values: `\xHH`.
            text => present::harmless(text, usize::MAX),
        })
    };
    let waited = |slow: &Slow| {
        let waited = slow.waited_for();
        known(waited.map(|(words, span)| format!("{} for {words}", ms(secs(span)))))
    };
    let when = |slow: &Slow| known(slow.wall_ns.map(|ns| time(ns, slow.utc_offset_secs)));
    let status = |slow: &Slow| known(slow.status.map(|code| code.to_string()));
    let request = |slow: &Slow| {
        let request = [&slow.method[..], &slow.target[..]].join(&b' ');
        present::harmless(request.trim_ascii(), usize::MAX)
    };
    let mut table = Table::default();
    table
        .numbers(
            "slowest, ms",
            slowest.iter().map(|slow| ms(secs(slow.total))),
        )
        .markup("", slowest.iter().map(way))
        .text("of which it waited", WHOLE + 8, slowest.iter().map(waited));
    // Only Milepost logs what a request found at the queue.
    if know_queues(slowest) {
        for (head, of) in QUEUE_COLUMNS {
            table.numbers(head, slowest.iter().map(|slow| known(of(slow))));
        }
    }
    table
        .text("when", WHOLE, slowest.iter().map(when))
        .text("status", WHOLE, slowest.iter().map(status))
        .text("id", WHOLE, text(|slow| &slow.id))
        .text("request", TARGET_CHARS_MAX, slowest.iter().map(request))
        .text("route", WHOLE, text(|slow| &slow.route))
        .on_page()
        .text("client", WHOLE, text(|slow| &slow.client))
        .on_page();
    table
}

/// A column of what one request found at its queue; `None`: not known.
type QueueColumn = (&'static str, fn(&Slow) -> Option<String>);

const QUEUE_COLUMNS: [QueueColumn; 4] = [
    ("waiting", |slow| slow.queued.waiting.map(count)),
    ("threads", |slow| slow.queued.threads.map(count)),
    ("idle", |slow| slow.queued.idle.map(count)),
    ("queued", |slow| {
        let words = |queued| if queued { "yes" } else { "no" };
        Some(words(slow.queued.from_queue?).to_owned())
    }),
];

fn count(count: u32) -> String {
    thousands(u64::from(count))
}

/// The phases of one request side by side, each as wide as its share.
fn way(slow: &Slow) -> String {
    let spans = &slow.spans;
    let phases = [spans.receive, spans.queue, spans.run, spans.send];
    // A request may take no microsecond at all.
    let total = slow.total.0.max(1) as f64;
    let parts = PHASES.iter().zip(PHASE_COLOURS).zip(phases);
    Page::parts(parts.map(|((name, colour), span)| {
        (
            colour,
            *name,
            span.map_or(0.0, |span| span.0 as f64 / total),
        )
    }))
}
