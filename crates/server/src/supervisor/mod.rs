//! The supervisor: one process with one thread that owns the listening sockets for its whole life and
//! starts, watches, replaces and ends the processes that serve.
//!
//! Never reads what a client sends. Everything that happens comes through one `poll`: signals, commands,
//! notices of processes, changes of code. `mend` then makes what is out of what should be: it starts what
//! is missing, ends what is surplus, and gives every socket to somebody who accepts from it.

mod assign;
pub mod attempt;
mod commands;
mod confirming;
pub mod control;
mod ears;
mod generation;
mod health;
mod life;
mod mending;
mod notices;
mod notify;
mod privileges;
mod process;
mod program;
mod recycling;
mod reloading;
mod reports;
mod reshaping;
mod sockets;
mod steering;
mod talk;
mod upgrade;
mod watch;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Pid;
use signal_hook::consts::{
    SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::channel::{Identity, Order, Role};
use crate::config::Loaded;
use crate::config::meant::Config;
use crate::fault::{Failure, StartFault, plain};
use crate::house::Listening;
use crate::payload::Payload;
use crate::pidfile::PidFile;
use crate::stats::{Counted, CounterFile};

use commands::{Stopping, Wish};
use confirming::Confirming;
use control::place::Who;
use control::{ClientId, Control};
use generation::Generation;
use life::Next;
use notify::Manager;
use process::{Process, State};
use recycling::Bounds;
use reloading::Reloading;
use sockets::Sockets;
use talk::{say, talk};
use watch::Watch;

pub use commands::Overrides;
pub use program::{HANDOVER, Program};
pub use upgrade::{Handed, State as Succession, receive};

/// A process that has been told to end gets this long beyond its own deadline.
const GRACE: Duration = Duration::from_secs(5);
/// The longest sleep: nothing depends on it.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// A configuration that was read, with the texts it was made of.
#[derive(Clone, Debug)]
pub struct Fresh {
    /// The configuration.
    pub loaded: Loaded,
    /// Its texts.
    pub payload: Payload,
}

/// What a supervisor needs of those who know the command line.
pub struct Surroundings<'s> {
    /// How to start this program again.
    pub program: Program,
    /// The configuration file, as an absolute path.
    pub config_file: Option<std::path::PathBuf>,
    /// `XDG_RUNTIME_DIR`, where it is set.
    pub runtime_dir: Option<std::path::PathBuf>,
    /// Reads the configuration anew.
    pub reread: &'s dyn Fn(&Overrides) -> Result<Fresh, Vec<Failure>>,
    /// Understands texts that were read before.
    pub understand: &'s dyn Fn(&Payload) -> Result<Loaded, Vec<Failure>>,
    /// The generation serves: what there is to say about it.
    pub serving: &'s dyn Fn(&Serving<'_>),
    /// The program's version.
    pub version: &'static str,
}

/// What a first generation serves.
pub struct Serving<'s> {
    /// Its configuration.
    pub config: &'s Config,
    /// What is worth saying about it.
    pub notes: &'s [String],
    /// What is listened on.
    pub listening: &'s [Listening],
    /// "CPython 3.11.7 (GIL)"
    pub python: Option<String>,
}

type Signals = SignalDelivery<UnixStream, SignalOnly>;

struct Supervisor<'s> {
    around: Surroundings<'s>,
    signals: Signals,
    control: Option<Control>,
    manager: Manager,
    /// Addresses that close with the processes that still have them.
    closing: Vec<u16>,
    sockets: Sockets,
    /// Who accepts from which socket.
    assignment: assign::Assignment,
    counters: CounterFile,
    /// What processes counted that are gone.
    gone: Counted,
    serving: Option<Generation>,
    coming: Option<Generation>,
    /// Configurations that are left behind, while processes of theirs drain.
    processes: Vec<Process>,
    generations_made: u64,
    reloading: Option<Reloading>,
    /// Reloads that were asked for while one was under way.
    wishes: Vec<Wish>,
    /// Who waits for another number of processes.
    scaling: Vec<ClientId>,
    /// Who waits until processes have confirmed what they were told, in the order in which they asked.
    confirming: Vec<Confirming>,
    /// The number of the last order to confirm. It begins with the time, above those of whom this one replaced:
    /// a process may confirm to it what it was told before.
    last_confirmation: u64,
    stopping: Option<Stopping>,
    probe: Option<upgrade::Probe>,
    watch: Option<Watch>,
    health: health::Health,
    /// What went wrong last, and when.
    last_failure: Option<(Failure, Instant)>,
    crashes: u64,
    recycled: u64,
    started_at: std::time::SystemTime,
    exit_code: i32,
    cut: u64,
    pid_file: Option<PidFile>,
    /// Ends of processes that were seen before anybody knew of them.
    unknown_ends: HashMap<Pid, ExitStatus>,
}

/// Supervises until it is told to stop; gives the exit code.
///
/// # Errors
/// What kept it from starting. Nothing is left behind then.
pub fn run(fresh: Fresh, around: Surroundings<'_>) -> Result<i32, StartFault> {
    let mut supervisor = Supervisor::open(fresh, around)?;
    supervisor.live();
    Ok(supervisor.close())
}

/// Goes on for the program that this process was before.
///
/// # Errors
/// What was handed over cannot be used.
pub fn succeed(state: Succession, around: Surroundings<'_>) -> Result<i32, StartFault> {
    let mut supervisor = Supervisor::adopt(state, around)?;
    supervisor.live();
    Ok(supervisor.close())
}

impl<'s> Supervisor<'s> {
    /// Binds everything, gives up rights, and makes ready to start processes.
    fn open(fresh: Fresh, around: Surroundings<'s>) -> Result<Self, StartFault> {
        let Fresh { loaded, payload } = fresh;
        let Loaded { config, mut notes } = loaded;
        if let Some(path) = &config.pid_file {
            PidFile::check(path)?;
        }
        let identity = privileges::resolve(&config.processes.user, &config.processes.group)?;
        let (control, warnings) = open_control(&config, &around, identity.as_ref())?;
        notes.extend(warnings);
        let signals =
            watch_signals().map_err(|error| start_fault("cannot watch for signals", &error))?;
        let sockets_len = config.processes.count * config.listen.drivers;
        let inherited = notify::inherited(|name| std::env::var_os(name), std::process::id())?;
        let sockets = Sockets::open(&config, inherited, sockets_len, Instant::now())?;
        for name in sockets.spare_names() {
            notes.push(format!(
                "the socket `{name}` of the service manager is not used"
            ));
        }
        let pid_file = config.pid_file.as_deref().map(PidFile::write);
        let opened = pid_file.transpose().and_then(|pid_file| {
            if let Some(identity) = &identity {
                become_user(identity, &sockets, control.as_ref())?;
            }
            Ok(pid_file)
        });
        let pid_file = match opened {
            Ok(pid_file) => pid_file,
            Err(fault) => {
                sockets.remove_files();
                return Err(fault);
            }
        };
        let counters = CounterFile::new()
            .map_err(|error| start_fault("cannot make the file of counters", &error))?;
        // Processes that a template leaves behind become this one's, so that their ends are seen.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let start_time = commands::duration(config.processes.start_timeout) + GRACE;
        let generation = Generation::new(1, config, notes, payload)
            .map_err(|error| start_fault("cannot keep the configuration", &error))?;
        let mut supervisor = Self::new(around, signals, control, sockets, counters);
        supervisor.coming = Some(generation);
        supervisor.generations_made = 1;
        supervisor.pid_file = pid_file;
        supervisor.find_manager();
        supervisor.tell_manager(|manager| manager.wait_for(start_time));
        supervisor.watch_code();
        Ok(supervisor)
    }

    /// Whoever started this as a service is told of its life.
    fn find_manager(&mut self) {
        match Manager::find(|name| std::env::var_os(name), std::process::id()) {
            Ok(manager) => self.manager = manager,
            Err(error) => say(&format!(
                "NOTIFY_SOCKET: the service manager cannot be told: {}",
                plain(&error)
            )),
        }
    }

    /// Tells the service manager; one that does not listen is no reason to fail.
    fn tell_manager(&mut self, tell: impl FnOnce(&mut Manager) -> io::Result<()>) {
        if let Err(error) = tell(&mut self.manager) {
            say(&format!(
                "the service manager cannot be told: {}",
                plain(&error)
            ));
        }
    }

    fn new(
        around: Surroundings<'s>,
        signals: Signals,
        control: Option<Control>,
        sockets: Sockets,
        counters: CounterFile,
    ) -> Self {
        Self {
            around,
            signals,
            control,
            manager: Manager::default(),
            closing: Vec::new(),
            sockets,
            assignment: assign::Assignment::new(),
            counters,
            gone: Counted::default(),
            serving: None,
            coming: None,
            processes: Vec::new(),
            generations_made: 0,
            reloading: None,
            wishes: Vec::new(),
            scaling: Vec::new(),
            confirming: Vec::new(),
            last_confirmation: measure::now().0,
            stopping: None,
            probe: None,
            watch: None,
            health: health::Health::default(),
            last_failure: None,
            crashes: 0,
            recycled: 0,
            started_at: std::time::SystemTime::now(),
            exit_code: 0,
            cut: 0,
            pid_file: None,
            unknown_ends: HashMap::new(),
        }
    }

    fn live(&mut self) {
        while !self.is_over() {
            let now = Instant::now();
            self.mend(now);
            if self.is_over() {
                return;
            }
            self.wait(now);
            self.take_signals();
            self.take_notices();
            self.take_commands();
            self.take_changes();
        }
    }

    /// Everything that was asked for is done, or nothing is left to be done.
    fn is_over(&self) -> bool {
        self.stopping.is_some() && self.processes.is_empty()
    }

    fn close(mut self) -> i32 {
        self.sockets.end();
        drop(self.pid_file.take());
        // Files of sockets went when the end began: by now somebody else's may have their names.
        self.tell_stopped();
        self.exit_code
    }

    /// Until something happens or is due.
    fn wait(&mut self, now: Instant) {
        let due = self.due(now).saturating_duration_since(now).min(SLEEP_MAX);
        let mut watched = vec![PollFd::new(self.signals.get_read(), PollFlags::IN)];
        if let Some(control) = &self.control {
            for (fd, wanted) in control.fds() {
                watched.push(PollFd::from_borrowed_fd(fd, wanted));
            }
        }
        if let Some(fd) = self.watch.as_ref().and_then(Watch::fd) {
            watched.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        for process in &self.processes {
            let Some(channel) = process.channel() else {
                continue;
            };
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, process.is_behind());
            watched.push(PollFd::from_borrowed_fd(channel.as_fd(), wanted));
        }
        // Rounded up: waking before something is due would be waking twice.
        let timeout = Timespec::try_from(due + Duration::from_micros(100)).ok();
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                // Out of memory: better late than spinning.
                say(&format!("cannot wait for events: {error}"));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn take_signals(&mut self) {
        let signals: Vec<i32> = self.signals.pending().collect();
        for signal in signals {
            match signal {
                SIGTERM | SIGINT => self.stop(None),
                SIGQUIT => {
                    self.stop(None);
                    self.hurry();
                }
                SIGHUP => self.reload(Wish::default()),
                SIGUSR1 => self.reopen(),
                SIGUSR2 => self.upgrade(None),
                SIGTTIN => self.scale_by(1),
                SIGTTOU => self.scale_by(-1),
                _ => {}
            }
        }
        self.reap();
    }

    /// Makes what is out of what should be.
    fn mend(&mut self, now: Instant) {
        self.enforce_deadlines(now);
        self.end_late_probe(now);
        if self.stopping.is_none() {
            self.start_missing(now);
            self.promote();
            self.replace_worn();
            self.end_surplus();
            self.give_up_if_hopeless(now);
        }
        self.look_after(now);
        self.settle_ears();
        if self.take_next_wish() {
            // Nothing else may happen for long that would have them started.
            self.start_missing(now);
        }
    }

    /// Starts what is missing in each place of the generations that are wanted.
    fn start_missing(&mut self, now: Instant) {
        for id in self.wanted_ids() {
            let Some(generation) = self.generation(id) else {
                continue;
            };
            let has_template = generation.has_template();
            let template_next = generation.template.next(now);
            let nexts: Vec<Next> = generation.lives.iter().map(|life| life.next(now)).collect();
            if has_template && self.template(id).is_none() && template_next == Next::Start {
                self.start(id, Role::Template, 0);
            }
            for (slot, next) in nexts.into_iter().enumerate() {
                let is_there = self
                    .at(id, slot)
                    .any(|process| matches!(process.state, State::Starting | State::Ready));
                if !is_there && next == Next::Start {
                    self.start(id, Role::Serving, slot);
                }
            }
        }
    }

    /// Starts a process, unless the template that is to fork it is not ready.
    fn start(&mut self, id: u64, role: Role, slot: usize) {
        let Some(generation) = self.generation(id) else {
            return;
        };
        let is_forked = role == Role::Serving && generation.has_template();

        let bounds = Bounds::new(&generation.config.processes.recycling, chance());
        let file = generation.file.try_clone();
        let shape = generation.shape.clone();
        let made = if is_forked {
            let Some(template) = self.template(id).filter(|one| one.state == State::Ready) else {
                return;
            };
            Process::fork(template, slot)
        } else {
            Process::exec(&self.around.program, role, id, slot)
        };
        let begun = made.and_then(|mut process| {
            process.bounds = bounds;
            let mut fds = vec![file?];
            if role == Role::Serving {
                let segment = self.counters.allot(&shape)?;
                process.segment = Some(segment);
                process.view = Some(self.counters.view(&segment)?);
                fds.push(self.counters.file().try_clone_to_owned()?);
            }
            let identity = Identity {
                role,
                generation: id,
                slot,
                segment: process.segment,
            };
            process.tell(Order::Begin(identity), fds);
            Ok(process)
        });
        match begun {
            Ok(process) => self.processes.push(process),
            Err(error) => {
                let failure = self.around.program.not_started(&error);
                self.could_not_start(id, role, slot, failure);
            }
        }
    }

    /// Under development, watches the code of what serves or is to serve.
    fn watch_code(&mut self) {
        let generation = self.coming.as_ref().or(self.serving.as_ref());
        let Some(generation) = generation else { return };
        let Some(development) = &generation.config.processes.development else {
            self.watch = None;
            return;
        };
        let app = generation.config.app.as_ref();
        let folders = app.map(|app| app.app_dir.clone());
        let folders: Vec<_> = folders
            .into_iter()
            .chain(development.dirs.clone())
            .collect();
        let files: Vec<_> = self.around.config_file.clone().into_iter().collect();
        let now = measure::now();
        match &mut self.watch {
            Some(watch) => watch.extend(&folders, &files, now),
            none => *none = Some(Watch::new(&folders, &files, now)),
        }
    }

    fn take_changes(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let changed = watch.changed(measure::now());
        if let Some(notice) = watch.notice() {
            say(&notice);
        }
        if let Some(path) = changed {
            say(&format!("{} has changed: reloading", path.display()));
            self.reload(Wish {
                is_development: true,
                ..Wish::default()
            });
        }
    }

    fn note_failure(&mut self, failure: Failure) {
        self.last_failure = Some((failure, Instant::now()));
    }

    fn last_failure(&self) -> Option<Failure> {
        self.last_failure
            .as_ref()
            .map(|(failure, _)| failure.clone())
    }

    fn generation(&self, id: u64) -> Option<&Generation> {
        let both = [&self.serving, &self.coming];
        both.into_iter().flatten().find(|one| one.id == id)
    }

    fn generation_mut(&mut self, id: u64) -> Option<&mut Generation> {
        let both = [&mut self.serving, &mut self.coming];
        both.into_iter().flatten().find(|one| one.id == id)
    }

    fn wanted_ids(&self) -> Vec<u64> {
        let both = [&self.serving, &self.coming];
        both.into_iter().flatten().map(|one| one.id).collect()
    }

    fn template(&mut self, id: u64) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| {
            process.generation == id
                && process.role == Role::Template
                && matches!(process.state, State::Starting | State::Ready)
        })
    }

    /// Serving processes in one place, those that drain included.
    fn at(&self, id: u64, slot: usize) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(move |process| {
            process.role == Role::Serving && process.generation == id && process.slot == slot
        })
    }
}

/// Gives up the rights of root, with everything that was made by them given to the user who goes on.
fn become_user(
    identity: &privileges::Identity,
    sockets: &Sockets,
    control: Option<&Control>,
) -> Result<(), StartFault> {
    let given = sockets.give(identity).and_then(|()| match control {
        Some(control) => privileges::give_file(control.path(), identity),
        None => Ok(()),
    });
    if let Err(error) = given {
        say(&format!(
            "not everything can be given to the user: {}",
            plain(&error)
        ));
    }
    privileges::drop_to(identity)
}

/// Commands may come from the user who started the server, from the one whose rights it keeps, and from root.
fn open_control(
    config: &Config,
    around: &Surroundings<'_>,
    identity: Option<&privileges::Identity>,
) -> Result<(Option<Control>, Vec<String>), StartFault> {
    let uid = rustix::process::geteuid().as_raw();
    let uids: Vec<u32> = [uid]
        .into_iter()
        .chain(identity.map(|identity| identity.uid))
        .collect();
    let who = Who {
        uid,
        runtime_dir: around.runtime_dir.clone(),
    };
    Control::open(
        &config.processes.control,
        around.config_file.as_deref(),
        &who,
        &uids,
    )
}

fn watch_signals() -> io::Result<Signals> {
    let (read, write) = UnixStream::pair()?;
    let all = [
        SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGTTIN, SIGTTOU,
    ];
    SignalDelivery::with_pipe(read, write, SignalOnly, all)
}

/// A number from 0 to 1, another one each time.
fn chance() -> f64 {
    let number = RandomState::new().hash_one(());
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

fn start_fault(what: &str, error: &io::Error) -> StartFault {
    StartFault {
        what: what.to_owned(),
        cause: plain(error),
        hint: None,
    }
}
