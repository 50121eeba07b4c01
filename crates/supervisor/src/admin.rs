//! What the admin process is told: it answers HTTP, and asks here for what the server knows of all its processes.
//!
//! Each question gets one text in a file in memory. The process that asks keeps an answer for a while, so that many
//! clients cost the supervisor no more than one.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::process::Pid;
use serde::Serialize;

use super::acme_client::talk_failure;
use super::{Supervisor, metrics};
use config::typed::AdminConfig;
use ipc::payload;
use ipc::{AdminQuery, ProcessEvent, Role, SupervisorCommand};

/// What the server has to do, for autoscalers.
#[derive(Default, Serialize)]
struct Load {
    /// Requests that run or wait, for each that can run at once.
    utilization: f64,
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
        self.admin.due(self.wanted_admin().is_some(), now)
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
                ProcessEvent::Failed => talk_failure(&received.fds),
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
    fn load(&self) -> Load {
        let mut load = Load::default();
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
                let event_loop = process.event_loops.get(app).and_then(Option::as_ref);
                if event_loop.is_none() {
                    load.capacity += figures.threads_max;
                }
            }
            // One loop runs the pools of all of its applications.
            load.capacity += counters.event_loop.inside_max.count();
        }
        load.work = load.running + load.waiting;
        load.utilization = load.work as f64 / load.capacity.max(1) as f64;
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
