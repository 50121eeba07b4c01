//! The configuration, which is a crate of its own, by the path that the modules of the server use.

pub use ::config::*;
