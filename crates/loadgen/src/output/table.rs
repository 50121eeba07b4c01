//! A run for people, on a terminal or in a mail.
//!
//! Takes an outcome, gives lines of at most 100 columns: what was asked first, what has to be known about
//! the numbers last. What is bad has its word in front; colour only adds to it.

use present::{NONE, Table, WIDTH_MAX, broken, digits, fitted, harmless, labelled};

use super::distributions;
use super::facts::{FAILED, TEXT_CHARS_MAX, asked, found, model, sides, weight_word};
use crate::distribution::Summary;
use crate::outcome::{Outcome, Weight};

/// Ten numbers stand beside each other.
const CELL_CHARS_MAX: usize = 7;
/// The heads of the table of durations.
const HEADS: [&str; 10] = [
    "mean", "stdev", "min", "p50", "p75", "p90", "p99", "p99.9", "p99.99", "max",
];
/// What the sign for no number means among durations.
pub(super) const NONE_NOTE: &str = "too few requests for this percentile";

/// Whether a terminal shows colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Text alone.
    Plain,
    /// With SGR sequences of ECMA-48 round lines that matter.
    Colour,
}

/// How a line is meant: the sequence of its colour.
const PLAIN: &str = "";
const STRONG: &str = "1";
const SOFT: &str = "2";
const BAD: &str = "1;31";
const DOUBTFUL: &str = "33";

/// Lines and how they are meant.
struct Sheet {
    lines: Vec<(&'static str, String)>,
}

/// Everything that a run has found.
pub fn table(outcome: &Outcome, tone: Tone) -> String {
    let mut sheet = Sheet { lines: Vec::new() };
    sheet.put(STRONG, broken(&model(outcome), WIDTH_MAX));
    for (label, text) in asked(outcome).into_iter().chain(found(outcome)) {
        let style = match label {
            "throughput" => STRONG,
            FAILED => BAD,
            _ => PLAIN,
        };
        sheet.put(style, labelled(label, &text));
    }
    sheet.put(PLAIN, [String::new()]);
    // A run without an answer may have timed nothing: heads without rows are left out.
    if timed(outcome).next().is_some() {
        times(outcome, &mut sheet);
        sheet.put(PLAIN, [String::new()]);
    }
    // Behind the numbers: it is read when they surprise.
    for (label, text) in sides(outcome) {
        sheet.put(PLAIN, labelled(label, &text));
    }
    remarks(outcome, &mut sheet);
    sheet.text(tone)
}

impl Sheet {
    fn put(&mut self, style: &'static str, lines: impl IntoIterator<Item = String>) {
        self.lines
            .extend(lines.into_iter().map(|line| (style, line)));
    }

    fn text(&self, tone: Tone) -> String {
        let mut out = String::new();
        for (style, line) in &self.lines {
            match tone {
                Tone::Colour if *style != PLAIN => {
                    out.push_str(&format!("\x1b[{style}m{line}\x1b[0m\n"));
                }
                Tone::Colour | Tone::Plain => out.push_str(&format!("{line}\n")),
            }
        }
        out
    }
}

/// What was timed, by the names of its rows.
fn timed(outcome: &Outcome) -> impl Iterator<Item = (&'static str, &Summary)> {
    // When nothing was answered, rows that have no value say nothing.
    let has_answers = outcome.counts.answered > 0;
    distributions(&outcome.times)
        .into_iter()
        .filter_map(|(name, summary)| Some((name, summary?)))
        .filter(move |(_, summary)| has_answers || summary.count > 0)
}

/// How long everything took, a row for each distribution with a unit of its own.
pub(super) fn durations(outcome: &Outcome) -> Table {
    let rows: Vec<_> = timed(outcome).map(|(name, of)| (name, row(of))).collect();
    let mut table = Table::default();
    table
        .text("", WIDTH_MAX, rows.iter().map(|(name, _)| *name))
        .text("", 2, rows.iter().map(|(_, (unit, _))| *unit));
    for (column, head) in HEADS.into_iter().enumerate() {
        let cells = rows.iter().map(|(_, (_, cells))| cells[column].clone());
        table.measures(head, cells);
    }
    table
}

/// The unit of a summary, and its numbers in the order of [`HEADS`].
fn row(summary: &Summary) -> (&'static str, [String; 10]) {
    if summary.count == 0 {
        return ("", HEADS.map(|_| NONE.to_owned()));
    }
    let (unit, scale) = unit(summary.p50_us, summary.max_us);
    let values = [
        Some(summary.mean_us),
        // One value has no spread.
        (summary.count > 1).then_some(summary.stdev_us),
        Some(summary.min_us),
        Some(summary.p50_us),
        Some(summary.p75_us),
        Some(summary.p90_us),
        summary.p99_us,
        summary.p99_9_us,
        summary.p99_99_us,
        Some(summary.max_us),
    ];
    let cell = |us: Option<f64>| {
        let value = us.unwrap_or(f64::NAN) / scale;
        // Quantiles are within 0.1 %: four digits.
        fitted(digits(value, 4, 3), value, CELL_CHARS_MAX)
    };
    (unit, values.map(cell))
}

/// The unit for a whole row, and its microseconds.
fn unit(median_us: f64, max_us: f64) -> (&'static str, f64) {
    let units = [("µs", 1.0), ("ms", 1e3), ("s", 1e6)];
    // All numbers of a row have one unit, so that they can be compared at a glance. The median has a digit before
    // its point, unless the longest would need more than six.
    let fits = |(_, scale): &(&str, f64)| max_us / scale < 999_999.5;
    let least = units.iter().position(fits).unwrap_or(units.len() - 1);
    let liked = units
        .iter()
        .rposition(|(_, scale)| median_us / scale >= 1.0);
    units[least.max(liked.unwrap_or(0))]
}

fn times(outcome: &Outcome, sheet: &mut Sheet) {
    for (index, line) in durations(outcome).lines().into_iter().enumerate() {
        let style = match index {
            0 => SOFT,
            _ if line.starts_with("latency") => STRONG,
            _ => PLAIN,
        };
        sheet.put(style, [line]);
    }
    // A summary leaves out the quantiles that fewer than ten values lie beyond.
    let is_rare = |summary: &Summary| {
        let far = [summary.p99_us, summary.p99_9_us, summary.p99_99_us];
        summary.count > 0 && far.contains(&None)
    };
    if timed(outcome).any(|(_, summary)| is_rare(summary)) {
        sheet.put(SOFT, [format!("{NONE}: {NONE_NOTE}")]);
    }
}

fn remarks(outcome: &Outcome, sheet: &mut Sheet) {
    // Last, because what stands last on a terminal is read first.
    if !outcome.remarks.is_empty() {
        sheet.put(PLAIN, [String::new()]);
    }
    for remark in &outcome.remarks {
        let style = match remark.weight {
            Weight::Invalid => BAD,
            Weight::Doubtful => DOUBTFUL,
            Weight::Note => PLAIN,
        };
        let (word, text) = (&remark.word, harmless(&remark.text, TEXT_CHARS_MAX));
        let text = format!("{}: {text}", harmless(word, 40));
        sheet.put(style, labelled(weight_word(remark.weight), &text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_unit_that_its_median_needs() {
        let check = |median_us: f64, max_us: f64, expect: &str| {
            assert_eq!(unit(median_us, max_us).0, expect, "{median_us} {max_us}");
        };
        check(0.2, 900.0, "µs");
        check(950.0, 8_000.0, "µs");
        check(1_000.0, 8_000.0, "ms");
        check(50.0, 3_000_000.0, "ms");
        check(2_500_000.0, 7_000_000.0, "s");
        check(0.0, 0.0, "µs");
        check(f64::NAN, f64::NAN, "s");
    }
}
