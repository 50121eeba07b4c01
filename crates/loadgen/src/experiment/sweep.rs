//! One number that is swept: the points of it, and the table of what was found at each.
//!
//! Takes texts and findings, gives points, texts and lines for pictures. The table has the columns of weighttp's
//! old sweeps: clients, min, ave, max requests per second over the repetitions, time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Findings, LoadText, Point};
use crate::engine::Fault;
use crate::outcome::{Outcome, Weight};
use crate::statistics::Moments;

/// The keys of a load whose number can be swept, and what the column of each is called.
pub const SWEPT_KEYS: [(&str, &str); 6] = [
    ("connections", "clients"),
    ("rate", "rate"),
    ("pipeline", "pipeline"),
    ("requests_per_connection", "requests each"),
    ("connect_rate", "connect rate"),
    ("threads", "threads"),
];

/// More points are a mistake.
const POINTS_MAX: u64 = 1_000;

/// A number that is swept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// A key of the load.
    pub key: String,
    /// In their order, none twice; at least one.
    pub values: Vec<u64>,
}

impl Swept {
    /// The number that is swept, taken out of `load`: the one key of [`SWEPT_KEYS`] with a range `10..250:10`
    /// or a list `10,20,50`.
    ///
    /// # Errors
    /// None is swept, several are, or a range is no range.
    pub fn taken_from(load: &LoadText) -> Result<Swept, Fault> {
        let mut all = Vec::new();
        for (key, _) in SWEPT_KEYS {
            if let Some(text) = load.value(key)
                && is_swept(text)
            {
                let values = values(text).map_err(|cause| bad(key, text, &cause))?;
                all.push(Swept {
                    key: key.to_owned(),
                    values,
                });
            }
        }
        let flags: Vec<String> = all
            .iter()
            .map(|swept| format!("`{}`", flag(&swept.key)))
            .collect();
        match <[Swept; 1]>::try_from(all) {
            Ok([swept]) => Ok(swept),
            Err(_) if flags.is_empty() => Err(Fault::with_hint(
                "nothing is swept: no number has a range",
                "one of them has, as `--connections 10..250:10`",
            )),
            Err(_) => Err(Fault::with_hint(
                format!("{}: more than one number is swept", flags.join(", ")),
                "give one of them a range, and the others a number each",
            )),
        }
    }

    /// A point for each number.
    pub fn points(&self, base: &LoadText) -> Vec<Point> {
        let point = |value: &u64| {
            let mut load = base.clone();
            load.set(&self.key, value.to_string());
            Point {
                name: value.to_string(),
                load,
                servers: None,
            }
        };
        self.values.iter().map(point).collect()
    }

    /// What its column is called.
    pub fn column(&self) -> &str {
        let mut columns = SWEPT_KEYS.iter();
        columns
            .find(|(key, _)| *key == self.key)
            .map_or(&self.key, |(_, column)| *column)
    }
}

fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

fn bad(key: &str, text: &str, cause: &str) -> Fault {
    Fault::with_hint(
        format!("`{} {text}`: {cause}", flag(key)),
        "a range is FROM..TO:STEP, as `10..250:10`; a list has commas, as `10,20,50`",
    )
}

/// Ramps (`100..2000:30s`) and steps (`500:10s,1000:10s`) have times in them: they are loads of their own.
fn is_swept(text: &str) -> bool {
    let is_time = |part: &str| {
        let part = part.trim_end();
        part.starts_with(|letter: char| letter.is_ascii_digit())
            && part.ends_with(|letter: char| letter.is_ascii_alphabetic())
    };
    let mut parts = text.split(',').filter_map(|part| part.rsplit_once(':'));
    let has_time = parts.any(|(_, part)| is_time(part));
    !has_time && text.trim().parse::<f64>().is_err()
}

fn values(text: &str) -> Result<Vec<u64>, String> {
    let values = match text.split_once("..") {
        Some((from, rest)) => ranged(from, rest)?,
        None => text.split(',').map(whole).collect::<Result<_, _>>()?,
    };
    let mut sorted = values.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{} is there twice", pair[0])),
        None => Ok(values),
    }
}

fn ranged(from: &str, rest: &str) -> Result<Vec<u64>, String> {
    let (to, step) = rest.split_once(':').ok_or("it has no step")?;
    let (from, to, step) = (whole(from)?, whole(to)?, number(step)?);
    if step == 0 {
        return Err("a step of 0 leads nowhere".to_owned());
    }
    if to < from {
        return Err(format!("{to} is less than {from}"));
    }
    let len = ((to - from) / step).saturating_add(1);
    if len > POINTS_MAX {
        return Err(format!("{len} points are more than {POINTS_MAX}"));
    }
    Ok((0..len).map(|index| from + index * step).collect())
}

fn whole(text: &str) -> Result<u64, String> {
    match number(text)? {
        0 => Err("0 is too few".to_owned()),
        number => Ok(number),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let number = text.parse();
    number.map_err(|_| format!("`{text}` is no whole number"))
}

/// What a sweep has found, for each server and each number.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepTable<'a> {
    column: &'a str,
    values: &'a [u64],
    servers: Vec<Row<'a>>,
    findings: &'a Findings,
}

/// A server's cells, in the order of the numbers.
#[derive(Clone, Debug, PartialEq)]
struct Row<'a> {
    name: &'a str,
    cells: Vec<Cell>,
}

/// What a server has done at a number.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cell {
    /// Requests a second of each repetition.
    rates: BTreeMap<usize, f64>,
    /// Measured time of all of them.
    seconds: f64,
}

/// A server's line in a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepLine {
    /// The server.
    pub name: String,
    /// The number, and the average of requests a second; in the order of the numbers.
    pub points: Vec<(f64, f64)>,
    /// The least and the most, for the same numbers.
    pub low_high: Vec<(f64, f64)>,
}

impl Cell {
    fn moments(&self) -> Moments {
        let mut moments = Moments::default();
        for rate in self.rates.values() {
            moments.record(*rate);
        }
        moments
    }
}

impl<'a> SweepTable<'a> {
    /// Of the findings of a sweep's points, servers in the given order.
    pub fn new(swept: &'a Swept, servers: &[&'a str], findings: &'a Findings) -> SweepTable<'a> {
        let cell = |name: &str, value: &u64| {
            let mut cell = Cell::default();
            let point = value.to_string();
            for finding in &findings.findings {
                if finding.server == name
                    && finding.point == point
                    && let Ok(outcome) = &finding.outcome
                {
                    cell.rates.insert(finding.repetition, outcome.per_second());
                    cell.seconds += outcome.seconds;
                }
            }
            cell
        };
        let row = |name: &&'a str| Row {
            name,
            cells: swept.values.iter().map(|value| cell(name, value)).collect(),
        };
        SweepTable {
            column: swept.column(),
            values: &swept.values,
            servers: servers.iter().map(row).collect(),
            findings,
        }
    }

    /// For people: the table, ratios to the first server, and what has to be known about the numbers.
    pub fn text(&self) -> String {
        let mut text = self.table();
        if self.servers.len() > 1 {
            text.push('\n');
            text.push_str(&self.ratios());
        }
        let notes = self.notes();
        if !notes.is_empty() {
            text.push('\n');
        }
        for note in notes {
            let _ = writeln!(text, "{}", crate::show::wrapped(&note));
        }
        text
    }

    /// For pictures.
    pub fn lines(&self) -> Vec<SweepLine> {
        let line = |row: &Row<'a>| {
            let mut line = SweepLine {
                name: row.name.to_owned(),
                points: Vec::new(),
                low_high: Vec::new(),
            };
            let mut cells: Vec<_> = self.values.iter().zip(&row.cells).collect();
            cells.sort_unstable_by_key(|(value, _)| **value);
            for (value, cell) in cells {
                let moments = cell.moments();
                if !moments.is_empty() {
                    line.points.push((*value as f64, moments.mean()));
                    line.low_high.push((moments.min(), moments.max()));
                }
            }
            line
        };
        self.servers.iter().map(line).collect()
    }

    fn table(&self) -> String {
        let mut grid = Grid::new(self.column, self.values);
        for row in &self.servers {
            let heads = ["min", "ave", "max", "time"];
            let cells = row.cells.iter().map(|cell| {
                let moments = cell.moments();
                if moments.is_empty() {
                    return ["-"; 4].map(str::to_owned);
                }
                let [min, ave, max] = [moments.min(), moments.mean(), moments.max()].map(thousands);
                [min, ave, max, format!("{:.2} s", cell.seconds)]
            });
            grid.add(row.name, heads, &cells.collect::<Vec<_>>());
        }
        grid.text()
    }

    /// Of the same repetitions, because these lie next to each other in time.
    fn ratios(&self) -> String {
        let [first, others @ ..] = self.servers.as_slice() else {
            return String::new();
        };
        let mut grid = Grid::new(self.column, self.values);
        for row in others {
            let pairs = first.cells.iter().zip(&row.cells);
            let cells = pairs.map(|(base, cell)| {
                let both = cell.rates.iter().filter_map(|(repetition, rate)| {
                    let base = base.rates.get(repetition).filter(|base| **base > 0.0)?;
                    Some(rate / base)
                });
                let mut ratios: Vec<f64> = both.collect();
                ratios.sort_unstable_by(f64::total_cmp);
                match median(&ratios) {
                    Some(median) => [ratios[0], median, ratios[ratios.len() - 1]]
                        .map(|ratio| format!("{ratio:.3}")),
                    None => ["-"; 3].map(str::to_owned),
                }
            });
            grid.add(
                row.name,
                ["min", "median", "max"],
                &cells.collect::<Vec<_>>(),
            );
        }
        format!(
            "requests a second as ratios to `{}`\n{}",
            first.name,
            grid.text()
        )
    }

    fn notes(&self) -> Vec<String> {
        let findings = self.findings;
        let mut notes = Vec::new();
        if findings.interrupted {
            notes.push("it was interrupted: not everything was measured".to_owned());
        }
        for (server, why) in &findings.skipped {
            notes.push(format!("{server}: not measured: {why}"));
        }
        for finding in &findings.findings {
            let of = format!(
                "{}, {} {}, repetition {}",
                finding.server, finding.point, self.column, finding.repetition
            );
            match &finding.outcome {
                Err(cause) => notes.push(format!("{of}: no result: {cause}")),
                Ok(outcome) => notes.extend(failed(outcome).map(|text| format!("{of}: {text}"))),
            }
        }
        notes.extend(self.remarks());
        let disturbed = findings
            .findings
            .iter()
            .filter(|finding| finding.disturbed)
            .count();
        if findings.repeated > 0 {
            let text = format!(
                "others used the processors: {} of {} runs were made a second time, and {disturbed} disturbed again",
                findings.repeated,
                findings.findings.len(),
            );
            notes.push(text);
        }
        notes
    }

    /// Doubts about outcomes: each kind once, with how often it was there.
    fn remarks(&self) -> Vec<String> {
        let mut kinds: BTreeMap<(Weight, &str), (usize, &str)> = BTreeMap::new();
        let outcomes = self
            .findings
            .findings
            .iter()
            .filter_map(|finding| finding.outcome.as_ref().ok());
        for remark in outcomes.flat_map(|outcome| &outcome.remarks) {
            if remark.weight != Weight::Note {
                let kind = kinds
                    .entry((remark.weight, &remark.word))
                    .or_insert((0, &remark.text));
                kind.0 += 1;
            }
        }
        let all = self.findings.findings.len();
        let said = kinds.into_iter();
        said.map(|((weight, word), (len, text))| {
            let weight = if weight == Weight::Invalid {
                "invalid"
            } else {
                "doubtful"
            };
            format!("{weight}, {word}, in {len} of {all} runs; the first: {text}")
        })
        .collect()
    }
}

fn failed(outcome: &Outcome) -> Option<String> {
    let sum = outcome.counts.failures.sum();
    (sum > 0).then(|| {
        let all = outcome.counts.answered + sum;
        format!(
            "{} of {} requests failed",
            thousands(sum as f64),
            thousands(all as f64)
        )
    })
}

/// Of sorted values.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len().is_multiple_of(2) {
        Some((sorted[middle - 1] + upper) / 2.0)
    } else {
        Some(upper)
    }
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A table whose first column is the swept number, with a group of columns for each server.
struct Grid {
    names: String,
    heads: String,
    lines: Vec<String>,
}

impl Grid {
    fn new(column: &str, values: &[u64]) -> Grid {
        let texts: Vec<String> = values
            .iter()
            .map(|value| thousands(*value as f64))
            .collect();
        let width = texts
            .iter()
            .map(String::len)
            .max()
            .unwrap_or(0)
            .max(column.len());
        Grid {
            names: " ".repeat(width),
            heads: format!("{column:>width$}"),
            lines: texts.iter().map(|text| format!("{text:>width$}")).collect(),
        }
    }

    fn add<const LEN: usize>(&mut self, name: &str, heads: [&str; LEN], cells: &[[String; LEN]]) {
        let width_of = |index: usize| {
            let texts = cells.iter().map(|row| row[index].chars().count());
            texts.max().unwrap_or(0).max(heads[index].len())
        };
        let mut widths: [usize; LEN] = std::array::from_fn(width_of);
        let name_width = name.chars().count();
        let all = widths.iter().sum::<usize>() + 2 * (LEN - 1);
        // A long name widens the first column.
        widths[0] += name_width.saturating_sub(all);
        let all = all.max(name_width);
        let _ = write!(self.names, "   {name:<all$}");
        let line = |texts: &[&str]| {
            let padded = texts
                .iter()
                .zip(widths)
                .map(|(text, width)| format!("{text:>width$}"));
            format!("   {}", padded.collect::<Vec<_>>().join("  "))
        };
        self.heads.push_str(&line(&heads));
        for (own, row) in self.lines.iter_mut().zip(cells) {
            let texts: Vec<&str> = row.iter().map(String::as_str).collect();
            own.push_str(&line(&texts));
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for line in [&self.names, &self.heads].into_iter().chain(&self.lines) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests;
