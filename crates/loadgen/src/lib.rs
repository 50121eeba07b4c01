//! The load generator: what is to be done ([`plan`]), how ([`engine`]), and what was found ([`outcome`]).
//!
//! Takes a checked [`Plan`](plan::Plan), gives an [`Outcome`](outcome::Outcome) and texts made of outcomes.
//! It speaks to any HTTP/1.1 server and shares no code with the one of this house but `wire` and `measure`.
//! It must not read arguments or print; it opens sockets, starts threads and, for experiments, servers.

// One file has unsafe code: the door to the kernel's ring.
#![deny(unsafe_code)]

pub mod plan;
pub mod written;

pub mod engine;
pub mod machine;

mod company;

pub mod distribution;
pub mod outcome;
pub mod show;
pub mod statistics;

pub mod experiment;
