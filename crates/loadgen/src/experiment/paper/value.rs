//! What a cell of a table shows: one number of a finding, by its name.
//!
//! Takes names as scenario files write them, gives numbers in seconds, bytes, and shares of 1.

use crate::distribution::Summary;
use crate::experiment::Finding;
use crate::outcome::{Outcome, Times};

/// A number of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(Source);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// Of the outcome, by the name in [`COUNTS`].
    Count(&'static str),
    /// A clock and which of its numbers.
    Time(&'static str, &'static str),
    /// A fact, by its name.
    Fact(String),
}

type Count = fn(&Outcome) -> Option<f64>;

/// Everything but times and facts.
const COUNTS: [(&str, Count); 20] = [
    ("per-second", |outcome| Some(outcome.per_second())),
    ("seconds", |outcome| Some(outcome.seconds)),
    ("requests", |outcome| {
        Some((outcome.counts.answered + outcome.counts.failures.sum()) as f64)
    }),
    ("answered", |outcome| Some(outcome.counts.answered as f64)),
    ("failed", |outcome| {
        Some(outcome.counts.failures.sum() as f64)
    }),
    ("failed.connect", |outcome| {
        Some(outcome.counts.failures.connect as f64)
    }),
    ("failed.reset", |outcome| {
        Some(outcome.counts.failures.reset as f64)
    }),
    ("failed.timeout", |outcome| {
        Some(outcome.counts.failures.timeout as f64)
    }),
    ("failed.short", |outcome| {
        Some(outcome.counts.failures.short as f64)
    }),
    ("failed.status", |outcome| {
        Some(outcome.counts.failures.status as f64)
    }),
    ("failed.body", |outcome| {
        Some(outcome.counts.failures.body as f64)
    }),
    ("failed.local", |outcome| {
        Some(outcome.counts.failures.local as f64)
    }),
    ("unsent", |outcome| Some(outcome.counts.unsent as f64)),
    ("unfinished", |outcome| {
        Some(outcome.counts.unfinished as f64)
    }),
    ("ended-idle", |outcome| {
        Some(outcome.counts.ended_idle as f64)
    }),
    ("connections", |outcome| {
        Some(outcome.counts.connections as f64)
    }),
    ("server.cpu", |outcome| {
        Some(outcome.server.as_ref()?.cpu_us_per_request / 1e6)
    }),
    ("server.cpu-share", |outcome| {
        Some(outcome.server.as_ref()?.cpu_share)
    }),
    ("server.resident", |outcome| {
        Some(outcome.server.as_ref()?.resident_bytes as f64)
    }),
    ("generator.cpu", |outcome| {
        Some(outcome.generator.cpu_us_per_request / 1e6)
    }),
];

type Clock = for<'a> fn(&'a Times) -> Option<&'a Summary>;

const CLOCKS: [(&str, Clock); 7] = [
    ("latency", |times| Some(&times.latency)),
    ("connect", |times| Some(&times.connect)),
    ("first-byte", |times| Some(&times.first_byte)),
    ("last-byte", |times| Some(&times.last_byte)),
    ("cycle", |times| Some(&times.cycle)),
    ("late", |times| times.late.as_ref()),
    ("unread", |times| times.unread.as_ref()),
];

type Number = fn(&Summary) -> Option<f64>;

/// In microseconds, as they are stored.
const NUMBERS: [(&str, Number); 12] = [
    ("avg", |summary| Some(summary.mean_us)),
    ("mean", |summary| Some(summary.mean_us)),
    ("stdev", |summary| Some(summary.stdev_us)),
    ("min", |summary| Some(summary.min_us)),
    ("median", |summary| Some(summary.p50_us)),
    ("p50", |summary| Some(summary.p50_us)),
    ("p90", |summary| Some(summary.p90_us)),
    ("p95", |summary| Some(summary.p95_us)),
    ("p99", |summary| summary.p99_us),
    ("p99.9", |summary| summary.p99_9_us),
    ("p99.99", |summary| summary.p99_99_us),
    ("max", |summary| Some(summary.max_us)),
];

impl Value {
    /// The one of that name: `per-second`, `latency.p99`, `fact.queue.avg`.
    ///
    /// # Errors
    /// There is none; the text says which there are.
    pub fn parse(name: &str) -> Result<Value, String> {
        if let Some(fact) = name.strip_prefix("fact.").filter(|fact| !fact.is_empty()) {
            return Ok(Value(Source::Fact(fact.to_owned())));
        }
        if let Some((count, _)) = COUNTS.iter().find(|(each, _)| *each == name) {
            return Ok(Value(Source::Count(count)));
        }
        let time = name.split_once('.').and_then(|(clock, number)| {
            let (clock, _) = CLOCKS.iter().find(|(each, _)| *each == clock)?;
            let (number, _) = NUMBERS.iter().find(|(each, _)| *each == number)?;
            Some(Value(Source::Time(clock, number)))
        });
        time.ok_or_else(|| {
            let counts: Vec<_> = COUNTS.iter().map(|(name, _)| *name).collect();
            let clocks: Vec<_> = CLOCKS.iter().map(|(name, _)| *name).collect();
            let numbers: Vec<_> = NUMBERS.iter().map(|(name, _)| *name).collect();
            format!(
                "`{name}` is no value: there are {}, `fact.NAME`, and one of {} with one of {} behind a dot",
                counts.join(", "),
                clocks.join(", "),
                numbers.join(", "),
            )
        })
    }

    /// What a finding says; `None`: nothing, or it has found nothing.
    pub fn of(&self, finding: &Finding) -> Option<f64> {
        let outcome = finding.outcome.as_ref().ok();
        let said = match &self.0 {
            Source::Fact(name) => finding.facts.get(name).copied(),
            Source::Count(name) => outcome.and_then(among(&COUNTS, name)),
            Source::Time(clock, number) => {
                let summary = among(&CLOCKS, clock)(&outcome?.times)?;
                // Of nothing there is no mean, although a zero is stored.
                (summary.count > 0).then_some(())?;
                Some(among(&NUMBERS, number)(summary)? / 1e6)
            }
        };
        said.filter(|number| number.is_finite())
    }
}

fn among<F: Copy>(table: &[(&str, F)], name: &str) -> F {
    let found = table.iter().find(|(each, _)| *each == name);
    found.expect("names are taken from the tables").1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_values_by_name_and_says_which_there_are() {
        for name in [
            "per-second",
            "failed.reset",
            "latency.p99",
            "first-byte.median",
            "fact.queue.avg",
        ] {
            assert!(Value::parse(name).is_ok(), "{name}");
        }
        for name in ["", "latency", "latency.p98", "fact.", "failed.oops", "p99"] {
            let fault = Value::parse(name).unwrap_err();
            assert!(
                fault.starts_with(&format!("`{name}` is no value")),
                "{fault}"
            );
            assert!(fault.contains("server.resident"), "{fault}");
        }
    }
}
