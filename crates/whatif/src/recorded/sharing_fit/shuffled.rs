//! What a log would be whose runs do not depend on what runs beside them.
//!
//! Takes requests, gives them back at the same arrivals, with the runs of each route shuffled, through one queue
//! for as many threads as were at work. Long runs see their thread blocked and the others fill up, and of unlike
//! requests under one route the long ones therefore see more beside them: a fit finds that in here as well, and
//! by how much is what it has to exceed in the log. It must not know of laws.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::super::work::running_max;
use super::super::{Kept, shuffled_by_route};

/// From one thread's run to its next one.
const FETCH_NS: u64 = 3_000;

/// Threads by process and pool.
pub(super) type Pools = BTreeMap<(u8, u8), usize>;

fn pool_of(one: &Kept) -> (u8, u8) {
    (one.process, one.pool())
}

/// Pools, each with as many threads as were at work at once.
pub(super) fn pools(kept: &[Kept]) -> Pools {
    let mut pools: Pools = kept.iter().map(|one| (pool_of(one), 0)).collect();
    for (pool, threads) in &mut pools {
        *threads = running_max(kept, |one| pool_of(one) == *pool).max(1);
    }
    pools
}

/// Requests with shuffled runs, and for each the index of the one whose run it got.
pub(super) fn shuffled(
    kept: &[Kept],
    pools: &Pools,
    random: &mut fastrand::Rng,
) -> (Vec<Kept>, Vec<usize>) {
    let from = shuffled_by_route(kept, random);
    let mut free: BTreeMap<(u8, u8), BinaryHeap<Reverse<u64>>> = pools
        .iter()
        .map(|(pool, threads)| (*pool, (0..*threads).map(|_| Reverse(0)).collect()))
        .collect();
    let mut all = kept.to_vec();
    for (one, from) in all.iter_mut().zip(&from) {
        if !one.has_run() {
            continue;
        }
        one.run_s = kept[*from].run_s;
        let free = free.get_mut(&pool_of(one)).expect("each has a pool");
        // With other runs the threads are free at other times: the waits of the log would put requests beside each
        // other that a pool of this size cannot run together.
        let Reverse(idle) = free.pop().expect("each pool has a thread");
        one.queue_s = ((idle + FETCH_NS).saturating_sub(one.at) as f64 / 1e9) as f32;
        free.push(Reverse(one.ended()));
    }
    (all, from)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::VecDeque;

    use super::super::super::tests::{recording, seen};
    use super::super::super::{Recording, Seen};
    use super::super::SharingFit;
    use super::*;
    use crate::Sharing;

    const THREADS: usize = 4;

    /// Draws milliseconds that a run needs.
    pub(in super::super) type Draw = fn(&mut fastrand::Rng) -> f64;

    fn chance(random: &mut fastrand::Rng) -> f64 {
        1.0 - random.f64()
    }

    const LAWS: [(&str, Draw); 4] = [
        ("constant", |_| 30.0),
        (
            "two kinds",
            |random| {
                if random.f64() < 0.09 { 200.0 } else { 30.0 }
            },
        ),
        ("pareto", |random| {
            (5.0 * chance(random).powf(-1.0 / 1.2)).min(10_000.0)
        }),
        ("lognormal", |random| {
            let normal =
                (-2.0 * chance(random).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos();
            15.0 * (1.2 * normal).exp()
        }),
    ];

    pub(in super::super) fn only_sigma(sigma: f64) -> Sharing {
        Sharing { sigma, kappa: 0.0 }
    }

    /// A pool with one queue.
    pub(in super::super) struct Server {
        pub(in super::super) threads: usize,
        /// Between two arrivals, in the mean.
        pub(in super::super) gap_ms: f64,
    }

    impl Server {
        /// With this load by what requests would need alone.
        fn loaded(draw: Draw, load: f64) -> Server {
            let mut random = fastrand::Rng::with_seed(0);
            let mean = (0..20_000).map(|_| draw(&mut random)).sum::<f64>() / 20_000.0;
            Server {
                threads: THREADS,
                gap_ms: mean / (load * THREADS as f64),
            }
        }

        /// What it would log of requests that come by chance and slow each other down by this law.
        pub(in super::super) fn logged(
            &self,
            law: Sharing,
            draw: Draw,
            len: usize,
            seed: u64,
        ) -> Recording {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut at = 0.0;
            let mut arriving: VecDeque<(f64, f64)> = (0..len)
                .map(|_| {
                    at -= self.gap_ms * chance(&mut random).ln();
                    (at, draw(&mut random))
                })
                .collect();
            let (mut now, mut all) = (0.0f64, Vec::new());
            // When they came, when they began, what is left.
            let mut running: Vec<(f64, f64, f64)> = Vec::new();
            loop {
                let slow = law.slowdown(running.len().max(1) as f64);
                let lefts = running.iter().map(|(_, _, left)| now + left * slow);
                let ends = lefts.fold(f64::INFINITY, f64::min);
                let begins = match arriving.front() {
                    Some((at, _)) if running.len() < self.threads => at.max(now),
                    _ => f64::INFINITY,
                };
                let then = ends.min(begins);
                if then.is_infinite() {
                    return recording(&all);
                }
                for (_, _, left) in &mut running {
                    *left -= (then - now) / slow;
                }
                now = then;
                if begins < ends {
                    running.extend(arriving.pop_front().map(|(at, need)| (at, now, need)));
                } else {
                    let done = running.iter().position(|(_, _, left)| *left < 1e-6);
                    let (at, began, _) = running.swap_remove(done.expect("one has ended"));
                    all.push(logged_one(at, began, now));
                }
            }
        }
    }

    /// Of milliseconds; out of the queue a thread takes a little to fetch it.
    fn logged_one(at: f64, began: f64, ended: f64) -> Seen {
        let us = |ms: f64| (ms * 1e3) as u64;
        seen(1 + us(at), us(began) - us(at) + 3, us(ended - began) - 3)
    }

    fn fit(law: Sharing, draw: Draw, load: f64, len: usize, seed: u64) -> SharingFit {
        let log = Server::loaded(draw, load).logged(law, draw, len, seed);
        SharingFit::of(&log, None, seed).unwrap()
    }

    #[test]
    fn runs_that_depend_on_nothing_are_hardly_ever_said_to() {
        let (mut slower, mut dependent, mut logs) = (0, 0, 0);
        for (_, draw) in LAWS {
            for (load, len, seeds) in [(0.5, 500, 8), (0.8, 500, 8), (0.8, 2_600, 2)] {
                for seed in 0..seeds {
                    let found = fit(only_sigma(0.0), draw, load, len, seed);
                    slower += usize::from(found.is_slower());
                    dependent += usize::from(found.depends());
                    logs += 1;
                }
            }
        }
        assert!(slower >= 1, "none of {logs} could be taken for dependent");
        assert!(dependent <= 1, "{dependent} of {logs}");
    }

    #[test]
    fn a_tenth_for_each_other_is_found_in_unlike_runs() {
        for (name, draw) in [LAWS[1], LAWS[3]] {
            let found = fit(only_sigma(0.1), draw, 0.43, 2_600, 1);
            assert!(found.depends() && !found.is_by_chance, "{name}: {found:?}");
        }
    }

    #[test]
    fn one_lock_is_found_where_all_threads_are_always_at_work() {
        let found = fit(only_sigma(1.0), LAWS[0].1, 0.32, 600, 1);
        assert!(found.depends(), "{found:?}");
    }

    #[test]
    fn shuffled_runs_stay_within_their_route_and_their_threads() {
        let all: Vec<Seen> = (0..400)
            .map(|index| Seen {
                route: (index % 2) as u16,
                ..seen(1 + 500 * index, 0, 1_000 * (1 + index % 2) + index)
            })
            .collect();
        let before = recording(&all).kept;
        let pools = pools(&before);
        let (after, from) = shuffled(&before, &pools, &mut fastrand::Rng::with_seed(1));
        for (one, from) in after.iter().zip(&from) {
            assert_eq!(one.route, before[*from].route);
            assert_eq!(one.run_ns(), before[*from].run_ns());
        }
        let mut once = from.clone();
        once.sort_unstable();
        assert!(once.into_iter().eq(0..400) && !from.is_sorted());
        assert!(running_max(&after, |_| true) <= pools[&(0, 0)]);
    }
}
