//! The flags of `milepost bench`: those of the load from its table, and the command's own.
//!
//! Takes clap's matches, gives options or what is wrong with them. Opens nothing.

use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, ValueHint};
use loadgen::engine::Fault;
use loadgen::outcome::Outcome;
use loadgen::output;
use loadgen::spec::FlagForm::{Repeated, Switch};
use loadgen::spec::{self, FlagForm, FlagGroup, Key, LoadSpec};
use loadgen::statistics::Assertion;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use telemetry::Pattern;

use crate::command::Purpose;
use crate::environment::cause;
use crate::inputs::{expect, pattern, value};
use crate::message::{self, Message};

/// A form of the results of runs; the text is a title for pages.
pub(super) type OutputForm = fn(&[Outcome], &str) -> String;

/// The forms by their flags.
const FORMS: [(&str, OutputForm); 2] = [
    ("json", |runs, _| output::json(runs)),
    ("html", output::page),
];

/// What the command itself takes.
pub(super) const OWN: &[Key] = loadgen::key_table! {
    Machine {
        "admin_socket" "Control socket of a Milepost server whose processes are watched" { placeholder: "FILE" }
    }
    Load {
        "replay_format" "Template of the replayed log, as in access_log_format" { placeholder: "TEXT" }
    }
    Results {
        "repeat" "Number of runs" { placeholder: "N", default: "1" }
        "search" "Find the highest rate that keeps a condition: 'p99 < 20ms'" {
            placeholder: "CONDITION", example: "p99 < 20ms",
            doc: "The rate is doubled until the condition fails, then the gap is halved. `--rate` is the first rate."
        }
        "search_max" "Highest rate of a search" { placeholder: "RATE", default: "1000000" }
        "assert" "Exit with 1 unless a condition holds for every run: 'p99 < 5ms'" {
            form: Repeated, placeholder: "CONDITION", example: "p99 < 5ms and failures = 0"
        }
        "label" "Name of the run in results" { placeholder: "TEXT" }
        "json" "Write everything as JSON; `-` is standard output, here and for `--html`" { placeholder: "FILE" }
        "html" "Write an HTML page with percentiles, time line and table that loads nothing from the network" {
            placeholder: "FILE"
        }
        "quiet" "Print neither progress nor tables" { form: Switch, short: Some('q') }
        "plain" "Use no colours on a terminal" { form: Switch }
    }
};

/// What was asked for.
pub(super) struct BenchOptions {
    pub(super) load: LoadSpec,
    pub(super) runs: Runs,
    pub(super) outputs: Vec<Output<OutputForm>>,
    pub(super) label: String,
    pub(super) pattern: Option<Pattern>,
    pub(super) admin_socket: Option<PathBuf>,
    pub(super) is_quiet: bool,
    pub(super) is_plain: bool,
}

/// Which runs are made.
pub(super) enum Runs {
    /// The same one so many times, and what has to hold for each.
    Repeated {
        len: usize,
        assertions: Vec<Assertion>,
    },
    /// At one rate after another.
    Search {
        condition: Assertion,
        first: f64,
        most: f64,
    },
}

/// Where a form of the results goes.
#[derive(Clone, Debug)]
pub(super) struct Output<F> {
    pub(super) form: F,
    pub(super) place: Place,
}

/// A file or standard output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Stdout,
    File(PathBuf),
}

impl Place {
    /// Writes a text there.
    pub(super) fn write(&self, text: &str) -> Result<(), Message> {
        match self {
            Place::Stdout => message::result(text),
            Place::File(path) => fs::write(path, text).map_err(|error| {
                let what = format!("`{}`", path.display());
                Message::new(&what, format!("cannot be written: {}", cause(&error)))
            }),
        }
    }
}

/// Whether standard output belongs to programs.
pub(super) fn has_stdout<F>(outputs: &[Output<F>]) -> bool {
    outputs.iter().any(|output| output.place == Place::Stdout)
}

/// Keys as flags, by topic.
pub(super) fn args(keys: impl Iterator<Item = &'static Key>, purpose: Purpose) -> Vec<Arg> {
    keys.map(|key| arg(key, purpose)).collect()
}

/// The flags of another subcommand, without topics.
pub(super) fn own_args(keys: &'static [Key], purpose: Purpose) -> impl Iterator<Item = Arg> {
    let none = None::<&str>;
    let arg = move |key| arg(key, purpose).help_heading(none).long_help(none);
    keys.iter().map(arg)
}

/// All keys, by topic: those of the load first.
pub(super) fn rows() -> impl Iterator<Item = &'static Key> {
    FlagGroup::ALL.iter().flat_map(|group| {
        let all = spec::keys().iter().chain(OWN);
        all.filter(move |key| key.group == *group)
    })
}

/// Understands the flags.
///
/// # Errors
/// All that is wrong with the command's own; the load's are understood later.
pub(super) fn options(matches: &ArgMatches) -> (BenchOptions, Vec<Message>) {
    let mut faults = Vec::new();
    let load = load(matches);
    let outputs = outputs(matches, &FORMS, &mut faults);
    let options = BenchOptions {
        runs: runs(matches, &load, &mut faults),
        load,
        outputs,
        label: text(matches, "label").unwrap_or_default().to_owned(),
        pattern: value(matches, "replay_format", &mut faults, pattern),
        admin_socket: text(matches, "admin_socket").map(PathBuf::from),
        is_quiet: matches.get_flag("quiet"),
        is_plain: matches.get_flag("plain"),
    };
    // Of the replay's flags the load has all but this one, which is about reading the log.
    if options.pattern.is_some() && options.load.text("replay").is_none() {
        let message = Message::new("`--replay-format`", "means nothing without `--replay`");
        faults.push(message.with_hint("`--replay FILE` names a recording"));
    }
    (options, faults)
}

/// The texts of a load.
pub(super) fn load(matches: &ArgMatches) -> LoadSpec {
    let mut load = LoadSpec::default();
    for key in spec::keys() {
        if key.form == FlagForm::Switch {
            if matches.get_flag(key.name) {
                load.put(key.name, "true");
            }
            continue;
        }
        for text in matches.get_many::<String>(key.name).into_iter().flatten() {
            load.put(key.name, text);
        }
    }
    load
}

fn runs(matches: &ArgMatches, load: &LoadSpec, faults: &mut Vec<Message>) -> Runs {
    let len = count(matches, "repeat", 10_000, faults);
    let texts = matches.get_many::<String>("assert").into_iter().flatten();
    let assertions = texts.filter_map(|text| condition("assert", text, faults));
    let assertions: Vec<Assertion> = assertions.collect();
    let most = value(matches, "search_max", faults, rate);
    let Some(text) = text(matches, "search") else {
        if most.is_some() {
            let message = Message::new("`--search-max`", "means nothing without `--search`");
            faults.push(message.with_hint("`--search 'p99 < 20ms'`, for example"));
        }
        return Runs::Repeated {
            len: len.unwrap_or(1),
            assertions,
        };
    };
    let one_run = "find the rate first, then run at it";
    let at_rates = "a search is made of runs at a rate";
    for (name, is_given, hint) in [
        ("repeat", matches.contains_id("repeat"), one_run),
        ("assert", matches.contains_id("assert"), one_run),
        ("burst", load.text("burst").is_some(), at_rates),
        ("replay", load.text("replay").is_some(), at_rates),
    ] {
        if is_given {
            let what = format!("`--search` and `--{name}`");
            faults.push(Message::new(&what, "exclude each other").with_hint(hint));
        }
    }
    let first = match load.text("rate").map(rate).transpose() {
        // Requests a second, low enough for any server.
        Ok(first) => Some(first.unwrap_or(100.0)),
        Err(cause) => {
            let hint = "a search begins at one rate, without steps or ramps";
            faults.push(Message::new("`--rate`", cause).with_hint(hint));
            None
        }
    };
    let condition = condition("search", text, faults);
    match (condition, first) {
        (Some(condition), Some(first)) => Runs::Search {
            condition,
            first,
            most: most.unwrap_or(1_000_000.0),
        },
        // A fault was noted.
        _ => Runs::Repeated { len: 1, assertions },
    }
}

/// A number from 1 to `max`; `None`: it is not given, or wrong, which is noted.
pub(super) fn count(
    matches: &ArgMatches,
    name: &str,
    max: usize,
    faults: &mut Vec<Message>,
) -> Option<usize> {
    value(matches, name, faults, |text| {
        let number = text.parse().ok();
        let number = number.filter(|number| (1..=max).contains(number));
        expect(number, &format!("a count from 1 to {max}"), text)
    })
}

fn condition(name: &str, text: &str, faults: &mut Vec<Message>) -> Option<Assertion> {
    let parsed = Assertion::parse(text);
    let parsed = parsed.map_err(|fault| faults.push(of_fault(&format!("`--{name}`"), fault)));
    parsed.ok()
}

/// What is wrong with this, as it is printed.
pub(super) fn of_fault(what: &str, fault: Fault) -> Message {
    Message::new(what, fault.text).with_hint_maybe(fault.hint)
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    expect(number, "a number of more than 0", text)
}

/// Where the results go, by the flags of their forms.
pub(super) fn outputs<F: Copy>(
    matches: &ArgMatches,
    forms: &[(&str, F)],
    faults: &mut Vec<Message>,
) -> Vec<Output<F>> {
    let mut outputs: Vec<Output<F>> = Vec::new();
    for (name, form) in forms {
        let Some(text) = text(matches, name) else {
            continue;
        };
        let place = match text {
            "-" => Place::Stdout,
            path => Place::File(PathBuf::from(path)),
        };
        // Two results in one file would be neither.
        let is_taken = outputs.iter().any(|other| other.place == place);
        let obstacle = match &place {
            _ if is_taken => Some("is written to already".to_owned()),
            Place::Stdout => None,
            Place::File(path) => obstacle(path).map(|cause| format!("cannot be written: {cause}")),
        };
        if let Some(cause) = obstacle {
            faults.push(Message::new(
                &format!("`--{name}`"),
                format!("`{text}` {cause}"),
            ));
        }
        outputs.push(Output { form: *form, place });
    }
    outputs
}

/// Why a file cannot be written, as far as that can be known before a run of an hour.
fn obstacle(path: &Path) -> Option<String> {
    if path.is_dir() {
        return Some("it is a folder".to_owned());
    }
    // A name alone is one of the working folder.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Some("its folder is not there".to_owned());
    }
    // Asked and not tried: opening would empty a file, or wait for whoever reads a pipe.
    let found = match access(path, Access::WRITE_OK) {
        Err(Errno::NOENT) => access(folder, Access::WRITE_OK | Access::EXEC_OK),
        found => found,
    };
    found.err().map(|error| cause(&error.into()))
}

fn text<'m>(matches: &'m ArgMatches, name: &str) -> Option<&'m str> {
    matches.get_one::<String>(name).map(String::as_str)
}

fn arg(key: &'static Key, purpose: Purpose) -> Arg {
    let default = match key.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let long_help = format!("{}. {}", key.help, key.doc);
    let arg = Arg::new(key.name)
        .help(format!("{}{default}", key.help))
        .long_help(long_help.trim_end().to_owned() + &default);
    if key.form == FlagForm::Argument {
        return arg.value_name(key.placeholder).value_hint(ValueHint::Url);
    }
    let arg = arg.help_heading(key.group.title()).long(key.long());
    let arg = match key.alias {
        "" => arg,
        alias => arg.alias(alias.replace('_', "-")),
    };
    let arg = match key.short {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    let arg = match key.form {
        FlagForm::Switch => return arg.action(ArgAction::SetTrue),
        FlagForm::Repeated => arg.action(ArgAction::Append),
        FlagForm::Once | FlagForm::Argument => arg.action(ArgAction::Set),
    };
    let hint = match key.placeholder {
        "FILE" | "PATH" => ValueHint::FilePath,
        _ => ValueHint::Other,
    };
    let arg = arg.value_name(key.placeholder).value_hint(hint);
    // `-1` is a wrong number, not an unknown flag.
    let arg = arg.allow_negative_numbers(true);
    match purpose {
        Purpose::Completions if !key.choices.is_empty() => {
            arg.value_parser(PossibleValuesParser::new(key.choices))
        }
        _ => arg,
    }
}

#[cfg(test)]
mod tests;
