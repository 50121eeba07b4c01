//! `milepost bench compare`: ratios of runs that were stored, with intervals, and what of it is noise.
//!
//! Takes files of `--json`, prints a table or JSON. Measures nothing.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use loadgen::engine::Fault;
use loadgen::outcome::Outcome;
use loadgen::output::read_json;
use loadgen::statistics::{Comparison, Metric, Set, compare};

use crate::environment::cause;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO};

const ABOUT: &str = "Compare stored runs: ratios with intervals, and what is noise";

const LONG_ABOUT: &str = "\
Compare stored runs: ratios to the first file's with 95 % intervals, and what is noise.

Each FILE is one of `milepost bench --json FILE` and may hold several runs (--repeat 5). Runs that
asked for the same are compared; the n-th run of one file is paired with the n-th of the other, so
runs that were made in turns are compared as they were made. A single file is taken apart by the
labels of its runs. One run a side gives ratios without intervals.";

const EXAMPLES: &str = "\
Examples:
  milepost bench compare before.json after.json
  milepost bench compare before.json after.json --metrics rps,p50,p99 --fail-on worse
  milepost bench compare nginx.json httpd.json milepost.json --json

Figures: rps, mean, stdev, min, max, p50 to p99.99, failures, unsent, read, cpu, generator-rss,
server-cpu, rss, switches; connect-p99, first-byte-p50, last-byte-max, cycle-mean, late-p99.
Exit: 0 done, 1 something is worse and --fail-on worse was given, 2 something could not be read, or
nothing could be judged and --fail-on worse was given.";

/// The subcommand.
pub(crate) fn command() -> Command {
    Command::new("compare")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
        .args_override_self(true)
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .help("Stored runs, `-` for standard input; the others are compared with the first")
                .value_hint(ValueHint::FilePath)
                .required(true)
                .num_args(1..),
        )
        .arg(
            Arg::new("metrics")
                .long("metrics")
                .value_name("LIST")
                .help("Only these figures, in this order: rps,p50,p99"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .help("Print JSON")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("fail-on")
                .long("fail-on")
                .value_name("CHANGE")
                .help("Exit with 1 when a figure is worse beyond noise: worse")
                .value_parser(PossibleValuesParser::new(["worse"])),
        )
}

/// 0: compared. 1: something is worse, and that was asked for. 2: something could not be read, or written, or
/// nothing could be judged, and a verdict was asked for.
pub(crate) fn run(matches: &ArgMatches) -> i32 {
    let comparison = match compared(matches) {
        Ok(comparison) => comparison,
        Err(messages) => {
            message::say_all(&messages);
            return COULD_NOT;
        }
    };
    let shown = message::result(&if matches.get_flag("json") {
        comparison.json()
    } else {
        comparison.text()
    });
    if let Err(message) = shown {
        message.say();
        return COULD_NOT;
    }
    if matches.get_one::<String>("fail-on").is_none() {
        return DONE;
    }
    if !comparison.is_judged() {
        // Whoever asks for a verdict must not take silence for a good one.
        let cause = "no figure could be judged";
        let hint = "the comparison says why";
        Message::new("`--fail-on`", cause).with_hint(hint).say();
        return COULD_NOT;
    }
    match comparison.is_worse() {
        true => NO,
        false => DONE,
    }
}

fn compared(matches: &ArgMatches) -> Result<Comparison, Vec<Message>> {
    let mut messages = Vec::new();
    let metrics = match matches.get_one::<String>("metrics") {
        None => None,
        Some(names) => match Metric::parse_list(names) {
            Ok(metrics) => Some(metrics),
            Err(fault) => {
                messages.push(said("--metrics", fault));
                None
            }
        },
    };
    let mut sets = Vec::new();
    for name in matches.get_many::<String>("file").into_iter().flatten() {
        match read_runs(name) {
            Ok(runs) => sets.push(Set {
                name: name.clone(),
                runs,
            }),
            Err(fault) => messages.push(said(&format!("`{name}`"), fault)),
        }
    }
    // All faults at once: files take minutes to make again.
    if !messages.is_empty() {
        return Err(messages);
    }
    let comparison = compare(&sets, metrics.as_deref());
    if comparison.panels.is_empty() {
        return Err(vec![nothing(&comparison)]);
    }
    Ok(comparison)
}

fn nothing(comparison: &Comparison) -> Message {
    let what = comparison.warnings.join("; ");
    Message::new("nothing to compare", what).with_hint(
        "give files whose runs asked for the same, or one whose runs have several labels",
    )
}

fn said(what: &str, fault: Fault) -> Message {
    Message::new(what, fault.text).with_hint_maybe(fault.hint)
}

/// The runs of a file, at least one.
fn read_runs(name: &str) -> Result<Vec<Outcome>, Fault> {
    let text = text_of(name).map_err(|error| Fault::new(cause(&error)))?;
    let runs = read_json(&text)?;
    // An empty file would be compared with anything, and nothing would be worse.
    if runs.is_empty() {
        return Err(Fault::new("holds no run"));
    }
    Ok(runs)
}

fn text_of(name: &str) -> io::Result<String> {
    if name == "-" {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text)?;
        Ok(text)
    } else {
        fs::read_to_string(Path::new(name))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;

    /// A run as it is stored.
    fn stored(label: &str, rate: u64) -> Value {
        let times = json!({
            "count": rate * 10, "mean_us": 900.0, "stdev_us": 10.0, "min_us": 500.0, "p50_us": 800.0,
            "p75_us": 850.0, "p90_us": 900.0, "p95_us": 950.0, "p99_us": 1000.0, "p99_9_us": null,
            "p99_99_us": null, "max_us": 2000.0, "hdr": "",
        });
        json!({
            "schema": 2, "milepost": "0", "began_unix_ms": 0, "seconds": 10.0,
            "asked": {
                "url": "http://127.0.0.1/", "label": label, "load": "closed", "rate": null,
                "connections": 64, "in_flight": 1, "requests_each": null, "closing": "rst",
                "threads": 1, "requests": ["GET /"], "timeout_s": 10.0,
            },
            "counts": {
                "answered": rate * 10,
                "failures": {
                    "connect": 0, "reset": 0, "timeout": 0, "short": 0, "status": 0, "body": 0,
                    "local": 0,
                },
                "disturbed": 0, "unsent": 0, "unfinished": 0, "connections": 64, "ended_idle": 0,
                "left_open": 0, "resumed": 0, "read_bytes": 1000, "sent_bytes": 1000, "statuses": {},
            },
            "times": {
                "latency": times, "connect": times, "first_byte": times, "last_byte": times,
                "cycle": times, "late": null,
            },
            "series": [],
            "generator": {
                "threads": [], "cpu_us_per_request": 9.0, "resident_bytes": 1, "stalled_s": 0.0,
                "resident_early_bytes": 1, "foreign_cpu_share": 0.0,
            },
            "server": null, "kernel": {}, "bad_clients": [], "remarks": [],
        })
    }

    fn file(folder: &TempDir, name: &str, text: &str) -> String {
        let path: PathBuf = folder.path().join(name);
        fs::write(&path, text).expect("a fresh folder");
        path.to_str().expect("the name is ASCII").to_owned()
    }

    fn runs(folder: &TempDir, name: &str, runs: &[Value]) -> String {
        let text = json!({"schema": 2, "runs": runs}).to_string();
        file(folder, name, &text)
    }

    fn set(folder: &TempDir, name: &str, rate: u64) -> String {
        let of = |more: u64| stored("", rate + more);
        runs(folder, name, &[0, 3, 1, 2, 4].map(of))
    }

    fn matches(words: &[&str]) -> ArgMatches {
        let words = ["compare"].iter().chain(words);
        command().try_get_matches_from(words).expect("good flags")
    }

    #[track_caller]
    fn refused(words: &[&str]) -> String {
        let matches = matches(words);
        assert_eq!(run(&matches), COULD_NOT);
        let messages = compared(&matches).expect_err("it could not be read");
        messages.iter().map(Message::text).collect()
    }

    #[test]
    fn is_a_sound_command() {
        command().debug_assert();
        let other = command().try_get_matches_from(["compare", "a", "--fail-on", "better"]);
        assert!(other.is_err());
        assert!(command().try_get_matches_from(["compare"]).is_err());
    }

    #[test]
    fn shows_the_figures_that_were_asked_for() {
        let folder = TempDir::new().expect("a folder");
        let (slow, quick) = (set(&folder, "a", 1_000), set(&folder, "b", 2_000));
        let words = [&*slow, &*quick, "--metrics", "p99,rps,server-cpu"];
        let comparison = compared(&matches(&words)).expect("two good files");
        let rows = comparison.panels[0].rows.iter();
        let names: Vec<String> = rows.map(|row| row.metric.to_string()).collect();
        assert_eq!(names, ["p99", "rps", "server-cpu"]);
    }

    #[test]
    fn says_all_that_cannot_be_read() {
        let folder = TempDir::new().expect("a folder");
        let newer = file(&folder, "newer", r#"{"schema": 3, "runs": []}"#);
        let empty = file(&folder, "empty", r#"{"schema": 2, "runs": []}"#);
        let foreign = file(&folder, "foreign", "requests: 5");
        let broken = file(&folder, "broken", r#"{"schema": 2, "runs": [{}]}"#);
        let words = [
            &*newer,
            &*empty,
            &*foreign,
            &*broken,
            "/none",
            "--metrics",
            "rsp",
        ];
        let text = refused(&words);
        for part in [
            "milepost: --metrics: `rsp`: unknown figure\nhint: did you mean `rps`?\n",
            "newer`: this file has schema 3, and this version reads schema 2\nhint: ",
            "empty`: holds no run\n",
            "foreign`: this is no JSON: ",
            "broken`: ",
            "milepost: `/none`: no such file or directory",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn says_that_there_is_nothing_to_compare() {
        let folder = TempDir::new().expect("a folder");
        let one = set(&folder, "a", 1_000);
        let text = refused(&[&one]);
        assert!(text.starts_with("milepost: nothing to compare: "), "{text}");
        let labelled = runs(&folder, "b", &[stored("x", 10), stored("y", 20)]);
        let comparison = compared(&matches(&[&labelled])).expect("two labels");
        assert_eq!(comparison.sets, ["x", "y"]);
    }
}
