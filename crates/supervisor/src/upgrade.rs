//! Upgrade: this very process becomes the new program, with all sockets, processes and commands under way.
//!
//! The process id stays, so that a service manager, a container or a pid file need not know. First the new
//! program is started beside to see whether it can read what it would be handed; then it takes over and
//! begins a reload, by which the serving processes become new ones too.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use rustix::io::FdFlags;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answers::AnswerEvent;
use super::certificates::{CertificateSuccession, Certificates};
use super::commands::Ending;
use super::control::{ClientId, Control};
use super::generation::Generation;
use super::plan::{PlanEvent, PlanState, UpgradeProbe};
use super::privileges;
use super::process::{ChildProcess, ProcessState};
use super::reconcile::how_it_ended;
use super::recycling::Bounds;
use super::sockets::Sockets;
use super::{Lifetime, Supervisor, SupervisorEnvironment, chance, history, say, watch_signals};
use config::failure::Failure;
use config::failure::{StartFault, plain};
use ipc::payload::{self, Payload};
use ipc::pidfile::PidFile;
use ipc::stats::{CounterFile, Segment};
use ipc::{Channel, Role};

/// The form of what is handed over; another one is refused before anything has happened.
const FORMAT: u32 = 6;
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
    lifetime: Lifetime,
    /// Read only by the program that takes over: reading takes over descriptors.
    sockets: Value,
    control: Option<Value>,
    /// Clients that have their answer when the reload that follows is over.
    clients: Vec<ClientId>,
    counters: RawFd,
    /// Of a program without a history there is none.
    #[serde(default)]
    history: Option<RawFd>,
    processes: Vec<Value>,
    /// Of a program without TLS there are none.
    #[serde(default)]
    certificates: CertificateSuccession,
    /// With its path, which a reload may have changed in the configuration since it was written.
    #[serde(default)]
    pid_file: Option<(PathBuf, RawFd)>,
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
        Ok(_) => return Channel::try_from(file).map(Handed::Process),
        Err(_) => file,
    };
    let state: Succession = payload::from_file(file.as_fd())?;
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
                    // The same state that a successor would get, so that what cannot be written is seen before anything
                    // has happened.
                    is_probe: true,
                    ..state
                })
            })
            .and_then(|file| self.around.program.start(&file));
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
        // It has printed why: its standard error is the server's.
        let how = how_it_ended(status);
        let failure = Failure::new(format!("upgrade: the new program {how}: this one goes on"))
            .with_hint("its messages are on the server's standard error");
        self.handle(PlanEvent::ProbeFailed(failure));
    }

    /// Comes back only when it was not possible.
    pub(super) fn become_new(&mut self, client: Option<ClientId>, waiting: &[ClientId]) {
        // What has not begun is begun by the successor. Its end is seen there too: children stay children through `exec`.
        for process in &mut self.processes {
            if process.state == ProcessState::Starting {
                process.kill_for(Ending::Meant);
            }
            // What its channel does not take now is lost: the reload that follows replaces the process anyway.
            process.flush();
        }
        self.note_answers(AnswerEvent::Upgraded);
        self.end_second(Instant::now());
        self.refuse_stacks();
        // Taken before anything is written, so that it can be taken back whatever fails.
        let kept = self.descriptors();
        let error = match self.state(client, waiting).and_then(|state| {
            set_inherited(&kept, FdFlags::empty())?;
            payload::to_file(&state)
        }) {
            Ok(file) => {
                // A signal that arrives without a handler would end the process; blocked, it waits.
                // The mask goes through `exec`, handlers do not.
                let all = SigSet::all();
                let _ = all.thread_block();
                let _ = privileges::keep_through_exec();
                let error = self.around.program.become_it(&file);
                let _ = privileges::settle();
                let _ = all.thread_unblock();
                error
            }
            Err(error) => error,
        };
        // Programs that are started from here on are to have none of them.
        let _ = set_inherited(&kept, FdFlags::CLOEXEC);
        let text = format!("upgrade: cannot start the new program: {}", plain(&error));
        self.refuse(client, Failure::new(text));
    }

    fn state(&self, client: Option<ClientId>, waiting: &[ClientId]) -> io::Result<Succession> {
        let serving = self.serving();
        // A process that its template has not forked yet has no id that a successor could know it by.
        let forked = self.processes.iter().filter(|one| !one.is_unforked());
        let processes = forked.map(serde_json::to_value);
        let serving = serving.ok_or_else(|| io::Error::other("nothing serves yet"))?;
        Ok(Succession {
            format: FORMAT,
            is_probe: false,
            version: self.around.version.to_owned(),
            payload: serving.payload.clone(),
            generation: serving.id,
            count: serving.count(),
            lifetime: self.lifetime.clone(),
            sockets: serde_json::to_value(&self.sockets)?,
            control: self
                .control
                .as_ref()
                .map(serde_json::to_value)
                .transpose()?,
            clients: client.iter().chain(waiting).copied().collect(),
            counters: self.counters.file().as_raw_fd(),
            history: self.history.as_ref().map(|one| one.file.file().as_raw_fd()),
            processes: processes.collect::<Result<_, _>>()?,
            certificates: self.certificate_succession(),
            pid_file: self
                .pid_file
                .as_ref()
                .map(|one| (one.path().to_owned(), one.as_fd().as_raw_fd())),
        })
    }

    /// Goes on where the program stopped that this process was before, and reloads.
    pub(super) fn adopt(
        state: Succession,
        around: SupervisorEnvironment<'s>,
    ) -> Result<Self, StartFault> {
        let signals = watch_signals()?;
        // Signals that came meanwhile arrive now, and find the handlers that were just set.
        let _ = SigSet::all().thread_unblock();
        let failed = |error: io::Error| StartFault::of_io("cannot take over", &error);
        let understood = (around.understand)(&state.payload);
        let loaded = understood.map_err(|failures| {
            let cause = failures.into_iter().next().unwrap_or_default().message;
            StartFault::new("cannot take over", cause)
        })?;
        let mut generation =
            Generation::new(state.generation, loaded.config, loaded.notes, state.payload)
                .map_err(failed)?;
        generation.resize(state.count);
        let certificates = Certificates::adopt(&mut generation, state.certificates);
        let certificates = certificates.map_err(failed)?;
        let (counters, processes) =
            adopt_processes(state.counters, state.processes).map_err(failed)?;
        let sockets = Sockets::adopt(state.sockets)?;
        // Before anything is started: only this program was to keep the right to low ports.
        let _ = privileges::settle();
        let control = state.control.map(serde_json::from_value::<Control>);
        let control = control.transpose().map_err(|error| failed(error.into()))?;
        let pid_file = state.pid_file.map(|(path, fd)| {
            let file = os::adopt_fd(fd)?;
            Ok(PidFile::adopt(path, file))
        });
        let pid_file = pid_file.transpose().map_err(failed)?;
        say(&format!(
            "upgraded from {} to {}: the processes follow",
            state.version, around.version
        ));
        let history = history::opened(state.history);
        let mut supervisor = Self::new(around, signals, control, sockets, counters, history);
        supervisor.find_manager();
        supervisor.processes = processes;
        supervisor.certificates = certificates;
        // They are replaced in time, in case the reload that follows fails.
        let own = supervisor.processes.iter_mut();
        for process in own.filter(|process| process.role == Role::Serving) {
            process.bounds = Bounds::new(&generation.config.processes.recycling, chance());
        }
        supervisor.lifetime = state.lifetime;
        let serving = generation.id;
        supervisor.begin_with(PlanState::Steady { serving }, generation);
        supervisor.pid_file = pid_file;
        supervisor.watch_code();
        supervisor.watch_certificates();
        supervisor.reload(state.clients);
        Ok(supervisor)
    }
}

impl Supervisor<'_> {
    /// All that the next program goes on with.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let processes = self.processes.iter().filter_map(ChildProcess::descriptors);
        let control = self.control.iter().flat_map(Control::descriptors);
        let history = self.history.iter().map(|one| one.file.file());
        let all = [self.counters.file()].into_iter().chain(history);
        let pid_file = self.pid_file.iter().map(AsFd::as_fd);
        let all = all.chain(pid_file);
        let all = all.chain(self.sockets.descriptors()).chain(control);
        all.chain(processes.flatten()).collect()
    }
}

/// Closes descriptors for the programs that are started from here on, or leaves them to them.
fn set_inherited(all: &[BorrowedFd<'_>], flags: FdFlags) -> io::Result<()> {
    let mut all = all.iter();
    Ok(all.try_for_each(|fd| rustix::io::fcntl_setfd(fd, flags))?)
}

/// The processes with the counters that they write.
fn adopt_processes(
    counters: RawFd,
    written: Vec<Value>,
) -> io::Result<(CounterFile, Vec<ChildProcess>)> {
    // First, because the file of counters is told of the segments that are in use, and would give them away otherwise.
    let processes = written.into_iter().map(serde_json::from_value);
    let mut processes: Vec<ChildProcess> = processes.collect::<Result<_, _>>()?;
    let segments: Vec<Segment> = processes.iter().filter_map(|one| one.segment).collect();
    let counters = CounterFile::adopt(os::adopt_fd(counters)?, &segments)?;
    for process in &mut processes {
        let view = process.segment.map(|segment| counters.view(&segment));
        process.view = view.transpose()?;
    }
    Ok((counters, processes))
}

/// Its end has not been seen, so its id is still its own.
pub(super) fn kill(pid: Pid) {
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// As messages have it.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
