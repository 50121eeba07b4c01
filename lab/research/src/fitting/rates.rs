//! How many come: stretches of time whose rates differ by more than chance makes them differ.
//!
//! Takes moments of arrivals, gives steps. Splits at the place where two rates explain the counts best, and
//! splits the parts again, as long as the gain is more than chance gives (binary segmentation, Scott and
//! Knott 1974). Chance is measured on the log itself: where requests come in bursts, counts differ more.

use telemetry::Nanos;
use whatif::Rate;

/// Places at which a stretch may be split; then as many around the best of them, closer and closer.
const PLACES_LEN: u64 = 256;
/// Chance is measured in at most so many bins,
const BINS_LEN_MAX: u64 = 512;
/// with at least so many requests each in the mean.
const BIN_REQUESTS_MIN: f64 = 8.0;
/// A step has at least so many independent arrivals.
const STEP_ARRIVALS_MIN: f64 = 50.0;
/// Twice the logarithm of how much likelier two rates have to be than one. By chance the best of all places
/// gives 10 in one log of 20, and 20 in one of some thousands.
const GAIN_MIN: f64 = 24.0;
/// Steps that differ by less are one: no queue tells them apart.
const STEP_SHARE_MIN: f64 = 0.05;
/// Most steps.
const STEPS_LEN_MAX: usize = 48;

/// Rates of arrivals at these moments, from 0 to `lasts`; `at` is sorted.
pub(super) fn steps(at: &[u64], lasts: Nanos) -> Vec<Rate> {
    let counts = Counts {
        at,
        lasts_ns: lasts.0,
        together: together(at, lasts.0),
    };
    let mut parts = vec![counts.part(0, lasts.0)];
    while parts.len() < STEPS_LEN_MAX {
        let gain = |part: &Part| part.split.as_ref().map(|split| split.gain);
        let best = (0..parts.len()).max_by(|one, other| {
            let [one, other] = [one, other].map(|part| gain(&parts[*part]).unwrap_or(0.0));
            one.total_cmp(&other)
        });
        let Some((best, at)) = best.and_then(|best| Some((best, parts[best].split.as_ref()?.at)))
        else {
            break;
        };
        let Part { begin, end, .. } = parts[best];
        parts[best] = counts.part(begin, at);
        parts.insert(best + 1, counts.part(at, end));
    }
    let rate = |part: &Part| {
        let span = Nanos(part.end - part.begin);
        let requests = counts.requests(part.begin, part.end);
        Rate::steady(requests / span.as_secs_f64(), span)
    };
    parts.iter().map(rate).collect()
}

/// Requests that come together by chance, at least 1: the variance of counts over their mean, taken from
/// neighbours only, because the rate drifts (von Neumann 1941).
fn together(at: &[u64], lasts_ns: u64) -> f64 {
    let len = ((at.len() as f64 / BIN_REQUESTS_MIN) as u64).clamp(2, BINS_LEN_MAX);
    let before = |bin: u64| {
        let begin = u128::from(lasts_ns) * u128::from(bin) / u128::from(len);
        at.partition_point(|at| u128::from(*at) < begin) as f64
    };
    let counts: Vec<f64> = (0..len).map(|bin| before(bin + 1) - before(bin)).collect();
    let squares = counts.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
    let mean = at.len() as f64 / len as f64;
    (squares.sum::<f64>() / (2.0 * (len - 1) as f64 * mean)).max(1.0)
}

/// A stretch of time, and where it should be split.
struct Part {
    begin: u64,
    end: u64,
    split: Option<Split>,
}

struct Split {
    at: u64,
    gain: f64,
}

/// Numbers of requests between any two moments.
struct Counts<'a> {
    at: &'a [u64],
    lasts_ns: u64,
    together: f64,
}

impl Counts<'_> {
    fn requests(&self, begin: u64, end: u64) -> f64 {
        let before = |moment: u64| match moment == self.lasts_ns {
            true => self.at.len(),
            false => self.at.partition_point(|at| *at < moment),
        };
        (before(end) - before(begin)) as f64
    }

    /// With the best place to split it, when that is good enough.
    fn part(&self, begin: u64, end: u64) -> Part {
        let mut step = (end - begin) / PLACES_LEN;
        let mut best = self.best(begin, end, (begin + step, end - step.min(end)), step);
        while let Some(split) = &best
            && step > PLACES_LEN
        {
            let around = (split.at - step, split.at + step);
            step = 2 * step / PLACES_LEN;
            best = self.best(begin, end, around, step);
        }
        let split = best.filter(|split| split.gain > GAIN_MIN);
        Part { begin, end, split }
    }

    fn best(&self, begin: u64, end: u64, (from, to): (u64, u64), step: u64) -> Option<Split> {
        let whole = self.requests(begin, end);
        (from..=to)
            .step_by(usize::try_from(step.max(1)).unwrap_or(usize::MAX))
            .filter_map(|at| self.split(begin, at, end, whole))
            .max_by(|one, other| one.gain.total_cmp(&other.gain))
    }

    fn split(&self, begin: u64, at: u64, end: u64, whole: f64) -> Option<Split> {
        if at <= begin || at >= end {
            return None;
        }
        let one = self.requests(begin, at);
        let other = whole - one;
        let spans = [at - begin, end - at].map(|span| span as f64);
        let [one_rate, other_rate] = [one / spans[0], other / spans[1]];
        // Silence is long, too: what counts is what would be there at the rate of the whole log.
        let mean_rate = self.at.len() as f64 / self.lasts_ns as f64;
        let least = STEP_ARRIVALS_MIN * self.together;
        let is_long =
            one.max(mean_rate * spans[0]) >= least && other.max(mean_rate * spans[1]) >= least;
        let is_other = (one_rate - other_rate).abs() > STEP_SHARE_MIN * one_rate.max(other_rate);
        let parts = likelihood_log(one, spans[0]) + likelihood_log(other, spans[1]);
        let gain = 2.0 * (parts - likelihood_log(whole, spans[0] + spans[1])) / self.together;
        (is_long && is_other).then_some(Split { at, gain })
    }
}

/// How well one rate fits, but for what all rates have in common.
fn likelihood_log(requests: f64, span: f64) -> f64 {
    match requests > 0.0 {
        true => requests * (requests / span).ln(),
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whatif::{ArrivalProcess, Laws, Route, Service};

    const BURSTS: ArrivalProcess = ArrivalProcess::Bursts {
        len_mean: 8.0,
        gap: Nanos::from_ms(2),
    };

    fn found(rates: &[(f64, u64)], process: ArrivalProcess, seed: u64) -> Vec<Rate> {
        let rate = |&(per_second, secs)| Rate::steady(per_second, Nanos::from_secs(secs));
        let laws = Laws {
            rates: rates.iter().map(rate).collect(),
            process,
            routes: vec![Route::only(Service::Constant(Nanos::from_ms(1)))],
        };
        let lasts: u64 = rates.iter().map(|(_, secs)| secs).sum();
        let mut at: Vec<u64> = laws.arrivals(seed).map(|arrival| arrival.at.0).collect();
        at.retain(|at| *at < lasts * 1_000_000_000);
        steps(&at, Nanos::from_secs(lasts))
    }

    #[test]
    fn what_chance_does_is_no_step() {
        for process in [ArrivalProcess::Even, ArrivalProcess::Poisson, BURSTS] {
            for seed in 1..=20 {
                let found = found(&[(100.0, 200)], process, seed);
                assert_eq!(found.len(), 1, "{process:?} {seed}: {found:?}");
            }
        }
    }

    #[test]
    fn steps_are_found_where_they_are() {
        let rates = [(100.0, 300), (160.0, 200), (40.0, 400)];
        for process in [ArrivalProcess::Even, ArrivalProcess::Poisson, BURSTS] {
            for seed in 1..=10 {
                let found = found(&rates, process, seed);
                assert_eq!(found.len(), 3, "{process:?} {seed}: {found:?}");
                for (step, (per_second, secs)) in found.iter().zip(rates) {
                    let off = step.per_second / per_second - 1.0;
                    assert!(off.abs() < 0.15, "{process:?} {seed}: {found:?}");
                    let off = step.lasts.as_secs_f64() / secs as f64 - 1.0;
                    assert!(off.abs() < 0.1, "{process:?} {seed}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn silence_is_a_step() {
        let found = found(
            &[(50.0, 100), (0.0, 50), (50.0, 100)],
            ArrivalProcess::Poisson,
            1,
        );
        let rates: Vec<u64> = found
            .iter()
            .map(|rate| rate.per_second as u64 / 10)
            .collect();
        assert_eq!(rates.len(), 3, "{found:?}");
        assert_eq!(rates[1], 0, "{found:?}");
    }

    #[test]
    fn steps_last_as_long_as_the_log() {
        let found = found(&[(100.0, 7), (200.0, 23)], ArrivalProcess::Poisson, 3);
        let sum: u64 = found.iter().map(|rate| rate.lasts.0).sum();
        assert_eq!(sum, 30_000_000_000);
        assert!(steps(&[0, 5], Nanos(10)).len() == 1);
    }
}
