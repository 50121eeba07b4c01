//! Upgrade: this very process becomes the new program, with all sockets, processes and commands under way.
//!
//! The process id stays, so that a service manager, a container or a pid file need not know. First the new
//! program is started beside to see whether it can read what it would be handed; then it takes over and
//! begins a reload, by which the serving processes become new ones too.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::SigSet;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::answers::AnswerEvent;
use super::commands::Ending;
use super::control::{ClientId, Control, SavedControl};
use super::generation::Generation;
use super::plan::{GenerationPlan, PlanEvent, ReloadRequest, UpgradeProbe};
use super::privileges;
use super::process::{ChildProcess, ProcessHandle, ProcessState};
use super::reconcile::how_it_ended;
use super::recycling::Bounds;
use super::sockets::{self, Sockets};
use super::{Supervisor, SupervisorEnvironment, chance, say, start_fault, watch_signals};
use config::failure::Failure;
use config::failure::{StartFault, plain};
use ipc::payload::{self, Payload};
use ipc::pidfile::PidFile;
use ipc::stats::{CounterFile, Segment, StatsSnapshot};
use ipc::{Channel, ListenerId, Role};

/// The form of what is handed over; another one is refused before anything has happened.
const FORMAT: u32 = 2;
/// Time that the new program has to say that it can take over.
const PROBE_TIME: Duration = Duration::from_secs(60);

/// What was handed over to this program at its start.
pub enum Handed {
    /// It is a process of a supervisor.
    Process(Channel),
    /// It is to say whether it could succeed, with this configuration, the program that asks.
    Probe(Box<Payload>),
    /// It succeeds that program.
    Succession(Box<Succession>),
}

/// Everything that a successor needs. Descriptors are numbers, which stay what they are.
#[derive(Serialize, Deserialize)]
pub struct Succession {
    format: u32,
    is_probe: bool,
    version: String,
    payload: Payload,
    generation: u64,
    count: usize,
    generations_made: u64,
    sockets: sockets::Saved,
    control: Option<(SavedControl, Vec<RawFd>)>,
    /// Clients that have their answer when the reload that follows is over.
    clients: Vec<ClientId>,
    counters: RawFd,
    gone: StatsSnapshot,
    processes: Vec<SavedProcess>,
    started_unix_ms: u64,
    cut: u64,
    crashes: u64,
    recycled: u64,
}

#[derive(Serialize, Deserialize)]
struct SavedProcess {
    pid: i32,
    pidfd: RawFd,
    channel: RawFd,
    role: Role,
    generation: u64,
    slot: usize,
    /// Time left to drain; `None`: it serves, or was killed.
    draining_ms: Option<u64>,
    /// It was killed, and its end has not been seen yet.
    is_killed: bool,
    age_ms: u64,
    ready_ms: u64,
    segment: Option<Segment>,
    accepts_from: Vec<ListenerId>,
    beat: u64,
    python: Option<String>,
}

/// What stands behind the number in the environment.
///
/// # Errors
/// Nothing that could have been handed over.
pub fn receive(number: &OsStr) -> io::Result<Handed> {
    let raw = number.to_str().and_then(|text| text.parse().ok());
    let raw = raw.ok_or_else(|| io::Error::other("it is no number"))?;
    let file = os::adopt_fd(raw)?;
    let file = match rustix::net::sockopt::socket_type(&file) {
        Ok(_) => return Channel::from_fd(file).map(Handed::Process),
        Err(_) => file,
    };
    let state: Succession = payload::from_file(std::os::fd::AsFd::as_fd(&file))?;
    if state.format != FORMAT {
        let text = "it was handed over by a version that this one cannot succeed";
        return Err(io::Error::other(text));
    }
    Ok(match state.is_probe {
        true => Handed::Probe(Box::new(state.payload)),
        false => Handed::Succession(Box::new(state)),
    })
}

impl<'s> Supervisor<'s> {
    /// Starts the new program beside this one, to see whether it can take over.
    pub(super) fn start_probe(&mut self, client: Option<ClientId>) {
        let begun = self
            .state(client, &[])
            .and_then(|state| {
                payload::to_file(&Succession {
                    is_probe: true,
                    ..state
                })
            })
            .and_then(|file| self.around.program.probe(&file));
        // The new program, and processes that start meanwhile, have no use for sockets.
        let _ = self.sockets.keep();
        match begun {
            Ok(pid) => self.handle(PlanEvent::ProbeStarted(UpgradeProbe {
                pid,
                deadline: Instant::now() + PROBE_TIME,
                client,
            })),
            Err(error) => {
                let text = format!("upgrade: cannot start the new program: {}", plain(&error));
                self.refuse(client, Failure::new(text));
            }
        }
    }

    /// A new program that does not answer is killed.
    pub(super) fn end_late_probe(&mut self, now: Instant) {
        let probe = self.plan.probe();
        if let Some(probe) = probe.filter(|probe| probe.deadline <= now) {
            kill(probe.pid);
            let secs = PROBE_TIME.as_secs();
            let text = format!("upgrade: the new program did not answer within {secs} s");
            self.handle(PlanEvent::ProbeFailed(Failure::new(text)));
        }
    }

    pub(super) fn probed(&mut self, status: ExitStatus) {
        if status.success() {
            return self.handle(PlanEvent::ProbePassed);
        }
        let how = how_it_ended(status);
        let failure = Failure::new(format!("upgrade: the new program {how}: this one goes on"))
            .with_hint("its messages are on the server's standard error");
        self.handle(PlanEvent::ProbeFailed(failure));
    }

    /// Comes back only when it was not possible.
    pub(super) fn become_new(&mut self, client: Option<ClientId>, waiting: &[ClientId]) {
        // What has not begun is begun by the successor.
        for process in &mut self.processes {
            if process.state == ProcessState::Starting {
                process.kill_for(Ending::Meant);
            }
            process.flush();
        }
        self.note_answers(AnswerEvent::Upgraded);
        let error = match self.state(client, waiting).and_then(|state| {
            let kept = state.descriptors();
            os::set_inherited(&kept, os::Inherited::Yes)?;
            Ok((payload::to_file(&state)?, kept))
        }) {
            Ok((file, kept)) => {
                // A signal that arrives without a handler would end the process; blocked, it waits.
                let all = SigSet::all();
                let _ = all.thread_block();
                let _ = privileges::keep_through_exec();
                let error = self.around.program.become_it(&file);
                let _ = privileges::settle();
                let _ = all.thread_unblock();
                let _ = os::set_inherited(&kept, os::Inherited::No);
                error
            }
            Err(error) => error,
        };
        let _ = self.sockets.keep();
        let text = format!("upgrade: cannot start the new program: {}", plain(&error));
        self.refuse(client, Failure::new(text));
    }

    fn state(&self, client: Option<ClientId>, waiting: &[ClientId]) -> io::Result<Succession> {
        let now = Instant::now();
        let serving = self.serving();
        let serving = serving.ok_or_else(|| io::Error::other("nothing serves yet"))?;
        let started = self.started_at.duration_since(SystemTime::UNIX_EPOCH);
        Ok(Succession {
            format: FORMAT,
            is_probe: false,
            version: self.around.version.to_owned(),
            payload: serving.payload.clone(),
            generation: serving.id,
            count: serving.count(),
            generations_made: self.generations_made,
            sockets: self.sockets.save(now)?,
            control: self.control.as_ref().map(|control| {
                let (saved, fds) = control.save();
                (saved, fds.iter().map(AsRawFd::as_raw_fd).collect())
            }),
            clients: client
                .iter()
                .chain(waiting)
                .chain(self.answers.scaling())
                .copied()
                .collect(),
            counters: self.counters.file().as_raw_fd(),
            gone: self.gone.clone(),
            processes: self
                .processes
                .iter()
                .filter_map(|process| SavedProcess::new(process, now))
                .collect(),
            started_unix_ms: millis(started.unwrap_or_default()),
            cut: self.cut,
            crashes: self.crashes,
            recycled: self.recycled,
        })
    }

    /// Goes on where the program stopped that this process was before, and reloads.
    pub(super) fn adopt(
        state: Succession,
        around: SupervisorEnvironment<'s>,
    ) -> Result<Self, StartFault> {
        let signals =
            watch_signals().map_err(|error| start_fault("cannot watch for signals", &error))?;
        let _ = SigSet::all().thread_unblock();
        let failed = |error: io::Error| start_fault("cannot take over", &error);
        let kept = state.descriptors();
        let understood = (around.understand)(&state.payload);
        let loaded = understood.map_err(|failures| StartFault {
            what: "cannot take over".to_owned(),
            cause: failures
                .first()
                .map_or_else(String::new, |failure| failure.message.clone()),
            hint: None,
        })?;
        let mut generation =
            Generation::new(state.generation, loaded.config, loaded.notes, state.payload)
                .map_err(failed)?;
        generation.resize(state.count);
        os::set_inherited(&kept, os::Inherited::No).map_err(failed)?;
        let segments: Vec<Segment> = state
            .processes
            .iter()
            .filter_map(|process| process.segment)
            .collect();
        let counters = os::adopt_fd(state.counters)
            .and_then(|file| CounterFile::adopt(file, &segments))
            .map_err(failed)?;
        let sockets = Sockets::adopt(state.sockets, Instant::now())?;
        let _ = privileges::settle();
        let control = state.control.map(|(saved, fds)| {
            let fds: io::Result<Vec<OwnedFd>> = fds.into_iter().map(os::adopt_fd).collect();
            Control::adopt(saved, fds?, Instant::now())
        });
        let control = control.transpose().map_err(failed)?;
        let processes: io::Result<Vec<ChildProcess>> = state
            .processes
            .into_iter()
            .map(|saved| saved.process(&counters))
            .collect();
        let pid_file = generation.config.pid_file.as_deref().map(PidFile::write);
        let pid_file = pid_file.and_then(Result::ok);
        say(&format!(
            "upgraded from {} to {}: the processes follow",
            state.version, around.version
        ));
        let mut supervisor = Self::new(around, signals, control, sockets, counters);
        supervisor.find_manager();
        supervisor.processes = processes.map_err(failed)?;
        supervisor.bound_again(&generation);
        supervisor.generations_made = state.generations_made;
        let serving = generation.id;
        supervisor.begin_with(GenerationPlan::Steady { serving }, generation);
        supervisor.gone = state.gone;
        supervisor.cut = state.cut;
        supervisor.crashes = state.crashes;
        supervisor.recycled = state.recycled;
        supervisor.started_at =
            SystemTime::UNIX_EPOCH + Duration::from_millis(state.started_unix_ms);
        supervisor.pid_file = pid_file;
        supervisor.watch_code();
        supervisor.handle(PlanEvent::Reload(ReloadRequest {
            clients: state.clients,
            ..ReloadRequest::default()
        }));
        Ok(supervisor)
    }
}

impl Supervisor<'_> {
    /// Processes that were taken over are replaced in time, in case the reload that follows fails.
    fn bound_again(&mut self, generation: &Generation) {
        let meant = &generation.config.processes.recycling;
        let own = self.processes.iter_mut();
        for process in own.filter(|process| process.role == Role::Serving) {
            process.bounds = Bounds::new(meant, chance());
        }
    }
}

impl Succession {
    /// All descriptors that it speaks of.
    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = vec![self.counters];
        all.extend(self.control.iter().flat_map(|(_, fds)| fds.iter().copied()));
        for process in &self.processes {
            all.extend([process.pidfd, process.channel]);
        }
        all
    }
}

impl SavedProcess {
    fn new(process: &ChildProcess, now: Instant) -> Option<Self> {
        let ProcessHandle::Alive { pid, pidfd } = &process.body else {
            return None;
        };
        let draining_ms = match process.state {
            ProcessState::Draining { deadline } => {
                Some(millis(deadline.saturating_duration_since(now)))
            }
            _ => None,
        };
        let ready = process.ready.unwrap_or(now);
        Some(Self {
            pid: pid.as_raw_nonzero().get(),
            pidfd: pidfd.as_raw_fd(),
            channel: process.channel_fd(),
            role: process.role,
            generation: process.generation,
            slot: process.slot,
            draining_ms,
            is_killed: matches!(process.state, ProcessState::Killed(_)),
            age_ms: millis(now.saturating_duration_since(process.started)),
            ready_ms: millis(now.saturating_duration_since(ready)),
            segment: process.segment,
            accepts_from: process.accepts_from.iter().copied().collect(),
            beat: process.pulse.sent,
            python: process.python.clone(),
        })
    }

    fn process(self, counters: &CounterFile) -> io::Result<ChildProcess> {
        let now = Instant::now();
        let pid = Pid::from_raw(self.pid).ok_or_else(|| io::Error::other("no process id"))?;
        let pidfd: OwnedFd = os::adopt_fd(self.pidfd)?;
        let channel = os::adopt_fd(self.channel)?;
        let body = ProcessHandle::Alive { pid, pidfd };
        let mut process =
            ChildProcess::adopt(self.role, self.generation, self.slot, channel, body)?;
        let ago = |ms: u64| now.checked_sub(Duration::from_millis(ms)).unwrap_or(now);
        process.started = ago(self.age_ms);
        process.ready = Some(ago(self.ready_ms));
        process.state = match self.draining_ms {
            _ if self.is_killed => ProcessState::Killed(Ending::Meant),
            Some(ms) => ProcessState::Draining {
                deadline: now + Duration::from_millis(ms),
            },
            None => ProcessState::Ready,
        };
        process.segment = self.segment;
        let view = self.segment.map(|segment| counters.view(&segment));
        process.view = view.transpose()?;
        process.accepts_from = self.accepts_from.into_iter().collect();
        process.pulse.sent = self.beat;
        process.python = self.python;
        Ok(process)
    }
}

/// Its end has not been seen, so its id is still its own.
pub(super) fn kill(pid: Pid) {
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
