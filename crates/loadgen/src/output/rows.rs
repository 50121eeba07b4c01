//! Runs and their seconds as CSV, RFC 4180 with LF: for spreadsheets and for whatever draws.
//!
//! Takes outcomes, gives text with a header line. Columns are only ever added at the end. A number that
//! there is not is an empty field.

use serde_json::Value;

use super::distributions;
use crate::outcome::{AskedLeg, Outcome, Second};

/// Columns before the distributions: the name, and where the stored run has the value.
const FIRST: [(&str, &str); 29] = [
    ("run", "run"),
    ("label", "asked.label"),
    ("url", "asked.url"),
    ("load", "asked.load"),
    ("rate", "asked.rate"),
    ("connections", "asked.connections"),
    ("in_flight", "asked.in_flight"),
    ("requests_each", "asked.requests_each"),
    ("closing", "asked.closing"),
    ("threads", "asked.threads"),
    ("began_unix_ms", "began_unix_ms"),
    ("seconds", "seconds"),
    ("requests_per_s", "requests_per_s"),
    ("answered", "counts.answered"),
    ("answered_within", "counts.answered_within"),
    ("failed", "failed"),
    ("failed_connect", "counts.failures.connect"),
    ("failed_reset", "counts.failures.reset"),
    ("failed_timeout", "counts.failures.timeout"),
    ("failed_short", "counts.failures.short"),
    ("failed_status", "counts.failures.status"),
    ("failed_body", "counts.failures.body"),
    ("failed_local", "counts.failures.local"),
    ("disturbed", "counts.disturbed"),
    ("unsent", "counts.unsent"),
    ("unfinished", "counts.unfinished"),
    ("connections_made", "counts.connections"),
    ("read_bytes", "counts.read_bytes"),
    ("sent_bytes", "counts.sent_bytes"),
];
/// Columns of a distribution.
const SUMMARY: [&str; 11] = [
    "mean_us",
    "stdev_us",
    "min_us",
    "p50_us",
    "p75_us",
    "p90_us",
    "p95_us",
    "p99_us",
    "p99_9_us",
    "p99_99_us",
    "max_us",
];
/// Columns after the distributions.
const LAST: [(&str, &str); 12] = [
    (
        "generator_cpu_us_per_request",
        "generator.cpu_us_per_request",
    ),
    ("generator_cpu_share_max", "cpu_share_max"),
    ("generator_resident_bytes", "generator.resident_bytes"),
    ("generator_stalled_s", "generator.stalled_s"),
    ("foreign_cpu_share", "generator.foreign_cpu_share"),
    ("server_cpu_us_per_request", "server.cpu_us_per_request"),
    ("server_cpu_share", "server.cpu_share"),
    ("server_resident_bytes", "server.resident_bytes"),
    ("valid", "valid"),
    ("remarks", "words"),
    ("rate_legs", "rate_legs"),
    ("connections_legs", "connections_legs"),
];
/// Columns of a second.
const SECOND: [&str; 9] = [
    "run",
    "label",
    "at_s",
    "answered",
    "failed",
    "read_bytes",
    "p50_us",
    "p99_us",
    "max_us",
];

/// One line a run.
pub fn csv(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for (index, outcome) in outcomes.iter().enumerate() {
        let (names, fields): (Vec<String>, Vec<String>) = run(index, outcome).into_iter().unzip();
        // All runs have the same columns, so the first one names them.
        if index == 0 {
            line(names.iter().map(String::as_str), &mut out);
        }
        line(fields.iter().map(String::as_str), &mut out);
    }
    out
}

/// One line a second of each run; warming up has negative seconds.
pub fn series_csv(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    line(SECOND.into_iter(), &mut out);
    for (index, outcome) in outcomes.iter().enumerate() {
        for second in &outcome.series {
            let fields = fields_of(index, &outcome.asked.label, second);
            line(fields.iter().map(String::as_str), &mut out);
        }
    }
    out
}

fn fields_of(index: usize, label: &str, second: &Second) -> Vec<String> {
    let mut value = stored(second);
    value["run"] = (index + 1).into();
    value["label"] = label.into();
    SECOND.map(|name| field(&value, name)).into()
}

/// Names and fields of a run.
fn run(index: usize, outcome: &Outcome) -> Vec<(String, String)> {
    let mut value = stored(outcome);
    let shares = outcome
        .generator
        .threads
        .iter()
        .map(|thread| thread.cpu_share);
    let words = outcome.remarks.iter().map(|remark| remark.word.as_str());
    // What a stored run tells only together with other parts of it.
    value["run"] = (index + 1).into();
    value["requests_per_s"] = outcome.per_second().into();
    value["counts"]["answered_within"] = outcome.counts.within().into();
    value["failed"] = outcome.counts.failures.sum().into();
    value["cpu_share_max"] = shares.fold(0.0, f64::max).into();
    value["valid"] = outcome.is_valid().into();
    value["words"] = words.collect::<Vec<_>>().join(" ").into();
    value["rate_legs"] = AskedLeg::written(&outcome.asked.rate_legs).into();
    value["connections_legs"] = AskedLeg::written(&outcome.asked.connections_legs).into();
    let named = |table: &[(&str, &str)]| -> Vec<(String, String)> {
        let rows = table.iter();
        rows.map(|(name, path)| ((*name).to_owned(), field(&value, path)))
            .collect()
    };
    let mut columns = named(&FIRST);
    for (name, summary) in distributions(&outcome.times) {
        // A distribution without values is stored as zeros, which a mean over the rows would count.
        let is_known = summary.is_some_and(|summary| summary.count > 0);
        columns.extend(SUMMARY.map(|of| {
            let text = if is_known {
                field(&value, &format!("times.{name}.{of}"))
            } else {
                String::new()
            };
            (format!("{name}_{of}"), text)
        }));
    }
    columns.extend(named(&LAST));
    let expected_len = FIRST.len() + 7 * SUMMARY.len() + LAST.len();
    assert_eq!(columns.len(), expected_len, "each run has all columns");
    columns
}

fn stored(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).expect("the keys are strings and numbers")
}

/// The text of what a path leads to.
fn field(value: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(value, |value, key| value.get(key));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if number.is_f64() => {
            without_exponent(number.as_f64().unwrap_or(f64::NAN))
        }
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

/// Without an exponent, which not every spreadsheet knows; three places behind the point are nanoseconds.
fn without_exponent(value: f64) -> String {
    let text = format!("{value:.6}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

fn line<'a>(fields: impl Iterator<Item = &'a str>, out: &mut String) {
    for (index, field) in fields.enumerate() {
        if index > 0 {
            out.push(',');
        }
        // RFC 4180 section 2.6 and 2.7.
        if field.contains(['"', ',', '\n', '\r']) {
            out.push('"');
            out.push_str(&field.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(field);
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn has_a_field_below_every_header() {
        let columns = [sample::closed(), sample::open(), sample::empty()].map(|of| run(0, &of));
        let at = |name: &str, run: usize| {
            let column = columns[run].iter().find(|(head, _)| head == name);
            column.unwrap().1.as_str()
        };
        assert_eq!((at("answered", 0), at("late_p50_us", 0)), ("20000", ""));
        assert_eq!((at("answered", 2), at("latency_p50_us", 2)), ("0", ""));
        assert_eq!(columns[1].len(), columns[2].len());
    }

    #[test]
    fn quotes_what_would_end_a_field() {
        let mut run = sample::closed();
        run.asked.label = "a \"b\",\nc".to_owned();
        assert!(csv(&[run]).contains("\n1,\"a \"\"b\"\",\nc\",http"));
    }

    #[test]
    fn has_a_line_for_each_second_of_each_run() {
        let run = sample::open();
        let text = series_csv(&[run.clone(), run.clone()]);
        assert_eq!(text.lines().count(), 1 + 2 * run.series.len());
        assert!(text.lines().nth(1).unwrap().starts_with("1,"), "{text}");
        assert!(text.lines().last().unwrap().starts_with("2,"), "{text}");
    }
}
