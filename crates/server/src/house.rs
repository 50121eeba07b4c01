//! The corridor of the process: opens everything in order, runs it, and closes it in order.
//!
//! Opening binds nothing until all folders are open and starts no thread until all addresses are bound,
//! so that a fault leaves nothing behind. Closing follows the way of a request: accepting, receiving,
//! running, delivering, logging.

mod lead;
mod lookout;
mod orders;
mod watchman;

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use measure::Names;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use tokio::sync::{Notify, watch};

use stage::Drivers;

use crate::blocking_pool::BlockingPool;
use crate::channel::{EarKey, EarOrder};
use crate::clients::Clients;
use crate::config::meant::{Config, LogTarget};
use crate::driver::{self, Mood, Shared};
use crate::exchange::Ids;
use crate::fault::{StartFault, plain};
use crate::fork;
use crate::handler::Handler;
use crate::handler::files::{Files, FolderFault};
use crate::listen::{self, Address};
use crate::log::{self, Log};
use crate::pages::Pages;
use crate::pidfile::PidFile;
use crate::pool::{self, Pool, Surroundings};
use crate::rates::Rates;
use crate::request_start::RequestStarts;
use crate::response::ReplyMemory;
use crate::service::Service;
use crate::slow::Slow;
use crate::spool::Spoolers;
use crate::stats::{Shape, Stats};
use crate::watch::Watch;

use lookout::Lookout;
use watchman::Watchman;

pub use lead::Lead;
pub use orders::{Closing, Drain, Idle, Orders};

/// After the drain deadline (or a second signal), how long threads get to log what they cut.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// An open house: it listens, and nobody is served yet.
pub struct House {
    shared: Arc<Shared>,
    addresses: Vec<Address>,
    files: Vec<Files>,
    handler: Option<Arc<dyn Handler>>,
    log: Arc<Log>,
    log_threads: log::Threads,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    signals: signal_hook::iterator::Handle,
    pid_file: Option<PidFile>,
    lead: Option<Lead>,
}

/// One address that is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// `http://127.0.0.1:8000` or `unix:/run/app.sock`.
    pub url: String,
    /// Length of the accept queue after the kernel's own bound; `u32::MAX` where another program has set it.
    pub backlog_effective: u32,
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exchanges that were cut by the drain deadline or a second signal.
    pub cut: u64,
    /// Exchanges that ended in the log.
    pub exchanges: u64,
    /// What is left of the drain time for whatever else the process has to end.
    pub time_left: Duration,
    /// Pool threads are still in application code: the process cannot be left in an orderly way.
    pub stuck_threads: usize,
    /// For the shell: 0 for an orderly stop, 1 after a second signal, 2 when a driver failed.
    pub exit_code: i32,
}

/// Stops a house as SIGTERM does; a second call as a second signal does.
#[derive(Clone)]
pub struct Stopper(mpsc::Sender<Event>);

impl Stopper {
    /// Begins to drain, or cuts what is still draining.
    pub fn stop(&self) {
        // A house that has ended needs no stopping.
        let _ = self.0.send(Event::Signal);
    }
}

enum Event {
    Signal,
    /// SIGTERM, in a process of a supervisor.
    Resign,
    Drain(Drain),
    Cut,
    Reopen,
    DriverEnded(io::Result<u64>),
    /// A thread of a pool is gone, however it went.
    PoolThreadEnded,
}

impl House {
    /// Opens folders, addresses and the log, and writes the pid file.
    pub fn open(config: Config, handler: Option<Arc<dyn Handler>>) -> Result<House, StartFault> {
        let house = Self::open_with(config, handler, listen::open, None)?;
        // No other process has its sockets.
        let _ = house.shared.closing.set(Closing::All);
        Ok(house)
    }

    /// As `open`, but opens no addresses: sockets come by `Orders`.
    pub fn open_without_sockets(
        config: Config,
        handler: Option<Arc<dyn Handler>>,
    ) -> Result<House, StartFault> {
        Self::open_with(config, handler, |_| Ok(Vec::new()), None)
    }

    /// As a process of a supervisor, which gives it sockets and orders.
    pub fn open_under(
        config: Config,
        handler: Option<Arc<dyn Handler>>,
        lead: Lead,
    ) -> Result<House, StartFault> {
        // It names the supervisor.
        let config = Config {
            pid_file: None,
            ..config
        };
        Self::open_with(config, handler, |_| Ok(Vec::new()), Some(lead))
    }

    fn open_with(
        config: Config,
        handler: Option<Arc<dyn Handler>>,
        open: impl FnOnce(&Config) -> Result<Vec<Address>, StartFault>,
        lead: Option<Lead>,
    ) -> Result<House, StartFault> {
        if let Some(path) = &config.pid_file {
            PidFile::check(path)?;
        }
        fork::guard().map_err(|error| start_fault("cannot guard against forks", &error))?;
        let config = Arc::new(config);
        let mut files = Vec::new();
        for _ in 0..config.listen.drivers {
            files.push(Files::open(&config).map_err(|fault| folder_fault(&fault))?);
        }
        let names = config.route_names();
        let pages = Arc::new(Pages::open(&config.error_pages)?);
        let rates = Rates::new(&config.rates, &names);
        let stats = Arc::new(counters(&config, handler.is_some(), lead.as_ref())?);
        let addresses = open(&config)?;
        let ids = Ids::new(&config.request_ids);
        let (log, log_threads) = Log::open(&config.logs, &log_names(&config, names, &ids))
            .map_err(|fault| log_fault(&fault))
            .inspect_err(|_| listen::remove_files(&listen::unix_paths(&addresses)))?;
        let crews = Crews::start(&config)
            .map_err(|error| start_fault("cannot start a thread", &error))
            .inspect_err(|_| listen::remove_files(&listen::unix_paths(&addresses)))?;
        let memory = ReplyMemory::new(
            config.delivery.replies_memory_bytes_max,
            &config.spool,
            crews.spoolers.pool.clone(),
        );
        let slow = Slow::new(&config).map(Arc::new);
        let watch = Watch::new(&config).filter(|_| handler.is_some());
        let pools = match handler {
            Some(_) => Pool::all(&Surroundings {
                config: Arc::clone(&config),
                log: Arc::clone(&log),
                stats: Arc::clone(&stats),
                memory: Arc::clone(&memory),
                pages: Arc::clone(&pages),
                slow: slow.clone(),
                watch: watch.clone(),
            }),
            None => Vec::new(),
        };
        let shared = Arc::new(Shared {
            service: Service::new(&config, !pools.is_empty(), slow),
            pools,
            watch,
            stats,
            log: Arc::clone(&log),
            pages,
            rates,
            ids,
            request_starts: RequestStarts::new(&config.request_start_from),
            clients: Clients::new(
                config.listen.client_connections_max,
                config.listen.client_prefix_v4,
                config.listen.client_prefix_v6,
            ),
            replies_memory: memory,
            spoolers: crews.spoolers,
            openers: crews.openers,
            writers: crews.writers,
            connections: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            slot: lead.as_ref().map_or(0, |lead| lead.identity.slot),
            drivers: Drivers {
                len: config.listen.drivers,
                processors: processors(&config),
            },
            mood: watch::Sender::new(Mood::Serving),
            room: Notify::new(),
            mailboxes: Shared::mailboxes(config.listen.drivers),
            shared_acceptor: OnceLock::new(),
            closing: OnceLock::new(),
            config,
        });
        let (events, inbox) = mpsc::channel();
        // Before anybody is told that this house is open: a signal from then on is to be an orderly stop.
        let signals = watch_signals(events.clone(), lead.as_ref())
            .map_err(|error| start_fault("cannot watch for signals", &error))
            .inspect_err(|_| listen::remove_files(&listen::unix_paths(&addresses)))?;
        // Last: whoever reads it may send signals.
        let pid_file = shared.config.pid_file.as_deref();
        let pid_file = pid_file
            .map(PidFile::write)
            .transpose()
            .inspect_err(|_| listen::remove_files(&listen::unix_paths(&addresses)))?;
        Ok(House {
            pid_file,
            signals,
            events,
            inbox,
            shared,
            addresses,
            files,
            handler,
            log,
            log_threads,
            lead,
        })
    }

    /// What is listened on.
    pub fn listening(&self) -> Vec<Listening> {
        let one = |address: &Address| Listening {
            url: address.url.clone(),
            backlog_effective: address.backlog_effective,
        };
        self.addresses.iter().map(one).collect()
    }

    /// A way to stop it from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.events.clone())
    }

    /// A way to tell it of sockets, and of its end.
    pub fn orders(&self) -> Orders {
        Orders::new(&self.shared, self.events.clone())
    }

    /// Serves until SIGTERM or SIGINT, then drains. Blocks the calling thread.
    pub fn run(self) -> Result<Ended, StartFault> {
        let events = self.events.clone();
        let orders = self.orders();
        self.start_pools(&events)
            .map_err(|error| start_fault("cannot start a pool thread", &error))?;
        let House {
            shared,
            addresses,
            files,
            log,
            log_threads,
            inbox,
            signals,
            pid_file,
            lead,
            handler,
            ..
        } = self;
        let _lookout = match (&shared.watch, handler) {
            (Some(watch), Some(handler)) => {
                let channel = lead.as_ref().map(|lead| Arc::clone(&lead.channel));
                let lookout = Lookout::new(watch, &shared, &handler, channel).start();
                Some(lookout.map_err(|error| start_fault("cannot start a thread", &error))?)
            }
            _ => None,
        };
        let unix_paths = listen::unix_paths(&addresses);
        let drivers = start_drivers(&shared, addresses, files, &events)
            .map_err(|error| start_fault("cannot start a driver", &error))?;
        let is_led = lead.is_some();
        let supervisor = lead.as_ref().map(|lead| Arc::clone(&lead.channel));
        if let Some(lead) = lead {
            lead.follow(orders, events.clone())
                .map_err(|error| start_fault("cannot follow the supervisor", &error))?;
        }
        let mut watchman = Watchman {
            inbox,
            shared: Arc::clone(&shared),
            supervisor,
            drivers,
            cut: 0,
            exit_code: 0,
            deadline: None,
            patience: None,
        };
        watchman.serve();
        watchman.close_pools();
        listen::remove_files(&unix_paths);
        let mut ended = watchman.ended();
        // A signal must not kill the process with lines in its memory; it shortens what they may take.
        log.end(&log_threads, || {
            let is_hurried = watchman.heard_signal();
            ended.exit_code = ended.exit_code.max(i32::from(is_hurried));
            is_hurried
        });
        signals.close();
        // Whatever is left of the process, such as an interpreter, can still be ended.
        crate::sys::restore_signals();
        drop(pid_file);
        if !is_led {
            say(&format!(
                "stopped: {} exchanges, {} cut",
                ended.exchanges, ended.cut
            ));
        }
        Ok(ended)
    }

    fn start_pools(&self, events: &mpsc::Sender<Event>) -> io::Result<()> {
        let Some(handler) = &self.handler else {
            return Ok(());
        };
        let events = events.clone();
        // Nobody listens any more when the process is about to end anyway.
        let farewell = Arc::new(move || drop(events.send(Event::PoolThreadEnded)));
        for pool in &self.shared.pools {
            pool.start(handler, Arc::clone(&farewell) as Arc<_>)?;
        }
        pool::start_controller(&self.shared.pools)
    }
}

/// Threads that do for drivers what may wait for a disk.
struct Crews {
    spoolers: Spoolers,
    openers: BlockingPool,
    writers: BlockingPool,
}

impl Crews {
    fn start(config: &Config) -> io::Result<Self> {
        Ok(Self {
            spoolers: Spoolers::start(config.spool.spoolers, &config.spool.dir)?,
            openers: BlockingPool::start("mp-open", config.file_serving.openers)?,
            writers: BlockingPool::start("mp-write", config.file_serving.writers)?,
        })
    }
}

/// The counters: in memory that the supervisor reads, or of this process alone.
fn counters(config: &Config, has_pool: bool, lead: Option<&Lead>) -> Result<Stats, StartFault> {
    let shape = shape(config, has_pool);
    match lead {
        Some(lead) => lead.stats(&shape),
        None => Stats::new(&shape).map_err(|error| start_fault("cannot keep counters", &error)),
    }
}

/// How the counters of a process with this configuration are laid out.
pub(crate) fn shape(config: &Config, has_pool: bool) -> Shape {
    Shape {
        drivers: config.listen.drivers,
        routes: config.route_names(),
        pools: match has_pool {
            true => Pool::names(config),
            false => Vec::new(),
        },
    }
}

/// Signals that a house may handle.
const HANDLED: [i32; 8] = [
    SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGQUIT, SIGUSR2, SIGTTIN, SIGTTOU,
];

/// Under a supervisor, signals that a terminal sends to all its processes are the supervisor's business.
fn watch_signals(
    events: mpsc::Sender<Event>,
    lead: Option<&Lead>,
) -> io::Result<signal_hook::iterator::Handle> {
    let keep = fork::keep_handlers(&HANDLED);
    let for_all = [SIGINT, SIGHUP, SIGQUIT, SIGUSR2, SIGTTIN, SIGTTOU];
    let is_led = lead.is_some();
    let mut signals = match is_led {
        true => Signals::new([SIGTERM, SIGUSR1].into_iter().chain(for_all))?,
        false => Signals::new([SIGTERM, SIGINT, SIGUSR1])?,
    };
    keep();
    let handle = signals.handle();
    let watch = move || {
        for signal in signals.forever() {
            let event = match signal {
                SIGUSR1 => Event::Reopen,
                SIGTERM if is_led => Event::Resign,
                SIGTERM => Event::Signal,
                SIGINT if !is_led => Event::Signal,
                _ => continue,
            };
            if events.send(event).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("mp-signals".to_owned())
        .spawn(watch)?;
    Ok(handle)
}

fn start_drivers(
    shared: &Arc<Shared>,
    addresses: Vec<Address>,
    files: Vec<Files>,
    events: &mpsc::Sender<Event>,
) -> io::Result<usize> {
    let drivers = files.len();
    let sockets = addresses.iter().flat_map(|address| &address.sockets);
    sockets.for_each(fork::keep_from_children);
    for (order, socket) in ears(addresses, drivers) {
        driver::hear(shared, order, socket)?;
    }
    for (index, files) in files.into_iter().enumerate() {
        let (shared, events) = (Arc::clone(shared), events.clone());
        let drive = move || {
            pin(index, shared.slot, &shared.config);
            let run = || driver::run(index, &shared, files);
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            let ended = ended.unwrap_or_else(|_| Err(io::Error::other("panic")));
            // The main thread only stops listening at the very end.
            let _ = events.send(Event::DriverEnded(ended));
        };
        thread::Builder::new()
            .name(format!("mp-driver-{index}"))
            .spawn(drive)?;
    }
    Ok(drivers)
}

/// All sockets with what is to be known of them: each driver's own, and those that all share.
fn ears(addresses: Vec<Address>, drivers: usize) -> Vec<(EarOrder, OwnedFd)> {
    let mut ears = Vec::new();
    for (address, number) in addresses.into_iter().zip(0_u16..) {
        let is_shared = drivers > 1 && address.sockets.len() == 1;
        for (socket, index) in address.sockets.into_iter().zip(0_u16..) {
            let key = EarKey {
                address: number,
                index,
                driver: index,
            };
            let order = EarOrder {
                key,
                at: address.at.clone(),
                is_shared,
                takes_turns: false,
                is_inherited: false,
            };
            ears.push((order, socket));
        }
    }
    ears
}

/// Drivers that are pinned have been given theirs; others share what there is with the other processes.
fn processors(config: &Config) -> usize {
    if !config.listen.driver_cpus.is_empty() {
        return config.listen.drivers;
    }
    let all = thread::available_parallelism().map_or(1, usize::from);
    (all / config.processes.count.max(1)).max(1)
}

/// Drivers of all processes take the processors by turns.
fn pin(index: usize, slot: usize, config: &Config) {
    let cpus = &config.listen.driver_cpus;
    let number = slot * config.listen.drivers + index;
    let Some(cpu) = cpus.get(number % cpus.len().max(1)) else {
        return;
    };
    let mut set = rustix::thread::CpuSet::new();
    set.set(*cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        say(&format!(
            "cannot pin driver {index} to processor {cpu}: {}",
            plain(&error.into())
        ));
    }
}

/// Tells whoever started the command; that nobody reads it any more is no reason to fail.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "milepost: {text}");
}

fn start_fault(what: &str, error: &io::Error) -> StartFault {
    StartFault {
        what: what.to_owned(),
        cause: plain(error),
        hint: None,
    }
}

/// What this process is called in logs: its pid. Slots are no names: during a reload two processes have the same.
pub(crate) fn process_name() -> String {
    std::process::id().to_string()
}

/// The names behind the numbers of records.
fn log_names(config: &Config, routes: Vec<String>, ids: &Ids) -> Names {
    Names {
        routes,
        pools: Pool::names(config),
        process: process_name(),
        id_seed: ids.seed(),
    }
}

fn log_fault(fault: &log::OpenFault) -> StartFault {
    let hint = match fault.target {
        Some(LogTarget::File(_)) => {
            "it must be a file that this user may append to, in a folder that exists"
        }
        Some(LogTarget::Syslog(_) | LogTarget::Journald) => "is its daemon running here?",
        Some(LogTarget::Stdout | LogTarget::Stderr) | None => "",
    };
    StartFault {
        what: format!("cannot open the {}", fault.name),
        cause: plain(&fault.cause),
        hint: (!hint.is_empty()).then(|| hint.to_owned()),
    }
}

fn folder_fault(fault: &FolderFault) -> StartFault {
    let url = if fault.url.is_empty() {
        "/"
    } else {
        &fault.url
    };
    StartFault {
        what: format!("cannot serve `{url}` from `{}`", fault.dir.display()),
        cause: plain(&fault.cause),
        hint: Some("it must be a folder that this user may read and search".to_owned()),
    }
}
