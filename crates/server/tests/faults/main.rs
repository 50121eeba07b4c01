//! Replies under faults: every call that sends some of a reply takes as much of it as a seeded plan says, finds
//! a full socket or a reset connection; the client must see the same bytes as ever, or the beginning of them.
//! Beside them what needs the library: handlers and orders that no installed server can be given. What a client
//! of an installed server sees is tested in tests/*.py.
//!
//! A failing seed is printed; `MILEPOST_FAULTS_SEED=seed` runs it alone.

#![allow(clippy::unwrap_used)] // All of this is tests.

mod cases;
mod dice;
mod expected;
mod invariant;
mod invitation;
mod orders;
mod over_tls;
mod resets;
#[path = "../support/mod.rs"]
#[allow(dead_code)] // Not everything is of use here.
mod support;
mod tested;
mod visit;
mod whole;
mod workers;
