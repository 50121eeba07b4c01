//! Intervals over made-up runs whose truth is known, and what each number of runs allows to be said.

use super::*;
use crate::tests::outcome;

const RPS: Metric = Metric::Plain("rps");

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

/// In most of many experiments the interval holds the truth.
#[track_caller]
fn check_covered(truth: f64, experiment: impl Fn(&mut fastrand::Rng) -> Against) {
    let holds = |seed: &u64| {
        let interval = interval(&experiment(&mut fastrand::Rng::with_seed(*seed)));
        interval.low <= truth && truth <= interval.high
    };
    let covered = (0..200).filter(holds).count();
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
        check_covered(1.1, |rng| {
            let found = by_pairs(RPS, &runs(rng, len));
            assert_eq!(method(&found), Some(expect));
            found
        });
    }
}

#[test]
fn different_numbers_of_runs_give_intervals_that_hold_the_truth() {
    for (firsts, others) in [(3, 4), (5, 6)] {
        check_covered(0.9, |rng| {
            let mut side = |len: usize, mean: f64| -> Vec<f64> {
                let value = |_| mean * (1.0 + 0.03 * normal(rng));
                (0..len).map(value).collect()
            };
            let (firsts, others) = (side(firsts, 1_000.0), side(others, 900.0));
            by_sides(RPS, &firsts, &others)
        });
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
fn says_what_a_change_of_pairs_comes_to() {
    let less = [(5.0, 4.0), (5.1, 4.1), (5.2, 4.0), (5.0, 4.2), (4.9, 4.0)];
    let none = [(0.0, 0.0); 5];
    let once = [(0.0, 0.0), (0.0, 0.01), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)];
    let always = [
        (0.0, 0.02),
        (0.0, 0.01),
        (0.001, 0.03),
        (0.0, 0.02),
        (0.0, 0.01),
    ];
    let more = [(0.0, 5.0), (0.0, 6.0), (0.0, 5.0), (0.0, 5.0), (0.0, 5.0)];
    let failures = Metric::Plain("failures");
    use EstimateForm::{Difference, Ratio};
    for (metric, pairs, change, form, value) in [
        (Metric::P99, less, Change::Better, Ratio, 4.1 / 5.1),
        (RPS, less, Change::Worse, Ratio, 4.1 / 5.1),
        // Shares have no ratios, and nought makes none of other figures.
        (failures, none, Change::Noise, Difference, 0.0),
        (failures, once, Change::Noise, Difference, 0.0),
        (failures, always, Change::Worse, Difference, 0.02),
        (RPS, more, Change::Better, Difference, 5.0),
    ] {
        let found = by_pairs(metric, &pairs);
        let estimate = found.estimate.expect("a number");
        assert_eq!((found.change, estimate.form), (change, form), "{pairs:?}");
        assert!((estimate.value - value).abs() < 1e-9, "{}", estimate.value);
    }
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
