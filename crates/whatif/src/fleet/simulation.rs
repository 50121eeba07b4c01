//! One simulation of a fleet: what falls due, in the order of time.
//!
//! Takes arrivals, moves the time, passes requests between proxies and servers. Keeps one place for each request that is
//! not over. It must not decide where a request goes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use queueing::balancing::LoadReport;
use telemetry::{Nanos, Stamp};

use crate::Arrival;

use super::proxy::Proxy;
use super::server::ServerState;
use super::{Fleet, FleetOutcome, Limits};

/// What the virtual clock reads when the simulation's time is 0.
const START: Stamp = Stamp(1_000_000_000);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum FleetEvent {
    /// A request reaches its server.
    Reach(usize),
    /// A run ends.
    Finish(usize),
    /// A response reaches its proxy.
    Return(usize),
    /// A report counts.
    Report {
        proxy: usize,
        server: usize,
        report: usize,
    },
    /// A proxy looks again.
    Wake(usize),
}

/// A request that is not over.
#[derive(Clone, Copy, Debug)]
struct Traveller {
    arrived: Stamp,
    /// What it takes where nothing is slower.
    run: Nanos,
    proxy: usize,
    server: usize,
    sent: Stamp,
    /// The time of its run, stalls included.
    ran: Nanos,
    load: LoadReport,
}

/// Places for values by number, used again.
#[derive(Debug)]
struct Places<T> {
    all: Vec<T>,
    free: Vec<usize>,
}

impl<T: Copy> Places<T> {
    fn put(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.all[place] = value;
                place
            }
            None => {
                self.all.push(value);
                self.all.len() - 1
            }
        }
    }

    fn take(&mut self, place: usize) -> T {
        self.free.push(place);
        self.all[place]
    }
}

/// A simulation on its way.
pub(super) struct FleetSimulation<'f> {
    fleet: &'f Fleet,
    proxies: Vec<Proxy>,
    servers: Vec<ServerState>,
    requests: Places<Traveller>,
    reports: Places<LoadReport>,
    events: BinaryHeap<Reverse<(Stamp, u64, FleetEvent)>>,
    /// Events so far: those of one moment come in the order in which they were made.
    made: u64,
    random: fastrand::Rng,
    outcome: FleetOutcome,
}

impl<'f> FleetSimulation<'f> {
    pub(super) fn new(fleet: &'f Fleet, seed: u64) -> FleetSimulation<'f> {
        let proxies = match fleet.balance {
            super::Balance::Central => 1,
            super::Balance::By(_) => fleet.proxies,
        };
        FleetSimulation {
            fleet,
            proxies: (0..proxies).map(|_| Proxy::new(fleet)).collect(),
            servers: fleet
                .servers
                .iter()
                .map(|plan| ServerState::new(*plan))
                .collect(),
            requests: Places {
                all: Vec::new(),
                free: Vec::new(),
            },
            reports: Places {
                all: Vec::new(),
                free: Vec::new(),
            },
            events: BinaryHeap::new(),
            made: 0,
            random: fastrand::Rng::with_seed(seed),
            outcome: FleetOutcome::new(fleet.servers.len()),
        }
    }

    pub(super) fn run(mut self, arrivals: &mut dyn Iterator<Item = Arrival>) -> FleetOutcome {
        let mut next = arrivals.next();
        let first = next.map(|arrival| START.plus(arrival.at));
        let mut now = first.unwrap_or(START);
        loop {
            let due = self.events.peek().map(|Reverse((at, ..))| *at);
            let comes = next.map(|arrival| START.plus(arrival.at).max(now));
            match (comes, due) {
                (Some(comes), due) if due.is_none_or(|due| comes < due) => {
                    now = comes;
                    self.arrive(now, next.map_or(Nanos::ZERO, |arrival| arrival.run));
                    next = arrivals.next();
                }
                (_, Some(due)) => {
                    now = due;
                    if let Some(Reverse((_, _, event))) = self.events.pop() {
                        self.step(now, event);
                    }
                }
                (_, None) => break,
            }
        }
        assert_eq!(
            self.outcome.arrived,
            self.outcome.total.len(),
            "requests wait and nothing is left that could wake them"
        );
        self.outcome.lasted = now.since(first.unwrap_or(now));
        self.outcome
    }

    fn push(&mut self, at: Stamp, event: FleetEvent) {
        self.made += 1;
        self.events.push(Reverse((at, self.made, event)));
    }

    fn arrive(&mut self, now: Stamp, run: Nanos) {
        self.outcome.arrived += 1;
        let proxy = match self.proxies.len() {
            1 => 0,
            len => self.random.usize(0..len),
        };
        let request = self.requests.put(Traveller {
            arrived: now,
            run,
            proxy,
            server: 0,
            sent: now,
            ran: Nanos::ZERO,
            load: LoadReport::default(),
        });
        self.proxies[proxy].push(request);
        self.dispatch(now, proxy);
    }

    fn step(&mut self, now: Stamp, event: FleetEvent) {
        match event {
            FleetEvent::Reach(request) => {
                let server = self.requests.all[request].server;
                self.servers[server].push(request);
                self.begin(now, server);
                let waiting = self.servers[server].waiting();
                let most = &mut self.outcome.servers[server].waiting_max;
                *most = waiting.max(*most);
            }
            FleetEvent::Finish(request) => self.finish(now, request),
            FleetEvent::Return(request) => self.give_back(now, request),
            FleetEvent::Report {
                proxy,
                server,
                report,
            } => {
                let load = self.reports.take(report);
                self.proxies[proxy].reported(server, load);
                self.dispatch(now, proxy);
            }
            FleetEvent::Wake(proxy) => self.dispatch(now, proxy),
        }
    }

    /// Sends what may be sent.
    fn dispatch(&mut self, now: Stamp, number: usize) {
        while let Some((request, server)) =
            self.proxies[number].next(now, self.fleet, &mut self.random)
        {
            let traveller = &mut self.requests.all[request];
            (traveller.server, traveller.sent) = (server, now);
            let way = Nanos(self.fleet.round_trip.0 / 2);
            self.push(now.plus(way), FleetEvent::Reach(request));
        }
        if let Some(at) = self.proxies[number].wake(now) {
            self.push(at, FleetEvent::Wake(number));
        }
    }

    fn begin(&mut self, now: Stamp, number: usize) {
        while let Some(request) = self.servers[number].begin() {
            let server = &self.servers[number];
            let run = server.run(self.requests.all[request].run);
            let end = server.end(now, run);
            self.requests.all[request].ran = end.since(now);
            self.push(end, FleetEvent::Finish(request));
        }
    }

    fn finish(&mut self, now: Stamp, request: usize) {
        let number = self.requests.all[request].server;
        self.requests.all[request].load = self.servers[number].report();
        self.servers[number].finish();
        let way = Nanos(self.fleet.round_trip.0.div_ceil(2));
        self.push(now.plus(way), FleetEvent::Return(request));
        self.begin(now, number);
    }

    fn give_back(&mut self, now: Stamp, request: usize) {
        let traveller = self.requests.take(request);
        let Traveller { proxy, server, .. } = traveller;
        if self.fleet.limits == Limits::Reported {
            // What the phases that servers report leave of the latency.
            let load = LoadReport {
                round_trip: Some(self.fleet.round_trip),
                ..traveller.load
            };
            if self.fleet.report_delay == Nanos::ZERO {
                self.proxies[proxy].reported(server, load);
            } else {
                let report = self.reports.put(load);
                let event = FleetEvent::Report {
                    proxy,
                    server,
                    report,
                };
                self.push(now.plus(self.fleet.report_delay), event);
            }
        }
        self.proxies[proxy].ended(now, server, now.since(traveller.sent));
        let total = now.since(traveller.arrived);
        let outcome = &mut self.outcome;
        outcome.total.record(total.0);
        outcome
            .queue
            .record(total.0.saturating_sub(traveller.ran.0));
        outcome.good += u64::from(total <= self.fleet.patience);
        let server = &mut outcome.servers[server];
        server.ran += 1;
        server.busy_seconds += traveller.ran.as_secs_f64();
        self.dispatch(now, proxy);
    }
}
