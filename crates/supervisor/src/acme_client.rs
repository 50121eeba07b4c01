//! The ACME client: the one process that obtains and renews automatic certificates.
//!
//! It is started when a generation with names serves, ended when the server stops or a reload changes what is to be
//! obtained, and started again, later each time, when it ends by itself. What it obtains are files: no process that
//! serves waits for it.
//!
//! ```text
//!           a generation with names serves            others are wanted, or none      its end is seen
//!  NONE ─────────────────────────────────► RUNNING ───────────────────────────► ENDING ─────► NONE
//!    ▲                                        │
//!    └──────── it ends by itself ─────────────┘
//! ```

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::Pid;

use super::commands::Ending;
use super::process::{ChildProcess, ProcessState};
use super::reconcile::how_it_ended;
use super::restart_policy::{RestartDecision, RestartHistory};
use super::{Supervisor, say, talk};
use config::typed::AcmeConfig;
use ipc::payload;
use ipc::{Identity, ManagedCertificate, ProcessEvent, Role, SupervisorCommand};
use os::invariant;

/// Time for an end in which locks are freed and answers to challenges removed.
const ENDING_TIME: Duration = Duration::from_secs(5);

/// The client, and what it has said.
#[derive(Default)]
pub(super) struct AcmeClient {
    process: Option<(ChildProcess, AcmeConfig)>,
    history: RestartHistory,
    states: Vec<ManagedCertificate>,
    /// Challenges that every process is to answer, as the client has written them.
    challenges: Option<OwnedFd>,
}

impl AcmeClient {
    /// No process is left.
    pub(super) fn is_gone(&self) -> bool {
        self.process.is_none()
    }

    /// How its names stand, in the order of the configuration.
    pub(super) fn states(&self) -> &[ManagedCertificate] {
        &self.states
    }

    /// Why the last try for a name failed.
    pub(super) fn last_error(&self, name: &str) -> Option<String> {
        let state = self.states.iter().find(|one| one.name == name)?;
        state.last_error.clone()
    }

    /// What the supervisor waits for.
    pub(super) fn watched(&self) -> Option<PollFd<'_>> {
        let (process, _) = self.process.as_ref()?;
        let channel = process.channel()?;
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, process.is_behind());
        Some(PollFd::from_borrowed_fd(channel.as_fd(), wanted))
    }

    fn is_process(&self, pid: Pid) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|(process, _)| process.pid() == Some(pid))
    }

    fn note(&mut self, state: ManagedCertificate) {
        match self.states.iter_mut().find(|one| one.name == state.name) {
            Some(before) => *before = state,
            None => self.states.push(state),
        }
    }
}

impl Supervisor<'_> {
    /// Starts, ends or kills the client, as what serves wants it.
    pub(super) fn keep_acme_client(&mut self, now: Instant) {
        let is_stopping = self.plan.is_stopping();
        let serving = self.serving().filter(|_| !is_stopping);
        let wanted = serving.and_then(|serving| serving.config.acme.clone());
        let client = &mut self.acme_client;
        if let Some((process, config)) = &mut client.process {
            match process.state {
                ProcessState::Draining { deadline } if deadline <= now => {
                    process.kill_for(Ending::Meant);
                }
                ProcessState::Draining { .. } | ProcessState::Killed(_) => {}
                ProcessState::Starting | ProcessState::Ready => {
                    if wanted.as_ref() != Some(config) {
                        process.tell(SupervisorCommand::Cut, Vec::new());
                        process.state = ProcessState::Draining {
                            deadline: now + ENDING_TIME,
                        };
                    }
                }
            }
            return;
        }
        let Some(wanted) = wanted else {
            client.states.clear();
            return;
        };
        // It is never given up: a site whose certificate ends is down, however often the start has failed.
        if client.history.next(now) == RestartDecision::Start {
            client.states.clear();
            self.start_acme_client(wanted, now);
        }
    }

    /// When something is due for it.
    pub(super) fn acme_client_due(&self, now: Instant) -> Option<Instant> {
        if let Some((process, _)) = &self.acme_client.process {
            return match process.state {
                ProcessState::Draining { deadline } => Some(deadline),
                _ => None,
            };
        }
        let is_wanted = !self.plan.is_stopping()
            && self
                .serving()
                .is_some_and(|serving| serving.config.acme.is_some());
        match self.acme_client.history.next(now) {
            RestartDecision::Wait(until) if is_wanted => Some(until),
            RestartDecision::Wait(_) | RestartDecision::Start | RestartDecision::GiveUp => None,
        }
    }

    fn start_acme_client(&mut self, config: AcmeConfig, now: Instant) {
        invariant!(
            self.acme_client.is_gone(),
            "two processes are to obtain certificates"
        );
        let Some(serving) = self.serving() else {
            return;
        };
        let generation = serving.id;
        let begun = serving.file.try_clone().and_then(|file| {
            let mut process =
                ChildProcess::exec(&self.around.program, Role::AcmeClient, generation, 0)?;
            let identity = Identity {
                role: Role::AcmeClient,
                generation,
                slot: 0,
                segment: None,
                reloads: false,
            };
            process.tell(SupervisorCommand::Begin(identity), vec![file]);
            Ok(process)
        });
        match begun {
            Ok(process) => self.acme_client.process = Some((process, config)),
            Err(error) => {
                self.acme_client.history.ended(Some(Duration::ZERO), now);
                say(&self.around.program.not_started(&error).message);
            }
        }
    }

    /// Takes what the client has said.
    pub(super) fn take_acme_events(&mut self) {
        loop {
            let Some((process, _)) = &mut self.acme_client.process else {
                return;
            };
            process.flush();
            let Some(received) = process.receive() else {
                return;
            };
            match received.message {
                ProcessEvent::Certificate(state) => {
                    self.acme_client.note(state);
                    self.certificates.is_news = true;
                }
                ProcessEvent::Challenges => {
                    self.acme_client.challenges = received.fds.into_iter().next();
                    self.hand_out_challenges();
                }
                ProcessEvent::Failed => {
                    let failure = received.fds.first();
                    let failure = failure.map(|file| payload::from_file(file.as_fd()));
                    if let Some(Ok(failure)) = failure {
                        let failure: config::failure::Failure = failure;
                        talk(&failure.text());
                    }
                }
                // It serves nobody, and so says nothing else.
                _ => {}
            }
        }
    }

    /// Every process is to answer the challenges of this moment: any of them may be asked.
    fn hand_out_challenges(&mut self) {
        let Some(file) = &self.acme_client.challenges else {
            return;
        };
        for process in &mut self.processes {
            tell_challenges(process, file);
        }
    }

    /// A process that begins later than a challenge is to answer it as well.
    pub(super) fn hand_challenges_to(&self, process: &mut ChildProcess) {
        if let Some(file) = &self.acme_client.challenges {
            tell_challenges(process, file);
        }
    }

    /// Whether it was the client that has ended.
    pub(super) fn acme_client_ended(&mut self, pid: Pid, status: ExitStatus) -> bool {
        if !self.acme_client.is_process(pid) {
            return false;
        }
        // What it said last is still in its channel.
        self.take_acme_events();
        let now = Instant::now();
        if let Some((process, _)) = self.acme_client.process.take()
            && !matches!(
                process.state,
                ProcessState::Draining { .. } | ProcessState::Killed(Ending::Meant)
            )
        {
            let served = now.saturating_duration_since(process.started);
            self.acme_client.history.ended(Some(served), now);
            let how = how_it_ended(status);
            say(&format!("{} {how}: it is started again", process.name()));
        }
        true
    }
}

fn tell_challenges(process: &mut ChildProcess, file: &OwnedFd) {
    if process.role != Role::Serving {
        return;
    }
    // Without a descriptor left, a challenge fails and is tried again.
    if let Ok(file) = file.try_clone() {
        process.tell(SupervisorCommand::TakeChallenges, vec![file]);
    }
}
