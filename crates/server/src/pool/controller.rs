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

use measure::{Nanos, Stamp};
use stage::{Control, Decision, Mood, PoolSeen, Pressure, SizeStep, TICK};

use super::worker::{Responder, panic_text};
use super::{Pool, store};
use crate::log::Level;
use crate::sync::lock;

/// How often it looks at pools where nothing happens.
const IDLE_TICK: Nanos = Nanos::from_secs(1);
/// Refusals in a row before it looks after the other pools again.
const REFUSALS_MAX: usize = 256;

/// What the controller keeps of a pool from look to look.
pub(super) struct Steering {
    pub(super) control: Control,
    /// When it was looked at last.
    pub(super) looked: Stamp,
    /// The last thread that was to be started could not be, and that was said.
    pub(super) is_refused: bool,
}

/// Starts the controller of `pools`; it ends when they are closed.
///
/// # Errors
/// The kernel gives no more threads.
pub(crate) fn start_controller(pools: &[Arc<Pool>]) -> io::Result<()> {
    let pools: Vec<_> = pools.iter().cloned().map(Responder::new).collect();
    let thread = thread::Builder::new().name("mp-steward".to_owned());
    thread.spawn(move || run(pools)).map(drop)
}

fn run(mut pools: Vec<Responder>) {
    // A refusal to a client that is gone must not end the process.
    crate::sys::block_sigpipe();
    let Some(timer) = pools.first().map(|first| Arc::clone(&first.pool.timer)) else {
        return;
    };
    timer.sleeps_here();
    loop {
        timer.look();
        pools.retain(|responder| responder.pool.threads().is_some());
        if pools.is_empty() {
            return;
        }
        let mut wake = Stamp::NEVER;
        for responder in &mut pools {
            let looked = catch_unwind(AssertUnwindSafe(|| {
                let due = refuse_expired(responder, measure::now());
                due.min(responder.pool.look(measure::now()))
            }));
            wake = wake.min(looked.unwrap_or_else(|panic| {
                let (pool, text) = (&responder.pool, panic_text(panic.as_ref()));
                let text = format!("nobody could look after the pool {}: {text}", pool.name());
                pool.shared.log.error_from_pool(Level::Error, &text);
                measure::now().plus(IDLE_TICK)
            }));
        }
        timer.sleep(measure::now(), wake);
    }
}

/// Refuses what has waited too long; gives when the next one will have.
fn refuse_expired(responder: &mut Responder, now: Stamp) -> Stamp {
    for _ in 0..REFUSALS_MAX {
        let Some(job) = responder.pool.queue.take_expired(now) else {
            break;
        };
        responder.refuse(job, now);
    }
    responder.pool.queue.next_expiry()
}

impl Pool {
    /// Looks at the pool if it is time to; gives when the next look is due.
    fn look(self: &Arc<Self>, now: Stamp) -> Stamp {
        let (decision, seen) = {
            let mut steering = lock(&self.steering);
            if now.since(steering.looked) < TICK {
                return steering.looked.plus(TICK);
            }
            steering.looked = now;
            let seen = self.seen(now);
            (steering.control.tick(now, &seen), seen)
        };
        self.load.store(decision.mood);
        self.queue.set_mood(decision.mood);
        store(&self.counters.pressure, decision.mood.pressure as usize);
        self.resize(decision.step, &seen, now);
        now.plus(match self.is_quiet(decision, &seen) {
            true => IDLE_TICK,
            false => TICK,
        })
    }

    fn seen(&self, now: Stamp) -> PoolSeen {
        let counters = &self.counters;
        let refused = [&counters.refused, &counters.shed, &counters.expired];
        let refused = refused.map(|count| count.load(Ordering::Relaxed));
        let mut seen = PoolSeen {
            completed: counters.completed.load(Ordering::Relaxed),
            refused: refused.iter().sum(),
            ..self.queue.look(now)
        };
        let shape = self.settings().shape;
        // Asking has the handler measure; where the size is fixed nobody would use the answer.
        if shape.threads_min < shape.threads_max
            && seen.running > 0
            && let Some(threads) = self.threads()
        {
            seen.gil_share = threads.handler.gil_share();
            seen.downstream_full = threads.handler.is_downstream_full(self.index);
        }
        self.counters.set_gil_share(seen.gil_share);
        seen
    }

    /// The bounds hold whatever was decided: they may have changed since, or the size by a thread that was
    /// lost.
    fn resize(self: &Arc<Self>, step: SizeStep, seen: &PoolSeen, now: Stamp) {
        let shape = self.settings().shape;
        let threads = seen.running + seen.idle;
        let wanted = match step {
            _ if threads > shape.threads_max => shape.threads_max,
            SizeStep::Keep => threads,
            SizeStep::Grow(more) => shape.threads_max.min(threads + more),
            SizeStep::Shrink(fewer) => {
                let fewest = shape.threads_min.min(threads);
                fewest.max(threads.saturating_sub(fewer))
            }
        };
        if wanted < threads {
            self.queue.shrink(threads - wanted, now);
        } else if wanted > threads {
            self.spawn_if_possible(wanted - threads, now);
        }
    }

    /// What the kernel refuses is said once, and tried again at the next look.
    fn spawn_if_possible(self: &Arc<Self>, more: usize, now: Stamp) {
        let spawned = self.spawn(more, now);
        let mut steering = lock(&self.steering);
        let was_refused = std::mem::replace(&mut steering.is_refused, spawned.is_err());
        drop(steering);
        if let Err(error) = spawned
            && !was_refused
        {
            let name = self.name();
            let text = format!("cannot start another thread of the pool {name}: {error}");
            self.shared.log.error_from_pool(Level::Warning, &text);
        }
    }

    /// Nothing runs, nothing waits, nobody is to come or to go: the next to come ends the sleep.
    fn is_quiet(&self, decision: Decision, seen: &PoolSeen) -> bool {
        seen.waiting == 0
            && seen.running == 0
            && decision.step == SizeStep::Keep
            && decision.mood.pressure == Pressure::Calm
            && seen.idle == self.settings().shape.threads_min
    }
}

/// How hard it is for a pool, as the controller has found last, where drivers read it: one number, without a lock.
/// In the upper half the pressure, in the lower the rate as an `f32`, where no number means that nothing is known.
pub(super) struct LoadState(AtomicU64);

impl LoadState {
    pub(super) fn new() -> Self {
        let state = Self(AtomicU64::new(0));
        state.store(Mood::default());
        state
    }

    pub(super) fn load(&self) -> Mood {
        let packed = self.0.load(Ordering::Relaxed);
        let rate = f32::from_bits(packed as u32);
        Mood {
            pressure: match packed >> 32 {
                0 => Pressure::Calm,
                1 => Pressure::Saturated,
                _ => Pressure::Overloaded,
            },
            completed_per_second: (!rate.is_nan()).then_some(f64::from(rate)),
        }
    }

    fn store(&self, mood: Mood) {
        // A rate is a matter of two or three digits.
        let rate = mood.completed_per_second;
        let rate = rate.map_or(f32::NAN, |rate| rate as f32);
        let packed = (mood.pressure as u64) << 32 | u64::from(rate.to_bits());
        self.0.store(packed, Ordering::Relaxed);
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
    fn sleeps_here(&self) {
        self.sleeper.get_or_init(thread::current);
    }

    /// Controller: looks from now on; whatever changes behind its back wakes it.
    fn look(&self) {
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
    fn a_load_state_is_read_as_it_was_written() {
        let rates = [None, Some(0.0), Some(0.25), Some(80_000.0), Some(1e30)];
        for pressure in [Pressure::Calm, Pressure::Saturated, Pressure::Overloaded] {
            for completed_per_second in rates {
                let state = LoadState::new();
                assert_eq!(state.load(), Mood::default());
                let mood = Mood {
                    pressure,
                    completed_per_second,
                };
                state.store(mood);
                let found = state.load();
                assert_eq!(found.pressure, pressure);
                let parts = found.completed_per_second.zip(completed_per_second);
                assert_eq!(found.completed_per_second.is_some(), parts.is_some());
                assert!(parts.is_none_or(
                    |(found, meant)| (found / meant - 1.0).abs() < 1e-6 || found == meant
                ));
            }
        }
    }

    #[test]
    fn a_wake_up_during_a_look_ends_the_next_sleep_at_once() {
        let timer = Timer::default();
        timer.look();
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
                timer.sleeps_here();
                timer.look();
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
