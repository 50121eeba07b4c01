//! The knocker: how much of their time the pool threads wait for the interpreter.
//!
//! What a thread waits to attach before an exchange is known exactly. What it waits inside, whenever the
//! application comes back from a wait of its own or is made to give way, nobody tells: a thread that
//! knocks now and then and measures its own wait stands for it. Only while somebody asks, and while
//! something runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use measure::{Nanos, Stamp};
use pyo3::prelude::*;

use super::Wsgi;
use super::roster::Roster;
use super::turns::Turns;
use crate::raw;
use crate::visit::{self, Visit};

/// How often it knocks: each time costs an attach, and a thread that is made to give way two changes of context.
const PERIOD: Duration = Duration::from_millis(50);
/// It rests when nobody has asked for so long.
const ASKED_MAX: Nanos = Nanos::from_secs(3);
/// What a knock counts for when the next one is made: those of the last half second make up two thirds.
const FADE: f64 = 0.9;
/// The share of an interpreter's time that a thread gets at once when others want it as well
/// (`sys.getswitchinterval`), where it cannot be asked for.
const SWITCH_INTERVAL_SECS: f64 = 0.005;

/// What pool threads and the knocker share.
#[derive(Default)]
pub(super) struct Door {
    pub(super) turns: Turns,
    pub(super) roster: Roster,
    /// When somebody asked last.
    asked: AtomicU64,
    /// Bits of the share; those of a NaN while nothing is known.
    share: AtomicU64,
    ended: AtomicBool,
}

/// The thread, started by the first question.
#[derive(Default)]
pub(super) struct Knocker(Mutex<Option<thread::Thread>>);

impl Knocker {
    /// The share of their time at work that pool threads waited for the interpreter lately.
    pub(super) fn share(&self, door: &Arc<Door>) -> Option<f64> {
        door.asked.store(measure::now().0, Ordering::Relaxed);
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match thread.as_ref() {
            Some(thread) if door.at_work() > 0 => thread.unpark(),
            Some(_) => {}
            // Without the thread nothing is known, and the next question tries again.
            None => {
                door.share.store(f64::NAN.to_bits(), Ordering::Relaxed);
                *thread = start(Arc::clone(door)).ok();
            }
        }
        let share = f64::from_bits(door.share.load(Ordering::Relaxed));
        (!share.is_nan()).then_some(share)
    }

    pub(super) fn end(&self, door: &Door) {
        door.ended.store(true, Ordering::Relaxed);
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        thread.iter().for_each(thread::Thread::unpark);
    }
}

impl Door {
    /// Threads inside the application, and those that wait to get there.
    fn at_work(&self) -> usize {
        self.roster.inside_len() + self.turns.attaching_len()
    }

    fn is_wanted(&self) -> bool {
        let asked = Stamp(self.asked.load(Ordering::Relaxed));
        measure::now().since(asked) < ASKED_MAX && self.at_work() > 0
    }
}

fn start(door: Arc<Door>) -> std::io::Result<thread::Thread> {
    let handle = thread::Builder::new()
        .name("mp-gil".to_owned())
        .spawn(move || {
            let visit = visit::begin();
            drop(Python::attach(|py| knock(py, &door, visit)));
        })?;
    Ok(handle.thread().clone())
}

/// Gives its last visit back, which ends once the thread has left the interpreter.
fn knock(py: Python<'_>, door: &Door, mut visit: Visit) -> Visit {
    let interval = py
        .import("sys")
        .and_then(|sys| sys.call_method0("getswitchinterval")?.extract());
    let mut share = Share::new(interval.unwrap_or(SWITCH_INTERVAL_SECS));
    let mut last = measure::now();
    while !door.ended.load(Ordering::Relaxed) {
        let is_wanted = door.is_wanted();
        if !is_wanted {
            share = Share::new(share.hold_secs);
            door.share.store(f64::NAN.to_bits(), Ordering::Relaxed);
        }
        let knocked;
        (visit, knocked) = raw::detached(py, || {
            drop(visit);
            match is_wanted {
                true => thread::sleep(PERIOD),
                false => thread::park(),
            }
            let knocked = measure::now();
            (visit::begin(), knocked)
        });
        let now = measure::now();
        if is_wanted {
            share.observe(&Knock {
                period: knocked.since(last),
                wait: now.since(knocked),
                at_work: door.at_work(),
                waited: door.turns.waited(),
            });
            door.share.store(share.get().to_bits(), Ordering::Relaxed);
        }
        last = now;
    }
    visit
}

/// What one knock has found.
struct Knock {
    /// Time since the one before.
    period: Nanos,
    /// How long it took to be let in.
    wait: Nanos,
    /// Pool threads that had something to do then.
    at_work: usize,
    /// What all pool threads have waited before their exchanges, since the beginning.
    waited: Nanos,
}

/// The share of time that is spent waiting. Sums that fade.
struct Share {
    /// How long who is let in stays there while others wait.
    hold_secs: f64,
    /// Sums of the knocks' waits, and of the times that who was let in then would have had.
    knock_waits: f64,
    knock_holds: f64,
    /// Sums of time, of that which threads were at work in it, and of the part of it before exchanges that was spent
    /// waiting.
    time: f64,
    at_work: f64,
    waits: f64,
    waited: Option<Nanos>,
}

impl Share {
    fn new(hold_secs: f64) -> Self {
        Self {
            hold_secs,
            knock_waits: 0.0,
            knock_holds: 0.0,
            time: 0.0,
            at_work: 0.0,
            waits: 0.0,
            waited: None,
        }
    }

    fn observe(&mut self, knock: &Knock) {
        for sum in [
            &mut self.knock_waits,
            &mut self.knock_holds,
            &mut self.time,
            &mut self.at_work,
            &mut self.waits,
        ] {
            *sum *= FADE;
        }
        self.knock_waits += knock.wait.as_secs_f64();
        self.knock_holds += self.hold_secs;
        let period = knock.period.as_secs_f64();
        self.time += period;
        self.at_work += period * knock.at_work as f64;
        let before = self.waited.replace(knock.waited).unwrap_or(knock.waited);
        self.waits += Nanos(knock.waited.0.saturating_sub(before.0)).as_secs_f64();
    }

    /// The known part, and of the rest what the knocks stand for: among n threads that all want the interpreter
    /// each waits for n - 1 others' turns and then has its own. Whoever keeps it for a long while, in a call into C
    /// or to collect garbage, lets the knocker wait for just as long, and of n threads no more than n - 1.
    fn get(&self) -> f64 {
        let before = match self.at_work > 0.0 {
            true => (self.waits / self.at_work).min(1.0),
            false => 0.0,
        };
        let both = self.knock_waits + self.knock_holds;
        let inside = match both > 0.0 {
            true => self.knock_waits / both,
            false => 0.0,
        };
        let others = match self.at_work > 0.0 {
            true => (1.0 - self.time / self.at_work).max(0.0),
            false => 0.0,
        };
        before + (1.0 - before) * inside.min(others)
    }
}

impl Drop for Wsgi {
    fn drop(&mut self) {
        self.knocker.end(&self.door);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(wait_us: u64, at_work: usize, waited_us: u64) -> f64 {
        let mut share = Share::new(0.005);
        for number in 0..100 {
            share.observe(&Knock {
                period: Nanos::from_ms(50),
                wait: Nanos::from_us(wait_us),
                at_work,
                waited: Nanos::from_us(waited_us * number),
            });
        }
        share.get()
    }

    #[test]
    fn nobody_waits_where_the_door_is_open() {
        assert!(share(3, 4, 0) < 0.001);
    }

    #[test]
    fn threads_that_all_want_the_interpreter_wait_for_the_others_turns() {
        for threads in [2_u64, 10, 32] {
            let expect = (threads - 1) as f64 / threads as f64;
            let found = share(5_000 * (threads - 1), threads as usize, 0);
            assert!((found - expect).abs() < 0.01, "{threads}: {found}");
        }
    }

    #[test]
    fn one_who_keeps_the_interpreter_lets_no_more_wait_than_there_are() {
        assert!(share(500_000, 1, 0) < 0.001);
        assert!((share(500_000, 2, 0) - 0.5).abs() < 0.01);
        assert!((share(500_000, 4, 0) - 0.75).abs() < 0.01);
    }

    #[test]
    fn waits_before_exchanges_count_as_they_were() {
        // Of two threads' 100 ms at work 50 were waited.
        assert!((share(0, 2, 50_000) - 0.5).abs() < 0.02);
        assert!((share(5_000, 2, 50_000) - 0.75).abs() < 0.02);
        assert!(share(0, 1, 10_000_000) <= 1.0);
    }
}
