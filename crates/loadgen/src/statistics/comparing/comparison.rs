//! What a comparison says, as a table for people and as JSON for programs.

use std::fmt::Write as _;

use present::{NONE, Table, WIDTH_MAX, broken, width};
use serde::{Serialize, Serializer};

use super::super::metric::{Better, Metric};
use super::super::unit::Unit;
use super::Members;
use super::estimate::{Against, Change, Estimate, EstimateForm, IntervalMethod};

/// The form of [`Comparison::json`]; it grows when a field changes its meaning or goes.
pub(super) const SCHEMA: u32 = 1;

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
        let table = match self.members.len() {
            2 => self.abreast(),
            _ => self.below(),
        };
        text.push_str(&table.to_text());
        for note in self.notes() {
            paragraph(&mut text, "note: ", &note);
        }
        for warning in &self.warnings {
            paragraph(&mut text, "warning: ", warning);
        }
        text
    }

    /// Two sets: a line for each figure.
    fn abreast(&self) -> Table {
        let rows: Vec<(&Row, &Side, &Side)> = self
            .rows
            .iter()
            .filter_map(|row| match row.sides.as_slice() {
                [first, other] => Some((row, first, other)),
                _ => None,
            })
            .collect();
        let mut table = Table::default();
        table
            .text(
                "figure",
                WIDTH_MAX,
                rows.iter().map(|(row, ..)| row.metric.to_string()),
            )
            .numbers(
                "A",
                rows.iter()
                    .map(|(row, first, _)| median(first, row.metric.unit())),
            )
            .numbers(
                "B",
                rows.iter()
                    .map(|(row, _, other)| median(other, row.metric.unit())),
            );
        let sides = rows
            .iter()
            .map(|(row, _, other)| cells(other, row.metric.unit()));
        compared(table, "B to A", &sides.collect::<Vec<_>>())
    }

    /// More sets: a line for each figure of each set.
    fn below(&self) -> Table {
        let sides = |row: &Row| {
            let sides = row.sides.iter().enumerate();
            let unit = row.metric.unit();
            let named = |index| {
                if index == 0 {
                    row.metric.to_string()
                } else {
                    String::new()
                }
            };
            let line = |(index, side)| {
                (
                    named(index),
                    letter(index),
                    median(side, unit),
                    cells(side, unit),
                )
            };
            sides.map(line).collect::<Vec<_>>()
        };
        let lines: Vec<_> = self.rows.iter().flat_map(sides).collect();
        let mut table = Table::default();
        table
            .text(
                "figure",
                WIDTH_MAX,
                lines.iter().map(|(name, ..)| name.clone()),
            )
            .text(
                "set",
                WIDTH_MAX,
                lines.iter().map(|(_, letter, ..)| letter.clone()),
            )
            .numbers(
                "median",
                lines.iter().map(|(_, _, median, _)| median.clone()),
            );
        let cells = lines.into_iter().map(|(.., cells)| cells);
        compared(table, "to A", &cells.collect::<Vec<_>>())
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
        };
        Some(text.to_owned())
    }
}

fn median(side: &Side, unit: Unit) -> String {
    side.median
        .map_or(NONE.to_owned(), |value| unit.text(value))
}

/// Value, interval and verdict.
fn cells(side: &Side, unit: Unit) -> [String; 3] {
    let Some(against) = &side.against_first else {
        return Default::default();
    };
    let none = || NONE.to_owned();
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

/// With value, interval and verdict of each row.
fn compared(mut table: Table, head: &str, rows: &[[String; 3]]) -> Table {
    let cells = |column: usize| rows.iter().map(move |row| row[column].clone());
    table
        .numbers(head, cells(0))
        .text("95 % interval", WIDTH_MAX, cells(1))
        .text("verdict", WIDTH_MAX, cells(2));
    table
}

/// A, B, C ... Z, S27, S28 ...
fn letter(index: usize) -> String {
    match u8::try_from(index) {
        Ok(small) if small < 26 => char::from(b'A' + small).to_string(),
        _ => format!("S{}", index + 1),
    }
}

/// Later lines are indented as far as the first one's beginning.
fn paragraph(text: &mut String, begin: &str, words: &str) {
    let indent = " ".repeat(width(begin));
    let lines = broken(words, WIDTH_MAX - indent.len());
    for (index, line) in lines.iter().enumerate() {
        let begin = if index == 0 { begin } else { &indent };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", format!("{begin}{line}").trim_end());
    }
}

#[cfg(test)]
mod tests;
