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

const TOO_LITTLE: &str = "too little data";

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

    fn too_little(value: f64, form: EstimateForm, cause: &str) -> Against {
        Against {
            estimate: Some(Estimate {
                form,
                value,
                interval: None,
                method: None,
            }),
            ..Against::unsaid(TOO_LITTLE, &format!("{cause}: repeat with --repeat 5"))
        }
    }

    fn of(
        metric: Metric,
        form: EstimateForm,
        value: f64,
        interval: Interval,
        method: IntervalMethod,
    ) -> Against {
        let none = form.no_difference();
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
            estimate: Some(Estimate {
                form,
                value,
                interval: Some(interval),
                method: Some(method),
            }),
            why: None,
        }
    }
}

impl EstimateForm {
    /// Shares are compared by their difference, and so is everything with a nought among its values.
    fn fitting(metric: Metric, values: &[&[f64]]) -> EstimateForm {
        let has_nought = values
            .iter()
            .any(|side| side.iter().any(|value| *value <= 0.0));
        if metric.unit() == Unit::Share || has_nought {
            EstimateForm::Difference
        } else {
            EstimateForm::Ratio
        }
    }

    pub(super) fn no_difference(self) -> f64 {
        match self {
            EstimateForm::Ratio => 1.0,
            EstimateForm::Difference => 0.0,
        }
    }

    fn of(self, first: f64, other: f64) -> f64 {
        match self {
            EstimateForm::Ratio => other / first,
            EstimateForm::Difference => other - first,
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

    /// Of the difference of two means on the scale of [`EstimateForm::straight`].
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

/// Of runs that were made in turns: what was slow for one was so for the other.
pub(super) fn by_pairs(metric: Metric, pairs: &[(f64, f64)]) -> Against {
    let (firsts, others): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    if pairs.is_empty() {
        return no_value();
    }
    let form = EstimateForm::fitting(metric, &[&firsts, &others]);
    let mut found: Vec<f64> = pairs
        .iter()
        .map(|(first, other)| form.of(*first, *other))
        .collect();
    let value = median(&mut found);
    if pairs.len() == 1 {
        return Against::too_little(value, form, "one run a side has this figure");
    }
    if pairs.len() < BOOTSTRAP_LEN_MIN {
        let straight: Vec<f64> = found.iter().map(|value| form.straight(*value)).collect();
        let interval = form.student(Spread::NONE, spread(&straight));
        return Against::of(metric, form, value, interval, IntervalMethod::Student);
    }
    // Of ratios of pairs and not of medians of sides: what drifted between two repetitions is in both of a pair.
    let mut drawn = Vec::with_capacity(found.len());
    let interval = bootstrap(|rng| {
        resample(&found, &mut drawn, rng);
        median(&mut drawn)
    });
    Against::of(metric, form, value, interval, IntervalMethod::Bootstrap)
}

/// Of different numbers of runs.
fn by_sides(metric: Metric, firsts: &[f64], others: &[f64]) -> Against {
    if firsts.is_empty() || others.is_empty() {
        return no_value();
    }
    let form = EstimateForm::fitting(metric, &[firsts, others]);
    let value = form.of(median(&mut firsts.to_vec()), median(&mut others.to_vec()));
    let len = firsts.len().min(others.len());
    if len < 2 {
        return Against::too_little(value, form, "one side has a single run");
    }
    if len < BOOTSTRAP_LEN_MIN {
        let straight = |values: &[f64]| {
            let values: Vec<f64> = values.iter().map(|value| form.straight(*value)).collect();
            spread(&values)
        };
        let interval = form.student(straight(firsts), straight(others));
        return Against::of(metric, form, value, interval, IntervalMethod::Student);
    }
    let mut drawn = Vec::new();
    let interval = bootstrap(|rng| {
        resample(firsts, &mut drawn, rng);
        let first = median(&mut drawn);
        resample(others, &mut drawn, rng);
        form.of(first, median(&mut drawn))
    });
    Against::of(metric, form, value, interval, IntervalMethod::Bootstrap)
}

fn no_value() -> Against {
    Against::unsaid("no value", "one side has no run with this figure")
}

#[cfg(test)]
mod tests;
