//! A plan for tests: a closed load of one request, which they change.

use std::net::{Ipv4Addr, SocketAddr};

use telemetry::Nanos;

use super::{
    Address, Begin, Closing, Connections, Expect, Length, Load, Machine, Plan, Request,
    RequestParts, Requests, Scheme, Tables, Target,
};

/// One thread, one connection, `GET /`, for a second.
pub(crate) fn sample() -> Plan {
    Plan {
        target: Target {
            url: "http://127.0.0.1:9/".to_owned(),
            scheme: Scheme::Http,
            address: Address::Ip(SocketAddr::from((Ipv4Addr::LOCALHOST, 9))),
            host: "127.0.0.1:9".to_owned(),
            path: "/".to_owned(),
        },
        requests: Requests {
            kinds: vec![sample_request(1)],
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
            timeout: Nanos::from_secs(10),
        },
        length: Length {
            begin: Begin::AtOnce,
            duration: Some(Nanos::from_secs(1)),
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
