//! The serving process as a whole: opens its parts in order, runs them, and closes them in order.
//!
//! Opening starts no thread before all folders are open, so that a fault leaves nothing behind. Closing follows the way of a request: accepting, receiving,
//! running, sending, logging.

mod certificates;
mod handle;
mod lifecycle;
mod opening;
mod stack_report;
mod supervised;
mod watchdog_thread;

use std::io::{self, Write};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use files::Files;
use logging::{Log, LogThreads};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use telemetry::Names;

use crate::driver::{self, Shared};
use crate::exchange::Ids;
use crate::fork;
use crate::guards::Guards;
use crate::handler::Handler;
use crate::pages::Pages;
use crate::pool::{self, LoopWorker, Pool, RunnableLoop};
use crate::traces::SpanThread;
use config::failure::StartFault;
use config::failure::plain;
use config::typed::Config;
use ipc::stats::{Shape, SharedRates, SharedSlots, Stats};

use lifecycle::Lifecycle;
use opening::OpenedParts;
use stack_report::StackReporter;
use watchdog_thread::{RunningEnforcer, TimeoutEnforcer};

pub use handle::{Closing, Drain, Idle, ServerHandle};
pub use supervised::SupervisorLink;

/// After the drain deadline (or a second signal), how long threads get to log what they cut.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// An open server, which serves no client yet: sockets come through its [`ServerHandle`], or from its supervisor.
pub struct Server {
    shared: Arc<Shared>,
    files: Vec<Files>,
    /// By the index of the application.
    handlers: Vec<Arc<dyn Handler>>,
    log: Arc<Log>,
    log_threads: LogThreads,
    traces: Option<SpanThread>,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    signals: signal_hook::iterator::Handle,
    link: Option<SupervisorLink>,
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exchanges that were cut by the drain deadline or a second signal.
    pub cut: u64,
    /// Exchanges that ended in the log.
    pub exchanges: u64,
    /// What is left of the drain time for the other parts of the process, such as an interpreter.
    pub time_left: Duration,
    /// Pool threads are still in application code: the process cannot be left in an orderly way.
    pub stuck_threads: usize,
    /// For the shell: 0 for an orderly stop, 1 after a second signal, 2 when a driver failed.
    pub exit_code: i32,
}

enum Event {
    /// SIGTERM.
    Resign,
    Drain(Drain),
    Cut,
    Reopen,
    DriverEnded(io::Result<u64>),
    /// A thread of a pool has ended, in order or by a panic.
    PoolThreadEnded,
    /// The event loop cannot run any more, and has said why.
    LoopFailed,
}

impl Server {
    /// Opens folders and the log, without a supervisor. There is a handler for each application.
    ///
    /// # Errors
    /// What cannot be opened.
    pub fn open(config: Config, handlers: Vec<Arc<dyn Handler>>) -> Result<Server, StartFault> {
        Self::open_with(config, handlers, None)
    }

    /// As a process of a supervisor, which sends it sockets and commands.
    pub fn open_under(
        config: Config,
        handlers: Vec<Arc<dyn Handler>>,
        link: SupervisorLink,
    ) -> Result<Server, StartFault> {
        Self::open_with(config, handlers, Some(link))
    }

    fn open_with(
        config: Config,
        handlers: Vec<Arc<dyn Handler>>,
        mut link: Option<SupervisorLink>,
    ) -> Result<Server, StartFault> {
        assert_eq!(
            handlers.len(),
            config.apps.len(),
            "an application without a handler"
        );
        fork::guard().map_err(|error| start_fault("cannot guard against forks", &error))?;
        let config = Arc::new(config);
        let mut files = Vec::new();
        for _ in 0..config.listen.drivers {
            files.push(Files::open(&config)?);
        }
        // Closed once it is read: it holds keys.
        let handed = link.as_mut().and_then(|link| link.credentials.take());
        let opened = OpenedParts {
            files,
            pages: Arc::new(Pages::open(&config.error_pages)?),
            tls: certificates::open(&config, handed.as_ref())?,
            guards: Arc::new(Guards::open(&config, rates(link.as_ref())?)?),
            stats: Arc::new(counters(&config, link.as_ref())?),
            slots: Arc::new(slots(link.as_ref())?),
            config,
        };
        opened.start(handlers, link)
    }

    /// Adds and removes sockets, and ends the server, from any thread.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle::new(&self.shared, self.events.clone())
    }

    /// The event loop of the applications that have one: to be run on the main thread, while `run` is called on
    /// another one once they are ready.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn take_event_loop(&mut self) -> Result<Option<RunnableLoop>, StartFault> {
        let mut handlers = self.handlers.iter();
        let with_loop = handlers.find_map(|handler| Some((handler, handler.event_loop()?)));
        let Some((handler, event_loop)) = with_loop else {
            return Ok(None);
        };
        let [events, failures] = [(); 2].map(|()| self.events.clone());
        let pools = self.shared.pools.iter();
        let has_loop = |app: usize| self.handlers[app].event_loop().is_some();
        let pools = pools.filter(|pool| pool.app().is_some_and(has_loop));
        let worker = LoopWorker::new(
            pools,
            event_loop.concurrency(),
            self.shared.openers.clone(),
            Box::new(move || drop(events.send(Event::PoolThreadEnded))),
            Box::new(move || drop(failures.send(Event::LoopFailed))),
        );
        let worker =
            worker.map_err(|error| start_fault("cannot make an event descriptor", &error))?;
        let handler = Arc::clone(handler);
        Ok(Some(RunnableLoop { handler, worker }))
    }

    /// Serves until SIGTERM or a command, then drains. Blocks the calling thread.
    pub fn run(self) -> Result<Ended, StartFault> {
        let events = self.events.clone();
        let handle = self.handle();
        self.start_pools(&events)
            .map_err(|error| start_fault("cannot start a pool thread", &error))?;
        let Server {
            shared,
            files,
            log,
            log_threads,
            traces,
            inbox,
            signals,
            link,
            handlers,
            ..
        } = self;
        let stacks = link
            .as_ref()
            .map(|link| StackReporter::new(&shared, &handlers, &link.channel));
        // Ends when this function returns.
        let _watchdog_thread = start_watchdog(&shared, handlers, link.as_ref())?;
        let drivers = start_drivers(&shared, files, &events)
            .map_err(|error| start_fault("cannot start a driver", &error))?;
        let supervisor = link.as_ref().map(|link| Arc::clone(&link.channel));
        if let Some((link, stacks)) = link.zip(stacks) {
            link.follow(handle, events.clone(), stacks)
                .map_err(|error| start_fault("cannot follow the supervisor", &error))?;
        }
        let mut lifecycle = Lifecycle {
            inbox,
            shared: Arc::clone(&shared),
            supervisor,
            drivers,
            cut: 0,
            exit_code: 0,
            deadline: None,
            idle_deadline: None,
            kill_deadline: None,
        };
        lifecycle.serve();
        lifecycle.close_pools();
        let mut ended = lifecycle.ended();
        // Before the log ends: what is wrong with a collector is said there.
        if let Some(traces) = traces {
            traces.end();
        }
        // Neither a signal nor the supervisor must kill the process with lines in its memory: both shorten the time that
        // they may take.
        log.end(&log_threads, || {
            let is_hurried = lifecycle.heard_signal();
            ended.exit_code = ended.exit_code.max(i32::from(is_hurried));
            is_hurried || lifecycle.must_end_log()
        });
        signals.close();
        // A signal can still end the rest of the process, such as an interpreter.
        os::restore_signals();
        Ok(ended)
    }

    fn start_pools(&self, events: &mpsc::Sender<Event>) -> io::Result<()> {
        let events = events.clone();
        // The receiver is gone when the process is about to end.
        let on_exit = Arc::new(move || drop(events.send(Event::PoolThreadEnded)));
        for pool in &self.shared.pools {
            match (
                pool.app().map(|app| self.handlers.get(app)),
                pool.upstream(),
            ) {
                (Some(Some(handler)), _) => pool.start(handler, Arc::clone(&on_exit) as Arc<_>)?,
                (None, Some(_)) => pool.open_upstream(),
                // Without an application there is no handler for the first pool, which then has no requests.
                _ => {}
            }
        }
        pool::start_controller(&self.shared.pools)
    }
}

/// The thread that acts on the time limits of requests, where there are any.
fn start_watchdog(
    shared: &Arc<Shared>,
    handlers: Vec<Arc<dyn Handler>>,
    link: Option<&SupervisorLink>,
) -> Result<Option<RunningEnforcer>, StartFault> {
    let Some(watchdog) = &shared.watchdog else {
        return Ok(None);
    };
    let channel = link.map(|link| Arc::clone(&link.channel));
    let enforcer = TimeoutEnforcer::new(watchdog, shared, handlers, channel).start();
    enforcer
        .map(Some)
        .map_err(|error| start_fault("cannot start a thread", &error))
}

/// The counters: in memory that the supervisor reads, or of this process alone.
fn counters(config: &Config, link: Option<&SupervisorLink>) -> Result<Stats, StartFault> {
    let shape = Shape::of(config);
    match link {
        Some(link) => {
            let mut stats = link.stats(&shape)?;
            stats.history = link.history();
            Ok(stats)
        }
        None => Stats::new(&shape).map_err(|error| start_fault("cannot keep counters", &error)),
    }
}

/// The slots of upstream servers: those of all processes, or of this one alone.
fn slots(link: Option<&SupervisorLink>) -> Result<SharedSlots, StartFault> {
    let slots = link.map_or_else(SharedSlots::private, SupervisorLink::slots);
    slots.map_err(|error| start_fault("cannot share counters", &error))
}

/// When clients may ask again: for all processes, or this one alone.
fn rates(link: Option<&SupervisorLink>) -> Result<SharedRates, StartFault> {
    let rates = link.map_or_else(SharedRates::private, SupervisorLink::rates);
    rates.map_err(|error| start_fault("cannot share counters", &error))
}

/// Signals that a server may handle.
const HANDLED: [i32; 8] = [
    SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGQUIT, SIGUSR2, SIGTTIN, SIGTTOU,
];

/// Signals that a terminal sends to all processes of a server are the supervisor's business: they are ignored here.
fn watch_signals(events: mpsc::Sender<Event>) -> io::Result<signal_hook::iterator::Handle> {
    let keep = fork::keep_handlers(&HANDLED);
    let mut signals = Signals::new(HANDLED)?;
    keep();
    let handle = signals.handle();
    let watch = move || {
        for signal in signals.forever() {
            let event = match signal {
                SIGUSR1 => Event::Reopen,
                SIGTERM => Event::Resign,
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
    files: Vec<Files>,
    events: &mpsc::Sender<Event>,
) -> io::Result<usize> {
    let drivers = files.len();
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

/// Processors of this process: one for each driver that is pinned, else an equal share of all.
fn processors(config: &Config) -> usize {
    if !config.listen.driver_cpus.is_empty() {
        return config.listen.drivers;
    }
    let all = thread::available_parallelism().map_or(1, usize::from);
    (all / config.processes.count.max(1)).max(1)
}

/// Pins a driver; the drivers of all processes take the configured processors in rotation.
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

/// Writes a line to stderr; a closed stderr is no reason to fail.
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

/// The names behind the numbers of records.
fn log_names(config: &Config, routes: Vec<String>, ids: &Ids) -> Names {
    Names {
        routes,
        pools: Pool::names(config),
        upstreams: crate::upstream::server_names(config),
        process: std::process::id(),
        id_seed: ids.seed(),
    }
}
