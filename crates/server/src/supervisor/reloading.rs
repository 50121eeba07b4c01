//! From one generation to the next: the new one starts beside the old and takes over when all of it can serve,
//! or is given up while the old one goes on.

use std::time::Instant;

use super::commands::{Sizes, Wish, counted};
use super::control::ClientId;
use super::generation::Generation;
use super::notify::Manager;
use super::sockets::Change;
use super::{Fresh, Serving, Supervisor, plain, say, talk};
use crate::fault::Failure;
use crate::fault::StartFault;
use crate::house::Listening;

/// A reload under way.
pub(super) struct Reloading {
    pub(super) wish: Wish,
    /// What becomes of the sockets when it succeeds.
    pub(super) change: Option<Change>,
    pub(super) began: Instant,
}

impl Supervisor<'_> {
    /// Reads the configuration anew and starts a generation by it, beside the one that serves.
    pub(super) fn reload(&mut self, wish: Wish) {
        if self.stopping.is_some() {
            let failure = Failure::new("reload: the server is about to end");
            return self.refuse_all(&wish.clients, &failure);
        }
        if self.coming.is_some() || self.probe.is_some() {
            // Code that changed while its predecessor starts makes that one useless.
            if wish.is_development && self.serving.is_some() {
                self.forget_coming();
            } else {
                match self
                    .wishes
                    .iter_mut()
                    .find(|other| other.is_as_wanted(&wish))
                {
                    Some(other) => other.clients.extend(wish.clients),
                    None => self.wishes.push(wish),
                }
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
                failures
                    .first()
                    .cloned()
                    .into_iter()
                    .for_each(|failure| self.note_failure(failure));
                say("reload: the configuration is not good: what serves is left as it is");
                if !wish.clients.is_empty() {
                    self.refuse_all(&wish.clients, &joined(&failures));
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
                return Err(vec![
                    failure.with_hint("stop the server and start it again"),
                ]);
            }
            if old.pid_file != new.pid_file || old.processes.control != new.processes.control {
                notes.push("`pid_file` and `control` change with the next start".to_owned());
            }
        }
        let (mut generation, change) = self.start_generation(config, notes, payload)?;
        if let (Sizes::Kept, Some(serving)) = (wish.sizes, &self.serving) {
            generation.keep_sizes(serving);
        }
        Ok((generation, change))
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
                    self.closing = committed.closing;
                }
                Err(fault) => return self.take_back(old, reloading, &fault),
            }
        }
        // Everybody hears before anybody stops hearing.
        self.settle_ears();
        let Some(serving) = &self.serving else { return };
        let (id, count) = (serving.id, serving.count());
        match (old, reloading) {
            (None, _) => {
                self.tell_ready();
                self.tell_serving();
            }
            (Some(old), reloading) => {
                let secs = reloading
                    .as_ref()
                    .map_or(0.0, |reloading| reloading.began.elapsed().as_secs_f64());
                let text = format!(
                    "generation {id} serves with {} after {secs:.1} s; generation {} drains{}",
                    counted(count, "process", "processes"),
                    old.id,
                    serving.sizes_after(&old)
                );
                let notes = serving.notes.clone();
                say(&text);
                for note in &notes {
                    talk(&format!("  note     {note}\n"));
                }
                let clients = reloading.into_iter().flat_map(|one| one.wish.clients);
                self.answer_when_deaf(old.id, clients.collect(), text);
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
    pub(super) fn tell_ready(&mut self) {
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
        let clients = self.give_back(reloading);
        talk(&failure.text());
        if self.serving.is_none() {
            self.stop(None);
            self.exit_code = 2;
            return;
        }
        self.tell_ready();
        say("reload: the new generation could not start: what serves is left as it is");
        if !clients.is_empty() {
            self.refuse_all(&clients, &failure);
        }
    }

    /// Under development a page with the fault is served until the code changes again.
    fn show_instead(&mut self, failed: Generation, failure: Failure, reloading: Option<Reloading>) {
        let mut payload = failed.payload;
        payload.failure = Some(failure);
        let id = self.generations_made + 1;
        match Generation::new(id, failed.config, failed.notes, payload) {
            Ok(generation) => {
                self.generations_made = id;
                self.coming = Some(generation);
                self.reloading = reloading;
            }
            Err(error) => {
                let text = format!("cannot show the fault: {}", plain(&error));
                let failure = Failure::new(text);
                let clients = self.give_back(reloading);
                self.refuse_all(&clients, &failure);
                if self.serving.is_none() {
                    self.stop(None);
                    self.exit_code = 2;
                }
            }
        }
    }

    /// Nothing becomes of a reload; gives those who wait for it.
    fn give_back(&mut self, reloading: Option<Reloading>) -> Vec<ClientId> {
        let Some(reloading) = reloading else {
            return Vec::new();
        };
        if let Some(change) = reloading.change {
            self.sockets.abandon(change);
        }
        reloading.wish.clients
    }

    /// The processes of the generation that was to come are not wanted any more.
    fn forget_coming(&mut self) {
        let Some(generation) = self.coming.take() else {
            return;
        };
        let id = generation.id;
        self.drain_where(|process| process.generation == id);
        let reloading = self.reloading.take();
        let clients = self.give_back(reloading);
        if !clients.is_empty() {
            let failure = Failure::new("reload: the code changed again meanwhile");
            self.refuse_all(&clients, &failure);
        }
    }

    /// Once a reload is over, the next; whether one has begun.
    pub(super) fn take_next_wish(&mut self) -> bool {
        if self.coming.is_some() || self.probe.is_some() || self.wishes.is_empty() {
            return false;
        }
        // All that was asked for meanwhile is answered by one reload, as the last one wished it.
        let mut wishes = std::mem::take(&mut self.wishes);
        let Some(mut last) = wishes.pop() else {
            return false;
        };
        if wishes.iter().any(|wish| wish.sizes == Sizes::Written) {
            last.sizes = Sizes::Written;
        }
        let earlier = wishes.into_iter().flat_map(|wish| wish.clients);
        last.clients.extend(earlier);
        self.reload(last);
        self.coming.is_some()
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
