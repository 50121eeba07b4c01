//! What the supervisor is told to do: by signals, over the control socket, or by code that changed.

use std::time::Instant;

use measure::Nanos;

use super::control::wire::{PROCESSES_MAX, Refusal};
use super::control::{ClientId, Outcome, Request};
use super::generation::Generation;
use super::notify::Manager;
use super::process::State;
use super::sockets::Change;
use super::{Fresh, GRACE, Serving, Supervisor, plain, say, talk};
use crate::channel::Order;
use crate::fault::StartFault;
use crate::house::Listening;
use crate::payload::Failure;

/// What `scale` asks for instead of what is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Processes.
    pub processes: Option<usize>,
    /// Drivers of each.
    pub drivers: Option<usize>,
}

/// A reload that somebody asked for.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub(super) client: Option<ClientId>,
    pub(super) overrides: Overrides,
    /// Code has changed: a fault is shown instead of the application.
    pub(super) is_development: bool,
}

/// A reload under way.
pub(super) struct Reloading {
    pub(super) wish: Wish,
    /// What becomes of the sockets when it succeeds.
    pub(super) change: Option<Change>,
    pub(super) began: Instant,
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
            self.obey(client, request);
        }
    }

    fn obey(&mut self, client: ClientId, request: Request) {
        match request {
            Request::Stop => self.stop(Some(client)),
            Request::Reload => self.reload(Wish {
                client: Some(client),
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
    fn accomplished(&mut self, client: Option<ClientId>, text: String) {
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
        self.stopping = Some(Stopping {
            deadline,
            clients: client.into_iter().collect(),
            is_hurried: false,
        });
        if let Some(reloading) = self.reloading.take() {
            let failure = Failure::new("reload: the server was told to stop meanwhile");
            self.refuse(reloading.wish.client, failure);
        }
        self.coming = None;
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
                client,
                overrides: Overrides {
                    processes: Some(processes),
                    drivers: Some(overrides.drivers.unwrap_or(drivers)),
                },
                is_development: false,
            });
        }
        if let Err(failure) = limit(processes, drivers) {
            return self.refuse(client, failure);
        }
        let change = self.sockets.adjust(&serving.config, processes * drivers);
        let committed = change.and_then(|change| self.sockets.commit(change, Instant::now()));
        match committed {
            Ok(committed) => committed.warnings.iter().for_each(|text| say(text)),
            Err(fault) => return self.refuse(client, Failure::from(&fault)),
        }
        if let Some(serving) = &mut self.serving {
            serving.resize(processes);
        }
        match client {
            Some(client) => self.scaling.push(client),
            None => say(&format!(
                "{} to serve from now on",
                counted(processes, "process", "processes")
            )),
        }
    }

    /// Reads the configuration anew and starts a generation by it, beside the one that serves.
    pub(super) fn reload(&mut self, wish: Wish) {
        if self.stopping.is_some() {
            let failure = Failure::new("reload: the server is about to end");
            return self.refuse(wish.client, failure);
        }
        if self.coming.is_some() || self.probe.is_some() {
            // Code that changed while its predecessor starts makes that one useless.
            if wish.is_development && self.serving.is_some() {
                self.forget_coming();
            } else {
                self.wishes.push(wish);
                return;
            }
        }
        self.tell_manager(Manager::is_reloading);
        match self.begin_reload(&wish) {
            Ok((generation, change)) => {
                self.coming = Some(generation);
                self.reloading = Some(Reloading {
                    wish,
                    change: Some(change),
                    began: Instant::now(),
                });
            }
            Err(failures) => {
                self.tell_ready();
                for failure in &failures {
                    talk(&failure.text());
                }
                failures.first().cloned().into_iter().for_each(|failure| self.note_failure(failure));
                say("reload: the configuration is not good: what serves is left as it is");
                if let Some(client) = wish.client {
                    self.refuse(Some(client), joined(&failures));
                }
            }
        }
    }

    fn begin_reload(&mut self, wish: &Wish) -> Result<(Generation, Change), Vec<Failure>> {
        let Fresh { loaded, payload } = (self.around.reread)(&wish.overrides)?;
        let mut notes = loaded.notes;
        let config = loaded.config;
        if let Some(serving) = &self.serving {
            let (old, new) = (&serving.config, &config);
            if (&old.processes.user, &old.processes.group)
                != (&new.processes.user, &new.processes.group)
            {
                let failure =
                    Failure::new("`user`, `group`: cannot be changed while the server runs");
                return Err(vec![failure.with_hint("stop the server and start it again")]);
            }
            if old.pid_file != new.pid_file || old.processes.control != new.processes.control {
                notes.push("`pid_file` and `control` change with the next start".to_owned());
            }
        }
        self.start_generation(config, notes, payload)
    }

    fn start_generation(
        &mut self,
        config: crate::config::meant::Config,
        notes: Vec<String>,
        payload: crate::payload::Payload,
    ) -> Result<(Generation, Change), Vec<Failure>> {
        let id = self.generations_made + 1;
        let generation = Generation::new(id, config, notes, payload)
            .map_err(|error| vec![Failure::new(format!("reload: {}", plain(&error)))])?;
        let sockets_len = generation.sockets_len();
        let change = self.sockets.adjust(&generation.config, sockets_len);
        let change = change.map_err(|fault| vec![Failure::from(&fault)])?;
        self.generations_made = id;
        Ok((generation, change))
    }

    /// The generation that was to come serves.
    pub(super) fn take_over(&mut self, old: Option<Generation>) {
        let now = Instant::now();
        let mut reloading = self.reloading.take();
        let change = reloading
            .as_mut()
            .and_then(|reloading| reloading.change.take());
        if let Some(change) = change {
            match self.sockets.commit(change, now) {
                Ok(committed) => {
                    committed.warnings.iter().for_each(|text| say(text));
                    self.closing.extend(committed.closing);
                }
                Err(fault) => return self.take_back(old, reloading, &fault),
            }
        }
        // Everybody hears before anybody stops hearing.
        self.settle_ears(now);
        self.tell_ready();
        let Some(serving) = &self.serving else { return };
        let (id, count) = (serving.id, serving.count());
        match (old, reloading) {
            (None, _) => self.tell_serving(),
            (Some(old), reloading) => {
                let secs = reloading
                    .as_ref()
                    .map_or(0.0, |reloading| reloading.began.elapsed().as_secs_f64());
                let text = format!(
                    "generation {id} serves with {} after {secs:.1} s; generation {} drains",
                    counted(count, "process", "processes"),
                    old.id
                );
                let notes = serving.notes.clone();
                self.accomplished(reloading.and_then(|reloading| reloading.wish.client), text);
                for note in &notes {
                    talk(&format!("  note     {note}\n"));
                }
            }
        }
        if let Some(serving) = &self.serving
            && serving.payload.failure.is_none()
        {
            self.last_failure = None;
        }
        self.watch_code();
    }

    /// An address could not be listened on at the last moment: the generation that serves goes on.
    fn take_back(
        &mut self,
        old: Option<Generation>,
        reloading: Option<Reloading>,
        fault: &StartFault,
    ) {
        self.coming = self.serving.take();
        self.serving = old;
        self.reloading = reloading;
        self.abandon(Failure::from(fault));
    }

    /// Tells the service manager that everything serves, as it was or anew.
    fn tell_ready(&mut self) {
        let Some(serving) = &self.serving else { return };
        let text = format!(
            "generation {}, {}",
            serving.id,
            counted(serving.count(), "process", "processes")
        );
        self.tell_manager(|manager| manager.is_ready(&text));
    }

    fn tell_serving(&self) {
        let Some(serving) = &self.serving else { return };
        let python = self
            .processes
            .iter()
            .find_map(|process| process.python.clone());
        (self.around.serving)(&Serving {
            config: &serving.config,
            notes: &serving.notes,
            listening: &self.listened(),
            python,
        });
    }

    /// What is listened on, for people.
    fn listened(&self) -> Vec<Listening> {
        let addresses = self.sockets.addresses();
        let one = |address: super::sockets::Address| Listening {
            url: address.url,
            backlog_effective: address.backlog_effective.unwrap_or(u32::MAX),
        };
        addresses.into_iter().map(one).collect()
    }

    /// The generation that was to come will not: what serves stays as it is.
    pub(super) fn abandon(&mut self, failure: Failure) {
        self.note_failure(failure.clone());
        let Some(generation) = self.coming.take() else {
            return;
        };
        let reloading = self.reloading.take();
        let is_development = generation.config.processes.development.is_some();
        let id = generation.id;
        self.drain_where(|process| process.generation == id);
        if is_development && generation.payload.failure.is_none() {
            talk(&failure.text());
            return self.show_instead(generation, failure, reloading);
        }
        let client = reloading
            .as_ref()
            .and_then(|reloading| reloading.wish.client);
        if let Some(change) = reloading.and_then(|reloading| reloading.change) {
            self.sockets.abandon(change);
        }
        talk(&failure.text());
        if self.serving.is_none() {
            self.stop(None);
            self.exit_code = 2;
            return;
        }
        self.tell_ready();
        say("reload: the new generation could not start: what serves is left as it is");
        if client.is_some() {
            self.refuse(client, failure);
        }
    }

    /// Under development a page with the fault is served until the code changes again.
    fn show_instead(
        &mut self,
        failed: Generation,
        failure: Failure,
        reloading: Option<Reloading>,
    ) {
        let mut payload = failed.payload;
        payload.failure = Some(failure);
        let id = self.generations_made + 1;
        match Generation::new(id, failed.config, failed.notes, payload) {
            Ok(generation) => {
                self.generations_made = id;
                self.coming = Some(generation);
                self.reloading = reloading;
            }
            Err(error) => say(&format!("cannot show the fault: {}", plain(&error))),
        }
    }

    /// The processes of the generation that was to come are not wanted any more.
    fn forget_coming(&mut self) {
        let Some(generation) = self.coming.take() else {
            return;
        };
        let id = generation.id;
        self.drain_where(|process| process.generation == id);
        if let Some(reloading) = self.reloading.take() {
            if let Some(change) = reloading.change {
                self.sockets.abandon(change);
            }
            let failure = Failure::new("reload: the code changed again meanwhile");
            if reloading.wish.client.is_some() {
                self.refuse(reloading.wish.client, failure);
            }
        }
    }

    /// Once a reload is over, the next.
    pub(super) fn take_next_wish(&mut self) {
        if self.coming.is_some() || self.probe.is_some() || self.wishes.is_empty() {
            return;
        }
        // All that was asked for meanwhile is answered by one reload.
        let wishes = std::mem::take(&mut self.wishes);
        let mut wishes = wishes.into_iter().rev();
        if let Some(last) = wishes.next() {
            for earlier in wishes {
                if let Some(client) = earlier.client {
                    let text = "another reload follows, which answers this one";
                    if let Some(control) = &mut self.control {
                        control.done(client, &Outcome::Done(Some(text.to_owned())), Instant::now());
                    }
                }
            }
            self.reload(last);
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
        let is_hopeless = serving.has_given_up(Instant::now());
        if !all && !is_hopeless {
            return;
        }
        for client in std::mem::take(&mut self.scaling) {
            match all {
                true => {
                    let text = format!("{} serve", counted(count, "process", "processes"));
                    self.accomplished(Some(client), text);
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
        if self.exit_code == 2 && self.serving.is_none() {
            return;
        }
        say(&format!(
            "stopped: {} exchanges, {} cut",
            self.gone.exchanges(),
            self.cut
        ));
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
    const SOCKETS_LEN_MAX: usize = 1024;
    if processes == 0 || processes > PROCESSES_MAX {
        let text = format!("scale: expected 1 to {PROCESSES_MAX} processes, found {processes}");
        return Err(Failure::new(text));
    }
    if processes * drivers > SOCKETS_LEN_MAX {
        let text = format!(
            "scale: {processes} processes with {drivers} drivers are more than {SOCKETS_LEN_MAX} drivers"
        );
        return Err(Failure::new(text));
    }
    Ok(())
}

/// Several failures as one.
fn joined(failures: &[Failure]) -> Failure {
    match failures {
        [one] => one.clone(),
        many => Failure {
            message: format!("reload: {} faults", many.len()),
            hint: None,
            detail: Some(many.iter().map(Failure::text).collect()),
        },
    }
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
