//! The flags of `milepost report` and what they mean.
//!
//! Takes clap's matches, gives a wish or all faults at once. Reads the clock for "since an hour ago"; opens
//! nothing.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use measure::{Pattern, Template};
use report::{By, Filter, Input, Plan, TimelineWish, When, duration, statuses};

use crate::inputs::inputs;
use crate::message::Message;

const ABOUT: &str = "Say where the time of the requests in access logs went";

const LONG_ABOUT: &str = "\
Say where the time of the requests in access logs went: average, deviation and percentiles of each
phase, by route, status, hour and more, and what the slowest waited for.

Reads the logs of milepost in every form, those of nginx and httpd (common and combined), and those
of NaviServer with their partial times; plain or compressed by gzip or zstd; all in one go, whatever
the mix. Without LOG, or for `-`, it reads standard input. Memory does not grow with the log.";

const EXAMPLES: &str = "\
Examples:
  milepost report access.log
  milepost report access.log access.log.*.gz --by route --since 2026-11-21T12:00
  milepost report access.log --status 5xx --slower 500ms --slowest 50
  milepost report access.log --html report.html
  milepost report --follow access.log
  ssh shop cat /var/log/shop.log | milepost report --json

Times without an offset are on the log's own clock. Durations take us, ms, s, m, h, d.
Exit: 0 done, 1 no line was understood, 2 something could not be read or written.";

/// Where nothing is named and nothing is piped.
const MISSING: &str =
    "`milepost report access.log`, or pipe a log into it; `-` reads what is typed";
/// Most of the slowest requests that are kept.
const SLOWEST_LEN_MAX: usize = 10_000;

/// What was asked for.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) inputs: Vec<Input>,
    pub(super) plan: Plan,
    pub(super) is_followed: bool,
    pub(super) is_json: bool,
    pub(super) page: Option<Page>,
}

/// Where the page goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Stdout,
    File(PathBuf),
}

impl Wish {
    /// What the page is about.
    pub(super) fn title(&self) -> String {
        let names: Vec<String> = self.inputs.iter().map(Input::name).collect();
        match names.as_slice() {
            [one] => one.clone(),
            [first, .., last] => format!("{first} to {last}, {} logs", names.len()),
            [] => String::new(),
        }
    }
}

/// The subcommand.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .help(help)
            .action(ArgAction::Set)
    };
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .help(help)
            .action(ArgAction::SetTrue)
    };
    let by = PossibleValuesParser::new(By::ALL.map(|(_, name)| name));
    Command::new("report")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
        .args_override_self(true)
        .arg(
            Arg::new("log")
                .value_name("LOG")
                .help("Files, `-` for standard input")
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .num_args(0..),
        )
        .next_help_heading("What is shown")
        .arg(
            flag(
                "by",
                "FIELD",
                "Also each group: route, status, hour, pool, method or peer",
            )
            .value_parser(by),
        )
        .arg(flag(
            "slowest",
            "COUNT",
            "How many of the slowest requests [default: 10]",
        ))
        .arg(switch(
            "json",
            "Print JSON; with --follow one object a second, of that second",
        ))
        .arg(
            flag(
                "html",
                "FILE",
                "Also write a page with charts that opens without a network; `-` prints it instead",
            )
            .value_hint(ValueHint::FilePath),
        )
        .arg(
            switch(
                "follow",
                "Watch the logs grow, through renaming and truncation, until SIGINT",
            )
            .short('f'),
        )
        .next_help_heading("What is counted")
        .arg(flag(
            "since",
            "TIME",
            "From then on: 2026-11-21, 2026-11-21T12:07[:39][+01:00], or 2h for two hours ago",
        ))
        .arg(flag("until", "TIME", "Before then"))
        .arg(flag("route", "NAME", "Only this route; repeatable").action(ArgAction::Append))
        .arg(flag(
            "status",
            "LIST",
            "Only these statuses: 5xx,404,400-499,none",
        ))
        .arg(flag("slower", "DURATION", "Only what took longer: 500ms"))
        .next_help_heading("What is read")
        .arg(flag(
            "format",
            "TEXT",
            "A template, as in access_log_format: '{peer} {total}'; other lines are read as always",
        ))
}

/// Whether the subcommand has this flag.
pub(crate) fn has_flag(command: &Command, flag: &str) -> bool {
    let name = flag.trim_start_matches('-');
    command
        .get_arguments()
        .any(|arg| arg.get_long() == Some(name))
}

/// Understands the flags.
///
/// # Errors
/// All that is wrong with them.
pub(super) fn wish(matches: &ArgMatches) -> Result<Wish, Vec<Message>> {
    let mut faults = Vec::new();
    let inputs = inputs(matches, Some(MISSING), &mut faults);
    let page = matches
        .get_one::<String>("html")
        .map(|name| match name.as_str() {
            "-" => Page::Stdout,
            name => Page::File(PathBuf::from(name)),
        });
    let is_json = matches.get_flag("json");
    if is_json && page == Some(Page::Stdout) {
        faults.push(Message::new(
            "`--json` and `--html -`",
            "both want standard output",
        ));
    }
    let plan = Plan {
        pattern: value(matches, "format", &mut faults, |text| {
            let template = Template::parse(text).map_err(|fault| fault.to_string())?;
            Pattern::of(&template).map_err(|fault| fault.to_string())
        }),
        filter: filter(matches, &mut faults),
        by: matches
            .get_one::<String>("by")
            .and_then(|name| By::named(name)),
        slowest_len: value(matches, "slowest", &mut faults, slowest_len).unwrap_or(10),
        timeline: if page.is_some() {
            TimelineWish::Kept
        } else {
            TimelineWish::Left
        },
    };
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(Wish {
        inputs,
        plan,
        is_followed: matches.get_flag("follow"),
        is_json,
        page,
    })
}

fn filter(matches: &ArgMatches, faults: &mut Vec<Message>) -> Filter {
    let now_ns = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |span| span.as_nanos() as u64);
    let when = |text: &str| {
        let wrong = || format!("expected a time as 2026-11-21T12:07 or 2h, found `{text}`");
        When::parse(text, now_ns).ok_or_else(wrong)
    };
    let routes = matches.get_many::<String>("route").into_iter().flatten();
    Filter {
        since: value(matches, "since", faults, when),
        until: value(matches, "until", faults, when),
        routes: routes.cloned().collect(),
        statuses: value(matches, "status", faults, |text| {
            statuses(text)
                .ok_or_else(|| format!("expected statuses as 5xx,404,400-499,none, found `{text}`"))
        })
        .unwrap_or_default(),
        slower_than: value(matches, "slower", faults, |text| {
            duration(text)
                .ok_or_else(|| format!("expected a duration as 500ms or 2s, found `{text}`"))
        }),
    }
}

fn slowest_len(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| *number <= SLOWEST_LEN_MAX);
    number.ok_or_else(|| format!("expected a number up to {SLOWEST_LEN_MAX}, found `{text}`"))
}

fn value<T>(
    matches: &ArgMatches,
    name: &str,
    faults: &mut Vec<Message>,
    understand: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let text = matches.get_one::<String>(name)?;
    understand(text)
        .map_err(|cause| faults.push(Message::new(&format!("`--{name}`"), cause)))
        .ok()
}
