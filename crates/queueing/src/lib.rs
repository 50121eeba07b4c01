//! Queueing policy as arithmetic: admission, pool sizes, minimum rates, bandwidth, the balance of
//! connections over drivers, and of requests over servers.
//!
//! Takes counts and the present time, gives decisions. The server applies the decisions to its pools, the
//! simulator to virtual ones, so that both run the same policy. It must not read a clock, do I/O, start
//! threads or hold an exchange.

#![forbid(unsafe_code)]

pub mod balancing;
mod bucket;
mod control;
mod discipline;
mod drain_rate;
mod idle_eviction;
mod min_rate;
mod placement;
mod request_rate;

pub use bucket::Bucket;
pub use control::{Control, Decision, PoolSeen, PoolSettings, PoolState, Pressure, SizeStep, TICK};
pub use discipline::{
    Admission, Class, Entry, Line, PoolShape, Waiting, WaitsSeen, admit, retry_after_secs,
};
pub use drain_rate::DrainRate;
pub use idle_eviction::{Awaited, FIRST_BYTE_GRACE, Idling, evictions, idle_limit, reopening_len};
pub use min_rate::Pace;
pub use placement::{Drivers, Lifetimes, Load, Placement, placement};
pub use request_rate::RequestRate;
