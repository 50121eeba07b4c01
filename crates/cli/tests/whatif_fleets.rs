//! `milepost whatif --servers` as its users see it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const MADE: &str = "poisson rate=400 run=exp:20ms for=60s";

/// The command with this log as its standard input.
fn whatif(line: &[&str], log: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_milepost"))
        .arg("whatif")
        .args(line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Where the flags are wrong, nothing reads the log.
    let _ = child.stdin.take().unwrap().write_all(log.as_bytes());
    child.wait_with_output().unwrap()
}

fn answers(line: &[&str], log: &str) -> Value {
    let output = whatif(&[line, &["--json"]].concat(), log);
    let fault = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{fault}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_rule_has_a_row_and_a_slow_server_a_column() {
    let line = ["--synthetic", MADE, "--servers", "4", "--slots", "4"];
    let output = whatif(&[&line[..], &["--slow-server", "10x"]].concat(), "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with(
            "synthetic requests: servers with 4 slots each, the last one 10 times slower.\n"
        ),
        "{text}"
    );
    let rows = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(
        (rows("central"), rows("queue "), rows("round-robin")),
        (1, 2, 2),
        "{text}"
    );
    assert!(text.contains("to the slow one"), "{text}");
}

#[test]
fn the_queue_sends_few_requests_to_a_slow_server() {
    let line = [
        "--synthetic",
        MADE,
        "--servers",
        "4",
        "--slots",
        "4",
        "--slow-server",
        "10x",
        "--balance",
        "queue,random",
        "--limits",
        "none",
        "--proxies",
        "1,4",
        "--rate",
        "x0.7,x1",
    ];
    let found = answers(&line, "");
    assert_eq!(found["answers"].as_array().unwrap().len(), 8);
    for answer in found["answers"].as_array().unwrap() {
        let slow = answer["shares"][3].as_f64().unwrap();
        match answer["balance"].as_str().unwrap() {
            "queue" => assert!(slow < 0.02, "{answer}"),
            _ => assert!((0.23..0.27).contains(&slow), "{answer}"),
        }
    }
    assert_eq!(found["fleet"]["slow_server"], 10.0);
}

/// Lines of a proxy whose servers ran each request for 10 ms of the 50 ms that it took there.
fn log_of_a_proxy(told: &str) -> String {
    let mut log = String::new();
    for number in 0..500 {
        let at_us = 1_795_262_400_000_000_u64 + number * 10_000;
        let (minute, second) = (at_us / 60_000_000 % 60, at_us / 1_000_000 % 60);
        writeln!(
            log,
            "10.0.0.1 - - [21/Nov/2026:12:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\" \
             receive=0.000050 queue=0.000100 run=0.050000 send=0.000000 total=0.050150 id=1 route=app pool=up \
             worker=4711.1 at={}.{:06} upstream=127.0.0.1:9001 attempts=1 reused=yes connect=0.000000 \
             ttfb=0.050000{told}",
            at_us / 1_000_000,
            at_us % 1_000_000
        )
        .unwrap();
    }
    log
}

#[test]
fn a_request_of_a_proxy_runs_as_long_as_its_server_told() {
    let line = [
        "-",
        "--servers",
        "1",
        "--slots",
        "1",
        "--balance",
        "queue",
        "--round-trip",
        "1us",
    ];
    let p50 = |found: &Value| found["answers"][0]["total"]["p50_ms"].as_f64().unwrap();
    let told = answers(
        &line,
        &log_of_a_proxy(" upstream_queue=0.040000 upstream_run=0.005000"),
    );
    assert!((4.9..5.2).contains(&p50(&told)), "{told}");
    assert_eq!(told["remarks"].as_array().unwrap().len(), 0, "{told}");
    let untold = answers(&line, &log_of_a_proxy(""));
    assert!(p50(&untold) > 50.0, "{untold}");
    let remarks = untold["remarks"].to_string();
    assert!(
        remarks.contains("did not tell their run times"),
        "{remarks}"
    );
}

#[test]
fn the_way_to_a_server_is_that_of_the_log() {
    let line = ["-", "--servers", "1", "--slots", "1", "--balance", "queue"];
    let way = |more: &[&str], told: &str| {
        let found = answers(&[&line[..], more].concat(), &log_of_a_proxy(told));
        found["fleet"]["round_trip_seconds"].as_f64().unwrap()
    };
    let told = " upstream_queue=0.040000 upstream_run=0.004000";
    assert_eq!(way(&[], told), 0.006);
    assert_eq!(way(&["--round-trip", "1ms"], told), 0.001);
    assert_eq!(way(&[], ""), 0.0002);
}

#[test]
fn a_proxy_does_not_tell_the_slots_of_its_servers() {
    let output = whatif(&["-", "--servers", "2"], &log_of_a_proxy(""));
    let fault = String::from_utf8(output.stderr).unwrap();
    assert!(fault.contains("`--slots`: is missing"), "{fault}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn flags_of_one_server_and_of_fleets_do_not_mix() {
    let check = |line: &[&str], expect: &str| {
        let output = whatif(&[&["--synthetic", MADE], line].concat(), "");
        let fault = String::from_utf8(output.stderr).unwrap();
        assert!(fault.contains(expect), "{line:?}: {fault}");
        assert_eq!(output.status.code(), Some(2));
    };
    check(
        &["--servers", "2", "--threads", "4"],
        "`--threads`: is about one server",
    );
    check(
        &["--threads", "2", "--balance", "queue"],
        "`--balance`: belongs to `--servers`",
    );
    check(
        &["--servers", "2", "--balance", "hash"],
        "expected central, queue,",
    );
    check(
        &["--servers", "2", "--slow-server", "10"],
        "expected a factor from 1x",
    );
    check(&["--servers", "0"], "expected a number from 1");
    check(&["--servers", "2"], "`--slots`: is missing");
}
