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
        text.push_str(&self.table().to_text());
        for note in self.notes() {
            paragraph(&mut text, "note: ", &note);
        }
        for warning in &self.warnings {
            paragraph(&mut text, "warning: ", warning);
        }
        text
    }

    /// Of two sets a line for each figure, with both medians; of more sets a line for each figure of each set.
    fn table(&self) -> Table {
        let is_pair = self.members.len() == 2;
        // The first of a pair has its median in the line of the second.
        let before = usize::from(is_pair);
        let lines = self.rows.iter().flat_map(|row| {
            let sides = row.sides.iter().enumerate().skip(before);
            sides.map(move |(index, side)| (row, index, side))
        });
        let lines: Vec<(&Row, usize, &Side)> = lines.collect();
        let names = lines.iter().map(|(row, index, _)| match *index == before {
            true => row.metric.to_string(),
            false => String::new(),
        });
        let medians = lines
            .iter()
            .map(|(row, _, side)| median(side, row.metric.unit()));
        let against = lines
            .iter()
            .map(|(row, _, side)| cells(side, row.metric.unit()));
        let against: Vec<[String; 3]> = against.collect();
        let cells = |column: usize| against.iter().map(move |cells| cells[column].clone());
        let mut table = Table::default();
        table.text("figure", WIDTH_MAX, names);
        let [middle, head] = if is_pair {
            let firsts = lines
                .iter()
                .map(|(row, ..)| median(&row.sides[0], row.metric.unit()));
            table.numbers("A", firsts);
            ["B", "B to A"]
        } else {
            let letters = lines.iter().map(|(_, index, _)| letter(*index));
            table.text("set", WIDTH_MAX, letters);
            ["median", "to A"]
        };
        table.numbers(middle, medians).numbers(head, cells(0));
        table.text("95 % interval", WIDTH_MAX, cells(1));
        table.text("verdict", WIDTH_MAX, cells(2));
        table
    }

    /// How intervals were made, and why there are none, each once.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        let sides = self.rows.iter().flat_map(|row| &row.sides);
        for against in sides.filter_map(|side| side.against_first.as_ref()) {
            let method = against.estimate.as_ref().and_then(|known| known.method);
            let why = against.why.as_ref();
            let why = why.map(|why| format!("{}: {}", why.word, why.text));
            let student = (method == Some(IntervalMethod::Student)).then(|| STUDENT.to_owned());
            for note in student.into_iter().chain(why) {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        notes
    }
}

const STUDENT: &str = "fewer than 5 runs a side: an interval of resampled runs would be too narrow to be trusted, \
                       these are Student's; repeat with --repeat 5";

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
    let verdict = match against.change {
        Change::Better => "better",
        Change::Worse => "worse",
        Change::Noise => "noise",
        Change::Unsaid => against.why.as_ref().map_or("", |why| why.word),
    };
    [
        estimate.map_or_else(none, |known| known.number(known.value, unit)),
        interval.map_or_else(none, |(known, interval)| {
            let low = known.number(interval.low, unit);
            format!("{low} to {}", known.number(interval.high, unit))
        }),
        verdict.to_owned(),
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
