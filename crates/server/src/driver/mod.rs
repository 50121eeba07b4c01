//! A driver thread: a current-thread tokio runtime that accepts, receives, answers what
//! needs no pool, and sends what a pool thread could not.
//!
//! Never runs application code, never waits for a disk. An `acceptor` accepts from one socket; the thread of
//! `shared_accept` does so for sockets that drivers share. `handoff` gives connections to this driver or a
//! sibling, by its `mailbox`. `protocol::h1` is the life of one; `table` keeps the deadlines of all,
//! `file_lookup` has files looked up by a thread that may wait for the disk.

mod shared;

mod mailbox;

mod acceptor;
#[cfg(feature = "faults")]
mod faults;
pub(crate) mod handoff;
mod shared_accept;

mod file_lookup;
pub(crate) mod table;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use measure::{Nanos, Stamp};
use stage::{Entry, Idling, Lifetimes};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use wire::{FieldLines, HeadIndex};

use crate::channel::EarKey;
use crate::config::meant::Config;
use crate::exchange::{Exchange, Numbers, Recorder};
use crate::handler::files::{Files, LookKey, Looked};
use crate::log::Patience;
use crate::pool::{Job, Pool};
use crate::response::{Part, Reply, ReplyBody, ResponseWriter};
use crate::stats::DriverStats;

use mailbox::Mailbox;
use table::Table;

pub(crate) use mailbox::{Ack, Command};
pub use shared::Closing;
pub(crate) use shared::{Mood, Shared};
pub(crate) use shared_accept::hear;

/// How often deadlines are looked at: they hold to within this.
const TICK: Duration = Duration::from_millis(250);
/// Connections woken by their deadlines at once, before those that have something to do get their turn: to
/// close one that took nothing costs 55 us, most of them the kernel's.
const DUE_BATCH: usize = 2;
/// When very many are due beside a pool at work, they are woken in about this number of batches.
const DUE_PAUSES_MAX: usize = 250;
/// Batches that took longer than this together did more than look.
const DUE_QUICK: Nanos = Nanos(100_000);
/// The time that a pool at work has to itself then: its threads may have no processor but the driver's.
const DUE_PAUSE: Duration = Duration::from_millis(1);
/// Exchanges that are handed to the pool at once at the latest. A turn's exchanges go over together
/// when the driver goes to sleep, with one lock and one wake-up per pool thread; the bound keeps the
/// first of a long turn from waiting for the last.
const OUTBOX_LEN_MAX: usize = 16;
/// Longest time that an exchange waits in the outbox while the driver has so much else to do that it
/// does not go to sleep.
const OUTBOX_AGE_MAX: Nanos = Nanos(100_000);
/// Longest rest of a driver whose pool has enough to do: what comes in for the driver itself waits so
/// long at most.
const REST_MAX: Nanos = Nanos(500_000);
/// Bytes read in one call.
const INPUT_BYTES: usize = 64 << 10;

/// One driver thread's own things.
pub(crate) struct Driver {
    pub(crate) index: u16,
    pub(crate) numbers: Numbers,
    pub(crate) shared: Arc<Shared>,
    pub(crate) mood: Cell<Mood>,
    pub(crate) recorder: Recorder,
    /// The writer of what this driver answers itself; out while it does.
    writer: Cell<Option<ResponseWriter>>,
    /// Out while a connection uses it, so that no borrow of it outlives a step.
    scratch: Cell<Option<Box<Scratch>>>,
    pub(crate) files: RefCell<Files>,
    pub(crate) table: RefCell<Table>,
    /// Exchanges on their way to their pools, by pool.
    outboxes: RefCell<Vec<Vec<Entry<Job>>>>,
    /// Looks that are under way, with the connections that wait for the same.
    looks: RefCell<HashMap<LookKey, Vec<oneshot::Sender<Looked>>>>,
    /// When the oldest exchange in an outbox was queued; NEVER when there is none.
    outbox_since: Cell<Stamp>,
    /// Exchanges were handed to pools since this driver slept last.
    has_handed_over: Cell<bool>,
    /// Exchanges cut by the drain deadline.
    pub(crate) cut: Cell<u64>,
    /// A task panicked.
    pub(crate) broken: Cell<bool>,
    /// Acceptors that have not ended.
    acceptors: Cell<usize>,
    /// Sockets that are accepted from, each until its cell is false.
    ears: RefCell<HashMap<EarKey, Rc<Cell<bool>>>>,
    lifetimes: RefCell<Lifetimes>,
    /// Whether siblings with connections share the processors, as of the last look.
    has_neighbours: Cell<bool>,
    /// Notified when a connection leaves, or an acceptor ends.
    pub(crate) changed: Notify,
    /// Notified when a connection enters the table.
    pub(crate) arrival: Notify,
}

/// Buffers that only live within one step, shared by all connections: an idle one needs none.
pub(crate) struct Scratch {
    pub(crate) input: Box<[u8]>,
    pub(crate) head: HeadIndex,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Driver>>> = const { RefCell::new(None) };
}

/// Runs a driver on the calling thread until it has drained or was cut; gives the number of exchanges
/// that were cut.
pub(crate) fn run(index: usize, shared: &Arc<Shared>, files: Files) -> io::Result<u64> {
    crate::sys::block_sigpipe();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_park(|| {
            CURRENT.with_borrow(|driver| driver.iter().for_each(|driver| driver.before_sleep()));
        })
        .build_local(tokio::runtime::LocalOptions::default())?;
    let driver = Rc::new(Driver::new(index, shared, files));
    CURRENT.set(Some(Rc::clone(&driver)));
    let cut = runtime.block_on(driver.clone().live());
    CURRENT.set(None);
    cut
}

impl Driver {
    fn new(index: usize, shared: &Arc<Shared>, files: Files) -> Self {
        let index = u16::try_from(index).expect("drivers are at most 1,024");
        Self {
            index,
            numbers: Numbers::of_driver(index),
            shared: Arc::clone(shared),
            mood: Cell::new(Mood::Serving),
            recorder: Recorder::new(&shared.log, Arc::clone(&shared.stats), Patience::Now),
            writer: Cell::new(None),
            scratch: Cell::new(None),
            files: RefCell::new(files),
            table: RefCell::default(),
            outboxes: RefCell::new(shared.pools.iter().map(|_| Vec::new()).collect()),
            looks: RefCell::default(),
            outbox_since: Cell::new(Stamp::NEVER),
            has_handed_over: Cell::new(false),
            cut: Cell::new(0),
            broken: Cell::new(false),
            acceptors: Cell::new(0),
            ears: RefCell::default(),
            lifetimes: RefCell::default(),
            has_neighbours: Cell::new(false),
            changed: Notify::new(),
            arrival: Notify::new(),
        }
    }

    async fn live(self: Rc<Self>) -> io::Result<u64> {
        let mut moods = self.shared.mood.subscribe();
        tokio::task::spawn_local(Rc::clone(&self).tick());
        loop {
            let mood = *moods.borrow_and_update();
            self.set_mood(mood);
            self.obey();
            if mood > Mood::Serving && self.is_done() {
                self.flush();
                return Ok(self.cut.get());
            }
            if self.broken.get() {
                return Err(io::Error::other("a connection's task panicked"));
            }
            let shared_acceptor = self.shared.shared_acceptor();
            if shared_acceptor.is_some_and(|acceptor| acceptor.ended.get() == Some(&false)) {
                return Err(io::Error::other("the thread that accepts for all failed"));
            }
            let inside = first_of(self.mailbox().notify.notified(), self.changed.notified());
            first_of(moods.changed(), inside).await;
        }
    }

    /// Whether a driver that accepts no more has nothing left to do, and never will have.
    fn is_done(&self) -> bool {
        let shared_acceptor = self.shared.shared_acceptor();
        self.acceptors.get() == 0
            && shared_acceptor.is_none_or(|acceptor| acceptor.ended.get().is_some())
            && self.table.borrow().len() == 0
            && self.mailbox().close_if_empty()
    }

    /// Carries out what other threads want of this one.
    fn obey(self: &Rc<Self>) {
        let (commands, beat) = self.mailbox().take();
        for command in commands {
            match command {
                Command::StartAccepting(order, socket) => {
                    let started = self.start_accepting(order, socket);
                    self.shared.log_unless_started(started);
                }
                Command::StopAccepting(key) => self.stop_accepting(key),
                Command::Acknowledge(ack) => drop(ack),
                Command::Serve(new) => self.take_over(new),
            }
        }
        if self.stats().beat.swap(beat, Ordering::Relaxed) != beat {
            // Nothing else does so without connections, and pool threads go to sleep after the last one.
            self.publish_gauges();
        }
    }

    fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[usize::from(self.index)]
    }

    /// A connection has ended that was accepted at `accepted`.
    pub(crate) fn has_ended(&self, accepted: Stamp) {
        let now = measure::now();
        let mut lifetimes = self.lifetimes.borrow_mut();
        lifetimes.ended(now.since(accepted), now);
        if let Some(until) = lifetimes.brief_until()
            && let Some(acceptor) = self.shared.shared_acceptor()
        {
            acceptor.tell_brief_until(until);
        }
    }

    fn set_mood(&self, mood: Mood) {
        if self.mood.replace(mood) == mood {
            return;
        }
        // A driver that leaves patiently has no idle connection to wake.
        if mood > Mood::Leaving {
            self.table.borrow_mut().fire_all();
        }
        self.shared.wake_acceptors();
    }

    /// Looks at deadlines and publishes the gauges, while there are connections.
    async fn tick(self: Rc<Self>) {
        let mut due = Instant::now();
        loop {
            if self.table.borrow().len() == 0 {
                self.publish_gauges();
                self.arrival.notified().await;
                due = Instant::now();
            }
            // Waking many takes its time, which is not to make the next look later.
            due = (due + TICK).max(Instant::now());
            tokio::time::sleep_until(due).await;
            let now = measure::now();
            self.look_at_deadlines(now).await;
            self.change_files(|files| files.close_idle(now));
            self.shared.replies_memory.relieve(now);
            self.publish_gauges();
            self.look_for_neighbours();
        }
    }

    /// Siblings that have connections and may run on the same processor.
    fn look_for_neighbours(&self) {
        let mine = usize::from(self.index);
        let mut siblings = self.shared.stats.drivers.iter().enumerate();
        let is_busy = siblings
            .any(|(index, driver)| index != mine && driver.open.load(Ordering::Relaxed) > 0);
        let shares = self.shared.drivers.share_processors();
        self.has_neighbours.set(shares && is_busy);
    }

    /// Wakes the connections whose time is up, a few at a time: that thousands are closed in one moment is not
    /// to hold up those that are served.
    async fn look_at_deadlines(&self, now: Stamp) {
        let due = self.due(now);
        let batch_of_busy = DUE_BATCH.max(due.len() / DUE_PAUSES_MAX);
        let mut rest = due.as_slice();
        let mut batch = DUE_BATCH;
        let mut began = measure::now();
        while !rest.is_empty() {
            let (first, later) = rest.split_at(batch.min(rest.len()));
            rest = later;
            for slot in first {
                self.table.borrow_mut().fire(*slot, now);
            }
            tokio::task::yield_now().await;
            self.flush();
            if measure::now().since(began) > DUE_QUICK {
                let is_busy = self.shared.pools.iter().any(|pool| pool.is_at_work());
                batch = if is_busy { batch_of_busy } else { DUE_BATCH };
                if is_busy {
                    tokio::time::sleep(DUE_PAUSE).await;
                }
                began = measure::now();
            }
        }
    }

    /// The connections whose time is up. An idle one has the less time the fuller the table is; once the
    /// bound was reached those that have been idle for the longest time go at once, from each driver its share,
    /// until there is room again.
    fn due(&self, now: Stamp) -> Vec<usize> {
        let open = self.shared.connections.load(Ordering::Relaxed);
        let config = self.config();
        let bound = config.listen.connections_max;
        let timeouts = &config.timeouts;
        let idling = Idling::new(open, bound, timeouts.head, timeouts.idle);
        let table = self.table.borrow();
        let surplus = if self.shared.full.load(Ordering::Relaxed) {
            stage::evictions(open, bound) * table.len()
        } else {
            0
        };
        table.due(now, idling, surplus.div_ceil(open.max(1)))
    }

    fn publish_gauges(&self) {
        for (gauge, count) in self.stats().doing.iter().zip(self.table.borrow().count()) {
            gauge.store(count, Ordering::Relaxed);
        }
        for pool in &self.shared.pools {
            pool.publish_gauges();
        }
    }

    pub(crate) fn stats(&self) -> &DriverStats {
        &self.shared.stats.drivers[usize::from(self.index)]
    }

    /// The buffers of a step; give them back by `put_scratch`.
    pub(crate) fn take_scratch(&self) -> Box<Scratch> {
        self.scratch.take().unwrap_or_else(|| {
            Box::new(Scratch {
                input: vec![0; INPUT_BYTES].into_boxed_slice(),
                head: HeadIndex::new(),
            })
        })
    }

    pub(crate) fn put_scratch(&self, scratch: Box<Scratch>) {
        self.scratch.set(Some(scratch));
    }

    /// The writer of this thread; give it back by `put_writer`.
    pub(crate) fn take_writer(&self) -> ResponseWriter {
        self.writer.take().unwrap_or_else(|| {
            // Whether connections end with their next response is known before it begins, on this thread.
            let draining = Arc::default();
            ResponseWriter::new(self.config(), &self.shared.replies_memory, &draining)
        })
    }

    pub(crate) fn put_writer(&self, writer: ResponseWriter) {
        self.writer.set(Some(writer));
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Nothing is left to do but wait for the kernel.
    fn before_sleep(&self) {
        self.flush();
        // Nothing else makes a queue long; and a driver that has just rested would only rest again.
        if self.has_handed_over.take() {
            // The one with most to do: the others hear of what comes meanwhile so much later.
            let pools = self.shared.pools.iter();
            if let Some(pool) = pools.max_by_key(|pool| pool.waiting_len()) {
                pool.rest(REST_MAX);
            }
        }
        // A sleeping driver is woken by the next packet, in the middle of a sibling's turn. One that lets its
        // siblings go first finds all that came meanwhile, and nobody had to be woken.
        if self.has_neighbours.get() {
            rustix::thread::sched_yield();
        }
    }

    /// Hands what is in the outboxes to the pools.
    fn flush(&self) {
        if self.outbox_since.replace(Stamp::NEVER) == Stamp::NEVER {
            return;
        }
        self.has_handed_over.set(true);
        let mut outboxes = self.outboxes.borrow_mut();
        for (outbox, pool) in outboxes.iter_mut().zip(&self.shared.pools) {
            if !outbox.is_empty() {
                pool.push(outbox);
            }
        }
    }

    /// Hands over what has waited long enough, however busy this driver is.
    pub(crate) fn flush_due(&self, now: Stamp) {
        if self.outbox_since.get().plus(OUTBOX_AGE_MAX) <= now {
            self.flush();
        }
    }

    /// The pool of an exchange that a worker is to run.
    ///
    /// # Panics
    /// The exchange has none.
    pub(crate) fn pool_of(&self, exchange: &Exchange) -> &Arc<Pool> {
        let pool = exchange.record.pool;
        &self.shared.pools[usize::from(pool.expect("the service has given it a pool"))]
    }

    pub(crate) fn hand_over(&self, job: Job) {
        let record = &job.exchange.record;
        let pool = usize::from(record.pool.unwrap_or_default());
        let entry = Entry {
            class: record.class,
            queued: record.phases.queued,
            before: record.queued.before,
            item: job,
        };
        if self.outbox_since.get() == Stamp::NEVER {
            self.outbox_since.set(entry.queued);
        }
        let mut outboxes = self.outboxes.borrow_mut();
        outboxes[pool].push(entry);
        if outboxes[pool].len() >= OUTBOX_LEN_MAX {
            drop(outboxes);
            self.flush();
        }
    }

    /// All counters as JSON.
    pub(crate) fn status_page(&self) -> Reply {
        let shared = &self.shared;
        for pool in &shared.pools {
            pool.publish_gauges();
        }
        let waiting = format!(
            "{{\"connections\":{},\"spoolers\":{},\"openers\":{},\"writers\":{},\"replies_memory_bytes\":{}}}",
            shared.connections.load(Ordering::Relaxed),
            shared.spoolers.pool.waiting_len(),
            shared.openers.waiting_len(),
            shared.writers.waiting_len(),
            shared.replies_memory.bytes()
        );
        let body = shared.stats.counted().page(&waiting, &shared.log.json());
        let mut fields = FieldLines::with_capacity(128);
        fields.push(b"Content-Type", b"application/json");
        fields.push(b"Cache-Control", b"no-store");
        fields.push_decimal(b"Content-Length", body.len() as u64);
        let body = ReplyBody::One(Part::Memory(Bytes::from(body)));
        Reply {
            status: 200,
            fields: fields.freeze(),
            body,
        }
    }

    pub(crate) fn serving(&self) -> bool {
        self.mood.get() == Mood::Serving
    }
}

/// Until one of the two is ready.
async fn first_of(one: impl Future, other: impl Future) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        // Both are polled, so that both wake this task.
        let one = one.as_mut().poll(context).map(drop);
        let other = other.as_mut().poll(context).map(drop);
        if one.is_ready() { one } else { other }
    })
    .await;
}
