//! Counters: what each driver received and what its connections are doing, what the pool does, and how long
//! the exchanges of each route took.
//!
//! They are in one piece of memory, a `Segment`: of the process alone, or of the file in memory that the supervisor
//! keeps for all processes (`CounterFile`), where they outlive the process. Each counter has one writing thread (or is
//! a relaxed atomic) and any number of readers. A `StatsSnapshot` of them adds up over processes and is written as JSON
//! for the status page. Must not know what the numbers are used for.

mod file;
#[allow(unsafe_code)]
mod placeable;
mod segment;
mod snapshot;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use telemetry::{Ending, Histogram, PhaseHistograms, Spans};

use os::Mapping;

pub use file::{CounterFile, Glance};
pub use segment::{Segment, Shape};
pub use snapshot::{
    ConnectionCounts, Distribution, DriverSnapshot, PoolFigures, PoolSnapshot, RouteSnapshot,
    Seconds, StatsSnapshot, TimeoutCounts,
};

use segment::Layout;

/// All counters of one process, in their memory.
pub struct Counters<'m> {
    /// By their number.
    pub drivers: &'m [DriverStats],
    pools: &'m [PoolStats],
    routes: &'m [RouteStats],
    shape: &'m Shape,
}

/// The counters of this process: their memory stays until it ends.
pub type Stats = Counters<'static>;

/// A segment that is read repeatedly.
pub struct View {
    mapping: Mapping,
    layout: Layout,
    shape: Shape,
}

impl View {
    /// The counters in a segment, by its own header.
    fn new(file: BorrowedFd<'_>, segment: &Segment) -> io::Result<View> {
        let (shape, layout) = segment::read_header(file, segment)?;
        let bytes = usize::try_from(segment.bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::shared(file, segment.offset, bytes).map_err(segment::explained)?;
        Ok(View {
            mapping,
            layout,
            shape,
        })
    }

    fn counters(&self) -> Counters<'_> {
        let (mapping, layout, shape) = (&self.mapping, &self.layout, &self.shape);
        let fits = "the parts of a layout lie within its bytes";
        Counters {
            drivers: mapping.place(layout.drivers, shape.drivers).expect(fits),
            pools: mapping.place(layout.pools, shape.pools.len()).expect(fits),
            routes: (mapping.place(layout.routes, shape.routes.len())).expect(fits),
            shape,
        }
    }

    fn leak(self) -> Stats {
        Box::leak(Box::new(self)).counters()
    }

    /// All of it as it is now.
    pub fn snapshot(&self) -> StatsSnapshot {
        self.counters().snapshot()
    }

    /// Exchanges ended so far.
    pub fn exchanges(&self) -> u64 {
        self.counters().exchanges()
    }

    /// The few numbers of each driver that are looked at often.
    pub fn glances(&self) -> Vec<Glance> {
        self.counters().glances()
    }

    /// The last heartbeat that each driver has answered.
    pub fn beats(&self) -> Vec<u64> {
        self.counters().beats()
    }

    /// Open connections of each driver.
    pub fn open(&self) -> Vec<u32> {
        self.counters().open()
    }
}

impl Stats {
    /// In memory of this process alone.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn new(shape: &Shape) -> io::Result<Stats> {
        let layout = Layout::of(shape)?;
        let bytes = usize::try_from(layout.bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let view = View {
            mapping: Mapping::private(bytes)?,
            layout,
            shape: shape.clone(),
        };
        Ok(view.leak())
    }

    /// In the segment of the file of all counters that was allotted for this shape.
    ///
    /// # Errors
    /// `InvalidData`: the segment does not lie in the file, or was made for another shape, or by a version that
    /// counts otherwise. Else, the kernel's.
    pub fn shared(file: BorrowedFd<'_>, segment: &Segment, shape: &Shape) -> io::Result<Stats> {
        let view = View::new(file, segment)?;
        if view.shape != *shape {
            return Err(segment::fault(
                "it was made for other drivers, routes or pools",
            ));
        }
        Ok(view.leak())
    }
}

impl<'m> Counters<'m> {
    /// One route's counters, to record into.
    pub fn route(&self, index: u16) -> &'m RouteStats {
        &self.routes[usize::from(index)]
    }

    /// One pool's counters, to be kept where it counts.
    ///
    /// # Panics
    /// The shape has no such pool.
    pub fn pool(&self, index: u16) -> &'m PoolStats {
        &self.pools[usize::from(index)]
    }

    /// Exchanges ended so far.
    pub fn exchanges(&self) -> u64 {
        let counts = self.routes.iter().map(RouteStats::exchanges);
        counts.fold(0, u64::saturating_add)
    }

    /// All of it as it is now.
    pub fn snapshot(&self) -> StatsSnapshot {
        let drivers = self.drivers.iter().enumerate();
        let pools = self.pools.iter().zip(&self.shape.pools);
        let routes = self.routes.iter().zip(&self.shape.routes);
        StatsSnapshot {
            drivers: drivers
                .map(|(index, driver)| driver.snapshot(index))
                .collect(),
            pools: pools.map(|(pool, name)| pool.snapshot(name)).collect(),
            routes: routes.map(|(route, name)| route.snapshot(name)).collect(),
        }
    }

    /// The few numbers of each driver that are looked at often.
    fn glances(&self) -> Vec<Glance> {
        let glance = |driver: &DriverStats| Glance {
            accepted: driver.accepted.count(),
            received: driver.received.count(),
            stall_takeovers: driver.stall_takeovers.count(),
            open: driver.open.load(Ordering::Relaxed),
        };
        self.drivers.iter().map(glance).collect()
    }

    /// The last heartbeat that each driver has noted.
    pub fn beats(&self) -> Vec<u64> {
        let beats = self.drivers.iter().map(|driver| &driver.heartbeat);
        beats
            .map(|heartbeat| heartbeat.load(Ordering::Relaxed))
            .collect()
    }

    /// Open connections of each driver.
    pub fn open(&self) -> Vec<u32> {
        let open = self.drivers.iter().map(|driver| &driver.open);
        open.map(|open| open.load(Ordering::Relaxed)).collect()
    }
}

/// One driver's counters. On cache lines of their own: another driver's are next to them.
#[derive(Default)]
#[repr(C, align(128))]
pub struct DriverStats {
    /// Connections accepted.
    pub accepted: Counter,
    /// Complete requests received.
    pub received: Counter,
    /// Requests whose body went to a file.
    pub spooled: Counter,
    /// Heads that arrived in more than one piece.
    pub partial: Counter,
    /// Requests refused for breaking the protocol or a limit, and connections that failed.
    pub errors: Counter,
    /// Connections refused because their client had too many.
    pub crowded_clients: Counter,
    /// Connections accepted and given to another driver of the process.
    pub balanced_out: Counter,
    /// Connections that another driver of the process has accepted.
    pub balanced_in: Counter,
    /// Connections accepted from the socket of a driver that did not come to it.
    pub stall_takeovers: Counter,
    /// Connections that arrived on the processor that the driver is pinned to; only where they are steered so.
    pub local_cpu: Counter,
    /// Connections that a deadline ended, by `Timeout`.
    timeouts: [Counter; Timeout::COUNT],
    /// The last heartbeat that the driver has answered.
    pub heartbeat: AtomicU64,
    /// Open connections; at any time exact.
    pub open: AtomicU32,
    /// What the connections are doing, by `Doing`; a few hundred milliseconds old.
    pub doing: [AtomicU32; Doing::COUNT],
}

/// A counter with a single writing thread: no locked instruction is needed to add.
#[derive(Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the owning thread may call it.
    pub fn add(&self) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds one from any thread. For a counter that is never added to with `add`.
    pub fn add_from_any(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// What it is at.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Which deadline ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timeout {
    /// Its head was not complete in time.
    Head,
    /// Its body came too slowly.
    Body,
    /// It took its reply too slowly.
    Send,
    /// It was idle for too long.
    Idle,
    /// It was idle, and others needed its place before its time was up.
    Crowded,
    /// Its response was cut: `reply_memory_max` was used up, and its client had taken nothing for longest.
    Memory,
}

impl Timeout {
    const COUNT: usize = 6;
}

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// Idle between requests, or new and silent.
    Idle,
    /// Receiving a head or a body into memory.
    Reading,
    /// Receiving a body into a file.
    Spooling,
    /// Its exchange waits for a pool thread or runs on one.
    Away,
    /// Its reply is being sent by the driver.
    Sending,
    /// Its last bytes are read and thrown away before it closes.
    Closing,
}

impl Doing {
    /// How many there are.
    pub const COUNT: usize = 6;
}

impl DriverStats {
    /// A deadline has ended a connection.
    pub fn timed_out(&self, timeout: Timeout) {
        self.timeouts[timeout as usize].add();
    }

    fn snapshot(&self, index: usize) -> DriverSnapshot {
        DriverSnapshot {
            driver: index,
            accepted: self.accepted.count(),
            received: self.received.count(),
            spooled: self.spooled.count(),
            partial: self.partial.count(),
            errors: self.errors.count(),
            crowded_clients: self.crowded_clients.count(),
            balanced_out: self.balanced_out.count(),
            balanced_in: self.balanced_in.count(),
            stall_takeovers: self.stall_takeovers.count(),
            local_cpu: self.local_cpu.count(),
            heartbeat: self.heartbeat.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed).into(),
            timeouts: self.timeouts(),
            connections: self.connections(),
        }
    }

    fn timeouts(&self) -> TimeoutCounts {
        let of = |timeout: Timeout| self.timeouts[timeout as usize].count();
        TimeoutCounts {
            head: of(Timeout::Head),
            body: of(Timeout::Body),
            send: of(Timeout::Send),
            idle: of(Timeout::Idle),
            evicted_idle: of(Timeout::Crowded),
            memory: of(Timeout::Memory),
        }
    }

    fn connections(&self) -> ConnectionCounts {
        let of = |doing: Doing| u64::from(self.doing[doing as usize].load(Ordering::Relaxed));
        ConnectionCounts {
            idle: of(Doing::Idle),
            reading: of(Doing::Reading),
            spooling: of(Doing::Spooling),
            in_pool: of(Doing::Away),
            sending: of(Doing::Sending),
            closing: of(Doing::Closing),
        }
    }
}

/// One pool's counters. They are always current but for `threads`, `idle` and `waiting`, which are published
/// now and then from the pool's queue, which counts for itself.
#[derive(Default)]
#[repr(C, align(128))]
pub struct PoolStats {
    /// Exchanges that threads are running.
    pub running: AtomicU64,
    /// Exchanges that threads have finished.
    pub completed: AtomicU64,
    /// Exchanges refused because the queue was full.
    pub refused: AtomicU64,
    /// Exchanges refused because the pool was overloaded.
    pub shed: AtomicU64,
    /// Exchanges refused because they had waited too long for a thread.
    pub expired: AtomicU64,
    /// Streamed responses whose worker had to wait for the client.
    pub stream_waits: AtomicU64,
    /// Routes that were sent here because they are slow.
    pub routes_moved: AtomicU64,
    /// Those of them that have left again.
    pub routes_returned: AtomicU64,
    /// Threads that have begun.
    pub threads_started: AtomicU64,
    /// Threads that have ended, those that were lost included.
    pub threads_ended: AtomicU64,
    /// `queueing::Pressure` in its order.
    pub pressure: AtomicU64,
    /// Threads that there are.
    pub threads: AtomicU64,
    /// Fewest threads that there are to be.
    pub threads_min: AtomicU64,
    /// Most threads that there may be.
    pub threads_max: AtomicU64,
    /// Threads asleep.
    pub idle: AtomicU64,
    /// Exchanges in the queue.
    pub waiting: AtomicU64,
    /// Exchanges that the queue takes.
    pub waiting_max: AtomicU64,
    /// Of a thousand parts of the threads' time at work, those in which they wait for the interpreter, and one
    /// more; 0 where they are not measured, as in unwritten memory.
    gil_share_permille_more: AtomicU64,
}

impl PoolStats {
    /// The share of the threads' time at work in which they wait for the interpreter, 0 to 1; `None`: nobody
    /// measures it.
    pub fn set_gil_share(&self, share: Option<f64>) {
        let more = share.map_or(0, |share| (share * 1000.0) as u64 + 1);
        self.gil_share_permille_more.store(more, Ordering::Relaxed);
    }

    fn snapshot(&self, name: &str) -> PoolSnapshot {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        PoolSnapshot {
            name: name.to_owned(),
            figures: PoolFigures {
                pressure: of(&self.pressure),
                threads: of(&self.threads),
                threads_min: of(&self.threads_min),
                threads_max: of(&self.threads_max),
                idle: of(&self.idle),
                running: of(&self.running),
                waiting: of(&self.waiting),
                waiting_max: of(&self.waiting_max),
                gil_share_permille: of(&self.gil_share_permille_more).checked_sub(1),
                completed: of(&self.completed),
                refused: of(&self.refused),
                shed: of(&self.shed),
                expired: of(&self.expired),
                stream_waits: of(&self.stream_waits),
                routes_moved: of(&self.routes_moved),
                routes_returned: of(&self.routes_returned),
                threads_started: of(&self.threads_started),
                threads_ended: of(&self.threads_ended),
            },
        }
    }
}

/// One route's exchanges.
#[derive(Default)]
#[repr(C, align(128))]
pub struct RouteStats {
    /// By hundreds of the status; index 0: no reply.
    statuses: [AtomicU64; 6],
    /// Exchanges that did not end complete.
    incomplete: AtomicU64,
    sent_bytes: AtomicU64,
    phases: PhaseHistograms,
}

impl RouteStats {
    /// An exchange of the route has ended.
    pub fn record(&self, spans: &Spans, status: u16, ending: Ending, sent_bytes: u64) {
        self.phases.record(spans);
        let class = usize::from(status / 100).min(5);
        self.statuses[class].fetch_add(1, Ordering::Relaxed);
        self.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
        if ending != Ending::Complete && ending != Ending::Refused {
            self.incomplete.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Exchanges ended so far.
    fn exchanges(&self) -> u64 {
        let statuses = self.statuses.iter();
        let counts = statuses.map(|count| count.load(Ordering::Relaxed));
        counts.fold(0, u64::saturating_add)
    }

    fn snapshot(&self, name: &str) -> RouteSnapshot {
        let class = |class: usize| self.statuses[class].load(Ordering::Relaxed);
        let spread = |histogram: &Histogram| Distribution(histogram.snapshot());
        RouteSnapshot {
            route: name.to_owned(),
            none: class(0),
            informational: class(1),
            successful: class(2),
            redirection: class(3),
            client_error: class(4),
            server_error: class(5),
            incomplete: self.incomplete.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            seconds: Seconds {
                receive: spread(&self.phases.receive),
                queue: spread(&self.phases.queue),
                run: spread(&self.phases.run),
                send: spread(&self.phases.send),
                total: spread(&self.phases.total),
                gil: spread(&self.phases.gil),
                cpu: spread(&self.phases.cpu),
            },
        }
    }
}
