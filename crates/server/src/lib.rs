//! The server: the one crate with sockets, files and threads.
//!
//! Takes a checked configuration and a handler, listens, and serves until it is told to stop. Knows no
//! Python. In the order of a request: `listen` gives sockets to `driver`s, which receive exchanges (`exchange`),
//! `spool` large bodies, route them (`service`), answer files themselves (crate `files`) and hand the rest to
//! the `pool`; replies leave by `response`, `protocol` and `transport`; every exchange ends in a recorder,
//! the `stats` and the log (crate `logging`). What may wait for a disk is a task for a `blocking_pool`.

pub mod exchange;
pub mod fault;

mod client_limit;
mod networks;
mod normal_path;
mod proxies;
mod request_start;
mod request_test;

mod driver;

mod blocking_pool;
mod spool;

mod rules;

mod challenges;
mod https_redirect;
mod refusal;
mod service;

mod field_template;
mod guards;
mod pool_rules;
mod slow;
mod users;

pub mod pool;
mod queue;

mod tunnel;
mod upstream;

mod traces;

mod load_report;
mod loop_inbox;
mod loop_load;
mod loop_wakeup;
pub mod websocket;

mod run_guard;
pub mod watchdog;

pub mod handler;

mod pages;

mod protocol;
pub mod response;
pub mod transport;

mod bandwidth;

pub mod fork;

mod server;

mod sync;
#[allow(unsafe_code)]
mod sys;

pub use pool::RunnableLoop;
pub use server::{Closing, Drain, Ended, Idle, Server, ServerHandle, SupervisorLink};
#[cfg(test)]
mod tests;
