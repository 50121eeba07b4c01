//! Performs what `fleet` has decided about processes, and notes how processes end.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::commands::{Ending, counted, duration};
use super::fleet::ProcessAction;
use super::plan::PlanEvent;
use super::process::{ChildProcess, ProcessState};
use super::restart_policy::{FAILED_STARTS_MAX, RestartHistory};
use super::upgrade::millis;
use super::{GRACE, Supervisor, say};
use config::failure::Failure;
use ipc::{Role, SupervisorCommand};
use telemetry::counters::StatsSnapshot;

impl Supervisor<'_> {
    pub(super) fn perform_on_processes(&mut self, action: ProcessAction, now: Instant) {
        match action {
            ProcessAction::Start {
                generation,
                role,
                slot,
            } => self.start(generation, role, slot),
            ProcessAction::Replace(serial) => self.replace(serial),
            ProcessAction::DrainReplaced(serial) => self.drain_replaced(serial),
            ProcessAction::Drain(serial) => self.drain_where(|one| one.serial == serial),
            ProcessAction::EndLateDrain(serial) => self.end_late_drain(serial),
            ProcessAction::EndLateStart(serial) => self.end_late_start(serial),
            ProcessAction::Promote => self.promote(now),
            ProcessAction::GiveUp => self.give_up(),
        }
    }

    /// Starts a successor of a worn process, which drains when the successor serves.
    fn replace(&mut self, serial: u64) {
        let worn = self.decided_on(serial);
        let (generation, slot) = (worn.generation, worn.slot);
        self.start(generation, Role::Serving, slot);
    }

    /// The successor of a worn process serves. Only now, because its start may fail many times before.
    fn drain_replaced(&mut self, serial: u64) {
        let worn = self.decided_on(serial);
        let reason = worn.worn.clone().unwrap_or_default();
        say(&format!("{} is replaced {reason}", worn.name()));
        self.lifetime.recycled += 1;
        self.drain_where(|one| one.serial == serial);
    }

    fn end_late_drain(&mut self, serial: u64) {
        let process = self.decided_on(serial);
        say(&format!(
            "{} did not exit within `drain_timeout`, sending SIGKILL",
            process.name()
        ));
        process.kill_for(Ending::Meant);
    }

    fn end_late_start(&mut self, serial: u64) {
        let process = self.decided_on(serial);
        let (id, name) = (process.generation, process.name());
        let limit = self.generation(id).and_then(|one| one.slots().start_limit);
        let secs = limit.unwrap_or_default().as_secs_f64();
        let failure = Failure::new(format!(
            "{name} did not serve within {secs:.0} s of its start"
        ))
        .with_hint("`start_timeout` bounds what the application's import may take");
        let process = self.decided_on(serial);
        process.failure = Some(failure);
        process.kill_for(Ending::Fault);
    }

    /// The process that a decision is about.
    fn decided_on(&mut self, serial: u64) -> &mut ChildProcess {
        let found = self.by_serial(serial);
        // No action takes a process out of the list: that is done where its end is seen, between two decisions.
        found.expect("decisions are about processes that are there")
    }

    /// Lets processes end when their connections have.
    pub(super) fn drain_where(&mut self, is_meant: impl Fn(&ChildProcess) -> bool) {
        let timeout = self.drain_timeout_of(self.plan.serving().or(self.plan.next()));
        let order = SupervisorCommand::Drain {
            closing: self.closing.clone(),
            // So that no client's request crosses the end of its connection.
            is_patient: true,
            timeout_ms: millis(timeout),
        };
        // Those that drain already go on as they were told.
        let is_meant = |one: &&mut ChildProcess| {
            !matches!(one.state, ProcessState::Draining { .. }) && is_meant(one)
        };
        for process in self.processes.iter_mut().filter(is_meant) {
            process.drain(&order, Instant::now() + timeout + GRACE);
        }
    }

    pub(super) fn drain_timeout_of(&self, generation: Option<u64>) -> Duration {
        let generation = generation.and_then(|id| self.generation(id));
        generation.map_or(Duration::ZERO, |one| duration(one.config.timeouts.drain))
    }

    /// A process is gone: what it counted is kept, and what it means for its place is noted.
    pub(super) fn note_exit(&mut self, process: &ChildProcess, status: Option<ExitStatus>) {
        let now = Instant::now();
        let last = self.keep_counts(process);
        let how = status.map_or_else(|| "ended".to_owned(), how_it_ended);
        match process.state {
            ProcessState::Draining { .. } => {
                self.lifetime.cut += process.cut;
                if let Some(code) = status.and_then(|status| status.code()) {
                    if self.plan.is_stopping() {
                        self.exit_code = self.exit_code.max(code);
                    }
                } else {
                    say(&format!("{} {how} while it drained", process.name()));
                }
            }
            // Nothing is to be said: it was not needed any more.
            ProcessState::Killed(Ending::Meant) => {}
            ProcessState::Starting => {
                let failure = process.failure.clone().unwrap_or_else(|| {
                    Failure::new(format!("{} {how} before it could serve", process.name()))
                });
                let is_told = process.failure.is_some();
                self.failed_to_start(process, failure, is_told);
            }
            ProcessState::Killed(Ending::Fault) if process.ready.is_none() => {
                let failure = process.failure.clone().unwrap_or_default();
                self.failed_to_start(process, failure, true);
            }
            ProcessState::Ready | ProcessState::Killed(Ending::Fault) => {
                self.crashed(process, &how, &last, now);
            }
        }
    }

    /// Adds what a process counted to what those counted that are gone, and gives it.
    pub(super) fn keep_counts(&mut self, process: &ChildProcess) -> StatsSnapshot {
        let last = process.counted();
        // Read before it is freed, and by the mapping that this process has: another process may get the place at once.
        if let Some(segment) = process.segment {
            self.counters.free(segment);
        }
        // Without gauges: what was open or under way ended with it.
        self.lifetime.gone.add(&last.clone().without_gauges());
        last
    }

    fn crashed(&mut self, process: &ChildProcess, how: &str, last: &StatsSnapshot, now: Instant) {
        let served = process.served(now);
        let secs = served.unwrap_or_default().as_secs_f64();
        self.lifetime.crashes += 1;
        say(&format!(
            "{} {how} after {secs:.1} s; under way: {}, open: {}",
            process.name(),
            counted(last.under_way(), "request", "requests"),
            counted(last.open(), "connection", "connections")
        ));
        if let Some(history) = self.history(process.generation, process.role, process.slot) {
            history.ended(served, now);
        }
    }

    /// What has become of the processes in a slot, unless the generation has gone or has no such slot any more.
    fn history(&mut self, id: u64, role: Role, slot: usize) -> Option<&mut RestartHistory> {
        let generation = self.generations.get_mut(&id)?;
        match role {
            Role::Template => Some(&mut generation.template),
            Role::Serving => generation.lives.get_mut(slot),
            Role::AcmeClient | Role::Admin => None,
        }
    }

    /// A start has failed.
    fn failed_to_start(&mut self, process: &ChildProcess, failure: Failure, is_told: bool) {
        let now = Instant::now();
        let (id, role, slot) = (process.generation, process.role, process.slot);
        let history = self.history(id, role, slot);
        let failed = history.map_or(0, |history| {
            history.ended(None, now);
            history.failed_starts()
        });
        let is_next = self.plan.next() == Some(id);
        // The generation that is to come is given up when it said why; one that serves tries again, later each time.
        if is_next && (is_told || self.plan.serving().is_some()) {
            return self.next_failed(failure);
        }
        if failed > 0 {
            let name = match role {
                Role::Template => "the template process".to_owned(),
                Role::Serving => format!("process {slot}"),
                Role::AcmeClient | Role::Admin => process.name(),
            };
            say(&format!(
                "{name} failed to start, {failed} in a row: {}",
                failure.message
            ));
            self.tell_given_up(process, &name, failed, &failure);
        }
        self.note_failure(failure);
    }

    /// The last start in a place has failed while others serve: why, once, in full.
    fn tell_given_up(&self, process: &ChildProcess, name: &str, failed: u32, failure: &Failure) {
        if failed != FAILED_STARTS_MAX || !self.processes.iter().any(ChildProcess::is_serving) {
            return;
        }
        let mut there = self.at(process.generation, process.slot);
        let is_beside_a_worn_one = there.any(ChildProcess::is_serving);
        let what = match process.role == Role::Serving && is_beside_a_worn_one {
            true => "is started again beside the process that it is to replace",
            false => "is not started again until a reload (`milepost reload`)",
        };
        say(&format!("{name} {what}:"));
        super::talk(&failure.text());
    }

    /// A start that could not even begin.
    pub(super) fn could_not_start(&mut self, id: u64, role: Role, slot: usize, failure: Failure) {
        if let Some(history) = self.history(id, role, slot) {
            history.ended(None, Instant::now());
        }
        if self.plan.next() == Some(id) && self.plan.serving().is_some() {
            self.next_failed(failure);
        } else {
            // Each attempt of each process fails alike. Before the first success, the last words say it (`give_up`).
            let last = self.last_failure();
            let is_news = last.is_none_or(|last| last.message != failure.message);
            if is_news && self.plan.serving().is_some() {
                say(&failure.message);
            }
            self.note_failure(failure);
        }
    }

    /// No process serves, and none is started any more: the server ends. Its last words say why.
    fn give_up(&mut self) {
        let failure = self.last_failure().unwrap_or_default();
        self.handle(PlanEvent::Hopeless);
        super::talk(&failure.text());
    }
}

/// `exited with 3`, `was killed by SIGSEGV`
pub(super) fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("was killed by {name}"),
            None => format!("was killed by signal {signal}"),
        },
        (None, None) => "ended".to_owned(),
    }
}
