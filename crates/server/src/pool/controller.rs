//! The controller: one thread of the process that looks after all pools. It has them grow and shrink, finds out
//! how hard it is for them, and refuses what has waited too long.
//!
//! Decides nothing: `stage` does. Sleeps as long as nothing can happen (`Timer`); a driver whose exchange has to
//! wait, and every change of a pool, ends the sleep.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use logging::Level;
use queueing::{Control, PoolSeen, PoolShape, Pressure, SizeStep, TICK};
use telemetry::{Nanos, Stamp};

use super::Pool;
use super::worker::{Responder, panic_text};
use telemetry::counters::Counter;

/// How often it looks at pools where nothing happens.
const IDLE_TICK: Nanos = Nanos::from_secs(1);
/// Refusals in a row before it looks after the other pools again.
const REFUSALS_MAX: usize = 256;

/// One pool, and what the controller keeps of it from look to look.
struct PoolController {
    /// For the exchanges that it refuses.
    responder: Responder,
    control: Control,
    /// The bounds that `control` and the queue know.
    shape: PoolShape,
    /// When it was looked at last.
    looked: Stamp,
    /// The last thread that was to be started could not be, and that was said.
    is_refused: bool,
}

/// Starts the controller of `pools`; it ends when they are closed.
///
/// # Errors
/// The kernel gives no more threads.
pub(crate) fn start_controller(pools: &[Arc<Pool>]) -> io::Result<()> {
    let Some(timer) = pools.first().map(|first| Arc::clone(&first.timer)) else {
        return Ok(());
    };
    let pools: Vec<_> = pools.iter().map(PoolController::new).collect();
    let thread = thread::Builder::new().name("mp-controller".to_owned());
    thread.spawn(move || run(pools, &timer)).map(drop)
}

fn run(mut pools: Vec<PoolController>, timer: &Timer) {
    // A refusal to a client that is gone must not end the process.
    os::block_sigpipe();
    timer.set_sleeper();
    loop {
        timer.begin_scan();
        pools.retain(|controller| controller.pool().is_open());
        if pools.is_empty() {
            return;
        }
        let mut wake = Stamp::NEVER;
        for controller in &mut pools {
            // A panic over one pool must not end the care for the others.
            let looked = catch_unwind(AssertUnwindSafe(|| {
                let due = controller.refuse_expired(telemetry::now());
                due.min(controller.tick(telemetry::now()))
            }));
            wake = wake.min(looked.unwrap_or_else(|panic| {
                let (pool, text) = (controller.pool(), panic_text(panic.as_ref()));
                let text = format!("the pool {} could not be controlled: {text}", pool.name());
                pool.shared.log.error_from_pool(Level::Error, &text);
                telemetry::now().plus(IDLE_TICK)
            }));
        }
        timer.sleep(telemetry::now(), wake);
    }
}

impl PoolController {
    fn new(pool: &Arc<Pool>) -> Self {
        let settings = pool.settings();
        Self {
            responder: Responder::new(Arc::clone(pool)),
            control: Control::new(&settings),
            shape: settings.shape,
            looked: Stamp::ZERO,
            is_refused: false,
        }
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.responder.pool
    }

    /// Refuses what has waited too long; gives when the next one will have.
    fn refuse_expired(&mut self, now: Stamp) -> Stamp {
        // Bounded: thousands to refuse in one pool would keep this thread from the others. The next expiry is then
        // now, and the rest follows at once.
        for _ in 0..REFUSALS_MAX {
            let Some(job) = self.pool().queue.take_expired(now) else {
                break;
            };
            self.responder.refuse(job, now);
        }
        self.pool().queue.next_expiry()
    }

    /// Looks at the pool if it is time to; gives when the next look is due.
    fn tick(&mut self, now: Stamp) -> Stamp {
        let settings = self.pool().settings();
        if settings.shape != self.shape {
            self.shape = settings.shape;
            self.control.reshape(&settings);
            self.pool().queue.reshape(&settings);
        } else if now.since(self.looked) < TICK {
            return self.looked.plus(TICK);
        }
        self.looked = now;
        let seen = self.seen(now);
        let decision = self.control.tick(now, &seen);
        let pool = self.pool();
        pool.load.store(decision.state);
        pool.queue.set_state(decision.state);
        pool.counters.pressure.set(decision.state.pressure as u64);
        self.resize(decision.step, &seen, now);
        // Nothing runs or waits, and no thread is to start or exit: the next exchange ends the sleep.
        let is_quiet = seen.waiting == 0
            && seen.running == 0
            && decision.step == SizeStep::Keep
            && decision.state.pressure == Pressure::Calm
            && seen.idle == self.shape.threads_min;
        now.plus(if is_quiet { IDLE_TICK } else { TICK })
    }

    fn seen(&self, now: Stamp) -> PoolSeen {
        let (pool, counters) = (self.pool(), &self.pool().counters);
        let [full, shed, expired] =
            [&counters.refused, &counters.shed, &counters.expired].map(Counter::count);
        let mut queued = pool.queue.snapshot(now);
        if let Some(group) = pool.upstream() {
            // Its queue knows of one thread, which is busy while any server is.
            queued.running = usize::from(group.in_flight() > 0);
            queued.idle = 1 - queued.running;
        }
        let mut seen = PoolSeen {
            arrived: queued.arrived + full + shed,
            completed: counters.completed.count(),
            refused: full + shed + expired,
            ..queued
        };
        // Asking makes the handler measure; where the size is fixed the answer has no use.
        if self.shape.threads_min < self.shape.threads_max
            && seen.running > 0
            && let Some(threads) = pool.threads()
        {
            seen.gil_share = threads.handler.gil_share();
            seen.downstream_full = threads.handler.is_downstream_full(pool.index);
        }
        counters.set_gil_share(seen.gil_share);
        seen
    }

    /// The bounds hold whatever was decided: the size may have changed since by a thread that was lost.
    fn resize(&mut self, step: SizeStep, seen: &PoolSeen, now: Stamp) {
        let threads = seen.running + seen.idle;
        let wanted = match step {
            _ if threads > self.shape.threads_max => self.shape.threads_max,
            SizeStep::Keep => threads,
            SizeStep::Grow(more) => self.shape.threads_max.min(threads + more),
            SizeStep::Shrink(fewer) => {
                let fewest = self.shape.threads_min.min(threads);
                fewest.max(threads.saturating_sub(fewer))
            }
        };
        if wanted < threads {
            // The queue keeps one thread whatever it is told.
            self.pool().queue.shrink(threads - wanted, now);
        } else if wanted > threads {
            self.grow(wanted - threads, now);
        }
    }

    /// What the kernel refuses is said once, and tried again at the next look.
    fn grow(&mut self, more: usize, now: Stamp) {
        let spawned = self.pool().spawn(more, now);
        let was_refused = std::mem::replace(&mut self.is_refused, spawned.is_err());
        if let Err(error) = spawned
            && !was_refused
        {
            let pool = self.pool();
            let name = pool.name();
            let text = format!("cannot start another thread of the pool {name}: {error}");
            pool.shared.log.error_from_pool(Level::Warning, &text);
        }
    }
}

/// When the controller wakes, and what wakes it before.
///
/// Drivers ask it with every batch that finds no thread: that is one relaxed load as long as the controller
/// comes in time anyway.
#[derive(Default)]
pub(super) struct Timer {
    /// When the controller wakes by itself; ZERO when something is to be looked at, NEVER while it looks.
    wakes_at: AtomicU64,
    sleeper: OnceLock<Thread>,
}

impl Timer {
    /// Something is to be looked at by `at` at the latest.
    pub(super) fn set(&self, at: Stamp) {
        if at.0 < self.wakes_at.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Something is to be looked at now.
    pub(super) fn wake(&self) {
        self.wakes_at.store(Stamp::ZERO.0, Ordering::Release);
        // A thread that is about to sleep keeps this in mind, and does not.
        if let Some(thread) = self.sleeper.get() {
            thread.unpark();
        }
    }

    /// Controller: the calling thread is the one that sleeps.
    fn set_sleeper(&self) {
        self.sleeper.get_or_init(thread::current);
    }

    /// Controller: looks from now on; whatever changes behind its back wakes it.
    fn begin_scan(&self) {
        // A swap, not a store: it acquires what the thread did that set the mark before this look, so that the look
        // sees it.
        self.wakes_at.swap(Stamp::NEVER.0, Ordering::AcqRel);
    }

    /// Controller: sleeps from `now` until `until`, or until it is woken. Woken for nothing it looks once more,
    /// which does no harm.
    fn sleep(&self, now: Stamp, until: Stamp) {
        // The mark, not the token of `unpark`, says what has come since the look: a lock that the log waits for may
        // have used the token up.
        let before = self.wakes_at.swap(until.0, Ordering::AcqRel);
        if before != Stamp::ZERO.0 {
            thread::park_timeout(Duration::from_nanos(until.since(now).0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_during_a_look_ends_the_next_sleep_at_once() {
        let timer = Timer::default();
        timer.begin_scan();
        timer.set(Stamp(5));
        // Would last for ever.
        timer.sleep(Stamp(1), Stamp::NEVER);
    }

    #[test]
    fn a_sleeper_is_woken_for_what_comes_before_its_time() {
        let timer = Arc::new(Timer::default());
        let sleeper = {
            let timer = Arc::clone(&timer);
            thread::spawn(move || {
                timer.set_sleeper();
                timer.begin_scan();
                timer.sleep(Stamp(1), Stamp(u64::MAX / 2));
            })
        };
        while timer.wakes_at.load(Ordering::Relaxed) != u64::MAX / 2 {
            thread::yield_now();
        }
        timer.set(Stamp(u64::MAX / 2));
        assert_eq!(
            timer.wakes_at.load(Ordering::Relaxed),
            u64::MAX / 2,
            "it comes in time anyway"
        );
        timer.set(Stamp(7));
        sleeper.join().unwrap();
    }
}
