//! One process as its supervisor sees it: started by exec or forked by a template, spoken to over its
//! channel, signalled through its pidfd.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags, Signal};

use serde::{Deserialize, Serialize};

use config::failure::Failure;
use ipc::stats::{Counters, Placed, Segment, View};
use ipc::{Channel, HANDOVER, ListenerId, ProcessEvent, ReceivedMessage, Role, SupervisorCommand};
use telemetry::counters::{DriverStats, StatsSnapshot};

use super::argv::Program;
use super::commands::Ending;
use super::fleet::ProcessFacts;
use super::handed;
use super::recycling::Bounds;
use super::service_manager;

/// Orders that a process has not taken yet; beyond that, those are dropped of which the next does the same.
const OUTBOX_LEN_MAX: usize = 256;

/// One process.
#[derive(Serialize, Deserialize)]
pub(super) struct ChildProcess {
    /// Its own number, never used again.
    #[serde(skip, default = "new_serial")]
    pub(super) serial: u64,
    pub(super) role: Role,
    pub(super) generation: u64,
    pub(super) slot: usize,
    pub(super) state: ProcessState,
    #[serde(with = "handed::moment")]
    pub(super) started: Instant,
    /// Time from its start until it said that it could serve.
    pub(super) ready: Option<Duration>,
    pub(super) segment: Option<Segment>,
    /// Its counters.
    #[serde(skip)]
    pub(super) view: Option<View>,
    pub(super) accepts_from: BTreeSet<ListenerId>,
    /// What it left behind when it could not start.
    pub(super) failure: Option<Failure>,
    pub(super) python: Option<String>,
    /// For each application the event loop that runs it, where that is ASGI.
    pub(super) event_loops: Vec<Option<String>>,
    #[serde(skip)]
    pub(super) bounds: Bounds,
    /// Why it is to be replaced.
    pub(super) worn: Option<String>,
    pub(super) pulse: Pulse,
    /// What it said of its drain.
    pub(super) cut: u64,
    pub(super) body: ProcessHandle,
    #[serde(with = "handed::fd")]
    channel: Channel,
    #[serde(skip)]
    is_silent: bool,
    #[serde(skip)]
    outbox: VecDeque<(SupervisorCommand, Vec<OwnedFd>)>,
}

/// What there is to signal.
#[derive(Serialize, Deserialize)]
pub(super) enum ProcessHandle {
    /// The template has the command to fork it, and has not reported its id yet.
    Unforked,
    Alive {
        pid: i32,
        #[serde(with = "handed::fd")]
        pidfd: OwnedFd,
    },
}

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ProcessState {
    Starting,
    Ready,
    Draining {
        /// When it is ended by force.
        #[serde(with = "handed::moment")]
        deadline: Instant,
    },
    /// It was killed; its end has not been seen yet.
    Killed(Ending),
}

/// Its drivers' answers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Pulse {
    /// The last beat sent.
    pub(super) sent: u64,
    /// Beats in a row that some driver did not answer in time for the next.
    pub(super) missed: u32,
}

impl ChildProcess {
    fn new(
        role: Role,
        generation: u64,
        slot: usize,
        channel: Channel,
        body: ProcessHandle,
    ) -> Self {
        Self {
            serial: new_serial(),
            role,
            generation,
            slot,
            state: ProcessState::Starting,
            started: Instant::now(),
            ready: None,
            segment: None,
            view: None,
            accepts_from: BTreeSet::new(),
            failure: None,
            python: None,
            event_loops: Vec::new(),
            bounds: Bounds::default(),
            worn: None,
            pulse: Pulse::default(),
            cut: 0,
            body,
            channel,
            is_silent: false,
            outbox: VecDeque::new(),
        }
    }

    /// Starts the program anew, as a process that reads its orders from a channel.
    pub(super) fn exec(
        program: &Program,
        role: Role,
        generation: u64,
        slot: usize,
    ) -> io::Result<ChildProcess> {
        let (ours, theirs) = Channel::pair()?;
        // This side's copy of its end is closed when this returns: only then does the end of the process end the channel.
        let theirs = theirs.into_fd();
        let pid = program.start(&theirs)?;
        // By the pidfd no other process is ever signalled, even where the id has been given anew.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let pid = pid.as_raw_nonzero().get();
        let body = ProcessHandle::Alive { pid, pidfd };
        Ok(Self::new(role, generation, slot, ours, body))
    }

    /// Has a template fork one.
    pub(super) fn fork(template: &mut ChildProcess, slot: usize) -> io::Result<ChildProcess> {
        let (ours, theirs) = Channel::pair()?;
        // The other end goes along with the order; no copy stays here, so that the end of the process ends the channel.
        template.tell(SupervisorCommand::Fork, vec![theirs.into_fd()]);
        let (role, generation) = (Role::Serving, template.generation);
        Ok(Self::new(
            role,
            generation,
            slot,
            ours,
            ProcessHandle::Unforked,
        ))
    }

    /// Gives it an order; one that it does not take at once waits.
    pub(super) fn tell(&mut self, order: SupervisorCommand, fds: Vec<OwnedFd>) {
        // A process that does not read has its orders kept: each of them changes what it is to do, but for these, of
        // which the next does the same.
        let is_repeated = matches!(
            order,
            SupervisorCommand::Heartbeat(_) | SupervisorCommand::Reopen
        );
        if !is_repeated || self.outbox.len() < OUTBOX_LEN_MAX {
            self.outbox.push_back((order, fds));
        }
        // At once where the channel takes it; what stays is sent when the loop finds it writable.
        self.flush();
    }

    /// Sends what waits, as far as it is taken.
    pub(super) fn flush(&mut self) {
        while let Some((order, fds)) = self.outbox.front() {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match self.channel.send_now(order, &fds) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It has ended, which its channel's end or the kernel will say.
                Err(_) | Ok(()) => drop(self.outbox.pop_front()),
            }
        }
    }

    /// Whether orders wait for it.
    pub(super) fn is_behind(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// What it has said since; `None` when there is no more for now.
    pub(super) fn receive(&mut self) -> Option<ReceivedMessage<ProcessEvent>> {
        match self.channel.receive_now() {
            Ok(Some(received)) => Some(received),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // Nothing will come any more. It is not watched from here on: the end of a channel stays readable, and the
            // supervisor would not sleep.
            Ok(None) | Err(_) => {
                self.is_silent = true;
                None
            }
        }
    }

    /// Its channel, as long as something may come from it.
    pub(super) fn channel(&self) -> Option<&Channel> {
        (!self.is_silent).then_some(&self.channel)
    }

    /// Its template has the command to fork it, and has not reported that it did.
    pub(super) fn is_unforked(&self) -> bool {
        matches!(self.body, ProcessHandle::Unforked)
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        match &self.body {
            ProcessHandle::Alive { pid, .. } => Pid::from_raw(*pid),
            ProcessHandle::Unforked => None,
        }
    }

    /// All of them, for the program that takes this one's place; none where it has no pidfd yet.
    pub(super) fn descriptors(&self) -> Option<[BorrowedFd<'_>; 2]> {
        match &self.body {
            ProcessHandle::Alive { pidfd, .. } => Some([self.channel.as_fd(), pidfd.as_fd()]),
            ProcessHandle::Unforked => None,
        }
    }

    /// All that it has counted.
    pub(super) fn counted(&self) -> StatsSnapshot {
        let view = self.view.as_ref();
        view.map(|view| view.counters().snapshot())
            .unwrap_or_default()
    }

    /// Its counters; none before it has any.
    pub(super) fn counters(&self) -> Option<Counters<'_>> {
        self.view.as_ref().map(View::counters)
    }

    /// Its drivers' counters; none before it has any.
    pub(super) fn drivers(&self) -> &[Placed<DriverStats>] {
        self.counters().map_or(&[], |counters| counters.drivers)
    }

    /// Its id for people.
    pub(super) fn name(&self) -> String {
        let what = match self.role {
            Role::Serving => format!("process {}", self.slot),
            Role::Template => "template process".to_owned(),
            Role::AcmeClient => "ACME client".to_owned(),
            Role::Admin => "admin process".to_owned(),
        };
        match self.pid() {
            Some(pid) => format!("{what} (pid {})", pid.as_raw_nonzero()),
            None => what,
        }
    }

    /// What a decision needs to know of it.
    pub(super) fn facts(&self) -> ProcessFacts {
        ProcessFacts {
            serial: self.serial,
            role: self.role,
            generation: self.generation,
            slot: self.slot,
            state: self.state,
            started: self.started,
            is_worn: self.worn.is_some(),
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        self.role == Role::Serving && self.state == ProcessState::Ready
    }

    /// Has served for so long.
    pub(super) fn served(&self, now: Instant) -> Option<Duration> {
        let began = self.started + self.ready?;
        Some(now.saturating_duration_since(began))
    }

    /// Lets it end when its connections have, until the deadline.
    pub(super) fn drain(&mut self, order: &SupervisorCommand, deadline: Instant) {
        match (self.state, self.role) {
            (ProcessState::Killed(_), _) => {}
            // It has no connections: it has not begun to serve, or is a template.
            (ProcessState::Starting, _) | (_, Role::Template | Role::AcmeClient | Role::Admin) => {
                self.kill_for(Ending::Meant);
            }
            (ProcessState::Ready | ProcessState::Draining { .. }, Role::Serving) => {
                self.tell(order.clone(), Vec::new());
                self.state = ProcessState::Draining { deadline };
            }
        }
    }

    /// Ends it without asking.
    pub(super) fn kill_for(&mut self, ending: Ending) {
        if let ProcessHandle::Alive { pidfd, .. } = &self.body {
            // It may have ended by itself.
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
        }
        // One that is not forked yet is killed when its template reports its id.
        self.state = ProcessState::Killed(ending);
    }
}

fn new_serial() -> u64 {
    static SERIAL: AtomicU64 = AtomicU64::new(1);
    SERIAL.fetch_add(1, Ordering::Relaxed)
}

impl Program {
    /// Starts it as a child that finds `handed` under the number in its environment.
    pub(super) fn start(&self, handed: &OwnedFd) -> io::Result<Pid> {
        let mut command = self.command(handed)?;
        // The variables of the service manager are for this process alone.
        for name in service_manager::VARIABLES {
            command.env_remove(name);
        }
        // Between the two calls, a program that was started elsewhere would inherit the channel, and the supervisor
        // would never see its end. No other program is started meanwhile: this is the only thread that starts any.
        rustix::io::fcntl_setfd(handed, FdFlags::empty())?;
        let child = command.spawn();
        rustix::io::fcntl_setfd(handed, FdFlags::CLOEXEC)?;
        Ok(Pid::from_child(&child?))
    }

    /// Becomes it; comes back only when that is not possible.
    pub(super) fn become_it(&self, handed: &OwnedFd) -> io::Error {
        let command = rustix::io::fcntl_setfd(handed, FdFlags::empty())
            .map_err(io::Error::from)
            .and_then(|()| self.command(handed));
        match command {
            Ok(mut command) => command.exec(),
            Err(error) => error,
        }
    }

    fn command(&self, handed: &OwnedFd) -> io::Result<Command> {
        let (name, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| io::Error::other("there is no command to start processes with"))?;
        let mut command = Command::new(name);
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env(HANDOVER, handed.as_raw_fd().to_string());
        Ok(command)
    }
}
