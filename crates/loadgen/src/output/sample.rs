//! Runs that never were: what the tests of this module show.

use std::collections::BTreeMap;

use telemetry::Nanos;

use crate::distribution::{Distribution, Summary};
use crate::outcome::{
    Asked, BadClientCounts, Counts, Failures, Generator, Outcome, Remark, SCHEMA, Second,
    ServerUse, ThreadUse, Times, Weight,
};
use crate::plan::{Closing, Protocol};

/// Values spread like those of a server: most near `median_us`, few far above it.
fn spread(len: u64, median_us: f64, seed: u64) -> Summary {
    let mut all = Distribution::new();
    for index in 0..len {
        // The logarithm of odds: symmetrical round the median, with a long tail.
        let at = even(seed * 1_000_003 + index).clamp(1e-9, 1.0 - 1e-9);
        let us = median_us * (0.28 * (at / (1.0 - at)).ln()).exp();
        all.record(Nanos((us * 1e3) as u64));
    }
    Summary::from(&all)
}

/// Evenly spread between 0 and 1, by the golden ratio.
fn even(index: u64) -> f64 {
    (index as f64 * 0.618_033_988_749_894_9).fract()
}

/// None of anything.
pub(super) fn empty() -> Outcome {
    let none = || Summary::from(&Distribution::new());
    Outcome {
        schema: SCHEMA,
        milepost: "0.9.0".to_owned(),
        asked: Asked {
            url: "http://127.0.0.1:8080/".to_owned(),
            label: String::new(),
            load: "closed".to_owned(),
            rate: None,
            rate_legs: Vec::new(),
            connections: 64,
            protocol: Protocol::Http1,
            in_flight: 1,
            requests_each: None,
            closing: Closing::Rst,
            timestamps: Default::default(),
            threads: 1,
            requests: vec!["GET /".to_owned()],
            timeout_s: 10.0,
        },
        began_unix_ms: 1_795_262_400_000,
        seconds: 0.0,
        counts: Counts::default(),
        times: Times {
            latency: none(),
            connect: none(),
            first_byte: none(),
            last_byte: none(),
            cycle: none(),
            late: None,
            unread: None,
        },
        series: Vec::new(),
        generator: Generator {
            threads: Vec::new(),
            cpu_us_per_request: 0.0,
            resident_bytes: 0,
            resident_early_bytes: 0,
            stalled_s: 0.0,
            foreign_cpu_share: 0.0,
        },
        server: None,
        kernel: BTreeMap::new(),
        bad_clients: Vec::new(),
        remarks: Vec::new(),
    }
}

/// A closed load over ten seconds without a fault.
pub(super) fn closed() -> Outcome {
    let mut run = empty();
    run.seconds = 10.0;
    run.counts.answered = 20_000;
    run.counts.connections = 64;
    run.counts.read_bytes = 23_360_000;
    run.counts.sent_bytes = 1_680_000;
    run.counts.statuses = BTreeMap::from([(200, 20_000)]);
    run.times = Times {
        latency: spread(20_000, 28_500.0, 1),
        connect: spread(64, 85.0, 2),
        first_byte: spread(20_000, 28_400.0, 3),
        last_byte: spread(20_000, 28_500.0, 1),
        cycle: spread(20_000, 28_600.0, 4),
        late: None,
        unread: None,
    };
    run.series = series(2_000, 28_500.0);
    run.generator = Generator {
        threads: vec![ThreadUse {
            cpu_share: 0.53,
            cpu_s: 5.3,
            user_s: 1.2,
            waited_s: 0.02,
            involuntary_switches: 31,
        }],
        cpu_us_per_request: 8.29,
        resident_bytes: 9_437_184,
        resident_early_bytes: 9_306_112,
        stalled_s: 0.0,
        foreign_cpu_share: 0.013,
    };
    run.server = Some(ServerUse {
        processes: 3,
        cpu_us_per_request: 14.62,
        cpu_share: 0.934,
        resident_bytes: 41_943_040,
        switches_per_request: 0.031,
    });
    run
}

/// An open load with everything that can happen.
pub(super) fn open() -> Outcome {
    let mut run = closed();
    run.asked.load = "open, constant".to_owned();
    run.asked.rate = Some(2_000.0);
    run.asked.label = "with stalls & <others>".to_owned();
    run.asked.requests = vec!["GET /".to_owned(), "POST /form".to_owned()];
    run.asked.requests_each = Some(1);
    run.asked.threads = 2;
    run.counts.answered = 18_766;
    run.counts.failures = Failures {
        connect: 1_000,
        timeout: 230,
        local: 4,
        ..Failures::default()
    };
    run.counts.unsent = 12;
    run.counts.disturbed = 40;
    run.counts.connections = 18_801;
    run.counts.statuses = BTreeMap::from([(200, 18_000), (304, 766)]);
    run.times.latency = spread(18_766, 1_300.0, 5);
    run.times.connect = spread(18_801, 60.0, 6);
    run.times.first_byte = spread(18_766, 1_210.0, 10);
    run.times.last_byte = spread(18_766, 1_260.0, 11);
    run.times.cycle = spread(18_766, 1_340.0, 12);
    run.times.late = Some(spread(18_770, 12.0, 7));
    run.series = series(1_876, 1_300.0);
    run.series[4].failed = 1_234;
    run.series[4].answered = 640;
    let thread = run.generator.threads[0];
    run.generator.threads.push(thread);
    run.generator.stalled_s = 0.12;
    run.kernel = BTreeMap::from([
        ("TcpExt.ListenOverflows".to_owned(), 1_204),
        ("Tcp.RetransSegs".to_owned(), 77),
    ]);
    run.bad_clients = vec![BadClientCounts {
        name: "100 that never read".to_owned(),
        open: 98,
        made: 140,
        ended: 42,
        lived: Some(spread(42, 3_000_000.0, 8)),
        read_bytes: 0,
    }];
    run.remarks = [
        (Weight::Invalid, "late", "requests left too late: p99 of `late` is more than a tenth of the p99 of the latency. Give the generator a processor of its own (`--cpus`), or lower the rate."),
        (Weight::Doubtful, "ports", "4 requests found no port on this side. Give it more addresses: `--source 127.0.0.2-127.0.0.9`."),
        (Weight::Note, "backlog", "peaks at 1, 3 and 7 s are the listening queue of the server that overflowed."),
    ]
    .map(|(weight, word, text)| Remark {
        weight,
        word: word.to_owned(),
        text: text.to_owned(),
    })
    .into();
    run
}

fn series(answered: u64, median_us: f64) -> Vec<Second> {
    let seconds = (-2i64..10).map(|at_s| {
        let swing = 0.9 + 0.2 * even((at_s + 3) as u64);
        Second {
            at_s,
            answered: (answered as f64 * swing) as u64,
            failed: 0,
            read_bytes: (1_168.0 * answered as f64 * swing) as u64,
            p50_us: median_us / swing,
            p99_us: 3.6 * median_us / swing,
            max_us: 9.0 * median_us * (1.0 + even((at_s + 20) as u64)),
        }
    });
    seconds.collect()
}
