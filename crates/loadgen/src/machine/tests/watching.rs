//! Meters on real processes and threads, and the arithmetic of trees.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use telemetry::{Nanos, now};

use super::super::server::{Family, ProcessUse};
use super::super::{HostMeter, ServerMeter, ThreadMeter, resident_bytes};

/// Long enough for anything on a machine that is busy with other things.
const PATIENCE: Nanos = Nanos::from_secs(60);

/// A shell with a script, which ends what it started when its input ends.
struct Shell {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn runs(script: &str) -> Shell {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Shell { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{line}").expect("it reads");
    }

    fn meter(&self) -> ServerMeter {
        ServerMeter::open(&[self.child.id()]).expect("it runs")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Marks until so much processor time is found.
fn mark_until(meter: &mut ServerMeter, cpu_s: f64) {
    let begun = now();
    while meter.cpu_s() < cpu_s {
        assert!(now().since(begun) < PATIENCE, "only {} s", meter.cpu_s());
        meter.mark();
        std::thread::yield_now();
    }
}

#[test]
fn counts_a_grandchild_that_spins() {
    let mut shell = Shell::runs("sh -c 'while :; do :; done' & echo ready; read end; kill $!");
    assert_eq!(shell.line(), "ready");
    let (mut meter, begun) = (shell.meter(), now());
    meter.mark();
    mark_until(&mut meter, 0.1);
    let elapsed = now().since(begun);
    let used = meter.used(1000, elapsed);
    assert_eq!(used.processes, 2);
    assert!((used.cpu_us_per_request - meter.cpu_s() * 1e3).abs() < 1e-6);
    // It has one thread; each of two looks may be off by a tick.
    assert!(
        meter.cpu_s() <= elapsed.as_secs_f64() + 0.03,
        "{} s",
        meter.cpu_s()
    );
    assert!(used.resident_bytes > 200_000);
}

#[test]
fn counts_a_child_whose_parent_is_gone() {
    let mut shell = Shell::runs("sh -c 'while :; do :; done' >&2 & echo $!; read end");
    let orphan = shell.line();
    let mut meter = shell.meter();
    meter.mark();
    drop(shell);
    let before = meter.cpu_s();
    mark_until(&mut meter, before + 0.1);
    assert_eq!(meter.used(1, Nanos::from_secs(1)).processes, 1);
    let killed = Command::new("kill")
        .arg(orphan)
        .status()
        .expect("a command");
    assert!(killed.success());
}

#[test]
fn counts_children_that_came_and_went() {
    let script = "read go; for one in 1 2 3; do \
                  sh -c 'n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done'; done; times; echo end; read end";
    let mut shell = Shell::runs(script);
    let mut meter = shell.meter();
    meter.mark();
    shell.tell("go");
    // What the shell says itself: its own time, then its children's.
    let (own, children) = (seconds(&shell.line()), seconds(&shell.line()));
    assert_eq!(shell.line(), "end");
    meter.mark();
    let found = meter.cpu_s();
    assert!(children > 0.05, "{children} s tell nothing");
    assert!(
        (found - own - children).abs() < 0.05,
        "{found} s of {own} + {children}"
    );
}

/// The sum of a line of `times`: `0m0.12s 0m1.50s`.
fn seconds(line: &str) -> f64 {
    let parts = line.split_ascii_whitespace().map(|part| {
        let (minutes, seconds) = part.trim_end_matches('s').split_once('m').expect("minutes");
        minutes.parse::<f64>().expect("a number") * 60.0 + seconds.parse::<f64>().expect("a number")
    });
    parts.sum()
}

#[test]
fn counts_context_switches() {
    let mut shell = Shell::runs("while read line; do echo $line; done");
    let mut meter = shell.meter();
    meter.mark();
    for number in 0..100 {
        shell.tell(&number.to_string());
        assert_eq!(shell.line(), number.to_string());
    }
    meter.mark();
    // It sleeps before nearly each line.
    let each = meter.used(100, Nanos::from_secs(1)).switches_per_request;
    assert!((0.5..20.0).contains(&each), "{each}");
}

#[test]
fn refuses_a_process_that_does_not_exist() {
    let mut shell = Shell::runs("read end");
    let pid = shell.child.id();
    assert!(ServerMeter::open(&[pid]).is_ok());
    drop(shell.child.stdin.take());
    let mut rest = Vec::new();
    shell.output.read_to_end(&mut rest).expect("its end");
    shell.child.wait().expect("its end");
    let fault = ServerMeter::open(&[std::process::id(), pid]).expect_err("it is gone");
    assert!(fault.text.contains(&pid.to_string()), "{}", fault.text);
}

#[test]
fn outlives_the_server() {
    let shell = Shell::runs("read end");
    let mut meter = shell.meter();
    meter.mark();
    drop(shell);
    meter.mark();
    let used = meter.used(0, Nanos::ZERO);
    assert_eq!((used.processes, used.resident_bytes), (0, 0));
    assert!(used.cpu_us_per_request.is_finite() && used.cpu_share.is_finite());
}

#[test]
fn counts_what_this_thread_spins() {
    let (meter, begun) = (ThreadMeter::begin(), now());
    let used = loop {
        let used = meter.end(now().since(begun));
        assert!(now().since(begun) < PATIENCE, "{used:?}");
        if used.cpu_s > 0.05 {
            break used;
        }
    };
    assert!(used.user_s <= used.cpu_s);
    assert!(used.cpu_share > 0.0 && used.cpu_share < 1.1, "{used:?}");
}

#[test]
fn knows_processors_and_memory() {
    let meter = HostMeter::begin();
    assert!(meter.processors() >= 1);
    assert!((0.0..=1.0).contains(&meter.foreign_share(0.0, 0.0)));
    assert!(resident_bytes() > 1_000_000);
}

#[test]
fn reads_a_line_whatever_the_program_is_called() {
    let line = "77 (a) R 1 (b) S 12 77 77 0 -1 4194560 1 2 3 4 50 6 70 8 20 0 5 0 9000 1000000 321 18446744";
    let expect = ProcessUse {
        parent: 12,
        own_ticks: 56,
        reaped_ticks: 78,
        resident_pages: 321,
        has_ended: false,
    };
    assert_eq!(ProcessUse::of(line), Some(((77, 9000), expect)));
    for cut in ["", "77", "77 (x", "77 (x) S", "77 (x) S 12 77"] {
        assert_eq!(ProcessUse::of(cut), None, "{cut}");
    }
}

/// Identifier, own and reaped ticks.
type Row = (u32, u64, u64);

fn family(rows: &[Row]) -> Family {
    let process = |&(id, own_ticks, reaped_ticks): &Row| {
        let process = ProcessUse {
            parent: 0,
            own_ticks,
            reaped_ticks,
            resident_pages: 1,
            has_ended: false,
        };
        ((id, 5), process)
    };
    Family {
        processes: rows.iter().map(process).collect(),
        ..Family::default()
    }
}

#[test]
fn adds_up_the_time_of_those_that_live_and_of_those_that_are_gone() {
    let before = [(1, 100, 50), (2, 30, 0), (3, 7, 1)];
    let cases: [(&[Row], u64); 7] = [
        (&before, 0),
        (&[(1, 110, 50), (2, 35, 0), (3, 7, 1)], 15),
        // 4 began since, and has reaped children of its own.
        (&[(1, 100, 50), (2, 30, 0), (3, 7, 1), (4, 9, 3)], 12),
        // 3 ended with 10 ticks of its own, and 2 has waited for it.
        (&[(1, 100, 50), (2, 30, 11)], 3),
        // Both ended; 2 took 5 more ticks, and somebody between the looks took 4.
        (&[(1, 100, 50 + 35 + 8 + 4)], 9),
        // 3 ended, and nobody waited for it.
        (&[(1, 100, 50), (2, 31, 0)], 1),
        (&[], 0),
    ];
    for (number, (now, expect)) in cases.into_iter().enumerate() {
        assert_eq!(
            family(now).ticks_since(&family(&before)),
            expect,
            "row {number}"
        );
    }
}

#[test]
fn adds_up_switches_of_threads_that_live() {
    let switches = |rows: &[(u32, u64)]| Family {
        switches: rows
            .iter()
            .map(|&(thread, len)| ((1, thread), len))
            .collect(),
        ..Family::default()
    };
    let before = switches(&[(1, 10), (2, 20), (3, 30)]);
    // 2 is gone, 3 is another one, 4 is new.
    assert_eq!(
        switches(&[(1, 15), (3, 4), (4, 7)]).switches_since(&before),
        5 + 4 + 7
    );
}
