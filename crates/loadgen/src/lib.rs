//! The load generator: what is to be done ([`plan`]), how ([`engine`]), and what was found ([`outcome`]).
//!
//! Takes a checked [`Plan`](plan::Plan), gives an [`Outcome`](outcome::Outcome) and texts made of outcomes.
//! It speaks to any server of HTTP/1.1 or HTTP/2 and shares no code with Milepost's own but `http` and `telemetry`.
//! It must not read arguments or print; it opens sockets and starts threads.

#![forbid(unsafe_code)]

pub mod plan;
pub mod spec;

pub mod engine;
pub mod machine;

mod adversaries;

pub mod distribution;
pub mod outcome;
pub mod output;
pub mod statistics;

pub mod sweep;

#[cfg(test)]
mod tests;
