//! What the admin process is told: it answers HTTP, and asks here for what the server knows of all its processes.
//!
//! Each question gets one text in a file in memory. The process that asks keeps an answer for a while, so that many
//! clients cost the supervisor no more than one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::process::Pid;
use serde::Serialize;

use super::demand::PoolCounts;
use super::{Supervisor, metrics};
use config::typed::AdminConfig;
use ipc::payload;
use ipc::{AdminQuery, ProcessEvent, Role, SupervisorCommand};
use telemetry::counters::PoolFigures;

/// What the server has to do, for autoscalers.
#[derive(Default, Serialize)]
pub(super) struct Load {
    /// The demand, for each request that can run at once.
    pub(super) utilization: f64,
    /// Requests that would run at once if none waited and none were refused, in the mean of the last eight seconds.
    demand: f64,
    /// Requests that run or wait.
    work: u64,
    running: u64,
    waiting: u64,
    /// Requests that can run at once: most threads of all pools, and what event loops take.
    capacity: u64,
}

impl Supervisor<'_> {
    /// Starts, ends or kills the admin process, as what serves wants it.
    pub(super) fn keep_admin(&mut self, now: Instant) {
        let wanted = self.wanted_admin();
        if let Some(config) = self.admin.keep(wanted, now) {
            let begun = self.start_helper(Role::Admin);
            self.admin.begun(begun, config, now);
        }
    }

    /// When something is due for it.
    pub(super) fn admin_due(&self, now: Instant) -> Option<Instant> {
        let is_wanted = self.wanted_admin().is_some();
        let look = is_wanted.then(|| self.demand.due(now));
        self.admin.due(is_wanted, now).into_iter().chain(look).min()
    }

    /// Looks at the pools for autoscalers, if it is time.
    pub(super) fn measure_demand(&mut self, now: Instant) {
        if self.wanted_admin().is_none() || self.demand.due(now) > now {
            return;
        }
        let mut counts: BTreeMap<String, PoolCounts> = BTreeMap::new();
        let mut add = |name: &str, figures: &PoolFigures| {
            let sum = counts.entry(name.to_owned()).or_default();
            sum.running += figures.running;
            sum.waiting += figures.waiting;
            sum.completed += figures.completed;
            sum.refused += figures.refused + figures.shed + figures.expired;
        };
        for pool in &self.lifetime.gone.pools {
            add(&pool.name, &pool.figures);
        }
        for counters in self.processes.iter().filter_map(|one| one.counters()) {
            for (number, pool) in (0..).zip(counters.pools) {
                add(counters.pool_name(number), &pool.numbers());
            }
        }
        self.demand.look(counts, now);
    }

    fn wanted_admin(&self) -> Option<AdminConfig> {
        let config = self.lasting()?;
        config.admin.bind.is_some().then(|| config.admin.clone())
    }

    /// Answers what the admin process has asked.
    pub(super) fn answer_admin(&mut self) {
        while let Some(received) = self.admin.receive() {
            match received.message {
                ProcessEvent::AdminQuery(query) => {
                    // Without a descriptor left the clients are told that there is no answer.
                    let file = self.answer_to(query).ok();
                    let answer = SupervisorCommand::AdminAnswer(query);
                    self.admin.tell(answer, file.into_iter().collect());
                }
                ProcessEvent::AdminClientDropped => self.lifetime.admin_dropped += 1,
                ProcessEvent::Failed => self.admin.failed(&received.fds),
                // It serves nobody, and so says nothing else.
                _ => {}
            }
        }
    }

    fn answer_to(&mut self, query: AdminQuery) -> io::Result<OwnedFd> {
        match query {
            AdminQuery::Metrics(form) => {
                let counted = self.counted_for_metrics();
                payload::text_to_file(&metrics::text(&self.facts(), &counted, form))
            }
            AdminQuery::Status => payload::to_file(&self.status()),
            AdminQuery::Live => payload::to_file(&self.live_sample()),
            AdminQuery::Load => payload::to_file(&self.load()),
            AdminQuery::History => self.history_to_read(),
            AdminQuery::Ready => payload::to_file(&self.is_ready()),
        }
    }

    /// What the applications have to do, and can do at once, in the processes that take requests. Requests for upstreams
    /// are work of other servers.
    pub(super) fn load(&self) -> Load {
        let mut load = Load::default();
        let mut now: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for process in self.ready_processes() {
            let generation = self.generation(process.generation);
            let (Some(counters), Some(generation)) = (process.counters(), generation) else {
                continue;
            };
            for (pool, settings) in counters.pools.iter().zip(&generation.config.pools) {
                let Some(app) = settings.runs.app() else {
                    continue;
                };
                let figures = pool.numbers();
                load.running += figures.running;
                load.waiting += figures.waiting;
                let (running, waiting) = now.entry(settings.name.as_str()).or_default();
                *running += figures.running;
                *waiting += figures.waiting;
                let event_loop = process.event_loops.get(app).and_then(Option::as_ref);
                if event_loop.is_none() {
                    load.capacity += figures.threads_max;
                }
            }
            // One loop runs the pools of all of its applications.
            load.capacity += counters.event_loop.inside_max.count();
        }
        load.work = load.running + load.waiting;
        for (name, (running, waiting)) in now {
            load.demand += self.demand.demand(name, running, waiting);
        }
        load.utilization = load.demand / load.capacity.max(1) as f64;
        load
    }

    /// Whether it was the admin process that has ended.
    pub(super) fn admin_ended(&mut self, pid: Pid, status: ExitStatus) -> bool {
        if !self.admin.is_process(pid) {
            return false;
        }
        // What it said last is still in its channel.
        self.answer_admin();
        self.admin.ended(status);
        true
    }
}
