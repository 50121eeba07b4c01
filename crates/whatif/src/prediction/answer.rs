//! What came out of a variant, as tables, pages and programs want it.
//!
//! Takes an outcome, gives numbers in milliseconds and shares.

use hdrhistogram::Histogram;
use serde::Serialize;
use telemetry::share_of_rank;

use super::Variant;
use crate::outcome::share;
use crate::{Moment, Outcome, PoolOutcome};

/// Percentiles by nearest rank, milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Times {
    /// Half are within it.
    pub p50_ms: f64,
    /// 90 of 100.
    pub p90_ms: f64,
    /// 95 of 100.
    pub p95_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// 999 of 1,000.
    pub p99_9_ms: f64,
    /// 9,999 of 10,000.
    pub p99_99_ms: f64,
    /// The mean.
    pub mean_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Times {
    /// Of a histogram in nanoseconds; zeros of an empty one.
    pub fn of(histogram: &Histogram<u64>) -> Times {
        let at = |share| {
            let share = share_of_rank(share, histogram.len());
            histogram.value_at_quantile(share) as f64 / 1e6
        };
        if histogram.is_empty() {
            return Times::default();
        }
        Times {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p99_9_ms: at(0.999),
            p99_99_ms: at(0.999_9),
            mean_ms: histogram.mean() / 1e6,
            max_ms: histogram.max() as f64 / 1e6,
        }
    }
}

/// What came out of a variant.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Answer {
    /// Threads of the pool that varies: `4`, or `2:20`.
    pub threads: String,
    /// Processes.
    pub processes: usize,
    /// Times the rate of the present.
    pub rate: f64,
    /// Whether the controller steers: `on` or `off`.
    pub control: &'static str,
    /// Waits of those that ran, all pools together.
    pub queue: Times,
    /// From arrival to end of those that ran.
    pub total: Times,
    /// Requests that arrived.
    pub arrived: u64,
    /// Of these, those that were refused, at once or after they had waited.
    pub refused: u64,
    /// The share of all threads' time at work.
    pub busy: f64,
    /// Threads in the mean, all processes together.
    pub threads_mean: f64,
    /// The most threads of all pools at once, in one process.
    pub threads_max: usize,
    /// Whether more could be at work at once than twice what was seen: how they slow each other down is
    /// unknown.
    pub is_beyond: bool,
    /// By pool.
    pub pools: Vec<PoolAnswer>,
    /// Second by second, thinned out.
    #[serde(skip)]
    pub timeline: Vec<Moment>,
}

/// What came out of one pool.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PoolAnswer {
    /// Its name.
    pub name: String,
    /// Its threads.
    pub threads: String,
    /// Waits of those that ran.
    pub queue: Times,
    /// From arrival to end of those that ran.
    pub total: Times,
    /// Requests that arrived.
    pub arrived: u64,
    /// Of these, those that were refused.
    pub refused: u64,
    /// The share of its threads' time at work.
    pub busy: f64,
}

impl Answer {
    pub(super) fn of(variant: &Variant, outcome: &Outcome) -> Answer {
        let pools = &outcome.pools;
        let sum = |of: fn(&PoolOutcome) -> f64| pools.iter().map(of).sum::<f64>();
        let count = |of: fn(&PoolOutcome) -> u64| pools.iter().map(of).sum::<u64>();
        let thread_seconds = sum(|pool| pool.thread_seconds);
        let threads_max = pools.iter().map(|pool| pool.threads_max).sum();
        Answer {
            threads: variant.pools[0].threads.to_string(),
            processes: variant.processes,
            rate: variant.rate,
            control: variant.control.text(),
            queue: Times::of(&merged(pools, |pool| &pool.queue)),
            total: Times::of(&merged(pools, |pool| &pool.total)),
            arrived: count(|pool| pool.arrived),
            // A client sees the same 503 for both.
            refused: count(|pool| pool.refused + pool.expired),
            busy: share(sum(|pool| pool.busy_seconds), thread_seconds),
            threads_mean: share(thread_seconds, outcome.lasted.as_secs_f64()),
            threads_max,
            is_beyond: false,
            pools: variant
                .pools
                .iter()
                .zip(pools)
                .map(|(asked, pool)| PoolAnswer {
                    name: asked.name.clone(),
                    threads: asked.threads.to_string(),
                    queue: Times::of(&pool.queue),
                    total: Times::of(&pool.total),
                    arrived: pool.arrived,
                    refused: pool.refused + pool.expired,
                    busy: share(pool.busy_seconds, pool.thread_seconds),
                })
                .collect(),
            timeline: outcome.timeline.clone(),
        }
    }

    /// The share of requests that were refused.
    pub fn refused_share(&self) -> f64 {
        share(self.refused as f64, self.arrived as f64)
    }
}

fn merged(pools: &[PoolOutcome], of: impl Fn(&PoolOutcome) -> &Histogram<u64>) -> Histogram<u64> {
    let mut all = of(&pools[0]).clone();
    for pool in &pools[1..] {
        all.add(of(pool))
            .expect("all pools' histograms have the same bounds");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_values_are_values_by_nearest_rank() {
        let check = |values: &[u64], expect: [f64; 4]| {
            let mut histogram = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
            for value in values {
                histogram.record(value * 1_000_000).unwrap();
            }
            let times = Times::of(&histogram);
            let found = [times.p50_ms, times.p90_ms, times.p99_ms, times.max_ms];
            let close = found
                .iter()
                .zip(expect)
                .all(|(one, ms)| (one - ms).abs() <= 0.001 * ms);
            assert!(close, "{values:?}: {found:?}");
        };
        check(&[], [0.0; 4]);
        check(&[7], [7.0; 4]);
        check(&[1, 9], [1.0, 9.0, 9.0, 9.0]);
        check(&[1, 2, 3, 4], [2.0, 4.0, 4.0, 4.0]);
        check(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [5.0, 9.0, 10.0, 10.0]);
    }
}
