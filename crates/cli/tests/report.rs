//! `milepost report` as its users see it: flags, exit codes, pipes, and a log that grows until SIGINT.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

fn line(number: u32) -> String {
    format!(
        "192.0.2.7 - - [21/Nov/2026:12:00:00 +0000] \"GET /{number} HTTP/1.1\" 200 5 \"-\" \"-\" receive=0.000001 \
         queue=0.000002 run=0.000003 send=0.000004 total=0.000010 id={number} route=app pool=default\n"
    )
}

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..3).map(line).collect();
        fs::write(folder.path().join("a.log"), text).unwrap();
        Place { folder }
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_milepost"));
        command
            .arg("report")
            .args(line)
            .current_dir(self.folder.path())
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &[&str]) -> (Option<i32>, String, String) {
        said(self.command(line).output().unwrap())
    }

    fn run_with(&self, line: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        said(child.wait_with_output().unwrap())
    }

    #[track_caller]
    fn check_refused(&self, line: &[&str], talk: &str) {
        let (code, data, found) = self.run(line);
        assert_eq!(
            (code, data.as_str(), found.trim_end()),
            (Some(2), "", talk),
            "{line:?}"
        );
    }
}

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn reads_files_and_pipes() {
    let place = Place::new();
    let (code, data, talk) = place.run(&["a.log", "a.log", "--by", "route"]);
    assert_eq!((code, talk.as_str()), (Some(0), ""));
    assert!(
        data.contains("6 requests from 2026-11-21 12:00:00") && data.contains("\nroute  "),
        "{data}"
    );
    for flags in [&[][..], &["-"]] {
        let (code, data, talk) = place.run_with(flags, line(1).as_bytes());
        assert_eq!((code, talk.as_str()), (Some(0), ""));
        assert!(data.contains("\n1 request from"), "{data}");
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(line(1).as_bytes()).unwrap();
    let (code, data, _) = place.run_with(&["--json"], &encoder.finish().unwrap());
    assert_eq!(code, Some(0));
    let data: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!(
        (&data["lines"], &data["not_understood"]),
        (&1.into(), &0.into())
    );
}

#[test]
fn says_what_was_not_understood() {
    let place = Place::new();
    fs::write(
        place.folder.path().join("b.log"),
        format!("{}what is this\n{}", line(1), line(2)),
    )
    .unwrap();
    let (code, data, talk) = place.run(&["b.log"]);
    assert!(data.contains("2 requests"));
    assert_eq!(
        (code, talk.as_str()),
        (
            Some(0),
            "milepost: 1 of 3 lines were not understood; the first: b.log:2\n"
        )
    );
    let (code, data, talk) = place.run_with(&[], b"what\nis\nthis\n");
    assert_eq!((code, data.as_str()), (Some(1), "0 requests\n"));
    assert_eq!(
        talk,
        "milepost: 3 of 3 lines were not understood; the first: standard input:1\n\
         hint: for lines of a template, pass its text with `--format`, as in `access_log_format`\n"
    );
    let (_, _, talk) = place.run_with(&[], &line(1).as_bytes()[..60]);
    assert_eq!(
        talk,
        "milepost: standard input: the last line has no end and was left out\n"
    );
}

#[test]
fn goes_on_when_one_log_cannot_be_read() {
    let place = Place::new();
    let (code, data, talk) = place.run(&["none.log", "a.log"]);
    assert!(data.contains("3 requests"));
    assert_eq!(
        (code, talk.as_str()),
        (Some(2), "milepost: `none.log`: no such file\n")
    );
    // There is nothing to report on.
    let missing: [&[&str]; 3] = [
        &["none.log"],
        &["none.log", "--json"],
        &["a.log", "--against", "none.log"],
    ];
    for line in missing {
        let said = place.run(line);
        assert_eq!((said.0, said.1.as_str()), (Some(2), ""), "{line:?}");
    }
}

#[test]
fn writes_the_page() {
    let place = Place::new();
    let (code, data, talk) = place.run(&["a.log", "--html", "page.html"]);
    assert!(data.contains("3 requests"));
    assert!(talk.ends_with("milepost: wrote page.html\n"), "{talk}");
    let page = fs::read_to_string(place.folder.path().join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<title>a.log</title>"));
    let (_, printed, _) = place.run(&["a.log", "--html", "-"]);
    assert_eq!((code, printed), (Some(0), page));
    let (code, _, talk) = place.run(&["a.log", "--html", "none/page.html"]);
    assert_eq!(code, Some(2));
    assert!(
        talk.starts_with("milepost: `none/page.html`: No such file"),
        "{talk}"
    );
}

#[test]
fn sets_two_logs_side_by_side() {
    let place = Place::new();
    // 200 requests of a millisecond, and of 50.
    let log = |ms: u32| -> String {
        let lines = (0..200).map(|number| {
            let total = format!("total=0.{ms:03}000 ");
            line(number % 10).replace("total=0.000010 ", &total)
        });
        lines.collect()
    };
    fs::write(place.folder.path().join("before.log"), log(50)).unwrap();
    fs::write(place.folder.path().join("after.log"), log(1)).unwrap();
    let (code, data, talk) = place.run(&["before.log", "--against", "after.log"]);
    assert_eq!((code, talk.as_str()), (Some(0), ""));
    assert!(
        data.starts_with("All requests: median 50 ms before, 1 ms after.\n\n"),
        "{data}"
    );
    assert!(data.contains("\nall "), "{data}");
    let (_, data, _) = place.run(&["before.log", "--against", "before.log", "--follow"]);
    assert_eq!(data, "");
    let (code, data, _) = place.run(&["before.log", "--against", "after.log", "--json"]);
    assert!(
        code == Some(0) && data.starts_with("{\"after\":{"),
        "{data}"
    );
    let line = ["before.log", "--against", "missing.log"];
    let (code, _, talk) = place.run(&line);
    assert!(code == Some(2) && talk.contains("no such file"), "{talk}");
}

#[test]
fn says_that_no_line_has_the_format() {
    let place = Place::new();
    fs::write(place.folder.path().join("a.log"), line(1)).unwrap();
    let (code, data, talk) = place.run(&["a.log", "--format", "gunicorn:D"]);
    assert!(code == Some(0) && data.contains("1 request from"), "{data}");
    assert!(
        talk.starts_with("milepost: `--format`: no line has this format"),
        "{talk}"
    );
    let (code, _, talk) = place.run(&["a.log", "--format", "gunicorn:x"]);
    assert!(
        code == Some(2) && talk.contains("expected of gunicorn any of L, M, D, found `x`"),
        "{talk}"
    );
}

#[test]
fn refuses_flags_that_mean_nothing() {
    let place = Place::new();
    place.check_refused(
        &["a.log", "--since", "soon", "--status", "20", "--slower", "5", "--slowest", "many", "--format", "{per}"],
        "milepost: `--format`: there is no field `per` (character 1 of the template); did you mean `peer`?\n\
         milepost: `--since`: expected a time as 2026-11-21T12:07 or 2h, found `soon`\n\
         milepost: `--status`: expected statuses as 5xx,404,400-499,none, found `20`\n\
         milepost: `--slower`: expected a duration as 500ms or 2s, found `5`\n\
         milepost: `--slowest`: expected a number up to 10000, found `many`",
    );
    place.check_refused(
        &["a.log", "--format", "{peer}{id}"],
        "milepost: `--format`: nothing between `{peer}` and `{id}` says where the first ends",
    );
    place.check_refused(
        &["a.log", "--by", "rote"],
        "milepost: `--by`: expected one of path, route, status, hour, pool, upstream, method, client, peer, found `rote`\n\
         hint: did you mean `route`?",
    );
    place.check_refused(
        &["--json", "--html", "-", "-", "-"],
        "milepost: `-`: standard input can be read once only\n\
         milepost: `--json` and `--html -`: both want standard output",
    );
    place.check_refused(
        &["--folow"],
        "milepost: `--folow`: unknown flag\nhint: did you mean `--follow`?",
    );
}

/// A child that is ended when the test is.
struct Following {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Following {
    fn start(place: &Place, flags: &[&str]) -> Following {
        let mut child = place.command(flags).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Following { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn rest_after(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn follows_a_log_through_its_rotation_and_ends_cleanly() {
    let place = Place::new();
    let path = place.folder.path().join("a.log");
    let mut following = Following::start(&place, &["--follow", "a.log", "--json"]);
    // An object a second, of what came in it.
    let mut seen = 0;
    let mut rotated = false;
    append(&path, &line(3));
    while seen < 2 {
        let interval = following.line();
        seen += interval.matches("\"route\":\"app\"").count();
        if seen > 0 && !rotated {
            fs::rename(&path, place.folder.path().join("a.log.1")).unwrap();
            append(&path, &line(4));
            rotated = true;
        }
        if seen == 0 {
            append(&path, &line(3));
        }
    }
    let (code, _) = following.rest_after(Signal::INT);
    assert_eq!(code, Some(0));
}

#[test]
fn prints_the_whole_report_when_following_ends() {
    let place = Place::new();
    let mut following = Following::start(&place, &["-f", "a.log"]);
    let first = following.line();
    assert!(first.contains(" /s"), "{first}");
    let (code, rest) = following.rest_after(Signal::TERM);
    assert_eq!(code, Some(0));
    assert!(
        rest.contains("3 requests from") && rest.contains("p99.9"),
        "{rest}"
    );
}

#[test]
fn follows_a_pipe_to_its_end() {
    let place = Place::new();
    let (code, data, talk) = place.run_with(&["--follow"], [line(1), line(2)].concat().as_bytes());
    assert_eq!((code, talk.as_str()), (Some(0), ""));
    assert!(data.contains("2 requests from"), "{data}");
}
