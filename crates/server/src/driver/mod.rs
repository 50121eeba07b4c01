//! A driver thread: a current-thread tokio runtime that accepts, receives, answers what
//! needs no pool, and sends what a pool thread could not.
//!
//! Never runs application code, never waits for a disk. An `acceptor` accepts from one socket; the thread of
//! `shared_accept` does so for sockets that drivers share. `handoff` gives connections to this driver or a
//! sibling, by its `mailbox`. `protocol::h1` is the life of one; `handshake_line` bounds what TLS handshakes take of a
//! turn; `table` keeps the deadlines of all, `file_lookup` has files looked up by a thread that may wait for the disk.

mod shared;

mod mailbox;

mod acceptor;
#[cfg(feature = "faults")]
mod faults;
pub(crate) mod handoff;
mod shared_accept;

mod handshake_line;

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
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use files::{Files, LookupKey, LookupResult, Part, Reply, ReplyBody};
use http::{FieldLines, HeadIndex};
use logging::OnFull;
use queueing::{Entry, Idling, Lifetimes};
use telemetry::{Nanos, Stamp};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::exchange::{Exchange, Numbers, Recorder};
use crate::pool::{Job, Pool};
use crate::response::ResponseWriter;
use crate::service::Probe;
use crate::sync::lock;
use crate::transport::TlsBuffers;
use crate::upstream::Upstreams;
use config::typed::Config;
use ipc::ListenerId;
use telemetry::counters::DriverStats;

use table::Table;

pub(crate) use handshake_line::{HandshakeLine, LineFull};
pub(crate) use mailbox::{Ack, Command, Mailbox};
pub use shared::Closing;
pub(crate) use shared::{ServingState, Shared};
pub(crate) use shared_accept::start_accepting;

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
/// At most so many exchanges for a pool, or messages for event loops, wait for the end of a turn. They go over together
/// when the driver goes to sleep, with one wake-up for each thread; the bound keeps the first of a long turn from
/// waiting for the last.
const OUTBOX_LEN_MAX: usize = 32;
/// Longest time that one of these waits while the driver has so much else to do that it does not go to sleep.
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
    pub(crate) state: Cell<ServingState>,
    pub(crate) recorder: Recorder,
    /// The writer of what this driver answers itself; out while it does.
    pub(crate) writer: Cell<Option<ResponseWriter>>,
    /// Out while a connection uses it, so that no borrow of it outlives a step.
    scratch: Cell<Option<Box<Scratch>>>,
    /// Buffers of TLS, as `scratch` has those of protocols.
    tls_buffers: Rc<TlsBuffers>,
    pub(crate) handshakes: HandshakeLine,
    pub(crate) files: RefCell<Files>,
    pub(crate) table: RefCell<Table>,
    /// Its ends of upstream groups.
    pub(crate) upstreams: Upstreams,
    /// Exchanges on their way to their pools, by pool.
    outboxes: RefCell<Vec<Vec<Entry<Job>>>>,
    /// Looks that are under way, with the connections that wait for the same.
    lookups: RefCell<HashMap<LookupKey, Vec<oneshot::Sender<LookupResult>>>>,
    /// Messages for which event loops are to be woken.
    posted: Cell<usize>,
    /// When the oldest of what is to be handed over came: exchanges in outboxes, and messages; NEVER when there is none.
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
    listeners: RefCell<HashMap<ListenerId, Rc<Cell<bool>>>>,
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

/// What waits in the process, for the status page.
#[derive(serde::Serialize)]
struct WaitingCounts {
    connections: usize,
    spoolers: usize,
    openers: usize,
    writers: usize,
    replies_memory_bytes: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Driver>>> = const { RefCell::new(None) };
}

/// Runs a driver on the calling thread until it has drained or was cut; gives the number of exchanges
/// that were cut.
pub(crate) fn run(index: usize, shared: &Arc<Shared>, files: Files) -> io::Result<u64> {
    os::block_sigpipe();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_park(|| {
            CURRENT.with_borrow(|driver| driver.iter().for_each(|driver| driver.before_sleep()));
        })
        .build_local(tokio::runtime::LocalOptions::default())?;
    let driver = Rc::new(Driver::new(index, shared, files));
    CURRENT.set(Some(Rc::clone(&driver)));
    let cut = runtime.block_on(driver.clone().serve());
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
            state: Cell::new(ServingState::Running),
            recorder: Recorder::new(
                &shared.log,
                Arc::clone(&shared.stats),
                shared.traces.clone(),
                OnFull::Wait,
            ),
            writer: Cell::new(None),
            scratch: Cell::new(None),
            tls_buffers: Rc::default(),
            handshakes: HandshakeLine::new(),
            files: RefCell::new(files),
            table: RefCell::default(),
            upstreams: Upstreams::new(&shared.pools, shared.config.limits.head_bytes_max),
            outboxes: RefCell::new(shared.pools.iter().map(|_| Vec::new()).collect()),
            lookups: RefCell::default(),
            posted: Cell::new(0),
            outbox_since: Cell::new(Stamp::NEVER),
            has_handed_over: Cell::new(false),
            cut: Cell::new(0),
            broken: Cell::new(false),
            acceptors: Cell::new(0),
            listeners: RefCell::default(),
            lifetimes: RefCell::default(),
            has_neighbours: Cell::new(false),
            changed: Notify::new(),
            arrival: Notify::new(),
        }
    }

    async fn serve(self: Rc<Self>) -> io::Result<u64> {
        let mut states = self.shared.state.subscribe();
        tokio::task::spawn_local(Rc::clone(&self).tick());
        if self.index == 0 {
            self.look_after_upstreams();
        }
        if self.shared.tls.is_some() {
            let driver = Rc::clone(&self);
            tokio::task::spawn_local(async move { driver.handshakes.run().await });
        }
        loop {
            let state = *states.borrow_and_update();
            // The state before the commands: a connection that is among them begins under the state that holds.
            self.set_state(state);
            self.perform_commands();
            // After the commands: `is_done` closes the mailbox, which must not hold a connection then.
            if state > ServingState::Running && self.is_done() {
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
            // No wake-up is lost between the looks above and this wait: a `Notify` keeps its permit, and a watch
            // compares versions.
            let inside = first_of(self.mailbox().notify.notified(), self.changed.notified());
            first_of(states.changed(), inside).await;
        }
    }

    /// Whether a driver that accepts no more has nothing left to do, and never will have.
    fn is_done(&self) -> bool {
        let shared_acceptor = self.shared.shared_acceptor();
        self.acceptors.get() == 0
            && shared_acceptor.is_none_or(|acceptor| acceptor.ended.get().is_some())
            && self.table.borrow().len() == 0
            // Of connections of its siblings.
            && self.upstreams.running_len() == 0
            // Last, because it has an effect: from here on senders keep their connections.
            && self.mailbox().close_if_empty()
    }

    /// Performs the commands of other threads.
    fn perform_commands(self: &Rc<Self>) {
        let (commands, beat) = self.mailbox().take();
        for command in commands {
            match command {
                Command::StartAccepting(order, socket) => {
                    let started = self.start_accepting(order, socket);
                    self.shared.log_unless_started(started);
                }
                Command::StopAccepting(key) => self.stop_accepting(key),
                // Commands are taken in order, so that all before it are carried out by now.
                Command::Acknowledge(ack) => drop(ack),
                Command::Serve(new) => self.take_over(new),
            }
        }
        let heartbeat = &self.stats().heartbeat;
        if heartbeat.count() != beat {
            heartbeat.set(beat);
            // Nothing else does so without connections, and pool threads go to sleep after the last one.
            self.publish_gauges();
        }
    }

    fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[usize::from(self.index)]
    }

    /// A connection has ended that was accepted at `accepted`.
    pub(crate) fn has_ended(&self, accepted: Stamp) {
        let now = telemetry::now();
        let lived = now.since(accepted);
        self.lifetimes.borrow_mut().ended(lived, now);
    }

    fn set_state(&self, state: ServingState) {
        if self.state.replace(state) == state {
            return;
        }
        if state == ServingState::Aborting {
            self.upstreams.stop_all();
        }
        // A driver that leaves patiently has no idle connection to wake.
        if state > ServingState::Closing {
            self.table.borrow_mut().fire_all();
        } else {
            self.table.borrow_mut().fire_websockets();
        }
        self.shared.wake_acceptors();
    }

    /// Looks at deadlines and publishes the gauges, while there are connections: of clients, or to upstreams.
    async fn tick(self: Rc<Self>) {
        let mut due = Instant::now();
        loop {
            if self.table.borrow().len() == 0 && self.upstreams.is_at_rest() {
                self.publish_gauges();
                // A connection that entered the table since the look has left a permit, and ends this wait at once.
                self.arrival.notified().await;
                due = Instant::now();
            }
            // Waking many takes its time, which is not to make the next look later.
            due = (due + TICK).max(Instant::now());
            tokio::time::sleep_until(due).await;
            let now = telemetry::now();
            self.look_at_deadlines(now).await;
            self.upstreams.look_at_deadlines(now);
            if !self.serving() {
                self.upstreams.drain(now, self.config().websocket().drain);
            }
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
        let mut began = telemetry::now();
        while !rest.is_empty() {
            // One batch, then the woken tasks run: the table is not borrowed while they do.
            let (first, later) = rest.split_at(batch.min(rest.len()));
            rest = later;
            for slot in first {
                // Looked up again by its slot, which may have another connection since, or another deadline: `fire`
                // wakes it only if it is still due.
                self.table.borrow_mut().fire(*slot, now);
            }
            tokio::task::yield_now().await;
            self.flush();
            if telemetry::now().since(began) > DUE_QUICK {
                let is_busy = self.shared.pools.iter().any(|pool| pool.is_at_work());
                batch = if is_busy { batch_of_busy } else { DUE_BATCH };
                if is_busy {
                    tokio::time::sleep(DUE_PAUSE).await;
                }
                began = telemetry::now();
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
            queueing::evictions(open, bound) * table.len()
        } else {
            0
        };
        table.due(now, idling, surplus.div_ceil(open.max(1)))
    }

    fn publish_gauges(&self) {
        for (gauge, count) in self.stats().doing.iter().zip(self.table.borrow().count()) {
            gauge.set(count.into());
        }
        for pool in &self.shared.pools {
            pool.publish_gauges();
        }
        let now = telemetry::now();
        self.shared.log.publish_gauges(now);
        self.shared.spoolers.publish_gauges(now);
    }

    pub(crate) fn stats(&self) -> &DriverStats {
        &self.shared.stats.drivers[usize::from(self.index)]
    }

    /// The buffers of a step; give them back by `put_scratch`.
    pub(crate) fn take_scratch(&self) -> Box<Scratch> {
        // Made at the first use, and anew should a panic have lost it.
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

    /// The writer of this thread; to be put back.
    pub(crate) fn take_writer(&self) -> ResponseWriter {
        self.writer.take().unwrap_or_else(|| {
            // Whether connections end with their next response is known before it begins, on this thread.
            let draining = Arc::default();
            let shared = &self.shared;
            ResponseWriter::new(
                self.config(),
                &shared.replies_memory,
                &shared.load,
                &draining,
            )
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Bounds of the body of a request of this route.
    pub(crate) fn body_limits(&self, route: u16) -> http::Limits {
        let limits = self.config().limits;
        let guards = &self.shared.guards;
        http::Limits {
            body_bytes_max: guards.body_bytes_max(route, limits.body_bytes_max),
            ..limits
        }
    }

    /// Nothing is left to do but wait for the kernel.
    fn before_sleep(&self) {
        self.flush();
        if self.shared.tls.is_some() {
            self.handshakes.begin_turn();
        }
        // Nothing else makes a queue long; and a driver that has just rested would only rest again.
        if self.has_handed_over.take() {
            // The one with most to do: the others hear of what comes meanwhile so much later.
            let pools = self.shared.pools.iter();
            // An upstream's servers have processors of their own.
            let pools = pools.filter(|pool| pool.upstream().is_none());
            if let Some(pool) = pools.max_by_key(|pool| pool.waiting_len()) {
                pool.rest(REST_MAX);
            }
        }
        // A sleeping driver is woken by the next packet, in the middle of the turn of a sibling or of an event loop. One
        // that lets them go first finds all that came meanwhile, without a wake-up.
        if self.has_neighbours.get() || self.has_called_loop() {
            rustix::thread::sched_yield();
        }
    }

    /// Whether an event loop that may run on the same processor was given something. Of a loop that has enough to do
    /// already nobody would gain: what this driver answers itself would wait for it.
    fn has_called_loop(&self) -> bool {
        let shares = self.shared.drivers.share_processors_with(1);
        shares && self.shared.pools.iter().any(|pool| pool.has_called_loop())
    }

    /// Hands what is in the outboxes to the pools, and wakes event loops for messages.
    fn flush(&self) {
        if self.outbox_since.replace(Stamp::NEVER) == Stamp::NEVER {
            return;
        }
        let is_posted = self.posted.take() > 0;
        let mut outboxes = self.outboxes.borrow_mut();
        for (outbox, pool) in outboxes.iter_mut().zip(&self.shared.pools) {
            if !outbox.is_empty() {
                self.has_handed_over.set(true);
                // One lock and at most one wake-up for each sleeping worker, however many exchanges. The borrow is
                // harmless: `push` runs nothing of this driver.
                pool.push(outbox);
            }
            if is_posted {
                pool.wake_loop();
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

    pub(crate) fn hand_over(self: &Rc<Self>, job: Job) {
        let record = &job.exchange.record;
        let pool = usize::from(record.pool.unwrap_or_default());
        let entry = Entry {
            class: record.class,
            queued: record.phases.queued,
            before: record.queued.before,
            item: job,
        };
        let Some(entry) = self.hand_to_upstream(pool, entry) else {
            return;
        };
        if self.outbox_since.get() == Stamp::NEVER {
            self.outbox_since.set(entry.queued);
        }
        let mut outboxes = self.outboxes.borrow_mut();
        outboxes[pool].push(entry);
        if outboxes[pool].len() >= OUTBOX_LEN_MAX {
            // `flush` borrows them itself.
            drop(outboxes);
            self.flush();
        }
    }

    /// A message waits for a sleeping event loop. The loop is woken for all of a turn together, as a pool is for exchanges:
    /// woken for the first, it would run in the place of a driver that has others for it, where they share a processor.
    pub(crate) fn wake_loops_later(&self, now: Stamp) {
        if self.outbox_since.get() == Stamp::NEVER {
            self.outbox_since.set(now);
        }
        self.posted.set(self.posted.get() + 1);
        match self.posted.get() >= OUTBOX_LEN_MAX {
            true => self.flush(),
            false => self.flush_due(now),
        }
    }

    /// All counters as JSON.
    pub(crate) fn status_page(&self) -> Reply {
        let shared = &self.shared;
        for pool in &shared.pools {
            pool.publish_gauges();
        }
        let waiting = WaitingCounts {
            connections: shared.connections.load(Ordering::Relaxed),
            spoolers: shared.spoolers.pool.waiting_len(),
            openers: shared.openers.waiting_len(),
            writers: shared.writers.waiting_len(),
            replies_memory_bytes: shared.replies_memory.bytes(),
        };
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = since_1970.unwrap_or_default().as_secs();
        let certificates = lock(&shared.certificates).clone().into_iter();
        let certificates: Vec<_> = certificates.map(|one| one.at(now)).collect();
        let figures = shared.log.figures();
        let body = shared
            .stats
            .snapshot()
            .page(waiting, figures, &certificates);
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

    /// The answer to a probe.
    pub(crate) fn probe_reply(&self, probe: Probe) -> Reply {
        let (status, text) = match probe {
            Probe::Health => (200, "healthy\n"),
            Probe::Ready if !self.serving() => (503, "draining\n"),
            Probe::Ready if !self.shared.is_loaded => (503, "not loaded\n"),
            Probe::Ready => (200, "ready\n"),
            Probe::Load => {
                let json = Bytes::from(self.shared.load.json(telemetry::now()));
                return probe_reply(200, b"application/json", json);
            }
        };
        let body = Bytes::from_static(text.as_bytes());
        probe_reply(status, b"text/plain; charset=utf-8", body)
    }

    pub(crate) fn serving(&self) -> bool {
        self.state.get() == ServingState::Running
    }
}

fn probe_reply(status: u16, media_type: &[u8], body: Bytes) -> Reply {
    let mut fields = FieldLines::with_capacity(96);
    fields.push(b"Content-Type", media_type);
    fields.push(b"Cache-Control", b"no-store");
    fields.push_decimal(b"Content-Length", body.len() as u64);
    Reply {
        status,
        fields: fields.freeze(),
        body: ReplyBody::One(Part::Memory(body)),
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
