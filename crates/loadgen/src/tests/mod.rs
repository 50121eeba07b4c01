//! What the tests of all modules begin with: a plan, and made-up runs, which they change.

use std::net::{Ipv4Addr, SocketAddr};

use telemetry::Nanos;

use crate::distribution::{Distribution, Summary};
use crate::engine::Fault;
use crate::outcome::{Asked, Counts, Generator, Outcome, SCHEMA, Times};
use crate::plan::{
    Address, Begin, Closing, Connections, Expect, Length, Load, Machine, Plan, Protocol, Request,
    RequestParts, Scheme, Tables, Target,
};

/// A table of cases: what stands at the margin is an input, what is indented below it is what `said` makes of it.
#[track_caller]
pub(crate) fn check_cases(cases: &str, said: impl Fn(&str) -> String) {
    let inputs = cases
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(' '));
    let found: String = inputs
        .map(|input| format!("{input}\n{}", indented(&said(input))))
        .collect();
    assert_eq!(found, cases.trim_start_matches('\n'), "\n{found}");
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// A fault on one line, its remedy behind `>`.
pub(crate) fn fault_text(fault: Fault) -> String {
    match fault.hint {
        Some(hint) => format!("{} > {hint}", fault.text),
        None => fault.text,
    }
}

/// A closed load of `GET /`: one thread, one connection, for a second.
pub(crate) fn sample() -> Plan {
    Plan {
        target: Target {
            url: "http://127.0.0.1:9/".to_owned(),
            scheme: Scheme::Http,
            address: Address::Ip(SocketAddr::from((Ipv4Addr::LOCALHOST, 9))),
            host: "127.0.0.1:9".to_owned(),
            path: "/".to_owned(),
        },
        requests: vec![sample_request(1)],
        load: Load::Closed,
        connections: Connections {
            protocol: Protocol::Http1,
            len: 1,
            in_flight: 1,
            requests_each: None,
            closing: Closing::Rst,
            opened_per_s: None,
            sources: Vec::new(),
            timeout: Nanos::from_secs(10),
        },
        length: Length {
            begin: Begin::AtOnce,
            duration: Some(Nanos::from_secs(1)),
            requests: None,
        },
        upgrade: None,
        expect: Expect::default(),
        bad_clients: Vec::new(),
        machine: Machine {
            threads: 1,
            tables: Tables::Shared,
            cpus: Vec::new(),
            timestamps: Default::default(),
            spin: Nanos::ZERO,
            server_pids: Vec::new(),
        },
    }
}

/// `GET /` of this weight.
pub(crate) fn sample_request(weight: u32) -> Request {
    let parts = RequestParts {
        method: "GET",
        target: "/",
        host: "127.0.0.1:9",
        fields: &[],
        body: None,
    };
    parts.request(weight)
}

/// Of durations in nanoseconds.
pub(crate) fn summary(nanos: &[u64]) -> Summary {
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
        asked: Asked {
            load: "closed".into(),
            connections: 64,
            in_flight: 1,
            threads: 1,
            requests: vec!["GET /".into()],
            timeout_s: 10.0,
            ..Asked::default()
        },
        seconds: f64::from(seconds),
        counts: Counts {
            answered: nanos.len() as u64,
            ..Counts::default()
        },
        times: Times {
            first_byte: latency.clone(),
            last_byte: latency.clone(),
            cycle: latency.clone(),
            latency,
            ..Times::default()
        },
        generator: Generator {
            cpu_us_per_request: 10.0,
            resident_bytes: 1 << 20,
            ..Generator::default()
        },
        ..Outcome::default()
    }
}
