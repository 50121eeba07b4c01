//! Opening a server: from open folders, pages and counters to a server that can accept.
//!
//! Builds what all drivers share and starts the threads that write logs and wait for disks; drivers and pools start
//! later, with `Server::run`.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use files::Files;
use logging::{Level, Log, LogCounters};
use queueing::Drivers;
use tokio::sync::{Notify, watch};

use super::{Server, SupervisorLink, log_names, processors, start_fault, watch_signals};
use crate::bandwidth::Bandwidth;
use crate::blocking_pool::BlockingPool;
use crate::challenges::ChallengeAnswers;
use crate::client_limit::ClientLimit;
use crate::driver::{Mailbox, ServingState, Shared};
use crate::exchange::Ids;
use crate::field_template::RouteChanges;
use crate::guards::Guards;
use crate::handler::Handler;
use crate::load_report::ServerLoad;
use crate::pages::Pages;
use crate::pool::{Pool, PoolContext, PoolKind};
use crate::proxies::Proxies;
use crate::response::ReplyMemory;
use crate::service::Service;
use crate::slow::Slow;
use crate::spool::{SpoolDir, Spoolers};
use crate::traces::{self, SpanThread};
use crate::upstream::{UpstreamGroup, start_resolvers};
use crate::watchdog::Watchdog;
use ::tls::CurrentTls;
use config::failure::StartFault;
use config::typed::{Config, PoolRuns};
use ipc::stats::{SharedSlots, Stats};

/// What is open before the first thread starts.
pub(super) struct OpenedParts {
    pub(super) config: Arc<Config>,
    pub(super) files: Vec<Files>,
    pub(super) pages: Arc<Pages>,
    pub(super) stats: Arc<Stats>,
    pub(super) slots: Arc<SharedSlots>,
    pub(super) tls: Option<Arc<CurrentTls>>,
    pub(super) guards: Arc<Guards>,
}

impl OpenedParts {
    /// Starts the threads that write logs and wait for disks, and watches for signals.
    pub(super) fn start(
        self,
        handlers: Vec<Arc<dyn Handler>>,
        link: Option<SupervisorLink>,
    ) -> Result<Server, StartFault> {
        let config = &self.config;
        let ids = Ids::new(&config.request_ids, &config.traces);
        let names = log_names(config, config.route_names(), &ids);
        let (log, log_threads) = Log::open(&config.logs, &names, log_counters(&self.stats))?;
        let traces = traces::start(config, names, &log, &self.stats)?;
        let blocking = BlockingPools::start(config, self.spool_dir())
            .map_err(|error| start_fault("cannot start a thread", &error))?;
        let slot = link.as_ref().map_or(0, |link| link.identity.slot);
        let shared = self.share(&handlers, &log, traces.as_ref(), blocking, ids, slot)?;
        let (events, inbox) = mpsc::channel();
        // Before the supervisor learns that this server is open: from then on a signal is
        // an orderly stop.
        let signals = watch_signals(events.clone())
            .map_err(|error| start_fault("cannot watch for signals", &error))?;
        Ok(Server {
            signals,
            events,
            inbox,
            shared: Arc::new(shared),
            files: self.files,
            handlers,
            log,
            log_threads,
            traces,
            link,
        })
    }

    fn spool_dir(&self) -> SpoolDir {
        SpoolDir::new(&self.config.spool.dir, self.stats.spool)
    }

    /// What all drivers share; `slot` is the process's place among those of its generation.
    fn share(
        &self,
        handlers: &[Arc<dyn Handler>],
        log: &Arc<Log>,
        traces: Option<&SpanThread>,
        blocking: BlockingPools,
        ids: Ids,
        slot: usize,
    ) -> Result<Shared, StartFault> {
        let config = &self.config;
        let listen = &config.listen;
        let memory = ReplyMemory::new(
            config.delivery.replies_memory_bytes_max,
            self.spool_dir(),
            blocking.spoolers.pool.clone(),
        );
        let slow = Slow::new(config).map(Arc::new);
        let watchdog = Watchdog::new(config).filter(|_| !handlers.is_empty());
        let load = ServerLoad::new(config, &self.stats);
        let context = PoolContext {
            config: Arc::clone(config),
            log: Arc::clone(log),
            stats: Arc::clone(&self.stats),
            memory: Arc::clone(&memory),
            pages: Arc::clone(&self.pages),
            slow: slow.clone(),
            watchdog: watchdog.clone(),
            load: Arc::clone(&load),
            traces: traces.map(SpanThread::queue),
        };
        let pools = pools(config, handlers, &context, &self.slots, &blocking.resolvers)?;
        // Pools hold the load, so that it must not hold them.
        let asked: Vec<_> = pools.iter().map(Arc::downgrade).collect();
        load.ask(move || Pool::workload(&asked));
        let challenges = Arc::new(ChallengeAnswers::default());
        Ok(Shared {
            service: Service::new(config, slow, Arc::clone(&challenges)),
            guards: Arc::clone(&self.guards),
            request_changes: RouteChanges::of_requests(config),
            challenges,
            pools,
            is_loaded: handlers.iter().all(|handler| handler.is_loaded()),
            watchdog,
            stats: Arc::clone(&self.stats),
            tls: self.tls.clone(),
            certificates: Mutex::default(),
            log: Arc::clone(log),
            pages: Arc::clone(&self.pages),
            bandwidth: Bandwidth::new(&config.rates, &config.route_names()),
            ids,
            traces: traces.map(SpanThread::queue),
            proxies: Proxies::new(&config.proxies),
            client_limit: ClientLimit::new(
                listen.client_connections_max,
                listen.client_prefix_v4,
                listen.client_prefix_v6,
            ),
            replies_memory: memory,
            load,
            spoolers: blocking.spoolers,
            openers: blocking.openers,
            writers: blocking.writers,
            resolvers: blocking.resolvers,
            connections: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            slot,
            drivers: Drivers {
                len: listen.drivers,
                processors: processors(config),
            },
            state: watch::Sender::new(ServingState::Running),
            room: Notify::new(),
            mailboxes: (0..listen.drivers).map(|_| Mailbox::default()).collect(),
            shared_acceptor: OnceLock::new(),
            closing: OnceLock::new(),
            is_replaced: AtomicBool::new(false),
            config: Arc::clone(config),
        })
    }
}

fn log_counters(stats: &Stats) -> LogCounters {
    let [access, errors] = stats.logs else {
        unreachable!("there are counters for each of the two logs")
    };
    LogCounters { access, errors }
}

/// All pools of the process, without threads.
fn pools(
    config: &Config,
    handlers: &[Arc<dyn Handler>],
    context: &PoolContext,
    slots: &Arc<SharedSlots>,
    resolvers: &BlockingPool,
) -> Result<Vec<Arc<Pool>>, StartFault> {
    let mut first_name = 0;
    let mut groups = Vec::new();
    for upstream in &config.upstreams {
        let group = UpstreamGroup::open(upstream, first_name, slots, context.stats.servers)?;
        groups.push(group);
        // Their number is checked.
        first_name += upstream.servers.len() as u16;
    }
    for text in UpstreamGroup::resolve_all(&groups, resolvers) {
        context.log.error(Level::Warning, &text);
    }
    let kind_of = |runs: PoolRuns| match runs {
        PoolRuns::Upstream(upstream) => PoolKind::Upstream(Arc::clone(&groups[upstream])),
        // Without an application there is no handler for the first pool, which then has no requests.
        PoolRuns::App(app) => match handlers.get(app).and_then(|handler| handler.event_loop()) {
            None => PoolKind::Threads,
            Some(_) => PoolKind::EventLoop,
        },
    };
    Ok(match config.has_pools() {
        true => Pool::all(context, kind_of),
        false => Vec::new(),
    })
}

/// The blocking pools of the process: their threads do for drivers what may wait for a disk, or for a name server.
struct BlockingPools {
    spoolers: Spoolers,
    openers: BlockingPool,
    writers: BlockingPool,
    resolvers: BlockingPool,
}

impl BlockingPools {
    fn start(config: &Config, dir: SpoolDir) -> io::Result<Self> {
        Ok(Self {
            spoolers: Spoolers::start(config.spool.spoolers, dir)?,
            openers: BlockingPool::start("mp-open", config.file_serving.openers)?,
            writers: BlockingPool::start("mp-write", config.file_serving.writers)?,
            resolvers: start_resolvers(config)?,
        })
    }
}
