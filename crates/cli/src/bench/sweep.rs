//! `milepost bench sweep`: runs over a range of one number of the load.
//!
//! Takes flags, makes a run for each value and repetition, prints the table. 0: done. 2: wrong use, or
//! not a single request was answered.

use std::thread;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use loadgen::engine::Fault;
use loadgen::outcome::Outcome;
use loadgen::output;
use loadgen::plan::Plan;
use loadgen::spec::FlagForm::Switch;
use loadgen::spec::Key;
use loadgen::sweep::{Sweep, SweepRun};
use present::{Axis, Chart, Page, Scale};

use super::flags::{self, Output, Place};
use super::live::Stop;
use super::replay::Disk;
use super::runs::{self, message};
use crate::command::Purpose;
use crate::environment::cause;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE};

/// Fewer repetitions say little about chance.
const REPEAT: usize = 5;
const REPEAT_MAX: usize = 1_000;
/// What a run has left behind in the kernel settles before the next one.
const REST: Duration = Duration::from_millis(500);

const ABOUT: &str = "Measure over a range of one number of the load";

const EXAMPLES: &str = "\
Examples:
  milepost bench sweep --connections 10..250:10 --repeat 5 http://127.0.0.1:8000/
  milepost bench sweep -c 64 --rate 1000..10000:1000 -d 5s http://127.0.0.1:8000/
  milepost bench sweep -c 16,64,256 -d 2s --html clients.html http://127.0.0.1:8000/

One of --connections, --rate, --pipeline and the other numbers of a load takes a range, as
FROM..TO:STEP, or a list. Exit: 0 done, 2 it could not be done or nothing was answered.";

/// A form of the results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SweepForm {
    Json,
    Html,
}

/// What was asked for.
struct SweepOptions {
    sweep: Sweep,
    /// A plan for each value.
    plans: Vec<(u64, Plan)>,
    repeat: usize,
    outputs: Vec<Output<SweepForm>>,
    is_quiet: bool,
}

/// The flags of a sweep beside those of a load.
const OWN: &[Key] = loadgen::key_table! {
    Results {
        "repeat" "Repetitions of the whole range" { placeholder: "N", default: "5" }
        "json" "Write the runs, as of `milepost bench`; `-` is standard output" { placeholder: "FILE" }
        "html" "Write a page with picture and table; `-` is standard output" { placeholder: "FILE" }
        "quiet" "No progress and no table" { form: Switch, short: Some('q') }
    }
};

fn args(purpose: Purpose) -> impl Iterator<Item = Arg> {
    let none = None::<&str>;
    let arg = move |key| flags::arg(key, purpose).help_heading(none).long_help(none);
    OWN.iter().map(arg)
}

/// The subcommand.
pub(super) fn command(purpose: Purpose) -> Command {
    Command::new("sweep")
        .about(ABOUT)
        .after_help(EXAMPLES)
        .args_override_self(true)
        .args(args(purpose))
        .args(flags::load_args(purpose))
}

/// Runs a sweep to its end and gives the exit code.
pub(super) fn run(matches: &ArgMatches) -> i32 {
    let mut faults = Vec::new();
    let options = options(matches, &mut faults);
    let stop = Stop::listen().map_err(|error| faults.push(Message::new("signals", cause(&error))));
    let (Some(options), Ok(stop), true) = (options, stop, faults.is_empty()) else {
        message::say_all(&faults);
        return COULD_NOT;
    };
    let mut runs = Vec::new();
    let ended = measure(&options, &stop, &mut runs);
    let mut messages: Vec<Message> = ended.err().iter().map(message).collect();
    messages.extend(show(&options, &runs));
    let outcomes: Vec<Outcome> = runs.into_iter().map(|run| run.outcome).collect();
    let address = &options.plans[0].1.target.address;
    messages.extend(runs::unanswered(&outcomes, address));
    if outcomes.is_empty() && messages.is_empty() {
        messages.push(Message::new(
            "sweep",
            "it was interrupted before its first result",
        ));
    }
    message::say_all(&messages);
    if messages.is_empty() { DONE } else { COULD_NOT }
}

/// Understands the flags; all faults at once.
fn options(matches: &ArgMatches, faults: &mut Vec<Message>) -> Option<SweepOptions> {
    let load = flags::load(matches);
    let sweep = Sweep::of(&load).map_err(|fault| faults.push(message(&fault)));
    let repeat = flags::count(matches, "repeat", REPEAT_MAX, faults).unwrap_or(REPEAT);
    let forms = [("json", SweepForm::Json), ("html", SweepForm::Html)];
    let outputs = flags::outputs(matches, &forms, faults);
    let sweep = sweep.ok()?;
    let plan = |value: &u64| {
        let plan = sweep.load(&load, *value).plan(&Disk { pattern: None });
        plan.map(|plan| (*value, plan))
    };
    let plans = sweep.values.iter().map(plan).collect::<Result<_, _>>();
    let plans = plans.map_err(|found: Vec<Fault>| faults.extend(found.iter().map(message)));
    Some(SweepOptions {
        plans: plans.ok()?,
        sweep,
        repeat,
        outputs,
        is_quiet: matches.get_flag("quiet"),
    })
}

/// All values in each repetition, so that a drift of the host falls on all of them alike. A run that was ended early is
/// no measurement.
fn measure(options: &SweepOptions, stop: &Stop, made: &mut Vec<SweepRun>) -> Result<(), Fault> {
    for repetition in 1..=options.repeat {
        for (value, plan) in &options.plans {
            let name = format!(
                "{value} {}, repetition {repetition} of {}",
                options.sweep.column, options.repeat
            );
            let mut outcome = runs::watched(plan, name, stop, options.is_quiet)?;
            if stop.is_asked_for() {
                return Ok(());
            }
            outcome.asked.label = format!("{value} {}", options.sweep.column);
            made.push(SweepRun {
                value: *value,
                outcome,
            });
            thread::sleep(REST);
        }
    }
    Ok(())
}

/// Writes the results; gives what could not be written.
fn show(options: &SweepOptions, runs: &[SweepRun]) -> Vec<Message> {
    let column = options.sweep.column;
    let title = format!("Requests a second by {column}");
    let scale = Scale::of(Axis::Linear, Axis::Linear);
    let labels = [column, "requests a second"];
    let chart = Chart::of(&title, labels, scale, vec![options.sweep.line(runs)]);
    let mut messages = Vec::new();
    for output in &options.outputs {
        let text = match output.form {
            SweepForm::Json => json(runs),
            SweepForm::Html => page(options, &chart, runs),
        };
        messages.extend(output.place.write(&text).err());
    }
    let has_stdout = options
        .outputs
        .iter()
        .any(|output| output.place == Place::Stdout);
    if !options.is_quiet && !has_stdout {
        messages.extend(message::result(&options.sweep.text(runs)).err());
    }
    messages
}

fn page(options: &SweepOptions, chart: &Chart, runs: &[SweepRun]) -> String {
    let mut page = Page::new(&chart.title);
    page.charts([chart]).table(&options.sweep.table(runs));
    for note in options.sweep.notes(runs) {
        page.paragraph(&note);
    }
    page.finish()
}

fn json(runs: &[SweepRun]) -> String {
    let outcomes: Vec<Outcome> = runs.iter().map(|run| run.outcome.clone()).collect();
    output::json(&outcomes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[track_caller]
    fn asked(flags: &[&str]) -> Result<SweepOptions, String> {
        let words = ["sweep", "http://127.0.0.1:8000/"].iter().chain(flags);
        let matches = command(Purpose::Run).try_get_matches_from(words);
        let mut faults = Vec::new();
        let options = options(&matches.expect("known flags"), &mut faults);
        match (options, faults.is_empty()) {
            (Some(options), true) => Ok(options),
            _ => Err(faults.iter().map(Message::text).collect()),
        }
    }

    #[test]
    fn plans_a_run_for_each_value() {
        let options = asked(&["-c", "1..3:1"]).expect("options");
        assert_eq!(options.repeat, REPEAT);
        let plans = options
            .plans
            .iter()
            .map(|(value, plan)| (*value, plan.connections.len));
        assert_eq!(plans.collect::<Vec<_>>(), [(1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn says_all_that_is_wrong_at_once() {
        let text = asked(&[
            "-c", "10..5:1", "--repeat", "0", "--json", "-", "--html", "-",
        ]);
        let expect = "\
milepost: `--connections 10..5:1`: 5 is less than 10
hint: a range is FROM..TO:STEP, as `10..250:10`; a list has commas, as `10,20,50`
milepost: `--repeat`: expected a count from 1 to 1000, found `0`
milepost: `--html`: `-` is written to already
";
        assert_eq!(text.err().expect("faults"), expect);
        let text = asked(&["-c", "5,9", "-t", "7"]).err().expect("a fault");
        assert!(text.contains("more threads than connections"), "{text}");
    }

    #[test]
    fn writes_every_form_and_says_which_file_cannot_be_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (json, html) = (path("a.json"), path("a.html"));
        let flags = ["-c", "1,2", "-q", "--json", &json, "--html", &html];
        let options = asked(&flags).expect("options");
        assert_eq!(show(&options, &[]), []);
        let read = |path: &str| fs::read_to_string(path).expect("a file");
        assert!(read(&json).starts_with("{\"schema\":"));
        assert!(read(&html).contains("<h1>Requests a second by clients</h1>"));
        folder.close().expect("it is ours");
        let messages = show(&options, &[]);
        assert_eq!(messages.len(), 2);
        let expect = format!("milepost: `{json}`: cannot be written: no such file");
        assert!(
            messages[0].text().starts_with(&expect),
            "{}",
            messages[0].text()
        );
    }
}
