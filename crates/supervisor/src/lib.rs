//! The supervisor: one process with one thread that owns the listening sockets for its whole life and
//! starts, watches, replaces and ends the processes that serve.
//!
//! Never reads what a client sends. All input comes through one `poll`: signals, commands, events of processes,
//! changes of code. `plan` decides which generation serves and which one is next; `reconcile` then makes the
//! processes fit the plan, and gives every socket to a process that accepts from it.

#![forbid(unsafe_code)]

mod accept_commands;
mod acme_client;
mod admin;
mod answers;
mod argv;
mod certificates;
mod commands;
pub mod control;
mod demand;
mod events;
mod file_reader;
mod file_watcher;
mod fleet;
mod generation;
mod handed;
mod health;
mod helper_process;
mod history;
mod host_counters;
mod listener_assignment;
mod live;
mod metrics;
mod plan;
mod privileges;
pub mod probe_dir;
mod process;
mod reconcile;
mod recycling;
mod reloading;
mod reply;
mod resize;
mod restart_policy;
mod reuseport_bpf;
mod service_manager;
mod sockets;
mod stacks;
mod stall;
mod state_dir;
mod statsd;
mod status;
mod stderr;
mod upgrade;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Pid;
use signal_hook::consts::{
    SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use serde::{Deserialize, Serialize};

use config::Loaded;
use config::failure::{Failure, StartFault, plain};
use config::typed::{AdminConfig, Config};
use ipc::payload::Payload;
use ipc::pidfile::PidFile;
use ipc::{Identity, Role, SupervisorCommand};
use os::invariant;

use ipc::stats::CounterFile;
use telemetry::counters::StatsSnapshot;

use acme_client::AcmeClient;
use answers::PendingAnswers;
use certificates::Certificates;
use control::Control;
use control::place::Who;
use control::status::{AddressStatus, CertificateStatus};
use file_watcher::FileWatcher;
use fleet::Fleet;
use generation::Generation;
use helper_process::HelperProcess;
use plan::{GenerationPlan, PlanEvent, PlanState};
use process::{ChildProcess, ProcessState};
use recycling::Bounds;
use service_manager::Manager;
use sockets::Sockets;
use stacks::PendingStacks;
use stall::StallWatch;
use stderr::{say, talk};

pub use argv::Program;
pub use certificates::certificate_status;
pub use file_reader::{CertificateFiles, PreparedCredentials};
pub use metrics::families as metric_families;
pub use plan::Overrides;
pub use privileges::check_account;
pub use state_dir::in_state_dir;
pub use upgrade::{Handed, Succession, receive};

/// Time that a draining process has beyond its own deadline, before it is killed.
const GRACE: Duration = ipc::KILL_GRACE;
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
pub struct SupervisorEnvironment<'s> {
    /// How to start this program again.
    pub program: Program,
    /// The configuration file, as an absolute path.
    pub config_file: Option<std::path::PathBuf>,
    /// `XDG_RUNTIME_DIR`, where it is set.
    pub runtime_dir: Option<std::path::PathBuf>,
    /// Reads the configuration anew, without the files of certificates.
    pub reread: &'s dyn Fn(&Overrides) -> Result<Fresh, Vec<Failure>>,
    /// Understands texts that were read before.
    pub understand: &'s dyn Fn(&Payload) -> Result<Loaded, Vec<Failure>>,
    /// How the files of certificates are read; on a thread of its own once the server serves.
    pub certificate_files: CertificateFiles,
    /// Who seems to have issued a certificate that only stands in until the first one is there.
    pub placeholder_issuer: &'static str,
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
    pub listening: &'s [AddressStatus],
    /// Its certificates.
    pub certificates: &'s [CertificateStatus],
    /// "CPython 3.11.7 (GIL)"
    pub python: Option<String>,
    /// For each application the event loop that runs it, where that is ASGI: "uvloop"
    pub event_loops: Vec<Option<String>>,
}

/// What is counted from the first start on, through all upgrades.
#[derive(Clone, Serialize, Deserialize)]
struct Lifetime {
    started_at: SystemTime,
    /// What processes counted that are gone.
    gone: StatsSnapshot,
    labels: metrics::RouteLabels,
    generations_made: u64,
    /// Exchanges that were cut.
    cut: u64,
    crashes: u64,
    recycled: u64,
    /// Clients that the admin process has dropped.
    admin_dropped: u64,
}

type Signals = SignalDelivery<UnixStream, SignalOnly>;

struct Supervisor<'s> {
    around: SupervisorEnvironment<'s>,
    signals: Signals,
    control: Option<Control>,
    manager: Manager,
    /// Addresses that close with the processes that still have them.
    closing: Vec<u16>,
    sockets: Sockets,
    /// Who accepts from which socket.
    assignment: listener_assignment::ListenerAssignment,
    counters: CounterFile,
    /// The last requests; none where there was no memory for them.
    history: Option<history::History>,
    lifetime: Lifetime,
    plan: GenerationPlan,
    /// The generations that the plan names, by number.
    generations: BTreeMap<u64, Generation>,
    /// Of all generations, those that drain included.
    processes: Vec<ChildProcess>,
    /// Clients that wait for processes.
    answers: PendingAnswers,
    /// Clients that wait for the stack of a request.
    stacks: PendingStacks,
    file_watcher: Option<FileWatcher>,
    acme_client: AcmeClient,
    /// Answers what is asked about the server.
    admin: HelperProcess<AdminConfig>,
    /// For autoscalers.
    demand: demand::DemandMeter,
    stalls: StallWatch,
    statsd: statsd::Statsd,
    certificates: Certificates,
    health: health::Health,
    /// What went wrong last, and when.
    last_failure: Option<(Failure, Instant)>,
    exit_code: i32,
    pid_file: Option<PidFile>,
    /// Ends of processes that were seen before anybody knew of them.
    unknown_ends: HashMap<Pid, ExitStatus>,
}

/// Supervises until the stop; gives the exit code.
///
/// # Errors
/// What kept it from starting. Nothing is left behind then.
pub fn run(fresh: Fresh, around: SupervisorEnvironment<'_>) -> Result<i32, StartFault> {
    let mut supervisor = Supervisor::open(fresh, around)?;
    supervisor.live();
    Ok(supervisor.close())
}

/// Takes over from the program that this process was before the upgrade.
///
/// # Errors
/// What was handed over cannot be used.
pub fn succeed(state: Succession, around: SupervisorEnvironment<'_>) -> Result<i32, StartFault> {
    let mut supervisor = Supervisor::adopt(state, around)?;
    supervisor.live();
    Ok(supervisor.close())
}

impl<'s> Supervisor<'s> {
    /// Binds everything, gives up rights, and makes ready to start processes.
    fn open(fresh: Fresh, around: SupervisorEnvironment<'s>) -> Result<Self, StartFault> {
        let Loaded { config, mut notes } = fresh.loaded;
        if let Some(path) = &config.pid_file {
            PidFile::check(path)?;
        }
        // What refuses a start for a slip comes before anything is bound, made or given up.
        let identity = privileges::resolve(&config.processes.user, &config.processes.group)?;
        let (control, warnings) = open_control(&config, &around, identity.as_ref())?;
        notes.extend(warnings);
        let mut generation = Generation::new(1, config, notes, fresh.payload)
            .map_err(|error| StartFault::of_io("cannot keep the configuration", &error))?;
        // While this is still root: only root may be able to read the keys.
        let certificates = Certificates::open(&mut generation, &around)?;
        let config = generation.config.clone();
        // Before the first file is made: a signal from here on is an orderly end, which removes them.
        let signals = watch_signals()?;
        let sockets_len = config.processes.count * config.listen.drivers;
        let inherited = service_manager::inherited()?;
        let sockets = Sockets::open(&config, inherited, sockets_len, Instant::now())?;
        for name in sockets.spare_names() {
            generation.notes.push(format!(
                "the socket `{name}` of the service manager is not used"
            ));
        }
        // While this is still root: the folder of the file is often root's.
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
            .map_err(|error| StartFault::of_io("cannot make the file of counters", &error))?;
        // Processes that a template leaves behind become this one's, so that their ends are seen.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let start_time = commands::duration(config.processes.start_timeout) + GRACE;
        let history = history::opened(None);
        let mut supervisor = Self::new(around, signals, control, sockets, counters, history);
        supervisor.certificates = certificates;
        let plan = PlanState::Starting {
            next: generation.id,
        };
        supervisor.begin_with(plan, generation);
        supervisor.watch_certificates();
        supervisor.pid_file = pid_file;
        supervisor.find_manager();
        supervisor.tell_manager(|manager| manager.wait_for(start_time));
        supervisor.watch_code();
        Ok(supervisor)
    }

    /// Finds the service manager that started this program, if one did.
    fn find_manager(&mut self) {
        match Manager::find(|name| std::env::var_os(name), std::process::id()) {
            Ok(manager) => self.manager = manager,
            Err(error) => say(&format!(
                "NOTIFY_SOCKET: cannot notify the service manager: {}",
                plain(&error)
            )),
        }
    }

    /// Tells the service manager; one that does not listen is no reason to fail.
    fn tell_manager(&mut self, tell: impl FnOnce(&mut Manager) -> io::Result<()>) {
        if let Err(error) = tell(&mut self.manager) {
            say(&format!(
                "cannot notify the service manager: {}",
                plain(&error)
            ));
        }
    }

    fn new(
        around: SupervisorEnvironment<'s>,
        signals: Signals,
        control: Option<Control>,
        sockets: Sockets,
        counters: CounterFile,
        history: Option<history::History>,
    ) -> Self {
        Self {
            around,
            signals,
            control,
            manager: Manager::default(),
            closing: Vec::new(),
            sockets,
            assignment: listener_assignment::ListenerAssignment::new(),
            counters,
            history,
            lifetime: Lifetime {
                started_at: SystemTime::now(),
                gone: StatsSnapshot::default(),
                labels: metrics::RouteLabels::default(),
                generations_made: 0,
                cut: 0,
                crashes: 0,
                recycled: 0,
                admin_dropped: 0,
            },
            plan: GenerationPlan::default(),
            generations: BTreeMap::new(),
            processes: Vec::new(),
            // Above the numbers of the program before an upgrade: a process may confirm what that one asked for.
            answers: PendingAnswers::new(telemetry::now().0),
            stacks: PendingStacks::new(telemetry::now().0),
            file_watcher: None,
            acme_client: AcmeClient::default(),
            admin: HelperProcess::default(),
            demand: demand::DemandMeter::default(),
            stalls: StallWatch::default(),
            statsd: statsd::Statsd::default(),
            certificates: Certificates::default(),
            health: health::Health::default(),
            last_failure: None,
            exit_code: 0,
            pid_file: None,
            unknown_ends: HashMap::new(),
        }
    }

    fn begin_with(&mut self, state: PlanState, generation: Generation) {
        self.plan = GenerationPlan::from(state);
        let made = &mut self.lifetime.generations_made;
        // After an upgrade the number of the generation can be below those that were made: no number is given twice.
        *made = generation.id.max(*made);
        self.generations.insert(generation.id, generation);
    }

    fn live(&mut self) {
        while !self.is_over() {
            let now = Instant::now();
            self.reconcile(now);
            // The last process may have ended before it could be waited for.
            if self.is_over() {
                return;
            }
            self.wait(now);
            // Ends and events before commands: `status` names no process that has ended, and a command is carried out
            // by processes that are there.
            self.take_signals();
            self.take_events();
            self.take_acme_events();
            self.answer_admin();
            self.take_commands();
            self.take_changes();
            self.look_after_certificates(Instant::now());
            self.look_after_history(Instant::now());
            self.measure_demand(Instant::now());
        }
    }

    /// Everything that was asked for is done, or nothing is left to be done.
    fn is_over(&self) -> bool {
        self.plan.is_stopping()
            && self.processes.is_empty()
            && self.acme_client.process.is_gone()
            && self.admin.is_gone()
    }

    fn close(mut self) -> i32 {
        // Before the pid file: where that is gone, the next start may listen on the same addresses.
        self.sockets.end();
        if let Some(pid_file) = &self.pid_file
            && let Err(error) = pid_file.remove()
        {
            let path = pid_file.path().display();
            say(&format!(
                "the pid file `{path}` is empty from now on, and cannot be removed: {}",
                plain(&error)
            ));
        }
        drop(self.pid_file.take());
        // Files of sockets were removed when the stop began: other programs may use their names by now.
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
        if let Some(fd) = self.file_watcher.as_ref().and_then(FileWatcher::fd) {
            watched.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        watched.extend(self.acme_client.process.watched());
        watched.extend(self.admin.watched());
        if let Some(fd) = self.certificates.fd() {
            watched.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        for process in &self.processes {
            let Some(channel) = process.channel() else {
                continue;
            };
            let mut wanted = PollFlags::IN;
            // Only while something waits: a channel that takes more is writable all the time.
            wanted.set(PollFlags::OUT, process.is_behind());
            watched.push(PollFd::from_borrowed_fd(channel.as_fd(), wanted));
        }
        // Rounded up: waking before something is due would be waking twice.
        let timeout = Timespec::try_from(due + Duration::from_micros(100)).ok();
        let began = Instant::now();
        let polled = poll(&mut watched, timeout.as_ref());
        let woken = Instant::now();
        if let Some(text) = self.stalls.woke(due, woken.duration_since(began), woken) {
            say(&text);
        }
        match polled {
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
                SIGTERM | SIGINT => self.handle(PlanEvent::Stop(None)),
                SIGQUIT => self.handle(PlanEvent::Quit),
                SIGHUP => self.reload(Vec::new()),
                SIGUSR1 => self.reopen(),
                SIGUSR2 => self.handle(PlanEvent::Upgrade(None)),
                SIGTTIN => self.scale_by(1),
                SIGTTOU => self.scale_by(-1),
                _ => {}
            }
        }
        // Whatever the signals were: several ends make one SIGCHLD, and it may have come together with another signal.
        self.reap();
    }

    /// Makes what is out of what should be.
    fn reconcile(&mut self, now: Instant) {
        self.end_late_probe(now);
        // This ends: each action brings a process, the history of its slot, or the plan to another state, and none of
        // them leads back within one `now`.
        loop {
            let actions = self.fleet().next(now);
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.perform_on_processes(action, now);
            }
        }
        self.check_health(now);
        self.assign_listeners();
        self.keep_acme_client(now);
        self.keep_admin(now);
    }

    /// What there is, for the decision what is next.
    fn fleet(&self) -> Fleet<'_> {
        Fleet {
            plan: &self.plan,
            generations: self.generations.values().map(Generation::slots).collect(),
            processes: self.processes.iter().map(ChildProcess::facts).collect(),
        }
    }

    /// Starts a process; the template that is to fork it is ready.
    fn start(&mut self, id: u64, role: Role, slot: usize) {
        let Some(generation) = self.generation(id) else {
            return;
        };
        // A process beyond the count would be drained at once, and started again, for ever.
        invariant!(
            role == Role::Template || slot < generation.count(),
            "process {slot} is started of {}",
            generation.count()
        );
        let is_forked = role == Role::Serving && generation.has_template();
        let is_first = role == Role::Template || (slot == 0 && !is_forked);
        let reloads = is_first && self.plan.next() == Some(id) && self.plan.serving().is_some();

        let bounds = Bounds::new(&generation.config.processes.recycling, chance());
        let file = generation.file.try_clone();
        let shape = generation.shape.clone();
        let credentials = generation.credentials_file();
        let made = if is_forked {
            let Some(template) = self.template(id) else {
                return;
            };
            ChildProcess::fork(template, slot)
        } else {
            ChildProcess::exec(&self.around.program, role, id, slot)
        };
        let begun = made.and_then(|mut process| {
            process.bounds = bounds;
            let mut fds = vec![file?];
            let mut history = None;
            if role == Role::Serving {
                let segment = self.counters.allot(&shape)?;
                process.segment = Some(segment);
                process.view = Some(self.counters.view(&segment)?);
                // The process maps its segment by this descriptor; the segment is allotted before, so that it is there
                // when the process looks.
                fds.push(self.counters.file().try_clone_to_owned()?);
                history = self.history_names(&shape);
                if history.is_some()
                    && let Some(history) = &self.history
                {
                    fds.push(history.file.file().try_clone_to_owned()?);
                }
                fds.extend(credentials?);
            }
            let identity = Identity {
                role,
                generation: id,
                slot,
                segment: process.segment,
                history,
                reloads,
            };
            process.tell(SupervisorCommand::Begin(identity), fds);
            self.hand_challenges_to(&mut process);
            self.show_certificates_to(&mut process);
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

    fn note_failure(&mut self, failure: Failure) {
        self.last_failure = Some((failure, Instant::now()));
    }

    fn last_failure(&self) -> Option<Failure> {
        self.last_failure
            .as_ref()
            .map(|(failure, _)| failure.clone())
    }

    /// The generation that serves.
    fn serving(&self) -> Option<&Generation> {
        self.generations.get(&self.plan.serving()?)
    }

    /// The generation that is to serve.
    fn next_generation(&self) -> Option<&Generation> {
        self.generations.get(&self.plan.next()?)
    }

    fn generation(&self, id: u64) -> Option<&Generation> {
        self.generations.get(&id)
    }

    fn template(&mut self, id: u64) -> Option<&mut ChildProcess> {
        self.processes.iter_mut().find(|process| {
            process.generation == id
                && process.role == Role::Template
                && process.state == ProcessState::Ready
        })
    }

    /// Serving processes in one place, those that drain included.
    fn at(&self, id: u64, slot: usize) -> impl Iterator<Item = &ChildProcess> {
        self.processes.iter().filter(move |process| {
            process.role == Role::Serving && process.generation == id && process.slot == slot
        })
    }
}

/// Gives up the rights of root, with everything that was made by them given to the user who goes on.
fn become_user(
    identity: &privileges::UserIdentity,
    sockets: &Sockets,
    control: Option<&Control>,
) -> Result<(), StartFault> {
    // First, because nothing can be given away once the rights of root are gone.
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
    around: &SupervisorEnvironment<'_>,
    identity: Option<&privileges::UserIdentity>,
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

fn watch_signals() -> Result<Signals, StartFault> {
    let all = [
        SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGTTIN, SIGTTOU,
    ];
    let pair = UnixStream::pair();
    pair.and_then(|(read, write)| SignalDelivery::with_pipe(read, write, SignalOnly, all))
        .map_err(|error| StartFault::of_io("cannot watch for signals", &error))
}

/// A number from 0 to 1, another one each time.
fn chance() -> f64 {
    let number = RandomState::new().hash_one(());
    (number >> 11) as f64 / (1_u64 << 53) as f64
}
