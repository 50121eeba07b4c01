//! Pools: each has a queue, and threads that take exchanges from it.
//!
//! `worker` is one thread, which gives exchanges to the backend and ends them; it starts when the controller asks for
//! more, and ends when the queue tells it to, when its backend does, or once it is given up. `controller` is the thread that looks after all pools: their sizes, their load, and exchanges that have waited
//! too long. Takes exchanges from drivers, gives replies to `response` and endings to a recorder. A panic in a
//! handler costs one exchange. Never waits for a client.

mod controller;
mod event_loop;
mod upstream_worker;
mod worker;
mod worker_threads;

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use logging::Log;
use queueing::{
    Admission, Class, Entry, PoolSettings, PoolShape, PoolState, Pressure, TICK, Waiting,
};
use telemetry::{Nanos, Stamp};

use crate::exchange::Exchange;
use crate::handler::Handler;
use crate::load_report::{ServerLoad, Workload};
use crate::loop_inbox::LoopInbox;
use crate::pages::Pages;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::response::{Destination, ReplyMemory};
use crate::slow::Slow;
use crate::sync::lock;
use crate::traces::SpanQueue;
use crate::upstream::UpstreamGroup;
use crate::watchdog::{Thread, Watchdog};
use config::typed::{self, Config, Level, PoolRuns};
use ipc::stats::Stats;
use telemetry::counters::PoolStats;

use controller::Timer;
use worker_threads::WorkerThreads;

pub use crate::loop_inbox::LoopEvent;
pub use crate::loop_load::LoopAwaited;
pub(crate) use controller::start_controller;
pub use event_loop::{
    FileLoader, LoopAssignment, LoopTake, LoopWorker, RunnableLoop, WebSocketAssignment,
};
pub(crate) use upstream_worker::UpstreamWorker;
pub use worker::{Assignment, ErrorOutput, Meter, Worker, panic_text};

/// Waiting exchanges from which on a driver rests.
const REST_LEN_MIN: usize = 4;
/// It only rests when what waits will be done in this time.
const REST_DRAIN_SECS_MAX: f64 = 0.002;

/// Stack of a pool thread: what interpreters expect of a main thread when they bound recursion. Only
/// what is used costs memory.
const STACK_BYTES: usize = 8 << 20;

/// What runs the exchanges of pools.
#[derive(Clone)]
pub(crate) enum PoolKind {
    /// Threads of their own.
    Threads,
    /// One event loop for all.
    EventLoop,
    /// Servers elsewhere.
    Upstream(Arc<UpstreamGroup>),
}

/// An exchange on its way through the pool, and where its response goes.
pub(crate) struct Job {
    pub(crate) exchange: Box<Exchange>,
    pub(crate) to: Destination,
}

/// One pool: a queue and its threads.
pub(crate) struct Pool {
    index: u16,
    shared: PoolContext,
    queue: Queue<Job>,
    /// By class: exchanges admitted that have not left the queue.
    classes: [AtomicUsize; Class::ALL.len()],
    /// The bounds of its size, which may have changed since they were configured.
    threads_min: AtomicUsize,
    threads_max: AtomicUsize,
    load: LoadState,
    timer: Arc<Timer>,
    /// `None` before the start and after the end.
    threads: Mutex<Option<Arc<Threads>>>,
    counters: &'static PoolStats,
    /// Connections end with their next reply.
    draining: Arc<AtomicBool>,
    /// The workers of all pools of the process.
    workers: Arc<WorkerThreads>,
    /// Where an event loop that has the pool hears of its exchanges.
    inbox: OnceLock<Arc<LoopInbox>>,
    /// The servers that run its exchanges in the place of threads.
    upstream: Option<Arc<UpstreamGroup>>,
    /// Exchanges that have left the queue and wait for a certain server.
    bound_len: AtomicUsize,
    /// Of a pool without threads: it has begun to serve, and has not ended.
    is_open: AtomicBool,
}

/// What threads are started with.
struct Threads {
    handler: Arc<dyn Handler>,
    /// Called on each thread at its end.
    on_exit: Arc<dyn Fn() + Send + Sync>,
    /// The numbers in the names of those that live.
    numbers: Mutex<BTreeSet<usize>>,
}

/// How hard it is for a pool, as the controller has found last, where drivers read it: one number, without a lock.
/// In the upper half the pressure (2 bits) and the timeout under overload in ms (30 bits), in the lower the rate as
/// an `f32`, where no number means that nothing is known.
struct LoadState(AtomicU64);

/// The greatest timeout that has a place in it, 12 days, stands for none.
const LOAD_TIMEOUT_MS_MAX: u64 = (1 << 30) - 1;

/// What pools use of the rest of the process.
#[derive(Clone)]
pub(crate) struct PoolContext {
    pub(crate) config: Arc<Config>,
    pub(crate) log: Arc<Log>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) memory: Arc<ReplyMemory>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) slow: Option<Arc<Slow>>,
    pub(crate) watchdog: Option<Arc<Watchdog>>,
    pub(crate) load: Arc<ServerLoad>,
    pub(crate) traces: Option<Arc<SpanQueue>>,
}

impl Pool {
    /// Names of all pools, for the log and the counters, by their index.
    pub(crate) fn names(config: &Config) -> Vec<String> {
        config.pools.iter().map(|pool| pool.name.clone()).collect()
    }

    /// All pools that are configured, without threads. `kind_of` says what runs an application.
    pub(crate) fn all(
        shared: &PoolContext,
        kind_of: impl Fn(PoolRuns) -> PoolKind,
    ) -> Vec<Arc<Self>> {
        let timer: Arc<Timer> = Arc::default();
        let workers: Arc<WorkerThreads> = Arc::default();
        let with_index = shared.config.pools.iter().zip(0_u16..);
        let pools = with_index.map(|(pool, index)| {
            let kind = kind_of(pool.runs);
            let (threads_min, threads_max) = match kind {
                PoolKind::Threads => (pool.threads_min, pool.threads_max),
                PoolKind::EventLoop | PoolKind::Upstream(_) => (1, 1),
            };
            let settings = settings(pool, threads_min, threads_max);
            Arc::new(Self {
                index,
                shared: shared.clone(),
                queue: Queue::new(&settings),
                classes: Default::default(),
                threads_min: AtomicUsize::new(threads_min),
                threads_max: AtomicUsize::new(threads_max),
                load: LoadState::new(),
                timer: Arc::clone(&timer),
                threads: Mutex::new(None),
                counters: shared.stats.pool(index),
                draining: Arc::default(),
                workers: Arc::clone(&workers),
                inbox: OnceLock::new(),
                upstream: match kind {
                    PoolKind::Upstream(group) => Some(group),
                    PoolKind::Threads | PoolKind::EventLoop => None,
                },
                bound_len: AtomicUsize::new(0),
                is_open: AtomicBool::new(false),
            })
        });
        pools.inspect(|pool| pool.publish_gauges()).collect()
    }

    fn config(&self) -> &typed::PoolConfig {
        &self.shared.config.pools[usize::from(self.index)]
    }

    /// Index of the application that it runs; `None`: it is the queue of an upstream.
    pub(crate) fn app(&self) -> Option<usize> {
        self.config().runs.app()
    }

    /// The thread of a worker, of this pool or another of the process.
    pub(crate) fn worker_thread(&self, number: NonZeroU32) -> Option<Thread> {
        self.workers.find(number)
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.config().name
    }

    /// How long one of its exchanges may run.
    pub(crate) fn request_timeout(&self) -> Option<Nanos> {
        self.config().request_timeout
    }

    /// How long one of its exchanges may wait.
    pub(crate) fn queue_timeout(&self) -> Nanos {
        self.config().queue_timeout
    }

    /// Threads that there may be at once, those apart that were given up.
    pub(crate) fn threads_max(&self) -> usize {
        self.settings().shape.threads_max
    }

    /// Counts out a worker that has ended or was given up; the controller may start another.
    pub(crate) fn report_lost_thread(&self) {
        self.queue.thread_lost();
        self.timer.wake();
    }

    /// The settings with the bounds of the size as they are now.
    fn settings(&self) -> PoolSettings {
        let threads_min = self.threads_min.load(Ordering::Relaxed);
        let threads_max = self.threads_max.load(Ordering::Relaxed);
        settings(self.config(), threads_min, threads_max.max(threads_min))
    }

    /// Other bounds of the size from now on, whatever was configured; the controller sees to it. No exchange is
    /// lost by it. There is always one thread at least, and the upper bound is never below the lower.
    pub(crate) fn reshape(&self, threads_min: usize, threads_max: usize) {
        if self.inbox.get().is_some() || self.upstream.is_some() {
            // An event loop is one thread, and an upstream has none here.
            return;
        }
        self.threads_min
            .store(threads_min.max(1), Ordering::Relaxed);
        self.threads_max.store(threads_max, Ordering::Relaxed);
        self.publish_gauges();
        self.timer.wake();
    }

    /// Driver: a place in the queue for one exchange.
    ///
    /// # Errors
    /// It is to be refused.
    pub(crate) fn admit(&self, class: Class) -> Result<(), Refusal> {
        let (settings, state) = (self.settings(), self.load.load());
        self.queue.admit(|admitted, free| {
            // Those for whom there is a thread do not wait, though it may not have come to them yet. A burst
            // would else be refused by a short queue before threads that sleep, and the next request of a client
            // before the thread that has just answered it.
            let free = free.max(self.threads_without_run());
            let free = match class {
                Class::Health => free,
                _ => free.saturating_sub(settings.reserve_threads),
            };
            let ahead = self.classes[..=class as usize].iter();
            let ahead: usize = ahead.map(|len| len.load(Ordering::Relaxed)).sum();
            let waiting = Waiting {
                len: admitted.saturating_sub(free),
                ahead: ahead.saturating_sub(free),
            };
            let admission = queueing::admit(waiting, class, &settings, &state);
            let Admission::Refuse { retry_after_secs } = admission else {
                self.classes[class as usize].fetch_add(1, Ordering::Relaxed);
                return Ok(());
            };
            // Without pressure the places in the queue alone decide.
            let calm = queueing::admit(waiting, class, &settings, &PoolState::default());
            let (counter, cause) = match calm {
                Admission::Refuse { .. } => (&self.counters.refused, "queue is full"),
                Admission::Enqueue => (&self.counters.shed, "pool is overloaded"),
            };
            counter.add_from_any();
            Err(Refusal {
                retry_after_secs: Some(retry_after_secs),
                ..Refusal::because(503, cause)
            })
        })
    }

    /// Threads that run nothing, as far as the counters know: they sleep, or have just ended a run.
    fn threads_without_run(&self) -> usize {
        if self.upstream.is_some() || self.has_event_loop() {
            return 0;
        }
        let threads = self.counters.threads.count();
        threads.saturating_sub(self.counters.running.count()) as usize
    }

    /// An exchange has left what ran it.
    fn count_left(&self) {
        self.counters.running.take_from_any();
        self.counters.completed.add_from_any();
    }

    /// Driver: hands over admitted exchanges.
    pub(crate) fn push(&self, jobs: &mut Vec<Entry<Job>>) {
        let mut due = Stamp::NEVER;
        let is_health = |job: &Entry<Job>| job.class == Class::Health;
        // An event loop that may begin nothing else waits for no queue.
        let loop_inbox = self.inbox.get().filter(|_| jobs.iter().any(is_health));
        let slots = self.upstream.as_ref().map(|group| group.slots());
        let left = self.queue.push(jobs, |job, mut met| {
            let record = &mut job.exchange.record;
            if let Some((total, free)) = slots {
                // Fewer than these hold.
                (met.threads, met.idle) = (total as u32, free as u32);
            }
            record.queued = met;
            if met.from_queue {
                let patience = Nanos(self.patience().0.saturating_sub(met.before.0));
                due = due.min(record.phases.queued.plus(patience.min(TICK)));
            }
        });
        if let Some(inbox) = loop_inbox {
            inbox.wake();
        }
        if left > 0 {
            self.timer.set(due);
        }
    }

    /// Driver: wakes its event loop for events that were posted.
    pub(crate) fn wake_loop(&self) {
        if let Some(inbox) = self.inbox.get() {
            inbox.wake();
        }
    }

    /// How long an exchange may wait at present.
    fn patience(&self) -> Nanos {
        let (load, longest) = (self.load.load(), self.config().queue_timeout);
        match load.pressure {
            Pressure::Overloaded => load.overload_timeout.min(longest),
            Pressure::Calm | Pressure::Saturated => longest,
        }
    }

    /// Driver: rests while the pool has enough to do with short exchanges, at most for `longest`.
    ///
    /// What the driver would read meanwhile could only wait in the queue. Without a rest every arriving
    /// packet wakes the driver, which on a busy processor interrupts a pool thread: 0.32 context switches
    /// an exchange instead of 0.08.
    pub(crate) fn rest(&self, longest: Nanos) {
        let waiting = self.queue.len();
        if waiting < REST_LEN_MIN {
            return;
        }
        let rate = self.load.load().completed_per_second.unwrap_or(0.0);
        if rate * REST_DRAIN_SECS_MAX >= waiting as f64 {
            self.queue.rest(Duration::from_nanos(longest.0));
        }
    }

    /// Whether anything waits or is run.
    pub(crate) fn is_at_work(&self) -> bool {
        self.counters.running.count() > 0 || self.queue.len() > 0
    }

    /// What these pools have to do together. Those of upstreams have nothing to do here.
    pub(crate) fn workload(pools: &[Weak<Pool>]) -> Workload {
        let mut all = Workload::default();
        let mut loop_len = 0;
        let pools = pools.iter().filter_map(Weak::upgrade);
        for pool in pools.filter(|pool| pool.upstream.is_none()) {
            let threads = match pool.has_event_loop() {
                // One loop has the pools of all of its applications: its places are counted once.
                true => {
                    loop_len = pool.shared.stats.event_loop.inside_max.count() as usize;
                    0
                }
                false => pool.queue.size().threads,
            };
            all = all.with(Workload {
                running: pool.counters.running.count() as usize,
                waiting: pool.queue.len(),
                threads,
                completed_per_second: pool.load.load().completed_per_second.unwrap_or(0.0),
            });
        }
        all.threads += loop_len;
        all
    }

    /// Exchanges admitted and not yet taken.
    pub(crate) fn waiting_len(&self) -> usize {
        self.queue.len()
    }

    /// Questions about health among them.
    pub(crate) fn health_len(&self) -> usize {
        self.classes[Class::Health as usize].load(Ordering::Relaxed)
    }

    /// Threads that exist, those that are about to end included.
    pub(crate) fn threads_alive(&self) -> usize {
        self.queue.alive()
    }

    /// Replies end their connections from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        if let Some(inbox) = self.inbox.get() {
            inbox.send(LoopEvent::Drain);
        }
    }

    /// The servers that run its exchanges in the place of threads.
    pub(crate) fn upstream(&self) -> Option<&Arc<UpstreamGroup>> {
        self.upstream.as_ref()
    }

    /// An upstream's: exchanges may come.
    pub(crate) fn open_upstream(&self) {
        self.is_open.store(true, Ordering::Relaxed);
        self.queue.grow(1, telemetry::now());
        self.queue.thread_started();
    }

    /// Lets the threads end once the queue is empty; no thread is started any more.
    pub(crate) fn close(&self) {
        self.queue.close(&self.settings());
        if self.is_open.swap(false, Ordering::Relaxed) {
            self.queue.thread_lost();
        }
        // Behind the queue's end, which keeps threads that start now from waiting; the controller goes when it sees this.
        *lock(&self.threads) = None;
        self.timer.wake();
    }

    /// Starts the fewest threads that there are to be; `on_exit` is called on each thread at its end.
    ///
    /// # Errors
    /// The kernel gives no more threads.
    pub(crate) fn start(
        self: &Arc<Self>,
        handler: &Arc<dyn Handler>,
        on_exit: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<()> {
        *lock(&self.threads) = Some(Arc::new(Threads {
            handler: Arc::clone(handler),
            on_exit,
            numbers: Mutex::default(),
        }));
        match self.inbox.get() {
            // Its thread is there already.
            Some(_) => Ok(()),
            None => self.spawn(self.settings().shape.threads_min, telemetry::now()),
        }
    }

    /// `None` before the start and after the end.
    fn threads(&self) -> Option<Arc<Threads>> {
        lock(&self.threads).clone()
    }

    /// Whether it has begun to serve and has not ended.
    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed) || self.threads().is_some()
    }

    /// `more` threads are to be there.
    ///
    /// # Errors
    /// The kernel gives none, or not so many.
    fn spawn(self: &Arc<Self>, more: usize, now: Stamp) -> io::Result<()> {
        let Some(threads) = self.threads() else {
            return Ok(());
        };
        // Counted before they exist: a burst of looks by the controller must not start a burst of threads.
        let start = self.queue.grow(more, now);
        for started in 0..start {
            if let Err(error) = self.spawn_one(&threads) {
                (started..start).for_each(|_| self.queue.thread_not_started());
                return Err(error);
            }
        }
        Ok(())
    }

    fn spawn_one(self: &Arc<Self>, threads: &Arc<Threads>) -> io::Result<()> {
        // The lowest number that is free.
        let number = (0..).find(|number| lock(&threads.numbers).insert(*number));
        let number = number.expect("there are more numbers than threads");
        let (pool, its) = (Arc::clone(self), Arc::clone(threads));
        let thread = thread::Builder::new()
            .name(format!("mp-{}-{number}", self.name()))
            .stack_size(STACK_BYTES)
            .spawn(move || pool.run_worker(&its, number));
        thread.map(drop).inspect_err(|_| {
            lock(&threads.numbers).remove(&number);
        })
    }

    /// The life of one thread.
    fn run_worker(self: &Arc<Self>, threads: &Threads, number: usize) {
        let counters = &self.counters;
        counters.threads_started.add_from_any();
        self.queue.thread_started();
        let mut worker = Worker::new(self);
        let worked = catch_unwind(AssertUnwindSafe(|| threads.handler.work(&mut worker)));
        let (slot, is_told_to_go) = (worker.slot.clone(), worker.is_told_to_go);
        // First, because it leaves the slot: until then a worker that ended in the middle of an exchange can still be
        // given up, and its loss would be reported twice.
        drop(worker);
        if let Err(panic) = worked {
            let (name, text) = (self.name(), panic_text(panic.as_ref()));
            let text = format!("a thread of the pool {name} ended: {text}");
            self.shared.log.error_from_pool(Level::Error, &text);
        }
        lock(&threads.numbers).remove(&number);
        counters.threads_ended.add_from_any();
        match slot.filter(|slot| slot.is_given_up()) {
            // The watchdog has reported the loss, and another worker has its place.
            Some(slot) if !slot.claim_loss() => {}
            None if is_told_to_go => self.queue.thread_exited(),
            // It has ended by itself, or was given up without a replacement.
            _ => self.report_lost_thread(),
        }
        (threads.on_exit)();
    }

    /// Gives a run to the placement of slow routes; health checks are never moved.
    fn report_to_placement(&self, exchange: &Exchange, run: Nanos) {
        let Some(slow) = &self.shared.slow else {
            return;
        };
        if exchange.record.class == Class::Health {
            return;
        }
        let method = exchange.head().method();
        let Some(turn) = slow.ran(method, exchange.path(), self.index, run) else {
            return;
        };
        let counters = self.shared.stats.pool(slow.pool());
        let counter = match turn.is_slow {
            true => &counters.routes_moved,
            false => &counters.routes_returned,
        };
        counter.add_from_any();
        self.shared.log.error_from_pool(Level::Info, &turn.text);
    }

    /// Tells the counters what only the pool knows.
    pub(crate) fn publish_gauges(&self) {
        let (counters, size, shape) = (&self.counters, self.queue.size(), self.settings().shape);
        let now = telemetry::now();
        if let Some(inbox) = self.inbox.get() {
            inbox.load.publish(self.shared.stats.event_loop, now);
        }
        let (threads, idle, bounds) = match &self.upstream {
            None => (
                size.threads,
                size.idle,
                (shape.threads_min, shape.threads_max),
            ),
            Some(group) => {
                group.count_slots(now);
                let (total, free) = group.slots();
                self.queue.set_free(free);
                (total, free, (total, total))
            }
        };
        counters.threads.set(threads as u64);
        counters.idle.set(idle as u64);
        let waiting = self.queue.len() + self.bound_len.load(Ordering::Relaxed);
        counters.waiting.set(waiting as u64);
        let oldest = self.queue.oldest_wait(now);
        counters.oldest_wait_ns.set(oldest.0);
        counters.threads_min.set(bounds.0 as u64);
        counters.threads_max.set(bounds.1 as u64);
        counters.waiting_max.set(shape.queue_len_max as u64);
        counters.queue_target_ns.set(self.settings().queue_target.0);
    }
}

impl LoadState {
    fn new() -> Self {
        let state = Self(AtomicU64::new(0));
        state.store(PoolState::default());
        state
    }

    fn load(&self) -> PoolState {
        let packed = self.0.load(Ordering::Relaxed);
        let rate = f32::from_bits(packed as u32);
        let timeout_ms = packed >> 32 & LOAD_TIMEOUT_MS_MAX;
        PoolState {
            pressure: match packed >> 62 {
                0 => Pressure::Calm,
                1 => Pressure::Saturated,
                _ => Pressure::Overloaded,
            },
            completed_per_second: (!rate.is_nan()).then_some(f64::from(rate)),
            overload_timeout: match timeout_ms {
                LOAD_TIMEOUT_MS_MAX => Nanos(u64::MAX),
                ms => Nanos::from_ms(ms),
            },
        }
    }

    fn store(&self, state: PoolState) {
        // A rate is a matter of two or three digits.
        let rate = state.completed_per_second;
        let rate = rate.map_or(f32::NAN, |rate| rate as f32);
        // Rounded up: none waits for 0 ms, and a timeout is at least one.
        let timeout_ms = (state.overload_timeout.0 / 1_000).div_ceil(1_000);
        let packed = (state.pressure as u64) << 62
            | timeout_ms.min(LOAD_TIMEOUT_MS_MAX) << 32
            | u64::from(rate.to_bits());
        self.0.store(packed, Ordering::Relaxed);
    }
}

/// What the configuration says of a pool, as `stage` takes it, with these bounds of its size.
fn settings(pool: &typed::PoolConfig, threads_min: usize, threads_max: usize) -> PoolSettings {
    PoolSettings {
        shape: PoolShape {
            threads_min,
            threads_max,
            queue_len_max: pool.queue_len_max,
        },
        queue_target: pool.queue_target,
        queue_timeout: pool.queue_timeout,
        overload_timeout: pool.overload_timeout,
        reserve_threads: pool.reserve_threads,
        reserve_len: pool.reserve_len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_state_is_read_as_it_was_written() {
        let rates = [None, Some(0.0), Some(0.25), Some(80_000.0), Some(1e30)];
        let timeouts = [8, 1_000, 3_600_000].map(Nanos::from_ms);
        let mut timeouts = timeouts.into_iter().chain([Nanos(u64::MAX)]).cycle();
        for pressure in [Pressure::Calm, Pressure::Saturated, Pressure::Overloaded] {
            for completed_per_second in rates {
                let shared = LoadState::new();
                assert_eq!(shared.load(), PoolState::default());
                let overload_timeout = timeouts.next().unwrap();
                shared.store(PoolState {
                    pressure,
                    completed_per_second,
                    overload_timeout,
                });
                let found = shared.load();
                assert_eq!(found.pressure, pressure);
                assert_eq!(found.overload_timeout, overload_timeout);
                let parts = found.completed_per_second.zip(completed_per_second);
                assert_eq!(found.completed_per_second.is_some(), parts.is_some());
                assert!(parts.is_none_or(
                    |(found, meant)| (found / meant - 1.0).abs() < 1e-6 || found == meant
                ));
            }
        }
    }
}
