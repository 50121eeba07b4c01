//! `milepost bench run`: whole experiments by name or from a file, as tables beside those that others published.
//!
//! Takes flags and somebody who can run an experiment, gives a page of Markdown (printed and written) and the
//! findings as JSON (written). 0: done. 2: wrong use, nothing was measured, or something could not be written.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use loadgen::engine::Fault;
use loadgen::experiment::paper::paper;
use loadgen::experiment::scenario::{EMBEDDED, Scenario, embedded_text};
use loadgen::experiment::{Experiment, Findings};

use super::flags::obstacle;
use crate::message::{self, Message};
use crate::surroundings::cause;
use crate::{COULD_NOT, DONE};

const ABOUT: &str =
    "Run an experiment by its name or from a file, beside the tables that others published";

const LONG_ABOUT: &str = "\
Run an experiment: servers that are started for it, by turns and on the same processors, each with
the same loads. The result is a table in the form of the one that was published, whose rows come
first.

Servers that are not installed are skipped, and the page says so. A scenario file of your own has
the form of docs/reference/bench-scenario.md.";

const EXAMPLES: &str = "\
Examples:
  milepost bench run --list
  milepost bench run drivers-sweep
  milepost bench run short-lived-30k --seconds 60 --repeat 1
  milepost bench run prefork-buckets --only 'httpd prefork, one Listen,httpd prefork, buckets'
  milepost bench run mine.toml --out results

Exit: 0 done, 2 something could not be measured at all, read or written.";

/// Where results go if nobody says.
const FOLDER: &str = "milepost-bench";
/// Of a terminal that nobody has made wider.
const COLUMNS: usize = 100;
/// Longer runs are better several ones.
const SECONDS_MAX: f64 = 86_400.0;

/// What `run` takes.
pub(crate) fn command() -> Command {
    Command::new("run")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
        .arg(
            Arg::new("scenario")
                .value_name("NAME|FILE")
                .help("A scenario of --list, or a file (with a `/` in it or `.toml` at its end)")
                .required_unless_present("list")
                .value_hint(ValueHint::FilePath),
        )
        .arg(
            Arg::new("only")
                .long("only")
                .value_name("SERVER,...")
                .action(ArgAction::Append)
                .help("Measure these servers alone; repeatable"),
        )
        .arg(
            Arg::new("repeat")
                .long("repeat")
                .value_name("N")
                .value_parser(value_parser!(u16).range(1..=1_000))
                .help("Interleaved repetitions instead of the scenario's"),
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("S")
                .value_parser(seconds)
                .help("Duration of each load that has one"),
        )
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .value_hint(ValueHint::DirPath)
                .help("Folder for NAME.md and NAME.json [default: ./milepost-bench/NAME-DATE]"),
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("FILE")
                .value_hint(ValueHint::FilePath)
                .conflicts_with_all(["only", "repeat", "seconds", "out"])
                .help("Measure nothing: print the page of findings that were stored as NAME.json"),
        )
        .arg(
            Arg::new("list")
                .long("list")
                .action(ArgAction::SetTrue)
                .help("Say which scenarios there are, what they need and how long they take"),
        )
}

/// Runs one; `measure` runs an experiment to its end.
pub(crate) fn run(
    matches: &ArgMatches,
    measure: &mut dyn FnMut(&Experiment) -> Result<Findings, Fault>,
) -> i32 {
    if matches.get_flag("list") {
        message::data(&list());
        return DONE;
    }
    let done = match matches.get_one::<String>("from") {
        Some(file) => stored(matches, Path::new(file)),
        None => measured(matches, measure),
    };
    match done {
        Ok(code) => code,
        Err(message) => {
            message.say();
            COULD_NOT
        }
    }
}

/// The page of findings that were stored.
fn stored(matches: &ArgMatches, file: &Path) -> Result<i32, Message> {
    let scenario = asked(matches)?;
    let text = fs::read_to_string(file).map_err(|error| Message::new(&quoted(file), error))?;
    let findings: Findings =
        serde_json::from_str(&text).map_err(|error| Message::new(&quoted(file), error))?;
    message::result(&page(&scenario, &findings))?;
    Ok(DONE)
}

fn page(scenario: &Scenario, findings: &Findings) -> String {
    let title = format!("{}: {}", scenario.experiment.name, scenario.shows);
    paper(&title, &scenario.tables, findings)
}

fn measured(
    matches: &ArgMatches,
    measure: &mut dyn FnMut(&Experiment) -> Result<Findings, Fault>,
) -> Result<i32, Message> {
    let scenario = asked(matches)?;
    let name = &scenario.experiment.name;
    let folder = matches.get_one::<String>("out").map_or_else(
        || Path::new(FOLDER).join(format!("{name}-{}", date(SystemTime::now()))),
        PathBuf::from,
    );
    // Before minutes are spent on what has nowhere to go.
    fs::create_dir_all(&folder).map_err(|error| Message::new(&quoted(&folder), cause(&error)))?;
    for suffix in ["md", "json"] {
        let file = folder.join(format!("{name}.{suffix}"));
        if let Some(cause) = obstacle(&file) {
            return Err(Message::new(&quoted(&file), cause));
        }
    }
    let findings = measure(&scenario.experiment).map_err(|fault| said(name, fault))?;
    let page = page(&scenario, &findings);
    let json =
        serde_json::to_string_pretty(&findings).map_err(|error| Message::new(name, error))?;
    // First, so that a disk that is full by now does not take it away.
    let shown = message::result(&page);
    for (suffix, text) in [("md", page.as_str()), ("json", json.as_str())] {
        let file = folder.join(format!("{name}.{suffix}"));
        fs::write(&file, text).map_err(|error| Message::new(&quoted(&file), cause(&error)))?;
    }
    message::talk(&format!("written to {}\n", folder.display()));
    shown?;
    let has_some = findings
        .findings
        .iter()
        .any(|finding| finding.outcome.is_ok());
    if has_some {
        return Ok(DONE);
    }
    Message::new(name, "nothing was measured; the page above says why").say();
    Ok(COULD_NOT)
}

/// The scenario as the flags change it.
fn asked(matches: &ArgMatches) -> Result<Scenario, Message> {
    let asked = matches
        .get_one::<String>("scenario")
        .map_or("", String::as_str);
    let mut scenario = read(asked)?;
    let wrong = |fault: Fault| said(asked, fault);
    if let Some(texts) = matches.get_many::<String>("only") {
        let texts: Vec<&str> = texts.map(String::as_str).collect();
        let known = scenario
            .experiment
            .servers
            .iter()
            .map(|server| server.name.as_str());
        let names = servers(&texts, &known.collect::<Vec<_>>());
        scenario.keep_servers(&names).map_err(wrong)?;
    }
    if let Some(repeat) = matches.get_one::<u16>("repeat") {
        scenario.experiment.repeat = usize::from(*repeat);
    }
    if let Some(seconds) = matches.get_one::<f64>("seconds") {
        scenario.last(*seconds).map_err(wrong)?;
    }
    Ok(scenario)
}

fn read(asked: &str) -> Result<Scenario, Message> {
    let path = Path::new(asked);
    let is_file = asked.contains('/')
        || path
            .extension()
            .is_some_and(|extension| extension == "toml");
    if is_file {
        let text =
            fs::read_to_string(path).map_err(|error| Message::new(&quoted(path), cause(&error)))?;
        let stem = path
            .file_stem()
            .map_or(asked.into(), |stem| stem.to_string_lossy());
        return Scenario::read(&stem, &text).map_err(|fault| said(&quoted(path), fault));
    }
    let text = embedded_text(asked).ok_or_else(|| {
        let near = measure::nearest(asked, EMBEDDED.map(|(name, _)| name));
        let hint = match near {
            Some(near) => format!(
                "did you mean `{near}`? A file of your own has a `/` or `.toml` in its name"
            ),
            None => "`milepost bench run --list` says which there are".to_owned(),
        };
        Message::from_text(format!("there is no scenario `{asked}`")).with_hint(hint)
    })?;
    Scenario::read(asked, text).map_err(|fault| said(asked, fault))
}

/// The servers that were named. Names may hold commas: the longest one that fits is meant.
fn servers(texts: &[&str], known: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for text in texts {
        let mut rest = *text;
        while !rest.is_empty() {
            let fits = |name: &&&str| {
                rest.strip_prefix(**name)
                    .is_some_and(|behind| behind.is_empty() || behind.starts_with(','))
            };
            let longest = known.iter().filter(fits).max_by_key(|name| name.len());
            let name = longest.map_or_else(|| rest.split(',').next().unwrap_or(rest), |name| *name);
            names.push(name.to_owned());
            rest = rest[name.len()..].trim_start_matches([',', ' ']);
        }
    }
    names
}

/// What there is, for people.
fn list() -> String {
    /// Names beside each other, as many as a line holds.
    fn in_lines<'n>(first: &str, others: &str, names: impl Iterator<Item = &'n str>) -> String {
        let mut lines = vec![first.to_owned()];
        for (at, name) in names.enumerate() {
            let line = lines.last_mut().expect("there is the first one");
            if at > 0 && line.chars().count() + "; ;".len() + name.chars().count() > COLUMNS {
                line.push(';');
                lines.push(format!("{others}{name}"));
            } else {
                line.push_str(if at > 0 { "; " } else { "" });
                line.push_str(name);
            }
        }
        lines.join("\n")
    }
    let mut text = String::new();
    for (name, source) in EMBEDDED {
        let scenario = Scenario::read(name, source).expect("a test reads all of them");
        let needs = scenario.needs();
        let needs = needs
            .iter()
            .map(|need| need.rsplit(':').next().unwrap_or(need));
        let needs = needs.collect::<Vec<_>>().join(", ");
        let servers = scenario
            .experiment
            .servers
            .iter()
            .map(|server| server.name.as_str());
        let servers = in_lines("    servers: ", "             ", servers);
        let _ = writeln!(
            text,
            "{name}\n    {}\n    takes {}, {}; uses {}\n{servers}",
            scenario.shows,
            scenario.takes,
            match scenario.experiment.repeat {
                1 => "once".to_owned(),
                times => format!("{times} repetitions"),
            },
            if needs.is_empty() {
                "nothing else"
            } else {
                &needs
            },
        );
    }
    text
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('s').parse().ok();
    number
        .filter(|number| *number >= 0.1 && *number <= SECONDS_MAX)
        .ok_or_else(|| "seconds from 0.1 to 86400".to_owned())
}

/// `20261121-193000`, in UTC: names of folders sort by time.
fn date(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let [year, month, day, hour, minute, second] = measure::civil_from_unix(since.as_secs());
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

fn quoted(path: &Path) -> String {
    format!("`{}`", path.display())
}

fn said(what: &str, fault: Fault) -> Message {
    Message::new(what, fault.text).with_hint_maybe(fault.hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(args: &[&str]) -> ArgMatches {
        command().get_matches_from([&["run"], args].concat())
    }

    #[test]
    fn lists_every_scenario_with_what_it_needs() {
        let text = list();
        for (name, _) in EMBEDDED {
            assert!(text.contains(&format!("{name}\n")), "{name}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(COLUMNS), "{text}");
        assert!(text.contains(", once; uses"), "{text}");
        assert!(
            text.contains("uses apache2, gunicorn, milepost, mod_wsgi, unshare"),
            "{text}"
        );
    }

    #[test]
    fn finds_servers_whose_names_hold_commas() {
        let known = ["httpd, one", "httpd", "nginx, 1 worker", "1 driver"];
        for (texts, expect) in [
            (&["httpd, one"][..], &["httpd, one"][..]),
            (&["httpd,httpd, one"], &["httpd", "httpd, one"]),
            (
                &["nginx, 1 worker,1 driver"],
                &["nginx, 1 worker", "1 driver"],
            ),
            (&["1 driver", "httpd"], &["1 driver", "httpd"]),
            (&["oops,httpd"], &["oops", "httpd"]),
        ] {
            assert_eq!(servers(texts, &known), expect, "{texts:?}");
        }
    }

    #[test]
    fn changes_a_scenario_as_it_is_told() {
        let given = [
            "drivers-sweep",
            "--only",
            "2 drivers,nginx, 1 worker",
            "--repeat",
            "7",
            "--seconds",
            "0.5",
        ];
        let scenario = asked(&matches(&given)).unwrap();
        let names: Vec<_> = scenario
            .experiment
            .servers
            .iter()
            .map(|server| server.name.as_str())
            .collect();
        assert_eq!(names, ["2 drivers", "nginx, 1 worker"]);
        assert_eq!(scenario.experiment.repeat, 7);
        assert_eq!(
            scenario.experiment.points[0].load.value("duration"),
            Some("0.5s")
        );
    }

    #[test]
    fn says_what_helps() {
        for (args, expect) in [
            (
                &["driver-sweep"][..],
                "milepost: there is no scenario `driver-sweep`\nhint: did you mean `drivers-sweep`?",
            ),
            (
                &["/no/such.toml"],
                "milepost: `/no/such.toml`: no such file",
            ),
            (
                &["drivers-sweep", "--only", "apache"],
                "milepost: drivers-sweep: there is no server `apache` in this scenario\nhint: its servers are `1 driver`",
            ),
            (
                &["six-requests", "--seconds", "3"],
                "milepost: six-requests: the loads of this scenario are numbers of requests",
            ),
        ] {
            let text = asked(&matches(args)).unwrap_err().text();
            assert!(text.starts_with(expect), "{text}");
        }
    }

    #[test]
    fn writes_the_page_and_the_findings_and_says_when_there_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("results");
        let args = ["six-requests", "--out", out.to_str().unwrap()];
        let mut asked_for = String::new();
        let code = run(&matches(&args), &mut |experiment| {
            asked_for.clone_from(&experiment.name);
            Ok(Findings {
                skipped: vec![("A".to_owned(), "it is not here".to_owned())],
                ..Findings::default()
            })
        });
        assert_eq!((code, asked_for.as_str()), (COULD_NOT, "six-requests"));
        let page = fs::read_to_string(out.join("six-requests.md")).unwrap();
        assert!(
            page.contains("| 5 | 0 | 2 | 0 | yes | 0.431545 | 3.713331 | 4.144876 | – |"),
            "{page}"
        );
        assert!(
            page.contains("- A was not measured: it is not here"),
            "{page}"
        );
        let json = fs::read_to_string(out.join("six-requests.json")).unwrap();
        assert!(serde_json::from_str::<Findings>(&json).is_ok());
    }

    #[test]
    fn measures_nothing_that_has_nowhere_to_go() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().to_str().unwrap();
        fs::create_dir(folder.path().join("six-requests.json")).unwrap();
        let mut is_measured = false;
        let args = ["six-requests", "--out", out];
        let code = run(&matches(&args), &mut |_| {
            is_measured = true;
            Ok(Findings::default())
        });
        assert_eq!((code, is_measured), (COULD_NOT, false));
    }

    #[test]
    fn names_folders_by_time() {
        let at = UNIX_EPOCH + std::time::Duration::from_secs(1_795_245_160);
        assert_eq!(date(at), "20261121-071240");
    }
}
