//! What the page of the admin listener is made from: one sample of the server. Asks the kernel for nothing that takes long.

use super::Supervisor;
use super::control::status::RunningRequest;
use super::history::History;
use ipc::{LiveFault, LiveProcess, LiveRoute, LiveRunning, LiveSample};
use telemetry::PerPhase;
use telemetry::counters::{Distribution, RouteSnapshot};

/// Requests that a page shows.
const RUNNING_LEN_MAX: usize = 50;

impl Supervisor<'_> {
    /// How things are now.
    pub(super) fn live_sample(&self) -> LiveSample {
        let counted = self.counted();
        let drivers = counted.all_drivers();
        let facts = self.facts();
        let (running, running_more) = self.running(RUNNING_LEN_MAX);
        let busy = counted
            .routes
            .iter()
            .filter(|route| route.figures.exchanges() > 0);
        LiveSample {
            version: facts.version,
            python: facts.python,
            started_unix_s: facts.started_unix_s,
            doing: self.doing().to_owned(),
            generation: facts.generation,
            crashes: facts.crashes,
            recycled: facts.recycled,
            last_fault: self.last_failure.as_ref().map(|(failure, at)| LiveFault {
                message: failure.message.clone(),
                age_s: at.elapsed().as_secs(),
            }),
            processes: facts
                .processes
                .into_iter()
                .map(|process| LiveProcess {
                    slot: process.slot,
                    generation: process.generation,
                    state: process.state.to_string(),
                    resident_bytes: process.resident_bytes,
                })
                .collect(),
            event_loop: counted.event_loop.clone(),
            open: drivers.open,
            connections: drivers.connections,
            accept_queue: facts
                .addresses
                .iter()
                .filter_map(|address| address.accept_queue)
                .reduce(u64::saturating_add),
            phases: all_phases(busy.clone()),
            routes: busy.map(live_route).collect(),
            running: running.into_iter().map(live_running).collect(),
            running_more,
            pools: counted.pools,
            upstreams: counted.upstreams,
            logs: counted.logs,
            spool: counted.spool,
            host: facts.host,
            heat: self.history.as_ref().map(History::heat),
        }
    }
}

fn all_phases<'a>(routes: impl Iterator<Item = &'a RouteSnapshot>) -> PerPhase<Distribution> {
    let mut all = PerPhase::<Distribution>::default();
    for route in routes {
        let phases = all.each_mut().into_iter().zip(route.seconds.each());
        phases.for_each(|(all, one)| all.0.merge(&one.0));
    }
    all
}

fn live_running(request: RunningRequest) -> LiveRunning {
    LiveRunning {
        id: request.id,
        method: request.method,
        path: request.path,
        pool: request.pool,
        pid: request.pid,
        worker: request.worker,
        waited_ms: request.waited_ms,
        ran_ms: request.ran_ms,
    }
}

fn live_route(route: &RouteSnapshot) -> LiveRoute {
    let total = &route.seconds.total.0;
    LiveRoute {
        route: route.route.clone(),
        failed: route.figures.server_error,
        sum_ns: total.sum().0,
        buckets: total.counts().collect(),
    }
}
