//! The queueing simulator: the queue times with other numbers of threads, pools and processes, or other rates.
//!
//! Takes requests (from a log or synthetic) and settings, gives distributions of waits. Runs the policy of the
//! server, `stage`, on a virtual clock. It must not open files, read a clock, print, or know how a log is
//! written: its callers hand requests over.

#![forbid(unsafe_code)]

mod arrival;
mod engine;
mod fleet;
mod laws;
mod outcome;
pub mod prediction;
pub mod recorded;
mod setting;
mod spans;

pub use arrival::{Arrival, Lifetime, LoopSteps};
pub use engine::{Ending, Policy, Trace, simulate, simulate_traced};
pub use fleet::{
    Balance, Fleet, FleetOutcome, FleetServer, Limits, ServerOutcome, Stall, simulate_fleet,
};
pub use laws::{ArrivalProcess, LawArrivals, Laws, Rate, Route, Service};
pub use outcome::{Moment, Outcome, PoolOutcome};
pub use setting::{Concurrency, Lock, LoopPlan, Pause, PoolPlan, RunsOn, Setting, Sharing};
pub use spans::Spans;
