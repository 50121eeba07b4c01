//! Servers with threads behind one queue, on a virtual clock: what the rules are worth.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

/// A server: its threads, and how many times longer each request takes there.
#[derive(Clone, Copy)]
pub(super) struct ServerKind {
    pub(super) threads: u32,
    pub(super) slower: f64,
    /// Whether its responses tell its load.
    pub(super) reports: bool,
}

/// Requests by the exponential law, from clients that wait for their response, or at a rate.
#[derive(Clone, Copy)]
pub(super) struct Demand {
    pub(super) mean_us: f64,
    pub(super) load: Arriving,
    pub(super) secs: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Arriving {
    Clients(usize),
    PerSecond(f64),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    Done { server: usize, request: usize },
}

struct Server {
    kind: ServerKind,
    running: u32,
    line: VecDeque<usize>,
}

struct Request {
    arrived: Stamp,
    sent: Stamp,
    service_ns: u64,
}

/// What came of a run.
pub(super) struct Found {
    pub(super) group: Group,
    pub(super) sent: Vec<u64>,
    /// Completed in each tenth of the run.
    pub(super) completed: [u64; 10],
    /// Time from arrival to end, sorted, of the second half.
    pub(super) times: Vec<Nanos>,
    pub(super) end: Stamp,
}

impl Found {
    pub(super) fn p99(&self) -> Nanos {
        self.times[self.times.len() * 99 / 100]
    }
}

pub(super) struct Fleet {
    group: Group,
    counters: Counters,
    servers: Vec<Server>,
    requests: Vec<Request>,
    waiting: VecDeque<usize>,
    events: BinaryHeap<Reverse<(Stamp, Event)>>,
    rng: fastrand::Rng,
    demand: Demand,
}

pub(super) fn run(rule: Rule, kinds: &[ServerKind], slots: Option<u32>, demand: Demand) -> Found {
    let settings = GroupSettings {
        rule,
        round_trip: Nanos::ZERO,
        ..GroupSettings::default()
    };
    let fleet = Fleet {
        group: Group::new(settings, members(kinds.len(), slots)),
        counters: Counters::new(kinds.len()),
        servers: kinds
            .iter()
            .map(|kind| Server {
                kind: *kind,
                running: 0,
                line: VecDeque::new(),
            })
            .collect(),
        requests: Vec::new(),
        waiting: VecDeque::new(),
        events: BinaryHeap::new(),
        rng: fastrand::Rng::with_seed(7),
        demand,
    };
    fleet.run()
}

impl Fleet {
    fn run(mut self) -> Found {
        let begin = at_ms(0);
        let span = Nanos::from_secs(self.demand.secs);
        let end = begin.plus(span);
        let first = match self.demand.load {
            Arriving::Clients(clients) => clients,
            Arriving::PerSecond(_) => 1,
        };
        (0..first).for_each(|_| self.events.push(Reverse((begin, Event::Arrive))));
        let mut completed = [0; 10];
        let mut sent = vec![0; self.servers.len()];
        let mut times = Vec::new();
        while let Some(Reverse((now, event))) = self.events.pop() {
            if now >= end {
                break;
            }
            match event {
                Event::Arrive => self.arrive(now),
                Event::Done { server, request } => {
                    completed[(now.since(begin).0 * 10 / span.0) as usize] += 1;
                    sent[server] += 1;
                    if now.since(begin).0 * 2 > span.0 {
                        times.push(now.since(self.requests[request].arrived));
                    }
                    self.done(now, server, request);
                }
            }
            self.dispatch(now);
        }
        times.sort_unstable();
        Found {
            group: self.group,
            sent,
            completed,
            times,
            end,
        }
    }

    fn exponential(&mut self, mean_us: f64) -> Nanos {
        Nanos((-(1.0 - self.rng.f64()).ln() * mean_us * 1e3) as u64)
    }

    fn arrive(&mut self, now: Stamp) {
        let service_ns = self.exponential(self.demand.mean_us).0;
        self.waiting.push_back(self.requests.len());
        self.requests.push(Request {
            arrived: now,
            sent: now,
            service_ns,
        });
        if let Arriving::PerSecond(rate) = self.demand.load {
            let next = now.plus(self.exponential(1e6 / rate));
            self.events.push(Reverse((next, Event::Arrive)));
        }
    }

    fn dispatch(&mut self, now: Stamp) {
        while let Some(request) = self.waiting.pop_front() {
            let waiting = self.waiting.len() as u32;
            let ask = Ask {
                waiting,
                ..ask(now)
            };
            match self.group.choose(&ask, &self.counters, &mut self.rng) {
                Choice::Taken(server) => {
                    self.requests[request].sent = now;
                    self.servers[server].line.push_back(request);
                    self.start(now, server);
                }
                Choice::Wait | Choice::Nobody => {
                    self.waiting.push_front(request);
                    return;
                }
            }
        }
    }

    fn start(&mut self, now: Stamp, number: usize) {
        let server = &mut self.servers[number];
        while server.running < server.kind.threads
            && let Some(request) = server.line.pop_front()
        {
            server.running += 1;
            let service_ns = self.requests[request].service_ns as f64 * server.kind.slower;
            let done = Event::Done {
                server: number,
                request,
            };
            self.events
                .push(Reverse((now.plus(Nanos(service_ns as u64)), done)));
        }
    }

    fn done(&mut self, now: Stamp, number: usize, request: usize) {
        let server = &mut self.servers[number];
        let load = LoadReport {
            running: server.running,
            waiting: server.line.len() as u32,
            threads: server.kind.threads,
            queue: Nanos::ZERO,
            round_trip: None,
        };
        server.running -= 1;
        let in_flight = self.counters.in_flight(number);
        if server.kind.reports {
            self.group.reported(number, load);
        }
        let outcome = Outcome::Served {
            latency: now.since(self.requests[request].sent),
            status: 200,
        };
        self.group.ended(number, now, in_flight, outcome);
        self.counters.release(number);
        self.start(now, number);
        if let Arriving::Clients(_) = self.demand.load {
            self.events.push(Reverse((now, Event::Arrive)));
        }
    }
}

const FOUR: ServerKind = ServerKind {
    threads: 4,
    slower: 1.0,
    reports: true,
};

fn p99(rule: Rule, kinds: &[ServerKind], slots: Option<u32>, demand: Demand) -> f64 {
    run(rule, kinds, slots, demand).p99().as_secs_f64()
}

#[test]
fn reported_threads_keep_the_queue_here() {
    let demand = Demand {
        mean_us: 20_000.0,
        load: Arriving::PerSecond(720.0),
        secs: 200,
    };
    let queue = p99(Rule::Queue, &[FOUR; 4], None, demand);
    // One server with all the threads: nothing can be better.
    let central = p99(
        Rule::First,
        &[ServerKind {
            threads: 16,
            ..FOUR
        }],
        None,
        demand,
    );
    let random = p99(Rule::Random, &[FOUR; 4], Some(256), demand);
    assert!(queue <= 1.02 * central, "{queue} and {central}");
    assert!(queue < 0.6 * random, "{queue} and {random}");
}

#[test]
fn a_slow_server_gets_hardly_anything_while_the_others_have_slots() {
    let slow = ServerKind {
        slower: 10.0,
        ..FOUR
    };
    let demand = Demand {
        mean_us: 20_000.0,
        load: Arriving::PerSecond(300.0),
        secs: 200,
    };
    let three = p99(Rule::Queue, &[FOUR; 3], None, demand);
    for reports in [true, false] {
        let kinds = [FOUR, FOUR, FOUR, slow].map(|kind| ServerKind { reports, ..kind });
        let found = run(Rule::Queue, &kinds, None, demand);
        let share = found.sent[3] as f64 / found.sent.iter().sum::<u64>() as f64;
        assert!(share < 0.02, "{share} with reports: {reports}");
        let p99 = found.p99().as_secs_f64();
        assert!(
            p99 <= 1.2 * three,
            "{p99} and {three} with reports: {reports}"
        );
    }
}

#[test]
fn a_slow_server_is_used_where_the_others_are_not_enough() {
    let slow = ServerKind {
        slower: 3.0,
        ..FOUR
    };
    let demand = Demand {
        mean_us: 20_000.0,
        load: Arriving::PerSecond(630.0),
        secs: 100,
    };
    let found = run(Rule::Queue, &[FOUR, FOUR, FOUR, slow], None, demand);
    assert!(found.p99() < Nanos::from_ms(500), "{}", found.p99());
    assert!(found.sent[3] > 2_500, "{:?}", found.sent);
}
