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
