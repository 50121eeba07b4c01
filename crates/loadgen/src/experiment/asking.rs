//! What is asked about servers: whether they can be measured, which version they are, what they have counted.
//!
//! Takes commands, gives texts and numbers. What cannot be answered is told, not guessed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::process::is_program;
use super::server::Server;
use super::{Pins, Programs, ServerSpec};

/// A command that answers has so much time.
const ANSWERING_MAX: Duration = Duration::from_secs(20);
/// What names a Python module in [`ServerSpec::needs`].
const MODULE: &str = "python:";
/// What names a shared library there.
const LIBRARY: &str = "library:";

/// What a server needs and is not there; `None`: all is.
pub(super) fn missing(spec: &ServerSpec, programs: &Programs) -> Option<String> {
    let is_there = |need: &str| match (need.strip_prefix(MODULE), need.strip_prefix(LIBRARY)) {
        (Some(module), _) => has_module(module, programs),
        (None, Some(library)) => has_library(library),
        (None, None) => is_program(need),
    };
    let need = spec.needs.iter().find(|need| !is_there(need))?;
    Some(match need.strip_prefix(MODULE) {
        Some(module) => format!("`{}` has no module `{module}`", programs.python),
        None => format!(
            "`{}` is not installed",
            need.strip_prefix(LIBRARY).unwrap_or(need)
        ),
    })
}

/// What a server says is its version.
pub(super) fn version(spec: &ServerSpec, pins: &Pins, programs: &Programs) -> Option<String> {
    if spec.version.is_empty() {
        return None;
    }
    let server = Server::in_folder(spec, pins, programs).ok()?;
    let said = server
        .run(&spec.version, "version.log", ANSWERING_MAX, &mut || false)
        .ok()?;
    let mut lines = said.lines().map(str::trim);
    lines.find(|line| !line.is_empty()).map(str::to_owned)
}

/// The facts of a server's questions, and why some are missing.
pub(super) fn facts(server: &Server<'_>) -> (BTreeMap<String, f64>, Vec<String>) {
    let mut facts = BTreeMap::new();
    let mut notes = Vec::new();
    for fact in &server.spec.facts {
        // Each point asks anew.
        let log = format!("fact-{:08x}.log", fastrand::u32(..));
        let said = server.run(&fact.command, &log, ANSWERING_MAX, &mut || false);
        match said.and_then(|text| understood(&fact.name, &text)) {
            Ok(more) => facts.extend(more),
            Err(cause) => notes.push(format!("fact `{}`: {cause}", fact.name)),
        }
    }
    (facts, notes)
}

fn has_module(module: &str, programs: &Programs) -> bool {
    let probe =
        "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)";
    let mut command = std::process::Command::new(&programs.python);
    let output = command.args(["-c", probe, module]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Whether a program can be started with it, which the loader alone knows: it says what it cannot preload, and
/// starts the program all the same. Not every library that can be preloaded can be opened later: jemalloc wants
/// its memory for threads from the beginning.
fn has_library(library: &str) -> bool {
    let mut command = std::process::Command::new("true");
    let output = command.env("LD_PRELOAD", library).output();
    output.is_ok_and(|output| output.status.success() && output.stderr.is_empty())
}

/// A number, or lines of `key value`.
fn understood(name: &str, text: &str) -> Result<Vec<(String, f64)>, String> {
    let finite = |word: &str| word.parse().ok().filter(|number: &f64| number.is_finite());
    if !name.is_empty()
        && let Some(number) = finite(text.trim())
    {
        return Ok(vec![(name.to_owned(), number)]);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let pair = |line: &str| {
        let number = line
            .rsplit_once(char::is_whitespace)
            .and_then(|(key, word)| Some((key.trim(), finite(word)?)));
        let (key, number) =
            number.ok_or_else(|| format!("`{line}` is neither a number nor `key value`"))?;
        let full = if name.is_empty() {
            key.to_owned()
        } else {
            format!("{name}.{key}")
        };
        Ok((full, number))
    };
    lines.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FactSpec;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn programs() -> Programs {
        Programs {
            milepost: words("milepost"),
            python: "python3".to_owned(),
        }
    }

    #[test]
    fn takes_a_number_or_pairs() {
        for (name, text, expect) in [
            ("rss", " 12.5\n", vec![("rss", 12.5)]),
            (
                "queue",
                "p50 1\n\np99  2e3\n",
                vec![("queue.p50", 1.0), ("queue.p99", 2_000.0)],
            ),
            ("", "read bytes 7", vec![("read bytes", 7.0)]),
            ("empty", "", vec![]),
        ] {
            let expect: Vec<_> = expect
                .into_iter()
                .map(|(key, number)| (key.to_owned(), number))
                .collect();
            assert_eq!(understood(name, text), Ok(expect), "{text}");
        }
        let cause = understood("a", "x 1\nbad\n").expect_err("a cause");
        assert_eq!(cause, "`bad` is neither a number nor `key value`");
        assert!(understood("", "5").is_err() && understood("a", "nan").is_err());
    }

    #[test]
    fn asks_commands_and_tells_which_fail() {
        let fact = |name: &str, script: &str| FactSpec {
            name: name.to_owned(),
            command: ["sh", "-c", script].map(str::to_owned).into(),
        };
        let spec = ServerSpec {
            facts: vec![
                fact("port", "echo {port}"),
                fact("gone", "echo lost; exit 1"),
            ],
            version: words("sh -c echo;echo"),
            ..ServerSpec::default()
        };
        let pins = Pins::default();
        let server = Server::in_folder(&spec, &pins, &programs()).expect("a folder");
        let (facts, notes) = facts(&server);
        assert_eq!(facts.get("port"), Some(&f64::from(server.place.port)));
        assert_eq!(
            notes,
            ["fact `gone`: `sh -c echo lost; exit 1`: exit code 1\n  lost"]
        );
    }

    #[test]
    fn takes_the_first_line_for_the_version() {
        let script = ["sh", "-c", "echo; echo server/1.2 >&2; echo more"].map(str::to_owned);
        let spec = ServerSpec {
            version: script.into(),
            ..ServerSpec::default()
        };
        let pins = Pins::default();
        assert_eq!(
            version(&spec, &pins, &programs()).as_deref(),
            Some("server/1.2")
        );
        let spec = ServerSpec {
            version: words("no-such-program"),
            ..ServerSpec::default()
        };
        assert_eq!(version(&spec, &pins, &programs()), None);
    }

    #[test]
    fn names_what_is_missing() {
        let needs = |needs: &[&str]| ServerSpec {
            needs: needs.iter().map(|need| (*need).to_owned()).collect(),
            ..ServerSpec::default()
        };
        let found = |spec: &ServerSpec| missing(spec, &programs());
        let there = needs(&["sh", "python:json", "library:libc.so.6"]);
        assert_eq!(found(&there), None);
        assert_eq!(
            found(&needs(&["library:libno-such.so.1"])).as_deref(),
            Some("`libno-such.so.1` is not installed")
        );
        assert_eq!(
            found(&needs(&["sh", "no-such"])).as_deref(),
            Some("`no-such` is not installed")
        );
        let expect = Some("`python3` has no module `no_such`");
        assert_eq!(found(&needs(&["python:no_such"])).as_deref(), expect);
    }
}
