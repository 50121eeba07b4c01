//! The house as its clients see it: raw bytes over real sockets, with handlers in Rust.
//!
//! No parser of ours is used to read replies.

#![allow(clippy::unwrap_used)] // All of this is tests.

mod compression;
mod cpu;
mod crowds;
mod deadlines;
mod ears;
mod exchanges;
mod failing;
mod files;
mod framed;
mod ids;
mod led;
mod pools;
mod request_start;
mod slow;
mod spreading;
mod stopping;
mod support;
