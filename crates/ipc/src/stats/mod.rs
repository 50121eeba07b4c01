//! Counters in memory: of drivers, pools and routes, as the tables of `telemetry::counters` have them.
//!
//! They are in one piece of memory, a `Segment`: of the process alone, or of the file in memory that the supervisor
//! keeps for all processes (`CounterFile`), where they outlive the process. A `StatsSnapshot` of them adds up over
//! processes.

#[allow(unsafe_code)]
mod placeable;

mod file;
mod rates;
mod segment;
mod slots;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;

use crate::history::RequestHistory;
use os::Mapping;
use telemetry::counters::{
    DriverStats, EventLoopStats, LOG_NAMES, ListedRequest, LogStats, PoolStats, RouteCounters,
    RouteDurations, RouteStats, RunningTable, SpoolStats, StatsSnapshot, StatsSum, UpstreamStats,
};

pub use file::CounterFile;
pub(crate) use file::memory;
pub use rates::SharedRates;
pub use segment::{CountedServer, Segment, Shape};
pub use slots::{SharedSlots, SlotTry};

pub use placeable::Placed;
use segment::Layout;

/// Routes that are added up before whoever waits for the processor gets it: some 40 us.
const ROUTES_AT_ONCE: usize = 32;

/// All counters of one process, in their memory.
pub struct Counters<'m> {
    /// By their number.
    pub drivers: &'m [Placed<DriverStats>],
    /// By their number; none where nothing has a pool.
    pub pools: &'m [Placed<PoolStats>],
    /// The event loop, whether there is one or not.
    pub event_loop: &'m EventLoopStats,
    /// The requests that run.
    pub running: &'m RunningTable,
    /// The servers of upstreams, by their number.
    pub servers: &'m [Placed<UpstreamStats>],
    /// The logs, in the order of their names.
    pub logs: &'m [Placed<LogStats>],
    /// The spool folder.
    pub spool: &'m SpoolStats,
    /// The history, for a process that serves under a supervisor.
    pub history: Option<&'m RequestHistory>,
    routes: &'m [Placed<RouteStats>],
    durations: &'m [Placed<RouteDurations>],
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
        let mapping = Mapping::shared(file, segment.offset, bytes, layout.durations)
            .map_err(segment::explained)?;
        Ok(View {
            mapping,
            layout,
            shape,
        })
    }

    /// The counters in it.
    pub fn counters(&self) -> Counters<'_> {
        let (mapping, layout, shape) = (&self.mapping, &self.layout, &self.shape);
        let fits = "the parts of a layout lie within its bytes";
        Counters {
            drivers: mapping.place(layout.drivers, shape.drivers).expect(fits),
            pools: mapping.place(layout.pools, shape.pools.len()).expect(fits),
            event_loop: &mapping
                .place::<Placed<EventLoopStats>>(layout.event_loop, 1)
                .expect(fits)[0],
            history: None,
            routes: (mapping.place(layout.routes, shape.routes.len())).expect(fits),
            durations: (mapping.place(layout.durations, shape.routes.len())).expect(fits),
            running: &mapping
                .place::<Placed<RunningTable>>(layout.running, 1)
                .expect(fits)[0],
            servers: (mapping.place(layout.servers, shape.servers.len())).expect(fits),
            logs: mapping.place(layout.logs, LOG_NAMES.len()).expect(fits),
            spool: &mapping
                .place::<Placed<SpoolStats>>(layout.spool, 1)
                .expect(fits)[0],
            shape,
        }
    }

    fn leak(self) -> Stats {
        // For the life of the process: threads that are cut at its end may count until the last moment.
        let stats = Box::leak(Box::new(self)).counters();
        stats
            .running
            .set_clock(telemetry::machine_now(), telemetry::now());
        stats
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
            mapping: Mapping::private(bytes, layout.durations)?,
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
    pub fn route(&self, index: u16) -> RouteCounters<'m> {
        self.numbered_route(usize::from(index))
    }

    fn numbered_route(&self, index: usize) -> RouteCounters<'m> {
        RouteCounters {
            stats: &self.routes[index],
            durations: &self.durations[index],
        }
    }

    /// One pool's counters, to be kept where it counts.
    ///
    /// # Panics
    /// The shape has no such pool.
    pub fn pool(&self, index: u16) -> &'m PoolStats {
        &self.pools[usize::from(index)]
    }

    /// The requests that run at present, as far as they are listed.
    pub fn running(&self) -> Vec<ListedRequest> {
        self.running.list(telemetry::machine_now()).collect()
    }

    /// How many more run.
    pub fn unlisted(&self) -> u64 {
        self.running.unlisted()
    }

    /// The name of a route; empty where there is none.
    pub fn route_name(&self, index: u16) -> &str {
        let name = self.shape.routes.get(usize::from(index));
        name.map_or("", String::as_str)
    }

    /// The name of a pool; empty where there is none.
    pub fn pool_name(&self, index: u16) -> &str {
        let name = self.shape.pools.get(usize::from(index));
        name.map_or("", String::as_str)
    }

    /// Exchanges ended so far.
    pub fn exchanges(&self) -> u64 {
        let counts = self.routes.iter().map(|route| route.numbers().exchanges());
        counts.fold(0, u64::saturating_add)
    }

    /// Exchanges answered with 5xx so far.
    pub fn server_errors(&self) -> u64 {
        let counts = self.routes.iter().map(|route| route.numbers().server_error);
        counts.fold(0, u64::saturating_add)
    }

    /// Adds all of it, as it is now, to what others have counted.
    // Counter by counter, without a lock: a sum may be some requests apart from itself, never wrong for good.
    pub fn add_to(&self, sum: &mut StatsSum) {
        for (number, driver) in self.drivers.iter().enumerate() {
            sum.add_driver(number, driver);
        }
        for (index, (pool, name)) in self.pools.iter().zip(&self.shape.pools).enumerate() {
            sum.add_pool(index, name, pool);
        }
        sum.add_event_loop(self.event_loop);
        let routes = || (0..self.routes.len()).map(|index| self.numbered_route(index));
        let (mut heads, mut counts) = (routes().skip(2), routes().skip(1));
        for (index, (route, name)) in routes().zip(&self.shape.routes).enumerate() {
            // The memory of a route is hardly ever in a cache, and to wait for it takes longer than to add it up.
            heads.next().inspect(RouteCounters::prefetch_heads);
            counts.next().inspect(RouteCounters::prefetch_counts);
            if index % ROUTES_AT_ONCE == ROUTES_AT_ONCE - 1 {
                // All of them take milliseconds: a driver that wakes on this processor would wait for its end.
                std::thread::yield_now();
            }
            sum.add_route(index, name, route);
        }
        for (index, (server, name)) in self.servers.iter().zip(&self.shape.servers).enumerate() {
            sum.add_upstream(index, (&name.upstream, &name.address), server);
        }
        for (log, name) in self.logs.iter().zip(LOG_NAMES) {
            sum.add_log(name, log);
        }
        sum.add_spool(self.spool);
    }

    /// All of it as it is now.
    pub fn snapshot(&self) -> StatsSnapshot {
        let mut sum = StatsSum::new();
        self.add_to(&mut sum);
        sum.finish()
    }
}
