//! A tally for a terminal.
//!
//! Takes a tally, gives lines of at most about a hundred columns: the verdict, the pages, a summary, the table of the
//! phases, the groups, the slowest requests, and doubts about the numbers.

use std::fmt::Write as _;

use present::{bytes, digits, harmless, number, percent, thousands};
use telemetry::LineForm;
use telemetry::history::HeldSpan;

use super::columns::{self, ROWS, SpreadRow, named};
use super::{event_loops, ms, time, upstreams, waiting, zone};
use crate::at_queue::AtQueue;
use crate::groups::GROUPS_LEN_MAX;
use crate::tally::{Group, Tally};
use crate::verdict::verdict;
use crate::waiting::Waiting;

/// Pages in the report; `--by path` has all.
const PAGES_LEN_MAX: usize = 12;
/// Pages in the live view, which has 24 lines.
const LIVE_PAGES_LEN: usize = 6;
/// Those of the live view: avg, max, median, p99.
const LIVE_ROWS: [SpreadRow; 4] = [ROWS[0], ROWS[3], ROWS[4], ROWS[7]];
/// Groups that have a table of their own, the others are lines of one.
const DETAILED_LEN_MAX: usize = 10;
/// Requests in the live view.
const LIVE_SLOWEST_LEN: usize = 3;
/// The definition of percentiles, and how exact the numbers are.
pub(super) const PRECISION_NOTE: &str =
    "median and percentiles: nearest rank, within 1.6 %; all other numbers are exact";
/// What the column means.
pub(super) const CPU_NOTE: &str =
    "cpu is processor time, a part of run, of the requests whose lines contain it";
const NAME_CHARS_MAX: usize = 28;

/// The whole report.
pub fn table(tally: &Tally) -> String {
    let waiting = tally.waiting();
    let mut out = verdict_lines(tally, &waiting);
    if let Some(span) = tally.held() {
        lines(&held_text(span), &mut out);
    }
    out += &head(tally);
    let event_loops = tally.event_loops();
    // Tables of nothing would hide the one line that says so.
    if tally.all().len == 0 {
        event_loops::table(&event_loops, &mut out);
        return out;
    }
    pages(tally, PAGES_LEN_MAX, &mut out);
    facts(tally, &mut out);
    at_queue(&tally.all().at_queue, &mut out);
    if tally.all().has_phases() {
        let phases = columns::phases(tally.all(), &ROWS);
        let _ = write!(out, "\n{}", phases.to_text());
        let _ = writeln!(out, "{PRECISION_NOTE}");
        if !tally.all().cpu.is_empty() {
            out.push_str(CPU_NOTE);
            out.push('\n');
        }
        if let Some(note) = tally.note() {
            lines(&format!("note: {note}"), &mut out);
        }
    } else {
        out.push_str("\nno phases: the lines do not contain run times\n");
    }
    groups(tally, &mut out);
    event_loops::table(&event_loops, &mut out);
    upstreams::table(&tally.upstreams(), &mut out);
    waiting::table(&waiting, &mut out);
    slowest(tally, usize::MAX, &mut out);
    out
}

/// The verdict, and a line behind it; nothing where there is none.
fn verdict_lines(tally: &Tally, waiting: &Waiting) -> String {
    let mut out = String::new();
    for sentence in verdict(tally, waiting) {
        lines(&present::sentence(&sentence), &mut out);
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

fn lines(text: &str, out: &mut String) {
    for line in present::broken(&harmless(text, usize::MAX), present::WIDTH_MAX) {
        let _ = writeln!(out, "{line}");
    }
}

/// The pages that took the most time.
fn pages(tally: &Tally, len_max: usize, out: &mut String) {
    let pages = tally.pages();
    let table = columns::groups(tally, &pages, len_max).to_text();
    let _ = write!(out, "\n{table}");
    let more_len = named(&pages).len().saturating_sub(len_max);
    // Nothing is left out silently.
    if more_len > 0 {
        let _ = writeln!(out, "and {more_len} more: `--by path` shows all");
    }
    out.push('\n');
}

/// What came in one interval, in a line.
pub fn interval_line(interval: &Tally, interval_secs: f64, wall_ns: u64) -> String {
    let all = interval.all();
    let (_, _, offset) = interval.time().unwrap_or_default();
    let mut line = format!(
        "{}  {:>8} /s",
        &time(wall_ns, offset)[11..],
        digits(all.len as f64 / interval_secs, 3, 2)
    );
    // Only phases whose waits have different causes: a line a second must be read at a glance.
    if !all.total().is_empty() {
        for (index, name) in [(1, "queue"), (2, "run"), (4, "total")] {
            let spread = &all.phases[index];
            let _ = write!(
                line,
                "  {name} {} / {}",
                ms(spread.quantile_secs(0.5)),
                ms(spread.quantile_secs(0.99))
            );
        }
        line.push_str(" ms (median / p99)");
    }
    let classes = classes(all);
    if !classes.is_empty() {
        let _ = write!(line, "  {classes}");
    }
    if all.incomplete_len > 0 {
        let _ = write!(line, "  incomplete {}", thousands(all.incomplete_len));
    }
    line.push('\n');
    line
}

/// The view of a log that grows, for a terminal of 24 lines: what came last, and everything.
pub fn live(total: &Tally, interval: Option<(&Tally, f64)>) -> String {
    let mut out = verdict_lines(total, &total.waiting());
    out += &head(total);
    match interval {
        None => out.push_str("\nreading the existing lines\n"),
        Some((interval, secs)) => {
            let all = interval.all();
            // The first interval may be as short as nothing.
            let per_second = number(all.len as f64 / secs.max(0.001));
            let _ = write!(out, "\nlast {secs:.0} s: {per_second} requests a second");
            if all.len > 0 {
                let _ = write!(out, " · {}", shares(all));
            }
            out.push('\n');
            out.push_str(&columns::phases(all, &LIVE_ROWS).to_text());
        }
    }
    pages(total, LIVE_PAGES_LEN, &mut out);
    slowest(total, LIVE_SLOWEST_LEN, &mut out);
    out
}

fn head(tally: &Tally) -> String {
    let mut out = present::counted(tally.all().len, "request");
    // Templates may leave out the time.
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
        let _ = write!(out, ", {} a second", number(per_second));
    }
    out.push('\n');
    out
}

fn facts(tally: &Tally, out: &mut String) {
    let all = tally.all();
    let _ = writeln!(out, "statuses      {}", shares(all));
    // A server's live record does not say how long bodies were.
    if all.body_len > 0 {
        let _ = writeln!(out, "bodies        {}", bytes(all.body_bytes as f64));
    }
    let _ = writeln!(out, "incomplete    {}", endings(tally));
    let _ = writeln!(out, "formats       {}", forms(tally));
}

/// What they found at the queue, and what is known of the time before that.
fn at_queue(found: &AtQueue, out: &mut String) {
    let mut parts = Vec::new();
    // Each part only if any line contains it: older versions wrote fewer fields.
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
        .map(|(name, count)| format!("{} {name}", number(count.mean())))
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
            "before        {} had waited in front: avg {} ms, max {} ms",
            thousands(before.len),
            ms(before.mean() / 1e9),
            ms(before.max as f64 / 1e9)
        );
    }
}

pub(super) fn shares(group: &Group) -> String {
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

pub(super) fn endings(tally: &Tally) -> String {
    let (endings, known_len) = tally.endings();
    if known_len == 0 {
        return "unknown: the lines do not say how a request ended".to_owned();
    }
    let mut text = thousands(tally.all().incomplete_len);
    if !endings.is_empty() {
        let parts = endings
            .iter()
            .map(|(end, len)| format!("{} {}", harmless(end, 30), thousands(*len)));
        let _ = write!(text, ": {}", parts.collect::<Vec<_>>().join(" · "));
    }
    // Lines of other servers do not say it: the count would be taken for all of them.
    if known_len < tally.all().len {
        let _ = write!(text, " (known of {})", thousands(known_len));
    }
    text
}

fn forms(tally: &Tally) -> String {
    // One form alone needs no count: it is that of all requests.
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
        LineForm::ProxyJson => "proxy-json",
        LineForm::History => "live",
    }
}

/// What span the requests of a running server cover.
pub(super) fn held_text(span: HeldSpan) -> String {
    let asked = long_span(span.asked_secs);
    match span.held_secs >= span.asked_secs {
        true => format!("live: all requests of the last {asked}"),
        false => format!(
            "live: all requests of the last {}, of the {asked} asked for; the server holds no older ones",
            long_span(span.held_secs)
        ),
    }
}

/// `3 min 20 s`, two units at most.
fn long_span(secs: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let mut rest = secs;
    let parts = units.map(|(unit, unit_secs)| {
        let count = rest / unit_secs;
        rest %= unit_secs;
        (count, unit)
    });
    let shown = parts.iter().skip_while(|(count, _)| *count == 0).take(2);
    let shown = shown.filter(|(count, _)| *count > 0);
    let shown: Vec<String> = shown
        .map(|(count, unit)| format!("{count} {unit}"))
        .collect();
    match shown.is_empty() {
        true => "0 s".to_owned(),
        false => shown.join(" "),
    }
}

fn groups(tally: &Tally, out: &mut String) {
    let Some(grouped) = tally.groups() else {
        return;
    };
    let by = grouped.by.name();
    let table = columns::groups(tally, &grouped, usize::MAX).to_text();
    let _ = write!(out, "\n{table}");
    // Nothing is summed up silently.
    if grouped.others.is_some() {
        let _ = writeln!(out, "{}", others_note());
    }
    // A table for each of many routes would fill screens.
    if tally.all().has_phases() && grouped.named.len() <= DETAILED_LEN_MAX {
        let groups = named(&grouped).into_iter();
        for (name, group) in groups.filter(|(_, group)| group.has_phases()) {
            let name = harmless(name, NAME_CHARS_MAX);
            let table = columns::phases(group, &ROWS).to_text();
            let _ = write!(out, "\n{by} {name}\n{table}");
        }
    } else if tally.all().has_phases() {
        let _ = writeln!(
            out,
            "more than {DETAILED_LEN_MAX} groups: `--json` and `--html` contain the phases of each"
        );
    }
}

/// What the last group holds, where there are too many.
pub(super) fn others_note() -> String {
    let len = thousands(GROUPS_LEN_MAX as u64);
    format!("others: requests after the first {len} groups")
}

fn slowest(tally: &Tally, len_max: usize, out: &mut String) {
    let slowest = tally.slowest();
    let slowest = &slowest[..slowest.len().min(len_max)];
    if !slowest.is_empty() {
        let _ = write!(out, "\n{}", columns::slowest(slowest).to_text());
    }
}
