//! What blocks the event loop: found while it runs, and named in the error log.
//!
//! The loop notes when a step of a request begins and ends. One thread looks at that from time to time while there are
//! steps, and seldom when there are none. For a step that is too long it attaches to the interpreter and asks where the
//! loop is. Other callbacks are not noted: something that waits for the loop, and no step, shows them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use pyo3::prelude::*;
use server::pool::LoopAwaited;
use telemetry::{Nanos, Stamp};

use super::asgi_loop::AsgiLoop;
use crate::visit;

/// A callback that is no step of a request blocks the loop if it runs for longer.
const OTHERS_LIMIT: Nanos = Nanos(1_000_000_000);
/// When what still runs is reported again.
const REPEATS: [Nanos; 2] = [Nanos(1_000_000_000), Nanos(10_000_000_000)];

/// What the loop runs now.
pub(super) struct StepWatch {
    /// A longer step is logged.
    limit: Nanos,
    /// When the step began; 0 between two steps.
    since: AtomicU64,
    /// When the last step ended.
    ended: AtomicU64,
    /// Since when something waits for the loop.
    awaited: LoopAwaited,
    /// The request that it is a step of.
    key: AtomicU64,
    /// The thread waits until a step begins.
    is_parked: AtomicBool,
    is_over: AtomicBool,
    thread: OnceLock<Thread>,
}

impl StepWatch {
    pub(super) fn new(limit: Nanos, awaited: LoopAwaited) -> Self {
        Self {
            limit,
            since: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            awaited,
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
    pub(super) fn end(&self, now: Stamp) {
        self.ended.store(now.0, Ordering::Relaxed);
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

    /// Until a step may be too long; while there is none, until one begins, or something else may block the loop.
    fn wait(&self, was_idle: bool) {
        if was_idle {
            self.is_parked.store(true, Ordering::SeqCst);
            if self.since() == Stamp::ZERO && !self.is_over.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_nanos(OTHERS_LIMIT.0));
            }
            self.is_parked.store(false, Ordering::SeqCst);
        }
        thread::park_timeout(Duration::from_nanos(self.next_look_in(telemetry::now()).0));
    }

    /// How long nothing can become too long of which the next look does not see the begin: until the step that runs is,
    /// and no longer than one that begins now may take. A look at fixed times would miss a step that is not twice as long.
    fn next_look_in(&self, now: Stamp) -> Nanos {
        let due = match self.since() {
            Stamp::ZERO => now,
            since => since.plus(self.limit),
        };
        match due.since(now) {
            // Nothing runs, or what does is logged already.
            Nanos::ZERO => self.limit,
            left => left,
        }
    }

    /// What the loop runs, and since when, as far as it is known.
    fn running(&self) -> Option<LoopCallback> {
        let (since, key) = (self.since(), self.key.load(Ordering::Relaxed));
        if since != Stamp::ZERO {
            return Some(LoopCallback {
                since,
                key: Some(key),
            });
        }
        let ended = Stamp(self.ended.load(Ordering::Relaxed));
        let awaited = self.awaited.since()?;
        Some(LoopCallback {
            since: awaited.max(ended),
            key: None,
        })
    }

    /// When something that began then, and was reported so often, is to be reported again.
    fn due(&self, running: LoopCallback, reports: usize) -> Option<Stamp> {
        let least = match running.key {
            Some(_) => self.limit,
            None => self.limit.max(OTHERS_LIMIT),
        };
        let mut limits =
            std::iter::once(least).chain(REPEATS.into_iter().filter(|limit| *limit > least));
        Some(running.since.plus(limits.nth(reports)?))
    }
}

/// Something that the loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LoopCallback {
    since: Stamp,
    /// The request that it is a step of; `None`: another callback.
    key: Option<u64>,
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
    let (mut last, mut reports, mut was_idle) = (None, 0, false);
    while !watch.is_over.load(Ordering::SeqCst) {
        watch.wait(was_idle);
        let running = watch.running();
        was_idle = watch.since() == Stamp::ZERO;
        if running != last {
            (last, reports) = (running, 0);
        }
        let due = running.and_then(|running| watch.due(running, reports));
        let (Some(running), true) = (running, due.is_some_and(|due| due <= telemetry::now()))
        else {
            continue;
        };
        reports += 1;
        let _visit = visit::begin();
        Python::attach(|py| {
            let is_running = watch.running() == Some(running);
            event_loop
                .get()
                .report_step(py, running.key, running.since, is_running);
        });
    }
    let _visit = visit::begin();
    Python::attach(|_| drop(event_loop));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Stamp {
        Stamp(Nanos::from_ms(ms).0)
    }

    #[test]
    fn a_step_is_reported_at_its_limit_and_after_one_and_ten_seconds() {
        let watch = StepWatch::new(Nanos::from_ms(100), LoopAwaited::default());
        assert_eq!(watch.running(), None);
        watch.begin(7, at(1_000));
        let running = watch.running().unwrap();
        assert_eq!((running.since, running.key), (at(1_000), Some(7)));
        let due = |reports| watch.due(running, reports);
        let expect = [Some(at(1_100)), Some(at(2_000)), Some(at(11_000)), None];
        assert_eq!([0, 1, 2, 3].map(due), expect);
        watch.end(at(9_000));
        assert_eq!(watch.running(), None);
    }

    #[test]
    fn the_next_look_is_when_the_step_is_too_long() {
        let watch = StepWatch::new(Nanos::from_ms(100), LoopAwaited::default());
        let check = |now: u64, expect: u64| {
            assert_eq!(watch.next_look_in(at(now)), Nanos::from_ms(expect), "{now}");
        };
        check(1_000, 100);
        watch.begin(7, at(1_000));
        check(1_000, 100);
        check(1_098, 2);
        check(1_100, 100);
        check(1_500, 100);
        watch.end(at(1_600));
        check(1_600, 100);
    }

    #[test]
    fn what_is_no_step_counts_from_the_last_one_on_while_something_waits() {
        let awaited = LoopAwaited::default();
        let watch = StepWatch::new(Nanos::from_ms(100), awaited.clone());
        watch.begin(7, at(1));
        watch.end(at(2));
        awaited.begin();
        let running = watch.running().unwrap();
        // Something began to wait now, behind the step.
        assert!(running.since > at(2));
        assert_eq!(running.key, None);
        let due = watch.due(running, 0).unwrap();
        assert_eq!(due.since(running.since), OTHERS_LIMIT);
        let later = running.since.plus(Nanos(5));
        watch.end(later);
        assert_eq!(watch.running().unwrap().since, later);
    }
}
