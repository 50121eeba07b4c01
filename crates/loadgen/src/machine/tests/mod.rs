//! The machine: what is chosen for plans and hosts, what meters find of real processes, what is judged.

mod fit;
mod validity;
mod watching;

use telemetry::Nanos;

use super::host::{Host, TIME_WAIT};
use crate::plan::{Address, Plan};
use crate::tests::sample;

/// A closed load of ten seconds on kept connections.
pub(crate) fn plan(address: &str, connections: usize) -> Plan {
    let mut plan = sample();
    plan.target.address = Address::Ip(address.parse().expect("an address"));
    plan.connections.len = connections;
    plan.length.duration = Some(Nanos::from_secs(10));
    plan
}

/// With the kernel's defaults and many descriptors.
fn host() -> Host {
    Host {
        nofile: 1_048_576,
        nr_open: 1_048_576,
        ports: 28_232,
        time_wait: TIME_WAIT,
        loopback_time_wait: Nanos::from_secs(1),
        time_wait_max: 131_072,
    }
}
