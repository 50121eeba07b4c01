//! How long requests run: the law that run times follow best.
//!
//! Takes run times, gives the law with the most likelihood, by Akaike's criterion (1974), which charges for each
//! parameter, and how far it is from what was measured (Kolmogorov). What is most likely need not be likely:
//! who uses it has to look at the distance.

use telemetry::Nanos;
use whatif::Service;

/// Logs have microseconds; what took no time took half of one.
const RUN_MIN_NS: f64 = 500.0;
/// All of 99 of 100 requests are that close to each other: a constant.
const CONSTANT_SHARE: f64 = 0.02;
const CS2_MAX: f64 = 1e3;
const TAIL_MIN: f64 = 1e-3;
const TAIL_MAX: f64 = 90.0;

/// A law, and how far it is from what it was fitted to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Run {
    pub(super) service: Service,
    /// The largest difference between two shares: of requests that are shorter than some time in the law, and
    /// in the log. Of a constant the share of those that are off by more than [`CONSTANT_SHARE`].
    pub(super) distance: f64,
}

/// The law of run times; at least one, in nanoseconds. Sorts them.
pub(super) fn run(runs_ns: &mut [f64]) -> Run {
    for run in runs_ns.iter_mut() {
        *run = run.max(RUN_MIN_NS);
    }
    runs_ns.sort_unstable_by(f64::total_cmp);
    let sums = Sums::of(runs_ns);
    if let Some(run) = constant(runs_ns, &sums) {
        return run;
    }
    let all = [
        Some(sums.exponential()),
        Some(sums.uniform()),
        sums.log_normal(),
        sums.pareto(),
    ];
    let best = all
        .into_iter()
        .flatten()
        .filter(|candidate| candidate.aic.is_finite())
        .min_by(|one, other| one.aic.total_cmp(&other.aic));
    let service = best.map_or_else(|| sums.exponential().service, |best| best.service);
    Run {
        service,
        distance: distance(runs_ns, &service),
    }
}

fn constant(sorted: &[f64], sums: &Sums) -> Option<Run> {
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let middle = at(0.5);
    (at(0.995) - at(0.005) <= CONSTANT_SHARE * middle).then(|| {
        let far = |run: &&f64| (**run - middle).abs() > CONSTANT_SHARE * middle;
        Run {
            service: Service::Constant(Nanos(middle as u64)),
            distance: sorted.iter().filter(far).count() as f64 / sums.len,
        }
    })
}

/// All that the laws want to know of run times.
struct Sums {
    len: f64,
    mean: f64,
    log_mean: f64,
    log_variance: f64,
    least: f64,
    most: f64,
}

struct Candidate {
    service: Service,
    /// Less is better.
    aic: f64,
}

impl Candidate {
    fn new(service: Service, parameters: u8, likelihood_log: f64) -> Candidate {
        Candidate {
            service,
            aic: 2.0 * f64::from(parameters) - 2.0 * likelihood_log,
        }
    }
}

impl Sums {
    fn of(sorted: &[f64]) -> Sums {
        let len = sorted.len() as f64;
        let log_mean = sorted.iter().map(|run| run.ln()).sum::<f64>() / len;
        let squares = sorted.iter().map(|run| (run.ln() - log_mean).powi(2));
        Sums {
            len,
            mean: sorted.iter().sum::<f64>() / len,
            log_mean,
            log_variance: squares.sum::<f64>() / len,
            least: sorted[0],
            most: sorted[sorted.len() - 1],
        }
    }

    fn exponential(&self) -> Candidate {
        let mean = Nanos(self.mean as u64);
        let likelihood_log = -self.len * (self.mean.ln() + 1.0);
        Candidate::new(Service::Exponential { mean }, 1, likelihood_log)
    }

    fn uniform(&self) -> Candidate {
        let service = Service::Uniform {
            least: Nanos(self.least as u64),
            most: Nanos(self.most as u64),
        };
        Candidate::new(service, 2, -self.len * (self.most - self.least).ln())
    }

    /// `None` when its tail has nearly all the weight: of a log that was no such law.
    fn log_normal(&self) -> Option<Candidate> {
        let cs2 = self.log_variance.exp_m1();
        if cs2 > CS2_MAX {
            return None;
        }
        let service = Service::LogNormal {
            mean: Nanos((self.log_mean + self.log_variance / 2.0).exp() as u64),
            cs2,
        };
        let constant = (std::f64::consts::TAU * self.log_variance).ln() / 2.0;
        let likelihood_log = -self.len * (self.log_mean + constant + 0.5);
        Some(Candidate::new(service, 2, likelihood_log))
    }

    /// `None` when the tail rises. Its bounds are those that were seen; its tail is where the derivative of the
    /// likelihood is zero (Aban, Meerschaert and Panorska 2006).
    fn pareto(&self) -> Option<Candidate> {
        let ratio_log = (self.least / self.most).ln();
        let over_least = self.log_mean - self.least.ln();
        let slope = |tail: f64| {
            let rest = (tail * ratio_log).exp();
            1.0 / tail + rest * ratio_log / (1.0 - rest) - over_least
        };
        if slope(TAIL_MIN) <= 0.0 || slope(TAIL_MAX) >= 0.0 {
            return None;
        }
        let (mut low, mut high) = (TAIL_MIN, TAIL_MAX);
        for _ in 0..80 {
            let middle = (low * high).sqrt();
            match slope(middle) > 0.0 {
                true => low = middle,
                false => high = middle,
            }
        }
        let tail = low;
        let whole = (-(tail * ratio_log).exp_m1()).ln();
        let each = tail.ln() + tail * self.least.ln() - (tail + 1.0) * self.log_mean - whole;
        let service = Service::Pareto {
            least: Nanos(self.least as u64),
            most: Nanos(self.most as u64),
            tail,
        };
        Some(Candidate::new(service, 3, self.len * each))
    }
}

/// The largest difference between the law and what was measured.
fn distance(sorted: &[f64], service: &Service) -> f64 {
    let len = sorted.len() as f64;
    let off = sorted.iter().enumerate().map(|(index, run)| {
        let share = share_within(service, *run);
        (share - index as f64 / len)
            .abs()
            .max(((index + 1) as f64 / len - share).abs())
    });
    off.fold(0.0, f64::max)
}

/// The share of requests that are within a time by law, nanoseconds.
pub(super) fn share_within(service: &Service, run_ns: f64) -> f64 {
    match *service {
        Service::Constant(run) => f64::from(u8::from(run_ns >= run.0 as f64)),
        Service::Uniform { least, most } => {
            let width = (most.0 - least.0).max(1) as f64;
            ((run_ns - least.0 as f64) / width).clamp(0.0, 1.0)
        }
        Service::Exponential { mean } => -(-run_ns.max(0.0) / mean.0.max(1) as f64).exp_m1(),
        Service::LogNormal { mean, cs2 } => {
            let variance = cs2.ln_1p();
            let middle = (mean.0.max(1) as f64).ln() - variance / 2.0;
            normal_within((run_ns.max(1.0).ln() - middle) / variance.sqrt())
        }
        Service::Pareto { least, most, tail } => {
            let (least, most) = (least.0 as f64, most.0 as f64);
            let run = run_ns.clamp(least, most);
            (tail * (least / run).ln()).exp_m1() / (tail * (least / most).ln()).exp_m1()
        }
    }
}

/// The share of a normal law below a value, to 1e-7 (Abramowitz and Stegun 7.1.26).
fn normal_within(value: f64) -> f64 {
    let x = value.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let polynomial = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let sum = polynomial
        .iter()
        .fold(0.0, |sum, factor| (sum + factor) * t);
    let beyond = sum * (-x * x).exp() / 2.0;
    if value > 0.0 { 1.0 - beyond } else { beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 20_000;

    fn made(service: Service, seed: u64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..LEN)
            .map(|_| service.sample(&mut random).0 as f64)
            .collect()
    }

    fn all() -> [Service; 9] {
        let ms = Nanos::from_ms;
        [
            Service::Constant(ms(7)),
            Service::Exponential { mean: ms(20) },
            Service::Uniform {
                least: ms(5),
                most: ms(35),
            },
            Service::LogNormal {
                mean: ms(20),
                cs2: 0.01,
            },
            Service::LogNormal {
                mean: ms(20),
                cs2: 1.0,
            },
            Service::LogNormal {
                mean: ms(20),
                cs2: 6.0,
            },
            Service::Pareto {
                least: ms(5),
                most: Nanos::from_secs(10),
                tail: 1.2,
            },
            Service::Pareto {
                least: ms(1),
                most: ms(400),
                tail: 0.7,
            },
            Service::Pareto {
                least: ms(1),
                most: ms(1_000),
                tail: 2.5,
            },
        ]
    }

    /// What a law is described by, but for the end of a tail, which the longest request alone tells.
    fn parameters(service: &Service) -> Vec<f64> {
        match *service {
            Service::Constant(run) => vec![run.0 as f64],
            Service::Exponential { mean } => vec![mean.0 as f64],
            Service::Uniform { least, most } => vec![least.0 as f64, most.0 as f64],
            Service::LogNormal { mean, cs2 } => vec![mean.0 as f64, cs2],
            Service::Pareto { least, tail, .. } => vec![least.0 as f64, tail],
        }
    }

    #[test]
    fn each_law_is_found_again() {
        for service in all() {
            for seed in 1..=5 {
                let found = run(&mut made(service, seed));
                assert_eq!(
                    std::mem::discriminant(&found.service),
                    std::mem::discriminant(&service),
                    "{service:?} {seed}: {found:?}"
                );
                let pairs = parameters(&service).into_iter();
                for (expect, found) in pairs.zip(parameters(&found.service)) {
                    assert!(
                        (found / expect - 1.0).abs() < 0.12,
                        "{service:?} {seed}: {found} for {expect}"
                    );
                }
                // Kolmogorov: chance gives more than 1.95 / √n in one of a thousand.
                assert!(found.distance < 0.02, "{service:?} {seed}: {found:?}");
            }
        }
    }

    #[test]
    fn two_kinds_at_once_are_far_from_any_law() {
        let mut both = made(Service::Constant(Nanos::from_ms(1)), 1);
        both.extend(made(Service::Constant(Nanos::from_ms(100)), 1));
        assert!(run(&mut both).distance > 0.2);
    }

    #[test]
    fn what_took_no_time_does_not_break_it() {
        let found = run(&mut [0.0; 10]);
        assert_eq!(found.service, Service::Constant(Nanos(500)));
        let found = run(&mut [0.0, 1e9]);
        assert!(found.distance.is_finite(), "{found:?}");
    }

    #[test]
    fn half_are_within_the_middle() {
        for service in all() {
            let mut runs = made(service, 9);
            runs.sort_unstable_by(f64::total_cmp);
            let shares = [LEN / 10, LEN / 2, LEN / 100 * 99];
            for index in shares {
                let expect = (index + 1) as f64 / LEN as f64;
                let found = share_within(&service, runs[index]);
                let is_constant = matches!(service, Service::Constant(_)) && found == 1.0;
                assert!(
                    is_constant || (found - expect).abs() < 0.02,
                    "{service:?}: {found} for {expect}"
                );
            }
        }
    }
}
