//! Runs and their seconds as CSV, RFC 4180 with LF: for spreadsheets and for whatever draws.
//!
//! Takes outcomes, gives text with a header line. Columns are only ever added at the end. A number that
//! there is not is an empty field.

use crate::distribution::Summary;
use crate::outcome::{AskedLeg, Outcome, Second};
use crate::plan::Closing;

/// A header, and what stands below it.
type Column = (String, String);

/// One line a run.
pub fn csv(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for (index, outcome) in outcomes.iter().enumerate() {
        let columns = run(index, outcome);
        if index == 0 {
            line(columns.iter().map(|(name, _)| name.as_str()), &mut out);
        }
        line(columns.iter().map(|(_, value)| value.as_str()), &mut out);
    }
    out
}

/// One line a second of each run; warming up has negative seconds.
pub fn series_csv(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let names = [
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
    line(names.into_iter(), &mut out);
    for (index, outcome) in outcomes.iter().enumerate() {
        for at in &outcome.series {
            let values = second(index, &outcome.asked.label, at);
            line(values.iter().map(String::as_str), &mut out);
        }
    }
    out
}

fn second(index: usize, label: &str, at: &Second) -> [String; 9] {
    [
        (index + 1).to_string(),
        label.to_owned(),
        at.at_s.to_string(),
        at.answered.to_string(),
        at.failed.to_string(),
        at.read_bytes.to_string(),
        number(at.p50_us),
        number(at.p99_us),
        number(at.max_us),
    ]
}

fn run(index: usize, outcome: &Outcome) -> Vec<Column> {
    let mut columns = asked(index, outcome);
    counts(outcome, &mut columns);
    let times = &outcome.times;
    for (name, summary) in [
        ("latency", Some(&times.latency)),
        ("connect", Some(&times.connect)),
        ("first_byte", Some(&times.first_byte)),
        ("last_byte", Some(&times.last_byte)),
        ("cycle", Some(&times.cycle)),
        ("late", times.late.as_ref()),
        ("unread", times.unread.as_ref()),
    ] {
        summarised(name, summary, &mut columns);
    }
    sides(outcome, &mut columns);
    columns
}

fn asked(index: usize, outcome: &Outcome) -> Vec<Column> {
    let asked = &outcome.asked;
    let columns = [
        ("run", (index + 1).to_string()),
        ("label", asked.label.clone()),
        ("url", asked.url.clone()),
        ("load", asked.load.clone()),
        ("rate", asked.rate.map_or_else(String::new, number)),
        ("connections", asked.connections.to_string()),
        ("in_flight", asked.in_flight.to_string()),
        (
            "requests_each",
            asked
                .requests_each
                .map_or_else(String::new, |each| each.to_string()),
        ),
        ("closing", closing(asked.closing).to_owned()),
        ("threads", asked.threads.to_string()),
        ("began_unix_ms", outcome.began_unix_ms.to_string()),
        ("seconds", number(outcome.seconds)),
        ("requests_per_s", number(outcome.per_second())),
    ];
    columns.map(|(name, value)| (name.to_owned(), value)).into()
}

pub(super) fn closing(closing: Closing) -> &'static str {
    match closing {
        Closing::Rst => "rst",
        Closing::Fin => "fin",
        Closing::Server => "server",
    }
}

fn counts(outcome: &Outcome, columns: &mut Vec<Column>) {
    let counts = &outcome.counts;
    let failures = &counts.failures;
    for (name, count) in [
        ("answered", counts.answered),
        ("answered_within", counts.within()),
        ("failed", failures.sum()),
        ("failed_connect", failures.connect),
        ("failed_reset", failures.reset),
        ("failed_timeout", failures.timeout),
        ("failed_short", failures.short),
        ("failed_status", failures.status),
        ("failed_body", failures.body),
        ("failed_local", failures.local),
        ("disturbed", counts.disturbed),
        ("unsent", counts.unsent),
        ("unfinished", counts.unfinished),
        ("connections_made", counts.connections),
        ("read_bytes", counts.read_bytes),
        ("sent_bytes", counts.sent_bytes),
    ] {
        columns.push((name.to_owned(), count.to_string()));
    }
}

fn summarised(name: &str, summary: Option<&Summary>, columns: &mut Vec<Column>) {
    let known = summary.filter(|summary| summary.count > 0);
    let values: [(&str, Option<f64>); 11] = [
        ("mean", known.map(|of| of.mean_us)),
        ("stdev", known.map(|of| of.stdev_us)),
        ("min", known.map(|of| of.min_us)),
        ("p50", known.map(|of| of.p50_us)),
        ("p75", known.map(|of| of.p75_us)),
        ("p90", known.map(|of| of.p90_us)),
        ("p95", known.map(|of| of.p95_us)),
        ("p99", known.and_then(|of| of.p99_us)),
        ("p99_9", known.and_then(|of| of.p99_9_us)),
        ("p99_99", known.and_then(|of| of.p99_99_us)),
        ("max", known.map(|of| of.max_us)),
    ];
    for (of, value) in values {
        columns.push((
            format!("{name}_{of}_us"),
            value.map_or_else(String::new, number),
        ));
    }
}

fn sides(outcome: &Outcome, columns: &mut Vec<Column>) {
    let (generator, server) = (&outcome.generator, outcome.server.as_ref());
    let busiest = generator.threads.iter().map(|thread| thread.cpu_share);
    let words: Vec<&str> = outcome
        .remarks
        .iter()
        .map(|remark| remark.word.as_str())
        .collect();
    let all = [
        (
            "generator_cpu_us_per_request",
            number(generator.cpu_us_per_request),
        ),
        (
            "generator_cpu_share_max",
            number(busiest.fold(0.0, f64::max)),
        ),
        (
            "generator_resident_bytes",
            generator.resident_bytes.to_string(),
        ),
        ("generator_stalled_s", number(generator.stalled_s)),
        ("foreign_cpu_share", number(generator.foreign_cpu_share)),
        (
            "server_cpu_us_per_request",
            server.map_or_else(String::new, |server| number(server.cpu_us_per_request)),
        ),
        (
            "server_cpu_share",
            server.map_or_else(String::new, |server| number(server.cpu_share)),
        ),
        (
            "server_resident_bytes",
            server.map_or_else(String::new, |server| server.resident_bytes.to_string()),
        ),
        ("valid", outcome.is_valid().to_string()),
        ("remarks", words.join(" ")),
        ("rate_legs", AskedLeg::written(&outcome.asked.rate_legs)),
        (
            "connections_legs",
            AskedLeg::written(&outcome.asked.connections_legs),
        ),
    ];
    columns.extend(all.map(|(name, value)| (name.to_owned(), value)));
}

/// Without an exponent, which not every spreadsheet knows; three places behind the point are nanoseconds.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
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
        let text = csv(&[sample::closed(), sample::open(), sample::empty()]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 4);
        let at = |name: &str, run: usize| {
            let column = lines[0].iter().position(|head| *head == name).unwrap();
            lines[run][column]
        };
        // "open, constant" is quoted and has a comma of its own.
        assert_eq!(lines[1].len(), lines[0].len());
        assert_eq!(lines[2].len(), lines[0].len() + 1);
        assert_eq!(lines[3].len(), lines[0].len());
        assert_eq!((at("answered", 1), at("late_p50_us", 1)), ("20000", ""));
        assert_eq!((at("answered", 3), at("latency_p50_us", 3)), ("0", ""));
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
