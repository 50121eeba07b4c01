//! A process beside those that serve, of which there is one at a time: it is started when a generation that wants it
//! serves, ended when the server stops or a reload wants another one, and started again, later each time, when it ends
//! by itself.
//!
//! ```text
//!           a generation that wants it serves         another is wanted, or none     its end is seen
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
use config::failure::Failure;
use ipc::payload;
use ipc::{Identity, ProcessEvent, ReceivedMessage, Role, SupervisorCommand};
use os::invariant;

/// Time for an orderly end.
const ENDING_TIME: Duration = Duration::from_secs(5);

/// The process, and what it was started with.
pub(super) struct HelperProcess<C> {
    process: Option<(ChildProcess, C)>,
    history: RestartHistory,
    /// Why this process could not do its work, and why the one before could not: each cause is said once.
    failure: Option<String>,
    last_failure: Option<String>,
}

impl<C> Default for HelperProcess<C> {
    fn default() -> Self {
        Self {
            process: None,
            history: RestartHistory::default(),
            failure: None,
            last_failure: None,
        }
    }
}

impl<C: Clone + PartialEq> HelperProcess<C> {
    /// No process is left.
    pub(super) fn is_gone(&self) -> bool {
        self.process.is_none()
    }

    /// What the supervisor waits for.
    pub(super) fn watched(&self) -> Option<PollFd<'_>> {
        let (process, _) = self.process.as_ref()?;
        let channel = process.channel()?;
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, process.is_behind());
        Some(PollFd::from_borrowed_fd(channel.as_fd(), wanted))
    }

    /// Ends or kills the process where another one is wanted, or none. Gives what is to be started now.
    pub(super) fn keep(&mut self, wanted: Option<C>, now: Instant) -> Option<C> {
        let Some((process, config)) = &mut self.process else {
            // It is never given up, however often the start has failed.
            let may_start = self.history.next(now) == RestartDecision::Start;
            return wanted.filter(|_| may_start);
        };
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
        None
    }

    /// It was started with this configuration, or could not be.
    pub(super) fn begun(
        &mut self,
        process: Result<ChildProcess, Failure>,
        config: C,
        now: Instant,
    ) {
        invariant!(self.is_gone(), "two processes are to do the same work");
        match process {
            Ok(process) => self.process = Some((process, config)),
            Err(failure) => {
                self.history.ended(Some(Duration::ZERO), now);
                say(&failure.message);
            }
        }
    }

    /// When something is due for it.
    pub(super) fn due(&self, is_wanted: bool, now: Instant) -> Option<Instant> {
        if let Some((process, _)) = &self.process {
            return match process.state {
                ProcessState::Draining { deadline } => Some(deadline),
                _ => None,
            };
        }
        match self.history.next(now) {
            RestartDecision::Wait(until) if is_wanted => Some(until),
            RestartDecision::Wait(_) | RestartDecision::Start | RestartDecision::GiveUp => None,
        }
    }

    /// The next that it has said; sends it what waits.
    pub(super) fn receive(&mut self) -> Option<ReceivedMessage<ProcessEvent>> {
        let (process, _) = self.process.as_mut()?;
        process.flush();
        process.receive()
    }

    /// Tells it something, while it is there.
    pub(super) fn tell(&mut self, order: SupervisorCommand, fds: Vec<OwnedFd>) {
        if let Some((process, _)) = &mut self.process {
            process.tell(order, fds);
        }
    }

    /// Whether it is this process.
    pub(super) fn is_process(&self, pid: Pid) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|(process, _)| process.pid() == Some(pid))
    }

    /// It could not do its work, for what is in the file that it has sent.
    pub(super) fn failed(&mut self, fds: &[OwnedFd]) {
        let failure = fds.first().map(|file| payload::from_file(file.as_fd()));
        if let Some(Ok(failure)) = failure {
            let failure: Failure = failure;
            let text = failure.text();
            if self.last_failure.as_ref() != Some(&text) {
                talk(&text);
            }
            self.failure = Some(text);
        }
    }

    /// It has ended.
    pub(super) fn ended(&mut self, status: ExitStatus) {
        let now = Instant::now();
        let last_failure = std::mem::replace(&mut self.last_failure, self.failure.take());
        let is_known = self.last_failure.is_some() && self.last_failure == last_failure;
        if let Some((process, _)) = self.process.take()
            && !matches!(
                process.state,
                ProcessState::Draining { .. } | ProcessState::Killed(Ending::Meant)
            )
        {
            let served = now.saturating_duration_since(process.started);
            self.history.ended(Some(served), now);
            if !is_known {
                let how = how_it_ended(status);
                say(&format!("{} {how}: it is started again", process.name()));
            }
        }
    }
}

impl Supervisor<'_> {
    /// The configuration that serves, unless the server stops.
    pub(super) fn lasting(&self) -> Option<&config::typed::Config> {
        let serving = self.serving().filter(|_| !self.plan.is_stopping());
        serving.map(|serving| &serving.config)
    }

    /// Starts one with what the serving generation was given.
    pub(super) fn start_helper(&self, role: Role) -> Result<ChildProcess, Failure> {
        let serving = self.serving().expect("a helper is wanted by what serves");
        let generation = serving.id;
        let begun = serving.file.try_clone().and_then(|file| {
            let mut process = ChildProcess::exec(&self.around.program, role, generation, 0)?;
            let identity = Identity {
                role,
                generation,
                slot: 0,
                segment: None,
                history: None,
                reloads: false,
            };
            process.tell(SupervisorCommand::Begin(identity), vec![file]);
            Ok(process)
        });
        begun.map_err(|error| self.around.program.not_started(&error))
    }
}
