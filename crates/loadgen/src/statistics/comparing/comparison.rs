//! What a comparison says, as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use super::super::metric::{Better, Metric};
use super::super::unit::Unit;
use super::Members;
use super::estimate::{Against, Change, Estimate, EstimateForm, IntervalMethod};

/// The form of [`Comparison::json`]; it grows when a field changes its meaning or goes.
pub(super) const SCHEMA: u32 = 1;
/// No line of the table is longer, in letters.
const WIDTH_MAX: usize = 100;

/// Sets of runs against the first one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    pub(super) schema: u32,
    /// Their names; the first is what the others are compared with.
    pub sets: Vec<String>,
    /// One for each thing that was asked for.
    pub panels: Vec<Panel>,
    /// What could not be compared.
    pub warnings: Vec<String>,
}

/// The sets at one point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Panel {
    /// What was asked for, in words.
    pub point: String,
    /// The sets that have it, the one that the others are compared with first.
    pub members: Vec<Members>,
    /// One for each figure.
    pub rows: Vec<Row>,
    /// What has to be known.
    pub warnings: Vec<String>,
}

/// A figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// By its name.
    #[serde(serialize_with = "by_name")]
    pub metric: Metric,
    /// The unit of the medians.
    pub unit: &'static str,
    /// In which direction it becomes better.
    pub better: Better,
    /// One for each member.
    pub sides: Vec<Side>,
}

/// A figure of one set.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Side {
    /// Over the runs, in the unit; `None`: it cannot be said.
    pub median: Option<f64>,
    /// `None`: it is the first.
    pub against_first: Option<Against>,
}

fn by_name<S: Serializer>(metric: &Metric, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(metric)
}

impl Comparison {
    /// Whether something has become worse beyond noise.
    pub fn is_worse(&self) -> bool {
        self.changes().any(|change| change == Change::Worse)
    }

    /// Whether anything could be said of any figure.
    pub fn is_judged(&self) -> bool {
        self.changes().any(|change| change != Change::Unsaid)
    }

    fn changes(&self) -> impl Iterator<Item = Change> {
        let rows = self.panels.iter().flat_map(|panel| &panel.rows);
        let sides = rows.flat_map(|row| &row.sides);
        sides.filter_map(|side| Some(side.against_first.as_ref()?.change))
    }

    /// For programs, on one line with its end.
    pub fn json(&self) -> String {
        let text = serde_json::to_string(self);
        let mut text = text.expect("its keys are texts, and numbers that are none become null");
        text.push('\n');
        text
    }

    /// For people, at most 100 columns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for panel in &self.panels {
            text.push_str(&panel.text());
            text.push('\n');
        }
        for warning in &self.warnings {
            paragraph(&mut text, "warning: ", warning);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

impl Panel {
    fn text(&self) -> String {
        let mut text = String::new();
        paragraph(&mut text, "", &self.point);
        for (index, member) in self.members.iter().enumerate() {
            let runs = if member.runs_len == 1 { "run" } else { "runs" };
            let about = format!("{}, {} {runs}", member.name, member.runs_len);
            paragraph(&mut text, &format!("{:<4}", letter(index)), &about);
        }
        text.push('\n');
        if self.members.len() == 2 {
            self.abreast(&mut text);
        } else {
            self.below(&mut text);
        }
        for note in self.notes() {
            paragraph(&mut text, "note: ", &note);
        }
        for warning in &self.warnings {
            paragraph(&mut text, "warning: ", warning);
        }
        text
    }

    /// Two sets: a line for each figure.
    fn abreast(&self, text: &mut String) {
        let head = ["A", "B", "B to A", "95 % interval", "verdict"];
        line(text, "figure", &head);
        for row in &self.rows {
            let [first, other] = row.sides.as_slice() else {
                continue;
            };
            let unit = row.metric.unit();
            let [value, interval, verdict] = cells(other, unit);
            let (first, other) = (median(first, unit), median(other, unit));
            let cells = [&first, &other, &value, &interval, &verdict];
            line(text, &row.metric.to_string(), &cells.map(String::as_str));
        }
    }

    /// More sets: a line for each figure of each set.
    fn below(&self, text: &mut String) {
        line(
            text,
            "figure",
            &["set", "median", "to A", "95 % interval", "verdict"],
        );
        for row in &self.rows {
            let unit = row.metric.unit();
            for (index, side) in row.sides.iter().enumerate() {
                let name = match index {
                    0 => row.metric.to_string(),
                    _ => String::new(),
                };
                let [value, interval, verdict] = cells(side, unit);
                let cells = [
                    &letter(index),
                    &median(side, unit),
                    &value,
                    &interval,
                    &verdict,
                ];
                line(text, &name, &cells.map(String::as_str));
            }
        }
    }

    /// How intervals were made, and why there are none, each once.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        let sides = self.rows.iter().flat_map(|row| &row.sides);
        for against in sides.filter_map(|side| side.against_first.as_ref()) {
            let method = against.estimate.as_ref().and_then(|known| known.method);
            let why = against.why.as_ref();
            let why = why.map(|why| format!("{}: {}", why.word, why.text));
            for note in method.and_then(IntervalMethod::note).into_iter().chain(why) {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        notes
    }
}

impl IntervalMethod {
    fn note(self) -> Option<String> {
        let text = match self {
            IntervalMethod::Bootstrap => return None,
            IntervalMethod::Student => {
                "fewer than 5 runs a side: an interval of resampled runs would be too narrow to be \
                 trusted, these are Student's; repeat with --repeat 5"
            }
            IntervalMethod::Batches => {
                "one run a side: the intervals come from ten batches of its seconds and know nothing \
                 of how runs differ; repeat with --repeat 5"
            }
        };
        Some(text.to_owned())
    }
}

fn median(side: &Side, unit: Unit) -> String {
    side.median.map_or("–".to_owned(), |value| unit.text(value))
}

/// Value, interval and verdict.
fn cells(side: &Side, unit: Unit) -> [String; 3] {
    let Some(against) = &side.against_first else {
        return Default::default();
    };
    let none = || "–".to_owned();
    let estimate = against.estimate.as_ref();
    let interval = estimate.and_then(|known| Some((known, known.interval?)));
    [
        estimate.map_or_else(none, |known| known.number(known.value, unit)),
        interval.map_or_else(none, |(known, interval)| {
            let low = known.number(interval.low, unit);
            format!("{low} to {}", known.number(interval.high, unit))
        }),
        match (against.change, &against.why) {
            (Change::Better, _) => "better".to_owned(),
            (Change::Worse, _) => "worse".to_owned(),
            (Change::Noise, _) => "noise".to_owned(),
            (Change::Unsaid, why) => why.as_ref().map_or("", |why| why.word).to_owned(),
        },
    ]
}

impl Estimate {
    fn number(&self, value: f64, unit: Unit) -> String {
        match self.form {
            EstimateForm::Ratio if (1e-3..1e4).contains(&value) => format!("{value:.3}"),
            EstimateForm::Ratio => format!("{value:.1e}"),
            EstimateForm::Difference if value < 0.0 => format!("−{}", unit.text(-value)),
            EstimateForm::Difference => format!("+{}", unit.text(value)),
        }
    }
}

fn line(text: &mut String, name: &str, [one, other, value, interval, verdict]: &[&str; 5]) {
    let begun = text.len();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "{name:<16}{one:>12}{other:>12}{value:>13}   {interval:<27}{verdict}"
    );
    let end = text[begun..].trim_end().len();
    text.truncate(begun + end);
    text.push('\n');
}

/// A, B, C ... Z, S27, S28 ...
fn letter(index: usize) -> String {
    match u8::try_from(index) {
        Ok(small) if small < 26 => char::from(b'A' + small).to_string(),
        _ => format!("S{}", index + 1),
    }
}

/// Broken at spaces, later lines indented as far as the first one's beginning; words that are too long for a
/// line are broken anywhere.
fn paragraph(text: &mut String, begin: &str, words: &str) {
    let indent = begin.chars().count();
    let room = WIDTH_MAX - indent;
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let mut letters: Vec<char> = word.chars().collect();
        while !letters.is_empty() {
            let last = lines.len() - 1;
            let used = lines[last].chars().count();
            let space = usize::from(used > 0);
            if used + space + letters.len().min(room) > room {
                lines.push(String::new());
                continue;
            }
            lines[last].push_str(&" "[..space]);
            lines[last].extend(letters.drain(..letters.len().min(room)));
        }
    }
    for (index, line) in lines.iter().enumerate() {
        let begin = if index == 0 {
            begin
        } else {
            &" ".repeat(indent)
        };
        let _ = writeln!(text, "{}", format!("{begin}{line}").trim_end());
    }
}

#[cfg(test)]
mod tests;
