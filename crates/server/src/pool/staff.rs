//! The staff: a pool's threads, which come when the steward hires and go when they are told to, or are lost.
//!
//! Each has a place, the lowest that is free, which is the number in its name.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use measure::Stamp;

use super::Pool;
use super::worker::{Leave, Worker, panic_text};
use crate::handler::Handler;
use crate::log::Level;
use crate::sync::lock;

/// Stack of a pool thread: what interpreters expect of a main thread when they bound recursion. Only
/// what is used costs memory.
const STACK_BYTES: usize = 8 << 20;

/// What threads are started with.
pub(super) struct Staff {
    handler: Arc<dyn Handler>,
    /// Called on each thread at its end.
    farewell: Arc<dyn Fn() + Send + Sync>,
    /// By place: somebody has it.
    places: Mutex<Vec<bool>>,
    /// The last thread that was to be started could not be, and that was said.
    is_refused: AtomicBool,
}

impl Staff {
    pub(super) fn new(handler: &Arc<dyn Handler>, farewell: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self {
            handler: Arc::clone(handler),
            farewell,
            places: Mutex::default(),
            is_refused: AtomicBool::new(false),
        }
    }

    fn take_place(&self) -> usize {
        let mut places = lock(&self.places);
        let place = places.iter().position(|is_taken| !is_taken);
        let place = place.unwrap_or_else(|| {
            places.push(false);
            places.len() - 1
        });
        places[place] = true;
        place
    }

    fn leave_place(&self, place: usize) {
        lock(&self.places)[place] = false;
    }
}

impl Pool {
    /// What its threads run; `None` before the start and after the end.
    pub(super) fn handler(&self) -> Option<Arc<dyn Handler>> {
        let staff = lock(&self.staff);
        staff.as_ref().map(|staff| Arc::clone(&staff.handler))
    }

    /// `more` threads are to be there.
    ///
    /// # Errors
    /// The kernel gives none, or not so many.
    pub(super) fn hire(self: &Arc<Self>, more: usize, now: Stamp) -> io::Result<()> {
        let staff = lock(&self.staff).clone();
        let Some(staff) = staff else { return Ok(()) };
        let start = self.queue.grow(more, now);
        for started in 0..start {
            if let Err(error) = self.start_thread(&staff) {
                (started..start).for_each(|_| self.queue.not_come());
                return Err(error);
            }
        }
        Ok(())
    }

    /// As `hire`, later on: what the kernel refuses is said once, and tried again at the next look.
    pub(super) fn hire_if_possible(self: &Arc<Self>, more: usize, now: Stamp) {
        let hired = self.hire(more, now);
        let staff = lock(&self.staff).clone();
        let Some(staff) = staff else { return };
        let was_refused = staff.is_refused.swap(hired.is_err(), Ordering::Relaxed);
        if let Err(error) = hired
            && !was_refused
        {
            let name = self.name();
            let text = format!("cannot start another thread of the pool {name}: {error}");
            self.log.error_from_pool(Level::Warning, &text);
        }
    }

    fn start_thread(self: &Arc<Self>, staff: &Arc<Staff>) -> io::Result<()> {
        let place = staff.take_place();
        let work = {
            let (pool, staff) = (Arc::clone(self), Arc::clone(staff));
            move || pool.live(&staff, place)
        };
        let thread = thread::Builder::new()
            .name(format!("mp-{}-{place}", self.name()))
            .stack_size(STACK_BYTES)
            .spawn(work);
        thread.map(drop).inspect_err(|_| staff.leave_place(place))
    }

    /// The life of one thread.
    fn live(self: &Arc<Self>, staff: &Staff, place: usize) {
        self.counters
            .threads_started
            .fetch_add(1, Ordering::Relaxed);
        self.queue.come();
        let mut worker = Worker::new(self);
        let worked = catch_unwind(AssertUnwindSafe(|| staff.handler.work(&mut worker)));
        let leave = worker.leave();
        if let Err(panic) = worked {
            let (name, text) = (self.name(), panic_text(panic.as_ref()));
            let text = format!("a thread of the pool {name} ended: {text}");
            self.log.error_from_pool(Level::Error, &text);
        }
        staff.leave_place(place);
        self.counters.threads_ended.fetch_add(1, Ordering::Relaxed);
        match leave {
            Leave::Told => self.queue.went(),
            Leave::Replaced => {}
            Leave::Missed => {
                self.queue.lost();
                self.alarm.ring();
            }
        }
        (staff.farewell)();
    }
}
