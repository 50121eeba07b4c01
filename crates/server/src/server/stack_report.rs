//! Says to the supervisor where a request is that runs: the stack of its thread, or of what it awaits.
//!
//! A thread of its own, which the first order starts: the thread that follows the supervisor must not wait for an
//! interpreter, and drivers and workers have other work. Finds the request in the table of those that run, as everybody
//! does, asks the handler, and looks once more: what it has found is the stack of another request where this one has ended
//! meanwhile.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use telemetry::counters::ListedRequest;

use super::watchdog_thread::native;
use crate::driver::Shared;
use crate::handler::{Handler, LoopStack, Stack};
use crate::pool::Pool;
use ipc::{Channel, ProcessEvent, StackReport, payload};

/// How long an interpreter is waited for. The supervisor waits for a second, in which the answer has to come.
const WAIT_MAX: Duration = Duration::from_millis(700);
const ENDED: &str = "the request has ended meanwhile";

/// Answers orders of the supervisor, one after the other.
pub(super) struct StackReporter {
    work: Arc<StackWork>,
    /// `None` before the first one.
    orders: Option<Sender<Order>>,
}

/// What the thread needs.
struct StackWork {
    /// Neither is kept alive: the process ends when others are done with them.
    shared: Weak<Shared>,
    /// By the index of the application.
    handlers: Vec<Weak<dyn Handler>>,
    channel: Arc<Channel>,
}

struct Order {
    number: u64,
    /// Of the request.
    id: String,
}

impl StackReporter {
    pub(super) fn new(
        shared: &Arc<Shared>,
        handlers: &[Arc<dyn Handler>],
        channel: &Arc<Channel>,
    ) -> Self {
        let work = StackWork {
            shared: Arc::downgrade(shared),
            handlers: handlers.iter().map(Arc::downgrade).collect(),
            channel: Arc::clone(channel),
        };
        Self {
            work: Arc::new(work),
            orders: None,
        }
    }

    /// Has the thread answer. Without a thread nobody answers, which the supervisor says to its client.
    pub(super) fn report(&mut self, number: u64, id: String) {
        if self.orders.is_none() {
            self.orders = start(&self.work).ok();
        }
        if let Some(orders) = &self.orders {
            // The thread ends with its sender only.
            let _ = orders.send(Order { number, id });
        }
    }
}

/// Ends with its sender.
fn start(work: &Arc<StackWork>) -> io::Result<Sender<Order>> {
    let (sender, orders) = mpsc::channel::<Order>();
    let work = Arc::clone(work);
    let builder = thread::Builder::new().name("mp-stack-report".to_owned());
    builder.spawn(move || orders.iter().for_each(|order| work.answer(&order)))?;
    Ok(sender)
}

impl StackWork {
    fn answer(&self, order: &Order) {
        let Order { number, id } = order;
        let report = self.report(id.as_bytes());
        // Without memory for the file, or with a supervisor that does not read, nobody answers.
        if let Ok(file) = payload::to_file(&report) {
            let event = ProcessEvent::Stack { number: *number };
            let _ = self.channel.send_now(&event, &[file.as_fd()]);
        }
    }

    fn report(&self, id: &[u8]) -> StackReport {
        let Some(shared) = self.shared.upgrade() else {
            return missing(ENDED);
        };
        let Some(request) = listed(&shared, id) else {
            return missing(ENDED);
        };
        let pool = &shared.pools[usize::from(request.pool)];
        let Some(worker) = NonZeroU32::new(request.worker) else {
            return missing(
                "an upstream server has the request: only those inside an application have a stack",
            );
        };
        let handler = pool.app().and_then(|app| self.handlers.get(app)?.upgrade());
        let Some(handler) = handler else {
            return missing(ENDED);
        };
        let report = match handler.event_loop() {
            Some(event_loop) => loop_report(event_loop.request_stack(id, WAIT_MAX)),
            None => thread_report(&*handler, pool, worker),
        };
        let is_same = |now: ListedRequest| (now.worker, now.pool) == (request.worker, request.pool);
        match listed(&shared, id).is_some_and(is_same) {
            true => report,
            false => missing(ENDED),
        }
    }
}

fn listed(shared: &Shared, id: &[u8]) -> Option<ListedRequest> {
    let all = shared.stats.running();
    all.into_iter().find(|one| one.id == id)
}

fn thread_report(handler: &dyn Handler, pool: &Pool, worker: NonZeroU32) -> StackReport {
    let Some(thread) = pool.worker_thread(worker) else {
        return missing(ENDED);
    };
    match handler.stack(thread, WAIT_MAX) {
        Stack::Frames(frames) => stack("Stack (most recent call last)", frames),
        Stack::Held => missing(&format!("{HELD}; the request's thread {}", native(thread))),
        Stack::Unknown => missing("the request is not inside an application"),
    }
}

fn loop_report(found: LoopStack) -> StackReport {
    match found {
        LoopStack::Awaits(frames) => stack("Stack of its awaits (most recent call last)", frames),
        LoopStack::Runs(frames) => stack(
            "It blocks the event loop; stack of the loop's thread (most recent call last)",
            frames,
        ),
        LoopStack::Blocked(frames) => stack(
            "It waits for the event loop, which something else blocks; stack of the loop's thread (most recent call last)",
            frames,
        ),
        LoopStack::Held => missing(HELD),
        LoopStack::Unknown => missing("the event loop knows no stack of the request"),
    }
}

const HELD: &str =
    "the process's other threads cannot run Python code: one holds the interpreter (GIL)";

fn stack(title: &str, frames: String) -> StackReport {
    StackReport::Stack {
        title: title.to_owned(),
        frames,
    }
}

fn missing(cause: &str) -> StackReport {
    StackReport::Missing(cause.to_owned())
}
