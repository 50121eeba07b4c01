//! What scenario files may say, and what is said of them that say something else.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::experiment::Pins;
use crate::experiment::original::ORIGINALS;

const SMALL: &str = r#"
shows = "something"
[load]
duration = "1s"
[[server]]
name = "A"
start = ["a", "{port}"]
[[server]]
name = "B"
start = ["b"]
[[point]]
name = "{n} clients"
each = { n = [1, 10] }
load = { connections = "{n}" }
[[point]]
name = "last"
servers = ["B"]
load = { duration = "9s" }
[[table]]
title = "T"
column = [{ head = "server", text = "{server}" }, { head = "tps", value = "per-second" }]
"#;

fn read(text: &str) -> Result<Scenario, Fault> {
    Scenario::read("file", text)
}

#[test]
fn reads_every_scenario_of_the_project() {
    for (name, text) in EMBEDDED {
        let scenario =
            Scenario::read(name, text).unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        assert_eq!(scenario.experiment.name, name);
        assert!(
            !scenario.shows.is_empty() && !scenario.takes.is_empty(),
            "{name}"
        );
        for server in &scenario.experiment.servers {
            let files = server.files.iter().map(|(path, _)| path);
            let paths: BTreeSet<_> = files.clone().collect();
            assert_eq!(
                paths.len(),
                files.count(),
                "{name}, {}: one file twice",
                server.name
            );
            let every = server
                .start
                .iter()
                .chain(&server.needs)
                .chain(server.beside.iter().flat_map(|beside| &beside.start));
            for word in every.filter(|word| word.contains("{folder}/")) {
                let named = word.split("{folder}/").nth(1).unwrap_or_default();
                let is_made = ["control", "pipe", "copy", "access.log", "notes"]
                    .iter()
                    .any(|made| named.starts_with(made));
                let is_there = server.files.iter().any(|(path, _)| {
                    path.starts_with(named.split([' ', ';', '\'']).next().unwrap())
                });
                assert!(is_made || is_there, "{name}, {}: {word}", server.name);
            }
        }
    }
}

#[test]
fn has_all_files_of_the_folder_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/scenarios");
    let there: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let embedded = EMBEDDED
        .iter()
        .map(|(name, _)| format!("{name}.toml"))
        .collect();
    assert_eq!(there, embedded);
}

#[test]
fn shows_every_original_once() {
    let scenarios = EMBEDDED.map(|(name, text)| Scenario::read(name, text).unwrap());
    let tables = scenarios.iter().flat_map(|scenario| &scenario.tables);
    let mut shown: Vec<_> = tables
        .filter_map(|table| Some(table.original?.name))
        .collect();
    shown.sort_unstable();
    let mut all: Vec<_> = ORIGINALS.iter().map(|original| original.name).collect();
    all.sort_unstable();
    assert_eq!(shown, all);
}

#[test]
fn the_record_of_six_requests_has_the_run_times_of_the_original() {
    let original = crate::experiment::original::original("six-requests").unwrap();
    let text = embedded_text("six-requests").unwrap();
    for row in original.rows {
        let (request, run) = (row[0], row[6]);
        assert!(
            text.contains(&format!("\"{request}\": {run}")),
            "the application, {request}"
        );
        let line = text
            .lines()
            .find(|line| line.contains(&format!("\"target\":\"/{request}\"")))
            .unwrap();
        assert!(line.contains(&format!("\"run\":{run},")), "{line}");
    }
}

#[test]
fn makes_a_point_of_each_value() {
    let scenario = read(SMALL).unwrap();
    let points = &scenario.experiment.points;
    let names: Vec<_> = points.iter().map(|point| point.name.as_str()).collect();
    assert_eq!(names, ["1 clients", "10 clients", "last"]);
    assert_eq!(points[1].load.value("connections"), Some("10"));
    assert_eq!(points[1].load.value("duration"), Some("1s"));
    assert_eq!(points[2].load.value("duration"), Some("9s"));
    assert_eq!(scenario.experiment.name, "file");
    assert_eq!(scenario.experiment.repeat, 3);
}

#[test]
fn keeps_the_servers_that_were_named() {
    let mut scenario = read(SMALL).unwrap();
    scenario.keep_servers(&["A".to_owned()]).unwrap();
    let points = &scenario.experiment.points;
    assert_eq!(points.len(), 2, "the last one was for B alone");
    assert_eq!(scenario.tables[0].servers, ["A"]);
    let fault = scenario.keep_servers(&["C".to_owned()]).unwrap_err();
    assert_eq!(fault.text, "there is no server `C` in this scenario");
    assert_eq!(fault.hint.as_deref(), Some("its servers are `A`"));
}

#[test]
fn gives_loads_with_a_duration_another_one() {
    let mut scenario = read(SMALL).unwrap();
    scenario.last(2.5).unwrap();
    for point in &scenario.experiment.points {
        assert_eq!(point.load.value("duration"), Some("2.5s"));
    }
    let mut counted = Scenario::read("", embedded_text("thousand-at-once").unwrap()).unwrap();
    assert!(counted.last(1.0).is_err());
}

#[test]
fn says_in_which_line_a_text_is_wrong() {
    for (bad, good, expect) in [
        (
            "start = [\"b\"]",
            "start = [\"b\"]\ncolour = 1",
            "line 11: unknown field `colour`",
        ),
        (
            "shows = \"something\"",
            "shows = 5",
            "line 2: invalid type: integer `5`",
        ),
        ("shows = \"something\"", "shows = ", "line 2: "),
        ("shows = \"something\"", "", "missing field `shows`"),
        (
            "shows = \"something\"",
            "shows = \"s\"\nrest = \"1 week\"",
            "line 3: `1 week` is no span of time",
        ),
        (
            "title = \"T\"",
            "title = \"T\"\noriginal = \"oops\"",
            "`oops` is no original: there are drivers",
        ),
        (
            "value = \"per-second\"",
            "value = \"per-second\", unit = \"km\"",
            "`km` is no unit",
        ),
        (
            "value = \"per-second\"",
            "value = \"oops\"",
            "table `T`, column `tps`: `oops` is no value",
        ),
        (
            "text = \"{server}\"",
            "text = \"a\", digits = 2",
            "table `T`, column `server`: give it `text`",
        ),
        (
            "servers = [\"B\"]",
            "servers = [\"C\"]",
            "point `last` names the server `C`",
        ),
        (
            "title = \"T\"",
            "title = \"T\"\npoints = [\"oops\"]",
            "table `T` names the point `oops`",
        ),
        (
            "title = \"T\"",
            "title = \"T\"\noriginal = \"drivers\"",
            "table `T` has not the column `clients`",
        ),
        (
            "name = \"B\"",
            "name = \"A\"",
            "two servers with the name `A`",
        ),
        (
            "name = \"last\"",
            "name = \"10 clients\"",
            "two points with the name `10 clients`",
        ),
        (
            "start = [\"b\"]",
            "start = [\"b\"]\naction = [{ at = \"1s\", signal = \"STOP\", whom = \"cat\" }]",
            "signals `cat`, and no process of that name",
        ),
        (
            "start = [\"b\"]",
            "start = [\"b\"]\naction = [{ at = \"1s\" }]",
            "server `B`, action: give it `run`",
        ),
        (
            "start = [\"b\"]",
            "start = [\"b\"]\nfile = [{ path = \"p\" }]",
            "server `B`, file `p`: give it `text`",
        ),
        (
            "shows = \"something\"",
            "shows = \"s\"\nrepeat = 0",
            "`repeat` is at least 1",
        ),
    ] {
        assert!(SMALL.contains(bad), "{bad}");
        let fault = read(&SMALL.replacen(bad, good, 1)).expect_err(good);
        assert!(fault.text.contains(expect), "{good}: {}", fault.text);
    }
}

/// The files of a server, and a recording in which each line is a request.
struct OfServer<'a>(&'a [(String, String)]);

impl crate::written::Files for OfServer<'_> {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let found = self
            .0
            .iter()
            .find(|(name, _)| Path::new("/folder").join(name) == path);
        let text = found.map(|(_, text)| text.clone().into_bytes());
        text.ok_or_else(|| {
            std::io::Error::new(
                std::io::ErrorKind::NotFound,
                "the scenario has no such file",
            )
        })
    }

    fn recording(&self, path: &Path) -> Result<crate::written::Recording, Fault> {
        let bytes = self
            .read(path)
            .map_err(|error| Fault::new(error.to_string()))?;
        let mut recording = crate::written::Recording::default();
        let text = String::from_utf8(bytes).unwrap();
        for (number, line) in text.lines().enumerate() {
            let target = line
                .split("\"target\":\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap();
            recording
                .push(measure::Nanos::from_ms(number as u64), "GET", target)
                .unwrap();
        }
        Ok(recording)
    }
}

#[test]
fn every_load_of_every_scenario_is_one() {
    for (name, text) in EMBEDDED {
        let scenario = Scenario::read(name, text).unwrap();
        let server = &scenario.experiment.servers[0];
        for point in &scenario.experiment.points {
            let load = point.load.mapped(|text| {
                text.replace("{port}", "8000")
                    .replace("{folder}", "/folder")
            });
            let mut written = crate::written::Written::default();
            for (key, texts) in load.entries() {
                for text in texts {
                    assert!(
                        written.put(key, text),
                        "{name}, {}: there is no key `{key}`",
                        point.name
                    );
                }
            }
            let plan = written.plan(&OfServer(&server.files));
            let plan = plan.unwrap_or_else(|faults| panic!("{name}, {}: {faults:?}", point.name));
            assert_eq!(plan.fault(), None, "{name}, {}", point.name);
        }
    }
}

#[test]
fn holds_generator_and_servers_apart_unless_it_is_told_otherwise() {
    let pins = |text: &str| {
        let scenario = read(&format!("{text}\n{SMALL}")).unwrap();
        scenario.experiment.pins
    };
    assert_eq!(pins(""), Pins::usual());
    assert_eq!(pins("pins = {}"), Pins::default());
    let told = pins("pins = { server = [0], generator = [1, 2] }");
    assert_eq!((told.server, told.generator), (vec![0], vec![1, 2]));
}
