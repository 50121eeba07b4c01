//! Intervals over made-up runs whose truth is known, and what each number of runs allows to be said.

use super::*;
use crate::tests::outcome;

const RPS: Metric = Metric::RPS;

fn normal(rng: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

fn interval(against: &Against) -> Interval {
    let estimate = against.estimate.expect("a number");
    estimate.interval.expect("an interval")
}

fn method(against: &Against) -> Option<IntervalMethod> {
    against.estimate.and_then(|estimate| estimate.method)
}

fn holds(against: &Against, truth: f64) -> u32 {
    let interval = interval(against);
    u32::from(interval.low <= truth && truth <= interval.high)
}

/// Sojourn times of a queue with one server and random arrivals, in nanoseconds, second by second.
fn queue(arrivals: f64, services: f64, seconds: u64, rng: &mut fastrand::Rng) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new(); seconds as usize];
    let mut exponential = |rate: f64| -(1.0 - rng.f64()).ln() / rate;
    // From the steady state on: the wait of an arriving customer is that of many before it.
    let mut free_at = f64::NEG_INFINITY;
    let mut now = -20.0;
    loop {
        now += exponential(arrivals);
        free_at = f64::max(free_at, now) + exponential(services);
        if now >= seconds as f64 {
            return all;
        }
        if now >= 0.0 {
            all[now as usize].push(((free_at - now) * 1e9) as u64);
        }
    }
}

fn run_of(seconds: &[Vec<u64>]) -> Outcome {
    let mut run = outcome(&seconds.concat(), seconds.len() as u32);
    let quantile = |sorted: &[u64], share: f64| {
        sorted[telemetry::nearest_rank(share, sorted.len() as u64) as usize - 1] as f64 / 1e3
    };
    for (at_s, values) in seconds.iter().enumerate() {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        run.series.push(Second {
            at_s: at_s as i64,
            answered: values.len() as u64,
            p50_us: quantile(&sorted, 0.5),
            p99_us: quantile(&sorted, 0.99),
            ..Second::default()
        });
    }
    run
}

#[test]
fn seconds_of_a_queue_give_intervals_that_hold_the_truth() {
    let mut covered = [0; 3];
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        // Utilisation 0.8 and 0.75: sojourn times are exponential with the rate services − arrivals.
        let first = run_of(&queue(400.0, 500.0, 30, &mut rng));
        let other = run_of(&queue(375.0, 500.0, 30, &mut rng));
        for (covered, (metric, truth)) in covered.iter_mut().zip([
            (RPS, 375.0 / 400.0),
            (Metric::P50, 100.0 / 125.0),
            (Metric::P99, 100.0 / 125.0),
        ]) {
            let found = by_seconds(metric, &first, &other);
            assert_eq!(method(&found), Some(IntervalMethod::Batches), "{metric}");
            *covered += holds(&found, truth);
        }
    }
    assert!(
        covered.iter().all(|covered| *covered >= 170),
        "{covered:?} of 200"
    );
}

#[test]
fn seconds_that_follow_each_other_give_intervals_that_hold_the_truth() {
    let series = |rng: &mut fastrand::Rng, mean: f64| {
        let mut value = normal(rng) / 0.6;
        let answered: Vec<u64> = (0..60)
            .map(|_| {
                value = 0.8 * value + normal(rng);
                (mean * (1.0 + 0.02 * value)) as u64
            })
            .collect();
        let mut run = outcome(&[1_000], 60);
        run.counts.answered = answered.iter().sum();
        run.series = (0..)
            .zip(answered)
            .map(|(at_s, answered)| Second {
                at_s,
                answered,
                ..Second::default()
            })
            .collect();
        run
    };
    let mut covered = 0;
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (first, other) = (series(&mut rng, 10_000.0), series(&mut rng, 12_000.0));
        covered += holds(&by_seconds(RPS, &first, &other), 1.2);
    }
    assert!(covered >= 170, "{covered} of 200");
}

/// Runs on a machine whose speed drifts, and that differ by chance as well.
fn runs(rng: &mut fastrand::Rng, len: usize) -> Vec<(f64, f64)> {
    let mut drift = 0.0;
    let pair = |_| {
        drift = 0.9 * drift + 0.05 * normal(rng);
        let mut value = |mean: f64| mean * f64::exp(drift + 0.02 * normal(rng));
        (value(1_000.0), value(1_100.0))
    };
    (0..len).map(pair).collect()
}

#[test]
fn interleaved_runs_give_intervals_that_hold_the_truth() {
    for (len, expect) in [
        (2, IntervalMethod::Student),
        (4, IntervalMethod::Student),
        (5, IntervalMethod::Bootstrap),
        (6, IntervalMethod::Bootstrap),
    ] {
        let mut covered = 0;
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let found = by_pairs(RPS, &runs(&mut rng, len));
            assert_eq!(method(&found), Some(expect));
            covered += holds(&found, 1.1);
        }
        assert!(covered >= 170, "{len} runs: {covered} of 200");
    }
}

#[test]
fn different_numbers_of_runs_give_intervals_that_hold_the_truth() {
    for (firsts, others) in [(3, 4), (5, 6)] {
        let mut covered = 0;
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut side = |len: usize, mean: f64| -> Vec<f64> {
                (0..len)
                    .map(|_| mean * (1.0 + 0.03 * normal(&mut rng)))
                    .collect()
            };
            let (firsts, others) = (side(firsts, 1_000.0), side(others, 900.0));
            covered += holds(&by_sides(RPS, &firsts, &others), 0.9);
        }
        assert!(
            covered >= 170,
            "{firsts} and {others} runs: {covered} of 200"
        );
    }
}

#[test]
fn pairs_see_what_drift_hides() {
    let pairs: Vec<(f64, f64)> = [100.0, 200.0, 400.0, 300.0, 150.0]
        .into_iter()
        .zip([1.02, 1.03, 1.025, 1.01, 1.02])
        .map(|(speed, ratio)| (speed, speed * ratio))
        .collect();
    let found = by_pairs(RPS, &pairs);
    assert_eq!(found.change, Change::Better);
    let value = found.estimate.expect("a number").value;
    assert!(
        (value - 1.02).abs() < 1e-9,
        "the median of the paired ratios: {value}"
    );
    let (firsts, others): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    assert_eq!(by_sides(RPS, &firsts, &others).change, Change::Noise);
}

#[test]
fn less_is_better_of_times() {
    let pairs = [(5.0, 4.0), (5.1, 4.1), (5.2, 4.0), (5.0, 4.2), (4.9, 4.0)];
    assert_eq!(by_pairs(Metric::P99, &pairs).change, Change::Better);
    assert_eq!(by_pairs(RPS, &pairs).change, Change::Worse);
}

#[test]
fn shares_are_compared_by_their_difference() {
    let none = [(0.0, 0.0); 5];
    let found = by_pairs(Metric::FAILURES, &none);
    assert_eq!(found.change, Change::Noise);
    let once = [(0.0, 0.0), (0.0, 0.01), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)];
    assert_eq!(by_pairs(Metric::FAILURES, &once).change, Change::Noise);
    let always = [
        (0.0, 0.02),
        (0.0, 0.01),
        (0.001, 0.03),
        (0.0, 0.02),
        (0.0, 0.01),
    ];
    let found = by_pairs(Metric::FAILURES, &always);
    assert_eq!(found.change, Change::Worse);
    let estimate = found.estimate.expect("a number");
    assert_eq!(estimate.form, EstimateForm::Difference);
    assert!((estimate.value - 0.02).abs() < 1e-9);
}

#[test]
fn a_nought_makes_no_infinite_ratio() {
    let pairs = [(0.0, 5.0), (0.0, 6.0), (0.0, 5.0)];
    let estimate = by_pairs(RPS, &pairs).estimate.expect("a number");
    assert_eq!(estimate.form, EstimateForm::Difference);
    assert!(estimate.value.is_finite());
}

#[test]
fn says_when_there_is_too_little_data() {
    let short = outcome(&[1_000_000; 2_000], 9);
    let runs = [&short, &short, &short];
    for (first, other) in [(&runs[..1], &runs[..1]), (&runs[..1], &runs[..3])] {
        let found = against(RPS, first, other);
        assert_eq!(found.change, Change::Unsaid);
        let why = found.why.expect("a reason");
        assert_eq!(why.word, "too little data");
        assert!(why.text.ends_with("repeat with --repeat 5"), "{}", why.text);
        let estimate = found.estimate.expect("a number");
        assert_eq!((estimate.value, estimate.interval), (1.0, None));
    }
    let found = against(Metric::Plain("server-cpu"), &runs, &runs);
    assert_eq!(found.why.expect("a reason").word, "no value");
}

#[test]
fn takes_no_warm_up_and_no_part_of_a_second() {
    let second = |at_s: i64, answered: u64| Second {
        at_s,
        answered,
        ..Second::default()
    };
    let mut run = outcome(&[1_000; 1_000], 10);
    run.seconds = 10.4;
    run.series = (-3..12).map(|at_s| second(at_s, 100)).collect();
    run.series[0].answered = 1;
    run.series[13].answered = 40;
    assert_eq!(batches(RPS, &run), Some(vec![100.0; 10]));
    run.seconds = 9.9;
    assert_eq!(batches(RPS, &run), None);
}

#[test]
fn says_no_quantile_of_batches_that_are_too_small() {
    let second = |at_s: i64| Second {
        at_s,
        answered: 900,
        p50_us: 5.0,
        p99_us: 50.0,
        ..Second::default()
    };
    let mut run = outcome(&[1_000; 9_000], 10);
    run.series = (0..10).map(second).collect();
    assert_eq!(batches(Metric::P50, &run), Some(vec![5.0; 10]));
    assert_eq!(batches(Metric::P99, &run), None);
}

#[test]
fn says_nothing_by_batches_without_a_reply() {
    let second = |at_s: i64| Second {
        at_s,
        answered: if at_s < 10 { 0 } else { 1_000 },
        ..Second::default()
    };
    let mut run = outcome(&[1_000; 1_000], 11);
    run.series = (0..11).map(second).collect();
    assert_eq!(by_seconds(RPS, &run, &run).change, Change::Unsaid);
}
