//! How long requests run, by law.
//!
//! Takes a law's parameters and chance, gives a time. It must not know routes.

use telemetry::Nanos;

/// How long requests run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Service {
    /// All equally long.
    Constant(Nanos),
    /// Any time in these bounds, all with the same chance.
    Uniform {
        /// The shortest.
        least: Nanos,
        /// The longest; not shorter.
        most: Nanos,
    },
    /// Most short, some longer, by the law without memory.
    Exponential {
        /// Their mean.
        mean: Nanos,
    },
    /// The logarithm is normal: as most handlers that do several things one after another.
    LogNormal {
        /// Their mean.
        mean: Nanos,
        /// Their variance over the square of their mean: 1 is as uneven as the exponential law.
        cs2: f64,
    },
    /// A heavy tail with an end.
    Pareto {
        /// The shortest; above zero.
        least: Nanos,
        /// The longest; longer than the shortest.
        most: Nanos,
        /// How fast the tail falls, above zero: with 1 all sizes weigh the same, with 2 and more it is light.
        tail: f64,
    },
}

impl Service {
    /// A time by this law.
    pub fn sample(&self, random: &mut fastrand::Rng) -> Nanos {
        match *self {
            Service::Constant(run) => run,
            Service::Uniform { least, most } => Nanos(random.u64(least.0..=most.0.max(least.0))),
            Service::Exponential { mean } => Nanos((mean.0 as f64 * exponential(random)) as u64),
            Service::LogNormal { mean, cs2 } => {
                let variance = cs2.ln_1p();
                let log = variance.sqrt() * normal(random) - variance / 2.0;
                Nanos((mean.0 as f64 * log.exp()) as u64)
            }
            Service::Pareto { least, most, tail } => {
                let kept = 1.0 - random.f64() * (1.0 - ratio(least, most).powf(tail));
                Nanos((least.0 as f64 * kept.powf(-1.0 / tail)) as u64)
            }
        }
    }

    /// The mean time.
    pub fn mean(&self) -> Nanos {
        match *self {
            Service::Constant(run) => run,
            Service::Uniform { least, most } => Nanos(least.0 / 2 + most.0 / 2),
            Service::Exponential { mean } | Service::LogNormal { mean, .. } => mean,
            Service::Pareto { least, most, tail } => {
                Nanos((least.0 as f64 * pareto_mean(ratio(least, most), tail)) as u64)
            }
        }
    }
}

fn ratio(least: Nanos, most: Nanos) -> f64 {
    least.0 as f64 / most.0 as f64
}

/// The mean, in units of the shortest time, which is `ratio` of the longest.
fn pareto_mean(ratio: f64, tail: f64) -> f64 {
    let whole = tail / (1.0 - ratio.powf(tail));
    if (tail - 1.0).abs() < 1e-9 {
        return -whole * ratio.ln();
    }
    whole * (1.0 - ratio.powf(tail - 1.0)) / (tail - 1.0)
}

/// A time of mean 1 by the law without memory.
pub(super) fn exponential(random: &mut fastrand::Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

/// A value of mean 0 and variance 1 (Box and Muller 1958).
fn normal(random: &mut fastrand::Rng) -> f64 {
    let angle = std::f64::consts::TAU * random.f64();
    (2.0 * exponential(random)).sqrt() * angle.cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_mean_and_the_variance_of_their_law() {
        let ms = Nanos::from_ms;
        let check = |service: Service, mean_ms: f64, cs2: f64| {
            assert!(
                (service.mean().0 as f64 / 1e6 / mean_ms - 1.0).abs() < 1e-3,
                "{service:?}"
            );
            let mut random = fastrand::Rng::with_seed(7);
            let (mut sum, mut squares, len) = (0.0, 0.0, 400_000);
            for _ in 0..len {
                let run = service.sample(&mut random).0 as f64 / 1e6;
                (sum, squares) = (sum + run, squares + run * run);
            }
            let mean = sum / f64::from(len);
            let found = squares / f64::from(len) / (mean * mean) - 1.0;
            assert!(
                (mean / mean_ms - 1.0).abs() < 0.02,
                "{service:?}: mean {mean}"
            );
            assert!(
                (found - cs2).abs() < 0.1 * cs2.max(0.01),
                "{service:?}: variance {found}"
            );
        };
        let pareto = |most, tail| Service::Pareto {
            least: ms(1),
            most,
            tail,
        };
        let log_normal = |cs2| Service::LogNormal { mean: ms(10), cs2 };
        check(Service::Constant(ms(3)), 3.0, 0.0);
        check(
            Service::Uniform {
                least: ms(3),
                most: ms(20),
            },
            11.5,
            0.182_1,
        );
        check(Service::Exponential { mean: ms(5) }, 5.0, 1.0);
        check(log_normal(0.25), 10.0, 0.25);
        check(log_normal(2.0), 10.0, 2.0);
        // From 1 to 100 with the density 1 / x² / 0.99 the mean is ln 100 / 0.99, that of squares 100.
        check(pareto(ms(100), 1.0), 4.651_7, 3.621_5);
        // With 1 / x³ × 2 / 0.9999 they are 1.980 and 2 ln 100 / 0.9999.
        check(pareto(ms(100), 2.0), 1.980_2, 1.349_2);
    }
}
