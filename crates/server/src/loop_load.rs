//! How well an event loop keeps up: how long what is ready waits for it, and how busy its thread is.
//!
//! The wait is measured where the loop looks: from a wake-up, or from the moment at which the loop was to look again,
//! to the look. It needs no timer, and whoever asks while the loop hangs sees the wait so far.

use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ipc::stats::EventLoopStats;
use telemetry::{Nanos, Stamp};

use crate::sync::lock;

/// How often what was measured is told.
const WINDOW: Nanos = Nanos(1_000_000_000);

/// Measures one event loop.
#[derive(Debug, Default)]
pub(crate) struct LoopLoad {
    awaited: LoopAwaited,
    /// The longest wait of the window.
    longest: AtomicU64,
    /// The kernel's number of the loop's thread; 0 before it runs.
    thread: AtomicU32,
    window: Mutex<Window>,
}

/// Since when something ready waits for the loop.
#[derive(Clone, Debug, Default)]
pub struct LoopAwaited(
    /// 0: nothing does.
    Arc<AtomicU64>,
);

/// Since when is measured, and the processor time of the thread until then.
#[derive(Debug, Default)]
struct Window {
    began: Stamp,
    cpu: Nanos,
}

impl LoopLoad {
    /// Loop: it runs on this thread.
    pub(crate) fn set_thread(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread.unsigned_abs(), Ordering::Relaxed);
    }

    /// Something is ready for the loop. Before the loop is called: a look that comes in between sees it either way.
    pub(crate) fn await_look(&self) {
        self.awaited.begin();
    }

    /// Loop: it looks. How long it was waited for.
    pub(crate) fn begin_look(&self, now: Stamp) -> Nanos {
        let waited = self.awaited.end(now);
        self.longest.fetch_max(waited.0, Ordering::Relaxed);
        waited
    }

    pub(crate) fn awaited(&self) -> LoopAwaited {
        self.awaited.clone()
    }

    /// Tells the counters what there is to tell now.
    pub(crate) fn publish(&self, counters: &EventLoopStats, now: Stamp) {
        let waits = self.awaited.so_far(now);
        let mut window = lock(&self.window);
        let span = now.since(window.began);
        if span < WINDOW {
            // What waits now counts at once.
            if waits.0 > counters.lag_ns.count() {
                counters.lag_ns.set(waits.0);
            }
            return;
        }
        let cpu = thread_cpu(self.thread.load(Ordering::Relaxed));
        let had = cpu.0.saturating_sub(window.cpu.0);
        let busy_permille = match window.began {
            Stamp::ZERO => 0,
            _ => (u128::from(had) * 1_000 / u128::from(span.0)).min(1_000) as u64,
        };
        *window = Window { began: now, cpu };
        counters.busy_permille.set(busy_permille);
        let longest = self.longest.swap(0, Ordering::Relaxed);
        counters.lag_ns.set(longest.max(waits.0));
    }
}

impl LoopAwaited {
    /// Something waits from now on. Who is first counts.
    pub fn begin(&self) {
        if self.0.load(Ordering::Relaxed) == 0 {
            // Another one may be the first meanwhile.
            self.begin_at(telemetry::now());
        }
    }

    /// The loop is to look then.
    pub(crate) fn begin_at(&self, then: Stamp) {
        let order = Ordering::Relaxed;
        let _ = self.0.compare_exchange(0, then.0, order, order);
    }

    /// Since when, if something waits.
    pub fn since(&self) -> Option<Stamp> {
        let since = self.0.load(Ordering::Relaxed);
        (since != 0).then_some(Stamp(since))
    }

    fn so_far(&self, now: Stamp) -> Nanos {
        self.since().map_or(Nanos::ZERO, |since| now.since(since))
    }

    /// Nothing waits any more. How long it did.
    fn end(&self, now: Stamp) -> Nanos {
        let so_far = self.so_far(now);
        self.0.store(0, Ordering::Relaxed);
        so_far
    }
}

/// Processor time of a thread of this process.
fn thread_cpu(thread: u32) -> Nanos {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
    let text = text.unwrap_or_default();
    let first = text.split(' ').next().and_then(|text| text.parse().ok());
    Nanos(first.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_waits_counts_until_a_look() {
        let load = LoopLoad::default();
        let before = telemetry::now();
        load.await_look();
        load.await_look();
        let since = load.awaited.since().unwrap();
        assert!(since >= before);
        assert_eq!(load.begin_look(since.plus(Nanos(70))), Nanos(70));
        assert_eq!(load.begin_look(since.plus(Nanos(90))), Nanos::ZERO);
    }

    #[test]
    fn a_loop_that_hangs_is_seen_from_outside_at_once() {
        let counters = EventLoopStats::default();
        let load = LoopLoad::default();
        load.set_thread();
        let now = telemetry::now();
        load.publish(&counters, now);
        assert_eq!(counters.lag_ns.count(), 0);
        load.awaited.0.store(now.0, Ordering::Relaxed);
        load.publish(&counters, now.plus(Nanos(500)));
        assert_eq!(counters.lag_ns.count(), 500);
        load.begin_look(now.plus(Nanos(600)));
        // The wait is that of the second in which it ended, and is forgotten with the next.
        load.publish(&counters, now.plus(WINDOW));
        assert_eq!(counters.lag_ns.count(), 600);
        load.publish(&counters, now.plus(Nanos(2 * WINDOW.0)));
        assert_eq!(counters.lag_ns.count(), 0);
    }

    #[test]
    fn the_share_is_that_of_the_thread_in_the_window() {
        let counters = EventLoopStats::default();
        let load = LoopLoad::default();
        load.set_thread();
        let now = telemetry::now();
        load.publish(&counters, now);
        let until = now.plus(Nanos::from_ms(50));
        while telemetry::now() < until {}
        load.publish(&counters, now.plus(WINDOW));
        // As much of it as others have left to this thread.
        assert!(
            (1..=60).contains(&counters.busy_permille.count()),
            "{counters:?}",
            counters = counters.busy_permille.count()
        );
    }
}
