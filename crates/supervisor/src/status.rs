//! The contents of `milepost status`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Instant, SystemTime};

use rustix::process::Pid;

use super::Supervisor;
use super::control::status::{
    DriverStatus, GenerationStatus, HostStatus, LastFault, PoolStatus, ProcessStatus,
    RunningRequest, State, Status, Totals,
};
use super::generation::Generation;
use super::host_counters;
use super::metrics::{ProcessLine, ServerFacts};
use super::plan::PlanState;
use super::process::{self, ChildProcess};
use super::sockets::{Depth, SocketKey};
use config::typed::Steering;
use ipc::Role;
use telemetry::counters::{
    DriverSnapshot, EventLoopFigures, ListedRequest, PoolSnapshot, StatsSnapshot, StatsSum,
};

/// Requests that a status lists.
const RUNNING_LEN_MAX: usize = 200;
const NANOS_PER_MS: u64 = 1_000_000;

/// Connections that wait, by socket.
type Depths = BTreeMap<SocketKey, Depth>;

impl Supervisor<'_> {
    /// How things are.
    pub(super) fn status(&self) -> Status {
        let now = Instant::now();
        let counted = self.counted();
        let (running, running_more) = self.running(RUNNING_LEN_MAX);
        let age = self.lifetime.started_at.elapsed().unwrap_or_default();
        let started = self
            .lifetime
            .started_at
            .duration_since(SystemTime::UNIX_EPOCH);
        Status {
            pid: std::process::id(),
            version: self.around.version.to_owned(),
            python: self.processes.iter().find_map(|one| one.python.clone()),
            started_unix_s: started.unwrap_or_default().as_secs(),
            uptime_s: age.as_secs(),
            config_file: self
                .around
                .config_file
                .as_ref()
                .map(|file| file.display().to_string()),
            control: self
                .control
                .as_ref()
                .map(|control| control.path().display().to_string()),
            doing: self.doing().to_owned(),
            generations: self.generation_lines(now),
            processes: self.process_lines(now),
            running,
            running_more,
            addresses: self.sockets.addresses(),
            automatic_certificates: self.acme_client.states().to_vec(),
            certificates: self.certificate_lines(),
            totals: self.totals(&counted),
            handshakes: counted.handshakes(),
            steering: self.steering_line(&counted),
            last_fault: self.last_failure.as_ref().map(|(failure, at)| LastFault {
                failure: failure.clone(),
                age_s: now.saturating_duration_since(*at).as_secs(),
            }),
            host: self.host(),
            counters: serde_json::to_value(&counted).unwrap_or_default(),
        }
    }

    /// What all processes have counted, those that are gone too.
    pub(super) fn counted(&self) -> StatsSnapshot {
        let mut sum = StatsSum::from(self.lifetime.gone.clone());
        self.add_living(&mut sum);
        sum.finish()
    }

    /// The same, with as many routes as there are labels for.
    pub(super) fn counted_for_metrics(&mut self) -> StatsSnapshot {
        for (id, generation) in &self.generations {
            self.lifetime.labels.know(*id, &generation.config);
        }
        let mut sum = self.lifetime.labels.sum();
        sum.add(&self.lifetime.gone);
        self.add_living(&mut sum);
        sum.finish()
    }

    fn add_living(&self, sum: &mut StatsSum) {
        for counters in self.processes.iter().filter_map(ChildProcess::counters) {
            counters.add_to(sum);
        }
    }

    pub(super) fn doing(&self) -> &'static str {
        match self.plan.state() {
            PlanState::Starting { .. } => "starting",
            PlanState::Steady { .. } => "serving",
            PlanState::Rolling { .. } => "reloading",
            PlanState::Upgrading { .. } => "upgrading",
            PlanState::Stopping { .. } => "stopping",
        }
    }

    fn generation_lines(&self, now: Instant) -> Vec<GenerationStatus> {
        let own = self.processes.iter().map(|one| one.generation);
        let ids: BTreeSet<u64> = own.chain(self.generations.keys().copied()).collect();
        ids.into_iter()
            .map(|id| {
                let there = self.processes.iter().filter(|one| one.generation == id);
                let first = there.clone().map(|one| one.started).min().unwrap_or(now);
                let line = GenerationStatus {
                    generation: id,
                    age_s: now.saturating_duration_since(first).as_secs(),
                    ..GenerationStatus::default()
                };
                // The plan names no generation whose processes only drain.
                let Some(generation) = self.generation(id) else {
                    return GenerationStatus {
                        state: State::Draining,
                        processes: there.filter(|one| one.role == Role::Serving).count(),
                        ..line
                    };
                };
                GenerationStatus {
                    state: match self.plan.next() == Some(id) {
                        true => State::Starting,
                        false => State::Ready,
                    },
                    processes: generation.count(),
                    drivers: generation.config.listen.drivers,
                    ..line
                }
            })
            .collect()
    }

    /// Processes that serve, are about to, or end.
    fn serving_processes(&self) -> impl Iterator<Item = &ChildProcess> {
        let processes = self.processes.iter();
        processes.filter(|one| one.role == Role::Serving)
    }

    /// Whether requests are served.
    pub(super) fn is_ready(&self) -> bool {
        let is_ready = |process: &ChildProcess| state_of(process) == State::Ready;
        !self.plan.is_stopping() && self.serving_processes().any(is_ready)
    }

    /// Processes that run their own part of the capacity: those that drain take no more.
    pub(super) fn ready_processes(&self) -> impl Iterator<Item = &ChildProcess> {
        let processes = self.serving_processes();
        processes.filter(|process| process.state == process::ProcessState::Ready)
    }

    /// What scrapers get to know beside what is counted. Asks the kernel for nothing that takes long.
    pub(super) fn facts(&self) -> ServerFacts {
        let processes = self.serving_processes().map(|process| ProcessLine {
            slot: process.slot,
            generation: process.generation,
            state: state_of(process),
            resident_bytes: process.pid().map(resident_bytes),
        });
        let empty = self.empty_slots().map(|(slot, generation)| ProcessLine {
            slot,
            generation: generation.id,
            state: State::Waiting,
            resident_bytes: None,
        });
        let since_1970 = self
            .lifetime
            .started_at
            .duration_since(SystemTime::UNIX_EPOCH);
        ServerFacts {
            version: self.around.version.to_owned(),
            python: self.processes.iter().find_map(|one| one.python.clone()),
            started_unix_s: since_1970.unwrap_or_default().as_secs(),
            generation: self.lifetime.generations_made,
            utilization: self.load().utilization,
            processes: processes.chain(empty).collect(),
            crashes: self.lifetime.crashes,
            recycled: self.lifetime.recycled,
            admin_dropped: self.lifetime.admin_dropped,
            addresses: self.sockets.addresses(),
            certificates: self.certificate_lines(),
            host: self.host(),
        }
    }

    /// The machine and the control group.
    fn host(&self) -> HostStatus {
        HostStatus {
            last_stall: self.stalls.latest(Instant::now()),
            ..host_counters::read(Path::new("/"))
        }
    }

    /// Slots whose process has ended and waits for its next start.
    fn empty_slots(&self) -> impl Iterator<Item = (usize, &Generation)> {
        let generation = self.serving().into_iter();
        let slots = generation.flat_map(|generation| {
            let slots = 0..generation.count();
            slots.map(move |slot| (slot, generation))
        });
        slots.filter(|(slot, generation)| self.at(generation.id, *slot).next().is_none())
    }

    fn process_lines(&self, now: Instant) -> Vec<ProcessStatus> {
        let serving = self.serving_processes();
        let depths = self.sockets.waiting();
        let mut lines: Vec<ProcessStatus> = serving
            .map(|process| self.process_line(process, &depths, now))
            .collect();
        // They would be missing from the table.
        let empty = self.empty_slots();
        lines.extend(empty.map(|(slot, generation)| ProcessStatus {
            slot,
            generation: generation.id,
            state: State::Waiting,
            restarts: generation.lives[slot].restarts(),
            ..ProcessStatus::default()
        }));
        lines.sort_by_key(|line| (line.generation, line.slot));
        lines
    }

    fn process_line(&self, process: &ChildProcess, depths: &Depths, now: Instant) -> ProcessStatus {
        let counted = process.counted();
        let pid = process.pid();
        let life = self
            .generation(process.generation)
            .and_then(|generation| generation.lives.get(process.slot));
        ProcessStatus {
            slot: process.slot,
            generation: process.generation,
            pid: pid.map(|pid| pid.as_raw_nonzero().get().unsigned_abs()),
            state: state_of(process),
            age_s: now.saturating_duration_since(process.started).as_secs(),
            requests: counted
                .drivers
                .iter()
                .map(|driver| driver.figures.received)
                .sum(),
            resident_bytes: pid.map(resident_bytes),
            proportional_bytes: pid.and_then(proportional_bytes),
            restarts: life.map_or(0, |life| life.restarts()),
            drivers: counted
                .drivers
                .iter()
                .map(|driver| driver_line(process, driver, depths))
                .collect(),
            pools: counted.pools.iter().map(pool_line).collect(),
            event_loop: Some(counted.event_loop.clone()).filter(EventLoopFigures::is_there),
        }
    }

    /// The requests that have run for longest, at most so many, and how many more there are.
    pub(super) fn running(&self, len_max: usize) -> (Vec<RunningRequest>, u64) {
        let views = self.serving_processes().filter_map(ChildProcess::counters);
        let mut more: u64 = views.map(|counters| counters.unlisted()).sum();
        let all = self.all_running().into_iter();
        let mut all: Vec<RunningRequest> = all.map(|(_, request)| request).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.ran_ms));
        more += all.len().saturating_sub(len_max) as u64;
        all.truncate(len_max);
        (all, more)
    }

    /// The requests that run and are listed, with the serials of their processes.
    pub(super) fn all_running(&self) -> Vec<(u64, RunningRequest)> {
        let mut all = Vec::new();
        // Those that drain have requests, too, and it is them that operators wait for.
        for process in self.serving_processes() {
            let Some((counters, pid)) = process.counters().zip(process.pid()) else {
                continue;
            };
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            all.extend(counters.running().into_iter().map(|one| {
                let request = RunningRequest {
                    route: counters.route_name(one.route).to_owned(),
                    pool: counters.pool_name(one.pool).to_owned(),
                    pid,
                    ..running_line(&one)
                };
                (process.serial, request)
            }));
        }
        all
    }

    /// How often steering by processor did what it is for.
    fn steering_line(&self, counted: &StatsSnapshot) -> Option<String> {
        let serving = self.serving()?;
        if serving.config.listen.steering != Steering::Cpu {
            return None;
        }
        let sum = |of: fn(&DriverSnapshot) -> u64| counted.drivers.iter().map(of).sum::<u64>();
        let accepted = u128::from(sum(|driver| driver.figures.accepted));
        let local = u128::from(sum(|driver| driver.figures.local_cpu));
        let percent = (local * 100).checked_div(accepted).unwrap_or(0);
        Some(format!(
            "by processor: {percent} % of connections arrived on their driver's processor"
        ))
    }

    fn totals(&self, counted: &StatsSnapshot) -> Totals {
        let sum = |of: fn(&DriverSnapshot) -> u64| counted.drivers.iter().map(of).sum();
        Totals {
            accepted: sum(|driver| driver.figures.accepted),
            received: sum(|driver| driver.figures.received),
            balanced_out: sum(|driver| driver.figures.balanced_out),
            stall_takeovers: sum(|driver| driver.figures.stall_takeovers),
            errors: sum(|driver| driver.figures.errors),
            incomplete: counted
                .routes
                .iter()
                .map(|route| route.figures.incomplete)
                .sum(),
            crashes: self.lifetime.crashes,
            recycled: self.lifetime.recycled,
        }
    }
}

fn state_of(process: &ChildProcess) -> State {
    match process.state {
        process::ProcessState::Starting => State::Starting,
        process::ProcessState::Ready if process.pulse.missed > 1 => State::Stuck,
        process::ProcessState::Ready => State::Ready,
        process::ProcessState::Draining { .. } | process::ProcessState::Killed(_) => {
            State::Draining
        }
    }
}

fn driver_line(process: &ChildProcess, driver: &DriverSnapshot, depths: &Depths) -> DriverStatus {
    let heard = process
        .accepts_from
        .iter()
        .filter(|key| usize::from(key.driver) == driver.driver);
    let (mut waiting, mut waiting_max) = (None, None);
    for key in heard {
        let socket = SocketKey {
            address: key.address,
            index: key.index,
        };
        if let Some(depth) = depths.get(&socket) {
            // None stays none: a unix socket does not say how many wait.
            *waiting.get_or_insert(0) += u64::from(depth.waiting);
            *waiting_max.get_or_insert(0) += u64::from(depth.waiting_max);
        }
    }
    DriverStatus {
        driver: driver.driver,
        accepted: driver.figures.accepted,
        received: driver.figures.received,
        balanced_out: driver.figures.balanced_out,
        stall_takeovers: driver.figures.stall_takeovers,
        open: driver.open,
        errors: driver.figures.errors,
        accept_queue: waiting,
        accept_queue_max: waiting_max,
    }
}

/// What a request says of itself.
fn running_line(listed: &ListedRequest) -> RunningRequest {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    RunningRequest {
        id: text(&listed.id),
        method: text(&listed.method),
        path: text(&listed.path),
        worker: (listed.worker > 0).then_some(listed.worker),
        waited_ms: listed.waited.0 / NANOS_PER_MS,
        ran_ms: listed.ran.0 / NANOS_PER_MS,
        ..RunningRequest::default()
    }
}

fn pool_line(pool: &PoolSnapshot) -> PoolStatus {
    let figures = &pool.figures;
    let pressure = match figures.pressure {
        0 => "calm",
        1 => "saturated",
        _ => "overloaded",
    };
    PoolStatus {
        name: pool.name.clone(),
        pressure: pressure.to_owned(),
        threads: figures.threads,
        threads_min: figures.threads_min,
        threads_max: figures.threads_max,
        idle: figures.idle,
        running: figures.running,
        waiting: figures.waiting,
        oldest_wait_ms: figures.oldest_wait_ns / NANOS_PER_MS,
        queue_target_ms: figures.queue_target_ns as f64 / NANOS_PER_MS as f64,
        completed: figures.completed,
        refused: figures.refused,
        shed: figures.shed,
        expired: figures.expired,
        gil_share_permille: figures.gil_share_permille(),
    }
}

/// Bytes of physical memory that a process uses, pages that it shares included.
pub(super) fn resident_bytes(pid: Pid) -> u64 {
    let pid = pid.as_raw_nonzero();
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm"));
    let pages = text.ok().and_then(|text| {
        let resident = text.split_ascii_whitespace().nth(1)?;
        resident.parse::<u64>().ok()
    });
    // A process that has just ended uses none.
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// The same with each shared page divided by the processes that share it; `None` where the kernel does not
/// say.
fn proportional_bytes(pid: Pid) -> Option<u64> {
    let pid = pid.as_raw_nonzero();
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
