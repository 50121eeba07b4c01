//! What becomes of generations and processes: which take over, which are replaced, which end.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::commands::{Ending, counted};
use super::life::{FAILED_STARTS_MAX, Next};
use super::process::{Process, State};
use super::{GRACE, Supervisor, say};
use crate::channel::{Order, Role};
use crate::fault::Failure;
use crate::stats::View;

impl Supervisor<'_> {
    /// A generation all of whose processes can serve takes over.
    pub(super) fn promote(&mut self) {
        let is_ready = self.coming.as_ref().is_some_and(|generation| {
            (0..generation.count())
                .all(|slot| self.at(generation.id, slot).any(Process::is_serving))
        });
        if !is_ready {
            return;
        }
        let old = std::mem::replace(&mut self.serving, self.coming.take());
        self.take_over(old);
    }

    /// A worn process is replaced when its successor serves; the successor is started when nothing else
    /// is out of order.
    pub(super) fn replace_worn(&mut self) {
        let Some(generation) = &self.serving else {
            return;
        };
        let id = generation.id;
        for slot in 0..generation.count() {
            let successor = self
                .at(id, slot)
                .any(|process| process.is_serving() && process.worn.is_none());
            if successor {
                let is_worn = |process: &Process| {
                    process.is_serving() && process.worn.is_some() && process.slot == slot
                };
                self.drain_where(|process| process.generation == id && is_worn(process));
            }
        }
        let Some(generation) = &self.serving else {
            return;
        };
        let is_starting = self
            .processes
            .iter()
            .any(|process| process.state == State::Starting);
        let all_serve =
            (0..generation.count()).all(|slot| self.at(id, slot).any(Process::is_serving));
        if is_starting || !all_serve || self.coming.is_some() {
            return;
        }
        let now = Instant::now();
        // A template that is about to come back can fork nobody.
        let is_forked = generation.has_template();
        let can_fork = self.processes.iter().any(|process| {
            let is_template = process.generation == id && process.role == Role::Template;
            is_template && process.state == State::Ready
        });
        if is_forked && !can_fork {
            return;
        }
        let may_start = |slot: usize| {
            let life = generation.lives.get(slot);
            life.is_some_and(|life| life.next(now) == Next::Start)
        };
        let worn = self
            .processes
            .iter()
            .find(|process| {
                process.generation == id
                    && process.is_serving()
                    && process.worn.is_some()
                    && may_start(process.slot)
            })
            .map(|process| {
                let reason = process.worn.clone().unwrap_or_default();
                say(&format!("{} is replaced {reason}", process.name()));
                process.slot
            });
        if let Some(slot) = worn {
            self.recycled += 1;
            self.start(id, Role::Serving, slot);
        }
    }

    /// Ends what nobody wants: processes of generations that are left behind, and of places that are no more.
    pub(super) fn end_surplus(&mut self) {
        let wanted = self.wanted_ids();
        let counts: Vec<(u64, usize)> = wanted
            .iter()
            .filter_map(|id| Some((*id, self.generation(*id)?.count())))
            .collect();
        let is_wanted = |process: &Process| {
            counts.iter().any(|(id, count)| {
                process.generation == *id
                    && (process.role == Role::Template || process.slot < *count)
            })
        };
        self.drain_where(|process| !is_wanted(process));
    }

    /// Lets processes end when their connections have.
    pub(super) fn drain_where(&mut self, is_meant: impl Fn(&Process) -> bool) {
        let timeout = self.drain_timeout();
        let deadline = Instant::now() + timeout + GRACE;
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let closing = self.closing.clone();
        for process in &mut self.processes {
            if !is_meant(process) {
                continue;
            }
            match process.state {
                // Nobody waits for what has not begun.
                State::Starting => process.kill_for(Ending::Meant),
                State::Ready if process.role == Role::Template => {
                    process.kill_for(Ending::Meant);
                }
                State::Ready => {
                    let closing = closing.clone();
                    process.tell(
                        Order::Drain {
                            closing,
                            is_patient: true,
                            timeout_ms,
                        },
                        Vec::new(),
                    );
                    process.state = State::Draining { deadline };
                }
                State::Draining { .. } | State::Killed(_) => {}
            }
        }
    }

    pub(super) fn drain_timeout(&self) -> Duration {
        let generation = self.serving.as_ref().or(self.coming.as_ref());
        let nanos = generation.map_or(0, |one| one.config.timeouts.drain.0);
        Duration::from_nanos(nanos)
    }

    /// Ends by force what has had its time.
    pub(super) fn enforce_deadlines(&mut self, now: Instant) {
        let limits: Vec<Option<Duration>> = self
            .processes
            .iter()
            .map(|process| self.start_limit(process))
            .collect();
        for (process, limit) in self.processes.iter_mut().zip(limits) {
            match process.state {
                State::Draining { deadline } if deadline <= now => {
                    say(&format!(
                        "{} did not end in its time: it is killed",
                        process.name()
                    ));
                    process.kill_for(Ending::Meant);
                }
                State::Starting if limit.is_some_and(|limit| process.started + limit <= now) => {
                    let text = format!(
                        "{} did not serve within {:.0} s of its start",
                        process.name(),
                        limit.unwrap_or_default().as_secs_f64()
                    );
                    let hint = "`start_timeout` bounds what the application's import may take";
                    process.failure = Some(Failure::new(text).with_hint(hint));
                    process.kill_for(Ending::Fault);
                }
                _ => {}
            }
        }
    }

    pub(super) fn start_limit(&self, process: &Process) -> Option<Duration> {
        let generation = self.generation(process.generation)?;
        let limit = generation.config.processes.start_timeout.0;
        (limit > 0).then(|| Duration::from_nanos(limit))
    }

    /// A process is gone: what it counted is kept, and what it means for its place is noted.
    pub(super) fn bury(&mut self, process: &Process, status: Option<ExitStatus>) {
        let now = Instant::now();
        let lost = self.keep_counts(process);
        let how = status.map_or_else(|| "ended".to_owned(), how_it_ended);
        match process.state {
            State::Draining { .. } => {
                self.cut += process.cut;
                if let Some(code) = status.and_then(|status| status.code()) {
                    if self.stopping.is_some() {
                        self.exit_code = self.exit_code.max(code);
                    }
                } else {
                    say(&format!("{} {how} while it drained", process.name()));
                }
            }
            State::Killed(Ending::Meant) => {}
            State::Starting => {
                let failure = process.failure.clone().unwrap_or_else(|| {
                    Failure::new(format!("{} {how} before it could serve", process.name()))
                });
                let is_told = process.failure.is_some();
                self.failed_to_start(process, failure, is_told);
            }
            State::Killed(Ending::Fault) if process.ready.is_none() => {
                let failure = process.failure.clone().unwrap_or_default();
                self.failed_to_start(process, failure, true);
            }
            State::Ready | State::Killed(Ending::Fault) => {
                self.crashed(process, &how, lost, now);
            }
        }
    }

    /// Adds what a process counted to what those counted that are gone; gives what was under way.
    pub(super) fn keep_counts(&mut self, process: &Process) -> Lost {
        let Some(segment) = process.segment else {
            return Lost::default();
        };
        let counted = process.view.as_ref().map(View::counted);
        self.counters.free(segment);
        let Some(counted) = counted else {
            return Lost::default();
        };
        let lost = Lost {
            requests: usize::try_from(counted.under_way()).unwrap_or(usize::MAX),
            connections: usize::try_from(counted.open()).unwrap_or(usize::MAX),
        };
        self.gone.add(&counted.without_gauges());
        lost
    }

    fn crashed(&mut self, process: &Process, how: &str, lost: Lost, now: Instant) {
        let served = process.served(now);
        let secs = served.unwrap_or_default().as_secs_f64();
        self.crashes += 1;
        say(&format!(
            "{} {how} after {secs:.1} s; under way: {}, open: {}",
            process.name(),
            counted(lost.requests, "request", "requests"),
            counted(lost.connections, "connection", "connections")
        ));
        self.note_end(process, served, now);
    }

    fn note_end(&mut self, process: &Process, served: Option<Duration>, now: Instant) {
        let (role, slot) = (process.role, process.slot);
        let Some(generation) = self.generation_mut(process.generation) else {
            return;
        };
        match role {
            Role::Template => generation.template.ended(served, now),
            Role::Serving => {
                if let Some(life) = generation.lives.get_mut(slot) {
                    life.ended(served, now);
                }
            }
        }
    }

    /// A start has failed. The generation that is to come is given up when it said why; one that serves
    /// tries again, later each time.
    fn failed_to_start(&mut self, process: &Process, failure: Failure, is_told: bool) {
        let now = Instant::now();
        self.note_end(process, None, now);
        let is_coming = self
            .coming
            .as_ref()
            .is_some_and(|generation| generation.id == process.generation);
        if is_coming && (is_told || self.serving.is_some()) {
            self.abandon(failure);
            return;
        }
        let id = process.generation;
        let failed = self.generation(id).map_or(0, |generation| {
            let life = match process.role {
                Role::Template => Some(&generation.template),
                Role::Serving => generation.lives.get(process.slot),
            };
            life.map_or(0, |life| life.failed_starts())
        });
        if failed > 0 {
            let name = match process.role {
                Role::Template => "the template process".to_owned(),
                Role::Serving => format!("process {}", process.slot),
            };
            say(&format!(
                "{name} failed to start, {failed} in a row: {}",
                failure.message
            ));
            self.tell_given_up(&name, failed, &failure);
        }
        self.note_failure(failure);
    }

    /// The last start in a place has failed while others serve: why, once, in full.
    fn tell_given_up(&self, name: &str, failed: u32, failure: &Failure) {
        if failed != FAILED_STARTS_MAX || !self.processes.iter().any(Process::is_serving) {
            return;
        }
        say(&format!(
            "{name} is not started again until a reload (`milepost reload`):"
        ));
        super::talk(&failure.text());
    }

    /// A start that could not even begin.
    pub(super) fn could_not_start(&mut self, id: u64, role: Role, slot: usize, failure: Failure) {
        let now = Instant::now();
        if let Some(generation) = self.generation_mut(id) {
            match role {
                Role::Template => generation.template.ended(None, now),
                Role::Serving => {
                    if let Some(life) = generation.lives.get_mut(slot) {
                        life.ended(None, now);
                    }
                }
            }
        }
        if self.coming.as_ref().is_some_and(|coming| coming.id == id) && self.serving.is_some() {
            self.abandon(failure);
        } else {
            say(&failure.message);
            self.note_failure(failure);
        }
    }

    /// Ends the whole when no place has a process and none is tried any more. The last words say why.
    pub(super) fn give_up_if_hopeless(&mut self, now: Instant) {
        let is_hopeless = match (&self.serving, &self.coming) {
            // The one that comes may be the remedy.
            (Some(_), Some(_)) | (None, None) => false,
            (Some(serving), None) => {
                serving.has_given_up(now) && !self.processes.iter().any(Process::is_serving)
            }
            // It takes over whole or not at all.
            (None, Some(coming)) => coming.has_gaps_for_good(now),
        };
        if !is_hopeless {
            return;
        }
        let failure = self.last_failure().unwrap_or_default();
        self.stop(None);
        self.exit_code = 2;
        super::talk(&failure.text());
    }
}

/// What a process took with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    requests: usize,
    connections: usize,
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
