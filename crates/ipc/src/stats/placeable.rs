//! Which counters may lie in mapped memory: the only `unsafe` of this crate.

use os::Placeable;

use super::slots::SlotColumn;
use super::{DriverStats, EventLoopStats, PoolStats, RouteStats};

// SAFETY: fixed layout, nothing but atomic numbers.
unsafe impl Placeable for DriverStats {}
// SAFETY: as above.
unsafe impl Placeable for PoolStats {}
// SAFETY: as above.
unsafe impl Placeable for EventLoopStats {}
// SAFETY: as above.
unsafe impl Placeable for RouteStats {}
// SAFETY: as above.
unsafe impl Placeable for SlotColumn {}
