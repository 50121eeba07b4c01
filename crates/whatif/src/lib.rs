//! The queueing simulator: what the queue times would have been with other threads, pools, processes,
//! rates and controllers.
//!
//! Takes requests (recorded or made by laws) and settings, gives distributions of waits. Runs the very
//! policy of the server, `stage`, on a virtual clock. It must not open files, read a clock, print, or know
//! how a log is written: whoever has one hands its requests over.

#![forbid(unsafe_code)]

mod arrival;
pub mod asking;
mod engine;
pub mod fitting;
mod formulas;
mod laws;
mod outcome;
pub mod recorded;
pub mod rules;
mod setting;
pub mod workloads;

pub use arrival::{Arrival, Arrivals};
pub use engine::{Fate, Policy, Trace, simulate, simulate_traced};
pub use formulas::{EqualRuns, Load};
pub use laws::{Coming, LawArrivals, Laws, Rate, Route, Service};
pub use outcome::{Moment, Outcome, PoolOutcome};
pub use setting::{Lock, Pause, PoolPlan, Setting, Sharing};
