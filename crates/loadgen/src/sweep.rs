//! A sweep: one number of a load over a range, and the table of the runs at each of its values.
//!
//! Takes the texts of a load, then outcomes; gives loads, a table for people and a line for pictures. Runs nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use present::{Line, NONE, Table, thousands, wrapped};

use crate::engine::Fault;
use crate::outcome::{Outcome, Weight};
use crate::spec::LoadSpec;
use crate::statistics::Moments;

/// The keys of a load whose number can be swept, and the heading of each one's column.
const SWEPT_KEYS: [(&str, &str); 7] = [
    ("connections", "clients"),
    ("rate", "rate"),
    ("pipeline", "pipeline"),
    ("streams", "streams"),
    ("requests_per_connection", "requests each"),
    ("connect_rate", "connect rate"),
    ("threads", "threads"),
];

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
        // A table has one column of values.
        if all.len() > 1 {
            let flags = all.iter().map(|sweep| format!("`{}`", flag(sweep.key)));
            let flags = flags.collect::<Vec<_>>().join(", ");
            return Err(Fault::with_hint(
                format!("{flags}: more than one number has a range"),
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
    pub fn text(&self, runs: &[Outcome]) -> String {
        let mut text = self.table(runs).to_text();
        for (index, note) in self.notes(runs).iter().enumerate() {
            let begin = if index == 0 { "\n" } else { "" };
            let _ = writeln!(text, "{begin}{}", wrapped(note));
        }
        text
    }

    /// A row for each value, with requests a second over its repetitions.
    pub fn table(&self, runs: &[Outcome]) -> Table {
        let rows = self.rows(runs);
        let column = |cell: &dyn Fn(&Moments, f64) -> String| {
            let cells = rows.iter().map(|(_, rates, seconds)| match rates.len() {
                0 => NONE.to_owned(),
                _ => cell(rates, *seconds),
            });
            cells.collect::<Vec<_>>()
        };
        let rate =
            |of: fn(&Moments) -> f64| column(&|rates, _| thousands(of(rates).round() as u64));
        let mut table = Table::default();
        table
            .numbers(
                self.column,
                rows.iter().map(|(value, ..)| thousands(*value)),
            )
            .numbers("min", rate(Moments::min))
            .numbers("ave", rate(Moments::mean))
            .numbers("max", rate(Moments::max))
            .numbers("time", column(&|_, seconds| format!("{seconds:.2} s")));
        table
    }

    /// Average of the requests a second at each value, with the least and the greatest.
    pub fn line(&self, runs: &[Outcome]) -> Line {
        let mut rows = self.rows(runs);
        rows.retain(|(_, rates, _)| !rates.is_empty());
        rows.sort_unstable_by_key(|(value, ..)| *value);
        let point = |(value, rates, _): &(u64, Moments, f64)| {
            ((*value as f64, rates.mean()), (rates.min(), rates.max()))
        };
        let (points, low_high) = rows.iter().map(point).unzip();
        Line {
            name: "requests a second".to_owned(),
            points,
            low_high: Some(low_high),
            ..Line::default()
        }
    }

    /// Each value with the requests a second of its runs, and the counted time of them all.
    fn rows(&self, runs: &[Outcome]) -> Vec<(u64, Moments, f64)> {
        let row = |(place, value): (usize, &u64)| {
            let mut row = (*value, Moments::default(), 0.0);
            // Runs come in the order of the values, again and again.
            for run in runs.iter().skip(place).step_by(self.values.len()) {
                row.1.record(run.per_second());
                row.2 += run.seconds;
            }
            row
        };
        self.values.iter().enumerate().map(row).collect()
    }

    /// Failures, and doubts about the runs.
    pub fn notes(&self, runs: &[Outcome]) -> Vec<String> {
        let failed = self
            .values
            .iter()
            .cycle()
            .zip(runs)
            .filter_map(|(value, run)| {
                let (failed, all) = (run.counts.failures.sum(), run.counts.ended());
                let (of, all, column) = (thousands(failed), thousands(all), self.column);
                (failed > 0).then(|| format!("{value} {column}: {of} of {all} requests failed"))
            });
        failed.chain(doubts(runs)).collect()
    }
}

/// Doubts about outcomes.
fn doubts(runs: &[Outcome]) -> Vec<String> {
    // Each kind once, with the number of its runs: a sweep of a busy host has the same one hundreds of times.
    let mut kinds: BTreeMap<(Weight, &str), (usize, &str)> = BTreeMap::new();
    for remark in runs.iter().flat_map(|run| &run.remarks) {
        if remark.weight != Weight::Note {
            let kind = kinds.entry((remark.weight, &remark.word));
            kind.or_insert((0, &remark.text)).0 += 1;
        }
    }
    let said = kinds.into_iter().map(|((weight, word), (len, text))| {
        let weight = format!("{weight:?}").to_lowercase();
        let all = runs.len();
        format!("{weight}, {word}, in {len} of {all} runs; the first: {text}")
    });
    said.collect()
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

fn is_swept(text: &str) -> bool {
    // Ramps (`100..2000:30s`) and steps (`500:10s,1000:10s`) have times in them: they are loads of their own.
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
    // A value that is there twice would have half of its runs in each of two rows.
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
    // A step of 1 from 0 to the end of u64 would be one value more than it can count.
    let len = ((to - from) / step).saturating_add(1);
    // More values are a mistake.
    if len > 1_000 {
        return Err(format!("{len} values are more than 1000"));
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
