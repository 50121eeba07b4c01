//! `milepost bench sweep`: one number over a range, for one server or several in turns.
//!
//! Takes flags and the texts of a load, starts the servers that were asked for, prints the table and its
//! picture. How a plan is made, run and drawn is handed in ([`Hands`]). 0: done. 2: wrong use, or not a
//! single request was answered.

mod outputs;
mod teller;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use loadgen::engine::{Fault, Watch};
use loadgen::experiment::{
    self, Dimension, Experiment, Findings, LoadText, Means, Pins, Programs, ServerSpec, SweepLine,
    Swept,
};
use loadgen::outcome::Outcome;
use loadgen::plan::Plan;
use measure::Nanos;
use server::config::nearest;
use server::config::written::{SETTINGS, setting};

use self::outputs::{Form, Place, outputs, show};
use self::teller::Teller;
use super::flags;
use super::parts::{self, Drawn};
use crate::command::Purpose;
use crate::host::AppHost;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE};

/// Fewer repetitions say little about chance.
const REPEAT: usize = 5;
const REPEAT_MAX: usize = 1_000;
/// What a server has left behind in the kernel settles meanwhile.
const REST: Nanos = Nanos::from_ms(500);
/// Settings that the sweep chooses itself.
const CHOSEN: [&str; 2] = ["bind", "control"];

/// What others do for a sweep.
pub(crate) struct Hands<'a> {
    /// Makes a plan of the texts of a load.
    pub(crate) make_plan: &'a mut dyn FnMut(&LoadText) -> Result<Plan, Vec<Fault>>,
    /// Runs it.
    pub(crate) run_plan: &'a mut dyn FnMut(&Plan, &mut dyn Watch) -> Result<Outcome, Fault>,
    /// Draws as SVG.
    pub(crate) svg: &'a dyn Fn(&Curve<'_>) -> String,
    /// Draws for a terminal.
    pub(crate) letters: &'a dyn Fn(&Curve<'_>) -> String,
}

/// A picture of a sweep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) lines: &'a [SweepLine],
}

/// What was asked for.
#[derive(Debug)]
struct Wish {
    experiment: Experiment,
    swept: Swept,
    outputs: Vec<(Form, Place)>,
    is_quiet: bool,
}

/// The flags of a sweep beside those of a load.
pub(crate) fn args() -> Vec<Arg> {
    let text = |name: &'static str, placeholder: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).value_name(placeholder).help(help);
        arg.action(ArgAction::Append).num_args(1)
    };
    let file = |name, help| {
        let help = format!("{help}; `-` is standard output");
        text(name, "FILE", "")
            .help(help)
            .value_hint(ValueHint::FilePath)
    };
    vec![
        text(
            "server",
            "ARGS",
            "Start Milepost with these arguments of `milepost serve`",
        )
        // They begin with a hyphen as often as not.
        .allow_hyphen_values(true),
        text(
            "matrix",
            "KEY=A,B,C",
            "Start it with each value of a setting; repeatable, all combinations",
        ),
        text(
            "start",
            "NAME=COMMAND",
            "Start another server; `{port}` in the command is its port; repeatable",
        ),
        text(
            "repeat",
            "N",
            "Measure everything so many times [default: 5]",
        ),
        text(
            "server-cpus",
            "CPUS",
            "Processors of servers, as `0,2-3` [default: all but the last]",
        ),
        file("json", "Write everything that was measured"),
        file("svg", "Write the picture"),
        file(
            "html",
            "Write a page with picture and table that needs no network",
        ),
        Arg::new("quiet")
            .long("quiet")
            .short('q')
            .action(ArgAction::SetTrue)
            .help("No progress and no table"),
    ]
}

const ABOUT: &str = "Measure over a range of one number, for one server or several in turns";

const EXAMPLES: &str = "\
Examples:
  milepost bench sweep --connections 10..250:10 --repeat 5 http://127.0.0.1:8000/
  milepost bench sweep -c 10..250:60 -d 2s --server '--static /=./public' \\
      --matrix drivers=1,2,10 /index.html
  milepost bench sweep -c 64 --rate 1000..10000:1000 -d 5s http://127.0.0.1:8000/
  milepost bench sweep -c 16,64 --server 'shop:app' --start 'gunicorn=gunicorn -b :{port} shop:app' /

One of --connections, --rate, --pipeline and the other numbers of a load takes a range, as
FROM..TO:STEP, or a list. Exit: 0 done, 2 it could not be done or nothing was answered.";

/// The subcommand.
pub(super) fn command(purpose: Purpose) -> Command {
    let own = args();
    let names: Vec<String> = own.iter().map(|arg| arg.get_id().to_string()).collect();
    let load = flags::load_args(purpose);
    let load = load
        .into_iter()
        .filter(|arg| !names.contains(&arg.get_id().to_string()));
    Command::new("sweep")
        .about(ABOUT)
        .after_help(EXAMPLES)
        .args_override_self(true)
        .args(own)
        .args(load)
}

/// Runs a sweep to its end and gives the exit code; `host` knows how this program is started again.
pub(super) fn run(matches: &ArgMatches, host: Option<&dyn AppHost>) -> i32 {
    let mut load = LoadText::default();
    let written = flags::load(matches);
    for key in loadgen::written::keys() {
        for value in written.texts(key.name) {
            load.add(key.name, value.as_str());
        }
    }
    let mut hands = Hands {
        make_plan: &mut parts::plan,
        run_plan: &mut parts::run,
        svg: &|curve| parts::curve(curve.title, curve.x_label, curve.lines, Drawn::Svg),
        letters: &|curve| parts::curve(curve.title, curve.x_label, curve.lines, Drawn::Letters),
    };
    match swept(matches, load, host, &mut hands) {
        Ok(code) => code,
        Err(messages) => {
            message::say_all(&messages);
            COULD_NOT
        }
    }
}

/// Runs any experiment to its end.
pub(super) fn measured(
    experiment: &Experiment,
    host: Option<&dyn AppHost>,
) -> Result<Findings, Fault> {
    let fault = |message: Message| Fault::new(message.text());
    let programs = programs(host).map_err(fault)?;
    let mut teller = Teller::new(false).map_err(fault)?;
    let mut means = Means {
        programs: &programs,
        make_plan: &mut parts::plan,
        run_plan: &mut parts::run,
        progress: &mut teller,
    };
    let found = experiment::run(experiment, &mut means);
    teller.clear();
    found
}

fn swept(
    matches: &ArgMatches,
    load: LoadText,
    host: Option<&dyn AppHost>,
    hands: &mut Hands<'_>,
) -> Result<i32, Vec<Message>> {
    let wish = wish(matches, load)?;
    let programs = programs(host).map_err(|message| vec![message])?;
    let mut teller = Teller::new(wish.is_quiet).map_err(|message| vec![message])?;
    let mut means = Means {
        programs: &programs,
        make_plan: hands.make_plan,
        run_plan: hands.run_plan,
        progress: &mut teller,
    };
    let found = experiment::run(&wish.experiment, &mut means);
    teller.clear();
    let findings = found.map_err(|fault| vec![said(&fault)])?;
    show(&wish, &findings, hands)?;
    Ok(code(&findings))
}

/// A message of a fault.
fn said(fault: &Fault) -> Message {
    Message::from_text(&fault.text).with_hint_maybe(fault.hint.clone())
}

fn code(findings: &Findings) -> i32 {
    let mut outcomes = findings
        .findings
        .iter()
        .filter_map(|finding| finding.outcome.as_ref().ok());
    if outcomes.any(|outcome| outcome.counts.answered > 0) {
        return DONE;
    }
    let hint = (!findings.skipped.is_empty()).then(|| "the causes are below the table".to_owned());
    Message::new("sweep", "not a single request was answered")
        .with_hint_maybe(hint)
        .say();
    COULD_NOT
}

/// Understands the flags; all faults at once.
fn wish(matches: &ArgMatches, mut load: LoadText) -> Result<Wish, Vec<Message>> {
    let mut faults = Vec::new();
    let servers = servers(matches, &mut load, &mut faults);
    let swept = kept(Swept::taken_from(&load), &mut faults);
    let repeat = kept(repeat(matches), &mut faults);
    let pins = kept(pins(matches), &mut faults);
    let outputs = outputs(matches, &mut faults);
    let (Some(swept), Some(repeat), Some(pins), true) = (swept, repeat, pins, faults.is_empty())
    else {
        return Err(faults);
    };
    let experiment = Experiment {
        name: format!("sweep of {}", swept.key),
        repeat,
        servers,
        points: swept.points(&load),
        pins,
        rest: REST,
    };
    Ok(Wish {
        experiment,
        swept,
        outputs,
        is_quiet: matches.get_flag("quiet"),
    })
}

fn kept<T>(result: Result<T, Fault>, faults: &mut Vec<Message>) -> Option<T> {
    result.map_err(|fault| faults.push(said(&fault))).ok()
}

fn texts<'m>(matches: &'m ArgMatches, name: &str) -> impl Iterator<Item = &'m String> {
    matches.get_many::<String>(name).into_iter().flatten()
}

/// The servers that are started; else the one that is there already, called by its address.
fn servers(
    matches: &ArgMatches,
    load: &mut LoadText,
    faults: &mut Vec<Message>,
) -> Vec<ServerSpec> {
    let mut servers = mileposts(matches, faults);
    for text in texts(matches, "start") {
        servers.extend(kept(experiment::other(text), faults));
    }
    let is_started = texts(matches, "server")
        .chain(texts(matches, "start"))
        .next()
        .is_some();
    let given = load.value("url").map(str::to_owned);
    if !is_started {
        let name = given.unwrap_or_else(|| "target".to_owned());
        return vec![ServerSpec {
            name,
            ..ServerSpec::default()
        }];
    }
    let url = given.unwrap_or_else(|| "/".to_owned());
    if url.starts_with('/') {
        for server in &mut servers {
            // One that listens may still load its application. Another status is the load's to judge.
            server.ready.path = load.value("expect_status").is_none().then(|| url.clone());
        }
        load.set("url", format!("http://127.0.0.1:{{port}}{url}"));
    } else if !url.contains("{port}") {
        let message = Message::new(
            &format!("`{url}`"),
            "servers that are started get their own ports",
        );
        faults.push(message.with_hint("give the path alone, as `/index.html`"));
    }
    servers
}

fn mileposts(matches: &ArgMatches, faults: &mut Vec<Message>) -> Vec<ServerSpec> {
    let dimensions = texts(matches, "matrix").filter_map(|text| kept(dimension(text), faults));
    let dimensions: Vec<Dimension> = dimensions.collect();
    let Some(text) = texts(matches, "server").last() else {
        if let Some(matrix) = texts(matches, "matrix").next() {
            let message =
                Message::new(&format!("`--matrix {matrix}`"), "there is no server to set");
            faults.push(message.with_hint("`--server 'shop:app'` starts one"));
        }
        return Vec::new();
    };
    if texts(matches, "server").count() > 1 {
        let message = Message::new("`--server`", "is given more than once");
        faults.push(message.with_hint("`--matrix` makes several of one, `--start` starts others"));
    }
    let words = experiment::words(text).and_then(unchosen);
    let words = words.map_err(|cause| Fault::new(format!("`--server {text}`: {cause}")));
    let all = kept(experiment::combinations(&dimensions), faults);
    let (Some(words), Some(all)) = (kept(words, faults), all) else {
        return Vec::new();
    };
    let servers = all.iter().map(|one| experiment::milepost(one, &words));
    servers.collect()
}

/// The arguments, if none of them says what is chosen here.
fn unchosen(words: Vec<String>) -> Result<Vec<String>, String> {
    let key = |word: &&String| {
        let long = word.strip_prefix("--")?;
        let key = long.split('=').next().unwrap_or(long).replace('-', "_");
        CHOSEN.into_iter().find(|chosen| *chosen == key)
    };
    let mut keys = words.iter().filter_map(|word| key(&word));
    match keys.next() {
        Some(key) => Err(format!("`--{key}` is chosen by the sweep")),
        None if words.iter().any(|word| word.starts_with("-b")) => {
            Err("`-b` is chosen by the sweep".to_owned())
        }
        None => Ok(words),
    }
}

fn dimension(text: &str) -> Result<Dimension, Fault> {
    let dimension = Dimension::parse(text)?;
    let key = dimension.key.as_str();
    if CHOSEN.contains(&key) {
        return Err(Fault::new(format!(
            "`--matrix {text}`: `{key}` is chosen by the sweep"
        )));
    }
    if setting(key).is_some() {
        return Ok(dimension);
    }
    let hint = match nearest(key, SETTINGS.iter().map(|setting| setting.key)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`milepost reference` has all settings".to_owned(),
    };
    Err(Fault::with_hint(
        format!("`--matrix {text}`: there is no setting `{key}`"),
        hint,
    ))
}

fn repeat(matches: &ArgMatches) -> Result<usize, Fault> {
    let Some(text) = texts(matches, "repeat").last() else {
        return Ok(REPEAT);
    };
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=REPEAT_MAX).contains(number));
    number.ok_or_else(|| {
        Fault::new(format!(
            "`--repeat {text}`: is no number from 1 to {REPEAT_MAX}"
        ))
    })
}

fn pins(matches: &ArgMatches) -> Result<Pins, Fault> {
    let usual = Pins::usual();
    let Some(text) = texts(matches, "server-cpus").last() else {
        return Ok(usual);
    };
    let fault = || {
        let text = format!("`--server-cpus {text}`: is no list of processors");
        Fault::with_hint(
            text,
            "numbers and ranges with commas, as `0,2-3`; `--cpus` are the generator's",
        )
    };
    let mut server = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.trim()
                .parse::<usize>()
                .ok()
                .filter(|number| *number < 4_096)
        };
        let (Some(from), Some(to)) = (number(from), number(to)) else {
            return Err(fault());
        };
        if to < from {
            return Err(fault());
        }
        server.extend(from..=to);
    }
    server.sort_unstable();
    server.dedup();
    Ok(Pins {
        server,
        generator: usual.generator,
    })
}

/// How this program is started again, and Python.
fn programs(host: Option<&dyn AppHost>) -> Result<Programs, Message> {
    let Some(host) = host else {
        let own = std::env::current_exe().map_err(|error| Message::new("this program", error))?;
        let own = own.into_os_string().into_string();
        let own =
            own.map_err(|path| Message::new(&path.display().to_string(), "its path is not UTF-8"))?;
        return Ok(Programs {
            milepost: vec![own],
            python: "python3".to_owned(),
        });
    };
    let words = host.command().into_iter().map(|word| word.into_string());
    let words = words.collect::<Result<Vec<_>, _>>();
    let words = words.map_err(|word| Message::new(&word.display().to_string(), "is not UTF-8"))?;
    Ok(Programs {
        python: words.first().cloned().unwrap_or_default(),
        milepost: before_verb(words),
    })
}

/// The interpreter, its options and what it runs: what stands before this command's own arguments.
fn before_verb(mut words: Vec<String>) -> Vec<String> {
    let verb = words.iter().skip(1).position(|word| word == "bench");
    if let Some(index) = verb {
        words.truncate(index + 1);
    }
    words
}

#[cfg(test)]
mod tests;
