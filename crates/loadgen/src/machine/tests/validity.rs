//! What finished runs are worth: pure.

use telemetry::Nanos;

use super::super::judge;
use crate::distribution::{Distribution, Summary};
use crate::outcome::{Asked, Generator, Outcome, ServerUse, ThreadUse, Times, Weight};
use crate::plan::Timestamps;

/// A run of ten seconds without a fault, on two processors.
fn good() -> Outcome {
    let thread = ThreadUse {
        cpu_share: 0.5,
        cpu_s: 5.0,
        ..ThreadUse::default()
    };
    Outcome {
        asked: Asked {
            load: "closed".to_owned(),
            connections: 64,
            in_flight: 1,
            threads: 2,
            ..Asked::default()
        },
        seconds: 10.0,
        times: Times {
            latency: all(1000),
            connect: all(10),
            first_byte: all(900),
            last_byte: all(1000),
            cycle: all(1000),
            ..Times::default()
        },
        generator: Generator {
            threads: vec![thread; 2],
            foreign_cpu_share: 0.01,
            ..Generator::default()
        },
        server: Some(ServerUse {
            processes: 1,
            cpu_us_per_request: 20.0,
            cpu_share: 1.0,
            resident_bytes: 0,
            switches_per_request: 0.1,
        }),
        ..Outcome::default()
    }
}

/// 2,000 times the same.
fn all(us: u64) -> Summary {
    some(2_000, us)
}

/// So many times the same.
fn some(len: usize, us: u64) -> Summary {
    let mut distribution = Distribution::new();
    for _ in 0..len {
        distribution.record(Nanos::from_us(us));
    }
    Summary::from(&distribution)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn says_what_each_fault_means() {
    use Weight::{Doubtful, Invalid, Note};
    type Change = fn(&mut Outcome);
    let open: Change = |outcome| {
        outcome.asked.load = "open, constant".to_owned();
        outcome.generator.threads[1].cpu_share = 0.95;
    };
    let cases: [(Change, Option<(Weight, &str)>); 27] = [
        (|_| {}, None),
        (
            |outcome| outcome.times.late = Some(all(101)),
            Some((Invalid, "late")),
        ),
        (|outcome| outcome.times.late = Some(all(99)), None),
        (
            |outcome| outcome.generator.threads[1].cpu_share = 0.91,
            Some((Invalid, "generator-limited")),
        ),
        (
            |outcome| outcome.generator.threads[1].cpu_share = 0.76,
            Some((Doubtful, "generator-busy")),
        ),
        (
            |outcome| outcome.generator.threads[0].cpu_share = 0.74,
            None,
        ),
        (open, Some((Doubtful, "generator-busy"))),
        (
            |outcome| outcome.generator.threads[0].waited_s = 0.51,
            Some((Doubtful, "waited")),
        ),
        (
            |outcome| {
                outcome.seconds = 0.09;
                outcome.generator.threads[1].cpu_share = 1.0;
                outcome.generator.threads[1].cpu_s = 0.09;
            },
            None,
        ),
        (
            |outcome| {
                outcome.asked.timestamps = Timestamps::Kernel;
                outcome.generator.threads[1].cpu_share = 0.91;
            },
            Some((Doubtful, "generator-limited")),
        ),
        (
            |outcome| {
                outcome.asked.timestamps = Timestamps::Kernel;
                outcome.generator.threads[1].cpu_share = 0.76;
            },
            None,
        ),
        (
            |outcome| {
                // Two threads on one processor, never idle.
                outcome.generator.threads[1].cpu_share = 0.5;
                outcome.generator.threads[1].cpu_s = 5.0;
                outcome.generator.threads[1].waited_s = 0.45 * 10.0;
            },
            Some((Invalid, "generator-limited")),
        ),
        (
            |outcome| outcome.counts.failures.local = 1,
            Some((Invalid, "local")),
        ),
        (
            |outcome| outcome.generator.foreign_cpu_share = 0.05,
            Some((Doubtful, "foreign")),
        ),
        (
            |outcome| {
                outcome.generator.foreign_cpu_share = 0.5;
                outcome.server = None;
            },
            None,
        ),
        // Of a run that is too short for p99 as well.
        (
            |outcome| {
                outcome.times.latency = some(200, 1000);
                outcome.times.late = Some(some(200, 101));
            },
            Some((Doubtful, "lateness")),
        ),
        (
            |outcome| {
                outcome.times.latency = some(200, 1000);
                outcome.times.late = Some(some(200, 99));
            },
            None,
        ),
        // 2,000 replies of 300 ms each on 64 connections in 10 s.
        (
            |outcome| {
                outcome.times.last_byte = all(300_000);
                outcome.times.latency = all(2_000_000);
                outcome.times.late = Some(all(10));
            },
            Some((Doubtful, "connections")),
        ),
        (
            |outcome| {
                outcome.times.last_byte = all(30_000);
                outcome.times.latency = all(200_000);
                outcome.times.late = Some(all(10));
            },
            None,
        ),
        (
            |outcome| {
                outcome.counts.answered = 1_000;
                outcome.counts.failures.timeout = 11;
            },
            Some((Doubtful, "censored")),
        ),
        (
            |outcome| {
                outcome.counts.answered = 1_000;
                outcome.counts.failures.status = 500;
                outcome.counts.failures.timeout = 9;
            },
            None,
        ),
        (
            |outcome| {
                outcome.counts.answered = 1_000;
                outcome.counts.unfinished = 64;
                outcome.counts.unfinished_longest_us = 7e6;
            },
            Some((Doubtful, "unfinished")),
        ),
        (
            |outcome| {
                outcome.counts.answered = 1_000;
                outcome.counts.unfinished = 64;
                outcome.counts.unfinished_longest_us = 2e4;
            },
            None,
        ),
        // It waits for all of them, and its percentiles count from when they were due.
        (
            |outcome| {
                outcome.asked.load = "open, constant".to_owned();
                outcome.times.late = Some(all(10));
                outcome.counts.answered = 1_000;
                outcome.counts.unfinished = 64;
                outcome.counts.unfinished_longest_us = 7e6;
            },
            Some((Doubtful, "censored")),
        ),
        (
            |outcome| outcome.counts.left_open = 3,
            Some((Note, "left-open")),
        ),
        (
            |outcome| outcome.kernel = [("TcpExt.ListenOverflows".to_owned(), 5)].into(),
            Some((Note, "backlog")),
        ),
        (
            |outcome| outcome.kernel = [("TcpExt.TCPTimeWaitOverflow".to_owned(), 5)].into(),
            Some((Note, "time-wait")),
        ),
    ];
    for (number, (change, expect)) in cases.into_iter().enumerate() {
        let mut outcome = good();
        change(&mut outcome);
        let remarks = judge(&outcome, Nanos::ZERO, 2);
        let got: Vec<_> = remarks
            .iter()
            .map(|remark| (remark.weight, remark.word.as_str()))
            .collect();
        assert_eq!(got, expect.into_iter().collect::<Vec<_>>(), "row {number}");
    }
}

#[test]
fn distrusts_a_run_in_which_the_generator_stood_still() {
    for (ms, expect) in [(99, 0), (101, 1)] {
        let remarks = judge(&good(), Nanos::from_ms(ms), 2);
        assert_eq!(remarks.len(), expect, "{ms} ms of 10 s");
        assert!(
            remarks
                .iter()
                .all(|remark| remark.word == "stalled" && remark.weight == Weight::Invalid)
        );
    }
}

#[test]
fn has_no_word_for_a_run_that_counted_nothing() {
    let mut outcome = good();
    outcome.seconds = 0.0;
    outcome.generator.threads.clear();
    outcome.times.latency = Summary::from(&Distribution::new());
    outcome.times.late = Some(Summary::from(&Distribution::new()));
    assert_eq!(judge(&outcome, Nanos::ZERO, 2), []);
}

#[test]
fn puts_the_worst_first() {
    let mut outcome = good();
    outcome.counts.left_open = 1;
    outcome.generator.foreign_cpu_share = 0.2;
    outcome.counts.failures.local = 7;
    let words: Vec<String> = judge(&outcome, Nanos::ZERO, 2)
        .into_iter()
        .map(|remark| remark.word)
        .collect();
    assert_eq!(words, ["local", "foreign", "left-open"]);
}
