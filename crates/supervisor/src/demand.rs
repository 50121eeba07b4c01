//! How many requests pools would run at once if none had to wait and none were refused: what an autoscaler follows.
//!
//! Takes what each pool has counted, once a second; gives the mean of the last seconds. Knows no processes.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Pools are looked at so often.
const EVERY: Duration = Duration::from_secs(1);
/// The mean is of so many seconds. Shorter ones swing more, longer ones see a sudden load later.
const SECONDS: usize = 8;
/// Most clients that are refused try again.
const TRIES: f64 = 2.0;

/// What a pool has counted in all processes until now, those that are gone included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolCounts {
    /// Requests that run now.
    pub(super) running: u64,
    /// Requests that wait now.
    pub(super) waiting: u64,
    pub(super) completed: u64,
    /// Refused because of the load, for whatever reason.
    pub(super) refused: u64,
}

/// The last seconds of all pools by their names.
#[derive(Debug, Default)]
pub(super) struct DemandMeter {
    /// With the time of each look: a machine that stood still makes a look late.
    pools: BTreeMap<String, VecDeque<(Instant, PoolCounts)>>,
    due: Option<Instant>,
}

impl DemandMeter {
    /// When to look next.
    pub(super) fn due(&self, now: Instant) -> Instant {
        self.due.unwrap_or(now)
    }

    /// Looks at the pools that there are. Others are forgotten.
    pub(super) fn look(&mut self, counts: BTreeMap<String, PoolCounts>, now: Instant) {
        self.due = Some(now + EVERY);
        let mut before = std::mem::take(&mut self.pools);
        for (name, counts) in counts {
            let mut looks = before.remove(&name).unwrap_or_default();
            // One more than seconds: each lies between two looks.
            if looks.len() > SECONDS {
                looks.pop_front();
            }
            looks.push_back((now, counts));
            self.pools.insert(name, looks);
        }
    }

    /// Of a pool in which so many wait now. Until it was looked at twice, `running` and `waiting` are all that is known.
    pub(super) fn demand(&self, name: &str, running: u64, waiting: u64) -> f64 {
        let empty = VecDeque::new();
        let looks = self.pools.get(name).unwrap_or(&empty);
        let (Some((began, first)), Some((ended, last)), 2..) =
            (looks.front(), looks.back(), looks.len())
        else {
            return (running + waiting) as f64;
        };
        let seconds = ended
            .duration_since(*began)
            .as_secs_f64()
            .max(f64::MIN_POSITIVE);
        // Threads at work, times seconds.
        let busy: f64 = looks
            .iter()
            .zip(looks.iter().skip(1))
            .map(|((before, _), (at, look))| {
                at.duration_since(*before).as_secs_f64() * look.running as f64
            })
            .sum();
        let grown = |first: u64, last: u64| last as f64 - first as f64;
        let completed = grown(first.completed, last.completed);
        let refused = TRIES * grown(first.refused, last.refused);
        // Nothing says how long requests without an end in sight run: they count one by one.
        if completed <= 0.0 {
            return busy / seconds + waiting as f64 + refused;
        }
        // The mean run time in seconds, by Little's law.
        let longest = SECONDS as f64;
        let run = (busy / completed).min(longest);
        let more = refused + grown(first.waiting, waiting);
        // Those that wait are to be run within the same time, which takes less than a thread for each.
        let backlog = waiting as f64 * run / longest;
        (busy / seconds + more / seconds * run).max(0.0) + backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(looks: impl IntoIterator<Item = PoolCounts>) -> DemandMeter {
        every(EVERY, looks)
    }

    fn every(span: Duration, looks: impl IntoIterator<Item = PoolCounts>) -> DemandMeter {
        let mut meter = DemandMeter::default();
        let mut now = Instant::now();
        for look in looks {
            meter.look(BTreeMap::from([("app".to_owned(), look)]), now);
            now += span;
        }
        meter
    }

    fn counts(running: u64, waiting: u64, completed: u64, refused: u64) -> PoolCounts {
        PoolCounts {
            running,
            waiting,
            completed,
            refused,
        }
    }

    fn is(found: f64, expect: f64) {
        assert!((found - expect).abs() < 1e-9, "{found} {expect}");
    }

    #[test]
    fn is_what_runs_and_waits_until_more_is_known() {
        for meter in [meter([]), meter([counts(3, 2, 0, 0)])] {
            is(meter.demand("app", 3, 2), 5.0);
        }
    }

    #[test]
    fn is_the_mean_of_what_ran() {
        let meter = meter((0..30).map(|at| counts(2 + at % 2 * 4, 0, at * 40, 0)));
        is(meter.demand("app", 6, 0), 4.0);
        is(meter.demand("other", 6, 0), 6.0);
    }

    #[test]
    fn counts_what_is_refused_and_what_waits() {
        // 40 a second are completed by four threads, so each runs for 100 ms. 30 more a second would take three threads,
        // and twice as many if they try again.
        let refusing = meter((0..=10).map(|at| counts(4, 0, at * 40, at * 30)));
        is(refusing.demand("app", 4, 0), 10.0);
        // A queue that grows by 20 a second would take two. Eight seconds of two threads are enough for 160 that wait.
        let growing = meter((0..=8).map(|at| counts(4, at * 20, at * 40, 0)));
        is(growing.demand("app", 4, 160), 8.0);
        // One that is emptied is no new load.
        let emptied = meter((0..=8).map(|at| counts(4, (8 - at) * 20, at * 40, 0)));
        is(emptied.demand("app", 4, 0), 2.0);
    }

    #[test]
    fn looks_that_are_late_count_for_their_time() {
        let late = every(
            EVERY * 5,
            (0..=8).map(|at| counts(4, 0, at * 200, at * 150)),
        );
        is(late.demand("app", 4, 0), 10.0);
    }

    #[test]
    fn requests_without_an_end_count_one_by_one() {
        // They came a moment ago.
        let first = meter([counts(0, 0, 0, 0), counts(1, 2, 0, 0)]);
        is(first.demand("app", 1, 2), 3.0);
        let meter = meter((0..=10).map(|_| counts(4, 7, 0, 0)));
        is(meter.demand("app", 4, 7), 11.0);
    }

    #[test]
    fn forgets_pools_that_are_gone() {
        let mut meter = meter((0..=10).map(|at| counts(4, 0, at, 0)));
        meter.look(BTreeMap::new(), Instant::now());
        is(meter.demand("app", 1, 0), 1.0);
    }
}
