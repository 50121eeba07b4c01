//! Commands of clients over the control socket, and what signals ask for: stop, reopen, scale.

use std::fmt::Display;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use telemetry::Nanos;

use super::answers::AnswerEvent;
use super::control::messages::{CommandKind, PROCESSES_MAX};
use super::control::{ClientId, Outcome, Request};
use super::plan::{Overrides, PlanEvent, PlanState, PoolSizes, ReloadCause, ReloadRequest};
use super::process::ProcessState;
use super::service_manager::Manager;
use super::upgrade::millis;
use super::{GRACE, Supervisor, say, talk};
use config::failure::Failure;
use config::typed::too_many_drivers;
use ipc::{Role, SupervisorCommand};

/// Why a process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ending {
    /// The process is not needed any more.
    Meant,
    /// It did not do what it should; its place is filled again.
    Fault,
}

impl Supervisor<'_> {
    pub(super) fn take_commands(&mut self) {
        let Some(control) = &mut self.control else {
            return;
        };
        for (client, request) in control.accept_and_read(Instant::now()) {
            self.execute(client, &request);
        }
    }

    fn execute(&mut self, client: ClientId, request: &Request) {
        match *request {
            Request::Stop => self.handle(PlanEvent::Stop(Some(client))),
            Request::Reload => self.reload(vec![client]),
            Request::Reopen => {
                self.reopen();
                self.done(client, &Outcome::Done(None));
            }
            Request::Upgrade => self.handle(PlanEvent::Upgrade(Some(client))),
            Request::Scale(ref overrides) => self.scale(Some(client), overrides),
            Request::Reshape {
                ref pool,
                threads_min,
                threads_max,
            } => self.reshape(client, pool, (threads_min, threads_max)),
            Request::Status => {
                let status = self.status();
                self.done(client, &Outcome::Status(Box::new(status)));
            }
            Request::History => self.hand_out_history(client),
            Request::Stack { ref request } => self.find_stack(client, request),
        }
    }

    /// Begins a reload, whose end these clients wait for.
    pub(super) fn reload(&mut self, clients: Vec<ClientId>) {
        self.handle(PlanEvent::Reload(ReloadRequest {
            clients,
            ..ReloadRequest::default()
        }));
    }

    pub(super) fn done(&mut self, client: ClientId, outcome: &Outcome) {
        if let Some(control) = &mut self.control {
            control.done(client, outcome, Instant::now());
        }
    }

    /// Reports success on standard error, and to the client that asked.
    pub(super) fn report_done(&mut self, client: Option<ClientId>, text: String) {
        say(&text);
        if let Some(client) = client {
            self.done(client, &Outcome::Done(Some(text)));
        }
    }

    /// Tells all clients that wait for something why it is not done; without any, standard error says so.
    pub(super) fn refuse(&mut self, clients: impl IntoIterator<Item = ClientId>, failure: Failure) {
        let clients: Vec<ClientId> = clients.into_iter().collect();
        if clients.is_empty() {
            talk(&failure.text());
        }
        let outcome = Outcome::Refused(CommandKind::No, failure);
        for client in clients {
            self.done(client, &outcome);
        }
    }

    /// Lets all processes drain, within the time that this generation has for it.
    pub(super) fn begin_stop(&mut self, generation: u64) {
        self.tell_manager(Manager::is_stopping);
        let timeout = self.drain_timeout_of(Some(generation));
        let deadline = Instant::now() + timeout + GRACE;
        self.tell_manager(|manager| manager.wait_for(timeout + 2 * GRACE));
        self.note_answers(AnswerEvent::Stopped);
        // No new client connects by a path that is gone.
        self.sockets.remove_files();
        let order = SupervisorCommand::Drain {
            closing: self.sockets.closing_at_end(),
            is_patient: false,
            timeout_ms: millis(timeout),
        };
        // Those that drain already too: their sockets close now, and idle connections are waited for no longer.
        for process in &mut self.processes {
            process.drain(&order, deadline);
        }
    }

    /// Cuts what is still running.
    pub(super) fn cut(&mut self) {
        let deadline = Instant::now() + GRACE;
        // Not SIGKILL: a process that cuts its connections still writes their log lines.
        for process in &mut self.processes {
            if matches!(process.state, ProcessState::Draining { .. }) {
                process.tell(SupervisorCommand::Cut, Vec::new());
                process.state = ProcessState::Draining { deadline };
            }
        }
    }

    /// Log files are opened anew.
    pub(super) fn reopen(&mut self) {
        for process in &mut self.processes {
            if process.role == Role::Serving {
                process.tell(SupervisorCommand::Reopen, Vec::new());
            }
        }
    }

    /// One process more or less.
    pub(super) fn scale_by(&mut self, step: isize) {
        let Some(generation) = self.serving() else {
            return;
        };
        // At least one: a server without processes would be there and serve nobody.
        let processes = generation.count().saturating_add_signed(step).max(1);
        let overrides = Overrides {
            processes: Some(processes),
            drivers: None,
        };
        self.scale(None, &overrides);
    }

    /// Another number of processes is reached by starting or ending some; another number of drivers by a new
    /// generation.
    pub(super) fn scale(&mut self, client: Option<ClientId>, overrides: &Overrides) {
        let serving = self.plan.serving().filter(|_| !self.plan.is_stopping());
        let Some(serving) = serving.and_then(|id| self.generations.get(&id)) else {
            let failure = Failure::new("scale: the server does not serve now");
            return self.refuse(client, failure);
        };
        let drivers = serving.config.listen.drivers;
        let processes = overrides.processes.unwrap_or(serving.count());
        let is_more = overrides.drivers.is_some_and(|wanted| wanted != drivers);
        // Drivers are threads of a process for its whole life; and a generation that starts now would take over with the
        // number that it was made for.
        if is_more || self.plan.next().is_some() {
            return self.handle(PlanEvent::Reload(ReloadRequest {
                clients: client.into_iter().collect(),
                overrides: Overrides {
                    processes: Some(processes),
                    drivers: Some(overrides.drivers.unwrap_or(drivers)),
                },
                sizes: PoolSizes::Kept,
                cause: ReloadCause::Command,
            }));
        }
        if let Err(failure) = limit(processes, drivers) {
            return self.refuse(client, failure);
        }
        // Sockets first: where they cannot be had, nothing has changed, and the client is told why.
        let was_alone = serving.count() == 1;
        let change = self.sockets.adjust(&serving.config, processes * drivers);
        let committed = change.and_then(|change| self.sockets.commit(change, Instant::now()));
        match committed {
            Ok(committed) => committed.warnings.iter().for_each(|text| say(text)),
            Err(fault) => return self.refuse(client, Failure::from(&fault)),
        }
        let serving = self.plan.serving();
        if let Some(serving) = serving.and_then(|id| self.generations.get_mut(&id)) {
            serving.resize(processes);
        }
        if was_alone && processes > 1 {
            self.share_queues();
        }
        // Sockets get connections from here on: they are not to wait until processes have been started.
        self.assign_listeners();
        match client {
            Some(client) => self.note_answers(AnswerEvent::Scaled(client)),
            None => say(&format!(
                "{} to serve from now on",
                counted(processes, "process", "processes")
            )),
        }
    }

    /// The last message, and the answers of clients that wait for the end.
    pub(super) fn tell_stopped(&mut self) {
        // A start that failed has said why, and has answered nothing.
        if self.exit_code != 2 || self.plan.serving().is_some() {
            say(&format!(
                "stopped: {} answered, {} cut off",
                counted(self.lifetime.gone.exchanges(), "request", "requests"),
                self.lifetime.cut
            ));
        }
        if let PlanState::Stopping { clients, .. } = self.plan.state() {
            for client in clients.clone() {
                self.done(client, &Outcome::Done(None));
            }
        }
    }
}

fn limit(processes: usize, drivers: usize) -> Result<(), Failure> {
    if processes == 0 || processes > PROCESSES_MAX {
        let text = format!(
            "scale: expected a count of processes from 1 to {PROCESSES_MAX}, found `{processes}`"
        );
        return Err(Failure::new(text));
    }
    match too_many_drivers(processes, drivers) {
        Some((text, hint)) => Err(Failure::new(format!("scale: {text}")).with_hint(hint)),
        None => Ok(()),
    }
}

/// `1 process`, `2 processes`
pub(super) fn counted<N>(len: N, one: &str, many: &str) -> String
where
    N: Copy + Display + From<u8> + PartialEq,
{
    let name = if len == N::from(1) { one } else { many };
    format!("{len} {name}")
}

/// Nanoseconds as they are configured.
pub(super) fn duration(nanos: Nanos) -> std::time::Duration {
    std::time::Duration::from_nanos(nanos.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_has_the_bounds_of_the_settings() {
        let check = |(processes, drivers), expect: (&str, &str)| {
            let found = limit(processes, drivers).err();
            let said = found.map(|failure| (failure.message, failure.hint.unwrap_or_default()));
            let (message, hint) = said.unwrap_or_default();
            assert_eq!((message.as_str(), hint.as_str()), expect);
        };
        check((1, 1), ("", ""));
        check((512, 2), ("", ""));
        check((4, 256), ("", ""));
        check(
            (0, 1),
            (
                "scale: expected a count of processes from 1 to 512, found `0`",
                "",
            ),
        );
        check(
            (513, 1),
            (
                "scale: expected a count of processes from 1 to 512, found `513`",
                "",
            ),
        );
        check(
            (300, 4),
            (
                "scale: 300 processes with 4 drivers each are 1200 drivers: more than 1024",
                "at most 3 drivers",
            ),
        );
    }
}
