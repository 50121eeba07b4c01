//! Steps of requests that block the event loop: found while they run, and named in the error log.
//!
//! The loop notes when a step begins and ends. One thread looks at that from time to time while there are steps, and
//! parks when there are none. For a step that is too long it attaches to the interpreter and asks where the loop is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use pyo3::prelude::*;
use telemetry::{Nanos, Stamp};

use super::asgi_loop::AsgiLoop;
use crate::visit;

/// What the loop runs now.
pub(super) struct StepWatch {
    /// A longer step is logged.
    limit: Nanos,
    /// When the step began; 0 between two steps.
    since: AtomicU64,
    /// The request that it is a step of.
    key: AtomicU64,
    /// The thread waits until a step begins.
    is_parked: AtomicBool,
    is_over: AtomicBool,
    thread: OnceLock<Thread>,
}

impl StepWatch {
    pub(super) fn new(limit: Nanos) -> Self {
        Self {
            limit,
            since: AtomicU64::new(0),
            key: AtomicU64::new(0),
            is_parked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    /// Whether a step that took so long is logged.
    pub(super) fn is_overlong(&self, took: Nanos) -> bool {
        took >= self.limit
    }

    /// Loop: a step begins.
    pub(super) fn begin(&self, key: u64, now: Stamp) {
        self.key.store(key, Ordering::Relaxed);
        // Sequentially consistent, as in `wait`: either this sees that the thread parks, or the thread sees the step.
        self.since.store(now.0, Ordering::SeqCst);
        if self.is_parked.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Loop: the step has ended.
    pub(super) fn end(&self) {
        self.since.store(0, Ordering::Release);
    }

    /// The loop has ended.
    pub(super) fn close(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.is_parked.store(false, Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn since(&self) -> Stamp {
        Stamp(self.since.load(Ordering::SeqCst))
    }

    /// Until a step may be too long; while there is none, until one begins.
    fn wait(&self, was_idle: bool) {
        if was_idle {
            self.is_parked.store(true, Ordering::SeqCst);
            if self.since() == Stamp::ZERO && !self.is_over.load(Ordering::SeqCst) {
                thread::park();
            }
            self.is_parked.store(false, Ordering::SeqCst);
        }
        thread::park_timeout(Duration::from_nanos(self.limit.0));
    }

    /// The step that is too long at `now`, by its begin, unless it is `last`.
    fn overlong(&self, now: Stamp, last: Stamp) -> Option<Stamp> {
        let since = self.since();
        let is_overlong = since != Stamp::ZERO && now.since(since) >= self.limit;
        (is_overlong && since != last).then_some(since)
    }
}

/// Starts the thread that looks at the steps of `event_loop`; it ends with `close`.
pub(super) fn start(event_loop: Py<AsgiLoop>, watch: Arc<StepWatch>) -> std::io::Result<()> {
    let run = move || run(event_loop, &watch);
    let thread = thread::Builder::new().name("mp-step-watch".to_owned());
    thread.spawn(run).map(drop)
}

fn run(event_loop: Py<AsgiLoop>, watch: &StepWatch) {
    // It is set once, by the one thread there is.
    let _ = watch.thread.set(thread::current());
    let (mut last, mut was_idle) = (Stamp::ZERO, false);
    while !watch.is_over.load(Ordering::SeqCst) {
        watch.wait(was_idle);
        was_idle = watch.since() == Stamp::ZERO;
        let Some(since) = watch.overlong(telemetry::now(), last) else {
            continue;
        };
        last = since;
        let key = watch.key.load(Ordering::Relaxed);
        let _visit = visit::begin();
        Python::attach(|py| {
            let is_running = watch.since() == since;
            event_loop.get().report_step(py, key, since, is_running);
        });
    }
    let _visit = visit::begin();
    Python::attach(|_| drop(event_loop));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_step_is_found_once() {
        let watch = StepWatch::new(Nanos::from_ms(100));
        let at = |ms| Stamp(Nanos::from_ms(ms).0);
        assert_eq!(watch.overlong(at(1_000), Stamp::ZERO), None);
        watch.since.store(at(1_000).0, Ordering::SeqCst);
        assert_eq!(watch.overlong(at(1_099), Stamp::ZERO), None);
        assert_eq!(watch.overlong(at(1_100), Stamp::ZERO), Some(at(1_000)));
        assert_eq!(watch.overlong(at(1_200), at(1_000)), None);
        watch.end();
        assert_eq!(watch.overlong(at(9_000), Stamp::ZERO), None);
    }
}
