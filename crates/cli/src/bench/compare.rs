//! `milepost bench compare`: ratios of runs that were stored, with intervals, and what of it is noise.
//!
//! Takes files of `--json`, prints a table or JSON. Measures nothing.

use std::fs;
use std::io;

use clap::{Arg, ArgMatches, Command, ValueHint};
use loadgen::engine::Fault;
use loadgen::outcome::Outcome;
use loadgen::output::read_json;
use loadgen::spec::{FlagForm, Key};
use loadgen::statistics::{Comparison, Metric, Set, compare};

use super::flags;
use crate::command::Purpose;
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

const OWN: &[Key] = loadgen::key_table! {
    Results {
        "metrics" "Only these figures, in this order: rps,p50,p99" { placeholder: "LIST" }
        "json" "Print JSON" { form: FlagForm::Switch }
        "fail_on" "Exit with 1 when a figure is worse beyond noise: worse" { placeholder: "CHANGE" }
    }
};

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
        .args(flags::own_args(OWN, Purpose::Run))
        .mut_arg("fail_on", |arg| arg.value_parser(["worse"]))
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
    if matches.get_one::<String>("fail_on").is_none() {
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
    let metrics = matches.get_one::<String>("metrics");
    let metrics = metrics.map(|names| Metric::parse_list(names)).transpose();
    let metrics = metrics.map_err(|fault| messages.push(flags::of_fault("--metrics", fault)));
    let mut sets = Vec::new();
    for name in matches.get_many::<String>("file").into_iter().flatten() {
        match read_runs(name) {
            Ok(runs) => sets.push(Set {
                name: name.clone(),
                runs,
            }),
            Err(fault) => messages.push(flags::of_fault(&format!("`{name}`"), fault)),
        }
    }
    // All faults at once: files take minutes to make again.
    if !messages.is_empty() {
        return Err(messages);
    }
    let comparison = compare(&sets, metrics.unwrap_or_default().as_deref());
    if comparison.panels.is_empty() {
        let cause = comparison.warnings.join("; ");
        let hint =
            "give files whose runs asked for the same, or one whose runs have several labels";
        return Err(vec![
            Message::new("nothing to compare", cause).with_hint(hint),
        ]);
    }
    Ok(comparison)
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
    match name {
        "-" => io::read_to_string(io::stdin()),
        name => fs::read_to_string(name),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use loadgen::outcome::SCHEMA;
    use loadgen::output::json;
    use tempfile::TempDir;

    use super::*;

    /// A run as it is stored.
    fn stored(label: &str, rate: u64) -> Outcome {
        let mut run = Outcome {
            schema: SCHEMA,
            seconds: 10.0,
            ..Outcome::default()
        };
        run.asked.label = label.to_owned();
        run.counts.answered = rate * 10;
        run.times.latency.count = rate * 10;
        run.times.latency.p99_us = Some(1000.0);
        run
    }

    fn file(folder: &TempDir, name: &str, text: &str) -> String {
        let path: PathBuf = folder.path().join(name);
        fs::write(&path, text).expect("a fresh folder");
        path.to_str().expect("the name is ASCII").to_owned()
    }

    fn runs(folder: &TempDir, name: &str, runs: &[Outcome]) -> String {
        file(folder, name, &json(runs))
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
