//! Requests that have ended, added up by second and pool and by minute and folded path. Pure: time comes as an argument.

use std::collections::HashMap;

use super::float::{packed, unpacked};
use super::{
    HEAT_BOUNDS, HEAT_CELLS, HeldMinute, HeldRequest, HeldSecond, MINUTE_ROWS, PathSum, PoolSum,
    SECOND_POOLS,
};
use crate::{Nanos, PerPhase, nearest_rank};

/// Adds requests up. One of it makes the sums of a server, one second after another.
#[derive(Default)]
pub struct SumAdder {
    second: SecondAdder,
    /// Of the minute that lasts.
    minute_s: u64,
    all: PathAdder,
    /// By number.
    paths: HashMap<u16, PathAdder>,
}

/// How a pool is at the end of a second, in all processes, and what it has refused since the server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolGauges {
    /// Requests that run.
    pub running: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Threads.
    pub threads: u64,
    /// Requests that were refused.
    pub refused: u64,
}

#[derive(Default)]
struct SecondAdder {
    heat: [u64; HEAT_CELLS],
    pools: Vec<PoolAdder>,
    /// What the pools had refused when the second began.
    refused: Vec<u64>,
}

#[derive(Clone, Default)]
struct PoolAdder {
    ended: u32,
    failed: u32,
    total: Durations,
    queue: Durations,
    run: Durations,
    receive: Durations,
    send: Durations,
}

#[derive(Default)]
struct PathAdder {
    ended: u32,
    failed: u32,
    total: Durations,
    longest: Nanos,
    sums: PerPhase<u64>,
}

/// How many durations are in each bucket: eight for each power of two of microseconds. A distribution of `time` would take
/// 9.7 KB for each of 2,048 paths; this one takes a tenth of it at most, and grows with the longest duration.
#[derive(Clone, Default)]
struct Durations {
    len: u64,
    buckets: Vec<u32>,
}

impl SumAdder {
    /// Adds a request. `pool`: the index of its pool among those of the second, if it has one there.
    pub fn add(&mut self, request: &HeldRequest, pool: Option<usize>) {
        let spans = Spans::of(request);
        self.second.add(request, &spans, pool);
        self.all.add(request, &spans);
        self.paths
            .entry(request.path)
            .or_default()
            .add(request, &spans);
    }

    /// The second that ends now, `at_s` in seconds since 1970, and lasted so long; the next one begins. `pools` have the
    /// order of the indexes and the names of this list.
    pub fn second(
        &mut self,
        at_s: u64,
        span_ms: u32,
        names: u32,
        pools: &[PoolGauges],
    ) -> HeldSecond {
        let second = std::mem::take(&mut self.second);
        let pools = &pools[..pools.len().min(SECOND_POOLS)];
        self.second.refused = pools.iter().map(|pool| pool.refused).collect();
        let sums = pools.iter().enumerate().map(|(index, gauges)| {
            let ended = second.pools.get(index).cloned().unwrap_or_default();
            // Without a second before, the pool is new: what it has refused is of this second.
            let refused = second.refused.get(index).copied().unwrap_or(0);
            ended.sum(gauges, gauges.refused.saturating_sub(refused))
        });
        HeldSecond {
            at_s,
            span_ms,
            heat: second.heat,
            names,
            pools: sums.collect(),
        }
    }

    /// Forgets what pools had refused: they are others from now on, or in another order.
    pub fn begin_pools(&mut self, pools: &[PoolGauges]) {
        self.second.refused = pools.iter().map(|pool| pool.refused).collect();
        self.second.pools.clear();
    }

    /// Whether another minute begins at this second since 1970, so that the one before is whole.
    pub fn begins_minute(&mut self, at_s: u64) -> bool {
        let minute_s = at_s / 60 * 60;
        let before = std::mem::replace(&mut self.minute_s, minute_s);
        before != minute_s && before != 0
    }

    /// The minute that lasts, as far as it has come.
    pub fn minute(&self) -> HeldMinute {
        let mut rows = Vec::with_capacity(MINUTE_ROWS);
        if self.all.ended > 0 {
            rows.push(self.all.sum(0));
        }
        let mut named: Vec<_> = self.paths.iter().filter(|(path, _)| **path > 0).collect();
        // By their numbers where they have equally many, so that the order does not change from second to second.
        named.sort_unstable_by_key(|(path, one)| (std::cmp::Reverse(one.ended), **path));
        let shown_len = named.len().min(MINUTE_ROWS - 2);
        rows.extend(named[..shown_len].iter().map(|(path, one)| one.sum(**path)));
        let rest = named[shown_len..].iter().map(|(_, one)| *one);
        let others = self.paths.get(&0).into_iter().chain(rest);
        let others = others.fold(PathAdder::default(), PathAdder::with);
        if others.ended > 0 {
            rows.push(others.sum(0));
        }
        HeldMinute {
            at_s: self.minute_s,
            rows,
        }
    }

    /// Begins the next minute with nothing in it.
    pub fn forget_minute(&mut self) {
        self.all = PathAdder::default();
        self.paths.clear();
    }
}

/// The durations of a request; `total` is their sum.
struct Spans(PerPhase<Nanos>);

impl Spans {
    fn of(request: &HeldRequest) -> Spans {
        let all = [request.receive, request.queue, request.run, request.send];
        let total = all
            .iter()
            .fold(0_u64, |sum, span| sum.saturating_add(span.0));
        Spans(PerPhase {
            receive: request.receive,
            queue: request.queue,
            run: request.run,
            send: request.send,
            total: Nanos(total),
            ..PerPhase::default()
        })
    }
}

fn has_failed(request: &HeldRequest) -> bool {
    request.status >= 500
}

impl SecondAdder {
    fn add(&mut self, request: &HeldRequest, Spans(spans): &Spans, pool: Option<usize>) {
        if !request.is_long_lived {
            let cell = HEAT_BOUNDS.partition_point(|bound| *bound < spans.total);
            self.heat[cell] += 1;
        }
        let Some(index) = pool.filter(|index| *index < SECOND_POOLS) else {
            return;
        };
        if self.pools.len() <= index {
            self.pools.resize_with(index + 1, PoolAdder::default);
        }
        let pool = &mut self.pools[index];
        pool.ended = pool.ended.saturating_add(1);
        pool.failed = pool.failed.saturating_add(u32::from(has_failed(request)));
        pool.queue.add(spans.queue);
        pool.receive.add(spans.receive);
        if !request.is_long_lived {
            pool.total.add(spans.total);
            pool.run.add(spans.run);
            pool.send.add(spans.send);
        }
    }
}

impl PoolAdder {
    fn sum(&self, gauges: &PoolGauges, refused: u64) -> PoolSum {
        let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let most = |durations: &Durations| durations.quantiles([0.99])[0];
        PoolSum {
            ended: self.ended,
            failed: self.failed,
            refused: whole(refused),
            running: whole(gauges.running),
            waiting: whole(gauges.waiting),
            threads: whole(gauges.threads),
            total: self.total.quantiles([0.5, 0.99]),
            queue: self.queue.quantiles([0.5, 0.99]),
            run: self.run.quantiles([0.5, 0.99]),
            receive: most(&self.receive),
            send: most(&self.send),
        }
    }
}

impl PathAdder {
    fn add(&mut self, request: &HeldRequest, Spans(spans): &Spans) {
        self.ended = self.ended.saturating_add(1);
        self.failed = self.failed.saturating_add(u32::from(has_failed(request)));
        if request.is_long_lived {
            return;
        }
        self.total.add(spans.total);
        self.longest = self.longest.max(spans.total);
        for (sum, span) in self.sums.each_mut().into_iter().zip(spans.each()) {
            *sum = sum.saturating_add(span.0);
        }
    }

    fn with(mut self, other: &PathAdder) -> PathAdder {
        self.ended = self.ended.saturating_add(other.ended);
        self.failed = self.failed.saturating_add(other.failed);
        self.total.merge(&other.total);
        self.longest = self.longest.max(other.longest);
        for (sum, more) in self.sums.each_mut().into_iter().zip(other.sums.each()) {
            *sum = sum.saturating_add(*more);
        }
        self
    }

    fn sum(&self, path: u16) -> PathSum {
        PathSum {
            path,
            ended: self.ended,
            failed: self.failed,
            total: self.total.quantiles([0.5, 0.95, 0.99]),
            longest: self.longest,
            means: self.sums.map(|sum| Nanos(sum / self.total.len.max(1))),
        }
    }
}

impl Durations {
    fn add(&mut self, span: Nanos) {
        let bucket = packed::<3>(span.0 / 1_000) as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
        self.len += 1;
    }

    fn merge(&mut self, other: &Durations) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count = count.saturating_add(*more);
        }
        self.len += other.len;
    }

    /// The durations that these shares of all do not exceed, within 7 %; 0 when there are none.
    fn quantiles<const LEN: usize>(&self, shares: [f64; LEN]) -> [Nanos; LEN] {
        shares.map(|share| {
            let rank = nearest_rank(share, self.len).max(1);
            let mut passed = 0;
            let found = self.buckets.iter().position(|count| {
                passed += u64::from(*count);
                passed >= rank
            });
            let us = found.map_or(0, |bucket| unpacked::<3>(bucket as u64));
            Nanos(us.saturating_mul(1_000))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: u16, ms: u64, status: u16) -> HeldRequest {
        HeldRequest {
            path,
            status,
            queue: Nanos::from_ms(ms / 2),
            run: Nanos::from_ms(ms - ms / 2),
            ..HeldRequest::default()
        }
    }

    fn is_near(found: Nanos, ms: u64) -> bool {
        let expect = Nanos::from_ms(ms).0 as f64;
        (found.0 as f64 - expect).abs() <= 0.07 * expect
    }

    #[test]
    fn a_second_has_each_pool_and_begins_anew() {
        let mut adder = SumAdder::default();
        for ms in 1..=100 {
            adder.add(&request(1, ms, 200), Some(1));
        }
        adder.add(&request(1, 4_000, 503), Some(0));
        adder.add(&request(1, 7, 200), None);
        let gauges = PoolGauges {
            running: 2,
            waiting: 5,
            threads: 4,
            refused: 3,
        };
        let second = adder.second(1_000, 1_001, 9, &[gauges, gauges]);
        assert_eq!(second.heat.iter().sum::<u64>(), 102);
        let [slow, many] = second.pools[..] else {
            panic!("{second:?}");
        };
        assert_eq!((slow.ended, slow.failed, slow.refused), (1, 1, 3));
        assert_eq!((many.ended, many.failed, many.waiting), (100, 0, 5));
        assert!(is_near(many.total[0], 50) && is_near(many.total[1], 99));
        assert!(is_near(many.queue[1], 49) && is_near(slow.run[0], 2_000));
        let next = PoolGauges {
            refused: 4,
            ..gauges
        };
        let second = adder.second(1_001, 1_000, 9, &[next, gauges]);
        assert_eq!(second.heat.iter().sum::<u64>(), 0);
        let refused: Vec<_> = second.pools.iter().map(|pool| pool.refused).collect();
        assert_eq!((second.pools[0].ended, refused), (0, vec![1, 0]));
    }

    #[test]
    fn a_minute_has_the_paths_with_most_requests_and_all_others_together() {
        let mut adder = SumAdder::default();
        adder.begins_minute(6_030);
        for path in 1..=100 {
            for _ in 0..path {
                adder.add(&request(path, 10, 200), None);
            }
        }
        adder.add(&request(0, 900, 500), None);
        let minute = adder.minute();
        assert_eq!((minute.at_s, minute.rows.len()), (6_000, MINUTE_ROWS));
        let [all, .., others] = &minute.rows[..] else {
            panic!("{minute:?}");
        };
        assert_eq!((all.ended, all.failed), (5_051, 1));
        let named: u32 = minute.rows[1..63].iter().map(|row| row.ended).sum();
        assert_eq!((others.path, others.ended), (0, all.ended - named));
        assert_eq!((others.failed, others.longest), (1, Nanos::from_ms(900)));
        let first = &minute.rows[1];
        assert_eq!((first.path, first.ended), (100, 100));
        assert_eq!(first.means.queue, Nanos::from_ms(5));
        assert!(is_near(first.total[2], 10));
        assert!(!adder.begins_minute(6_059) && adder.begins_minute(6_060));
        adder.forget_minute();
        assert!(adder.minute().rows.is_empty());
    }

    #[test]
    fn a_request_that_lives_long_counts_and_has_no_duration() {
        let mut adder = SumAdder::default();
        let stream = HeldRequest {
            is_long_lived: true,
            ..request(1, 60_000, 200)
        };
        adder.add(&stream, Some(0));
        let minute = adder.minute();
        assert_eq!((minute.rows[0].ended, minute.rows[0].longest.0), (1, 0));
        let second = adder.second(1, 1_000, 1, &[PoolGauges::default()]);
        assert_eq!((second.pools[0].ended, second.pools[0].total[1].0), (1, 0));
        assert_eq!(second.heat.iter().sum::<u64>(), 0);
    }
}
