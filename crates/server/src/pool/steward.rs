//! The steward: one thread of the process that looks after all pools. It has them grow and shrink, finds out
//! how hard it is for them, and tells those who have waited too long.
//!
//! Decides nothing: `stage` does. Sleeps as long as nothing can happen; whoever waits rings it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use measure::{Nanos, Stamp};
use stage::{Decision, Mood, PoolSeen, Pressure, SizeStep, TICK};

use super::worker::{Tools, panic_text};
use super::{Pool, store};
use crate::log::Level;
use crate::sync::lock;

/// How often it looks at pools where nothing happens.
const IDLE_TICK: Nanos = Nanos::from_secs(1);
/// Refusals in a row before it looks after the other pools again.
const REFUSALS_MAX: usize = 256;

/// Starts the steward of `pools`; it ends when they are closed.
///
/// # Errors
/// The kernel gives no more threads.
pub(crate) fn start_steward(pools: &[Arc<Pool>]) -> io::Result<()> {
    let all_tools: Vec<Tools> = pools.iter().cloned().map(Tools::new).collect();
    let steward = move || look_after(all_tools);
    thread::Builder::new()
        .name("mp-steward".to_owned())
        .spawn(steward)
        .map(drop)
}

fn look_after(mut all_tools: Vec<Tools>) {
    // A refusal to a client that is gone must not end the process.
    crate::sys::block_sigpipe();
    let Some(first) = all_tools.first() else {
        return;
    };
    let alarm = Arc::clone(&first.pool.alarm);
    loop {
        alarm.look();
        all_tools.retain(|tools| !tools.pool.closed.load(Ordering::Relaxed));
        if all_tools.is_empty() {
            return;
        }
        let mut wake = Stamp::NEVER;
        for tools in &mut all_tools {
            let looked = catch_unwind(AssertUnwindSafe(|| {
                let due = refuse_expired(tools, measure::now());
                due.min(tools.pool.look(measure::now()))
            }));
            wake = wake.min(looked.unwrap_or_else(|panic| {
                let (name, text) = (tools.pool.name(), panic_text(panic.as_ref()));
                let text = format!("nobody could look after the pool {name}: {text}");
                tools.pool.log.error_from_pool(Level::Error, &text);
                measure::now().plus(IDLE_TICK)
            }));
        }
        alarm.sleep(measure::now(), wake);
    }
}

/// Tells those who have waited too long; gives when the next one will have.
fn refuse_expired(tools: &mut Tools, now: Stamp) -> Stamp {
    for _ in 0..REFUSALS_MAX {
        match tools.pool.queue.take_expired(now) {
            Some(job) => {
                tools.pool.has_left(job.exchange.record.class);
                tools.refuse(job, now);
            }
            None => break,
        }
    }
    tools.pool.queue.next_expiry()
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
        self.set_mood(decision.mood);
        self.step(decision, &seen, now);
        match self.is_quiet(decision, &seen) {
            true => now.plus(IDLE_TICK),
            false => now.plus(TICK),
        }
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
            && let Some(handler) = self.handler()
        {
            seen.gil_share = handler.gil_share();
            seen.downstream_full = handler.is_downstream_full(self.index);
        }
        self.counters.set_gil_share(seen.gil_share);
        seen
    }

    fn set_mood(&self, mood: Mood) {
        self.mood.store(mood);
        self.queue.set_mood(mood);
        store(&self.counters.pressure, mood.pressure as usize);
    }

    /// The bounds hold whatever was decided: they may have changed since, or the size by a thread that was
    /// lost.
    fn step(self: &Arc<Self>, decision: Decision, seen: &PoolSeen, now: Stamp) {
        let shape = self.settings().shape;
        let threads = seen.running + seen.idle;
        if threads > shape.threads_max {
            self.queue.shrink(threads - shape.threads_max, now);
            return;
        }
        match decision.step {
            SizeStep::Keep => {}
            SizeStep::Grow(more) => {
                let more = more.min(shape.threads_max - threads);
                if more > 0 {
                    self.hire_if_possible(more, now);
                }
            }
            SizeStep::Shrink(fewer) => {
                let fewer = fewer.min(threads.saturating_sub(shape.threads_min));
                if fewer > 0 {
                    self.queue.shrink(fewer, now);
                }
            }
        }
    }

    /// Nothing runs, nothing waits, nobody is to come or to go: the next to come rings.
    fn is_quiet(&self, decision: Decision, seen: &PoolSeen) -> bool {
        seen.waiting == 0
            && seen.running == 0
            && decision.step == SizeStep::Keep
            && decision.mood.pressure == Pressure::Calm
            && seen.idle == self.settings().shape.threads_min
    }
}
