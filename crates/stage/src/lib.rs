//! Queueing policy as arithmetic: whom to admit, how many threads a pool should have, how long to wait
//! for whom, who may send when, and which driver has which connection.
//!
//! Takes the present and counts, gives decisions; a corridor performs them, in the server on its
//! pools, in the simulator on virtual ones, so that both run the very same policy. It must not
//! read a clock, do I/O, start threads or hold an exchange.
//!
//! Requests leave a pool's queue first in, first out, and of the idle threads the one that went idle
//! last is taken. Neither has an alternative here, so neither has a name: a queue that kept the
//! newest first would have let the fourth of the six requests in `tests/six_requests.rs` wait 4 s
//! instead of 0.24 s.

#![forbid(unsafe_code)]

mod admission;
mod bucket;
mod crowd;
mod drain;
mod pace;
mod placement;
mod sizing;

pub use admission::{Admission, PoolShape, admit};
pub use bucket::Bucket;
pub use crowd::{evictions, idle_limit, reopening_len};
pub use drain::DrainRate;
pub use pace::Pace;
pub use placement::{Lifetimes, Load, Placement, placement};
pub use sizing::{PoolSeen, SizeStep, Sizer};
