//! `milepost bench sweep`: runs over a range of one number of the load.
//!
//! Takes flags, makes a run for each value and repetition, prints the table. 0: done. 2: wrong use, or
//! not a single request was answered.

use std::thread;
use std::time::Duration;

use clap::{ArgMatches, Command};
use loadgen::engine::Fault;
use loadgen::outcome::Outcome;
use loadgen::output;
use loadgen::plan::Plan;
use loadgen::spec::FlagForm::Switch;
use loadgen::spec::{self, Key};
use loadgen::sweep::Sweep;
use present::{Axis, Chart, Page, Scale};

use super::flags::{self, Output};
use super::live::Stop;
use super::replay::Disk;
use super::runs::{self, message};
use crate::command::Purpose;
use crate::environment::cause;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE};

const ABOUT: &str = "Measure over a range of one number of the load";

const EXAMPLES: &str = "\
Examples:
  milepost bench sweep --connections 10..250:10 --repeat 5 http://127.0.0.1:8000/
  milepost bench sweep -c 64 --rate 1000..10000:1000 -d 5s http://127.0.0.1:8000/
  milepost bench sweep -c 16,64,256 -d 2s --html clients.html http://127.0.0.1:8000/

One of --connections, --rate, --pipeline and the other numbers of a load takes a range, as
FROM..TO:STEP, or a list. Exit: 0 done, 2 it could not be done or nothing was answered.";

/// A form of the results.
type SweepForm = fn(&Sweep, &[Outcome]) -> String;

/// The forms by their flags.
const FORMS: [(&str, SweepForm); 2] = [("json", |_, runs| output::json(runs)), ("html", page)];

/// What was asked for.
struct SweepOptions {
    sweep: Sweep,
    /// A plan for each value.
    plans: Vec<Plan>,
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

/// The subcommand.
pub(super) fn command(purpose: Purpose) -> Command {
    Command::new("sweep")
        .about(ABOUT)
        .after_help(EXAMPLES)
        .args_override_self(true)
        .args(flags::own_args(OWN, purpose))
        .args(flags::args(spec::keys().iter(), purpose))
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
    // Shown even after a failure: the runs before it took minutes, and are whole.
    messages.extend(show(&options, &runs));
    let address = &options.plans[0].target.address;
    messages.extend(runs::unanswered(&runs, address));
    if runs.is_empty() && messages.is_empty() {
        let cause = "it was interrupted before its first result";
        messages.push(Message::new("sweep", cause));
    }
    message::say_all(&messages);
    if messages.is_empty() { DONE } else { COULD_NOT }
}

/// Understands the flags; all faults at once.
fn options(matches: &ArgMatches, faults: &mut Vec<Message>) -> Option<SweepOptions> {
    let load = flags::load(matches);
    let sweep = Sweep::of(&load).map_err(|fault| faults.push(message(&fault)));
    // Fewer repetitions say little about chance.
    let repeat = flags::count(matches, "repeat", 1_000, faults).unwrap_or(5);
    let outputs = flags::outputs(matches, &FORMS, faults);
    let sweep = sweep.ok()?;
    let plan = |value: &u64| sweep.load(&load, *value).plan(&Disk { pattern: None });
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

fn measure(options: &SweepOptions, stop: &Stop, made: &mut Vec<Outcome>) -> Result<(), Fault> {
    let SweepOptions { sweep, repeat, .. } = options;
    // All values in each repetition, so that a drift of the host falls on all of them alike.
    for repetition in 1..=*repeat {
        for (value, plan) in sweep.values.iter().zip(&options.plans) {
            let label = format!("{value} {}", sweep.column);
            let name = format!("{label}, repetition {repetition} of {repeat}");
            let mut outcome = runs::watched(plan, name, stop, options.is_quiet)?;
            // A run that was ended early is no measurement.
            if stop.is_asked_for() {
                return Ok(());
            }
            outcome.asked.label = label;
            made.push(outcome);
            // What a run has left behind in the kernel settles before the next one.
            thread::sleep(Duration::from_millis(500));
        }
    }
    Ok(())
}

/// Writes the results; gives what could not be written.
fn show(options: &SweepOptions, runs: &[Outcome]) -> Vec<Message> {
    let SweepOptions { sweep, outputs, .. } = options;
    let write = |output: &Output<SweepForm>| output.place.write(&(output.form)(sweep, runs)).err();
    let mut messages: Vec<Message> = outputs.iter().filter_map(write).collect();
    if !options.is_quiet && !flags::has_stdout(outputs) {
        messages.extend(message::result(&sweep.text(runs)).err());
    }
    messages
}

fn page(sweep: &Sweep, runs: &[Outcome]) -> String {
    let title = format!("Requests a second by {}", sweep.column);
    let scale = Scale::of(Axis::Linear, Axis::Linear);
    let labels = [sweep.column, "requests a second"];
    let chart = Chart::of(&title, labels, scale, vec![sweep.line(runs)]);
    let mut page = Page::new(&title);
    page.charts([&chart]).table(&sweep.table(runs));
    for note in sweep.notes(runs) {
        page.paragraph(&note);
    }
    page.finish()
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
        assert_eq!(options.repeat, 5);
        let plans = options.plans.iter().map(|plan| plan.connections.len);
        assert_eq!(plans.collect::<Vec<_>>(), [1, 2, 3]);
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
