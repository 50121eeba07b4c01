//! The machine: what is chosen for plans and hosts, what meters find of real processes, what is judged.

mod fit;
mod validity;
mod watching;

use telemetry::Nanos;

use super::host::{Host, Reuse};
use crate::plan::{
    Address, Begin, Closing, Connections, Expect, Length, Load, Machine, Plan, RequestParts,
    Requests, Scheme, Tables, Target,
};

/// A closed load of ten seconds on kept connections.
pub(crate) fn plan(address: &str, connections: usize) -> Plan {
    let parts = RequestParts {
        method: "GET",
        target: "/",
        host: address,
        fields: &[],
        body: None,
    };
    Plan {
        target: Target {
            url: format!("http://{address}/"),
            scheme: Scheme::Http,
            address: Address::Ip(address.parse().expect("an address")),
            host: address.to_owned(),
            path: "/".to_owned(),
        },
        requests: Requests {
            kinds: vec![parts.request(1)],
        },
        load: Load::Closed,
        connections: Connections {
            len: connections,
            active: None,
            in_flight: 1,
            requests_each: None,
            closing: Closing::Rst,
            opened_per_s: None,
            sources: Vec::new(),
            timeout: Nanos::from_secs(20),
        },
        length: Length {
            begin: Begin::AtOnce,
            duration: Some(Nanos::from_secs(10)),
            requests: None,
        },
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

/// With the kernel's defaults and many descriptors.
fn host() -> Host {
    Host {
        nofile: 1_048_576,
        nr_open: 1_048_576,
        files_left: None,
        ports: 28_232,
        reuse: Reuse::OnLoopbackAfterMs(1000),
        time_wait_max: 131_072,
        somaxconn: 4096,
        syn_backlog: None,
    }
}
