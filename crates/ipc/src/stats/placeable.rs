//! Which counters may lie in mapped memory: the only `unsafe` of this crate.

use std::ops::Deref;

use os::Placeable;
use telemetry::counters::{
    DriverStats, EventLoopStats, LogStats, PoolStats, RouteDurations, RouteStats, RunningTable,
    SpoolStats, UpstreamStats,
};

use super::rates::RateWord;
use super::slots::SlotColumn;
use crate::history::HistoryWord;

/// Counters that lie in mapped memory.
#[repr(transparent)]
pub struct Placed<T>(T);

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

// SAFETY: fixed layout, nothing but atomic numbers.
unsafe impl Placeable for Placed<DriverStats> {}
// SAFETY: as above.
unsafe impl Placeable for Placed<PoolStats> {}
// SAFETY: as above.
unsafe impl Placeable for Placed<EventLoopStats> {}
// SAFETY: as above.
unsafe impl Placeable for Placed<RouteStats> {}
// SAFETY: as above.
unsafe impl Placeable for Placed<RouteDurations> {}
// SAFETY: as above.
unsafe impl Placeable for Placed<RunningTable> {}
// SAFETY: as above.
unsafe impl Placeable for Placed<UpstreamStats> {}
// SAFETY: as above.
unsafe impl Placeable for Placed<LogStats> {}
// SAFETY: as above.
unsafe impl Placeable for Placed<SpoolStats> {}
// SAFETY: as above.
unsafe impl Placeable for SlotColumn {}
// SAFETY: as above.
unsafe impl Placeable for RateWord {}
// SAFETY: as above.
unsafe impl Placeable for HistoryWord {}
