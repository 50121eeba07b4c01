//! Plans and outcomes that tests make up.

use crate::distribution::{Distribution, Summary};
use crate::outcome::{Asked, Counts, Generator, Outcome, Times};
use crate::plan::{
    Address, Begin, Closing, Connections, Engine, Expect, Length, Load, Machine, Plan,
    RequestParts, Requests, Scheme, Tables, Target,
};
use measure::Nanos;

/// An outcome with so many requests a second.
pub(super) fn outcome(per_second: f64, seconds: f64) -> Outcome {
    let none = Summary::from(&Distribution::new());
    Outcome {
        schema: crate::outcome::SCHEMA,
        milepost: String::new(),
        asked: Asked {
            url: String::new(),
            label: String::new(),
            load: "closed".to_owned(),
            rate: None,
            rate_legs: Vec::new(),
            connections: 1,
            connections_legs: Vec::new(),
            in_flight: 1,
            requests_each: None,
            closing: Closing::Rst,
            engine: Engine::Epoll,
            timestamps: Default::default(),
            threads: 1,
            requests: Vec::new(),
            timeout_s: 1.0,
        },
        began_unix_ms: 0,
        seconds,
        counts: Counts {
            answered: (per_second * seconds).round() as u64,
            ..Counts::default()
        },
        times: Times {
            latency: none.clone(),
            connect: none.clone(),
            first_byte: none.clone(),
            last_byte: none.clone(),
            cycle: none,
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
        kernel: Default::default(),
        company: Vec::new(),
        remarks: Vec::new(),
    }
}

/// A plan for a server on this port; nobody runs it.
pub(super) fn plan(port: u16) -> Plan {
    let request = RequestParts {
        method: "GET",
        target: "/",
        host: "127.0.0.1",
        fields: &[],
        body: None,
    };
    Plan {
        target: Target {
            url: format!("http://127.0.0.1:{port}/"),
            scheme: Scheme::Http,
            address: Address::Ip(([127, 0, 0, 1], port).into()),
            host: "127.0.0.1".to_owned(),
            path: "/".to_owned(),
        },
        requests: Requests {
            kinds: vec![request.request(1)],
        },
        load: Load::Closed,
        connections: Connections {
            len: 1,
            active: None,
            in_flight: 1,
            requests_each: None,
            closing: Closing::Rst,
            opened_per_s: None,
            sources: Vec::new(),
            timeout: Nanos::from_secs(1),
        },
        length: Length {
            begin: Begin::AtOnce,
            duration: None,
            requests: Some(1),
        },
        expect: Expect::default(),
        company: Vec::new(),
        machine: Machine {
            threads: 1,
            tables: Tables::Shared,
            cpus: Vec::new(),
            engine: Engine::Epoll,
            timestamps: Default::default(),
            spin: Nanos::ZERO,
            server_pids: Vec::new(),
        },
    }
}
