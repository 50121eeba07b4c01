//! The flags of `milepost tune` and what they mean.
//!
//! Takes clap's matches, gives options or all faults at once. Opens nothing.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use report::duration;

use super::choice::TuneGoal;
use crate::inputs::{expect, value};
use crate::message::Message;

const ABOUT: &str = "Find how many processes and threads an application needs on this machine";

const LONG_ABOUT: &str = "\
Find how many processes and threads an application needs on this machine. The command starts the
server itself, for itself alone (on a unix socket in a temporary folder), loads it with GETs,
predicts other numbers of processes and threads from the access log of that run, and tries the most
promising ones. It prints what was measured, and writes the recommended settings into a
configuration file.

The GETs run the real application, with its real database. Name paths that change nothing.";

const EXAMPLES: &str = "\
Examples:
  milepost tune shop:app / /orders
  milepost tune shop:app --from-log access.log --objective p99=200ms
  milepost tune milepost.toml /orders --rate 150 --force

The command first measures the capacity: how many requests a second are answered when each of
--clients clients sends its next request after the last answer. Without --rate, the load is then
70 % of it. Generator and server share the processors of this machine.
Exit: 0 done, 1 the objective was not met, 2 it could not be done.";

const CLIENTS_MAX: usize = 1_000;
const SECONDS_MAX: u64 = 600;

/// Which percentile is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AimedAt {
    pub(super) name: &'static str,
    /// 0 to 100.
    pub(super) tenths: u16,
}

/// The percentiles of objectives, in tenths of a percent.
const PERCENTILES: [AimedAt; 5] = [
    AimedAt {
        name: "p50",
        tenths: 500,
    },
    AimedAt {
        name: "p90",
        tenths: 900,
    },
    AimedAt {
        name: "p95",
        tenths: 950,
    },
    AimedAt {
        name: "p99",
        tenths: 990,
    },
    AimedAt {
        name: "p99.9",
        tenths: 999,
    },
];

/// What is looked at without an objective.
const P99: AimedAt = PERCENTILES[3];

impl AimedAt {
    pub(super) fn percent(self) -> f64 {
        f64::from(self.tenths) / 10.0
    }
}

/// The options.
#[derive(Clone, Debug)]
pub(super) struct TuneOptions {
    pub(super) app: String,
    pub(super) paths: Vec<String>,
    pub(super) log: Option<PathBuf>,
    pub(super) aimed_at: AimedAt,
    pub(super) goal: TuneGoal,
    pub(super) rate: Option<f64>,
    pub(super) clients: usize,
    pub(super) seconds: u64,
    pub(super) output: Option<PathBuf>,
    pub(super) is_forced: bool,
    pub(super) fields: Vec<(String, String)>,
}

/// The subcommand.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, placeholder: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(placeholder)
            .allow_negative_numbers(true)
            .help(help)
    };
    let app = Arg::new("app")
        .value_name("APP")
        .required(true)
        .value_hint(ValueHint::FilePath)
        .help("Application, as MODULE:ATTRIBUTE, or a configuration file (*.toml)");
    let paths = Arg::new("path")
        .value_name("PATH")
        .num_args(0..)
        .value_hint(ValueHint::Other)
        .help("Paths of the GETs, as /orders?page=2 [default: /]");
    let log = flag(
        "from-log",
        "FILE",
        "Access log with the GETs to send, in its proportions",
    );
    let objective = flag(
        "objective",
        "TEXT",
        "Response time to stay below, as p99=200ms; without it, the shortest p99",
    );
    let clients = flag(
        "clients",
        "N",
        "Clients that ask at once while the capacity is measured [default: 32]",
    );
    let output = flag(
        "output",
        "FILE",
        "File for the settings [default: milepost.toml, or the configuration file]",
    );
    Command::new("tune")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
        .args_override_self(true)
        .arg(app)
        .arg(paths)
        .arg(log.value_hint(ValueHint::FilePath))
        .arg(objective)
        .arg(flag(
            "rate",
            "N",
            "Requests a second to tune for [default: 70 % of the capacity]",
        ))
        .arg(clients)
        .arg(flag("seconds", "S", "Seconds of each try [default: 5]"))
        .arg(
            flag(
                "header",
                "TEXT",
                "Header of all requests, as 'Host: shop.example'; repeatable",
            )
            .action(ArgAction::Append),
        )
        .arg(output.short('o').value_hint(ValueHint::FilePath))
        .arg(
            Arg::new("force")
                .long("force")
                .action(ArgAction::SetTrue)
                .help("Set the settings in a file that is there; its other lines stay"),
        )
}

/// The options that the flags say.
///
/// # Errors
/// All faults of the flags.
pub(super) fn options(matches: &ArgMatches) -> Result<TuneOptions, Vec<Message>> {
    let mut faults = Vec::new();
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let all = |name: &str| -> Vec<String> {
        let values = matches.get_many::<String>(name).into_iter().flatten();
        values.cloned().collect()
    };
    let objective = value(matches, "objective", &mut faults, objective);
    let (aimed_at, goal) = objective.unwrap_or((P99, TuneGoal::Shortest));
    let mut fields = Vec::new();
    for header in all("header") {
        match field(&header) {
            Ok(field) => fields.push(field),
            Err(cause) => faults.push(Message::new("`--header`", cause)),
        }
    }
    let mut options = TuneOptions {
        app: text("app").unwrap_or_default(),
        paths: all("path"),
        log: text("from-log").map(PathBuf::from),
        aimed_at,
        goal,
        rate: value(matches, "rate", &mut faults, rate),
        clients: value(matches, "clients", &mut faults, |text| {
            within(text, CLIENTS_MAX as u64).map(|count| count as usize)
        })
        .unwrap_or(32),
        seconds: value(matches, "seconds", &mut faults, |text| {
            within(text, SECONDS_MAX)
        })
        .unwrap_or(5),
        output: text("output").map(PathBuf::from),
        is_forced: matches.get_flag("force"),
        fields,
    };
    check(&mut options, &mut faults);
    match faults.is_empty() {
        true => Ok(options),
        false => Err(faults),
    }
}

fn check(options: &mut TuneOptions, faults: &mut Vec<Message>) {
    for path in options.paths.iter().filter(|path| !path.starts_with('/')) {
        let what = format!("`{path}`");
        let message = match path.contains("://") || path.contains(':') {
            true => Message::new(&what, "the command loads its own server and no other one")
                .with_hint("name the path alone, as /orders; `milepost bench` loads any server"),
            false => Message::new(&what, "expected a path, as /orders"),
        };
        faults.push(message);
    }
    if options.log.is_some() && !options.paths.is_empty() {
        let text = "exclude each other: the GETs are those of the log, or the named ones";
        faults.push(Message::new("`--from-log` and PATH", text));
    }
    if options.paths.is_empty() {
        options.paths.push("/".to_owned());
    }
}

/// `p99=200ms`, or `p99 < 200ms`.
fn objective(text: &str) -> Result<(AimedAt, TuneGoal), String> {
    let wrong = || format!("expected an objective as p99=200ms or p95=1s, found `{text}`");
    let (name, limit) = text.split_once(['=', '<']).ok_or_else(wrong)?;
    let limit = limit.trim_start_matches('=').trim();
    let known = PERCENTILES.into_iter().find(|one| one.name == name.trim());
    let below = duration(limit).filter(|span| span.0 > 0);
    let below_ms = below.ok_or_else(wrong)?.as_secs_f64() * 1e3;
    Ok((known.ok_or_else(wrong)?, TuneGoal::Below(below_ms)))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate: &f64| rate.is_finite() && *rate >= 0.1 && *rate <= 1e6);
    expect(rate, "requests a second, from 0.1 to 1000000", text)
}

fn within(text: &str, most: u64) -> Result<u64, String> {
    let count = text.parse().ok();
    let count = count.filter(|count| (1..=most).contains(count));
    expect(count, &format!("a count from 1 to {most}"), text)
}

fn field(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':');
    let field = parts.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    expect(field, "a header as 'Name: value'", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &[&str]) -> Result<TuneOptions, String> {
        let words = std::iter::once("tune").chain(line.iter().copied());
        let matches = command().get_matches_from(words);
        options(&matches).map_err(|faults| faults.iter().map(Message::text).collect())
    }

    #[test]
    fn understands_objectives() {
        for text in ["p99=200ms", "p99 < 0.2s", "p99<=200ms"] {
            let (aimed_at, goal) = objective(text).expect(text);
            assert_eq!((aimed_at.name, goal), ("p99", TuneGoal::Below(200.0)));
        }
        assert_eq!(objective("p99.9=1s").expect("one").0.percent(), 99.9);
        for text in ["p99", "p98=1s", "p99=0ms", "p99=soon", "=1s"] {
            assert!(objective(text).is_err(), "{text}");
        }
    }

    #[test]
    fn has_a_path_without_one() {
        let options = said(&["shop:app"]).expect("options");
        assert_eq!(options.paths, ["/"]);
        assert_eq!((options.clients, options.seconds), (32, 5));
        assert_eq!(options.goal, TuneGoal::Shortest);
        let options = said(&["shop:app", "/a", "/b", "--header", "Host: a"]).expect("options");
        assert_eq!(options.paths, ["/a", "/b"]);
        assert_eq!(options.fields, [("Host".to_owned(), "a".to_owned())]);
    }

    #[test]
    fn loads_no_other_server_and_says_all_faults() {
        let text = said(&[
            "shop:app",
            "http://shop.example/",
            "--rate",
            "0",
            "--seconds",
            "0",
            "--header",
            "x",
        ]);
        let text = text.expect_err("faults");
        for part in [
            "its own server and no other one",
            "`--rate`",
            "`--seconds`",
            "`--header`",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = said(&["shop:app", "/", "--from-log", "a.log"]).expect_err("a fault");
        assert!(text.contains("exclude each other"), "{text}");
    }
}
