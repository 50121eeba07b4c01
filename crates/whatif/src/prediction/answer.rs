//! What came out of a variant, as tables, pages and programs want it.
//!
//! Takes an outcome, gives numbers in milliseconds and shares.

use serde::Serialize;
use telemetry::share_of_rank;

use super::{PoolVariant, Variant};
use crate::outcome::share;
use crate::{Moment, Outcome, PoolOutcome, RunsOn, Spans};

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
    /// Of durations in nanoseconds; zeros of none.
    pub fn of(spans: &Spans) -> Times {
        let at = |share| {
            let share = share_of_rank(share, spans.len());
            spans.value_at_quantile(share) as f64 / 1e6
        };
        if spans.is_empty() {
            return Times::default();
        }
        Times {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p99_9_ms: at(0.999),
            p99_99_ms: at(0.999_9),
            mean_ms: spans.mean() / 1e6,
            max_ms: spans.max() as f64 / 1e6,
        }
    }
}

/// What came out of a variant.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Answer {
    /// Threads of the pool that varies: `4`, or `2:20`.
    pub threads: String,
    /// How many requests may be inside the event loop of a process; `None` where the pool that varies is on threads.
    pub concurrency: Option<String>,
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
    /// How many requests may be inside its event loop; `None` where it is on threads.
    pub concurrency: Option<String>,
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
        let thread_seconds = thread_seconds(variant, pools);
        let threads_max = pools.iter().map(|pool| pool.threads_max).sum();
        let concurrency = |pool: &PoolVariant| match pool.runs_on {
            RunsOn::Threads => None,
            RunsOn::EventLoop => Some(variant.concurrency.to_string()),
        };
        Answer {
            threads: variant.pools[0].threads.to_string(),
            concurrency: concurrency(&variant.pools[0]),
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
                    concurrency: concurrency(asked),
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

    /// What varies of the first pool, in words: its threads, or how many requests may be inside its event loop.
    pub fn size(&self) -> &str {
        self.concurrency.as_deref().unwrap_or(&self.threads)
    }

    /// The share of requests that were refused.
    pub fn refused_share(&self) -> f64 {
        share(self.refused as f64, self.arrived as f64)
    }
}

/// What threads there were, in seconds. All pools on an event loop have the same one.
fn thread_seconds(variant: &Variant, pools: &[PoolOutcome]) -> f64 {
    let both = || variant.pools.iter().zip(pools);
    let of = |runs_on: RunsOn| {
        let own = both().filter(move |(asked, _)| asked.runs_on == runs_on);
        own.map(|(_, pool)| pool.thread_seconds)
    };
    of(RunsOn::Threads).sum::<f64>() + of(RunsOn::EventLoop).fold(0.0, f64::max)
}

fn merged(pools: &[PoolOutcome], of: impl Fn(&PoolOutcome) -> &Spans) -> Spans {
    let mut all = of(&pools[0]).clone();
    for pool in &pools[1..] {
        all.add(of(pool));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Threads;
    use super::super::tests::fixed;
    use super::*;

    #[test]
    fn percentiles_of_few_values_are_values_by_nearest_rank() {
        let check = |values: &[u64], expect: [f64; 4]| {
            let times = Times::of(&values.iter().map(|value| value * 1_000_000).collect());
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

    #[test]
    fn pools_on_an_event_loop_have_one_thread_together() {
        let on_loop = PoolVariant {
            runs_on: RunsOn::EventLoop,
            ..PoolVariant::of_threads("a", Threads::fixed(1))
        };
        let threads = PoolVariant::of_threads("b", Threads::fixed(3));
        let variant = Variant {
            pools: vec![on_loop.clone(), threads, on_loop],
            ..fixed(1)
        };
        let pool = |thread_seconds| PoolOutcome {
            thread_seconds,
            ..PoolOutcome::new()
        };
        let pools = [pool(10.0), pool(30.0), pool(10.0)];
        assert!((thread_seconds(&variant, &pools) - 40.0).abs() < 1e-9);
    }
}
