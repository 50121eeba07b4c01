//! Counters: what each driver received and what its connections are doing, what the pool does, and how long
//! the exchanges of each route took.
//!
//! They lie in one piece of memory, a `Segment`: of the process alone, or of the file in memory that the
//! supervisor keeps for all processes (`CounterFile`), where they outlive the process. Each counter has one
//! writing thread (or is a relaxed atomic); anybody may read. At rest they are `Counted`, which adds up over
//! processes and is written as JSON for the status page. Must not know what the numbers are used for.

mod counted;
mod driver;
mod file;
mod pool;
mod route;
mod segment;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sys::{Mapping, Placed};

pub use counted::{
    Connections, Counted, Distribution, DriverCounted, PoolCounted, PoolFigures, RouteCounted,
    Seconds, Timeouts,
};
pub(crate) use driver::{Doing, DriverStats, Timeout};
pub use file::{CounterFile, Glance, View};
pub(crate) use pool::PoolStats;
pub(crate) use route::{RouteRef, RouteStats};
pub use segment::{Segment, Shape};

use segment::Layout;

/// All counters of one process.
pub(crate) struct Stats {
    pub(crate) drivers: Placed<[DriverStats]>,
    pools: Placed<[PoolStats]>,
    routes: Placed<[RouteStats]>,
    shape: Shape,
}

impl Stats {
    /// In memory of this process alone.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn new(shape: &Shape) -> io::Result<Stats> {
        let layout = Layout::of(shape)?;
        let bytes = usize::try_from(layout.bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Stats::placed(&Mapping::private(bytes)?, &layout, shape.clone())
    }

    /// In the segment of the file of all counters that was allotted for this shape.
    ///
    /// # Errors
    /// `InvalidData`: the segment does not lie in the file, or was made for another shape, or by a version that
    /// counts otherwise. Else, the kernel's.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        segment: &Segment,
        shape: &Shape,
    ) -> io::Result<Stats> {
        let found = Stats::found(file, segment)?;
        if found.shape != *shape {
            return Err(segment::fault(
                "it was made for other drivers, routes or pools",
            ));
        }
        Ok(found)
    }

    /// What lies in a segment, by its own header.
    fn found(file: BorrowedFd<'_>, segment: &Segment) -> io::Result<Stats> {
        let (shape, layout) = segment::read_header(file, segment)?;
        let bytes = usize::try_from(segment.bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::shared(file, segment.offset, bytes).map_err(segment::explained)?;
        Stats::placed(&mapping, &layout, shape)
    }

    fn placed(mapping: &Arc<Mapping>, layout: &Layout, shape: Shape) -> io::Result<Stats> {
        let parts = (
            mapping.place(layout.drivers, shape.drivers),
            mapping.place(layout.pools, shape.pools.len()),
            mapping.place(layout.routes, shape.routes.len()),
        );
        let (Some(drivers), Some(pools), Some(routes)) = parts else {
            return Err(segment::fault("its parts do not fit into it"));
        };
        Ok(Stats {
            drivers,
            pools,
            routes,
            shape,
        })
    }

    pub(crate) fn route(&self, index: u16) -> RouteRef<'_> {
        RouteRef(&self.routes[usize::from(index)])
    }

    /// One pool's counters, to be kept where it counts.
    ///
    /// # Panics
    /// The shape has no such pool.
    pub(crate) fn pool(&self, index: u16) -> Placed<PoolStats> {
        let pool = self.pools.one(usize::from(index));
        pool.expect("the counters were made for every pool there is")
    }

    /// Exchanges ended so far.
    pub(crate) fn exchanges(&self) -> u64 {
        let counts = self.routes.iter().map(RouteStats::exchanges);
        counts.fold(0, u64::saturating_add)
    }

    /// All of it as it is now.
    pub(crate) fn counted(&self) -> Counted {
        let drivers = self.drivers.iter().enumerate();
        let pools = self.pools.iter().zip(&self.shape.pools);
        let routes = self.routes.iter().zip(&self.shape.routes);
        Counted {
            drivers: drivers
                .map(|(index, driver)| driver.counted(index))
                .collect(),
            pools: pools.map(|(pool, name)| pool.counted(name)).collect(),
            routes: routes.map(|(route, name)| route.counted(name)).collect(),
        }
    }

    /// The few numbers of each driver that are looked at often.
    fn glances(&self) -> Vec<Glance> {
        let glance = |driver: &DriverStats| Glance {
            accepted: driver.accepted.count(),
            received: driver.received.count(),
            rescued: driver.rescued.count(),
            open: driver.open.load(Ordering::Relaxed),
        };
        self.drivers.iter().map(glance).collect()
    }

    /// The last beat that each driver has noted.
    pub(crate) fn beats(&self) -> Vec<u64> {
        let beats = self.drivers.iter().map(|driver| &driver.beat);
        beats.map(|beat| beat.load(Ordering::Relaxed)).collect()
    }

    /// Open connections of each driver.
    pub(crate) fn open(&self) -> Vec<u32> {
        let open = self.drivers.iter().map(|driver| &driver.open);
        open.map(|open| open.load(Ordering::Relaxed)).collect()
    }
}
