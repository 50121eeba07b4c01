//! How much of their time the pool threads of an application wait for the interpreter.
//!
//! What a thread waits to attach before an exchange is known exactly. What it waits inside, whenever the
//! application comes back from a wait of its own or is made to give way, nobody tells: the thread `mp-gil`, which
//! attaches now and then and measures its own wait, stands for it. Only while somebody asks, and while something runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use pyo3::prelude::*;
use telemetry::{Nanos, Stamp};

use super::thread_registry::ThreadRegistry;
use super::worker::Turns;
use crate::visit;

/// How often the probe attaches: each time costs an attach, and a thread that is made to give way two changes of
/// context.
const PERIOD: Duration = Duration::from_millis(50);
/// It rests when nobody has asked for so long.
const ASKED_MAX: Nanos = Nanos::from_secs(3);
/// What a probe counts for when the next one is made: those of the last half second make up two thirds.
const FADE: f64 = 0.9;
/// The share of an interpreter's time that a thread gets at once when others want it as well
/// (`sys.getswitchinterval`), where it cannot be asked for.
const SWITCH_INTERVAL_SECS: f64 = 0.005;

/// What the pool threads of an application and the probe share.
#[derive(Default)]
pub(super) struct Gil {
    pub(super) threads: ThreadRegistry,
    pub(super) turns: Turns,
    /// When somebody asked last.
    asked: AtomicU64,
    /// Bits of the share; those of a NaN while nothing is known.
    share: AtomicU64,
    ended: AtomicBool,
    /// The thread that measures, started by the first question.
    probe: Mutex<Option<Thread>>,
}

impl Gil {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            turns: Turns::new(is_on),
            ..Self::default()
        }
    }

    /// The share of their time at work that pool threads waited for the interpreter lately.
    pub(super) fn share(self: &Arc<Self>) -> Option<f64> {
        if !self.turns.is_on {
            return None;
        }
        self.asked.store(telemetry::now().0, Ordering::Relaxed);
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        match probe.as_ref() {
            Some(thread) if self.at_work() > 0 => thread.unpark(),
            Some(_) => {}
            // Without the thread nothing is known, and the next question tries again.
            None => {
                self.share.store(f64::NAN.to_bits(), Ordering::Relaxed);
                *probe = start(Arc::clone(self)).ok();
            }
        }
        let share = f64::from_bits(self.share.load(Ordering::Relaxed));
        (!share.is_nan()).then_some(share)
    }

    /// Ends the probe.
    pub(super) fn end(&self) {
        // The mark first: `unpark` orders it before the look of the woken thread, which would park again without it.
        self.ended.store(true, Ordering::Relaxed);
        let probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        probe.iter().for_each(Thread::unpark);
    }

    /// Threads inside the application, and those that wait to get there.
    fn at_work(&self) -> usize {
        self.threads.inside_len() + self.turns.attaching.load(Ordering::Relaxed)
    }

    fn is_asked_for(&self) -> bool {
        let asked = Stamp(self.asked.load(Ordering::Relaxed));
        telemetry::now().since(asked) < ASKED_MAX && self.at_work() > 0
    }
}

fn start(gil: Arc<Gil>) -> std::io::Result<Thread> {
    let builder = thread::Builder::new().name("mp-gil".to_owned());
    let handle = builder.spawn(move || probe(&gil))?;
    Ok(handle.thread().clone())
}

fn probe(gil: &Gil) {
    let mut share = Share::default();
    let mut last = telemetry::now();
    while !gil.ended.load(Ordering::Relaxed) {
        if !gil.is_asked_for() {
            share = Share::default();
            gil.share.store(f64::NAN.to_bits(), Ordering::Relaxed);
            thread::park();
            last = telemetry::now();
            continue;
        }
        thread::sleep(PERIOD);
        let _visit = visit::begin();
        let began = telemetry::now();
        let (now, hold_secs) = Python::attach(|py| (telemetry::now(), switch_interval_secs(py)));
        share.observe(&Probed {
            period: began.since(last),
            wait: now.since(began),
            hold_secs,
            at_work: gil.at_work(),
            waited: Nanos(gil.turns.waited_ns.load(Ordering::Relaxed)),
        });
        gil.share.store(share.get().to_bits(), Ordering::Relaxed);
        last = now;
    }
}

fn switch_interval_secs(py: Python<'_>) -> f64 {
    let interval = py
        .import("sys")
        .and_then(|sys| sys.call_method0("getswitchinterval")?.extract());
    interval.unwrap_or(SWITCH_INTERVAL_SECS)
}

/// What one probe has found.
struct Probed {
    /// Time since the one before.
    period: Nanos,
    /// How long it took to be let in.
    wait: Nanos,
    /// How long who is let in stays there while others wait.
    hold_secs: f64,
    /// Pool threads that had something to do then.
    at_work: usize,
    /// What all pool threads have waited before their exchanges, since the beginning.
    waited: Nanos,
}

/// The share of time that is spent waiting. Sums that fade.
#[derive(Default)]
struct Share {
    /// The probes' waits, and these with the times that who was let in then would have had.
    probe_waits: f64,
    probe_times: f64,
    /// Time, what threads were at work in it, and what of that was spent waiting before exchanges.
    time: f64,
    at_work: f64,
    waits: f64,
    waited: Option<Nanos>,
}

impl Share {
    fn observe(&mut self, probed: &Probed) {
        let add = |sum: &mut f64, secs: f64| *sum = *sum * FADE + secs;
        let wait = probed.wait.as_secs_f64();
        add(&mut self.probe_waits, wait);
        add(&mut self.probe_times, wait + probed.hold_secs);
        let period = probed.period.as_secs_f64();
        add(&mut self.time, period);
        add(&mut self.at_work, period * probed.at_work as f64);
        let before = self.waited.replace(probed.waited).unwrap_or(probed.waited);
        let waited = Nanos(probed.waited.0.saturating_sub(before.0));
        add(&mut self.waits, waited.as_secs_f64());
    }

    /// The known part, and of the rest what the probes stand for: among n threads that all want the interpreter
    /// each waits for n - 1 others' turns and then has its own. Whoever keeps it for a long while, in a call into C
    /// or to collect garbage, lets the probe wait for just as long, and of n threads no more than n - 1.
    fn get(&self) -> f64 {
        let share = |part: f64, whole: f64| match whole > 0.0 {
            true => (part / whole).clamp(0.0, 1.0),
            false => 0.0,
        };
        let before = share(self.waits, self.at_work);
        let inside = share(self.probe_waits, self.probe_times);
        let others = share(self.at_work - self.time, self.at_work);
        before + (1.0 - before) * inside.min(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(wait_us: u64, at_work: usize, waited_us: u64) -> f64 {
        let mut share = Share::default();
        for number in 0..100 {
            share.observe(&Probed {
                period: Nanos::from_ms(50),
                wait: Nanos::from_us(wait_us),
                hold_secs: 0.005,
                at_work,
                waited: Nanos::from_us(waited_us * number),
            });
        }
        share.get()
    }

    #[test]
    fn nobody_waits_where_the_interpreter_is_free() {
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
