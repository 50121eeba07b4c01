//! `milepost whatif` as its users see it: servers whose settings no log says, logs that end too early, and its messages.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// In which form lines are.
#[derive(Clone, Copy)]
enum Lines {
    NaviServer,
    /// Ours, as they are without any setting.
    Phases,
}

/// What a server with so many threads and one queue logs of 200 requests a second of 5 to 25 ms each.
fn log(threads: usize, requests: u64) -> String {
    log_in(Lines::NaviServer, threads, requests)
}

fn log_in(form: Lines, threads: usize, requests: u64) -> String {
    let mut free = vec![0; threads];
    let (mut at_us, mut chance) = (1_795_262_400_000_000_u64, 7_u64);
    let mut lines = Vec::new();
    let mut draw = |below: u64| {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    for _ in 0..requests {
        at_us += draw(10_000);
        let run_us = 5_000 + draw(20_000);
        let soonest = free.iter_mut().min().unwrap();
        let begin_us = match *soonest <= at_us {
            true => at_us + 90,
            false => *soonest + 30,
        };
        *soonest = begin_us + run_us;
        let mut line =
            "10.0.0.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /books HTTP/1.1\" 200 5 \"-\" \"-\" "
                .to_owned();
        let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
        let (at, queue, run) = (seconds(at_us), seconds(begin_us - at_us), seconds(run_us));
        match form {
            Lines::NaviServer => {
                writeln!(line, "\"{at} 0.000050 {queue} 0.000000 {run}\"").unwrap();
            }
            Lines::Phases => {
                let total = seconds(begin_us - at_us + 50 + run_us);
                let second = at_us / 1_000_000 - 1_795_262_400;
                let (minute, second) = (second / 60, second % 60);
                line = line.replace(":00:00 +", &format!(":{minute:02}:{second:02} +"));
                writeln!(
                    line,
                    "receive=0.000050 queue={queue} run={run} send=0.000000 total={total} id=1 route=app \
                     pool=default worker=4711.1 at={at}"
                )
                .unwrap();
            }
        }
        lines.push((begin_us + run_us, line));
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

fn whatif(folder: &Path, line: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_milepost"))
        .arg("whatif")
        .args(line)
        .current_dir(folder)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_refusal_names_all_that_a_log_does_not_say() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.log"), log(4, 3_000)).unwrap();
    let done = whatif(folder.path(), &["a.log", "--threads-now", "16"]);
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(2), ""));
    let said = text(&done.stderr);
    assert!(said.contains("does not repeat it"), "{said}");
    for flag in [
        "--threads-now",
        "--queue-target",
        "--queue-timeout",
        "--overload-timeout",
        "--force",
    ] {
        assert!(said.contains(flag), "{flag}: {said}");
    }
}

#[test]
fn a_log_in_the_default_form_is_as_good_as_one_of_naviserver() {
    let folder = tempfile::tempdir().unwrap();
    let said = [Lines::NaviServer, Lines::Phases].map(|form| {
        fs::write(folder.path().join("a.log"), log_in(form, 4, 3_000)).unwrap();
        let flags = ["a.log", "--threads-now", "4", "--threads", "2,4", "--json"];
        let done = whatif(folder.path(), &flags);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        let said = text(&done.stdout).to_owned();
        assert!(!said.contains("whole seconds"), "{said}");
        let (_, answers) = said.split_once("\"answers\":").unwrap();
        answers.to_owned()
    });
    assert!(said[0] == said[1], "{}", said[1]);
}

#[test]
fn former_names_of_the_phases_are_named_with_a_way_to_the_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let former = log_in(Lines::Phases, 4, 300)
        .replace(" receive=", " accept=")
        .replace(" send=", " deliver=");
    fs::write(folder.path().join("a.log"), former).unwrap();
    let done = whatif(folder.path(), &["a.log"]);
    assert_eq!(done.status.code(), Some(2));
    let hint = "sed 's/ accept=/ receive=/; s/ deliver=/ send=/' OLD.log > NEW.log";
    assert!(text(&done.stderr).contains(hint), "{}", text(&done.stderr));
    let done = Command::new(env!("CARGO_BIN_EXE_milepost"))
        .args(["report", "a.log"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = text(&done.stderr);
    assert!(
        said.contains("300 of 300 lines have the phases by their former names")
            && said.contains(hint),
        "{said}"
    );
}

#[test]
fn a_compressed_log_that_is_still_written_is_answered_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(log(4, 3_000).as_bytes()).unwrap();
    let whole = encoder.finish().unwrap();
    fs::write(folder.path().join("cut.gz"), &whole[..whole.len() / 2]).unwrap();
    let done = whatif(
        folder.path(),
        &["cut.gz", "--threads-now", "4", "--threads", "4"],
    );
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    let note = "note: `cut.gz`: the compressed data is cut off; what came before it was read";
    assert!(said.contains(note) && said.contains("repeated"), "{said}");
    // Other damage is no end.
    let mut damaged = whole;
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    fs::write(folder.path().join("damaged.gz"), damaged).unwrap();
    let done = whatif(folder.path(), &["damaged.gz", "--threads", "4"]);
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(2), ""));
    assert!(text(&done.stderr).contains("`damaged.gz`: the compressed data is damaged"));
}
