//! The shares of all threads together, against the plan's arithmetic.

use super::*;
use crate::plan::Leg;
use crate::tests::{sample, sample_request};

fn plan(load: Load, threads: usize) -> Plan {
    let mut plan = sample();
    plan.load = load;
    plan.machine.threads = threads;
    plan
}

fn open(arrivals: Arrivals, rate: Profile) -> Load {
    Load::Open { arrivals, rate }
}

/// The first `most` of each thread's times, all together in their order.
fn all_due(load: &Load, threads: usize, most: usize) -> Vec<Due> {
    let plan = plan(load.clone(), threads);
    let mut all = Vec::new();
    for thread in 0..threads {
        let mut schedule = Schedule::of(&plan, thread).unwrap();
        let mut before = Nanos::ZERO;
        for _ in 0..most {
            let Some(due) = schedule.due() else { break };
            assert_eq!(schedule.due(), Some(due), "it stays until it has left");
            assert!(due.offset >= before, "a thread's times are in order");
            before = due.offset;
            all.push(due);
            schedule.advance();
        }
    }
    all.sort_by_key(|due| due.offset);
    all
}

fn ramp() -> Profile {
    let leg = |from, to| Leg {
        from,
        to,
        lasts: Nanos::from_secs(2),
    };
    Profile::of(vec![leg(0.0, 900.0), leg(900.0, 900.0), leg(900.0, 0.0)])
}

#[test]
fn has_no_times_where_replies_make_requests_leave() {
    for load in [Load::Closed, Load::Burst] {
        assert!(Schedule::of(&plan(load, 1), 0).is_none());
    }
}

#[test]
fn splits_constant_arrivals_among_threads_exactly() {
    for rate in [Profile::constant(2_000.0), ramp()] {
        let load = open(Arrivals::Constant, rate);
        let one = all_due(&load, 1, 3_600);
        for threads in [2, 3, 8] {
            assert_eq!(all_due(&load, threads, 3_600 / threads), one);
        }
    }
    let ramped = all_due(&open(Arrivals::Constant, ramp()), 3, 9_999);
    // 900 + 1800 + 900: and the one at the very end.
    assert_eq!(ramped.len(), 3_601);
    let seconds = all_due(&open(Arrivals::Constant, Profile::constant(4.0)), 1, 3);
    let offsets: Vec<u64> = seconds.iter().map(|due| due.offset.0).collect();
    assert_eq!(offsets, [0, 250_000_000, 500_000_000]);
}

#[test]
fn gives_every_recorded_request_to_one_thread() {
    let arrivals: Arc<[Arrival]> = (0..1_000u32)
        .map(|nth| Arrival {
            offset: Nanos(u64::from(nth) * 7),
            kind: nth % 13,
        })
        .collect();
    let load = Load::Recorded {
        arrivals: arrivals.clone(),
    };
    for threads in [1, 2, 7, 1_001] {
        let all = all_due(&load, threads, usize::MAX);
        let recorded = arrivals.iter().map(|arrival| Due {
            offset: arrival.offset,
            kind: Some(arrival.kind),
        });
        assert!(all.into_iter().eq(recorded), "{threads} threads");
    }
}

/// The gaps in units of their mean, of a rate of 1,000 a second.
fn gaps(all: &[Due]) -> Vec<f64> {
    let mut before = Nanos::ZERO;
    all.iter()
        .map(|due| {
            let gap = due.offset.0 - before.0;
            before = due.offset;
            gap as f64 / 1e6
        })
        .collect()
}

/// Whether gaps are exponential with mean 1: mean, variance, and the greatest distance between their
/// distribution and 1 − e⁻ˣ (Kolmogorov and Smirnov; 1.95/√n is exceeded once in a thousand seeds).
fn check_exponential(gaps: &[f64]) {
    let len = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / len;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / len;
    // Their standard errors are 1/√n and √8/√n: four of each.
    assert!((mean - 1.0).abs() < 4.0 / len.sqrt(), "mean {mean}");
    assert!(
        (variance - 1.0).abs() < 4.0 * (8.0 / len).sqrt(),
        "variance {variance}"
    );
    let mut sorted = gaps.to_vec();
    sorted.sort_by(f64::total_cmp);
    let distance = sorted.iter().enumerate().map(|(nth, gap)| {
        let share = 1.0 - (-gap).exp();
        let [below, above] = [nth as f64 / len, (nth + 1) as f64 / len];
        (share - below).abs().max((share - above).abs())
    });
    let most = distance.fold(0.0, f64::max);
    assert!(most < 1.95 / len.sqrt(), "distance {most}");
    // One gap says nothing of the next one.
    let pairs = gaps
        .windows(2)
        .map(|pair| (pair[0] - mean) * (pair[1] - mean));
    let correlation = pairs.sum::<f64>() / (len - 1.0) / variance;
    assert!(
        correlation.abs() < 4.0 / len.sqrt(),
        "correlation {correlation}"
    );
}

#[test]
fn spaces_poisson_arrivals_exponentially_over_all_threads_together() {
    for seed in [0, 1, 42] {
        let load = open(Arrivals::Poisson { seed }, Profile::constant(1_000.0));
        for threads in [1, 2, 5] {
            let mut all = all_due(&load, threads, 24_000 / threads);
            // The threads do not end together: only where all of them go on it is one stream.
            all.truncate(20_000);
            check_exponential(&gaps(&all));
        }
    }
}

fn thread_gaps(seed: u64, thread: usize) -> Vec<f64> {
    let load = open(Arrivals::Poisson { seed }, Profile::constant(4_000.0));
    let mut schedule = Schedule::of(&plan(load, 4), thread).unwrap();
    let next = || {
        let due = schedule.due();
        schedule.advance();
        due
    };
    gaps(&std::iter::from_fn(next).take(10_000).collect::<Vec<_>>())
}

#[test]
fn repeats_a_seed_and_shares_nothing_with_other_seeds_and_threads() {
    assert_eq!(thread_gaps(7, 2), thread_gaps(7, 2));
    let all =
        [(7, 2), (7, 1), (8, 1), (9, 0), (8, 2)].map(|(seed, thread)| thread_gaps(seed, thread));
    for (nth, one) in all.iter().enumerate() {
        for other in &all[nth + 1..] {
            let products = one
                .iter()
                .zip(other)
                .map(|(one, other)| (one - 1.0) * (other - 1.0));
            // Gaps of mean and variance 1: the standard error is 1/√n.
            let correlation = products.sum::<f64>() / 10_000.0;
            assert!(correlation.abs() < 0.04, "correlation {correlation}");
        }
    }
}

#[test]
fn follows_a_profile_with_poisson_arrivals() {
    let load = open(Arrivals::Poisson { seed: 3 }, ramp());
    let all = all_due(&load, 4, usize::MAX);
    for (from_s, until_s, expect) in [(0, 2, 900.0), (2, 4, 1_800.0), (4, 6, 900.0)] {
        let [from, until] = [from_s, until_s].map(Nanos::from_secs);
        let here = all
            .iter()
            .filter(|due| from <= due.offset && due.offset < until);
        let off = (here.count() as f64 - expect).abs();
        assert!(
            off < 4.0 * f64::sqrt(expect),
            "{off} off in {from_s} to {until_s} s"
        );
    }
    assert!(all.iter().all(|due| due.offset <= Nanos::from_secs(6)));
}

fn chooser(weights: &[u32], thread: usize) -> Chooser {
    let mut plan = sample();
    plan.requests = weights
        .iter()
        .map(|&weight| sample_request(weight))
        .collect();
    Chooser::of(&plan, thread)
}

#[test]
fn chooses_kinds_in_proportion() {
    const LEN: usize = 100_000;
    for (thread, weights) in [
        &[1u32, 2, 7][..],
        &[0, 5, 0, 5, 0],
        &[1],
        &[u32::MAX, u32::MAX],
    ]
    .into_iter()
    .enumerate()
    {
        let mut counts = vec![0usize; weights.len()];
        let mut chooser = chooser(weights, thread);
        for _ in 0..LEN {
            counts[chooser.choose() as usize] += 1;
        }
        let all: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        for (&weight, count) in weights.iter().zip(counts) {
            let share = f64::from(weight) / all;
            let error = (LEN as f64 * share * (1.0 - share)).sqrt();
            let off = (count as f64 - LEN as f64 * share).abs();
            assert!(off <= 4.0 * error, "{count} of {weights:?} for {weight}");
        }
    }
}

#[test]
fn chooses_kinds_whatever_the_gaps_are() {
    let load = open(Arrivals::Poisson { seed: 0 }, Profile::constant(1_000.0));
    for thread in 0..3 {
        let mut schedule = Schedule::of(&plan(load.clone(), 3), thread).unwrap();
        let mut chooser = chooser(&[1, 1], thread);
        let mut sums = [(0.0, 0.0); 2];
        let mut before = 0;
        for _ in 0..10_000 {
            let offset = schedule.due().unwrap().offset.0;
            let kind = chooser.choose() as usize;
            sums[kind].0 += (offset - before) as f64;
            sums[kind].1 += 1.0;
            before = offset;
            schedule.advance();
        }
        let [one, other] = sums.map(|(sum, len)| sum / len);
        assert!((one / other - 1.0).abs() < 0.1, "{one} and {other} ns");
    }
}
