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

/// A request: its arrival and its run time in microseconds, and its path.
type Request = (u64, u64, &'static str);

const NOON_US: u64 = 1_795_262_400_000_000;

/// Numbers by chance, always the same ones.
fn chance() -> impl FnMut(u64) -> u64 {
    let mut state = 7_u64;
    move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// What a server with so many threads and one queue logs of 200 requests a second of 5 to 25 ms each.
fn log(threads: usize, requests: u64) -> String {
    log_in(Lines::NaviServer, threads, requests)
}

fn log_in(form: Lines, threads: usize, requests: u64) -> String {
    let (mut at_us, mut draw) = (NOON_US, chance());
    let requests = (0..requests).map(|_| {
        at_us += draw(10_000);
        (at_us, 5_000 + draw(20_000), "/books")
    });
    served(form, threads, requests)
}

/// What a server with so many threads and one queue logs of these requests.
fn served(form: Lines, threads: usize, requests: impl Iterator<Item = Request>) -> String {
    let mut free = vec![0; threads];
    let mut lines = Vec::new();
    for (at_us, run_us, path) in requests {
        let soonest = free.iter_mut().min().unwrap();
        let begin_us = match *soonest <= at_us {
            true => at_us + 90,
            false => *soonest + 30,
        };
        *soonest = begin_us + run_us;
        let mut line = format!(
            "10.0.0.1 - - [21/Nov/2026:12:00:00 +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"-\" "
        );
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

/// Quick requests, and every four seconds 24 slow ones at once.
fn with_slow_requests_together() -> Vec<Request> {
    let mut draw = chance();
    let mut requests: Vec<Request> = Vec::new();
    for second in 0..200 {
        let begin_us = NOON_US + second * 1_000_000;
        requests
            .extend((0..20).map(|_| (begin_us + draw(1_000_000), 2_000 + draw(6_000), "/books")));
        let slow = 24 * u64::from(second % 4 == 0);
        requests.extend((0..slow).map(|nth| {
            let at_us = begin_us + 1_000 * nth;
            (at_us, 50_000 + draw(100_000), "/reports")
        }));
    }
    requests.sort_unstable();
    requests
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
fn a_restart_makes_no_second_process() {
    let folder = tempfile::tempdir().unwrap();
    let whole = log_in(Lines::Phases, 4, 3_000);
    let refused = "\"GET /books HTTP/1.1\" 503 5 \"-\" \"-\" \
        receive=0.000050 queue=0.000000 run=0.000000 send=0.000000 total=0.000050 id=1 route=app pool=default \
        end=refused worker=- at=";
    let mut restarted = String::new();
    for (number, line) in whole.lines().enumerate() {
        let (line, at) = line.rsplit_once("at=").unwrap();
        let line = match number < 1_500 {
            true => line.to_owned(),
            false => line.replace("worker=4711", "worker=5000"),
        };
        writeln!(restarted, "{line}at={at}").unwrap();
        // Without a worker, and so without the name of the process.
        if number % 500 == 9 {
            let (peer_and_date, _) = line.split_once('"').unwrap();
            writeln!(restarted, "{peer_and_date}{refused}{at}").unwrap();
        }
    }
    fs::write(folder.path().join("a.log"), restarted).unwrap();
    let done = whatif(folder.path(), &["a.log", "--threads-now", "4", "--force"]);
    let said = text(&done.stdout);
    assert!(said.starts_with("Now: 4 threads. "), "{said}");
}

#[test]
fn a_refusal_names_all_that_a_log_does_not_say() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.log"), log(4, 3_000)).unwrap();
    let done = whatif(folder.path(), &["a.log", "--threads-now", "16"]);
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(2), ""));
    let said = text(&done.stderr);
    assert!(said.contains("does not repeat this log"), "{said}");
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
fn the_note_about_slow_requests_says_what_the_table_shows() {
    let folder = tempfile::tempdir().unwrap();
    let requests = with_slow_requests_together();
    let log = served(Lines::NaviServer, 2, requests.into_iter());
    fs::write(folder.path().join("a.log"), log).unwrap();
    let note = |threads: &str| {
        let done = whatif(
            folder.path(),
            &["a.log", "--threads-now", "2", "--threads", threads],
        );
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        let said = text(&done.stdout).to_owned();
        let found = said
            .lines()
            .find(|line| line.contains("came together (correlation"));
        found.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    // With 24 threads no request waits.
    assert!(note("2,24").contains("more threads shorten the waits in the table"));
    assert!(note("2").contains("more threads may not help"));
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
    assert!(said.contains(note) && said.contains("Checked: "), "{said}");
    // Other damage is no end.
    let mut damaged = whole;
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    fs::write(folder.path().join("damaged.gz"), damaged).unwrap();
    let done = whatif(folder.path(), &["damaged.gz", "--threads", "4"]);
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(2), ""));
    assert!(text(&done.stderr).contains("`damaged.gz`: the compressed data is damaged"));
}
