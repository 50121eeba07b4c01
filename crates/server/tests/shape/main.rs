//! The shape of the server: what lies above the protocols gives the same responses and the same records whichever
//! protocol and transport carry them, and streams of one connection do not wait for each other.

#![allow(clippy::unwrap_used)] // All of this is tests.

mod client;
mod http2;
mod raw;
mod same;
mod streams;
#[path = "../support/mod.rs"]
#[allow(dead_code)] // Not everything is of use here.
mod support;
mod ways;
