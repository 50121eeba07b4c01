//! Queueing policy as arithmetic: whom to admit, how many threads a pool should have, how long to wait
//! for whom, who may send when, and which driver has which connection.
//!
//! Takes the present and counts, gives decisions; a corridor performs them, in the server on its
//! pools, in the simulator on virtual ones, so that both run the very same policy. It must not
//! read a clock, do I/O, start threads or hold an exchange.

#![forbid(unsafe_code)]

mod bucket;
mod control;
mod crowd;
mod discipline;
mod drain;
mod pace;
mod placement;

pub use bucket::Bucket;
pub use control::{Control, Decision, Mood, PoolSeen, PoolSettings, Pressure, SizeStep, TICK};
pub use crowd::{Awaited, FIRST_BYTE_GRACE, Idling, evictions, idle_limit, reopening_len};
pub use discipline::{
    Admission, Class, Entry, Line, PoolShape, Waiting, WaitsSeen, admit, retry_after_secs,
};
pub use drain::DrainRate;
pub use pace::Pace;
pub use placement::{Drivers, Lifetimes, Load, Placement, placement};
