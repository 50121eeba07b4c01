//! The flags of `milepost report` and what they mean.
//!
//! Takes clap's matches, gives options or all faults at once. Reads the clock for `--since 1h`; opens
//! nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, Command};
use report::{By, Filter, Input, KeepTimeline, Plan, When, duration, statuses};

use crate::control::history;
use crate::inputs::{expect, inputs, pattern, value, with_flags};
use crate::message::Message;

const ABOUT: &str = "Show where requests spent their time, from access logs";

const LONG_ABOUT: &str = "\
Show which page is slow and why: a verdict, the requests by method and path, percentiles of each
phase, which requests held the threads that others waited for, and the slowest requests.

The command reads milepost's log formats, the common and combined formats of nginx and httpd, JSON
of Caddy and Traefik, and NaviServer's format with partial times, in any mix, plain or compressed
with gzip or zstd; `--format` reads others. Without LOG, or for `-`, the command reads standard
input. Memory use does not grow with the log.

With --live the command needs no log: a running server holds its last 830,000 requests of at most 24
hours, over reloads and upgrades. They have folded paths in the place of targets, and no ids.";

const EXAMPLES: &str = "\
Examples:
  milepost report access.log
  milepost report access.log access.log.*.gz --by route --since 2026-11-21T12:00
  milepost report access.log --status 5xx --slower 500ms --slowest 50
  milepost report access.log --html report.html
  milepost report before.log --against after.log
  milepost report --live 1h
  milepost report /var/log/nginx/access.log --format nginx:request_time
  milepost report --follow access.log
  ssh shop cat /var/log/shop.log | milepost report --json

Times without an offset are in the log's time zone. Durations take us, ms, s, m, h, d.
Exit: 0 done, 1 no line was understood, 2 an input or output failed.";

/// The flags, as [`with_flags`] reads them.
const FLAGS: &str = "\
# Output
by FIELD Also show groups by path (all of them), route, status, hour, pool, upstream, method, client or peer
against LOG Compare with another log: `report before.log --against after.log`
slowest COUNT Number of slowest requests to show [default: 10]
json - Print JSON; with --follow one object per second
html FILE Also write an HTML page with charts, which opens without a network; `-` prints the page instead
follow - Show new lines as they arrive, also after log rotation, until SIGINT
# Filters
since TIME Only requests since this time: 2026-11-21, 2026-11-21T12:07[:39][+01:00], or 2h for two hours ago
until TIME Only requests before this time
route NAME+ Only this route; repeatable
status LIST Only these statuses: 5xx,404,400-499,none
slower DURATION Only requests that took longer: 500ms
# Input
live DURATION Instead of a log, read the last requests that a running server holds: 15m, 1h
format TEXT Template of the lines, as in access_log_format ('{peer} {total:ms}'), or a name: NAMES; it comes before all other formats
";

/// Without an input.
const MISSING: &str =
    "`milepost report access.log`, or pipe a log into it; `-` reads what is typed";
/// Most of the slowest requests that are kept.
const SLOWEST_LEN_MAX: usize = 10_000;

/// The options.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) inputs: Vec<Input>,
    pub(super) plan: Plan,
    pub(super) is_followed: bool,
    pub(super) is_json: bool,
    pub(super) page: Option<Page>,
    /// The log to compare with.
    pub(super) against: Option<Input>,
}

/// Where the page goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Stdout,
    File(PathBuf),
}

/// The subcommand.
pub(crate) fn command() -> Command {
    let by = PossibleValuesParser::new(By::ALL.map(|(_, name)| name));
    with_flags("report", FLAGS)
        .args(history::args())
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
        .mut_arg("by", |arg| arg.value_parser(by))
        .mut_arg("follow", |arg| arg.short('f'))
        .mut_arg("live", |arg| {
            arg.conflicts_with_all(["log", "follow", "format", "against"])
        })
}

/// The options that the flags say.
///
/// # Errors
/// All faults of the flags.
pub(super) fn options(matches: &ArgMatches) -> Result<Options, Vec<Message>> {
    let mut faults = Vec::new();
    let live_secs = history::seconds(matches, &mut faults);
    let is_live = matches.contains_id("live");
    let mut inputs = match is_live {
        true => Vec::new(),
        false => inputs(matches, Some(MISSING), &mut faults),
    };
    let page = matches
        .get_one::<String>("html")
        .map(|name| match name.as_str() {
            "-" => Page::Stdout,
            name => Page::File(PathBuf::from(name)),
        });
    let is_json = matches.get_flag("json");
    // Mixed in one stream neither could be read.
    if is_json && page == Some(Page::Stdout) {
        faults.push(Message::new(
            "`--json` and `--html -`",
            "both want standard output",
        ));
    }
    let against = matches.get_one::<String>("against");
    let against = against.map(|name| match name.as_str() {
        "-" => Input::Stdin,
        name => Input::File(PathBuf::from(name)),
    });
    if against.is_some() && matches.get_flag("follow") {
        faults.push(Message::new(
            "`--against` and `--follow`",
            "a log that grows is not compared",
        ));
    }
    if against.is_some() && inputs.iter().any(|input| Some(input) == against.as_ref()) {
        faults.push(Message::new(
            "`--against`",
            "names the log that it is compared with",
        ));
    }
    let plan = Plan {
        pattern: value(matches, "format", &mut faults, pattern),
        filter: filter(matches, &mut faults),
        by: matches
            .get_one::<String>("by")
            .and_then(|name| By::named(name)),
        slowest_len: value(matches, "slowest", &mut faults, slowest_len).unwrap_or(10),
        timeline: if page.is_some() {
            KeepTimeline::Yes
        } else {
            KeepTimeline::No
        },
    };
    if !faults.is_empty() {
        return Err(faults);
    }
    // Last, so that no server is asked for a command that cannot be run.
    if let Some(secs) = live_secs {
        inputs.push(Input::Held(Arc::new(history::held(matches, secs)?)));
    }
    Ok(Options {
        inputs,
        plan,
        is_followed: matches.get_flag("follow"),
        is_json,
        page,
        against,
    })
}

fn filter(matches: &ArgMatches, faults: &mut Vec<Message>) -> Filter {
    let now_ns = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |span| span.as_nanos() as u64);
    let when = |text: &str| {
        expect(
            When::parse(text, now_ns),
            "a time as 2026-11-21T12:07 or 2h",
            text,
        )
    };
    let routes = matches.get_many::<String>("route").into_iter().flatten();
    Filter {
        since: value(matches, "since", faults, when),
        until: value(matches, "until", faults, when),
        routes: routes.cloned().collect(),
        statuses: value(matches, "status", faults, |text| {
            expect(statuses(text), "statuses as 5xx,404,400-499,none", text)
        })
        .unwrap_or_default(),
        slower_than: value(matches, "slower", faults, |text| {
            expect(duration(text), "a duration as 500ms or 2s", text)
        }),
    }
}

fn slowest_len(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| *number <= SLOWEST_LEN_MAX);
    expect(number, &format!("a number up to {SLOWEST_LEN_MAX}"), text)
}
