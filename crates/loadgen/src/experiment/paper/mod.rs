//! Tables of an experiment in the form of those that others published, theirs first.
//!
//! Takes what was found, gives Markdown. A cell that has nothing to say is `–`; what was not measured, and
//! what makes a number doubtful, stands under the tables. Reads no file and knows no scenario.

mod column;
mod value;

pub use column::{Column, Figure, Over, Shows};
pub use value::Value;

use std::fmt::Write as _;

use super::Findings;
use super::original::Original;
use crate::outcome::Weight;
use column::{NOTHING, Place};

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// Whose rows come first.
    pub original: Option<&'static Original>,
    /// Points that are in it, in this order.
    pub points: Vec<String>,
    /// Servers that are in it, in this order.
    pub servers: Vec<String>,
    /// How rows and columns are made.
    pub layout: Layout,
    /// Under it.
    pub notes: Vec<String>,
}

/// How rows and columns are made.
#[derive(Clone, Debug, PartialEq)]
pub enum Layout {
    /// A row for each point, a column for each server.
    Grid {
        /// Above the points.
        head: String,
        /// In the cells.
        cell: Figure,
    },
    /// A row for each server, point and key. Rows of which no column but texts says anything are left out.
    List {
        /// The outer one of the two.
        by: By,
        /// Stand for `{row}`; none: one row.
        rows: Vec<String>,
        /// The columns.
        columns: Vec<Column>,
    },
}

/// What rows are ordered by first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Points, and for each its servers.
    Point,
    /// Servers, and for each its points.
    Server,
}

impl Table {
    /// Heads of the columns.
    pub fn heads(&self) -> Vec<String> {
        match &self.layout {
            Layout::Grid { head, .. } => {
                let servers = self.servers.iter().cloned();
                std::iter::once(head.clone()).chain(servers).collect()
            }
            Layout::List { columns, .. } => {
                columns.iter().map(|column| column.head.clone()).collect()
            }
        }
    }

    /// Heads of the original's columns that this table has not.
    pub fn absent_heads(&self) -> Vec<&'static str> {
        let heads = self.heads();
        let theirs = self.original.map_or(&[][..], |original| original.head);
        let absent = theirs
            .iter()
            .filter(|head| !heads.iter().any(|own| own == *head));
        absent.copied().collect()
    }

    fn rows(&self, findings: &Findings) -> Vec<Vec<String>> {
        let place = |server, point, row| Place {
            findings: &findings.findings,
            server,
            point,
            row,
        };
        match &self.layout {
            Layout::Grid { cell, .. } => self
                .points
                .iter()
                .map(|point| {
                    let cells = self.servers.iter();
                    let cells = cells.map(|server| cell.cell(&place(server, point, "")));
                    std::iter::once(point.clone()).chain(cells).collect()
                })
                .collect(),
            Layout::List { by, rows, columns } => self
                .places(*by, rows)
                .into_iter()
                .map(|(server, point, row)| place(server, point, row))
                .filter(|place| columns.iter().any(|column| column.speaks(place)))
                .map(|place| columns.iter().map(|column| column.cell(&place)).collect())
                .collect(),
        }
    }

    /// Server, point and key of each row.
    fn places<'a>(&'a self, by: By, rows: &'a [String]) -> Vec<(&'a str, &'a str, &'a str)> {
        let (servers, points) = (self.servers.iter(), self.points.iter());
        let pairs: Vec<(&str, &str)> = match by {
            By::Point => points
                .flat_map(|point| {
                    servers
                        .clone()
                        .map(move |server| (server.as_str(), point.as_str()))
                })
                .collect(),
            By::Server => servers
                .flat_map(|server| {
                    points
                        .clone()
                        .map(move |point| (server.as_str(), point.as_str()))
                })
                .collect(),
        };
        let keys: Vec<&str> = match rows {
            [] => vec![""],
            rows => rows.iter().map(String::as_str).collect(),
        };
        let each = |(server, point)| keys.iter().map(move |key| (server, point, *key));
        pairs.into_iter().flat_map(each).collect()
    }

    fn write(&self, findings: &Findings, text: &mut String) {
        let heads = self.heads();
        let _ = writeln!(text, "\n## {}\n", self.title);
        line(text, &heads);
        line(text, &vec!["---"; heads.len()]);
        if let Some(original) = self.original {
            banner(text, original.source, heads.len());
            for row in original.rows {
                let of = |head: &String| original.head.iter().position(|each| each == head);
                let cells: Vec<&str> = heads
                    .iter()
                    .map(|head| of(head).map_or(NOTHING, |column| row[column]))
                    .collect();
                line(text, &cells);
            }
            banner(text, "here", heads.len());
        }
        for row in self.rows(findings) {
            line(text, &row);
        }
        let theirs = self.original.map_or(&[][..], |original| original.notes);
        for note in theirs
            .iter()
            .copied()
            .chain(self.notes.iter().map(String::as_str))
        {
            let _ = writeln!(text, "\n{note}");
        }
    }
}

/// A page of Markdown: title, where it was measured, the tables, and what has to be known about them.
pub fn paper(title: &str, tables: &[Table], findings: &Findings) -> String {
    let mut text = format!("# {title}\n\n");
    let host = &findings.host;
    let _ = writeln!(
        text,
        "{} with {} processors, kernel {}; {}.",
        if host.processor.is_empty() {
            "A machine"
        } else {
            &host.processor
        },
        host.processors,
        if host.kernel.is_empty() {
            "unknown"
        } else {
            &host.kernel
        },
        repetitions(findings),
    );
    for (server, version) in &findings.versions {
        let _ = writeln!(text, "{server}: {version}.");
    }
    for table in tables {
        table.write(findings, &mut text);
    }
    let doubts = doubts(findings);
    if !doubts.is_empty() {
        text.push_str("\n## What has to be known\n\n");
    }
    for doubt in doubts {
        let _ = writeln!(text, "- {doubt}");
    }
    text
}

fn repetitions(findings: &Findings) -> String {
    let most = findings
        .findings
        .iter()
        .map(|finding| finding.repetition)
        .max();
    match most.unwrap_or(0) {
        0 => "nothing was measured".to_owned(),
        1 => "one repetition".to_owned(),
        len => format!("{len} interleaved repetitions"),
    }
}

/// What was not measured, and what makes a number doubtful: each kind once, with how often and where first.
fn doubts(findings: &Findings) -> Vec<String> {
    let mut counted: Vec<(String, String, usize)> = Vec::new();
    let mut count =
        |kind: String, text: String| match counted.iter_mut().find(|(each, _, _)| *each == kind) {
            Some((_, _, len)) => *len += 1,
            None => counted.push((kind, text, 1)),
        };
    let same = |text: String| (text.clone(), text);
    for (server, why) in &findings.skipped {
        let (kind, text) = same(format!("{server} was not measured: {why}"));
        count(kind, text);
    }
    for finding in &findings.findings {
        let place = format!("{}, {}", finding.server, finding.point);
        match &finding.outcome {
            Err(fault) => {
                let (kind, text) = same(format!("{place}: {fault}"));
                count(kind, text);
            }
            Ok(outcome) => {
                for remark in &outcome.remarks {
                    let word = match remark.weight {
                        Weight::Invalid => "INVALID",
                        Weight::Doubtful => "DOUBTFUL",
                        Weight::Note => continue,
                    };
                    let kind = format!("{word} ({})", remark.word);
                    count(kind.clone(), format!("{kind}: {place}: {}", remark.text));
                }
            }
        }
        for note in &finding.notes {
            let (kind, text) = same(format!("{place}: {note}"));
            count(kind, text);
        }
        if finding.disturbed {
            let text = format!("{place}: others used the processors meanwhile");
            count("disturbed".to_owned(), text);
        }
    }
    if findings.interrupted {
        let (kind, text) = same("the experiment was ended before its end".to_owned());
        count(kind, text);
    }
    let all = findings.findings.len();
    let said = |(_, text, len): (String, String, usize)| match len {
        1 => text,
        len => format!("{text} (and so {len} of {all} runs)"),
    };
    counted.into_iter().map(said).collect()
}

fn banner(text: &mut String, words: &str, len: usize) {
    let mut cells = vec![String::new(); len];
    cells[0] = format!("**{words}**");
    line(text, &cells);
}

fn line(text: &mut String, cells: &[impl AsRef<str>]) {
    text.push('|');
    for cell in cells {
        // A bar would be the end of a cell, a line break that of the row.
        let plain = cell.as_ref().replace('|', "\\|").replace('\n', " ");
        let _ = write!(text, " {plain} |");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests;
