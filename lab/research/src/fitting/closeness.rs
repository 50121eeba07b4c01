//! How close fitted laws are to their requests: percentiles of run times, and how uneven arrivals are.
//!
//! Takes requests and laws, gives pairs of numbers and whether they are close. It does not know how the laws
//! were found.

use hdrhistogram::Histogram;
use telemetry::Nanos;
use whatif::{Arrival, Laws};

use super::dispersion::{Dispersion, Spread};
use super::run_times;

/// Percentiles may be off by so much.
const PERCENTILE_SHARE_MAX: f64 = 0.2;
/// Indexes of dispersion, likewise, of the larger one,
const INDEX_SHARE_MAX: f64 = 0.3;
/// or by so much, where both are small.
const INDEX_MAX: f64 = 0.25;
/// What chance alone does, it does within so many of its deviations.
const DEVIATIONS: f64 = 3.0;
/// Ten days, for histograms.
const RUN_MAX_NS: u64 = 864_000_000_000_000;
const WINDOWS: [Nanos; 4] = [
    Nanos::from_ms(10),
    Nanos::from_ms(100),
    Nanos::from_secs(1),
    Nanos::from_secs(10),
];

/// Laws beside their requests.
#[derive(Clone, PartialEq, Debug)]
pub struct Closeness {
    /// p50, p95 and p99 of run times.
    pub runs: Vec<PercentilePair>,
    /// Of windows from 10 ms to 10 s, as far as the requests last long enough.
    pub dispersion: Vec<DispersionPair>,
}

/// A percentile of run times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PercentilePair {
    /// 50, 95 or 99.
    pub percentile: u8,
    /// In the log, alone: without what others and pauses added.
    pub log_ms: f64,
    /// By law.
    pub law_ms: f64,
    /// Whether they are within a fifth, or within what chance does to a log.
    pub holds: bool,
}

/// The index of dispersion: variance over mean of the numbers of requests in windows of one length.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DispersionPair {
    /// The length of the windows.
    pub window_seconds: f64,
    /// In the log.
    pub log: f64,
    /// Of requests made by law.
    pub law: f64,
    /// Whether they are within three tenths, or within what chance does to both.
    pub holds: bool,
}

impl Closeness {
    /// Of requests and laws that last about as long. The same seed makes the same requests.
    pub fn of(requests: &[Arrival], laws: &Laws, seed: u64) -> Closeness {
        Closeness {
            runs: percentiles(requests, laws),
            dispersion: dispersions(requests, laws, seed),
        }
    }

    /// Whether all of them are close.
    pub fn holds(&self) -> bool {
        self.runs.iter().all(|pair| pair.holds) && self.dispersion.iter().all(|pair| pair.holds)
    }
}

fn percentiles(requests: &[Arrival], laws: &Laws) -> Vec<PercentilePair> {
    let mut log: Histogram<u64> =
        Histogram::new_with_bounds(1, RUN_MAX_NS, 3).expect("the bounds are in its bounds");
    for arrival in requests {
        log.saturating_record(arrival.run.0);
    }
    let pair = |percentile: u8| {
        let share = f64::from(percentile) / 100.0;
        let at = |share: f64| log.value_at_quantile(share.min(1.0)) as f64;
        let law = quantile(laws, share);
        let deviation = (share * (1.0 - share) / log.len() as f64).sqrt();
        let by_chance = at(share - DEVIATIONS * deviation)..=at(share + DEVIATIONS * deviation);
        let is_close = (law - at(share)).abs() <= PERCENTILE_SHARE_MAX * at(share);
        PercentilePair {
            percentile,
            log_ms: at(share) / 1e6,
            law_ms: law / 1e6,
            holds: is_close || by_chance.contains(&law),
        }
    };
    [50, 95, 99].map(pair).to_vec()
}

/// The time that this share of all requests are within, nanoseconds.
fn quantile(laws: &Laws, share: f64) -> f64 {
    let weights: f64 = laws.routes.iter().map(|route| route.weight).sum();
    let within = |run_ns: f64| {
        let each = laws.routes.iter();
        let sum: f64 = each
            .map(|route| route.weight * run_times::share_within(&route.service, run_ns))
            .sum();
        sum / weights
    };
    let (mut low, mut high): (f64, f64) = (1.0, 1e18);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        match within(middle) < share {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

fn dispersions(requests: &[Arrival], laws: &Laws, seed: u64) -> Vec<DispersionPair> {
    let lasts = Nanos(laws.rates.iter().map(|rate| rate.lasts.0).sum());
    let mut log = WINDOWS.map(|window| Dispersion::new(window, lasts));
    let mut law = log.clone();
    for arrival in requests {
        log.iter_mut().for_each(|one| one.see(arrival.at.0));
    }
    for arrival in laws.arrivals(seed) {
        law.iter_mut().for_each(|one| one.see(arrival.at.0));
    }
    let pairs = log.into_iter().zip(law);
    let pairs = pairs
        .filter_map(|(log, law)| pair(log.around_mean(), law.around_mean(), requests.len() as f64));
    pairs.collect()
}

fn pair(log: Spread, law: Spread, requests: f64) -> Option<DispersionPair> {
    let (window, windows_len) = (log.window, log.windows_len);
    let (log, law) = (log.index?, law.index?);
    let most = log.max(law);
    // Of both, and of pages, which come as wholes.
    let chance = 2.0 * (2.0 / windows_len as f64 + 4.0 * most.max(1.0) / requests);
    let near = (INDEX_SHARE_MAX * most)
        .max(INDEX_MAX)
        .max(DEVIATIONS * most * chance.sqrt());
    Some(DispersionPair {
        window_seconds: window.as_secs_f64(),
        log,
        law,
        holds: (log - law).abs() <= near,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fit;
    use super::super::tests::{laws, logged};
    use super::*;
    use whatif::{ArrivalProcess, Rate, Service};

    const RUN: Service = Service::LogNormal {
        mean: Nanos::from_ms(10),
        cs2: 2.0,
    };
    const BURSTS: ArrivalProcess = ArrivalProcess::Bursts {
        len_mean: 6.0,
        gap: Nanos::from_us(700),
    };

    #[test]
    fn a_fitted_law_is_close_to_its_log() {
        for process in [ArrivalProcess::Even, ArrivalProcess::Poisson, BURSTS] {
            for seed in 1..=4 {
                let mut made = laws(process, &[(1.0, RUN)]);
                made.rates.push(Rate::steady(90.0, Nanos::from_secs(150)));
                let log = logged(&made, seed);
                let fitted = fit(&log).unwrap();
                let found = Closeness::of(&log, &fitted.laws, 77);
                assert!(found.holds(), "{process:?} {seed}: {fitted:?} {found:?}");
                assert_eq!((found.runs.len(), found.dispersion.len()), (3, 4));
            }
        }
    }

    #[test]
    fn a_wrong_law_is_not() {
        let log = logged(&laws(BURSTS, &[(1.0, RUN)]), 1);
        let check = |process, run, expect: [bool; 2]| {
            let found = Closeness::of(&log, &laws(process, &[(1.0, run)]), 77);
            let runs = found.runs.iter().all(|pair| pair.holds);
            let dispersion = found.dispersion.iter().all(|pair| pair.holds);
            assert_eq!([runs, dispersion], expect, "{process:?} {run:?}: {found:?}");
        };
        check(BURSTS, RUN, [true, true]);
        check(ArrivalProcess::Poisson, RUN, [true, false]);
        check(ArrivalProcess::Even, RUN, [true, false]);
        let exponential = Service::Exponential { mean: RUN.mean() };
        check(BURSTS, exponential, [false, true]);
    }

    #[test]
    fn ten_windows_of_a_length_are_too_few() {
        let made = laws(ArrivalProcess::Poisson, &[(1.0, RUN)]);
        let found = Closeness::of(&logged(&made, 1), &made, 1);
        let windows: Vec<f64> = found
            .dispersion
            .iter()
            .map(|pair| pair.window_seconds)
            .collect();
        assert_eq!(windows, [0.01, 0.1, 1.0]);
    }

    #[test]
    fn quantiles_of_two_laws_are_between_both() {
        let ms = Nanos::from_ms;
        let both = [
            (1.0, Service::Constant(ms(1))),
            (3.0, Service::Constant(ms(9))),
        ];
        let laws = laws(ArrivalProcess::Even, &both);
        let found = [0.2, 0.3].map(|share| (quantile(&laws, share) / 1e6).round());
        assert_eq!(found, [1.0, 9.0]);
    }
}
