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
use super::control::status::State;
use super::{Supervisor, metrics};
use config::typed::AdminConfig;
use ipc::payload;
use ipc::{AdminQuery, ProcessEvent, Role, SupervisorCommand};
use telemetry::counters::{PoolFigures, StatsSnapshot};

/// What the server has to do, for autoscalers.
#[derive(Serialize)]
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
                ProcessEvent::AdminQuery(number, query) => {
                    // Without a descriptor left there is no answer, and its client is told so.
                    if let Ok(file) = self.answer_to(query) {
                        let answer = SupervisorCommand::AdminAnswer(number);
                        self.admin.tell(answer, vec![file]);
                    }
                }
                ProcessEvent::Failed => talk_failure(&received.fds),
                // It serves nobody, and so says nothing else.
                _ => {}
            }
        }
    }

    fn answer_to(&self, query: AdminQuery) -> io::Result<OwnedFd> {
        match query {
            AdminQuery::Metrics(form) => {
                payload::text_to_file(&metrics::text(&self.status(), &self.counted(), form))
            }
            AdminQuery::Status => payload::to_file(&self.status()),
            AdminQuery::Load => payload::to_file(&Load::of(&self.counted())),
            AdminQuery::Ready => payload::to_file(&self.is_ready()),
        }
    }

    /// Whether requests are served: a process of the configuration that serves is ready.
    fn is_ready(&self) -> bool {
        let status = self.status();
        let mut processes = status.processes.iter();
        !self.plan.is_stopping() && processes.any(|process| process.state == State::Ready)
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

impl Load {
    fn of(counted: &StatsSnapshot) -> Load {
        let sum = |of: fn(&PoolFigures) -> u64| -> u64 {
            counted.pools.iter().map(|pool| of(&pool.figures)).sum()
        };
        let running = sum(|pool| pool.running);
        let waiting = sum(|pool| pool.waiting);
        let capacity = sum(|pool| pool.threads_max).max(1);
        let work = running + waiting;
        Load {
            utilization: work as f64 / capacity as f64,
            work,
            running,
            waiting,
            capacity,
        }
    }
}
