//! How well an event loop keeps up: how long what is ready waits for it, and how busy its thread is.
//!
//! The wait is measured where the loop looks: from a wake-up, or from the moment at which the loop was to look again,
//! to the look. It needs no timer, and whoever asks while the loop hangs sees the wait so far. Every window says as well
//! whether the thread had something to do nearly all the time: then more requests inside could only wait there.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use telemetry::counters::EventLoopStats;
use telemetry::{Nanos, Stamp};

use crate::sync::lock;

/// How often what was measured is told.
const WINDOW: Nanos = Nanos(1_000_000_000);
/// A loop whose thread runs, or waits for a processor, for as much of a window is saturated.
const SATURATED_PERMILLE: u64 = 950;
/// It no longer is once this much is enough: between the two, the number of requests inside would swing.
const RELIEVED_PERMILLE: u64 = 850;

/// Measures one event loop.
#[derive(Debug, Default)]
pub(crate) struct LoopLoad {
    awaited: LoopAwaited,
    /// The longest wait of the window.
    longest: AtomicU64,
    /// The kernel's number of the loop's thread; 0 before it runs.
    thread: AtomicU32,
    /// In the last window the thread had something to do nearly all the time.
    is_saturated: AtomicBool,
    window: Mutex<Window>,
}

/// Since when something ready waits for the loop.
#[derive(Clone, Debug, Default)]
pub struct LoopAwaited(
    /// 0: nothing does.
    Arc<AtomicU64>,
);

/// Since when is measured, and of the loop's thread the number and the times until then.
#[derive(Debug, Default)]
struct Window {
    began: Stamp,
    thread: u32,
    times: ThreadTimes,
}

/// How long a thread has run, and how long it has waited for a processor.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadTimes {
    ran: Nanos,
    waited: Nanos,
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

    /// Whether the thread had something to do nearly all the time, as of the last window.
    pub(crate) fn is_saturated(&self) -> bool {
        self.is_saturated.load(Ordering::Relaxed)
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
        let thread = self.thread.load(Ordering::Relaxed);
        let times = ThreadTimes::of(thread);
        // What the thread did before the loop ran is not the loop's.
        if thread != 0 && window.thread == thread {
            let share = |until: Nanos, from: Nanos| {
                let part = u128::from(until.0.saturating_sub(from.0));
                (part * 1_000 / u128::from(span.0)).min(1_000) as u64
            };
            let ran = share(times.ran, window.times.ran);
            let waited = share(times.waited, window.times.waited);
            counters.busy_permille.set(ran);
            self.judge(ran + waited);
        }
        *window = Window {
            began: now,
            thread,
            times,
        };
        let longest = self.longest.swap(0, Ordering::Relaxed);
        counters.lag_ns.set(longest.max(waits.0));
    }

    /// The thread had something to do for so much of the last window. One that waits for a processor which others use is
    /// as saturated as one that has it.
    fn judge(&self, permille: u64) {
        let least = match self.is_saturated() {
            true => RELIEVED_PERMILLE,
            false => SATURATED_PERMILLE,
        };
        let is_saturated = permille >= least;
        self.is_saturated.store(is_saturated, Ordering::Relaxed);
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

impl ThreadTimes {
    /// Of a thread of this process; zero where there is none.
    fn of(thread: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
        let text = text.unwrap_or_default();
        let mut times = text
            .split_whitespace()
            .map(|text| text.parse().unwrap_or(0));
        let mut next = || Nanos(times.next().unwrap_or(0));
        Self {
            ran: next(),
            waited: next(),
        }
    }
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
    fn a_saturated_loop_is_relieved_only_far_below() {
        let load = LoopLoad::default();
        let judged = |permille| {
            load.judge(permille);
            load.is_saturated()
        };
        let shares = [949, 950, 1_000, 850, 849, 949];
        let expected = [false, true, true, true, false, false];
        assert_eq!(shares.map(judged), expected);
    }

    #[test]
    fn what_the_thread_did_before_the_loop_ran_does_not_count() {
        let counters = EventLoopStats::default();
        let load = LoopLoad::default();
        let now = telemetry::now();
        load.publish(&counters, now);
        let until = now.plus(Nanos::from_ms(20));
        while telemetry::now() < until {}
        load.set_thread();
        // The whole of the thread's time would be nearly all of so short a window.
        load.window.lock().unwrap().began = Stamp(now.0 - WINDOW.0);
        load.publish(&counters, now);
        assert_eq!(counters.busy_permille.count(), 0);
        assert!(!load.is_saturated());
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
