//! The Python host: the extension module `milepost._milepost`, which is the whole server with an
//! interpreter beside it.
//!
//! The only crate that knows Python. Gives the command line a host that loads applications (`host`), says how
//! to start it anew (`command`) and forks it (`fork`), and the server a handler that runs them (`wsgi`, `asgi`).
//! Knows no socket.

#![allow(unsafe_code)]

mod command;
mod evaluate;
mod host;
mod import;

mod fork;
mod modules;
mod program;

mod asgi;
mod wsgi;

mod downstream;

mod body;
mod phases;

mod release;
mod stack_thread;
mod trace;
mod visit;

use std::ffi::OsString;

#[doc(hidden)] // For the test that forks: it must be a process of its own, with one thread.
pub use host::Host;

use pyo3::prelude::*;

/// The extension module. It shares nothing between threads without a lock of its own, so an interpreter
/// without a GIL stays without.
#[pymodule(gil_used = false)]
mod _milepost {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::main;

    #[pymodule_export]
    use crate::asgi::ClientDisconnected;

    #[pymodule_export]
    use crate::downstream::downstream;

    #[pymodule_export]
    use crate::program::{SettingsError, serve};

    #[pymodule_export]
    use crate::wsgi::RequestTimeout;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// Run the command `milepost` with `argv` (program name first) and give its exit code.
#[pyfunction]
fn main(argv: Vec<OsString>) -> i32 {
    // A program that calls `serve` while it is imported is in a process that this has started.
    let _running = program::Running::begin();
    host::fill_standard_streams();
    cli::run(argv, Some(&host::Host::here()))
}
