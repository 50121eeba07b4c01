//! A fleet: several servers behind proxies that balance requests over them by the server's own rules.
//!
//! Takes a fleet and arrivals, gives waits and who got what. Runs `queueing::balancing` on a virtual clock. Requests
//! wait in the order of their arrival and none is refused. It must not know pools, controllers or logs.

mod proxy;
mod server;
mod simulation;

use queueing::balancing::Rule;
use telemetry::Nanos;

use crate::outcome::share;
use crate::{Arrival, Spans};
use simulation::FleetSimulation;

/// Servers, and what is in front of them.
#[derive(Clone, PartialEq, Debug)]
pub struct Fleet {
    /// At least one.
    pub servers: Vec<FleetServer>,
    /// Proxies that know nothing of each other, at least one; a request goes to one of them by chance.
    pub proxies: usize,
    /// How a server is picked.
    pub balance: Balance,
    /// What proxies know of the servers' threads.
    pub limits: Limits,
    /// A request's way to a server and its response's way back.
    pub round_trip: Nanos,
    /// How much later than a response the report in it counts.
    pub report_delay: Nanos,
    /// A response after this time is worth nothing: for the goodput.
    pub patience: Nanos,
}

/// One server of a fleet: threads, and a queue of its own in front of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FleetServer {
    /// Requests that it runs at once, at least 1.
    pub threads: u32,
    /// How many times as long each run takes there.
    pub slower: f64,
    /// When it stands still again and again.
    pub stall: Option<Stall>,
}

impl FleetServer {
    /// So many threads, and nothing in the way.
    pub fn of_threads(threads: u32) -> FleetServer {
        FleetServer {
            threads,
            slower: 1.0,
            stall: None,
        }
    }
}

/// A server stands still for a while at the end of each stretch of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stall {
    /// The stretch.
    pub every: Nanos,
    /// How long; shorter than the stretch.
    pub lasts: Nanos,
}

/// How a server is picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Balance {
    /// By a rule of the server.
    By(Rule),
    /// By one queue of all proxies that knows at every moment which threads are free, and the fastest of them: what no
    /// proxy can have, to compare the others with.
    Central,
}

/// What proxies know of the servers' threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limits {
    /// Servers tell them with each response.
    Reported,
    /// Nothing: they find out.
    Learnt,
    /// Nothing, and they send all requests at once.
    None,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct FleetOutcome {
    /// Everything but the run, of each request: waits at the proxy and at the server, and the way; nanoseconds.
    pub queue: Spans,
    /// From arrival to the end of the response.
    pub total: Spans,
    /// By server.
    pub servers: Vec<ServerOutcome>,
    /// Requests.
    pub arrived: u64,
    /// Requests that ended within the patience of clients.
    pub good: u64,
    /// From the first arrival to the last end.
    pub lasted: Nanos,
}

/// What came of one server.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ServerOutcome {
    /// Requests that it ran.
    pub ran: u64,
    /// Thread-seconds at work.
    pub busy_seconds: f64,
    /// Most requests that waited at it.
    pub waiting_max: usize,
}

impl FleetOutcome {
    fn new(servers: usize) -> FleetOutcome {
        FleetOutcome {
            queue: Spans::new(),
            total: Spans::new(),
            servers: vec![ServerOutcome::default(); servers],
            arrived: 0,
            good: 0,
            lasted: Nanos::ZERO,
        }
    }

    /// The share of all requests that a server ran.
    pub fn share(&self, server: usize) -> f64 {
        share(self.servers[server].ran as f64, self.total.len() as f64)
    }

    /// The share of all requests that ended within the patience of clients.
    pub fn goodput(&self) -> f64 {
        share(self.good as f64, self.arrived as f64)
    }
}

/// Runs all arrivals through the fleet. The same seed gives the same outcome.
///
/// A fleet without a server or a proxy is a bug, and panics.
pub fn simulate_fleet(
    fleet: &Fleet,
    arrivals: &mut dyn Iterator<Item = Arrival>,
    seed: u64,
) -> FleetOutcome {
    assert!(!fleet.servers.is_empty(), "a fleet has a server");
    assert!(fleet.proxies > 0, "a fleet has a proxy");
    FleetSimulation::new(fleet, seed).run(arrivals)
}
