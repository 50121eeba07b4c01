//! What the supervisor is told to do: by signals, over the control socket, or by code that changed.

use std::time::Instant;

use measure::Nanos;

use super::control::wire::{PROCESSES_MAX, Refusal};
use super::control::{ClientId, Outcome, Request};
use super::notify::Manager;
use super::process::State;
use super::{GRACE, Supervisor, say, talk};
use crate::channel::Order;
use crate::config::meant::too_many_drivers;
use crate::fault::Failure;

/// What `scale` asks for instead of what is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Processes.
    pub processes: Option<usize>,
    /// Drivers of each.
    pub drivers: Option<usize>,
}

/// Which sizes the pools of a new generation have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Those of the configuration.
    #[default]
    Written,
    /// Those that `scale --pool` gave them, where it did.
    Kept,
}

/// A reload that somebody asked for.
#[derive(Debug, Default)]
pub(super) struct Wish {
    /// Those who wait for its end.
    pub(super) clients: Vec<ClientId>,
    pub(super) overrides: Overrides,
    pub(super) sizes: Sizes,
    /// Code has changed: a fault is shown instead of the application.
    pub(super) is_development: bool,
}

impl Wish {
    /// Whether what it asks for is what `other` does.
    pub(super) fn is_as_wanted(&self, other: &Wish) -> bool {
        (&self.overrides, self.sizes, self.is_development)
            == (&other.overrides, other.sizes, other.is_development)
    }
}

/// Everything is to end.
pub(super) struct Stopping {
    pub(super) deadline: Instant,
    pub(super) clients: Vec<ClientId>,
    /// A second signal came.
    pub(super) is_hurried: bool,
}

/// Why a process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nobody wants it any more.
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
            self.obey(client, &request);
        }
    }

    fn obey(&mut self, client: ClientId, request: &Request) {
        match *request {
            Request::Stop => self.stop(Some(client)),
            Request::Reload => self.reload(Wish {
                clients: vec![client],
                ..Wish::default()
            }),
            Request::Reopen => {
                self.reopen();
                self.done(client, &Outcome::Done(None));
            }
            Request::Upgrade => self.upgrade(Some(client)),
            Request::Scale { processes, drivers } => {
                let overrides = Overrides { processes, drivers };
                self.scale(Some(client), &overrides);
            }
            Request::Reshape {
                ref pool,
                threads_min,
                threads_max,
            } => self.reshape(client, pool, (threads_min, threads_max)),
            Request::Status => {
                let status = self.status();
                self.done(client, &Outcome::Status(Box::new(status)));
            }
        }
    }

    pub(super) fn done(&mut self, client: ClientId, outcome: &Outcome) {
        if let Some(control) = &mut self.control {
            control.done(client, outcome, Instant::now());
        }
    }

    /// Tells whoever asked that it was done, on standard error if nobody waits for the answer.
    pub(super) fn accomplished(&mut self, client: Option<ClientId>, text: String) {
        say(&text);
        if let Some(client) = client {
            self.done(client, &Outcome::Done(Some(text)));
        }
    }

    pub(super) fn refuse(&mut self, client: Option<ClientId>, failure: Failure) {
        match client {
            Some(client) => self.done(client, &Outcome::Refused(Refusal::from(failure))),
            None => talk(&failure.text()),
        }
    }

    /// The same for all who wait for it.
    pub(super) fn refuse_all(&mut self, clients: &[ClientId], failure: &Failure) {
        if clients.is_empty() {
            return self.refuse(None, failure.clone());
        }
        for client in clients {
            self.refuse(Some(*client), failure.clone());
        }
    }

    /// Lets everything end; told twice, ends it now.
    pub(super) fn stop(&mut self, client: Option<ClientId>) {
        if let Some(stopping) = &mut self.stopping {
            match client {
                Some(client) => stopping.clients.push(client),
                None => self.hurry(),
            }
            return;
        }
        let now = Instant::now();
        self.tell_manager(Manager::is_stopping);
        let timeout = self.drain_timeout();
        let deadline = now + timeout + GRACE;
        self.tell_manager(|manager| manager.wait_for(timeout + 2 * GRACE));
        self.stopping = Some(Stopping {
            deadline,
            clients: client.into_iter().collect(),
            is_hurried: false,
        });
        if let Some(reloading) = self.reloading.take() {
            let failure = Failure::new("reload: the server was told to stop meanwhile");
            self.refuse_all(&reloading.wish.clients, &failure);
        }
        self.coming = None;
        self.end_probe("the server was told to stop meanwhile");
        for client in std::mem::take(&mut self.scaling) {
            let failure = Failure::new("scale: the server was told to stop meanwhile");
            self.refuse(Some(client), failure);
        }
        self.end_confirming("the server was told to stop meanwhile");
        // Nobody new comes by a path that is gone.
        self.sockets.remove_files();
        let closing = self.sockets.closing_at_end();
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        for process in &mut self.processes {
            match process.state {
                State::Starting => process.kill_for(Ending::Meant),
                State::Ready if process.role == crate::channel::Role::Template => {
                    process.kill_for(Ending::Meant);
                }
                State::Ready | State::Draining { .. } => {
                    let order = Order::Drain {
                        closing: closing.clone(),
                        is_patient: false,
                        timeout_ms,
                    };
                    process.tell(order, Vec::new());
                    process.state = State::Draining { deadline };
                }
                State::Killed(_) => {}
            }
        }
    }

    /// What is under way is cut.
    pub(super) fn hurry(&mut self) {
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        if stopping.is_hurried {
            return;
        }
        stopping.is_hurried = true;
        stopping.deadline = Instant::now() + GRACE;
        let deadline = stopping.deadline;
        for process in &mut self.processes {
            if matches!(process.state, State::Draining { .. }) {
                process.tell(Order::Cut, Vec::new());
                process.state = State::Draining { deadline };
            }
        }
    }

    /// Log files are opened anew.
    pub(super) fn reopen(&mut self) {
        for process in &mut self.processes {
            if process.role == crate::channel::Role::Serving {
                process.tell(Order::Reopen, Vec::new());
            }
        }
    }

    /// One process more or less.
    pub(super) fn scale_by(&mut self, step: isize) {
        let Some(generation) = &self.serving else {
            return;
        };
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
        let Some(serving) = &self.serving else {
            let failure = Failure::new("scale: the server has not begun to serve yet");
            return self.refuse(client, failure);
        };
        let drivers = serving.config.listen.drivers;
        let processes = overrides.processes.unwrap_or(serving.count());
        let is_more = overrides.drivers.is_some_and(|wanted| wanted != drivers);
        if is_more || self.reloading.is_some() {
            return self.reload(Wish {
                clients: client.into_iter().collect(),
                overrides: Overrides {
                    processes: Some(processes),
                    drivers: Some(overrides.drivers.unwrap_or(drivers)),
                },
                sizes: Sizes::Kept,
                is_development: false,
            });
        }
        if let Err(failure) = limit(processes, drivers) {
            return self.refuse(client, failure);
        }
        let was_alone = serving.count() == 1;
        let change = self.sockets.adjust(&serving.config, processes * drivers);
        let committed = change.and_then(|change| self.sockets.commit(change, Instant::now()));
        match committed {
            Ok(committed) => committed.warnings.iter().for_each(|text| say(text)),
            Err(fault) => return self.refuse(client, Failure::from(&fault)),
        }
        if let Some(serving) = &mut self.serving {
            serving.resize(processes);
        }
        if was_alone && processes > 1 {
            self.share_queues();
        }
        // Sockets get connections from here on: they are not to wait until processes have been started.
        self.settle_ears();
        match client {
            Some(client) => self.scaling.push(client),
            None => say(&format!(
                "{} to serve from now on",
                counted(processes, "process", "processes")
            )),
        }
    }

    /// Clients that wait for a number of processes are told when it is reached.
    pub(super) fn answer_scaling(&mut self) {
        let Some(serving) = &self.serving else { return };
        if self.scaling.is_empty() {
            return;
        }
        let (id, count) = (serving.id, serving.count());
        let all = (0..count).all(|slot| self.at(id, slot).any(|one| one.is_serving()));
        let is_hopeless = serving.has_gaps_for_good(Instant::now());
        if !all && !is_hopeless {
            return;
        }
        for client in std::mem::take(&mut self.scaling) {
            match all {
                true => {
                    self.accomplished(Some(client), so_many_serve(count));
                }
                false => {
                    let failure = self.last_failure().unwrap_or_default();
                    self.refuse(Some(client), failure);
                }
            }
        }
    }

    /// The last words.
    pub(super) fn tell_stopped(&mut self) {
        if self.exit_code != 2 || self.serving.is_some() {
            say(&format!(
                "stopped: {} exchanges, {} cut",
                self.gone.exchanges(),
                self.cut
            ));
        }
        let clients = self
            .stopping
            .as_mut()
            .map(|stopping| std::mem::take(&mut stopping.clients));
        for client in clients.into_iter().flatten() {
            self.done(client, &Outcome::Done(None));
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

/// `1 process serves`, `2 processes serve`
fn so_many_serve(len: usize) -> String {
    let verb = if len == 1 { "serves" } else { "serve" };
    format!("{} {verb}", counted(len, "process", "processes"))
}

/// `1 process`, `2 processes`
pub(super) fn counted(len: usize, one: &str, many: &str) -> String {
    match len {
        1 => format!("1 {one}"),
        len => format!("{len} {many}"),
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal {
            message: failure.message,
            hint: failure.hint,
            detail: failure.detail,
            ..Refusal::default()
        }
    }
}

/// Nanoseconds as they are configured.
pub(super) fn duration(nanos: Nanos) -> std::time::Duration {
    std::time::Duration::from_nanos(nanos.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_serves_and_two_serve() {
        assert_eq!(so_many_serve(1), "1 process serves");
        assert_eq!(so_many_serve(2), "2 processes serve");
    }

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
