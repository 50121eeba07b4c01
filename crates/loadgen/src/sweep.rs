//! A sweep: one number of a load over a range, and the table of the runs at each of its values.
//!
//! Takes the texts of a load, then outcomes; gives loads, a table for people and a line for pictures. Runs nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::engine::Fault;
use crate::outcome::{Outcome, Weight};
use crate::output::picture::Line;
use crate::output::{thousands, wrapped};
use crate::spec::LoadSpec;
use crate::statistics::Moments;

/// The keys of a load whose number can be swept, and the heading of each one's column.
const SWEPT_KEYS: [(&str, &str); 6] = [
    ("connections", "clients"),
    ("rate", "rate"),
    ("pipeline", "pipeline"),
    ("requests_per_connection", "requests each"),
    ("connect_rate", "connect rate"),
    ("threads", "threads"),
];

/// More values are a mistake.
const VALUES_LEN_MAX: u64 = 1_000;

/// A number of a load, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// A key of the load.
    pub key: &'static str,
    /// Heading of the values: `clients`.
    pub column: &'static str,
    /// In the order of their runs, none twice; at least one.
    pub values: Vec<u64>,
}

/// A run at one of the values.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepRun {
    /// One of [`Sweep::values`].
    pub value: u64,
    /// Its result.
    pub outcome: Outcome,
}

impl Sweep {
    /// The sweep of a load: one key has a range `10..250:10` or a list `10,20,50`.
    ///
    /// # Errors
    /// No key has one, several have, or the range is none.
    pub fn of(load: &LoadSpec) -> Result<Sweep, Fault> {
        let mut all = Vec::new();
        for (key, column) in SWEPT_KEYS {
            if let Some(text) = load.texts(key).last().filter(|text| is_swept(text)) {
                let values = values(text).map_err(|cause| bad_range(key, text, &cause))?;
                all.push(Sweep {
                    key,
                    column,
                    values,
                });
            }
        }
        if all.is_empty() {
            return Err(Fault::with_hint(
                "no number of the load has a range",
                "give one of them a range, as `--connections 10..250:10`",
            ));
        }
        if all.len() > 1 {
            let flags: Vec<_> = all
                .iter()
                .map(|sweep| format!("`{}`", flag(sweep.key)))
                .collect();
            return Err(Fault::with_hint(
                format!("{}: more than one number has a range", flags.join(", ")),
                "give one of them a range, and the others a number each",
            ));
        }
        Ok(all.remove(0))
    }

    /// The load with one of the values.
    pub fn load(&self, base: &LoadSpec, value: u64) -> LoadSpec {
        let mut load = base.clone();
        let is_known = load.put(self.key, &value.to_string());
        assert!(is_known, "each key that is swept is one of a load");
        load
    }

    /// The table, and what makes its numbers doubtful.
    pub fn table(&self, runs: &[SweepRun]) -> String {
        let mut rows = vec![[self.column, "min", "ave", "max", "time"].map(str::to_owned)];
        for value in &self.values {
            let rates = rates(*value, runs);
            let seconds: f64 = at(*value, runs).map(|outcome| outcome.seconds).sum();
            let value = thousands(*value);
            rows.push(if rates.is_empty() {
                [value.as_str(), "-", "-", "-", "-"].map(str::to_owned)
            } else {
                let [min, ave, max] = [rates.min(), rates.mean(), rates.max()]
                    .map(|rate| thousands(rate.round() as u64));
                [value, min, ave, max, format!("{seconds:.2} s")]
            });
        }
        let mut text = aligned(&rows);
        let notes = self.notes(runs);
        if !notes.is_empty() {
            text.push('\n');
        }
        for note in notes {
            let _ = writeln!(text, "{}", wrapped(&note));
        }
        text
    }

    /// Average of the requests a second at each value, with the least and the greatest.
    pub fn line(&self, runs: &[SweepRun]) -> Line {
        let mut values = self.values.clone();
        values.sort_unstable();
        let measured = values
            .into_iter()
            .map(|value| (value as f64, rates(value, runs)))
            .filter(|(_, rates)| !rates.is_empty());
        let (points, low_high) = measured
            .map(|(value, rates)| ((value, rates.mean()), (rates.min(), rates.max())))
            .unzip();
        Line {
            name: "requests a second".to_owned(),
            points,
            low_high: Some(low_high),
        }
    }

    fn notes(&self, runs: &[SweepRun]) -> Vec<String> {
        let failed = runs.iter().filter_map(|run| {
            let failed = run.outcome.counts.failures.sum();
            let all = run.outcome.counts.answered + failed;
            (failed > 0).then(|| {
                format!(
                    "{} {}: {} of {} requests failed",
                    run.value,
                    self.column,
                    thousands(failed),
                    thousands(all)
                )
            })
        });
        failed.chain(doubts(runs)).collect()
    }
}

/// Doubts about outcomes: each kind once, with the number of its runs.
fn doubts(runs: &[SweepRun]) -> Vec<String> {
    let mut kinds: BTreeMap<(Weight, &str), (usize, &str)> = BTreeMap::new();
    for remark in runs.iter().flat_map(|run| &run.outcome.remarks) {
        if remark.weight != Weight::Note {
            let kind = kinds.entry((remark.weight, &remark.word));
            kind.or_insert((0, &remark.text)).0 += 1;
        }
    }
    let said = kinds.into_iter().map(|((weight, word), (len, text))| {
        let weight = match weight {
            Weight::Invalid => "invalid",
            Weight::Doubtful | Weight::Note => "doubtful",
        };
        let all = runs.len();
        format!("{weight}, {word}, in {len} of {all} runs; the first: {text}")
    });
    said.collect()
}

fn at(value: u64, runs: &[SweepRun]) -> impl Iterator<Item = &Outcome> {
    let runs = runs.iter().filter(move |run| run.value == value);
    runs.map(|run| &run.outcome)
}

/// Requests a second of the runs at a value.
fn rates(value: u64, runs: &[SweepRun]) -> Moments {
    let mut rates = Moments::default();
    for outcome in at(value, runs) {
        rates.record(outcome.per_second());
    }
    rates
}

/// Cells on the right of their columns.
fn aligned<const LEN: usize>(rows: &[[String; LEN]]) -> String {
    let widths: [usize; LEN] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  "));
    }
    text
}

fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

fn bad_range(key: &str, text: &str, cause: &str) -> Fault {
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
    // Both kinds of texts have colons and dots: what follows the last colon is a time or a step.
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
    if len > VALUES_LEN_MAX {
        return Err(format!("{len} values are more than {VALUES_LEN_MAX}"));
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

#[cfg(test)]
mod tests;
