//! The size of a pool that is not saturated: by queue latency.
//!
//! Takes waits tick by tick, says whether there are too few threads or too many. Only waits that began after
//! the last growth count: those before it were caused by the size before, and would make the next growth
//! (a rule that did so wound up to 37 threads where 17 do). It must not know the size.

use std::collections::VecDeque;

use telemetry::Nanos;

use super::PoolSeen;
use crate::WaitsSeen;

/// Ticks whose waits may make the pool grow: 10 s.
const GROW_LEN: usize = 100;
/// Ticks whose waits may keep it from shrinking: 30 s.
const SHRINK_LEN: usize = 300;
/// This share of waits may be longer than the target: p95.
const LATE_SHARE: f64 = 0.05;
/// And this many always: a percentile of three is none.
const LATE_LEN_MIN: usize = 3;
/// Waits that a share is taken of at least.
const SHARE_OF_MIN: usize = 60;
/// A pool shrinks while no larger share than this waits longer than half the target.
const HALF_LATE_SHARE: f64 = 0.02;

/// What was seen of waits since the last change of size.
#[derive(Clone, Debug)]
pub(super) struct LatencyTarget {
    /// Waits longer than the target since the last change.
    over_target: Window,
    /// Waits longer than half of it since the last growth: that few waited before a shrink allows the next.
    over_half: Window,
}

impl LatencyTarget {
    pub(super) fn new() -> LatencyTarget {
        LatencyTarget {
            over_target: Window::new(GROW_LEN),
            over_half: Window::new(SHRINK_LEN),
        }
    }

    /// The pool has grown.
    pub(super) fn grown(&mut self) {
        self.over_target.clear();
        self.over_half.clear();
    }

    /// The pool has shrunk.
    pub(super) fn shrunk(&mut self) {
        self.over_target.clear();
    }

    /// What a tick saw.
    pub(super) fn observe(&mut self, waits: &WaitsSeen) {
        self.over_target.push(waits.taken, waits.over_target);
        self.over_half.push(waits.taken, waits.over_half);
    }

    /// Too few threads: more than 5 in 100 waited longer than the target, or wait so long already.
    pub(super) fn is_late(&self, seen: &PoolSeen) -> bool {
        let late = self.over_target.late + seen.waits.waiting_over_target;
        let all = self.over_target.taken + seen.waiting;
        late >= LATE_LEN_MIN && late as f64 > LATE_SHARE * all.max(SHARE_OF_MIN) as f64
    }

    /// Too many threads: hardly anybody waited even half the target.
    pub(super) fn is_roomy(&self, seen: &PoolSeen, target: Nanos) -> bool {
        let late = self.over_half.late as f64;
        late <= HALF_LATE_SHARE * self.over_half.taken as f64 && seen.oldest_wait.0 <= target.0 / 2
    }
}

/// Counts of the last ticks, with their sums.
#[derive(Clone, Debug)]
struct Window {
    len_max: usize,
    ticks: VecDeque<(usize, usize)>,
    taken: usize,
    late: usize,
}

impl Window {
    fn new(len_max: usize) -> Window {
        Window {
            len_max,
            ticks: VecDeque::with_capacity(len_max),
            taken: 0,
            late: 0,
        }
    }

    fn push(&mut self, taken: usize, late: usize) {
        if self.ticks.len() == self.len_max
            && let Some((taken, late)) = self.ticks.pop_front()
        {
            self.taken -= taken;
            self.late -= late;
        }
        self.ticks.push_back((taken, late));
        self.taken += taken;
        self.late += late;
    }

    fn clear(&mut self) {
        self.ticks.clear();
        (self.taken, self.late) = (0, 0);
    }
}
