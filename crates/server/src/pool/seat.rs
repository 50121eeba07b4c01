//! A seat: where a pool thread works. It gives exchanges to a handler and takes the replies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use measure::Nanos;

use super::clerk::{self, Clerk, Held};
use super::{Job, Pool};
use crate::delivery::{Close, Outlet};
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::meter::Meter;
use crate::queue::{Chair, Taken, Turn};
use crate::stats::PoolStats;
use crate::sys::Placed;
use crate::watch::{Post, Thread};

/// A pool thread's place: it gives exchanges to a handler and takes the replies.
pub struct Seat {
    clerk: Clerk,
    /// The pool's own, reached in one step.
    counters: Placed<PoolStats>,
    chair: Arc<Chair>,
    held: Option<Held>,
    /// How long the last exchange had the thread, until the queue is told.
    ran: Option<Nanos>,
    /// What the thread uses of a processor, since the exchange before; `None`: not since any of them.
    meter: Option<Meter>,
    is_told_to_go: bool,
    /// Where the watch sees what this thread runs.
    post: Option<Arc<Post>>,
}

/// How a pool thread has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leave {
    /// The pool has told it to go.
    Told,
    /// Another has its place already.
    Replaced,
    /// By itself, or given up without another in its place: it is missed.
    Missed,
}

impl Seat {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        let post = pool.watch.as_ref().map(|watch| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("mp-pool");
            watch.enter(pool.index, Thread::current(), name)
        });
        Self {
            post,
            counters: pool.stats.pool(pool.index),
            clerk: Clerk::new(Arc::clone(pool)),
            chair: Arc::default(),
            held: None,
            ran: None,
            meter: None,
            is_told_to_go: false,
        }
    }

    /// Its thread ends. Gives how, which nobody can change any more.
    pub(super) fn leave(self) -> Leave {
        let (post, is_told_to_go) = (self.post.clone(), self.is_told_to_go);
        // First: who has left its post in the middle of an exchange could be given up until then.
        drop(self);
        match post.filter(|post| post.is_given_up()) {
            Some(post) if post.count_out() => Leave::Missed,
            Some(_) => Leave::Replaced,
            None if is_told_to_go => Leave::Told,
            None => Leave::Missed,
        }
    }

    /// Whether this thread is given up: it is to end.
    fn is_given_up(&self) -> bool {
        self.post.as_ref().is_some_and(|post| post.is_given_up())
    }

    /// Whether somebody looks at runs that take long.
    pub fn is_watched(&self) -> bool {
        self.post.is_some()
    }

    /// Index of its pool.
    pub fn pool_index(&self) -> u16 {
        self.pool().index
    }

    /// Threads that this pool may have at once, as things are; a later change may allow more.
    pub fn threads_max(&self) -> usize {
        self.pool().settings().shape.threads_max
    }

    /// The header that names a request's id, in lower case, where one is configured: the handler is to see
    /// the id in it, whatever the client sent.
    pub fn request_id_header(&self) -> Option<&str> {
        self.pool().config.request_ids.header.as_deref()
    }

    /// How much of a processor the exchange that was given last has used until now; to be kept where an
    /// application may ask.
    pub fn meter(&self) -> Option<Meter> {
        self.meter
    }

    fn pool(&self) -> &Pool {
        &self.clerk.pool
    }

    /// The next waiting exchange, if there is one and nothing else is to be waited for. Never waits. Attend
    /// to it before taking another.
    pub fn next_now(&mut self) -> Option<Box<Exchange>> {
        if self.pool().log.is_awaited() || self.is_given_up() {
            return None;
        }
        loop {
            let queue = &self.clerk.pool.queue;
            let taken = queue.take_now(&mut self.ran, measure::now)?;
            if let Some(exchange) = self.begin(taken) {
                return Some(exchange);
            }
        }
    }

    /// The next waiting exchange; waits for one, and first for room in a log that is to lose nothing.
    /// `None`: this thread is to end.
    pub fn next_wait(&mut self) -> Option<Box<Exchange>> {
        self.pool().log.wait_if_awaited();
        if self.is_given_up() {
            return None;
        }
        loop {
            let queue = &self.clerk.pool.queue;
            let Some(taken) = queue.take(&self.chair, &mut self.ran, measure::now) else {
                self.is_told_to_go = true;
                return None;
            };
            if let Some(exchange) = self.begin(taken) {
                return Some(exchange);
            }
        }
    }

    /// `None` when the drain deadline passed while the exchange waited, and its client was told that it did
    /// not run, or when it has waited too long and is told so here.
    fn begin(&mut self, taken: Taken<Job>) -> Option<Box<Exchange>> {
        let Taken { item, now, turn } = taken;
        self.pool().has_left(item.exchange.queue.class);
        if turn == Turn::Expired {
            self.clerk.refuse(item, now);
            // Refusals may be many, and whoever runs next is not to bear them.
            self.meter = None;
            return None;
        }
        let (mut exchange, held) = item.part();
        if held.door.turnstile.is_seized() {
            return None;
        }
        exchange.phases.started = now;
        held.door.set_started(now);
        let meter = *self.meter.get_or_insert_with(Meter::start);
        if let Some(post) = &self.post {
            post.begin(&exchange, &held.door, meter);
        }
        self.counters.running.fetch_add(1, Ordering::Relaxed);
        self.held = Some(held);
        Some(exchange)
    }

    /// Runs one exchange: `answer` writes its reply into the outlet. Its fault, or its panic, becomes a 500
    /// when nothing has been sent yet and a cut connection otherwise.
    ///
    /// # Panics
    /// When `exchange` is not the one that this seat gave last.
    pub fn attend<F>(&mut self, mut exchange: Box<Exchange>, answer: F)
    where
        F: FnOnce(&mut Exchange, &mut Outlet<'_>) -> Result<(), Fault>,
    {
        let held = self.held.take();
        let held = held.expect("the exchange came from this seat");
        let mut fault = None;
        let post = self.post.as_ref();
        let run = |exchange: &mut Exchange, mut outlet: Outlet<'_>, pages: &_| {
            let answered = catch_unwind(AssertUnwindSafe(|| answer(exchange, &mut outlet)));
            if let Some(post) = post {
                post.end();
            }
            fault = match answered {
                Ok(Ok(())) if outlet.is_silent() => {
                    Some(Fault::Bug("the handler gave no reply".to_owned()))
                }
                Ok(Ok(())) => None,
                Ok(Err(fault)) => Some(fault),
                Err(panic) => Some(Fault::Bug(panic_text(panic.as_ref()))),
            };
            match &fault {
                None => outlet.close(),
                Some(fault) => clerk::give_up(outlet, fault, pages),
            }
        };
        let close = self.clerk.answer(&mut exchange, &held, run);
        exchange.phases.cpu = self.meter.as_mut().map_or(Nanos::ZERO, Meter::lap);
        self.clerk.report(&exchange, fault.as_ref(), &close);
        self.end(exchange, &held, &close);
    }

    fn end(&mut self, exchange: Box<Exchange>, held: &Held, close: &Close) {
        let left = close.replied.max(close.delivered);
        self.ran = Some(left.since(exchange.phases.started));
        self.counters.running.fetch_sub(1, Ordering::Relaxed);
        self.counters.completed.fetch_add(1, Ordering::Relaxed);
        let run = close.replied.since(exchange.phases.started);
        self.pool().tell_slow(&exchange, run);
        self.clerk.end(exchange, &held.door, close);
    }
}

impl Drop for Seat {
    /// A handler that ends in the middle of an exchange runs it no longer. Nobody answers it: its client
    /// hears of it at the drain deadline at the latest.
    fn drop(&mut self) {
        if self.held.is_some() {
            self.counters.running.fetch_sub(1, Ordering::Relaxed);
        }
        if let (Some(watch), Some(post)) = (&self.clerk.pool.watch, &self.post) {
            watch.leave(post);
        }
    }
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a text"))
}
