//! The seam between the command and Python: what the wheel must offer so that applications can be served.
//!
//! Implemented by the Python crate; this crate only calls it.

use std::sync::Arc;

use server::config::meant::App;
use server::handler::Handler;

/// A Python interpreter that can load applications.
pub trait AppHost {
    /// One line for the start-up block: "CPython 3.11.7 (GIL)", "CPython 3.13.5 free-threaded".
    fn describe(&self) -> String;

    /// Imports the application and makes the handler that runs it. The working folder is already right.
    ///
    /// # Errors
    /// Everything that is wrong with the module, the attribute or its kind.
    fn load(&self, app: &App, facts: &AppFacts) -> Result<Arc<dyn Handler>, AppFault>;

    /// Runs `body` (the whole server, blocking) once, detached from the interpreter, and gives its result.
    fn detached(&self, body: &mut (dyn FnMut() -> i32 + Send)) -> i32;
}

/// What an application is told about how it will be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppFacts {
    /// More than one thread may run it at the same time.
    pub multithread: bool,
    /// More than one process may run it at the same time.
    pub multiprocess: bool,
}

/// Why an application cannot be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppFault {
    /// `what: cause`, without the program's name.
    pub message: String,
    /// What to do about it, where that can be said.
    pub hint: Option<String>,
    /// The traceback, when the module itself raised.
    pub detail: Option<String>,
}
