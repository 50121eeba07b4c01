//! The seam between the command and Python: what the wheel must offer so that applications can be served.
//!
//! Implemented by the Python crate; this crate only calls it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::failure::Failure;
use config::typed::{App, AsgiConfig, Hook};
use server::handler::Handler;

/// A Python interpreter that can load applications.
pub trait AppHost: Sync {
    /// One line for the start-up block: "CPython 3.11.7 (GIL)", "CPython 3.13.5 free-threaded".
    fn describe(&self) -> String;

    /// Imports applications and makes a handler for each, in their order; those on an event loop share one. The working
    /// folder is already right.
    ///
    /// # Errors
    /// Everything that is wrong with the first module, attribute or kind that cannot be served.
    fn load(&self, apps: &[App], facts: &[AppFacts]) -> Result<Vec<Arc<dyn Handler>>, Failure>;

    /// Imports the function of a hook, so that it can be called.
    ///
    /// # Errors
    /// Everything that is wrong with its module or its name.
    fn find_hook(&self, app: &App, hook: &Hook) -> Result<(), Failure>;

    /// Calls the function of a hook without arguments and waits for its end; imports it where that has not been done.
    ///
    /// # Errors
    /// It cannot be called, or it raised: then with the traceback.
    fn call_hook(&self, app: &App, hook: &Hook) -> Result<(), Failure>;

    /// Runs `body` (the whole server, blocking) once, detached from the interpreter, and gives its result.
    fn detached(&self, body: &mut (dyn FnMut() -> i32 + Send)) -> i32;

    /// The command line that starts this very command anew: the interpreter with its own options, then what
    /// stood behind them. Interpreter and script are absolute as of the folder that the process was started
    /// in; the arguments of the command itself are as they were given, so they mean the same only there.
    fn command(&self) -> Vec<OsString>;

    /// Runs a Python file and gives its variables as JSON: an object of texts, arrays of texts, `true` for callables,
    /// `null` for the rest.
    ///
    /// # Errors
    /// The file raises.
    fn variables(&self, file: &Path) -> Result<String, Failure>;

    /// Files of the modules that are imported now, sorted, absolute, without the standard library, installed
    /// packages and Milepost itself: what somebody who works on the application edits. Only names that are
    /// UTF-8, and at most 32 KiB of them: they are made to be told to another process.
    fn modules(&self) -> Vec<PathBuf>;

    /// Makes what is imported fit for being shared by copy-on-write: collects garbage, then keeps the
    /// collector away from all that is left. To be called once, right before the first `fork`.
    fn freeze(&self);

    /// Forks this process, so that the interpreter and what is imported know of it (`os.fork`). The caller
    /// goes on in both processes, in the child as the only thread, with every descriptor open in both.
    ///
    /// # Errors
    /// There is another thread: it would be gone in the child, with whatever lock it holds. The text names
    /// the threads. Also where the system refuses (EAGAIN, ENOMEM) or a hook of the application raises.
    fn fork(&self) -> io::Result<Forked>;
}

/// In which of the two processes a fork goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// In the new one.
    Child,
    /// In the old one; this is the new one's process id. The caller has to wait for its end.
    Parent(u32),
}

/// What an application is told about how it will be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppFacts {
    /// More than one thread may run it at the same time.
    pub multithread: bool,
    /// More than one process may run it at the same time.
    pub multiprocess: bool,
    /// How it runs on an event loop.
    pub asgi: AsgiConfig,
}
