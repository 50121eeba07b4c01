//! Experiments on the queueing simulator, which no user of the server needs.
//!
//! Takes whatif's public interface and the server's own policy, gives the tables that docs/control.md shows.
//! It is not shipped: neither the command nor the wheel depends on it.

#![forbid(unsafe_code)]

pub mod controllers;
pub mod fitting;
pub mod workloads;
