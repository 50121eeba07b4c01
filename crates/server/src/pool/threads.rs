//! The threads of a pool: they start when the controller asks for more, and end when the queue tells them to, when
//! their backend does, or once they are given up.

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;

use logging::Level;
use telemetry::Stamp;

use super::Pool;
use super::worker::{Worker, panic_text};
use crate::handler::Handler;
use crate::sync::lock;

/// Stack of a pool thread: what interpreters expect of a main thread when they bound recursion. Only
/// what is used costs memory.
const STACK_BYTES: usize = 8 << 20;

/// What threads are started with.
pub(super) struct Threads {
    pub(super) handler: Arc<dyn Handler>,
    /// Called on each thread at its end.
    on_exit: Arc<dyn Fn() + Send + Sync>,
    /// The numbers in the names of those that live.
    numbers: Mutex<BTreeSet<usize>>,
}

impl Pool {
    /// Starts the fewest threads that there are to be; `on_exit` is called on each thread at its end.
    ///
    /// # Errors
    /// The kernel gives no more threads.
    pub(crate) fn start(
        self: &Arc<Self>,
        handler: &Arc<dyn Handler>,
        on_exit: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<()> {
        *lock(&self.threads) = Some(Arc::new(Threads {
            handler: Arc::clone(handler),
            on_exit,
            numbers: Mutex::default(),
        }));
        self.spawn(self.settings().shape.threads_min, telemetry::now())
    }

    /// `None` before the start and after the end.
    pub(super) fn threads(&self) -> Option<Arc<Threads>> {
        lock(&self.threads).clone()
    }

    /// `more` threads are to be there.
    ///
    /// # Errors
    /// The kernel gives none, or not so many.
    pub(super) fn spawn(self: &Arc<Self>, more: usize, now: Stamp) -> io::Result<()> {
        let Some(threads) = self.threads() else {
            return Ok(());
        };
        let start = self.queue.grow(more, now);
        for started in 0..start {
            if let Err(error) = self.spawn_one(&threads) {
                (started..start).for_each(|_| self.queue.thread_not_started());
                return Err(error);
            }
        }
        Ok(())
    }

    fn spawn_one(self: &Arc<Self>, threads: &Arc<Threads>) -> io::Result<()> {
        // The lowest number that is free.
        let number = (0..).find(|number| lock(&threads.numbers).insert(*number));
        let number = number.expect("there are more numbers than threads");
        let (pool, its) = (Arc::clone(self), Arc::clone(threads));
        let thread = thread::Builder::new()
            .name(format!("mp-{}-{number}", self.name()))
            .stack_size(STACK_BYTES)
            .spawn(move || pool.run_worker(&its, number));
        thread.map(drop).inspect_err(|_| {
            lock(&threads.numbers).remove(&number);
        })
    }

    /// The life of one thread.
    fn run_worker(self: &Arc<Self>, threads: &Threads, number: usize) {
        let counters = &self.counters;
        counters.threads_started.fetch_add(1, Ordering::Relaxed);
        self.queue.thread_started();
        let mut worker = Worker::new(self);
        let worked = catch_unwind(AssertUnwindSafe(|| threads.handler.work(&mut worker)));
        let (slot, is_told_to_go) = (worker.slot.clone(), worker.is_told_to_go);
        // First, because it leaves the slot: until then a worker that ended in the middle of an exchange can still be
        // given up, and its loss would be reported twice.
        drop(worker);
        if let Err(panic) = worked {
            let (name, text) = (self.name(), panic_text(panic.as_ref()));
            let text = format!("a thread of the pool {name} ended: {text}");
            self.shared.log.error_from_pool(Level::Error, &text);
        }
        lock(&threads.numbers).remove(&number);
        counters.threads_ended.fetch_add(1, Ordering::Relaxed);
        match slot.filter(|slot| slot.is_given_up()) {
            // The watchdog has reported the loss, and another worker has its place.
            Some(slot) if !slot.claim_loss() => {}
            None if is_told_to_go => self.queue.thread_exited(),
            // It has ended by itself, or was given up without a replacement.
            _ => self.report_lost_thread(),
        }
        (threads.on_exit)();
    }
}
