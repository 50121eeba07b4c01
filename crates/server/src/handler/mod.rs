//! The seam between the server and its backends: handlers that run on pool threads (`Handler`) or on an
//! event loop (`EventLoop`), one of which
//! says why there is no other (`error_app`).
//!
//! A handler sees an exchange and a response writer; it never sees a socket.

pub mod error_app;

use std::io;
use std::time::Duration;

use config::failure::Failure;
use config::typed::Concurrency;

use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::pool::{LoopWorker, Worker};
use crate::response::ResponseWriter;
use crate::watchdog::Thread;

use telemetry::Stamp;

/// Applications that run on an event loop of the main thread; all that do in one process share it.
pub trait EventLoop: Send + Sync {
    /// What the loop is called, as `uvloop`.
    fn name(&self) -> &str;

    /// Exchanges that may be inside at once.
    fn concurrency(&self) -> Concurrency;

    /// The life of the loop: starts the applications, calls `serve`, and answers what `worker` gives until that is
    /// closed. Called on the main thread. `give_up` ends the process because an application blocks this thread instead of
    /// starting; another thread may call it, to which it does not return.
    ///
    /// # Errors
    /// An application could not be started; `serve` has not been called then.
    fn run(
        &self,
        worker: LoopWorker,
        serve: &mut dyn FnMut() -> io::Result<()>,
        give_up: &(dyn Fn(&Failure) + Sync),
    ) -> Result<(), Failure>;

    /// Where a request inside the loop is, for people; `id`: the bytes of its id that `listed_id` gives. Called on another
    /// thread. Bounded: waits so long at most.
    fn request_stack(&self, id: &[u8], wait_max: Duration) -> LoopStack;
}

/// Something that answers exchanges on pool threads, or on an event loop.
pub trait Handler: Send + Sync + 'static {
    /// The event loop in place of pool threads, where there is one; `work` is not called then.
    fn event_loop(&self) -> Option<&dyn EventLoop> {
        None
    }

    /// The life of one worker: take exchanges until it gives none.
    ///
    /// ```text
    /// while let Some(assignment) = worker.next_now().or_else(|| worker.next_wait()) {
    ///     worker.run(assignment, |exchange, writer| answer(exchange, writer));
    /// }
    /// ```
    fn work(&self, worker: &mut Worker);

    /// Whether it is what was meant to be served, and not something in its place.
    fn is_loaded(&self) -> bool {
        true
    }

    /// Where a pool thread is in what it runs, for people. Bounded: waits so long at most.
    fn stack(&self, thread: Thread, wait_max: Duration) -> Stack {
        let _ = (thread, wait_max);
        Stack::Unknown
    }

    /// Has a pool thread leave the exchange that it began then, as soon as what it runs lets it; does nothing
    /// when it runs another by now. False when that could not even be asked for within a second.
    fn interrupt(&self, thread: Thread, began: Stamp) -> bool {
        let _ = (thread, began);
        false
    }

    /// The share of the pool threads' time at work, lately, in which they waited for their interpreter, from
    /// 0 to 1; `None` where no thread waits for it, or where nothing has run lately. A caller that asks every second
    /// keeps the measurement going.
    fn gil_share(&self) -> Option<f64> {
        None
    }

    /// Whether something that the exchanges of a pool need, such as connections to a database, is used up.
    fn is_downstream_full(&self, pool: u16) -> bool {
        let _ = pool;
        false
    }
}

/// What is known of the place where a thread is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Its frames, the outermost first, each on lines of its own.
    Frames(String),
    /// The interpreter was held for the whole time, so that no look was possible.
    Held,
    /// The handler has no way to look.
    Unknown,
}

/// What is known of the place where a request inside an event loop is. Frames are the outermost first, each on lines of
/// its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoopStack {
    /// It waits; the frames of what it awaits.
    Awaits(String),
    /// The loop runs a step of it that does not end; the frames of the loop's thread.
    Runs(String),
    /// The loop runs something else that does not end; the frames of the loop's thread.
    Blocked(String),
    /// The interpreter was held for the whole time, so that no look was possible.
    Held,
    /// It has ended, or there is nothing to be seen of it.
    Unknown,
}

/// A handler without state of its own per thread.
impl<F> Handler for F
where
    F: Fn(&mut Exchange, &mut ResponseWriter) -> Result<(), Fault> + Send + Sync + 'static,
{
    fn work(&self, worker: &mut Worker) {
        while let Some(assignment) = worker.next_wait() {
            worker.run(assignment, self);
        }
    }
}
