//! Made-up runs for tests.

use std::collections::BTreeMap;

use telemetry::Nanos;

use crate::distribution::{Distribution, Summary};
use crate::outcome::{Asked, Counts, Generator, Outcome, SCHEMA, Times};
use crate::plan::Closing;

/// Of durations in nanoseconds.
pub(super) fn summary(nanos: &[u64]) -> Summary {
    let mut all = Distribution::new();
    for value in nanos {
        all.record(Nanos(*value));
    }
    Summary::from(&all)
}

/// A closed run with these latencies in nanoseconds, all answered.
pub(crate) fn outcome(nanos: &[u64], seconds: u32) -> Outcome {
    let latency = summary(nanos);
    Outcome {
        schema: SCHEMA,
        milepost: "0".into(),
        asked: asked(),
        began_unix_ms: 0,
        seconds: f64::from(seconds),
        counts: Counts {
            answered: nanos.len() as u64,
            ..Counts::default()
        },
        times: Times {
            connect: summary(&[]),
            first_byte: latency.clone(),
            last_byte: latency.clone(),
            cycle: latency.clone(),
            late: None,
            unread: None,
            latency,
        },
        series: Vec::new(),
        generator: Generator {
            threads: Vec::new(),
            cpu_us_per_request: 10.0,
            resident_bytes: 1 << 20,
            resident_early_bytes: 1 << 20,
            stalled_s: 0.0,
            foreign_cpu_share: 0.0,
        },
        server: None,
        kernel: BTreeMap::new(),
        bad_clients: Vec::new(),
        remarks: Vec::new(),
    }
}

fn asked() -> Asked {
    Asked {
        url: "http://127.0.0.1:8000/".into(),
        label: String::new(),
        load: "closed".into(),
        rate: None,
        rate_legs: Vec::new(),
        connections: 64,
        connections_legs: Vec::new(),
        in_flight: 1,
        requests_each: None,
        closing: Closing::Rst,
        timestamps: Default::default(),
        threads: 1,
        requests: vec!["GET /".into()],
        timeout_s: 10.0,
    }
}
