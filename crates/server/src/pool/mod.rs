//! The pool threads: pools with a queue each, threads that take from it, and what happens to
//! an exchange between its start and its reply.
//!
//! `staff` are the threads, which come and go, `worker` is one of them, which gives exchanges to the backend and
//! ends them, `steward` is the thread that looks after all pools: their sizes, their moods, and those who
//! have waited too long. Takes exchanges from drivers, gives replies to `response` and endings to the
//! `recorder`. A panic in a handler costs one exchange. Never waits for a client.

mod alarm;
mod mood;
mod staff;
mod steward;
mod worker;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use measure::{Nanos, Queued, Stamp};
use stage::{Admission, Class, Control, Entry, PoolSettings, PoolShape, Pressure, TICK, Waiting};

use crate::config::meant::{self, Config, Level};
use crate::exchange::Exchange;
use crate::exchange::stream::StreamShared;
use crate::handler::Handler;
use crate::log::Log;
use crate::pages::Pages;
use crate::queue::{Arrival, Queue};
use crate::response::{Destination, ReplyMemory, ResponseWriter};
use crate::slow::{Slow, Way};
use crate::stats::{PoolStats, Stats};
use crate::sync::lock;
use crate::sys::Placed;
use crate::watch::Watch;

use alarm::Alarm;
use mood::MoodCell;
use staff::Staff;

pub(crate) use steward::start_steward;
pub use worker::{Assignment, Worker, panic_text};

/// Waiting exchanges from which on a driver rests.
const REST_LEN_MIN: usize = 4;
/// It only rests when what waits will be done in this time.
const REST_DRAIN_SECS_MAX: f64 = 0.002;

/// An exchange on its way through the pool, and where its response goes.
pub(crate) struct Job {
    pub(crate) exchange: Box<Exchange>,
    pub(crate) to: Destination,
    /// The connection may live on afterwards.
    pub(crate) keep_alive: bool,
}

impl Job {
    fn stream(&self) -> Arc<StreamShared> {
        let stream = self.to.stream.as_ref();
        Arc::clone(stream.expect("a worker answers through a stream"))
    }
}

/// Why an exchange does not get into the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unadmitted {
    /// Seconds after which to try again.
    pub(crate) retry_after_secs: u32,
    /// For the log.
    pub(crate) cause: &'static str,
}

/// One pool: a queue and its threads.
pub(crate) struct Pool {
    index: u16,
    name: String,
    queue: Queue<Job>,
    /// By class: exchanges admitted that have not left the queue.
    classes: [AtomicUsize; Class::ALL.len()],
    /// As configured; the bounds of its size may have changed since.
    settings: PoolSettings,
    threads_min: AtomicUsize,
    threads_max: AtomicUsize,
    mood: MoodCell,
    steering: Mutex<Steering>,
    alarm: Arc<Alarm>,
    /// `None` before the start and after the end.
    staff: Mutex<Option<Arc<Staff>>>,
    counters: Placed<PoolStats>,
    /// Connections end with their next reply.
    draining: Arc<AtomicBool>,
    closed: AtomicBool,
    config: Arc<Config>,
    log: Arc<Log>,
    stats: Arc<Stats>,
    memory: Arc<ReplyMemory>,
    pages: Arc<Pages>,
    slow: Option<Arc<Slow>>,
    watch: Option<Arc<Watch>>,
    /// Threads that all pools of the process have had.
    workers: Arc<AtomicU32>,
}

/// What the steward keeps of a pool from look to look.
struct Steering {
    control: Control,
    /// When it was looked at last.
    looked: Stamp,
}

/// What pools use of the rest of the house.
pub(crate) struct Surroundings<'a> {
    pub(crate) config: &'a Arc<Config>,
    pub(crate) log: &'a Arc<Log>,
    pub(crate) stats: &'a Arc<Stats>,
    pub(crate) memory: &'a Arc<ReplyMemory>,
    pub(crate) pages: &'a Arc<Pages>,
    pub(crate) slow: &'a Option<Arc<Slow>>,
    pub(crate) watch: Option<&'a Arc<Watch>>,
}

impl Pool {
    /// Names of all pools, for the log and the counters, by their index.
    pub(crate) fn names(config: &Config) -> Vec<String> {
        config.pools.iter().map(|pool| pool.name.clone()).collect()
    }

    /// All pools that are configured, without threads.
    pub(crate) fn all(house: &Surroundings<'_>) -> Vec<Arc<Self>> {
        let alarm = Arc::new(Alarm::new());
        let workers = Arc::default();
        let pools = house.config.pools.iter().zip(0_u16..);
        pools
            .map(|(pool, index)| Arc::new(Self::new(index, pool, &alarm, &workers, house)))
            .collect()
    }

    fn new(
        index: u16,
        pool: &meant::Pool,
        alarm: &Arc<Alarm>,
        workers: &Arc<AtomicU32>,
        house: &Surroundings<'_>,
    ) -> Self {
        let settings = settings(pool);
        let shape = settings.shape;
        let counters = house.stats.pool(index);
        store(&counters.threads_min, shape.threads_min);
        store(&counters.threads_max, shape.threads_max);
        store(&counters.waiting_max, shape.queue_len_max);
        Self {
            index,
            name: pool.name.clone(),
            queue: Queue::new(&settings),
            classes: Default::default(),
            settings,
            threads_min: AtomicUsize::new(shape.threads_min),
            threads_max: AtomicUsize::new(shape.threads_max),
            mood: MoodCell::new(),
            steering: Mutex::new(Steering {
                control: Control::new(&settings),
                looked: Stamp::ZERO,
            }),
            alarm: Arc::clone(alarm),
            staff: Mutex::new(None),
            counters,
            draining: Arc::default(),
            closed: AtomicBool::new(false),
            config: Arc::clone(house.config),
            log: Arc::clone(house.log),
            stats: Arc::clone(house.stats),
            memory: Arc::clone(house.memory),
            pages: Arc::clone(house.pages),
            slow: house.slow.clone(),
            watch: house.watch.map(Arc::clone),
            workers: Arc::clone(workers),
        }
    }

    /// The writer of one of its threads.
    fn writer(&self) -> ResponseWriter {
        ResponseWriter::new(&self.config, &self.memory, &self.draining)
            .compressing(&self.config.compression)
    }

    /// Number of a thread that begins its work: of all pools' threads, and never given again.
    fn next_worker(&self) -> NonZeroU32 {
        let before = self.workers.fetch_add(1, Ordering::Relaxed);
        NonZeroU32::MIN.saturating_add(before)
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How long one of its exchanges may run.
    pub(crate) fn request_timeout(&self) -> Option<Nanos> {
        self.config.pools[usize::from(self.index)].request_timeout
    }

    /// Threads that there may be at once, those apart that were given up.
    pub(crate) fn threads_max(&self) -> usize {
        self.threads_max.load(Ordering::Relaxed)
    }

    /// One of its threads does not come back: another may take its place.
    pub(crate) fn do_without_one(&self) {
        self.queue.lost();
        self.alarm.ring();
    }

    /// The settings with the bounds of the size as they are now.
    fn settings(&self) -> PoolSettings {
        let mut settings = self.settings;
        settings.shape.threads_min = self.threads_min.load(Ordering::Relaxed);
        settings.shape.threads_max = self.threads_max.load(Ordering::Relaxed);
        settings
    }

    /// Starts the fewest threads that there are to be; `farewell` is called on each thread at its end.
    ///
    /// # Errors
    /// The kernel gives no more threads.
    pub(crate) fn start(
        self: &Arc<Self>,
        handler: &Arc<dyn Handler>,
        farewell: Arc<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<()> {
        let staff = Staff::new(handler, farewell);
        *lock(&self.staff) = Some(Arc::new(staff));
        self.hire(self.settings().shape.threads_min, measure::now())
    }

    /// Other bounds of the size from now on, whatever was configured; the steward sees to the rest. No
    /// exchange is lost by it. There is always one thread at least, and the upper bound is never below the
    /// lower.
    pub(crate) fn reshape(&self, threads_min: usize, threads_max: usize) {
        let threads_min = threads_min.max(1);
        let threads_max = threads_max.max(threads_min);
        {
            // Both bounds, the controller and the queue change together, whoever else is reshaping.
            let mut steering = lock(&self.steering);
            self.threads_min.store(threads_min, Ordering::Relaxed);
            self.threads_max.store(threads_max, Ordering::Relaxed);
            let settings = self.settings();
            steering.control.reshape(&settings);
            self.queue.reshape(&settings);
            // Otherwise the next look may be a moment away.
            steering.looked = Stamp::ZERO;
        }
        store(&self.counters.threads_min, threads_min);
        store(&self.counters.threads_max, threads_max);
        self.alarm.ring();
    }

    /// Driver: a place in the queue for one exchange.
    ///
    /// # Errors
    /// It is to be refused.
    pub(crate) fn admit(&self, class: Class) -> Result<(), Unadmitted> {
        let (settings, mood) = (self.settings(), self.mood.load());
        self.queue.admit(|admitted, free| {
            // Those for whom there is a thread do not wait, though it may not have come to them yet. A burst
            // would else be refused by a short queue before threads that sleep.
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
            let admission = stage::admit(waiting, class, &settings, &mood);
            let Admission::Refuse { retry_after_secs } = admission else {
                self.classes[class as usize].fetch_add(1, Ordering::Relaxed);
                return Ok(());
            };
            Err(self.unadmitted(waiting.len, class, retry_after_secs))
        })
    }

    /// An exchange of `class` has left the queue, however.
    fn has_left(&self, class: Class) {
        self.classes[class as usize].fetch_sub(1, Ordering::Relaxed);
    }

    fn unadmitted(&self, waiting: usize, class: Class, retry_after_secs: u32) -> Unadmitted {
        let reserved = match class {
            Class::Health => 0,
            _ => {
                let places = self.settings.shape.queue_len_max;
                self.settings.reserve_len.min(places.saturating_sub(1))
            }
        };
        let is_full = waiting + reserved >= self.settings.shape.queue_len_max;
        let (counter, cause) = match is_full {
            true => (&self.counters.refused, "queue is full"),
            false => (&self.counters.shed, "pool is overloaded"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Unadmitted {
            retry_after_secs,
            cause,
        }
    }

    /// Driver: hands over admitted exchanges.
    pub(crate) fn push(&self, jobs: &mut Vec<Entry<Job>>) {
        let mut due = Stamp::NEVER;
        let left = self.queue.push(jobs, |job, arrival| {
            let record = &mut job.exchange.record;
            note(&mut record.queued, arrival);
            if !arrival.is_called {
                let (queued, before) = (record.phases.queued, record.queued.before);
                let patience = Nanos(self.patience().0.saturating_sub(before.0));
                due = due.min(queued.plus(patience.min(TICK)));
            }
        });
        if left > 0 {
            self.alarm.set(due);
        }
    }

    /// How long somebody may wait at present.
    fn patience(&self) -> Nanos {
        match self.mood.load().pressure {
            Pressure::Overloaded => self.settings.overload_timeout,
            Pressure::Calm | Pressure::Saturated => self.settings.queue_timeout,
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
        let rate = self.mood.load().completed_per_second.unwrap_or(0.0);
        if rate * REST_DRAIN_SECS_MAX >= waiting as f64 {
            self.queue.rest(Duration::from_nanos(longest.0));
        }
    }

    /// Whether anything waits or is run.
    pub(crate) fn is_at_work(&self) -> bool {
        self.counters.running.load(Ordering::Relaxed) > 0 || self.queue.len() > 0
    }

    /// Exchanges admitted and not yet taken.
    pub(crate) fn waiting_len(&self) -> usize {
        self.queue.len()
    }

    /// Threads that exist, those that are about to end included.
    pub(crate) fn threads_alive(&self) -> usize {
        self.queue.alive()
    }

    /// Replies end their connections from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Lets the threads end once the queue is empty; nobody is started any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.queue.close(&self.settings());
        *lock(&self.staff) = None;
        self.alarm.ring();
    }

    /// Tells the watch over slow routes of a run; questions about health stay where they are.
    fn tell_slow(&self, exchange: &Exchange, run: Nanos) {
        let Some(slow) = &self.slow else { return };
        if exchange.record.class == Class::Health {
            return;
        }
        let method = exchange.head().method();
        let Some(turn) = slow.ran(method, exchange.path(), self.index, run) else {
            return;
        };
        let counters = self.stats.pool(slow.pool());
        let counter = match turn.way {
            Way::There => &counters.routes_moved,
            Way::Back => &counters.routes_returned,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.log.error_from_pool(Level::Info, &turn.text);
    }

    /// Driver: tells the counters what the queue alone knows.
    pub(crate) fn publish_gauges(&self) {
        let size = self.queue.size();
        store(&self.counters.threads, size.threads);
        store(&self.counters.idle, size.idle);
        store(&self.counters.waiting, self.queue.len());
    }
}

/// What the configuration says of a pool, as `stage` takes it.
fn settings(pool: &meant::Pool) -> PoolSettings {
    PoolSettings {
        shape: PoolShape {
            threads_min: pool.threads_min,
            threads_max: pool.threads_max,
            queue_len_max: pool.queue_len_max,
        },
        queue_target: pool.queue_target,
        queue_timeout: pool.queue_timeout,
        overload_timeout: pool.overload_timeout,
        reserve_threads: pool.reserve_threads,
        reserve_len: pool.reserve_len,
    }
}

fn store(gauge: &AtomicU64, len: usize) {
    gauge.store(len as u64, Ordering::Relaxed);
}

/// What it met, beside how long it had waited elsewhere.
fn note(queued: &mut Queued, arrival: Arrival) {
    // Threads and places in queues are far fewer.
    queued.waiting = arrival.waiting as u32;
    queued.threads = arrival.threads as u32;
    queued.idle = arrival.idle as u32;
    queued.from_queue = !arrival.is_called;
}
