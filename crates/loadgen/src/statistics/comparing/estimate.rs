//! One figure of two groups of runs: the ratio, how well it is known, and what that says.
//!
//! Takes outcomes of both sides, gives an [`Against`]. Which way depends on how many runs there are:
//!
//! | runs a side | the interval |
//! |---|---|
//! | 5 and more | bootstrap over whole runs, of paired ratios where the numbers agree |
//! | 2 to 4 | Student's t of the logarithms: a bootstrap of so few would be too narrow |
//! | else | none: a run does not say how it differs from the next one |

use serde::Serialize;

use super::super::interval::{Interval, Spread, bootstrap, median, resample, spread, welch_half};
use super::super::metric::{Better, Metric};
use super::super::unit::Unit;
use crate::outcome::Outcome;

/// Fewer runs than these are not resampled.
const BOOTSTRAP_LEN_MIN: usize = 5;

/// One side against the first.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Against {
    /// What it comes to.
    pub change: Change,
    /// The number and its interval, as far as they can be said.
    pub estimate: Option<Estimate>,
    /// Why the change cannot be said.
    pub why: Option<Why>,
}

/// Why a change cannot be said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Why {
    /// In a word or three.
    pub word: &'static str,
    /// In a sentence, with the remedy.
    pub text: String,
}

/// What a difference comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The whole interval is better.
    Better,
    /// The whole interval is worse.
    Worse,
    /// The interval holds "no difference".
    Noise,
    /// There is no interval.
    Unsaid,
}

/// A number and its interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// What the number is.
    pub form: EstimateForm,
    /// The number.
    pub value: f64,
    /// 95 %; `None`: too little data.
    pub interval: Option<Interval>,
    /// Where the interval comes from.
    pub method: Option<IntervalMethod>,
}

/// What an estimate is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EstimateForm {
    /// To the first side's value.
    Ratio,
    /// From the first side's value, of shares and of what may be nought.
    Difference,
}

/// Where an interval comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IntervalMethod {
    /// Whole runs, resampled.
    Bootstrap,
    /// Whole runs, by Student's t.
    Student,
}

impl Against {
    pub(super) fn unsaid(word: &'static str, text: &str) -> Against {
        Against {
            change: Change::Unsaid,
            estimate: None,
            why: Some(Why {
                word,
                text: text.to_owned(),
            }),
        }
    }
}

impl EstimateForm {
    /// Shares are compared by their difference, and so is everything with a nought among its values.
    fn fitting(metric: Metric, values: &[&[f64]]) -> EstimateForm {
        let has_nought = values.concat().iter().any(|value| *value <= 0.0);
        if metric.unit() == Unit::Share || has_nought {
            EstimateForm::Difference
        } else {
            EstimateForm::Ratio
        }
    }

    /// Onto a scale on which it is a difference.
    fn straight(self, value: f64) -> f64 {
        match self {
            EstimateForm::Ratio => value.ln(),
            EstimateForm::Difference => value,
        }
    }

    fn back(self, value: f64) -> f64 {
        match self {
            EstimateForm::Ratio => value.exp(),
            EstimateForm::Difference => value,
        }
    }

    fn of(self, first: f64, other: f64) -> f64 {
        self.back(self.straight(other) - self.straight(first))
    }

    /// The mean on the scale of [`EstimateForm::straight`].
    fn spread(self, values: &[f64]) -> Spread {
        let straight = values.iter().map(|value| self.straight(*value));
        spread(&straight.collect::<Vec<_>>())
    }

    /// Of the difference of two means on that scale.
    fn student(self, first: Spread, other: Spread) -> Interval {
        let (centre, half) = (other.mean - first.mean, welch_half(first, other));
        Interval {
            low: self.back(centre - half),
            high: self.back(centre + half),
        }
    }
}

/// One figure of two groups of runs.
pub(super) fn against(metric: Metric, first: &[&Outcome], other: &[&Outcome]) -> Against {
    let values = |runs: &[&Outcome]| runs.iter().map(|run| metric.of(run)).collect::<Vec<_>>();
    let (first, other) = (values(first), values(other));
    if first.len() == other.len() {
        let pairs = first.into_iter().zip(other);
        let pairs: Vec<(f64, f64)> = pairs
            .filter_map(|(first, other)| Some((first?, other?)))
            .collect();
        by_pairs(metric, &pairs)
    } else {
        let known = |values: Vec<Option<f64>>| values.into_iter().flatten().collect::<Vec<_>>();
        by_sides(metric, &known(first), &known(other))
    }
}

/// Of runs that were made in turns.
pub(super) fn by_pairs(metric: Metric, pairs: &[(f64, f64)]) -> Against {
    let (firsts, others): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let form = EstimateForm::fitting(metric, &[&firsts, &others]);
    let found = pairs.iter().map(|(first, other)| form.of(*first, *other));
    let mut found: Vec<f64> = found.collect();
    let value = median(&mut found);
    let cause = "one run a side has this figure";
    let student = || form.student(Spread::NONE, form.spread(&found));
    // Of ratios of pairs and not of medians of sides: what drifted between two repetitions, or was slow for one, is in
    // both of a pair.
    let mut drawn = Vec::with_capacity(found.len());
    let draw = |rng: &mut fastrand::Rng| {
        resample(&found, &mut drawn, rng);
        median(&mut drawn)
    };
    judged(metric, (form, value), (pairs.len(), cause), student, draw)
}

/// Of different numbers of runs.
fn by_sides(metric: Metric, firsts: &[f64], others: &[f64]) -> Against {
    let form = EstimateForm::fitting(metric, &[firsts, others]);
    let value = form.of(median(&mut firsts.to_vec()), median(&mut others.to_vec()));
    let len = firsts.len().min(others.len());
    let student = || form.student(form.spread(firsts), form.spread(others));
    let mut drawn = Vec::new();
    let draw = |rng: &mut fastrand::Rng| {
        resample(firsts, &mut drawn, rng);
        let first = median(&mut drawn);
        resample(others, &mut drawn, rng);
        form.of(first, median(&mut drawn))
    };
    let cause = "one side has a single run";
    judged(metric, (form, value), (len, cause), student, draw)
}

/// What a number comes to, of so many runs a side; with the cause where one of them is a single run.
fn judged(
    metric: Metric,
    (form, value): (EstimateForm, f64),
    (len, cause): (usize, &str),
    student: impl FnOnce() -> Interval,
    draw: impl FnMut(&mut fastrand::Rng) -> f64,
) -> Against {
    let known = match len {
        0 => return Against::unsaid("no value", "one side has no run with this figure"),
        1 => None,
        2..BOOTSTRAP_LEN_MIN => Some((student(), IntervalMethod::Student)),
        _ => Some((bootstrap(draw), IntervalMethod::Bootstrap)),
    };
    let estimate = Some(Estimate {
        form,
        value,
        interval: known.map(|(interval, _)| interval),
        method: known.map(|(_, method)| method),
    });
    let Some((interval, _)) = known else {
        let text = format!("{cause}: repeat with --repeat 5");
        return Against {
            estimate,
            ..Against::unsaid("too little data", &text)
        };
    };
    let none = form.back(0.0);
    let is_lower = interval.high < none;
    let change = if interval.low <= none && none <= interval.high {
        Change::Noise
    } else if is_lower == (metric.better() == Better::Lower) {
        Change::Better
    } else {
        Change::Worse
    };
    Against {
        change,
        estimate,
        why: None,
    }
}

#[cfg(test)]
mod tests;
