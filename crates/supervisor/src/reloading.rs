//! From one generation to the next: performs what the plan says. The new generation starts beside the old one and
//! takes over when all of it can serve, or is given up while the old one goes on.

use std::time::Instant;

use super::answers::{AnswerEvent, AwaitedChange};
use super::commands::counted;
use super::generation::Generation;
use super::plan::{PlanAction, PlanEvent, PoolSizes, ReloadCause, ReloadRequest};
use super::service_manager::Manager;
use super::stderr::{say, talk};
use super::{FileWatcher, Fresh, Serving, Supervisor, plain};
use config::failure::Failure;
use config::typed::Config;
use ipc::SupervisorCommand;
use ipc::payload::Payload;
use os::invariant;

impl Supervisor<'_> {
    /// Takes the plan one step further and performs what follows.
    pub(super) fn handle(&mut self, event: PlanEvent) {
        let (plan, actions) = std::mem::take(&mut self.plan).step(event);
        // Before the actions: one that fails comes back as an event, which finds the plan that it is about.
        self.plan = plan;
        for action in actions {
            self.perform(action);
        }
        let named = self.plan.serving().into_iter().chain(self.plan.next());
        invariant!(
            named.eq(self.generations.keys().copied()),
            "the supervisor has generations {:?} in {:?}",
            self.generations.keys(),
            self.plan
        );
    }

    fn perform(&mut self, action: PlanAction) {
        match action {
            PlanAction::Prepare(request) => self.prepare(request),
            PlanAction::TakeOver { old, request } => self.take_over(old, request),
            PlanAction::Discard(id) => self.discard(id),
            PlanAction::KeepServing => {
                self.tell_ready();
                say(
                    "reload: the new generation could not start: the old processes continue to serve",
                );
            }
            PlanAction::Refuse { clients, failure } => self.refuse(clients, failure),
            PlanAction::StartProbe(client) => self.start_probe(client),
            PlanAction::KillProbe(pid) => super::upgrade::kill(pid),
            PlanAction::BecomeNew { client, waiting } => self.become_new(client, &waiting),
            PlanAction::BeginStop { generation } => self.begin_stop(generation),
            PlanAction::Cut => self.cut(),
            PlanAction::ExitWithFault => self.exit_code = 2,
        }
    }

    /// Reads the configuration and makes a generation of it, whose processes start beside those that serve.
    fn prepare(&mut self, request: ReloadRequest) {
        // `tell_ready` ends it, whether it succeeds or not: systemd would wait for that, and then kill what serves.
        self.tell_manager(Manager::is_reloading);
        match self.read_generation(&request) {
            Ok(generation) => {
                let next = generation.id;
                self.generations.insert(next, generation);
                self.watch_certificates();
                self.handle(PlanEvent::Prepared { next, request });
            }
            Err(failures) => {
                self.tell_ready();
                for failure in &failures {
                    talk(&failure.text());
                }
                if let Some(first) = failures.first() {
                    self.note_failure(first.clone());
                }
                say("reload: the configuration has faults: the old processes continue to serve");
                if !request.clients.is_empty() {
                    self.refuse(request.clients, joined(&failures));
                }
            }
        }
    }

    fn read_generation(&mut self, request: &ReloadRequest) -> Result<Generation, Vec<Failure>> {
        // Only the texts are read here. That the application can be imported is for the processes to show.
        let Fresh { loaded, payload } = (self.around.reread)(&request.overrides)?;
        let mut notes = loaded.notes;
        let config = loaded.config;
        if let Some(serving) = self.serving() {
            let (old, new) = (&serving.config, &config);
            if (&old.processes.user, &old.processes.group)
                != (&new.processes.user, &new.processes.group)
            {
                let failure =
                    Failure::new("`user`, `group`: cannot be changed while the server runs");
                return Err(vec![
                    failure.with_hint("stop the server and start it again"),
                ]);
            }
            if old.pid_file != new.pid_file || old.processes.control != new.processes.control {
                notes.push("`pid_file` and `control` change with the next start".to_owned());
            }
        }
        let mut generation = self.new_generation(config, notes, payload)?;
        if let (PoolSizes::Kept, Some(serving)) = (request.sizes, self.serving()) {
            generation.keep_sizes(serving);
        }
        Ok(generation)
    }

    fn new_generation(
        &mut self,
        config: Config,
        notes: Vec<String>,
        payload: Payload,
    ) -> Result<Generation, Vec<Failure>> {
        let id = self.lifetime.generations_made + 1;
        let mut generation = Generation::new(id, config, notes, payload)
            .map_err(|error| vec![Failure::new(format!("reload: {}", plain(&error)))])?;
        self.ask_credentials(&mut generation)?;
        let sockets_len = generation.sockets_len();
        let change = self.sockets.adjust(&generation.config, sockets_len);
        generation.change = Some(change.map_err(|fault| vec![Failure::from(&fault)])?);
        self.lifetime.generations_made = id;
        Ok(generation)
    }

    /// All processes of the next generation can serve: it takes over, with its sockets.
    pub(super) fn promote(&mut self, now: Instant) {
        let next = self
            .plan
            .next()
            .and_then(|id| self.generations.get_mut(&id));
        let change = next.and_then(|next| next.change.take());
        // Before the plan says that it serves: new sockets listen only when there are processes to accept from them, and
        // an address that cannot be had now leaves the old generation serving.
        if let Some(change) = change {
            match self.sockets.commit(change, now) {
                Ok(committed) => {
                    committed.warnings.iter().for_each(|text| say(text));
                    self.closing = committed.closing;
                }
                // An address could not be listened on at the last moment.
                Err(fault) => return self.next_failed(Failure::from(&fault)),
            }
        }
        self.handle(PlanEvent::NextServes);
    }

    /// The generation that the plan names serves now.
    fn take_over(&mut self, old: Option<u64>, request: Option<ReloadRequest>) {
        // All processes start to accept before any stops.
        self.assign_listeners();
        let old = old.and_then(|old| self.generations.remove(&old));
        match old {
            None => {
                self.tell_ready();
                self.tell_serving();
            }
            Some(old) => self.tell_reloaded(&old, request.unwrap_or_default()),
        }
        if self
            .serving()
            .is_some_and(|serving| serving.payload.failure.is_none())
        {
            // What serves now has started: the failure of another generation is history.
            self.last_failure = None;
        }
        self.watch_code();
        self.watch_certificates();
        self.look_at_certificates();
    }

    fn tell_reloaded(&mut self, old: &Generation, request: ReloadRequest) {
        let Some(serving) = self.serving() else {
            return;
        };
        let does = match serving.payload.failure {
            // Under `--reload`: a page with what is wrong stands in for the application.
            Some(_) => "shows the error until the code works".to_owned(),
            None => format!(
                "serves with {}",
                counted(serving.count(), "process", "processes")
            ),
        };
        let text = format!(
            "generation {} {does} after {:.1} s; generation {} drains{}",
            serving.id,
            serving.made.elapsed().as_secs_f64(),
            old.id,
            serving.sizes_after(old)
        );
        say(&text);
        for note in &serving.notes {
            talk(&format!("  note     {note}\n"));
        }
        if serving.count() != old.count() {
            self.note_answers(AnswerEvent::Reloaded);
        }
        // The clients, and the service manager, have their answer when the old processes have stopped accepting.
        let number = self.answers.next_number();
        let change = AwaitedChange::Generation {
            clients: request.clients,
            text,
        };
        self.ask(old.id, number, &SupervisorCommand::Confirm(number), change);
    }

    /// Tells the service manager that everything serves, as it was or anew.
    pub(super) fn tell_ready(&mut self) {
        let Some(serving) = self.serving() else {
            return;
        };
        let text = format!(
            "generation {}, {}",
            serving.id,
            counted(serving.count(), "process", "processes")
        );
        self.tell_manager(|manager| manager.is_ready(&text));
    }

    fn tell_serving(&self) {
        let Some(serving) = self.serving() else {
            return;
        };
        let python = self
            .processes
            .iter()
            .find_map(|process| process.python.clone());
        let mut event_loops = self.processes.iter().map(|process| &process.event_loops);
        let event_loops = event_loops.find(|known| !known.is_empty());
        (self.around.serving)(&Serving {
            config: &serving.config,
            notes: &serving.notes,
            listening: &self.sockets.addresses(),
            certificates: &self.certificate_lines(),
            python,
            event_loops: event_loops.cloned().unwrap_or_default(),
        });
    }

    /// The next generation will not serve.
    pub(super) fn next_failed(&mut self, failure: Failure) {
        self.note_failure(failure.clone());
        talk(&failure.text());
        let shown = self.next_generation().filter(|next| {
            next.config.processes.development.is_some() && next.payload.failure.is_none()
        });
        let event = match shown.map(|next| next.id) {
            None => PlanEvent::NextFailed(failure),
            Some(id) => match self.fault_page(id, failure) {
                Ok(next) => PlanEvent::NextReplaced { next },
                Err(failure) => PlanEvent::NextFailed(failure),
            },
        };
        self.handle(event);
    }

    /// The next generation cannot have its certificates.
    pub(super) fn next_lacks(&mut self, failures: &[Failure]) {
        for failure in failures {
            talk(&failure.text());
        }
        if let Some(first) = failures.first() {
            self.note_failure(first.clone());
        }
        self.handle(PlanEvent::NextFailed(joined(failures)));
    }

    /// Under development a page with the fault is served until the code changes again.
    fn fault_page(&mut self, failed: u64, failure: Failure) -> Result<u64, Failure> {
        let id = self.lifetime.generations_made + 1;
        let failed = self.generations.get_mut(&failed);
        let failed = failed.expect("the plan names generations that exist");
        let mut payload = failed.payload.clone();
        payload.failure = Some(failure);
        let (config, notes) = (failed.config.clone(), failed.notes.clone());
        let mut page = Generation::new(id, config, notes, payload)
            .map_err(|error| Failure::new(format!("cannot show the fault: {}", plain(&error))))?;
        page.credentials = failed.credentials.take();
        // The page takes the place of the generation with its sockets: a second change of them could not be had.
        (page.change, page.made) = (failed.change.take(), failed.made);
        self.lifetime.generations_made = id;
        self.generations.insert(id, page);
        Ok(id)
    }

    fn discard(&mut self, id: u64) {
        self.drain_where(|process| process.generation == id);
        let discarded = self.generations.remove(&id);
        if let Some(change) = discarded.and_then(|generation| generation.change) {
            self.sockets.abandon(change);
        }
    }

    /// Under development, watches the code of what serves or is to serve.
    pub(super) fn watch_code(&mut self) {
        // The next one first: a change of its code must make it new, also before it serves.
        let generation = self.next_generation().or_else(|| self.serving());
        let Some(generation) = generation else { return };
        let Some(development) = &generation.config.processes.development else {
            self.file_watcher = None;
            return;
        };
        let app = generation.config.apps.first();
        let folders = app.map(|app| app.app_dir.clone());
        let folders: Vec<_> = folders
            .into_iter()
            .chain(development.dirs.clone())
            .collect();
        let config_file = self.around.config_file.iter();
        let files: Vec<_> = config_file.chain(&development.files).cloned().collect();
        let now = telemetry::now();
        match &mut self.file_watcher {
            Some(watch) => watch.extend(&folders, &files, now),
            none => *none = Some(FileWatcher::new(&folders, &files, now)),
        }
    }

    pub(super) fn take_changes(&mut self) {
        let Some(watch) = &mut self.file_watcher else {
            return;
        };
        let changed = watch.changed(telemetry::now());
        if let Some(warning) = watch.warning() {
            say(&warning);
        }
        if let Some(path) = changed {
            say(&format!("{} has changed: reloading", path.display()));
            self.handle(PlanEvent::Reload(ReloadRequest {
                cause: ReloadCause::ChangedCode,
                ..ReloadRequest::default()
            }));
        }
    }
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
