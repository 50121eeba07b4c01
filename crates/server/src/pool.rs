//! The corridor of the pool threads: one bounded queue, threads that take from it, and what happens to
//! an exchange between its start and its reply.
//!
//! Takes exchanges from drivers, gives replies to `delivery` and endings to the ledger. A panic in a
//! handler costs one exchange. Never waits for a client.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use measure::{Ending, Nanos, Stamp};
use stage::{Admission, DrainRate, PoolShape};

use crate::config::meant::Config;
use crate::delivery::{
    Asked, Bounds, Close, Declared, Desk, Door, Finished, FirstWay, Outlet, ReplyMemory,
};
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::handler::Handler;
use crate::handover::{Chair, Onward, Queue};
use crate::ledger::{Closing, Ledger, Outcome};
use crate::log::{Level, Log, Patience};
use crate::pages::Pages;
use crate::reply::{Part, Reply, ReplyBody};
use crate::stats::{PoolStats, Stats};
use crate::sys::Placed;

/// Stack of a pool thread: what interpreters expect of a main thread when they bound recursion. Only
/// what is used costs memory.
const STACK_BYTES: usize = 8 << 20;
/// Waiting exchanges from which on a driver rests.
const REST_LEN_MIN: usize = 4;
/// It only rests when what waits will be done in this time.
const REST_DRAIN_SECS_MAX: f64 = 0.002;

/// An exchange on its way through the pool, with the door it came from.
pub(crate) struct Job {
    pub(crate) exchange: Box<Exchange>,
    pub(crate) door: Arc<Door>,
    /// The connection may go on afterwards.
    pub(crate) keep_alive: bool,
    pub(crate) first: FirstWay,
}

/// One pool: a queue and its threads.
pub(crate) struct Pool {
    queue: Queue<Job>,
    shape: PoolShape,
    counters: Placed<PoolStats>,
    /// Connections end with their next reply.
    draining: AtomicBool,
    config: Arc<Config>,
    log: Arc<Log>,
    stats: Arc<Stats>,
    memory: Arc<ReplyMemory>,
    pages: Arc<Pages>,
}

/// A pool thread's place: it gives exchanges to a handler and takes the replies.
pub struct Seat {
    pool: Arc<Pool>,
    /// The pool's own, reached in one step.
    counters: Placed<PoolStats>,
    chair: Arc<Chair>,
    desk: Desk,
    ledger: Ledger,
    held: Option<Held>,
}

/// What a seat keeps of a job while its handler has the exchange.
struct Held {
    door: Arc<Door>,
    keep_alive: bool,
    first: FirstWay,
}

impl Pool {
    /// Its index among the names of pools.
    pub(crate) const INDEX: u16 = 0;

    /// Names of all pools, for the log.
    pub(crate) fn names() -> Vec<String> {
        vec!["default".to_owned()]
    }

    pub(crate) fn new(
        config: &Arc<Config>,
        log: &Arc<Log>,
        stats: &Arc<Stats>,
        memory: &Arc<ReplyMemory>,
        pages: &Arc<Pages>,
    ) -> Arc<Self> {
        let shape = PoolShape {
            threads_min: config.pool.threads_min,
            threads_max: config.pool.threads_max,
            queue_len_max: config.pool.queue_len_max,
        };
        let counters = stats.pool(Pool::INDEX);
        store(&counters.threads, shape.threads_max);
        store(&counters.waiting_max, shape.queue_len_max);
        Arc::new(Self {
            queue: Queue::new(shape.queue_len_max),
            shape,
            counters,
            draining: AtomicBool::new(false),
            config: Arc::clone(config),
            log: Arc::clone(log),
            stats: Arc::clone(stats),
            memory: Arc::clone(memory),
            pages: Arc::clone(pages),
        })
    }

    /// Starts the threads, each with a guest that is dropped when the thread ends; gives their number.
    /// The pool has its greatest size for now.
    pub(crate) fn start<G: Send + 'static>(
        self: &Arc<Self>,
        handler: &Arc<dyn Handler>,
        guest: impl Fn() -> G,
    ) -> std::io::Result<usize> {
        for index in 0..self.shape.threads_max {
            let (pool, handler, guest) = (Arc::clone(self), Arc::clone(handler), guest());
            let work = move || {
                let _guest = guest;
                handler.work(&mut Seat::new(pool));
            };
            std::thread::Builder::new()
                .name(format!("mp-pool-{index}"))
                .stack_size(STACK_BYTES)
                .spawn(work)?;
        }
        Ok(self.shape.threads_max)
    }

    /// Driver: a place in the queue for one exchange, or the seconds after which to try again.
    pub(crate) fn admit(&self, drain: &DrainRate) -> Result<(), u32> {
        if self.queue.admit() {
            return Ok(());
        }
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        match stage::admit(self.queue.len(), &self.shape, drain) {
            Admission::Enqueue => Err(1),
            Admission::Refuse { retry_after_secs } => Err(retry_after_secs),
        }
    }

    /// Driver: hands over admitted exchanges.
    pub(crate) fn push(&self, jobs: &mut Vec<Job>) {
        self.queue.push(jobs);
    }

    /// Driver: rests while the pool has enough to do with short exchanges, at most for `longest`.
    ///
    /// What the driver would read meanwhile could only wait in the queue. Without a rest every arriving
    /// packet wakes the driver, which on a busy processor interrupts a pool thread: 0.32 context switches
    /// an exchange instead of 0.08.
    pub(crate) fn rest(&self, drain: &DrainRate, longest: Nanos) {
        let waiting = self.queue.len();
        if waiting < REST_LEN_MIN {
            return;
        }
        let rate = drain.per_second().unwrap_or(0.0);
        if rate * REST_DRAIN_SECS_MAX >= waiting as f64 {
            self.queue.rest(Duration::from_nanos(longest.0));
        }
    }

    /// Whether anything waits or is run.
    pub(crate) fn is_at_work(&self) -> bool {
        self.counters.running.load(Ordering::Relaxed) > 0 || self.queue.len() > 0
    }

    /// Exchanges that threads have finished.
    pub(crate) fn completed(&self) -> u64 {
        self.counters.completed.load(Ordering::Relaxed)
    }

    /// Replies end their connections from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Lets the threads end once the queue is empty.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Driver: tells the counters what the queue alone knows.
    pub(crate) fn publish_gauges(&self) {
        store(&self.counters.idle, self.queue.idle_len());
        store(&self.counters.waiting, self.queue.len());
    }
}

fn store(gauge: &AtomicU64, len: usize) {
    gauge.store(len as u64, Ordering::Relaxed);
}

impl Seat {
    fn new(pool: Arc<Pool>) -> Self {
        let desk = Desk::new(&pool.config.headers)
            .naming(&pool.config.request_ids)
            .compressing(&pool.config.compression);
        let ledger = Ledger::new(&pool.log, Arc::clone(&pool.stats), Patience::Later);
        Self {
            counters: pool.stats.pool(Pool::INDEX),
            pool,
            chair: Arc::default(),
            desk,
            ledger,
            held: None,
        }
    }

    /// Threads that this pool may have at once.
    pub fn threads_max(&self) -> usize {
        self.pool.shape.threads_max
    }

    /// The header that names a request's id, in lower case, where one is configured: the handler is to see
    /// the id in it, whatever the client sent.
    pub fn request_id_header(&self) -> Option<&str> {
        self.pool.config.request_ids.header.as_deref()
    }

    /// The oldest waiting exchange, if there is one and nothing else is to be waited for. Never waits. Attend
    /// to it before taking another.
    pub fn next_now(&mut self) -> Option<Box<Exchange>> {
        if self.pool.log.is_awaited() {
            return None;
        }
        loop {
            let job = self.pool.queue.take_now()?;
            if let Some(exchange) = self.begin(job) {
                return Some(exchange);
            }
        }
    }

    /// The oldest waiting exchange; waits for one, and first for room in a log that is to lose nothing.
    /// `None`: this thread is to end.
    pub fn next_wait(&mut self) -> Option<Box<Exchange>> {
        self.pool.log.wait_if_awaited();
        loop {
            let job = self.pool.queue.take(&self.chair)?;
            if let Some(exchange) = self.begin(job) {
                return Some(exchange);
            }
        }
    }

    /// `None` when the drain deadline passed while the exchange waited: its client was told that it did
    /// not run.
    fn begin(&mut self, job: Job) -> Option<Box<Exchange>> {
        let Job {
            mut exchange,
            door,
            keep_alive,
            first,
        } = job;
        if door.turnstile.is_seized() {
            return None;
        }
        exchange.phases.started = measure::now();
        door.set_started(exchange.phases.started);
        self.counters.running.fetch_add(1, Ordering::Relaxed);
        self.held = Some(Held {
            door,
            keep_alive,
            first,
        });
        Some(exchange)
    }

    /// Runs one exchange: `answer` writes its reply into the outlet. Its fault, or its panic, becomes a 500
    /// when nothing has been sent yet and a cut connection otherwise.
    ///
    /// # Panics
    /// When `exchange` is not the one that this seat gave last.
    pub fn attend<F>(&mut self, mut exchange: Box<Exchange>, answer: F)
    where
        F: FnOnce(&mut Exchange, &mut Outlet<'_>) -> Result<(), Fault>,
    {
        let Held {
            door,
            keep_alive,
            first,
        } = self.held.take().expect("the exchange came from this seat");
        let view = exchange.head();
        let asked = Asked {
            version: view.index.version,
            is_head: view.is_head(),
            keep_alive,
            phases: exchange.phases,
            accepted: self.desk.accepted(view),
        };
        self.desk.name_exchange(exchange.id, Some(view));
        let config = &*self.pool.config;
        let bounds = Bounds {
            draining: &self.pool.draining,
            delivery: &config.delivery,
            memory: &self.pool.memory,
            first,
            spool: &config.spool,
            log: &self.pool.log,
        };
        let mut outlet = Outlet::new(&door, &mut self.desk, asked, bounds);
        let answered = catch_unwind(AssertUnwindSafe(|| answer(&mut exchange, &mut outlet)));
        let fault = match answered {
            Ok(Ok(())) if outlet.is_silent() => {
                Some(Fault::Bug("the handler gave no reply".to_owned()))
            }
            Ok(Ok(())) => None,
            Ok(Err(fault)) => Some(fault),
            Err(panic) => Some(Fault::Bug(panic_text(panic.as_ref()))),
        };
        let close = match &fault {
            None => outlet.close(),
            Some(fault) => give_up(outlet, fault, &self.pool.pages),
        };
        self.report(&exchange, fault.as_ref(), &close);
        self.end(exchange, &door, &close);
    }

    fn report(&self, exchange: &Exchange, fault: Option<&Fault>, close: &Close) {
        let text = match fault {
            Some(Fault::Peer(_)) => return,
            Some(fault) => fault.to_string(),
            None if close.ending == Ending::Cut => close.cause.to_owned(),
            None => return,
        };
        let text = format!("{}: {text}", exchange.name());
        self.pool.log.error_from_pool(Level::Error, &text);
    }

    /// Gives the connection back to its driver, or the rest of the reply with it, and ends the exchange.
    fn end(&mut self, mut exchange: Box<Exchange>, door: &Arc<Door>, close: &Close) {
        exchange.phases.replied = close.replied;
        self.counters.running.fetch_sub(1, Ordering::Relaxed);
        self.counters.completed.fetch_add(1, Ordering::Relaxed);
        if close.flowing {
            let finished = Finished {
                exchange,
                status: close.status,
                head_bytes: close.head_bytes,
                keep_alive: close.keep_alive,
                ending: close.ending,
                cause: close.cause,
            };
            // What is given back unused is dropped behind the lock: it may hold the file of a body.
            let seized = door.finish(finished);
            if seized.is_none() {
                door.turnstile.wake();
            }
            return;
        }
        exchange.phases.delivered = close.delivered;
        door.set_delivered(close.delivered);
        if door.turnstile.end().is_err() {
            // The drain deadline passed: the driver has ended this exchange.
            return;
        }
        self.log(&exchange, close);
        let onward = if close.keep_alive {
            Onward::Keep
        } else {
            Onward::Close
        };
        door.turnstile.give_back(onward);
    }

    fn log(&self, exchange: &Exchange, close: &Close) {
        self.ledger.close(&Closing {
            id: exchange.id,
            pool: Some(Pool::INDEX),
            head: Some(exchange.head()),
            request_line: b"",
            ends: &exchange.ends,
            phases: &exchange.phases,
            route: exchange.route,
            driver: exchange.driver,
            request_bytes: exchange.request_bytes,
            outcome: Outcome {
                status: close.status,
                sent_bytes: close.sent_bytes,
                head_bytes: close.head_bytes,
                ending: close.ending,
                cause: close.cause,
            },
        });
    }
}

/// Ends the reply of an exchange that failed: a plain page when nothing has been sent, else a cut.
fn give_up(mut outlet: Outlet<'_>, fault: &Fault, pages: &Pages) -> Close {
    if outlet.head_is_sent() {
        return outlet.broken("the application failed while its reply was being sent");
    }
    let status = fault.status();
    let Reply { lines, body, .. } = pages.dress(Reply::plain(status), None);
    let body = match body {
        ReplyBody::One(Part::Memory(body)) => body,
        _ => Bytes::new(),
    };
    let out = outlet.begin(status, wire::reason(status).as_bytes());
    out.extend_from_slice(&lines);
    outlet.declare(Declared {
        content_length: Some(body.len() as u64),
        ..Declared::default()
    });
    outlet.whole(&body);
    outlet.close()
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a text"))
}

/// The drain rate as a driver sees it, looked at no more than ten times a second.
#[derive(Default)]
pub(crate) struct DrainWatch {
    rate: DrainRate,
    looked: Stamp,
}

impl DrainWatch {
    pub(crate) fn rate(&self) -> &DrainRate {
        &self.rate
    }

    pub(crate) fn look(&mut self, pool: &Pool, now: Stamp) -> &DrainRate {
        if now.since(self.looked) >= Nanos::from_ms(100) {
            self.looked = now;
            self.rate.observe(now, pool.completed());
        }
        &self.rate
    }
}
