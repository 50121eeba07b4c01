//! Distributions in the log format of HdrHistogram 1.3, for its plotter and its command line tools.
//!
//! Takes outcomes, gives one interval line for each run and distribution, tagged `latency`, `connect` and so
//! on. Histograms are in nanoseconds as they were stored; the longest value of a line is in milliseconds,
//! as the Java implementation writes it.

use std::fmt::Write as _;

use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use present::harmless;

use super::distributions;
use crate::distribution::Summary;
use crate::engine::Fault;
use crate::outcome::Outcome;

/// The log of these runs, in the order of time.
///
/// # Errors
/// A stored histogram cannot be decoded, which happens only to files that somebody has changed.
pub fn hdr_log(outcomes: &[Outcome]) -> Result<String, Fault> {
    let mut order: Vec<(usize, &Outcome)> = outcomes.iter().enumerate().collect();
    // Readers of the format take it for granted that time does not go back.
    order.sort_by_key(|(_, outcome)| outcome.began_unix_ms);
    let base_ms = order
        .first()
        .map_or(0, |(_, outcome)| outcome.began_unix_ms);
    let mut out = String::from(
        "#[Histogram log format version 1.3]\n#[values in nanoseconds, Interval_Max in milliseconds]\n",
    );
    let base_s = base_ms as f64 / 1e3;
    let _ = writeln!(out, "#[StartTime: {base_s:.3} (seconds since epoch)]");
    let _ = writeln!(out, "#[BaseTime: {base_s:.3} (seconds since epoch)]");
    out.push_str(
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_CompressedHistogram\"\n",
    );
    for (index, outcome) in order {
        run(index, outcome, base_ms, &mut out)?;
    }
    Ok(out)
}

fn run(index: usize, outcome: &Outcome, base_ms: u64, out: &mut String) -> Result<(), Fault> {
    let asked = &outcome.asked;
    let _ = writeln!(
        out,
        "#run {}: {} {}",
        index + 1,
        harmless(&asked.url, 200),
        harmless(&asked.label, 200)
    );
    let begin_s = (outcome.began_unix_ms - base_ms) as f64 / 1e3;
    for (tag, summary) in tagged(outcome) {
        // Tools that read the log would end with a message that names neither file nor run.
        if decoded(summary).is_none() {
            return Err(Fault::new(format!(
                "the histogram `times.{tag}.hdr` of run {} cannot be decoded",
                index + 1
            )));
        }
        // The format knows no words for what is not finite.
        let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
        let length_s = finite(outcome.seconds).max(0.0);
        let max_ms = finite(summary.max_us / 1e3);
        let _ = writeln!(
            out,
            "Tag={tag},{begin_s:.3},{length_s:.3},{max_ms:.3},{}",
            summary.hdr
        );
    }
    Ok(())
}

/// The distributions that have values, by name.
fn tagged(outcome: &Outcome) -> impl Iterator<Item = (&'static str, &Summary)> {
    let all = distributions(&outcome.times).into_iter();
    let known = all.filter_map(|(tag, summary)| Some((tag, summary?)));
    known.filter(|(_, summary)| summary.count > 0)
}

/// The histogram of a summary, in nanoseconds; `None`: it is not one.
pub(super) fn decoded(summary: &Summary) -> Option<Histogram<u64>> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(&summary.hdr);
    Deserializer::new()
        .deserialize(&mut bytes.ok()?.as_slice())
        .ok()
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::super::sample;
    use super::*;

    #[test]
    fn standard_tools_read_it() {
        let (closed, mut open) = (sample::closed(), sample::open());
        open.began_unix_ms = closed.began_unix_ms - 5_250;
        let text = hdr_log(&[closed.clone(), open.clone()]).unwrap();
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                let bytes = base64::engine::general_purpose::STANDARD
                    .decode(interval.encoded_histogram())
                    .unwrap();
                let histogram: Histogram<u64> = Deserializer::new()
                    .deserialize(&mut bytes.as_slice())
                    .unwrap();
                let tag = interval.tag().unwrap().as_str().to_owned();
                found.push((tag, interval.start_timestamp().as_millis(), histogram.len()));
            }
        }
        let expect = |outcome: &Outcome, start_ms: u128| -> Vec<(String, u128, u64)> {
            let lines = tagged(outcome);
            lines
                .map(|(tag, summary)| (tag.to_owned(), start_ms, summary.count))
                .collect()
        };
        assert_eq!(found, [expect(&open, 0), expect(&closed, 5_250)].concat());
        assert_eq!(found.len(), 11);
    }

    #[test]
    fn a_label_stays_within_its_comment() {
        let mut run = sample::closed();
        run.asked.label = "a\nTag=latency,0,1,2,x".to_owned();
        let text = hdr_log(&[run]).unwrap();
        assert!(text.contains("a\\x0aTag"), "{text}");
    }

    #[test]
    fn names_a_histogram_that_is_none() {
        let mut run = sample::closed();
        run.times.cycle.hdr = "AAAA".to_owned();
        let fault = hdr_log(&[run]).unwrap_err();
        assert_eq!(
            fault.text,
            "the histogram `times.cycle.hdr` of run 1 cannot be decoded"
        );
    }

    #[test]
    fn nothing_is_a_log_as_well() {
        let text = hdr_log(&[sample::empty()]).unwrap();
        assert!(!text.contains("Tag="), "{text}");
        assert!(
            hdr_log(&[])
                .unwrap()
                .starts_with("#[Histogram log format version 1.3]\n")
        );
    }
}
